//! Simulated disks that slow down, refuse writes, fail, vanish and return; disks with faults of their own; worlds that
//! keep no contents; runs that stop after every single operation.

use crate::seeds;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{CREATE, EXISTING, all, filled, has_pattern, poll_once};
use plimsoll::backend::OpenOptions;
use plimsoll::backend::sim::{SimConfig, SimConfigError, SimCounters, SimDisk, SimDiskState, SimFaults, SimWorld};
use plimsoll::buffer::AlignedBuf;
use plimsoll::{Class, Classes, DiskSetup, Shard, SharedFile, SimRuntime, Topology};

const BLOCK: usize = 4096;
const MS: u64 = 1_000_000;

/// Disks that take 50 us for a write of a block and 100 us for a read, never more or less, mounted at /0, /1, ...
fn disks(count: usize) -> Vec<SimDisk> {
    let disk = |number: usize| {
        let mut disk = SimDisk { mount: format!("/{number}").into(), ..SimDisk::default() };
        (disk.spec.latency.write_ns, disk.spec.latency.read_ns, disk.spec.latency.sigma) = (50e3, 100e3, 0.0);
        disk
    };
    (0..count).map(disk).collect()
}

fn world(count: usize, seed: u64, faults: SimFaults) -> SimWorld {
    SimWorld::new(&SimConfig { seed, faults, disks: disks(count), sector_bytes: 512, ..SimConfig::default() }).unwrap()
}

/// One life of the machine: a shard, and a file on each disk.
struct Life {
    world: SimWorld,
    topology: Topology,
    runtime: SimRuntime,
    shard: Shard,
    files: Vec<Arc<SharedFile>>,
}

impl Life {
    fn begin(world: &SimWorld, count: usize, is_new: bool) -> Life {
        let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited(); count]).unwrap();
        let runtime = SimRuntime::new(world, &topology).unwrap();
        let shard = runtime.shard(0).clone();
        let how = OpenOptions { direct: true, ..if is_new { CREATE } else { EXISTING } };
        let file = |disk: usize| topology.file(format!("/{disk}/data").as_ref(), how.clone(), disk as u16);
        let files = (0..count).map(file).collect();
        Life { world: world.clone(), topology, runtime, shard, files }
    }

    async fn write(&self, disk: usize, block: u64, generation: u64) -> Result<usize, Option<i32>> {
        let offset = block * BLOCK as u64;
        let buffer = filled(BLOCK, generation, offset);
        let (written, _) = self.shard.write_at(&self.files[disk], Class::DEFAULT, offset, buffer).await;
        written.map_err(|error| error.raw_os_error())
    }

    async fn read(&self, disk: usize, block: u64) -> Result<AlignedBuf, Option<i32>> {
        let (offset, buffer) = (block * BLOCK as u64, AlignedBuf::new(BLOCK).unwrap());
        let (read, buffer) = self.shard.read_at(&self.files[disk], Class::DEFAULT, offset, buffer).await;
        read.map(|_| buffer).map_err(|error| error.raw_os_error())
    }

    async fn sync(&self, disk: usize) -> Result<(), Option<i32>> {
        self.shard.sync(&self.files[disk], Class::DEFAULT, false).await.map_err(|error| error.raw_os_error())
    }

    fn crash(self) {
        let Life { runtime, shard, files, topology, .. } = self;
        drop((shard, files, topology));
        runtime.crash();
    }
}

/// How each kind of operation ends: read, sync, write, discard, allocate, new length, open, create.
async fn try_everything(life: &Life, path: &str) -> [Option<i32>; 8] {
    let (shard, file) = (&life.shard, &life.files[0]);
    let errno = |end: std::io::Result<()>| end.err().map(|error| error.raw_os_error().unwrap_or(-1));
    let open = |path: &str, how| {
        let file = life.topology.file(path.as_ref(), how, 0);
        errno(shard.reactor().open(&file).map(|_| ()))
    };
    let set_len = || errno(shard.reactor().set_file_len(file, 8192));
    let read = life.read(0, 0).await.map(|_| ());
    let written = life.write(0, 0, 1).await.map(|_| ());
    [
        read.err().flatten(),
        life.sync(0).await.err().flatten(),
        written.err().flatten(),
        errno(shard.discard(file, Class::DEFAULT, 4096, 4096).await),
        errno(shard.allocate(file, Class::DEFAULT, 0, 8192, false).await),
        set_len(),
        open("/0/data", EXISTING),
        open(path, CREATE),
    ]
}

#[test]
fn every_state_lets_pass_what_it_should() {
    let life = Life::begin(&world(1, 1, SimFaults::default()), 1, true);
    let erofs = Some(libc::EROFS);
    let cases = [
        (SimDiskState::Healthy, [None; 8]),
        (SimDiskState::Slow { factor: 3.0 }, [None; 8]),
        (SimDiskState::ReadOnly, [None, None, erofs, erofs, erofs, erofs, None, erofs]),
        (SimDiskState::Failed, [Some(libc::EIO); 8]),
        (SimDiskState::Gone, [Some(libc::ENODEV); 8]),
        (SimDiskState::Healthy, [None; 8]),
    ];
    for (number, (state, expect)) in cases.into_iter().enumerate() {
        life.world.set_disk_state(0, state).unwrap();
        let path = format!("/0/new {number}");
        assert_eq!(life.runtime.block_on(0, try_everything(&life, &path)).unwrap(), expect, "{state:?}");
    }
    let error = life.world.set_disk_state(1, SimDiskState::Gone).unwrap_err();
    assert_eq!(error, SimConfigError::UnknownDisk { number: 1, disks: 1 });
    assert!(error.to_string().contains("no simulated disk 1"), "{error}");
    let error = life.world.set_disk_state(0, SimDiskState::Slow { factor: 0.0 }).unwrap_err();
    assert!(error.to_string().contains("simulated disk 0: slow by a factor of 0"), "{error}");
}

/// What came before the writes hang ends, what comes then waits; it is carried out when they no longer do, ends with the
/// error of a disk that leaves, and is lost in a crash.
#[test]
fn writes_hang_and_reads_do_not() {
    for (then, expect) in [(SimDiskState::Healthy, Ok(BLOCK)), (SimDiskState::Gone, Err(Some(libc::ENODEV)))] {
        let world = world(1, 1, SimFaults::default());
        let life = Life::begin(&world, 1, true);
        let story = async {
            life.write(0, 0, 1).await.unwrap();
            life.sync(0).await.unwrap();
            let mut before = std::pin::pin!(life.write(0, 1, 1));
            assert!(poll_once(before.as_mut()).is_pending());
            // It takes 50 us.
            life.shard.sleep(Duration::from_micros(10)).await;
            life.world.set_disk_state(0, SimDiskState::WritesHang).unwrap();
            assert_eq!(before.await, Ok(BLOCK));

            let mut written = std::pin::pin!(life.write(0, 0, 2));
            let mut synced = std::pin::pin!(life.sync(0));
            for _ in 0..100 {
                assert!(poll_once(written.as_mut()).is_pending() && poll_once(synced.as_mut()).is_pending());
                assert!(has_pattern(&life.read(0, 0).await.unwrap(), 1, 0), "the older one");
                life.shard.sleep(Duration::from_secs(1)).await;
            }
            life.world.set_disk_state(0, then).unwrap();
            assert_eq!(written.await, expect);
            assert_eq!(synced.await, expect.map(drop));
        };
        life.runtime.block_on(0, story).unwrap();
        life.crash();
    }

    let world = world(1, 1, SimFaults::default());
    let life = Life::begin(&world, 1, true);
    life.runtime.block_on(0, life.write(0, 0, 1)).unwrap().unwrap();
    life.runtime.block_on(0, life.sync(0)).unwrap().unwrap();
    life.world.set_disk_state(0, SimDiskState::WritesHang).unwrap();
    life.runtime.block_on(0, async { assert!(poll_once(std::pin::pin!(life.write(0, 0, 2))).is_pending()) }).unwrap();
    life.crash();
    let life = Life::begin(&world, 1, false);
    let found = life.runtime.block_on(0, life.read(0, 0)).unwrap().unwrap();
    assert!(has_pattern(&found, 1, 0) || has_pattern(&found, 2, 0), "whole, or not at all");
}

/// A file that could not be opened while its disk was away can be later.
#[test]
fn a_file_opens_once_its_disk_is_back() {
    let world = world(1, 1, SimFaults::default());
    world.set_disk_state(0, SimDiskState::Gone).unwrap();
    let life = Life::begin(&world, 1, true);
    assert_eq!(life.runtime.block_on(0, life.write(0, 0, 1)).unwrap(), Err(Some(libc::ENODEV)));
    world.set_disk_state(0, SimDiskState::Healthy).unwrap();
    assert_eq!(life.runtime.block_on(0, life.write(0, 0, 1)).unwrap(), Ok(BLOCK));
    assert_eq!(world.landed(), 1, "what was refused never landed");
}

/// How long a write of a block alone takes, and how many are done in 40 ms with 64 at a time.
fn speed(life: &Life, disk: usize) -> (u64, u64) {
    let begin_ns = life.world.now_ns();
    life.runtime.block_on(0, life.write(disk, 0, 1)).unwrap().unwrap();
    let (latency_ns, end_ns) = (life.world.now_ns() - begin_ns, life.world.now_ns() + 40 * MS);
    let worker = async |n: u64| {
        let mut count = 0;
        while life.world.now_ns() < end_ns {
            life.write(disk, n, 1).await.unwrap();
            count += 1;
        }
        count
    };
    let counts = life.runtime.block_on(0, all((0..64).map(worker))).unwrap();
    (latency_ns, counts.iter().sum())
}

#[test]
fn a_slow_disk_takes_longer_and_does_less_until_it_is_healthy_again() {
    let life = Life::begin(&world(2, 1, SimFaults::default()), 2, true);
    let (latency_ns, writes) = speed(&life, 0);
    assert!(latency_ns == 50_000 && (3_950..4_100).contains(&writes), "{latency_ns} ns, {writes} in 40 ms");
    for factor in [4.0, 2.5, 1.0] {
        life.world.set_disk_state(0, SimDiskState::Slow { factor }).unwrap();
        let (slow_ns, slow_writes) = speed(&life, 0);
        let ratio = (writes as f64 - 64.0) / (slow_writes as f64 - 64.0);
        assert_eq!(slow_ns as f64, factor * 50e3);
        assert!((factor * 0.97..factor * 1.03).contains(&ratio), "{factor}: {ratio}");
        assert_eq!(speed(&life, 1).0, 50_000, "the other disk is as fast as ever");
    }
    life.world.set_disk_state(0, SimDiskState::Slow { factor: 4.0 }).unwrap();
    life.world.set_disk_state(0, SimDiskState::Healthy).unwrap();
    assert_eq!(speed(&life, 0).0, 50_000);
}

#[test]
fn a_state_outlives_a_crash() {
    let world = world(2, 1, SimFaults::default());
    let life = Life::begin(&world, 2, true);
    life.runtime.block_on(0, all([life.sync(0), life.sync(1)])).unwrap();
    world.set_disk_state(0, SimDiskState::Slow { factor: 10.0 }).unwrap();
    world.set_disk_state(1, SimDiskState::Failed).unwrap();
    life.crash();
    let life = Life::begin(&world, 2, false);
    assert_eq!(speed(&life, 0).0, 500_000);
    assert_eq!(life.runtime.block_on(0, life.write(1, 0, 1)).unwrap(), Err(Some(libc::EIO)));
}

/// What is left of one disk of two: ends of the writes in flight, generation of each block as it is back (0: torn).
fn leave_and_return(seed: u64, state: SimDiskState, faults: SimFaults) -> (Vec<Option<i32>>, Vec<u64>, SimCounters) {
    let life = Life::begin(&world(2, seed, faults), 2, true);
    let work = async {
        all((0..16).map(|block| life.write(0, block, 1))).await;
        let leave = async {
            life.shard.sleep(Duration::from_micros(20)).await;
            let before_ns = life.world.now_ns();
            life.world.set_disk_state(0, state).unwrap();
            assert_eq!(life.shard.reactor().in_backend(), 16);
            before_ns
        };
        let rewrite = async {
            let ends = all((0..16).map(|block| life.write(0, block, 2))).await;
            (ends, life.world.now_ns())
        };
        let mut leave = std::pin::pin!(leave);
        let mut rewrite = std::pin::pin!(rewrite);
        let mut left_ns = None;
        let (ends, end_ns) = std::future::poll_fn(|context| {
            if left_ns.is_none()
                && let std::task::Poll::Ready(at_ns) = leave.as_mut().poll(context)
            {
                left_ns = Some(at_ns);
            }
            rewrite.as_mut().poll(context)
        })
        .await;
        assert_eq!(Some(end_ns), left_ns, "they end when the disk leaves");
        assert!(life.read(0, 0).await.is_err());
        life.shard.sleep(Duration::from_secs(1)).await;
        life.world.set_disk_state(0, SimDiskState::Healthy).unwrap();
        let mut generations = Vec::new();
        for block in 0..16 {
            let bytes = life.read(0, block).await.unwrap();
            let is = |generation: &u64| has_pattern(&bytes, *generation, block * BLOCK as u64);
            generations.push([1, 2].into_iter().find(is).unwrap_or(0));
        }
        (ends.into_iter().map(|end| end.err().flatten()).collect(), generations)
    };
    let (ends, generations) = life.runtime.block_on(0, work).unwrap();
    (ends, generations, life.world.counters())
}

#[test]
fn what_is_in_flight_when_a_disk_leaves_has_happened_or_not() {
    let none = SimFaults::default();
    for (state, errno) in [(SimDiskState::Failed, libc::EIO), (SimDiskState::Gone, libc::ENODEV)] {
        let (ends, generations, counters) = leave_and_return(1, state, none);
        assert_eq!(ends, [Some(errno); 16]);
        assert!(generations.contains(&1) && generations.contains(&2) && !generations.contains(&0), "{generations:?}");
        let kept = generations.iter().filter(|generation| **generation == 2).count() as u64;
        assert_eq!((counters.kept_at_crash, counters.dropped_at_crash, counters.crashes), (kept, 16 - kept, 0));
        assert_eq!(leave_and_return(1, state, none), (ends, generations.clone(), counters), "the same seed");
        assert_ne!(leave_and_return(2, state, none).1, generations, "another seed");
    }
    let cases = [(0.0, 0.0, 1), (1.0, 0.0, 2), (0.5, 1.0, 0)];
    for (unsynced_kept_probability, torn_write_probability, expect) in cases {
        let faults = SimFaults { unsynced_kept_probability, torn_write_probability, ..none };
        let (_, generations, _) = leave_and_return(1, SimDiskState::Gone, faults);
        assert_eq!(generations, [expect; 16], "kept {unsynced_kept_probability}, torn {torn_write_probability}");
    }
}

/// When and how each write of each disk ended.
type Log = Vec<(u64, u64, bool)>;

/// Three disks are written to; the second may vanish in mid write and return later.
fn three_disks(vanishes: bool) -> (Vec<Log>, SimCounters) {
    let life = Life::begin(&world(3, 5, SimFaults::default()), 3, true);
    let logs = RefCell::new(vec![Log::new(); 3]);
    let worker = async |n: u64| {
        let disk = (n % 3) as usize;
        for round in 0..200 {
            let end = life.write(disk, n, round).await;
            logs.borrow_mut()[disk].push((life.world.now_ns(), n, end.is_ok()));
            // A disk that has left ends everything at once: whoever writes on must wait a little.
            life.shard.sleep(Duration::from_micros(10 + n)).await;
        }
    };
    let pull = async |n: u64| {
        if n < 24 {
            return worker(n).await;
        }
        let pauses = [(3_u64, SimDiskState::Gone), (4, SimDiskState::Healthy)];
        for (pause_ms, state) in pauses.into_iter().filter(|_| vanishes) {
            life.shard.sleep(Duration::from_millis(pause_ms)).await;
            life.world.set_disk_state(1, state).unwrap();
        }
    };
    life.runtime.block_on(0, all((0..25).map(pull))).unwrap();
    (logs.into_inner(), life.world.counters())
}

#[test]
fn a_disk_that_vanishes_leaves_the_others_undisturbed() {
    let (calm, _) = three_disks(false);
    let (stormy, counters) = three_disks(true);
    // To the nanosecond.
    assert_eq!((&calm[0], &calm[2]), (&stormy[0], &stormy[2]));
    assert!(counters.kept_at_crash + counters.dropped_at_crash > 0, "some were in flight: {counters:?}");
    let failed: Vec<u64> = stormy[1].iter().filter(|(_, _, is_ok)| !is_ok).map(|(at_ns, ..)| *at_ns).collect();
    assert!(failed.len() > 8 && failed.iter().all(|at_ns| (3 * MS..7 * MS).contains(at_ns)), "{}", failed.len());
    assert!(stormy[1].last().is_some_and(|(_, _, is_ok)| *is_ok), "and it is back");
}

#[test]
fn a_disk_can_have_faults_of_its_own() {
    let world = world(2, 1, SimFaults::default());
    let life = Life::begin(&world, 2, true);
    let errors = || {
        let ends = all((0..100).map(|n| life.write(n as usize % 2, n, 1)));
        let ends = life.runtime.block_on(0, ends).unwrap();
        [0, 1].map(|disk| ends.iter().skip(disk).step_by(2).filter(|end| end.is_err()).count())
    };
    let always = SimFaults { write_error_probability: 1.0, ..SimFaults::default() };
    assert_eq!(errors(), [0, 0]);
    world.set_disk_faults(1, Some(always)).unwrap();
    assert_eq!(errors(), [0, 50]);
    // The world's faults do not touch a disk that has its own.
    world.set_disk_faults(1, Some(SimFaults::default())).unwrap();
    world.set_faults(always).unwrap();
    assert_eq!(errors(), [50, 0]);
    world.set_disk_faults(1, None).unwrap();
    assert_eq!(errors(), [50, 50]);
    assert_eq!(world.set_disk_faults(2, None), Err(SimConfigError::UnknownDisk { number: 2, disks: 2 }));
    let bad = SimFaults { bit_flip_probability: 2.0, ..SimFaults::default() };
    assert_eq!(world.set_disk_faults(0, Some(bad)), Err(SimConfigError::Probability { name: "bit_flip_probability" }));
}

#[test]
fn a_crash_draws_by_the_faults_of_each_disk() {
    let keep = SimFaults { unsynced_kept_probability: 1.0, ..SimFaults::default() };
    let drop_all = SimFaults { unsynced_kept_probability: 0.0, ..SimFaults::default() };
    let world = world(2, 1, keep);
    world.set_disk_faults(1, Some(drop_all)).unwrap();
    let life = Life::begin(&world, 2, true);
    let work = async {
        for disk in [0, 1] {
            life.write(disk, 0, 1).await.unwrap();
            life.sync(disk).await.unwrap();
            life.write(disk, 0, 2).await.unwrap();
        }
    };
    life.runtime.block_on(0, work).unwrap();
    life.crash();
    let life = Life::begin(&world, 2, false);
    for (disk, generation) in [(0, 2), (1, 1)] {
        let bytes = life.runtime.block_on(0, life.read(disk, 0)).unwrap().unwrap();
        assert!(has_pattern(&bytes, generation, 0), "disk {disk}");
    }
}

/// The same work with and without contents: the same times, other bytes.
fn without_contents(keep_contents: bool) -> (u64, u64, u64, AlignedBuf) {
    let config = SimConfig { keep_contents, disks: disks(1), ..SimConfig::default() };
    let world = SimWorld::new(&config).unwrap();
    let life = Life::begin(&world, 1, true);
    let work = async {
        let ends = all((0..200).map(|block| life.write(0, block, 1))).await;
        assert!(ends.iter().all(Result::is_ok));
        life.shard.discard(&life.files[0], Class::DEFAULT, 0, 4096).await.unwrap();
        life.sync(0).await.unwrap();
        life.read(0, 77).await.unwrap()
    };
    let bytes = life.runtime.block_on(0, work).unwrap();
    let len_bytes = life.shard.reactor().file_len(&life.files[0]).unwrap();
    (world.now_ns(), world.landed(), len_bytes, bytes)
}

#[test]
fn without_contents_there_are_lengths_times_and_zeros() {
    let (kept, lost) = (without_contents(true), without_contents(false));
    assert_eq!((kept.0, kept.1, kept.2), (lost.0, lost.1, lost.2));
    assert_eq!((lost.1, lost.2), (203, 200 * BLOCK as u64));
    assert!(has_pattern(&kept.3, 1, 77 * BLOCK as u64) && lost.3.iter().all(|byte| *byte == 0));
}

/// 64 GiB are written, and nothing of it is copied or kept. Lengths survive a crash.
#[test]
fn without_contents_much_can_be_written() {
    const CHUNK: usize = 16 << 20;
    let config = SimConfig { keep_contents: false, disks: disks(1), ..SimConfig::default() };
    let world = SimWorld::new(&config).unwrap();
    let life = Life::begin(&world, 1, true);
    let work = async {
        let mut buffer = AlignedBuf::new(CHUNK).unwrap();
        for n in 0..4096 {
            let (written, back) = life.shard.write_at(&life.files[0], Class::DEFAULT, n * CHUNK as u64, buffer).await;
            assert_eq!(written.unwrap(), CHUNK);
            buffer = back;
        }
        life.sync(0).await.unwrap();
        let (written, _) = life.shard.write_at(&life.files[0], Class::DEFAULT, 64 << 30, buffer).await;
        assert_eq!(written.unwrap(), CHUNK);
    };
    life.runtime.block_on(0, work).unwrap();
    life.crash();
    let life = Life::begin(&world, 1, false);
    assert_eq!(life.shard.reactor().file_len(&life.files[0]).unwrap(), (64 << 30) + CHUNK as u64);
    assert_eq!(world.counters().dropped_at_crash, 0);
}

/// Three disks whose operations come back at the same instants.
async fn lockstep(life: &Life) {
    for round in 1..4 {
        let ends = all((0..3).map(|disk| life.write(disk, round, round))).await;
        assert_eq!(ends, [Ok(BLOCK); 3]);
    }
}

#[test]
fn a_run_stops_after_exactly_so_many_operations() {
    let faults = SimFaults { unsynced_kept_probability: 0.0, ..SimFaults::default() };
    for landed in 0..12 {
        let life = Life::begin(&world(3, landed, faults), 3, true);
        let end = life.runtime.block_on_until_landed(0, lockstep(&life), landed).unwrap();
        assert_eq!((end.is_some(), life.world.landed()), (landed >= 9, landed.min(9)));
        // Three at a time, 50 us each; after the third of them the next three are on their way.
        assert_eq!(life.world.now_ns(), landed.min(9).div_ceil(3) * 50_000);
        let in_flight = if landed < 9 { 3 - landed as usize % 3 } else { 0 };
        assert_eq!(life.shard.reactor().in_backend(), in_flight, "after {landed}");
        let world = life.world.clone();
        life.crash();
        assert_eq!(world.counters().files_lost_at_crash, 3);
        assert_eq!(world.counters().dropped_at_crash, landed.min(9) + in_flight as u64, "after {landed}");
        assert_eq!(world.landed(), landed.min(9), "a crash lands nothing");
    }
}

#[test]
fn what_a_run_left_behind_lands_in_the_next_one() {
    let life = Life::begin(&world(3, 1, SimFaults::default()), 3, true);
    let all_disks = || all((0..3).map(|disk| life.write(disk, 0, 1)));
    assert!(life.runtime.block_on_until_landed(0, all_disks(), 1).unwrap().is_none());
    assert_eq!((life.world.landed(), life.world.now_ns()), (1, 50_000));
    // One of the two that have come back and not landed is on a disk that leaves.
    life.world.set_disk_state(1, SimDiskState::Gone).unwrap();
    assert!(life.runtime.run_until_landed(2).unwrap());
    assert_eq!((life.world.landed(), life.world.now_ns()), (2, 50_000));
    assert!(!life.runtime.run_until_landed(3).unwrap(), "nothing else can happen");
    assert_eq!(life.shard.reactor().in_backend(), 0);
}

#[test]
fn spawned_tasks_run_until_so_much_has_landed() {
    let life = Life::begin(&world(1, 1, SimFaults::default()), 1, true);
    let seen = Rc::new(RefCell::new(0));
    let (shard, file, count) = (life.shard.clone(), Arc::clone(&life.files[0]), Rc::clone(&seen));
    let task = async move {
        for block in 0..10 {
            shard.write_at(&file, Class::DEFAULT, block * 4096, filled(BLOCK, 1, block * 4096)).await.0.unwrap();
            *count.borrow_mut() += 1;
        }
    };
    life.runtime.shard(0).spawn(task).detach();
    for landed in 0..=10 {
        assert!(life.runtime.run_until_landed(landed).unwrap());
        assert_eq!((*seen.borrow(), life.world.landed()), (landed, landed));
    }
    assert!(!life.runtime.run_until_landed(11).unwrap());
}

/// A file of one block is replaced by writing a second one and then a root that names it, with a sync after each. The
/// power fails after every operation, with every seed: the root always names a block that is whole.
#[test]
fn a_crash_after_every_operation_finds_what_the_order_of_syncs_promises() {
    let faults = SimFaults { torn_write_probability: 0.4, ..SimFaults::default() };
    let mut roots_seen = [0, 0];
    let replace_and_crash = |seed: u64, landed: u64, roots_seen: &mut [u64; 2]| {
        let world = world(1, seed, faults);
        let life = Life::begin(&world, 1, true);
        let step = async |block, generation| {
            life.write(0, block, generation).await.unwrap();
            life.sync(0).await.unwrap();
        };
        let begin = async {
            step(1, 1).await;
            step(0, 1).await;
        };
        life.runtime.block_on(0, begin).unwrap();
        let replace = async {
            step(2, 2).await;
            // The root is one sector: it is never torn.
            let root = filled(512, 2, 0);
            life.shard.write_at(&life.files[0], Class::DEFAULT, 0, root).await.0.unwrap();
            life.sync(0).await.unwrap();
        };
        let end = life.runtime.block_on_until_landed(0, replace, 4 + landed).unwrap();
        assert_eq!(end.is_some(), landed >= 4, "four operations");
        life.crash();
        let life = Life::begin(&world, 1, false);
        let root = life.runtime.block_on(0, life.read(0, 0)).unwrap().unwrap();
        let generation = if has_pattern(&root[..512], 2, 0) { 2 } else { 1 };
        assert!(has_pattern(&root[..512], generation, 0));
        assert!(generation == 2 || end.is_none(), "what was promised is there");
        let block = life.runtime.block_on(0, life.read(0, generation)).unwrap().unwrap();
        assert!(has_pattern(&block, generation, generation * BLOCK as u64), "seed {seed}, after {landed}");
        roots_seen[generation as usize - 1] += 1;
    };
    let count = seeds::each(20, |seed| (0..8).for_each(|landed| replace_and_crash(seed, landed, &mut roots_seen)));
    assert!(count < 20 || roots_seen.iter().all(|count| *count > 20), "{roots_seen:?}");
}
