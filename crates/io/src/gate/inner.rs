//! The state behind a gate: the queue, the calls that wait for it, and the thread that keeps the time.
//!
//! # Why
//! A missed wake-up leaves a thread asleep for ever. All decisions about wake-ups are in this file.
//!
//! # How it works
//! There is one lock. A call with no other ahead is dispatched whole, and has no entry ([`Admitted::Alone`]). Any other
//! call is queued. A thread that holds the lock and has changed something lets the queue dispatch ([`State::run`]):
//! each piece is added to its call. The thread of a call that got pieces is called; the rest of the call is cut off.
//! Before the lock is released, [`State::appoint_timekeeper`] makes sure that one thread keeps the time while any waits: it runs
//! the queue again at the next wake-up, and at least every [`RECHECK_NS`], because shares and limits may have changed
//! meanwhile. The futexes are woken after the lock is released.
//!
//! # Limits
//! The lock is held while the queue dispatches all calls that may be admitted.
//!
//! # Example
//! Two calls of one class on a disk that takes one at a time: the second thread sleeps and keeps the time; the first
//! ends its permit, dispatches the second's piece, and wakes that thread.

use std::cell::Cell;
use std::sync::{Arc, PoisonError};

use plimsoll_core::{ClassStats, Direction, Dispatch, Latencies, Outcome, Progress, QueueError, RequestId};
use slab::Slab;

use super::parker::{Mutex, MutexGuard, Parker};
use super::{Call, GateError, GateStartError, Passed, lateness};
use crate::class::Class;
use crate::queues::DiskQueue;
use crate::sys::clock::now_ns;
use crate::sys::rusage::thread_has_seccomp_filter;
use crate::topology::Topology;
use crate::trace::Tracer;

/// Longest time between two checks of the classes while threads wait.
const RECHECK_NS: u64 = 100_000_000;

/// Time after which another thread that waits keeps the time in place of the one that should.
const OVERDUE_NS: u64 = 1_000_000_000;

/// Pieces of one call that are admitted together: consecutive, from the beginning of the call.
pub(crate) struct Pieces {
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
    parker: Option<Arc<Parker>>,
    /// Its admitted pieces; `None` while it waits.
    pub(super) pieces: Option<Pieces>,
    /// Whether its class was removed.
    is_stopped: bool,
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
    fn times_ns(&self) -> (u64, u64) {
        match self {
            Admitted::Alone(piece) => (piece.dispatched_ns(), piece.dispatched_ns()),
            Admitted::Queued(call) => (call.dispatched_ns, call.began_ns),
        }
    }
}

/// The thread that keeps the time, and the latest time at which it wakes.
#[derive(Clone, Copy)]
struct Keeper {
    key: usize,
    until_ns: u64,
}

/// What a thread has at a gate while it sleeps or reads /proc, in case it never comes back from there.
enum AtGate {
    /// The key of its call, which waits.
    Waits(usize),
    Admitted(Admitted),
}

std::thread_local! {
    /// The gate that the thread is in, as an address, and what it has there.
    static AT_GATE: Cell<Option<(usize, AtGate)>> = const { Cell::new(None) };
}

impl Keeper {
    /// Returns whether the thread has probably left its call by a jump.
    fn is_overdue(&self, now_ns: u64) -> bool {
        self.until_ns.saturating_add(OVERDUE_NS) < now_ns
    }
}

pub(super) struct State {
    queue: DiskQueue,
    calls: Slab<Entry>,
    keeper: Option<Keeper>,
    classes_epoch: u64,
    /// Calls that got pieces in this round.
    granted: Vec<usize>,
    /// Parkers to wake after the lock is released.
    pub(super) to_wake: Vec<Arc<Parker>>,
    pub(super) tracer: Tracer,
    number: u64,
}

pub(super) struct Inner {
    topology: Topology,
    shard: u16,
    disk: u16,
    /// Whether the thread that made the gate had a seccomp filter.
    pub(super) had_filter: bool,
    state: Mutex<State>,
}

impl Inner {
    pub(super) fn new(topology: &Topology, shard: u16, disk: u16) -> Result<Arc<Inner>, GateStartError> {
        let queue = queue_in_place_of(topology, shard, disk)?;
        let state = State {
            queue,
            calls: Slab::new(),
            keeper: None,
            classes_epoch: 0,
            granted: Vec::new(),
            to_wake: Vec::new(),
            tracer: Tracer::new(topology.recorder(), shard),
            number: topology.recorder().last_number(shard),
        };
        let had_filter = thread_has_seccomp_filter();
        let gate = Arc::new(Inner { topology: topology.clone(), shard, disk, had_filter, state: Mutex::new(state) });
        gate.follow(&mut gate.lock(), now_ns());
        #[cfg(feature = "metrics")]
        topology.add_gate(Arc::<Inner>::downgrade(&gate));
        Ok(gate)
    }

    pub(super) fn topology(&self) -> &Topology {
        &self.topology
    }

    pub(super) fn disk(&self) -> u16 {
        self.disk
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // No code under the lock panics on input; a broken invariant elsewhere must not stop all threads of a program.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `call` is admitted. Returns `None` after `until_ns`.
    pub(super) fn enter(&self, call: &Call, until_ns: Option<u64>) -> Result<Option<Admitted>, GateError> {
        let now_ns = now_ns();
        let mut state = self.lock();
        if state.is_behind(&self.topology) {
            self.follow(&mut state, now_ns);
        }
        if let Some(piece) = state.admit_alone(now_ns, call) {
            drop(state);
            let admitted = Admitted::Alone(piece);
            if !lateness::may_read_before() {
                return Ok(Some(admitted));
            }
            return Ok(self.keep_while(admitted, || lateness::read_before(now_ns, self.had_filter)).0);
        }
        let key = match state.queue_call(now_ns, call, self.disk) {
            Ok(key) => key,
            Err(error) => {
                // The queue may have looked for the class among new ones, and ended the calls of removed ones.
                self.run(&mut state, now_ns);
                self.release(state, now_ns, None);
                return Err(error);
            }
        };
        AT_GATE.set(Some((self.address(), AtGate::Waits(key))));
        let admitted = self.wait(state, now_ns, key, until_ns);
        AT_GATE.set(None);
        admitted
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Runs `work`, which may take long, and returns its value and `admitted`, unless a signal handler has ended that.
    #[cold]
    fn keep_while<T>(&self, admitted: Admitted, work: impl FnOnce() -> T) -> (Option<Admitted>, T) {
        AT_GATE.set(Some((self.address(), AtGate::Admitted(admitted))));
        let value = work();
        match AT_GATE.take() {
            Some((_, AtGate::Admitted(admitted))) => (Some(admitted), value),
            _ => (None, value),
        }
    }

    /// Waits until the call under `key` is admitted. Returns `None` after `until_ns`.
    fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        mut now_ns: u64,
        key: usize,
        until_ns: Option<u64>,
    ) -> Result<Option<Admitted>, GateError> {
        let mut parker: Option<Arc<Parker>> = None;
        loop {
            self.run(&mut state, now_ns);
            if let Some(admitted) = state.admitted(key, now_ns) {
                self.release(state, now_ns, None);
                lateness::read_before(now_ns, self.had_filter);
                return Ok(Some(Admitted::Queued(admitted)));
            }

            if state.calls.get(key).is_none_or(|entry| entry.is_stopped) {
                state.forget(key);
                self.release(state, now_ns, None);
                return Err(GateError::ClassRemoved);
            }

            if until_ns.is_some_and(|until_ns| until_ns <= now_ns) {
                state.give_up(key, now_ns);
                // Other calls of its class may have waited for its place.
                self.run(&mut state, now_ns);
                self.release(state, now_ns, None);
                return Ok(None);
            }

            let parker = parker.get_or_insert_with(Parker::mine);
            parker.quiet();
            if let Some(entry) = state.calls.get_mut(key) {
                entry.parker = Some(Arc::clone(parker));
            }

            let keeps_until_ns = self.release(state, now_ns, Some(key));
            let latest_ns = keeps_until_ns.unwrap_or(now_ns.saturating_add(OVERDUE_NS));
            let wakes_ns = Some(until_ns.map_or(latest_ns, |until_ns| until_ns.min(latest_ns)));
            parker.wait(wakes_ns);

            now_ns = crate::sys::clock::now_ns();
            state = self.lock();
            if let Some(entry) = state.calls.get_mut(key) {
                entry.parker = None;
            }
        }
    }

    /// Withdraws or ends the call that the calling thread had here when it left the gate by a jump.
    pub(super) fn withdraw_left(&self) {
        let (now_ns, result) = (now_ns(), Err(libc::ECANCELED));
        let mut state = self.lock();
        // Under the lock, so that another jump loses it only if it keeps the lock, too.
        let Some((_, left)) = AT_GATE.take().filter(|(gate, _)| *gate == self.address()) else { return };
        match left {
            AtGate::Admitted(Admitted::Alone(piece)) => drop(state.end_alone(now_ns, 0, piece, result)),
            AtGate::Admitted(Admitted::Queued(call)) => drop(state.end(now_ns, 0, call.key, result, self.disk)),
            AtGate::Waits(key) if state.admitted(key, now_ns).is_some() => {
                state.end(now_ns, 0, key, result, self.disk);
            }
            AtGate::Waits(key) => state.give_up(key, now_ns),
        }
        self.run(&mut state, now_ns);
        self.release(state, now_ns, None);
    }

    /// Ends a call.
    pub(super) fn leave(&self, admitted: Admitted, result: Result<u32, i32>) -> Passed {
        let now_ns = now_ns();
        let times_ns = admitted.times_ns();
        let late_ns = || lateness::late_after(times_ns, now_ns, self.had_filter);
        if !lateness::may_read_after(times_ns, now_ns) {
            return self.leave_late(now_ns, late_ns(), admitted, result);
        }
        match self.keep_while(admitted, late_ns) {
            (Some(admitted), late_ns) => self.leave_late(now_ns, late_ns, admitted, result),
            (None, _) => Passed::default(),
        }
    }

    /// Ends a call whose thread was late by `late_ns`.
    fn leave_late(&self, now_ns: u64, late_ns: u64, admitted: Admitted, result: Result<u32, i32>) -> Passed {
        let mut state = self.lock();
        let passed = match admitted {
            Admitted::Alone(piece) => state.end_alone(now_ns, late_ns, piece, result),
            Admitted::Queued(call) => state.end(now_ns, late_ns, call.key, result, self.disk),
        };

        if state.queue.queued() == 0 {
            // This queue is empty, but the queue of another shard may wait for the room.
            let mut hand_over = None;
            if self.topology.shards() > 1 {
                let _ = state.queue.poll_dispatch(now_ns);
                hand_over = state.queue.take_hand_over();
            }
            drop(state);
            self.wake_shard(hand_over);
            return passed;
        }

        self.run(&mut state, now_ns);
        self.release(state, now_ns, None);
        passed
    }

    /// Admits the calls that may go now, and applies changes of classes and mode. Checks for changes after the queue has
    /// run: if another shard has applied one to the disk meanwhile, the queue has ended the calls of removed classes, and
    /// their threads must learn of it.
    fn run(&self, state: &mut State, now_ns: u64) {
        state.run(now_ns, self.disk);
        while state.is_behind(&self.topology) {
            self.follow(state, now_ns);
            state.run(now_ns, self.disk);
        }
    }

    /// Releases the lock and wakes the threads that were called. If the thread of `key`, which is about to sleep, keeps
    /// the time, returns until when.
    fn release(&self, mut state: MutexGuard<'_, State>, now_ns: u64, key: Option<usize>) -> Option<u64> {
        state.appoint_timekeeper(now_ns, key);
        let keeps = state.keeper.filter(|keeper| Some(keeper.key) == key).map(|keeper| keeper.until_ns);
        let to_wake = std::mem::take(&mut state.to_wake);
        let hand_over = state.queue.take_hand_over();
        drop(state);
        to_wake.iter().for_each(|parker| parker.wake());
        self.wake_shard(hand_over);
        keeps
    }

    /// Wakes the shard whose queue may use the room in the device.
    fn wake_shard(&self, shard: Option<u16>) {
        if let Some(shard) = shard {
            self.topology.mailboxes().wake(shard);
        }
    }

    /// Brings the queue up to date with the registry of classes and the mode of the disk, and the tracer with the state
    /// of the trace.
    fn follow(&self, state: &mut State, now_ns: u64) {
        if let Some(after) = state.tracer.follow() {
            state.number = state.number.max(after);
        }
        let epoch = self.topology.classes().epoch();
        if epoch == state.classes_epoch {
            return;
        }
        state.classes_epoch = epoch;

        let table = self.topology.classes().list();
        let mut stopped = Vec::new();
        if let Some((classes, per_shard)) = self.topology.disk_classes(usize::from(self.disk)) {
            state.queue.follow_classes(classes, epoch, &table, per_shard, &mut stopped);
        }
        state.queue.set_mode(now_ns, self.topology.queue_mode(self.disk, self.shard));

        for stopped in stopped {
            state.stop(stopped.user_data as usize, now_ns);
        }
    }

    pub(super) fn class_stats(&self, class: Class) -> Option<ClassStats> {
        self.lock().queue.class_stats(class)
    }

    pub(super) fn class_latencies(&self, class: Class, visit: &mut dyn FnMut(Direction, &Latencies)) {
        self.lock().queue.class_latencies(class, visit);
    }
}

#[cfg(feature = "metrics")]
impl crate::queues::ShardQueues for Inner {
    fn shard(&self) -> u16 {
        self.shard
    }

    fn lives_before(&self) -> u64 {
        self.topology.retired().lives(self.shard)
    }

    fn now_ns(&self) -> u64 {
        now_ns()
    }

    fn class_views(&self, now_ns: u64, disk: u16) -> Vec<crate::queues::ClassView> {
        if disk == self.disk { self.lock().queue.class_views(now_ns) } else { Vec::new() }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let number = self.lock().number;
        #[cfg(feature = "metrics")]
        self.topology.retire(&*self);
        self.topology.recorder().set_last_number(self.shard, number);
        self.topology.mailboxes().close(self.shard);
    }
}

impl State {
    /// Returns whether classes, modes or the trace have changed since the queue followed them.
    fn is_behind(&self, topology: &Topology) -> bool {
        topology.classes().epoch() != self.classes_epoch || !self.tracer.is_current()
    }

    /// Admits a call with no other ahead. Returns `None` if the call must be queued, is traced, or other threads must
    /// be woken first.
    fn admit_alone(&mut self, now_ns: u64, call: &Call) -> Option<Dispatch> {
        if self.tracer.is_on() || !self.to_wake.is_empty() {
            return None;
        }
        self.queue.dispatch_alone(now_ns, call.class, call.op, call.len_bytes)
    }

    pub(super) fn queue_call(&mut self, now_ns: u64, call: &Call, disk: u16) -> Result<usize, GateError> {
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
            self.note_queued(now_ns, call, number, disk);
        }
        Ok(key)
    }

    /// Completes the piece of a call that was never queued, whose thread was late by `late_ns`.
    fn end_alone(&mut self, now_ns: u64, late_ns: u64, piece: Dispatch, result: Result<u32, i32>) -> Passed {
        let total_ns = now_ns.saturating_sub(piece.dispatched_ns());
        self.complete(now_ns, late_ns, piece, result);
        Passed { waited_ns: 0, total_ns, at_ns: now_ns }
    }

    /// Completes the pieces of the call under `key`, whose thread was late by `late_ns`.
    pub(super) fn end(&mut self, now_ns: u64, late_ns: u64, key: usize, result: Result<u32, i32>, disk: u16) -> Passed {
        let Some(Entry { call, number, asked_ns, pieces: Some(pieces), .. }) = self.calls.try_remove(key) else {
            debug_assert!(false, "a permit without a call");
            return Passed::default();
        };
        if self.tracer.is_on() {
            self.note_over(now_ns, &call, number, &pieces, result, disk);
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
    pub(super) fn run(&mut self, now_ns: u64, disk: u16) {
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
                    self.note_granted(now_ns, key, is_cut, disk);
                }
            }

            self.granted.clear();
            // Parts that were cut off held back the calls behind them.
            if !any_cut {
                break;
            }
        }
        if self.tracer.is_on() {
            self.note_blocked(now_ns, disk);
        }
    }

    /// Makes sure that one thread keeps the time while any waits. `key` is the call whose thread is about to sleep
    /// anyway.
    fn appoint_timekeeper(&mut self, now_ns: u64, key: Option<usize>) {
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

    fn forget(&mut self, key: usize) {
        self.keeper = self.keeper.filter(|keeper| keeper.key != key);
        let _ = self.calls.try_remove(key);
    }

    /// Withdraws the call under `key`.
    fn give_up(&mut self, key: usize, now_ns: u64) {
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
    fn stop(&mut self, key: usize, now_ns: u64) {
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

/// Returns the I/O queue of `disk` for a gate that takes the place of `shard`; no reactor or other gate can then take
/// that place.
fn queue_in_place_of(topology: &Topology, shard: u16, disk: u16) -> Result<DiskQueue, GateStartError> {
    if shard >= topology.shards() {
        return Err(GateStartError::NoSuchShard { shard });
    }
    if disk >= topology.disks() {
        return Err(GateStartError::NoSuchDisk { disk });
    }
    if topology.queue_count(disk) < topology.shards() {
        return Err(GateStartError::QueuesAreShared { disk });
    }
    if !topology.mailboxes().open_gate(shard) {
        return Err(GateStartError::IsOpen { shard });
    }
    let queue = topology.queue_of(disk, shard, None);
    queue.ok_or(GateStartError::QueuesAreShared { disk }).inspect_err(|_| topology.mailboxes().close(shard))
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
