//! Simulated situations: a disk, what stands above it, what goes on beside, and a load; and what is seen of a run.

use plimsoll_core::{CostModel, DiskConfig, Op, Rate, WaitReason};
use plimsoll_files::disk::DiskModel;
use plimsoll_files::four::Four;
use plimsoll_measure::experiment::{Point, Wait};
use plimsoll_sim::device::{DeviceSpec, LatencySpec, RateSpec, presets};
use plimsoll_sim::rng::Rng;
use plimsoll_sim::workload::{JobSpec, Load, Pattern, Region, SizeDist};
use plimsoll_sim::world::{self, ClassSpec, DiskMode, SimDisk, WorldSpec};

/// Requests, at the disk's rated speed, of one run and of a reference. A real run has far more: what holds for these
/// holds for it.
const RUN_REQUESTS: f64 = 2000.0;
const REFERENCE_REQUESTS: f64 = 12_000.0;
/// Part of the disk's rates that a scheduler's model grants, and depths as parts of the one that fills the disk.
const TOKENS_PART: f64 = 0.3;
const DEPTH_PART: f64 = 0.25;
const WIDE_PART: f64 = 3.0;
/// Steps of the noise in a run, and the part of the disk's speed that it takes at most.
const NOISE_STEPS: f64 = 4.0;
const NOISE_MOST: f64 = 0.2;
/// Stalls in a run, and the least and greatest length of one as a part of the run.
const STALLS: f64 = 12.0;
const STALL_MIN: f64 = 0.002;
const STALL_MAX: f64 = 0.03;

/// A kind of disk, and the requests that it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Disk {
    /// A preset; `ssd` is one made up.
    pub(crate) name: &'static str,
    pub(crate) op: Op,
    pub(crate) len_bytes: u32,
    /// Per cent of what the disk can do that a neighbour asks for.
    pub(crate) neighbour_pct: u8,
}

/// What stands between the load and the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Above {
    Nothing,
    /// A model of the disk that grants too little.
    Tokens,
    /// A depth that does not fill the disk.
    Depth,
    /// A depth that fills it.
    Wide,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Beside {
    Nothing,
    /// Neighbours on a shared disk, whom no counter shows: its speed changes.
    Noise,
    /// The disk stands still now and then.
    Stalls,
    /// Another program on the same machine.
    Neighbour,
}

/// How far the load goes: to a part of the depth that fills the disk, or far beyond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reach {
    Below,
    Beyond,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Situation {
    pub(crate) disk: Disk,
    pub(crate) above: Above,
    pub(crate) beside: Beside,
    pub(crate) reach: Reach,
}

impl Situation {
    /// Returns whether anything disturbs the disk.
    pub(crate) fn is_disturbed(&self) -> bool {
        self.beside != Beside::Nothing
    }
}

impl Disk {
    fn spec(self) -> DeviceSpec {
        if self.name != "ssd" {
            return presets::find(self.name).unwrap().spec;
        }
        let rates = RateSpec {
            read_iops: 20e3,
            read_bytes_per_s: 340e6,
            write_iops: 10e3,
            write_bytes_per_s: 170e6,
            ..RateSpec::default()
        };
        let latency = LatencySpec { read_ns: 800e3, write_ns: 400e3, sigma: 0.1, ..LatencySpec::default() };
        DeviceSpec { capacity_bytes: 10_000_000_000, rates, latency, ..DeviceSpec::default() }
    }

    fn model(self) -> DiskModel {
        match presets::find(self.name) {
            Some(preset) => DiskModel::of_preset(&preset),
            None => DiskModel::of_device(&self.spec()),
        }
    }

    /// Returns what the disk is rated at, in requests a second.
    pub(crate) fn rated(self) -> f64 {
        1.0 / self.model().config().model.cost(self.op, self.len_bytes).as_secs_f64()
    }

    /// Returns how many requests fill it: rate times latency.
    pub(crate) fn fills(self) -> f64 {
        let spec = self.spec();
        let alone_ns = if self.op == Op::Read { spec.latency.read_ns } else { spec.latency.write_ns };
        let alone_ns = alone_ns + spec.latency.transfer_ns(f64::from(self.len_bytes)) + spec.network_rtt_ns as f64;
        (self.rated() * alone_ns / 1e9).max(1.0)
    }
}

impl Situation {
    /// Returns the highest parallelism of the load.
    pub(crate) fn parallelism(&self) -> u32 {
        let fills = self.disk.fills();
        match self.reach {
            Reach::Below => (fills / 4.0).floor().max(2.0) as u32,
            Reach::Beyond => (8.0 * fills).ceil().max(32.0) as u32,
        }
    }

    /// Returns the parallelism of the parts of a trace: few requests, and then many.
    pub(crate) fn parts(&self) -> [u32; 3] {
        let most = self.parallelism();
        [((self.disk.fills() / 4.0) as u32).clamp(1, most.div_ceil(4)), most.div_ceil(2), most]
    }

    /// Returns the powers of two up to it, at most seven.
    pub(crate) fn steps(&self) -> Vec<u32> {
        let most = self.parallelism();
        let mut steps: Vec<u32> = (0..7).map(|at| most >> at).filter(|step| *step > 0).collect();
        steps.reverse();
        steps
    }

    /// Returns what the scheduler's model of the disk promises, in bytes a second; `None` without a model.
    pub(crate) fn promised(&self) -> Option<f64> {
        let promised = TOKENS_PART * self.disk.rated() * f64::from(self.disk.len_bytes);
        (self.above == Above::Tokens).then_some(promised)
    }

    /// Returns the same with nothing above the disk.
    pub(crate) fn free(&self) -> Situation {
        Situation { above: Above::Nothing, ..*self }
    }

    fn run_s(&self) -> f64 {
        RUN_REQUESTS / self.disk.rated()
    }

    /// Returns a world in which each part of the run has its parallelism.
    pub(crate) fn world(&self, parts: &[u32], part_s: f64, seed: u64) -> WorldSpec {
        let mut device = self.disk.spec();
        let run_s = self.run_s();
        let weather = &mut device.weather;
        match self.beside {
            Beside::Noise => {
                let mut rng = Rng::new(seed);
                let steps = (part_s * parts.len() as f64 / run_s * NOISE_STEPS) as u64;
                let step =
                    |at: u64| (ns(at as f64 * run_s / NOISE_STEPS), 1.0 - NOISE_MOST * rng.below(1000) as f64 / 1e3);
                weather.capacity_steps = (0..=steps).map(step).collect();
            }
            Beside::Stalls => {
                weather.stalls_per_s = STALLS / run_s;
                (weather.stall_min_ns, weather.stall_max_ns) = (run_s * STALL_MIN * 1e9, run_s * STALL_MAX * 1e9);
            }
            Beside::Nothing | Beside::Neighbour => {}
        }

        let model = self.disk.model();
        let part = |rate: Rate| Rate::per_second((rate.get().unwrap_or(0) as f64 * TOKENS_PART) as u64);
        let Four { read_iops, read_bandwidth, write_iops, write_bandwidth } = Four::of(&model.figures).map(part);
        let figures = plimsoll_core::FourFigures { read_iops, read_bandwidth, write_iops, write_bandwidth };
        let [read_block, write_block] = model.block_bytes;
        let granted = DiskConfig {
            model: CostModel::from_figures(&figures, model.form, read_block, write_block),
            ..model.config()
        };
        let depth = |part: f64| DiskMode::Depth { max_io_requests: (self.disk.fills() * part).floor().max(1.0) as u32 };
        let (config, mode) = match self.above {
            Above::Nothing => (DiskConfig::default(), DiskMode::Drain),
            Above::Tokens => (granted, DiskMode::Scheduled),
            Above::Depth => (DiskConfig::default(), depth(DEPTH_PART)),
            Above::Wide => (DiskConfig::default(), depth(WIDE_PART)),
        };

        let mut jobs: Vec<JobSpec> = (0..)
            .zip(parts)
            .map(|(at, parallelism)| {
                let load = Load::closed(*parallelism);
                let until_ns = ns(part_s * f64::from(at + 1));
                JobSpec {
                    start_ns: Some(ns(part_s * f64::from(at))),
                    stop_ns: Some(until_ns),
                    ..self.job(&format!("load {at}"), load)
                }
            })
            .collect();
        if self.beside == Beside::Neighbour {
            let load = Load::poisson(self.disk.rated() * f64::from(self.disk.neighbour_pct) / 100.0);
            jobs.push(JobSpec { class: "others".into(), ..self.job("others", load) });
        }
        WorldSpec {
            seed,
            duration_ns: ns(part_s * parts.len() as f64),
            disks: vec![SimDisk { mode, max_requests: 1 << 16, ..SimDisk::new(device, config) }],
            classes: vec![ClassSpec::new("load", 100), ClassSpec::new("others", 100)],
            jobs,
            ..WorldSpec::default()
        }
    }

    pub(crate) fn job(&self, name: &str, load: Load) -> JobSpec {
        JobSpec {
            name: name.into(),
            class: "load".into(),
            op: self.disk.op,
            pattern: Pattern::Random,
            sizes: SizeDist::Fixed(self.disk.len_bytes),
            region: Region { offset_bytes: 0, len_bytes: 8_000_000_000, shard_stride_bytes: 0 },
            load,
            ..JobSpec::default()
        }
    }

    /// Runs it as `test` would, and returns the point that `test` would have, with the part of the time that the device
    /// was busy.
    pub(crate) fn run(&self, parallelism: u32, seed: u64) -> (Point, f64) {
        self.measure(parallelism, seed, self.run_s())
    }

    /// Returns the mean rate over a long time, in requests a second.
    pub(crate) fn reference(&self, parallelism: u32) -> f64 {
        self.measure(parallelism, 77, REFERENCE_REQUESTS / self.disk.rated()).0.iops
    }

    /// Returns the length of a part of a trace.
    pub(crate) fn part_s(&self) -> f64 {
        self.run_s() / 2.0
    }

    fn measure(&self, parallelism: u32, seed: u64, duration_s: f64) -> (Point, f64) {
        let mut spec = self.world(&[parallelism], 1.5 * duration_s, seed);
        spec.warmup_ns = ns(duration_s / 2.0);
        spec.duration_ns = ns(duration_s);
        let report = world::run(&spec).unwrap();
        let (disk, load) = (&report.disks[0], &report.classes[0]);
        let all_bytes: u64 = report.classes.iter().map(|class| class.bytes).sum();
        let waited = |reason: WaitReason| Wait {
            reason: reason.name().to_owned(),
            part: load.stats.waited_for_ns(reason) as f64 / spec.duration_ns as f64,
        };
        let wait = WaitReason::ALL.map(waited).into_iter().max_by(|a, b| a.part.total_cmp(&b.part));
        let point = Point {
            parallelism: u64::from(parallelism),
            iops: load.iops,
            throughput_bytes_per_s: load.bytes_per_s,
            in_device: load.device.mean() * load.iops / 1e9,
            pieces_per_s: load.iops,
            device_latency_mean_us: load.device.mean() / 1e3,
            wait: wait.filter(|wait| wait.part >= 0.01),
            capacity_used: (self.above == Above::Tokens).then_some(disk.utilisation),
            foreign_pct: Some(100.0 * (all_bytes - load.bytes) as f64 / all_bytes.max(1) as f64),
            elapsed_s: duration_s,
            ..Point::default()
        };
        (point, disk.busy_part)
    }
}

pub(crate) fn ns(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}
