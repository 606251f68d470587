//! What a run measured of a job beyond its [`JobResult`](super::JobResult): directions and flushes by themselves.
//!
//! # Why
//! A mix of reads and writes has two latencies; their common distribution belongs to nobody. A flush is waited for,
//! but is no request of the job.
//!
//! # How it works
//! Jobs that mix, or flush, keep these beside the common figures; others keep nothing.
//!
//! # Limits
//! Directions and flushes: only what completed in the measured window, as everywhere. What had not completed at its
//! end is in no latency; [`JobDetail::overdue`] says how much of it there was.
//!
//! # Example
//! ```
//! use plimsoll_tools::load::{DirectionResult, JobDetail};
//! let mut shards = JobDetail { flushes: DirectionResult { requests: 2, ..DirectionResult::default() },
//! ..JobDetail::default() }; shards.merge(&shards.clone());
//! assert_eq!(shards.flushes.requests, 4);
//! ```

use plimsoll::core::Histogram;

/// Reads and writes of a job that mixes them.
#[derive(Clone, Debug, Default)]
pub struct Directions {
    /// Its reads.
    pub reads: DirectionResult,
    /// Its writes.
    pub writes: DirectionResult,
}

/// Requests of one kind.
#[derive(Clone, Debug, Default)]
pub struct DirectionResult {
    /// Requests that completed.
    pub requests: u64,
    /// Bytes they moved; of flushes 0.
    pub bytes: u64,
    /// Requests that failed or came back short.
    pub errors: u64,
    /// Latency in nanoseconds: from when they were due (or sent) to completion.
    pub latency: Box<Histogram>,
}

/// Of one job on one shard, or (merged) on several.
#[derive(Clone, Debug, Default)]
pub struct JobDetail {
    /// Name of the job.
    pub name: String,
    /// The shard; of several, the first.
    pub shard: u16,
    /// Reads and writes by themselves, of a job that mixes them.
    pub directions: Option<Box<Directions>>,
    /// The flushes that came after writes (not the requests of a job of type `flush`).
    pub flushes: DirectionResult,
    /// Of an open loop: requests that were due in the measured window and had not completed at its end, whether they
    /// were on their way or not sent yet; a few are normal, many are a stall that no latency shows. 0 for closed loops.
    /// Those of a Poisson schedule that were not sent yet are counted by the mean of its gaps.
    pub overdue: u64,
    /// How long the oldest of them was overdue at the end of the window, in nanoseconds; 0 where there is none.
    pub overdue_oldest_ns: u64,
}

impl DirectionResult {
    /// Adds what another shard, or another time, has counted.
    pub fn merge(&mut self, other: &DirectionResult) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.errors += other.errors;
        self.latency.merge(&other.latency);
    }

    /// Counts an end: `Ok` with the bytes that were moved of `expected_bytes`.
    pub(super) fn count(&mut self, result: Result<u32, i32>, expected_bytes: u32, latency_ns: u64) {
        let Ok(bytes) = result else {
            self.errors += 1;
            return;
        };
        self.requests += 1;
        self.bytes += u64::from(bytes);
        self.latency.record(latency_ns);
        self.errors += u64::from(bytes != expected_bytes);
    }
}

impl JobDetail {
    /// Adds what the same job did on another shard, or at another time.
    pub fn merge(&mut self, other: &JobDetail) {
        match (&mut self.directions, &other.directions) {
            (Some(mine), Some(theirs)) => {
                mine.reads.merge(&theirs.reads);
                mine.writes.merge(&theirs.writes);
            }
            (mine @ None, Some(theirs)) => *mine = Some(theirs.clone()),
            (_, None) => {}
        }
        self.flushes.merge(&other.flushes);
        self.overdue = self.overdue.saturating_add(other.overdue);
        self.overdue_oldest_ns = self.overdue_oldest_ns.max(other.overdue_oldest_ns);
    }
}
