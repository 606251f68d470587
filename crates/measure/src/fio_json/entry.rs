//! Converts results to the entries of fio's `jobs`.
//!
//! **Why.** This program counts by job and class, fio by job and direction.
//!
//! **How.** Each job becomes an [`Entry`] with a [`DirectionResult`] for each direction; the entries of a group are
//! summed, and then written with fio's keys.
//!
//! **Limits.** See [`super`].
//!
//! **Example.** Two clones that read and one that writes, with `group_reporting`, are one entry with both sides.

use std::collections::HashMap;

use plimsoll::core::Histogram;
use plimsoll_files::jobs::JobKind;

use super::FioJson;
use super::shape::{Job, Pairs, Side, Sync, Times};
use crate::load::result::per_second;
use crate::load::{DirectionResult, Interval, JobResult};
use crate::report::buckets::middle_ns;
use crate::test::{TestJob, TestResult};

/// Error number that fio reports for a short transfer: EIO.
const SHORT_TRANSFER: i32 = 5;
const READ: usize = 0;
const WRITE: usize = 1;
const TRIM: usize = 2;

/// An element of `jobs` in the making.
struct Entry {
    name: String,
    group: u32,
    options: Vec<(String, String)>,
    /// Whether other jobs of the group are added to the entry.
    is_grouped: bool,
    /// Names of the classes, with the number of the entry's jobs in each.
    classes: HashMap<String, usize>,
    error: i32,
    elapsed_ns: u64,
    parallelism: u32,
    shards: Vec<u16>,
    parts: [DirectionResult; 3],
    sync: DirectionResult,
    /// Blocks that a job with verification read back after the window, as fio's reads, and the time that this took.
    read_back: DirectionResult,
    read_back_ns: u64,
    queue: Histogram,
    device: Histogram,
    depth: Histogram,
    intervals: Vec<Interval>,
}

pub(super) fn entries(result: &TestResult, options: &FioJson<'_>) -> Vec<Job> {
    let mut entries: Vec<Entry> = Vec::new();
    for (job, origin) in result.jobs.iter().zip(origins(result, options)) {
        let entry = Entry::of(result, job, origin);
        match entries.iter_mut().find(|other| other.is_grouped && entry.is_grouped && other.group == entry.group) {
            Some(other) => other.add(entry),
            None => entries.push(entry),
        }
    }

    let jobs_of = class_sizes(result);
    let totals = totals(&entries);
    entries.iter().map(|entry| entry.write(result, options, &jobs_of, &totals)).collect()
}

/// Name, group, options and grouping of a job.
type Origin = (String, u32, Vec<(String, String)>, bool);

fn origins(result: &TestResult, options: &FioJson<'_>) -> Vec<Origin> {
    let mut known: HashMap<&str, Origin> = HashMap::new();
    for job in options.file.iter().flat_map(|file| &file.jobs) {
        for clone in &job.clones {
            known.insert(clone, (job.name.clone(), job.group, job.options.clone(), job.group_reporting));
        }
    }
    let plain = |test: &TestJob| (test.job.name.clone(), 0, plain_options(test), false);
    result.jobs.iter().map(|test| known.remove(test.job.name.as_str()).unwrap_or_else(|| plain(test))).collect()
}

/// Returns options for a job that comes from no fio file.
fn plain_options(test: &TestJob) -> Vec<(String, String)> {
    let job = &test.job;
    let rw = match job.kind {
        JobKind::SeqRead => "read",
        JobKind::Overwrite | JobKind::Append => "write",
        JobKind::RandRead => "randread",
        JobKind::RandWrite => "randwrite",
        JobKind::SeqMixed { .. } => "rw",
        JobKind::RandMixed { .. } => "randrw",
        JobKind::Discard { is_random: false } => "trim",
        JobKind::Discard { is_random: true } => "randtrim",
        kind @ (JobKind::Flush | JobKind::Unlink { .. } | JobKind::Cpu { .. }) => kind.as_str(),
    };

    let pair = |name: &str, value: String| (name.to_owned(), value);
    vec![
        pair("name", job.name.clone()),
        pair("rw", rw.to_owned()),
        pair("bs", job.request_bytes.to_string()),
        pair("iodepth", job.parallelism.to_string()),
    ]
}

fn class_sizes(result: &TestResult) -> HashMap<String, usize> {
    let mut sizes = HashMap::new();
    result.jobs.iter().for_each(|job| *sizes.entry(job.class.clone()).or_insert(0) += 1);
    sizes
}

/// Returns the bytes a second of each group and direction.
fn totals(entries: &[Entry]) -> HashMap<(u32, usize), f64> {
    let mut totals = HashMap::new();
    for entry in entries {
        for (direction, part) in entry.parts.iter().enumerate() {
            *totals.entry((entry.group, direction)).or_insert(0.0) += per_second(part.bytes, entry.elapsed_ns);
        }
    }
    totals
}

/// Returns all requests of a job whose requests are of one kind.
fn all_of(job: &JobResult) -> DirectionResult {
    DirectionResult { requests: job.requests, bytes: job.bytes, errors: job.errors, latency: job.latency.clone() }
}

impl Entry {
    fn of(result: &TestResult, test: &TestJob, (name, group, options, is_grouped): Origin) -> Entry {
        let job = result.run.total(&test.job.name);
        let runs_on = |jobs: &[JobResult]| jobs.iter().any(|job| job.name == test.job.name);
        let shards = result.run.shards.iter().filter(|shard| runs_on(&shard.jobs)).map(|shard| shard.shard).collect();
        let mut parts: [DirectionResult; 3] = Default::default();

        let mut sync = job.flushes.clone();
        let [reads, writes, trims] = &mut parts;

        match (test.job.kind, &job.directions) {
            (_, Some(directions)) => {
                *reads = directions.reads.clone();
                *writes = directions.writes.clone();
            }
            (JobKind::SeqRead | JobKind::RandRead, None) => *reads = all_of(&job),
            (JobKind::Discard { .. }, None) => *trims = all_of(&job),
            (JobKind::Flush, None) => sync.merge(&all_of(&job)),
            (JobKind::Unlink { .. } | JobKind::Cpu { .. }, None) => {}
            (_, None) => *writes = all_of(&job),
        }

        let (queue, device) = job.class.map_or_else(Default::default, |class| (*class.queue, *class.device));
        Entry {
            name,
            group,
            options,
            is_grouped,
            classes: HashMap::from([(test.class.clone(), 1)]),
            error: job.first_error.map_or(0, |number| if number == 0 { SHORT_TRANSFER } else { number }),
            elapsed_ns: job.elapsed_ns,
            parallelism: test.job.parallelism,
            shards,
            parts,
            sync,
            read_back: job.read_back,
            read_back_ns: job.read_back_ns,
            queue,
            device,
            depth: *job.device_depth,
            intervals: job.intervals,
        }
    }

    /// Adds another job of the group.
    fn add(&mut self, other: Entry) {
        self.error = if self.error == 0 { other.error } else { self.error };
        self.elapsed_ns = self.elapsed_ns.max(other.elapsed_ns);
        self.shards.extend(other.shards.iter().filter(|shard| !self.shards.contains(shard)).collect::<Vec<_>>());
        self.parts.iter_mut().zip(&other.parts).for_each(|(mine, theirs)| mine.merge(theirs));
        self.sync.merge(&other.sync);
        self.read_back.merge(&other.read_back);
        self.read_back_ns = self.read_back_ns.max(other.read_back_ns);

        // Jobs of one class show the same figures.
        if other.classes.keys().all(|class| !self.classes.contains_key(class)) {
            self.queue.merge(&other.queue);
            self.device.merge(&other.device);
        }
        other.classes.into_iter().for_each(|(class, jobs)| *self.classes.entry(class).or_insert(0) += jobs);

        self.depth.merge(&other.depth);
        Interval::merge_all(&mut self.intervals, &other.intervals);
    }

    fn write(
        &self,
        result: &TestResult,
        options: &FioJson<'_>,
        jobs_of: &HashMap<String, usize>,
        totals: &HashMap<(u32, usize), f64>,
    ) -> Job {
        let busy = self.parts.iter().filter(|part| part.requests > 0).count();
        let is_sole = busy == 1 && self.sync.requests == 0;
        let is_whole = self.classes.iter().all(|(class, jobs)| jobs_of.get(class) == Some(jobs));

        let side = |direction: usize, part: &DirectionResult| {
            let agg = totals.get(&(self.group, direction)).copied().unwrap_or(0.0);
            self.side(part, self.elapsed_ns, busy == 1, is_sole && is_whole, agg, options.bins)
        };
        let [reads, writes, trims] = &self.parts;
        let read = match self.read_back.requests {
            0 => side(READ, reads),
            _ => self.side_with_read_back(options.bins),
        };

        let mut latency = reads.latency.clone();
        latency.merge(&writes.latency);
        latency.merge(&trims.latency);
        let goal = options.file.and_then(|file| file.common.latency_goal);
        Job {
            jobname: self.name.clone(),
            groupid: self.group,
            error: self.error,
            eta: 0,
            elapsed: self.elapsed_ns.div_ceil(1_000_000_000),
            options: Pairs(self.options.clone()),
            read,
            write: side(WRITE, writes),
            trim: side(TRIM, trims),
            sync: Sync { total_ios: self.sync.requests, lat_ns: Times::of(&self.sync.latency, options.bins) },
            job_runtime: self.elapsed_ns / 1_000_000,
            usr_cpu: self.cpu_percent(result),
            sys_cpu: 0.0,
            ctx: 0,
            majf: 0,
            minf: 0,
            iodepth_level: levels(&self.depth),
            iodepth_submit: nothing(),
            iodepth_complete: nothing(),
            latency_ns: spread(&latency, &BELOW[..10], 1, 0),
            latency_us: spread(&latency, &BELOW[..10], 1_000, 1_000),
            latency_ms: spread(&latency, &BELOW, 1_000_000, 1_000_000),
            latency_depth: self.parallelism,
            latency_target: goal.map_or(0, |goal| goal.target_ns),
            latency_percentile: goal.map_or(100.0, |goal| goal.percentile),
            latency_window: goal.and_then(|goal| goal.window_ns).unwrap_or(0) / 1_000,
        }
    }

    fn side(
        &self,
        part: &DirectionResult,
        elapsed_ns: u64,
        has_intervals: bool,
        has_classes: bool,
        agg_bytes_per_s: f64,
        bins: bool,
    ) -> Side {
        let bytes_per_s = per_second(part.bytes, elapsed_ns);
        let is_busy = part.requests > 0;
        let empty = Histogram::new();
        let (queue, device) = match (is_busy, has_classes) {
            (true, true) => (&self.queue, &self.device),
            _ => (&empty, &*part.latency),
        };

        // The last interval may be a short one, whose rate is unreliable, and so may be that in which the job begins.
        let whole = self.intervals.split_last().map_or(&[][..], |(_, whole)| whole);
        let whole = if is_busy && has_intervals { whole } else { &[] };
        let longest_ns = whole.iter().map(|i| i.length_ns).max().unwrap_or(0);
        let whole = || whole.iter().filter(|i| i.length_ns == longest_ns.max(1));
        let kib_per_s = Samples::of(whole().map(|i| per_second(i.bytes, i.length_ns) / 1024.0));
        let iops = Samples::of(whole().map(|i| per_second(i.requests, i.length_ns)));

        Side {
            io_bytes: part.bytes,
            io_kbytes: part.bytes / 1024,
            bw_bytes: bytes_per_s as u64,
            bw: (bytes_per_s / 1024.0) as u64,
            iops: per_second(part.requests, elapsed_ns),
            runtime: if is_busy { elapsed_ns / 1_000_000 } else { 0 },
            total_ios: part.requests,
            // Errors include short transfers, which are not counted separately.
            short_ios: 0,
            drop_ios: 0,
            slat_ns: Times::of(queue, bins),
            clat_ns: Times::of(device, bins),
            lat_ns: Times::of(&part.latency, bins),
            bw_min: kib_per_s.min as u64,
            bw_max: kib_per_s.max as u64,
            bw_agg: if agg_bytes_per_s > 0.0 { bytes_per_s / agg_bytes_per_s * 100.0 } else { 0.0 },
            bw_mean: kib_per_s.mean,
            bw_dev: kib_per_s.stddev,
            bw_samples: kib_per_s.count,
            iops_min: iops.min as u64,
            iops_max: iops.max as u64,
            iops_mean: iops.mean,
            iops_stddev: iops.stddev,
            iops_samples: iops.count,
        }
    }

    /// Returns the reads within and after the window together.
    fn side_with_read_back(&self, bins: bool) -> Side {
        let mut all = self.read_back.clone();
        all.merge(&self.parts[READ]);
        let window_ns = if self.parts[READ].requests > 0 { self.elapsed_ns } else { 0 };
        let elapsed_ns = self.read_back_ns + window_ns;
        self.side(&all, elapsed_ns, false, false, 0.0, bins)
    }

    fn cpu_percent(&self, result: &TestResult) -> f64 {
        let mine = result.run.shards.iter().filter(|shard| self.shards.contains(&shard.shard));
        let (cpu_ns, elapsed_ns) =
            mine.fold((0, 0), |(cpu_ns, elapsed_ns), shard| (cpu_ns + shard.cpu_ns, elapsed_ns + shard.elapsed_ns));
        if elapsed_ns == 0 { 0.0 } else { cpu_ns as f64 / elapsed_ns as f64 * 100.0 }
    }
}

/// fio's figures of rates over time.
#[derive(Default)]
struct Samples {
    min: f64,
    max: f64,
    mean: f64,
    stddev: f64,
    count: u64,
}

impl Samples {
    fn of(values: impl Iterator<Item = f64> + Clone) -> Samples {
        let count = values.clone().count();
        if count == 0 {
            return Samples::default();
        }
        let mean = values.clone().sum::<f64>() / count as f64;
        let squares: f64 = values.clone().map(|value| (value - mean).powi(2)).sum();
        Samples {
            min: values.clone().fold(f64::INFINITY, f64::min),
            max: values.fold(0.0, f64::max),
            mean,
            stddev: if count > 1 { (squares / (count - 1) as f64).sqrt() } else { 0.0 },
            count: count as u64,
        }
    }
}

/// Keys and smallest depths of fio's depth levels; each level ends where the next begins.
const LEVELS: [(&str, u64); 7] = [("1", 0), ("2", 2), ("4", 4), ("8", 8), ("16", 16), ("32", 32), (">=64", 64)];

/// Returns the samples of the depth by level, in per cent.
fn levels(depth: &Histogram) -> Pairs<&'static str, f64> {
    let share = |index: usize, from: u64| {
        let below = LEVELS.get(index + 1).map_or(u64::MAX, |(_, next)| *next);
        share_pct(depth, from, below)
    };
    Pairs(LEVELS.iter().enumerate().map(|(index, (key, from))| (*key, share(index, *from))).collect())
}

/// Returns zeros for submissions and completions, which are not counted.
fn nothing() -> Pairs<&'static str, f64> {
    Pairs(["0", "4", "8", "16", "32", "64", ">=64"].map(|key| (key, 0.0)).into())
}

/// Keys and upper bounds of fio's latency steps; each step begins where the one before ends.
const BELOW: [(&str, u64); 12] = [
    ("2", 2),
    ("4", 4),
    ("10", 10),
    ("20", 20),
    ("50", 50),
    ("100", 100),
    ("250", 250),
    ("500", 500),
    ("750", 750),
    ("1000", 1000),
    ("2000", 2000),
    (">=2000", u64::MAX),
];

/// Returns the latencies by steps of `unit_ns`, from `from_ns` on, in per cent.
fn spread(latency: &Histogram, steps: &[(&'static str, u64)], unit_ns: u64, from_ns: u64) -> Pairs<&'static str, f64> {
    let mut low_ns = from_ns;
    let share = |(key, below): &(&'static str, u64)| {
        let high_ns = below.saturating_mul(unit_ns);
        let share = share_pct(latency, low_ns, high_ns);
        low_ns = high_ns;
        (*key, share)
    };
    Pairs(steps.iter().map(share).collect())
}

/// Returns the percentage of values that are at least `low` and below `high`.
fn share_pct(values: &Histogram, low: u64, high: u64) -> f64 {
    let within = |upper: &u64| (low..high).contains(&middle_ns(*upper));
    let all: u64 = values.iter().map(|(_, count)| u64::from(count)).sum();
    let mine: u64 = values.iter().filter(|(upper, _)| within(upper)).map(|(_, count)| u64::from(count)).sum();
    if all == 0 { 0.0 } else { mine as f64 / all as f64 * 100.0 }
}
