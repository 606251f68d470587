//! Reads tables in text: measured surfaces of latency, and recorded arrivals.
//!
//! **Why.** Measurements come as CSV. A misread cell makes a wrong model, so each cell is checked, and an error states
//! the line.
//!
//! **How.** The first line that is not a comment names the columns, in any order; unknown columns are refused. Numbers
//! are plain; fields may be quoted. Empty lines and lines that begin with `#` are skipped.
//!
//! **Limits.** At most 1 MiB of surface, and 64 MiB of arrivals.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_files::csv;
//! let cells = csv::parse_surface("s.csv", "write_MBps,read_iops,p50_ms,p95_ms\n100,20000,0.15,0.3\n")?;
//! assert_eq!((cells[0].write_bytes_per_s, cells[0].p50_ns), (1e8, 150e3));
//! # Ok::<(), plimsoll_files::ConfigError>(())
//! ```

use std::borrow::Cow;
use std::path::Path;

use plimsoll_core::Op;
use plimsoll_figures::units::quoted;
use plimsoll_sim::fit::Cell;
use plimsoll_sim::workload::Arrival;

use super::error::{Code, ConfigError, Source, Span};
use super::fields::{did_you_mean, list_of};
use super::yaml;

pub const SURFACE_COLUMNS: [&str; 4] = ["write_MBps", "read_iops", "p50_ms", "p95_ms"];
pub const ARRIVAL_COLUMNS: [&str; 4] = ["at_us", "op", "offset_bytes", "len_bytes"];

/// Most reads a second of a cell. A simulation makes each of them, and the quickest disks do a tenth.
pub const READ_IOPS_MAX: f64 = 1e8;

const MAX_ARRIVALS_BYTES: usize = 64 << 20;
const LATEST_US: f64 = 1e12;
/// Largest whole number up to which no other one has its floating-point value: 2^53.
const EXACT_MAX: f64 = (1_u64 << 53) as f64;

/// Reads a measured surface: megabytes (10^6) written per second, reads per second, median and 95th percentile of read
/// latency in milliseconds. Files leave out the lines of cells that were not measured.
///
/// # Errors
/// With the line: missing, doubled or unknown columns; missing or empty fields, or fields that are no numbers; rates
/// below 0 or, of reads, above [`READ_IOPS_MAX`]; latencies that are not above 0, a p95 below the median.
pub fn parse_surface(source_name: &str, text: &str) -> Result<Vec<Cell>, ConfigError> {
    surface(&Source::new(source_name, text))
}

pub fn surface_from_file(path: &Path) -> Result<Vec<Cell>, ConfigError> {
    surface(&yaml::read_file(path)?)
}

fn surface(source: &Source) -> Result<Vec<Cell>, ConfigError> {
    let hole = "a cell that was not measured is left out: remove the line, and the fit fills the hole from all sides";
    let mut cells = Vec::new();

    for row in rows(source, &SURFACE_COLUMNS)? {
        let row = row?;
        let number = |column: usize, at_least_positive: bool| {
            let value = row.number(column, hole)?;
            let good = if at_least_positive { value > 0.0 } else { value >= 0.0 };
            let expected = if at_least_positive { "above 0" } else { "0 or more" };
            if good { Ok(value) } else { Err(row.out_of_range(column, expected)) }
        };
        let [write, read, p50, p95] = [number(0, false)?, number(1, false)?, number(2, true)?, number(3, true)?];
        if read > READ_IOPS_MAX {
            return Err(row.out_of_range(1, &format!("at most {READ_IOPS_MAX}")));
        }
        if p95 < p50 {
            return Err(row.out_of_range(3, "at least the median, p50_ms"));
        }
        cells.push(Cell { write_bytes_per_s: write * 1e6, read_iops: read, p50_ns: p50 * 1e6, p95_ns: p95 * 1e6 });
    }

    if cells.is_empty() {
        return Err(source.error(Code::Empty, "there is no cell below the header").with_help(hole));
    }
    Ok(cells)
}

/// Reads recorded arrivals: microseconds from the start; `read`, `write`, `flush`, `discard` or `allocate`; offset and
/// length in bytes.
///
/// # Errors
/// With the line: the errors of [`parse_surface`], decreasing times, unknown operations, offsets and lengths that are not
/// whole, transfers without a length.
pub fn parse_arrivals(source_name: &str, text: &str) -> Result<Vec<Arrival>, ConfigError> {
    arrivals(&Source::new(source_name, text))
}

pub(crate) fn arrivals_from_file(path: &Path) -> Result<Vec<Arrival>, ConfigError> {
    let too_large = |error: ConfigError| match error.code() {
        Code::TooLarge => error.with_help("a recording has at most 64 MiB: cut it into parts"),
        _ => error,
    };
    arrivals(&yaml::read_file_up_to(path, MAX_ARRIVALS_BYTES).map_err(too_large)?)
}

fn arrivals(source: &Source) -> Result<Vec<Arrival>, ConfigError> {
    let hole = "write a value in every column";
    let mut list: Vec<Arrival> = Vec::new();

    for row in rows(source, &ARRIVAL_COLUMNS)? {
        let row = row?;
        let op = read_op(row.text(1)).ok_or_else(|| {
            row.error(1, Code::InvalidValue, format!("{} is no operation", quoted(row.text(1))))
                .with_help(format!("write one of {}", list_of(&Op::ALL.map(Op::name))))
        })?;
        let at_us = row.number(0, hole)?;
        if !(0.0..=LATEST_US).contains(&at_us) {
            return Err(row.out_of_range(0, &format!("from 0 to {LATEST_US:e}")));
        }
        let at_ns = (at_us * 1e3).round() as u64;
        let offset_bytes = row.whole(2, i64::MAX as u64, hole)?;
        let len_bytes = row.whole(3, u32::MAX.into(), hole)? as u32;
        if op.is_transfer() && len_bytes == 0 {
            return Err(row.out_of_range(3, "above 0: a read or write has a length"));
        }
        if list.last().is_some_and(|last| last.at_ns > at_ns) {
            return Err(row.out_of_range(0, "not before the line above: sort the lines by time"));
        }
        list.push(Arrival { at_ns, op, offset_bytes, len_bytes });
    }

    if list.is_empty() {
        return Err(source.error(Code::Empty, "there is nothing to replay").with_help("record at least one request"));
    }
    Ok(list)
}

pub(super) fn read_op(name: &str) -> Option<Op> {
    Op::ALL.into_iter().find(|op| op.name() == name)
}

/// A field between commas, with its position.
#[derive(Clone, Debug)]
pub struct CsvCell<'a> {
    /// The text of the cell, without surrounding blanks and quotes.
    pub text: Cow<'a, str>,
    pub span: Span,
    source: &'a Source,
}

impl CsvCell<'_> {
    pub fn error(&self, code: Code, message: impl Into<String>) -> ConfigError {
        self.source.error_at(&self.span, code, message)
    }
}

/// Returns the cells of each line that is neither empty nor a comment; `#` begins a comment.
pub fn lines(source: &Source) -> impl Iterator<Item = Vec<CsvCell<'_>>> {
    let mut start = 0;
    source.text().split_inclusive('\n').filter_map(move |line| {
        let at = start;
        start += line.len();
        let line = line.trim_end();
        (!line.is_empty() && !line.trim_start().starts_with('#')).then(|| split(source, line, at))
    })
}

/// Splits a line at commas; a comma within double quotes is part of the cell.
fn split<'a>(source: &'a Source, line: &'a str, line_start: usize) -> Vec<CsvCell<'a>> {
    let mut cells = Vec::new();
    let (mut start, mut is_quoted) = (0, false);
    let ends = line.char_indices().filter(|(_, c)| {
        is_quoted ^= *c == '"';
        *c == ',' && !is_quoted
    });
    for end in ends.map(|(at, _)| at).chain([line.len()]) {
        let field = line.get(start..end).unwrap_or("").trim();
        let inner = field.strip_prefix('"').and_then(|field| field.strip_suffix('"'));
        let text = inner.map_or(Cow::Borrowed(field), |inner| inner.replace("\"\"", "\"").into());
        cells.push(CsvCell { text, span: line_start + start..line_start + end, source });
        start = end + 1;
    }
    cells
}

/// Returns the error for a line with more or fewer cells than the header.
pub fn wrong_length(source: &Source, cells: &[CsvCell<'_>], columns: usize) -> ConfigError {
    let span = cells.first().map_or(0, |cell| cell.span.start)..cells.last().map_or(0, |cell| cell.span.end);
    let message = format!("{} fields, where the header has {columns} columns", cells.len());
    let error = source.error_at(&span, Code::InvalidValue, message);
    error.with_help("write one value for each column, separated by commas")
}

/// One line, with its cells in the order of the expected columns.
struct Row<'a> {
    source: &'a Source,
    cells: Vec<CsvCell<'a>>,
    columns: &'static [&'static str],
}

impl Row<'_> {
    fn text(&self, column: usize) -> &str {
        self.cells.get(column).map_or("", |cell| &cell.text)
    }

    fn name(&self, column: usize) -> &'static str {
        self.columns.get(column).copied().unwrap_or("?")
    }

    fn error(&self, column: usize, code: Code, message: String) -> ConfigError {
        let span = self.cells.get(column).map_or(0..0, |cell| cell.span.clone());
        self.source.error_at(&span, code, message).with_key(self.name(column))
    }

    fn number(&self, column: usize, hole_help: &str) -> Result<f64, ConfigError> {
        let (text, name) = (self.text(column), self.name(column));
        if text.is_empty() {
            return Err(self.error(column, Code::MissingKey, format!("{name} is empty")).with_help(hole_help));
        }
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(value),
            _ => {
                let message = format!("{name}: {} is not a number", quoted(text));
                Err(self.error(column, Code::InvalidValue, message).with_help(hole_help))
            }
        }
    }

    /// Reads a whole number up to `largest`. All digits count, beyond 2^53 too.
    fn whole(&self, column: usize, largest: u64, hole_help: &str) -> Result<u64, ConfigError> {
        let value = match self.text(column).parse::<u64>() {
            Ok(value) => Some(value),
            Err(_) => {
                let value = self.number(column, hole_help)?;
                (value.fract() == 0.0 && (0.0..=EXACT_MAX).contains(&value)).then_some(value as u64)
            }
        };
        let wrong = || self.out_of_range(column, &format!("a whole number from 0 to {largest}"));
        value.filter(|value| *value <= largest).ok_or_else(wrong)
    }

    fn out_of_range(&self, column: usize, expected: &str) -> ConfigError {
        let message = format!("{} is {}, and should be {expected}", self.name(column), quoted(self.text(column)));
        self.error(column, Code::OutOfRange, message).with_help("correct the value, or leave the line out")
    }
}

/// Returns the lines of a table with exactly these columns, in any order.
fn rows<'a>(
    source: &'a Source,
    columns: &'static [&'static str],
) -> Result<impl Iterator<Item = Result<Row<'a>, ConfigError>>, ConfigError> {
    let mut lines = lines(source);
    let Some(names) = lines.next() else {
        let help = format!("the first line names the columns: {}", columns.join(","));
        return Err(source.error(Code::Empty, "there is nothing in this text").with_help(help));
    };
    let places = header(source, &names, columns)?;
    Ok(lines.map(move |cells| {
        if cells.len() != places.len() {
            return Err(wrong_length(source, &cells, places.len()));
        }
        let cells = places.iter().filter_map(|place| cells.get(*place).cloned()).collect();
        Ok(Row { source, cells, columns })
    }))
}

/// Returns the index in the header of each of `columns`.
fn header(source: &Source, names: &[CsvCell<'_>], columns: &'static [&'static str]) -> Result<Vec<usize>, ConfigError> {
    let wanted = format!("the first line names the columns: {}", columns.join(","));

    for (at, cell) in names.iter().enumerate() {
        let name = cell.text.as_ref();
        if !columns.contains(&name) {
            let help = did_you_mean(name, columns.iter().copied()).unwrap_or_else(|| wanted.clone());
            let message = format!("there is no column {}", quoted(name));
            return Err(cell.error(Code::UnknownKey, message).with_help(help));
        }
        if names.iter().take(at).any(|other| other.text == name) {
            let message = format!("the column {name} stands twice");
            return Err(cell.error(Code::DuplicateKey, message).with_help(wanted));
        }
    }

    let place = |column: &&'static str| {
        names.iter().position(|cell| cell.text == *column).ok_or_else(|| {
            let span = names.first().map_or(0..0, |cell| cell.span.clone());
            let message = format!("the column {column} is missing");
            source.error_at(&span, Code::MissingKey, message).with_help(wanted.clone())
        })
    };
    columns.iter().map(place).collect()
}
