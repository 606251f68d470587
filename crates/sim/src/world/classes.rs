//! The classes of a world on its disks: their ids and their counters.
//!
//! A class is created once on each disk, and all queues of the disk know it. If shards share an I/O queue, a class is a
//! group there, with one sub-class of equal shares for each shard, so that the shards of a class are served equally.

use plimsoll_core::{ClassId, ClassStats, Direction, GroupId, Latencies, NodeId, Qos, QueueError};

use super::check::invalid;
use super::spec::{ClassSpec, SimDisk};
use super::{DiskState, QueueState, WorldError};

/// Shares of the sub-class of each shard. Any number would do, because all are equal.
const SUB_CLASS_SHARES: u32 = 100;

/// A class of one shard on one disk.
#[derive(Debug, Default)]
struct Member {
    /// `None` for groups, and after removal.
    id: Option<ClassId>,
    queue: u32,
    /// Counters of the class at the time of its removal.
    retired: Option<Box<Retired>>,
}

#[derive(Debug, Default)]
struct Retired {
    stats: ClassStats,
    latencies: [Latencies; 2],
}

#[derive(Debug)]
pub(crate) struct ClassTable {
    classes: usize,
    shards: usize,
    /// By disk and class: the node that has the shares; `None` after removal.
    nodes: Vec<Option<NodeId>>,
    /// By disk, class and shard.
    members: Vec<Member>,
}

impl ClassTable {
    /// Creates every class on every disk.
    pub(crate) fn new(
        classes: &[ClassSpec],
        shards: usize,
        specs: &[SimDisk],
        disks: &[DiskState],
        queues: &[QueueState],
    ) -> Result<ClassTable, WorldError> {
        let mut table = ClassTable {
            classes: classes.len(),
            shards,
            nodes: vec![None; disks.len() * classes.len()],
            members: Vec::new(),
        };

        table.members.resize_with(disks.len() * classes.len() * shards, Member::default);
        for disk in 0..disks.len() {
            let has_sub_classes = specs[disk].num_io_queues.is_some_and(|queues| usize::from(queues) < shards);
            for (at, class) in classes.iter().enumerate() {
                let parent_at = class.parent.as_ref().and_then(|name| classes.iter().position(|c| c.name == *name));
                let parent = match parent_at.and_then(|parent_at| table.nodes[disk * classes.len() + parent_at]) {
                    Some(NodeId::Group(parent)) => parent,
                    _ => GroupId::ROOT,
                };
                table
                    .create(disk, &disks[disk], at, class, (parent, has_sub_classes))
                    .map_err(|error| invalid(format!("class \"{}\"", class.name), error.to_string()))?;
            }
        }

        for (number, queue) in queues.iter().enumerate() {
            for class in 0..classes.len() {
                for shard in queue.shards.clone() {
                    let at = table.at(queue.disk as usize, class, shard as usize);
                    table.members[at].queue = number as u32;
                }
            }
        }

        Ok(table)
    }

    fn create(
        &mut self,
        number: usize,
        state: &DiskState,
        at: usize,
        class: &ClassSpec,
        (parent, has_sub_classes): (GroupId, bool),
    ) -> Result<(), QueueError> {
        let disk = &state.disk;
        let first = self.at(number, at, 0);

        let node = if class.is_group || has_sub_classes {
            let group = disk.add_group(parent, class.shares)?;
            if !class.is_group {
                for member in &mut self.members[first..first + self.shards] {
                    member.id = Some(disk.add_class(group, SUB_CLASS_SHARES)?);
                }
            }
            NodeId::Group(group)
        } else {
            let id = disk.add_class(parent, class.shares)?;
            self.members[first..first + self.shards].iter_mut().for_each(|member| member.id = Some(id));
            NodeId::Class(id)
        };

        self.nodes[number * self.classes + at] = Some(node);
        self.set_qos_of(number, state, at, class.qos)
    }

    /// Sets the quality of service of a class. Limits and reservation hold for the class as a whole; promises to single
    /// requests are passed on to each sub-class.
    fn set_qos_of(&self, number: usize, state: &DiskState, class: usize, qos: Qos) -> Result<(), QueueError> {
        let Some(node) = self.nodes[number * self.classes + class] else { return Ok(()) };
        state.disk.set_qos(node, qos)?;
        let first = self.at(number, class, 0);
        if matches!(node, NodeId::Group(_)) {
            let qos = Qos { limits: Default::default(), reservation: Default::default(), ..qos };
            for id in self.members[first..first + self.shards].iter().filter_map(|member| member.id) {
                state.disk.set_qos(id, qos)?;
            }
        }
        Ok(())
    }

    fn at(&self, disk: usize, class: usize, shard: usize) -> usize {
        (disk * self.classes + class) * self.shards + shard
    }

    /// Returns the class's id in the queue that serves it; `None` after removal.
    #[inline]
    pub(crate) fn id(&self, disk: u32, class: u32, shard: u32) -> Option<ClassId> {
        self.members[self.at(disk as usize, class as usize, shard as usize)].id
    }

    /// Calls `look` with the counters of a class of one shard on one disk, and its latencies by direction if it has
    /// any.
    pub(crate) fn with_use<T>(
        &self,
        queues: &[QueueState],
        (disk, class, shard): (usize, usize, usize),
        look: impl FnOnce(&ClassStats, [Option<&Latencies>; 2]) -> T,
    ) -> Option<T> {
        let member = &self.members[self.at(disk, class, shard)];
        if let Some(retired) = &member.retired {
            return Some(look(&retired.stats, retired.latencies.each_ref().map(Some)));
        }
        let queue = &queues[member.queue as usize].queue;
        let id = member.id?;
        let latencies = Direction::ALL.map(|direction| queue.class_latencies(id, direction).ok().flatten());
        Some(look(&queue.class_stats(id).ok()?, latencies))
    }

    pub(crate) fn reset(&mut self, queues: &mut [QueueState]) {
        for member in &mut self.members {
            if let Some(retired) = &mut member.retired {
                **retired = Retired::default();
            }
            if let Some(id) = member.id {
                // Cannot fail: the class exists as long as its id does.
                let _ = queues[member.queue as usize].queue.reset_class_stats(id);
            }
        }
    }

    /// Changes the shares of a class or group on every disk.
    pub(crate) fn set_shares(&self, disks: &[DiskState], class: usize, shares: u32) {
        for (disk, nodes) in disks.iter().zip(self.nodes.chunks(self.classes)) {
            // Removed classes have no node.
            let _ = nodes[class].map(|node| disk.disk.set_shares(node, shares));
        }
    }

    /// Changes the quality of service of a class or group on every disk.
    pub(crate) fn set_qos(&self, disks: &[DiskState], class: usize, qos: Qos) {
        for (number, disk) in disks.iter().enumerate() {
            // Cannot fail: a node in the table has not been removed.
            let _ = self.set_qos_of(number, disk, class, qos);
        }
    }

    /// Removes a class everywhere. Appends cancelled requests as (queue, user data).
    pub(crate) fn remove(
        &mut self,
        disks: &[DiskState],
        queues: &mut [QueueState],
        class: usize,
        cancelled: &mut Vec<(u32, u64)>,
    ) {
        for (number, disk) in disks.iter().enumerate() {
            let first = self.at(number, class, 0);
            let mut ids: Vec<NodeId> = Vec::new();
            for member in &mut self.members[first..first + self.shards] {
                let Some(id) = member.id.take() else { continue };
                member.retired = Some(retire(id, &queues[member.queue as usize]));
                if !ids.contains(&id.into()) {
                    ids.push(id.into());
                }
            }
            // A class with sub-classes is removed after them.
            ids.extend(
                self.nodes[number * self.classes + class].take().filter(|node| matches!(node, NodeId::Group(_))),
            );
            for id in ids {
                let _ = disk.disk.remove(id);
            }
        }

        for (number, state) in queues.iter_mut().enumerate() {
            state.queue.follow_classes(|stopped| cancelled.push((number as u32, stopped.user_data)));
        }
    }
}

/// Returns the counters of a class just before its removal, with its queued requests counted as cancelled.
fn retire(id: ClassId, state: &QueueState) -> Box<Retired> {
    let mut retired = Box::<Retired>::default();
    if let Ok(stats) = state.queue.class_stats(id) {
        let cancelled = stats.cancelled + u64::from(stats.queued);
        retired.stats = ClassStats { queued: 0, in_flight: 0, queued_bytes: 0, queued_fs: 0, cancelled, ..stats };
        for (kept, direction) in retired.latencies.iter_mut().zip(Direction::ALL) {
            if let Ok(Some(latencies)) = state.queue.class_latencies(id, direction) {
                kept.merge(latencies);
            }
        }
    }
    retired
}
