//! A table of a report: a header, and the rows under it.
//!
//! # Why
//! One table may be a quarter of a report, and one row of it may be three lines.
//!
//! # How it works
//! A row that has fewer figures than the header has columns stays open: a line of only figures continues it. In a table
//! that continues the one above, each line of figures belongs to the next device of that table.
//!
//! # Limits
//! A row that ends with more or fewer figures is refused: their columns are not certain. If up to a third of its words
//! are no figures, only their own columns are lost.
//!
//! # Example
//! Old `iostat -h` prints the name on a line of its own; the figures on the next line complete the row.

use std::collections::HashSet;

use super::super::columns::Column;
use super::super::{figure, shown};
use super::line::{Header, Place};
use crate::stat::Columns;

/// A row: a device and its figures, one for each column.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub device: String,
    pub words: Vec<String>,
    /// The number of its first line, from 1.
    pub line: usize,
    /// Whether it is the sum of a group.
    pub is_group: bool,
    /// Whether the table has a row of this device already.
    pub is_repeated: bool,
}

/// The result of taking a line.
#[derive(Clone, Debug)]
pub(super) enum Taken {
    /// The line completes a row.
    Row(Row),
    /// The row waits for the rest of its figures.
    Open,
    /// The row has more figures than columns.
    TooLong,
    /// The line is no row of this table.
    No,
}

/// A header and the state of the rows under it.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub place: Place,
    columns: Vec<Column>,
    names: Vec<String>,
    indent: usize,
    open: Option<Row>,
    /// The devices of its rows, in order.
    pub devices: Vec<String>,
    seen: HashSet<String>,
    /// Devices of the table above that wait for their line, the next one last.
    waiting: Vec<String>,
}

impl Table {
    /// Returns the table of a header. If the header has no word for the device, the table continues `above`.
    pub(super) fn new(header: Header, above: Option<&Table>) -> Table {
        let above = above.filter(|_| header.place == Place::Nowhere);
        Table {
            place: header.place,
            columns: header.columns,
            names: header.names,
            indent: header.indent,
            open: None,
            devices: Vec::new(),
            seen: HashSet::new(),
            waiting: above.map(|above| above.devices.iter().rev().cloned().collect()).unwrap_or_default(),
        }
    }

    /// Adds the columns of the next line of a wrapped header.
    pub(super) fn extend(&mut self, header: Header) {
        self.columns.extend(header.columns);
        self.names.extend(header.names);
    }

    /// Returns whether there was no row yet, so that the header may continue.
    pub(super) fn is_new(&self) -> bool {
        self.devices.is_empty() && self.open.is_none()
    }

    /// Takes out the row that waits for the rest of its figures.
    pub(super) fn take_open(&mut self) -> Option<Row> {
        // A name without any figure was no row.
        self.open.take().filter(|row| !row.words.is_empty())
    }

    /// Takes a line of only figures.
    pub(super) fn figures(&mut self, words: Vec<String>, line: usize) -> Taken {
        if let Some(mut row) = self.open.take() {
            row.words.extend(words);
            return self.complete(row);
        }
        match self.waiting.pop() {
            Some(device) => self.complete(Row { device, words, line, is_group: false, is_repeated: false }),
            None => Taken::No,
        }
    }

    /// Takes a line with a name; `indent` and `gap` are the blanks before its first and last word.
    pub(super) fn row(&mut self, words: &[String], line: usize, indent: usize, gap: usize) -> Taken {
        let count = self.columns.len();
        let is_figure = |word: &String| figure::parse(word).is_some();
        let split = match self.place {
            Place::First if words.len() == count + 1 => 1,
            // A name may have blanks.
            Place::First => words.iter().position(is_figure).unwrap_or(words.len()).max(1),
            Place::Last => count,
            Place::Nowhere => return Taken::No,
        };
        let Some((before, after)) = words.split_at_checked(split) else { return Taken::No };
        let (name, figures) = if self.place == Place::First { (before, after) } else { (after, before) };

        let known = figures.iter().filter(|word| is_figure(word)).count();
        // A few spoilt figures do not spoil a row that has a word for each column.
        let is_row = known == figures.len() || (figures.len() == count && known * 3 >= count * 2);
        if name.is_empty() || name.len() > 4 || !is_row {
            return Taken::No;
        }
        if figures.len() > count {
            return Taken::TooLong;
        }

        // sysstat writes a blank before the name of a group.
        let is_group = if self.place == Place::First { indent == self.indent + 1 } else { gap == 2 };
        let words = figures.to_vec();
        self.complete(Row { device: name.join(" "), words, line, is_group, is_repeated: false })
    }

    /// Returns the row if it is complete; else keeps it open for the missing figures.
    fn complete(&mut self, mut row: Row) -> Taken {
        if row.words.len() > self.columns.len() {
            return Taken::TooLong;
        }
        if row.words.len() < self.columns.len() {
            self.open = Some(row);
            return Taken::Open;
        }
        row.is_repeated = !row.is_group && !self.seen.insert(row.device.clone());
        if !row.is_group && !row.is_repeated {
            self.devices.push(row.device.clone());
        }
        Taken::Row(row)
    }

    /// Sets a device's columns from a row. Returns a sentence for each figure that is unknown.
    pub(super) fn set(&self, row: &Row, columns: &mut Columns) -> Vec<String> {
        let mut sentences = Vec::new();
        for ((column, name), word) in self.columns.iter().zip(&self.names).zip(&row.words) {
            let figure = figure::parse(word);
            let is_known = figure.is_some_and(|figure| column.set(columns, figure) && figure.number.is_some());
            if !is_known {
                sentences.push(format!("{name} of {} is `{}`: taken as unknown", shown(&row.device), shown(word)));
            }
        }
        sentences
    }

    /// Forgets all rows but the latest, which is that of `device`.
    pub(super) fn begin_again(&mut self, device: &str) {
        self.devices = vec![device.to_owned()];
        self.seen = HashSet::from([device.to_owned()]);
    }

    /// Returns the number of columns.
    pub(super) fn len(&self) -> usize {
        self.columns.len()
    }

    /// Returns the names of the columns.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }
}
