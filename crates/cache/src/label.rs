//! Prepares a device before it is a disk of the cache: opens, locks, measures and checks it.
//!
//! # Why
//! No foreign data may be overwritten, and no device that another process uses may be touched. Creating, opening and
//! adding all pass through here.
//!
//! # How it works
//! [`prepare`] takes an exclusive `flock` on a device, and opens it for direct I/O. A block device is also opened
//! exclusively, which the kernel refuses while it is mounted, swap, or part of another device. [`check_empty`] reads
//! the first and the last MiB: anything but zeros is foreign data.
//!
//! A device that hangs may never return from `open`, and `open` cannot be cancelled. So the lock is taken on a thread
//! of its own, which is given up at the deadline of reads. As long as that thread runs, the process does not open the
//! path again, so a program that tries again has one such thread for a device. The same thread finds out which device
//! the path leads to: one that is named twice is recognized by its number, even if opening it failed.
//!
//! # Limits
//! `flock` excludes only processes that use it, as this program does. The device is opened for I/O on the shard, at
//! once after the thread has opened it: a device that begins to hang between the two blocks the shard.
//!
//! # Example
//! A device with an ext4 file system has a superblock at 1024: `create` refuses with "data that is not a cache's".

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::{fs, io};

use futures_channel::oneshot;
use plimsoll::backend::{FileInfo, OpenOptions};
use plimsoll::{Shard, SharedFile};

use crate::config::DiskSource;
use crate::entry::MIN_SLAB_BYTES;
use crate::error::CacheError;
use crate::format::{RangeRecord, SlotError, Superblock};
use crate::held::{DeviceId, DiskFile};
use crate::host::HostParts;
use crate::race::{DEADLINE, all, in_time};
use crate::recover::{self, Label, Source};
use crate::sync::lock;

/// Offset of a disk's first slab, in bytes: behind the superblocks, and aligned to any erase block.
pub(crate) const SLABS_AT_BYTES: u64 = 1 << 20;

/// Bytes checked at each end of a device.
const LOOK_BYTES: u32 = 1 << 20;

/// Fewest slabs of a usable disk: a log, two snapshots and some data.
const MIN_SLABS: u64 = 8;

/// A device that is open and locked.
pub(crate) struct Prepared {
    pub(crate) source: DiskSource,
    pub(crate) file: Arc<SharedFile>,
    pub(crate) lock: Option<std::fs::File>,
    pub(crate) info: FileInfo,
    /// Its number in the topology.
    pub(crate) slot: u16,
}

/// Paths at which a thread was given up, for all caches of the process. The thread has the other end while it runs.
static STUCK: Mutex<Vec<(PathBuf, Weak<()>)>> = Mutex::new(Vec::new());

/// Returns whether two paths lead to one device or file. A path that does not exist is the same disk only as itself.
#[must_use]
pub fn is_same_disk(one: &Path, other: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).ok().map(|metadata| DeviceId::of(&metadata));
    one == other || device(one).is_some_and(|one| device(other) == Some(one))
}

/// The device that a path leads to, once that is known.
type Seen = Arc<OnceLock<DeviceId>>;

/// Opens and locks all of `sources` concurrently, so that several that hang cost one deadline. Returns the end of each.
///
/// # Errors
/// [`CacheError::Twice`], with the later path, if two lead to one device.
pub(crate) async fn prepare_all(
    host: &HostParts,
    shard: &Shard,
    sources: &[DiskSource],
) -> Result<Vec<Result<Prepared, CacheError>>, CacheError> {
    let seen: Vec<Seen> = sources.iter().map(|_| Seen::default()).collect();
    let slots = host.disks.clone().zip(sources).zip(&seen);
    let not = Excluded::default();
    let ends = all(slots.map(|((slot, source), seen)| prepare_seen(host, shard, source, slot, not, seen))).await;

    let mut devices: Vec<(DeviceId, &Path)> = Vec::new();
    for (source, seen) in sources.iter().zip(&seen) {
        let Some(device) = seen.get() else { continue };
        if let Some((_, first)) = devices.iter().find(|(other, _)| other == device) {
            return Err(CacheError::Twice { path: source.path.clone(), first: first.to_path_buf() });
        }
        devices.push((*device, &source.path));
    }
    Ok(ends)
}

/// Devices that are not to be opened.
#[derive(Clone, Copy, Default)]
pub(crate) struct Excluded<'a> {
    /// Those of the cache's disks.
    pub(crate) own: &'a [DiskFile],
    /// Those on which operations have not ended.
    pub(crate) held: &'a [DiskFile],
}

impl Excluded<'_> {
    /// Checks a path in a simulated world, where devices are known by their paths.
    fn check_path(&self, path: &Path) -> Result<(), CacheError> {
        match self.own.iter().find(|own| own.device.is_none() && own.path == path) {
            Some(own) => Err(CacheError::Twice { path: path.to_owned(), first: own.path.clone() }),
            None => Ok(()),
        }
    }
}

/// Opens and locks a device that is none of those excluded.
///
/// # Errors
/// When the device cannot be opened in time, another process has it, or operations on it have not ended;
/// [`CacheError::Twice`] if it is one of the cache's.
pub(crate) async fn prepare(
    host: &HostParts,
    shard: &Shard,
    source: &DiskSource,
    slot: u16,
    not: Excluded<'_>,
) -> Result<Prepared, CacheError> {
    prepare_seen(host, shard, source, slot, not, &Seen::default()).await
}

/// Does as [`prepare`], and sets `seen` as soon as the device is known.
async fn prepare_seen(
    host: &HostParts,
    shard: &Shard,
    source: &DiskSource,
    slot: u16,
    not: Excluded<'_>,
    seen: &Seen,
) -> Result<Prepared, CacheError> {
    not.check_path(&source.path)?;
    let (lock, device) = if host.locks {
        let (lock, device) = lock_in_time(shard, source, not, seen).await?;
        (Some(lock), Some(device))
    } else {
        (None, None)
    };
    let options = OpenOptions { write: true, direct: true, ..OpenOptions::default() };
    let file = host.topology.file(&source.path, options, slot);
    host.files.add(&file, device);
    let info = shard.reactor().open(&file).map_err(|error| cannot_open(&source.path, error))?;
    Ok(Prepared { source: source.clone(), file, lock, info, slot })
}

fn cannot_open(path: &Path, error: io::Error) -> CacheError {
    CacheError::Io { path: path.to_owned(), what: "cannot open it", error }
}

/// Returns whether a path leads to a device that is none of those `held`.
///
/// # Errors
/// When the path leads nowhere, or the device does not answer in time.
pub(crate) async fn leads_elsewhere(shard: &Shard, path: &Path, held: &[DiskFile]) -> Result<bool, CacheError> {
    let held: Vec<_> = held.iter().filter_map(|held| held.device).collect();
    let own = path.to_owned();
    let work = move || fs::metadata(&own).map(|metadata| !held.contains(&DeviceId::of(&metadata)));
    on_thread(shard, path, work).await?.map_err(|error| cannot_open(path, error))
}

/// Takes the lock of a device that is none of those excluded.
async fn lock_in_time(
    shard: &Shard,
    source: &DiskSource,
    not: Excluded<'_>,
    seen: &Seen,
) -> Result<(fs::File, DeviceId), CacheError> {
    let (own, held) = (not.own.to_vec(), not.held.to_vec());
    let (path, seen) = (source.path.clone(), Arc::clone(seen));
    on_thread(shard, &source.path, move || take_lock(&path, Excluded { own: &own, held: &held }, &seen)).await?
}

/// Does `work`, which may hang with the device of `path`, on a thread of its own. After [`DEADLINE`] the thread is
/// given up; it ends when the device answers.
async fn on_thread<T: Send + 'static>(
    shard: &Shard,
    path: &Path,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, CacheError> {
    let is_stuck = {
        let mut stuck = lock(&STUCK);
        stuck.retain(|(_, thread)| thread.strong_count() > 0);
        stuck.iter().any(|(stuck, _)| stuck == path)
    };
    if is_stuck {
        let message = "an earlier attempt has not ended: the device hangs";
        return Err(cannot_open(path, io::Error::new(io::ErrorKind::TimedOut, message)));
    }

    let (answer, answered) = oneshot::channel();
    let running = Arc::new(());
    let thread = Arc::downgrade(&running);
    let whole = move || {
        // If the caller has given up, this drops the result, a lock perhaps, while the path still counts as stuck.
        let _ = answer.send(work());
        drop(running);
    };
    let started = std::thread::Builder::new().name("plimsoll-open".to_owned()).spawn(whole);
    started.map_err(|error| cannot_open(path, error))?;

    match in_time(shard, answered).await {
        Some(Ok(end)) => Ok(end),
        Some(Err(_)) => Err(cannot_open(path, io::ErrorKind::Interrupted.into())),
        None => {
            lock(&STUCK).push((path.to_owned(), thread));
            let message = format!("it has not answered for {} s", DEADLINE.as_secs());
            Err(cannot_open(path, io::Error::new(io::ErrorKind::TimedOut, message)))
        }
    }
}

fn take_lock(path: &Path, not: Excluded<'_>, seen: &OnceLock<DeviceId>) -> Result<(fs::File, DeviceId), CacheError> {
    let failed = |error| cannot_open(path, error);
    let device = DeviceId::of(&fs::metadata(path).map_err(failed)?);
    _ = seen.set(device);
    let find = |files: &[DiskFile]| files.iter().find(|file| file.device == Some(device)).map(|file| file.path.clone());
    // Checked first: a disk of the cache may be busy, and must not be reported as one that hangs.
    if let Some(first) = find(not.own) {
        return Err(CacheError::Twice { path: path.to_owned(), first });
    }
    if find(not.held).is_some() {
        let message = "operations on it have not ended: the device hangs";
        return Err(failed(io::Error::new(io::ErrorKind::ResourceBusy, message)));
    }

    let open = |flags: i32| fs::File::options().read(true).write(true).custom_flags(flags).open(path);
    let mut file = open(0).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => return Err(CacheError::Locked { path: path.to_owned() }),
        Err(fs::TryLockError::Error(error)) => {
            return Err(CacheError::Io { path: path.to_owned(), what: "cannot lock it", error });
        }
    }
    let device = DeviceId::of(&file.metadata().map_err(failed)?);
    if matches!(device, DeviceId::Block(_)) {
        // A mounted device, or a part of another, has no `flock`, but the kernel refuses to open it exclusively.
        let what = "it is mounted, swap, or part of another device";
        let busy = |error| CacheError::Io { path: path.to_owned(), what, error };
        file = open(rustix::fs::OFlags::EXCL.bits().cast_signed()).map_err(busy)?;
        file.try_lock().map_err(|_| CacheError::Locked { path: path.to_owned() })?;
    }
    Ok((file, device))
}

/// Checks that a device holds no data, or only a superblock for which `is_unused` is true.
///
/// # Errors
/// [`CacheError::NotEmpty`], [`CacheError::TooSmall`] if it has no room for a label, or when it cannot be read.
pub(crate) async fn check_empty(
    host: &HostParts,
    shard: &Shard,
    prepared: &Prepared,
    is_unused: impl Fn(&Superblock) -> bool,
) -> Result<(), CacheError> {
    let path = prepared.source.path.clone();
    let failed = |error| CacheError::Io { path: path.clone(), what: "cannot read it", error };
    let from = Source { shard, file: &prepared.file, class: host.classes.checkpoint };
    let len_bytes = prepared.info.len_bytes;
    if len_bytes < SLABS_AT_BYTES {
        return Err(too_small(prepared, MIN_SLAB_BYTES));
    }

    let what = match recover::read_superblock(from).await {
        Ok(Label::Ours(found)) if is_unused(&found.block) => return Ok(()),
        Ok(Label::Ours(found)) => Some(format!("it is a disk of cache {:032x}", found.block.cache_guid)),
        Ok(Label::Not(SlotError::Empty)) => None,
        Ok(Label::Not(SlotError::Foreign)) => Some("it holds data that is not a cache's".to_owned()),
        Ok(Label::Not(error)) => Some(format!("it holds {error}")),
        Err(error) => return Err(failed(error)),
    };

    if let Some(what) = what {
        return Err(CacheError::NotEmpty { path, what });
    }

    let sector = u64::from(prepared.info.offset_align_bytes.max(512));
    let last = len_bytes.saturating_sub(u64::from(LOOK_BYTES)) / sector * sector;
    for offset in [0, last] {
        let part = from.read(offset, LOOK_BYTES).await.map_err(failed)?;
        if part.iter().any(|byte| *byte != 0) {
            let what = "it holds data that is not a cache's (its first or last MiB is not all zeros)".to_owned();
            return Err(CacheError::NotEmpty { path, what });
        }
    }
    Ok(())
}

/// Checks that a device has room for the slabs that its superblock names, and sectors not larger than the cache's.
///
/// # Errors
/// [`CacheError::Shrunk`], or [`CacheError::SectorSize`].
pub(crate) fn check_fit(prepared: &Prepared, block: &Superblock) -> Result<(), CacheError> {
    let end_of = |range: &RangeRecord| range.offset_bytes + u64::from(range.count) * u64::from(block.slab_bytes);
    let (has_bytes, needs_bytes) = (prepared.info.len_bytes, block.ranges.iter().map(end_of).max().unwrap_or(0));
    if has_bytes < needs_bytes {
        return Err(CacheError::Shrunk { path: prepared.source.path.clone(), has_bytes, needs_bytes });
    }
    check_sectors(prepared, block.sector_bytes)
}

/// Checks that a device's sectors are not larger than the cache's.
///
/// # Errors
/// [`CacheError::SectorSize`].
pub(crate) fn check_sectors(prepared: &Prepared, has_bytes: u32) -> Result<(), CacheError> {
    let needs_bytes = prepared.info.offset_align_bytes;
    if needs_bytes <= has_bytes {
        return Ok(());
    }
    Err(CacheError::SectorSize { path: prepared.source.path.clone(), needs_bytes, has_bytes })
}

/// Returns the error of a device that has no room for the fewest slabs of `slab_bytes`.
fn too_small(prepared: &Prepared, slab_bytes: u32) -> CacheError {
    let needs_bytes = SLABS_AT_BYTES + MIN_SLABS * u64::from(slab_bytes);
    CacheError::TooSmall { path: prepared.source.path.clone(), has_bytes: prepared.info.len_bytes, needs_bytes }
}

/// Returns the number of slabs that fit on a device.
///
/// # Errors
/// [`CacheError::TooSmall`].
pub(crate) fn slabs_that_fit(prepared: &Prepared, slab_bytes: u32) -> Result<u32, CacheError> {
    let slabs = prepared.info.len_bytes.saturating_sub(SLABS_AT_BYTES) / u64::from(slab_bytes);
    if slabs < MIN_SLABS {
        return Err(too_small(prepared, slab_bytes));
    }
    Ok(u32::try_from(slabs).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk hangs for ever, and another one takes its place: nothing of the old one's can reach the new one.
    #[test]
    fn a_path_that_leads_to_another_device_is_opened_though_the_old_one_is_held() {
        let directory = tempfile::tempdir().unwrap();
        let (path, new) = (directory.path().join("disk"), directory.path().join("new"));
        fs::write(&path, "old").unwrap();
        fs::write(&new, "new").unwrap();
        let (lock, held) = take_lock(&path, Excluded::default(), &OnceLock::new()).unwrap();
        drop(lock);

        let files = [DiskFile { path: path.clone(), device: Some(held) }];
        let not = Excluded { held: &files, ..Excluded::default() };
        let error = take_lock(&path, not, &OnceLock::new()).unwrap_err();
        assert!(
            matches!(&error, CacheError::Io { error, .. } if error.kind() == io::ErrorKind::ResourceBusy),
            "{error}"
        );
        fs::rename(&new, &path).unwrap();
        let (_lock, device) = take_lock(&path, not, &OnceLock::new()).unwrap();
        assert_ne!(device, held);
    }
}
