//! Whole shards in virtual time: timers, messages, classes, and the same run from the same seed.

use crate::common;
use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{CREATE, all, block_on, disk, filled, has_pattern};
use plimsoll::backend::choose::BackendKind;
use plimsoll::backend::sim::{SimConfig, SimWorld};
use plimsoll::buffer::AlignedBuf;
use plimsoll::core::LatencyGoal;
use plimsoll::{
    Class, Classes, DiskSetup, Qos, Reactor, Reservation, Runtime, Shard, ShardOptions, SharedFile, SimError,
    SimRuntime, Topology,
};

const BLOCK: usize = 4096;
const MS: u64 = 1_000_000;

fn world(seed: u64) -> SimWorld {
    SimWorld::new(&SimConfig { seed, ..SimConfig::default() }).unwrap()
}

fn start(world: &SimWorld, shards: u16, disk: DiskSetup) -> (SimRuntime, Topology) {
    let topology = Topology::new(shards, Classes::new(), vec![disk]).unwrap();
    (SimRuntime::new(world, &topology).unwrap(), topology)
}

#[test]
fn timers_fire_in_order_and_at_their_very_nanosecond() {
    let world = world(1);
    let (runtime, _) = start(&world, 3, DiskSetup::unlimited());
    let fired = Rc::new(RefCell::new(Vec::new()));
    for (shard, at_ns) in [(0, 50 * MS), (2, 7), (1, 50 * MS), (0, 20 * MS), (2, 3_600_000 * MS), (1, 20 * MS + 1)] {
        let (own, fired) = (runtime.shard(shard).clone(), Rc::clone(&fired));
        let task = async move {
            own.sleep_until(at_ns).await;
            assert_eq!(own.now_ns(), at_ns);
            fired.borrow_mut().push((at_ns, shard));
        };
        runtime.shard(shard).spawn(task).detach();
    }
    runtime.run_for(Duration::from_secs(4000)).unwrap();
    let expect = [(7, 2), (20 * MS, 0), (20 * MS + 1, 1), (50 * MS, 0), (50 * MS, 1), (3_600_000 * MS, 2)];
    assert_eq!((fired.borrow().as_slice(), world.now_ns()), (expect.as_slice(), 4_000_000 * MS));
}

type Log = Rc<RefCell<Vec<(u64, u16, u64)>>>;

/// Each shard: timers, writes and reads through a queue that two shards share, now and then a job for another shard.
async fn worker(shard: Shard, neighbour: plimsoll::Handle, file: Arc<SharedFile>, log: Log, rounds: u64) {
    let number = shard.number();
    for round in 0..rounds {
        let offset = (u64::from(number) * rounds + round) * BLOCK as u64;
        let (written, _) = shard.write_at(&file, Class::DEFAULT, offset, filled(BLOCK, round, offset)).await;
        assert_eq!(written.unwrap(), BLOCK);
        shard.sleep(Duration::from_micros(1 + round * 13 % 997)).await;
        if round % 7 == 0 {
            let (file, block) = (Arc::clone(&file), AlignedBuf::new(BLOCK).unwrap());
            let read =
                neighbour.run(move |there| async move { there.read_at(&file, Class::DEFAULT, offset, block).await });
            let (read, buffer) = read.await.unwrap();
            assert!(read.unwrap() == BLOCK && has_pattern(&buffer, round, offset));
        }
        log.borrow_mut().push((shard.now_ns(), number, round));
    }
}

fn four_shards(seed: u64, rounds: u64) -> (u64, u64, usize) {
    let world = world(seed);
    let setup = DiskSetup { num_io_queues: Some(2), ..disk(20_000, 1 << 30, LatencyGoal::NoSplit) };
    // A machine with several NUMA nodes wants a queue for each.
    let setup =
        if Topology::new(4, Classes::new(), vec![setup.clone()]).is_ok() { setup } else { DiskSetup::unlimited() };
    let (runtime, topology) = start(&world, 4, setup);
    let file = topology.file("shared".as_ref(), CREATE, 0);
    let log = Log::default();
    let tasks: Vec<_> = (0..4)
        .map(|n| {
            let shard = runtime.shard(n).clone();
            runtime.shard(n).spawn(worker(shard, runtime.handle(n + 1), Arc::clone(&file), Rc::clone(&log), rounds))
        })
        .collect();
    runtime.block_on(0, all(tasks)).unwrap();
    let mut hasher = DefaultHasher::new();
    log.borrow().hash(&mut hasher);
    (hasher.finish(), world.now_ns(), log.borrow().len())
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let first = four_shards(7, 200);
    assert_eq!(first, four_shards(7, 200));
    assert_eq!(first.2, 800);
    assert_ne!(first.0, four_shards(8, 200).0);
}

#[test]
fn ten_seconds_pass_on_four_shards() {
    let world = world(3);
    let (runtime, topology) = start(&world, 4, DiskSetup::unlimited());
    let file = topology.file("data".as_ref(), CREATE, 0);
    for n in 0..4 {
        let (shard, file) = (runtime.shard(n).clone(), Arc::clone(&file));
        let task = async move {
            for at in 0.. {
                let offset = (u64::from(n) << 30) + at % 64 * BLOCK as u64;
                shard.write_at(&file, Class::DEFAULT, offset, filled(BLOCK, at, offset)).await.0.unwrap();
                shard.sleep(Duration::from_millis(10)).await;
            }
        };
        runtime.shard(n).spawn(task).detach();
    }
    runtime.run_for(Duration::from_secs(10)).unwrap();
    let written: u64 =
        (0..4).map(|n| runtime.shard(n).reactor().class_stats(0, Class::DEFAULT).unwrap().dispatched).sum();
    assert!((3900..4000).contains(&written), "{written} writes: each takes a little over 10 ms with its pause");
}

/// Two classes with 1000 and 200 shares keep a scheduled disk busy: what they get is 5 to 1.
#[test]
fn shares_hold_in_virtual_time() {
    let classes = Classes::new();
    let strong = classes.add_class("strong", None, 1000).unwrap();
    let weak = classes.add_class("weak", None, 200).unwrap();
    // Well below what the simulated disk can do, so that the model is what holds back.
    let topology = Topology::new(1, classes, vec![disk(10_000, 1 << 30, LatencyGoal::NoSplit)]).unwrap();
    let world = world(5);
    let runtime = SimRuntime::new(&world, &topology).unwrap();
    let file = topology.file("data".as_ref(), CREATE, 0);
    runtime.shard(0).reactor().set_file_len(&file, 1 << 20).unwrap();
    for (class, n) in [strong, weak].into_iter().flat_map(|class| (0..32_u64).map(move |n| (class, n))) {
        let (shard, file) = (runtime.shard(0).clone(), Arc::clone(&file));
        let task = async move {
            let mut buffer = AlignedBuf::new(BLOCK).unwrap();
            loop {
                let (read, back) = shard.read_at(&file, class, n * BLOCK as u64, buffer).await;
                assert_eq!(read.unwrap(), BLOCK);
                buffer = back;
            }
        };
        runtime.shard(0).spawn(task).detach();
    }
    runtime.run_for(Duration::from_secs(5)).unwrap();
    let done = |class| runtime.shard(0).reactor().class_stats(0, class).unwrap().dispatched as f64;
    let (strong, weak) = (done(strong), done(weak));
    println!("{strong} and {weak} requests in 5 s");
    assert!((4.8..5.2).contains(&(strong / weak)), "{strong} : {weak}");
    assert!((45_000.0..52_000.0).contains(&(strong + weak)), "{strong} + {weak} at 10 000 a second");
}

#[test]
fn who_waits_for_ever_is_named() {
    let world = world(1);
    let (runtime, _) = start(&world, 2, DiskSetup::unlimited());
    let stuck = async {
        runtime.shard(0).sleep(Duration::from_millis(1500)).await;
        std::future::pending::<()>().await;
    };
    let error = runtime.block_on(0, stuck).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, SimError::Deadlock { at_ns: 1_500_000_000, .. }), "{error:?}");
    assert!(text.starts_with("deadlock at 1.5 s: shard 0 waits") && text.contains("shard 1 waits"), "{text}");
    let busy = std::future::poll_fn(|context| {
        context.waker().wake_by_ref();
        std::task::Poll::<()>::Pending
    });
    assert!(matches!(runtime.block_on(1, busy), Err(SimError::Livelock { at_ns: 1_500_000_000, shard: 1 })));
    let day = Duration::from_secs(100_000);
    assert!(matches!(runtime.block_on(0, runtime.shard(0).sleep(day)), Err(SimError::TimeLimit { .. })));
    // The runtime goes on.
    assert_eq!(runtime.block_on(0, async { 7 }).unwrap(), 7);
}

#[test]
fn a_shard_alone_needs_no_runtime() {
    let world = world(1);
    let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
    let shard = Shard::new(Reactor::new(0, &topology, Box::new(world.backend(8))).unwrap());
    let file = topology.file("data".as_ref(), CREATE, 0);
    let work = async {
        let writes = (0..100).map(|n| shard.write_at(&file, Class::DEFAULT, n * 4096, filled(BLOCK, 1, n * 4096)));
        assert!(all(writes).await.iter().all(|(written, _)| written.is_ok()));
        shard.sleep(Duration::from_secs(3600)).await;
    };
    shard.block_on(work).unwrap();
    assert!((3_600_000 * MS..3_601_000 * MS).contains(&world.now_ns()));
    let error = shard.block_on(std::future::pending::<()>()).unwrap_err();
    assert!(error.to_string().contains("deadlock"), "{error}");
}

/// A runtime on real threads, as a tool with `--backend sim` makes it: one world for all shards.
#[test]
fn a_runtime_on_threads_shares_one_world() {
    common::within_reason(|| {
        let topology = Topology::new(3, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
        let options = ShardOptions { backend: Some(BackendKind::Sim), pin: false, entries: 16 };
        let runtime = Runtime::start(&topology, &options).unwrap();
        assert_eq!(runtime.backend().kind, BackendKind::Sim);
        let file = topology.file("data".as_ref(), CREATE, 0);
        block_on(async {
            let (written, _) = runtime.handle(0).write_at(&file, Class::DEFAULT, 0, filled(BLOCK, 1, 0)).await;
            assert_eq!(written.unwrap(), BLOCK);
            let asleep = (0..3).map(|n| {
                let handle = runtime.handle(n);
                async move { handle.run(|shard| async move { shard.sleep(Duration::from_secs(3600)).await }).await }
            });
            assert!(all(asleep).await.iter().all(Result::is_ok));
            for n in 0..3 {
                let block = AlignedBuf::new(BLOCK).unwrap();
                let (read, buffer) = runtime.handle(n).read_at(&file, Class::DEFAULT, 0, block).await;
                assert!(read.unwrap() == BLOCK && has_pattern(&buffer, 1, 0));
            }
        });
        runtime.stop().unwrap();
    });
}

/// A group's reservation, given by the registry, is for whichever of its classes ask on whichever shards.
#[test]
fn a_reservation_of_a_group_is_kept_while_its_classes_come_and_go() {
    for num_io_queues in [None, Some(1)] {
        let world = world(5);
        let setup = DiskSetup { num_io_queues, ..disk(10_000, 1 << 30, LatencyGoal::NoSplit) };
        if Topology::new(2, Classes::new(), vec![setup.clone()]).is_err() {
            // A machine with several NUMA nodes wants a queue for each.
            continue;
        }
        let (runtime, topology) = start(&world, 2, setup);
        let classes = topology.classes().clone();
        let group = classes.add_group("group", None, 1).unwrap();
        let [first, second] = ["first", "second"].map(|name| classes.add_class(name, Some(group), 100).unwrap());
        let hog = classes.add_class("hog", None, 1000).unwrap();
        let reservation = Reservation { iops: 4_000, bandwidth: 0 };
        classes.set_qos(group, Qos { reservation, ..Qos::default() }).unwrap();

        let file = topology.file("data".as_ref(), CREATE, 0);
        let load = |class, shard| {
            for _ in 0..16 {
                let (own, file) = (runtime.shard(shard).clone(), Arc::clone(&file));
                let writes = async move { while own.write_at(&file, class, 0, filled(BLOCK, 1, 0)).await.0.is_ok() {} };
                runtime.shard(shard).spawn(writes).detach();
            }
        };
        let dispatched = |class| {
            let of_shard = |shard| runtime.shard(shard).reactor().class_stats(0, class).map_or(0, |s| s.dispatched);
            of_shard(0) + of_shard(1)
        };
        let check = |asking: &[Class]| {
            runtime.run_for(Duration::from_millis(200)).unwrap();
            let before: u64 = asking.iter().copied().map(dispatched).sum();
            runtime.run_for(Duration::from_secs(1)).unwrap();
            let of_group = asking.iter().copied().map(dispatched).sum::<u64>() - before;
            assert!((3_960..4_100).contains(&of_group), "{num_io_queues:?}: {of_group} of 4000 for {asking:?}");
        };

        [0, 1].into_iter().for_each(|shard| load(hog, shard));
        load(first, 0);
        check(&[first]);
        load(second, 1);
        check(&[first, second]);
        classes.remove(first).unwrap();
        check(&[second]);
    }
}
