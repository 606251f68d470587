//! The cache as the wrapper uses it, the options of its reads, and [`BlockCache`] as such a cache.

use futures_util::future::{BoxFuture, FutureExt};
use plimsoll::Class;

use crate::block::Block;
use crate::cache::BlockCache;
use crate::lookup::{GetOptions, Lookup};
use crate::stats::MissReason;

use super::flying::Writing;

/// The cache behind a [`super::CachedStore`]. Keys are byte strings of about 100 bytes; values are at most as long as
/// the store's blocks.
///
/// No method fails: an unreadable block is a miss, a block that cannot be stored is dropped.
pub trait Blocks: Send + Sync + 'static {
    /// Returns the block inserted under `key`, exactly as it was, or why there is none. `class` is the class of the
    /// read; `None`: the cache's own. If the block [was cached](MissReason::was_cached), it is not asked for again.
    fn get<'a>(&'a self, key: &'a [u8], class: Option<Class>) -> BoxFuture<'a, Result<Block, MissReason>>;

    /// Makes a block as new as if it had just been read. Returns whether it is cached. Called under a lock: it must
    /// neither wait nor call the wrapper.
    fn touch(&self, key: &[u8]) -> bool;

    /// Begins to store a block, and returns at once. `class` as in [`Blocks::get`]. Drops `writing` when `get` and
    /// `touch` find the block, or when it is known that it is not stored: until then readers have it from the wrapper.
    fn insert(&self, key: &[u8], value: Block, class: Option<Class>, writing: Writing);

    /// Begins to remove a block, and returns at once. A `get` that begins later may still return it: the wrapper does
    /// not depend on the removal.
    fn remove(&self, key: &[u8]);
}

/// How a read uses the cache. Put it into `GetOptions::extensions`, or use [`super::with_extensions`]; without it a
/// read uses [`IoClass::default`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IoClass {
    /// Class of the cache's I/O for this read; `None`: the cache's own classes for hits and fills.
    pub class: Option<Class>,
    /// Use cached blocks. If false, everything is fetched, and cached blocks are replaced: for a retry after bad data.
    pub read_hits: bool,
    /// Insert missing blocks. If false, the read leaves the cache as it was: for scans, such as those of a compaction.
    pub admit: bool,
}

impl Default for IoClass {
    fn default() -> IoClass {
        IoClass { class: None, read_hits: true, admit: true }
    }
}

impl IoClass {
    /// Returns the class of a scan: reads hits in `class`, inserts nothing. For a compaction's reads.
    #[must_use]
    pub fn scan(class: Option<Class>) -> IoClass {
        IoClass { class, admit: false, ..IoClass::default() }
    }
}

/// The kind of a read that is classified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReadOp {
    /// `get_opts`, and everything built on it.
    Get,
    /// `get_ranges`, which has no options: the hook sees the `Extensions` of [`super::with_extensions`], or none.
    GetRanges,
}

impl Blocks for BlockCache {
    fn get<'a>(&'a self, key: &'a [u8], class: Option<Class>) -> BoxFuture<'a, Result<Block, MissReason>> {
        let get = async move {
            match self.get_with(key, GetOptions { class, deadline: None }).await {
                Ok(Lookup::Hit(block)) => Ok(block),
                Ok(Lookup::Miss(reason)) => Err(reason),
                // The cache has been closed.
                Err(_) => Err(MissReason::Overloaded),
            }
        };
        get.boxed()
    }

    fn touch(&self, key: &[u8]) -> bool {
        BlockCache::touch(self, key).unwrap_or(false)
    }

    fn insert(&self, key: &[u8], value: Block, class: Option<Class>, writing: Writing) {
        // A block that cannot be stored is dropped and counted by the engine.
        if let Ok(hash) = self.engine().hash(key) {
            self.engine().insert_detached(hash, &value, class, move || drop(writing));
        }
    }

    fn remove(&self, key: &[u8]) {
        if let Ok(hash) = self.engine().hash(key) {
            self.engine().remove(&hash);
        }
    }
}
