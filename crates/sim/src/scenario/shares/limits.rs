//! Limits: at most N operations or bytes a second, of a class or a group, over all shards together.
//!
//! # Why
//! A limit that holds only on each shard, or only on average, or that a burst exceeds, protects no other class.
//!
//! # How it works
//! A class that always has work is limited, without a burst, beside one that is not. In *every* stretch of time of
//! length t, at most 1.01 x rate x t and one request may be dispatched. A meter that drains at 1.01 x the rate checks
//! all stretches at once: it must never hold more than one request. And the class must get the full rate of its limit.
//!
//! # Limits
//! A request counts when it is dispatched; the device may hold earlier ones besides.
//!
//! # Example
//! 1000 operations a second: at least 0.99 ms between dispatches.

use crate::scenario::Target::{AtLeast, AtMost, Between};
use crate::scenario::support::{Course, MS, S, plain_world, reads};
use crate::scenario::{Advance, Outcome, ScenarioError, Table};
use crate::workload::JobSpec;
use crate::world::{Action, Change, ClassSpec, Event, EventKind, WorldSpec};
use plimsoll_core::{Limits, Op, Qos, Rate};

/// A disk of 100 000 operations and 1 GB/s.
const DISK: [u64; 4] = [100_000, 1_000_000_000, 100_000, 1_000_000_000];
const KIB: u32 = 1 << 10;

fn world(shards: usize, seed: u64) -> WorldSpec {
    WorldSpec { duration_ns: 2 * S, ..plain_world(DISK, shards, seed) }
}

fn limited(class: ClassSpec, limits: Limits) -> ClassSpec {
    ClassSpec { qos: Qos { limits, ..Qos::default() }, ..class }
}

#[derive(Clone, Copy)]
enum Unit {
    Requests,
    Bytes,
}

/// A meter that drains at 1.01 x the rate. It holds the most by which any stretch of time until now has exceeded that.
struct Meter {
    unit: Unit,
    op: Option<Op>,
    classes: &'static [u32],
    rate_per_s: f64,
    /// The largest request, in units.
    request: f64,
    level: f64,
    last_ns: u64,
    worst: f64,
    total: f64,
}

impl Meter {
    fn new(unit: Unit, rate_per_s: f64, request_bytes: u32) -> Meter {
        let request = match unit {
            Unit::Requests => 1.0,
            Unit::Bytes => f64::from(request_bytes),
        };
        let (level, last_ns, worst, total) = (0.0, 0, 0.0, 0.0);
        Meter { unit, op: None, classes: &[0], rate_per_s, request, level, last_ns, worst, total }
    }

    fn of(self, op: Op) -> Meter {
        Meter { op: Some(op), ..self }
    }

    fn note(&mut self, event: &Event) {
        let counts = event.kind == EventKind::Dispatch
            && self.classes.contains(&event.class)
            && self.op.is_none_or(|op| op == event.op);
        if !counts {
            return;
        }
        let drained = 1.01 * self.rate_per_s * (event.at_ns - self.last_ns) as f64 / 1e9;
        self.last_ns = event.at_ns;
        let amount = match self.unit {
            Unit::Requests => 1.0,
            Unit::Bytes => f64::from(event.len_bytes),
        };
        self.level = (self.level - drained).max(0.0) + amount;
        self.worst = self.worst.max(self.level);
        self.total += amount;
    }

    /// Returns the greatest excess of any stretch beyond 1.01 x rate x t, in requests.
    fn worst_requests(&self) -> f64 {
        self.worst / self.request
    }

    /// Returns the rate got over the limit.
    fn part_got(&self, duration_ns: u64) -> f64 {
        self.total / (self.rate_per_s * duration_ns as f64 / 1e9)
    }
}

/// A class with a limit.
struct Case {
    name: &'static str,
    shards: usize,
    limits: Limits,
    jobs: Vec<JobSpec>,
    meters: Vec<Meter>,
    /// Least part of the limit to reach: without a burst, the time that a piece waits for the device is lost.
    least: f64,
}

fn writes(name: &str, parallelism: u32, len_bytes: u32) -> JobSpec {
    JobSpec { name: format!("{name} writes"), op: Op::Write, ..reads(name, parallelism, len_bytes) }
}

fn cases() -> Vec<Case> {
    let rate = Rate::per_second;
    let none = Limits::default();
    let iops = Limits { iops: rate(1000), ..none };
    let both_ways = || vec![reads("limited", 8, 16 * KIB), writes("limited", 8, 16 * KIB)];
    let operations = |shards| Case {
        name: "1000 operations/s",
        shards,
        limits: iops,
        jobs: vec![reads("limited", 32, 4 * KIB)],
        meters: vec![Meter::new(Unit::Requests, 1000.0, 0)],
        least: 0.98,
    };
    vec![
        operations(1),
        operations(8),
        Case {
            name: "50 MB/s",
            shards: 4,
            limits: Limits { bandwidth: rate(50_000_000), ..none },
            jobs: both_ways(),
            meters: vec![Meter::new(Unit::Bytes, 50e6, 16 * KIB)],
            least: 0.98,
        },
        Case {
            name: "200 MB/s of 1 MiB requests, in pieces",
            shards: 2,
            limits: Limits { bandwidth: rate(200_000_000), ..none },
            jobs: vec![reads("limited", 8, 1024 * KIB)],
            meters: vec![Meter::new(Unit::Bytes, 200e6, 1024 * KIB)],
            least: 0.85,
        },
        Case {
            name: "2000 reads/s, 20 MB/s of writes",
            shards: 4,
            limits: Limits { read_iops: rate(2000), write_bandwidth: rate(20_000_000), ..none },
            jobs: both_ways(),
            meters: vec![
                Meter::new(Unit::Requests, 2000.0, 0).of(Op::Read),
                Meter::new(Unit::Bytes, 20e6, 16 * KIB).of(Op::Write),
            ],
            least: 0.98,
        },
        Case {
            name: "500 writes/s, 100 MB/s of reads",
            shards: 4,
            limits: Limits { write_iops: rate(500), read_bandwidth: rate(100_000_000), ..none },
            jobs: vec![writes("limited", 8, 16 * KIB)],
            meters: vec![Meter::new(Unit::Requests, 500.0, 0).of(Op::Write)],
            least: 0.98,
        },
    ]
}

pub(super) fn limit(seed: u64, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    let mut course = Course::of(10, advance);
    let columns = ["limit", "shards", "most beyond the rate, requests", "got, part of the limit", "disk used"];
    let mut table = Table::new("A limited class beside one that takes the rest", &columns);
    let (mut worst, mut least_used) = (0.0_f64, 1.0_f64);

    for mut case in cases() {
        let mut jobs = std::mem::take(&mut case.jobs);
        jobs.push(reads("other", 64, 16 * KIB));
        let classes = vec![limited(ClassSpec::new("limited", 1000), case.limits), ClassSpec::new("other", 10)];
        let spec = WorldSpec { classes, jobs, ..world(case.shards, seed) };
        let report =
            course.run_logged(&spec, &mut |event| case.meters.iter_mut().for_each(|meter| meter.note(event)))?;

        let beyond = case.meters.iter().map(Meter::worst_requests).fold(0.0, f64::max);
        // With two limits, requests keep their order: the class reaches one of them only.
        let got = case.meters.iter().map(|meter| meter.part_got(spec.duration_ns)).fold(0.0, f64::max);
        let used = report.disks[0].utilisation;
        (worst, least_used) = (worst.max(beyond), least_used.min(used));

        course.figure(format!("{}, {} shards: got of the limit", case.name, case.shards), got, AtLeast(case.least));
        table.row([
            case.name.into(),
            case.shards.to_string(),
            format!("{beyond:.3}"),
            format!("{got:.4}"),
            format!("{used:.3}"),
        ]);
    }

    course.outcome.tables.push(table);
    course.figure("most in any time t beyond 1.01 x rate x t, requests", worst, AtMost(1.001));
    course.figure("part of the disk used, least", least_used, AtLeast(0.95));
    course.remark(
        "Without a burst the time that a piece waits for the device after its limit lets it go is lost: long pieces \
         get some 90 % of their limit, and so does a class with a limit of its own inside a group that is at its \
         limit.",
    );
    groups(&mut course, seed)?;
    while_running(&mut course, seed)?;
    Ok(course.outcome)
}

/// Runs a group with a limit: its members divide it by their shares.
fn groups(course: &mut Course<'_>, seed: u64) -> Result<(), ScenarioError> {
    let columns = ["member limits", "a, MB/s", "b, MB/s", "most beyond the group's rate, requests"];
    let mut table = Table::new("A group limited to 100 MB/s, members a (400 shares) and b (100), 4 shards", &columns);
    let rate = |mb_per_s: u64| Limits { bandwidth: Rate::per_second(mb_per_s * 1_000_000), ..Limits::default() };
    let mut worst = 0.0_f64;
    let later = Limits { burst_ns: 10 * MS, ..rate(40) };
    for (name, of_a) in [("none", None), ("a 40 MB/s", Some(rate(40))), ("a 40 MB/s, burst of 10 ms", Some(later))] {
        let member = |name: &str, shares| ClassSpec::new(name, shares).in_group("group");
        let a = of_a.map_or(member("a", 400), |limits| limited(member("a", 400), limits));
        let spec = WorldSpec {
            classes: vec![
                limited(ClassSpec::group("group", 1000), rate(100)),
                a,
                member("b", 100),
                ClassSpec::new("other", 10),
            ],
            jobs: vec![reads("a", 8, 16 * KIB), reads("b", 8, 16 * KIB), reads("other", 64, 16 * KIB)],
            ..world(4, seed)
        };

        let mut meter = Meter { classes: &[1, 2], ..Meter::new(Unit::Bytes, 100e6, 16 * KIB) };
        let report = course.run_logged(&spec, &mut |event| meter.note(event))?;
        let [a, b] = [0, 1].map(|at| report.classes[at].bytes_per_s / 1e6);
        worst = worst.max(meter.worst_requests());
        table.row([name.into(), format!("{a:.2}"), format!("{b:.2}"), format!("{:.3}", meter.worst_requests())]);

        let (what, value, target) = match of_a {
            None => ("ratio of 400 to 100 shares", a / b, Between(3.95, 4.05)),
            // Without a burst, time lost to the group's limit is not made up for.
            Some(limits) if limits.burst_ns == 0 => ("a, MB/s", a, Between(32.0, 40.4)),
            Some(_) => ("a, MB/s", a, Between(39.2, 40.4)),
        };
        course.figure(format!("group of 100 MB/s, member limits {name}: {what}"), value, target);
        course.figure(format!("group of 100 MB/s, member limits {name}: got, MB/s"), a + b, Between(98.0, 101.0));
    }

    course.outcome.tables.push(table);
    // A queue books a place at a limit for which several wait. If an inner limit delays its request, it is dispatched
    // with the next.
    course.figure("group: most in any time t beyond 1.01 x rate x t, requests of 4 shards", worst, AtMost(4.001));
    Ok(())
}

/// Runs limits of 1000 operations a second, then 4000, then none, each for a second.
fn while_running(course: &mut Course<'_>, seed: u64) -> Result<(), ScenarioError> {
    let iops = |per_s: u64| Limits { iops: Rate::per_second(per_s), ..Limits::default() };
    let set = |at_ns: u64, limits: Limits| {
        let qos = Qos { limits, ..Qos::default() };
        Action { at_ns, change: Change::SetQos { class: "limited".into(), qos } }
    };

    let spec = WorldSpec {
        classes: vec![limited(ClassSpec::new("limited", 100), iops(1000))],
        jobs: vec![reads("limited", 32, 4 * KIB)],
        actions: vec![set(S, iops(4000)), set(2 * S, Limits::default())],
        duration_ns: 3 * S,
        ..world(4, seed)
    };

    let mut meters = [1000.0, 4000.0, 100_000.0].map(|rate_per_s| Meter::new(Unit::Requests, rate_per_s, 0));
    course.run_logged(&spec, &mut |event| {
        if let Some(meter) = meters.get_mut((event.at_ns / S) as usize) {
            meter.note(event);
        }
    })?;

    let mut table =
        Table::new("A limit changed and removed while running, 4 shards", &["second", "limit/s", "got/s", "of it"]);
    for (at, (meter, name)) in meters.iter().zip(["1000", "4000", "none"]).enumerate() {
        let got = meter.part_got(S);
        table.row([at.to_string(), name.into(), format!("{:.0}", meter.total), format!("{got:.4}")]);
        course.figure(format!("limit {name} while running: part of it got"), got, Between(0.98, 1.011));
    }
    course.outcome.tables.push(table);
    let worst = meters[..2].iter().map(Meter::worst_requests).fold(0.0, f64::max);
    course.figure("changed limit: most in any time t beyond 1.01 x rate x t, requests", worst, AtMost(1.001));
    Ok(())
}
