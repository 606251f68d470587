//! Checks a disk against this machine's facts about the mount point.
//!
//! **Why.** On the machine that the file is for, the kernel knows the PCIe links of the disk.
//!
//! **How.** The mount point's device number leads to the disks below it, and each disk to its PCIe link
//! ([`plimsoll::sys::sysfs::hardware`]). The links' sum bounds the figures.
//!
//! **Limits.** There are no findings if the mount point does not exist here, or a disk has no link (virtual disks).
//! Protocol overhead, about 10 %, is left out: a figure above the link is impossible, not unlikely.
//!
//! **Example.** PCIe 4 with four lanes: 4 * 16e9 * 128/130 / 8 = 7.88 GB/s; 14 GB/s is not from one such disk.

use std::collections::HashMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use plimsoll::sys::sysfs;
use plimsoll_figures::units::format_throughput_decimal;

use super::{Finding, FindingCode, Subject};

/// Bytes per second of four lanes of PCIe 5.0: 4 * 32e9 * 128/130 / 8.
pub(super) const PCIE5_X4_BYTES_PER_S: u64 = 15_753_846_153;

pub(super) fn check(subject: &Subject<'_>, sys_root: &Path, findings: &mut Vec<Finding>) {
    let properties = &subject.disk.properties;
    let places = &properties.mountpoints;
    if let Some(place) = places.iter().find(|place| is_something_else(place)) {
        let message = format!("{place} is neither a directory nor a block device");
        let remedy = "name the directory where the disk is mounted, or its block device";
        findings.push(subject.finding(FindingCode::NotADisk, place_key(subject), message, remedy));
    }

    let links: Option<Vec<_>> = places.iter().map(|place| links_of(place, sys_root)).collect();
    let Some(mut links) = links.map(|links| links.concat()).filter(|links| !links.is_empty()) else { return };
    // Several mount points may be on one disk.
    links.sort_unstable();
    links.dedup();
    let link_bytes_per_s: f64 = links.iter().map(|(_, bytes_per_s)| *bytes_per_s as f64).sum();
    let names: Vec<&str> = links.iter().map(|(name, _)| name.as_str()).collect();

    let figures = &subject.figures;
    for (key, figure) in [
        ("read_bandwidth", figures.read_bandwidth_bytes_per_s),
        ("write_bandwidth", figures.write_bandwidth_bytes_per_s),
    ] {
        let bytes_per_s = figure as f64 * properties.rate_factor;
        if bytes_per_s > link_bytes_per_s {
            let message = format!(
                "{} is more than the PCIe link of {} carries ({})",
                format_throughput_decimal(bytes_per_s),
                names.join(" and "),
                format_throughput_decimal(link_bytes_per_s)
            );
            let remedy = "measure this disk: the figure is of another one, of several, or of the page cache";
            findings.push(subject.finding(FindingCode::AboveLink, key, message, remedy));
        }
    }
}

/// Finds disks that two entries share, by the text of their paths or by their device numbers.
pub(super) fn check_duplicates(subjects: &[Subject<'_>], findings: &mut Vec<Finding>) {
    let mut paths: HashMap<PathBuf, usize> = HashMap::new();
    let mut devices: HashMap<u64, (usize, &str)> = HashMap::new();

    for (index, subject) in subjects.iter().enumerate() {
        for place in &subject.disk.properties.mountpoints {
            let path: PathBuf = Path::new(place).components().collect();
            let same_path = paths.insert(path, index).is_some();
            let device = device_number(place);
            let same_device = device.and_then(|device| devices.insert(device, (index, place)));
            let message = match (same_path, same_device) {
                (true, _) => format!("{place} is configured twice"),
                // Several paths of one entry share its queue, which is harmless.
                (false, Some((other, path))) if other != index => {
                    format!("{place} and {path} of another entry are on the same device")
                }
                _ => continue,
            };
            let message = format!("{message}: Seastar refuses a second entry for a device");
            let remedy = "keep one entry per disk; several paths of it go into its `mountpoints`";
            findings.push(subject.finding(FindingCode::DuplicateDevice, place_key(subject), message, remedy));
        }
    }
}

fn place_key(subject: &Subject<'_>) -> &'static str {
    if subject.disk.line("mountpoints").is_some() { "mountpoints" } else { "mountpoint" }
}

/// Returns whether the path exists here and is neither a directory nor a block device.
fn is_something_else(place: &str) -> bool {
    std::fs::metadata(place).is_ok_and(|meta| !meta.is_dir() && !meta.file_type().is_block_device())
}

/// Returns the device number of a directory, or of a block device itself. Seastar identifies disks by it.
fn device_number(place: &str) -> Option<u64> {
    let meta = std::fs::metadata(place).ok()?;
    match () {
        () if meta.is_dir() => Some(meta.dev()),
        () if meta.file_type().is_block_device() => Some(meta.rdev()),
        () => None,
    }
}

/// Returns name and bytes per second of the links of the disks below a mount point; `None` if one is not known.
fn links_of(place: &str, sys_root: &Path) -> Option<Vec<(String, u64)>> {
    let (major, minor) = sysfs::major_minor(device_number(place)?);
    let device = sysfs::device(sys_root, major, minor).ok()?;
    let disks = sysfs::leaf_disks(sys_root, &device.name).into_iter();
    disks.map(|disk| sysfs::hardware(sys_root, &disk).link_bytes_per_s.map(|rate| (disk, rate))).collect()
}
