//! The metrics of a program as plain data.
//!
//! # Why
//! Metrics cross the control socket as JSON and become text elsewhere. Both ends, and callers who need the figures
//! themselves, share these types.
//!
//! # How it works
//! They are made from a sample at all shards and from the registries. Counters count from the program's start, or from
//! the last reset of its statistics. Times are nanoseconds.
//!
//! # Limits
//! Device time is rounded down from the model's femtoseconds.
//!
//! # Example
//! `{"program":"my-database","pid":7,...,"disks":[{"disk":0,...,"classes":[{"class":"query","shares":100,...}]}]}`

use plimsoll_core::{Direction, FS_PER_NS, Histogram, Latencies, WaitReason, WindowLimit};
#[cfg(feature = "control")]
use serde::{Deserialize, Serialize};

use super::sample::Sample;
use crate::class::ClassInfo;
use crate::queues::ClassView;
use crate::topology::{DiskMode, Topology};

/// Upper bounds of the latency histograms in nanoseconds: the powers of two from 2^13 (8.2 us) to 2^33 (8.6 s). Each is
/// also a bound of the fine histograms' buckets, so no bucket is split. A class has a time series for each bound,
/// direction and stage.
pub const LATENCY_BOUNDS_NS: [u64; 21] = {
    let mut bounds = [0; 21];
    let mut at = 0;
    while at < bounds.len() {
        bounds[at] = 1 << (13 + at);
        at += 1;
    }
    bounds
};

/// Metrics of a program.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "control", derive(Serialize, Deserialize))]
pub struct ProgramMetrics {
    /// Its own name.
    pub program: String,
    /// Its process number.
    pub pid: u32,
    /// Version of its library.
    pub plimsoll: String,
    /// Number of shards.
    pub shards: u16,
    /// Shards that did not answer in time. Their figures are those of their last answer, if any.
    pub missing_shards: Vec<u16>,
    /// Jobs of handles refused because too many waited for their shard.
    #[cfg_attr(feature = "control", serde(default))]
    pub refused_jobs: u64,
    /// Its disks, by number.
    pub disks: Vec<DiskMetrics>,
}

/// Metrics of a disk of a program.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "control", derive(Serialize, Deserialize))]
pub struct DiskMetrics {
    /// Its number.
    pub disk: u16,
    /// Its mode: `scheduled`, `depth` or `drain`.
    pub mode: String,
    /// Its I/O queues, each of which counts its own waiting; 0 if the program does not say.
    #[cfg_attr(feature = "control", serde(default))]
    pub queues: u16,
    /// Figures of its model; null if it has none.
    pub model: Option<ModelMetrics>,
    /// The present classes, in the order of their creation; no groups.
    pub classes: Vec<ClassMetrics>,
}

/// Figures of the model of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "control", derive(Serialize, Deserialize))]
pub struct ModelMetrics {
    /// The window: device time that may be in flight.
    pub window_ns: u64,
    /// The largest window.
    pub window_max_ns: u64,
    /// A window that would keep the throughput goal, if the latency goal prevents it; else 0.
    #[cfg_attr(feature = "control", serde(default))]
    pub window_needed_ns: u64,
    /// Device time in flight.
    pub in_flight_ns: u64,
    /// Rate of the disk over the rate of its model.
    pub capacity_scale: f64,
    /// Device time for which there are tokens; below 0 if some were taken ahead.
    pub tokens_ns: i64,
    /// Depth of the token bucket.
    pub tokens_max_ns: u64,
}

/// Metrics of a class on a disk.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "control", derive(Serialize, Deserialize))]
pub struct ClassMetrics {
    /// Its name.
    pub class: String,
    /// Its group; null for none.
    pub group: Option<String>,
    /// Its shares.
    pub shares: u32,
    /// Requests that wait.
    pub queued: u64,
    /// Pieces in the device.
    pub in_flight: u64,
    /// Wait of the oldest queued request so far.
    pub oldest_wait_ns: u64,
    /// Reads that completed.
    pub read: DirectionMetrics,
    /// Writes, flushes, discards and allocations that completed.
    pub write: DirectionMetrics,
    /// Device time charged, by the model.
    pub consumed_ns: u64,
    /// Pieces dispatched.
    pub dispatched: u64,
    /// Requests that were split.
    pub split: u64,
    /// Requests that ended in an error.
    pub errors: u64,
    /// Requests cancelled before they ended.
    pub cancelled: u64,
    /// Requests refused: the queue was full, or the expected delay too long.
    pub refused: u64,
    /// Pieces dispatched because a reservation was due.
    pub reserved: u64,
    /// Pieces dispatched because they had waited as long as the class allows.
    pub aged: u64,
    /// Times that the class woke up from idleness.
    pub activations: u64,
    /// Time with work queued and nothing in the device.
    pub starved_ns: u64,
    /// Time waited with work queued, by reason.
    pub waited: Vec<ReasonMetrics>,
}

/// Time waited for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "control", derive(Serialize, Deserialize))]
pub struct ReasonMetrics {
    /// `fairness`, `tokens`, `limit`, `depth`, `backend`.
    pub reason: String,
    /// Time waited.
    pub waited_ns: u64,
}

/// One direction of a class.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "control", derive(Serialize, Deserialize))]
pub struct DirectionMetrics {
    /// Requests.
    pub requests: u64,
    /// Bytes moved by them.
    pub bytes: u64,
    /// Time from being queued to dispatch.
    pub queue: LatencyMetrics,
    /// Time from dispatch to completion, of each piece.
    pub device: LatencyMetrics,
    /// Time of whole requests.
    pub total: LatencyMetrics,
}

/// A histogram of durations.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "control", derive(Serialize, Deserialize))]
pub struct LatencyMetrics {
    /// Number of durations.
    pub count: u64,
    /// Their sum.
    pub sum_ns: u64,
    /// Pairs of a bound of [`LATENCY_BOUNDS_NS`] and the number of durations above the bound before it and not above
    /// it. Pairs with no durations are left out, and so are durations above all bounds.
    pub buckets: Vec<(u64, u64)>,
}

impl LatencyMetrics {
    /// Returns the metrics of a histogram. Its fine buckets stop counting when they are full; only the number of
    /// durations that they miss is known, and is added to the shortest full bucket. So every count only grows, and rare
    /// long durations stay rare.
    fn of(histogram: &Histogram) -> LatencyMetrics {
        let mut buckets: Vec<(u64, u64)> = Vec::new();
        let counted: u64 = histogram.iter().map(|(_, count)| u64::from(count)).sum();
        let mut missing = histogram.count().saturating_sub(counted);
        let mut bounds = LATENCY_BOUNDS_NS.iter().copied().peekable();

        for (longest_ns, count) in histogram.iter() {
            let more = if count == u32::MAX { std::mem::take(&mut missing) } else { 0 };
            let count = u64::from(count) + more;
            while bounds.next_if(|bound_ns| *bound_ns < longest_ns).is_some() {}
            let Some(bound_ns) = bounds.peek().copied() else { break };
            match buckets.last_mut().filter(|last| last.0 == bound_ns) {
                Some(last) => last.1 += count,
                None => buckets.push((bound_ns, count)),
            }
        }

        let sum_ns = u64::try_from(histogram.sum_ns()).unwrap_or(u64::MAX);
        LatencyMetrics { count: histogram.count(), sum_ns, buckets }
    }
}

/// Returns the metrics of `topology`'s shards from `sample`.
pub(crate) fn of_program(program: &str, topology: &Topology, sample: &Sample) -> ProgramMetrics {
    let table = topology.classes().list();
    ProgramMetrics {
        program: program.to_owned(),
        pid: std::process::id(),
        plimsoll: env!("CARGO_PKG_VERSION").to_owned(),
        shards: topology.shards(),
        missing_shards: sample.missing_shards.clone(),
        refused_jobs: topology.refused_jobs(),
        disks: (0..topology.disks()).filter_map(|number| of_disk(number, topology, sample, &table)).collect(),
    }
}

fn of_disk(number: u16, topology: &Topology, sample: &Sample, table: &[ClassInfo]) -> Option<DiskMetrics> {
    let disk = topology.disk(number)?;
    let mode = match topology.mode(number)? {
        DiskMode::Scheduled => "scheduled",
        DiskMode::Depth { .. } => "depth",
        DiskMode::Drain => "drain",
    };

    let model = disk.tokens_ns(sample.at_ns).map(|tokens_ns| {
        let now = disk.snapshot();
        ModelMetrics {
            window_ns: now.window_ns,
            window_max_ns: now.bound_ns,
            window_needed_ns: match now.window_limit {
                WindowLimit::LatencyGoal { needed_ns, .. } => needed_ns,
                _ => 0,
            },
            in_flight_ns: now.in_flight_ns,
            capacity_scale: now.capacity_scale,
            tokens_ns,
            tokens_max_ns: disk.bucket_ns(),
        }
    });

    let classes = sample.disks.get(usize::from(number))?.iter().filter_map(|(at, view)| {
        let info = table.get(*at).filter(|info| !info.removed)?;
        Some(of_class(info, view, table))
    });

    let queues = topology.queue_count(number);
    Some(DiskMetrics { disk: number, mode: mode.to_owned(), queues, model, classes: classes.collect() })
}

fn of_class(info: &ClassInfo, view: &ClassView, table: &[ClassInfo]) -> ClassMetrics {
    let stats = &view.stats;
    let direction = |direction: Direction| {
        let (done, latencies) = match direction {
            Direction::Read => (stats.read, &view.latencies[0]),
            Direction::Write => (stats.write, &view.latencies[1]),
        };
        let of = |pick: fn(&Latencies) -> &Histogram| {
            latencies.as_deref().map_or(LatencyMetrics::default(), |latencies| LatencyMetrics::of(pick(latencies)))
        };
        DirectionMetrics {
            requests: done.requests,
            bytes: done.bytes,
            queue: of(|latencies| &latencies.queue),
            device: of(|latencies| &latencies.device),
            total: of(|latencies| &latencies.total),
        }
    };

    let waited =
        |reason: WaitReason| ReasonMetrics { reason: reason.name().to_owned(), waited_ns: stats.waited_for_ns(reason) };

    ClassMetrics {
        class: info.name.to_string(),
        group: info.parent.and_then(|group| table.get(group.index())).map(|group| group.name.to_string()),
        shares: info.shares,
        queued: stats.queued.into(),
        in_flight: stats.in_flight.into(),
        oldest_wait_ns: view.delay_ns,
        read: direction(Direction::Read),
        write: direction(Direction::Write),
        consumed_ns: u64::try_from(stats.consumed_fs / u128::from(FS_PER_NS)).unwrap_or(u64::MAX),
        dispatched: stats.dispatched,
        split: stats.split,
        errors: stats.errors,
        cancelled: stats.cancelled,
        refused: stats.refused,
        reserved: stats.reserved,
        aged: stats.aged,
        activations: stats.activations,
        starved_ns: stats.starved_ns,
        waited: WaitReason::ALL.into_iter().map(waited).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fine_buckets_fall_into_the_bound_that_holds_all_of_them() {
        let mut histogram = Histogram::new();
        let (first_ns, second_ns) = (LATENCY_BOUNDS_NS[0], LATENCY_BOUNDS_NS[1]);
        // A bound is the first duration of a fine bucket, so a duration equal to it counts in the next.
        let beyond_ns = LATENCY_BOUNDS_NS[LATENCY_BOUNDS_NS.len() - 1] + 1;
        for ns in [1, first_ns - 1, first_ns, second_ns - 1, beyond_ns] {
            histogram.record(ns);
        }
        let metrics = LatencyMetrics::of(&histogram);
        assert_eq!((metrics.count, metrics.buckets), (5, vec![(first_ns, 2), (second_ns, 2)]));
        assert_eq!(metrics.sum_ns, 1 + 2 * first_ns - 1 + second_ns - 1 + beyond_ns);
    }

    #[test]
    fn what_full_buckets_miss_is_not_lost() {
        // Merging with itself doubles the counts: 2^33 in all, of which one in 2^10 is long.
        let (short_ns, long_ns) = (LATENCY_BOUNDS_NS[5] - 1, LATENCY_BOUNDS_NS[9] - 1);
        let mut histogram = Histogram::new();
        (0..1023).for_each(|_| histogram.record(short_ns));
        histogram.record(long_ns);
        for _ in 0..23 {
            let half = histogram.clone();
            histogram.merge(&half);
        }
        let metrics = LatencyMetrics::of(&histogram);
        let long = 1 << 23;
        let expected = vec![(LATENCY_BOUNDS_NS[5], (1 << 33) - long), (LATENCY_BOUNDS_NS[9], long)];
        assert_eq!((metrics.count, metrics.buckets), (1 << 33, expected));
    }
}
