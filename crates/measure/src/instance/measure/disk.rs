//! Measures the disk by `tune`.
//!
//! **Why.** There is one way to measure a disk, wherever its figures go.
//!
//! **How.** [`tune::measure`] returns a report; its figures get the card's keys, with value, 95 % interval, and the
//! samples that count.
//!
//! **Limits.** Those of `tune`: one directory, and so one disk or array. Its members are the local disks of the card;
//! volumes on a network are not.
//!
//! **Example.** 99 000 reads a second ± 2 %: `disk.read_iops` 99 000, interval 97 020 to 100 980.

use plimsoll_files::io_properties::IOPS_BLOCK_BYTES;

use super::{INTERRUPTED, Part};
use crate::instance::Figure;
use crate::load::{Control, ScratchError};
use crate::tune::{self, Observer, TuneError, TuneOptions, TuneReport};

/// Measures the disk. If it fails meanwhile, its figures are missing with the reason.
///
/// # Errors
/// The options are wrong (no such directory, too little may be written), so nothing should be measured.
pub(super) fn run(
    options: &TuneOptions,
    observer: &mut dyn Observer,
    control: &Control,
) -> Result<(Part, Option<TuneReport>), TuneError> {
    match tune::measure(options, observer, control) {
        Ok(report) => Ok((of_report(&report), Some(report))),
        Err(error) if is_of_input(&error) => Err(error),
        Err(error) => {
            let mut part = Part::default();
            part.miss("disk", &error.to_string());
            Ok((part, None))
        }
    }
}

fn is_of_input(error: &TuneError) -> bool {
    matches!(
        error,
        TuneError::Option { .. }
            | TuneError::MaxWrite { .. }
            | TuneError::Place(_)
            | TuneError::NotDestructive { .. }
            | TuneError::RecordExists { .. }
            | TuneError::Scratch(ScratchError::BadDirectory { .. })
    )
}

/// Returns the figures of a report under the keys of a card.
fn of_report(report: &TuneReport) -> Part {
    let mut part = Part::default();
    let why_missing = if report.interrupted { INTERRUPTED } else { "not measured: see the warnings" };
    let rates = [
        ("disk.read_iops", &report.read_iops),
        ("disk.write_iops", &report.write_iops),
        ("disk.read_bytes_per_s", &report.read_bandwidth),
        ("disk.write_bytes_per_s", &report.write_bandwidth),
    ];

    for (key, figure) in rates {
        match figure {
            Some(figure) => part.figure(key, rate(figure)),
            None => part.miss(key, why_missing),
        }
    }

    match report.read_latency {
        Some(latency) => part.figure("disk.read_latency_ns", Figure::exact(latency.p50_ns as f64)),
        None => part.miss("disk.read_latency_ns", why_missing),
    }
    match report.frontier.as_ref().map(|frontier| frontier.mix_exponent_p) {
        Some(Some(p)) => part.figure("disk.mix_exponent", Figure::exact(p)),
        Some(None) => part.miss("disk.mix_exponent", "infinite: reads and writes did not disturb each other"),
        None => part.miss("disk.mix_exponent", why_missing),
    }

    local_disks(report, &mut part);
    for (what, bytes, key) in [
        ("reads", report.read_block.bytes, "disk.read_block_bytes"),
        ("writes", report.write_block.bytes, "disk.write_block_bytes"),
    ] {
        part.fact(key, bytes.to_string());
        if bytes != IOPS_BLOCK_BYTES {
            part.warnings.push(format!("disk: random {what} were measured in {bytes} bytes, not in 4 KiB"));
        }
    }

    let device = report.device.as_ref().map_or("unknown device", |device| device.name.as_str());
    part.fact("disk.measured", format!("{} ({device}, {})", report.mountpoint, report.file_system));
    part.fact("disk.method", format!("tune, {}, backend {}", report.mode.name(), report.backend.name));
    part.warnings.extend(report.warnings.iter().map(|warning| format!("disk: {}", warning.message)));
    part
}

/// Returns the rate with its settled samples and its interval.
fn rate(figure: &tune::Figure) -> Figure {
    let half_width = figure.ci95_pct.map(|percent| figure.value * percent / 100.0);
    let interval = half_width.map(|half_width| [figure.value - half_width, figure.value + half_width]);
    Figure { value: figure.value, samples: figure.samples.iter().skip(figure.settled_at).copied().collect(), interval }
}

/// Adds the number and the size of the local disks below the directory.
fn local_disks(report: &TuneReport, part: &mut Part) {
    let leaves = report.device.as_ref().map(|device| device.leaves.as_slice()).unwrap_or_default();
    if leaves.is_empty() {
        part.miss("disk.number", "the kernel does not show the disks below this file system");
        part.miss("disk.bytes", "the kernel does not show the disks below this file system");
        return;
    }
    let local: Vec<&tune::Leaf> = leaves.iter().filter(|leaf| !leaf.is_network).collect();
    if local.is_empty() {
        part.miss("disk.bytes", "the storage is a volume on a network: its size is what was bought");
    }
    part.figure("disk.number", Figure::exact(local.len() as f64));
    let sizes: Option<Vec<u64>> = local.iter().map(|leaf| leaf.size_bytes).collect();
    match sizes.map(|sizes| sizes.iter().fold(0_u64, |sum, bytes| sum.saturating_add(*bytes))) {
        Some(0) => {}
        Some(bytes) => part.figure("disk.bytes", Figure::exact(bytes as f64)),
        None => part.miss("disk.bytes", "the kernel does not tell the size of every disk"),
    }
}

#[cfg(test)]
mod tests {
    use plimsoll::backend::choose::BackendKind;

    use super::*;

    fn null(shards: u16) -> TuneOptions {
        let mut options = TuneOptions::quick(std::env::temp_dir());
        options.backend = Some(BackendKind::Null);
        options.figures_only = true;
        options.shards = shards;
        options.data_bytes = 8 << 20;
        options.phase_s = Some(0.01);
        options
    }

    fn value(part: &Part, key: &str) -> Option<Figure> {
        part.figures.iter().find(|(name, _)| name == key).map(|(_, figure)| figure.clone())
    }

    #[test]
    fn a_report_becomes_figures_and_reasons() {
        let (_, report) = run(&null(1), &mut (), &Control::default()).unwrap();
        let mut report = report.unwrap();
        let leaf = |is_network| tune::Leaf { size_bytes: Some(1_000), is_network, ..tune::Leaf::default() };
        let device = tune::Device { leaves: vec![leaf(false), leaf(true), leaf(false)], ..tune::Device::default() };
        report.device = Some(device);
        if let Some(figure) = &mut report.read_iops {
            (figure.value, figure.ci95_pct) = (99_000.0, Some(2.0));
            (figure.samples, figure.settled_at) = (vec![1.0, 98_000.0, 100_000.0], 1);
        }
        report.write_iops = None;
        let part = of_report(&report);
        let expected =
            Figure { value: 99_000.0, samples: vec![98_000.0, 100_000.0], interval: Some([97_020.0, 100_980.0]) };
        assert_eq!(value(&part, "disk.read_iops"), Some(expected));
        assert_eq!(value(&part, "disk.number"), Some(Figure::exact(2.0)));
        assert_eq!(value(&part, "disk.bytes"), Some(Figure::exact(2_000.0)));
        let missing: Vec<&str> = part.missing.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(missing, ["disk.write_iops", "disk.mix_exponent"]);
    }

    #[test]
    fn what_makes_no_sense_ends_it_all() {
        assert!(matches!(run(&null(0), &mut (), &Control::default()), Err(TuneError::Option { .. })));
        let nowhere = TuneOptions { directory: "/no/such/place".into(), ..null(1) };
        assert!(matches!(run(&nowhere, &mut (), &Control::default()), Err(TuneError::Place(_))));
    }
}
