//! Network volumes, where every request takes a millisecond or two.
//!
//! # Why
//! By Little's law such a disk needs rate x latency in flight. A latency goal of 0.75 ms, made for disks in the
//! machine, would leave one request in it and three quarters of its throughput unused.
//!
//! # How it works
//! One class with 16 requests outstanding a shard, default settings, and the volume's four figures. The throughput is
//! compared with that of the volume without a scheduler, or with the promise of the figures at that length if that is
//! less: tokens are issued by the figures, and each piece of a request pays for itself.
//!
//! Then short requests beside long ones, two classes of equal shares. A volume limits operations and bytes apart, and
//! the figure is the used part of the limit that is used most. The form `max` has tokens of both; in `knee` one sum of
//! costs reaches neither.
//!
//! # Limits
//! The knee of four figures promises a gp3 volume of 3000 operations and 250 MB/s just 0.62 of its bandwidth at 128
//! KiB. `tune` finds out that a volume has two limits, and writes `model: max`; the presets of volumes have it.
//!
//! # Example
//! 250 MB/s in requests of 128 KiB, each 2 ms in flight: four must be in flight.

use plimsoll_core::{CostForm, CostModel, Disk, DiskConfig, Op};

use super::super::Target::{AtLeast, AtMost};
use super::super::support::{Course, MS, S, class_of, disk_of, reads, share_error_percent, world_of};
use super::super::{Advance, Outcome, ScenarioError, Table};
use crate::device::DeviceSpec;
use crate::device::presets::{Preset, Provision, volumes};
use crate::workload::JobSpec;
use crate::world::{DiskMode, ShardSpec, SimDisk};

const GIB: u64 = 1 << 30;

/// Returns the volumes as a customer would order them.
fn ordered() -> Result<Vec<Preset>, ScenarioError> {
    let orders = [
        ("gp3", 50 * GIB, 3_000, 250_000_000),
        ("gp3", 1024 * GIB, 16_000, 1_000_000_000),
        ("gp3", 1024 * GIB, 16_000, 250_000_000),
    ];
    let order = |(name, size_bytes, iops, bytes_per_s): (&str, u64, u64, u64)| {
        let volume = volumes().iter().find(|volume| volume.name == name);
        let volume = volume.ok_or_else(|| ScenarioError(format!("no volume is called {name}")))?;
        let ask =
            Provision { size_bytes: Some(size_bytes), iops: Some(iops), bandwidth_bytes_per_s: Some(bytes_per_s) };
        let mut preset = volume.provision(&ask).map_err(|error| ScenarioError(error.to_string()))?;
        preset.name = format!("{name}, {iops} IOPS, {} MB/s", bytes_per_s / 1_000_000);
        Ok(preset)
    };
    orders.into_iter().map(order).collect()
}

/// One class with 16 requests outstanding on each shard.
pub(super) struct Alone<'a> {
    pub(super) seed: u64,
    pub(super) device: &'a DeviceSpec,
    pub(super) config: &'a DiskConfig,
    pub(super) op: Op,
    pub(super) len_bytes: u32,
    pub(super) shards: usize,
    /// Warm-up and duration.
    pub(super) times_ns: [u64; 2],
}

/// Bytes a second of [`Alone`], and its mean number in the device.
pub(super) struct Found {
    pub(super) drained: f64,
    pub(super) promised: f64,
    pub(super) scheduled: f64,
    pub(super) in_device: f64,
    /// Part of the lesser of drained and promised.
    pub(super) part: f64,
}

impl Alone<'_> {
    /// Runs it with nothing held back and scheduled.
    pub(super) fn measure(&self, course: &mut Course<'_>) -> Result<Found, ScenarioError> {
        let promised = promised_bytes_per_s(self.config, self.op, self.len_bytes);
        let (drained, _) = self.run(course, DiskMode::Drain)?;
        let (scheduled, in_device) = self.run(course, DiskMode::Scheduled)?;
        Ok(Found { drained, promised, scheduled, in_device, part: scheduled / drained.min(promised) })
    }

    fn run(&self, course: &mut Course<'_>, mode: DiskMode) -> Result<(f64, f64), ScenarioError> {
        let disk = SimDisk { mode, ..SimDisk::new(self.device.clone(), self.config.clone()) };
        let job = JobSpec { op: self.op, ..reads("all", 16, self.len_bytes) };
        let mut spec = world_of(self.seed, disk, &[("all", 100)], vec![job]);
        spec.shards = vec![ShardSpec::default(); self.shards];
        [spec.warmup_ns, spec.duration_ns] = self.times_ns;
        let report = course.run(&spec)?;
        let disk = disk_of(&report)?;
        Ok((disk.bytes_per_s, disk.mean_in_device))
    }
}

/// Runs all volumes, lengths and directions with one shard and with sixteen.
pub(super) fn far_disks(seed: u64, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    let mut course = Course::of(168, advance);
    let mut table = Table::new(
        "16 outstanding a shard, default settings",
        &["volume", "form", "request", "shards", "MB/s", "drained", "promised", "of the lesser", "in device"],
    );
    let mut least = f64::MAX;
    for preset in ordered()? {
        let forms = [CostForm::Knee, CostForm::Max].into_iter();
        for (form, (len_bytes, op, shards)) in forms.flat_map(|form| cases().map(move |case| (form, case))) {
            let model = CostModel::from_figures(&preset.figures, form, 4096, 4096);
            let config = DiskConfig { model, ..DiskConfig::default() };
            let times_ns = [500 * MS, 2 * S];
            let alone = Alone { seed, device: &preset.spec, config: &config, op, len_bytes, shards, times_ns };
            let Found { drained, promised, scheduled, in_device, part } = alone.measure(&mut course)?;
            least = least.min(part);
            table.row([
                preset.name.clone(),
                form.to_string(),
                format!("{op:?} {} KiB", len_bytes >> 10),
                shards.to_string(),
                format!("{:.1}", scheduled / 1e6),
                format!("{:.1}", drained / 1e6),
                format!("{:.1}", promised / 1e6),
                format!("{part:.2}"),
                format!("{in_device:.1}"),
            ]);
        }
    }
    course.outcome.tables.push(table);
    course.figure("least throughput over the lesser of drained and promised", least, AtLeast(0.90));
    short_beside_long(seed, &mut course)?;
    course.remark("With a bound of the latency goal alone, which knew nothing of the latency, the least was 0.21.");
    Ok(course.outcome)
}

/// Runs reads of 4 KiB beside reads and writes of 128 KiB on each volume, with one budget and with two.
fn short_beside_long(seed: u64, course: &mut Course<'_>) -> Result<(), ScenarioError> {
    let mut table = Table::new(
        "4 KiB reads beside 128 KiB, equal shares, 32 outstanding each: parts of what the volume sells",
        &["volume", "form", "128 KiB", "shards", "operations", "bytes", "share error"],
    );
    let (mut least, mut largest_error) = (f64::MAX, 0.0_f64);
    for preset in ordered()? {
        let most = |rate: plimsoll_core::Rate| rate.get().map_or(f64::INFINITY, |per_s| per_s as f64);
        for (form, op, shards) in [CostForm::Knee, CostForm::Max].into_iter().flat_map(|form| {
            [Op::Read, Op::Write].into_iter().flat_map(move |op| [1, 4].into_iter().map(move |n| (form, op, n)))
        }) {
            let model = CostModel::from_figures(&preset.figures, form, 4096, 4096);
            let disk = SimDisk::new(preset.spec.clone(), DiskConfig { model, ..DiskConfig::default() });
            let mut long = reads("long", 32 / shards, 128 << 10);
            long.op = op;
            let jobs = vec![reads("short", 32 / shards, 4096), long];
            let mut spec = world_of(seed, disk, &[("short", 100), ("long", 100)], jobs);
            spec.shards = vec![ShardSpec::default(); shards as usize];
            (spec.warmup_ns, spec.duration_ns) = (500 * MS, 4 * S);

            let report = course.run(&spec)?;
            let classes = [class_of(&report, "short")?, class_of(&report, "long")?];
            let operations = classes.iter().map(|class| class.iops).sum::<f64>() / most(preset.figures.read_iops);
            let bytes =
                classes.iter().map(|class| class.bytes_per_s).sum::<f64>() / most(preset.figures.read_bandwidth);
            let error = share_error_percent(&classes.map(|class| class.device_time_ns as f64), &[100, 100]);
            if form == CostForm::Max {
                (least, largest_error) = (least.min(operations.max(bytes)), largest_error.max(error));
            }
            table.row([
                preset.name.clone(),
                form.to_string(),
                format!("{op:?}"),
                shards.to_string(),
                format!("{operations:.2}"),
                format!("{bytes:.2}"),
                format!("{error:.2} %"),
            ]);
        }
    }
    course.outcome.tables.push(table);
    course.figure("short beside long, two limits: least part of the limit used most", least, AtLeast(0.95));
    course.figure("short beside long, two limits: share error, %", largest_error, AtMost(1.0));
    Ok(())
}

/// Returns the bandwidth that the figures promise for requests of `len_bytes`: each of their pieces pays for itself, at
/// the limit of operations and at that of bytes if these are apart.
fn promised_bytes_per_s(config: &DiskConfig, op: Op, len_bytes: u32) -> f64 {
    let model = &config.model;
    let piece_bytes = Disk::new(config.clone()).piece_max_bytes(op.direction());
    let parts_s = [0, 1].map(|limit: usize| {
        let part_s = |bytes: u32| match bytes {
            0 => 0.0,
            _ => model.parts(op, bytes)[limit].as_secs_f64(),
        };
        f64::from(len_bytes / piece_bytes) * part_s(piece_bytes) + part_s(len_bytes % piece_bytes)
    });
    f64::from(len_bytes) / parts_s[0].max(parts_s[1])
}

pub(super) fn cases() -> impl Iterator<Item = (u32, Op, usize)> {
    [4096, 128 << 10, 1 << 20].into_iter().flat_map(|len_bytes| {
        [Op::Read, Op::Write]
            .into_iter()
            .flat_map(move |op| [1, 16].into_iter().map(move |shards| (len_bytes, op, shards)))
    })
}
