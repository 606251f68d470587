//! Tokens are never created: over any time t the disk is promised t, the depth of the bucket, and one largest piece.

use crate::common::{FIFTY_YEARS_NS, KIB, MS, Random, S, model, queue_of, usual};
use plimsoll_core::{Cancel, CostModel, DiskConfig, Dispatch, GroupId, IoQueue, LatencyGoal, Op, Outcome, Progress};
use plimsoll_core::{CostForm, Failure, FourFigures, MixExponent, QueueConfig, Rate, Stopped};

const LENGTHS: [u32; 5] = [512, 4 * KIB, 64 * KIB, 300 * KIB, 2048 * KIB];

/// The most by which the device time of `sent` (when, how much) exceeds the time in which it was sent.
fn largest_excess_ns(sent: &[(u64, f64)]) -> f64 {
    let (mut excess, mut largest, mut last_ns) = (0.0_f64, 0.0_f64, 0);
    for (at_ns, cost_ns) in sent {
        excess = (excess - (at_ns - last_ns) as f64).max(0.0) + cost_ns;
        largest = largest.max(excess);
        last_ns = *at_ns;
    }
    largest
}

/// What the caller of a random run does with each piece.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Good,
    SometimesRefused,
    SometimesShort,
}

struct Run {
    sent: Vec<(u64, f64)>,
    continued_ns: f64,
    end_ns: u64,
}

/// Two backlogged classes on a device that is always done at once; polls come at random times.
fn run(disk: DiskConfig, fate: Fate, seed: u64) -> Run {
    let mut queue = queue_of(disk, QueueConfig::default());
    let classes = [100, 300].map(|shares| queue.disk().add_class(GroupId::ROOT, shares).unwrap());
    let mut random = Random(seed);
    let mut run = Run { sent: vec![], continued_ns: 0.0, end_ns: 0 };
    let mut now_ns = S;
    let cost_ns =
        |queue: &IoQueue, piece: &Dispatch| queue.disk().cost(piece.op(), piece.len_bytes()).as_secs_f64() * 1e9;
    for _ in 0..20_000 {
        while queue.queued() < 10 {
            let op = random.one_of(&[Op::Read, Op::Write, Op::Flush]);
            queue.enqueue(now_ns, random.one_of(&classes), op, random.one_of(&LENGTHS), 0).unwrap();
        }
        while let Some(piece) = queue.poll_dispatch(now_ns) {
            if fate == Fate::SometimesRefused && random.below(3) == 0 {
                let _ = queue.refuse(now_ns, piece, 11);
                continue;
            }
            run.sent.push((now_ns, cost_ns(&queue, &piece)));
            let moved = match fate {
                Fate::SometimesShort if piece.op().is_transfer() => piece.len_bytes() / (1 + random.below(2) as u32),
                _ => piece.len_bytes(),
            };
            if let Progress::Continue(rest) = queue.complete(now_ns, piece, Outcome::Moved(moved)) {
                run.continued_ns += cost_ns(&queue, &rest);
                let len_bytes = rest.len_bytes();
                assert!(!matches!(queue.complete(now_ns, rest, Outcome::Moved(len_bytes)), Progress::Continue(_)));
            }
            if queue.queued() == 0 {
                break;
            }
        }
        now_ns += if random.below(100) == 0 { random.below(20 * MS) } else { random.below(MS / 10) };
        run.end_ns = now_ns;
    }
    assert_eq!(queue.disk().in_flight_ns(), 0);
    run
}

#[test]
fn over_any_time_no_more_than_time_and_depth() {
    let goals = [LatencyGoal::Ns(0), LatencyGoal::Ns(MS / 2), LatencyGoal::Ns(10 * MS), LatencyGoal::NoSplit];
    for (seed, latency_goal) in goals.into_iter().enumerate() {
        for fate in [Fate::Good, Fate::SometimesRefused] {
            let disk = DiskConfig { latency_goal, ..usual() };
            let queue = queue_of(disk.clone(), QueueConfig::default());
            let goal_ns = queue.disk().effective_goal_ns() as f64;
            let run = run(disk, fate, seed as u64);
            let largest_ns = run.sent.iter().map(|(_, cost_ns)| *cost_ns).fold(0.0, f64::max);
            let excess_ns = largest_excess_ns(&run.sent);
            assert!(excess_ns <= goal_ns + largest_ns + 1.0, "{latency_goal:?}: {excess_ns}");
            assert!(excess_ns >= goal_ns * 0.5, "{latency_goal:?}: the depth is not used: {excess_ns}");
            // Nothing is lost either: backlogged as it is, the disk is used whenever it is polled.
            let sent_ns: f64 = run.sent.iter().map(|(_, cost_ns)| cost_ns).sum();
            assert!(sent_ns <= (run.end_ns - S) as f64 + goal_ns + largest_ns);
        }
    }
}

#[test]
fn the_rest_of_a_short_transfer_is_paid_by_those_after_it() {
    let run = run(usual(), Fate::SometimesShort, 3);
    assert!(run.continued_ns > 0.0);
    let sent_ns: f64 = run.sent.iter().map(|(_, cost_ns)| cost_ns).sum();
    let largest_ns = run.sent.iter().map(|(_, cost_ns)| *cost_ns).fold(0.0, f64::max);
    let goal_ns = 750_000.0;
    assert!(sent_ns + run.continued_ns <= (run.end_ns - S) as f64 + goal_ns + 2.0 * largest_ns);
}

fn failure(errno: i32, moved_bytes: u32) -> Failure {
    Failure { errno, moved_bytes }
}

fn stopped(user_data: u64) -> Stopped {
    Stopped { user_data, moved_bytes: 0 }
}

#[test]
fn a_refused_piece_leaves_the_bucket_as_it_was() {
    let mut queue = queue_of(usual(), QueueConfig::default());
    let class = queue.disk().add_class(GroupId::ROOT, 1).unwrap();
    // Ten thousand refusals in one instant take nothing.
    for _ in 0..10_000 {
        queue.enqueue(S, class, Op::Read, 64 * KIB, 0).unwrap();
        let piece = queue.poll_dispatch(S).unwrap();
        let progress = queue.refuse(S, piece, 22);
        assert!(matches!(progress, Progress::Finished(finished) if finished.result == Err(failure(22, 0))));
    }
    let mut taken_ns = 0;
    queue.enqueue(S, class, Op::Read, 64 * KIB, 0).unwrap();
    while let Some(piece) = queue.poll_dispatch(S) {
        taken_ns += queue.disk().cost(Op::Read, 64 * KIB).as_ns_ceil();
        let _ = queue.complete(S, piece, Outcome::Moved(64 * KIB));
        queue.enqueue(S, class, Op::Read, 64 * KIB, 0).unwrap();
    }
    assert!((750_000 - 72_000..=750_000).contains(&taken_ns), "{taken_ns}");
}

#[test]
fn a_refused_rest_leaves_the_bucket_as_it_was() {
    let latency_goal = LatencyGoal::NoSplit;
    let mut queue = queue_of(DiskConfig { latency_goal, ..usual() }, QueueConfig::default());
    let class = queue.disk().add_class(GroupId::ROOT, 1).unwrap();
    // 700 KiB take 723 us of 750: the rest of 300 KiB takes more than there is, and is given back.
    queue.enqueue(S, class, Op::Read, 700 * KIB, 0).unwrap();
    let piece = queue.poll_dispatch(S).unwrap();
    let Progress::Continue(rest) = queue.complete(S, piece, Outcome::Moved(400 * KIB)) else {
        panic!("the piece was short");
    };
    assert!(
        matches!(queue.refuse(S, rest, 11), Progress::Finished(finished) if finished.result == Err(failure(11, 400 * KIB)))
    );
    queue.enqueue(S, class, Op::Read, 4 * KIB, 0).unwrap();
    assert!(queue.poll_dispatch(S).is_some());
}

#[test]
fn an_unlimited_disk_never_waits() {
    let mut queue = queue_of(DiskConfig::default(), QueueConfig::default());
    let class = queue.disk().add_class(GroupId::ROOT, 1).unwrap();
    for now_ns in [0, 1, S, FIFTY_YEARS_NS] {
        for _ in 0..1000 {
            queue.enqueue(now_ns, class, Op::Write, u32::MAX, 0).unwrap();
        }
        let pieces: Vec<Dispatch> = std::iter::from_fn(|| queue.poll_dispatch(now_ns)).collect();
        assert!(pieces.len() >= 1000 && queue.queued() == 0 && queue.next_wakeup().is_none());
        for piece in pieces {
            let len_bytes = piece.len_bytes();
            let _ = queue.complete(now_ns, piece, Outcome::Moved(len_bytes));
        }
        assert_eq!(queue.requests(), 0);
    }
    assert_eq!(queue.class_stats(class).unwrap().waited_ns, [0; 5]);
}

#[test]
fn cancelling_queued_work_takes_and_gives_nothing() {
    let mut queue = queue_of(usual(), QueueConfig::default());
    let class = queue.disk().add_class(GroupId::ROOT, 1).unwrap();
    let mut head = queue.enqueue(S, class, Op::Read, 64 * KIB, 0).unwrap();
    while let Some(piece) = queue.poll_dispatch(S) {
        let _ = queue.complete(S, piece, Outcome::Moved(64 * KIB));
        head = queue.enqueue(S, class, Op::Read, 64 * KIB, 0).unwrap();
    }
    let wakeup_ns = queue.next_wakeup().unwrap();
    let many: Vec<_> = (0..1000).map(|n| queue.enqueue(S, class, Op::Read, 64 * KIB, n).unwrap()).collect();
    for (user_data, id) in many.into_iter().enumerate().rev() {
        assert_eq!(queue.cancel(id), Cancel::Cancelled(stopped(user_data as u64)));
        assert_eq!(queue.cancel(id), Cancel::TooLate);
    }
    assert!(queue.poll_dispatch(S).is_none());
    assert_eq!(queue.next_wakeup(), Some(wakeup_ns));
    // The next one takes the place of a cancelled head, and its time.
    queue.enqueue(S, class, Op::Read, 64 * KIB, 7).unwrap();
    assert_eq!(queue.cancel(head), Cancel::Cancelled(stopped(0)));
    assert!(queue.poll_dispatch(wakeup_ns - 1).is_none());
    assert_eq!(queue.poll_dispatch(wakeup_ns).map(|piece| piece.user_data()), Some(7));
}

#[test]
fn a_disk_that_carries_more_when_reads_and_writes_are_mixed() {
    // p = 2: half and half carries sqrt(2) device-seconds a second.
    let mut disk = usual();
    disk.mix = MixExponent::new(2.0).unwrap();
    for (ops, expected) in [(&[Op::Read, Op::Write][..], 2.0_f64.sqrt()), (&[Op::Read], 1.0), (&[Op::Write], 1.0)] {
        let mut queue = queue_of(disk.clone(), QueueConfig::default());
        let class = queue.disk().add_class(GroupId::ROOT, 1).unwrap();
        let (mut now_ns, mut dispatched, mut measured) = (S, 0, 0);
        // The mix is learnt in the first 20 ms.
        while now_ns < 3 * S {
            queue.enqueue(now_ns, class, ops[dispatched % ops.len()], 4 * KIB, 0).unwrap();
            while queue.queued() > 0 {
                match queue.poll_dispatch(now_ns) {
                    Some(piece) => drop(queue.complete(now_ns, piece, Outcome::Moved(4 * KIB))),
                    None => now_ns = queue.next_wakeup().unwrap(),
                }
            }
            dispatched += 1;
            measured += u64::from(now_ns >= 2 * S);
        }
        let capacity = measured as f64 * 10e-6;
        assert!((capacity / expected - 1.0).abs() < 0.01, "{ops:?}: {capacity}");
    }
}

#[test]
fn an_unlimited_model_is_unlimited() {
    let queue = queue_of(DiskConfig { model: CostModel::unlimited(), ..usual() }, QueueConfig::default());
    assert!(queue.disk().is_unlimited());
}

/// A third of a nanosecond a request is not a whole number of the bucket's ticks: the remainders must be carried on.
#[test]
fn costs_below_the_resolution_of_the_bucket_add_up() {
    let disk = DiskConfig {
        model: model(3_000_000_000, 1_000_000_000_000_000),
        latency_goal: LatencyGoal::Ns(0),
        ..DiskConfig::default()
    };
    let mut queue = queue_of(disk, QueueConfig::default());
    let class = queue.disk().add_class(GroupId::ROOT, 1).unwrap();
    let mut dispatched = 0;
    for now_ns in S..S + 100_000 {
        loop {
            if queue.queued() == 0 {
                queue.enqueue(now_ns, class, Op::Read, 512, 0).unwrap();
            }
            let Some(piece) = queue.poll_dispatch(now_ns) else { break };
            let _ = queue.complete(now_ns, piece, Outcome::Moved(512));
            dispatched += 1;
        }
    }
    assert!((299_000..301_000).contains(&dispatched), "{dispatched} instead of 300 000");
}

/// A thread sleeps until the time asked for, and then a little longer: a bucket of little more than a piece overflows
/// meanwhile.
#[test]
fn a_queue_that_is_woken_late_loses_no_tokens() {
    const BYTES_PER_S: u64 = 143_000_000;
    let lateness = [50_000, 300_000, 500_000, 700_000, 2 * MS];
    for (late_ns, form) in
        lateness.into_iter().flat_map(|late_ns| [(late_ns, CostForm::Knee), (late_ns, CostForm::Max)])
    {
        let rate = |of| Rate::per_second(of);
        let figures = FourFigures {
            read_iops: rate(1_000_000),
            write_iops: rate(1_000_000),
            read_bandwidth: rate(BYTES_PER_S),
            write_bandwidth: rate(BYTES_PER_S),
        };
        let model = CostModel::from_figures(&figures, form, 4096, 4096);
        let mut queue = queue_of(DiskConfig { model, ..DiskConfig::default() }, QueueConfig::default());
        let class = queue.disk().add_class(GroupId::ROOT, 100).unwrap();
        // What is measured begins when the bucket is empty.
        let begin_ns = 2 * S;
        let (mut now_ns, mut sent_bytes, mut pieces) = (S, 0, Vec::<Dispatch>::new());
        while now_ns < begin_ns + S {
            for piece in std::mem::take(&mut pieces) {
                let len_bytes = piece.len_bytes();
                let _ = queue.complete_late(now_ns, late_ns, piece, Outcome::Moved(len_bytes));
            }
            while queue.queued() < 64 {
                queue.enqueue(now_ns, class, Op::Write, 64 * KIB, 0).unwrap();
            }
            while let Some(piece) = queue.poll_dispatch(now_ns) {
                sent_bytes += if now_ns >= begin_ns { u64::from(piece.len_bytes()) } else { 0 };
                pieces.push(piece);
            }
            let done_ns = if pieces.is_empty() { u64::MAX } else { now_ns + 200_000 };
            now_ns = queue.next_wakeup().unwrap_or(done_ns).min(done_ns).max(now_ns + 1) + late_ns;
        }
        let of_rate = sent_bytes as f64 / BYTES_PER_S as f64;
        assert!((0.97..1.01).contains(&of_rate), "{form:?}, {late_ns} ns late: {sent_bytes} bytes");
    }
}
