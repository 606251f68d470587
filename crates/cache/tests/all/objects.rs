//! Objects, read by ranges: against a map, beside their replacement, and what they leave behind.

use std::cell::Cell;
use std::collections::HashMap;
use std::ops::Range;
use std::task::{Context, Waker};
use std::time::Duration;

use crate::random::Random;
use crate::world::{Life, Task, Town, join, value_of};
use plimsoll::backend::sim::SimDiskState;
use plimsoll_cache::stats::{DropReason, MissReason};
use plimsoll_cache::{BlockCache, CacheConfig, GetOptions, InsertOptions, Inserted, Lookup};

const EXTENT_BYTES: u64 = 64 << 10;

fn quiet() -> CacheConfig {
    CacheConfig { checkpoint_interval: Duration::from_secs(3600), ..CacheConfig::default() }
}

/// Returns a range that may end beyond `len`.
fn some_range(random: &mut Random, len: u64) -> Range<u64> {
    let start = random.below(len + 100);
    let most = if random.below(3) == 0 { len + 100 } else { 5000 };
    start..start + random.below(most)
}

fn key(n: u64) -> [u8; 8] {
    n.to_le_bytes()
}

async fn insert(cache: &BlockCache, n: u64, value: &[u8]) -> Inserted {
    cache.insert_object(&key(n), value, InsertOptions::default()).await.unwrap()
}

async fn read(cache: &BlockCache, n: u64, range: Range<u64>) -> Lookup {
    cache.get_range(&key(n), range, GetOptions::default()).await.unwrap()
}

fn part(value: &[u8], range: &Range<u64>) -> Vec<u8> {
    let place = |offset: u64| (offset as usize).min(value.len());
    value[place(range.start)..place(range.end)].to_vec()
}

#[test]
fn random_ranges_are_those_of_a_map() {
    crate::seeds::each(4, |seed| {
        let town = Town::new(2, 64 << 20, seed);
        let encryption_key = (seed % 2 == 1).then_some([7; 32]);
        town.create_with(1 << 20, encryption_key, &town.disks);
        let memory_bytes = if seed % 4 < 2 { 0 } else { 1 << 20 };
        let config = CacheConfig { encryption_key, memory_bytes, ..quiet() };
        let mut random = Random::new(seed);
        let mut map: HashMap<u64, Vec<u8>> = HashMap::new();
        for life in 0..3_u32 {
            let life_now = town.open(&config);
            life_now.run(async |cache| {
                for step in 0..150 {
                    let n = random.below(6);
                    match random.below(10) {
                        0..3 => {
                            let value = value_of(life * 1000 + step, random.below(300_000) as usize);
                            assert_eq!(insert(cache, n, &value).await, Inserted::Stored);
                            map.insert(n, value);
                        }
                        3 => {
                            let was_there = cache.remove_object(&key(n)).await.unwrap();
                            assert_eq!(was_there, map.remove(&n).is_some());
                        }
                        // A block of the same key is another thing.
                        4 => assert_eq!(cache.insert(&key(n), b"a block").await.unwrap(), Inserted::Stored),
                        _ => {
                            let range = some_range(&mut random, map.get(&n).map_or(0, |value| value.len() as u64));
                            match (read(cache, n, range.clone()).await, map.get(&n)) {
                                (Lookup::Hit(block), Some(value)) => {
                                    assert_eq!(block[..], part(value, &range), "{n}: {range:?}");
                                }
                                (Lookup::Miss(_), None) => {}
                                (end, value) => panic!("{n}: {end:?}, {}", value.is_some()),
                            }
                        }
                    }
                }
                cache.checkpoint().await.unwrap();
            });
            life_now.crash();
        }
    });
}

/// Every version has other bytes and another length, and readers are never without one.
#[test]
fn a_reader_sees_one_version_and_none_older_than_the_last_one_stored() {
    let town = Town::new(3, 64 << 20, 5);
    town.create(1 << 20);
    let life = town.open(&quiet());
    let shard = life.runtime().shard(0).clone();
    const VERSIONS: u32 = 60;
    let len_of = |version: u32| 400_000 + version as usize * 1000;
    let values: Vec<_> = (0..VERSIONS).map(|version| value_of(version, len_of(version))).collect();
    life.run(async |cache| {
        assert_eq!(insert(cache, 1, &values[0]).await, Inserted::Stored);
        let (begun, stored, hits) = (Cell::new(0), Cell::new(0), Cell::new(0));
        let (begun, stored, hits, values, shard) = (&begun, &stored, &hits, &values, &shard);
        let write = async move {
            for version in 1..VERSIONS {
                begun.set(version);
                assert_eq!(insert(cache, 1, &values[version as usize]).await, Inserted::Stored);
                stored.set(version);
            }
        };
        let read = |seed: u64| async move {
            let mut random = Random::new(seed);
            while stored.get() < VERSIONS - 1 {
                let range = some_range(&mut random, 450_000);
                let oldest = stored.get();
                let end = read(cache, 1, range.clone()).await;
                let is_of = |version: u32, block: &[u8]| *block == part(&values[version as usize], &range);
                match end {
                    Lookup::Hit(block) => {
                        let is_one = (oldest..=begun.get()).any(|version| is_of(version, &block));
                        assert!(is_one, "{range:?} is of no version from {oldest} to {}", begun.get());
                        hits.set(hits.get() + 1);
                    }
                    Lookup::Miss(reason) => panic!("{reason:?}: the object was never away"),
                }
                shard.sleep(Duration::from_micros(random.below(300))).await;
            }
        };
        let mut tasks: Vec<Task<'_, ()>> = vec![Box::pin(write)];
        (1..5).for_each(|seed| tasks.push(Box::pin(read(seed))));
        join(tasks).await;
        assert!(hits.get() > 100, "{} hits", hits.get());
        let extents = (len_of(VERSIONS - 1) as u64).div_ceil(EXTENT_BYTES);
        assert_eq!(cache.stats().blocks, extents + 1, "nothing of the other versions is left");
    });
    life.close();
}

#[test]
fn a_range_reads_its_extents_and_no_others() {
    let town = Town::new(1, 64 << 20, 5);
    town.create(1 << 20);
    let life = town.open(&quiet());
    life.run(async |cache| {
        let value = value_of(1, 10_000_000);
        assert_eq!(insert(cache, 1, &value).await, Inserted::Stored);
        let looked = |cache: &BlockCache| {
            let reads = &cache.stats().disks[0].io["lookup_read"];
            (reads.operations, reads.bytes)
        };
        let mut before = looked(cache);
        for (range, reads) in [
            // The head, once.
            (5..6, 2),
            (65_535..65_536, 1),
            (65_535..65_537, 2),
            (1_000_000..1_200_000, 4),
            (9_999_999..20_000_000, 1),
            (10_000_000..20_000_000, 0),
            (7..7, 0),
        ] {
            let Lookup::Hit(block) = read(cache, 1, range.clone()).await else { panic!("{range:?}") };
            assert_eq!(block[..], part(&value, &range), "{range:?}");
            let after = looked(cache);
            assert_eq!(after.0 - before.0, reads, "{range:?}");
            assert!(after.1 - before.1 <= reads * EXTENT_BYTES, "{range:?}");
            before = after;
        }
    });
    life.close();
}

#[test]
fn what_is_removed_replaced_or_given_up_leaves_nothing() {
    let town = Town::new(2, 64 << 20, 5);
    town.create(1 << 20);
    let life = town.open(&quiet());
    life.run(async |cache| {
        let (small, large) = (value_of(1, 100_000), value_of(2, 3_000_000));
        insert(cache, 1, &large).await;
        insert(cache, 1, &small).await;
        assert_eq!(cache.stats().blocks, 3);
        assert!(cache.remove_object(&key(1)).await.unwrap());
        assert!(!cache.remove_object(&key(1)).await.unwrap());
        assert_eq!(cache.stats().blocks, 0);
        assert!(matches!(read(cache, 1, 0..10).await, Lookup::Miss(MissReason::Absent)));
    });

    // Given up after any time: the older one must not come back either.
    let mut before = 0;
    for micros in (0..1500).step_by(50) {
        life.run(async |cache| {
            insert(cache, 1, &value_of(1, 100_000)).await;
            let shard = life.runtime().shard(0).clone();
            {
                let value = value_of(2, 3_000_000);
                let mut insert = std::pin::pin!(insert(cache, 1, &value));
                assert!(insert.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
                let end_ns = shard.now_ns() + micros * 1000;
                let mut is_done = false;
                while shard.now_ns() < end_ns && !is_done {
                    shard.sleep(Duration::from_micros(10)).await;
                    is_done = insert.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
                }
                assert!(!is_done, "{micros} us are enough: nothing is given up");
            }
            assert!(matches!(read(cache, 1, 0..10).await, Lookup::Miss(_)), "after {micros} us");
            shard.sleep(Duration::from_millis(50)).await;
            // The older one's extents stay where the insert was given up before it had read their head.
            let left = cache.stats().blocks;
            assert!(left == before || left == before + 2 && micros < 500, "{before}, {left} after {micros} us");
            before = left;
        });
    }
    life.close();
}

#[test]
fn of_two_inserts_at_once_the_later_one_wins() {
    let town = Town::new(2, 64 << 20, 5);
    town.create(1 << 20);
    let life = town.open(&quiet());
    life.run(async |cache| {
        let (long, short) = (value_of(1, 5_000_000), value_of(2, 70_000));
        let inserts: Vec<Task<'_, _>> = vec![Box::pin(insert(cache, 1, &long)), Box::pin(insert(cache, 1, &short))];
        let ends = join(inserts).await;
        assert_eq!(ends, [Inserted::Stored, Inserted::Dropped(DropReason::Superseded)], "the short one ends first");
        let Lookup::Hit(block) = read(cache, 1, 0..u64::MAX).await else { panic!("one of them is there") };
        assert_eq!(block[..], short);
        assert_eq!(cache.stats().blocks, 3);
    });
    life.close();
}

#[test]
fn a_full_cache_has_objects_as_they_are_or_not_at_all() {
    for reject_first in [false, true] {
        let town = Town::new(2, 96 << 20, 5);
        town.create(1 << 20);
        let life = town.open(&CacheConfig { reject_first, ..quiet() });
        let shard = life.runtime().shard(0).clone();
        life.run(async |cache| {
            let mut random = Random::new(77);
            let mut versions: HashMap<u64, Vec<u8>> = HashMap::new();
            let (mut hits, mut stored_again, mut first_uses) = (0, 0, 0);
            for step in 0..800 {
                let n = random.below(600);
                let range = some_range(&mut random, 900_000);
                if let Lookup::Hit(block) = read(cache, n, range.clone()).await {
                    assert_eq!(block[..], part(&versions[&n], &range), "{n}: {range:?}");
                    hits += 1;
                    continue;
                }
                let value = value_of(step, 300_000 + random.below(600_000) as usize);
                match insert(cache, n, &value).await {
                    Inserted::Stored => {
                        stored_again += u32::from(first_uses > 0);
                        versions.insert(n, value);
                    }
                    Inserted::Dropped(reason) => {
                        first_uses += u32::from(reason == DropReason::FirstUse);
                        assert!(matches!(read(cache, n, 0..10).await, Lookup::Miss(_)), "{n} is stale");
                    }
                }
                shard.sleep(Duration::from_millis(20)).await;
            }
            let evicted = cache.stats().evictions;
            assert!(hits > 30 && evicted > 100, "{hits} hits, {evicted} evictions");
            assert_eq!(first_uses > 10, reject_first, "{first_uses} first uses");
            assert!(stored_again > 10 || !reject_first, "{stored_again} second uses");
        });
        life.close();
    }
}

/// Of an object that the day's budget refused, the extents of the older one stayed.
#[test]
fn an_object_beyond_the_budget_of_the_day_leaves_neither_itself_nor_the_older_one() {
    let town = Town::new(1, 256 << 20, 5);
    town.create(1 << 20);
    // Of which an hour is saved: 44.7 MB.
    let config = CacheConfig { write_bytes_per_day: Some(1 << 30), ..quiet() };
    let life = town.open(&config);
    let shard = life.runtime().shard(0).clone();
    life.run(async |cache| {
        assert_eq!(insert(cache, 1, &value_of(1, 300_000)).await, Inserted::Stored);
        for n in 2..100 {
            match insert(cache, n, &value_of(n as u32, 1_000_000)).await {
                Inserted::Stored => shard.sleep(Duration::from_millis(50)).await,
                Inserted::Dropped(reason) => {
                    assert_eq!(reason, DropReason::Endurance);
                    break;
                }
            }
        }
        let before = cache.stats().blocks;
        assert_eq!(insert(cache, 1, &value_of(3, 300_000)).await, Inserted::Dropped(DropReason::Endurance));
        assert_eq!(cache.stats().blocks, before - 6, "five extents and their head");
    });
    life.close();
}

/// With this, an operation takes some 100 ms: other tasks run while one is in flight, and no deadline passes.
const SLOW: SimDiskState = SimDiskState::Slow { factor: 1000.0 };

/// Returns one disk with a cache, in which key 1 has an object of four extents. Its head is not in memory.
fn one_object() -> (Town, Life) {
    let town = Town::new(1, 64 << 20, 5);
    town.create(1 << 20);
    let life = town.open(&quiet());
    life.run(async |cache| assert_eq!(insert(cache, 1, &value_of(1, 250_000)).await, Inserted::Stored));
    life.close();
    let life = town.open(&quiet());
    (town, life)
}

/// A removal read the head first, so that the object was there as long as the disk took for that.
#[test]
fn a_removal_does_not_wait_for_the_disk() {
    let (town, life) = one_object();
    life.run(async |cache| {
        town.world.set_disk_state(0, SLOW).unwrap();
        let removed = key(1);
        let mut removal = std::pin::pin!(cache.remove_object(&removed));
        assert!(removal.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending(), "it reads the head");
        assert_eq!(cache.stats().removes, 1);
        assert!(matches!(read(cache, 1, 0..10).await, Lookup::Miss(MissReason::Absent)));
        assert!(!cache.remove_object(&removed).await.unwrap(), "it is counted once");

        assert!(removal.await.unwrap());
        assert_eq!((cache.stats().removes, cache.stats().blocks), (1, 0));
    });
    life.close();
}

/// The removal's read of the head is in flight while the insert begins, or the insert's while the removal begins.
#[test]
fn of_a_removal_and_an_insert_at_once_the_later_one_wins() {
    for is_insert_later in [true, false] {
        let (town, life) = one_object();
        let shard = life.runtime().shard(0).clone();
        life.run(async |cache| {
            town.world.set_disk_state(0, SLOW).unwrap();
            let (removed, value) = (key(1), value_of(2, 100_000));
            let mut removal = std::pin::pin!(cache.remove_object(&removed));
            let mut insertion = std::pin::pin!(insert(cache, 1, &value));
            let mut context = Context::from_waker(Waker::noop());
            if is_insert_later {
                assert!(removal.as_mut().poll(&mut context).is_pending());
                assert!(insertion.as_mut().poll(&mut context).is_pending());
            } else {
                assert!(insertion.as_mut().poll(&mut context).is_pending());
                assert!(removal.as_mut().poll(&mut context).is_pending());
            }
            let begin_ns = shard.now_ns();
            let (is_removed, end) = (removal.await.unwrap(), insertion.await);
            assert!(shard.now_ns() > begin_ns, "nothing was in flight");

            assert!(is_removed);
            assert_eq!(cache.stats().removes, 1);
            if is_insert_later {
                assert_eq!(end, Inserted::Stored);
                let Lookup::Hit(block) = read(cache, 1, 0..u64::MAX).await else { panic!("it was stored") };
                assert_eq!(block[..], value);
                assert_eq!(cache.stats().blocks, 3, "nothing of the removed one is left");
            } else {
                assert_eq!(end, Inserted::Dropped(DropReason::Superseded));
                assert!(matches!(read(cache, 1, 0..10).await, Lookup::Miss(MissReason::Absent)));
                assert_eq!(cache.stats().blocks, 0, "nothing of either is left");
            }
        });
        life.close();
    }
}
