//! The allocator's state: disks, their slabs, and the state of each slab as a whole.
//!
//! # How it works
//! Slabs lie in ranges, which are found by number. Each disk has its free slabs, its lists by bucket, and running
//! sums. Other modules move slabs of blocks between lists (`lists`), find places (`search`), empty slabs
//! (`evacuation`) and report (`report`).
//!
//! # Example
//! A disk of 100 slabs: 100 keys in `free`. Its log takes one, so `metadata_slabs` is 1; `free_metadata_slab` counts
//! it as freeing until a checkpoint is durable.

use std::collections::BTreeSet;

use super::bucket::{Buckets, DiskBucket, Key};
use super::geometry::{ClaimError, Geometry, SlabRange};
use super::placement::{SmallRng, VirtualClock};
use super::slab::{Place, Slab};
use crate::config::Placement;
use crate::entry::{Extent, MAX_SLAB_BYTES, MIN_SLAB_BYTES, SlabId, UNIT_BYTES};

/// A disk: its lists, and sums over its slabs, in units.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) number: u16,
    pub(super) is_writable: bool,
    /// The log needs the free slabs until the next checkpoint.
    pub(super) has_tight_log: bool,
    pub(super) reserve_slabs: u32,
    pub(super) slabs: u32,
    pub(super) metadata_slabs: u32,
    /// Units that are freeing or leaving, those of freed metadata included.
    pub(super) freeing_units: u64,
    pub(super) allocated_units: u64,
    /// Free units in slabs of blocks, without those that are being emptied.
    pub(super) free_units: u64,
    pub(super) free: BTreeSet<Key>,
    pub(super) buckets: Vec<DiskBucket>,
    pub(super) unsorted: BTreeSet<SlabId>,
    /// Slabs with freeing units, and slabs with leaving units.
    pub(super) freeing: BTreeSet<SlabId>,
    pub(super) leaving: BTreeSet<SlabId>,
    /// Slabs being emptied, and the units allocated in them.
    pub(super) evacuating: BTreeSet<SlabId>,
    pub(super) evacuating_units: u64,
}

impl Disk {
    /// Returns whether new blocks may go to the disk.
    pub(super) fn takes_blocks(&self) -> bool {
        self.is_writable && !self.has_tight_log
    }
}

/// A [`SlabRange`] and its slabs.
#[derive(Debug)]
pub(super) struct Range {
    pub(super) place: SlabRange,
    pub(super) slabs: Vec<Slab>,
}

/// The allocator's state of a removed disk. Freeing that memory takes milliseconds: without the allocator's lock, and
/// in parts ([`Removed::drop_some`]).
#[must_use]
pub(crate) struct Removed {
    ranges: Vec<Range>,
    _disk: Option<Disk>,
}

/// Slabs whose memory [`Removed::drop_some`] frees at a time.
pub(super) const DROPPED_AT_ONCE: usize = 512;

impl Removed {
    /// Frees some of the memory. Returns whether there is more.
    pub(crate) fn drop_some(&mut self) -> bool {
        let Some(range) = self.ranges.last_mut() else { return false };
        range.slabs.truncate(range.slabs.len().saturating_sub(DROPPED_AT_ONCE));
        if range.slabs.is_empty() {
            self.ranges.pop();
        }
        true
    }
}

/// The place of a slab in the allocator's lists, as indices.
#[derive(Clone, Copy)]
pub(super) struct At {
    pub(super) range: usize,
    pub(super) slab: usize,
    pub(super) disk: usize,
}

/// All slabs of a cache.
#[derive(Debug)]
pub(crate) struct Allocator {
    pub(super) geometry: Geometry,
    pub(super) placement: Placement,
    pub(super) buckets: Buckets,
    /// By first slab.
    pub(super) ranges: Vec<Range>,
    /// By disk number.
    pub(super) disks: Vec<Disk>,
    /// Open slabs by bucket, if all disks share one lane.
    pub(super) shared_open: Vec<Option<SlabId>>,
    pub(super) clock: VirtualClock,
    pub(super) rng: SmallRng,
    /// Number of the checkpoint that began last.
    pub(super) begun: u64,
    /// Frees of space that was not allocated: a defect of the caller.
    pub(super) wrong_frees: u64,
}

impl Allocator {
    /// Returns an allocator without disks. `seed` is the seed of the lots of [`Placement::Discriminant`].
    pub(crate) fn new(geometry: Geometry, placement: Placement, seed: u64) -> Allocator {
        let power = |bytes: u32, least: u32, most: u32| bytes.clamp(least, most).next_power_of_two();
        let geometry = Geometry {
            slab_bytes: power(geometry.slab_bytes, MIN_SLAB_BYTES, MAX_SLAB_BYTES),
            sector_bytes: power(geometry.sector_bytes, UNIT_BYTES, 16 << 10),
        };
        let buckets = Buckets::new(geometry);

        Allocator {
            shared_open: vec![None; buckets.count()],
            geometry,
            placement,
            buckets,
            ranges: Vec::new(),
            disks: Vec::new(),
            clock: VirtualClock::default(),
            rng: SmallRng(seed),
            begun: 0,
            wrong_frees: 0,
        }
    }

    /// Adds slabs of a new disk, or more slabs of a known one. All are free, and used at once.
    ///
    /// # Errors
    /// [`ClaimError::Overlap`] if a slab is known already, [`ClaimError::OutsideOfDisk`] if slab numbers run out.
    pub(crate) fn add_range(&mut self, range: SlabRange) -> Result<(), ClaimError> {
        let end = u64::from(range.first.0) + u64::from(range.count);
        if end > u64::from(SlabId::END) {
            return Err(ClaimError::OutsideOfDisk);
        }
        let at = self.ranges.partition_point(|other| other.place.first < range.first);
        let before_end = at.checked_sub(1).and_then(|before| self.ranges.get(before));
        let before_end = before_end.map_or(0, |before| before.place.first.0 + before.place.count);
        let after = self.ranges.get(at).map_or(SlabId::END, |after| after.place.first.0);
        if range.first.0 < before_end || u64::from(after) < end {
            return Err(ClaimError::Overlap);
        }

        if range.count == 0 {
            return Ok(());
        }

        let keys: Vec<Key> =
            (range.first.0..range.first.0 + range.count).map(|number| self.key(SlabId(number), 0)).collect();
        let slabs = keys.iter().map(|key| Slab::Free(*key)).collect();
        let disk = self.disk_or_new(range.disk);
        disk.slabs += range.count;
        disk.free.extend(keys);
        self.ranges.insert(at, Range { place: range, slabs });
        Ok(())
    }

    fn disk_or_new(&mut self, number: u16) -> &mut Disk {
        let index = self.disks.partition_point(|disk| disk.number < number);
        if self.disks.get(index).is_none_or(|disk| disk.number != number) {
            let mut buckets = Vec::new();
            buckets.resize_with(self.buckets.count(), DiskBucket::default);
            let disk = Disk {
                number,
                is_writable: true,
                has_tight_log: false,
                reserve_slabs: 0,
                slabs: 0,
                metadata_slabs: 0,
                freeing_units: 0,
                allocated_units: 0,
                free_units: 0,
                free: BTreeSet::new(),
                buckets,
                unsorted: BTreeSet::new(),
                freeing: BTreeSet::new(),
                leaving: BTreeSet::new(),
                evacuating: BTreeSet::new(),
                evacuating_units: 0,
            };
            self.disks.insert(index, disk);
        }
        &mut self.disks[index]
    }

    /// Forgets all slabs of a disk, and returns their state. Later frees of its space do nothing.
    pub(crate) fn remove_disk(&mut self, disk: u16) -> Removed {
        let ranges: Vec<Range> = self.ranges.extract_if(.., |range| range.place.disk == disk).collect();
        for place in ranges.iter().map(|range| range.place) {
            let is_its = |slab: &SlabId| (place.first.0..place.first.0 + place.count).contains(&slab.0);
            self.shared_open.iter_mut().for_each(|open| _ = open.take_if(|slab| is_its(slab)));
        }
        let disk = disk_index(&self.disks, disk).map(|index| self.disks.remove(index));
        Removed { ranges, _disk: disk }
    }

    /// Sets whether a disk takes new blocks; at first it does. Logs and snapshots get slabs regardless.
    pub(crate) fn set_writable(&mut self, disk: u16, yes: bool) {
        if let Some(disk) = self.disk_mut(disk) {
            disk.is_writable = yes;
        }
    }

    /// Sets whether a disk takes no new blocks until the next checkpoint, because its log needs the free slabs.
    pub(crate) fn set_tight_log(&mut self, disk: u16, yes: bool) {
        if let Some(disk) = self.disk_mut(disk) {
            disk.has_tight_log = yes;
        }
    }

    /// Sets how many free slabs of a disk blocks never take; 0 at first.
    pub(crate) fn set_reserve(&mut self, disk: u16, slabs: u32) {
        if let Some(disk) = self.disk_mut(disk) {
            disk.reserve_slabs = slabs;
        }
    }

    /// Returns the disk of a slab, and the slab's offset there in bytes.
    #[cfg(test)]
    pub(crate) fn locate(&self, slab: SlabId) -> Option<(u16, u64)> {
        let at = self.find(slab)?;
        let range = &self.ranges[at.range].place;
        Some((range.disk, range.offset_bytes + at.slab as u64 * u64::from(self.geometry.slab_bytes)))
    }

    /// Returns the bytes that a block takes, with its whole slot or range.
    pub(crate) fn space_of(&self, extent: &Extent) -> u64 {
        self.buckets.of(extent.len_bytes).map_or(0, |(_, units)| u64::from(units) * u64::from(UNIT_BYTES))
    }

    /// Takes a free slab that a log or a snapshot already occupies.
    ///
    /// # Errors
    /// [`ClaimError::OutsideOfDisk`], or [`ClaimError::Overlap`] if the slab is not free; nothing changes then.
    pub(crate) fn claim_metadata(&mut self, slab: SlabId) -> Result<(), ClaimError> {
        let at = self.find(slab).ok_or(ClaimError::OutsideOfDisk)?;
        let place = &mut self.ranges[at.range].slabs[at.slab];
        let Slab::Free(key) = *place else { return Err(ClaimError::Overlap) };
        *place = Slab::Metadata;
        let disk = &mut self.disks[at.disk];
        disk.free.remove(&key);
        disk.metadata_slabs += 1;
        Ok(())
    }

    /// Frees a block's place, also if its write failed or came too late. The place is reusable when the next
    /// checkpoint that begins is durable.
    pub(crate) fn free(&mut self, extent: &Extent) {
        let Some(at) = self.find(extent.slab) else { return };
        let found = self.buckets.of(extent.len_bytes);
        let (slab_units, begun) = (self.slab_units(), self.begun);
        let freed = self.ranges[at.range].slabs[at.slab].data_mut().and_then(|data| {
            let (bucket, units) = found?;
            let offset = u32::from(extent.offset_units);
            data.space.follow(begun);
            let is_freed = bucket == data.bucket && offset + units <= slab_units && data.space.free(offset, units);
            is_freed.then_some((units, data.place == Place::Evacuating))
        });
        let Some((units, is_evacuating)) = freed else {
            self.wrong_frees += 1;
            return;
        };
        let disk = &mut self.disks[at.disk];
        disk.evacuating_units -= if is_evacuating { u64::from(units) } else { 0 };
        disk.allocated_units -= u64::from(units);
        disk.freeing_units += u64::from(units);
        disk.freeing.insert(extent.slab);
    }

    /// Takes a whole free slab of a disk for a log or a snapshot, from the reserve if need be.
    pub(crate) fn take_metadata_slab(&mut self, disk: u16) -> Option<SlabId> {
        let slab = self.disk_mut(disk)?.free.last()?.slab;
        self.claim_metadata(slab).ok().map(|()| slab)
    }

    /// Frees at once a slab that was claimed from the free ones and never written.
    pub(crate) fn return_slab(&mut self, slab: SlabId) {
        let key = self.key(slab, 0);
        if let Some(disk) = self.end_metadata(slab, Slab::Free(key)) {
            disk.free.insert(key);
        }
    }

    /// Frees a slab of a log or a snapshot, as [`Allocator::free`] does a block.
    pub(crate) fn free_metadata_slab(&mut self, slab: SlabId) {
        let slab_units = u64::from(self.slab_units());
        if let Some(disk) = self.end_metadata(slab, Slab::FreedMetadata { begun: self.begun }) {
            disk.freeing_units += slab_units;
            disk.freeing.insert(slab);
        }
    }

    /// Gives a slab of a log or a snapshot its next state, and returns its disk. Counts a wrong free if the slab holds
    /// something else.
    fn end_metadata(&mut self, slab: SlabId, next: Slab) -> Option<&mut Disk> {
        let at = self.find(slab)?;
        let place = &mut self.ranges[at.range].slabs[at.slab];
        if !matches!(place, Slab::Metadata) {
            self.wrong_frees += 1;
            return None;
        }
        *place = next;
        let disk = &mut self.disks[at.disk];
        disk.metadata_slabs -= 1;
        Some(disk)
    }

    pub(super) fn slab_units(&self) -> u32 {
        self.geometry.slab_bytes / UNIT_BYTES
    }

    pub(super) fn find(&self, slab: SlabId) -> Option<At> {
        let range = self.ranges.partition_point(|range| range.place.first <= slab).checked_sub(1)?;
        let place = &self.ranges[range].place;
        let index = slab.0 - place.first.0;
        let disk = disk_index(&self.disks, place.disk)?;
        (index < place.count).then_some(At { range, slab: index as usize, disk })
    }

    pub(super) fn slab(&self, slab: SlabId) -> Option<&Slab> {
        self.find(slab).map(|at| &self.ranges[at.range].slabs[at.slab])
    }

    pub(super) fn slab_mut(&mut self, slab: SlabId) -> Option<&mut Slab> {
        self.find(slab).map(|at| &mut self.ranges[at.range].slabs[at.slab])
    }

    /// Returns the rank of a slab, with a newly drawn lot.
    pub(super) fn key(&mut self, slab: SlabId, allocated_units: u32) -> Key {
        let discriminant = match self.placement {
            Placement::Discriminant => (self.rng.next_u64() >> 48) as u16,
            Placement::Seed | Placement::Load => 0,
        };
        Key { allocated_units, discriminant, slab }
    }

    fn disk_mut(&mut self, number: u16) -> Option<&mut Disk> {
        disk_index(&self.disks, number).map(|index| &mut self.disks[index])
    }
}

pub(super) fn disk_index(disks: &[Disk], number: u16) -> Option<usize> {
    disks.binary_search_by_key(&number, |disk| disk.number).ok()
}
