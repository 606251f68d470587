//! Records a simulated scenario as a trace, in the format of this library's own traces.
//!
//! **Why.** The same tools can then show the effect of a load on a simulated and on a real disk.
//!
//! **How.** A simulation gives the same result every time, so [`record`] runs it again and writes its log as events: a
//! dispatch is Dispatched and Submitted, a completion that a shard sees is Completed and Reaped, an end is Finished and
//! Callback. The lateness of a completion is exact here.
//!
//! **Limits.** Only one world can be recorded: a scenario from a file. The trace has no blocked queues and no decisions
//! of the closed loop. A request for another shard's queue has all its events there, with no Callback.
//!
//! **Example.**
//!
//! ```text
//! let events = record(&scenario, 1, file)?;      // plimsoll sim run own.yaml --trace own.plt
//! ```

use std::collections::HashMap;
use std::io::{self, Write};

use plimsoll::core::trace::{Event, EventKind};
use plimsoll::trace::format::{ClassName, Clock, FileName, Names, Writer};
use plimsoll_files::scenario::Scenario;
use plimsoll_sim::world::{self, WorldError, WorldSpec, run_logged};

/// Events of a shard per write.
const BATCH: usize = 16_384;
/// Linux's error number for a cancelled request.
const ECANCELED: u32 = 125;

#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error(transparent)]
    World(#[from] WorldError),
    #[error("cannot write the trace: {0}")]
    Io(#[from] io::Error),
}

/// Runs `scenario` with `seed` and writes the events of every request to `out`. Returns the number of events.
pub fn record(scenario: &Scenario, seed: u64, out: impl Write) -> Result<u64, RecordError> {
    let world = WorldSpec { seed, ..scenario.world.clone() };
    let mut writer = Writer::new(out, Clock::Virtual, 0)?;
    writer.names(&names(scenario))?;
    let mut log = Log { writer, shards: Vec::new(), requests: HashMap::new(), events: 0, error: None };
    run_logged(&world, &mut |event| log.take(event))?;
    log.finish()
}

fn names(scenario: &Scenario) -> Names {
    let mut names = Names::default();
    for (number, class) in (0..).zip(&scenario.world.classes) {
        names.classes.insert(number, ClassName { name: class.name.clone(), shares: class.shares });
    }
    for (number, name) in (0..).zip(&scenario.disk_names) {
        names.disks.insert(number, name.clone());
        names.files.insert(u32::from(number), FileName { path: name.clone(), disk: number });
    }
    names
}

/// A request between its Queued and Finished events.
struct UnderWay {
    shard: u16,
    /// Offsets of its pieces, in the order of dispatch.
    pieces: Vec<u64>,
}

struct Log<W> {
    writer: Writer<W>,
    shards: Vec<Vec<Event>>,
    requests: HashMap<u64, UnderWay>,
    events: u64,
    error: Option<io::Error>,
}

impl<W: Write> Log<W> {
    fn take(&mut self, seen: &world::Event) {
        if self.error.is_some() {
            return;
        }

        let mut event = event_of(seen);
        match seen.kind {
            world::EventKind::Enqueue => {
                self.requests.insert(seen.key, UnderWay { shard: seen.shard as u16, pieces: Vec::new() });
                self.push(seen.shard as u16, Event { detail: seen.disk, ..event });
            }
            world::EventKind::Dispatch => {
                event.piece = self.piece(seen);
                let submitted = Event { kind: EventKind::Submitted, detail: 0, reason: None, ..event };
                self.push(seen.shard as u16, event);
                self.push(seen.shard as u16, submitted);
            }
            world::EventKind::Complete => {
                event.piece = self.piece(seen);
                self.push(seen.shard as u16, event);
                let reaped = Event { kind: EventKind::Reaped, detail: seen.errno.unsigned_abs(), ..event };
                self.push(seen.shard as u16, reaped);
            }
            world::EventKind::Finish => {
                let len_bytes = if seen.errno == 0 { event.len_bytes } else { 0 };
                self.ends(seen, Event { len_bytes, detail: seen.errno.unsigned_abs(), ..event });
            }
            world::EventKind::Cancel => {
                self.push(seen.shard as u16, Event { offset_bytes: 0, len_bytes: 0, ..event });
                self.ends(seen, Event { kind: EventKind::Finished, len_bytes: 0, detail: ECANCELED, ..event });
            }
            world::EventKind::Refuse => {}
        }
    }

    /// Returns the number of the piece at the offset of `seen`.
    fn piece(&mut self, seen: &world::Event) -> u16 {
        let Some(request) = self.requests.get_mut(&seen.key) else { return 0 };
        let known = request.pieces.iter().rposition(|offset| *offset == seen.offset_bytes);
        let at = known.filter(|_| seen.kind == world::EventKind::Complete).unwrap_or_else(|| {
            request.pieces.push(seen.offset_bytes);
            request.pieces.len() - 1
        });
        at as u16
    }

    fn ends(&mut self, seen: &world::Event, finished: Event) {
        let Some(request) = self.requests.remove(&seen.key) else { return };
        self.push(request.shard, finished);
        if request.shard == seen.shard as u16 {
            let callback = Event { kind: EventKind::Callback, offset_bytes: 0, len_bytes: 0, detail: 0, ..finished };
            self.push(request.shard, callback);
        }
    }

    fn push(&mut self, shard: u16, event: Event) {
        let at = usize::from(shard);
        if self.shards.len() <= at {
            self.shards.resize_with(at + 1, Vec::new);
        }
        let Some(batch) = self.shards.get_mut(at) else { return };
        batch.push(event);
        self.events += 1;
        if batch.len() >= BATCH {
            self.error = self.writer.events(shard, 0, batch).err();
            batch.clear();
        }
    }

    fn finish(mut self) -> Result<u64, RecordError> {
        for (shard, batch) in (0..).zip(&self.shards) {
            if self.error.is_none() && !batch.is_empty() {
                self.error = self.writer.events(shard, 0, batch).err();
            }
        }
        match self.error {
            Some(error) => Err(error.into()),
            None => Ok(self.writer.flush().map(|()| self.events)?),
        }
    }
}

fn event_of(seen: &world::Event) -> Event {
    let kind = match seen.kind {
        world::EventKind::Enqueue | world::EventKind::Refuse => EventKind::Queued,
        world::EventKind::Dispatch => EventKind::Dispatched,
        world::EventKind::Complete => EventKind::Completed,
        world::EventKind::Finish => EventKind::Finished,
        world::EventKind::Cancel => EventKind::Cancelled,
    };

    Event {
        time_ns: seen.at_ns,
        request: seen.key + 1,
        offset_bytes: seen.offset_bytes,
        len_bytes: seen.len_bytes,
        detail: seen.detail,
        class: seen.class as u16,
        disk: seen.disk as u16,
        piece: 0,
        kind,
        op: seen.op,
        reason: seen.reason,
    }
}

#[cfg(test)]
mod tests {
    use plimsoll::trace::format::{Body, Reader};
    use plimsoll_files::scenario::ScenarioFile;

    use super::*;

    const SCENARIO: &str = "
duration: 20ms
shards: 2
disks: [{disk: i4i.2xlarge}]
jobs:
  - {name: reads, type: randread, shards: all, shard_info: {parallelism: 4, reqsize: 256kB}}
";

    #[test]
    fn a_scenario_leaves_whole_requests() {
        let scenario = ScenarioFile::parse("inline", SCENARIO, "".as_ref()).unwrap().scenario(&[]).unwrap();
        let (mut file, mut again) = (Vec::new(), Vec::new());
        let events = record(&scenario, 1, &mut file).unwrap();
        record(&scenario, 1, &mut again).unwrap();
        assert!(events > 100 && file == again, "the same every time");
        let mut reader = Reader::new(file.as_slice()).unwrap();
        let mut requests: HashMap<u64, Vec<Event>> = HashMap::new();
        while let Some(chunk) = reader.next_chunk().unwrap() {
            if let Body::Events(events) = chunk.body {
                events.for_each(|event| requests.entry(event.request).or_default().push(event));
            }
        }
        for events in requests.values().filter(|events| events.last().unwrap().kind == EventKind::Callback) {
            let count = |kind| events.iter().filter(|event| event.kind == kind).count();
            assert!(events.is_sorted_by_key(|event| event.time_ns) && events[0].kind == EventKind::Queued);
            let pieces = count(EventKind::Dispatched);
            assert!([EventKind::Submitted, EventKind::Completed, EventKind::Reaped].map(count) == [pieces; 3]);
            assert_eq!((count(EventKind::Finished), events.last().unwrap().len_bytes), (1, 0));
        }
    }
}
