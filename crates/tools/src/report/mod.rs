//! Results of `test` in the formats that other programs read.
//!
//! # Why
//! A result is a file: it is compared, plotted and kept. Its schema is documented here and stable.
//!
//! # How it works
//! [`TestReport`] holds plain numbers, units in the names. JSON is this structure; CSV is its `jobs`, a line each; YAML is
//! io_tester's own: a list with one map a shard, one entry a job, its field names (throughput in KiB/s labelled
//! `kB/s`, latencies in microseconds), ours beside them (`splits`, `waited_sec`, `errors`).
//!
//! # Limits
//! io_tester's `io_queue_adjusted_consumption` and `io_queue_starvation_time_sec` are the virtual time and the time with
//! work queued and nothing in the device; here the wait has reasons instead, and those two keys are left out.
//!
//! # Example
//! ```
//! use plimsoll_tools::report::Latency;
//! let mut histogram = plimsoll::core::Histogram::new();
//! histogram.record(20_000);
//! let latency = Latency::of(&histogram);
//! assert!((latency.p50_us - 20.0).abs() < 0.2);
//! ```

use std::fmt::Write;

use plimsoll::core::{ClassStats, FS_PER_S, Histogram, WaitReason};
use serde::Serialize;

use crate::load::{JobResult, RunResult};
use crate::test::{TestJob, TestResult};

/// Latency of requests, in microseconds. All zero where there were none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// Arithmetic mean.
    pub average_us: f64,
    /// Half were faster.
    pub p50_us: f64,
    /// 95 % were faster.
    pub p95_us: f64,
    /// 99 % were faster.
    pub p99_us: f64,
    /// 99.9 % were faster.
    pub p99_9_us: f64,
    /// The slowest.
    pub max_us: f64,
}

impl Latency {
    /// Of a histogram of nanoseconds.
    #[must_use]
    pub fn of(histogram: &Histogram) -> Latency {
        let at = |percent: f64| histogram.percentile(percent) as f64 / 1e3;
        Latency {
            average_us: histogram.mean() / 1e3,
            p50_us: at(50.0),
            p95_us: at(95.0),
            p99_us: at(99.0),
            p99_9_us: at(99.9),
            max_us: histogram.max() as f64 / 1e3,
        }
    }
}

/// Pieces of a class in the device, sampled at most once a millisecond on each I/O queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Depth {
    /// Mean; of several I/O queues, the sum of theirs.
    pub average: f64,
    /// Median of one I/O queue.
    pub p50: u64,
    /// 90th percentile of one I/O queue.
    pub p90: u64,
    /// The most on one I/O queue.
    pub max: u64,
}

/// What the class of a job did on the I/O queues. Jobs of one class show the same figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ClassReport {
    /// Pieces dispatched.
    pub dispatched: u64,
    /// Requests that were split.
    pub split: u64,
    /// Device time by the disk model, in seconds.
    pub consumption_s: f64,
    /// Sum of the times in the queue, in seconds.
    pub queue_s: f64,
    /// Sum of the times in the device, in seconds.
    pub device_s: f64,
    /// Time in the queue.
    pub queue: Latency,
    /// Time in the device.
    pub device: Latency,
    /// How often the class woke up.
    pub activations: u64,
    /// Seconds with work queued and others served.
    pub waited_fairness_s: f64,
    /// Seconds with work queued and the model's tokens used up.
    pub waited_tokens_s: f64,
    /// Seconds at a limit of the class, or of a group above it.
    pub waited_limit_s: f64,
    /// Seconds with work queued and enough in the device.
    pub waited_depth_s: f64,
    /// Seconds with work queued and no room in the backend.
    pub waited_backend_s: f64,
}

/// One job, on one shard or on all.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobReport {
    /// Its name.
    pub name: String,
    /// The shard, or nothing for all of them together.
    pub shard: Option<u16>,
    /// Its class.
    pub class: String,
    /// Shares of the class.
    pub shares: u32,
    /// `type` of the job file.
    pub kind: &'static str,
    /// Length of a request.
    pub request_bytes: u64,
    /// Requests that completed.
    pub requests: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// Requests that failed or came back short.
    pub errors: u64,
    /// Why the first of them did; nothing where there are none.
    pub first_error: Option<String>,
    /// Requests a second.
    pub iops: f64,
    /// Bytes a second.
    pub throughput_bytes_per_s: f64,
    /// From when a request was due (or sent) to its end.
    pub latency: Latency,
    /// In the device.
    pub device_depth: Depth,
    /// The class on the I/O queue; nothing where its queue is on another shard.
    pub io_queue: Option<ClassReport>,
}

/// A test's result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TestReport {
    /// Version of the program that made it.
    pub plimsoll: &'static str,
    /// Backend that carried the I/O.
    pub backend: String,
    /// Why that one.
    pub backend_reason: String,
    /// Number of shards.
    pub shards: usize,
    /// Length of the measured window, in seconds.
    pub elapsed_s: f64,
    /// Whether the run was stopped before its time.
    pub interrupted: bool,
    /// Bytes written to the storage, preparing it included.
    pub written_bytes: u64,
    /// Whether writers ended because no more may be written.
    pub max_write_reached: bool,
    /// CPU seconds of the shards in a million requests, over the measured window.
    pub cpu_s_per_million_requests: Option<f64>,
    /// Each job over all shards.
    pub jobs: Vec<JobReport>,
    /// Each job on each shard.
    pub by_shard: Vec<JobReport>,
}

impl TestReport {
    /// The report of a result.
    #[must_use]
    pub fn of(result: &TestResult) -> TestReport {
        let RunResult { shards, backend } = &result.run;
        let jobs = result.jobs.iter().map(|job| job_report(job, &result.run.total(&job.job.name), None)).collect();
        let find = |name: &str| result.jobs.iter().find(|j| j.job.name == name);
        let by_shard = shards.iter().flat_map(|shard| {
            let report = |job: &JobResult| Some(job_report(find(&job.name)?, job, Some(shard.shard)));
            shard.jobs.iter().filter_map(report).collect::<Vec<_>>()
        });
        TestReport {
            plimsoll: env!("CARGO_PKG_VERSION"),
            backend: backend.as_ref().map_or_else(String::new, |b| b.kind.to_string()),
            backend_reason: backend.as_ref().map_or_else(String::new, |b| b.reason.clone()),
            shards: shards.len(),
            elapsed_s: shards.iter().map(|s| s.elapsed_ns).max().unwrap_or(0) as f64 / 1e9,
            interrupted: result.interrupted,
            written_bytes: result.written_bytes,
            max_write_reached: result.max_write_reached,
            cpu_s_per_million_requests: result.run.cpu_s_per_million(),
            jobs,
            by_shard: by_shard.collect(),
        }
    }

    /// As JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Plain numbers and strings: cannot fail. Numbers that JSON has no name for become null.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// The jobs over all shards as CSV, with a header.
    #[must_use]
    pub fn to_csv(&self) -> String {
        let mut out = String::from(
            "job,class,shares,type,request_bytes,requests,iops,throughput_bytes_per_s,latency_average_us,latency_p50_us,\
             latency_p95_us,latency_p99_us,latency_p99_9_us,latency_max_us,device_depth_average,device_depth_max,split,errors\n",
        );
        for job in &self.jobs {
            let (l, d) = (&job.latency, &job.device_depth);
            let _ = writeln!(
                out,
                "{},{},{},{},{},{},{:.1},{:.0},{:.2},{:.2},{:.2},{:.2},{:.2},{:.2},{:.2},{},{},{}",
                csv(&job.name),
                csv(&job.class),
                job.shares,
                job.kind,
                job.request_bytes,
                job.requests,
                job.iops,
                job.throughput_bytes_per_s,
                l.average_us,
                l.p50_us,
                l.p95_us,
                l.p99_us,
                l.p99_9_us,
                l.max_us,
                d.average,
                d.max,
                job.io_queue.map_or(0, |q| q.split),
                job.errors
            );
        }
        out
    }

    /// As io_tester's YAML.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        let mut out = String::from("---\n");
        let mut shard = None;
        for job in &self.by_shard {
            if job.shard != shard {
                shard = job.shard;
                let _ = writeln!(out, "- shard: {}", shard.unwrap_or(0));
            }
            yaml_job(&mut out, job);
        }
        out.push_str("...\n");
        out
    }
}

fn job_report(test_job: &TestJob, result: &JobResult, shard: Option<u16>) -> JobReport {
    JobReport {
        name: test_job.job.name.clone(),
        shard,
        class: test_job.class.clone(),
        shares: test_job.shares,
        kind: test_job.job.kind.as_str(),
        request_bytes: test_job.job.request_bytes,
        requests: result.requests,
        bytes: result.bytes,
        errors: result.errors,
        first_error: result.first_error.map(error_text),
        iops: result.iops(),
        throughput_bytes_per_s: result.bytes_per_s(),
        latency: Latency::of(&result.latency),
        device_depth: Depth {
            average: result.device_depth_mean,
            p50: result.device_depth.percentile(50.0),
            p90: result.device_depth.percentile(90.0),
            max: result.device_depth.max(),
        },
        io_queue: result.class.as_ref().map(|c| class_report(&c.stats, &c.queue, &c.device)),
    }
}

fn class_report(stats: &ClassStats, queue: &Histogram, device: &Histogram) -> ClassReport {
    let sum_s = |h: &Histogram| h.mean() * h.count() as f64 / 1e9;
    let waited_s = |reason| stats.waited_for_ns(reason) as f64 / 1e9;
    ClassReport {
        dispatched: stats.dispatched,
        split: stats.split,
        consumption_s: stats.consumed_fs as f64 / FS_PER_S as f64,
        queue_s: sum_s(queue),
        device_s: sum_s(device),
        queue: Latency::of(queue),
        device: Latency::of(device),
        activations: stats.activations,
        waited_fairness_s: waited_s(WaitReason::Fairness),
        waited_tokens_s: waited_s(WaitReason::Tokens),
        waited_limit_s: waited_s(WaitReason::Limit),
        waited_depth_s: waited_s(WaitReason::Depth),
        waited_backend_s: waited_s(WaitReason::Backend),
    }
}

/// An error number in words; 0 stands for a short transfer.
fn error_text(number: i32) -> String {
    match number {
        0 => "it came back short: the file ends there, or the disk is full".to_owned(),
        number => std::io::Error::from_raw_os_error(number).to_string(),
    }
}

/// A CSV field, quoted where it must be (RFC 4180).
fn csv(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

/// Plain words that some YAML reader takes for a truth value or for nothing.
const YAML_WORDS: [&str; 9] = ["true", "false", "yes", "no", "on", "off", "y", "n", "null"];

/// A YAML scalar that is a string whatever it looks like.
fn yaml_string(text: &str) -> String {
    let plain = !YAML_WORDS.iter().any(|word| text.eq_ignore_ascii_case(word))
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    // A JSON string is a YAML string.
    if plain { text.to_owned() } else { serde_json::to_string(text).unwrap_or_default() }
}

fn yaml_job(out: &mut String, job: &JobReport) {
    let l = &job.latency;
    let name = yaml_string(&job.name);
    let kib_per_s = job.throughput_bytes_per_s / 1024.0;
    let _ = write!(
        out,
        "  {name}:\n    throughput: {kib_per_s:.3}  # kB/s\n    IOPS: {:.3}\n    latencies:  # usec\n      average: {:.3}\n      \
         p0.5: {:.3}\n      p0.95: {:.3}\n      p0.99: {:.3}\n      p0.999: {:.3}\n      max: {:.3}\n    stats:\n      \
         total_requests: {}\n      errors: {}\n",
        job.iops, l.average_us, l.p50_us, l.p95_us, l.p99_us, l.p99_9_us, l.max_us, job.requests, job.errors
    );
    let Some(queue) = &job.io_queue else { return };
    let _ = write!(
        out,
        "      io_queue_total_exec_sec: {:.6}\n      io_queue_total_delay_sec: {:.6}\n      io_queue_total_operations: {}\n      \
         io_queue_consumption: {:.6}\n      io_queue_activations: {}\n      splits: {}\n      disk_queue_length:\n        \
         p0.5: {}\n        p0.9: {}\n        max: {}\n      waited_sec:\n        fairness: {:.6}\n        tokens: {:.6}\n        \
         limit: {:.6}\n        depth: {:.6}\n        backend: {:.6}\n",
        queue.device_s,
        queue.queue_s,
        queue.dispatched,
        queue.consumption_s,
        queue.activations,
        queue.split,
        job.device_depth.p50,
        job.device_depth.p90,
        job.device_depth.max,
        queue.waited_fairness_s,
        queue.waited_tokens_s,
        queue.waited_limit_s,
        queue.waited_depth_s,
        queue.waited_backend_s,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_where_they_must_be() {
        assert_eq!(csv("a,b\"c"), "\"a,b\"\"c\"");
        assert_eq!(yaml_string("reads_1"), "reads_1");
        for text in ["12", "true", "No", "on", "NULL", "y"] {
            assert_eq!(yaml_string(text), format!("\"{text}\""));
        }
        assert_eq!(yaml_string("once"), "once");
        assert_eq!(yaml_string("a: b"), "\"a: b\"");
    }
}
