//! Stories about the choice of slab and disk, and random sequences of all operations against a map of owners.

mod choice;
mod evacuation;
mod parts;
mod random;

use super::allocator::Disk;
use super::placement::DiskLoads;
use super::*;
use crate::config::Placement;
use crate::entry::{Extent, SlabId};

pub(super) const MIB: u32 = 1 << 20;

/// Returns an allocator of disks of equal speed, their slabs numbered consecutively, and the disks' loads.
pub(super) fn cache(slab_bytes: u32, placement: Placement, slabs_by_disk: &[u32]) -> (Allocator, Vec<DiskLoad>) {
    let mut allocator = Allocator::new(Geometry { slab_bytes, sector_bytes: 4096 }, placement, 7);
    let mut first = 0;
    let mut loads = Vec::new();
    for (disk, &count) in (0..).zip(slabs_by_disk) {
        let range = SlabRange { first: SlabId(first), count, disk, offset_bytes: 65_536 };
        allocator.add_range(range).unwrap();
        first += count;
        loads.push(idle(disk, 250e6));
    }
    (allocator, loads)
}

pub(super) fn idle(disk: u16, write_bytes_per_s: f64) -> DiskLoad {
    DiskLoad { disk, write_bytes_per_s, backlog_bytes: 0, is_writable: true, is_slow: false }
}

pub(super) fn disk_of(allocator: &Allocator, extent: &Extent) -> u16 {
    allocator.locate(extent.slab).unwrap().0
}

/// Allocates blocks of 8 KiB until there is no more space.
pub(super) fn fill(allocator: &mut Allocator, loads: &DiskLoads) -> Vec<Extent> {
    std::iter::from_fn(|| allocator.allocate(8192, loads).ok()).collect()
}

pub(super) fn checkpoint(allocator: &mut Allocator) -> Vec<SlabId> {
    allocator.begin_checkpoint();
    let emptied = finish(allocator);
    allocator.check().unwrap();
    emptied
}

pub(super) fn finish(allocator: &mut Allocator) -> Vec<SlabId> {
    let mut emptied = Vec::new();
    while allocator.finish_some(&mut emptied) {
        // The next checkpoint learns of nothing, and inserts find what is free already.
        allocator.check().unwrap();
    }
    emptied
}

pub(super) fn choose_victims(allocator: &mut Allocator, want_free_slabs: u32) -> Vec<SlabId> {
    let mut survey = Survey::default();
    while allocator.survey(&mut survey) {}
    allocator.choose_victims(&mut survey, want_free_slabs)
}

/// Returns a full cache that has evicted its oldest tenths, so that all disks have wholly free slabs.
pub(super) fn full_and_evicted(placement: Placement, slabs_by_disk: &[u32]) -> (Allocator, Vec<DiskLoad>) {
    let (mut allocator, loads) = cache(MIB, placement, slabs_by_disk);
    let blocks = fill(&mut allocator, &loads);
    assert_eq!(allocator.free_bytes(), 0);
    for extent in blocks.iter().filter(|extent| extent.slab.0 % 5 == 0) {
        allocator.free(extent);
    }
    assert_eq!(allocator.allocate(8192, &loads), Err(NoSpace::UntilCheckpoint));
    checkpoint(&mut allocator);
    (allocator, loads)
}

/// Returns the disks of the slabs that are filled, in order.
pub(super) fn disks_in_order(allocator: &mut Allocator, loads: &DiskLoads) -> Vec<u16> {
    let mut blocks = fill(allocator, loads);
    blocks.dedup_by_key(|extent| extent.slab);
    blocks.iter().map(|extent| disk_of(allocator, extent)).collect()
}

/// Returns how many slabs `of` counts, over all disks.
pub(super) fn count(allocator: &Allocator, of: impl Fn(&Disk) -> usize) -> usize {
    allocator.disks.iter().map(of).sum()
}

pub(super) fn evacuate(allocator: &mut Allocator, disk: u16) {
    while allocator.evacuate_some(disk) {
        allocator.check().unwrap();
    }
}
