//! `--live`: the view is below what the program prints, and gone when it has ended.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::{PATIENCE, PLIMSOLL, World, has, skip};

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

fn has_terminals() -> bool {
    let opened = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY);
    opened.inspect_err(|error| skip(format_args!("no pseudo terminals here: {error}"))).is_ok()
}

/// A pseudo terminal, on whose screen is what a program has written to it.
struct Terminal {
    screen: vt100::Parser,
    written: Receiver<Vec<u8>>,
    child: Child,
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It has ended already, unless the test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Terminal {
    /// `plimsoll run FLAGS -- CMD` with all its streams on a terminal.
    fn run(world: &World, (columns, rows): (u16, u16), flags: &[&str], cmd: &[&str]) -> Terminal {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap();
        let theirs = rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        tcsetwinsize(&theirs, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();

        let arguments: Vec<&str> = [&["run"], flags, &["--"], cmd].concat();
        let mut command = world.command(PLIMSOLL, &arguments);
        let stream = || Stdio::from(theirs.try_clone().unwrap());
        let child = command.stdin(stream()).stdout(stream()).stderr(stream()).spawn().unwrap();

        let (sender, written) = channel();
        let mut from = File::from(ours);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // It fails when the last process has closed the terminal.
            while let Ok(len) = from.read(&mut bytes) {
                if len == 0 || sender.send(bytes[..len].to_vec()).is_err() {
                    break;
                }
            }
        });
        Terminal { screen: vt100::Parser::new(rows, columns, 0), written, child }
    }

    fn rows(&self) -> Vec<String> {
        let (_, columns) = self.screen.screen().size();
        self.screen.screen().rows(0, columns).map(|row| row.trim_end().to_owned()).collect()
    }

    /// Waits until the screen is as it is to be.
    #[track_caller]
    fn shows(&mut self, what: &str, is_it: impl Fn(&[String]) -> bool) {
        let give_up = Instant::now() + PATIENCE;
        while !is_it(&self.rows()) {
            match self.written.recv_timeout(Duration::from_millis(100)) {
                Ok(bytes) => self.screen.process(&bytes),
                Err(RecvTimeoutError::Timeout) => {
                    assert!(Instant::now() < give_up, "no {what}: {:#?}", self.rows());
                }
                Err(RecvTimeoutError::Disconnected) => panic!("it ended without {what}: {:#?}", self.rows()),
            }
        }
    }

    /// Waits for the end. Returns the exit code.
    fn ended(&mut self) -> Option<i32> {
        while let Ok(bytes) = self.written.recv_timeout(PATIENCE) {
            self.screen.process(&bytes);
        }
        self.child.wait().unwrap().code()
    }
}

#[test]
fn the_view_is_below_what_the_program_prints_and_gone_at_its_end() {
    if !has_terminals() || !has("python3") {
        return;
    }
    for (columns, rows) in [(80, 24), (120, 40)] {
        let world = World::new();
        let mut terminal = Terminal::run(&world, (columns, rows), &["--live"], &["python3", "-c", STEPS]);
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
    let output = child.wait_with_output().unwrap();

    assert_eq!((twice, output.status.code()), (2, Some(7)), "{rest:#?}");
    assert!(rest.iter().any(|line| line.starts_with("through the gate: ")), "{rest:#?}");
    assert!(rest.iter().all(|line| !line.contains('\x1b')), "{rest:#?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 62);
}

#[test]
fn exit_codes_are_the_programs_beside_a_view_too() {
    if !has_terminals() {
        return;
    }
    let world = World::new();
    for (script, code) in [("exit 3", 3), ("kill -9 $$", 137)] {
        assert_eq!(Terminal::run(&world, (80, 24), &["--live"], &["sh", "-c", script]).ended(), Some(code), "{script}");
        assert_eq!(world.run(&["--live"], &["sh", "-c", script]).status.code(), Some(code), "{script}");
    }
}
