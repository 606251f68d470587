//! Desks, by which threads of other processes use the gate of the process that has it.
//!
//! # Why
//! Databases and build tools run many processes on one disk. Shares hold only if one queue decides for all of them.
//!
//! # How it works
//! A desk is an entry of the shared memory. A thread of another process takes one until the thread ends, describes its
//! call there and sleeps ([`ask`]). In the process with the gate, one thread per desk ([`serve`]) waits at the gate on
//! behalf of that thread, and keeps the permit until the call has ended. The porter ([`keep_house`]) starts these
//! threads, records at each [`TICK`] that the process is alive, and frees the desks of processes that have died, which
//! ends their permits.
//!
//! ```text
//! FREE -> ASKED -> ADMITTED -> ENDED -> FREE     ENDED -> ASKED_AGAIN -> ASKED: the permit of the call before ends first
//!            \---> REFUSED -> FREE
//! ```
//! If the process with the gate dies, the other threads withdraw their calls, and ask the next process that has it.
//!
//! # Limits
//! A call costs two more thread switches than in the process with the gate. A call whose process dies while it waits is
//! admitted in its turn, and ends at once. If the process with the gate is stopped, the others bypass it.

use std::cell::Cell;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Duration;

use plimsoll::sys::clock::now_ns;
use plimsoll::{Call, Class, Passed, Permit};

use crate::handover::{Counters, DESKS, Desk, Kind};
use crate::state::{self, Office};

const FREE: u32 = 0;
const ASKED: u32 = 1;
const ADMITTED: u32 = 2;
const REFUSED: u32 = 3;
const ENDED: u32 = 4;
const ASKED_AGAIN: u32 = 5;

/// Interval at which each side checks that the other one is alive.
const TICK: Duration = Duration::from_millis(100);
/// Age of the last sign of life above which a process counts as silent. If a thousand threads compete for the
/// processors, the porter may run only after seconds.
const SILENT_NS: u64 = 5_000_000_000;
/// Bytes of stack of a thread at a desk. They include the program's thread-local variables.
const STACK_BYTES: usize = 256 << 10;

/// The calling thread's desk, and the process in which the thread took it: a child of `fork` does not have its parent's
/// desk.
struct Mine {
    number: Cell<Option<usize>>,
    pid: Cell<u32>,
}

std::thread_local! {
    static MINE: Mine = const { Mine { number: Cell::new(None), pid: Cell::new(0) } };
}

impl Drop for Mine {
    fn drop(&mut self) {
        let (Some(number), Some(counters)) = (self.number.get(), state::counters()) else { return };
        if self.pid.get() == std::process::id()
            && let Some(desk) = counters.desks.get(number)
        {
            let _ = desk.pid.compare_exchange(self.pid.get(), 0, AcqRel, Relaxed);
        }
    }
}

/// Why a call was not admitted.
pub(crate) enum Denied {
    /// The gate refused the call.
    Refused,
    /// All desks are taken.
    NoDesk,
    /// The process with the gate has ended, has given up the gate, or does not answer.
    Gone,
}

/// An admitted call. Dropping it ends the call.
pub(crate) struct Turn {
    desk: &'static Desk,
    len_bytes: u32,
    asked_ns: u64,
    waited_ns: u64,
}

impl Turn {
    pub(crate) fn len_bytes(&self) -> u32 {
        self.len_bytes
    }

    /// Ends the call, which moved this many bytes or failed with this error number. Returns how long it took.
    pub(crate) fn end(self, result: Result<u32, i32>) -> Passed {
        // The process with the gate reads these once the state is `ENDED`.
        self.desk.moved_bytes.store(result.unwrap_or(0), Relaxed);
        self.desk.errno.store(result.err().map_or(0, i32::unsigned_abs), Relaxed);
        let at_ns = now_ns();
        let Turn { asked_ns, waited_ns, .. } = self;
        Passed { waited_ns, total_ns: at_ns.saturating_sub(asked_ns), at_ns }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.desk.state.store(ENDED, Release);
        wake(&self.desk.state);
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
) -> Result<Turn, Denied> {
    let asked_ns = now_ns();
    let desk = mine(counters).ok_or(Denied::NoDesk)?;
    desk.class.store(class as u32, Relaxed);
    desk.kind.store(kind as u32, Relaxed);
    desk.len_bytes.store(len_bytes, Relaxed);
    desk.offset_bytes.store(offset_bytes, Relaxed);

    let is_free = desk.state.compare_exchange(FREE, ASKED, AcqRel, Acquire).is_ok();
    if !is_free && desk.state.compare_exchange(ENDED, ASKED_AGAIN, AcqRel, Acquire).is_err() {
        // The desk's thread has freed it just now, or the state is not one of ours.
        desk.state.store(ASKED_AGAIN, Release);
    }
    wake(&desk.state);

    loop {
        let state = desk.state.load(Acquire);
        match state {
            ADMITTED => {
                // Never more than requested, even if the shared memory is corrupt: the caller's buffer ends there.
                let len_bytes = desk.admitted_bytes.load(Relaxed).min(len_bytes);
                return Ok(Turn { desk, len_bytes, asked_ns, waited_ns: now_ns().saturating_sub(asked_ns) });
            }
            REFUSED => {
                desk.state.store(FREE, Release);
                return Err(Denied::Refused);
            }
            ASKED | ASKED_AGAIN => {
                sleep(&desk.state, state, Some(TICK));
                let before = if state == ASKED { FREE } else { ENDED };
                let waits = desk.state.load(Relaxed) == state;
                if waits && is_gone(counters) && desk.state.compare_exchange(state, before, AcqRel, Relaxed).is_ok() {
                    return Err(Denied::Gone);
                }
            }
            _ => return Err(Denied::Gone),
        }
    }
}

/// Withdraws or ends the call of the calling thread's desk, which the thread has left.
pub(crate) fn withdraw_left(counters: &Counters) {
    let number = MINE.try_with(|mine| mine.number.get().filter(|_| mine.pid.get() == state::pid()));
    let Some(desk) = number.ok().flatten().and_then(|number| counters.desks.get(number)) else { return };
    if [ASKED, ASKED_AGAIN, ADMITTED, REFUSED].contains(&desk.state.load(Acquire)) {
        desk.moved_bytes.store(0, Relaxed);
        desk.errno.store(libc::ECANCELED.unsigned_abs(), Relaxed);
        desk.state.store(ENDED, Release);
        wake(&desk.state);
    }
}

/// Returns whether no process with the gate will answer.
fn is_gone(counters: &Counters) -> bool {
    let owner = counters.owner.load(Acquire);
    owner == 0 || is_silent(counters) || !state::is_alive(owner)
}

/// Returns the calling thread's desk. If it has none, takes a free one. Returns `None` if all are taken.
fn mine(counters: &'static Counters) -> Option<&'static Desk> {
    let pid = state::pid();
    let number = MINE.try_with(|mine| {
        let number = mine.number.get().filter(|_| mine.pid.get() == pid).or_else(|| take(counters, pid));
        mine.number.set(number);
        mine.pid.set(pid);
        number
    });
    counters.desks.get(number.ok()??)
}

fn take(counters: &Counters, pid: u32) -> Option<usize> {
    let mut desks = counters.desks.iter();
    let number = desks.position(|desk| desk.pid.compare_exchange(0, pid, AcqRel, Relaxed).is_ok())?;
    counters.desks_used.fetch_max(number as u32 + 1, AcqRel);
    counters.bell.fetch_add(1, Release);
    wake(&counters.bell);
    Some(number)
}

/// Frees the desks of a process whose threads have ended, because it has died or called `exec`.
pub(crate) fn free_all_of(counters: &Counters, pid: u32) {
    for desk in &counters.desks[..used(counters)] {
        if desk.pid.load(Relaxed) == pid {
            // The state first: the next thread that takes the desk sets it to `ASKED_AGAIN`.
            desk.state.store(ENDED, Release);
            wake(&desk.state);
            let _ = desk.pid.compare_exchange(pid, 0, AcqRel, Relaxed);
        }
    }
}

fn used(counters: &Counters) -> usize {
    (counters.desks_used.load(Acquire) as usize).min(DESKS)
}

/// Starts the porter, in the process that has the gate.
pub(crate) fn open(counters: &'static Counters) {
    // If this fails, other processes see no sign of life, and bypass the gate.
    let _ = thread("plimsoll-porter", move || keep_house(counters));
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES).spawn(work).map(drop)
}

/// Does the porter's work until the process gives up the gate.
fn keep_house(counters: &'static Counters) {
    let mut is_served = vec![false; DESKS];
    let mut swept_ns = 0;
    loop {
        let bell = counters.bell.load(Acquire);
        let Some(office) = state::office() else { return };
        let now_ns = now_ns();
        counters.alive_ns.store(now_ns, Relaxed);

        for (desk, is_served) in counters.desks[..used(counters)].iter().zip(&mut is_served) {
            if *is_served || desk.pid.load(Acquire) == 0 {
                continue;
            }
            *is_served = thread("plimsoll-desk", move || serve(desk)).is_ok();
            if !*is_served {
                refuse(desk);
            }
        }

        if now_ns.saturating_sub(swept_ns) >= TICK.as_nanos() as u64 {
            swept_ns = now_ns;
            sweep(counters);
            state::copy_waits(office, counters);
            state::look_at_trace(office);
        }
        sleep(&counters.bell, bell, Some(TICK));
    }
}

/// Refuses the call at a desk that has no thread here. No permit of an earlier call at the desk is left: that call was
/// admitted by a process that had the gate before.
fn refuse(desk: &Desk) {
    for state in [ASKED, ASKED_AGAIN] {
        if desk.state.compare_exchange(state, REFUSED, AcqRel, Relaxed).is_ok() {
            wake(&desk.state);
        }
    }
}

/// Frees the desks of processes that have died.
fn sweep(counters: &Counters) {
    let mut alive = 0;
    for desk in &counters.desks[..used(counters)] {
        let pid = desk.pid.load(Relaxed);
        if pid == 0 || pid == alive {
            continue;
        }
        if state::is_alive(pid) {
            alive = pid;
        } else {
            free_all_of(counters, pid);
        }
    }
}

/// Enters the gate on behalf of the threads that have `desk`, until the process gives up the gate.
fn serve(desk: &'static Desk) {
    let mut permit: Option<Permit<'static>> = None;
    while let Some(office) = state::office() {
        let seen = desk.state.load(Acquire);
        if seen != ADMITTED
            && let Some(permit) = permit.take()
        {
            let errno = desk.errno.load(Relaxed) as i32;
            permit.end(if errno == 0 { Ok(desk.moved_bytes.load(Relaxed)) } else { Err(errno) });
        }
        match seen {
            ENDED => drop(desk.state.compare_exchange(ENDED, FREE, AcqRel, Relaxed)),
            ASKED_AGAIN => drop(desk.state.compare_exchange(ASKED_AGAIN, ASKED, AcqRel, Relaxed)),
            ASKED => permit = admit(office, desk),
            _ => sleep(&desk.state, seen, None),
        }
    }
}

/// Waits at the gate for the call at `desk`, and answers the call. Returns the permit, unless the call was withdrawn.
fn admit(office: &'static Office, desk: &Desk) -> Option<Permit<'static>> {
    let kind = Kind::ALL.get(desk.kind.load(Relaxed) as usize).copied().unwrap_or(Kind::Read);
    let class = office.classes.get(desk.class.load(Relaxed) as usize).copied().unwrap_or(Class::DEFAULT);
    let (len_bytes, offset_bytes) = (desk.len_bytes.load(Relaxed), desk.offset_bytes.load(Relaxed));
    let call = Call { class, op: kind.op(), len_bytes, offset_bytes, file: 0 };

    let permit = office.gate.enter_for(call).ok();
    if let Some(permit) = &permit {
        desk.admitted_bytes.store(permit.len_bytes(), Relaxed);
    }
    let answer = if permit.is_some() { ADMITTED } else { REFUSED };
    let is_told = desk.state.compare_exchange(ASKED, answer, AcqRel, Relaxed).is_ok();
    wake(&desk.state);
    permit.filter(|_| is_told)
}

/// Wakes the threads of other processes that sleep at desks; they then find that this process has given up the gate.
pub(crate) fn close(counters: &Counters) {
    counters.desks[..used(counters)].iter().for_each(|desk| wake(&desk.state));
}

/// Sleeps while `word` is `value`, for at most `time`. Other processes may wake it.
fn sleep(word: &AtomicU32, value: u32, time: Option<Duration>) {
    let time = time.map(|time| libc::timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the word and the time outlive the call, which writes neither.
    let _ = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, time) };
}

fn wake(word: &AtomicU32) {
    // SAFETY: the call looks threads up by the word's address, and does not write it.
    let _ = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_waits_at_a_desk_without_a_thread_is_refused() {
        let desk = Desk::default();
        for (before, after) in [
            (FREE, FREE),
            (ASKED, REFUSED),
            (ASKED_AGAIN, REFUSED),
            (ENDED, ENDED),
            // In its system call, admitted by a process that had the gate before.
            (ADMITTED, ADMITTED),
        ] {
            desk.state.store(before, Relaxed);
            refuse(&desk);
            assert_eq!(desk.state.load(Relaxed), after, "state {before}");
        }
    }
}
