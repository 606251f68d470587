//! Disks that change while they work.
//!
//! # Why
//! A disk gets slower when it is full, hot, or out of credit, and fast again later. The queue must not form in the
//! disk, and regained capacity must be used.
//!
//! # How it works
//! Samples every 10 ms show the queue in the device and the rate. *Contained*: the queue is below twice the knee of the
//! slow disk plus four requests. The knee is the smallest of a series of fixed windows with 95 % of the drained rate.
//!
//! # Limits
//! Pauses and credits of real devices last minutes and hours; here they are proportionally shorter.
//!
//! # Example
//! 16 requests fill the disk; at a quarter of its capacity 4 do: contained means 12 or fewer.

use plimsoll_core::{CostForm, CostModel, DiskConfig, LatencyGoal, Op};

use super::super::Target::{AtLeast, AtMost, Between};
use super::super::support::{
    Course, MS, S, config_of, disk_of, four_figures, mean_and_deviation_percent, plain_device,
};
use super::super::support::{preset, reads, share_error_percent, world_of};
use super::super::{Advance, Outcome, ScenarioError, Series, Table};
use crate::device::{BufferSpec, ChannelSpec, DeviceSpec};
use crate::report::Sample;
use crate::workload::JobSpec;
use crate::world::{DiskMode, SimDisk, WorldSpec};

const FALL_NS: u64 = 2 * S;
const RETURN_NS: u64 = 4 * S;
const END_NS: u64 = 6 * S;
const BIN_NS: u64 = 10 * MS;

/// Returns two classes, 3:1, with 64 requests outstanding each.
fn two_classes(seed: u64, disk: SimDisk, op: Op, len_bytes: u32) -> WorldSpec {
    let job = |name: &str| JobSpec { op, ..reads(name, 64, len_bytes) };
    let mut spec = world_of(seed, disk, &[("a", 300), ("b", 100)], vec![job("a"), job("b")]);
    (spec.warmup_ns, spec.sample_ns) = (0, BIN_NS);
    spec
}

/// The first disk in one sample.
#[derive(Clone, Copy, Debug)]
struct Bin {
    at_ns: u64,
    requests: f64,
    /// Requests by class.
    parts: [f64; 2],
    in_device: f64,
    scale: f64,
}

fn bin_of(sample: &Sample) -> Bin {
    let part = |at: usize| sample.classes.get(at).map_or(0.0, |class| class.requests as f64);
    let disk = sample.disks.first().copied().unwrap_or_default();
    let (parts, scale) = ([part(0), part(1)], disk.capacity_scale);
    Bin { at_ns: sample.at_ns, requests: parts[0] + parts[1], parts, in_device: disk.mean_in_device, scale }
}

fn run(course: &mut Course<'_>, spec: &WorldSpec) -> Result<Vec<Bin>, ScenarioError> {
    let mut bins = Vec::new();
    course.run_observed(spec, &mut |sample| bins.push(bin_of(sample)))?;
    Ok(bins)
}

/// Returns the bins that end in (from, until].
fn within(bins: &[Bin], from_ns: u64, until_ns: u64) -> impl Iterator<Item = &Bin> {
    bins.iter().filter(move |bin| bin.at_ns > from_ns && bin.at_ns <= until_ns)
}

/// Returns the requests per second in (from, until].
fn rate(bins: &[Bin], from_ns: u64, until_ns: u64) -> f64 {
    within(bins, from_ns, until_ns).map(|bin| bin.requests).sum::<f64>() / ((until_ns - from_ns) as f64 / S as f64)
}

fn share_error(bins: &[Bin], from_ns: u64, until_ns: u64) -> f64 {
    let sum =
        |at: usize| within(bins, from_ns, until_ns).map(|bin| bin.parts.get(at).copied().unwrap_or(0.0)).sum::<f64>();
    share_error_percent(&[sum(0), sum(1)], &[300, 100])
}

/// Returns the deviation of the rates over 100 ms, in per cent.
fn oscillation_percent(bins: &[Bin], from_ns: u64, until_ns: u64) -> f64 {
    let count = (until_ns - from_ns) / (100 * MS);
    let rates: Vec<f64> =
        (0..count).map(|i| rate(bins, from_ns + i * 100 * MS, from_ns + (i + 1) * 100 * MS)).collect();
    mean_and_deviation_percent(&rates).1
}

/// Returns the drained rate of a device, and the requests in it at its knee.
fn knee(
    course: &mut Course<'_>,
    seed: u64,
    device: &DeviceSpec,
    config: &DiskConfig,
    len_bytes: u32,
) -> Result<(f64, f64), ScenarioError> {
    let mut measure = |mode, window_ns| {
        let disk = SimDisk { mode, ..SimDisk::new(device.clone(), DiskConfig { window_ns, ..config.clone() }) };
        let mut spec = two_classes(seed, disk, Op::Read, len_bytes);
        (spec.warmup_ns, spec.duration_ns) = (50 * MS, 150 * MS);
        let report = course.run(&spec)?;
        let disk = disk_of(&report)?;
        Ok::<(f64, f64), ScenarioError>((disk.iops, disk.mean_in_device))
    };

    let (drained, _) = measure(DiskMode::Drain, None)?;
    let mut window_ns = config.model.cost(Op::Read, len_bytes).as_ns_ceil() as f64;
    loop {
        let (iops, in_device) = measure(DiskMode::Scheduled, Some(window_ns as u64))?;
        if iops >= 0.95 * drained || window_ns > 2e6 {
            return Ok((drained, in_device));
        }
        window_ns *= 1.25;
    }
}

/// Lets capacity fall and return, on a sharp knee and on independent channels, with small and long requests.
pub(super) fn capacity_falls(seed: u64, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    let mut course = Course::of(82, advance);
    let mut table = Table::new(
        "capacity falls to 0.25 after 2 s and returns after 4 s",
        &["device", "request", "limit", "contained, ms", "of slow, %", "90 % back, ms", "rms, %", "after stall, %"],
    );
    let figures = four_figures([200_000, 4_000_000_000, 200_000, 4_000_000_000]);
    for (name, independent, len_bytes) in
        [("sharp", false, 4096u32), ("sharp", false, 64 << 10), ("channels", true, 4096)]
    {
        let mut device = plain_device(&figures, 1.0, 80e3);
        device.channels = ChannelSpec { independent, count: Some(8), stripe_bytes: 64 << 10 };
        let config = DiskConfig { unloaded_latency_ns: 80_000, ..config_of(&figures) };
        let mut slow = device.clone();
        slow.weather.capacity_steps = vec![(0, 0.25)];
        let (drained, _) = knee(&mut course, seed, &device, &config, len_bytes)?;
        let (drained_slow, knee_slow) = knee(&mut course, seed, &slow, &config, len_bytes)?;
        let limit = 2.0 * knee_slow + 4.0;

        let mut falling = device.clone();
        falling.weather.capacity_steps = vec![(0, 1.0), (FALL_NS, 0.25), (RETURN_NS, 1.0)];
        let mut spec = two_classes(seed, SimDisk::new(falling, config.clone()), Op::Read, len_bytes);
        spec.duration_ns = END_NS;
        let bins = run(&mut course, &spec)?;
        let contained_ns = contained_ns(&bins, limit);
        let allowed_ns = (50 * MS).max((64.0 / drained_slow * S as f64) as u64);
        let slow_part = rate(&bins, FALL_NS + 500 * MS, RETURN_NS) / drained_slow;
        let back_ns = back_ns(&bins, drained);
        let oscillation = oscillation_percent(&bins, S, FALL_NS).max(oscillation_percent(&bins, RETURN_NS + S, END_NS));
        let stalled = after_stall(&mut course, seed, &device, &config, len_bytes)? / drained;

        let title = format!("{name}, {} KiB", len_bytes >> 10);
        let least = if independent { 0.8 } else { 0.95 };
        course.figure(
            format!("{title}: contained after, ms"),
            contained_ns as f64 / 1e6,
            AtMost(allowed_ns as f64 / 1e6),
        );
        course.figure(format!("{title}: part of the slow disk used"), slow_part, AtLeast(least));
        course.figure(format!("{title}: 90 % used again after, ms"), back_ns as f64 / 1e6, AtMost(500.0));
        course.figure(format!("{title}: oscillation, rms of 100 ms rates, %"), oscillation, AtMost(3.0));
        course.figure(format!("{title}: part of the disk used in the 100 ms after a stall"), stalled, AtLeast(0.9));
        let error = share_error(&bins, FALL_NS + 500 * MS, RETURN_NS).max(share_error(&bins, S, FALL_NS));
        course.figure(format!("{title}: share error, %"), error, AtMost(3.0));
        table.row([
            name.to_owned(),
            format!("{} KiB", len_bytes >> 10),
            format!("{limit:.1}"),
            (contained_ns / MS).to_string(),
            format!("{:.1}", slow_part * 100.0),
            (back_ns / MS).to_string(),
            format!("{oscillation:.2}"),
            format!("{:.1}", stalled * 100.0),
        ]);
        if len_bytes == 4096 && !independent {
            course.outcome.series.extend(curves(&bins));
        }
    }
    course.outcome.tables.push(table);
    course.remark(
        "On independent channels the window rests where another per cent of queue gives a tenth of a per cent of \
         rate; that is below 95 % of the drained rate, by design.",
    );
    Ok(course.outcome)
}

/// Returns the time from the fall to the end of the last bin before the return with more than `limit` in the device.
fn contained_ns(bins: &[Bin], limit: f64) -> u64 {
    let above = within(bins, FALL_NS, RETURN_NS).filter(|bin| bin.in_device > limit).map(|bin| bin.at_ns - FALL_NS);
    above.max().unwrap_or(0)
}

/// Returns the time from the return to the beginning of the first 100 ms with 90 % of the drained rate.
fn back_ns(bins: &[Bin], drained: f64) -> u64 {
    let starts = (0..(END_NS - RETURN_NS) / BIN_NS - 10).map(|i| i * BIN_NS);
    let mut used = starts.filter(|start| rate(bins, RETURN_NS + start, RETURN_NS + start + 100 * MS) >= 0.9 * drained);
    used.next().unwrap_or(END_NS - RETURN_NS)
}

/// Returns the requests per second in the 100 ms after a stall of 100 ms.
fn after_stall(
    course: &mut Course<'_>,
    seed: u64,
    device: &DeviceSpec,
    config: &DiskConfig,
    len_bytes: u32,
) -> Result<f64, ScenarioError> {
    let mut device = device.clone();
    device.weather.stalls = vec![(S, 100 * MS)];
    let mut spec = two_classes(seed, SimDisk::new(device, config.clone()), Op::Read, len_bytes);
    spec.duration_ns = 1_500 * MS;
    let bins = run(course, &spec)?;
    Ok(rate(&bins, S + 110 * MS, S + 210 * MS))
}

fn curves(bins: &[Bin]) -> [Series; 2] {
    let points = |y: &dyn Fn(&Bin) -> f64| bins.iter().map(|bin| (bin.at_ns as f64 / S as f64, y(bin))).collect();
    let rates = points(&|bin| bin.requests * (S / BIN_NS) as f64 / 1e3);
    let series = |title: &str, y: &str, curve| Series {
        title: title.into(),
        x: "s".into(),
        y: y.into(),
        curves: vec![("4 KiB, sharp knee".into(), curve)],
    };

    [
        series("rate while capacity falls and returns", "k requests/s", rates),
        series("queue in the device while capacity falls and returns", "requests", points(&|bin| bin.in_device)),
    ]
}

/// Fills a buffer of 1 GB in front of 1 GB/s.
pub(super) fn write_cliff(seed: u64, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    let mut course = Course::of(1, advance);
    let burst = four_figures([732_421, 3_000_000_000, 732_421, 3_000_000_000]);
    let mut device = plain_device(&four_figures([732_421, 3_000_000_000, 244_140, 1_000_000_000]), 1.0, 80e3);
    device.latency.write_ns = 25e3;
    device.buffer = BufferSpec { size_bytes: 1_000_000_000, burst_bytes_per_s: 3e9, flush_drains: false };
    let config = DiskConfig { unloaded_latency_ns: 80_000, ..config_of(&burst) };
    let mut spec = two_classes(seed, SimDisk::new(device, config), Op::Write, 64 << 10);
    spec.duration_ns = 3 * S;
    let bins = run(&mut course, &spec)?;

    let mut table = Table::new(
        "64 KiB writes; the properties are those of the burst, 3 GB/s",
        &["time, s", "GB/s", "in device", "scale"],
    );
    let gb = |from_ns, until_ns| rate(&bins, from_ns, until_ns) * 65_536.0 / 1e9;
    for at_ns in [200, 400, 600, 800, 1000, 2000, 3000].map(|ms| ms * MS) {
        let Some(bin) = within(&bins, at_ns - BIN_NS, at_ns).next() else { continue };
        let bandwidth = gb(at_ns - 100 * MS, at_ns);
        table.row([
            format!("{:.1}", at_ns as f64 / S as f64),
            format!("{bandwidth:.2}"),
            format!("{:.1}", bin.in_device),
            format!("{:.2}", bin.scale),
        ]);
    }
    course.outcome.tables.push(table);

    let queue = within(&bins, S, 3 * S).map(|bin| bin.in_device).fold(0.0, f64::max);
    let scale = bins.last().map_or(f64::NAN, |bin| bin.scale);
    course.figure("before the cliff, GB/s", gb(100 * MS, 400 * MS), AtLeast(2.85));
    course.figure("behind it, GB/s", gb(S, 3 * S), AtLeast(0.95));
    course.figure("behind it: most requests in the device (10 ms)", queue, AtMost(12.0));
    course.figure("behind it: capacity scale", scale, Between(0.3, 0.45));
    course.figure("behind it: share error, %", share_error(&bins, S, 3 * S), AtMost(3.0));
    course.remark("The cliff comes when 1 GB of difference has gathered: after 0.5 s at 3 against 1 GB/s.");
    Ok(course.outcome)
}

/// Writes to a full 983 DCT, with its sustained properties and with those of a fresh one.
pub(super) fn garbage_collection(seed: u64, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    let mut course = Course::of(3, advance);
    let preset = preset("983-dct")?;
    let mut table = Table::new(
        "Samsung 983 DCT, full: random writes of 4 KiB, two classes 3:1, pauses of 5 ms five times a second",
        &["properties", "k writes/s", "published", "share error, %", "scale", "mean in device"],
    );

    let mut device = preset.spec.clone();
    (device.flash.pause_mean_ns, device.flash.pause_period_ns) = (5e6, 200e6);
    let drain = SimDisk { mode: DiskMode::Drain, ..SimDisk::new(device.clone(), config_of(&preset.figures)) };
    let mut spec = two_classes(seed, drain, Op::Write, 4096);
    (spec.warmup_ns, spec.duration_ns) = (S, 4 * S);
    for job in &mut spec.jobs {
        job.region.len_bytes = device.capacity_bytes;
    }
    let drained = disk_of(&course.run(&spec)?)?.iops;

    let fresh = four_figures([540_000, 3_000_000_000, 390_000, 1_900_000_000]);
    for (name, figures, scale) in
        [("sustained", &preset.figures, AtLeast(0.8)), ("fresh disk", &fresh, Between(0.08, 0.25))]
    {
        let config = DiskConfig { unloaded_latency_ns: preset.unloaded_latency_ns, ..config_of(figures) };
        spec.disks = vec![SimDisk::new(device.clone(), config)];
        let bins = run(&mut course, &spec)?;
        let (from_ns, until_ns) = (S, 5 * S);
        let writes = rate(&bins, from_ns, until_ns);
        let error = share_error(&bins, from_ns, until_ns);
        // Behind each pause it doubles for some periods, so its last value may be one of those.
        let mut scales: Vec<f64> = within(&bins, from_ns, until_ns).map(|bin| bin.scale).collect();
        scales.sort_by(f64::total_cmp);
        let median = scales.get(scales.len() / 2).copied().unwrap_or(f64::NAN);
        let count = scales.len().max(1) as f64;
        let mean = within(&bins, from_ns, until_ns).map(|bin| bin.in_device).sum::<f64>() / count;
        course.figure(format!("{name}: writes over drained"), writes / drained, AtLeast(0.92));
        course.figure(format!("{name}: share error, %"), error, AtMost(3.0));
        course.figure(format!("{name}: capacity scale, median"), median, scale);
        let scale = format!("{median:.2}");
        let rate = format!("{:.1}", writes / 1e3);
        table.row([name.to_owned(), rate, "52".into(), format!("{error:.2}"), scale, format!("{mean:.1}")]);
    }

    course.outcome.tables.push(table);
    course.remark(
        "7 % of spare space: each write costs 7.8. The document's 52 k is the data sheet's; the model has 50 k, less \
         pauses.",
    );
    Ok(course.outcome)
}

/// Uses up a hundredth of gp2's credits.
pub(super) fn burst_credits(seed: u64, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    let mut course = Course::of(1, advance);
    let preset = preset("gp2")?;
    let mut device = preset.spec.clone();
    for cap in &mut device.caps {
        cap.credits /= 100.0;
    }
    // Operations and bytes are capped separately.
    let model = CostModel::from_figures(&preset.burst.unwrap_or(preset.figures), CostForm::Max, 4096, 4096);
    // The default is 1.5 times the unloaded latency: three requests, 89 % of the volume.
    let latency_goal = LatencyGoal::Ns(4 * MS);
    let unloaded_latency_ns = preset.unloaded_latency_ns;
    let config = DiskConfig { model, latency_goal, unloaded_latency_ns, ..DiskConfig::default() };
    let mut spec = two_classes(seed, SimDisk::new(device, config), Op::Read, 16 << 10);
    (spec.duration_ns, spec.sample_ns) = (40 * S, 100 * MS);
    let bins = run(&mut course, &spec)?;

    let mut table = Table::new(
        "gp2 of 100 GiB, 54 000 credits: 3000 reads a second, then 300",
        &["time, s", "reads/s", "share error, %", "in device", "scale"],
    );
    for (from_s, until_s) in [(1, 5), (5, 10), (10, 19), (24, 32), (32, 40)] {
        let (from_ns, until_ns) = (from_s * S, until_s * S);
        let count = within(&bins, from_ns, until_ns).count().max(1) as f64;
        let mean = within(&bins, from_ns, until_ns).map(|bin| bin.in_device).sum::<f64>() / count;
        let scale = within(&bins, from_ns, until_ns).last().map_or(f64::NAN, |bin| bin.scale);
        table.row([
            format!("{from_s}-{until_s}"),
            format!("{:.0}", rate(&bins, from_ns, until_ns)),
            format!("{:.2}", share_error(&bins, from_ns, until_ns)),
            format!("{mean:.1}"),
            format!("{scale:.2}"),
        ]);
    }
    course.outcome.tables.push(table);

    let queue = within(&bins, 24 * S, 40 * S).map(|bin| bin.in_device).fold(0.0, f64::max);
    course.figure("with credits, reads/s", rate(&bins, S, 19 * S), AtLeast(0.95 * 3000.0));
    course.figure("without, reads/s", rate(&bins, 24 * S, 40 * S), Between(0.95 * 300.0, 1.02 * 300.0));
    course.figure("with credits: share error, %", share_error(&bins, S, 19 * S), AtMost(3.0));
    course.figure("without: share error, %", share_error(&bins, 24 * S, 40 * S), AtMost(3.0));
    course.figure("without: most in the device (100 ms)", queue, AtMost(12.0));
    course.remark(
        "The real volume starts with 5.4 million credits, which last 2000 s; here a hundredth, 20 s. The latency \
         goal is 4 ms: by the default, three requests may be in the volume, which is below its knee and gives 89 %.",
    );
    Ok(course.outcome)
}
