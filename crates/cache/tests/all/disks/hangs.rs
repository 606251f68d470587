//! Disks that hang: the others go on, and nobody waits for ever.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::world::{Life, Task, Town, join, poll_all, value_of};
use plimsoll::backend::sim::{SimDiskState, SimFaults};
use plimsoll::core::Rate;
use plimsoll::{Limits, Qos, Shard};
use plimsoll_cache::stats::{DiskHealth, MissReason};
use plimsoll_cache::{BlockCache, CacheConfig, CacheError, GetOptions, InsertOptions, Inserted, Lookup, Placement};

use super::{SLAB_BYTES, health, hits, insert, key, nap, quiet, state, town};

/// With this, every operation takes at least 100 s: none completes during the test.
const HANGS: SimDiskState = SimDiskState::Slow { factor: 1e6 };

/// Returns disks with a cache, the cache, and the shard on which stories run.
fn opened(disks: u16, config: &CacheConfig) -> (Town, Life, Shard) {
    let town = town(disks);
    let life = town.open(config);
    let shard = life.runtime().shard(0).clone();
    (town, life, shard)
}

/// Returns two disks, the first of which has a cache, the cache, and the shard on which stories run.
fn opened_beside_a_blank(config: &CacheConfig) -> (Town, Life, Shard) {
    let town = Town::new(2, 48 << 20, 7);
    town.create_of(SLAB_BYTES, &town.disks[..1]);
    let life = town.try_open_of(config, &town.disks[..1]).unwrap();
    let shard = life.runtime().shard(0).clone();
    (town, life, shard)
}

/// Closes a cache one of whose disks hangs, which must be named. Returns how long that took, in nanoseconds.
#[track_caller]
fn close_beside_a_hang(town: &Town, life: Life, shard: &Shard, disk: usize) -> u64 {
    let begin_ns = shard.now_ns();
    let end = life.try_close();
    assert!(matches!(&end, Err(CacheError::Hangs { paths }) if *paths == [town.disks[disk].path.clone()]), "{end:?}");
    shard.now_ns() - begin_ns
}

/// Inserts keys from 0 on; then the second disk hangs.
async fn fill_and_hang(town: &Town, cache: &BlockCache, keys: u32) {
    insert(cache, 0..keys, 1).await;
    state(town, 1, HANGS);
}

#[test]
fn a_disk_that_hangs_for_a_minute_does_not_stop_the_others() {
    let config = CacheConfig { checkpoint_interval: Duration::from_secs(5), ..quiet() };
    let (town, life, shard) = opened(3, &config);
    life.run(async |cache| {
        insert(cache, 0..600, 1).await;
        cache.checkpoint().await.unwrap();
        state(&town, 1, HANGS);
        let begin_ns = shard.now_ns();
        let (mut there, mut late, mut stored, mut longest_ns) = (0, 0, 0, 0);
        let options = GetOptions { deadline: Some(Duration::from_millis(20)), ..GetOptions::default() };
        let mut next = 1000;
        while shard.now_ns() - begin_ns < 60_000_000_000 {
            for n in (0..600).step_by(7) {
                let asked_ns = shard.now_ns();
                match cache.get_with(&key(n), options).await.unwrap() {
                    Lookup::Hit(block) => {
                        assert_eq!(block[..], value_of(n + 10_000, 8192));
                        there += 1;
                        longest_ns = longest_ns.max(shard.now_ns() - asked_ns);
                    }
                    // Once it is known that the disk hangs, its blocks are misses at once.
                    Lookup::Miss(MissReason::Deadline) => late += u32::from(shard.now_ns() > asked_ns),
                    Lookup::Miss(_) => {}
                }
            }
            // The cache does not wait for a write to the disk that hangs.
            let value = value_of(next + 10_000, 8192);
            let (insert_key, limit) = (key(next), shard.sleep(Duration::from_millis(500)));
            let mut insert = std::pin::pin!(cache.insert(&insert_key, &value));
            let mut limit = std::pin::pin!(limit);
            std::future::poll_fn(|context| {
                if let Poll::Ready(end) = insert.as_mut().poll(context) {
                    stored += u32::from(end.unwrap() == Inserted::Stored);
                    return Poll::Ready(());
                }
                limit.as_mut().poll(context)
            })
            .await;
            next += 1;
            shard.sleep(Duration::from_millis(50)).await;
        }
        // The first 2 s show that the disk is slow; after 10 s its log write is abandoned.
        assert!(there > 30_000 && longest_ns < 5_000_000, "{there} hits, one took {longest_ns} ns");
        assert!(late < 2000, "{late} look-ups waited for the disk that hangs");
        assert!(stored > 500 && stored + 60 > next - 1000, "{stored} of {}", next - 1000);
        let stats = cache.stats();
        assert!(stats.checkpoints >= 9, "{} checkpoints", stats.checkpoints);
        assert!(matches!(health(&stats, 1), DiskHealth::Failed | DiskHealth::Missing), "{}", stats.disks[1].why);

        state(&town, 1, SimDiskState::Healthy);
        // The operations that hung complete one after another.
        nap(&life, 10_000).await;
        assert_eq!(health(&cache.stats(), 1), DiskHealth::Healthy, "it answers again: {}", cache.stats().disks[1].why);
        insert(cache, 5000..5300, 1).await;
        assert_eq!(hits(cache, 5000..5300, 1).await.len(), 300);
    });
    life.close();
    let life = town.open(&quiet());
    assert_eq!(life.run(async |cache| hits(cache, 5000..5300, 1).await.len()), 300);
}

/// Returns a configuration in which only the test requests checkpoints, and a hundred writes that hang fill a class.
fn narrow(placement: Placement) -> CacheConfig {
    CacheConfig { in_flight_bytes: 1 << 20, placement, ..quiet() }
}

/// The reads of a disk went on, so it did not hang, and inserts whose writes did were sent there until none was
/// admitted any more, and waited for the next checkpoint.
#[test]
fn inserts_go_on_beside_a_disk_whose_writes_hang() {
    for (name, placement) in Placement::ALL {
        let (town, life, shard) = opened(3, &narrow(placement));
        life.run(async |cache| {
            insert(cache, 0..600, 1).await;
            state(&town, 1, SimDiskState::WritesHang);

            let begin_ns = shard.now_ns();
            let insert_one = async |n: u32| {
                let asked_ns = shard.now_ns();
                let options = InsertOptions { wait: true, ..InsertOptions::default() };
                let end = cache.insert_with(&key(n), &value_of(n + 10_000, 8192), options).await.unwrap();
                (end == Inserted::Stored, shard.now_ns() - asked_ns)
            };
            // Sixty seconds in all: an insert every 20 ms, whatever has become of the others, and a hit.
            let (mut pending, mut ends, mut longest_ns): (Vec<Task<'_, (bool, u64)>>, Vec<_>, _) = (vec![], vec![], 0);
            for n in 0..3000 {
                pending.push(Box::pin(insert_one(1000 + n)));
                let asked_ns = shard.now_ns();
                let end = cache.get(&key(n % 600)).await.unwrap();
                longest_ns = longest_ns.max(shard.now_ns() - asked_ns);
                if let Lookup::Hit(block) = end {
                    assert_eq!(block[..], value_of(n % 600 + 10_000, 8192));
                }
                let mut pause = std::pin::pin!(shard.sleep(Duration::from_millis(20)));
                std::future::poll_fn(|context| {
                    poll_all(&mut pending, &mut ends, context);
                    pause.as_mut().poll(context)
                })
                .await;
            }
            assert!(shard.now_ns() - begin_ns >= 60_000_000_000);
            assert!(longest_ns < 5_000_000, "{name}: a hit took {longest_ns} ns");
            assert!(pending.len() < 3, "{name}: {} inserts wait", pending.len());
            let stored = ends.iter().filter(|(is_stored, _)| *is_stored).count();
            let longest_ns = ends.iter().map(|(_, took_ns)| *took_ns).max().unwrap();
            // Hits hold writes back for 0.1 s now and then.
            let late = ends.iter().filter(|(_, took_ns)| *took_ns > 500_000_000).count();
            // Those that were sent there in the first second; after 20 s the disk is given up.
            assert!(late < 60, "{name}: {late} waited");
            assert!(stored > 2900, "{name}: {stored} of 3000 are stored");
            assert!(longest_ns < 25_000_000_000, "{name}: one took {longest_ns} ns");
            let is_given_up = matches!(health(&cache.stats(), 1), DiskHealth::Failed | DiskHealth::Missing);
            // The other placements may have written elsewhere at that time.
            assert!(is_given_up || late == 0 && placement != Placement::Load, "{name}: {late} waited");

            // What hung is carried out now, and the disk begins anew.
            state(&town, 1, SimDiskState::Healthy);
            nap(&life, 30).await;
            assert_eq!(health(&cache.stats(), 1), DiskHealth::Healthy, "{name}: {}", cache.stats().disks[1].why);
            insert(cache, 5000..5300, 1).await;
            assert_eq!(hits(cache, 5000..5300, 1).await.len(), 300);
        });
        life.close();
        let life = town.open(&quiet());
        assert_eq!(life.run(async |cache| hits(cache, 5000..5300, 1).await.len()), 300, "{name}");
        life.close();
    }
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

/// One task discards the slabs of all disks, and waited for ever.
#[test]
fn a_discard_that_hangs_does_not_hold_up_those_of_other_disks() {
    let (town, life, _) = opened(3, &CacheConfig { discard: true, ..quiet() });
    life.run(async |cache| {
        insert(cache, 0..3000, 1).await;
        cache.checkpoint().await.unwrap();
        for n in 0..3000 {
            assert!(cache.remove(&key(n)).await.unwrap());
        }
        cache.checkpoint().await.unwrap();
        for disk in 0..2 {
            state(&town, disk, SimDiskState::WritesHang);
        }
        nap(&life, 25).await;
        let discarded = |disk: usize| cache.stats().disks[disk].io["discard"].operations;
        assert!(discarded(2) > 5, "{} on the sound disk", discarded(2));

        // The others are whole again, and so are their slabs.
        for disk in 0..2 {
            state(&town, disk, SimDiskState::Healthy);
        }
        nap(&life, 5).await;
        insert(cache, 0..3000, 2).await;
        cache.checkpoint().await.unwrap();
        assert_eq!(hits(cache, 0..3000, 2).await.len(), 3000);
    });
    life.close();
}

/// The slabs of a snapshot that could not be written were free at once, though a write was still under way to them.
#[test]
fn a_disk_that_does_not_take_its_snapshot_is_given_up() {
    let mut given_up = 0;
    for landed in 0..12 {
        let town = town(3);
        // Each life begins a slab of the log, until that is long enough for a snapshot.
        for _ in 0..7 {
            town.open(&quiet()).close();
        }
        let life = town.open(&quiet());
        let shard = life.runtime().shard(0).clone();
        life.run(async |cache| {
            insert(cache, 0..30, 1).await;
            cache.checkpoint().await.unwrap();
            let enough = town.world.landed() + landed;
            for _ in 0..100 {
                if town.world.landed() < enough {
                    shard.sleep(Duration::from_micros(10)).await;
                }
            }
            state(&town, 1, SimDiskState::WritesHang);
            nap(&life, 12).await;
            let stats = cache.stats();
            given_up += u32::from(health(&stats, 1) == DiskHealth::Failed && stats.disks[1].why.contains("snapshot"));

            state(&town, 1, SimDiskState::Healthy);
            nap(&life, 20).await;
            assert_eq!(health(&cache.stats(), 1), DiskHealth::Healthy, "{}", cache.stats().disks[1].why);
            insert(cache, 0..30, 2).await;
        });
        life.close();
        let life = town.open(&quiet());
        assert_eq!(life.run(async |cache| hits(cache, 0..30, 2).await.len()), 30);
        life.close();
    }
    assert!(given_up > 0, "no snapshot was under way");
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

#[test]
fn a_disk_that_hangs_is_known_while_a_checkpoint_waits_for_it() {
    let (town, life, shard) = opened(3, &quiet());
    life.run(async |cache| {
        fill_and_hang(&town, cache, 600).await;
        let mut checkpoint = std::pin::pin!(cache.checkpoint());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let options = GetOptions { deadline: Some(Duration::from_millis(20)), ..GetOptions::default() };
        let begin_ns = shard.now_ns();
        while shard.now_ns() - begin_ns < 4_000_000_000 {
            assert!(checkpoint.as_mut().poll(&mut context).is_pending(), "the disk does not hang");
            for n in (0..600).step_by(7) {
                cache.get_with(&key(n), options).await.unwrap();
            }
            shard.sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(health(&cache.stats(), 1), DiskHealth::Slow);
    });
}

/// Four readers without deadlines, each with one read at a time, and one disk of three hangs.
#[test]
fn a_disk_that_hangs_costs_a_reader_one_wait() {
    let (town, life, shard) = opened(3, &quiet());
    life.run(async |cache| {
        fill_and_hang(&town, cache, 600).await;
        let end_ns = shard.now_ns() + 9_000_000_000;
        let read = async |first: u32| {
            let (mut there, mut waited_ns) = (0, 0);
            for n in (first..).step_by(7) {
                let asked_ns = shard.now_ns();
                there += u32::from(matches!(cache.get(&key(n % 600)).await.unwrap(), Lookup::Hit(_)));
                waited_ns += (shard.now_ns() - asked_ns).saturating_sub(5_000_000);
                shard.sleep(Duration::from_millis(5)).await;
                if shard.now_ns() > end_ns {
                    break;
                }
            }
            (there, waited_ns)
        };
        let readers: Vec<Task<'_, (u32, u64)>> = (0..4).map(|first| Box::pin(read(first)) as _).collect();
        let ends = join(readers).await;
        // Each waits once for 2 s; one read of the superblock finds out whether the disk still hangs.
        let is_right = |(there, waited_ns): &(u32, u64)| *there > 300 && *waited_ns < 2_100_000_000;
        assert!(ends.iter().all(is_right), "{ends:?}");

        let begin_ns = shard.now_ns();
        insert(cache, 1000..1300, 1).await;
        assert!(shard.now_ns() - begin_ns < 500_000_000, "an insert went to the disk that hangs");
    });
}

/// An insert waits for some seconds in the scheduler, and nothing else is done meanwhile: the disk does not hang.
#[test]
fn a_disk_whose_only_work_is_limited_does_not_hang() {
    let (_town, life, shard) = opened(1, &quiet());
    life.run(async |cache| {
        insert(cache, 0..10, 1).await;
        let fill = cache.classes().find("cache.fill").unwrap();
        let limits = Limits { write_bandwidth: Rate::per_second(50_000), ..Limits::default() };
        cache.classes().set_qos(fill, Qos { limits, ..Qos::default() }).unwrap();
        let begin_ns = shard.now_ns();
        let values: Vec<_> = (0..2).map(|n| value_of(n, 300_000)).collect();
        let mut inserts: Vec<_> =
            values.iter().zip([b"a", b"b"]).map(|(value, key)| Box::pin(cache.insert(key, value))).collect();
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        inserts.iter_mut().for_each(|insert| assert!(insert.as_mut().poll(&mut context).is_pending()));
        let options = InsertOptions { class: cache.classes().find("cache.hit"), ..InsertOptions::default() };
        for n in 0..40 {
            shard.sleep(Duration::from_millis(100)).await;
            assert!(matches!(cache.get(&key(3)).await.unwrap(), Lookup::Hit(_)));
            // A read is progress, so none for longer than a disk may stand still.
            shard.sleep(Duration::from_millis(1350)).await;
            // No other write has ended either, and yet the disk takes what is not limited.
            let end = cache.insert_with(&key(100 + n), &value_of(n, 4096), options).await.unwrap();
            assert_eq!(end, Inserted::Stored, "{n}");
        }
        for insert in inserts {
            assert_eq!(insert.await.unwrap(), Inserted::Stored);
        }
        assert!(shard.now_ns() - begin_ns > 5_000_000_000, "nothing was limited");
    });
}

#[test]
fn a_disk_that_answers_again_is_read_again() {
    let (town, life, shard) = opened(2, &quiet());
    life.run(async |cache| {
        insert(cache, 0..300, 1).await;
        // Its operations take some seconds.
        state(&town, 1, SimDiskState::Slow { factor: 25_000.0 });
        let mut at_once = 0;
        for n in 0..300 {
            let asked_ns = shard.now_ns();
            let end = cache.get(&key(n)).await.unwrap();
            at_once += u32::from(matches!(end, Lookup::Miss(MissReason::Deadline)) && shard.now_ns() == asked_ns);
        }
        assert!(at_once > 20, "{at_once}");

        state(&town, 1, SimDiskState::Healthy);
        nap(&life, 10).await;
        assert_eq!(hits(cache, 0..300, 1).await.len(), 300);
    });
}

/// Whatever waits for a disk that hangs gets an answer, though nobody has set a deadline.
#[test]
fn nobody_waits_longer_for_a_disk_that_hangs_than_until_it_is_given_up() {
    let (town, life, shard) = opened(2, &quiet());
    life.run(async |cache| {
        fill_and_hang(&town, cache, 100).await;
        let begin_ns = shard.now_ns();

        // A fetched block is answered before it is written.
        for n in 1000..1040 {
            let (asked_ns, fetch_key, value) = (shard.now_ns(), key(n), value_of(n, 8192));
            let fetched = cache.get_or_fetch(&fetch_key, GetOptions::default(), async |_| Ok::<_, ()>(value.clone()));
            assert_eq!(fetched.await.unwrap().into_block()[..], value[..]);
            let again = cache.get_or_fetch(&fetch_key, GetOptions::default(), async |_| Err::<Vec<u8>, _>(()));
            assert_eq!(again.await.unwrap().into_block()[..], value[..], "it is fetched twice");
            let took_ns = shard.now_ns() - asked_ns;
            assert!(took_ns < 100_000_000, "{took_ns} ns");
        }

        let look = async |n: u32| usize::from(matches!(cache.get(&key(n)).await.unwrap(), Lookup::Miss(_)));
        let store = async |n: u32| {
            let end = cache.insert(&key(n), &value_of(n + 10_000, 8192)).await.unwrap();
            usize::from(end != Inserted::Stored)
        };
        let mut waiting: Vec<Task<'_, usize>> = Vec::new();
        (0..20).for_each(|n| waiting.push(Box::pin(look(n))));
        (2000..2040).for_each(|n| waiting.push(Box::pin(store(n))));
        let failed: usize = join(waiting).await.into_iter().sum();
        let took_ns = shard.now_ns() - begin_ns;
        assert!(failed > 5 && took_ns < 60_000_000_000, "{failed} failed, after {took_ns} ns");
        assert!(matches!(health(&cache.stats(), 1), DiskHealth::Failed | DiskHealth::Missing));

        // A place that a write still under way may reach is not used again before it has ended.
        state(&town, 1, SimDiskState::Healthy);
        nap(&life, 10_000).await;
        assert_eq!(health(&cache.stats(), 1), DiskHealth::Healthy, "{}", cache.stats().disks[1].why);
        insert(cache, 3000..3300, 1).await;
        assert_eq!(hits(cache, 3000..3300, 1).await.len(), 300);
    });
}

#[test]
fn metadata_is_not_written_again_to_a_disk_that_takes_none() {
    let (town, life, shard) = opened(1, &quiet());
    life.run(async |cache| {
        insert(cache, 0..10, 1).await;
        town.world.set_faults(SimFaults { write_error_probability: 1.0, ..SimFaults::default() }).unwrap();
        let begin_ns = shard.now_ns();
        cache.checkpoint().await.unwrap_err();
        let took_ns = shard.now_ns() - begin_ns;

        // Repeated after 1, 10 and 100 ms: the fourth error in a row makes the disk read-only. A fifth attempt would
        // fail alike, a second later.
        assert_eq!(health(&cache.stats(), 0), DiskHealth::ReadOnly);
        assert!((111_000_000..500_000_000).contains(&took_ns), "{took_ns} ns");
    });
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
