//! Who is next: a tree of groups and classes in weighted virtual time.
//!
//! # Why
//! Shares must hold between classes that always have work, an idle class's share must go to the others at once, and a
//! class that comes back must neither be punished for what it used while alone nor be paid for what it did not ask for.
//!
//! # How it works
//! Start-time fair queueing (Goyal, Vin, Cheng 1996) at each level of the tree. A child's *clock* runs by
//! `cost / shares` whenever it is served; a group serves the child with the lowest clock. A child that wakes up is set
//! to the group's time (the clock of whoever was served last) less a bounded *wake-up credit*: that much device time
//! it may use before the others get a turn. Clocks are 128-bit integers: nothing drifts, nothing overflows in the age
//! of the universe.
//!
//! In depth mode the clocks are instead the decaying accumulators of Scylla's first scheduler (2016): a class's total
//! cost fades by e^(-t/tau), and the lowest total is served. K = ln(total) + t/tau orders totals that decay alike
//! without touching them: serving `cost` at t makes the total e^(K - t/tau) + cost/shares.
//!
//! # Limits
//! A class is served at most one largest request ahead of its share. The heaps hold children with work, and now and
//! then one whose work was cancelled; that one is taken out when it comes to the top.
//!
//! # Example
//! Shares 100 and 300, requests of equal cost: served in the order B A B B B A B B B A ...

use crate::heap::{Entry, Heap};
use crate::math;
use crate::slots::{Fifo, NONE};
use crate::units::Cost;

pub(crate) const ROOT: u32 = 0;

/// Fixed point of a clock: cost in femtoseconds times 2^20, divided by shares.
const CLOCK_SHIFT: u32 = 20;
const SHARE_SHIFT: u32 = 40;

/// How clocks run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fairness {
    /// Weighted virtual time with a wake-up credit.
    Virtual { credit: Cost },
    /// Decaying accumulators with time constant tau.
    Decaying { tau_ns: u64 },
}

#[derive(Debug)]
struct Node {
    parent: u32,
    shares: u32,
    per_share: u64,
    clock: u128,
    /// Time of this group: the clock of the child served last.
    time: u128,
    in_heap: bool,
    is_group: bool,
    members: u32,
    heap: Heap,
    fifo: Fifo,
}

/// The class to serve, and how far it lags behind the others at the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pick {
    pub(crate) class: u32,
    pub(crate) lag: Cost,
}

/// See the module's documentation. Nodes are named by index; the queue keeps names and generations.
#[derive(Debug)]
pub(crate) struct Tree {
    nodes: Vec<Node>,
    fairness: Fairness,
}

impl Tree {
    pub(crate) fn new(fairness: Fairness) -> Tree {
        let mut tree = Tree { nodes: Vec::new(), fairness };
        tree.put(ROOT, NONE, 1, true);
        tree
    }

    /// Puts a node at index `at` (the next new one, or one that was removed).
    pub(crate) fn put(&mut self, at: u32, parent: u32, shares: u32, is_group: bool) {
        let node = Node {
            parent,
            shares: shares.max(1),
            per_share: (1 << SHARE_SHIFT) / u64::from(shares.max(1)),
            clock: 0,
            time: 0,
            in_heap: false,
            is_group,
            members: 0,
            heap: Heap::default(),
            fifo: Fifo::default(),
        };
        if (at as usize) < self.nodes.len() {
            self.nodes[at as usize] = node;
        } else {
            self.nodes.push(node);
        }
        if parent != NONE {
            let group = self.node_mut(parent);
            group.members += 1;
            group.heap.reserve_for(group.members as usize);
        }
    }

    /// Takes a node without work out of the tree.
    pub(crate) fn take_out(&mut self, at: u32) {
        let parent = self.node(at).parent;
        let group = self.node_mut(parent);
        group.members -= 1;
        group.heap.remove(at);
        self.node_mut(at).in_heap = false;
    }

    pub(crate) fn set_shares(&mut self, at: u32, shares: u32) {
        let node = self.node_mut(at);
        node.shares = shares.max(1);
        node.per_share = (1 << SHARE_SHIFT) / u64::from(node.shares);
    }

    pub(crate) fn shares(&self, at: u32) -> u32 {
        self.node(at).shares
    }

    pub(crate) fn members(&self, at: u32) -> u32 {
        self.node(at).members
    }

    pub(crate) fn fifo(&self, at: u32) -> &Fifo {
        &self.node(at).fifo
    }

    pub(crate) fn fifo_mut(&mut self, at: u32) -> &mut Fifo {
        &mut self.node_mut(at).fifo
    }

    /// Class `at` has work again.
    pub(crate) fn wake(&mut self, mut at: u32) {
        while at != ROOT {
            let parent = self.node(at).parent;
            let (time, alone) = (self.node(parent).time, self.node(parent).heap.is_empty());
            if let Fairness::Virtual { credit } = self.fairness {
                let node = self.node_mut(at);
                let credit = if alone { 0 } else { scaled(credit, node.per_share) };
                node.clock = node.clock.max(time.saturating_sub(credit));
            }
            let node = self.node_mut(at);
            if node.in_heap {
                return;
            }
            node.in_heap = true;
            let entry = Entry { key: node.clock, node: at };
            self.node_mut(parent).heap.push(entry);
            at = parent;
        }
    }

    /// The class whose turn it is.
    pub(crate) fn pick(&mut self) -> Option<Pick> {
        let lag_of = |tree: &Tree, child: u32| {
            let node = tree.node(child);
            let behind = tree.node(ROOT).time.saturating_sub(node.clock) >> CLOCK_SHIFT;
            let fs = behind.saturating_mul(u128::from(node.shares));
            Cost::from_fs(u64::try_from(fs).unwrap_or(u64::MAX))
        };
        'from_root: loop {
            let first = self.top_child(ROOT)?;
            let mut at = first;
            while self.node(at).is_group {
                match self.top_child(at) {
                    Some(child) => at = child,
                    None => continue 'from_root,
                }
            }
            let virtual_time = matches!(self.fairness, Fairness::Virtual { .. });
            let lag = if virtual_time { lag_of(self, first) } else { Cost::ZERO };
            return Some(Pick { class: at, lag });
        }
    }

    /// The child with the lowest clock that has work; mends the top of the heap on the way.
    fn top_child(&mut self, group: u32) -> Option<u32> {
        loop {
            let top = self.node(group).heap.peek()?;
            let child = self.node(top.node);
            let (clock, has_work) = (child.clock, child.has_work());
            if !has_work {
                self.node_mut(group).heap.pop();
                self.node_mut(top.node).in_heap = false;
            } else if clock > top.key {
                self.node_mut(group).heap.raise_top(clock);
            } else {
                return Some(top.node);
            }
        }
    }

    /// Charges `class`, which `pick` named last, and puts it where it belongs now. `weight` counts in depth mode.
    pub(crate) fn charge_picked(&mut self, class: u32, cost: Cost, weight: u32, now_ns: u64) {
        let mut at = class;
        while at != ROOT {
            let (parent, before) = (self.node(at).parent, self.node(at).clock);
            self.run_clock(at, cost, weight, now_ns);
            let group = self.node_mut(parent);
            group.time = group.time.max(before);
            let (clock, has_work) = (self.node(at).clock, self.node(at).has_work());
            if has_work {
                self.node_mut(parent).heap.raise_top(clock);
            } else {
                self.node_mut(parent).heap.pop();
                self.node_mut(at).in_heap = false;
            }
            at = parent;
        }
    }

    /// Charges `class` for work that nobody picked (the rest of a short transfer). The times of its groups stand still:
    /// its clock may be far ahead of the others, and whoever wakes up now must not be put there.
    pub(crate) fn charge(&mut self, class: u32, cost: Cost, weight: u32, now_ns: u64) {
        let mut at = class;
        while at != ROOT {
            self.run_clock(at, cost, weight, now_ns);
            at = self.node(at).parent;
        }
    }

    fn run_clock(&mut self, at: u32, cost: Cost, weight: u32, now_ns: u64) {
        let fairness = self.fairness;
        let node = self.node_mut(at);
        let before = node.clock;
        node.clock = match fairness {
            Fairness::Virtual { .. } => before.saturating_add(scaled(cost, node.per_share)),
            Fairness::Decaying { tau_ns } => {
                decayed(before, f64::from(weight) / f64::from(node.shares), now_ns, tau_ns)
            }
        };
    }

    fn node(&self, at: u32) -> &Node {
        &self.nodes[at as usize]
    }

    fn node_mut(&mut self, at: u32) -> &mut Node {
        &mut self.nodes[at as usize]
    }
}

impl Node {
    fn has_work(&self) -> bool {
        if self.is_group { !self.heap.is_empty() } else { self.fifo.head != NONE }
    }
}

fn scaled(cost: Cost, per_share: u64) -> u128 {
    (u128::from(cost.as_fs()) * u128::from(per_share)) >> (SHARE_SHIFT - CLOCK_SHIFT)
}

/// K = ln(total) + t/tau as an ordered integer; 0 is a total of nothing.
const K_SCALE: f64 = (1u64 << 40) as f64;
const K_BIAS: f64 = 1024.0;

fn decayed(key: u128, add: f64, now_ns: u64, tau_ns: u64) -> u128 {
    let elapsed = now_ns as f64 / tau_ns.max(1) as f64;
    let old_total = if key == 0 { 0.0 } else { math::exp(key as f64 / K_SCALE - K_BIAS - elapsed) };
    let k = math::ln(old_total + add) + elapsed;
    ((k + K_BIAS) * K_SCALE) as u128
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
        let total = math::exp(later as f64 / K_SCALE - K_BIAS - 1.0);
        assert!((total - 1.367_879_441).abs() < 1e-6, "{total}");
    }

    #[test]
    fn decay_orders_after_fifty_years() {
        let tau_ns = 100_000_000;
        let now_ns = 50 * 366 * 86_400 * 1_000_000_000;
        let small = decayed(0, 1.0 / 100.0, now_ns, tau_ns);
        let large = decayed(0, 1.0 / 10.0, now_ns, tau_ns);
        assert!(small < large && decayed(small, 1.0 / 100.0, now_ns, tau_ns) < large);
    }
}
