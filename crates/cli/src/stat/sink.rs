//! The sink of observed intervals: prints them to stdout in their format, and keeps them for pages and pictures.
//!
//! # Why
//! Live and saved intervals have the same outputs, which no source should know.
//!
//! # How it works
//! [`Sink::interval`] prints an interval at once. JSON is one document: its head precedes the first interval, its tail
//! is written by [`Sink::end`], so that it is complete whenever the run ends. The sink records whether any verdict was
//! a finding.
//!
//! # Limits
//! A program that is killed (SIGKILL) leaves JSON without its tail. A reader that closes stdout ends a live run; saved
//! intervals are all judged.
//!
//! # Example
//! `plimsoll stat 1 2 --format json` prints a head, two elements a second apart, a tail.

use plimsoll_observe::stat::Observed;
use plimsoll_observe::stat::history::History;
use plimsoll_observe::stat::host::Host;
use plimsoll_observe::stat::output::{Selection, csv, has_finding, json, time};
use plimsoll_observe::stat::programs::ClassRow;

use super::table::{self, Tables};
use crate::failure::{Failure, Outcome, told};
use crate::flags::ReportFormat;
use crate::screen;

/// Prints intervals and keeps them for pages and pictures.
pub(super) struct Sink<'a> {
    format: ReportFormat,
    tables: Tables,
    selection: Selection,
    host: Host,
    /// The intervals so far, if a page, pictures or a summary need them.
    history: &'a mut Option<History>,
    intervals: u64,
    has_finding: bool,
    /// The place of the answer of the summary at the end, if one is printed.
    summary: Option<AnswerPlace>,
    /// Whether only the summary is printed.
    is_silent: bool,
    /// Whether the reader of stdout has closed it. Intervals are then judged and kept, and not printed.
    pub(super) is_closed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerPlace {
    /// Before all intervals, in the words of [`History::answer`].
    Begin,
    /// Before all intervals, in other words, or cut off.
    BeginInOtherWords,
    /// Before the summary: a live run has an answer only at its end.
    End,
}

const SUMMARY_LINES: usize = 15;

impl Sink<'_> {
    /// Returns a sink that has not printed yet.
    pub(super) fn new(
        format: ReportFormat,
        tables: Tables,
        selection: Selection,
        host: Host,
        history: &mut Option<History>,
    ) -> Sink<'_> {
        let (intervals, has_finding, summary, is_silent, is_closed) = (0, false, None, false, false);
        Sink { format, tables, selection, host, history, intervals, has_finding, summary, is_silent, is_closed }
    }

    /// Ends a table with a summary; with `is_silent` prints nothing else.
    pub(super) fn with_summary(mut self, is_silent: bool, answer: AnswerPlace) -> Self {
        if self.format == ReportFormat::Table {
            self.history.get_or_insert_default();
            (self.summary, self.is_silent) = (Some(answer), is_silent);
        }
        self
    }

    /// Prints the selected part of an interval.
    pub(super) fn interval(&mut self, mut observed: Observed, classes: &[ClassRow]) -> Result<(), Failure> {
        self.selection.apply(&mut observed);
        self.has_finding |= has_finding(&observed);
        if let Some(history) = self.history {
            history.push(observed.clone());
        }
        if self.is_silent {
            return Ok(());
        }

        let is_first = self.intervals == 0;
        self.intervals += 1;
        let mut text = if is_first { self.head(observed.end_unix_ms)? } else { String::new() };
        match self.format {
            ReportFormat::Table => {
                text.push_str(&self.tables.interval(&observed));
                text.push_str(&table::classes(classes, screen::WIDTH));
            }
            ReportFormat::Json => text.push_str(&told(json::element(&observed, classes, is_first))?),
            ReportFormat::Csv => text.push_str(&csv::lines(&observed)),
        }
        self.print(&text)
    }

    /// Prints a part of the document, unless the reader has closed stdout.
    pub(super) fn print(&mut self, text: &str) -> Result<(), Failure> {
        self.is_closed = self.is_closed || !screen::print_if_open(text)?;
        Ok(())
    }

    /// Ends the document. Returns the outcome.
    pub(super) fn end(mut self) -> Result<Outcome, Failure> {
        if self.format == ReportFormat::Json {
            let head = if self.intervals == 0 { self.head(None)? } else { String::new() };
            self.print(&format!("{head}{}", json::TAIL))?;
        }
        if let (Some(history), Some(place)) = (self.history.as_ref(), self.summary) {
            let text = summary(history, place);
            if !text.is_empty() {
                self.print(&text)?;
            }
        }
        Ok(if self.has_finding { Outcome::Finding } else { Outcome::Done })
    }

    fn head(&self, at_unix_ms: Option<u64>) -> Result<String, Failure> {
        let date = at_unix_ms.and_then(|ms| time(ms, "%F"));
        match self.format {
            ReportFormat::Table => Ok(table::banner(&self.host, date.as_deref())),
            ReportFormat::Json => told(json::head(&self.host, date.as_deref())),
            ReportFormat::Csv => Ok(csv::header()),
        }
    }
}

/// Returns the summary of all intervals in at most [`SUMMARY_LINES`] lines, below the answer if `place` is the end. It
/// is empty for fewer than two intervals.
fn summary(history: &History, place: AnswerPlace) -> String {
    let answer = history.answer().filter(|_| place == AnswerPlace::End && history.has_summary());
    let answer = answer.as_ref().map(screen::answer).unwrap_or_default();
    let is_answered = match place {
        AnswerPlace::Begin => true,
        AnswerPlace::BeginInOtherWords => false,
        AnswerPlace::End => screen::is_whole(&answer),
    };

    let wrapped: Vec<String> = history.summary(is_answered).iter().map(|line| screen::wrap(line)).collect();
    let mut lines: Vec<&str> = wrapped.iter().flat_map(|text| text.lines()).collect();
    if lines.len() > SUMMARY_LINES {
        lines.truncate(SUMMARY_LINES - 1);
        lines.push("... (--page FILE has all devices)");
    }
    answer + &lines.join("\n")
}
