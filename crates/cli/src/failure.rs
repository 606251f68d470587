//! How a command ends: its exit code, and one message if it failed.

use std::fmt;
use std::io;

use plimsoll::StartError;
use plimsoll_files::ConfigError;
use plimsoll_files::setup::NoEntry;
use plimsoll_measure::demo::DemoError;
use plimsoll_measure::load::{LoadError, ScratchError};
use plimsoll_measure::test::TestError;
use plimsoll_measure::tune::TuneError;
use serde::Serialize;

/// Exit code of a command that a signal ended.
pub(crate) const INTERRUPTED: u8 = 130;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Exit code 0.
    Done,
    /// Exit code 1: a finding or figure says no.
    Finding,
    /// Exit code [`INTERRUPTED`].
    Interrupted,
    /// Exit code of a program that was run.
    OfProgram(u8),
}

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Exit code 2: bad input or usage.
    Input(String),
    /// Exit code 3: this machine cannot do it.
    Machine(String),
    /// Writing the result failed.
    Output(io::Error),
}

impl Failure {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Failure::Input(_) => 2,
            Failure::Machine(_) => 3,
            Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => 0,
            Failure::Output(_) => 3,
        }
    }

    pub(crate) fn is_broken_pipe(&self) -> bool {
        matches!(self, Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Input(message) | Failure::Machine(message) => f.write_str(message),
            Failure::Output(error) => write!(f, "cannot write the result: {error}"),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Output(error)
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Failure {
        Failure::Input(error.to_string())
    }
}

impl From<NoEntry> for Failure {
    fn from(error: NoEntry) -> Failure {
        Failure::Input(error.to_string())
    }
}

impl From<TestError> for Failure {
    fn from(error: TestError) -> Failure {
        let message = error.to_string();
        match error {
            TestError::Load(error) => error.into(),
            TestError::Scratch(error) => error.into(),
            TestError::UsedByRun { .. } => Failure::Machine(message),
            _ => Failure::Input(message),
        }
    }
}

impl From<TuneError> for Failure {
    fn from(error: TuneError) -> Failure {
        let message = error.to_string();
        match error {
            TuneError::Load(error) => error.into(),
            TuneError::Scratch(error) => error.into(),
            error if error.is_of_input() => Failure::Input(message),
            _ => Failure::Machine(message),
        }
    }
}

impl From<DemoError> for Failure {
    fn from(error: DemoError) -> Failure {
        match error {
            DemoError::Tune(error) => error.into(),
            DemoError::Scratch(error) => error.into(),
            DemoError::Load(error) => error.into(),
            DemoError::NoDisk(_) => Failure::Input(error.to_string()),
            other => Failure::Machine(other.to_string()),
        }
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Failure {
        let message = error.to_string();
        match error {
            LoadError::Start(StartError::TooManyShards { .. }) | LoadError::Unsuitable { .. } => {
                Failure::Input(message)
            }
            _ => Failure::Machine(message),
        }
    }
}

impl From<ScratchError> for Failure {
    fn from(error: ScratchError) -> Failure {
        let message = error.to_string();
        match error {
            ScratchError::BadDirectory { .. } => Failure::Input(message),
            _ => Failure::Machine(message),
        }
    }
}

/// Returns the error of a program that was built without Parquet; `else_do` names the alternative.
pub(crate) fn without_parquet(else_do: &str) -> Failure {
    Failure::Input(format!(
        "this plimsoll was built without Parquet: build it with `cargo build --release --features parquet`, {else_do}"
    ))
}

/// Returns a result as JSON, or why it could not be written.
pub(crate) fn as_json(result: &impl Serialize) -> Result<String, Failure> {
    told(serde_json::to_string_pretty(result))
}

pub(crate) fn as_json_line(result: &impl Serialize) -> Result<String, Failure> {
    told(serde_json::to_string(result))
}

/// Turns a serialization error into a failure.
pub(crate) fn told(written: serde_json::Result<String>) -> Result<String, Failure> {
    written.map_err(|error| Failure::Machine(format!("cannot write JSON: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_space() -> ScratchError {
        let error = io::Error::from_raw_os_error(28);
        ScratchError::Fill(LoadError::Write { path: "/data/x".to_owned(), error })
    }

    #[test]
    fn what_the_machine_cannot_do_is_code_3() {
        let fills: [Failure; 3] =
            [no_space().into(), TestError::Scratch(no_space()).into(), TuneError::Scratch(no_space()).into()];
        for failure in fills {
            assert_eq!(failure.exit_code(), 3, "{failure}");
            let text = failure.to_string();
            assert!(text.starts_with("cannot fill the scratch files: /data/x: No space left"), "{text}");
        }
        let error = io::ErrorKind::OutOfMemory.into();
        let no_memory = LoadError::NoMemory { job: "a".to_owned(), requests: 65_536, request_bytes: 1 << 30, error };
        assert_eq!(Failure::from(no_memory).exit_code(), 3);
        let unsuitable = LoadError::Unsuitable { job: "a".to_owned(), reason: "b".to_owned() };
        assert_eq!(Failure::from(unsuitable).exit_code(), 2);
        let used = TestError::UsedByRun { path: "/data/x".to_owned(), is_verified: true };
        assert_eq!(Failure::from(used).exit_code(), 3);
    }
}
