//! The library's own threads, whose descriptors are apart from the program's.
//!
//! # Why
//! Every number of a descriptor is the program's. A shell writes `exec 3>log`, a daemon closes all that it did not open.
//! In the program's table the control socket or the trace would be closed or replaced: the library would write its
//! trace into the program's file, and close the program's descriptors for its own.
//!
//! # How it works
//! The thread that makes the gate leaves the program's table for an empty one ([`leave_table`]). The threads that it
//! starts share that table. All are marked ([`start`]): the numbers in their calls are not the program's.
//!
//! # Limits
//! Before Linux 5.9, or if a sandbox forbids the call, the descriptors are in the program's table.
//!
//! # Example
//! The control socket of `sh` has number 3 in the library's table, while number 3 of `sh` is its file `log`.

use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;

use libc::{c_int, pthread_t};

use crate::real;

std::thread_local! {
    static IS_OURS: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether the calling thread is the library's own.
#[inline]
pub(crate) fn is_ours() -> bool {
    IS_OURS.get()
}

/// Gives the calling thread, one of the library's own, an empty table of descriptors. Returns whether it has one.
pub(crate) fn leave_table() -> bool {
    // SAFETY: the call touches no memory. It closes the copies in the new table alone.
    let is_apart =
        unsafe { libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, libc::CLOSE_RANGE_UNSHARE) } == 0;
    if is_apart {
        // What writes to the standard streams must not reach a socket that would have their number.
        for _ in 0..3 {
            // SAFETY: the path ends with a zero.
            let _ = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, c"/dev/null".as_ptr(), libc::O_RDWR, 0) };
        }
    }
    is_apart
}

/// The work of a thread that the library starts.
struct Work {
    function: *const c_void,
    argument: *mut c_void,
}

/// Starts a thread of the library, as `pthread_create`.
///
/// # Safety
/// As `pthread_create`.
pub(crate) unsafe fn start(
    thread: *mut pthread_t,
    attributes: *const c_void,
    function: *const c_void,
    argument: *mut c_void,
) -> c_int {
    let work = Box::into_raw(Box::new(Work { function, argument }));
    // SAFETY: passed on, but for the function, which gets what it expects.
    let result = unsafe { real::pthread_create(thread, attributes, begin as *const c_void, work.cast()) };
    if result != 0 {
        // SAFETY: made above, and no thread has it.
        drop(unsafe { Box::from_raw(work) });
    }
    result
}

/// Starts a thread of the library that runs `work`. Returns whether it has started. Not by `std`, which registers
/// destructors of thread-local variables: the dynamic linker's lock is taken for that, which the program has while it
/// runs the constructors of a library.
pub(crate) fn spawn(name: &'static CStr, stack_bytes: usize, work: impl FnOnce() + Send + 'static) -> bool {
    let work: Box<dyn FnOnce()> = Box::new(move || {
        // SAFETY: the name ends with a zero. The kernel copies its first 15 bytes.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
        work();
    });
    let work = Box::into_raw(Box::new(work));
    let (mut thread, mut attributes) = (MaybeUninit::uninit(), MaybeUninit::<libc::pthread_attr_t>::uninit());
    // SAFETY: it fills the attributes.
    unsafe { libc::pthread_attr_init(attributes.as_mut_ptr()) };
    // SAFETY: filled above.
    unsafe { libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), stack_bytes) };
    // SAFETY: filled above.
    unsafe { libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED) };
    // SAFETY: the attributes are filled, and `run` takes the work.
    let result = unsafe { start(thread.as_mut_ptr(), attributes.as_ptr().cast(), run as *const c_void, work.cast()) };
    if result != 0 {
        // SAFETY: made above, and no thread has it.
        drop(unsafe { Box::from_raw(work) });
    }
    result == 0
}

extern "C-unwind" fn run(work: *mut c_void) -> *mut c_void {
    // SAFETY: `spawn` made it for this thread alone.
    let work = *unsafe { Box::from_raw(work.cast::<Box<dyn FnOnce()>>()) };
    work();
    std::ptr::null_mut()
}

extern "C-unwind" fn begin(work: *mut c_void) -> *mut c_void {
    IS_OURS.set(true);
    // SAFETY: `start` made it for this thread alone.
    let Work { function, argument } = *unsafe { Box::from_raw(work.cast::<Work>()) };
    type Function = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;
    // SAFETY: the function that `pthread_create` was called with has this type.
    let function = unsafe { std::mem::transmute::<*const c_void, Function>(function) };
    // SAFETY: the argument is the one for it.
    unsafe { function(argument) }
}
