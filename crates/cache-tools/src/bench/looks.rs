//! Hit rate and latency of look-ups over time.
//!
//! # Why
//! A cold cache has no hits, and one figure for the whole run shows neither how long the cache took to warm up nor
//! whether latency held meanwhile.
//!
//! # How it works
//! The measurement has `WINDOWS` equal windows. Each thread counts in its own `LookUps`, by the time at which a
//! look-up ended; at the end they are merged and become points.
//!
//! # Limits
//! A p99 needs `HITS_LEAST` hits in its window. In a measurement that ended early, the window in which it ended is
//! left out.
//!
//! # Example
//! A minute has windows of a second; with 300 hits and 700 misses in one, its hit rate is 0.3.

use plimsoll::core::Histogram;
use serde::Serialize;

pub(super) const WINDOWS: usize = 60;
/// Fewest hits that have a p99.
const HITS_LEAST: u64 = 100;
/// Largest deviation of a steady hit rate from the last one, as a part of the last.
const STEADY: f64 = 0.1;

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LookUpPoint {
    /// Middle of the window, in seconds since the measurement began.
    pub t: f64,
    pub hits: u64,
    pub misses: u64,
    /// Part of the look-ups that hit; `None` without look-ups.
    pub hit_rate: Option<f64>,
    /// 99th percentile of the latency of hits, in nanoseconds; `None` with fewer than 100 hits.
    pub hit_p99_ns: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct LookUps {
    windows: Vec<(Histogram, u64)>,
}

impl LookUps {
    /// Counts a look-up that ended `at_ns` after the beginning of a measurement of `whole_ns`: a hit with its latency,
    /// or (`None`) a miss.
    pub(super) fn record(&mut self, at_ns: u64, whole_ns: u64, hit_ns: Option<u64>) {
        self.windows.resize_with(WINDOWS, Default::default);
        let at = u128::from(at_ns) * WINDOWS as u128 / u128::from(whole_ns.max(1));
        let Some((hits, misses)) = self.windows.get_mut((at as usize).min(WINDOWS - 1)) else { return };
        match hit_ns {
            Some(hit_ns) => hits.record(hit_ns),
            None => *misses += 1,
        }
    }

    pub(super) fn merge(&mut self, other: &LookUps) {
        self.windows.resize_with(self.windows.len().max(other.windows.len()), Default::default);
        for ((hits, misses), (other_hits, other_misses)) in self.windows.iter_mut().zip(&other.windows) {
            hits.merge(other_hits);
            *misses += other_misses;
        }
    }

    /// Returns the windows of a measurement of `whole_s` that lie within its first `seconds`; none without look-ups.
    pub(super) fn points(&self, whole_s: f64, seconds: f64) -> Vec<LookUpPoint> {
        let window_s = whole_s / WINDOWS as f64;
        let full = (seconds / window_s + 0.5).floor();
        let windows = self.windows.iter().enumerate().take_while(|(at, _)| (*at as f64) < full);
        let point = |(at, (times, misses)): (usize, &(Histogram, u64))| {
            let hits = times.count();
            let all = hits + misses;
            LookUpPoint {
                t: (at as f64 + 0.5) * window_s,
                hits,
                misses: *misses,
                hit_rate: (all > 0).then(|| hits as f64 / all as f64),
                hit_p99_ns: (hits >= HITS_LEAST).then(|| times.percentile(99.0)),
            }
        };
        windows.map(point).collect()
    }
}

/// Returns the time in seconds from which on every hit rate is within a tenth of the mean of the last quarter, or
/// `None` if the rate still changes in that quarter or there are too few look-ups.
pub(super) fn steady_from_s(points: &[LookUpPoint]) -> Option<f64> {
    let rates: Vec<(f64, f64)> = points.iter().filter_map(|point| Some((point.t, point.hit_rate?))).collect();
    let quarter = rates.get(rates.len() - rates.len() / 4..).filter(|quarter| !quarter.is_empty())?;
    let last = quarter.iter().map(|(_, rate)| rate).sum::<f64>() / quarter.len() as f64;
    let outside = rates.iter().rposition(|(_, rate)| (rate - last).abs() > STEADY * last);
    let from = outside.map_or(0, |at| at + 1);
    (from <= rates.len() - quarter.len()).then(|| rates.get(from).map(|(t, _)| *t)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    /// Returns a minute with 1000 look-ups a second, of which `hits` of the second are answered in 1 ms.
    fn minute(hits: impl Fn(u64) -> u64) -> LookUps {
        let mut threads = [LookUps::default(), LookUps::default()];
        for second in 0..60 {
            for number in 0..1000 {
                let hit_ns = (number < hits(second)).then_some(1_000_000);
                threads[number as usize % 2].record(second * S + number, 60 * S, hit_ns);
            }
        }
        let [mut first, second] = threads;
        first.merge(&second);
        first
    }

    #[test]
    fn a_cache_warms_up() {
        let points = minute(|second| (second * 16).min(300)).points(60.0, 60.0);
        assert_eq!(points.len(), WINDOWS);
        assert_eq!((points[0].t, points[0].hits, points[0].misses, points[0].hit_p99_ns), (0.5, 0, 1000, None));
        assert_eq!((points[59].hit_rate, points[59].hits), (Some(0.3), 300));
        let p99 = points[59].hit_p99_ns.expect("300 hits have a p99");
        assert!((990_000..1_010_000).contains(&p99), "{p99}");
        assert_eq!(steady_from_s(&points), Some(17.5));
    }

    #[test]
    fn a_rate_that_still_moves_is_not_steady() {
        assert_eq!(steady_from_s(&minute(|second| second * 10).points(60.0, 60.0)), None);
        assert_eq!(steady_from_s(&minute(|_| 500).points(60.0, 60.0)), Some(0.5));
        assert_eq!(steady_from_s(&LookUps::default().points(60.0, 60.0)), None);
    }

    #[test]
    fn the_window_in_which_it_was_interrupted_is_left_out() {
        assert_eq!(minute(|_| 1).points(60.0, 10.2).len(), 10);
        let mut late = LookUps::default();
        late.record(61 * S, 60 * S, None);
        assert_eq!(late.points(60.0, 60.05).last().map(|point| point.misses), Some(1));
    }
}
