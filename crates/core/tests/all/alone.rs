//! Requests that find nothing before them: `dispatch_alone` does what `enqueue` and `poll_dispatch` do.

use std::collections::BTreeMap;

use crate::common::{KIB, MS, Random, S, US, model, queue_of, usual};
use plimsoll_core::{
    ClassId, CostModel, DiskConfig, Dispatch, GroupId, IoQueue, Limits, MixExponent, Mode, Op, Outcome, Progress, Qos,
    QueueConfig, Rate,
};

const LENGTHS: [u32; 6] = [512, 4 * KIB, 4 * KIB, 16 * KIB, 64 * KIB + 511, 2000 * KIB];
const OPS: [Op; 5] = [Op::Read, Op::Read, Op::Write, Op::Write, Op::Flush];

/// The same queue twice. What is done to one is done to the other; only the second may use the short way.
struct Twins {
    queues: [IoQueue; 2],
    classes: Vec<ClassId>,
    in_device: BTreeMap<u64, [Dispatch; 2]>,
    random: Random,
    now_ns: u64,
    sent: u64,
    alone: u64,
    steps: u64,
}

impl Twins {
    fn new(seed: u64, disk: &DiskConfig, mode: Mode) -> Twins {
        let one = || queue_of(disk.clone(), QueueConfig { mode, max_requests: 40, ..QueueConfig::default() });
        let queues = [one(), one()];
        let mut classes = Vec::new();
        for queue in &queues {
            let group = queue.disk().add_group(GroupId::ROOT, 150).unwrap();
            // Different shares: of classes at the same clock, either may be first.
            let places = [(GroupId::ROOT, 10), (GroupId::ROOT, 333), (group, 70), (group, 500), (GroupId::ROOT, 1)];
            classes = places.map(|(parent, shares)| queue.disk().add_class(parent, shares).unwrap()).to_vec();
        }
        let random = Random(seed);
        Twins { queues, classes, in_device: BTreeMap::new(), random, now_ns: S, sent: 0, alone: 0, steps: 0 }
    }

    fn step(&mut self) {
        // Busy and idle by turns.
        self.steps += 1;
        let sends = if self.steps % 400 < 40 { 40 } else { 10 };
        match self.random.below(100) {
            part if part < sends => self.send(),
            0..75 => self.complete(),
            75..80 => {
                let (at, shares) = (self.random.below(5) as usize, 1 + self.random.below(999) as u32);
                self.queues.iter().for_each(|queue| queue.disk().set_shares(self.classes[at], shares).unwrap());
            }
            80..90 => self.now_ns += self.random.below(10 * US),
            _ => self.now_ns += self.random.below(5 * MS),
        }
        self.poll();
        self.compare();
    }

    fn send(&mut self) {
        let class = self.random.one_of(&self.classes);
        let (op, len_bytes) = (self.random.one_of(&OPS), self.random.one_of(&LENGTHS));
        self.sent += 1;
        let [usual, short] = &mut self.queues;

        let queued = usual.enqueue(self.now_ns, class, op, len_bytes, self.sent);
        match short.dispatch_alone(self.now_ns, class, op, len_bytes, self.sent) {
            Some(piece) => {
                assert!(queued.is_ok(), "a request that is refused goes nowhere");
                self.alone += 1;
                let same = usual.poll_dispatch(self.now_ns).expect("the usual way dispatches it, too");
                self.go([same, piece]);
            }
            None => {
                let again = short.enqueue(self.now_ns, class, op, len_bytes, self.sent);
                assert_eq!(
                    queued.map_err(|error| error.to_string()).err(),
                    again.map_err(|error| error.to_string()).err()
                );
            }
        }
    }

    fn poll(&mut self) {
        loop {
            match self.queues.each_mut().map(|queue| queue.poll_dispatch(self.now_ns)) {
                [Some(one), Some(other)] => self.go([one, other]),
                [None, None] => return,
                different => panic!("{different:?}"),
            }
        }
    }

    fn go(&mut self, twins: [Dispatch; 2]) {
        let [one, other] = twins.each_ref().map(|piece| {
            (piece.user_data(), piece.op(), piece.offset_bytes(), piece.len_bytes(), piece.cost(), piece.waited_for())
        });
        assert_eq!(one, other);
        self.in_device.insert(self.random.next(), twins);
    }

    fn complete(&mut self) {
        let Some((_, twins)) = self.in_device.pop_first() else { return };
        let outcome = match self.random.below(20) {
            0 => Outcome::Moved(twins[0].len_bytes() / 2),
            1 => Outcome::Failed(5),
            _ => Outcome::Moved(twins[0].len_bytes()),
        };
        let mut queues = self.queues.iter_mut();
        let ends = twins.map(|piece| queues.next().expect("two").complete(self.now_ns, piece, outcome));
        match ends {
            [Progress::Continue(one), Progress::Continue(other)] => self.go([one, other]),
            [one, other] => assert_eq!(format!("{one:?}"), format!("{other:?}")),
        }
    }

    fn compare(&self) {
        let [usual, short] = &self.queues;
        for class in &self.classes {
            assert_eq!(usual.class_stats(*class), short.class_stats(*class));
        }
        assert_eq!(usual.disk().snapshot(), short.disk().snapshot());
        assert_eq!((usual.next_wakeup(), usual.blocked_on()), (short.next_wakeup(), short.blocked_on()));
        assert_eq!((usual.requests(), usual.in_flight()), (short.requests(), short.in_flight()));
    }
}

fn mixed() -> DiskConfig {
    DiskConfig { mix: MixExponent::new(1.4).unwrap(), ..usual() }
}

#[test]
fn the_short_way_leaves_everything_as_the_usual_one_does() {
    let controlled = DiskConfig { model: model(20_000, 400_000_000), ..DiskConfig::default() };
    let disks = [
        ("limited", usual(), Mode::Scheduled),
        ("with a closed loop", controlled, Mode::Scheduled),
        ("unlimited", DiskConfig { model: CostModel::unlimited(), ..usual() }, Mode::Scheduled),
        ("duplex", DiskConfig { duplex: true, ..usual() }, Mode::Scheduled),
        ("mix", mixed(), Mode::Scheduled),
        ("drained", usual(), Mode::Drain),
    ];
    for (name, disk, mode) in disks {
        let mut alone = 0;
        for seed in 0..20 {
            let mut twins = Twins::new(seed, &disk, mode);
            (0..2_000).for_each(|_| twins.step());
            alone += twins.alone;
        }
        assert!(alone > 500, "{name}: {alone} requests went the short way");
    }
}

#[test]
fn split_shared_and_limited_requests_take_the_usual_way() {
    let mut queue = queue_of(usual(), QueueConfig::default());
    let class = queue.disk().add_class(GroupId::ROOT, 100).unwrap();
    // A class that is newer than the queue's last look.
    assert!(queue.dispatch_alone(S, class, Op::Read, 4096, 0).is_none());
    queue.follow_classes(|_| {});
    // More than one piece.
    assert!(queue.dispatch_alone(S, class, Op::Read, 100_000 * KIB, 0).is_none());

    let first = queue.dispatch_alone(S, class, Op::Read, 4096, 1).unwrap();
    assert!(matches!(queue.complete(S, first, Outcome::Moved(4096)), Progress::Finished(end) if end.user_data == 1));

    // Another queue of the disk: the order is no longer this queue's alone.
    let other = IoQueue::new(queue.disk().clone(), QueueConfig::default());
    assert!(queue.dispatch_alone(S, class, Op::Read, 4096, 2).is_none());
    drop(other);

    let limits = Limits { iops: Rate::per_second(1), ..Limits::default() };
    queue.disk().set_qos(class, Qos { limits, ..Qos::default() }).unwrap();
    queue.follow_classes(|_| {});
    assert!(queue.dispatch_alone(S, class, Op::Read, 4096, 3).is_none());
    queue.disk().set_qos(class, Qos::default()).unwrap();
    queue.follow_classes(|_| {});

    // Without room: as many as the window takes go, and the next must wait.
    let sent = (0..1_000).map_while(|number| queue.dispatch_alone(S, class, Op::Read, 4096, number)).count();
    assert!((1..1_000).contains(&sent), "{sent}");
    assert_eq!(queue.requests() as usize, sent, "what did not go has left nothing behind");
}
