//! Results of `test` in the formats that other programs read.
//!
//! **Why.** A result is a file: it is compared, plotted and kept. Its schema is documented here and stable.
//!
//! **How.** [`TestReport`] has plain numbers, with units in the names. JSON is this structure, and
//! [`TestReport::from_json`] reads it; CSV has a line for each of its `jobs`; YAML is io_tester's own form: a list with
//! one map a shard, one entry a job, its field names (throughput in KiB/s labelled `kB/s`, latencies in microseconds),
//! followed by our own fields (`splits`, `waited_sec`, `errors`). Latencies are kept as [`Buckets`], so percentiles can
//! be computed over several results.
//!
//! **Limits.** io_tester's `io_queue_adjusted_consumption` and `io_queue_starvation_time_sec` are the virtual time and
//! the time with work queued and nothing in the device; here the wait has reasons instead, and those two keys are left
//! out. Results of versions before [`SCHEMA`] 1 have no schema number and cannot be read.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_measure::report::Latency;
//! let mut histogram = plimsoll::core::Histogram::new();
//! histogram.record(20_000);
//! let latency = Latency::of(&histogram);
//! assert!((latency.p50_us - 20.0).abs() < 0.2);
//! ```

pub(crate) mod buckets;
mod options;
mod parts;
mod place;
mod price;
mod text;

use plimsoll::core::{ClassStats, FS_PER_S, Histogram, WaitReason};
use plimsoll_figures::series::student_t;
use plimsoll_figures::stats::{counting_error, of_runs, of_series};
use plimsoll_figures::units::{format_bytes_binary, format_duration_ns};
use plimsoll_show::answer::upper_first;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

use crate::load::{BlockFault, Interval, JobResult, RunResult, Steady};
use crate::test::{TestJob, TestOptions, TestResult};

pub use buckets::Buckets;
pub use options::JobOptions;
pub use parts::DirectionReport;
pub use place::{Circumstances, Place};
pub use price::GoalPrice;

/// Version of the JSON form. It rises when a key is removed or changes its meaning.
pub const SCHEMA: u64 = 1;

/// Latency of requests, in microseconds. All zero if no request completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    pub average_us: f64,
    pub p50_us: f64,
    pub p95_us: f64,
    pub p99_us: f64,
    pub p99_9_us: f64,
    pub p99_99_us: f64,
    pub max_us: f64,
}

impl Latency {
    pub fn of(histogram: &Histogram) -> Latency {
        let at = |percent: f64| histogram.percentile(percent) as f64 / 1e3;
        Latency {
            average_us: histogram.mean() / 1e3,
            p50_us: at(50.0),
            p95_us: at(95.0),
            p99_us: at(99.0),
            p99_9_us: at(99.9),
            p99_99_us: at(99.99),
            max_us: histogram.max() as f64 / 1e3,
        }
    }
}

/// Pieces of a class in the device, sampled at most once a millisecond on each I/O queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Depth {
    /// Mean; of several I/O queues, the sum of the means.
    pub average: f64,
    /// Median of one I/O queue.
    pub p50: u64,
    /// 90th percentile of one I/O queue.
    pub p90: u64,
    /// Most on one I/O queue.
    pub max: u64,
}

/// Figures of a job's class on the I/O queues. Jobs of one class show the same figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassReport {
    pub dispatched: u64,
    pub split: u64,
    /// Device time by the disk model, in seconds.
    pub consumption_s: f64,
    /// Sum of the times in the queue, in seconds.
    pub queue_s: f64,
    /// Sum of the times in the device, in seconds.
    pub device_s: f64,
    pub queue: Latency,
    pub device: Latency,
    /// Times that the class became active.
    pub activations: u64,
    /// Seconds with work queued while other classes were served.
    pub waited_fairness_s: f64,
    /// Seconds with work queued while the model's tokens were used up.
    pub waited_tokens_s: f64,
    /// Seconds with work queued at a limit of the class, or of a group above it.
    pub waited_limit_s: f64,
    /// Seconds with work queued while the device had enough pieces.
    pub waited_depth_s: f64,
    /// Seconds with work queued while the backend had no room.
    pub waited_backend_s: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobReport {
    pub name: String,
    /// The shard; `None` for all shards together.
    pub shard: Option<u16>,
    pub class: String,
    pub shares: u32,
    /// `type` of the job file.
    pub kind: String,
    /// Length of a request in bytes; with several lengths the longest.
    pub request_bytes: u64,
    pub job: JobOptions,
    /// Requests that completed; of a `cpu` job, its slices.
    pub requests: u64,
    pub bytes: u64,
    /// Requests that failed or transferred too few bytes.
    pub errors: u64,
    /// Error of the first failed request; `None` without errors.
    pub first_error: Option<String>,
    pub iops: f64,
    pub throughput_bytes_per_s: f64,
    /// Latency from when a request was due (or sent) until it completed.
    pub latency: Latency,
    pub device_depth: Depth,
    /// Figures of the class on the I/O queue; `None` if its queue is on another shard.
    pub io_queue: Option<ClassReport>,
    pub histogram: Buckets,
    /// Figures of each interval of the measured window, in order.
    pub intervals: Vec<IntervalReport>,
    /// First blocks with wrong content; empty for jobs that do not verify.
    pub faults: Vec<BlockFault>,
    pub fault_count: u64,
    /// Reads of a mixed job; `None` for others.
    #[serde(default)]
    pub reads: Option<DirectionReport>,
    /// Writes of a mixed job; `None` for others.
    #[serde(default)]
    pub writes: Option<DirectionReport>,
    /// Flushes after writes; `None` if there were none.
    #[serde(default)]
    pub flushes: Option<DirectionReport>,
    /// Requests that were due and had not completed at the end of the window; 0 for closed loops.
    #[serde(default)]
    pub overdue: u64,
    /// Time for which the oldest of those was overdue, in microseconds; 0 if none.
    #[serde(default)]
    pub overdue_oldest_us: f64,
}

/// A part of the measured window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IntervalReport {
    pub length_s: f64,
    pub requests: u64,
    pub bytes: u64,
    /// Mean latency in microseconds; 0 if no request completed.
    #[serde(default, deserialize_with = "number_or_0")]
    pub latency_mean_us: f64,
    #[serde(default)]
    pub latency_max_us: f64,
}

/// Reads null, the mean of nothing, as 0.
fn number_or_0<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

impl IntervalReport {
    pub(crate) fn of(interval: &Interval) -> IntervalReport {
        IntervalReport {
            length_s: interval.length_ns as f64 / 1e9,
            requests: interval.requests,
            bytes: interval.bytes,
            latency_mean_us: interval.latency_sum_ns as f64 / interval.requests.max(1) as f64 / 1e3,
            latency_max_us: interval.latency_max_ns as f64 / 1e3,
        }
    }
}

/// Returns half of the 95 % interval of the mean rate of several runs; `None` if it is unknown. `count` is what an
/// interval counts: its requests, or their bytes.
pub(crate) fn half_width<'a>(
    runs: impl Iterator<Item = &'a [IntervalReport]>,
    count: fn(&IntervalReport) -> u64,
) -> Option<f64> {
    let (mut estimates, mut lengths_s, mut counted, mut requests) = (Vec::new(), Vec::new(), 0.0, 0.0);
    for intervals in runs {
        let whole: Vec<&IntervalReport> = whole_intervals(intervals).collect();
        let rates: Vec<f64> = whole.iter().map(|interval| count(interval) as f64 / interval.length_s).collect();
        estimates.push(of_series(&rates)?);
        lengths_s.push(whole.iter().map(|interval| interval.length_s).sum());
        counted += whole.iter().map(|interval| count(interval) as f64).sum::<f64>();
        requests += whole.iter().map(|interval| interval.requests as f64).sum::<f64>();
    }
    let per_request = if requests > 0.0 { counted / requests } else { 0.0 };
    let all = of_runs(&estimates)?.with_error_of_at_least(per_request * counting_error(&lengths_s));
    Some(student_t(all.freedom) * all.standard_error).filter(|half_width| half_width.is_finite())
}

/// Returns the intervals that are longer than half the longest. The last one is what was left of the window, often only
/// microseconds.
pub(crate) fn whole_intervals(intervals: &[IntervalReport]) -> impl Iterator<Item = &IntervalReport> {
    let longest_s = intervals.iter().map(|interval| interval.length_s).fold(0.0, f64::max);
    intervals.iter().filter(move |interval| interval.length_s > longest_s / 2.0)
}

/// Properties of a machine that matter for a comparison; none of them identifies the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// CPUs that the program may use; `None` if the system does not report them.
    pub cpus: Option<usize>,
    /// Release of the kernel; `None` if it cannot be read.
    pub kernel: Option<String>,
}

impl Machine {
    pub fn here() -> Machine {
        Machine {
            cpus: std::thread::available_parallelism().ok().map(usize::from),
            kernel: plimsoll::sys::sysfs::text("/proc/sys/kernel".as_ref(), "osrelease"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TestReport {
    pub schema: u64,
    #[serde(flatten)]
    pub made: Circumstances,
    pub elapsed_s: f64,
    pub interrupted: bool,
    /// Bytes written to the storage, including its preparation.
    pub written_bytes: u64,
    pub max_write_reached: bool,
    /// Steadiness of the run, if it could end when steady: of several stages, the first unsteady one, or the last.
    #[serde(default)]
    pub steady: Option<Steady>,
    /// The disks whose latency goal kept them from the throughput goal at the end of the window.
    #[serde(default)]
    pub latency_goal_binds: Vec<GoalPrice>,
    /// CPU seconds of the shards per million requests, over the measured window.
    pub cpu_s_per_million_requests: Option<f64>,
    /// Results of each job over all shards.
    pub jobs: Vec<JobReport>,
    pub by_shard: Vec<JobReport>,
}

/// The subject of a line of a report: a job, or a class of a trace.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) name: String,
    pub(crate) class: String,
    pub(crate) shares: u32,
    pub(crate) options: JobOptions,
}

impl Load {
    fn of(test: &TestJob) -> Load {
        let TestJob { job, class, shares } = test;
        Load { name: job.name.clone(), class: class.clone(), shares: *shares, options: JobOptions::of(job) }
    }
}

/// The keys that identify a text as a result, and its form.
#[derive(Deserialize)]
struct Head {
    plimsoll: Option<IgnoredAny>,
    schema: Option<u64>,
    jobs: Option<IgnoredAny>,
    by_shard: Option<IgnoredAny>,
}

#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error("this is not JSON: {0}; give a file that `plimsoll test --format json` wrote, whole")]
    NotJson(serde_json::Error),
    #[error("this JSON is not the result of a test: give a file that `plimsoll test --format json` wrote")]
    NotAResult,
    #[error("this result has no `schema`: a version of plimsoll before 1 of that form wrote it; run the test again")]
    OlderSchema,
    #[error("this result has schema {found}, and this version of plimsoll knows up to {SCHEMA}: use a newer plimsoll")]
    NewerSchema { found: u64 },
    #[error("this result is damaged: {0}; run the test again")]
    Shape(serde_json::Error),
}

impl TestReport {
    /// Returns the report of a result that was made on this machine. [`TestReport::with_options`] adds the options.
    pub fn of(result: &TestResult) -> TestReport {
        let loads: Vec<Load> = result.jobs.iter().map(Load::of).collect();
        TestReport {
            interrupted: result.interrupted,
            written_bytes: result.written_bytes,
            max_write_reached: result.max_write_reached,
            ..TestReport::of_run(&result.run, &loads)
        }
    }

    /// Returns the report of a run of these loads, without written bytes or an early end.
    pub(crate) fn of_run(run: &RunResult, loads: &[Load]) -> TestReport {
        let RunResult { shards, steady, .. } = run;
        let jobs = loads.iter().map(|load| job_report(load, &run.total(&load.name), None)).collect();
        let find = |name: &str| loads.iter().find(|load| load.name == name);
        let by_shard = shards.iter().flat_map(|shard| {
            let report = |job: &JobResult| Some(job_report(find(&job.name)?, job, Some(shard.shard)));
            shard.jobs.iter().filter_map(report).collect::<Vec<_>>()
        });

        TestReport {
            schema: SCHEMA,
            made: Circumstances::of_run(run),
            elapsed_s: shards.iter().map(|s| s.elapsed_ns).max().unwrap_or(0) as f64 / 1e9,
            interrupted: false,
            written_bytes: 0,
            max_write_reached: false,
            steady: *steady,
            latency_goal_binds: price::of_run(run),
            cpu_s_per_million_requests: run.cpu_s_per_million(),
            jobs,
            by_shard: by_shard.collect(),
        }
    }

    /// Returns the report with the place, and the options' seed, duration and warm-up.
    pub fn with_options(self, options: &TestOptions) -> TestReport {
        TestReport { made: self.made.with_options(options), ..self }
    }

    /// Returns where and how the result was made, and the failed requests, a sentence each.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = self.made.sentences();
        remarks.push(format!(
            "{} measured, {} written{}.",
            format_duration_ns((self.elapsed_s.max(0.0) * 1e9) as u64),
            format_bytes_binary(self.written_bytes),
            if self.interrupted { ", interrupted" } else { "" }
        ));
        remarks.extend(self.latency_goal_binds.iter().map(|price| format!("{}.", upper_first(&price.sentence()))));
        remarks.extend(self.jobs.iter().filter(|job| job.errors > 0).map(|job| {
            let first = job.first_error.as_deref().unwrap_or("unknown");
            format!("Job {}: {} requests failed, the first: {first}.", job.name, job.errors)
        }));
        remarks
    }

    /// Parses the output of [`TestReport::to_json`], of this version or an older one with the same form.
    pub fn from_json(text: &str) -> Result<TestReport, ReportError> {
        let head: Head = serde_json::from_str(text).map_err(|error| match error.classify() {
            serde_json::error::Category::Data => ReportError::NotAResult,
            _ => ReportError::NotJson(error),
        })?;
        if head.plimsoll.is_none() || head.jobs.is_none() || head.by_shard.is_none() {
            return Err(ReportError::NotAResult);
        }
        match head.schema {
            None => Err(ReportError::OlderSchema),
            Some(found) if found > SCHEMA => Err(ReportError::NewerSchema { found }),
            Some(_) => serde_json::from_str(text).map_err(ReportError::Shape),
        }
    }

    pub fn to_json(&self) -> String {
        // Plain numbers and strings cannot fail. Numbers that JSON cannot express become null.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

fn job_report(load: &Load, result: &JobResult, shard: Option<u16>) -> JobReport {
    let directions = result.directions.as_deref();
    let of = |direction| DirectionReport::of(direction, result.elapsed_ns);
    let has_flushed = result.flushes.requests + result.flushes.errors > 0;

    JobReport {
        name: load.name.clone(),
        shard,
        class: load.class.clone(),
        shares: load.shares,
        kind: load.options.kind.clone(),
        request_bytes: load.options.request_bytes,
        job: load.options.clone(),
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
        histogram: Buckets::of(&result.latency),
        intervals: result.intervals.iter().map(IntervalReport::of).collect(),
        faults: result.faults.clone(),
        fault_count: result.fault_count,
        reads: directions.map(|both| of(&both.reads)),
        writes: directions.map(|both| of(&both.writes)),
        flushes: has_flushed.then(|| of(&result.flushes)),
        overdue: result.overdue,
        overdue_oldest_us: result.overdue_oldest_ns as f64 / 1e3,
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

/// Returns an error number as text; 0 stands for a short transfer.
fn error_text(number: i32) -> String {
    match number {
        0 => "it came back short: the file ends there, or the disk is full".to_owned(),
        number => std::io::Error::from_raw_os_error(number).to_string(),
    }
}
