//! Ends a run as soon as its measurements no longer change.
//!
//! **Why.** A disk that was idle, or is full of older data, needs minutes to hours until its figures settle. The time
//! is not known beforehand.
//!
//! **How.** A thread beside the shards samples their published totals (see [`super::live`]) over a rolling window. It
//! ends the run when the newest window is steady: either every sample lies within a limit of the window's mean, or the
//! slope of the least-squares line through them is below a limit. These are fio's criteria (`ss=iops:5%`,
//! `ss=iops_slope:0.1%`); as in fio with its default interval, the slope is the change in a second.
//!
//! **Limits.** The criterion covers all jobs together. A window has 8 to 256 samples: one a second if the window is
//! long enough. Windows below 80 ms are taken as 80 ms. The warm-up does not count.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_load::{SteadyCriterion, SteadyStop};
//! // Over 30 s no second is more than 5 % away from the mean.
//! let window_ns = 30_000_000_000;
//! let stop = SteadyStop { criterion: SteadyCriterion::Iops, is_slope: false, limit_pct: 5.0, window_ns };
//! assert!(stop.limit_pct > 0.0);
//! ```

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use plimsoll_figures::series;
pub use plimsoll_files::jobs::SteadyCriterion;
use serde::{Deserialize, Serialize};

use super::live::{Board, Totals};

const WINDOW_MIN_NS: u64 = 80_000_000;
/// Length of a sample, as in fio's default. Windows too short or too long for 8 to 256 such samples use another
/// length.
const SAMPLE_NS: u64 = 1_000_000_000;
const SAMPLES_MIN: u64 = 8;
const SAMPLES_MAX: u64 = 256;

/// The condition that ends a run early.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SteadyStop {
    pub criterion: SteadyCriterion,
    /// Whether the slope is limited; else the deviation of every sample.
    pub is_slope: bool,
    /// The limit in per cent of the window's mean (for a slope: per second), above 0.
    pub limit_pct: f64,
    pub window_ns: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Steady {
    /// Whether the run was ended because it was steady.
    pub attained: bool,
    /// Mean of the last window: requests a second, bytes a second or nanoseconds.
    pub mean: f64,
    /// Largest deviation of a sample from the mean, in per cent of the mean.
    pub deviation_pct: f64,
    /// Slope of the last window, in per cent of the mean per second.
    pub slope_pct: f64,
    /// Samples in the last window; fewer than in a full window if the run was too short.
    pub samples: usize,
}

impl SteadyStop {
    fn samples(&self) -> u64 {
        (self.window_ns / SAMPLE_NS).clamp(SAMPLES_MIN, SAMPLES_MAX)
    }

    pub(super) fn sample_ns(&self) -> u64 {
        self.window_ns.max(WINDOW_MIN_NS) / self.samples()
    }

    /// Returns a sample from the progress of each shard since the last one: rates over the shard's own time, summed.
    fn value(&self, since: &[Totals]) -> f64 {
        let rates = |count: fn(&Totals) -> u64| {
            let rate = |shard: &Totals| count(shard) as f64 * 1e9 / shard.counted_ns.max(1) as f64;
            since.iter().map(rate).sum::<f64>()
        };
        match self.criterion {
            SteadyCriterion::Iops => rates(|shard| shard.requests),
            SteadyCriterion::Bandwidth => rates(|shard| shard.bytes),
            SteadyCriterion::LatencyMean => {
                let requests: u64 = since.iter().map(|shard| shard.requests).sum();
                let latency_ns: f64 = since.iter().map(|shard| shard.latency_sum_ns as f64).sum();
                latency_ns / requests.max(1) as f64
            }
        }
    }

    /// Computes the verdict on the samples of a window, oldest first.
    fn judge(&self, samples: &[f64]) -> Steady {
        let mean = series::mean(samples);
        let deviation = samples.iter().map(|value| (value - mean).abs()).fold(0.0, f64::max);
        let slope = series::line(samples).map_or(0.0, |line| line.slope);
        let pct = |value: f64| if mean > 0.0 { value / mean * 100.0 } else { 0.0 };
        let sample_s = self.sample_ns() as f64 / 1e9;
        let slope_pct = pct(slope / sample_s);
        let deviation_pct = pct(deviation);
        let seen_pct = if self.is_slope { slope_pct.abs() } else { deviation_pct };

        // A run that does nothing is not steady.
        let attained = samples.len() as u64 >= self.samples() && mean > 0.0 && seen_pct <= self.limit_pct;
        Steady { attained, mean, deviation_pct, slope_pct, samples: samples.len() }
    }
}

/// Returns the progress of each shard between two readings of the board.
fn differences(before: &[Totals], now: &[Totals]) -> Vec<Totals> {
    let nothing = std::iter::repeat(&Totals { counted_ns: 0, requests: 0, bytes: 0, latency_sum_ns: 0 });
    let pairs = now.iter().zip(before.iter().chain(nothing));
    let difference = |(now, before): (&Totals, &Totals)| Totals {
        counted_ns: now.counted_ns.saturating_sub(before.counted_ns),
        requests: now.requests.saturating_sub(before.requests),
        bytes: now.bytes.saturating_sub(before.bytes),
        latency_sum_ns: now.latency_sum_ns.saturating_sub(before.latency_sum_ns),
    };
    pairs.map(difference).collect()
}

/// Watches `board` until the run is steady, then calls `end`; or until the sender of `over` is dropped.
pub(super) fn watch(stop: &SteadyStop, board: &Board, over: &Receiver<()>, end: impl FnOnce()) -> Steady {
    let mut samples = VecDeque::new();
    let mut before = Vec::new();
    let mut seen = Steady::default();
    // Shards publish at unknown moments: check more often than once a sample.
    let look = Duration::from_nanos(stop.sample_ns() / 4);
    while over.recv_timeout(look) == Err(RecvTimeoutError::Timeout) {
        let now = board.totals();
        let since = differences(&before, &now);
        if since.iter().any(|shard| shard.counted_ns < stop.sample_ns()) {
            continue;
        }
        samples.push_back(stop.value(&since));
        before = now;
        if samples.len() as u64 > stop.samples() {
            samples.pop_front();
        }

        seen = stop.judge(samples.make_contiguous());
        if seen.attained {
            end();
            break;
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn criteria_are_those_of_fio() {
        let flat = vec![100.0; 8];
        let noisy = vec![90.0, 110.0, 110.0, 90.0, 90.0, 110.0, 110.0, 90.0];
        let rising: Vec<f64> = (0..8).map(|at| 100.0 + f64::from(at)).collect();
        // (samples, slope?, limit, attained)
        let cases = [
            (&flat, false, 0.1, true),
            (&flat, true, 0.1, true),
            (&noisy, false, 9.0, false),
            (&noisy, false, 11.0, true),
            (&noisy, true, 0.1, true),
            (&rising, false, 4.0, true),
            (&rising, true, 0.5, false),
            (&rising, true, 1.0, true),
        ];
        for (samples, is_slope, limit_pct, attained) in cases {
            let stop = SteadyStop { criterion: SteadyCriterion::Iops, is_slope, limit_pct, window_ns: 8_000_000_000 };
            let steady = stop.judge(samples);
            assert_eq!(steady.attained, attained, "{samples:?} {is_slope} {limit_pct}: {steady:?}");
            assert!(!stop.judge(&samples[..7]).attained);
            assert!(!stop.judge(&[0.0; 8]).attained);
        }
    }

    #[test]
    fn values_are_differences_of_each_shard_over_its_own_time() {
        let second_ns = 1_000_000_000;
        let before = [Totals { counted_ns: second_ns, requests: 10, bytes: 100, latency_sum_ns: 50 }];
        let now = [
            Totals { counted_ns: 3 * second_ns, requests: 30, bytes: 500, latency_sum_ns: 250 },
            // This shard has run longer since the last sample; its rate counts the same.
            Totals { counted_ns: 4 * second_ns, requests: 40, bytes: 800, latency_sum_ns: 400 },
        ];
        let of = |criterion, now: &[Totals]| {
            let stop = SteadyStop { criterion, is_slope: false, limit_pct: 1.0, window_ns: 0 };
            stop.value(&differences(&before, now))
        };
        for (shards, rates) in [(&now[..1], [10.0, 200.0, 10.0]), (&now[..], [20.0, 400.0, 10.0])] {
            assert_eq!(of(SteadyCriterion::Iops, shards), rates[0]);
            assert_eq!(of(SteadyCriterion::Bandwidth, shards), rates[1]);
            assert_eq!(of(SteadyCriterion::LatencyMean, shards), rates[2]);
        }
    }
}
