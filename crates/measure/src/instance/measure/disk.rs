//! Measures the disk by `tune`.
//!
//! **Why.** Cards use the project's one way to measure a disk.
//!
//! **How.** [`tune::measure`] returns a report; its figures get the card's keys, with value, 95 % interval, and the
//! settled samples.
//!
//! **Limits.** Those of `tune`: one directory, and so one disk or array. Its members are the local disks of the card;
//! volumes on a network are not.
//!
//! **Example.** 99 000 reads a second ± 2 %: `disk.read_iops` 99 000, interval 97 020 to 100 980.

use plimsoll_files::io_properties::IOPS_BLOCK_BYTES;
use plimsoll_files::variant_name;

use super::INTERRUPTED;
use crate::instance::{Card, Figure};
use crate::load::Control;
use crate::tune::{self, Observer, TuneError, TuneOptions, TuneReport};

/// Measures the disk. If the disk fails meanwhile, its figures are missing with the reason.
///
/// # Errors
/// The options are wrong (no such directory, write bound too small), so nothing should be measured.
pub(super) fn run(
    card: &mut Card,
    options: &TuneOptions,
    observer: &mut dyn Observer,
    control: &Control,
) -> Result<Option<TuneReport>, TuneError> {
    match tune::measure(options, observer, control) {
        Ok(report) => {
            add_report(card, &report);
            Ok(Some(report))
        }
        Err(error) if error.is_of_input() => Err(error),
        Err(error) => {
            card.miss("disk", &error.to_string());
            Ok(None)
        }
    }
}

/// Adds the figures of a report under the keys of a card.
fn add_report(card: &mut Card, report: &TuneReport) {
    let why_missing = if report.interrupted { INTERRUPTED } else { "not measured: see the warnings" };
    let rates = [
        ("disk.read_iops", &report.read_iops),
        ("disk.write_iops", &report.write_iops),
        ("disk.read_bytes_per_s", &report.read_bandwidth),
        ("disk.write_bytes_per_s", &report.write_bandwidth),
    ];

    for (key, figure) in rates {
        match figure {
            Some(figure) => card.set(key, rate(figure)),
            None => card.miss(key, why_missing),
        }
    }

    match report.read_latency {
        Some(latency) => card.set("disk.read_latency_ns", Figure::exact(latency.p50_ns as f64)),
        None => card.miss("disk.read_latency_ns", why_missing),
    }
    match report.frontier.as_ref().map(|frontier| frontier.mix_exponent_p) {
        Some(Some(p)) => card.set("disk.mix_exponent", Figure::exact(p)),
        Some(None) => card.miss("disk.mix_exponent", "infinite: reads and writes did not disturb each other"),
        None => card.miss("disk.mix_exponent", why_missing),
    }

    local_disks(report, card);
    for (what, bytes, key) in [
        ("reads", report.read_block.bytes, "disk.read_block_bytes"),
        ("writes", report.write_block.bytes, "disk.write_block_bytes"),
    ] {
        card.fact(key, bytes.to_string());
        if bytes != IOPS_BLOCK_BYTES {
            card.warnings.push(format!("disk: random {what} were measured in {bytes} bytes, not in 4 KiB"));
        }
    }

    let device = report.site.device.as_ref().map_or("unknown device", |device| device.name.as_str());
    card.fact("disk.measured", format!("{} ({device}, {})", report.site.mountpoint, report.site.file_system));
    card.fact("disk.method", format!("tune, {}, backend {}", variant_name(report.mode), report.backend.name));
    card.warnings.extend(report.warnings.iter().map(|warning| format!("disk: {}", warning.message)));
}

/// Returns the rate with its settled samples and its interval.
fn rate(figure: &tune::Figure) -> Figure {
    let half_width = figure.ci95_pct.map(|percent| figure.value * percent / 100.0);
    let interval = half_width.map(|half_width| [figure.value - half_width, figure.value + half_width]);
    Figure { value: figure.value, samples: figure.samples.iter().skip(figure.settled_at).copied().collect(), interval }
}

/// Adds the number and the size of the local disks below the directory.
fn local_disks(report: &TuneReport, card: &mut Card) {
    let leaves = report.site.device.as_ref().map(|device| device.leaves.as_slice()).unwrap_or_default();
    if leaves.is_empty() {
        card.miss("disk.number", "the kernel does not show the disks below this file system");
        card.miss("disk.bytes", "the kernel does not show the disks below this file system");
        return;
    }
    let local: Vec<&tune::Leaf> = leaves.iter().filter(|leaf| !leaf.is_network).collect();
    if local.is_empty() {
        card.miss("disk.bytes", "the storage is a volume on a network: its size is what was bought");
    }
    card.set("disk.number", Figure::exact(local.len() as f64));
    let sizes: Option<Vec<u64>> = local.iter().map(|leaf| leaf.size_bytes).collect();
    match sizes.map(|sizes| sizes.iter().fold(0_u64, |sum, bytes| sum.saturating_add(*bytes))) {
        Some(0) => {}
        Some(bytes) => card.set("disk.bytes", Figure::exact(bytes as f64)),
        None => card.miss("disk.bytes", "the kernel does not tell the size of every disk"),
    }
}

#[cfg(test)]
mod tests {
    use plimsoll::backend::choose::BackendKind;

    use super::*;
    use crate::instance::measure::card_of;

    fn null(shards: u16) -> TuneOptions {
        let mut options = TuneOptions::quick(std::env::temp_dir());
        options.backend = Some(BackendKind::Null);
        options.figures_only = true;
        options.shards = shards;
        options.data_bytes = 8 << 20;
        options.phase_s = Some(0.01);
        options
    }

    #[test]
    fn a_report_becomes_figures_and_reasons() {
        let mut report = None;
        card_of(|card| report = run(card, &null(1), &mut (), &Control::default()).unwrap());
        let mut report = report.unwrap();
        let leaf = |is_network| tune::Leaf { size_bytes: Some(1_000), is_network, ..tune::Leaf::default() };
        let device = tune::Device { leaves: vec![leaf(false), leaf(true), leaf(false)], ..tune::Device::default() };
        report.site.device = Some(device);
        if let Some(figure) = &mut report.read_iops {
            (figure.value, figure.ci95_pct) = (99_000.0, Some(2.0));
            (figure.samples, figure.settled_at) = (vec![1.0, 98_000.0, 100_000.0], 1);
        }
        report.write_iops = None;
        let card = card_of(|card| add_report(card, &report));
        let expected =
            Figure { value: 99_000.0, samples: vec![98_000.0, 100_000.0], interval: Some([97_020.0, 100_980.0]) };
        assert_eq!(card.figures.get("disk.read_iops"), Some(&expected));
        assert_eq!(card.value("disk.number"), Some(2.0));
        assert_eq!(card.value("disk.bytes"), Some(2_000.0));
        let missing: Vec<&String> = card.missing.keys().collect();
        assert_eq!(missing, ["disk.mix_exponent", "disk.write_iops"]);
    }

    #[test]
    fn what_makes_no_sense_ends_it_all() {
        let run = |options: &TuneOptions| {
            run(&mut card_of(|_| ()), options, &mut (), &Control::default()).map(|report| report.is_some())
        };
        assert!(matches!(run(&null(0)), Err(TuneError::Option { .. })));
        let nowhere = TuneOptions { directory: "/no/such/place".into(), ..null(1) };
        assert!(matches!(run(&nowhere), Err(TuneError::Place(_))));
    }
}
