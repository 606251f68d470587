//! The closed loop on a duplex disk: each direction has a capacity scale of its own, and neither hides what the other does.

use std::collections::BTreeMap;

use crate::common::{KIB, MS, S, queue_of, usual};
use plimsoll_core::{
    ControlConfig, CostModel, DiskConfig, Dispatch, GroupId, IoQueue, Op, Outcome, Progress, QueueConfig,
};

const LATENCY_NS: u64 = 50_000;
const OPS: [Op; 2] = [Op::Read, Op::Write];

/// A device with a pipe for each direction, which takes (device time of the model) * `slowness` a piece, and always as many reads
/// and writes outstanding as were enqueued.
struct Duplex {
    queue: IoQueue,
    now_ns: u64,
    slowness: [f64; 2],
    free_fs: [u128; 2],
    in_device: BTreeMap<(u64, u64), Dispatch>,
    sent: u64,
    moved_bytes: [u64; 2],
}

impl Duplex {
    fn new(outstanding: [usize; 2]) -> Duplex {
        let disk = DiskConfig { duplex: true, control: ControlConfig::default(), ..usual() };
        let mut queue = queue_of(disk, QueueConfig::default());
        let classes = OPS.map(|_| queue.disk().add_class(GroupId::ROOT, 100).unwrap());
        for (direction, count) in outstanding.into_iter().enumerate() {
            for _ in 0..count {
                queue.enqueue(S, classes[direction], OPS[direction], 16 * KIB, direction as u64).unwrap();
            }
        }
        let (slowness, free_fs, moved_bytes) = ([1.0; 2], [0; 2], [0; 2]);
        let mut world =
            Duplex { queue, now_ns: S, slowness, free_fs, in_device: BTreeMap::new(), sent: 0, moved_bytes };
        world.run_for(S);
        world
    }

    fn run_for(&mut self, for_ns: u64) {
        let end_ns = self.now_ns + for_ns;
        self.moved_bytes = [0; 2];
        loop {
            while let Some(piece) = self.queue.poll_dispatch(self.now_ns) {
                let direction = usize::from(piece.op() == Op::Write);
                let service_fs = (piece.cost().as_fs() as f64 * self.slowness[direction]) as u128;
                let free_fs = &mut self.free_fs[direction];
                *free_fs = (*free_fs).max(u128::from(self.now_ns) * 1_000_000) + service_fs;
                let done_ns = free_fs.div_ceil(1_000_000) as u64 + LATENCY_NS;
                self.in_device.insert((done_ns, self.sent), piece);
                self.sent += 1;
            }
            let done_ns = self.in_device.first_key_value().map(|((at_ns, _), _)| *at_ns);
            let wakeup_ns = self.queue.next_wakeup().map(|at_ns| at_ns.max(self.now_ns + 1));
            self.now_ns = [done_ns, wakeup_ns, Some(end_ns)].into_iter().flatten().min().unwrap();
            if self.now_ns >= end_ns {
                return;
            }
            while let Some(entry) = self.in_device.first_entry()
                && entry.key().0 <= self.now_ns
            {
                let piece = entry.remove();
                let (op, direction, bytes) = (piece.op(), piece.user_data(), piece.len_bytes());
                self.moved_bytes[direction as usize] += u64::from(bytes);
                if let Progress::Finished(_) = self.queue.complete(self.now_ns, piece, Outcome::Moved(bytes)) {
                    let snapshot = self.queue.snapshot(self.now_ns);
                    let class = snapshot.classes[direction as usize].class;
                    self.queue.enqueue(self.now_ns, class, op, bytes, direction).unwrap();
                }
            }
        }
    }

    /// Bytes of reads and of writes in the next 500 ms, over what the model promises.
    fn parts(&mut self) -> [f64; 2] {
        self.run_for(500 * MS);
        let promised = 0.5 / self.queue.disk().cost(Op::Read, 16 * KIB).as_secs_f64() * f64::from(16 * KIB);
        self.moved_bytes.map(|bytes| bytes as f64 / promised)
    }
}

#[test]
fn a_slow_direction_is_seen_beside_a_fast_one() {
    for slow in [0, 1] {
        let mut world = Duplex::new([64, 64]);
        let parts = world.parts();
        assert!(parts.iter().all(|part| *part > 0.9), "both at full speed: {parts:?}");
        assert!(world.queue.disk().capacity_scale() > 0.95);

        world.slowness[slow] = 4.0;
        world.run_for(2 * S);
        let scale = world.queue.disk().capacity_scale();
        assert!((0.24..=0.35).contains(&scale), "direction {slow} does a quarter: scale {scale}");
        let parts = world.parts();
        assert!(parts[slow] > 0.24 && parts[1 - slow] > 0.9, "direction {slow} does a quarter: {parts:?}");

        world.slowness[slow] = 1.0;
        world.run_for(S);
        let parts = world.parts();
        assert!(parts.iter().all(|part| *part > 0.9), "both at full speed again: {parts:?}");
    }
}

#[test]
fn a_disk_that_slows_down_in_both_directions_is_seen() {
    let mut world = Duplex::new([64, 64]);
    world.slowness = [4.0; 2];
    world.run_for(2 * S);
    let scale = world.queue.disk().capacity_scale();
    assert!((0.24..=0.35).contains(&scale), "{scale}");
    let parts = world.parts();
    assert!(parts.iter().all(|part| *part > 0.24), "{parts:?}");
}

/// Little work in one direction says nothing about what the disk could do in it.
#[test]
fn a_light_direction_keeps_its_scale() {
    let mut world = Duplex::new([64, 1]);
    world.run_for(S);
    assert!(world.queue.disk().capacity_scale() > 0.9, "{}", world.queue.disk().capacity_scale());
    let parts = world.parts();
    assert!(parts[0] > 0.9, "{parts:?}");
}

/// On an unlimited disk no device time is in the device, whatever went out: a backend with little room must not get
/// reads alone.
#[test]
fn on_an_unlimited_disk_reads_and_writes_alternate() {
    let disk = DiskConfig { model: CostModel::unlimited(), duplex: true, ..DiskConfig::default() };
    let mut queue = queue_of(disk, QueueConfig::default());
    let classes = OPS.map(|_| queue.disk().add_class(GroupId::ROOT, 100).unwrap());
    for _ in 0..100 {
        for (class, op) in classes.into_iter().zip(OPS) {
            queue.enqueue(S, class, op, 4 * KIB, 0).unwrap();
        }
    }
    let first: Vec<Op> = (0..10).map(|_| queue.poll_dispatch(S).unwrap().op()).collect();
    assert_eq!(first.iter().filter(|op| **op == Op::Write).count(), 5, "{first:?}");
}

/// The throttle of a control group, or of a volume, holds each direction by itself, for tens of milliseconds.
#[test]
fn a_direction_that_stands_still_does_not_hold_the_other() {
    let mut world = Duplex::new([0, 32]);
    world.slowness[1] = 1e4;
    world.run_for(10 * MS);
    let reads = world.queue.snapshot(world.now_ns).classes[0].class;
    for _ in 0..8 {
        world.queue.enqueue(world.now_ns, reads, Op::Read, 16 * KIB, 0).unwrap();
    }
    let [reads, writes] = world.parts();
    // Reads have half of the window that was enough for writes alone. Without it: 0.22.
    assert!(reads >= 0.4 && writes < 0.01, "{reads:.2} of the reads, {writes:.2} of the writes");
}

/// A period in which a direction completes nothing says nothing about its rate: it has its tokens when it goes on.
#[test]
fn a_direction_that_stood_still_keeps_its_scale() {
    let mut world = Duplex::new([0, 0]);
    let classes = [0, 1].map(|at| world.queue.snapshot(world.now_ns).classes[at].class);
    for _ in 0..16 {
        world.queue.enqueue(world.now_ns, classes[1], Op::Write, 64 * KIB, 1).unwrap();
    }
    world.run_for(500 * MS);
    world.slowness[1] = 1e4;
    world.run_for(5 * MS);
    for _ in 0..64 {
        world.queue.enqueue(world.now_ns, classes[0], Op::Read, 4 * KIB, 0).unwrap();
    }
    world.run_for(40 * MS);
    let scale = world.queue.disk().capacity_scale();
    assert!(scale > 0.5, "scale {scale}");
}
