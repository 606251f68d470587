//! Refuses writes while the disk is nearly full.
//!
//! # Why
//! SlateDB repeats a failed write until it succeeds. On a full disk, a SET would get no reply, and memory would fill
//! with data that cannot be flushed. A refusal with a reason is better, and reads continue.
//!
//! # How it works
//! A thread queries the free space of the file systems every [`INTERVAL`]. Below the reserve of one, writes are
//! refused, also those that already wait for memory. The reserve of the tree has room for unflushed memory. The files
//! that the log has made and does not use count as free for it.
//!
//! # Limits
//! A compaction writes as much as it reads, and may use the whole reserve. Then replies to writes already in memory
//! wait for space.
//!
//! # Example
//! `SpaceGate::watch(vec![Reserve::of(directory, 1 << 30)])` refuses writes below 1 GiB of free space.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use plimsoll::sys::statfs::file_system;
use plimsoll_figures::units::format_bytes_binary;

/// Time between two queries of the free space.
const INTERVAL: Duration = Duration::from_millis(100);

/// The space that a directory must have.
pub struct Reserve {
    directory: PathBuf,
    /// Free bytes below which writes are refused.
    least_bytes: u64,
    /// Returns the bytes that were allocated there and are not used.
    allocated_bytes: Box<dyn Fn() -> u64 + Send + Sync>,
    /// Free bytes at the last query.
    free_bytes: AtomicU64,
}

impl Reserve {
    /// Returns a reserve of `least_bytes` on the file system of `directory`.
    #[must_use]
    pub fn of(directory: PathBuf, least_bytes: u64) -> Reserve {
        Reserve::beside(directory, least_bytes, || 0)
    }

    /// Returns a reserve like [`Reserve::of`], for a user that has `allocated_bytes()` besides the free ones.
    #[must_use]
    pub fn beside(
        directory: PathBuf,
        least_bytes: u64,
        allocated_bytes: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Reserve {
        let free_bytes = AtomicU64::new(u64::MAX);
        Reserve { directory, least_bytes, allocated_bytes: Box::new(allocated_bytes), free_bytes }
    }

    fn look(&self) -> std::io::Result<()> {
        let free_bytes = file_system(&self.directory)?.available_bytes + (self.allocated_bytes)();
        self.free_bytes.store(free_bytes, Ordering::Relaxed);
        Ok(())
    }
}

/// Watches the free space of a database's directories. Clones share it.
#[derive(Clone)]
pub struct SpaceGate(Arc<Inner>);

struct Inner {
    reserves: Vec<Reserve>,
    is_over: AtomicBool,
}

impl SpaceGate {
    /// Watches the file systems of `reserves` until [`SpaceGate::stop`].
    ///
    /// # Errors
    /// The system refuses the thread or the query.
    pub fn watch(reserves: Vec<Reserve>) -> std::io::Result<SpaceGate> {
        reserves.iter().try_for_each(Reserve::look)?;
        let gate = SpaceGate(Arc::new(Inner { reserves, is_over: AtomicBool::new(false) }));
        let watched = gate.clone();
        std::thread::Builder::new().name("kv-space".to_owned()).spawn(move || watched.look())?;
        Ok(gate)
    }

    fn look(&self) {
        while !self.0.is_over.load(Ordering::Relaxed) {
            for reserve in &self.0.reserves {
                // A file system that fails the query will fail the writes too.
                let _ = reserve.look();
            }
            std::thread::sleep(INTERVAL);
        }
    }

    /// Ends the thread.
    pub fn stop(&self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }

    /// Returns the free space at the last query, in bytes: that of the directory that has the least.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        self.0.reserves.iter().map(|reserve| reserve.free_bytes.load(Ordering::Relaxed)).min().unwrap_or(u64::MAX)
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
        self.0.reserves.iter().find_map(|reserve| {
            let free_bytes = reserve.free_bytes.load(Ordering::Relaxed);
            (free_bytes < reserve.least_bytes).then(|| {
                format!(
                    "DISKFULL {} free, below the reserve of {}; {written}. Free space and writes go on; reads do",
                    format_bytes_binary(free_bytes),
                    format_bytes_binary(reserve.least_bytes)
                )
            })
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

    use super::*;

    #[test]
    fn a_reserve_that_no_disk_has_refuses() {
        let none = || Reserve::of(std::env::temp_dir(), 0);
        let gate = SpaceGate::watch(vec![none(), Reserve::of(std::env::temp_dir(), 1 << 62)]).unwrap();
        assert!(gate.refusal().is_some_and(|text| text.starts_with("DISKFULL ")));
        gate.stop();
        let gate = SpaceGate::watch(vec![none(), Reserve::beside(std::env::temp_dir(), 1 << 62, || 1 << 62)]).unwrap();
        assert_eq!(gate.refusal(), None);
        gate.stop();
    }
}
