//! Tests of the cache whole: what callers see at its edges.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use plimsoll::backend::OpenOptions;
use plimsoll::backend::sim::{SimConfig, SimDiskState, SimWorld};
use plimsoll::{Class, DiskSetup, SimRuntime, Topology};

use super::*;
use crate::fetch::{FetchError, Fetched};

fn poll<T>(future: impl Future<Output = T>) -> Poll<T> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// A cache of one disk on one simulated shard.
struct Stage {
    runtime: SimRuntime,
    topology: Topology,
    disks: [DiskSource; 1],
}

impl Stage {
    fn new(len_bytes: u64) -> Stage {
        let stage = Stage::blank(len_bytes);
        stage.create().unwrap();
        stage
    }

    /// Returns a disk without a cache.
    fn blank(len_bytes: u64) -> Stage {
        let world = SimWorld::new(&SimConfig::default()).unwrap();
        let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
        let runtime = SimRuntime::new(&world, &topology).unwrap();
        let stage = Stage { runtime, topology, disks: [DiskSource::at("disk".into())] };
        let new = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
        let (file, shard) = (stage.topology.file("disk".as_ref(), new, 0), stage.runtime.shard(0).clone());
        stage.runtime.block_on(0, shard.set_len(&file, Class::DEFAULT, len_bytes)).unwrap().unwrap();
        stage
    }

    /// Makes a cache with slabs of 1 MiB.
    fn create(&self) -> Result<(), CacheError> {
        let options = CreateOptions { slab_bytes: Some(1 << 20), ..CreateOptions::default() };
        self.runtime.block_on(0, BlockCache::create_on(&options, &self.disks, &self.host())).unwrap()
    }

    fn host(&self) -> Host {
        Host::on(&self.topology, vec![self.runtime.handle(0)], 0..1).unwrap().without_locks().seeded(1)
    }

    async fn open(&self) -> Result<BlockCache, CacheError> {
        BlockCache::open_on(CacheConfig::default(), &self.disks, self.host()).await
    }
}

/// Returns an open cache, and the shard's runtime.
fn cache() -> (SimRuntime, BlockCache) {
    cache_of(32 << 20)
}

fn cache_of(len_bytes: u64) -> (SimRuntime, BlockCache) {
    let stage = Stage::new(len_bytes);
    let opened = stage.runtime.block_on(0, stage.open()).unwrap().unwrap();
    (stage.runtime, opened)
}

/// "0 bytes are too few" was said of this disk.
#[test]
fn a_disk_of_more_slabs_than_there_are_numbers_is_refused_with_the_reason() {
    let error = Stage::blank(17 << 40).create().unwrap_err().to_string();
    assert!(error.contains("slabs") && error.contains("larger"), "{error}");
}

/// The keeper went on with nobody to close the cache, whose disks stayed locked as long as the program's shards.
#[test]
fn an_opening_that_is_given_up_leaves_no_cache_behind() {
    let stage = Stage::new(32 << 20);
    let runtime = &stage.runtime;
    let hour = Duration::from_secs(3600);
    assert!(poll(stage.open()).is_pending());
    runtime.run_for(hour).unwrap();
    let landed = runtime.world().landed();
    runtime.run_for(hour).unwrap();
    assert_eq!(runtime.world().landed(), landed, "checkpoints go on");
    let cache = runtime.block_on(0, stage.open()).unwrap().unwrap();
    assert_eq!(cache.findings(), Vec::<String>::new());
    runtime.block_on(0, cache.close()).unwrap().unwrap();
}

/// On a program's shards, writes that waited for a slow disk were begun all the same: closing took them for
/// operations that hang.
#[test]
fn a_cache_that_closes_begins_no_more_writes() {
    let (runtime, cache) = cache_of(256 << 20);
    runtime.world().set_disk_state(0, SimDiskState::Slow { factor: 1000.0 }).unwrap();
    for key in 0..2000_u32 {
        assert!(poll(cache.insert(&key.to_le_bytes(), &[1; 65_536])).is_pending());
    }
    let engine = Arc::downgrade(cache.engine());
    runtime.block_on(0, cache.close()).unwrap().unwrap();
    assert!(engine.upgrade().is_none(), "something holds the cache, and with it the locks of its disks");
    let landed = runtime.world().landed();
    runtime.run_for(Duration::from_secs(3600)).unwrap();
    assert_eq!(runtime.world().landed(), landed);
}

/// A write under way held the cache, and the cache held the write: with its index, its memory and its disks it was
/// kept until the process ended.
#[test]
fn a_cache_that_is_dropped_with_inserts_under_way_is_freed() {
    for landed in [0, 1, 20] {
        let (runtime, cache) = cache();
        let engine = Arc::downgrade(cache.engine());
        for key in 0..100u32 {
            // An insert that has begun continues without its future.
            assert!(poll(cache.insert(&key.to_le_bytes(), &[1; 8192])).is_pending());
        }
        runtime.run_until_landed(runtime.world().landed() + landed).unwrap();
        drop(cache);
        drop(runtime);
        assert!(engine.upgrade().is_none(), "{landed} have landed: something holds the engine");
    }
}

/// The second shard does not end, as one whose operation the kernel keeps. The test holds the disk's file in place
/// of that operation.
#[test]
fn closing_names_the_disk_that_keeps_a_shard() {
    let directory = tempfile::tempdir().unwrap();
    let disks = [DiskSource::at(directory.path().join("disk"))];
    std::fs::File::create_new(&disks[0].path).unwrap().set_len(32 << 20).unwrap();
    let backend = Some(plimsoll::backend::choose::BackendKind::Pool);
    let host = HostOptions { shards: 2, backend, ..HostOptions::default() };
    let options = CreateOptions { slab_bytes: Some(1 << 20), ..CreateOptions::default() };
    let (release, held) = std::sync::mpsc::channel::<()>();
    let (begin, begun) = std::sync::mpsc::channel();
    let waiting = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let end = waiting.block_on(async {
        BlockCache::create(&options, &disks, &host).await.unwrap();
        let cache = BlockCache::open(CacheConfig::default(), &disks, &host).await.unwrap();
        let _operation = Arc::clone(&cache.engine().disk(0).unwrap().file);
        let hold = move |_| async move {
            begin.send(()).unwrap();
            _ = held.recv();
        };
        cache.engine().handles[1].spawn(hold).unwrap();
        begun.recv().unwrap();
        cache.close_within(Duration::from_millis(10)).await
    });
    drop(release);
    let Err(CacheError::Hangs { paths }) = end else { panic!("{end:?}") };
    assert_eq!(paths, [disks[0].path.clone()]);
}

/// The look-up answered that the cache had been closed, and the origin was not asked.
#[test]
fn a_look_up_that_the_shard_has_no_room_for_is_a_miss() {
    let (runtime, cache) = cache();
    assert_eq!(runtime.block_on(0, cache.insert(b"a", &[1; 8192])).unwrap().unwrap(), Inserted::Stored);
    while runtime.handle(0).spawn(|_| async {}).is_ok() {}

    let end = poll(cache.get(b"a"));
    assert!(matches!(end, Poll::Ready(Ok(Lookup::Miss(MissReason::Overloaded)))));
    let fetched = poll(cache.get_or_fetch(b"a", GetOptions::default(), async |_| Ok::<_, ()>(vec![2; 8192])));
    let Poll::Ready(Ok(Fetched::Origin(block))) = fetched else { panic!("the origin has it at once") };
    assert_eq!(&block[..], [2; 8192]);
    assert_eq!(cache.stats().misses["overloaded"], 2);
}

/// A reader that had missed the block before it was cached, and led afterwards, fetched it once more.
#[test]
fn a_reader_that_gets_the_lead_looks_again_before_it_fetches() {
    let (runtime, cache) = cache();
    let mut context = Context::from_waker(Waker::noop());
    let options = GetOptions::default();
    let never = |_| std::future::pending::<Result<Vec<u8>, ()>>();
    let mut first = Box::pin(cache.get_or_fetch(b"a", options, never));
    let second = cache.get_or_fetch(b"a", options, async |_| -> Result<Vec<u8>, ()> { panic!("it is cached") });
    let mut second = pin!(second);
    assert!(first.as_mut().poll(&mut context).is_pending());
    assert!(second.as_mut().poll(&mut context).is_pending());

    drop(first);
    assert_eq!(runtime.block_on(0, cache.insert(b"a", &[1; 8192])).unwrap().unwrap(), Inserted::Stored);
    let fetched = runtime.block_on(0, second).unwrap().unwrap();
    assert!(matches!(fetched, Fetched::Hit(block) if block[..] == [1; 8192]));
}

/// Each tried after the others: with an origin that fails after a minute, the tenth waited for ten.
#[test]
fn readers_that_wait_for_a_fetch_that_fails_try_once_more_together() {
    let (_runtime, cache) = cache();
    let mut context = Context::from_waker(Waker::noop());
    let (fetches, is_down) = (Cell::new(0), Cell::new(false));
    let fetch = |_| {
        fetches.set(fetches.get() + 1);
        std::future::poll_fn(|_| if is_down.get() { Poll::Ready(Err::<Vec<u8>, _>("down")) } else { Poll::Pending })
    };
    let mut readers: Vec<_> =
        (0..10).map(|_| Box::pin(cache.get_or_fetch(b"a", GetOptions::default(), fetch))).collect();
    // Another type of errors cannot be shared; the reader's own fetch answers.
    let other = cache.get_or_fetch(b"a", GetOptions::default(), async |_| Ok::<_, String>(vec![2; 8192]));
    let mut other = Box::pin(other);
    assert!(readers.iter_mut().all(|reader| reader.as_mut().poll(&mut context).is_pending()));
    assert!(other.as_mut().poll(&mut context).is_pending());

    // The first attempt is the first reader's; the second is that of all others.
    for left in [9, 0] {
        is_down.set(true);
        let first = readers.remove(0).as_mut().poll(&mut context);
        assert!(matches!(first, Poll::Ready(Err(_))));
        is_down.set(left == 0);
        readers.retain_mut(|reader| match reader.as_mut().poll(&mut context) {
            Poll::Ready(end) => {
                assert!(matches!(end, Err(FetchError::Origin(_))));
                false
            }
            Poll::Pending => true,
        });
        assert_eq!((readers.len(), fetches.get()), (left, 2));
    }
    let Poll::Ready(Ok(Fetched::Origin(_))) = other.as_mut().poll(&mut context) else { panic!("its own fetch") };
}

#[test]
fn a_cache_whose_disks_have_failed_names_each_and_its_reason() {
    let (runtime, cache) = cache();
    let disk = cache.engine().disk(0).unwrap();
    disk.judge(|health| health.set_failed("no space left on device".to_owned()));
    let error = runtime.block_on(0, cache.checkpoint()).unwrap().unwrap_err().to_string();
    assert!(error.contains("disk: no space left on device"), "{error}");
    // The cache searches for the disk meanwhile: its former life is over.
    drop(disk);
    let error = runtime.block_on(0, cache.close()).unwrap().unwrap_err().to_string();
    assert!(error.contains("disk: no space left on device"), "{error}");
}

#[test]
fn nothing_waits_for_shards_that_have_ended() {
    let (runtime, cache) = cache();
    let mut context = Context::from_waker(Waker::noop());
    {
        let mut insert = pin!(cache.insert(b"a", &[1; 8192]));
        let mut checkpoint = pin!(cache.checkpoint());
        assert!(insert.as_mut().poll(&mut context).is_pending());
        assert!(checkpoint.as_mut().poll(&mut context).is_pending());
        runtime.crash();
        assert!(has_failed(insert.as_mut().poll(&mut context)));
        assert!(has_stopped(checkpoint.as_mut().poll(&mut context)));
    }
    assert!(has_failed(poll(cache.insert(b"b", &[1; 8192]))));
    assert!(has_stopped(poll(cache.checkpoint())));
    assert!(has_stopped(poll(cache.close())));
}

fn has_failed(end: Poll<Result<Inserted, CacheError>>) -> bool {
    matches!(end, Poll::Ready(Ok(Inserted::Dropped(DropReason::WriteFailed))))
}

fn has_stopped<T>(end: Poll<Result<T, CacheError>>) -> bool {
    matches!(end, Poll::Ready(Err(CacheError::Stopped(_))))
}
