//! Limits: never more than 1.01 * rate * t and one request (and the burst), each of the six, for a class and for a
//! group over several queues, also when they change while running.

use std::sync::Arc;

use crate::common::{KIB, MS, S, queue_of, usual};
use crate::reference::shards::{Sent, Shards};
use plimsoll_core::{Disk, GroupId, IoQueue, Limits, NodeId, Op, Outcome, Qos, QueueConfig, Rate};

fn limited(limits: Limits) -> Qos {
    Qos { limits, ..Qos::default() }
}

/// Over every interval that begins with a dispatch: at most 1.01 * rate * t + `extra`, `extra` the burst and one
/// request.
fn check_windows(log: &[(u64, u64)], rate_per_s: f64, extra: f64, what: &str) {
    for (at, (begin_ns, _)) in log.iter().enumerate().step_by(1 + log.len() / 300) {
        let mut got = 0;
        for (now_ns, amount) in &log[at..] {
            got += amount;
            let most = 1.01 * rate_per_s * (now_ns - begin_ns) as f64 / 1e9 + extra;
            assert!(got as f64 <= most + 1e-6, "{what}: {got} in {} ns, not more than {most}", now_ns - begin_ns);
        }
    }
}

/// Requests (a request counts with its first piece) or bytes of the log, of the chosen loads.
fn amounts(log: &[Sent], loads: &[usize], bytes: bool) -> Vec<(u64, u64)> {
    let amount = |sent: &Sent| if bytes { u64::from(sent.bytes) } else { u64::from(sent.is_first) };
    log.iter().filter(|sent| loads.contains(&sent.load)).map(|sent| (sent.at_ns, amount(sent))).collect()
}

#[test]
fn each_of_the_six_with_and_without_burst() {
    const IOPS: u64 = 2_000;
    const BANDWIDTH: u64 = 50_000_000;
    let (iops, bandwidth) = (Rate::per_second(IOPS), Rate::per_second(BANDWIDTH));
    let none = Limits::default();
    // Limit, whether it counts bytes, whether it holds for reads and for writes.
    let table = [
        ("iops", Limits { iops, ..none }, false, true, true),
        ("read_iops", Limits { read_iops: iops, ..none }, false, true, false),
        ("write_iops", Limits { write_iops: iops, ..none }, false, false, true),
        ("bandwidth", Limits { bandwidth, ..none }, true, true, true),
        ("read_bandwidth", Limits { read_bandwidth: bandwidth, ..none }, true, true, false),
        ("write_bandwidth", Limits { write_bandwidth: bandwidth, ..none }, true, false, true),
    ];
    for (name, limits, bytes, of_reads, of_writes) in table {
        for burst_ns in [0, 20 * MS] {
            for (op, is_limited) in [(Op::Read, of_reads), (Op::Write, of_writes)] {
                let mut world = Shards::new(usual(), 1);
                let class = world.class(100);
                world.disk.set_qos(class, limited(Limits { burst_ns, ..limits })).unwrap();
                let lengths = [4 * KIB, 64 * KIB, 300 * KIB];
                world.run_for(500 * MS);
                let load = world.backlog(0, class, op, &lengths, 32);
                world.run_for(S);
                let what = format!("{name}, burst {burst_ns} ns, {op:?}");
                let rate = if bytes { BANDWIDTH } else { IOPS } as f64;
                let got: u64 = amounts(&world.log, &[load], bytes).iter().map(|(_, amount)| amount).sum();
                if !is_limited {
                    assert!(got as f64 > 3.0 * rate, "{what}: {got}, although it is not limited");
                    continue;
                }
                let request =
                    if bytes { f64::from(world.disk.piece_max_bytes(op.direction()).min(300 * KIB)) } else { 1.0 };
                let burst = rate * burst_ns as f64 / 1e9;
                check_windows(&amounts(&world.log, &[load], bytes), rate, burst + request, &what);
                assert!(got as f64 >= 0.98 * rate, "{what}: {got}, although {rate} are allowed");
                assert!(burst == 0.0 || got as f64 >= 0.98 * (rate + burst) - request, "{what}: {got}: no burst");
            }
        }
    }
}

#[test]
fn a_split_request_pays_for_all_its_bytes_and_counts_once() {
    let mut world = Shards::new(usual(), 1);
    let class = world.class(100);
    let (iops, bandwidth) = (Rate::per_second(20), Rate::per_second(100_000_000));
    world.disk.set_qos(class, limited(Limits { iops, bandwidth, ..Limits::default() })).unwrap();
    let load = world.backlog(0, class, Op::Read, &[8192 * KIB], 4);
    world.run_for(2 * S);
    let requests: u64 = amounts(&world.log, &[load], false).iter().map(|(_, n)| n).sum();
    let bytes: u64 = amounts(&world.log, &[load], true).iter().map(|(_, n)| n).sum();
    let piece = u64::from(world.disk.piece_max_bytes(Op::Read.direction()));
    assert!(bytes <= 202_000_000 + piece && bytes >= 196_000_000, "{bytes}");
    assert_eq!(requests, bytes.div_ceil(8192 * 1024));
}

#[test]
fn who_is_not_limited_takes_what_the_limited_leave() {
    let mut world = Shards::new(usual(), 2);
    let (free, backup) = (world.class(10), world.class(1000));
    let bandwidth = Rate::per_second(100_000_000);
    world.disk.set_qos(backup, limited(Limits { bandwidth, ..Limits::default() })).unwrap();
    let of_free = world.backlog(0, free, Op::Read, &[128 * KIB], 32);
    let of_backup = world.backlog(1, backup, Op::Write, &[128 * KIB], 32);
    world.run_for(100 * MS);
    world.start_counting();
    world.run_for(S);
    assert!(world.total_s() > 0.97, "{}", world.total_s());
    let bytes = world.loads[of_backup].dispatched_bytes as f64;
    assert!((0.95e8..=1.01e8 + 131_072.0).contains(&bytes), "{bytes}");
    assert!(world.consumed_s(of_free) > 0.85);
}

#[test]
fn of_a_group_over_several_queues() {
    let mut world = Shards::new(usual(), 3);
    let group = world.disk.add_group(GroupId::ROOT, 100).unwrap();
    let (bandwidth, iops) = (Rate::per_second(200_000_000), Rate::per_second(900));
    world.disk.set_qos(group, limited(Limits { bandwidth, ..Limits::default() })).unwrap();
    let classes = [100, 300].map(|shares| world.disk.add_class(group, shares).unwrap());
    let inner = limited(Limits { iops, ..Limits::default() });
    world.disk.set_qos(classes[0], inner).unwrap();
    let other = world.class(1);
    let mut loads = Vec::new();
    for shard in 0..3 {
        for class in classes {
            loads.push(world.backlog(shard, class, Op::Read, &[32 * KIB, 100 * KIB], 16));
        }
        world.backlog(shard, other, Op::Read, &[64 * KIB], 16);
    }
    world.run_for(2 * S);
    let in_group = amounts(&world.log, &loads, true);
    // Each of the three queues may be late with the place it has booked.
    check_windows(&in_group, 2e8, 3.0 * f64::from(100 * KIB), "group");
    let of_first: Vec<usize> = loads.iter().copied().step_by(2).collect();
    // An interval begins with a request that may itself be late, by a retry or two of 50 us.
    check_windows(&amounts(&world.log, &of_first, false), 900.0, 3.0 + 900.0 * 100e-6, "class in it");
    let got: u64 = in_group.iter().map(|(_, bytes)| bytes).sum();
    assert!(got as f64 > 0.97 * 4e8, "{got}");
    assert!(world.total_s() > 0.97 * 2.0, "the rest goes to the other class: {}", world.total_s());
}

#[test]
fn changed_and_removed_while_running() {
    let mut world = Shards::new(usual(), 2);
    let class = world.class(100);
    let nodes: [NodeId; 2] = [class.into(), GroupId::ROOT.into()];
    let loads: Vec<usize> = (0..2).map(|shard| world.backlog(shard, class, Op::Read, &[4 * KIB], 64)).collect();
    for node in nodes {
        for per_s in [100, 20_000, 1_000] {
            let limits = Limits { iops: Rate::per_second(per_s), ..Limits::default() };
            world.disk.set_qos(node, limited(limits)).unwrap();
            world.poll_all();
            // What the limit before had put off is at most one request's time.
            world.run_for(20 * MS);
            world.start_counting();
            world.run_for(500 * MS);
            let log = amounts(&world.log, &loads, false);
            check_windows(&log, per_s as f64, 1.0, "changed");
            assert!(log.len() as f64 >= 0.98 * per_s as f64 / 2.0 - 1.0, "{} of {per_s}", log.len());
        }
        world.disk.set_qos(node, Qos::default()).unwrap();
        world.poll_all();
        world.run_for(5 * MS);
        world.start_counting();
        world.run_for(200 * MS);
        assert!(world.total_s() > 0.19, "unlimited again: {}", world.total_s());
    }
    world.drain();
}

/// A low limit is a long time between requests: raising it must not wait for the end of that time.
#[test]
fn raising_a_low_limit_is_felt_at_once() {
    let mut world = Shards::new(usual(), 1);
    let class = world.class(100);
    let limit = |per_s| limited(Limits { iops: Rate::per_second(per_s), ..Limits::default() });
    world.disk.set_qos(class, limit(1)).unwrap();
    let load = world.backlog(0, class, Op::Read, &[4 * KIB], 64);
    world.run_for(100 * MS);
    assert_eq!(world.loads[load].dispatched, 1);
    world.disk.set_qos(class, limit(10_000)).unwrap();
    world.poll_all();
    world.run_for(100 * MS);
    assert!(world.loads[load].dispatched > 900, "{}", world.loads[load].dispatched);
}

#[test]
fn a_limited_class_can_be_removed_while_it_waits() {
    let mut world = Shards::new(usual(), 1);
    let class = world.class(100);
    world.disk.set_qos(class, limited(Limits { iops: Rate::per_second(10), ..Limits::default() })).unwrap();
    world.backlog(0, class, Op::Read, &[4 * KIB], 8);
    world.run_for(150 * MS);
    world.disk.remove(class).unwrap();
    let mut cancelled = 0;
    world.shards[0].queue.follow_classes(|_| cancelled += 1);
    assert_eq!(cancelled, 8);
    world.loads.iter_mut().for_each(|load| load.closed = false);
    world.drain();
    assert_eq!(world.shards[0].queue.next_wakeup(), None);
    let next = world.class(1);
    world.backlog(0, next, Op::Read, &[4 * KIB], 8);
    world.run_for(S);
    assert!(world.loads[1].dispatched > 1_000);
}

/// A class at a limit of `per_s` requests and `burst_ns`, always with work, on queues that are polled when `next_poll_ns` says
/// (given the time of the last poll and the wake-up that the queue asked for), and a device that takes no time. When requests went.
fn polled(queues: usize, limits: Limits, for_ns: u64, next_poll_ns: impl Fn(u64, u64) -> u64) -> Vec<(u64, u64)> {
    let disk = Arc::new(Disk::new(usual()));
    let class = disk.add_class(GroupId::ROOT, 100).unwrap();
    disk.set_qos(class, limited(limits)).unwrap();
    let mut queues: Vec<_> =
        (0..queues).map(|_| (S, IoQueue::new(Arc::clone(&disk), QueueConfig::default()))).collect();
    let mut log = Vec::new();
    loop {
        let (now_ns, queue) = queues.iter_mut().min_by_key(|(at_ns, _)| *at_ns).unwrap();
        if *now_ns > S + for_ns {
            return log;
        }
        while queue.queued() < 64 {
            queue.enqueue(*now_ns, class, Op::Read, 4 * KIB, 0).unwrap();
        }
        while let Some(piece) = queue.poll_dispatch(*now_ns) {
            log.push((*now_ns, 1));
            queue.complete(*now_ns, piece, Outcome::Moved(4 * KIB));
            queue.enqueue(*now_ns, class, Op::Read, 4 * KIB, 0).unwrap();
        }
        *now_ns = next_poll_ns(*now_ns, queue.next_wakeup().unwrap());
    }
}

/// Who looks late sends at once what the limit has allowed meanwhile, and no more than that.
#[test]
fn a_late_poll_loses_nothing_of_a_limit_without_burst() {
    const IOPS: u64 = 30_000;
    let limits = Limits { iops: Rate::per_second(IOPS), ..Limits::default() };
    for queues in [1, 2] {
        for late_ns in [10_000, 50_000, 300_000, 900_000] {
            let each_period = polled(queues, limits, S, |now_ns, _| now_ns + late_ns);
            let late = polled(queues, limits, S, |_, wakeup_ns| wakeup_ns + late_ns);
            for (log, what) in [(each_period, "polled each"), (late, "woken late by")] {
                let what = format!("{what} {late_ns} ns, {queues} queues");
                assert!(log.len() as f64 >= 0.98 * IOPS as f64, "{what}: {}", log.len());
                let caught_up = IOPS as f64 * late_ns as f64 / 1e9;
                check_windows(&log, IOPS as f64, caught_up + queues as f64, &what);
            }
        }
    }
}

#[test]
fn a_very_late_poll_catches_up_with_one_millisecond() {
    let limits = Limits { iops: Rate::per_second(30_000), ..Limits::default() };
    let log = polled(1, limits, S, |_, wakeup_ns| wakeup_ns + 20 * MS);
    check_windows(&log, 30_000.0, 30.0 + 1.0, "20 ms late");
}

/// Time without work is no lateness: after it one request goes, not a millisecond of them.
#[test]
fn idle_time_is_not_caught_up() {
    let mut queue = queue_of(usual(), QueueConfig::default());
    let class = queue.disk().add_class(GroupId::ROOT, 100).unwrap();
    let limits = Limits { iops: Rate::per_second(30_000), ..Limits::default() };
    queue.disk().set_qos(class, limited(limits)).unwrap();
    let mut send = |now_ns, count: u64| {
        for n in 0..count {
            queue.enqueue(now_ns, class, Op::Read, 4 * KIB, n).unwrap();
        }
        let mut sent = 0;
        while let Some(piece) = queue.poll_dispatch(now_ns) {
            sent += 1;
            let _ = queue.complete(now_ns, piece, Outcome::Moved(4 * KIB));
        }
        sent
    };
    assert_eq!(send(S, 2), 1);
    assert_eq!(send(S + MS, 0), 1, "the second, late");
    assert_eq!(send(S + 2 * MS, 20), 1);
}

/// What has been used of a burst stays used when the limit changes, at the new rate or with the new burst.
#[test]
fn a_change_does_not_refill_the_burst() {
    let changes: [fn(u64) -> Limits; 2] = [
        |turn| Limits { iops: Rate::per_second(1_000 + turn % 2), burst_ns: S, ..Limits::default() },
        |turn| Limits { iops: Rate::per_second(1_000), burst_ns: S - turn % 2, ..Limits::default() },
    ];
    for change in changes {
        for shards in [1, 2] {
            let mut world = Shards::new(usual(), shards);
            world.run_for(S);
            let class = world.class(100);
            world.disk.set_qos(class, limited(change(0))).unwrap();
            for shard in 0..shards {
                world.backlog(shard, class, Op::Read, &[4 * KIB], 64);
            }
            for turn in 1..=10 {
                world.run_for(100 * MS);
                world.disk.set_qos(class, limited(change(turn))).unwrap();
                world.poll_all();
            }
            let sent = world.log.len();
            assert!((1_950..=2_010).contains(&sent), "{shards} queues: {sent} of 2000 allowed");
        }
    }
}

/// A burst that was used at a high rate counts in requests, not in time, at a low one.
#[test]
fn what_was_used_is_kept_in_requests() {
    let mut world = Shards::new(usual(), 1);
    let class = world.class(100);
    let limit = |per_s, burst_ns| limited(Limits { iops: Rate::per_second(per_s), burst_ns, ..Limits::default() });
    world.run_for(S);
    world.disk.set_qos(class, limit(10_000, 100 * MS)).unwrap();
    let load = world.backlog(0, class, Op::Read, &[4 * KIB], 64);
    world.run_for(50 * MS);
    assert!((1_450..=1_510).contains(&world.loads[load].dispatched), "{}", world.loads[load].dispatched);
    // About 1000 requests are used ahead; at 2000 a second they are there again after 0.5 s.
    world.disk.set_qos(class, limit(2_000, 0)).unwrap();
    world.poll_all();
    world.start_counting();
    world.run_for(480 * MS);
    assert!(world.loads[load].dispatched <= 3, "{}", world.loads[load].dispatched);
    world.run_for(520 * MS);
    assert!((950..=1_060).contains(&world.loads[load].dispatched), "{}", world.loads[load].dispatched);
}

/// Controllers of background work change shares many times a second; that ends the wait for no limit.
#[test]
fn changes_of_other_classes_bring_no_request_forward() {
    let mut world = Shards::new(usual(), 2);
    let (class, other) = (world.class(100), world.class(100));
    world.disk.set_qos(class, limited(Limits { iops: Rate::per_second(10), ..Limits::default() })).unwrap();
    let loads: Vec<usize> = (0..2).map(|shard| world.backlog(shard, class, Op::Read, &[4 * KIB], 64)).collect();
    for turn in 0..400 {
        world.run_for(5 * MS);
        world.disk.set_shares(other, 100 + turn % 2).unwrap();
        world.poll_all();
    }
    let log = amounts(&world.log, &loads, false);
    // Each of the two queues may be late with the place it has booked.
    check_windows(&log, 10.0, 2.0, "changed shares");
    assert!(log.len() >= 18, "{} of 20", log.len());
}

/// Regression: a place that a queue had booked was lost when the limit changed, so each of four queues waited for
/// another: four requests of the new limit's time.
#[test]
fn a_booked_place_moves_with_the_limit() {
    // In the last cases the limit changes twice before the queues ask for their places again.
    let table = [(100, None, 10, 0), (1_000, None, 20, 0), (100, None, 50, 20 * MS), (10, None, 100, 0)];
    let twice = [(10, Some(1_000), 10, 0), (100, Some(10), 50, 20 * MS), (10, Some(1), 100, 0)];
    for (before, between, after, burst_ns) in table.into_iter().chain(twice) {
        let mut world = Shards::new(usual(), 4);
        let class = world.class(100);
        let limit = |per_s| limited(Limits { iops: Rate::per_second(per_s), burst_ns, ..Limits::default() });
        world.disk.set_qos(class, limit(before)).unwrap();
        let loads: Vec<usize> = (0..4).map(|shard| world.backlog(shard, class, Op::Read, &[4 * KIB], 64)).collect();
        world.run_for(2 * S + 3 * MS);
        if let Some(between) = between {
            world.disk.set_qos(class, limit(between)).unwrap();
            for shard in &mut world.shards {
                shard.queue.follow_classes(|_| {});
            }
        }
        world.disk.set_qos(class, limit(after)).unwrap();
        world.poll_all();
        world.start_counting();
        world.run_for(2 * S);
        let log = amounts(&world.log, &loads, false);
        let (what, rate) = (format!("{before} by {between:?} to {after}"), after as f64);
        let burst = rate * burst_ns as f64 / 1e9;
        check_windows(&log, rate, 1.0 + burst, &what);
        assert!(log.len() as f64 >= 0.98 * 2.0 * rate - burst - 1.0, "{what}: {} of {}", log.len(), 2.0 * rate);
    }
}

/// Processes one after the other, each of which had full buckets: together they exceeded the disk and each limit.
#[test]
fn disks_that_take_the_place_of_one_another_have_one_bucket() {
    const BANDWIDTH: u64 = 50_000_000;
    let bandwidth = Rate::per_second(BANDWIDTH);
    for limits in [Limits::default(), Limits { bandwidth, burst_ns: 20 * MS, ..Limits::default() }] {
        let (mut until, mut log, mut device_ns) = ([0; 64], Vec::new(), 0.0);
        let mut most_ns = 0.0;
        for now_ns in (1..=50).map(|turn| S + turn * MS) {
            let mut queue = queue_of(usual(), QueueConfig::default());
            let class = queue.disk().add_class(GroupId::ROOT, 100).unwrap();
            queue.disk().set_qos(class, limited(limits)).unwrap();
            queue.disk().merge_tokens(&mut until);
            for _ in 0..100 {
                queue.enqueue(now_ns, class, Op::Read, 64 * KIB, 0).unwrap();
            }
            while let Some(piece) = queue.poll_dispatch(now_ns) {
                let cost_ns = queue.disk().cost(Op::Read, piece.len_bytes()).as_secs_f64() * 1e9;
                device_ns += cost_ns;
                most_ns = 50.0 * MS as f64 + queue.disk().bucket_ns() as f64 + cost_ns;
                log.push((now_ns, u64::from(piece.len_bytes())));
                let all = Outcome::Moved(piece.len_bytes());
                let _ = queue.complete(now_ns, piece, all);
            }
            queue.disk().merge_tokens(&mut until);
        }
        assert!(device_ns <= most_ns && !log.is_empty(), "{device_ns} ns of device time, not more than {most_ns}");
        if limits.burst_ns > 0 {
            let extra = BANDWIDTH as f64 / 50.0 + f64::from(64 * KIB);
            check_windows(&log, BANDWIDTH as f64, extra, "one limit");
        }
    }
}
