//! Records runs: one trace file for all runs under a control.
//!
//! **Why.** `--trace FILE` is the same for every command that runs loads. Such a command often makes several runs, each
//! with a topology of its own.
//!
//! **How.** [`TraceFile::create`] creates the file once. Each run records into it and returns the writer; request
//! numbers continue from the last run, and names are written again.
//!
//! **Limits.** Runs are recorded one at a time: a run that begins while another records is not recorded. After a failed
//! write, recording ends. The warm-up of a run is recorded too; filling scratch files is not.
//!
//! **Example.**
//!
//! ```
//! # let directory = std::env::temp_dir().join(format!("plimsoll-record-{}", std::process::id()));
//! # std::fs::create_dir_all(&directory)?;
//! use plimsoll_load::{Control, TraceFile};
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

const BUFFER_BYTES: usize = 1 << 18;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    pub events: u64,
    /// Events that were lost because the program had no room for them.
    pub dropped_events: u64,
    /// Why recording ended early, if it did.
    pub error: Option<String>,
}

pub struct TraceFile {
    /// `None` while a run records, and after an error.
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
    /// Creates the file at `path`, or overwrites an existing one.
    pub fn create(path: &Path) -> io::Result<TraceFile> {
        let out: Box<dyn Write + Send> = Box::new(BufWriter::with_capacity(BUFFER_BYTES, File::create(path)?));
        let unix_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        let mut writer = Writer::new(out, Clock::Monotonic, unix_ns.saturating_sub(now_ns()))?;
        writer.flush()?;
        Ok(TraceFile { writer: Some(writer), last_request: 0, recorded: Recorded::default() })
    }

    pub(super) fn recorded(&self) -> Recorded {
        self.recorded.clone()
    }

    /// Starts to record `topology`. Returns whether recording started.
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
