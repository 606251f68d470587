//! Chooses the slabs to empty, if too few are free or a disk is to be removed.
//!
//! # Why
//! A slab belongs to blocks of one size until its last block is removed. When blocks of other sizes come, there may be
//! much free space and no free slab.
//!
//! # How it works
//! The slabs with the least data are taken out of their buckets, all before anything is moved, so that no block is
//! moved twice. The caller moves their blocks ([`Allocator::allocate_elsewhere`], a write, the index,
//! [`Allocator::free`]). When the checkpoint after the last of these is durable, the slab is free. An open slab is
//! taken only if no other will do: it is being filled.
//!
//! # Limits
//! A slab is chosen only if its bucket has room for its blocks elsewhere, by sums: a large block may still find no
//! range that is long enough.
//!
//! # Example
//! Ten slabs of 8 KiB blocks, each 80 % full: two are chosen, since their contents fill the other eight.

use std::collections::BTreeSet;

use super::allocator::{Allocator, Range};
use super::slab::{Data, Place, Slab};
use crate::entry::{SlabId, UNIT_BYTES};

/// Slabs that a survey visits at a time.
pub(super) const SURVEYED_AT_ONCE: u32 = 512;

/// The slabs that could be emptied. Made in parts, because inserts wait for the allocator meanwhile.
#[derive(Default)]
pub(crate) struct Survey {
    /// Number of the first slab that was not visited.
    pub(super) next: u32,
    /// Free units by bucket.
    room_units: Vec<u64>,
    /// The emptiest first, open ones last, with their buckets and the units that they give back to others.
    begun: BTreeSet<((bool, u32, SlabId), usize, u64)>,
}

impl Allocator {
    /// Visits some more slabs. Returns whether there are others.
    pub(crate) fn survey(&self, survey: &mut Survey) -> bool {
        survey.room_units.resize(self.buckets.count(), 0);
        let end = |range: &Range| range.place.first.0 + range.place.count;
        let at = self.ranges.partition_point(|range| end(range) <= survey.next);
        let Some(range) = self.ranges.get(at) else { return false };

        let is_writable = self.disks.iter().any(|disk| disk.number == range.place.disk && disk.is_writable);
        let first = survey.next.max(range.place.first.0);
        survey.next = end(range).min(first + SURVEYED_AT_ONCE);
        let skipped = (first - range.place.first.0) as usize;
        for (slab, number) in range.slabs.iter().skip(skipped).zip(first..survey.next).filter(|_| is_writable) {
            if let Some(data) = slab.data().filter(|data| data.place != Place::Evacuating) {
                let counts = data.space.counts();
                survey.room_units[data.bucket] += u64::from(counts.free);
                let rank = (data.place == Place::Open, counts.allocated, SlabId(number));
                survey.begun.insert((rank, data.bucket, u64::from(counts.free + counts.allocated)));
            }
        }
        true
    }

    /// Chooses at most `want_free_slabs` more slabs to empty, the emptiest first. They take no blocks from now on.
    /// Slabs chosen earlier and not yet empty do not count.
    pub(crate) fn choose_victims(&mut self, survey: &mut Survey, want_free_slabs: u32) -> Vec<SlabId> {
        let mut victims = Vec::new();
        for ((_, _, slab), bucket, taken_units) in survey.begun.iter().copied() {
            if victims.len() >= want_free_slabs as usize {
                break;
            }
            let room = &mut survey.room_units[bucket];
            // Not if it was emptied since, or begun anew, or has been filled with what has room nowhere else.
            let is_wanted = |data: &&Data| {
                let counts = data.space.counts();
                let has_room = counts.allocated == 0 || u64::from(counts.free + counts.allocated) <= *room;
                data.bucket == bucket && data.place != Place::Evacuating && has_room
            };
            if self.slab(slab).and_then(Slab::data).filter(is_wanted).is_some() {
                *room = room.saturating_sub(taken_units);
                self.put(slab, Place::Evacuating);
                victims.push(slab);
            }
        }
        victims
    }

    /// Empties a disk: marks its slabs for evacuation and stops new blocks. Returns the bytes to move.
    pub(crate) fn evacuate_disk(&mut self, disk: u16) -> u64 {
        self.set_writable(disk, false);
        let mut slabs = Vec::new();
        for range in self.ranges.iter().filter(|range| range.place.disk == disk) {
            let numbered = range.slabs.iter().zip(range.place.first.0..);
            slabs.extend(numbered.filter(|(slab, _)| slab.data().is_some()).map(|(_, number)| SlabId(number)));
        }
        for slab in slabs {
            self.put(slab, Place::Evacuating);
        }
        self.allocated_bytes(disk)
    }

    /// Returns the slabs being emptied, in order.
    pub(crate) fn evacuating_slabs(&self) -> Vec<SlabId> {
        self.evacuating.iter().copied().collect()
    }

    /// Returns whether a slab is being emptied.
    #[cfg(test)]
    pub(crate) fn is_evacuating(&self, slab: SlabId) -> bool {
        self.slab(slab).and_then(Slab::data).is_some_and(|data| data.place == Place::Evacuating)
    }

    /// Returns the bytes still to be moved out of slabs being emptied, on all disks.
    pub(crate) fn evacuating_bytes(&self) -> u64 {
        self.evacuating_units * u64::from(UNIT_BYTES)
    }

    /// Adds up what is allocated in slabs being emptied.
    pub(super) fn units_evacuating(&self) -> u64 {
        let evacuating = self.evacuating.iter().filter_map(|slab| self.slab(*slab)).filter_map(Slab::data);
        evacuating.map(|data| u64::from(data.space.counts().allocated)).sum()
    }
}
