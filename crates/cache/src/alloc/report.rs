//! Reports of the allocator: sums, a table by disk and bucket, and a check of its invariants.
//!
//! # How it works
//! Sums per disk are kept up to date and cost nothing to read; the table and the check visit every slab.
//!
//! # Example
//! A disk of 100 slabs of 32 MiB, three of them for blocks of 8 KiB, 90 % full: one [`BucketReport`] with `slabs: 3`,
//! `size_bytes: 100663296` and all three in the last tenth of `slabs_by_tenth`.

use std::collections::{BTreeMap, BTreeSet};

use super::allocator::{Allocator, Disk, disk_index};
use super::slab::{Data, Place, Slab};
use crate::entry::{SlabId, UNIT_BYTES};

/// The slabs of one disk in one bucket.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BucketReport {
    /// Number of the disk.
    pub disk: u16,
    /// Length of the longest block, padding included, in bytes.
    pub max_size_bytes: u32,
    /// Whether its slabs have a bit per slot, for blocks of one size; otherwise blocks of mixed sizes lie in ranges.
    pub is_bitmap: bool,
    /// Slabs being emptied.
    pub evacuating_slabs: u32,
    /// The use of the slabs.
    pub usage: SlabUse,
}

/// How some slabs are used.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct SlabUse {
    /// Number of slabs.
    pub slabs: u32,
    /// Their size, in bytes.
    pub size_bytes: u64,
    /// Bytes taken by blocks, padding included.
    pub allocated_bytes: u64,
    /// Free bytes.
    pub free_bytes: u64,
    /// Bytes that were freed and wait for one of the next two checkpoints.
    pub freeing_bytes: u64,
    /// Mean number of pieces that a slab's free space is in; 0 in sums over several buckets.
    pub mean_free_segments: f64,
    /// Slabs that are less than 10 % full, 10 to 20 %, ... and 90 to 100 %.
    pub slabs_by_tenth: [u32; 10],
}

/// All slabs of a cache, by disk and bucket.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SlabReport {
    /// By disk, then by block size; buckets without slabs are omitted.
    pub buckets: Vec<BucketReport>,
    /// Size of a slab, in bytes.
    pub slab_bytes: u32,
    /// Slabs of blocks of one size.
    pub bitmap_slabs: u32,
    /// Slabs of blocks of mixed sizes.
    pub extent_slabs: u32,
    /// Slabs of either kind being emptied.
    pub evacuating_slabs: u32,
    /// Slabs of logs and snapshots, including those freed with the next checkpoints.
    pub metadata_slabs: u32,
    /// Unused slabs.
    pub free_slabs: u32,
    /// Slabs in the order in which they are opened: the unused ones, then those of blocks by bucket, the emptiest
    /// first, and those alike by number; without slabs of metadata and those being emptied. [`Placement::Discriminant`]
    /// draws lots between those alike instead, [`Placement::Load`] follows the order on each disk by itself.
    ///
    /// [`Placement::Discriminant`]: crate::Placement::Discriminant
    /// [`Placement::Load`]: crate::Placement::Load
    pub order: Vec<SlabInOrder>,
}

/// A slab in the order of opening. All slabs have one size, so the emptiest has the most free space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct SlabInOrder {
    /// Length of the bucket's longest block, in bytes; 0 of an unused slab, which suits any bucket.
    pub max_size_bytes: u32,
    /// Bytes taken by blocks, padding included.
    pub allocated_bytes: u64,
    /// Number of the slab; disks have theirs in ranges.
    pub slab: u32,
    /// Number of the disk.
    pub disk: u16,
}

impl Allocator {
    /// Returns the bytes that blocks can be allocated in, without reserves and without disks that take no blocks. A
    /// disk that takes none only until the next checkpoint, because its log is tight, counts: eviction for its sake
    /// would come too late. Not all of the bytes suit every block size.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.disks.iter().map(|disk| self.free_bytes_of(disk)).sum()
    }

    fn free_bytes_of(&self, disk: &Disk) -> u64 {
        let slabs = (disk.free.len() as u64).saturating_sub(u64::from(disk.reserve_slabs));
        let units = disk.free_units + slabs * u64::from(self.slab_units());
        if disk.is_writable { units * u64::from(UNIT_BYTES) } else { 0 }
    }

    /// Returns the bytes that are freed with the next checkpoints.
    pub(crate) fn freeing_bytes(&self) -> u64 {
        self.disks.iter().map(|disk| disk.freeing_units).sum::<u64>() * u64::from(UNIT_BYTES)
    }

    /// Returns the bytes of all slabs.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.disks.iter().map(|disk| u64::from(disk.slabs)).sum::<u64>() * u64::from(self.geometry.slab_bytes)
    }

    /// Returns the bytes of all slabs on disks that take blocks.
    pub(crate) fn writable_bytes(&self) -> u64 {
        let slabs = self.disks.iter().filter(|disk| disk.is_writable).map(|disk| u64::from(disk.slabs));
        slabs.sum::<u64>() * u64::from(self.geometry.slab_bytes)
    }

    /// Returns the bytes that blocks take on a disk, padding included.
    pub(crate) fn allocated_bytes(&self, disk: u16) -> u64 {
        self.disk(disk).map_or(0, |disk| disk.allocated_units * u64::from(UNIT_BYTES))
    }

    /// Returns a disk's part of the bytes that blocks take, from 0 to 1; 0 if there are none.
    pub(crate) fn allocated_part(&self, disk: u16) -> f64 {
        let all: u64 = self.disks.iter().map(|disk| disk.allocated_units).sum();
        self.disk(disk).map_or(0.0, |disk| disk.allocated_units as f64 / all.max(1) as f64)
    }

    /// Returns the number of slabs of a disk.
    pub(crate) fn slabs(&self, disk: u16) -> u32 {
        self.disk(disk).map_or(0, |disk| disk.slabs)
    }

    /// Returns the number of unused slabs of a disk, the reserve included.
    pub(crate) fn free_slabs(&self, disk: u16) -> u32 {
        self.disk(disk).map_or(0, |disk| u32::try_from(disk.free.len()).unwrap_or(u32::MAX))
    }

    /// Returns the number of slabs of a disk that logs and snapshots use.
    pub(crate) fn metadata_slabs(&self, disk: u16) -> u32 {
        self.disk(disk).map_or(0, |disk| disk.metadata_slabs)
    }

    fn disk(&self, number: u16) -> Option<&Disk> {
        disk_index(&self.disks, number).map(|index| &self.disks[index])
    }

    /// Returns the table of all slabs by disk and bucket.
    pub(crate) fn report(&self) -> SlabReport {
        let mut report = SlabReport { slab_bytes: self.geometry.slab_bytes, ..SlabReport::default() };
        let mut buckets: BTreeMap<(u16, usize), BucketReport> = BTreeMap::new();
        for range in &self.ranges {
            for slab in &range.slabs {
                match slab {
                    Slab::Free(_) => report.free_slabs += 1,
                    Slab::Metadata | Slab::FreedMetadata { .. } => report.metadata_slabs += 1,
                    Slab::Data(data) => {
                        let row = buckets.entry((range.place.disk, data.bucket)).or_default();
                        self.add_to_row(row, data);
                    }
                }
            }
        }

        for ((disk, bucket), mut row) in buckets {
            row.disk = disk;
            row.max_size_bytes = self.buckets.max_bytes(bucket);
            row.is_bitmap = self.buckets.slot_units(bucket).is_some();
            row.usage.mean_free_segments /= f64::from(row.usage.slabs);
            *if row.is_bitmap { &mut report.bitmap_slabs } else { &mut report.extent_slabs } += row.usage.slabs;
            report.evacuating_slabs += row.evacuating_slabs;
            report.buckets.push(row);
        }
        report.order = self.order();
        report
    }

    fn order(&self) -> Vec<SlabInOrder> {
        let mut order = Vec::new();
        for range in &self.ranges {
            for (slab, number) in range.slabs.iter().zip(range.place.first.0..) {
                let (max_size_bytes, units) = match slab {
                    Slab::Free(_) => (0, 0),
                    Slab::Data(data) if data.place != Place::Evacuating => {
                        (self.buckets.max_bytes(data.bucket), data.space.counts().allocated)
                    }
                    _ => continue,
                };
                let allocated_bytes = u64::from(units) * u64::from(UNIT_BYTES);
                order.push(SlabInOrder { max_size_bytes, allocated_bytes, slab: number, disk: range.place.disk });
            }
        }
        order.sort_by_key(|it| (it.max_size_bytes, it.allocated_bytes, it.slab));
        order
    }

    fn add_to_row(&self, row: &mut BucketReport, data: &Data) {
        let counts = data.space.counts();
        let bytes = |units: u32| u64::from(units) * u64::from(UNIT_BYTES);
        row.evacuating_slabs += u32::from(data.place == Place::Evacuating);

        let usage = &mut row.usage;
        usage.slabs += 1;
        usage.size_bytes += u64::from(self.geometry.slab_bytes);
        usage.allocated_bytes += bytes(counts.allocated);
        usage.free_bytes += bytes(counts.free);
        usage.freeing_bytes += bytes(counts.freeing) + bytes(counts.leaving);
        usage.mean_free_segments += f64::from(data.space.free_segments());
        let tenth = u64::from(counts.allocated) * 10 / u64::from(self.slab_units());
        usage.slabs_by_tenth[(tenth as usize).min(9)] += 1;
    }

    /// Checks all invariants: counts agree with maps and sums with counts, every slab is in exactly the list where it
    /// belongs, every unit is in exactly one state. Visits every slab.
    ///
    /// # Errors
    /// The first invariant that is broken.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.wrong_frees > 0 {
            return Err(format!("{} times something was freed that was not allocated", self.wrong_frees));
        }
        let mut last_end = 0;
        for range in &self.ranges {
            if range.place.first.0 < last_end || range.slabs.len() != range.place.count as usize {
                return Err(format!("the range at slab {} overlaps another one", range.place.first.0));
            }
            last_end = range.place.first.0 + range.place.count;
            for (slab, number) in range.slabs.iter().zip(range.place.first.0..) {
                self.check_slab(range.place.disk, slab, SlabId(number))
                    .map_err(|why| format!("slab {number}: {why}"))?;
            }
        }
        for (index, disk) in self.disks.iter().enumerate() {
            self.check_disk(index, disk).map_err(|why| format!("disk {}: {why}", disk.number))?;
        }
        Ok(())
    }

    fn check_slab(&self, disk: u16, slab: &Slab, id: SlabId) -> Result<(), String> {
        let lists = self.disk(disk).ok_or("its disk is unknown")?;
        let is_listed = |set: &BTreeSet<SlabId>, should: bool| set.contains(&id) == should;
        let (freeing, leaving) = match slab {
            Slab::FreedMetadata { begun } => (*begun == self.begun, *begun != self.begun),
            Slab::Data(data) => {
                data.space.check(self.slab_units())?;
                let counts = data.space.counts();
                let units = counts.allocated + counts.freeing + counts.leaving + counts.free;
                let slot_units = self.buckets.slot_units(data.bucket).unwrap_or(1);
                if units != self.slab_units() / slot_units * slot_units {
                    return Err(format!("{units} units of {}", self.slab_units()));
                }
                let (freeing, leaving) = data.space.freed(self.begun);
                (freeing > 0, leaving > 0)
            }
            Slab::Free(_) | Slab::Metadata => (false, false),
        };

        let evacuating = slab.data().is_some_and(|data| data.place == Place::Evacuating);
        if is_listed(&lists.freeing, freeing)
            && is_listed(&lists.leaving, leaving)
            && is_listed(&lists.evacuating, evacuating)
        {
            Ok(())
        } else {
            Err("what the next checkpoints know of it is wrong".to_string())
        }
    }

    /// Checks that every slab is in its list. As the lists together have no more members than slabs, it is in no other.
    fn check_disk(&self, index: usize, disk: &Disk) -> Result<(), String> {
        let mut sums = [0u64; 8];
        let [allocated, freeing, free, slabs, metadata, free_slabs, listed, evacuating] = &mut sums;

        for range in self.ranges.iter().filter(|range| range.place.disk == disk.number) {
            for (slab, number) in range.slabs.iter().zip(range.place.first.0..) {
                *slabs += 1;
                match slab {
                    Slab::Free(key) if disk.free.contains(key) && key.slab == SlabId(number) => *free_slabs += 1,
                    Slab::Free(_) => return Err(format!("free slab {number} is not listed")),
                    Slab::Metadata => *metadata += 1,
                    Slab::FreedMetadata { .. } => *freeing += u64::from(self.slab_units()),
                    Slab::Data(data) => {
                        let counts = data.space.counts();
                        *allocated += u64::from(counts.allocated);
                        *freeing += u64::from(counts.freeing + counts.leaving);
                        let is_out = data.place == Place::Evacuating;
                        *free += if is_out { 0 } else { u64::from(counts.free) };
                        *evacuating += if is_out { u64::from(counts.allocated) } else { 0 };
                        *listed += u64::from(!is_out);
                        if !is_out && !self.is_in_its_list(index, SlabId(number), data) {
                            return Err(format!("slab {number} is not listed as {:?}", data.place));
                        }
                    }
                }
            }
        }

        let shared =
            self.shared_open.iter().flatten().filter(|slab| self.find(**slab).is_some_and(|at| at.disk == index));
        let lists = disk
            .buckets
            .iter()
            .map(|bucket| (bucket.candidates.len() + bucket.passed.len()) as u64 + u64::from(bucket.open.is_some()));
        let lists = lists.sum::<u64>() + disk.unsorted.len() as u64 + shared.count() as u64;

        let kept = [
            disk.allocated_units,
            disk.freeing_units,
            disk.free_units,
            u64::from(disk.slabs),
            u64::from(disk.metadata_slabs),
            disk.free.len() as u64,
            lists,
            disk.evacuating_units,
        ];
        if kept == sums { Ok(()) } else { Err(format!("sums {kept:?}, its slabs have {sums:?}")) }
    }

    fn is_in_its_list(&self, disk: usize, slab: SlabId, data: &Data) -> bool {
        let lists = &self.disks[disk].buckets[data.bucket];
        match data.place {
            Place::Unsorted => self.disks[disk].unsorted.contains(&slab),
            Place::Candidate(key) => key.slab == slab && lists.candidates.contains(&key),
            Place::Passed(units) => lists.passed.contains(&(units, slab)),
            Place::Open => lists.open == Some(slab) || self.shared_open[data.bucket] == Some(slab),
            Place::Evacuating => false,
        }
    }
}
