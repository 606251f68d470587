//! Waits until the kernel has ended the operations of a cache that is being closed.
//!
//! # Why
//! An operation that has not ended may still write to its disk. So the cache does not end before it, and names the disk
//! if it lasts too long.
//!
//! # How it works
//! [`held`](crate::held) knows which files have other holders than their disks; they are looked at every
//! [`CHECK_AGAIN`].
//!
//! # Example
//! A disk hangs with a write: closing the cache reports `Hangs` with its path after the deadline.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use plimsoll::Shard;

use crate::engine::Engine;
use crate::held::DiskFile;
use crate::race::DEADLINE;

/// Pause between two checks whether all operations have ended.
const CHECK_AGAIN: Duration = Duration::from_millis(10);

impl Engine {
    /// Returns the files of the disks that are there.
    pub(crate) fn own_files(&self) -> Vec<DiskFile> {
        let disks = self.all_disks();
        disks
            .iter()
            .map(|disk| DiskFile { path: disk.identity.path.clone(), device: self.host.files.device(&disk.file) })
            .collect()
    }

    /// Returns the files on which operations have not ended.
    pub(crate) fn held_files(&self) -> Vec<DiskFile> {
        self.host.files.held(|| self.all_disks().iter().map(|disk| Arc::clone(&disk.file)).collect())
    }

    /// Returns the paths of the disks on which operations have not ended.
    pub(crate) fn held_disks(&self) -> Vec<PathBuf> {
        let mut paths: Vec<_> = self.held_files().into_iter().map(|held| held.path).collect();
        paths.dedup();
        paths
    }

    /// Waits until all operations have ended, at most [`DEADLINE`]. Returns the disks on which one has not.
    pub(crate) async fn settle(&self, shard: &Shard) -> Vec<PathBuf> {
        // In steps, so that a jump of the clock is one step and not the deadline.
        for _ in 0..DEADLINE.as_millis() / CHECK_AGAIN.as_millis() {
            if self.held_disks().is_empty() {
                break;
            }
            shard.sleep(CHECK_AGAIN).await;
        }
        self.held_disks()
    }
}
