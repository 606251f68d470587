//! Slots, by which threads of other processes use the gate of the process that has it.
//!
//! # Why
//! Databases and build tools run many processes on one disk. Shares hold only if one queue decides for all of them.
//!
//! # How it works
//! A slot is an entry of the shared memory. A thread of another process takes one until the thread ends, describes its
//! call there, rings and sleeps ([`ask`]). The process with the gate answers (`server`), and keeps a permit until the
//! call has ended. A ring sets the slot's bit, and wakes the server only if it sleeps.
//!
//! ```text
//! FREE -> ASKED -> ADMITTED -> ENDED -> FREE     ENDED -> ASKED_AGAIN -> ASKED: the permit of the call before ends first
//!            \---> REFUSED -> FREE
//! ```
//! If the process with the gate dies, or its housekeeper does because it executes a program that cannot load the
//! library, the other threads withdraw their calls, and ask the next process that has it.
//!
//! # Limits
//! A call costs two more thread switches than in the process with the gate, fewer if the server is busy. If the process
//! with the gate is stopped, the others bypass it.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU32, fence};
use std::time::Duration;

use plimsoll::Passed;
use plimsoll::sys::clock::now_ns;

use crate::handover::{Counters, Kind, SLOTS};
use crate::{errno, state};

pub(crate) const FREE: u32 = 0;
pub(crate) const ASKED: u32 = 1;
pub(crate) const ADMITTED: u32 = 2;
pub(crate) const REFUSED: u32 = 3;
pub(crate) const ENDED: u32 = 4;
pub(crate) const ASKED_AGAIN: u32 = 5;

/// Interval at which each side checks that the other one is alive.
pub(crate) const TICK: Duration = Duration::from_millis(100);
/// Age of the last sign of life above which a process counts as silent. If a thousand threads compete for the
/// processors, the housekeeper may run only after seconds.
const SILENT_NS: u64 = 5_000_000_000;
/// The calling thread's slot, and the process in which the thread took it: a child of `fork` does not have its parent's
/// slot.
struct Mine {
    number: Cell<Option<usize>>,
    pid: Cell<u32>,
}

std::thread_local! {
    static MINE: Mine = const { Mine { number: Cell::new(None), pid: Cell::new(0) } };
}

/// The key whose value a thread with a slot has, so that libc frees the slot when the thread ends. `MINE` has no
/// destructor: the dynamic linker registers it, for whose lock a thread may wait for ever (see `real`).
static END_OF_THREAD: OnceLock<libc::pthread_key_t> = OnceLock::new();

/// Makes the key, and looks the clock up as `real` does the functions. Call this when the library is loaded.
pub(crate) fn prepare() {
    let _ = now_ns();
    let mut key = 0;
    // SAFETY: it writes the key. The function lives as long as the library, which is never unloaded.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(free_own)) } == 0 {
        let _ = END_OF_THREAD.set(key);
    }
}

/// Frees the calling thread's slot, and ends its call if the thread ends within.
extern "C" fn free_own(_: *mut c_void) {
    state::counters().into_iter().for_each(withdraw_left);
    let (number, pid) = MINE.with(|mine| (mine.number.take(), mine.pid.get()));
    let slot = number.and_then(|number| state::counters()?.slots.get(number));
    if let Some(slot) = slot.filter(|_| pid == std::process::id()) {
        let _ = slot.pid.compare_exchange(pid, 0, AcqRel, Relaxed);
    }
}

/// Why a call was not admitted.
pub(crate) enum Denied {
    /// The gate refused the call.
    Refused,
    /// All slots are taken.
    NoSlot,
    /// The process with the gate has ended, has given up the gate, or does not answer.
    Gone,
}

/// An admitted call. Dropping it ends the call.
pub(crate) struct SlotPermit {
    counters: &'static Counters,
    number: usize,
    len_bytes: u32,
    asked_ns: u64,
    waited_ns: u64,
}

impl SlotPermit {
    pub(crate) fn len_bytes(&self) -> u32 {
        self.len_bytes
    }

    /// Ends the call, which moved this many bytes or failed with this error number. Returns how long it took.
    pub(crate) fn end(self, result: Result<u32, i32>) -> Passed {
        let at_ns = now_ns();
        let slot = &self.counters.slots[self.number];
        // The process with the gate reads these once the state is `ENDED`.
        slot.moved_bytes.store(result.unwrap_or(0), Relaxed);
        slot.errno.store(result.err().map_or(0, i32::unsigned_abs), Relaxed);
        slot.ended_ns.store(at_ns, Relaxed);
        let SlotPermit { asked_ns, waited_ns, .. } = self;
        Passed { waited_ns, total_ns: at_ns.saturating_sub(asked_ns), at_ns }
    }
}

impl Drop for SlotPermit {
    fn drop(&mut self) {
        self.counters.slots[self.number].state.store(ENDED, Release);
        ring(self.counters, self.number);
    }
}

/// Tells the server that the state of slot `number` has changed.
pub(crate) fn ring(counters: &Counters, number: usize) {
    counters.rung[number / 64].fetch_or(1 << (number % 64), Release);
    wake_server(counters);
}

/// Wakes the server if it sleeps.
pub(crate) fn wake_server(counters: &Counters) {
    // Pairs with the one of the server, between its going to sleep and its last look: one of the two sees the other.
    fence(SeqCst);
    if counters.server_sleeps.load(Relaxed) != 0 && counters.server_sleeps.swap(0, AcqRel) != 0 {
        wake(&counters.server_sleeps);
    }
}

/// Returns whether the process with the gate has shown no sign of life for long.
pub(crate) fn is_silent(counters: &Counters) -> bool {
    now_ns().saturating_sub(counters.alive_ns.load(Relaxed)) > SILENT_NS
}

/// Asks the process with the gate to admit a call, and waits until the call is admitted.
pub(crate) fn ask(
    counters: &'static Counters,
    class: usize,
    kind: Kind,
    len_bytes: u32,
    offset_bytes: u64,
) -> Result<SlotPermit, Denied> {
    let asked_ns = now_ns();
    let number = mine(counters).ok_or(Denied::NoSlot)?;
    let slot = &counters.slots[number];
    slot.class.store(class as u32, Relaxed);
    slot.kind.store(kind as u32, Relaxed);
    slot.len_bytes.store(len_bytes, Relaxed);
    slot.offset_bytes.store(offset_bytes, Relaxed);

    let is_free = slot.state.compare_exchange(FREE, ASKED, AcqRel, Acquire).is_ok();
    if !is_free && slot.state.compare_exchange(ENDED, ASKED_AGAIN, AcqRel, Acquire).is_err() {
        // The slot's thread has freed it just now, or the state is not one of ours.
        slot.state.store(ASKED_AGAIN, Release);
    }
    ring(counters, number);

    loop {
        let state = slot.state.load(Acquire);
        match state {
            ADMITTED => {
                // Never more than requested, even if the shared memory is corrupt: the caller's buffer ends there.
                let len_bytes = slot.admitted_bytes.load(Relaxed).min(len_bytes);
                let began_ns = now_ns();
                slot.began_ns.store(began_ns, Relaxed);
                let waited_ns = began_ns.saturating_sub(asked_ns);
                return Ok(SlotPermit { counters, number, len_bytes, asked_ns, waited_ns });
            }
            REFUSED => {
                slot.state.store(FREE, Release);
                return Err(Denied::Refused);
            }
            ASKED | ASKED_AGAIN => {
                sleep(&slot.state, state, Some(TICK));
                let before = if state == ASKED { FREE } else { ENDED };
                let waits = slot.state.load(Relaxed) == state;
                if waits && is_gone(counters) && slot.state.compare_exchange(state, before, AcqRel, Relaxed).is_ok() {
                    ring(counters, number);
                    return Err(Denied::Gone);
                }
            }
            _ => return Err(Denied::Gone),
        }
    }
}

/// Withdraws or ends the call of the calling thread's slot, which the thread has left.
pub(crate) fn withdraw_left(counters: &Counters) {
    let number = MINE.with(|mine| mine.number.get().filter(|_| mine.pid.get() == state::pid()));
    let Some(number) = number else { return };
    // The process that has the gate may answer meanwhile.
    loop {
        let seen = counters.slots[number].state.load(Acquire);
        if ![ASKED, ASKED_AGAIN, ADMITTED, REFUSED].contains(&seen) {
            return;
        }
        end(counters, number, seen);
    }
}

/// Withdraws or ends the call at slot `number`, whose thread does not go on with it, if its state is still `seen`. A
/// thread that is continued meanwhile, and ends its call itself, may find the number of its bytes replaced.
pub(crate) fn end(counters: &Counters, number: usize, seen: u32) {
    let slot = &counters.slots[number];
    slot.moved_bytes.store(0, Relaxed);
    slot.errno.store(libc::ECANCELED.unsigned_abs(), Relaxed);
    if slot.state.compare_exchange(seen, ENDED, AcqRel, Relaxed).is_ok() {
        ring(counters, number);
    }
}

/// Returns whether no process with the gate will answer.
fn is_gone(counters: &Counters) -> bool {
    let owner = counters.owner.load(Acquire);
    owner == 0 || is_silent(counters) || !has_gate(counters, owner)
}

/// Returns whether the process `owner` still has the gate: it is alive, and so is its housekeeper, which ends when the
/// process executes another program.
pub(crate) fn has_gate(counters: &Counters, owner: u32) -> bool {
    let housekeeper = counters.housekeeper.load(Acquire);
    let is_there = |thread: u32| {
        // SAFETY: signal 0 is not sent; the call touches no memory.
        errno::keep(|| unsafe { libc::syscall(libc::SYS_tgkill, owner, thread, 0) } == 0 || errno::get() != libc::ESRCH)
    };
    state::is_alive(owner) && (housekeeper == 0 || is_there(housekeeper))
}

/// Returns the number of the calling thread's slot. If it has none, takes a free one. Returns `None` if all are taken.
fn mine(counters: &'static Counters) -> Option<usize> {
    let pid = state::pid();
    let own = MINE.with(|mine| mine.number.get().filter(|_| mine.pid.get() == pid));
    own.or_else(|| {
        let number = take(counters, pid)?;
        MINE.with(|mine| {
            mine.number.set(Some(number));
            mine.pid.set(pid);
        });
        if let Some(key) = END_OF_THREAD.get() {
            // SAFETY: the key exists. Its value is never read, and only has to be another than null.
            let _ = unsafe { libc::pthread_setspecific(*key, std::ptr::from_ref(counters).cast()) };
        }
        Some(number)
    })
}

fn take(counters: &Counters, pid: u32) -> Option<usize> {
    let mut slots = counters.slots.iter();
    let number = slots.position(|slot| slot.pid.compare_exchange(0, pid, AcqRel, Relaxed).is_ok())?;
    counters.slots_used.fetch_max(number as u32 + 1, AcqRel);
    counters.bell.fetch_add(1, Release);
    wake(&counters.bell);
    Some(number)
}

/// Frees the slots of a process whose threads have ended, because it has died or called `exec`.
pub(crate) fn free_all_of(counters: &Counters, pid: u32) {
    for (number, slot) in counters.slots[..used(counters)].iter().enumerate() {
        if slot.pid.load(Relaxed) == pid {
            // The state first: the next thread that takes the slot sets it to `ASKED_AGAIN`.
            slot.state.store(ENDED, Release);
            ring(counters, number);
            let _ = slot.pid.compare_exchange(pid, 0, AcqRel, Relaxed);
        }
    }
}

pub(crate) fn used(counters: &Counters) -> usize {
    (counters.slots_used.load(Acquire) as usize).min(SLOTS)
}

/// Wakes the threads that sleep at slots, and the server; they then find that this process has given up the gate.
pub(crate) fn close(counters: &Counters) {
    wake_server(counters);
    counters.slots[..used(counters)].iter().for_each(|slot| wake(&slot.state));
}

/// Sleeps while `word` is `value`, for at most `time`. Other processes may wake it.
pub(crate) fn sleep(word: &AtomicU32, value: u32, time: Option<Duration>) {
    let time = time.map(|time| libc::timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the word and the time outlive the call, which writes neither.
    let _ = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, time) };
}

pub(crate) fn wake(word: &AtomicU32) {
    // SAFETY: the call looks threads up by the word's address, and does not write it.
    let _ = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}
