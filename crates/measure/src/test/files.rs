//! The files that a test works on: opened, or created and removed.
//!
//! **Why.** All checks come before the first byte is written, and errors state the numbers.
//!
//! **How.** [`Files::check`] checks the jobs and the storage and sums the space needed; [`Files::spec`] creates the
//! files of one job and returns the job for the load generator; [`Files::fill`] writes the data, and reserves the space
//! of appending jobs that want it (`fallocate`).
//!
//! **Limits.** An appending job with a `data_size` starts over at its end; one without may use an eighth of the free
//! space, shared by all such jobs, and reserves at most 1 GiB of that. Files to remove have whole MiB, as in io_tester.
//!
//! **Example.** Job `a b`, the first of the file, has `plimsoll-test-0-a_b-1` on shard 1; names of files to remove end
//! in `.0`, `.1`, ...

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll::backend::OpenOptions;
use plimsoll::backend::choose::BackendKind;
use plimsoll::sys::statfs::file_system;
use plimsoll::{Class, Topology};
use plimsoll_files::jobs::{Job, JobKind};
use plimsoll_files::setup::is_in_memory;

use super::locks::FileLocks;
use super::named::NamedFiles;
use super::scratches::{ScratchFiles, file_name, fill_scratches, length_of, make_in_memory};
use super::{Storage, TestError, TestOptions, device, named};
use crate::load::{Control, JobSpec, LoadError, Scratch, Target, unlink_path};

/// Bytes after which an appending job in memory starts over.
const APPEND_IN_MEMORY_BYTES: u64 = 1 << 30;
/// Most bytes that are reserved for an appending job without a size.
const RESERVED_MAX_BYTES: u64 = 1 << 30;
/// Unit of the length of files to remove, in bytes, as in io_tester.
const UNLINK_ALIGN_BYTES: u64 = 1 << 20;

/// Scratch files that the runs of one experiment use one after another, so that they are filled once. Dropping the last
/// clone removes the files.
#[derive(Clone, Debug, Default)]
pub struct ReusedFiles(Arc<Mutex<ScratchFiles>>);

impl ReusedFiles {
    /// Takes the files of earlier runs; none if a job needs new ones because it removes, grows, discards or checks its
    /// own.
    fn take(&self, jobs: &[Job]) -> ScratchFiles {
        let needs_new = |job: &Job| {
            matches!(job.kind, JobKind::Append | JobKind::Unlink { .. } | JobKind::Discard { .. }) || job.verify
        };
        let left = std::mem::take(&mut *self.lock());
        if jobs.iter().any(needs_new) { ScratchFiles::new() } else { left }
    }

    fn lock(&self) -> MutexGuard<'_, ScratchFiles> {
        // A thread that panicked with the lock held has dropped its files.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The files of a test, and the work that remains to prepare them.
#[derive(Default)]
pub(super) struct Files {
    scratches: ScratchFiles,
    to_fill: Vec<(PathBuf, PathBuf, u64)>,
    filled_bytes: u64,
    to_reserve: Vec<(String, PathBuf, u64)>,
    /// By directory, bytes after which an appending job without a size starts over.
    append_room_bytes: BTreeMap<PathBuf, u64>,
    /// Keeps other programs off devices that are written to.
    _claims: Vec<File>,
    /// Keeps other runs off files that are verified.
    _locks: Vec<FileLocks>,
    /// The files of jobs that follow fio's rules.
    named: NamedFiles,
}

impl Files {
    /// Makes all checks that are possible before any file is created.
    pub(super) fn check(options: &TestOptions) -> Result<Files, TestError> {
        let jobs = &options.jobs.jobs;
        let verifying = jobs.iter().find(|job| job.verify);
        if let (Some(BackendKind::Null), Some(job)) = (options.backend, verifying) {
            return Err(TestError::NothingKept { job: job.name.clone() });
        }

        let mut left = options.reused_files.as_ref().map(|reused| reused.take(jobs)).unwrap_or_default();
        let files_named = NamedFiles::check(options, &mut left)?;
        let mut files = Files { named: files_named, ..Files::default() };
        if !is_in_memory(options.backend) {
            let of_others = named::written(options).filter(|(path, _)| !files.named.has_made(path));
            let locks = FileLocks::take(of_others)?;
            files._locks.push(locks);
        }
        let mut places: BTreeMap<Storage, Vec<(usize, &Job)>> = BTreeMap::new();
        for (number, job) in jobs.iter().enumerate().filter(|(_, job)| job.files.is_none()) {
            places.entry(options.place_of(job)?.0).or_default().push((number, job));
        }
        for (storage, jobs) in &places {
            check_named(options, storage, jobs)?;
            files.take(options, storage, jobs, &mut left)?;
        }
        if let Some(max_write_bytes) = options.max_write_bytes.filter(|max| files.filled_bytes > *max) {
            return Err(TestError::MaxWrite { needed_bytes: files.filled_bytes, max_write_bytes });
        }
        Ok(files)
    }

    /// Takes a storage into use for its jobs, each given with its number.
    fn take(
        &mut self,
        options: &TestOptions,
        storage: &Storage,
        jobs: &[(usize, &Job)],
        left: &mut ScratchFiles,
    ) -> Result<(), TestError> {
        if is_in_memory(options.backend) {
            return Ok(());
        }
        let writers = || jobs.iter().filter(|(_, job)| job.kind.is_write());
        let directory = match storage {
            Storage::Directory(directory) => directory,
            Storage::File(path) => {
                self._locks.push(FileLocks::take(writers().map(|(_, job)| (path.clone(), job.verify)))?);
                return Ok(());
            }
            Storage::Device(path) => {
                if writers().count() > 0 {
                    self._claims.push(device::claim(path)?);
                }
                return Ok(());
            }
        };

        let shards = u32::from(options.shards);
        let running = |job: &Job| (0..shards).filter(|s| job.shards.contains(*s)).count() as u64;
        let found = left.remove(directory);
        let of_all = |(_, job): &(usize, &Job)| running(job).saturating_mul(data_bytes(job, shards));
        let is_there = |(number, job): &(usize, &Job)| {
            let has = |shard| {
                let name = file_name(*number, &job.name, u16::try_from(shard).unwrap_or(u16::MAX));
                found.as_ref().is_some_and(|scratch| scratch.has(&name, data_bytes(job, shards)))
            };
            (0..shards).filter(|shard| job.shards.contains(*shard)).all(has)
        };
        let (appending, filled): (Vec<_>, Vec<_>) =
            jobs.iter().copied().partition(|(_, job)| job.kind == JobKind::Append);

        let filled_bytes = filled.iter().filter(|job| !is_there(job)).map(of_all).fold(0, u64::saturating_add);
        self.filled_bytes = self.filled_bytes.saturating_add(filled_bytes);
        let needed_bytes = appending.iter().map(of_all).fold(filled_bytes, u64::saturating_add);
        let room = Scratch::new(directory, needed_bytes)?;
        let mut scratch = found.unwrap_or(room);
        if options.keep_files {
            scratch.keep();
        }

        let roomless = appending.iter().filter(|(_, job)| data_bytes(job, shards) == 0).map(|(_, job)| running(job));
        let room_bytes = append_room_bytes(directory, needed_bytes, roomless.sum());
        self.append_room_bytes.insert(directory.clone(), room_bytes);
        self.scratches.insert(directory.clone(), scratch);
        Ok(())
    }

    /// Ends the use of the files. Scratch files stay for the next run if runs reuse them.
    pub(super) fn end(self, options: &TestOptions) {
        if let Some(reused) = &options.reused_files {
            let mut left = self.named.scratches;
            left.extend(self.scratches);
            *reused.lock() = left;
        }
    }

    /// Creates the files of a job, and returns the job for the load generator.
    pub(super) fn spec(
        &mut self,
        options: &TestOptions,
        topology: &Topology,
        job: &Job,
        number: usize,
        class: Class,
    ) -> Result<JobSpec, TestError> {
        if let Some(set) = &job.files {
            return self.named.spec(options, topology, (number, job, set), class);
        }

        let (storage, disk) = options.place_of(job)?;
        let mut spec = JobSpec::new(&job.name, job.shape.clone(), class);
        // A file in a directory belongs to one shard; a named one is shared by all.
        spec.staggered = !matches!(storage, Storage::Directory(_)) && !is_in_memory(options.backend);

        for shard in (0..options.shards).filter(|s| job.shards.contains(u32::from(*s))) {
            let target = self.target(options, topology, (number, job), (&storage, disk), shard)?;
            spec = spec.on_shard(shard, target);
        }

        Ok(spec)
    }

    fn target(
        &mut self,
        options: &TestOptions,
        topology: &Topology,
        (number, job): (usize, &Job),
        (storage, disk): (&Storage, u16),
        shard: u16,
    ) -> Result<Target, TestError> {
        let how = OpenOptions {
            write: job.kind.is_write(),
            create_new: false,
            direct: job.direct,
            dsync: job.dsync,
            directory: false,
        };
        let bytes = data_bytes(job, u32::from(options.shards));
        let name = file_name(number, &job.name, shard);

        if let JobKind::Cpu { .. } = job.kind {
            // The file of a CPU job is never opened.
            return Ok(Target { file: topology.file(Path::new(&name), how, disk), offset: 0, len_bytes: 0 });
        }

        if is_in_memory(options.backend) {
            let path = PathBuf::from(name);
            if options.backend == Some(BackendKind::Memory) {
                let made = make_all_in_memory(topology, job, &path, bytes);
                made.map_err(|error| LoadError::Open { job: job.name.clone(), error })?;
            }
            let how = OpenOptions { write: true, ..how };
            let len_bytes = if job.kind == JobKind::Append { append_in_memory_bytes(bytes) } else { bytes };
            return Ok(Target { file: topology.file(&path, how, disk), offset: 0, len_bytes });
        }

        if let Storage::Directory(directory) = storage {
            let (path, len_bytes) = self.make(directory, job, &name, bytes)?;
            return Ok(Target { file: topology.file(&path, how, disk), offset: 0, len_bytes });
        }

        let path = storage.path();
        let len_bytes = region_bytes(path, job)?;
        Ok(Target { file: topology.file(path, how, disk), offset: job.offset_bytes, len_bytes })
    }

    /// Creates the files of a job on a shard in the directory. Returns the job's path and the length of its region.
    fn make(&mut self, directory: &Path, job: &Job, name: &str, bytes: u64) -> Result<(PathBuf, u64), TestError> {
        let Some(scratch) = self.scratches.get_mut(directory) else { return Ok((PathBuf::from(name), bytes)) };
        match job.kind {
            JobKind::Unlink { files } => {
                for number in 0..files {
                    // Not open, so that the removal frees the space; the file without a number shows that it is in use.
                    let path = scratch.create_closed(&unlink_path(Path::new(name), number).to_string_lossy(), name)?;
                    self.to_fill.push((directory.to_owned(), path, bytes / u64::from(files.max(1))));
                }
                // The job's path is that of the first file without its number.
                Ok((directory.join(name), bytes))
            }
            JobKind::Append => {
                let path = scratch.create(name)?;
                let room_bytes = self.append_room_bytes.get(directory).copied().unwrap_or(APPEND_IN_MEMORY_BYTES);
                let room_bytes = if bytes > 0 { bytes } else { room_bytes.max(job.request_bytes.into()) };
                if job.fallocate {
                    let reserved_bytes = if bytes > 0 { bytes } else { room_bytes.min(RESERVED_MAX_BYTES) };
                    self.to_reserve.push((job.name.clone(), path.clone(), reserved_bytes));
                }
                Ok((path, room_bytes))
            }
            _ => {
                let path = scratch.create(name)?;
                self.to_fill.push((directory.to_owned(), path.clone(), bytes));
                Ok((path, bytes))
            }
        }
    }

    /// Reserves space and writes data.
    pub(super) fn fill(&self, options: &TestOptions, control: &Control) -> Result<(), TestError> {
        self.named.fill(options, control)?;
        for (job, path, len_bytes) in &self.to_reserve {
            reserve(path, *len_bytes).map_err(|error| {
                let reason =
                    format!("cannot reserve {len_bytes} bytes for {}: {error}: remove fallocate", path.display());
                LoadError::Unsuitable { job: job.clone(), reason }
            })?;
        }
        fill_scratches(&self.scratches, &self.to_fill, options, control)
    }
}

/// Refuses jobs that have no room for a request in the file or device that they name.
pub(crate) fn check_regions(options: &TestOptions) -> Result<(), TestError> {
    NamedFiles::check_regions(options)?;
    if is_in_memory(options.backend) {
        return Ok(());
    }
    for job in options.jobs.jobs.iter().filter(|job| job.files.is_none() && !matches!(job.kind, JobKind::Cpu { .. })) {
        let (storage, _) = options.place_of(job)?;
        if !matches!(storage, Storage::Directory(_)) {
            region_bytes(storage.path(), job)?;
        }
    }
    Ok(())
}

/// Returns the length of a job's region in the file or device that it names: at least a request. Here `data_size` is
/// the whole region: all shards work on it.
fn region_bytes(path: &Path, job: &Job) -> Result<u64, TestError> {
    let file_bytes = length_of(path)?;
    let after_bytes = file_bytes.saturating_sub(job.offset_bytes);
    let len_bytes = job.data_size_bytes.map_or(after_bytes, |size| size.min(after_bytes));
    if len_bytes >= u64::from(job.request_bytes) {
        return Ok(len_bytes);
    }
    Err(TestError::TooShort {
        path: path.display().to_string(),
        file_bytes,
        offset_bytes: job.offset_bytes,
        data_size_bytes: job.data_size_bytes,
        job: job.name.clone(),
        request_bytes: job.request_bytes.into(),
    })
}

/// Describes the region of a file that is too short for a job.
pub(super) fn region_text(offset_bytes: u64, data_size_bytes: Option<u64>) -> String {
    match (offset_bytes, data_size_bytes) {
        (0, None) => String::new(),
        (offset, None) => format!(", and the job begins at offset {offset}"),
        (0, Some(size)) => format!(", of which the job uses a data_size of {size}"),
        (offset, Some(size)) => format!(", of which the job uses a data_size of {size} from offset {offset} on"),
    }
}

pub(super) fn region_advice(offset_bytes: u64, data_size_bytes: Option<u64>, request_bytes: u64) -> String {
    match (offset_bytes, data_size_bytes) {
        (_, Some(size)) if size < request_bytes => "raise data_size, or lower reqsize".to_owned(),
        (0, _) => "name a longer file, or lower reqsize".to_owned(),
        _ => "lower offset, name a longer file, or lower reqsize".to_owned(),
    }
}

/// Refuses jobs that a named file or device does not allow.
fn check_named(options: &TestOptions, storage: &Storage, jobs: &[(usize, &Job)]) -> Result<(), TestError> {
    let (path, is_allowed, flag) = match storage {
        Storage::Directory(_) => return Ok(()),
        Storage::File(path) => (path.display().to_string(), options.overwrite, "--overwrite"),
        Storage::Device(path) => (path.display().to_string(), options.destructive, "--destructive"),
    };
    let jobs = || jobs.iter().map(|(_, job)| *job);
    if let Some(job) = jobs().find(|job| matches!(job.kind, JobKind::Unlink { .. })) {
        return Err(TestError::NeedsDirectory { job: job.name.clone(), path });
    }
    if let Some(job) = jobs().find(|job| job.kind.is_write() && !is_allowed) {
        return Err(TestError::WouldOverwrite { job: job.name.clone(), path, flag });
    }

    let writers = |stage| jobs().filter(|job| job.stage == stage && job.kind.is_write()).count();
    let is_shared = |job: &&Job| {
        let shards = (0..u32::from(options.shards)).filter(|shard| job.shards.contains(*shard)).count();
        let others = writers(job.stage) - usize::from(job.kind.is_write());
        job.verify && (others > 0 || (shards > 1 && job.kind.is_write()))
    };

    match jobs().find(is_shared) {
        Some(job) => Err(TestError::SharedVerify { job: job.name.clone(), path }),
        None => Ok(()),
    }
}

/// Returns the bytes of a job's files on a shard; 0 if the job sets no size or has no files.
fn data_bytes(job: &Job, shards: u32) -> u64 {
    let bytes = job.bytes_per_shard(shards);
    match job.kind {
        JobKind::Cpu { .. } => 0,
        JobKind::Unlink { files } => {
            let files = u64::from(files.max(1));
            (bytes / files).max(1).div_ceil(UNLINK_ALIGN_BYTES).saturating_mul(UNLINK_ALIGN_BYTES).saturating_mul(files)
        }
        _ => bytes,
    }
}

fn append_in_memory_bytes(bytes: u64) -> u64 {
    if bytes > 0 { bytes } else { APPEND_IN_MEMORY_BYTES }
}

/// Creates the files of a job on a shard for the memory backend.
fn make_all_in_memory(topology: &Topology, job: &Job, path: &Path, bytes: u64) -> std::io::Result<()> {
    match job.kind {
        JobKind::Unlink { files } => (0..files).try_for_each(|number| {
            make_in_memory(topology, &unlink_path(path, number), bytes / u64::from(files.max(1)))
        }),
        JobKind::Append => make_in_memory(topology, path, 0),
        _ => make_in_memory(topology, path, bytes),
    }
}

/// Returns the bytes after which each of `files` appending files starts over: together an eighth of the space left
/// free by the other files, but at least 1 MiB each.
fn append_room_bytes(directory: &Path, needed_bytes: u64, files: u64) -> u64 {
    let free_bytes = file_system(directory).map_or(APPEND_IN_MEMORY_BYTES, |fs| fs.available_bytes);
    (free_bytes.saturating_sub(needed_bytes) / 8 / files.max(1)).max(1 << 20)
}

/// Reserves `len_bytes` for the file at `path`, without making it longer.
fn reserve(path: &Path, len_bytes: u64) -> std::io::Result<()> {
    let file = File::options().write(true).open(path)?;
    Ok(rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::KEEP_SIZE, 0, len_bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_differ_and_stay_short() {
        assert_eq!(file_name(0, "a b", 1), "plimsoll-test-0-a_b-1");
        assert_eq!(file_name(1, "a_b", 1), "plimsoll-test-1-a_b-1");
        assert!(file_name(65_535, &"x".repeat(5000), 65_535).len() < 128);
    }

    #[test]
    fn a_region_that_is_too_short_says_why() {
        for (offset_bytes, data_size_bytes, parts) in [
            (0, None, ["f has 5000 bytes, too few for one request of 8192 bytes of job `a`", "name a longer file"]),
            (4096, None, ["begins at offset 4096", "lower offset"]),
            (0, Some(512), ["a data_size of 512", "raise data_size"]),
            (4096, Some(1 << 20), ["a data_size of 1048576 from offset 4096 on", "lower offset"]),
        ] {
            let (path, job) = ("f".to_owned(), "a".to_owned());
            let (file_bytes, request_bytes) = (5000, 8192);
            let error = TestError::TooShort { path, file_bytes, offset_bytes, data_size_bytes, job, request_bytes };
            let text = error.to_string();
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        }
    }

    #[test]
    fn appending_files_share_what_is_free() {
        let root = Path::new("/");
        let (one, eight) = (append_room_bytes(root, 0, 1), append_room_bytes(root, 0, 8));
        assert!(eight <= one && eight >= 1 << 20, "{one} {eight}");
        assert_eq!(append_room_bytes(root, u64::MAX, 1), 1 << 20);
    }
}
