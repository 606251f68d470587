//! Failures of the program: one message, and an exit code like `plimsoll`'s.

use std::fmt;
use std::io;

use datafusion::error::DataFusionError;

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Exit code 2: the question makes no sense.
    Input(String),
    /// Exit code 3: this machine or a server cannot do it.
    Machine(String),
    /// The answer could not be written.
    Output(io::Error),
}

impl Failure {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Failure::Input(_) => 2,
            Failure::Machine(_) | Failure::Output(_) => 3,
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
            Failure::Output(error) => write!(f, "cannot write the answer: {error}"),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Output(error)
    }
}

impl From<DataFusionError> for Failure {
    fn from(error: DataFusionError) -> Failure {
        let message = error.strip_backtrace();
        match error.find_root() {
            DataFusionError::ResourcesExhausted(_) => {
                Failure::Machine(format!("{message}: give more with --memory, or ask for fewer rows"))
            }
            DataFusionError::ObjectStore(_)
            | DataFusionError::IoError(_)
            | DataFusionError::ParquetError(_)
            | DataFusionError::External(_) => Failure::Machine(message),
            _ => Failure::Input(message),
        }
    }
}
