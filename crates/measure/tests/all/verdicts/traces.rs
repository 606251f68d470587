//! What `trace gaps` and `trace little` say of programs whose behaviour is known: programs that ask for too little, in
//! several ways, and programs that a disk, a limit in front of it or the scheduler holds back.
//!
//! The truth is measured in the simulator, by what would change if the program asked for more, and if nothing stood
//! above the disk. It depends on none of the rules that are judged.

use plimsoll::trace::format::{Body, Clock, Reader, Writer};
use plimsoll_core::trace::Event;
use plimsoll_core::{Op, Rate, WaitReason};
use plimsoll_figures::verdict::Kind;
use plimsoll_files::scenario::Scenario;
use plimsoll_measure::sim::trace::record;
use plimsoll_observe::trace::gaps::Limiter;
use plimsoll_sim::device::{CapSpec, CapUnit};
use plimsoll_sim::rng::Rng;
use plimsoll_sim::workload::{JobSpec, Load, Spacing};
use plimsoll_sim::world::{self, DiskMode, WorldSpec};

use super::loads::{MORE, SAME, agree, reports_on};
use super::world::{Above, Beside, Disk, Reach, Situation, ns};
use super::{Case, Found, disk};

/// Disks, and what is asked of them. The last splits its requests where a model grants tokens.
const DISKS: [Disk; 4] = [
    disk("ssd", Op::Read, 4096, 5),
    disk("ssd", Op::Write, 4096, 8),
    disk("samsung-ssd-860", Op::Read, 4096, 5),
    disk("i4i.2xlarge", Op::Read, 4096, 5),
];
const LONG: Disk = disk("ssd", Op::Read, 512 << 10, 5);

/// What the program does, and what stands in its way.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Program {
    /// A closed loop with a quarter of what fills the disk.
    TooFew,
    /// A closed loop that thinks for four times as long as a request takes.
    Thinks,
    /// Requests by the clock, at half of the rate of the disk.
    Open,
    /// Many requests together, then nothing for a while.
    Bursts,
    /// Far more than fills the disk, with nothing above it.
    Full,
    /// The same, with the queue in the scheduler: the depth that it allows fills the disk.
    FullQueued,
    /// A model of the disk that grants too little.
    Tokens,
    /// A depth that does not fill the disk.
    Depth,
    /// A limit of the class.
    Limit,
    /// A limit between scheduler and disk, as of a cgroup or a volume. From above it is the disk's.
    Throttled,
}

const PROGRAMS: [Program; 10] = [
    Program::TooFew,
    Program::Thinks,
    Program::Open,
    Program::Bursts,
    Program::Full,
    Program::FullQueued,
    Program::Tokens,
    Program::Depth,
    Program::Limit,
    Program::Throttled,
];

/// Loads of the parts of a trace, as parts of the whole.
const PARTS: [f64; 4] = [0.125, 0.25, 0.5, 1.0];
/// How much more a program asks for where the truth is measured.
const FURTHER: f64 = 3.0;
/// What a limit lets through, as a part of what the disk does.
const LIMIT_PART: f64 = 0.3;
/// What bursts and requests by the clock ask for, as parts of what the disk does.
const BURSTS_PART: f64 = 0.2;
const OPEN_PART: f64 = 0.3;
/// Requests, at the disk's rated speed, of a part of a trace and of a measurement of the truth.
const PART_REQUESTS: f64 = 1000.0;
const BURSTS_PARTS: f64 = 8.0;
const TRUTH_REQUESTS: f64 = 2000.0;
/// Part of the events that are lost.
const LOST_PART: f64 = 0.003;

/// Every case.
#[derive(Clone, Copy, Debug)]
struct Run {
    program: Program,
    disk: Disk,
    beside: Beside,
    /// Whether some of the events are lost.
    is_lossy: bool,
    /// What another disk of the same program does in the same trace.
    other: Option<(Program, Disk)>,
    seed: u64,
}

pub(crate) fn all() -> Vec<Vec<Case>> {
    let mut runs = Vec::new();
    let mut add = |program, disk, beside, is_lossy, other| {
        let seed = runs.len() as u64 + 1;
        runs.push(Run { program, disk, beside, is_lossy, other, seed });
    };
    for disk in DISKS {
        for program in PROGRAMS {
            for beside in [Beside::Nothing, Beside::Noise, Beside::Stalls] {
                add(program, disk, beside, false, None);
            }
        }
        for program in [Program::TooFew, Program::Open, Program::Full] {
            add(program, disk, Beside::Neighbour, false, None);
        }
        for program in [Program::TooFew, Program::Tokens, Program::Full, Program::Limit] {
            add(program, disk, Beside::Nothing, true, None);
        }
        for (program, other) in [(Program::Full, Program::TooFew), (Program::TooFew, Program::Full)] {
            add(program, disk, Beside::Nothing, false, Some((other, disk)));
        }
    }
    for beside in [Beside::Nothing, Beside::Noise, Beside::Stalls] {
        for program in [Program::TooFew, Program::Tokens, Program::Full] {
            add(program, LONG, beside, false, None);
        }
    }
    runs.into_iter().map(|run| run.cases()).collect()
}

impl Program {
    fn above(self) -> Above {
        match self {
            Program::Tokens => Above::Tokens,
            Program::Depth => Above::Depth,
            Program::FullQueued => Above::Wide,
            _ => Above::Nothing,
        }
    }

    /// Returns the load that is this part of the whole; above 1: what more would be.
    fn load(self, disk: Disk, part: f64) -> Load {
        let (rated, fills) = (disk.rated(), disk.fills());
        let closed = |parallelism: f64| Load::closed(parallelism.ceil() as u32);
        match self {
            Program::TooFew => closed(part * (fills / 4.0).max(2.0)),
            Program::Thinks => {
                let think_ns = ns(4.0 * fills / rated);
                let parallelism = (part * fills.max(4.0)).ceil() as u32;
                Load::Closed { parallelism, think_ns, think_after_ns: 0 }
            }
            Program::Open => Load::poisson(part * OPEN_PART * rated),
            Program::Bursts => Load::Open {
                requests_per_s: part * BURSTS_PART * rated,
                spacing: Spacing::Uniform,
                batch: fills.ceil().clamp(4.0, 16.0) as u32,
                max_outstanding: None,
            },
            _ => closed(part * (8.0 * fills).max(32.0)),
        }
    }
}

impl Run {
    /// Returns the world in which the program's load is each of `parts`, one after the other; if it is free, with
    /// nothing above the disk.
    fn world(&self, is_free: bool, parts: &[f64], part_s: f64) -> WorldSpec {
        let above = if is_free { Above::Nothing } else { self.program.above() };
        let situation = Situation { disk: self.disk, above, beside: self.beside, reach: Reach::Beyond };
        let mut world = situation.world(&vec![1; parts.len()], part_s, self.seed);
        for (job, part) in world.jobs.iter_mut().zip(parts) {
            job.load = self.program.load(self.disk, *part);
        }
        let most_per_s = LIMIT_PART * self.disk.rated();
        match self.program {
            Program::Limit if !is_free => {
                world.disks[0].mode = DiskMode::Scheduled;
                world.classes[0].qos.limits.iops = Rate::per_second(most_per_s as u64);
            }
            Program::Throttled => {
                let unit = CapUnit::Operations { unit_bytes: 0 };
                let cap = CapSpec { unit, base_per_s: most_per_s, burst_per_s: most_per_s, credits: 0.0 };
                world.disks[0].device.caps.push(cap);
            }
            _ => {}
        }
        world
    }

    /// Returns the world of the trace: loads that grow, or bursts.
    fn whole(&self) -> WorldSpec {
        let part_s = PART_REQUESTS / self.disk.rated();
        match self.program {
            Program::Bursts => self.world(false, &[1.0], BURSTS_PARTS * part_s),
            // Such programs ask for little, and their depths last for moments: a recording of as many requests is longer.
            Program::Thinks | Program::Open => self.world(false, &PARTS, 2.5 * part_s),
            _ => self.world(false, &PARTS, part_s),
        }
    }

    /// Returns the rate with the last load times `factor`, in requests a second.
    fn rate(&self, factor: f64, is_free: bool) -> f64 {
        let duration_s = TRUTH_REQUESTS / self.disk.rated();
        let mut world = self.world(is_free, &[factor], 1.25 * duration_s);
        (world.warmup_ns, world.duration_ns) = (ns(duration_s / 4.0), ns(duration_s));
        world::run(&world).unwrap().classes[0].iops
    }

    /// Returns what limits the program, and what the curve of its loads shows at its end; `None` where neither of two
    /// answers is true.
    fn truth(&self, world: &WorldSpec) -> Option<(Limiter, Kind)> {
        let is_more = |now: f64, then: f64| match then / now {
            factor if factor >= MORE => Some(true),
            factor => (factor <= SAME).then_some(false),
        };
        let now = self.rate(1.0, false);
        if self.program == Program::Bursts {
            // Of a burst, the disk shows what it does with as many requests.
            let load = |times: u32| {
                let Load::Open { batch, .. } = self.program.load(self.disk, 1.0) else { return 0.0 };
                let full = Run { program: Program::Full, ..*self };
                let of_full = f64::from(batch * times) / (8.0 * self.disk.fills()).max(32.0);
                full.rate(of_full, false)
            };
            let grows = is_more(now, self.rate(FURTHER, false))?;
            let kind = if is_more(load(1), load(2))? { Kind::ScalesLow } else { Kind::Saturated };
            return grows.then_some((Limiter::Program, kind));
        }
        if is_more(now, self.rate(FURTHER, false))? {
            return Some((Limiter::Program, Kind::ScalesLow));
        }
        if !is_more(now, self.rate(1.0, true))? {
            return Some((Limiter::Disk, Kind::Saturated));
        }
        let report = world::run(world).unwrap();
        let waited = |reason: WaitReason| report.classes[0].stats.waited_for_ns(reason);
        let reasons = [
            (WaitReason::Tokens, Limiter::Tokens),
            (WaitReason::Depth, Limiter::Depth),
            (WaitReason::Limit, Limiter::Limit),
        ];
        let most = reasons.into_iter().max_by_key(|(reason, _)| waited(*reason))?;
        Some((most.1, Kind::LimitedAbove))
    }

    /// Returns a case of each command.
    fn cases(&self) -> Vec<Case> {
        let mut world = self.whole();
        let Some((limiter, kind)) = self.truth(&world) else { return Vec::new() };
        let mut disk_names = vec!["disk".to_owned()];
        if let Some((program, disk)) = self.other {
            let other = Run { program, disk, ..*self };
            let other = other.whole();
            let job = |job: JobSpec| JobSpec { name: format!("other {}", job.name), disk: 1, ..job };
            world.disks.extend(other.disks);
            world.jobs.extend(other.jobs.into_iter().map(job));
            disk_names.push("other".to_owned());
        }

        let scenario = Scenario { name: "case".into(), world, disk_names, warnings: Vec::new() };
        let mut trace = Vec::new();
        record(&scenario, self.seed, &mut trace).unwrap();
        if self.is_lossy {
            trace = without_some(&trace, self.seed);
        }
        let (gaps, little) = reports_on(&trace);
        let of_gaps = &gaps.disks.iter().find(|disk| disk.disk == "disk").unwrap().verdict;
        let of_little = &little.disks.iter().find(|disk| disk.disk == "disk").unwrap().verdict;

        let found = |is_unclear: bool, is_right: bool| match (is_unclear, is_right) {
            (true, _) => Found::Unclear,
            (false, true) => Found::Right,
            (false, false) => Found::Wrong,
        };
        let told = format!(
            "{self:?}: {limiter:?}, {kind:?}; found {}; little: {} {:?}",
            of_gaps.sentence, of_little.sentence, of_little.evidence
        );
        assert!(agree(of_gaps.limiter, of_little.kind), "gaps and little contradict each other: {told}");
        let case =
            |command, found| Case { command, found, is_disturbed: self.beside != Beside::Nothing, told: told.clone() };
        vec![
            case("gaps", found(of_gaps.limiter == Limiter::Unknown, of_gaps.limiter == limiter)),
            case("little", found(of_little.kind == Kind::Unclear, of_little.kind == kind)),
        ]
    }
}

/// Returns the trace without some of its events.
fn without_some(trace: &[u8], seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut reader = Reader::new(trace).unwrap();
    let mut left = Vec::new();
    let mut writer = Writer::new(&mut left, Clock::Virtual, 0).unwrap();
    while let Some(chunk) = reader.next_chunk().unwrap() {
        match chunk.body {
            Body::Names(names) => writer.names(&names).unwrap(),
            Body::Events(events) => {
                let (kept, lost): (Vec<Event>, Vec<Event>) =
                    events.partition(|_| rng.below(1_000_000) as f64 >= LOST_PART * 1e6);
                writer.events(chunk.shard, lost.len() as u64, &kept).unwrap();
            }
        }
    }
    drop(writer);
    left
}
