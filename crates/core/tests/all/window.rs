//! The work in the device is bounded, and a small request of a class that wakes up enters nevertheless.

use crate::common::{KIB, MS, Random, S, US, World, model, queue_of, usual};
use plimsoll_core::{
    ControlConfig, DiskConfig, EventKind, GroupId, LatencyGoal, LatencyTarget, Mode, Op, Outcome, Qos, QueueConfig,
    WaitReason,
};

const LENGTHS: [u32; 4] = [4 * KIB, 64 * KIB, 256 * KIB, 2048 * KIB];

#[test]
fn never_more_in_the_device_than_window_and_overdraft() {
    let windows = [None, Some(0), Some(100_000), Some(2 * MS)];
    let goals = [LatencyGoal::Ns(MS / 2), LatencyGoal::NoSplit];
    for (seed, window_ns) in windows.into_iter().enumerate() {
        for latency_goal in goals {
            for (parallel, factor) in [(1, 4.0), (8, 20.0)] {
                let disk = DiskConfig { window_ns, latency_goal, ..usual() };
                let mut world = World::new(queue_of(disk, QueueConfig::default()), parallel, factor);
                let mut random = Random(seed as u64);
                world.load(100, Op::Read, &LENGTHS, 50);
                world.load(900, Op::Write, &LENGTHS, 10);
                // Comes and goes: it has credit whenever it comes.
                let guest = world.load(500, Op::Read, &LENGTHS, 0);
                world.loads[guest].on = false;
                for _ in 0..300 {
                    world.run_until(world.now_ns + random.below(5 * MS));
                    world.send(guest, 1 + random.below(5) as usize);
                }
                let largest_ns = world.log.iter().map(|sent| sent.fs / 1_000_000 + 1).max().unwrap_or(0);
                let bound_ns = world.queue.disk().bound_ns();
                let bound_ns = bound_ns.max(largest_ns) + largest_ns.max(bound_ns / 4);
                assert!(world.in_flight_max_ns <= bound_ns, "{window_ns:?}: {} ns", world.in_flight_max_ns);
            }
        }
    }
}

#[test]
fn without_guests_there_is_no_overdraft() {
    let mut world = World::new(queue_of(usual(), QueueConfig::default()), 1, 4.0);
    for shares in 1..=4 {
        world.load(shares, Op::Read, &LENGTHS, 30);
    }
    world.run_until(S);
    assert!(world.in_flight_max_ns <= world.queue.disk().window_ns());
}

#[test]
fn a_far_disk_has_a_larger_window() {
    for (window_ns, unloaded_latency_ns, expected_ns) in [
        (None, 0, 750_000),
        (None, 200_000, 750_000),
        (None, 400_000, 1_200_000),
        (None, 2 * MS, 6 * MS),
        (Some(MS / 10), 2 * MS, MS / 10),
    ] {
        let queue = queue_of(DiskConfig { window_ns, unloaded_latency_ns, ..usual() }, QueueConfig::default());
        assert_eq!(queue.disk().window_ns(), expected_ns);
    }
}

#[test]
fn small_requests_of_a_woken_class_enter_a_full_window() {
    let mut queue = queue_of(usual(), QueueConfig::default());
    let steady = queue.disk().add_class(GroupId::ROOT, 100).unwrap();
    let guest = queue.disk().add_class(GroupId::ROOT, 100).unwrap();
    for n in 0..1000 {
        queue.enqueue(S, steady, Op::Write, 64 * KIB, n).unwrap();
    }
    // A device that gives nothing back for a while: full, with plenty of tokens.
    let pieces: Vec<_> = std::iter::from_fn(|| queue.poll_dispatch(S)).collect();
    assert!(queue.poll_dispatch(2 * S).is_none());
    assert!(queue.disk().in_flight_ns() + 72_000 > queue.disk().window_ns());
    // The first does not use up what it is owed.
    let small: Vec<_> = (7..12)
        .map(|user_data| {
            queue.enqueue(2 * S, guest, Op::Read, 4 * KIB, user_data).unwrap();
            let small = queue.poll_dispatch(2 * S).expect("it is owed so much");
            assert_eq!(small.user_data(), user_data);
            small
        })
        .collect();
    assert!(queue.poll_dispatch(2 * S).is_none(), "the others still wait");
    for piece in pieces.into_iter().chain(small) {
        let len_bytes = piece.len_bytes();
        let _ = queue.complete(2 * S, piece, Outcome::Moved(len_bytes));
    }
}

/// Reads and writes of a duplex disk share the window (or the depth). When the disk is slower than its model says, the
/// window is all that holds them back, and neither direction may take it all.
#[test]
fn neither_direction_of_a_duplex_disk_takes_all_of_the_window() {
    for mode in [Mode::Scheduled, Mode::Depth(8)] {
        let queue = queue_of(DiskConfig { duplex: true, ..usual() }, QueueConfig { mode, ..QueueConfig::default() });
        let mut world = World::new(queue, 1, 3.0);
        world.load(100, Op::Read, &[64 * KIB], 50);
        world.load(100, Op::Write, &[64 * KIB], 50);
        world.run_until(S);
        let consumed_s = world.consumed_s();
        assert!((consumed_s[0] / consumed_s[1] - 1.0).abs() < 0.02, "{mode:?}: {consumed_s:?}");
    }
}

#[test]
fn a_full_window_is_a_wait_for_depth() {
    let mut world = World::new(queue_of(usual(), QueueConfig::default()), 1, 4.0);
    let load = world.load(100, Op::Read, &[64 * KIB], 50);
    world.run_until(S);
    let stats = world.queue.class_stats(world.loads[load].class).unwrap();
    assert!(stats.waited_for_ns(WaitReason::Depth) > 990 * MS, "{:?}", stats.waited_ns);
}

/// The overdraft is a quarter of the bound, however much a class is owed.
#[test]
fn a_large_credit_is_no_large_overdraft() {
    let config = QueueConfig { wakeup_credit_ns: Some(20 * MS), ..QueueConfig::default() };
    let mut world = World::new(queue_of(usual(), config), 1, 50.0);
    world.load(100, Op::Read, &[64 * KIB], 50);
    world.run_until(S);
    let guest = world.load(100, Op::Read, &[4 * KIB], 1000);
    world.run_until(2 * S);
    assert!(world.loads[guest].dispatched > 100);
    let bound_ns = world.queue.disk().bound_ns();
    assert!(world.in_flight_max_ns <= bound_ns + bound_ns / 4, "{} ns", world.in_flight_max_ns);
}

/// A narrow window is refilled by a request that exceeds it: the device always has at least the window to do, and at most
/// one request more.
#[test]
fn a_narrow_window_never_lets_the_device_run_dry() {
    let disk = DiskConfig { window_ns: Some(100_000), ..usual() };
    let mut world = World::new(queue_of(disk, QueueConfig::default()), 1, 4.0);
    world.load(100, Op::Read, &[64 * KIB], 50);
    world.run_until(S);
    let one_ns = world.queue.disk().cost(Op::Read, 64 * KIB).as_ns_ceil();
    assert!(world.in_flight_max_ns > 100_000, "{}", world.in_flight_max_ns);
    assert!(world.in_flight_max_ns <= 100_000 + one_ns, "{}", world.in_flight_max_ns);
}

/// One long request does not fill the device alone: it holds four of its pieces, unless shorter ones would cost the disk more than
/// 1/64 of its time.
#[test]
fn a_piece_is_at_most_a_quarter_of_the_bound() {
    // Requests and bytes a second, and whether pieces are cheap.
    let table = [
        (100, 100_000_000, false),
        (15_000, 1_000_000_000, false),
        (200_000, 1_000_000_000, true),
        (500_000, 2_000_000_000, true),
        (1_500_000, 7_000_000_000, true),
    ];
    for (iops, bandwidth, is_cheap) in table {
        for unloaded_latency_ns in [0, 80_000] {
            let config = DiskConfig { model: model(iops, bandwidth), unloaded_latency_ns, ..usual() };
            let mut queue = queue_of(config, QueueConfig::default());
            let class = queue.disk().add_class(GroupId::ROOT, 100).unwrap();
            queue.enqueue(S, class, Op::Read, 16 << 20, 0).unwrap();
            let pieces: Vec<_> = std::iter::from_fn(|| queue.poll_dispatch(S)).collect();
            let what = format!("{iops} IOPS, {bandwidth} B/s, {unloaded_latency_ns} ns");
            let quarter_ns = queue.disk().bound_ns() / 4;
            assert_eq!(pieces.len() >= 4, is_cheap, "{what}");
            let cost_ns: u64 = pieces.iter().map(|piece| piece.cost().as_ns_ceil()).sum();
            let len_bytes = pieces.iter().map(|piece| piece.len_bytes()).sum();
            let whole_ns = queue.disk().cost(Op::Read, len_bytes).as_ns_ceil();
            for piece in &pieces {
                assert!(
                    piece.len_bytes().is_multiple_of(4 * KIB) && piece.len_bytes() >= 64 * KIB,
                    "{what}: {piece:?}"
                );
                assert!(!is_cheap || piece.cost().as_ns_ceil() <= quarter_ns, "{what}: {piece:?}");
            }
            assert!(
                !is_cheap || cost_ns as f64 <= whole_ns as f64 * (1.0 + 1.0 / 64.0),
                "{what}: {cost_ns} for {whole_ns}"
            );
        }
    }
}

/// Runs two classes that always have `background` requests of 64 KiB, and a third one that always has `outstanding` of
/// `len_bytes`, or gets one each 150 us if that is 0, for 4 s.
fn beside_background(background: usize, outstanding: usize, len_bytes: u32) -> World {
    let disk = DiskConfig { control: ControlConfig::default(), ..usual() };
    let mut world = World::new(queue_of(disk, QueueConfig::default()), 16, 24.0);
    world.load(100, Op::Read, &[64 * KIB], background);
    world.load(100, Op::Write, &[64 * KIB], background);
    let third = world.load(100, Op::Read, &[len_bytes], outstanding);
    world.loads[third].on = outstanding > 0;
    while world.now_ns < 4 * S {
        world.run_until(world.now_ns + 150 * US);
        world.send(third, usize::from(outstanding == 0));
    }
    world
}

/// Returns whether the controller has tried to make room for somebody.
fn makes_room(world: &World) -> bool {
    world.queue.disk().events_since(0).iter().any(|event| event.kind == EventKind::Excursion)
}

/// A query that takes longer than the time to the next one always has some in the device. It gains by a short queue there,
/// because it takes less than its part of the disk.
#[test]
fn requests_of_a_small_class_that_overlap_in_the_device_make_room_too() {
    assert!(makes_room(&beside_background(32, 0, 4 * KIB)));
    // All ask for their share.
    assert!(!makes_room(&beside_background(32, 200, 4 * KIB)));
    // The same, with everything in the device.
    assert!(!makes_room(&beside_background(2, 2, 64 * KIB)));
}

/// What the disk gives with everything sent as it comes is measured with everything in the device, which is far more than the
/// bound.
#[test]
fn in_an_excursion_the_device_holds_all_that_is_outstanding() {
    let world = beside_background(100, 0, 4 * KIB);
    let disk = world.queue.disk();
    let all_ns = 100 * (disk.cost(Op::Read, 64 * KIB).as_ns_ceil() + disk.cost(Op::Write, 64 * KIB).as_ns_ceil());
    assert!(all_ns > 2 * disk.bound_ns(), "{all_ns}, {}", disk.bound_ns());
    assert!(world.in_flight_max_ns > all_ns / 10 * 9, "{} of {all_ns}", world.in_flight_max_ns);
}

/// Whoever waits in an excursion waits for what the loop has let in, not for classes that would have to give way.
#[test]
fn excursions_make_nobody_give_way_to_a_latency_target() {
    let disk = DiskConfig { control: ControlConfig::default(), ..usual() };
    let mut world = World::new(queue_of(disk, QueueConfig::default()), 16, 24.0);
    world.load(100, Op::Read, &[64 * KIB], 100);
    world.load(100, Op::Write, &[64 * KIB], 100);
    let third = world.load(100, Op::Read, &[4 * KIB], 0);
    world.loads[third].on = false;
    // An excursion's queue is 20 ms long, any other shorter than 5 ms.
    let latency_target = Some(LatencyTarget { latency_ns: 8 * MS, quantile: 0.99 });
    let class = world.loads[third].class;
    world.queue.disk().set_qos(class, Qos { latency_target, ..Qos::default() }).unwrap();
    while world.now_ns < 4 * S {
        world.run_until(world.now_ns + 150 * US);
        world.send(third, 1);
    }
    assert!(makes_room(&world));
    let decisions = [EventKind::OthersGiveWay, EventKind::WeightRaised, EventKind::TargetUnreachable];
    let events = world.queue.disk().events_since(0);
    let made: Vec<_> = events.iter().filter(|event| decisions.contains(&event.kind)).collect();
    assert!(made.is_empty(), "{made:#?}");
}
