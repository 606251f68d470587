//! The parts of the memory budget, and SlateDB's settings.
//!
//! # Why
//! SlateDB is made for object stores, where a request costs cents and takes tens of milliseconds. Here it has a disk,
//! and a part of the server's memory.
//!
//! # How it works
//! [`MemoryPlan`] divides the budget; the settings are pure functions of it.
//!
//! # Limits
//! Two compactions at a time.
//!
//! # Example
//! `Db::builder(..).with_settings(settings(&MemoryPlan::of(512 << 20)))`

use std::sync::Arc;
use std::time::Duration;

use slatedb::config::{
    CompactionWorkerOptions, CompactorOptions, GarbageCollectorDirectoryOptions, GarbageCollectorOptions, Settings,
};
use slatedb::db_cache::moka::{MokaCache, MokaCacheOptions};
use slatedb::db_cache::{DbCache, SplitCache};

/// Smallest memory budget in bytes. With less, memory tables would become files of a few blocks.
pub const MEMORY_MIN_BYTES: u64 = 16 << 20;
/// Memory budget in bytes for each scan of clients. A scan itself takes some MiB: it reads ahead in each file.
pub const SCAN_MEMORY_BYTES: u64 = 32 << 20;
/// Most files in level 0. Beyond, memory tables wait for compaction.
pub const L0_FILES_MAX: usize = 16;
/// Fewest keys of a file that has a filter: 1, so every file has one. Without filters, each read would search every
/// file of few large values.
const FILTER_KEYS_MIN: u32 = 1;

/// The parts of a memory budget, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// The budget.
    pub total_bytes: u64,
    /// Cache of blocks: half.
    pub block_cache_bytes: u64,
    /// Cache of indices and filters: an eighth.
    pub meta_cache_bytes: u64,
    /// Written but not yet flushed: a quarter. Beyond, writers wait.
    pub unflushed_bytes: u64,
    /// A memory table, which is flushed to a file: a quarter of `unflushed_bytes`.
    pub memtable_bytes: u64,
    /// Requests of clients that exceed a connection's own buffer: a sixteenth.
    pub requests_bytes: u64,
    /// Replies that exceed it: a sixteenth.
    pub replies_bytes: u64,
    /// Most scans of clients at a time: one for each [`SCAN_MEMORY_BYTES`], at least 4.
    pub scans_max: usize,
}

impl MemoryPlan {
    /// Divides `memory_bytes`.
    #[must_use]
    pub fn of(memory_bytes: u64) -> MemoryPlan {
        let unflushed_bytes = memory_bytes / 4;
        MemoryPlan {
            total_bytes: memory_bytes,
            block_cache_bytes: memory_bytes / 2,
            meta_cache_bytes: memory_bytes / 8,
            unflushed_bytes,
            memtable_bytes: unflushed_bytes / 4,
            requests_bytes: memory_bytes / 16,
            replies_bytes: memory_bytes / 16,
            scans_max: usize::try_from(memory_bytes / SCAN_MEMORY_BYTES).unwrap_or(usize::MAX).max(4),
        }
    }
}

/// Returns the caches of blocks, unless `block_cache` is one, and of indices and filters.
pub(crate) fn cache(memory: &MemoryPlan, block_cache: Option<Arc<dyn DbCache>>) -> Arc<SplitCache> {
    let part = |max_capacity| {
        Some(Arc::new(MokaCache::new_with_opts(MokaCacheOptions { max_capacity, ..MokaCacheOptions::default() })) as _)
    };

    let blocks = block_cache.or_else(|| part(memory.block_cache_bytes));
    let meta = part(memory.meta_cache_bytes);
    Arc::new(SplitCache::new().with_block_cache(blocks).with_meta_cache(meta))
}

/// Returns SlateDB's settings for a local disk, where a request costs microseconds and not cents.
pub(crate) fn settings(memory: &MemoryPlan) -> Settings {
    Settings {
        l0_sst_size_bytes: memory.memtable_bytes as usize,
        max_unflushed_bytes: memory.unflushed_bytes as usize,
        min_filter_keys: FILTER_KEYS_MIN,
        l0_max_ssts: L0_FILES_MAX,
        l0_max_ssts_per_key: L0_FILES_MAX,
        // Both have builders of their own.
        compactor_options: None,
        garbage_collector_options: None,
        ..Settings::default()
    }
}

/// Returns SlateDB's options for compaction.
pub(crate) fn compaction() -> CompactorOptions {
    // A file of level 0 waits for this long before its compaction begins, and level 0 fills meanwhile.
    let poll = Duration::from_millis(100);
    let worker = CompactionWorkerOptions {
        max_concurrent_compactions: 2,
        compactions_poll_interval: poll,
        max_sst_size: 64 << 20,
        min_filter_keys: FILTER_KEYS_MIN,
        ..CompactionWorkerOptions::default()
    };

    CompactorOptions {
        poll_interval: poll,
        max_concurrent_compactions: 2,
        commit_compacted_interval: poll,
        // Readers in this process follow the manifest at once, and scans hold their own checkpoints.
        checkpoint_lifetime: Duration::from_secs(60),
        worker: Some(worker),
        ..CompactorOptions::default()
    }
}

/// Returns SlateDB's options for garbage collection.
pub(crate) fn garbage() -> GarbageCollectorOptions {
    // The directory's lock ensures a single writer, so no writer uses an old manifest.
    let often = |interval_s, min_age_s| {
        let (interval, min_age) = (Some(Duration::from_secs(interval_s)), Duration::from_secs(min_age_s));
        Some(GarbageCollectorDirectoryOptions { interval, min_age, dry_run: false })
    };
    GarbageCollectorOptions {
        manifest_options: often(10, 60),
        // Freed segments of the log are reused.
        wal_options: often(2, 0),
        wal_fence_options: None,
        compacted_options: often(10, 60),
        compactions_options: often(10, 60),
        detach_options: None,
        // These need conditional overwrites, which a directory does not have.
        boundary_files_enabled: false,
        ..GarbageCollectorOptions::default()
    }
}
