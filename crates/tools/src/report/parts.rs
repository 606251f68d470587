//! Parts of a report that only some runs have: reads, writes and flushes by themselves, and how steady it was.
//!
//! # Why
//! The latency of a mix of reads and writes is the latency of neither.
//!
//! # How it works
//! [`DirectionReport`] is made of what [`crate::load`] counted beside the job, [`SteadyReport`] of its verdict.
//!
//! # Limits
//! Jobs that only read, or only write, have no directions: their own figures are those.
//!
//! # Example
//! ```
//! use plimsoll_tools::load::DirectionResult;
//! use plimsoll_tools::report::DirectionReport;
//! let report = DirectionReport::of(&DirectionResult { requests: 3, ..DirectionResult::default() }, 1_500_000_000);
//! assert_eq!((report.requests, report.iops), (3, 2.0));
//! ```

use serde::{Deserialize, Serialize};

use super::{Buckets, Latency};
use crate::load::{DirectionResult, Steady};

/// Requests of one kind, of a job that has several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DirectionReport {
    /// Requests that completed.
    pub requests: u64,
    /// Bytes they moved; of flushes 0.
    pub bytes: u64,
    /// Requests that failed or came back short.
    pub errors: u64,
    /// Requests a second.
    pub iops: f64,
    /// Bytes a second.
    pub throughput_bytes_per_s: f64,
    /// From when a request was due (or sent) to its end.
    pub latency: Latency,
    /// The latencies themselves.
    pub histogram: Buckets,
}

impl DirectionReport {
    /// Of what was counted in `elapsed_ns`.
    #[must_use]
    pub fn of(direction: &DirectionResult, elapsed_ns: u64) -> DirectionReport {
        let per_second = |count: u64| if elapsed_ns == 0 { 0.0 } else { count as f64 * 1e9 / elapsed_ns as f64 };
        DirectionReport {
            requests: direction.requests,
            bytes: direction.bytes,
            errors: direction.errors,
            iops: per_second(direction.requests),
            throughput_bytes_per_s: per_second(direction.bytes),
            latency: Latency::of(&direction.latency),
            histogram: Buckets::of(&direction.latency),
        }
    }
}

/// How steady a run was that was to end when it is steady.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SteadyReport {
    /// Whether the run was ended because it was steady.
    pub attained: bool,
    /// Mean of the last window: requests a second, bytes a second or nanoseconds.
    pub mean: f64,
    /// The largest deviation of one of its samples from the mean, in per cent of it.
    pub deviation_pct: f64,
    /// Its slope, in per cent of the mean a second.
    pub slope_pct: f64,
    /// Samples in it.
    pub samples: usize,
}

impl From<Steady> for SteadyReport {
    fn from(steady: Steady) -> SteadyReport {
        let Steady { attained, mean, deviation_pct, slope_pct, samples } = steady;
        SteadyReport { attained, mean, deviation_pct, slope_pct, samples }
    }
}
