//! The files of jobs that follow fio's rules: shared by name, several for a job, each with a directory of its own.
//!
//! **Why.** Jobs of a fio file that name one file work on one file. Its contents are the user's, unless the run has
//! created the file.
//!
//! **How.** [`NamedFiles::check`] probes each path once: a file or device that exists is used as it is, and is written
//! to only with the flag for that; one that does not exist, or is left of a killed run, is a scratch file, long enough
//! for all jobs that name it. [`NamedFiles::spec`] creates the files of one job, and places the job in them.
//!
//! **Limits.** A file is never made longer: a region ends where an existing file ends. Directories are not created.
//!
//! **Example.** Two clones with `filename=data` and `size=1g` read the same GiB; with `offset_increment=1g`, each reads
//! a GiB of its own.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use plimsoll::backend::OpenOptions;
use plimsoll::{Class, Topology};
use plimsoll_files::job_files::{FileSet, Length};
use plimsoll_files::jobs::Job;
use plimsoll_files::setup::is_in_memory;

use super::scratches::{ScratchFiles, file_name, fill_scratches, length_of, make_in_memory};
use super::{BackendKind, TestError, TestOptions, device};
use crate::load::{Control, JobSpec, LoadError, Scratch, Target};

/// Length of a file on a backend that stores nothing, if no job sets it: 1 GiB.
const LENGTH_IN_MEMORY_BYTES: u64 = 1 << 30;
/// Unit of the length of short scratch files, in bytes, because direct I/O fills them.
const SHORT_UNIT_BYTES: u64 = 4096;
/// Unit of the length of scratch files, in bytes: the length of the writes that fill them.
const UNIT_BYTES: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Found,
    /// The run creates and removes the file.
    Scratch {
        is_made: bool,
    },
    /// The file is only a name, on a backend without files.
    Memory {
        is_made: bool,
    },
}

#[derive(Clone, Copy, Debug)]
struct Known {
    origin: Origin,
    len_bytes: u64,
}

/// The files of all jobs that follow fio's rules.
#[derive(Default)]
pub(super) struct NamedFiles {
    files: BTreeMap<PathBuf, Known>,
    pub(super) scratches: ScratchFiles,
    to_fill: Vec<(PathBuf, PathBuf, u64)>,
    /// Keeps other programs off devices that are written to.
    _claims: Vec<File>,
}

impl NamedFiles {
    /// Makes all checks that are possible before any file is created. Moves usable scratch files of earlier runs out of
    /// `left`.
    pub(super) fn check(options: &TestOptions, left: &mut ScratchFiles) -> Result<NamedFiles, TestError> {
        let mut named = NamedFiles::find(options, left)?;
        check_verified(options)?;
        named.make_room(options, left)?;
        Ok(named)
    }

    /// Finds the files of all jobs, and the lengths that they have or need.
    fn find(options: &TestOptions, left: &ScratchFiles) -> Result<NamedFiles, TestError> {
        let mut named = NamedFiles::default();
        let jobs = || options.jobs.jobs.iter().enumerate().filter_map(|(at, job)| Some((at, job, job.files.as_ref()?)));
        for (number, job, set) in jobs() {
            for path in paths(set, number, job) {
                let known = match named.files.get(&path) {
                    Some(known) => *known,
                    None if is_left(left, &path) => Known { origin: Origin::Scratch { is_made: false }, len_bytes: 0 },
                    None => probe(&path, options)?,
                };
                if known.origin == Origin::Found && job.kind.is_write() {
                    check_allowed(&path, options, job)?;
                }
                let needed_bytes = if known.origin == Origin::Found { 0 } else { set.new_file_bytes().unwrap_or(0) };
                let len_bytes = known.len_bytes.max(needed_bytes);
                named.files.insert(path, Known { len_bytes, ..known });
            }
        }
        Ok(named)
    }

    /// Refuses jobs that have no room for a request in a file of theirs. Creates no file.
    pub(super) fn check_regions(options: &TestOptions) -> Result<(), TestError> {
        let named = NamedFiles::find(options, &ScratchFiles::new())?;
        for (number, job) in options.jobs.jobs.iter().enumerate() {
            let Some(set) = &job.files else { continue };
            for path in paths(set, number, job) {
                // A file without a length is refused with the first run.
                let known = named.files.get(&path).filter(|known| known.len_bytes > 0);
                known.map_or(Ok(()), |known| region(&path, known.len_bytes, job, set).map(|_| ()))?;
            }
        }
        Ok(())
    }

    /// Refuses files without a length, checks the free space for the others, and claims devices.
    fn make_room(&mut self, options: &TestOptions, left: &mut ScratchFiles) -> Result<(), TestError> {
        let mut needed: BTreeMap<PathBuf, u64> = BTreeMap::new();
        for (path, known) in &mut self.files {
            match known.origin {
                Origin::Found => continue,
                Origin::Memory { .. } if known.len_bytes == 0 => known.len_bytes = LENGTH_IN_MEMORY_BYTES,
                Origin::Scratch { .. } if known.len_bytes == 0 => {
                    let reason = "it does not exist, and no job says how long it is: add `size`".to_owned();
                    return Err(TestError::File { path: path.display().to_string(), reason });
                }
                _ => {}
            }
            if let Origin::Scratch { .. } = known.origin {
                let sum_bytes = needed.entry(directory_of(path)).or_default();
                let scratch = left.get(&directory_of(path));
                if !scratch.is_some_and(|scratch| scratch.has(&name_of(path), room_bytes(known.len_bytes))) {
                    *sum_bytes = sum_bytes.saturating_add(room_bytes(known.len_bytes));
                }
            }
        }

        let needed_bytes = needed.values().copied().fold(0, u64::saturating_add);
        if let Some(max_write_bytes) = options.max_write_bytes.filter(|max| needed_bytes > *max) {
            return Err(TestError::MaxWrite { needed_bytes, max_write_bytes });
        }
        for (directory, bytes) in needed {
            let room = Scratch::new(&directory, bytes)?;
            let mut scratch = left.remove(&directory).unwrap_or(room);
            if options.keep_files {
                scratch.keep();
            }
            self.scratches.insert(directory, scratch);
        }

        let is_written = |path: &Path| {
            let names = |(number, job): (usize, &Job)| {
                let set = job.files.as_ref().filter(|_| job.kind.is_write());
                set.is_some_and(|set| paths(set, number, job).iter().any(|named| named == path))
            };
            options.jobs.jobs.iter().enumerate().any(names)
        };
        for (path, _) in self.files.iter().filter(|(_, known)| known.origin == Origin::Found) {
            if is_device(path) && is_written(path) {
                self._claims.push(device::claim(path)?);
            }
        }
        Ok(())
    }

    /// Creates the files of a job, and returns the job for the load generator.
    pub(super) fn spec(
        &mut self,
        options: &TestOptions,
        topology: &Topology,
        (number, job, set): (usize, &Job, &FileSet),
        class: Class,
    ) -> Result<JobSpec, TestError> {
        let how = OpenOptions {
            write: job.kind.is_write() || is_in_memory(options.backend),
            direct: job.direct,
            dsync: job.dsync,
            ..OpenOptions::default()
        };
        let mut regions = Vec::new();
        for path in paths(set, number, job) {
            let file_bytes = self.make(&path, topology, options.backend, &job.name)?;
            let (offset, len_bytes) = region(&path, file_bytes, job, set)?;
            regions.push((path, offset, len_bytes));
        }

        let mut shape = job.shape.clone();
        let all_bytes = regions.iter().map(|(_, _, len_bytes)| *len_bytes).fold(0, u64::saturating_add);
        shape.limit_bytes = set.limit_bytes(all_bytes).map(|bytes| whole_requests(bytes, job));
        let mut spec = JobSpec::new(&job.name, shape, class);
        for shard in (0..options.shards).filter(|shard| job.shards.contains(u32::from(*shard))) {
            for (nth, (path, offset, len_bytes)) in regions.iter().enumerate() {
                let file = topology.file(path, how.clone(), 0);
                let target = Target { file, offset: *offset, len_bytes: *len_bytes };
                spec = if nth == 0 { spec.on_shard(shard, target) } else { spec.and_on_shard(shard, target) };
            }
        }
        Ok(spec)
    }

    /// Returns whether an earlier run created the file at `path` for this one, and holds its lock.
    pub(super) fn has_made(&self, path: &Path) -> bool {
        let scratch = path.parent().and_then(|directory| self.scratches.get(directory));
        scratch.is_some_and(|scratch| scratch.has_made(&name_of(path)))
    }

    /// Creates a file unless it exists already. Returns its length.
    fn make(
        &mut self,
        path: &Path,
        topology: &Topology,
        backend: Option<BackendKind>,
        job: &str,
    ) -> Result<u64, TestError> {
        let Some(known) = self.files.get_mut(path) else { return Ok(0) };
        match &mut known.origin {
            Origin::Scratch { is_made } if !*is_made => {
                let directory = directory_of(path);
                if let Some(scratch) = self.scratches.get_mut(&directory) {
                    scratch.create(&name_of(path))?;
                }
                self.to_fill.push((directory, path.to_owned(), room_bytes(known.len_bytes)));
                *is_made = true;
            }
            Origin::Memory { is_made } if !*is_made && backend == Some(BackendKind::Memory) => {
                let made = make_in_memory(topology, path, room_bytes(known.len_bytes));
                made.map_err(|error| LoadError::Open { job: job.to_owned(), error })?;
                *is_made = true;
            }
            _ => {}
        }
        Ok(known.len_bytes)
    }

    pub(super) fn fill(&self, options: &TestOptions, control: &Control) -> Result<(), TestError> {
        fill_scratches(&self.scratches, &self.to_fill, options, control)
    }
}

/// Returns the first byte and the length of a job's region in a file of `file_bytes`: at least a request.
fn region(path: &Path, file_bytes: u64, job: &Job, set: &FileSet) -> Result<(u64, u64), TestError> {
    let (offset_bytes, len_bytes) = set.region(file_bytes);
    if len_bytes >= u64::from(job.request_bytes) {
        return Ok((offset_bytes, len_bytes));
    }
    Err(TestError::TooShort {
        path: path.display().to_string(),
        file_bytes,
        offset_bytes,
        data_size_bytes: set.size.map(|_| len_bytes),
        job: job.name.clone(),
        request_bytes: job.request_bytes.into(),
    })
}

/// Returns the length of a new file for `len_bytes` of data.
fn room_bytes(len_bytes: u64) -> u64 {
    let unit_bytes = if len_bytes < UNIT_BYTES { SHORT_UNIT_BYTES } else { UNIT_BYTES };
    len_bytes.checked_next_multiple_of(unit_bytes).unwrap_or(u64::MAX)
}

/// Drops the files of buffered jobs from the page cache, as fio does before a job begins. Reads of pages that the
/// kernel keeps come from memory, as with fio.
pub(super) fn drop_cached(specs: &[JobSpec], jobs: &[&Job]) {
    let buffered = specs.iter().zip(jobs).filter(|(_, job)| !job.direct && job.files.is_some());
    let targets =
        buffered.flat_map(|(spec, _)| spec.targets.iter().flatten().chain(spec.more_targets.iter().flatten()));
    for target in targets {
        if let Ok(file) = File::open(target.file.path()) {
            let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
        }
    }
}

/// Returns the paths that jobs write to, each with whether the job verifies it.
pub(super) fn written(options: &TestOptions) -> impl Iterator<Item = (PathBuf, bool)> {
    let jobs = options.jobs.jobs.iter().enumerate().filter(|(_, job)| job.kind.is_write());
    jobs.flat_map(|(number, job)| {
        let paths = job.files.as_ref().map_or_else(Vec::new, |set| paths(set, number, job));
        paths.into_iter().map(move |path| (path, job.verify))
    })
}

fn paths(set: &FileSet, number: usize, job: &Job) -> Vec<PathBuf> {
    if !set.named.is_empty() {
        return set.named.clone();
    }
    let own = |nth| set.directory.join(format!("{}-{nth}", file_name(number, &job.name, 0)));
    (0..set.count.max(1)).map(own).collect()
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns whether the file at `path` is a scratch file of an earlier run.
fn is_left(left: &ScratchFiles, path: &Path) -> bool {
    left.get(&directory_of(path)).is_some_and(|scratch| scratch.has_made(&name_of(path)))
}

fn directory_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Determines the kind and length of the file at `path`. Removes the scratch file of a killed run.
fn probe(path: &Path, options: &TestOptions) -> Result<Known, TestError> {
    let bad = |reason: &str| Err(TestError::File { path: path.display().to_string(), reason: reason.to_owned() });

    let found = std::fs::metadata(path);
    if is_in_memory(options.backend) {
        // The length of an existing file determines the length of the job's region.
        let len_bytes = found.ok().and_then(|_| length_of(path).ok()).unwrap_or(0);
        return Ok(Known { origin: Origin::Memory { is_made: false }, len_bytes });
    }

    match found {
        Ok(meta) if meta.is_file() && Scratch::remove_if_left(path)? => {
            Ok(Known { origin: Origin::Scratch { is_made: false }, len_bytes: 0 })
        }
        Ok(meta) if meta.is_file() || meta.file_type().is_block_device() => {
            Ok(Known { origin: Origin::Found, len_bytes: length_of(path)? })
        }
        Ok(meta) if meta.is_dir() => bad("it is a directory"),
        Ok(_) => bad("it is neither a file nor a block device"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let is_device = path.starts_with("/dev") && !path.starts_with("/dev/shm");
            if is_device {
                return bad("there is no such device");
            }
            Ok(Known { origin: Origin::Scratch { is_made: false }, len_bytes: 0 })
        }
        Err(error) => bad(&error.to_string()),
    }
}

fn is_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_block_device())
}

/// Refuses a job that would overwrite a file or device without the flag for that.
fn check_allowed(path: &Path, options: &TestOptions, job: &Job) -> Result<(), TestError> {
    let (is_allowed, flag) = match is_device(path) {
        true => (options.destructive, "--destructive"),
        false => (options.overwrite, "--overwrite"),
    };
    if is_allowed {
        return Ok(());
    }
    Err(TestError::WouldOverwrite { job: job.name.clone(), path: path.display().to_string(), flag })
}

/// Returns whether two jobs use different parts of the files that both name, whatever the files' lengths.
fn are_apart(one: &FileSet, other: &FileSet) -> bool {
    let part = |set: &FileSet| match (set.offset, set.increment, set.size, set.file_bytes) {
        (Length::Bytes(_), Length::Bytes(_), Some(Length::Bytes(bytes)), None) => {
            let first = set.offset_bytes(0);
            Some((first, first.saturating_add(bytes)))
        }
        _ => None,
    };
    part(one).zip(part(other)).is_some_and(|(one, other)| one.1 <= other.0 || other.1 <= one.0)
}

/// Refuses a job that verifies a part of a file to which another job of its stage writes.
fn check_verified(options: &TestOptions) -> Result<(), TestError> {
    let jobs: Vec<(usize, &Job, &FileSet)> =
        options.jobs.jobs.iter().enumerate().filter_map(|(at, job)| Some((at, job, job.files.as_ref()?))).collect();
    for (number, job, set) in jobs.iter().filter(|(_, job, _)| job.verify) {
        for path in paths(set, *number, job) {
            let is_shared = jobs.iter().any(|(other, theirs, their_set)| {
                other != number
                    && theirs.stage == job.stage
                    && theirs.kind.is_write()
                    && !are_apart(set, their_set)
                    && paths(their_set, *other, theirs).contains(&path)
            });
            if is_shared {
                return Err(TestError::SharedVerify { job: job.name.clone(), path: path.display().to_string() });
            }
        }
    }
    Ok(())
}

/// Returns the bytes of all whole requests within `bytes`, at least one, for a job whose requests have one length.
fn whole_requests(bytes: u64, job: &Job) -> u64 {
    let request_bytes = u64::from(job.request_bytes.max(1));
    if job.sizes.is_empty() && bytes >= request_bytes { bytes - bytes % request_bytes } else { bytes }
}
