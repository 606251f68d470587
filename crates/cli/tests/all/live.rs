//! The live view of `plimsoll test` on a terminal.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::process::Command;

use crate::skip::skip;
use crate::terminal::{Terminal, has_terminals};
use crate::world::{PLIMSOLL, READS, World};

/// Two jobs: a row each.
fn jobs() -> String {
    format!("{READS}{}", READS.replace("name: reads", "name: others"))
}

fn command(world: &World, arguments: &[&str]) -> Command {
    let mut command = world.command(arguments);
    command.env("TERM", "xterm").env("XDG_RUNTIME_DIR", world.path());
    command
}

fn start(world: &World, size: (u16, u16), arguments: &[&str]) -> Terminal {
    let always = ["test", "jobs.yaml", "--backend", "memory"];
    Terminal::start(command(world, &[&always[..], arguments].concat()), size)
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
fn csv_on_a_terminal_does_not_steer_it() {
    if !has_terminals() {
        return;
    }
    let jobs = READS.replace("name: reads", "name: \"a\\x1b[2Jb\"");
    let world = World::new(&[("jobs.yaml", jobs.as_str())]);
    let mut terminal = start(&world, (80, 24), &["--warmup", "0", "--duration", "10ms", "--format", "csv"]);
    assert!(terminal.ended().is_some());
    let rows = terminal.rows();
    assert!(rows.iter().any(|row| row.contains("a\\u{1b}[2Jb")), "{rows:#?}");
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

/// A simulation takes as long as its events do: its bar is of the whole run, and of all runs together.
#[test]
fn the_bar_of_a_simulation_shows_its_part_and_what_is_left() {
    if !has_terminals() {
        return;
    }
    const LONG: &str = "\
duration: 600s
disks: [{disk: i4i.2xlarge}]
jobs: [{name: query, type: randread, shards: all, shard_info: {parallelism: 8}}]
";
    for (scenario, size, seeds) in [
        ("long.yaml", (80, 24), "1"),
        ("long.yaml", (120, 40), "2"),
        ("hot-disk", (80, 24), "1"),
        ("hot-disk", (120, 40), "2"),
    ] {
        let world = World::new(&[("long.yaml", LONG)]);
        let mut terminal = Terminal::start(command(&world, &["sim", "run", scenario, "--seeds", seeds]), size);
        terminal.shows("part and rest", |rows| {
            let bar = rows.iter().find(|row| row.starts_with("simulating"));
            bar.is_some_and(|bar| bar.contains("] ") && bar.contains(" %  ") && bar.ends_with(" left"))
        });
        terminal.interrupt();
        assert_eq!(terminal.ended(), Some(130));
        assert!(!terminal.rows().iter().any(|row| row.ends_with(" left")), "{:#?}", terminal.rows());
    }
}

/// The verdict of a command is coloured on a terminal, and what follows it is not.
#[test]
fn a_verdict_is_in_colour() {
    if !has_terminals() {
        return;
    }
    const DISK: &str =
        "read_iops: 100000, read_bandwidth: 7340000000000, write_iops: 50000, write_bandwidth: 900000000";
    let world = World::new(&[("io.yaml", &format!("disks: [{{mountpoint: /none, {DISK}}}]\n"))]);
    for (no_colour, term, is_coloured) in [("", "xterm", true), ("1", "xterm", false), ("", "dumb", false)] {
        let mut command = command(&world, &["info", "--check", "io.yaml"]);
        command.env("NO_COLOR", no_colour).env("TERM", term);
        let mut terminal = Terminal::start(command, (80, 24));
        assert_eq!(terminal.ended(), Some(1));
        let rows = terminal.rows();
        assert!(rows[0].starts_with("io.yaml: "), "{rows:#?}");
        assert_eq!(terminal.is_coloured(0), is_coloured, "NO_COLOR={no_colour} TERM={term}: {rows:#?}");
        let second = rows.iter().skip(1).position(|row| !row.is_empty()).map(|at| at + 1);
        assert!(second.is_some_and(|row| !terminal.is_coloured(row)), "{rows:#?}");
        // A paragraph breaks between words at the edge of the terminal.
        assert!(rows.iter().any(|row| row.starts_with("lanes of PCIe 5.0 each carry")), "{rows:#?}");
    }
}

/// Returns a screen without what differs from run to run: bars are empty, and a figure with its unit is a `#` where its
/// last letter stood.
fn masked(rows: &[String]) -> String {
    let is_figure = |word: &str| !word.is_empty() && word.bytes().all(|it| matches!(it, b'0'..=b'9' | b',' | b'.'));
    let row = |row: &String| -> String {
        let row = row.replace(['=', '>'], " ");
        let mut words = row.split(' ').peekable();
        let mut out = Vec::new();
        while let Some(word) = words.next() {
            let is_unit = |next: &&str| matches!(*next, "B/s" | "kB/s" | "MB/s" | "GB/s" | "ns" | "us" | "ms" | "s");
            let unit = words.next_if(|next| is_figure(word) && is_unit(next));
            let letters = word.len() + unit.map_or(0, |unit| 1 + unit.len());
            out.push(if is_figure(word) { format!("{:>letters$}", "#") } else { word.to_owned() });
        }
        out.join(" ")
    };
    rows.iter().map(|it| row(it) + "\n").collect::<String>().trim_end().to_owned()
}

/// Starts a command on a terminal, waits for the screen, and ends it.
#[track_caller]
fn check_screen(command: Command, size: (u16, u16), expected: &str, prepared: impl Fn(&[String]) -> String) {
    let what = format!("{command:?}");
    let mut terminal = Terminal::start(command, size);
    terminal.shows(&format!("{what}:\n{expected}\n"), |rows| prepared(rows) == expected);
    terminal.interrupt();
    assert!(terminal.ended().is_some());
}

/// Whole screens, as text: the view of two jobs, and the progress of a measurement and of each experiment. Each would
/// take more than a day, so that its first percent and the width of what is left last.
#[test]
fn screens_of_progress_are_as_they_are_to_be() {
    if !has_terminals() {
        return;
    }
    const TEST: &[&str] = &["test", "jobs.yaml", "--backend", "memory", "--warmup", "0", "--duration", "90000"];
    const MATRIX: &[&str] = &["test", "--backend", "memory", "--warmup", "0", "--duration", "90000"];
    const TUNE: &[&str] = &["tune", "--backend", "null", "--quick", "--figures-only", "--phase", "60000s", "."];
    const BLOCKS: &[&str] = &["--read-block-size", "4096", "--write-block-size", "4096"];
    const SAID: &str = "random reads of    # bytes (set by --read-block-size)\n\
                        random writes of    # bytes (set by --write-block-size)\n";
    // Command, the step, the digits of the minutes left, and the names of the rows.
    type Case = (&'static [&'static str], &'static [&'static str], &'static str, usize, &'static [&'static str]);
    const CASES: [Case; 6] = [
        (TEST, &[], "running", 4, &["reads", "others"]),
        (TEST, &["--sweep", "parallelism=2"], "1/5 parallelism=2: running", 4, &["reads", "others"]),
        (TEST, &["--dual"], "1/5 once: running", 4, &["reads", "others"]),
        (TEST, &["--find-rate", "reads.p99=1ms"], "closed loop: running", 5, &["reads", "others"]),
        (MATRIX, &["--matrix", "--data-size", "64M"], "1/4 1 MiB seq write: running", 4, &["# MiB seq write"]),
        (TUNE, BLOCKS, "sequential write", 4, &[]),
    ];
    let job = |name: &str, columns: usize| {
        let figures = "         # IOPS            #  p50        #  p99        #";
        let more = if columns >= 120 { "  queue     #  disk    #" } else { "" };
        format!("\n{name:20} {figures}{more}")
    };
    for size in [(80, 24), (120, 40)] {
        let columns = usize::from(size.0);
        for (line, more, step, digits, names) in CASES {
            let step = step.replace("4 1 MiB", "4 # MiB").replace('=', " ");
            let left = format!("{:>digits$} min left", "#");
            let rest = columns - step.chars().count().max(24) - " []   # %  ".len() - left.len();
            let rows: String = names.iter().map(|name| job(name, columns)).collect();
            let said = if line == TUNE { SAID } else { "" };
            let expected = format!("{said}{step:24} [{:rest$}]   # %  {left}{rows}", "");

            let world = World::new(&[("jobs.yaml", jobs().as_str())]);
            check_screen(command(&world, &[line, more].concat()), size, &expected, masked);
        }
    }
}

/// The whole screen of `stat --top`, over counters of disks that this machine need not have.
#[test]
fn screens_of_all_disks_are_as_they_are_to_be() {
    const COUNTERS: &str =
        "8 0 sda 1000 0 8000 100 500 0 4000 50 0 120 150\n8 16 sdb 9000 0 72000 900 0 0 0 0 0 800 900\n";
    const BIND: &str = "mount --bind diskstats /proc/diskstats";
    let world = World::new(&[("diskstats", COUNTERS)]);
    let inside = |script: String| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", &script]).current_dir(world.path());
        command.env("TERM", "xterm").env("XDG_RUNTIME_DIR", world.path());
        command
    };
    if !has_terminals() {
        return;
    }
    match inside(BIND.to_owned()).output() {
        Ok(output) if output.status.success() => {}
        other => return skip(format_args!("cannot mount in a namespace: {other:?}")),
    }
    let small = "Device      r/s    w/s      read   written  await aqu-sz    U    S verdict\n\
                 (no room for: throughput, %util) idle: sda, sdb";
    let large = "Device      r/s    w/s      read   written  await aqu-sz %util    U    S verdict       throughput\n\
                 idle: sda, sdb";
    for (size, expected) in [((80, 24), small), ((120, 40), large)] {
        let run = inside(format!("{BIND} && exec {PLIMSOLL} stat 1 --top"));
        // The first row has the host, the time and how busy its CPUs are.
        check_screen(run, size, expected, |rows| {
            let has_head = rows[0].contains(" UTC  every 1 s  cpu ");
            if has_head { rows[1..].join("\n").trim_end().to_owned() } else { String::new() }
        });
    }
}

/// A measurement of many phases, and a sweep: the bar never goes back, and says how long the whole still takes.
#[test]
fn progress_is_of_the_whole_command() {
    if !has_terminals() {
        return;
    }
    let lines = [
        "tune --backend null --quick --phase 200ms .",
        "test jobs.yaml --backend memory --warmup 0 --duration 1 --sweep parallelism=1,2,4",
    ];
    for (size, line) in [(80, 24), (120, 40)].into_iter().zip(lines) {
        let world = World::new(&[("jobs.yaml", jobs().as_str())]);
        let mut terminal = Terminal::start(command(&world, &line.split(' ').collect::<Vec<_>>()), size);
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
        assert!(parts.is_sorted() && steps.len() > 1, "{line}: {parts:?} of {steps:?}");
    }
}

#[test]
fn the_view_of_all_disks_fits_the_terminal() {
    if !has_terminals() {
        return;
    }
    for size in [(80, 24), (120, 40)] {
        let world = World::new(&[]);
        let mut terminal = Terminal::start(command(&world, &["stat", "1", "--top"]), size);
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
