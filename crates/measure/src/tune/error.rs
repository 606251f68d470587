//! Why nothing could be measured.
//!
//! # Why
//! Each message says what happened, where, and what to do.
//!
//! # How it works
//! One variant for each kind of trouble; the command turns them into exit codes.
//!
//! # Limits
//! Doubts about what was measured are warnings of the report, not errors.
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

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TuneError {
    /// An option makes no sense, here or anywhere.
    #[error("{option}: {reason}")]
    Option {
        /// Its name on the command line.
        option: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// Too little may be written.
    #[error(
        "a measurement writes at least {}, more than --max-write {}: allow more, or set a smaller --data-size",
        format_bytes_binary(*.needed_bytes), format_bytes_binary(*.max_write_bytes)
    )]
    MaxWrite {
        /// What is needed, in bytes.
        needed_bytes: u64,
        /// What is allowed, in bytes.
        max_write_bytes: u64,
    },
    /// Nothing that can be measured, or a device that is in use.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The files in the directory: no space, read-only.
    #[error(transparent)]
    Scratch(#[from] ScratchError),
    /// The backend is not to be had.
    #[error(transparent)]
    Backend(#[from] OpenBackendError),
    /// The scratch files cannot be used, as where direct I/O is refused.
    #[error(transparent)]
    Open(io::Error),
    /// A block device without permission to write to it.
    #[error(
        "{path} is a block device: measuring it overwrites everything on it; add --destructive if nothing there is \
         needed, or name a directory on its file system"
    )]
    NotDestructive {
        /// The device.
        path: String,
    },
    /// A device that is in use, or cannot be opened.
    #[error("{path}: {error}")]
    Device {
        /// The device.
        path: String,
        /// Why not.
        error: io::Error,
    },
    /// The record's file is there already.
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
        /// What the system said.
        reason: String,
    },
    /// The record cannot be read.
    #[error(transparent)]
    ReadRecord(#[from] RecordError),
    /// The record is of something else.
    #[error("{path}: cannot go on with this record: {reason}")]
    Resume {
        /// The file.
        path: String,
        /// Why not.
        reason: String,
    },
    /// Impossible shards.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// A run could not begin, or broke.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Requests failed.
    #[error("{phase}: {errors} requests failed, the first with: {reason}")]
    Io {
        /// What was being done.
        phase: &'static str,
        /// How many failed.
        errors: u64,
        /// Why the first did.
        reason: String,
    },
    /// Not one request came back.
    #[error("{phase}: no request came back in {seconds:.1} s: is the disk stuck? The kernel log may say more")]
    Silent {
        /// What was being done.
        phase: &'static str,
        /// How long it was waited, in seconds.
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

    /// `first` is an error number; 0 or none for a transfer that came back short.
    pub(super) fn io(phase: &'static str, errors: u64, first: Option<i32>) -> TuneError {
        let reason = match first {
            Some(number) if number != 0 => io::Error::from_raw_os_error(number).to_string(),
            _ => "it moved fewer bytes than asked; is the file system full?".to_owned(),
        };
        TuneError::Io { phase, errors, reason }
    }
}
