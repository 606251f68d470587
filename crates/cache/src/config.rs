//! The configuration of a cache: plain data, checked once.
//!
//! # Why
//! Programs and all commands that read CACHE.yaml share one struct, and every error in it is reported before anything
//! is opened.
//!
//! # How it works
//! [`CacheConfig`] holds the settings that may differ between openings. Those that are fixed at creation (slab size,
//! sector size, identity) are in the superblocks.
//!
//! # Example
//! ```
//! use plimsoll_cache::{CacheConfig, Placement};
//! let config = CacheConfig { target_free_blocks_pct: 20.0, placement: Placement::Load, ..CacheConfig::default() };
//! assert_eq!(config.check(), Ok(()));
//! ```

use std::path::PathBuf;
use std::time::Duration;

use plimsoll::core::DiskConfig;

/// How the slab for the next block is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Placement {
    /// The emptiest slab, the lower number if two are equally empty: writes go to one slab, and so one disk, at a time.
    /// The cache of seed 003 did this.
    Seed,
    /// The emptiest slab, by lot if several are equally empty: still one slab at a time. This repaired that cache.
    Discriminant,
    /// One open slab on every disk; the next block goes to the disk that will be done first with its work.
    #[default]
    Load,
}

impl Placement {
    /// All placements, with their names on the command line.
    pub const ALL: [(&'static str, Placement); 3] =
        [("seed", Placement::Seed), ("discriminant", Placement::Discriminant), ("load", Placement::Load)];
}

/// A disk of a cache.
#[derive(Clone, Debug, Default)]
pub struct DiskSource {
    /// A block device, or a file created for the cache.
    pub path: PathBuf,
    /// The disk's model; the default is an unlimited disk. Placement takes the disk's speed from its write bandwidth.
    pub model: DiskConfig,
    /// Bytes per second that the disk writes without other I/O; `None`: as fast as the other disks.
    pub write_bytes_per_s: Option<f64>,
}

impl DiskSource {
    /// Returns a disk at `path` with an unlimited model.
    #[must_use]
    pub fn at(path: PathBuf) -> DiskSource {
        DiskSource { path, ..DiskSource::default() }
    }
}

/// Most disks that a running cache can add to those it was opened with.
pub const SPARE_DISKS: u16 = 8;

/// Options for creating a cache.
#[derive(Clone, Debug, Default)]
pub struct CreateOptions {
    /// A power of two, 1 to 32 MiB; `None`: a 1024th of the smallest disk, within these bounds. Large slabs write in
    /// long runs and take long values, small ones suit small disks.
    pub slab_bytes: Option<u32>,
    /// The key, if blocks are to be encrypted.
    pub encryption_key: Option<[u8; 32]>,
    /// Overwrite existing data on the disks.
    pub force: bool,
}

/// Settings of an open cache. Those that are fixed at creation are in [`CreateOptions`].
#[derive(Clone, Debug, PartialEq)]
pub struct CacheConfig {
    /// Longest time between two checkpoints: a crash loses the inserts since the last one. 1 ms to 1 day.
    pub checkpoint_interval: Duration,
    /// Part of the capacity (of disks that take blocks) that eviction keeps free, in percent: 0.1 to 90.
    pub target_free_blocks_pct: f64,
    /// How the slab for the next block is chosen.
    pub placement: Placement,
    /// Bytes of memory for blocks that are also kept there; 0: none.
    pub memory_bytes: u64,
    /// Most bytes of inserts in flight in each class, in whole sectors; an insert beyond is dropped. At least 1 MiB.
    pub in_flight_bytes: u64,
    /// How long the read of a hit may take before it is reported as a miss; `None`: 2 s, so that no caller waits for
    /// ever for a disk that hangs.
    pub hit_deadline: Option<Duration>,
    /// Largest ratio of the p99 of hits beside writes to that without writes, 1.01 to 1000. Writes of data (fill,
    /// evacuation) slow down to keep it, but not below 16 MB/s a disk. `None`: only the shares of their classes limit
    /// writes.
    pub hit_slowdown: Option<f64>,
    /// Bytes that ghosts (entries without data) stand for, in percent of the capacity: 0 to 400.
    pub ghost_pct: f64,
    /// Once the cache is full, store only blocks whose keys are cached or ghosts: the first insert of a key only makes
    /// it a ghost. Saves four fifths of the writes or more. There are more hits if most blocks are used once, and fewer
    /// if new blocks are wanted soon. Needs ghosts (`ghost_pct` of at least 10, no `index_bytes`), which are forgotten
    /// when the cache is closed.
    pub reject_first: bool,
    /// Most bytes per second that evacuation and rebalancing write; `None`: only their shares limit them.
    pub move_bytes_per_s: Option<u64>,
    /// Most bytes written to the disks in a day, at least 1 GiB: fill, moves and metadata together. Inserts beyond are
    /// dropped. Unused bytes are saved for an hour. `None`: no limit.
    pub write_bytes_per_day: Option<u64>,
    /// Discard empty slabs on the disk (`BLKDISCARD`, or holes in files).
    pub discard: bool,
    /// AES-256-GCM with this key: 28 bytes more on disk for each block.
    pub encryption_key: Option<[u8; 32]>,
    /// Most memory for the index, in bytes; beyond it, the oldest entries are dropped. `None`: only the disks limit it.
    pub index_bytes: Option<u64>,
    /// Seed of random choices: slabs by lot, names of new disks.
    pub seed: u64,
}

impl Default for CacheConfig {
    fn default() -> CacheConfig {
        CacheConfig {
            checkpoint_interval: Duration::from_secs(60),
            target_free_blocks_pct: 5.0,
            placement: Placement::Load,
            memory_bytes: 0,
            in_flight_bytes: 256 << 20,
            hit_deadline: None,
            hit_slowdown: Some(1.5),
            ghost_pct: 100.0,
            reject_first: false,
            move_bytes_per_s: None,
            write_bytes_per_day: None,
            discard: false,
            encryption_key: None,
            index_bytes: None,
            seed: 1,
        }
    }
}

/// Why a configuration was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadConfig {
    /// The field, as in CACHE.yaml.
    pub key: &'static str,
    /// The range expected.
    pub expected: &'static str,
}

impl std::fmt::Display for BadConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: expected {}", self.key, self.expected)
    }
}

impl std::error::Error for BadConfig {}

impl CacheConfig {
    /// Checks that every value is in its range.
    ///
    /// # Errors
    /// The first value that is not.
    pub fn check(&self) -> Result<(), BadConfig> {
        let day = Duration::from_secs(86_400);
        let checks = [
            (
                "checkpoint_interval",
                "1 ms to 1 day",
                (Duration::from_millis(1)..=day).contains(&self.checkpoint_interval),
            ),
            ("target_free_blocks_pct", "0.1 to 90 percent", (0.1..=90.0).contains(&self.target_free_blocks_pct)),
            ("in_flight_bytes", "at least 1 MiB", self.in_flight_bytes >= 1 << 20),
            ("hit_deadline", "more than 0", self.hit_deadline != Some(Duration::ZERO)),
            ("hit_slowdown", "1.01 to 1000", self.hit_slowdown.is_none_or(|times| (1.01..=1000.0).contains(&times))),
            ("ghost_pct", "0 to 400 percent", (0.0..=400.0).contains(&self.ghost_pct)),
            (
                "reject_first",
                "false, or ghost_pct of at least 10 and an index without a limit, from which ghosts would push blocks",
                !self.reject_first || (self.ghost_pct >= 10.0 && self.index_bytes.is_none()),
            ),
            ("move_bytes_per_s", "at least 1 MiB a second", self.move_bytes_per_s.is_none_or(|rate| rate >= 1 << 20)),
            (
                "write_bytes_per_day",
                "at least 1 GiB a day",
                self.write_bytes_per_day.is_none_or(|bytes| bytes >= 1 << 30),
            ),
            ("index_bytes", "at least 1 MiB", self.index_bytes.is_none_or(|bytes| bytes >= 1 << 20)),
        ];
        match checks.into_iter().find(|(_, _, is_right)| !is_right) {
            Some((key, expected, _)) => Err(BadConfig { key, expected }),
            None => Ok(()),
        }
    }
}
