//! The engine of one shard, without futures: I/O queues, a backend, and the table of requests under way.
//!
//! # Why
//! Every request takes this one path, which can therefore be fast (no allocation, one system call for many requests)
//! and be checked once: every completion is checked, short transfers are continued, and memory stays in place until the
//! completion of the last operation that may use it has been reaped.
//!
//! # How it works
//! The owner of a reactor turns it:
//! ```text
//!   submit*  ->  park  =  dispatch (gates, backend.submit)  +  flush and sleep until something happens
//!   reap     ->  the requests that have ended, as a list of `Done`; many completions take several turns;
//!                if the device holds few, the next ones go at once
//! ```
//! A request moves its buffer in and gets it back in its [`Done`]. Between shards there are only messages: if a disk
//! has fewer I/O queues than shards, a request goes to the queue's coordinator, and its result returns, as a message.
//!
//! # Limits
//! One thread. At most [`ReactorConfig::max_requests`] requests of a shard exist at a time; more are refused.
//!
//! # Example
//! [`Shard`](crate::Shard) puts futures on top. The native loop, with a backend that does nothing:
//! ```
//! use plimsoll::{Class, Classes, Data, DiskSetup, Reactor, Request, RequestKind, Topology};
//! use plimsoll::backend::OpenOptions;
//! use plimsoll::backend::choose::{BackendKind, probe};
//!
//! let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()])?;
//! let (backend, _) = probe(Some(BackendKind::Null), 256)?;
//! let mut reactor = Reactor::new(0, &topology, backend)?;
//! let file = topology.file("/any/path".as_ref(), OpenOptions::default(), 0);
//! let read = RequestKind::Read { len_bytes: 4096 };
//! let buffer = plimsoll::buffer::AlignedBuf::new(4096)?;
//! reactor.submit(Request { file, class: Class::DEFAULT, kind: read, offset: 0, data: Data::One(buffer), tag: 1 })?;
//! reactor.park(None)?;
//! let mut done = Vec::new();
//! reactor.reap(&mut done);
//! assert_eq!((done[0].tag, done[0].result), (1, Ok(4096)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod ends;
mod files;
mod mail;
mod pieces;
mod places;
mod stations;
mod submit;
mod view;

use std::collections::VecDeque;
use std::io;

use files::OpenFile;
use pieces::{LONG_TURN_NS, REAP_MAX};
use places::Places;
use plimsoll_core::{ClassStats, Dispatch, Latencies, RequestId, Snapshot};
use slab::Slab;

use crate::backend::{Backend, Completion, WakeHandle};
use crate::buffer::{AlignedBuf, Buffers};
use crate::class::Class;
use crate::mailbox::Job;
use crate::queues::DiskQueue;
use crate::request::{Data, Done, Request};
use crate::sys::rusage::{RUN_DELAY_READ_NS, RunDelay, thread_has_seccomp_filter};
use crate::topology::{ReactorConfig, Topology};
use crate::trace::Tracer;
pub use view::ReactorView;

/// The error of [`Reactor::new`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReactorError {
    /// The topology has fewer shards.
    NoSuchShard {
        /// The shard asked for.
        shard: u16,
        /// The number of shards.
        shards: u16,
    },
    /// The shard has a reactor or a gate already, which must be dropped first. A runtime that is still stopping has
    /// reactors.
    IsOpen {
        /// The shard asked for.
        shard: u16,
    },
}

impl std::fmt::Display for ReactorError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ReactorError::NoSuchShard { shard, shards } => {
                write!(f, "there is no shard {shard}: the topology has {shards}, numbered from 0")
            }
            ReactorError::IsOpen { shard } => {
                write!(
                    f,
                    "shard {shard} of this topology has a reactor or a gate already: drop it, or wait until its runtime has \
                     stopped"
                )
            }
        }
    }
}

impl std::error::Error for ReactorError {}

impl From<ReactorError> for io::Error {
    fn from(error: ReactorError) -> io::Error {
        let kind = match error {
            ReactorError::NoSuchShard { .. } => io::ErrorKind::InvalidInput,
            ReactorError::IsOpen { .. } => io::ErrorKind::AlreadyExists,
        };
        io::Error::new(kind, error)
    }
}

/// Longest sleep while queued requests wait for a time. A change of classes, such as a lifted limit, takes effect after
/// it.
const CLASSES_RECHECK_NS: u64 = 100_000_000;

/// Sleep before a disk with stalled pieces and none in flight retries a backend that refused them although it has room.
const BUSY_RETRY_NS: u64 = 100_000;

/// A request of this shard's table.
struct Pending {
    request: Request,
    /// Counts the requests of the shard, over all its reactors; a ticket holds the low half.
    number: u64,
    /// Pieces dispatched so far.
    pieces: u16,
    at: Place,
    /// The shard that sent the request; `None` for this shard's own.
    from: Option<Sender>,
    /// Length and duration of the finished parts of a discard.
    discarded_bytes: u64,
    discarded_ns: u64,
    /// Whether a discard was cancelled: it ends with its part in the device.
    is_stopping: bool,
}

/// The shard that sent a request, and its number for the request.
#[derive(Clone, Copy)]
struct Sender {
    shard: u16,
    serial: u64,
}

#[derive(Clone, Copy)]
enum Place {
    Here { disk: u16, id: RequestId },
    Remote,
}

/// A piece in the backend.
struct Piece {
    dispatch: Dispatch,
    disk: u16,
    /// Its number among the pieces of its request.
    number: u16,
    /// Whether the backend has taken it; then `Backend::reap` returns its completion.
    is_in_backend: bool,
    /// The list of buffers of a vectored transfer, which the kernel reads while the piece is in flight.
    iov: Option<Box<[libc::iovec]>>,
}

/// A completion that the kernel delivered at `since_ns` or later.
struct Back {
    completion: Completion,
    since_ns: u64,
}

/// The engine of one shard. Its owner calls [`Reactor::submit`], [`Reactor::park`] and [`Reactor::reap`] in a loop, on
/// one thread.
pub struct Reactor {
    // Dropped first: the drop of a backend waits for its operations, whose memory must live until then.
    backend: Box<dyn Backend>,
    /// The error number of a backend that broke down, for good.
    broken: Option<i32>,
    /// Memory that a broken backend may still use.
    kept: Vec<Data>,
    shard: u16,
    topology: Topology,
    config: ReactorConfig,
    queues: Vec<Option<DiskQueue>>,
    files: Vec<Option<OpenFile>>,
    pending: Slab<Pending>,
    pieces: Slab<Piece>,
    /// By disk, pieces to submit before queued ones: the backend had no room for them, a signal has interrupted them,
    /// or they are the rest of a short transfer.
    stalled: Vec<VecDeque<usize>>,
    places: Places,
    /// The disk that was served first in this turn.
    first_disk: usize,
    finished: Vec<Done>,
    /// Completions of the backend that have not been handled yet, oldest first.
    reaped: VecDeque<Back>,
    /// Pieces that the backend took since it was last flushed.
    unflushed: u32,
    jobs: VecDeque<Job>,
    classes_epoch: u64,
    /// The number of the last request.
    number: u64,
    tracer: Tracer,
    now_ns: u64,
    /// The earliest time of a completion that has not been reaped: the last collection, or the end of the last
    /// sleep.
    collected_ns: u64,
    /// The start of this turn: the last reap, or the end of the last sleep.
    turned_ns: u64,
    /// How long the thread has waited for a CPU; `None` on virtual time.
    run_delay: Option<RunDelay>,
    /// Whether the thread had a seccomp filter when it made the reactor.
    had_filter: bool,
}

impl Reactor {
    /// Returns the reactor of shard number `shard` of `topology`. Call this on the thread that will run the reactor. A
    /// shard has one reactor at a time; when it is dropped, requests from other shards end with `EPIPE`.
    ///
    /// # Errors
    /// [`ReactorError`] if there is no such shard, or the shard has a reactor or a gate.
    pub fn new(shard: u16, topology: &Topology, backend: Box<dyn Backend>) -> Result<Reactor, ReactorError> {
        if shard >= topology.shards() {
            return Err(ReactorError::NoSuchShard { shard, shards: topology.shards() });
        }
        if !topology.mailboxes().open(shard, backend.wake_handle()) {
            return Err(ReactorError::IsOpen { shard });
        }

        let now_ns = backend.now_ns();
        let queues = topology.queues_of(shard);
        let is_mine: Vec<bool> = queues.iter().map(Option::is_some).collect();
        let has_virtual_time = backend.name() == "sim";
        let mut reactor = Reactor {
            run_delay: if has_virtual_time { None } else { RunDelay::if_known() },
            had_filter: thread_has_seccomp_filter(),
            places: Places::new(backend.capacity(), &is_mine),
            backend,
            broken: None,
            kept: Vec::new(),
            shard,
            topology: topology.clone(),
            config: topology.reactor_config(),
            stalled: queues.iter().map(|_| VecDeque::new()).collect(),
            queues,
            files: Vec::new(),
            pending: Slab::new(),
            pieces: Slab::new(),
            first_disk: 0,
            finished: Vec::new(),
            reaped: VecDeque::new(),
            unflushed: 0,
            jobs: VecDeque::new(),
            classes_epoch: 0,
            number: topology.recorder().last_number(shard),
            tracer: Tracer::new(topology.recorder(), shard),
            now_ns,
            collected_ns: now_ns,
            turned_ns: now_ns,
        };

        reactor.follow_classes();
        reactor.follow_trace();
        Ok(reactor)
    }

    /// Returns the number of the shard.
    #[must_use]
    pub fn shard(&self) -> u16 {
        self.shard
    }

    /// Returns the topology that all shards of this program share.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Returns a handle that wakes this reactor out of [`Reactor::park`] from any thread.
    #[must_use]
    pub fn wake_handle(&self) -> WakeHandle {
        self.backend.wake_handle()
    }

    /// Returns the time of this turn, as last read from the backend.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Reads the backend's clock. [`Reactor::now_ns`] is as old as the turn.
    pub(crate) fn clock_ns(&self) -> u64 {
        self.backend.now_ns()
    }

    /// Returns the number of requests under way here: this shard's own, and those of other shards.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.pending.len()
    }

    /// Returns the number of pieces in the backend.
    #[must_use]
    pub fn in_backend(&self) -> usize {
        self.backend.in_flight()
    }

    /// Returns `count` buffers of `len_bytes`, registered with the backend if that makes I/O cheaper. If they are not,
    /// [`Buffers::not_registered`] has the reason.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub fn make_buffers(&mut self, count: usize, len_bytes: usize) -> io::Result<Buffers> {
        Ok(AlignedBuf::registered(count, len_bytes, self.backend.as_mut())?)
    }

    /// Handles completions and messages, and appends the requests that have ended to `done`. Does not block.
    ///
    /// If a disk holds few of this shard's pieces, submits those that may go now, so that the disk does not run idle
    /// while the caller handles results.
    ///
    /// Handles a bounded number of completions per call, so that pieces that may go now are submitted before the rest
    /// is handled; [`Reactor::park`] does not sleep then. If the caller has computed for long since the last call,
    /// handles all.
    pub fn reap(&mut self, done: &mut Vec<Done>) {
        self.collect_completions();
        let is_long_turn = self.now_ns.saturating_sub(self.turned_ns) > LONG_TURN_NS;
        self.turned_ns = self.now_ns;
        self.handle_completions(if is_long_turn { usize::MAX } else { REAP_MAX });

        self.read_mail();
        self.follow_classes();
        self.send_early();

        if self.tracer.is_on() {
            self.note_callbacks();
        }
        if done.is_empty() {
            std::mem::swap(done, &mut self.finished);
        } else {
            done.append(&mut self.finished);
        }
    }

    /// Records that the shard has slept until now: no completion has waited to be reaped.
    pub(crate) fn has_slept(&mut self) {
        self.collected_ns = self.backend.now_ns();
        self.turned_ns = self.collected_ns;
    }

    /// Submits the pieces that may go now to the backend, one disk after the other. Does not block.
    pub fn dispatch(&mut self) {
        if self.broken.is_some() {
            return;
        }
        // Time that the shard has computed since the last reading must not count as the device's.
        self.now_ns = self.backend.now_ns();

        let disks = self.queues.len();
        self.first_disk = (self.first_disk + 1) % disks;
        for turn in 0..disks {
            let disk = (self.first_disk + turn) % disks;
            while self.send_stalled(disk) && self.dispatch_one(disk) {}
        }
    }

    /// Submits and flushes the pieces that may go before the caller handles results.
    fn send_early(&mut self) {
        if self.broken.is_some() {
            return;
        }
        let disks = self.queues.len();
        for turn in 0..disks {
            let disk = (self.first_disk + turn) % disks;
            if self.queues[disk].as_ref().is_some_and(DiskQueue::may_go_early) {
                self.now_ns = self.backend.now_ns();
                while self.send_stalled(disk) && self.dispatch_one(disk) {}
            }
        }
        if self.unflushed > 0 {
            // The flush at the end of the turn returns the error again.
            let _ = self.flush();
        }
    }

    /// Passes all dispatched pieces to the kernel. Does not block.
    ///
    /// # Errors
    /// If the backend is broken; see [`Reactor::park`].
    pub fn flush(&mut self) -> io::Result<()> {
        self.check_broken()?;
        self.unflushed = 0;
        let flushed = self.backend.flush();
        self.check_backend(flushed)
    }

    /// Dispatches, flushes, and sleeps until a completion, a message, the time at which queued work may go, or
    /// `deadline_ns`. If requests or completions wait to be reaped, does not sleep.
    ///
    /// # Errors
    /// If the backend is broken. Then all requests in this shard's queues, those from other shards too, end with the
    /// error, and further ones are refused; [`Reactor::reap`] returns those that have ended.
    pub fn park(&mut self, deadline_ns: Option<u64>) -> io::Result<()> {
        self.check_broken()?;
        self.dispatch();

        // Completions until now are reaped here; later ones end the sleep.
        if !self.has_something() {
            self.collect_completions();
        }
        if self.has_something() {
            return self.flush();
        }

        // Cap the sleep even if the wake-up is later: a lifted limit must take effect.
        let latest_ns = self.now_ns.saturating_add(CLASSES_RECHECK_NS);
        let wakeups = self
            .queues
            .iter()
            .flatten()
            .filter(|queue| queue.queued() > 0)
            .map(|queue| queue.next_wakeup().unwrap_or(latest_ns).min(latest_ns));

        // A disk with stalled pieces and none in the backend gets no completion at which it would retry.
        let in_flight = self.backend.in_flight();
        let is_left_out = |disk: usize| !self.stalled[disk].is_empty() && self.places.is_left_out(disk, in_flight);
        let is_stuck = (0..self.stalled.len()).any(is_left_out);
        let retry_ns = is_stuck.then(|| self.now_ns.saturating_add(BUSY_RETRY_NS));

        let wakeup_ns = wakeups.chain(retry_ns).chain(deadline_ns).min();
        if wakeup_ns.is_some_and(|at| at <= self.now_ns) {
            return self.flush();
        }

        self.unflushed = 0;
        if let Some(run_delay) = &mut self.run_delay {
            run_delay.refresh(self.now_ns, self.had_filter);
        }
        let waited = self.backend.wait(wakeup_ns);
        let slept_from_ns = self.collected_ns;
        self.has_slept();
        self.note_run_delay(slept_from_ns);
        self.check_backend(waited)
    }

    /// Reads how long the thread has waited for a CPU at the end of a long sleep, and dates the completions back by
    /// that time.
    fn note_run_delay(&mut self, slept_from_ns: u64) {
        let slept_ns = self.collected_ns.saturating_sub(slept_from_ns);
        if slept_ns >= RUN_DELAY_READ_NS
            && let Some(run_delay) = &mut self.run_delay
        {
            self.collected_ns -= run_delay.since_last_reading_ns(self.collected_ns, self.had_filter).min(slept_ns);
            self.turned_ns = self.collected_ns;
        }
    }

    /// Returns whether there is work: ended requests, completions, jobs or messages.
    fn has_something(&self) -> bool {
        !self.finished.is_empty()
            || !self.reaped.is_empty()
            || !self.jobs.is_empty()
            || self.topology.mailboxes().has_mail(self.shard)
            || self.topology.classes().epoch() != self.classes_epoch
    }

    /// Applies the start or the end of a trace.
    fn follow_trace(&mut self) {
        if let Some(after) = self.tracer.follow() {
            self.number = self.number.max(after);
        }
    }

    /// Returns the next job that came by mail, in order.
    pub(crate) fn next_job(&mut self) -> Option<Job> {
        self.jobs.pop_front()
    }

    /// Returns the state of this shard's queue of disk number `disk`; `None` if the queue is on another shard. The
    /// classes are those of the disk, under the disk's own numbers.
    #[must_use]
    pub fn snapshot(&self, disk: u16) -> Option<Snapshot> {
        let queue = self.queues.get(usize::from(disk))?.as_ref()?;
        Some(queue.snapshot(self.now_ns))
    }

    /// Applies changes of the classes' registry and of the disks' modes to the queues. Returns whether there were any.
    fn follow_classes(&mut self) -> bool {
        let epoch = self.topology.classes().epoch();
        if epoch == self.classes_epoch {
            return false;
        }
        self.classes_epoch = epoch;

        let table = self.topology.classes().list();
        let mut cancelled = Vec::new();
        for (disk, queue) in self.queues.iter_mut().enumerate() {
            if let (Some(queue), Some((classes, per_shard))) = (queue, self.topology.disk_classes(disk)) {
                queue.follow_classes(classes, epoch, &table, per_shard, &mut cancelled);
                queue.set_mode(self.now_ns, self.topology.queue_mode(disk as u16, self.shard));
            }
        }

        for stopped in cancelled {
            if self.tracer.is_on() {
                self.note_cancelled(stopped.user_data as usize);
            }
            self.is_cancelled(stopped);
        }
        true
    }

    /// Returns the counters of `class` in this shard's queue of `disk`; `None` if the queue is on another shard, or
    /// does not know the class.
    #[must_use]
    pub fn class_stats(&self, disk: u16, class: Class) -> Option<ClassStats> {
        self.queues.get(usize::from(disk))?.as_ref()?.class_stats(class)
    }

    /// Calls `visit` with the latency histograms of `class` in this shard's queue of `disk`: one for each direction and
    /// each shard that uses the queue.
    pub fn class_latencies(&self, disk: u16, class: Class, visit: &mut dyn FnMut(&Latencies)) {
        if let Some(Some(queue)) = self.queues.get(usize::from(disk)) {
            queue.class_latencies(class, &mut |_, latencies| visit(latencies));
        }
    }

    /// Clears all counters and histograms of this shard, and those of all shards and gates of the topology that have
    /// ended. The numbers of queued requests and of pieces in the device stay.
    pub fn reset_stats(&mut self) {
        self.queues.iter_mut().flatten().for_each(DiskQueue::reset_stats);
        #[cfg(feature = "metrics")]
        self.topology.retired().clear();
    }
}

#[cfg(feature = "metrics")]
impl crate::queues::ShardQueues for Reactor {
    fn shard(&self) -> u16 {
        self.shard
    }

    fn lives_before(&self) -> u64 {
        self.topology.retired().lives(self.shard)
    }

    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn class_views(&self, now_ns: u64, disk: u16) -> Vec<crate::queues::ClassView> {
        let queue = self.queues.get(usize::from(disk)).and_then(Option::as_ref);
        queue.map_or(Vec::new(), |queue| queue.class_views(now_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::choose::BackendKind;
    use crate::sandbox::forbid;
    use crate::{Classes, DiskSetup};

    /// A program that forbade itself to open files was killed by its shard.
    #[test]
    fn a_shard_with_a_new_seccomp_filter_opens_no_file() {
        let run = || {
            let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
            let mut reactor = Reactor::new(0, &topology, BackendKind::Null.make(8).unwrap()).unwrap();
            let mut sleep = || reactor.park(Some(reactor.clock_ns() + 2 * RUN_DELAY_READ_NS)).unwrap();
            sleep();
            if thread_has_seccomp_filter() || !forbid(&crate::sandbox::OPENS, libc::SECCOMP_RET_KILL_THREAD) {
                crate::skip::skip("a filter is there already, or this kernel takes none");
            }
            (0..3).for_each(|_| sleep());
        };
        std::thread::spawn(run).join().unwrap();
    }
}
