//! Reservations: a class gets min(demand, reservation) in nearly every 100 ms window, whatever the shares, on several
//! queues too; what could not be given is not owed for ever; promises that exceed the disk shrink.

use crate::common::{KIB, MS, S, unit_cost, usual};
use crate::reference::shards::Shards;
use plimsoll_core::{ClassId, GroupId, Limits, NodeId, Op, Qos, Rate, Reservation};

fn reserve(world: &Shards, node: impl Into<NodeId>, iops: u64, bandwidth: u64) {
    let qos = Qos { reservation: Reservation { iops, bandwidth }, ..Qos::default() };
    world.disk.set_qos(node, qos).unwrap();
}

/// Part of the 100 ms windows (one begins each 10 ms) in which the loads got at least `least` of what `count` counts.
fn part_of_good_windows(world: &Shards, loads: &[usize], from_ns: u64, bytes: bool, least: f64) -> f64 {
    let of_load = world.log.iter().filter(|sent| loads.contains(&sent.load));
    let amounts: Vec<(u64, u64)> = of_load
        .map(|sent| (sent.at_ns, if bytes { u64::from(sent.bytes) } else { u64::from(sent.is_first) }))
        .collect();
    let (mut windows, mut good) = (0, 0);
    let mut begin_ns = from_ns;
    while begin_ns + 100 * MS <= world.now_ns {
        let first = amounts.partition_point(|(at_ns, _)| *at_ns < begin_ns);
        let last = amounts.partition_point(|(at_ns, _)| *at_ns < begin_ns + 100 * MS);
        let got: u64 = amounts[first..last].iter().map(|(_, amount)| amount).sum();
        windows += 1;
        good += u32::from(got as f64 >= least);
        begin_ns += 10 * MS;
    }
    f64::from(good) / f64::from(windows)
}

#[test]
fn every_window_has_what_is_reserved() {
    // Reservation in bytes/s or requests/s, length, queues that the class runs on.
    let table = [
        (0, 300_000_000, 64 * KIB, 1),
        (0, 800_000_000, 128 * KIB, 1),
        (0, 600_000_000, 64 * KIB, 2),
        (50_000, 0, 4 * KIB, 1),
        (50_000, 0, 4 * KIB, 2),
        (500, 0, 4 * KIB, 1),
    ];
    for (iops, bandwidth, len_bytes, queues) in table {
        let mut world = Shards::new(usual(), 2);
        let (reserved, hog) = (world.class(1), world.class(1000));
        reserve(&world, reserved, iops, bandwidth);
        let loads: Vec<usize> =
            (0..queues).map(|shard| world.backlog(shard, reserved, Op::Read, &[len_bytes], 64)).collect();
        for shard in 0..2 {
            world.backlog(shard, hog, Op::Write, &[128 * KIB], 32);
        }
        world.run_for(2 * S);
        let (bytes, least) = if iops > 0 {
            (false, iops as f64 / 10.0 - 1.0)
        } else {
            (true, bandwidth as f64 / 10.0 - f64::from(len_bytes))
        };
        let good = part_of_good_windows(&world, &loads, 200 * MS, bytes, least);
        assert!(good >= 0.995, "{iops} requests/s, {bandwidth} B/s of {len_bytes} on {queues}: {good}");
        assert!(world.total_s() > 0.97 * 2.0, "nothing is lost by it: {}", world.total_s());
    }
}

#[test]
fn a_demand_below_the_reservation_is_served_as_it_comes() {
    let mut world = Shards::new(usual(), 2);
    let (reserved, hog) = (world.class(1), world.class(1000));
    reserve(&world, reserved, 20_000, 0);
    let load = world.steady(0, reserved, Op::Read, &[4 * KIB], 100_000);
    world.backlog(1, hog, Op::Write, &[128 * KIB], 32);
    world.run_for(2 * S);
    let good = part_of_good_windows(&world, &[load], 200 * MS, false, 1_000.0 - 2.0);
    assert!(good >= 0.995, "{good}");
}

/// A class gets the larger of its reservation and its share, not the sum.
#[test]
fn a_reservation_below_the_share_changes_nothing() {
    let mut world = Shards::new(usual(), 1);
    let classes = [world.class(100), world.class(100)];
    reserve(&world, classes[0], 0, 200_000_000);
    let loads = classes.map(|class| world.backlog(0, class, Op::Read, &[64 * KIB], 32));
    world.run_for(2 * S);
    let ratio = world.consumed_s(loads[0]) / world.consumed_s(loads[1]);
    assert!((0.97..=1.03).contains(&ratio), "{ratio}");
}

#[test]
fn what_could_not_be_given_is_owed_for_a_short_time_only() {
    // The disk stands still for a second; afterwards the class may catch up on 200 ms of its reservation, not on all.
    let mut world = Shards::new(usual(), 1);
    let (reserved, other) = (world.class(1), world.class(1000));
    reserve(&world, reserved, 0, 500_000_000);
    let load = world.backlog(0, reserved, Op::Read, &[64 * KIB], 32);
    world.backlog(0, other, Op::Read, &[64 * KIB], 32);
    world.run_for(500 * MS);
    world.sleep(0, S);
    world.run_for(S);
    world.start_counting();
    world.run_for(S);
    let bytes = world.loads[load].dispatched_bytes as f64;
    assert!((4.9e8..=6.1e8).contains(&bytes), "{bytes}");
}

/// Checks that `class`, for which `reserved` (itself or its group) has 200 MB/s, gets no more than that after 2 s without
/// requests, beside a class that leaves it nothing.
fn check_that_idleness_is_not_saved_up(mut world: Shards, reserved: impl Into<NodeId>, class: ClassId) {
    let other = world.class(1000);
    reserve(&world, reserved, 0, 200_000_000);
    world.backlog(0, other, Op::Read, &[64 * KIB], 32);
    world.run_for(2 * S);
    world.start_counting();
    let load = world.backlog(0, class, Op::Read, &[64 * KIB], 32);
    world.run_for(500 * MS);
    let bytes = world.loads[load].dispatched_bytes as f64;
    assert!((0.98e8..=1.05e8).contains(&bytes), "{bytes}");
}

#[test]
fn idleness_is_not_saved_up() {
    let world = Shards::new(usual(), 1);
    let reserved = world.class(1);
    check_that_idleness_is_not_saved_up(world, reserved, reserved);
}

#[test]
fn promises_beyond_the_disk_shrink_in_proportion() {
    // 1.2 and 0.6 of the disk are promised; nothing is left for the third, which is not promised anything.
    for queues in [1, 2] {
        let mut world = Shards::new(unit_cost(), queues);
        let classes = [world.class(10), world.class(10), world.class(10)];
        reserve(&world, classes[0], 1_200_000, 0);
        reserve(&world, classes[1], 600_000, 0);
        let loads: Vec<usize> = classes
            .iter()
            .enumerate()
            .map(|(at, c)| world.backlog(at % queues, *c, Op::Read, &[4 * KIB], 2_000))
            .collect();
        world.run_for(500 * MS);
        world.start_counting();
        world.run_for(500 * MS);
        let ratio = world.consumed_s(loads[0]) / world.consumed_s(loads[1]);
        // Two queues do not see each other's tags: there the larger gets more, but not in proportion.
        let expected = if queues == 1 { 1.8..=2.2 } else { 1.2..=5.0 };
        assert!(expected.contains(&ratio), "on {queues}: {ratio}");
        assert!(world.total_s() > 0.48, "on {queues}: {}", world.total_s());
        // After 100 ms of arrears, their time runs at 1/1.8 of the clock's speed.
        let behind_ns = world.disk.snapshot().reservations_behind_ns;
        assert!((290 * MS..=360 * MS).contains(&behind_ns), "on {queues}: {behind_ns}");
    }
}

#[test]
fn set_and_removed_while_running() {
    let mut world = Shards::new(usual(), 2);
    let (class, hog) = (world.class(1), world.class(1000));
    let load = world.backlog(0, class, Op::Read, &[64 * KIB], 32);
    world.backlog(1, hog, Op::Write, &[64 * KIB], 32);
    let table = [(0, 0.0..0.01), (400_000_000, 0.38..0.50), (0, 0.0..0.01), (100_000_000, 0.095..0.14)];
    for (bandwidth, expected) in table {
        reserve(&world, class, 0, bandwidth);
        world.poll_all();
        world.run_for(300 * MS);
        world.start_counting();
        world.run_for(500 * MS);
        let part = world.consumed_s(load) / world.total_s();
        assert!(expected.contains(&part), "{bandwidth}: {part}");
    }
}

/// A class that the limit of its group holds back is not owed anything by the disk: what others have reserved comes whole.
#[test]
fn the_limit_of_a_group_does_not_slip_the_reservations_of_others() {
    for queues in [1, 2] {
        let mut world = Shards::new(usual(), queues);
        let group = world.disk.add_group(GroupId::ROOT, 100).unwrap();
        let limits = Limits { iops: Rate::per_second(1_000), ..Limits::default() };
        world.disk.set_qos(group, Qos { limits, ..Qos::default() }).unwrap();
        let inside = world.disk.add_class(group, 100).unwrap();
        let (beside, hog) = (world.class(1), world.class(1_000));
        reserve(&world, inside, 10_000, 0);
        reserve(&world, beside, 20_000, 0);
        let of_inside = world.backlog(0, inside, Op::Read, &[4 * KIB], 64);
        let of_beside = world.backlog(queues - 1, beside, Op::Read, &[4 * KIB], 64);
        world.backlog(0, hog, Op::Write, &[64 * KIB], 64);
        world.run_for(500 * MS);
        world.start_counting();
        world.run_for(S);
        let [inside, beside] = [of_inside, of_beside].map(|load| world.loads[load].dispatched);
        assert!((980..=1_020).contains(&inside), "{queues} queues: {inside} of 1000 that the limit allows");
        assert!(beside >= 19_800, "{queues} queues: {beside} of 20000 reserved");
    }
}

/// A reservation of a group is for whichever of its classes ask, in whichever queues; between them, shares decide.
#[test]
fn what_a_group_has_reserved_is_for_those_of_its_classes_that_ask() {
    for (queues, asking) in [(1, 1), (1, 2), (2, 1), (2, 2), (1, 4), (2, 4)] {
        let mut world = Shards::new(usual(), queues);
        let group = world.disk.add_group(GroupId::ROOT, 1).unwrap();
        let classes = [(); 4].map(|()| world.disk.add_class(group, 100).unwrap());
        let hog = world.class(1_000);
        reserve(&world, group, 50_000, 0);
        let loads: Vec<usize> = (0..asking)
            .map(|number| world.backlog(number % queues, classes[number], Op::Read, &[4 * KIB], 64))
            .collect();
        for shard in 0..queues {
            world.backlog(shard, hog, Op::Write, &[128 * KIB], 32);
        }
        world.run_for(2 * S);
        let what = format!("{asking} classes in {queues} queues");
        let good = part_of_good_windows(&world, &loads, 200 * MS, false, 5_000.0 - 1.0);
        assert!(good >= 0.995, "{what}: {good}");
        let dispatched: Vec<u64> = loads.iter().map(|load| world.loads[*load].dispatched).collect();
        let all: u64 = dispatched.iter().sum();
        assert!((100_000 - 10..110_000).contains(&all), "{what}: {dispatched:?}");
        let part = all as f64 / asking as f64;
        assert!(dispatched.iter().all(|of| (*of as f64 / part - 1.0).abs() < 0.05), "{what}: {dispatched:?}");
    }
}

/// The idle time of a group earns it nothing, and the group is idle only if all its classes are.
#[test]
fn a_group_saves_nothing_up() {
    let world = Shards::new(usual(), 1);
    let group = world.disk.add_group(GroupId::ROOT, 1).unwrap();
    let class = world.disk.add_class(group, 100).unwrap();
    check_that_idleness_is_not_saved_up(world, group, class);
}

/// A reservation of a group holds with groups inside it that have reservations of their own, and while classes come and
/// go; those inside are part of it.
#[test]
fn what_a_group_has_reserved_holds_with_groups_inside_it_and_while_classes_come_and_go() {
    for queues in [1, 2] {
        let mut world = Shards::new(usual(), queues);
        let outer = world.disk.add_group(GroupId::ROOT, 1).unwrap();
        let inner = world.disk.add_group(outer, 1).unwrap();
        let (beside, hog) = (world.disk.add_class(outer, 100).unwrap(), world.class(1_000));
        reserve(&world, outer, 50_000, 0);
        reserve(&world, inner, 20_000, 0);
        for shard in 0..queues {
            world.backlog(shard, hog, Op::Write, &[128 * KIB], 32);
        }

        let add = |world: &mut Shards, class| -> Vec<usize> {
            (0..queues).map(|shard| world.backlog(shard, class, Op::Read, &[4 * KIB], 64)).collect()
        };
        let check = |world: &mut Shards, loads: &[&Vec<usize>], expected: &[u64]| {
            world.poll_all();
            world.run_for(200 * MS);
            world.start_counting();
            world.run_for(500 * MS);
            let dispatched = |loads: &&Vec<usize>| loads.iter().map(|load| world.loads[*load].dispatched * 2).sum();
            let of: Vec<u64> = loads.iter().map(dispatched).collect();
            let is_near = |(of, expected): (&u64, &u64)| of.abs_diff(*expected) <= 200 + expected / 40;
            assert!(of.iter().zip(expected).all(is_near), "{queues} queues: {of:?}, expected {expected:?}");
        };

        // A class that asks alone has all that the outer group has reserved.
        let first = world.disk.add_class(inner, 100).unwrap();
        let of_first = add(&mut world, first);
        check(&mut world, &[&of_first], &[50_000]);
        // With one share beside a hundred, the inner group has what it has reserved.
        let of_beside = add(&mut world, beside);
        check(&mut world, &[&of_first, &of_beside], &[20_000, 30_000]);
        let second = world.disk.add_class(inner, 300).unwrap();
        let of_second = add(&mut world, second);
        check(&mut world, &[&of_first, &of_second, &of_beside], &[5_000, 15_000, 30_000]);

        for (class, loads) in [(first, of_first), (second, of_second)] {
            loads.iter().for_each(|load| world.loads[*load].closed = false);
            world.disk.remove(class).unwrap();
        }
        check(&mut world, &[&of_beside], &[50_000]);
        let third = world.disk.add_class(inner, 100).unwrap();
        let of_third = add(&mut world, third);
        check(&mut world, &[&of_third, &of_beside], &[20_000, 30_000]);
    }
}

/// A class at its limit, or at that of a group inside, does not ask for what the group has reserved: when the limit is
/// lifted there are no arrears, and others have what is theirs.
#[test]
fn what_a_limit_leaves_of_a_groups_reservation_is_not_saved_up() {
    for (queues, is_group_limited) in [(1, false), (1, true), (2, false), (2, true)] {
        let mut world = Shards::new(usual(), queues);
        let group = world.disk.add_group(GroupId::ROOT, 1).unwrap();
        let inner = world.disk.add_group(group, 100).unwrap();
        let classes = [(); 2].map(|()| world.disk.add_class(inner, 100).unwrap());
        let limits = Limits { iops: Rate::per_second(1_000), ..Limits::default() };
        let limited: NodeId = if is_group_limited { inner.into() } else { classes[0].into() };
        world.disk.set_qos(limited, Qos { limits, ..Qos::default() }).unwrap();
        let (beside, hog) = (world.class(1), world.class(1_000));
        reserve(&world, group, 20_000, 0);
        reserve(&world, beside, 20_000, 0);
        let asking = &classes[..if is_group_limited { 2 } else { 1 }];
        let of_group: Vec<usize> = asking.iter().map(|c| world.backlog(0, *c, Op::Read, &[4 * KIB], 64)).collect();
        let of_beside = world.backlog(queues - 1, beside, Op::Read, &[4 * KIB], 64);
        world.backlog(0, hog, Op::Write, &[64 * KIB], 64);
        world.run_for(S);

        world.disk.set_qos(limited, Qos::default()).unwrap();
        world.poll_all();
        world.start_counting();
        world.run_for(100 * MS);
        let of_group: u64 = of_group.iter().map(|load| world.loads[*load].dispatched).sum();
        let of_beside = world.loads[of_beside].dispatched;
        let what = format!("{queues} queues, group limited: {is_group_limited}");
        assert!(of_group <= 2_100, "{what}: {of_group} of 2000 that are reserved in the time");
        assert!(of_beside >= 1_950, "{what}: {of_beside} of 2000");
    }
}
