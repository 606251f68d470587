//! The clock of the real backends.
//!
//! # Why
//! Time is an argument everywhere else (a simulated shard runs on virtual time), so the real clock is read in one place
//! only.
//!
//! # How it works
//! Reads `CLOCK_MONOTONIC`, on most machines in user space without a system call.
//!
//! # Limits
//! The zero point is arbitrary (roughly the boot), and the clock stops while the machine is suspended.
//!
//! # Example
//! ```
//! use plimsoll::sys::clock::now_ns;
//! let start_ns = now_ns();
//! let elapsed_ns = now_ns() - start_ns;
//! assert!(elapsed_ns < 60_000_000_000);
//! ```

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Nanoseconds per second.
const NS_PER_S: u64 = 1_000_000_000;

/// Returns monotonic time in nanoseconds since an arbitrary point.
#[must_use]
pub fn now_ns() -> u64 {
    timespec_ns(clock_gettime(ClockId::Monotonic))
}

/// Returns a `timespec` in nanoseconds; negative values count as 0.
pub(crate) fn timespec_ns(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let rest_ns = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(NS_PER_S).saturating_add(rest_ns)
}

/// Returns the time until `deadline_ns`, as (seconds, nanoseconds); zero if it has passed.
pub(crate) fn until(deadline_ns: u64) -> (u64, u32) {
    let left_ns = deadline_ns.saturating_sub(now_ns());
    (left_ns / NS_PER_S, (left_ns % NS_PER_S) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_goes_back() {
        let mut last_ns = now_ns();
        for _ in 0..10_000 {
            let next_ns = now_ns();
            assert!(next_ns >= last_ns);
            last_ns = next_ns;
        }
    }

    #[test]
    fn a_passed_deadline_is_zero_away() {
        assert_eq!(until(0), (0, 0));
        let (seconds, rest_ns) = until(now_ns() + 3600 * NS_PER_S + 500);
        assert!((3500..=3600).contains(&seconds) && rest_ns < 1_000_000_000);
    }
}
