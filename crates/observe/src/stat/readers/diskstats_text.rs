//! Samples of `/proc/diskstats` and of `/sys/block/NAME/stat`, as scripts save them.
//!
//! # Why
//! Every host has `cat`, and a loop around it is the most common recording there is.
//!
//! # How it works
//! A sample is a number of lines of `/proc/diskstats`. The next one begins at a time, at a line of signs (`-----`, `==>
//! FILE <==`), or where a device's name repeats. Times may be before or after the samples, or before each line. Lines
//! of another format are left out with a note; those of Linux 2.4, which have the blocks of the device before its name,
//! are read without them. A series becomes the intervals between its samples by [`Reading::since`]; a single sample
//! becomes the means since boot.
//!
//! # Limits
//! Without times no rate is known, except that those of devices without any work are 0. If the last sample lacks the
//! last devices of the one before, it counts as cut: devices that disappeared just then are not reported.
//!
//! # Example
//! ```text
//! zzz ***Thu Mar 14 17:53:14 UTC 2024
//!    8   0 sda 1000 0 8000 100 0 0 0 0 0 90 100
//! zzz ***Thu Mar 14 17:53:24 UTC 2024
//!    8   0 sda 3000 0 24000 300 0 0 0 0 0 290 300          10 s, 200 r/s, r_await 0.1 ms
//! ```

use std::collections::HashSet;

use plimsoll::sys::diskstats::{self, DiskStats};

use super::times::{self, DayOrder, Since, Stamp};
use super::{Notes, ReadOptions, shown};
use crate::stat::host::Reading;
use crate::stat::{Columns, Gap, Interval};

/// The counters of all devices at a moment.
#[derive(Clone, Debug, Default)]
pub(in crate::stat) struct Sample {
    stamp: Option<Stamp>,
    devices: Vec<DiskStats>,
    names: HashSet<String>,
}

/// Returns whether a line could be one of `/proc/diskstats`.
pub(in crate::stat) fn is_line(line: &str) -> bool {
    stamped(line, DayOrder::Unknown).1.is_ok_and(|device| device.is_some())
}

/// Parses a line: the time before the device, if any, and the device.
fn stamped(line: &str, order: DayOrder) -> (Option<Stamp>, Result<Option<DiskStats>, String>) {
    let split = times::before(line, order).map(|(stamp, rest)| (stamp, device(rest)));
    match split.filter(|(_, device)| !matches!(device, Ok(None))) {
        Some((stamp, device)) => (Some(stamp), device),
        None => (None, device(line)),
    }
}

/// Adds the samples of a text to a series. A device whose name repeats begins a new sample, also across files.
pub(in crate::stat) fn read(text: &str, samples: &mut Vec<Sample>, notes: &mut Notes) {
    let order = DayOrder::of(text);
    let begin = samples.len();
    let mut stamp = None;
    let mut is_new = false;
    for (at, line) in text.lines().enumerate() {
        let is_sign = |c: char| c.is_ascii_punctuation();
        if line.trim().is_empty() {
            continue;
        }
        if let Some(time) = times::parse(line, order) {
            (stamp, is_new) = (Some(time), true);
        } else if line.trim().chars().all(is_sign) || line.trim_start().starts_with("==>") {
            is_new = true;
        } else {
            let (time, device) = stamped(line, order);
            match device {
                Ok(Some(device)) => {
                    if is_new {
                        samples.push(Sample { stamp: stamp.take(), ..Sample::default() });
                        is_new = false;
                    }
                    add(samples, device);
                    if let Some(sample) = samples.last_mut() {
                        sample.stamp = sample.stamp.or(time);
                    }
                }
                Ok(None) => notes.line(at + 1, &format!("`{}` is no line of /proc/diskstats: left out", shown(line))),
                Err(reason) => notes.line(at + 1, &format!("{reason}: left out")),
            }
        }
    }

    let own = samples.get_mut(begin..).unwrap_or_default();
    shift_stamps(own, stamp);
    if !text.ends_with('\n') {
        drop_cut_line(samples, notes);
    }
}

/// Adds `/sys/block/NAME/stat` to a series.
///
/// # Errors
/// The reason why the text is not in this format.
pub(in crate::stat) fn read_sysfs(name: &str, text: &str, samples: &mut Vec<Sample>) -> Result<(), String> {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let device = device(&format!("0 0 {name} {line}"))?.ok_or("it has more than numbers")?;
    add(samples, device);
    Ok(())
}

fn add(samples: &mut Vec<Sample>, device: DiskStats) {
    if samples.last_mut().is_none_or(|sample| !sample.names.insert(device.name.clone())) {
        samples.push(Sample { names: HashSet::from([device.name.clone()]), ..Sample::default() });
    }
    if let Some(sample) = samples.last_mut() {
        sample.devices.push(device);
    }
}

/// Parses the device of a line; `None` if the line is of another kind.
///
/// # Errors
/// The reason why its counts cannot be read.
fn device(line: &str) -> Result<Option<DiskStats>, String> {
    // `disk` is the prefix of collectl, `>` that of a quote.
    let words: Vec<&str> = line.split_whitespace().collect();
    let words = match words.as_slice() {
        ["disk" | ">", rest @ ..] => rest,
        all => all,
    };
    let is_number = |word: &&str| word.bytes().all(|byte| byte.is_ascii_digit());
    let text = match words {
        // Linux 2.4: major, minor, blocks, name.
        [major, minor, blocks, name, rest @ ..] if is_number(blocks) && !is_number(name) && is_number(major) => {
            format!("{major} {minor} {name} {}", rest.join(" "))
        }
        [major, minor, name, _, ..] if is_number(major) && is_number(minor) && !is_number(name) => words.join(" "),
        _ => return Ok(None),
    };
    diskstats::parse(&text).map(|mut devices| devices.pop()).map_err(|error| error.reason)
}

/// Moves each time to the sample before it, if times follow their samples: the first sample then has none, and
/// `trailing` is the last one's.
fn shift_stamps(samples: &mut [Sample], trailing: Option<Stamp>) {
    let Some(trailing) = trailing.filter(|_| samples.first().is_some_and(|sample| sample.stamp.is_none())) else {
        return;
    };
    let mut next = Some(trailing);
    for sample in samples.iter_mut().rev() {
        next = std::mem::replace(&mut sample.stamp, next);
    }
}

/// Drops the last line of a text that does not end in a line break, if it has fewer counters than its device had
/// before.
fn drop_cut_line(samples: &mut Vec<Sample>, notes: &mut Notes) {
    let Some((last, before)) = samples.split_last_mut() else { return };
    let Some(device) = last.devices.last() else { return };
    let others = before.iter().flat_map(|sample| &sample.devices).filter(|other| other.name == device.name);
    let counted = |device: &DiskStats| {
        let counters = &device.counters;
        [counters.weighted_ms, counters.discard_ms, counters.flush_ms].iter().flatten().count()
    };
    if others.map(counted).max().is_some_and(|most| most > counted(device)) {
        notes.file("the text ends within its last line: left out");
        last.devices.pop();
    }
    if last.devices.is_empty() {
        samples.pop();
    }
}

/// Returns the intervals of a series; for a single sample, the means since boot.
pub(in crate::stat) fn intervals(samples: &[Sample], options: &ReadOptions, notes: &mut Notes) -> Vec<Interval> {
    let stamps = samples.iter().filter_map(|sample| sample.stamp);
    if stamps.clone().any(|stamp| stamp.since == Since::LocalEpoch) {
        notes.file("times have no zone: taken as UTC");
    }
    if let [only] = samples {
        notes.file("a single sample: means since boot are known, rates are not; a second sample would tell them");
        let mut interval = reading(only, 100).since_boot();
        set_length(&mut interval, None);
        interval.end_unix_ms = only.stamp.and_then(Stamp::unix_ms);
        return vec![interval];
    }

    if samples.len() > 1 && stamps.count() < 2 && options.interval_s.is_none() {
        notes.file("the samples carry no times: rates, queue and %util are unknown; say --interval SECONDS");
    }
    let pairs = samples.iter().zip(samples.iter().skip(1));
    pairs
        .enumerate()
        .map(|(at, (before, after))| between(before, after, at + 2 == samples.len(), options, notes))
        .collect()
}

fn between(before: &Sample, after: &Sample, is_last: bool, options: &ReadOptions, notes: &mut Notes) -> Interval {
    let mut interval = reading(after, 100).since(&reading(before, 0));
    let length_s = match before.stamp.zip(after.stamp) {
        Some((before, after)) => after.seconds_since(before),
        None => options.interval_s,
    };

    let is_begin = after.devices.iter().zip(&before.devices).all(|(after, before)| after.name == before.name);
    if is_last && is_begin && after.devices.len() < before.devices.len() {
        notes.file("the last sample ends early: the devices that it lacks are left out");
        interval.devices.retain(|device| device.gap != Some(Gap::Disappeared));
    }
    if before.stamp.is_some() && after.stamp.is_some() && length_s.is_none() {
        notes.file("a time is not later than the one before it: no rates are known there");
    }
    set_length(&mut interval, length_s);
    interval.end_unix_ms = after.stamp.and_then(Stamp::unix_ms);
    interval
}

/// Returns a sample as a reading of a host that began `uptime_cs` hundredths of a second ago.
fn reading(sample: &Sample, uptime_cs: u64) -> Reading {
    Reading { uptime_cs, devices: sample.devices.clone(), ..Reading::default() }
}

/// Changes the length of an interval of one second. If the length is not known, rates become unknown, except zeros of
/// devices at which nothing completed: those hold for any length. Beside unknown rates a 0 would pass for their sum.
fn set_length(interval: &mut Interval, length_s: Option<f64>) {
    interval.duration_s = length_s;
    for device in &mut interval.devices {
        let columns = &device.columns;
        let is_still = columns.transfers_per_s == Some(0.0) && columns.flushes_per_s.is_none_or(|rate| rate == 0.0);
        for rate in rates(&mut device.columns) {
            *rate = match length_s {
                Some(seconds) => rate.map(|rate| rate / seconds),
                None => rate.filter(|rate| is_still && *rate == 0.0),
            };
        }
    }
}

/// Returns the columns that depend on the interval's length.
fn rates(columns: &mut Columns) -> [&mut Option<f64>; 14] {
    [
        &mut columns.reads_per_s,
        &mut columns.writes_per_s,
        &mut columns.discards_per_s,
        &mut columns.flushes_per_s,
        &mut columns.read_kib_per_s,
        &mut columns.write_kib_per_s,
        &mut columns.discard_kib_per_s,
        &mut columns.read_merges_per_s,
        &mut columns.write_merges_per_s,
        &mut columns.discard_merges_per_s,
        &mut columns.queue,
        &mut columns.util_percent,
        &mut columns.transfers_per_s,
        &mut columns.all_kib_per_s,
    ]
}
