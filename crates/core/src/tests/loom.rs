//! The shared atomics under every interleaving: clocks, buckets, the window, limits, and whole queues, with loom.
//!
//! # Why
//! Shards share a few atomics without a lock. A test with threads sees the few orders that happen to occur; loom runs a
//! small model in every order that the memory model allows, stale relaxed loads included.
//!
//! # How it works
//! `sync` gives loom's atomics to the crate's own tests. Each model starts two or three threads, and asserts afterwards
//! the conditions that hold in every order. The locks are the standard ones: no model changes the table of classes
//! while another thread may read it.
//!
//! ```text
//! RUSTFLAGS="--cfg plimsoll_loom" CARGO_TARGET_DIR=target/loom cargo test -p plimsoll-core --release --lib loom
//! ```
//!
//! # Limits
//! Searches are bounded in preemptions (named at each model), as is usual: nearly all races need at most two. The
//! models of whole queues have too many orders to try them all: they stop at a maximum.

use loom::thread;
use std::sync::Arc;

use crate::bucket::{TICKS_PER_NS, TokenBucket};
use crate::clock::{Clock, Edge, units};
use crate::qos::{Amount, Limits, Tags};
use crate::units::Cost;
use crate::{
    ControlConfig, CostForm, CostModel, Direction, Disk, DiskConfig, FourFigures, GroupId, IoQueue, Op, Outcome,
    QueueConfig, Rate, Reservation,
};

const COST: Cost = Cost::from_ns(1_000);

/// Most orders tried of models with whole queues.
const ORDERS_OF_QUEUES: usize = 20_000;

fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    explore_some(preemptions, None, model);
}

fn explore_some(preemptions: usize, orders: Option<usize>, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_permutations = orders;
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 100_000;
    builder.check(model);
}

/// Joins as a tree does, then counts shares that have changed meanwhile.
fn enter(parent: &Clock, child: &Clock) {
    if let Edge::Parent { shares } = child.add_queue() {
        parent.join(child, shares, COST);
        parent.change_weight(child.recount());
    }
}

fn exit(parent: &Clock, child: &Clock) {
    if let Edge::Parent { shares } = child.remove_queue() {
        parent.leave(child, shares);
    }
}

fn serve(parent: &Clock, child: &Clock, shares: u32) {
    child.serve(COST, 1.0 / f64::from(shares), false);
    parent.advance(COST, &mut 0.0, false);
}

/// Returns whether a mean is off by at most the movements that may race: each child's cost at one share, joins and
/// leaves with the credit.
fn is_plausible(mean: u64) -> bool {
    let most = units(COST, 16.0) as i64;
    (-most..=most).contains(&(mean as i64))
}

#[test]
fn loom_weight_is_what_is_active_after_joins_and_leaves() {
    explore(3, || {
        let parent = Arc::new(Clock::new(1));
        let children = Arc::new([Clock::new(10), Clock::new(30)]);
        let threads = [(0, 10), (1, 30)].map(|(at, shares): (usize, u32)| {
            let (parent, children) = (Arc::clone(&parent), Arc::clone(&children));
            thread::spawn(move || {
                enter(&parent, &children[at]);
                serve(&parent, &children[at], shares);
                if at == 0 {
                    exit(&parent, &children[at]);
                }
            })
        });

        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(parent.weight(), 30);
        assert_eq!((children[0].queues(), children[1].queues()), (0, 1));
        assert_eq!(children[1].own(), children[1].own().max(units(COST, 1.0 / 30.0)));
        assert!(is_plausible(parent.mean()), "{}", parent.mean() as i64);

        exit(&parent, &children[1]);
        assert_eq!(parent.weight(), 0);
    });
}

#[test]
fn loom_a_class_on_several_queues_counts_once() {
    explore(3, || {
        let (parent, child) = (Arc::new(Clock::new(1)), Arc::new(Clock::new(10)));
        let threads: Vec<_> = (0..2)
            .map(|stays| {
                let (parent, child) = (Arc::clone(&parent), Arc::clone(&child));
                thread::spawn(move || {
                    enter(&parent, &child);
                    if stays == 0 {
                        exit(&parent, &child);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!((child.queues(), parent.weight()), (1, 10));
    });
}

#[test]
fn loom_a_change_of_shares_keeps_the_weight_whatever_races() {
    explore(3, || {
        let parent = Arc::new(Clock::new(1));
        let children = Arc::new([Clock::new(30), Clock::new(5)]);
        enter(&parent, &children[1]);
        let joins = {
            let (parent, children) = (Arc::clone(&parent), Arc::clone(&children));
            thread::spawn(move || {
                enter(&parent, &children[0]);
                exit(&parent, &children[0]);
                enter(&parent, &children[0]);
            })
        };

        children[0].set_shares(10);
        let by = children[0].recount();
        parent.change_weight(by);
        joins.join().unwrap();

        assert_eq!(parent.weight(), 5 + u64::from(children[0].counted_shares()));
        exit(&parent, &children[0]);
        exit(&parent, &children[1]);
        assert_eq!(parent.weight(), 0);
        assert!(is_plausible(parent.mean()), "{}", parent.mean() as i64);
    });
}

#[test]
fn loom_queues_of_a_class_keep_their_mean_in_bounds() {
    // With three preemptions the search takes more than five minutes.
    explore(2, || {
        let class = Arc::new(Clock::new(1));
        let threads: Vec<_> = (0..3)
            .map(|leaves| {
                let class = Arc::clone(&class);
                thread::spawn(move || {
                    let _ = class.add_queue();
                    let local = class.join_queue(0, 0).wrapping_add(units(COST, 1.0));
                    class.advance_class(COST, &mut 0.0);
                    if leaves > 0 {
                        let _ = class.remove_queue();
                        class.leave_queue(local);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(class.queues(), 1);
        assert!(is_plausible(class.mean()), "{}", class.mean() as i64);
    });
}

#[test]
fn loom_serving_loses_no_update() {
    explore(3, || {
        let (parent, child) = (Arc::new(Clock::new(1)), Arc::new(Clock::new(4)));
        enter(&parent, &child);
        let threads = [0, 1].map(|_| {
            let (parent, child) = (Arc::clone(&parent), Arc::clone(&child));
            thread::spawn(move || {
                serve(&parent, &child, 4);
                serve(&parent, &child, 4);
            })
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(child.own(), 4 * units(COST, 0.25));
        assert_eq!(parent.mean(), child.own());
    });
}

/// Means are mended from the clocks while others are served: races cause an error of at most the amount served.
#[test]
fn loom_a_mean_that_is_mended_is_off_by_what_raced_at_the_most() {
    for off in [-1_000_000_000_i64, 1_000_000_000] {
        explore(3, move || {
            let parent = Arc::new(Clock::new(1));
            let children = Arc::new([Clock::new(1), Clock::new(1)]);
            enter(&parent, &children[0]);
            enter(&parent, &children[1]);
            parent.mend_mean(off);
            let serves = {
                let (parent, children) = (Arc::clone(&parent), Arc::clone(&children));
                thread::spawn(move || serve(&parent, &children[0], 1))
            };

            let mean = parent.mean();
            let shift: i64 = children.iter().map(|child| child.own().wrapping_sub(mean) as i64 / 2).sum();
            parent.mend_mean(shift);
            serves.join().unwrap();

            let exact = (children[0].own() / 2 + children[1].own() / 2) as i64;
            let error = (parent.mean() as i64 - exact).unsigned_abs();
            assert!(error <= units(COST, 0.5) + 1, "{error}");
        });
    }
}

/// A queue that is alone moves clocks with plain stores. Concurrent movements by another can be lost from the mean,
/// never from the clock of another class, and mending restores them.
#[test]
fn loom_what_a_lonely_queue_overwrites_is_mended() {
    explore(3, || {
        let parent = Arc::new(Clock::new(1));
        let children = Arc::new([Clock::new(1), Clock::new(1)]);
        enter(&parent, &children[0]);
        let joins = {
            let (parent, children) = (Arc::clone(&parent), Arc::clone(&children));
            thread::spawn(move || {
                enter(&parent, &children[1]);
                serve(&parent, &children[1], 1);
            })
        };

        children[0].serve(COST, 1.0, true);
        parent.advance(COST, &mut 0.0, true);
        joins.join().unwrap();

        assert_eq!(children[0].own(), units(COST, 1.0));
        assert!(is_plausible(parent.mean()), "{}", parent.mean() as i64);

        let mean = parent.mean();
        let shift: i64 = children.iter().map(|child| child.own().wrapping_sub(mean) as i64 / 2).sum();
        parent.mend_mean(shift);
        let exact = children[0].own() / 2 + children[1].own() / 2;
        assert!(parent.mean().abs_diff(exact) <= 1, "{} and not {exact}", parent.mean());
    });
}

#[test]
fn loom_the_latest_claim_of_room_counts() {
    explore(3, || {
        let disk = Arc::new(small_disk());
        let other = {
            let disk = Arc::clone(&disk);
            thread::spawn(move || disk.claim(0, 2_000))
        };
        disk.claim(0, 1_000);
        disk.claim(0, 3_000);
        other.join().unwrap();
        assert_eq!(disk.claimed_until_ns(0), 3_000);
    });
}

/// Reservations that exceed the disk pull their time back together; concurrent charges of two shards are counted once
/// each.
#[test]
fn loom_debts_of_reservations_are_all_booked() {
    explore(3, || {
        let disk = Arc::new(small_disk());
        let tags = Arc::new(Tags::default());
        let reservation = Reservation { iops: 1_000, bandwidth: 0 };
        let amount = Amount { direction: Direction::Read, requests: 1, bytes: 512 };
        // 150 ms are owed: more than the 100 ms that stay owed, less than the 200 ms beyond which debt is forgotten.
        let charge = move |tags: &Tags, disk: &Disk| {
            tags.charge_reservations(&reservation, amount, disk.reserved_time(150_000_000), false, true);
        };
        let other = {
            let (disk, tags) = (Arc::clone(&disk), Arc::clone(&tags));
            thread::spawn(move || charge(&tags, &disk))
        };
        charge(&tags, &disk);
        other.join().unwrap();
        let next_ns = tags.reservation_next_ns(&reservation, disk.reserved_time(150_000_000)).unwrap();
        // Two requests of 1 ms each, and the time pulled back by 1 ms for each.
        assert_eq!(next_ns, 4_000_000);
    });
}

#[test]
fn loom_a_bucket_gives_no_more_than_depth_and_rate() {
    const DEPTH_NS: u64 = 250;
    explore(3, || {
        let bucket = Arc::new(TokenBucket::default());
        bucket.not_before(1_000 * TICKS_PER_NS);
        let threads: Vec<_> = [(1_000, 100), (1_000, 100), (1_060, 100)]
            .into_iter()
            .map(|(now_ns, cost_ns)| {
                let bucket = Arc::clone(&bucket);
                thread::spawn(move || {
                    let taken = bucket.try_take(now_ns, cost_ns * TICKS_PER_NS, DEPTH_NS).is_ok();
                    let again = bucket.try_take(now_ns, cost_ns * TICKS_PER_NS, DEPTH_NS).is_ok();
                    (u64::from(taken) + u64::from(again)) * cost_ns
                })
            })
            .collect();

        let given_ns: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert!((200..=DEPTH_NS + 60).contains(&given_ns), "{given_ns}");
        assert!(bucket.tat_ticks() <= (1_060 + DEPTH_NS) * TICKS_PER_NS);
        assert!(bucket.tat_ticks() >= (1_000 + given_ns) * TICKS_PER_NS);
    });
}

#[test]
fn loom_refunds_and_debts_are_all_booked() {
    const DEPTH_NS: u64 = 1_000;
    explore(3, || {
        let bucket = Arc::new(TokenBucket::default());
        bucket.take_into_debt(1_000, 100);
        let refunds = {
            let bucket = Arc::clone(&bucket);
            thread::spawn(move || bucket.refund(100))
        };
        let owes = {
            let bucket = Arc::clone(&bucket);
            thread::spawn(move || bucket.take_into_debt(1_000, 300))
        };
        let taken = bucket.try_take(1_000, 7, DEPTH_NS).is_ok();
        refunds.join().unwrap();
        owes.join().unwrap();
        assert!(taken);
        assert_eq!(bucket.tat_ticks(), 1_000 * TICKS_PER_NS + 307);
    });
}

/// Returns a disk that serves 4 KiB in 10 us, with a bound of 71.4 us.
fn small_disk() -> Disk {
    let figures = FourFigures {
        read_iops: Rate::per_second(100_000),
        write_iops: Rate::per_second(100_000),
        read_bandwidth: Rate::per_second(1_000_000_000),
        write_bandwidth: Rate::per_second(1_000_000_000),
    };
    let model = CostModel::from_figures(&figures, CostForm::Knee, 4096, 4096);
    let latency_goal = crate::LatencyGoal::Ns(1);
    Disk::new(DiskConfig { model, control: ControlConfig::OFF, latency_goal, ..DiskConfig::default() })
}

#[test]
fn loom_the_device_never_holds_more_than_the_bound_and_what_lags() {
    for lag_part in [0, 1] {
        explore(3, move || {
            let disk = Arc::new(small_disk());
            let bound_ticks = disk.bound_ns() * TICKS_PER_NS;
            let ticks = bound_ticks * 2 / 5;
            let lag_ticks = lag_part * bound_ticks / 8;

            // 1 of the bound's 5 fifths stays free: two of these fit, a third only by its lag, which is not enough.
            let inside = Arc::new(std::sync::atomic::AtomicU64::new(0));
            let threads: Vec<_> = (0..3)
                .map(|stays| {
                    let (disk, inside) = (Arc::clone(&disk), Arc::clone(&inside));
                    thread::spawn(move || {
                        if !disk.try_enter(0, ticks, false, || lag_ticks) {
                            return 0;
                        }
                        let all = inside.fetch_add(ticks, std::sync::atomic::Ordering::SeqCst) + ticks;
                        assert!(all <= bound_ticks + lag_ticks, "{all} of {bound_ticks}");
                        if stays < 2 {
                            return ticks;
                        }
                        inside.fetch_sub(ticks, std::sync::atomic::Ordering::SeqCst);
                        disk.leave(0, ticks);
                        0
                    })
                })
                .collect();

            let left: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
            assert_eq!(disk.in_flight_ticks(), left, "what did not get in was taken back");
            disk.leave(0, left);
            assert_eq!(disk.in_flight_ticks(), 0);
            assert!(disk.try_enter(0, 100 * bound_ticks, true, || 0), "an empty device takes any request");
        });
    }
}

/// The test of a limit and its charge are two steps: each shard may pass one request that the other does not see yet.
/// It is charged all the same, so the rate holds.
#[test]
fn loom_a_limit_is_exceeded_by_one_request_of_each_shard_at_the_most() {
    explore(3, || {
        let tags = Arc::new(Tags::default());
        let limits = Limits { iops: Rate::per_second(1_000_000), ..Limits::default() };
        let amount = Amount { direction: Direction::Read, requests: 1, bytes: 512 };
        let shard = move |tags: &Tags| {
            let mut passed = 0_u64;
            for _ in 0..2 {
                if tags.limited_until(&limits, amount, 5_000).is_none() {
                    tags.charge_limits(&limits, amount, 5_000);
                    passed += 1;
                }
            }
            passed
        };

        let other = {
            let tags = Arc::clone(&tags);
            thread::spawn(move || shard(&tags))
        };

        let passed = shard(&tags) + other.join().unwrap();
        assert!((1..=2).contains(&passed), "{passed}");
        assert_eq!(tags.limited_until(&limits, amount, 5_000), Some(5_000 + 1_000 * passed), "all of it is paid");
        assert_eq!(tags.limited_until(&limits, amount, 5_000 + 1_000 * passed), None);
    });
}

/// Polls at each wake-up until everything has been served, with a bounded number of polls.
fn finish(queue: &mut IoQueue, mut now_ns: u64, polls: usize) -> u64 {
    for _ in 0..polls {
        if let Some(piece) = queue.poll_dispatch(now_ns) {
            let len_bytes = piece.len_bytes();
            let _ = queue.complete(now_ns, piece, Outcome::Moved(len_bytes));
        } else {
            match queue.next_wakeup() {
                Some(at_ns) => now_ns = at_ns.max(now_ns + 1),
                None => break,
            }
        }
    }
    now_ns
}

/// Whole queues: in every order, each ends its work by its own wake-ups, and nothing is left in any account.
#[test]
fn loom_two_queues_always_finish_and_leave_nothing() {
    explore_some(2, Some(ORDERS_OF_QUEUES), || {
        let disk = Arc::new(small_disk());
        let classes = [10, 40].map(|shares| disk.add_class(GroupId::ROOT, shares).unwrap());
        let mut queues = [0, 1].map(|_| IoQueue::new(Arc::clone(&disk), QueueConfig::default()));
        for (queue, class) in queues.iter_mut().zip(classes) {
            queue.enqueue(1_000, class, Op::Read, 4096, 0).unwrap();
            queue.enqueue(1_000, class, Op::Read, 4096, 1).unwrap();
        }

        let [mut one, mut other] = queues;
        let other = thread::spawn(move || {
            finish(&mut other, 1_000, 60);
            other.queued() + other.in_flight()
        });
        finish(&mut one, 1_000, 60);

        assert_eq!(one.queued() + one.in_flight(), 0, "stuck");
        assert_eq!(other.join().unwrap(), 0, "stuck");
        assert_eq!(disk.in_flight_ticks(), 0);
        disk.classes().read(|rows| {
            assert_eq!((rows[0].clocks[0].weight(), rows[0].clocks[0].queues()), (0, 0));
            assert!(rows.iter().all(|row| row.clocks[0].queues() == 0));
        });
    });
}

/// A queue that was absent returns while another counts its work as absent: in every order both end their work, and
/// nothing is left in any account, nor left out.
#[test]
fn loom_an_absent_queue_returns_while_others_count() {
    const LATE_NS: u64 = 100_000_000;
    explore_some(2, Some(ORDERS_OF_QUEUES), || {
        let disk = Arc::new(small_disk());
        let classes = [40, 10].map(|shares| disk.add_class(GroupId::ROOT, shares).unwrap());
        let [mut absent, mut present] = [0, 1].map(|_| IoQueue::new(Arc::clone(&disk), QueueConfig::default()));
        // One of them fills the device.
        for n in 0..2 {
            absent.enqueue(1_000, classes[0], Op::Read, 64 << 10, n).unwrap();
        }
        let piece = absent.poll_dispatch(1_000).unwrap();
        assert!(absent.poll_dispatch(1_000).is_none() && disk.is_full());
        present.enqueue(LATE_NS, classes[1], Op::Read, 4096, 0).unwrap();

        let absent = thread::spawn(move || {
            let _ = absent.complete(LATE_NS, piece, Outcome::Moved(64 << 10));
            finish(&mut absent, LATE_NS, 60);
            absent
        });
        let end_ns = finish(&mut present, LATE_NS, 60);
        assert_eq!(present.queued() + present.in_flight(), 0, "stuck");

        let absent = absent.join().unwrap();
        assert_eq!(absent.queued() + absent.in_flight(), 0, "stuck");
        assert_eq!(disk.held_ticks(), 0);
        let _ = disk.count_absent(end_ns + LATE_NS);
        assert!(!disk.has_absent());
    });
}

/// Two queues of one class: a queue that stops polling with work to do does not stop the other for longer than its
/// patience.
#[test]
fn loom_a_queue_whose_turn_nobody_takes_goes_on() {
    explore_some(2, Some(ORDERS_OF_QUEUES), || {
        let disk = Arc::new(small_disk());
        let classes = [40, 10].map(|shares| disk.add_class(GroupId::ROOT, shares).unwrap());
        let mut absent = IoQueue::new(Arc::clone(&disk), QueueConfig::default());
        absent.enqueue(1_000, classes[0], Op::Read, 4096, 0).unwrap();
        let mut present = IoQueue::new(Arc::clone(&disk), QueueConfig::default());
        for n in 0..3 {
            present.enqueue(1_000, classes[1], Op::Read, 4096, n).unwrap();
        }

        // The other joins, is served once, and then never polls again.
        let absent = thread::spawn(move || {
            finish(&mut absent, 1_000, 1);
            absent.enqueue(2_000, classes[0], Op::Read, 4096, 1).unwrap();
            absent
        });

        let end_ns = finish(&mut present, 1_000, 80);
        assert_eq!(present.queued() + present.in_flight(), 0, "stuck");
        assert!(end_ns < 400_000, "{end_ns}");

        let mut absent = absent.join().unwrap();
        finish(&mut absent, end_ns, 60);
        assert_eq!(absent.queued(), 0, "stuck");
        assert_eq!(disk.in_flight_ticks(), 0);
    });
}
