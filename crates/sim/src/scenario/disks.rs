//! Figures at the disk's own limit, where the disk is the bound and not the model.
//!
//! # Why
//! Properties are never exact. The figures that matter are those on a disk that is slower than promised, or than a
//! moment ago.
//!
//! # How it works
//! `sizes` and `mixes` compare with the device's own rate; in `limit` the model promises too much; in `changes` devices
//! change; `far` has network volumes and `presets` a disk of each family; `odd` has devices that never matched the
//! model.
//!
//! # Limits
//! Devices are models, and their knees known. The speed of the simulator itself is a benchmark, not a scenario.
//!
//! # Example
//! `plimsoll sim run disk-is-the-limit`

use super::Scenario;

mod beside;
mod busy;
mod changes;
mod duplex;
mod far;
mod held;
mod limit;
mod mixes;
mod odd;
mod presets;
mod random;
mod sizes;

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "single-class-sizes",
        title: "one class, each size from 512 B to 1 MiB: what of the device's rate is used",
        seed_items: &["0.03", "2.01"],
        run: sizes::single_class_sizes,
    },
    Scenario {
        name: "mixed-directions",
        title: "reads and writes together on disks of every mix exponent",
        seed_items: &["0.03"],
        run: mixes::mixed_directions,
    },
    Scenario {
        name: "duplex-directions",
        title: "few reads beside many writes on a disk whose directions do not disturb each other",
        seed_items: &["0.03"],
        run: duplex::duplex_directions,
    },
    Scenario {
        name: "disk-is-the-limit",
        title: "shares and throughput when the model promises more than the disk gives",
        seed_items: &["1.01", "1.28"],
        run: limit::disk_is_the_limit,
    },
    Scenario {
        name: "far-disks",
        title: "network volumes: is the scheduler the limit?",
        seed_items: &["0.04"],
        run: far::far_disks,
    },
    Scenario {
        name: "known-disks",
        title: "a disk of each family that is known: is the scheduler the limit?",
        seed_items: &["0.04", "0.38"],
        run: presets::known_disks,
    },
    Scenario {
        name: "busy-processors",
        title: "completions that are seen late: is the scheduler the limiter?",
        seed_items: &["0.04"],
        run: busy::busy_processors,
    },
    Scenario {
        name: "held-writes",
        title: "writes that a file system's journal holds for tens of milliseconds",
        seed_items: &["0.04"],
        run: held::held_writes,
    },
    Scenario {
        name: "capacity-falls",
        title: "capacity falls to a quarter and returns; a stall of 100 ms",
        seed_items: &["1.27"],
        run: changes::capacity_falls,
    },
    Scenario {
        name: "write-cliff",
        title: "a write buffer fills: the fast beginning is forgotten",
        seed_items: &["4.12"],
        run: changes::write_cliff,
    },
    Scenario {
        name: "garbage-collection",
        title: "random writes on a full disk, with pauses for collection",
        seed_items: &["2.08"],
        run: changes::garbage_collection,
    },
    Scenario {
        name: "burst-credits",
        title: "a gp2 volume's credits end: 3000 operations a second become 300",
        seed_items: &["3.05"],
        run: changes::burst_credits,
    },
    Scenario {
        name: "slow-member",
        title: "one member of a RAID 0 becomes slow",
        seed_items: &["2.02"],
        run: odd::slow_member,
    },
    Scenario {
        name: "random-loads",
        title: "random loads on random disks: throughput and queries, over the same load drained",
        seed_items: &["0.04"],
        run: random::random_loads,
    },
    Scenario { name: "hard-disk", title: "shares on one arm", seed_items: &["1.01"], run: odd::hard_disk },
];
