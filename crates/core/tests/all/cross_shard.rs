//! Shares on the whole disk: two queues, many queues, shards of a class, queues that sleep, join, leave, clocks that
//! wrap; and with nothing but its own wake-ups and completions no queue is ever stuck.

use crate::common;
use crate::seeds;
use std::sync::Arc;

use crate::common::{FIFTY_YEARS_NS, KIB, MS, Random, S, usual};
use crate::reference::shards::Shards;
use plimsoll_core::{Disk, DiskConfig, GroupId, IoQueue, Limits, Op, Qos, QueueConfig, Rate, Reservation};

fn ratio(world: &Shards, one: usize, other: usize) -> f64 {
    world.consumed_s(one) / world.consumed_s(other)
}

#[test]
fn a_thousand_shares_against_two_hundred_on_two_queues() {
    // Lengths of the two classes, window.
    let table = [
        (4 * KIB, 4 * KIB, None),
        (64 * KIB, 64 * KIB, None),
        (4 * KIB, 128 * KIB, None),
        (1024 * KIB, 16 * KIB, None),
        (64 * KIB, 64 * KIB, Some(400_000)),
    ];
    for (one_bytes, other_bytes, window_ns) in table {
        let mut world = Shards::new(DiskConfig { window_ns, ..usual() }, 2);
        // A piece of 1 MiB nearly fills the window: what the device takes beside its service time is lost.
        world.latency_ns = 10_000;
        let classes = [world.class(1000), world.class(200)];
        let one = world.backlog(0, classes[0], Op::Read, &[one_bytes], 256);
        let other = world.backlog(1, classes[1], Op::Read, &[other_bytes], 256);
        world.run_for(200 * MS);
        world.start_counting();
        world.run_for(2 * S);
        let ratio = ratio(&world, one, other);
        assert!((4.9..=5.1).contains(&ratio), "{one_bytes} and {other_bytes} bytes, window {window_ns:?}: {ratio}");
        assert!(world.total_s() > 1.94, "{one_bytes} and {other_bytes} bytes: {}", world.total_s());
        let largest_ns = world.log.iter().map(|sent| sent.fs).max().unwrap() / 1_000_000 + 1;
        let bound_ns = world.disk.bound_ns();
        assert!(world.in_flight_max_ns <= bound_ns + largest_ns.max(bound_ns / 4), "{}", world.in_flight_max_ns);
    }
}

#[test]
fn a_class_has_its_shares_once_and_its_shards_are_alike() {
    for shards in [2, 4, 8] {
        let mut world = Shards::new(usual(), shards);
        let (wide, narrow) = (world.class(100), world.class(100));
        let loads: Vec<usize> =
            (0..shards).map(|shard| world.backlog(shard, wide, Op::Read, &[16 * KIB, 64 * KIB], 64)).collect();
        let other = world.backlog(0, narrow, Op::Read, &[64 * KIB], 64);
        world.run_for(100 * MS);
        world.start_counting();
        world.run_for(2 * S);
        let of_wide: f64 = loads.iter().map(|load| world.consumed_s(*load)).sum();
        let ratio = of_wide / world.consumed_s(other);
        assert!((0.97..=1.03).contains(&ratio), "{shards} shards: {ratio}");
        for load in loads {
            let part = world.consumed_s(load) / of_wide * shards as f64;
            assert!((0.97..=1.03).contains(&part), "{shards} shards, load {load}: {part}");
        }
        assert!(world.total_s() > 1.96, "{shards} shards: {}", world.total_s());
    }
}

#[test]
fn any_ratio_on_four_queues_with_groups() {
    let mut world = Shards::new(usual(), 4);
    let groups = [300, 100].map(|shares| world.disk.add_group(GroupId::ROOT, shares).unwrap());
    // (group, shares in it, shard): expected parts 0.75 * (0.1, 0.9) and 0.25 * (0.5, 0.5).
    let table = [(0, 10, 0, 0.075), (0, 90, 1, 0.675), (1, 7, 2, 0.125), (1, 7, 3, 0.125)];
    let loads: Vec<usize> = table
        .iter()
        .map(|(group, shares, shard, _)| {
            let class = world.disk.add_class(groups[*group], *shares).unwrap();
            world.backlog(*shard, class, Op::Read, &[4 * KIB, 64 * KIB], 128)
        })
        .collect();
    world.run_for(100 * MS);
    world.start_counting();
    world.run_for(2 * S);
    for (load, (.., expected)) in loads.iter().zip(table) {
        let part = world.consumed_s(*load) / world.total_s();
        assert!((part / expected - 1.0).abs() < 0.03, "{part}, not {expected}");
    }
}

#[test]
fn a_high_share_request_is_not_delayed_by_the_number_of_shards() {
    let mut worst = Vec::new();
    for shards in [4, 16, 64] {
        let mut world = Shards::new(usual(), shards + 1);
        let (high, low) = (world.class(10_000), world.class(100));
        for shard in 0..shards {
            world.backlog(shard, low, Op::Write, &[128 * KIB], 8);
        }
        world.run_for(50 * MS);
        let load = world.steady(shards, high, Op::Read, &[4 * KIB], 3 * MS + 1_237);
        world.run_for(500 * MS);
        let of = &mut world.loads[load].latencies_ns;
        of.sort_unstable();
        worst.push(of[of.len() * 9 / 10]);
    }
    // One latency goal and one largest request, and the device's own time.
    assert!(worst.iter().all(|ns| *ns < 750_000 + 140_000 + 50_000 + 187_500), "{worst:?}");
    assert!(worst[2] < worst[0] + worst[0] / 10 + 50_000, "{worst:?}");
}

#[test]
fn one_active_queue_of_many_has_the_whole_disk() {
    let mut world = Shards::new(usual(), 64);
    let class = world.class(1);
    let others = world.class(1000);
    for shard in 1..64 {
        world.backlog(shard, others, Op::Read, &[4 * KIB], 2);
    }
    world.run_for(10 * MS);
    world.drain();
    let load = world.backlog(0, class, Op::Read, &[64 * KIB], 64);
    world.run_for(MS);
    world.start_counting();
    world.run_for(S);
    assert!(world.consumed_s(load) > 0.99, "{}", world.consumed_s(load));
}

#[test]
fn the_share_of_who_goes_idle_is_used_within_a_millisecond() {
    let mut world = Shards::new(usual(), 2);
    let classes = [world.class(1000), world.class(10)];
    let busy = world.backlog(0, classes[0], Op::Read, &[64 * KIB], 64);
    world.backlog(1, classes[1], Op::Read, &[16 * KIB], 128);
    world.run_for(200 * MS);
    world.loads[busy].closed = false;
    while world.shards[0].queue.requests() > 0 {
        world.run_for(100_000);
    }
    world.run_for(MS);
    world.start_counting();
    world.run_for(20 * MS);
    assert!(world.total_s() > 0.0195, "{}", world.total_s());
}

#[test]
fn a_queue_that_does_not_poll_does_not_stop_the_others() {
    let mut world = Shards::new(usual(), 4);
    let classes = [1000, 100, 100, 100].map(|shares| world.class(shares));
    for (shard, class) in classes.into_iter().enumerate() {
        world.backlog(shard, class, Op::Read, &[16 * KIB, 64 * KIB], 64);
    }
    world.run_for(100 * MS);
    // What a sleeper has in the device keeps its room there. One with most of the shares has most of the room: then
    // the rest is too small for the device's latency (here 50 us and the wait in the pipe), and the others reach
    // three quarters. A probe of a smaller window takes its part all that time.
    for (sleeper, least) in [(0, 0.7), (1, 0.98), (2, 0.98)] {
        world.sleep(sleeper, 10 * MS);
        world.run_for(MS);
        world.start_counting();
        world.run_for(9 * MS);
        assert!(world.total_s() > least * 0.009 - 71e-6, "shard {sleeper} sleeps: {}", world.total_s());
        world.run_for(100 * MS);
    }
    world.start_counting();
    world.run_for(S);
    for load in 1..4 {
        let ratio = ratio(&world, 0, load);
        assert!((9.7..=10.3).contains(&ratio), "afterwards: {ratio}");
    }
}

/// A shard that was stuck for ten seconds had all of them back, and the others nothing for as long. Meanwhile those had
/// what each could take.
#[test]
fn shares_hold_while_a_queue_is_away_and_when_it_is_back() {
    for (groups, shards) in [(1, 2), (1, 4), (2, 4)] {
        let mut world = Shards::new(DiskConfig { groups, ..usual() }, shards);
        let loads: Vec<usize> = (0..shards)
            .map(|shard| {
                let class = world.class(100);
                world.backlog(shard, class, Op::Read, &[16 * KIB, 64 * KIB], 64)
            })
            .collect();
        world.run_for(100 * MS);
        world.sleep(0, 10 * S);
        world.start_counting();
        world.run_for(10 * S);
        let parts: Vec<f64> = loads.iter().map(|load| world.consumed_s(*load) / 10.0 * (shards - 1) as f64).collect();
        assert!(parts[1..].iter().all(|part| (0.95..1.05).contains(part)), "{groups} groups, meanwhile: {parts:?}");
        world.start_counting();
        world.run_for(S);
        let parts: Vec<f64> = loads.iter().map(|load| world.consumed_s(*load) * shards as f64).collect();
        assert!(parts.iter().all(|part| (0.95..1.05).contains(part)), "{groups} groups, afterwards: {parts:?}");
    }
}

#[test]
fn a_queue_that_polls_rarely_keeps_its_share() {
    let mut world = Shards::new(usual(), 2);
    let classes = [world.class(100), world.class(100)];
    let rare = world.backlog(0, classes[0], Op::Read, &[64 * KIB], 64);
    let other = world.backlog(1, classes[1], Op::Read, &[64 * KIB], 64);
    let story = |world: &mut Shards, for_ns: u64| {
        let end_ns = world.now_ns + for_ns;
        while world.now_ns < end_ns {
            world.sleep(0, 550_000);
            world.run_for(550_001);
        }
    };
    story(&mut world, 200 * MS);
    world.start_counting();
    story(&mut world, S);
    let ratio = ratio(&world, rare, other);
    assert!(ratio > 0.5, "{ratio}");
    assert!(world.total_s() > 0.95, "{}", world.total_s());
}

/// Whether shares hold now: 300 to 100 on two queues.
fn check_shares(world: &mut Shards, what: &str) {
    let classes = [world.class(300), world.class(100)];
    let (one, other) = (
        world.backlog(0, classes[0], Op::Read, &[16 * KIB], 128),
        world.backlog(1, classes[1], Op::Read, &[16 * KIB], 128),
    );
    world.run_for(100 * MS);
    world.start_counting();
    world.run_for(S);
    let ratio = ratio(world, one, other);
    assert!((2.9..=3.1).contains(&ratio), "{what}: {ratio}");
    assert!(world.total_s() > 0.97, "{what}: {}", world.total_s());
}

#[test]
fn storms_of_joining_and_leaving_leave_no_trace() {
    let mut world = Shards::new(usual(), 4);
    let mut random = Random(3);
    let shares = [1, 10, 200, 5000, 100_000];
    let mut loads = Vec::new();
    for shares in shares {
        let class = world.class(shares);
        for shard in 0..4 {
            let load = world.backlog(shard, class, Op::Read, &[512, 4 * KIB, 200 * KIB], 0);
            world.loads[load].closed = false;
            loads.push(load);
        }
    }
    for _ in 0..20_000 {
        world.send(random.one_of(&loads));
        let pause_ns = random.below(200_000);
        world.run_for(pause_ns);
    }
    world.drain();
    check_shares(&mut world, "after a storm");
}

#[test]
fn storms_while_others_are_backlogged() {
    let mut world = Shards::new(usual(), 3);
    let classes = [world.class(300), world.class(100), world.class(10)];
    let (one, other) = (
        world.backlog(0, classes[0], Op::Read, &[16 * KIB], 128),
        world.backlog(1, classes[1], Op::Read, &[16 * KIB], 128),
    );
    // One request each 2 ms: it joins and leaves each time.
    let light = world.steady(2, classes[2], Op::Read, &[4 * KIB], 2 * MS);
    world.run_for(S);
    world.start_counting();
    world.run_for(S);
    let ratio = ratio(&world, one, other);
    assert!((2.9..=3.1).contains(&ratio), "{ratio}");
    assert!(world.loads[light].finished > 480, "{}", world.loads[light].finished);
}

#[test]
fn a_storm_of_changes_of_shares_ends_with_the_last() {
    let mut world = Shards::new(usual(), 2);
    let classes = [world.class(1), world.class(100)];
    let one = world.backlog(0, classes[0], Op::Read, &[16 * KIB], 128);
    let other = world.backlog(1, classes[1], Op::Read, &[16 * KIB], 128);
    let mut random = Random(5);
    for _ in 0..3_000 {
        let class = random.one_of(&classes);
        world.disk.set_shares(class, random.one_of(&[1, 30, 1_000, 100_000])).unwrap();
        let pause_ns = random.below(300_000);
        world.run_for(pause_ns);
    }
    world.disk.set_shares(classes[0], 300).unwrap();
    world.disk.set_shares(classes[1], 100).unwrap();
    world.run_for(500 * MS);
    world.start_counting();
    world.run_for(S);
    let ratio = ratio(&world, one, other);
    assert!((2.9..=3.1).contains(&ratio), "{ratio}");
}

#[test]
fn clocks_wrap_and_nobody_notices() {
    // A class with one share moves its clock by 16 * 10^15 units a second of device time: the sign changes after 576
    // s, and the clock wraps after 1153 s. Alone it gets near; then another class competes with it on the way across.
    let latency_goal = plimsoll_core::LatencyGoal::NoSplit;
    let slow = DiskConfig { model: common::model(1, 1_000_000), latency_goal, ..usual() };
    let mut world = Shards::new(slow, 2);
    let classes = [world.class(3), world.class(1)];
    let one = world.backlog(0, classes[0], Op::Read, &[1000 * KIB], 0);
    let other = world.backlog(1, classes[1], Op::Read, &[1000 * KIB], 16);
    for edge_ns in [576 * S, 1152 * S] {
        // What they use together moves the common clock by a quarter.
        while world.consumed_s(other) + world.consumed_s(one) / 3.0 < (edge_ns / S) as f64 - 10.0 {
            world.run_for(S);
        }
        world.loads[one].closed = true;
        (0..16).for_each(|_| world.send(one));
        let before = [world.consumed_s(one), world.consumed_s(other)];
        world.run_for(100 * S);
        let got = [world.consumed_s(one) - before[0], world.consumed_s(other) - before[1]];
        let ratio = got[0] / got[1];
        assert!((2.7..=3.3).contains(&ratio), "at {} s: {ratio}", edge_ns / S);
        assert!(got[0] + got[1] > 97.0, "at {} s: {got:?}", edge_ns / S);
        world.loads[one].closed = false;
    }
}

#[test]
fn fifty_years_of_uptime_and_of_idleness() {
    let mut world = Shards::with(usual(), 2, QueueConfig::default(), FIFTY_YEARS_NS);
    check_shares(&mut world, "started after fifty years");
    world.drain();
    world.now_ns += FIFTY_YEARS_NS;
    check_shares(&mut world, "idle for fifty years");
}

#[test]
fn nothing_is_ever_stuck() {
    seeds::each(40, |seed| {
        let mut random = Random(seed);
        let shards = 1 + random.below(5) as usize;
        let duplex = random.below(4) == 0;
        let groups = 1 + random.below(3) as u16;
        let window_ns = random.one_of(&[None, Some(1), Some(100_000)]);
        let mut world = Shards::new(DiskConfig { duplex, groups, window_ns, ..usual() }, shards);
        let group = world.disk.add_group(GroupId::ROOT, 1 + random.below(1000) as u32).unwrap();
        let mut loads = Vec::new();
        for at in 0..1 + random.below(6) {
            let parent = random.one_of(&[GroupId::ROOT, group]);
            let class = world.disk.add_class(parent, 1 + random.below(10_000) as u32).unwrap();
            let qos = Qos {
                limits: match random.below(3) {
                    0 => Limits { iops: Rate::per_second(500 + random.below(5_000)), ..Limits::default() },
                    1 => Limits { write_bandwidth: Rate::per_second(50_000_000), burst_ns: MS, ..Limits::default() },
                    _ => Limits::default(),
                },
                reservation: Reservation { iops: random.one_of(&[0, 0, 1_000, 100_000]), bandwidth: 0 },
                max_wait_ns: random.one_of(&[None, None, Some(MS)]),
                ..Qos::default()
            };
            world.disk.set_qos(class, qos).unwrap();
            for shard in 0..shards {
                let op = random.one_of(&[Op::Read, Op::Write]);
                let lengths = [512, 4 * KIB, random.one_of(&[4 * KIB, 3000 * KIB])];
                let outstanding = random.below(20) as usize;
                loads.push(world.backlog(shard, class, op, &lengths, outstanding));
                world.loads[loads[loads.len() - 1]].closed = at % 2 == 0;
            }
        }
        for _ in 0..200 {
            world.send(random.one_of(&loads));
            let pause_ns = random.below(300_000);
            world.run_for(pause_ns);
            if random.below(20) == 0 {
                let (shard, for_ns) = (random.below(shards as u64) as usize, random.below(3 * MS));
                world.sleep(shard, for_ns);
            }
        }
        world.drain();
    });
}

/// A queue that is dropped takes its work with it: neither its classes nor what it had in the device count any more.
#[test]
fn a_dropped_queue_leaves_nothing_behind() {
    for duplex in [false, true] {
        let disk = Arc::new(Disk::new(DiskConfig { duplex, ..usual() }));
        let group = disk.add_group(GroupId::ROOT, 900).unwrap();
        let (gone, stays) = (disk.add_class(group, 10).unwrap(), disk.add_class(GroupId::ROOT, 100).unwrap());
        let mut queue = IoQueue::new(Arc::clone(&disk), QueueConfig::default());
        for n in 0..300 {
            let op = if n % 2 == 0 { Op::Read } else { Op::Write };
            queue.enqueue(S, gone, op, 4 * KIB, n).unwrap();
        }
        let pieces: Vec<_> = std::iter::from_fn(|| queue.poll_dispatch(S)).collect();
        assert!(!pieces.is_empty() && queue.queued() > 0);
        drop(queue);
        drop(pieces);
        assert_eq!(disk.in_flight_ns(), 0, "duplex {duplex}");

        let mut queue = IoQueue::new(Arc::clone(&disk), QueueConfig::default());
        for n in 0..300 {
            queue.enqueue(2 * S, stays, Op::Read, 4 * KIB, n).unwrap();
        }
        assert!(queue.poll_dispatch(2 * S).is_some());
        let snapshot = queue.snapshot(2 * S);
        let part = snapshot.classes.iter().find(|class| class.class == stays).unwrap().part;
        assert_eq!(part, 1.0, "duplex {duplex}: it is alone");
        disk.remove(gone).unwrap();
        disk.remove(group).unwrap();
    }
}

/// What one direction of a duplex disk waits for says nothing about the other: a queue that hangs among the readers once
/// stopped the other readers for as long as writers waited for room.
#[test]
fn a_queue_that_does_not_poll_does_not_stop_its_direction_of_a_duplex_disk() {
    for (groups, lengths) in [(1, &[16 * KIB, 64 * KIB][..]), (3, &[16 * KIB, 64 * KIB]), (3, &[4 * KIB])] {
        let mut world = Shards::new(DiskConfig { duplex: true, groups, ..usual() }, 6);
        world.slowness = 0.5;
        for shard in 0..6 {
            let class = world.class(100);
            world.backlog(shard, class, if shard < 2 { Op::Read } else { Op::Write }, lengths, 64);
        }
        world.run_for(100 * MS);
        world.sleep(0, 100 * MS);
        world.run_for(2 * MS);
        world.start_counting();
        world.run_for(90 * MS);
        let part = world.consumed_s(1) / 0.09;
        assert!(part > 0.9, "{groups} groups, {lengths:?}: the other reader has {part}");
    }
}

/// The tokens of one group are not all that there are: waiting for them is not sleeping past one's turn.
#[test]
fn a_queue_that_does_not_poll_does_not_stop_a_disk_with_groups() {
    for queues in [3, 6] {
        let mut world = Shards::new(DiskConfig { groups: 3, ..usual() }, queues);
        for shard in 0..queues {
            let class = world.class(100);
            world.backlog(shard, class, Op::Read, &[16 * KIB, 64 * KIB], 64);
        }
        world.run_for(100 * MS);
        world.sleep(0, 100 * MS);
        world.run_for(2 * MS);
        world.start_counting();
        world.run_for(90 * MS);
        let part = world.total_s() / 0.09;
        assert!(part > 0.9, "{queues} queues: {part}");
    }
}
