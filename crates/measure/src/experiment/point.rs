//! The result of one run of an experiment: all jobs together, in a few figures.
//!
//! # Why
//! Experiments compare runs, and a run has dozens of figures. These are the ones that the questions ask about.
//!
//! # How it works
//! Requests and bytes are summed over jobs and shards, latencies merged. The state of the device is known per class;
//! jobs of one class share it, so each class counts once. Little's law ties three of the figures together: the mean
//! number in the device is the rate of pieces times their mean time in it. [`Point::little_ratio`] is the quotient of
//! both sides: 1 if all three were measured well.
//!
//! # Limits
//! The number in the device is sampled at most once a millisecond: runs of less than a second have noisy ratios.
//! There is no ratio if less than a hundredth of a piece is in the device on average.
//!
//! # Example
//! 8188 pieces a second of 0.49 ms each are 4.01 in the device.
//! ```
//! use plimsoll_measure::experiment::Point;
//! let point = Point { in_device: 4.01, pieces_per_s: 8188.0, device_latency_mean_us: 490.0, ..Point::default() };
//! assert!((point.little_ratio().unwrap() - 1.0).abs() < 0.01);
//! ```

use plimsoll::core::{CostModel, Histogram, Op, WaitReason};
use plimsoll_figures::verdict::CurvePoint;
use plimsoll_files::jobs::{Job, JobKind};
use serde::Serialize;

use super::Situation;
use crate::report::Latency;
use crate::test::TestResult;

/// Mean number of pieces in the device below which they cannot be told from none.
const IN_DEVICE_MIN: f64 = 0.01;

/// The result of one run. Durations of requests are in microseconds, as in every result.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Point {
    /// Settings of the run: key and value.
    pub settings: Vec<(String, String)>,
    /// Fibers of all jobs on all shards: the most requests (or batches) under way.
    pub parallelism: u64,
    /// Requests a second.
    pub iops: f64,
    /// Bytes a second.
    pub throughput_bytes_per_s: f64,
    /// Latency from when a request was due (or sent) to its end.
    pub latency: Latency,
    /// Mean number of pieces in the device.
    pub in_device: f64,
    /// Pieces dispatched to the device, a second.
    pub pieces_per_s: f64,
    /// Mean time of a piece in the device.
    pub device_latency_mean_us: f64,
    /// The reason that delayed requests most, if any did.
    pub wait: Option<Wait>,
    /// Part of the disk's capacity that was used, by the model; `None` if the disk is unlimited.
    pub capacity_used: Option<f64>,
    /// Part of the bytes that the device moved and the run did not ask for, in percent; `None` if the kernel does not
    /// count.
    pub foreign_pct: Option<f64>,
    /// Requests that failed or were short, and blocks with wrong content.
    pub errors: u64,
    /// Measured window in seconds.
    pub elapsed_s: f64,
}

/// A reason that delayed requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Wait {
    /// `fairness`, `tokens`, `limit`, `depth` or `backend`.
    pub reason: &'static str,
    /// Part of the time in which a class had work but dispatched nothing for this reason; the mean of the I/O queues.
    pub part: f64,
}

impl Point {
    /// Computes the point of a run of `situation`.
    #[must_use]
    pub fn of(situation: &Situation, result: &TestResult, settings: Vec<(String, String)>) -> Point {
        let mut point = Point { settings, parallelism: fibers(situation), ..Point::default() };

        let shards = result.run.shards.len().max(1) as f64;
        let elapsed_ns = result.run.shards.iter().map(|s| s.elapsed_ns).max().unwrap_or(0);
        let (mut latency, mut device) = (Histogram::new(), Histogram::new());
        let mut waited_ns = [0u64; WaitReason::ALL.len()];
        let (mut dispatched, mut consumed_s) = (0u64, 0.0);
        let mut seen: Vec<&str> = Vec::new();

        for job in &result.jobs {
            let total = result.run.total(&job.job.name);
            point.iops += total.iops();
            point.throughput_bytes_per_s += total.bytes_per_s();
            point.errors += total.errors + total.fault_count;
            latency.merge(&total.latency);
            if seen.contains(&job.class.as_str()) {
                continue;
            }
            seen.push(&job.class);
            point.in_device += total.device_depth_mean;
            let Some(class) = &total.class else { continue };
            device.merge(&class.device);
            dispatched += class.stats.dispatched;
            consumed_s += class.stats.consumed_fs as f64 / plimsoll::core::FS_PER_S as f64;
            for (sum, reason) in waited_ns.iter_mut().zip(WaitReason::ALL) {
                *sum += class.stats.waited_for_ns(reason);
            }
        }

        point.elapsed_s = elapsed_ns as f64 / 1e9;
        point.latency = Latency::of(&latency);
        point.device_latency_mean_us = device.mean() / 1e3;

        if elapsed_ns > 0 {
            point.pieces_per_s = dispatched as f64 / point.elapsed_s;
            let is_limited = situation.disk().is_ok_and(|disk| !disk.config.model.is_unlimited());
            point.capacity_used = is_limited.then_some(consumed_s / point.elapsed_s);
            let longest = waited_ns.iter().zip(WaitReason::ALL).max_by_key(|(ns, _)| **ns);
            let part = |ns: u64| ns as f64 / elapsed_ns as f64 / shards / seen.len().max(1) as f64;
            point.wait = longest.map(|(ns, reason)| Wait { reason: reason.name(), part: part(*ns) });
            point.wait = point.wait.filter(|wait| wait.part >= 0.01);
        }
        point
    }

    /// Returns the pieces in the device over their rate times latency: 1 by Little's law. `None` if almost nothing is
    /// in the device.
    #[must_use]
    pub fn little_ratio(&self) -> Option<f64> {
        let expected = self.pieces_per_s * self.device_latency_mean_us / 1e6;
        (expected >= IN_DEVICE_MIN && self.in_device >= IN_DEVICE_MIN).then(|| self.in_device / expected)
    }

    /// Returns the bytes a second of other programs.
    fn foreign_bytes_per_s(&self) -> f64 {
        let part = self.foreign_pct.map_or(0.0, |percent| (percent / 100.0).min(0.999));
        self.throughput_bytes_per_s * part / (1.0 - part)
    }

    /// Returns the point for a curve over parallelism.
    #[must_use]
    pub(crate) fn on_curve(&self) -> CurvePoint {
        CurvePoint {
            parallelism: self.parallelism as f64,
            // If no bytes move (flushes), requests are the throughput.
            throughput: if self.throughput_bytes_per_s > 0.0 { self.throughput_bytes_per_s } else { self.iops },
            latency_ns: self.device_latency_mean_us * 1e3,
            in_device: self.in_device,
        }
    }
}

/// Returns the traffic of other programs, in percent of the most that the device moved at any of the points: beside one
/// request at a time a small neighbour is half of what is moved, and still takes little of what the device can do.
pub(crate) fn foreign_pct<'a>(points: impl Iterator<Item = &'a Point> + Clone) -> f64 {
    let most =
        points.clone().map(|point| point.throughput_bytes_per_s + point.foreign_bytes_per_s()).fold(0.0, f64::max);
    let foreign = points.map(Point::foreign_bytes_per_s).fold(0.0, f64::max);
    if most > 0.0 { 100.0 * foreign / most } else { 0.0 }
}

/// Returns the fibers of all jobs on all shards.
fn fibers(situation: &Situation) -> u64 {
    let shards = u32::from(situation.options.shards);
    let of_job =
        |job: &Job| (0..shards).filter(|s| job.shards.contains(*s)).count() as u64 * u64::from(job.parallelism);
    situation.options.jobs.jobs.iter().map(of_job).sum()
}

/// Returns the bytes a second that the model of the disk promises to the jobs; `None` if the disk is unlimited, or if
/// the jobs differ in direction or length.
#[must_use]
pub fn promised_bytes_per_s(jobs: &[Job], model: &CostModel) -> Option<f64> {
    let first = jobs.first()?;
    let direction = |job: &Job| match job.kind {
        JobKind::SeqRead | JobKind::RandRead => Some(Op::Read),
        JobKind::Overwrite | JobKind::RandWrite | JobKind::Append => Some(Op::Write),
        _ => None,
    };
    let alike = |job: &Job| {
        direction(job) == direction(first) && job.request_bytes == first.request_bytes && job.sizes.is_empty()
    };
    let op = direction(first)?;
    if model.is_unlimited() || !jobs.iter().all(alike) {
        return None;
    }
    let len_bytes = first.request_bytes;
    let seconds = model.cost(op, len_bytes).as_secs_f64();
    (seconds > 0.0).then(|| f64::from(len_bytes) / seconds)
}

#[cfg(test)]
mod tests {
    use plimsoll::core::CostForm;
    use plimsoll_files::setup::old_defaults;

    use super::*;
    use crate::experiment::tests_support::situation;

    #[test]
    fn fibers_and_promises() {
        let text = "[{name: a, type: seqread, shards: all, shard_info: {parallelism: 4, reqsize: 1MB}}, \
                     {name: b, type: seqread, shards: [1], shard_info: {parallelism: 2, reqsize: 1MB}}]";
        let mut two = situation(text);
        two.options.shards = 3;
        assert_eq!(fibers(&two), 14);
        let model = old_defaults::disk_config().model;
        let promised = promised_bytes_per_s(&two.options.jobs.jobs, &model).unwrap();
        assert!((promised / 8.585_7e9 - 1.0).abs() < 1e-4, "{promised}");
        let mut jobs = two.options.jobs.jobs.clone();
        assert_eq!(promised_bytes_per_s(&jobs, &CostModel::unlimited()), None);
        jobs[1].kind = JobKind::Overwrite;
        assert_eq!(promised_bytes_per_s(&jobs, &model), None);
        assert_eq!(model.form(), Some(CostForm::Seastar));
    }

    #[test]
    fn jobs_of_one_class_count_once_in_the_device() {
        let text = "[{name: a, type: randread, shards: all, shard_info: {parallelism: 2}}, \
                     {name: b, type: randread, shards: all, shard_info: {parallelism: 2, class: a}}]";
        let situation = situation(text);
        let result = situation.run(&crate::load::Control::default(), &mut |_, _| {}).unwrap();
        let point = Point::of(&situation, &result, Vec::new());
        let a = result.run.total("a");
        let both = a.iops() + result.run.total("b").iops();
        assert!((point.iops - both).abs() <= 1e-6 * both, "both jobs");
        let dispatched = a.class.unwrap().stats.dispatched as f64;
        assert!((point.pieces_per_s * point.elapsed_s - dispatched).abs() < 1.0, "one class");
        assert_eq!((point.errors, point.capacity_used, point.parallelism), (0, None, 4));
    }
}
