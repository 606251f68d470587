//! Disks that hang while a cache runs: the others serve on, and every wait for the one that hangs ends.

mod members;
mod openings;

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::world::{Life, Task, Town, join, poll_all, value_of};
use plimsoll::backend::sim::{SimDiskState, SimFaults};
use plimsoll::core::Rate;
use plimsoll::{Limits, Qos, Shard};
use plimsoll_cache::stats::{DiskHealth, MissReason};
use plimsoll_cache::{BlockCache, CacheConfig, GetOptions, InsertOptions, Inserted, Lookup, Placement};

use super::{health, hits, insert, key, nap, quiet, state, town};

/// With this, every operation takes at least 100 s: none completes during the test.
const HANGS: SimDiskState = SimDiskState::Slow { factor: 1e6 };

/// Returns disks with a cache, the cache, and the shard on which stories run.
fn opened(disks: u16, config: &CacheConfig) -> (Town, Life, Shard) {
    let town = town(disks);
    let life = town.open(config);
    let shard = life.runtime().shard(0).clone();
    (town, life, shard)
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
fn a_disk_that_hangs_is_known_while_a_checkpoint_waits_for_it() {
    let (town, life, shard) = opened(3, &quiet());
    life.run(async |cache| {
        fill_and_hang(&town, cache, 600).await;
        let mut checkpoint = std::pin::pin!(cache.checkpoint());
        let mut context = Context::from_waker(Waker::noop());
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
        let mut context = Context::from_waker(Waker::noop());
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
