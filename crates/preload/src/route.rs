//! Where the calls of this process are admitted: at its own gate, or at that of another process of the run.

use std::sync::atomic::Ordering;

use crate::gate::{self, OwnGate};
use crate::handover::{Counters, Past};
use crate::state::{GUEST, MAKING, READY, STATE, STRANGER, counters, pid, run};
use crate::{housekeeper, slots};

/// The place where calls of this process are admitted.
pub(crate) enum Route {
    Own(&'static OwnGate),
    /// In another process; see [`slots`].
    Owner,
    /// Calls bypass the gate, for this reason.
    Bypass(Past),
}

/// Returns where calls are admitted. If this is the first call that needs the gate, creates it.
#[inline]
pub(crate) fn route(counters: &Counters) -> Route {
    if let Some(own) = gate::own() {
        return Route::Own(own);
    }
    let is_guest = STATE.load(Ordering::Relaxed) == GUEST;
    if is_guest && counters.owner.load(Ordering::Relaxed) != 0 && !slots::is_silent(counters) {
        return Route::Owner;
    }
    find_route()
}

/// Finds out which process has the gate. If none has, creates it here.
#[cold]
pub(crate) fn find_route() -> Route {
    let not_yet = Route::Bypass(Past::Nested);
    let seen = STATE.load(Ordering::Acquire);
    if seen == STRANGER {
        return Route::Bypass(Past::Namespace);
    }
    let (Some(_), Some(counters), READY | GUEST) = (run(), counters(), seen) else { return not_yet };
    let owner = counters.owner.load(Ordering::Acquire);

    if owner != pid() && owner != 0 && slots::has_gate(counters, owner) {
        // If this fails, another thread has updated the state meanwhile.
        let _ = STATE.compare_exchange(seen, GUEST, Ordering::AcqRel, Ordering::Acquire);
        return if slots::is_silent(counters) { Route::Bypass(Past::OtherProcess) } else { Route::Owner };
    }

    if STATE.compare_exchange(seen, MAKING, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return not_yet;
    }
    // Before the owner is set, so that no process takes the new owner to be silent, or asks it for another's
    // housekeeper.
    counters.housekeeper.store(0, Ordering::Release);
    counters.alive_ns.store(plimsoll::sys::clock::now_ns(), Ordering::Relaxed);
    if counters.owner.compare_exchange(owner, pid(), Ordering::AcqRel, Ordering::Acquire).is_err() {
        STATE.store(GUEST, Ordering::Release);
        return Route::Owner;
    }
    // Threads of this library must not take the program's signals.
    without_signals(|| housekeeper::open(counters));
    gate::own().map_or(not_yet, Route::Own)
}

/// Runs `work` with all signals blocked, so that threads that it starts take none.
fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: it fills the set that it gets.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: both sets exist, and the first is filled.
    let is_masked = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) } == 0;
    let value = work();
    if is_masked {
        // SAFETY: `before` was filled by the call that masked.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    }
    value
}
