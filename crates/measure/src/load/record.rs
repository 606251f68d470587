//! Runs that are recorded: one trace file for all runs under a control.
//!
//! # Why
//! `--trace FILE` is the same for every command that runs loads, and what such a command runs is often more than one run,
//! each with a topology of its own.
//!
//! # How it works
//! The file is begun once ([`TraceFile::create`]). Each run records into it and gives the writer back; numbers of
//! requests go on where the last run ended, and names are told again.
//!
//! # Limits
//! Runs one after another: a run that begins while another records is not recorded. After a failed write nothing more is.
//! The warm-up of a run is recorded too; filling scratch files before is not.
//!
//! # Example
//! ```
//! # let directory = std::env::temp_dir().join(format!("plimsoll-record-{}", std::process::id()));
//! # std::fs::create_dir_all(&directory)?;
//! use plimsoll_measure::load::{Control, TraceFile};
//! let path = directory.join("run.plt");
//! let control = Control::default();
//! control.instruments.record(TraceFile::create(&path)?);
//! // ... run(&plan, &control) ...
//! assert_eq!(control.instruments.recorded().map(|recorded| recorded.events), Some(0));
//! # std::fs::remove_dir_all(&directory)?;
//! # Ok::<(), std::io::Error>(())
//! ```

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use plimsoll::Topology;
use plimsoll::sys::clock::now_ns;
use plimsoll::trace::format::{Clock, Writer};
use plimsoll::trace::{TraceConfig, TraceSummary, TraceWriter};

/// Bytes that go to the file at once.
const BUFFER_BYTES: usize = 1 << 18;

/// What was recorded so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Events in the file.
    pub events: u64,
    /// Events for which the program had no room when they happened.
    pub dropped_events: u64,
    /// Why nothing more was recorded, if so.
    pub error: Option<String>,
}

/// A trace file that runs are recorded into.
pub struct TraceFile {
    /// None while a run records, and after an error.
    writer: Option<TraceWriter>,
    last_request: u64,
    recorded: Recorded,
}

impl std::fmt::Debug for TraceFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TraceFile({:?})", self.recorded)
    }
}

impl TraceFile {
    /// Begins the file at `path`; what was there is written over.
    ///
    /// # Errors
    /// What the system said.
    pub fn create(path: &Path) -> io::Result<TraceFile> {
        let out: Box<dyn Write + Send> = Box::new(BufWriter::with_capacity(BUFFER_BYTES, File::create(path)?));
        let unix_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        let mut writer = Writer::new(out, Clock::Monotonic, unix_ns.saturating_sub(now_ns()))?;
        writer.flush()?;
        Ok(TraceFile { writer: Some(writer), last_request: 0, recorded: Recorded::default() })
    }

    /// What is in it so far.
    pub(super) fn recorded(&self) -> Recorded {
        self.recorded.clone()
    }

    /// Records `topology` from now on; whether it does.
    pub(super) fn start(&mut self, topology: &Topology) -> bool {
        let Some(writer) = self.writer.take() else { return false };
        let config = TraceConfig { after_request: self.last_request, ..TraceConfig::default() };
        match topology.trace().start(writer, config) {
            Ok(()) => true,
            Err(error) => {
                self.recorded.error = Some(error.to_string());
                false
            }
        }
    }

    /// Ends the record of `topology`.
    pub(super) fn stop(&mut self, topology: &Topology) {
        let Some(summary) = topology.trace().stop() else { return };
        let TraceSummary { events, dropped_events, last_request, error, writer } = summary;
        self.recorded.events += events;
        self.recorded.dropped_events += dropped_events;
        self.last_request = self.last_request.max(last_request);
        match error {
            Some(error) => self.recorded.error = Some(error.to_string()),
            None => self.writer = Some(writer),
        }
    }
}
