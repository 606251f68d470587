//! What can be measured: something that takes and gives blocks.
//!
//! # Why
//! That a benchmark finds a wrong byte must be tested with a cache that gives one.
//!
//! # How it works
//! [`Target`] is what the benchmark needs of a [`plimsoll_cache::BlockCache`].
//!
//! # Limits
//! The benchmark ends at the first error.
//!
//! # Example
//! The tests beside this file measure a map in memory.

use plimsoll_cache::CacheError;
use plimsoll_cache::stats::{CacheStats, DropReason, MissReason};

/// What a look-up gave.
pub enum Looked<B> {
    /// The block.
    Hit(B),
    /// Nothing, and why.
    Miss(MissReason),
}

/// See the module's documentation.
pub trait Target: Sync {
    /// Looks up a key.
    ///
    /// # Errors
    /// Why the cache takes no look-ups any more.
    fn look_up(&self, key: &[u8]) -> impl Future<Output = Result<Looked<impl AsRef<[u8]>>, CacheError>>;

    /// Stores a block; `Some` reason where it was dropped.
    ///
    /// # Errors
    /// Why the cache takes no such blocks.
    fn insert(&self, key: &[u8], value: &[u8]) -> impl Future<Output = Result<Option<DropReason>, CacheError>>;

    /// The counters.
    fn stats(&self) -> CacheStats;
}
