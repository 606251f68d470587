//! The state of a cache: its disks, their contents, and its counters since it was opened.
//!
//! # Why
//! The first question after an alarm: which disk is slow, failed or missing, and why.
//!
//! # How it works
//! [`Status`] is the snapshot of a running cache without histograms and curves. If no process has the cache open,
//! [`read`] inspects its disks; counters are 0 then.
//!
//! # Limits
//! At most a second old, like the snapshot. For a closed cache, the state of its last checkpoint.
//!
//! # Example
//! ```
//! use plimsoll_cache_tools::live::Live;
//! use plimsoll_cache_tools::status::Status;
//! let status = Status::from(&Live { pid: 7, ..Live::default() });
//! assert!(serde_json::to_string(&status)?.contains("\"pid\":7"));
//! # Ok::<(), serde_json::Error>(())
//! ```

use std::path::Path;

use plimsoll_cache::stats::{ByName, DiskStats};
use plimsoll_cache::{CacheError, Inspection};
use plimsoll_show::table::{Column, csv};
use serde::Serialize;

use super::check;
use super::live::{self, Live, NoSnapshot};
use super::session::SessionError;

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DiskStatus {
    /// The disk's statistics, without those of its I/O.
    #[serde(flatten)]
    pub stats: DiskStats,
    /// Operations that failed since the cache was opened.
    pub errors: u64,
}

impl From<&DiskStats> for DiskStatus {
    fn from(disk: &DiskStats) -> DiskStatus {
        DiskStatus {
            stats: DiskStats { io: ByName::default(), ..disk.clone() },
            errors: disk.io.values().map(|io| io.errors).sum(),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Status {
    pub schema: u32,
    pub is_open: bool,
    /// The process that has the cache open; 0 if none.
    pub pid: u32,
    pub open_s: f64,
    /// Number of the last durable checkpoint.
    pub generation: u64,
    /// Duration of that checkpoint, in nanoseconds.
    pub last_checkpoint_ns: u64,
    pub blocks: u64,
    /// Bytes of these blocks.
    pub block_bytes: u64,
    pub index_bytes: u64,
    pub hits: u64,
    /// Misses, by reason.
    pub misses: ByName<u64>,
    pub inserts: u64,
    /// Inserts not stored, by reason.
    pub drops: ByName<u64>,
    pub evictions: u64,
    /// Corrupt blocks stored again.
    pub healed: u64,
    /// Parts of CACHE.yaml that could not be followed; for a closed cache, problems with its disks.
    pub problems: Vec<String>,
    pub disks: Vec<DiskStatus>,
}

impl From<&Live> for Status {
    fn from(live: &Live) -> Status {
        let cache = &live.cache;

        Status {
            schema: 1,
            is_open: true,
            pid: live.pid,
            open_s: cache.at_ns.saturating_sub(live.opened_ns) as f64 / 1e9,
            generation: cache.generation,
            last_checkpoint_ns: cache.last_checkpoint_ns,
            blocks: cache.blocks,
            block_bytes: cache.block_bytes,
            index_bytes: cache.index_bytes,
            hits: cache.hits + cache.memory_hits,
            misses: cache.misses.clone(),
            inserts: cache.inserts,
            drops: cache.drops.clone(),
            evictions: cache.evictions,
            healed: cache.healed,
            problems: live.problems.clone(),
            disks: cache.disks.iter().map(DiskStatus::from).collect(),
        }
    }
}

impl From<&Inspection> for Status {
    fn from(inspection: &Inspection) -> Status {
        let problems = inspection.findings.clone();
        let live = Live { cache: inspection.stats.clone(), problems, ..Live::default() };
        Status { is_open: false, open_s: 0.0, ..Status::from(&live) }
    }
}

/// Reads the state of the cache of the file at `path`, whether or not a process has the cache open.
///
/// # Errors
/// Errors of CACHE.yaml or of the disks; a process that has the cache open and does not publish.
pub fn read(path: &Path) -> Result<Status, SessionError> {
    let nobody = match live::read(path) {
        Ok(live) => return Ok(Status::from(&live)),
        Err(error @ NoSnapshot::Unreadable { .. }) => return Err(error.into()),
        Err(nobody) => nobody,
    };
    match (check::inspect(path), nobody) {
        (Ok(inspection), _) => Ok(Status::from(&inspection)),
        // The disks are locked, so the process of the stale snapshot hangs and was not killed.
        (Err(SessionError::Cache(CacheError::Locked { .. })), stale @ NoSnapshot::Stale { .. }) => Err(stale.into()),
        (Err(error), _) => Err(error),
    }
}

impl Status {
    pub fn to_csv(&self) -> String {
        let columns: &[Column<DiskStatus>] = &[
            ("number", |it| it.stats.number.to_string()),
            ("guid", |it| it.stats.guid.clone()),
            ("path", |it| it.stats.path.clone()),
            ("health", |it| it.stats.health.name().to_owned()),
            ("capacity_bytes", |it| it.stats.capacity_bytes.to_string()),
            ("allocated_bytes", |it| it.stats.allocated_bytes.to_string()),
            ("metadata_bytes", |it| it.stats.metadata_bytes.to_string()),
            ("free_slabs", |it| it.stats.free_slabs.to_string()),
            ("to_move_bytes", |it| it.stats.to_move_bytes.to_string()),
            ("errors", |it| it.errors.to_string()),
        ];
        csv(&self.disks, columns)
    }
}
