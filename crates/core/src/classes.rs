//! The classes and groups of a disk: one table for all its queues.
//!
//! # Why
//! A class has its shares once on a disk, however many shards use it, and its limits and reservation hold for all
//! shards together. So classes belong to the disk, and queues follow it.
//!
//! # How it works
//! A table behind a lock that is taken only to change the table and to read it after a change. Each change raises the
//! epoch. A queue compares the epoch with the last it has seen (one read of a cache line that is rarely written), and
//! reads the table if it differs. Clocks and tags, which requests update, are in the table by reference, and atomic.
//!
//! # Limits
//! A removed class's number is reused once no queue knows it any more. Shares are 1 to 2^32 - 1.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crate::clock::{self, Clock, Clocks};
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

/// A class or a group: each has shares and a quality of service.
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

/// The error of a refused call, which has changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueueError {
    /// The disk has no such class or group, or no longer.
    Unknown,
    /// The queue holds [`QueueConfig::max_requests`](crate::QueueConfig) already: wait for completions, or shed load.
    Full,
    /// The request would wait longer than [`Qos::max_delay_ns`].
    Overloaded {
        /// The expected wait.
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
    /// The factor of the shares that the controller of latency targets sets, 1 to 8.
    pub(crate) boost: u32,
    /// Shared with the queues, and by all classes with the same values.
    pub(crate) qos: Arc<Qos>,
    members: u32,
    /// A clock for each lane.
    pub(crate) clocks: Arc<Clocks>,
    pub(crate) tags: Option<Arc<Tags>>,
}

impl Row {
    fn new(kind: Kind, generation: u32, parent: u32, shares: u32, qos: Arc<Qos>) -> Row {
        let clocks = clock::new_clocks(shares.max(1));
        Row { kind, generation, parent, shares: shares.max(1), boost: 1, qos, members: 0, clocks, tags: None }
    }

    /// Returns the shares with the boost.
    pub(crate) fn effective_shares(&self) -> u32 {
        self.shares.saturating_mul(self.boost)
    }

    /// Returns whether the row is removed, and no queue refers to it any more.
    fn is_free(&self) -> bool {
        self.kind == Kind::Removed && Arc::strong_count(&self.clocks) == 1
    }
}

/// Rows per call of [`Classes::mend_means`]: few, because the call delays a completion.
const MENDED_AT_ONCE: usize = 64;

/// The progress of [`Classes::mend_means`].
#[derive(Debug, Default)]
struct Mending {
    /// The table's epoch at the start.
    epoch: u64,
    lane: usize,
    next: usize,
    /// By row; counted for groups.
    offsets: Vec<Offset>,
    /// Whether a member of a group was found absent.
    is_any_absent: bool,
}

impl Mending {
    /// Reserves memory for row `at`, so that no later call allocates.
    fn make_room(&mut self, at: u32) {
        let missing = (at as usize + 1).saturating_sub(self.offsets.len());
        self.offsets.reserve(missing);
    }

    /// Counts the next rows, and after the last corrects the means of the lane. Returns whether all lanes are done.
    fn count_next(&mut self, rows: &[Row], lanes: usize, epoch: u64) -> bool {
        if self.epoch != epoch {
            // A row may hold another node than before.
            (self.epoch, self.lane, self.next) = (epoch, 0, 0);
        }
        if self.next == 0 {
            self.offsets.clear();
            self.offsets.resize(rows.len(), Offset::default());
        }

        let end = rows.len().min(self.next + MENDED_AT_ONCE);
        rows[self.next..end].iter().for_each(|row| row.clocks[self.lane].mend_edge());
        for member in rows[..end].iter().skip(self.next.max(ROOT as usize + 1)) {
            let parent = member.parent as usize;
            let (clock, group) = (&member.clocks[self.lane], &rows[parent].clocks[self.lane]);
            if clock.queues() > 0 && group.lacks(clock) {
                self.is_any_absent = true;
            } else if clock.queues() > 0 {
                self.offsets[parent].count(clock, group.mean());
            }
        }
        self.next = end;
        if end < rows.len() {
            return false;
        }

        if std::mem::take(&mut self.is_any_absent) {
            self.bring_up_absent(rows);
        }
        for (row, offset) in rows.iter().zip(&self.offsets).filter(|(row, _)| row.members > 0) {
            row.clocks[self.lane].mend_mean(offset.mean());
        }
        (self.lane, self.next) = ((self.lane + 1) % lanes, 0);
        self.lane == 0
    }

    /// Brings absent members of groups up to those that are there, and counts them.
    fn bring_up_absent(&mut self, rows: &[Row]) {
        let fronts: Vec<i64> = self.offsets.iter().map(|offset| offset.mean()).collect();
        for (member, parent) in rows.iter().map(|row| (row, row.parent as usize)).skip(ROOT as usize + 1) {
            let (clock, group) = (&member.clocks[self.lane], &rows[parent].clocks[self.lane]);
            if clock.queues() > 0 && group.lacks(clock) {
                let mean = group.mean();
                clock.bring_up(mean.wrapping_add(fronts[parent] as u64));
                self.offsets[parent].count(clock, mean);
            }
        }
    }
}

/// The distance of the clocks of a group's members from its mean: the sum, weighted by shares, and the sum of shares.
/// Each difference is taken at one moment, so members may be read one after the other.
#[derive(Clone, Copy, Debug, Default)]
struct Offset {
    moment: f64,
    weight: f64,
}

impl Offset {
    fn count(&mut self, member: &Clock, mean: u64) {
        let shares = f64::from(member.counted_shares());
        self.moment += shares * member.own().wrapping_sub(mean) as i64 as f64;
        self.weight += shares;
    }

    fn mean(self) -> i64 {
        if self.weight > 0.0 { (self.moment / self.weight) as i64 } else { 0 }
    }
}

/// The table of a disk's classes and groups.
#[derive(Debug)]
pub(crate) struct Classes {
    epoch: AtomicU64,
    rows: RwLock<Vec<Row>>,
    /// Numbers of removed rows. Taken only with `rows` locked.
    removed: Mutex<Vec<usize>>,
    /// The default quality of service.
    plain: Arc<Qos>,
    mending: Mutex<Mending>,
}

impl Classes {
    pub(crate) fn new() -> Classes {
        let plain = Arc::new(Qos::default());
        let root = Row::new(Kind::Group, 0, ROOT, 1, Arc::clone(&plain));
        Classes {
            epoch: AtomicU64::new(1),
            rows: RwLock::new(vec![root]),
            removed: Mutex::default(),
            plain,
            mending: Mutex::default(),
        }
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    pub(crate) fn read<R>(&self, read: impl FnOnce(&[Row]) -> R) -> R {
        read(&self.rows.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn removed(&self) -> MutexGuard<'_, Vec<usize>> {
        self.removed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the mean of each group to the weighted mean of its active members' clocks, at most [`MENDED_AT_ONCE`] rows
    /// of one lane in a call. Returns whether all means are done; then the next call starts over.
    pub(crate) fn mend_means(&self, lanes: usize) -> bool {
        let Ok(mut mending) = self.mending.try_lock() else { return true };
        self.read(|rows| mending.count_next(rows, lanes, self.epoch()))
    }

    /// Changes the table, and raises the epoch unless `change` fails.
    fn change<R>(&self, change: impl FnOnce(&mut Vec<Row>) -> Result<R, QueueError>) -> Result<R, QueueError> {
        let mut rows = self.rows.write().unwrap_or_else(PoisonError::into_inner);
        let changed = change(&mut rows)?;
        self.epoch.fetch_add(1, Ordering::Release);
        Ok(changed)
    }

    /// Adds a row and returns its number and generation.
    pub(crate) fn add(&self, parent: GroupId, shares: u32, kind: Kind) -> Result<(u32, u32), QueueError> {
        self.change(|rows| {
            let parent = find(rows, parent.into())?;
            rows[parent].members += 1;
            let mut removed = self.removed();
            let free = removed.iter().position(|at| rows[*at].is_free());
            let at = free.map_or(rows.len(), |place| removed.swap_remove(place));
            let generation = rows.get(at).map_or(0, |row| row.generation.wrapping_add(1));
            let row = Row::new(kind, generation, parent as u32, shares, Arc::clone(&self.plain));
            if at == rows.len() {
                rows.push(row);
            } else {
                rows[at] = row;
            }
            Ok((at as u32, generation))
        })
        .inspect(|(at, _)| self.mending.lock().unwrap_or_else(PoisonError::into_inner).make_room(*at))
    }

    pub(crate) fn set_shares(&self, node: NodeId, shares: u32) -> Result<(), QueueError> {
        self.change(|rows| {
            let at = find(rows, node)?;
            rows[at].shares = shares.max(1);
            recount(rows, at);
            Ok(())
        })
    }

    /// Sets all boosts to 1.
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
            // Many classes have equal values, which share one allocation.
            let same = rows.iter().map(|row| &row.qos).chain([&self.plain]).find(|of| ***of == qos);
            let shared = same.map_or_else(|| Arc::new(qos), Arc::clone);
            let row = &mut rows[at];
            let old = std::mem::replace(&mut row.qos, shared);
            row.tags = match &row.tags {
                None if qos.needs_tags() => Some(Arc::new(Tags::default())),
                Some(tags) if qos.limits != old.limits => Some(Arc::new(tags.renewed(&old.limits, &row.qos.limits))),
                tags => tags.clone(),
            };
            Ok(())
        })
    }

    pub(crate) fn get<R>(&self, node: NodeId, read: impl FnOnce(&Row) -> R) -> Result<R, QueueError> {
        self.read(|rows| find(rows, node).map(|at| read(&rows[at])))
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
            self.removed().push(at);
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

/// Applies changed shares to the clocks of a node, and to the weights in its parent's clocks.
fn recount(rows: &[Row], at: usize) {
    if at == ROOT as usize {
        return;
    }
    let (row, parent) = (&rows[at], &rows[rows[at].parent as usize]);
    for (clock, above) in row.clocks.iter().zip(parent.clocks.iter()) {
        clock.set_shares(row.effective_shares());
        above.change_weight(clock.recount());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Cost;

    #[test]
    fn means_are_mended_in_portions() {
        let classes = Classes::new();
        let group = |parent| {
            let (node, generation) = classes.add(parent, 10, Kind::Group).unwrap();
            GroupId { node, generation }
        };
        let groups: Vec<GroupId> = (0..20).map(|_| group(GroupId::ROOT)).collect();
        let members: Vec<u32> =
            (0..1_000).map(|at| classes.add(groups[at % 20], 1 + at as u32 % 7, Kind::Class).unwrap().0).collect();
        classes.read(|rows| {
            for at in &members {
                let clock = &rows[*at as usize].clocks[0];
                let _ = clock.add_queue();
                clock.serve(Cost::from_ns(u64::from(*at)), 1.0, true);
            }
        });

        // 1021 rows, 64 per call.
        let calls = 1 + (0..100).take_while(|_| !classes.mend_means(1)).count();
        assert_eq!(calls, 16);
        classes.read(|rows| {
            for group in &groups {
                let of_group = members.iter().map(|at| &rows[*at as usize]).filter(|row| row.parent == group.node);
                let clocks = of_group.map(|row| (f64::from(row.shares), row.clocks[0].own() as f64));
                let (moment, weight) = clocks.fold((0.0, 0.0), |(m, w), (shares, own)| (m + shares * own, w + shares));
                let error = rows[group.node as usize].clocks[0].mean() as f64 - moment / weight;
                assert!(error.abs() <= 1.0, "{error}");
            }
        });
    }

    #[test]
    fn mending_begins_anew_when_the_table_has_changed() {
        let classes = Classes::new();
        for _ in 0..100 {
            classes.add(GroupId::ROOT, 1, Kind::Class).unwrap();
        }
        assert!(!classes.mend_means(1));
        classes.add(GroupId::ROOT, 1, Kind::Class).unwrap();
        assert!(!classes.mend_means(1), "102 rows take two calls");
        assert!(classes.mend_means(1));
    }
}
