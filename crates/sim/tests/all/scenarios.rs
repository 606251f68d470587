//! Every scenario reaches its figures, with two seeds, and the same seed gives the same events.

use std::collections::BTreeSet;
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{iter, thread};

use plimsoll_sim::scenario::{Figure, Scenario, all, find};

/// Runs a scenario. Returns its result as text if a figure is missed; also checks that it is plausible, and that it says
/// how far it is.
fn missed(scenario: &Scenario, seed: u64) -> Option<String> {
    let Scenario { name, run, .. } = scenario;
    let parts = Mutex::new(Vec::new());
    let outcome = run(seed, &|part| parts.lock().expect("no panic").push(part)).expect("a scenario runs");
    let parts = parts.into_inner().expect("no panic");
    assert!(parts.is_sorted() && parts.first() > Some(&0.0), "{name}: goes back in {parts:?}");
    assert!(parts.last().is_some_and(|last| (last - 1.0).abs() < 1e-9), "{name}: ends at {:?}", parts.last());
    assert!(!outcome.figures.is_empty(), "{name}: no figures");
    let mut text = format!("== {name}, seed {seed}: {} requests\n", outcome.requests);
    for table in &outcome.tables {
        assert!(table.rows.iter().all(|row| row.len() == table.columns.len()), "{name}: {}", table.title);
        text += &format!("\n{}\n{}\n", table.title, table.columns.join(" | "));
        table.rows.iter().for_each(|row| text += &format!("{}\n", row.join(" | ")));
    }

    let mut is_missed = false;
    for Figure { name, value, target } in outcome.figures.iter().filter(|figure| !figure.passed()) {
        is_missed = true;
        text += &format!("missed: {name}: {value} ({target:?})\n");
    }
    is_missed.then_some(text)
}

/// One test for all: some run fifty times as long as others, and a test for each part of them would end long after the rest.
#[test]
fn every_scenario_reaches_its_figures() {
    let scenarios = all();
    let runs: Vec<(&Scenario, u64)> =
        scenarios.iter().flat_map(|scenario| [1, 20_261].map(|seed| (scenario, seed))).collect();
    let next = AtomicUsize::new(0);
    let run_some = || {
        let take = || runs.get(next.fetch_add(1, Ordering::Relaxed));
        iter::from_fn(take).filter_map(|(scenario, seed)| missed(scenario, *seed)).collect::<Vec<String>>()
    };

    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let missed = thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(run_some)).collect();
        running.into_iter().flat_map(|thread| thread.join().expect("a scenario panicked")).collect::<Vec<String>>()
    });
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[test]
fn names_are_unlike_each_other() {
    let names: BTreeSet<&str> = all().iter().map(|scenario| scenario.name).collect();
    assert_eq!(names.len(), all().len());
}

#[test]
fn the_same_seed_gives_the_same_events() {
    let run = |seed| (find("metrics-sum").expect("a scenario of that name").run)(seed, &|_part| ()).expect("it runs");
    let (one, again, other) = (run(7), run(7), run(8));
    assert_eq!((one.log_hash, one.requests), (again.log_hash, again.requests));
    assert_ne!(one.log_hash, other.log_hash);
}
