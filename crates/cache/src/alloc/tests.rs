//! Stories about the choice of slab and disk, and random sequences of all operations against a map of owners.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::bucket::Buckets;
use super::evacuation::SURVEYED_AT_ONCE;
use super::geometry::ClaimError;
use super::lists::{PARTS_AT_ONCE, PARTS_OF_SLAB};
use super::placement::DiskLoads;
use super::*;
use crate::config::Placement;
use crate::entry::{Extent, SlabId, UNIT_BYTES};

const MIB: u32 = 1 << 20;

/// Returns an allocator of disks of equal speed, their slabs numbered consecutively, and the disks' loads.
fn cache(slab_bytes: u32, placement: Placement, slabs_by_disk: &[u32]) -> (Allocator, Vec<DiskLoad>) {
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

fn idle(disk: u16, write_bytes_per_s: f64) -> DiskLoad {
    DiskLoad { disk, write_bytes_per_s, backlog_bytes: 0, is_writable: true, is_slow: false }
}

fn disk_of(allocator: &Allocator, extent: &Extent) -> u16 {
    allocator.locate(extent.slab).unwrap().0
}

/// Allocates blocks of 8 KiB until there is no more space.
fn fill(allocator: &mut Allocator, loads: &DiskLoads) -> Vec<Extent> {
    std::iter::from_fn(|| allocator.allocate(8192, loads).ok()).collect()
}

fn checkpoint(allocator: &mut Allocator) -> Vec<SlabId> {
    allocator.begin_checkpoint();
    let emptied = finish(allocator);
    allocator.check().unwrap();
    emptied
}

fn finish(allocator: &mut Allocator) -> Vec<SlabId> {
    let mut emptied = Vec::new();
    while allocator.finish_some(&mut emptied) {
        // The next checkpoint learns of nothing, and inserts find what is free already.
        allocator.check().unwrap();
    }
    emptied
}

fn choose_victims(allocator: &mut Allocator, want_free_slabs: u32) -> Vec<SlabId> {
    let mut survey = Survey::default();
    while allocator.survey(&mut survey) {}
    allocator.choose_victims(&mut survey, want_free_slabs)
}

/// Returns a full cache that has evicted its oldest tenths, so that all disks have wholly free slabs.
fn full_and_evicted(placement: Placement, slabs_by_disk: &[u32]) -> (Allocator, Vec<DiskLoad>) {
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
fn disks_in_order(allocator: &mut Allocator, loads: &DiskLoads) -> Vec<u16> {
    let mut blocks = fill(allocator, loads);
    blocks.dedup_by_key(|extent| extent.slab);
    blocks.iter().map(|extent| disk_of(allocator, extent)).collect()
}

#[test]
fn the_seeds_order_fills_one_disk_after_the_other() {
    let (mut allocator, loads) = full_and_evicted(Placement::Seed, &[50, 50, 50]);
    let expected = [[0u16; 10], [1; 10], [2; 10]].concat();
    assert_eq!(disks_in_order(&mut allocator, &loads), expected);
    allocator.check().unwrap();
}

#[test]
fn slabs_of_an_expansion_come_last_whatever_their_disk() {
    let (mut allocator, loads) = full_and_evicted(Placement::Seed, &[50, 50]);
    let more = SlabRange { first: SlabId(100), count: 5, disk: 0, offset_bytes: 1 << 30 };
    allocator.add_range(more).unwrap();
    assert_eq!(allocator.locate(SlabId(102)), Some((0, (1 << 30) + 2 * u64::from(MIB))));
    assert_eq!(disks_in_order(&mut allocator, &loads), [[0u16; 10].as_slice(), &[1; 10], &[0; 5]].concat());
    allocator.check().unwrap();
}

#[test]
fn a_lot_spreads_slabs_over_disks_but_one_at_a_time() {
    let (mut allocator, loads) = full_and_evicted(Placement::Discriminant, &[200, 200, 200]);
    let order = disks_in_order(&mut allocator, &loads);
    assert_eq!(order.len(), 120);
    let switches = order.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(switches > 60, "{switches} switches in {order:?}");
    for disk in 0..3 {
        let early = order[..60].iter().filter(|other| **other == disk).count();
        assert!((10..=30).contains(&early), "disk {disk}: {early} of the first 60");
    }
}

#[test]
fn load_gives_every_mebibyte_to_all_disks_by_speed() {
    let (mut allocator, _) = cache(MIB, Placement::Load, &[100, 100]);
    let loads = [idle(0, 100e6), idle(1, 200e6)];
    for _ in 0..50 {
        let blocks: Vec<Extent> = (0..128).map(|_| allocator.allocate(8192, &loads).unwrap()).collect();
        let slower = blocks.iter().filter(|extent| disk_of(&allocator, extent) == 0).count();
        assert!((42..=43).contains(&slower), "{slower} of 128");
    }
    allocator.check().unwrap();
}

#[test]
fn a_backlog_outweighs_the_turn_and_leaves_no_claim() {
    let (mut allocator, mut loads) = cache(MIB, Placement::Load, &[100, 100]);
    loads[0].backlog_bytes = 64 << 20;
    for _ in 0..1000 {
        let extent = allocator.allocate(8192, &loads).unwrap();
        assert_eq!(disk_of(&allocator, &extent), 1);
    }
    loads[0].backlog_bytes = 0;
    let blocks: Vec<Extent> = (0..100).map(|_| allocator.allocate(8192, &loads).unwrap()).collect();
    let first = blocks.iter().filter(|extent| disk_of(&allocator, extent) == 0).count();
    assert!((49..=51).contains(&first), "{first} of 100");
}

#[test]
fn a_slow_disk_gets_a_trickle_and_a_full_one_nothing() {
    let (mut allocator, mut loads) = cache(MIB, Placement::Load, &[20, 20]);
    loads[1].is_slow = true;
    let blocks: Vec<Extent> = (0..1300).map(|_| allocator.allocate(8192, &loads).unwrap()).collect();
    let slow = blocks.iter().filter(|extent| disk_of(&allocator, extent) == 1).count();
    assert!((18..=22).contains(&slow), "{slow} of 1300");
    // Once the other disk is full, this one must take the block.
    let rest = fill(&mut allocator, &loads);
    assert_eq!(blocks.len() + rest.len(), 40 * 128);
}

#[test]
fn blocks_inserted_in_a_row_lie_in_a_row() {
    let (mut allocator, loads) = cache(MIB, Placement::Load, &[4, 4]);
    for load in &loads[..2] {
        let only = [*load];
        let blocks: Vec<Extent> = (0..128).map(|_| allocator.allocate(8000, &only).unwrap()).collect();
        assert!(blocks.windows(2).all(|pair| pair[1].offset_units == pair[0].offset_units + 16));
    }
}

#[test]
fn the_bucket_of_a_length() {
    let check = |slab_bytes, sector_bytes, count, table: &[(u32, Option<(u32, u32)>)]| {
        let buckets = Buckets::new(Geometry { slab_bytes, sector_bytes });
        assert_eq!(buckets.count(), count);
        for (len_bytes, expect) in table {
            let found = buckets.of(*len_bytes).map(|(bucket, units)| (buckets.max_bytes(bucket), units * 512));
            assert_eq!(found, *expect, "{len_bytes} bytes, sectors of {sector_bytes}");
        }
    };
    check(
        32 * MIB,
        512,
        36,
        &[
            (0, None),
            (1, Some((512, 512))),
            (16_384, Some((16_384, 16_384))),
            (16_385, Some((65_536, 16_896))),
            (65_537, Some((262_144, 66_048))),
            (2 * MIB, Some((32 * MIB, 2 * MIB))),
            (16 * MIB, Some((32 * MIB, 16 * MIB))),
            (16 * MIB + 1, None),
        ],
    );
    check(MIB, 4096, 7, &[(5000, Some((8192, 8192))), (300_000, Some((MIB, 303_104))), (MIB + 1, None)]);
}

#[test]
fn freed_space_waits_for_a_checkpoint_that_begins_later() {
    let (mut allocator, loads) = cache(MIB, Placement::Load, &[1]);
    let blocks = fill(&mut allocator, &loads);
    allocator.free(&blocks[5]);
    allocator.begin_checkpoint();
    allocator.free(&blocks[3]);
    assert_eq!(allocator.allocate(8192, &loads), Err(NoSpace::UntilCheckpoint));
    assert_eq!(finish(&mut allocator), []);
    assert_eq!(allocator.allocate(8192, &loads), Ok(blocks[5]));
    assert_eq!(allocator.allocate(8192, &loads), Err(NoSpace::UntilCheckpoint));
    allocator.begin_checkpoint();
    allocator.abort_checkpoint();
    assert_eq!(allocator.freeing_bytes(), 8192);
    checkpoint(&mut allocator);
    assert_eq!(allocator.allocate(8192, &loads), Ok(blocks[3]));
    assert_eq!(allocator.allocate(8192, &loads), Err(NoSpace::Full));
    blocks.iter().for_each(|extent| allocator.free(extent));
    assert_eq!(checkpoint(&mut allocator), [SlabId(0)]);
}

/// Inserts wait for the allocator's lock: no call visits more than some slabs.
#[test]
fn a_checkpoint_begins_without_a_look_and_ends_in_parts() {
    for (len_bytes, freed, parts) in [(8192, 64, 1), (65_536, 1, 1), (65_536, 8, 8)] {
        let (mut allocator, loads) = cache(MIB, Placement::Load, &[600, 600]);
        let slots = MIB / len_bytes;
        let blocks: Vec<Extent> = (0..1200 * slots).map(|_| allocator.allocate(len_bytes, &loads).unwrap()).collect();
        // Every other one, so that each is a range.
        let is_freed = |extent: &Extent| {
            let slot = u32::from(extent.offset_units) * UNIT_BYTES / len_bytes;
            slot.is_multiple_of(2) && slot / 2 < freed
        };
        blocks.iter().filter(|extent| is_freed(extent)).for_each(|extent| allocator.free(extent));
        let seen = |allocator: &Allocator| allocator.slab(SlabId(0)).and_then(|slab| Some(slab.data()?.space.freed(0)));
        let before = seen(&allocator);
        allocator.begin_checkpoint();
        assert_eq!(seen(&allocator), before, "the slab was visited");

        let most = PARTS_AT_ONCE.div_ceil(PARTS_OF_SLAB + parts);
        let (mut left, mut emptied) = (allocator.leaving.len(), Vec::new());
        assert_eq!(left, 1200);
        loop {
            let has_more = allocator.finish_some(&mut emptied);
            let visited = left - allocator.leaving.len();
            assert!(visited <= most, "{visited} slabs of blocks of {len_bytes} bytes at once, at most {most}");
            left -= visited;
            if !has_more {
                break;
            }
        }
        allocator.check().unwrap();
        assert_eq!((left, allocator.freeing_bytes()), (0, 0));
    }
}

#[test]
fn victims_are_chosen_after_a_survey_in_parts() {
    let (mut allocator, loads) = cache(MIB, Placement::Load, &[1000, 1000]);
    let blocks = fill(&mut allocator, &loads);
    blocks.iter().filter(|extent| extent.offset_units >= 1024).for_each(|extent| allocator.free(extent));
    checkpoint(&mut allocator);
    let (mut survey, mut visited) = (Survey::default(), Vec::new());
    loop {
        let next = survey.next;
        if !allocator.survey(&mut survey) {
            break;
        }
        visited.push(survey.next - next);
    }
    assert!(
        visited.iter().all(|slabs| *slabs <= SURVEYED_AT_ONCE) && visited.iter().sum::<u32>() == 2000,
        "{visited:?}"
    );

    // One is removed meanwhile, and one emptied.
    allocator.remove_disk(1);
    let is_left = |extent: &&Extent| extent.slab.0 == 3 && extent.offset_units < 1024;
    blocks.iter().filter(is_left).for_each(|extent| allocator.free(extent));
    checkpoint(&mut allocator);
    let victims = allocator.choose_victims(&mut survey, 20);
    assert!(victims.len() == 20 && victims.iter().all(|slab| slab.0 < 1000 && slab.0 != 3), "{victims:?}");
    allocator.check().unwrap();
}

#[test]
fn another_size_needs_an_evacuation() {
    let (mut allocator, loads) = cache(MIB, Placement::Load, &[5, 5]);
    let blocks = fill(&mut allocator, &loads);
    let mut live: Vec<Extent> = Vec::new();
    for (index, extent) in blocks.into_iter().enumerate() {
        if index % 4 == 0 { allocator.free(&extent) } else { live.push(extent) }
    }
    checkpoint(&mut allocator);
    assert_eq!(allocator.free_bytes(), 10 * u64::from(MIB) / 4);
    assert_eq!(allocator.allocate(65_536, &loads), Err(NoSpace::Full));

    let victims = choose_victims(&mut allocator, 10);
    assert_eq!(victims.len(), 2, "as many as the others have room for");
    let (to_move, stay): (Vec<Extent>, Vec<Extent>) =
        live.into_iter().partition(|extent| allocator.is_evacuating(extent.slab));
    assert_eq!(allocator.evacuating_bytes(), to_move.len() as u64 * 8192);
    for extent in &to_move {
        let moved = allocator.allocate_elsewhere(extent.len_bytes, None, &loads).unwrap();
        assert!(!victims.contains(&moved.slab) && !stay.contains(&moved));
        allocator.free(extent);
    }
    let mut emptied = checkpoint(&mut allocator);
    emptied.sort();
    assert_eq!(emptied.len(), 2);
    assert!(allocator.allocate(65_536, &loads).is_ok());
    let report = allocator.report();
    assert_eq!((report.bitmap_slabs, report.extent_slabs, report.free_slabs), (8, 1, 1));
    assert_eq!(report.buckets.iter().map(|row| row.usage.slabs_by_tenth.iter().sum::<u32>()).sum::<u32>(), 9);
}

#[test]
fn the_order_of_a_report_is_that_in_which_slabs_are_opened() {
    // Begun slabs of both disks, as full as chance would have it; the seed's order knows no lots.
    let (mut allocator, loads) = cache(MIB, Placement::Seed, &[6, 6]);
    let mut blocks: Vec<Extent> = (0..150).map(|_| allocator.allocate(65_536, &loads).unwrap()).collect();
    for extent in blocks.extract_if(.., |extent| extent.offset_units.is_multiple_of(48) || extent.slab.0 % 3 == 0) {
        allocator.free(&extent);
    }
    for _ in 0..3 {
        checkpoint(&mut allocator);
    }
    let order = allocator.report().order;
    let fullness: Vec<(u32, u64)> = order.iter().map(|it| (it.max_size_bytes, it.allocated_bytes)).collect();
    assert!(fullness.is_sorted() && order.len() == 12, "{order:?}");
    let mut opened: Vec<u32> = Vec::new();
    while let Ok(extent) = allocator.allocate(65_536, &loads) {
        if opened.last() != Some(&extent.slab.0) {
            opened.push(extent.slab.0);
        }
    }
    // The slab that is open already comes first, wherever it stands.
    let open = opened.remove(0);
    let expected: Vec<u32> = order.iter().map(|it| it.slab).filter(|slab| *slab != open).collect();
    let has_room = |slab: &&u32| opened.contains(*slab);
    assert_eq!(opened, expected.iter().filter(has_room).copied().collect::<Vec<_>>(), "{order:?}");
}

#[test]
fn what_is_moved_fills_what_is_begun_on_any_disk() {
    let (mut allocator, loads) = cache(MIB, Placement::Load, &[4, 4]);
    allocator.allocate(8192, &loads[1..]).unwrap();
    for _ in 0..127 {
        let moved = allocator.allocate_elsewhere(8192, None, &loads).unwrap();
        assert_eq!(disk_of(&allocator, &moved), 1);
    }
    assert_eq!((allocator.free_slabs(0), allocator.free_slabs(1)), (4, 3));
    allocator.allocate_elsewhere(8192, None, &loads).unwrap();
    assert_eq!(allocator.free_slabs(0) + allocator.free_slabs(1), 6);
    allocator.check().unwrap();
}

#[test]
fn a_disk_is_emptied_and_goes() {
    let (mut allocator, loads) = cache(MIB, Placement::Load, &[4, 4]);
    let blocks: Vec<Extent> = (0..256).map(|_| allocator.allocate(8192, &loads).unwrap()).collect();
    assert_eq!(allocator.evacuate_disk(1), 128 * 8192);
    for extent in blocks.iter().filter(|extent| allocator.is_evacuating(extent.slab)).collect::<Vec<_>>() {
        let moved = allocator.allocate_elsewhere(8192, Some(1), &loads).unwrap();
        assert_eq!(disk_of(&allocator, &moved), 0);
        allocator.free(extent);
    }
    checkpoint(&mut allocator);
    assert_eq!((allocator.allocated_bytes(1), allocator.free_slabs(1)), (0, 4));
    allocator.remove_disk(1);
    assert_eq!((allocator.capacity_bytes(), allocator.locate(SlabId(5))), (4 * u64::from(MIB), None));
    allocator.free(&Extent { slab: SlabId(5), offset_units: 0, len_bytes: 8192 });
    allocator.check().unwrap();
}

#[test]
fn metadata_may_use_the_reserve() {
    let (mut allocator, loads) = cache(MIB, Placement::Load, &[4]);
    allocator.set_reserve(0, 2);
    assert_eq!(allocator.free_bytes(), 2 * u64::from(MIB));
    assert_eq!(fill(&mut allocator, &loads).len(), 256);
    let first = allocator.take_metadata_slab(0).unwrap();
    assert!(allocator.take_metadata_slab(0).is_some());
    assert_eq!(allocator.take_metadata_slab(0), None);
    allocator.free_metadata_slab(first);
    assert_eq!((allocator.metadata_slabs(0), allocator.take_metadata_slab(0)), (1, None));
    assert_eq!(checkpoint(&mut allocator), [first]);
    assert_eq!(allocator.take_metadata_slab(0), Some(first));
}

#[test]
fn a_long_block_does_not_spoil_a_slab_for_short_ones() {
    let (mut allocator, loads) = cache(MIB, Placement::Load, &[1]);
    assert!(allocator.allocate(600_000, &loads).is_ok());
    assert_eq!(allocator.allocate(600_000, &loads), Err(NoSpace::Full));
    assert!(allocator.allocate(400_000, &loads).is_ok());
    allocator.check().unwrap();
}

#[test]
fn claims_that_cannot_be() {
    let (mut allocator, loads) = cache(MIB, Placement::Load, &[3]);
    let place = |slab, offset_units, len_bytes| Extent { slab: SlabId(slab), offset_units, len_bytes };
    let meta = allocator.take_metadata_slab(0).unwrap();
    for (extent, expect) in [
        (place(0, 16, 8000), Ok(())),
        (place(0, 16, 8000), Err(ClaimError::Overlap)),
        (place(0, 24, 8000), Err(ClaimError::Misaligned)),
        (place(0, 0, 12_000), Err(ClaimError::WrongClass)),
        (place(0, 2048, 8000), Err(ClaimError::OutsideOfDisk)),
        (place(9, 0, 8000), Err(ClaimError::OutsideOfDisk)),
        (place(meta.0, 0, 8000), Err(ClaimError::MetadataSlab)),
        (place(1, 8, 40_000), Ok(())),
        (place(1, 0, 20_000), Err(ClaimError::Overlap)),
        (place(1, 1, 20_000), Err(ClaimError::Misaligned)),
        (place(1, 2040, 40_000), Err(ClaimError::OutsideOfDisk)),
        (place(1, 0, 0), Err(ClaimError::BadLength)),
        (place(1, 0, u32::MAX), Err(ClaimError::BadLength)),
    ] {
        assert_eq!(allocator.claim(&extent), expect, "{extent:?}");
        allocator.check().unwrap();
    }
    assert_eq!(allocator.claim_metadata(SlabId(0)), Err(ClaimError::Overlap));
    let range = |first, count| SlabRange { first: SlabId(first), count, disk: 1, offset_bytes: 0 };
    assert_eq!(allocator.add_range(range(2, 1)), Err(ClaimError::Overlap));
    assert_eq!(allocator.add_range(range(3, u32::MAX)), Err(ClaimError::OutsideOfDisk));
    // Unclaimed space is free.
    assert_eq!(allocator.allocate(8192, &loads), Ok(place(0, 0, 8192)));
    assert_eq!(allocator.allocate(8192, &loads), Ok(place(0, 32, 8192)));
    assert_eq!(allocator.allocate(8192, &[]), Err(NoSpace::NoDisk));
    allocator.free(&place(0, 64, 8192));
    assert!(allocator.check().is_err(), "it was not allocated");
}

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
    /// Removes the disk; it may return with what it had.
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
                self.allocator.abort_checkpoint();
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
                let bytes = self.allocator.evacuate_disk(disk);
                assert_eq!(bytes, self.allocator.allocated_bytes(disk));
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
        let emptied = finish(&mut self.allocator);
        self.turn_all(Owner::Leaving, Owner::Nobody);
        let expected: Vec<SlabId> = before.into_iter().filter(|slab| !used(&self.owners[slab])).collect();
        assert_eq!(emptied, expected);
        emptied.iter().for_each(|slab| _ = self.evacuating.remove(slab));
    }

    /// Removes the disk. If it `returns`, it does as after a restart: what was freed and not yet returned is free.
    fn remove(&mut self, disk: u16, returns: bool) {
        self.allocator.remove_disk(disk);
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
