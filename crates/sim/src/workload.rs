//! What programs ask of simulated disks: jobs, each a stream of requests (or of CPU work) on some shards.
//!
//! # Why
//! A scheduler is judged under load, and loads differ in what ends a wait: a *closed* loop sends the next request
//! when the last one is back, and so slows down with the disk; an *open* loop sends by the clock, and shows what
//! happens when the disk cannot follow; a *replay* sends what was recorded, when it was recorded.
//!
//! # How it works
//! A [`JobSpec`] says what (operation, [`Pattern`], [`SizeDist`], [`Region`]), when ([`Load`], start, stop, limit)
//! and for whom (class, disk, shards). Everything random in a job on a shard comes from the world's seed, the job's
//! number and the shard's, so that a job does the same whatever the others do.
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

/// Where a job runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShardSet {
    /// On every shard.
    All,
    /// On these shards (numbers from 0): at least one, none twice.
    List(Vec<u32>),
}

impl ShardSet {
    /// The shards meant, in order, in a world of `shards` shards.
    #[must_use]
    pub fn numbers(&self, shards: usize) -> Vec<u32> {
        match self {
            ShardSet::All => (0..shards as u32).collect(),
            ShardSet::List(list) => list.clone(),
        }
    }
}

/// How a request's place follows from that of the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Uniformly distributed over the region, at multiples of the request's length.
    Random,
    /// One behind the other, from the beginning again at the end of the region.
    Sequential,
    /// One behind the other from the region's beginning on, without end.
    Append,
}

/// The part of the disk that a job uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Where the part of the job's first shard begins, in bytes.
    pub offset_bytes: u64,
    /// How long each shard's part is, in bytes: at least the largest request (any length with [`Pattern::Append`]).
    pub len_bytes: u64,
    /// How far the part of the job's next shard is from that of the one before, in bytes: 0 when all shards share one.
    pub shard_stride_bytes: u64,
}

/// Lengths of requests, in bytes: from 1 on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SizeDist {
    /// All alike.
    Fixed(u32),
    /// Each (length in bytes, weight) with a probability in proportion to its weight; the sum of weights is at least 1.
    Weighted(Vec<(u32, u32)>),
}

impl SizeDist {
    /// The longest request possible, in bytes; 0 for an empty list.
    #[must_use]
    pub fn largest_bytes(&self) -> u32 {
        match self {
            SizeDist::Fixed(len_bytes) => *len_bytes,
            SizeDist::Weighted(list) => list.iter().map(|(len_bytes, _)| *len_bytes).max().unwrap_or(0),
        }
    }

    /// The length of the next request, in bytes.
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

/// How the moments of an open loop are spaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spacing {
    /// All gaps alike; the first request is sent at the start.
    #[default]
    Uniform,
    /// Exponentially distributed gaps: a Poisson process.
    Poisson,
}

/// One recorded request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When it is sent, in nanoseconds from the start of the job.
    pub at_ns: u64,
    /// What it does.
    pub op: Op,
    /// Where on the disk, in bytes (the job's region is not added).
    pub offset_bytes: u64,
    /// How much, in bytes.
    pub len_bytes: u32,
}

/// When a job sends requests.
#[derive(Clone, Debug, PartialEq)]
pub enum Load {
    /// So many fibers on each shard, each with one request at a time.
    Closed {
        /// Fibers on each shard, at least 1.
        parallelism: u32,
        /// Pause of a fiber after each request, or of all fibers between two active phases, in nanoseconds.
        think_ns: u64,
        /// 0: fibers pause after each request. Else active phases of this many nanoseconds alternate with pauses of
        /// `think_ns`: a fiber whose request ends in a pause waits for the pause's end.
        think_after_ns: u64,
    },
    /// Requests by the clock, whether the last are back or not.
    Open {
        /// Requests a second on each shard, batches counted out: above 0, at most 10^9.
        requests_per_s: f64,
        /// How the moments are spaced.
        spacing: Spacing,
        /// Requests sent together at each moment, at least 1.
        batch: u32,
        /// With so many outstanding on a shard the next ones wait until one is back. Their latency counts from when
        /// they were due.
        max_outstanding: Option<u32>,
    },
    /// Recorded requests, ascending in time. The job's shards take turns: of n shards, the k-th sends k, k+n, k+2n, ...
    Replay(Vec<Arrival>),
    /// No requests: CPU work that keeps the shard from everything else.
    Cpu {
        /// Fibers on each shard, at least 1.
        parallelism: u32,
        /// Length of one slice in nanoseconds, at least 1. The shard looks at its I/O between two slices.
        execution_ns: u64,
        /// Pause of a fiber after its slice, in nanoseconds.
        pause_ns: u64,
    },
}

impl Load {
    /// A closed loop without pauses.
    #[must_use]
    pub fn closed(parallelism: u32) -> Load {
        Load::Closed { parallelism, think_ns: 0, think_after_ns: 0 }
    }

    /// An open loop with equal gaps.
    #[must_use]
    pub fn uniform(requests_per_s: f64) -> Load {
        Load::Open { requests_per_s, spacing: Spacing::Uniform, batch: 1, max_outstanding: None }
    }

    /// An open loop with exponentially distributed gaps.
    #[must_use]
    pub fn poisson(requests_per_s: f64) -> Load {
        Load::Open { requests_per_s, spacing: Spacing::Poisson, batch: 1, max_outstanding: None }
    }
}

/// One job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobSpec {
    /// Its name, unlike that of any other job.
    pub name: String,
    /// The class whose share it uses; not looked at with [`Load::Cpu`].
    pub class: String,
    /// The number of its disk, from 0; not looked at with [`Load::Cpu`].
    pub disk: usize,
    /// Where it runs.
    pub shards: ShardSet,
    /// What its requests do; of flush, `sizes` is not looked at.
    pub op: Op,
    /// Where on the disk its requests go.
    pub pattern: Pattern,
    /// How long its requests are.
    pub sizes: SizeDist,
    /// The part of the disk that it uses.
    pub region: Region,
    /// When it sends requests.
    pub load: Load,
    /// When it starts, in nanoseconds from the beginning of the world; `None`: when an action starts it.
    pub start_ns: Option<u64>,
    /// When it stops sending, in nanoseconds from the beginning of the world; `None`: never.
    pub stop_ns: Option<u64>,
    /// After so many requests *on a shard* it sends no more there.
    pub limit_requests: Option<u64>,
}

impl Default for JobSpec {
    /// Random reads of 4 KiB from the first GiB of disk 0, one at a time on every shard, from the beginning on. Name
    /// and class are `default`.
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
