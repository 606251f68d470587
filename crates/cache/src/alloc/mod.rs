//! The allocator: which slab and which place in it every block, log and snapshot gets.
//!
//! # Why
//! All disks of a cache are one space, divided into slabs. Blocks of one size share slabs, so that what one leaves the
//! next one fits; a block is never put where a crash could still bring back what was there before.
//!
//! # How it works
//! Pure logic: no I/O, no clock, no locks. A slab is free, metadata (a log's or a snapshot's, whole), or belongs to a
//! bucket of block sizes (`bucket`), and then knows what of it is allocated (`slab`).
//! - Blocks go to the open slab of their bucket until it has no room; then the emptiest slab is opened, a free one
//!   being the emptiest of all. With [`Placement::Load`] every disk has its own open slabs, and `placement` says whose
//!   turn it is; otherwise there is one open slab a bucket for all disks, as the cache of seed 003 had.
//! - Freed space comes back when the first checkpoint that begins afterwards is durable: until then, the last durable
//!   index still names it. The order in which slabs are opened is renewed then, too.
//! - Nothing of this is stored. When a cache is opened, the places of all entries are claimed; what nobody claims is
//!   free, so that a leak cannot outlive the process.
//! - `evacuation` empties slabs when the mix of block sizes has changed, or a disk is to go.
//!
//! # Limits
//! A disk that is added takes blocks at once: if there is something to claim, call [`Allocator::set_writable`] with
//! `false` right after [`Allocator::add_range`], under the same lock. The free space of a bucket is of no use to the
//! others until evacuation has emptied slabs.
//!
//! # Example
//! Slabs of 1 MiB; a block of 8000 bytes gets 16 units (8 KiB) at offset 0 of slab 0, which now belongs to the bucket
//! of 8 KiB. `free` makes them `freeing_bytes`; `begin_checkpoint` and `finish_checkpoint` return them, and as the slab
//! is empty now, it is any bucket's again.

mod bucket;
mod evacuation;
mod lists;
mod placement;
mod report;
mod search;
mod slab;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use crate::config::Placement;
use crate::entry::{Extent, MAX_SLAB_BYTES, MIN_SLAB_BYTES, SlabId, UNIT_BYTES};
use bucket::{Buckets, DiskBucket, Key};
use placement::{Lots, Turns};
use search::Lane;
use slab::{Place, Slab};

pub(crate) use placement::{DiskLoad, DiskLoads};
pub use report::{BucketReport, SlabReport};

/// What is the same for all disks of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Size of a slab, a power of two from 1 to 32 MiB; anything else is brought into that range.
    pub(crate) slab_bytes: u32,
    /// What a disk reads and writes at least, a power of two from 512 bytes to 16 KiB; as above.
    pub(crate) sector_bytes: u32,
}

/// Slabs that lie one after the other on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlabRange {
    /// Number of the first.
    pub(crate) first: SlabId,
    /// How many.
    pub(crate) count: u32,
    /// On which disk.
    pub(crate) disk: u16,
    /// Where the first begins on the disk, in bytes.
    pub(crate) offset_bytes: u64,
}

/// Why a place cannot be claimed, or a range not be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimError {
    /// No such slab, or the end lies beyond the slab's; of a range: beyond the last number.
    OutsideOfDisk,
    /// Somebody has (some of) it already.
    Overlap,
    /// The slab belongs to blocks of another size.
    WrongClass,
    /// The slab is a log's or a snapshot's.
    MetadataSlab,
    /// It does not begin at a sector, or at a slot.
    Misaligned,
    /// No block is so long, or so short.
    BadLength,
}

/// Why there is no place for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoSpace {
    /// No block is so long, or so short.
    BadLength,
    /// No disk takes new blocks.
    NoDisk,
    /// Some will come back with the next checkpoint.
    UntilCheckpoint,
    /// Nothing has been freed: evict or evacuate.
    Full,
}

/// A disk: its lists, and the sums over its slabs, in units.
#[derive(Debug)]
struct Disk {
    number: u16,
    is_writable: bool,
    reserve_slabs: u32,
    slabs: u32,
    metadata_slabs: u32,
    /// Freed metadata counts as freeing.
    freeing_units: u64,
    allocated_units: u64,
    /// Free in slabs of blocks, without those that are being emptied.
    free_units: u64,
    free: BTreeSet<Key>,
    buckets: Vec<DiskBucket>,
    unsorted: BTreeSet<SlabId>,
}

/// A [`SlabRange`] and its slabs.
#[derive(Debug)]
struct Range {
    place: SlabRange,
    slabs: Vec<Slab>,
}

/// Where a slab is in the allocator's lists.
#[derive(Clone, Copy)]
struct At {
    range: usize,
    slab: usize,
    disk: usize,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Allocator {
    geometry: Geometry,
    placement: Placement,
    buckets: Buckets,
    /// By number of the first slab.
    ranges: Vec<Range>,
    /// By number.
    disks: Vec<Disk>,
    /// By bucket, if all disks are one lane.
    shared_open: Vec<Option<SlabId>>,
    turns: Turns,
    lots: Lots,
    /// Slabs where something is freeing, and where something is leaving.
    freeing: BTreeSet<SlabId>,
    leaving: BTreeSet<SlabId>,
    /// How often something was freed that was not allocated: a defect of the caller.
    wrong_frees: u64,
}

impl Allocator {
    /// No disks yet. `seed` is where the lots of [`Placement::Discriminant`] come from.
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
            turns: Turns::default(),
            lots: Lots(seed),
            freeing: BTreeSet::new(),
            leaving: BTreeSet::new(),
            wrong_frees: 0,
        }
    }

    /// Slabs of a new disk, or more of one that is there: all free, and in use at once.
    ///
    /// # Errors
    /// [`ClaimError::Overlap`] if a slab is known already, [`ClaimError::OutsideOfDisk`] if numbers do not suffice.
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
                reserve_slabs: 0,
                slabs: 0,
                metadata_slabs: 0,
                freeing_units: 0,
                allocated_units: 0,
                free_units: 0,
                free: BTreeSet::new(),
                buckets,
                unsorted: BTreeSet::new(),
            };
            self.disks.insert(index, disk);
        }
        &mut self.disks[index]
    }

    /// Forgets all slabs of a disk; frees of what was there do nothing from now on.
    pub(crate) fn remove_disk(&mut self, disk: u16) {
        self.ranges.retain(|range| range.place.disk != disk);
        self.disks.retain(|other| other.number != disk);
        let ranges = &self.ranges;
        let is_known = |slab: SlabId| {
            let after = ranges.partition_point(|range| range.place.first <= slab);
            after > 0 && slab.0 - ranges[after - 1].place.first.0 < ranges[after - 1].place.count
        };
        self.freeing.retain(|slab| is_known(*slab));
        self.leaving.retain(|slab| is_known(*slab));
        for open in &mut self.shared_open {
            *open = open.filter(|slab| is_known(*slab));
        }
    }

    /// Whether a disk takes new blocks; a new one does. Logs and snapshots always find room.
    pub(crate) fn set_writable(&mut self, disk: u16, yes: bool) {
        if let Some(disk) = self.disk_mut(disk) {
            disk.is_writable = yes;
        }
    }

    /// Blocks never take the last `slabs` free ones of a disk; 0 at first.
    pub(crate) fn set_reserve(&mut self, disk: u16, slabs: u32) {
        if let Some(disk) = self.disk_mut(disk) {
            disk.reserve_slabs = slabs;
        }
    }

    /// The disk that has a slab, and where it begins there, in bytes.
    #[cfg(test)]
    pub(crate) fn locate(&self, slab: SlabId) -> Option<(u16, u64)> {
        let at = self.find(slab)?;
        let range = &self.ranges[at.range].place;
        Some((range.disk, range.offset_bytes + at.slab as u64 * u64::from(self.geometry.slab_bytes)))
    }

    /// Takes the place of an entry that was there before.
    ///
    /// # Errors
    /// Why it cannot be so; nothing has changed then.
    pub(crate) fn claim(&mut self, extent: &Extent) -> Result<(), ClaimError> {
        let at = self.find(extent.slab).ok_or(ClaimError::OutsideOfDisk)?;
        let (bucket, units) = self.buckets.of(extent.len_bytes).ok_or(ClaimError::BadLength)?;
        let offset = u32::from(extent.offset_units);
        let align_units = self.buckets.slot_units(bucket).unwrap_or(self.geometry.sector_bytes / UNIT_BYTES);
        if !offset.is_multiple_of(align_units) {
            return Err(ClaimError::Misaligned);
        }
        if offset + units > self.slab_units() {
            return Err(ClaimError::OutsideOfDisk);
        }
        match &self.ranges[at.range].slabs[at.slab] {
            Slab::Metadata | Slab::FreedMetadata { .. } => return Err(ClaimError::MetadataSlab),
            Slab::Data(data) if data.bucket != bucket => return Err(ClaimError::WrongClass),
            Slab::Data(_) => {}
            Slab::Free(_) => self.begin_data(extent.slab, bucket, Place::Unsorted),
        }
        let Some(data) = self.ranges[at.range].slabs[at.slab].data_mut() else { return Err(ClaimError::MetadataSlab) };
        data.space.claim(offset, units)?;
        let is_evacuating = data.place == Place::Evacuating;
        let disk = &mut self.disks[at.disk];
        disk.allocated_units += u64::from(units);
        disk.free_units -= if is_evacuating { 0 } else { u64::from(units) };
        Ok(())
    }

    /// Bytes that a block takes, its slot or range whole.
    pub(crate) fn space_of(&self, extent: &Extent) -> u64 {
        self.buckets.of(extent.len_bytes).map_or(0, |(_, units)| u64::from(units) * u64::from(UNIT_BYTES))
    }

    /// Takes a slab that a log or a snapshot had before.
    ///
    /// # Errors
    /// [`ClaimError::OutsideOfDisk`], or [`ClaimError::Overlap`] if it is not free; nothing has changed then.
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

    /// A place for a block that is inserted. It is the caller's until it is freed.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn allocate(&mut self, len_bytes: u32, loads: &DiskLoads) -> Result<Extent, NoSpace> {
        self.place(len_bytes, Lane { disk: None, loads, not_on: None, takes_free: true })
    }

    /// A place for a block that is moved: not in a slab that is being emptied, not on the disk `not_on`, and in a free
    /// slab only if there is no room elsewhere.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn allocate_elsewhere(
        &mut self,
        len_bytes: u32,
        not_on: Option<u16>,
        loads: &DiskLoads,
    ) -> Result<Extent, NoSpace> {
        let lane = Lane { disk: None, loads, not_on, takes_free: false };
        match self.place(len_bytes, lane) {
            Err(NoSpace::UntilCheckpoint | NoSpace::Full) => self.place(len_bytes, Lane { takes_free: true, ..lane }),
            found => found,
        }
    }

    /// A block's place is no longer needed. It can be allocated again when the next checkpoint that begins is durable.
    pub(crate) fn free(&mut self, extent: &Extent) {
        let Some(at) = self.find(extent.slab) else { return };
        let found = self.buckets.of(extent.len_bytes);
        let slab_units = self.slab_units();
        let freed = self.ranges[at.range].slabs[at.slab].data_mut().and_then(|data| {
            let (bucket, units) = found?;
            let offset = u32::from(extent.offset_units);
            let is_freed = bucket == data.bucket && offset + units <= slab_units && data.space.free(offset, units);
            is_freed.then_some(units)
        });
        let Some(units) = freed else {
            self.wrong_frees += 1;
            return;
        };
        let disk = &mut self.disks[at.disk];
        disk.allocated_units -= u64::from(units);
        disk.freeing_units += u64::from(units);
        self.freeing.insert(extent.slab);
    }

    /// As [`Allocator::free`], of a block that never came into the index: its write failed, or came too late.
    pub(crate) fn abandon(&mut self, extent: &Extent) {
        self.free(extent);
    }

    /// A whole free slab of a disk for a log or a snapshot; the reserve is for them.
    pub(crate) fn take_metadata_slab(&mut self, disk: u16) -> Option<SlabId> {
        let slab = self.disk_mut(disk)?.free.last()?.slab;
        self.claim_metadata(slab).ok().map(|()| slab)
    }

    /// A slab that was claimed from the free ones and never written goes back at once.
    pub(crate) fn return_slab(&mut self, slab: SlabId) {
        let key = self.key(slab, 0);
        let Some(at) = self.find(slab) else { return };
        let place = &mut self.ranges[at.range].slabs[at.slab];
        if !matches!(place, Slab::Metadata) {
            self.wrong_frees += 1;
            return;
        }
        *place = Slab::Free(key);
        let disk = &mut self.disks[at.disk];
        disk.metadata_slabs -= 1;
        disk.free.insert(key);
    }

    /// As [`Allocator::free`], of a log's or a snapshot's slab.
    pub(crate) fn free_metadata_slab(&mut self, slab: SlabId) {
        let Some(at) = self.find(slab) else { return };
        let slab_units = u64::from(self.slab_units());
        let place = &mut self.ranges[at.range].slabs[at.slab];
        if !matches!(place, Slab::Metadata) {
            self.wrong_frees += 1;
            return;
        }
        *place = Slab::FreedMetadata { is_leaving: false };
        let disk = &mut self.disks[at.disk];
        disk.metadata_slabs -= 1;
        disk.freeing_units += slab_units;
        self.freeing.insert(slab);
    }

    fn slab_units(&self) -> u32 {
        self.geometry.slab_bytes / UNIT_BYTES
    }

    fn find(&self, slab: SlabId) -> Option<At> {
        let range = self.ranges.partition_point(|range| range.place.first <= slab).checked_sub(1)?;
        let place = &self.ranges[range].place;
        let index = slab.0 - place.first.0;
        let disk = disk_index(&self.disks, place.disk)?;
        (index < place.count).then_some(At { range, slab: index as usize, disk })
    }

    fn slab(&self, slab: SlabId) -> Option<&Slab> {
        self.find(slab).map(|at| &self.ranges[at.range].slabs[at.slab])
    }

    fn disk_mut(&mut self, number: u16) -> Option<&mut Disk> {
        disk_index(&self.disks, number).map(|index| &mut self.disks[index])
    }
}

fn disk_index(disks: &[Disk], number: u16) -> Option<usize> {
    disks.binary_search_by_key(&number, |disk| disk.number).ok()
}
