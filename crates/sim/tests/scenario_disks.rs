//! The figures at the limit of the disk, each with two seeds.

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
    single_class_sizes: "single-class-sizes";
    mixed_directions: "mixed-directions";
    disk_is_the_limit: "disk-is-the-limit";
    capacity_falls: "capacity-falls";
    write_cliff: "write-cliff";
    garbage_collection: "garbage-collection";
    burst_credits: "burst-credits";
    slow_member: "slow-member";
    hard_disk: "hard-disk";
}
