//! A discard costs by its length: it goes out in parts, each scheduled, so that a long one does not pass for one small write.

use crate::common;
use std::sync::Arc;

use crate::common::nasty::{Faults, Nasty};
use crate::common::{CREATE, deferred, disk, filled, one};
use plimsoll::core::LatencyGoal;
use plimsoll::{
    Class, Classes, Data, DiskSetup, Done, Reactor, Request, RequestError, RequestKind, SharedFile, Topology,
};

const PART_BYTES: u64 = 64 << 20;

fn discard(file: &Arc<SharedFile>, class: Class, offset: u64, len_bytes: u64) -> Request {
    let kind = RequestKind::Discard { len_bytes };
    Request { file: Arc::clone(file), class, kind, offset, data: Data::None, tag: 1 }
}

fn run(reactor: &mut Reactor, count: usize) -> Vec<Done> {
    let mut done = Vec::new();
    while done.len() < count {
        reactor.park(None).unwrap();
        reactor.reap(&mut done);
    }
    done
}

fn reactor(setup: DiskSetup, faults: Faults) -> (Topology, Reactor, Arc<SharedFile>) {
    let topology = Topology::new(1, Classes::new(), vec![setup]).unwrap();
    let reactor = Reactor::new(0, &topology, Nasty::boxed(faults)).unwrap();
    let file = topology.file("file".as_ref(), CREATE, 0);
    (topology, reactor, file)
}

#[test]
fn the_parts_of_a_discard_are_scheduled_one_by_one() {
    for (offset, len_bytes, parts) in [
        (0, PART_BYTES, 1),
        (0, PART_BYTES + 1, 2),
        (PART_BYTES - 4096, 4096, 1),
        (PART_BYTES - 4096, 8192, 2),
        (4096, 10 * PART_BYTES, 11),
        (0, 1 << 40, 16_384),
        (0, 8 << 40, 65_536),
        (0, i64::MAX as u64, 65_536),
        (4096, 1 << 62, 65_537),
        (u64::MAX - 4096, PART_BYTES * 3, 1),
    ] {
        let (_, mut reactor, file) = reactor(DiskSetup::unlimited(), Faults::default());
        reactor.submit(discard(&file, Class::DEFAULT, offset, len_bytes)).unwrap();
        assert_eq!(run(&mut reactor, 1)[0].tag, 1);
        let stats = reactor.class_stats(0, Class::DEFAULT).unwrap();
        assert_eq!(stats.dispatched, parts, "{len_bytes} bytes at {offset}");
        assert_eq!(reactor.under_way(), 0);
    }
}

/// What each part costs is charged: 1 GiB at 1 ms a write takes 16 ms of the disk.
#[test]
fn a_long_discard_takes_device_time() {
    let (_, mut reactor, file) = reactor(disk(1_000, 1 << 30, LatencyGoal::NoSplit), Faults::default());
    reactor.submit(discard(&file, Class::DEFAULT, 0, 1 << 30)).unwrap();
    let done = run(&mut reactor, 1);
    assert_eq!(done[0].result, Ok(0));
    assert!(done[0].total_ns > 14_000_000, "{} ns from its beginning to its end", done[0].total_ns);
    let stats = reactor.class_stats(0, Class::DEFAULT).unwrap();
    assert_eq!((stats.dispatched, stats.consumed_fs / 1_000_000), (16, 16_000_000));
}

#[test]
fn the_whole_range_is_gone_and_nothing_else() {
    let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
    let mut reactor = Reactor::new(0, &topology, deferred()).unwrap();
    let file = topology.file("file".as_ref(), CREATE, 0);
    let places = [0, 4096, PART_BYTES - 4096, PART_BYTES, 3 * PART_BYTES, 3 * PART_BYTES + 4096];
    for at in places {
        let (kind, data) = (RequestKind::Write { len_bytes: 4096 }, Data::One(filled(4096, 1, at)));
        reactor
            .submit(Request { file: Arc::clone(&file), class: Class::DEFAULT, kind, offset: at, data, tag: 0 })
            .unwrap();
    }
    run(&mut reactor, places.len());
    reactor.submit(discard(&file, Class::DEFAULT, 4096, 3 * PART_BYTES)).unwrap();
    run(&mut reactor, 1);
    for at in places {
        let kind = RequestKind::Read { len_bytes: 4096 };
        reactor
            .submit(Request {
                file: Arc::clone(&file),
                class: Class::DEFAULT,
                kind,
                offset: at,
                data: one(4096),
                tag: 0,
            })
            .unwrap();
        let done = run(&mut reactor, 1);
        let Data::One(buffer) = &done[0].data else { panic!("{done:?}") };
        let is_there = common::has_pattern(buffer, 1, at);
        assert_eq!(is_there, !(4096..4096 + 3 * PART_BYTES).contains(&at), "at {at}");
    }
}

/// The device itself would refuse only the last part.
#[test]
fn a_discard_beyond_the_end_of_a_device_leaves_all_of_it() {
    let faults = Faults { device_bytes: Some(2 * PART_BYTES), ..Faults::default() };
    let (_, mut reactor, file) = reactor(DiskSetup::unlimited(), faults);
    let write = RequestKind::Write { len_bytes: 4096 };
    let data = Data::One(filled(4096, 1, 0));
    let block = Request { file: Arc::clone(&file), class: Class::DEFAULT, kind: write, offset: 0, data, tag: 0 };
    reactor.submit(block).unwrap();
    run(&mut reactor, 1);

    reactor.submit(discard(&file, Class::DEFAULT, 0, 2 * PART_BYTES + 4096)).unwrap();
    assert_eq!(run(&mut reactor, 1)[0].result, Err(RequestError::failed(libc::EINVAL)));
    let read = RequestKind::Read { len_bytes: 4096 };
    let data = one(4096);
    let block = Request { file: Arc::clone(&file), class: Class::DEFAULT, kind: read, offset: 0, data, tag: 0 };
    reactor.submit(block).unwrap();
    let done = run(&mut reactor, 1);
    let Data::One(buffer) = &done[0].data else { panic!("{done:?}") };
    assert!(common::has_pattern(buffer, 1, 0));

    reactor.submit(discard(&file, Class::DEFAULT, 0, 2 * PART_BYTES)).unwrap();
    assert_eq!(run(&mut reactor, 1)[0].result, Ok(0));
}

#[test]
fn a_discard_of_half_a_block_of_a_device_leaves_all_of_it() {
    let faults = Faults { device_bytes: Some(4 * PART_BYTES), align_bytes: 4096, ..Faults::default() };
    let (_, mut reactor, file) = reactor(DiskSetup::unlimited(), faults);
    for (offset, len_bytes) in [(0, 2 * PART_BYTES + 512), (512, PART_BYTES)] {
        reactor.submit(discard(&file, Class::DEFAULT, offset, len_bytes)).unwrap();
        assert_eq!(run(&mut reactor, 1)[0].result, Err(RequestError::failed(libc::EINVAL)), "{len_bytes} at {offset}");
    }
    assert_eq!(reactor.class_stats(0, Class::DEFAULT).unwrap().errors, 2, "at their first parts");
}

/// It stops at its first error, when it is cancelled, and when its class goes.
#[test]
fn a_discard_stops_in_the_middle() {
    let slow = || disk(100, 1 << 30, LatencyGoal::NoSplit);
    let (_, mut reactor_, file) = reactor(DiskSetup::unlimited(), Faults { error_percent: 30, ..Faults::default() });
    reactor_.submit(discard(&file, Class::DEFAULT, 0, 1 << 40)).unwrap();
    assert_eq!(run(&mut reactor_, 1)[0].result, Err(RequestError::failed(libc::EIO)));
    let (_, mut reactor_, file) = reactor(slow(), Faults::default());
    let ticket = reactor_.submit(discard(&file, Class::DEFAULT, 0, 1 << 40)).unwrap();
    for _ in 0..6 {
        reactor_.park(None).unwrap();
        reactor_.reap(&mut Vec::new());
    }
    assert!(reactor_.cancel(ticket));
    assert!(!reactor_.cancel(ticket), "nothing is left to cancel");
    assert_eq!(run(&mut reactor_, 1)[0].result, Err(RequestError::failed(libc::ECANCELED)));
    // With a part in the queue or in the device, and between two parts.
    for (setup, turns) in
        [slow(), DiskSetup::unlimited()].into_iter().flat_map(|disk| (0..8).map(move |n| (disk.clone(), n)))
    {
        let (topology, mut reactor_, file) = reactor(setup, Faults { late_turns_max: 2, ..Faults::default() });
        let class = topology.classes().add_class("doomed", None, 100).unwrap();
        reactor_.submit(discard(&file, class, 0, 1 << 40)).unwrap();
        for _ in 0..turns {
            reactor_.park(None).unwrap();
            reactor_.reap(&mut Vec::new());
        }
        topology.classes().remove(class).unwrap();
        assert_eq!(run(&mut reactor_, 1)[0].result, Err(RequestError::failed(libc::ECANCELED)), "after {turns} turns");
        assert_eq!((reactor_.under_way(), reactor_.in_backend()), (0, 0));
    }
}
