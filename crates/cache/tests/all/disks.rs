//! Disks that leave, return, get slow, take no writes, are added, grow and are removed while the cache runs; and disks
//! that are not what they should be.

mod hangs;

use std::path::Path;
use std::time::Duration;

use crate::world::{Life, Town, value_of};
use plimsoll::backend::sim::{SimDiskState, SimFaults};
use plimsoll_cache::stats::{CacheStats, DiskHealth, DropReason, MissReason};
use plimsoll_cache::{BlockCache, CacheConfig, CacheError, DiskSource, GetOptions, Inserted, Lookup, SPARE_DISKS};

const SLAB_BYTES: u32 = 1 << 20;

fn quiet() -> CacheConfig {
    CacheConfig {
        checkpoint_interval: Duration::from_secs(3600),
        target_free_blocks_pct: 1.0,
        ..CacheConfig::default()
    }
}

/// Returns disks of 48 MiB with a cache, and an opening.
fn town(disks: u16) -> Town {
    let town = Town::new(disks, 48 << 20, 7);
    town.create(SLAB_BYTES);
    town
}

fn key(n: u32) -> [u8; 4] {
    n.to_le_bytes()
}

async fn insert(cache: &BlockCache, keys: impl IntoIterator<Item = u32>, version: u32) {
    for n in keys {
        let end = cache.insert(&key(n), &value_of(n + 10_000 * version, 8192)).await.unwrap();
        assert_eq!(end, Inserted::Stored, "{n}");
    }
}

/// Returns the keys that are hits of this version; any other version is an error.
async fn hits(cache: &BlockCache, keys: std::ops::Range<u32>, version: u32) -> Vec<u32> {
    let mut hits = Vec::new();
    for n in keys {
        match cache.get(&key(n)).await.unwrap() {
            Lookup::Hit(block) => {
                assert_eq!(block[..], value_of(n + 10_000 * version, 8192), "{n} is stale");
                hits.push(n);
            }
            Lookup::Miss(_) => {}
        }
    }
    hits
}

async fn nap(life: &Life, seconds: u64) {
    life.runtime().shard(0).clone().sleep(Duration::from_secs(seconds)).await;
}

/// Removes the second of two disks, which must be gone within `seconds`.
async fn remove_second(cache: &BlockCache, life: &Life, town: &Town, seconds: u64) -> CacheStats {
    cache.remove_disk(&town.disks[1].path).unwrap();
    for _ in 0..seconds {
        nap(life, 1).await;
        if cache.stats().disks.len() == 1 {
            break;
        }
    }
    let stats = cache.stats();
    assert_eq!(stats.disks.len(), 1, "it is still there: {:?}", stats.disks[1]);
    stats
}

fn health(stats: &CacheStats, disk: usize) -> DiskHealth {
    stats.disks[disk].health
}

fn state(town: &Town, disk: usize, state: SimDiskState) {
    town.world.set_disk_state(disk, state).unwrap();
}

/// The index forgets the blocks of a disk that parts; memory may still have them.
#[test]
fn a_first_use_that_is_rejected_leaves_no_older_value_in_memory() {
    let town = town(2);
    let life = town.open(&CacheConfig { reject_first: true, memory_bytes: 256 << 20, ..quiet() });
    let first_use = Inserted::Dropped(DropReason::FirstUse);
    life.run(async |cache| {
        let mut filled = 0;
        while filled < 20_000 && cache.insert(&key(filled), &value_of(filled, 8192)).await.unwrap() == Inserted::Stored
        {
            filled += 1;
        }
        // Eviction begins.
        nap(&life, 1).await;
        assert_eq!(cache.insert(&key(100_000), &value_of(0, 8192)).await.unwrap(), first_use);

        state(&town, 1, SimDiskState::Gone);
        // Nothing else touches the disk: all is in memory.
        let _ = cache.checkpoint().await;
        nap(&life, 1).await;
        assert!(matches!(health(&cache.stats(), 1), DiskHealth::Failed | DiskHealth::Missing));
        let mut rejected = 0;
        for n in 0..filled {
            if cache.insert(&key(n), &value_of(n + 10_000, 8192)).await.unwrap() == first_use {
                rejected += 1;
                assert!(matches!(cache.get(&key(n)).await.unwrap(), Lookup::Miss(_)), "{n} is stale");
            }
        }
        assert!(rejected > 100, "{rejected}");
    });
}

#[test]
fn a_disk_leaves_under_load_and_begins_anew_when_it_returns() {
    for (what, crash) in [(SimDiskState::Gone, false), (SimDiskState::Failed, false), (SimDiskState::Gone, true)] {
        let town = town(3);
        let life = town.open(&quiet());
        life.run(async |cache| {
            insert(cache, 0..600, 1).await;
            cache.checkpoint().await.unwrap();
            // No checkpoint since: what the disk knows of these blocks is out of date when it leaves.
            insert(cache, 0..50, 2).await;
            for n in 50..100 {
                cache.remove(&key(n)).await.unwrap();
            }
            state(&town, 1, what);
            let there = hits(cache, 100..600, 1).await;
            assert!((200..450).contains(&there.len()), "two disks of three: {}", there.len());
            nap(&life, 1).await;
            assert!(matches!(health(&cache.stats(), 1), DiskHealth::Failed | DiskHealth::Missing));
            insert(cache, 100..150, 2).await;
            for n in 150..200 {
                cache.remove(&key(n)).await.unwrap();
            }
            cache.checkpoint().await.unwrap();
        });
        state(&town, 1, SimDiskState::Healthy);
        let life = if crash {
            life.crash();
            town.open(&quiet())
        } else {
            life
        };
        life.run(async |cache| {
            nap(&life, 12).await;
            let stats = cache.stats();
            assert_eq!(health(&stats, 1), DiskHealth::Healthy, "{}", stats.disks[1].why);
            assert_eq!(stats.disks[1].allocated_bytes, 0, "it missed a checkpoint");
            let there = hits(cache, 200..600, 1).await.len();
            assert!((150..400).contains(&there), "two disks of three: {there}, after {what:?}, crash: {crash}");
            assert_eq!(hits(cache, 100..150, 2).await.len(), 50);
            // Some of these may have been on the disk that left.
            hits(cache, 0..50, 2).await;
            assert_eq!(hits(cache, 50..100, 1).await, [0_u32; 0], "removed before it left");
            assert_eq!(hits(cache, 150..200, 1).await, [0_u32; 0], "removed while it was away");
            insert(cache, 600..900, 1).await;
            assert!(cache.stats().disks[1].allocated_bytes > 0, "it is used again");
        });
        life.close();
        let life = town.open(&quiet());
        life.run(async |cache| {
            assert_eq!(hits(cache, 600..900, 1).await.len(), 300);
            assert_eq!(hits(cache, 50..100, 1).await, [0_u32; 0]);
        });
    }
}

/// Ages and ghosts were measured by the space of all disks until one was added, expanded or removed.
#[test]
fn ages_are_measured_by_the_disks_that_work() {
    let town = town(3);
    let life = town.open(&quiet());
    life.run(async |cache| {
        // The hit curve has 50 steps for the capacity.
        let check = |works: usize| {
            let stats = cache.stats();
            let capacities: Vec<u64> = stats.disks.iter().map(|disk| disk.capacity_bytes).collect();
            assert_eq!(capacities.iter().filter(|bytes| **bytes > 0).count(), works, "{capacities:?}");
            assert_eq!(stats.hit_curve.step_bytes, capacities.iter().sum::<u64>() / 50);
        };
        check(3);
        state(&town, 1, SimDiskState::Gone);
        for n in 0..10 {
            cache.insert(&key(n), &value_of(n, 8192)).await.unwrap();
        }
        let _ = cache.checkpoint().await;
        nap(&life, 1).await;
        check(2);
        state(&town, 1, SimDiskState::Healthy);
        nap(&life, 10).await;
        check(3);
    });
}

#[test]
fn a_cache_opens_without_a_disk_and_takes_it_back_at_the_next_opening() {
    let town = town(3);
    let life = town.open(&quiet());
    life.run(async |cache| insert(cache, 0..300, 1).await);
    life.close();
    state(&town, 2, SimDiskState::Gone);
    let life = town.open(&quiet());
    life.run(async |cache| {
        let there = hits(cache, 0..300, 1).await.len();
        assert!((100..300).contains(&there), "{there}");
        assert_eq!(health(&cache.stats(), 2), DiskHealth::Missing);
        insert(cache, 0..100, 2).await;
        for n in 100..200 {
            cache.remove(&key(n)).await.unwrap();
        }
    });
    life.close();
    state(&town, 2, SimDiskState::Healthy);
    for _ in 0..2 {
        let life = town.open(&quiet());
        life.run(async |cache| {
            assert_eq!(hits(cache, 0..100, 2).await.len(), 100);
            assert_eq!(hits(cache, 100..200, 1).await, [0_u32; 0]);
            let there = hits(cache, 200..300, 1).await.len();
            assert!((30..100).contains(&there), "{there}");
            assert_eq!(health(&cache.stats(), 2), DiskHealth::Healthy);
            assert_eq!(cache.stats().disks[2].allocated_bytes, 0);
        });
        life.close();
    }
}

#[test]
fn a_disk_that_takes_no_writes_serves_on() {
    let town = town(2);
    let life = town.open(&quiet());
    life.run(async |cache| {
        insert(cache, 0..300, 1).await;
        cache.checkpoint().await.unwrap();
        state(&town, 1, SimDiskState::ReadOnly);
        // Inserts that go to this disk are dropped, until its fault is known.
        for n in 300..350 {
            cache.insert(&key(n), &value_of(n + 10_000, 8192)).await.unwrap();
        }
        cache.checkpoint().await.unwrap();
        nap(&life, 1).await;
        assert_eq!(health(&cache.stats(), 1), DiskHealth::ReadOnly);
        assert_eq!(hits(cache, 0..300, 1).await.len(), 300);
        insert(cache, 0..50, 2).await;
        for n in 50..100 {
            cache.remove(&key(n)).await.unwrap();
        }
        cache.checkpoint().await.unwrap();
        nap(&life, 20).await;
        assert_eq!(hits(cache, 100..300, 1).await.len(), 200);
    });
    life.crash();
    state(&town, 1, SimDiskState::Healthy);
    let life = town.open(&quiet());
    life.run(async |cache| {
        assert_eq!(hits(cache, 0..50, 2).await.len(), 50);
        assert_eq!(hits(cache, 50..100, 1).await, [0_u32; 0]);
        let there = hits(cache, 100..300, 1).await.len();
        assert!((50..200).contains(&there), "{there}");
    });
}

#[test]
fn a_hit_that_takes_too_long_is_a_miss() {
    let town = town(2);
    let life = town.open(&quiet());
    life.run(async |cache| {
        insert(cache, 0..200, 1).await;
        let options = GetOptions { deadline: Some(Duration::from_millis(5)), ..GetOptions::default() };
        state(&town, 1, SimDiskState::Slow { factor: 1000.0 });
        let (mut hits, mut late) = (0, 0);
        for n in 0..200 {
            match cache.get_with(&key(n), options).await.unwrap() {
                Lookup::Hit(_) => hits += 1,
                Lookup::Miss(reason) => {
                    assert_eq!(reason, MissReason::Deadline);
                    late += 1;
                }
            }
        }
        assert!(hits >= 50 && late >= 50, "{hits} hits, {late} too late");
        state(&town, 1, SimDiskState::Healthy);
        nap(&life, 10).await;
        assert_eq!(self::hits(cache, 0..200, 1).await.len(), 200, "nothing was forgotten");
    });
}

#[test]
fn a_disk_is_removed_while_the_cache_runs() {
    let town = town(3);
    let life = town.open(&quiet());
    life.run(async |cache| {
        insert(cache, 0..600, 1).await;
        assert!(matches!(cache.remove_disk("/other".as_ref()), Err(CacheError::UnknownDisk { .. })));
        assert!(cache.remove_disk("/disk1/data".as_ref()).unwrap() > 0);
        insert(cache, 600..700, 1).await;
        for _ in 0..100 {
            nap(&life, 1).await;
            if cache.stats().disks.len() == 2 {
                break;
            }
        }
        let stats = cache.stats();
        assert_eq!(stats.disks.len(), 2, "it is still there: {:?}", stats.disks[1]);
        assert_eq!(hits(cache, 0..700, 1).await.len(), 700);
        cache.checkpoint().await.unwrap();
        cache.remove_disk("/disk0/data".as_ref()).unwrap();
        assert!(matches!(cache.remove_disk("/disk2/data".as_ref()), Err(CacheError::LastDisk)));
    });
    life.crash();
    // Its label is wiped: it is no disk of the cache any more.
    let error = town.try_open(&quiet()).err().unwrap();
    assert!(matches!(&error, CacheError::NotACache { path, .. } if path.ends_with("disk1/data")), "{error}");
    let rest = [town.disks[0].clone(), town.disks[2].clone()];
    let life = town.try_open_of(&quiet(), &rest).unwrap();
    assert_eq!(life.run(async |cache| hits(cache, 0..700, 1).await.len()), 700);
}

/// A block that fitted nowhere else was evicted at once, however young, while eviction was making room for it.
#[test]
fn removing_a_disk_of_a_full_cache_costs_the_oldest_blocks() {
    let town = town(2);
    let life = town.open(&quiet());
    life.run(async |cache| {
        let mut inserted = 0;
        while cache.stats().evictions < 1000 {
            for n in inserted..inserted + 500 {
                cache.insert(&key(n), &value_of(n + 10_000, 8192)).await.unwrap();
            }
            inserted += 500;
            assert!(inserted < 50_000, "nothing is evicted");
            nap(&life, 1).await;
        }
        let newest = inserted - 2000..inserted;
        let before = cache.stats();
        let there = hits(cache, newest.clone(), 1).await.len();
        let after = remove_second(cache, &life, &town, 600).await;
        assert!(after.blocks * 5 > before.blocks * 2, "{} of {} blocks", after.blocks, before.blocks);
        assert_eq!(hits(cache, newest, 1).await.len(), there);
    });
}

/// Disks are removed because they fail: reading is all that moving their blocks takes.
#[test]
fn a_disk_that_takes_no_writes_any_more_is_emptied_when_it_is_removed() {
    for removed_first in [true, false] {
        let town = town(3);
        let life = town.open(&quiet());
        life.run(async |cache| {
            insert(cache, 0..600, 1).await;
            cache.checkpoint().await.unwrap();
            if removed_first {
                cache.remove_disk(&town.disks[1].path).unwrap();
            }
            state(&town, 1, SimDiskState::ReadOnly);
            cache.checkpoint().await.unwrap();
            if !removed_first {
                cache.remove_disk(&town.disks[1].path).unwrap();
            }
            for _ in 0..100 {
                nap(&life, 1).await;
                if cache.stats().disks.len() == 2 {
                    break;
                }
            }
            assert_eq!(cache.stats().disks.len(), 2, "removed first: {removed_first}: {:?}", cache.stats().disks[1]);
            assert_eq!(hits(cache, 0..600, 1).await.len(), 600, "removed first: {removed_first}");
        });
        life.close();
    }
}

/// What such a disk has is older than the last checkpoint, also if it is back at the next opening.
#[test]
fn a_disk_that_parted_is_listed_as_away_though_it_is_being_removed() {
    let town = town(3);
    // Moving the blocks takes longer than this story.
    let life = town.open(&CacheConfig { move_bytes_per_s: Some(1 << 20), ..quiet() });
    life.run(async |cache| {
        insert(cache, 0..3000, 1).await;
        cache.checkpoint().await.unwrap();
        state(&town, 1, SimDiskState::ReadOnly);
        cache.checkpoint().await.unwrap();
        cache.remove_disk(&town.disks[1].path).unwrap();
        cache.checkpoint().await.unwrap();
        assert_eq!(health(&cache.stats(), 1), DiskHealth::Removing);
    });
    life.crash();
    state(&town, 1, SimDiskState::Healthy);
    let life = town.open(&quiet());
    life.run(async |cache| {
        let stats = cache.stats();
        assert_eq!((health(&stats, 1), stats.disks[1].allocated_bytes), (DiskHealth::Healthy, 0));
    });
}

#[test]
fn a_disk_that_is_gone_for_good_is_forgotten_by_its_number() {
    let town = town(3);
    let life = town.open(&quiet());
    life.run(async |cache| insert(cache, 0..600, 1).await);
    life.close();

    let rest = [town.disks[0].clone(), town.disks[2].clone()];
    let life = town.try_open_of(&quiet(), &rest).unwrap();
    let there = life.run(async |cache| {
        let missing = cache.stats().disks.into_iter().find(|disk| disk.health == DiskHealth::Missing).unwrap();
        for number in [0, missing.number + 1, 77] {
            let error = cache.forget_disk(number).await.unwrap_err();
            assert!(matches!(error, CacheError::NotMissing { .. }), "{error}");
        }
        cache.forget_disk(missing.number).await.unwrap();
        assert_eq!(cache.stats().disks.len(), 2);
        hits(cache, 0..600, 1).await
    });
    assert!((300..500).contains(&there.len()), "two disks of three: {}", there.len());
    // Without a last checkpoint: forgetting has made one.
    life.crash();

    let life = town.try_open_of(&quiet(), &rest).unwrap();
    life.run(async |cache| {
        assert_eq!((cache.stats().disks.len(), cache.findings()), (2, Vec::new()));
        assert_eq!(hits(cache, 0..600, 1).await, there);
    });
    life.close();
    let error = town.try_open(&quiet()).err().unwrap();
    assert!(matches!(&error, CacheError::NotAMember { path } if path.ends_with("disk1/data")), "{error}");
}

/// Two disks with one number would have taken each other's place.
#[test]
fn a_disk_with_another_number_than_the_others_list_is_no_member() {
    let town = town(2);
    for slot in [0, 32 << 10] {
        town.edit(1, slot, 4096, |bytes| {
            let identity = bytes[32..48].to_vec();
            let listed = bytes[164..].windows(16).position(|bytes| *bytes == identity[..]).unwrap() + 164;
            for number in [104, listed - 2] {
                bytes[number..number + 2].copy_from_slice(&7_u16.to_le_bytes());
            }
            let checksum = crc32c::crc32c(&bytes[..4092]).to_le_bytes();
            bytes[4092..].copy_from_slice(&checksum);
        });
    }
    let error = town.try_open(&quiet()).err().unwrap();
    assert!(matches!(&error, CacheError::NotAMember { path } if path.ends_with("disk1/data")), "{error}");
    let life = town.try_open_of(&quiet(), &town.disks[..1]).unwrap();
    assert_eq!(life.run(async |cache| cache.findings().len()), 1);
    life.close();
}

#[test]
fn a_new_disk_gets_its_part() {
    let town = Town::new(3, 48 << 20, 7);
    town.create_of(SLAB_BYTES, &town.disks[..2]);
    let life = town.try_open_of(&quiet(), &town.disks[..2]).unwrap();
    life.run(async |cache| {
        insert(cache, 0..6000, 1).await;
        cache.add_disk(&town.disks[2], false).await.unwrap();
        for force in [false, true] {
            let again = cache.add_disk(&town.disks[2], force).await;
            assert!(matches!(again, Err(CacheError::Twice { .. })), "{:?}", again.err());
        }
        nap(&life, 20).await;
        let stats = cache.stats();
        let fills: Vec<f64> =
            stats.disks.iter().map(|disk| disk.allocated_bytes as f64 / disk.capacity_bytes as f64).collect();
        let spread = fills.iter().copied().fold(0.0, f64::max) - fills.iter().copied().fold(1.0, f64::min);
        assert!(spread < 0.1, "{fills:?}");
        assert_eq!(hits(cache, 0..6000, 1).await.len(), 6000);
    });
    life.close();
    let life = town.open(&quiet());
    assert_eq!(life.run(async |cache| hits(cache, 0..6000, 1).await.len()), 6000);
}

/// A disk of few slabs, of which its metadata need some, is never as full as the others: the mover read the fuller disk
/// again and again, and found no room each time.
#[test]
fn a_small_disk_that_is_full_is_not_filled_for_ever() {
    let town = Town::new(2, 48 << 20, 7);
    town.set_len(1, 10 << 20);
    town.create_of(SLAB_BYTES, &town.disks[..1]);
    let life = town.try_open_of(&quiet(), &town.disks[..1]).unwrap();
    life.run(async |cache| {
        insert(cache, 0..5000, 1).await;
        cache.add_disk(&town.disks[1], false).await.unwrap();
        nap(&life, 20).await;
        let moved = |kind: &str| cache.stats().disks.iter().map(|disk| disk.io[kind].operations).sum::<u64>();
        let (reads, writes) = (moved("evacuate_read"), moved("evacuate_write"));
        assert!(writes > 10, "it gets blocks: {writes}");
        nap(&life, 20).await;
        assert_eq!((moved("evacuate_read"), moved("evacuate_write")), (reads, writes), "at rest");
    });
    life.close();
}

#[test]
fn a_disk_that_has_grown_is_used() {
    let town = town(2);
    let life = town.open(&quiet());
    let before = life.run(async |cache| {
        let before: u64 = cache.stats().disks.iter().map(|disk| disk.capacity_bytes).sum();
        let error = cache.expand_disk(&town.disks[1].path).await.unwrap_err();
        assert!(matches!(error, CacheError::TooSmall { .. }), "{error}");
        before
    });
    life.close();
    town.set_len(1, 96 << 20);
    let life = town.open(&quiet());
    life.run(async |cache| {
        assert_eq!(cache.expand_disk(&town.disks[1].path).await.unwrap(), 48 << 20);
        insert(cache, 0..12_000, 1).await;
        let after: u64 = cache.stats().disks.iter().map(|disk| disk.capacity_bytes).sum();
        assert_eq!(after, before + (48 << 20));
    });
    life.close();
    let life = town.open(&quiet());
    assert_eq!(life.run(async |cache| hits(cache, 0..12_000, 1).await.len()), 12_000);
    life.close();
    town.set_len(1, 48 << 20);
    let error = town.try_open_of(&quiet(), &town.disks[1..]).err().unwrap();
    assert!(matches!(error, CacheError::Shrunk { .. }), "{error}");
}

#[test]
fn disks_that_are_not_what_they_should_be_are_refused() {
    let town = Town::new(5, 48 << 20, 7);
    let (ours, theirs) = (&town.disks[..2], &town.disks[2..4]);
    town.create_of(SLAB_BYTES, ours);
    town.create_of(SLAB_BYTES, theirs);
    let refusal = |config: &CacheConfig, disks: &[&DiskSource]| {
        let disks: Vec<DiskSource> = disks.iter().copied().cloned().collect();
        town.try_open_of(config, &disks).map(|life| life.close()).err()
    };
    let none = CacheConfig::default();
    let keyed = CacheConfig { encryption_key: Some([1; 32]), ..CacheConfig::default() };
    // Whichever is named first.
    for mixed in [[&ours[0], &theirs[0], &ours[1]], [&theirs[0], &ours[0], &ours[1]]] {
        let end = refusal(&none, &mixed);
        let Some(CacheError::SeveralCaches { caches }) = &end else { panic!("{end:?}") };
        let disks: Vec<Vec<&Path>> =
            caches.iter().map(|(_, disks)| disks.iter().map(|disk| disk.as_path()).collect()).collect();
        assert_eq!(disks, [vec![&*ours[0].path, &*ours[1].path], vec![&*theirs[0].path]]);
        let said = end.map(|error| error.to_string()).unwrap_or_default();
        assert!(said.starts_with("the disks belong to 2 caches: "), "{said}");
    }
    let end = refusal(&none, &[&ours[0], &ours[0]]);
    assert!(matches!(end, Some(CacheError::Twice { .. })), "{end:?}");
    let end = refusal(&none, &[&town.disks[4]]);
    assert!(matches!(end, Some(CacheError::NotACache { .. })), "{end:?}");
    let end = refusal(&none, &[]);
    assert!(matches!(end, Some(CacheError::NoDisks)), "{end:?}");
    let end = refusal(&keyed, &[&ours[0], &ours[1]]);
    assert!(matches!(end, Some(CacheError::Key(_))), "{end:?}");
    let nowhere = DiskSource::at("/disk0/nothing".into());
    let end = refusal(&none, &[&nowhere]);
    assert!(matches!(end, Some(CacheError::Io { .. })), "{end:?}");
    // The refusals have changed nothing.
    assert!(refusal(&none, &[&ours[1], &ours[0]]).is_none());
    let options = plimsoll_cache::CreateOptions { slab_bytes: Some(SLAB_BYTES), ..Default::default() };
    let end = town.try_create(&options, &ours[..1], u64::MAX).unwrap();
    assert!(matches!(end, Err(CacheError::NotEmpty { .. })), "{end:?}");
    assert!(refusal(&none, &[&ours[1], &ours[0]]).is_none());
}

#[test]
fn an_encrypted_cache_survives_a_crash_and_opens_with_its_key_only() {
    let town = Town::new(2, 48 << 20, 7);
    town.world.set_faults(SimFaults { torn_write_probability: 0.3, ..SimFaults::default() }).unwrap();
    town.create_with(SLAB_BYTES, Some([3; 32]), &town.disks);
    let with = |key| CacheConfig { encryption_key: key, ..quiet() };
    for key in [None, Some([4; 32])] {
        let error = town.try_open(&with(key)).err().unwrap();
        assert!(matches!(error, CacheError::Key(_)), "{error}");
    }
    let life = town.open(&with(Some([3; 32])));
    life.run(async |cache| {
        insert(cache, 0..300, 1).await;
        cache.checkpoint().await.unwrap();
        insert(cache, 0..100, 2).await;
    });
    life.crash();
    let life = town.open(&with(Some([3; 32])));
    assert_eq!(life.run(async |cache| hits(cache, 0..300, 1).await.len()), 300);
}

#[test]
fn disks_come_and_go_any_number_of_times() {
    let town = Town::new(3, 48 << 20, 7);
    town.create_of(SLAB_BYTES, &town.disks[..2]);
    let life = town.try_open_of(&quiet(), &town.disks[..2]).unwrap();
    life.run(async |cache| {
        for round in 0..=SPARE_DISKS {
            state(&town, 2, SimDiskState::Gone);
            let error = cache.add_disk(&town.disks[2], true).await.unwrap_err();
            assert!(matches!(error, CacheError::Io { .. }), "{error}, round {round}");

            state(&town, 2, SimDiskState::Healthy);
            cache.add_disk(&town.disks[2], true).await.unwrap();
            cache.remove_disk(&town.disks[2].path).unwrap();
            for _ in 0..100 {
                nap(&life, 1).await;
                if cache.stats().disks.len() == 2 {
                    break;
                }
            }
            assert_eq!(cache.stats().disks.len(), 2, "round {round}");
        }
    });
}

/// Half of what the other disk has was removed since the last checkpoint, and so is no room yet.
#[test]
fn a_removal_waits_for_the_room_that_a_checkpoint_frees() {
    let town = town(2);
    let life = town.open(&quiet());
    life.run(async |cache| {
        insert(cache, 0..9_000, 1).await;
        cache.checkpoint().await.unwrap();
        for n in (0..9_000).step_by(2) {
            cache.remove(&key(n)).await.unwrap();
        }
        let stats = remove_second(cache, &life, &town, 100).await;
        assert_eq!((hits(cache, 0..9_000, 1).await.len(), stats.evictions), (4_500, 0));
    });
    life.close();
}
