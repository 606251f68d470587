//! The state of maintenance: numbers of checkpoints, the keeper's findings about inserts, and the state that its tasks
//! (snapshots, moves, discards) keep between their runs.
//!
//! # Why
//! Only the keeper and its tasks change this state; the paths of blocks read a little of it. And each task is started
//! from several places, and must not run twice at a time.
//!
//! # How it works
//! A [`Chore`] has at most one [`Run`]; the chore is idle again when the run is dropped, however its task ends.
//!
//! # Example
//! A checkpoint finds a long log while snapshots are written: [`Chore::start`] returns `None`, and the next checkpoint
//! tries again.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex};

use crate::entry::SlabId;
use crate::sync::lock;

/// The state of maintenance.
pub(crate) struct Upkeep {
    pub(crate) numbers: Numbers,
    pub(crate) intake: Intake,
    pub(crate) snapshots: Chore,
    pub(crate) moves: Moves,
    pub(crate) discards: Discards,
}

impl Upkeep {
    /// Returns the state of a cache whose last checkpoint is number `generation`.
    pub(crate) fn new(generation: u64) -> Upkeep {
        Upkeep {
            numbers: Numbers { last: generation.into(), attempted: generation.into() },
            intake: Intake::default(),
            snapshots: Chore::default(),
            moves: Moves::default(),
            discards: Discards::default(),
        }
    }
}

/// Numbers of checkpoints: each is higher than all before, including those of incomplete checkpoints.
pub(crate) struct Numbers {
    last: AtomicU64,
    attempted: AtomicU64,
}

impl Numbers {
    /// Returns the number of the last complete checkpoint.
    pub(crate) fn last(&self) -> u64 {
        self.last.load(Relaxed)
    }

    /// Returns the number of a checkpoint that begins.
    pub(crate) fn begin(&self) -> u64 {
        self.attempted.fetch_add(1, Relaxed) + 1
    }

    pub(crate) fn complete(&self, generation: u64) {
        debug_assert!(generation > self.last(), "checkpoint {generation} comes after {}", self.last());
        self.last.store(generation, Relaxed);
    }

    /// Makes all numbers higher than `number`.
    pub(crate) fn begin_after(&self, number: u64) {
        self.attempted.fetch_max(number, Relaxed);
    }
}

/// The keeper's findings about inserts.
#[derive(Default)]
pub(crate) struct Intake {
    /// Eviction has begun, and the cache has not grown since.
    pub(crate) is_full: AtomicBool,
    /// The bytes that may be written in a day are used up for now: inserts are dropped.
    pub(crate) is_budget_spent: AtomicBool,
}

/// Work that has at most one run at a time.
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

/// The reasons to move blocks, and the run that moves them.
#[derive(Default)]
pub(crate) struct Moves {
    pub(crate) chore: Chore,
    /// An insert found no space although there is free space: it lies in slabs of other block sizes.
    pub(crate) is_starved: AtomicBool,
    /// A disk was added, and is emptier than the others.
    pub(crate) is_rebalancing: AtomicBool,
    /// Passes in a row in which blocks of a disk to be removed waited for a checkpoint, and none were moved.
    vain_passes: AtomicU32,
}

impl Moves {
    /// Records the end of an evacuation's pass. `is_vain`: blocks of a disk to be removed wait, and none were moved.
    pub(crate) fn note_pass(&self, is_vain: bool) {
        let before = self.vain_passes.load(Relaxed);
        self.vain_passes.store(if is_vain { before.saturating_add(1) } else { 0 }, Relaxed);
    }

    /// Returns whether fewer than `most` passes in a row were in vain.
    pub(crate) fn is_patient(&self, most: u32) -> bool {
        self.vain_passes.load(Relaxed) < most
    }
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
