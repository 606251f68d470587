//! Finds places: in the open slab first, then in the slab to be opened next.
//!
//! # How it works
//! A [`Lane`] names the disks that may be used: all of them together, or one; if that one has no room, the next disk is
//! tried. A slab without room for a block is passed over and remembered with the length of its longest free range. When
//! nothing else is left, passed slabs with enough room are opened again. One block opens at most some hundred slabs.
//!
//! In an open slab, placing a block reads a word or two of its map; lists are searched only when the slab is full.
//!
//! # Example
//! A slab of the 64 KiB bucket has a range of 40 KiB left. A block of 64 KiB passes it over and opens a free slab. When
//! there are no more free slabs, a block of 20 KiB opens the first one again.

use super::allocator::{Allocator, At, Disk, disk_index};
use super::bucket::Key;
use super::geometry::{ClaimError, NoSpace};
use super::placement::{DiskLoad, DiskLoads};
use super::slab::{Place, Slab};
use crate::config::Placement;
use crate::entry::{Extent, SlabId, UNIT_BYTES};

/// Passed slabs of a disk that are ranked again at a time, those with the shortest free ranges that are long enough:
/// longer blocks need the others. Other inserts wait for the allocator meanwhile.
pub(super) const RANKED_AT_ONCE: usize = 64;

/// Most slabs that are opened on a disk for one block; in the next 256 its successor may find room. Each takes 0.4 us,
/// and 24,500 of them, as a terabyte has, took 7 to 9 ms.
pub(super) const OPENED_AT_ONCE: usize = 256;

/// The disks whose slabs may be opened for a block.
#[derive(Clone, Copy)]
struct Lane<'a> {
    /// Only this disk, by its index.
    disk: Option<usize>,
    loads: &'a DiskLoads,
    not_on: Option<u16>,
    /// Whether free slabs may be opened.
    takes_free: bool,
}

/// The slabs of a lane that a search without a place has left out.
enum Missed {
    None,
    Some,
}

impl Lane<'_> {
    fn has(&self, index: usize, disk: &Disk) -> bool {
        match self.disk {
            Some(only) => index == only,
            None => {
                let is_open = |load: &DiskLoad| load.disk == disk.number && load.is_writable;
                disk.takes_blocks() && self.not_on != Some(disk.number) && self.loads.iter().any(is_open)
            }
        }
    }
}

impl Allocator {
    /// Allocates a place for a block that is inserted, until it is freed.
    ///
    /// # Errors
    /// Why there is no place.
    pub(crate) fn allocate(&mut self, len_bytes: u32, loads: &DiskLoads) -> Result<Extent, NoSpace> {
        self.place(len_bytes, Lane { disk: None, loads, not_on: None, takes_free: true })
    }

    /// Allocates a place for a block that is moved: not in a slab being emptied, not on the disk `not_on`, and in a
    /// free slab only if there is no room elsewhere.
    ///
    /// # Errors
    /// Why there is no place.
    pub(crate) fn allocate_elsewhere(
        &mut self,
        len_bytes: u32,
        not_on: Option<u16>,
        loads: &DiskLoads,
    ) -> Result<Extent, NoSpace> {
        let lane = Lane { disk: None, loads, not_on, takes_free: false };
        match self.place(len_bytes, lane) {
            Err(NoSpace::UntilCheckpoint | NoSpace::Full | NoSpace::NotFoundYet) => {
                self.place(len_bytes, Lane { takes_free: true, ..lane })
            }
            found => found,
        }
    }

    /// Claims the place of an existing entry.
    ///
    /// # Errors
    /// Why the entry is impossible; nothing changes then.
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
        if is_evacuating {
            disk.evacuating_units += u64::from(units);
        } else {
            disk.free_units -= u64::from(units);
        }
        Ok(())
    }

    fn place(&mut self, len_bytes: u32, lane: Lane<'_>) -> Result<Extent, NoSpace> {
        let (bucket, units) = self.buckets.of(len_bytes).ok_or(NoSpace::BadLength)?;
        let found = match self.placement {
            Placement::Load => self.place_by_load(len_bytes, bucket, units, lane),
            Placement::Seed | Placement::Discriminant => self.place_in(bucket, units, lane),
        };
        let (slab, offset) = match found {
            Ok(place) => place,
            Err(Missed::Some) => return Err(NoSpace::NotFoundYet),
            Err(Missed::None) => return Err(self.why_none(lane)),
        };
        Ok(Extent { slab, offset_units: u16::try_from(offset).map_err(|_| NoSpace::BadLength)?, len_bytes })
    }

    fn place_by_load(
        &mut self,
        len_bytes: u32,
        bucket: usize,
        units: u32,
        lane: Lane<'_>,
    ) -> Result<(SlabId, u32), Missed> {
        let mut full: Vec<u16> = Vec::new();
        let mut missed = Missed::None;
        loop {
            let disks = &self.disks;
            let pick = self.clock.pick(lane.loads, |load| {
                let disk = disk_index(disks, load.disk).and_then(|index| disks.get(index));
                lane.not_on != Some(load.disk) && !full.contains(&load.disk) && disk.is_some_and(Disk::takes_blocks)
            });
            let Some(load) = pick else { return Err(missed) };
            let only = Lane { disk: disk_index(disks, load.disk), ..lane };
            match self.place_in(bucket, units, only) {
                Ok(place) => {
                    self.clock.charge(load, len_bytes);
                    return Ok(place);
                }
                Err(Missed::Some) => missed = Missed::Some,
                Err(Missed::None) => {}
            }
            full.push(load.disk);
        }
    }

    /// Finds a place in the lane's open slab, or opens further slabs.
    fn place_in(&mut self, bucket: usize, units: u32, lane: Lane<'_>) -> Result<(SlabId, u32), Missed> {
        let mut open = match lane.disk {
            Some(disk) => self.disks[disk].buckets[bucket].open,
            None => self.shared_open[bucket],
        };
        if let Some((slab, at)) = open.and_then(|slab| Some((slab, self.find(slab)?))) {
            if !lane.has(at.disk, &self.disks[at.disk]) {
                self.rank(slab);
                open = None;
            } else if let Some(offset) = self.take(at, units) {
                return Ok((slab, offset));
            }
        }

        for _ in 0..OPENED_AT_ONCE {
            // If there is no next slab, the open one stays open: it may have room for a shorter block.
            let next = self.next(bucket, units, lane).ok_or(Missed::None)?;
            if let Some(slab) = open {
                self.pass(slab);
            }
            match self.slab(next) {
                Some(Slab::Free(_)) => self.begin_data(next, bucket, Place::Open),
                _ => self.put(next, Place::Open),
            }
            if let Some(offset) = self.find(next).and_then(|at| self.take(at, units)) {
                return Ok((next, offset));
            }
            open = Some(next);
        }
        Err(Missed::Some)
    }

    /// Returns the slab to be opened next.
    fn next(&mut self, bucket: usize, units: u32, lane: Lane<'_>) -> Option<SlabId> {
        self.rank_claimed();
        let free = if lane.takes_free { self.emptiest_free(lane) } else { None };
        let best = [self.emptiest_begun(bucket, lane), free].into_iter().flatten().min();
        if best.is_none() && self.rank_passed(bucket, units, lane) {
            return self.emptiest_begun(bucket, lane).map(|key| key.slab);
        }
        best.map(|key| key.slab)
    }

    fn lane_disks<'a>(&'a self, lane: Lane<'a>) -> impl Iterator<Item = &'a Disk> {
        self.disks.iter().enumerate().filter(move |(index, disk)| lane.has(*index, disk)).map(|(_, disk)| disk)
    }

    fn emptiest_begun(&self, bucket: usize, lane: Lane<'_>) -> Option<Key> {
        self.lane_disks(lane).filter_map(|disk| disk.buckets[bucket].candidates.first()).min().copied()
    }

    fn emptiest_free(&self, lane: Lane<'_>) -> Option<Key> {
        let has_more = |disk: &&Disk| disk.free.len() > disk.reserve_slabs as usize;
        self.lane_disks(lane).filter(has_more).filter_map(|disk| disk.free.first()).min().copied()
    }

    /// Ranks some slabs that were passed over but have room for `units`, so that they can be opened again. Returns
    /// whether there are any.
    fn rank_passed(&mut self, bucket: usize, units: u32, lane: Lane<'_>) -> bool {
        let mut fitting: Vec<SlabId> = Vec::new();
        for disk in self.lane_disks(lane) {
            let with_room = disk.buckets[bucket].passed.range((units, SlabId(0))..);
            fitting.extend(with_room.take(RANKED_AT_ONCE).map(|(_, slab)| *slab));
        }
        for slab in &fitting {
            self.rank(*slab);
        }
        !fitting.is_empty()
    }

    /// Ranks the slabs in which places were claimed, so that they can be opened.
    pub(crate) fn rank_claimed(&mut self) {
        for disk in 0..self.disks.len() {
            for slab in std::mem::take(&mut self.disks[disk].unsorted) {
                self.rank(slab);
            }
        }
    }

    fn why_none(&self, lane: Lane<'_>) -> NoSpace {
        if self.disks.iter().any(|disk| disk.is_writable && disk.has_tight_log) {
            return NoSpace::UntilCheckpoint;
        }
        let mut why = NoSpace::NoDisk;
        for disk in self.lane_disks(lane) {
            if disk.freeing_units > 0 {
                return NoSpace::UntilCheckpoint;
            }
            why = NoSpace::Full;
        }
        why
    }

    /// Allocates from a slab of blocks.
    fn take(&mut self, at: At, units: u32) -> Option<u32> {
        let offset = self.ranges[at.range].slabs[at.slab].data_mut()?.space.allocate(units)?;
        let disk = &mut self.disks[at.disk];
        disk.allocated_units += u64::from(units);
        disk.free_units -= u64::from(units);
        Some(offset)
    }
}
