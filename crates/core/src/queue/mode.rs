//! Changes of the mode while the queue runs.
//!
//! # Why
//! "Is it the disk or the scheduler?" To find out in a program that must not stop, the queue drains for a moment.
//!
//! # How it works
//! A mode determines three things: the last gates, which check it for each piece; the longest piece; and the clocks of
//! the classes, which are the disk's, the queue's own, or decaying totals. If the clocks change, the trees are rebuilt:
//! each class keeps its queued requests, and begins as one that has just woken up. A piece in the device carries the
//! ticks and tokens that it took, and returns them in any mode. The cost does not depend on the number of requests.
//!
//! # Limits
//! Pieces dispatched in another mode do not count in the window of device time: after a change to [`Mode::Scheduled`]
//! the device may hold more than the window until they have come back.
//!
//! # Example
//! ```
//! use std::sync::Arc;
//! use plimsoll_core::{Disk, DiskConfig, GroupId, IoQueue, Mode, Op, QueueConfig};
//! let disk = Arc::new(Disk::new(DiskConfig::default()));
//! let class = disk.add_class(GroupId::ROOT, 100)?;
//! let mut queue = IoQueue::new(disk, QueueConfig { mode: Mode::Depth(1), ..QueueConfig::default() });
//! for number in 0..3 {
//!     queue.enqueue(0, class, Op::Read, 4096, number)?;
//! }
//! assert_eq!(queue.poll_dispatch(0).map(|piece| piece.user_data()), Some(0));
//! assert!(queue.poll_dispatch(0).is_none());
//! queue.set_mode(0, Mode::Drain);
//! let rest: Vec<u64> = std::iter::from_fn(|| queue.poll_dispatch(0)).map(|piece| piece.user_data()).collect();
//! assert_eq!(rest, [1, 2]);
//! # Ok::<(), plimsoll_core::QueueError>(())
//! ```

use std::sync::Arc;

use super::{IoQueue, Kind, Member, Mode};
use crate::clock::{self, Clocks};
use crate::slots::{Fifo, NONE};
use crate::tree::{ROOT, Tree};
use crate::units::Cost;

impl IoQueue {
    /// Switches to `mode`. Queued requests stay, and those of a class keep their order. Poll afterwards: the new mode
    /// may admit more of them.
    pub fn set_mode(&mut self, now_ns: u64, mode: Mode) {
        if mode == self.config.mode {
            return;
        }
        let before = (self.fairness(), self.shares_clocks());
        self.config.mode = mode;
        self.unpark_all(now_ns);
        if before != (self.fairness(), self.shares_clocks()) {
            self.replant();
        }
        self.wakeup_ns = Some(0);
    }

    /// Rebuilds the trees with the clocks of the present mode.
    fn replant(&mut self) {
        self.places = Default::default();

        let (fairness, shares_clocks) = (self.fairness(), self.shares_clocks());
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            // Also settles the old tree, so that the old clocks no longer count this queue as one with work.
            let fifos = take_fifos(&mut lane.tree, self.members.len() as u32);
            let old = std::mem::replace(&mut lane.tree, Tree::new(fairness, number));
            for (at, member) in self.members.iter().enumerate() {
                lane.tree.push_vacant();
                let Some(clocks) = clocks_for(member, old.shares(at as u32), shares_clocks) else { continue };
                let at = at as u32;
                lane.tree.put(at, old.parent(at), old.shares(at), member.kind == Kind::Group, clocks);
            }

            // Only now: a group may have a higher number than its members.
            let present = self.members.iter().enumerate().filter(|(_, member)| is_present(member));
            for at in present.map(|(at, _)| at as u32).filter(|at| *at != ROOT) {
                lane.tree.attach(at);
            }

            for (at, fifo) in fifos {
                *lane.tree.fifo_mut(at) = fifo;
                lane.tree.settle(at);
            }

            lane.standstill = None;
            (lane.overtime_ns, lane.overtime_mean) = (0, 0);
            lane.tree.set_overtime(Cost::ZERO);
        }
    }
}

fn is_present(member: &Member) -> bool {
    matches!(member.kind, Kind::Group | Kind::Class)
}

/// Takes the non-empty FIFOs out of `tree`, each with its class.
pub(super) fn take_fifos(tree: &mut Tree, nodes: u32) -> Vec<(u32, Fifo)> {
    let mut fifos = Vec::new();
    for at in (0..nodes).filter(|at| *at != ROOT) {
        if tree.fifo(at).head != NONE {
            fifos.push((at, std::mem::take(tree.fifo_mut(at))));
            tree.settle(at);
        }
    }
    fifos
}

/// Returns the clocks of a class or group, or `None` if it has been removed.
fn clocks_for(member: &Member, shares: u32, is_shared: bool) -> Option<Arc<Clocks>> {
    if !is_present(member) {
        return None;
    }
    let shared = member.held.as_ref().filter(|_| is_shared);
    Some(shared.map_or_else(|| clock::new_clocks(shares), Arc::clone))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::{ClassId, GroupId};
    use crate::disk::{Disk, DiskConfig};
    use crate::qos::{Limits, Qos};
    use crate::queue::{Dispatch, Outcome, Progress, QueueConfig};
    use crate::request::Op;
    use crate::units::Rate;
    use crate::{CostForm, CostModel, FourFigures};

    const MODES: [Mode; 4] = [Mode::Drain, Mode::Scheduled, Mode::Depth(3), Mode::Depth(1)];

    fn disk(duplex: bool) -> Arc<Disk> {
        let figures = FourFigures {
            read_iops: Rate::per_second(10_000),
            write_iops: Rate::per_second(10_000),
            read_bandwidth: Rate::per_second(100_000_000),
            write_bandwidth: Rate::per_second(100_000_000),
        };
        let model = CostModel::from_figures(&figures, CostForm::Knee, 4096, 4096);
        Arc::new(Disk::new(DiskConfig { model, duplex, ..DiskConfig::default() }))
    }

    /// Adds two classes in a group, one of them limited, and one class beside the group.
    fn classes(disk: &Disk) -> [ClassId; 3] {
        let group = disk.add_group(GroupId::ROOT, 50).unwrap();
        let classes = [(group, 10), (group, 90), (GroupId::ROOT, 100)];
        let classes = classes.map(|(parent, shares)| disk.add_class(parent, shares).unwrap());
        let limits = Limits { iops: Rate::per_second(2_000), ..Limits::default() };
        disk.set_qos(classes[0], Qos { limits, ..Qos::default() }).unwrap();
        classes
    }

    /// Runs requests through two queues whose modes change all the time. Returns the requests by queue and class in the
    /// order of their first dispatch, and the number of requests that ended.
    fn run(disk: &Arc<Disk>, classes: [ClassId; 3], requests: u64) -> (Vec<Vec<u64>>, u64) {
        let mut queues = [0, 1].map(|_| IoQueue::new(disk.clone(), QueueConfig::default()));
        let (mut went, mut ended, mut now_ns) = (vec![Vec::new(); 6], 0, 0);
        let mut device: Vec<(usize, Dispatch)> = Vec::new();
        let mut enqueued = 0;

        while ended < requests && now_ns < 100_000_000_000 {
            now_ns += 50_000;
            let turn = (now_ns / 50_000) as usize;
            for _ in 0..4.min(requests - enqueued) {
                let (at, class) = ((enqueued / 3) as usize % 2, enqueued as usize % 3);
                let len_bytes = if enqueued % 5 == 0 { 512 << 10 } else { 4096 };
                queues[at].enqueue(now_ns, classes[class], Op::Read, len_bytes, enqueued).unwrap();
                enqueued += 1;
            }

            for (at, queue) in queues.iter_mut().enumerate() {
                if turn % 7 == at {
                    queue.set_mode(now_ns, MODES[turn / 7 % MODES.len()]);
                }
                while let Some(piece) = queue.poll_dispatch(now_ns) {
                    if piece.offset_bytes() == 0 {
                        let number = piece.user_data();
                        went[at * 3 + number as usize % 3].push(number);
                    }
                    device.push((at, piece));
                }
            }

            for (at, piece) in device.drain(..device.len().min(2)) {
                let moved = Outcome::Moved(piece.len_bytes());
                ended += u64::from(matches!(queues[at].complete(now_ns, piece, moved), Progress::Finished(_)));
            }
        }

        for queue in &queues {
            assert_eq!((queue.queued(), queue.in_flight()), (0, 0));
            assert!(queue.lanes.iter().all(|lane| lane.tree.clock(ROOT).queues() == 0));
            assert_eq!((queue.in_flight_ticks, queue.presence.pieces()), (0, 0));
        }
        assert_eq!(disk.in_flight_ns(), 0);
        (went, ended)
    }

    #[test]
    fn changes_under_load_keep_every_request_and_its_order() {
        for duplex in [false, true] {
            let disk = disk(duplex);
            let classes = classes(&disk);
            let (went, ended) = run(&disk, classes, 3_000);
            assert_eq!(ended, 3_000);
            assert_eq!(went.iter().map(Vec::len).sum::<usize>(), 3_000);
            assert!(went.iter().all(|numbers| numbers.is_sorted()));
        }
    }

    #[test]
    fn shares_hold_after_a_change_back() {
        let disk = disk(false);
        let [_, _, beside] = classes(&disk);
        let other = disk.add_class(GroupId::ROOT, 300).unwrap();
        let mut queue = IoQueue::new(disk, QueueConfig::default());
        for number in 0..400 {
            let class = if number % 2 == 0 { beside } else { other };
            queue.enqueue(0, class, Op::Read, 4096, number).unwrap();
        }
        for mode in [Mode::Depth(1), Mode::Drain, Mode::Scheduled] {
            queue.set_mode(0, mode);
        }

        let (mut now_ns, mut of_other) = (0, 0);
        let mut dispatched = 0;
        while dispatched < 200 {
            now_ns += 10_000;
            while let Some(piece) = queue.poll_dispatch(now_ns) {
                dispatched += 1;
                of_other += u32::from(piece.class == other.node);
                let moved = Outcome::Moved(piece.len_bytes());
                queue.complete(now_ns, piece, moved);
            }
        }

        // Three of four, give or take the wake-up credit of each class (7 requests) and one request more.
        assert!((140..=160).contains(&of_other), "{of_other}");
    }
}
