//! What a sweep, `--dual` and `trace gaps` say of a situation, beside what is so.
//!
//! The truth is measured, over a time six times as long and with the same disturbance: what more requests, and what
//! nothing above the disk, would change. So it depends on none of the rules that are judged.

use std::collections::HashMap;

use plimsoll_core::WaitReason;
use plimsoll_figures::verdict::Kind;
use plimsoll_files::scenario::Scenario;
use plimsoll_measure::experiment::dual::{self, DualRun, Iostat, Outcome};
use plimsoll_measure::experiment::{Point, sweep};
use plimsoll_measure::sim::trace::record;
use plimsoll_observe::trace::gaps::{Gaps, GapsReport, Limiter};
use plimsoll_observe::trace::little::{Little, LittleReport};
use plimsoll_observe::trace::read_from;
use plimsoll_sim::world::{self, WorldSpec};

use super::world::{Above, Situation};
use super::{Case, Found};

/// Factors of rates: below the first two are the same, above the second they differ. Between, neither is true, and
/// there is no case.
pub(crate) const SAME: f64 = 1.04;
pub(crate) const MORE: f64 = 1.15;

/// Rates over a long time, in requests a second.
#[derive(Default)]
pub(crate) struct References(HashMap<(Situation, u32), f64>);

impl References {
    fn rate(&mut self, situation: &Situation, parallelism: u32) -> f64 {
        *self.0.entry((*situation, parallelism)).or_insert_with(|| situation.reference(parallelism))
    }

    /// Returns whether the rate of `then` is higher than that of `now`; `None`: neither the same nor clearly higher.
    fn is_more(&mut self, now: (&Situation, u32), then: (&Situation, u32)) -> Option<bool> {
        let factor = self.rate(then.0, then.1) / self.rate(now.0, now.1);
        if factor >= MORE { Some(true) } else { (factor <= SAME).then_some(false) }
    }
}

/// Judges a sweep up to the situation's parallelism.
pub(crate) fn of_sweep(situation: &Situation, seed: u64, references: &mut References) -> Option<Case> {
    let most = situation.parallelism();
    let grows = references.is_more((situation, most / 2), (situation, most))?;
    let is_held = references.is_more((situation, most), (&situation.free(), most))?;
    let truth = match (grows, is_held) {
        (true, _) => Kind::ScalesLow,
        (false, true) => Kind::LimitedAbove,
        (false, false) => Kind::Saturated,
    };

    let run = |(at, step): (u64, u32)| situation.run(step, 100 * seed + at).0;
    let points: Vec<Point> = (0..).zip(situation.steps()).map(run).collect();
    let verdict = sweep::judge(&points.iter().collect::<Vec<_>>(), situation.promised());
    let found = match verdict.kind {
        Kind::Unclear => Found::Unclear,
        kind if kind == truth => Found::Right,
        _ => Found::Wrong,
    };
    let curve: Vec<String> = points.iter().map(|p| format!("{}: {:.0}", p.parallelism, p.iops)).collect();
    let told = format!("{truth:?} found {}; {}", verdict.sentence, curve.join(", "));
    let is_disturbed = situation.is_disturbed();
    Some(Case { command: "sweep", found, is_disturbed, told: format!("{situation:?} {seed}: {told}") })
}

/// Judges the situation's load, once and twice at once. With a depth that fills the disk both are true: the depth holds
/// the second load back, and the disk is at its end.
pub(crate) fn of_dual(situation: &Situation, seed: u64, references: &mut References) -> Option<Case> {
    if situation.above == Above::Wide {
        return None;
    }
    let most = situation.parallelism();
    let grows = references.is_more((situation, most), (situation, 2 * most))?;
    let is_held = references.is_more((situation, most), (&situation.free(), 2 * most))?;

    let run = |times: u8| {
        let (point, busy_part) = situation.run(most * u32::from(times), 100 * seed + u64::from(times));
        let iostat = Iostat { util_pct: Some(100.0 * busy_part), ..Iostat::default() };
        DualRun { times, point, jobs: Vec::new(), iostat: Some(iostat), busiest: None }
    };
    let runs = [run(1), run(2)];
    let finding = dual::finding(&runs).unwrap();
    let found = match finding.outcome {
        Outcome::Unclear => Found::Unclear,
        Outcome::Grew if grows => Found::Right,
        Outcome::HeldAbove if !grows && is_held => Found::Right,
        Outcome::AtEnd if !grows && !is_held => Found::Right,
        _ => Found::Wrong,
    };
    let told = format!("grows {grows}, held {is_held}; {}", finding.sentence);
    let is_disturbed = situation.is_disturbed();
    Some(Case { command: "dual", found, is_disturbed, told: format!("{situation:?} {seed}: {told}") })
}

/// Returns how long the queue of a world had work and no tokens, and no place in the device, in nanoseconds.
fn waits(world: &WorldSpec) -> [f64; 2] {
    let report = world::run(world).unwrap();
    [WaitReason::Tokens, WaitReason::Depth].map(|reason| report.classes[0].stats.waited_for_ns(reason) as f64)
}

/// Judges a trace of three loads, each of more parallelism than the one before. Fails if `trace little` of the same
/// trace contradicts. With a depth that fills the disk, depth and disk are both right.
pub(crate) fn of_gaps(situation: &Situation, seed: u64, references: &mut References) -> Option<Case> {
    if situation.above == Above::Wide {
        return None;
    }
    let most = situation.parallelism();
    let is_held = references.is_more((situation, most), (&situation.free(), most))?;
    let grows = references.is_more((situation, most / 2), (situation, 2 * most))?;
    let world = situation.world(&situation.parts(), situation.part_s(), seed);
    let truth = match waits(&world) {
        [tokens_ns, depth_ns] if is_held && tokens_ns > MORE * depth_ns => Limiter::Tokens,
        [tokens_ns, depth_ns] if is_held && depth_ns > MORE * tokens_ns => Limiter::Depth,
        _ if is_held => return None,
        _ if grows => Limiter::Program,
        _ => Limiter::Disk,
    };

    let scenario = Scenario { name: "case".into(), world, disk_names: vec!["disk".into()], warnings: Vec::new() };
    let mut trace = Vec::new();
    record(&scenario, seed, &mut trace).unwrap();
    let (gaps, little) = reports_on(&trace);
    let (verdict, curve) = (&gaps.disks[0].verdict, &little.disks[0].verdict);
    let told = format!("{situation:?} {seed}: {truth:?} found {}; little: {}", verdict.sentence, curve.sentence);
    assert!(agree(verdict.limiter, curve.kind), "gaps and little contradict each other: {told}");

    let found = match verdict.limiter {
        Limiter::Unknown => Found::Unclear,
        limiter if limiter == truth => Found::Right,
        _ => Found::Wrong,
    };
    Some(Case { command: "gaps", found, is_disturbed: situation.is_disturbed(), told })
}

/// Returns what `trace gaps` and `trace little` find in a trace.
pub(crate) fn reports_on(trace: &[u8]) -> (GapsReport, LittleReport) {
    let (mut gaps, mut little) = (Gaps::new(10_000), Little::default());
    let read = read_from(trace, &mut |item| {
        gaps.visit(&item);
        little.visit(&item);
    });
    let read = read.unwrap();
    (gaps.finish(&read), little.finish(&read))
}

/// Returns whether what `trace gaps` and `trace little` say of one trace can both be true.
pub(crate) fn agree(limiter: Limiter, curve: Kind) -> bool {
    match curve {
        Kind::Saturated => matches!(limiter, Limiter::Disk | Limiter::Unknown),
        Kind::LimitedAbove | Kind::ScalesLow | Kind::Reached => limiter != Limiter::Disk,
        Kind::Falls | Kind::Unclear => true,
    }
}
