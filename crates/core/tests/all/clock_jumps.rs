//! The clock leaps fifty years forward between any two calls: nothing panics, and shares and tokens are
//! right afterwards.

use crate::common::{FIFTY_YEARS_NS, KIB, Random, S, World, queue_of, usual};
use plimsoll_core::{DiskConfig, GroupId, Mode, Op, Outcome, Progress, QueueConfig};

const MODES: [Mode; 3] = [Mode::Scheduled, Mode::Depth(8), Mode::Drain];

/// One enqueue, poll, complete ... with the leap before the call of the number `leap_before`.
fn calls_with_a_leap(mode: Mode, duplex: bool, leap_before: usize, leap_ns: u64) {
    let mut queue = queue_of(DiskConfig { duplex, ..usual() }, QueueConfig { mode, ..QueueConfig::default() });
    let classes = [1, 10].map(|shares| queue.disk().add_class(GroupId::ROOT, shares).unwrap());
    let mut random = Random(leap_before as u64);
    let mut now_ns = 5;
    let mut call = 0;
    let mut tick = |now_ns: &mut u64| {
        call += 1;
        *now_ns = if call == leap_before { now_ns.saturating_add(leap_ns) } else { now_ns.saturating_add(1_000) };
        *now_ns
    };
    let mut in_device = Vec::new();
    for _ in 0..12 {
        let op = random.one_of(&[Op::Read, Op::Write]);
        queue.enqueue(tick(&mut now_ns), random.one_of(&classes), op, 600 * KIB, 0).unwrap();
        in_device.extend(queue.poll_dispatch(tick(&mut now_ns)));
        queue.backend_is_busy(now_ns);
        if random.below(2) == 0 && !in_device.is_empty() {
            let piece = in_device.swap_remove(0);
            let len_bytes = piece.len_bytes();
            let outcome = random.one_of(&[Outcome::Moved(len_bytes), Outcome::Moved(1), Outcome::Failed(5)]);
            if let Progress::Continue(rest) = queue.complete(tick(&mut now_ns), piece, outcome) {
                in_device.push(rest);
            }
        }
    }
    for piece in in_device {
        let _ = queue.refuse(tick(&mut now_ns), piece, 5);
    }
    assert_eq!(queue.disk().in_flight_ns(), 0);
    assert_eq!(queue.in_flight(), 0);
}

#[test]
fn a_leap_between_any_two_calls() {
    for mode in MODES {
        for duplex in [false, true] {
            for leap_before in 0..50 {
                for leap_ns in [FIFTY_YEARS_NS, 2 * FIFTY_YEARS_NS, 10 * FIFTY_YEARS_NS, u64::MAX] {
                    calls_with_a_leap(mode, duplex, leap_before, leap_ns);
                }
            }
        }
    }
}

#[test]
fn shares_and_tokens_are_right_after_two_leaps() {
    for mode in [Mode::Scheduled, Mode::Depth(8)] {
        let mut world = World::new(queue_of(usual(), QueueConfig { mode, ..QueueConfig::default() }), 1, 1.0);
        world.load(100, Op::Read, &[4 * KIB], 200);
        world.load(300, Op::Read, &[4 * KIB], 200);
        for _ in 0..2 {
            world.run_until(world.now_ns + S);
            world.now_ns += FIFTY_YEARS_NS;
            world.start_counting();
            let start_ns = world.now_ns;
            world.run_until(start_ns + S);
            let consumed_s = world.consumed_s();
            let part = consumed_s[0] / (consumed_s[0] + consumed_s[1]);
            assert!((part - 0.25).abs() < 0.005, "{mode:?}: {consumed_s:?}");
            let total_s = consumed_s[0] + consumed_s[1];
            assert!((0.99..=1.0 + 0.00078).contains(&total_s), "{mode:?}: {total_s}");
        }
    }
}

#[test]
fn a_burst_after_fifty_years_is_one_depth() {
    // The device takes no time: only the tokens limit.
    let mut world = World::new(queue_of(usual(), QueueConfig::default()), 1, 0.0);
    let load = world.load(100, Op::Read, &[4 * KIB], 10);
    world.run_until(S);
    world.loads[load].on = false;
    world.run_until(S + S / 10);
    world.now_ns = FIFTY_YEARS_NS;
    world.loads[load].on = true;
    world.start_counting();
    world.send(load, 200);
    let start_ns = world.now_ns;
    world.run_until(start_ns + 10 * 1_000_000);
    let total_ns: u64 = world.log.iter().map(|sent| sent.fs / 1_000_000).sum();
    assert!((10_740_000..=10_760_000).contains(&total_ns), "{total_ns}");
}

#[test]
fn a_clock_that_steps_back_does_not_panic() {
    for mode in MODES {
        let mut queue = queue_of(usual(), QueueConfig { mode, ..QueueConfig::default() });
        let class = queue.disk().add_class(GroupId::ROOT, 1).unwrap();
        let mut random = Random(3);
        for _ in 0..2000 {
            let now_ns = random.below(S);
            queue.enqueue(now_ns, class, Op::Write, 64 * KIB, 0).unwrap();
            if let Some(piece) = queue.poll_dispatch(random.below(S)) {
                let _ = queue.complete(random.below(S), piece, Outcome::Moved(64 * KIB));
            }
        }
    }
}

/// A wait that began under a clock which was ahead ends under one that is behind.
#[test]
fn a_wait_across_a_step_back_does_not_panic() {
    let mut queue = queue_of(usual(), QueueConfig { mode: Mode::Depth(1), ..QueueConfig::default() });
    let classes = [1, 1].map(|shares| queue.disk().add_class(GroupId::ROOT, shares).unwrap());
    queue.enqueue(S, classes[0], Op::Read, 4 * KIB, 0).unwrap();
    queue.enqueue(S, classes[0], Op::Read, 4 * KIB, 0).unwrap();
    let first = queue.poll_dispatch(S).unwrap();
    assert!(queue.poll_dispatch(S).is_none());
    queue.enqueue(2 * S, classes[1], Op::Read, 4 * KIB, 1).unwrap();
    let _ = queue.complete(S + 5, first, Outcome::Moved(4 * KIB));
    let second = queue.poll_dispatch(S + 5).unwrap();
    assert_eq!((second.user_data(), second.waited_for()), (1, None));
}
