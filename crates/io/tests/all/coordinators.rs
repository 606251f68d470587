//! Shards that share I/O queues: every request ends exactly once, data is right, shares hold on the whole disk, and a
//! coordinator that goes leaves nobody waiting.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use crate::common::{CREATE, all, disk, filled, has_pattern, memory, one, within_reason};
use plimsoll::backend::OpenOptions;
use plimsoll::backend::choose::BackendKind;
use plimsoll::buffer::AlignedBuf;
use plimsoll::core::LatencyGoal;
use plimsoll::{
    Class, Classes, DiskSetup, Qos, Reactor, ReactorError, RefusedReason, Request, RequestError, RequestKind, Shard,
    ShardOptions, SharedFile, Topology, run_shards,
};

const SHARDS: u16 = 4;
const BLOCK: usize = 4096;

fn options() -> ShardOptions {
    ShardOptions { backend: Some(BackendKind::Memory), pin: false, ..ShardOptions::default() }
}

fn topology(queues: u16, classes: Classes, disk: DiskSetup) -> Topology {
    Topology::new(SHARDS, classes, vec![DiskSetup { num_io_queues: Some(queues), ..disk }]).unwrap()
}

/// `file`, made by whoever comes first.
fn file(topology: &Topology) -> Arc<SharedFile> {
    topology.file("file".as_ref(), CREATE, 0)
}

/// Keeps a shard turning until all of them are through: others may need its queue.
async fn wait_for_all(shard: &Shard, finished: &AtomicUsize) {
    finished.fetch_add(1, Ordering::SeqCst);
    while finished.load(Ordering::SeqCst) < usize::from(SHARDS) {
        shard.sleep(Duration::from_millis(1)).await;
    }
}

async fn write_and_read_back(shard: Shard, file: Arc<SharedFile>, class: Class, blocks: u64) {
    let number = u64::from(shard.number());
    let mine = |n: u64| (number * blocks + n) * BLOCK as u64;
    let writes = (0..blocks).map(|n| shard.write_at(&file, class, mine(n), filled(BLOCK, number, mine(n))));
    for (written, _) in all(writes).await {
        assert_eq!(written.unwrap(), BLOCK);
    }
    let reads = (0..blocks).map(|n| shard.read_at(&file, class, mine(n), AlignedBuf::new(BLOCK).unwrap()));
    for (n, (read, buffer)) in (0..).zip(all(reads).await) {
        assert!(read.unwrap() == BLOCK && has_pattern(&buffer, number, mine(n)), "shard {number}, block {n}");
    }
}

#[test]
fn requests_of_all_shards_end_once_with_the_right_data() {
    for queues in [1, 2, 4] {
        within_reason(move || {
            let topology = topology(queues, Classes::new(), DiskSetup::unlimited());
            let file = file(&topology);
            let finished = Arc::new(AtomicUsize::new(0));
            let body = move |reactor: Reactor, _: &_| {
                let (file, finished, shard) = (Arc::clone(&file), Arc::clone(&finished), Shard::new(reactor));
                shard
                    .block_on(async {
                        write_and_read_back(shard.clone(), Arc::clone(&file), Class::DEFAULT, 500).await;
                        wait_for_all(&shard, &finished).await;
                    })
                    .unwrap();
                let reactor = shard.reactor();
                let stats = reactor.class_stats(0, Class::DEFAULT);
                assert_eq!(reactor.under_way(), 0);
                stats.map(|stats| (stats.read.requests, stats.write.requests))
            };
            let ends = run_shards(&topology, &options(), body).unwrap();
            let each = u64::from(SHARDS / queues) * 500;
            assert_eq!(ends.iter().flatten().copied().collect::<Vec<_>>(), vec![(each, each); usize::from(queues)]);
        });
    }
}

/// All shards queue the same; when a thousand requests have gone, whose were they?
#[test]
fn shares_hold_between_classes_and_shards_are_served_alike() {
    let counts = within_reason(|| {
        let classes = Classes::new();
        let small = classes.add_class("small", None, 100).unwrap();
        let large = classes.add_class("large", None, 300).unwrap();
        let topology = topology(1, classes, disk(20_000, 1 << 40, LatencyGoal::NoSplit));
        let file = file(&topology);
        let queued = Arc::new(Barrier::new(usize::from(SHARDS)));
        let finished = Arc::new(AtomicUsize::new(0));
        let body = move |mut reactor: Reactor, _: &_| {
            for n in 0..600 {
                let class = if n % 2 == 0 { small } else { large };
                let (file, data) = (Arc::clone(&file), one(BLOCK));
                let kind = RequestKind::Write { len_bytes: BLOCK as u32 };
                reactor.submit(Request { file, class, kind, offset: 0, data, tag: n }).unwrap();
            }
            queued.wait();
            let mut done = Vec::new();
            let mut snapshot = None;
            while done.len() < 600 {
                reactor.park(None).unwrap();
                reactor.reap(&mut done);
                let stats = [small, large].map(|class| reactor.class_stats(0, class).unwrap_or_default());
                if snapshot.is_none() && stats.iter().map(|s| s.dispatched).sum::<u64>() >= 1000 {
                    let count = |class| {
                        let mut of_shards = Vec::new();
                        reactor.class_latencies(0, class, &mut |l| of_shards.push(l.queue.count()));
                        of_shards
                    };
                    snapshot = Some((count(small), count(large)));
                }
            }
            let mut tags: Vec<u64> = done.iter().map(|end| end.tag).collect();
            tags.sort_unstable();
            assert_eq!(tags, (0..600).collect::<Vec<_>>());
            assert!(done.iter().all(|end| end.result == Ok(BLOCK as u32)));
            finished.fetch_add(1, Ordering::SeqCst);
            while finished.load(Ordering::SeqCst) < usize::from(SHARDS) {
                let in_a_ms = reactor.now_ns() + 1_000_000;
                reactor.park(Some(in_a_ms)).unwrap();
                reactor.reap(&mut done);
            }
            snapshot
        };
        run_shards(&topology, &options(), body).unwrap().into_iter().flatten().next().unwrap()
    });
    let (small, large) = counts;
    let sum = |of_shards: &[u64]| of_shards.iter().sum::<u64>() as f64;
    let ratio = sum(&large) / sum(&small);
    assert!((2.5..3.5).contains(&ratio), "{small:?} against {large:?}");
    for of_shards in [&small, &large] {
        let equal = sum(of_shards) / f64::from(SHARDS);
        assert!(of_shards.iter().all(|n| (*n as f64 - equal).abs() <= equal * 0.15 + 2.0), "{small:?}, {large:?}");
    }
}

/// Two reactors of one topology, turned by hand: 0 coordinates for 1.
fn pair() -> (Topology, Reactor, Reactor) {
    let setup = DiskSetup { num_io_queues: Some(1), ..DiskSetup::unlimited() };
    let topology = Topology::new(2, Classes::new(), vec![setup]).unwrap();
    let memory = || {
        let backend = plimsoll::backend::memory::MemoryBackend::new(topology.memory());
        Box::new(backend.unwrap()) as Box<dyn plimsoll::backend::Backend>
    };
    let (zero, one) = (Reactor::new(0, &topology, memory()).unwrap(), Reactor::new(1, &topology, memory()).unwrap());
    (topology, zero, one)
}

fn write_request(file: &Arc<SharedFile>, class: Class) -> Request {
    let kind = RequestKind::Write { len_bytes: BLOCK as u32 };
    Request { file: Arc::clone(file), class, kind, offset: 0, data: one(BLOCK), tag: 9 }
}

fn turn(reactor: &mut Reactor) -> Vec<plimsoll::Done> {
    let mut done = Vec::new();
    reactor.dispatch();
    reactor.flush().unwrap();
    reactor.reap(&mut done);
    done
}

#[test]
fn a_request_that_travelled_is_not_cancelled() {
    let (topology, mut zero, mut one) = pair();
    let ticket = one.submit(write_request(&file(&topology), Class::DEFAULT)).unwrap();
    assert!(!one.cancel(ticket));
    assert!(turn(&mut zero).is_empty(), "it arrives");
    assert!(turn(&mut zero).is_empty(), "it is done, and not this shard's");
    let done = turn(&mut one);
    assert_eq!((done.len(), done[0].tag, done[0].result), (1, 9, Ok(BLOCK as u32)));
    assert!(!one.cancel(ticket), "long over");
    assert_eq!((zero.under_way(), one.under_way()), (0, 0));
}

#[test]
fn unknown_classes_and_missing_files_come_back_as_errors() {
    let (topology, mut zero, mut one) = pair();
    let group = topology.classes().add_group("group", None, 1).unwrap();
    let missing = topology.file("missing".as_ref(), OpenOptions::default(), 0);
    let unknown = RequestError::Refused(RefusedReason::UnknownClass);
    let not_found = RequestError::failed(libc::ENOENT);
    for (file, class, error) in [(file(&topology), group, unknown), (missing, Class::DEFAULT, not_found)] {
        one.submit(write_request(&file, class)).unwrap();
        turn(&mut zero);
        turn(&mut zero);
        let done = turn(&mut one);
        assert_eq!((done.len(), done[0].result), (1, Err(error)));
        assert!(matches!(&done[0].data, plimsoll::Data::One(buffer) if buffer.len() == BLOCK));
    }
}

/// What a queue refuses, the shard that asked hears of with the reason, as it would have from its own queue.
#[test]
fn a_refusal_of_another_shards_queue_says_why() {
    let setup = DiskSetup { num_io_queues: Some(1), max_requests: 40, ..disk(1, 1 << 30, LatencyGoal::NoSplit) };
    let classes = Classes::new();
    let patient = classes.add_class("patient", None, 100).unwrap();
    let hasty = classes.add_class("hasty", None, 100).unwrap();
    classes.set_qos(hasty, Qos { max_delay_ns: Some(1_000_000), ..Qos::default() }).unwrap();
    let topology = Topology::new(2, classes, vec![setup]).unwrap();
    let mut zero = Reactor::new(0, &topology, memory()).unwrap();
    let mut one = Reactor::new(1, &topology, memory()).unwrap();
    let file = file(&topology);
    for reactor in [&mut one, &mut zero] {
        for _ in 0..10 {
            // What the shard's own queue refuses comes back at once; not of interest here.
            let _ = reactor.submit(write_request(&file, hasty));
        }
    }
    turn(&mut zero);
    let refused: Vec<_> = turn(&mut one).into_iter().filter_map(|done| done.result.err()).collect();
    let is_overloaded = |error: &RequestError| matches!(error, RequestError::Refused(RefusedReason::Overloaded { expected_ns }) if *expected_ns > 1_000_000);
    assert!(!refused.is_empty() && refused.iter().all(is_overloaded), "{refused:?}");
    assert_eq!(refused[0].errno(), libc::EAGAIN);
    for _ in 0..60 {
        one.submit(write_request(&file, patient)).unwrap();
    }
    turn(&mut zero);
    let refused: Vec<_> = turn(&mut one).into_iter().filter_map(|done| done.result.err()).collect();
    assert!(
        refused.len() >= 20 && refused.iter().all(|e| *e == RequestError::Refused(RefusedReason::Full)),
        "{refused:?}"
    );
}

/// The class is made and used before either shard has looked at the registry again.
#[test]
fn a_class_can_be_used_as_soon_as_it_is_made() {
    let (topology, mut zero, mut one) = pair();
    let file = file(&topology);
    let class = topology.classes().add_class("new", None, 100).unwrap();
    zero.submit(write_request(&file, class)).unwrap();
    let class = topology.classes().add_class("newer", None, 100).unwrap();
    one.submit(write_request(&file, class)).unwrap();
    turn(&mut zero);
    turn(&mut zero);
    assert_eq!(turn(&mut one)[0].result, Ok(BLOCK as u32));
}

#[test]
fn a_coordinator_that_goes_answers_what_it_had_and_what_comes_later() {
    let (topology, mut zero, mut one) = pair();
    let file = file(&topology);
    one.submit(write_request(&file, Class::DEFAULT)).unwrap();
    turn(&mut zero);
    one.submit(write_request(&file, Class::DEFAULT)).unwrap();
    drop(zero);
    one.submit(write_request(&file, Class::DEFAULT)).unwrap();
    let done = turn(&mut one);
    assert_eq!(done.len(), 3);
    assert!(done.iter().skip(1).all(|end| end.result == Err(RequestError::failed(libc::EPIPE))), "{done:?}");
    // What a handle says of a shard that has stopped: so its caller learns the same whichever shard stops first.
    assert_eq!(std::io::Error::from(RequestError::failed(libc::EPIPE)).kind(), std::io::ErrorKind::BrokenPipe);
    assert!(done.iter().all(|end| matches!(&end.data, plimsoll::Data::One(buffer) if buffer.len() == BLOCK)));
    assert_eq!(one.under_way(), 0);
}

/// A topology outlives its reactors: the next ones are woken as the first were.
#[test]
fn shards_can_be_started_again() {
    for _ in 0..3 {
        within_reason(|| {
            let topology = topology(1, Classes::new(), DiskSetup::unlimited());
            let file = file(&topology);
            for _ in 0..3 {
                let (file, finished) = (Arc::clone(&file), Arc::new(AtomicUsize::new(0)));
                let body = move |reactor: Reactor, _: &_| {
                    let (file, finished, shard) = (Arc::clone(&file), Arc::clone(&finished), Shard::new(reactor));
                    shard
                        .block_on(async {
                            write_and_read_back(shard.clone(), file, Class::DEFAULT, 20).await;
                            wait_for_all(&shard, &finished).await;
                        })
                        .unwrap();
                };
                run_shards(&topology, &options(), body).unwrap();
            }
        });
    }
}

#[test]
fn strange_numbers_do_no_harm() {
    let (topology, _, _) = pair();
    assert_eq!(topology.coordinator(7, 1), 1, "a disk that is not there has a queue on every shard");
    let no_shard = Reactor::new(5, &topology, memory()).map(|_| ()).unwrap_err();
    assert_eq!(no_shard, ReactorError::NoSuchShard { shard: 5, shards: 2 });
}
