//! A class that comes back from idleness: it may go first for a bounded device time, and what it left went to the
//! others.

use crate::common::{KIB, MS, S, World, queue_of, usual};
use plimsoll_core::{Op, QueueConfig};

/// Device time in ns that a woken class of `shares` uses before a backlogged one of 100 is served again.
fn used_before_the_other(credit_ns: Option<u64>, shares: u32) -> u64 {
    let config = QueueConfig { wakeup_credit_ns: credit_ns, ..QueueConfig::default() };
    let mut world = World::new(queue_of(usual(), config), 1, 1.0);
    let steady = world.load(100, Op::Read, &[4 * KIB], 200);
    world.run_until(100 * MS);
    world.start_counting();
    let woken = world.load(shares, Op::Read, &[4 * KIB], 2000);
    world.run_until(120 * MS);
    let first = world.log.iter().position(|sent| sent.load == woken).unwrap();
    world.log[first..].iter().take_while(|sent| sent.load != steady).map(|sent| sent.fs / 1_000_000).sum()
}

#[test]
fn the_credit_is_spent_before_others_are_served_and_no_more() {
    let request_ns = 10_000;
    for (credit_ns, expected_ns) in
        [(Some(0), 0), (Some(MS / 2), MS / 2), (Some(5 * MS), 5 * MS), (None, usual_goal_ns())]
    {
        for shares in [100, 10, 1000] {
            let used_ns = used_before_the_other(credit_ns, shares);
            let allowed_ns = expected_ns.saturating_sub(request_ns)..=expected_ns + 2 * request_ns;
            // A class of more shares goes on a little: by its shares it is served so often in a row anyway.
            let more_ns = if shares > 100 { u64::from(shares / 100) * request_ns } else { 0 };
            let in_bounds = (*allowed_ns.start()..=*allowed_ns.end() + more_ns).contains(&used_ns);
            assert!(in_bounds, "credit {credit_ns:?}, shares {shares}: {used_ns} ns");
        }
    }
}

fn usual_goal_ns() -> u64 {
    queue_of(usual(), QueueConfig::default()).disk().effective_goal_ns()
}

#[test]
fn sleeping_often_earns_nothing() {
    let mut world = World::new(queue_of(usual(), QueueConfig::default()), 1, 1.0);
    world.load(100, Op::Read, &[4 * KIB], 200);
    let sleeper = world.load(100, Op::Read, &[4 * KIB], 0);
    for turn in 1..=1000 {
        // 100 requests are more than half of each 1.5 ms.
        world.send(sleeper, 100);
        world.loads[sleeper].on = false;
        world.run_until(turn * 1_500_000);
    }
    let consumed = world.consumed_s();
    assert!(consumed[1] <= 0.505 * (consumed[0] + consumed[1]), "{consumed:?}");
}

#[test]
fn the_share_of_an_idle_class_goes_to_the_others_at_once() {
    let mut world = World::new(queue_of(usual(), QueueConfig::default()), 1, 1.0);
    let leaver = world.load(900, Op::Read, &[4 * KIB], 20);
    let stayer = world.load(100, Op::Read, &[4 * KIB], 200);
    world.run_until(S);
    world.loads[leaver].on = false;
    // The twenty requests that are still there take 0.2 ms of the disk, and as much was in the device.
    world.run_until(S + 2 * MS);
    world.start_counting();
    world.run_until(S + 12 * MS);
    let consumed_s = world.consumed_s();
    assert_eq!(world.loads[leaver].dispatched, 0);
    assert!(consumed_s[stayer] >= 0.0099, "{consumed_s:?}");
}
