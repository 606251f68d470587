//! Samples of `/proc/diskstats` and of `/sys/block/NAME/stat`, as scripts save them.
//!
//! # Why
//! Every host has `cat`, and a loop around it is the most common recording there is.
//!
//! # How it works
//! A sample is a number of lines of `/proc/diskstats`. The next one begins at a time, at a line of signs (`-----`, `==>
//! FILE <==`), or where a device's name repeats. Lines of another format are left out with a note; those of Linux 2.4,
//! which have the blocks of the device before its name, are read without them. A series becomes the intervals between
//! its samples by [`Reading::since`]; a single sample becomes the means since boot.
//!
//! # Limits
//! A time is that of the sample below it. Without times no rate is known, except that those of devices without any work
//! are 0. If the last sample lacks the last devices of the one before, it counts as cut: devices that disappeared just
//! then are not reported.
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

use super::times::{self, DayOrder, Stamp};
use super::{Notes, ROWS_MAX, ReadOptions, shown};
use crate::stat::host::Reading;
use crate::stat::interval::{COLUMNS, Mean};
use crate::stat::{Gap, Interval};

/// The counters of all devices at a moment.
#[derive(Clone, Debug, Default)]
pub(in crate::stat) struct Sample {
    stamp: Option<Stamp>,
    devices: Vec<DiskStats>,
    names: HashSet<String>,
}

/// Returns whether a line could be one of `/proc/diskstats`.
pub(in crate::stat) fn is_line(line: &str) -> bool {
    device(line).is_ok_and(|device| device.is_some())
}

/// Adds the samples of a text, whose dates have the given order, to a series. A device whose name repeats begins a new
/// sample, also across files. Fails with the line, from 1, with which there are more than [`ROWS_MAX`] rows.
pub(in crate::stat) fn read(
    text: &str,
    order: DayOrder,
    samples: &mut Vec<Sample>,
    notes: &mut Notes,
) -> Result<(), usize> {
    let mut rows: usize = samples.iter().map(|sample| sample.devices.len()).sum();
    let (mut stamp, mut is_new) = (None, false);

    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        if let Some(time) = times::parse(line, order) {
            (stamp, is_new) = (Some(time), true);
        } else if line.trim().chars().all(|c| c.is_ascii_punctuation()) || line.trim_start().starts_with("==>") {
            is_new = true;
        } else {
            match device(line) {
                Ok(Some(device)) => {
                    if std::mem::take(&mut is_new) {
                        samples.push(Sample { stamp: stamp.take(), ..Sample::default() });
                    }
                    add(samples, device);
                    rows += 1;
                    if rows > ROWS_MAX {
                        return Err(at + 1);
                    }
                }
                Ok(None) => notes.line(at + 1, &format!("`{}` is no line of /proc/diskstats: left out", shown(line))),
                Err(reason) => notes.line(at + 1, &format!("{reason}: left out")),
            }
        }
    }

    if !text.ends_with('\n') {
        drop_cut_line(samples, notes);
    }
    Ok(())
}

/// Adds `/sys/block/NAME/stat` to a series.
pub(in crate::stat) fn read_sysfs(name: &str, text: &str, samples: &mut Vec<Sample>) -> Result<(), String> {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let device = device(&format!("0 0 {name} {line}"))?.ok_or("it has more than numbers")?;
    add(samples, device);
    Ok(())
}

fn add(samples: &mut Vec<Sample>, device: DiskStats) {
    if samples.last_mut().is_none_or(|sample| !sample.names.insert(device.name.clone())) {
        // Only the names of the sample that is being read are asked for.
        if let Some(last) = samples.last_mut() {
            last.names = HashSet::new();
            last.devices.shrink_to_fit();
        }
        samples.push(Sample { names: HashSet::from([device.name.clone()]), ..Sample::default() });
    }
    if let Some(sample) = samples.last_mut() {
        sample.devices.push(device);
    }
}

/// Parses the device of a line; `None` if the line is of another kind. Fails with the reason why its counts cannot be
/// read.
fn device(line: &str) -> Result<Option<DiskStats>, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let is_number = |word: &&str| word.bytes().all(|byte| byte.is_ascii_digit());
    let text = match words.as_slice() {
        // Linux 2.4: major, minor, blocks, name.
        [major, minor, blocks, name, rest @ ..] if is_number(blocks) && !is_number(name) && is_number(major) => {
            format!("{major} {minor} {name} {}", rest.join(" "))
        }
        [major, minor, name, _, ..] if is_number(major) && is_number(minor) && !is_number(name) => words.join(" "),
        _ => return Ok(None),
    };
    diskstats::parse(&text).map(|mut devices| devices.pop()).map_err(|error| error.reason)
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
pub(in crate::stat) fn intervals(samples: Vec<Sample>, options: &ReadOptions, notes: &mut Notes) -> Vec<Interval> {
    let stamps = samples.iter().filter_map(|sample| sample.stamp);
    stamps.clone().for_each(|stamp| notes.zone(stamp));
    if let [only] = samples.as_slice() {
        notes.file("a single sample: means since boot are known, rates are not; a second sample would tell them");
        let mut interval = reading(only, 100).since_boot();
        set_length(&mut interval, None);
        interval.end_unix_ms = only.stamp.and_then(Stamp::unix_ms);
        return vec![interval];
    }

    if samples.len() > 1 && stamps.count() < 2 && options.interval_s.is_none() {
        notes.file("the samples carry no times: rates, queue and %util are unknown; say --interval SECONDS");
    }
    let count = samples.len();
    let mut samples = samples.into_iter();
    let Some(mut before) = samples.next() else { return Vec::new() };
    // Each sample is dropped once it is used: both forms of a long series are never in memory as a whole.
    let mut intervals = Vec::with_capacity(count);
    for (at, after) in samples.enumerate() {
        intervals.push(between(&before, &after, at + 2 == count, options, notes));
        before = after;
    }
    intervals
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
        for (column, rate) in COLUMNS.iter().zip(device.columns.all_mut()) {
            if column.mean == Mean::ByTime {
                *rate = match length_s {
                    Some(seconds) => rate.map(|rate| rate / seconds),
                    None => rate.filter(|rate| is_still && *rate == 0.0),
                };
            }
        }
    }
}
