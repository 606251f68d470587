//! What a run gets from outside: when to end, how much it may write, who looks at it.
//!
//! # Why
//! A run is ended by Ctrl-C, bounded by the step that it is part of, and looked at by displays, traces and other programs. Most
//! code needs one of the three: whoever waits for a child process wants a [`Stop`] and nothing else.
//!
//! # How it works
//! [`Control`] is the three together, for what runs loads. Each can be cloned, and clones are the same: a signal handler holds
//! a [`Stop`], a display the [`Instruments`]. A write bound belongs to the [`Traffic`] that [`Control::with_write_bound`] gave
//! back, and ends with it.
//!
//! # Limits
//! Bytes are counted when the shards end, not while they run; bounds hold before each write.
//!
//! # Example
//! ```
//! use plimsoll_measure::load::Control;
//! let control = Control::default();
//! let step = control.with_write_bound(Some(1 << 30));
//! control.stop.ask();
//! assert!(step.stop.is_asked());
//! ```

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use plimsoll::Topology;
use plimsoll::control::Server;

use super::live::{Board, LiveJob};
use super::record::{Recorded, TraceFile};

/// What whoever runs loads hands them.
#[derive(Clone, Debug, Default)]
pub struct Control {
    /// Ends what runs.
    pub stop: Stop,
    /// What was moved, and what may be.
    pub traffic: Traffic,
    /// Who looks.
    pub instruments: Instruments,
}

impl Control {
    /// The same for a step that may write at most `bytes`, if there is such a bound: a write that would go beyond is not sent,
    /// and its fiber ends. The bound is that of the control given back (and its clones) alone, so it ends with the step; a
    /// bound of this one holds inside it as well.
    #[must_use]
    pub fn with_write_bound(&self, bytes: Option<u64>) -> Control {
        let mut step = self.clone();
        if let Some(bytes) = bytes {
            let (left_bytes, is_reached) = (AtomicU64::new(bytes), AtomicBool::new(false));
            let bound = WriteBound { left_bytes, is_reached, outer: self.traffic.bound.clone() };
            step.traffic.bound = Some(Arc::new(bound));
        }
        step
    }
}

/// Ends what runs, from another thread.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks for the end: what was measured by then is the result.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether somebody asked for the end.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The bytes that runs move, and the most that they may write.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    moved: Arc<Moved>,
    /// What may be written; none where nobody asked for a bound.
    bound: Option<Arc<WriteBound>>,
}

#[derive(Debug, Default)]
struct Moved {
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
}

/// How much a step may write.
#[derive(Debug)]
struct WriteBound {
    left_bytes: AtomicU64,
    is_reached: AtomicBool,
    /// Of the step that this one is part of.
    outer: Option<Arc<WriteBound>>,
}

impl Traffic {
    /// Bytes that runs have asked the disk for so far, warm-up included.
    #[must_use]
    pub fn read_bytes(&self) -> u64 {
        self.moved.read_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that runs and preparations have written to the disk so far.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        self.moved.written_bytes.load(Ordering::Relaxed)
    }

    /// Whether a write was not sent because of [`Control::with_write_bound`].
    #[must_use]
    pub fn is_write_bound_reached(&self) -> bool {
        self.bound.as_ref().is_some_and(|bound| bound.is_reached.load(Ordering::Relaxed))
    }

    /// Takes `bytes` from what may still be written; `false` where there is less.
    pub(crate) fn take_write(&self, bytes: u64) -> bool {
        self.bound.as_ref().is_none_or(|bound| bound.take(bytes))
    }

    /// Gives back what was taken for a write that was not sent.
    pub(super) fn give_back_write(&self, bytes: u64) {
        if let Some(bound) = &self.bound {
            bound.give_back(bytes);
        }
    }

    pub(super) fn add_read(&self, bytes: u64) {
        self.moved.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn add_written(&self, bytes: u64) {
        self.moved.written_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl WriteBound {
    /// Takes `bytes` from what this step, and each that it is part of, may still write; `false` where one has less.
    fn take(&self, bytes: u64) -> bool {
        let left = &self.left_bytes;
        if left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok() {
            if self.outer.as_ref().is_none_or(|outer| outer.take(bytes)) {
                return true;
            }
            left.fetch_add(bytes, Ordering::Relaxed);
        }
        self.is_reached.store(true, Ordering::Relaxed);
        false
    }

    fn give_back(&self, bytes: u64) {
        self.left_bytes.fetch_add(bytes, Ordering::Relaxed);
        if let Some(outer) = &self.outer {
            outer.give_back(bytes);
        }
    }
}

/// What others see of runs while they go: a display, a trace file, a control socket.
#[derive(Clone, Debug, Default)]
pub struct Instruments(Arc<Attached>);

#[derive(Debug, Default)]
struct Attached {
    board: Board,
    trace: Mutex<Option<TraceFile>>,
    /// What runs call themselves on the control socket; none where they have no such socket.
    program: OnceLock<String>,
}

impl Instruments {
    /// From now on what happens to every request of runs goes into `file`.
    pub fn record(&self, file: TraceFile) {
        *self.trace() = Some(file);
    }

    /// What was recorded so far, between runs; `None` when nothing is to be recorded.
    #[must_use]
    pub fn recorded(&self) -> Option<Recorded> {
        self.trace().as_ref().map(TraceFile::recorded)
    }

    /// From now on runs can be attached to while they run, under this name (the first counts). A run whose socket cannot be
    /// made goes on without; so does one that begins while another of this process has it.
    pub fn serve(&self, program: &str) {
        // A second name changes nothing.
        let _ = self.0.program.set(program.to_owned());
    }

    /// What the jobs of the run do at this moment, in the order of the plan. Shards publish it, every 100 ms, from the
    /// first call on: that one finds nothing new.
    #[must_use]
    pub fn live(&self) -> Vec<LiveJob> {
        self.0.board.want();
        self.0.board.jobs()
    }

    pub(super) fn board(&self) -> &Board {
        &self.0.board
    }

    fn trace(&self) -> MutexGuard<'_, Option<TraceFile>> {
        // It is whole after each start and stop.
        self.0.trace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records what `topology` does while `body` runs, and serves its control socket, if that was asked for.
    pub(super) fn recording<T>(&self, topology: &Topology, body: impl FnOnce() -> T) -> T {
        let is_recorded = self.trace().as_mut().is_some_and(|file| file.start(topology));
        let server = self.0.program.get().and_then(|program| Server::start(topology, program).ok());
        let value = body();
        // A record that is started from outside ends before this one does.
        drop(server);
        if is_recorded && let Some(file) = self.trace().as_mut() {
            file.stop(topology);
        }
        value
    }
}
