//! Scrubbing: what is damaged is removed before a reader meets it, nothing else is, and nobody waits for it.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::world::{Life, Task, Town, join, value_of};
use plimsoll::Shard;
use plimsoll::backend::sim::SimDiskState;
use plimsoll_cache::{BlockCache, CacheConfig, Inserted, Lookup};

const DISK_BYTES: usize = 32 << 20;

fn quiet() -> CacheConfig {
    CacheConfig { checkpoint_interval: Duration::from_secs(3600), ..CacheConfig::default() }
}

fn opened(town: &Town) -> (Life, Shard) {
    let life = town.open(&quiet());
    let shard = life.runtime().shard(0).clone();
    (life, shard)
}

/// Returns two disks with a cache of the keys from 0 to before `keys`.
fn filled(keys: u32) -> Town {
    let town = Town::new(2, DISK_BYTES as u64, 9);
    town.create(1 << 20);
    let (life, _) = opened(&town);
    life.run(async |cache| insert(cache, 0..keys, 0).await);
    life.close();
    town
}

async fn insert(cache: &BlockCache, keys: std::ops::Range<u32>, version: u32) {
    for n in keys {
        let end = cache.insert(&n.to_le_bytes(), &value_of(n + version * 10_000, 8192)).await.unwrap();
        assert_eq!(end, Inserted::Stored, "{n}");
    }
}

async fn is_there(cache: &BlockCache, n: u32, version: u32) -> bool {
    match cache.get(&n.to_le_bytes()).await.unwrap() {
        Lookup::Hit(block) => block[..] == value_of(n + version * 10_000, 8192),
        Lookup::Miss(_) => false,
    }
}

fn rate(bytes_per_s: u64) -> NonZeroU64 {
    NonZeroU64::new(bytes_per_s).unwrap()
}

#[test]
fn damaged_blocks_are_removed_at_the_given_rate() {
    let town = filled(500);
    let damaged = [7, 8, 300];
    for disk in 0..2 {
        town.edit(disk, 0, DISK_BYTES, |bytes| {
            for n in damaged {
                let value = value_of(n, 8192);
                let places = bytes.chunks_mut(512).filter(|sector| sector[..] == value[..512]);
                places.for_each(|sector| sector[100] ^= 1);
            }
        });
    }
    let (life, shard) = opened(&town);
    life.run(async |cache| {
        let begin_ns = shard.now_ns();
        let counts = cache.scrub(rate(1 << 20)).await.unwrap();
        let took_ns = shard.now_ns() - begin_ns;
        // 500 blocks are 3.9 MiB.
        assert!((3_900_000_000..4_500_000_000).contains(&took_ns), "{took_ns} ns");
        assert_eq!((counts.blocks, counts.bytes), (500, 500 * 8192));
        assert_eq!((counts.checksum_errors, counts.unreadable), (3, 0));
        let stats = cache.stats();
        assert_eq!((stats.scrubbed_bytes, stats.scrub_removals, stats.blocks), (500 * 8192, 3, 497));
        assert_eq!(stats.hits, 0, "it is no use of the blocks");

        for n in 0..500 {
            assert_eq!(is_there(cache, n, 0).await, !damaged.contains(&n), "{n}");
        }
        insert(cache, 7..9, 0).await;
        assert_eq!(cache.stats().healed, 2);
        let again = cache.scrub(rate(1 << 30)).await.unwrap();
        assert_eq!((again.blocks, again.checksum_errors), (499, 0));
    });
    life.close();
}

/// Places are freed, and written again after a checkpoint, while they are read.
#[test]
fn blocks_that_change_meanwhile_are_not_taken_for_damaged() {
    let town = filled(1000);
    let (life, _) = opened(&town);
    life.run(async |cache| {
        let change = async {
            for version in 1..6 {
                insert(cache, 0..1000, version).await;
                cache.checkpoint().await.unwrap();
            }
        };
        let scrub = async {
            for _ in 0..20 {
                let counts = cache.scrub(rate(50 << 20)).await.unwrap();
                assert!(counts.is_sound() && counts.blocks > 300, "{counts:?}");
            }
        };
        let tasks: Vec<Task<'_, ()>> = vec![Box::pin(change), Box::pin(scrub)];
        join(tasks).await;
        for n in 0..1000 {
            assert!(is_there(cache, n, 5).await, "{n}");
        }
    });
    life.close();
}

#[test]
fn a_disk_that_hangs_does_not_hold_up_a_scrub_and_a_caller_can_give_it_up() {
    let town = filled(1000);
    let (life, shard) = opened(&town);
    life.run(async |cache| {
        {
            let mut scrub = std::pin::pin!(cache.scrub(rate(1 << 20)));
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(scrub.as_mut().poll(&mut context).is_pending());
            shard.sleep(Duration::from_secs(2)).await;
        }
        shard.sleep(Duration::from_secs(1)).await;
        let read = cache.stats().scrubbed_bytes;
        shard.sleep(Duration::from_secs(60)).await;
        assert!(read > 1 << 20 && cache.stats().scrubbed_bytes == read, "it goes on, nobody waits for it");

        town.world.set_disk_state(1, SimDiskState::Slow { factor: 1e6 }).unwrap();
        let begin_ns = shard.now_ns();
        let counts = cache.scrub(rate(1 << 30)).await.unwrap();
        let took_ns = shard.now_ns() - begin_ns;
        assert!(took_ns < 25_000_000_000, "{took_ns} ns");
        assert!(counts.unreadable > 0 && counts.checksum_errors == 0, "{counts:?}");
        assert_eq!(cache.stats().scrub_removals, 0);
    });
}
