//! Parts of a report that only some jobs have: reads, writes and flushes by themselves.
//!
//! # Why
//! The latency of a mix of reads and writes is the latency of neither.
//!
//! # How it works
//! [`DirectionReport`] is made of what [`crate::load`] counted beside the job.
//!
//! # Limits
//! Jobs that only read, or only write, have no directions: their own figures are those.
//!
//! # Example
//! ```
//! use plimsoll_measure::load::DirectionResult;
//! use plimsoll_measure::report::DirectionReport;
//! let report = DirectionReport::of(&DirectionResult { requests: 3, ..DirectionResult::default() }, 1_500_000_000);
//! assert_eq!((report.requests, report.iops), (3, 2.0));
//! ```

use serde::{Deserialize, Serialize};

use super::{Buckets, Latency};
use crate::load::DirectionResult;

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
