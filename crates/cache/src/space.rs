//! Free space: targets, reserves, and eviction.
//!
//! # Why
//! An insert that finds no space is dropped, so space must be freed in advance. And a log or snapshot must never find
//! its disk full of blocks.
//!
//! # How it works
//! `target_free_blocks_pct` of the capacity is kept free, counting the space that the next checkpoint will free. A
//! pass over the index evicts entries older than a cutoff, and continues where the last one stopped.
//!
//! Each disk keeps slabs in reserve for its metadata. With fewer free than it needs, a snapshot cuts its log
//! (`snapshot`), or, if that would free nothing, slabs are emptied; with one or none, the disk takes no blocks until
//! the next checkpoint.
//!
//! # Limits
//! Evicted space can be reused only after the next checkpoint.
//!
//! # Example
//! Of 1 TiB, 5 % should be free, and 4 % are: 1.5 % are evicted, from the oldest 5 %.

use std::sync::atomic::Ordering::Relaxed;

use crate::disk::CacheDisk;
use crate::engine::{Engine, add};
use crate::entry::Entry;
use crate::index::{Cursor, PASS_ENTRIES, Verdict};
use crate::key::KeyHash;
use crate::race::yield_now;
use crate::sync::{lock, read};

/// Space that eviction frees beyond the target, as a part of the capacity.
const EVICTION_BATCH: f64 = 0.005;

/// The oldest part of the capacity, from which eviction takes its blocks: enough that it visits only about 20 entries
/// for each one evicted, even if it needs to free little. It stops once it has freed enough.
const EVICTION_PASS: f64 = 0.05;

/// Part of the capacity that must be free beyond the target before a full cache counts as one that fills: more than a
/// pass of eviction frees. A disk was added, or much was removed.
const NOT_FULL: f64 = 0.1;

/// Growth of a log while a snapshot and a checkpoint are written: 25,000 inserts, each with an eviction.
const LOG_GROWTH_BYTES: u64 = 1 << 20;

/// Free slabs that each disk keeps, however small: for its log, and for a snapshot.
const LEAST_RESERVE_SLABS: u32 = 2;

/// Slabs of the smallest disk that can spare three.
const SLABS_OF_SMALL_DISK: u32 = 8;

/// Part of the free-space target that must be usable at once; with less, a checkpoint is worth making early.
const LOW_SPACE: f64 = 0.4;

/// Slabs that must be free on a disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlabsNeeded {
    /// For its next snapshot, and the log that goes on beside it.
    pub(crate) for_snapshot: u32,
    /// These, and the log's growth until the checkpoint that frees the part before the snapshot. With fewer, a snapshot
    /// is due however short the log is.
    pub(crate) urgent: u32,
    /// These, and the slabs that a log takes before it counts as long.
    pub(crate) in_all: u32,
}

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

    /// Reserves free slabs of each disk for its log and its next snapshot. Blocks never take them; if they have,
    /// because the index has grown since, the slabs with the fewest blocks are emptied.
    pub(crate) fn set_reserves(&self) {
        for disk in self.all_disks().iter().filter(|disk| disk.takes_metadata()) {
            let number = disk.identity.number;
            let needed = self.slabs_needed(number);
            let (log_slabs, is_under_way) = {
                let log = lock(&disk.log);
                (log.replay_slabs() as u32, log.has_snapshot_under_way())
            };
            let least = match log_slabs {
                _ if is_under_way => 0,
                1 => needed.in_all,
                // A snapshot will free the others.
                _ => needed.for_snapshot,
            };
            let mut alloc = lock(&self.alloc);
            // The log has had its part of them.
            let left = needed.in_all.saturating_sub(log_slabs.saturating_sub(1));
            alloc.set_reserve(number, left.max(needed.for_snapshot));
            let coming = alloc.free_slabs(number) + alloc.slabs_to_be_free(number);
            alloc.empty_some(number, least.saturating_sub(coming));
        }
    }

    /// Returns the slabs that must be free on a disk for its metadata, if its log has one.
    pub(crate) fn slabs_needed(&self, disk: u16) -> SlabsNeeded {
        let slab_bytes = u64::from(self.identity.geometry.slab_bytes);
        let slabs_of = |bytes: u64| bytes.div_ceil(slab_bytes) as u32;
        let slabs = lock(&self.alloc).slabs(disk);
        // A disk of few slabs still has one for the log that the next opening begins.
        let most = (slabs / 4).max(LEAST_RESERVE_SLABS + u32::from(slabs >= SLABS_OF_SMALL_DISK));
        let for_snapshot = (slabs_of(self.snapshot_bytes(disk)) + 1).clamp(LEAST_RESERVE_SLABS, most);
        let urgent = for_snapshot + slabs_of(LOG_GROWTH_BYTES);
        let in_all = for_snapshot + slabs_of(self.long_log_bytes(disk) + LOG_GROWTH_BYTES);
        SlabsNeeded { for_snapshot, urgent: urgent.min(most), in_all: in_all.min(most) }
    }

    /// Keeps blocks from a disk while its log needs the free slabs until the next checkpoint.
    pub(crate) fn spare_log(&self, disk: &CacheDisk) {
        let number = disk.identity.number;
        let mut alloc = lock(&self.alloc);
        let is_tight = alloc.free_slabs(number) < LEAST_RESERVE_SLABS;
        alloc.set_tight_log(number, is_tight);
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
            self.upkeep.intake.is_full.store(short > 0, Relaxed);
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
        (self.index.space_bytes() as f64 * part) as u64
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
