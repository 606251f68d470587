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

use plimsoll::core::{FourFigures, Rate};
use serde::{Deserialize, Serialize};

use crate::config::io_properties::{DiskProperties, MAX_FIGURE};

/// The present version of the JSON form.
pub const SCHEMA: u32 = 1;

/// The block of an ordinary IOPS figure, in bytes; see [`BlockSize`].
pub(super) const IOPS_BLOCK_BYTES: u32 = 4096;

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
    /// A phase was cut short, because no more may be written.
    MaxWrite,
}

/// Figures that were not measured, so that there are no io-properties.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not measured: {}; let the measurement run to its end", .names.join(", "))]
pub struct MissingFigures {
    /// Their names, as in an io-properties file; at least one.
    pub names: Vec<&'static str>,
}

impl TuneReport {
    /// The entry of an io-properties file: whole figures of at least 1. A write block above 4096 bytes becomes its
    /// `physical_block_size`, so that whoever reads the file knows at which size IOPS were measured.
    ///
    /// # Errors
    /// [`MissingFigures`] after an interrupted measurement.
    pub fn disk_properties(&self) -> Result<DiskProperties, MissingFigures> {
        let [read_iops, write_iops, read_bandwidth, write_bandwidth] = self.whole_figures()?;
        let block_bytes = self.write_block.bytes;
        Ok(DiskProperties {
            mountpoints: vec![self.mountpoint.clone()],
            read_iops,
            write_iops,
            read_bandwidth_bytes_per_s: read_bandwidth,
            write_bandwidth_bytes_per_s: write_bandwidth,
            read_saturation_bytes: None,
            write_saturation_bytes: None,
            physical_block_bytes: (block_bytes > IOPS_BLOCK_BYTES).then_some(u64::from(block_bytes)),
            duplex: false,
            rate_factor: 1.0,
        })
    }

    /// The figures as the scheduler takes them.
    ///
    /// # Errors
    /// [`MissingFigures`] after an interrupted measurement.
    pub fn four_figures(&self) -> Result<FourFigures, MissingFigures> {
        let [read_iops, write_iops, read_bandwidth, write_bandwidth] = self.whole_figures()?.map(Rate::per_second);
        Ok(FourFigures { read_iops, write_iops, read_bandwidth, write_bandwidth })
    }

    /// In the order read IOPS, write IOPS, read bandwidth, write bandwidth.
    fn whole_figures(&self) -> Result<[u64; 4], MissingFigures> {
        let figures = [
            ("read_iops", &self.read_iops),
            ("write_iops", &self.write_iops),
            ("read_bandwidth", &self.read_bandwidth),
            ("write_bandwidth", &self.write_bandwidth),
        ];
        let is_measured = |figure: &Figure| figure.value.is_finite() && figure.value > 0.0;
        let missing = figures.iter().filter(|(_, figure)| !figure.as_ref().is_some_and(is_measured));
        let names: Vec<&'static str> = missing.map(|(name, _)| *name).collect();
        if !names.is_empty() {
            return Err(MissingFigures { names });
        }
        let whole = |figure: &Option<Figure>| {
            figure.as_ref().map_or(1, |figure| (figure.value.round() as u64).clamp(1, MAX_FIGURE))
        };
        Ok(figures.map(|(_, figure)| whole(figure)))
    }
}
