//! Several queues of one disk, and everything that callers may do to them at any time: modes, classes, groups and their
//! quality of service change, queues come and go, pieces come back whole, short, failed or late. Nothing panics, each
//! request ends once, and nothing is left in the accounts.

use std::sync::Arc;

use crate::common::{KIB, MS, Random, S, US};
use crate::seeds;
use plimsoll_core::{
    Cancel, ClassId, ControlConfig, CostForm, CostModel, Disk, DiskConfig, Dispatch, FourFigures, GroupId, IoQueue,
    LatencyTarget, Limits, MixExponent, Mode, Op, Outcome, Progress, Qos, QueueConfig, Rate, RequestId, Reservation,
};

const QUEUES: usize = 3;
const CLASSES_MAX: usize = 12;
const OPS: [Op; 6] = [Op::Read, Op::Write, Op::Read, Op::Write, Op::Flush, Op::Discard];
const LENGTHS: [u32; 7] = [0, 512, 4 * KIB, 64 * KIB, 300_000, 4096 * KIB, u32::MAX];
const MODES: [Mode; 4] = [Mode::Scheduled, Mode::Scheduled, Mode::Depth(3), Mode::Drain];

/// A queue with its requests, its pieces in the device, and the number of requests that have not ended.
struct Driven {
    queue: IoQueue,
    requests: Vec<RequestId>,
    pieces: Vec<Dispatch>,
    open: usize,
}

impl Driven {
    fn new(disk: &Arc<Disk>, number: u16, mode: Mode) -> Driven {
        let config =
            QueueConfig { mode, max_requests: 300, group: number, number: Some(number), ..QueueConfig::default() };
        Driven { queue: IoQueue::new(Arc::clone(disk), config), requests: Vec::new(), pieces: Vec::new(), open: 0 }
    }

    fn poll(&mut self, now_ns: u64, most: u64) {
        for _ in 0..most {
            let Some(piece) = self.queue.poll_dispatch(now_ns) else {
                self.queue.take_hand_over();
                return;
            };
            self.pieces.push(piece);
        }
    }

    fn follow(&mut self) {
        let open = &mut self.open;
        self.queue.follow_classes(|_| *open -= 1);
    }

    fn complete_one(&mut self, now_ns: u64, random: &mut Random) {
        if self.pieces.is_empty() {
            return;
        }
        let piece = self.pieces.swap_remove(random.below(self.pieces.len() as u64) as usize);
        let len_bytes = piece.len_bytes();
        let outcome = match random.below(12) {
            0 => Outcome::Failed(5),
            1 => Outcome::End(len_bytes / 2),
            2 => Outcome::End(0),
            3 => Outcome::Moved(len_bytes / 3),
            4 => Outcome::Moved(len_bytes.saturating_add(9)),
            5 => Outcome::Moved(0),
            _ => Outcome::Moved(len_bytes),
        };
        let progress = match random.below(4) {
            0 => self.queue.refuse(now_ns, piece, 11),
            1 => self.queue.complete_late(now_ns, random.below(3 * MS), piece, outcome),
            2 => self.queue.complete_after(now_ns, random.below(3 * MS), piece, outcome),
            _ => self.queue.complete(now_ns, piece, outcome),
        };
        self.take(progress);
    }

    fn take(&mut self, progress: Progress) {
        match progress {
            Progress::Finished(_) => self.open -= 1,
            Progress::Continue(rest) => self.pieces.push(rest),
            Progress::Pending => {}
        }
    }

    fn cancel_or_cut(&mut self, random: &mut Random) {
        if self.requests.is_empty() {
            return;
        }
        let id = random.one_of(&self.requests);
        if random.below(2) == 0 {
            let _ = self.queue.cut(id);
        } else if let Cancel::Cancelled(_) = self.queue.cancel(id) {
            self.open -= 1;
        }
    }

    /// Lets all requests end, and checks that nothing is left.
    fn drain(&mut self, now_ns: u64) {
        self.queue.set_mode(now_ns, Mode::Drain);
        loop {
            self.poll(now_ns, u64::MAX);
            if self.pieces.is_empty() {
                break;
            }
            for piece in std::mem::take(&mut self.pieces) {
                let len_bytes = piece.len_bytes();
                let progress = self.queue.complete(now_ns, piece, Outcome::Moved(len_bytes));
                self.take(progress);
            }
        }
        self.follow();
        let left = (self.open, self.queue.queued(), self.queue.in_flight(), self.queue.requests());
        assert_eq!(left, (0, 0, 0, 0), "open, queued, in flight, in slots");
    }
}

fn any_disk(random: &mut Random) -> Arc<Disk> {
    let figures = FourFigures {
        read_iops: Rate::per_second(20_000),
        write_iops: Rate::per_second(10_000),
        read_bandwidth: Rate::per_second(200_000_000),
        write_bandwidth: Rate::per_second(100_000_000),
    };
    let form = random.one_of(&[CostForm::Knee, CostForm::Max, CostForm::Seastar, CostForm::Additive]);
    let limited = CostModel::from_figures(&figures, form, 4096, 4096);
    Arc::new(Disk::new(DiskConfig {
        model: if random.below(6) == 0 { CostModel::unlimited() } else { limited },
        duplex: random.below(2) == 0,
        control: if random.below(2) == 0 { ControlConfig::OFF } else { ControlConfig::default() },
        mix: MixExponent::new(0.7).unwrap(),
        groups: 1 + random.below(3) as u16,
        ..DiskConfig::default()
    }))
}

fn any_qos(random: &mut Random) -> Qos {
    let limits = Limits {
        iops: Rate::per_second(1 + random.below(5000)),
        write_bandwidth: Rate::per_second(1 + random.below(50_000_000)),
        burst_ns: random.below(20 * MS),
        ..Limits::default()
    };
    let reservation = Reservation { iops: random.below(5000), bandwidth: random.below(1 << 24) };
    let target = LatencyTarget { latency_ns: random.below(3 * MS), quantile: 0.9 };
    Qos {
        limits: if random.below(2) == 0 { limits } else { Limits::default() },
        reservation: if random.below(3) == 0 { reservation } else { Reservation::default() },
        latency_target: (random.below(4) == 0).then_some(target),
        max_wait_ns: (random.below(3) == 0).then(|| random.below(9 * MS)),
        max_delay_ns: (random.below(6) == 0).then(|| random.below(90 * MS)),
    }
}

/// Adds, removes or changes a class or group.
fn change_classes(disk: &Disk, classes: &mut Vec<ClassId>, groups: &mut Vec<GroupId>, random: &mut Random) {
    let group_at = random.below(groups.len() as u64) as usize;
    let class_at = random.below(classes.len() as u64) as usize;
    match random.below(6) {
        0 => groups.extend(disk.add_group(groups[group_at], random.below(1000) as u32)),
        1 if classes.len() < CLASSES_MAX => {
            classes.extend(disk.add_class(groups[group_at], random.one_of(&[1, 100, u32::MAX])));
        }
        2 if classes.len() > 1 => {
            let _ = disk.remove(classes[class_at]);
            // If it stays, its name is that of a removed class.
            if random.below(2) == 0 {
                classes.swap_remove(class_at);
            }
        }
        3 if group_at > 0 && disk.remove(groups[group_at]).is_ok() => {
            groups.swap_remove(group_at);
        }
        4 => {
            let _ = disk.set_qos(groups[group_at], any_qos(random));
        }
        _ => {
            let _ = disk.set_qos(classes[class_at], any_qos(random));
            let _ = disk.set_shares(classes[class_at], random.below(1 << 20) as u32);
        }
    }
}

#[test]
fn nothing_panics_and_each_request_ends_once() {
    seeds::each(60, |seed| {
        let mut random = Random(seed);
        let disk = any_disk(&mut random);
        let mut groups = vec![GroupId::ROOT];
        let mut classes = vec![disk.add_class(GroupId::ROOT, 100).unwrap()];
        let mut driven: Vec<Driven> =
            (0..QUEUES).map(|number| Driven::new(&disk, number as u16, random.one_of(&MODES))).collect();

        let mut now_ns = S;
        for step in 0..2500 {
            now_ns += random.below(60 * US);
            if random.below(200) == 0 {
                now_ns += random.below(2 * S);
            }
            let number = random.below(QUEUES as u64) as usize;
            let at = &mut driven[number];
            match random.below(26) {
                0..=7 => {
                    let (class, op) = (random.one_of(&classes), random.one_of(&OPS));
                    if let Ok(id) = at.queue.enqueue(now_ns, class, op, random.one_of(&LENGTHS), step) {
                        at.requests.push(id);
                        at.open += 1;
                    }
                }
                8..=12 => at.poll(now_ns, random.below(12)),
                13..=18 => (0..random.below(8)).for_each(|_| at.complete_one(now_ns, &mut random)),
                19 => at.cancel_or_cut(&mut random),
                20 => at.queue.set_mode(now_ns, random.one_of(&MODES)),
                21..=23 => change_classes(&disk, &mut classes, &mut groups, &mut random),
                24 => {
                    at.queue.backend_is_busy(now_ns);
                    let _ = (at.queue.snapshot(now_ns), at.queue.next_wakeup(), at.queue.blocked_on());
                    let _ = at.queue.reset_class_stats(random.one_of(&classes));
                }
                // What the old queue had queued is gone with it, and its pieces count no longer.
                _ if random.below(20) == 0 => *at = Driven::new(&disk, number as u16, random.one_of(&MODES)),
                _ => at.follow(),
            }
        }

        driven.iter_mut().for_each(|at| at.drain(now_ns));
        drop(driven);
        assert_eq!(disk.in_flight_ns(), 0, "seed {seed}");
    });
}

/// Regression: the closed loop asked the new tree for the part of a class that was no longer in it.
#[test]
fn a_mode_changes_while_a_removed_class_has_a_piece_in_the_device() {
    for mode in [Mode::Drain, Mode::Depth(4)] {
        let disk = Arc::new(Disk::new(crate::common::usual()));
        let [removed, other] = [1, 2].map(|shares| disk.add_class(GroupId::ROOT, shares).unwrap());
        let mut queue = IoQueue::new(Arc::clone(&disk), QueueConfig::default());
        for (class, number) in [(removed, 0), (other, 1)] {
            queue.enqueue(S, class, Op::Read, 4 * KIB, number).unwrap();
        }
        let pieces: Vec<Dispatch> = std::iter::from_fn(|| queue.poll_dispatch(S)).collect();
        assert_eq!(pieces.len(), 2);

        disk.remove(removed).unwrap();
        queue.follow_classes(|_| unreachable!("nothing of it is queued"));
        queue.set_mode(S + 1, mode);
        for piece in pieces.into_iter().rev() {
            // Late enough for a look at the backlogs.
            let _ = queue.complete(S + 20 * MS, piece, Outcome::Moved(4 * KIB));
        }
        assert_eq!((queue.requests(), queue.in_flight()), (0, 0));
    }
}

/// Regression: on an unlimited disk a change to [`Mode::Drain`] left a class waiting for its limit.
#[test]
fn a_class_at_its_limit_drains_at_once() {
    for model in [CostModel::unlimited(), crate::common::model(100_000, 1_000_000_000)] {
        let disk = Arc::new(Disk::new(DiskConfig { model, ..DiskConfig::default() }));
        let class = disk.add_class(GroupId::ROOT, 1).unwrap();
        let limits = Limits { iops: Rate::per_second(1), ..Limits::default() };
        disk.set_qos(class, Qos { limits, ..Qos::default() }).unwrap();
        let mut queue = IoQueue::new(disk, QueueConfig::default());
        for number in 0..2 {
            queue.enqueue(S, class, Op::Read, 4 * KIB, number).unwrap();
        }
        let first = queue.poll_dispatch(S);
        assert!(first.is_some() && queue.poll_dispatch(S).is_none(), "one a second");
        queue.set_mode(S + 1, Mode::Drain);
        assert!(queue.poll_dispatch(S + 1).is_some());
    }
}
