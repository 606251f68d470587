//! A disk that slows as it fills, and recovers by discarding.
//!
//! # Why
//! An i3en.24xlarge wrote 8 GB/s until it was three quarters full, and 5 GB/s beyond.
//!
//! # How it works
//! A database with many files writes all over the disk, 1 MiB at a time, until the disk is nearly full; then half of it
//! is discarded, and the database writes on. The disk's own garbage collection slows it: a full disk moves old data for
//! each new block. The scheduler is configured for the fresh disk once and must follow.
//!
//! # Limits
//! 60 TB take two hours at 8 GB/s. The disk here has a thousandth of the capacity, so an hour is 3.6 seconds. Its spare
//! space is not published; 28 % is usual for disks that are written to all day. All data is equally cold.
//!
//! # Example
//! 80 % full with 28 % of spare space: 0.8 / 1.28 of the flash holds data, so each write costs 1.57.

use plimsoll_core::Op;
use plimsoll_core::math::exp;

use super::super::Target::{AtMost, Between};
use super::super::support::{Course, MS, S, as_one_disk, config_of, preset, reads, world_of};
use super::super::{Advance, Outcome, ScenarioError, Series, Table};
use crate::report::Sample;
use crate::workload::{JobSpec, Load, Pattern, Region, SizeDist};
use crate::world::SimDisk;

const CAPACITY_BYTES: u64 = 60_000_000_000;
const OVER_PROVISIONING: f64 = 0.28;
/// At that moment the disk is 85 % full.
const FILLED_NS: u64 = 16 * S;
const DISCARDED_NS: u64 = FILLED_NS + 500 * MS;
const END_NS: u64 = DISCARDED_NS + S;
/// Length of a discard request.
const DISCARD_BYTES: u32 = 1 << 30;

/// Fills, discards, overwrites.
pub(super) fn fill_level(seed: u64, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    let mut course = Course::of(1, advance);
    let preset = preset("i3en.24xlarge")?;
    let mut device = as_one_disk(&preset);
    device.capacity_bytes = CAPACITY_BYTES;
    device.flash.garbage_collection = true;
    device.flash.over_provisioning = OVER_PROVISIONING;

    let config = config_of(&preset.figures);
    let job = |name: &str, op, from_ns, until_ns| JobSpec {
        class: "ingest".into(),
        op,
        pattern: Pattern::Random,
        region: Region { offset_bytes: 0, len_bytes: CAPACITY_BYTES, shard_stride_bytes: 0 },
        start_ns: Some(from_ns),
        stop_ns: Some(until_ns),
        ..reads(name, 64, 1 << 20)
    };
    let discard = JobSpec {
        load: Load::closed(1),
        pattern: Pattern::Append,
        sizes: SizeDist::Fixed(DISCARD_BYTES),
        limit_requests: Some(CAPACITY_BYTES / 2 / u64::from(DISCARD_BYTES)),
        ..job("discard", Op::Discard, FILLED_NS, DISCARDED_NS)
    };

    let jobs = vec![job("fill", Op::Write, 0, FILLED_NS), discard, job("again", Op::Write, DISCARDED_NS, END_NS)];
    let mut spec = world_of(seed, SimDisk::new(device, config), &[("ingest", 100)], jobs);
    (spec.warmup_ns, spec.duration_ns) = (0, END_NS);

    let mut samples = Vec::new();
    course.run_observed(&spec, &mut |sample| samples.push(sample.clone()))?;
    report(&mut course, &samples);
    course.remark(
        "Published: 8 GB/s, and 5 beyond 75 %. Time and capacity are a thousandth. No curve is given to the model: a \
         write costs what cleaning costs at that fill level. So the fall begins earlier than in the document, whose disk \
         had the help of files that are deleted whole. 'The filesystem tells which blocks are free, but even then some \
         slowdown is expected': after half is discarded the disk is faster again, and not as fast as when it was fresh.",
    );
    Ok(course.outcome)
}

/// Returns the part of the disk that holds data after random writes of this many bytes.
fn fill_after(written: u64) -> f64 {
    1.0 - exp(-(written as f64) / CAPACITY_BYTES as f64)
}

fn report(course: &mut Course<'_>, samples: &[Sample]) {
    let mut table = Table::new(
        "i3en.24xlarge (a thousandth of it), random writes of 1 MiB, 64 at a time",
        &["full, %", "GB/s", "published", "scale", "window, us", "in the device"],
    );
    let mut bandwidth = Vec::new();
    let mut written = 0u64;
    // Below 10 %, from 75 to 82 %, after the discard.
    let mut phases = [const { Vec::new() }; 3];
    let mut worst_in_device = 0f64;
    let mut next_row_percent = 0;
    for sample in samples {
        let bytes: u64 = sample.classes.iter().map(|class| class.bytes).sum();
        let gb_per_s = bytes as f64 / (sample.interval_ns as f64 / 1e9) / 1e9;
        written += bytes;
        let fill = fill_after(written);
        bandwidth.push((sample.at_ns as f64 / 1e9, gb_per_s));

        let (place, phase, published) = match sample.at_ns {
            at if at > DISCARDED_NS + 100 * MS => ("half discarded".to_owned(), Some(2), "-"),
            at if at > FILLED_NS => continue,
            _ if fill < 0.1 => (format!("{:.0}", fill * 100.0), Some(0), "8"),
            _ if (0.75..0.82).contains(&fill) => (format!("{:.0}", fill * 100.0), Some(1), "5"),
            _ => (format!("{:.0}", fill * 100.0), None, ""),
        };
        if let Some(rates) = phase.and_then(|phase: usize| phases.get_mut(phase)) {
            rates.push(gb_per_s);
        }
        let Some(disk) = sample.disks.first() else { continue };
        worst_in_device = worst_in_device.max(disk.mean_in_device);
        let is_last = sample.at_ns == END_NS;
        if is_last || (fill * 100.0 >= f64::from(next_row_percent) && sample.at_ns <= FILLED_NS) {
            next_row_percent += 10;
            let (scale, window) =
                (format!("{:.2}", disk.capacity_scale), format!("{:.0}", disk.window_ns as f64 / 1e3));
            let in_device = format!("{:.1}", disk.mean_in_device);
            table.row([place, format!("{gb_per_s:.2}"), published.to_owned(), scale, window, in_device]);
        }
    }

    let mean = |rates: &Vec<f64>| rates.iter().sum::<f64>() / rates.len() as f64;
    let [fresh, full, discarded] = phases.each_ref().map(mean);

    course.outcome.tables.push(table);
    course.figure("below 10 %, GB/s (published: 8)", fresh, Between(7.6, 8.4));
    course.figure("from 75 to 82 %, GB/s (published: 5)", full, Between(4.7, 5.6));
    course.figure("after discarding half, GB/s", discarded, Between(full * 1.15, fresh * 0.97));
    course.figure("most 1 MiB requests in the device, mean of 100 ms", worst_in_device, AtMost(24.0));
    course.outcome.series.push(Series {
        title: "write bandwidth while the disk fills, then after a discard (16.5 s)".into(),
        x: "s".into(),
        y: "GB/s".into(),
        curves: vec![("writes".into(), bandwidth)],
    });
}
