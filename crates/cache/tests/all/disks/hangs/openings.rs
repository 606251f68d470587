//! Disks that hang while a cache is opened, checked or closed, or begin to hang before.

use std::time::Duration;

use crate::world::{Life, Town};
use plimsoll::Shard;
use plimsoll::backend::sim::SimDiskState;
use plimsoll_cache::stats::DiskHealth;
use plimsoll_cache::{CacheError, GetOptions, Lookup};

use super::super::{SLAB_BYTES, health, hits, insert, key, nap, quiet, state, town};
use super::{HANGS, fill_and_hang, opened};

/// Closes a cache one of whose disks hangs, which must be named. Returns how long that took, in nanoseconds.
#[track_caller]
fn close_beside_a_hang(town: &Town, life: Life, shard: &Shard, disk: usize) -> u64 {
    let begin_ns = shard.now_ns();
    let end = life.try_close();
    assert!(matches!(&end, Err(CacheError::Hangs { paths }) if *paths == [town.disks[disk].path.clone()]), "{end:?}");
    shard.now_ns() - begin_ns
}

/// A checkpoint and the end of a cache wait for a disk whose writes hang no longer than for one that does nothing.
#[test]
fn nobody_waits_for_ever_for_writes_that_hang() {
    for disks in [1, 3] {
        let (town, life, shard) = opened(disks, &quiet());
        let broken = usize::from(disks) - 1;
        let begin_ns = shard.now_ns();
        life.run(async |cache| {
            insert(cache, 0..300, 1).await;
            state(&town, broken, SimDiskState::WritesHang);
            let end = cache.checkpoint().await;
            let took_ns = shard.now_ns() - begin_ns;
            assert!(took_ns < 11_000_000_000, "{took_ns} ns");
            assert_eq!(end.is_ok(), disks > 1, "{end:?}");
            let health = health(&cache.stats(), broken);
            assert!(matches!(health, DiskHealth::Failed | DiskHealth::Missing), "{health:?}");
            let there = hits(cache, 0..300, 1).await.len();
            assert!(if disks == 1 { there == 0 } else { (150..250).contains(&there) }, "{there}");
            if disks > 1 {
                insert(cache, 300..400, 1).await;
            }
        });
        let took_ns = close_beside_a_hang(&town, life, &shard, broken);
        assert!(took_ns < 21_000_000_000, "{took_ns} ns");

        state(&town, broken, SimDiskState::Healthy);
        let life = town.open(&quiet());
        if disks > 1 {
            assert_eq!(life.run(async |cache| hits(cache, 300..400, 1).await.len()), 100, "they were acknowledged");
        }
        life.close();
    }

    // Writes begin to hang as the cache is closed.
    let (town, life, shard) = opened(3, &quiet());
    life.run(async |cache| insert(cache, 0..300, 1).await);
    state(&town, 1, SimDiskState::WritesHang);
    let took_ns = close_beside_a_hang(&town, life, &shard, 1);
    assert!((10_000_000_000..21_000_000_000).contains(&took_ns), "{took_ns} ns");
    state(&town, 1, SimDiskState::Healthy);
    let life = town.open(&quiet());
    let there = life.run(async |cache| hits(cache, 0..300, 1).await.len());
    assert!((150..250).contains(&there), "two disks of three: {there}");
    life.close();
}

#[test]
fn a_disk_that_hangs_does_not_hold_up_an_opening() {
    let town = town(3);
    let life = town.open(&quiet());
    life.run(async |cache| insert(cache, 0..300, 1).await);
    life.close();
    state(&town, 1, HANGS);
    let begin_ns = town.world.now_ns();
    let life = town.open(&quiet());
    let took_ns = town.world.now_ns() - begin_ns;
    assert!(took_ns < 11_000_000_000, "{took_ns} ns");
    life.run(async |cache| {
        let findings = cache.findings();
        assert!(findings.len() == 1 && findings[0].contains("disk1"), "{findings:?}");
        assert_eq!(health(&cache.stats(), 1), DiskHealth::Missing);
        let there = hits(cache, 0..300, 1).await.len();
        assert!((100..300).contains(&there), "two disks of three: {there}");
        insert(cache, 300..400, 1).await;
        cache.checkpoint().await.unwrap();

        // It is looked for, though its superblock has not been read yet.
        state(&town, 1, SimDiskState::Healthy);
        nap(&life, 10_000).await;
        assert_eq!(health(&cache.stats(), 1), DiskHealth::Healthy, "{}", cache.stats().disks[1].why);
        insert(cache, 400..700, 1).await;
        assert_eq!(hits(cache, 400..700, 1).await.len(), 300);
    });
    life.close();
    let life = town.open(&quiet());
    assert_eq!(life.run(async |cache| hits(cache, 400..700, 1).await.len()), 300);
    life.close();

    // Nor does creating wait for it.
    let town = Town::new(2, 48 << 20, 7);
    state(&town, 1, HANGS);
    let options = plimsoll_cache::CreateOptions { slab_bytes: Some(SLAB_BYTES), ..Default::default() };
    let end = town.try_create(&options, &town.disks, u64::MAX).unwrap();
    assert!(matches!(end, Err(CacheError::Io { what: "cannot read it", .. })), "{end:?}");
}

/// Two disks of four hang after any number of the operations with which the cache is opened. They were emptied, one
/// after the other, each after 10 s.
#[test]
fn disks_that_hang_while_the_cache_is_opened_are_missing() {
    let (mut places, mut slow) = (0, 0);
    for landed in 0.. {
        let town = town(4);
        let life = town.open(&quiet());
        life.run(async |cache| insert(cache, 0..200, 1).await);
        life.close();

        let (begin_ns, landed) = (town.world.now_ns(), town.world.landed() + landed);
        let world = town.world.clone();
        let opened = town.try_open_beside(&quiet(), &town.disks, |runtime| {
            let shard = runtime.shard(0).clone();
            let hang = async move {
                while world.landed() < landed {
                    shard.sleep(Duration::from_micros(1)).await;
                }
                (1..3).for_each(|disk| world.set_disk_state(disk, HANGS).unwrap());
            };
            runtime.shard(0).spawn(hang).detach();
        });
        let life = opened.unwrap();
        let took_ns = town.world.now_ns() - begin_ns;
        if took_ns < 10_000_000_000 {
            // It was open before.
            break;
        }
        places += 1;
        assert!(took_ns < 21_000_000_000, "{took_ns} ns");
        slow += u32::from(took_ns > 11_000_000_000);
        life.run(async |cache| {
            let (stats, findings) = (cache.stats(), cache.findings());
            assert_eq!(findings.len(), 2, "{findings:?}");
            for disk in 1..3 {
                assert_eq!(health(&stats, disk), DiskHealth::Missing, "{findings:?}");
                assert_eq!(stats.disks[disk].capacity_bytes, 0);
            }
            let there = hits(cache, 0..200, 1).await.len();
            assert!((60..140).contains(&there), "two disks of four: {there}");

            // They are looked for, but not asked again before they have answered.
            let in_backend = || (0..2).map(|n| life.runtime().shard(n).reactor().in_backend()).sum::<usize>();
            let before = in_backend();
            assert!((2..10).contains(&before), "{before}");
            nap(&life, 30).await;
            assert_eq!(in_backend(), before);
        });
        // No checkpoint was made without them, so they have all that they had.
        life.crash();
        (1..3).for_each(|disk| state(&town, disk, SimDiskState::Healthy));
        let life = town.open(&quiet());
        assert_eq!(life.run(async |cache| hits(cache, 0..200, 1).await.len()), 200);
        life.close();
    }
    // Only where one of them hung with its superblock, and the other one later.
    assert!(places > 10 && slow < 3, "{slow} of {places}");
}

/// On shards of a program, closing named no disk, though its operations were still under way.
#[test]
fn closing_names_the_disk_that_hangs() {
    let (town, life, shard) = opened(3, &quiet());
    life.run(async |cache| {
        fill_and_hang(&town, cache, 300).await;
        let options = GetOptions { deadline: Some(Duration::from_millis(20)), ..GetOptions::default() };
        let mut late = 0;
        for n in 0..300 {
            late += u32::from(matches!(cache.get_with(&key(n), options).await.unwrap(), Lookup::Miss(_)));
        }
        assert!(late > 50, "{late}");
    });
    let took_ns = close_beside_a_hang(&town, life, &shard, 1);
    assert!((20_000_000_000..21_000_000_000).contains(&took_ns), "{took_ns} ns");

    // What it held is lost, and nothing else.
    state(&town, 1, SimDiskState::Healthy);
    let life = town.open(&quiet());
    let there = life.run(async |cache| hits(cache, 0..300, 1).await.len());
    assert!((100..250).contains(&there), "two disks of three: {there}");
    life.close();
}

#[test]
fn a_cache_whose_only_disk_hangs_is_closed_in_time() {
    let (town, life, shard) = opened(1, &quiet());
    life.run(async |cache| insert(cache, 0..10, 1).await);
    state(&town, 0, HANGS);
    let took_ns = close_beside_a_hang(&town, life, &shard, 0);
    assert!((20_000_000_000..21_000_000_000).contains(&took_ns), "{took_ns} ns");
}

#[test]
fn a_disk_that_hangs_ends_a_check_in_time() {
    let town = town(2);
    let life = town.open(&quiet());
    life.run(async |cache| insert(cache, 0..2000, 1).await);
    life.close();
    assert!(town.check(|_, _| {}).is_sound());

    // It hangs as soon as the first blocks have been read.
    let (world, clock) = (town.world.clone(), town.world.clone());
    let begin_ns = town.world.now_ns();
    let ended_ns = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let last_ns = ended_ns.clone();
    let report = town.check(move |_, _| {
        world.set_disk_state(1, HANGS).unwrap();
        last_ns.store(clock.now_ns(), std::sync::atomic::Ordering::Relaxed);
    });
    let took_ns = ended_ns.load(std::sync::atomic::Ordering::Relaxed) - begin_ns;
    assert!((500..1500).contains(&report.blocks.unreadable), "{:?}", report.blocks);
    assert_eq!((report.blocks.blocks, report.blocks.checksum_errors), (2000, 0));
    assert_eq!(report.blocks.bytes, (2000 - report.blocks.unreadable) * 8192, "those that were not read have none");
    assert!(took_ns < 30_000_000_000, "{took_ns} ns");
}
