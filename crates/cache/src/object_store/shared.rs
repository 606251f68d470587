//! The state that all clones of a store and all its answers share: origin, cache, and known metadata.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ::object_store::path::Path;
use ::object_store::{Error, Extensions, GetOptions, ObjectStore, PutPayload, PutResult, Result};
use bytes::Bytes;
use plimsoll::Class;

use super::blocks::{Blocks, ReadOp};
use super::flying::InFlight;
use super::known::{Known, Object};
use super::options::Options;
use super::stats::Counters;
use crate::block::Block;
use crate::race::Steps;
use crate::sync::lock;

/// Most blocks removed from the cache when their object changes; blocks of larger objects age out.
const MAX_REMOVED_BLOCKS: u64 = 1 << 16;

/// How long a store that did not answer is not asked again about objects that are known.
const DOWN_FOR: Duration = Duration::from_secs(1);

/// The shared state of a store.
pub(super) struct Core {
    pub(super) inner: Arc<dyn ObjectStore>,
    pub(super) cache: Arc<dyn Blocks>,
    pub(super) options: Options,
    pub(super) in_flight: InFlight,
    pub(super) counters: Counters,
    known: Known,
    /// When the store last failed to answer.
    failed_at: Mutex<Option<Instant>>,
}

impl Core {
    pub(super) fn new(inner: Arc<dyn ObjectStore>, cache: Arc<dyn Blocks>, options: Options) -> Core {
        let known = Known::new(options.meta_objects, options.meta_ttl);
        let (in_flight, counters) = (InFlight::default(), Counters::default());
        Core { inner, cache, options, in_flight, counters, known, failed_at: Mutex::default() }
    }

    /// Forgets an object and removes its blocks. Call it when an operation that may have changed the object has ended.
    pub(super) fn invalidate(&self, location: &Path) {
        if let Some(object) = self.known.invalidate(location) {
            self.remove_blocks(&object);
        }
    }

    /// Forgets all objects below `prefix` and removes their blocks. Other tasks run meanwhile.
    pub(super) async fn invalidate_prefix(&self, prefix: &Path) {
        let mut steps = Steps::default();
        // Some are about objects below it that are not known yet.
        self.known.invalidate_answers();
        for location in self.known.locations() {
            steps.next().await;
            if location.prefix_matches(prefix)
                && let Some(object) = self.known.invalidate(&location)
            {
                for key in self.removable(&object) {
                    self.cache.remove(&key);
                    steps.next().await;
                }
            }
        }
    }

    /// Inserts the blocks of an object that was just put, unless it has been changed since, as far as the store can
    /// tell.
    pub(super) async fn keep(&self, location: &Path, put: &PutResult, payload: PutPayload, extensions: Extensions) {
        if put.e_tag.is_none() {
            return;
        }
        let class = (self.options.classify)(&extensions, ReadOp::Get, location).class;
        let options = GetOptions { extensions, ..GetOptions::default() };
        // A read will ask again.
        let Ok(object) = self.object(location, &options, true).await else { return };
        if object.meta.e_tag != put.e_tag || object.meta.size != payload.content_length() as u64 {
            return;
        }
        let bytes = Bytes::from(payload);
        for (block, bytes) in (0..).zip(bytes.chunks(self.options.block_bytes as usize)) {
            self.insert(&object.block_key(block), Block::copy_from_slice(bytes), class);
        }
    }

    /// Begins to store a block in the cache. Until the write has ended, readers find the block in `in_flight`.
    pub(super) fn insert(&self, key: &[u8], block: Block, class: Option<Class>) {
        let writing = self.in_flight.write(key, &block);
        self.cache.insert(key, block, class, writing);
    }

    fn remove_blocks(&self, object: &Object) {
        self.removable(object).for_each(|key| self.cache.remove(&key));
    }

    /// Returns the keys of the blocks that are to be removed with an object: all, or none of a large one.
    fn removable(&self, object: &Object) -> impl Iterator<Item = Vec<u8>> {
        let blocks = object.meta.size.div_ceil(self.options.block_bytes);
        (0..if blocks <= MAX_REMOVED_BLOCKS { blocks } else { 0 }).map(|block| object.block_key(block))
    }

    /// Returns the object as it is, or, unless `is_fresh`, as it was at most a time to live ago; longer ago if the
    /// store is down and stale reads are wanted.
    ///
    /// # Errors
    /// The store's: not found, a condition that does not hold, and so on.
    pub(super) async fn object(&self, location: &Path, options: &GetOptions, is_fresh: bool) -> Result<Arc<Object>> {
        if !is_fresh && let Some(object) = self.known.get(location).or_else(|| self.stale(location)) {
            return Ok(object);
        }
        let epoch = self.known.epoch(location);
        let head = GetOptions { head: true, range: None, ..options.clone() };
        self.counters.meta_requests.fetch_add(1, Relaxed);
        let answer = match self.inner.get_opts(location, head).await {
            Ok(answer) => answer,
            Err(error @ Error::Generic { .. }) if !is_fresh => {
                *lock(&self.failed_at) = Some(Instant::now());
                return self.stale(location).ok_or(error);
            }
            Err(error) => return Err(self.note_error(location, error)),
        };
        let Options { namespace, block_bytes, .. } = &self.options;
        let object = Arc::new(Object::new(namespace, *block_bytes, answer.meta, answer.attributes));
        if let Some(replaced) = self.known.learn(&object, epoch) {
            self.remove_blocks(&replaced);
        }
        Ok(object)
    }

    /// Returns the object as it was known, if the store did not answer a moment ago and stale reads are wanted.
    fn stale(&self, location: &Path) -> Option<Arc<Object>> {
        let is_down = lock(&self.failed_at).is_some_and(|failed_at| failed_at.elapsed() < DOWN_FOR);
        let object = self.known.stale(location, self.options.stale_for).filter(|_| is_down);
        let object = object.filter(|_| !self.options.stale_for.is_zero())?;
        self.counters.stale_reads.fetch_add(1, Relaxed);
        Some(object)
    }

    pub(super) fn note_error(&self, location: &Path, error: Error) -> Error {
        if matches!(error, Error::NotFound { .. }) {
            self.invalidate(location);
        }
        error
    }
}
