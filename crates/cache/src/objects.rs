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
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use plimsoll::Shard;

use crate::block::Block;
use crate::cache::BlockCache;
use crate::crypt::OVERHEAD_BYTES;
use crate::engine::Engine;
use crate::entry::{Entry, MAX_BLOCK_BYTES};
use crate::error::CacheError;
use crate::grid::part_in;
use crate::heads::Head;
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
            if engine.upkeep.intake.is_budget_spent.load(Relaxed) {
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
