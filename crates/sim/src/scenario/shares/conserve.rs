//! Work conservation: the others get the unused part of a class, a shard or a disk group at once.
//!
//! # Why
//! A share is a guaranteed minimum, not a limit. And idleness must be noticed within the time of a request.
//!
//! # How it works
//! Two classes of equal shares; one works for 8 ms and pauses for 12, on one shard and on several; the time is
//! measured from the paused class's last dispatch until the other has the disk for itself. One of 64 shards with work.
//! Disk groups with work in one of them, or in all.
//!
//! # Limits
//! The time is rounded up to the 250 us over which the rate of the other class is measured.
//!
//! # Example
//! A disk of 100 000 operations a second: in 250 us it does 25. The other class has all of it when it gets at least 23
//! of them.

use crate::report::WorldReport;
use crate::scenario::Target::{AtLeast, AtMost};
use crate::scenario::support::{Course, MS, S, US, on, plain_world, reads};
use crate::scenario::{Advance, Outcome, ScenarioError, Table};
use crate::workload::{JobSpec, Load, ShardSet};
use crate::world::{Action, Change, ClassSpec, Event, EventKind, WorldSpec};

/// A disk of 100 000 operations and 1 GB/s.
const DISK: [u64; 4] = [100_000, 1_000_000_000, 100_000, 1_000_000_000];
const OPERATIONS_PER_S: f64 = 100e3;

fn world(shards: usize, jobs: Vec<JobSpec>, seed: u64) -> WorldSpec {
    let mut classes: Vec<ClassSpec> = Vec::new();
    for job in &jobs {
        if !classes.iter().any(|class| class.name == job.class) {
            classes.push(ClassSpec::new(&job.class, 100));
        }
    }
    WorldSpec { classes, jobs, warmup_ns: 200 * MS, duration_ns: S, ..plain_world(DISK, shards, seed) }
}

pub(super) fn work_conservation(seed: u64, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    let mut course = Course::of(6, advance);
    let columns = ["case", "pauses seen", "mean us", "longest us"];
    let mut table =
        Table::new("Until the other class has the disk for itself, from the paused one's last dispatch", &columns);

    for (name, paused, steady) in [
        ("on one shard", on([0]), on([0])),
        ("on two shards", on([0]), on([1])),
        ("on shards 0 to 7, and on 8", on(0..8), on([8])),
        ("on 0, and on shards 1 to 8", on([0]), on(1..9)),
    ] {
        let times_ns = redistribution(&mut course, (paused, steady), seed)?;
        let longest_ns = times_ns.iter().copied().max().unwrap_or(u64::MAX) as f64;
        let mean_ns = times_ns.iter().sum::<u64>() as f64 / times_ns.len().max(1) as f64;
        let us = |ns: f64| format!("{:.0}", ns / 1e3);
        table.row([name.into(), times_ns.len().to_string(), us(mean_ns), us(longest_ns)]);
        course.figure(format!("{name}: idle share redistributed within, ms"), longest_ns / 1e6, AtMost(1.0));
    }

    course.outcome.tables.push(table);
    one_of_64(&mut course, seed)?;
    Ok(course.outcome)
}

/// Returns, for each pause, the time until the other class has the disk for itself, in ns.
fn redistribution(
    course: &mut Course<'_>,
    (paused, steady): (ShardSet, ShardSet),
    seed: u64,
) -> Result<Vec<u64>, ScenarioError> {
    let each = |shards: &ShardSet| (128 / shards.numbers(9).len() as u32).max(1);
    let load = Load::Closed { parallelism: each(&paused), think_ns: 12 * MS, think_after_ns: 8 * MS };
    let jobs = vec![
        JobSpec { load, shards: paused, ..reads("paused", 1, 4096) },
        JobSpec { shards: steady.clone(), ..reads("steady", each(&steady), 4096) },
    ];

    let spec = world(9, jobs, seed);
    let (mut paused_ns, mut steady_ns) = (Vec::new(), Vec::new());
    course.run_logged(&spec, &mut |event: &Event| {
        if event.kind == EventKind::Dispatch && event.at_ns >= spec.warmup_ns {
            let times_ns = if event.class == 0 { &mut paused_ns } else { &mut steady_ns };
            times_ns.push(event.at_ns);
        }
    })?;

    let mut times_ns = Vec::new();
    for pair in paused_ns.windows(2) {
        let (last_ns, next_ns) = (pair[0], pair[1]);
        if next_ns - last_ns > 4 * MS {
            times_ns.push(until_full(&steady_ns, last_ns, next_ns));
        }
    }
    Ok(times_ns)
}

/// Returns the time from `from_ns` to the end of the first 250 us in which the steady class got nearly everything; the
/// whole pause if there is none.
fn until_full(steady_ns: &[u64], from_ns: u64, until_ns: u64) -> u64 {
    const SPAN_NS: u64 = 250 * US;
    let enough = (0.9 * OPERATIONS_PER_S * SPAN_NS as f64 / 1e9) as usize;
    let count_in = |begin_ns: u64| {
        let before = |at_ns: u64| steady_ns.partition_point(|time_ns| *time_ns < at_ns);
        before(begin_ns + SPAN_NS) - before(begin_ns)
    };
    let mut begin_ns = from_ns;
    while begin_ns < until_ns {
        if count_in(begin_ns) >= enough {
            return begin_ns + SPAN_NS - from_ns;
        }
        begin_ns += 10 * US;
    }
    until_ns - from_ns
}

/// Runs one shard with work beside 63 that never had any, or that have just stopped.
fn one_of_64(course: &mut Course<'_>, seed: u64) -> Result<(), ScenarioError> {
    let mut table = Table::new("One of 64 shards active, 4 KiB reads", &["the others", "operations/s", "of the disk"]);
    for (name, others_until_ns) in [("never had work", None), ("stopped before", Some(150 * MS))] {
        let mut jobs = vec![JobSpec { shards: on([17]), ..reads("one", 128, 4096) }];
        if others_until_ns.is_some() {
            let shards = on((0..64).filter(|shard| *shard != 17));
            jobs.push(JobSpec { name: "others".into(), shards, stop_ns: others_until_ns, ..reads("one", 8, 4096) });
        }
        let report = course.run(&world(64, jobs, seed))?;
        let part = report.disks[0].iops / OPERATIONS_PER_S;
        table.row([name.into(), format!("{:.0}", report.disks[0].iops), format!("{part:.4}")]);
        course.figure(format!("1 of 64 shards, others {name}: part of capacity"), part, AtLeast(0.99));
    }
    course.outcome.tables.push(table);
    Ok(())
}

pub(super) fn numa_groups(seed: u64, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    let mut course = Course::of(7, advance);
    let columns = ["groups", "active", "of the disk", "most over least shard"];
    let mut table = Table::new("16 shards in disk groups, 4 KiB reads", &columns);

    for groups in [2_u16, 4] {
        for (name, active) in [("one group", 1), ("all but one", groups - 1), ("all", groups)] {
            let report = course.run(&numa_world((groups, active), seed))?;
            let used = report.disks[0].iops / OPERATIONS_PER_S;
            let uneven = unevenness(&report);
            table.row([groups.to_string(), name.into(), format!("{used:.4}"), format!("{uneven:.3}")]);
            course.figure(format!("{groups} groups, {name} active: part of capacity"), used, AtLeast(0.985));
            course.figure(format!("{groups} groups, {name} active: most over least shard"), uneven, AtMost(1.05));
        }
    }
    course.outcome.tables.push(table);

    let away = numa_comes_back(&mut course, seed)?;
    course.figure("a group that comes back: its part of its share in the first 50 ms", away, AtLeast(0.95));
    Ok(course.outcome)
}

const NUMA_SHARDS: u16 = 16;

fn numa_world((groups, active): (u16, u16), seed: u64) -> WorldSpec {
    let each = NUMA_SHARDS / groups;
    let job = JobSpec { shards: on((0..active * each).map(u32::from)), ..reads("reads", 32, 4096) };
    let mut spec = world(usize::from(NUMA_SHARDS), vec![job], seed);
    for (at, shard) in spec.shards.iter_mut().enumerate() {
        shard.numa_node = at as u16 / each;
    }
    spec.disks[0].config.groups = groups;
    spec
}

fn unevenness(report: &WorldReport) -> f64 {
    let rates = || report.classes[0].by_shard.iter().map(|on| on.iops).filter(|iops| *iops > 0.0);
    rates().fold(0.0, f64::max) / rates().fold(f64::INFINITY, f64::min)
}

/// Pauses the second of two groups for 200 ms. Returns its part of its share in the first 50 ms afterwards.
fn numa_comes_back(course: &mut Course<'_>, seed: u64) -> Result<f64, ScenarioError> {
    let mut spec = numa_world((2, 1), seed);
    let shards = on(8..16);
    spec.jobs.push(JobSpec { name: "second".into(), shards, start_ns: None, ..reads("reads", 32, 4096) });
    let start_ns = 400 * MS;
    spec.actions = vec![Action { at_ns: start_ns, change: Change::StartJob { job: "second".into() } }];
    let mut got = [0_u64; 2];
    course.run_logged(&spec, &mut |event| {
        let is_in_time = (start_ns..start_ns + 50 * MS).contains(&event.at_ns);
        if event.kind == EventKind::Dispatch && is_in_time {
            got[usize::from(event.shard >= 8)] += 1;
        }
    })?;
    Ok(got[1] as f64 / ((got[0] + got[1]) as f64 / 2.0))
}
