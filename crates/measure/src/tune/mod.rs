//! Measures the limits of the disk under a directory: two rates of operations, two rates of bytes.
//!
//! **Why.** A scheduler that loads a disk up to its limit must know the limit. These are the figures of Seastar's
//! io-properties, each with its spread and with every reason to doubt it.
//!
//! **How.** Four independent steps: a *protocol* puts loads on a *rig* (a disk of this machine through [`measure`], a
//! simulated one through [`measure_simulated`]), all results go into a [`record`], a *study* of the record makes the
//! [`TuneReport`], and text and pictures come from the report. A record in a file can be analysed again ([`analyse`]),
//! resumed after a crash, and merged with others ([`merge()`]).
//!
//! [`TuneReport::disk_properties`] makes the entry for [`plimsoll_files::io_properties::write`],
//! [`TuneReport::disk_model`] the complete disk model.
//!
//! **Limits.** If the scratch data fits into a cache of the disk, or of the host of a virtual disk, the cache is
//! measured: use more data ([`TuneOptions::data_bytes`]). Burst credits and garbage collection can outlast the default
//! of some minutes; the report warns if a rate was still changing, and [`Mode::Full`] continues until the disk is
//! steady. The backends null and memory measure this program, not a disk.
//!
//! **Example.**
//!
//! ```
//! use plimsoll::backend::choose::BackendKind;
//! use plimsoll_files::io_properties;
//! use plimsoll_measure::load::Control;
//! use plimsoll_measure::tune::{TuneOptions, measure};
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

mod budget;
mod costs;
mod depth_mode;
mod error;
mod fill;
mod merge;
mod options;
pub mod pictures;
mod place;
mod protocol;
pub mod record;
mod report;
mod rig;
pub(crate) mod study;
#[cfg(test)]
mod tests;
mod timing;

use std::path::{Path, PathBuf};
use std::time::Instant;

use plimsoll::backend::choose::{BackendKind, Choice, probe};
use plimsoll::backend::{AlignSource, FileInfo, OpenOptions};
use plimsoll::sys::{block, sysfs};
use plimsoll::{Classes, DiskSetup, ShardOptions, Topology};
use plimsoll_figures::units::format_bytes_binary;

use crate::Roots;
use crate::foreign::ForeignMeter;
use crate::load::{Control, Scratch};
use place::Place;
pub use place::PlaceError;
use protocol::Protocol;
use record::{Header, RECORD_NAME, RECORD_SCHEMA, Record, Recorder};
use rig::{DiskRig, Rig, SPAN_MIN_BYTES, SimRig, Span};

pub use error::TuneError;
pub use fill::{FillLevel, FillReport, fill_sweep, fill_sweep_simulated};
pub use merge::{MergeError, merge};
pub use options::{Mode, TuneOptions};
pub(crate) use report::VAGUE_PCT;
pub use report::{
    Backend, BlockSize, CostFit, DepthCurve, DepthMode, DepthPoint, Device, Figure, Frontier, FrontierPoint, Knee,
    Leaf, LeftOut, LimitsApart, Merged, MissingCause, MissingFigures, OperationCost, PhysicalBlock, Probe, SCHEMA,
    SequentialCurve, Site, SizeCurve, SizePoint, SteadyState, SteadyTrack, SteadyWindow, SubmissionCost, TuneReport,
    Unit, UnloadedLatency, Warning, WarningCode,
};
pub use rig::SimulatedDisk;

const SEQUENTIAL_BYTES: u32 = 1 << 20;
/// Fewest bytes that [`measure`] must be allowed to write beyond the scratch data.
const MEASURE_MIN_BYTES: u64 = 256 << 20;

/// Receives the progress of a measurement. `()` ignores it.
pub trait Observer {
    /// Called before the first phase, with the approximate length of all of them in seconds.
    fn on_plan(&mut self, _expected_s: f64) {}

    /// Called when a phase begins, with its name and its approximate length in seconds.
    fn on_phase(&mut self, _name: &str, _expected_s: f64) {}

    /// Called with the part of the current phase that is done, 0 to 1.
    fn on_progress(&mut self, _fraction: f64) {}

    /// Called with one line for the user: a new figure, or a warning.
    fn on_note(&mut self, _text: &str) {}
}

impl Observer for () {}

/// Measures the disk under `options.directory`.
///
/// If `control` asks for the end, returns the result so far, marked as interrupted. Always removes the scratch files.
pub fn measure(options: &TuneOptions, observer: &mut dyn Observer, control: &Control) -> Result<TuneReport, TuneError> {
    with_disk(options, None, observer, control, conduct)
}

/// Continues the record in `path` after a crash (or Ctrl-C) without repeating completed phases. Overwrites a block
/// device again, so `destructive` is required again.
///
/// # Errors
/// See [`TuneError`]; [`TuneError::Resume`] if the disk is not the one of the record, or the record is of a simulated
/// disk.
pub fn resume(
    path: &Path,
    destructive: bool,
    observer: &mut dyn Observer,
    control: &Control,
) -> Result<TuneReport, TuneError> {
    let record = Record::read(path)?;
    let options = TuneOptions { destructive, ..TuneOptions::of_header(&record.header) };
    if record.header.backend.name == SIMULATED {
        let reason = "a simulated disk is measured in seconds; measure it again".to_owned();
        return Err(TuneError::Resume { path: path.display().to_string(), reason });
    }
    if record.is_complete() {
        observer.on_note("the record is complete: nothing is left to measure");
        return Ok(analyse(&record));
    }
    with_disk(&options, Some((path, record)), observer, control, conduct)
}

/// Continues the record of a simulated disk as [`resume`] does. The disk starts empty; completed phases are kept.
pub fn resume_simulated(
    path: &Path,
    disk: &SimulatedDisk,
    observer: &mut dyn Observer,
    control: &Control,
) -> Result<TuneReport, TuneError> {
    let record = Record::read(path)?;

    if record.is_complete() {
        return Ok(analyse(&record));
    }
    let options = TuneOptions::of_header(&record.header);
    let mut rig = simulated_rig(disk, &options, control)?;
    conduct(&mut rig, Recorder::resume(path, record)?, observer)
}

/// Returns the first of `paths` on each file system, because one directory stands for its whole file system.
pub fn one_per_file_system(paths: &[PathBuf]) -> Result<Vec<PathBuf>, PlaceError> {
    let roots = Roots::default();
    let places: Result<Vec<Place>, PlaceError> = paths.iter().map(|path| Place::find(path, &roots)).collect();
    Ok(place::one_per_device(places?).into_iter().map(|place| place.directory).collect())
}

/// Computes the report of a record, without the disk.
pub fn analyse(record: &Record) -> TuneReport {
    study::report(record)
}

/// Name of the backend in records of simulated disks.
const SIMULATED: &str = "sim";
/// Alignment of a simulated disk: a sector, in bytes.
const SIMULATED_ALIGN_BYTES: u32 = 512;

/// Measures a simulated disk in virtual time. Ignores `options.directory` and the backend.
pub fn measure_simulated(
    options: &TuneOptions,
    disk: &SimulatedDisk,
    observer: &mut dyn Observer,
    control: &Control,
) -> Result<TuneReport, TuneError> {
    options.check()?;
    let mut rig = simulated_rig(disk, options, control)?;
    let choice = Choice { kind: BackendKind::Null, reason: "virtual time".to_owned() };
    let mut header = header(options, (Site::of_simulated(disk), None), choice, SIMULATED_ALIGN_BYTES, Vec::new())?;
    SIMULATED.clone_into(&mut header.backend.name);
    let recorder = Recorder::create(options.record.as_deref(), header)?;
    conduct(&mut rig, recorder, observer)
}

fn simulated_rig(disk: &SimulatedDisk, options: &TuneOptions, control: &Control) -> Result<SimRig, TuneError> {
    let (shards, data_bytes, seed) = (options.shards, options.data_bytes, options.seed);
    let Control { stop, traffic, .. } = control.with_write_bound(options.max_write_bytes);
    SimRig::new(disk, shards, data_bytes, seed, stop, traffic)
}

impl Site {
    fn of_place(place: &Place) -> Site {
        Site {
            directory: place.directory.display().to_string(),
            mountpoint: place.mountpoint.clone(),
            file_system: place.file_system.clone(),
            place: Some(crate::report::Place::here(&place.directory, place.device.is_some())),
            mount_options: place.mount_options.clone(),
            device: place.device.clone(),
        }
    }

    /// Returns the site of a simulated disk: no mount point, but a name, members and, if known, a block size.
    fn of_simulated(disk: &SimulatedDisk) -> Site {
        let leaf = |member: u32| Leaf {
            name: format!("{}-{member}", disk.name),
            model: Some(disk.name.clone()),
            physical_block_bytes: disk.reported_block_bytes.map(u64::from),
            logical_block_bytes: Some(u64::from(SIMULATED_ALIGN_BYTES)),
            rotational: Some(disk.spec.hdd.is_some()),
            ..Leaf::default()
        };

        let device = Device {
            name: disk.name.clone(),
            disk: disk.name.clone(),
            size_bytes: Some(disk.spec.capacity_bytes),
            leaves: (0..disk.spec.raid0.members.max(1)).map(leaf).collect(),
            ..Device::default()
        };

        Site {
            directory: disk.name.clone(),
            mountpoint: disk.name.clone(),
            file_system: String::new(),
            place: None,
            mount_options: Vec::new(),
            device: Some(device),
        }
    }
}

/// Runs the protocol on a rig. Returns the report of its record.
fn conduct(rig: &mut dyn Rig, recorder: Recorder, observer: &mut dyn Observer) -> Result<TuneReport, TuneError> {
    let header = &recorder.record.header;
    for (what, block) in [("reads", &header.read_block), ("writes", &header.write_block)] {
        observer.on_note(&format!("random {what} of {} bytes ({})", block.bytes, block.how));
    }
    let mut protocol = Protocol::new(rig, recorder, observer);
    protocol.run()?;
    let report = study::report(&protocol.recorder.record);
    for warning in &report.warnings {
        protocol.observer.on_note(&format!("warning: {}", warning.message));
    }
    Ok(report)
}

/// Prepares scratch data on the disk under `options.directory`, and runs `conduct` on it. Always removes the scratch
/// files.
fn with_disk<R>(
    options: &TuneOptions,
    resumed: Option<(&Path, Record)>,
    observer: &mut dyn Observer,
    control: &Control,
    conduct: impl FnOnce(&mut dyn Rig, Recorder, &mut dyn Observer) -> Result<R, TuneError>,
) -> Result<R, TuneError> {
    let begin = Instant::now();
    options.check()?;
    if let Some(path) = options.record.as_deref().filter(|path| path.exists()) {
        return Err(TuneError::RecordExists { path: path.display().to_string() });
    }

    let roots = Roots::default();
    let mut place = Place::find(&options.directory, &roots)?;
    let is_in_memory = options.is_in_memory();
    if is_in_memory {
        place.device = None;
        place.disk_number = None;
    } else if place.is_block_device && !options.destructive {
        return Err(TuneError::NotDestructive { path: options.directory.display().to_string() });
    }

    let topology = Topology::new(options.shards, Classes::new(), vec![DiskSetup::unlimited()])?;
    if let Some((path, record)) = &resumed {
        check_same(path, &record.header, &place)?;
        // Scratch files that a crash left would use the names and the space of new ones.
        for shard in 0..options.shards {
            Scratch::reclaim(&place.directory, &scratch_name(shard))?;
        }
    }

    // Dropped when this function ends, after every run: this removes the files.
    let mut scratch = None;
    if !is_in_memory && !place.is_block_device {
        scratch = Some(Scratch::new(&place.directory, options.data_bytes)?);
    }

    let costs = cost_place(options, &place, is_in_memory)?;
    let spans = make_spans(options, &topology, scratch.as_mut(), &place)?;
    let shard_options = ShardOptions { backend: options.backend, ..ShardOptions::default() };
    let (choice, info) = look(options, &shard_options, &spans)?;
    let warnings = if is_in_memory { Vec::new() } else { place::warnings(&place, &info, options.shards) };

    let recorder = match resumed {
        None => {
            let site = (Site::of_place(&place), place.fs_block_bytes);
            let header = header(options, site, choice, info.offset_align_bytes, warnings)?;
            Recorder::create(options.record.as_deref(), header)?
        }
        Some((path, record)) => Recorder::resume(path, record)?,
    };

    if !is_in_memory {
        let place = place.directory.display();
        observer.on_note(&match options.max_write_bytes {
            Some(bytes) => format!("at most {} will be written to {place}", format_bytes_binary(bytes)),
            None => format!("{place} will be written to without a bound (--max-write sets one)"),
        });
    }
    // Reserve the bytes of the probes at the end, which the load generator does not count.
    let kept_bytes = recorder.written_before_bytes.saturating_add(costs::PROBE_MAX_BYTES);
    let control = &control.with_write_bound(options.max_write_bytes.map(|max| max.saturating_sub(kept_bytes)));
    let meter = place.disk_number.map(|(major, minor)| ForeignMeter::new(&roots.proc, major, minor));
    let mut rig = DiskRig { topology, shard_options, spans, seed: options.seed, control, begin, meter, place: costs };
    conduct(&mut rig, recorder, observer)
}

/// Refuses to continue a record on another disk: device names move from one disk to another between boots.
fn check_same(path: &Path, header: &Header, place: &Place) -> Result<(), TuneError> {
    let identity = |device: &Option<Device>| {
        let Some(device) = device else { return "no device".to_owned() };
        let disks = device.leaves.iter().map(|leaf| {
            let model = leaf.model.as_deref().unwrap_or("unknown model");
            let serial = leaf.serial.as_deref().unwrap_or("unknown serial number");
            format!("{model}, {serial}, {} bytes", leaf.size_bytes.unwrap_or(0))
        });
        let size_bytes = device.size_bytes.unwrap_or(0);
        format!("{} of {size_bytes} bytes ({})", device.name, disks.collect::<Vec<String>>().join("; "))
    };
    let (there, here) = (identity(&header.site.device), identity(&place.device));
    if there == here && header.site.mountpoint == place.mountpoint {
        return Ok(());
    }

    let (was, is) = (&header.site.mountpoint, &place.mountpoint);
    let reason = format!("it is of {was}, {there}; {} is now on {is}, {here}", header.site.directory);
    Err(TuneError::Resume { path: path.display().to_string(), reason })
}

/// Returns the header of a record, all that is known before measuring.
fn header(
    options: &TuneOptions,
    (site, file_system_block_bytes): (Site, Option<u64>),
    choice: Choice,
    align_bytes: u32,
    warnings: Vec<Warning>,
) -> Result<Header, TuneError> {
    let device = site.device.as_ref();
    let read_block = place::block_size("--read-block-size", options.read_block_bytes, align_bytes, device)?;
    let write_block = place::block_size("--write-block-size", options.write_block_bytes, align_bytes, device)?;

    Ok(Header {
        record: RECORD_NAME.to_owned(),
        schema: RECORD_SCHEMA,
        plimsoll: env!("CARGO_PKG_VERSION").to_owned(),
        site,
        destructive: options.destructive,
        backend: Backend { name: choice.kind.name().to_owned(), reason: choice.reason },
        shards: options.shards,
        numa_nodes: sysfs::numa_nodes(Path::new("/sys")),
        seed: options.seed,
        mode: options.mode,
        figures_only: options.figures_only,
        with_frontier: options.with_frontier,
        read_block,
        write_block,
        align_bytes,
        file_system_block_bytes,
        data_bytes: options.data_bytes,
        max_write_bytes: options.max_write_bytes,
        phase_s: options.phase_s,
        rounds_max: options.rounds_max,
        round_s: options.round_s,
        warnings,
    })
}

/// Returns where single operations are measured. Claims a device, so that it cannot be mounted meanwhile.
fn cost_place(options: &TuneOptions, place: &Place, is_in_memory: bool) -> Result<costs::CostPlace, TuneError> {
    if is_in_memory {
        return Ok(costs::CostPlace::Nowhere);
    }
    if !place.is_block_device {
        return Ok(costs::CostPlace::Directory(place.directory.clone()));
    }
    let path = place.directory.clone();
    let claim = block::claim(&path).map_err(|error| TuneError::Device { path: path.display().to_string(), error })?;
    Ok(costs::CostPlace::Device { path, range_bytes: 0..data_bytes(options, place), claim: Some(claim) })
}

/// Returns the bytes to measure: those asked for, or those of a device with fewer.
fn data_bytes(options: &TuneOptions, place: &Place) -> u64 {
    let size_bytes = place.device.as_ref().and_then(|device| device.size_bytes).filter(|_| place.is_block_device);
    options.data_bytes.min(size_bytes.unwrap_or(u64::MAX))
}

fn scratch_name(shard: u16) -> String {
    format!("plimsoll-tune-{shard}")
}

/// Makes a span for each shard, all of the same length: a file each, or a part of the device.
fn make_spans(
    options: &TuneOptions,
    topology: &Topology,
    mut scratch: Option<&mut Scratch>,
    place: &Place,
) -> Result<Vec<Span>, TuneError> {
    let block_bytes = u64::from(SEQUENTIAL_BYTES);
    let data_bytes = data_bytes(options, place);
    let len_bytes = data_bytes / u64::from(options.shards) / block_bytes * block_bytes;
    if len_bytes < SPAN_MIN_BYTES {
        let (have, need) = (format_bytes_binary(data_bytes), format_bytes_binary(SPAN_MIN_BYTES));
        let reason = format!("{} shards need {need} each, and the device has {have}", options.shards);
        return Err(TuneError::Option { option: "--shards", reason });
    }

    let make = |shard: u16| {
        let (path, offset) = match &mut scratch {
            Some(scratch) => (scratch.create(&scratch_name(shard))?, 0),
            None if place.is_block_device => (place.directory.clone(), u64::from(shard) * len_bytes),
            None => (place.directory.join(scratch_name(shard)), 0),
        };
        let create_new = options.backend == Some(BackendKind::Memory);
        let how = OpenOptions { write: true, direct: true, create_new, ..OpenOptions::default() };
        let file = topology.file(&path, how, 0);
        Ok(Span { path, file, offset, room_bytes: len_bytes, filled_bytes: 0, len_bytes, cursor_bytes: 0 })
    };
    (0..options.shards).map(make).collect()
}

/// Returns the backend in use, and its view of the scratch files.
fn look(options: &TuneOptions, shard_options: &ShardOptions, spans: &[Span]) -> Result<(Choice, FileInfo), TuneError> {
    let (mut backend, choice) = probe(options.backend, shard_options.entries)?;
    if let Some(span) = spans.first().filter(|_| !options.is_in_memory()) {
        let how = OpenOptions { write: true, direct: true, ..OpenOptions::default() };
        let (_, info) = backend.open(&span.path, &how).map_err(TuneError::Open)?;
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
