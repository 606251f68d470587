//! Due times of requests: one schedule for all fibers of a job on a shard.
//!
//! **Why.** An open loop models users: they arrive on their own schedule, not when the disk has answered the previous
//! one.
//!
//! **How.** A [`Pace`] is a sequence of due times that advances whatever the fibers do. A free fiber takes the next due
//! time: at once if it has passed, else the fiber waits with the other free ones. When all are busy, due times queue up
//! and are served late; latency counts from the due time, so a stall shows in every request that it delayed. Times are
//! kept as an offset from the beginning in fractions of a nanosecond, so rounding does not add up.
//!
//! **Limits.** The offset has 53 bits: exact to a nanosecond for 104 days.
//!
//! **Example.**
//!
//! ```text
//! rate 4/s:  due at 0, 250, 500, 750 ms.  The disk stalls from 0 to 700 ms with one fiber:
//! sent at 0 (latency 700), 700 (450 + service), then ... (the request due at 500 has waited 200 already)
//! ```

use plimsoll_sim::rng::Rng;

use super::PauseDistribution;

pub(super) struct Pace {
    begin_ns: u64,
    offset_ns: f64,
    period_ns: f64,
    distribution: PauseDistribution,
    /// Fibers that wait for the next due time.
    pub(super) free: Vec<u32>,
    /// Whether a timer is set for the free fibers.
    pub(super) is_armed: bool,
}

impl Pace {
    /// Returns a schedule with `rate_per_s` (above 0) requests a second.
    pub(super) fn new(rate_per_s: f64, distribution: PauseDistribution) -> Pace {
        Pace {
            begin_ns: 0,
            offset_ns: 0.0,
            period_ns: 1e9 / rate_per_s,
            distribution,
            free: Vec::new(),
            is_armed: false,
        }
    }

    /// Starts the schedule at `begin_ns`. An even schedule has its first request then.
    pub(super) fn begin(&mut self, begin_ns: u64, rng: &mut Rng) {
        self.begin_ns = begin_ns;
        if self.distribution == PauseDistribution::Poisson {
            self.advance(rng);
        }
    }

    pub(super) fn next_ns(&self) -> u64 {
        self.begin_ns.saturating_add(self.offset_ns as u64)
    }

    /// Takes the next due time, if it is not after `now_ns`.
    pub(super) fn take(&mut self, now_ns: u64, rng: &mut Rng) -> Option<u64> {
        let due_ns = self.next_ns();
        (due_ns <= now_ns).then(|| {
            self.advance(rng);
            due_ns
        })
    }

    /// Returns the untaken requests due by `now_ns`. If gaps are random, estimates by the mean gap.
    pub(super) fn overdue(&self, now_ns: u64) -> u64 {
        due_by(now_ns, self.next_ns(), self.period_ns)
    }

    fn advance(&mut self, rng: &mut Rng) {
        self.offset_ns += match self.distribution {
            PauseDistribution::Uniform => self.period_ns,
            PauseDistribution::Poisson => rng.exponential(self.period_ns),
        };
    }
}

/// Returns how many of the times `next_ns`, `next_ns + period_ns`, ... are past at `now_ns`.
pub(super) fn due_by(now_ns: u64, next_ns: u64, period_ns: f64) -> u64 {
    let late_ns = now_ns.checked_sub(next_ns);
    late_ns.map_or(0, |late_ns| ((late_ns as f64 / period_ns) as u64).saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_exact_over_time_however_rarely_somebody_looks() {
        // (rate, distribution, time between two takes, relative error allowed)
        let cases = [
            (50_000.0, PauseDistribution::Uniform, 1_000, 1e-5),
            (50_000.0, PauseDistribution::Uniform, 33_000_000, 1e-5),
            (100.0, PauseDistribution::Uniform, 7_000_000, 2e-3),
            (333_333.0, PauseDistribution::Uniform, 50_000, 1e-5),
            (50_000.0, PauseDistribution::Poisson, 1_000_000, 5e-3),
        ];
        let second_ns = 1_000_000_000;
        for (rate, distribution, step_ns, allowed) in cases {
            let mut rng = Rng::new(1);
            let mut pace = Pace::new(rate, distribution);
            pace.begin(5 * second_ns, &mut rng);
            let mut due = 0u64;
            let mut now_ns = 5 * second_ns;
            while now_ns < 15 * second_ns {
                while pace.take(now_ns, &mut rng).is_some() {
                    due += 1;
                }
                now_ns += step_ns;
            }
            let error = (due as f64 / (rate * 10.0) - 1.0).abs();
            assert!(error <= allowed + step_ns as f64 / 1e10, "{rate} {distribution:?} {step_ns}: {due}");
        }
    }

    #[test]
    fn nothing_is_due_before_its_time() {
        let mut rng = Rng::new(1);
        let mut pace = Pace::new(4.0, PauseDistribution::Uniform);
        pace.begin(1_000, &mut rng);
        assert_eq!((pace.overdue(999), pace.overdue(1_000), pace.overdue(1_000_001_000)), (0, 1, 5));
        assert_eq!((pace.take(999, &mut rng), pace.take(1_000, &mut rng)), (None, Some(1_000)));
        assert_eq!((pace.take(1_001, &mut rng), pace.next_ns()), (None, 250_001_000));
        assert_eq!(pace.take(u64::MAX, &mut rng), Some(250_001_000));
    }
}
