//! Saved intervals, of this host or another.
//!
//! # Why
//! The files of a support bundle must give the same verdicts as a live run.
//!
//! # How it works
//! All files are read before anything is printed, so that an unreadable file gives only an error. Omissions and
//! assumptions go to stderr. The answer comes first. For a long recording the table is a summary; `--intervals` shows
//! each interval.
//!
//! # Limits
//! All intervals are in memory, so a file may have at most [`FILE_BYTES_MAX`].
//!
//! [`FILE_BYTES_MAX`]: plimsoll_measure::report_page::FILE_BYTES_MAX
//!
//! # Example
//! `plimsoll stat --from bundle/iostat.txt --disk i4i.2xlarge`.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::path::Path;

use plimsoll_figures::units::format_count;
use plimsoll_measure::report_page::read_whole;
use plimsoll_observe::stat::from::bundle::directory;
use plimsoll_observe::stat::from::{self, Recorded, Saved};
use plimsoll_observe::stat::history::History;
use plimsoll_observe::stat::host::{Host, is_partition};
use plimsoll_observe::stat::{Basis, Interval, Judged, Observed, ReadOptions, Verdict};
use plimsoll_show::answer::{Answer, Mood};

use super::sink::AnswerPlace;
use super::{StatArguments, watching};
use crate::failure::{Failure, Outcome};
use crate::flags::ReportFormat;
use crate::screen;

/// Most intervals that a table shows without `--intervals`.
const SHOWN_MOST: usize = 20;

pub(super) fn run(arguments: &StatArguments, history: &mut Option<History>) -> Result<Outcome, Failure> {
    let mut watch = watching::watch(&arguments.capacity, &arguments.show.groups, None)?;
    let paths: Vec<&Path> = arguments.saved.from.iter().map(AsRef::as_ref).collect();
    let recorded = read(arguments, &paths)?;
    let observed: Vec<Observed> =
        recorded.intervals.iter().map(|interval| watch.observe(interval, &recorded.facts)).collect();

    let intervals = observed.len();
    let is_long = intervals > SHOWN_MOST && !arguments.saved.intervals;
    let mut place = AnswerPlace::BeginInOtherWords;
    let mut head = None;
    if arguments.format == ReportFormat::Table {
        let counted = counted_history(&observed, &arguments.show.devices);
        let answer = answer(&observed, &counted, &arguments.show.devices);
        let answer = answer.as_ref().map_or_else(String::new, screen::answer);
        if counted.is_of_several() && screen::is_whole(&answer) {
            place = AnswerPlace::Begin;
        }
        head = Some(format!("{answer}{}\n\n", screen::wrap(&recorded.origin)));
    }

    let mut sink = arguments.sink(Host::default(), history).with_summary(is_long, place);
    head.map_or(Ok(()), |head| sink.print(&head))?;
    if is_long && arguments.format == ReportFormat::Table {
        screen::note(&format!("{} intervals: --intervals shows each", format_count(intervals as u64)));
    }

    let shown = observed.into_iter().try_for_each(|observed| sink.interval(observed, &[]));
    let closed = sink.end();
    shown.and(closed)
}

/// Returns the intervals that count. A mean since boot counts only if there is no other interval, as in the summary.
fn counted(observed: &[Observed]) -> impl Iterator<Item = &Observed> {
    let has_intervals = observed.iter().any(|observed| !observed.is_since_boot);
    observed.iter().filter(move |observed| !(has_intervals && observed.is_since_boot))
}

fn is_wanted(judged: &Judged, wanted: &[String]) -> bool {
    wanted.is_empty() || wanted.contains(&judged.interval.device)
}

/// Collects the intervals that count, of the devices `wanted`, or of all if `wanted` is empty.
fn counted_history(observed: &[Observed], wanted: &[String]) -> History {
    let mut history = History::default();
    for mut observed in counted(observed).cloned() {
        observed.devices.retain(|judged| is_wanted(judged, wanted));
        history.push(observed);
    }
    history
}

/// Returns the verdict on the device that needs attention most, or on how several share their work, or `None` without
/// devices.
fn answer(observed: &[Observed], history: &History, wanted: &[String]) -> Option<Answer> {
    if history.is_of_several() {
        return history.answer();
    }

    let judged: Vec<&Judged> =
        counted(observed).flat_map(|observed| &observed.devices).filter(|it| is_wanted(it, wanted)).collect();
    // Known verdicts rank above unknown ones. Of the same verdict, the device with more under way, or more requests.
    let rank = |judged: &Judged| {
        let columns = &judged.interval.columns;
        (judged.verdict != Verdict::Unknown, judged.verdict, columns.queue, columns.requests_per_s())
    };
    let worst = judged.iter().max_by(|a, b| rank(a).partial_cmp(&rank(b)).unwrap_or(Ordering::Equal))?;

    let device = &worst.interval.device;
    let same = judged.iter().filter(|it| it.interval.device == *device && it.verdict == worst.verdict).count();
    let devices: BTreeSet<&str> = judged.iter().map(|judged| judged.interval.device.as_str()).collect();
    let of = if devices.len() == 1 { String::new() } else { format!(", the worst of {} devices", devices.len()) };
    let mood = match worst.verdict {
        Verdict::Idle | Verdict::Ok | Verdict::BusyButFree => Mood::Good,
        Verdict::Unknown => Mood::Heed,
        Verdict::Imbalanced | Verdict::Degraded | Verdict::Saturated | Verdict::Hung => Mood::Bad,
    };

    let percent = |part: Option<f64>| part.map_or("unknown".to_owned(), |part| format!("{:.0} %", 100.0 * part));
    let util = worst.interval.columns.util_percent.map_or(String::new(), |util| format!(", %util {util:.0}"));
    let figure = format!("U {}, S {}{util}", percent(worst.capacity_use), percent(worst.saturation));
    let confidence = match worst.capacity_basis {
        Basis::Model(_) => "U is by the model that --disk names",
        Basis::HighestSeen => "U is by the highest rate seen: an upper bound; --disk settles it",
        Basis::Unknown => "no model of the disk: --disk makes U known",
    };
    let verdict =
        format!("{device} is {} in {same} of {} interval(s){of}", worst.verdict.name(), counted(observed).count());
    Some(Answer::new(mood, verdict, figure, confidence))
}

/// Reads the files, without partitions unless they are requested. Prints remarks to stderr.
pub(super) fn read(arguments: &StatArguments, paths: &[&Path]) -> Result<Recorded, Failure> {
    let mut files = Vec::new();
    for path in paths {
        let is_found = path.is_dir();
        let inside = if is_found { directory(path) } else { Ok(vec![path.to_path_buf()]) };
        for path in inside.map_err(|error| Failure::Input(format!("{}: {error}", path.display())))? {
            match read_whole(&path) {
                Ok(bytes) => files.push(Saved { name: path.display().to_string(), bytes, is_found }),
                // A file of another owner, or a large one, must not take away the others.
                Err(error) if is_found => screen::note(&format!("note: left out: {error}")),
                Err(error) => return Err(Failure::Input(error.to_string())),
            }
        }
    }
    if files.is_empty() {
        let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        return Err(Failure::Input(format!("{}: there is no file in it that can be read", names.join(", "))));
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
    // If the files hold only partitions, keep them: their author asked for them.
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
