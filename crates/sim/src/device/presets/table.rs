//! Tables that are compiled in, read line by line.
//!
//! # Why
//! Figures are easier to check and to extend in a table than in code.
//!
//! # How it works
//! A table is CSV without quotes: a header, then a row for each line, cells between commas, an empty cell for "not
//! known" or "does not apply". [`rows`] hands each line to a reader as [`Cells`]. A line that its reader refuses is
//! left out; a test compares the number of lines and rows of every table.
//!
//! # Limits
//! No cell holds a comma, except in `sources.csv`, whose last cell is the rest of the line.
//!
//! # Example
//! `gp2,,250` is read by `text`, `optional` and `number`: `gp2`, none, 250.

use std::str::{FromStr, Split};
use std::sync::LazyLock;

use super::Evidence;

/// The unread cells of a line.
pub(super) struct Cells(Split<'static, char>);

impl Cells {
    /// Reads the next cell, empty or not.
    pub(super) fn cell(&mut self) -> Option<&'static str> {
        self.0.next()
    }

    /// Reads the next cell, which must not be empty.
    pub(super) fn text(&mut self) -> Option<&'static str> {
        self.0.next().filter(|cell| !cell.is_empty())
    }

    /// Reads the next cell, which must be a number.
    pub(super) fn number<T: FromStr>(&mut self) -> Option<T> {
        self.text()?.parse().ok()
    }

    /// Reads the next cell: a number, or empty. The outer `None` means neither, or no such cell.
    #[expect(clippy::option_option, reason = "the outer one is an error of the table, the inner one an empty cell")]
    pub(super) fn optional<T: FromStr>(&mut self) -> Option<Option<T>> {
        match self.0.next()? {
            "" => Some(None),
            cell => cell.parse().ok().map(Some),
        }
    }

    /// Reads the next cell, which must be `yes` or `no`, where the caller gives the two words.
    pub(super) fn either(&mut self, yes: &str, no: &str) -> Option<bool> {
        let cell = self.text()?;
        (cell == yes || cell == no).then_some(cell == yes)
    }

    /// Reads the next cell as an [`Evidence`].
    pub(super) fn evidence(&mut self) -> Option<Evidence> {
        let cell = self.text()?;
        [Evidence::Measured, Evidence::Rated, Evidence::Derived].into_iter().find(|evidence| evidence.name() == cell)
    }

    /// Reads the next cell as a key of `sources.csv`, and returns its text.
    pub(super) fn source(&mut self) -> Option<&'static str> {
        let key = self.text()?;
        SOURCES.iter().find(|(name, _)| *name == key).map(|(_, text)| *text)
    }

    /// Reads the next cell as a date: a year, or year and month.
    pub(super) fn date(&mut self) -> Option<&'static str> {
        let cell = self.text()?;
        let (year, month) = cell.split_once('-').unwrap_or((cell, "01"));
        let (year, month): (u16, u8) = (year.parse().ok()?, month.parse().ok()?);
        ((1950..=2100).contains(&year) && (1..=12).contains(&month)).then_some(cell)
    }
}

/// Returns the rows of a table that `read` accepts.
pub(super) fn rows<T>(table: &'static str, read: impl Fn(&mut Cells) -> Option<T>) -> Vec<T> {
    table.lines().skip(1).filter_map(|line| read(&mut Cells(line.split(',')))).collect()
}

/// Pairs of key and text.
pub(super) static SOURCES: LazyLock<Vec<(&'static str, &'static str)>> =
    LazyLock::new(|| include_str!("sources.csv").lines().skip(1).filter_map(|line| line.split_once(',')).collect());
