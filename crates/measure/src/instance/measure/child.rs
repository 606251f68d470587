//! Runs other programs, and makes sure that they end.
//!
//! **Why.** stress-ng starts processes of its own, and iperf3's server waits for ever. Neither may outlive the
//! measurement, whether they, a time limit, Ctrl-C or a panic end it.
//!
//! **How.** A program is started as the leader of a process group of its own ([`Running`]). Its outputs go to files
//! without names, so that no file is left and no pipe must be emptied. [`Running::wait`] checks every 20 ms whether the
//! program has ended; at a limit or a stop, the group gets SIGTERM, and after a second SIGKILL. The leader is reaped
//! only after its group was killed, so that no other process can have its number by then.
//!
//! **Limits.** A process that leaves the group is not ended. SIGKILL of this program leaves the group running.
//!
//! **Example.**
//!
//! ```text
//! let ended = child::start(Command::new("stress-ng").arg("--version"))?.wait(Duration::from_secs(5), &stop);
//! if let Exit::Success = ended.exit { println!("{}", ended.stdout) }
//! ```

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::load::Stop;

/// Time between two checks whether the program has ended.
const STEP: Duration = Duration::from_millis(20);
/// Time from SIGTERM to SIGKILL.
const GRACE: Duration = Duration::from_secs(1);
/// The longest output that is read, in bytes; the rest is ignored.
const OUTPUT_BYTES_MAX: u64 = 4 << 20;

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// It ended by itself, with status 0.
    Success,
    /// It ended by itself, with another status or by a signal.
    Failure,
    /// It was ended at the time limit.
    Late,
    /// It was ended because the measurement was stopped.
    Stopped,
}

/// A program that has ended.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    /// How it ended.
    pub(super) exit: Exit,
    /// Its output, at most 4 MiB.
    pub(super) stdout: String,
    /// Its error output, at most 4 MiB.
    pub(super) stderr: String,
}

/// A program that runs. Dropping it ends its process group.
#[derive(Debug)]
pub(super) struct Running {
    child: Child,
    is_over: bool,
    stdout: File,
    stderr: File,
}

/// Starts a program in a process group of its own, without input, in the C locale.
///
/// # Errors
/// The system's error; [`io::ErrorKind::NotFound`] if the program is not installed.
pub(super) fn start(command: &mut Command) -> io::Result<Running> {
    let (stdout, stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
    let child = command
        .process_group(0)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(stdout.try_clone()?)
        .stderr(stderr.try_clone()?)
        .spawn()?;
    Ok(Running { child, is_over: false, stdout, stderr })
}

impl Running {
    /// Waits for the program to end, and ends it after `limit` or when `stop` is asked.
    pub(super) fn wait(mut self, limit: Duration, stop: &Stop) -> Ended {
        let started = Instant::now();
        let forced = loop {
            if self.has_ended() {
                break None;
            } else if stop.is_asked() {
                break Some(Exit::Stopped);
            } else if started.elapsed() >= limit {
                break Some(Exit::Late);
            }
            std::thread::sleep(STEP);
        };
        let is_success = self.end();
        let exit = forced.unwrap_or(if is_success { Exit::Success } else { Exit::Failure });
        Ended { exit, stdout: text_of(&mut self.stdout), stderr: text_of(&mut self.stderr) }
    }

    /// Returns whether the leader has ended, without reaping it: its number stays its own.
    fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !matches!(waitid(WaitId::Pid(self.group()), options), Ok(None) | Err(rustix::io::Errno::INTR))
    }

    fn group(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Ends the rest of the group. Returns whether the leader ended with status 0.
    fn end(&mut self) -> bool {
        if self.is_over {
            return false;
        }
        self.is_over = true;
        // Errors mean that the group is gone.
        if !self.has_ended() {
            let _ = kill_process_group(self.group(), Signal::TERM);
            let asked = Instant::now();
            while !self.has_ended() && asked.elapsed() < GRACE {
                std::thread::sleep(STEP);
            }
        }
        let _ = kill_process_group(self.group(), Signal::KILL);
        self.child.wait().is_ok_and(|status| status.success())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
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

    #[test]
    fn what_is_printed_and_how_it_ends() {
        let cases = [("echo out; echo err >&2", Exit::Success), ("echo out; echo err >&2; exit 3", Exit::Failure)];
        for (script, expected) in cases {
            let ended = start(&mut shell(script)).unwrap().wait(LIMIT, &Stop::default());
            let expected = (expected, "out\n", "err\n");
            assert_eq!((ended.exit, ended.stdout.as_str(), ended.stderr.as_str()), expected, "{script}");
        }
    }

    #[test]
    fn programs_that_are_not_there() {
        let error = start(&mut Command::new("plimsoll-no-such-program")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_limit_and_a_stop_end_the_whole_group() {
        let stopped = Stop::default();
        stopped.ask();
        // The second ignores SIGTERM.
        for (script, stop, limit, expected) in [
            ("sleep 600 & echo $!; wait", Stop::default(), Duration::from_millis(200), Exit::Late),
            ("trap '' TERM; sleep 600 & echo $!; wait", Stop::default(), Duration::from_millis(200), Exit::Late),
            ("sleep 600 & echo $!; wait", stopped, LIMIT, Exit::Stopped),
        ] {
            let ended = start(&mut shell(script)).unwrap().wait(limit, &stop);
            assert_eq!(ended.exit, expected, "{script}");
            let pid = ended.stdout.trim();
            // A slow machine may not have started the sleep yet, or not have reaped it.
            let patience = Instant::now();
            while !pid.is_empty() && is_alive(pid) && patience.elapsed() < LIMIT {
                std::thread::sleep(STEP);
            }
            assert!(pid.is_empty() || !is_alive(pid), "{script}: {pid} lives on");
        }
    }

    #[test]
    fn dropping_ends_it() {
        let running = start(&mut shell("exec sleep 600")).unwrap();
        let pid = running.group().to_string();
        drop(running);
        assert!(!is_alive(&pid));
    }

    #[test]
    fn children_do_not_outlive_a_leader_that_ends_by_itself() {
        let ended = start(&mut shell("sleep 600 & echo $!")).unwrap().wait(LIMIT, &Stop::default());
        assert_eq!(ended.exit, Exit::Success);
        let patience = Instant::now();
        while is_alive(ended.stdout.trim()) && patience.elapsed() < LIMIT {
            std::thread::sleep(STEP);
        }
        assert!(!is_alive(ended.stdout.trim()));
    }

    #[test]
    fn endless_output_is_cut() {
        let script = "head -c 5000000 /dev/zero | tr '\\0' a";
        let ended = start(&mut shell(script)).unwrap().wait(LIMIT, &Stop::default());
        assert_eq!(ended.stdout.len() as u64, OUTPUT_BYTES_MAX);
    }
}
