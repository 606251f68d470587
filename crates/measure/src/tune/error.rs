//! Errors of a measurement.
//!
//! **Why.** Each message says what happened, where, and what to do.
//!
//! **How.** One variant for each kind of failure; the command turns them into exit codes.
//!
//! **Limits.** Doubts about a result are warnings of the report, not errors.
//!
//! **Example.** `/dev/nvme1n1 is a block device: measuring it overwrites everything on it; add --destructive ...`

use std::io;
use std::path::Path;

use plimsoll::TopologyError;
use plimsoll::backend::choose::OpenBackendError;
use plimsoll_figures::units::format_bytes_binary;

use super::place::PlaceError;
use super::record::RecordError;
use crate::load::{LoadError, ScratchError};

#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    #[error("{option}: {reason}")]
    Option { option: &'static str, reason: String },
    #[error(
        "a measurement writes at least {}, more than --max-write {}: allow more, or set a smaller --data-size",
        format_bytes_binary(*.needed_bytes), format_bytes_binary(*.max_write_bytes)
    )]
    MaxWrite { needed_bytes: u64, max_write_bytes: u64 },
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error(transparent)]
    Scratch(#[from] ScratchError),
    #[error(transparent)]
    Backend(#[from] OpenBackendError),
    /// The scratch files cannot be used, for instance because direct I/O is refused.
    #[error(transparent)]
    Open(io::Error),
    #[error(
        "{path} is a block device: measuring it overwrites everything on it; add --destructive if nothing there is \
         needed, or name a directory on its file system"
    )]
    NotDestructive { path: String },
    #[error("{path}: {error}")]
    Device { path: String, error: io::Error },
    #[error("{path} exists: go on with it (--resume), analyse it (--from), or name another file for --record")]
    RecordExists { path: String },
    #[error("{path}: {reason}")]
    WriteRecord { path: String, reason: String },
    #[error(transparent)]
    ReadRecord(#[from] RecordError),
    #[error("{path}: cannot go on with this record: {reason}")]
    Resume { path: String, reason: String },
    #[error(transparent)]
    Topology(#[from] TopologyError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("{phase}: {errors} requests failed, the first with: {reason}")]
    Io {
        phase: &'static str,
        errors: u64,
        /// Error of the first failed request.
        reason: String,
    },
    #[error("{phase}: no request came back in {seconds:.1} s: is the disk stuck? The kernel log may say more")]
    Silent { phase: &'static str, seconds: f64 },
}

impl TuneError {
    /// Returns whether another choice of the user would avoid the error.
    pub fn is_of_input(&self) -> bool {
        matches!(
            self,
            TuneError::Option { .. }
                | TuneError::MaxWrite { .. }
                | TuneError::Place(_)
                | TuneError::NotDestructive { .. }
                | TuneError::RecordExists { .. }
                | TuneError::ReadRecord(_)
                | TuneError::Resume { .. }
                | TuneError::Scratch(ScratchError::BadDirectory { .. })
        )
    }

    pub(super) fn record(path: &Path, error: &io::Error) -> TuneError {
        let path = path.display().to_string();
        match error.kind() {
            io::ErrorKind::AlreadyExists => TuneError::RecordExists { path },
            _ => TuneError::WriteRecord { path, reason: error.to_string() },
        }
    }

    /// Returns an I/O error. `first` is an error number; 0 or `None` for a short transfer.
    pub(super) fn io(phase: &'static str, errors: u64, first: Option<i32>) -> TuneError {
        let reason = match first {
            Some(number) if number != 0 => io::Error::from_raw_os_error(number).to_string(),
            _ => "it moved fewer bytes than asked; is the file system full?".to_owned(),
        };
        TuneError::Io { phase, errors, reason }
    }
}
