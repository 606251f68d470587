//! Failures of a command: one message and an exit code.
//!
//! # Why
//! A script must be able to tell a bad request from a machine that cannot fulfil it.
//!
//! # How it works
//! The codes are those of `plimsoll` itself: 0 done, 1 a figure says no, 2 bad input, 3 this machine cannot do it, 130
//! interrupted.
//!
//! # Limits
//! One message a command.
//!
//! # Example
//! `Failure::Input("give --dir".into())` ends the program with code 2.

use std::fmt;
use std::io::Write;

/// Prints a line on stderr. Unlike `eprintln!`, a stderr that takes none (a log file on a full disk, a reader that has
/// gone) ends neither the program nor a task.
pub fn tell(line: impl fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Why a command failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Exit code 1: the command ran, and its result says no (operations of `stress` failed).
    Finding(String),
    /// Exit code 2: the request makes no sense.
    Input(String),
    /// Exit code 3: this machine cannot do it.
    Machine(String),
    /// Exit code 130: a signal ended the command, which has printed the measurements so far.
    Interrupted(String),
}

impl Failure {
    /// Returns the exit code of the program.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Finding(_) => 1,
            Failure::Input(_) => 2,
            Failure::Machine(_) => 3,
            Failure::Interrupted(_) => 130,
        }
    }

    /// Returns a failure of the machine: `what` failed with `error`.
    pub fn machine(what: impl fmt::Display, error: impl fmt::Display) -> Failure {
        Failure::Machine(format!("{what}: {error}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Finding(message)
            | Failure::Input(message)
            | Failure::Machine(message)
            | Failure::Interrupted(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for Failure {}
