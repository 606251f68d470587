//! The thread that keeps house in the process that has the gate.
//!
//! # How it works
//! The housekeeper makes the gate, records at each [`TICK`] that the process is alive, frees the slots of processes that
//! have died, and ends the permits of those and of stopped ones. It also writes the trace. When the first slot is taken,
//! it starts the thread that serves them (`server`).

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Duration;

use plimsoll::sys::clock::now_ns;

use crate::handover::{CallSlot, Counters};
use crate::slots::{self, ADMITTED, ASKED, ASKED_AGAIN, REFUSED, TICK, sleep, wake};
use crate::{apart, fds, gate, server, state};

/// Bytes of stack of the server. They include the program's thread-local variables.
const SERVER_STACK_BYTES: usize = 256 << 10;
/// Bytes of stack of the housekeeper, which makes the gate.
const HOUSEKEEPER_STACK_BYTES: usize = 1 << 20;
/// Interval at which the housekeeper writes a trace.
const TRACE_TICK: Duration = Duration::from_millis(10);
/// Longest wait for the housekeeper's beginning. For the socket it starts threads of `std`, and cannot while the dynamic
/// linker runs a constructor that waits here.
const BEGIN_WAIT_NS: u64 = 2_000_000_000;

/// How far the housekeeper has begun: 1 once it has made the gate or has failed to, 2 once it also serves the socket.
static BEGUN: AtomicU32 = AtomicU32::new(0);
/// Whether the housekeeper is to end the trace: 0, 1 if asked to, 2 if it has.
static TRACE_END: AtomicU32 = AtomicU32::new(0);

/// Starts the housekeeper, which makes the gate, and waits until it has.
pub(crate) fn open(counters: &'static Counters) {
    // These are from the parent process, before `fork`.
    fds::forget_names();
    BEGUN.store(0, Relaxed);
    TRACE_END.store(0, Relaxed);
    let work = move || {
        // SAFETY: it touches no memory.
        counters.housekeeper.store(unsafe { libc::syscall(libc::SYS_gettid) } as u32, Release);
        begin(counters, apart::leave_table());
        keep_house(counters);
    };
    if !apart::spawn(c"plimsoll-housekeeper", HOUSEKEEPER_STACK_BYTES, work) {
        // Other processes see no sign of life, and bypass the gate.
        begin(counters, false);
    }
    wait_for(&BEGUN, 1, now_ns().saturating_add(BEGIN_WAIT_NS));
}

/// Makes the gate, and then serves its socket.
fn begin(counters: &Counters, is_apart: bool) {
    gate::make(counters, is_apart);
    BEGUN.store(1, Release);
    wake(&BEGUN);
    if let Some(own) = gate::own() {
        gate::serve(own);
    }
    BEGUN.store(2, Release);
    wake(&BEGUN);
}

/// Waits until the housekeeper serves the socket, so that it can be removed.
pub(crate) fn wait_for_socket() {
    wait_for(&BEGUN, 2, now_ns().saturating_add(BEGIN_WAIT_NS));
}

/// Lets the housekeeper end the trace, whose descriptor is in its table, and waits until it has.
pub(crate) fn end_trace(counters: &Counters) {
    TRACE_END.store(1, Release);
    counters.bell.fetch_add(1, Release);
    wake(&counters.bell);
    wait_for(&TRACE_END, 2, u64::MAX);
}

/// Waits until `word` is at least `value`, or the time is `until_ns`.
fn wait_for(word: &AtomicU32, value: u32, until_ns: u64) {
    loop {
        let seen = word.load(Acquire);
        if seen >= value || now_ns() >= until_ns {
            return;
        }
        sleep(word, seen, Some(TICK));
    }
}

/// Does the housekeeper's work until the process gives up the gate.
fn keep_house(counters: &'static Counters) {
    let mut is_served = false;
    let mut swept_ns = 0;
    loop {
        let bell = counters.bell.load(Acquire);
        let Some(own) = gate::own() else { return };
        let now_ns = now_ns();
        counters.alive_ns.store(now_ns, Relaxed);
        if TRACE_END.load(Acquire) == 1 {
            gate::end_trace(own);
            TRACE_END.store(2, Release);
            wake(&TRACE_END);
        }

        let used = slots::used(counters);
        if used > 0 && !is_served {
            is_served = apart::spawn(c"plimsoll-server", SERVER_STACK_BYTES, move || server::serve(counters));
            if !is_served {
                counters.slots[..used].iter().for_each(refuse);
            }
        }

        if now_ns.saturating_sub(swept_ns) >= TICK.as_nanos() as u64 {
            swept_ns = now_ns;
            sweep(counters);
            gate::copy_state(own, counters);
        }
        sleep(&counters.bell, bell, Some(if gate::carry_trace(own) { TRACE_TICK } else { TICK }));
    }
}

/// Refuses the call at a slot, because the server could not be started. No permit of an earlier call at the slot is left:
/// that call was admitted by a process that had the gate before.
fn refuse(slot: &CallSlot) {
    for state in [ASKED, ASKED_AGAIN] {
        if slot.state.compare_exchange(state, REFUSED, AcqRel, Relaxed).is_ok() {
            wake(&slot.state);
        }
    }
}

/// Frees the slots of processes that have died, and ends the permits of those that are stopped: their calls have ended,
/// but they may say so only in hours.
fn sweep(counters: &Counters) {
    let mut alive = 0;
    for (number, slot) in counters.slots[..slots::used(counters)].iter().enumerate() {
        let pid = slot.pid.load(Relaxed);
        if pid == 0 {
            continue;
        }
        if pid != alive && !state::is_alive(pid) {
            slots::free_all_of(counters, pid);
            continue;
        }
        alive = pid;
        if slot.state.load(Acquire) == ADMITTED && is_stopped(pid) {
            slots::end(counters, number, ADMITTED);
        }
    }
}

/// Returns whether a process is stopped, as by Ctrl-Z or a debugger.
fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(|byte| *byte == b')').next().and_then(|rest| rest.get(1));
    matches!(state, Some(b'T' | b't'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::{ENDED, FREE};

    #[test]
    fn a_call_that_waits_at_a_slot_that_is_not_served_is_refused() {
        let slot = CallSlot::default();
        for (before, after) in [
            (FREE, FREE),
            (ASKED, REFUSED),
            (ASKED_AGAIN, REFUSED),
            (ENDED, ENDED),
            // In its system call, admitted by a process that had the gate before.
            (ADMITTED, ADMITTED),
        ] {
            slot.state.store(before, Relaxed);
            refuse(&slot);
            assert_eq!(slot.state.load(Relaxed), after, "state {before}");
        }
    }
}
