//! Readers of files: `/proc/diskstats`, the text of `iostat` and its JSON, and our own CSV.
//!
//! # Why
//! People who ask for help send the files that they have. The version, the locale and the terminal's width must not
//! decide whether a figure is read, and no figure may be read as another one.
//!
//! # How it works
//! [`recognise`] finds the kind of a file; one reader for each kind turns it into [`Interval`](super::Interval)s. They
//! share names and units of columns ([`columns`]) and the formats of numbers ([`figure`]) and times ([`times`]).
//! Unreadable parts are left out, with a line in [`Notes`].
//!
//! # Limits
//! Texts are held in memory as a whole. At most [`NOTES_MAX`] notes on a file are kept; the rest is counted.
//!
//! # Example
//! `nvme1n1 7497.00 105250.50` under `Device w/s wkB/s`: 7497 w/s, 105250.5 KiB/s, and every other column unknown.

pub(super) mod columns;
pub(super) mod diskstats_text;
pub(super) mod iostat_json;
pub(super) mod iostat_text;
pub(super) mod own_csv;
pub(super) mod recognise;
pub(super) mod times;

use super::Interval;

/// Most notes kept on a file.
pub(super) const NOTES_MAX: usize = 20;

/// Most rows of devices in all files together: of ten devices each second for a day. Each takes a kilobyte or two.
pub(super) const ROWS_MAX: usize = 1_000_000;

/// Returns the sentence about more rows than [`ROWS_MAX`].
pub(super) fn too_many_rows() -> String {
    format!("more than {ROWS_MAX} rows of devices up to here: cut the files into parts, or record less often")
}

/// Facts that files do not contain.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReadOptions {
    /// Seconds from one sample or report to the next, if these have no times. Above 0; anything else counts as not
    /// given.
    pub interval_s: Option<f64>,
    /// Whether the first report of an `iostat` is an interval like the others (`iostat -y`), not the mean since boot.
    pub is_first_an_interval: bool,
}

/// Notes on reading a file: one sentence each, with the file and, if it concerns one, the line.
#[derive(Debug, Default)]
pub(super) struct Notes {
    file: String,
    kept: Vec<String>,
    left_out: usize,
}

impl Notes {
    pub(super) fn of(file: &str) -> Notes {
        Notes { file: file.to_owned(), ..Notes::default() }
    }

    /// Adds a note on a line, counted from 1.
    pub(super) fn line(&mut self, line: usize, sentence: &str) {
        self.add(format!("{}:{line}: {sentence}", self.file));
    }

    /// Adds a note on the file as a whole, unless the same sentence is kept already.
    pub(super) fn file(&mut self, sentence: &str) {
        let note = format!("{}: {sentence}", self.file);
        if !self.kept.contains(&note) {
            self.add(note);
        }
    }

    /// Adds a note if the time has no zone.
    pub(super) fn zone(&mut self, stamp: times::Stamp) {
        if stamp.since == times::Since::LocalEpoch {
            self.file("times have no zone: taken as UTC");
        }
    }

    fn add(&mut self, note: String) {
        if self.kept.len() < NOTES_MAX {
            self.kept.push(note);
        } else {
            self.left_out += 1;
        }
    }

    /// Returns the notes in order, with the number of those left out.
    pub(super) fn into_vec(mut self) -> Vec<String> {
        if self.left_out > 0 {
            self.kept.push(format!("{}: {} more notes like these", self.file, self.left_out));
        }
        self.kept
    }
}

/// The content of a text or JSON of iostat.
#[derive(Debug, Default)]
pub(super) struct Reports {
    pub intervals: Vec<Interval>,
    /// The first host, such as `db1, Linux 6.1.0, 8 CPU`; the first of another name follows it.
    pub hosts: Vec<String>,
}

impl Reports {
    fn note_host(&mut self, host: String) {
        let is_other = |first: &String| host_name(first) != host_name(&host);
        if self.hosts.len() < 2 && self.hosts.first().is_none_or(is_other) {
            self.hosts.push(host);
        }
    }
}

/// Returns the name in `db1, Linux 6.1.0, 8 CPU`.
pub(super) fn host_name(host: &str) -> &str {
    host.split(',').next().unwrap_or_default()
}

/// Prepares a word of a file for a message: without control characters, cut after 40 characters.
pub(super) fn shown(word: &str) -> String {
    let mut shown: String = word.trim().chars().filter(|c| !c.is_control()).take(40).collect();
    if shown.len() < word.trim().len() {
        shown.push_str("...");
    }
    shown
}
