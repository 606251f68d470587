//! The counters of shards and gates that have ended.
//!
//! # Why
//! A program replaces a runtime or a gate, whose counters begin at zero. A sum over shards that falls looks like a
//! restart of the program to whoever reads rates from it.
//!
//! # How it works
//! A reactor or gate that is dropped adds its counters here, before its shard can have a successor. Each shard counts
//! its lives, so that a reader who has asked a shard knows whether the answer is included here by now.
//!
//! # Limits
//! The counters of all ended shards and gates are one sum: resetting the statistics of any shard clears it.
//!
//! # Example
//! A gate admits 3 calls and is dropped, the next one admits 1: 3 are here, and the sum is 4.

use std::collections::BTreeMap;

use crate::queues::{ClassView, ShardQueues};

/// The figures of one disk, by number of the class.
pub(crate) type Figures = BTreeMap<usize, ClassView>;

/// The counters of ended shards and gates, and the number of lives that each shard has had.
#[derive(Default)]
pub(crate) struct Retired {
    lives: BTreeMap<u16, u64>,
    disks: Vec<Figures>,
}

impl Retired {
    /// Adds the counters of a shard or gate whose requests have ended.
    pub(crate) fn add(&mut self, queues: &dyn ShardQueues, disks: u16) {
        let now_ns = queues.now_ns();
        self.disks.resize_with(usize::from(disks), Figures::new);
        for (number, figures) in (0..disks).zip(&mut self.disks) {
            for view in queues.class_views(now_ns, number) {
                join(figures, &view.without_present());
            }
        }
        *self.lives.entry(queues.shard()).or_default() += 1;
    }

    /// Clears the counters.
    pub(crate) fn clear(&mut self) {
        self.disks.clear();
    }

    /// Returns how many lives of a shard have ended.
    pub(crate) fn lives(&self, shard: u16) -> u64 {
        self.lives.get(&shard).copied().unwrap_or(0)
    }

    /// Returns the figures by disk; of no disk if none has ended.
    pub(crate) fn disks(&self) -> &[Figures] {
        &self.disks
    }
}

/// Adds the figures of a class.
pub(crate) fn join(figures: &mut Figures, view: &ClassView) {
    match figures.get_mut(&view.class.index()) {
        Some(known) => known.merge(view),
        None => drop(figures.insert(view.class.index(), view.clone())),
    }
}
