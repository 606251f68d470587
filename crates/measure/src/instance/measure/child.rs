//! Runs other programs, and makes sure that they end.
//!
//! **Why.** stress-ng starts processes of its own. None may outlive the measurement, whether it ends by itself, by a
//! time limit or by Ctrl-C.
//!
//! **How.** [`run`] starts a program as the leader of a process group of its own. Its outputs go to unnamed files, so
//! that no file remains and no pipe must be emptied. Every 20 ms it checks whether the program has ended; at a limit or
//! a stop, the group gets SIGTERM, and after a second SIGKILL. The leader is reaped only after its group was killed, so
//! that no other process can have its number by then.
//!
//! **Limits.** A process that leaves the group is not ended. SIGKILL of this program leaves the group running.
//!
//! **Example.**
//!
//! ```text
//! let ended = child::run(Command::new("stress-ng").arg("--version"), Duration::from_secs(5), &stop)?;
//! if ended.is_success { println!("{}", ended.stdout) }
//! ```

use std::fs::File;
use std::io::{ErrorKind, Read, Seek};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use thiserror::Error;

use super::INTERRUPTED;
use crate::load::Stop;

/// Time between two checks whether the program has ended.
const STEP: Duration = Duration::from_millis(20);
/// Time from SIGTERM to SIGKILL.
const GRACE: Duration = Duration::from_secs(1);
/// The longest output that is read, in bytes; the rest is ignored.
const OUTPUT_BYTES_MAX: u64 = 4 << 20;

/// Why there is no output to read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(super) enum Failure {
    #[error("{0} is not installed: apt install {0} (or dnf install {0})")]
    NotInstalled(String),
    #[error("{INTERRUPTED}")]
    Stopped,
    #[error("it did not end within {} s", .0.as_secs())]
    Late(Duration),
    /// The program cannot be started, or its output cannot be read.
    #[error("{0}")]
    Other(String),
}

#[derive(Clone, Debug)]
pub(super) struct Ended {
    /// Whether its status is 0.
    pub(super) is_success: bool,
    /// Its output, at most 4 MiB.
    pub(super) stdout: String,
    /// Its error output, at most 4 MiB.
    pub(super) stderr: String,
}

/// Runs a program in a process group of its own, without input, in the C locale. Ends the group after `limit` or when
/// `stop` is asked.
pub(super) fn run(command: &mut Command, limit: Duration, stop: &Stop) -> Result<Ended, Failure> {
    if stop.is_asked() {
        return Err(Failure::Stopped);
    }
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => Failure::NotInstalled(name.clone()),
        _ => Failure::Other(format!("{name} cannot be started: {error}")),
    };
    let files = || -> std::io::Result<_> { Ok((tempfile::tempfile()?, tempfile::tempfile()?)) };
    let (mut stdout, mut stderr) = files().map_err(|error| Failure::Other(format!("no output of {name}: {error}")))?;
    let to = |file: &File| file.try_clone().map_err(failed);
    command.process_group(0).env("LC_ALL", "C").stdin(Stdio::null()).stdout(to(&stdout)?).stderr(to(&stderr)?);
    let mut child = command.spawn().map_err(failed)?;

    let started = Instant::now();
    let forced = loop {
        if has_ended(&child) {
            break None;
        } else if stop.is_asked() {
            break Some(Failure::Stopped);
        } else if started.elapsed() >= limit {
            break Some(Failure::Late(limit));
        }
        std::thread::sleep(STEP);
    };
    let is_success = end(&mut child);
    forced.map_or_else(|| Ok(Ended { is_success, stdout: text_of(&mut stdout), stderr: text_of(&mut stderr) }), Err)
}

/// Returns whether the leader has ended, without reaping it, so that its number is not reused.
fn has_ended(child: &Child) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::Pid(Pid::from_child(child)), options), Ok(None) | Err(rustix::io::Errno::INTR))
}

/// Ends the rest of the group. Returns whether the leader ended with status 0.
fn end(child: &mut Child) -> bool {
    let group = Pid::from_child(child);
    // Errors mean that the group is gone.
    if !has_ended(child) {
        let _ = kill_process_group(group, Signal::TERM);
        let asked = Instant::now();
        while !has_ended(child) && asked.elapsed() < GRACE {
            std::thread::sleep(STEP);
        }
    }
    let _ = kill_process_group(group, Signal::KILL);
    child.wait().is_ok_and(|status| status.success())
}

/// Returns the text of a file from its beginning; empty if it cannot be read.
fn text_of(file: &mut File) -> String {
    let mut bytes = Vec::new();
    let _ = file.rewind().and_then(|()| file.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    /// Returns whether a process of this number exists and is no zombie.
    fn is_alive(pid: &str) -> bool {
        std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
    }

    /// Checks that the process whose number the program has written to `file` ends.
    fn check_is_gone(file: &std::path::Path, what: &str) {
        let pid = std::fs::read_to_string(file).unwrap_or_default();
        let pid = pid.trim();
        // On a slow machine the process may not have started yet, or not have been reaped.
        let patience = Instant::now();
        while !pid.is_empty() && is_alive(pid) && patience.elapsed() < LIMIT {
            std::thread::sleep(STEP);
        }
        assert!(pid.is_empty() || !is_alive(pid), "{what}: {pid} lives on");
    }

    #[test]
    fn what_is_printed_and_how_it_ends() {
        for (script, is_success) in [("echo out; echo err >&2", true), ("echo out; echo err >&2; exit 3", false)] {
            let ended = run(&mut shell(script), LIMIT, &Stop::default()).unwrap();
            let found = (ended.is_success, ended.stdout.as_str(), ended.stderr.as_str());
            assert_eq!(found, (is_success, "out\n", "err\n"), "{script}");
        }
    }

    #[test]
    fn programs_that_are_not_there() {
        let error = run(&mut Command::new("plimsoll-no-such-program"), LIMIT, &Stop::default()).unwrap_err();
        assert!(error.to_string().contains("apt install plimsoll-no-such-program"), "{error}");
    }

    #[test]
    fn a_limit_and_a_stop_end_the_whole_group() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("pid");
        let soon = Duration::from_millis(200);
        // The second ignores SIGTERM.
        for (trap, is_stopped, limit, expected) in [
            ("", false, soon, Failure::Late(soon)),
            ("trap '' TERM;", false, soon, Failure::Late(soon)),
            ("", true, LIMIT, Failure::Stopped),
        ] {
            let stop = Stop::default();
            let stopper = stop.clone();
            let stopping = std::thread::spawn(move || {
                std::thread::sleep(soon);
                if is_stopped {
                    stopper.ask();
                }
            });
            let script = format!("{trap} sleep 600 & echo $! >{}; wait", file.display());
            assert_eq!(run(&mut shell(&script), limit, &stop).unwrap_err(), expected, "{script}");
            check_is_gone(&file, &script);
            assert!(stopping.join().is_ok());
        }
    }

    #[test]
    fn children_do_not_outlive_a_leader_that_ends_by_itself() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("pid");
        let script = format!("sleep 600 & echo $! >{}", file.display());
        assert!(run(&mut shell(&script), LIMIT, &Stop::default()).unwrap().is_success);
        check_is_gone(&file, &script);
    }

    #[test]
    fn endless_output_is_cut() {
        let ended = run(&mut shell("head -c 5000000 /dev/zero | tr '\\0' a"), LIMIT, &Stop::default()).unwrap();
        assert_eq!(ended.stdout.len() as u64, OUTPUT_BYTES_MAX);
    }
}
