//! Depth mode is Scylla's first scheduler (2016): its published table of four classes on one SSD, and how a depth is
//! divided over queues.

use crate::common::{KIB, MS, S, World, model, queue_of};
use plimsoll_core::{DiskConfig, Mode, Op, QueueConfig, depth_of_queue};

#[test]
fn four_classes_on_one_ssd_as_published() {
    // Shares, and KB/s published for 128 KiB requests, 60 s, an SSD of 550 MB/s.
    let rows = [
        ([10, 10, 10, 10], [137_506, 137_501, 137_501, 137_501]),
        ([100, 100, 100, 100], [137_504, 137_499, 137_499, 137_499]),
        ([10, 20, 40, 80], [37_333, 73_732, 146_566, 292_375]),
        ([100, 10, 10, 10], [421_211, 42_922, 42_922, 42_922]),
    ];
    for (shares, published) in rows {
        let ssd = DiskConfig { model: model(1_000_000_000, 550_000_000), ..DiskConfig::default() };
        let config = QueueConfig { mode: Mode::Depth(30), ..QueueConfig::default() };
        let mut world = World::new(queue_of(ssd, config), 1, 1.0);
        for shares in shares {
            world.load(shares, Op::Read, &[128 * KIB], 100);
        }
        world.run_until(60 * S);
        let total: u64 = world.loads.iter().map(|load| load.dispatched_bytes).sum();
        let published_total: u64 = published.iter().sum();
        for (load, published) in world.loads.iter().zip(published) {
            let part = load.dispatched_bytes as f64 / total as f64;
            let published_part = published as f64 / published_total as f64;
            let error = part / published_part - 1.0;
            // The part of C1 at 10, 20, 40, 80 is off by 0.52 %, all others by less than 0.4 %.
            assert!(error.abs() <= 0.0053, "{shares:?}: {part} instead of {published_part}, {error:+}");
        }
        assert!((total as f64 / 60.0 / 550e6 - 1.0).abs() < 0.001);
    }
}

#[test]
fn past_use_fades_with_the_time_constant() {
    // One class had the disk for 300 ms, at 1000 requests a second; then another of the same shares comes. Until both are
    // even, all that comes goes to the newcomer: for a time that grows with the constant, and no longer than the past.
    let alone_at_first = |decay_tau_ns| {
        let config = QueueConfig { mode: Mode::Depth(1), decay_tau_ns, ..QueueConfig::default() };
        let disk = DiskConfig { model: model(1000, 1_000_000_000), ..DiskConfig::default() };
        let mut world = World::new(queue_of(disk, config), 1, 1.0);
        world.load(10, Op::Read, &[4 * KIB], 20);
        world.run_until(300 * MS);
        world.load(10, Op::Read, &[4 * KIB], 20);
        let before = world.loads[0].dispatched_bytes;
        let mut at_ms = 300;
        // The request that was in the device already may be followed by one that was polled with it.
        while world.loads[0].dispatched_bytes <= before + 8 * KIB as u64 && at_ms < 2000 {
            at_ms += 1;
            world.run_until(at_ms * MS);
        }
        at_ms - 300
    };
    let waits = [10 * MS, 100 * MS, 1000 * MS].map(alone_at_first);
    assert!(waits.is_sorted_by(|short, long| 2 * short < *long), "{waits:?}");
    // ln 2 time constants, where the past is long: e^(-t / tau) falls to a half.
    assert!((4..=12).contains(&waits[0]) && waits[2] <= 320, "{waits:?}");
}

#[test]
fn a_depth_divided_over_queues() {
    for (max_io_requests, queues, expected) in
        [(120, 12, vec![10; 12]), (30, 6, vec![5; 6]), (8, 12, vec![1; 12]), (10, 4, vec![3, 3, 2, 2]), (7, 0, vec![7])]
    {
        let depths: Vec<u32> = (0..queues.max(1)).map(|queue| depth_of_queue(max_io_requests, queues, queue)).collect();
        assert_eq!(depths, expected, "{max_io_requests} over {queues}");
    }
}

#[test]
fn never_more_in_flight_than_the_depth() {
    for depth in [0, 1, 4, 30] {
        let config = QueueConfig { mode: Mode::Depth(depth), ..QueueConfig::default() };
        let disk = DiskConfig { model: model(100_000, 1_000_000_000), ..DiskConfig::default() };
        let mut world = World::new(queue_of(disk, config), 4, 1.0);
        world.load(10, Op::Read, &[4 * KIB, 1024 * KIB], 50);
        world.poll();
        assert_eq!(world.queue.in_flight(), depth.max(1));
        assert_eq!(world.queue.next_wakeup(), None);
        while world.step(20 * MS) {
            assert!(world.queue.in_flight() <= depth.max(1));
        }
    }
}
