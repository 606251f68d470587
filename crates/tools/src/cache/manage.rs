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
//! use plimsoll_tools::cache::manage::{CreateFlags, create};
//! let flags = CreateFlags { size_bytes: Some(1 << 30), ..CreateFlags::default() };
//! create("c.yaml".as_ref(), &["disk0".into(), "disk1".into()], &flags)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom};
use std::path::{Path, PathBuf, absolute};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_cache::{BlockCache, CreateOptions, HostOptions};

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
    /// Write over the file, and over whatever is on the devices.
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
/// A file that exists, a disk that does not exist and has no size, or is not empty; all without `force`.
pub fn create(path: &Path, disks: &[PathBuf], flags: &CreateFlags) -> Result<CacheFile, SessionError> {
    if path.exists() && !flags.force {
        let message = format!("{} exists: name another file, or pass --force to write over it", path.display());
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
    file.write(path, flags.force)?;
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

/// Adds disks. What was done, a sentence each.
///
/// # Errors
/// As [`create`], and what the cache says.
pub fn add(path: &Path, disks: &[PathBuf], size_bytes: Option<u64>, force: bool) -> Result<Vec<String>, SessionError> {
    let mut made = Made::default();
    let file = config::parse_from_file(path).map_err(FileError::from)?;
    let mut devices: Vec<Device> = Vec::new();
    for disk in disks {
        let is_twice = devices.iter().any(|device| device.full_path(path) == *disk);
        if file.position(path, disk).is_some() || is_twice {
            return Err(FileError::Change(format!("{} is a disk of this cache already", disk.display())).into());
        }
        devices.push(made.device(path, disk, size_bytes)?);
    }
    let said = if let Ok(live) = live::read(path) {
        if force {
            devices.iter().try_for_each(|device| clear(&device.full_path(path)))?;
        }
        add_to_running(path, &live, &devices)?
    } else {
        let session = Session::open(path, |_| ())?;
        for device in &devices {
            block_on(session.cache().add_disk(&device.source(path)?, force))?;
        }
        session.close()?;
        config::edit(path, |file| {
            file.devices.extend(devices.clone());
            Ok::<(), FileError>(())
        })?;
        devices.iter().map(|device| format!("{}: added", device.path.display())).collect()
    };
    made.keep();
    Ok(said)
}

/// Writes zeros over the first and the last MiB, where whatever was there has its labels, unless somebody has it
/// locked.
fn clear(disk: &Path) -> Result<(), FileError> {
    use std::os::unix::fs::FileExt as _;
    const EDGE_BYTES: u64 = 1 << 20;
    let failed = |error: io::Error| FileError::Change(format!("{}: cannot clear it: {error}", disk.display()));
    let file = OpenOptions::new().read(true).write(true).open(disk).map_err(failed)?;
    file.try_lock().map_err(|error| FileError::Change(format!("{}: in use: {error}", disk.display())))?;
    let size_bytes = size_of(disk).map_err(failed)?;
    let zeros = vec![0; usize::try_from(EDGE_BYTES.min(size_bytes)).unwrap_or(0)];
    file.write_all_at(&zeros, 0).map_err(failed)?;
    file.write_all_at(&zeros, size_bytes.saturating_sub(EDGE_BYTES)).map_err(failed)?;
    file.sync_all().map_err(failed)
}

fn add_to_running(path: &Path, live: &Live, devices: &[Device]) -> Result<Vec<String>, SessionError> {
    config::edit(path, |file| {
        file.devices.extend(devices.iter().cloned());
        Ok::<(), FileError>(())
    })?;
    let is_there = |now: &Live, device: &Device| has_disk(now, &device.full_path(path));
    let waited = wait_for(path, devices, |now| devices.iter().all(|device| is_there(now, device)));
    if let Err(error) = waited {
        config::edit(path, |file| {
            file.devices.retain(|device| !devices.contains(device));
            Ok::<(), FileError>(())
        })?;
        return Err(error.into());
    }
    let said = |device: &Device| format!("{}: added by process {}", device.path.display(), live.pid);
    Ok(devices.iter().map(said).collect())
}

fn has_disk(live: &Live, path: &Path) -> bool {
    find_disk(live, path).is_some()
}

fn find_disk<'a>(live: &'a Live, path: &Path) -> Option<&'a live::LiveDisk> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    live.cache.disks.iter().find(|disk| real(Path::new(&disk.path)) == real(path))
}

/// Waits until the running cache shows what was asked for.
fn wait_for(path: &Path, devices: &[Device], is_done: impl Fn(&Live) -> bool) -> Result<(), FileError> {
    let begin = Instant::now();
    loop {
        let live = live::read(path).map_err(|error| FileError::Change(error.to_string()))?;
        if is_done(&live) {
            return Ok(());
        }
        let names = devices.iter().map(|device| device.path.display().to_string());
        let problem = live.problems.iter().find(|problem| names.clone().any(|name| problem.starts_with(&name)));
        if let Some(problem) = problem {
            return Err(FileError::Change(problem.clone()));
        }
        if begin.elapsed() > FOLLOW_TIMEOUT {
            let message = format!("process {} has the cache open and has not followed the file", live.pid);
            return Err(FileError::Change(message));
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// Uses more of a disk: a file is made `size_bytes` long first. What was done, in a sentence.
///
/// # Errors
/// A disk that is not of this cache or has not grown, and what the cache says.
pub fn expand(path: &Path, disk: &Path, size_bytes: Option<u64>) -> Result<String, SessionError> {
    let mut device = known(path, disk)?;
    let place = device.full_path(path);
    let failed = |error: io::Error| FileError::Change(format!("{}: {error}", disk.display()));
    let before = size_of(&place).map_err(failed)?;
    if let Some(bytes) = size_bytes.filter(|bytes| *bytes > before) {
        if !place.is_file() {
            let message = format!("{} has {before} bytes and is no file: enlarge the device first", disk.display());
            return Err(FileError::Change(message).into());
        }
        let file = OpenOptions::new().write(true).open(&place).map_err(failed)?;
        grow(&file, bytes).map_err(failed)?;
    }
    let is_open = live::read(path).ok();
    device.size_bytes = Some(size_of(&place).map_err(failed)?);
    let write = |device: &Device| {
        config::edit(path, |file| {
            let found = file.devices.iter_mut().find(|other| other.path == device.path);
            if let Some(found) = found {
                found.size_bytes = device.size_bytes;
            }
            Ok::<(), FileError>(())
        })
    };
    if let Some(live) = is_open {
        let capacity = |live: &Live| find_disk(live, &place).map_or(0, |disk| disk.capacity_bytes);
        let before = capacity(&live);
        write(&device)?;
        wait_for(path, std::slice::from_ref(&device), |now| capacity(now) > before)?;
    } else {
        let session = Session::open(path, |_| ())?;
        block_on(session.cache().expand_disk(&place))?;
        session.close()?;
        write(&device)?;
    }
    Ok(format!("{}: expanded", disk.display()))
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
    let mark = |state: DeviceState| {
        config::edit(path, |file| {
            let active = file.devices.iter().filter(|other| other.state == DeviceState::Active);
            if state == DeviceState::Removing && active.filter(|other| other.path != device.path).count() == 0 {
                return Err(FileError::Change("the last disk of a cache cannot be removed".to_owned()));
            }
            if let Some(found) = file.devices.iter_mut().find(|other| other.path == device.path) {
                found.state = state;
            }
            Ok(())
        })
    };
    let place = device.full_path(path);
    mark(DeviceState::Removing)?;
    if let Ok(live) = live::read(path) {
        let is_begun = |now: &Live| find_disk(now, &place).is_none_or(|disk| disk.health == "removing");
        if let Err(error) = wait_for(path, std::slice::from_ref(&device), is_begun) {
            mark(DeviceState::Active)?;
            return Err(error.into());
        }
        return Ok(format!("{}: process {} moves its blocks away; see `status`", disk.display(), live.pid));
    }
    let opened = Session::open(path, |_| ());
    let session = match opened {
        Ok(session) => session,
        Err(error) => {
            mark(DeviceState::Active)?;
            return Err(error);
        }
    };
    // The session follows the file; what remains is to wait.
    while follow::health(&session.cache().stats(), &place).is_some() && !is_stopped() {
        thread::sleep(Duration::from_millis(50));
        let removed = live::read(path).ok().and_then(|live| live.problems.into_iter().next());
        if let Some(problem) = removed {
            session.close()?;
            mark(DeviceState::Active)?;
            return Err(FileError::Change(problem).into());
        }
    }
    let is_removed = follow::health(&session.cache().stats(), &place).is_none();
    session.close()?;
    if !is_removed {
        return Ok(format!("{}: interrupted; it goes on when the cache is opened again", disk.display()));
    }
    config::edit(path, |file| {
        file.devices.retain(|other| other.path != device.path);
        Ok::<(), FileError>(())
    })?;
    Ok(format!("{}: removed", disk.display()))
}
