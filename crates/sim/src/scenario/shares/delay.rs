//! The delay of a class with many shares among the backlog of others, on few shards and on many.
//!
//! # Why
//! If each shard has its own part of the disk's time, a request waits for its shard's turn, and the more shards there
//! are the more turns precede it: Seastar's pull request 3633 measured it. With shares that hold on the whole disk the
//! request is dispatched next, however many shards have work.
//!
//! # How it works
//! One class of 200 shares keeps 128 KiB reads waiting on each of N shards; one of 1000 shares sends an occasional 4
//! KiB read, on one further shard. Shards poll their I/O as soon as there is any, or (as a busy reactor) every 250 us.
//!
//! # Limits
//! The delay is the time in the I/O queue; the window bounds the delay in the device.
//!
//! # Example
//! A disk of 100 MB/s: a piece of 128 KiB takes 0.7 ms, so no scheduler can promise less delay than that without
//! leaving the disk idle.

use crate::report::LatencySummary;
use crate::scenario::Target::AtMost;
use crate::scenario::support::{Course, MS, S, US, plain_world, reads};
use crate::scenario::{Advance, Outcome, ScenarioError, Series, Table};
use crate::workload::{JobSpec, Load, Pattern, ShardSet};
use crate::world::{ClassSpec, ShardSpec, WorldSpec};
use plimsoll_core::DEFAULT_LATENCY_GOAL_NS;

/// A disk of 10 000 operations and 100 MB/s.
const DISK: [u64; 4] = [10_000, 100_000_000, 10_000, 100_000_000];
const QUEUES: [usize; 4] = [4, 16, 64, 192];

fn world(queues: usize, poll_interval_ns: Option<u64>, seed: u64) -> WorldSpec {
    // Offsets keep the polls of different shards apart.
    let shard = |at: usize| ShardSpec {
        poll_interval_ns,
        start_offset_ns: poll_interval_ns.map_or(0, |interval_ns| interval_ns * at as u64 / (queues as u64 + 1)),
        ..ShardSpec::default()
    };

    let query = JobSpec { load: Load::poisson(500.0), shards: ShardSet::List(vec![0]), ..reads("query", 1, 4096) };
    let scan = JobSpec {
        pattern: Pattern::Sequential,
        shards: ShardSet::List((1..=queues as u32).collect()),
        ..reads("scan", 8, 128 << 10)
    };

    WorldSpec {
        shards: (0..=queues).map(shard).collect(),
        classes: vec![ClassSpec::new("query", 1000), ClassSpec::new("scan", 200)],
        jobs: vec![query, scan],
        warmup_ns: 300 * MS,
        duration_ns: 3 * S,
        ..plain_world(DISK, 1, seed)
    }
}

/// Runs the experiment of Seastar's pull request 3633.
pub(super) fn dispatch_delay(seed: u64, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    let mut course = Course::of(8, advance);
    let columns = ["look", "queues", "delay p50 us", "p99 us", "max us", "mean us", "scan MB/s", "total p99 us"];
    let mut table = Table::new("A 4 KiB read of 1000 shares among queues of 128 KiB reads of 200 shares", &columns);
    let mut series = Series {
        title: "Delay of a 4 KiB read of 1000 shares".into(),
        x: "queues of 128 KiB backlog".into(),
        y: "mean time in the I/O queue, us".into(),
        curves: Vec::new(),
    };

    for (name, poll_interval_ns) in [("as needed", None), ("each 250 us", Some(250 * US))] {
        let mut curve = Vec::new();
        let mut seen = Vec::new();
        for queues in QUEUES {
            let spec = world(queues, poll_interval_ns, seed);
            let report = course.run(&spec)?;
            let [query, scan] = [0, 1].map(|at| &report.classes[at]);
            let delay = LatencySummary::of(&query.queue);
            table.row([
                name.into(),
                queues.to_string(),
                format!("{:.1}", delay.p50_ns as f64 / 1e3),
                format!("{:.1}", delay.p99_ns as f64 / 1e3),
                format!("{:.1}", delay.max_ns as f64 / 1e3),
                format!("{:.1}", delay.mean_ns / 1e3),
                format!("{:.1}", scan.bytes_per_s / 1e6),
                format!("{:.1}", query.total.percentile(99.0) as f64 / 1e3),
            ]);
            curve.push((queues as f64, delay.mean_ns / 1e3));
            seen.push(Seen { delay, total_ns: query.total.percentile(99.0) as f64 });
        }
        judge(&mut course, name, &seen);
        series.curves.push((name.into(), curve));
    }

    course.remark(
        "Growth is measured against a latency goal where the delay is below one: a mean of 2 us that becomes 4 us has \
         not grown with the number of queues in any sense that a caller could notice.",
    );
    course.outcome.tables.push(table);
    course.outcome.series.push(series);
    Ok(course.outcome)
}

/// Bound on the p99 of the delay: one latency goal and one request of 128 KiB.
const BOUND_NS: f64 = DEFAULT_LATENCY_GOAL_NS as f64 + 131_072.0 / 100e6 * 1e9;

/// Latencies of the query among some number of queues.
struct Seen {
    delay: LatencySummary,
    /// 99th percentile from enqueue to end.
    total_ns: f64,
}

fn judge(course: &mut Course<'_>, name: &str, seen: &[Seen]) {
    let (Some(first), Some(last)) = (seen.first(), seen.last()) else { return };
    // A delay of next to nothing may double: measure growth against a latency goal then.
    let goal_ns = DEFAULT_LATENCY_GOAL_NS as f64;
    let growth = 1.0 + (last.delay.mean_ns - first.delay.mean_ns) / first.delay.mean_ns.max(goal_ns);
    let worst_ns = seen.iter().map(|seen| seen.delay.p99_ns as f64).fold(0.0, f64::max);
    course.figure(format!("{name}: growth of the mean delay, 192 queues over 4"), growth, AtMost(1.1));
    let name_of_total = format!("{name}: p99 from enqueue to end, 192 queues over 4");
    course.figure(name_of_total, last.total_ns / first.total_ns, AtMost(1.15));
    let name_of_worst = format!("{name}: largest p99 of the delay over one goal and one request");
    course.figure(name_of_worst, worst_ns / BOUND_NS, AtMost(1.0));
}
