//! The CSV that `stat --format csv` prints.
//!
//! # Why
//! A table that was kept for a spreadsheet is judged again like the recording it came from.
//!
//! # How it works
//! The header names the columns. Rows of one time, length and kind are an interval; a device that occurs again begins
//! the next one. Verdicts are not read: they are computed again.
//!
//! # Limits
//! Columns have two decimals, and an interval without devices has no row, so that it is lost.
//!
//! # Example
//! `2026-01-06T10:00:10.000Z,1,false,sda,100.00,...`: 100 reads a second of `sda` in one second.

use std::collections::{BTreeMap, HashSet};

use plimsoll_files::csv::{self, CsvCell};
use plimsoll_files::error::{Code, Source};

use super::columns::{self, Figure};
use super::{Notes, ReadOptions, shown};
use crate::stat::{Columns, DeviceInterval, Interval};

/// The columns with which the header begins.
const WHEN: &str = "timestamp,duration_s,is_since_boot,disk_device";

/// The cells of a row by the names of their columns.
type Row<'a> = BTreeMap<&'a str, &'a CsvCell<'a>>;

pub(super) fn has_header(text: &str) -> bool {
    text.starts_with(WHEN)
}

/// Reads the rows of a text. A row that cannot be right is left out, with a note.
pub(in crate::stat) fn read(name: &str, text: &str, options: &ReadOptions, notes: &mut Notes) -> Vec<Interval> {
    let source = Source::new(name, text.trim_start_matches('\u{feff}'));
    let mut lines = csv::lines(&source);
    let names: Vec<String> = lines.next().unwrap_or_default().iter().map(|cell| cell.text.to_string()).collect();
    let mut intervals: Vec<Interval> = Vec::new();
    // The devices of the last interval.
    let mut present: HashSet<String> = HashSet::new();

    for cells in lines {
        // Several runs may have been appended to one file.
        if cells.iter().map(|cell| cell.text.as_ref()).eq(names.iter().map(String::as_str)) {
            continue;
        }
        if cells.len() != names.len() {
            let line = csv::wrong_length(&source, &cells, names.len()).line().unwrap_or(1);
            notes.line(line, &format!("{} fields of {}: left out", cells.len(), names.len()));
            continue;
        }

        let row: Row<'_> = names.iter().map(String::as_str).zip(&cells).collect();
        let (when, device) = (interval(&row, options), device(&row, notes));
        let is_new = present.insert(device.device.clone());
        match intervals.last_mut().filter(|last| is_new && is_same(last, &when)) {
            Some(last) => last.devices.push(device),
            None => {
                present = HashSet::from([device.device.clone()]);
                intervals.push(Interval { devices: vec![device], ..when });
            }
        }
    }
    intervals
}

/// Returns whether two rows are of one interval.
fn is_same(one: &Interval, other: &Interval) -> bool {
    let of = |it: &Interval| (it.end_unix_ms, it.duration_s, it.is_since_boot, it.may_be_since_boot);
    of(one) == of(other)
}

/// Returns the interval of a row, without its device.
fn interval(row: &Row<'_>, options: &ReadOptions) -> Interval {
    let cell = |name: &str| row.get(name).map_or("", |cell| cell.text.as_ref());
    let end: Option<jiff::Timestamp> = cell("timestamp").parse().ok();
    let is_since_boot = cell("is_since_boot") == "true";
    let duration_s = cell("duration_s").parse().ok().filter(|seconds: &f64| seconds.is_finite() && *seconds > 0.0);
    Interval {
        end_unix_ms: end.and_then(|end| u64::try_from(end.as_millisecond()).ok()),
        duration_s: duration_s.filter(|_| !is_since_boot),
        is_since_boot,
        may_be_since_boot: cell("is_since_boot").is_empty() && !options.is_first_an_interval,
        ..Interval::default()
    }
}

fn device(row: &Row<'_>, notes: &mut Notes) -> DeviceInterval {
    let mut device = DeviceInterval::default();
    for (name, cell) in row {
        let text = cell.text.as_ref();
        let is_read = match *name {
            "disk_device" => {
                device.device = text.to_owned();
                true
            }
            "in_flight" => {
                device.in_flight = text.parse().ok();
                device.in_flight.is_some()
            }
            "gap" => {
                device.gap = serde_json::from_value(text.into()).ok();
                device.gap.is_some()
            }
            name => columns::find(name).is_none_or(|column| {
                let number = Figure::parse(text).and_then(|figure| figure.number);
                column.set(&mut device.columns, Figure { number, suffix: None, decimals: 0 })
            }),
        };
        if !is_read && !text.is_empty() {
            let line = cell.error(Code::InvalidValue, "").line().unwrap_or(1);
            notes.line(line, &format!("{name} is `{}`: taken as unknown", shown(text)));
        }
    }

    if device.gap.is_some() {
        device.columns = Columns::default();
    }
    device
}
