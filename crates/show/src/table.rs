//! A table as data: names of columns, and rows of plain text.
//!
//! # Why
//! The same rows are shown on a terminal and on a page, and written for spreadsheets. Their content is decided once.
//!
//! # How it works
//! A [`Table`] is made of names and rows. It is rendered to CSV here, to HTML by [`crate::page`], to text that fits a
//! terminal by the command. [`csv`] renders any rows as CSV; a [`Column`] joins a name with the cell below it.
//!
//! # Limits
//! Cells are text: the code that makes a table decides the digits of a figure.
//!
//! # Example
//! ```
//! use plimsoll_show::table::{Column, Table, csv, fixed};
//! let disks = [("a,b", Some(1.5)), ("c", None)];
//! type Disk = (&'static str, Option<f64>);
//! let columns: &[Column<Disk>] = &[("disk", |it| it.0.to_owned()), ("read_ms", |it| fixed(it.1, 2))];
//! assert_eq!(csv(&disks, columns), "disk,read_ms\n\"a,b\",1.50\nc,\n");
//! let table = Table::new("", ["disk"], disks.map(|it| [it.0.to_owned()]));
//! assert_eq!(table.to_csv(), "disk\n\"a,b\"\nc\n");
//! ```

use std::fmt::Display;

use plimsoll_figures::units::csv_field;

/// Rows and columns of plain text. Rows may differ in length: missing cells stay empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// Title above the table; empty for none.
    pub caption: String,
    /// Names of the columns; empty for none.
    pub headers: Vec<String>,
    /// The cells, row by row. The first cell of a row is its name.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Returns a table of these rows. An empty caption means none.
    pub fn new<H, R>(caption: impl Into<String>, headers: H, rows: R) -> Table
    where
        H: IntoIterator<Item: Into<String>>,
        R: IntoIterator<Item: Into<Vec<String>>>,
    {
        Table {
            caption: caption.into(),
            headers: headers.into_iter().map(Into::into).collect(),
            rows: rows.into_iter().map(Into::into).collect(),
        }
    }

    /// Renders CSV: the names, then a line for each row.
    pub fn to_csv(&self) -> String {
        std::iter::once(&self.headers)
            .chain(&self.rows)
            .map(|row| line(row.iter().map(|cell| csv_field(cell))))
            .collect()
    }
}

/// The name of a CSV column, and its cell for a row.
pub type Column<R> = (&'static str, fn(&R) -> String);

/// Renders `rows` as CSV: the names of the columns, then a line for each row.
pub fn csv<'r, R: 'r>(rows: impl IntoIterator<Item = &'r R>, columns: &[Column<R>]) -> String {
    let lines = rows.into_iter().map(|row| line(columns.iter().map(|(_, cell)| csv_field(&cell(row)))));
    std::iter::once(line(columns.iter().map(|(name, _)| (*name).to_owned()))).chain(lines).collect()
}

fn line(cells: impl Iterator<Item = String>) -> String {
    cells.collect::<Vec<_>>().join(",") + "\n"
}

/// Formats a number with `decimals` decimals; `None` gives an empty text.
pub fn fixed(value: impl Into<Option<f64>>, decimals: usize) -> String {
    value.into().map_or_else(String::new, |value| format!("{value:.decimals$}"))
}

/// Formats a value; `None` gives an empty text.
pub fn known(value: Option<impl Display>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}
