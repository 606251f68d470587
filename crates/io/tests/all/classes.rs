//! Classes that change, come and go while requests are queued, through a runtime.

use crate::common;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex, mpsc};

use crate::common::{CREATE, all, block_on, disk, filled, one, within_reason};
use plimsoll::backend::choose::BackendKind;
use plimsoll::core::{LatencyGoal, Limits, Op, Qos, Rate};
use plimsoll::{
    Class, Classes, Data, DiskSetup, Done, Gate, Reactor, Request, RequestError, RequestKind, Runtime, ShardOptions,
    Topology,
};

fn slow(num_io_queues: u16) -> DiskSetup {
    DiskSetup { num_io_queues: Some(num_io_queues), ..disk(20, 1 << 30, LatencyGoal::NoSplit) }
}

/// 200 requests of a class wait at 20 a second; the class goes; those that had not gone out end as cancelled.
#[test]
fn removing_a_class_cancels_what_it_has_queued_on_every_shard() {
    for queues in [1, 2] {
        within_reason(move || {
            let classes = Classes::new();
            let group = classes.add_group("group", None, 100).unwrap();
            let doomed = classes.add_class("doomed", Some(group), 100).unwrap();
            let topology = Topology::new(2, classes.clone(), vec![slow(queues)]).unwrap();
            let options = ShardOptions { backend: Some(BackendKind::Memory), pin: false, ..ShardOptions::default() };
            let runtime = Runtime::start(&topology, &options).unwrap();
            let file = topology.file("file".as_ref(), CREATE, 0);
            let (first, has_first) = mpsc::channel();
            let threads: Vec<_> = (0..2)
                .map(|shard| {
                    let (handle, file, first) = (runtime.handle(shard), Arc::clone(&file), first.clone());
                    std::thread::spawn(move || {
                        let write = |n: u64| {
                            let (handle, file, first) = (&handle, &file, &first);
                            async move {
                                let end = handle.write_at(file, doomed, n * 512, filled(512, 1, 0)).await;
                                let _ = first.send(());
                                end
                            }
                        };
                        block_on(all((0..100).map(write)))
                    })
                })
                .collect();
            has_first.recv().unwrap();
            classes.remove(doomed).unwrap();
            classes.remove(group).unwrap();
            // A shard that sleeps follows when it next wakes: here it does by itself, 20 times a second.
            let mut cancelled = 0;
            for (end, buffer) in threads.into_iter().flat_map(|thread| thread.join().unwrap()) {
                assert_eq!(buffer.len(), 512);
                match end.map_err(|error| (error.raw_os_error(), error.kind())) {
                    Ok(512) => {}
                    // Requests that reach the shard after the removal are of no known class.
                    Err((Some(libc::ECANCELED), _) | (None, ErrorKind::InvalidInput)) => cancelled += 1,
                    other => panic!("{other:?}"),
                }
            }
            assert!(cancelled > 100, "{cancelled} of 200: at 20 a second most were still queued");
            let other = classes.add_class("other", None, 100).unwrap();
            let handle = runtime.handle(1);
            let after = block_on(handle.write_at(&file, other, 0, filled(512, 1, 0)));
            assert_eq!(after.0.unwrap(), 512, "the shard goes on, with a new class");
            runtime.stop().unwrap();
        });
    }
}

struct World {
    reactor: Reactor,
    topology: Topology,
    file: Arc<plimsoll::SharedFile>,
    done: Vec<Done>,
}

impl World {
    fn new(disk: DiskSetup) -> World {
        World::on(disk, common::memory())
    }

    fn on(disk: DiskSetup, backend: Box<dyn plimsoll::backend::Backend>) -> World {
        let topology = Topology::new(1, Classes::new(), vec![disk]).unwrap();
        let reactor = Reactor::new(0, &topology, backend).unwrap();
        let file = topology.file("file".as_ref(), CREATE, 0);
        World { reactor, topology, file, done: Vec::new() }
    }

    fn submit(&mut self, class: Class, tag: u64) {
        self.write(class, tag, 512);
    }

    fn write(&mut self, class: Class, tag: u64, len_bytes: u32) {
        let kind = RequestKind::Write { len_bytes };
        let (file, data) = (Arc::clone(&self.file), one(len_bytes as usize));
        self.reactor.submit(Request { file, class, kind, offset: 0, data, tag }).unwrap();
    }

    fn until(&mut self, count: usize) {
        while self.done.len() < count {
            self.reactor.park(None).unwrap();
            self.reactor.reap(&mut self.done);
        }
    }

    fn dispatched(&self, class: Class) -> f64 {
        self.reactor.class_stats(0, class).unwrap().dispatched as f64
    }
}

#[test]
fn shares_can_be_changed_while_requests_wait() {
    let mut world = World::new(disk(20_000, 1 << 30, LatencyGoal::NoSplit));
    let classes = world.topology.classes().clone();
    let (a, b) = (classes.add_class("a", None, 100).unwrap(), classes.add_class("b", None, 100).unwrap());
    for n in 0..1000 {
        world.submit(a, n);
        world.submit(b, n);
    }
    world.until(500);
    let before = (world.dispatched(a), world.dispatched(b));
    assert!((0.8..1.25).contains(&(before.0 / before.1)), "{before:?}");
    classes.set_shares(b, 400).unwrap();
    world.until(1000);
    let after = (world.dispatched(a) - before.0, world.dispatched(b) - before.1);
    assert!((3.0..5.0).contains(&(after.1 / after.0)), "{after:?}");
    world.until(2000);
}

#[test]
fn cancelled_requests_keep_tags_and_memory() {
    let mut world = World::new(disk(1, 1 << 30, LatencyGoal::NoSplit));
    let classes = world.topology.classes().clone();
    let doomed = classes.add_class("doomed", None, 100).unwrap();
    for tag in 0..10 {
        world.submit(doomed, tag);
    }
    world.reactor.dispatch();
    classes.remove(doomed).unwrap();
    world.reactor.reap(&mut world.done);
    world.until(10);
    let mut ends: Vec<_> = world.done.iter().map(|end| (end.tag, end.result.map_err(|e| e.errno()))).collect();
    ends.sort_unstable();
    let expect: Vec<_> = (0..10).map(|tag| (tag, if tag == 0 { Ok(512) } else { Err(libc::ECANCELED) })).collect();
    assert_eq!(ends, expect, "one had gone to the device");
    assert!(world.done.iter().all(|end| matches!(&end.data, Data::One(buffer) if buffer.len() == 512)));
    assert_eq!(world.reactor.under_way(), 0);
    assert!(world.reactor.class_stats(0, doomed).is_none());
}

/// Classes come and go for ever; their places are used again.
#[test]
fn a_thousand_generations_of_classes() {
    let mut world = World::new(DiskSetup::unlimited());
    let classes = world.topology.classes().clone();
    for n in 0..1000 {
        let group = classes.add_group("group", None, 100).unwrap();
        let class = classes.add_class("class", Some(group), 100).unwrap();
        world.submit(class, n);
        world.until(1);
        assert_eq!((world.done[0].tag, world.done[0].result), (n, Ok(512)));
        world.done.clear();
        classes.remove(class).unwrap();
        classes.remove(group).unwrap();
    }
}

/// A class that goes when a part of its request has been written: the rest is cancelled, and that is said, with how far it came.
#[test]
fn a_class_removed_in_the_middle_of_a_request_ends_it_with_an_error() {
    const LEN_BYTES: u32 = 8 << 20;
    for backend in [common::memory(), common::deferred()] {
        // A millisecond's worth at a time, which is 100 KiB.
        let mut world = World::on(disk(1_000_000, 100 << 20, LatencyGoal::Ns(1_000_000)), backend);
        let doomed = world.topology.classes().add_class("doomed", None, 100).unwrap();
        world.write(doomed, 1, LEN_BYTES);
        world.reactor.dispatch();
        world.topology.classes().remove(doomed).unwrap();
        world.until(1);
        let Err(RequestError::Failed(failure)) = world.done[0].result else { panic!("{:?}", world.done) };
        assert_eq!(failure.errno, libc::ECANCELED);
        assert!((1..LEN_BYTES / 2).contains(&failure.moved_bytes), "{failure:?}");
        assert_eq!((world.reactor.under_way(), world.reactor.in_backend()), (0, 0));
    }
}

/// Regression: another shard applied the removal of a class first; the queue ended the class's requests by itself, and its
/// shard slept until its caller's time before it noticed.
#[test]
fn a_removal_that_another_shard_applies_first_ends_requests_at_once() {
    within_reason(|| {
        let classes = Classes::new();
        let limited = classes.add_class("limited", None, 100).unwrap();
        let limits = Limits { iops: Rate::per_second(1), ..Limits::default() };
        classes.set_qos(limited, Qos { limits, ..Qos::default() }).unwrap();
        let topology = Topology::new(2, classes.clone(), vec![DiskSetup::unlimited()]).unwrap();
        let [mut other, mut mine] = [0, 1].map(|shard| Reactor::new(shard, &topology, common::memory()).unwrap());
        let file = topology.file("file".as_ref(), CREATE, 0);
        for tag in 0..2 {
            let kind = RequestKind::Write { len_bytes: 512 };
            let request = Request { file: Arc::clone(&file), class: limited, kind, offset: 0, data: one(512), tag };
            mine.submit(request).unwrap();
        }
        let mut done = Vec::new();
        mine.park(None).unwrap();
        mine.reap(&mut done);
        assert_eq!(done.len(), 1, "one a second");

        classes.remove(limited).unwrap();
        other.reap(&mut Vec::new());
        let until_ns = mine.now_ns() + 60_000_000_000;
        while done.len() < 2 {
            mine.park(Some(until_ns)).unwrap();
            mine.reap(&mut done);
        }
        assert!(mine.now_ns() < until_ns, "the shard slept until its caller's time");
        assert_eq!(done[1].result, Err(RequestError::failed(libc::ECANCELED)));
    });
}

/// Regression, as above, at gates: a thread slept for ever.
#[test]
fn threads_at_gates_learn_of_removals_that_another_gate_applies_first() {
    within_reason(|| {
        let classes = Classes::new();
        let topology = Topology::new(2, classes.clone(), vec![disk(20_000, 1 << 30, LatencyGoal::NoSplit)]).unwrap();
        let current = Arc::new(Mutex::new(Some(Class::DEFAULT)));
        let threads: Vec<_> = (0..2)
            .map(|shard| {
                let (gate, current) = (Gate::new(&topology, shard, 0).unwrap(), Arc::clone(&current));
                std::thread::spawn(move || {
                    let class = || *current.lock().unwrap();
                    while let Some(class) = class() {
                        // If the class is removed meanwhile, the gate says so.
                        drop(gate.enter(class, Op::Read, 4096));
                    }
                })
            })
            .collect();

        let limits = Limits { iops: Rate::per_second(2000), ..Limits::default() };
        let mut old: Option<Class> = None;
        for number in 0..4000 {
            let class = classes.add_class(&format!("c{number}"), None, 100).unwrap();
            classes.set_qos(class, Qos { limits, ..Qos::default() }).unwrap();
            *current.lock().unwrap() = Some(class);
            std::thread::sleep(std::time::Duration::from_micros(300));
            if let Some(old) = old.replace(class) {
                classes.remove(old).unwrap();
            }
        }
        *current.lock().unwrap() = None;
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}
