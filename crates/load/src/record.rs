//! Records runs: one trace file for all runs under a control.
//!
//! **Why.** `--trace FILE` is the same for every command that runs loads. Such a command often makes several runs, each
//! with a topology of its own.
//!
//! **How.** [`TraceFile::create`] creates the file once. Each run records into it and returns the writer; request
//! numbers continue from the last run, and names are written again. Until the first run begins nothing is lost: an
//! existing file keeps its contents, and a new one is removed again if no run begins, as when a command is refused.
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
//! assert_eq!(control.instruments.recorded(), None);
//! # std::fs::remove_dir_all(&directory)?;
//! # Ok::<(), std::io::Error>(())
//! ```

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
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
    /// `None` from the first run on.
    before: Option<Before>,
    /// `None` before the first run, while a run records, and after an error.
    writer: Option<TraceWriter>,
    last_request: u64,
    recorded: Recorded,
}

impl std::fmt::Debug for TraceFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TraceFile({:?})", self.recorded)
    }
}

/// A file before the first run.
enum Before {
    /// A file that was there. The first run empties it.
    Existing(File),
    /// A new file, or no regular one (a pipe). It has its header, so that a full disk is found before the work.
    Open(TraceWriter, Made),
}

/// The path of a file that this program made and that is removed if no run begins; `None`: it stays.
struct Made(Option<PathBuf>);

impl Drop for Made {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // The command reports why nothing was run.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Before {
    fn of(path: &Path) -> io::Result<Before> {
        let file = match File::create_new(path) {
            Ok(file) => {
                let made = Made(Some(path.to_owned()));
                return Ok(Before::Open(writer(file)?, made));
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => OpenOptions::new().write(true).open(path)?,
            Err(error) => return Err(error),
        };
        match file.metadata()?.is_file() {
            true => Ok(Before::Existing(file)),
            false => Ok(Before::Open(writer(file)?, Made(None))),
        }
    }

    fn begin(self) -> io::Result<TraceWriter> {
        match self {
            Before::Existing(file) => {
                file.set_len(0)?;
                writer(file)
            }
            Before::Open(writer, mut made) => {
                made.0 = None;
                Ok(writer)
            }
        }
    }
}

/// Returns the writer of a trace that has its header.
fn writer(file: File) -> io::Result<TraceWriter> {
    let out: Box<dyn Write + Send> = Box::new(BufWriter::with_capacity(BUFFER_BYTES, file));
    let unix_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let mut writer = Writer::new(out, Clock::Monotonic, unix_ns.saturating_sub(now_ns()))?;
    writer.flush()?;
    Ok(writer)
}

impl TraceFile {
    /// Creates the file at `path`, or opens an existing one to be overwritten.
    pub fn create(path: &Path) -> io::Result<TraceFile> {
        let before = Before::of(path)?;
        Ok(TraceFile { before: Some(before), writer: None, last_request: 0, recorded: Recorded::default() })
    }

    /// Returns the progress; `None` before the first run.
    pub(super) fn recorded(&self) -> Option<Recorded> {
        self.before.is_none().then(|| self.recorded.clone())
    }

    /// Starts to record `topology`. Returns whether recording started.
    pub(super) fn start(&mut self, topology: &Topology) -> bool {
        if let Some(before) = self.before.take() {
            match before.begin() {
                Ok(writer) => self.writer = Some(writer),
                Err(error) => self.recorded.error = Some(error.to_string()),
            }
        }
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
