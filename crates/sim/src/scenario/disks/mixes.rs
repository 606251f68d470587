//! Reads and writes together.
//!
//! # Why
//! (r/R)^p + (w/W)^p = 1: on a disk with p = 0.6 a linear budget floods the device, on one with p = infinity it wastes
//! half of it.
//!
//! # How it works
//! For each p reads and writes of 4 KiB with shares 1:3, 1:1 and 3:1. The reached part of the frontier is
//! ((r/R)^p + (w/W)^p)^(1/p).
//!
//! # Limits
//! The scheduler gets the device's own p. With p = infinity shares bind the directions together unless `duplex` is set:
//! both are shown.
//!
//! # Example
//! p = 2, r/R = w/W = 0.7: 0.99 of the frontier.

use plimsoll_core::{DiskConfig, MixExponent, Op};

use super::super::Target::{AtLeast, AtMost};
use super::super::support::{Course, MS, class_of, config_of, disk_of, four_figures, plain_device, reads, world_of};
use super::super::{Advance, Outcome, ScenarioError, Table};
use crate::fit::mix_load;
use crate::workload::JobSpec;
use crate::world::SimDisk;

const READ_IOPS: u64 = 200_000;
const WRITE_IOPS: u64 = 100_000;

/// Runs six exponents with three sets of shares.
pub(super) fn mixed_directions(seed: u64, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    let mut course = Course::of(21, advance);
    let mut table = Table::new(
        "reads (200 k/s alone) and writes (100 k/s alone) of 4 KiB",
        &["p", "shares r:w", "r/R", "w/W", "part of the frontier, %", "mean in device", "most, us of work"],
    );
    let figures = four_figures([READ_IOPS, 2_000_000_000, WRITE_IOPS, 1_000_000_000]);
    let (mut least, mut most_ns) = (f64::MAX, 0u64);
    for (p, duplex) in [
        (0.6, false),
        (1.0, false),
        (1.2, false),
        (1.6, false),
        (2.2, false),
        (f64::INFINITY, false),
        (f64::INFINITY, true),
    ] {
        for shares in [(100, 300), (100, 100), (300, 100)] {
            let mut device = plain_device(&figures, 1.0, 100e3);
            device.mix_exponent_p = p;
            let mix = MixExponent::new(p).ok_or_else(|| ScenarioError(format!("p = {p}")))?;
            let config = DiskConfig { mix, duplex, unloaded_latency_ns: 100_000, ..config_of(&figures) };
            let jobs = vec![reads("read", 256, 4096), JobSpec { op: Op::Write, ..reads("write", 256, 4096) }];
            let classes = [("read", shares.0), ("write", shares.1)];
            let mut spec = world_of(seed, SimDisk::new(device, config), &classes, jobs);
            (spec.warmup_ns, spec.duration_ns, spec.sample_ns) = (300 * MS, 300 * MS, MS);

            let mut work_ns = 0;
            let report = course.run_observed(&spec, &mut |sample| {
                work_ns = work_ns.max(sample.disks.first().map_or(0, |disk| disk.in_device_ns));
            })?;

            let read = class_of(&report, "read")?.iops / READ_IOPS as f64;
            let write = class_of(&report, "write")?.iops / WRITE_IOPS as f64;
            // Independent directions, if the scheduler treats them so, must both be used.
            let part = if duplex { read.min(write) } else { mix_load(read, write, p) };
            (least, most_ns) = (least.min(part), most_ns.max(work_ns));
            let name = if duplex { "inf, duplex".to_owned() } else { format!("{p}") };
            let mean = disk_of(&report)?.mean_in_device;

            table.row([
                name,
                format!("{}:{}", shares.0 / 100, shares.1 / 100),
                format!("{read:.3}"),
                format!("{write:.3}"),
                format!("{:.1}", part * 100.0),
                format!("{mean:.0}"),
                format!("{:.0}", work_ns as f64 / 1e3),
            ]);
        }
    }
    course.outcome.tables.push(table);
    course.figure("least part of the frontier, %", least * 100.0, AtLeast(92.0));
    // Target: the latency goal, and a quarter more for a class that lags.
    course.figure("most work in the device, us", most_ns as f64 / 1e3, AtMost(750.0 * 1.25));
    Ok(course.outcome)
}
