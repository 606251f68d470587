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

use super::allocator::{Allocator, Range, disk_index};
use super::bucket::DiskBucket;
use super::slab::{Data, Place, Slab};
use crate::entry::{SlabId, UNIT_BYTES};

/// Slabs that a survey visits at a time.
pub(super) const SURVEYED_AT_ONCE: u32 = 512;

/// Slabs of a disk to be removed that are taken out of their lists at a time.
pub(super) const EVACUATED_AT_ONCE: usize = 512;

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
            // Not if it was emptied since, or is used again, or holds blocks that have no room elsewhere.
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

    /// Chooses `count` more slabs of a disk to be emptied, those with the fewest blocks first and open ones last,
    /// whether or not other slabs have room: the disk needs them.
    pub(crate) fn empty_some(&mut self, disk: u16, count: u32) {
        if count == 0 {
            return;
        }
        let mut begun: Vec<_> = self.begun_slabs(disk).collect();
        begun.sort_unstable();
        for (_, _, slab) in begun.into_iter().take(count as usize) {
            self.put(slab, Place::Evacuating);
        }
    }

    /// Frees the slab of a disk with the fewest blocks at once, and returns it: for a cache that is being opened, whose
    /// caller forgets these blocks.
    pub(crate) fn clear_one(&mut self, disk: u16) -> Option<SlabId> {
        let (_, allocated_units, slab) = self.begun_slabs(disk).min()?;
        self.end_data(slab);
        let disk = disk_index(&self.disks, disk).map(|index| &mut self.disks[index])?;
        disk.evacuating_units -= u64::from(allocated_units);
        disk.allocated_units -= u64::from(allocated_units);
        Some(slab)
    }

    /// Returns the slabs of blocks of a disk that are not being emptied: whether each is open, and its allocated units.
    fn begun_slabs(&self, disk: u16) -> impl Iterator<Item = (bool, u32, SlabId)> + '_ {
        let of_disk = self.ranges.iter().filter(move |range| range.place.disk == disk);
        let numbered = of_disk.flat_map(|range| (range.place.first.0..).map(SlabId).zip(&range.slabs));
        numbered
            .filter_map(|(slab, state)| Some((slab, state.data()?)))
            .filter(|(_, data)| data.place != Place::Evacuating)
            .map(|(slab, data)| (data.place == Place::Open, data.space.counts().allocated, slab))
    }

    /// Returns the slabs of a disk that are being emptied, or will be free after a checkpoint.
    pub(crate) fn slabs_to_be_free(&self, disk: u16) -> u32 {
        let Some(disk) = disk_index(&self.disks, disk).map(|index| &self.disks[index]) else { return 0 };
        let is_freed = |slab: &&SlabId| matches!(self.slab(**slab), Some(Slab::FreedMetadata { .. }));
        let freed = disk.freeing.iter().chain(&disk.leaving).filter(is_freed).count();
        (disk.evacuating.len() + freed) as u32
    }

    /// Marks some of a disk's slabs for evacuation, and stops new blocks. Returns whether there may be more.
    pub(crate) fn evacuate_some(&mut self, disk: u16) -> bool {
        let Some(index) = disk_index(&self.disks, disk) else { return false };
        self.disks[index].is_writable = false;
        let lists = &self.disks[index];
        let open =
            self.shared_open.iter().flatten().filter(|slab| self.find(**slab).is_some_and(|at| at.disk == index));
        let slabs =
            lists.buckets.iter().flat_map(DiskBucket::slabs).chain(lists.unsorted.iter().copied()).chain(open.copied());
        let slabs: Vec<SlabId> = slabs.take(EVACUATED_AT_ONCE).collect();
        slabs.iter().for_each(|slab| self.put(*slab, Place::Evacuating));
        slabs.len() == EVACUATED_AT_ONCE
    }

    /// Returns the slabs being emptied, in order.
    pub(crate) fn evacuating_slabs(&self) -> Vec<SlabId> {
        let mut slabs: Vec<SlabId> = self.disks.iter().flat_map(|disk| &disk.evacuating).copied().collect();
        slabs.sort_unstable();
        slabs
    }

    /// Returns whether a slab is being emptied.
    #[cfg(test)]
    pub(crate) fn is_evacuating(&self, slab: SlabId) -> bool {
        self.slab(slab).and_then(Slab::data).is_some_and(|data| data.place == Place::Evacuating)
    }

    /// Returns the bytes still to be moved out of slabs being emptied, on all disks.
    pub(crate) fn evacuating_bytes(&self) -> u64 {
        self.disks.iter().map(|disk| disk.evacuating_units).sum::<u64>() * u64::from(UNIT_BYTES)
    }
}
