//! A disk of every preset family: its throughput under the scheduler with default settings.
//!
//! # Why
//! A scheduler that is itself the limit is the defect that began this project: an array of 40 GB/s that gave 8.5. It
//! must not return on any known disk, whatever the size of requests and the number of shards.
//!
//! # How it works
//! One class with 16 requests outstanding a shard, once scheduled and once with nothing held back. The disk's figures
//! are those of the preset; if they promise less than the disk does, throughput is compared with that, as in `far`.
//! Each run lasts for the requests that the closed loop takes to settle, and half as many more.
//!
//! # Limits
//! One preset of each family; volumes are in `far`. For a drive whose small writes are slow beside its bandwidth, the
//! knee of four figures promises as little as 0.61 of that bandwidth at 128 KiB: measured models do better.
//!
//! # Example
//! Eight drives of i3.16xlarge, reads of 1 MiB, two drives each: 12.6 in the device, the most that the window's bound
//! holds (three times the latency of one alone, and one more), give 0.88 of the rate of 256.

use plimsoll_core::{CostForm, CostModel, DiskConfig};

use super::super::Target::AtLeast;
use super::super::support::{Course, preset};
use super::super::{Advance, Outcome, ScenarioError, Table};
use super::far::{Alone, Found, cases};

/// One preset of each family, and arrays of the largest machines.
const NAMES: [&str; 12] = [
    "i3.16xlarge",
    "i3en.24xlarge",
    "i4i.32xlarge",
    "is4gen.8xlarge",
    "im4gn.16xlarge",
    "i7i.48xlarge",
    "i7ie.6xlarge",
    "i7ie.24xlarge",
    "i8g.24xlarge",
    "i8ge.24xlarge",
    "samsung-983-dct-1.92tb",
    "samsung-ssd-990-pro-2tb",
];

/// Requests of a run before counting begins, and after that.
const SETTLE_REQUESTS: f64 = 40_000.0;
const COUNTED_REQUESTS: f64 = 20_000.0;
const SHORTEST_S: f64 = 0.05;

/// Runs all presets, lengths, directions and numbers of shards.
pub(super) fn known_disks(seed: u64, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    let mut course = Course::of(288, advance);
    let mut table = Table::new(
        "16 outstanding a shard, default settings: cases below 0.95 of drained, or of what the figures promise",
        &["disk", "request", "shards", "MB/s", "drained", "part", "in device"],
    );
    let mut parts = Vec::new();
    for name in NAMES {
        let preset = preset(name)?;
        let model = CostModel::from_figures(&preset.figures, CostForm::Knee, 4096, 4096);
        let config = DiskConfig { model, ..DiskConfig::default() };
        for (len_bytes, op, shards) in cases() {
            let request_s = config.model.cost(op, len_bytes).as_secs_f64();
            let times_ns = [SETTLE_REQUESTS, COUNTED_REQUESTS];
            let times_ns = times_ns.map(|requests| ((requests * request_s).max(SHORTEST_S) * 1e9) as u64);
            let alone = Alone { seed, device: &preset.spec, config: &config, op, len_bytes, shards, times_ns };
            let Found { drained, scheduled, in_device, part, .. } = alone.measure(&mut course)?;
            parts.push(part);
            if part < 0.95 {
                table.row([
                    name.to_owned(),
                    format!("{op:?} {} KiB", len_bytes >> 10),
                    shards.to_string(),
                    format!("{:.1}", scheduled / 1e6),
                    format!("{:.1}", drained / 1e6),
                    format!("{part:.3}"),
                    format!("{in_device:.1}"),
                ]);
            }
        }
    }

    course.outcome.tables.push(table);
    parts.sort_by(f64::total_cmp);
    course.figure("least throughput over the lesser of drained and promised", parts[0], AtLeast(0.86));
    course.figure("median throughput over the lesser of drained and promised", parts[parts.len() / 2], AtLeast(0.97));
    course.remark(
        "The aim is 0.90 in every case. Reads of 1 MiB from arrays of slow drives miss it. On eight drives the window \
         rests at its bound, three times the latency of a read alone and one more, where 1 % more of it would still give \
         0.15 % more throughput. On is4gen.8xlarge with 16 shards the search has not yet come from 4 reads to the 7 that \
         one shard finds.",
    );
    Ok(course.outcome)
}
