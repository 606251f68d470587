//! Carries events from the rings of the shards to a file, and switches that on and off.
//!
//! # Why
//! Shards must not wait for a file, and whoever wants a record is on another thread, or nowhere near the shards.
//!
//! # How it works
//! A start makes a ring for each shard and moves an epoch; a shard that sees the epoch moved takes the writing end of its
//! ring (or, after a stop, lets go of it). Every 10 ms a thread takes what is in the rings and writes it: first the
//! names that are new, then the events. A stop moves the epoch again and writes the rest. In virtual time there is no thread:
//! a shard whose ring is nearly full carries its events away itself, so that none is dropped because a thread was slow.
//!
//! Two locks: the session (what is written where) and the spare ends of rings, always taken in this order. Shards take only
//! the second, once a start or stop; in virtual time also the first.
//!
//! # Limits
//! When writing fails the record ends there; the program goes on, and [`Tracing::stop`] tells. A program that dies loses
//! what was in the rings, 10 ms at the most.
//!
//! # Example
//! See [`crate::trace`].

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use plimsoll_core::trace::Event;
use plimsoll_core::{ControlEvent, Disk, EventKind, EventReason};

use super::format::{BODY_MAX_BYTES, Clock, Writer};
use super::names::{FileTable, NamesTold};
use super::ring::{RingReader, RingWriter, ring};
use crate::class::Classes;

/// How often the rings are emptied.
const PERIOD: Duration = Duration::from_millis(10);
/// Events written at once: a chunk.
const BATCH: usize = BODY_MAX_BYTES / plimsoll_core::trace::EVENT_BYTES;

/// Where a record goes.
pub type TraceWriter = Writer<Box<dyn Write + Send>>;

/// How to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceConfig {
    /// Events that each shard's ring holds: 2 to 16,777,216, taken up to a power of two; 40 bytes each. A ring is emptied every
    /// 10 ms, so 65,536 (the default) hold 6.5 million events a second and shard.
    pub ring_events: usize,
    /// Names of the disks, by number; those without a name are known by number only.
    pub disk_names: Vec<String>,
    /// Requests get numbers above this one: what an earlier record in the same file has used ([`TraceSummary::last_request`]).
    pub after_request: u64,
}

impl Default for TraceConfig {
    fn default() -> TraceConfig {
        TraceConfig { ring_events: 65_536, disk_names: Vec::new(), after_request: 0 }
    }
}

/// Why no record was started.
#[derive(Debug)]
#[non_exhaustive]
pub enum TraceStartError {
    /// One is being made.
    AlreadyRecording,
    /// The file could not be written, or the thread that writes it not be started.
    Io(io::Error),
}

impl std::fmt::Display for TraceStartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TraceStartError::AlreadyRecording => f.write_str("a trace is being recorded already: stop it first"),
            TraceStartError::Io(error) => write!(f, "cannot record a trace: {error}"),
        }
    }
}

impl std::error::Error for TraceStartError {}

impl From<io::Error> for TraceStartError {
    fn from(error: io::Error) -> TraceStartError {
        TraceStartError::Io(error)
    }
}

/// What a record was.
pub struct TraceSummary {
    /// Events written.
    pub events: u64,
    /// Events for which there was no room in a ring.
    pub dropped_events: u64,
    /// The highest number of a request in it.
    pub last_request: u64,
    /// Why it ended before it was stopped: what writing said.
    pub error: Option<io::Error>,
    /// Where it went; more can be written behind it unless there was an error.
    pub writer: TraceWriter,
}

/// Starts and stops the record of a program's requests, at any time and from any thread. Clones are the same switch.
#[derive(Clone)]
pub struct Tracing(Arc<Recorder>);

impl Tracing {
    pub(crate) fn new(recorder: Arc<Recorder>) -> Tracing {
        Tracing(recorder)
    }

    /// Records from now on into `writer`. With [`Clock::Virtual`] nothing is dropped, and shards write themselves.
    ///
    /// # Errors
    /// See [`TraceStartError`].
    pub fn start(&self, writer: TraceWriter, config: TraceConfig) -> Result<(), TraceStartError> {
        Recorder::start(&self.0, writer, config).map(|_| ())
    }

    /// As [`Tracing::start`]; gives the number of the record.
    #[cfg(feature = "control")]
    pub(crate) fn start_numbered(&self, writer: TraceWriter, config: TraceConfig) -> Result<u64, TraceStartError> {
        Recorder::start(&self.0, writer, config)
    }

    /// As [`Tracing::stop`], if this record is the one that was started last: nobody else's is ended.
    #[cfg(feature = "control")]
    pub(crate) fn stop_numbered(&self, number: u64) -> Option<TraceSummary> {
        self.0.stop_if(|epoch| epoch == number)
    }

    /// Ends the record and writes what is left. `None` when none was started.
    pub fn stop(&self) -> Option<TraceSummary> {
        self.0.stop()
    }

    /// Whether events are being recorded; no longer once writing has failed.
    #[must_use]
    pub fn is_recording(&self) -> bool {
        self.0.epoch() % 2 == 1
    }
}

/// The recorder of one topology.
pub(crate) struct Recorder {
    classes: Classes,
    disks: Vec<Arc<Disk>>,
    files: FileTable,
    /// Moves with every start and stop; odd while events are wanted. Changed under the lock of `spare`.
    epoch: AtomicU64,
    /// The last number of a request that each shard has used, while it has no reactor.
    numbers: Box<[AtomicU64]>,
    session: Mutex<Option<Session>>,
    spare: Mutex<Spare>,
}

/// The writing ends that no reactor has, by shard.
#[derive(Default)]
struct Spare {
    epoch: u64,
    writers: Vec<Option<RingWriter>>,
    is_virtual: bool,
    after_request: u64,
}

/// What a reactor gets when the epoch has moved.
pub(super) struct Taken {
    pub(super) epoch: u64,
    pub(super) writer: Option<RingWriter>,
    pub(super) is_virtual: bool,
    pub(super) after_request: u64,
}

impl Recorder {
    pub(crate) fn new(shards: u16, classes: Classes, disks: Vec<Arc<Disk>>) -> Recorder {
        Recorder {
            classes,
            disks,
            files: FileTable::default(),
            epoch: AtomicU64::new(0),
            numbers: (0..shards).map(|_| AtomicU64::new(0)).collect(),
            session: Mutex::default(),
            spare: Mutex::default(),
        }
    }

    /// The files of the program.
    pub(crate) fn files(&self) -> &FileTable {
        &self.files
    }

    /// Moves with every start and stop.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// The number of the last request of `shard`, whose reactor begins.
    pub(crate) fn last_number(&self, shard: u16) -> u64 {
        self.numbers.get(usize::from(shard)).map_or(0, |number| number.load(Ordering::Acquire))
    }

    /// As [`Recorder::last_number`], told by a reactor that ends.
    pub(crate) fn set_last_number(&self, shard: u16, number: u64) {
        if let Some(place) = self.numbers.get(usize::from(shard)) {
            place.fetch_max(number, Ordering::AcqRel);
        }
    }

    pub(super) fn take_writer(&self, shard: u16) -> Taken {
        let mut spare = self.spare();
        let writer = spare.writers.get_mut(usize::from(shard)).and_then(Option::take);
        Taken { epoch: spare.epoch, writer, is_virtual: spare.is_virtual, after_request: spare.after_request }
    }

    /// A reactor ends while a record goes on: the next one of its shard writes behind it.
    pub(super) fn give_back(&self, shard: u16, epoch: u64, writer: RingWriter) {
        let mut spare = self.spare();
        if spare.epoch == epoch
            && let Some(place) = spare.writers.get_mut(usize::from(shard))
        {
            *place = Some(writer);
        }
    }

    /// Gives the number of the record: the epoch that began with it.
    fn start(this: &Arc<Recorder>, writer: TraceWriter, config: TraceConfig) -> Result<u64, TraceStartError> {
        let mut place = this.session();
        if this.epoch() % 2 == 1 {
            return Err(TraceStartError::AlreadyRecording);
        }
        let (writers, readers): (Vec<_>, Vec<_>) = this
            .numbers
            .iter()
            .map(|_| ring(config.ring_events))
            .map(|(writer, reader)| (Some(writer), reader))
            .unzip();
        let is_virtual = writer.clock() == Clock::Virtual;
        let after_request = config.after_request;
        let mut session = Session::new(this, writer, readers, config.disk_names);
        session.tell_names(this)?;
        let epoch = this.epoch() + 1;
        if !is_virtual {
            let recorder = Arc::clone(this);
            let thread = std::thread::Builder::new().name("plimsoll-trace".to_owned());
            session.thread = Some(thread.spawn(move || recorder.carry_until_over(epoch))?);
        }
        session.epoch = epoch;
        *place = Some(session);
        this.move_epoch(Spare { epoch, writers, is_virtual, after_request });
        Ok(epoch)
    }

    pub(crate) fn stop(&self) -> Option<TraceSummary> {
        self.stop_if(|_| true)
    }

    /// Ends the record, if there is one and its number is wanted.
    fn stop_if(&self, is_wanted: impl Fn(u64) -> bool) -> Option<TraceSummary> {
        let mut session = self.session().take_if(|session| is_wanted(session.epoch))?;
        if session.error.is_none() {
            self.move_epoch(Spare { epoch: session.epoch + 1, ..Spare::default() });
            session.error = session.finish(self).err();
        }
        if let Some(thread) = &session.thread {
            // It looks, finds that its session has gone, and ends.
            thread.thread().unpark();
        }
        let dropped_events = session.rings.iter().map(|ring| ring.reader.dropped()).sum();
        let Session { events, last_request, error, out: writer, .. } = session;
        Some(TraceSummary { events, dropped_events, last_request, error, writer })
    }

    fn move_epoch(&self, next: Spare) {
        let mut spare = self.spare();
        self.epoch.store(next.epoch, Ordering::Release);
        *spare = next;
    }

    /// The life of the thread that writes.
    fn carry_until_over(&self, epoch: u64) {
        loop {
            std::thread::park_timeout(PERIOD);
            if !self.carry(epoch, None) {
                return;
            }
        }
    }

    /// Writes what is in the ring of `shard`, or in all; `false` when the record of `epoch` is over.
    pub(super) fn carry(&self, epoch: u64, shard: Option<u16>) -> bool {
        let mut place = self.session();
        let Some(session) = place.as_mut().filter(|session| session.epoch == epoch && session.error.is_none()) else {
            return false;
        };
        let carried = match shard {
            Some(shard) => session.carry(self, usize::from(shard)),
            None => session.carry_all(self),
        };
        if let Err(error) = carried {
            session.error = Some(error);
            self.move_epoch(Spare { epoch: epoch + 1, ..Spare::default() });
            return false;
        }
        true
    }

    // A session is at worst in the middle of a chunk, which its reader passes over.
    fn session(&self) -> MutexGuard<'_, Option<Session>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // It is whole after every change.
    fn spare(&self) -> MutexGuard<'_, Spare> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A record that is being made.
struct Session {
    epoch: u64,
    out: TraceWriter,
    rings: Vec<ShardRing>,
    told: NamesTold,
    disk_names: Vec<String>,
    /// The last decision of each disk that was written.
    decisions: Vec<u64>,
    batch: Vec<Event>,
    events: u64,
    last_request: u64,
    error: Option<io::Error>,
    thread: Option<JoinHandle<()>>,
}

struct ShardRing {
    reader: RingReader,
    /// Dropped events that the file knows of, and those that came behind what was written last.
    told_dropped: u64,
    seen_dropped: u64,
}

impl Session {
    fn new(recorder: &Recorder, out: TraceWriter, readers: Vec<RingReader>, disk_names: Vec<String>) -> Session {
        let last_decision = |disk: &Arc<Disk>| disk.events_since(0).last().map_or(0, |event| event.seq);
        Session {
            epoch: 0,
            out,
            rings: readers.into_iter().map(|reader| ShardRing { reader, told_dropped: 0, seen_dropped: 0 }).collect(),
            told: NamesTold::default(),
            disk_names,
            decisions: recorder.disks.iter().map(last_decision).collect(),
            batch: Vec::with_capacity(BATCH),
            events: 0,
            last_request: 0,
            error: None,
            thread: None,
        }
    }

    fn carry_all(&mut self, recorder: &Recorder) -> io::Result<()> {
        for shard in 0..self.rings.len() {
            self.carry(recorder, shard)?;
        }
        self.carry_decisions(recorder)?;
        self.out.flush()
    }

    /// What is left, and what was dropped at the end.
    fn finish(&mut self, recorder: &Recorder) -> io::Result<()> {
        self.carry_all(recorder)?;
        for (shard, ring) in (0..).zip(&mut self.rings) {
            let dropped = ring.reader.dropped() - ring.told_dropped;
            if dropped > 0 {
                self.out.events(shard, dropped, &[])?;
            }
        }
        self.out.flush()
    }

    /// Writes what is in the ring of `shard`.
    fn carry(&mut self, recorder: &Recorder, shard: usize) -> io::Result<()> {
        loop {
            let Some(ring) = self.rings.get_mut(shard) else { return Ok(()) };
            self.batch.clear();
            // The count before the events: what was dropped up to then came behind the events that were in the ring then.
            let dropped = std::mem::replace(&mut ring.seen_dropped, ring.reader.dropped()) - ring.told_dropped;
            ring.reader.pop(&mut self.batch, BATCH);
            if self.batch.is_empty() {
                return Ok(());
            }
            ring.told_dropped += dropped;
            // Names after the events were taken: whatever they name is known by now.
            self.tell_names(recorder)?;
            self.out.events(shard as u16, dropped, &self.batch)?;
            self.events += self.batch.len() as u64;
            let last_request = self.batch.iter().map(|event| event.request).max();
            self.last_request = self.last_request.max(last_request.unwrap_or(0));
            if self.batch.len() < BATCH {
                return Ok(());
            }
        }
    }

    fn tell_names(&mut self, recorder: &Recorder) -> io::Result<()> {
        match self.told.what_is_new(&recorder.classes, &recorder.files, &self.disk_names) {
            Some(names) => self.out.names(&names),
            None => Ok(()),
        }
    }

    /// Writes what the closed loops have decided since the last time.
    fn carry_decisions(&mut self, recorder: &Recorder) -> io::Result<()> {
        self.batch.clear();
        for ((number, disk), last) in (0..).zip(&recorder.disks).zip(&mut self.decisions) {
            for decision in disk.events_since(*last) {
                *last = decision.seq;
                self.batch.push(event_of(&decision, number, disk));
            }
        }
        if self.batch.is_empty() {
            return Ok(());
        }
        self.batch.sort_by_key(|event| event.time_ns);
        self.events += self.batch.len() as u64;
        self.out.events(0, 0, &self.batch)
    }
}

/// A decision with the window and the part of the capacity after it: what it changed is its own, the other as it is now.
fn event_of(decision: &ControlEvent, number: u16, disk: &Disk) -> Event {
    let (mut window_ns, mut scale) = (disk.window_ns(), disk.capacity_scale());
    match (decision.kind, decision.reason) {
        (EventKind::ScaleChanged, _) => scale = decision.to,
        (_, EventReason::Missed { .. }) => {}
        _ => window_ns = decision.to as u64,
    }
    Event::of_decision(decision.kind, number, decision.at_ns, window_ns, scale)
}
