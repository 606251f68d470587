//! Bounds on waiting: ageing, so that nothing starves, and refusal, so that a caller knows early.
//!
//! # Why
//! With one share of a thousand, a class is hardly ever served. And a request that would end too late is better refused
//! at once than served in vain.
//!
//! # How it works
//! *Ageing*: a class with one share, longest wait 20 ms, beside one with 1000 shares that always has work. *Refusal*:
//! requests come at twice the rate of the disk (of the class's part of it), and are refused if they would wait more
//! than 5 ms.
//!
//! # Limits
//! Aged requests use at most an eighth of the disk, so the aged class must be a light one. An expected delay is an
//! estimate.
//!
//! # Example
//! Reads of 128 KiB on a disk of 500 MB/s: with one share of 1001 there would be one every 260 ms.

use crate::scenario::Target::{AtLeast, AtMost, Between};
use crate::scenario::support::{Course, MS, S, plain_world, reads};
use crate::scenario::{Advance, Outcome, ScenarioError, Table};
use crate::workload::{JobSpec, Load};
use crate::world::{ClassSpec, WorldSpec};
use plimsoll_core::{DEFAULT_LATENCY_GOAL_NS, Qos};

/// A disk of 20 000 operations and 500 MB/s.
const DISK: [u64; 4] = [20_000, 500_000_000, 20_000, 500_000_000];
const OPERATIONS_PER_S: f64 = 20e3;

fn world(shards: usize, seed: u64) -> WorldSpec {
    WorldSpec { warmup_ns: S, duration_ns: 4 * S, ..plain_world(DISK, shards, seed) }
}

const MAX_WAIT_NS: u64 = 20 * MS;

pub(super) fn ageing(seed: u64, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    let mut course = Course::of(4, advance);
    let columns = ["shards", "longest wait allowed", "delay p50 ms", "longest ms", "light, reads/s", "heavy, MB/s"];
    let mut table = Table::new("128 KiB reads of one share beside 1000 shares", &columns);
    for shards in [1, 4] {
        for max_wait_ns in [None, Some(MAX_WAIT_NS)] {
            let qos = Qos { max_wait_ns, ..Qos::default() };
            let spec = WorldSpec {
                classes: vec![ClassSpec { qos, ..ClassSpec::new("light", 1) }, ClassSpec::new("heavy", 1000)],
                jobs: vec![reads("light", 1, 128 << 10), reads("heavy", 32, 128 << 10)],
                ..world(shards, seed)
            };
            let report = course.run(&spec)?;
            let [light, heavy] = [0, 1].map(|at| &report.classes[at]);

            let longest_ns = light.queue.max() as f64;
            table.row([
                shards.to_string(),
                max_wait_ns.map_or("none".into(), |ns| format!("{} ms", ns / MS)),
                format!("{:.1}", light.queue.percentile(50.0) as f64 / 1e6),
                format!("{:.1}", longest_ns / 1e6),
                format!("{:.1}", light.iops),
                format!("{:.1}", heavy.bytes_per_s / 1e6),
            ]);

            if max_wait_ns.is_some() {
                // The oldest requests of all shards may come of age at once.
                let requests_ns = shards as f64 * f64::from(128 << 10) / 500e6 * 1e9;
                let bound_ns = (MAX_WAIT_NS + DEFAULT_LATENCY_GOAL_NS) as f64 + requests_ns;
                let name = format!("{shards} shards: longest wait over the bound, one goal and one request a shard");
                course.figure(name, longest_ns / bound_ns, AtMost(1.0));
                course.figure(
                    format!("{shards} shards: part of the disk used"),
                    report.disks[0].utilisation,
                    AtLeast(0.97),
                );
            }
        }
    }
    course.remark("Aged requests have at most an eighth of the disk; a heavy class is not rescued by its age.");
    course.outcome.tables.push(table);
    Ok(course.outcome)
}

const MAX_DELAY_NS: u64 = 5 * MS;

pub(super) fn refusal(seed: u64, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    let mut course = Course::of(4, advance);
    let columns = ["shards", "beside", "asked/s", "served/s", "refused %", "delay p50 ms", "p99 ms", "longest ms"];
    let mut table = Table::new("Twice what the disk can do; refused where the delay would be above 5 ms", &columns);
    for (shards, is_shared) in [(1, false), (4, false), (1, true), (4, true)] {
        let part = if is_shared { 0.5 } else { 1.0 };
        let asked = 2.0 * OPERATIONS_PER_S * part;
        let qos = Qos { max_delay_ns: Some(MAX_DELAY_NS), ..Qos::default() };
        let load = Load::poisson(asked / shards as f64);
        let mut jobs = vec![JobSpec { load, ..reads("query", 1, 4096) }];
        jobs.extend(is_shared.then(|| reads("scan", 32, 4096)));
        let spec = WorldSpec {
            classes: vec![ClassSpec { qos, ..ClassSpec::new("query", 100) }, ClassSpec::new("scan", 100)],
            jobs,
            ..world(shards, seed)
        };

        let report = course.run(&spec)?;
        let query = &report.classes[0];
        let refused = report.jobs[0].total.refused as f64;
        let refused_part = refused / (refused + report.jobs[0].total.requests as f64);
        let ms = |ns: u64| format!("{:.2}", ns as f64 / 1e6);
        table.row([
            shards.to_string(),
            if is_shared { "a scan of equal shares" } else { "nobody" }.into(),
            format!("{asked:.0}"),
            format!("{:.0}", query.iops),
            format!("{:.1}", refused_part * 100.0),
            ms(query.queue.percentile(50.0)),
            ms(query.queue.percentile(99.0)),
            ms(query.queue.max()),
        ]);

        let name = format!("{shards} shards{}", if is_shared { ", beside a scan" } else { "" });
        let p99_ns = query.queue.percentile(99.0) as f64;
        course.figure(format!("{name}: p99 of the delay over the bound"), p99_ns / MAX_DELAY_NS as f64, AtMost(1.3));
        let served = query.iops / (OPERATIONS_PER_S * part);
        course.figure(format!("{name}: served of what the disk can do"), served, Between(0.97, 1.03));
    }
    course.remark(
        "The expected delay is what is queued before a request over its class's part of the disk at that moment; where \
         shards of a class differ in what they have queued, single requests wait longer.",
    );
    course.outcome.tables.push(table);
    Ok(course.outcome)
}
