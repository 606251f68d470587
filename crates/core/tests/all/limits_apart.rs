//! Operations and bytes limited apart, as by a cloud volume: neither limit is exceeded, and one of them is used in full.

use std::collections::VecDeque;

use crate::common::{KIB, MS, S, US, queue_of};
use plimsoll_core::{
    ControlConfig, CostForm, CostModel, DiskConfig, FourFigures, GroupId, IoQueue, Op, Outcome, Progress, QueueConfig,
    Rate,
};

const IOPS: u64 = 3_000;
const BYTES_PER_S: u64 = 250_000_000;
/// Depth of the buckets. What is measured begins when they are empty.
const FULL_NS: u64 = 50 * MS;

fn volume(form: CostForm) -> DiskConfig {
    let figures = FourFigures {
        read_iops: Rate::per_second(IOPS),
        write_iops: Rate::per_second(IOPS),
        read_bandwidth: Rate::per_second(BYTES_PER_S),
        write_bandwidth: Rate::per_second(BYTES_PER_S),
    };
    let model = CostModel::from_figures(&figures, form, 4096, 4096);
    DiskConfig { model, control: ControlConfig::OFF, ..DiskConfig::default() }
}

/// What becomes of the pieces.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Done,
    /// Every third is refused, and offered again.
    Refused,
    /// Every third moves half of its bytes, and its rest follows.
    Short,
}

/// Runs two backlogged classes with requests of these lengths on a device that is always done at once, and returns the
/// parts of both limits that they used in two seconds: operations, bytes.
fn used(form: CostForm, lengths_bytes: [u32; 2], shares: [u32; 2], fate: Fate) -> [f64; 2] {
    let mut queue = queue_of(volume(form), QueueConfig::default());
    let classes = shares.map(|shares| queue.disk().add_class(GroupId::ROOT, shares).unwrap());
    let (mut operations, mut bytes, mut pieces) = (0, 0, 0);
    let mut now_ns = S;

    while now_ns < 3 * S + FULL_NS {
        for (class, len_bytes) in classes.into_iter().zip(lengths_bytes) {
            while queue.class_stats(class).unwrap().queued < 8 {
                queue.enqueue(now_ns, class, Op::Read, len_bytes, 0).unwrap();
            }
        }
        while let Some(piece) = queue.poll_dispatch(now_ns) {
            pieces += 1;
            if fate == Fate::Refused && pieces % 3 == 0 {
                let _ = queue.refuse(now_ns, piece, 11);
                continue;
            }
            let mut piece = piece;
            loop {
                let counts = u64::from(now_ns >= S + FULL_NS);
                operations += counts;
                let is_short = fate == Fate::Short && pieces % 3 == 0;
                let moved = if is_short { (piece.len_bytes() / 2).max(1) } else { piece.len_bytes() };
                bytes += counts * u64::from(moved);
                pieces += 1;
                match queue.complete(now_ns, piece, Outcome::Moved(moved)) {
                    Progress::Continue(rest) => piece = rest,
                    _ => break,
                }
            }
            if queue.queued() == 0 {
                break;
            }
        }
        now_ns += 50 * US;
    }
    [operations as f64 / (2 * IOPS) as f64, bytes as f64 / (2 * BYTES_PER_S) as f64]
}

#[test]
fn neither_limit_is_exceeded_and_one_is_used_in_full() {
    let (short, long) = (4 * KIB, 128 * KIB);
    for fate in [Fate::Done, Fate::Refused, Fate::Short] {
        for (lengths, shares) in
            [([short; 2], [1, 1]), ([long; 2], [1, 1]), ([short, long], [1, 1]), ([short, long], [1, 10])]
        {
            let [operations, bytes] = used(CostForm::Max, lengths, shares, fate);
            let fullest = operations.max(bytes);
            // A short piece has paid for all its bytes, and its rest pays again.
            let least = if fate == Fate::Short { 0.8 } else { 0.99 };
            assert!((least..1.01).contains(&fullest), "{lengths:?} {shares:?} {fate:?}: {operations} {bytes}");
        }
    }
}

#[test]
fn a_mix_uses_both_limits_where_one_sum_of_costs_uses_neither() {
    // With twice the shares, long requests take x of the bytes' time and 0.64 x of the operations', the short ones x / 2
    // of the operations': x = 0.88.
    let [operations, bytes] = used(CostForm::Max, [4 * KIB, 128 * KIB], [1, 2], Fate::Done);
    assert!(operations > 0.99 && bytes > 0.85, "{operations} {bytes}");
    let [operations, bytes] = used(CostForm::Knee, [4 * KIB, 128 * KIB], [1, 2], Fate::Done);
    assert!(operations < 0.62 && bytes < 0.45, "{operations} {bytes}");
}

/// Runs a class that has four short reads outstanding and one that has one long read, on a device that takes 100 us for
/// each, and returns the parts of both limits that they used in two seconds: operations, bytes.
fn used_by_few_outstanding(shares: [u32; 2]) -> [f64; 2] {
    let mut queue = queue_of(volume(CostForm::Max), QueueConfig::default());
    let [short, long] = shares.map(|shares| queue.disk().add_class(GroupId::ROOT, shares).unwrap());
    let mut in_device = VecDeque::new();
    let (mut operations, mut bytes) = (0, 0);
    let mut now_ns = S;
    // A request carries its number among the five: the last is the long one.
    let enqueue = |queue: &mut IoQueue, now_ns, number| {
        let (class, len_bytes) = if number < 4 { (short, 4 * KIB) } else { (long, 128 * KIB) };
        queue.enqueue(now_ns, class, Op::Read, len_bytes, number).unwrap();
    };
    (0..5).for_each(|number| enqueue(&mut queue, now_ns, number));

    while now_ns < 3 * S + FULL_NS {
        while let Some(piece) = queue.poll_dispatch(now_ns) {
            let counts = u64::from(now_ns >= S + FULL_NS);
            operations += counts;
            bytes += counts * u64::from(piece.len_bytes());
            in_device.push_back((now_ns + 100 * US, piece));
        }
        let done_ns = in_device.front().map(|(done_ns, _)| *done_ns);
        now_ns = [done_ns, queue.next_wakeup()].into_iter().flatten().min().unwrap().max(now_ns);
        while in_device.front().is_some_and(|(done_ns, _)| *done_ns <= now_ns)
            && let Some((_, piece)) = in_device.pop_front()
        {
            let len_bytes = piece.len_bytes();
            if let Progress::Finished(done) = queue.complete(now_ns, piece, Outcome::Moved(len_bytes)) {
                enqueue(&mut queue, now_ns, done.user_data);
            }
        }
    }
    [operations as f64 / (2 * IOPS) as f64, bytes as f64 / (2 * BYTES_PER_S) as f64]
}

#[test]
fn few_outstanding_requests_use_one_limit_in_full() {
    for shares in [[1, 1], [1, 10], [10, 1]] {
        let [operations, bytes] = used_by_few_outstanding(shares);
        assert!((0.99..1.01).contains(&operations.max(bytes)), "{shares:?}: {operations} {bytes}");
    }
}

/// By turns of 20 ms there are only short reads, which leave bytes, and only long ones, which leave operations.
#[test]
fn what_one_limit_leaves_is_used_when_the_load_changes() {
    let mut queue = queue_of(volume(CostForm::Max), QueueConfig::default());
    let classes = [1, 1].map(|shares| queue.disk().add_class(GroupId::ROOT, shares).unwrap());
    let (mut operations, mut bytes, mut now_ns) = (0, 0, S);
    while now_ns < 3 * S {
        let turn = (now_ns / (20 * MS) % 2) as usize;
        while queue.class_stats(classes[turn]).unwrap().queued < 8 {
            queue.enqueue(now_ns, classes[turn], Op::Read, [4 * KIB, 128 * KIB][turn], 0).unwrap();
        }
        while let Some(piece) = queue.poll_dispatch(now_ns) {
            let len_bytes = piece.len_bytes();
            operations += 1;
            bytes += u64::from(len_bytes);
            let _ = queue.complete(now_ns, piece, Outcome::Moved(len_bytes));
        }
        now_ns += 50 * US;
    }
    let [operations, bytes] = [operations as f64 / (2 * IOPS) as f64, bytes as f64 / (2 * BYTES_PER_S) as f64];
    // Without that, half of the time each is used in full, and the other by what the requests take of it: 0.88 and 0.60.
    assert!(operations > 0.95 && bytes > 0.75, "{operations} {bytes}");
    assert!(operations < 1.03 && bytes < 1.03, "{operations} {bytes}");
}

/// A device that counts over slices of 100 ms, as the kernel's throttle does: it does what comes, 100 us a piece, until the
/// slice has had its bytes, and the rest in the next.
#[derive(Default)]
struct Slices {
    slice: u64,
    bytes: u64,
}

impl Slices {
    const SLICE_NS: u64 = 100 * MS;

    /// Returns when a piece that comes at `now_ns` is done.
    fn done_ns(&mut self, now_ns: u64, len_bytes: u32) -> u64 {
        let slice = now_ns / Slices::SLICE_NS;
        if slice > self.slice {
            (self.slice, self.bytes) = (slice, 0);
        }
        self.bytes += u64::from(len_bytes);
        if self.bytes > BYTES_PER_S / 10 {
            (self.slice, self.bytes) = (self.slice + 1, u64::from(len_bytes));
        }
        now_ns.max(self.slice * Slices::SLICE_NS) + 100 * US
    }
}

/// A burst exceeds what the device lets pass in a slice. The tokens of the time until the next slice must not become the
/// next burst.
#[test]
fn a_limit_that_a_burst_exceeded_once_is_not_exceeded_in_each_slice() {
    let mut queue = queue_of(volume(CostForm::Max), QueueConfig::default());
    let class = queue.disk().add_class(GroupId::ROOT, 1).unwrap();
    let (mut device, mut in_device) = (Slices::default(), VecDeque::new());
    let (mut now_ns, mut bytes, mut stalls) = (S, 0, 0);
    for _ in 0..8 {
        queue.enqueue(now_ns, class, Op::Read, 128 * KIB, 0).unwrap();
    }

    while now_ns < 6 * S {
        while let Some(piece) = queue.poll_dispatch(now_ns) {
            in_device.push_back((device.done_ns(now_ns, piece.len_bytes()), piece));
        }
        let done_ns = in_device.front().map(|(done_ns, _)| *done_ns);
        now_ns = [done_ns, queue.next_wakeup()].into_iter().flatten().min().unwrap().max(now_ns + 1);
        while in_device.front().is_some_and(|(done_ns, _)| *done_ns <= now_ns)
            && let Some((_, piece)) = in_device.pop_front()
        {
            let len_bytes = piece.len_bytes();
            bytes += u64::from(len_bytes);
            stalls += u64::from(now_ns - piece.dispatched_ns() > 10 * MS);
            let _ = queue.complete(now_ns, piece, Outcome::Moved(len_bytes));
            queue.enqueue(now_ns, class, Op::Read, 128 * KIB, 0).unwrap();
        }
    }
    let used = bytes as f64 / (5 * BYTES_PER_S) as f64;
    assert!(stalls <= 2 && used > 0.97, "{stalls} stalls, {used:.3} of the limit");
}

#[test]
fn a_caller_that_was_away_does_not_lose_tokens() {
    let left_ns = |late_ns| {
        let mut queue = queue_of(volume(CostForm::Max), QueueConfig::default());
        let class = queue.disk().add_class(GroupId::ROOT, 1).unwrap();
        queue.enqueue(S, class, Op::Read, 128 * KIB, 0).unwrap();
        let piece = queue.poll_dispatch(S).unwrap();
        let _ = queue.complete_late(S + 20 * MS, late_ns, piece, Outcome::Moved(128 * KIB));
        queue.disk().tokens_ns(S + 20 * MS).unwrap()
    };
    assert!(left_ns(0) < (FULL_NS - 15 * MS) as i64, "the device kept it for 20 ms");
    assert_eq!(left_ns(20 * MS), FULL_NS as i64);
}

#[test]
fn the_bucket_shows_the_emptier_of_two_limits() {
    let mut queue = queue_of(volume(CostForm::Max), QueueConfig::default());
    let class = queue.disk().add_class(GroupId::ROOT, 1).unwrap();
    let full_ns = FULL_NS as i64;
    assert_eq!(queue.disk().tokens_ns(S), Some(full_ns));
    // 128 KiB take 0.33 ms of the operations and 0.52 ms of the bytes.
    queue.enqueue(S, class, Op::Read, 128 * KIB, 0).unwrap();
    let piece = queue.poll_dispatch(S).unwrap();
    assert_eq!(queue.disk().tokens_ns(S), Some(full_ns - 524_288));
    let _ = queue.refuse(S, piece, 11);
    assert_eq!(queue.disk().tokens_ns(S), Some(full_ns));
    assert_eq!(queue.disk().tokens_ns(S + MS), Some(full_ns));
}
