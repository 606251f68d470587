//! A test's result as CSV and as io_tester's YAML.
//!
//! **Why.** Spreadsheets read the CSV, and scripts written for io_tester read the YAML.
//!
//! **How.** [`csv`] prints a line for each job over all shards. [`yaml`] prints for each type of job io_tester's keys
//! in its order, and then our own.
//!
//! **Limits.** Latency by interval, buckets and options are in the JSON only. `statistics: aio_retries` counts requests
//! that io_tester had to pass to its system-call thread because the kernel refused them; no backend here does that, so
//! it is always 0.
//!
//! **Example.** A `cpu` job is one line of YAML below its name, `throughput: 9876.543`: slices a second.

use std::fmt::Write;

use plimsoll_show::table::{self, Column, fixed};

use super::{ClassReport, Depth, JobReport, TestReport};

/// Columns of a job over all shards. New columns are added at the end.
const COLUMNS: [Column<JobReport>; 20] = [
    ("job", |it| it.name.clone()),
    ("class", |it| it.class.clone()),
    ("shares", |it| it.shares.to_string()),
    ("type", |it| it.kind.clone()),
    ("request_bytes", |it| it.request_bytes.to_string()),
    ("requests", |it| it.requests.to_string()),
    ("iops", |it| fixed(it.iops, 1)),
    ("throughput_bytes_per_s", |it| fixed(it.throughput_bytes_per_s, 0)),
    ("latency_average_us", |it| fixed(it.latency.average_us, 2)),
    ("latency_p50_us", |it| fixed(it.latency.p50_us, 2)),
    ("latency_p95_us", |it| fixed(it.latency.p95_us, 2)),
    ("latency_p99_us", |it| fixed(it.latency.p99_us, 2)),
    ("latency_p99_9_us", |it| fixed(it.latency.p99_9_us, 2)),
    ("latency_max_us", |it| fixed(it.latency.max_us, 2)),
    ("device_depth_average", |it| fixed(it.device_depth.average, 2)),
    ("device_depth_max", |it| it.device_depth.max.to_string()),
    ("split", |it| it.io_queue.map_or(0, |queue| queue.split).to_string()),
    ("errors", |it| it.errors.to_string()),
    ("latency_p99_99_us", |it| fixed(it.latency.p99_99_us, 2)),
    ("fault_count", |it| it.fault_count.to_string()),
];

impl TestReport {
    /// Returns the jobs over all shards as CSV, with a header.
    pub fn to_csv(&self) -> String {
        table::csv(&self.jobs, &COLUMNS)
    }

    /// Returns the report as io_tester's YAML: a list with one map a shard.
    pub fn to_yaml(&self) -> String {
        let mut out = String::from("---\n");
        let of_one_shard = |a: &JobReport, b: &JobReport| a.shard == b.shard;
        for jobs in self.by_shard.chunk_by(of_one_shard) {
            let shard = jobs.first().and_then(|job| job.shard).unwrap_or(0);
            let _ = writeln!(out, "- shard: {shard}");
            jobs.iter().for_each(|job| yaml_job(&mut out, job));
            out.push_str("  statistics:\n    aio_retries: 0\n");
        }
        out.push_str("...\n");
        out
    }
}

/// Unquoted words that some YAML readers take for a boolean or null.
const YAML_WORDS: [&str; 9] = ["true", "false", "yes", "no", "on", "off", "y", "n", "null"];

/// Returns a YAML scalar that every reader takes for a string.
fn yaml_string(text: &str) -> String {
    let plain = !YAML_WORDS.iter().any(|word| text.eq_ignore_ascii_case(word))
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    // A JSON string is a YAML string.
    if plain { text.to_owned() } else { serde_json::to_string(text).unwrap_or_default() }
}

fn yaml_job(out: &mut String, job: &JobReport) {
    let _ = writeln!(out, "  {}:", yaml_string(&job.name));
    match job.kind.as_str() {
        "cpu" => {
            let _ = writeln!(out, "    throughput: {:.3}", job.iops);
        }
        "unlink" => {
            let _ = write!(
                out,
                "    IOPS: {:.3}\n    latencies:  # usec\n      average: {:.3}\n      max: {:.3}\n    stats:\n      \
                 total_requests: {}\n      errors: {}\n",
                job.iops, job.latency.average_us, job.latency.max_us, job.requests, job.errors
            );
        }
        _ => yaml_io_job(out, job),
    }
}

fn yaml_io_job(out: &mut String, job: &JobReport) {
    let l = &job.latency;
    let kib_per_s = job.throughput_bytes_per_s / 1024.0;

    let _ = write!(
        out,
        "    throughput: {kib_per_s:.3}  # kB/s\n    IOPS: {:.3}\n    latencies:  # usec\n      average: {:.3}\n      \
         p0.5: {:.3}\n      p0.95: {:.3}\n      p0.99: {:.3}\n      p0.999: {:.3}\n      max: {:.3}\n      p0.9999: \
         {:.3}\n    stats:\n      total_requests: {}\n      errors: {}\n",
        job.iops,
        l.average_us,
        l.p50_us,
        l.p95_us,
        l.p99_us,
        l.p99_9_us,
        l.max_us,
        l.p99_99_us,
        job.requests,
        job.errors
    );

    if job.job.verify {
        let _ = writeln!(out, "      faults: {}", job.fault_count);
    }
    if let Some(queue) = &job.io_queue {
        yaml_queue(out, queue, &job.device_depth);
    }
}

fn yaml_queue(out: &mut String, queue: &ClassReport, depth: &Depth) {
    let _ = write!(
        out,
        "      io_queue_total_exec_sec: {:.6}\n      io_queue_total_delay_sec: {:.6}\n      \
         io_queue_total_operations: {}\n      io_queue_consumption: {:.6}\n      io_queue_activations: {}\n      \
         splits: {}\n      disk_queue_length:\n        p0.5: {}\n        p0.9: {}\n        max: {}\n      \
         waited_sec:\n        fairness: {:.6}\n        tokens: {:.6}\n        limit: {:.6}\n        \
         depth: {:.6}\n        backend: {:.6}\n",
        queue.device_s,
        queue.queue_s,
        queue.dispatched,
        queue.consumption_s,
        queue.activations,
        queue.split,
        depth.p50,
        depth.p90,
        depth.max,
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
        assert_eq!(yaml_string("reads_1"), "reads_1");
        for text in ["12", "true", "No", "on", "NULL", "y"] {
            assert_eq!(yaml_string(text), format!("\"{text}\""));
        }
        assert_eq!(yaml_string("once"), "once");
        assert_eq!(yaml_string("a: b"), "\"a: b\"");
    }
}
