//! Stores any result or recording in a depot.
//!
//! **Why.** A fleet produces files of every kind; one command takes them all, as [`crate::report_page`] does.
//!
//! **How.** A file is recognised by its content. Traces, recordings of `stat` and results go to the tables of
//! [`plimsoll_observe::depot`]. The names of the files there are hashes of the content: of its beginning if the file
//! may still grow (traces, with the files of all CPUs; recordings, with their first time; records of `tune`), of all of
//! another result.
//!
//! **Limits.** Archives that `stat --from` unpacks (tar, gzip) have to be unpacked first. A trace that grew from less
//! than [`TRACE_NAMED_BY_BYTES`], or a recording from less than [`STAT_NAMED_BY_BYTES`], gets another name than before.
//!
//! **Example.**
//! ```no_run
//! use plimsoll_measure::depot::{Options, store};
//! use plimsoll_observe::depot::Root;
//! use plimsoll_observe::stat::watch::Watch;
//! let root = Root::parse("depot".as_ref())?;
//! let stored = store(&root, "test.json".as_ref(), &Options::default(), &mut Watch::default())?;
//! println!("{} rows", stored.files.iter().map(|file| file.rows).sum::<u64>());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod figures;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use plimsoll_observe::depot::{self, DepotError, Place, Root, Written, disks, trace as traces};
use plimsoll_observe::stat::ReadOptions;
use plimsoll_observe::stat::from::{self, FromError};
use plimsoll_observe::stat::watch::Watch;
use plimsoll_observe::trace;
use twox_hash::XxHash3_64;

use crate::report_page::{ReadError, Sorted, sort};
use crate::tune;
use crate::tune::record::Record;

/// First bytes of a trace that determine its name. Two simulated traces of one load may have a long common beginning.
pub const TRACE_NAMED_BY_BYTES: u64 = 1 << 20;

/// First bytes of a recording of disks that determine its name, together with its first time, which may come later.
pub const STAT_NAMED_BY_BYTES: u64 = 4096;

const DAY_ORDER_OPEN: &str = "its dates do not show whether the day is first: taken as month first; run iostat with \
     S_TIME_FORMAT=ISO, or put a day above 12 into the same file";

/// The origin of the files, where they do not state it, and what to store.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The host, whatever the file says; `None`: the file's own.
    pub host: Option<String>,
    /// The unix time in ns of results and of the begin of traces; `None`: the files' own.
    pub at_unix_ns: Option<i64>,
    /// Whether to store only the histograms of traces, without spans.
    pub no_spans: bool,
    /// Whether the depot has a directory for each hour.
    pub by_hour: bool,
}

#[derive(Clone, Debug)]
pub struct Stored {
    pub files: Vec<Written>,
    /// Sentences on the parts that could not be read.
    pub notes: Vec<String>,
}

/// Why a file was not stored: a sentence with the file's name.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("{file}: {reason}")]
    Content { file: String, reason: String },
    #[error("{file}: {error}")]
    Depot { file: String, error: DepotError },
}

/// Reads a time such as `2026-03-14T12:00:00Z`. Returns its unix time in ns.
///
/// # Errors
/// A sentence that states the expected form.
pub fn parse_time(text: &str) -> Result<i64, String> {
    let time = text.parse::<jiff::Timestamp>().ok().and_then(|time| i64::try_from(time.as_nanosecond()).ok());
    time.ok_or_else(|| format!("--at {text}: expected a time with its zone, such as 2026-03-14T12:00:00Z"))
}

/// Stores the file at `path` in the depot at `root`. `watch` judges the disks of a recording.
///
/// # Errors
/// [`StoreError`]. Files in the depot from an earlier call stay as they are.
pub fn store(root: &Root, path: &Path, options: &Options, watch: &mut Watch) -> Result<Stored, StoreError> {
    let file = path.display().to_string();
    let of = Source { root, path, options };

    // blktrace's NAME stands for the files NAME.blktrace.0, .1...
    let files = trace::files_of(path);
    let stored = match sort(files.first().map_or(path, PathBuf::as_path))? {
        Sorted::Trace => of.trace(),
        Sorted::Record(text) => Record::parse(&file, &text)
            .map_err(|error| Why::Content(error.to_string()))
            .and_then(|record| of.figures(named_by(&record, &text), figures::of_tunes(&[tune::analyse(&record)]))),
        Sorted::Json(text, value) => match figures::read(&file, &text, &value) {
            Some(found) => found.map_err(Why::Content).and_then(|found| of.figures(&text, found)),
            None => of.disks(text.as_bytes(), watch),
        },
        Sorted::Other(bytes) => of.disks(&bytes, watch),
    };

    stored.map_err(|why| match why {
        // Some readers have already put the file and the line into the reason.
        Why::Content(reason) => {
            let reason = reason.strip_prefix(&format!("{file}: ")).unwrap_or(&reason).to_owned();
            StoreError::Content { file, reason }
        }
        Why::Depot(error) => StoreError::Depot { file, error },
    })
}

enum Why {
    Content(String),
    Depot(DepotError),
}

impl From<DepotError> for Why {
    fn from(error: DepotError) -> Why {
        Why::Depot(error)
    }
}

impl From<traces::StoreError> for Why {
    fn from(error: traces::StoreError) -> Why {
        match error {
            traces::StoreError::Trace(error) => Why::Content(error.to_string()),
            traces::StoreError::Depot(error) => Why::Depot(error),
        }
    }
}

struct Source<'a> {
    root: &'a Root,
    path: &'a Path,
    options: &'a Options,
}

impl Source<'_> {
    fn trace(&self) -> Result<Stored, Why> {
        let mut begins = Vec::new();
        for file in trace::files_of(self.path) {
            begins.extend(begin(&file, TRACE_NAMED_BY_BYTES)?);
        }
        let place = self.place("trace", &begins, None)?;
        let options = traces::TraceOptions { at_unix_ns: self.options.at_unix_ns, with_spans: !self.options.no_spans };
        let (files, notes) = traces::store(&place, self.path, options)?;
        Ok(Stored { files, notes })
    }

    fn disks(&self, bytes: &[u8], watch: &mut Watch) -> Result<Stored, Why> {
        let file = self.path.display().to_string();
        let recorded = from::read(&file, bytes, &ReadOptions::default())
            .map_err(|error: FromError| Why::Content(error.to_string()))?;
        if self.options.at_unix_ns.is_some() {
            return Err(Why::Content("a recording of disks says itself when it was: leave --at out".to_owned()));
        }
        // A recording begins with a description of the host, which is long if the host has many disks.
        let first_ms = recorded.intervals.iter().find_map(|interval| interval.end_unix_ms).unwrap_or(0);
        let begin = bytes.get(..STAT_NAMED_BY_BYTES as usize).unwrap_or(bytes);
        let place =
            self.place("stat", &[begin, &first_ms.to_le_bytes()].concat(), recorded.hosts.first().map(String::as_str))?;
        let observed: Vec<_> = recorded.observed(watch).collect();
        let mut notes = recorded.notes;
        if recorded.is_day_order_open {
            notes.push(DAY_ORDER_OPEN.to_owned());
        }
        Ok(Stored { files: disks::store(&place, &observed, &recorded.facts)?, notes })
    }

    fn figures(&self, named_by: &str, found: figures::Found) -> Result<Stored, Why> {
        let at_us = self.options.at_unix_ns.map(|ns| ns.div_euclid(1000)).or(found.at_us);
        let at_us = at_us.ok_or(DepotError::NoTime { what: "result" })?;
        let place = self.place("result", named_by.as_bytes(), found.host.as_deref())?;
        Ok(Stored { files: depot::figures::store(&place, at_us, &found.figures)?, notes: Vec::new() })
    }

    /// Returns the place of the file in the depot; these bytes of the file determine its name.
    fn place(&self, kind: &'static str, named_by: &[u8], said: Option<&str>) -> Result<Place, DepotError> {
        let what = if kind == "stat" { "recording" } else { kind };
        let host = self.options.host.as_deref().or(said).ok_or(DepotError::NoHost { what })?;
        let mut place = Place::new(self.root, host, format!("{kind}-{:016x}", XxHash3_64::oneshot(named_by)))?;
        place.is_by_hour = self.options.by_hour;
        Ok(place)
    }
}

/// Returns the part of a record of `tune` that determines its name. A measurement that is gone on with changes all
/// lines but the first, which says where and when it began; without that, other records may begin alike.
fn named_by<'a>(record: &Record, text: &'a str) -> &'a str {
    match record.header.site.place {
        Some(_) => text.split_inclusive('\n').next().unwrap_or(text),
        None => text,
    }
}

/// Reads at most `len_bytes` from the beginning of the file at `path`.
fn begin(path: &Path, len_bytes: u64) -> Result<Vec<u8>, Why> {
    let mut begin = Vec::new();
    let read = File::open(path).and_then(|file| file.take(len_bytes).read_to_end(&mut begin));
    read.map(|_| begin).map_err(|error: io::Error| Why::Content(format!("cannot read it: {error}")))
}

#[cfg(test)]
mod tests;
