//! Measures what the disk under a directory can carry: two rates of operations, two of bytes.
//!
//! # Why
//! A scheduler that loads a disk up to its line must know the line. These are the figures of Seastar's io-properties,
//! each with its spread and with all that makes one doubt it.
//!
//! # How it works
//! [`measure`] makes one scratch file a shard (removed again, whatever happens) and uses all shards in every phase:
//! 1. write the files full, past the page cache, with data that does not compress;
//! 2. sequential writes, then sequential reads, 1 MiB each: the bandwidths;
//! 3. random writes, then random reads, of the block size that [`TuneReport`] explains: the IOPS;
//! 4. one read, then one write, at a time: the latency of an idle disk.
//!
//! Each figure begins with a search for the smallest depth that gets (nearly) the most; see [`Figure`].
//! [`TuneReport::disk_properties`] makes the entry for [`crate::config::io_properties::write`] of it.
//!
//! # Limits
//! Reads and writes are measured apart, never mixed. Scratch data that fits into a cache of the disk, or of the machine
//! that a virtual disk is on, measures the cache: give more of it ([`TuneOptions::data_bytes`]). Burst credits and
//! garbage collection need longer phases than the default of 20 s; the report warns where a rate was still changing.
//! The backends null and memory measure this program, not a disk.
//!
//! # Example
//! ```
//! use plimsoll::backend::choose::BackendKind;
//! use plimsoll_tools::config::io_properties;
//! use plimsoll_tools::load::Control;
//! use plimsoll_tools::tune::{TuneOptions, measure};
//!
//! let mut options = TuneOptions::quick(std::env::temp_dir());
//! // A real measurement leaves these four lines out.
//! options.backend = Some(BackendKind::Null);
//! options.shards = 1;
//! options.data_bytes = 8 << 20;
//! options.phase_s = Some(0.01);
//! let report = measure(&options, &mut (), &Control::default())?;
//! let yaml = io_properties::write(&[report.disk_properties()?]);
//! assert!(yaml.contains("read_iops: "));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod bench;
mod budget;
mod place;
mod report;
mod series;

use std::io;
use std::path::PathBuf;
use std::time::Instant;

use plimsoll::backend::choose::{BackendKind, Choice, OpenBackendError, probe};
use plimsoll::backend::{AlignSource, FileInfo, OpenOptions};
use plimsoll::{Classes, DiskSetup, ShardOptions, Topology, TopologyError};

use crate::load::{Control, LoadError, Pattern, Scratch, ScratchError};
use crate::units::format_bytes_binary;
use bench::{Aim, Bench, FILE_MIN_BYTES, SEQUENTIAL_BYTES, Schedule, ScratchFile};
use budget::WriteBudget;
use place::Place;

pub use report::{
    Backend, BlockSize, Device, Figure, IOPS_BLOCK_BYTES, Leaf, MissingCause, MissingFigures, Probe, SCHEMA,
    TuneReport, Unit, UnloadedLatency, Warning, WarningCode,
};

/// What [`measure`] needs to write beyond the scratch data, in bytes.
const MEASURE_MIN_BYTES: u64 = 256 << 20;

/// What to measure, and how.
#[derive(Clone, Debug)]
pub struct TuneOptions {
    /// The directory whose disk is measured.
    pub directory: PathBuf,
    /// Backend; `None` takes the best that the machine allows.
    pub backend: Option<BackendKind>,
    /// Shards, at least 1; each is a thread with a CPU of its own, and all of them work in every phase.
    pub shards: u16,
    /// Half a minute instead of two and a half.
    pub quick: bool,
    /// Size of random reads: a power of two, 512 bytes to 1 MiB. `None`: 4096, or more where the disk works in more.
    pub read_block_bytes: Option<u32>,
    /// The same for random writes.
    pub write_block_bytes: Option<u32>,
    /// Scratch data in all, at least 4 MiB for each shard.
    pub data_bytes: u64,
    /// Never write more than this, scratch data included; at least 256 MiB above `data_bytes`.
    pub max_write_bytes: Option<u64>,
    /// Measured length of each figure in seconds, 0.001 to 86 400. `None`: 20, or 3 if `quick`.
    pub phase_s: Option<f64>,
    /// Seed of positions and data.
    pub seed: u64,
}

impl TuneOptions {
    /// The full measurement, at most two and a half minutes: 20 s for each figure, 8 GiB of scratch data, a shard on
    /// every CPU that the process may use.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>) -> TuneOptions {
        let cpus = plimsoll::sys::pin::allowed_cpus().map_or(1, |cpus| cpus.len());
        TuneOptions {
            directory: directory.into(),
            backend: None,
            shards: u16::try_from(cpus).unwrap_or(u16::MAX).max(1),
            quick: false,
            read_block_bytes: None,
            write_block_bytes: None,
            data_bytes: 8 << 30,
            max_write_bytes: None,
            phase_s: None,
            seed: 1,
        }
    }

    /// The short one, at most half a minute: 3 s for each figure, 2 GiB of scratch data.
    #[must_use]
    pub fn quick(directory: impl Into<PathBuf>) -> TuneOptions {
        TuneOptions { quick: true, data_bytes: 2 << 30, ..TuneOptions::new(directory) }
    }

    fn schedule(&self) -> Schedule {
        let usual = if self.quick {
            Schedule { fill_max_s: 3.0, probe_s: 0.25, phase_s: 3.0, latency_s: 0.75 }
        } else {
            Schedule { fill_max_s: 25.0, probe_s: 0.6, phase_s: 20.0, latency_s: 3.0 }
        };
        let Some(phase_s) = self.phase_s else { return usual };
        Schedule {
            probe_s: usual.probe_s.min(phase_s / 8.0),
            phase_s,
            latency_s: usual.latency_s.min(phase_s),
            ..usual
        }
    }

    fn check(&self) -> Result<(), TuneError> {
        let bad = |option, reason: String| Err(TuneError::Option { option, reason });
        if self.shards == 0 {
            return bad("--shards", "at least one shard is needed".to_owned());
        }
        if let Some(phase_s) = self.phase_s
            && !(0.001..=86_400.0).contains(&phase_s)
        {
            return bad("--phase", format!("{phase_s} s is not from 0.001 s to a day"));
        }
        let data_min_bytes = u64::from(self.shards) * FILE_MIN_BYTES;
        if self.data_bytes < data_min_bytes {
            let least = format_bytes_binary(data_min_bytes);
            return bad("--data-size", format!("{} shards need at least {least}", self.shards));
        }
        let needed_bytes = self.data_bytes.saturating_add(MEASURE_MIN_BYTES);
        match self.max_write_bytes {
            Some(max_write_bytes) if max_write_bytes < needed_bytes => {
                Err(TuneError::MaxWrite { needed_bytes, max_write_bytes })
            }
            _ => Ok(()),
        }
    }

    /// Whether the backend touches no disk.
    fn is_in_memory(&self) -> bool {
        crate::setup::is_in_memory(self.backend)
    }
}

/// Hears how a measurement goes. `()` ignores it all.
pub trait Observer {
    /// A phase begins. `expected_s` is about how long it takes, in seconds.
    fn on_phase(&mut self, name: &str, expected_s: f64) {
        let _ = (name, expected_s);
    }

    /// Part of the present phase that is done, 0 to 1.
    fn on_progress(&mut self, fraction: f64) {
        let _ = fraction;
    }

    /// Something for the user to read: a figure as it comes, a warning. One line.
    fn on_note(&mut self, text: &str) {
        let _ = text;
    }
}

impl Observer for () {}

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TuneError {
    /// An option makes no sense, here or anywhere.
    #[error("{option}: {reason}")]
    Option {
        /// Its name on the command line.
        option: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// Too little may be written.
    #[error(
        "a measurement writes at least {}, more than --max-write {}: allow more, or set a smaller --data-size",
        format_bytes_binary(*.needed_bytes), format_bytes_binary(*.max_write_bytes)
    )]
    MaxWrite {
        /// What is needed, in bytes.
        needed_bytes: u64,
        /// What is allowed, in bytes.
        max_write_bytes: u64,
    },
    /// The directory or the files in it: not a directory, no space, read-only.
    #[error(transparent)]
    Scratch(#[from] ScratchError),
    /// The backend is not to be had.
    #[error(transparent)]
    Backend(#[from] OpenBackendError),
    /// The scratch files cannot be used, as where direct I/O is refused.
    #[error(transparent)]
    Open(io::Error),
    /// Impossible shards.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// A run could not begin, or broke.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Requests failed.
    #[error("{phase}: {errors} requests failed, the first with: {reason}")]
    Io {
        /// What was being done.
        phase: &'static str,
        /// How many failed.
        errors: u64,
        /// Why the first did.
        reason: String,
    },
    /// Not one request came back.
    #[error("{phase}: no request came back in {seconds:.1} s: is the disk stuck? The kernel log may say more")]
    Silent {
        /// What was being done.
        phase: &'static str,
        /// How long it was waited, in seconds.
        seconds: f64,
    },
}

impl TuneError {
    /// `first` is an error number; 0 or none for a transfer that came back short.
    fn io(phase: &'static str, errors: u64, first: Option<i32>) -> TuneError {
        let reason = match first {
            Some(number) if number != 0 => io::Error::from_raw_os_error(number).to_string(),
            _ => "it moved fewer bytes than asked; is the file system full?".to_owned(),
        };
        TuneError::Io { phase, errors, reason }
    }
}

/// Measures the disk under `options.directory`.
///
/// When `control` says stop, what was measured by then is the result, marked as interrupted. The scratch files are
/// removed in any case.
///
/// # Errors
/// See [`TuneError`].
pub fn measure(options: &TuneOptions, observer: &mut dyn Observer, control: &Control) -> Result<TuneReport, TuneError> {
    let begin = Instant::now();
    options.check()?;
    let mut place = Place::find(&options.directory)?;
    let is_in_memory = options.is_in_memory();
    if is_in_memory {
        place.device = None;
    }
    let topology = Topology::new(options.shards, Classes::new(), vec![DiskSetup::unlimited()])?;
    // Removes the files when this function ends, which is after every run has ended.
    let mut scratch = None;
    if !is_in_memory {
        scratch = Some(Scratch::new(&place.directory, options.data_bytes)?);
    }
    let files = make_files(options, &topology, scratch.as_mut(), &place)?;
    let shard_options = ShardOptions { backend: options.backend, ..ShardOptions::default() };
    let (choice, info) = look(options, &shard_options, &files)?;
    let align_bytes = info.offset_align_bytes;
    let mut report = blank_report(options, &place, choice, align_bytes)?;
    observer.on_note(&format!("random reads of {} bytes ({})", report.read_block.bytes, report.read_block.how));
    observer.on_note(&format!("random writes of {} bytes ({})", report.write_block.bytes, report.write_block.how));
    let mut bench = Bench {
        topology,
        shard_options,
        files,
        schedule: options.schedule(),
        seed: options.seed,
        control,
        observer,
        writes: WriteBudget::new(options.max_write_bytes),
        warnings: Vec::new(),
        phase: ("", begin, 0.0),
    };
    if !is_in_memory {
        place::warnings(&place, &info).into_iter().for_each(|warning| bench.warn(warning.code, warning.message));
    }
    report.block_warnings().into_iter().for_each(|warning| bench.warn(warning.code, warning.message));
    measure_all(&mut bench, &mut report, align_bytes, is_in_memory)?;
    report.data_bytes = bench.files.iter().map(|file| file.len_bytes).sum();
    report.written_bytes = bench.writes.written_bytes();
    report.warnings = std::mem::take(&mut bench.warnings);
    report.interrupted = control.is_stopped();
    report.duration_s = begin.elapsed().as_secs_f64();
    Ok(report)
}

/// A report with everything that is known before measuring.
fn blank_report(
    options: &TuneOptions,
    place: &Place,
    choice: Choice,
    align_bytes: u32,
) -> Result<TuneReport, TuneError> {
    let device = place.device.as_ref();
    Ok(TuneReport {
        schema: SCHEMA,
        directory: place.directory.display().to_string(),
        mountpoint: place.mountpoint.clone(),
        file_system: place.file_system.clone(),
        device: place.device.clone(),
        backend: Backend { name: choice.kind.name().to_owned(), reason: choice.reason },
        shards: options.shards,
        data_bytes: 0,
        seed: options.seed,
        read_block: place::block_size("--read-block-size", options.read_block_bytes, align_bytes, device)?,
        write_block: place::block_size("--write-block-size", options.write_block_bytes, align_bytes, device)?,
        read_iops: None,
        write_iops: None,
        read_bandwidth: None,
        write_bandwidth: None,
        read_latency: None,
        write_latency: None,
        written_bytes: 0,
        duration_s: 0.0,
        warnings: Vec::new(),
        interrupted: false,
    })
}

/// A file for each shard, all of the same length.
fn make_files(
    options: &TuneOptions,
    topology: &Topology,
    mut scratch: Option<&mut Scratch>,
    place: &Place,
) -> Result<Vec<ScratchFile>, TuneError> {
    let block_bytes = u64::from(SEQUENTIAL_BYTES);
    let len_bytes = options.data_bytes / u64::from(options.shards) / block_bytes * block_bytes;
    let make = |shard: u16| {
        let name = format!("plimsoll-tune-{shard}");
        let path = match &mut scratch {
            Some(scratch) => scratch.create(&name)?,
            None => place.directory.join(name),
        };
        let create_new = options.backend == Some(BackendKind::Memory);
        let how = OpenOptions { write: true, direct: true, create_new, ..OpenOptions::default() };
        let file = topology.file(&path, how, 0);
        Ok(ScratchFile { path, file, len_bytes, cursor_bytes: 0 })
    };
    (0..options.shards).map(make).collect()
}

/// The backend that will be used, and what it says of the scratch files.
fn look(
    options: &TuneOptions,
    shard_options: &ShardOptions,
    files: &[ScratchFile],
) -> Result<(Choice, FileInfo), TuneError> {
    let (mut backend, choice) = probe(options.backend, shard_options.entries)?;
    if let Some(file) = files.first().filter(|_| !options.is_in_memory()) {
        let how = OpenOptions { write: true, direct: true, ..OpenOptions::default() };
        let (_, info) = backend.open(&file.path, &how).map_err(TuneError::Open)?;
        return Ok((choice, info));
    }
    let info = FileInfo {
        len_bytes: 0,
        memory_align_bytes: 1,
        offset_align_bytes: 1,
        align_source: AlignSource::NotNeeded,
        is_block_device: false,
        device: 0,
    };
    Ok((choice, info))
}

/// All phases in their order, each unless a stop was asked for before.
fn measure_all(
    bench: &mut Bench<'_>,
    report: &mut TuneReport,
    align_bytes: u32,
    is_in_memory: bool,
) -> Result<(), TuneError> {
    bench.fill()?;
    if !is_in_memory {
        settle(bench)?;
    }
    let disks = report.device.as_ref().map_or(1, |device| device.leaves.len() as u32).clamp(1, 64);
    let bandwidth = |name, pattern| Aim {
        name,
        pattern,
        block_bytes: SEQUENTIAL_BYTES,
        unit: Unit::BytesPerS,
        depths: (4, 32),
        depth_max: 64 * disks,
        depth_default: 16,
        reserve_part: 0.4,
    };
    let iops = |name, pattern, block_bytes| Aim {
        name,
        pattern,
        block_bytes,
        unit: Unit::OperationsPerS,
        depths: (16, 256),
        depth_max: 1024 * disks,
        depth_default: 64,
        reserve_part: 0.1,
    };
    // 4 KiB whatever the disk works in, so that latencies of different disks compare.
    let latency_bytes = align_bytes.max(IOPS_BLOCK_BYTES);
    let latency = |name, pattern| Aim { reserve_part: 0.0, ..iops(name, pattern, latency_bytes) };
    let (read_bytes, write_bytes) = (report.read_block.bytes, report.write_block.bytes);
    let figures = [
        (bandwidth("sequential write", Pattern::Overwrite), &mut report.write_bandwidth),
        (bandwidth("sequential read", Pattern::SeqRead), &mut report.read_bandwidth),
        (iops("random write", Pattern::RandWrite, write_bytes), &mut report.write_iops),
        (iops("random read", Pattern::RandRead, read_bytes), &mut report.read_iops),
    ];
    for (aim, figure) in figures {
        if bench.control.is_stopped() {
            return Ok(());
        }
        *figure = bench.figure(&aim)?;
    }
    let latencies = [
        (latency("one read at a time", Pattern::RandRead), &mut report.read_latency),
        (latency("one write at a time", Pattern::RandWrite), &mut report.write_latency),
    ];
    for (aim, result) in latencies {
        if bench.control.is_stopped() {
            return Ok(());
        }
        *result = bench.latency(&aim)?;
    }
    Ok(())
}

/// Makes the files durable: the file system then has nothing left to write about them while they are measured.
fn settle(bench: &Bench<'_>) -> Result<(), TuneError> {
    for file in &bench.files {
        let synced = std::fs::File::open(&file.path).and_then(|file| file.sync_all());
        synced.map_err(TuneError::Open)?;
    }
    Ok(())
}
