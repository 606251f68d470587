//! Emptying slabs and disks.

use super::*;

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
    evacuate(&mut allocator, 1);
    assert_eq!(allocator.evacuating_bytes(), 128 * 8192);
    for extent in blocks.iter().filter(|extent| allocator.is_evacuating(extent.slab)).collect::<Vec<_>>() {
        let moved = allocator.allocate_elsewhere(8192, Some(1), &loads).unwrap();
        assert_eq!(disk_of(&allocator, &moved), 0);
        allocator.free(extent);
    }
    checkpoint(&mut allocator);
    assert_eq!((allocator.allocated_bytes(1), allocator.free_slabs(1)), (0, 4));
    drop(allocator.remove_disk(1));
    assert_eq!((allocator.capacity_bytes(), allocator.locate(SlabId(5))), (4 * u64::from(MIB), None));
    allocator.free(&Extent { slab: SlabId(5), offset_units: 0, len_bytes: 8192 });
    allocator.check().unwrap();
}
