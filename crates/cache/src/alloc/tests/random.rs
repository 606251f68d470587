//! Random sequences of all operations, against a map of owners.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::super::geometry::ClaimError;
use super::*;
use crate::entry::UNIT_BYTES;

#[derive(Clone, Debug)]
enum Step {
    Allocate {
        len_bytes: u32,
        elsewhere: bool,
        not_on: Option<u16>,
        backlog_bytes: u64,
    },
    Free(prop::sample::Index),
    Begin,
    Finish,
    Abort,
    TakeMetadata(u16),
    FreeMetadata(prop::sample::Index),
    Victims(u32),
    EvacuateDisk(u16),
    Writable(u16, bool),
    Reserve(u16, u32),
    Expand(u16),
    /// Removes the disk; it may return with its blocks.
    Remove(u16, bool),
}

const DISKS: u16 = 3;

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![
        4 => 1u32..17_000,
        3 => 17_000u32..70_000,
        1 => 70_000u32..MIB + 2000,
    ];
    let index = any::<prop::sample::Index>;
    let not_on = prop_oneof![2 => Just(None), 1 => (0..DISKS).prop_map(Some)];
    prop_oneof![
        40 => (len, any::<bool>(), not_on, 0u64..1 << 22).prop_map(|(len_bytes, elsewhere, not_on, backlog_bytes)| {
            Step::Allocate { len_bytes, elsewhere, not_on, backlog_bytes }
        }),
        30 => index().prop_map(Step::Free),
        4 => Just(Step::Begin),
        4 => Just(Step::Finish),
        1 => Just(Step::Abort),
        2 => (0..DISKS).prop_map(Step::TakeMetadata),
        2 => index().prop_map(Step::FreeMetadata),
        2 => (0u32..4).prop_map(Step::Victims),
        1 => (0..DISKS).prop_map(Step::EvacuateDisk),
        3 => (0..DISKS, prop::bool::weighted(0.8)).prop_map(|(disk, yes)| Step::Writable(disk, yes)),
        1 => (0..DISKS, 0u32..3).prop_map(|(disk, slabs)| Step::Reserve(disk, slabs)),
        1 => (0..DISKS).prop_map(Step::Expand),
        1 => (0..DISKS, any::<bool>()).prop_map(|(disk, returns)| Step::Remove(disk, returns)),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Owner {
    Nobody,
    Block,
    Freeing,
    Leaving,
}

/// The owner of every unit, kept in the simplest way.
struct Model {
    allocator: Allocator,
    sector_bytes: u32,
    owners: BTreeMap<SlabId, Vec<Owner>>,
    live: Vec<Extent>,
    metadata: Vec<SlabId>,
    evacuating: BTreeSet<SlabId>,
    ranges: Vec<SlabRange>,
    writable: [bool; DISKS as usize],
    reserve: [u32; DISKS as usize],
    next_slab: u32,
}

impl Model {
    fn new(sector_bytes: u32, placement: Placement) -> Model {
        let mut model = Model {
            allocator: Allocator::new(Geometry { slab_bytes: MIB, sector_bytes }, placement, 3),
            sector_bytes,
            owners: BTreeMap::new(),
            live: Vec::new(),
            metadata: Vec::new(),
            evacuating: BTreeSet::new(),
            ranges: Vec::new(),
            writable: [true; DISKS as usize],
            reserve: [0; DISKS as usize],
            next_slab: 0,
        };
        (0..DISKS).for_each(|disk| model.expand(disk, 3));
        model
    }

    fn expand(&mut self, disk: u16, count: u32) {
        let range = SlabRange { first: SlabId(self.next_slab), count, disk, offset_bytes: 0 };
        self.next_slab += count;
        self.ranges.push(range);
        self.add(range);
    }

    fn add(&mut self, range: SlabRange) {
        self.allocator.add_range(range).unwrap();
        for number in range.first.0..range.first.0 + range.count {
            self.owners.insert(SlabId(number), vec![Owner::Nobody; (MIB / UNIT_BYTES) as usize]);
        }
    }

    fn disk_of(&self, slab: SlabId) -> u16 {
        let has = |range: &&SlabRange| (range.first.0..range.first.0 + range.count).contains(&slab.0);
        self.ranges.iter().find(has).unwrap().disk
    }

    /// Returns whether the allocator has the disk. The settings of an absent disk are not kept for its return.
    fn has_disk(&self, disk: u16) -> bool {
        self.allocator.slabs(disk) > 0
    }

    fn set(&mut self, extent: &Extent, from: Owner, to: Owner) {
        let start = usize::from(extent.offset_units);
        let units = (extent.padded_bytes(self.sector_bytes) / UNIT_BYTES) as usize;
        for owner in &mut self.owners.get_mut(&extent.slab).unwrap()[start..start + units] {
            assert_eq!(*owner, from, "{extent:?} becomes {to:?}");
            *owner = to;
        }
    }

    fn set_slab(&mut self, slab: SlabId, from: Owner, to: Owner) {
        self.set(&Extent { slab, offset_units: 0, len_bytes: MIB }, from, to);
    }

    fn turn_all(&mut self, from: Owner, to: Owner) {
        self.owners.values_mut().flatten().filter(|owner| **owner == from).for_each(|owner| *owner = to);
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Allocate { len_bytes, elsewhere, not_on, backlog_bytes } => {
                self.allocate(len_bytes, elsewhere.then_some(not_on), backlog_bytes);
            }
            Step::Free(index) if !self.live.is_empty() => {
                let extent = self.live.swap_remove(index.index(self.live.len()));
                self.allocator.free(&extent);
                self.set(&extent, Owner::Block, Owner::Freeing);
            }
            Step::Begin => {
                self.allocator.begin_checkpoint();
                self.turn_all(Owner::Freeing, Owner::Leaving);
            }
            Step::Finish => self.finish(),
            Step::Abort => {
                while self.allocator.abort_some() {}
                self.turn_all(Owner::Leaving, Owner::Freeing);
            }
            Step::TakeMetadata(disk) => match self.allocator.take_metadata_slab(disk) {
                Some(slab) => {
                    assert_eq!(self.disk_of(slab), disk);
                    self.set_slab(slab, Owner::Nobody, Owner::Block);
                    self.metadata.push(slab);
                }
                None => assert_eq!(self.allocator.free_slabs(disk), 0),
            },
            Step::FreeMetadata(index) if !self.metadata.is_empty() => {
                let slab = self.metadata.swap_remove(index.index(self.metadata.len()));
                self.allocator.free_metadata_slab(slab);
                self.set_slab(slab, Owner::Block, Owner::Freeing);
            }
            Step::Victims(count) => {
                for slab in choose_victims(&mut self.allocator, count) {
                    assert!(self.evacuating.insert(slab) && self.writable[usize::from(self.disk_of(slab))]);
                }
            }
            Step::EvacuateDisk(disk) => {
                evacuate(&mut self.allocator, disk);
                self.writable[usize::from(disk)] &= !self.has_disk(disk);
                let slabs: Vec<SlabId> =
                    self.owners.keys().copied().filter(|slab| self.disk_of(*slab) == disk).collect();
                self.evacuating.extend(slabs.into_iter().filter(|slab| self.allocator.is_evacuating(*slab)));
                assert!(self.live.iter().all(|e| self.disk_of(e.slab) != disk || self.evacuating.contains(&e.slab)));
            }
            Step::Writable(disk, yes) => {
                self.allocator.set_writable(disk, yes);
                self.writable[usize::from(disk)] = yes || !self.has_disk(disk);
            }
            Step::Reserve(disk, slabs) => {
                self.allocator.set_reserve(disk, slabs);
                self.reserve[usize::from(disk)] = if self.has_disk(disk) { slabs } else { 0 };
            }
            Step::Expand(disk) if self.next_slab < 20 => self.expand(disk, 1),
            Step::Remove(disk, returns) => self.remove(disk, returns),
            Step::Free(_) | Step::FreeMetadata(_) | Step::Expand(_) => {}
        }
        self.compare();
    }

    fn allocate(&mut self, len_bytes: u32, elsewhere: Option<Option<u16>>, backlog_bytes: u64) {
        let mut loads: Vec<DiskLoad> = (0..DISKS).map(|disk| idle(disk, 1e8 * f64::from(disk + 1))).collect();
        loads[0].backlog_bytes = backlog_bytes;
        loads[1].is_slow = backlog_bytes.is_multiple_of(7);
        loads[2].is_writable = !backlog_bytes.is_multiple_of(11);
        let free_before: Vec<u32> = (0..DISKS).map(|disk| self.allocator.free_slabs(disk)).collect();
        let not_on = elsewhere.flatten();
        let found = match elsewhere {
            Some(not_on) => self.allocator.allocate_elsewhere(len_bytes, not_on, &loads),
            None => self.allocator.allocate(len_bytes, &loads),
        };
        let may_use = |disk: u16| {
            self.writable[usize::from(disk)] && loads[usize::from(disk)].is_writable && not_on != Some(disk)
        };
        match found {
            Ok(extent) => {
                let disk = self.disk_of(extent.slab);
                assert_eq!(extent.len_bytes, len_bytes);
                assert!(may_use(disk), "{extent:?} on disk {disk}");
                assert!(!self.evacuating.contains(&extent.slab), "{extent:?} is in a slab that is emptied");
                let left = self.allocator.free_slabs(disk);
                assert!(left == free_before[usize::from(disk)] || left >= self.reserve[usize::from(disk)]);
                self.set(&extent, Owner::Nobody, Owner::Block);
                self.live.push(extent);
            }
            Err(NoSpace::BadLength) => assert!(len_bytes > MIB),
            Err(_) => {
                for disk in (0..DISKS).filter(|disk| may_use(*disk)) {
                    assert!(free_before[usize::from(disk)] <= self.reserve[usize::from(disk)], "disk {disk} has room");
                }
            }
        }
    }

    fn finish(&mut self) {
        let used = |owners: &[Owner]| owners.iter().any(|owner| *owner != Owner::Nobody);
        let before: BTreeSet<SlabId> = self.owners.iter().filter(|(_, units)| used(units)).map(|(id, _)| *id).collect();
        let mut emptied = finish(&mut self.allocator);
        emptied.sort_unstable();
        self.turn_all(Owner::Leaving, Owner::Nobody);
        let expected: Vec<SlabId> = before.into_iter().filter(|slab| !used(&self.owners[slab])).collect();
        assert_eq!(emptied, expected);
        emptied.iter().for_each(|slab| _ = self.evacuating.remove(slab));
    }

    /// Removes the disk. If it `returns`, it does as after a restart: what was freed and not yet returned is free.
    fn remove(&mut self, disk: u16, returns: bool) {
        drop(self.allocator.remove_disk(disk));
        let of_disk = |ranges: &[SlabRange], slab: SlabId| {
            let has = |range: &SlabRange| (range.first.0..range.first.0 + range.count).contains(&slab.0);
            ranges.iter().any(|range| range.disk == disk && has(range))
        };
        let ranges = self.ranges.clone();
        let (gone, live) = self.live.drain(..).partition(|extent| of_disk(&ranges, extent.slab));
        let (gone_metadata, metadata) = self.metadata.drain(..).partition(|slab| of_disk(&ranges, *slab));
        let (gone, gone_metadata): (Vec<Extent>, Vec<SlabId>) = (gone, gone_metadata);
        (self.live, self.metadata) = (live, metadata);
        self.evacuating.retain(|slab| !of_disk(&ranges, *slab));
        self.owners.retain(|slab, _| !of_disk(&ranges, *slab));
        self.writable[usize::from(disk)] = true;
        self.reserve[usize::from(disk)] = 0;
        if !returns {
            gone.iter().for_each(|extent| self.allocator.free(extent));
            self.ranges.retain(|range| range.disk != disk);
            return;
        }
        for range in ranges.into_iter().filter(|range| range.disk == disk) {
            self.add(range);
        }
        for slab in gone_metadata {
            self.allocator.claim_metadata(slab).unwrap();
            self.set_slab(slab, Owner::Nobody, Owner::Block);
            self.metadata.push(slab);
        }
        for extent in gone {
            self.allocator.claim(&extent).unwrap();
            assert_eq!(self.allocator.claim(&extent), Err(ClaimError::Overlap));
            self.set(&extent, Owner::Nobody, Owner::Block);
            self.live.push(extent);
        }
    }

    fn compare(&self) {
        self.allocator.check().unwrap();
        let count = |wanted: &[Owner]| {
            let units = self.owners.values().flatten().filter(|owner| wanted.contains(owner)).count();
            units as u64 * u64::from(UNIT_BYTES)
        };
        let blocks: u64 = (0..DISKS).map(|disk| self.allocator.allocated_bytes(disk)).sum();
        assert_eq!(blocks + self.metadata.len() as u64 * u64::from(MIB), count(&[Owner::Block]));
        assert_eq!(self.allocator.freeing_bytes(), count(&[Owner::Freeing, Owner::Leaving]));
    }

    /// Checks that nothing has leaked: when all is freed, all is free.
    fn end(mut self) {
        self.live.iter().for_each(|extent| self.allocator.free(extent));
        self.metadata.iter().for_each(|slab| self.allocator.free_metadata_slab(*slab));
        checkpoint(&mut self.allocator);
        for disk in 0..DISKS {
            assert_eq!(self.allocator.free_slabs(disk), self.allocator.slabs(disk));
        }
        assert_eq!(self.allocator.freeing_bytes(), 0);
    }
}

proptest! {
    #[test]
    fn nothing_overlaps_and_nothing_leaks(
        has_small_sectors: bool,
        placement in prop::sample::select(Placement::ALL.map(|(_, placement)| placement).to_vec()),
        steps in prop::collection::vec(step(), 1..250),
    ) {
        let mut model = Model::new(if has_small_sectors { 512 } else { 4096 }, placement);
        for step in &steps {
            model.run(step);
        }
        model.end();
    }
}
