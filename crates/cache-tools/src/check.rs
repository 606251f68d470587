//! Inspects a cache that no process has open, for `check`, `slabs` and `status`.
//!
//! # Why
//! After a crash, a power failure or an upgrade, an operator wants to know that every block is still as written.
//!
//! # How it works
//! [`inspect`] and [`check`] open the disks that CACHE.yaml names as the cache would, without writing. [`check`] also
//! reads every block. A missing disk is a finding: its blocks cannot be checked.
//!
//! # Limits
//! Changes after the last checkpoint are lost in a crash, and not reported here. The disks are locked meanwhile.
//!
//! # Example
//! ```
//! use plimsoll_cache::BlockCounts;
//! use plimsoll_cache_tools::check::Checked;
//! let counts = BlockCounts { blocks: 7, checksum_errors: 1, ..BlockCounts::default() };
//! let checked = Checked { counts, ..Checked::default() };
//! assert!(!checked.is_sound());
//! assert_eq!(checked.to_json()["checksum_errors"], 1);
//! ```

use std::path::Path;
use std::sync::{Arc, Mutex};

use plimsoll_cache::stats::{CacheStats, DiskHealth, DiskStats};
use plimsoll_cache::{BlockCounts, CheckReport, DiskSource, HostOptions, Inspection};
use serde::Serialize;
use serde_json::Value;

use super::config::{self, CacheFile, FileError};
use super::session::{SessionError, open_members};
use super::wait::block_on;

/// The result of reading every block.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Checked {
    pub schema: u32,
    pub cache_guid: String,
    pub generation: u64,
    pub disks: u64,
    #[serde(flatten)]
    pub counts: BlockCounts,
    /// Other problems, a sentence each.
    pub findings: Vec<String>,
    /// Possible later problems, a sentence each; the cache is sound all the same.
    pub warnings: Vec<String>,
}

impl Checked {
    fn new(report: CheckReport) -> Checked {
        let stats = &report.inspection.stats;
        let disks = stats.disks.iter().filter(|disk| disk.health != DiskHealth::Missing).count();
        Checked {
            schema: 2,
            cache_guid: report.inspection.cache_guid,
            generation: stats.generation,
            disks: disks as u64,
            counts: report.blocks,
            warnings: without_free_slab(stats),
            findings: report.inspection.findings,
        }
    }

    pub fn is_sound(&self) -> bool {
        self.counts.is_sound() && self.findings.is_empty()
    }

    pub fn to_json(&self) -> Value {
        // Numbers and text always convert.
        let mut value = serde_json::to_value(self).unwrap_or_default();
        value["is_sound"] = self.is_sound().into();
        value
    }

    /// Returns the result as CSV: a line of names and a line of values.
    pub fn to_csv(&self) -> String {
        let BlockCounts { blocks, bytes, checksum_errors, unreadable, double_references } = self.counts;
        format!(
            "blocks,bytes,checksum_errors,unreadable,double_references,findings\n\
             {blocks},{bytes},{checksum_errors},{unreadable},{double_references},{}\n",
            self.findings.len()
        )
    }
}

/// Returns a sentence for each disk without a free slab: its log may need one.
fn without_free_slab(stats: &CacheStats) -> Vec<String> {
    let is_full = |disk: &&DiskStats| disk.health != DiskHealth::Missing && disk.free_slabs == 0;
    let say = |disk: &DiskStats| {
        format!("{}: it has no free slab left, and its log may need one: expand it, or add a disk", disk.path)
    };
    stats.disks.iter().filter(is_full).map(say).collect()
}

fn read(path: &Path) -> Result<CacheFile, FileError> {
    let mut file = config::parse_from_file(path)?;
    file.load_key(path)?;
    Ok(file)
}

/// Inspects the disks of the cache of the file at `path`, without writing.
///
/// # Errors
/// A file that cannot be read; a disk that is not this cache's or is in use by another process.
pub fn inspect(path: &Path) -> Result<Inspection, SessionError> {
    let inspect = |file: &CacheFile, sources: Vec<DiskSource>| {
        block_on(plimsoll_cache::inspect(&sources, file.config.encryption_key, &HostOptions::default()))
    };
    Ok(open_members(path, &mut read(path)?, inspect)?.0)
}

/// Reads and verifies every block of the cache of the file at `path`. Calls `progress` with the blocks read and all
/// blocks.
pub fn check(path: &Path, progress: impl FnMut(u64, u64) + Send + 'static) -> Result<Checked, SessionError> {
    let progress = Arc::new(Mutex::new(progress));
    let check = |file: &CacheFile, sources: Vec<DiskSource>| {
        let progress = Arc::clone(&progress);
        let tell = move |read, all| {
            if let Ok(mut progress) = progress.lock() {
                progress(read, all);
            }
        };
        block_on(plimsoll_cache::check(&sources, file.config.encryption_key, &HostOptions::default(), tell))
    };
    Ok(Checked::new(open_members(path, &mut read(path)?, check)?.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_without_a_free_slab_is_warned_of() {
        let disk = |path: &str, health, free_slabs| DiskStats {
            path: path.to_owned(),
            health,
            free_slabs,
            ..DiskStats::default()
        };
        let (healthy, missing) = (DiskHealth::Healthy, DiskHealth::Missing);
        let disks = vec![disk("a", healthy, 1), disk("b", healthy, 0), disk("", missing, 0)];
        let warnings = without_free_slab(&CacheStats { disks, ..CacheStats::default() });
        assert!(matches!(&*warnings, [warning] if warning.starts_with("b: it has no free slab")), "{warnings:?}");
    }
}
