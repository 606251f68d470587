//! Disks whose operations have not ended, also operations that no caller waits for any more.
//!
//! # Why
//! A look-up drops its read at the deadline, and a shard that stops drops its tasks. The kernel keeps the operation, and
//! with it the disk: whoever closes the cache is told which disk that is.
//!
//! # How it works
//! Each request holds its file until the kernel has given it back. So a file that has another holder than its disk is in
//! use. [`DiskFiles`] knows all files that the cache has opened, also those of disks that it does not use because they
//! hung when they were looked for.
//!
//! # Limits
//! Requests that still wait in the scheduler count too. While a search for absent disks runs, it holds their files.
//!
//! # Example
//! A disk hangs with one read, which is given up after 2 s. No counter of the disk shows the read as in flight, and the
//! file has two holders: the disk, and the request.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use plimsoll::{Shard, SharedFile};

use crate::engine::Engine;
use crate::race::DEADLINE;
use crate::sync::lock;

/// Pause between two looks at what has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// The files of a cache's disks.
#[derive(Clone, Default)]
pub(crate) struct DiskFiles(Arc<Mutex<Vec<Weak<SharedFile>>>>);

impl DiskFiles {
    pub(crate) fn add(&self, file: &Arc<SharedFile>) {
        let mut files = lock(&self.0);
        files.retain(|file| file.strong_count() > 0);
        files.push(Arc::downgrade(file));
    }

    /// Returns the paths of the files that have other holders than their disks.
    fn held(&self, of_disks: impl FnOnce() -> Vec<Arc<SharedFile>>) -> Vec<PathBuf> {
        // Locked until all have been counted: another count holds the files too.
        let known = lock(&self.0);
        let files: Vec<_> = known.iter().filter_map(Weak::upgrade).collect();
        let of_disks = of_disks();
        let is_held = |file: &&Arc<SharedFile>| {
            let is_of_disk = of_disks.iter().any(|other| Arc::ptr_eq(other, file));
            // `files` holds it too, and so does `of_disks`.
            Arc::strong_count(file) > if is_of_disk { 3 } else { 1 }
        };
        let mut paths: Vec<_> = files.iter().filter(is_held).map(|file| file.path().to_owned()).collect();
        paths.sort();
        paths.dedup();
        paths
    }
}

impl Engine {
    /// Returns the disks on which operations have not ended.
    pub(crate) fn held_disks(&self) -> Vec<PathBuf> {
        self.host.files.held(|| self.all_disks().iter().map(|disk| Arc::clone(&disk.file)).collect())
    }

    /// Waits until all operations have ended, at most [`DEADLINE`]. Returns the disks on which one has not.
    pub(crate) async fn settle(&self, shard: &Shard) -> Vec<PathBuf> {
        // In steps, so that a leap of the clock is none.
        for _ in 0..DEADLINE.as_millis() / LOOK_AGAIN.as_millis() {
            if self.held_disks().is_empty() {
                break;
            }
            shard.sleep(LOOK_AGAIN).await;
        }
        self.held_disks()
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use plimsoll::backend::OpenOptions;
    use plimsoll::backend::sim::{SimConfig, SimDiskState, SimWorld};
    use plimsoll::buffer::AlignedBuf;
    use plimsoll::{Class, Classes, DiskSetup, SimRuntime, Topology};

    use super::*;

    /// A read that was given up was counted as none.
    #[test]
    fn a_read_that_nobody_waits_for_holds_its_disk() {
        let world = SimWorld::new(&SimConfig::default()).unwrap();
        let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
        let runtime = SimRuntime::new(&world, &topology).unwrap();
        let new = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
        let (file, shard) = (topology.file("disk".as_ref(), new, 0), runtime.shard(0).clone());
        let files = DiskFiles::default();
        files.add(&file);
        runtime.block_on(0, shard.set_len(&file, Class::DEFAULT, 1 << 20)).unwrap().unwrap();
        world.set_disk_state(0, SimDiskState::Slow { factor: 1e6 }).unwrap();

        let held = |file: &Arc<SharedFile>| files.held(|| vec![Arc::clone(file)]);
        assert_eq!(held(&file), Vec::<PathBuf>::new());
        {
            let mut read = pin!(shard.read_at(&file, Class::DEFAULT, 0, AlignedBuf::new(4096).unwrap()));
            assert!(read.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            runtime.run_for(Duration::from_secs(1)).unwrap();
        }
        runtime.run_for(Duration::from_secs(1)).unwrap();
        assert_eq!(held(&file), [PathBuf::from("disk")]);
        runtime.run_for(Duration::from_secs(10_000)).unwrap();
        assert_eq!(held(&file), Vec::<PathBuf>::new(), "it has ended");

        drop(file);
        assert_eq!(files.held(Vec::new), Vec::<PathBuf>::new());
    }
}
