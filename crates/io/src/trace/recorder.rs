//! Copies events from the rings of the shards to a file, and starts and stops that.
//!
//! # Why
//! Shards must not wait for a file, and the caller that requests a trace is on another thread.
//!
//! # How it works
//! A start makes a ring for each shard and raises an epoch; a shard that sees the new epoch takes the writing end of
//! its ring (or, after a stop, releases it). Every 10 ms a thread takes the events from the rings and writes them:
//! first the new names, then the events. A stop raises the epoch again and writes the rest. The caller may be that thread
//! ([`Tracing::carry`]). In virtual time there is none: a shard whose ring is nearly full writes its events itself, so
//! that none is dropped because a thread was slow.
//!
//! There are two locks, always taken in this order: the session (the file and its state) and the spare ends of rings.
//! Shards take only the second, once per start or stop; in virtual time also the first.
//!
//! # Limits
//! If a write fails, the trace ends there; the program continues, and [`Tracing::stop`] reports the error. A program
//! that dies loses the events in the rings, at most 10 ms of them.
//!
//! # Example
//! [`crate::trace`] has an example.

use std::io::{self, BufWriter, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plimsoll_core::trace::Event;
use plimsoll_core::{ControlEvent, Disk, EventKind, EventReason};

use super::format::{BODY_MAX_BYTES, Clock, Writer};
use super::names::{FileNames, NamesTold};
use super::ring::{RingReader, RingWriter, ring};
use crate::class::Classes;
use crate::sys::clock::now_ns;

/// Interval at which the rings are emptied.
const PERIOD: Duration = Duration::from_millis(10);
/// Most events written at once: one chunk.
const BATCH: usize = BODY_MAX_BYTES / plimsoll_core::trace::EVENT_BYTES;

/// Bytes of a trace that [`file_writer`] writes to the file at once.
const BUFFER_BYTES: usize = 1 << 18;

/// Writer of a trace's file.
pub type TraceWriter = Writer<Box<dyn Write + Send>>;

/// Begins a trace in `file`, with this machine's clock. The writer is buffered.
///
/// # Errors
/// The error of writing.
pub fn file_writer(file: impl Write + Send + 'static) -> io::Result<TraceWriter> {
    let unix_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let out: Box<dyn Write + Send> = Box::new(BufWriter::with_capacity(BUFFER_BYTES, file));
    Writer::new(out, Clock::Monotonic, unix_ns.saturating_sub(now_ns()))
}

/// Options of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceConfig {
    /// Events that each shard's ring holds: 2 to 16,777,216, rounded up to a power of two; 40 bytes each. A ring is
    /// emptied every 10 ms, so 65,536 (the default) hold 6.5 million events per second and shard.
    pub ring_events: usize,
    /// Names of the disks, by number; disks without a name appear by number.
    pub disk_names: Vec<String>,
    /// Requests get numbers above this, the last number of an earlier trace in the same file
    /// ([`TraceSummary::last_request`]).
    pub after_request: u64,
}

impl Default for TraceConfig {
    fn default() -> TraceConfig {
        TraceConfig { ring_events: 65_536, disk_names: Vec::new(), after_request: 0 }
    }
}

/// Why no trace was started.
#[derive(Debug)]
#[non_exhaustive]
pub enum TraceStartError {
    /// A trace is being recorded already.
    AlreadyRecording,
    /// The file could not be written, or the thread that writes it could not be started.
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

/// Result of a trace.
pub struct TraceSummary {
    /// Events written.
    pub events: u64,
    /// Events for which a ring had no room.
    pub dropped_events: u64,
    /// The highest number of a request in the trace.
    pub last_request: u64,
    /// The error of writing that ended the trace before it was stopped.
    pub error: Option<io::Error>,
    /// The writer, which can write more unless there was an error.
    pub writer: TraceWriter,
}

/// Starts and stops traces of a program's requests, at any time and from any thread. Clones control the same recorder.
#[derive(Clone)]
pub struct Tracing(Arc<Recorder>);

impl Tracing {
    pub(crate) fn new(recorder: Arc<Recorder>) -> Tracing {
        Tracing(recorder)
    }

    /// Starts a trace into `writer`. With [`Clock::Virtual`] no event is dropped, because shards write them themselves.
    ///
    /// # Errors
    /// See [`TraceStartError`].
    pub fn start(&self, writer: TraceWriter, config: TraceConfig) -> Result<(), TraceStartError> {
        Recorder::start(&self.0, writer, config, true).map(|_| ())
    }

    /// Starts a trace as [`Tracing::start`], but no thread that writes it: call [`Tracing::carry`] every 10 ms.
    ///
    /// # Errors
    /// See [`TraceStartError`].
    pub fn start_without_thread(&self, writer: TraceWriter, config: TraceConfig) -> Result<(), TraceStartError> {
        Recorder::start(&self.0, writer, config, false).map(|_| ())
    }

    /// Writes the events recorded since the last call, for a trace without a thread. Returns whether the trace goes on;
    /// `false` once writing has failed.
    pub fn carry(&self) -> bool {
        self.0.carry(self.0.epoch(), None)
    }

    /// Starts a trace as [`Tracing::start`]. Returns its number.
    #[cfg(feature = "control")]
    pub(crate) fn start_numbered(&self, writer: TraceWriter, config: TraceConfig) -> Result<u64, TraceStartError> {
        Recorder::start(&self.0, writer, config, true)
    }

    /// Stops the trace as [`Tracing::stop`], but only if the last trace started has this number, so that no other trace
    /// is ended.
    #[cfg(feature = "control")]
    pub(crate) fn stop_numbered(&self, number: u64) -> Option<TraceSummary> {
        self.0.stop_if(|epoch| epoch == number)
    }

    /// Stops the trace and writes the rest. Returns `None` if none was started.
    pub fn stop(&self) -> Option<TraceSummary> {
        self.0.stop()
    }

    /// Returns whether events are being recorded; `false` once writing has failed.
    #[must_use]
    pub fn is_recording(&self) -> bool {
        self.0.epoch() % 2 == 1
    }
}

/// The recorder of one topology.
pub(crate) struct Recorder {
    classes: Classes,
    disks: Vec<Arc<Disk>>,
    files: FileNames,
    /// Rises with every start and stop; odd while a trace runs. Changed under the lock of `spare`.
    epoch: AtomicU64,
    /// The last request number of each shard, for the shard's next reactor.
    numbers: Box<[AtomicU64]>,
    session: Mutex<Option<Session>>,
    spare: Mutex<Spare>,
}

/// The writing ends that no reactor has taken, by shard.
#[derive(Default)]
struct Spare {
    epoch: u64,
    writers: Vec<Option<RingWriter>>,
    is_virtual: bool,
    after_request: u64,
}

/// The state that a tracer takes when the epoch has risen.
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
            files: FileNames::default(),
            epoch: AtomicU64::new(0),
            numbers: (0..shards).map(|_| AtomicU64::new(0)).collect(),
            session: Mutex::default(),
            spare: Mutex::default(),
        }
    }

    pub(crate) fn files(&self) -> &FileNames {
        &self.files
    }

    /// Returns the epoch, which rises with every start and stop.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Returns the number of the last request of `shard`, for a reactor that begins.
    pub(crate) fn last_number(&self, shard: u16) -> u64 {
        self.numbers.get(usize::from(shard)).map_or(0, |number| number.load(Ordering::Acquire))
    }

    /// Sets [`Recorder::last_number`] when a reactor ends.
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

    /// Returns a ring when a reactor ends during a trace: the next reactor of the shard continues with it.
    pub(super) fn give_back(&self, shard: u16, epoch: u64, writer: RingWriter) {
        let mut spare = self.spare();
        if spare.epoch == epoch
            && let Some(place) = spare.writers.get_mut(usize::from(shard))
        {
            *place = Some(writer);
        }
    }

    /// Starts a trace. Returns its number: the epoch that began with it.
    fn start(
        this: &Arc<Recorder>,
        writer: TraceWriter,
        config: TraceConfig,
        has_thread: bool,
    ) -> Result<u64, TraceStartError> {
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
        if has_thread && !is_virtual {
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

    /// Stops the trace, if there is one and its number is wanted.
    fn stop_if(&self, is_wanted: impl Fn(u64) -> bool) -> Option<TraceSummary> {
        let mut session = self.session().take_if(|session| is_wanted(session.epoch))?;
        if session.error.is_none() {
            self.move_epoch(Spare { epoch: session.epoch + 1, ..Spare::default() });
            session.error = session.finish(self).err();
        }
        if let Some(thread) = &session.thread {
            // The thread finds that its session is gone, and ends.
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

    /// Runs the thread that writes.
    fn carry_until_over(&self, epoch: u64) {
        loop {
            std::thread::park_timeout(PERIOD);
            if !self.carry(epoch, None) {
                return;
            }
        }
    }

    /// Writes the events in the ring of `shard`, or in all. Returns `false` if the trace of `epoch` is over.
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

    // After a panic the session is at worst in the middle of a chunk, which readers skip.
    fn session(&self) -> MutexGuard<'_, Option<Session>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // The spare ends are complete after every change.
    fn spare(&self) -> MutexGuard<'_, Spare> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running trace.
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
    /// Dropped events that the file already counts, and those counted before the last events were read.
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

    /// Writes the remaining events, and the number of those dropped at the end.
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

    /// Writes the events in the ring of `shard`.
    fn carry(&mut self, recorder: &Recorder, shard: usize) -> io::Result<()> {
        loop {
            let Some(ring) = self.rings.get_mut(shard) else { return Ok(()) };
            self.batch.clear();
            // Read the count before the events: events dropped until then came after the events in the ring.
            let dropped = std::mem::replace(&mut ring.seen_dropped, ring.reader.dropped()) - ring.told_dropped;
            ring.reader.pop(&mut self.batch, BATCH);
            if self.batch.is_empty() {
                return Ok(());
            }

            ring.told_dropped += dropped;
            // Write names after the events were taken, so that all their names are known by now.
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

    /// Writes the decisions of the control loops since the last call.
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

/// Returns the event of a decision, with the window and the capacity scale after it. The changed value is the
/// decision's; the other one is the present value.
fn event_of(decision: &ControlEvent, number: u16, disk: &Disk) -> Event {
    let (mut window_ns, mut scale) = (disk.window_ns(), disk.capacity_scale());
    match (decision.kind, decision.reason) {
        (EventKind::ScaleChanged, _) => scale = decision.to,
        (_, EventReason::Missed { .. }) => {}
        _ => window_ns = decision.to as u64,
    }
    Event::of_decision(decision.kind, number, decision.at_ns, window_ns, scale)
}
