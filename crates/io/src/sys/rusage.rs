//! CPU time that the process and the calling thread have used.
//!
//! # Why
//! What an I/O path costs is CPU time per operation; and a sleeping shard must use none, which a test can only hold it
//! to by asking.
//!
//! # How it works
//! The kernel's CPU-time clocks, user and system time together, in nanoseconds.
//!
//! # Limits
//! Work the kernel does in its own threads on our behalf (io_uring workers apart, which count as ours) is not seen.
//!
//! # Example
//! ```
//! use plimsoll::sys::rusage::{process_cpu_ns, thread_cpu_ns};
//! assert!(process_cpu_ns() > 0);
//! assert!(thread_cpu_ns() <= process_cpu_ns());
//! ```

use rustix::time::{ClockId, clock_gettime};

use super::clock::timespec_ns;

/// CPU time of the whole process so far, in nanoseconds.
#[must_use]
pub fn process_cpu_ns() -> u64 {
    timespec_ns(clock_gettime(ClockId::ProcessCPUTime))
}

/// CPU time of the calling thread so far, in nanoseconds.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    timespec_ns(clock_gettime(ClockId::ThreadCPUTime))
}

/// CPU time of the whole process so far, in seconds.
#[must_use]
pub fn process_cpu_s() -> f64 {
    process_cpu_ns() as f64 / 1e9
}

/// CPU time of the calling thread so far, in seconds.
#[must_use]
pub fn thread_cpu_s() -> f64 {
    thread_cpu_ns() as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_counted_and_time_only_grows() {
        let start_ns = thread_cpu_ns();
        let mut sum = 0_u64;
        while thread_cpu_ns() < start_ns + 1_000_000 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(sum > 0 && process_cpu_ns() >= 1_000_000);
        assert!(thread_cpu_s() > 0.0 && process_cpu_s() > 0.0);
    }
}
