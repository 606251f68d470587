//! The calling thread's `errno`, which the library must leave as the program's own call set it.

pub(crate) fn get() -> i32 {
    // SAFETY: libc returns the address of the calling thread's own variable, which lives as long as the thread.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above; no other thread writes it.
    unsafe { *place }
}

pub(crate) fn set(errno: i32) {
    // SAFETY: as in `get`.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as in `get`.
    unsafe { *place = errno }
}

/// Runs `work`, and restores `errno` afterwards.
pub(crate) fn keep<T>(work: impl FnOnce() -> T) -> T {
    let before = get();
    let value = work();
    set(before);
    value
}
