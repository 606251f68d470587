//! Options of a database and of the scheduler below it.
//!
//! # Example
//! `DatabaseOptions::new("/var/lib/kv")` has a disk without a model and 512 MiB of memory.

use std::path::PathBuf;
use std::time::Duration;

/// Options for opening a database.
#[derive(Clone, Debug)]
pub struct DatabaseOptions {
    /// The directory of the tree; created if missing.
    pub directory: PathBuf,
    /// The directory of the write-ahead log, if it differs from `directory`.
    pub commitlog_directory: Option<PathBuf>,
    /// The disk's model, the file that `plimsoll tune -o` wrote; `None`: all requests are sent to the disk at once.
    pub io_properties: Option<PathBuf>,
    /// Most device time that the scheduler keeps in flight; `None` for the library's goal. A disk with a long latency
    /// needs more.
    pub latency_goal: Option<Duration>,
    /// Whether the scheduler dispatches everything at once although it has a model.
    pub is_drained: bool,
    /// The memory budget in bytes, at least [`crate::settings::MEMORY_MIN_BYTES`].
    pub memory_bytes: u64,
    /// The file in which the stations of each request are recorded.
    pub trace: Option<PathBuf>,
}

impl DatabaseOptions {
    /// Returns options for a database in `directory`, on a disk without a model.
    pub fn new(directory: impl Into<PathBuf>) -> DatabaseOptions {
        DatabaseOptions {
            directory: directory.into(),
            commitlog_directory: None,
            io_properties: None,
            latency_goal: None,
            is_drained: false,
            memory_bytes: 512 << 20,
            trace: None,
        }
    }
}
