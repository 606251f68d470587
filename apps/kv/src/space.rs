//! Refuses writes while the disk is nearly full.
//!
//! # Why
//! SlateDB repeats a failed write until it succeeds. On a full disk, a SET would get no reply, and memory would fill
//! with data that cannot be flushed. A refusal with a reason is better, and reads continue.
//!
//! # How it works
//! A thread queries the free space of the file systems every [`INTERVAL`]. Below the reserve, writes are refused, also
//! those that already wait for memory. The reserve has room for unflushed memory; the log has its own space.
//!
//! # Limits
//! A compaction writes as much as it reads, and may use the whole reserve. Then replies to writes already in memory
//! wait for space.
//!
//! # Example
//! `SpaceGate::watch(directories, 1 << 30)` refuses writes below 1 GiB of free space.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use plimsoll::sys::statfs::file_system;
use plimsoll_figures::units::format_bytes_binary;

/// Time between two queries of the free space.
const INTERVAL: Duration = Duration::from_millis(100);

/// Watches the free space of a database's directories. Clones share it.
#[derive(Clone, Debug)]
pub struct SpaceGate(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    directories: Vec<PathBuf>,
    reserve_bytes: u64,
    /// Free space of the fullest of the directories.
    free_bytes: AtomicU64,
    is_over: AtomicBool,
}

impl SpaceGate {
    /// Watches the file systems of `directories` until [`SpaceGate::stop`].
    ///
    /// # Errors
    /// The system refuses the thread or the query.
    pub fn watch(directories: Vec<PathBuf>, reserve_bytes: u64) -> std::io::Result<SpaceGate> {
        let free_bytes = AtomicU64::new(least_free_bytes(&directories)?);
        let gate =
            SpaceGate(Arc::new(Inner { directories, reserve_bytes, free_bytes, is_over: AtomicBool::new(false) }));
        let watched = gate.clone();
        std::thread::Builder::new().name("kv-space".to_owned()).spawn(move || watched.look())?;
        Ok(gate)
    }

    fn look(&self) {
        while !self.0.is_over.load(Ordering::Relaxed) {
            // A file system that fails the query will fail the writes too.
            if let Ok(free_bytes) = least_free_bytes(&self.0.directories) {
                self.0.free_bytes.store(free_bytes, Ordering::Relaxed);
            }
            std::thread::sleep(INTERVAL);
        }
    }

    /// Ends the thread.
    pub fn stop(&self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }

    /// Returns the free space at the last query, in bytes.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        self.0.free_bytes.load(Ordering::Relaxed)
    }

    /// Returns the error for a write if it must be refused now.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        self.refusal_of("nothing was written")
    }

    /// Waits until writes must be refused, and returns the error for work that already waits, whose state is `state`.
    pub async fn until_full(&self, state: &str) -> String {
        loop {
            match self.refusal_of(state) {
                Some(refusal) => return refusal,
                None => tokio::time::sleep(INTERVAL).await,
            }
        }
    }

    fn refusal_of(&self, written: &str) -> Option<String> {
        let free_bytes = self.free_bytes();
        (free_bytes < self.0.reserve_bytes).then(|| {
            format!(
                "DISKFULL {} free, below the reserve of {}; {written}. Free space and writes go on; reads do",
                format_bytes_binary(free_bytes),
                format_bytes_binary(self.0.reserve_bytes)
            )
        })
    }
}

fn least_free_bytes(directories: &[PathBuf]) -> std::io::Result<u64> {
    let mut least = u64::MAX;
    for directory in directories {
        least = least.min(file_system(directory)?.available_bytes);
    }
    Ok(least)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

    use super::*;

    #[test]
    fn a_reserve_that_no_disk_has_refuses() {
        let directory = vec![std::env::temp_dir()];
        let gate = SpaceGate::watch(directory.clone(), u64::MAX).unwrap();
        assert!(gate.refusal().is_some_and(|text| text.starts_with("DISKFULL ")));
        gate.stop();
        let gate = SpaceGate::watch(directory, 0).unwrap();
        assert_eq!(gate.refusal(), None);
        gate.stop();
    }
}
