//! The results of a simulated world: samples while it runs, and a report at its end.
//!
//! # Why
//! Results are plain numbers with units in their names; tables, verdicts and pictures are made from them elsewhere.
//!
//! # How it works
//! Counting begins after the warm-up. A class is counted per disk and, inside, per shard. Over the shards of a class,
//! waiting requests and bandwidth are sums, and delay is a maximum: the sum describes the disk, the maximum the worst
//! shard.
//!
//! # Limits
//! Histograms have the accuracy of [`Histogram`]: 0.78 %. Series are not kept: callers that need one observe samples.
//!
//! # Example
//! ```
//! let mut latencies = plimsoll_core::Histogram::new();
//! latencies.record(1_500);
//! let summary = plimsoll_sim::report::LatencySummary::of(&latencies);
//! assert_eq!((summary.count, summary.max_ns), (1, 1_500));
//! ```

use plimsoll_core::{ClassStats, Histogram};

use crate::world::counters::DiskCounters;

/// Percentiles of one histogram, in nanoseconds; all 0 if nothing was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LatencySummary {
    pub count: u64,
    pub mean_ns: f64,
    pub p50_ns: u64,
    pub p95_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    /// The longest, exact.
    pub max_ns: u64,
}

impl LatencySummary {
    pub fn of(histogram: &Histogram) -> LatencySummary {
        LatencySummary {
            count: histogram.count(),
            mean_ns: histogram.mean(),
            p50_ns: histogram.percentile(50.0),
            p95_ns: histogram.percentile(95.0),
            p99_ns: histogram.percentile(99.0),
            p999_ns: histogram.percentile(99.9),
            max_ns: histogram.max(),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// End of the interval, in nanoseconds from the beginning of the world, warm-up included.
    pub at_ns: u64,
    /// Length of the interval, in nanoseconds.
    pub interval_ns: u64,
    pub is_warmup: bool,
    /// By disk and class, in the order of the world's lists: class c of disk d is at d * classes + c. Entries of groups
    /// are empty.
    pub classes: Vec<ClassSample>,
    pub disks: Vec<DiskSample>,
    pub shards: Vec<ShardSample>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClassSample {
    /// The class, as its index in the world's list.
    pub class: usize,
    /// The disk, as its index in the world's list.
    pub disk: usize,
    /// Completed requests, including failed ones.
    pub requests: u64,
    pub bytes: u64,
    /// Device time charged in nanoseconds, by the disk model.
    pub device_time_ns: u64,
    /// Mean latency as the jobs see it.
    pub mean_ns: f64,
    /// 99th percentile of that latency.
    pub p99_ns: u64,
    /// Mean time in the I/O queue of the requests first dispatched in this interval, on the shard where it is longest.
    pub delay_ns: f64,
    /// Requests waiting at the end of the interval, summed over the I/O queues.
    pub queued: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DiskSample {
    /// Pieces in the device at the end of the interval.
    pub in_device: u32,
    pub mean_in_device: f64,
    /// Device time in the device at the end, in nanoseconds, by the disk model.
    pub in_device_ns: u64,
    /// The window of device time at the end, in nanoseconds.
    pub window_ns: u64,
    /// The part of the model's capacity that the scheduler assumes at the end of the interval: 1 is all of it.
    pub capacity_scale: f64,
    /// The counters that a kernel would keep for the disk, from the world's beginning to the end of the interval.
    pub counters: DiskCounters,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ShardSample {
    /// CPU time of requests, messages and CPU jobs, in nanoseconds. A slice that reaches beyond the interval counts in
    /// the one in which it began.
    pub cpu_ns: u64,
}

#[derive(Clone, Debug)]
pub struct WorldReport {
    pub seed: u64,
    /// Length of the measured part, in nanoseconds.
    pub duration_ns: u64,
    /// By disk and class, in the order of the world's lists; groups are left out.
    pub classes: Vec<ClassReport>,
    pub disks: Vec<DiskReport>,
    pub jobs: Vec<JobReport>,
    pub shards: Vec<ShardReport>,
    /// Outcomes of all requests, including those of the warm-up.
    pub totals: Totals,
    /// Number of events, including those of the warm-up.
    pub events: u64,
    /// A hash over all events in their order: equal for equal specifications and seeds.
    pub log_hash: u64,
}

impl WorldReport {
    pub fn class(&self, name: &str, disk: usize) -> Option<&ClassReport> {
        self.classes.iter().find(|class| class.name == name && class.disk == disk)
    }

    pub fn job(&self, name: &str) -> Option<&JobReport> {
        self.jobs.iter().find(|job| job.name == name)
    }
}

#[derive(Clone, Debug)]
pub struct ClassReport {
    pub name: String,
    /// The disk, as its index in the world's list.
    pub disk: usize,
    /// Counters of the I/O queues, summed over the shards, with the time waited by reason.
    pub stats: ClassStats,
    /// Completed requests, including failed ones.
    pub requests: u64,
    pub bytes: u64,
    pub iops: f64,
    pub bytes_per_s: f64,
    /// Device time charged, in nanoseconds by the disk model.
    pub device_time_ns: u64,
    /// Requests waiting at the end, summed over the I/O queues.
    pub queued: u64,
    /// Mean time in the I/O queue, on the shard where it is longest.
    pub delay_ns: f64,
    /// From enqueue to first dispatch.
    pub queue: Histogram,
    /// From dispatch to completion, of each piece.
    pub device: Histogram,
    /// As the jobs see it: from the time a request was due to its result, messages between shards included.
    pub total: Histogram,
    pub by_shard: Vec<ClassOnShard>,
}

#[derive(Clone, Copy, Debug)]
pub struct ClassOnShard {
    pub shard: usize,
    /// Counters of the I/O queue.
    pub stats: ClassStats,
    pub iops: f64,
    pub bytes_per_s: f64,
    /// From enqueue to first dispatch.
    pub queue: LatencySummary,
    /// From dispatch to completion, of each piece.
    pub device: LatencySummary,
    /// From enqueue to the end, as the I/O queue sees it.
    pub total: LatencySummary,
}

#[derive(Clone, Copy, Debug)]
pub struct DiskReport {
    pub iops: f64,
    pub bytes_per_s: f64,
    pub mean_in_device: f64,
    /// Most pieces in the device at a time.
    pub max_in_device: u32,
    /// Part of the time in which the device had work, 0 to 1.
    pub busy_part: f64,
    /// Device time charged per time: 1 is the model's capacity (with a mix of reads and writes, that of the linear
    /// rule).
    pub utilisation: f64,
}

#[derive(Clone, Debug)]
pub struct JobReport {
    pub name: String,
    /// All its shards together.
    pub total: JobCounts,
    /// Latency over all its shards: from the time a request was due to its result.
    pub latency: Histogram,
    /// Each of its shards.
    pub by_shard: Vec<JobOnShard>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct JobCounts {
    /// Completed requests, including failed ones.
    pub requests: u64,
    pub bytes: u64,
    /// Requests that failed without a byte moved.
    pub errors: u64,
    /// Requests that the I/O queue refused.
    pub refused: u64,
    /// Requests cancelled because their class was removed.
    pub cancelled: u64,
    pub slices: u64,
    pub iops: f64,
    pub bytes_per_s: f64,
}

#[derive(Clone, Copy, Debug)]
pub struct JobOnShard {
    pub shard: usize,
    pub counts: JobCounts,
    /// From the time a request was due to its result.
    pub latency: LatencySummary,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ShardReport {
    /// CPU time of requests, messages and CPU jobs, in nanoseconds, without that of hogs.
    pub cpu_ns: u64,
}

/// Outcomes of all requests: `sent` is the sum of the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub sent: u64,
    /// Completed, with success or not.
    pub finished: u64,
    pub refused: u64,
    pub cancelled: u64,
    /// Still in an I/O queue, a device or a message.
    pub outstanding: u64,
}
