//! Few reads beside many writes on a disk whose directions do not disturb each other.
//!
//! # Why
//! One window serves both directions. What is learnt from the busier one must not hold the other back.
//!
//! # How it works
//! Queries of 4 KiB in an open loop ask for a tenth of the disk's reads. Beside them there are writes with many requests
//! outstanding (*writes*), or short writes with few outstanding and long reads (*both*). The same load is *drained*,
//! too.
//!
//! # Limits
//! Two loads of the many that are possible. The second keeps 0.85 of its throughput, and the goal is 0.90.
//!
//! # Example
//! While the window was trimmed for the queries' sake, the tenth of the rate that it was allowed to cost was theirs: p99
//! 249 ms, and drained 0.34. While the few short writes outstanding bounded it, the disk kept 0.57 of its throughput.

use plimsoll_core::{DiskConfig, Op};

use super::super::support::{Course, S, config_of, preset, reads, world_of};
use super::super::{Advance, Outcome, ScenarioError};
use super::beside::Beside;
use crate::workload::{JobSpec, Load};
use crate::world::{ShardSpec, SimDisk};

const SHARDS: u32 = 2;
const QUERY_PART: f64 = 0.1;
const CLASSES: [(&str, u32); 3] = [("query", 300), ("writer", 100), ("reader", 100)];

pub(super) fn duplex_directions(seed: u64, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    let mut course = Course::of(4, advance);
    let mut beside = Beside::new("4 KiB reads (query) beside other work, on two shards", &["load"]);
    let preset = preset("z3-highmem-22-highlssd")?;
    let mut config =
        DiskConfig { duplex: true, unloaded_latency_ns: preset.unloaded_latency_ns, ..config_of(&preset.figures) };
    config.control.scale_max = 4.0;
    let read_iops = preset.figures.read_iops.get().map_or(0.0, |per_s| per_s as f64);
    let load = Load::poisson(QUERY_PART * read_iops / f64::from(SHARDS));
    let query = JobSpec { load, ..reads("query", 1, 4096) };
    let writer = |parallelism, len_bytes| JobSpec { op: Op::Write, ..reads("writer", parallelism, len_bytes) };
    let loads = [
        ("writes", vec![query.clone(), writer(16, 64 << 10)]),
        ("both", vec![query, writer(16, 4096), reads("reader", 64, 16 << 10)]),
    ];

    for (name, jobs) in loads {
        let disk = SimDisk::new(preset.spec.clone(), config.clone());
        let mut spec = world_of(seed, disk, &CLASSES, jobs);
        spec.shards = vec![ShardSpec::default(); SHARDS as usize];
        (spec.warmup_ns, spec.duration_ns) = (S, S);
        beside.run(&mut course, &[name.to_owned()], spec)?;
    }
    Ok(beside.end(course, 0.84, 1.5))
}
