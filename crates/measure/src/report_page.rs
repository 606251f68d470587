//! `plimsoll report`: makes one page from any results.
//!
//! **Why.** Result files are read long after the runs, several beside each other, by people who have neither the disk
//! nor the command line.
//!
//! **How.** [`read`] recognises a file by its content, and passes it to the functions that make the sections of the
//! writing command's own `--page`, so each result has one rendering. [`page()`] combines the sections into one HTML
//! page, a part for each file, below a table of the files and their kinds. Several sweeps share a part, with their
//! curves in one picture.
//!
//! | file | recognised by |
//! |---|---|
//! | `tune --format json` | `mountpoint` and `read_block`; a list of such for several disks |
//! | a record of `tune` | its first line, `"record": "plimsoll tune"` |
//! | `test --format json` | `jobs` and `by_shard` |
//! | `test --sweep --format json` | `axes` and `points` |
//! | `test --find-rate --format json` | `closed_loop_iops` and `trials` |
//! | `test --matrix --format json` | `rows` and `written_bytes` |
//! | `test --dual --format json` | `runs` and `finding` |
//! | `compare --format json` | `sides` and `comparisons` |
//! | `sim run --format json` | `runs` and `seeds` |
//! | `sim surface --format json` | `cells` |
//! | a card of `instance card` | `plimsoll_card` |
//! | a trace: own, blktrace, text of blkparse | its first bytes, or its lines |
//! | a recording of `stat`, `/proc/diskstats` samples, text or JSON of iostat | see [`plimsoll_observe::stat::from`] |
//!
//! **Limits.** Results are read whole, except traces; a file larger than [`FILE_BYTES_MAX`] that is no trace is
//! refused. JSON of analyses of traces lacks the data of their own pages; a sentence says what to do.
//!
//! **Example.**
//!
//! ```no_run
//! use plimsoll_measure::report_page::{page, read};
//! let results = [read("before.json".as_ref())?, read("after.json".as_ref())?];
//! std::fs::write("report.html", page("Two runs", &results))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub(crate) mod json;
pub(crate) mod sim;
mod stat;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use plimsoll_figures::units::format_bytes_binary;
use plimsoll_observe::trace::{self, stages};
use plimsoll_show::page::{self, Block, Part, Section};
use plimsoll_show::table::Table;
use serde::Serialize;
use serde_json::Value;

use crate::experiment::pictures;
use crate::experiment::sweep::SweepReport;
use crate::tune;
use crate::tune::record::Record;

/// Largest file that is read whole, in bytes: a two-day recording of `stat --record` of ten devices each second.
/// Parsing takes several times as much memory.
pub const FILE_BYTES_MAX: u64 = 256 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    Tune,
    TuneRecord,
    Test,
    Sweep,
    Search,
    Matrix,
    Dual,
    Compare,
    Sim,
    Surface,
    Card,
    Trace,
    /// Activity of disks: a recording of `stat`, samples of `/proc/diskstats`, or output of `iostat`.
    Stat,
}

impl Kind {
    pub const fn words(self) -> &'static str {
        match self {
            Kind::Tune => "measurement of a disk",
            Kind::TuneRecord => "record of a measurement",
            Kind::Test => "test",
            Kind::Sweep => "sweep",
            Kind::Search => "search for a rate",
            Kind::Matrix => "four usual loads",
            Kind::Dual => "a load once and twice",
            Kind::Compare => "comparison of tests",
            Kind::Sim => "simulation",
            Kind::Surface => "surface of a simulated disk",
            Kind::Card => "card of a machine",
            Kind::Trace => "trace of requests",
            Kind::Stat => "what disks did",
        }
    }
}

/// A result in the form for the page.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    pub file: String,
    pub kind: Kind,
    pub part: Part,
    /// Sentences on the parts that could not be read.
    pub notes: Vec<String>,
    /// The result, if it is a sweep: its curves are drawn together with those of others.
    sweep: Option<SweepReport>,
}

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("{file}: cannot read it: {error}")]
    Io { file: String, error: io::Error },
    /// The file is unknown or damaged: its name, and a sentence with the remedy.
    #[error("{0}")]
    Content(String),
}

const EXPECTED: &str = "expected JSON that `plimsoll tune`, `test`, `compare` or `sim run` printed, a record of tune, \
                        a card of a machine, a trace, a recording of `plimsoll stat`, samples of /proc/diskstats, or \
                        output of iostat";

/// The contents of a file: title, sections, and notes on unreadable parts.
struct Content {
    kind: Kind,
    title: String,
    sections: Vec<Section>,
    notes: Vec<String>,
    sweep: Option<SweepReport>,
}

impl Content {
    fn new(kind: Kind, title: String, sections: Vec<Section>) -> Content {
        Content { kind, title, sections, notes: Vec::new(), sweep: None }
    }
}

/// Reads the file at `path`, a result of any kind.
pub fn read(path: &Path) -> Result<Shown, ReadError> {
    let file = path.display().to_string();
    let found = match sort(path)? {
        Sorted::Trace => of_trace(path, &file),
        Sorted::Record(text) => of_record(&file, &text),
        Sorted::Json(text, value) => {
            json::read(&file, &text, &value).unwrap_or_else(|| stat::read(&file, text.as_bytes()))
        }
        Sorted::Other(bytes) => stat::read(&file, &bytes),
    };

    let Content { kind, title, sections, notes, sweep } =
        found.map_err(|reason| ReadError::Content(with_file(&file, reason)))?;
    Ok(Shown { file, kind, part: Part { title, sections }, notes, sweep })
}

/// A file, sorted by its first bytes or lines.
pub(crate) enum Sorted {
    /// A trace by its first bytes or lines, or any other binary file.
    Trace,
    Record(String),
    /// JSON other than iostat's.
    Json(String, Value),
    /// Activity of disks, or a file of unknown kind.
    Other(Vec<u8>),
}

/// Reads the file at `path`, unless it is a trace, until its kind is known.
pub(crate) fn sort(path: &Path) -> Result<Sorted, ReadError> {
    let file = path.display().to_string();
    let mut input = open(path)?;
    let mut head = Vec::new();
    input
        .by_ref()
        .take(trace::HEAD_BYTES)
        .read_to_end(&mut head)
        .map_err(|error| ReadError::Io { file: file.clone(), error })?;
    if head.is_empty() {
        return Err(ReadError::Content(format!("{file}: the file is empty: {EXPECTED}")));
    }
    if head.contains(&0) || trace::is_trace(&head) {
        return Ok(Sorted::Trace);
    }

    let bytes = rest(input, head, path)?;
    let text = String::from_utf8_lossy(&bytes);
    // The JSON may be large, so it is not parsed here.
    if is_iostat_json(&text) {
        return Ok(Sorted::Other(bytes));
    }
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    if let Ok(line) = serde_json::from_str::<Value>(first)
        && line.get("record").and_then(Value::as_str) == Some("plimsoll tune")
    {
        return Ok(Sorted::Record(text.into_owned()));
    }
    if text.trim_start().starts_with(['{', '['])
        && let Ok(value) = serde_json::from_str(&text)
    {
        return Ok(Sorted::Json(text.into_owned(), value));
    }
    Ok(Sorted::Other(bytes))
}

/// Reads a file into memory.
pub fn read_whole(path: &Path) -> Result<Vec<u8>, ReadError> {
    rest(open(path)?, Vec::new(), path)
}

fn open(path: &Path) -> Result<File, ReadError> {
    let failed = |error| ReadError::Io { file: path.display().to_string(), error };
    let input = File::open(path).map_err(failed)?;
    if input.metadata().map_err(failed)?.is_dir() {
        return Err(ReadError::Content(format!("{}: it is a directory: name the files in it", path.display())));
    }
    Ok(input)
}

/// Reads the rest of a file after `bytes`. If the file reports a size that is too large, refuses it without reading. A
/// device or a pipe reports no size, so its bytes are counted while reading.
fn rest(input: File, mut bytes: Vec<u8>, path: &Path) -> Result<Vec<u8>, ReadError> {
    let file = path.display();
    let failed = |error| ReadError::Io { file: file.to_string(), error };

    let told_bytes = input.metadata().map_err(failed)?.len();
    if told_bytes <= FILE_BYTES_MAX {
        let left = (FILE_BYTES_MAX + 1).saturating_sub(bytes.len() as u64);
        input.take(left).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 <= FILE_BYTES_MAX {
            return Ok(bytes);
        }
    }

    let most = format_bytes_binary(FILE_BYTES_MAX);
    let has = if told_bytes > FILE_BYTES_MAX { format_bytes_binary(told_bytes) } else { format!("more than {most}") };
    Err(ReadError::Content(format!(
        "{file}: it has {has}, and a file may have {most} at the most: cut it into parts, or record less often"
    )))
}

/// Returns the sentence with the file in front. Some readers have already put the file and the line there.
fn with_file(file: &str, reason: String) -> String {
    if reason.starts_with(&format!("{file}:")) { reason } else { format!("{file}: {reason}") }
}

fn of_trace(path: &Path, file: &str) -> Result<Content, String> {
    let mut sums = stages::Stages::new(&[stages::By::Class, stages::By::Size]);
    let trace = trace::read(path, &mut |item| sums.visit(&item)).map_err(|error| format!("{error}; {EXPECTED}"))?;
    let report = sums.finish(&trace);
    let notes = trace.remarks().cloned().collect();
    Ok(Content { notes, ..Content::new(Kind::Trace, format!("Stages of {file}"), report.sections()) })
}

fn of_record(file: &str, text: &str) -> Result<Content, String> {
    let record = Record::parse(file, text).map_err(|error| error.to_string())?;
    let (title, sections) = tune::pictures::sections(&tune::analyse(&record));
    Ok(Content::new(Kind::TuneRecord, title, sections))
}

/// Returns whether the text begins like iostat's JSON: with the key `sysstat`, after any white space.
fn is_iostat_json(text: &str) -> bool {
    let begin = text.trim_start_matches('\u{feff}').trim_start();
    let map = begin.strip_prefix('[').map_or(begin, str::trim_start).strip_prefix('{');
    map.is_some_and(|keys| keys.trim_start().starts_with("\"sysstat\""))
}

/// Returns the page: a part for each result, below a table of the results if there are several, and the curves of
/// several sweeps.
pub fn page(title: &str, results: &[Shown]) -> String {
    let with_notes = |result: &Shown| {
        let mut part = result.part.clone();
        if !result.notes.is_empty() {
            let blocks = vec![Block::Warnings(result.notes.clone())];
            part.sections.insert(0, Section { heading: "What could not be read".to_owned(), blocks });
        }
        part
    };

    let mut parts: Vec<Part> = results.iter().map(with_notes).collect();
    if parts.len() > 1 {
        let rows = results.iter().map(|result| [result.file.clone(), result.kind.words().to_owned()]);
        let table = Table::new("", ["file", "what it is"], rows);
        let sections = vec![Section::new("What they are", [table.into()])];
        parts.insert(0, Part { title: "Files".to_owned(), sections });
    }
    let sweeps: Vec<(&str, &SweepReport)> =
        results.iter().filter_map(|result| Some((result.file.as_str(), result.sweep.as_ref()?))).collect();
    if sweeps.len() > 1 {
        let sections = pictures::of_sweeps(&sweeps).into_iter().map(Section::from).collect();
        parts.insert(1, Part { title: "Sweeps together".to_owned(), sections });
    }
    page::html_of_parts(title, &parts)
}

#[cfg(test)]
mod tests;
