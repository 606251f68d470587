//! Checks whether a job keeps its least rate.
//!
//! **Why.** With `rate_min`, a job file of fio declares slower runs useless.
//!
//! **How.** [`Floor::keeps`] is called at completions. Once a cycle it compares the work since the last comparison with
//! the least that was required. As in fio, nothing is compared in the first two seconds.
//!
//! **Limits.** A cycle ends with a completion, as in fio: it may be longer than wanted, never shorter. A disk that
//! completes nothing is not detected.
//!
//! **Example.** At 4 MB/s and a cycle of a second, 3 MB from one second to the next are too little.

use super::RateMin;

/// Time at the beginning in which any rate is accepted, as in fio.
const SETTLE_NS: u64 = 2_000_000_000;

/// A job's least rate, and its counts at the last comparison.
pub(super) struct Floor {
    least: RateMin,
    begin_ns: u64,
    compared_ns: u64,
    bytes: u64,
    requests: u64,
}

impl Floor {
    /// Returns the least rate of a job that begins at `begin_ns`.
    pub(super) fn new(least: RateMin, begin_ns: u64) -> Floor {
        Floor { least, begin_ns, compared_ns: begin_ns, bytes: 0, requests: 0 }
    }

    /// Returns whether the job, which has done `bytes` in `requests` by `now_ns`, is fast enough.
    pub(super) fn keeps(&mut self, now_ns: u64, bytes: u64, requests: u64) -> bool {
        let is_settling = now_ns.saturating_sub(self.begin_ns) < SETTLE_NS;
        let since_ns = now_ns.saturating_sub(self.compared_ns);
        if !is_settling && since_ns < self.least.cycle_ns.max(1) {
            return true;
        }

        let per_s = |done: u64| done as f64 * 1e9 / since_ns.max(1) as f64;
        let keeps = per_s(bytes.saturating_sub(self.bytes)) >= self.least.bytes_per_s
            && per_s(requests.saturating_sub(self.requests)) >= self.least.requests_per_s;
        (self.compared_ns, self.bytes, self.requests) = (now_ns, bytes, requests);
        is_settling || keeps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn floor(bytes_per_s: f64, requests_per_s: f64) -> Floor {
        Floor::new(RateMin { bytes_per_s, requests_per_s, cycle_ns: S }, 10 * S)
    }

    #[test]
    fn a_slow_cycle_is_found_once_the_job_has_settled() {
        let mut slow = floor(1000.0, 0.0);
        assert!(slow.keeps(10 * S, 0, 0) && slow.keeps(11 * S, 0, 0), "it settles");
        assert!(slow.keeps(12 * S - 1, 0, 0));
        assert!(slow.keeps(12 * S, 0, 0), "the cycle is not over");
        assert!(slow.keeps(13 * S, 1001, 0));
        assert!(!slow.keeps(14 * S, 2000, 0), "999 bytes in a second");
    }

    #[test]
    fn bytes_and_requests_count_by_themselves() {
        assert!(floor(0.0, 5.0).keeps(13 * S, 0, 15));
        assert!(!floor(0.0, 5.0).keeps(13 * S, 1 << 40, 14));
        assert!(floor(0.0, 0.0).keeps(13 * S, 0, 0));
    }
}
