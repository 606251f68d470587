//! A light reader beside saturating writes.
//!
//! # Why
//! On flash a read waits for a die that is being programmed. The rate of the others' writes therefore decides the
//! latency of reads, and no order of requests can change that. A scheduler must add hardly anything to it; faster reads
//! need fewer writes.
//!
//! # How it works
//! Reads of 4 KiB, 2000 a second, beside 128 KiB writes that take the rest, on the model of an i3en, whose
//! interference of writes was fitted to a published surface. The device's own figure is that of the same reads beside
//! writes in an open loop at the rate that the scheduled writes had, with nothing held back. Then the reader has a
//! latency target of three times the idle disk's p99.
//!
//! # Limits
//! The surface gives medians and 95th percentiles; the model's p99 is an extrapolation.
//!
//! # Example
//! Idle, p99 is about 190 us; with writes at full rate about 700 us. A p99 of 560 us allows some 70 % of the writes.

use crate::report::WorldReport;
use crate::scenario::Target::{AtLeast, AtMost};
use crate::scenario::support::{Course, S, config_of, preset, reads};
use crate::scenario::{Advance, Outcome, ScenarioError, Table};
use crate::workload::{JobSpec, Load};
use crate::world::{ClassSpec, DiskMode, ShardSpec, SimDisk, WorldSpec};
use plimsoll_core::{LatencyTarget, MixExponent, Op, Qos};

const PRESET: &str = "i3en.3xlarge";
const WRITE_BYTES: u32 = 128 << 10;
const READS_PER_S: f64 = 2000.0;
/// The target as a multiple of the idle disk's p99.
const TARGET_OVER_IDLE: f64 = 3.0;

fn world(qos: Qos, write_load: Option<Load>, mode: DiskMode, seed: u64) -> Result<WorldSpec, ScenarioError> {
    let preset = preset(PRESET)?;
    let mut config = config_of(&preset.figures);
    config.unloaded_latency_ns = preset.unloaded_latency_ns;
    config.mix = MixExponent::new(preset.mix_exponent_p).unwrap_or(MixExponent::LINEAR);
    let write = |load| JobSpec { op: Op::Write, load, ..reads("ingest", 1, WRITE_BYTES) };
    let mut jobs = vec![JobSpec { load: Load::poisson(READS_PER_S), ..reads("query", 1, 4096) }];
    jobs.extend(write_load.map(write));
    Ok(WorldSpec {
        seed,
        shards: vec![ShardSpec::default()],
        disks: vec![SimDisk { mode, ..SimDisk::new(preset.spec, config) }],
        classes: vec![ClassSpec { qos, ..ClassSpec::new("query", 1000) }, ClassSpec::new("ingest", 100)],
        jobs,
        warmup_ns: 4 * S,
        duration_ns: 8 * S,
        ..WorldSpec::default()
    })
}

/// Returns the p99 of the reads as their callers see it, and the bytes written a second.
fn p99_and_writes(report: &WorldReport) -> (f64, f64) {
    (report.classes[0].total.percentile(99.0) as f64, report.classes[1].bytes_per_s)
}

pub(super) fn latency_target(seed: u64, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    let mut course = Course::of(5, advance);
    let columns = ["", "writes MB/s", "of their rate", "read p50 us", "p99 us", "p99 over idle"];
    let mut table = Table::new(format!("4 KiB reads, 2000 a second, beside 128 KiB writes: {PRESET}"), &columns);
    let full_rate = preset(PRESET)?.spec.rates.write_bytes_per_s;

    let idle = course.run(&world(Qos::default(), None, DiskMode::Drain, seed)?)?;
    let (idle_ns, _) = p99_and_writes(&idle);

    let mut row = |name: &str, report: &WorldReport| {
        let (p99_ns, writes) = p99_and_writes(report);
        let p50_ns = report.classes[0].total.percentile(50.0);
        table.row([
            name.into(),
            format!("{:.0}", writes / 1e6),
            format!("{:.3}", writes / full_rate),
            format!("{:.0}", p50_ns as f64 / 1e3),
            format!("{:.0}", p99_ns / 1e3),
            format!("{:.2}", p99_ns / idle_ns),
        ]);
    };
    row("idle disk", &idle);

    let saturating = Load::closed(64);
    let drained = course.run(&world(Qos::default(), Some(saturating.clone()), DiskMode::Drain, seed)?)?;
    row("nothing held back", &drained);
    let shares = course.run(&world(Qos::default(), Some(saturating.clone()), DiskMode::Scheduled, seed)?)?;
    row("by shares", &shares);
    let (shares_ns, shares_writes) = p99_and_writes(&shares);

    // The same rate of writes, but in an open loop.
    let by_clock = Load::uniform(shares_writes / f64::from(WRITE_BYTES));
    let own = course.run(&world(Qos::default(), Some(by_clock), DiskMode::Drain, seed)?)?;
    row("the device's own, at that write rate", &own);
    let (own_ns, _) = p99_and_writes(&own);

    let target = LatencyTarget { latency_ns: (TARGET_OVER_IDLE * idle_ns) as u64, quantile: 0.99 };
    let qos = Qos { latency_target: Some(target), ..Qos::default() };
    let targeted = course.run(&world(qos, Some(saturating), DiskMode::Scheduled, seed)?)?;
    row("with a target of 3 x idle", &targeted);
    let (targeted_ns, targeted_writes) = p99_and_writes(&targeted);

    course.remark(
        "By shares alone the reader's p99 is the device's own, which depends on the writes and on nothing else; the \
         target is met by writing less.",
    );

    course.outcome.tables.push(table);
    course.figure("by shares: writes, part of their rate", shares_writes / full_rate, AtLeast(0.9));
    course.figure("by shares: p99 over the device's own at that write rate", shares_ns / own_ns, AtMost(1.25));
    course.figure("with a target: p99 over the target", targeted_ns / target.latency_ns as f64, AtMost(1.0));
    course.figure("with a target: writes, part of their rate", targeted_writes / full_rate, AtLeast(0.55));
    Ok(course.outcome)
}
