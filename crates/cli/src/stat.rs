//! `plimsoll stat`: shows the I/O of the disks, and whether they could do more.

mod compare;
mod live;
mod recording;
mod saved;
mod sink;
mod table;
mod top;
mod watching;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use plimsoll_observe::stat::history::History;
use plimsoll_observe::stat::host::Host;
use plimsoll_observe::stat::output::Selection;
use plimsoll_observe::stat::pictures::PICTURES;
use plimsoll_show::page;

use crate::failure::{Failure, Outcome};
use crate::flags::{PictureFlags, ReportFormat, input, time_within};
use crate::output::{Output, Pictures};
use crate::screen;
pub(crate) use live::Live;
use watching::Roots;
pub(crate) use watching::watch;

/// Show the I/O of this host's disks, how much of their capacity it uses, and whether requests wait
///
/// The columns are those of `iostat -x`, by its formulas. Three are added: U, the part of the capacity that is in use,
/// S, the part of their time that requests wait, and a verdict: idle, ok, busy-but-free (%util is near 100, the disk is
/// not at its limit), saturated, degraded (requests wait though the disk could do more), hung, imbalanced (of groups),
/// unknown.
///
/// Without an interval, shows the means since boot. With one, shows these first (not with -y), then a report each
/// interval, until COUNT or Ctrl-C. Exit code 1 if the verdict on any device or group shown is saturated, degraded,
/// hung or imbalanced.
#[derive(Args, Debug)]
pub(crate) struct StatArguments {
    /// Time between reports: seconds, or with a unit (100ms, 1m)
    #[arg(value_name = "INTERVAL", value_parser = parse_every)]
    every: Option<Duration>,

    /// Number of reports [default: no end]
    #[arg(value_name = "COUNT", requires = "every", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    #[command(flatten)]
    show: ShowFlags,

    #[command(flatten)]
    capacity: CapacityFlags,

    #[command(flatten)]
    saved: SavedFlags,

    #[command(flatten)]
    host: HostFlags,

    /// Format of the result
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    format: ReportFormat,

    #[command(flatten)]
    pictures: PictureFlags,
}

/// Rows and columns of a report.
#[derive(Args, Debug)]
#[command(next_help_heading = "What is shown")]
struct ShowFlags {
    /// Show devices only, without the CPUs
    #[arg(short = 'd', long)]
    devices_only: bool,

    /// Show all columns of `iostat -x`, in the parts of `iostat -x --pretty`
    #[arg(short = 'x', long)]
    extended: bool,

    /// Omit the first report (the means since boot); with --from, take a file's first report as an interval
    #[arg(short = 'y', long)]
    omit_first: bool,

    /// Omit devices without I/O
    #[arg(short = 'z', long)]
    omit_idle: bool,

    /// Show the time (UTC) above each report
    #[arg(short = 't', long)]
    timestamps: bool,

    /// Show partitions, too
    #[arg(short = 'p', long)]
    partitions: bool,

    /// Show only this device, such as nvme0n1 (repeatable)
    #[arg(long = "device", value_name = "NAME", value_parser = parse_device)]
    devices: Vec<String>,

    /// A group of devices that should have equal load (repeatable); arrays of this host are groups by themselves
    #[arg(long = "group", value_name = "NAME=DEV,DEV...", value_parser = parse_group)]
    groups: Vec<Group>,

    /// Show a live view on the terminal: arrow keys choose a device, q ends it
    #[arg(long, conflicts_with_all = ["from", "compare", "format", "extended"])]
    top: bool,
}

/// Descriptions of the disks.
#[derive(Args, Debug)]
#[command(next_help_heading = "Capacity")]
pub(crate) struct CapacityFlags {
    /// Model of a device (of all, without DEV=): a disk file or the name of a preset (repeatable; see `plimsoll
    /// presets`)
    #[arg(long = "disk", value_name = "[DEV=]FILE|PRESET")]
    disks: Vec<String>,

    /// Seastar's io-properties file instead: each entry describes the device of its mount point
    #[arg(long, visible_alias = "io-properties-file", value_name = "FILE")]
    io_properties: Option<PathBuf>,
}

/// Recordings to write, judge or compare.
#[derive(Args, Debug)]
#[command(next_help_heading = "Recordings")]
struct SavedFlags {
    /// Record the counters in this file while they are shown (for --from, on any host); an existing one only with --force
    #[arg(long, value_name = "FILE", conflicts_with_all = ["from", "compare"])]
    record: Option<PathBuf>,

    /// Judge saved figures instead of this host: recordings of --record, samples of /proc/diskstats, text or JSON of
    /// iostat, CSV of stat, also in a directory, tar or gzip file; `-`: stdin
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["every", "compare"], value_parser = input())]
    from: Vec<PathBuf>,

    /// With --from: show each interval of a long recording (more than 20), not only the summary
    #[arg(long, requires = "from")]
    intervals: bool,

    /// Compare two files as --from reads them, or intervals of them (FILE:2-5: the second to the fifth): the changes,
    /// and the conclusions that they allow
    #[arg(long, value_names = ["A", "B"], num_args = 2, conflicts_with = "every")]
    compare: Vec<String>,

    /// With --compare: a rate that a graph shows for A, to find out whether it is per second or per minute
    #[arg(long, value_name = "RATE", requires = "compare", value_parser = parse_rate)]
    graph_rate: Option<f64>,

    /// For files without times: the time from one sample or report to the next, seconds or with a unit
    #[arg(long, value_name = "TIME", value_parser = time_within(EVERY_LEAST, EVERY_MOST), conflicts_with = "every")]
    interval: Option<Duration>,
}

/// Shortest and longest time between reports.
const EVERY_LEAST: Duration = Duration::from_millis(10);
const EVERY_MOST: Duration = Duration::from_secs(365 * 86_400);

/// The kernel's file systems, and running programs.
#[derive(Args, Debug)]
#[command(next_help_heading = "Host")]
pub(crate) struct HostFlags {
    /// Omit the scheduling classes of running Plimsoll programs
    #[arg(long)]
    pub(crate) no_programs: bool,

    /// The host's /proc, if it is mounted elsewhere (in a container)
    #[arg(long, value_name = "DIR", default_value = "/proc")]
    proc_root: PathBuf,

    /// The host's /sys
    #[arg(long, value_name = "DIR", default_value = "/sys")]
    sys_root: PathBuf,
}

impl HostFlags {
    pub(crate) fn roots(&self) -> Roots<'_> {
        Roots { proc: &self.proc_root, sys: &self.sys_root }
    }
}

/// A name, and devices that belong together.
pub(crate) type Group = (String, Vec<String>);

/// Reads the time between reports. iostat takes names of devices there, so the error for one names our flag.
fn parse_every(text: &str) -> Result<Duration, String> {
    time_within(EVERY_LEAST, EVERY_MOST)(text).map_err(|error| match text.starts_with(|c: char| c.is_alphabetic()) {
        true => format!("{error}; --device {text} shows one device"),
        false => error,
    })
}

/// Reads the name of a device, or its path in /dev.
fn parse_device(text: &str) -> Result<String, String> {
    let name = text.trim().trim_start_matches("/dev/");
    // Accept inner slashes: diskstats writes names such as cciss/c0d0 with them, unlike sysfs.
    if name.is_empty() || name.contains(char::is_whitespace) || name.starts_with('/') {
        return Err("expected the name of a device, such as nvme0n1".to_owned());
    }
    Ok(name.to_owned())
}

/// Reads the rate of a graph, without a unit: `--compare` finds that out.
fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.trim().parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
    rate.ok_or_else(|| "expected a plain number above 0, such as 3850000".to_owned())
}

pub(crate) fn parse_group(text: &str) -> Result<Group, String> {
    let expected = || "expected NAME=DEV,DEV with at least two devices, such as data=nvme0n1,nvme1n1".to_owned();
    let (name, members) = text.split_once('=').ok_or_else(expected)?;
    let devices = members.split(',').map(parse_device).collect::<Result<Vec<_>, _>>()?;
    let different: BTreeSet<&String> = devices.iter().collect();
    if name.is_empty() || devices.len() < 2 || different.len() != devices.len() {
        return Err(expected());
    }
    Ok((name.to_owned(), devices))
}

impl StatArguments {
    /// Returns whether files are judged instead of this host.
    pub(crate) fn is_of_files(&self) -> bool {
        !self.saved.from.is_empty() || !self.saved.compare.is_empty()
    }
}

pub(crate) fn run(arguments: &StatArguments) -> Result<Outcome, Failure> {
    if !arguments.saved.compare.is_empty() {
        return compare::run(arguments);
    }
    let files = Files::check(arguments)?;
    let mut history = files.is_any().then(History::default);
    let ended = if !arguments.saved.from.is_empty() {
        saved::run(arguments, &mut history)
    } else if arguments.show.top {
        top::run(arguments, &mut history)
    } else {
        live::run(arguments, &mut history)
    };

    // A run that failed keeps its page and pictures: then they are needed most.
    let history = history.filter(|history| ended.is_ok() || history.last().is_some());
    match (files.write(history.as_ref()), &ended) {
        (Err(error), Err(_)) => screen::warning(&error.to_string()),
        (written, _) => written?,
    }
    ended
}

/// The files of the page and the pictures.
struct Files {
    page: Option<Output>,
    pictures: Option<Pictures>,
}

impl Files {
    fn check(arguments: &StatArguments) -> Result<Files, Failure> {
        let (page, pictures) = arguments.pictures.check(&PICTURES)?;
        Ok(Files { page, pictures })
    }

    /// Returns whether a file needs the history of the run.
    fn is_any(&self) -> bool {
        self.page.is_some() || self.pictures.is_some()
    }

    /// Writes the requested files; omits a picture without content.
    fn write(&self, history: Option<&History>) -> Result<(), Failure> {
        const TITLE: &str = "What the disks did";
        let Some(history) = history else { return Ok(()) };
        if let Some(output) = &self.page {
            output.write(&page::html(TITLE, &history.recorded()))?;
        }
        if let Some(output) = &self.pictures {
            for name in PICTURES {
                let charts = history.picture(name);
                if !charts.is_empty() {
                    output.write(name, TITLE, &charts)?;
                }
            }
        }
        Ok(())
    }
}

impl StatArguments {
    /// Returns the devices named by `--device`, in a group, or with a capacity.
    fn named(&self) -> impl Iterator<Item = &str> {
        let of_groups = self.show.groups.iter().flat_map(|(_, devices)| devices);
        let by_name = self.show.devices.iter().chain(of_groups).map(String::as_str);
        by_name.chain(self.capacity.disks.iter().filter_map(|text| watching::split(text).0))
    }

    fn selection(&self) -> Selection {
        Selection { devices: self.show.devices.clone(), omit_idle: self.show.omit_idle }
    }

    fn sink<'a>(&self, host: Host, history: &'a mut Option<History>) -> sink::Sink<'a> {
        let ShowFlags { extended, timestamps, devices_only, .. } = self.show;
        let tables = table::Tables::new(extended, timestamps, !devices_only);
        sink::Sink::new(self.format, tables, self.selection(), host, history)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_devices_are_named() {
        let cases = [
            ("data=nvme0n1,/dev/nvme1n1", Some(("data", vec!["nvme0n1", "nvme1n1"]))),
            ("d=b,a", Some(("d", vec!["b", "a"]))),
            ("data=nvme0n1", None),
            ("data=a,a", None),
            ("=a,b", None),
            ("a,b", None),
            ("d=a,,b", None),
        ];
        for (text, expected) in cases {
            let found = parse_group(text).ok();
            let found =
                found.as_ref().map(|(name, devices)| (name.as_str(), devices.iter().map(String::as_str).collect()));
            assert_eq!(found, expected, "{text}");
        }
    }
}
