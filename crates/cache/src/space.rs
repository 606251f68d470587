//! Free space: targets, reserves, and eviction.
//!
//! # Why
//! An insert that finds no space is dropped, so space must be freed in advance. And a log or snapshot must never find
//! its disk full of blocks.
//!
//! # How it works
//! `target_free_blocks_pct` of the capacity is kept free, counting the space that the next checkpoint will free. A
//! pass over the index evicts entries older than a cutoff, and continues where the last one stopped. Each disk keeps
//! slabs in reserve for its metadata.
//!
//! # Limits
//! Evicted space can be reused only after the next checkpoint.
//!
//! # Example
//! 1 TiB of which 5 % should be free and 4 % are: 1.5 % are evicted, from the oldest 5 %.

use crate::engine::{Engine, add};
use crate::entry::Entry;
use crate::format::MAX_RECORD_BYTES;
use crate::index::{Cursor, PASS_ENTRIES, Verdict};
use crate::key::KeyHash;
use crate::race::yield_now;
use crate::sync::{lock, read};

/// What eviction frees beyond the target, as a part of the capacity.
const EVICTION_BATCH: f64 = 0.005;

/// The oldest part of the capacity, from which eviction takes its blocks: enough that it visits only about 20 entries
/// for each one evicted, even if it needs to free little. It stops once it has freed enough.
const EVICTION_PASS: f64 = 0.05;

/// Part of the capacity that must be free beyond the target before a full cache counts as one that fills: more than a pass
/// of eviction frees. A disk was added, or much was removed.
const NOT_FULL: f64 = 0.1;

/// Part of the free-space target that must be usable at once; with less, a checkpoint is worth making early.
const LOW_SPACE: f64 = 0.4;

impl Engine {
    /// Returns the bytes that should be free on disks that take blocks.
    pub(crate) fn target_free_bytes(&self) -> u64 {
        (lock(&self.alloc).writable_bytes() as f64 * self.config.target_free_blocks_pct / 100.0) as u64
    }

    /// Returns whether free space, including what the next checkpoint frees, is below the target.
    pub(crate) fn is_below_target(&self) -> bool {
        let target = self.target_free_bytes();
        let alloc = lock(&self.alloc);
        alloc.free_bytes() + alloc.freeing_bytes() < target
    }

    pub(crate) fn is_short_of_space(&self, was_refused: bool) -> bool {
        let target = self.target_free_bytes() as f64;
        let alloc = lock(&self.alloc);
        let (free, freeing) = (alloc.free_bytes() as f64, alloc.freeing_bytes());
        // A checkpoint is worth it only if it frees something.
        freeing as f64 >= target * 0.1 && (was_refused || free < target * LOW_SPACE)
    }

    /// Reserves free slabs of each disk for logs and snapshots; blocks never take them.
    pub(crate) fn set_reserves(&self) {
        let blocks = self.index.blocks();
        let slab_bytes = u64::from(self.identity.geometry.slab_bytes);
        let disks = self.all_disks();
        let mut alloc = lock(&self.alloc);
        let capacity = alloc.capacity_bytes().max(1);
        for disk in &disks {
            let number = disk.identity.number;
            let part = alloc.slabs(number) as f64 * slab_bytes as f64 / capacity as f64;
            // A snapshot, the next one, and a log as long as both, less the slabs already taken.
            let wanted_bytes = blocks as f64 * part * 4.0 * MAX_RECORD_BYTES as f64;
            let wanted = (wanted_bytes / slab_bytes as f64).ceil() as u32 + 3;
            let most = alloc.slabs(number) / 4;
            let reserve = wanted.saturating_sub(alloc.metadata_slabs(number)).clamp(2, most.max(2));
            alloc.set_reserve(number, reserve);
        }
    }

    /// Evicts the oldest blocks until the free-space target is met.
    pub(crate) async fn evict(&self, cursor: &mut Cursor) {
        let target = self.target_free_bytes();
        let (free, freeing, capacity) = {
            let alloc = lock(&self.alloc);
            (alloc.free_bytes(), alloc.freeing_bytes(), alloc.capacity_bytes())
        };
        let short = target.saturating_sub(free + freeing);
        if short > 0 || free + freeing > target + (capacity as f64 * NOT_FULL) as u64 {
            self.upkeep.intake.set_full(short > 0);
        }
        let over = self.bytes_over_index_limit();
        if short == 0 && over == 0 {
            return;
        }

        let wanted = short.max(over) + (capacity as f64 * EVICTION_BATCH) as u64;
        let age = self.index.cutoff_age(wanted.max((capacity as f64 * EVICTION_PASS) as u64));
        let verdict = if over > 0 { Verdict::Drop } else { Verdict::Evict };
        let (mut freed, mut passes) = (0, 0);
        while freed < wanted && passes < 2 {
            freed += self.sweep_out(cursor, verdict, |engine, _, entry| engine.index.age(entry) >= age);
            if cursor.is_done() {
                *cursor = Cursor::default();
                passes += 1;
            }
            yield_now().await;
        }
    }

    /// Returns the bytes of blocks to evict so that the index fits its limit.
    fn bytes_over_index_limit(&self) -> u64 {
        let Some(limit) = self.config.index_bytes else { return 0 };
        let has = self.index.memory_bytes();
        if has <= limit {
            return 0;
        }
        let part = (has - limit) as f64 / has as f64;
        (self.index.block_bytes() as f64 * part) as u64
    }

    /// Evicts those of the next entries that match `is_out`. Returns the bytes freed.
    fn sweep_out(
        &self,
        cursor: &mut Cursor,
        verdict: Verdict,
        is_out: impl Fn(&Engine, &KeyHash, &Entry) -> bool,
    ) -> u64 {
        let mut gone = Vec::new();
        let gate = read(&self.gate);
        self.index.sweep(cursor, PASS_ENTRIES, |hash, entry| {
            if !is_out(self, &hash, entry) {
                return Verdict::Keep;
            }
            self.note_remove(&hash, entry);
            gone.push(entry.extent);
            verdict
        });

        let mut alloc = lock(&self.alloc);
        gone.iter().for_each(|extent| alloc.free(extent));
        drop(alloc);
        drop(gate);

        let sector_bytes = self.identity.geometry.sector_bytes;
        let bytes = gone.iter().map(|extent| u64::from(extent.padded_bytes(sector_bytes))).sum();
        add(&self.counters.evictions, gone.len() as u64);
        add(&self.counters.evicted_bytes, bytes);
        bytes
    }
}
