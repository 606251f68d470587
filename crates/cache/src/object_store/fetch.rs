//! Reads blocks of an object: from the cache, from a fetch under way, or from the origin.
//!
//! # How it works
//! Fetches under way are in a map by block key (`flying`). Each is a shared future that all its waiters may drive, so
//! none depends on another's being polled. The map holds it weakly. A fetch takes its blocks out of the map when it
//! ends, or when its last reader is dropped. If it fails, one of its readers gets the store's error; the others try
//! once more, together, and get that attempt's error if it fails too. Fetched blocks are in memory (`flying`) until
//! they are written. A write may end between a reader's look-up and the moment at which that reader would begin a
//! fetch: blocks that are cached by then are looked up again.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use ::object_store::{Error, Extensions, GetOptions, GetRange};
use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt, join_all};
use futures_util::stream::{self, StreamExt, TryStreamExt};

use super::NAME;
use super::blocks::IoClass;
use super::flying::{Failed, Failure, Fetched, Fetching, Flight, Flying};
use super::known::Object;
use super::shared::Core;
use crate::block::Block;
use crate::grid::{Grid, part_in};
use crate::sync::lock;

/// Most range requests in flight for one read.
const PARALLEL_FETCHES: usize = 10;

/// Why blocks could not be read.
pub(super) enum ReadError {
    /// The object is not as its metadata said.
    Changed,
    Origin(Error),
}

/// Takes a fetch's blocks out of the map when it ends or is dropped.
struct Registration {
    core: Arc<Core>,
    id: u64,
    keys: Vec<Vec<u8>>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut flying = self.core.in_flight.lock();
        for key in &self.keys {
            if flying.blocks.get(key).is_some_and(|flight| flight.id == self.id) {
                flying.blocks.remove(key);
            }
        }
    }
}

/// Blocks that one fetch will return.
struct Part {
    id: u64,
    blocks: Vec<u64>,
    first_block: u64,
    fetching: Fetching,
}

/// The sources of blocks that look-ups have not returned.
struct Joined {
    /// The fetches that will return them.
    parts: Vec<Part>,
    /// Blocks that are cached by now.
    come: Vec<u64>,
    /// Blocks that are being written into the cache.
    written: Vec<(u64, Bytes)>,
}

/// A block that a look-up has not returned.
struct Missing {
    block: u64,
    /// Whether it was not cached. If so, another look-up may find it; if not, it cannot be read, or is not wanted.
    may_have_come: bool,
}

/// Attempts of a reader at the same blocks: there is a last one if another reader has got the error of the first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attempt {
    First,
    Last,
}

/// A read of some blocks of an object.
#[derive(Clone)]
pub(super) struct Reader {
    pub(super) core: Arc<Core>,
    pub(super) object: Arc<Object>,
    pub(super) class: IoClass,
    pub(super) extensions: Extensions,
}

impl Reader {
    fn grid(&self) -> Grid {
        Grid { block_bytes: self.core.options.block_bytes, len_bytes: self.object.meta.size }
    }

    /// Reads the bytes `range` (not empty, within the object), in pieces.
    pub(super) async fn read_range(self, range: Range<u64>) -> Result<Vec<Bytes>, ReadError> {
        let blocks: Vec<u64> = self.grid().blocks_of(&range).collect();
        let found = self.read_blocks(&blocks).await?;
        Ok(blocks.iter().zip(found).map(|(block, bytes)| self.cut(*block, &bytes, &range)).collect())
    }

    /// Reads the bytes of each of `ranges` (not empty, within the object).
    pub(super) async fn read_ranges(self, ranges: Vec<Range<u64>>) -> Result<Vec<Bytes>, ReadError> {
        let mut blocks: Vec<u64> = ranges.iter().flat_map(|range| self.grid().blocks_of(range)).collect();
        blocks.sort_unstable();
        blocks.dedup();
        let found: HashMap<u64, Bytes> = blocks.iter().copied().zip(self.read_blocks(&blocks).await?).collect();
        let assemble = |range: &Range<u64>| {
            let blocks = self.grid().blocks_of(range);
            let mut pieces = blocks.filter_map(|block| Some(self.cut(block, found.get(&block)?, range)));
            match (pieces.next(), pieces.next()) {
                (Some(only), None) => only,
                (first, second) => first.into_iter().chain(second).chain(pieces).flatten().collect(),
            }
        };
        Ok(ranges.iter().map(assemble).collect())
    }

    /// Fetches the blocks of `range` (within the object) that are not cached, and makes the others the newest. Returns
    /// the bytes fetched.
    pub(super) async fn warm(self, range: Range<u64>) -> Result<u64, ReadError> {
        let is_missing = |block: &u64| !self.core.cache.touch(&self.object.block_key(*block));
        let missing = self.grid().blocks_of(&range).filter(is_missing);
        let missing: Vec<Missing> = missing.map(|block| Missing { block, may_have_come: true }).collect();
        let Joined { parts, .. } = self.join(missing);
        let fetched = self.wait_for_all(parts, Attempt::First).await?;
        Ok(fetched.iter().map(|(_, bytes)| bytes.len() as u64).sum())
    }

    /// Returns the part of the bytes from `first_block` on that lies in `range`.
    fn cut(&self, first_block: u64, bytes: &Bytes, range: &Range<u64>) -> Bytes {
        bytes.slice(part_in(first_block * self.grid().block_bytes, bytes.len(), range))
    }

    /// Reads `blocks`, which must ascend and lie within the object.
    async fn read_blocks(&self, blocks: &[u64]) -> Result<Vec<Bytes>, ReadError> {
        let (mut found, missing) = self.look_up(blocks).await;
        if !missing.is_empty() {
            found.extend(self.clone().obtain(missing, Attempt::First).await?);
            found.sort_unstable_by_key(|(block, _)| *block);
        }
        Ok(found.into_iter().map(|(_, bytes)| bytes).collect())
    }

    /// Looks `blocks` up in the cache. Returns those found, and the others.
    async fn look_up(&self, blocks: &[u64]) -> (Vec<(u64, Bytes)>, Vec<Missing>) {
        if !self.class.read_hits {
            return (Vec::new(), blocks.iter().map(|block| Missing { block: *block, may_have_come: false }).collect());
        }
        let ends = join_all(blocks.iter().map(|block| self.look_up_one(*block).boxed())).await;
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        for (block, end) in blocks.iter().zip(ends) {
            match end {
                Ok(bytes) => found.push((*block, bytes)),
                Err(without) => missing.push(without),
            }
        }
        self.core.counters.hit_blocks.fetch_add(found.len() as u64, Relaxed);
        (found, missing)
    }

    /// Reads missing blocks from the origin, or from the cache if they are cached by now.
    fn obtain(
        self,
        missing: Vec<Missing>,
        attempt: Attempt,
    ) -> BoxFuture<'static, Result<Vec<(u64, Bytes)>, ReadError>> {
        let obtain = async move {
            let Joined { parts, come, written } = self.join(missing);
            let mut blocks = self.wait_for_all(parts, attempt).await?;
            blocks.extend(written);
            if !come.is_empty() {
                let (found, missing) = self.look_up(&come).await;
                blocks.extend(found);
                blocks.extend(self.obtain(missing, attempt).await?);
            }
            Ok(blocks)
        };
        obtain.boxed()
    }

    async fn look_up_one(&self, block: u64) -> Result<Bytes, Missing> {
        let found = self.core.cache.get(&self.object.block_key(block), self.class.class).await;
        let bytes = found.map_err(|reason| Missing { block, may_have_come: !reason.was_cached() })?;
        let span = self.grid().span(block, block);
        // Only this wrapper makes such keys. Should the length be wrong all the same, treat the block as missing.
        let is_right = bytes.len() as u64 == span.end - span.start;
        if is_right { Ok(bytes.into()) } else { Err(Missing { block, may_have_come: false }) }
    }

    /// Joins the fetches under way for missing blocks, and begins fetches for those that are neither written nor cached
    /// by now.
    fn join(&self, missing: Vec<Missing>) -> Joined {
        let mut parts: Vec<Part> = Vec::new();
        let (mut own, mut come, mut written) = (Vec::new(), Vec::new(), Vec::new());
        let mut flying = self.core.in_flight.lock();

        for Missing { block, may_have_come } in missing {
            let key = self.object.block_key(block);
            let flight = flying.blocks.get(&key);
            match flight.and_then(|flight| Some((flight, flight.fetching.upgrade()?))) {
                // A read that does not want cached blocks does not want a fetch begun a while ago either.
                Some((flight, fetching)) if self.class.read_hits => {
                    flight.admit.fetch_or(self.class.admit, Relaxed);
                    match parts.last_mut() {
                        // Drops a clone under the map's lock: safe, as `part` holds another one.
                        Some(part) if part.id == flight.id => part.blocks.push(block),
                        _ => {
                            let (id, first_block) = (flight.id, flight.first_block);
                            parts.push(Part { id, blocks: vec![block], first_block, fetching });
                        }
                    }
                }
                Some((flight, fetching)) => {
                    // Keep the future until the lock is released: see `flying`.
                    parts.push(Part { id: flight.id, blocks: Vec::new(), first_block: 0, fetching });
                    own.push(block);
                }
                // Checked in the order of a block's stages, so that none is missed between them: fetch, write, cache.
                None => match flying.written(&key).filter(|_| self.class.read_hits) {
                    Some(bytes) => written.push((block, Bytes::from(bytes.clone()))),
                    None if may_have_come && self.core.cache.touch(&key) => come.push(block),
                    None => own.push(block),
                },
            }
        }

        let joined = parts.iter().map(|part| part.blocks.len() as u64).sum::<u64>() + written.len() as u64;
        for run in self.runs(&own) {
            parts.push(self.begin(&mut flying, run));
        }
        drop(flying);
        parts.retain(|part| !part.blocks.is_empty());
        self.core.counters.joined_blocks.fetch_add(joined, Relaxed);
        self.core.counters.missed_blocks.fetch_add(own.len() as u64, Relaxed);
        Joined { parts, come, written }
    }

    /// Groups ascending blocks into requests: cuts where a gap is too wide or a request would be too long.
    fn runs(&self, blocks: &[u64]) -> Vec<Vec<u64>> {
        let options = &self.core.options;
        let (gap, most) = (options.gap_bytes / options.block_bytes, options.fetch_bytes / options.block_bytes);
        let mut runs: Vec<Vec<u64>> = Vec::new();
        for block in blocks {
            match runs.last_mut() {
                Some(run)
                    if run.last().is_some_and(|last| block - last <= gap + 1)
                        && run.first().is_some_and(|first| block - first < most) =>
                {
                    run.push(*block);
                }
                _ => runs.push(vec![*block]),
            }
        }
        runs
    }

    /// Creates the fetch of a run of blocks and enters it into the map. It starts when it is first polled.
    fn begin(&self, flying: &mut Flying, blocks: Vec<u64>) -> Part {
        let id = flying.take_id();
        let first_block = blocks.first().copied().unwrap_or_default();
        let keys: Vec<Vec<u8>> = blocks.iter().map(|block| self.object.block_key(*block)).collect();
        let admit = Arc::new(AtomicBool::new(self.class.admit));
        let registration = Registration { core: self.core.clone(), id, keys: keys.clone() };
        let fetching = self.clone().run(blocks.clone(), admit.clone(), registration).boxed().shared();
        for key in keys {
            if let Some(weak) = fetching.downgrade() {
                flying.blocks.insert(key, Flight { id, first_block, fetching: weak, admit: admit.clone() });
            }
        }
        Part { id, blocks, first_block, fetching }
    }

    async fn run(self, blocks: Vec<u64>, admit: Arc<AtomicBool>, registration: Registration) -> Fetched {
        let (first, last) = (blocks.first().copied().unwrap_or_default(), blocks.last().copied().unwrap_or_default());
        let fetched = self.fetch(self.grid().span(first, last)).await.map_err(|error| {
            Arc::new(match error {
                ReadError::Changed => Failure::Changed,
                ReadError::Origin(error) => Failure::Origin(Failed::new(error)),
            })
        });
        if let (Ok(bytes), true) = (&fetched, admit.load(Relaxed)) {
            for (block, key) in blocks.iter().zip(&registration.keys) {
                let part = self.cut_fetched(*block, first, bytes);
                // Copy: a block in memory must not keep the whole fetch alive.
                self.core.insert(key, Block::copy_from_slice(&part), self.class.class);
            }
        }
        // Last, so that a reader that finds no fetch under way can find the block as one that is written, or cached.
        drop(registration);
        fetched
    }

    /// Returns a block's bytes from a fetch that begins with `first_block`.
    fn cut_fetched(&self, block: u64, first_block: u64, bytes: &Bytes) -> Bytes {
        self.cut(first_block, bytes, &self.grid().span(block, block))
    }

    fn wait_for_all(
        &self,
        parts: Vec<Part>,
        attempt: Attempt,
    ) -> BoxFuture<'static, Result<Vec<(u64, Bytes)>, ReadError>> {
        let waits: Vec<_> = parts.into_iter().map(|part| self.clone().wait(part, attempt)).collect();
        stream::iter(waits).buffered(PARALLEL_FETCHES).try_concat().boxed()
    }

    async fn wait(self, part: Part, attempt: Attempt) -> Result<Vec<(u64, Bytes)>, ReadError> {
        let (first_block, bytes) = match part.fetching.await {
            Ok(bytes) => (part.first_block, bytes),
            Err(failure) => {
                let Failure::Origin(failed) = &*failure else { return Err(ReadError::Changed) };
                if let Some(error) = lock(failed).take() {
                    return Err(ReadError::Origin(error));
                }
                // Another reader took the error. With more than one further attempt, the last of many readers would
                // wait for those of all others.
                if attempt == Attempt::Last {
                    return Err(ReadError::Origin(lock(failed).copy()));
                }
                let missing = part.blocks.into_iter().map(|block| Missing { block, may_have_come: true });
                return self.obtain(missing.collect(), Attempt::Last).await;
            }
        };
        Ok(part.blocks.into_iter().map(|block| (block, self.cut_fetched(block, first_block, &bytes))).collect())
    }

    /// Returns why a request was refused. A store refuses a range behind the end of an object, and an object whose
    /// metadata are trusted for a time may have become shorter since: then the store is asked for them again.
    async fn why_refused(&self, error: Error) -> ReadError {
        if self.core.options.meta_ttl.is_zero() || !matches!(error, Error::Generic { .. }) {
            return ReadError::Origin(error);
        }
        let head = GetOptions { head: true, extensions: self.extensions.clone(), ..GetOptions::default() };
        self.core.counters.meta_requests.fetch_add(1, Relaxed);
        match self.core.inner.get_opts(&self.object.meta.location, head).await {
            Ok(answer) if !self.object.is(&answer.meta) => ReadError::Changed,
            _ => ReadError::Origin(error),
        }
    }

    /// Sends one range request, and checks that the answer is of the object in its known state.
    async fn fetch(&self, range: Range<u64>) -> Result<Bytes, ReadError> {
        let len_bytes = range.end - range.start;
        let options = GetOptions {
            range: Some(GetRange::Bounded(range.clone())),
            extensions: self.extensions.clone(),
            ..GetOptions::default()
        };
        self.core.counters.fetches.fetch_add(1, Relaxed);
        let answer = match self.core.inner.get_opts(&self.object.meta.location, options).await {
            Ok(answer) => answer,
            Err(error) => return Err(self.why_refused(error).await),
        };
        if !self.object.is(&answer.meta) || answer.range != range {
            return Err(ReadError::Changed);
        }
        let bytes = answer.bytes().await.map_err(ReadError::Origin)?;
        self.core.counters.fetched_bytes.fetch_add(bytes.len() as u64, Relaxed);
        if bytes.len() as u64 != len_bytes {
            let source = format!("{} of {len_bytes} bytes came of {}", bytes.len(), self.object.meta.location).into();
            return Err(ReadError::Origin(Error::Generic { store: NAME, source }));
        }
        Ok(bytes)
    }
}
