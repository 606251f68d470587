//! Disks that return, on real files, and disks that grow, on simulated ones.

use std::time::Duration;

use plimsoll::backend::OpenOptions;
use plimsoll::backend::sim::{SimConfig, SimWorld};
use plimsoll::{Class, Classes, DiskSetup, SimRuntime, Topology};

use super::*;
use crate::cache::BlockCache;
use crate::config::{CacheConfig, CreateOptions};
use crate::host::{Host, HostOptions};
use crate::insert::Inserted;
use crate::lookup::Lookup;
use crate::stats::{DiskHealth, DiskStats};

#[path = "../../../skip.rs"]
mod skip;

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// Waits for the keeper.
fn wait_until(is_so: impl Fn() -> bool) {
    for _ in 0..2400 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("not within two minutes");
}

/// The path was not opened again as long as an operation on the old device had not ended. A second holder of its file
/// stands for that operation.
#[test]
fn a_disk_in_place_of_one_that_never_answers_is_taken_back() {
    let directory = tempfile::tempdir().unwrap();
    if !skip::has_direct_io(directory.path()) {
        return;
    }
    let disks = ["a", "b"].map(|name| DiskSource::at(directory.path().join(name)));
    for disk in &disks {
        std::fs::File::create_new(&disk.path).unwrap().set_len(16 << 20).unwrap();
    }
    let options = CreateOptions { slab_bytes: Some(1 << 20), ..CreateOptions::default() };
    block_on(BlockCache::create(&options, &disks, &HostOptions::default())).unwrap();
    let copy = directory.path().join("copy");
    std::fs::copy(&disks[1].path, &copy).unwrap();

    let cache = block_on(BlockCache::open(CacheConfig::default(), &disks, &HostOptions::default())).unwrap();
    let engine = Arc::clone(cache.engine());
    let health = || cache.stats().disks[1].health;
    let old = engine.disk(1).unwrap();
    let held = Arc::clone(&old.file);
    old.judge(|health| health.set_failed("the test says so".to_owned()));
    drop(old);
    wait_until(|| engine.has_left(1));

    // The same device is not opened for any member, and the old life keeps its lock.
    let again = |member: Option<Member>| {
        let own = Arc::clone(&engine);
        let place = AbsentDisk { source: disks[1].clone(), slot: 1, member };
        let again = move |shard: Shard| async move { own.readmit(&shard, place).await };
        block_on(engine.first_handle().run(again)).unwrap()
    };
    let guid = engine.disk(1).unwrap().identity.guid;
    again(engine.roster.find(guid)).unwrap();
    assert_eq!(health(), DiskHealth::Failed);
    let error = again(None).unwrap_err();
    assert!(matches!(&error, CacheError::Io { error, .. } if error.kind() == io::ErrorKind::ResourceBusy), "{error}");

    std::fs::rename(&copy, &disks[1].path).unwrap();
    wait_until(|| health() == DiskHealth::Healthy);
    assert!(engine.held_disks().contains(&disks[1].path), "the old one is still held");
    drop(held);
    block_on(cache.close()).unwrap();
}

const MIB: u64 = 1 << 20;

/// Simulated disks that grow, of a cache with slabs of 1 MiB.
struct Growing {
    topology: Topology,
    runtime: SimRuntime,
    disks: Vec<DiskSource>,
}

impl Growing {
    /// Creates a cache on disks of 32 MiB.
    fn new(names: &[&str]) -> Growing {
        let world = SimWorld::new(&SimConfig::default()).unwrap();
        let setups = names.iter().map(|_| DiskSetup::unlimited()).collect();
        let topology = Topology::new(1, Classes::new(), setups).unwrap();
        let runtime = SimRuntime::new(&world, &topology).unwrap();
        let disks = names.iter().map(|name| DiskSource::at(name.into())).collect();
        let growing = Growing { topology, runtime, disks };
        (0..names.len()).for_each(|disk| growing.set_len_of(disk, 32 * MIB, true));
        let options = CreateOptions { slab_bytes: Some(MIB as u32), ..CreateOptions::default() };
        growing.run(BlockCache::create_on(&options, &growing.disks, &growing.host())).unwrap();
        growing
    }

    fn host(&self) -> Host {
        let count = self.disks.len() as u16;
        Host::on(&self.topology, vec![self.runtime.handle(0)], 0..count).unwrap().without_locks().seeded(1)
    }

    fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(0, future).unwrap()
    }

    fn open(&self) -> BlockCache {
        self.open_with(CacheConfig::default())
    }

    fn open_with(&self, config: CacheConfig) -> BlockCache {
        self.run(BlockCache::open_on(config, &self.disks, self.host())).unwrap()
    }

    fn set_len(&self, disk: usize, bytes: u64) {
        self.set_len_of(disk, bytes, false);
    }

    fn set_len_of(&self, disk: usize, bytes: u64, create_new: bool) {
        let options = OpenOptions { write: true, create_new, ..OpenOptions::default() };
        let file = self.topology.file(&self.disks[disk].path, options, disk as u16);
        self.run(self.runtime.shard(0).clone().set_len(&file, Class::DEFAULT, bytes)).unwrap();
    }
}

/// Each expansion took another place in the superblock, until the cache could not write one.
#[test]
fn a_disk_grows_slab_by_slab_for_ever() {
    let growing = Growing::new(&["a"]);
    let cache = growing.open();
    assert_eq!(growing.run(cache.insert(b"key", b"a block")).unwrap(), Inserted::Stored);
    for grown in 1..=300 {
        growing.set_len(0, (32 + grown) * MIB);
        assert_eq!(growing.run(cache.expand_disk("a".as_ref())).unwrap(), MIB, "expansion {grown}");
    }
    growing.run(cache.close()).unwrap();

    let cache = growing.open();
    assert_eq!(cache.findings(), Vec::<String>::new());
    assert_eq!(cache.stats().disks[0].slabs, 331);
    assert!(matches!(growing.run(cache.get(b"key")).unwrap(), Lookup::Hit(_)));
    growing.run(cache.close()).unwrap();
}

/// The slabs of disks that grow in turns have no numbers in sequence.
#[test]
fn an_expansion_that_no_superblock_can_tell_is_refused() {
    let growing = Growing::new(&["a", "b"]);
    let cache = growing.open();
    assert_eq!(growing.run(cache.insert(b"key", b"a block")).unwrap(), Inserted::Stored);
    let grow = |step: u64| {
        let disk = (step % 2) as usize;
        growing.set_len(disk, (33 + step / 2) * MIB);
        growing.run(cache.expand_disk(&growing.disks[disk].path))
    };
    let refused = (0..600).find_map(|step| grow(step).err()).expect("a superblock is finite");
    assert!(refused.to_string().contains("superblock"), "{refused}");

    let before = growing.run(cache.checkpoint()).unwrap();
    assert_eq!(growing.run(cache.checkpoint()).unwrap(), before + 1);
    assert!(cache.stats().disks.iter().all(|disk| disk.health == DiskHealth::Healthy));
    growing.run(cache.close()).unwrap();
    let cache = growing.open();
    assert_eq!(cache.findings(), Vec::<String>::new());
    assert!(matches!(growing.run(cache.get(b"key")).unwrap(), Lookup::Hit(_)));
    growing.run(cache.close()).unwrap();
}

/// Both passed the check, and the cache was left without a disk that takes writes.
#[test]
fn of_two_disks_that_are_removed_at_once_one_stays() {
    let growing = Growing::new(&["a", "b"]);
    let cache = growing.open();
    let (engine, disks) = (cache.engine(), cache.engine().all_disks());
    let removed = std::thread::scope(|scope| {
        // Neither is marked before both have begun.
        let begin = |path: &'static str| scope.spawn(move || engine.remove_disk(path.as_ref()).is_ok());
        let both = disks[0].judge(|_| {
            disks[1].judge(|_| {
                let both = ["a", "b"].map(begin);
                std::thread::sleep(Duration::from_millis(100));
                both
            })
        });
        both.map(|thread| thread.join().unwrap())
    });
    assert!(removed.contains(&false), "both are removed");
    drop(disks);
    growing.run(cache.close()).unwrap();
}

/// It was taken back with all the slabs that it had, those behind its end too.
#[test]
fn a_disk_that_returns_shorter_is_not_taken_back() {
    let growing = Growing::new(&["a", "b"]);
    let cache = growing.open();
    let nap = || growing.run(growing.runtime.shard(0).clone().sleep(Duration::from_secs(30)));
    let disk = || cache.stats().disks[1].clone();
    growing.set_len(1, 24 * MIB);
    cache.engine().disk(1).unwrap().judge(|health| health.set_failed("the test says so".to_owned()));
    nap();
    let DiskStats { health, why, .. } = disk();
    assert!(health == DiskHealth::Missing && why.contains("give it its size back"), "{health:?}: {why}");
    growing.set_len(1, 32 * MIB);
    nap();
    assert_eq!((disk().health, disk().why), (DiskHealth::Healthy, String::new()));
    growing.run(cache.close()).unwrap();
}

/// The mover sleeps to keep to its rate, and kept the cache, and with it the locks of its disks, for up to a second.
#[test]
fn a_cache_that_is_closed_has_no_disks_though_its_mover_sleeps() {
    let growing = Growing::new(&["a", "b"]);
    let cache = growing.open_with(CacheConfig { move_bytes_per_s: Some(1 << 20), ..CacheConfig::default() });
    for key in 0..200_u32 {
        assert_eq!(growing.run(cache.insert(&key.to_le_bytes(), &[1; 65_536])).unwrap(), Inserted::Stored);
    }
    cache.remove_disk("a".as_ref()).unwrap();
    growing.run(growing.runtime.shard(0).clone().sleep(Duration::from_millis(1500)));
    let disks: Vec<_> = cache.engine().all_disks().iter().map(Arc::downgrade).collect();
    assert!(cache.stats().moves > 0 && cache.stats().disks[0].to_move_bytes > 0);
    growing.run(cache.close()).unwrap();
    assert!(disks.iter().all(|disk| disk.upgrade().is_none()), "something holds a disk, and with it its lock");
}
