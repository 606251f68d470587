//! The I/O queue of one disk on its coordinator, with the program's classes in it.
//!
//! A registry class becomes one class of the queue; where several shards use the queue it becomes a group with one
//! equal class a shard ("reads-0, reads-1" of Scylla's first scheduler), so that the classes keep their ratios and the shards of
//! one class are served alike.

use plimsoll_core::{
    Cancel, ClassId, ClassStats, Dispatch, GroupId, IoQueue, Latencies, Op, Outcome, Progress, QueueError, RequestId,
};

use crate::class::{Class, ClassInfo};

enum Node {
    Group(GroupId),
    Class(ClassId),
    /// A class that several shards use: a group, and one class for each of them.
    PerShard(GroupId, Vec<ClassId>),
    Removed,
}

pub(crate) struct DiskQueue {
    queue: IoQueue,
    /// The shards that use this queue: so many from the first.
    first_shard: u16,
    shards: u16,
    nodes: Vec<Node>,
    shares: Vec<u32>,
}

impl DiskQueue {
    pub(crate) fn new(queue: IoQueue, first_shard: u16, shards: u16) -> DiskQueue {
        DiskQueue { queue, first_shard, shards, nodes: Vec::new(), shares: Vec::new() }
    }

    /// Makes the queue's classes those of `table`. What removed classes had queued is named in `cancelled`.
    pub(crate) fn follow_classes(&mut self, table: &[ClassInfo], cancelled: &mut Vec<u64>) {
        // The last first: a group has a lower number than its members, and only an empty group can be removed.
        for (at, _) in table.iter().enumerate().rev().filter(|(_, info)| info.removed) {
            self.remove(at, cancelled);
        }
        for (at, info) in table.iter().enumerate() {
            match self.nodes.get(at) {
                None => {
                    let node = if info.removed { Node::Removed } else { self.add(info) };
                    self.nodes.push(node);
                    self.shares.push(info.shares);
                }
                Some(Node::Removed) => {}
                Some(_) if self.shares[at] != info.shares => {
                    self.set_shares(at, info.shares);
                    self.shares[at] = info.shares;
                }
                Some(_) => {}
            }
        }
    }

    fn add(&mut self, info: &ClassInfo) -> Node {
        let parent = match info.parent.map(|p| self.nodes.get(p.index())) {
            None => GroupId::ROOT,
            Some(Some(Node::Group(group))) => *group,
            Some(_) => return Node::Removed,
        };
        // Parents come before their members in the table, and node numbers are this queue's own: these cannot fail.
        let made = if info.is_group {
            self.queue.add_group(parent, info.shares).map(Node::Group)
        } else if self.shards == 1 {
            self.queue.add_class(parent, info.shares).map(Node::Class)
        } else {
            self.add_per_shard(parent, info.shares)
        };
        made.unwrap_or(Node::Removed)
    }

    fn add_per_shard(&mut self, parent: GroupId, shares: u32) -> Result<Node, QueueError> {
        let group = self.queue.add_group(parent, shares)?;
        let classes = (0..self.shards).map(|_| self.queue.add_class(group, 100)).collect::<Result<_, _>>()?;
        Ok(Node::PerShard(group, classes))
    }

    fn set_shares(&mut self, at: usize, shares: u32) {
        let _ = match &self.nodes[at] {
            Node::Group(group) | Node::PerShard(group, _) => self.queue.set_group_shares(*group, shares),
            Node::Class(class) => self.queue.set_class_shares(*class, shares),
            Node::Removed => Ok(()),
        };
    }

    fn remove(&mut self, at: usize, cancelled: &mut Vec<u64>) {
        let Some(node) = self.nodes.get_mut(at) else { return };
        match std::mem::replace(node, Node::Removed) {
            Node::Group(group) => {
                let _ = self.queue.remove_group(group);
            }
            Node::Class(class) => {
                let _ = self.queue.remove_class(class, |key| cancelled.push(key));
            }
            Node::PerShard(group, classes) => {
                for class in classes {
                    let _ = self.queue.remove_class(class, |key| cancelled.push(key));
                }
                let _ = self.queue.remove_group(group);
            }
            Node::Removed => {}
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
        let id = match self.nodes.get(class.index()) {
            Some(Node::Class(id)) => *id,
            Some(Node::PerShard(_, ids)) => {
                *ids.get(usize::from(source.wrapping_sub(self.first_shard))).ok_or(QueueError::Unknown)?
            }
            _ => return Err(QueueError::Unknown),
        };
        self.queue.enqueue(now_ns, id, op, len_bytes, key)
    }

    pub(crate) fn poll_dispatch(&mut self, now_ns: u64) -> Option<Dispatch> {
        self.queue.poll_dispatch(now_ns)
    }

    pub(crate) fn backend_is_busy(&mut self, now_ns: u64) {
        self.queue.backend_is_busy(now_ns);
    }

    pub(crate) fn complete(&mut self, now_ns: u64, piece: Dispatch, outcome: Outcome) -> Progress {
        self.queue.complete(now_ns, piece, outcome)
    }

    pub(crate) fn refuse(&mut self, now_ns: u64, piece: Dispatch, code: i32) -> Progress {
        self.queue.refuse(now_ns, piece, code)
    }

    pub(crate) fn cancel(&mut self, id: RequestId) -> Cancel {
        self.queue.cancel(id)
    }

    pub(crate) fn next_wakeup(&self) -> Option<u64> {
        self.queue.next_wakeup()
    }

    fn ids(&self, class: Class) -> &[ClassId] {
        match self.nodes.get(class.index()) {
            Some(Node::Class(id)) => std::slice::from_ref(id),
            Some(Node::PerShard(_, ids)) => ids,
            _ => &[],
        }
    }

    pub(crate) fn class_stats(&self, class: Class) -> Option<ClassStats> {
        let stats = self.ids(class).iter().filter_map(|id| self.queue.class_stats(*id).ok().copied());
        stats.reduce(ClassStats::plus)
    }

    pub(crate) fn class_latencies(&self, class: Class, visit: &mut dyn FnMut(&Latencies)) {
        for id in self.ids(class) {
            if let Ok(Some(latencies)) = self.queue.class_latencies(*id) {
                visit(latencies);
            }
        }
    }

    pub(crate) fn reset_stats(&mut self) {
        for at in 0..self.nodes.len() {
            for id in self.ids(Class(at as u16)).to_vec() {
                let _ = self.queue.reset_class_stats(id);
            }
        }
    }
}
