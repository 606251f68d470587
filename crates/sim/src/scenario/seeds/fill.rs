//! A disk that slows as it fills, and recovers in part by discarding.
//!
//! # Why
//! An i3en.24xlarge wrote 8 GB/s until it was three quarters full, and 5 GB/s beyond.
//!
//! # How it works
//! One stream of appends fills the disk, a discard of two thirds follows, then overwriting. The scheduler is configured
//! for 8 GB/s once and must follow.
//!
//! # Limits
//! 60 TB take two hours at 8 GB/s. The disk here has a thousandth of the capacity, so an hour is 3.6 seconds. The model
//! gets the slow-down as a curve over fill level; its cause is not modelled here.
//!
//! # Example
//! 45 GB at 8 GB/s: 75 % are reached after 5.6 s.

use plimsoll_core::Op;

use super::super::support::{MS, S, as_one_disk, config_of, preset, reads, world_of};
use super::super::{Outcome, ScenarioError, Series, Table, Target};
use crate::report::Sample;
use crate::workload::{JobSpec, Load, Pattern, Region};
use crate::world::SimDisk;

const CAPACITY_BYTES: u64 = 60_000_000_000;
const FILLED_NS: u64 = 9 * S;
const DISCARDED_NS: u64 = 9_500 * MS;
const END_NS: u64 = 10_500 * MS;
/// Length of a discard request.
const DISCARD_BYTES: u32 = 1 << 30;

/// Fills, discards, overwrites.
pub(super) fn fill_level(seed: u64) -> Result<Outcome, ScenarioError> {
    let mut outcome = Outcome::default();
    let preset = preset("i3en.24xlarge")?;
    let mut device = as_one_disk(&preset);
    device.capacity_bytes = CAPACITY_BYTES;
    device.flash.fill_curve = vec![(0.0, 1.0), (0.7, 1.0), (0.8, 0.625), (1.0, 0.61)];
    device.flash.discard_residue = 0.6;

    let config = config_of(&preset.figures);
    let job = |name: &str, op, from_ns, until_ns| JobSpec {
        class: "ingest".into(),
        op,
        pattern: Pattern::Append,
        region: Region { offset_bytes: 0, len_bytes: CAPACITY_BYTES, shard_stride_bytes: 0 },
        start_ns: Some(from_ns),
        stop_ns: Some(until_ns),
        ..reads(name, 64, 1 << 20)
    };
    let discard = JobSpec {
        load: Load::closed(1),
        sizes: crate::workload::SizeDist::Fixed(DISCARD_BYTES),
        limit_requests: Some(CAPACITY_BYTES * 2 / 3 / u64::from(DISCARD_BYTES)),
        ..job("discard", Op::Discard, FILLED_NS, DISCARDED_NS)
    };

    let jobs = vec![job("fill", Op::Write, 0, FILLED_NS), discard, job("again", Op::Write, DISCARDED_NS, END_NS)];
    let mut spec = world_of(seed, SimDisk::new(device, config), &[("ingest", 100)], jobs);
    (spec.warmup_ns, spec.duration_ns) = (0, END_NS);

    let mut samples = Vec::new();
    outcome.run_observed(&spec, &mut |sample| samples.push(sample.clone()))?;
    report(&mut outcome, &samples);
    outcome.remark(
        "Published: 8 GB/s, and 5 beyond 75 %. Time and capacity are a thousandth. 'When told which blocks are free \
         the disk recovers, and some slowdown remains': of two thirds discarded, the model still sees 60 %. The fall \
         is spread from 70 to 80 %.",
    );
    Ok(outcome)
}

fn report(outcome: &mut Outcome, samples: &[Sample]) {
    let mut table = Table::new(
        "i3en.24xlarge (a thousandth of it), one stream of 1 MiB writes",
        &["written, % of capacity", "GB/s", "published", "scale", "window, us", "in the device"],
    );
    let mut bandwidth = Vec::new();
    let mut written = 0u64;
    // Three phases: below 69 %, beyond 82 %, after the discard.
    let mut phases = [const { Vec::new() }; 3];
    let mut worst_in_device = 0f64;
    for sample in samples {
        let bytes: u64 = sample.classes.iter().map(|class| class.bytes).sum();
        let gb_per_s = bytes as f64 / (sample.interval_ns as f64 / 1e9) / 1e9;
        written += bytes;
        let fill = written as f64 / CAPACITY_BYTES as f64;
        let time_s = sample.at_ns as f64 / 1e9;
        bandwidth.push((time_s, gb_per_s));

        let phase = match sample.at_ns {
            0..=500_000_000 => None,
            at if at > DISCARDED_NS + 100 * MS => Some((2, "-")),
            at if at > FILLED_NS => None,
            _ if fill <= 0.69 => Some((0, "8")),
            _ if (0.82..1.0).contains(&fill) => Some((1, "5")),
            _ => None,
        };

        let Some((phase, published)) = phase else { continue };
        if let Some(rates) = phases.get_mut(phase) {
            rates.push(gb_per_s);
        }
        let Some(disk) = sample.disks.first() else { continue };
        worst_in_device = worst_in_device.max(disk.mean_in_device);
        if sample.at_ns.is_multiple_of(S) || sample.at_ns % S == 500 * MS {
            let place = if phase == 2 { "after discarding".to_owned() } else { format!("{:.0}", fill * 100.0) };
            let (scale, window) =
                (format!("{:.2}", disk.capacity_scale), format!("{:.0}", disk.window_ns as f64 / 1e3));
            let in_device = format!("{:.1}", disk.mean_in_device);
            table.row([place, format!("{gb_per_s:.2}"), published.to_owned(), scale, window, in_device]);
        }
    }

    let mean = |rates: &Vec<f64>| rates.iter().sum::<f64>() / rates.len() as f64;
    let [empty, full, discarded] = phases.each_ref().map(mean);

    outcome.tables.push(table);
    outcome.figure("below 70 %, GB/s", empty, Target::Between(7.6, 8.4));
    outcome.figure("beyond 80 %, GB/s", full, Target::Between(4.7, 5.3));
    outcome.figure("after discarding two thirds, GB/s", discarded, Target::Between(full * 1.05, empty));
    outcome.figure("most 1 MiB requests in the device, mean of 100 ms", worst_in_device, Target::AtMost(24.0));
    outcome.series.push(Series {
        title: "write bandwidth while the disk fills, then after a discard (9.5 s)".into(),
        x: "s".into(),
        y: "GB/s".into(),
        curves: vec![("writes".into(), bandwidth)],
    });
}
