//! An unconfigured disk: its rates under old defaults, and the symptoms.
//!
//! # Why
//! Until July 2025 Seastar took 2^31 - 1 for "unlimited". A request then cost 128 (1 + length / 512) / (2^31 - 1)
//! seconds, and every disk ended at 2^33 bytes a second. It took weeks to find.
//!
//! # How it works
//! [`old_defaults`] gives the same costs by figures: 2^24 operations and 2^33 bytes a second. Ours is the unlimited
//! model, whose requests cost nothing.
//!
//! # Limits
//! Seastar has no window of device time. Ours is as wide as it can be (0.75 ms of cost), which is more than its token
//! bucket admits.
//!
//! # Example
//! 1 MiB at 2^24 and 2^33: 0.06 us + 122.07 us, so 8188 MiB/s.

use plimsoll_core::{ControlConfig, CostForm, CostModel, DiskConfig, Op, WaitReason};

use super::super::Target::{AtLeast, AtMost, Between};
use super::super::support::{Course, MS, S, US, as_one_disk, class_of, config_of, disk_of, four_figures, preset};
use super::super::support::{mean_and_deviation_percent, reads, world_of};
use super::super::{Advance, Outcome, ScenarioError, Table};
use crate::device::DeviceSpec;
use crate::rng::Rng;
use crate::world::{DiskMode, EventKind, SimDisk, WorldSpec};

pub(super) const MIB: f64 = 1_048_576.0;

/// Returns the charges of Seastar until July 2025 for an unconfigured disk.
pub(super) fn old_defaults() -> DiskConfig {
    let figures = four_figures([1 << 24, 1 << 33, 1 << 24, 1 << 33]);
    let model = CostModel::from_figures(&figures, CostForm::Seastar, 512, 512);
    DiskConfig { model, control: ControlConfig::OFF, ..DiskConfig::default() }
}

/// Returns the i7i.12xlarge of the first document: its 1 MiB takes 0.49 ms on the idle disk, as there (four requests in
/// the disk at 8188 a second).
pub(super) fn i7i_12xlarge() -> Result<DeviceSpec, ScenarioError> {
    Ok(as_one_disk(&preset("i7i.12xlarge")?))
}

/// Returns a closed loop of one class.
pub(super) fn loop_of(seed: u64, disk: SimDisk, op: Op, fibers: u32, len_bytes: u32) -> WorldSpec {
    let mut job = reads("io", fibers, len_bytes);
    job.op = op;
    world_of(seed, disk, &[("io", 100)], vec![job])
}

/// Measures the plateau and its absence.
pub(super) fn unconfigured(seed: u64, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    let mut course = Course::of(6, advance);
    let large = preset("i7i.48xlarge")?;
    let device = as_one_disk(&large);
    let mut table = Table::new(
        "i7i.48xlarge without properties, random reads",
        &["request", "published", "old defaults", "ours", "device", "unit"],
    );
    for (len_bytes, published, expected) in
        [(4096u32, "1.858 M", 1e9 / (59.604_645 + 476.837_158)), (128 << 10, "8160", 8160.0), (1 << 20, "8188", 8188.0)]
    {
        let small = len_bytes == 4096;
        let unit = if small { "IOPS" } else { "MiB/s" };
        let value = |iops: f64| if small { iops } else { iops * f64::from(len_bytes) / MIB };
        let most = 1.0 / config_of(&large.figures).model.cost(Op::Read, len_bytes).as_secs_f64();

        let mut found = [0.0; 2];
        for (found, config) in found.iter_mut().zip([old_defaults(), DiskConfig::default()]) {
            let mut spec = loop_of(seed, SimDisk::new(device.clone(), config), Op::Read, 1024, len_bytes);
            (spec.warmup_ns, spec.duration_ns) = (20 * MS, 50 * MS);
            let report = course.run(&spec)?;
            *found = value(disk_of(&report)?.iops);
            if spec.disks.iter().all(|disk| disk.config.model.is_unlimited()) {
                let delay_ns = class_of(&report, "io")?.queue.max();
                course.figure(format!("ours, {len_bytes} B: longest Q to D, ns"), delay_ns as f64, AtMost(1e3));
            }
        }

        let [old, ours] = found;
        let name = format!("{len_bytes} B: old defaults, {unit}");
        course.figure(name, old, Between(expected * 0.995, expected * 1.005));
        let name = format!("{len_bytes} B: ours over the device's rate");
        course.figure(name, ours / value(most), AtLeast(0.98));
        let cells = [old, ours, value(most)].map(|value| format!("{value:.0}"));
        let [old, ours, most] = cells;
        table.row([format!("{} KiB", len_bytes >> 10), published.into(), old, ours, most, unit.into()]);
    }

    course.outcome.tables.push(table);
    course.remark(
        "The document calls the plateau 8.5 GB/s; it is 8188 MiB/s = 8.59 GB/s at 1 MiB. The same default caps small \
         requests: 1.864 M of 4 KiB, where 1.858 M writes were seen on an i7i.24xlarge. Bandwidth and operations \
         look like two problems and are one on the largest machines.",
    );
    course.remark(
        "fio reached 40 GB/s on an i7i.48xlarge. No properties were published for it; the model has twice those of \
         an i7i.24xlarge, 52 GB/s.",
    );
    Ok(course.outcome)
}

/// The figures that iotune printed with the drained scheduler: MiB/s, and their standard deviation in per cent.
const PUBLISHED_DRAINED: [(Op, f64, f64); 2] = [(Op::Write, 9775.0, 6.0), (Op::Read, 13_617.0, 22.0)];
const SAMPLE_NS: u64 = 100 * MS;
const SAMPLES: u64 = 50;

/// Returns the i7i.12xlarge as on the day of that measurement: the published mean, and around it a rate for each
/// sample, evenly spread as far as the published deviation demands, in random order.
fn on_that_day(seed: u64, op: Op, mib_per_s: f64, deviation_percent: f64) -> Result<DeviceSpec, ScenarioError> {
    let mut device = i7i_12xlarge()?;
    let rate = if op == Op::Read { &mut device.rates.read_bytes_per_s } else { &mut device.rates.write_bytes_per_s };
    *rate = mib_per_s * MIB;

    // Even spread over -w to w has the deviation w / sqrt(3).
    let width = deviation_percent / 100.0 * 3f64.sqrt();
    let mut factors: Vec<f64> =
        (0..SAMPLES).map(|at| 1.0 + width * ((2 * at + 1) as f64 / SAMPLES as f64 - 1.0)).collect();
    let mut rng = Rng::new(seed);
    for last in (1..factors.len()).rev() {
        factors.swap(last, rng.below(last as u64 + 1) as usize);
    }
    device.weather.capacity_steps = (1..).map(|at| at * SAMPLE_NS).zip(factors).collect();
    Ok(device)
}

/// Runs reads and writes, throttled and drained.
pub(super) fn drain_against_throttle(seed: u64, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    let mut course = Course::of(6, advance);
    let mut table = Table::new(
        "i7i.12xlarge, sequential 1 MiB, 64 outstanding; MiB/s (deviation of the samples)",
        &["direction", "published throttled", "old defaults", "published drained", "drained", "ours unlimited"],
    );
    for (op, published_mib, published_deviation) in PUBLISHED_DRAINED {
        let mut cells = Vec::new();
        for (name, config, mode) in [
            ("old defaults", old_defaults(), DiskMode::Scheduled),
            ("drained", old_defaults(), DiskMode::Drain),
            ("unlimited", DiskConfig::default(), DiskMode::Scheduled),
        ] {
            let device = on_that_day(seed, op, published_mib, published_deviation)?;
            let mut spec = loop_of(seed, SimDisk { mode, ..SimDisk::new(device, config) }, op, 64, 1 << 20);
            (spec.warmup_ns, spec.duration_ns, spec.sample_ns) = (SAMPLE_NS, SAMPLES * SAMPLE_NS, SAMPLE_NS);
            let mut rates = Vec::new();
            let report = course.run_observed(&spec, &mut |sample| {
                if !sample.is_warmup {
                    let bytes: u64 = sample.classes.iter().map(|class| class.bytes).sum();
                    rates.push(bytes as f64 / MIB / (sample.interval_ns as f64 / S as f64));
                }
            })?;

            let (_, deviation) = mean_and_deviation_percent(&rates);
            let mib = disk_of(&report)?.bytes_per_s / MIB;
            cells.push(format!("{mib:.0} ({deviation:.0} %)"));
            let (expected, within, deviations) = if name == "old defaults" {
                (8188.0, 0.01, AtMost(1.0))
            } else {
                (published_mib, 0.03, Between(published_deviation * 0.85, published_deviation * 1.15))
            };
            let target = Between(expected * (1.0 - within), expected * (1.0 + within));
            course.figure(format!("{op:?}, {name}, MiB/s"), mib, target);
            course.figure(format!("{op:?}, {name}: deviation, %"), deviation, deviations);
        }
        let [throttled, drained, ours] = [0, 1, 2].map(|at| cells.get(at).cloned().unwrap_or_default());
        let published = format!("{published_mib:.0} ({published_deviation:.0} %)");
        table.row([format!("{op:?}"), "8.5 GB/s".into(), throttled, published, drained, ours]);
    }

    course.outcome.tables.push(table);
    course.remark(
        "The published drained figures are labelled MB/s and are MiB/s: 9775 MiB/s = 10.25 GB/s, 13617 MiB/s = 14.28 \
         GB/s. The disk has these rates and deviations as that day's: what the scenario shows is that a scheduler lets \
         them through or does not. Old defaults hide the deviation, too: a limit above the disk is steady. The \
         properties that were shipped later are 10.15 and 12.80 GB/s, those of a longer measurement.",
    );
    Ok(course.outcome)
}

/// Measures the gaps between Q and D.
pub(super) fn queue_to_dispatch(seed: u64, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    let mut course = Course::of(8, advance);
    let mut table = Table::new(
        "i7i.12xlarge, reads: mean time from Q to D, and from D to D, us (published: 83 us against 1 us)",
        &["request", "fibers", "price, us", "old Q to D", "old D to D", "waits for tokens, %", "ours Q to D"],
    );
    for (len_bytes, fibers) in [(512u32 << 10, 9), (512 << 10, 16), (1 << 20, 5), (1 << 20, 16)] {
        let price_us = old_defaults().model.cost(Op::Read, len_bytes).as_secs_f64() * 1e6;
        let [old, ours] = [old_defaults(), DiskConfig::default()].map(|config| {
            let device = i7i_12xlarge()?;
            let mut spec = loop_of(seed, SimDisk::new(device, config), Op::Read, fibers, len_bytes);
            spec.duration_ns = 200 * MS;
            gaps(&mut course, &spec)
        });
        let (old, ours) = (old?, ours?);
        let name = format!("{} KiB, {fibers} fibers", len_bytes >> 10);
        course.figure(format!("{name}: ours, Q to D, us"), ours.wait_us, AtMost(1.0));
        let within = Between(price_us * 0.98, price_us * 1.02);
        course.figure(format!("{name}: old defaults, D to D, us"), old.spacing_us, within);
        course.figure(format!("{name}: old defaults, waits for tokens, %"), old.tokens_percent, AtLeast(95.0));
        if len_bytes == 1 << 20 && fibers == 5 {
            course.figure(format!("{name}: old defaults, Q to D, us"), old.wait_us, Between(61.0, 130.0));
        }
        let [price, wait, spacing, ours] =
            [price_us, old.wait_us, old.spacing_us, ours.wait_us].map(|us| format!("{us:.1}"));
        let tokens = format!("{:.0}", old.tokens_percent);
        table.row([format!("{} KiB", len_bytes >> 10), fibers.to_string(), price, wait, spacing, tokens, ours]);
    }

    course.outcome.tables.push(table);
    course.remark(
        "83 us lies between the price of 512 KiB (61 us) and that of 1 MiB (122 us) under old defaults: a wait for \
         tokens, not for a CPU. Just beyond the knee (5 fibers of 1 MiB) a request waits about one price; with more \
         fibers it waits for those before it.",
    );
    course.remark(
        "Virtual time has no CPU cost unless it is asked for: ours waits 0, where the document's patch took 1 us.",
    );
    Ok(course.outcome)
}

struct Gaps {
    wait_us: f64,
    spacing_us: f64,
    tokens_percent: f64,
}

fn gaps(course: &mut Course<'_>, spec: &WorldSpec) -> Result<Gaps, ScenarioError> {
    let (mut dispatches, mut first_ns, mut last_ns) = (0u64, None, 0);
    let report = course.run_logged(spec, &mut |event| {
        if event.kind == EventKind::Dispatch && event.at_ns >= spec.warmup_ns {
            first_ns.get_or_insert(event.at_ns);
            last_ns = event.at_ns;
            dispatches += 1;
        }
    })?;
    let class = class_of(&report, "io")?;
    let waited_ns: u64 = class.stats.waited_ns.iter().sum();
    let tokens_ns = class.stats.waited_for_ns(WaitReason::Tokens);
    let between = dispatches.saturating_sub(1).max(1) as f64;
    Ok(Gaps {
        wait_us: class.queue.mean() / US as f64,
        spacing_us: (last_ns - first_ns.unwrap_or(0)) as f64 / between / US as f64,
        tokens_percent: tokens_ns as f64 / waited_ns.max(1) as f64 * 100.0,
    })
}
