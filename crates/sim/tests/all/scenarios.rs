//! Every scenario reaches its figures, with two seeds, and the same seed gives the same events.

use std::collections::BTreeSet;

use plimsoll_sim::scenario::{Figure, Outcome, Scenario, all, find};

/// Prints the result of a scenario, so that a failure can be read.
fn print(name: &str, seed: u64, outcome: &Outcome) {
    println!("== {name}, seed {seed}: {} requests", outcome.requests);
    for table in &outcome.tables {
        println!("\n{}\n{}", table.title, table.columns.join(" | "));
        table.rows.iter().for_each(|row| println!("{}", row.join(" | ")));
    }
}

/// Returns the figures that a scenario misses; also checks that its result is plausible.
fn missed(scenario: &Scenario, seed: u64) -> Vec<String> {
    let Scenario { name, run, .. } = scenario;
    let outcome = run(seed).expect("a scenario runs");
    print(name, seed, &outcome);
    assert!(!outcome.figures.is_empty(), "{name}: no figures");
    for table in &outcome.tables {
        assert!(table.rows.iter().all(|row| row.len() == table.columns.len()), "{name}: {}", table.title);
    }
    let missed = outcome.figures.iter().filter(|figure| !figure.passed());
    missed
        .map(|Figure { name: what, value, target }| format!("{name}, seed {seed}: {what}: {value} ({target:?})"))
        .collect()
}

/// Runs every `of`-th scenario from number `part` on, so that tests run side by side.
fn part_passes(part: usize, of: usize) {
    let missed: Vec<String> = all()
        .iter()
        .skip(part)
        .step_by(of)
        .flat_map(|scenario| [1, 20_261].map(|seed| missed(scenario, seed)))
        .flatten()
        .collect();
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[test]
fn the_first_quarter_reaches_its_figures() {
    part_passes(0, 4);
}

#[test]
fn the_second_quarter_reaches_its_figures() {
    part_passes(1, 4);
}

#[test]
fn the_third_quarter_reaches_its_figures() {
    part_passes(2, 4);
}

#[test]
fn the_last_quarter_reaches_its_figures() {
    part_passes(3, 4);
}

#[test]
fn names_are_unlike_each_other() {
    let names: BTreeSet<&str> = all().iter().map(|scenario| scenario.name).collect();
    assert_eq!(names.len(), all().len());
}

#[test]
fn the_same_seed_gives_the_same_events() {
    let run = |seed| (find("metrics-sum").expect("a scenario of that name").run)(seed).expect("it runs");
    let (one, again, other) = (run(7), run(7), run(8));
    assert_eq!((one.log_hash, one.requests), (again.log_hash, again.requests));
    assert_ne!(one.log_hash, other.log_hash);
}
