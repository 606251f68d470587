//! A tree in a far store, and a cache on the disk in front of it.
//!
//! # Why
//! A cache on the disk helps if the tree's store is slower than the disk. The story compares two such caches.
//!
//! # How it works
//! The tree's directory answers each read [`FAR`] later, like an object store in a cloud. In front of it is no cache,
//! foyer's cache (of SlateDB's parsed blocks, in memory and in a file), or this project's (`CachedStore`, of the blocks
//! of files, with scheduled I/O). Memory for blocks is [`MEMORY_BYTES`] in all three ways. The far store counts the
//! reads of queries, so all ways are counted alike.
//!
//! # Limits
//! foyer's I/O bypasses the scheduler. Its memory and its file hold different blocks; ours hold some blocks twice.
//!
//! # Example
//! `far_away(&engine, Way::Plimsoll, home, 64 << 20).await?`

use std::path::Path as FilePath;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use foyer::{BlockEngineConfig, DeviceBuilder, FsDeviceBuilder, HybridCacheBuilder, PsyncIoEngineConfig};
use plimsoll_cache::object_store::{CachedStore, IoClass, ReadOp};
use plimsoll_cache::{BlockCache, CacheConfig, CreateOptions, DiskSource, Host};
use plimsoll_store::Operation;
use slatedb::db_cache::foyer_hybrid::FoyerHybridCache;
use slatedb::db_cache::moka::{MokaCache, MokaCacheOptions};
use slatedb::db_cache::{CachedEntry, DbCache};
use slatedb::object_store::throttle::{ThrottleConfig, ThrottledStore};
use slatedb::object_store::{Extensions, ObjectStore, path::Path};

use super::record::Way;
use crate::database::Tier;
use crate::engine::Engine;
use crate::failure::Failure;

/// Time that the far store adds to each read.
const FAR: Duration = Duration::from_millis(10);
/// Memory for blocks in bytes: little, so that hits come from the disk.
const MEMORY_BYTES: u64 = 8 << 20;
/// Size of the cache on the disk as a part of the tree: fewer than one in five uniform reads hit it.
const PART: f64 = 0.18;
/// Smallest cache on the disk in bytes.
const CACHE_MIN_BYTES: u64 = 32 << 20;
/// Length of SlateDB's aligned blocks, in bytes.
const BLOCK_BYTES: u32 = 4 << 10;
/// Unit in which both caches write, in bytes.
const SLAB_BYTES: u32 = 1 << 20;

/// Returns the tier for a database in `home/first`, whose tree has `tree_bytes`, and the count of reads that queries
/// send to the far store.
///
/// # Errors
/// A cache cannot be created.
pub async fn far_away(
    engine: &Engine,
    way: Way,
    home: &FilePath,
    tree_bytes: u64,
) -> Result<(Tier, Arc<AtomicU64>), Failure> {
    let fetched = Arc::new(AtomicU64::new(0));
    let (counted, classes) = (Arc::clone(&fetched), engine.classes);
    let rule = move |operation, path: &Path, extensions: &Extensions| {
        let class = classes.of_call(operation, path, extensions);
        if operation == Operation::Get && class == classes.query {
            counted.fetch_add(1, Relaxed);
        }
        class
    };

    let near = engine.store(&home.join("first")).await?.with_rule(rule);
    let wait = ThrottleConfig { wait_get_per_call: FAR, ..ThrottleConfig::default() };
    let far: Arc<dyn ObjectStore> = Arc::new(ThrottledStore::new(near, wait));

    let cache_bytes = ((tree_bytes as f64 * PART) as u64).max(CACHE_MIN_BYTES).next_multiple_of(u64::from(SLAB_BYTES));
    let memory = MokaCacheOptions { max_capacity: MEMORY_BYTES, ..MokaCacheOptions::default() };
    let memory: Arc<dyn DbCache> = Arc::new(MokaCache::new_with_opts(memory));
    let tier = match way {
        Way::Foyer => Tier { store: far, block_cache: Some(foyer_cache(home, cache_bytes).await?) },
        Way::Plimsoll => Tier { store: cached(engine, far, home, cache_bytes).await?, block_cache: Some(memory) },
        _ => Tier { store: far, block_cache: Some(memory) },
    };
    Ok((tier, fetched))
}

async fn foyer_cache(home: &FilePath, cache_bytes: u64) -> Result<Arc<dyn DbCache>, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::machine("cannot make foyer's cache", error);
    let device = FsDeviceBuilder::new(home.join("foyer")).with_capacity(cache_bytes as usize).build();
    let blocks = BlockEngineConfig::new(device.map_err(|error| failed(&error))?).with_block_size(SLAB_BYTES as usize);

    let cache = HybridCacheBuilder::new()
        .memory(MEMORY_BYTES as usize)
        .with_weighter(|_, entry: &CachedEntry| entry.size())
        .storage()
        .with_io_engine_config(PsyncIoEngineConfig::new())
        .with_engine_config(blocks)
        .build()
        .await;
    Ok(Arc::new(FoyerHybridCache::new_with_cache(cache.map_err(|error| failed(&error))?)))
}

async fn cached(
    engine: &Engine,
    far: Arc<dyn ObjectStore>,
    home: &FilePath,
    cache_bytes: u64,
) -> Result<Arc<dyn ObjectStore>, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::machine("cannot make plimsoll's cache", error);
    let path = home.join("cache");
    let made = std::fs::File::create_new(&path).and_then(|file| file.set_len(cache_bytes));
    let disk = made.and_then(|()| engine.topology.disk_of(home)).map_err(|error| failed(&error))?;
    let (options, disks) =
        (CreateOptions { slab_bytes: Some(SLAB_BYTES), ..CreateOptions::default() }, [DiskSource::at(path)]);

    let cache = async {
        let host = || Host::on(&engine.topology, vec![engine.runtime.handle(0)], disk..disk + 1);
        BlockCache::create_on(&options, &disks, &host()?).await?;
        BlockCache::open_on(CacheConfig::default(), &disks, host()?).await
    };
    let cache = cache.await.map_err(|error| failed(&error))?;

    let classes = engine.classes;
    // A compaction reads each block once, so its blocks are not kept.
    let class = move |extensions: &Extensions, _: ReadOp, path: &Path| {
        let class = classes.of_call(Operation::Get, path, extensions);
        if class == classes.query { IoClass::default() } else { IoClass::scan(Some(class)) }
    };

    let store = CachedStore::builder(far, Arc::new(cache)).block_bytes(BLOCK_BYTES).map_err(|error| failed(&error))?;
    // Files of the tree never change; manifests are new files.
    Ok(Arc::new(store.gap_bytes(0).meta_ttl(Duration::MAX).classify(class).build()))
}
