//! Four small worlds in which a scheduler was seen to starve a shard or a class.
//!
//! # Why
//! Seastar keeps them as manual tests; each is a story of a production cluster. They run here on virtual time, on the
//! same disk.
//!
//! # How it works
//! The disk is an i4i.2xlarge's as its owners measured it; seven shards. *Starved shard*: the only shard with I/O also
//! computes, 550 us at a time, and must still keep the disk busy. *Starved fairness*: all shards read, one of them
//! computes. *Tablet migration*: streaming reads with 200 shares beside interactive ones with 1000 that ask for a third
//! of their share. *Tau nemesis*: a filler of 10 shares, bursts of 50 requests at 100, interactive reads
//! at 1000.
//!
//! # Limits
//! Computation comes in slices of fixed length; a real reactor's tasks vary.
//!
//! # Example
//! The shard polls its I/O every 550 us, the goal is 750 us: at each poll it may dispatch as much as the disk has
//! completed since, and 200 us remain for the path.

use crate::report::LatencySummary;
use crate::scenario::Target::{AtLeast, AtMost, Between};
use crate::scenario::support::{Course, MS, S, US, config_of, preset, reads};
use crate::scenario::{Advance, Outcome, ScenarioError, Table};
use crate::workload::{JobSpec, Load, Pattern, ShardSet};
use crate::world::{ClassSpec, EventKind, ShardSpec, SimDisk, WorldSpec};

const SHARDS: usize = 7;
const PRESET: &str = "i4i.2xlarge";

fn world(classes: &[(&str, u32)], jobs: Vec<JobSpec>, seed: u64) -> Result<WorldSpec, ScenarioError> {
    let preset = preset(PRESET)?;
    let mut config = config_of(&preset.figures);
    config.unloaded_latency_ns = preset.unloaded_latency_ns;
    Ok(WorldSpec {
        seed,
        shards: vec![ShardSpec::default(); SHARDS],
        disks: vec![SimDisk::new(preset.spec, config)],
        classes: classes.iter().map(|(name, shares)| ClassSpec::new(name, *shares)).collect(),
        jobs,
        warmup_ns: 200 * MS,
        duration_ns: 2 * S,
        ..WorldSpec::default()
    })
}

fn stream(name: &str, parallelism: u32) -> JobSpec {
    JobSpec { pattern: Pattern::Sequential, ..reads(name, parallelism, 128 << 10) }
}

/// Returns CPU work of 550 us at a time.
fn hog() -> JobSpec {
    let load = Load::Cpu { parallelism: 1, execution_ns: 550 * US, pause_ns: 0 };
    JobSpec { name: "cpu hog".into(), shards: ShardSet::List(vec![0]), load, ..JobSpec::default() }
}

pub(super) fn starved_shard(seed: u64, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    let mut course = Course::of(2, advance);
    let mut table =
        Table::new("128 KiB reads, 50 at a time, on one shard of seven", &["shard 0", "MB/s", "of the disk"]);
    let mut parts = Vec::new();
    for (name, is_starved) in [("does only I/O", false), ("computes 550 us between looks at its I/O", true)] {
        let mut jobs = vec![JobSpec { shards: ShardSet::List(vec![0]), ..stream("stream", 50) }];
        jobs.extend(is_starved.then(hog));
        let spec = world(&[("stream", 200)], jobs, seed)?;
        let report = course.run(&spec)?;
        let part = report.disks[0].utilisation;
        table.row([name.into(), format!("{:.0}", report.classes[0].bytes_per_s / 1e6), format!("{part:.3}")]);
        parts.push(part);
    }
    course.outcome.tables.push(table);
    for (name, part) in ["undisturbed shard", "starved shard"].into_iter().zip(parts) {
        course.figure(format!("{name}: part of the disk used"), part, AtLeast(0.97));
    }
    Ok(course.outcome)
}

pub(super) fn starved_fairness(seed: u64, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    let mut course = Course::of(1, advance);
    let spec = world(&[("stream", 200)], vec![stream("stream", 50), hog()], seed)?;
    let report = course.run(&spec)?;
    let class = &report.classes[0];
    let mut table = Table::new("128 KiB reads on seven shards; shard 0 computes 550 us at a time", &["shard", "MB/s"]);
    for on in &class.by_shard {
        table.row([on.shard.to_string(), format!("{:.1}", on.bytes_per_s / 1e6)]);
    }
    course.outcome.tables.push(table);
    let starved = class.by_shard.first().map_or(0.0, |on| on.bytes_per_s);
    let fair = class.bytes_per_s / SHARDS as f64;
    course.figure("the starved shard's part of its fair share", starved / fair, Between(0.95, 1.05));
    course.figure("part of the disk used", report.disks[0].utilisation, AtLeast(0.97));
    Ok(course.outcome)
}

/// Returns interactive reads of 1.5 KiB in an open loop.
fn interactive(name: &str, requests_per_s: f64, shards: ShardSet) -> JobSpec {
    JobSpec {
        name: name.into(),
        class: "interactive".into(),
        load: Load::poisson(requests_per_s),
        shards,
        ..reads(name, 1, 1536)
    }
}

pub(super) fn tablet_migration(seed: u64, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    let jobs = vec![
        stream("stream", 50),
        interactive("interactive", 7_500.0, ShardSet::All),
        interactive("more on shard 0", 1_000.0, ShardSet::List(vec![0])),
    ];
    beside_streams(world(&[("interactive", 1000), ("stream", 200)], jobs, seed)?, "Tablet migration", advance)
}

pub(super) fn tau_nemesis(seed: u64, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    let bursts = Load::Open { requests_per_s: 400.0, spacing: Default::default(), batch: 50, max_outstanding: None };
    let jobs = vec![
        interactive("interactive", 5_000.0, ShardSet::All),
        JobSpec { load: bursts, ..stream("bursty", 1) },
        stream("filler", 10),
    ];
    beside_streams(
        world(&[("interactive", 1000), ("bursty", 100), ("filler", 10)], jobs, seed)?,
        "Tau nemesis",
        advance,
    )
}

/// Runs a world and judges, on each shard, the requests of the class `interactive` (the first).
fn beside_streams(spec: WorldSpec, title: &str, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    let mut course = Course::of(1, advance);
    let (mut asked, mut got) = (vec![0_u64; SHARDS], vec![0_u64; SHARDS]);
    let report = course.run_logged(&spec, &mut |event| {
        let shard = event.shard as usize;
        if event.class == 0 && event.at_ns >= spec.warmup_ns && shard < SHARDS {
            asked[shard] += u64::from(event.kind == EventKind::Enqueue);
            got[shard] += u64::from(event.kind == EventKind::Finish);
        }
    })?;

    let goal_ns = 750_000.0;
    let mut table = Table::new(
        format!("{title}: interactive reads of 1.5 KiB"),
        &["shard", "asked/s", "got/s", "p50 us", "p99 us", "max us"],
    );

    let (mut least, mut worst_p99_ns) = (f64::INFINITY, 0.0_f64);
    for on in &report.classes[0].by_shard {
        let per_s = |count: u64| format!("{:.0}", count as f64 * 1e9 / spec.duration_ns as f64);
        let us = |ns: u64| format!("{:.0}", ns as f64 / 1e3);
        least = least.min(got[on.shard] as f64 / asked[on.shard] as f64);
        worst_p99_ns = worst_p99_ns.max(on.total.p99_ns as f64);
        let LatencySummary { p50_ns, p99_ns, max_ns, .. } = on.total;
        let shard = on.shard.to_string();
        table.row([shard, per_s(asked[on.shard]), per_s(got[on.shard]), us(p50_ns), us(p99_ns), us(max_ns)]);
    }
    course.outcome.tables.push(table);

    let mut others =
        Table::new(format!("{title}: all classes"), &["class", "shares", "requests/s", "MB/s", "part of device time"]);
    for (class, class_spec) in report.classes.iter().zip(&spec.classes) {
        others.row([
            class.name.clone(),
            class_spec.shares.to_string(),
            format!("{:.0}", class.iops),
            format!("{:.1}", class.bytes_per_s / 1e6),
            format!("{:.3}", class.device_time_ns as f64 / spec.duration_ns as f64),
        ]);
    }

    course.outcome.tables.push(others);
    course.figure("interactive: part of what it asked for, least of the shards", least, AtLeast(0.995));
    course.figure("interactive: p99 over the latency goal, worst shard", worst_p99_ns / goal_ns, AtMost(2.0));
    course.figure("part of the disk used", report.disks[0].utilisation, AtLeast(0.95));
    Ok(course.outcome)
}
