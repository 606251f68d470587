//! The subject of a benchmark: a store of blocks.
//!
//! # Why
//! A test must show that the benchmark finds a wrong byte, and so needs a cache that returns one.
//!
//! # How it works
//! [`Target`] is the part of a [`plimsoll_cache::BlockCache`] that the benchmark uses.
//!
//! # Limits
//! The benchmark ends at the first error.
//!
//! # Example
//! The tests beside this file measure a map in memory.

use plimsoll_cache::CacheError;
use plimsoll_cache::stats::{CacheStats, DropReason, MissReason};

/// The result of a look-up.
pub enum Looked<B> {
    /// The block.
    Hit(B),
    /// No block, for this reason.
    Miss(MissReason),
}

/// A cache to benchmark.
pub trait Target: Sync {
    /// Looks up a key.
    ///
    /// # Errors
    /// If the cache no longer takes look-ups.
    fn look_up(&self, key: &[u8]) -> impl Future<Output = Result<Looked<impl AsRef<[u8]>>, CacheError>>;

    /// Stores a block. Returns the reason if it was dropped.
    ///
    /// # Errors
    /// If the cache does not take such blocks.
    fn insert(&self, key: &[u8], value: &[u8]) -> impl Future<Output = Result<Option<DropReason>, CacheError>>;

    /// Returns the counters.
    fn stats(&self) -> CacheStats;
}
