//! Quality of service in a queue: classes that overtake others (reservation, age), and classes that wait (limits,
//! latency targets of others). The tags belong to the disk (`qos`, `target`); this module reads and charges them.
//!
//! Most classes use none of this. So the path of a request first checks whether any class does, and inlines none of it.

use std::cmp::Reverse;

use super::{CameBack, Dispatch, IoQueue, Mode, NOT_PARKED};
use crate::bucket::{TICKS_PER_NS, whole_ticks};
use crate::qos::Amount;
use crate::slots::NONE;
use crate::target::Targets;
use crate::tree::{Pick, ROOT, Turn};

/// Longest lateness of a poll that loses nothing of a limit: the amount allowed meanwhile may be dispatched at once.
const CATCH_UP_NS: u64 = 1_000_000;

/// The place that a queue has booked at a level of the latency targets: when the wait for it ends, and the ticks booked
/// and not used yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    until_ns: u64,
    credit_ticks: u64,
}

impl Place {
    /// Books the ticks that are missing for a piece of `ticks`, if its class must wait for `level` now. Returns the end
    /// of the wait.
    fn book(&mut self, targets: &Targets, level: usize, ticks: u64, now_ns: u64) -> Option<u64> {
        let missing_ticks = ticks.saturating_sub(self.credit_ticks);
        if missing_ticks == 0 {
            return None;
        }
        self.until_ns = targets.book(level, missing_ticks, now_ns)?;
        self.credit_ticks += missing_ticks;
        Some(self.until_ns)
    }

    /// Uses up to `ticks` of the booked ones for a piece, and charges `level` for the rest.
    fn pay(&mut self, targets: &Targets, level: usize, ticks: u64, now_ns: u64) {
        let paid_ticks = self.credit_ticks.min(ticks);
        self.credit_ticks -= paid_ticks;
        targets.charge(level, ticks - paid_ticks, now_ns);
    }
}

impl IoQueue {
    /// Returns the class that has been due longest, by the age of its oldest request, or by a reservation of its own or
    /// of a group above.
    #[inline(never)]
    pub(super) fn urgent_pick(&mut self, now_ns: u64, lane: usize) -> Option<Pick> {
        if self.config.mode == Mode::Drain {
            return None;
        }
        let due = |node: &&u32| {
            let runs = self.lanes[lane].tree.can_run(**node);
            runs.then(|| self.due_since_ticks(**node, lane, now_ns)).flatten()
        };
        let nodes = self.urgent_with_work.iter();
        let candidates = nodes.filter_map(|node| due(&node).map(|(tick, aged)| (tick, *node, aged)));
        let (_, node, aged) = candidates.min()?;
        let tree = &mut self.lanes[lane].tree;
        let class = tree.first_below(node)?;
        let turn = if aged { Turn::Aged } else { Turn::Reserved { node, pays: tree.is_due_by_shares(node) } };
        Some(Pick { class, turn, is_early: false })
    }

    /// Returns the end of the picked class's wait for classes with tighter latency targets; `None` if it does not wait.
    /// A reserved piece never waits, so the wait ends at the latest when the next one is due.
    fn gives_way_until(&mut self, now_ns: u64, lane: usize, pick: Pick) -> Option<u64> {
        let yields = usize::from(self.members[pick.class as usize].yields);
        if yields == 0 {
            return None;
        }
        let reserved_ns = self.reserved_at_ns(now_ns, lane, pick.class);
        if reserved_ns <= now_ns {
            return None;
        }
        let latest_ns = self.places.iter().take(yields).map(|place| place.until_ns).max();
        if latest_ns > Some(now_ns) {
            return latest_ns.map(|at_ns| at_ns.min(reserved_ns));
        }

        let slot = self.slots.get(self.lanes[lane].tree.fifo(pick.class).head);
        let rest_bytes = slot.len_bytes - slot.dispatched_bytes;
        let cost = self.disk.cost(slot.op, rest_bytes.min(self.piece_max_bytes(slot.op)));
        let ticks = whole_ticks(self.disk.cost_in_mix(cost));
        let places = self.places.iter_mut().take(yields).enumerate();
        let until_ns = places.filter_map(|(level, place)| place.book(self.disk.targets(), level, ticks, now_ns)).max();
        until_ns.map(|at_ns| at_ns.min(reserved_ns))
    }

    /// Returns when the next reservation of `class` or of a group above it is due; the end of time if they have none.
    fn reserved_at_ns(&self, now_ns: u64, lane: usize, class: u32) -> u64 {
        let time = self.disk.reserved_time(now_ns);
        let mut due_ns = u64::MAX;
        let mut at = class;
        while at != ROOT && !self.urgent.is_empty() {
            let member = &self.members[at as usize];
            let of_node = member.tags.as_ref().and_then(|tags| tags.reservation_next_ns(&member.qos.reservation, time));
            due_ns = due_ns.min(of_node.unwrap_or(u64::MAX));
            at = self.lanes[lane].tree.parent(at);
        }
        due_ns
    }

    /// Returns the tick since which a class or group is due before its turn, and whether its age is the reason.
    pub(super) fn due_since_ticks(&self, node: u32, lane: usize, now_ns: u64) -> Option<(u64, bool)> {
        let member = &self.members[node as usize];
        let reserved = member
            .tags
            .as_ref()
            .and_then(|tags| tags.reservation_due(&member.qos.reservation, self.disk.reserved_time(now_ns)));
        let may_age = self.disk.aged_again_ns() <= now_ns;
        let aged = self.aged_at_ns(node, lane).filter(|at_ns| may_age && *at_ns <= now_ns);
        match (reserved, aged) {
            (Some(tick), _) => Some((tick, false)),
            (None, Some(at_ns)) => Some((at_ns.saturating_mul(TICKS_PER_NS), true)),
            (None, None) => None,
        }
    }

    /// Returns when the oldest request of `class` has waited for the class's longest wait.
    pub(super) fn aged_at_ns(&self, class: u32, lane: usize) -> Option<u64> {
        let member = &self.members[class as usize];
        let head = self.lanes[lane].tree.fifo(class).head;
        let most_ns = member.qos.max_wait_ns.filter(|_| head != NONE)?;
        Some(self.slots.get(head).enqueued_ns.saturating_add(most_ns))
    }

    /// Returns when a class or group will be due before its turn, if that is after `now_ns`.
    pub(super) fn urgent_at_ns(&self, node: u32, now_ns: u64) -> Option<u64> {
        let member = &self.members[node as usize];
        if member.stats.queued == 0 && self.active_children(node) == 0 {
            return None;
        }
        let time = self.disk.reserved_time(now_ns);
        let reserved = member.tags.as_ref().and_then(|tags| tags.reservation_next_ns(&member.qos.reservation, time));
        let aged = (0..self.lanes.len()).filter_map(|lane| self.aged_at_ns(node, lane));
        let aged = aged.map(|at_ns| at_ns.max(self.disk.aged_again_ns()));
        reserved.into_iter().chain(aged).filter(|at_ns| *at_ns > now_ns).min()
    }

    /// Removes `class`, a queue of which has emptied, from the urgent nodes with work, unless another lane has more.
    #[inline]
    pub(super) fn urgent_has_emptied(&mut self, class: u32) {
        if !self.urgent.is_empty()
            && self.members[class as usize].stats.queued == 0
            && let Some(place) = self.urgent_with_work.iter().position(|node| *node == class)
        {
            self.urgent_with_work.swap_remove(place);
        }
    }

    /// Returns the number of children of a group with work that no limit holds back, in all lanes.
    fn active_children(&self, node: u32) -> u32 {
        self.lanes.iter().map(|lane| lane.tree.active_children(node)).sum()
    }

    /// Restarts the reservations of `node`, which has just got work or is no longer parked, and of the groups above
    /// that have become active with it.
    #[inline(never)]
    pub(super) fn begin_reservations(&self, now_ns: u64, node: u32) {
        let is_first = |node| self.lanes.iter().all(|lane| lane.tree.clock(node).queues() <= 1);
        let mut at = node;
        while at != ROOT && is_first(at) {
            let member = &self.members[at as usize];
            if let (true, Some(tags)) = (member.qos.has_reservation(), &member.tags) {
                tags.begin_reservations(self.disk.reserved_time(now_ns));
            }

            let is_active = self.lanes.iter().any(|lane| lane.tree.is_active(at));
            at = self.lanes[0].tree.parent(at);
            if !is_active || self.active_children(at) > 1 {
                return;
            }
        }
    }

    /// Parks the picked class if it yields to latency targets, or the class or group above it that is at its limit.
    /// Returns whether it parked a node.
    #[inline(never)]
    pub(super) fn park_at_limit(&mut self, now_ns: u64, lane: usize, pick: Pick) -> bool {
        if self.config.mode == Mode::Drain {
            return false;
        }
        if let Some(until_ns) = self.gives_way_until(now_ns, lane, pick) {
            self.park(now_ns, lane, pick.class, until_ns);
            return true;
        }

        if !self.any_limits {
            return false;
        }
        let amount = self.next_amount(lane, pick.class);
        let mut at = pick.class;
        loop {
            if let Some(until_ns) = self.moved_until(now_ns, at) {
                self.park(now_ns, lane, at, until_ns);
                return true;
            }
            let member = &mut self.members[at as usize];
            if let Some(tags) = member.tags.as_ref().filter(|_| member.qos.has_limits()) {
                let credit = &mut member.credit[amount.direction as usize];
                let missing = amount.beyond(&mut credit.clone());
                let limits = &member.qos.limits;
                let until_ns = match self.disk.has_several_queues() {
                    _ if missing.is_nothing() => None,
                    true => tags.book(limits, missing, now_ns).inspect(|_| credit.add(missing)),
                    false => tags.limited_until(limits, missing, now_ns),
                };
                if let Some(until_ns) = until_ns {
                    self.park(now_ns, lane, at, until_ns);
                    return true;
                }
            }
            if at == ROOT {
                return false;
            }
            at = self.lanes[lane].tree.parent(at);
        }
    }

    /// Returns the end of the wait for a place that `node` had booked before its limits changed, once for each place.
    fn moved_until(&mut self, now_ns: u64, node: u32) -> Option<u64> {
        let at = self.moved.iter().position(|place| place.node == node)?;
        if let Some(tags) = &self.members[node as usize].tags {
            // The other places move as of the same time.
            tags.take_over(now_ns);
        }
        self.moved.swap_remove(at).ends_ns(now_ns)
    }

    /// Parks a node in one lane until `until_ns`.
    pub(super) fn park(&mut self, now_ns: u64, lane: usize, node: u32, until_ns: u64) {
        let member = &mut self.members[node as usize];
        member.parked_since_ns = member.parked_since_ns.min(now_ns);
        self.lanes[lane].tree.park(node);
        self.parked.push(Reverse((until_ns, lane as u8, node)));
    }

    /// Returns the amount that the limits count for the next piece of `class`.
    pub(super) fn next_amount(&self, lane: usize, class: u32) -> Amount {
        let slot = self.slots.get(self.lanes[lane].tree.fifo(class).head);
        let rest_bytes = slot.len_bytes - slot.dispatched_bytes;
        Amount {
            direction: slot.op.direction(),
            requests: u32::from(slot.dispatched_bytes == 0),
            bytes: rest_bytes.min(self.piece_max_bytes(slot.op)),
        }
    }

    /// Unparks the nodes whose wait has ended.
    pub(super) fn unpark_due(&mut self, now_ns: u64) {
        while let Some(Reverse((until_ns, lane, node))) = self.parked.peek().copied()
            && until_ns <= now_ns
        {
            self.parked.pop();
            self.members[node as usize].came_back = CameBack { at_ns: now_ns, due_ns: until_ns };
            self.unpark(usize::from(lane), node);
            self.end_wait(now_ns, node);
        }
    }

    /// Unparks a node in one lane. The caller, or if it does not know the time the next poll, ends its wait
    /// ([`IoQueue::end_wait`]).
    pub(super) fn unpark(&mut self, lane: usize, node: u32) {
        self.lanes[lane].tree.unpark(node);
    }

    /// Unparks all nodes in all lanes.
    pub(super) fn unpark_all(&mut self, now_ns: u64) {
        while let Some(Reverse((_, lane, node))) = self.parked.pop() {
            self.unpark(usize::from(lane), node);
            self.end_wait(now_ns, node);
        }
    }

    /// Ends the waits of the nodes that a change of the classes has unparked since the last poll.
    pub(super) fn end_waits(&mut self, now_ns: u64) {
        while let Some(node) = self.unparked.pop() {
            self.end_wait(now_ns, node);
        }
    }

    /// Counts the time for which a node was parked, unless a lane still parks it: it has asked for nothing meanwhile.
    fn end_wait(&mut self, now_ns: u64, node: u32) {
        if self.lanes.iter().all(|lane| !lane.tree.is_parked(node)) {
            let member = &mut self.members[node as usize];
            let since_ns = std::mem::replace(&mut member.parked_since_ns, NOT_PARKED);
            member.limited_ns = member.limited_ns.saturating_add(now_ns.saturating_sub(since_ns));
            if !self.urgent.is_empty() {
                self.begin_reservations(now_ns, node);
            }
        }
    }

    /// Returns how long `class` and the groups above it have been parked so far.
    #[inline]
    pub(super) fn limited_ns(&self, class: u32, now_ns: u64) -> u64 {
        if self.any_limits || self.any_targets { self.parked_ns(class, now_ns) } else { 0 }
    }

    fn parked_ns(&self, class: u32, now_ns: u64) -> u64 {
        let mut total_ns: u64 = 0;
        let mut at = class;
        loop {
            let member = &self.members[at as usize];
            let running_ns = now_ns.saturating_sub(member.parked_since_ns);
            total_ns = total_ns.saturating_add(member.limited_ns).saturating_add(running_ns);
            if at == ROOT {
                return total_ns;
            }
            at = self.lanes[0].tree.parent(at);
        }
    }

    /// Returns whether `class`, or a group above it other than the root, has limits. If such a class misses its
    /// reservation, that says nothing about the disk.
    fn is_limited_below_root(&self, class: u32, lane: usize) -> bool {
        let mut at = class;
        while self.any_limits && at != ROOT {
            if self.members[at as usize].qos.has_limits() {
                return true;
            }
            at = self.lanes[lane].tree.parent(at);
        }
        false
    }

    /// Returns the time from which limits count `piece`: now, or, if this poll has ended a wait of its class or of a
    /// group above late, the due end of that wait; not before the request came, and at most `CATCH_UP_NS` ago.
    fn could_have_gone_ns(&self, now_ns: u64, class: u32, piece: &Dispatch) -> u64 {
        let mut due_ns = now_ns;
        let mut at = class;
        loop {
            let came_back = self.members[at as usize].came_back;
            if came_back.at_ns == now_ns {
                due_ns = due_ns.min(came_back.due_ns);
            }
            if at == ROOT {
                break;
            }
            at = self.lanes[usize::from(piece.lane)].tree.parent(at);
        }
        due_ns.max(self.slots.get(piece.slot).enqueued_ns).max(now_ns.saturating_sub(CATCH_UP_NS)).min(now_ns)
    }

    /// Charges a dispatched piece to the tags of its class and of the groups above, and to the latency targets.
    #[inline(never)]
    pub(super) fn charge_qos(&mut self, now_ns: u64, pick: Pick, piece: &Dispatch, requests: u32) {
        if self.any_targets && !matches!(pick.turn, Turn::Reserved { .. }) {
            let yields = usize::from(self.members[pick.class as usize].yields);
            for (level, place) in self.places.iter_mut().take(yields).enumerate() {
                place.pay(self.disk.targets(), level, piece.ticks, now_ns);
            }
        }

        if self.urgent.is_empty() && !self.any_limits {
            return;
        }
        let amount = Amount { direction: piece.op.direction(), requests, bytes: piece.len_bytes };
        if pick.turn == Turn::Aged {
            self.disk.charge_aged(now_ns, piece.cost);
        }

        let mut is_inner = false;
        let mut at = pick.class;
        while at != ROOT {
            let member = &self.members[at as usize];
            if let Some(tags) = member.tags.as_ref().filter(|_| member.qos.has_reservation()) {
                let may_slip = !self.is_limited_below_root(pick.class, usize::from(piece.lane));
                let time = self.disk.reserved_time(now_ns);
                tags.charge_reservations(&member.qos.reservation, amount, time, is_inner, may_slip);
            }
            is_inner |= matches!(pick.turn, Turn::Reserved { node, .. } if node == at);
            at = self.lanes[usize::from(piece.lane)].tree.parent(at);
        }
        if self.any_limits && self.config.mode != Mode::Drain {
            let from_ns = self.could_have_gone_ns(now_ns, pick.class, piece);
            self.charge_limits(from_ns, pick.class, usize::from(piece.lane), amount);
        }
    }
}

#[cfg(all(test, not(plimsoll_loom)))]
mod tests {
    use std::sync::Arc;

    use crate::{Cancel, Disk, DiskConfig, GroupId, IoQueue, Op, Outcome, Qos, QueueConfig, Reservation};

    #[test]
    fn a_poll_asks_only_classes_with_work_whether_they_are_due() {
        let disk = Arc::new(Disk::new(DiskConfig { duplex: true, ..DiskConfig::default() }));
        let qos = Qos { max_wait_ns: Some(1_000), ..Qos::default() };
        let classes = [(); 100].map(|()| {
            let class = disk.add_class(GroupId::ROOT, 1).unwrap();
            disk.set_qos(class, qos).unwrap();
            class
        });
        let group = disk.add_group(GroupId::ROOT, 1).unwrap();
        let reservation = Reservation { iops: 1, bandwidth: 0 };
        disk.set_qos(group, Qos { reservation, ..Qos::default() }).unwrap();

        let mut queue = IoQueue::new(disk, QueueConfig::default());
        assert_eq!((queue.urgent.len(), &queue.urgent_with_work[..]), (101, &[group.node][..]));

        let read = queue.enqueue(0, classes[7], Op::Read, 4096, 0).unwrap();
        queue.enqueue(0, classes[7], Op::Write, 4096, 1).unwrap();
        queue.enqueue(0, classes[3], Op::Read, 4096, 2).unwrap();
        assert_eq!(queue.urgent_with_work, [group.node, classes[7].node, classes[3].node]);
        assert!(matches!(queue.cancel(read), Cancel::Cancelled(_)));
        assert_eq!(queue.urgent_with_work.len(), 3, "a write is left");

        queue.disk().set_shares(classes[0], 2).unwrap();
        queue.follow_classes(|_| ());
        assert_eq!(queue.urgent_with_work, [classes[3].node, classes[7].node, group.node]);

        for piece in std::iter::from_fn(|| queue.poll_dispatch(0)).collect::<Vec<_>>() {
            let moved = Outcome::Moved(piece.len_bytes());
            let _ = queue.complete(0, piece, moved);
        }
        assert_eq!((queue.queued(), &queue.urgent_with_work[..]), (0, &[group.node][..]));
    }
}
