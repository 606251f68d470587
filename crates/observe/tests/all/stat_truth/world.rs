//! Simulated disks under phases of load, and what the kernel's counters say of each interval.

use plimsoll::sys::diskstats::{self, Counters};
use plimsoll_core::{DiskConfig, Op};
use plimsoll_files::disk::DiskModel;
use plimsoll_observe::stat::{Columns, DeviceFacts, DeviceInterval, Interval, Verdict};
use plimsoll_sim::device::{DeviceSpec, FaultKind, FaultWindow};
use plimsoll_sim::workload::{JobSpec, Load, Pattern, Region, SizeDist};
use plimsoll_sim::world::{ClassSpec, DiskCounters, DiskMode, SimDisk, WorldSpec, run_observed};

/// A disk on the simulated host.
#[derive(Clone)]
pub(crate) struct Disk {
    /// What it is called in this test; disks of one name are alike.
    pub(crate) name: String,
    /// What the kernel calls it.
    pub(crate) device: String,
    /// What the host knows of it.
    pub(crate) facts: DeviceFacts,
    /// What it is when nothing is wrong: the truth is measured on it.
    pub(crate) healthy: DeviceSpec,
    /// What the load meets.
    pub(crate) actual: DeviceSpec,
    /// What `stat` is told of it.
    pub(crate) model: DiskModel,
}

/// Requests of one kind to one disk; at most one stream of a kind to a disk in a phase.
#[derive(Clone)]
pub(crate) struct Stream {
    pub(crate) disk: usize,
    pub(crate) op: Op,
    pub(crate) len_bytes: u32,
    pub(crate) pattern: Pattern,
    pub(crate) load: Load,
}

/// A stretch of time in which the load stays the same. Its last interval is judged.
#[derive(Clone)]
pub(crate) struct Phase {
    pub(crate) name: &'static str,
    pub(crate) intervals: u64,
    pub(crate) streams: Vec<Stream>,
    /// What goes wrong with a disk meanwhile.
    pub(crate) fault: Option<(usize, FaultKind)>,
    /// What a group of all disks is, where the case is about that.
    pub(crate) group: Option<Verdict>,
}

/// What happens to a host.
#[derive(Clone)]
pub(crate) struct Timeline {
    pub(crate) name: String,
    /// Of all randomness.
    pub(crate) seed: u64,
    /// Whether noise, stalls or a neighbour disturb: then verdicts are judged, and not U and S.
    pub(crate) is_disturbed: bool,
    pub(crate) disks: Vec<Disk>,
    pub(crate) interval_ns: u64,
    pub(crate) phases: Vec<Phase>,
}

/// One interval, as `stat` sees it and as it was.
pub(crate) struct Look {
    /// Its number, from 0.
    pub(crate) number: u64,
    /// The phase that it is the last interval of.
    pub(crate) ends_phase: Option<usize>,
    pub(crate) interval: Interval,
    /// What each disk did, in nanoseconds and bytes.
    pub(crate) moved: Vec<DiskCounters>,
}

/// Some day in 2026: recordings have dates.
const START_UNIX_MS: u64 = 1_780_000_000_000;

impl Timeline {
    /// Runs it, and looks at the end of each interval.
    pub(crate) fn looks(&self) -> Vec<Look> {
        let mut ends = Vec::new();
        let mut disks: Vec<DeviceSpec> = self.disks.iter().map(|disk| disk.actual.clone()).collect();
        let mut jobs = Vec::new();
        let mut from = 0;
        for phase in &self.phases {
            let window = from * self.interval_ns..(from + phase.intervals) * self.interval_ns;
            if let Some((disk, kind)) = phase.fault {
                disks[disk].faults.push(FaultWindow { from_ns: window.start, until_ns: window.end, kind });
            }
            for stream in &phase.streams {
                let name = format!("{}-{}", phase.name, jobs.len());
                let capacity_bytes = disks[stream.disk].capacity_bytes;
                jobs.push(stream.job(name, capacity_bytes, window.start, Some(window.end)));
            }
            from += phase.intervals;
            ends.push(from);
        }
        let samples = run(&disks, jobs, self.seed, self.interval_ns, from * self.interval_ns);
        let looks = samples.windows(2).enumerate().map(|(at, pair)| {
            let ends_phase = ends.iter().position(|end| *end == at as u64 + 1);
            self.look((&pair[0], &pair[1]), at as u64, ends_phase)
        });
        looks.collect()
    }

    fn look(
        &self,
        (before, after): (&[DiskCounters], &[DiskCounters]),
        number: u64,
        ends_phase: Option<usize>,
    ) -> Look {
        let at_ns = (number + 1) * self.interval_ns;
        let duration_s = self.interval_ns as f64 / 1e9;
        let devices = self.disks.iter().zip(before.iter().zip(after)).map(|(disk, (before, after))| {
            let moved = kernel(after).since(&kernel(before)).unwrap();
            DeviceInterval {
                device: disk.device.clone(),
                columns: Columns::from_counters(&moved, duration_s),
                in_flight: moved.in_flight,
                gap: None,
            }
        });
        let interval = Interval {
            end_unix_ms: Some(START_UNIX_MS + at_ns / 1_000_000),
            duration_s: Some(duration_s),
            devices: devices.collect(),
            ..Interval::default()
        };
        let moved = before.iter().zip(after).map(|(before, after)| difference(before, after)).collect();
        Look { number, ends_phase, interval, moved }
    }
}

impl Stream {
    fn job(&self, name: String, capacity_bytes: u64, start_ns: u64, stop_ns: Option<u64>) -> JobSpec {
        JobSpec {
            name,
            disk: self.disk,
            op: self.op,
            pattern: self.pattern,
            sizes: SizeDist::Fixed(self.len_bytes),
            region: Region { offset_bytes: 0, len_bytes: capacity_bytes, shard_stride_bytes: 0 },
            load: self.load.clone(),
            start_ns: Some(start_ns),
            stop_ns,
            ..JobSpec::default()
        }
    }
}

/// What the kernel shows of it: whole sectors and milliseconds, by way of its text.
fn kernel(counters: &DiskCounters) -> Counters {
    diskstats::parse(&counters.line(259, 0, "disk")).unwrap().remove(0).counters
}

pub(crate) fn difference(before: &DiskCounters, after: &DiskCounters) -> DiskCounters {
    DiskCounters {
        reads: after.reads - before.reads,
        read_bytes: after.read_bytes - before.read_bytes,
        read_ns: after.read_ns - before.read_ns,
        writes: after.writes - before.writes,
        write_bytes: after.write_bytes - before.write_bytes,
        write_ns: after.write_ns - before.write_ns,
        in_flight: after.in_flight,
        busy_ns: after.busy_ns - before.busy_ns,
        ..DiskCounters::default()
    }
}

/// The counters of all disks at the beginning and after each `every_ns`.
fn run(disks: &[DeviceSpec], jobs: Vec<JobSpec>, seed: u64, every_ns: u64, duration_ns: u64) -> Vec<Vec<DiskCounters>> {
    let disk = |spec: &DeviceSpec| SimDisk {
        mode: DiskMode::Drain,
        max_requests: 1 << 20,
        ..SimDisk::new(spec.clone(), DiskConfig::default())
    };
    let world = WorldSpec {
        seed,
        duration_ns,
        disks: disks.iter().map(disk).collect(),
        classes: vec![ClassSpec::new("default", 100)],
        jobs,
        sample_ns: every_ns,
        ..WorldSpec::default()
    };
    let mut samples = vec![vec![DiskCounters::default(); disks.len()]];
    run_observed(&world, &mut |sample| samples.push(sample.disks.iter().map(|disk| disk.counters).collect())).unwrap();
    samples
}

/// What a disk alone does with these streams in the second half of `duration_ns`.
pub(crate) fn run_alone(spec: &DeviceSpec, streams: &[Stream], duration_ns: u64) -> DiskCounters {
    let jobs = streams.iter().enumerate().map(|(at, stream)| {
        let stream = Stream { disk: 0, ..stream.clone() };
        stream.job(format!("reference-{at}"), spec.capacity_bytes, 0, None)
    });
    let samples = run(std::slice::from_ref(spec), jobs.collect(), 1, duration_ns / 2, duration_ns / 2 * 2);
    difference(&samples[1][0], &samples[2][0])
}
