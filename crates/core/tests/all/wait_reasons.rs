//! Every wait has a reason. `waited_ns` of a class is the time in which it had something queued, up to its last
//! dispatch: it begins when the class becomes backlogged, each dispatch closes the time since the one before, and
//! what nobody could use for tokens, depth or the backend is booked there; the rest is fairness. The time of a class
//! whose queue was emptied by cancelling is not counted.

use crate::common::{KIB, MS, Random, S, US, World, queue_of, unit_cost, usual};
use plimsoll_core::{Dispatch, GroupId, IoQueue, Limits, Mode, Op, Outcome, Qos, QueueConfig, Rate, WaitReason};

fn finish(queue: &mut IoQueue, now_ns: u64, piece: Dispatch) {
    let len_bytes = piece.len_bytes();
    let _ = queue.complete(now_ns, piece, Outcome::Moved(len_bytes));
}

#[test]
fn tokens() {
    let mut queue = queue_of(usual(), QueueConfig::default());
    let class = queue.disk().add_class(GroupId::ROOT, 1).unwrap();
    for _ in 0..75 {
        queue.enqueue(S, class, Op::Read, 4 * KIB, 0).unwrap();
        let piece = queue.poll_dispatch(S).unwrap();
        assert_eq!(piece.waited_for(), None);
        finish(&mut queue, S, piece);
    }
    queue.enqueue(S, class, Op::Read, 4 * KIB, 0).unwrap();
    assert!(queue.poll_dispatch(S).is_none());
    let piece = queue.poll_dispatch(S + 10 * US).unwrap();
    assert_eq!(piece.waited_for(), Some(WaitReason::Tokens));
    assert_eq!(queue.class_stats(class).unwrap().waited_ns, [0, 10 * US, 0, 0, 0]);
}

#[test]
fn depth() {
    let mut queue = queue_of(usual(), QueueConfig { mode: Mode::Depth(1), ..QueueConfig::default() });
    let class = queue.disk().add_class(GroupId::ROOT, 1).unwrap();
    queue.enqueue(S, class, Op::Read, 4 * KIB, 0).unwrap();
    queue.enqueue(S, class, Op::Read, 4 * KIB, 1).unwrap();
    let first = queue.poll_dispatch(S).unwrap();
    assert!(queue.poll_dispatch(S).is_none());
    finish(&mut queue, S + 80 * US, first);
    let second = queue.poll_dispatch(S + 80 * US).unwrap();
    assert_eq!(second.waited_for(), Some(WaitReason::Depth));
    assert_eq!(queue.class_stats(class).unwrap().waited_ns, [0, 0, 0, 80 * US, 0]);
}

#[test]
fn backend() {
    let mut queue = queue_of(usual(), QueueConfig::default());
    let class = queue.disk().add_class(GroupId::ROOT, 1).unwrap();
    queue.backend_is_busy(S);
    assert_eq!(queue.next_wakeup(), None, "nothing waits yet");
    queue.enqueue(S, class, Op::Read, 4 * KIB, 0).unwrap();
    queue.backend_is_busy(S);
    let piece = queue.poll_dispatch(S + 30 * US).unwrap();
    assert_eq!(piece.waited_for(), Some(WaitReason::Backend));
    assert_eq!(queue.class_stats(class).unwrap().waited_ns, [0, 0, 0, 0, 30 * US]);
}

#[test]
fn fairness() {
    let mut queue = queue_of(unit_cost(), QueueConfig { wakeup_credit_ns: Some(0), ..QueueConfig::default() });
    let classes = [1, 10].map(|shares| queue.disk().add_class(GroupId::ROOT, shares).unwrap());
    for class in classes {
        for _ in 0..100 {
            queue.enqueue(S, class, Op::Read, 4 * KIB, 0).unwrap();
        }
    }
    for number in 0..60 {
        let now_ns = S + number * US;
        let piece = queue.poll_dispatch(now_ns).unwrap();
        finish(&mut queue, now_ns, piece);
    }
    let waited_ns = classes.map(|class| queue.class_stats(class).unwrap().waited_ns);
    assert!(waited_ns[0][0] >= 40 * US && waited_ns[0][1..] == [0; 4], "{waited_ns:?}");
    assert!(waited_ns[1][1..] == [0; 4]);
}

#[test]
fn cancelled_waits_are_not_counted() {
    let mut queue = queue_of(usual(), QueueConfig { mode: Mode::Depth(1), ..QueueConfig::default() });
    let classes = [1, 1].map(|shares| queue.disk().add_class(GroupId::ROOT, shares).unwrap());
    queue.enqueue(S, classes[0], Op::Read, 4 * KIB, 0).unwrap();
    let first = queue.poll_dispatch(S).unwrap();
    let id = queue.enqueue(S, classes[1], Op::Read, 4 * KIB, 0).unwrap();
    assert!(queue.poll_dispatch(S).is_none());
    queue.cancel(id);
    queue.enqueue(S + 50 * US, classes[1], Op::Read, 4 * KIB, 0).unwrap();
    assert!(queue.poll_dispatch(S + 50 * US).is_none());
    finish(&mut queue, S + 70 * US, first);
    assert!(queue.poll_dispatch(S + 70 * US).is_some());
    assert_eq!(queue.class_stats(classes[1]).unwrap().waited_ns, [0, 0, 0, 20 * US, 0]);
}

#[test]
fn a_wait_for_a_limit_outlasts_changes_of_other_classes() {
    let mut queue = queue_of(usual(), QueueConfig::default());
    let [class, other] = [1, 1].map(|shares| queue.disk().add_class(GroupId::ROOT, shares).unwrap());
    let limits = Limits { iops: Rate::per_second(10), ..Limits::default() };
    queue.disk().set_qos(class, Qos { limits, ..Qos::default() }).unwrap();
    for _ in 0..2 {
        queue.enqueue(S, class, Op::Read, 4 * KIB, 0).unwrap();
    }
    let first = queue.poll_dispatch(S).unwrap();
    finish(&mut queue, S, first);
    for step in 0..20 {
        queue.disk().set_shares(other, 1 + step as u32 % 2).unwrap();
        assert!(queue.poll_dispatch(S + step * 5 * MS).is_none(), "step {step}");
    }
    let second = queue.poll_dispatch(S + 100 * MS).unwrap();
    assert_eq!(second.waited_for(), Some(WaitReason::Limit));
    assert_eq!(queue.class_stats(class).unwrap().waited_ns, [0, 0, 100 * MS, 0, 0]);
}

#[test]
fn reasons_add_up_to_the_time_with_work_queued() {
    for (mode, factor) in [(Mode::Scheduled, 0.2), (Mode::Scheduled, 3.0), (Mode::Depth(4), 1.0)] {
        let mut world = World::new(queue_of(usual(), QueueConfig { mode, ..QueueConfig::default() }), 2, factor);
        for shares in [10, 100, 1000] {
            let load = world.load(shares, Op::Read, &[4 * KIB, 64 * KIB, 1024 * KIB], 0);
            world.loads[load].on = false;
        }
        let mut random = Random(5);
        let mut expected_ns = [0; 4];
        let mut queued_since_ns = [None; 3];
        let mut last_ns = [0; 4];
        let mut seen = 0;
        for _ in 0..2000 {
            let load = random.below(3) as usize;
            world.send(load, random.below(4) as usize);
            let end_ns = world.now_ns + random.below(MS);
            loop {
                let at_ns = world.now_ns;
                for (load, since_ns) in queued_since_ns.iter_mut().enumerate() {
                    if since_ns.is_none() && world_queued(&world, load) > 0 {
                        *since_ns = Some(at_ns);
                    }
                }
                let more = world.step(end_ns);
                for sent in &world.log[seen..] {
                    last_ns[sent.load] = sent.at_ns;
                }
                seen = world.log.len();
                for load in 0..3 {
                    if world_queued(&world, load) == 0
                        && let Some(since_ns) = queued_since_ns[load].take()
                    {
                        expected_ns[load] += last_ns[load] - since_ns;
                    }
                }
                if !more {
                    break;
                }
            }
        }
        for load in 0..3 {
            if let Some(since_ns) = queued_since_ns[load] {
                expected_ns[load] += last_ns[load].saturating_sub(since_ns);
            }
            let stats = world.queue.class_stats(world.loads[load].class).unwrap();
            let sum_ns: u64 = stats.waited_ns.iter().sum();
            assert_eq!(sum_ns, expected_ns[load], "{mode:?}, factor {factor}: {:?}", stats.waited_ns);
        }
    }
}

fn world_queued(world: &World, load: usize) -> u32 {
    world.queue.class_stats(world.loads[load].class).unwrap().queued
}
