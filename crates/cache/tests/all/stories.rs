//! Short stories of whole caches on simulated disks, in virtual time.

use std::task::Poll;
use std::time::Duration;

use crate::world::{Town, value_of};
use plimsoll::backend::choose::BackendKind;
use plimsoll::{Classes, DiskSetup, Runtime, ShardOptions, Topology};
use plimsoll_cache::stats::{DiskHealth, DropReason, MissReason};
use plimsoll_cache::{CacheConfig, GetOptions, Host, InsertOptions, Inserted, Lookup};

#[test]
fn what_was_checkpointed_survives_a_crash() {
    let town = Town::new(2, 64 << 20, 1);
    let config = CacheConfig { checkpoint_interval: Duration::from_secs(3600), ..CacheConfig::default() };
    town.create(1 << 20);
    let life = town.open(&config);
    life.run(async |cache| {
        for n in 0..200_u32 {
            assert_eq!(cache.insert(&n.to_le_bytes(), &value_of(n, 8192)).await.unwrap(), Inserted::Stored);
        }
        cache.checkpoint().await.unwrap();
        for n in 200..300_u32 {
            cache.insert(&n.to_le_bytes(), &value_of(n, 8192)).await.unwrap();
        }
        assert!(cache.remove(&7_u32.to_le_bytes()).await.unwrap());
    });
    life.crash();
    let life = town.open(&config);
    life.run(async |cache| {
        for n in 0..200_u32 {
            let Lookup::Hit(block) = cache.get(&n.to_le_bytes()).await.unwrap() else { panic!("{n} is lost") };
            assert_eq!(&block[..], value_of(n, 8192), "{n}");
        }
        assert!(matches!(cache.get(&250_u32.to_le_bytes()).await.unwrap(), Lookup::Miss(MissReason::Absent)));
    });
}

#[test]
fn closing_keeps_everything_and_full_caches_evict() {
    let town = Town::new(3, 32 << 20, 2);
    let config = CacheConfig { target_free_blocks_pct: 10.0, ..CacheConfig::default() };
    town.create(1 << 20);
    let life = town.open(&config);
    let shard = life.runtime().shard(0).clone();
    let stats = life.run(async |cache| {
        let mut no_space = 0;
        for n in 0..40_000_u32 {
            match cache.insert(&n.to_le_bytes(), &value_of(n, 8192)).await.unwrap() {
                Inserted::Stored => {}
                Inserted::Dropped(DropReason::NoSpace) => {
                    no_space += 1;
                    shard.sleep(Duration::from_millis(1)).await;
                }
                Inserted::Dropped(other) => panic!("{other:?}"),
            }
        }
        assert!(no_space < 4_000, "{no_space} of 40,000 found no space");
        // Time for eviction.
        shard.sleep(Duration::from_secs(1)).await;
        cache.stats()
    });
    assert!(stats.evictions > 20_000 && stats.blocks > 5_000, "{stats:?}");
    assert!(stats.disks.iter().all(|disk| disk.health == DiskHealth::Healthy));
    life.close();
    let life = town.open(&config);
    life.run(async |cache| {
        let again = cache.stats();
        assert_eq!((again.blocks, again.block_bytes), (stats.blocks, stats.block_bytes));
        let last = 39_999_u32;
        let Lookup::Hit(block) = cache.get(&last.to_le_bytes()).await.unwrap() else { panic!("the last is lost") };
        assert_eq!(&block[..], value_of(last, 8192));
    });
}

#[test]
fn a_value_that_is_dropped_takes_the_older_one_with_it() {
    let town = Town::new(1, 16 << 20, 5);
    town.create(1 << 20);
    let config = CacheConfig { in_flight_bytes: 1 << 20, ..CacheConfig::default() };
    let life = town.open(&config);
    life.run(async |cache| {
        cache.insert(b"k", &value_of(1, 8192)).await.unwrap();
        // An insert as large as all bytes that may be in flight, begun and not awaited.
        let large = value_of(2, 1 << 20);
        let mut large = std::pin::pin!(cache.insert(b"large", &large));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(large.as_mut().poll(&mut context).is_pending());
        let end = cache.insert(b"k", &value_of(3, 8192)).await.unwrap();
        assert_eq!(end, Inserted::Dropped(DropReason::InFlight));
        assert!(matches!(cache.get(b"k").await.unwrap(), Lookup::Miss(MissReason::Absent)));
        assert_eq!(large.await.unwrap(), Inserted::Stored);
    });
}

#[test]
fn no_more_is_written_in_a_day_than_the_disks_may_be() {
    let town = Town::new(1, 256 << 20, 5);
    town.create(1 << 20);
    // Of which an hour is saved: 44.7 MB, or 5461 blocks.
    let config = CacheConfig { write_bytes_per_day: Some(1 << 30), ..CacheConfig::default() };
    let life = town.open(&config);
    let shard = life.runtime().shard(0).clone();
    life.run(async |cache| {
        // Stores blocks until one is refused. Returns their number.
        let store = async |first: u32| {
            for n in first..20_000 {
                match cache.insert(&n.to_le_bytes(), &value_of(n, 8192)).await.unwrap() {
                    Inserted::Stored => {}
                    Inserted::Dropped(DropReason::Endurance) => return n - first,
                    Inserted::Dropped(other) => panic!("{other:?}"),
                }
                if n % 50 == 0 {
                    shard.sleep(Duration::from_millis(50)).await;
                }
            }
            panic!("nothing was refused");
        };
        let stored = store(0).await;
        assert!((5000..5700).contains(&stored), "{stored}");
        assert!(matches!(cache.get(&7_u32.to_le_bytes()).await.unwrap(), Lookup::Hit(_)));
        shard.sleep(Duration::from_secs(1000)).await;
        // 12.4 MB, or 1517 blocks, less what checkpoints write.
        let stored = store(10_000).await;
        assert!((1200..1750).contains(&stored), "{stored}");
    });
}

/// Once the cache is full, what is read through it once is not stored, and what is read twice is.
#[test]
fn the_first_use_of_a_key_is_rejected_once_the_cache_is_full() {
    let town = Town::new(1, 48 << 20, 6);
    town.create(1 << 20);
    let life = town.open(&CacheConfig { reject_first: true, ..CacheConfig::default() });
    let shard = life.runtime().shard(0).clone();
    life.run(async |cache| {
        let insert = async |n: u32| cache.insert(&n.to_le_bytes(), &value_of(n, 8192)).await.unwrap();
        let first_use = Inserted::Dropped(DropReason::FirstUse);
        let mut filled = 0;
        let capacity_blocks = (cache.stats().disks[0].capacity_bytes / 8192) as u32;
        while filled < 2 * capacity_blocks && insert(filled).await != first_use {
            filled += 1;
            shard.sleep(Duration::from_millis(1)).await;
        }
        assert!(filled < 2 * capacity_blocks, "none is rejected");
        assert!(filled > capacity_blocks * 8 / 10, "{filled} of {capacity_blocks}");

        // Let eviction reach its target.
        shard.sleep(Duration::from_secs(2)).await;
        let evictions = cache.stats().evictions;
        for n in 100_000..102_000 {
            assert_eq!(insert(n).await, first_use, "a scan");
        }
        assert_eq!(cache.stats().evictions, evictions);
        assert!(matches!(cache.get(&100_500_u32.to_le_bytes()).await.unwrap(), Lookup::Miss(MissReason::Ghost)));

        // The second time; and then there is something to replace.
        for _ in 0..2 {
            assert_eq!(insert(100_500).await, Inserted::Stored);
            assert!(matches!(cache.get(&100_500_u32.to_le_bytes()).await.unwrap(), Lookup::Hit(_)));
        }
        assert!(cache.remove(&100_500_u32.to_le_bytes()).await.unwrap());
        assert_eq!(insert(100_500).await, first_use, "a removed key is unknown");

        // A fetched value is answered all the same.
        let key = 200_000_u32.to_le_bytes();
        for (n, is_stored) in [(0, false), (1, true)] {
            let fetch = async |_| Ok::<_, ()>(value_of(n, 8192));
            let block = cache.get_or_fetch(&key, GetOptions::default(), fetch).await.unwrap().into_block();
            assert_eq!(block[..], value_of(n, 8192));
            shard.sleep(Duration::from_millis(10)).await;
            assert_eq!(matches!(cache.get(&key).await.unwrap(), Lookup::Hit(_)), is_stored, "fetch {n}");
        }
    });
}

/// What is touched within a capacity of inserts stays, and it takes no I/O; what is not is evicted.
#[test]
fn what_is_touched_now_and_then_is_not_evicted() {
    let town = Town::new(1, 32 << 20, 6);
    town.create(1 << 20);
    let life = town.open(&CacheConfig::default());
    let shard = life.runtime().shard(0).clone();
    life.run(async |cache| {
        let insert = async |n: u32| cache.insert(&n.to_le_bytes(), &value_of(n, 8192)).await.unwrap();
        for n in 0..200 {
            assert_eq!(insert(n).await, Inserted::Stored);
        }
        assert!(!cache.touch(b"no such key").unwrap());
        let lookups = cache.stats().hit_curve.lookups;
        let capacity_blocks = (cache.stats().disks[0].capacity_bytes / 8192) as u32;
        for n in 1000..1000 + 3 * capacity_blocks {
            insert(n).await;
            shard.sleep(Duration::from_millis(1)).await;
            if n % (capacity_blocks / 3) == 0 {
                for pinned in 0..100_u32 {
                    assert!(cache.touch(&pinned.to_le_bytes()).unwrap(), "{pinned} is evicted");
                }
            }
        }
        let stats = cache.stats();
        assert_eq!((stats.hit_curve.lookups, stats.hits, stats.memory_hits), (lookups, 0, 0), "no look-up is counted");
        for n in 0..200_u32 {
            assert_eq!(matches!(cache.get(&n.to_le_bytes()).await.unwrap(), Lookup::Hit(_)), n < 100, "{n}");
            assert_eq!(cache.touch(&n.to_le_bytes()).unwrap(), n < 100, "a ghost is not cached");
        }
    });
}

/// Ages and ghosts were counted by the bytes of data, of which a cache full of short blocks has few: all its blocks
/// were equally old, and its ghosts took many times the memory of its blocks.
#[test]
fn short_blocks_are_evicted_by_age_and_leave_no_more_ghosts_than_long_ones() {
    let town = Town::new(1, 17 << 20, 6);
    town.create(1 << 20);
    let sector_bytes = u64::from(town.inspect().sector_bytes);
    let life = town.open(&CacheConfig::default());
    let shard = life.runtime().shard(0).clone();
    life.run(async |cache| {
        let insert = async |n: u32| cache.insert(&n.to_le_bytes(), &value_of(n, 16)).await.unwrap();
        for n in 0..100 {
            assert_eq!(insert(n).await, Inserted::Stored);
        }
        let capacity_blocks = (cache.stats().disks[0].capacity_bytes / sector_bytes) as u32;
        for n in 1000..1000 + 3 * capacity_blocks {
            if insert(n).await != Inserted::Stored {
                shard.sleep(Duration::from_millis(5)).await;
            }
            if n % (capacity_blocks / 3) == 0 {
                for pinned in 0..100_u32 {
                    assert!(cache.touch(&pinned.to_le_bytes()).unwrap(), "{pinned} is evicted");
                }
            }
        }
        let stats = cache.stats();
        assert!(stats.evictions > u64::from(capacity_blocks), "{} evictions", stats.evictions);
        assert!(stats.ghosts <= u64::from(capacity_blocks) * 9 / 8, "{} ghosts, {capacity_blocks} fit", stats.ghosts);
    });
}

/// Memory answered for them, so their disks took them for the oldest: at the next opening the hottest blocks were gone.
#[test]
fn what_memory_answers_for_stays_on_its_disk() {
    let town = Town::new(1, 32 << 20, 6);
    town.create(1 << 20);
    let life = town.open(&CacheConfig { memory_bytes: 4 << 20, ..CacheConfig::default() });
    let shard = life.runtime().shard(0).clone();
    life.run(async |cache| {
        let insert = async |n: u32| cache.insert(&n.to_le_bytes(), &value_of(n, 8192)).await.unwrap();
        for n in 0..50 {
            assert_eq!(insert(n).await, Inserted::Stored);
        }
        let capacity_blocks = (cache.stats().disks[0].capacity_bytes / 8192) as u32;
        let mut read = 0;
        for n in 1000..1000 + 3 * capacity_blocks {
            insert(n).await;
            shard.sleep(Duration::from_millis(1)).await;
            if n % 20 == 0 {
                for hot in 0..50_u32 {
                    assert!(matches!(cache.get(&hot.to_le_bytes()).await.unwrap(), Lookup::Hit(_)), "{hot}");
                }
                read += 50;
            }
        }
        let stats = cache.stats();
        assert_eq!((stats.memory_hits, stats.hit_curve.lookups), (read, read));
        assert!((0..50_u32).all(|hot| cache.touch(&hot.to_le_bytes()).unwrap()), "one is not on its disk");
    });
}

/// Each of these takes a sector of memory until it is written, not the 16 bytes that were counted.
#[test]
fn short_inserts_in_flight_take_no_more_memory_than_they_may() {
    let town = Town::new(1, 32 << 20, 6);
    town.create(1 << 20);
    let sector_bytes = town.inspect().sector_bytes as usize;
    let in_flight_bytes = 1 << 20;
    let life = town.open(&CacheConfig { in_flight_bytes, ..CacheConfig::default() });
    life.run(async |cache| {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let mut pending = 0;
        for n in 0..5000_u32 {
            let (key, value) = (n.to_le_bytes(), value_of(n, 16));
            match std::pin::pin!(cache.insert(&key, &value)).as_mut().poll(&mut context) {
                Poll::Pending => pending += 1,
                Poll::Ready(end) => assert_eq!(end.unwrap(), Inserted::Dropped(DropReason::InFlight)),
            }
        }
        assert_eq!(pending * sector_bytes, in_flight_bytes as usize);
    });
}

/// A fetched value is as old as the beginning of its fetch: any change of the key meanwhile is newer.
#[test]
fn what_was_fetched_does_not_take_the_place_of_what_came_meanwhile() {
    let town = Town::new(1, 16 << 20, 6);
    town.create(1 << 20);
    let life = town.open(&CacheConfig { memory_bytes: 1 << 20, ..CacheConfig::default() });
    let shard = life.runtime().shard(0).clone();
    life.run(async |cache| {
        let (old, new) = (value_of(1, 8192), value_of(2, 8192));
        for is_removal in [false, true] {
            let fetch = async |_| {
                shard.sleep(Duration::from_millis(5)).await;
                Ok::<_, ()>(old.clone())
            };
            let fetched = cache.get_or_fetch(b"k", GetOptions::default(), fetch);
            let change = async {
                shard.sleep(Duration::from_millis(1)).await;
                if is_removal {
                    cache.remove(b"k").await.unwrap();
                } else {
                    assert_eq!(cache.insert(b"k", &new).await.unwrap(), Inserted::Stored);
                }
            };
            let (fetched, ()) = both(fetched, change).await;
            assert_eq!(fetched.unwrap().into_block()[..], old[..]);
            match cache.get(b"k").await.unwrap() {
                Lookup::Hit(block) => assert!(!is_removal && block[..] == new[..], "the older value is back"),
                Lookup::Miss(_) => assert!(is_removal, "the newer value is lost"),
            }
            cache.remove(b"k").await.unwrap();
        }

        // An undisturbed fetch is cached, also after one that failed and one that was dropped.
        let failed = cache.get_or_fetch(b"k", GetOptions::default(), async |_| Err::<Vec<u8>, _>("no")).await;
        assert!(failed.is_err());
        {
            let mut given_up = std::pin::pin!(cache.get_or_fetch(b"k", GetOptions::default(), async |_| {
                std::future::pending::<Result<Vec<u8>, ()>>().await
            }));
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(given_up.as_mut().poll(&mut context).is_pending());
        }
        cache.get_or_fetch(b"k", GetOptions::default(), async |_| Ok::<_, ()>(new.clone())).await.unwrap();
        // The answer does not wait for the write, and a reader meanwhile has the block without another fetch.
        let shared = cache.get_or_fetch(b"k", GetOptions::default(), async |_| Err::<Vec<u8>, _>("no")).await;
        assert_eq!(shared.unwrap().into_block()[..], new[..]);
        shard.sleep(Duration::from_millis(5)).await;
        let Lookup::Hit(block) = cache.get(b"k").await.unwrap() else { panic!("it was not cached") };
        assert_eq!(block[..], new[..]);
    });
}

/// A reader that asks after a change has ended never gets a value whose fetch began before the change.
#[test]
fn a_reader_after_a_removal_does_not_share_a_fetch_from_before_it() {
    let town = Town::new(1, 16 << 20, 6);
    town.create(1 << 20);
    let life = town.open(&CacheConfig::default());
    let shard = life.runtime().shard(0).clone();
    life.run(async |cache| {
        let (old, new) = (value_of(1, 8192), value_of(2, 8192));
        let fetch = async |value: &Vec<u8>, ms| {
            shard.sleep(Duration::from_millis(ms)).await;
            Ok::<_, ()>(value.clone())
        };
        for (early_ms, late_ms) in [(5, 20), (20, 5)] {
            let early = cache.get_or_fetch(b"k", GetOptions::default(), |_| fetch(&old, early_ms));
            let late = async {
                shard.sleep(Duration::from_millis(1)).await;
                cache.remove(b"k").await.unwrap();
                let late = cache.get_or_fetch(b"k", GetOptions::default(), |_| fetch(&new, late_ms)).await;
                assert!(late.unwrap().into_block()[..] == new[..], "it was fetched before the removal");
                // The flight of the later fetch has not ended with the earlier one's.
                let third = cache.get_or_fetch(b"k", GetOptions::default(), async |_| Err::<Vec<u8>, _>(()));
                assert!(third.await.unwrap().into_block()[..] == new[..]);
            };
            let (early, ()) = both(early, late).await;
            assert_eq!(early.unwrap().into_block()[..], old[..]);
            shard.sleep(Duration::from_millis(1)).await;
            let Lookup::Hit(block) = cache.get(b"k").await.unwrap() else { panic!("it was not cached") };
            assert!(block[..] == new[..], "the older value is cached");
            cache.remove(b"k").await.unwrap();
        }
    });
}

/// Runs two futures together. Returns both outputs.
async fn both<A, B>(first: impl Future<Output = A>, second: impl Future<Output = B>) -> (A, B) {
    let (mut first, mut second) = (std::pin::pin!(first), std::pin::pin!(second));
    let (mut a, mut b) = (None, None);
    std::future::poll_fn(|context| {
        if a.is_none()
            && let Poll::Ready(value) = first.as_mut().poll(context)
        {
            a = Some(value);
        }
        if b.is_none()
            && let Poll::Ready(value) = second.as_mut().poll(context)
        {
            b = Some(value);
        }
        if a.is_some() && b.is_some() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    (a.unwrap(), b.unwrap())
}

/// A tenant leaves and its class is removed, while some of its reads and writes are still to come.
#[test]
fn requests_in_a_removed_class_say_nothing_about_the_disk() {
    let town = Town::new(1, 32 << 20, 7);
    town.create(1 << 20);
    let life = town.open(&CacheConfig::default());
    life.run(async |cache| {
        let stays = value_of(1, 8192);
        assert_eq!(cache.insert(b"stays", &stays).await.unwrap(), Inserted::Stored);
        let removed = cache.classes().add_class("tenant", None, 100).unwrap();
        cache.classes().remove(removed).unwrap();
        for n in 0..20_u32 {
            let options = InsertOptions { class: Some(removed), wait: true };
            let end = cache.insert_with(&n.to_le_bytes(), &value_of(n, 8192), options).await.unwrap();
            assert_eq!(end, Inserted::Dropped(DropReason::WriteFailed));
            let options = GetOptions { class: Some(removed), deadline: None };
            let read = cache.get_with(b"stays", options).await.unwrap();
            assert!(matches!(read, Lookup::Miss(MissReason::Overloaded)), "{read:?}");
        }
        let disk = &cache.stats().disks[0];
        assert_eq!((disk.health, disk.why.as_str()), (DiskHealth::Healthy, ""));
        assert_eq!(cache.insert(b"more", &stays).await.unwrap(), Inserted::Stored);
        let Lookup::Hit(block) = cache.get(b"stays").await.unwrap() else { panic!("it is lost") };
        assert_eq!(&block[..], stays);
    });
    life.close();
}

/// Otherwise the disk counts as absent, and its blocks are lost.
#[test]
fn a_host_on_disks_that_its_topology_does_not_have_is_refused() {
    let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
    let options = ShardOptions { backend: Some(BackendKind::Memory), pin: false, ..ShardOptions::default() };
    let runtime = Runtime::start(&topology, &options).unwrap();
    let host = |disks| Host::on(&topology, vec![runtime.handle(0)], disks).map(drop);
    assert!(host(0..1).is_ok());
    for disks in [0..2, 1..2, 5..7] {
        let error = host(disks.clone()).unwrap_err().to_string();
        assert!(error.contains("a disk of the host's topology"), "{disks:?}: {error}");
    }
    runtime.stop().unwrap();
}
