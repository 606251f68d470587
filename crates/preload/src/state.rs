//! What the library knows of this process: its run, its number, and whether it has the gate.
//!
//! A process starts asleep: every call bypasses the gate. When the library is loaded, it opens the command's file
//! (`load`); without one the process stays asleep. The first managed call creates the gate, unless another process of
//! the run has it, which then admits the calls (`route`).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, Ordering};

use crate::errno;
use crate::handover::{Counters, Handover};
use crate::rules::Rules;

/// State: no run, or one that this process has left.
pub(crate) const ASLEEP: u8 = 0;
/// State: a run, but no gate yet.
pub(crate) const READY: u8 = 1;
/// State: a thread is creating the gate.
pub(crate) const MAKING: u8 = 2;
/// State: this process has the gate.
pub(crate) const OPEN: u8 = 3;
/// State: another process has the gate.
pub(crate) const GUEST: u8 = 4;
/// State: this process is in another PID namespace than the command, so all its calls bypass the gate.
pub(crate) const STRANGER: u8 = 5;

pub(crate) static STATE: AtomicU8 = AtomicU8::new(ASLEEP);
pub(crate) static RUN: OnceLock<Run> = OnceLock::new();
pub(crate) static PID: AtomicU32 = AtomicU32::new(0);
pub(crate) static COUNTERS: AtomicPtr<Counters> = AtomicPtr::new(std::ptr::null_mut());

/// The run that this process belongs to.
pub(crate) struct Run {
    pub(crate) handover: Handover,
    pub(crate) rules: Rules,
}

pub(crate) fn run() -> Option<&'static Run> {
    RUN.get()
}

/// Returns the counters, if there is a run.
pub(crate) fn counters() -> Option<&'static Counters> {
    let at = COUNTERS.load(Ordering::Acquire);
    // SAFETY: null, or the mapping that `load` made of a file as long as `Counters`. It stays until the process ends,
    // and consists of atomics, for which every bit pattern is valid.
    unsafe { at.as_ref() }
}

/// Returns the number of the process that loaded the library or was made by `fork`.
pub(crate) fn pid() -> u32 {
    PID.load(Ordering::Relaxed)
}

/// Returns whether descriptors must be examined when they are opened.
#[inline]
pub(crate) fn is_awake() -> bool {
    STATE.load(Ordering::Relaxed) != ASLEEP
}

/// Returns whether a process is alive. A process that its parent has not reaped is not, but that is unknown before
/// Linux 5.3, or if a sandbox forbids the call.
pub(crate) fn is_alive(pid: u32) -> bool {
    errno::keep(|| {
        // SAFETY: it touches no memory.
        let handle = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as i32;
        if handle < 0 {
            // SAFETY: signal 0 is not sent; the call touches no memory.
            return errno::get() != libc::ESRCH
                && (unsafe { libc::kill(pid as i32, 0) } == 0 || errno::get() != libc::ESRCH);
        }
        let mut ended = libc::pollfd { fd: handle, events: libc::POLLIN, revents: 0 };
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // Not by `poll` and `close`, at which the thread may be cancelled.
        // SAFETY: `ended` is one entry, which the call fills; it reads `at_once`.
        let ready = unsafe { libc::syscall(libc::SYS_ppoll, &raw mut ended, 1, &raw const at_once, 0, 0) };
        // SAFETY: the descriptor was made above.
        let _ = unsafe { libc::syscall(libc::SYS_close, handle) };
        ready != 1
    })
}
