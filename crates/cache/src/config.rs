//! What a cache is told: plain data, checked once.
//!
//! # Why
//! One struct for a library's user, and one for every command that reads CACHE.yaml; whatever can be wrong with it is said
//! before anything is opened.
//!
//! # How it works
//! [`CacheConfig`] is what may differ from one opening to the next; what is fixed when a cache is created (slab and sector
//! size, its identity) lies in the superblocks.
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

/// Which slab the next block goes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Placement {
    /// The emptiest slab, the lower number where two are equally empty: one slab, and so one disk, at a time. What the
    /// cache of seed 003 did.
    Seed,
    /// The emptiest slab, by lot where several are equally empty: still one slab at a time. What repaired it.
    Discriminant,
    /// An open slab on every disk, and the disk that will be done first with what it has to do.
    #[default]
    Load,
}

impl Placement {
    /// All of them, with their names on the command line.
    pub const ALL: [(&'static str, Placement); 3] =
        [("seed", Placement::Seed), ("discriminant", Placement::Discriminant), ("load", Placement::Load)];
}

/// A disk of a cache.
#[derive(Clone, Debug, Default)]
pub struct DiskSource {
    /// A block device, or a file that was made for it.
    pub path: PathBuf,
    /// What the disk can do; the default is an unlimited disk. Its write bandwidth also tells placement how fast it is.
    pub model: DiskConfig,
    /// Bytes per second that it writes when it does nothing else; `None`: as fast as the others.
    pub write_bytes_per_s: Option<f64>,
}

impl DiskSource {
    /// A disk of which only the path is known.
    #[must_use]
    pub fn at(path: PathBuf) -> DiskSource {
        DiskSource { path, ..DiskSource::default() }
    }
}

/// How many disks a running cache takes at the most beyond those it was opened with.
pub const SPARE_DISKS: u16 = 8;

/// How a cache is made.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// A power of two, 1 to 32 MiB. Large slabs write in long runs, small ones suit small disks.
    pub slab_bytes: u32,
    /// The key, where blocks are to be encrypted.
    pub encryption_key: Option<[u8; 32]>,
    /// Overwrite what is on the disks.
    pub force: bool,
}

impl Default for CreateOptions {
    fn default() -> CreateOptions {
        CreateOptions { slab_bytes: crate::entry::MAX_SLAB_BYTES, encryption_key: None, force: false }
    }
}

/// How a cache runs. See the module's documentation.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheConfig {
    /// A crash loses at most what was inserted in such a time. 1 ms to 1 day.
    pub checkpoint_interval: Duration,
    /// So much of the capacity of the disks that take blocks is kept free by eviction, in percent: 0.1 to 90.
    pub target_free_blocks_pct: f64,
    /// Which slab the next block goes to.
    pub placement: Placement,
    /// Blocks kept in memory besides the disks', in bytes of values; 0: none.
    pub memory_bytes: u64,
    /// Bytes of inserts in flight at the most, in each class; what does not fit is dropped. At least 1 MiB.
    pub in_flight_bytes: u64,
    /// How long a hit may take before it is reported as a miss; `None`: as long as it takes.
    pub hit_deadline: Option<Duration>,
    /// How much of the capacity entries without data (ghosts) stand for, in percent: 0 to 400.
    pub ghost_pct: f64,
    /// Bytes per second that evacuation and rebalancing write at the most; `None`: only their shares hold them back.
    pub move_bytes_per_s: Option<u64>,
    /// Give slabs that have become empty back to the disk (`BLKDISCARD`, or holes in files).
    pub discard: bool,
    /// AES-256-GCM with this key: 28 bytes more on disk for each block.
    pub encryption_key: Option<[u8; 32]>,
    /// Memory for the index at the most, in bytes; beyond, the oldest entries are dropped. `None`: no limit but the disks.
    pub index_bytes: Option<u64>,
    /// From which everything random comes: slabs by lot, names of new disks.
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
            ghost_pct: 100.0,
            move_bytes_per_s: None,
            discard: false,
            encryption_key: None,
            index_bytes: None,
            seed: 1,
        }
    }
}

/// Why a configuration was refused: which key, and what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadConfig {
    /// The field.
    pub key: &'static str,
    /// What was expected.
    pub expected: &'static str,
}

impl std::fmt::Display for BadConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: expected {}", self.key, self.expected)
    }
}

impl std::error::Error for BadConfig {}

impl CacheConfig {
    /// Whether every value is in its range.
    ///
    /// # Errors
    /// The first one that is not.
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
            ("ghost_pct", "0 to 400 percent", (0.0..=400.0).contains(&self.ghost_pct)),
            ("move_bytes_per_s", "at least 1 MiB a second", self.move_bytes_per_s.is_none_or(|rate| rate >= 1 << 20)),
            ("index_bytes", "at least 1 MiB", self.index_bytes.is_none_or(|bytes| bytes >= 1 << 20)),
        ];
        match checks.into_iter().find(|(_, _, is_right)| !is_right) {
            Some((key, expected, _)) => Err(BadConfig { key, expected }),
            None => Ok(()),
        }
    }
}
