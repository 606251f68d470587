//! Device time is divided by shares: any ratio, any sizes, any depth of the tree, on devices better and worse than
//! their model. And the cases by which Seastar tests its fair queue, told in our own way.

use crate::common::{KIB, MS, Random, S, US, World, jain, model, queue_of, unit_cost, usual};
use plimsoll_core::{ClassId, DiskConfig, GroupId, IoQueue, Op, Outcome, Progress, QueueConfig};

const MIXED: [u32; 5] = [4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, 1024 * KIB];
/// Device time of the longest request, 1 MiB.
const LARGEST_S: f64 = 1.1e-3;

/// Runs one backlogged class per entry of `shares` and compares what each consumed with its part of the total.
fn check(shares: &[u32], lengths_bytes: &[u32], parallel: usize, factor: f64, for_ns: u64) -> Vec<f64> {
    let mut world = World::new(queue_of(usual(), QueueConfig::default()), parallel, factor);
    for shares in shares {
        world.load(*shares, Op::Read, lengths_bytes, 50);
    }
    world.run_until(for_ns);
    let consumed = world.consumed_s();
    check_parts(&consumed, shares);
    consumed
}

fn check_parts(consumed: &[f64], shares: &[u32]) {
    let total: f64 = consumed.iter().sum();
    let weights: f64 = shares.iter().map(|s| f64::from(*s)).sum();
    for (consumed, shares) in consumed.iter().zip(shares) {
        let expected = total * f64::from(*shares) / weights;
        let tolerance = (0.02 * expected).max(2.0 * LARGEST_S);
        assert!((consumed - expected).abs() <= tolerance, "shares {shares}: {consumed} s instead of {expected} s");
    }
}

#[test]
fn any_ratio_and_mixed_sizes() {
    for ratio in [1, 2, 3, 10, 100, 1000] {
        for (parallel, factor) in [(1, 0.9), (1, 1.0), (1, 3.0), (8, 4.0), (8, 30.0)] {
            check(&[1, ratio], &MIXED, parallel, factor, S);
            check(&[ratio, 1, ratio, 5], &MIXED, parallel, factor, S);
        }
    }
}

#[test]
fn jains_index_is_nearly_one() {
    let rows: [(&[u32], u64); 5] =
        [(&[1, 1], S), (&[1, 10], 4 * S), (&[10, 20, 40, 80], 4 * S), (&[1, 100], 20 * S), (&[1, 1000], 100 * S)];
    for (shares, for_ns) in rows {
        let consumed = check(shares, &MIXED, 1, 1.0, for_ns);
        let index = jain(&consumed, shares);
        assert!(index >= 0.999, "{shares:?}: {index}");
    }
}

/// Each request takes 50 ns: by a clock of so many shares, less than a unit.
#[test]
fn the_most_shares_divide_the_quickest_disk() {
    let disk = DiskConfig { model: model(20_000_000, 80_000_000_000), ..usual() };
    let mut world = World::new(queue_of(disk, QueueConfig::default()), 1, 1.0);
    for _ in 0..2 {
        world.load(u32::MAX, Op::Read, &[4 * KIB], 50);
    }
    world.run_until(2 * MS);
    let finished: Vec<u64> = world.loads.iter().map(|load| load.finished).collect();
    assert!(finished[0].abs_diff(finished[1]) <= 1, "{finished:?}");
}

#[test]
fn a_class_of_small_requests_gets_as_much_as_one_of_large() {
    let mut world = World::new(queue_of(usual(), QueueConfig::default()), 1, 1.0);
    world.load(100, Op::Read, &[4 * KIB], 50);
    world.load(100, Op::Write, &[1024 * KIB], 50);
    world.run_until(S);
    check_parts(&world.consumed_s(), &[1, 1]);
}

#[test]
fn three_levels_of_groups() {
    let queue = queue_of(usual(), QueueConfig::default());
    let outer = queue.disk().add_group(GroupId::ROOT, 300).unwrap();
    let inner = queue.disk().add_group(outer, 100).unwrap();
    let mut world = World::new(queue, 4, 8.0);
    // Parts: root 300:100; in `outer` 100 (inner) : 200; in `inner` 10 : 30.
    world.load(100, Op::Read, &MIXED, 50);
    world.load_in(outer, 200, Op::Read, &MIXED, 50);
    world.load_in(inner, 10, Op::Write, &MIXED, 50);
    world.load_in(inner, 30, Op::Read, &MIXED, 50);
    world.run_until(2 * S);
    check_parts(&world.consumed_s(), &[4, 8, 1, 3]);
}

#[test]
fn shares_changed_while_running() {
    let queue = queue_of(usual(), QueueConfig::default());
    let group = queue.disk().add_group(GroupId::ROOT, 100).unwrap();
    let mut world = World::new(queue, 1, 1.5);
    let one = world.load(100, Op::Read, &MIXED, 50);
    world.load_in(group, 7, Op::Read, &MIXED, 50);
    let steps = [((100, 100), [1, 1]), ((300, 100), [3, 1]), ((100, 900), [1, 9]), ((1, 1), [1, 1]), ((0, 5), [1, 5])];
    for ((class_shares, group_shares), expected) in steps {
        world.queue.disk().set_shares(world.loads[one].class, class_shares).unwrap();
        world.queue.disk().set_shares(group, group_shares).unwrap();
        // A debt from before is paid by the old shares.
        world.run_until(world.now_ns + 50 * MS);
        world.start_counting();
        world.run_until(world.now_ns + S);
        check_parts(&world.consumed_s(), &expected);
    }
}

#[test]
fn nobody_starves() {
    let mut world = World::new(queue_of(usual(), QueueConfig::default()), 1, 1.0);
    for _ in 0..10 {
        world.load(1000, Op::Read, &[64 * KIB], 20);
    }
    world.run_until(50 * MS);
    let joined_ns = world.now_ns;
    let small = world.load(1, Op::Read, &[4 * KIB], 20);
    world.run_until(joined_ns + S);
    // 10 us for each of 10 001 shares, one request of 71.4 us of each of the others, and what is in the device.
    let bound_ns = 10 * US * 10_001 + 11 * 72 * US + MS;
    let mut last_ns = joined_ns;
    for sent in world.log.iter().filter(|sent| sent.load == small) {
        assert!(sent.at_ns - last_ns <= bound_ns, "{} ns without a dispatch", sent.at_ns - last_ns);
        last_ns = sent.at_ns;
    }
    assert!(world.now_ns - last_ns <= bound_ns);
}

/// A short transfer's rest is charged to a class that may be far ahead of the others. Whoever wakes up then is a peer
/// of those who wait, not of the class that is ahead.
#[test]
fn the_rest_of_a_short_transfer_does_not_move_the_time_of_the_others() {
    let mut bench = Bench::new(&[1, 1000, 1000], 0);
    bench.send(0, 1);
    let piece = bench.queue.poll_dispatch(0).unwrap();
    bench.send(0, 100);
    bench.send(1, 2000);
    bench.tick(10);
    let progress = bench.queue.complete(bench.now_ns, piece, Outcome::Moved(100));
    bench.send(2, 1000);
    bench.dispatched = vec![0; 3];
    bench.tick(200);
    assert!(bench.dispatched[2].abs_diff(100) <= 2 && bench.dispatched[1].abs_diff(100) <= 2, "{:?}", bench.dispatched);
    assert!(matches!(progress, Progress::Continue(_)));
}

/// A queue whose requests all cost 1 us and are back at once; a tick dispatches one.
struct Bench {
    queue: IoQueue,
    classes: Vec<ClassId>,
    now_ns: u64,
    dispatched: Vec<u64>,
}

impl Bench {
    fn new(shares: &[u32], credit_ns: u64) -> Bench {
        let config = QueueConfig { wakeup_credit_ns: Some(credit_ns), max_requests: 100_000, ..QueueConfig::default() };
        let mut bench = Bench { queue: queue_of(unit_cost(), config), classes: vec![], now_ns: 0, dispatched: vec![] };
        shares.iter().for_each(|shares| bench.class(GroupId::ROOT, *shares));
        bench
    }

    fn class(&mut self, group: GroupId, shares: u32) {
        self.classes.push(self.queue.disk().add_class(group, shares).unwrap());
        self.dispatched.push(0);
    }

    fn send(&mut self, class: usize, count: usize) {
        for _ in 0..count {
            self.queue.enqueue(self.now_ns, self.classes[class], Op::Read, 4096, class as u64).unwrap();
        }
    }

    fn tick(&mut self, count: usize) {
        for _ in 0..count {
            self.now_ns += US;
            let Some(piece) = self.queue.poll_dispatch(self.now_ns) else { continue };
            self.dispatched[piece.user_data() as usize] += 1;
            let _ = self.queue.complete(self.now_ns, piece, Outcome::Moved(4096));
        }
    }

    fn check(&self, expected: &[u64], tolerance: u64) {
        let near = self.dispatched.iter().zip(expected).all(|(have, want)| have.abs_diff(*want) <= tolerance);
        assert!(near, "{:?} instead of {expected:?}", self.dispatched);
    }
}

#[test]
fn backlogged_classes_tick_by_tick() {
    // Shares, requests of each, then (ticks, dispatched of each by then, tolerance).
    type Row = (&'static [u32], usize, &'static [(usize, &'static [u64], u64)]);
    let rows: [Row; 6] = [
        (&[10, 10], 100, &[(10, &[5, 5], 1), (90, &[50, 50], 1)]),
        (&[10; 4], 200, &[(200, &[50, 50, 50, 50], 1)]),
        (&[10, 20], 100, &[(10, &[3, 7], 1), (90, &[33, 67], 1)]),
        (&[10, 20], 20_000, &[(3, &[1, 2], 0), (2997, &[1000, 2000], 2)]),
        (&[10, 10], 20_000, &[(2000, &[1000, 1000], 2)]),
        (&[1, 2, 3, 4], 20_000, &[(10_000, &[1000, 2000, 3000, 4000], 2)]),
    ];
    for (shares, requests, steps) in rows {
        let mut bench = Bench::new(shares, 50 * US);
        (0..shares.len()).for_each(|class| bench.send(class, requests));
        for (ticks, expected, tolerance) in steps {
            bench.tick(*ticks);
            bench.check(expected, *tolerance);
        }
    }
}

#[test]
fn a_class_that_was_alone_waits_until_the_other_has_used_its_credit() {
    let mut bench = Bench::new(&[10, 10], 750 * US);
    bench.send(1, 100);
    bench.tick(100);
    bench.send(0, 20);
    bench.send(1, 20);
    // Both wake up; the first of the two to wake finds an empty queue, and neither is owed anything.
    bench.tick(20);
    bench.check(&[10, 110], 1);

    let mut bench = Bench::new(&[10, 10], 750 * US);
    bench.send(1, 120);
    bench.tick(100);
    bench.send(0, 20);
    bench.tick(20);
    bench.check(&[20, 100], 1);
}

#[test]
fn fifty_are_forgiven() {
    let mut bench = Bench::new(&[10, 10], 50 * US);
    bench.send(0, 200);
    bench.tick(100);
    bench.send(1, 100);
    bench.tick(100);
    bench.check(&[125, 75], 2);
}

#[test]
fn fifty_are_forgiven_inside_and_outside_a_group() {
    // A group of two, and one beside it, equal shares. Who wakes up in which order, and who has what 100 ticks later.
    let rows: [([usize; 3], [[u64; 3]; 4]); 3] = [
        ([2, 0, 1], [[0, 0, 100], [75, 0, 125], [75, 50, 175], [100, 75, 225]]),
        ([0, 2, 1], [[100, 0, 0], [125, 0, 75], [125, 50, 125], [150, 75, 175]]),
        ([0, 1, 2], [[100, 0, 0], [125, 75, 0], [137, 88, 75], [162, 113, 125]]),
    ];
    for (order, steps) in rows {
        let mut bench = Bench::new(&[], 50 * US);
        let group = bench.queue.disk().add_group(GroupId::ROOT, 10).unwrap();
        bench.class(group, 10);
        bench.class(group, 10);
        bench.class(GroupId::ROOT, 10);
        for (step, expected) in steps.iter().enumerate() {
            if let Some(class) = order.get(step) {
                bench.send(*class, 1000);
            }
            bench.tick(100);
            bench.check(expected, 2);
        }
    }
}

#[test]
fn shares_swapped_half_way() {
    let mut bench = Bench::new(&[20, 10], 50 * US);
    bench.send(0, 500);
    bench.send(1, 500);
    bench.tick(250);
    bench.queue.disk().set_shares(bench.classes[0], 10).unwrap();
    bench.queue.disk().set_shares(bench.classes[1], 20).unwrap();
    bench.tick(250);
    bench.check(&[250, 250], 2);
}

#[test]
fn a_request_of_double_cost_counts_twice() {
    let mut world = World::new(queue_of(usual(), QueueConfig::default()), 1, 1.0);
    // 16 KiB take 22.288 us, 4 KiB take 10 us.
    world.load(10, Op::Read, &[16 * KIB], 100);
    world.load(10, Op::Read, &[4 * KIB], 100);
    world.run_until(200 * MS);
    let ratio = world.loads[1].dispatched as f64 / world.loads[0].dispatched as f64;
    assert!((ratio - 2.2288).abs() < 0.01, "{ratio}");
}

#[test]
fn random_trees_divide_by_shares() {
    let mut random = Random(7);
    for _ in 0..20 {
        let queue = queue_of(usual(), QueueConfig::default());
        let grouped = random.below(2) == 1;
        let group = if grouped { queue.disk().add_group(GroupId::ROOT, 4).unwrap() } else { GroupId::ROOT };
        let mut world = World::new(queue, 1, 1.0);
        let shares = [0, 1, 2].map(|_| 1 + random.below(5) as u32);
        let sizes = [0, 1, 2].map(|_| (4 * KIB) << random.below(5));
        world.load(shares[0], Op::Read, &sizes[..1], 50);
        world.load_in(group, shares[1], Op::Read, &sizes[1..2], 50);
        world.load_in(group, shares[2], Op::Read, &sizes[2..], 50);
        world.run_until(S);
        let inside = shares[1] + shares[2];
        let expected = if grouped { [shares[0] * inside, 4 * shares[1], 4 * shares[2]] } else { shares };
        check_parts(&world.consumed_s(), &expected);
    }
}

#[test]
fn whoever_wakes_up_anywhere_in_the_tree_is_served() {
    // Two groups of two and three classes beside them: every number of requests from none to two in each.
    for placement in 0..3_usize.pow(7) {
        let mut bench = Bench::new(&[1, 1, 1], 50 * US);
        for _ in 0..2 {
            let group = bench.queue.disk().add_group(GroupId::ROOT, 1).unwrap();
            bench.class(group, 1);
            bench.class(group, 1);
        }
        let counts: Vec<u64> = (0..7).map(|class| (placement / 3_usize.pow(class) % 3) as u64).collect();
        for _ in 0..2 {
            bench.dispatched = vec![0; 7];
            (0..7).for_each(|class| bench.send(class, counts[class] as usize));
            bench.tick(15);
            bench.check(&counts, 0);
            assert_eq!((bench.queue.queued(), bench.queue.requests()), (0, 0));
        }
    }
}

#[test]
fn the_rests_of_short_transfers_are_charged_to_their_class() {
    let mut queue = queue_of(usual(), QueueConfig::default());
    let classes = [0, 1].map(|_| queue.disk().add_class(GroupId::ROOT, 100).unwrap());
    let mut now_ns = 0;
    for (number, class) in classes.iter().enumerate() {
        (0..50).for_each(|_| assert!(queue.enqueue(0, *class, Op::Read, 64 * KIB, number as u64).is_ok()));
    }
    while now_ns < S {
        let Some(piece) = queue.poll_dispatch(now_ns) else {
            now_ns = queue.next_wakeup().unwrap();
            continue;
        };
        // Each transfer of the first class stops half-way.
        let number = piece.user_data();
        let moved_bytes = if number == 0 { 32 * KIB } else { 64 * KIB };
        if let Progress::Continue(rest) = queue.complete(now_ns, piece, Outcome::Moved(moved_bytes)) {
            assert!(matches!(queue.complete(now_ns, rest, Outcome::Moved(32 * KIB)), Progress::Finished(_)));
        }
        queue.enqueue(now_ns, classes[number as usize], Op::Read, 64 * KIB, number).unwrap();
    }
    let consumed = classes.map(|class| queue.class_stats(class).unwrap().consumed_fs as f64 / 1e15);
    check_parts(&consumed, &[1, 1]);
}
