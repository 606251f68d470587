//! `tune --fill-sweep`: the bandwidth of a disk by how full it is, and after a discard.
//!
//! **Why.** A fresh flash disk has free space for writes. A full one moves old data first, and may write half as fast.
//! A disk that was sized by its first hour is too slow in the third month.
//!
//! **How.** The scratch data grows by a tenth at a time. At each level the disk is overwritten at random positions of
//! the data, 1 MiB at a time, because random overwrites are the hardest load for garbage collection. Then the second
//! half is discarded (holes in files, TRIM on a device), and the rest overwritten once more.
//!
//! **Limits.** In a directory the disk has other data, too, and the scratch data may be a small part of it: then the
//! levels are not those of the disk, and there is no verdict. A simulated disk is made as small as the data: its
//! collection depends on the part that is full, not on the size. A real disk has spare blocks, so collection takes time
//! to show: give each level time (`--phase`).
//!
//! **Example.** 28 % of spare space, full: each write costs 2.5, so the disk writes at 40 % of its fresh rate.

use plimsoll_figures::units::{format_bytes_binary, format_throughput_decimal};
use plimsoll_show::table::{Table, fixed};
use serde::Serialize;

use super::record::{Header, Load, Order, Sample, Stream};
use super::rig::{Rig, SimRig};
use super::{Observer, SEQUENTIAL_BYTES, SimulatedDisk, TuneError, TuneOptions, with_disk};
use crate::foreign::FOREIGN_DOUBT_PCT;
use crate::load::Control;

const LEVELS: u32 = 10;
/// Part of the data that is kept when the rest is discarded.
const KEPT: f64 = 0.5;
const DEPTH: u32 = 32;
/// Length of a level if the caller sets none, in seconds.
const LEVEL_S: f64 = 10.0;
/// Longest time for the filling of one level, in seconds.
const FILL_MAX_S: f64 = 86_400.0;
/// Part of the bandwidth at the first level from which on a disk counts as not slowed down.
const HELD: f64 = 0.9;
/// Part of the device that the data must have for its levels to be those of the device.
const WHOLE: f64 = 0.5;

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct FillLevel {
    /// Part of the scratch data's full size that the level fills, 0 to 1.
    pub full: f64,
    pub bytes_per_s: f64,
    /// The bandwidth as a part of that at the first level.
    pub part_of_first: f64,
    /// 99th percentile of the writes' latency, in nanoseconds.
    pub p99_ns: u64,
    /// Bytes that other programs moved, in per cent of all bytes; `None` if unknown.
    pub foreign_pct: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FillReport {
    pub plimsoll: &'static str,
    /// The directory or device, or the name of the simulated disk.
    pub directory: String,
    /// Scratch data at the last level, in bytes.
    pub room_bytes: u64,
    pub device_bytes: Option<u64>,
    /// The levels, in rising order.
    pub levels: Vec<FillLevel>,
    /// The result after everything beyond the kept half was discarded; `None` if the disk cannot discard, or the sweep
    /// ended before.
    pub after_discard: Option<FillLevel>,
    pub discard_error: Option<String>,
    pub written_bytes: u64,
    /// Whether the sweep ended early: by the user, or because the write bound is reached.
    pub is_interrupted: bool,
    /// The conclusion from the levels, as a sentence.
    pub verdict: String,
}

/// Measures the disk under `options.directory`, with [`TuneOptions::data_bytes`] of scratch data at the last level and
/// [`TuneOptions::phase_s`] (10 s) for each level. The scratch files are always removed.
pub fn fill_sweep(
    options: &TuneOptions,
    observer: &mut dyn Observer,
    control: &Control,
) -> Result<FillReport, TuneError> {
    with_disk(options, None, observer, control, |rig, recorder, observer| {
        sweep(rig, FillReport::of_header(&recorder.record.header), options, observer)
    })
}

/// Measures a simulated disk in virtual time. The disk is made as small as the data, and begins empty. For a model
/// without garbage collection the verdict is unclear.
pub fn fill_sweep_simulated(
    options: &TuneOptions,
    disk: &SimulatedDisk,
    observer: &mut dyn Observer,
    control: &Control,
) -> Result<FillReport, TuneError> {
    options.check()?;

    let mut disk = disk.clone();
    disk.spec.capacity_bytes = disk.spec.capacity_bytes.min(options.data_bytes);
    disk.spec.flash.initial_fill = 0.0;

    let Control { stop, traffic, .. } = control.with_write_bound(options.max_write_bytes);
    let mut rig = SimRig::new(&disk, options.shards, options.data_bytes, options.seed, stop, traffic)?;
    let report = FillReport {
        directory: disk.name.clone(),
        device_bytes: Some(disk.spec.capacity_bytes),
        ..FillReport::default()
    };

    let mut report = sweep(&mut rig, report, options, observer)?;
    if !disk.spec.flash.garbage_collection && disk.spec.flash.fill_curve.is_empty() && !report.is_unclear() {
        report.verdict =
            "unclear: the model of this disk has no garbage collection, so that nothing can slow it as it fills; \
                          name one that has it (`flash` in a disk file), or measure the disk itself"
                .to_owned();
    }

    Ok(report)
}

/// Fills and overwrites level after level, then discards and overwrites once more.
fn sweep(
    rig: &mut dyn Rig,
    mut report: FillReport,
    options: &TuneOptions,
    observer: &mut dyn Observer,
) -> Result<FillReport, TuneError> {
    report.plimsoll = env!("CARGO_PKG_VERSION");
    let seconds = options.phase_s.unwrap_or(LEVEL_S);
    let stream =
        Stream { order: Order::Random, block_bytes: SEQUENTIAL_BYTES, depth: DEPTH, rate_per_s: None, shift_bytes: 0 };
    let overwrite = |rig: &mut dyn Rig, report: &FillReport, full: f64| {
        let sample = rig.run(&Load::writes(stream, seconds))?;
        let is_over = sample.is_cut || rig.is_stopped();
        Ok::<_, TuneError>((!is_over).then(|| report.level(full, &sample)))
    };

    for level in 1..=LEVELS {
        let full = f64::from(level) / f64::from(LEVELS);
        observer.on_phase(&format!("{:.0} % full", full * 100.0), seconds);
        let wanted_bytes = (options.data_bytes as f64 * full) as u64;
        report.room_bytes = rig.fill(wanted_bytes, FILL_MAX_S, &mut |part| observer.on_progress(part))?;
        match overwrite(rig, &report, full)? {
            Some(level) => report.levels.push(level),
            None => report.is_interrupted = true,
        }
        if report.is_interrupted {
            break;
        }
    }

    if !report.is_interrupted {
        observer.on_phase("after a discard", seconds);
        match rig.discard_beyond(KEPT) {
            Ok(()) => {
                report.after_discard = overwrite(rig, &report, KEPT)?;
                report.is_interrupted = report.after_discard.is_none();
            }
            Err(error) => report.discard_error = Some(error.to_string()),
        }
    }
    report.written_bytes = rig.written_bytes();
    report.verdict = report.judge();
    Ok(report)
}

impl FillReport {
    fn of_header(header: &Header) -> FillReport {
        FillReport {
            directory: header.site.directory.clone(),
            device_bytes: header.site.device.as_ref().and_then(|device| device.size_bytes),
            ..FillReport::default()
        }
    }

    fn level(&self, full: f64, sample: &Sample) -> FillLevel {
        let moved = sample.moved();
        let bytes_per_s = sample.bytes_per_s(&moved);
        let first = self.levels.first().map_or(bytes_per_s, |level| level.bytes_per_s);
        let part_of_first = if first > 0.0 { bytes_per_s / first } else { 0.0 };
        FillLevel { full, bytes_per_s, part_of_first, p99_ns: moved.p99_ns, foreign_pct: sample.foreign_pct }
    }

    /// Returns the conclusion from the levels, or why there is none.
    fn judge(&self) -> String {
        let all = || self.levels.iter().chain(&self.after_discard);
        let foreign_pct = all().filter_map(|level| level.foreign_pct).fold(0.0, f64::max);
        let part = self.device_bytes.map(|device_bytes| self.room_bytes as f64 / device_bytes.max(1) as f64);
        if self.is_interrupted {
            return "unclear: the sweep ended early".to_owned();
        }
        if foreign_pct > FOREIGN_DOUBT_PCT {
            return format!(
                "unclear: other programs moved up to {foreign_pct:.0} % of the bytes; stop them, and repeat"
            );
        }
        if let Some(part) = part.filter(|part| *part < WHOLE) {
            return format!(
                "unclear: the data is {:.2} % of the device, which never got full; give more (--data-size), or measure \
                 the device itself (--destructive)",
                part * 100.0
            );
        }

        let least = self.levels.iter().map(|level| level.part_of_first).fold(1.0, f64::min);
        let slowed = self.levels.iter().find(|level| level.part_of_first < HELD);
        let fall = match slowed {
            Some(level) => {
                format!("slows from {:.0} % full on, to {:.0} % of its rate", level.full * 100.0, least * 100.0)
            }
            None => "does not slow as it fills".to_owned(),
        };
        match &self.after_discard {
            Some(level) => format!("{fall}; with half of it discarded it has {:.0} %", level.part_of_first * 100.0),
            None => fall,
        }
    }

    /// Returns whether the levels allow no conclusion.
    pub fn is_unclear(&self) -> bool {
        self.verdict.starts_with("unclear")
    }

    /// Returns the levels as a table; the last row is that after the discard.
    pub fn table(&self) -> Table {
        let row = |full: String, level: &FillLevel| {
            [
                full,
                fixed(level.bytes_per_s / 1e6, 1),
                fixed(level.part_of_first * 100.0, 1),
                fixed(level.p99_ns as f64 / 1e6, 2),
                level.foreign_pct.map_or(String::new(), |pct| fixed(pct, 1)),
            ]
        };
        let levels = self.levels.iter().map(|level| row(format!("{:.0}", level.full * 100.0), level));
        let discarded = self.after_discard.iter().map(|level| row("half discarded".to_owned(), level));
        Table::new("", ["full, %", "MB/s", "of the first, %", "p99, ms", "others, %"], levels.chain(discarded))
    }

    /// Returns the text above the table: the verdict, and how the disk was measured.
    pub fn head(&self) -> String {
        let first = self.levels.first().map_or(0.0, |level| level.bytes_per_s);
        let mut text = format!(
            "{}: {}\noverwrites of 1 MiB at random: {} at the first level; {} of data, {} written\n",
            self.directory,
            self.verdict,
            format_throughput_decimal(first),
            format_bytes_binary(self.room_bytes),
            format_bytes_binary(self.written_bytes)
        );
        if let Some(error) = &self.discard_error {
            text += &format!("not discarded: {error}\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(parts: &[f64]) -> FillReport {
        let level = |(at, part): (usize, &f64)| FillLevel {
            full: (at + 1) as f64 / parts.len() as f64,
            part_of_first: *part,
            ..FillLevel::default()
        };
        let levels = parts.iter().enumerate().map(level).collect();
        FillReport { levels, room_bytes: 100, device_bytes: Some(100), ..FillReport::default() }
    }

    #[test]
    fn verdicts_say_from_when_on_or_why_not() {
        let slow = report(&[1.0, 0.99, 0.8, 0.62]);
        let discarded = FillLevel { part_of_first: 0.97, ..FillLevel::default() };
        let busy = FillLevel { foreign_pct: Some(30.0), ..FillLevel::default() };
        for (report, verdict) in [
            (report(&[1.0, 0.98, 0.95]), "does not slow as it fills"),
            (slow.clone(), "slows from 75 % full on, to 62 % of its rate"),
            (
                FillReport { after_discard: Some(discarded), ..slow.clone() },
                "slows from 75 % full on, to 62 % of its rate; with half of it discarded it has 97 %",
            ),
            (FillReport { device_bytes: None, ..slow.clone() }, "slows from 75 % full on, to 62 % of its rate"),
            (FillReport { device_bytes: Some(1000), ..slow.clone() }, "unclear: the data is 10.00 % of the device"),
            (FillReport { after_discard: Some(busy), ..slow.clone() }, "unclear: other programs moved up to 30 %"),
            (FillReport { is_interrupted: true, ..slow }, "unclear: the sweep ended early"),
        ] {
            assert!(report.judge().starts_with(verdict), "{verdict}: {}", report.judge());
        }
    }
}
