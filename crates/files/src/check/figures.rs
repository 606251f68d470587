//! Checks the relations among the figures of one disk.
//!
//! **Why.** Programs write their own limits into the file: the rate at which they send requests, the block size of the
//! wrong phase, the cap of the volume. Each such error has arithmetic of its own.
//!
//! **How.** One function per kind of error; each examines one disk. The arithmetic of [`int_max`]: on a disk without
//! figures, Seastar up to July 2025 priced a request at 128 (1 + N) / 2^31 seconds, N its length in sectors of 512
//! bytes, because "unlimited" was the largest 32-bit integer. So on any disk it sent 2^24 / (N + 1) requests per
//! second, and 2^33 N / (N + 1) bytes.
//!
//! **Limits.** Disks below [`SLOW_DISK_IOPS`] operations per second may rotate, and have any relation of bytes to
//! operations; rules about that relation skip them. Rules about the errors of other programs skip the figures of
//! `tune` and of presets.
//!
//! **Example.** Requests of 1 MiB: N = 2048, so 8 585 742 391 B/s; a preset with 8 585 068 032 B/s was measured there.

use plimsoll_figures::units::{format_count, format_throughput_decimal, parse_io_properties_figure};

use super::{Finding, FindingCode, Subject};
use crate::presets::{Figures, distance};

/// Operations per second below which a disk may rotate, or be a small network volume.
const SLOW_DISK_IOPS: u64 = 1_000;

/// Bytes per second of an unlimited Seastar with endless requests.
const INT_MAX_BYTES_PER_S: f64 = (1u64 << 33) as f64;
/// Requests per second times (1 + sectors) of an unlimited Seastar.
const INT_MAX_REQUEST_RATE: f64 = (1u64 << 24) as f64;
/// Largest part by which measured rates stay below the limit. Known ones are 0.008 % to 0.024 % (bandwidth) and 0.33 %
/// (operations) below.
const BANDWIDTH_SLACK: f64 = 0.0005;
const IOPS_SLACK: f64 = 0.005;

/// Fewest bytes per operation of 4 KiB that can be measured on one disk. Published figures of arrays go down to 2467,
/// where the operations are a cloud's promise and the bytes a measurement.
const LEAST_BYTES_PER_OPERATION: f64 = 2_048.0;

/// Most bytes per second of any mount point: eight disks with four lanes of PCIe 5.0 each.
const MAX_BYTES_PER_S: u64 = 8 * super::place::PCIE5_X4_BYTES_PER_S;
/// Most operations per second of any mount point. The largest instances have a third of it.
const MAX_IOPS: u64 = 30_000_000;

struct Direction {
    iops_key: &'static str,
    bandwidth_key: &'static str,
    iops: u64,
    bytes_per_s: u64,
}

impl Direction {
    fn bytes_per_operation(&self) -> f64 {
        self.bytes_per_s as f64 / self.iops.max(1) as f64
    }
}

pub(super) fn check(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    let figures = &subject.figures;
    let directions = [
        Direction {
            iops_key: "read_iops",
            bandwidth_key: "read_bandwidth",
            iops: figures.read_iops,
            bytes_per_s: figures.read_bandwidth_bytes_per_s,
        },
        Direction {
            iops_key: "write_iops",
            bandwidth_key: "write_bandwidth",
            iops: figures.write_iops,
            bytes_per_s: figures.write_bandwidth_bytes_per_s,
        },
    ];

    let is_measured = subject.is_measured();
    for direction in &directions {
        if !is_measured {
            int_max(subject, direction, findings);
        }
        bytes_per_operation(subject, direction, findings);
        beyond_any_disk(subject, direction, findings);
        binary_suffix(subject, direction, findings);
    }

    let [read, write] = &directions;
    // Figures that no disk has are not compared either.
    let is_no_disk = |direction: &Direction| direction.bytes_per_s / direction.iops.max(1) < 512;
    if !is_measured && !directions.iter().any(is_no_disk) {
        compare_directions(subject, read, write, findings);
    }

    saturation(subject, "read_saturation_length", subject.disk.properties.read_saturation_bytes, findings);
    saturation(subject, "write_saturation_length", subject.disk.properties.write_saturation_bytes, findings);
    rate_factor(subject, findings);
}

fn is_just_below(figure: u64, limit: f64, slack: f64) -> bool {
    (1.0 - slack..=1.0002).contains(&(figure as f64 / limit))
}

fn int_max(subject: &Subject<'_>, direction: &Direction, findings: &mut Vec<Finding>) {
    let remedy = "measure again with a release of 2025-08 or later, or with `plimsoll tune`: the disk is faster";
    let mut report = |key: &str, figure: u64, formula: String| {
        let message = format!(
            "{} is the rate at which a scheduler lets requests go whose unlimited rates are 2^31 - 1: {formula}. It \
             says nothing about the disk",
            format_count(figure)
        );
        findings.push(subject.finding(FindingCode::IntMaxRate, key, message, remedy));
    };

    let bandwidth = direction.bytes_per_s;
    // Tools measure bandwidth with lengths of 64 KiB to 4 MiB.
    let limit = |sectors: f64| INT_MAX_BYTES_PER_S * sectors / (sectors + 1.0);
    let hit = (7..=13)
        .rev()
        .map(|shift| f64::from(1 << shift))
        .find(|n| is_just_below(bandwidth, limit(*n), BANDWIDTH_SLACK));
    if let Some(sectors) = hit {
        let formula = format!("2^33 * {sectors} / {} B/s for {sectors} sectors of 512 bytes", sectors + 1.0);
        report(direction.bandwidth_key, bandwidth, formula);
    }

    // A run above 2^33 bytes per second was not limited. Operations are counted in 512 bytes or 4 KiB.
    if bandwidth as f64 > INT_MAX_BYTES_PER_S * 1.001 {
        return;
    }
    let rate = |sectors: u32| INT_MAX_REQUEST_RATE / f64::from(sectors + 1);
    let hit = [1, 8].into_iter().find(|sectors| is_just_below(direction.iops, rate(*sectors), IOPS_SLACK));
    if let Some(sectors) = hit {
        let formula = format!("2^24 / {} per second for {sectors} sectors of 512 bytes", sectors + 1);
        report(direction.iops_key, direction.iops, formula);
    }
}

fn bytes_per_operation(subject: &Subject<'_>, direction: &Direction, findings: &mut Vec<Finding>) {
    let bytes = direction.bytes_per_operation();
    let shown = format!(
        "{} B/s over {} operations/s are {bytes:.0} bytes an operation",
        format_count(direction.bytes_per_s),
        format_count(direction.iops)
    );
    let near = |size: f64, part: f64| (bytes / size - 1.0).abs() <= part;
    if near(512.0, 0.02) {
        let message = format!("{shown}: the bandwidth seems to be measured with blocks of 512 bytes");
        let remedy = "measure the bandwidth with blocks of 128 KiB to 1 MiB";
        findings.push(subject.finding(FindingCode::PhasesCollapsed, direction.bandwidth_key, message, remedy));
    } else if bytes < 512.0 {
        let message = format!("{shown}, less than a sector (512)");
        let remedy = "these are no figures of a disk: measure it";
        findings.push(subject.finding(FindingCode::BelowSector, direction.iops_key, message, remedy));
    } else if bytes < LEAST_BYTES_PER_OPERATION && direction.iops >= SLOW_DISK_IOPS {
        let message = format!("{shown}: the disk cannot do that many of 4 KiB");
        let remedy = "measure operations with blocks of 4 KiB, or correct one of the two";
        findings.push(subject.finding(FindingCode::IopsAboveBandwidth, direction.iops_key, message, remedy));
    }

    // Published figures have this error with 256 KiB; other blocks would give the same.
    let blocks = [(262_144.0, 0.03), (131_072.0, 0.001), (524_288.0, 0.01), (1_048_576.0, 0.01)];
    let block = blocks.into_iter().find(|(size, part)| near(*size, *part)).map(|(size, _)| size / 1024.0);
    if let Some(block_kib) = block.filter(|_| direction.iops >= SLOW_DISK_IOPS && !subject.is_measured()) {
        let message = format!(
            "{shown}, {block_kib:.0} KiB: the operations seem to be counted in the run that measured the bandwidth"
        );
        let remedy = "measure the operations with blocks of 4 KiB: a disk of flash does many more";
        findings.push(subject.finding(FindingCode::PhasesCollapsed, direction.iops_key, message, remedy));
    }
}

fn beyond_any_disk(subject: &Subject<'_>, direction: &Direction, findings: &mut Vec<Finding>) {
    let remedy = "is it multiplied by the number of disks twice, or in bits? Measure it";
    if direction.bytes_per_s > MAX_BYTES_PER_S {
        let message = format!(
            "{} is more than eight disks with four lanes of PCIe 5.0 each carry ({})",
            format_throughput_decimal(direction.bytes_per_s as f64),
            format_throughput_decimal(MAX_BYTES_PER_S as f64)
        );
        findings.push(subject.finding(FindingCode::AboveLink, direction.bandwidth_key, message, remedy));
    }
    if direction.iops > MAX_IOPS {
        let message = format!(
            "{} operations/s; the largest instances known do a third of {}",
            format_count(direction.iops),
            format_count(MAX_IOPS)
        );
        findings.push(subject.finding(FindingCode::AboveLink, direction.iops_key, message, remedy));
    }
}

fn binary_suffix(subject: &Subject<'_>, direction: &Direction, findings: &mut Vec<Finding>) {
    let Some(text) = subject.disk.text(direction.iops_key) else { return };
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let suffix = text.get(digits.len()..digits.len() + 1).unwrap_or("");
    let decimal_factor: u64 = match suffix {
        "k" | "K" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        _ => return,
    };
    let (Ok(read), Ok(number)) = (parse_io_properties_figure(text), digits.parse::<u64>()) else { return };
    let meant = number.saturating_mul(decimal_factor);
    let message = format!("`{text}` is read as {} operations/s: suffixes are binary here too", format_count(read));
    let remedy = format!("write {meant} or {read}, without a suffix");
    findings.push(subject.finding(FindingCode::BinarySuffix, direction.iops_key, message, remedy));
}

/// Returns whether reads and writes are the same: operations within 10 %, bytes within 3 %.
pub(super) fn is_volume_cap(figures: &Figures) -> bool {
    figures.read_iops >= SLOW_DISK_IOPS
        && distance(figures.read_iops, figures.write_iops) <= 0.10
        && distance(figures.read_bandwidth_bytes_per_s, figures.write_bandwidth_bytes_per_s) <= 0.03
}

fn compare_directions(subject: &Subject<'_>, read: &Direction, write: &Direction, findings: &mut Vec<Finding>) {
    let iops = write.iops as f64 / read.iops.max(1) as f64;
    let bytes = write.bytes_per_s as f64 / read.bytes_per_s.max(1) as f64;
    let shown = format!(
        "writes are {iops:.2} times the reads in operations ({} and {}) and {bytes:.2} times in bytes/s ({} and {})",
        format_count(write.iops),
        format_count(read.iops),
        format_count(write.bytes_per_s),
        format_count(read.bytes_per_s)
    );

    let message_key = write.iops_key;
    if iops > 1.1 && bytes > 1.1 {
        let message = format!("{shown}: they seem to be in each other's place");
        let remedy = "swap the read and write figures, or measure again";
        findings.push(subject.finding(FindingCode::ReadWriteSwapped, message_key, message, remedy));
    } else if iops > 1.25 && read.iops >= SLOW_DISK_IOPS {
        let message = format!("{shown}: flash reads more often than it writes");
        let remedy = "measure longer: a cache takes writes for a while; or with more requests in flight for the reads";
        findings.push(subject.finding(FindingCode::WriteIopsAboveRead, message_key, message, remedy));
    } else if is_volume_cap(&subject.figures) {
        let message =
            format!("{shown}: that is the cap of a volume, or what it does while it has burst credits, and not a disk");
        let remedy = "take the volume's sustained figures from its documentation; one cap for both directions together \
                      is shared by reads and writes";
        findings.push(subject.finding(FindingCode::VolumeCap, "read_bandwidth", message, remedy));
    }
}

/// Operations are at random, and the length is of requests in order: their product is no bound of the bandwidth.
fn saturation(subject: &Subject<'_>, key: &str, length: Option<u64>, findings: &mut Vec<Finding>) {
    let Some(bytes) = length.filter(|bytes| !(4_096..=16 << 20).contains(bytes)) else { return };
    let message = format!("{} bytes is no length at which disks saturate (4 KiB to 16 MiB)", format_count(bytes));
    let remedy = "remove it, or measure at which request size the throughput stops growing";
    findings.push(subject.finding(FindingCode::SaturationLength, key, message, remedy));
}

fn rate_factor(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    let factor = subject.disk.properties.rate_factor;
    if (0.1..=1.0).contains(&factor) {
        return;
    }
    let message = format!("all four figures are multiplied by {factor}");
    let remedy = "measure the disk, and leave rate_factor between 0.1 and 1: above 1 promises more than was measured";
    findings.push(subject.finding(FindingCode::RateFactor, "rate_factor", message, remedy));
}
