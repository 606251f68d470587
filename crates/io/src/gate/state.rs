//! The calls at a gate and their queue: which calls may go, which threads wake, and which thread keeps the time.
//!
//! # How it works
//! All of it is behind the gate's lock, and the time is an argument. [`State::run`] lets the queue dispatch: each piece
//! is added to its call. The thread of a call that got pieces is called; the rest of the call is cut off.
//! [`State::appoint_timekeeper`] makes sure that one thread keeps the time while any waits: it runs the queue again at
//! the next wake-up, and at least every [`RECHECK_NS`], because shares and limits may have changed meanwhile.

use std::sync::Arc;

use plimsoll_core::{Dispatch, Outcome, Progress, QueueError, RequestId};
use slab::Slab;

use super::parker::Parker;
use super::{Call, GateError, Passed};
use crate::queues::DiskQueue;
use crate::topology::Topology;
use crate::trace::{Recorder, Tracer};

/// Longest time between two checks of the classes while threads wait.
const RECHECK_NS: u64 = 100_000_000;

/// Time after which another thread that waits keeps the time in place of the one that should.
pub(super) const OVERDUE_NS: u64 = 1_000_000_000;

/// Pieces of one call that are admitted together: consecutive, from the beginning of the call.
pub(super) struct Pieces {
    first: Dispatch,
    more: Vec<Dispatch>,
}

impl Pieces {
    fn len_bytes(&self) -> u32 {
        let last = self.more.last().unwrap_or(&self.first);
        if last.op().is_transfer() { last.offset_bytes().saturating_add(last.len_bytes()) } else { 0 }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Dispatch> {
        std::iter::once(&self.first).chain(&self.more)
    }
}

/// A queued call, until it ends.
pub(super) struct Entry {
    pub(super) call: Call,
    id: RequestId,
    /// Its number in traces.
    pub(super) number: u64,
    asked_ns: u64,
    /// The parker of its thread while it sleeps.
    pub(super) parker: Option<Arc<Parker>>,
    /// Its admitted pieces; `None` while it waits.
    pub(super) pieces: Option<Pieces>,
    /// Whether its class was removed.
    pub(super) is_stopped: bool,
}

/// An admitted call.
pub(super) enum Admitted {
    /// A call with no other ahead, which needs no entry.
    Alone(Dispatch),
    Queued(InTurn),
}

/// A call that was queued before it was admitted.
#[derive(Clone, Copy)]
pub(super) struct InTurn {
    pub(super) key: usize,
    pub(super) len_bytes: u32,
    pub(super) dispatched_ns: u64,
    /// The time at which its thread learned that.
    pub(super) began_ns: u64,
}

impl Admitted {
    pub(super) fn len_bytes(&self) -> u32 {
        match self {
            Admitted::Alone(piece) => piece.len_bytes(),
            Admitted::Queued(call) => call.len_bytes,
        }
    }

    /// Returns when the call was admitted, and when its thread learned of it.
    pub(super) fn times_ns(&self) -> (u64, u64) {
        match self {
            Admitted::Alone(piece) => (piece.dispatched_ns(), piece.dispatched_ns()),
            Admitted::Queued(call) => (call.dispatched_ns, call.began_ns),
        }
    }
}

/// The thread that keeps the time, and the latest time at which it wakes.
#[derive(Clone, Copy)]
pub(super) struct Keeper {
    pub(super) key: usize,
    pub(super) until_ns: u64,
}

impl Keeper {
    /// Returns whether the thread has probably left its call by a jump.
    fn is_overdue(&self, now_ns: u64) -> bool {
        self.until_ns.saturating_add(OVERDUE_NS) < now_ns
    }
}

pub(super) struct State {
    /// Number of the disk, for traces.
    pub(super) disk: u16,
    pub(super) queue: DiskQueue,
    pub(super) calls: Slab<Entry>,
    pub(super) keeper: Option<Keeper>,
    pub(super) classes_epoch: u64,
    /// Calls that got pieces in this round.
    granted: Vec<usize>,
    /// Parkers to wake after the lock is released.
    pub(super) to_wake: Vec<Arc<Parker>>,
    pub(super) tracer: Tracer,
    pub(super) number: u64,
}

impl State {
    pub(super) fn new(queue: DiskQueue, recorder: &Arc<Recorder>, shard: u16, disk: u16) -> State {
        State {
            disk,
            queue,
            calls: Slab::new(),
            keeper: None,
            classes_epoch: 0,
            granted: Vec::new(),
            to_wake: Vec::new(),
            tracer: Tracer::new(recorder, shard),
            number: recorder.last_number(shard),
        }
    }

    /// Returns whether classes, modes or the trace have changed since the queue followed them.
    pub(super) fn is_behind(&self, topology: &Topology) -> bool {
        topology.classes().epoch() != self.classes_epoch || !self.tracer.is_current()
    }

    /// Admits a call with no other ahead. Returns `None` if the call must be queued, is traced, or other threads must
    /// be woken first.
    pub(super) fn admit_alone(&mut self, now_ns: u64, call: &Call) -> Option<Dispatch> {
        if self.tracer.is_on() || !self.to_wake.is_empty() {
            return None;
        }
        self.queue.dispatch_alone(now_ns, call.class, call.op, call.len_bytes)
    }

    pub(super) fn queue_call(&mut self, now_ns: u64, call: &Call) -> Result<usize, GateError> {
        let place = self.calls.vacant_entry();
        let key = place.key();
        let queued = self.queue.enqueue(now_ns, call.class, 0, call.op, call.len_bytes, key as u64);
        let id = queued.map_err(|error| match error {
            QueueError::Full => GateError::Full,
            QueueError::Overloaded { expected_ns } => GateError::Overloaded { expected_ns },
            _ => GateError::UnknownClass,
        })?;

        self.number = self.number.wrapping_add(1);
        let number = self.number;
        place.insert(Entry {
            call: *call,
            id,
            number,
            asked_ns: now_ns,
            parker: None,
            pieces: None,
            is_stopped: false,
        });

        if self.tracer.is_on() {
            self.note_queued(now_ns, call, number);
        }
        Ok(key)
    }

    /// Completes the piece of a call that was never queued, whose thread was late by `late_ns`.
    pub(super) fn end_alone(&mut self, now_ns: u64, late_ns: u64, piece: Dispatch, result: Result<u32, i32>) -> Passed {
        let total_ns = now_ns.saturating_sub(piece.dispatched_ns());
        self.complete(now_ns, late_ns, piece, result);
        Passed { waited_ns: 0, total_ns, at_ns: now_ns }
    }

    /// Completes the pieces of the call under `key`, whose thread was late by `late_ns`.
    pub(super) fn end(&mut self, now_ns: u64, late_ns: u64, key: usize, result: Result<u32, i32>) -> Passed {
        let Some(Entry { call, number, asked_ns, pieces: Some(pieces), .. }) = self.calls.try_remove(key) else {
            debug_assert!(false, "a permit without a call");
            return Passed::default();
        };
        if self.tracer.is_on() {
            self.note_over(now_ns, &call, number, &pieces, result);
        }

        let Pieces { first, more } = pieces;
        let passed = Passed {
            waited_ns: first.dispatched_ns().saturating_sub(asked_ns),
            total_ns: now_ns.saturating_sub(asked_ns),
            at_ns: now_ns,
        };
        // Not as one chain, which would copy the first piece, the only one of most calls, twice more.
        self.complete(now_ns, late_ns, first, result);
        more.into_iter().for_each(|piece| self.complete(now_ns, late_ns, piece, result));
        passed
    }

    fn complete(&mut self, now_ns: u64, late_ns: u64, piece: Dispatch, result: Result<u32, i32>) {
        let outcome = outcome(&piece, result);
        if let Progress::Continue(rest) = self.queue.complete_after(now_ns, late_ns, piece, outcome) {
            debug_assert!(false, "no piece is said to be short and to go on");
            let _ = self.queue.refuse(now_ns, rest, libc::ECANCELED);
        }
    }

    /// Lets the queue dispatch until no more may be dispatched.
    pub(super) fn run(&mut self, now_ns: u64) {
        loop {
            while let Some(piece) = self.queue.poll_dispatch(now_ns) {
                let key = piece.user_data() as usize;
                let Some(entry) = self.calls.get_mut(key) else {
                    debug_assert!(false, "a piece of nobody's call");
                    let _ = self.queue.refuse(now_ns, piece, libc::ECANCELED);
                    continue;
                };
                match &mut entry.pieces {
                    Some(pieces) => pieces.more.push(piece),
                    None => {
                        entry.pieces = Some(Pieces { first: piece, more: Vec::new() });
                        self.granted.push(key);
                    }
                }

                if self.queue.queued() == 0 {
                    break;
                }
            }

            let mut any_cut = false;
            for at in 0..self.granted.len() {
                let key = self.granted[at];
                let Some(entry) = self.calls.get_mut(key) else { continue };
                let is_cut = self.queue.cut(entry.id).is_some();
                any_cut |= is_cut;
                if let Some(parker) = entry.parker.take() {
                    parker.call();
                    self.to_wake.push(parker);
                }
                self.keeper = self.keeper.filter(|keeper| keeper.key != key);
                if self.tracer.is_on() {
                    self.note_granted(now_ns, key, is_cut);
                }
            }

            self.granted.clear();
            // Parts that were cut off held back the calls behind them.
            if !any_cut {
                break;
            }
        }
        if self.tracer.is_on() {
            self.note_blocked(now_ns);
        }
    }

    /// Makes sure that one thread keeps the time while any waits. `key` is the call whose thread is about to sleep
    /// anyway.
    pub(super) fn appoint_timekeeper(&mut self, now_ns: u64, key: Option<usize>) {
        if self.queue.queued() == 0 {
            self.keeper = None;
            return;
        }
        let latest_ns = now_ns.saturating_add(RECHECK_NS);
        let until_ns = self.queue.next_wakeup().map_or(latest_ns, |at_ns| at_ns.min(latest_ns));

        match (self.keeper, key) {
            (Some(keeper), Some(key)) if keeper.key == key => self.keeper = Some(Keeper { key, until_ns }),
            (Some(keeper), _) if keeper.until_ns <= until_ns && !keeper.is_overdue(now_ns) => {}
            (_, Some(key)) => self.keeper = Some(Keeper { key, until_ns }),
            (Some(keeper), None) => self.call_keeper(keeper.key, until_ns),
            (None, None) => {
                let waits = |entry: &Entry| entry.pieces.is_none() && !entry.is_stopped;
                let other = self.calls.iter().find(|(_, entry)| waits(entry)).map(|(key, _)| key);
                debug_assert!(other.is_some(), "something is queued, and nobody waits for it");
                other.into_iter().for_each(|key| self.call_keeper(key, until_ns));
            }
        }
    }

    /// Makes the thread of `key` run the queue again, and keep the time from then on.
    fn call_keeper(&mut self, key: usize, until_ns: u64) {
        self.keeper = Some(Keeper { key, until_ns });
        // A thread without a parker is awake, and will take the lock.
        if let Some(parker) = self.calls.get(key).and_then(|entry| entry.parker.as_ref()) {
            parker.call();
            self.to_wake.push(Arc::clone(parker));
        }
    }

    /// Returns the admitted part of the call under `key`, or `None` while it waits.
    pub(super) fn admitted(&self, key: usize, now_ns: u64) -> Option<InTurn> {
        let pieces = self.calls.get(key)?.pieces.as_ref()?;
        let dispatched_ns = pieces.first.dispatched_ns();
        Some(InTurn { key, len_bytes: pieces.len_bytes(), dispatched_ns, began_ns: now_ns })
    }

    /// Returns whether the call under `key` has ended because its class was removed.
    pub(super) fn is_stopped(&self, key: usize) -> bool {
        self.calls.get(key).is_none_or(|entry| entry.is_stopped)
    }

    pub(super) fn forget(&mut self, key: usize) {
        self.keeper = self.keeper.filter(|keeper| keeper.key != key);
        let _ = self.calls.try_remove(key);
    }

    /// Withdraws the call under `key`, or ends it if it is admitted, as one that has failed.
    pub(super) fn withdraw(&mut self, key: usize, now_ns: u64) {
        match self.admitted(key, now_ns) {
            Some(_) => drop(self.end(now_ns, 0, key, Err(libc::ECANCELED))),
            None => self.give_up(key, now_ns),
        }
    }

    /// Withdraws the call under `key`, which waits.
    pub(super) fn give_up(&mut self, key: usize, now_ns: u64) {
        if let Some(entry) = self.calls.get(key) {
            let (id, call, number) = (entry.id, entry.call, entry.number);
            let _ = self.queue.cancel(id);
            if self.tracer.is_on() {
                self.note_cancelled(now_ns, &call, number);
            }
        }
        self.forget(key);
    }

    /// Stops the call under `key`, whose class was removed.
    pub(super) fn stop(&mut self, key: usize, now_ns: u64) {
        let Some(entry) = self.calls.get_mut(key) else { return };
        entry.is_stopped = true;
        let (call, number) = (entry.call, entry.number);
        if let Some(parker) = entry.parker.take() {
            parker.call();
            self.to_wake.push(parker);
        }
        self.keeper = self.keeper.filter(|keeper| keeper.key != key);
        if self.tracer.is_on() {
            self.note_cancelled(now_ns, &call, number);
        }
    }

    pub(super) fn blocked(&self) -> (Option<plimsoll_core::WaitReason>, Option<u64>) {
        (self.queue.blocked_on(), self.queue.next_wakeup())
    }

    pub(super) fn entry(&self, key: usize) -> Option<&Entry> {
        self.calls.get(key)
    }
}

/// Returns the part of the call's result that belongs to `piece`.
fn outcome(piece: &Dispatch, result: Result<u32, i32>) -> Outcome {
    match result {
        Err(errno) => Outcome::Failed(errno),
        Ok(_) if !piece.op().is_transfer() => Outcome::Moved(0),
        Ok(moved) => {
            let of_piece = moved.saturating_sub(piece.offset_bytes());
            if of_piece >= piece.len_bytes() { Outcome::Moved(piece.len_bytes()) } else { Outcome::End(of_piece) }
        }
    }
}
