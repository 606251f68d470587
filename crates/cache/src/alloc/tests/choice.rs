//! Which slab on which disk takes the next block.

use super::super::bucket::Buckets;
use super::super::geometry::ClaimError;
use super::*;

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
    while allocator.abort_some() {}
    assert_eq!(allocator.freeing_bytes(), 8192);
    checkpoint(&mut allocator);
    assert_eq!(allocator.allocate(8192, &loads), Ok(blocks[3]));
    assert_eq!(allocator.allocate(8192, &loads), Err(NoSpace::Full));
    blocks.iter().for_each(|extent| allocator.free(extent));
    assert_eq!(checkpoint(&mut allocator), [SlabId(0)]);
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
