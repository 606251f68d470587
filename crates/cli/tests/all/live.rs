//! The live view of `plimsoll test` on a terminal.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::process::Command;

use crate::terminal::{Terminal, has_terminals};
use crate::world::{PLIMSOLL, READS, World};

/// Two jobs: a row each.
fn jobs() -> String {
    format!("{READS}{}", READS.replace("name: reads", "name: others"))
}

fn start(world: &World, size: (u16, u16), arguments: &[&str]) -> Terminal {
    let mut command = Command::new(PLIMSOLL);
    command.args(["test", "jobs.yaml", "--backend", "memory"]).args(arguments).current_dir(world.path());
    command.env("TERM", "xterm").env("XDG_RUNTIME_DIR", world.path());
    Terminal::start(command, size)
}

#[test]
fn the_view_of_a_test_is_a_row_for_the_bar_and_one_for_each_job() {
    if !has_terminals() {
        return;
    }
    for size in [(80, 24), (120, 40)] {
        let world = World::new(&[("jobs.yaml", jobs().as_str())]);
        let mut terminal = start(&world, size, &["--warmup", "0", "--duration", "1000"]);
        // Below what has been said before.
        let view = |rows: &[String]| {
            let at = rows.iter().position(|row| row.starts_with("running"))?;
            let [bar, reads, others, rest @ ..] = &rows[at..] else { return None };
            let is_in_place = bar.ends_with(" left") && reads.starts_with("reads") && others.starts_with("others");
            (is_in_place && rest.iter().all(String::is_empty)).then(|| reads.clone())
        };
        // The figures of the first job, as they change.
        let seen = RefCell::new(BTreeSet::new());
        terminal.shows("view in three states", |rows| {
            seen.borrow_mut().extend(view(rows));
            seen.borrow().len() >= 3
        });
        terminal.interrupt();
        assert_eq!(terminal.ended(), Some(130));
        let rows = terminal.rows();
        assert!(!rows.iter().any(|row| row.starts_with("running") || row.ends_with(" left")), "{rows:#?}");
    }
}

#[test]
fn a_sweep_leaves_no_bar_behind() {
    if !has_terminals() {
        return;
    }
    let world = World::new(&[("jobs.yaml", jobs().as_str())]);
    let mut terminal = start(&world, (80, 24), &["--warmup", "0", "--duration", "1", "--sweep", "parallelism=1,2"]);
    assert!(terminal.ended().is_some());
    let rows = terminal.rows();
    assert!(!rows.iter().any(|row| row.contains("running") || row.ends_with(" left")), "{rows:#?}");
}
