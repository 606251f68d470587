//! Creating a cache, and changing which disks it has, whether or not a process has it open.
//!
//! # Why
//! The same command works on a cache that serves and on one that is closed; its user need not know which it is.
//!
//! # How it works
//! If a process publishes snapshots, CACHE.yaml is changed and that process does the rest: the command waits until the
//! snapshot shows it, or the reason why not, and then takes its change back. Otherwise the command opens the cache
//! itself, does the work, closes it with a checkpoint, and changes the file.
//!
//! # Limits
//! A removal on a cache that is closed is waited for; on one that serves it is begun, and `status` shows how far it is.
//!
//! # Example
//! ```no_run
//! use plimsoll_cache_tools::manage::{CreateFlags, create};
//! let flags = CreateFlags { size_bytes: Some(1 << 30), ..CreateFlags::default() };
//! create("c.yaml".as_ref(), &["disk0".into(), "disk1".into()], &flags)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom};
use std::path::{Path, PathBuf, absolute};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_cache::stats::{DiskHealth, DiskStats};
use plimsoll_cache::{BlockCache, CacheError, CreateOptions, HostOptions};
use plimsoll_figures::units::format_bytes_binary;

use super::config::{self, CacheFile, Device, DeviceState, FileError, base_of};
use super::follow;
use super::live::{self, Live};
use super::session::{Session, SessionError};
use super::wait::block_on;

/// How long a command waits for a running cache to follow.
const FOLLOW_TIMEOUT: Duration = Duration::from_secs(20);

/// How a cache is created.
#[derive(Clone, Debug, Default)]
pub struct CreateFlags {
    /// Write over whatever is on the devices. The cache's own file is never written over.
    pub force: bool,
    /// Size of files that do not exist yet, in bytes.
    pub size_bytes: Option<u64>,
    /// Size of a slab in bytes; `None`: the largest.
    pub slab_bytes: Option<u32>,
    /// A file with the key.
    pub key_file: Option<PathBuf>,
}

/// Creates a cache on `disks`, and its file at `path`. What was made before a failure is removed again.
///
/// # Errors
/// A file that exists, a disk that does not exist and has no size, or is not empty (without `force`).
pub fn create(path: &Path, disks: &[PathBuf], flags: &CreateFlags) -> Result<CacheFile, SessionError> {
    if path.exists() {
        let message = format!("{} exists: name another file, or remove it first", path.display());
        return Err(FileError::Change(message).into());
    }
    let mut file = CacheFile::default();
    if let Some(key_file) = &flags.key_file {
        file.config.encryption_key = Some(config::read_key(key_file)?);
        file.key_file = Some(relative_to(path, key_file)?);
    }
    let mut made = Made::default();
    for disk in disks {
        let device = made.device(path, disk, flags.size_bytes)?;
        if file.position(path, disk).is_some() {
            return Err(FileError::Change(format!("{} is named twice", disk.display())).into());
        }
        file.devices.push(device);
    }
    let mut options =
        CreateOptions { encryption_key: file.config.encryption_key, force: flags.force, ..CreateOptions::default() };
    options.slab_bytes = flags.slab_bytes.unwrap_or(options.slab_bytes);
    block_on(BlockCache::create(&options, &file.sources(path)?, &HostOptions::default()))?;
    file.write(path, false)?;
    made.keep();
    Ok(file)
}

/// Files that a command has made; they go with it unless they are kept.
#[derive(Default)]
struct Made(Vec<PathBuf>);

impl Made {
    /// A device for the file at `path`: `disk` as it is, or a new file of `size_bytes`.
    fn device(&mut self, path: &Path, disk: &Path, size_bytes: Option<u64>) -> Result<Device, FileError> {
        let failed = |error: io::Error| FileError::Change(format!("{}: {error}", disk.display()));
        if !disk.exists() {
            let Some(bytes) = size_bytes else {
                let message = format!("{} does not exist: pass --size to make a file of it", disk.display());
                return Err(FileError::Change(message));
            };
            let file = OpenOptions::new().read(true).write(true).create_new(true).open(disk).map_err(failed)?;
            self.0.push(disk.to_owned());
            grow(&file, bytes).map_err(failed)?;
        }
        if disk.is_dir() {
            return Err(FileError::Change(format!("{} is a directory: name a device or a file", disk.display())));
        }
        let size_bytes = Some(size_of(disk).map_err(failed)?);
        Ok(Device { path: relative_to(path, disk)?, size_bytes, ..Device::default() })
    }

    fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for path in &self.0 {
            // The first error is the one to tell.
            let _ = fs::remove_file(path);
        }
    }
}

/// Makes a file larger, with its space reserved where the file system can.
fn grow(file: &File, bytes: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => file.set_len(bytes),
        other => Ok(other?),
    }
}

/// Size of a file or block device, in bytes.
fn size_of(path: &Path) -> io::Result<u64> {
    File::open(path)?.seek(SeekFrom::End(0))
}

/// How `disk` is written in the file at `path`: as what is below its directory where it is.
fn relative_to(path: &Path, disk: &Path) -> Result<PathBuf, FileError> {
    let whole = |path: &Path| absolute(path).map_err(|error| FileError::Change(format!("{}: {error}", path.display())));
    let (disk, base) = (whole(disk)?, whole(base_of(path))?);
    Ok(disk.strip_prefix(base).map(Path::to_owned).unwrap_or(disk))
}

/// Adds a disk. What was done, in a sentence.
///
/// # Errors
/// As [`create`], and what the cache says.
pub fn add(path: &Path, disk: &Path, size_bytes: Option<u64>, force: bool) -> Result<String, SessionError> {
    let mut made = Made::default();
    let file = config::parse_from_file(path).map_err(FileError::from)?;
    if file.position(path, disk).is_some() {
        return Err(FileError::Change(format!("{} is a disk of this cache already", disk.display())).into());
    }
    let device = made.device(path, disk, size_bytes)?;
    let said = if let Ok(live) = live::read(path) {
        if force {
            clear(&device.full_path(path))?;
        }
        match add_to_running(path, &live, &device) {
            // The process has ended meanwhile.
            Err(SessionError::NoSnapshot(_)) => add_to_closed(path, &device, force)?,
            other => other?,
        }
    } else {
        add_to_closed(path, &device, force)?
    };
    made.keep();
    Ok(said)
}

fn add_to_closed(path: &Path, device: &Device, force: bool) -> Result<String, SessionError> {
    // Somebody who was killed may have added it, and not have written it down.
    let said = format!("{}: added", device.path.display());
    if let Ok(session) = Session::open(path, |file| file.devices.push(device.clone())) {
        let is_in = follow::disk_at(&session.cache().stats(), &device.full_path(path)).is_some();
        session.close()?;
        if is_in {
            write_down(path, device)?;
            return Ok(said);
        }
    }
    let session = Session::open(path, |_| ())?;
    block_on(session.cache().add_disk(&device.source(path)?, force))?;
    // It is one of the cache's now, whatever the last checkpoint says.
    let closed = session.close();
    write_down(path, device)?;
    closed.map(|()| said)
}

fn write_down(path: &Path, device: &Device) -> Result<(), FileError> {
    config::edit(path, |file| {
        file.devices.push(device.clone());
        Ok(())
    })
}

/// Writes zeros over the first and the last MiB, where whatever was there has its labels, unless somebody has it
/// locked.
fn clear(disk: &Path) -> Result<(), FileError> {
    use std::os::unix::fs::{FileExt as _, FileTypeExt as _, OpenOptionsExt as _};
    const EDGE_BYTES: u64 = 1 << 20;
    let failed = |error: io::Error| FileError::Change(format!("{}: cannot clear it: {error}", disk.display()));
    let is_device = fs::metadata(disk).map_err(failed)?.file_type().is_block_device();
    // An exclusive opening of a device fails where it is mounted.
    let flags = if is_device { rustix::fs::OFlags::EXCL.bits().cast_signed() } else { 0 };
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(disk).map_err(failed)?;
    file.try_lock().map_err(|error| FileError::Change(format!("{}: in use: {error}", disk.display())))?;
    let size_bytes = size_of(disk).map_err(failed)?;
    let zeros = vec![0; usize::try_from(EDGE_BYTES.min(size_bytes)).unwrap_or(0)];
    file.write_all_at(&zeros, 0).map_err(failed)?;
    file.write_all_at(&zeros, size_bytes.saturating_sub(EDGE_BYTES)).map_err(failed)?;
    file.sync_all().map_err(failed)
}

fn add_to_running(path: &Path, live: &Live, device: &Device) -> Result<String, SessionError> {
    write_down(path, device)?;
    let place = device.full_path(path);
    if let Err(error) = wait_for(path, device, |now| find_disk(now, &place).is_some()) {
        config::edit(path, |file| {
            file.devices.retain(|other| other.path != device.path);
            Ok::<(), FileError>(())
        })?;
        return Err(error);
    }
    Ok(format!("{}: added by process {}", device.path.display(), live.pid))
}

fn find_disk<'a>(live: &'a Live, path: &Path) -> Option<&'a DiskStats> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    live.cache.disks.iter().find(|disk| real(Path::new(&disk.path)) == real(path))
}

/// Waits until the running cache shows that what the file says now of `device` is done, or says why it is not.
fn wait_for(path: &Path, device: &Device, is_done: impl Fn(&Live) -> bool) -> Result<(), SessionError> {
    let changed_unix_ns = follow::changed_unix_ns(path);
    let begin = Instant::now();
    let of_device = format!("{}: ", device.path.display());
    loop {
        let live = live::read(path)?;
        if is_done(&live) {
            return Ok(());
        }
        // What an older file could not do says nothing.
        let problem = live.problems.iter().find(|problem| problem.starts_with(&of_device));
        if let Some(problem) = problem.filter(|_| live.followed_unix_ns >= changed_unix_ns) {
            return Err(FileError::Change(problem.clone()).into());
        }
        if begin.elapsed() > FOLLOW_TIMEOUT {
            return Err(SessionError::NotFollowed { pid: live.pid, waited: FOLLOW_TIMEOUT });
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// Uses more of a disk: a file is made `size_bytes` long first. What was done, in a sentence.
///
/// # Errors
/// A disk that is not of this cache or has not grown, and what the cache says.
pub fn expand(path: &Path, disk: &Path, size_bytes: Option<u64>) -> Result<String, SessionError> {
    let before = known(path, disk)?;
    let place = before.full_path(path);
    let failed = |error: io::Error| FileError::Change(format!("{}: {error}", disk.display()));
    let has_bytes = size_of(&place).map_err(failed)?;
    if let Some(bytes) = size_bytes.filter(|bytes| *bytes > has_bytes) {
        if !place.is_file() {
            let message = format!("{} has {has_bytes} bytes and is no file: enlarge the device first", disk.display());
            return Err(FileError::Change(message).into());
        }
        let file = OpenOptions::new().write(true).open(&place).map_err(failed)?;
        grow(&file, bytes).map_err(failed)?;
    }
    let after = Device { size_bytes: Some(size_of(&place).map_err(failed)?), ..before.clone() };
    if after.size_bytes <= before.size_bytes {
        let has = format_bytes_binary(after.size_bytes.unwrap_or(0));
        let message = format!("{} has not grown: it has {has}, all in use; pass --size for a file", disk.display());
        return Err(FileError::Change(message).into());
    }
    let write = |device: &Device| {
        config::edit(path, |file| {
            if let Some(found) = file.devices.iter_mut().find(|other| other.path == device.path) {
                found.size_bytes = device.size_bytes;
            }
            Ok::<(), FileError>(())
        })
    };
    let in_running = |live: &Live| {
        let capacity = |live: &Live| find_disk(live, &place).map_or(0, |disk| disk.capacity_bytes);
        let had_bytes = capacity(live);
        write(&after)?;
        wait_for(path, &after, |now| capacity(now) > had_bytes)
    };
    match live::read(path).map_err(SessionError::from).and_then(|live| in_running(&live)) {
        // Nobody has it open, or not any more.
        Err(SessionError::NoSnapshot(_)) => expand_closed(path, &place)?,
        Err(error) => {
            write(&before)?;
            return Err(error);
        }
        Ok(()) => {}
    }
    write(&after)?;
    let (from, to) = (before.size_bytes.map(format_bytes_binary), after.size_bytes.map_or(0, |bytes| bytes));
    let from = from.map_or_else(String::new, |from| format!(" from {from}"));
    Ok(format!("{}: expanded{from} to {}", disk.display(), format_bytes_binary(to)))
}

fn expand_closed(path: &Path, place: &Path) -> Result<(), SessionError> {
    let session = Session::open(path, |_| ())?;
    let expanded = match block_on(session.cache().expand_disk(place)) {
        // Somebody who was killed may have done it, and not have written it down.
        Ok(_) | Err(CacheError::TooSmall { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    };
    session.close().and(expanded)
}

fn known(path: &Path, disk: &Path) -> Result<Device, FileError> {
    let file = config::parse_from_file(path)?;
    let device = file.position(path, disk).and_then(|at| file.devices.get(at)).cloned();
    device.ok_or_else(|| FileError::Change(format!("{} is no disk of this cache", disk.display())))
}

/// Removes a disk; `is_stopped` ends the waiting, the removal goes on when the cache is opened again. What was done,
/// in a sentence.
///
/// # Errors
/// A disk that is not of this cache, the last one, and what the cache says.
pub fn remove(path: &Path, disk: &Path, is_stopped: &dyn Fn() -> bool) -> Result<String, SessionError> {
    let device = known(path, disk)?;
    mark(path, &device, DeviceState::Removing)?;
    let running = live::read(path).map_err(SessionError::from);
    let removed = match running.and_then(|live| begin_in_running(path, &device, live.pid)) {
        // Nobody has it open, or not any more.
        Err(SessionError::NoSnapshot(_)) => remove_from_closed(path, &device, is_stopped),
        other => other,
    };
    if removed.is_err() {
        mark(path, &device, DeviceState::Active)?;
    }
    Ok(format!("{}: {}", disk.display(), removed?))
}

/// Writes into the file what should be done with a device.
fn mark(path: &Path, device: &Device, state: DeviceState) -> Result<(), FileError> {
    config::edit(path, |file| {
        let mut others = file.devices.iter().filter(|other| other.path != device.path);
        if state == DeviceState::Removing && others.all(|other| other.state == DeviceState::Removing) {
            return Err(FileError::Change("the last disk of a cache cannot be removed".to_owned()));
        }
        if let Some(found) = file.devices.iter_mut().find(|other| other.path == device.path) {
            found.state = state;
        }
        Ok(())
    })
}

fn begin_in_running(path: &Path, device: &Device, pid: u32) -> Result<String, SessionError> {
    let place = device.full_path(path);
    wait_for(path, device, |now| find_disk(now, &place).is_none_or(|disk| disk.health == DiskHealth::Removing))?;
    Ok(format!("process {pid} moves its blocks away; see `status`"))
}

/// Opens the cache, which then follows the file, and waits.
fn remove_from_closed(path: &Path, device: &Device, is_stopped: &dyn Fn() -> bool) -> Result<String, SessionError> {
    let place = device.full_path(path);
    let session = Session::open(path, |_| ())?;
    let guid = follow::disk_at(&session.cache().stats(), &place).map(|disk| disk.guid.clone());
    let is_there = || session.cache().stats().disks.iter().any(|disk| Some(&disk.guid) == guid.as_ref());
    let of_device = format!("{}: ", device.path.display());
    let mut problem = None;
    while is_there() && !is_stopped() && problem.is_none() {
        thread::sleep(Duration::from_millis(50));
        let problems = live::read(path).map(|live| live.problems).unwrap_or_default();
        problem = problems.into_iter().find(|problem| problem.starts_with(&of_device));
    }
    let is_removed = !is_there();
    session.close()?;
    match problem {
        Some(problem) if !is_removed => Err(FileError::Change(problem).into()),
        _ if is_removed => {
            // The session may have done it.
            follow::forget(path, std::slice::from_ref(&device.path))?;
            Ok("removed".to_owned())
        }
        _ => Ok("interrupted; it goes on when the cache is opened again".to_owned()),
    }
}
