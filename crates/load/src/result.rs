//! Results of a run.

use plimsoll::backend::choose::Choice;
use plimsoll::core::{ClassStats, Histogram, WindowLimit};
use plimsoll::{Class, Reactor};
use serde::{Deserialize, Serialize};

use super::steady::Steady;

/// Results of one job on one shard, or (merged) on several.
#[derive(Clone, Debug, Default)]
pub struct JobResult {
    pub name: String,
    /// Requests that completed in the measured window.
    pub requests: u64,
    pub bytes: u64,
    /// Requests that failed or came back short.
    pub errors: u64,
    /// Error number of the first failure (0 for a short transfer).
    pub first_error: Option<i32>,
    /// Length of the measured window in nanoseconds. For a job that reached a limit, the window ends there.
    pub elapsed_ns: u64,
    /// Latency of the requests in nanoseconds: from when they were due (or sent) to completion.
    pub latency: Box<Histogram>,
    /// Mean number of pieces of the job's class in the device; over shards, the sum of the means.
    pub device_depth_mean: f64,
    /// Pieces of the job's class in the device, sampled on each I/O queue separately: percentiles are those of one
    /// queue.
    pub device_depth: Box<Histogram>,
    /// Progress in each interval of the measured window, in order. All but the last have the same length, except those
    /// before a delayed job begins, with length 0, and the one in which it begins.
    pub intervals: Vec<Interval>,
    /// Blocks that did not hold the expected data, if the job verifies; the first [`FAULTS_MAX`].
    pub faults: Vec<BlockFault>,
    pub fault_count: u64,
    /// Figures of the job's class on the shard's I/O queue in the window (all jobs of the class together). `None` if
    /// the queue is on another shard.
    pub class: Option<ClassResult>,
    /// Reads and writes separately, if the job mixes them.
    pub directions: Option<Box<Directions>>,
    /// The flushes after writes (not the requests of a job of type `flush`).
    pub flushes: DirectionResult,
    /// The reads after the window that check the written data, and the nanoseconds that they took. No other figure
    /// counts them.
    pub read_back: DirectionResult,
    pub read_back_ns: u64,
    /// For an open loop: requests that were due in the measured window and had not completed at its end, sent or not.
    /// A few are normal, many are a stall that no latency shows. 0 for closed loops. Unsent requests of a Poisson
    /// schedule are estimated by its mean gap.
    pub overdue: u64,
    /// How long the oldest of those was overdue at the end of the window, in nanoseconds; 0 if none.
    pub overdue_oldest_ns: u64,
}

/// Reads and writes of a job that mixes them.
#[derive(Clone, Debug, Default)]
pub struct Directions {
    pub reads: DirectionResult,
    pub writes: DirectionResult,
}

#[derive(Clone, Debug, Default)]
pub struct DirectionResult {
    pub requests: u64,
    /// Bytes that those requests moved; 0 for flushes.
    pub bytes: u64,
    /// Requests that failed or came back short.
    pub errors: u64,
    /// Latency in nanoseconds: from when they were due (or sent) to completion.
    pub latency: Box<Histogram>,
}

pub const FAULTS_MAX: usize = 16;

/// Progress in an interval of the measured window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Interval {
    pub length_ns: u64,
    pub requests: u64,
    pub bytes: u64,
    pub latency_sum_ns: u64,
    pub latency_max_ns: u64,
}

/// A block that did not hold the expected data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockFault {
    /// Offset in bytes from the beginning of the file.
    pub offset: u64,
    /// Torn, stale, misdirected, or no block of ours.
    pub kind: FaultKind,
    pub expected: String,
    pub found: String,
}

/// Why a block read back is not the one written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// Sectors come from different writes, or a checksum is wrong.
    Torn,
    /// The block holds an older write than the last that was acknowledged.
    Stale,
    /// The block belongs elsewhere.
    Misdirected,
    /// The block holds nothing that this program wrote.
    Foreign,
}

/// Figures of a class in the measured window.
#[derive(Clone, Debug, Default)]
pub struct ClassResult {
    pub stats: ClassStats,
    pub queue: Box<Histogram>,
    pub device: Box<Histogram>,
}

impl Interval {
    /// Adds the intervals of another shard, or another job, to those of the same times.
    pub fn merge_all(intervals: &mut Vec<Interval>, others: &[Interval]) {
        intervals.resize(intervals.len().max(others.len()), Interval::default());
        for (mine, theirs) in intervals.iter_mut().zip(others) {
            mine.merge(theirs);
        }
    }

    /// Counts a request that completed.
    #[inline]
    pub(super) fn count(&mut self, bytes: u32, latency_ns: u64) {
        self.requests += 1;
        self.bytes += u64::from(bytes);
        self.latency_sum_ns = self.latency_sum_ns.saturating_add(latency_ns);
        self.latency_max_ns = self.latency_max_ns.max(latency_ns);
    }

    /// Returns this interval, which took `length_ns`, and begins the next.
    pub(super) fn end(&mut self, length_ns: u64) -> Interval {
        Interval { length_ns, ..std::mem::take(self) }
    }

    /// Adds the same interval of another shard.
    fn merge(&mut self, other: &Interval) {
        self.length_ns = self.length_ns.max(other.length_ns);
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.latency_sum_ns = self.latency_sum_ns.saturating_add(other.latency_sum_ns);
        self.latency_max_ns = self.latency_max_ns.max(other.latency_max_ns);
    }
}

impl Directions {
    pub(super) fn of(&mut self, is_write: bool) -> &mut DirectionResult {
        if is_write { &mut self.writes } else { &mut self.reads }
    }
}

impl DirectionResult {
    /// Adds the counts of another shard or another time.
    pub fn merge(&mut self, other: &DirectionResult) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.errors += other.errors;
        self.latency.merge(&other.latency);
    }

    /// Counts a completion: `Ok` with the bytes moved, of `expected_bytes`.
    pub(super) fn count(&mut self, result: Result<u32, i32>, expected_bytes: u32, latency_ns: u64) {
        let Ok(bytes) = result else {
            self.errors += 1;
            return;
        };
        self.requests += 1;
        self.bytes += u64::from(bytes);
        self.latency.record(latency_ns);
        self.errors += u64::from(bytes != expected_bytes);
    }
}

impl ClassResult {
    fn merge(&mut self, other: &ClassResult) {
        self.stats = self.stats.plus(other.stats);
        self.queue.merge(&other.queue);
        self.device.merge(&other.device);
    }
}

impl JobResult {
    pub fn iops(&self) -> f64 {
        per_second(self.requests, self.elapsed_ns)
    }

    pub fn bytes_per_s(&self) -> f64 {
        per_second(self.bytes, self.elapsed_ns)
    }

    /// Counts a completion in the measured window: `Ok` with the bytes moved, of `expected_bytes`.
    #[inline]
    pub(super) fn count(&mut self, result: Result<u32, i32>, expected_bytes: u32, latency_ns: u64) {
        match result {
            Ok(bytes) => {
                self.requests += 1;
                self.bytes += u64::from(bytes);
                self.latency.record(latency_ns);
                if bytes != expected_bytes {
                    self.fail(0);
                }
            }
            Err(code) => self.fail(code),
        }
    }

    /// Records how many pieces of `class` are in the device now.
    pub(super) fn sample_depth(&mut self, reactor: &Reactor, disk: u16, class: Class) {
        if let Some(stats) = reactor.class_stats(disk, class) {
            self.device_depth.record(u64::from(stats.in_flight));
        }
    }

    pub(super) fn fail(&mut self, code: i32) {
        self.errors += 1;
        self.first_error.get_or_insert(code);
    }

    /// Adds the result of the same job on another shard at the same time.
    pub fn merge(&mut self, other: &JobResult) {
        self.elapsed_ns = self.elapsed_ns.max(other.elapsed_ns);
        self.device_depth_mean += other.device_depth_mean;

        Interval::merge_all(&mut self.intervals, &other.intervals);

        self.requests += other.requests;
        self.bytes += other.bytes;
        self.errors += other.errors;
        self.first_error = self.first_error.or(other.first_error);
        self.latency.merge(&other.latency);
        self.fault_count += other.fault_count;
        let room = FAULTS_MAX.saturating_sub(self.faults.len());
        self.faults.extend(other.faults.iter().take(room).cloned());
        self.device_depth.merge(&other.device_depth);

        match (&mut self.class, &other.class) {
            (Some(mine), Some(theirs)) => mine.merge(theirs),
            (mine @ None, Some(theirs)) => *mine = Some(theirs.clone()),
            (_, None) => {}
        }

        match (&mut self.directions, &other.directions) {
            (Some(mine), Some(theirs)) => {
                mine.reads.merge(&theirs.reads);
                mine.writes.merge(&theirs.writes);
            }
            (mine @ None, Some(theirs)) => *mine = Some(theirs.clone()),
            (_, None) => {}
        }

        self.flushes.merge(&other.flushes);
        self.read_back.merge(&other.read_back);
        self.read_back_ns = self.read_back_ns.max(other.read_back_ns);
        self.overdue = self.overdue.saturating_add(other.overdue);
        self.overdue_oldest_ns = self.overdue_oldest_ns.max(other.overdue_oldest_ns);
    }
}

pub fn per_second(count: u64, elapsed_ns: u64) -> f64 {
    if elapsed_ns == 0 { 0.0 } else { count as f64 * 1e9 / elapsed_ns as f64 }
}

#[derive(Clone, Debug)]
pub struct ShardResult {
    pub shard: u16,
    /// CPU time of the shard's thread in the measured window, in nanoseconds.
    pub cpu_ns: u64,
    pub elapsed_ns: u64,
    /// Results of the jobs that ran on the shard, in the order of the plan.
    pub jobs: Vec<JobResult>,
    /// The limit of each disk's window at the end of the measured window, by disk number; empty if unknown.
    pub window_limits: Vec<WindowLimit>,
}

#[derive(Clone, Debug, Default)]
pub struct RunResult {
    pub shards: Vec<ShardResult>,
    pub backend: Option<Choice>,
    /// The steadiness of the run, if requested: of several stages, the first that was not steady, or else the last.
    pub steady: Option<Steady>,
}

impl RunResult {
    /// Returns the job `name` summed over all shards, or an empty result if there is no such job.
    pub fn total(&self, name: &str) -> JobResult {
        let mut total = JobResult { name: name.to_owned(), ..JobResult::default() };
        self.shards.iter().flat_map(|s| &s.jobs).filter(|j| j.name == name).for_each(|j| total.merge(j));
        total
    }

    /// Returns the CPU seconds of all shards' threads per million requests, or `None` without requests.
    pub fn cpu_s_per_million(&self) -> Option<f64> {
        let requests: u64 = self.shards.iter().flat_map(|s| &s.jobs).map(|j| j.requests).sum();
        let cpu_ns: u64 = self.shards.iter().map(|s| s.cpu_ns).sum();
        (requests > 0).then(|| cpu_ns as f64 / 1e9 / (requests as f64 / 1e6))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(depth: u64, elapsed_ns: u64) -> JobResult {
        let mut job = JobResult { elapsed_ns, device_depth_mean: depth as f64, ..JobResult::default() };
        job.device_depth.record(depth);
        job
    }

    #[test]
    fn depths_add_up_over_shards() {
        let mut shards = held(16, 100);
        shards.merge(&held(16, 90));
        assert_eq!((shards.device_depth_mean, shards.elapsed_ns), (32.0, 100));
        assert_eq!(shards.device_depth.max(), 16);
    }
}
