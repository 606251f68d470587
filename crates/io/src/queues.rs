//! The I/O queue of one disk on its coordinator, and the program's classes in the disk.
//!
//! A registry class becomes one class of the disk, known to all its queues. If there are fewer queues than shards, it
//! becomes a group with one equal class per shard ("reads-0, reads-1" of Scylla's first scheduler), so that the classes
//! keep their ratios and the shards of one class are served equally.

#[cfg(feature = "metrics")]
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

#[cfg(feature = "metrics")]
use plimsoll_core::ClassSnapshot;
use plimsoll_core::{
    Cancel, ClassId, ClassStats, Direction, Disk, Dispatch, GroupId, IoQueue, Latencies, Limits, Mode, NodeId, Op,
    Outcome, Progress, Qos, QueueError, RequestId, Reservation, Snapshot, Stopped, WaitReason,
};

use crate::class::{Class, ClassInfo};

#[derive(Clone)]
enum Node {
    Group(GroupId),
    Class(ClassId),
    /// A class that several shards use through one queue: a group, and one class per shard of the program.
    PerShard(GroupId, Vec<ClassId>),
    Removed,
}

impl Node {
    fn id(&self) -> Option<NodeId> {
        match self {
            Node::Group(group) | Node::PerShard(group, _) => Some((*group).into()),
            Node::Class(class) => Some((*class).into()),
            Node::Removed => None,
        }
    }
}

/// The program's classes in one disk. The first shard that sees a change of the registry applies it; the others read.
#[derive(Default)]
pub(crate) struct DiskClasses(Mutex<Followed>);

#[derive(Default)]
struct Followed {
    epoch: u64,
    nodes: Vec<Node>,
    known: Vec<(u32, Qos)>,
}

impl DiskClasses {
    /// Changes the disk's classes to those of `table`, which was current at `epoch`. `per_shard` is the number of
    /// shards over which each class is divided; 0 if it is not divided.
    fn follow(&self, disk: &Disk, epoch: u64, table: &[ClassInfo], per_shard: u16) -> Vec<Node> {
        let mut followed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if followed.epoch < epoch {
            followed.epoch = epoch;
            followed.change(disk, table, per_shard);
        }
        followed.nodes.clone()
    }
}

impl Followed {
    fn change(&mut self, disk: &Disk, table: &[ClassInfo], per_shard: u16) {
        // Last first: a group has a lower number than its members, and must be empty before it is removed.
        for (at, _) in table.iter().enumerate().rev().filter(|(_, info)| info.removed) {
            if let Some(node) = self.nodes.get_mut(at) {
                remove(disk, std::mem::replace(node, Node::Removed));
            }
        }

        for (at, info) in table.iter().enumerate() {
            if at == self.nodes.len() {
                let node = if info.removed { Node::Removed } else { self.add(disk, info, per_shard) };
                self.nodes.push(node);
                self.known.push((info.shares, Qos::default()));
            }

            let Some(node) = self.nodes[at].id() else { continue };
            // The node exists, so neither call can fail.
            let (shares, qos) = &mut self.known[at];
            if *shares != info.shares {
                let _ = disk.set_shares(node, info.shares);
                *shares = info.shares;
            }
            if *qos != info.qos {
                self.nodes[at].set_qos(disk, info.qos);
                *qos = info.qos;
            }
        }
    }

    fn add(&self, disk: &Disk, info: &ClassInfo, per_shard: u16) -> Node {
        let parent = match info.parent.map(|p| self.nodes.get(p.index())) {
            None => GroupId::ROOT,
            Some(Some(Node::Group(group))) => *group,
            Some(_) => return Node::Removed,
        };

        // Parents come before their members in the table, so these calls cannot fail.
        let made = if info.is_group {
            disk.add_group(parent, info.shares).map(Node::Group)
        } else if per_shard == 0 {
            disk.add_class(parent, info.shares).map(Node::Class)
        } else {
            disk.add_group(parent, info.shares).and_then(|group| {
                let classes = (0..per_shard).map(|_| disk.add_class(group, 100)).collect::<Result<_, _>>()?;
                Ok(Node::PerShard(group, classes))
            })
        };
        made.unwrap_or(Node::Removed)
    }
}

impl Node {
    fn set_qos(&self, disk: &Disk, qos: Qos) {
        let Some(id) = self.id() else { return };
        let _ = disk.set_qos(id, qos);
        if let Node::PerShard(_, classes) = self {
            // Limits and the reservation hold at the group, whichever shards ask.
            let each = Qos { limits: Limits::default(), reservation: Reservation::default(), ..qos };
            for class in classes {
                let _ = disk.set_qos(*class, each);
            }
        }
    }
}

fn remove(disk: &Disk, node: Node) {
    // The registry removes no group with members, so these calls cannot fail.
    if let Node::PerShard(_, classes) = &node {
        for class in classes {
            let _ = disk.remove(*class);
        }
    }
    if let Some(id) = node.id() {
        let _ = disk.remove(id);
    }
}

/// The figures of a class in one queue, or in several of a disk.
#[cfg(feature = "metrics")]
#[derive(Clone)]
pub(crate) struct ClassView {
    pub(crate) class: Class,
    pub(crate) stats: ClassStats,
    /// Wait of the oldest queued request so far.
    pub(crate) delay_ns: u64,
    pub(crate) waits_for: Option<WaitReason>,
    /// By direction; `None` before its first request.
    pub(crate) latencies: [Option<Box<Latencies>>; 2],
}

#[cfg(feature = "metrics")]
impl ClassView {
    fn add(&mut self, direction: Direction, latencies: &Latencies) {
        match &mut self.latencies[direction as usize] {
            Some(sum) => sum.merge(latencies),
            none => *none = Some(Box::new(latencies.clone())),
        }
    }

    /// Returns the figures without those of the present moment: what has been counted.
    pub(crate) fn without_present(mut self) -> ClassView {
        let ClassStats { queued, in_flight, queued_bytes, queued_fs, .. } = &mut self.stats;
        (*queued, *in_flight, *queued_bytes, *queued_fs) = (0, 0, 0, 0);
        ClassView { delay_ns: 0, waits_for: None, ..self }
    }

    /// Adds the figures of the same class in another queue.
    pub(crate) fn merge(&mut self, other: &ClassView) {
        self.stats = self.stats.plus(other.stats);
        self.delay_ns = self.delay_ns.max(other.delay_ns);
        self.waits_for = self.waits_for.or(other.waits_for);
        for (direction, latencies) in Direction::ALL.into_iter().zip(&other.latencies) {
            latencies.iter().for_each(|latencies| self.add(direction, latencies));
        }
    }
}

/// The I/O queues of one shard as the metrics read them: those of a reactor, or that of a gate.
#[cfg(feature = "metrics")]
pub(crate) trait ShardQueues {
    /// Returns the number of the shard.
    fn shard(&self) -> u16;

    /// Returns how many reactors and gates of the shard had ended before this one.
    fn lives_before(&self) -> u64;

    /// Returns the time on the shard's clock.
    fn now_ns(&self) -> u64;

    /// Returns the figures of the classes in the queue of `disk`; empty if the queue is not on this shard.
    fn class_views(&self, now_ns: u64, disk: u16) -> Vec<ClassView>;
}

pub(crate) struct DiskQueue {
    queue: IoQueue,
    nodes: Vec<Node>,
}

impl DiskQueue {
    pub(crate) fn new(queue: IoQueue) -> DiskQueue {
        DiskQueue { queue, nodes: Vec::new() }
    }

    /// Changes the queue's classes to those of `table`. Appends the cancelled requests of removed classes to
    /// `cancelled`.
    pub(crate) fn follow_classes(
        &mut self,
        classes: &DiskClasses,
        epoch: u64,
        table: &[ClassInfo],
        per_shard: u16,
        cancelled: &mut Vec<Stopped>,
    ) {
        self.nodes = classes.follow(self.queue.disk(), epoch, table, per_shard);
        self.queue.follow_classes(|stopped| cancelled.push(stopped));
    }

    /// Switches to `mode`. If it is already set, does nothing.
    pub(crate) fn set_mode(&mut self, now_ns: u64, mode: Mode) {
        self.queue.set_mode(now_ns, mode);
    }

    /// Returns the disk's class for a request of `class` that comes from shard `source`.
    fn id(&self, class: Class, source: u16) -> Option<ClassId> {
        match self.nodes.get(class.index()) {
            Some(Node::Class(id)) => Some(*id),
            Some(Node::PerShard(_, ids)) => ids.get(usize::from(source)).copied(),
            _ => None,
        }
    }

    pub(crate) fn enqueue(
        &mut self,
        now_ns: u64,
        class: Class,
        source: u16,
        op: Op,
        len_bytes: u32,
        key: u64,
    ) -> Result<RequestId, QueueError> {
        let id = self.id(class, source).ok_or(QueueError::Unknown)?;
        self.queue.enqueue(now_ns, id, op, len_bytes, key)
    }

    pub(crate) fn dispatch_alone(&mut self, now_ns: u64, class: Class, op: Op, len_bytes: u32) -> Option<Dispatch> {
        self.queue.dispatch_alone(now_ns, self.id(class, 0)?, op, len_bytes, 0)
    }

    pub(crate) fn poll_dispatch(&mut self, now_ns: u64) -> Option<Dispatch> {
        self.queue.poll_dispatch(now_ns)
    }

    pub(crate) fn backend_is_busy(&mut self, now_ns: u64) {
        self.queue.backend_is_busy(now_ns);
    }

    pub(crate) fn complete(&mut self, now_ns: u64, late_ns: u64, piece: Dispatch, outcome: Outcome) -> Progress {
        self.queue.complete_late(now_ns, late_ns, piece, outcome)
    }

    pub(crate) fn complete_after(&mut self, now_ns: u64, late_ns: u64, piece: Dispatch, outcome: Outcome) -> Progress {
        self.queue.complete_after(now_ns, late_ns, piece, outcome)
    }

    pub(crate) fn refuse(&mut self, now_ns: u64, piece: Dispatch, code: i32) -> Progress {
        self.queue.refuse(now_ns, piece, code)
    }

    pub(crate) fn cancel(&mut self, id: RequestId) -> Cancel {
        self.queue.cancel(id)
    }

    pub(crate) fn cut(&mut self, id: RequestId) -> Option<u32> {
        self.queue.cut(id)
    }

    pub(crate) fn queued(&self) -> u32 {
        self.queue.queued()
    }

    pub(crate) fn blocked_on(&self) -> Option<WaitReason> {
        self.queue.blocked_on()
    }

    pub(crate) fn next_wakeup(&self) -> Option<u64> {
        self.queue.next_wakeup()
    }

    pub(crate) fn may_go_early(&self) -> bool {
        self.queue.may_go_early()
    }

    pub(crate) fn take_hand_over(&mut self) -> Option<u16> {
        self.queue.take_hand_over()
    }

    pub(crate) fn snapshot(&self, now_ns: u64) -> Snapshot {
        self.queue.snapshot(now_ns)
    }

    fn ids(&self, class: Class) -> &[ClassId] {
        match self.nodes.get(class.index()) {
            Some(Node::Class(id)) => std::slice::from_ref(id),
            Some(Node::PerShard(_, ids)) => ids,
            _ => &[],
        }
    }

    pub(crate) fn class_stats(&self, class: Class) -> Option<ClassStats> {
        let stats = self.ids(class).iter().filter_map(|id| self.queue.class_stats(*id).ok());
        stats.reduce(ClassStats::plus)
    }

    pub(crate) fn class_latencies(&self, class: Class, visit: &mut dyn FnMut(Direction, &Latencies)) {
        for id in self.ids(class) {
            for direction in Direction::ALL {
                if let Ok(Some(latencies)) = self.queue.class_latencies(*id, direction) {
                    visit(direction, latencies);
                }
            }
        }
    }

    /// Returns the figures of all classes that the queue knows, in the order of their numbers.
    #[cfg(feature = "metrics")]
    pub(crate) fn class_views(&self, now_ns: u64) -> Vec<ClassView> {
        let snapshot = self.queue.snapshot(now_ns);
        let classes: HashMap<ClassId, &ClassSnapshot> =
            snapshot.classes.iter().map(|snapshot| (snapshot.class, snapshot)).collect();

        let numbers = (0..self.nodes.len()).map(|at| Class(at as u16));
        let view = |class: Class| {
            let mut mine = self.ids(class).iter().filter_map(|id| classes.get(id));
            let first = mine.next()?;
            let mut view = ClassView {
                class,
                stats: first.stats,
                delay_ns: first.delay_ns,
                waits_for: first.waits_for,
                latencies: [None, None],
            };

            for other in mine {
                view.stats = view.stats.plus(other.stats);
                view.delay_ns = view.delay_ns.max(other.delay_ns);
                view.waits_for = view.waits_for.or(other.waits_for);
            }

            self.class_latencies(class, &mut |direction, latencies| view.add(direction, latencies));
            Some(view)
        };
        numbers.filter_map(view).collect()
    }

    pub(crate) fn reset_stats(&mut self) {
        for at in 0..self.nodes.len() {
            for id in self.ids(Class(at as u16)).to_vec() {
                let _ = self.queue.reset_class_stats(id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use plimsoll_core::DiskConfig;

    use super::*;

    /// Each shard had a part, which was lost where only some of them asked.
    #[test]
    fn what_a_class_of_several_shards_has_reserved_is_for_those_that_ask() {
        let disk = Disk::new(DiskConfig::default());
        let reservation = Reservation { iops: 1_000, bandwidth: 10_000_000 };
        let qos = Qos { reservation, max_wait_ns: Some(5), ..Qos::default() };
        let info =
            ClassInfo { name: Arc::from("log"), parent: None, shares: 100, qos, is_group: false, removed: false };
        let nodes = DiskClasses::default().follow(&disk, 1, &[info], 4);
        let [Node::PerShard(group, of_shards)] = &nodes[..] else { panic!("it is divided over the shards") };
        assert_eq!(disk.qos(*group).unwrap().reservation, reservation);
        let each = of_shards.iter().map(|class| disk.qos(*class).unwrap());
        assert_eq!(each.collect::<Vec<_>>(), [Qos { reservation: Reservation::default(), ..qos }; 4],);
    }
}
