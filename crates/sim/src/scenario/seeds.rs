//! The experiments of the project's source documents, each as a scenario.
//!
//! # Why
//! The documents make claims about a scheduler on disks that are not at hand. Here each experiment runs again, on a
//! model of its disk, with the old behaviour beside ours.
//!
//! # How it works
//! One module for each theme: `plateau` (an unconfigured disk, and how to find the limiter), `figures` (the promise of
//! four figures, and the effect of wrong ones), `lengths` (which request fills the disk), `queues` (shards, I/O queues,
//! messages), `classes` (shares and isolation), `fill` (a disk that slows as it fills).
//!
//! # Limits
//! Devices are models made from published figures. Where a document's own figures contradict one another, a remark says
//! so.
//!
//! # Example
//! `seed_items` of a scenario lists its subjects: `1.14` is item 14 of the list of the second document.

use super::Scenario;

mod classes;
mod figures;
mod fill;
mod ingest;
mod isolation;
mod lengths;
mod plateau;
mod queues;
mod sweep;

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "ingest-controllers",
        title: "a database ingests until its disk is full and slow: static shares, a cap, controllers",
        seed_items: &["4.11", "4.12", "4.14", "4.15", "1.37"],
        run: ingest::ingest_controllers,
    },
    Scenario {
        name: "unconfigured",
        title: "a disk without properties: the plateau of old defaults, and no limit at all",
        seed_items: &["0.14", "0.24", "0.25", "0.34", "0.35", "0.36", "0.37", "0.38"],
        run: plateau::unconfigured,
    },
    Scenario {
        name: "drain-against-throttle",
        title: "the same device drained and throttled by old defaults",
        seed_items: &["0.14", "0.19", "0.20"],
        run: plateau::drain_against_throttle,
    },
    Scenario {
        name: "queue-to-dispatch",
        title: "how long a request waits between Q and D, and for what",
        seed_items: &["0.21", "0.22", "0.23", "0.24"],
        run: plateau::queue_to_dispatch,
    },
    Scenario {
        name: "request-lengths",
        title: "fio by depth and length: which request fills the disk? And the pieces of one request",
        seed_items: &["0.15", "0.16", "0.17"],
        run: lengths::request_lengths,
    },
    Scenario {
        name: "parallelism-sweep",
        title: "throughput, in-disk queue and latency by parallelism: who is the limiter?",
        seed_items: &["0.08", "0.26", "0.27", "0.28", "0.29", "0.30"],
        run: sweep::parallelism_sweep,
    },
    Scenario {
        name: "calculated-against-configured",
        title: "rates computed back from costs at 64 points, and rates delivered",
        seed_items: &["0.03", "0.31", "0.32", "0.33"],
        run: figures::calculated_against_configured,
    },
    Scenario {
        name: "understated",
        title: "properties understated by a factor: a 48xlarge acts like a 4xlarge",
        seed_items: &["0.04"],
        run: figures::understated,
    },
    Scenario {
        name: "two-problems",
        title: "over a family of sizes: 'scales, but low' told from 'flat plateau'",
        seed_items: &["0.09", "0.10", "0.12"],
        run: figures::two_problems,
    },
    Scenario {
        name: "one-queue-or-six",
        title: "table 1: six shards on one I/O queue or on six",
        seed_items: &["1.02", "1.08", "1.12", "1.13", "1.14", "1.15"],
        run: queues::one_queue_or_six,
    },
    Scenario {
        name: "message-size",
        title: "messages between shards cost throughput at 4 KiB and nothing at 128 KiB",
        seed_items: &["1.16", "1.30"],
        run: queues::message_size,
    },
    Scenario {
        name: "tiny-depth",
        title: "a depth below the number of shards: exceeded by all, not usable by one",
        seed_items: &["1.04", "1.05", "1.06", "1.17"],
        run: queues::tiny_depth,
    },
    Scenario {
        name: "four-share-sets",
        title: "table 3: four classes of 128 KiB reads under four sets of shares",
        seed_items: &["1.21", "1.22", "1.23", "1.24", "1.25", "1.26", "1.28", "1.29", "1.30"],
        run: classes::four_share_sets,
    },
    Scenario {
        name: "repair",
        title: "repair at 20 shares beside classes of 100, and alone",
        seed_items: &["1.19", "1.27", "1.36"],
        run: classes::repair,
    },
    Scenario {
        name: "reads-against-writes",
        title: "a write burst meets a disk saturated with reads, and the inverse",
        seed_items: &["1.31", "1.32", "1.33", "1.35", "1.36"],
        run: isolation::reads_against_writes,
    },
    Scenario {
        name: "bursty-classes",
        title: "memtable and compaction bursts on a disk saturated with reads",
        seed_items: &["1.34"],
        run: isolation::bursty_classes,
    },
    Scenario {
        name: "commitlog-disk",
        title: "the commit log on a disk of its own, or on the one that all share",
        seed_items: &["1.38", "1.39"],
        run: isolation::commitlog_disk,
    },
    Scenario {
        name: "fill-level",
        title: "i3en.24xlarge slows as it fills, by its own garbage collection, and recovers in part by discarding",
        seed_items: &["4.12", "4.13"],
        run: fill::fill_level,
    },
];
