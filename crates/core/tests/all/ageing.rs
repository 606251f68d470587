//! Ageing and back-pressure: an old request goes, at no more than an eighth of the disk; who would wait too long
//! hears so at once.

use std::sync::Arc;

use crate::common::{KIB, MS, S, queue_of, usual};
use crate::reference::shards::Shards;
use plimsoll_core::{
    ControlConfig, DiskConfig, GroupId, Limits, Op, Outcome, Qos, QueueConfig, QueueError, Rate, Reservation,
};

fn ageing(max_wait_ns: u64) -> Qos {
    Qos { max_wait_ns: Some(max_wait_ns), ..Qos::default() }
}

fn refusing(max_delay_ns: u64) -> Qos {
    Qos { max_delay_ns: Some(max_delay_ns), ..Qos::default() }
}

#[test]
fn an_old_request_goes_whatever_its_shares() {
    for shards in [1, 2] {
        let mut world = Shards::new(usual(), shards);
        let (old, hog) = (world.class(1), world.class(100_000));
        world.disk.set_qos(old, ageing(5 * MS)).unwrap();
        world.backlog(shards - 1, hog, Op::Write, &[128 * KIB], 64);
        world.run_for(100 * MS);
        let load = world.steady(0, old, Op::Read, &[4 * KIB], 10 * MS);
        world.run_for(2 * S);
        let of = &world.loads[load];
        let worst_ns = *of.latencies_ns.iter().max().unwrap();
        assert!(of.finished + 2 >= of.offered, "{} of {}", of.finished, of.offered);
        // Its age, what fills the device already, and its own way there and back.
        assert!(worst_ns < 5 * MS + 2 * world.disk.bound_ns() + MS, "{shards} queues: {worst_ns}");
        assert!(world.shards[0].queue.class_stats(old).unwrap().aged > 0);
    }
}

#[test]
fn old_requests_take_an_eighth_of_the_disk_at_the_most() {
    for len_bytes in [4 * KIB, 128 * KIB, 2048 * KIB] {
        let mut world = Shards::new(usual(), 1);
        let (old, hog) = (world.class(1), world.class(100_000));
        world.disk.set_qos(old, ageing(MS)).unwrap();
        world.backlog(0, hog, Op::Write, &[128 * KIB], 64);
        let load = world.backlog(0, old, Op::Read, &[len_bytes], 200);
        world.run_for(100 * MS);
        world.start_counting();
        world.run_for(S);
        let part = world.consumed_s(load) / world.total_s();
        assert!((0.05..=0.128).contains(&part), "{len_bytes}: {part}");
        assert!(world.total_s() > 0.97, "{len_bytes}: {}", world.total_s());
    }
}

#[test]
fn a_class_with_its_share_is_not_made_faster_by_its_age() {
    let mut world = Shards::new(usual(), 1);
    let classes = [world.class(100), world.class(100)];
    world.disk.set_qos(classes[0], ageing(MS)).unwrap();
    let loads = classes.map(|class| world.backlog(0, class, Op::Read, &[64 * KIB], 64));
    world.run_for(S);
    let ratio = world.consumed_s(loads[0]) / world.consumed_s(loads[1]);
    assert!((0.97..=1.03).contains(&ratio), "{ratio}");
}

#[test]
fn changed_and_removed_while_running() {
    let mut world = Shards::new(usual(), 1);
    let (old, hog) = (world.class(1), world.class(100_000));
    world.backlog(0, hog, Op::Write, &[128 * KIB], 64);
    let load = world.backlog(0, old, Op::Read, &[4 * KIB], 8);
    for (qos, served) in [(Qos::default(), false), (ageing(MS), true), (Qos::default(), false)] {
        world.disk.set_qos(old, qos).unwrap();
        world.poll_all();
        world.run_for(50 * MS);
        world.start_counting();
        world.run_for(500 * MS);
        assert_eq!(world.loads[load].dispatched > 50, served, "{}", world.loads[load].dispatched);
    }
}

#[test]
fn a_request_that_would_wait_too_long_is_refused_and_the_bound_holds() {
    for shards in [1, 2] {
        let mut world = Shards::new(usual(), shards);
        let (shed, other) = (world.class(100), world.class(300));
        world.disk.set_qos(shed, refusing(10 * MS)).unwrap();
        // A quarter of the disk is 25 000 requests a second: it is offered double.
        let load = world.steady(0, shed, Op::Read, &[4 * KIB], 20_000);
        world.backlog(shards - 1, other, Op::Read, &[64 * KIB], 32);
        world.run_for(500 * MS);
        world.start_counting();
        world.run_for(S);
        let of = &world.loads[load];
        assert!(of.refused > of.offered / 4, "{} of {}", of.refused, of.offered);
        assert!((23_000..=27_000).contains(&of.finished), "{shards} queues: {}", of.finished);
        let worst_ns = *of.latencies_ns.iter().max().unwrap();
        assert!(worst_ns < 15 * MS, "{shards} queues: {worst_ns}");
        assert_eq!(world.shards[0].queue.class_stats(shed).map(|stats| stats.refused > 0), Ok(true));
    }
}

#[test]
fn the_refusal_names_the_delay_and_the_limit_can_be_taken_away() {
    let mut world = Shards::new(usual(), 1);
    let class = world.class(100);
    world.disk.set_qos(class, refusing(0)).unwrap();
    world.backlog(0, class, Op::Read, &[1024 * KIB], 2);
    assert_eq!(world.loads[0].refused, 1, "the second waits for the first, which nobody has dispatched yet");
    let refused = world.shards[0].queue.enqueue(world.now_ns, class, Op::Read, 1, 0);
    assert!(
        matches!(refused, Err(QueueError::Overloaded { expected_ns }) if (1_000_000..1_200_000).contains(&expected_ns))
    );
    world.disk.set_qos(class, Qos::default()).unwrap();
    world.shards[0].queue.follow_classes(|_| {});
    assert!(world.shards[0].queue.enqueue(world.now_ns, class, Op::Read, 1, 0).is_ok());
}

#[test]
fn the_expected_delay_is_what_then_happens() {
    // Shares of the class and of the other, its length, backlog, queues it runs on, whether the other shares its queue.
    let table = [
        (100, 100, 4 * KIB, 200, 1, true),
        (100, 900, 4 * KIB, 200, 1, true),
        (900, 100, 64 * KIB, 100, 1, true),
        (100, 300, 64 * KIB, 100, 1, false),
        (100, 300, 16 * KIB, 200, 2, false),
        (300, 100, 1024 * KIB, 32, 2, false),
    ];
    for (shares, others, len_bytes, backlog, queues, together) in table {
        let mut world = Shards::new(usual(), 3);
        world.latency_ns = 0;
        let (class, other) = (world.class(shares), world.class(others));
        for shard in 0..queues {
            world.backlog(shard, class, Op::Read, &[len_bytes], backlog);
        }
        world.backlog(if together { 0 } else { 2 }, other, Op::Read, &[64 * KIB], 64);
        world.run_for(200 * MS);
        for _ in 0..5 {
            world.run_for(31 * MS);
            let expected_ns = world.shards[0].queue.expected_delay_ns(world.now_ns, class).unwrap();
            // A request now: its wait ends when everything before it has been dispatched.
            let before = world.shards[0].queue.class_stats(class).unwrap();
            let (queued, done) = (u64::from(before.queued), before.dispatched);
            let pieces = u64::from(len_bytes.div_ceil(world.disk.piece_max_bytes(Op::Read.direction())));
            let begin_ns = world.now_ns;
            while world.shards[0].queue.class_stats(class).unwrap().dispatched < done + queued * pieces {
                world.run_for(20_000);
            }
            let took_ns = (world.now_ns - begin_ns) as f64;
            let ratio = expected_ns as f64 / took_ns;
            assert!((0.5..=2.0).contains(&ratio), "{shares}:{others}, {len_bytes}: {expected_ns} for {took_ns}");
        }
    }
}

/// The eighth is the disk's: forty old classes on two queues take no more of it than one.
#[test]
fn many_old_classes_together_take_an_eighth_of_the_disk() {
    for (shards, len_bytes) in [(1, 4 * KIB), (1, 64 * KIB), (2, 64 * KIB)] {
        let mut world = Shards::new(usual(), shards);
        let hog = world.class(100_000);
        let load = world.backlog(0, hog, Op::Write, &[128 * KIB], 64);
        for number in 0..40 {
            let old = world.class(1);
            world.disk.set_qos(old, ageing(MS)).unwrap();
            world.backlog(number % shards, old, Op::Read, &[len_bytes], 20);
        }
        world.run_for(200 * MS);
        world.start_counting();
        world.run_for(S);
        let part = world.consumed_s(load) / world.total_s();
        assert!(part >= 0.87, "{shards} queues, {len_bytes}: {part} is left to the others");
        assert!(part <= 0.95, "{shards} queues, {len_bytes}: the old are served: {part}");
        assert!(world.total_s() > 0.97, "{len_bytes}: {}", world.total_s());
        let served = world.loads.iter().filter(|load| load.dispatched > 0).count();
        assert!(served >= 35, "{served} of 41: the oldest goes first");
    }
}

/// A request waits for the limits of its class and of the groups above it as well as for the disk.
#[test]
fn a_backlog_at_a_limit_counts_as_delay() {
    const S10: u64 = 10 * S;
    let none = Limits::default();
    // Limits of the class, of its group, and how many requests of 4 KiB are accepted in one moment: about 10 ms of them.
    let (iops, bandwidth) = (Rate::per_second(1_000), Rate::per_second(4_096_000));
    let table = [
        (Limits { iops, ..none }, none, Op::Read, 9..=13),
        (Limits { bandwidth, ..none }, none, Op::Write, 9..=13),
        (Limits { read_iops: iops, ..none }, none, Op::Read, 9..=13),
        (Limits { write_bandwidth: bandwidth, ..none }, none, Op::Write, 9..=13),
        (none, Limits { iops, ..none }, Op::Read, 9..=13),
        (Limits { iops, burst_ns: 20 * MS, ..none }, none, Op::Read, 29..=33),
        (Limits { iops: Rate::per_second(1), ..none }, none, Op::Read, 1..=1),
        // A limit of the other direction holds nothing back.
        (Limits { write_iops: iops, ..none }, none, Op::Read, 900..=1_100),
    ];
    for (of_class, of_group, op, expected) in table {
        let mut queue = queue_of(usual(), QueueConfig::default());
        let disk = Arc::clone(queue.disk());
        let group = disk.add_group(GroupId::ROOT, 100).unwrap();
        let class = disk.add_class(group, 100).unwrap();
        disk.set_qos(group, Qos { limits: of_group, ..Qos::default() }).unwrap();
        disk.set_qos(class, Qos { limits: of_class, ..refusing(10 * MS) }).unwrap();
        let mut accepted = 0;
        for n in 0..5_000 {
            accepted += u64::from(queue.enqueue(S10, class, op, 4 * KIB, n).is_ok());
            while let Some(piece) = queue.poll_dispatch(S10).filter(|_| n == 0) {
                let _ = queue.complete(S10, piece, Outcome::Moved(4 * KIB));
            }
        }
        assert!(expected.contains(&accepted), "{of_class:?} in {of_group:?}, {op:?}: {accepted} accepted");
    }
}

/// On a disk that does a tenth of what its model says a backlog lasts ten times as long.
#[test]
fn the_expected_delay_follows_the_capacity_scale() {
    for (scale, expected) in [(1.0, 900..=1_100), (0.1, 90..=110)] {
        let control = ControlConfig { scale_min: scale, scale_max: scale, ..ControlConfig::default() };
        let mut queue = queue_of(DiskConfig { control, ..usual() }, QueueConfig::default());
        let class = queue.disk().add_class(GroupId::ROOT, 100).unwrap();
        queue.disk().set_qos(class, refusing(10 * MS)).unwrap();
        let accepted = (0..5_000).filter(|n| queue.enqueue(S, class, Op::Read, 4 * KIB, *n).is_ok()).count();
        assert!(expected.contains(&accepted), "scale {scale}: {accepted} accepted");
    }
}

/// By its share alone, a request would wait 10 ms for each before it. Reserved for the class, or for its group, are
/// 20,000 a second.
#[test]
fn a_request_that_a_reservation_serves_in_time_is_not_refused() {
    for (shards, in_group) in [(1, false), (1, true), (2, false), (2, true)] {
        let mut world = Shards::new(usual(), shards);
        let group = world.disk.add_group(GroupId::ROOT, 1).unwrap();
        let class = world.disk.add_class(if in_group { group } else { GroupId::ROOT }, 1).unwrap();
        let hog = world.class(1_000);
        let reservation = Reservation { iops: 20_000, bandwidth: 0 };
        world.disk.set_qos(group, Qos { reservation, ..Qos::default() }).unwrap();
        let of_class = if in_group { Reservation::default() } else { reservation };
        world.disk.set_qos(class, Qos { reservation: of_class, ..refusing(5 * MS) }).unwrap();
        world.backlog(shards - 1, hog, Op::Write, &[128 * KIB], 32);
        // Twenty at a time.
        let steady = |world: &mut Shards| world.steady(0, class, Op::Read, &[4 * KIB], 2 * MS);
        let mut loads: Vec<usize> = (0..20).map(|_| steady(&mut world)).collect();
        world.run_for(S);
        let refused: u64 = loads.iter().map(|load| world.loads[*load].refused).sum();
        assert_eq!(refused, 0, "{shards} queues, in a group: {in_group}: half of what is reserved");

        loads.extend((0..40).map(|_| steady(&mut world)));
        world.run_for(500 * MS);
        world.start_counting();
        world.run_for(S);
        let of = || loads.iter().map(|load| &world.loads[*load]);
        let (finished, refused): (u64, u64) =
            (of().map(|load| load.finished).sum(), of().map(|load| load.refused).sum());
        let what = format!("{shards} queues, in a group: {in_group}: {finished} finished, {refused} refused");
        assert!((19_500..=20_500).contains(&finished) && (9_500..=10_500).contains(&refused), "{what}");
        let worst_ns = *of().flat_map(|load| &load.latencies_ns).max().unwrap();
        assert!(worst_ns < 10 * MS, "{what}: {worst_ns}");
    }
}
