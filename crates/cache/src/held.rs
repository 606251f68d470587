//! Disks that the kernel still works on: operations that have not ended.
//!
//! # Why
//! A look-up drops its read at the deadline, and a shard that stops drops its tasks, but the kernel keeps the
//! operation. Until it ends, closing the cache names its disk, and the disk is not opened again.
//!
//! # How it works
//! Each request holds its file until the kernel has returned it. So a file with another holder than its disk is *held*.
//! [`DiskFiles`] knows all files that the cache has opened, also those of disks that hung while they were opened and
//! are not in use. It knows the device of each file too, since a path may lead to another device later.
//!
//! # Limits
//! Requests that wait in the scheduler count too. While a search for absent disks runs, it holds their files.
//!
//! # Example
//! A disk hangs with one read, which is dropped after 2 s. The disk's counters show no read in flight, but its file has
//! two holders: the disk and the request.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};

use plimsoll::SharedFile;

use crate::sync::lock;

/// A device or file, whatever its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DeviceId {
    /// A block device, by its number.
    Block(u64),
    /// A file, by its file system and inode.
    File(u64, u64),
}

impl DeviceId {
    pub(crate) fn of(metadata: &fs::Metadata) -> DeviceId {
        if metadata.file_type().is_block_device() {
            DeviceId::Block(metadata.rdev())
        } else {
            DeviceId::File(metadata.dev(), metadata.ino())
        }
    }
}

/// The files of a cache's disks.
#[derive(Clone, Default)]
pub(crate) struct DiskFiles(Arc<Mutex<Vec<Known>>>);

/// A file that the cache has opened, and the device of its path at that time.
struct Known {
    file: Weak<SharedFile>,
    /// `None` in simulated worlds.
    device: Option<DeviceId>,
}

/// A file that the cache has opened, as its path and the device of that path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DiskFile {
    pub(crate) path: PathBuf,
    /// `None` in simulated worlds.
    pub(crate) device: Option<DeviceId>,
}

impl DiskFiles {
    /// Adds a file that is about to be opened. `device` is the device of its path.
    pub(crate) fn add(&self, file: &Arc<SharedFile>, device: Option<DeviceId>) {
        let mut known = lock(&self.0);
        known.retain(|known| known.file.strong_count() > 0);
        known.push(Known { file: Arc::downgrade(file), device });
    }

    /// Returns the device of a file's path when the file was opened.
    pub(crate) fn device(&self, file: &Arc<SharedFile>) -> Option<DeviceId> {
        let known = lock(&self.0);
        let is_it = |known: &&Known| std::ptr::eq(known.file.as_ptr(), Arc::as_ptr(file));
        known.iter().find(is_it).and_then(|known| known.device)
    }

    /// Returns the files that have other holders than their disks.
    pub(crate) fn held(&self, of_disks: impl FnOnce() -> Vec<Arc<SharedFile>>) -> Vec<DiskFile> {
        // Locked until all have been counted: another count holds the files too.
        let known = lock(&self.0);
        let upgrade = |known: &Known| Some((known.file.upgrade()?, known.device));
        let files: Vec<_> = known.iter().filter_map(upgrade).collect();
        let of_disks = of_disks();
        let is_held = |(file, _): &&(Arc<SharedFile>, _)| {
            let is_of_disk = of_disks.iter().any(|other| Arc::ptr_eq(other, file));
            // `files` holds it too, and so does `of_disks`.
            Arc::strong_count(file) > if is_of_disk { 3 } else { 1 }
        };
        let held = |(file, device): &(Arc<SharedFile>, _)| DiskFile { path: file.path().to_owned(), device: *device };
        let mut all_held: Vec<_> = files.iter().filter(is_held).map(held).collect();
        all_held.sort();
        all_held.dedup();
        all_held
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};
    use std::time::Duration;

    use plimsoll::backend::OpenOptions;
    use plimsoll::backend::sim::{SimConfig, SimDiskState, SimWorld};
    use plimsoll::buffer::AlignedBuf;
    use plimsoll::{Class, Classes, DiskSetup, SimRuntime, Topology};

    use super::*;

    /// A read that was given up was not counted.
    #[test]
    fn a_read_that_was_dropped_holds_its_disk() {
        let world = SimWorld::new(&SimConfig::default()).unwrap();
        let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
        let runtime = SimRuntime::new(&world, &topology).unwrap();
        let new = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
        let (file, shard) = (topology.file("disk".as_ref(), new, 0), runtime.shard(0).clone());
        let files = DiskFiles::default();
        files.add(&file, None);
        runtime.block_on(0, shard.set_len(&file, Class::DEFAULT, 1 << 20)).unwrap().unwrap();
        world.set_disk_state(0, SimDiskState::Slow { factor: 1e6 }).unwrap();

        let held = |file: &Arc<SharedFile>| files.held(|| vec![Arc::clone(file)]);
        assert_eq!(held(&file), []);
        {
            let mut read = pin!(shard.read_at(&file, Class::DEFAULT, 0, AlignedBuf::new(4096).unwrap()));
            assert!(read.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            runtime.run_for(Duration::from_secs(1)).unwrap();
        }
        runtime.run_for(Duration::from_secs(1)).unwrap();
        assert_eq!(held(&file), [DiskFile { path: PathBuf::from("disk"), device: None }]);
        runtime.run_for(Duration::from_secs(10_000)).unwrap();
        assert_eq!(held(&file), [], "it has ended");

        drop(file);
        assert_eq!(files.held(Vec::new), []);
    }
}
