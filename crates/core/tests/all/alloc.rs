//! Nothing is allocated per request, and classes are small, idle or busy.

use crate::common::{KIB, usual};
use allocation_counter::measure;
use plimsoll_core::{
    ClassId, ClassStats, Direction, Disk, DiskConfig, GroupId, IoQueue, Limits, Mode, Op, Outcome, Progress, Qos,
    QueueConfig, Rate, Reservation,
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

/// How many histograms the classes have, and their memory.
fn histograms(queue: &IoQueue, classes: &[ClassId]) -> (u64, i64) {
    let both =
        |class: &ClassId| [Direction::Read, Direction::Write].map(|of| queue.class_latencies(*class, of).unwrap());
    let all = classes.iter().flat_map(both).flatten();
    let bytes = all.flat_map(|of| [&of.queue, &of.device, &of.total]).map(|histogram| histogram.memory_bytes() as i64);
    (bytes.clone().count() as u64, bytes.sum())
}

/// But for latencies of a magnitude that was never seen, and counts that get longer.
#[test]
fn a_million_requests_allocate_nothing() {
    for (mode, duplex) in [(Mode::Scheduled, false), (Mode::Scheduled, true), (Mode::Depth(30), false)] {
        let disk = Arc::new(Disk::new(DiskConfig { duplex, ..usual() }));
        let mut queue = IoQueue::new(disk, QueueConfig { mode, ..QueueConfig::default() });
        let classes: Vec<ClassId> =
            (0..CLASSES).map(|class| queue.disk().add_class(GroupId::ROOT, 1 + class as u32).unwrap()).collect();
        let mut now_ns = 0;
        cycles(&mut queue, &classes, &mut now_ns, 1000);
        let (_, before_bytes) = histograms(&queue, &classes);
        let allocated = measure(|| cycles(&mut queue, &classes, &mut now_ns, 1_000_000));
        let (histograms, after_bytes) = histograms(&queue, &classes);
        assert_eq!(allocated.bytes_current, after_bytes - before_bytes, "{mode:?}");
        assert!(allocated.count_total <= 4 * histograms, "{} for {histograms} histograms", allocated.count_total);
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
        for qos in [Qos::default(), limited_and_reserved()] {
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
            println!("duplex {duplex}: {bytes_per_class} bytes");
            assert!((least..1024).contains(&bytes_per_class), "{bytes_per_class} bytes, duplex {duplex}, {qos:?}");
        }
    }
}

/// What 1000 classes take in all when each has done a thousand requests, one after the other and many at once, on a disk that
/// takes from 50 us to 50 ms.
#[test]
fn a_busy_class_takes_less_than_5_kb() {
    const CLASSES: usize = 1000;
    let disk = Arc::new(Disk::new(usual()));
    let mut queue = IoQueue::new(disk, QueueConfig::default());
    let mut classes = Vec::new();
    let allocated = measure(|| {
        classes = (0..CLASSES).map(|_| queue.disk().add_class(GroupId::ROOT, 100).unwrap()).collect();
        let (mut now_ns, mut random) = (0, 1_u64);
        for _ in 0..CLASSES * 250 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let class = classes[(random >> 33) as usize % CLASSES];
            for _ in 0..4 {
                queue.enqueue(now_ns, class, Op::Read, 4 * KIB, 0).unwrap();
            }
            // Short latencies are usual, long ones rare.
            let device_ns = 50_000 << ((random >> 20) % 1024).max(1).leading_zeros().saturating_sub(54);
            while queue.queued() > 0 {
                match queue.poll_dispatch(now_ns) {
                    Some(piece) => drop(queue.complete(now_ns + device_ns, piece, Outcome::Moved(4 * KIB))),
                    None => now_ns = queue.next_wakeup().unwrap(),
                }
            }
            now_ns += device_ns;
        }
    });
    let bytes_per_class = allocated.bytes_current / CLASSES as i64;
    println!("{bytes_per_class} bytes, of which histograms {}", histograms(&queue, &classes).1 / CLASSES as i64);
    assert!(bytes_per_class < 5_000, "{bytes_per_class} bytes");
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
