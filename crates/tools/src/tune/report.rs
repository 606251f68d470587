//! What a measurement found, and the io-properties that follow from it.
//!
//! # Why
//! Raw results are files: a report keeps every sample and how it came about, so that it can be judged again without
//! the disk.
//!
//! # How it works
//! Plain data. As JSON the field names are the names here, enums are `snake_case` texts, and what was not measured is
//! `null`. [`TuneReport::schema`] rises when a field changes its meaning or goes; new fields do not raise it.
//!
//! # Limits
//! One directory, one disk (or array).
//!
//! # Example
//! ```
//! use plimsoll_tools::tune::Figure;
//! let json = r#"{"value": 95000.5, "unit": "operations_per_s", "deviation_pct": 1.5, "samples": [95000.5],
//!     "sample_s": 1.0, "depth": 64, "block_bytes": 4096, "probes": [], "cpu_busy_pct": 30.0, "complete": true}"#;
//! let figure: Figure = serde_json::from_str(json)?;
//! assert_eq!((figure.depth, figure.value.round()), (64, 95001.0));
//! # Ok::<(), serde_json::Error>(())
//! ```

use std::fmt::{self, Write as _};

use plimsoll::core::{FourFigures, Rate};
use serde::{Deserialize, Serialize};

use super::place;
use crate::config::io_properties::{DiskProperties, MAX_FIGURE, MEASURED_SCALE_MAX};

/// The present version of the JSON form.
pub const SCHEMA: u32 = 1;

/// The block of an ordinary IOPS figure, in bytes: readers of io-properties take IOPS for requests of this size, unless
/// the disk's physical block is larger.
pub const IOPS_BLOCK_BYTES: u32 = 4096;

/// Everything that one measurement found. See the module's documentation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TuneReport {
    /// Version of this form: [`SCHEMA`].
    pub schema: u32,
    /// The directory, with links followed.
    pub directory: String,
    /// Where its file system is mounted.
    pub mountpoint: String,
    /// Kind of the file system: `ext4`, `xfs`.
    pub file_system: String,
    /// The block device; `null` where the kernel shows none (tmpfs, network) or none was used (backends null, memory).
    pub device: Option<Device>,
    /// What carried the I/O.
    pub backend: Backend,
    /// How many shards worked.
    pub shards: u16,
    /// Bytes of scratch data that the requests went to, all shards together.
    pub data_bytes: u64,
    /// Seed of positions and data.
    pub seed: u64,
    /// Size of the random reads.
    pub read_block: BlockSize,
    /// Size of the random writes.
    pub write_block: BlockSize,
    /// Random reads a second of `read_block` bytes.
    pub read_iops: Option<Figure>,
    /// Random writes a second of `write_block` bytes.
    pub write_iops: Option<Figure>,
    /// Bytes a second of sequential reads.
    pub read_bandwidth: Option<Figure>,
    /// Bytes a second of sequential writes.
    pub write_bandwidth: Option<Figure>,
    /// Latency of one random read at a time.
    pub read_latency: Option<UnloadedLatency>,
    /// Latency of one random write at a time.
    pub write_latency: Option<UnloadedLatency>,
    /// Bytes written to the disk, scratch data included.
    pub written_bytes: u64,
    /// How long it all took, in seconds.
    pub duration_s: f64,
    /// What may be wrong with the figures.
    pub warnings: Vec<Warning>,
    /// Whether it was stopped before its end; the figures are then what there was until then.
    pub interrupted: bool,
}

/// The block device of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// The device that is mounted: `nvme0n1p1`, `md0`.
    pub name: String,
    /// The whole disk that it is on.
    pub disk: String,
    /// The disks at the bottom of it.
    pub leaves: Vec<Leaf>,
}

/// One physical disk (as far as the kernel knows) and its settings; `null` where the kernel does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leaf {
    /// `nvme0n1`.
    pub name: String,
    /// Active elevator.
    pub scheduler: Option<String>,
    /// Requests that a hardware queue holds.
    pub nr_requests: Option<u64>,
    /// Physical block in bytes.
    pub physical_block_bytes: Option<u64>,
    /// Logical block in bytes.
    pub logical_block_bytes: Option<u64>,
    /// Largest request that goes out in one piece, in bytes.
    pub max_request_bytes: Option<u64>,
    /// `write back` or `write through`.
    pub write_cache: Option<String>,
    /// 0: merges; 1: simple merges; 2: none.
    pub nomerges: Option<u64>,
    /// Whether it spins.
    pub rotational: Option<bool>,
}

/// What carried the I/O.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backend {
    /// Its name, as on the command line.
    pub name: String,
    /// Why this one.
    pub reason: String,
}

/// A request size, and how it was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockSize {
    /// Bytes: a power of two, 512 to 1 MiB.
    pub bytes: u32,
    /// `kernel: physical block 512, so 4096`, or what it falls back to and why.
    pub how: String,
}

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Operations a second.
    OperationsPerS,
    /// Bytes a second.
    BytesPerS,
}

/// One of the four figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The rate over all samples, above 0.
    pub value: f64,
    /// Its unit, and that of `samples` and `probes`.
    pub unit: Unit,
    /// Standard deviation of the samples in per cent of their mean.
    pub deviation_pct: f64,
    /// The rate in each sample, in order; at least one.
    pub samples: Vec<f64>,
    /// Length of a sample in seconds.
    pub sample_s: f64,
    /// Requests under way, all shards together.
    pub depth: u32,
    /// Length of a request in bytes.
    pub block_bytes: u32,
    /// The search for the depth; empty where there was none.
    pub probes: Vec<Probe>,
    /// CPU use of the busiest shard, in per cent of one CPU.
    pub cpu_busy_pct: f64,
    /// False when the phase ended before its time (interrupted, or no more may be written).
    pub complete: bool,
}

impl Figure {
    /// All that [`TuneReport::to_csv`] writes of it behind its name.
    fn csv_fields(&self) -> String {
        let unit = match self.unit {
            Unit::OperationsPerS => "operations_per_s",
            Unit::BytesPerS => "bytes_per_s",
        };
        format!("{:.1},{unit},{:.2},{},{}", self.value, self.deviation_pct, self.block_bytes, self.depth)
    }
}

/// A short measurement at one depth.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// Requests under way, all shards together.
    pub depth: u32,
    /// The rate, in the unit of the figure.
    pub rate: f64,
}

/// Latency of one request at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnloadedLatency {
    /// Half of the requests took no longer, in nanoseconds.
    pub p50_ns: u64,
    /// 99 of 100 took no longer, in nanoseconds.
    pub p99_ns: u64,
    /// How many requests were measured, at least 1.
    pub requests: u64,
    /// Length of a request in bytes.
    pub block_bytes: u32,
}

/// Something that may be wrong with the figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// What kind.
    pub code: WarningCode,
    /// What, where, and what to do. One line.
    pub message: String,
}

/// Kinds of [`Warning`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WarningCode {
    /// The kernel schedules requests too.
    Elevator,
    /// The device has a volatile cache that acknowledges writes.
    WriteCache,
    /// The kernel may merge neighbouring requests.
    Merges,
    /// A spinning disk: four figures describe it badly.
    Rotational,
    /// The kernel does not describe the disk.
    UnknownDevice,
    /// Direct I/O alignment had to be assumed.
    AssumedAlignment,
    /// A shard was busy, so the figure is rather that of the CPU.
    CpuLimited,
    /// The samples scatter.
    Deviation,
    /// The rate was still changing at the end.
    StillChanging,
    /// Less scratch data than asked for was written, because the disk is slow.
    LessData,
    /// A phase was cut short, or left out, because no more may be written.
    MaxWrite,
    /// IOPS were measured at a size that io-properties cannot tell.
    BlockSize,
}

/// Figures that were not measured, so that there are no io-properties.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not measured: {}; {cause}", .names.join(", "))]
pub struct MissingFigures {
    /// Their names, as in an io-properties file; at least one.
    pub names: Vec<&'static str>,
    /// Why they are missing.
    pub cause: MissingCause,
}

/// Why figures were not measured. As text it says what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingCause {
    /// The measurement ended before its time.
    Unfinished,
    /// The measurement came to its end, but no more could be written: [`super::TuneOptions::max_write_bytes`].
    MaxWrite,
}

impl fmt::Display for MissingCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MissingCause::Unfinished => "let the measurement run to its end",
            MissingCause::MaxWrite => "--max-write left too little for them: allow more, or set a smaller --data-size",
        })
    }
}

impl TuneReport {
    /// The entry of an io-properties file: whole figures of at least 1. `physical_block_size` is in it where the kernel
    /// gives a block above 4096 bytes and random writes were measured at it; a size that only the user chose is not.
    ///
    /// # Errors
    /// [`MissingFigures`] when the measurement was interrupted, or too little could be written.
    pub fn disk_properties(&self) -> Result<DiskProperties, MissingFigures> {
        let [read_iops, write_iops, read_bandwidth, write_bandwidth] = self.whole_figures()?;
        Ok(DiskProperties {
            mountpoints: vec![self.mountpoint.clone()],
            read_iops,
            write_iops,
            read_bandwidth_bytes_per_s: read_bandwidth,
            write_bandwidth_bytes_per_s: write_bandwidth,
            read_saturation_bytes: None,
            write_saturation_bytes: None,
            physical_block_bytes: self.physical_block_bytes().map(u64::from),
            duplex: false,
            rate_factor: 1.0,
            capacity_scale_max: MEASURED_SCALE_MAX,
        })
    }

    /// The disk's own block, where it is larger than usual and random writes were measured at it.
    fn physical_block_bytes(&self) -> Option<u32> {
        let bytes = place::physical_block_bytes(self.device.as_ref())?;
        (bytes > IOPS_BLOCK_BYTES && bytes == self.write_block.bytes).then_some(bytes)
    }

    /// A warning for each IOPS figure whose block is not the one that readers of io-properties take it for.
    pub(super) fn block_warnings(&self) -> Vec<Warning> {
        let taken_for_bytes = self.physical_block_bytes().unwrap_or(IOPS_BLOCK_BYTES);
        let blocks = [("read_iops", &self.read_block), ("write_iops", &self.write_block)];
        let others = blocks.into_iter().filter(|(_, block)| block.bytes != taken_for_bytes);
        let warning = |(name, block): (&str, &BlockSize)| Warning {
            code: WarningCode::BlockSize,
            message: format!(
                "{name} holds for requests of {} bytes only ({}): readers of io-properties take it for \
                 {taken_for_bytes} bytes",
                block.bytes, block.how
            ),
        };
        others.map(warning).collect()
    }

    /// The four figures as CSV, with a header; what was not measured has a line with empty fields.
    #[must_use]
    pub fn to_csv(&self) -> String {
        let mut out = String::from("figure,value,unit,deviation_pct,block_bytes,depth\n");
        for (name, figure) in self.figures() {
            let line = figure.as_ref().map_or_else(|| ",,,,".to_owned(), Figure::csv_fields);
            // Writing to a text cannot fail.
            let _ = writeln!(out, "{name},{line}");
        }
        out
    }

    /// The figures as the scheduler takes them.
    ///
    /// # Errors
    /// [`MissingFigures`] when the measurement was interrupted, or too little could be written.
    pub fn four_figures(&self) -> Result<FourFigures, MissingFigures> {
        let [read_iops, write_iops, read_bandwidth, write_bandwidth] = self.whole_figures()?.map(Rate::per_second);
        Ok(FourFigures { read_iops, write_iops, read_bandwidth, write_bandwidth })
    }

    /// The four figures and their names in io-properties, in the order of those.
    fn figures(&self) -> [(&'static str, &Option<Figure>); 4] {
        [
            ("read_iops", &self.read_iops),
            ("write_iops", &self.write_iops),
            ("read_bandwidth", &self.read_bandwidth),
            ("write_bandwidth", &self.write_bandwidth),
        ]
    }

    fn missing_cause(&self) -> MissingCause {
        let is_bounded = self.warnings.iter().any(|warning| warning.code == WarningCode::MaxWrite);
        if is_bounded && !self.interrupted { MissingCause::MaxWrite } else { MissingCause::Unfinished }
    }

    /// In the order of [`TuneReport::figures`].
    fn whole_figures(&self) -> Result<[u64; 4], MissingFigures> {
        let figures = self.figures();
        let is_measured = |figure: &Figure| figure.value.is_finite() && figure.value > 0.0;
        let missing = figures.iter().filter(|(_, figure)| !figure.as_ref().is_some_and(is_measured));
        let names: Vec<&'static str> = missing.map(|(name, _)| *name).collect();
        if !names.is_empty() {
            return Err(MissingFigures { names, cause: self.missing_cause() });
        }
        let whole = |figure: &Option<Figure>| {
            figure.as_ref().map_or(1, |figure| (figure.value.round() as u64).clamp(1, MAX_FIGURE))
        };
        Ok(figures.map(|(_, figure)| whole(figure)))
    }
}
