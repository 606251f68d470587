//! Counters and latencies of a program's disks and classes, for Prometheus and other readers of its text format.
//!
//! # Why
//! Explaining yesterday's slow hour requires figures recorded then. A monitoring system records counters, and a user of
//! Seastar's `io_queue` metrics should find them under the same names.
//!
//! # How it works
//! [`Metrics::take`] asks all shards, as a client of the control socket does, and makes one [`ProgramMetrics`] of their
//! answers: plain data, sums over shards. [`encode`] writes one or several as text (Prometheus text format 0.0.4,
//! [`CONTENT_TYPE`]). A program serves that text at `/metrics` with any HTTP server; if it serves a control socket, it
//! needs no HTTP server: `plimsoll serve` asks it (request `metrics`).
//!
//! Names: `PREFIX_io_queue_` and Seastar's word if the meaning is Seastar's, also with the labels `class` and `stream`.
//! All others follow Prometheus's rules: base units, `_total` for counters. Names that mean something else in Seastar
//! are not used: `delay`, `flow_ratio`, `adjusted_consumption`.
//!
//! # Limits
//! Figures are sums over shards, without a label `shard`. Disks have no names, so their label is the number. Bounds of
//! latencies are [`LATENCY_BOUNDS_NS`]. A fine histogram's bucket stops counting at 4 294 967 295 (see
//! [`Histogram`](crate::core::Histogram)); further durations then count in the shortest full bucket, so medians may be
//! too low, but high percentiles are not. OpenMetrics requires other names (its counters end in `_total`), so the
//! content type states the format. Over the control socket, an answer has room for about 500 classes whose latencies
//! spread widely in both directions.
//!
//! # Example
//! The answer of any HTTP server to `GET /metrics`. [`Metrics::take`] waits for shards, so do not call it on a shard's
//! thread.
//! ```
//! use plimsoll::backend::choose::BackendKind;
//! use plimsoll::metrics::{CONTENT_TYPE, Metrics, encode};
//! use plimsoll::{Classes, DiskSetup, Runtime, ShardOptions, Topology};
//!
//! let classes = Classes::new();
//! classes.add_class("query", None, 100)?;
//! let topology = Topology::new(1, classes, vec![DiskSetup::unlimited()])?;
//! let options = ShardOptions { backend: Some(BackendKind::Memory), pin: false, ..ShardOptions::default() };
//! let runtime = Runtime::start(&topology, &options)?;
//!
//! let metrics = Metrics::new(&topology, "my-database");
//! let body = encode(&[metrics.take()]);
//! let answer = format!("HTTP/1.1 200 OK\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
//! let line = body.lines().find(|line| line.starts_with("plimsoll_io_queue_shares{") && line.contains("\"query\""));
//! assert!(line.is_some_and(|line| line.ends_with(" 100")), "{answer}");
//! # drop(runtime);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod encode;
mod figures;
pub(crate) mod sample;
mod text;

use std::fmt;
use std::sync::{Mutex, PoisonError};

pub use encode::encode;
pub(crate) use figures::of_program;
pub use figures::{
    ClassMetrics, DirectionMetrics, DiskMetrics, LATENCY_BOUNDS_NS, LatencyMetrics, ModelMetrics, ProgramMetrics,
    ReasonMetrics,
};
pub use text::{CONTENT_TYPE, Exposition, Kind};

use crate::topology::Topology;

/// Takes the metrics of the program that runs on a topology. See the module's documentation.
pub struct Metrics {
    sampler: Mutex<sample::Sampler>,
    program: String,
}

impl Metrics {
    /// Returns the metrics of the shards on `topology`; `program` is the program's own name, the value of that label.
    #[must_use]
    pub fn new(topology: &Topology, program: &str) -> Metrics {
        Metrics { sampler: Mutex::new(sample::Sampler::new(topology)), program: program.to_owned() }
    }

    /// Returns the present counters. Waits at most 200 ms for all shards to answer. Shards that have not are listed in
    /// [`ProgramMetrics::missing_shards`], and their figures are those of their last answer, so that no counter falls
    /// because a shard was busy. A result that is younger than 10 ms is returned again.
    ///
    /// Do not call this on a shard's thread: a shard that waits here cannot answer.
    #[must_use]
    pub fn take(&self) -> ProgramMetrics {
        // After a panic elsewhere the sample is at worst an older one.
        let mut sampler = self.sampler.lock().unwrap_or_else(PoisonError::into_inner);
        let sample = sampler.sample();
        of_program(&self.program, sampler.topology(), &sample)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("program", &self.program).finish_non_exhaustive()
    }
}
