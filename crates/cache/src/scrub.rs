//! Scrubbing: reads what is stored, and removes what is damaged.
//!
//! # Why
//! A block that is rarely read may be damaged for long. Found when it is read, it costs that reader a miss and a
//! checksum error; found before, only a fetch.
//!
//! # How it works
//! A pass over the index reads block by block, in the class of evacuation and behind the hits as moves are, at a rate
//! that the caller gives. A block whose checksum is wrong is asked for in the index again, since its place may be
//! another's by now, and removed.
//!
//! # Limits
//! Blocks that are stored during the pass may not be visited. Blocks of a disk that hangs are counted as unreadable, and
//! stay.
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
use crate::index::{Cursor, PASS_ENTRIES, Verdict};
use crate::inspect::BlockCounts;
use crate::key::KeyHash;
use crate::race::{all, hold_back, in_time, yield_now};
use crate::stats::{IoKind, MissReason};

/// Blocks that are read at once.
const READS: usize = 4;

impl BlockCache {
    /// Reads and verifies all blocks once, at most `bytes_per_s` bytes in a second, and removes those that are damaged.
    /// Returns what it found, which [`BlockCache::stats`] has too. Call it again and again, at a rate that lets a pass
    /// take days. If the future is dropped, the pass ends.
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
        let goes_on = || !self.bell.is_stopping() && is_wanted();
        let begin_ns = shard.now_ns();
        // Also of blocks that cannot be read.
        let mut tried_bytes = 0;
        let mut cursor = Cursor::default();
        while !cursor.is_done() {
            let mut lot = Vec::new();
            self.index.sweep(&mut cursor, PASS_ENTRIES, |hash, entry| {
                lot.push((hash, *entry));
                Verdict::Keep
            });
            for part in lot.chunks(READS) {
                if !goes_on() {
                    return counts;
                }
                let ends = all(part.iter().map(|(hash, entry)| self.scrub_block(shard, hash, entry))).await;
                for ((_, entry), end) in part.iter().zip(ends) {
                    let Some(end) = end else { continue };
                    tried_bytes += u64::from(entry.extent.len_bytes);
                    self.count_scrubbed(&mut counts, entry, end);
                }
                hold_back(shard, begin_ns, tried_bytes, bytes_per_s, goes_on).await;
            }
            yield_now().await;
        }
        counts
    }

    /// Reads and verifies a block, and removes it if it is damaged. `None` if it is not there any more.
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

    fn count_scrubbed(&self, counts: &mut BlockCounts, entry: &Entry, end: Result<(), MissReason>) {
        counts.blocks += 1;
        match end {
            Ok(()) => {}
            Err(MissReason::Corrupt) => counts.checksum_errors += 1,
            Err(_) => {
                counts.unreadable += 1;
                return;
            }
        }
        let len_bytes = u64::from(entry.extent.len_bytes);
        counts.bytes += len_bytes;
        add(&self.counters.scrubbed_bytes, len_bytes);
    }
}
