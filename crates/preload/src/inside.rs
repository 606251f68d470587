//! Whether the calling thread is in a call of the library, and the permit of that call.
//!
//! # Why
//! A signal handler may call the library's functions while its thread is in one of them. It may also leave that one for
//! ever by `siglongjmp`, which runs no destructor: the permit would keep its part of the disk, and the thread would
//! bypass the gate.
//!
//! # How it works
//! A thread-local variable has the number of the call, an address in its frame, and its permit while the system call
//! lasts. If a thread begins a call and finds another one, the frames tell which it is ([`Here::is_left`]). The frames of
//! a signal handler are below those of the call that it interrupts, with at least [`SIGNAL_BYTES`] in between. So a call
//! whose frame is not that far below was left, and is ended in its place.
//!
//! # Limits
//! A call that was left is ended at the thread's next call, unless that one's frame is far below. A handler must not
//! leave, or end its thread with `pthread_exit`, in the few hundred nanoseconds in which the library runs before and
//! after the system call: libc may abort the process, or a lock stay locked. While a call waits, it may
//! ([`plimsoll::Gate::holding_signals`]). A program that changes stacks in a signal handler can end a permit too early,
//! which nothing but the charge depends on.

use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::sync::atomic::{Ordering::SeqCst, compiler_fence};

use plimsoll::{Passed, Permit};

use crate::slots::{self, SlotPermit};
use crate::{errno, gate, state};

/// Fewest bytes between a frame and that of a signal handler above it: less than what the kernel saves there on any
/// architecture, and more than a function of this library has.
const SIGNAL_BYTES: usize = 512;

/// A call admitted by this process or another one.
pub(crate) enum Admitted {
    Local(Permit<'static>),
    Remote(SlotPermit),
}

impl Admitted {
    pub(crate) fn len_bytes(&self) -> usize {
        let len_bytes = match self {
            Admitted::Local(permit) => permit.len_bytes(),
            Admitted::Remote(permit) => permit.len_bytes(),
        };
        len_bytes as usize
    }

    pub(crate) fn end(self, result: Result<u32, i32>) -> Passed {
        match self {
            Admitted::Local(permit) => permit.end(result),
            Admitted::Remote(permit) => permit.end(result),
        }
    }
}

struct Here {
    /// Number of the call that the thread is in; 0: none.
    call: Cell<u32>,
    last_call: Cell<u32>,
    /// An address in the call's frame.
    frame: Cell<usize>,
    is_held: Cell<bool>,
    /// The call's permit, if `is_held`.
    permit: UnsafeCell<MaybeUninit<Admitted>>,
}

std::thread_local! {
    // Without a destructor, whose registration would allocate.
    static HERE: Here = const {
        Here {
            call: Cell::new(0),
            last_call: Cell::new(0),
            frame: Cell::new(0),
            is_held: Cell::new(false),
            permit: UnsafeCell::new(MaybeUninit::uninit()),
        }
    };
}

/// Marks a thread as inside the library until dropped.
pub(crate) struct Inside {
    here: *const Here,
    call: u32,
}

/// Returns an address in the frame of the function that calls this.
#[inline(always)]
pub(crate) fn frame() -> usize {
    let local = 0_u8;
    std::hint::black_box(&raw const local).addr()
}

/// Marks the thread as inside the library, in a call with this frame. Returns `None` if it is inside already, that is,
/// in a signal handler. If it has left its last call by `siglongjmp`, ends that call first.
pub(crate) fn go_inside(frame: usize) -> Option<Inside> {
    HERE.with(|here| {
        let is_left = here.call.get() != 0;
        if is_left && !here.is_left(frame) {
            return None;
        }

        // A signal handler in what follows must see this call.
        here.frame.set(frame);
        let call = here.last_call.get().wrapping_add(1).max(1);
        here.last_call.set(call);
        here.call.set(call);
        compiler_fence(SeqCst);
        if is_left {
            errno::keep(|| here.end_what_was_left());
        }
        Some(Inside { here, call })
    })
}

/// Forgets the call that the thread is in, after `fork`: its permit is the parent's.
pub(crate) fn forget() {
    HERE.with(|here| {
        here.is_held.set(false);
        here.call.set(0);
    });
}

impl Here {
    /// Returns whether the thread's call cannot go on, as the thread is now in another call with `frame`.
    #[cold]
    fn is_left(&self, frame: usize) -> bool {
        let before = self.frame.get();
        let mut stack = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: 0, ss_size: 0 };
        // SAFETY: the call fills `stack`.
        errno::keep(|| unsafe { libc::sigaltstack(std::ptr::null(), &raw mut stack) });
        let signal_stack = stack.ss_sp.addr()..stack.ss_sp.addr().saturating_add(stack.ss_size);
        match (signal_stack.contains(&before), signal_stack.contains(&frame)) {
            (false, true) => false,
            (true, false) => true,
            (false, false) | (true, true) => frame.saturating_add(SIGNAL_BYTES) > before,
        }
    }

    #[cold]
    fn end_what_was_left(&self) {
        drop(self.take());
        if let Some(own) = gate::own() {
            own.gate.withdraw_left();
        }
        if let Some(counters) = state::counters() {
            slots::withdraw_left(counters);
        }
    }

    #[inline]
    fn take(&self) -> Option<Admitted> {
        if !self.is_held.replace(false) {
            return None;
        }
        compiler_fence(SeqCst);
        // SAFETY: `Inside::hold` wrote it before it set `is_held`, which is not set any more, so it is read once.
        Some(unsafe { self.permit.get().cast::<Admitted>().read() })
    }
}

impl Inside {
    fn here(&self) -> &Here {
        // SAFETY: the variable of the thread that made `self`, which cannot be sent to another. It has no destructor, so it
        // exists until the thread has ended.
        unsafe { &*self.here }
    }

    /// Stores the permit of this call while the system call lasts.
    #[inline]
    pub(crate) fn hold(&self, permit: Admitted) {
        let here = self.here();
        // Else a later call has taken this one for left.
        if here.call.get() == self.call {
            // SAFETY: only this thread has the variable, and no reference to it is kept. `is_held` is not set, so no permit
            // is lost.
            unsafe { here.permit.get().cast::<Admitted>().write(permit) };
            compiler_fence(SeqCst);
            here.is_held.set(true);
        }
    }

    /// Returns the permit that was stored, unless a later call has ended it.
    #[inline]
    pub(crate) fn take(&self) -> Option<Admitted> {
        let here = self.here();
        if here.call.get() == self.call { here.take() } else { None }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        // There is a permit if the thread is cancelled in the system call.
        drop(self.take());
        let here = self.here();
        if here.call.get() == self.call {
            here.call.set(0);
        }
    }
}
