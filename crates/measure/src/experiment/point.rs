//! The result of one setting of an experiment: all jobs together, in a few figures.
//!
//! **Why.** Experiments compare runs, and a run has dozens of figures. These are the ones that the conclusions need.
//!
//! **How.** A point is made of one run or several, its rounds (`Sums`). Requests and bytes are summed over jobs and
//! shards, latencies merged; rates are means of the rounds. The interval of the throughput is that of
//! [`plimsoll_figures::stats::of_runs`]: the larger of the interval within the rounds and the interval between the
//! rounds, and at least that of counting whole requests. The state of the device is known per class; jobs of one class
//! share it, so each class counts once. Little's law ties three of the figures together: the mean number in the device
//! is the rate of pieces times their mean time in it. [`Point::little_ratio`] is the quotient of both sides: 1 if all
//! three were measured well.
//!
//! **Limits.** The number in the device is sampled at most once a millisecond: runs of less than a second have noisy
//! ratios. There is no ratio if less than a hundredth of a piece is in the device on average.
//!
//! **Example.** 8188 pieces a second of 0.49 ms each are 4.01 in the device.
//!
//! ```
//! use plimsoll_measure::experiment::Point;
//! let point = Point { in_device: 4.01, pieces_per_s: 8188.0, device_latency_mean_us: 490.0, ..Point::default() };
//! assert!((point.little_ratio().unwrap() - 1.0).abs() < 0.01);
//! ```

use plimsoll::core::{CostModel, Histogram, Op, WaitReason};
use plimsoll_figures::verdict::CurvePoint;
use plimsoll_files::jobs::{Job, JobKind};
use serde::{Deserialize, Serialize};

use super::Situation;
use crate::load::JobResult;
use crate::report::{self, Buckets, IntervalReport, Latency};
use crate::test::TestResult;

/// Mean number of pieces in the device below which they cannot be told from none.
const IN_DEVICE_MIN: f64 = 0.01;

/// The result of one setting. Durations of requests are in microseconds, as in every result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Point {
    /// Settings of the run: key and value.
    pub settings: Vec<(String, String)>,
    /// Fibers of all jobs on all shards: the most requests (or batches) under way.
    pub parallelism: u64,
    pub iops: f64,
    pub throughput_bytes_per_s: f64,
    /// Half of the throughput's 95 % interval; `None` if unknown, because the runs were too short.
    pub throughput_half_width_bytes_per_s: Option<f64>,
    /// Latency from when a request was due (or sent) until it completed.
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
    /// count. The largest of all rounds.
    pub foreign_pct: Option<f64>,
    /// Requests that failed or were short, and blocks with wrong content.
    pub errors: u64,
    /// Measured window of all rounds in seconds.
    pub elapsed_s: f64,
    /// The runs behind the point, in the order of running.
    pub rounds: Vec<Round>,
}

/// One run of a point: the figures that verdicts and comparisons need.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Round {
    pub iops: f64,
    pub throughput_bytes_per_s: f64,
    /// Mean number of pieces in the device.
    pub in_device: f64,
    /// Mean time of a piece in the device.
    pub device_latency_mean_us: f64,
    /// All jobs together, over time.
    pub intervals: Vec<IntervalReport>,
    pub histogram: Buckets,
}

/// A reason that delayed requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wait {
    /// `fairness`, `tokens`, `limit`, `depth` or `backend`.
    pub reason: String,
    /// Part of the time in which a class had work but dispatched nothing for this reason; the mean of the I/O queues.
    pub part: f64,
}

impl Point {
    pub fn of(situation: &Situation, result: &TestResult, settings: Vec<(String, String)>) -> Point {
        let mut sums = Sums::default();
        sums.add(result, None);
        sums.point(situation, settings)
    }

    /// Returns the number of pieces in the device divided by their rate times latency: 1 by Little's law. `None` if
    /// almost nothing is in the device.
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
    pub(crate) fn on_curve(&self) -> CurvePoint {
        CurvePoint {
            parallelism: self.parallelism as f64,
            throughput: throughput(self.throughput_bytes_per_s, self.iops),
            half_width: self.throughput_half_width_bytes_per_s.filter(|_| self.throughput_bytes_per_s > 0.0),
            latency_ns: self.device_latency_mean_us * 1e3,
            in_device: self.in_device,
        }
    }

    pub(crate) fn on_curve_without(&self, left_out: usize) -> CurvePoint {
        let rounds = || self.rounds.iter().enumerate().filter(|(at, _)| *at != left_out).map(|(_, round)| round);
        let mean = |value: fn(&Round) -> f64| rounds().map(value).sum::<f64>() / rounds().count().max(1) as f64;
        CurvePoint {
            parallelism: self.parallelism as f64,
            throughput: mean(|round| throughput(round.throughput_bytes_per_s, round.iops)),
            half_width: half_width(rounds()).filter(|_| self.throughput_bytes_per_s > 0.0),
            latency_ns: mean(|round| round.device_latency_mean_us * 1e3),
            in_device: mean(|round| round.in_device),
        }
    }

    /// Returns half of the 95 % interval of the throughput as a part of the throughput; `None` if unknown.
    pub(crate) fn half_width_part(&self) -> Option<f64> {
        let half_width = self.throughput_half_width_bytes_per_s?;
        (self.throughput_bytes_per_s > 0.0).then(|| half_width / self.throughput_bytes_per_s)
    }

    /// Formats the interval of the throughput as a suffix: ` ± 1.2 %`; empty if unknown.
    pub fn interval_text(&self) -> String {
        self.half_width_part().map_or_else(String::new, |part| format!(" \u{b1} {:.1} %", 100.0 * part))
    }
}

/// Returns the throughput of a curve's point: bytes, or requests if no bytes move (flushes).
fn throughput(bytes_per_s: f64, iops: f64) -> f64 {
    if bytes_per_s > 0.0 { bytes_per_s } else { iops }
}

/// The runs of one setting, added up.
#[derive(Debug, Default)]
pub(super) struct Sums {
    rounds: Vec<Round>,
    latency: Histogram,
    device: Histogram,
    waited_ns: [u64; WaitReason::ALL.len()],
    dispatched: u64,
    consumed_s: f64,
    elapsed_ns: u64,
    shards: usize,
    classes: usize,
    foreign_pct: Option<f64>,
    errors: u64,
}

impl Sums {
    /// Adds a run, and the part of the device's bytes that the run did not ask for.
    pub(super) fn add(&mut self, result: &TestResult, foreign_pct: Option<f64>) {
        let mut round = Round::default();
        let (mut all, mut device) = (JobResult::default(), Histogram::new());
        let mut seen: Vec<&str> = Vec::new();

        for job in &result.jobs {
            let total = result.run.total(&job.job.name);
            round.iops += total.iops();
            round.throughput_bytes_per_s += total.bytes_per_s();
            all.merge(&total);
            if seen.contains(&job.class.as_str()) {
                continue;
            }
            seen.push(&job.class);
            round.in_device += total.device_depth_mean;
            let Some(class) = &total.class else { continue };
            device.merge(&class.device);
            self.dispatched += class.stats.dispatched;
            self.consumed_s += class.stats.consumed_fs as f64 / plimsoll::core::FS_PER_S as f64;
            for (sum, reason) in self.waited_ns.iter_mut().zip(WaitReason::ALL) {
                *sum += class.stats.waited_for_ns(reason);
            }
        }

        round.device_latency_mean_us = device.mean() / 1e3;
        round.intervals = all.intervals.iter().map(IntervalReport::of).collect();
        round.histogram = Buckets::of(&all.latency);
        self.latency.merge(&all.latency);
        self.device.merge(&device);
        self.errors += all.errors + all.fault_count;
        self.elapsed_ns += result.run.shards.iter().map(|shard| shard.elapsed_ns).max().unwrap_or(0);
        (self.shards, self.classes) = (result.run.shards.len(), seen.len());
        self.foreign_pct = self.foreign_pct.into_iter().chain(foreign_pct).reduce(f64::max);
        self.rounds.push(round);
    }

    /// Returns sums of known rounds, for tests.
    #[cfg(test)]
    pub(super) fn of_rounds(rounds: Vec<Round>, foreign_pct: f64) -> Sums {
        Sums { rounds, foreign_pct: Some(foreign_pct), ..Sums::default() }
    }

    pub(super) fn point(self, situation: &Situation, settings: Vec<(String, String)>) -> Point {
        let rounds = self.rounds.len().max(1) as f64;
        let mean = |value: fn(&Round) -> f64| self.rounds.iter().map(value).sum::<f64>() / rounds;
        let mut point = Point {
            settings,
            parallelism: fibers(situation),
            iops: mean(|round| round.iops),
            throughput_bytes_per_s: mean(|round| round.throughput_bytes_per_s),
            throughput_half_width_bytes_per_s: half_width(self.rounds.iter()),
            latency: Latency::of(&self.latency),
            in_device: mean(|round| round.in_device),
            device_latency_mean_us: self.device.mean() / 1e3,
            foreign_pct: self.foreign_pct,
            errors: self.errors,
            elapsed_s: self.elapsed_ns as f64 / 1e9,
            ..Point::default()
        };

        if self.elapsed_ns > 0 {
            point.pieces_per_s = self.dispatched as f64 / point.elapsed_s;
            let is_limited = situation.disk().is_ok_and(|disk| !disk.config.model.is_unlimited());
            point.capacity_used = is_limited.then_some(self.consumed_s / point.elapsed_s);
            let longest = self.waited_ns.iter().zip(WaitReason::ALL).max_by_key(|(ns, _)| **ns);
            let queues = (self.shards.max(1) * self.classes.max(1)) as f64;
            let part = |ns: u64| ns as f64 / self.elapsed_ns as f64 / queues;
            point.wait = longest.map(|(ns, reason)| Wait { reason: reason.name().to_owned(), part: part(*ns) });
            point.wait = point.wait.filter(|wait| wait.part >= 0.01);
        }

        point.rounds = self.rounds;
        point
    }
}

/// Returns half of the 95 % interval of the throughput over the rounds; `None` if it is unknown.
fn half_width<'a>(rounds: impl Iterator<Item = &'a Round>) -> Option<f64> {
    report::half_width(rounds.map(|round| round.intervals.as_slice()), |interval| interval.bytes)
}

/// Returns the traffic of other programs, in percent of the highest rate of the device at any of the points. Beside one
/// request at a time even a small neighbour moves half of the bytes, and still takes little of the device's capacity.
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
    fn rounds_of_a_few_equal_requests_are_not_known_exactly() {
        let interval =
            |requests| IntervalReport { length_s: 0.1, requests, bytes: 4096 * requests, ..IntervalReport::default() };
        let half_width = |requests| {
            let round = Round { intervals: vec![interval(requests)], ..Round::default() };
            half_width([round.clone(), round.clone(), round.clone(), round.clone(), round].iter()).unwrap()
        };
        // Half a request in 0.1 s is 5 a second; sqrt(5) is 2.236, and Student's t of 4 degrees of freedom 2.776.
        for requests in [5, 500] {
            assert!((half_width(requests) / 4096.0 - 2.776 * 5.0 / 2.236).abs() < 0.01, "{}", half_width(requests));
        }
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
