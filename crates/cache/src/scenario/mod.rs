//! Scenarios: whole caches on simulated disks, with target figures. `plimsoll sim run` runs them.
//!
//! # Why
//! What a cache does to its disks over minutes (one hot, one slow, fills beside hits) shows only on real disks, which
//! few have. A simulation takes seconds, and is the same every time.
//!
//! # How it works
//! A [`Scenario`] of `plimsoll-sim`, but what runs is a real [`BlockCache`](crate::BlockCache) on real shards, under a
//! [`SimRuntime`](plimsoll::SimRuntime) in virtual time (`stage`). `hot_disk` is the experiment of seed 003: three
//! placements; `slow_disk` and `busy_cache` test the cache's promises for its hits.
//!
//! # Limits
//! The simulated disks keep no contents: all values are zeros, and no cache can be reopened. Computing takes no virtual
//! time.
//!
//! # Example
//! ```
//! let names: Vec<_> = plimsoll_cache::scenario::all().iter().map(|scenario| scenario.name).collect();
//! assert_eq!(names, ["hot-disk", "slow-disk", "busy-cache"]);
//! ```

mod busy_cache;
mod hot_disk;
mod slow_disk;
mod stage;

use plimsoll_sim::scenario::Scenario;

/// Returns all scenarios of this crate, in the best order to read them.
#[must_use]
pub fn all() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "hot-disk",
            title: "a full cache of three disks takes in 8 KiB blocks: one disk at a time, by lot, by load",
            seed_items: &[
                "1.38", "3.01", "3.02", "3.06", "3.07", "3.08", "3.11", "3.12", "3.13", "3.14", "3.15", "3.16",
            ],
            run: hot_disk::run,
        },
        Scenario {
            name: "slow-disk",
            title: "hits of a cache of eight disks, one of which does half of what the others do",
            seed_items: &["3.14"],
            run: slow_disk::run,
        },
        Scenario {
            name: "busy-cache",
            title: "hits of a cache while it fills and evacuates, and while it does nothing else",
            seed_items: &["1.38"],
            run: busy_cache::run,
        },
    ]
}
