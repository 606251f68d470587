//! Latencies that can be merged: a histogram as a list.
//!
//! **Why.** Percentiles of several runs or shards cannot be added; the counts behind them can.
//!
//! **How.** Lists the non-empty buckets in rising order: the longest latency in nanoseconds that each can have, and its
//! count. The buckets are those of [`plimsoll::core::Histogram`], so a merge adds counts of equal buckets, without
//! loss.
//!
//! **Limits.** The middle of a bucket is off by at most 0.78 %, also for the shortest and the longest latency.
//! Latencies above 18 minutes are in the last bucket.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_measure::report::Buckets;
//! let mut histogram = plimsoll::core::Histogram::new();
//! (1..=100).for_each(|us| histogram.record(us * 1000));
//! let mut twice = Buckets::of(&histogram);
//! twice.merge(&Buckets::of(&histogram));
//! assert_eq!(twice.count(), 200);
//! assert!((twice.percentile_ns(50.0) as f64 / 50_000.0 - 1.0).abs() < 0.0079);
//! ```

use plimsoll::core::Histogram;
use serde::{Deserialize, Serialize};

/// The non-empty buckets of a histogram of latencies. As JSON a list of `[upper_ns, count]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<(u64, u64)>", into = "Vec<(u64, u64)>")]
pub struct Buckets(Vec<(u64, u64)>);

impl Buckets {
    pub fn of(histogram: &Histogram) -> Buckets {
        Buckets(histogram.iter().map(|(upper_ns, count)| (upper_ns, u64::from(count))).collect())
    }

    /// Returns the longest latency in nanoseconds of each bucket, rising, and its count, above 0.
    pub fn as_slice(&self) -> &[(u64, u64)] {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn count(&self) -> u64 {
        self.0.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    pub fn merge(&mut self, other: &Buckets) {
        let mut merged = Vec::with_capacity(self.0.len().max(other.0.len()));
        let (mut mine, mut theirs) = (self.0.iter().peekable(), other.0.iter().peekable());
        while let Some(upper_ns) = [mine.peek(), theirs.peek()].into_iter().flatten().map(|bucket| bucket.0).min() {
            let take = |of: &mut std::iter::Peekable<std::slice::Iter<'_, (u64, u64)>>| {
                of.next_if(|bucket| bucket.0 == upper_ns).map_or(0, |bucket| bucket.1)
            };
            merged.push((upper_ns, take(&mut mine).saturating_add(take(&mut theirs))));
        }
        self.0 = merged;
    }

    /// Returns the latency in nanoseconds that `percent` per cent do not exceed (nearest rank), within 0.78 %; 0
    /// without latencies. `percent` is clamped to 0 to 100; NaN counts as 0.
    pub fn percentile_ns(&self, percent: f64) -> u64 {
        let total = self.count();
        // A float-to-integer `as` saturates and maps NaN to 0.
        let rank = ((percent / 100.0 * total as f64).ceil() as u64).clamp(1, total.max(1));
        let mut seen: u64 = 0;
        let reaches = |(_, count): &&(u64, u64)| {
            seen = seen.saturating_add(*count);
            seen >= rank
        };
        self.0.iter().find(reaches).map_or(0, |(upper_ns, _)| middle_ns(*upper_ns))
    }
}

/// Returns the middle of the histogram's bucket whose longest latency is `upper_ns`.
pub(crate) fn middle_ns(upper_ns: u64) -> u64 {
    let width_ns = Histogram::bucket_width_ns(upper_ns);
    upper_ns - (width_ns - 1 - width_ns / 2)
}

impl TryFrom<Vec<(u64, u64)>> for Buckets {
    type Error = &'static str;

    /// # Errors
    /// A message if the latencies do not rise, or a count is 0.
    fn try_from(buckets: Vec<(u64, u64)>) -> Result<Buckets, Self::Error> {
        if !buckets.is_sorted_by(|low, high| low.0 < high.0) {
            return Err("the latencies of a histogram must rise");
        }
        if buckets.iter().any(|(_, count)| *count == 0) {
            return Err("a bucket of a histogram counts nothing");
        }
        Ok(Buckets(buckets))
    }
}

impl From<Buckets> for Vec<(u64, u64)> {
    fn from(buckets: Buckets) -> Self {
        buckets.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns latencies over nine powers of ten, in no order.
    fn latencies(seed: u64) -> impl Iterator<Item = u64> {
        (0..10_000).map(move |index: u64| {
            let random = (index + seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
            1 + random % 10_u64.pow(1 + (index % 9) as u32)
        })
    }

    #[test]
    fn merging_is_exact_and_percentiles_agree_with_the_histogram() {
        let mut all = Histogram::new();
        let mut merged = Buckets::default();
        assert_eq!((merged.percentile_ns(50.0), merged.count(), merged.is_empty()), (0, 0, true));
        for seed in 0..3 {
            let mut one = Histogram::new();
            latencies(seed).for_each(|ns| one.record(ns));
            all.merge(&one);
            merged.merge(&Buckets::of(&one));
        }
        assert_eq!(merged, Buckets::of(&all));
        for percent in [0.0, 1.0, 50.0, 95.0, 99.0, 99.9, 99.99, 100.0, f64::NAN] {
            let (ours, exact) = (merged.percentile_ns(percent) as f64, all.percentile(percent) as f64);
            assert!((ours - exact).abs() <= exact * 0.0079, "p{percent}: {ours} and not {exact}");
        }
    }

    #[test]
    fn the_middle_of_a_bucket_is_that_of_the_histogram() {
        for ns in [1, 63, 64, 127, 128, 129, 1000, 65_537, 1 << 39] {
            let mut histogram = Histogram::new();
            for value in [ns, ns, ns] {
                histogram.record(value);
            }
            // The second of three is neither the shortest nor the longest: a middle, clamped to the only value.
            let middle_ns = Buckets::of(&histogram).percentile_ns(50.0);
            assert!(middle_ns.abs_diff(ns) as f64 <= ns as f64 * 0.0079, "{ns}: {middle_ns}");
        }
    }

    #[test]
    fn lists_that_are_no_histogram() {
        for (text, is_good) in [
            ("[]", true),
            ("[[5,1],[9,2]]", true),
            ("[[9,1],[5,2]]", false),
            ("[[5,1],[5,2]]", false),
            ("[[5,0]]", false),
            ("[[5]]", false),
            ("[[-5,1]]", false),
        ] {
            assert_eq!(serde_json::from_str::<Buckets>(text).is_ok(), is_good, "{text}");
        }
        let huge: Buckets =
            serde_json::from_str(&format!("[[{0},{0}],[18446744073709551615,5]]", u64::MAX - 1)).unwrap();
        assert_eq!(huge.count(), u64::MAX);
        assert!(huge.percentile_ns(100.0) > 1 << 60);
    }
}
