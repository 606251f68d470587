//! `--live`: the view is below what the program prints, and gone when it has ended.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use super::{Ended, PLIMSOLL, World, has};
use crate::terminal::{Terminal, has_terminals};

/// Says its process number, waits to be sent on, uses the disk, prints 60 lines, and waits for its end.
const STEPS: &str = r#"
import os, sys, time
def wait_for(name):
    while not os.path.exists(name): time.sleep(0.01)
print('process', os.getpid(), flush=True)
wait_for('../go')
file = os.open('a', os.O_CREAT | os.O_RDWR | os.O_DSYNC)
for at in range(9): os.pwrite(file, b'x' * 512, at * 512)
for number in range(60): print('line', number, flush=True)
wait_for('../end')
print('last words')
sys.exit(7)
"#;

/// `plimsoll run FLAGS -- CMD` with all its streams on a terminal.
fn run_on(size: (u16, u16), world: &World, flags: &[&str], cmd: &[&str]) -> Terminal {
    let arguments: Vec<&str> = [&["run"], flags, &["--"], cmd].concat();
    Terminal::start(world.command(PLIMSOLL, &arguments), size)
}

#[test]
fn the_view_is_below_what_the_program_prints_and_gone_at_its_end() {
    if !has_terminals() || !has("python3") {
        return;
    }
    for (columns, rows) in [(80, 24), (120, 40)] {
        let world = World::new();
        let mut terminal = run_on((columns, rows), &world, &["--live"], &["python3", "-c", STEPS]);
        let said = |rows: &[String]| rows.iter().find_map(|row| row.strip_prefix("process ").map(str::to_owned));
        let is_noticed = |rows: &[String]| rows.last().is_some_and(|row| row.starts_with("no process has the gate: "));
        terminal.shows("notice", |rows| said(rows).is_some() && is_noticed(rows));
        let pid = said(&terminal.rows()).unwrap();

        std::fs::write(world.path().join("go"), "").unwrap();
        let view = [
            "",
            &format!("plimsoll run python3 (process {pid}, 1 shard(s))"),
            "",
            "disk 0: scheduled, no model",
            "",
            "class       shares  IOPS   read  write  queued  disk  p50  p99  waits",
            "default       1000     0  0 B/s  0 B/s       0     0    -    -      -",
            "background     200     0  0 B/s  0 B/s       0     0    -    -      -",
            "",
            "queued, disk: now; p50, p99: of whole requests; waits: why most were queued",
        ]
        .map(str::to_owned);
        // The program's rows, of which the last is where it will print.
        let own = usize::from(rows) - view.len();
        let lines = (61 - own..60).map(|number| format!("line {number}")).chain([String::new()]);
        let expected: Vec<String> = lines.chain(view).collect();
        terminal.shows(&format!("view like {expected:#?}"), |rows| rows == expected);

        std::fs::write(world.path().join("end"), "").unwrap();
        assert_eq!(terminal.ended(), Some(7));
        let shown = terminal.rows();
        let at = |begin: &str| shown.iter().position(|row| row.starts_with(begin));
        let last = at("last words").unwrap_or_else(|| panic!("{shown:#?}"));
        assert_eq!(shown[last - 1], "line 59", "{shown:#?}");
        assert_eq!(at("class"), Some(last + 2), "the report follows: {shown:#?}");
        assert!(at("through the gate: ").is_some(), "{shown:#?}");
        assert!(at("disk 0").is_none() && at("plimsoll run").is_none(), "the view is left: {shown:#?}");
    }
}

#[test]
fn without_a_terminal_the_view_comes_as_lines() {
    let world = World::new();
    if !has("python3") {
        return;
    }
    std::fs::write(world.path().join("go"), "").unwrap();
    let mut command = world.command(PLIMSOLL, &["run", "--live", "--", "python3", "-c", STEPS]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let idle = "default       1000     0  0 B/s  0 B/s       0     0    -    -      -";
    let twice = lines.by_ref().filter(|line| line == idle).take(2).count();
    std::fs::write(world.path().join("end"), "").unwrap();
    let rest: Vec<String> = lines.collect();
    let output = Ended::of(child.wait_with_output().unwrap());

    assert_eq!((twice, output.code), (2, Some(7)), "{rest:#?}");
    assert!(rest.iter().any(|line| line.starts_with("through the gate: ")), "{rest:#?}");
    assert!(rest.iter().all(|line| !line.contains('\x1b')), "{rest:#?}");
    assert_eq!(output.out.lines().count(), 62);
}

#[test]
fn exit_codes_are_the_programs_beside_a_view_too() {
    if !has_terminals() {
        return;
    }
    let world = World::new();
    for (script, code) in [("exit 3", 3), ("kill -9 $$", 137)] {
        assert_eq!(run_on((80, 24), &world, &["--live"], &["sh", "-c", script]).ended(), Some(code), "{script}");
        assert_eq!(world.run(&["--live"], &["sh", "-c", script]).code, Some(code), "{script}");
    }
}
