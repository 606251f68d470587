//! A histogram of durations in nanoseconds that takes the memory that its durations need.
//!
//! # Why
//! Every completion is recorded, millions a second, and percentiles are read once in a while. Keeping every value is
//! out of the question, and so is allocating for each. With a thousand classes that have three histograms each, so are
//! 9 KB for a histogram: most writes would miss the cache.
//!
//! # How it works
//! Log-linear buckets, as fio and HdrHistogram have them: durations below 64 ns have a bucket each; above, every
//! power of two is divided into 64 buckets of equal width. A bucket is at most 1/64 as wide as its values are large,
//! so its midpoint is off by at most 1/128 = 0.78 %. Recording is a count of leading zeros, a shift and four
//! additions.
//!
//! A count is written in digits to the base 256, each in an array of its own that reaches from the lowest to the
//! highest power of two that has such a digit. So a histogram takes 64 bytes for each power of two that its durations
//! span, and as much again if more than 255 (65 535, ...) of them share a bucket. Memory is taken when a duration is
//! outside of the range of all before it: at most 35 times for each digit.
//!
//! # Limits
//! One histogram takes 80 bytes and its digits, at most about 9 KB ([`Histogram::memory_bytes`]). Durations from
//! [`Histogram::LIMIT_NS`] (2^40 ns, 18 minutes) on share the last bucket; `max` and `mean` stay exact with them. A
//! bucket stops counting at 4 294 967 295: percentiles are then too low in weight there, while `count`, `mean`, `min`
//! and `max` stay exact. At a million requests a second in one bucket that takes more than an hour; clear the histogram
//! earlier.
//!
//! # Example
//! ```
//! use plimsoll_core::Histogram;
//! let mut latencies = Histogram::new();
//! for us in 1..=1000 {
//!     latencies.record(us * 1000);
//! }
//! let p99_ns = latencies.percentile(99.0) as f64;
//! assert!((p99_ns / 990_000.0 - 1.0).abs() < 0.0079);
//! assert_eq!((latencies.count(), latencies.min(), latencies.max()), (1000, 1_000, 1_000_000));
//! ```

/// Bits of a duration that select its bucket within a power of two.
const SUB_BITS: u32 = 6;
/// Buckets in a power of two.
const SUB_BUCKETS: u64 = 1 << SUB_BITS;
/// Bits of the durations that have buckets of their own: below 2^40 ns.
const LIMIT_BITS: u32 = 40;
/// Digits of a count above the lowest.
const HIGHER_DIGITS: usize = 3;

/// A log-linear histogram of durations in nanoseconds, with percentiles within 0.78 %.
#[derive(Clone)]
pub struct Histogram {
    count: u64,
    sum_ns: u128,
    min_ns: u64,
    max_ns: u64,
    lowest: Digits,
    higher: Option<Box<[Digits; HIGHER_DIGITS]>>,
}

/// One digit, to the base 256, of the counts of a range of buckets; elsewhere it is 0.
#[derive(Clone, Debug)]
struct Digits {
    /// The bucket of the first digit.
    first: usize,
    digits: Vec<u8>,
}

impl Digits {
    const fn new() -> Digits {
        Digits { first: 0, digits: Vec::new() }
    }

    fn get(&self, bucket: usize) -> u8 {
        self.digits.get(bucket.wrapping_sub(self.first)).copied().unwrap_or(0)
    }

    #[inline]
    fn get_mut(&mut self, bucket: usize) -> &mut u8 {
        let at = bucket.wrapping_sub(self.first);
        if at >= self.digits.len() {
            self.extend_to(bucket);
        }
        &mut self.digits[bucket - self.first]
    }

    /// Extends the range to the power of two of `bucket`.
    #[cold]
    fn extend_to(&mut self, bucket: usize) {
        let begin = bucket / SUB_BUCKETS as usize * SUB_BUCKETS as usize;
        let end = begin + SUB_BUCKETS as usize;
        let old = std::mem::take(&mut self.digits);
        let (first, last) =
            if old.is_empty() { (begin, end) } else { (begin.min(self.first), end.max(self.first + old.len())) };

        let mut digits = Vec::with_capacity(last - first);
        digits.resize(if old.is_empty() { 0 } else { self.first - first }, 0);
        digits.extend_from_slice(&old);
        digits.resize(last - first, 0);
        (self.first, self.digits) = (first, digits);
    }

    /// Adds 1, and returns whether that carries into the next digit.
    #[inline]
    fn increment(&mut self, bucket: usize) -> bool {
        let digit = self.get_mut(bucket);
        *digit = digit.wrapping_add(1);
        *digit == 0
    }

    /// Sets a digit. A 0 outside the range takes no memory.
    fn set(&mut self, bucket: usize, digit: u8) {
        if digit != self.get(bucket) {
            *self.get_mut(bucket) = digit;
        }
    }
}

impl Histogram {
    /// Durations from here on, in nanoseconds, share the last bucket: 2^40, about 18.3 minutes.
    pub const LIMIT_NS: u64 = 1 << LIMIT_BITS;

    /// Returns an empty histogram.
    #[must_use]
    pub const fn new() -> Histogram {
        Histogram { count: 0, sum_ns: 0, min_ns: u64::MAX, max_ns: 0, lowest: Digits::new(), higher: None }
    }

    /// Returns the memory that the histogram takes now, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let higher_bytes = self.higher.as_ref().map_or(0, |_| size_of::<[Digits; HIGHER_DIGITS]>());
        size_of::<Histogram>() + higher_bytes + self.digits().map(|of| of.digits.capacity()).sum::<usize>()
    }

    /// Counts one duration of `ns` nanoseconds, any value.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        // 2^64 records take centuries, and their sum fits.
        self.count += 1;
        self.sum_ns += u128::from(ns);
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);

        let bucket = bucket_of(ns);
        if self.lowest.increment(bucket) {
            self.carry(bucket);
        }
    }

    /// Carries into the higher digits after the lowest digit of a bucket has wrapped from 255 to 0.
    #[cold]
    fn carry(&mut self, bucket: usize) {
        let higher = self.higher.get_or_insert_with(Box::default);
        if higher.iter_mut().all(|digits| digits.increment(bucket)) {
            self.set(bucket, u32::MAX);
        }
    }

    /// Returns the digits of the counts, the lowest first.
    fn digits(&self) -> impl Iterator<Item = &Digits> {
        std::iter::once(&self.lowest).chain(self.higher.iter().flat_map(|higher| higher.iter()))
    }

    fn bucket(&self, bucket: usize) -> u32 {
        u32::from(self.lowest.get(bucket)) + self.beyond_lowest(bucket)
    }

    fn beyond_lowest(&self, bucket: usize) -> u32 {
        let Some(higher) = &self.higher else { return 0 };
        higher.iter().rev().fold(0, |count, digits| (count + u32::from(digits.get(bucket))) << 8)
    }

    /// Adds to the count of a bucket, which saturates.
    fn add(&mut self, bucket: usize, count: u32) {
        let lowest = self.lowest.get_mut(bucket);
        match u8::try_from(count).ok().and_then(|count| lowest.checked_add(count)) {
            Some(sum) => *lowest = sum,
            None => self.set(bucket, self.bucket(bucket).saturating_add(count)),
        }
    }

    fn set(&mut self, bucket: usize, count: u32) {
        let [lowest, higher @ ..] = count.to_le_bytes();
        // Even if 0: the range of the lowest digits must include every bucket with a count.
        *self.lowest.get_mut(bucket) = lowest;
        if self.higher.is_some() || higher != [0; HIGHER_DIGITS] {
            let digits = self.higher.get_or_insert_with(Box::default);
            digits.iter_mut().zip(higher).for_each(|(digits, digit)| digits.set(bucket, digit));
        }
    }

    /// Returns the buckets that are not empty, with their counts.
    fn counts(&self) -> impl Iterator<Item = (usize, u32)> {
        // The range of the lowest digits includes every bucket with a count.
        let numbered = (self.lowest.first..).zip(&self.lowest.digits);
        let counts = numbered.map(|(bucket, lowest)| (bucket, u32::from(*lowest) + self.beyond_lowest(bucket)));
        counts.filter(|(_, count)| *count > 0)
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Histogram) {
        self.count = self.count.saturating_add(other.count);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        for (bucket, count) in other.counts() {
            self.add(bucket, count);
        }
    }

    /// Clears all counts, and keeps the memory.
    pub fn clear(&mut self) {
        self.lowest.digits.fill(0);
        self.higher.iter_mut().flat_map(|higher| higher.iter_mut()).for_each(|digits| digits.digits.fill(0));
        (self.count, self.sum_ns, self.min_ns, self.max_ns) = (0, 0, u64::MAX, 0);
    }

    /// Returns the number of durations recorded.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns whether nothing was recorded.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the exact sum of all durations in nanoseconds.
    #[must_use]
    pub const fn sum_ns(&self) -> u128 {
        self.sum_ns
    }

    /// Returns the exact shortest duration in nanoseconds; 0 if the histogram is empty.
    #[must_use]
    pub const fn min(&self) -> u64 {
        if self.count == 0 { 0 } else { self.min_ns }
    }

    /// Returns the exact longest duration in nanoseconds; 0 if the histogram is empty.
    #[must_use]
    pub const fn max(&self) -> u64 {
        self.max_ns
    }

    /// Returns the mean in nanoseconds, exact but for the rounding of `f64`; 0 if the histogram is empty.
    #[must_use]
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum_ns as f64 / self.count as f64 }
    }

    /// Returns the duration in nanoseconds that `percent` per cent of all durations do not exceed (nearest rank),
    /// within 0.78 %; 0 if the histogram is empty.
    ///
    /// `percent` runs from 0 (the minimum) to 100 (the maximum); outside it is clamped, NaN counts as 0.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> u64 {
        let total: u64 = self.counts().map(|(_, count)| u64::from(count)).sum();
        // A float-to-integer `as` saturates and maps NaN to 0.
        let rank = ((percent / 100.0 * total as f64).ceil() as u64).clamp(1, total.max(1));
        if rank == 1 {
            return self.min();
        }
        if rank == total {
            return self.max_ns;
        }

        let mut seen = 0;
        for (index, count) in self.counts() {
            seen += u64::from(count);
            if seen >= rank {
                let (low_ns, width_ns) = range_of(index);
                return (low_ns + width_ns / 2).clamp(self.min_ns, self.max_ns);
            }
        }
        self.max_ns
    }

    /// Returns the width in nanoseconds of the bucket that holds `duration_ns`: 1 below 128, then a 64th of its power
    /// of two.
    #[must_use]
    pub const fn bucket_width_ns(duration_ns: u64) -> u64 {
        if duration_ns < 2 * SUB_BUCKETS { 1 } else { (1 << duration_ns.ilog2()) / SUB_BUCKETS }
    }

    /// Returns the buckets that are not empty, in rising order: the longest duration in nanoseconds that the bucket
    /// holds (inclusive; the last also holds those beyond [`Histogram::LIMIT_NS`]), and its count.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.counts().map(|(index, count)| {
            let (low_ns, width_ns) = range_of(index);
            (low_ns + width_ns - 1, count)
        })
    }
}

/// Two histograms are equal if they recorded the same durations in any order.
impl PartialEq for Histogram {
    fn eq(&self, other: &Histogram) -> bool {
        (self.count, self.sum_ns, self.min_ns, self.max_ns) == (other.count, other.sum_ns, other.min_ns, other.max_ns)
            && self.counts().eq(other.counts())
    }
}

impl Eq for Histogram {}

impl Default for Digits {
    fn default() -> Digits {
        Digits::new()
    }
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram::new()
    }
}

impl core::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Histogram")
            .field("count", &self.count)
            .field("min_ns", &self.min())
            .field("mean_ns", &self.mean())
            .field("p99_ns", &self.percentile(99.0))
            .field("max_ns", &self.max_ns)
            .finish()
    }
}

/// Returns the number of the bucket that counts `ns`.
#[inline]
fn bucket_of(ns: u64) -> usize {
    let ns = ns.min(Histogram::LIMIT_NS - 1);
    // The highest bit. Durations below 128 fall into the groups 0 and 1, whose buckets are 1 ns wide.
    let top_bit = (ns | SUB_BUCKETS).ilog2();
    let shift = top_bit - SUB_BITS;
    // The leading 1 of the shifted value adds one group.
    (u64::from(shift) * SUB_BUCKETS + (ns >> shift)) as usize
}

/// Returns the shortest duration that bucket `index` holds, and the bucket's width, both in nanoseconds.
fn range_of(index: usize) -> (u64, u64) {
    let index = index as u64;
    let shift = (index / SUB_BUCKETS).saturating_sub(1);
    ((index - shift * SUB_BUCKETS) << shift, 1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One group of 64 for the durations below 64 ns, and one for each power of two above.
    const BUCKETS: usize = (LIMIT_BITS - SUB_BITS + 1) as usize * SUB_BUCKETS as usize;

    #[test]
    fn the_buckets_tile_the_range_without_gap() {
        let mut next_ns = 0;
        for index in 0..BUCKETS {
            let (low_ns, width_ns) = range_of(index);
            assert_eq!(low_ns, next_ns, "bucket {index}");
            assert_eq!((bucket_of(low_ns), bucket_of(low_ns + width_ns - 1)), (index, index));
            assert_eq!(Histogram::bucket_width_ns(low_ns), width_ns, "bucket {index}");
            assert_eq!(Histogram::bucket_width_ns(low_ns + width_ns - 1), width_ns, "bucket {index}");
            assert!(width_ns == 1 || width_ns * SUB_BUCKETS <= low_ns, "bucket {index} is too wide");
            next_ns = low_ns + width_ns;
        }
        assert_eq!(next_ns, Histogram::LIMIT_NS);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_full_bucket_stays_full_and_percentiles_stay_in_range() {
        let mut histogram = Histogram::new();
        histogram.record(100);
        histogram.set(bucket_of(100), u32::MAX);
        histogram.count = u64::from(u32::MAX);
        histogram.record(100);
        histogram.record(5_000);
        assert_eq!(histogram.bucket(bucket_of(100)), u32::MAX);
        let mut twice = histogram.clone();
        twice.merge(&histogram);
        assert_eq!(twice.bucket(bucket_of(100)), u32::MAX);
        assert_eq!(histogram.count(), u64::from(u32::MAX) + 2);
        assert_eq!((histogram.percentile(50.0), histogram.percentile(100.0)), (100, 5_000));
    }
}
