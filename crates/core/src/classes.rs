//! The classes and groups of a disk: one table for all its queues.
//!
//! # Why
//! A class has its shares once on a disk, however many shards use it, and its limits and reservation hold for all of them
//! together. So classes belong to the disk; queues follow.
//!
//! # How it works
//! A table behind a lock that is taken only to change it and to read it again after a change. Each change raises the epoch;
//! a queue compares it with the one it has seen (one read of a line that nobody writes), and reads the table when it is new.
//! What a request touches, clocks and tags, is in the table by reference, and atomic.
//!
//! # Limits
//! A removed class's number is used again when no queue knows it any more. Shares are 1 to 2^32 - 1.

use std::sync::{Arc, PoisonError, RwLock};

use crate::clock::Clock;
use crate::qos::{Qos, Tags};
use crate::sync::{AtomicU64, Ordering};
use crate::tree::ROOT;

/// A priority class of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClassId {
    pub(crate) node: u32,
    pub(crate) generation: u32,
}

/// A group of classes (and groups) of a disk: its members divide its shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupId {
    pub(crate) node: u32,
    pub(crate) generation: u32,
}

impl GroupId {
    /// The group that holds everything.
    pub const ROOT: GroupId = GroupId { node: ROOT, generation: 0 };
}

/// A class or a group, where both will do: each has shares and a quality of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeId {
    /// A class.
    Class(ClassId),
    /// A group.
    Group(GroupId),
}

impl From<ClassId> for NodeId {
    fn from(class: ClassId) -> NodeId {
        NodeId::Class(class)
    }
}

impl From<GroupId> for NodeId {
    fn from(group: GroupId) -> NodeId {
        NodeId::Group(group)
    }
}

/// Why a call was refused. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueueError {
    /// No such class or group (any more) on this disk.
    Unknown,
    /// [`QueueConfig::max_requests`](crate::QueueConfig) are in the queue already: wait for completions, or shed load.
    Full,
    /// The request would wait longer than [`Qos::max_delay_ns`].
    Overloaded {
        /// How long it would be expected to wait.
        expected_ns: u64,
    },
    /// The group still has members.
    NotEmpty,
}

impl core::fmt::Display for QueueError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            QueueError::Unknown => f.write_str("no such class or group on this disk (was it removed?)"),
            QueueError::Full => f.write_str("the I/O queue is full: wait for completions, or shed load"),
            QueueError::Overloaded { expected_ns } => {
                let expected_ms = *expected_ns as f64 / 1e6;
                write!(f, "the request would wait about {expected_ms:.3} ms, longer than its class allows: shed load")
            }
            QueueError::NotEmpty => f.write_str("the group still has classes: remove them first"),
        }
    }
}

impl core::error::Error for QueueError {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Removed; queues may still have pieces of it in the device.
    Removed,
    Group,
    Class,
}

/// One row of the table.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) kind: Kind,
    pub(crate) generation: u32,
    pub(crate) parent: u32,
    pub(crate) shares: u32,
    /// What the controller of latency targets multiplies the shares by, 1 to 8.
    pub(crate) boost: u32,
    /// Shared with the queues, and by all classes that ask for nothing.
    pub(crate) qos: Arc<Qos>,
    members: u32,
    /// One for each lane.
    pub(crate) clocks: [Arc<Clock>; 2],
    pub(crate) tags: Option<Arc<Tags>>,
}

impl Row {
    fn new(kind: Kind, generation: u32, parent: u32, shares: u32, qos: Arc<Qos>) -> Row {
        let clocks = [Arc::new(Clock::new(shares.max(1))), Arc::new(Clock::new(shares.max(1)))];
        Row { kind, generation, parent, shares: shares.max(1), boost: 1, qos, members: 0, clocks, tags: None }
    }

    /// Shares as they count now.
    pub(crate) fn effective_shares(&self) -> u32 {
        self.shares.saturating_mul(self.boost)
    }

    /// Removed, and no queue refers to it any more.
    fn is_free(&self) -> bool {
        self.kind == Kind::Removed && self.clocks.iter().all(|clock| Arc::strong_count(clock) == 1)
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Classes {
    epoch: AtomicU64,
    rows: RwLock<Vec<Row>>,
    /// The quality of service of those that ask for nothing.
    plain: Arc<Qos>,
}

impl Classes {
    pub(crate) fn new() -> Classes {
        let plain = Arc::new(Qos::default());
        let root = Row::new(Kind::Group, 0, ROOT, 1, Arc::clone(&plain));
        Classes { epoch: AtomicU64::new(1), rows: RwLock::new(vec![root]), plain }
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    pub(crate) fn read<R>(&self, look: impl FnOnce(&[Row]) -> R) -> R {
        look(&self.rows.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts the mean of each group where the clocks of its active members say it is.
    pub(crate) fn mend_means(&self, lanes: usize) {
        self.read(|rows| {
            let groups = rows.iter().enumerate().filter(|(_, row)| row.kind == Kind::Group && row.members > 0);
            for (group, row) in groups {
                for lane in 0..lanes {
                    let clock = &row.clocks[lane];
                    let mean = clock.mean();
                    let (mut moment, mut weight) = (0.0, 0.0);
                    for (at, member) in rows.iter().enumerate() {
                        let of = &member.clocks[lane];
                        if at != group && member.parent as usize == group && of.queues() > 0 {
                            let shares = f64::from(of.counted_shares());
                            moment += shares * of.own().wrapping_sub(mean) as i64 as f64;
                            weight += shares;
                        }
                    }
                    clock.mend_mean(if weight > 0.0 { (moment / weight) as i64 } else { 0 });
                }
            }
        });
    }

    fn change<R>(&self, change: impl FnOnce(&mut Vec<Row>) -> Result<R, QueueError>) -> Result<R, QueueError> {
        let mut rows = self.rows.write().unwrap_or_else(PoisonError::into_inner);
        let changed = change(&mut rows)?;
        self.epoch.fetch_add(1, Ordering::Release);
        Ok(changed)
    }

    pub(crate) fn add(&self, parent: GroupId, shares: u32, kind: Kind) -> Result<(u32, u32), QueueError> {
        self.change(|rows| {
            let parent = find(rows, parent.into())?;
            rows[parent].members += 1;
            let at = rows.iter().position(Row::is_free).unwrap_or(rows.len());
            let generation = rows.get(at).map_or(0, |row| row.generation.wrapping_add(1));
            let row = Row::new(kind, generation, parent as u32, shares, Arc::clone(&self.plain));
            if at == rows.len() {
                rows.push(row);
            } else {
                rows[at] = row;
            }
            Ok((at as u32, generation))
        })
    }

    pub(crate) fn set_shares(&self, node: NodeId, shares: u32) -> Result<(), QueueError> {
        self.change(|rows| {
            let at = find(rows, node)?;
            rows[at].shares = shares.max(1);
            recount(rows, at);
            Ok(())
        })
    }

    /// Shares count once again.
    pub(crate) fn reset_boosts(&self) {
        let boosted = self.read(|rows| (0..rows.len()).filter(|at| rows[*at].boost > 1).collect::<Vec<_>>());
        boosted.into_iter().for_each(|at| self.set_boost(at as u32, 1));
    }

    pub(crate) fn set_boost(&self, at: u32, boost: u32) {
        let _ = self.change(|rows| {
            let at = at as usize;
            rows.get_mut(at).ok_or(QueueError::Unknown)?.boost = boost.max(1);
            recount(rows, at);
            Ok(())
        });
    }

    pub(crate) fn set_qos(&self, node: NodeId, qos: Qos) -> Result<(), QueueError> {
        self.change(|rows| {
            let at = find(rows, node)?;
            let row = &mut rows[at];
            let shared = if qos == *self.plain { Arc::clone(&self.plain) } else { Arc::new(qos) };
            let old = std::mem::replace(&mut row.qos, shared);
            row.tags = match &row.tags {
                None if qos.needs_tags() => Some(Arc::new(Tags::default())),
                Some(tags) if qos.limits != old.limits => Some(Arc::new(tags.renewed(&old.limits, &row.qos.limits))),
                tags => tags.clone(),
            };
            Ok(())
        })
    }

    pub(crate) fn get<R>(&self, node: NodeId, look: impl FnOnce(&Row) -> R) -> Result<R, QueueError> {
        self.read(|rows| find(rows, node).map(|at| look(&rows[at])))
    }

    pub(crate) fn remove(&self, node: NodeId) -> Result<(), QueueError> {
        self.change(|rows| {
            let at = find(rows, node)?;
            if at == ROOT as usize {
                return Err(QueueError::Unknown);
            }
            if rows[at].members > 0 {
                return Err(QueueError::NotEmpty);
            }
            rows[at].kind = Kind::Removed;
            let parent = rows[at].parent as usize;
            rows[parent].members -= 1;
            Ok(())
        })
    }
}

fn find(rows: &[Row], node: NodeId) -> Result<usize, QueueError> {
    let (kind, at, generation) = match node {
        NodeId::Class(class) => (Kind::Class, class.node, class.generation),
        NodeId::Group(group) => (Kind::Group, group.node, group.generation),
    };
    match rows.get(at as usize) {
        Some(row) if row.kind == kind && row.generation == generation => Ok(at as usize),
        _ => Err(QueueError::Unknown),
    }
}

/// The shares of an active node have changed: its parents' weights follow.
fn recount(rows: &[Row], at: usize) {
    if at == ROOT as usize {
        return;
    }
    let (row, parent) = (&rows[at], &rows[rows[at].parent as usize]);
    for (clock, above) in row.clocks.iter().zip(&parent.clocks) {
        clock.set_shares(row.effective_shares());
        above.change_weight(clock.recount());
    }
}
