//! `next_wakeup` is exact: a poll just before is in vain, a poll at it dispatches, and nobody sleeps for ever.

use crate::seeds;
use std::sync::Arc;

use crate::common::{KIB, MS, Random, S, US, World, model, queue_of, usual};
use plimsoll_core::{
    Disk, DiskConfig, Dispatch, GroupId, IoQueue, LatencyGoal, Limits, Mode, Op, Outcome, Qos, QueueConfig, Rate,
    Reservation,
};

const LENGTHS: [u32; 4] = [512, 4 * KIB, 64 * KIB, 1024 * KIB];

#[test]
fn waiting_for_tokens_ends_at_the_wakeup_and_not_before() {
    for duplex in [false, true] {
        let mut queue = queue_of(DiskConfig { duplex, ..usual() }, QueueConfig::default());
        let classes = [10, 30].map(|shares| queue.disk().add_class(GroupId::ROOT, shares).unwrap());
        let mut random = Random(9);
        let (mut now_ns, mut waits) = (S, 0);
        for _ in 0..20_000 {
            let op = random.one_of(&[Op::Read, Op::Write]);
            queue.enqueue(now_ns, random.one_of(&classes), op, random.one_of(&LENGTHS), 0).unwrap();
            while let Some(piece) = queue.poll_dispatch(now_ns) {
                let len_bytes = piece.len_bytes();
                let _ = queue.complete(now_ns, piece, Outcome::Moved(len_bytes));
            }
            if queue.queued() == 0 {
                assert_eq!(queue.next_wakeup(), None);
                continue;
            }
            let wakeup_ns = queue.next_wakeup().unwrap();
            assert!(wakeup_ns > now_ns);
            assert!(queue.poll_dispatch(wakeup_ns - 1).is_none());
            assert_eq!(queue.next_wakeup(), Some(wakeup_ns));
            let piece = queue.poll_dispatch(wakeup_ns).expect("the tokens are there");
            let len_bytes = piece.len_bytes();
            let _ = queue.complete(wakeup_ns, piece, Outcome::Moved(len_bytes));
            now_ns = wakeup_ns;
            waits += 1;
        }
        assert!(waits > 1000);
    }
}

#[test]
fn none_when_only_a_completion_helps() {
    for mode in [Mode::Scheduled, Mode::Depth(4)] {
        let mut queue = queue_of(usual(), QueueConfig { mode, ..QueueConfig::default() });
        let class = queue.disk().add_class(GroupId::ROOT, 10).unwrap();
        for n in 0..300 {
            queue.enqueue(S, class, Op::Read, 4 * KIB, n).unwrap();
        }
        assert_eq!(queue.next_wakeup(), Some(0), "not polled yet: at once");
        let mut pieces: Vec<_> = std::iter::from_fn(|| queue.poll_dispatch(S)).collect();
        // Much later there are tokens, but the device has not given anything back.
        assert!(queue.poll_dispatch(2 * S).is_none());
        assert_eq!(queue.next_wakeup(), None);
        let piece = pieces.pop().unwrap();
        let _ = queue.complete(2 * S, piece, Outcome::Moved(4 * KIB));
        assert!(queue.poll_dispatch(2 * S).is_some());
    }
}

#[test]
fn the_direction_that_can_go_on_first_sets_the_wakeup() {
    // Duplex: writes wait for tokens, reads for the device; and the other way round.
    for (blocked_by_tokens, blocked_by_device) in [(Op::Read, Op::Write), (Op::Write, Op::Read)] {
        let latency_goal = LatencyGoal::NoSplit;
        let disk = DiskConfig { duplex: true, window_ns: Some(MS), latency_goal, ..usual() };
        let mut queue = queue_of(disk, QueueConfig::default());
        let class = queue.disk().add_class(GroupId::ROOT, 10).unwrap();
        // The tokens of one direction are used up by work that is back already.
        for n in 0..75 {
            queue.enqueue(S, class, blocked_by_tokens, 4 * KIB, n).unwrap();
        }
        while let Some(piece) = queue.poll_dispatch(S) {
            let _ = queue.complete(S, piece, Outcome::Moved(4 * KIB));
        }
        assert_eq!(queue.queued(), 0);
        // The other direction fills the device but for 350 us, and its next piece needs 363 us.
        queue.enqueue(S, class, blocked_by_device, 640 * KIB, 0).unwrap();
        queue.enqueue(S, class, blocked_by_device, 350 * KIB, 0).unwrap();
        queue.enqueue(S, class, blocked_by_tokens, 4 * KIB, 0).unwrap();
        let piece = queue.poll_dispatch(S).unwrap();
        assert_eq!(piece.op(), blocked_by_device);
        assert!(queue.poll_dispatch(S).is_none());
        assert_eq!(queue.next_wakeup(), Some(S + 10 * US), "{blocked_by_tokens:?} can go on then");
        assert_eq!(queue.poll_dispatch(S + 10 * US).map(|piece| piece.op()), Some(blocked_by_tokens));
    }
}

#[test]
fn nothing_is_forgotten_when_only_wakeups_and_completions_poll() {
    let modes = [Mode::Scheduled, Mode::Depth(1), Mode::Depth(7), Mode::Drain];
    seeds::each(40, |seed| {
        for mode in modes {
            let disk = DiskConfig { duplex: seed % 2 == 1, ..usual() };
            let mut random = Random(seed);
            let queue = queue_of(disk, QueueConfig { mode, ..QueueConfig::default() });
            let mut world = World::new(queue, 1 + random.below(8) as usize, 0.1 + random.below(50) as f64 / 10.0);
            for _ in 0..5 {
                let op = random.one_of(&[Op::Read, Op::Write, Op::Flush, Op::Discard]);
                let load = world.load(1 + random.below(1000) as u32, op, &LENGTHS, 0);
                world.loads[load].on = false;
            }
            let mut sent = 0;
            for _ in 0..20 {
                let (load, count) = (random.below(5) as usize, random.below(30));
                world.send(load, count as usize);
                sent += count;
                world.run_until(world.now_ns + random.below(10 * MS));
            }
            world.run_until(world.now_ns + 60 * S);
            assert_eq!(world.loads.iter().map(|load| load.finished).sum::<u64>(), sent, "{mode:?}, seed {seed}");
            assert_eq!((world.queue.requests(), world.queue.next_wakeup()), (0, None));
            assert_eq!(world.queue.disk().in_flight_ns(), 0);
        }
    });
}

#[test]
fn a_queue_looks_again_when_the_work_of_another_fills_the_device() {
    let disk = Arc::new(Disk::new(usual()));
    let mut queues = [0, 1].map(|_| IoQueue::new(Arc::clone(&disk), QueueConfig::default()));
    let class = disk.add_class(GroupId::ROOT, 10).unwrap();
    for n in 0..300 {
        queues[0].enqueue(S, class, Op::Read, 4 * KIB, n).unwrap();
    }
    let pieces: Vec<_> = std::iter::from_fn(|| queues[0].poll_dispatch(S)).collect();
    assert!(!pieces.is_empty() && queues[0].queued() > 0);
    let later_ns = S + MS;
    queues[1].enqueue(later_ns, class, Op::Read, 4 * KIB, 0).unwrap();
    assert!(queues[1].poll_dispatch(later_ns).is_none());
    assert_eq!(queues[1].next_wakeup(), Some(later_ns + 20 * US));
    for piece in pieces {
        let _ = queues[0].complete(later_ns, piece, Outcome::Moved(4 * KIB));
    }
    assert!(queues[1].poll_dispatch(later_ns + 20 * US).is_some());
}

#[test]
fn room_that_is_anothers_turn_is_handed_over() {
    for waker in [Some(8), None] {
        let disk = Arc::new(Disk::new(usual()));
        let numbers = [Some(3), waker];
        let mut queues =
            numbers.map(|number| IoQueue::new(Arc::clone(&disk), QueueConfig { number, ..QueueConfig::default() }));
        let class = disk.add_class(GroupId::ROOT, 10).unwrap();
        for n in 0..300 {
            queues[0].enqueue(S, class, Op::Read, 4 * KIB, n).unwrap();
        }
        let mut pieces: Vec<_> = std::iter::from_fn(|| queues[0].poll_dispatch(S)).collect();
        assert_eq!(queues[0].take_hand_over(), None, "the device is full");

        queues[1].enqueue(S + MS, class, Op::Read, 4 * KIB, 0).unwrap();
        assert!(queues[1].poll_dispatch(S + MS).is_none());
        // A few more, and it is the other queue's turn.
        loop {
            let _ = queues[0].complete(S + MS, pieces.pop().unwrap(), Outcome::Moved(4 * KIB));
            if queues[0].poll_dispatch(S + MS).is_none() {
                break;
            }
        }
        assert_eq!([queues[0].take_hand_over(), queues[0].take_hand_over()], [waker, None]);

        assert!(queues[1].poll_dispatch(S + MS).is_some());
        assert!(queues[1].poll_dispatch(S + MS).is_none());
        assert_eq!(queues[1].take_hand_over(), None, "no queue waits");
    }
}

#[test]
fn hand_overs_end() {
    hand_overs_end_on(usual(), [Op::Read, Op::Read]);
    // Each waits in a lane of its own: they handed the room to and fro.
    hand_overs_end_on(DiskConfig { duplex: true, ..usual() }, [Op::Read, Op::Write]);
}

/// The window has room for a part of a piece: both queues wait for room, and neither can use this.
fn hand_overs_end_on(config: DiskConfig, ops: [Op; 2]) {
    let disk = Arc::new(Disk::new(config));
    let class = disk.add_class(GroupId::ROOT, 10).unwrap();
    let mut queues = [0, 1]
        .map(|number| IoQueue::new(Arc::clone(&disk), QueueConfig { number: Some(number), ..QueueConfig::default() }));
    for n in 0..300 {
        for (queue, op) in queues.iter_mut().zip(ops) {
            queue.enqueue(S, class, op, 60 * KIB, n).unwrap();
        }
    }

    let (mut pieces, mut all) = (Vec::new(), 0);
    for step in 0..200 {
        let now_ns = S + step * MS;
        for at in [0, 1] {
            pieces.extend(std::iter::from_fn(|| queues[at].poll_dispatch(now_ns)).map(|piece| (at, piece)));
        }
        if pieces.is_empty() {
            continue;
        }
        let (at, piece) = pieces.remove(0);
        let _ = queues[at].complete(now_ns, piece, Outcome::Moved(60 * KIB));

        // Each is polled at once when the other hands over to it.
        let mut turn = at;
        let mut hand_overs = 0;
        loop {
            pieces.extend(std::iter::from_fn(|| queues[turn].poll_dispatch(now_ns)).map(|piece| (turn, piece)));
            let Some(other) = queues[turn].take_hand_over() else { break };
            turn = usize::from(other);
            hand_overs += 1;
            assert!(hand_overs < 10, "{ops:?}, step {step}");
        }
        all += hand_overs;
    }
    assert!(all > 0, "{ops:?}: no room was handed over");
}

/// Returns one of: a longest wait, a reservation, a limit, nothing.
fn any_qos(random: &mut Random) -> Qos {
    let number = 500 + random.below(3000);
    match random.below(4) {
        0 => Qos { max_wait_ns: Some(MS * (1 + random.below(10))), ..Qos::default() },
        1 => Qos { reservation: Reservation { iops: number, bandwidth: 0 }, ..Qos::default() },
        2 => Qos { limits: Limits { iops: Rate::per_second(number), ..Limits::default() }, ..Qos::default() },
        _ => Qos::default(),
    }
}

/// Regression: on a duplex disk, a request of one direction that was due already hid the time at which one of the other
/// direction became due.
#[test]
fn a_queue_with_quality_of_service_is_polled_in_vain_before_its_wakeup() {
    seeds::each(20, |seed| {
        let mut random = Random(seed);
        let disk = DiskConfig { duplex: seed % 2 == 1, model: model(20_000, 200_000_000), ..usual() };
        let mut queue = queue_of(disk, QueueConfig::default());
        let classes = [10, 100, 1000].map(|shares| queue.disk().add_class(GroupId::ROOT, shares).unwrap());
        for class in classes {
            queue.disk().set_qos(class, any_qos(&mut random)).unwrap();
        }

        let (mut now_ns, mut in_flight) = (S, Vec::<Dispatch>::new());
        for step in 0..2000 {
            for _ in 0..random.below(4) {
                let op = random.one_of(&[Op::Read, Op::Write]);
                let _ = queue.enqueue(now_ns, random.one_of(&classes), op, random.one_of(&LENGTHS), 0);
            }
            in_flight.extend(std::iter::from_fn(|| queue.poll_dispatch(now_ns)));

            // Polls in between may bring the wake-up forward, but never dispatch before it.
            for _ in 0..4 {
                let wakeup_ns = queue.next_wakeup().unwrap_or(now_ns + 30 * MS).min(now_ns + 30 * MS);
                if queue.queued() == 0 || wakeup_ns <= now_ns + 1 {
                    break;
                }
                let early_ns = 1 + random.below(wakeup_ns - now_ns - 1);
                let early = queue.poll_dispatch(now_ns + early_ns);
                assert!(early.is_none(), "seed {seed}, step {step}: {early:?} before the wake-up");
                now_ns += early_ns;
            }

            now_ns += random.below(400 * US);
            while random.below(3) > 0 && !in_flight.is_empty() {
                let piece = in_flight.swap_remove(random.below(in_flight.len() as u64) as usize);
                let len_bytes = piece.len_bytes();
                let _ = queue.complete(now_ns, piece, Outcome::Moved(len_bytes));
            }
        }
    });
}
