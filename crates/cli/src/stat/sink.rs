//! The sink of observed intervals: prints them to stdout in their format, and keeps them for pages and pictures.
//!
//! # Why
//! Live and saved intervals have the same outputs, which no source should know.
//!
//! # How it works
//! [`Sink::interval`] prints an interval at once. JSON is one document: its head precedes the first interval, its tail
//! is written by [`Sink::end`], so that it is complete whenever the run ends. The sink records whether any verdict was
//! a finding. All runs end in [`or_save`]: a failed run keeps its page and pictures, too.
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
use super::{Files, Kept, StatArguments};
use crate::failure::{Failure, Outcome, told};
use crate::flags::ReportFormat;
use crate::screen;

/// Prints intervals and keeps them for pages and pictures.
pub(super) struct Sink {
    format: ReportFormat,
    tables: Tables,
    selection: Selection,
    host: Host,
    kept: Kept,
    intervals: u64,
    has_finding: bool,
    /// The intervals of the summary at the end, if one is printed, and the place of its answer.
    summary: Option<(History, AnswerPlace)>,
    /// Whether only the summary is printed.
    is_silent: bool,
    /// Whether the reader of stdout has closed it. Intervals are then judged and kept, and not printed.
    pub(super) is_closed: bool,
}

/// The place of a summary's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerPlace {
    /// Before all intervals, in the words of [`History::answer`].
    Begin,
    /// Before all intervals, in other words, or cut off.
    BeginInOtherWords,
    /// Before the summary: a live run has an answer only at its end.
    End,
}

/// Most lines of a summary.
const SUMMARY_LINES: usize = 15;

impl Sink {
    /// Returns a sink that has not printed yet. `kept` collects the data of pictures.
    pub(super) fn new(format: ReportFormat, tables: Tables, selection: Selection, host: Host, kept: Kept) -> Sink {
        let (summary, is_silent, is_closed) = (None, false, false);
        Sink { format, tables, selection, host, kept, intervals: 0, has_finding: false, summary, is_silent, is_closed }
    }

    /// Ends a table with a summary; with `is_silent` prints nothing else.
    pub(super) fn with_summary(self, is_silent: bool, answer: AnswerPlace) -> Sink {
        match self.format {
            ReportFormat::Table => Sink { summary: Some((History::default(), answer)), is_silent, ..self },
            ReportFormat::Json | ReportFormat::Csv => self,
        }
    }

    /// Prints the selected part of an interval.
    pub(super) fn interval(&mut self, mut observed: Observed, classes: &[ClassRow]) -> Result<(), Failure> {
        self.selection.apply(&mut observed);
        self.has_finding |= has_finding(&observed);
        self.kept.push(&observed);
        if let Some((history, _)) = &mut self.summary {
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

    /// Ends the document. Returns the data of pictures, and the outcome.
    pub(super) fn end(mut self) -> (Kept, Result<Outcome, Failure>) {
        let ended = self.print_tail();
        let outcome = if self.has_finding { Outcome::Finding } else { Outcome::Done };
        (self.kept, ended.map(|()| outcome))
    }

    fn print_tail(&mut self) -> Result<(), Failure> {
        if self.format == ReportFormat::Json {
            let head = if self.intervals == 0 { self.head(None)? } else { String::new() };
            self.print(&format!("{head}{}", json::TAIL))?;
        }
        let summary = self.summary.as_ref().map(|(history, place)| summary(history, *place));
        summary.filter(|text| !text.is_empty()).map_or(Ok(()), |text| self.print(&text))
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

/// Returns the end of a run with the data of pages and pictures. If the run failed, writes these first: then they are
/// needed most.
pub(super) fn or_save(
    arguments: &StatArguments,
    kept: Kept,
    ended: Result<Outcome, Failure>,
) -> Result<(Kept, Outcome), Failure> {
    match ended {
        Ok(outcome) => Ok((kept, outcome)),
        Err(failure) => {
            if let Err(error) = Files::check(arguments).and_then(|files| files.write(&kept)) {
                screen::warning(&error.to_string());
            }
            Err(failure)
        }
    }
}
