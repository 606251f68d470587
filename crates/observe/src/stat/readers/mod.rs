//! Readers of what others wrote down: `/proc/diskstats`, the text of `iostat` and its JSON.
//!
//! # Why
//! Whoever asks for help sends what is at hand. A format of one version, one locale, one terminal's width must not
//! decide whether a figure is read, and never may it be read as another figure.
//!
//! # How it works
//! [`recognise`] tells what a file is, one reader each makes [`Interval`](super::Interval)s of it. They share what a
//! column is called and counts ([`columns`]), how numbers are written ([`figure`]) and how times are ([`times`]). What
//! cannot be read is left out, and a [`Notes`] line says so.
//!
//! # Limits
//! Texts are held in memory as a whole. No more than [`NOTES_MAX`] notes of a file are kept; the rest is counted.
//!
//! # Example
//! `nvme1n1 7497.00 105250.50` under `Device w/s wkB/s`: 7497 w/s, 105250.5 KiB/s, and every other column unknown.

pub(super) mod columns;
pub(super) mod diskstats_text;
pub(super) mod figure;
pub(super) mod iostat_json;
pub(super) mod iostat_text;
pub(super) mod recognise;
pub(super) mod times;

/// The most notes that are kept of a file.
pub(super) const NOTES_MAX: usize = 20;

/// What the files do not say.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReadOptions {
    /// Seconds from one sample or report to the next, where they carry no times. Above 0; anything else counts as not
    /// given.
    pub interval_s: Option<f64>,
    /// Whether the first report of an `iostat` is an interval as the others are (`iostat -y`), not the mean since boot.
    pub is_first_an_interval: bool,
}

/// What is to be said about reading a file: one sentence each, with file and line.
#[derive(Debug, Default)]
pub(super) struct Notes {
    file: String,
    kept: Vec<String>,
    left_out: usize,
}

impl Notes {
    /// Of the file of that name.
    pub(super) fn of(file: &str) -> Notes {
        Notes { file: file.to_owned(), ..Notes::default() }
    }

    /// Of a line, counted from 1.
    pub(super) fn line(&mut self, line: usize, sentence: &str) {
        self.add(format!("{}:{line}: {sentence}", self.file));
    }

    /// Of the file as a whole; the same sentence is kept once.
    pub(super) fn file(&mut self, sentence: &str) {
        let note = format!("{}: {sentence}", self.file);
        if !self.kept.contains(&note) {
            self.add(note);
        }
    }

    fn add(&mut self, note: String) {
        if self.kept.len() < NOTES_MAX {
            self.kept.push(note);
        } else {
            self.left_out += 1;
        }
    }

    /// All, in order.
    pub(super) fn into_vec(mut self) -> Vec<String> {
        if self.left_out > 0 {
            self.kept.push(format!("{}: {} more notes like these", self.file, self.left_out));
        }
        self.kept
    }
}

/// A word of a file as it may stand in a message: without control characters, and no longer than 40 characters.
pub(super) fn shown(word: &str) -> String {
    let mut shown: String = word.trim().chars().filter(|c| !c.is_control()).take(40).collect();
    if shown.len() < word.trim().len() {
        shown.push_str("...");
    }
    shown
}
