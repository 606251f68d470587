//! Makes a ring with the best flags that this kernel accepts.
//!
//! # Why
//! The later the kernel posts completions, the less it interrupts the thread; older kernels cannot defer them.
//!
//! # How it works
//! [`set_up`] tries sets of flags in turn. If the kernel answers `EINVAL`, it tries the next set.
//!
//! # Limits
//! A sandbox may allow making a ring and forbid entering it.
//!
//! # Example
//! Linux 5.19 refuses [`RingFlags::Deferred`] and takes [`RingFlags::Cooperative`].

use std::io;

use io_uring::IoUring;

/// Most operations taken at once: the kernel's largest submission queue.
pub const ENTRIES_MAX: u32 = 32_768;

/// The time at which the kernel posts completions: the later, the less it interrupts the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RingFlags {
    /// When the ring's one thread asks for them. Linux 6.1.
    Deferred,
    /// At the thread's next system call, without an interrupt between processors. Linux 5.19.
    Cooperative,
    /// At once.
    Plain,
}

/// All sets of flags, best first.
pub(super) const FLAGS: [RingFlags; 3] = [RingFlags::Deferred, RingFlags::Cooperative, RingFlags::Plain];

/// Returns a ring with the first of `flags` that this kernel accepts.
pub(super) fn set_up(entries: u32, flags: &[RingFlags]) -> io::Result<IoUring> {
    // At most `entries` operations are under way, so their completions, and the ring's own, always have room.
    let completions = entries.saturating_mul(4).min(2 * ENTRIES_MAX);

    let mut last = None;
    for level in flags {
        let mut builder = IoUring::builder();
        builder.dontfork().setup_cqsize(completions);
        match level {
            RingFlags::Deferred => {
                builder.setup_submit_all().setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag()
            }
            RingFlags::Cooperative => builder.setup_submit_all().setup_coop_taskrun().setup_taskrun_flag(),
            RingFlags::Plain => &mut builder,
        };
        match builder.build(entries) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => last = Some(error),
            result => return result,
        }
    }
    Err(last.unwrap_or_else(|| io::ErrorKind::Unsupported.into()))
}
