//! Scrubbing: reads all blocks, and removes damaged ones.
//!
//! # Why
//! Damage to a block that is rarely read stays undetected until a reader needs the block and gets a miss. A scrub
//! removes the block before that, and the reader only fetches it.
//!
//! # How it works
//! A pass over the index reads all blocks at a rate that the caller gives, in the class of evacuation, and like moves
//! only as fast as hits allow. If a checksum is wrong, the index is queried again: the block may have been moved or
//! replaced during the read. If not, it is removed.
//!
//! # Limits
//! A pass may miss blocks that are stored while it runs. Blocks on a disk that hangs are counted as unreadable and
//! kept.
//!
//! # Example
//! A cache of 1 TB at 20 MB/s: a pass takes 14 hours.

use std::num::NonZeroU64;
use std::sync::Arc;

use plimsoll::Shard;

use crate::cache::BlockCache;
use crate::engine::{Engine, add};
use crate::entry::Entry;
use crate::error::CacheError;
use crate::index::Cursor;
use crate::inspect::BlockCounts;
use crate::key::KeyHash;
use crate::race::{all, hold_back, in_time, yield_now};
use crate::stats::{IoKind, MissReason};

/// Blocks read concurrently: few, because a hit waits behind those that the disk already has.
const READS: usize = 4;

impl BlockCache {
    /// Reads and verifies all blocks once, at most `bytes_per_s` bytes a second, and removes those that are damaged.
    /// Returns the counts of this pass; [`BlockCache::stats`] has those of all passes. To scrub continuously, call it
    /// in a loop, at a rate at which a pass takes days. If the future is dropped, the pass ends.
    ///
    /// # Errors
    /// When the cache has been closed, or its first shard has as many jobs waiting as its mailbox holds.
    pub async fn scrub(&self, bytes_per_s: NonZeroU64) -> Result<BlockCounts, CacheError> {
        let engine = Arc::clone(self.engine());
        let caller = Arc::new(());
        let waits = Arc::downgrade(&caller);
        let is_wanted = move || waits.strong_count() > 0;
        let scrub = move |shard: Shard| async move { engine.scrub(&shard, bytes_per_s.get(), is_wanted).await };
        self.engine().first_handle().run(scrub).await.map_err(|error| CacheError::Stopped(error.to_string()))
    }
}

impl Engine {
    async fn scrub(&self, shard: &Shard, bytes_per_s: u64, is_wanted: impl Fn() -> bool) -> BlockCounts {
        let mut counts = BlockCounts::default();
        let goes_on = || !self.to_keeper.is_stopping() && is_wanted();
        let begin_ns = shard.now_ns();
        // Unreadable blocks count too, or a disk that fails all reads would be read without a pause.
        let mut tried_bytes = 0;
        let mut cursor = Cursor::default();
        while let Some(blocks) = self.index.next_blocks(&mut cursor) {
            for part in blocks.chunks(READS) {
                if !goes_on() {
                    return counts;
                }
                let ends = all(part.iter().map(|(hash, entry)| self.scrub_block(shard, hash, entry))).await;
                let read_before = counts.bytes;
                for ((_, entry), end) in part.iter().zip(ends) {
                    let Some(end) = end else { continue };
                    tried_bytes += u64::from(entry.extent.len_bytes);
                    counts.count(entry.extent.len_bytes, end);
                }
                add(&self.counters.scrubbed_bytes, counts.bytes - read_before);
                hold_back(shard, begin_ns, tried_bytes, bytes_per_s, goes_on).await;
            }
            yield_now().await;
        }
        counts
    }

    /// Reads and verifies a block, and removes it if it is damaged. Returns `None` if it was moved, replaced or removed
    /// meanwhile.
    async fn scrub_block(&self, shard: &Shard, hash: &KeyHash, entry: &Entry) -> Option<Result<(), MissReason>> {
        let (disk, _) = self.locate(&entry.extent)?;
        if disk.hangs() {
            return Some(Err(MissReason::Deadline));
        }
        disk.wait_for_turn(shard, entry.extent.len_bytes.into()).await;
        let read = self.read_stored(shard, entry, self.classes.evacuate, IoKind::EvacuateRead);
        match in_time(shard, read).await.unwrap_or(Err(MissReason::Deadline)) {
            Ok(_) => Some(Ok(())),
            Err(_) if !self.index.peek(hash).is_some_and(|now| now.is_same_block(entry)) => None,
            Err(reason) => {
                if self.give_up(hash, entry, reason) {
                    add(&self.counters.scrub_removals, 1);
                }
                Some(Err(reason))
            }
        }
    }
}
