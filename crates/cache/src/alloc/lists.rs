//! Moves slabs between lists, and frees space at checkpoints.
//!
//! # How it works
//! A slab of blocks is in exactly one list, its [`Place`]; only [`Allocator::put`] moves it. A checkpoint visits only
//! the slabs in which something was freed: freeing units begin to leave, and when the checkpoint is durable, they are
//! free. Then the slab gets a new rank, or is free itself if it is empty.
//!
//! # Example
//! A slab of 128 slots is filled while open, then passed over. 40 of its blocks are freed, a checkpoint begins and
//! finishes: 88 slots are allocated, and it is a candidate with that rank.

use super::allocator::Allocator;
use super::slab::{Data, Place, Slab, Space};
use crate::config::Placement;
use crate::entry::SlabId;

impl Allocator {
    /// Begins a checkpoint: it will free what has been freed until now. A checkpoint under way is aborted first.
    pub(crate) fn begin_checkpoint(&mut self) {
        self.abort_checkpoint();
        self.leaving = std::mem::take(&mut self.freeing);
        for slab in self.leaving.clone() {
            match self.slab_mut(slab) {
                Some(Slab::Data(data)) => data.space.begin_checkpoint(),
                Some(Slab::FreedMetadata { is_leaving }) => *is_leaving = true,
                _ => {}
            }
        }
    }

    /// Aborts the checkpoint: its space waits for the next one.
    pub(crate) fn abort_checkpoint(&mut self) {
        for slab in std::mem::take(&mut self.leaving) {
            match self.slab_mut(slab) {
                Some(Slab::Data(data)) => data.space.abort_checkpoint(),
                Some(Slab::FreedMetadata { is_leaving }) => *is_leaving = false,
                _ => {}
            }
            self.freeing.insert(slab);
        }
    }

    /// Finishes a durable checkpoint: its space can be allocated again. Returns the slabs that are free now.
    pub(crate) fn finish_checkpoint(&mut self) -> Vec<SlabId> {
        let mut emptied = Vec::new();
        for slab in std::mem::take(&mut self.leaving) {
            let Some(at) = self.find(slab) else { continue };
            let slab_units = u64::from(self.slab_units());
            let disk = &mut self.disks[at.disk];
            let is_empty = match &mut self.ranges[at.range].slabs[at.slab] {
                Slab::Data(data) => {
                    let units = u64::from(data.space.finish_checkpoint());
                    disk.freeing_units -= units;
                    disk.free_units += if data.place == Place::Evacuating { 0 } else { units };
                    data.space.is_empty()
                }
                Slab::FreedMetadata { is_leaving: true } => {
                    disk.freeing_units -= slab_units;
                    true
                }
                _ => false,
            };

            match self.slab(slab).and_then(Slab::data).map(|data| data.place) {
                _ if is_empty => {
                    self.end_data(slab);
                    emptied.push(slab);
                }
                Some(Place::Candidate(_) | Place::Passed(_) | Place::Unsorted) => self.rank(slab),
                _ => {}
            }
        }
        emptied
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
        if let Slab::Free(key) =
            std::mem::replace(&mut self.ranges[at.range].slabs[at.slab], Slab::Data(Box::new(data)))
        {
            disk.free.remove(&key);
        }
        self.put(slab, place);
    }

    /// Turns an empty slab into a free one.
    pub(super) fn end_data(&mut self, slab: SlabId) {
        self.put(slab, Place::Evacuating);
        let key = self.key(slab, 0);
        let Some(at) = self.find(slab) else { return };
        self.evacuating.remove(&slab);
        self.ranges[at.range].slabs[at.slab] = Slab::Free(key);
        self.disks[at.disk].free.insert(key);
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
        let free_units = u64::from(data.space.counts().free);
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

        match old {
            Place::Unsorted => _ = disk.unsorted.remove(&slab),
            Place::Candidate(key) => _ = bucket.candidates.remove(&key),
            Place::Passed(units) => _ = bucket.passed.remove(&(units, slab)),
            Place::Open => *open = None,
            Place::Evacuating => _ = self.evacuating.remove(&slab),
        }

        match place {
            Place::Unsorted => _ = disk.unsorted.insert(slab),
            Place::Candidate(key) => _ = bucket.candidates.insert(key),
            Place::Passed(units) => _ = bucket.passed.insert((units, slab)),
            Place::Open => *open = Some(slab),
            Place::Evacuating => _ = self.evacuating.insert(slab),
        }
    }
}
