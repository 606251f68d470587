//! Errors of a measurement.
//!
//! # Why
//! Each message says what happened, where, and what to do.
//!
//! # How it works
//! One variant for each kind of failure; the command turns them into exit codes.
//!
//! # Limits
//! Doubts about a result are warnings of the report, not errors.
//!
//! # Example
//! `/dev/nvme1n1 is a block device: measuring it overwrites everything on it; add --destructive ...`

use std::io;
use std::path::Path;

use plimsoll::TopologyError;
use plimsoll::backend::choose::OpenBackendError;
use plimsoll_figures::units::format_bytes_binary;

use super::place::PlaceError;
use super::record::RecordError;
use crate::load::{LoadError, ScratchError};

/// Why a measurement failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TuneError {
    /// An option makes no sense, here or at all.
    #[error("{option}: {reason}")]
    Option {
        /// Name of the option on the command line.
        option: &'static str,
        /// What is wrong with the value.
        reason: String,
    },
    /// The write bound is too low.
    #[error(
        "a measurement writes at least {}, more than --max-write {}: allow more, or set a smaller --data-size",
        format_bytes_binary(*.needed_bytes), format_bytes_binary(*.max_write_bytes)
    )]
    MaxWrite {
        /// Bytes needed.
        needed_bytes: u64,
        /// Bytes allowed.
        max_write_bytes: u64,
    },
    /// The path cannot be measured, or is a device in use.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// Scratch files cannot be made: no space, read-only.
    #[error(transparent)]
    Scratch(#[from] ScratchError),
    /// The backend is not available.
    #[error(transparent)]
    Backend(#[from] OpenBackendError),
    /// The scratch files cannot be used, for instance because direct I/O is refused.
    #[error(transparent)]
    Open(io::Error),
    /// The path is a block device without permission to overwrite it.
    #[error(
        "{path} is a block device: measuring it overwrites everything on it; add --destructive if nothing there is \
         needed, or name a directory on its file system"
    )]
    NotDestructive {
        /// The device.
        path: String,
    },
    /// The device is in use, or cannot be opened.
    #[error("{path}: {error}")]
    Device {
        /// The device.
        path: String,
        /// The reason.
        error: io::Error,
    },
    /// The record's file exists already.
    #[error("{path} exists: go on with it (--resume), analyse it (--from), or name another file for --record")]
    RecordExists {
        /// The file.
        path: String,
    },
    /// The record cannot be written.
    #[error("{path}: {reason}")]
    WriteRecord {
        /// The file.
        path: String,
        /// The system's error.
        reason: String,
    },
    /// The record cannot be read.
    #[error(transparent)]
    ReadRecord(#[from] RecordError),
    /// The record belongs to another disk.
    #[error("{path}: cannot go on with this record: {reason}")]
    Resume {
        /// The file.
        path: String,
        /// The reason.
        reason: String,
    },
    /// The shards make no valid topology.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// A run could not begin, or broke.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Requests failed.
    #[error("{phase}: {errors} requests failed, the first with: {reason}")]
    Io {
        /// Phase of the measurement.
        phase: &'static str,
        /// Number of failed requests.
        errors: u64,
        /// Error of the first.
        reason: String,
    },
    /// Not one request completed.
    #[error("{phase}: no request came back in {seconds:.1} s: is the disk stuck? The kernel log may say more")]
    Silent {
        /// Phase of the measurement.
        phase: &'static str,
        /// Seconds waited.
        seconds: f64,
    },
}

impl TuneError {
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
