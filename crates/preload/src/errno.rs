//! The calling thread's error number, which must be what the program's own call left.

/// Reads it.
pub(crate) fn get() -> i32 {
    // SAFETY: libc gives the address of the calling thread's own variable, which lives as long as the thread.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above, and nobody else writes it meanwhile.
    unsafe { *place }
}

/// Sets it.
pub(crate) fn set(errno: i32) {
    // SAFETY: as in `get`.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as in `get`.
    unsafe { *place = errno }
}

/// Does `work`, and puts the error number back as it was before.
pub(crate) fn keep<T>(work: impl FnOnce() -> T) -> T {
    let before = get();
    let value = work();
    set(before);
    value
}
