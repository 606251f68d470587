//! Writes of data: merged while they wait, a bounded number in flight.
//!
//! # Why
//! Inserts are small and a disk likes large writes. Consecutive inserts get adjacent slots, so the writes that wait
//! for a disk are merged into runs.
//!
//! # How it works
//! A write waits in the lane of its class, by offset. At most [`WRITES_IN_FLIGHT`] runs of a lane are in flight (in
//! the scheduler or in the device). Whenever one completes, the oldest waiting write is submitted, merged with those
//! directly behind it, up to [`RUN_BYTES`]. An idle disk thus writes at once, a busy one in large runs. Where hits hold
//! writes back (`pace`), runs of the lanes begin by turns, each kind with its [`weight`]. All writes of a disk go
//! through one shard, its home.
//!
//! # Limits
//! The order of two writes is undefined. No caller writes a place again before its first write has ended. If the home
//! shard ends, the writes fail ([`HomeJob`]).
//!
//! # Example
//! 64 inserts of 8 KiB at once into an empty slab: 16 writes of one block; when the first completes, one of 32 blocks
//! (256 KiB), then one of 16.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use plimsoll::buffer::AlignedBuf;
use plimsoll::{Class, Shard};

use super::{CacheDisk, Change};
use crate::stats::IoKind;
use crate::sync::lock;

/// Most runs in flight in one lane.
const WRITES_IN_FLIGHT: u32 = 16;

/// Longest run, in bytes.
const RUN_BYTES: usize = 256 << 10;

/// Most buffers of a run: the kernel takes no more in one call.
const RUN_PIECES: usize = 1024;

/// Called with the result of a write, on the disk's home shard.
pub(crate) type WriteDone = Box<dyn FnOnce(io::Result<()>) + Send>;

struct Waiting {
    buffer: AlignedBuf,
    change: Change,
    done: WriteDone,
}

/// The writes of one class and kind.
struct Lane {
    class: Class,
    kind: IoKind,
    /// Bytes sent, divided by the weight of the lane's kind.
    sent: f64,
    /// Offsets in order of arrival; those that an earlier run took are still listed.
    oldest: VecDeque<u64>,
    by_offset: BTreeMap<u64, Waiting>,
    in_flight: u32,
}

/// The writes of a disk.
#[derive(Default)]
pub(super) struct Writes {
    lanes: Vec<Lane>,
    /// A job that sends runs is on its way to the home shard.
    is_called: bool,
    /// A task waits until the next run is due.
    is_timed: bool,
    /// `sent` of the lane that was served last, as it was before.
    sent: f64,
    /// The functions to call at the ends of the runs in flight, by the runs' numbers.
    ends: HashMap<u64, Vec<WriteDone>>,
    next_run: u64,
}

/// A run in flight.
#[derive(Clone, Copy)]
struct Sent {
    number: u64,
    lane: usize,
    len_bytes: u64,
}

/// Contiguous writes that are submitted as one.
struct Run {
    sent: Sent,
    class: Class,
    kind: IoKind,
    offset: u64,
    buffers: Vec<AlignedBuf>,
    changes: Vec<Change>,
}

impl Writes {
    fn push(&mut self, class: Class, kind: IoKind, offset: u64, waiting: Waiting) {
        let lane = match self.lanes.iter().position(|lane| (lane.class, lane.kind) == (class, kind)) {
            Some(lane) => lane,
            None => {
                let (oldest, by_offset) = (VecDeque::new(), BTreeMap::new());
                self.lanes.push(Lane { class, kind, sent: 0.0, oldest, by_offset, in_flight: 0 });
                self.lanes.len() - 1
            }
        };
        if let Some(lane) = self.lanes.get_mut(lane) {
            if lane.by_offset.is_empty() {
                // A lane that had nothing to send saves nothing up.
                lane.sent = lane.sent.max(self.sent);
            }
            lane.oldest.push_back(offset);
            let displaced = lane.by_offset.insert(offset, waiting);
            debug_assert!(
                displaced.is_none(),
                "a write to offset {offset} waits already: nobody would hear of its end"
            );
        }
    }

    /// Takes the next run of the lane that has sent least.
    fn next_run(&mut self) -> Option<Run> {
        let may_go = self.lanes.iter_mut().enumerate().filter(|(_, lane)| lane.may_go());
        let (number, next) = may_go.min_by(|(_, a), (_, b)| a.sent.total_cmp(&b.sent))?;
        let (offset, waiting) = next.next_run()?;
        let (lane, class, kind) = (number, next.class, next.kind);
        self.sent = next.sent;
        let number = self.next_run;
        self.next_run += 1;
        let len_bytes = waiting.iter().map(|write| write.buffer.len() as u64).sum();
        let sent = Sent { number, lane, len_bytes };
        next.sent += len_bytes as f64 / weight(kind);
        let mut run = Run { sent, class, kind, offset, buffers: Vec::new(), changes: Vec::new() };
        let ends = self.ends.entry(number).or_default();
        for Waiting { buffer, change, done } in waiting {
            run.buffers.push(buffer);
            run.changes.push(change);
            ends.push(done);
        }
        Some(run)
    }

    /// Takes a run out of its lane. Returns the functions to call; none if the disk parted meanwhile.
    fn end_run(&mut self, sent: Sent) -> Vec<WriteDone> {
        if let Some(lane) = self.lanes.get_mut(sent.lane) {
            lane.in_flight -= 1;
        }
        self.ends.remove(&sent.number).unwrap_or_default()
    }

    fn may_go(&self) -> bool {
        self.lanes.iter().any(Lane::may_go)
    }
}

/// Returns the part of a kind's writes where the pace holds them back: as the shares of their classes are by default.
fn weight(kind: IoKind) -> f64 {
    if kind == IoKind::EvacuateWrite { 1.0 } else { 3.0 }
}

impl Lane {
    fn may_go(&self) -> bool {
        self.in_flight < WRITES_IN_FLIGHT && !self.by_offset.is_empty()
    }

    /// Takes the oldest waiting write, and those directly behind it. Returns their offset.
    fn next_run(&mut self) -> Option<(u64, Vec<Waiting>)> {
        let (offset, first) = loop {
            let offset = self.oldest.pop_front()?;
            if let Some(first) = self.by_offset.remove(&offset) {
                break (offset, first);
            }
        };

        let mut run_bytes = first.buffer.len();
        let mut run = vec![first];
        while run.len() < RUN_PIECES
            && let Entry::Occupied(next) = self.by_offset.entry(offset + run_bytes as u64)
            && run_bytes + next.get().buffer.len() <= RUN_BYTES
        {
            let next = next.remove();
            run_bytes += next.buffer.len();
            run.push(next);
        }

        self.in_flight += 1;
        Some((offset, run))
    }
}

/// What the home shard is to do for the writes of a disk.
enum JobKind {
    /// Send the runs that may go now.
    SendRuns,
    /// Send them when the next is due.
    Timer,
    /// Write a run.
    Write(Sent),
}

/// A job that the home shard has not done yet. Dropped undone, because the shard has ended or had no room for it, it
/// fails the writes that depend on it. Otherwise the queue would hold them for ever, and with them the cache, which
/// their end functions hold, and their waiting callers.
struct HomeJob {
    /// `None` once it is done.
    disk: Option<Arc<CacheDisk>>,
    kind: JobKind,
}

impl HomeJob {
    fn new(disk: &Arc<CacheDisk>, kind: JobKind) -> HomeJob {
        HomeJob { disk: Some(Arc::clone(disk)), kind }
    }

    /// Marks the job as done. Returns its disk, unless it was done before.
    fn done(&mut self) -> Option<Arc<CacheDisk>> {
        let disk = self.disk.take()?;
        match self.kind {
            JobKind::SendRuns => lock(&disk.writes).is_called = false,
            JobKind::Timer => lock(&disk.writes).is_timed = false,
            JobKind::Write(_) => {}
        }
        Some(disk)
    }
}

impl Drop for HomeJob {
    fn drop(&mut self) {
        let Some(disk) = self.done() else { return };
        if let JobKind::Write(sent) = self.kind {
            disk.end_run(sent, &Err(io::ErrorKind::BrokenPipe.into()));
        }
        disk.give_up_writes();
    }
}

impl CacheDisk {
    /// Queues a write of data, to be merged with its neighbours. `done` is called with the result on the home shard.
    /// If that has no room for another job, `done` is called here and now: hold no lock that it takes. If the disk
    /// parts, `done` is called with an error, although the write may still be in flight.
    pub(crate) fn submit_write(
        self: &Arc<CacheDisk>,
        class: Class,
        kind: IoKind,
        (change, offset): (Change, u64),
        buffer: AlignedBuf,
        done: impl FnOnce(io::Result<()>) + Send + 'static,
    ) {
        self.backlog_bytes.fetch_add(buffer.len() as u64, Relaxed);
        let mut writes = lock(&self.writes);
        writes.push(class, kind, offset, Waiting { buffer, change, done: Box::new(done) });
        if writes.is_called || writes.is_timed || !writes.may_go() {
            return;
        }
        writes.is_called = true;
        drop(writes);

        let mut job = HomeJob::new(self, JobKind::SendRuns);
        let send = move |shard: Shard| async move {
            if let Some(disk) = job.done() {
                disk.send_runs(&shard);
            }
        };
        // If the home shard has no room, the job was dropped and has failed the writes.
        let _ = self.home.spawn(send);
    }

    /// Fails the writes that could be submitted now.
    fn give_up_writes(&self) {
        loop {
            // The lock is free again while the ends are called.
            let next = lock(&self.writes).next_run();
            let Some(run) = next else { return };
            self.end_run(run.sent, &Err(io::ErrorKind::BrokenPipe.into()));
        }
    }

    /// Calls the ends of a run.
    fn end_run(&self, sent: Sent, result: &io::Result<()>) {
        self.backlog_bytes.fetch_sub(sent.len_bytes, Relaxed);
        let ends = lock(&self.writes).end_run(sent);
        for done in ends {
            done(match result {
                Ok(()) => Ok(()),
                Err(error) => {
                    Err(error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error))
                }
            });
        }
    }

    /// Fails the writes of a disk that has parted. Those that wait would only take room from other disks' writes; those
    /// in flight may never end, and their callers wait for them.
    pub(crate) fn give_up_all_writes(&self) {
        let (waiting, mut ends): (Vec<Waiting>, Vec<WriteDone>) = {
            let mut writes = lock(&self.writes);
            let ends = std::mem::take(&mut writes.ends).into_values().flatten().collect();
            let lanes = writes.lanes.iter_mut();
            (lanes.flat_map(|lane| std::mem::take(&mut lane.by_offset).into_values()).collect(), ends)
        };
        for Waiting { buffer, change, done } in waiting {
            self.backlog_bytes.fetch_sub(buffer.len() as u64, Relaxed);
            drop(change);
            ends.push(done);
        }
        ends.into_iter().for_each(|done| done(Err(io::ErrorKind::NotConnected.into())));
    }

    /// Submits the runs that may be in flight and are due. Called on the home shard.
    fn send_runs(self: &Arc<CacheDisk>, shard: &Shard) {
        loop {
            let now_ns = shard.now_ns();
            let mut writes = lock(&self.writes);
            if !writes.may_go() {
                return;
            }
            let due_ns = lock(&self.pace).due_ns(now_ns);
            if due_ns > now_ns {
                let is_timed = std::mem::replace(&mut writes.is_timed, true);
                drop(writes);
                if !is_timed {
                    self.send_runs_at(shard, due_ns);
                }
                return;
            }
            let Some(run) = writes.next_run() else { return };
            drop(writes);
            lock(&self.pace).write_began(now_ns, run.sent.len_bytes);
            let (disk, own) = (Arc::clone(self), shard.clone());
            let job = HomeJob::new(self, JobKind::Write(run.sent));
            shard.spawn(async move { disk.carry_out(&own, run, job).await }).detach();
        }
    }

    fn send_runs_at(self: &Arc<CacheDisk>, shard: &Shard, due_ns: u64) {
        let (mut job, own) = (HomeJob::new(self, JobKind::Timer), shard.clone());
        let wait = async move {
            own.sleep_until(due_ns).await;
            if let Some(disk) = job.done() {
                disk.send_runs(&own);
            }
        };
        shard.spawn(wait).detach();
    }

    async fn carry_out(self: &Arc<CacheDisk>, shard: &Shard, run: Run, mut job: HomeJob) {
        let Run { sent, class, kind, offset, buffers, changes } = run;
        let began_ns = shard.now_ns();
        let result = self.write_run(shard, class, kind, offset, buffers).await;
        job.done();
        let is_held_back = {
            let mut pace = lock(&self.pace);
            pace.write_ended(shard.now_ns());
            pace.bytes_per_s().is_some()
        };
        if result.is_ok() && !is_held_back {
            self.speed.wrote(began_ns, shard.now_ns(), sent.len_bytes, self.backlog_bytes.load(Relaxed));
        }

        self.end_run(sent, &result);
        // Only now: while a change is counted, the disk does not begin a new life.
        drop(changes);
        self.send_runs(shard);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use plimsoll::backend::OpenOptions;
    use plimsoll::backend::sim::{SimConfig, SimWorld};
    use plimsoll::{Classes, DiskSetup, Handle, ReactorConfig, SimRuntime, Topology};

    use super::*;
    use crate::disk::DiskIdentity;
    use crate::disk::pace::Pace;
    use crate::entry::SlabId;
    use crate::log::{DiskLog, StreamShape};

    /// Returns a disk of a new world, and a handle to its home shard.
    fn disk(max_requests: u32) -> (SimRuntime, Handle, Arc<CacheDisk>) {
        let world = SimWorld::new(&SimConfig::default()).unwrap();
        let config = ReactorConfig { max_requests };
        let topology = Topology::with_config(1, Classes::new(), vec![DiskSetup::unlimited()], config).unwrap();
        let runtime = SimRuntime::new(&world, &topology).unwrap();
        let options = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
        let shape = StreamShape { disk_guid: 1, slab_bytes: 1 << 20, sector_bytes: 4096 };
        let Ok(log) = DiskLog::new(shape, &mut || Some((SlabId(0), 0))) else { panic!("there is a slab") };
        let identity = DiskIdentity { number: 0, guid: 1, path: "disk".into() };
        let (file, home) = (topology.file("disk".as_ref(), options, 0), runtime.handle(0));
        let disk = Arc::new(CacheDisk::new(identity, file, None, home.clone(), log, None, None));
        (runtime, home, disk)
    }

    #[test]
    fn a_write_that_the_home_shard_has_no_room_for_ends_and_the_next_one_goes() {
        let (runtime, home, disk) = disk(2);
        let (ends, ended) = channel();
        let write = |offset| {
            let (ends, buffer) = (ends.clone(), AlignedBuf::new(4096).unwrap());
            let done = move |end: io::Result<()>| ends.send(end.map_err(|error| error.kind())).unwrap();
            let change = disk.begin_change().unwrap();
            disk.submit_write(Class::DEFAULT, IoKind::InsertWrite, (change, offset), buffer, done);
        };

        (0..2).for_each(|_| home.spawn(|_| async {}).unwrap());
        write(0);
        assert_eq!(ended.try_recv(), Ok(Err(io::ErrorKind::BrokenPipe)));
        assert_eq!(disk.backlog_bytes.load(Relaxed), 0);

        runtime.run_for(Duration::from_millis(1)).unwrap();
        write(4096);
        runtime.run_for(Duration::from_secs(1)).unwrap();
        assert_eq!(ended.try_recv(), Ok(Ok(())));
        assert_eq!(disk.backlog_bytes.load(Relaxed), 0);
    }

    /// What a write calls at its end holds the disk (and, of an insert, the cache), which holds the write.
    #[test]
    fn when_the_home_shard_ends_all_writes_do_and_the_disk_is_freed() {
        let (ends, ended) = channel();
        let begin = |disk: &Arc<CacheDisk>, writes: u64| {
            for number in 0..writes {
                let (ends, held, buffer) = (ends.clone(), Arc::clone(disk), AlignedBuf::new(4096).unwrap());
                let done = move |end: io::Result<()>| ends.send((held.identity.number, end.is_ok())).unwrap();
                let change = disk.begin_change().unwrap();
                disk.submit_write(Class::DEFAULT, IoKind::InsertWrite, (change, number * 8192), buffer, done);
            }
        };
        // Never started; one in a task that has not been polled; some in flight and others waiting; paced.
        for (landed, is_paced) in [(None, false), (Some(0), false), (Some(3), false), (Some(3), true)] {
            let (runtime, _home, disk) = disk(64);
            if is_paced {
                // A hit that is late holds the writes to the floor, one in 256 us.
                let (mut pace, ms) = (Pace::new(Some(1.5)), 1_000_000);
                (0..1000).for_each(|_| pace.hit(100 * ms, 101 * ms));
                pace.write_began(0, 0);
                pace.hit(100 * ms, 200 * ms);
                *lock(&disk.pace) = pace;
            }
            begin(&disk, 40);
            if let Some(landed) = landed {
                runtime.run_until_landed(landed).unwrap();
            }
            drop(runtime);
            begin(&disk, 2);
            let (ok, failed): (Vec<_>, Vec<_>) = ended.try_iter().partition(|(_, is_ok)| *is_ok);
            let ends = (ok.len() as u64, ok.len() + failed.len(), disk.backlog_bytes());
            assert_eq!(ends, (landed.unwrap_or(0), 42, 0), "{landed:?}, {is_paced}");
            let weak = Arc::downgrade(&disk);
            drop(disk);
            assert!(weak.upgrade().is_none(), "{landed:?}, {is_paced}: something holds the disk");
        }
    }

    #[test]
    fn lanes_take_turns_by_weight_and_save_nothing_up() {
        let (_runtime, _home, disk) = disk(2);
        let mut writes = Writes::default();
        let push = |writes: &mut Writes, kind, number: u64| {
            let (buffer, change) = (AlignedBuf::new(4096).unwrap(), disk.begin_change().unwrap());
            // Not beside each other, so that each is a run.
            writes.push(Class::DEFAULT, kind, number * 8192, Waiting { buffer, change, done: Box::new(|_| {}) });
        };
        let next = |writes: &mut Writes| {
            let run = writes.next_run().unwrap();
            writes.end_run(run.sent);
            run.kind
        };
        (0..20).for_each(|number| push(&mut writes, IoKind::InsertWrite, number));
        assert!((0..8).all(|_| next(&mut writes) == IoKind::InsertWrite));
        (0..20).for_each(|number| push(&mut writes, IoKind::EvacuateWrite, 1000 + number));
        let moves = (0..12).filter(|_| next(&mut writes) == IoKind::EvacuateWrite).count();
        assert_eq!(moves, 3, "one of four");
    }
}
