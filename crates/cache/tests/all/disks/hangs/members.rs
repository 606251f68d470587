//! Disks that hang as they are added or return, or while another one is removed.

use std::task::{Context, Waker};
use std::time::Duration;

use crate::world::{Life, Task, Town, join, poll_all, value_of};
use plimsoll::Shard;
use plimsoll::backend::sim::SimDiskState;
use plimsoll_cache::stats::DiskHealth;
use plimsoll_cache::{CacheConfig, CacheError, Inserted, Lookup};

use super::super::{SLAB_BYTES, health, hits, insert, key, nap, quiet, state, town};
use super::{HANGS, opened};

/// Returns two disks, the first of which has a cache, the cache, and the shard on which stories run.
fn opened_beside_a_blank(config: &CacheConfig) -> (Town, Life, Shard) {
    let town = Town::new(2, 48 << 20, 7);
    town.create_of(SLAB_BYTES, &town.disks[..1]);
    let life = town.try_open_of(config, &town.disks[..1]).unwrap();
    let shard = life.runtime().shard(0).clone();
    (town, life, shard)
}

#[test]
fn a_disk_that_hangs_as_it_returns_does_not_keep_another_out() {
    let town = town(3);
    let life = town.open(&quiet());
    life.run(async |cache| {
        insert(cache, 0..300, 1).await;
        state(&town, 1, SimDiskState::Gone);
        state(&town, 2, SimDiskState::Gone);
        hits(cache, 0..300, 1).await;
        nap(&life, 1).await;

        // One search every 5 s: one has begun, and waits for disk 1.
        state(&town, 1, HANGS);
        nap(&life, 6).await;
        state(&town, 2, SimDiskState::Healthy);
        nap(&life, 30).await;
        assert_eq!(health(&cache.stats(), 2), DiskHealth::Healthy, "{}", cache.stats().disks[2].why);
        assert_eq!(health(&cache.stats(), 1), DiskHealth::Missing);
    });
}

#[test]
fn a_new_disk_that_hangs_is_refused_in_time() {
    for force in [false, true] {
        let (town, life, shard) = opened_beside_a_blank(&quiet());
        life.run(async |cache| {
            let capacity_bytes = cache.stats().disks[0].capacity_bytes;
            state(&town, 1, HANGS);
            let begin_ns = shard.now_ns();
            let error = cache.add_disk(&town.disks[1], force).await.unwrap_err();
            let took_ns = shard.now_ns() - begin_ns;
            assert!(matches!(error, CacheError::Io { .. }), "{error}");
            assert!((10_000_000_000..11_000_000_000).contains(&took_ns), "{took_ns} ns, force: {force}");

            let stats = cache.stats();
            let capacities: Vec<_> = stats.disks.iter().map(|disk| disk.capacity_bytes).collect();
            assert_eq!(capacities, [capacity_bytes], "nothing of it stays behind");
            insert(cache, 0..10, 1).await;
        });
    }
}

#[test]
fn eviction_keeps_the_space_that_it_should_while_a_new_disk_is_labelled() {
    let (town, life, shard) = opened_beside_a_blank(&CacheConfig { target_free_blocks_pct: 10.0, ..quiet() });
    life.run(async |cache| {
        for n in 0..8000 {
            cache.insert(&key(n), &value_of(n, 8192)).await.unwrap();
        }
        nap(&life, 5).await;
        let evictions = cache.stats().evictions;
        state(&town, 1, HANGS);
        let work = async {
            nap(&life, 2).await;
            assert_eq!(cache.stats().evictions, evictions, "of its capacity nothing is to be kept free yet");
            let mut stored = 0;
            for n in 10_000..13_000 {
                stored += u32::from(cache.insert(&key(n), &value_of(n, 8192)).await.unwrap() == Inserted::Stored);
                shard.sleep(Duration::from_millis(1)).await;
            }
            assert!(stored > 2900, "{stored} of 3000 are stored");
        };
        let (mut adding, mut work) = (std::pin::pin!(cache.add_disk(&town.disks[1], true)), std::pin::pin!(work));
        std::future::poll_fn(|context| {
            assert!(adding.as_mut().poll(context).is_pending(), "the disk does not hang");
            work.as_mut().poll(context)
        })
        .await;
        adding.await.unwrap_err();
    });
}

/// The blocks that the mover visited meanwhile were evicted: no disk had room for them.
#[test]
fn a_disk_that_is_being_removed_keeps_its_blocks_while_the_other_hangs() {
    const BLOCK_BYTES: usize = 128 << 10;
    let (town, life, _) = opened(2, &CacheConfig { move_bytes_per_s: Some(1 << 20), ..quiet() });
    life.run(async |cache| {
        let insert = async |n: u32| {
            assert_eq!(cache.insert(&key(n), &value_of(n, BLOCK_BYTES)).await.unwrap(), Inserted::Stored);
        };
        for n in 0..100 {
            insert(n).await;
        }
        cache.remove_disk(&town.disks[1].path).unwrap();
        nap(&life, 1).await;
        assert!(cache.stats().moves > 0);

        // The mover has moved 32 blocks, and sleeps for 4 s to keep to its rate. By its next turn an insert has shown
        // that the writes hang.
        state(&town, 0, SimDiskState::WritesHang);
        let mut inserted: Vec<Task<'_, ()>> = vec![Box::pin(insert(100))];
        poll_all(&mut inserted, &mut Vec::new(), &mut Context::from_waker(Waker::noop()));
        nap(&life, 7).await;
        let to_move_bytes = cache.stats().disks[1].to_move_bytes;
        assert!(to_move_bytes > 0, "it was emptied beside a disk that takes nothing");

        state(&town, 0, SimDiskState::Healthy);
        join(inserted).await;
        for _ in 0..100 {
            if cache.stats().disks.len() == 1 {
                break;
            }
            nap(&life, 1).await;
        }
        let stats = cache.stats();
        assert_eq!((stats.disks.len(), stats.evictions, stats.blocks), (1, 0, 101));
        for n in 0..101 {
            let Lookup::Hit(block) = cache.get(&key(n)).await.unwrap() else { panic!("{n} was lost") };
            assert_eq!(block[..], value_of(n, BLOCK_BYTES));
        }
    });
}
