//! What the wrapper wants of a cache, how its reads use one, and a [`BlockCache`] as one.

use futures_util::future::{BoxFuture, FutureExt};
use plimsoll::Class;

use crate::block::Block;
use crate::cache::BlockCache;
use crate::lookup::GetOptions;

/// What [`super::CachedStore`] wants of a cache. Keys are byte strings of some 100 bytes; values are as long as the store's
/// blocks, or shorter.
///
/// Whatever goes wrong in the cache stays there: what cannot be read is `None`, what cannot be stored is dropped.
pub trait Blocks: Send + Sync + 'static {
    /// The block inserted under `key`, exactly as it was, or nothing. `class`: in which class to read it; `None`: the
    /// cache's own.
    fn get<'a>(&'a self, key: &'a [u8], class: Option<Class>) -> BoxFuture<'a, Option<Block>>;

    /// Begins to store a block, and returns at once: the reader does not wait. `class` as in [`Blocks::get`].
    fn insert(&self, key: &[u8], value: Block, class: Option<Class>);

    /// Begins to forget a block, and returns at once. A `get` that begins later need not miss it: the wrapper does not
    /// depend on that.
    fn remove(&self, key: &[u8]);
}

/// How a read goes about the cache. Put it into `GetOptions::extensions`; without it a read is as [`IoClass::default`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IoClass {
    /// Class of the cache's I/O for this read; `None`: the cache's own classes for hits and fills.
    pub class: Option<Class>,
    /// Take what is cached. Without it everything is fetched, and what was cached is replaced: for a retry after bad
    /// data.
    pub read_hits: bool,
    /// Keep what was missing. Without it the read leaves the cache as it was: for scans, such as those of a compaction.
    pub admit: bool,
}

impl Default for IoClass {
    fn default() -> IoClass {
        IoClass { class: None, read_hits: true, admit: true }
    }
}

impl IoClass {
    /// Hits in `class`, and nothing kept of what was missing: what a compaction's reads want.
    #[must_use]
    pub fn scan(class: Option<Class>) -> IoClass {
        IoClass { class, admit: false, ..IoClass::default() }
    }
}

/// Which of the reads a class is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReadOp {
    /// `get_opts`, and everything made of it.
    Get,
    /// `get_ranges`, which has no options: the hook sees empty `Extensions`.
    GetRanges,
}

impl Blocks for BlockCache {
    fn get<'a>(&'a self, key: &'a [u8], class: Option<Class>) -> BoxFuture<'a, Option<Block>> {
        async move { self.get_with(key, GetOptions { class, deadline: None }).await.ok()?.block() }.boxed()
    }

    fn insert(&self, key: &[u8], value: Block, class: Option<Class>) {
        // What cannot be stored is dropped and counted by the engine.
        if let Ok(hash) = self.engine().hash(key) {
            self.engine().insert_detached(hash, &value, class);
        }
    }

    fn remove(&self, key: &[u8]) {
        if let Ok(hash) = self.engine().hash(key) {
            self.engine().remove(&hash);
        }
    }
}
