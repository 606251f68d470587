//! Creates a cache and changes its disks, whether or not a process has the cache open.
//!
//! # Why
//! The same command works on a cache that serves and on a closed one; its user need not know which.
//!
//! # How it works
//! If a process publishes snapshots, the command changes CACHE.yaml and that process does the rest. The command waits
//! until a snapshot shows the result or an error; after an error it reverts its change. Otherwise the command opens the
//! cache itself, does the work, closes the cache with a checkpoint, and changes the file.
//!
//! # Limits
//! On a closed cache, a command waits for a removal to end. On an open one it only starts it; `status` shows the
//! progress.
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

use plimsoll_cache::stats::{CacheStats, DiskHealth, DiskStats};
use plimsoll_cache::{BlockCache, CacheError, CreateOptions, HostOptions};
use plimsoll_figures::units::format_bytes_binary;

use super::check;
use super::config::{self, CacheFile, Device, DeviceState, FileError, base_of};
use super::follow;
use super::live::{self, Live};
use super::session::{Session, SessionError};
use super::wait::block_on;

/// Longest wait for a running cache to follow its file.
const FOLLOW_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Clone, Debug, Default)]
pub struct CreateFlags {
    /// Overwrite existing data on the devices. An existing CACHE.yaml is never overwritten.
    pub force: bool,
    /// Size of files that do not exist yet, in bytes.
    pub size_bytes: Option<u64>,
    /// Size of a slab in bytes; `None`: chosen by the smallest disk.
    pub slab_bytes: Option<u32>,
    pub key_file: Option<PathBuf>,
}

/// Creates a cache on `disks`, and its file at `path`. If it fails, removes the files that it made.
///
/// # Errors
/// A file that exists; a disk that does not exist and has no size, or is not empty (without `force`).
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
        if let Some(first) = named(&file, path, disk) {
            let message = format!("{} is named twice: it is {}", disk.display(), first.display());
            return Err(FileError::Change(message).into());
        }
        file.devices.push(device);
    }

    let (slab_bytes, encryption_key) = (flags.slab_bytes, file.config.encryption_key);
    let options = CreateOptions { slab_bytes, encryption_key, force: flags.force };
    block_on(BlockCache::create(&options, &file.sources(path)?, &HostOptions::default()))?;
    file.write(path, false)?;
    made.keep();
    Ok(file)
}

/// Files that a command has created. They are removed when dropped, unless kept.
#[derive(Default)]
struct Made(Vec<PathBuf>);

impl Made {
    /// Returns the device of `disk` for the file at `path`. If there is no such file, creates one of `size_bytes`.
    fn device(&mut self, path: &Path, disk: &Path, size_bytes: Option<u64>) -> Result<Device, FileError> {
        let failed = |error: io::Error| FileError::Change(format!("{}: {error}", disk.display()));
        if !disk.exists() {
            let Some(bytes) = size_bytes else {
                let message = format!("{} does not exist: pass --size to make a file of it", disk.display());
                return Err(FileError::Change(message));
            };
            let file = OpenOptions::new().read(true).write(true).create_new(true).open(disk).map_err(failed)?;
            self.0.push(disk.to_owned());
            grow(disk, &file, bytes)?;
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
            // The first error is the one to report.
            let _ = fs::remove_file(path);
        }
    }
}

/// Makes the file of `disk` larger, and reserves the space if the file system can.
fn grow(disk: &Path, file: &File, bytes: u64) -> Result<(), FileError> {
    let grown = match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => file.set_len(bytes),
        other => other.map_err(io::Error::from),
    };
    grown.map_err(|error| FileError::Write { path: disk.display().to_string(), error })
}

/// Returns the size of a file or block device, in bytes.
fn size_of(path: &Path) -> io::Result<u64> {
    File::open(path)?.seek(SeekFrom::End(0))
}

/// Returns `disk` as it is written in the file at `path`: relative if it lies below the file's directory.
fn relative_to(path: &Path, disk: &Path) -> Result<PathBuf, FileError> {
    let whole = |path: &Path| absolute(path).map_err(|error| FileError::Change(format!("{}: {error}", path.display())));
    let (disk, base) = (whole(disk)?, whole(base_of(path))?);
    Ok(disk.strip_prefix(base).map(Path::to_owned).unwrap_or(disk))
}

/// Adds a disk. Returns a sentence about the change. Calls `warn` with each problem that opening the cache found.
///
/// # Errors
/// A disk that is of this cache already, does not exist and has no size, or is not empty (without `force`), and the
/// cache's own errors.
pub fn add(
    path: &Path,
    disk: &Path,
    size_bytes: Option<u64>,
    force: bool,
    warn: &dyn Fn(&str),
) -> Result<String, SessionError> {
    let mut made = Made::default();
    let file = config::parse_from_file(path).map_err(FileError::from)?;
    if let Some(first) = named(&file, path, disk) {
        let message = format!("{} is a disk of this cache already, named {}", disk.display(), first.display());
        return Err(FileError::Change(message).into());
    }

    let device = made.device(path, disk, size_bytes)?;
    let said = if let Ok(live) = live::read(path) {
        if force {
            clear(&device.full_path(path))?;
        }
        match add_to_running(path, &live, &device) {
            // The process has ended meanwhile.
            Err(SessionError::NoSnapshot(_)) => add_to_closed(path, &device, force, warn)?,
            other => other?,
        }
    } else {
        add_to_closed(path, &device, force, warn)?
    };
    made.keep();
    Ok(said)
}

fn add_to_closed(path: &Path, device: &Device, force: bool, warn: &dyn Fn(&str)) -> Result<String, SessionError> {
    // A command that was killed may have added the disk, without writing it into the file.
    let said = format!("{}: added", device.path.display());
    if let Ok(session) = Session::open(path, |file| file.devices.push(device.clone())) {
        let is_in = follow::disk_at(&session.cache().stats(), &device.full_path(path)).is_some();
        session.close()?;
        if is_in {
            write_down(path, device)?;
            return Ok(said);
        }
    }
    let session = open_with_warnings(path, warn)?;
    block_on(session.cache().add_disk(&device.source(path)?, force))?;
    // The disk is the cache's now, whether or not closing succeeds.
    let closed = session.close();
    write_down(path, device)?;
    closed.map(|()| said)
}

/// Opens the cache. Calls `warn` with each problem found.
fn open_with_warnings(path: &Path, warn: &dyn Fn(&str)) -> Result<Session, SessionError> {
    let session = Session::open(path, |_| ())?;
    session.cache().findings().iter().for_each(|finding| warn(finding));
    Ok(session)
}

fn write_down(path: &Path, device: &Device) -> Result<(), FileError> {
    config::edit(path, |file| {
        file.devices.push(device.clone());
        Ok(())
    })
}

/// Overwrites the first and the last MiB with zeros, where labels usually lie. Refuses a disk that another process has
/// locked.
fn clear(disk: &Path) -> Result<(), FileError> {
    use std::os::unix::fs::{FileExt as _, FileTypeExt as _, OpenOptionsExt as _};
    const EDGE_BYTES: u64 = 1 << 20;
    let failed = |error: io::Error| FileError::Change(format!("{}: cannot clear it: {error}", disk.display()));
    let is_device = fs::metadata(disk).map_err(failed)?.file_type().is_block_device();
    // The kernel refuses to open a mounted device exclusively.
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
    if let Err(error) = wait_for(path, device, |now| follow::disk_at(&now.cache, &place).is_some()) {
        config::edit(path, |file| {
            file.devices.retain(|other| other.path != device.path);
            Ok::<(), FileError>(())
        })?;
        return Err(error);
    }
    Ok(format!("{}: added by process {}", device.path.display(), live.pid))
}

/// Waits until a snapshot shows that the running cache has followed the file for `device`, or reports why it has not.
fn wait_for(path: &Path, device: &Device, is_done: impl Fn(&Live) -> bool) -> Result<(), SessionError> {
    let changed_unix_ns = follow::changed_unix_ns(path);
    let begin = Instant::now();

    loop {
        let live = live::read(path)?;
        if is_done(&live) {
            return Ok(());
        }
        // A problem with an older version of the file does not count.
        if let Some(problem) = problem_of(&live, device).filter(|_| live.followed_unix_ns >= changed_unix_ns) {
            return Err(FileError::Change(problem.clone()).into());
        }
        if begin.elapsed() > FOLLOW_TIMEOUT {
            return Err(SessionError::NotFollowed { pid: live.pid, waited: FOLLOW_TIMEOUT });
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// Returns the problem of the running cache with `device`, if it could not follow the file.
fn problem_of<'a>(live: &'a Live, device: &Device) -> Option<&'a String> {
    let of_device = format!("{}: ", device.path.display());
    live.problems.iter().find(|problem| problem.starts_with(&of_device))
}

/// Uses more of a disk. A file is first enlarged to `size_bytes`. Returns a sentence about the change. Calls `warn`
/// with each problem that opening the cache found.
///
/// # Errors
/// A disk that is not of this cache or has not grown, and the cache's own errors.
pub fn expand(path: &Path, disk: &Path, size_bytes: Option<u64>, warn: &dyn Fn(&str)) -> Result<String, SessionError> {
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
        grow(disk, &file, bytes)?;
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
        let capacity = |live: &Live| follow::disk_at(&live.cache, &place).map_or(0, |disk| disk.capacity_bytes);
        let had_bytes = capacity(live);
        write(&after)?;
        wait_for(path, &after, |now| capacity(now) > had_bytes)
    };

    match live::read(path).map_err(SessionError::from).and_then(|live| in_running(&live)) {
        // No process has the cache open, or no longer.
        Err(SessionError::NoSnapshot(_)) => expand_closed(path, &place, warn)?,
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

fn expand_closed(path: &Path, place: &Path, warn: &dyn Fn(&str)) -> Result<(), SessionError> {
    let session = open_with_warnings(path, warn)?;
    let expanded = match block_on(session.cache().expand_disk(place)) {
        // A command that was killed may have expanded the disk, without writing it into the file.
        Ok(_) | Err(CacheError::TooSmall { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    };
    session.close().and(expanded)
}

/// Returns the path by which `file`, which lies at `path`, names a disk, if it does.
fn named<'a>(file: &'a CacheFile, path: &Path, disk: &Path) -> Option<&'a Path> {
    file.position(path, disk).and_then(|at| file.devices.get(at)).map(|device| &*device.path)
}

fn known(path: &Path, disk: &Path) -> Result<Device, FileError> {
    let file = config::parse_from_file(path)?;
    let device = file.position(path, disk).and_then(|at| file.devices.get(at)).cloned();
    device.ok_or_else(|| FileError::Change(format!("{} is no disk of this cache", disk.display())))
}

/// Removes disks. Returns a line about each. If `is_stopped`, stops waiting; the removal continues when the cache is
/// opened again. Calls `warn` with each problem that opening the cache found.
///
/// # Errors
/// A disk that is not of this cache, the last one, and the cache's own errors.
pub fn remove(
    path: &Path,
    disks: &[PathBuf],
    is_stopped: &dyn Fn() -> bool,
    warn: &dyn Fn(&str),
) -> Result<String, SessionError> {
    let devices = disks.iter().map(|disk| known(path, disk)).collect::<Result<Vec<_>, _>>()?;
    mark(path, &devices, DeviceState::Removing)?;
    let running = live::read(path).map_err(SessionError::from);
    let removed = match running.and_then(|live| begin_in_running(path, &devices, live.pid)) {
        // No process has the cache open, or no longer.
        Err(SessionError::NoSnapshot(_)) => remove_from_closed(path, &devices, is_stopped, warn),
        other => other,
    };
    if removed.is_err() {
        let now = disks_now(path);
        // A removal that has begun is not taken back. One that has ended leaves no disk of the cache at its path.
        let has_begun = |device: &&Device| {
            let place = device.full_path(path);
            let is_removing = |disk: &DiskStats| disk.health == DiskHealth::Removing;
            follow::disk_at(&now, &place).map_or_else(|| !now.disks.is_empty() && place.exists(), is_removing)
        };
        let not_begun: Vec<Device> = devices.iter().filter(|device| !has_begun(device)).cloned().collect();
        mark(path, &not_begun, DeviceState::Active)?;
    }
    let removed = removed?;
    Ok(disks.iter().map(|disk| format!("{}: {removed}", disk.display())).collect::<Vec<_>>().join("\n"))
}

/// Returns the state of the disks of the cache of the file at `path`, open or not; none if it cannot be seen.
fn disks_now(path: &Path) -> CacheStats {
    let live = live::read(path).map(|live| live.cache).ok();
    live.or_else(|| Some(check::inspect(path).ok()?.stats)).unwrap_or_default()
}

/// Writes the desired state of devices into the file.
fn mark(path: &Path, devices: &[Device], state: DeviceState) -> Result<(), FileError> {
    config::edit(path, |file| {
        let is_named = |device: &Device| devices.iter().any(|named| named.path == device.path);
        let mut others = file.devices.iter().filter(|device| !is_named(device));
        if state == DeviceState::Removing && others.all(|other| other.state == DeviceState::Removing) {
            return Err(FileError::Change("the last disk of a cache cannot be removed".to_owned()));
        }
        for device in file.devices.iter_mut().filter(|device| is_named(device)) {
            device.state = state;
        }
        Ok(())
    })
}

fn begin_in_running(path: &Path, devices: &[Device], pid: u32) -> Result<String, SessionError> {
    for device in devices {
        let place = device.full_path(path);
        let changed_unix_ns = follow::changed_unix_ns(path);
        // The removal of an absent disk shows only in that the file has been followed without a problem.
        let has_begun = |now: &Live| match follow::disk_at(&now.cache, &place) {
            Some(disk) => disk.health == DiskHealth::Removing,
            None => now.followed_unix_ns >= changed_unix_ns && problem_of(now, device).is_none(),
        };
        wait_for(path, device, has_begun)?;
    }
    Ok(format!("process {pid} moves its blocks away, or has forgotten it if it was missing; see `status`"))
}

/// Opens the cache, which then follows the file, and waits for the removals to end.
fn remove_from_closed(
    path: &Path,
    devices: &[Device],
    is_stopped: &dyn Fn() -> bool,
    warn: &dyn Fn(&str),
) -> Result<String, SessionError> {
    let session = open_with_warnings(path, warn)?;
    let at_first = session.cache().stats();
    let found: Vec<_> = devices.iter().map(|device| follow::disk_at(&at_first, &device.full_path(path))).collect();
    let is_any_gone = found.contains(&None);
    let missing = at_first.disks.iter().filter(|disk| is_any_gone && disk.health == DiskHealth::Missing);
    let leaving: Vec<&str> = found.iter().copied().flatten().chain(missing).map(|disk| &*disk.guid).collect();
    let is_there = || session.cache().stats().disks.iter().any(|disk| leaving.contains(&&*disk.guid));
    let mut problem = None;

    while is_there() && !is_stopped() && problem.is_none() {
        thread::sleep(Duration::from_millis(50));
        let live = live::read(path).ok();
        problem = live.and_then(|live| devices.iter().find_map(|device| problem_of(&live, device).cloned()));
    }
    let is_removed = !is_there();
    session.close()?;

    match problem {
        Some(problem) if !is_removed => Err(FileError::Change(problem).into()),
        _ if is_removed => {
            // The session may have removed the entries already.
            follow::forget(path, &devices.iter().map(|device| device.path.clone()).collect::<Vec<_>>())?;
            Ok("removed".to_owned())
        }
        _ => Ok("interrupted; it goes on when the cache is opened again".to_owned()),
    }
}

#[cfg(test)]
mod tests;
