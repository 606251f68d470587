//! Seastar's io-properties.yaml: the capacity of each disk, in four figures.
//!
//! **Why.** iotune writes this file, and every Seastar application reads it; with it, Plimsoll schedules the same disk
//! by the same figures. Seastar ignores unknown keys, so a misspelt one silently has no effect there; this reader
//! refuses it.
//!
//! **How.** [`parse`] takes YAML, JSON, or the inline form of `--io-properties`: all of them are YAML. Figures are
//! digits with an optional binary suffix, for operations too: `95k` is 97 280. [`write()`] prints plain integers and a
//! `disks:` list that Seastar reads unchanged.
//!
//! **Limits.** Figures from 1 to 10^15. Seastar itself takes at most eight disks; more give a warning here. Mount
//! points are compared as text, so two paths to the same device go unnoticed.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_properties::io_properties;
//! let text = "disks:
//!   - mountpoint: /var/lib/data
//!     read_iops: 95000
//!     read_bandwidth: 545M
//!     write_iops: 85000
//!     write_bandwidth: 510M
//! ";
//! let properties = io_properties::parse("io.yaml", text)?;
//! assert_eq!(properties.disks[0].read_bandwidth_bytes_per_s, 545 << 20);
//! # Ok::<(), plimsoll_properties::ConfigError>(())
//! ```

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::Path;

use plimsoll_core::CostForm;
use plimsoll_figures::units::{parse_io_properties_figure, quoted};

use super::depths::{self, DepthRate};
use super::error::{Code, ConfigError, Diagnostic, Source};
pub use super::fields::MAX_FIGURE;
use super::fields::{Field, Fields, Refused, Schema};
use super::yaml;

/// Most disks that Seastar configures (`max_queues` of its reactor).
pub const SEASTAR_MAX_DISKS: usize = 8;

/// The contents of an io-properties file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IoProperties {
    /// The disks, in the order of the file; at least one after [`parse`].
    pub disks: Vec<DiskProperties>,
    /// Remarks of the reader that refuse nothing.
    pub warnings: Vec<Diagnostic>,
}

/// The figures of one disk, as the file states them: `rate_factor` is not applied.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskProperties {
    /// Directories or block device nodes that share this disk; at least one.
    pub mountpoints: Vec<String>,
    /// Read operations per second, 1 to [`MAX_FIGURE`].
    pub read_iops: u64,
    /// Write operations per second, 1 to [`MAX_FIGURE`].
    pub write_iops: u64,
    /// Bytes read per second, 1 to [`MAX_FIGURE`].
    pub read_bandwidth_bytes_per_s: u64,
    /// Bytes written per second, 1 to [`MAX_FIGURE`].
    pub write_bandwidth_bytes_per_s: u64,
    /// Read size beyond which throughput no longer grows, at least 512 bytes; advisory.
    pub read_saturation_bytes: Option<u64>,
    /// Write size beyond which throughput no longer grows, at least 512 bytes; advisory.
    pub write_saturation_bytes: Option<u64>,
    /// Write alignment that replaces the one reported by the device: a power of two, 512 bytes to 1 MiB.
    pub physical_block_bytes: Option<u64>,
    /// Whether reads and writes are limited separately, each by its full rate. Default false.
    pub duplex: bool,
    /// Factor of the four figures; finite and above 0. Default 1.
    pub rate_factor: f64,
    /// Highest multiple of the figures that the scheduler may use if the disk turns out to carry more, 1 to 100.
    /// Default 1: the figures are a ceiling. Ours alone; Seastar ignores it. `tune` writes [`MEASURED_SCALE_MAX`],
    /// because a measurement shows the disk at one moment, and is no ceiling.
    pub capacity_scale_max: f64,
    /// How the figures make the cost of a request; `None` if the file does not say. Ours alone. `tune` writes `max` for
    /// a disk that limits operations and bytes apart, as cloud volumes do.
    pub form: Option<CostForm>,
    /// p of (r/R)^p + (w/W)^p = 1, by which reads and writes share the disk: above 0, infinite if they do not disturb
    /// each other. Default 1. Ours alone.
    pub mix_exponent_p: f64,
    /// Latency of a small read on the idle disk, in nanoseconds, at most a minute; 0, the default, if unknown. A disk
    /// that is far away needs more in flight. Ours alone.
    pub unloaded_latency_ns: u64,
    /// Rates of random reads of [`DiskProperties::block_bytes`], by rising depth; empty if not measured. Ours alone.
    pub read_depths: Vec<DepthRate>,
    /// Rates of random writes, as in `read_depths`.
    pub write_depths: Vec<DepthRate>,
    /// Names of those of the four figures that the measurement itself doubts; readers of the file warn of them. Default
    /// none. Ours alone.
    pub doubtful: Vec<String>,
}

/// Names of the four figures, as [`DiskProperties::doubtful`] has them.
pub const FIGURES: [&str; 4] = ["read_iops", "write_iops", "read_bandwidth", "write_bandwidth"];

impl DiskProperties {
    /// Returns the request length to which the IOPS refer: 4 KiB, or a longer physical block.
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        let physical_bytes = self.physical_block_bytes.and_then(|bytes| u32::try_from(bytes).ok());
        physical_bytes.unwrap_or(0).max(IOPS_BLOCK_BYTES)
    }
}

/// Request length of an ordinary IOPS figure, in bytes: readers of io-properties take IOPS for requests of this length,
/// unless the disk's physical block is larger.
pub const IOPS_BLOCK_BYTES: u32 = 4096;

/// The [`DiskProperties::capacity_scale_max`] of a measured disk. One disk carried 2.4 times the figures of a bad
/// moment.
pub const MEASURED_SCALE_MAX: f64 = 4.0;

/// The keys of the file itself.
pub const TOP_LEVEL: Schema = Schema {
    what: "an io-properties file",
    known: &["disks"],
    refused: &[Refused::of_other_format("disk", OF_DISK_FILE), Refused::of_other_format("device", OF_DISK_FILE)],
};

/// Help for a disk file that is given as an io-properties file.
const OF_DISK_FILE: &str = "this is a disk file, as `tune --disk-output` writes it: give it with --disk (io-properties \
                            have `disks`)";

/// The keys of one disk.
pub const DISK: Schema = Schema {
    what: "a disk",
    known: &crate::keys![
        mountpoint mountpoints read_iops write_iops read_bandwidth write_bandwidth read_saturation_length
        write_saturation_length physical_block_size duplex rate_factor capacity_scale_max model mix_exponent
        unloaded_latency_ns read_depths write_depths doubtful
    ],
    refused: &[
        Refused::obsolete("read_reqs_per_sec", "write `read_iops` (the name changed in 2018)"),
        Refused::obsolete("write_reqs_per_sec", "write `write_iops` (the name changed in 2018)"),
        Refused::obsolete("read_bytes_per_sec", "write `read_bandwidth` (the name changed in 2018)"),
        Refused::obsolete("write_bytes_per_sec", "write `write_bandwidth` (the name changed in 2018)"),
    ],
};

const FIGURE_HELP: &str = "all of read_iops, read_bandwidth, write_iops and write_bandwidth are needed: measure the \
                           disk, or copy the figures of a preset";

/// Reads the text of an io-properties file, or its inline form. `source_name` is used in messages only.
///
/// # Errors
/// With the line: unknown, obsolete, duplicate or missing keys, figures that are 0, above [`MAX_FIGURE`] or no figures,
/// a mount point named twice, templates and abridged samples.
pub fn parse(source_name: &str, text: &str) -> Result<IoProperties, ConfigError> {
    parse_source(&Source::new(source_name, text))
}

/// Reads an io-properties file from `path`.
///
/// # Errors
/// The errors of [`parse`], and [`Code::Unreadable`] if the file cannot be read.
pub fn parse_from_file(path: &Path) -> Result<IoProperties, ConfigError> {
    parse_source(&yaml::read_file(path)?)
}

fn parse_source(source: &Source) -> Result<IoProperties, ConfigError> {
    let root = yaml::parse(source)?;
    let help = "write `disks:` and, below it, one `- mountpoint: ...` entry per disk";
    let top = Fields::read(&Field::root(source, &root, help)?, &TOP_LEVEL)?;
    let disks_field = top.required("disks", help)?;
    let entries = disks_field.list()?;
    if entries.is_empty() {
        return Err(disks_field.error(Code::Empty, "there is no disk in the list").with_help(help));
    }

    let mut properties = IoProperties::default();
    let mut seen = HashSet::new();
    for entry in &entries {
        let disk = parse_disk(entry, &mut seen, &mut properties.warnings)?;
        properties.disks.push(disk);
    }

    if let Some(entry) = entries.get(SEASTAR_MAX_DISKS) {
        let message = format!("Seastar itself configures at most {SEASTAR_MAX_DISKS} disks");
        properties.warnings.push(entry.error(Code::OutOfRange, message).into_warning());
    }
    Ok(properties)
}

/// Reads one entry of `disks`. `seen` holds the mount points of the entries before it; remarks that refuse nothing are
/// added to `warnings`.
///
/// # Errors
/// The errors of [`parse`], for this entry.
pub fn parse_disk<'a>(
    entry: &Field<'a>,
    seen: &mut HashSet<&'a str>,
    warnings: &mut Vec<Diagnostic>,
) -> Result<DiskProperties, ConfigError> {
    let fields = Fields::read(entry, &DISK)?;
    let mountpoints = parse_mountpoints(&fields, seen, warnings)?;
    let rate_factor = fields.or("rate_factor", 1.0, parse_rate_factor)?;
    let figure = |key: &str| parse_figure(&fields.required(key, FIGURE_HELP)?, rate_factor);
    let length = |field: &Field<'_>| field.figure(parse_io_properties_figure, 512..=MAX_FIGURE, "bytes");

    Ok(DiskProperties {
        mountpoints,
        read_iops: figure("read_iops")?,
        write_iops: figure("write_iops")?,
        read_bandwidth_bytes_per_s: figure("read_bandwidth")?,
        write_bandwidth_bytes_per_s: figure("write_bandwidth")?,
        read_saturation_bytes: fields.optional("read_saturation_length", length)?,
        write_saturation_bytes: fields.optional("write_saturation_length", length)?,
        physical_block_bytes: fields.optional("physical_block_size", parse_block_size)?,
        duplex: fields.or("duplex", false, Field::boolean)?,
        rate_factor,
        capacity_scale_max: fields.or("capacity_scale_max", 1.0, parse_scale_max)?,
        form: fields.optional("model", cost_form)?,
        mix_exponent_p: fields.or("mix_exponent", 1.0, mix_exponent)?,
        unloaded_latency_ns: fields.or("unloaded_latency_ns", 0, Field::latency_ns)?,
        read_depths: depths::parse(&fields, "read_depths")?,
        write_depths: depths::parse(&fields, "write_depths")?,
        doubtful: parse_doubtful(&fields, warnings)?,
    })
}

/// Reads the names of doubtful figures, and warns of them.
fn parse_doubtful(fields: &Fields<'_>, warnings: &mut Vec<Diagnostic>) -> Result<Vec<String>, ConfigError> {
    let Some(list) = fields.get("doubtful") else { return Ok(Vec::new()) };
    let mut doubtful = Vec::new();
    for name in list.list()? {
        let text = name.text()?;
        if !FIGURES.contains(&text) {
            let error = name.error(Code::InvalidValue, format!("{} is none of the four figures", quoted(text)));
            return Err(error.with_help(format!("write names among {}", FIGURES.join(", "))));
        }
        doubtful.push(text.to_owned());
    }
    if !doubtful.is_empty() {
        let message = format!("the measurement itself doubts {}", doubtful.join(", "));
        let warning = list.error(Code::Doubtful, message);
        let help = "measure again with `plimsoll tune` while nothing else uses the disk";
        warnings.push(warning.with_help(help).into_warning());
    }
    Ok(doubtful)
}

/// Reads the mount points. `mountpoints` wins over `mountpoint`, as in Seastar.
fn parse_mountpoints<'a>(
    fields: &Fields<'a>,
    seen: &mut HashSet<&'a str>,
    warnings: &mut Vec<Diagnostic>,
) -> Result<Vec<String>, ConfigError> {
    let single = fields.get("mountpoint");
    let places = match fields.get("mountpoints") {
        Some(list) => {
            if let Some(single) = single {
                let warning = single.error(Code::Ignored, "`mountpoint` has no effect beside `mountpoints`");
                warnings
                    .push(warning.with_help("add the path to `mountpoints`, or remove one of the two").into_warning());
            }
            let places = list.list()?;
            if places.is_empty() {
                let error = list.error(Code::Empty, "there is no path in the list");
                return Err(error.with_help("name at least one directory or block device"));
            }
            places
        }
        None => vec![single.ok_or_else(|| fields.missing("mountpoint", "name a directory or block device"))?],
    };

    let mut mountpoints = Vec::with_capacity(places.len());
    for place in places {
        let path = place.text()?;
        if !seen.insert(path) {
            let error =
                place.error(Code::DuplicateName, format!("the mount point {} is configured twice", quoted(path)));
            return Err(error.with_help("keep one entry per disk; several paths of one disk go into `mountpoints`"));
        }
        mountpoints.push(path.to_owned());
    }
    Ok(mountpoints)
}

fn parse_figure(field: &Field<'_>, rate_factor: f64) -> Result<u64, ConfigError> {
    let figure = field.figure(parse_io_properties_figure, 1..=MAX_FIGURE, "per second")?;
    let effective = figure as f64 * rate_factor;
    if (1.0..=MAX_FIGURE as f64).contains(&effective) {
        return Ok(figure);
    }
    let message = format!("multiplied by rate_factor {rate_factor}, this figure is outside 1 to 10^15");
    Err(field.error(Code::OutOfRange, message).with_help("change rate_factor, or the figure"))
}

fn parse_rate_factor(field: &Field<'_>) -> Result<f64, ConfigError> {
    let text = field.text()?;
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'-' | b'+'));
    match text.parse::<f64>() {
        Ok(factor) if plain && factor.is_finite() && factor > 0.0 => Ok(factor),
        _ => {
            let error = field.error(Code::InvalidValue, format!("{} is not a factor", quoted(text)));
            Err(error.with_help("write a number above 0, such as 0.9"))
        }
    }
}

fn parse_scale_max(field: &Field<'_>) -> Result<f64, ConfigError> {
    let factor = parse_rate_factor(field)?;
    if (1.0..=100.0).contains(&factor) {
        return Ok(factor);
    }
    let error = field.error(Code::OutOfRange, format!("a capacity scale of {factor} at the most is outside 1 to 100"));
    Err(error.with_help("write 1 to keep to the figures, or how many times of them the disk may be given, such as 1.5"))
}

/// Reads a cost form by its name.
///
/// # Errors
/// There is no such form.
pub fn cost_form(field: &Field<'_>) -> Result<CostForm, ConfigError> {
    let names = CostForm::ALL.map(CostForm::name);
    field.text()?.parse().map_err(|_| field.not_one_of("a cost form", &names))
}

/// Reads a mix exponent: a number above 0, or `infinite`.
///
/// # Errors
/// The value is neither.
pub fn mix_exponent(field: &Field<'_>) -> Result<f64, ConfigError> {
    if field.text()? == "infinite" {
        return Ok(f64::INFINITY);
    }
    field.number(|p| p > 0.0, "above 0, or `infinite` where reads and writes do not disturb each other")
}

/// Returns the text that [`mix_exponent`] reads as p.
#[must_use]
pub fn mix_exponent_text(p: f64) -> String {
    if p.is_infinite() { "infinite".to_owned() } else { p.to_string() }
}

fn parse_block_size(field: &Field<'_>) -> Result<u64, ConfigError> {
    let bytes = field.figure(parse_io_properties_figure, 512..=1 << 20, "bytes")?;
    if bytes.is_power_of_two() {
        return Ok(bytes);
    }
    let error = field.error(Code::OutOfRange, format!("{bytes} bytes is not a power of two"));
    Err(error.with_help("write 512, 4096, 16384 or another power of two"))
}

/// Prints disks as a file that [`parse`] and Seastar read: plain integers, no suffixes, no defaults.
#[must_use]
pub fn write(disks: &[DiskProperties]) -> String {
    let mut text = String::from("disks:\n");
    for disk in disks {
        write_disk(&mut text, disk);
    }
    text
}

fn write_disk(text: &mut String, disk: &DiskProperties) {
    match disk.mountpoints.as_slice() {
        [mountpoint] => {
            let _ = writeln!(text, "  - mountpoint: {}", path_text(mountpoint));
        }
        mountpoints => {
            text.push_str("  - mountpoints:\n");
            for mountpoint in mountpoints {
                let _ = writeln!(text, "      - {}", path_text(mountpoint));
            }
        }
    }

    let mut line = |key: &str, value: String| {
        let _ = writeln!(text, "    {key}: {value}");
    };
    line("read_iops", disk.read_iops.to_string());
    line("read_bandwidth", disk.read_bandwidth_bytes_per_s.to_string());
    line("write_iops", disk.write_iops.to_string());
    line("write_bandwidth", disk.write_bandwidth_bytes_per_s.to_string());

    let optional = [
        ("read_saturation_length", disk.read_saturation_bytes),
        ("write_saturation_length", disk.write_saturation_bytes),
        ("physical_block_size", disk.physical_block_bytes),
    ];
    for (key, value) in optional {
        if let Some(value) = value {
            line(key, value.to_string());
        }
    }

    if disk.duplex {
        line("duplex", "true".to_owned());
    }
    if disk.rate_factor != 1.0 {
        line("rate_factor", disk.rate_factor.to_string());
    }
    if disk.capacity_scale_max != 1.0 {
        line("capacity_scale_max", disk.capacity_scale_max.to_string());
    }
    if let Some(form) = disk.form {
        line("model", form.to_string());
    }
    if disk.mix_exponent_p != 1.0 {
        line("mix_exponent", mix_exponent_text(disk.mix_exponent_p));
    }
    if disk.unloaded_latency_ns > 0 {
        line("unloaded_latency_ns", disk.unloaded_latency_ns.to_string());
    }
    for (key, curve) in [("read_depths", &disk.read_depths), ("write_depths", &disk.write_depths)] {
        if !curve.is_empty() {
            line(key, depths::text(curve));
        }
    }
    if !disk.doubtful.is_empty() {
        line("doubtful", format!("[{}]  # by the measurement itself: measure again", disk.doubtful.join(", ")));
    }
}

/// Returns a path as a YAML scalar: plain if that is safe, otherwise in double quotes with escapes.
fn path_text(path: &str) -> String {
    let plain = path.starts_with('/')
        && path.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'.' | b'_' | b'-'));
    if plain {
        return path.to_owned();
    }
    yaml::quoted_scalar(path)
}
