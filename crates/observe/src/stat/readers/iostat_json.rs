//! The JSON of iostat (`-o JSON`), and of our own `stat --format json`, which has the same keys.
//!
//! # Why
//! Programs keep this format. An iostat that was killed leaves a document without its end, and two runs into one file
//! leave two documents.
//!
//! # How it works
//! Documents are parsed one after the other. A document that cannot be parsed is cut after its last complete report and
//! closed; decimal commas and `nan`, which iostat prints in some locales and cases, become points and `null`. Keys are
//! those of the text without `%`, in sysstat 11.5 and 11.6 also without `/s`.
//!
//! # Limits
//! A document without its begin is not read, nor are reports after damage in a document. Another document after the
//! damage is read.
//!
//! # Example
//! `{"sysstat": {"hosts": [{"statistics": [{"disk": [{"disk_device": "sda", "w/s": 4.0, "util": 1.4}]}, {"disk": [{"di`
//! has one report.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::columns::{self, Figure};
use super::iostat_text::cpu_shares;
use super::times::{self, DayOrder, Stamp};
use super::{Notes, ReadOptions, Reports, shown};
use crate::stat::{Columns, DeviceInterval, Interval};

/// Why a file cannot be read.
#[derive(Debug)]
pub(in crate::stat) enum JsonError {
    /// The file is JSON of another kind.
    Other(Box<Value>),
    /// The number of a line, from 1, and the error there.
    Line(usize, String),
}

/// Reads all reports of all documents in a text. `order` is that of its dates.
pub(in crate::stat) fn read(
    text: &str,
    options: &ReadOptions,
    order: DayOrder,
    notes: &mut Notes,
) -> Result<Reports, JsonError> {
    let documents = documents(text, notes)?;
    let mut json = Reports::default();
    let mut is_any = false;
    for document in &documents {
        let lists = document.as_array().map_or(std::slice::from_ref(document), Vec::as_slice);
        for root in lists {
            let Some(hosts) = root.pointer("/sysstat/hosts").and_then(Value::as_array) else { continue };
            for host in hosts.iter().filter_map(Value::as_object) {
                is_any |= read_host(host, order, options, &mut json, notes);
            }
        }
    }
    if is_any {
        return Ok(json);
    }
    Err(JsonError::Other(Box::new(documents.into_iter().next().unwrap_or_default())))
}

/// Parses the documents of a text, and repairs damaged ones.
fn documents(text: &str, notes: &mut Notes) -> Result<Vec<Value>, JsonError> {
    let mut whole = Cow::Borrowed(text.trim_start_matches('\u{feff}'));
    let mut begin = 0;
    let (mut documents, mut line, mut is_sanitised) = (Vec::new(), 1, false);

    loop {
        let rest = whole.get(begin..).unwrap_or_default();
        let mut stream = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        let end = match stream.next() {
            None => return Ok(documents),
            Some(Ok(document)) => {
                documents.push(document);
                stream.byte_offset()
            }
            // At the first error, tries again with decimal points and `null`.
            Some(Err(_)) if !is_sanitised => {
                whole = Cow::Owned(sanitised(rest));
                (begin, is_sanitised) = (0, true);
                continue;
            }
            Some(Err(error)) => {
                let end = offset(rest, &error);
                let at = line + error.line().max(1) - 1;
                match repaired(rest.get(..end).unwrap_or_default()) {
                    Some(document) => documents.push(document),
                    None if documents.is_empty() => {
                        let expected = "expected a document of `iostat -o JSON`";
                        return Err(JsonError::Line(at, format!("no JSON that can be read: {error}; {expected}")));
                    }
                    None => {}
                }
                notes.line(at, "the JSON ends or is damaged here: read up to the last whole report");
                // Another run may follow one that was killed.
                let Some(next) = next_document(rest.get(end..).unwrap_or_default()) else { return Ok(documents) };
                end + next
            }
        };
        line += rest.get(..end).unwrap_or_default().matches('\n').count();
        begin += end;
    }
}

/// Returns the place of an error in a text, in bytes.
fn offset(text: &str, error: &serde_json::Error) -> usize {
    let before: usize = text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
    (0..=(before + error.column().saturating_sub(1)).min(text.len()))
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0)
}

/// Returns where the next document of sysstat begins, in bytes.
fn next_document(text: &str) -> Option<usize> {
    text.get(..text.find("\"sysstat\"")?)?.rfind('{')
}

/// Replaces decimal commas by points, and `nan` and `inf` by `null`; strings stay as they are.
fn sanitised(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut is_string, mut is_escaped) = (false, false);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let no_number = ["-nan", "nan", "-inf", "inf"].into_iter().find(|word| !is_string && rest.starts_with(word));
        let is_between_digits = out.ends_with(|c: char| c.is_ascii_digit())
            && rest.get(1..).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));

        if is_string {
            is_string = is_escaped || c != '"';
            is_escaped = !is_escaped && c == '\\';
        } else {
            is_string = c == '"';
        }

        out.push_str(match c {
            _ if no_number.is_some() => "null",
            ',' if !is_string && is_between_digits => ".",
            _ => rest.get(..c.len_utf8()).unwrap_or_default(),
        });
        rest = rest.get(no_number.map_or(c.len_utf8(), str::len)..).unwrap_or_default();
    }
    out
}

/// Returns a document of the complete reports in the undamaged begin of one.
fn repaired(text: &str) -> Option<Value> {
    let mut open: Vec<char> = Vec::new();
    let (mut is_string, mut is_escaped) = (false, false);
    let mut cut = None;
    for (at, c) in text.char_indices() {
        if is_string {
            is_string = is_escaped || c != '"';
            is_escaped = !is_escaped && c == '\\';
            continue;
        }
        match c {
            '"' => is_string = true,
            '{' | '[' => open.push(c),
            '}' | ']' => {
                let opening = open.pop()?;
                if (opening == '{') != (c == '}') {
                    break;
                }
                // A report is an object in `statistics`, in a host, in `hosts`, in `sysstat`, in the document.
                if matches!(open.as_slice(), ['{', '{', '[', '{', '['] | ['[', '{', '{', '[', '{', '[']) {
                    cut = Some((at + 1, open.clone()));
                }
            }
            _ => {}
        }
    }

    let (end, open) = cut?;
    let closing: String = open.iter().rev().map(|c| if *c == '{' { '}' } else { ']' }).collect();
    serde_json::from_str(&format!("{}{closing}", text.get(..end)?)).ok()
}

/// Reads the reports of a host. Returns whether any of them has disks.
fn read_host(
    host: &Map<String, Value>,
    order: DayOrder,
    options: &ReadOptions,
    json: &mut Reports,
    notes: &mut Notes,
) -> bool {
    let Some(reports) = host.get("statistics").and_then(Value::as_array) else { return false };
    let mut last: Option<Stamp> = None;
    let mut is_any = false;
    for (at, report) in reports.iter().enumerate() {
        let Some(disks) = report.get("disk").and_then(Value::as_array) else { continue };
        // sadf writes `disk-device` into a document of the same shape.
        if !disks.is_empty() && disks.iter().all(|disk| disk.get("disk_device").is_none()) {
            continue;
        }
        is_any = true;

        let stamp = report.get("timestamp").and_then(Value::as_str).and_then(|text| times::parse(text, order));
        stamp.iter().for_each(|stamp| notes.zone(*stamp));
        let said = report.get("is_since_boot");
        let is_since_boot = match said {
            Some(said) => said.as_bool().unwrap_or(false),
            None => at == 0 && !options.is_first_an_interval,
        };
        let said_s = report.get("duration_s").and_then(Value::as_f64).filter(|seconds| *seconds > 0.0);
        let between_s = || match last.zip(stamp) {
            Some((last, stamp)) => stamp.seconds_since(last),
            None => options.interval_s,
        };
        json.intervals.push(Interval {
            end_unix_ms: report.get("end_unix_ms").and_then(Value::as_u64).or_else(|| stamp.and_then(Stamp::unix_ms)),
            duration_s: said_s.or_else(between_s).filter(|_| !is_since_boot),
            is_since_boot,
            may_be_since_boot: said == Some(&Value::Null) && !options.is_first_an_interval,
            cpu: report.get("avg-cpu").and_then(Value::as_object).and_then(|shares| {
                let number = |value: &Value| value.as_f64().filter(|share| *share >= 0.0);
                cpu_shares(shares.iter().map(|(name, value)| (name.as_str(), number(value))))
            }),
            devices: devices(disks, notes).into_iter().chain(gaps(report)).collect(),
        });
        last = stamp;
    }
    if is_any {
        json.note_host(host_text(host));
    }
    is_any
}

fn devices(disks: &[Value], notes: &mut Notes) -> Vec<DeviceInterval> {
    let mut devices: Vec<DeviceInterval> = Vec::new();
    let mut names = std::collections::HashSet::new();
    for disk in disks.iter().filter_map(Value::as_object) {
        let Some(name) = disk.get("disk_device").and_then(Value::as_str).filter(|name| !name.trim().is_empty()) else {
            notes.file("a disk without `disk_device`: left out");
            continue;
        };
        let name = name.trim();
        if !names.insert(name.to_owned()) {
            notes.file(&format!("{} stands twice in a report: the first one counts", shown(name)));
            continue;
        }

        let mut columns = Columns::default();
        let is_short = (disk.contains_key("r") || disk.contains_key("w")) && !disk.contains_key("r/s");
        for (key, value) in disk {
            let is_cut = is_short && SHORT_KEYS.contains(&key.as_str());
            let Some(column) = columns::find(&if is_cut { format!("{key}/s") } else { key.clone() }) else { continue };
            let number = value.as_f64().filter(|number| *number >= 0.0);
            let is_known = column.set(&mut columns, Figure { number, suffix: None, decimals: 0 });
            // In our own document `null` is a figure that is not known.
            if !is_known && !value.is_null() {
                notes.file(&format!("{key} of {} is `{}`: taken as unknown", shown(name), shown(&value.to_string())));
            }
        }

        let in_flight = disk.get("in_flight").and_then(Value::as_u64);
        devices.push(DeviceInterval { device: name.to_owned(), columns, in_flight, gap: None });
    }
    devices
}

/// Keys from which sysstat 11.5 and 11.6 omit `/s`; `rrqm` and `wrqm` are percent in later versions.
const SHORT_KEYS: [&str; 10] = ["r", "w", "rkB", "wkB", "rMB", "wMB", "rsec", "wsec", "rrqm", "wrqm"];

/// Reads the devices without figures of our own document.
fn gaps(report: &Value) -> Vec<DeviceInterval> {
    let gaps = report.get("gaps").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let gap = |gap: &Value| {
        let device = gap.get("disk_device")?.as_str()?.to_owned();
        let gap = Some(serde_json::from_value(gap.get("gap")?.clone()).ok()?);
        Some(DeviceInterval { device, gap, ..DeviceInterval::default() })
    };
    gaps.iter().filter_map(gap).collect()
}

fn host_text(host: &Map<String, Value>) -> String {
    let text = |key: &str| host.get(key).and_then(Value::as_str).map(shown);
    let cpus = host.get("number-of-cpus").and_then(Value::as_u64).map(|cpus| format!("{cpus} CPU"));
    let system = text("sysname").zip(text("release")).map(|(system, release)| format!("{system} {release}"));
    [text("nodename"), system, cpus].into_iter().flatten().collect::<Vec<_>>().join(", ")
}
