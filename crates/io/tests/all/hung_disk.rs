//! One backend carries the I/O of several disks: one that hangs, or is busy, does not stop the others.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common::holding::Holding;
use crate::common::nasty::{Faults, Nasty};
use crate::common::{CREATE, one, within_reason};
use plimsoll::{Class, Classes, DiskMode, DiskSetup, Done, Reactor, Request, RequestKind, SharedFile, Topology};

struct World {
    reactor: Reactor,
    files: Vec<Arc<SharedFile>>,
    done: Vec<Done>,
}

impl World {
    /// One shard, one disk a file.
    fn new(files: &[&str], faults: Faults) -> World {
        let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited(); files.len()]).unwrap();
        let reactor = Reactor::new(0, &topology, Nasty::boxed(faults)).unwrap();
        let files = (0..).zip(files).map(|(disk, path)| topology.file(path.as_ref(), CREATE, disk)).collect();
        World { reactor, files, done: Vec::new() }
    }

    fn submit(&mut self, disk: usize, count: u64) {
        for n in 0..count {
            let (file, kind) = (Arc::clone(&self.files[disk]), RequestKind::Write { len_bytes: 512 });
            let request =
                Request { file, class: Class::DEFAULT, kind, offset: n * 512, data: one(512), tag: disk as u64 };
            self.reactor.submit(request).unwrap();
        }
    }

    fn turn(&mut self) {
        self.reactor.dispatch();
        self.reactor.flush().unwrap();
        self.reactor.reap(&mut self.done);
    }

    fn ended(&self, disk: usize) -> usize {
        self.done.iter().filter(|done| done.tag == disk as u64).count()
    }
}

#[test]
fn a_disk_that_hangs_does_not_stop_the_others() {
    for files in [["hung", "a", "b"], ["a", "hung", "b"], ["a", "b", "hung"]] {
        for busy_percent in [0, 30] {
            within_reason(move || {
                let faults = Faults { hung_turns: 5_000, capacity: 64, busy_percent, ..Faults::default() };
                let mut world = World::new(&files, faults);
                let hung = files.iter().position(|name| *name == "hung").unwrap();
                world.submit(hung, 200);
                for _ in 0..10 {
                    world.turn();
                }
                let others: Vec<usize> = (0..3).filter(|disk| *disk != hung).collect();
                others.iter().for_each(|disk| world.submit(*disk, 100));
                for _ in 0..1_000 {
                    world.turn();
                }
                for disk in others {
                    assert_eq!(world.ended(disk), 100, "disk {disk} of {files:?}, {busy_percent} % busy");
                }
                assert_eq!(world.ended(hung), 0);
                while world.ended(hung) < 200 {
                    world.turn();
                }
                assert_eq!((world.reactor.under_way(), world.reactor.in_backend()), (0, 0));
            });
        }
    }
}

/// What a disk does not use the others may: all but what is kept for it.
#[test]
fn places_that_a_disk_does_not_use_are_used_by_the_others() {
    let faults = Faults { hung_turns: 100, capacity: 64, ..Faults::default() };
    let mut world = World::new(&["hung", "idle"], faults);
    world.submit(0, 200);
    world.turn();
    assert!((33..64).contains(&world.reactor.in_backend()), "{} of 64", world.reactor.in_backend());
    let mut alone = World::new(&["hung"], faults);
    alone.submit(0, 200);
    alone.turn();
    assert_eq!(alone.reactor.in_backend(), 64);
}

/// Two disks that always have more to do than the backend takes: neither is served first for ever.
#[test]
fn disks_take_turns() {
    let faults = Faults { capacity: 9, late_turns_max: 3, ..Faults::default() };
    let mut world = World::new(&["a", "b"], faults);
    world.submit(0, 2_000);
    world.submit(1, 2_000);
    while world.done.len() < 2_000 {
        world.turn();
    }
    let (a, b) = (world.ended(0), world.ended(1));
    assert!(a.abs_diff(b) < 200, "{a} and {b}");
}

/// More disks than places in the backend: all end.
#[test]
fn more_disks_than_places() {
    within_reason(|| {
        let names: Vec<String> = (0..10).map(|n| n.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        for capacity in [1, 4, 9, 10, 11] {
            let faults = Faults { capacity, late_turns_max: 3, busy_percent: 20, ..Faults::default() };
            let mut world = World::new(&names, faults);
            (0..10).for_each(|disk| world.submit(disk, 20));
            while world.done.len() < 200 {
                world.turn();
            }
        }
    });
}

/// Regression: a shard whose queues waited for their own completions slept without a bound, so it learnt of no change.
#[test]
fn a_change_of_mode_reaches_a_shard_whose_disk_hangs() {
    within_reason(|| {
        let setup = DiskSetup { mode: DiskMode::Depth { max_io_requests: 1 }, ..DiskSetup::unlimited() };
        let topology = Topology::new(1, Classes::new(), vec![setup]).unwrap();
        let (backend, switches) = Holding::boxed();
        switches.holds.store(true, Ordering::Relaxed);
        let reactor = Reactor::new(0, &topology, backend).unwrap();
        let files = vec![topology.file("file".as_ref(), CREATE, 0)];
        let mut world = World { reactor, files, done: Vec::new() };
        world.submit(0, 2);

        let setter = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            topology.set_mode(0, DiskMode::Drain);
        });
        let until_ns = world.reactor.now_ns() + 60_000_000_000;
        while world.reactor.in_backend() < 2 {
            world.reactor.park(Some(until_ns)).unwrap();
            world.reactor.reap(&mut world.done);
            world.reactor.dispatch();
        }
        assert!(world.reactor.now_ns() < until_ns, "the shard slept until its caller's time");
        setter.join().unwrap();
        switches.holds.store(false, Ordering::Relaxed);
    });
}
