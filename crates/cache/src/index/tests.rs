//! The index against plain maps, exact LRU distances, and its own promises of memory.

mod model;

use std::collections::{BTreeMap, HashMap, HashSet};

use super::recency::{OLDEST_AGE, Recency};
use super::table::{ENTRY_BYTES, Rest, Table};
use super::*;
use crate::entry::MAX_BLOCK_BYTES;

fn hash(key: u64) -> KeyHash {
    KeyHash::of(&key.to_le_bytes(), 7)
}

fn extent(number: u32, len_bytes: u32) -> Extent {
    Extent { slab: SlabId(number % SlabId::END), offset_units: number as u16, len_bytes }
}

fn known((extent, checksum): (Extent, u32)) -> Entry {
    Entry { extent, checksum, tick: 0 }
}

/// Inserts a block at once. Returns the displaced one.
fn insert(index: &Index, key: u64, len_bytes: u32) -> Option<Entry> {
    let token = index.begin_insert(&hash(key));
    match index.finish_insert(&hash(key), token, extent(key as u32, len_bytes), key as u32, |_, _| ()) {
        Finish::Indexed { displaced } => displaced,
        Finish::Superseded => panic!("nobody superseded it"),
    }
}

/// Sweeps the whole index, `step` entries at a time.
fn sweep_all(index: &Index, step: usize, mut visit: impl FnMut(KeyHash, &Entry) -> Verdict) {
    let mut cursor = Cursor::default();
    while !cursor.is_done() {
        index.sweep(&mut cursor, step, &mut visit);
    }
}

/// Evicts the oldest until no more than `limit_bytes` are left.
fn evict_to(index: &Index, limit_bytes: u64) {
    let surplus_bytes = index.block_bytes().saturating_sub(limit_bytes);
    let (cutoff, mut freed_bytes) = (index.cutoff_age(surplus_bytes), 0);
    sweep_all(index, 1000, |_, entry| {
        if freed_bytes >= surplus_bytes || index.age(entry) < cutoff {
            return Verdict::Keep;
        }
        freed_bytes += u64::from(entry.extent.len_bytes);
        Verdict::Evict
    });
}

/// Checks that the sums by age add up to the counters.
fn assert_sums_agree(index: &Index) {
    let (mut blocks, mut block_bytes, mut ghosts) = (0, 0, 0);
    for number in 0..INDEX_SHARDS {
        index.lock(number).0.table.for_each(|entry| {
            if is_ghost(entry) {
                ghosts += 1;
            } else {
                blocks += 1;
                block_bytes += u64::from(entry.extent.len_bytes);
            }
        });
    }
    assert_eq!((index.blocks(), index.block_bytes(), index.ghosts()), (blocks, block_bytes, ghosts));
    if block_bytes > 0 {
        let youngest_of_all = index.cutoff_age(block_bytes);
        let mut exact = u16::MAX;
        sweep_all(index, 1000, |_, entry| {
            exact = exact.min(index.age(entry));
            Verdict::Keep
        });
        assert!(youngest_of_all <= exact, "all are at least {youngest_of_all} old, one only {exact}");
        assert_eq!(index.cutoff_age(block_bytes + 1), 0);
    }
}

#[test]
fn entries_are_packed_without_loss() {
    let cases = [
        Entry { extent: Extent { slab: SlabId(0), offset_units: 0, len_bytes: 1 }, checksum: 0, tick: 0 },
        Entry {
            extent: Extent { slab: SlabId(SlabId::END - 1), offset_units: u16::MAX, len_bytes: MAX_BLOCK_BYTES },
            checksum: u32::MAX,
            tick: u16::MAX,
        },
        Entry {
            extent: Extent { slab: SlabId(0x01_02_03), offset_units: 0x0405, len_bytes: 0x06_07_08 },
            checksum: 0x090a_0b0c,
            tick: 0x0d0e,
        },
    ];
    for (number, entry) in cases.into_iter().enumerate() {
        let (mut table, rest) = (Table::new(), [number as u8; 9]);
        assert_eq!(table.insert(&rest, &entry), None);
        assert_eq!(table.find(&rest).map(|(_, entry)| entry), Some(entry));
    }
}

fn table_pass(table: &mut Table, mut keep: impl FnMut(&Rest, &mut Entry) -> bool) -> usize {
    let (mut position, mut shown) = (0, 0);
    while let Ok(from) = u32::try_from(position) {
        let (next, count) = table.visit(from, &mut keep);
        assert!(next > u64::from(from));
        (position, shown) = (next, shown + count);
    }
    shown
}

#[test]
fn a_table_grows_and_shrinks_like_a_map() {
    let (mut table, mut model) = (Table::new(), BTreeMap::new());
    let entry =
        |number: u32| Entry { extent: extent(number, 1 + number % 9000), checksum: number, tick: number as u16 };
    for number in 0..30_000_u32 {
        let rest = hash(u64::from(number % 20_000)).rest();
        assert_eq!(table.insert(&rest, &entry(number)), model.insert(rest, entry(number)));
    }
    let full_bytes = table.heap_bytes();
    assert!(full_bytes <= 20_000 * 24, "{full_bytes}");
    for number in (0..20_000).filter(|number| number % 50 != 0) {
        let rest = hash(number).rest();
        let (place, found) = table.find(&rest).expect("it is there");
        table.remove(place);
        assert_eq!(Some(found), model.remove(&rest));
        assert!(table.find(&rest).is_none());
    }
    assert_eq!((table.len(), model.len()), (400, 400));
    assert!(table.heap_bytes() < 400 * 32, "{} bytes for 400 entries", table.heap_bytes());
    let mut seen = Vec::new();
    let shown = table_pass(&mut table, |rest, entry| {
        seen.push((*rest, *entry));
        true
    });
    // In the order of hashes, every one of them once.
    assert_eq!((shown, seen), (400, model.into_iter().collect()));
    table_pass(&mut table, |_, _| false);
    assert_eq!(table.len(), 0);
    assert!(table.heap_bytes() < 1024, "{} bytes for nothing", table.heap_bytes());
}

#[test]
fn hashes_that_all_begin_alike_are_kept_all_the_same() {
    let mut table = Table::new();
    let rest = |number: u32| {
        let [a, b, c, d] = number.to_be_bytes();
        [1, 2, 3, 4, a, b, c, d, 0]
    };
    let entry = Entry { extent: extent(1, 1), checksum: 0, tick: 0 };
    for number in 0..3000 {
        table.insert(&rest(number), &entry);
    }
    assert!((0..3000).all(|number| table.find(&rest(number)).is_some()));
    assert_eq!(table_pass(&mut table, |_, _| true), 3000);
}

#[test]
fn a_pass_shows_what_stays_exactly_once_while_the_table_splits_and_merges() {
    let entry = Entry { extent: extent(1, 1), checksum: 0, tick: 0 };
    // Grows or shrinks a lot between two steps of the pass.
    for is_growing in [true, false] {
        let mut table = Table::new();
        let (stayers, others): (Vec<u64>, Vec<u64>) = ((0..2000).collect(), (2000..22_000).collect());
        let before = if is_growing { stayers.clone() } else { [&stayers[..], &others[..]].concat() };
        before.iter().for_each(|key| assert_eq!(table.insert(&hash(*key).rest(), &entry), None));
        let mut seen: HashMap<Rest, u32> = HashMap::new();
        let (mut position, mut changes) = (0, others.chunks(500));
        while let Ok(from) = u32::try_from(position) {
            let (next, _) = table.visit(from, |rest, _| {
                *seen.entry(*rest).or_default() += 1;
                true
            });
            position = next;
            for key in changes.next().into_iter().flatten() {
                let rest = hash(*key).rest();
                match table.find(&rest) {
                    Some((place, _)) => table.remove(place),
                    None => assert_eq!(table.insert(&rest, &entry), None),
                }
            }
        }
        assert!(changes.next().is_none() || !is_growing, "the pass was too short for the test");
        assert!(stayers.iter().all(|key| seen.get(&hash(*key).rest()) == Some(&1)));
        assert!(seen.values().all(|count| *count == 1));
    }
}

#[test]
fn whoever_began_last_wins() {
    let index = Index::new(1 << 20, 100.0, 1);
    let (key, place) = (hash(1), known((extent(1, 100), 1)));
    let finish = |token, number| index.finish_insert(&key, token, extent(number, 100), number, |_, _| ());
    let (first, second) = (index.begin_insert(&key), index.begin_insert(&key));
    assert_eq!(finish(second, 2), Finish::Indexed { displaced: None });
    assert_eq!(finish(first, 1), Finish::Superseded);
    assert_eq!(index.peek(&key).map(|entry| entry.checksum), Some(2));
    // A remove while the data is written: it must not come back.
    let third = index.begin_insert(&key);
    assert!(index.remove(&key, |_| ()).is_some());
    assert_eq!(finish(third, 3), Finish::Superseded);
    assert_eq!(index.lookup(&key), Found::Absent);
    // A corrupt block is removed while its successor is written: that one stays.
    let fourth = index.begin_insert(&key);
    assert_eq!(index.remove_same(&key, &place, |_| ()), None);
    assert_eq!(finish(fourth, 4), Finish::Indexed { displaced: None });
}

/// A freed place is written again: the former block's entry must not be taken for the present one's.
#[test]
fn another_block_at_the_same_place_is_another_block() {
    let index = Index::new(1 << 20, 100.0, 1);
    let (key, place) = (hash(1), extent(1, 100));
    let (former, present) = (known((place, 7)), known((place, 8)));
    let token = index.begin_insert(&key);
    index.finish_insert(&key, token, place, 8, |_, _| ());

    assert_eq!(index.remove_same(&key, &former, |_| ()), None);
    assert!(!index.relocate(&key, &former, extent(2, 100), |_, _| ()));
    index.while_current(&key, &former, || panic!("it is not current"));

    let mut is_done = false;
    index.while_current(&key, &present, || {
        assert!(index.shards[key.shard()].try_lock().is_err(), "nobody can change it meanwhile");
        is_done = true;
    });
    assert!(is_done && index.relocate(&key, &present, extent(2, 100), |_, _| ()));
    assert!(index.remove_same(&key, &known((extent(2, 100), 8)), |_| ()).is_some());
}

#[test]
fn whatever_happens_to_a_key_ends_its_lease() {
    let index = Index::new(1 << 20, 100.0, 1);
    let key = hash(1);
    let finish = |token, number| index.finish_insert(&key, token, extent(number, 100), number, |_, _| ());
    let lease = index.lease(&key).unwrap();
    assert_eq!(index.lease(&key), None, "somebody else's is there");
    let insert = index.begin_insert(&key);
    assert_eq!(index.lease(&key), None, "an insert is in flight");
    assert_eq!(finish(lease, 1), Finish::Superseded);
    assert_eq!(finish(insert, 2), Finish::Indexed { displaced: None });
    let lease = index.lease(&key).unwrap();
    index.remove(&key, |_| ());
    assert_eq!(finish(lease, 3), Finish::Superseded);
    let lease = index.lease(&key).unwrap();
    assert_eq!(finish(lease, 4), Finish::Indexed { displaced: None });
}

#[test]
fn ghosts_keep_to_their_budget_and_the_oldest_go() {
    let index = Index::new(1 << 20, 50.0, 1);
    for key in 0..1024 {
        insert(&index, key, 4096);
        if key % 16 == 15 {
            evict_to(&index, 1 << 18);
        }
    }
    // 1 MiB of blocks were evicted in all but 256 KiB; half of the capacity are 128 blocks.
    sweep_all(&index, 100, |_, _| Verdict::Keep);
    let ghosts: Vec<u64> = (0..1024).filter(|key| index.lookup(&hash(*key)) == Found::Ghost).collect();
    assert!((120..=128).contains(&ghosts.len()), "{}", ghosts.len());
    assert!(ghosts.iter().all(|key| (1024 - 64 - 136..1024 - 64).contains(key)), "{ghosts:?}");
    // Without a sweep, inserts keep the ghosts within bounds.
    let index = Index::new(1 << 24, 1.0, 1);
    for key in 0..20_000 {
        index.restore(
            hash(key),
            Entry { extent: Extent { slab: SlabId(SlabId::END), ..extent(0, 4096) }, checksum: 0, tick: 0 },
        );
    }
    (20_000..30_000).for_each(|key| assert_eq!(insert(&index, key, 4096), None));
    assert!(index.ghosts() < 200, "{} ghosts, 41 are the budget", index.ghosts());
    assert_sums_agree(&index);
    // No budget, no ghosts.
    let index = Index::new(1 << 20, 0.0, 1);
    insert(&index, 1, 4096);
    sweep_all(&index, 1, |_, _| Verdict::Evict);
    assert_eq!((index.lookup(&hash(1)), index.ghosts(), index.blocks()), (Found::Absent, 0, 0));
}

#[test]
fn the_cutoff_frees_what_was_asked_for_and_the_oldest_of_it() {
    let capacity_bytes = 64 << 20;
    let index = Index::new(capacity_bytes, 0.0, 1);
    // A tick is 128 KiB: 32 blocks. The blocks of the first half are used again, many times.
    (0..16_384).for_each(|key| assert_eq!(insert(&index, key, 4096), None));
    assert_eq!((index.cutoff_age(0), index.age(&index.peek(&hash(0)).expect("there"))), (u16::MAX, 512));
    for rounds in [0, 1, 40] {
        for _ in 0..rounds {
            (0..8192).for_each(|key| assert!(matches!(index.lookup(&hash(key)), Found::Block(_))));
        }
        let wanted_bytes = 4 << 20;
        let cutoff = index.cutoff_age(wanted_bytes);
        let mut oldest = Vec::new();
        sweep_all(&index, 100, |_, entry| {
            if index.age(entry) >= cutoff {
                oldest.push(entry.checksum);
            }
            Verdict::Keep
        });
        let slack = if rounds == 40 { 128 * 32 } else { 32 };
        assert!((1024..=1024 + slack).contains(&oldest.len()), "{} after {rounds} rounds", oldest.len());
        let first = if rounds == 0 { 0 } else { 8192 };
        assert!(oldest.iter().all(|key| (first..first + 1024 + slack as u32).contains(key)));
    }
    assert_sums_agree(&index);
}

/// Returns numbers from 0 to 1, the same every time.
fn lots(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed;
    move || {
        // Marsaglia's xorshift.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Returns keys of a Zipf distribution with exponent 0.9.
fn zipf_keys(keys: u64, count: usize) -> Vec<u64> {
    let mut sum = 0.0;
    let weights: Vec<f64> = (1..=keys)
        .map(|rank| {
            sum += (rank as f64).powf(-0.9);
            sum
        })
        .collect();
    let mut lot = lots(42);
    (0..count).map(|_| weights.partition_point(|weight| *weight < lot() * sum) as u64).collect()
}

/// Counts the hits of LRU caches of every size, with an explicit stack.
fn exact_curve(keys: &[u64], len_bytes: u64, step_bytes: u64) -> Vec<u64> {
    let (mut stack, mut hits) = (Vec::<u64>::new(), vec![0; 100]);
    for key in keys {
        if let Some(depth) = stack.iter().rev().position(|other| other == key) {
            stack.remove(stack.len() - 1 - depth);
            let point = ((depth as u64 + 1) * len_bytes - 1) / step_bytes;
            hits.iter_mut().skip(point as usize).for_each(|hits| *hits += 1);
        }
        stack.push(*key);
    }
    hits
}

#[test]
fn the_curve_is_that_of_exact_lru_caches() {
    let (capacity_bytes, len_bytes) = (8 << 20, 8192);
    let index = Index::new(capacity_bytes, 150.0, 1);
    let keys = zipf_keys(8000, 60_000);
    for key in &keys {
        if !matches!(index.lookup(&hash(*key)), Found::Block(_)) {
            assert_eq!(insert(&index, *key, len_bytes), None);
        }
        if index.block_bytes() > capacity_bytes {
            evict_to(&index, capacity_bytes / 100 * 97);
        }
    }
    let curve = index.curve();
    let exact = exact_curve(&keys, len_bytes.into(), curve.step_bytes);
    assert_eq!((curve.lookups, curve.hits.len(), curve.step_bytes), (60_000, 100, capacity_bytes / 50));
    // A point between those of caches 3 % of the capacity smaller and larger: 2 points on either side (4 %).
    for point in 2..98 {
        let range = exact[point - 2]..=exact[point + 2];
        assert!(range.contains(&curve.hits[point]), "point {point}: {} not in {range:?}", curve.hits[point]);
    }
    assert!(curve.hits[99] > curve.hits[49] + 1000, "ghosts must show what a larger cache would do");
    index.set_capacity(capacity_bytes * 2);
    assert_eq!((index.curve().lookups, index.curve().hits[99], index.blocks() > 0), (0, 0, true));
}

#[test]
fn hits_in_memory_renew_a_block_from_time_to_time_and_all_count() {
    let (capacity_bytes, len_bytes) = (8 << 20, 8192);
    let index = Index::new(capacity_bytes, 0.0, 1);
    let insert_ticks = |ticks: u64| {
        for n in 0..2 * ticks {
            insert(&index, 1000 + n, len_bytes);
        }
    };
    let age = |key| index.age(&index.peek(&hash(key)).expect("it is cached"));
    insert(&index, 1, len_bytes);
    let mut renewed_tick = index.use_tick();
    let mut hit = || index.hit_in_memory(&hash(1), len_bytes, renewed_tick, |now| renewed_tick = now);

    // A tick is 16 KiB: two blocks.
    insert_ticks(7);
    (0..100).for_each(|_| hit());
    assert_eq!(age(1), 7, "just used");
    insert_ticks(1);
    (0..100).for_each(|_| hit());
    assert_eq!(age(1), 0);
    let curve = index.curve();
    assert_eq!((curve.lookups, curve.hits[0], curve.hits[99]), (200, 200, 200));

    // A block of two points is not in a cache of one.
    let long_bytes = 2 * curve.step_bytes as u32;
    insert(&index, 2, long_bytes);
    index.hit_in_memory(&hash(2), long_bytes, index.use_tick(), |_| {});
    let curve = index.curve();
    assert_eq!((curve.lookups, curve.hits[0], curve.hits[2]), (201, 200, 201));
    index.clear_curve();
    assert_eq!((index.curve().lookups, index.curve().hits[99]), (0, 0));
    assert_sums_agree(&index);
}

#[test]
fn hits_long_after_the_last_1023_ticks_count_at_their_real_distance() {
    let capacity_bytes = 8 << 20;
    let index = Index::new(capacity_bytes, 0.0, 1);
    (0..512).for_each(|key| assert_eq!(insert(&index, key, 8192), None));
    // A quarter is used for 8 capacities; the others stay as they are, half of the capacity with it.
    (0..64 * 128).for_each(|use_| assert!(matches!(index.lookup(&hash(256 + use_ % 128)), Found::Block(_))));
    index.clear_curve();
    assert!(matches!(index.lookup(&hash(511)), Found::Block(_)));
    let first = index.curve().hits.iter().position(|hits| *hits > 0).expect("it is on the curve");
    // 128 blocks used since, and 128 beside it: 1 to 2 MiB, and its whole group at most 4 MiB.
    assert!((6..=24).contains(&first), "{first}");
    assert_sums_agree(&index);
}

#[test]
fn a_clock_of_16_bits_may_wrap() {
    let index = Index::new(1 << 20, 0.0, 1);
    (0..2000).for_each(|key| assert_eq!(insert(&index, key, 4096), None));
    // 3 x 65,536 ticks of 4 KiB: everything else passes while 100 blocks are used.
    for use_ in 0..200_000_u64 {
        assert!(matches!(index.lookup(&hash(use_ % 100)), Found::Block(_)));
    }
    let (mut new, mut old) = (0, 0);
    sweep_all(&index, 1000, |_, entry| {
        match index.age(entry) {
            0..=101 => new += 1,
            OLDEST_AGE.. => old += 1,
            age => panic!("age {age}"),
        }
        Verdict::Keep
    });
    assert_eq!((new, old), (100, 1900));
    assert_sums_agree(&index);
    let cutoff = index.cutoff_age(1900 * 4096);
    assert!((30_000..=OLDEST_AGE).contains(&cutoff), "{cutoff}");
    assert!(index.cutoff_age(1901 * 4096) < 102);
}

#[test]
fn a_shard_that_nobody_used_for_several_turns_of_the_clock_is_right() {
    let index = Index::new(1 << 20, 0.0, 1);
    insert(&index, 1, 4096);
    // Of 512 ticks each: almost five turns of 16 bits.
    (0..600).for_each(|_| index.used(MAX_BLOCK_BYTES));
    let entry = index.peek(&hash(1)).expect("it is there");
    // Bounded at the last clamp, at most 16,384 + 8,192 ticks ago.
    assert!((OLDEST_AGE..=OLDEST_AGE + 24_576).contains(&index.age(&entry)), "{}", index.age(&entry));
    assert_sums_agree(&index);
}

#[test]
fn ticks_are_restored_as_far_as_they_make_sense() {
    let index = Index::new(1 << 20, 0.0, 1);
    index.set_now(1000);
    let cases = [
        (1000, 0),
        (990, 10),
        (0, 1000),
        (64_536, 2000),
        (1005, 0),
        (17_000, 0),
        (40_000, 26_536),
        (30_000, OLDEST_AGE),
    ];
    for (key, (tick, age)) in (0..).zip(cases) {
        index.restore(hash(key), Entry { extent: extent(1, 4096), checksum: 0, tick });
        assert_eq!(index.peek(&hash(key)).map(|entry| index.age(&entry)), Some(age), "tick {tick}");
    }
    assert_eq!(index.now_tick(), 1000);
    assert_sums_agree(&index);
    assert!((0..8).all(|key| index.forget(&hash(key)).is_some()) && index.forget(&hash(0)).is_none());
    assert_eq!((index.blocks(), index.block_bytes()), (0, 0));
}

#[test]
fn blocks_larger_than_the_cache_do_no_harm() {
    let index = Index::new(0, 100.0, 1);
    for key in 0..100 {
        insert(&index, key, MAX_BLOCK_BYTES);
        assert!(matches!(index.lookup(&hash(key)), Found::Block(_)));
    }
    sweep_all(&index, 3, |_, _| Verdict::Evict);
    assert_eq!((index.blocks(), index.block_bytes()), (0, 0));
    let recency = Recency::new(u64::MAX, u64::MAX, 1);
    recency.used(MAX_BLOCK_BYTES);
    assert_eq!(recency.cutoff_age(u64::MAX), 0);
}

/// An object without bytes was counted as a ghost of 0 bytes, and uncounted as one of 1 byte.
#[test]
fn a_ghost_of_no_bytes_is_counted_as_it_is_kept() {
    let index = Index::new(1 << 20, 100.0, 1);
    let token = index.begin_insert(&hash(1));
    assert!(index.reject_first(&hash(1), token, 0));
    assert_eq!((index.lookup(&hash(1)), index.ghosts()), (Found::Ghost, 1));
    assert_eq!(insert(&index, 1, 28), None);
    assert_eq!(index.ghosts(), 0);
    assert_sums_agree(&index);
}

#[test]
fn threads_leave_it_consistent() {
    let index = Index::new(1 << 20, 100.0, 1);
    std::thread::scope(|scope| {
        for seed in 1..=4 {
            let index = &index;
            scope.spawn(move || {
                let mut lot = lots(seed);
                for _ in 0..20_000 {
                    let key = (lot() * 600.0) as u64;
                    match (lot() * 10.0) as u32 {
                        0 => _ = index.remove(&hash(key), |_| ()),
                        1 => {
                            let token = index.begin_insert(&hash(key));
                            index.finish_insert(&hash(key), token, extent(1, 4096), 1, |_, _| ());
                        }
                        2 if lot() < 0.01 => evict_to(index, 1 << 20),
                        _ => _ = index.lookup(&hash(key)),
                    }
                }
            });
        }
    });
    assert_sums_agree(&index);
    sweep_all(&index, 100, |_, _| Verdict::Drop);
    assert_eq!((index.blocks(), index.block_bytes()), (0, 0));
}

#[test]
fn a_million_entries_take_24_bytes_each_with_everything() {
    let index = Index::new(8 << 30, 100.0, 1);
    let entry = Entry { extent: extent(1, 8192), checksum: 0, tick: 0 };
    let empty_bytes = index.memory_bytes();
    assert!(empty_bytes < 128 << 10, "{empty_bytes} bytes for an empty index");
    (0..1_000_000).for_each(|key| assert_eq!(index.restore(hash(key), entry), None));
    let bytes = index.memory_bytes();
    println!("empty: {empty_bytes} bytes; a million: {bytes} bytes");
    assert!(bytes <= 24_000_000, "{bytes} bytes");
    // After an eviction of a tenth and as many inserts, still.
    let mut count = 0;
    sweep_all(&index, 1000, |_, _| {
        count += 1;
        if count % 10 == 0 { Verdict::Drop } else { Verdict::Keep }
    });
    (1_000_000..1_100_000).for_each(|key| assert_eq!(insert(&index, key, 8192), None));
    println!("after turnover: {} bytes", index.memory_bytes());
    assert_eq!(index.blocks(), 1_000_000);
    assert!(index.memory_bytes() <= 24_000_000, "{} bytes", index.memory_bytes());
}

#[test]
fn shards_take_24_bytes_per_entry_at_every_size_from_a_million_on() {
    let mut table = Table::new();
    let entry = Entry { extent: extent(1, 1), checksum: 0, tick: 0 };
    let fixed_bytes = 512; // A 256th of the 128 KiB of an empty index.
    let mut most: f64 = 0.0;
    for number in 1..=400_000_u64 {
        table.insert(&hash(number).rest(), &entry);
        if number >= 3906 && number % 97 == 0 {
            let bytes = (table.heap_bytes() + fixed_bytes) as f64 / number as f64;
            assert!(bytes <= 24.0, "{bytes} bytes per entry with {} in all", number * 256);
            most = most.max(bytes);
        }
    }
    println!("{ENTRY_BYTES} bytes packed; up to 100 million: {most:.2} at most");
}
