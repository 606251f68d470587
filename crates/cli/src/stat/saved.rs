//! Saved intervals, of this host or another.
//!
//! # Why
//! The verdicts are the same as live, from the files of a support bundle.
//!
//! # How it works
//! All files are read before anything is printed, so that an unreadable file gives an error and nothing else. Omissions
//! and assumptions go to stderr. Of a long recording the table is the summary; each interval is shown on request.
//!
//! # Limits
//! All intervals are in memory, so a file may have at most [`FILE_BYTES_MAX`].
//!
//! [`FILE_BYTES_MAX`]: plimsoll_measure::report_page::FILE_BYTES_MAX
//!
//! # Example
//! `plimsoll stat --from bundle/iostat.txt --disk i4i.2xlarge`.

use std::path::Path;

use plimsoll_figures::units::format_count;
use plimsoll_measure::report_page::read_whole;
use plimsoll_observe::stat::Interval;
use plimsoll_observe::stat::ReadOptions;
use plimsoll_observe::stat::from::bundle::directory;
use plimsoll_observe::stat::from::{self, Recorded, Saved};
use plimsoll_observe::stat::host::{Host, is_partition};

use super::{Kept, StatArguments, sink, watching};
use crate::failure::{Failure, Outcome};
use crate::flags::ReportFormat;
use crate::screen;

/// Most intervals that are shown unasked, in a table.
const SHOWN_MOST: usize = 20;

pub(super) fn run(arguments: &StatArguments, kept: Kept) -> Result<(Kept, Outcome), Failure> {
    let mut watch = watching::watch(&arguments.capacity, &arguments.show.groups, None)?;
    let paths: Vec<&Path> = arguments.saved.from.iter().map(AsRef::as_ref).collect();
    let recorded = read(arguments, &paths)?;
    if arguments.format == ReportFormat::Table {
        screen::print(&format!("{}\n\n", screen::wrap(&recorded.origin)))?;
    }
    let intervals = recorded.intervals.len();
    let is_long = intervals > SHOWN_MOST && !arguments.saved.intervals;
    if is_long && arguments.format == ReportFormat::Table {
        screen::note(&format!("{} intervals: --intervals shows each", format_count(intervals as u64)));
    }
    let mut sink = arguments.sink(Host::default(), kept).with_summary(is_long);
    let mut intervals = recorded.intervals.iter();
    let shown = intervals.try_for_each(|interval| sink.interval(watch.observe(interval, &recorded.facts), &[]));
    let (kept, closed) = sink.end();
    sink::or_save(arguments, kept, shown.and(closed))
}

/// Reads the files, without partitions unless they are requested; remarks go to stderr.
pub(super) fn read(arguments: &StatArguments, paths: &[&Path]) -> Result<Recorded, Failure> {
    let mut files = Vec::new();
    for path in paths {
        let is_found = path.is_dir();
        let inside = if is_found { directory(path) } else { Ok(vec![path.to_path_buf()]) };
        for path in inside.map_err(|error| Failure::Input(format!("{}: {error}", path.display())))? {
            let bytes = read_whole(&path).map_err(|error| Failure::Input(error.to_string()))?;
            files.push(Saved { name: path.display().to_string(), bytes, is_found });
        }
    }
    if files.is_empty() {
        let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        return Err(Failure::Input(format!("{}: there is no file in it", names.join(", "))));
    }

    let options = ReadOptions {
        interval_s: arguments.saved.interval.map(|time| time.as_secs_f64()),
        is_first_an_interval: arguments.show.omit_first,
    };
    let mut recorded = from::read_all(&files, &options).map_err(|error| Failure::Input(error.to_string()))?;
    recorded.notes.iter().for_each(|note| screen::note(&format!("note: {note}")));

    let Recorded { intervals, facts, .. } = &mut recorded;
    let is_wanted = |name: &str| {
        arguments.show.partitions || !is_partition(name, facts) || arguments.named().any(|device| device == name)
    };
    let has_disks = |interval: &Interval| interval.devices.iter().any(|device| is_wanted(&device.device));
    // If the files hold partitions only, keep them: their author asked for them.
    if intervals.iter().any(has_disks) {
        intervals.iter_mut().for_each(|interval| interval.devices.retain(|device| is_wanted(&device.device)));
    }

    check_devices(arguments, &recorded)?;
    Ok(recorded)
}

/// Refuses a named device that is in no interval.
fn check_devices(arguments: &StatArguments, recorded: &Recorded) -> Result<(), Failure> {
    let is_there = |name: &str| {
        let mut devices = recorded.intervals.iter().flat_map(|interval| &interval.devices);
        devices.any(|device| device.device == name)
    };
    match arguments.named().find(|name| !is_there(name)) {
        Some(name) => Err(Failure::Input(format!("there is no device {name} in {}", recorded.origin))),
        None => Ok(()),
    }
}
