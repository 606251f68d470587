//! Writes that a file system holds before they reach the disk.
//!
//! # Why
//! A file system that commits its journal holds direct writes for tens of milliseconds and then lets all of them go.
//! Held writes fill the window, although the disk is idle.
//!
//! # How it works
//! `demo`'s load: queries of 4 KiB in an open loop beside 4 x 32 outstanding requests of 128 KiB a shard, half of them
//! writes. Writes are held for 10 to 90 ms at random, about three times a second. The same load is *drained*, too: all
//! of it is sent at once.
//!
//! # Limits
//! Reads are never held. On busy processors, where this was seen, shards are late as well.
//!
//! # Example
//! While the window counted held writes, a query waited for the end of the hold: 31 to 41 ms at p99 on one shard, and
//! 5.5 ms drained. The disk kept 0.76 to 0.81 of its drained throughput.

use plimsoll_core::{DiskConfig, Op};

use super::super::support::{Course, MS, S, config_of, four_figures, plain_device, reads, world_of};
use super::super::{Advance, Outcome, ScenarioError};
use super::beside::Beside;
use crate::device::{DeviceSpec, FaultKind, FaultWindow};
use crate::rng::Rng;
use crate::workload::{JobSpec, Load};
use crate::world::{ShardSpec, SimDisk};

/// Scylla's first classes and shares.
const CLASSES: [(&str, u32); 4] = [("query", 100), ("compaction", 100), ("repair-read", 20), ("repair-write", 20)];
const UNLOADED_NS: u64 = 46_000;
const HOLDS_PER_S: f64 = 4.0;
const HOLD_MS: (u64, u64) = (10, 90);
const END_NS: u64 = 8 * S;

pub(super) fn held_writes(seed: u64, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    let mut course = Course::of(8, advance);
    let mut beside = Beside::new(
        "4 KiB reads at 2000/s (query) beside 4 x 32 outstanding of 128 KiB on each shard",
        &["shards", "writes"],
    );

    let figures = four_figures([100_000, 4_000_000_000, 200_000, 4_800_000_000]);
    let mut config = DiskConfig { unloaded_latency_ns: UNLOADED_NS, ..config_of(&figures) };
    config.control.scale_max = 4.0;
    let mut never = plain_device(&figures, 1.0, UNLOADED_NS as f64);
    never.channels.independent = true;
    let held = DeviceSpec { faults: holds(seed), ..never.clone() };

    let long = |name: &str, class: &str, op| JobSpec { name: name.into(), op, ..reads(class, 32, 128 << 10) };
    let background = [
        long("compaction reads", "compaction", Op::Read),
        long("compaction writes", "compaction", Op::Write),
        long("repair-read", "repair-read", Op::Read),
        long("repair-write", "repair-write", Op::Write),
    ];

    for shards in [1, 4] {
        for (name, device) in [("never held", &never), ("held", &held)] {
            let query = JobSpec { load: Load::poisson(2000.0 / shards as f64), ..reads("query", 1, 4096) };
            let jobs = [query].into_iter().chain(background.clone()).collect();
            let mut spec = world_of(seed, SimDisk::new(device.clone(), config.clone()), &CLASSES, jobs);
            spec.shards = vec![ShardSpec::default(); shards];
            (spec.warmup_ns, spec.duration_ns) = (3 * S, END_NS - 3 * S);
            beside.run(&mut course, &[shards.to_string(), name.to_owned()], spec)?;
        }
    }
    Ok(beside.end(course, 0.82, 0.2))
}

/// Returns the holds of one run.
fn holds(seed: u64) -> Vec<FaultWindow> {
    let mut rng = Rng::new(seed);
    let mut holds = Vec::new();
    let mut at_ns = 0;
    while at_ns < END_NS {
        let from_ns = at_ns + rng.exponential(S as f64 / HOLDS_PER_S) as u64;
        at_ns = from_ns + (HOLD_MS.0 + rng.below(HOLD_MS.1 - HOLD_MS.0)) * MS;
        holds.push(FaultWindow { from_ns, until_ns: at_ns, kind: FaultKind::HoldWrites });
    }
    holds
}
