//! Keeps blocks in memory, in front of the disks.
//!
//! # Why
//! The hottest thousand of a million keys take a third of the look-ups; memory can spare the disks all of them.
//!
//! # How it works
//! `quick_cache` (S3-FIFO, sharded, each shard behind a lock of its own), weighed by the memory that blocks keep: that
//! of a block from a disk is whole sectors. The shards divide the capacity equally, so their number is limited to leave
//! [`SHARD_BYTES`] to each.
//!
//! # Limits
//! A block larger than its shard is not kept. Memory for keys and links, about 100 bytes a block, is not counted.
//!
//! # Example
//! `MemoryTier::new(64 << 20)`: about 8000 blocks of 8 KiB. `MemoryTier::new(0)` keeps nothing and allocates nothing.

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

use crate::block::Block;
use crate::key::KeyHash;

/// Smallest capacity of a shard: twice the largest block, so that one still fits.
const SHARD_BYTES: u64 = 2 * crate::entry::MAX_BLOCK_BYTES as u64;

/// Most shards: enough to spare the threads of a large machine most lock collisions.
const MAX_SHARDS: u64 = 64;

/// Block size from which the table and its list of ghosts are sized; blocks are rarely smaller.
const TYPICAL_BLOCK_BYTES: u64 = 8 << 10;

/// Most blocks that the table is sized for at first; beyond them it grows.
const MAX_ITEMS: u64 = 1 << 24;

/// A block in memory.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) block: Block,
    /// When the block's entry was last renewed ([`Index::use_tick`](crate::index::Index::use_tick)).
    pub(crate) renewed_tick: u32,
}

#[derive(Clone, Debug)]
struct ByBytes;

impl Weighter<KeyHash, Kept> for ByBytes {
    fn weight(&self, _: &KeyHash, kept: &Kept) -> u64 {
        // A block of weight 0 would never be evicted.
        kept.block.held_bytes().max(1) as u64
    }
}

/// The blocks in memory, or nothing if the capacity is 0.
pub(crate) struct MemoryTier {
    cache: Option<Cache<KeyHash, Kept, ByBytes>>,
}

impl MemoryTier {
    /// Returns whether the tier keeps any blocks at all.
    pub(crate) fn is_on(&self) -> bool {
        self.cache.is_some()
    }

    /// Returns a tier whose blocks keep at most `capacity_bytes` of memory; 0: none.
    pub(crate) fn new(capacity_bytes: u64) -> MemoryTier {
        let shards = (capacity_bytes / SHARD_BYTES).clamp(1, MAX_SHARDS);
        let options = OptionsBuilder::new()
            .shards(shards as usize)
            .estimated_items_capacity((capacity_bytes / TYPICAL_BLOCK_BYTES).clamp(16, MAX_ITEMS) as usize)
            .weight_capacity(capacity_bytes)
            .build();
        // The builder fails only if a capacity is missing.
        let cache = options.ok().filter(|_| capacity_bytes > 0).map(|options| {
            Cache::with_options(options, ByBytes, DefaultHashBuilder::default(), DefaultLifecycle::default())
        });
        MemoryTier { cache }
    }

    /// Returns the block, if it is in memory, and counts a use of it.
    pub(crate) fn get(&self, key: &KeyHash) -> Option<Kept> {
        self.cache.as_ref()?.get(key)
    }

    /// Keeps the block for a while, in place of an older one under its key. Its entry was renewed at `renewed_tick`.
    pub(crate) fn insert(&self, key: KeyHash, block: Block, renewed_tick: u32) {
        if let Some(cache) = &self.cache {
            cache.insert(key, Kept { block, renewed_tick });
        }
    }

    /// Notes that the entry of `block` was renewed, if the block is still in memory. Call it under the index's lock,
    /// under which blocks are inserted.
    pub(crate) fn renew(&self, key: &KeyHash, block: &Block, renewed_tick: u32) {
        let Some(cache) = &self.cache else { return };
        if cache.peek(key).is_some_and(|kept| kept.block.as_ptr() == block.as_ptr()) {
            // Fails if the block was evicted or removed in between.
            let _ = cache.replace(*key, Kept { block: block.clone(), renewed_tick }, true);
        }
    }

    /// Removes the block. Returns whether it was in memory.
    pub(crate) fn remove(&self, key: &KeyHash) -> bool {
        self.cache.as_ref().is_some_and(|cache| cache.remove(key).is_some())
    }

    /// Returns the bytes of memory that blocks keep.
    #[cfg(test)]
    pub(crate) fn used_bytes(&self) -> u64 {
        self.cache.as_ref().map_or(0, Cache::weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u32) -> KeyHash {
        KeyHash::of(&number.to_le_bytes(), 1)
    }

    #[test]
    fn what_was_inserted_comes_back_until_it_is_removed() {
        let tier = MemoryTier::new(1 << 20);
        let block = Block::copy_from_slice(b"abc");
        tier.insert(key(1), block.clone(), 0);
        assert_eq!(tier.get(&key(1)).map(|found| found.block.as_ptr()), Some(block.as_ptr()), "not a copy");
        tier.insert(key(1), Block::copy_from_slice(b"other"), 0);
        assert_eq!(tier.get(&key(1)).as_ref().map(|kept| &*kept.block), Some(&b"other"[..]));
        assert!(tier.remove(&key(1)));
        assert!(!tier.remove(&key(1)));
        assert_eq!((tier.get(&key(1)).is_none(), tier.used_bytes()), (true, 0));
    }

    #[test]
    fn it_never_holds_more_than_its_capacity() {
        for capacity_bytes in [1_u64 << 10, 1 << 20, 100 << 20] {
            let tier = MemoryTier::new(capacity_bytes);
            let block = Block::copy_from_slice(&[0; 1000]);
            for number in 0..3000 {
                tier.insert(key(number), block.clone(), 0);
                assert!(tier.used_bytes() <= capacity_bytes);
            }
            let held = (0..3000).filter(|number| tier.get(&key(*number)).is_some()).count() as u64;
            assert!(held >= (capacity_bytes / 1000).min(3000) / 2, "{held} of {capacity_bytes} bytes");
        }
    }

    #[test]
    fn blocks_that_do_not_fit_are_not_kept() {
        let tier = MemoryTier::new(1 << 20);
        tier.insert(key(1), Block::copy_from_slice(b"small"), 0);
        tier.insert(key(2), Block::from_vec(vec![0; 2 << 20]), 0);
        assert!(tier.get(&key(2)).is_none());
        let roomy = MemoryTier::new(64 << 20);
        roomy.insert(key(3), Block::from_vec(vec![0; crate::MAX_BLOCK_BYTES as usize]), 0);
        assert!(roomy.get(&key(3)).is_some(), "the largest block fits a shard");
    }

    /// A block that was read from a disk lies in whole sectors, which were not counted.
    #[test]
    fn short_blocks_in_whole_sectors_do_not_exceed_the_capacity() {
        let tier = MemoryTier::new(1 << 20);
        for number in 0..3000 {
            let sector = plimsoll::buffer::AlignedBuf::new(4096).unwrap();
            tier.insert(key(number), Block::from_aligned(sector, 0..16), 0);
        }
        let held = (0..3000).filter(|number| tier.get(&key(*number)).is_some()).count();
        assert!((64..=256).contains(&held), "{held} sectors are held, 256 is the capacity");
    }

    #[test]
    fn no_capacity_means_nothing_at_all() {
        let tier = MemoryTier::new(0);
        tier.insert(key(1), Block::copy_from_slice(b""), 0);
        tier.insert(key(2), Block::copy_from_slice(b"abc"), 0);
        assert!(tier.cache.is_none());
        assert_eq!(
            (tier.get(&key(1)).is_none(), tier.get(&key(2)).is_none(), tier.remove(&key(2)), tier.used_bytes()),
            (true, true, false, 0)
        );
    }
}
