//! Statistics of a cache, as plain data: counters that only grow, per disk and kind of I/O, and the state of the disks.
//!
//! # Why
//! `cache iostat`, `cache hits`, `cache status` and a program's own metrics all show the same numbers, collected once,
//! here.
//!
//! # How it works
//! Counters live where things happen ([`IoCounters`] in a disk, others in the engine) as relaxed atomics; a
//! [`CacheStats`] is a copy. Its reader computes rates.
//!
//! # Limits
//! Histogram buckets are powers of two: fine enough to show a second hump, too coarse for exact percentiles.
//!
//! # Example
//! ```
//! use plimsoll_cache::stats::{IoCounters, IoKind};
//! let counters = IoCounters::default();
//! counters.began();
//! counters.ended(8192, 120_000, true);
//! let seen = counters.look();
//! assert_eq!((seen.operations, seen.bytes, seen.in_flight), (1, 8192, 0));
//! assert_eq!(seen.latency_ns_log2[16], 1); // 65,536 to 131,071 ns
//! assert_eq!(IoKind::ALL.len(), 8);
//! ```

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Buckets of a histogram: bucket b counts values from 2^b to 2^(b+1) - 1 (bucket 0 also counts 0).
pub const LOG2_BUCKETS: usize = 40;

/// Why the cache does an I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IoKind {
    /// Data of a hit.
    LookupRead,
    /// Data of an insert.
    InsertWrite,
    /// Read of a block that is moved.
    EvacuateRead,
    /// Write of a block that is moved.
    EvacuateWrite,
    /// Superblocks, logs and snapshots, read.
    MetadataRead,
    /// Superblocks, logs and snapshots, written.
    MetadataWrite,
    /// Flush of the device's write cache.
    Flush,
    /// Discard of unused space.
    Discard,
}

impl IoKind {
    /// All kinds with their names in tables and JSON.
    pub const ALL: [(IoKind, &'static str); 8] = [
        (IoKind::LookupRead, "lookup_read"),
        (IoKind::InsertWrite, "insert_write"),
        (IoKind::EvacuateRead, "evacuate_read"),
        (IoKind::EvacuateWrite, "evacuate_write"),
        (IoKind::MetadataRead, "metadata_read"),
        (IoKind::MetadataWrite, "metadata_write"),
        (IoKind::Flush, "flush"),
        (IoKind::Discard, "discard"),
    ];

    /// The kinds that end on every disk that takes writes. Discards take some disks long.
    pub(crate) const WRITES: [IoKind; 4] =
        [IoKind::InsertWrite, IoKind::EvacuateWrite, IoKind::MetadataWrite, IoKind::Flush];
}

/// Running counters of one disk and one kind of I/O.
#[derive(Debug)]
pub struct IoCounters {
    operations: AtomicU64,
    bytes: AtomicU64,
    errors: AtomicU64,
    in_flight: AtomicU64,
    total_ns: AtomicU64,
    latency_ns_log2: [AtomicU64; LOG2_BUCKETS],
    size_bytes_log2: [AtomicU64; LOG2_BUCKETS],
}

impl Default for IoCounters {
    fn default() -> IoCounters {
        let histogram = || std::array::from_fn(|_| AtomicU64::new(0));
        let [operations, bytes, errors, in_flight, total_ns] = std::array::from_fn(|_| AtomicU64::new(0));
        let (latency_ns_log2, size_bytes_log2) = (histogram(), histogram());
        IoCounters { operations, bytes, errors, in_flight, total_ns, latency_ns_log2, size_bytes_log2 }
    }
}

fn bucket(value: u64) -> usize {
    (value.max(1).ilog2() as usize).min(LOG2_BUCKETS - 1)
}

impl IoCounters {
    /// Counts an operation that goes to the scheduler.
    pub fn began(&self) {
        self.in_flight.fetch_add(1, Relaxed);
    }

    /// Counts an operation as given up by its caller; its result is not counted.
    pub fn given_up(&self) {
        self.in_flight.fetch_sub(1, Relaxed);
    }

    /// Counts an operation that has come back `ns` nanoseconds after it began.
    pub fn ended(&self, bytes: u64, ns: u64, is_ok: bool) {
        self.in_flight.fetch_sub(1, Relaxed);
        if !is_ok {
            self.errors.fetch_add(1, Relaxed);
            return;
        }
        self.operations.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        self.total_ns.fetch_add(ns, Relaxed);
        self.latency_ns_log2[bucket(ns)].fetch_add(1, Relaxed);
        self.size_bytes_log2[bucket(bytes)].fetch_add(1, Relaxed);
    }

    /// Returns how many operations have ended, well or not, and how many are in flight.
    pub(crate) fn progress(&self) -> (u64, u64) {
        let ended = self.operations.load(Relaxed) + self.errors.load(Relaxed);
        (ended, self.in_flight.load(Relaxed))
    }

    /// Returns a copy of the counters.
    #[must_use]
    pub fn look(&self) -> IoStats {
        let copy = |histogram: &[AtomicU64; LOG2_BUCKETS]| histogram.iter().map(|count| count.load(Relaxed)).collect();
        IoStats {
            operations: self.operations.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            errors: self.errors.load(Relaxed),
            in_flight: self.in_flight.load(Relaxed),
            total_ns: self.total_ns.load(Relaxed),
            latency_ns_log2: copy(&self.latency_ns_log2),
            size_bytes_log2: copy(&self.size_bytes_log2),
        }
    }
}

/// The counters of one disk and one kind of I/O.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct IoStats {
    /// Operations that succeeded.
    pub operations: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// Operations that failed.
    pub errors: u64,
    /// Operations under way now, queued ones included.
    pub in_flight: u64,
    /// Sum of their latencies, queueing included, in nanoseconds.
    pub total_ns: u64,
    /// Operations that took 2^b to 2^(b+1) - 1 nanoseconds, by b.
    pub latency_ns_log2: Vec<u64>,
    /// Operations that moved 2^b to 2^(b+1) - 1 bytes, by b.
    pub size_bytes_log2: Vec<u64>,
}

/// Figures by the names that [`IoKind::ALL`], [`MissReason::ALL`] or [`DropReason::ALL`] give them.
pub type ByName<T> = BTreeMap<Cow<'static, str>, T>;

/// Maps figures in the order of `all` to their names.
pub(crate) fn by_name<K, T>(all: &[(K, &'static str)], figures: impl IntoIterator<Item = T>) -> ByName<T> {
    all.iter().map(|(_, name)| Cow::Borrowed(*name)).zip(figures).collect()
}

/// The state of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum DiskHealth {
    /// Works as it should.
    #[default]
    Healthy,
    /// Much slower than the others, or than before: reads past their deadline are misses, few new blocks go there.
    Slow,
    /// Writes fail, reads work: hits only.
    ReadOnly,
    /// Nothing works; its blocks are misses, and are removed from the index.
    Failed,
    /// Its blocks are being moved away; no new blocks go there.
    Removing,
    /// Absent when the cache was opened.
    Missing,
}

impl DiskHealth {
    /// Returns the name in tables and JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            DiskHealth::Healthy => "healthy",
            DiskHealth::Slow => "slow",
            DiskHealth::ReadOnly => "read-only",
            DiskHealth::Failed => "failed",
            DiskHealth::Removing => "removing",
            DiskHealth::Missing => "missing",
        }
    }
}

/// Why an insert was not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// The class has its most bytes in flight.
    InFlight,
    /// No free space until the next checkpoint.
    NoSpace,
    /// No disk takes writes.
    NoDisk,
    /// The disk failed during the write, or the scheduler refused it, as it does for a class that was removed.
    WriteFailed,
    /// The key was removed, or inserted again, before the write ended.
    Superseded,
    /// The bytes that may be written in a day are used up for now.
    Endurance,
    /// The key is unknown, and the cache stores none that is not used twice ([`CacheConfig::reject_first`]).
    ///
    /// [`CacheConfig::reject_first`]: crate::CacheConfig::reject_first
    FirstUse,
}

impl DropReason {
    /// All reasons, with their names in tables and JSON.
    pub const ALL: [(DropReason, &'static str); 7] = [
        (DropReason::InFlight, "in_flight"),
        (DropReason::NoSpace, "no_space"),
        (DropReason::NoDisk, "no_disk"),
        (DropReason::WriteFailed, "write_failed"),
        (DropReason::Superseded, "superseded"),
        (DropReason::Endurance, "endurance"),
        (DropReason::FirstUse, "first_use"),
    ];
}

/// Why a look-up returned no block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MissReason {
    /// Not cached.
    Absent,
    /// Evicted a short time ago: a larger cache would still have had it.
    Ghost,
    /// Cached, and not read in time.
    Deadline,
    /// The bytes read are not those written; the entry is removed.
    Corrupt,
    /// The disk did not return the data.
    ReadFailed,
    /// The scheduler refused the read: it has no room, or the class of the read was removed.
    Overloaded,
}

impl MissReason {
    /// All reasons, with their names in tables and JSON.
    pub const ALL: [(MissReason, &'static str); 6] = [
        (MissReason::Absent, "absent"),
        (MissReason::Ghost, "ghost"),
        (MissReason::Deadline, "deadline"),
        (MissReason::Corrupt, "corrupt"),
        (MissReason::ReadFailed, "read_failed"),
        (MissReason::Overloaded, "overloaded"),
    ];

    /// Returns whether the block was cached, and not read.
    #[must_use]
    pub fn was_cached(self) -> bool {
        !matches!(self, MissReason::Absent | MissReason::Ghost)
    }
}

/// A disk of the cache.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct DiskStats {
    /// Number in the cache; stays with the disk.
    pub number: u16,
    /// Its identity, as 32 hexadecimal digits.
    pub guid: String,
    /// Path; empty for a missing disk.
    pub path: String,
    /// Its state.
    pub health: DiskHealth,
    /// Why it is in that state, in a sentence; empty for a healthy disk.
    pub why: String,
    /// Bytes that the cache uses of it.
    pub capacity_bytes: u64,
    /// Bytes taken by blocks, padding included.
    pub allocated_bytes: u64,
    /// Bytes taken by logs and snapshots (whole slabs), and superblocks.
    pub metadata_bytes: u64,
    /// Slabs in all.
    pub slabs: u32,
    /// Unused slabs.
    pub free_slabs: u32,
    /// Bytes still to be moved, if the disk is being removed.
    pub to_move_bytes: u64,
    /// Bytes per second that placement expects it to write.
    pub write_bytes_per_s: f64,
    /// I/O by the names of [`IoKind::ALL`]; empty, and left out when serialized, for a missing disk.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "ByName::is_empty"))]
    pub io: ByName<IoStats>,
}

/// All statistics of a cache.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct CacheStats {
    /// Time of this copy, in nanoseconds of the backend's clock.
    pub at_ns: u64,
    /// Number of the last durable checkpoint.
    pub generation: u64,
    /// Blocks cached.
    pub blocks: u64,
    /// Bytes of their data.
    pub block_bytes: u64,
    /// Ghosts: entries without data.
    pub ghosts: u64,
    /// Memory of the index, in bytes.
    pub index_bytes: u64,
    /// Look-ups answered from the disks.
    pub hits: u64,
    /// Look-ups answered from memory.
    pub memory_hits: u64,
    /// Bytes of both.
    pub hit_bytes: u64,
    /// Look-ups that returned no block, by the names of [`MissReason::ALL`].
    pub misses: ByName<u64>,
    /// Blocks stored.
    pub inserts: u64,
    /// Their bytes.
    pub insert_bytes: u64,
    /// Inserts not stored, by the names of [`DropReason::ALL`].
    pub drops: ByName<u64>,
    /// Blocks removed by the caller.
    pub removes: u64,
    /// Blocks evicted.
    pub evictions: u64,
    /// Their bytes.
    pub evicted_bytes: u64,
    /// Blocks moved by evacuation, removal of a disk, or rebalancing.
    pub moves: u64,
    /// Blocks stored again after they were found corrupt.
    pub healed: u64,
    /// Bytes of blocks that scrubs have read.
    pub scrubbed_bytes: u64,
    /// Blocks that scrubs have removed, because they were damaged.
    pub scrub_removals: u64,
    /// Checkpoints since the cache was opened.
    pub checkpoints: u64,
    /// Duration of the last checkpoint, in nanoseconds.
    pub last_checkpoint_ns: u64,
    /// Hits by cache size.
    pub hit_curve: HitCurve,
    /// The disks, by number.
    pub disks: Vec<DiskStats>,
}

/// Look-ups that a cache of each size would have answered: the miss-ratio curve, upside down.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct HitCurve {
    /// Point i: hits of a cache of `step_bytes * (i + 1)` bytes. Never falls.
    pub hits: Vec<u64>,
    /// Cache size between two points, in bytes.
    pub step_bytes: u64,
    /// Look-ups counted, including those of keys never seen.
    pub lookups: u64,
}
