//! Objects: values of any length, read by ranges.
//!
//! # Why
//! A block is read and checked whole. A program that reads small parts of large values wants to read no more than those
//! parts.
//!
//! # How it works
//! An object is stored in *extents* of 64 KiB; a read of a range reads the extents that the range touches. Each insert
//! is a *version* of the object, with a random number. The extents of a version are blocks whose keys are made of that
//! number and the extent's own, so they never change. After all extents of a version, a *head* is written: a block
//! under the object's key that names the version. A reader takes the version from the head, so all bytes that it
//! returns are of one version, whatever is inserted meanwhile. The extents of a replaced version are removed; a reader
//! that misses one reads the head again.
//!
//! A removal takes the head out of the index first, and reads it afterwards, to know which extents to remove.
//!
//! Heads that were read are kept in memory, each with the index entry that it was read by. A head in memory is valid as
//! long as the index has that entry.
//!
//! # Limits
//! Extents are evicted, and lost with their disks, one by one: then ranges in them are misses, and others are hits. The
//! extents of a version whose head is lost stay until they are evicted: after a crash, if the head cannot be read, or
//! if a future is dropped while it reads the head. A replacement needs space for both versions, and an object about as
//! long as the cache evicts its own first extents.
//!
//! # Example
//! The bytes 100,000 to 200,000 of an object of 10 MB are in the extents 1 to 3, which are read concurrently.
//! ```
//! # fn block_on<T>(future: impl Future<Output = T>) -> T {
//! #     let mut future = std::pin::pin!(future);
//! #     let mut context = std::task::Context::from_waker(std::task::Waker::noop());
//! #     loop {
//! #         if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut context) { return value }
//! #         std::thread::yield_now();
//! #     }
//! # }
//! use plimsoll_cache::{BlockCache, GetOptions, InsertOptions, Inserted, Lookup};
//! # let directory = tempfile::tempdir()?;
//! # let directory = directory.path();
//! block_on(async {
//!     let cache = BlockCache::open_or_create(directory, 64 << 20).await?;
//!     let table = vec![7; 10_000_000];
//!     assert_eq!(cache.insert_object(b"table/7", &table, InsertOptions::default()).await?, Inserted::Stored);
//!     let part = cache.get_range(b"table/7", 100_000..200_000, GetOptions::default()).await?;
//!     let Lookup::Hit(part) = part else { panic!("it is there") };
//!     assert_eq!(part[..], [7; 100_000]);
//!     cache.close().await
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use plimsoll::Shard;
use quick_cache::sync::Cache;

use crate::block::Block;
use crate::cache::BlockCache;
use crate::crypt::OVERHEAD_BYTES;
use crate::engine::Engine;
use crate::entry::{Entry, MAX_BLOCK_BYTES};
use crate::error::CacheError;
use crate::grid::{Grid, part_in};
use crate::insert::{InsertOptions, Inserted};
use crate::key::KeyHash;
use crate::lookup::{GetOptions, Lookup};
use crate::race::{Steps, all, race};
use crate::random::random_u128;
use crate::stats::{DropReason, IoKind, MissReason};

/// Bytes of an extent on its disk: small beside the fixed cost of a read, and large enough that its index entry takes
/// only 0.04 % of them.
const EXTENT_BYTES: u32 = 64 << 10;

/// Extents of one object that are read or written concurrently: 1 MiB.
const AT_ONCE: usize = 16;

/// Versions that `get_range` tries before it reports a miss, if each is replaced while it is read.
const ATTEMPTS: u32 = 4;

/// Heads kept in memory, of about 80 bytes each.
const HEADS: usize = 1 << 16;

/// Bytes of a stored head.
const HEAD_BYTES: usize = 28;

/// A version of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    version: u128,
    /// Bytes of the object.
    len_bytes: u64,
    /// Bytes of the value in each extent but the last; not 0.
    extent_bytes: u32,
}

impl Head {
    fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..16].copy_from_slice(&self.version.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.len_bytes.to_le_bytes());
        bytes[24..].copy_from_slice(&self.extent_bytes.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Head> {
        let (version, rest) = bytes.split_first_chunk()?;
        let (len_bytes, rest) = rest.split_first_chunk()?;
        let head = Head {
            version: u128::from_le_bytes(*version),
            len_bytes: u64::from_le_bytes(*len_bytes),
            extent_bytes: u32::from_le_bytes(rest.try_into().ok()?),
        };
        (head.extent_bytes > 0).then_some(head)
    }

    fn grid(&self) -> Grid {
        Grid { block_bytes: self.extent_bytes.into(), len_bytes: self.len_bytes }
    }

    /// Returns the key of an extent.
    fn extent_key(&self, extent: u64) -> [u8; 24] {
        let mut key = [0; 24];
        key[..16].copy_from_slice(&self.version.to_le_bytes());
        key[16..].copy_from_slice(&extent.to_le_bytes());
        key
    }
}

/// Heads that were read lately.
#[derive(Default)]
pub(crate) struct Heads(OnceLock<Cache<KeyHash, (Entry, Head)>>);

impl Heads {
    /// Returns the head of an object that was read by `entry`.
    fn get(&self, hash: &KeyHash, entry: &Entry) -> Option<Head> {
        let (read_by, head) = self.0.get()?.get(hash)?;
        read_by.is_same_block(entry).then_some(head)
    }

    fn insert(&self, hash: &KeyHash, entry: Entry, head: Head) {
        self.0.get_or_init(|| Cache::new(HEADS)).insert(*hash, (entry, head));
    }
}

/// The extents of a version. If dropped before [`Extents::keep`], they are removed.
struct Extents {
    engine: Arc<Engine>,
    head: Head,
    /// Extents not removed yet.
    left: Range<u64>,
}

impl Extents {
    fn of(engine: &Arc<Engine>, head: Head) -> Extents {
        let left = 0..head.len_bytes.div_ceil(head.extent_bytes.into());
        Extents { engine: Arc::clone(engine), head, left }
    }

    fn keep(mut self) {
        self.left = 0..0;
    }

    /// Removes the next extent. Returns whether there was one.
    fn remove_one(&mut self) -> bool {
        let Some(extent) = self.left.next() else { return false };
        self.engine.take_out(&self.engine.hash_of(&self.head.extent_key(extent)));
        true
    }

    /// Removes all, and lets other tasks run meanwhile.
    async fn remove(mut self) {
        let mut steps = Steps::default();
        while self.remove_one() {
            steps.next().await;
        }
    }
}

impl Drop for Extents {
    fn drop(&mut self) {
        while self.remove_one() {}
    }
}

impl BlockCache {
    /// Stores `value`, of any length, under `key`, in place of an older object; [`BlockCache::get_range`] reads it. An
    /// object and a block may have the same key, and are independent. Until the new object is stored whole, readers
    /// find the older one. If the new object or the future is dropped, the older one is removed too. Of concurrent
    /// inserts under one key, the one that began last wins.
    ///
    /// # Errors
    /// When the key is too short or too long. An object dropped for want of room is not an error but
    /// [`Inserted::Dropped`].
    pub async fn insert_object(
        &self,
        key: &[u8],
        value: &[u8],
        options: InsertOptions,
    ) -> Result<Inserted, CacheError> {
        let engine = self.engine();
        let hash = engine.object_hash(key)?;
        let claim = engine.claim(hash);
        let former = self.head(&hash, GetOptions { class: options.class, deadline: None }).await?;
        // Dropped with this future, they are removed.
        let former = former.ok().map(|head| Extents::of(engine, head));
        // Checked for the object's key: every extent has a key that was never used.
        let len_bytes = u32::try_from(value.len()).unwrap_or(u32::MAX).min(MAX_BLOCK_BYTES);
        if let Err(reason) = engine.check_use(&hash, claim.token(), len_bytes) {
            drop(claim);
            if let Some(former) = former {
                former.remove().await;
            }
            return Ok(engine.dropped(reason));
        }

        let overhead = if engine.cipher.is_some() { OVERHEAD_BYTES as u32 } else { 0 };
        let extent_bytes = EXTENT_BYTES - overhead;
        let head = Head { version: random_u128(), len_bytes: value.len() as u64, extent_bytes };
        let extents = Extents::of(engine, head);
        let end = match self.write_extents(&head, value, options).await {
            Ok(()) => engine.store(claim, &head.encode(), options).await,
            Err(reason) => {
                drop(claim);
                Inserted::Dropped(reason)
            }
        };

        match end {
            Inserted::Stored => extents.keep(),
            Inserted::Dropped(_) => extents.remove().await,
        }
        match former {
            // The insert or removal that superseded this one removes the same former version.
            Some(former) if end == Inserted::Dropped(DropReason::Superseded) => former.keep(),
            Some(former) => former.remove().await,
            None => {}
        }
        Ok(end)
    }

    /// Returns the bytes `range` of the object of `key`, or why they are not cached. All bytes are of one insert. A
    /// range that ends after the object's end is cut there. If the bytes are in one extent, they share its memory; if
    /// in several, they are copied. Each read has the class and deadline of `options`.
    ///
    /// # Errors
    /// As [`BlockCache::get`].
    pub async fn get_range(&self, key: &[u8], range: Range<u64>, options: GetOptions) -> Result<Lookup, CacheError> {
        let hash = self.engine().object_hash(key)?;
        let mut missed = None;
        for _ in 0..ATTEMPTS {
            let head = match self.head(&hash, options).await? {
                Ok(head) => head,
                Err(reason) => return Ok(Lookup::Miss(reason)),
            };
            if let Some((version, reason)) = missed
                && version == head.version
            {
                return Ok(Lookup::Miss(reason));
            }
            match self.read_extents(&head, &range, options).await? {
                Ok(block) => return Ok(Lookup::Hit(block)),
                // The version may have been replaced during the read.
                Err(reason) => missed = Some((head.version, reason)),
            }
        }
        Ok(Lookup::Miss(missed.map_or(MissReason::Absent, |(_, reason)| reason)))
    }

    /// Removes the object of `key`. Returns whether one was cached. The object is gone when the future is first polled;
    /// the future ends when its space is free. The removal is durable after the next checkpoint.
    ///
    /// # Errors
    /// As [`BlockCache::get`].
    pub async fn remove_object(&self, key: &[u8]) -> Result<bool, CacheError> {
        let engine = self.engine();
        let hash = engine.object_hash(key)?;
        let Some(gone) = engine.remove(&hash) else { return Ok(false) };
        // An insert that begins from here on has a version of its own, and finds no former one.
        if let Some(head) = self.removed_head(hash, gone).await {
            Extents::of(engine, head).remove().await;
        }
        Ok(true)
    }

    /// Returns the head that was removed from the index with `entry`, if it can be read. Its place is not written again
    /// before the next checkpoint, and after that its checksum is wrong.
    async fn removed_head(&self, hash: KeyHash, entry: Entry) -> Option<Head> {
        let engine = self.engine();
        if let Some(head) = engine.heads.get(&hash, &entry) {
            return Some(head);
        }
        let own = Arc::clone(engine);
        let read = move |shard: Shard| async move {
            let read = own.read_entry(&shard, &hash, &entry, own.classes.hit, IoKind::LookupRead);
            race(read, shard.sleep(own.deadline_of(GetOptions::default()))).await
        };
        // The mailbox of the shard may be full, or the shard has stopped: the object is removed all the same.
        let block = engine.handle_for(&hash).run(read).await.ok()??.ok()?;
        Head::decode(&block)
    }

    /// Returns the present version of an object.
    async fn head(&self, hash: &KeyHash, options: GetOptions) -> Result<Result<Head, MissReason>, CacheError> {
        let engine = self.engine();
        let before = engine.index.peek(hash);
        if let Some(head) = before.and_then(|entry| engine.heads.get(hash, &entry)) {
            engine.index.touch(hash);
            return Ok(Ok(head));
        }
        let block = match self.look_up(*hash, options).await? {
            Lookup::Hit(block) => block,
            Lookup::Miss(reason) => return Ok(Err(reason)),
        };
        let Some(head) = Head::decode(&block) else { return Ok(Err(MissReason::Corrupt)) };
        if let (Some(before), Some(now)) = (before, engine.index.peek(hash))
            && now.is_same_block(&before)
        {
            engine.heads.insert(hash, now, head);
        }
        Ok(Ok(head))
    }

    /// Writes all extents of a version.
    ///
    /// # Errors
    /// When an extent is not stored: why.
    async fn write_extents(&self, head: &Head, value: &[u8], options: InsertOptions) -> Result<(), DropReason> {
        let engine = self.engine();
        let extents: Vec<_> = (0..).zip(value.chunks(head.extent_bytes as usize)).collect();
        for some in extents.chunks(AT_ONCE) {
            if engine.upkeep.intake.is_budget_spent() {
                return Err(DropReason::Endurance);
            }
            let writes = some.iter().copied().map(|(extent, part)| {
                let claim = engine.claim(engine.hash_of(&head.extent_key(extent)));
                engine.store(claim, part, options)
            });
            for end in all(writes).await {
                if let Inserted::Dropped(reason) = end {
                    return Err(reason);
                }
            }
        }
        Ok(())
    }

    /// Reads `range` of a version. If an extent is not cached, returns why.
    async fn read_extents(
        &self,
        head: &Head,
        range: &Range<u64>,
        options: GetOptions,
    ) -> Result<Result<Block, MissReason>, CacheError> {
        let grid = head.grid();
        let range = range.start.min(head.len_bytes)..range.end.min(head.len_bytes);
        if range.is_empty() {
            return Ok(Ok(Block::from_vec(Vec::new())));
        }
        let extents: Vec<u64> = grid.blocks_of(&range).collect();
        let mut whole = Vec::new();
        for some in extents.chunks(AT_ONCE) {
            let read = |extent: &u64| self.look_up(self.engine().hash_of(&head.extent_key(*extent)), options);
            for (extent, found) in some.iter().zip(all(some.iter().map(read)).await) {
                let block = match found? {
                    Lookup::Hit(block) => block,
                    Lookup::Miss(reason) => return Ok(Err(reason)),
                };
                let span = grid.span(*extent, *extent);
                if block.len() as u64 != span.end - span.start {
                    return Ok(Err(MissReason::Corrupt));
                }
                let part = block.slice(part_in(span.start, block.len(), &range));
                if extents.len() == 1 {
                    return Ok(Ok(part));
                }
                whole.extend_from_slice(&part);
            }
        }
        Ok(Ok(Block::from_vec(whole)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_it_was_written_and_other_bytes_are_none() {
        let head = Head { version: u128::MAX / 3, len_bytes: u64::MAX / 5, extent_bytes: 65_508 };
        assert_eq!(Head::decode(&head.encode()), Some(head));
        for bytes in [&b"sea water"[..], &[0; HEAD_BYTES], &[1; HEAD_BYTES + 1], &[]] {
            assert_eq!(Head::decode(bytes), None, "{bytes:?}");
        }
    }
}
