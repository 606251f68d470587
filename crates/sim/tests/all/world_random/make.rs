//! Makes a world from a seed: disks as sold or made up, right and wrong models of them, classes with all settings,
//! loads of all kinds, and faults. Loads end, so that every request can.

use plimsoll_core::{
    ControlConfig, CostForm, CostModel, DiskConfig, FourFigures, LatencyGoal, LatencyTarget, Limits, MixExponent, Op,
    Qos, Rate, Reservation,
};
use plimsoll_sim::device::{DeviceSpec, FaultKind, FaultWindow, MemberFault, presets};
use plimsoll_sim::rng::Rng;
use plimsoll_sim::workload::{Arrival, JobSpec, Load, Pattern, Region, ShardSet, SizeDist, Spacing};
use plimsoll_sim::world::{Action, Change, ClassSpec, DiskMode, Hog, ShardSpec, SimDisk, WorldSpec};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;
const SIZES: [u32; 8] = [512, 4096, 4096, 8192, 16_384, 65_536, 150_000, 1 << 20];

struct Maker {
    rng: Rng,
    /// Length of the loads.
    load_ns: u64,
}

/// Makes the world. Returns it with the length of its loads.
pub(crate) fn world(seed: u64) -> (WorldSpec, u64) {
    let mut maker = Maker { rng: Rng::new(seed), load_ns: 0 };
    let disks: Vec<(SimDisk, f64)> = (0..1 + maker.below(2)).map(|_| maker.disk()).collect();
    let slowest = disks.iter().map(|(_, iops)| *iops).fold(f64::INFINITY, f64::min);
    // Time for some hundred requests on the slowest disk; the faster ones have limits of their own.
    maker.load_ns = ((300e9 / slowest) as u64).clamp(5 * MS, 3 * S);
    let shards: Vec<ShardSpec> = (0..1 + maker.below(4)).map(|_| maker.shard()).collect();
    let classes = maker.classes();
    let mut disks: Vec<SimDisk> = disks.into_iter().map(|(disk, _)| disk).collect();
    for disk in &mut disks {
        disk.num_io_queues = maker.one_in(2).then(|| 1 + maker.below(shards.len() as u64) as u16);
        maker.faults(disk);
    }
    let jobs: Vec<JobSpec> = (0..1 + maker.below(5)).map(|at| maker.job(at, &disks, &classes, shards.len())).collect();
    let actions = (0..maker.below(5)).map(|_| maker.action(&classes, &jobs)).collect();
    // After the loads, the world runs far longer than the slowest disk or the tightest limit needs for the rest.
    let drain_ns = ((100_000e9 / slowest) as u64).clamp(300 * S, 500 * S);
    let world = WorldSpec {
        seed,
        duration_ns: maker.load_ns + drain_ns,
        sample_ns: maker.load_ns / 30,
        shards,
        disks,
        classes,
        jobs,
        actions,
        message_latency_ns: maker.one_of(&[0, US, 20 * US]),
        ..WorldSpec::default()
    };
    (world, maker.load_ns)
}

impl Maker {
    fn below(&mut self, bound: u64) -> u64 {
        self.rng.below(bound)
    }

    fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// Makes a disk. Returns it with its approximate rate of small requests per second.
    fn disk(&mut self) -> (SimDisk, f64) {
        let (spec, figures, unloaded_ns) = if self.one_in(3) {
            let iops = self.one_of(&[2_000, 20_000, 200_000]);
            let mut spec = DeviceSpec::default();
            (spec.rates.read_iops, spec.rates.write_iops) = (iops as f64, iops as f64 / 2.0);
            spec.mix_exponent_p = self.one_of(&[0.5, 1.0, 2.0, f64::INFINITY]);
            let figures = FourFigures {
                read_iops: Rate::per_second(iops),
                write_iops: Rate::per_second(iops / 2),
                read_bandwidth: Rate::per_second(2_000_000_000),
                write_bandwidth: Rate::per_second(1_000_000_000),
            };
            (spec, figures, self.one_of(&[0, 100_000]))
        } else {
            let names: Vec<&str> = presets::names().collect();
            let preset = presets::find(self.one_of(&names)).unwrap();
            (preset.spec, preset.figures, preset.unloaded_latency_ns)
        };
        let per_s = |rate: Rate| rate.get().unwrap_or(1) as f64;
        let slowest = per_s(figures.read_iops).min(per_s(figures.write_iops)).min(200e3);
        let mode = match self.below(8) {
            0 => DiskMode::Drain,
            1 => DiskMode::Depth { max_io_requests: 1 + self.below(64) as u32 },
            _ => DiskMode::Scheduled,
        };
        let config = self.config(&figures, unloaded_ns);
        let max_requests = self.one_of(&[8, 1 << 16, 1 << 16]);
        let wakeup_credit_ns = self.one_of(&[None, Some(0), Some(MS)]);
        (SimDisk { mode, max_requests, wakeup_credit_ns, ..SimDisk::new(spec, config) }, slowest)
    }

    /// Makes the scheduler's settings: right, or wrong by a factor.
    fn config(&mut self, figures: &FourFigures, unloaded_latency_ns: u64) -> DiskConfig {
        let percent = self.one_of(&[100, 100, 50, 200]);
        let scaled = |rate: Rate| rate.get().map_or(rate, |per_s| Rate::per_second(1 + per_s * percent / 100));
        let believed = FourFigures {
            read_iops: scaled(figures.read_iops),
            write_iops: scaled(figures.write_iops),
            read_bandwidth: scaled(figures.read_bandwidth),
            write_bandwidth: scaled(figures.write_bandwidth),
        };
        let form = self.one_of(&[CostForm::Knee, CostForm::Additive, CostForm::Max]);
        let goals = [LatencyGoal::Ns(750_000), LatencyGoal::Ns(750_000), LatencyGoal::Ns(5 * MS), LatencyGoal::NoSplit];
        let controls = [
            ControlConfig::default(),
            ControlConfig::default(),
            ControlConfig::OFF,
            ControlConfig { scale_max: 4.0, ..ControlConfig::default() },
        ];
        DiskConfig {
            model: CostModel::from_figures(&believed, form, 4096, 4096),
            mix: if self.one_in(2) { MixExponent::LINEAR } else { MixExponent::new(2.0).unwrap() },
            duplex: self.one_in(5),
            latency_goal: self.one_of(&goals),
            window_ns: self.one_of(&[None, None, Some(200 * US), Some(1)]),
            control: self.one_of(&controls),
            unloaded_latency_ns: self.one_of(&[0, unloaded_latency_ns]),
            ..DiskConfig::default()
        }
    }

    /// Adds faults to a disk while there is load.
    fn faults(&mut self, disk: &mut SimDisk) {
        let device = &mut disk.device;
        device.error_rate = self.one_of(&[0.0, 0.0, 0.0, 0.02]);
        device.short_rate = self.one_of(&[0.0, 0.0, 0.0, 0.1]);
        device.weather.noise_sigma = self.one_of(&[0.0, 0.0, 0.1]);
        if self.one_in(4) {
            let from_ns = self.below(self.load_ns);
            device.weather.stalls = vec![(from_ns, 1 + self.below(self.load_ns / 4))];
        }
        if self.one_in(4) {
            device.weather.capacity_steps = vec![(self.below(self.load_ns), 0.3), (2 * self.load_ns, 1.0)];
        }
        if device.raid0.members > 1 && self.one_in(4) {
            device.raid0.member_faults = vec![self.member(device.raid0.members)];
        }
        for _ in 0..self.below(3) {
            disk.device.faults.push(self.window());
        }
    }

    fn member(&mut self, members: u32) -> MemberFault {
        let error_rate = self.one_of(&[0.0, 0.0, 0.5, 1.0]);
        MemberFault { member: self.below(u64::from(members)) as u32, speed_factor: 0.3, error_rate }
    }

    fn window(&mut self) -> FaultWindow {
        let from_ns = self.below(self.load_ns);
        let kind = match self.below(4) {
            0 => FaultKind::Errors { rate: self.one_of(&[0.05, 1.0]), errno: 5 },
            1 => FaultKind::Short { rate: 0.5 },
            2 => FaultKind::Hang { requests: 1 + self.below(20) as u32, for_ns: Some(1 + self.below(self.load_ns)) },
            _ => FaultKind::Slow { speed_factor: self.one_of(&[0.1, 0.5, 3.0]) },
        };
        FaultWindow { from_ns, until_ns: from_ns + 1 + self.below(self.load_ns / 2), kind }
    }

    fn shard(&mut self) -> ShardSpec {
        let hog = Hog { busy_ns: 1 + self.below(200 * US), pause_ns: MS + self.below(10 * MS) };
        ShardSpec {
            poll_interval_ns: self.one_in(4).then(|| 1 + self.below(500 * US)),
            hog: self.one_in(6).then_some(hog),
            cpu_per_request_ns: self.one_of(&[0, 0, 500, 5_000]),
            start_offset_ns: self.below(MS),
            numa_node: 0,
        }
    }

    fn classes(&mut self) -> Vec<ClassSpec> {
        let mut classes: Vec<ClassSpec> = Vec::new();
        for at in 0..self.below(3) + 1 + self.below(5) {
            let shares_max = self.one_of(&[10, 1000]);
            let shares = 1 + self.below(shares_max) as u32;
            let groups: Vec<String> = classes.iter().filter(|c| c.is_group).map(|c| c.name.clone()).collect();
            let class = if self.one_in(4) {
                ClassSpec::group(&format!("group{at}"), shares)
            } else {
                ClassSpec { qos: self.qos(), ..ClassSpec::new(&format!("class{at}"), shares) }
            };
            let is_inside = !groups.is_empty() && self.one_in(2);
            let parent = is_inside.then(|| groups[self.below(groups.len() as u64) as usize].clone());
            classes.push(ClassSpec { parent, ..class });
        }
        if classes.iter().all(|class| class.is_group) {
            classes.push(ClassSpec::new("last", 100));
        }
        classes
    }

    fn qos(&mut self) -> Qos {
        let mut qos = Qos::default();
        let iops = Rate::per_second(500 + self.below(50_000));
        let bandwidth = Rate::per_second(50_000_000 + self.below(1_000_000_000));
        let none = Limits { burst_ns: self.one_of(&[0, 0, MS, 100 * MS]), ..Limits::default() };
        qos.limits = match self.below(10) {
            0 => Limits { iops, ..none },
            1 => Limits { read_iops: iops, write_bandwidth: bandwidth, ..none },
            2 => Limits { bandwidth, ..none },
            _ => Limits::default(),
        };
        if self.one_in(4) {
            let (iops, bandwidth) = (self.one_of(&[0, 300, 20_000]), self.one_of(&[0, 20_000_000]));
            qos.reservation = Reservation { iops, bandwidth };
        }
        if self.one_in(5) {
            qos.latency_target = Some(LatencyTarget { latency_ns: self.one_of(&[200 * US, 5 * MS]), quantile: 0.99 });
        }
        qos.max_wait_ns = self.one_of(&[None, None, None, Some(300 * US), Some(5 * MS)]);
        qos.max_delay_ns = self.one_of(&[None, None, None, None, Some(2 * MS)]);
        qos
    }

    fn job(&mut self, at: u64, disks: &[SimDisk], classes: &[ClassSpec], shards: usize) -> JobSpec {
        let of: Vec<&ClassSpec> = classes.iter().filter(|class| !class.is_group).collect();
        let op = self.one_of(&[Op::Read, Op::Read, Op::Read, Op::Write, Op::Write, Op::Flush, Op::Discard]);
        let sizes = match self.below(3) {
            0 => SizeDist::Weighted(vec![(4096, 7), (65_536, 2), (1 << 20, 1)]),
            _ => SizeDist::Fixed(self.one_of(&SIZES)),
        };
        let start_ns = self.one_of(&[0, 0, self.load_ns / 3]);
        JobSpec {
            name: format!("job{at}"),
            class: of[self.below(of.len() as u64) as usize].name.clone(),
            disk: self.below(disks.len() as u64) as usize,
            shards: if self.one_in(3) { ShardSet::List(vec![self.below(shards as u64) as u32]) } else { ShardSet::All },
            op,
            pattern: self.one_of(&[Pattern::Random, Pattern::Random, Pattern::Sequential, Pattern::Append]),
            sizes,
            region: Region { offset_bytes: 0, len_bytes: 1 << 30, shard_stride_bytes: 0 },
            load: self.load(),
            start_ns: Some(start_ns),
            stop_ns: Some(self.load_ns),
            // The fast disks would do a million in the time of the slow ones.
            limit_requests: Some(100 + self.below(300)),
        }
    }

    fn load(&mut self) -> Load {
        let per_s = 200e9 / self.load_ns as f64;
        match self.below(6) {
            0 => Load::Open {
                requests_per_s: per_s * self.one_of(&[0.3, 1.0, 3.0]),
                spacing: self.one_of(&[Spacing::Uniform, Spacing::Poisson]),
                batch: self.one_of(&[1, 1, 16]),
                max_outstanding: self.one_of(&[None, Some(8)]),
            },
            1 => {
                let mut at_ns = 0;
                let arrivals = (0..100).map(|_| {
                    at_ns += self.below(self.load_ns / 60);
                    let (op, len_bytes) = (self.one_of(&[Op::Read, Op::Write]), self.one_of(&SIZES));
                    Arrival { at_ns, op, offset_bytes: self.below(1 << 20) * 4096, len_bytes }
                });
                Load::Replay(arrivals.collect())
            }
            2 => {
                let think_ns = 1 + self.below(self.load_ns / 20);
                let think_after_ns = self.one_of(&[0, self.load_ns / 10]);
                Load::Closed { parallelism: 1 + self.below(16) as u32, think_ns, think_after_ns }
            }
            _ => Load::closed(1 + self.below(32) as u32),
        }
    }

    fn action(&mut self, classes: &[ClassSpec], jobs: &[JobSpec]) -> Action {
        let class = classes[self.below(classes.len() as u64) as usize].clone();
        let job = jobs[self.below(jobs.len() as u64) as usize].clone();
        let change = match self.below(6) {
            0 => Change::StopJob { job: job.name },
            1 if !class.is_group => Change::RemoveClass { class: class.name },
            2 => {
                let qos = self.qos();
                let of_group = Qos { limits: qos.limits, ..Qos::default() };
                Change::SetQos { class: class.name, qos: if class.is_group { of_group } else { qos } }
            }
            3 => Change::InjectFault { disk: job.disk, window: self.window() },
            _ => Change::SetShares { class: class.name, shares: 1 + self.below(1000) as u32 },
        };
        Action { at_ns: self.below(self.load_ns), change }
    }
}
