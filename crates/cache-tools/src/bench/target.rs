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

pub enum Looked<B> {
    Hit(B),
    Miss(MissReason),
}

pub trait Target: Sync {
    fn look_up(&self, key: &[u8]) -> impl Future<Output = Result<Looked<impl AsRef<[u8]>>, CacheError>>;

    /// Stores a block. Returns the reason if it was dropped.
    fn insert(&self, key: &[u8], value: &[u8]) -> impl Future<Output = Result<Option<DropReason>, CacheError>>;

    fn stats(&self) -> CacheStats;
}
