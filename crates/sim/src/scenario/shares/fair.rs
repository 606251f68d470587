//! The accuracy of shares: between classes, across shards, and in the sums over several queues.
//!
//! # Why
//! Shares are the one promise that every class relies on. It must hold for small shares beside large ones, for long
//! requests beside short ones, and on any shard of the machine.
//!
//! # How it works
//! The *share error* of a class is the distance of its device time from its part of all device time, over that part. No
//! scheduler can be closer than about a request, so the bound is 2 %, or two of the largest requests if those are more.
//! Jain's index, (sum x)^2 / (n sum x^2) with x = device time / shares, is 1 if all are served alike.
//!
//! # Limits
//! All classes always have work here; other scenarios cover pauses.
//!
//! # Example
//! Shares 1:1000 for a second: the small class expects 1 ms of device time. Of requests that take 20 us, two are 4 % of
//! that.

use crate::report::WorldReport;
use crate::scenario::Target::{AtLeast, AtMost, Between};
use crate::scenario::support::{
    Course, MS, PLAIN_READ_NS, S, config_of, four_figures, on, plain_device, plain_world, reads,
};
use crate::scenario::{Advance, Outcome, ScenarioError, Table};
use crate::workload::{JobSpec, Load, Pattern, ShardSet, SizeDist};
use crate::world::{ClassSpec, SimDisk, WorldSpec};

const KIB: u32 = 1 << 10;
const MIB: u32 = 1 << 20;

/// Returns lengths of 4 KiB to 1 MiB, all equally frequent.
fn mixed_sizes() -> SizeDist {
    SizeDist::Weighted([4, 16, 64, 256, 1024].map(|kib| (kib * KIB, 1)).to_vec())
}

/// A fast array, on which the longest of the requests takes 21 us.
const FAST_ARRAY: [u64; 4] = [5_000_000, 50_000_000_000, 4_000_000, 40_000_000_000];

fn class_name(at: usize) -> String {
    format!("class {at}")
}

/// Share error (the largest over the classes, also as a part of the allowed one), and Jain's index.
struct Fairness {
    worst: f64,
    over_allowed: f64,
    jain: f64,
}

fn fairness(report: &WorldReport, shares: &[u32], largest_ns: f64) -> Fairness {
    let got: Vec<f64> = report.classes.iter().map(|class| class.device_time_ns as f64).collect();
    let (total, weight): (f64, f64) = (got.iter().sum(), shares.iter().map(|share| f64::from(*share)).sum());
    let (mut worst, mut over_allowed, mut sum, mut squares) = (0.0_f64, 0.0_f64, 0.0, 0.0);
    for (got, share) in got.iter().zip(shares) {
        let expected = total * f64::from(*share) / weight;
        let error = (got / expected - 1.0).abs();
        worst = worst.max(error);
        over_allowed = over_allowed.max(error / (2.0 * largest_ns / expected).max(0.02));
        let per_share = got / f64::from(*share);
        sum += per_share;
        squares += per_share * per_share;
    }
    Fairness { worst, over_allowed, jain: sum * sum / (shares.len() as f64 * squares) }
}

struct Case {
    shares: &'static [u32],
    shards: usize,
    /// Speed of the device over the scheduler's model.
    factor: f64,
    /// Whether each class runs on shards of its own.
    apart: bool,
}

const CASES: [Case; 9] = [
    Case { shares: &[100, 100], shards: 1, factor: 1.0, apart: false },
    Case { shares: &[10, 20, 40, 80], shards: 1, factor: 1.0, apart: false },
    Case { shares: &[1, 10, 100, 1000], shards: 1, factor: 1.0, apart: false },
    Case { shares: &[1, 1000], shards: 1, factor: 1.0, apart: false },
    Case { shares: &[1, 1000], shards: 2, factor: 1.0, apart: true },
    Case { shares: &[10, 20, 40, 80], shards: 4, factor: 1.0, apart: true },
    Case { shares: &[1, 10, 100, 1000], shards: 8, factor: 1.0, apart: false },
    Case { shares: &[10, 20, 40, 80], shards: 4, factor: 0.8, apart: false },
    Case { shares: &[1, 10, 100, 1000], shards: 4, factor: 0.8, apart: true },
];

fn share_error_world(case: &Case, seed: u64) -> WorldSpec {
    let figures = four_figures(FAST_ARRAY);
    let job = |at: usize| {
        let shards = if case.apart {
            ShardSet::List((0..case.shards).filter(|shard| shard % case.shares.len() == at).map(|s| s as u32).collect())
        } else {
            ShardSet::All
        };
        let parallelism = 512 / case.shards as u32;
        JobSpec { shards, sizes: mixed_sizes(), ..reads(&class_name(at), parallelism, 4 * KIB) }
    };

    WorldSpec {
        disks: vec![SimDisk::new(plain_device(&figures, case.factor, PLAIN_READ_NS), config_of(&figures))],
        classes: case.shares.iter().enumerate().map(|(at, shares)| ClassSpec::new(&class_name(at), *shares)).collect(),
        jobs: (0..case.shares.len()).map(job).collect(),
        warmup_ns: 100 * MS,
        duration_ns: S,
        ..plain_world(FAST_ARRAY, case.shards, seed)
    }
}

/// Runs backlogged classes, shares up to 1:1000, lengths of 4 KiB to 1 MiB, for a second.
pub(super) fn share_error(seed: u64, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    let mut course = Course::of(9, advance);
    let columns = ["shares", "shards", "device/model", "share error %", "of allowed", "Jain", "utilisation"];
    let mut table = Table::new("Reads of 4 KiB to 1 MiB, always backlogged, 1 s", &columns);

    let (mut over_allowed, mut jain, mut least_used) = (0.0_f64, 1.0_f64, 1.0_f64);
    for case in &CASES {
        let spec = share_error_world(case, seed);
        let report = course.run(&spec)?;
        // 1 MiB takes the same device time in pieces or whole.
        let largest_ns = f64::from(MIB) / FAST_ARRAY[1] as f64 * 1e9;
        let fairness = fairness(&report, case.shares, largest_ns);
        let used = report.disks[0].utilisation / case.factor;
        over_allowed = over_allowed.max(fairness.over_allowed);
        jain = jain.min(fairness.jain);
        least_used = least_used.min(used);

        let shares: Vec<String> = case.shares.iter().map(u32::to_string).collect();
        table.row([
            shares.join(":"),
            format!("{}{}", case.shards, if case.apart { ", apart" } else { "" }),
            format!("{:.1}", case.factor),
            format!("{:.3}", fairness.worst * 100.0),
            format!("{:.2}", fairness.over_allowed),
            format!("{:.6}", fairness.jain),
            format!("{used:.3}"),
        ]);
    }

    course.outcome.tables.push(table);
    course.remark(
        "A class of one share in a thousand gets a millisecond of the second: two requests of 1 MiB, 21 us each, are \
         4 % of it, which no order of requests can better.",
    );
    course.figure("share error over max(2 %, two largest requests)", over_allowed, AtMost(1.0));
    course.figure("Jain's index, least", jain, AtLeast(0.999));
    course.figure("part of the device used, least", least_used, AtLeast(0.95));
    Ok(course.outcome)
}

/// The disk of the published demonstration: 500 MB/s, 100 000 operations a second.
const DEMO_DISK: [u64; 4] = [100_000, 500_000_000, 100_000, 500_000_000];

fn demo_world(shards: usize, seed: u64) -> WorldSpec {
    WorldSpec { warmup_ns: 500 * MS, duration_ns: 10 * S, ..plain_world(DEMO_DISK, shards, seed) }
}

/// Returns sequential reads of 128 KiB, 16 at a time.
fn demo_job(name: &str, shards: ShardSet) -> JobSpec {
    JobSpec { shards, pattern: Pattern::Sequential, ..reads(name, 16, 128 * KIB) }
}

/// Runs shares across shards.
pub(super) fn cross_shard(seed: u64, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    let mut course = Course::of(3, advance);
    two_shards(&mut course, seed)?;
    once_a_class(&mut course, seed)?;
    many_shards(&mut course, seed)?;
    Ok(course.outcome)
}

fn two_shards(course: &mut Course<'_>, seed: u64) -> Result<(), ScenarioError> {
    let spec = WorldSpec {
        classes: vec![ClassSpec::new("high", 1000), ClassSpec::new("low", 200)],
        jobs: vec![demo_job("high", on([0])), demo_job("low", on([1]))],
        ..demo_world(2, seed)
    };
    let report = course.run(&spec)?;
    let [high, low] = [0, 1].map(|at| report.classes[at].bytes_per_s / 1e6);
    let columns = ["", "1000 shares, shard 0, MB/s", "200 shares, shard 1, MB/s", "ratio"];
    let mut table = Table::new("Two shards, reads of 128 KiB, 16 at a time, disk of 500 MB/s", &columns);
    for (who, high, low) in
        [("Seastar, master (2026)", 237.0, 237.0), ("Seastar, pull request 3295", 401.0, 80.0), ("Plimsoll", high, low)]
    {
        table.row([who.into(), format!("{high:.1}"), format!("{low:.1}"), format!("{:.3}", high / low)]);
    }
    course.outcome.tables.push(table);
    course.figure("two shards, 1000 against 200 shares: ratio", high / low, Between(4.9, 5.1));
    course.figure("two shards: part of the disk used", report.disks[0].utilisation, AtLeast(0.97));
    Ok(())
}

/// Runs a class on seven shards against one on a single shard, with the same shares.
fn once_a_class(course: &mut Course<'_>, seed: u64) -> Result<(), ScenarioError> {
    let spec = WorldSpec {
        classes: vec![ClassSpec::new("wide", 100), ClassSpec::new("narrow", 100)],
        jobs: vec![demo_job("wide", on(0..7)), demo_job("narrow", on([7]))],
        ..demo_world(8, seed)
    };
    let report = course.run(&spec)?;
    let [wide, narrow] = [0, 1].map(|at| &report.classes[at]);
    let mut table = Table::new("The same shares on seven shards and on one", &["class", "MB/s", "shards, MB/s each"]);
    for class in [wide, narrow] {
        let shards: Vec<String> = class.by_shard.iter().map(|on| format!("{:.1}", on.bytes_per_s / 1e6)).collect();
        table.row([class.name.clone(), format!("{:.1}", class.bytes_per_s / 1e6), shards.join(" ")]);
    }
    course.outcome.tables.push(table);
    let ratio = wide.bytes_per_s / narrow.bytes_per_s;
    course.figure("seven shards against one, equal shares: ratio", ratio, Between(0.98, 1.02));
    course.figure("shards of a class: most over least", most_over_least(wide.by_shard.iter()), AtMost(1.02));
    Ok(())
}

fn most_over_least<'a>(shards: impl Iterator<Item = &'a crate::report::ClassOnShard>) -> f64 {
    let (most, least) = shards.fold((0.0_f64, f64::INFINITY), |(most, least), on| {
        (most.max(on.stats.consumed_fs as f64), least.min(on.stats.consumed_fs as f64))
    });
    most / least
}

/// Runs three classes on 192 shards of a large machine.
fn many_shards(course: &mut Course<'_>, seed: u64) -> Result<(), ScenarioError> {
    let shares = [1000, 200, 50];
    let job = |at: usize| JobSpec { sizes: SizeDist::Fixed(64 * KIB), ..reads(&class_name(at), 8, 64 * KIB) };
    let spec = WorldSpec {
        classes: (0..3).map(|at| ClassSpec::new(&class_name(at), shares[at])).collect(),
        jobs: (0..3).map(job).collect(),
        warmup_ns: 100 * MS,
        duration_ns: S,
        ..plain_world(FAST_ARRAY, 192, seed)
    };

    let report = course.run(&spec)?;
    let fairness = fairness(&report, &shares, 0.0);

    let columns = ["class", "shares", "GB/s", "least shard, MB/s", "most, MB/s"];
    let mut table = Table::new("Three classes on each of 192 shards, reads of 64 KiB, 50 GB/s", &columns);
    for (class, shares) in report.classes.iter().zip(shares) {
        let rates = || class.by_shard.iter().map(|on| on.bytes_per_s / 1e6);
        table.row([
            class.name.clone(),
            shares.to_string(),
            format!("{:.3}", class.bytes_per_s / 1e9),
            format!("{:.2}", rates().fold(f64::INFINITY, f64::min)),
            format!("{:.2}", rates().fold(0.0, f64::max)),
        ]);
    }

    course.outcome.tables.push(table);
    course.figure("192 shards: share error, %", fairness.worst * 100.0, AtMost(2.0));
    let uneven = most_over_least(report.classes[0].by_shard.iter());
    course.figure("192 shards: most over least of a class's shards", uneven, AtMost(1.05));
    course.figure("192 shards: part of the disk used", report.disks[0].utilisation, AtLeast(0.95));
    Ok(())
}

/// Checks that the figures of a class are the sum over four queues, and its delay the maximum.
pub(super) fn metrics_sum(seed: u64, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    let mut course = Course::of(1, advance);
    // The shards differ: shard s has s + 1 times as many requests waiting.
    let job = |shard: u32| JobSpec {
        name: format!("reads on shard {shard}"),
        shards: on([shard]),
        load: Load::closed(16 * (shard + 1)),
        ..reads("statement", 1, 16 * KIB)
    };

    let spec = WorldSpec {
        classes: vec![ClassSpec::new("statement", 100)],
        jobs: (0..4).map(job).collect(),
        duration_ns: 200 * MS,
        warmup_ns: 50 * MS,
        sample_ns: 10 * MS,
        ..demo_world(4, seed)
    };

    let (mut most_delay_ns, mut queued_at_end) = (0.0_f64, 0);
    let report = course.run_observed(&spec, &mut |sample| {
        most_delay_ns = most_delay_ns.max(sample.classes[0].delay_ns);
        queued_at_end = sample.classes[0].queued;
    })?;

    let class = &report.classes[0];
    let columns = ["queue of shard", "pending", "MB/s", "mean delay, ms"];
    let mut table = Table::new("One class in four I/O queues", &columns);
    let (mut pending, mut bytes_per_s, mut delay_ns) = (0, 0.0, 0.0_f64);
    for on in &class.by_shard {
        pending += u64::from(on.stats.queued);
        bytes_per_s += on.bytes_per_s;
        delay_ns = delay_ns.max(on.queue.mean_ns);
        table.row(cells(&on.shard.to_string(), u64::from(on.stats.queued), on.bytes_per_s, on.queue.mean_ns));
    }
    table.row(cells("sum, sum, maximum", pending, bytes_per_s, delay_ns));
    table.row(cells("reported of the class", class.queued, class.bytes_per_s, class.delay_ns));
    course.outcome.tables.push(table);

    let ratio = |reported: f64, expected: f64| reported / expected;
    course.figure("pending over its sum", ratio(class.queued as f64, pending as f64), Between(1.0, 1.0));
    course.figure("the last sample's pending over the sum", queued_at_end as f64 / pending as f64, Between(1.0, 1.0));
    let near_one = Between(0.999_999, 1.000_001);
    course.figure("bandwidth over its sum", ratio(class.bytes_per_s, bytes_per_s), near_one);
    course.figure("delay over its maximum", ratio(class.delay_ns, delay_ns), near_one);
    course.figure("largest delay of a sample over the mean delay", most_delay_ns / class.delay_ns, AtLeast(1.0));
    Ok(course.outcome)
}

fn cells(name: &str, pending: u64, bytes_per_s: f64, delay_ns: f64) -> [String; 4] {
    [name.into(), pending.to_string(), format!("{:.2}", bytes_per_s / 1e6), format!("{:.3}", delay_ns / 1e6)]
}
