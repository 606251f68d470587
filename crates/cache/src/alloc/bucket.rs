//! Buckets: which slabs a block of a given length may use, and in which order a disk's slabs are opened.
//!
//! # Why
//! Blocks of one size leave holes of exactly that size: a slab of such blocks never fragments. So slabs are divided
//! among buckets by block size, and a block goes to the smallest bucket that takes its padded length.
//!
//! # How it works
//! Up to 16 KiB there is a bucket for every number of sectors (slots, one bit each); above, buckets up to 64 KiB, 256
//! KiB, 1 MiB and the slab's size hold blocks of mixed lengths (ranges). The sizes are those of seed 003's design.
//!
//! Every disk has a [`DiskBucket`] for each: its candidates, in the order in which they are opened ([`Key`]: the
//! emptiest first), and those that have been opened and passed over.
//!
//! # Limits
//! The order is that of the last checkpoint: only freed space changes it.
//!
//! # Example
//! With sectors of 4096 bytes and slabs of 32 MiB there are 8 buckets: 4, 8, 12, 16 KiB of slots and 64 KiB, 256 KiB,
//! 1 MiB, 32 MiB of ranges. A block of 5000 bytes takes 8192 bytes, in the second.

use std::collections::BTreeSet;

use super::geometry::Geometry;
use crate::entry::{MAX_BLOCK_BYTES, SlabId, UNIT_BYTES};

/// Longest block that gets a slot, in bytes; longer blocks share slabs with others of mixed lengths.
const SLOTS_MAX_BYTES: u32 = 16 << 10;

/// Longest block of each bucket of mixed lengths, in bytes; one more bucket goes up to the slab's size.
const RANGES_MAX_BYTES: [u32; 3] = [64 << 10, 256 << 10, 1 << 20];

/// The sizes of all buckets.
#[derive(Debug)]
pub(super) struct Buckets {
    sector_bytes: u32,
    longest_bytes: u32,
    slots: usize,
    max_bytes: Vec<u32>,
}

impl Buckets {
    pub(super) fn new(geometry: Geometry) -> Buckets {
        let Geometry { slab_bytes, sector_bytes } = geometry;
        let mut max_bytes: Vec<u32> = (1..=SLOTS_MAX_BYTES / sector_bytes).map(|count| count * sector_bytes).collect();
        let slots = max_bytes.len();
        max_bytes.extend(RANGES_MAX_BYTES.iter().filter(|bytes| **bytes < slab_bytes));
        max_bytes.push(slab_bytes);
        Buckets { sector_bytes, longest_bytes: slab_bytes.min(MAX_BLOCK_BYTES), slots, max_bytes }
    }

    pub(super) fn count(&self) -> usize {
        self.max_bytes.len()
    }

    /// Returns the length of the longest block of a bucket, padding included.
    pub(super) fn max_bytes(&self, bucket: usize) -> u32 {
        self.max_bytes.get(bucket).copied().unwrap_or(0)
    }

    /// Returns the slot size of a bucket in units, or `None` if its slabs have no slots.
    pub(super) fn slot_units(&self, bucket: usize) -> Option<u32> {
        (bucket < self.slots).then(|| self.max_bytes(bucket) / UNIT_BYTES)
    }

    /// Returns the bucket of a block of `len_bytes`, and the units it takes; `None` if it is empty or too long.
    pub(super) fn of(&self, len_bytes: u32) -> Option<(usize, u32)> {
        if len_bytes == 0 || len_bytes > self.longest_bytes {
            return None;
        }
        let sectors = len_bytes.div_ceil(self.sector_bytes);
        let padded_bytes = sectors * self.sector_bytes;
        let bucket = match sectors as usize {
            sectors if sectors <= self.slots => sectors - 1,
            _ => self.max_bytes.partition_point(|bytes| *bytes < padded_bytes),
        };
        Some((bucket, padded_bytes / UNIT_BYTES))
    }
}

/// Rank of a slab: the emptiest first, then by lot if lots are drawn, then by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) allocated_units: u32,
    pub(super) discriminant: u16,
    pub(super) slab: SlabId,
}

/// The slabs of one bucket on one disk, without those being emptied.
#[derive(Debug, Default)]
pub(super) struct DiskBucket {
    /// To be opened next, by rank.
    pub(super) candidates: BTreeSet<Key>,
    /// Had no room for some block: the longest free range in units, and the slab.
    pub(super) passed: BTreeSet<(u32, SlabId)>,
    /// The open slab, if every disk has its own.
    pub(super) open: Option<SlabId>,
}

impl DiskBucket {
    /// Returns the slabs of all lists.
    pub(super) fn slabs(&self) -> impl Iterator<Item = SlabId> {
        let candidates = self.candidates.iter().map(|key| key.slab);
        candidates.chain(self.passed.iter().map(|(_, slab)| *slab)).chain(self.open)
    }
}
