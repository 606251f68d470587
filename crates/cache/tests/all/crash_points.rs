//! The power fails after every single operation of what changes a cache: a checkpoint, the creation of a cache, a
//! snapshot that lets a log be cut, the addition of a disk, the end of a removal. Everything promised before must
//! survive.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::world::{Life, Town, value_of};
use plimsoll::backend::sim::{SimDiskState, SimFaults};
use plimsoll_cache::stats::MissReason;
use plimsoll_cache::{BlockCache, CacheConfig, CacheError, DiskSource, Lookup};

const SLAB_BYTES: u32 = 1 << 20;

/// Returns a configuration in which only the test requests checkpoints.
fn quiet() -> CacheConfig {
    CacheConfig {
        checkpoint_interval: Duration::from_secs(86_400),
        target_free_blocks_pct: 1.0,
        ..CacheConfig::default()
    }
}

/// Returns a cache of two disks with 60 durable blocks, in a world whose crashes tear writes.
fn town(seed: u64, disks: u16) -> Town {
    let town = Town::new(disks, 24 << 20, seed);
    town.world.set_faults(SimFaults { torn_write_probability: 0.3, ..SimFaults::default() }).unwrap();
    town
}

fn key(n: u32) -> [u8; 4] {
    n.to_le_bytes()
}

async fn insert(cache: &BlockCache, keys: std::ops::Range<u32>, version: u32) {
    for n in keys {
        let end = cache.insert(&key(n), &value_of(n + 1000 * version, 3000)).await.unwrap();
        assert_eq!(end, plimsoll_cache::Inserted::Stored);
    }
}

/// Stores blocks 0..60 in version 1, all durable; then 0..20 get version 2, 20..30 are removed, 60..80 are new.
async fn prepare(cache: &BlockCache) {
    insert(cache, 0..60, 1).await;
    cache.checkpoint().await.unwrap();
    change(cache).await;
}

async fn change(cache: &BlockCache) {
    insert(cache, 0..20, 2).await;
    for n in 20..30 {
        assert!(cache.remove(&key(n)).await.unwrap());
    }
    insert(cache, 60..80, 2).await;
}

/// Returns the version of each block found.
async fn versions(cache: &BlockCache) -> BTreeMap<u32, u32> {
    let mut found = BTreeMap::new();
    for n in 0..80 {
        match cache.get(&key(n)).await.unwrap() {
            Lookup::Hit(block) => {
                let version = (1..=2).find(|version| block[..] == value_of(n + 1000 * version, 3000));
                found.insert(n, version.unwrap_or_else(|| panic!("block {n} is wrong")));
            }
            Lookup::Miss(reason) => assert_eq!(reason, MissReason::Absent, "block {n}"),
        }
    }
    found
}

fn before() -> BTreeMap<u32, u32> {
    (0..60).map(|n| (n, 1)).collect()
}

fn after() -> BTreeMap<u32, u32> {
    (0..20).map(|n| (n, 2)).chain((30..60).map(|n| (n, 1))).chain((60..80).map(|n| (n, 2))).collect()
}

/// Checks that a crash left one of the two states, the same after another opening, and that the cache still works.
fn check(town: &Town, disks: &[DiskSource], is_acknowledged: bool, what: &str) {
    let life = town.try_open_of(&quiet(), disks).unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = life.run(versions);
    let is_right = found == after() || !is_acknowledged && found == before();
    assert!(is_right, "{what}: {found:?}");
    life.run(async |cache| insert(cache, 100..120, 1).await);
    life.close();
    let life = match town.try_open_of(&quiet(), disks) {
        // The removal has ended meanwhile.
        Err(CacheError::NotACache { .. } | CacheError::NotAMember { .. }) => town.try_open_of(&quiet(), &disks[..2]),
        opened => opened,
    };
    let life = life.unwrap_or_else(|error| panic!("{what}, again: {error}"));
    assert_eq!(life.run(versions), found, "{what}, again");
    life.crash();
}

/// Crashes after each operation of `work` in turn, and calls `check` each time, in worlds of one seed or as many as the
/// test is given. Returns the number of crash points in all.
fn at_every_point(
    begin: impl Fn(u64) -> (Town, Life),
    work: impl AsyncFn(&BlockCache),
    check: impl Fn(&Town, bool, &str),
) -> u64 {
    at_points(|seed, point| {
        let (town, life) = begin(seed);
        let landed = town.world.landed() + point;
        let cache = life.cache.as_ref().unwrap();
        let end = life.runtime().block_on_until_landed(0, work(cache), landed).unwrap();
        life.crash();
        check(&town, end.is_some(), &format!("point {point}"));
        end.is_some()
    })
}

/// Calls `crash` with the seed of a world and the number of a point, until it says that the work was done before that
/// point. Returns the number of points.
fn at_points(crash: impl Fn(u64, u64) -> bool) -> u64 {
    let mut points = 0;
    crate::seeds::each(1, |round| {
        points += (0..).take_while(|point| !crash(round << 16 | (point + 1), *point)).count()
    });
    points as u64
}

#[test]
fn a_checkpoint_is_there_or_it_is_not() {
    for disks in [2, 3] {
        let begin = |seed| {
            let town = town(seed, disks);
            town.create(SLAB_BYTES);
            let life = town.open(&quiet());
            life.run(prepare);
            (town, life)
        };
        let work = async |cache: &BlockCache| {
            cache.checkpoint().await.unwrap();
        };
        let points = at_every_point(begin, work, |town, is_done, what| check(town, &town.disks, is_done, what));
        // A log, a flush, a superblock and a flush for each disk.
        assert!(points >= 4 * u64::from(disks), "{points} points");
    }
}

/// The power fails when only some disks have a checkpoint's superblock, and one of them is absent then. What is made
/// without that disk is newer than its checkpoint, also after an opening that came to nothing.
#[test]
fn a_checkpoint_that_only_an_absent_disk_has_is_never_the_newest() {
    for (absent, cut_off) in (0..3).flat_map(|absent| [0, 2, 5].map(|cut_off| (absent, cut_off))) {
        let begin = |seed| {
            let town = town(seed + 100 * cut_off, 3);
            town.create(SLAB_BYTES);
            let life = town.open(&quiet());
            life.run(prepare);
            (town, life)
        };
        let work = async |cache: &BlockCache| {
            cache.checkpoint().await.unwrap();
        };

        let check = |town: &Town, _, what: &str| {
            town.world.set_disk_state(absent, SimDiskState::Gone).unwrap();
            let life = town.open(&quiet());
            let landed = town.world.landed() + cut_off;
            life.runtime().block_on_until_landed(0, work(life.cache.as_ref().unwrap()), landed).unwrap();
            life.crash();

            let life = town.open(&quiet());
            life.run(async |cache| insert(cache, 0..20, 3).await);
            life.close();

            town.world.set_disk_state(absent, SimDiskState::Healthy).unwrap();
            let life = town.open(&quiet());
            life.run(async |cache| {
                for n in 0..20 {
                    let what = format!("{what}, disk {absent} absent, {cut_off} operations: block {n}");
                    let found = cache.get(&key(n)).await.unwrap();
                    let Lookup::Hit(block) = found else { panic!("{what} is lost: {found:?}") };
                    assert!(block[..] == value_of(n + 3000, 3000), "{what} is older");
                }
            });
            life.crash();
        };
        at_every_point(begin, work, check);
    }
}

#[test]
fn a_cache_that_is_being_made_is_one_or_can_be_made_again() {
    let points = at_points(|seed, landed| {
        let town = town(seed, 3);
        let is_done = town.create_until(SLAB_BYTES, town.world.landed() + landed).is_some();
        match town.try_open(&quiet()) {
            Ok(life) => life.run(async |cache| insert(cache, 0..10, 1).await),
            Err(CacheError::NotACache { .. } | CacheError::Damaged { .. }) if !is_done => {
                town.create_by_force(SLAB_BYTES);
                town.open(&quiet()).close();
            }
            Err(error) => panic!("point {landed}: {error}"),
        }
        is_done
    });
    assert!(points >= 12, "{points} points");
}

/// Returns the slabs that logs and snapshots take.
fn metadata_slabs(cache: &BlockCache) -> u64 {
    cache.stats().disks.iter().map(|disk| disk.metadata_bytes / u64::from(SLAB_BYTES)).sum()
}

#[test]
fn a_snapshot_takes_the_place_of_a_log_or_does_not() {
    let begin = |seed| {
        let town = town(seed, 2);
        town.create(SLAB_BYTES);
        let life = town.open(&quiet());
        life.run(async |cache| {
            insert(cache, 0..60, 1).await;
            cache.checkpoint().await.unwrap();
        });
        life.close();
        // Every life begins a slab of the log, until the log has enough of them for a snapshot.
        for _ in 0..6 {
            town.open(&quiet()).close();
        }
        let life = town.open(&quiet());
        life.run(change);
        (town, life)
    };
    let work = async |cache: &BlockCache| {
        for _ in 0..3 {
            cache.checkpoint().await.unwrap();
        }
    };
    let (_town, life) = begin(1);
    let slabs = metadata_slabs(life.cache.as_ref().unwrap());
    life.run(work);
    let fewer = metadata_slabs(life.cache.as_ref().unwrap());
    assert!(slabs >= 14 && fewer <= 8, "{slabs} slabs, then {fewer}");
    life.crash();
    let points = at_every_point(begin, work, |town, is_done, what| check(town, &town.disks, is_done, what));
    assert!(points >= 24, "{points} points");
}

#[test]
fn a_disk_that_is_being_added_is_there_or_it_is_not() {
    let begin = |seed| {
        let town = town(seed, 3);
        town.create_of(SLAB_BYTES, &town.disks[..2]);
        let life = town.try_open_of(&quiet(), &town.disks[..2]).unwrap();
        life.run(prepare);
        (town, life)
    };
    let third = DiskSource::at("/disk2/data".into());
    let work = async |cache: &BlockCache| {
        cache.add_disk(&third, false).await.unwrap();
    };
    let points = at_every_point(begin, work, |town, is_done, what| {
        // If the addition did not complete, an opening that names the new disk is told so, and the disk can be added
        // as it is.
        match town.try_open_of(&quiet(), &town.disks) {
            Ok(life) => life.close(),
            Err(CacheError::NotACache { .. } | CacheError::HalfAdded { .. }) if !is_done => {
                let life = town.try_open_of(&quiet(), &town.disks[..2]).unwrap();
                life.run(async |cache| cache.add_disk(&third, false).await.unwrap());
                life.close();
                return check(town, &town.disks, is_done, what);
            }
            Err(error) => panic!("{what}: {error}"),
        }
        check(town, &town.disks[..2], is_done, what);
    });
    assert!(points >= 12, "{points} points");
}

#[test]
fn a_disk_that_is_being_removed_is_gone_or_it_is_not() {
    let begin = |seed| {
        let town = town(seed, 3);
        town.create(SLAB_BYTES);
        let life = town.open(&quiet());
        life.run(prepare);
        (town, life)
    };
    let work = async |cache: &BlockCache| {
        cache.remove_disk("/disk2/data".as_ref()).unwrap();
        while cache.stats().disks.len() > 2 {
            cache.checkpoint().await.unwrap();
        }
        cache.checkpoint().await.unwrap();
    };
    let points = at_every_point(begin, work, |town, is_done, what| {
        let disks = match town.try_open_of(&quiet(), &town.disks) {
            Ok(life) => {
                life.crash();
                &town.disks[..]
            }
            // The disk has left.
            Err(CacheError::NotACache { .. } | CacheError::NotAMember { .. }) => &town.disks[..2],
            Err(error) => panic!("{what}: {error}"),
        };
        check(town, disks, is_done, what);
    });
    assert!(points >= 12, "{points} points");
}
