//! Which nodes of the tree count in their groups: those with work that no limit holds back.
//!
//! A node that becomes active joins its group's clock, unless another queue has work of it already, and the heap of its
//! group; its group becomes active with its first child.

use super::{Fairness, ROOT, Tree};
use crate::clock::Edge;
use crate::heap::Entry;
use crate::slots::NONE;

impl Tree {
    /// Activates or deactivates `at` and its ancestors, after a class's queue has filled or emptied or a node was
    /// parked.
    pub(crate) fn settle(&mut self, mut at: u32) {
        loop {
            let node = self.node(at);
            let should = self.has_work(at) && !node.parked;
            if should == node.active {
                return;
            }
            if should {
                self.activate(at)
            } else {
                self.deactivate(at)
            }
            if at == ROOT {
                return;
            }

            at = self.node(at).parent;
            let group = self.group_mut(at);
            group.active_children = if should { group.active_children + 1 } else { group.active_children - 1 };
        }
    }

    fn activate(&mut self, at: u32) {
        let parent = self.node(at).parent;
        if let Fairness::Virtual { credit } = self.fairness {
            let edge = self.clock(at).add_queue();
            if !self.is_group(at) {
                let node = self.node(at);
                let local = self.clock(at).join_queue(node.local, node.lead);
                self.node_mut(at).local = local;
            }
            if let (Edge::Parent { shares }, true) = (edge, parent != NONE) {
                if parent == ROOT && self.group(ROOT).active_children == 0 {
                    // Service from before the root was idle gives no lag.
                    self.served = self.clock(ROOT).mean();
                }
                let (above, own) = (self.clock(parent), self.clock(at));
                above.join(own, shares, credit);
                // The shares may have changed since they were counted.
                let by = own.recount();
                if by != 0 {
                    above.change_weight(by);
                }
            }
        }

        let key = self.key(at);
        let node = self.node_mut(at);
        node.active = true;
        let was_in_heap = std::mem::replace(&mut node.in_heap, parent != NONE);
        match (parent, was_in_heap) {
            (NONE, _) => {}
            (_, false) => self.group_mut(parent).heap.push(Entry { key, node: at }),
            // Joining may have moved its clock back.
            (_, true) => self.group_mut(parent).heap.lower(at, key),
        }
    }

    fn deactivate(&mut self, at: u32) {
        let parent = self.node(at).parent;
        if let Fairness::Virtual { .. } = self.fairness {
            let edge = self.clock(at).remove_queue();
            if !self.is_group(at) {
                let lead = self.clock(at).leave_queue(self.node(at).local);
                self.node_mut(at).lead = lead;
            }
            if let (Edge::Parent { shares }, true) = (edge, parent != NONE) {
                self.clock(parent).leave(self.clock(at), shares);
            }
        }

        self.node_mut(at).active = false;
        if parent != NONE && self.group(parent).heap.peek().is_some_and(|top| top.node == at) {
            self.group_mut(parent).heap.pop();
            self.node_mut(at).in_heap = false;
        }
    }

    /// Parks node `at`, which must wait for a limit; its siblings continue.
    pub(crate) fn park(&mut self, at: u32) {
        self.node_mut(at).parked = true;
        self.settle(at);
    }

    pub(crate) fn unpark(&mut self, at: u32) {
        self.node_mut(at).parked = false;
        self.settle(at);
    }

    /// Places all classes with work as if they had become active now: device time that this queue has left unused is
    /// gone.
    pub(crate) fn rejoin(&mut self) {
        if self.clock(ROOT).queues() <= 1 {
            // No other queue has used it; what its classes owe each other stands.
            return;
        }
        let is_active = |at: &u32| self.node(*at).active && !self.is_group(*at);
        let active: Vec<u32> = (0..self.nodes.len() as u32).filter(is_active).collect();
        active.iter().for_each(|at| self.park(*at));
        active.iter().for_each(|at| self.unpark(*at));
    }
}
