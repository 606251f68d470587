//! A histogram of latencies as a list.
//!
//! **Why.** Percentiles of several runs or shards cannot be added; the counts behind them can.
//!
//! **How.** Lists the non-empty buckets in rising order: the longest latency in nanoseconds that each can have, and its
//! count. The buckets are those of [`plimsoll::core::Histogram`], so counts of equal buckets add up without loss.
//!
//! **Limits.** The middle of a bucket is off by at most 0.78 %, also for the shortest and the longest latency.
//! Latencies above 18 minutes are in the last bucket.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_measure::report::Buckets;
//! let mut histogram = plimsoll::core::Histogram::new();
//! histogram.record(50);
//! histogram.record(50);
//! assert_eq!(Vec::from(Buckets::of(&histogram)), [(50, 2)]);
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

    #[test]
    fn the_middle_of_a_bucket_is_that_of_the_histogram() {
        for ns in [1, 63, 64, 127, 128, 129, 1000, 65_537, 1 << 39] {
            let mut histogram = Histogram::new();
            histogram.record(ns);
            let buckets = Vec::from(Buckets::of(&histogram));
            assert!(middle_ns(buckets[0].0).abs_diff(ns) as f64 <= ns as f64 * 0.0079, "{ns}: {buckets:?}");
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
    }
}
