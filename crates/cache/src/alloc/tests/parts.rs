//! Inserts wait for the allocator's lock: no call visits more than some slabs.

use super::super::allocator::DROPPED_AT_ONCE;
use super::super::evacuation::{EVACUATED_AT_ONCE, SURVEYED_AT_ONCE};
use super::super::lists::{PARTS_AT_ONCE, PARTS_OF_SLAB};
use super::super::search::{OPENED_AT_ONCE, RANKED_AT_ONCE};
use super::*;
use crate::entry::UNIT_BYTES;

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
        let (mut left, mut emptied) = (count(&allocator, |disk| disk.leaving.len()), Vec::new());
        assert_eq!(left, 1200);
        loop {
            let has_more = allocator.finish_some(&mut emptied);
            let visited = left - count(&allocator, |disk| disk.leaving.len());
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
    drop(allocator.remove_disk(1));
    let is_left = |extent: &&Extent| extent.slab.0 == 3 && extent.offset_units < 1024;
    blocks.iter().filter(is_left).for_each(|extent| allocator.free(extent));
    checkpoint(&mut allocator);
    let victims = allocator.choose_victims(&mut survey, 20);
    assert!(victims.len() == 20 && victims.iter().all(|slab| slab.0 < 1000 && slab.0 != 3), "{victims:?}");
    allocator.check().unwrap();
}

#[test]
fn a_checkpoint_is_aborted_in_parts() {
    let (mut allocator, loads) = cache(MIB, Placement::Load, &[600, 600]);
    let blocks = fill(&mut allocator, &loads);
    blocks.iter().filter(|extent| extent.offset_units < 16).for_each(|extent| allocator.free(extent));
    allocator.begin_checkpoint();
    let mut left = 1200;
    while allocator.abort_some() {
        let now_left = count(&allocator, |disk| disk.leaving.len());
        assert!(left - now_left <= PARTS_AT_ONCE / PARTS_OF_SLAB, "{left} slabs, then {now_left}");
        left = now_left;
        // Space is freed meanwhile, also in slabs of either kind.
        let freed: Vec<&Extent> = blocks.iter().filter(|extent| extent.slab.0 as usize % 1200 == left).collect();
        freed.iter().skip(1).take(1).for_each(|extent| allocator.free(extent));
        allocator.check().unwrap();
    }
    let lists = |disk: &Disk| (disk.leaving.len(), disk.freeing.len());
    assert_eq!(allocator.disks.iter().map(lists).collect::<Vec<_>>(), [(0, 600); 2]);
    assert!(allocator.freeing_bytes() > 1200 * 8192);
    checkpoint(&mut allocator);
    assert_eq!(allocator.freeing_bytes(), 0);
}

#[test]
fn a_disk_is_emptied_and_removed_in_parts() {
    let (mut allocator, loads) = cache(MIB, Placement::Load, &[1500, 1500]);
    let blocks = fill(&mut allocator, &loads);
    blocks.iter().filter(|extent| extent.offset_units < 16).for_each(|extent| allocator.free(extent));
    allocator.begin_checkpoint();

    let mut marked = 0;
    while allocator.evacuate_some(1) {
        let now_marked = count(&allocator, |disk| disk.evacuating.len());
        assert!(now_marked - marked <= EVACUATED_AT_ONCE, "{marked} slabs, then {now_marked}");
        marked = now_marked;
        allocator.check().unwrap();
    }
    assert_eq!(allocator.evacuating_slabs(), (1500..3000).map(SlabId).collect::<Vec<_>>());
    assert_eq!(allocator.free_bytes(), 0);

    // With a checkpoint under way, and with one that is still to begin.
    let mut removed = allocator.remove_disk(1);
    allocator.check().unwrap();
    let mut parts = 0;
    while removed.drop_some() {
        parts += 1;
    }
    assert_eq!(parts, 1500_usize.div_ceil(DROPPED_AT_ONCE));
    assert_eq!((finish(&mut allocator), allocator.freeing_bytes()), (vec![], 0));
    assert_eq!(allocator.free_bytes(), 1500 * 8192);
}

/// 20 slabs have room for a block of 60 KiB, 80 for one of 20 KiB, and all were passed over.
#[test]
fn short_blocks_leave_long_free_ranges_to_long_ones() {
    let (mut allocator, loads) = cache(MIB, Placement::Load, &[100]);
    for slab in 0..100 {
        let kib = if slab < 20 { [vec![64; 14], vec![36, 32]].concat() } else { [vec![64; 15], vec![44]].concat() };
        for len_bytes in kib.into_iter().map(|kib| kib << 10) {
            assert_eq!(allocator.allocate(len_bytes, &loads).map(|extent| extent.slab), Ok(SlabId(slab)));
        }
    }
    for stored in 0..60 {
        allocator.allocate(20 << 10, &loads).unwrap_or_else(|why| panic!("{why:?} after {stored} short ones"));
    }
    for stored in 0..20 {
        allocator.allocate(60 << 10, &loads).unwrap_or_else(|why| panic!("{why:?} after {stored} long ones"));
    }
    allocator.check().unwrap();
}

#[test]
fn few_of_the_slabs_that_were_passed_over_are_ranked_at_once() {
    let (mut allocator, loads) = cache(MIB, Placement::Load, &[300, 300]);
    let long = std::iter::from_fn(|| allocator.allocate(50_000, &loads).ok()).count();
    assert_eq!(long, 600 * 19);

    // In each slab there is room for one short block more.
    for stored in 0..600 {
        allocator.allocate(17_000, &loads).unwrap_or_else(|why| panic!("{why:?} after {stored}"));
        let ranked = |disk: &Disk| disk.buckets.iter().map(|bucket| bucket.candidates.len()).sum();
        assert!(count(&allocator, ranked) <= 2 * RANKED_AT_ONCE);
    }
    assert_eq!(allocator.allocate(17_000, &loads), Err(NoSpace::Full));
    allocator.check().unwrap();
}

#[test]
fn few_slabs_are_opened_for_one_block() {
    let (mut allocator, loads) = cache(MIB, Placement::Load, &[600]);
    let blocks: Vec<Extent> = std::iter::from_fn(|| allocator.allocate(50_000, &loads).ok()).collect();
    blocks.iter().filter(|extent| extent.offset_units == 0).for_each(|extent| allocator.free(extent));
    checkpoint(&mut allocator);

    // No slab has room for a longer block.
    let passed = |disk: &Disk| disk.buckets.iter().map(|bucket| bucket.passed.len()).sum();
    let (mut before, mut tries) = (count(&allocator, passed), 0);
    while count(&allocator, passed) < 599 {
        let why = allocator.allocate(60_000, &loads).unwrap_err();
        let now = count(&allocator, passed);
        // Room may be in what was not opened.
        let expected = if now - before == OPENED_AT_ONCE { NoSpace::NotFoundYet } else { NoSpace::Full };
        assert_eq!(why, expected);
        assert!((1..=OPENED_AT_ONCE).contains(&(now - before)), "{before} slabs, then {now}");
        (before, tries) = (now, tries + 1);
    }
    assert_eq!(tries, 600_usize.div_ceil(OPENED_AT_ONCE));
    allocator.check().unwrap();
}
