//! The order of classes: a tree of groups and classes in weighted virtual time, as one queue sees it.
//!
//! # Why
//! Shares must hold between classes that always have work, and the others must get an idle class's share at once. A
//! class that returns must neither pay for device time that it used while alone nor get back time that it left unused.
//!
//! # How it works
//! At each level the child with the lowest *clock* is served first, as in start-time fair queueing (Goyal, Vin, Cheng
//! 1996). The clocks are shared by all queues of the disk (`clock`). If only one queue has work, it serves the lowest
//! child. If several have, each serves only *eligible* children: those at or behind the mean of all, or so little ahead
//! that the device has room for those before them too. A child that wakes up is placed at most a *wake-up credit*
//! behind the mean: the device time that it may use before the others get a turn.
//!
//! In depth mode the clocks are the queue's own: the decaying accumulators of Scylla's first scheduler (2016). A
//! class's total cost fades by e^(-t/tau), and the lowest total is served. K = ln(total) + t/tau orders totals that
//! decay alike without updating them: serving `cost` at t makes the total e^(K - t/tau) + cost/shares.
//!
//! # Limits
//! A class is served at most one largest request ahead of its share. Among more than [`SCAN_MAX`] local children the
//! search for an eligible one stops early. The heaps hold children with work, and sometimes one that has none left, or
//! that has an old clock; it is corrected when it reaches the top.
//!
//! # Example
//! Shares 100 and 300, requests of equal cost: served in the order B A B B B A B B B A ...

mod membership;

use std::sync::Arc;

use crate::clock::{self, Clock, Clocks, is_before};
use crate::heap::Heap;
use crate::math;
use crate::slots::{Fifo, NONE};
use crate::units::Cost;

pub(crate) const ROOT: u32 = 0;

/// Most children of a group examined for an eligible one: a bound on the time of a pick.
const SCAN_MAX: usize = 64;

/// How clocks advance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fairness {
    /// Virtual time with a wake-up credit.
    Virtual { credit: Cost },
    /// Decaying accumulators with time constant tau.
    Decaying { tau_ns: u64 },
}

/// The fields of a node that a dispatch reads and writes, on cache lines of their own.
#[repr(align(64))]
#[derive(Debug)]
struct Node {
    parent: u32,
    shares: u32,
    per_share: f64,
    /// F and V of each lane, shared with the other queues of the disk (unless the disk is unlimited or has no common
    /// time).
    shared: Arc<Clocks>,
    /// This queue's own clock: of a class, its clock among the class's queues; in depth mode, the accumulator.
    local: u64,
    /// How far `local` was ahead when the queue left the class.
    lead: u64,
    carry: f64,
    /// Whether it counts in its parent: it has work (or an active child) and is not parked.
    active: bool,
    /// Whether it waits for a limit.
    parked: bool,
    in_heap: bool,
    /// Number of a group among the groups; [`NONE`] for a class.
    group: u32,
    fifo: Fifo,
}

/// The fields of a group that other nodes lack.
#[derive(Debug, Default)]
struct Group {
    active_children: u32,
    heap: Heap,
}

/// The class to serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pick {
    pub(crate) class: u32,
    pub(crate) turn: Turn,
    /// Whether it is served before its turn: it lags behind no other class then.
    pub(crate) is_early: bool,
}

/// Device time by which a class lags behind the others, and its queue behind the other queues of the class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lag {
    pub(crate) of_class: Cost,
    pub(crate) in_class: Cost,
}

/// The reason for which a class is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Its shares.
    Picked,
    /// It continues a short transfer, and pays with its shares.
    Continued,
    /// Its age; it pays with its shares.
    Aged,
    /// The reservation of `node`: the class or a group above it. If its shares would have given `node` the turn too, it
    /// pays; otherwise only clocks below `node` move.
    Reserved { node: u32, pays: bool },
}

/// A piece that a class is charged for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charge {
    pub(crate) class: u32,
    pub(crate) cost: Cost,
    /// Counts instead of `cost` in depth mode.
    pub(crate) weight: u32,
    pub(crate) now_ns: u64,
    pub(crate) turn: Turn,
    /// Whether the class becomes idle: nothing else of it is queued.
    pub(crate) is_last: bool,
}

/// It is the turn of other queues' classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotYet;

/// The tree of one queue; see the module's documentation. Nodes are named by index, as in the disk's table of classes.
#[derive(Debug)]
pub(crate) struct Tree {
    nodes: Vec<Node>,
    groups: Vec<Group>,
    /// Numbers of removed groups.
    free_groups: Vec<u32>,
    /// The lane whose clocks this tree uses.
    lane: usize,
    fairness: Fairness,
    /// The furthest clock at which a child of the root was served since the root had no work. A class that was idle is
    /// behind it, even after its first request.
    served: u64,
    /// Device time that this queue may still use before its turn, because the queues ahead are absent.
    overtime: Cost,
}

impl Tree {
    pub(crate) fn new(fairness: Fairness, lane: usize) -> Tree {
        Tree {
            nodes: Vec::new(),
            groups: Vec::new(),
            free_groups: Vec::new(),
            lane,
            fairness,
            served: 0,
            overtime: Cost::ZERO,
        }
    }

    /// Appends an empty place for a node.
    pub(crate) fn push_vacant(&mut self) {
        self.nodes.push(Node::new(NONE, 1, NONE, clock::new_clocks(1)));
    }

    /// Puts a node into place `at`; call [`Tree::attach`] once its parent is there too.
    pub(crate) fn put(&mut self, at: u32, parent: u32, shares: u32, is_group: bool, shared: Arc<Clocks>) {
        let parent = if at == ROOT { NONE } else { parent };
        let group = if is_group { self.add_group() } else { NONE };
        *self.node_mut(at) = Node::new(parent, shares, group, shared);
    }

    fn add_group(&mut self) -> u32 {
        self.free_groups.pop().unwrap_or_else(|| {
            self.groups.push(Group::default());
            self.groups.len() as u32 - 1
        })
    }

    pub(crate) fn attach(&mut self, at: u32) {
        let parent = self.node(at).parent;
        self.group_mut(parent).heap.add_member();
    }

    /// Removes a node without work from the tree.
    pub(crate) fn take_out(&mut self, at: u32) {
        let parent = self.node(at).parent;
        // Its group may have been removed before it.
        if self.is_group(parent) {
            self.group_mut(parent).heap.remove_member(at);
        }

        let node = self.node_mut(at);
        node.in_heap = false;
        // Releases the clocks to the disk's table.
        node.shared = clock::new_clocks(1);

        let group = std::mem::replace(&mut node.group, NONE);
        if group != NONE {
            self.groups[group as usize] = Group::default();
            self.free_groups.push(group);
        }
    }

    /// Sets the shares of a node. `shared`: the disk's table has set those of the clocks already.
    pub(crate) fn set_shares(&mut self, at: u32, shares: u32, shared: bool) {
        let node = self.node_mut(at);
        if node.shares == shares.max(1) {
            return;
        }
        node.shares = shares.max(1);
        node.per_share = 1.0 / f64::from(node.shares);

        let (shares, parent) = (node.shares, node.parent);
        if !shared && parent != NONE {
            self.clock(at).set_shares(shares);
            let by = self.clock(at).recount();
            self.clock(parent).change_weight(by);
        }
    }

    pub(crate) fn fifo(&self, at: u32) -> &Fifo {
        &self.node(at).fifo
    }

    pub(crate) fn fifo_mut(&mut self, at: u32) -> &mut Fifo {
        &mut self.node_mut(at).fifo
    }

    pub(crate) fn clock(&self, at: u32) -> &Clock {
        &self.node(at).shared[self.lane]
    }

    pub(crate) fn shares(&self, at: u32) -> u32 {
        self.node(at).shares
    }

    pub(crate) fn parent(&self, at: u32) -> u32 {
        self.node(at).parent
    }

    fn key(&self, at: u32) -> u64 {
        match self.fairness {
            Fairness::Virtual { .. } => self.clock(at).own(),
            Fairness::Decaying { .. } => self.node(at).local,
        }
    }

    /// Returns whether `at` has work that no limit of its own or inside it holds back.
    pub(crate) fn is_active(&self, at: u32) -> bool {
        self.node(at).active
    }

    pub(crate) fn is_parked(&self, at: u32) -> bool {
        self.node(at).parked
    }

    /// Returns whether `at` and all its ancestors are active, and the root is not parked.
    pub(crate) fn can_run(&self, mut at: u32) -> bool {
        while at != ROOT {
            if !self.node(at).active {
                return false;
            }
            at = self.node(at).parent;
        }
        !self.node(ROOT).parked
    }

    /// Returns the class whose turn it is; `Ok(None)` if there is no work.
    pub(crate) fn pick(&mut self) -> Result<Option<Pick>, NotYet> {
        if self.node(ROOT).parked || self.group(ROOT).active_children == 0 {
            return Ok(None);
        }
        match self.pick_in(ROOT) {
            Some(class) => Ok(Some(Pick { class, turn: Turn::Picked, is_early: false })),
            None => Err(NotYet),
        }
    }

    fn pick_in(&mut self, group: u32) -> Option<u32> {
        let first = self.top_child(group)?;
        if !self.is_eligible(group, first) {
            return None;
        }
        if let Some(class) = self.class_of(first) {
            return Some(class);
        }

        // The first child's clock is low, but inside it other queues come first: tries the next children.
        let mut best: Option<(u64, u32)> = None;
        for at in 1..self.group(group).heap.entries().len().min(SCAN_MAX) {
            let child = self.group(group).heap.entries()[at].node;
            let clock = self.key(child);
            let better = best.is_none_or(|(least, _)| is_before(clock, least));
            if self.node(child).active
                && better
                && self.is_eligible(group, child)
                && let Some(class) = self.class_of(child)
            {
                best = Some((clock, class));
            }
        }
        best.map(|(_, class)| class)
    }

    /// Returns the class to serve at or below `child`, whose turn it is in its group; `None` if other queues come first
    /// there.
    #[inline(always)]
    fn class_of(&mut self, child: u32) -> Option<u32> {
        if self.is_group(child) {
            return self.pick_in(child);
        }
        let shared = self.clock(child);
        let may_go = shared.queues() <= 1
            || matches!(self.fairness, Fairness::Decaying { .. })
            || !self.overtime.is_zero()
            || clock::is_eligible(self.node(child).local, shared.mean(), 1)
            || shared.may_follow(self.node(child).local);
        may_go.then_some(child)
    }

    /// Returns whether the clocks of the disk let `child` be served. A queue that alone has work needs no permission.
    #[inline(always)]
    fn is_eligible(&self, group: u32, child: u32) -> bool {
        let shared = self.clock(group);
        matches!(self.fairness, Fairness::Decaying { .. })
            || shared.queues() <= 1
            || !self.overtime.is_zero()
            || clock::is_eligible(self.clock(child).own(), shared.mean(), self.node(child).shares)
            || shared.may_follow(self.clock(child).own())
    }

    /// Returns the class of this queue that is first at or below `node`; `None` if none there has work.
    pub(crate) fn first_below(&mut self, node: u32) -> Option<u32> {
        let mut at = node;
        while self.is_group(at) {
            at = self.top_child(at)?;
        }
        Some(at)
    }

    /// Returns the number of children of `at` with work that no limit holds back; 0 for a class.
    pub(crate) fn active_children(&self, at: u32) -> u32 {
        if self.is_group(at) { self.group(at).active_children } else { 0 }
    }

    /// Returns whether shares alone would let the class or group `node` be served now.
    pub(crate) fn is_due_by_shares(&self, node: u32) -> bool {
        if matches!(self.fairness, Fairness::Decaying { .. }) {
            return true;
        }
        let mut at = node;

        while at != ROOT {
            let parent = self.node(at).parent;
            let node = self.node(at);
            if !clock::is_eligible(self.clock(at).own(), self.clock(parent).mean(), node.shares) {
                return false;
            }
            at = parent;
        }
        true
    }

    /// Returns the lag of `class`: behind the mean of the others if queues compete, or behind the furthest class served
    /// if this queue alone decides.
    pub(crate) fn lag(&self, class: u32) -> Lag {
        let mut top = class;
        while self.node(top).parent != ROOT && top != ROOT {
            top = self.node(top).parent;
        }

        let (root, top) = (self.clock(ROOT), self.clock(top));
        let shares = top.counted_shares();
        if root.queues() <= 1 {
            return Lag { of_class: clock::between(top.own(), self.served, shares), in_class: Cost::ZERO };
        }

        let of_queues = self.clock(class);
        let in_class = if of_queues.queues() > 1 { of_queues.lag_of_queue(self.node(class).local) } else { Cost::ZERO };

        // The class itself is part of the mean, so its lag behind the others is larger than behind the mean.
        let (weight, own) = (root.weight() as f64, f64::from(shares));
        let behind_fs = clock::between(top.own(), root.mean(), shares).as_fs() as f64;
        Lag { of_class: Cost::from_fs((behind_fs * weight / (weight - own).max(1.0)) as u64), in_class }
    }

    /// Returns the class of this queue whose turn comes first, and the device time that others must be served before it
    /// does.
    pub(crate) fn first_in_line(&mut self) -> Option<(Pick, Cost)> {
        let (mut at, mut ahead) = (ROOT, Cost::ZERO);
        while self.is_group(at) {
            let child = self.top_child(at)?;
            let group = self.clock(at);
            if group.queues() > 1 {
                ahead = ahead.max(clock::distance(group.mean(), self.clock(child).own(), group.weight()));
            }
            at = child;
        }

        let queues = u64::from(self.clock(at).queues());
        if queues > 1 {
            ahead = ahead.max(clock::distance(self.clock(at).mean(), self.node(at).local, queues));
        }
        Some((Pick { class: at, turn: Turn::Picked, is_early: true }, ahead))
    }

    /// Returns the part of the group `above` (of the disk: the root) that `class` has in this queue now, or would have
    /// if it had work: above 0, at most 1.
    pub(crate) fn part_of(&self, class: u32, above: u32) -> f64 {
        let mut part = 1.0;
        let mut at = class;
        while at != above && at != ROOT {
            let node = self.node(at);
            let weight = self.clock(node.parent).weight() as f64;
            let shares = f64::from(node.shares);
            let is_counted = self.clock(at).queues() > 0;
            part *= shares / if is_counted { weight.max(shares) } else { weight + shares };
            at = node.parent;
        }
        part / f64::from(self.clock(class).queues().max(1))
    }

    /// Allows this queue `overtime` of device time before its turn, because the queues ahead are absent. The clocks are
    /// not adjusted, so the classes of queues that return soon are behind, and are served first.
    pub(crate) fn set_overtime(&mut self, overtime: Cost) {
        self.overtime = overtime;
    }

    /// Returns the child with the lowest clock that has work. Corrects the top of the heap on the way.
    #[inline(always)]
    fn top_child(&mut self, group: u32) -> Option<u32> {
        loop {
            let top = self.group(group).heap.peek()?;
            let clock = self.key(top.node);
            if !self.node(top.node).active {
                self.group_mut(group).heap.pop();
                self.node_mut(top.node).in_heap = false;
            } else if is_before(top.key, clock) {
                self.group_mut(group).heap.raise_top(clock);
            } else {
                return Some(top.node);
            }
        }
    }

    /// Charges a class and its groups for a piece. Within the class, this queue is charged in any case.
    #[inline(always)]
    pub(crate) fn charge(&mut self, charge: Charge) {
        let Charge { class, cost, turn, is_last, .. } = charge;
        let Fairness::Virtual { .. } = self.fairness else {
            return self.charge_decaying(charge);
        };

        let in_overtime = !self.overtime.is_zero() && turn == Turn::Picked;
        self.overtime = Cost::from_fs(self.overtime.as_fs().saturating_sub(cost.as_fs()));
        let lane = self.lane;
        let alone = self.clock(ROOT).queues() <= 1;

        let node = &mut self.nodes[class as usize];
        // If the class has only this queue, the queue's clock is the mean: neither needs to move.
        if node.shared[lane].queues() > 1 {
            if turn == Turn::Picked {
                node.shared[lane].note_queue_served(node.local, in_overtime);
            }
            node.local = node.local.wrapping_add(clock::units(cost, 1.0));
            node.shared[lane].advance_class(cost, &mut node.carry);
        }
        let top = if let Turn::Reserved { node, pays: false } = turn { node } else { ROOT };
        let mut at = class;
        while at != top {
            let parent = self.node(at).parent;
            let Ok([node, above]) = self.nodes.get_disjoint_mut([at as usize, parent as usize]) else { return };
            let clock = &node.shared[lane];
            if parent == ROOT && turn == Turn::Picked && is_before(self.served, clock.own()) {
                self.served = clock.own();
            }

            if in_overtime {
                above.shared[lane].push_edge(clock.own());
            }
            clock.serve(cost, node.per_share, alone);
            above.shared[lane].advance(cost, &mut above.carry, alone);
            let heap = &mut self.groups[above.group as usize].heap;
            node.mend_top(at, clock.own(), is_last && at == class, heap);
            at = parent;
        }
    }

    /// Charges `class` for a request that is the only one queued on the disk: as if the class had become active, been
    /// charged, and become idle.
    pub(crate) fn charge_alone(&mut self, class: u32, cost: Cost) {
        let lane = self.lane;
        self.overtime = Cost::from_fs(self.overtime.as_fs().saturating_sub(cost.as_fs()));

        let node = self.node_mut(class);
        (node.local, node.lead) = (node.shared[lane].mean(), 0);

        let mut at = class;
        while at != ROOT {
            let (parent, per_share) = (self.node(at).parent, self.node(at).per_share);
            if parent == ROOT {
                self.served = self.clock(ROOT).mean();
            }
            let mut carry = self.node(parent).carry;
            self.clock(parent).serve_only(self.clock(at), cost, per_share, &mut carry);
            self.node_mut(parent).carry = carry;
            at = parent;
        }
    }

    fn charge_decaying(&mut self, charge: Charge) {
        let Fairness::Decaying { tau_ns } = self.fairness else { return };
        let mut at = charge.class;
        while at != ROOT {
            let parent = self.node(at).parent;
            let Ok([node, above]) = self.nodes.get_disjoint_mut([at as usize, parent as usize]) else { return };
            let add = f64::from(charge.weight) / f64::from(node.shares);
            node.local = decayed(node.local, add, charge.now_ns, tau_ns);
            let heap = &mut self.groups[above.group as usize].heap;
            node.mend_top(at, node.local, charge.is_last && at == charge.class, heap);
            at = parent;
        }
    }

    fn node(&self, at: u32) -> &Node {
        &self.nodes[at as usize]
    }

    fn node_mut(&mut self, at: u32) -> &mut Node {
        &mut self.nodes[at as usize]
    }

    fn is_group(&self, at: u32) -> bool {
        self.node(at).group != NONE
    }

    /// Returns the group at node `at`.
    fn group(&self, at: u32) -> &Group {
        &self.groups[self.node(at).group as usize]
    }

    fn group_mut(&mut self, at: u32) -> &mut Group {
        let group = self.node(at).group;
        &mut self.groups[group as usize]
    }

    fn has_work(&self, at: u32) -> bool {
        if self.is_group(at) { self.group(at).active_children > 0 } else { self.fifo(at).head != NONE }
    }
}

impl Node {
    fn new(parent: u32, shares: u32, group: u32, shared: Arc<Clocks>) -> Node {
        let shares = shares.max(1);
        Node {
            parent,
            shares,
            per_share: 1.0 / f64::from(shares),
            shared,
            local: 0,
            lead: 0,
            carry: 0.0,
            active: false,
            parked: false,
            in_heap: false,
            group,
            fifo: Fifo::default(),
        }
    }

    /// Corrects the entry of this node, number `at`, after its clock has moved to `key`, if it is at the top of its
    /// group's `heap`; elsewhere it is corrected when it reaches the top.
    #[inline(always)]
    fn mend_top(&mut self, at: u32, key: u64, is_last: bool, heap: &mut Heap) {
        if heap.peek().is_none_or(|top| top.node != at) {
            return;
        }
        if is_last {
            // Removes a class that becomes idle at the top: below the top its entry would be stale when it wakes.
            heap.pop();
            self.in_heap = false;
        } else {
            heap.raise_top(key);
        }
    }
}

/// K = ln(total) + t/tau as an ordered integer, in units of 1/`scale`; 0 is a total of zero.
const K_BIAS: f64 = 1024.0;

/// Returns the units of K in a time constant: 2^28, or fewer if it is so short that K would otherwise grow by more than
/// 4 in a nanosecond. Keys of up to 73 years are then compared rightly.
fn scale(tau_ns: u64) -> f64 {
    (4u64 << tau_ns.ilog2().min(26)) as f64
}

fn decayed(key: u64, add: f64, now_ns: u64, tau_ns: u64) -> u64 {
    let tau_ns = tau_ns.max(1);
    let (elapsed, scale) = (now_ns as f64 / tau_ns as f64, scale(tau_ns));
    let old_total = if key == 0 { 0.0 } else { math::exp(key as f64 / scale - K_BIAS - elapsed) };
    let k = math::ln(old_total + add) + elapsed;
    ((k + K_BIAS) * scale) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decay_forgets_with_tau() {
        let tau_ns = 100_000_000;
        let one = decayed(0, 1.0, 0, tau_ns);
        let later = decayed(one, 1.0, tau_ns, tau_ns);
        // 1/e + 1 at t = tau.
        let total = math::exp(later as f64 / scale(tau_ns) - K_BIAS - 1.0);
        assert!((total - 1.367_879_441).abs() < 1e-6, "{total}");
    }

    #[test]
    fn decay_orders_after_fifty_years() {
        // With 1 ms, totals were at the end of their range after two years, and no total was less than another.
        for tau_ns in [100_000, 1_000_000, 100_000_000, 10_000_000_000] {
            for years in [1, 2, 5, 50] {
                let now_ns = years * 366 * 86_400 * 1_000_000_000;
                let small = decayed(0, 1.0 / 100.0, now_ns, tau_ns);
                let large = decayed(0, 1.0 / 10.0, now_ns, tau_ns);
                let what = format!("{years} years, {tau_ns} ns");
                assert!(is_before(0, small) && is_before(small, large), "{what}: {small} {large}");
                assert!(is_before(decayed(small, 1.0 / 100.0, now_ns, tau_ns), large), "{what}");
            }
        }
    }
}
