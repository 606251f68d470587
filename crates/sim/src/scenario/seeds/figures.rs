//! The promise of four figures, and the effect of wrong ones.
//!
//! # Why
//! A scheduler delivers the rates of its properties, not those of the disk. The arithmetic must therefore reproduce the
//! configured rates, and wrong figures must be recognised by their pattern.
//!
//! # How it works
//! Costs are turned back into rates; worlds show the delivered rates; [`pattern`] judges a family of machines.
//!
//! # Limits
//! A larger machine of the family is several of the same disk, taken as one: chunks play no part.
//!
//! # Example
//! On every size 0.6 of the promise was measured: scales, but low. The same 8188 MiB/s on three sizes: flat plateau.

use plimsoll_core::math::ln;
use plimsoll_core::{ControlConfig, CostForm, CostModel, DiskConfig, Op};

use super::super::Target::{AtLeast, AtMost, Between};
use super::super::support::{Course, MS, as_one_disk, config_of, disk_of, four_figures, plain_device, preset};
use super::super::{Advance, Outcome, ScenarioError, Series, Table};
use super::plateau::{MIB, loop_of, old_defaults};
use crate::device::presets::instances;
use crate::world::{DiskMode, SimDisk};

const GIB: f64 = 1024.0 * MIB;

/// Runs 64 points with Seastar's arithmetic and ours.
pub(super) fn calculated_against_configured(seed: u64, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    let mut course = Course::of(6, advance);
    let mut table = Table::new(
        "i x 15 000 IOPS and i GiB/s, i = 1 to 64: rates computed back from costs, % off",
        &["i", "Seastar IOPS", "Seastar bandwidth", "ours IOPS", "ours bandwidth"],
    );
    let (mut worst_seastar, mut worst_ours) = (0f64, 0f64);
    for i in 1..=64u64 {
        let configured = [15_000 * i, i << 30, 15_000 * i, i << 30];
        let off = |form: CostForm| {
            let block_bytes = if form == CostForm::Seastar { 512 } else { 4096 };
            let model = CostModel::from_figures(&four_figures(configured), form, block_bytes, block_bytes);
            let cost_s = |len_bytes| model.cost(Op::Read, len_bytes).as_secs_f64();
            let iops = 1.0 / cost_s(512);
            let bandwidth = f64::from((128u32 << 10) - block_bytes) / (cost_s(128 << 10) - cost_s(block_bytes));
            let off = |found: f64, configured: u64| (found / configured as f64 - 1.0) * 100.0;
            [off(iops, 15_000 * i), off(bandwidth, i << 30)]
        };

        let (seastar, ours) = (off(CostForm::Seastar), off(CostForm::Knee));
        worst_seastar = seastar.iter().fold(worst_seastar, |worst, off| worst.max(off.abs()));
        worst_ours = ours.iter().fold(worst_ours, |worst, off| worst.max(off.abs()));

        if i.is_power_of_two() {
            let cells = seastar.into_iter().chain(ours).map(|off| format!("{off:+.3}"));
            table.row([i.to_string()].into_iter().chain(cells));
        }
    }

    course.outcome.tables.push(table);
    course.figure("Seastar's arithmetic: worst of 128 figures, % off", worst_seastar, AtMost(5.0));
    course.figure("ours: worst of 128 figures, % off", worst_ours, AtMost(0.5));
    delivered(&mut course, seed)?;
    course.remark(
        "Seastar's test allows 5 %. Its IOPS are low by the bytes of the 512 that are charged on top; ours charges a \
         block once. Above 8.x GB/s nothing changes: the plateau was one of the defaults, not of the arithmetic.",
    );
    Ok(course.outcome)
}

/// Measures the rates on a disk that could do four times its figures.
fn delivered(course: &mut Course<'_>, seed: u64) -> Result<(), ScenarioError> {
    let mut table = Table::new(
        "delivered on a disk that could do four times as much, over configured",
        &["i", "IOPS at 512 B", "bandwidth at 256 KiB (slope)"],
    );

    for i in [1u64, 8, 64] {
        let figures = four_figures([15_000 * i, i << 30, 15_000 * i, i << 30]);
        let mut rate = |len_bytes: u32| {
            let disk = SimDisk::new(plain_device(&figures, 4.0, 90e3), config_of(&figures));
            let mut spec = loop_of(seed, disk, Op::Read, 1024, len_bytes);
            (spec.warmup_ns, spec.duration_ns) = (20 * MS, 200 * MS);
            Ok::<f64, ScenarioError>(disk_of(&course.run(&spec)?)?.iops)
        };
        let iops = rate(512)? / (15_000 * i) as f64;
        // The first block costs an operation: take the slope.
        let slope_s = 1.0 / rate(256 << 10)? - 1.0 / (15_000 * i) as f64;
        let bandwidth = f64::from((256u32 << 10) - 4096) / slope_s / (i as f64 * GIB);
        course.figure(format!("i = {i}: IOPS delivered over configured"), iops, Between(0.99, 1.01));
        course.figure(format!("i = {i}: bandwidth delivered over configured"), bandwidth, Between(0.98, 1.02));
        table.row([i.to_string(), format!("{iops:.4}"), format!("{bandwidth:.4}")]);
    }

    course.outcome.tables.push(table);
    Ok(())
}

/// Runs an i7i.48xlarge with the properties of an i7i.4xlarge.
pub(super) fn understated(seed: u64, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    let mut course = Course::of(6, advance);
    let large = preset("i7i.48xlarge")?;
    let small = four_figures([583_935, 4_266_672_128, 330_688, 3_368_507_648]);
    let config = |figures, control| DiskConfig { control, unloaded_latency_ns: 90_000, ..config_of(figures) };
    let open = ControlConfig { scale_max: 16.0, ..ControlConfig::default() };

    let mut table = Table::new(
        "i7i.48xlarge with 1024 reads outstanding",
        &["request", "4xlarge can", "right properties", "those of 4xlarge", "the same, scale up to 16", "unit"],
    );
    for (len_bytes, unit) in [(4096u32, "k IOPS"), (128 << 10, "MiB/s")] {
        let mut rate = |figures, control, warmup_ns| {
            let disk = SimDisk::new(as_one_disk(&large), config(figures, control));
            let mut spec = loop_of(seed, disk, Op::Read, 1024, len_bytes);
            (spec.warmup_ns, spec.duration_ns) = (warmup_ns, 30 * MS);
            Ok::<f64, ScenarioError>(disk_of(&course.run(&spec)?)?.iops)
        };

        let promised = 1.0 / config_of(&small).model.cost(Op::Read, len_bytes).as_secs_f64();
        let right = rate(&large.figures, ControlConfig::default(), 60 * MS)?;
        let low = rate(&small, ControlConfig::default(), 20 * MS)?;
        let found = rate(&small, open, 250 * MS)?;

        let name = format!("{} KiB", len_bytes >> 10);
        let least = if len_bytes == 4096 { 4.0 } else { 2.0 };
        course.figure(format!("{name}: understated, over what a 4xlarge can"), low / promised, Between(0.97, 1.03));
        course.figure(format!("{name}: scale up to 16, over understated"), found / low, AtLeast(least));
        let value = |iops: f64| if len_bytes == 4096 { iops / 1e3 } else { iops * f64::from(len_bytes) / MIB };
        let cells = [promised, right, low, found].map(|iops| format!("{:.0}", value(iops)));
        table.row([name].into_iter().chain(cells).chain([unit.to_owned()]));
    }

    course.outcome.tables.push(table);
    course.remark(
        "Costs overestimated nine times make the machine act like one of a twelfth of its price, as the document \
         says. With scale_max above 1 (not the default) the closed loop finds that the disk does more. How far is \
         bounded by the window: at most the latency goal of work by the properties' own measure, which is a ninth of \
         that on this disk and does not cover its latency, 0.29 ms for 128 KiB.",
    );
    Ok(course.outcome)
}

/// The pattern of a measured series over a family beside the promised one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    AsPromised,
    /// Grows with the promise, well below it.
    Low,
    /// Does not grow from some size on.
    Plateau,
}

impl Pattern {
    fn words(self) -> &'static str {
        match self {
            Pattern::AsPromised => "as promised",
            Pattern::Low => "scales, but low",
            Pattern::Plateau => "flat plateau",
        }
    }
}

/// Judges (promised, measured) pairs, smallest machine first. Plateau: over the last step the measured figure grows by
/// less than a fifth of the promised growth (in logarithms). Low: some figure is below 0.9 of its promise. Otherwise as
/// promised.
fn pattern(series: &[(f64, f64)]) -> Pattern {
    let [.., (promised_before, before), (promised, measured)] = series else { return Pattern::AsPromised };
    if ln(measured / before) < 0.2 * ln(promised / promised_before) {
        Pattern::Plateau
    } else if series.iter().any(|(promised, measured)| measured / promised < 0.9) {
        Pattern::Low
    } else {
        Pattern::AsPromised
    }
}

/// A size of the i7i family, and the document's figures of it, in per cent off the specification.
struct Size {
    name: &'static str,
    disks: u32,
    /// Writes and reads as iotune measured them, with requests of 512 bytes.
    off_percent: [Option<f64>; 2],
    /// Bytes a second as iotune measured them, and as fio did, in GB/s; `None` twice: both the same.
    gb_per_s: [Option<f64>; 2],
}

/// 650 k of 990 k writes on the 12xlarge are 34 % less.
const FAMILY: [Size; 6] = [
    Size { name: "4xlarge", disks: 1, off_percent: [Some(-25.0), Some(0.0)], gb_per_s: [None, None] },
    Size { name: "8xlarge", disks: 2, off_percent: [None, None], gb_per_s: [None, None] },
    Size { name: "12xlarge", disks: 3, off_percent: [Some(-34.0), None], gb_per_s: [Some(8.5), Some(9.6)] },
    Size { name: "16xlarge", disks: 4, off_percent: [None, None], gb_per_s: [Some(8.5), None] },
    Size { name: "24xlarge", disks: 6, off_percent: [None, None], gb_per_s: [Some(8.5), None] },
    Size { name: "48xlarge", disks: 12, off_percent: [Some(-42.0), Some(-25.0)], gb_per_s: [Some(8.5), Some(40.0)] },
];

/// Part of the small writes that is left when each has to read its block first: the 4xlarge's.
const REWRITTEN: f64 = 0.75;
/// Part of the operations below a block that the 48xlarge loses by its size, as its reads show.
const LOST_BY_SIZE: f64 = 0.25;

/// The loads of the comparison: writes and reads of 512 bytes, writes of a block, long writes.
const LOADS: [(Op, u32); 4] = [(Op::Write, 512), (Op::Read, 512), (Op::Write, 4096), (Op::Write, 1 << 20)];
const LOAD_NAMES: [&str; 4] = ["512 B writes", "512 B reads", "4 KiB writes", "1 MiB writes"];

/// Runs the i7i family under old defaults, and without any.
pub(super) fn two_problems(seed: u64, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    use Pattern::{AsPromised, Low, Plateau};
    let mut course = Course::of(96, advance);
    for (build, config, expected) in [
        ("old defaults", old_defaults(), [Low, Low, Plateau, Plateau]),
        ("ours, unlimited", DiskConfig::default(), [Low, Low, AsPromised, AsPromised]),
    ] {
        let mut operations = Table::new(
            format!("i7i, {build}: operations, k/s, and their distance from the specification, %"),
            &["size", "512 B writes", "off", "published", "512 B reads", "off", "published", "4 KiB writes", "drained"],
        );
        let mut bandwidth = Table::new(
            format!("i7i, {build}: writes of 1 MiB, GB/s"),
            &["size", "measured", "published", "drained, as fio", "published, fio"],
        );
        let mut series = LOADS.map(|_| Vec::new());
        for size in &FAMILY {
            let mut points = Vec::new();
            for (series, (op, len_bytes)) in series.iter_mut().zip(LOADS) {
                let point = measure(&mut course, seed, size.disks, &config, op, len_bytes)?;
                series.push((point.promised, point.measured));
                points.push(point);
            }
            let [writes, reads, blocks, long] = points.as_slice() else { continue };
            let published = |percent: Option<f64>| percent.map_or_else(String::new, |off| format!("{off:+.0}"));
            let mut cells = vec![size.name.to_owned()];
            for (point, percent, name) in
                [(writes, size.off_percent[0], "writes"), (reads, size.off_percent[1], "reads")]
            {
                let off = (point.measured / point.promised - 1.0) * 100.0;
                cells.extend([format!("{:.0}", point.measured / 1e3), format!("{off:+.0}"), published(percent)]);
                if let Some(percent) = percent {
                    let figure = format!("{build}, {}, 512 B {name}: points off the published difference", size.name);
                    course.figure(figure, off - percent, Between(-3.0, 3.0));
                }
            }
            cells.extend([blocks.measured, blocks.drained].map(|per_s| format!("{:.0}", per_s / 1e3)));
            operations.row(cells);

            let gb = |gb_per_s: f64| format!("{gb_per_s:.1}");
            let [iotune, fio] = size.gb_per_s.map(|found| found.map_or_else(String::new, gb));
            bandwidth.row([size.name.to_owned(), gb(long.measured / 1e9), iotune, gb(long.drained / 1e9), fio]);
        }

        for (at, (points, expected)) in series.iter().zip(expected).enumerate() {
            let name = format!("{build}, {}: the verdict is '{}'", LOAD_NAMES[at], expected.words());
            course.figure(name, f64::from(u8::from(pattern(points) == expected)), AtLeast(1.0));
        }
        course.outcome.tables.extend([operations, bandwidth]);
        let curve = |of: fn(&(f64, f64)) -> f64| {
            FAMILY.iter().zip(&series[3]).map(|(size, point)| (f64::from(size.disks), of(point) / 1e9)).collect()
        };
        course.outcome.series.push(Series {
            title: format!("writes of 1 MiB over the i7i family, {build}"),
            x: "disks".into(),
            y: "GB/s".into(),
            curves: vec![("measured".into(), curve(|point| point.1)), ("specified".into(), curve(|point| point.0))],
        });
    }
    course.remark(
        "The document found 512 bytes as the block of a disk that works in 4096. Two numbers of its five are taken for \
         the model: the 4xlarge's writes (25 % are lost to the reading of blocks) and the 48xlarge's reads (25 % are lost \
         to the size of the machine, here in proportion to its logarithm). The other three follow: -33 % for 650 k on the \
         12xlarge, -44 % for 42 % on the 48xlarge. Why size costs operations the document does not say.",
    );
    course.remark(
        "With 4 KiB the operations are as promised up to the 16xlarge and stand at 1.86 M from there on: the same \
         defaults, so that a cure for one problem uncovers the other. Bandwidth stands at 8.59 GB/s, where drained it \
         reaches what fio did.",
    );
    Ok(course.outcome)
}

/// One load on one size: operations a second, or bytes with long requests.
#[derive(Clone, Copy)]
struct Found {
    promised: f64,
    measured: f64,
    /// With nothing held back, as with fio.
    drained: f64,
}

fn measure(
    course: &mut Course<'_>,
    seed: u64,
    disks: u32,
    config: &DiskConfig,
    op: Op,
    len_bytes: u32,
) -> Result<Found, ScenarioError> {
    let mut family = preset("i7i.12xlarge")?;
    family.spec.raid0.members = disks;
    let mut device = as_one_disk(&family);
    // Rates are those of the steady state: no buffer to fill first. They contain the cost of short writes, too.
    (device.buffer.size_bytes, device.rates.rewrite_block_bytes) = (0, 0);
    // As specified for each disk; the preset has the measured figures.
    let one = instances().iter().find(|row| row.name == "i7i.4xlarge").and_then(|row| row.advertised_iops);
    let one = one.ok_or_else(|| ScenarioError("no specification of i7i.4xlarge".into()))?;
    let [read_iops, write_iops] = one.map(|iops| (iops * u64::from(disks)) as f64);
    (device.rates.read_iops, device.rates.write_iops) = (read_iops, write_iops);

    let is_long = len_bytes > 4096;
    let promised = match op {
        _ if is_long => device.rates.write_bytes_per_s,
        Op::Read => read_iops,
        _ => write_iops,
    };
    if len_bytes < 4096 {
        let left = 1.0 - LOST_BY_SIZE * ln(f64::from(disks)) / ln(12.0);
        device.rates.read_iops *= left;
        device.rates.write_iops *= left * REWRITTEN;
    }

    let mut rate = |mode| {
        let disk = SimDisk { mode, ..SimDisk::new(device.clone(), config.clone()) };
        let mut spec = loop_of(seed, disk, op, 768, len_bytes);
        (spec.warmup_ns, spec.duration_ns) = if is_long { (20 * MS, 100 * MS) } else { (2 * MS, 10 * MS) };
        let disk = *disk_of(&course.run(&spec)?)?;
        Ok::<f64, ScenarioError>(if is_long { disk.bytes_per_s } else { disk.iops })
    };
    Ok(Found { promised, measured: rate(DiskMode::Scheduled)?, drained: rate(DiskMode::Drain)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let promised = [1.0, 2.0, 4.0];
        for (measured, expected) in [
            ([1.0, 2.0, 3.9], Pattern::AsPromised),
            ([0.6, 1.2, 2.4], Pattern::Low),
            ([1.0, 1.5, 1.51], Pattern::Plateau),
        ] {
            let series: Vec<_> = promised.into_iter().zip(measured).collect();
            assert_eq!(pattern(&series), expected, "{measured:?}");
        }
    }
}
