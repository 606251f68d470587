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

/// A measurement of many phases, and a sweep: the bar never goes back, and says how long the whole still takes.
#[test]
fn progress_is_of_the_whole_command() {
    if !has_terminals() {
        return;
    }
    let commands: [&[&str]; 2] = [
        &["tune", "--backend", "null", "--quick", "--phase", "200ms", "."],
        &[
            "test",
            "jobs.yaml",
            "--backend",
            "memory",
            "--warmup",
            "0",
            "--duration",
            "1",
            "--sweep",
            "parallelism=1,2,4",
        ],
    ];
    for (size, arguments) in [(80, 24), (120, 40)].into_iter().zip(commands) {
        let world = World::new(&[("jobs.yaml", jobs().as_str())]);
        let mut command = Command::new(PLIMSOLL);
        command.args(arguments).current_dir(world.path());
        command.env("TERM", "xterm").env("XDG_RUNTIME_DIR", world.path());
        let mut terminal = Terminal::start(command, size);
        // Per cent and steps, as they change.
        let (parts, steps) = (RefCell::new(Vec::new()), RefCell::new(BTreeSet::new()));
        terminal.shows("most of the way", |rows| {
            let Some(row) = rows.iter().find(|row| row.contains('[') && row.contains(" %  ")) else { return false };
            let (head, tail) = row.split_once(" %  ").unwrap();
            let part: u32 = head.split_whitespace().last().unwrap().parse().unwrap();
            assert!(tail.is_empty() || (tail.ends_with(" left") && !tail.starts_with("0 s")), "{row}");
            assert!(row.chars().count() <= usize::from(size.0), "{row}");
            steps.borrow_mut().insert(head.split('[').next().unwrap().trim().to_owned());
            parts.borrow_mut().push(part);
            part >= 60
        });
        terminal.interrupt();
        assert!(terminal.ended().is_some());
        let (parts, steps) = (parts.into_inner(), steps.into_inner());
        assert!(parts.is_sorted() && steps.len() > 1, "{arguments:?}: {parts:?} of {steps:?}");
    }
}

#[test]
fn the_view_of_all_disks_fits_the_terminal() {
    if !has_terminals() {
        return;
    }
    for size in [(80, 24), (120, 40)] {
        let world = World::new(&[]);
        let mut command = Command::new(PLIMSOLL);
        command.args(["stat", "1", "--top"]).current_dir(world.path()).env("TERM", "xterm");
        let mut terminal = Terminal::start(command, size);
        let is_header = |row: &&String| row.starts_with("Device") || row.starts_with("device");
        terminal.shows("header", |rows| rows.iter().any(|row| is_header(&row)));
        let rows = terminal.rows();
        assert!(rows.len() <= usize::from(size.1), "{rows:#?}");
        let header = rows.iter().find(is_header).unwrap();
        assert!(header.contains("verdict") && !header.contains('…'), "{rows:#?}");
        terminal.interrupt();
        assert!(terminal.ended().is_some());
    }
}
