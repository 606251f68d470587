//! The threads at a gate: they enter, sleep until their calls are admitted, leave, and wake each other.
//!
//! # Why
//! A missed wake-up leaves a thread asleep for ever. The decisions about wake-ups are in [`State`]; this file has the
//! lock, the clock, and the order in which they are used.
//!
//! # How it works
//! There is one lock. A call with no other ahead is dispatched whole, and has no entry ([`Admitted::Alone`]). Any other
//! call is queued. A thread that holds the lock and has changed something lets the queue dispatch ([`Inner::run`]).
//! Before it releases the lock, it appoints a thread that keeps the time ([`Inner::release`]): that one runs the queue
//! again at the next wake-up. The futexes are woken after the lock is released.
//!
//! # Limits
//! The lock is held while the queue dispatches all calls that may be admitted.
//!
//! # Example
//! Two calls of one class on a disk that takes one at a time: the second thread sleeps and keeps the time; the first
//! ends its permit, dispatches the second's piece, and wakes that thread.

use std::cell::Cell;
use std::sync::{Arc, PoisonError};

use plimsoll_core::{ClassStats, Direction, Latencies};

use super::parker::{Mutex, MutexGuard, Parker};
use super::state::{Admitted, OVERDUE_NS, State};
use super::{Call, GateError, GateStartError, Passed, lateness};
use crate::class::Class;
use crate::queues::DiskQueue;
use crate::sys::clock::now_ns;
use crate::sys::rusage::thread_has_seccomp_filter;
use crate::sys::signals::Held;
use crate::topology::Topology;

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

/// Withdraws the call of a thread that ends while it waits, by `pthread_exit` in a signal handler or by an asynchronous
/// cancellation.
struct Unwound<'a>(&'a Inner);

impl Drop for Unwound<'_> {
    fn drop(&mut self) {
        self.0.withdraw_left();
    }
}

pub(super) struct Inner {
    topology: Topology,
    shard: u16,
    disk: u16,
    /// Whether the thread that made the gate had a seccomp filter.
    pub(super) had_filter: bool,
    holds_signals: bool,
    state: Mutex<State>,
}

impl Inner {
    pub(super) fn new(
        topology: &Topology,
        shard: u16,
        disk: u16,
        holds_signals: bool,
    ) -> Result<Arc<Inner>, GateStartError> {
        let queue = queue_in_place_of(topology, shard, disk)?;
        let state = State::new(queue, topology.recorder(), shard, disk);
        let had_filter = thread_has_seccomp_filter();
        let (topology, state) = (topology.clone(), Mutex::new(state));
        let gate = Arc::new(Inner { topology, shard, disk, had_filter, holds_signals, state });
        gate.follow(&mut gate.lock(), now_ns());
        #[cfg(feature = "metrics")]
        gate.topology.add_gate(Arc::<Inner>::downgrade(&gate));
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
        let (mut state, alone) = self.admit_alone(now_ns, call);
        if let Some(admitted) = alone {
            drop(state);
            if !lateness::may_read_before() {
                return Ok(Some(admitted));
            }
            return Ok(self.keep_while(admitted, || lateness::read_before(now_ns, self.had_filter)).0);
        }

        let mut held = None;
        if self.holds_signals {
            // Not while the lock is held: a system call takes longer than all that is done under it.
            drop(state);
            held = self.hold_signals();
            state = self.lock();
        }
        let (state, key) = self.queue(state, now_ns, call)?;
        AT_GATE.set(Some((self.address(), AtGate::Waits(key))));
        let unwound = Unwound(self);
        let admitted = self.wait(state, now_ns, key, until_ns, held.as_ref());
        if !matches!(admitted, Ok(Some(_))) {
            // The key may be another call's by now.
            AT_GATE.set(None);
        }
        // A handler may end the thread here.
        drop(held);
        std::mem::forget(unwound);
        AT_GATE.set(None);
        admitted
    }

    /// Locks the gate, and admits `call` if no other is ahead.
    pub(super) fn admit_alone(&self, now_ns: u64, call: &Call) -> (MutexGuard<'_, State>, Option<Admitted>) {
        let mut state = self.lock();
        if state.is_behind(&self.topology) {
            self.follow(&mut state, now_ns);
        }
        let alone = state.admit_alone(now_ns, call).map(Admitted::Alone);
        (state, alone)
    }

    /// Queues `call`, and returns its key.
    pub(super) fn queue<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        now_ns: u64,
        call: &Call,
    ) -> Result<(MutexGuard<'a, State>, usize), GateError> {
        match state.queue_call(now_ns, call) {
            Ok(key) => Ok((state, key)),
            Err(error) => {
                // The queue may have looked for the class among new ones, and ended the calls of removed ones.
                self.run(&mut state, now_ns);
                self.release(state, now_ns, None);
                Err(error)
            }
        }
    }

    fn hold_signals(&self) -> Option<Held> {
        self.holds_signals.then(Held::new)
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
        held: Option<&Held>,
    ) -> Result<Option<Admitted>, GateError> {
        let mut parker: Option<Arc<Parker>> = None;
        loop {
            self.run(&mut state, now_ns);
            if let Some(admitted) = state.admitted(key, now_ns) {
                self.release(state, now_ns, None);
                lateness::read_before(now_ns, self.had_filter);
                return Ok(Some(Admitted::Queued(admitted)));
            }

            if state.is_stopped(key) {
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

            let parker = parker.get_or_insert_default();
            parker.quiet();
            if let Some(entry) = state.calls.get_mut(key) {
                entry.parker = Some(Arc::clone(parker));
            }

            let keeps_until_ns = self.release(state, now_ns, Some(key));
            let latest_ns = keeps_until_ns.unwrap_or(now_ns.saturating_add(OVERDUE_NS));
            let wakes_ns = Some(until_ns.map_or(latest_ns, |until_ns| until_ns.min(latest_ns)));
            parker.wait(wakes_ns, held);

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
        let _held = self.hold_signals();
        let mut state = self.lock();
        // Under the lock, so that another jump loses it only if it keeps the lock, too.
        let left = match AT_GATE.take() {
            Some((gate, left)) if gate == self.address() => left,
            // At another gate, or nothing.
            other => return AT_GATE.set(other),
        };
        match left {
            AtGate::Admitted(Admitted::Alone(piece)) => drop(state.end_alone(now_ns, 0, piece, result)),
            AtGate::Admitted(Admitted::Queued(call)) => drop(state.end(now_ns, 0, call.key, result)),
            AtGate::Waits(key) => state.withdraw(key, now_ns),
        }
        self.run(&mut state, now_ns);
        self.release(state, now_ns, None);
    }

    /// Ends a call.
    pub(super) fn leave(&self, admitted: Admitted, result: Result<u32, i32>) -> Passed {
        let now_ns = now_ns();
        let times_ns = admitted.times_ns();
        let late_ns = || lateness::late_after(times_ns, now_ns, self.had_filter);
        // If this call has waited, others probably wait.
        let _held = if matches!(admitted, Admitted::Queued(_)) { self.hold_signals() } else { None };
        if !lateness::may_read_after(times_ns, now_ns) {
            return self.leave_late(now_ns, late_ns(), admitted, result);
        }
        match self.keep_while(admitted, late_ns) {
            (Some(admitted), late_ns) => self.leave_late(now_ns, late_ns, admitted, result),
            (None, _) => Passed::default(),
        }
    }

    /// Ends a call that another thread has made from `began_ns` to `ended_ns`. Times that cannot be are the nearest ones
    /// that can.
    pub(super) fn leave_for_other(
        &self,
        admitted: Admitted,
        result: Result<u32, i32>,
        began_ns: u64,
        ended_ns: u64,
    ) -> Passed {
        let (dispatched_ns, _) = admitted.times_ns();
        let now_ns = now_ns().max(dispatched_ns);
        let ended_ns = ended_ns.clamp(dispatched_ns, now_ns);
        let began_ns = began_ns.clamp(dispatched_ns, ended_ns);
        let late_ns = (began_ns - dispatched_ns) + (now_ns - ended_ns);
        self.leave_late(now_ns, late_ns, admitted, result)
    }

    /// Ends a call whose thread was late by `late_ns`.
    fn leave_late(&self, now_ns: u64, late_ns: u64, admitted: Admitted, result: Result<u32, i32>) -> Passed {
        let mut state = self.lock();
        let passed = match admitted {
            Admitted::Alone(piece) => state.end_alone(now_ns, late_ns, piece, result),
            Admitted::Queued(call) => state.end(now_ns, late_ns, call.key, result),
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
    pub(super) fn run(&self, state: &mut State, now_ns: u64) {
        state.run(now_ns);
        while state.is_behind(&self.topology) {
            self.follow(state, now_ns);
            state.run(now_ns);
        }
    }

    /// Releases the lock and wakes the threads that were called. If the thread of `key`, which is about to sleep, keeps
    /// the time, returns until when.
    pub(super) fn release(&self, mut state: MutexGuard<'_, State>, now_ns: u64, key: Option<usize>) -> Option<u64> {
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

#[cfg(all(test, not(plimsoll_loom)))]
mod tests {
    use plimsoll_core::Op;

    use super::super::tests::deep;
    use super::*;

    #[test]
    fn a_call_that_was_left_at_another_gate_stays_there_until_that_one_withdraws_it() {
        let (gate, other) = (deep(1), deep(1));
        let call = Call { class: Class::DEFAULT, op: Op::Read, len_bytes: 4096, offset_bytes: 0, file: 0 };
        let key = gate.0.lock().queue_call(now_ns(), &call).expect("there is room");
        AT_GATE.set(Some((gate.0.address(), AtGate::Waits(key))));
        let queued = || gate.class_stats(Class::DEFAULT).expect("the class is there").queued;
        other.withdraw_left();
        assert_eq!(queued(), 1);
        gate.withdraw_left();
        assert_eq!(queued(), 0);
    }
}
