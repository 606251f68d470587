//! The counters of a [`super::CachedStore`].

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The counters of a [`super::CachedStore`]; they only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CachedStoreStats {
    /// Blocks taken from the cache.
    pub hit_blocks: u64,
    /// Blocks fetched because the cache did not have them, or was not asked.
    pub missed_blocks: u64,
    /// Blocks that another read was fetching, or that were fetched or put and not yet written into the cache.
    pub joined_blocks: u64,
    /// Range requests to the store.
    pub fetches: u64,
    /// Bytes of their answers.
    pub fetched_bytes: u64,
    /// Requests for metadata to the store.
    pub meta_requests: u64,
    /// Reads whose object changed meanwhile.
    pub changes: u64,
    /// Reads by metadata that were too old, because the store did not answer.
    pub stale_reads: u64,
}

#[derive(Default)]
pub(super) struct Counters {
    pub(super) hit_blocks: AtomicU64,
    pub(super) missed_blocks: AtomicU64,
    pub(super) joined_blocks: AtomicU64,
    pub(super) fetches: AtomicU64,
    pub(super) fetched_bytes: AtomicU64,
    pub(super) meta_requests: AtomicU64,
    pub(super) changes: AtomicU64,
    pub(super) stale_reads: AtomicU64,
}

impl Counters {
    pub(super) fn look(&self) -> CachedStoreStats {
        CachedStoreStats {
            hit_blocks: self.hit_blocks.load(Relaxed),
            missed_blocks: self.missed_blocks.load(Relaxed),
            joined_blocks: self.joined_blocks.load(Relaxed),
            fetches: self.fetches.load(Relaxed),
            fetched_bytes: self.fetched_bytes.load(Relaxed),
            meta_requests: self.meta_requests.load(Relaxed),
            changes: self.changes.load(Relaxed),
            stale_reads: self.stale_reads.load(Relaxed),
        }
    }
}
