//! The experiments of the source documents: every figure, with two seeds.

use plimsoll_sim::scenario::{Outcome, find};

/// Runs a scenario with two seeds; each figure must be what it should be, and the same seed must give the same bytes.
#[track_caller]
fn check(name: &str) {
    let scenario = find(name).expect("a scenario of that name");
    for seed in [1, 20_260_601] {
        let outcome: Outcome = (scenario.run)(seed).expect("it runs");
        for table in &outcome.tables {
            println!("\n{}\n{}", table.title, table.columns.join(" | "));
            for row in &table.rows {
                assert_eq!(row.len(), table.columns.len(), "{name}: {}", table.title);
                println!("{}", row.join(" | "));
            }
        }
        let failed: Vec<_> = outcome.figures.iter().filter(|figure| !figure.passed()).collect();
        println!("{name}, seed {seed}: {} requests, {} figures", outcome.requests, outcome.figures.len());
        assert!(failed.is_empty(), "{name}, seed {seed}: {failed:#?}");
        assert!(!outcome.figures.is_empty(), "{name}: no figures");
    }
}

macro_rules! scenarios {
    ($($test:ident: $name:literal;)*) => {
        $(#[test] fn $test() { check($name); })*
    };
}

scenarios! {
    unconfigured: "unconfigured";
    drain_against_throttle: "drain-against-throttle";
    queue_to_dispatch: "queue-to-dispatch";
    parallelism_sweep: "parallelism-sweep";
    calculated_against_configured: "calculated-against-configured";
    understated: "understated";
    two_problems: "two-problems";
    one_queue_or_six: "one-queue-or-six";
    message_size: "message-size";
    tiny_depth: "tiny-depth";
    four_share_sets: "four-share-sets";
    repair: "repair";
    reads_against_writes: "reads-against-writes";
    bursty_classes: "bursty-classes";
    commitlog_disk: "commitlog-disk";
    fill_level: "fill-level";
}
