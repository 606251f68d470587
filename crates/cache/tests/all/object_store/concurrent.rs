//! Readers of one object at the same time: one fetch for all, and no reader that delays or fails another.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{Error, Extensions, GetOptions, ObjectStoreExt};
use plimsoll::Shard;
use plimsoll::backend::sim::SimDiskState;
use plimsoll_cache::object_store::{CachedStore, IoClass};
use plimsoll_cache::{BlockCache, CacheConfig};

use super::counting::{Counting, MapCache, block_on, patterned};
use super::{BLOCK, read, with, world};
use crate::world::Town;

#[test]
fn concurrent_misses_are_one_fetch() {
    block_on(async {
        let (inner, _, store) = world(1 << 20, |builder| builder.meta_ttl(Duration::MAX)).await;
        let reads = join_all((0..20).map(|_| read(&store, GetOptions::new()))).await;
        assert!(reads.into_iter().all(|bytes| bytes.unwrap() == patterned(1 << 20, 0)));
        assert_eq!(inner.gets(), 1);
        let stats = store.stats();
        assert_eq!((stats.missed_blocks, stats.joined_blocks + stats.hit_blocks), (64, 19 * 64));
        assert!(stats.joined_blocks > 0);
        // Overlapping, not equal: each block is fetched once.
        let (_, _, store) = world(1 << 20, |builder| builder).await;
        let ranges = (0..20_u64).map(|number| number * 10_000..number * 10_000 + 100_000);
        let path = Path::from("a");
        join_all(ranges.map(|range| store.get_range(&path, range)))
            .await
            .into_iter()
            .for_each(|read| drop(read.unwrap()));
        assert_eq!(store.stats().fetched_bytes, 18 * BLOCK);
    });
}

/// A reader whose look-up ended just after the fetch of another one fetched the block once more.
#[test]
fn a_reader_looks_again_before_it_fetches() {
    block_on(async {
        let inner = Arc::new(Counting::new(Arc::new(InMemory::new())));
        inner.put(&"a".into(), patterned(4 * BLOCK, 0).into()).await.unwrap();
        // The first look-up ends after 200 yields, and its fetch after another 100.
        let cache = Arc::new(MapCache::late(200));
        let store = CachedStore::builder(inner.clone(), cache).meta_ttl(Duration::MAX).build();
        let second = async {
            for _ in 0..150 {
                tokio::task::yield_now().await;
            }
            read(&store, GetOptions::new()).await
        };
        let (first, second) = tokio::join!(read(&store, GetOptions::new()), second);
        assert_eq!((first.unwrap(), second.unwrap()), (patterned(4 * BLOCK, 0), patterned(4 * BLOCK, 0)));
        assert_eq!(inner.gets(), 1);
        let stats = store.stats();
        assert_eq!((stats.missed_blocks, stats.joined_blocks, stats.hit_blocks), (4, 0, 4));
    });
}

/// A block that was asked for after its fetch had ended, and before its write had, was fetched again.
#[test]
fn a_block_that_is_being_written_is_not_fetched_again() {
    block_on(async {
        let inner = Arc::new(Counting::new(Arc::new(InMemory::new())));
        inner.put(&"a".into(), patterned(4 * BLOCK, 0).into()).await.unwrap();
        let cache = Arc::new(MapCache::slow());
        let keep = |_: &Extensions, path: &Path| path.as_ref() == "put";
        let store = CachedStore::builder(inner.clone(), cache.clone()).immutable().keep_puts(keep).build();
        let whole = patterned(4 * BLOCK, 0);
        for _ in 0..3 {
            assert_eq!(read(&store, GetOptions::new()).await.unwrap(), whole);
        }
        assert_eq!((inner.gets(), cache.len()), (1, 0), "one fetch, and nothing is written");
        assert_eq!((store.stats().missed_blocks, store.stats().joined_blocks), (4, 8));
        assert_eq!(store.warm(&"a".into(), GetOptions::new()).await.unwrap(), 0, "it comes");

        // One that is not to be believed is fetched, and the newest write counts, whichever ends first.
        let anew = IoClass { read_hits: false, ..IoClass::default() };
        assert_eq!(read(&store, with(anew)).await.unwrap(), whole);
        assert_eq!(inner.gets(), 2);
        assert_eq!(cache.end_writes(true), 8);
        assert_eq!(read(&store, GetOptions::new()).await.unwrap(), whole);
        assert_eq!((inner.gets(), store.stats().hit_blocks), (2, 4), "from the cache");

        // What is not stored in the end is fetched again.
        cache.remove_all();
        assert_eq!(read(&store, GetOptions::new()).await.unwrap(), whole);
        assert_eq!(cache.end_writes(false), 4);
        assert_eq!(read(&store, GetOptions::new()).await.unwrap(), whole);
        assert_eq!(inner.gets(), 4);

        // A put that is kept is there at once, too.
        inner.reset();
        store.put(&"put".into(), patterned(2 * BLOCK, 1).into()).await.unwrap();
        assert_eq!(store.get(&"put".into()).await.unwrap().bytes().await.unwrap(), patterned(2 * BLOCK, 1));
        assert_eq!(inner.gets(), 0);
    });
}

/// Runs `story` with a store over a whole cache on a simulated disk.
fn on_a_disk(story: impl AsyncFnOnce(&Town, &Shard, &BlockCache, &Counting, &CachedStore)) {
    let town = Town::new(1, 48 << 20, 7);
    town.create(1 << 20);
    let mut life = town.open(&CacheConfig::default());
    let cache = Arc::new(life.cache.take().unwrap());
    let inner = Arc::new(Counting::new(Arc::new(InMemory::new())));
    let store = CachedStore::builder(inner.clone(), cache.clone()).immutable().build();

    let shard = life.runtime().shard(0).clone();
    life.runtime().block_on(0, story(&town, &shard, &cache, &inner, &store)).unwrap();

    drop(store);
    let cache = Arc::into_inner(cache).expect("nothing else holds the cache");
    life.runtime().block_on(0, cache.close()).unwrap().unwrap();
}

/// A whole cache, on a disk of which no write ends for 5 s.
#[test]
fn while_a_disk_hangs_with_its_writes_nothing_is_fetched_twice() {
    on_a_disk(async |town, shard, _, inner, store| {
        inner.put(&"a".into(), patterned(4 * BLOCK, 0).into()).await.unwrap();
        town.world.set_disk_state(0, SimDiskState::WritesHang).unwrap();
        for second in 0..10 {
            if second == 5 {
                town.world.set_disk_state(0, SimDiskState::Healthy).unwrap();
            }
            assert_eq!(read(store, GetOptions::new()).await.unwrap(), patterned(4 * BLOCK, 0));
            let (hits, gets) = (store.stats().hit_blocks, inner.gets());
            assert_eq!(gets, 1, "after {second} s");
            assert_eq!(hits > 0, second > 5, "{hits} hits after {second} s");
            shard.sleep(Duration::from_secs(1)).await;
        }
    });
}

/// A hit was two uses, the second a moment after the first: by the curve, a cache of a block would have had all hits.
#[test]
fn a_hit_is_one_use_and_counts_at_its_distance() {
    on_a_disk(async |_, shard, cache, inner, store| {
        // 9.4 of 47 MiB: 10 of the curve's 50 steps to the capacity.
        inner.put(&"a".into(), patterned(600 * BLOCK, 0).into()).await.unwrap();
        read(store, GetOptions::new()).await.unwrap();
        while cache.stats().inserts < 600 {
            shard.sleep(Duration::from_millis(1)).await;
        }
        read(store, GetOptions::new()).await.unwrap();
        assert_eq!((inner.gets(), store.stats().hit_blocks), (3, 600));
        let curve = cache.stats().hit_curve;
        assert_eq!((curve.lookups, curve.hits[8], curve.hits[11]), (1200, 0, 600));
    });
}

#[test]
fn a_reader_that_leaves_or_stops_holds_nobody_up() {
    block_on(async {
        for is_dropped in [true, false] {
            let (inner, _, store) = world(10 * BLOCK, |builder| builder).await;
            let mut first = Box::pin(read(&store, GetOptions::new()));
            // The first reader begins the fetch and is then no longer polled.
            while inner.gets() == 0 {
                assert!(futures_util::poll!(&mut first).is_pending());
            }
            let mut second = Box::pin(read(&store, GetOptions::new()));
            while store.stats().joined_blocks == 0 {
                assert!(futures_util::poll!(&mut second).is_pending());
            }
            let kept = (!is_dropped).then_some(first);
            assert_eq!(second.await.unwrap(), patterned(10 * BLOCK, 0));
            assert_eq!(inner.gets(), 1, "still one fetch");
            if let Some(first) = kept {
                assert_eq!(first.await.unwrap(), patterned(10 * BLOCK, 0));
            }
        }
        // All readers are dropped: the next one begins anew.
        let (inner, _, store) = world(BLOCK, |builder| builder).await;
        let mut only = Box::pin(read(&store, GetOptions::new()));
        while inner.gets() == 0 {
            assert!(futures_util::poll!(&mut only).is_pending());
        }
        drop(only);
        assert_eq!(read(&store, GetOptions::new()).await.unwrap(), patterned(BLOCK, 0));
        assert_eq!(inner.gets(), 2);
    });
}

#[test]
fn a_failed_fetch_fails_its_reader_and_not_the_next() {
    block_on(async {
        let (inner, _, store) = world(4 * BLOCK, |builder| builder).await;
        inner.fail_gets(1);
        let reads = join_all((0..5).map(|_| read(&store, GetOptions::new()))).await;
        let failed = reads.iter().filter(|read| matches!(read, Err(Error::Generic { store: "Counting", .. }))).count();
        assert_eq!(failed, 1, "the store's own error, to one");
        assert_eq!(reads.into_iter().flatten().filter(|bytes| *bytes == patterned(4 * BLOCK, 0)).count(), 4);
        assert_eq!(inner.gets(), 2, "the others tried once more, together");
        inner.fail_gets(100);
        assert!(
            join_all((0..5).map(|_| read(&store, GetOptions::new()))).await.iter().all(Result::is_ok),
            "from the cache"
        );
    });
}

/// Each reader tried again after the others, so the last of many waited for the attempts of all.
#[test]
fn a_store_that_is_down_is_asked_twice_however_many_wait() {
    block_on(async {
        let (inner, _, store) = world(4 * BLOCK, |builder| builder).await;
        inner.fail_gets(1000);
        let reads = join_all((0..20).map(|_| read(&store, GetOptions::new()))).await;
        for end in reads {
            let error = end.unwrap_err();
            assert!(matches!(&error, Error::Generic { store: "Counting", .. }), "{error}");
            assert_eq!(error.to_string(), "Generic Counting error: told to fail");
        }
        assert_eq!(inner.gets(), 2);
    });
}
