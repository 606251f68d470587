//! Workloads on simulated disks: jobs, each a stream of requests (or of CPU work) on some shards.
//!
//! # Why
//! A scheduler is judged under load, and loads differ in when they send: a *closed* loop sends the next request when
//! the last one completes, and so slows down with the disk; an *open* loop sends by the clock, and shows the effects
//! when the disk cannot follow; a *replay* sends recorded requests at their recorded times.
//!
//! # How it works
//! A [`JobSpec`] gives the requests (operation, [`Pattern`], [`SizeDist`], [`Region`]), their times ([`Load`], start,
//! stop, limit) and their owner (class, disk, shards). All randomness in a job on a shard comes from the world's seed,
//! the job's number and the shard's, so that a job does the same whatever the others do.
//!
//! # Limits
//! A job has one operation; mixed loads are several jobs. Requests are below 4 GiB.
//!
//! # Example
//! Four random reads of 4 KiB at a time, on every shard, in the class `query`:
//! ```
//! use plimsoll_sim::workload::{JobSpec, Load};
//! let job = JobSpec { name: "reads".into(), class: "query".into(), load: Load::closed(4), ..JobSpec::default() };
//! assert_eq!(job.sizes.largest_bytes(), 4096);
//! ```

use plimsoll_core::Op;

use crate::rng::Rng;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShardSet {
    All,
    /// These shards (numbers from 0): at least one, none twice.
    List(Vec<u32>),
}

impl ShardSet {
    /// Returns the numbers of these shards, in order, in a world of `shards` shards.
    pub fn numbers(&self, shards: usize) -> Vec<u32> {
        match self {
            ShardSet::All => (0..shards as u32).collect(),
            ShardSet::List(list) => list.clone(),
        }
    }
}

/// The rule by which a request's place follows from that of the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Uniformly distributed over the region, at multiples of the request's length.
    Random,
    /// Each after the one before; back to the beginning at the end of the region.
    Sequential,
    /// Each after the one before from the region's beginning on, without end.
    Append,
}

/// The part of the disk that a job uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Start of the part of the job's first shard, in bytes.
    pub offset_bytes: u64,
    /// Length of each shard's part, in bytes: at least the largest request (any length with [`Pattern::Append`]).
    pub len_bytes: u64,
    /// Distance between the parts of the job's consecutive shards, in bytes; 0 if all shards share one part.
    pub shard_stride_bytes: u64,
}

/// Lengths of requests, in bytes; at least 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SizeDist {
    /// All of the same length.
    Fixed(u32),
    /// Each (length in bytes, weight) with a probability in proportion to its weight; the sum of weights is at least 1.
    Weighted(Vec<(u32, u32)>),
}

impl SizeDist {
    /// Returns the longest possible request, in bytes; 0 for an empty list.
    pub fn largest_bytes(&self) -> u32 {
        match self {
            SizeDist::Fixed(len_bytes) => *len_bytes,
            SizeDist::Weighted(list) => list.iter().map(|(len_bytes, _)| *len_bytes).max().unwrap_or(0),
        }
    }

    pub fn draw_bytes(&self, rng: &mut Rng) -> u32 {
        match self {
            SizeDist::Fixed(len_bytes) => *len_bytes,
            SizeDist::Weighted(list) => {
                let total: u64 = list.iter().map(|(_, weight)| u64::from(*weight)).sum();
                let mut left = rng.below(total);
                for (len_bytes, weight) in list {
                    if left < u64::from(*weight) {
                        return *len_bytes;
                    }
                    left -= u64::from(*weight);
                }
                0
            }
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spacing {
    /// All gaps equal; the first request is sent at the start.
    #[default]
    Uniform,
    /// Exponentially distributed gaps: a Poisson process.
    Poisson,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When the request is sent, in nanoseconds from the start of the job.
    pub at_ns: u64,
    pub op: Op,
    /// Offset on the disk, in bytes (the job's region is not added).
    pub offset_bytes: u64,
    /// Length in bytes.
    pub len_bytes: u32,
}

/// When a job sends requests.
#[derive(Clone, Debug, PartialEq)]
pub enum Load {
    /// Fibers on each shard, each with one request at a time.
    Closed {
        /// Fibers on each shard, at least 1.
        parallelism: u32,
        /// Pause of a fiber after each request, or of all fibers between two active phases, in nanoseconds.
        think_ns: u64,
        /// 0: fibers pause after each request. Otherwise active phases of this many nanoseconds alternate with pauses
        /// of `think_ns`: a fiber whose request ends in a pause waits for the pause's end.
        think_after_ns: u64,
    },
    /// Requests by the clock, whether or not the last ones have completed.
    Open {
        /// Requests a second on each shard, counting each request of a batch: above 0, at most 10^9.
        requests_per_s: f64,
        spacing: Spacing,
        /// Requests sent together at each moment, at least 1.
        batch: u32,
        /// Most requests outstanding on a shard. At the bound the next ones wait until one completes; their latency
        /// counts from the time they were due.
        max_outstanding: Option<u32>,
    },
    /// Recorded requests, ascending in time. The job's shards take turns: of n shards, the k-th sends k, k+n, k+2n, ...
    Replay(Vec<Arrival>),
    /// No requests: CPU work that keeps the shard from everything else.
    Cpu {
        /// Fibers on each shard, at least 1.
        parallelism: u32,
        /// Length of one slice in nanoseconds, at least 1. The shard polls its I/O between two slices.
        execution_ns: u64,
        /// Pause of a fiber after its slice, in nanoseconds.
        pause_ns: u64,
    },
}

impl Load {
    /// Returns a closed loop without pauses.
    pub fn closed(parallelism: u32) -> Load {
        Load::Closed { parallelism, think_ns: 0, think_after_ns: 0 }
    }

    /// Returns an open loop with equal gaps.
    pub fn uniform(requests_per_s: f64) -> Load {
        Load::Open { requests_per_s, spacing: Spacing::Uniform, batch: 1, max_outstanding: None }
    }

    /// Returns an open loop with exponentially distributed gaps.
    pub fn poisson(requests_per_s: f64) -> Load {
        Load::Open { requests_per_s, spacing: Spacing::Poisson, batch: 1, max_outstanding: None }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct JobSpec {
    /// Name of the job, different from that of any other.
    pub name: String,
    /// The class whose share it uses; ignored with [`Load::Cpu`].
    pub class: String,
    /// The number of its disk, from 0; ignored with [`Load::Cpu`].
    pub disk: usize,
    pub shards: ShardSet,
    /// The operation of its requests; for flush, `sizes` is ignored.
    pub op: Op,
    /// The places of its requests on the disk.
    pub pattern: Pattern,
    /// The lengths of its requests.
    pub sizes: SizeDist,
    /// The part of the disk that it uses.
    pub region: Region,
    /// When it sends requests.
    pub load: Load,
    /// When it starts, in nanoseconds from the beginning of the world; `None`: when an action starts it.
    pub start_ns: Option<u64>,
    /// When it stops sending, in nanoseconds from the beginning of the world; `None`: never.
    pub stop_ns: Option<u64>,
    /// Most requests that it sends *on each shard*.
    pub limit_requests: Option<u64>,
}

impl Default for JobSpec {
    /// Returns random reads of 4 KiB from the first GiB of disk 0, one at a time on every shard, from the beginning on.
    /// Name and class are `default`.
    fn default() -> JobSpec {
        JobSpec {
            name: "default".into(),
            class: "default".into(),
            disk: 0,
            shards: ShardSet::All,
            op: Op::Read,
            pattern: Pattern::Random,
            sizes: SizeDist::Fixed(4096),
            region: Region { offset_bytes: 0, len_bytes: 1 << 30, shard_stride_bytes: 0 },
            load: Load::closed(1),
            start_ns: Some(0),
            stop_ns: None,
            limit_requests: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weighted_sizes_come_in_proportion() {
        let sizes = SizeDist::Weighted(vec![(512, 1), (4096, 0), (65536, 3)]);
        let mut rng = Rng::new(3);
        let long = (0..40_000).filter(|_| sizes.draw_bytes(&mut rng) == 65536).count();
        assert!((29_500..30_500).contains(&long), "{long}");
        assert_eq!(sizes.largest_bytes(), 65536);
    }

    #[test]
    fn an_empty_list_of_sizes_has_no_length_and_does_not_panic() {
        let sizes = SizeDist::Weighted(Vec::new());
        assert_eq!((sizes.largest_bytes(), sizes.draw_bytes(&mut Rng::new(1))), (0, 0));
    }
}
