//! Parts of a report that only some jobs have: separate reads, writes and flushes.
//!
//! **Why.** The latency of a mix is that of neither its reads nor its writes.
//!
//! **How.** [`DirectionReport`] is made from the separate counts of [`crate::load`].
//!
//! **Limits.** Jobs that only read, or only write, have no directions: their own figures are the direction's.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_measure::load::DirectionResult;
//! use plimsoll_measure::report::DirectionReport;
//! let report = DirectionReport::of(&DirectionResult { requests: 3, ..DirectionResult::default() }, 1_500_000_000);
//! assert_eq!((report.requests, report.iops), (3, 2.0));
//! ```

use serde::{Deserialize, Serialize};

use super::{Buckets, Latency};
use crate::load::DirectionResult;
use crate::load::result::per_second;

/// Requests of one kind in a job that has several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DirectionReport {
    pub requests: u64,
    /// Bytes that those requests moved; 0 for flushes.
    pub bytes: u64,
    /// Requests that failed or transferred too few bytes.
    pub errors: u64,
    pub iops: f64,
    pub throughput_bytes_per_s: f64,
    /// Latency from when a request was due (or sent) until it completed.
    pub latency: Latency,
    pub histogram: Buckets,
}

impl DirectionReport {
    /// Computes the report of counts from `elapsed_ns`.
    pub fn of(direction: &DirectionResult, elapsed_ns: u64) -> DirectionReport {
        DirectionReport {
            requests: direction.requests,
            bytes: direction.bytes,
            errors: direction.errors,
            iops: per_second(direction.requests, elapsed_ns),
            throughput_bytes_per_s: per_second(direction.bytes, elapsed_ns),
            latency: Latency::of(&direction.latency),
            histogram: Buckets::of(&direction.latency),
        }
    }
}
