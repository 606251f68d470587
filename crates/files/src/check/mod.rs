//! Suspicious figures in an io-properties file: `plimsoll info --check`.
//!
//! **Why.** A wrong figure causes no error; it causes bad scheduling, for years. Published presets have had rows with
//! eight times the truth or a third of it, and measuring tools have written their own limits in place of the disk's.
//! Nearly all of these errors leave a trace in the figures.
//!
//! **How.** The file is read leniently, so that all faults are reported at once. Then each disk is judged
//!
//! - alone: relations between its figures that no disk has, and figures that are limits of a program;
//! - beside the instances of [`crate::presets`]: the named one, or those whose figures are nearly the same in the
//!   reads, or in three of the four;
//! - at its place, if the mount point exists on this machine: links, device numbers.
//!
//! A finding has a stable code, the numbers that it follows from, and a remedy. Codes of the file's reader
//! (`unknown_key`, `obsolete`, `template` and others, with `_` for `-`) are findings too.
//!
//! **Limits.** No finding is no proof. Most thresholds are wide, so that an honest measurement passes: a write figure
//! must be wrong by a factor of 1.6 to be an outlier. A factor of 2 that turns one size of an instance exactly into the
//! next shows only if the instance is named.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_files::check::{self, CheckOptions, FindingCode};
//! let text = "disks: [{mountpoint: /none, read_iops: 752697, read_bandwidth: 8585068032,
//!                      write_iops: 350060, write_bandwidth: 6211869696}]";
//! let report = check::check_text("io.yaml", text, &CheckOptions::default())?;
//! assert_eq!(report.findings[0].code, "int_max_rate");
//! assert_eq!(report.findings[0].key, "read_bandwidth");
//! # Ok::<(), plimsoll_files::ConfigError>(())
//! ```

mod figures;
mod lenient;
mod place;
mod sisters;

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::ConfigError;
use crate::presets::{Figures, Instance};
use crate::variant_name;
use lenient::{LenientDisk, LenientFile};

/// Version of the JSON form of a [`CheckReport`].
pub const SCHEMA: u32 = 1;

/// The figures with which a file is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Beside {
    /// The figures of the nearest instances of the table.
    #[default]
    Nearest,
    Instance(&'static Instance),
    /// No figures: the disk is not in the table.
    Nothing,
}

#[derive(Clone, Debug)]
pub struct CheckOptions {
    pub beside: Beside,
    /// The directory in which the kernel describes its devices.
    pub sys_root: PathBuf,
}

impl Default for CheckOptions {
    fn default() -> CheckOptions {
        CheckOptions { beside: Beside::Nearest, sys_root: PathBuf::from("/sys") }
    }
}

/// Kinds of findings about figures and places. Findings about the text have the codes of the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FindingCode {
    /// The figure is a rate at which a scheduler sends requests whose "unlimited" is 2^31 - 1.
    IntMaxRate,
    /// Operations were counted with the blocks of the bandwidth run, or bytes with those of the operations run.
    PhasesCollapsed,
    /// An operation moves less than a sector.
    BelowSector,
    /// The disk would need more operations than its bandwidth carries at 4 KiB.
    IopsAboveBandwidth,
    /// A read figure is far from that of the same instances.
    ReadOutlier,
    /// A write figure is far from that of the same instances.
    WriteOutlier,
    /// Totals were multiplied by the number of disks again.
    MultipliedTwice,
    /// Writes were measured in 512-byte blocks on a disk that works in 4096.
    WriteBlockSize,
    ReadWriteSwapped,
    WriteIopsAboveRead,
    /// The figure is above what the PCIe link, or any disk, carries.
    AboveLink,
    BinarySuffix,
    /// The same device is configured twice.
    DuplicateDevice,
    /// Reads and writes are the same: the cap of a volume, or its burst credits.
    VolumeCap,
    /// There are more disks than Seastar configures.
    TooManyDisks,
    /// The saturation length is one that no disk has.
    SaturationLength,
    /// The factor makes the figures larger, or nearly nothing.
    RateFactor,
    /// The mount point is neither a directory nor a block device.
    NotADisk,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The code of its kind, stable across releases, in snake_case.
    pub code: String,
    /// The key, or the first of several.
    pub key: String,
    pub message: String,
    pub remedy: String,
    /// The mount points of the disk, joined by `:`; empty if the finding is about the file.
    pub mountpoint: String,
    /// The line of the key, counted from 1.
    pub line: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    pub schema: u32,
    pub file: String,
    pub findings: Vec<Finding>,
}

impl CheckReport {
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

/// Checks a file.
///
/// # Errors
/// The file cannot be read, is not YAML, or no disk in it has all four figures.
pub fn check_file(path: &Path, options: &CheckOptions) -> Result<CheckReport, ConfigError> {
    Ok(check(&path.display().to_string(), lenient::read_file(path)?, options))
}

/// Checks a text; `source_name` replaces the path of a file.
pub fn check_text(source_name: &str, text: &str, options: &CheckOptions) -> Result<CheckReport, ConfigError> {
    Ok(check(source_name, lenient::read(source_name, text)?, options))
}

/// A disk of the file, in the form that the rules need.
struct Subject<'a> {
    disk: &'a LenientDisk,
    figures: Figures,
}

impl Subject<'_> {
    /// Returns whether the figures are of `tune`, or of a preset: only these files state a latency. `tune` sends
    /// requests without a limit of its own, and measures each figure by itself and until a cache is full.
    fn is_measured(&self) -> bool {
        self.disk.properties.unloaded_latency_ns > 0
    }

    fn finding(&self, code: FindingCode, key: &str, message: String, remedy: impl Into<String>) -> Finding {
        Finding {
            code: variant_name(code),
            key: key.to_owned(),
            message,
            remedy: remedy.into(),
            mountpoint: self.disk.properties.mountpoints.join(":"),
            line: self.disk.line(key),
        }
    }
}

fn check(file_name: &str, file: LenientFile, options: &CheckOptions) -> CheckReport {
    let mut findings = file.findings;
    let subjects: Vec<Subject<'_>> = file.disks.iter().map(subject).collect();

    // Seastar's own tests use /dev/null, with figures that were never measured.
    let is_stand_in = |subject: &&Subject<'_>| subject.disk.properties.mountpoints == ["/dev/null"];
    for subject in subjects.iter().filter(|subject| !is_stand_in(subject)) {
        figures::check(subject, &mut findings);
        if options.beside != Beside::Nearest || !figures::is_volume_cap(&subject.figures) {
            sisters::check(subject, options.beside, &mut findings);
        }
        place::check(subject, &options.sys_root, &mut findings);
    }

    place::check_duplicates(&subjects, &mut findings);
    findings.sort_by_key(|finding| finding.line.unwrap_or(0));
    CheckReport { schema: SCHEMA, file: file_name.to_owned(), findings }
}

fn subject(disk: &LenientDisk) -> Subject<'_> {
    let properties = &disk.properties;
    let figures = Figures {
        read_iops: properties.read_iops,
        read_bandwidth_bytes_per_s: properties.read_bandwidth_bytes_per_s,
        write_iops: properties.write_iops,
        write_bandwidth_bytes_per_s: properties.write_bandwidth_bytes_per_s,
    };
    Subject { disk, figures }
}
