//! The snapshot that a running cache publishes: its counters as JSON beside CACHE.yaml, written every second.
//!
//! # Why
//! `iostat`, `hits` and `status` run beside the program that has the cache open, and must neither call it nor slow it
//! down. A file that is always complete is the simplest way, and other programs can read it, too.
//!
//! # How it works
//! [`Publisher`] writes `CACHE.yaml.live.json`: a new file, renamed onto the old one. It is removed when the cache is
//! closed. [`read`] refuses a file older than [`STALE_AFTER`]: its writer was killed or hangs. Each opening has a new
//! `runtime_id`, so readers notice that counters began again. The schema is in docs/formats.md; readers ignore unknown
//! keys.
//!
//! # Limits
//! Times are those of the host's clock: readers and the cache run on the same host.
//!
//! # Example
//! ```
//! use plimsoll_cache::stats::CacheStats;
//! use plimsoll_cache_tools::live::Live;
//! let stats = CacheStats { hits: 7, misses: [("ghost".into(), 1)].into(), ..CacheStats::default() };
//! let live = Live::new("a1", 1_000, &stats);
//! assert_eq!(live.cache.misses["ghost"], 1);
//! assert_eq!(Live::from_json(&live.to_json()?)?, live);
//! # Ok::<(), serde_json::Error>(())
//! ```

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plimsoll_cache::stats::CacheStats;
use serde::{Deserialize, Serialize};

use super::config::replace_file;

/// Interval between two snapshots.
pub const EVERY: Duration = Duration::from_secs(1);

/// Age from which a snapshot is stale: several intervals, so its writer was killed or hangs.
pub const STALE_AFTER: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Live {
    /// Version of the schema: 1. It changes when a key changes its meaning or is removed.
    pub schema: u32,
    /// The process that has the cache open.
    pub pid: u32,
    /// A new identifier for each opening.
    pub runtime_id: String,
    /// Time of the snapshot, in milliseconds since 1970.
    pub at_unix_ms: u64,
    /// Time of the cache's opening, on the clock of [`CacheStats::at_ns`].
    #[serde(default)]
    pub opened_ns: u64,
    /// Parts of CACHE.yaml that could not be followed, a sentence each.
    #[serde(default)]
    pub problems: Vec<String>,
    /// The version of CACHE.yaml that was followed: its time of change, in nanoseconds since 1970; 0: none yet.
    #[serde(default)]
    pub followed_unix_ns: u64,
    pub cache: CacheStats,
}

impl Live {
    pub fn new(runtime_id: &str, at_unix_ms: u64, stats: &CacheStats) -> Live {
        let runtime_id = runtime_id.to_owned();
        Live { schema: 1, pid: std::process::id(), runtime_id, at_unix_ms, cache: stats.clone(), ..Live::default() }
    }

    /// Returns the snapshot as JSON, as in the file.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }

    /// Parses the JSON of [`Live::to_json`], or of later versions of the same schema.
    pub fn from_json(text: &str) -> serde_json::Result<Live> {
        serde_json::from_str(text)
    }
}

/// Returns the path of the snapshots of the cache of the file at `path`.
pub fn path_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".live.json");
    PathBuf::from(name)
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoSnapshot {
    /// There is no file: no process has the cache open.
    #[error("no process has the cache open (`cache bench` opens it): there is no {0}")]
    Nobody(String),
    #[error("{path} is {age_s} s old: process {pid}, which had the cache open, was killed or hangs")]
    Stale { path: String, age_s: u64, pid: u32 },
    #[error("cannot read {path}: {reason}")]
    Unreadable { path: String, reason: String },
}

/// Reads the last snapshot of the cache of the file at `path`.
///
/// # Errors
/// No process has the cache open, or the one that has it no longer publishes.
pub fn read(path: &Path) -> Result<Live, NoSnapshot> {
    read_at(path, now_unix_ms())
}

fn read_at(path: &Path, now_unix_ms: u64) -> Result<Live, NoSnapshot> {
    let file = path_of(path);
    let name = file.display().to_string();
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(NoSnapshot::Nobody(name)),
        Err(error) => return Err(NoSnapshot::Unreadable { path: name, reason: error.to_string() }),
    };
    let unreadable = |reason: String| NoSnapshot::Unreadable { path: name.clone(), reason };
    let live = Live::from_json(&text).map_err(|error| unreadable(error.to_string()))?;
    if live.schema != 1 {
        return Err(unreadable(format!("it has schema {}, of another version of this program", live.schema)));
    }
    let age = Duration::from_millis(now_unix_ms.saturating_sub(live.at_unix_ms));
    if age > STALE_AFTER {
        return Err(NoSnapshot::Stale { path: name, age_s: age.as_secs(), pid: live.pid });
    }
    Ok(live)
}

pub(crate) fn now_unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Publishes the snapshots of one opening of a cache; removes the file when dropped.
#[derive(Debug)]
pub struct Publisher {
    path: PathBuf,
    runtime_id: String,
    opened_ns: u64,
}

impl Publisher {
    /// Returns a publisher for the cache of the file at `path`, opened at `opened_ns` on its own clock.
    pub fn new(path: &Path, opened_ns: u64) -> Publisher {
        let random = RandomState::new().hash_one(now_unix_ms());
        Publisher { path: path_of(path), runtime_id: format!("{random:016x}"), opened_ns }
    }

    /// Writes a snapshot, with the parts of CACHE.yaml that could not be followed, and the version of CACHE.yaml.
    ///
    /// # Errors
    /// The system's error; the next snapshot may succeed.
    pub fn publish(&self, stats: &CacheStats, problems: &[String], followed_unix_ns: u64) -> io::Result<()> {
        let live = Live {
            problems: problems.to_vec(),
            followed_unix_ns,
            opened_ns: self.opened_ns,
            ..Live::new(&self.runtime_id, now_unix_ms(), stats)
        };
        let text = live.to_json().map_err(io::Error::other)?;
        replace_file(&self.path, &text, true)
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        // If the file stays, it is soon stale, and readers refuse it.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_cache::stats::{DiskHealth, DiskStats, IoCounters, IoKind};

    use super::*;

    pub(super) fn stats() -> CacheStats {
        let counters = IoCounters::default();
        counters.began();
        counters.ended(8192, 120_000, true);
        let disk = DiskStats {
            number: 0,
            guid: "00ff".to_owned(),
            path: "/dev/sdb".to_owned(),
            health: DiskHealth::ReadOnly,
            why: "writes fail".to_owned(),
            capacity_bytes: 1 << 30,
            allocated_bytes: 1 << 20,
            metadata_bytes: 65_536,
            slabs: 32,
            free_slabs: 31,
            to_move_bytes: 0,
            write_bytes_per_s: 250e6,
            io: IoKind::ALL.iter().map(|(_, name)| ((*name).into(), counters.look())).collect(),
        };
        let drops = [("no_disk".into(), 3), ("superseded".into(), 5)].into();
        CacheStats { drops, disks: vec![disk], ..CacheStats::default() }
    }

    #[test]
    fn all_counters_have_names() {
        let live = Live::new("a", 0, &stats());
        let json: serde_json::Value = serde_json::from_str(&live.to_json().unwrap()).unwrap();
        let disk = &json["cache"]["disks"][0];
        assert_eq!(disk["io"].as_object().map(|kinds| kinds.len()), Some(IoKind::ALL.len()));
        assert_eq!(disk["io"]["flush"]["latency_ns_log2"][16], 1);
        assert_eq!((&json["cache"]["drops"]["superseded"], &disk["health"]), (&5.into(), &"read-only".into()));
        assert_eq!(Live::from_json(&json.to_string()).unwrap(), live);
    }

    #[test]
    fn a_snapshot_lives_as_long_as_its_publisher() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("c.yaml");
        assert!(matches!(read(&path), Err(NoSnapshot::Nobody(_))));
        let publisher = Publisher::new(&path, 0);
        publisher.publish(&stats(), &["no".to_owned()], 9).unwrap();
        let live = read(&path).unwrap();
        assert_eq!((live.pid, live.problems.as_slice()), (std::process::id(), ["no".to_owned()].as_slice()));
        assert_eq!(live.followed_unix_ns, 9);
        let later = live.at_unix_ms + 61_000;
        assert!(matches!(read_at(&path, later), Err(NoSnapshot::Stale { age_s: 61, .. })));
        let other = Publisher::new(&path, 0);
        assert_ne!(other.runtime_id, publisher.runtime_id);
        drop(publisher);
        assert!(matches!(read(&path), Err(NoSnapshot::Nobody(_))));
        for text in ["", "{}", "{\"schema\": 2}"] {
            fs::write(path_of(&path), text).unwrap();
            assert!(matches!(read(&path), Err(NoSnapshot::Unreadable { .. })), "{text}");
        }
    }

    #[test]
    fn keys_of_later_versions_do_no_harm() {
        let text = r#"{"schema": 1, "pid": 1, "runtime_id": "a", "at_unix_ms": 5, "new": [1], "cache": {"hits": 3}}"#;
        let live = Live::from_json(text).unwrap();
        assert_eq!((live.cache.hits, live.cache.inserts), (3, 0));
    }
}
