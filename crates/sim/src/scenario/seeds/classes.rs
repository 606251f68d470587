//! Shares inside one I/O queue: the third table of the second document, and its list of classes.
//!
//! # Why
//! Shares are the promise of a scheduler; these are the figures by which it was first demonstrated.
//!
//! # How it works
//! Depth mode with decaying accumulators beside our scheduler, on the 850 PRO.
//!
//! # Limits
//! Reads only, where one direction suffices.
//!
//! # Example
//! Shares 10, 20, 40, 80 of 550 MB/s: 36.7, 73.3, 146.7, 293.3.

use plimsoll_core::{ControlConfig, Op};

use super::super::Target::{AtLeast, AtMost};
use super::super::support::{
    Course, MS, S, class_of, config_of, disk_of, preset, reads, share_error_percent, world_of,
};
use super::super::{Advance, Outcome, ScenarioError, Table};
use crate::workload::{JobSpec, Load};
use crate::world::{DiskMode, SimDisk, WorldSpec};

/// Returns the 850 PRO with a depth, or (`None`) with our scheduler.
pub(super) fn ssd(max_io_requests: Option<u32>) -> Result<SimDisk, ScenarioError> {
    let preset = preset("850-pro")?;
    let mut config = config_of(&preset.figures);
    config.unloaded_latency_ns = preset.unloaded_latency_ns;
    let mode = max_io_requests.map_or(DiskMode::Scheduled, |max_io_requests| DiskMode::Depth { max_io_requests });
    if max_io_requests.is_some() {
        config.control = ControlConfig::OFF;
    }
    Ok(SimDisk { mode, ..SimDisk::new(preset.spec, config) })
}

/// Runs table 3.
pub(super) fn four_share_sets(seed: u64, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    let mut course = Course::of(8, advance);
    let mut table = Table::new(
        "850 PRO, 128 KiB reads, depth 30, one shard; kB/s",
        &["shares", "", "C1", "C2", "C3", "C4", "sum", "error, %"],
    );
    let names = ["C1", "C2", "C3", "C4"];
    for (shares, published) in [
        ([10u32, 10, 10, 10], [137_506.0, 137_501.0, 137_501.0, 137_501.0]),
        ([100, 100, 100, 100], [137_504.0, 137_499.0, 137_499.0, 137_499.0]),
        ([10, 20, 40, 80], [37_333.0, 73_732.0, 146_566.0, 292_375.0]),
        ([100, 10, 10, 10], [421_211.0, 42_922.0, 42_922.0, 42_922.0]),
    ] {
        let mut add = |kind: &str, found: [f64; 4]| {
            let title =
                if kind == "published" { shares.map(|share| share.to_string()).join(", ") } else { String::new() };
            let sum: f64 = found.iter().sum();
            let cells = found.into_iter().chain([sum]).map(|kb| format!("{kb:.0}"));
            let error = share_error_percent(&found, &shares);
            table.row([title, kind.to_owned()].into_iter().chain(cells).chain([format!("{error:.2}")]));
            (error, sum)
        };

        add("published", published);
        for (kind, depth) in [("depth 30", Some(30)), ("ours", None)] {
            let classes: Vec<(&str, u32)> = names.into_iter().zip(shares).collect();
            let jobs = names.map(|name| reads(name, 64, 128 << 10)).to_vec();
            let mut spec = world_of(seed, ssd(depth)?, &classes, jobs);
            (spec.warmup_ns, spec.duration_ns) = (S, 20 * S);
            let report = course.run(&spec)?;
            let mut found = [0.0; 4];
            for (found, name) in found.iter_mut().zip(names) {
                *found = class_of(&report, name)?.bytes_per_s / 1e3;
            }
            let (error, sum) = add(kind, found);
            let most = if depth.is_some() { 2.0 } else { 1.0 };
            course.figure(format!("{shares:?}, {kind}: share error, %"), error, AtMost(most));
            course.figure(format!("{shares:?}, {kind}: sum, kB/s"), sum, AtLeast(0.95 * 550e3));
        }
    }
    course.outcome.tables.push(table);
    course.remark(
        "The published error is 1.8 % at most, its sums 550 MB/s: the line rate, so that the disk was the limit. As \
         published, only ratios of shares matter: the first two rows agree. The document lays the differences to \
         runs that end between two dispatches. The same differences, with the same signs, come back here: they are \
         those of accumulators that decay while classes wait. Virtual time has none.",
    );
    course.remark(
        "The document prints the cost as 'ws' and the header as C1, C2, \
         C4, C4: it is w / s, and C3. Its runs took 60 s; 20 s suffice \
         where nothing is random but the latencies.",
    );
    Ok(course.outcome)
}

const CLASSES: [(&str, u32); 6] = [
    ("commitlog", 100),
    ("memtable", 100),
    ("compaction", 100),
    ("query", 100),
    ("repair-read", 20),
    ("repair-write", 20),
];

/// Returns a closed loop in a class of table 2.
fn job(name: &str, parallelism: u32) -> JobSpec {
    let (op, len_bytes) = match name {
        "query" => (Op::Read, 4096),
        "compaction" | "repair-read" => (Op::Read, 128 << 10),
        _ => (Op::Write, 128 << 10),
    };
    JobSpec { op, ..reads(name, parallelism, len_bytes) }
}

fn scylla(seed: u64, jobs: Vec<JobSpec>) -> Result<WorldSpec, ScenarioError> {
    let mut spec = world_of(seed, ssd(None)?, &CLASSES, jobs);
    (spec.warmup_ns, spec.duration_ns) = (500 * MS, 3 * S);
    Ok(spec)
}

/// Runs repair beside all classes, beside queries, and alone.
pub(super) fn repair(seed: u64, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    let mut course = Course::of(6, advance);
    let mut table = Table::new(
        "850 PRO, classes of table 2: part of the device time by class, %",
        &["who is busy", "commitlog", "memtable", "compaction", "query", "repair-read", "repair-write", "MB/s"],
    );
    let all: Vec<&str> = CLASSES.iter().map(|(name, _)| *name).collect();
    for (title, busy) in
        [("all", all), ("query and repair-read", vec!["query", "repair-read"]), ("repair-read", vec!["repair-read"])]
    {
        let spec = scylla(seed, busy.iter().map(|name| job(name, 64)).collect())?;
        let report = course.run(&spec)?;

        let mut times = Vec::new();
        for (name, shares) in CLASSES {
            times.push((name, shares, class_of(&report, name)?.device_time_ns as f64));
        }
        let whole: f64 = times.iter().map(|(_, _, ns)| ns).sum();
        let cells = times.iter().map(|(_, _, ns)| format!("{:.1}", ns / whole * 100.0));
        let mb = format!("{:.0}", disk_of(&report)?.bytes_per_s / 1e6);
        table.row([title.to_owned()].into_iter().chain(cells).chain([mb]));

        let taking_part = times.iter().filter(|(name, _, _)| busy.contains(name));
        let (shares, parts): (Vec<u32>, Vec<f64>) = taking_part.map(|(_, shares, ns)| (*shares, *ns)).unzip();
        course.figure(format!("{title}: share error, %"), share_error_percent(&parts, &shares), AtMost(2.0));
        course.figure(format!("{title}: device time used"), disk_of(&report)?.utilisation, AtLeast(0.95));
    }

    course.outcome.tables.push(table);
    light_queries(&mut course, seed)?;
    course.remark(
        "'Repairs do not get too big a share even if a lot of data is read': 20 of 440 shares when all are busy, a \
         sixth beside queries alone, and all of the disk when nobody else asks.",
    );
    Ok(course.outcome)
}

/// Runs queries that ask for 40 % of the disk, without repair and beside it. Of the rest, repair may have the part that
/// keeps the throughput goal: the queries' requests come one by one, so the disk gives up the other part for them.
fn light_queries(course: &mut Course<'_>, seed: u64) -> Result<(), ScenarioError> {
    let mut table = Table::new(
        "queries at 40 000 a second (40 % of the disk), with and without repair",
        &["repair", "queries, k/s", "p50, us", "p99, us", "repair, MB/s"],
    );

    for (fibers, throughput_goal, least) in [(0, 0.90, 0.0), (64, 0.90, 0.49), (64, 0.97, 0.55)] {
        let mut jobs = vec![JobSpec { load: Load::poisson(40e3), ..job("query", 1) }];
        jobs.extend((fibers > 0).then(|| job("repair-read", fibers)));
        let mut spec = scylla(seed, jobs)?;
        for disk in &mut spec.disks {
            disk.config.control.throughput_goal = throughput_goal;
        }
        let report = course.run(&spec)?;
        let (query, repair) = (class_of(&report, "query")?, class_of(&report, "repair-read")?);
        let [p50, p99] = [50.0, 99.0].map(|percent| query.total.percentile(percent) as f64 / 1e3);
        let repair_mb = repair.bytes_per_s / 1e6;
        if fibers > 0 {
            let at_goal = format!("with repair, goal {throughput_goal}");
            course.figure(format!("{at_goal}: queries served over asked for"), query.iops / 40e3, AtLeast(0.99));
            course.figure(format!("{at_goal}: queries' p99, us"), p99, AtMost(2_500.0));
            course.figure(format!("{at_goal}: repair, MB/s"), repair_mb, AtLeast(least * 550.0));
        }
        let title = if fibers > 0 { format!("64 reads of 128 KiB, goal {throughput_goal}") } else { "none".to_owned() };
        let rate = format!("{:.1}", query.iops / 1e3);
        table.row([title, rate, format!("{p50:.0}"), format!("{p99:.0}"), format!("{repair_mb:.0}")]);
    }

    course.outcome.tables.push(table);
    Ok(())
}
