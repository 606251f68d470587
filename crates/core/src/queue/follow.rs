//! How a queue follows the disk's table of classes: new, changed and removed rows.
//!
//! A removed class's queued requests end as cancelled. Its place, and by `held` its row in the disk's table, are kept
//! until its last piece is back, so a number never means two classes at once.

use std::cmp::Reverse;
use std::sync::Arc;

use super::member::MovedPlace;
use super::{IoQueue, Kind, Member, Stopped};
use crate::classes::{self, ClassId, QueueError, Row};
use crate::clock;
use crate::slots::NONE;
use crate::target;
use crate::tree::ROOT;

impl IoQueue {
    /// Applies changes of the disk's classes, as every poll does, and returns whether there were any.
    ///
    /// Queued requests of removed classes end as cancelled; `on_cancelled` gets each of them. Pieces in the device come
    /// back through [`IoQueue::complete`] as always.
    pub fn follow_classes(&mut self, on_cancelled: impl FnMut(Stopped)) -> bool {
        let is_new = self.epoch != self.disk.classes().epoch();
        if is_new {
            self.follow();
        }
        self.cancelled.drain(..).for_each(on_cancelled);
        is_new
    }

    /// Reads the disk's table of classes and applies it.
    pub(super) fn follow(&mut self) {
        let disk = Arc::clone(&self.disk);
        self.epoch = disk.classes().epoch();

        disk.classes().read(|rows| {
            let levels = target::levels(rows);
            self.unpark_changed(rows, levels == self.levels);

            let is_gone = |member: &Member, row: &Row| {
                matches!(member.kind, Kind::Class | Kind::Group)
                    && (row.kind == classes::Kind::Removed || row.generation != member.generation)
            };
            let members = self.members.iter().zip(rows).enumerate();
            let gone: Vec<u32> = members.filter(|(_, (m, row))| is_gone(m, row)).map(|(at, _)| at as u32).collect();
            // All requests first: a group can be forgotten only when no class below it has work.
            gone.iter().for_each(|at| self.stop_all_queued(*at));
            gone.iter().for_each(|at| self.forget(*at));

            let mut new = Vec::new();
            for (at, row) in rows.iter().enumerate() {
                self.follow_row(at as u32, row, &mut new);
            }
            for lane in &mut self.lanes {
                new.iter().for_each(|at| lane.tree.attach(*at));
            }

            for member in self.members.iter_mut().filter(|member| member.kind == Kind::Class) {
                (member.level, member.yields) = target::place(&levels, member.qos.latency_target);
            }
            self.any_targets = !levels.is_empty();
            if levels != self.levels {
                (self.levels, self.places) = (levels, Default::default());
            }
        });

        let may_be_urgent = |(at, member): (usize, &Member)| match member.kind {
            Kind::Class => member.qos.may_be_urgent(),
            Kind::Group => at as u32 != ROOT && member.qos.has_reservation(),
            Kind::Free | Kind::Leaving => false,
        };
        let urgent = (0..self.members.len()).filter(|at| may_be_urgent((*at, &self.members[*at])));
        self.urgent = urgent.map(|at| at as u32).collect();
        // Keeps room for all, so that no request allocates.
        self.urgent_with_work.clone_from(&self.urgent);
        let members = &self.members;
        self.urgent_with_work.retain(|at| {
            let member = &members[*at as usize];
            member.kind == Kind::Group || member.stats.queued > 0
        });
        let counts = |member: &Member| matches!(member.kind, Kind::Class | Kind::Group);
        self.any_limits = self.members.iter().any(|member| counts(member) && member.qos.has_limits());
    }

    /// Unparks the nodes whose waits a change may have shortened, as all waits without a booked place. A booked place
    /// stays where it is, unless the node's limits or the disk's latency targets have changed: otherwise each change of
    /// shares would bring a request forward. If the limits have changed it moves, also if an earlier change has moved
    /// it: booked anew, it would be paid twice.
    fn unpark_changed(&mut self, rows: &[Row], has_same_targets: bool) {
        self.moved.retain_mut(|place| {
            let at = place.node as usize;
            let (old, new) = (&self.members[at].qos.limits, &rows[at].qos.limits);
            if old == new {
                return true;
            }
            place.burst_ns = new.burst_ns;
            old.stretch(new).is_some_and(|stretch| {
                place.stretch *= stretch;
                true
            })
        });

        let mut kept = Vec::new();
        while let Some(Reverse((until_ns, lane, node))) = self.parked.pop() {
            let (member, row) = (&self.members[node as usize], &rows[node as usize]);
            let is_there = row.kind != classes::Kind::Removed && row.generation == member.generation;
            let has_place = is_there && member.credit.iter().any(|credit| !credit.is_nothing());
            let is_same = row.qos.limits == member.qos.limits;
            if has_same_targets && has_place && is_same {
                kept.push(Reverse((until_ns, lane, node)));
            } else {
                let stretch = member.qos.limits.stretch(&row.qos.limits).filter(|_| has_place && !is_same);
                let until_ns = until_ns.saturating_add(member.qos.limits.burst_ns);
                let burst_ns = row.qos.limits.burst_ns;
                self.moved.extend(stretch.map(|stretch| MovedPlace { node, until_ns, stretch, burst_ns }));
                self.unpark(usize::from(lane), node);
                self.unparked.push(node);
            }
        }
        self.parked.extend(kept);
    }

    /// Applies one row, and appends its number to `new` if the queue had no such node.
    pub(super) fn follow_row(&mut self, at: u32, row: &Row, new: &mut Vec<u32>) {
        if at as usize == self.members.len() {
            self.members.push(Member::new(Kind::Free, 0, Arc::clone(&row.qos)));
            self.lanes.iter_mut().for_each(|lane| lane.tree.push_vacant());
        }

        let kind = match row.kind {
            classes::Kind::Removed => return,
            classes::Kind::Group => Kind::Group,
            classes::Kind::Class => Kind::Class,
        };
        let shares_clocks = self.shares_clocks();
        let member = &mut self.members[at as usize];
        if member.kind == Kind::Free {
            *member = Member::new(kind, row.generation, Arc::clone(&row.qos));
            member.held = Some(row.clocks.clone());
            let shares = row.effective_shares();
            let clocks = if shares_clocks { Arc::clone(&row.clocks) } else { clock::new_clocks(shares) };
            for lane in &mut self.lanes {
                lane.tree.put(at, row.parent, shares, kind == Kind::Group, Arc::clone(&clocks));
            }
            if at != ROOT {
                new.push(at);
            }
        }

        self.lanes.iter_mut().for_each(|lane| lane.tree.set_shares(at, row.effective_shares(), shares_clocks));
        if member.qos.limits != row.qos.limits && self.moved.iter().all(|place| place.node != at) {
            member.credit = Default::default();
        }
        member.qos.clone_from(&row.qos);
        member.tags.clone_from(&row.tags);
    }

    /// Cancels all queued requests of a class.
    pub(super) fn stop_all_queued(&mut self, node: u32) {
        for lane in 0..self.lanes.len() {
            loop {
                let at = self.lanes[lane].tree.fifo(node).head;
                if at == NONE {
                    break;
                }
                if let Some(stopped) = self.stop_queued(at) {
                    self.cancelled.push(stopped);
                }
            }
        }
    }

    /// Removes a class or group without queued work that the disk has removed.
    pub(super) fn forget(&mut self, node: u32) {
        self.lanes.iter_mut().for_each(|lane| lane.tree.take_out(node));
        // What comes back of it counts for no latency target.
        (self.members[node as usize].kind, self.members[node as usize].level) = (Kind::Leaving, None);
        self.moved.retain(|place| place.node != node);
        self.free_if_left(node);
    }

    pub(super) fn class_node(&self, class: ClassId) -> Result<u32, QueueError> {
        match self.members.get(class.node as usize) {
            Some(m) if m.kind == Kind::Class && m.generation == class.generation => Ok(class.node),
            _ => Err(QueueError::Unknown),
        }
    }

    /// Returns the node of `class`; follows the disk's table first if the class may be new.
    pub(super) fn class_node_now(&mut self, class: ClassId) -> Result<u32, QueueError> {
        let known = self.class_node(class);
        if known.is_err() && self.epoch != self.disk.classes().epoch() {
            self.follow();
            return self.class_node(class);
        }
        known
    }

    /// Frees the place and the histograms of a removed class if its last piece is back.
    pub(super) fn free_if_left(&mut self, node: u32) {
        let member = &mut self.members[node as usize];
        if member.kind == Kind::Leaving && member.stats.in_flight == 0 {
            member.kind = Kind::Free;
            member.held = None;
            member.latencies = [None, None];
        }
    }
}
