//! The object store wrapper, from outside: its answers equal the store's, byte for byte, whatever happens in between;
//! and it sends the store no more requests than necessary.

mod changes;
mod concurrent;
mod counting;
mod random;
mod s3;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use counting::{Counting, Lie, MapCache, block_on, patterned};
use futures_util::future::join_all;
use futures_util::stream::StreamExt;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    Error, Extensions, GetOptions, GetResultPayload, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
};
use plimsoll::{Class, Classes};
use plimsoll_cache::object_store::{CachedStore, CachedStoreBuilder, IoClass, ReadOp, with_extensions};

const BLOCK: u64 = 16 << 10;

/// Returns a counted store in memory with one object `a` of `len_bytes`, and a wrapper around it.
async fn world(
    len_bytes: u64,
    set_up: impl FnOnce(CachedStoreBuilder) -> CachedStoreBuilder,
) -> (Arc<Counting>, Arc<MapCache>, CachedStore) {
    let inner = Arc::new(Counting::new(Arc::new(InMemory::new())));
    inner.put(&"a".into(), patterned(len_bytes, 0).into()).await.unwrap();
    let cache = Arc::new(MapCache::default());
    let store = set_up(CachedStore::builder(inner.clone(), cache.clone())).build();
    (inner, cache, store)
}

fn with(class: IoClass) -> GetOptions {
    let mut options = GetOptions::new();
    options.extensions.insert(class);
    options
}

async fn read(store: &CachedStore, options: GetOptions) -> object_store::Result<Vec<u8>> {
    Ok(store.get_opts(&"a".into(), options).await?.bytes().await?.to_vec())
}

#[test]
fn random_reads_equal_those_of_a_local_file_store() {
    for seed in 1..=4 {
        let dir = tempfile::tempdir().unwrap();
        block_on(random::compare(Arc::new(LocalFileSystem::new_with_prefix(dir.path()).unwrap()), seed, 400));
    }
}

#[test]
fn random_reads_equal_those_of_a_store_in_memory() {
    for seed in 1..=4 {
        block_on(random::compare(Arc::new(InMemory::new()), seed, 400));
    }
}

#[test]
fn random_reads_equal_those_of_an_s3_server() {
    let Some(server) = crate::versitygw::Server::start() else { return };
    block_on(random::compare(server.store(), 1, 300));
}

#[test]
fn neighbouring_blocks_are_one_request_and_hits_none() {
    block_on(async {
        let (inner, _, store) = world(1 << 20, |builder| builder).await;
        for (range, fetches) in [(100..200, 1), (150..16_000, 0), (BLOCK - 1..9 * BLOCK + 1, 1), (0..10 * BLOCK, 0)] {
            inner.reset();
            let found = store.get_range(&"a".into(), range.clone()).await.unwrap();
            assert_eq!(found, patterned(1 << 20, 0)[range.start as usize..range.end as usize]);
            assert_eq!((inner.heads(), inner.gets()), (1, fetches), "{range:?}");
        }
        let stats = store.stats();
        assert_eq!((stats.fetches, stats.missed_blocks, stats.fetched_bytes), (2, 10, 10 * BLOCK));
        assert_eq!(stats.hit_blocks, 1 + 1 + 10);
    });
}

#[test]
fn long_reads_are_cut_and_short_gaps_bridged() {
    block_on(async {
        // Fetch at most 4 blocks: 10 blocks are 3 requests.
        let (inner, _, store) = world(10 * BLOCK, |builder| builder.fetch_bytes(4 * BLOCK as u32)).await;
        assert_eq!(read(&store, GetOptions::new()).await.unwrap(), patterned(10 * BLOCK, 0));
        assert_eq!(inner.gets(), 3);
        // Blocks 0, 2 and 9: gaps of 1 and 6.
        for (gap_blocks, gets) in [(0, 3), (1, 2), (5, 2), (6, 1)] {
            let (inner, cache, store) = world(10 * BLOCK, |builder| builder.gap_bytes(gap_blocks * BLOCK as u32)).await;
            let ranges = [0..1, 2 * BLOCK..2 * BLOCK + 7, 9 * BLOCK..10 * BLOCK];
            assert_eq!(store.get_ranges(&"a".into(), &ranges).await.unwrap()[1].len(), 7);
            assert_eq!((inner.gets(), cache.len()), (gets, 3), "gap of {gap_blocks}: only what was asked for is kept");
        }
    });
}

#[test]
fn get_ranges_is_one_read() {
    block_on(async {
        let (inner, _, store) = world(1 << 20, |builder| builder).await;
        let ranges: Vec<_> = (0..50).rev().map(|number| number * 20_000..number * 20_000 + 30_000).collect();
        let found = store.get_ranges(&"a".into(), &ranges).await.unwrap();
        let all = patterned(1 << 20, 0);
        for (range, bytes) in ranges.iter().zip(&found) {
            assert_eq!(bytes, &all[range.start as usize..range.end as usize]);
        }
        assert_eq!((inner.heads(), inner.gets()), (1, 1));
        assert!(store.get_ranges(&"a".into(), &[]).await.unwrap().is_empty());
        assert!(store.get_ranges(&"a".into(), &[0..4, (1 << 20)..(1 << 20) + 4]).await.is_err(), "as the store has it");
    });
}

#[test]
fn a_class_says_whether_hits_are_read_and_misses_kept() {
    block_on(async {
        let classes = Classes::new();
        let scan = classes.add_class("scan", None, 10).unwrap();
        let (inner, cache, store) = world(4 * BLOCK, |builder| builder).await;
        read(&store, with(IoClass::scan(Some(scan)))).await.unwrap();
        assert_eq!((cache.len(), cache.classes()), (0, vec![Some(scan)]), "a scan leaves nothing behind");
        read(&store, with(IoClass::default())).await.unwrap();
        assert_eq!((cache.len(), inner.gets()), (4, 2));
        read(&store, with(IoClass::scan(Some(scan)))).await.unwrap();
        assert_eq!(inner.gets(), 2, "but it takes what is there");
        cache.corrupt_all();
        assert_ne!(
            read(&store, GetOptions::new()).await.unwrap(),
            patterned(4 * BLOCK, 0),
            "the cache answers for its blocks"
        );
        let again = IoClass { read_hits: false, ..IoClass::default() };
        assert_eq!(read(&store, with(again)).await.unwrap(), patterned(4 * BLOCK, 0));
        assert_eq!(read(&store, GetOptions::new()).await.unwrap(), patterned(4 * BLOCK, 0), "replaced");
        // A reader that inserts blocks joins one that does not.
        let (_, cache, store) = world(4 * BLOCK, |builder| builder).await;
        let reads = [IoClass::scan(None), IoClass::default()].map(|class| read(&store, with(class)));
        join_all(reads).await.into_iter().for_each(|read| drop(read.unwrap()));
        assert_eq!(cache.len(), 4);
    });
}

#[test]
fn puts_that_are_kept_are_hits_at_once() {
    block_on(async {
        let keep = |extensions: &Extensions, path: &Path| {
            path.as_ref().ends_with(".sst") && extensions.get::<&str>() != Some(&"compaction")
        };
        let (inner, cache, store) = world(0, |builder| builder.immutable().keep_puts(keep)).await;
        let path = Path::from("t/1.sst");
        for salt in 1..=2 {
            // In parts that are no blocks.
            let bytes = patterned(5 * BLOCK + 7, salt);
            let payload = bytes.chunks(10_000).map(Bytes::copy_from_slice).collect::<PutPayload>();
            inner.reset();
            store.put(&path, payload).await.unwrap();
            assert_eq!((inner.heads(), cache.len()), (1, 6), "the older state's blocks are gone");
            assert!(store.get(&path).await.unwrap().bytes().await.unwrap() == bytes);
            assert_eq!((inner.heads(), inner.gets()), (1, 0), "neither metadata nor data are asked for");
        }

        inner.reset();
        let mut compaction = PutOptions::default();
        compaction.extensions.insert("compaction");
        store.put_opts(&"t/2.sst".into(), patterned(BLOCK, 0).into(), compaction).await.unwrap();
        store.put(&"t/3.wal".into(), patterned(BLOCK, 0).into()).await.unwrap();
        let once = PutOptions::from(PutMode::Create);
        assert!(store.put_opts(&path, patterned(BLOCK, 3).into(), once).await.is_err(), "it exists");
        assert_eq!((inner.heads(), cache.len()), (0, 0), "nothing else is kept");

        // Metadata of another state than the one that was put: somebody else has put another one since.
        for lie in [Lie::Tag, Lie::Size(1)] {
            inner.lie(lie);
            store.put(&path, patterned(BLOCK, 4).into()).await.unwrap();
            assert_eq!((inner.heads(), cache.len()), (1, 0), "{lie:?}");
            inner.reset();
        }
    });
}

#[test]
fn warming_fetches_what_is_missing_and_only_that() {
    block_on(async {
        let (inner, cache, store) = world(10 * BLOCK + 1, CachedStoreBuilder::immutable).await;
        let (path, scan) = (Path::from("a"), with(IoClass::scan(None)));
        store.get_range(&path, 2 * BLOCK..3 * BLOCK).await.unwrap();
        cache.classes();
        let part = scan.clone().with_range(Some(0..5 * BLOCK - 1));
        assert_eq!(store.warm(&path, part.clone()).await.unwrap(), 4 * BLOCK);
        assert_eq!(store.warm(&path, part).await.unwrap(), 0, "it is there");
        assert_eq!(store.warm(&path, GetOptions::new()).await.unwrap(), 5 * BLOCK + 1);
        assert_eq!(cache.classes(), [], "no block is read");
        assert_eq!(cache.len(), 11, "also in a class that keeps nothing");
        inner.reset();
        assert_eq!(read(&store, GetOptions::new()).await.unwrap(), patterned(10 * BLOCK + 1, 0));
        assert_eq!(inner.gets(), 0);

        assert!(store.warm(&path, GetOptions::new().with_range(Some(20 * BLOCK..21 * BLOCK))).await.is_err());
        assert!(matches!(store.warm(&"b".into(), GetOptions::new()).await, Err(Error::NotFound { .. })));
        let version = GetOptions::new().with_version(Some("7"));
        assert!(
            matches!(store.warm(&path, version).await, Err(Error::NotSupported { .. })),
            "nothing is learned of it"
        );
        inner.put(&path, patterned(BLOCK, 1).into()).await.unwrap();
        cache.remove_all();
        assert!(store.warm(&path, GetOptions::new()).await.is_err(), "it is another object");
        assert_eq!(store.warm(&path, GetOptions::new()).await.unwrap(), BLOCK);
    });
}

#[test]
fn a_prefix_can_be_invalidated() {
    block_on(async {
        let (inner, cache, store) = world(BLOCK, CachedStoreBuilder::immutable).await;
        let paths = ["t/1", "t/2", "t/deep/3", "tt/4", "a"].map(Path::from);
        for path in &paths {
            inner.put(path, patterned(BLOCK, 1).into()).await.unwrap();
            store.get(path).await.unwrap().bytes().await.unwrap();
        }
        for path in &paths {
            inner.put(path, patterned(BLOCK, 2).into()).await.unwrap();
        }
        store.invalidate_prefix(&"t".into()).await;
        assert_eq!(cache.len(), 2, "tt/4 and a");
        for (number, path) in paths.iter().enumerate() {
            let salt = if number < 3 { 2 } else { 1 };
            let found = store.get(path).await.unwrap().bytes().await.unwrap();
            assert!(found == patterned(BLOCK, salt), "{path}");
        }
    });
}

/// All was visited at once, and nothing else ran for as long.
#[test]
fn other_tasks_run_while_a_prefix_is_invalidated() {
    block_on(async {
        let (inner, cache, store) = world(BLOCK, CachedStoreBuilder::immutable).await;
        let paths: Vec<Path> = (0..1000).map(|n| format!("t/{n}").into()).collect();
        for path in &paths {
            inner.put(path, patterned(2 * BLOCK, 1).into()).await.unwrap();
            store.get(path).await.unwrap().bytes().await.unwrap();
        }
        let prefix = "t".into();
        let mut invalidating = Box::pin(store.invalidate_prefix(&prefix));
        let (mut turns, mut most, mut before) = (0, 0, cache.len());
        std::future::poll_fn(|context| {
            let end = invalidating.as_mut().poll(context);
            turns += 1;
            most = most.max(before - cache.len());
            before = cache.len();
            end
        })
        .await;
        assert_eq!(cache.len(), 0);
        assert!(turns > 10 && most <= 256, "{most} blocks at once, in {turns} turns");

        // It can be run anywhere.
        fn is_send<T: Send>(_: T) {}
        is_send(store.invalidate_prefix(&prefix));
    });
}

#[test]
fn a_hook_knows_a_programs_own_tags() {
    #[derive(Clone)]
    struct Tag(&'static str);
    block_on(async {
        let hook = |extensions: &object_store::Extensions, op: ReadOp, location: &Path| {
            assert_eq!(location, &Path::from("a"));
            let is_compaction = extensions.get::<Tag>().is_some_and(|tag| tag.0 == "compaction");
            if is_compaction || op == ReadOp::GetRanges {
                IoClass::scan(Some(Class::DEFAULT))
            } else {
                IoClass::default()
            }
        };
        let (inner, cache, store) = world(BLOCK, |builder| builder.classify(hook)).await;
        let mut tagged = GetOptions::new();
        tagged.extensions.insert(Tag("compaction"));
        read(&store, tagged).await.unwrap();
        assert_eq!(inner.tagged::<Tag>(), 2, "head and get alike: the store below sees the tags");
        store.get_ranges(&"a".into(), &[0..10, 20..30]).await.unwrap();
        assert_eq!((cache.len(), cache.classes()), (0, vec![Some(Class::DEFAULT)]));
        read(&store, GetOptions::new()).await.unwrap();
        assert_eq!(cache.len(), 1);
    });
}

#[test]
fn get_ranges_has_the_class_of_its_surroundings() {
    block_on(async {
        let scan = Classes::new().add_class("scan", None, 10).unwrap();
        let (inner, cache, store) = world(BLOCK, |builder| builder).await;
        let extensions = with(IoClass::scan(Some(scan))).extensions;
        let path = Path::from("a");
        let found = with_extensions(extensions.clone(), store.get_ranges(&path, &[0..10, 20..30])).await.unwrap();
        assert_eq!(found[1], patterned(BLOCK, 0)[20..30]);
        assert_eq!((cache.len(), cache.classes()), (0, vec![Some(scan)]), "a scan keeps nothing");
        assert_eq!(inner.tagged::<IoClass>(), 2, "head and get alike: the store below sees it");
        with_extensions(extensions, store.get_range(&path, 0..10)).await.unwrap();
        assert_eq!((cache.len(), cache.classes()), (0, vec![Some(scan)]), "also where a library passes no options");
        store.get_ranges(&path, std::slice::from_ref(&(0..10))).await.unwrap();
        assert_eq!((cache.len(), cache.classes()), (1, vec![None]), "and nothing else is in it");
    });
}

#[test]
fn a_store_that_lies_is_not_believed() {
    for (lie, is_answered) in [
        (Lie::Size(1000), true),
        (Lie::Size(-1000), true),
        (Lie::Tag, true),
        (Lie::Length(1), false),
        (Lie::Length(-1), false),
    ] {
        block_on(async {
            let (inner, cache, store) = world(4 * BLOCK, |builder| builder).await;
            inner.lie(lie);
            match read(&store, GetOptions::new()).await {
                Ok(found) => assert!(is_answered && found == patterned(4 * BLOCK, 0), "{lie:?}"),
                Err(error) => assert!(!is_answered, "{lie:?}: {error}"),
            }
            assert_eq!(cache.len(), 0, "{lie:?} is cached");
        });
    }
}

#[test]
fn answers_are_streams_and_errors_the_stores_own() {
    let dir = tempfile::tempdir().unwrap();
    block_on(async {
        let local: Arc<dyn ObjectStore> = Arc::new(LocalFileSystem::new_with_prefix(dir.path()).unwrap());
        let store = CachedStore::builder(local.clone(), Arc::new(MapCache::default())).build();
        store.put(&"a".into(), patterned(100, 0).into()).await.unwrap();
        let version = GetOptions::new().with_version(Some("7"));
        for options in [GetOptions::new(), GetOptions::new().with_head(true), version] {
            let answer = store.get_opts(&"a".into(), options).await.unwrap();
            assert!(matches!(answer.payload, GetResultPayload::Stream(_)));
        }
        let beyond = GetOptions::new().with_range(Some(100..200));
        let (ours, theirs) = (read(&store, beyond.clone()).await, local.get_opts(&"a".into(), beyond).await);
        assert_eq!(ours.unwrap_err().to_string(), theirs.unwrap_err().to_string());
        assert!(store.to_string().starts_with("CachedStore(LocalFileSystem("), "{store}");
        assert!(format!("{store:?}").contains("meta_requests"));
    });
}

#[test]
fn block_sizes_are_powers_of_two_from_4_to_64_kib() {
    for (bytes, is_ok) in [(0, false), (2048, false), (4096, true), (5000, false), (65_536, true), (131_072, false)] {
        let builder = CachedStore::builder(Arc::new(InMemory::new()), Arc::new(MapCache::default()));
        assert_eq!(builder.block_bytes(bytes).is_ok(), is_ok, "{bytes}");
    }
}

/// Each further error forgot all objects again whose deletion had failed: of n of them, n * n / 2.
#[test]
fn a_deletion_that_fails_is_over_once_it_is_answered() {
    block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let local = LocalFileSystem::new_with_prefix(dir.path()).unwrap();
        let inner = Arc::new(Counting::new(Arc::new(local)));
        let builder = CachedStore::builder(inner.clone(), Arc::new(MapCache::default()));
        let store = builder.meta_ttl(Duration::MAX).build();
        let locations = futures_util::stream::iter(["a", "b"].map(|location| Ok(Path::from(location))));
        let mut answers = store.delete_stream(locations.boxed());

        assert!(answers.next().await.unwrap().is_err(), "there is no `a`");
        inner.put(&"a".into(), "new".into()).await.unwrap();
        store.head(&"a".into()).await.unwrap();
        assert!(answers.next().await.unwrap().is_err(), "there is no `b`");
        inner.reset();
        store.head(&"a".into()).await.unwrap();
        assert_eq!(inner.heads(), 0, "`a` is known since its deletion ended");
    });
}
