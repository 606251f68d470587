//! Fairness and quality of service: promises to classes are kept, on any number of shards.
//!
//! # Why
//! Shares, reservations, limits and targets are promises with numbers in them. Each scenario here builds the world in
//! which such a promise is hardest to keep, and measures how well it is kept.
//!
//! # How it works
//! The figures of the project stand beside published ones: four small worlds in which Seastar's scheduler was shown to
//! starve a shard or a class are run again on the same disk.
//!
//! # Limits
//! Virtual time is as short as a figure allows; a seed changes arrivals and places on the disk, not the promises.
//!
//! # Example
//! ```
//! let scenario = plimsoll_sim::scenario::find("metrics-sum").expect("a scenario of that name");
//! let outcome = (scenario.run)(1, &|_part| ())?;
//! assert!(outcome.figures.iter().all(|figure| figure.passed()));
//! # Ok::<(), plimsoll_sim::scenario::ScenarioError>(())
//! ```

mod bounds;
mod conserve;
mod delay;
mod fair;
mod limits;
mod reservation;
mod starved;
mod target;

use super::Scenario;

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "share-error",
        title: "Backlogged classes, shares from 1:1 to 1:1000, requests of 4 KiB to 1 MiB, on one and on many shards",
        seed_items: &["1.01", "1.29"],
        run: fair::share_error,
    },
    Scenario {
        name: "cross-shard-shares",
        title: "1000 shares on one shard against 200 on another; classes on many shards; 192 shards",
        seed_items: &["1.08", "1.09"],
        run: fair::cross_shard,
    },
    Scenario {
        name: "dispatch-delay",
        title: "A high-share 4 KiB request among 4 to 192 queues of 128 KiB backlog",
        seed_items: &[],
        run: delay::dispatch_delay,
    },
    Scenario {
        name: "starved-shard",
        title: "One shard whose CPU is taken in slices of 550 us still saturates the disk",
        seed_items: &["1.30"],
        run: starved::starved_shard,
    },
    Scenario {
        name: "starved-fairness",
        title: "Among shards that all read, the one whose CPU is taken gets its part",
        seed_items: &["1.15"],
        run: starved::starved_fairness,
    },
    Scenario {
        name: "tablet-migration",
        title: "Streaming beside interactive reads that ask for less than their share",
        seed_items: &[],
        run: starved::tablet_migration,
    },
    Scenario {
        name: "tau-nemesis",
        title: "Bursts and a filler beside interactive reads with most of the shares",
        seed_items: &["1.34"],
        run: starved::tau_nemesis,
    },
    Scenario {
        name: "work-conservation",
        title: "What an idle class or shard does not use goes to the others",
        seed_items: &["1.27"],
        run: conserve::work_conservation,
    },
    Scenario {
        name: "numa-groups",
        title: "Disk groups borrow from each other, and are fair when all are busy",
        seed_items: &["1.11"],
        run: conserve::numa_groups,
    },
    Scenario {
        name: "reservation",
        title: "A reservation holds in each 100 ms whatever the shares; too many of them shrink in proportion",
        seed_items: &[],
        run: reservation::reservation,
    },
    Scenario {
        name: "limit",
        title: "Limits of operations and bytes, of classes and groups, over shards, changed and removed while running",
        seed_items: &[],
        run: limits::limit,
    },
    Scenario {
        name: "latency-target",
        title: "A light reader beside saturating writes, with and without a latency target",
        seed_items: &["1.33", "1.36"],
        run: target::latency_target,
    },
    Scenario {
        name: "ageing",
        title: "A class with hardly any shares waits no longer than it was promised",
        seed_items: &["1.27"],
        run: bounds::ageing,
    },
    Scenario {
        name: "refusal",
        title: "Under overload requests that would wait too long are refused, and the others do not",
        seed_items: &[],
        run: bounds::refusal,
    },
    Scenario {
        name: "metrics-sum",
        title: "Over several I/O queues pending and bandwidth add up, and delay is the maximum",
        seed_items: &["1.35"],
        run: fair::metrics_sum,
    },
];
