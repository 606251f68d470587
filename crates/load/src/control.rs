//! Control over runs: a stop, a write bound, and instruments that observe.
//!
//! **Why.** Ctrl-C ends a run, its step bounds it, and displays, traces and other programs observe it. Most code needs
//! one of the three: a wait for a child process needs a [`Stop`] and nothing else.
//!
//! **How.** [`Control`] combines the three for code that runs loads. Clones share state: a signal handler holds a
//! [`Stop`], a display the [`Instruments`]. A write bound belongs to the [`Traffic`] of the control that
//! [`Control::with_write_bound`] returned, and ends with it.
//!
//! **Limits.** Bytes are counted when the shards end, not while they run; bounds hold before each write.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_load::Control;
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

#[derive(Clone, Debug, Default)]
pub struct Control {
    pub stop: Stop,
    /// Bytes moved, and the bound on writes.
    pub traffic: Traffic,
    /// Displays, traces and sockets that observe the runs.
    pub instruments: Instruments,
}

impl Control {
    /// Returns a control for a step that may write at most `bytes`, if a bound is given: a write beyond the bound is
    /// not sent, and its fiber ends. Only the returned control and its clones have the bound, so it ends with the
    /// step. Bounds of `self` apply inside the step as well.
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

/// A flag that ends runs, set from another thread.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks for the end. The measurements so far are the result.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Bytes that runs have moved, and the most that they may write.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    moved: Arc<Moved>,
    bound: Option<Arc<WriteBound>>,
}

#[derive(Debug, Default)]
struct Moved {
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
}

/// The bytes that a step may still write.
#[derive(Debug)]
struct WriteBound {
    left_bytes: AtomicU64,
    is_reached: AtomicBool,
    /// The bound of the enclosing step.
    outer: Option<Arc<WriteBound>>,
}

impl Traffic {
    /// Returns the bytes that runs have asked the disk to read so far, warm-up included.
    pub fn read_bytes(&self) -> u64 {
        self.moved.read_bytes.load(Ordering::Relaxed)
    }

    /// Returns the bytes that runs and preparations have written to the disk so far.
    pub fn written_bytes(&self) -> u64 {
        self.moved.written_bytes.load(Ordering::Relaxed)
    }

    /// Returns whether a write was not sent because of [`Control::with_write_bound`].
    pub fn is_write_bound_reached(&self) -> bool {
        self.bound.as_ref().is_some_and(|bound| bound.is_reached.load(Ordering::Relaxed))
    }

    /// Takes `bytes` from the write bound. Returns `false` if fewer are left.
    pub fn take_write(&self, bytes: u64) -> bool {
        self.bound.as_ref().is_none_or(|bound| bound.take(bytes))
    }

    /// Returns `bytes` to the write bound after a write that was not sent.
    pub(super) fn give_back_write(&self, bytes: u64) {
        if let Some(bound) = &self.bound {
            bound.give_back(bytes);
        }
    }

    /// Adds the bytes that a run has asked the disk to read and to write.
    pub(super) fn add(&self, [read_bytes, written_bytes]: [u64; 2]) {
        self.moved.read_bytes.fetch_add(read_bytes, Ordering::Relaxed);
        self.add_written(written_bytes);
    }

    pub fn add_written(&self, bytes: u64) {
        self.moved.written_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl WriteBound {
    /// Takes `bytes` from this step and all that enclose it. Returns `false` if one of them has fewer left.
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

/// Observers of runs in progress: a display, a trace file, a control socket.
#[derive(Clone, Debug, Default)]
pub struct Instruments(Arc<Attached>);

#[derive(Debug, Default)]
struct Attached {
    board: Board,
    trace: Mutex<Option<TraceFile>>,
    /// Name of the runs on the control socket; unset if they have no socket.
    program: OnceLock<String>,
}

impl Instruments {
    /// Records every request of later runs into `file`.
    pub fn record(&self, file: TraceFile) {
        *self.trace() = Some(file);
    }

    /// Returns the progress of the recording, between runs; `None` if nothing is recorded, or no run has begun.
    pub fn recorded(&self) -> Option<Recorded> {
        self.trace().as_ref().and_then(TraceFile::recorded)
    }

    /// Makes later runs attachable under the name `program`; the first name counts. If the socket cannot be made, or
    /// another run of this process has it, a run continues without.
    pub fn serve(&self, program: &str) {
        // If a name is set already, keep it.
        let _ = self.0.program.set(program.to_owned());
    }

    /// Returns the current state of the run's jobs, in the order of the plan. Shards publish every 100 ms after the
    /// first call, so the first call returns nothing new.
    pub fn live(&self) -> Vec<LiveJob> {
        self.0.board.want();
        self.0.board.jobs()
    }

    pub(super) fn board(&self) -> &Board {
        &self.0.board
    }

    fn trace(&self) -> MutexGuard<'_, Option<TraceFile>> {
        // The value is whole after each start and stop.
        self.0.trace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records `topology` while `body` runs, and serves its control socket, if requested.
    pub(super) fn recording<T>(&self, topology: &Topology, body: impl FnOnce() -> T) -> T {
        let is_recorded = self.trace().as_mut().is_some_and(|file| file.start(topology));
        let server = self.0.program.get().and_then(|program| Server::start(topology, program).ok());
        let value = body();
        // A recording that a client of the socket started ends before this one.
        drop(server);
        if is_recorded && let Some(file) = self.trace().as_mut() {
            file.stop(topology);
        }
        value
    }
}
