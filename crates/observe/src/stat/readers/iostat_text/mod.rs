//! The text of iostat, in every layout of sysstat 7 to 12.
//!
//! # Why
//! People paste text. It comes in layouts of ten years: columns in any order, tables split in four, the name of the
//! device first or last, lines wrapped by a terminal or quoted in a mail.
//!
//! # How it works
//! [`line`] finds the kind of a line. A header is found by the names of its columns, so that the word for the device
//! may be in any language; it opens a [`table::Table`], which takes the rows below. A header without a word for the
//! device continues the rows of the table above. A report ends where the next begins: at a banner, a time, `avg-cpu`, a
//! header whose columns the report already has, or a first device that repeats without a header (lines selected with
//! `grep`).
//!
//! Quotes (`> `), colours and the prefixes that collectors write ([`prefix`]) are removed. A last line without a line
//! break is left out if it lacks columns, digits in its last figure or the end of a name: a cut figure is a wrong one.
//!
//! # Limits
//! Rows without any header are not read. Text between reports is skipped; it closes the table above it, so that the
//! numbers of another program are not taken for devices. Which report is since boot: see [`from`](super::super::from).
//!
//! # Example
//! ```text
//!      w/s     wkB/s w_await Device          one report: nvme0n1 with 16597 w/s, 632217.6 KiB/s,
//!  16597.00    617.4M    0.14 nvme0n1        0.14 ms, aqu-sz 2.28 and 96 %util
//!
//!   aqu-sz  %util Device
//!     2.28  96.0% nvme0n1
//! ```

mod line;
mod prefix;
mod report;
mod table;

#[cfg(test)]
mod tests;

use super::times::{DayOrder, Since, Stamp};
use super::{Notes, ReadOptions, figure};
use crate::stat::Interval;
use line::Line;
use report::Report;
pub(in crate::stat) use report::cpu_shares;
use table::{Table, Taken};

/// The content of a text.
#[derive(Debug, Default)]
pub(in crate::stat) struct Text {
    /// The reports, in order.
    pub intervals: Vec<Interval>,
    /// The host by the first banner: `ubuntu, Linux 5.8.0-53-generic, 2 CPU`.
    pub host: Option<String>,
}

/// Returns whether a text has a header of iostat.
pub(in crate::stat) fn has_header(text: &str) -> bool {
    let is_candidate = |line: &str| line.contains(['/', '%', '_']) || line.contains("tps");
    if !text.lines().any(is_candidate) {
        return false;
    }
    let (lines, _) = prefix::bare(text, DayOrder::of(text));
    let lines = lines.iter().map(|bare| bare.text.as_str()).filter(|line| is_candidate(line));
    lines.into_iter().any(|line| line::header(line).is_some_and(|header| header.has_device()))
}

/// Reads all reports of a text.
pub(in crate::stat) fn read(text: &str, options: &ReadOptions, notes: &mut Notes) -> Text {
    let mut reader = Reader {
        options: *options,
        notes,
        text: Text::default(),
        report: Report::default(),
        table: None,
        cpu_names: None,
        is_next_since_boot: false,
        has_y: false,
        last: None,
    };
    let order = DayOrder::of(text);
    let (lines, host) = prefix::bare(text, order);
    if let Some(host) = host {
        reader.notes.file(&format!("lines of several hosts: only those of {} are read", super::shown(&host)));
    }

    let count = lines.len();
    for (at, bare) in lines.into_iter().enumerate() {
        let is_unended = at + 1 == count && !text.ends_with('\n');
        let line = line::classify(&bare.text, order);
        let is_of_a_table = matches!(line, Line::Header(_) | Line::Figures(_) | Line::Words { .. });
        reader.take(line, at + 1, is_unended);
        if let Some(stamp) = bare.stamp.filter(|_| is_of_a_table && !reader.report.is_empty()) {
            reader.report.stamp.get_or_insert(stamp);
        }
    }
    reader.end_report();
    reader.text
}

struct Reader<'a> {
    options: ReadOptions,
    notes: &'a mut Notes,
    text: Text,
    report: Report,
    table: Option<Table>,
    /// Names of the CPU's columns, if their figures are next.
    cpu_names: Option<Vec<String>>,
    is_next_since_boot: bool,
    /// Whether the command line above has `-y`.
    has_y: bool,
    /// Time of the latest complete report.
    last: Option<Stamp>,
}

impl Reader<'_> {
    /// Takes the `at`-th line. `is_unended` means that it is the last one, without a line break.
    fn take(&mut self, line: Line, at: usize, is_unended: bool) {
        let cpu_names = if matches!(line, Line::Blank) { None } else { self.cpu_names.take() };

        match line {
            Line::Blank => {}
            Line::Banner(host) => {
                self.begin_run(!self.has_y);
                self.has_y = false;
                self.text.host.get_or_insert(host);
            }
            Line::Command { is_first_an_interval } => {
                self.begin_run(!is_first_an_interval);
                self.has_y = is_first_an_interval;
            }
            Line::Time(stamp) => {
                if !self.report.is_empty() {
                    self.end_report();
                }
                self.report.stamp = Some(stamp);
            }
            Line::CpuHeader(names) => {
                if !self.report.is_empty() {
                    self.end_report();
                }
                self.cpu_names = Some(names);
            }
            Line::Header(header) => self.header(header, at),
            Line::Figures(words) if cpu_names.is_some() => {
                self.report.set_cpu(&cpu_names.unwrap_or_default(), &words, at, self.notes);
            }
            Line::Figures(words) | Line::Words { words, .. } if is_unended && is_cut(&words) => {
                self.notes.line(at, "the text ends within this line: left out");
            }
            Line::Figures(words) => {
                if let Some(table) = &mut self.table {
                    let taken = table.figures(words, at);
                    self.taken(taken, at);
                }
            }
            Line::Words { words, indent, gap } => self.words(&words, at, indent, gap, is_unended),
            Line::Other => self.close_table(),
        }
    }

    /// Begins another run of iostat, after a banner or a command line.
    fn begin_run(&mut self, is_since_boot: bool) {
        self.end_report();
        self.last = None;
        self.is_next_since_boot = is_since_boot && !self.options.is_first_an_interval;
    }

    fn header(&mut self, header: line::Header, at: usize) {
        self.flush_row();
        for name in &header.unknown {
            let name = super::shown(name);
            self.notes.file(&format!("column `{name}` is not known: left out"));
        }

        let is_wrapped = !header.has_device() && self.table.as_ref().is_some_and(Table::is_new);
        if let Some(table) = self.table.as_mut().filter(|_| is_wrapped) {
            self.report.add_names(&header.names);
            return table.extend(header);
        }

        if self.report.has_any_of(&header.names) {
            self.end_report();
        }
        if !header.has_device() && self.table.is_none() {
            return self.notes.line(at, "a header without devices above or beside it: left out");
        }
        self.report.add_names(&header.names);
        self.report.tables += 1;
        self.table = Some(Table::new(header, self.table.as_ref()));
    }

    fn words(&mut self, words: &[String], at: usize, indent: usize, gap: usize, is_unended: bool) {
        self.flush_row();
        let Some(table) = &mut self.table else { return };
        let taken = table.row(words, at, indent, gap);
        if let Taken::Row(row) = &taken {
            let is_cut_name = is_unended && table.place == line::Place::Last && self.is_begin_of_a_name(&row.device);
            if is_cut_name {
                return self.notes.line(at, "the text ends within this line: left out");
            }
        }
        self.taken(taken, at);
    }

    /// Returns whether a name is the begin of another device's, and no device has it.
    fn is_begin_of_a_name(&self, name: &str) -> bool {
        let devices = self.text.intervals.iter().chain([&self.report.interval]).flat_map(|interval| &interval.devices);
        let mut names = devices.map(|device| device.device.as_str());
        let is_begin = names.clone().any(|other| other.len() > name.len() && other.starts_with(name));
        is_begin && !names.any(|other| other == name)
    }

    fn taken(&mut self, taken: Taken, at: usize) {
        match taken {
            Taken::Row(row) => self.add(&row),
            Taken::Open => {}
            Taken::TooLong => {
                let count = self.table.as_ref().map_or(0, Table::len);
                self.notes.line(at, &format!("more figures than the {count} columns of the header: left out"));
            }
            Taken::No => self.close_table(),
        }
    }

    fn add(&mut self, row: &table::Row) {
        let Some(table) = &mut self.table else { return };
        let is_first = table.devices.first() == Some(&row.device);
        if row.is_repeated && is_first && self.report.tables == 1 && table.devices.len() == self.report.len() {
            // Rows without headers between them: each round of the devices is a report.
            table.begin_again(&row.device);
            let again = self.table.take();
            self.end_report();
            if let Some(table) = &again {
                self.report.add_names(table.names());
                self.report.tables = 1;
            }
            self.table = again;
        } else if row.is_repeated {
            let name = super::shown(&row.device);
            return self.notes.line(row.line, &format!("{name} stands twice in a report: the first row counts"));
        }

        if let Some(table) = &self.table {
            let sentences = self.report.add(table, row);
            sentences.iter().for_each(|sentence| self.notes.line(row.line, sentence));
        }
    }

    /// Drops an incomplete row, with a note.
    fn flush_row(&mut self) {
        let Some(table) = &mut self.table else { return };
        if let Some(row) = table.take_open() {
            let (name, count) = (super::shown(&row.device), table.len());
            let sentence = format!("{name} has {} figures, the header {count} columns: left out", row.words.len());
            self.notes.line(row.line, &sentence);
        }
    }

    fn close_table(&mut self) {
        self.flush_row();
        self.table = None;
    }

    fn end_report(&mut self) {
        self.close_table();
        self.cpu_names = None;
        if self.report.is_empty() {
            return;
        }

        let report = std::mem::take(&mut self.report);
        let stamp = report.stamp;
        let mut interval = report.into_interval(self.notes);
        interval.is_since_boot = std::mem::take(&mut self.is_next_since_boot);
        interval.end_unix_ms = stamp.and_then(Stamp::unix_ms);
        if stamp.is_some_and(|stamp| stamp.since == Since::LocalEpoch) {
            self.notes.file("times have no zone: taken as UTC");
        }
        interval.duration_s = match self.last.zip(stamp) {
            _ if interval.is_since_boot => None,
            Some((last, stamp)) => stamp.seconds_since(last),
            None => self.options.interval_s,
        };
        self.last = stamp;
        self.text.intervals.push(interval);
    }
}

/// Returns whether the last figure of a line has fewer decimals than all others: a part of it is missing.
fn is_cut(words: &[String]) -> bool {
    let mut decimals = words.iter().rev().filter_map(|word| figure::parse(word)).map(|figure| figure.decimals);
    let ends_in_figure = words.last().is_some_and(|word| word.ends_with(['.', ',']) || figure::parse(word).is_some());
    let last = decimals.next();
    let others = decimals.min();
    ends_in_figure && last.zip(others).is_some_and(|(last, others)| last < others)
}
