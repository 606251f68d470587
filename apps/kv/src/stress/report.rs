//! Formats the results of `stress`.
//!
//! # Why
//! The columns are those of cassandra-stress, so that figures can be put side by side.
//!
//! # How it works
//! A live line for each second and a summary at the end, or the part of the JSON of `plimsoll test --format json` that
//! `plimsoll compare` reads: jobs with intervals and a histogram. The log has an interval for each second and kind, in
//! HdrHistogram's format, values in nanoseconds.
//!
//! # Limits
//! `missing` (reads of keys that have no value) has no column in cassandra-stress, which calls it an error.
//!
//! # Example
//! `read, 20000, 2000, 1.2, 0.9, 2.1, 4.8, 9.9, 12.0, 10.0, 0, 0`

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use hdrhistogram::serialization::V2Serializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use serde_json::{Value, json};

use super::plan::Plan;
use super::tally::{Kind, Part};
use crate::failure::Failure;

/// The columns of a line.
pub const COLUMNS: &str =
    "type, total ops, op/s, mean, med, .95, .99, .999, max, time, errors, missing  (latency in ms)";

/// Returns a line: `total` operations so far, and `part` of the last `length`, which ended at `time`.
#[must_use]
pub fn line(kind: Kind, total: u64, part: &Part, length: Duration, time: Duration) -> String {
    let ms = |quantile: f64| part.latencies.value_at_quantile(quantile) as f64 / 1e6;
    let done = part.latencies.len();
    format!(
        "{:<5}, {total:>9}, {:>7.0}, {:>7.2}, {:>7.2}, {:>7.2}, {:>7.2}, {:>7.2}, {:>7.2}, {:>5.1}, {}, {}",
        kind.name(),
        done as f64 / length.as_secs_f64().max(1e-9),
        part.mean_ns() / 1e6,
        ms(0.5),
        ms(0.95),
        ms(0.99),
        ms(0.999),
        part.latencies.max() as f64 / 1e6,
        time.as_secs_f64(),
        part.errors,
        part.missing,
    )
}

/// A second of operations of one kind.
#[derive(Clone, Copy, Debug)]
pub struct Second {
    /// Its length.
    pub length: Duration,
    /// Operations that ended.
    pub operations: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Mean latency in nanoseconds.
    pub mean_ns: f64,
}

/// Returns the result as JSON for `plimsoll compare`. `overdue` operations were due and had not begun at the end.
/// `is_interrupted`: a signal has ended the load.
#[must_use]
pub fn json(
    plan: &Plan,
    elapsed: Duration,
    jobs: &[(Kind, Part, Vec<Second>)],
    overdue: Option<u64>,
    is_interrupted: bool,
) -> Value {
    let job = |(kind, part, seconds): &(Kind, Part, Vec<Second>)| {
        let quantile = |quantile: f64| part.latencies.value_at_quantile(quantile) as f64 / 1e3;

        let intervals: Vec<Value> = seconds.iter().map(interval).collect();
        let buckets = part.latencies.iter_recorded();
        let histogram: Vec<Value> =
            buckets.map(|bucket| json!([bucket.value_iterated_to(), bucket.count_since_last_iteration()])).collect();

        json!({
            "name": kind.name(), "requests": part.latencies.len(), "errors": part.errors, "missing": part.missing,
            "latency": {
                "mean_us": part.mean_ns() / 1e3, "p50_us": quantile(0.5), "p95_us": quantile(0.95),
                "p99_us": quantile(0.99), "p99_9_us": quantile(0.999), "max_us": part.latencies.max() as f64 / 1e3,
            },
            "intervals": intervals, "histogram": histogram,
        })
    };

    json!({
        "schema": 1, "plimsoll": env!("CARGO_PKG_VERSION"), "backend": "resp", "interrupted": is_interrupted,
        "seed": plan.seed, "threads": plan.threads, "rate_per_s": plan.rate_per_s, "duration_s": elapsed.as_secs_f64(),
        "overdue": overdue,
        "jobs": jobs.iter().map(job).collect::<Vec<Value>>(),
    })
}

fn interval(second: &Second) -> Value {
    let mean_us = (second.operations > 0).then_some(second.mean_ns / 1e3);
    json!({
        "length_s": second.length.as_secs_f64(), "requests": second.operations, "bytes": second.bytes,
        "latency_mean_us": mean_us,
    })
}

/// A log of histograms, in HdrHistogram's format. Each is written when its second has ended.
pub struct HdrLog {
    out: BufWriter<File>,
    serializer: V2Serializer,
}

impl HdrLog {
    /// Creates the file `path`, which must not exist.
    ///
    /// # Errors
    /// The file exists, or cannot be created.
    pub fn create(path: &Path) -> Result<HdrLog, Failure> {
        let failed = |error| Failure::Input(format!("cannot make {}: {error}", path.display()));
        let mut log =
            HdrLog { out: BufWriter::new(File::create_new(path).map_err(failed)?), serializer: V2Serializer::new() };
        let mut builder = IntervalLogWriterBuilder::new();
        builder.add_comment("plimsoll-kv stress: latencies in nanoseconds");
        builder.begin_log_with(&mut log.out, &mut log.serializer).map_err(failed)?;
        Ok(log)
    }

    /// Adds `part`, which began at `at` after the load's start.
    ///
    /// # Errors
    /// The system's error.
    pub fn add(&mut self, at: Duration, length: Duration, kind: Kind, part: &Part) -> Result<(), Failure> {
        if part.latencies.is_empty() {
            return Ok(());
        }
        let failed = |error: &dyn std::fmt::Display| Failure::machine("cannot write the log of histograms", error);
        // A writer without comments begins with nothing.
        let builder = IntervalLogWriterBuilder::new();
        let mut writer = builder.begin_log_with(&mut self.out, &mut self.serializer).map_err(|error| failed(&error))?;
        let written = writer.write_histogram(&part.latencies, at, length, Tag::new(kind.name()));
        written.map_err(|error| failed(&format_args!("{error:?}")))?;
        self.out.flush().map_err(|error| failed(&error))
    }
}
