//! Moves slabs between lists, and frees space at checkpoints.
//!
//! # How it works
//! A slab of blocks is in exactly one list, its [`Place`]; only [`Allocator::put`] moves it. A checkpoint visits only
//! the slabs in which something was freed, and those only when it is durable: then the space that left with it is free,
//! and the slab gets a new rank, or is free itself if it is empty. That is done in parts, because inserts wait for the
//! allocator: with 10^8 blocks it would take 14 to 27 ms.
//!
//! # Example
//! A slab of 128 slots is filled while open, then passed over. 40 of its blocks are freed, a checkpoint begins and
//! finishes: 88 slots are allocated, and it is a candidate with that rank.

use super::allocator::Allocator;
use super::slab::{Data, Place, Slab, Space};
use crate::config::Placement;
use crate::entry::SlabId;

/// Parts of maps that a finished checkpoint visits at a time: those of 200 slabs of 32 MiB with slots of 8 KiB, which
/// take some 200 us, because they are not in the CPU's cache.
pub(super) const PARTS_AT_ONCE: usize = 4000;

/// Parts that a slab counts as, besides those of its map: it is found, and listed again.
pub(super) const PARTS_OF_SLAB: usize = 16;

impl Allocator {
    /// Begins a checkpoint, which will free the space that is freeing now. A checkpoint under way is aborted first.
    pub(crate) fn begin_checkpoint(&mut self) {
        while self.abort_some() {}
        for disk in &mut self.disks {
            disk.leaving = std::mem::take(&mut disk.freeing);
        }
        self.begun += 1;
    }

    /// Aborts a part of the checkpoint: its space waits for the next one. Returns whether there is more.
    pub(crate) fn abort_some(&mut self) -> bool {
        let begun = self.begun;
        let mut parts = 0;
        while parts < PARTS_AT_ONCE {
            let Some((disk, slab)) = self.pop_leaving() else { return false };
            parts += PARTS_OF_SLAB;
            match self.slab_mut(slab) {
                Some(Slab::Data(data)) => {
                    data.space.follow(begun);
                    parts += data.space.parts_leaving();
                    data.space.abort_checkpoint();
                }
                Some(Slab::FreedMetadata { begun: since }) => *since = begun,
                _ => {}
            }
            self.disks[disk].freeing.insert(slab);
        }
        true
    }

    /// Takes a slab with leaving units, with the index of its disk.
    fn pop_leaving(&mut self) -> Option<(usize, SlabId)> {
        self.disks.iter_mut().enumerate().find_map(|(index, disk)| Some((index, disk.leaving.pop_first()?)))
    }

    /// Frees a part of the space that left with a durable checkpoint: it can be allocated again. Adds the slabs that
    /// are free now to `emptied`. Returns whether there is more.
    pub(crate) fn finish_some(&mut self, emptied: &mut Vec<SlabId>) -> bool {
        let mut parts = 0;
        while parts < PARTS_AT_ONCE {
            let Some((_, slab)) = self.pop_leaving() else { return false };
            parts += self.finish(slab, emptied);
        }
        true
    }

    /// Finishes the checkpoint in one slab. Returns the parts visited.
    fn finish(&mut self, slab: SlabId, emptied: &mut Vec<SlabId>) -> usize {
        let Some(at) = self.find(slab) else { return 1 };
        let slab_units = u64::from(self.slab_units());
        let disk = &mut self.disks[at.disk];
        let mut parts = PARTS_OF_SLAB;
        let is_empty = match &mut self.ranges[at.range].slabs[at.slab] {
            Slab::Data(data) => {
                data.space.follow(self.begun);
                parts += data.space.parts_leaving();
                let units = u64::from(data.space.finish_checkpoint());
                disk.freeing_units -= units;
                disk.free_units += if data.place == Place::Evacuating { 0 } else { units };
                data.space.is_empty()
            }
            Slab::FreedMetadata { .. } => {
                disk.freeing_units -= slab_units;
                true
            }
            Slab::Free(_) | Slab::Metadata => false,
        };

        match self.slab(slab).and_then(Slab::data).map(|data| data.place) {
            _ if is_empty => {
                self.end_data(slab);
                emptied.push(slab);
            }
            Some(Place::Candidate(_) | Place::Passed(_) | Place::Unsorted) => self.rank(slab),
            _ => {}
        }
        parts
    }

    /// Turns a free slab into one of a bucket.
    pub(super) fn begin_data(&mut self, slab: SlabId, bucket: usize, place: Place) {
        let Some(at) = self.find(slab) else { return };
        let slab_units = self.slab_units();
        let space = match self.buckets.slot_units(bucket) {
            Some(slot_units) => Space::slots(slab_units, slot_units),
            None => Space::ranges(slab_units),
        };
        let disk = &mut self.disks[at.disk];
        // An evacuating slab is in no list; `put` moves it on from there.
        let data = Data { bucket, place: Place::Evacuating, space };
        let before = std::mem::replace(&mut self.ranges[at.range].slabs[at.slab], Slab::Data(Box::new(data)));
        let was_free = matches!(before, Slab::Free(key) if disk.free.remove(&key));
        debug_assert!(was_free, "slab {slab:?} is in use: {before:?}");

        self.put(slab, place);
    }

    /// Turns an empty slab into a free one.
    pub(super) fn end_data(&mut self, slab: SlabId) {
        self.put(slab, Place::Evacuating);
        let key = self.key(slab, 0);
        let Some(at) = self.find(slab) else { return };
        self.ranges[at.range].slabs[at.slab] = Slab::Free(key);
        let disk = &mut self.disks[at.disk];
        disk.evacuating.remove(&slab);
        disk.free.insert(key);
    }

    /// Makes a slab a candidate to be opened, ranked by how full it is now.
    pub(super) fn rank(&mut self, slab: SlabId) {
        let allocated = self.slab(slab).and_then(Slab::data).map(|data| {
            let counts = data.space.counts();
            counts.allocated + counts.freeing + counts.leaving
        });
        if let Some(units) = allocated {
            let key = self.key(slab, units);
            self.put(slab, Place::Candidate(key));
        }
    }

    /// Lists a slab as passed over: it had no room for some block.
    pub(super) fn pass(&mut self, slab: SlabId) {
        let longest = self.slab(slab).and_then(Slab::data).map(|data| data.space.longest_free_units());
        if let Some(units) = longest {
            self.put(slab, Place::Passed(units));
        }
    }

    /// Moves a slab of blocks from its list to another; an evacuating slab is in none.
    pub(super) fn put(&mut self, slab: SlabId, place: Place) {
        let Some(at) = self.find(slab) else { return };
        let Slab::Data(data) = &mut self.ranges[at.range].slabs[at.slab] else { return };
        let old = std::mem::replace(&mut data.place, place);
        let disk = &mut self.disks[at.disk];
        let counts = data.space.counts();
        let (free_units, allocated_units) = (u64::from(counts.free), u64::from(counts.allocated));
        match (old == Place::Evacuating, place == Place::Evacuating) {
            (true, false) => disk.free_units += free_units,
            (false, true) => disk.free_units -= free_units,
            _ => {}
        }

        let bucket = &mut disk.buckets[data.bucket];
        let open = match self.placement {
            Placement::Load => &mut bucket.open,
            Placement::Seed | Placement::Discriminant => &mut self.shared_open[data.bucket],
        };

        let was_listed = match old {
            // Those being ranked have been taken out together.
            Place::Unsorted => {
                disk.unsorted.remove(&slab);
                true
            }
            Place::Candidate(key) => bucket.candidates.remove(&key),
            Place::Passed(units) => bucket.passed.remove(&(units, slab)),
            Place::Open => open.take() == Some(slab),
            Place::Evacuating => {
                disk.evacuating.remove(&slab);
                disk.evacuating_units -= allocated_units;
                true
            }
        };
        debug_assert!(was_listed, "slab {slab:?} is not where it says: {old:?}");

        match place {
            Place::Unsorted => _ = disk.unsorted.insert(slab),
            Place::Candidate(key) => _ = bucket.candidates.insert(key),
            Place::Passed(units) => _ = bucket.passed.insert((units, slab)),
            Place::Open => *open = Some(slab),
            Place::Evacuating => {
                disk.evacuating.insert(slab);
                disk.evacuating_units += allocated_units;
            }
        }
    }
}
