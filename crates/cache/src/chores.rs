//! What the tasks beside the keeper keep between their runs: snapshots, moves, discards.
//!
//! # Why
//! Each of them is started when there is reason to, from several places, and must not run twice at a time.
//!
//! # How it works
//! A [`Chore`] has at most one [`Run`]; the chore is idle again when the run is dropped, however its task ends.
//!
//! # Example
//! A checkpoint finds a long log while snapshots are written: [`Chore::start`] returns `None`, and the next checkpoint
//! tries again.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex};

use crate::entry::SlabId;
use crate::sync::lock;

/// Work of which at most one run is under way.
#[derive(Default)]
pub(crate) struct Chore(Arc<AtomicBool>);

/// A run of a chore, until it is dropped.
pub(crate) struct Run(Arc<AtomicBool>);

impl Chore {
    /// Starts a run. Returns `None` if one is under way.
    pub(crate) fn start(&self) -> Option<Run> {
        let was_running = self.0.swap(true, Acquire);
        (!was_running).then(|| Run(Arc::clone(&self.0)))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.0.store(false, Release);
    }
}

/// Why blocks are to be moved, and whether they are.
#[derive(Default)]
pub(crate) struct Moves {
    pub(crate) chore: Chore,
    /// An insert found no space although there is free space: it lies in slabs of other block sizes.
    pub(crate) is_starved: AtomicBool,
    /// A disk was added, and is emptier than the others.
    pub(crate) is_rebalancing: AtomicBool,
}

/// Empty slabs to be discarded, in turn.
#[derive(Default)]
pub(crate) struct Discards(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    slabs: VecDeque<SlabId>,
    is_running: bool,
}

impl Discards {
    /// Adds slabs. Returns whether the caller must start the task, because it is not running.
    pub(crate) fn add(&self, slabs: Vec<SlabId>) -> bool {
        let mut queue = lock(&self.0);
        queue.slabs.extend(slabs);
        !std::mem::replace(&mut queue.is_running, true)
    }

    /// Takes the next slab. If there is none, or `is_stopping`, returns `None`, and the task ends.
    pub(crate) fn next(&self, is_stopping: bool) -> Option<SlabId> {
        let mut queue = lock(&self.0);
        let next = queue.slabs.pop_front().filter(|_| !is_stopping);
        queue.is_running = next.is_some();
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chore_runs_once_at_a_time() {
        let chore = Chore::default();
        let run = chore.start().unwrap();
        assert!(chore.start().is_none());
        drop(run);
        assert!(chore.start().is_some());
    }

    #[test]
    fn one_task_discards_all_slabs_in_turn() {
        let discards = Discards::default();
        assert!(discards.add(vec![SlabId(1), SlabId(2)]));
        assert!(!discards.add(vec![SlabId(3)]), "a task is running");
        assert_eq!([0; 4].map(|_| discards.next(false)), [1, 2, 3, 0].map(|n| (n > 0).then_some(SlabId(n))));
        assert!(discards.add(vec![SlabId(4)]), "it has ended");
        assert_eq!(discards.next(true), None);
    }
}
