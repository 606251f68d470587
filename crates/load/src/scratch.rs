//! Scratch files: made for a run and always removed after it.
//!
//! A scratch file is created exclusively (never over an existing one), filled with data that does not compress, and
//! removed when its [`Scratch`] is dropped, also on a panic and after Ctrl-C (which ends a run, not the process).
//!
//! A killed process leaves its files. Each is locked (`flock`) while it is in use, and names its process in an extended
//! attribute, unless it is to be kept: [`Scratch::remove_leftovers`] and [`Scratch::remove_if_left`] remove those with
//! the attribute and without a lock.
//!
//! The kernel frees the space of a removed file when the last program closes it. So files that a job removes are not
//! open here: the attribute of each also names another file, its keeper, whose lock stands for its own.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use plimsoll::backend::OpenOptions;
use plimsoll::backend::choose::BackendKind;
use plimsoll::backend::sim::SimWorld;
use plimsoll::sys::statfs::file_system;
use plimsoll::{Class, Classes, DiskSetup, ShardOptions, Topology};
use plimsoll_figures::units::format_bytes_binary;

use super::{Control, JobSpec, LoadError, Pattern, Plan, RunResult, Target, Watch, run_simulated, run_unrecorded};

const FILL_BYTES: u32 = 1 << 20;
const FILL_DEPTH: u32 = 16;
/// Space to leave free on the file system.
const SPARE_BYTES: u64 = 64 << 20;

/// Beginning of the names of files that are removed as leftovers.
const NAMES: &str = "plimsoll-";
/// Attribute of a scratch file that is not to be kept: the number of its process and, if it has one, the name of its
/// keeper behind a blank.
const MARK: &str = "user.plimsoll.scratch";
/// Longest mark in bytes: a number, a blank, and the longest name of a file.
const MARK_MAX_BYTES: usize = 11 + 255;

#[derive(Debug, thiserror::Error)]
pub enum ScratchError {
    #[error("{path}: {reason}: give a directory that can be written to")]
    BadDirectory { path: String, reason: String },
    #[error(
        "{path} has {} free, but {} are needed (with {} to spare): free some space or ask for less data",
        format_bytes_binary(*.free_bytes), format_bytes_binary(*.needed_bytes), format_bytes_binary(SPARE_BYTES)
    )]
    NoSpace { path: String, free_bytes: u64, needed_bytes: u64 },
    #[error("cannot create {path}: {error}{}", remedy(.error))]
    Create { path: String, error: io::Error },
    #[error("{path}: {} uses it: wait for its end, or name another directory or file", process_text(*.process))]
    InUse {
        path: String,
        /// Number of the process, if known.
        process: Option<u32>,
    },
    #[error("cannot fill the scratch files: {0}")]
    Fill(#[from] LoadError),
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => ": choose a directory on a file system that is mounted for writing",
        io::ErrorKind::PermissionDenied => ": choose a directory that you may write to",
        io::ErrorKind::AlreadyExists => ": it is left from another run; remove it if nobody uses it",
        _ => "",
    }
}

fn process_text(process: Option<u32>) -> String {
    process.map_or_else(|| "another process".to_owned(), |process| format!("process {process}"))
}

/// Scratch files in one directory. Dropping it removes them.
#[derive(Debug)]
pub struct Scratch {
    directory: PathBuf,
    /// The files, each locked while it is in use: a file without a lock is left over from a program that has ended.
    /// `None`: a file with a keeper.
    files: BTreeMap<PathBuf, Option<File>>,
    keep: bool,
}

impl Scratch {
    /// Checks that `directory` is a directory with `needed_bytes` free.
    pub fn new(directory: &Path, needed_bytes: u64) -> Result<Scratch, ScratchError> {
        let path = directory.display().to_string();
        let bad = |reason: String| ScratchError::BadDirectory { path: path.clone(), reason };
        let meta = std::fs::metadata(directory).map_err(|error| bad(error.to_string()))?;
        if !meta.is_dir() {
            return Err(bad("it is not a directory".to_owned()));
        }
        let free_bytes = file_system(directory).map_err(|error| bad(error.to_string()))?.available_bytes;
        if free_bytes < needed_bytes.saturating_add(SPARE_BYTES) {
            return Err(ScratchError::NoSpace { path, free_bytes, needed_bytes });
        }
        Ok(Scratch { directory: directory.to_owned(), files: BTreeMap::new(), keep: false })
    }

    pub fn keep(&mut self) {
        self.keep = true;
    }

    /// Returns whether the file `name` was made here and has `len_bytes`.
    pub fn has(&self, name: &str, len_bytes: u64) -> bool {
        self.is_full(&self.directory.join(name), len_bytes)
    }

    pub fn has_made(&self, name: &str) -> bool {
        self.files.contains_key(&self.directory.join(name))
    }

    fn is_full(&self, path: &Path, len_bytes: u64) -> bool {
        let meta = self.files.get(path).map(|file| file.as_ref().map_or_else(|| path.metadata(), File::metadata));
        meta.is_some_and(|meta| meta.is_ok_and(|meta| meta.len() == len_bytes))
    }

    /// Creates an empty file named `name`. A file made here is left as it is; any other must not exist.
    pub fn create(&mut self, name: &str) -> Result<PathBuf, ScratchError> {
        let path = self.directory.join(name);
        if self.has_made(name) {
            return Ok(path);
        }
        let file = create_new(&path)?;
        // If the file system has no locks, `reclaim` cannot lock the file either, so it does not mistake it for a
        // leftover. The mark comes after the lock: a file with a mark and without a lock is a leftover.
        if file.try_lock().is_ok() && !self.keep {
            set_mark(&file, &std::process::id().to_string());
        }
        self.files.insert(path.clone(), Some(file));
        Ok(path)
    }

    /// Creates an empty file as [`Scratch::create`], and closes it. It is in use for as long as the file `keeper`, which
    /// is created too, unless files are to be kept.
    pub fn create_closed(&mut self, name: &str, keeper: &str) -> Result<PathBuf, ScratchError> {
        let path = self.directory.join(name);
        if self.has_made(name) {
            return Ok(path);
        }
        if !self.keep {
            self.create(keeper)?;
        }
        let file = create_new(&path)?;
        if !self.keep {
            set_mark(&file, &format!("{} {keeper}", std::process::id()));
        }
        self.files.insert(path.clone(), None);
        Ok(path)
    }

    /// Removes the scratch files in `directory` that ended processes left. Returns their number.
    pub fn remove_leftovers(directory: &Path) -> usize {
        let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
        let has_name = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with(NAMES);
        entries.flatten().filter(has_name).filter(|entry| remove_leftover(&entry.path())).count()
    }

    /// Removes the file at `path` if it is a scratch file that an ended process left. Returns whether it was.
    ///
    /// # Errors
    /// [`ScratchError::InUse`] if it is a scratch file that a process uses.
    pub fn remove_if_left(path: &Path) -> Result<bool, ScratchError> {
        let used = open_regular(path).and_then(|file| {
            let mark = mark_of(&file)?;
            matches!(lock(path, &file, &mark), Err(TryLockError::WouldBlock)).then_some(mark)
        });
        match used {
            Some(Mark { process, .. }) => {
                Err(ScratchError::InUse { path: path.display().to_string(), process: Some(process) })
            }
            None => Ok(remove_leftover(path)),
        }
    }

    /// Lets other handles of the files be locked as well, for runs that name one of the files as their storage. The
    /// files still count as in use.
    pub fn share(&self) {
        for file in self.files.values().flatten() {
            // If the file system has no locks, there is none to share.
            let _ = rustix::fs::flock(file, rustix::fs::FlockOperation::NonBlockingLockShared);
        }
    }

    /// Removes the scratch file `name` if a program that has ended left it. A missing file is no error.
    pub fn reclaim(directory: &Path, name: &str) -> Result<(), ScratchError> {
        let path = directory.join(name);
        let failed = |error: io::Error| ScratchError::Create { path: path.display().to_string(), error };
        let file = match std::fs::File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.map_err(failed)?,
        };
        file.try_lock().map_err(|error| failed(error.into()))?;
        std::fs::remove_file(&path).map_err(failed)
    }

    /// Fills each of `files` (path, length in bytes) that does not have its length yet with data that does not
    /// compress, by direct I/O, without scheduling.
    ///
    /// # Errors
    /// [`ScratchError::Fill`]. A stop of `control` is no error, but leaves files only partly filled.
    pub fn fill(
        &self,
        files: &[(PathBuf, u64)],
        backend: Option<BackendKind>,
        control: &Control,
    ) -> Result<(), ScratchError> {
        for (path, len_bytes) in files.iter().filter(|(path, len_bytes)| !self.is_full(path, *len_bytes)) {
            fill_one(path, *len_bytes, backend, control)?;
            if control.stop.is_asked() {
                break;
            }
        }
        Ok(())
    }
}

fn create_new(path: &Path) -> Result<File, ScratchError> {
    let created = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    created.map_err(|error| not_created(path, error))
}

/// Sets the mark of a scratch file. Without attributes, a leftover stays and is reported.
fn set_mark(file: &File, mark: &str) {
    let _ = rustix::fs::fsetxattr(file, MARK, mark.as_bytes(), rustix::fs::XattrFlags::empty());
}

/// Opens the regular file at `path`, without waiting or following a link.
fn open_regular(path: &Path) -> Option<File> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let file = File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path).ok()?;
    file.metadata().is_ok_and(|meta| meta.is_file()).then_some(file)
}

/// The owner of a scratch file that is not to be kept.
struct Mark {
    process: u32,
    keeper: Option<String>,
}

fn mark_of(file: &File) -> Option<Mark> {
    let mut text = [0_u8; MARK_MAX_BYTES];
    let len_bytes = rustix::fs::fgetxattr(file, MARK, &mut text).ok()?;
    let text = std::str::from_utf8(text.get(..len_bytes)?).ok()?;
    let (process, keeper) = text.split_once(' ').map_or((text, None), |(process, keeper)| (process, Some(keeper)));
    Some(Mark { process: process.parse().ok()?, keeper: keeper.map(str::to_owned) })
}

/// Locks a scratch file, if its keeper, if any, is not in use.
fn lock(path: &Path, file: &File, mark: &Mark) -> Result<(), TryLockError> {
    if let Some(keeper) = &mark.keeper {
        let keeper = path.with_file_name(keeper);
        match open_regular(&keeper) {
            Some(keeper) => keeper.try_lock()?,
            None if keeper.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) => {}
            None => return Err(TryLockError::WouldBlock),
        }
    }
    file.try_lock()
}

/// Removes the file at `path` if it is a leftover. Returns whether it was.
fn remove_leftover(path: &Path) -> bool {
    let Some(file) = open_regular(path) else { return false };
    if mark_of(&file).is_none_or(|mark| lock(path, &file, &mark).is_err()) {
        return false;
    }
    // Another run may have removed it since, and created its own.
    let same = |one: std::fs::Metadata, other: std::fs::Metadata| (one.dev(), one.ino()) == (other.dev(), other.ino());
    let is_there = file.metadata().ok().zip(path.symlink_metadata().ok()).is_some_and(|(one, other)| same(one, other));
    is_there && std::fs::remove_file(path).is_ok()
}

fn not_created(path: &Path, error: io::Error) -> ScratchError {
    let name = path.display().to_string();
    if error.kind() == io::ErrorKind::AlreadyExists
        && let Some(file) = open_regular(path)
        && matches!(file.try_lock(), Err(TryLockError::WouldBlock))
    {
        return ScratchError::InUse { path: name, process: mark_of(&file).map(|mark| mark.process) };
    }
    ScratchError::Create { path: name, error }
}

fn fill_one(path: &Path, len_bytes: u64, backend: Option<BackendKind>, control: &Control) -> Result<(), LoadError> {
    let plan = fill_plan(path, len_bytes, OpenOptions::default(), backend)?;
    check_filled(path, &run_unrecorded(&plan, &Watch::default(), control)?)
}

/// Creates a file on a simulated disk and fills it.
pub fn fill_simulated(path: &Path, len_bytes: u64, world: &SimWorld, control: &Control) -> Result<(), ScratchError> {
    let plan = fill_plan(path, len_bytes, OpenOptions { create_new: true, ..OpenOptions::default() }, None)?;
    Ok(check_filled(path, &run_simulated(&plan, world, control)?)?)
}

fn fill_plan(path: &Path, len_bytes: u64, how: OpenOptions, backend: Option<BackendKind>) -> Result<Plan, LoadError> {
    let unsuitable = |reason: String| LoadError::Unsuitable { job: "fill".to_owned(), reason };
    let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()])
        .map_err(|error| unsuitable(error.to_string()))?;

    let file = topology.file(path, OpenOptions { write: true, direct: true, ..how }, 0);
    let request_bytes = u32::try_from(len_bytes).unwrap_or(FILL_BYTES).min(FILL_BYTES);
    let writes = len_bytes / u64::from(request_bytes.max(1));
    // No more fibers than writes: each fiber sends at least one.
    let fibers = u32::try_from(writes).unwrap_or(FILL_DEPTH).clamp(1, FILL_DEPTH);
    // A job ends with the request after its limit.
    let limit = u32::try_from(writes.saturating_sub(1)).ok();
    let job = JobSpec::closed_loop("fill", Pattern::Overwrite, request_bytes, fibers, Class::DEFAULT);
    let job = job.shaped(|it| it.limit_requests = limit).on_shard(0, Target { file, offset: 0, len_bytes });

    let options = ShardOptions { backend, pin: false, ..ShardOptions::default() };
    Ok(Plan { topology, options, jobs: vec![job], warmup_ns: 0, duration_ns: u64::MAX / 2, seed: len_bytes })
}

fn check_filled(path: &Path, run: &RunResult) -> Result<(), LoadError> {
    let filled = run.total("fill");
    if filled.errors > 0 {
        let error = match filled.first_error {
            Some(code) if code != 0 => io::Error::from_raw_os_error(code),
            _ => io::Error::other("a write came back short: is the file system full?"),
        };
        return Err(LoadError::Write { path: path.display().to_string(), error });
    }
    Ok(())
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.keep {
            for path in self.files.keys() {
                // An error has no remedy here; a file that is already gone needs none.
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_run_left_is_removed_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let made = |name: &str| {
            let mut scratch = Scratch::new(directory.path(), 0).unwrap();
            let path = scratch.create(name).unwrap();
            (scratch, path)
        };
        let (living, living_path) = made("plimsoll-test-living");
        let (mut killed, left) = made("plimsoll-test-left");
        // A kill runs no destructor; the kernel releases the lock.
        killed.keep();
        drop(killed);
        let mut kept = Scratch::new(directory.path(), 0).unwrap();
        kept.keep();
        let kept_path = kept.create("plimsoll-test-kept").unwrap();
        drop(kept);
        std::fs::write(directory.path().join("plimsoll-notes"), "mine").unwrap();

        if mark_of(&File::open(&left).unwrap()).is_none() {
            return println!("SKIPPED: no extended attributes in {}", directory.path().display());
        }
        let refused = Scratch::remove_if_left(&living_path).unwrap_err().to_string();
        assert!(refused.contains(&format!("process {} uses it", std::process::id())), "{refused}");
        for path in [&kept_path, &directory.path().join("plimsoll-notes"), &directory.path().join("missing")] {
            assert!(!Scratch::remove_if_left(path).unwrap(), "{}", path.display());
        }
        let (mut killed, named) = made("data");
        killed.keep();
        drop(killed);
        assert!(Scratch::remove_if_left(&named).unwrap() && !named.exists());

        assert_eq!(Scratch::remove_leftovers(directory.path()), 1);
        assert!(!left.exists() && kept_path.exists() && directory.path().join("plimsoll-notes").exists());

        // A file with a keeper is in use as long as that is.
        let mut keeping = Scratch::new(directory.path(), 0).unwrap();
        let kept = keeping.create_closed("plimsoll-test-many.0", "plimsoll-test-many").unwrap();
        assert_eq!(Scratch::remove_leftovers(directory.path()), 0);
        let refused = Scratch::remove_if_left(&kept).unwrap_err().to_string();
        assert!(refused.contains("uses it"), "{refused}");
        keeping.keep();
        drop(keeping);
        assert_eq!((Scratch::remove_leftovers(directory.path()), kept.exists()), (2, false));
        let mut keeping = Scratch::new(directory.path(), 0).unwrap();
        keeping.create_closed("plimsoll-test-many.0", "plimsoll-test-many").unwrap();
        drop(keeping);
        assert!(!kept.exists() && !directory.path().join("plimsoll-test-many").exists());

        let mut second = Scratch::new(directory.path(), 0).unwrap();
        let refused = second.create("plimsoll-test-living").unwrap_err().to_string();
        assert!(refused.contains(&format!("process {} uses it", std::process::id())), "{refused}");
        let refused = second.create("plimsoll-test-kept").unwrap_err().to_string();
        assert!(refused.contains("remove it if nobody uses it"), "{refused}");
        drop(living);
    }
}
