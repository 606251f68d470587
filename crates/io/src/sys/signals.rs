//! Holds back the signals of the calling thread.
//!
//! # Why
//! A signal handler may end its thread (`pthread_exit`) or leave by a jump (`siglongjmp`). If that happens between two
//! instructions of a critical section, its lock stays locked for ever; and libc aborts the process if it has to unwind a
//! thread from an instruction at which the compiler expects no unwinding.
//!
//! # How it works
//! [`Held::new`] blocks all signals and remembers which were blocked before; dropping it restores those. Signals that
//! came meanwhile are delivered in that system call, whose caller expects to be unwound.
//!
//! # Limits
//! A system call each way. The kernel kills the process at a fault (`SIGSEGV`) that it cannot deliver.
//!
//! # Example
//! ```text
//! let held = Held::new(); let state = lock(); ...; drop(state); held.let_in(); sleep(); held.hold(); ...; drop(held);
//! ```

use libc::{c_int, c_long};

unsafe extern "C-unwind" {
    /// The function of libc, which declares it as one that never unwinds.
    fn syscall(number: c_long, ...) -> c_long;
}

/// The kernel's set of signals: a bit for each of 64.
type Signals = u64;

/// Signals of the calling thread, blocked until this is dropped.
pub(crate) struct Held {
    before: Signals,
    /// A mask belongs to its thread.
    _not_send: std::marker::PhantomData<*const ()>,
}

impl Held {
    /// Blocks all signals, those of libc (for asynchronous cancellation) too.
    pub(crate) fn new() -> Held {
        Held { before: set_blocked(Signals::MAX), _not_send: std::marker::PhantomData }
    }

    /// Delivers the signals that came, and those that come from now on.
    pub(crate) fn let_in(&self) {
        set_blocked(self.before);
    }

    /// Blocks all signals again.
    pub(crate) fn hold(&self) {
        set_blocked(Signals::MAX);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.let_in();
    }
}

/// Sets which signals of the calling thread are blocked. Returns those before.
fn set_blocked(blocked: Signals) -> Signals {
    let mut before: Signals = 0;
    let (set, len_bytes) = (&raw const blocked, size_of::<Signals>());
    // SAFETY: the kernel reads one set and writes the other during the call. With valid sets the call cannot fail.
    unsafe { syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK as c_int, set, &raw mut before, len_bytes) };
    before
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocked() -> Signals {
        let before = set_blocked(Signals::MAX);
        set_blocked(before);
        before
    }

    #[test]
    fn signals_are_blocked_until_the_end_and_in_between_only_those_that_were() {
        let before = blocked();
        let held = Held::new();
        // `SIGKILL` (9) and `SIGSTOP` (19) cannot be.
        assert_eq!(blocked(), Signals::MAX & !(1 << 8 | 1 << 18));
        held.let_in();
        assert_eq!(blocked(), before);
        held.hold();
        assert_ne!(blocked(), before);
        drop(held);
        assert_eq!(blocked(), before);
    }
}
