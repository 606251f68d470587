//! How many requests were in the queue and the device, and how many bytes moved, over the time of a trace.
//!
//! **Why.** A depth that is flat at a limit, or that grows while the bandwidth does not, says more than any percentile.
//!
//! **How.** [`Timeline`] divides the trace into at most [`BINS_MAX`] parts (module `parts`). A span adds its time to
//! each part that it touches, so means are exact. [`Peak`] follows the depth: it holds begins and ends back, sorts
//! them, and counts them in order.
//!
//! **Limits.** A begin or end that arrives after [`HELD_EDGES`] later ones is counted out of its place; then the peak
//! may be a little off, and `Peak::late_edges` is not 0. One time stamp far away makes all parts long.
//!
//! **Example.** Two requests of 1 ms, the second half a millisecond after the first:
//! ```
//! use plimsoll_observe::trace::depth::{Peak, Timeline};
//! let (mut timeline, mut peak) = (Timeline::default(), Peak::default());
//! for (from_ns, to_ns) in [(0, 1_000_000), (500_000, 1_500_000)] {
//!     timeline.in_device(from_ns, to_ns);
//!     peak.count(from_ns, to_ns);
//! }
//! assert_eq!(peak.finish(), 2);
//! let total_ns: f64 = timeline.points(0).iter().map(|point| point.device_depth * point.length_ns as f64).sum();
//! assert_eq!(total_ns, 2_000_000.0);
//! ```

use serde::Serialize;

use super::parts::{Parts, Sum};

/// Most parts of a timeline.
pub const BINS_MAX: usize = 512;

/// Begins and ends that [`Peak`] holds back, so as to count them in order.
pub const HELD_EDGES: usize = 1 << 18;

/// The latest time that [`Peak`] tells apart: a time and the mark of a begin share a word.
const TIME_MAX_NS: u64 = u64::MAX >> 1;

/// The means of one part of the time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TimePoint {
    /// Begin of the part, in ns after the begin of the trace.
    pub from_ns: u64,
    /// Length of the part, in ns.
    #[serde(skip)]
    pub length_ns: u64,
    /// Mean number of pieces in the queue.
    pub queue_depth: f64,
    /// Mean number of pieces in the device.
    pub device_depth: f64,
    /// Bytes read per second.
    pub read_bytes_per_s: f64,
    /// Bytes written per second.
    pub write_bytes_per_s: f64,
}

/// Sums of one part: time spent by all pieces together, and bytes.
#[derive(Clone, Copy, Default)]
struct Bin {
    queue_ns: u64,
    device_ns: u64,
    read_bytes: u64,
    write_bytes: u64,
}

impl Sum for Bin {
    fn plus(self, other: Bin) -> Bin {
        Bin {
            queue_ns: self.queue_ns.saturating_add(other.queue_ns),
            device_ns: self.device_ns.saturating_add(other.device_ns),
            read_bytes: self.read_bytes.saturating_add(other.read_bytes),
            write_bytes: self.write_bytes.saturating_add(other.write_bytes),
        }
    }
}

/// Depths and bandwidth over time.
#[derive(Clone, Default)]
pub struct Timeline {
    bins: Parts<Bin, BINS_MAX>,
}

impl Timeline {
    /// Adds a piece in the queue from `from_ns` to `to_ns`. If it ends before it begins, does nothing.
    pub fn in_queue(&mut self, from_ns: u64, to_ns: u64) {
        self.bins.spread(from_ns, to_ns, |bin, ns| bin.queue_ns = bin.queue_ns.saturating_add(ns));
    }

    /// Adds a piece in the device, as [`Timeline::in_queue`] does.
    pub fn in_device(&mut self, from_ns: u64, to_ns: u64) {
        self.bins.spread(from_ns, to_ns, |bin, ns| bin.device_ns = bin.device_ns.saturating_add(ns));
    }

    /// Adds bytes that have moved at `time_ns`.
    pub fn moved(&mut self, time_ns: u64, is_read: bool, len_bytes: u64) {
        if let Some(bin) = self.bins.at(time_ns) {
            let sum = if is_read { &mut bin.read_bytes } else { &mut bin.write_bytes };
            *sum = sum.saturating_add(len_bytes);
        }
    }

    /// Returns the parts in order of time, counted from `zero_ns`.
    #[must_use]
    pub fn points(&self, zero_ns: u64) -> Vec<TimePoint> {
        let length_ns = self.bins.length_ns();
        let per_second = |bytes: u64| bytes as f64 * 1e9 / length_ns as f64;
        let point = |(begin_ns, bin): (u64, Bin)| TimePoint {
            from_ns: begin_ns.saturating_sub(zero_ns),
            length_ns,
            queue_depth: bin.queue_ns as f64 / length_ns as f64,
            device_depth: bin.device_ns as f64 / length_ns as f64,
            read_bytes_per_s: per_second(bin.read_bytes),
            write_bytes_per_s: per_second(bin.write_bytes),
        };
        self.bins.all().into_iter().map(point).collect()
    }
}

/// Follows the highest number of pieces at one time.
#[derive(Clone, Default)]
pub struct Peak {
    /// Twice the time, plus 1 for a begin, so that an end sorts before a begin of the same time.
    edges: Vec<u64>,
    counted_to: u64,
    depth: i64,
    peak: i64,
    late_edges: u64,
}

impl Peak {
    /// Adds a piece that was there from `from_ns` to `to_ns`. If it ends before it begins, does nothing.
    pub fn count(&mut self, from_ns: u64, to_ns: u64) {
        if to_ns <= from_ns {
            return;
        }
        let (from_ns, to_ns) = (from_ns.min(TIME_MAX_NS), to_ns.min(TIME_MAX_NS));
        for edge in [from_ns << 1 | 1, to_ns << 1] {
            if edge < self.counted_to {
                self.late_edges += 1;
                self.pass(edge);
            } else {
                self.edges.push(edge);
            }
        }
        if self.edges.len() >= 2 * HELD_EDGES {
            self.count_first(HELD_EDGES);
        }
    }

    fn pass(&mut self, edge: u64) {
        self.depth += if edge & 1 == 1 { 1 } else { -1 };
        self.peak = self.peak.max(self.depth);
    }

    fn count_first(&mut self, count: usize) {
        self.edges.sort_unstable();
        let later = self.edges.split_off(count.min(self.edges.len()));
        let now = std::mem::replace(&mut self.edges, later);
        self.counted_to = now.last().copied().unwrap_or(self.counted_to);
        now.into_iter().for_each(|edge| self.pass(edge));
    }

    /// Returns the begins and ends that came too late to be counted in their place.
    #[must_use]
    pub(crate) fn late_edges(&self) -> u64 {
        self.late_edges
    }

    /// Counts the rest and returns the peak.
    #[must_use]
    pub fn finish(&mut self) -> u64 {
        self.count_first(usize::MAX);
        u64::try_from(self.peak).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a sequence of numbers that looks random.
    fn numbers(mut state: u64) -> impl Iterator<Item = u64> {
        std::iter::from_fn(move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            Some(state >> 33)
        })
    }

    #[test]
    fn time_is_kept_however_long_the_trace_becomes_and_in_whatever_order_it_comes() {
        for longest_ns in [10, 5_000, 3_000_000, 40_000_000_000] {
            let mut timeline = Timeline::default();
            let (mut total_ns, mut bytes) = (0.0, 0.0);
            let mut numbers = numbers(longest_ns);
            for _ in 0..2_000 {
                let from_ns = (1 << 50) + numbers.next().unwrap() * 977 % (4 * longest_ns);
                let length_ns = numbers.next().unwrap() % longest_ns;
                timeline.in_queue(from_ns, from_ns + length_ns);
                timeline.in_device(from_ns + length_ns, from_ns + 2 * length_ns);
                timeline.moved(from_ns, length_ns.is_multiple_of(2), 4096);
                total_ns += length_ns as f64;
                bytes += 4096.0;
            }
            let points = timeline.points(0);
            assert!(points.len() <= BINS_MAX);
            let sum = |of: fn(&TimePoint) -> f64| -> f64 { points.iter().map(|it| of(it) * it.length_ns as f64).sum() };
            let is_near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b;
            assert!(is_near(sum(|point| point.queue_depth), total_ns), "{longest_ns}");
            assert!(is_near(sum(|point| point.device_depth), total_ns), "{longest_ns}");
            assert!(
                is_near(sum(|point| point.read_bytes_per_s + point.write_bytes_per_s) / 1e9, bytes),
                "{longest_ns}"
            );
        }
    }

    #[test]
    fn depth_stands_where_it_was() {
        let mut timeline = Timeline::default();
        // Eight parts of 1,024 ns: one piece throughout, one in the third and the first half of the fourth.
        timeline.in_device(0, 8 * 1024);
        timeline.in_device(2 * 1024, 3 * 1024 + 512);
        let depths: Vec<f64> = timeline.points(0).iter().map(|point| point.device_depth).collect();
        assert_eq!(depths, [1.0, 1.0, 2.0, 1.5, 1.0, 1.0, 1.0, 1.0]);
        timeline.in_device(9, 9);
        timeline.in_device(9, 8);
        assert_eq!(timeline.points(0).len(), 8);
    }

    #[test]
    fn peaks() {
        let cases: [(&[(u64, u64)], u64); 5] = [
            (&[], 0),
            (&[(1, 2), (2, 3)], 1),
            (&[(1, 3), (2, 4), (3, 5)], 2),
            (&[(5, 5), (7, 6)], 0),
            (&[(8, 9), (1, 20), (2, 9), (3, 4)], 3),
        ];
        for (spans, expected) in cases {
            let mut peak = Peak::default();
            spans.iter().for_each(|(from_ns, to_ns)| peak.count(*from_ns, *to_ns));
            assert_eq!((peak.finish(), peak.late_edges()), (expected, 0), "{spans:?}");
        }
    }

    #[test]
    fn a_peak_of_many_spans_is_exact_when_ends_are_roughly_in_order_and_told_when_not() {
        let mut peak = Peak::default();
        for at in 0..300_000 {
            // Sixteen at a time, handed over in blocks of reverse order.
            let at = at / 100 * 100 + 99 - at % 100;
            peak.count(10 * at, 10 * at + 160);
        }
        assert!(peak.edges.len() < 2 * HELD_EDGES);
        assert_eq!((peak.finish(), peak.late_edges()), (16, 0));
        peak.count(0, 1 << 40);
        assert_eq!(peak.late_edges(), 1);
    }

    #[test]
    fn times_at_the_ends_of_the_range_do_no_harm() {
        let mut timeline = Timeline::default();
        timeline.in_queue(0, u64::MAX);
        timeline.in_device(u64::MAX - 1, u64::MAX);
        timeline.moved(u64::MAX, true, u64::MAX);
        assert!(timeline.points(0).len() <= BINS_MAX);
    }
}
