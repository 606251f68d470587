//! Reads, writes and bursts that meet on one disk: the demonstration that ends the second document.
//!
//! # Why
//! A class that saturates the disk may wait; the others must not.
//!
//! # How it works
//! Eight shards. Queries are many closed loops (2500 reads outstanding); the commit log writes 128 KiB at a steady rate
//! that its shares allow. The disk gives 300 MB/s in each direction, and the directions share it linearly.
//!
//! # Limits
//! The document's reads come from a database with a cold cache. Their size is taken from its own figures: 2500 waiting
//! and 500 ms of delay are 5000 requests a second, so 60 KB each at 300 MB/s.
//!
//! # Example
//! 2500 outstanding at 5000 a second: 500 ms. At half of that: one second.

use plimsoll_core::{ControlConfig, Op};

use super::super::Target::{AtLeast, AtMost, Between};
use super::super::support::{Course, MS, S, class_of, config_of, four_figures, plain_device, reads, world_of};
use super::super::{Advance, Outcome, ScenarioError, Series, Table};
use crate::report::{ClassReport, WorldReport};
use crate::workload::{JobSpec, Load, ShardSet, Spacing};
use crate::world::{DiskMode, ShardSpec, SimDisk, WorldSpec};

const READ_BYTES: u32 = 60 << 10;
const SHARDS: usize = 8;
/// The writes of the commit log in the second phase.
const LOG_BYTES_PER_S: f64 = 145e6;

fn disk(mode: DiskMode) -> SimDisk {
    // Only bytes count: 4 KiB at 300 MB/s.
    let figures = four_figures([73_242, 300_000_000, 73_242, 300_000_000]);
    let mut config = config_of(&figures);
    config.unloaded_latency_ns = 200_000;
    if mode != DiskMode::Scheduled {
        config.control = ControlConfig::OFF;
    }
    SimDisk { mode, ..SimDisk::new(plain_device(&figures, 1.0, 200e3), config) }
}

fn queries() -> JobSpec {
    reads("query", 312, READ_BYTES)
}

/// Returns four writers, each on a shard of its own.
fn commitlog() -> JobSpec {
    JobSpec { op: Op::Write, shards: ShardSet::List(vec![0, 2, 4, 6]), ..reads("commitlog", 1, 128 << 10) }
}

fn eight_shards(seed: u64, disk: SimDisk, classes: &[(&str, u32)], jobs: Vec<JobSpec>) -> WorldSpec {
    let mut spec = world_of(seed, disk, classes, jobs);
    spec.shards = vec![ShardSpec::default(); SHARDS];
    (spec.warmup_ns, spec.duration_ns) = (2 * S, 6 * S);
    spec
}

fn ms(ns: f64) -> String {
    format!("{:.1}", ns / MS as f64)
}

fn percentile_ms(class: &ClassReport, percent: f64) -> f64 {
    class.total.percentile(percent) as f64 / MS as f64
}

/// Returns the commit log of the second phase: every shard writes at a rate that is within its class's half of the
/// disk, however many reads wait. A database that acknowledges writes writes no more than its clients send.
fn steady_commitlog() -> JobSpec {
    let requests_per_s = LOG_BYTES_PER_S / 131_072.0 / SHARDS as f64;
    let load = Load::Open { requests_per_s, spacing: Spacing::Uniform, batch: 1, max_outstanding: None };
    JobSpec { load, shards: ShardSet::All, ..commitlog() }
}

/// Runs figures 3 to 5, and the inverse.
pub(super) fn reads_against_writes(seed: u64, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    let mut course = Course::of(7, advance);
    let mut table = Table::new(
        "query reads saturate the disk; then the commit log begins to write",
        &["scheduler", "phase", "reads, MB/s", "delay, ms", "waiting", "log, MB/s", "log delay, ms", "p99"],
    );
    let published = |phase: &str, cells: [&str; 6]| {
        ["published", phase].into_iter().chain(cells).map(str::to_owned).collect::<Vec<_>>()
    };
    table.row(published("reads", ["300", "500", "< 2500", "-", "-", "-"]));
    table.row(published("both", ["150", "750-1000", "-", "-", "couple of", "-"]));

    for (name, mode) in [("depth 32", DiskMode::Depth { max_io_requests: 32 }), ("ours", DiskMode::Scheduled)] {
        let classes = [("query", 100), ("commitlog", 100)];
        let before = course.run(&eight_shards(seed, disk(mode), &classes, vec![queries()]))?;
        let after = course.run(&eight_shards(seed, disk(mode), &classes, vec![queries(), steady_commitlog()]))?;
        for (phase, report) in [("reads", &before), ("both", &after)] {
            table.row(phase_row(name, phase, report)?);
        }

        let (alone, query, log) =
            (class_of(&before, "query")?, class_of(&after, "query")?, class_of(&after, "commitlog")?);
        let mut figure = |what: &str, value, target| course.figure(format!("{name}: {what}"), value, target);
        figure("reads alone, MB/s (published: 300)", alone.bytes_per_s / 1e6, Between(285.0, 301.0));
        figure("delay of reads alone, ms (500)", alone.delay_ns / MS as f64, Between(450.0, 550.0));
        figure("reads waiting (a bit less than 2500)", alone.queued as f64, Between(2200.0, 2500.0));
        figure("reads beside the log, MB/s (150)", query.bytes_per_s / 1e6, Between(142.0, 158.0));
        figure("delay of reads beside the log, ms (750 to 1000)", query.delay_ns / MS as f64, Between(750.0, 1000.0));
        figure("log, part of what it asks for", log.bytes_per_s / LOG_BYTES_PER_S, AtLeast(0.99));
        figure("mean delay of the log, ms (a couple)", log.queue.mean() / MS as f64, AtMost(4.0));
        figure("p99 of the log's delay, ms", log.queue.percentile(99.0) as f64 / MS as f64, AtMost(8.5));
    }

    course.outcome.tables.push(table);
    let series = over_time(&mut course, seed)?;
    course.outcome.series.push(series);
    inverse(&mut course, seed)?;
    course.remark(
        "The write classes have as many shares as the reads, so these fall to half. Reads wait twice as long because \
         as many wait at half the rate; the document's 750 ms to 1 s begins at 500 ms, ours likewise. The log's delay is \
         that of the I/O queue, as in the document's figures; what follows in the disk are the requests before it and \
         its own, with a depth of 32 some 7 ms.",
    );
    course.remark(
        "Delay is the mean of the shard where it is longest, 'waiting' the sum over the I/O queues, as published. The \
         disk gives what the document's gave: 300 MB/s for these reads. The drives of an i2.8xlarge (the preset of that \
         name) read ten times as much, so that something else was the limit that day.",
    );
    Ok(course.outcome)
}

fn phase_row(name: &str, phase: &str, report: &WorldReport) -> Result<Vec<String>, ScenarioError> {
    let (query, log) = (class_of(report, "query")?, class_of(report, "commitlog")?);
    let mut cells = vec![name.to_owned(), phase.to_owned(), format!("{:.0}", query.bytes_per_s / 1e6)];
    cells.extend([ms(query.delay_ns), query.queued.to_string()]);
    if log.requests > 0 {
        let (mean, p99) = (ms(log.queue.mean()), ms(log.queue.percentile(99.0) as f64));
        cells.extend([format!("{:.0}", log.bytes_per_s / 1e6), mean, p99]);
    } else {
        cells.extend(["-"; 3].map(str::to_owned));
    }
    Ok(cells)
}

/// Returns the bandwidths over time as the writers start.
fn over_time(course: &mut Course<'_>, seed: u64) -> Result<Series, ScenarioError> {
    let log = JobSpec { start_ns: Some(4 * S), ..steady_commitlog() };
    let spec =
        eight_shards(seed, disk(DiskMode::Scheduled), &[("query", 100), ("commitlog", 100)], vec![queries(), log]);
    let mut curves = vec![("query".to_owned(), Vec::new()), ("commitlog".to_owned(), Vec::new())];
    course.run_observed(&spec, &mut |sample| {
        for (class, (_, points)) in sample.classes.iter().zip(&mut curves) {
            let mb_per_s = class.bytes as f64 / (sample.interval_ns as f64 / 1e9) / 1e6;
            points.push((sample.at_ns as f64 / S as f64, mb_per_s));
        }
    })?;
    Ok(Series { title: "reads while the log begins (4 s)".into(), x: "s".into(), y: "MB/s".into(), curves })
}

/// Saturates the disk with writes and adds a few reads.
fn inverse(course: &mut Course<'_>, seed: u64) -> Result<(), ScenarioError> {
    let mut table = Table::new(
        "the inverse: 512 writes of 128 KiB outstanding, one read of 4 KiB on each shard",
        &["scheduler", "reads, k/s", "read p50, ms", "read p99, ms", "writes, MB/s"],
    );
    for (name, mode) in [("drained", DiskMode::Drain), ("ours", DiskMode::Scheduled)] {
        let writes = JobSpec { op: Op::Write, ..reads("compaction", 64, 128 << 10) };
        let jobs = vec![reads("query", 1, 4096), writes];
        let report = course.run(&eight_shards(seed, disk(mode), &[("query", 100), ("compaction", 100)], jobs))?;
        let (query, writes) = (class_of(&report, "query")?, class_of(&report, "compaction")?);
        match mode {
            DiskMode::Drain => {
                course.figure("inverse, drained: read p50, ms", percentile_ms(query, 50.0), AtLeast(100.0))
            }
            _ => course.figure("inverse, ours: read p99, ms", percentile_ms(query, 99.0), AtMost(5.0)),
        }
        let [p50, p99] = [50.0, 99.0].map(|percent| ms(query.total.percentile(percent) as f64));
        let (rate, mb) = (format!("{:.2}", query.iops / 1e3), format!("{:.0}", writes.bytes_per_s / 1e6));
        table.row([name.to_owned(), rate, p50, p99, mb]);
    }
    course.outcome.tables.push(table);
    Ok(())
}

/// Runs figure 6.
pub(super) fn bursty_classes(seed: u64, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    let mut course = Course::of(2, advance);
    let mut table = Table::new(
        "bursts of 8 x 128 KiB four times a second, beside 2500 reads outstanding; delay in the I/O queue",
        &["scheduler", "class", "mean, ms", "p99, ms", "MB/s"],
    );

    let classes = [("query", 100), ("memtable", 100), ("compaction", 100)];
    let burst = Load::Open { requests_per_s: 32.0, spacing: Spacing::Uniform, batch: 8, max_outstanding: None };
    let memtable = JobSpec {
        op: Op::Write,
        load: burst.clone(),
        shards: ShardSet::List(vec![1]),
        ..reads("memtable", 1, 128 << 10)
    };
    let compaction = JobSpec { load: burst, shards: ShardSet::List(vec![5]), ..reads("compaction", 1, 128 << 10) };

    for (name, mode) in [("drained", DiskMode::Drain), ("ours", DiskMode::Scheduled)] {
        let jobs = vec![queries(), memtable.clone(), compaction.clone()];
        let report = course.run(&eight_shards(seed, disk(mode), &classes, jobs))?;
        let query_ns = class_of(&report, "query")?.total.mean();
        for (class_name, _) in classes {
            let class = class_of(&report, class_name)?;
            // Drained, the queue is in the device: all of the latency counts.
            let of = if mode == DiskMode::Drain { &class.total } else { &class.queue };
            let mb = format!("{:.1}", class.bytes_per_s / 1e6);
            table.row([name.to_owned(), class_name.to_owned(), ms(of.mean()), ms(of.percentile(99.0) as f64), mb]);
            if class_name != "query" {
                let part = class.total.mean() / query_ns;
                let target = if name == "ours" { AtMost(0.05) } else { AtLeast(0.5) };
                course.figure(format!("{name}: latency of {class_name} over that of queries"), part, target);
            }
        }
    }

    course.outcome.tables.push(table);
    course.remark(
        "As in the document's figure 6, which has no scale: bursts wait for little but themselves. Eight requests of \
         a class with half of the disk's shares need 8 x 2 x 0.44 ms, whatever waits in other classes.",
    );
    Ok(course.outcome)
}

/// Runs the commit log on two disks and on one.
pub(super) fn commitlog_disk(seed: u64, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    let mut course = Course::of(3, advance);
    let mut table = Table::new(
        "commit log of 100 MB/s (128 KiB) beside queries that saturate their disk",
        &["where", "log p50, ms", "log p99, ms", "log, MB/s", "queries, MB/s"],
    );

    let mut p99s = Vec::new();
    for (name, mode, own) in [
        ("shared, drained", DiskMode::Drain, false),
        ("shared, ours", DiskMode::Scheduled, false),
        ("own disk", DiskMode::Scheduled, true),
    ] {
        let load = Load::poisson(100e6 / 131_072.0 / 4.0);
        let log = JobSpec { load, disk: usize::from(own), ..commitlog() };
        let mut spec = eight_shards(seed, disk(mode), &[("query", 100), ("commitlog", 100)], vec![queries(), log]);
        if own {
            spec.disks.push(disk(mode));
        }

        let report = course.run(&spec)?;
        let log = report.class("commitlog", usize::from(own)).ok_or_else(|| ScenarioError("no commit log".into()))?;
        p99s.push(percentile_ms(log, 99.0));
        let [p50, p99] = [50.0, 99.0].map(|percent| ms(log.total.percentile(percent) as f64));
        let rates = [log.bytes_per_s, class_of(&report, "query")?.bytes_per_s].map(|rate| format!("{:.0}", rate / 1e6));
        table.row([name.to_owned(), p50, p99].into_iter().chain(rates));
        if name == "shared, ours" {
            course.figure(
                "shared, ours: the log gets what it asks for, MB/s",
                log.bytes_per_s / 1e6,
                Between(97.0, 103.0),
            );
        }
    }

    if let [drained, shared, own] = p99s[..] {
        course.figure("shared, drained: log p99, ms", drained, AtLeast(100.0));
        course.figure("shared, ours: log p99, ms", shared, AtMost(10.0));
        course.figure("shared, ours, over own disk: log p99, times", shared / own, AtMost(8.0));
    }
    course.outcome.tables.push(table);
    course.remark(
        "'There is no need for the commit log on its own disk': with shares its latency stays within milliseconds. \
         It asks for two thirds of its half of the disk: what waits is a queue that is two thirds busy and served at \
         half of the speed, instead of one that is one third busy. A disk of its own is better still, at twice the \
         price, and leaves the other disk to the queries.",
    );
    Ok(course.outcome)
}
