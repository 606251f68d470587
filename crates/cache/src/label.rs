//! Prepares a device before it is a disk of the cache: opens, locks, measures and checks it.
//!
//! # Why
//! No foreign data may be overwritten, and no device that another process uses may be touched. Creating, opening and
//! adding all pass through here.
//!
//! # How it works
//! [`prepare`] opens a device for direct I/O and takes an exclusive `flock` on it. A block device is also opened
//! exclusively, which the kernel refuses while it is mounted, swap, or part of another device. [`check_empty`] reads
//! the first and the last MiB: anything but zeros is foreign data.
//!
//! # Limits
//! `flock` excludes only processes that use it, as this program does.
//!
//! # Example
//! A device with an ext4 file system has a superblock at 1024: `create` refuses with "data that is not a cache's".

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;

use plimsoll::backend::{FileInfo, OpenOptions};
use plimsoll::{Shard, SharedFile};

use crate::config::DiskSource;
use crate::error::CacheError;
use crate::format::SlotError;
use crate::host::HostParts;
use crate::recover::{self, Label, Source};

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

/// Opens and locks a device.
///
/// # Errors
/// When the device cannot be opened, or another process has it.
pub(crate) fn prepare(host: &HostParts, shard: &Shard, source: &DiskSource, slot: u16) -> Result<Prepared, CacheError> {
    let path = source.path.clone();
    let failed = |error| CacheError::Io { path: path.clone(), what: "cannot open it", error };
    let lock = if host.locks { Some(take_lock(source)?) } else { None };
    let options = OpenOptions { write: true, direct: true, ..OpenOptions::default() };
    let file = host.topology.file(&source.path, options, slot);
    host.files.add(&file);
    let info = shard.reactor().open(&file).map_err(failed)?;
    Ok(Prepared { source: source.clone(), file, lock, info, slot })
}

fn take_lock(source: &DiskSource) -> Result<std::fs::File, CacheError> {
    let path = source.path.clone();
    let failed = |error| CacheError::Io { path: path.clone(), what: "cannot open it", error };
    let open = |flags: i32| std::fs::File::options().read(true).write(true).custom_flags(flags).open(&source.path);
    let mut file = open(0).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(std::fs::TryLockError::WouldBlock) => return Err(CacheError::Locked { path }),
        Err(std::fs::TryLockError::Error(error)) => {
            return Err(CacheError::Io { path, what: "cannot lock it", error });
        }
    }
    if file.metadata().map_err(failed)?.file_type().is_block_device() {
        // A mounted device, or a part of another, has no `flock`, but the kernel refuses to open it exclusively.
        let what = "it is mounted, swap, or part of another device";
        let busy = |error| CacheError::Io { path: path.clone(), what, error };
        file = open(rustix::fs::OFlags::EXCL.bits().cast_signed()).map_err(busy)?;
        file.try_lock().map_err(|_| CacheError::Locked { path: path.clone() })?;
    }
    Ok(file)
}

/// Turns [`CacheError::Locked`] into [`CacheError::Twice`] if the disk is one of the first `count` sources, perhaps by
/// another name: then this process holds the lock.
pub(crate) fn or_twice(error: CacheError, sources: &[DiskSource], count: usize) -> CacheError {
    let identity = |path: &Path| {
        let metadata = std::fs::metadata(path).ok()?;
        let is_device = metadata.file_type().is_block_device();
        Some(if is_device { (metadata.rdev(), None) } else { (metadata.dev(), Some(metadata.ino())) })
    };
    match error {
        CacheError::Locked { path } => {
            let locked = identity(&path);
            let is_it = |source: &DiskSource| locked.is_some() && identity(&source.path) == locked;
            if sources.iter().take(count).any(is_it) { CacheError::Twice { path } } else { CacheError::Locked { path } }
        }
        other => other,
    }
}

/// Checks that a device holds no data.
///
/// # Errors
/// [`CacheError::NotEmpty`], or when it cannot be read.
pub(crate) async fn check_empty(host: &HostParts, shard: &Shard, prepared: &Prepared) -> Result<(), CacheError> {
    let path = prepared.source.path.clone();
    let failed = |error| CacheError::Io { path: path.clone(), what: "cannot read it", error };
    let from = Source { shard, file: &prepared.file, class: host.classes.checkpoint };
    let len_bytes = prepared.info.len_bytes;
    let what = match recover::read_superblock(from).await {
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

/// Returns the number of slabs that fit on a device.
///
/// # Errors
/// [`CacheError::TooSmall`].
pub(crate) fn slabs_that_fit(prepared: &Prepared, slab_bytes: u32) -> Result<u32, CacheError> {
    let has_bytes = prepared.info.len_bytes;
    let slabs = has_bytes.saturating_sub(SLABS_AT_BYTES) / u64::from(slab_bytes);
    if slabs < MIN_SLABS {
        let needs_bytes = SLABS_AT_BYTES + MIN_SLABS * u64::from(slab_bytes);
        return Err(CacheError::TooSmall { path: prepared.source.path.clone(), has_bytes, needs_bytes });
    }
    Ok(u32::try_from(slabs).unwrap_or(u32::MAX))
}
