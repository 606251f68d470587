//! CPU time of the process and of the calling thread, the thread's sleeps and its waits for a CPU, and the disk I/O of
//! children.
//!
//! # Why
//! The cost of an I/O path is its CPU time per operation. A sleeping shard must use none, which a test checks by this.
//! A call that must not block, but does, causes context switches.
//!
//! # How it works
//! CPU times are read from the kernel's clocks, user and system time together, in nanoseconds. Context switches are
//! those that `getrusage(2)` counts for one thread.
//!
//! # Limits
//! Work of the kernel's own threads on our behalf is not seen (except io_uring workers, which count as ours). A sandbox
//! that emulates the kernel may leave the context switches at 0 for ever.
//!
//! # Example
//! ```
//! use plimsoll::sys::rusage::{process_cpu_ns, thread_cpu_ns, thread_voluntary_switches};
//! assert!(process_cpu_ns() > 0);
//! assert!(thread_cpu_ns() <= process_cpu_ns());
//! let before = thread_voluntary_switches()?;
//! assert!(thread_voluntary_switches()? >= before);
//! # Ok::<(), std::io::Error>(())
//! ```

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::IntoRawFd;

use rustix::fs::{Mode, OFlags};
use rustix::time::{ClockId, clock_gettime};

use super::clock::timespec_ns;

/// Returns the CPU time of the whole process so far, in nanoseconds.
#[must_use]
pub fn process_cpu_ns() -> u64 {
    timespec_ns(clock_gettime(ClockId::ProcessCPUTime))
}

/// Returns the CPU time of the calling thread so far, in nanoseconds.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    timespec_ns(clock_gettime(ClockId::ThreadCPUTime))
}

/// Returns the CPU time of the whole process so far, in seconds.
#[must_use]
pub fn process_cpu_s() -> f64 {
    process_cpu_ns() as f64 / 1e9
}

/// Returns how often the calling thread has given up its processor voluntarily, by sleeping.
///
/// # Errors
/// If the kernel has no `RUSAGE_THREAD` (older than Linux 2.6.26), or a sandbox forbids `getrusage`.
pub fn thread_voluntary_switches() -> io::Result<u64> {
    Ok(u64::try_from(usage(libc::RUSAGE_THREAD)?.ru_nvcsw).unwrap_or(0))
}

/// Returns the bytes that ended child processes have read from and written to disks, including those of processes for
/// which they had waited. The kernel counts in units of 512 bytes.
///
/// # Errors
/// If a sandbox forbids `getrusage`.
pub fn children_disk_bytes() -> io::Result<(u64, u64)> {
    let usage = usage(libc::RUSAGE_CHILDREN)?;
    let bytes = |blocks: i64| u64::try_from(blocks).unwrap_or(0).saturating_mul(512);
    Ok((bytes(usage.ru_inblock), bytes(usage.ru_oublock)))
}

fn usage(of: libc::c_int) -> io::Result<libc::rusage> {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the kernel writes one `rusage` to `usage`, which is ours and outlives the call; it keeps no pointer.
    let answer = unsafe { libc::getrusage(of, usage.as_mut_ptr()) };
    if answer != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has answered 0, so it has filled `usage`, which no other code has seen.
    Ok(unsafe { usage.assume_init() })
}

/// Shortest time between two readings of a thread's wait for a CPU, and the shortest sleep or call after which it is
/// read. A reading takes some microseconds.
pub(crate) const RUN_DELAY_READ_NS: u64 = 500_000;

/// A thread's total wait for a CPU, as of its last reading.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunDelay {
    read_at_ns: u64,
    /// Wait since the thread began; `None` before the first reading, and if the kernel does not report it.
    waited_ns: Option<u64>,
}

impl RunDelay {
    /// The value of a thread without a reading.
    pub(crate) const NEVER: RunDelay = RunDelay { read_at_ns: 0, waited_ns: None };

    /// Returns [`RunDelay::NEVER`], or `None` if the kernel does not report waits.
    pub(crate) fn if_known() -> Option<RunDelay> {
        thread_run_delay_ns().ok().map(|_| RunDelay::NEVER)
    }

    /// Returns the time of the last reading, in nanoseconds; 0 before the first.
    pub(crate) fn read_at_ns(&self) -> u64 {
        self.read_at_ns
    }

    /// Reads the wait again if the last reading is old. Call this before the interval that
    /// [`RunDelay::since_last_reading_ns`] measures.
    pub(crate) fn refresh(&mut self, now_ns: u64, had_filter: bool) {
        if now_ns.saturating_sub(self.read_at_ns) >= RUN_DELAY_READ_NS {
            self.since_last_reading_ns(now_ns, had_filter);
        }
    }

    /// Returns for how long the calling thread has waited for a CPU since the last reading; 0 if that is unknown. Does
    /// not read if the thread has a seccomp filter, but no filter when its reactor or gate was made (`had_filter`): a
    /// filter that the program has set since may kill the program at `open`.
    pub(crate) fn since_last_reading_ns(&mut self, now_ns: u64, had_filter: bool) -> u64 {
        if thread_has_seccomp_filter() != had_filter {
            return 0;
        }
        // A single reading may fail: the program may have no descriptor left.
        self.note(now_ns, thread_run_delay_ns().ok())
    }

    /// Stores the reading `found_ns`, and returns the wait added since the last one.
    pub(crate) fn note(&mut self, now_ns: u64, found_ns: Option<u64>) -> u64 {
        self.read_at_ns = now_ns;
        let before_ns = self.waited_ns;
        self.waited_ns = found_ns.or(before_ns);
        before_ns.zip(found_ns).map_or(0, |(before_ns, after_ns)| after_ns.saturating_sub(before_ns))
    }
}

/// Returns for how long the calling thread, since it began, was ready to run and had no CPU, in nanoseconds
/// (`/proc/thread-self/schedstat`). Does not keep the file open: a preloaded library must hold no descriptors.
///
/// # Errors
/// If there is no /proc, or the kernel does not count (`CONFIG_SCHED_INFO`).
fn thread_run_delay_ns() -> io::Result<u64> {
    let file = rustix::fs::open("/proc/thread-self/schedstat", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut text = [0; 64];
    let read = rustix::io::read(&file, &mut text);
    // SAFETY: this library alone has the descriptor (a program that closes numbers at random may close it before), and
    // gives it up here. Dropping it would call libc's close, at which another thread of the program may cancel this
    // one.
    unsafe { rustix::io::close(file.into_raw_fd()) };
    let len = read?;
    let second = std::str::from_utf8(&text[..len]).ok().and_then(|text| text.split_ascii_whitespace().nth(1));
    Ok(second.and_then(|figure| figure.parse().ok()).ok_or(io::ErrorKind::InvalidData)?)
}

/// Returns whether a seccomp filter checks the system calls of the calling thread, or forbids this query.
pub(crate) fn thread_has_seccomp_filter() -> bool {
    // libc reads all arguments.
    let none: libc::c_ulong = 0;
    // SAFETY: the call touches no memory.
    unsafe { libc::prctl(libc::PR_GET_SECCOMP, none, none, none, none) != 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip::skip;

    #[test]
    fn sleeping_is_counted() -> io::Result<()> {
        let of_proc = || -> Option<u64> {
            let status = std::fs::read_to_string("/proc/thread-self/status").ok()?;
            status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse().ok())
        };
        let before = (thread_voluntary_switches()?, of_proc());
        std::thread::sleep(std::time::Duration::from_millis(2));
        let after = (of_proc(), thread_voluntary_switches()?);
        // Of /proc, whose looks lie between the others, the number may be smaller.
        let Some(expected) = after.0.zip(before.1).map(|(after, before)| after - before).filter(|count| *count > 0)
        else {
            skip("/proc does not count context switches here");
            return Ok(());
        };
        assert!(after.1 - before.0 >= expected, "{before:?}, {after:?}");
        Ok(())
    }

    #[test]
    fn a_look_tells_what_was_added_since_the_last_one() {
        let mut delay = RunDelay::NEVER;
        let readings = [(1, Some(700)), (2, Some(750)), (3, None), (4, Some(790))].map(|(at_ns, found_ns)| {
            let added_ns = delay.note(at_ns, found_ns);
            (added_ns, delay.read_at_ns())
        });
        // The first reading has none before it, the third has failed.
        assert_eq!(readings, [(0, 1), (50, 2), (0, 3), (40, 4)]);
    }

    #[test]
    fn waiting_for_a_cpu_is_counted_or_said_to_be_unknown() {
        match thread_run_delay_ns() {
            Ok(before_ns) => {
                std::thread::yield_now();
                assert!(thread_run_delay_ns().is_ok_and(|after_ns| after_ns >= before_ns));
            }
            Err(reason) => skip(format_args!("this kernel does not say how long threads wait for a CPU: {reason}")),
        }
    }

    #[test]
    fn work_is_counted_and_time_only_grows() {
        let start_ns = thread_cpu_ns();
        let mut sum = 0_u64;
        while thread_cpu_ns() < start_ns + 1_000_000 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(sum > 0 && process_cpu_ns() >= 1_000_000);
        assert!(process_cpu_s() > 0.0);
    }
}
