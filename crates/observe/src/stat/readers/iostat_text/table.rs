//! A table of a report: a header, and the rows under it.
//!
//! # Why
//! One table may be a quarter of a report, and one row of it may be three lines.
//!
//! # How it works
//! A row that has fewer figures than the header has columns stays open: a line of figures alone goes on with it. In a
//! table that goes on with the one above, each line of figures is that of the next device of that table.
//!
//! # Limits
//! A row with more or fewer figures in the end is refused: nobody can say which column they belong to. One word among
//! the figures that is none costs its own column only.
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
    /// Its first line, from 1.
    pub line: usize,
    /// Whether it is the sum of a group.
    pub is_group: bool,
    /// Whether the table has a row of this device already.
    pub is_repeated: bool,
}

/// What became of a line.
#[derive(Clone, Debug)]
pub(super) enum Taken {
    /// A row is complete.
    Row(Row),
    /// A row waits for the rest of its figures.
    Open,
    /// A row with more figures than columns.
    TooLong,
    /// It is no row of this table.
    No,
}

/// A header and what it has seen.
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
    /// Under a header; `above` is the table that it goes on with where it has no word for the device.
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

    /// A header that was wrapped: more columns of the same rows.
    pub(super) fn extend(&mut self, header: Header) {
        self.columns.extend(header.columns);
        self.names.extend(header.names);
    }

    /// Whether there was no row, so that its header may still go on.
    pub(super) fn is_new(&self) -> bool {
        self.devices.is_empty() && self.open.is_none()
    }

    /// The row that waits for the rest of its figures, which now do not come.
    pub(super) fn take_open(&mut self) -> Option<Row> {
        // A word alone was nothing but a word.
        self.open.take().filter(|row| !row.words.is_empty())
    }

    /// Takes a line of figures alone.
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
        // One spoilt figure does not spoil the row, as long as each has its place.
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

    /// The row, unless figures are missing: then it waits for them.
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

    /// Sets what the row says, and returns a sentence for each figure that is unknown.
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

    /// Begins anew under the same header, with the row of that device.
    pub(super) fn begin_again(&mut self, device: &str) {
        self.devices = vec![device.to_owned()];
        self.seen = HashSet::from([device.to_owned()]);
    }

    /// How many columns it has.
    pub(super) fn len(&self) -> usize {
        self.columns.len()
    }

    /// What its columns are called.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }
}
