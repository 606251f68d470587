//! Random loads on random disks: queries beside one to three other classes.
//!
//! # Why
//! A scenario shows what somebody has thought of. On random loads the rest is found: a direction of a duplex disk that
//! the other held back was, by 24 of 80 loads that kept less than 0.90.
//!
//! # How it works
//! A disk of any preset but hard disks and volumes, one to eight shards. Queries of 4 KiB ask for 1, 3 or 10 % of its
//! reads, in an open loop. One to three classes have 4 to 64 requests of 4 KiB to 1 MiB outstanding on each shard, reads,
//! writes or both. One load in three has writes that are held, as in `held-writes`. The same load is *drained*, too.
//!
//! # Limits
//! Presets do not vary and do not stall. Device time is that of the model, so if the mix of lengths differs between the
//! two runs, "kept" is not exact. Queries that ask for nearly all that their shares give wait longer than drained.
//!
//! # Example
//! `plimsoll sim run random-loads --seeds 50`: 600 loads.

use plimsoll_core::{CostForm, CostModel, DiskConfig, MixExponent, Op};

use super::super::Target::{AtLeast, AtMost};
use super::super::support::{Course, MS, S, class_of, reads};
use super::super::{Advance, Outcome, ScenarioError, Table};
use crate::device::presets::{self, PresetKind};
use crate::device::{FaultKind, FaultWindow};
use crate::rng::Rng;
use crate::workload::{JobSpec, Load};
use crate::world::{ClassSpec, DiskMode, ShardSpec, SimDisk, WorldSpec};

const LOADS: u32 = 12;
const WARMUP_NS: u64 = 3 * S / 2;
const END_NS: u64 = 5 * S / 2;
/// The part of the drained throughput below which a load counts as lost, and how many of the loads may be.
const KEPT_LEAST: f64 = 0.85;
const LOST_MOST: f64 = 2.0;

/// Runs [`LOADS`] random loads, drained and scheduled.
pub(super) fn random_loads(seed: u64, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    let mut course = Course::of(2 * LOADS, advance);
    let mut table = Table::new(
        "queries of 4 KiB beside other classes",
        &["disk", "shards", "classes beside", "kept", "query p99 us", "drained us"],
    );

    let mut rng = Rng::new(seed);
    let (mut kept, mut slower) = (Vec::new(), Vec::new());
    for _ in 0..LOADS {
        let (name, beside, mut spec) = load(&mut rng)?;
        let mut run = |mode| {
            spec.disks[0].mode = mode;
            let report = course.run(&spec)?;
            let device_ns: u64 = report.classes.iter().map(|class| class.device_time_ns).sum();
            Ok::<(f64, f64), ScenarioError>((
                device_ns as f64,
                class_of(&report, "query")?.total.percentile(99.0) as f64 / 1e3,
            ))
        };
        let (drained, scheduled) = (run(DiskMode::Drain)?, run(DiskMode::Scheduled)?);
        let part = scheduled.0 / drained.0;
        table.row([
            name,
            spec.shards.len().to_string(),
            beside,
            format!("{part:.2}"),
            format!("{:.0}", scheduled.1),
            format!("{:.0}", drained.1),
        ]);
        kept.push(part);
        slower.push(scheduled.1 / drained.1);
    }

    course.outcome.tables.push(table);
    [&mut kept, &mut slower].into_iter().for_each(|parts| parts.sort_by(f64::total_cmp));
    let count = |holds: &dyn Fn(f64) -> bool, parts: &[f64]| parts.iter().filter(|part| holds(**part)).count() as f64;
    let median = |parts: &[f64]| parts[parts.len() / 2];
    let lost = count(&|part| part < KEPT_LEAST, &kept);
    course.figure(format!("loads of {LOADS} that keep less than {KEPT_LEAST} of drained"), lost, AtMost(LOST_MOST));
    course.figure("median part of the drained throughput", median(&kept), AtLeast(0.95));
    let late = count(&|ratio| ratio > 1.1, &slower);
    course.figure(format!("loads of {LOADS} whose query is later than drained at p99"), late, AtMost(LOST_MOST));
    course.figure("median p99 of the query over drained", median(&slower), AtMost(0.6));
    Ok(course.outcome)
}

/// Returns a random load: the disk's name, the classes beside the query, and the world.
fn load(rng: &mut Rng) -> Result<(String, String, WorldSpec), ScenarioError> {
    let preset = loop {
        let names: Vec<&str> = presets::names().collect();
        let preset = presets::find(pick(rng, &names)).ok_or_else(|| ScenarioError("a preset is gone".into()))?;
        if preset.kind != PresetKind::Volume && preset.spec.hdd.is_none() {
            break preset;
        }
    };
    let mut config = DiskConfig {
        model: CostModel::from_figures(&preset.figures, CostForm::Knee, 4096, 4096),
        unloaded_latency_ns: preset.unloaded_latency_ns,
        duplex: preset.mix_exponent_p.is_infinite(),
        mix: MixExponent::new(preset.mix_exponent_p).unwrap_or_default(),
        ..DiskConfig::default()
    };
    config.control.scale_max = 4.0;

    let shards = pick(rng, &[1, 1, 2, 4, 8]);
    let asked_per_s = pick(rng, &[0.01, 0.03, 0.1]) / config.model.cost(Op::Read, 4096).as_secs_f64();
    let mut classes = vec![ClassSpec::new("query", pick(rng, &[100, 1000]))];
    let mut jobs = vec![JobSpec { load: Load::poisson(asked_per_s / shards as f64), ..reads("query", 1, 4096) }];
    let mut beside = Vec::new();
    for number in 1..=pick(rng, &[1, 2, 3]) {
        let class = format!("c{number}");
        let shares = pick(rng, &[20, 100, 100, 300]);
        classes.push(ClassSpec::new(&class, shares));
        let ops: &[Op] = pick(rng, &[&[Op::Read][..], &[Op::Write], &[Op::Read, Op::Write]]);
        for op in ops {
            let (kib, parallelism) = (pick(rng, &[4, 16, 64, 128, 256, 1024]), pick(rng, &[4, 16, 32, 64]));
            let name = format!("{class} {op:?}");
            jobs.push(JobSpec { name, op: *op, ..reads(&class, parallelism, kib << 10) });
            beside.push(format!("{shares}: {op:?} {kib}K x{parallelism}"));
        }
    }

    let mut device = preset.spec;
    if pick(rng, &[false, false, true]) {
        let mut at_ns = 0;
        while at_ns < END_NS {
            let from_ns = at_ns + rng.exponential(0.3 * S as f64) as u64;
            at_ns = from_ns + pick(rng, &[5, 20, 60]) * MS;
            device.faults.push(FaultWindow { from_ns, until_ns: at_ns, kind: FaultKind::HoldWrites });
        }
        beside.push("writes held".to_owned());
    }

    let spec = WorldSpec {
        seed: rng.next_u64(),
        shards: vec![ShardSpec::default(); shards],
        disks: vec![SimDisk::new(device, config)],
        classes,
        jobs,
        warmup_ns: WARMUP_NS,
        duration_ns: END_NS - WARMUP_NS,
        ..WorldSpec::default()
    };
    Ok((preset.name, beside.join(", "), spec))
}

fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.below(from.len() as u64) as usize]
}
