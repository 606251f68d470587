//! Nothing is allocated per request, and an idle class is small.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod common;

use allocation_counter::measure;
use common::{KIB, usual};
use plimsoll_core::{
    ClassId, ClassStats, Disk, DiskConfig, GroupId, IoQueue, Limits, Mode, Op, Outcome, Progress, Qos, QueueConfig,
    Rate, Reservation,
};
use std::sync::Arc;

const CLASSES: usize = 8;

/// Requests of eight classes, in batches of eight, some of them in many pieces.
fn cycles(queue: &mut IoQueue, classes: &[ClassId], now_ns: &mut u64, requests: usize) {
    let mut finished = 0;
    for number in 0..requests {
        let len_bytes = if number % 1000 == 0 { 4096 * KIB } else { 4 * KIB };
        let op = if number % 3 == 0 { Op::Write } else { Op::Read };
        queue.enqueue(*now_ns, classes[number % classes.len()], op, len_bytes, 0).unwrap();
        if number % CLASSES != CLASSES - 1 {
            continue;
        }
        while queue.queued() > 0 {
            match queue.poll_dispatch(*now_ns) {
                Some(piece) => {
                    let len_bytes = piece.len_bytes();
                    let progress = queue.complete(*now_ns, piece, Outcome::Moved(len_bytes));
                    finished += usize::from(matches!(progress, Progress::Finished(_)));
                }
                None => *now_ns = queue.next_wakeup().unwrap(),
            }
        }
    }
    assert_eq!(finished, requests);
}

#[test]
fn a_million_requests_allocate_nothing() {
    for (mode, duplex) in [(Mode::Scheduled, false), (Mode::Scheduled, true), (Mode::Depth(30), false)] {
        let disk = Arc::new(Disk::new(DiskConfig { duplex, ..usual() }));
        let mut queue = IoQueue::new(disk, QueueConfig { mode, ..QueueConfig::default() });
        let classes: Vec<ClassId> =
            (0..CLASSES).map(|class| queue.disk().add_class(GroupId::ROOT, 1 + class as u32).unwrap()).collect();
        let mut now_ns = 0;
        cycles(&mut queue, &classes, &mut now_ns, 1000);
        let allocated = measure(|| cycles(&mut queue, &classes, &mut now_ns, 1_000_000));
        assert_eq!((allocated.count_total, allocated.bytes_total), (0, 0), "{mode:?}");
    }
}

fn limited_and_reserved() -> Qos {
    let limits = Limits { iops: Rate::per_second(1_000), ..Limits::default() };
    Qos { limits, reservation: Reservation { iops: 100, bandwidth: 0 }, ..Qos::default() }
}

/// Bytes that each of 1000 further classes takes, in the disk's table and in a queue that knows it.
#[test]
fn an_idle_class_takes_less_than_1_kib() {
    for duplex in [false, true] {
        // Tags of limits and reservations come on top.
        for (qos, most) in [(Qos::default(), 1024), (limited_and_reserved(), 1536)] {
            let disk = Arc::new(Disk::new(DiskConfig { duplex, ..usual() }));
            let mut queue = IoQueue::new(disk, QueueConfig::default());
            let allocated = measure(|| {
                for shares in 0..1000 {
                    let class = queue.disk().add_class(GroupId::ROOT, shares).unwrap();
                    queue.disk().set_qos(class, qos).unwrap();
                }
                assert!(queue.follow_classes(|_| ()), "the queue knows them");
            });
            let bytes_per_class = allocated.bytes_current / 1000;
            let least = size_of::<ClassStats>() as i64;
            println!("duplex {duplex}: {bytes_per_class} of {most} bytes");
            assert!((least..most).contains(&bytes_per_class), "{bytes_per_class} bytes, duplex {duplex}, {qos:?}");
        }
    }
}

#[test]
fn classes_that_come_and_go_take_no_more_memory() {
    let disk = Arc::new(Disk::new(usual()));
    let mut queue = IoQueue::new(disk, QueueConfig::default());
    let come_and_go = |queue: &mut IoQueue| {
        let class = queue.disk().add_class(GroupId::ROOT, 10).unwrap();
        queue.enqueue(0, class, Op::Read, 4 * KIB, 0).unwrap();
        queue.disk().remove(class).unwrap();
        queue.follow_classes(|_| ());
    };
    come_and_go(&mut queue);
    let allocated = measure(|| (0..1000).for_each(|_| come_and_go(&mut queue)));
    assert_eq!(allocated.bytes_current, 0);
}
