//! Keeps writes out while the disk is nearly full.
//!
//! # Why
//! SlateDB repeats a write that fails until it succeeds. On a full disk a SET would never be answered, and memory would
//! fill with what cannot be written. A refusal with a reason is better, and reads go on.
//!
//! # How it works
//! A thread asks the file system for its free space every [`INTERVAL`]. With less than the reserve, writes are refused
//! until there is more again; those that wait for room in memory are told so too. The reserve has room for what memory
//! still holds; the log has its own.
//!
//! # Limits
//! A compaction writes as much as it reads, and may take the whole reserve. Then writes that memory has taken wait for
//! space before they are answered.
//!
//! # Example
//! `SpaceGate::watch(directories, 1 << 30)` refuses writes below 1 GiB of free space.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use plimsoll::sys::statfs::file_system;
use plimsoll_figures::units::format_bytes_binary;

/// Time between two looks at the free space.
const INTERVAL: Duration = Duration::from_millis(100);

/// The free space of the directories of a database. Clones share it.
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
    /// The system refuses a thread, or to look.
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
            // A file system that cannot be asked any more will refuse the writes itself.
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

    /// Returns the free space at the last look, in bytes.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        self.0.free_bytes.load(Ordering::Relaxed)
    }

    /// Returns why a write must be refused now, or `None`.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        self.refusal_of("nothing was written")
    }

    /// Waits until writes must be refused, and returns what to say to one that waits already.
    pub async fn until_full(&self) -> String {
        loop {
            match self.refusal_of("this write may be there or not") {
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
