//! Counting: the end of the warm-up, the samples for observers, and the report.

use plimsoll_core::{ClassStats, FS_PER_NS, Histogram, Latencies};

use super::agenda::NEVER;
use super::spec::{Change, WorldSpec};
use super::{DiskState, Steer, World};
use crate::report::{
    ClassOnShard, ClassReport, ClassSample, DiskReport, DiskSample, JobCounts, JobOnShard, JobReport, LatencySummary,
    Sample, ShardReport, ShardSample, WorldReport,
};

/// Pieces in a device, over time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InDevice {
    pub(crate) now: u32,
    max: u32,
    since_ns: u64,
    busy_ns: u64,
    /// Pieces times nanoseconds.
    area: u128,
    /// The area at the beginning of the observer's present interval.
    sampled_area: u128,
}

impl InDevice {
    fn go_on(&mut self, now_ns: u64) {
        let past_ns = now_ns - self.since_ns;
        self.since_ns = now_ns;
        self.area += u128::from(past_ns) * u128::from(self.now);
        self.busy_ns += if self.now > 0 { past_ns } else { 0 };
    }

    pub(crate) fn enter(&mut self, now_ns: u64) {
        self.go_on(now_ns);
        self.now += 1;
        self.max = self.max.max(self.now);
    }

    pub(crate) fn leave(&mut self, now_ns: u64) {
        self.go_on(now_ns);
        self.now -= 1;
    }

    fn reset(&mut self, now_ns: u64) {
        *self = InDevice { now: self.now, max: self.now, since_ns: now_ns, ..InDevice::default() };
    }
}

/// Merges reads and writes; `None` if there are neither.
fn both(by_direction: [Option<&Latencies>; 2]) -> Option<Latencies> {
    let mut known = by_direction.into_iter().flatten().peekable();
    known.peek()?;
    let mut sum = Latencies::default();
    known.for_each(|latencies| sum.merge(latencies));
    Some(sum)
}

/// One class on one disk in the observer's present interval.
#[derive(Debug, Default)]
struct Interval {
    requests: u64,
    bytes: u64,
    latency: Histogram,
    /// Device time at the interval's beginning.
    device_time_ns: u64,
}

/// The state of counting.
pub(crate) struct Measures<'a> {
    steer: Option<Steer<'a>>,
    classes: usize,
    sample_ns: u64,
    next_sample_ns: u64,
    sampled_ns: u64,
    /// By disk and class; empty without an observer.
    intervals: Vec<Interval>,
    /// By disk, class and shard: number and total waiting time of first dispatches when the interval began.
    queue_times: Vec<(u64, f64)>,
    /// By shard: CPU time when the interval began.
    cpu_ns: Vec<u64>,
    sample: Sample,
}

impl<'a> Measures<'a> {
    pub(crate) fn new(spec: &WorldSpec, steer: Option<Steer<'a>>) -> Measures<'a> {
        let (classes, shards) = (spec.classes.len(), spec.shards.len());
        let cells = if steer.is_some() { spec.disks.len() * classes } else { 0 };
        let mut intervals = Vec::new();
        intervals.resize_with(cells, Interval::default);
        Measures {
            classes,
            sample_ns: spec.sample_ns,
            next_sample_ns: if steer.is_some() { spec.sample_ns } else { NEVER },
            sampled_ns: 0,
            queue_times: vec![(0, 0.0); cells * shards],
            cpu_ns: vec![0; shards],
            intervals,
            steer,
            sample: Sample::default(),
        }
    }

    pub(crate) fn next_sample_ns(&self) -> u64 {
        self.next_sample_ns
    }

    #[inline]
    pub(crate) fn note_finish(&mut self, (disk, class): (u32, u32), bytes: u64, latency_ns: u64) {
        if let Some(interval) = self.intervals.get_mut(disk as usize * self.classes + class as usize) {
            interval.requests += 1;
            interval.bytes += bytes;
            interval.latency.record(latency_ns);
        }
    }
}

/// The counters of one class on one disk, summed over its shards.
#[derive(Default)]
struct Summed {
    stats: ClassStats,
    queue: Histogram,
    device: Histogram,
    delay_ns: f64,
    by_shard: Vec<ClassOnShard>,
}

fn device_time_ns(stats: &ClassStats) -> u64 {
    (stats.consumed_fs / u128::from(FS_PER_NS)) as u64
}

fn per_second(count: u64, duration_ns: u64) -> f64 {
    count as f64 * 1e9 / duration_ns as f64
}

impl World<'_> {
    /// Ends the warm-up: resets all counters.
    pub(super) fn start_measuring(&mut self) {
        self.classes.reset(&mut self.queues);
        self.disks.iter_mut().for_each(|disk| disk.in_device.reset(self.now_ns));
        self.shards.iter_mut().for_each(|shard| shard.used_cpu_ns = 0);
        for run in &mut self.runs {
            run.counts = Default::default();
            run.latency.clear();
        }
        self.measures.intervals.iter_mut().for_each(|interval| interval.device_time_ns = 0);
        self.measures.queue_times.iter_mut().for_each(|before| *before = (0, 0.0));
        self.measures.cpu_ns.iter_mut().for_each(|before| *before = 0);
    }

    /// Passes a sample of the interval to the observer. Returns the changes that it asks for.
    pub(super) fn sample(&mut self) -> Vec<Change> {
        let interval_ns = self.now_ns - self.measures.sampled_ns;
        if self.measures.steer.is_none() || interval_ns == 0 {
            return Vec::new();
        }

        let mut sample = std::mem::take(&mut self.measures.sample);
        sample.at_ns = self.now_ns;
        sample.interval_ns = interval_ns;
        sample.is_warmup = self.now_ns <= self.spec.warmup_ns;

        sample.classes.clear();
        for disk in 0..self.disks.len() {
            for class in 0..self.spec.classes.len() {
                sample.classes.push(self.sample_class(disk, class));
            }
        }

        sample.disks.clear();
        sample.disks.extend(self.disks.iter_mut().map(|disk| sample_disk(disk, self.now_ns, interval_ns)));

        sample.shards.clear();
        for (shard, before_ns) in self.shards.iter().zip(&mut self.measures.cpu_ns) {
            sample.shards.push(ShardSample { cpu_ns: shard.used_cpu_ns - *before_ns });
            *before_ns = shard.used_cpu_ns;
        }

        let changes = self.measures.steer.as_mut().map(|steer| steer(&sample)).unwrap_or_default();
        self.measures.sample = sample;
        self.measures.sampled_ns = self.now_ns;
        self.measures.next_sample_ns = self.now_ns.saturating_add(self.measures.sample_ns);
        changes
    }

    fn sample_class(&mut self, disk: usize, class: usize) -> ClassSample {
        let (mut total_device_time_ns, mut queued, mut delay_ns) = (0, 0, 0.0_f64);
        let cell = disk * self.spec.classes.len() + class;
        for shard in 0..self.shards.len() {
            let before = &mut self.measures.queue_times[cell * self.shards.len() + shard];
            self.classes.with_use(&self.queues, (disk, class, shard), |stats, latencies| {
                total_device_time_ns += device_time_ns(stats);
                queued += u64::from(stats.queued);
                let queues = || latencies.iter().flatten().map(|latencies| &latencies.queue);
                let count = queues().map(Histogram::count).sum();
                let total_ns = queues().map(Histogram::sum_ns).sum::<u128>() as f64;
                if count > before.0 {
                    delay_ns = delay_ns.max((total_ns - before.1) / (count - before.0) as f64);
                }
                *before = (count, total_ns);
            });
        }

        let interval = &mut self.measures.intervals[cell];
        let sample = ClassSample {
            class,
            disk,
            requests: interval.requests,
            bytes: interval.bytes,
            device_time_ns: total_device_time_ns.saturating_sub(interval.device_time_ns),
            mean_ns: interval.latency.mean(),
            p99_ns: interval.latency.percentile(99.0),
            delay_ns,
            queued,
        };

        (interval.requests, interval.bytes, interval.device_time_ns) = (0, 0, total_device_time_ns);
        interval.latency.clear();
        sample
    }

    pub(super) fn report(mut self) -> WorldReport {
        let (now_ns, duration_ns) = (self.now_ns, self.spec.duration_ns);
        self.disks.iter_mut().for_each(|disk| disk.in_device.go_on(now_ns));
        self.totals.outstanding = self.requests.live() as u64;

        let mut classes = Vec::new();
        for disk in 0..self.disks.len() {
            for (class, spec) in self.spec.classes.iter().enumerate() {
                if !spec.is_group {
                    classes.push(self.class_report(disk, class));
                }
            }
        }

        WorldReport {
            seed: self.spec.seed,
            duration_ns,
            disks: (0..self.disks.len()).map(|disk| self.disk_report(disk, &classes)).collect(),
            classes,
            jobs: (0..self.spec.jobs.len()).map(|job| self.job_report(job)).collect(),
            shards: self.shards.iter().map(|shard| ShardReport { cpu_ns: shard.used_cpu_ns }).collect(),
            totals: self.totals,
            events: self.log.events,
            log_hash: self.log.hash,
        }
    }

    fn class_report(&self, disk: usize, class: usize) -> ClassReport {
        let duration_ns = self.spec.duration_ns;
        let mut sum = Summed::default();
        for shard in 0..self.shards.len() {
            self.classes.with_use(&self.queues, (disk, class, shard), |stats, latencies| {
                sum.stats = sum.stats.plus(*stats);
                let Some(latencies) = both(latencies) else { return };
                sum.queue.merge(&latencies.queue);
                sum.device.merge(&latencies.device);
                sum.delay_ns = sum.delay_ns.max(latencies.queue.mean());
                sum.by_shard.push(ClassOnShard {
                    shard,
                    stats: *stats,
                    iops: per_second(stats.read.requests + stats.write.requests, duration_ns),
                    bytes_per_s: per_second(stats.read.bytes + stats.write.bytes, duration_ns),
                    queue: LatencySummary::of(&latencies.queue),
                    device: LatencySummary::of(&latencies.device),
                    total: LatencySummary::of(&latencies.total),
                });
            });
        }

        let mut total = Histogram::new();
        for run in self.runs.iter().filter(|run| run.spec.disk == disk && run.class as usize == class) {
            total.merge(&run.latency);
        }

        let Summed { stats, queue, device, delay_ns, by_shard } = sum;
        let (requests, bytes) = (stats.read.requests + stats.write.requests, stats.read.bytes + stats.write.bytes);
        ClassReport {
            name: self.spec.classes[class].name.clone(),
            disk,
            requests,
            bytes,
            iops: per_second(requests, duration_ns),
            bytes_per_s: per_second(bytes, duration_ns),
            device_time_ns: device_time_ns(&stats),
            queued: u64::from(stats.queued),
            delay_ns,
            stats,
            queue,
            device,
            total,
            by_shard,
        }
    }

    fn disk_report(&self, disk: usize, classes: &[ClassReport]) -> DiskReport {
        let of_disk = || classes.iter().filter(|class| class.disk == disk);
        let (in_device, duration_ns) = (&self.disks[disk].in_device, self.spec.duration_ns as f64);
        DiskReport {
            iops: of_disk().map(|class| class.iops).sum(),
            bytes_per_s: of_disk().map(|class| class.bytes_per_s).sum(),
            mean_in_device: in_device.area as f64 / duration_ns,
            max_in_device: in_device.max,
            busy_part: in_device.busy_ns as f64 / duration_ns,
            utilisation: of_disk().map(|class| class.device_time_ns as f64).sum::<f64>() / duration_ns,
        }
    }

    fn job_report(&self, job: usize) -> JobReport {
        let duration_ns = self.spec.duration_ns;
        let mut report = JobReport {
            name: self.spec.jobs[job].name.clone(),
            total: JobCounts::default(),
            latency: Histogram::new(),
            by_shard: Vec::new(),
        };

        for run in self.runs.iter().filter(|run| run.job as usize == job) {
            let counts = JobCounts {
                requests: run.counts.requests,
                bytes: run.counts.bytes,
                errors: run.counts.errors,
                refused: run.counts.refused,
                cancelled: run.counts.cancelled,
                slices: run.counts.slices,
                iops: per_second(run.counts.requests, duration_ns),
                bytes_per_s: per_second(run.counts.bytes, duration_ns),
            };
            report.total = sum(report.total, counts);
            report.latency.merge(&run.latency);
            let latency = LatencySummary::of(&run.latency);
            report.by_shard.push(JobOnShard { shard: run.shard as usize, counts, latency });
        }

        report
    }
}

fn sum(a: JobCounts, b: JobCounts) -> JobCounts {
    JobCounts {
        requests: a.requests + b.requests,
        bytes: a.bytes + b.bytes,
        errors: a.errors + b.errors,
        refused: a.refused + b.refused,
        cancelled: a.cancelled + b.cancelled,
        slices: a.slices + b.slices,
        iops: a.iops + b.iops,
        bytes_per_s: a.bytes_per_s + b.bytes_per_s,
    }
}

fn sample_disk(state: &mut DiskState, now_ns: u64, interval_ns: u64) -> DiskSample {
    let in_device = &mut state.in_device;
    in_device.go_on(now_ns);
    let area = in_device.area.saturating_sub(in_device.sampled_area);
    in_device.sampled_area = in_device.area;
    DiskSample {
        in_device: in_device.now,
        mean_in_device: area as f64 / interval_ns as f64,
        in_device_ns: state.disk.in_flight_ns(),
        window_ns: state.disk.window_ns(),
        capacity_scale: state.disk.capacity_scale(),
        counters: state.counting.read(now_ns),
    }
}
