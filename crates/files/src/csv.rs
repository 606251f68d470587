//! Tables in text: measured surfaces of latency, and recorded arrivals.
//!
//! **Why.** Measurements come as CSV. A cell that is read wrongly makes a wrong model, so each is checked, and the line
//! of a bad one is named.
//!
//! **How.** The first line that is no comment names the columns, in any order; columns that are not known are refused.
//! Numbers are plain; there is no quoting. Lines that begin with `#` and empty lines are passed over.
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

use std::path::Path;

use plimsoll_core::Op;
use plimsoll_figures::units::quoted;
use plimsoll_sim::fit::Cell;
use plimsoll_sim::workload::Arrival;

use super::error::{Code, ConfigError, Source, Span};
use super::fields::{did_you_mean, list_of};
use super::yaml;

/// Columns of a surface.
pub const SURFACE_COLUMNS: [&str; 4] = ["write_MBps", "read_iops", "p50_ms", "p95_ms"];
/// Columns of a recording.
pub const ARRIVAL_COLUMNS: [&str; 4] = ["at_us", "op", "offset_bytes", "len_bytes"];

/// The largest recording, in bytes.
const MAX_ARRIVALS_BYTES: u64 = 64 << 20;

/// Reads a measured surface: megabytes (10^6) written per second, reads per second, median and 95th percentile of the
/// latency of reads in milliseconds. Cells that were not measured are left out, as whole lines.
///
/// # Errors
/// With the line: columns that are missing, doubled or unknown; fields that are missing, empty or no numbers; rates
/// below 0, latencies that are not above 0, a p95 below the median.
pub fn parse_surface(source_name: &str, text: &str) -> Result<Vec<Cell>, ConfigError> {
    surface(&Source::new(source_name, text))
}

/// Reads a measured surface from a file.
///
/// # Errors
/// As [`parse_surface`], and [`Code::Unreadable`] if the file cannot be read.
pub fn surface_from_file(path: &Path) -> Result<Vec<Cell>, ConfigError> {
    surface(&yaml::read_file(path)?)
}

fn surface(source: &Source) -> Result<Vec<Cell>, ConfigError> {
    let hole = "a cell that was not measured is left out: remove the line, and the fit fills the hole from all sides";
    let mut cells = Vec::new();
    for row in rows(source, &SURFACE_COLUMNS)? {
        let number = |column: usize, at_least_positive: bool| {
            let value = row.number(source, column, hole)?;
            let good = if at_least_positive { value > 0.0 } else { value >= 0.0 };
            let expected = if at_least_positive { "above 0" } else { "0 or more" };
            if good { Ok(value) } else { Err(row.out_of_range(source, column, expected)) }
        };
        let [write, read, p50, p95] = [number(0, false)?, number(1, false)?, number(2, true)?, number(3, true)?];
        if p95 < p50 {
            return Err(row.out_of_range(source, 3, "at least the median, p50_ms"));
        }
        cells.push(Cell { write_bytes_per_s: write * 1e6, read_iops: read, p50_ns: p50 * 1e6, p95_ns: p95 * 1e6 });
    }
    if cells.is_empty() {
        return Err(source.error(Code::Empty, "there is no cell below the header").with_help(hole));
    }
    Ok(cells)
}

/// Reads recorded arrivals: microseconds from the start, `read`, `write`, `flush`, `discard` or `allocate`, place and
/// length in bytes.
///
/// # Errors
/// With the line, as [`parse_surface`]; times that fall, operations that do not exist, transfers without a length.
pub fn parse_arrivals(source_name: &str, text: &str) -> Result<Vec<Arrival>, ConfigError> {
    arrivals(&Source::new(source_name, text))
}

/// Reads recorded arrivals from a file.
///
/// # Errors
/// As [`parse_arrivals`], and [`Code::Unreadable`] if the file cannot be read.
pub(crate) fn arrivals_from_file(path: &Path) -> Result<Vec<Arrival>, ConfigError> {
    let name = path.display().to_string();
    let whole = Source::new(&name, "");
    let is_too_large = std::fs::metadata(path).is_ok_and(|meta| meta.len() > MAX_ARRIVALS_BYTES);
    if is_too_large {
        return Err(whole.error(Code::TooLarge, "a recording has at most 64 MiB").with_help("cut it into parts"));
    }
    let text = std::fs::read_to_string(path).map_err(|error| {
        whole.error(Code::Unreadable, format!("cannot read the file: {error}")).with_help("check the path")
    })?;
    arrivals(&Source::new(&name, &text))
}

fn arrivals(source: &Source) -> Result<Vec<Arrival>, ConfigError> {
    let hole = "write a value in every column";
    let mut list: Vec<Arrival> = Vec::new();
    for row in rows(source, &ARRIVAL_COLUMNS)? {
        let op = read_op(row.text(1)).ok_or_else(|| {
            row.error(source, 1, Code::InvalidValue, format!("{} is no operation", quoted(row.text(1))))
                .with_help(format!("write one of {}", list_of(&OPERATIONS)))
        })?;
        let whole = |column: usize, largest: f64| {
            let value = row.number(source, column, hole)?;
            let good = (0.0..=largest).contains(&value);
            if good { Ok(value) } else { Err(row.out_of_range(source, column, "from 0 on")) }
        };
        let at_ns = (whole(0, 1e12)? * 1e3).round() as u64;
        let (offset_bytes, len_bytes) = (whole(2, 9e18)? as u64, whole(3, f64::from(u32::MAX))? as u32);
        if op.is_transfer() && len_bytes == 0 {
            return Err(row.out_of_range(source, 3, "above 0: a read or write has a length"));
        }
        if list.last().is_some_and(|last| last.at_ns > at_ns) {
            return Err(row.out_of_range(source, 0, "not before the line above: sort the lines by time"));
        }
        list.push(Arrival { at_ns, op, offset_bytes, len_bytes });
    }
    if list.is_empty() {
        return Err(source.error(Code::Empty, "there is nothing to replay").with_help("record at least one request"));
    }
    Ok(list)
}

/// Names of operations, as in files.
pub(super) const OPERATIONS: [&str; 5] = ["read", "write", "flush", "discard", "allocate"];

/// The operation of that name.
pub(super) fn read_op(name: &str) -> Option<Op> {
    match name {
        "read" => Some(Op::Read),
        "write" => Some(Op::Write),
        "flush" => Some(Op::Flush),
        "discard" => Some(Op::Discard),
        "allocate" => Some(Op::Allocate),
        _ => None,
    }
}

/// One line, its fields in the order of the columns asked for.
struct Row<'a> {
    fields: Vec<(&'a str, Span)>,
    columns: &'static [&'static str],
}

impl Row<'_> {
    fn text(&self, column: usize) -> &str {
        self.fields.get(column).map_or("", |(text, _)| text)
    }

    fn name(&self, column: usize) -> &'static str {
        self.columns.get(column).copied().unwrap_or("?")
    }

    fn error(&self, source: &Source, column: usize, code: Code, message: String) -> ConfigError {
        let span = self.fields.get(column).map_or(0..0, |(_, span)| span.clone());
        source.error_at(&span, code, message).with_key(self.name(column))
    }

    fn number(&self, source: &Source, column: usize, hole_help: &str) -> Result<f64, ConfigError> {
        let (text, name) = (self.text(column), self.name(column));
        if text.is_empty() {
            return Err(self.error(source, column, Code::MissingKey, format!("{name} is empty")).with_help(hole_help));
        }
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(value),
            _ => {
                let message = format!("{name}: {} is not a number", quoted(text));
                Err(self.error(source, column, Code::InvalidValue, message).with_help(hole_help))
            }
        }
    }

    fn out_of_range(&self, source: &Source, column: usize, expected: &str) -> ConfigError {
        let message = format!("{} is {}, and should be {expected}", self.name(column), quoted(self.text(column)));
        self.error(source, column, Code::OutOfRange, message).with_help("correct the value, or leave the line out")
    }
}

/// The lines of a table with exactly these columns, in any order.
fn rows<'a>(source: &'a Source, columns: &'static [&'static str]) -> Result<Vec<Row<'a>>, ConfigError> {
    let mut places: Option<Vec<usize>> = None;
    let mut rows = Vec::new();
    let mut start = 0;
    for line in source.text().split_inclusive('\n') {
        let line_start = start;
        start += line.len();
        let content = line.trim_end();
        if content.trim().is_empty() || content.trim_start().starts_with('#') {
            continue;
        }
        let fields = split(content, line_start);
        match &places {
            None => places = Some(header(source, &fields, columns)?),
            Some(places) => {
                if fields.len() != places.len() {
                    let span = line_start..line_start + content.len();
                    let message = format!("{} fields, where the header has {} columns", fields.len(), places.len());
                    let error = source.error_at(&span, Code::InvalidValue, message);
                    return Err(error.with_help("write one value for each column, separated by commas"));
                }
                let ordered = places.iter().filter_map(|place| fields.get(*place).cloned()).collect();
                rows.push(Row { fields: ordered, columns });
            }
        }
    }
    if places.is_none() {
        let help = format!("the first line names the columns: {}", columns.join(","));
        return Err(source.error(Code::Empty, "there is nothing in this text").with_help(help));
    }
    Ok(rows)
}

fn split(line: &str, line_start: usize) -> Vec<(&str, Span)> {
    let mut at = line_start;
    let mut fields = Vec::new();
    for field in line.split(',') {
        fields.push((field.trim(), at..at + field.len()));
        at += field.len() + 1;
    }
    fields
}

/// Where each of `columns` stands in the header.
fn header(
    source: &Source,
    fields: &[(&str, Span)],
    columns: &'static [&'static str],
) -> Result<Vec<usize>, ConfigError> {
    let wanted = format!("the first line names the columns: {}", columns.join(","));
    for (at, (name, span)) in fields.iter().enumerate() {
        if !columns.contains(name) {
            let help = did_you_mean(name, columns.iter().copied()).unwrap_or_else(|| wanted.clone());
            let message = format!("there is no column {}", quoted(name));
            return Err(source.error_at(span, Code::UnknownKey, message).with_help(help));
        }
        if fields.iter().take(at).any(|(other, _)| other == name) {
            let message = format!("the column {name} stands twice");
            return Err(source.error_at(span, Code::DuplicateKey, message).with_help(wanted));
        }
    }
    let place = |column: &&'static str| {
        fields.iter().position(|(name, _)| name == column).ok_or_else(|| {
            let span = fields.first().map_or(0..0, |(_, span)| span.clone());
            let message = format!("the column {column} is missing");
            source.error_at(&span, Code::MissingKey, message).with_help(wanted.clone())
        })
    };
    columns.iter().map(place).collect()
}
