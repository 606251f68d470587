//! The output of Seastar's `ioinfo` for a disk, with its keys and its integers.
//!
//! **Why.** People who move from Seastar compare these figures first. And for a disk that is throttled there, they are
//! the figures that Seastar's scheduler really uses.
//!
//! **How.** [`SeastarUnits`] has the arithmetic. The effective goal is the depth of the bucket over its rate, 2^24
//! units per millisecond. The longest request is the longest 512 * 2^k bytes whose cost fits the bucket, at most 16
//! MiB, and at most the saturation length of the file.
//!
//! **Limits.** One NUMA node. With `duplex` Seastar has two equal buckets, and prints one. Seastar always splits long
//! requests: without a latency goal the bucket is that of the default goal, and the longest requests are `null`.
//!
//! **Example.** 218 786 reads and 1 542 559 872 bytes per second: a read of 4 KiB takes 121 232 units, and the bucket
//! of 12 582 912 units (0.75 ms) takes reads of 1 MiB.

use plimsoll_core::{CostForm, CostModel, DEFAULT_LATENCY_GOAL_NS, FourFigures, LatencyGoal, Op, SeastarUnits};
use serde::{Serialize, Serializer};

/// log2 of the first and the last size of [`FairQueueInfo::capacities`]: 512 bytes to 128 KiB, as `ioinfo` has them.
const CAPACITY_SIZES_LOG2: std::ops::RangeInclusive<u32> = 9..=17;
/// Unit of the longest requests, in bytes.
const SECTOR_BYTES: u64 = 512;

/// The output of `ioinfo`, under its names.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IoInfo {
    /// Longest read that is not split, in bytes; `None`: reads are not split.
    pub disk_read_max_length: Option<u64>,
    /// Longest write that is not split, in bytes; `None`: writes are not split.
    pub disk_write_max_length: Option<u64>,
    /// Number of the device that holds the mount point; `None` if the mount point does not exist here.
    pub device: Option<u64>,
    pub io_latency_goal_ms: f64,
    pub io_queue: IoQueueInfo,
    /// Costs and the token bucket.
    pub fair_queue: FairQueueInfo,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct IoQueueInfo {
    /// Number of the queue: the position of the disk in the file, from 1. Seastar's queue 0 is for disks without an
    /// entry.
    pub id: usize,
    /// 128 times the read operations per second; `None` if unlimited.
    pub req_count_rate: Option<u64>,
    /// 128 times the blocks of 512 bytes read per second; `None` if unlimited.
    pub blocks_count_rate: Option<u64>,
    /// Weight of a write; a read weighs 128.
    pub disk_req_write_to_read_multiplier: u32,
    /// Weight of a block written; a block read weighs 128.
    pub disk_blocks_write_to_read_multiplier: u32,
}

/// Costs and the token bucket, in units of capacity: 1000 * 2^24 are one second of the disk.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FairQueueInfo {
    /// Cost by size in bytes: powers of two from 512 to 131 072.
    #[serde(serialize_with = "as_map")]
    pub capacities: Vec<(u32, CapacityInfo)>,
    /// Units that one queue takes out of the bucket in one poll: its depth over the number of queues, rounded down.
    pub per_tick_grab_threshold: u64,
    pub token_bucket: TokenBucketInfo,
}

/// Cost of a request in units of capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CapacityInfo {
    pub read: u64,
    pub write: u64,
}

/// The token bucket, in units of capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TokenBucketInfo {
    pub limit: u64,
    /// Units added per millisecond: 2^24 for each disk.
    pub rate: u64,
    /// Fewest units added at once.
    pub threshold: u64,
}

impl IoInfo {
    /// Computes the output from the figures; the caller sets `device`. `io_queues` of 0 counts as 1.
    pub(super) fn new(
        figures: &FourFigures,
        goal: LatencyGoal,
        io_queues: u16,
        id: usize,
        saturation_bytes: [Option<u64>; 2],
    ) -> IoInfo {
        let units = SeastarUnits::from_figures(figures);
        let (goal_ns, is_split) = match goal {
            LatencyGoal::Ns(ns) => (ns, true),
            LatencyGoal::NoSplit => (DEFAULT_LATENCY_GOAL_NS, false),
        };
        let limit = units.bucket_limit(goal_ns);

        // Seastar's form does not use the block.
        let pieces = CostModel::from_figures(figures, CostForm::Seastar, 512, 512).piece_limits(Some(goal_ns));

        let longest = |piece_bytes: u32, saturation_bytes: Option<u64>| {
            let piece_bytes = is_split.then_some(u64::from(piece_bytes));
            let bytes = piece_bytes.into_iter().chain(saturation_bytes).min()?;
            Some(bytes - bytes % SECTOR_BYTES)
        };
        let capacity = |log2: u32| {
            let bytes = 1 << log2;
            (bytes, CapacityInfo { read: units.capacity(Op::Read, bytes), write: units.capacity(Op::Write, bytes) })
        };

        IoInfo {
            disk_read_max_length: longest(pieces.read_max_bytes, saturation_bytes[0]),
            disk_write_max_length: longest(pieces.write_max_bytes, saturation_bytes[1]),
            device: None,
            io_latency_goal_ms: limit as f64 / SeastarUnits::RATE_PER_MS as f64,
            io_queue: IoQueueInfo {
                id,
                req_count_rate: units.req_count_rate.get(),
                blocks_count_rate: units.blocks_count_rate.get(),
                disk_req_write_to_read_multiplier: units.disk_req_write_to_read_multiplier,
                disk_blocks_write_to_read_multiplier: units.disk_blocks_write_to_read_multiplier,
            },
            fair_queue: FairQueueInfo {
                capacities: CAPACITY_SIZES_LOG2.map(capacity).collect(),
                per_tick_grab_threshold: limit / u64::from(io_queues.max(1)),
                token_bucket: TokenBucketInfo {
                    limit,
                    rate: SeastarUnits::RATE_PER_MS,
                    threshold: units.bucket_threshold(goal_ns),
                },
            },
        }
    }
}

/// Serializes the costs as a map from size to cost.
fn as_map<S: Serializer>(capacities: &[(u32, CapacityInfo)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(capacities.iter().map(|(bytes, capacity)| (bytes, capacity)))
}
