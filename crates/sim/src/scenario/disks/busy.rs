//! A program that computes, or shares its CPUs with others that do: completions are seen late.
//!
//! # Why
//! If a shard polls milliseconds apart, a window of 0.75 ms of work leaves the disk idle between two polls. Nothing
//! waits in the device, so nothing is gained by holding requests back.
//!
//! # How it works
//! Other processes take the shard's CPU for some milliseconds at a time, and leave it one turn or some milliseconds in
//! between. Two classes with 192 requests of 128 KiB outstanding each, shares 1:3. The throughput is compared with that
//! of the same busy shard without a scheduler. Then the CPU is taken for 4 ms twice a second: that costs 1 % of the
//! time, so the device holds no more than beneath a shard that is never absent.
//!
//! # Limits
//! One shard: with several, each has late completions of its own. A class with all its requests in the device would
//! lose its share, so the longest absence that can be bridged depends on the outstanding requests of the classes.
//!
//! # Example
//! 250 MB/s, polls every 3 ms: 5.7 requests of 128 KiB must be in flight, where 0.75 ms hold one or two.

use plimsoll_core::DiskConfig;

use super::super::Target::{AtLeast, AtMost};
use super::super::support::{
    Course, MS, S, class_of, config_of, disk_of, four_figures, plain_device, preset, reads, share_error_percent,
    world_of,
};
use super::super::{Advance, Outcome, ScenarioError, Table};
use crate::device::DeviceSpec;
use crate::world::{DiskMode, Hog, ShardSpec, SimDisk};

const SHARES: [u32; 2] = [100, 300];
/// Time for which others take the CPU, and time for which they leave it; 0: one turn.
const ABSENCES_MS: [(u64, u64); 5] = [(3, 0), (1, 1), (3, 1), (4, 4), (8, 2)];
/// Requests that the smallest window holds.
const WINDOW_MIN_REQUESTS: f64 = 3.0;
/// An absence that is not worth bridging.
const RARE_MS: (u64, u64) = (4, 496);

/// Runs a slow and a fast disk beneath a busy shard.
pub(super) fn busy_processors(seed: u64, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    let mut course = Course::of(26, advance);
    let mut table = Table::new(
        "2 x 192 reads of 128 KiB outstanding",
        &["disk", "away, of", "MB/s", "drained", "part", "in device", "share error"],
    );
    let slow = four_figures([3_000, 250_000_000, 3_000, 250_000_000]);
    let fast = preset("i4i.2xlarge")?;
    let disks: [(&str, DeviceSpec, DiskConfig); 2] = [
        ("limited to 250 MB/s", plain_device(&slow, 1.0, 100e3), config_of(&slow)),
        ("i4i.2xlarge", fast.spec.clone(), config_of(&fast.figures)),
    ];

    let (mut least, mut largest_error, mut more_in_device) = (f64::MAX, 0.0_f64, 0.0_f64);
    for (name, device, config) in disks {
        let mut run = |mode, absence: Option<(u64, u64)>| {
            let disk = SimDisk { mode, ..SimDisk::new(device.clone(), config.clone()) };
            let jobs = vec![reads("one", 192, 128 << 10), reads("three", 192, 128 << 10)];
            let mut spec = world_of(seed, disk, &[("one", SHARES[0]), ("three", SHARES[1])], jobs);
            let hog = absence.map(|(busy_ms, pause_ms)| Hog { busy_ns: busy_ms * MS, pause_ns: pause_ms * MS });
            spec.shards = vec![ShardSpec { hog, ..ShardSpec::default() }];
            (spec.warmup_ns, spec.duration_ns) = (3 * S, 4 * S);
            course.run(&spec)
        };
        for (busy_ms, pause_ms) in ABSENCES_MS.into_iter().chain([RARE_MS]) {
            let absence = Some((busy_ms, pause_ms));
            let drained = disk_of(&run(DiskMode::Drain, absence)?)?.bytes_per_s;
            let report = run(DiskMode::Scheduled, absence)?;
            let disk = disk_of(&report)?;
            let parts =
                [class_of(&report, "one")?, class_of(&report, "three")?].map(|class| class.device_time_ns as f64);
            let (part, error) = (disk.bytes_per_s / drained, share_error_percent(&parts, &SHARES));
            (least, largest_error) = (least.min(part), largest_error.max(error));
            table.row([
                name.to_owned(),
                format!("{busy_ms} of {} ms", busy_ms + pause_ms),
                format!("{:.1}", disk.bytes_per_s / 1e6),
                format!("{:.1}", drained / 1e6),
                format!("{part:.2}"),
                format!("{:.1}", disk.mean_in_device),
                format!("{error:.2} %"),
            ]);
            if (busy_ms, pause_ms) == RARE_MS {
                let never = run(DiskMode::Scheduled, None)?;
                let usual = disk_of(&never)?.mean_in_device.max(WINDOW_MIN_REQUESTS);
                more_in_device = more_in_device.max(disk.mean_in_device / usual);
            }
        }
    }

    course.outcome.tables.push(table);
    course.figure("least throughput over drained", least, AtLeast(0.85));
    course.figure("largest share error, %", largest_error, AtMost(1.0));
    course.figure("most in the device, rarely away over never (three requests at least)", more_in_device, AtMost(1.3));
    course.remark(
        "While tokens issued between two looks were lost, and a device that ran dry was taken for a slow one, the fast \
         disk had 0.05 to 0.61 of its drained throughput.",
    );
    Ok(course.outcome)
}
