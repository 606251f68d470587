//! Reads saved figures: our own recordings, and files of other programs.
//!
//! # Why
//! The disks in question are rarely accessible. A support bundle has the text of an `iostat` in some locale, a file of
//! `/proc/diskstats` samples, a JSON document that ends in the middle. Their figures are judged like live ones.
//!
//! # How it works
//! The content of a file decides how it is read:
//!
//! | file | becomes |
//! |---|---|
//! | a recording of `stat --record` | intervals between its readings, and the facts of the devices |
//! | samples of `/proc/diskstats`, one or many | intervals between samples; of a single one, means since boot |
//! | `/sys/block/NAME/stat` | the same for the device that the path or file is named after |
//! | text of iostat, any layout of sysstat 9 to 12 | an interval for each report |
//! | JSON of iostat, also cut off, also several documents | the same |
//! | CSV of `stat --format csv` | the same |
//!
//! **Times.** A sample begins with a line of `date`, seconds since 1970, ISO 8601 or a separator such as `zzz ***`, or
//! where a device's name repeats. Intervals last from stamp to stamp; without stamps they last
//! [`ReadOptions::interval_s`]; else their length is unknown, and with samples so is every rate of a device that did
//! any work. Local times without a zone are taken as UTC.
//!
//! **Since boot.** iostat's first report is of the time since boot unless `-y` was given, which its output does not
//! show. So the first report after a banner line (`Linux 6.1.0 (host) ...`), and the first of a JSON document, counts
//! as since boot, unless [`ReadOptions::is_first_an_interval`] is set. A text without a banner is an excerpt: a single
//! report counts as an interval; of several, the first may be iostat's first, and no verdict says that requests wait
//! in it.
//!
//! **Several files** of one host are read in order. Samples of neighbouring files are one series, as in a directory of
//! snapshots. The files of a directory, a tar or a gzip file ([`bundle`]) are one recording: files without figures of
//! disks are left out, and intervals whose times are known stand in their order.
//!
//! # Limits
//! Unreadable parts are left out, with a note in [`Recorded::notes`]; a missing, `nan` or negative column is unknown,
//! never 0. Group lines (`iostat -g`) are sums of others and left out, unless there are no others. Writes that iostat
//! prints added to discards (`kB_w+d/s`) are unknown. Compressed files other than gzip are refused.
//!
//! # Example
//! ```
//! use plimsoll_observe::stat::ReadOptions;
//! use plimsoll_observe::stat::from::read;
//! let text = "Device w/s wkB/s w_await aqu-sz %util\nnvme1n1 7497.00 105250.50 0.03 0.23 100.00\n";
//! let recorded = read("pasted.txt", text.as_bytes(), &ReadOptions::default())?;
//! let columns = &recorded.intervals[0].devices[0].columns;
//! assert_eq!((columns.writes_per_s, columns.queue, columns.reads_per_s), (Some(7497.0), Some(0.23), None));
//! # Ok::<(), plimsoll_observe::stat::from::FromError>(())
//! ```

use std::borrow::Cow;
use std::ffi::OsStr;
use std::path::Path;

pub mod bundle;

use super::host::{is_partition, looks_like_partition};
use super::readers::diskstats_text::Sample;
use super::readers::iostat_json::JsonError;
use super::readers::recognise::Kind;
use super::readers::times::{self, DayOrder};
use super::readers::{
    Notes, ROWS_MAX, ReadOptions, diskstats_text, host_name, iostat_json, iostat_text, own_csv, recognise,
    too_many_rows,
};
use super::watch::Watch;
use super::{DeviceFacts, Facts, Interval, Observed, record};

/// Saved figures of a host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recorded {
    /// The files, their kinds, and the host if known.
    pub origin: String,
    /// The hosts that the files name, each once.
    pub hosts: Vec<String>,
    pub intervals: Vec<Interval>,
    /// Facts about the devices, as far as a recording has them; else partitions are known by their names.
    pub facts: Facts,
    /// Parts that could not be read, and assumptions: a sentence each, with the file and, if known, the line. The last
    /// one counts what is more than a hundred.
    pub notes: Vec<String>,
    /// Whether dates have no day above 12, and so were taken as month first: `01/02/2024`.
    pub is_day_order_open: bool,
}

impl Recorded {
    /// Judges the intervals, one after the other. Leaves out partitions from intervals that have other devices.
    pub fn observed(&self, watch: &mut Watch) -> impl Iterator<Item = Observed> {
        self.intervals.iter().map(|interval| {
            let mut interval = interval.clone();
            let is_disk = |name: &str| !is_partition(name, &self.facts);
            // Only partitions: their recording was intended.
            if interval.devices.iter().any(|device| is_disk(&device.device)) {
                interval.devices.retain(|device| is_disk(&device.device));
            }
            watch.observe(&interval, &self.facts)
        })
    }
}

/// A file to be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// Its name in messages; for `/sys/block/NAME/stat` it also names the device.
    pub name: String,
    pub bytes: Vec<u8>,
    /// Whether it was found in a directory: it may be of any kind, and is left out without figures of disks.
    pub is_found: bool,
}

/// Why a file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FromError {
    #[error("{file}: the file is empty: expected {EXPECTED}")]
    Empty { file: String },
    /// The file is of another kind, or a recording that cannot be read.
    #[error("{file}: looks like {looks_like}: {remedy}")]
    Other { file: String, looks_like: String, remedy: String },
    /// The file begins like a known kind, and has no readable figures.
    #[error("{file}:{line}: {reason}")]
    Line {
        file: String,
        line: usize,
        /// The error, the expectation and the remedy.
        reason: String,
    },
}

impl FromError {
    fn other(file: &str, looks_like: &str, remedy: &str) -> FromError {
        FromError::Other { file: file.to_owned(), looks_like: looks_like.to_owned(), remedy: remedy.to_owned() }
    }

    fn line(file: &str, line: usize, reason: String) -> FromError {
        FromError::Line { file: file.to_owned(), line, reason }
    }
}

/// Most archives in one another.
const DEPTH_MAX: usize = 8;
/// Most files that are named in one line.
const NAMED_MOST: usize = 8;
/// Most notes on all files together.
const NOTES_MOST: usize = 100;
/// All kinds of files that are read, for messages.
const EXPECTED: &str =
    "a recording of `plimsoll stat --record`, samples of /proc/diskstats, text or JSON of `iostat`, or CSV of `stat`";

/// Reads a file. `name` is its name in messages; for `/sys/block/NAME/stat` it also names the device.
pub fn read(name: &str, bytes: &[u8], options: &ReadOptions) -> Result<Recorded, FromError> {
    collect(options, |collected| collected.add(name, bytes))
}

/// Reads several files in order; samples of neighbouring ones are one series. Fails with the first file that has no
/// readable figures, unless it was found; if no file has any; if the files are of several hosts.
pub fn read_all(files: &[Saved], options: &ReadOptions) -> Result<Recorded, FromError> {
    collect(options, |collected| {
        files.iter().try_for_each(|Saved { name, bytes, is_found }| match is_found {
            true => collected.add_found(name, bytes),
            false => collected.add(name, bytes),
        })
    })
}

/// Reads the files that `add` adds. If one shows that the day is first in dates and others leave it open, reads all
/// once more with that order: the locale is the host's.
fn collect(
    options: &ReadOptions,
    add: impl Fn(&mut Collected) -> Result<(), FromError>,
) -> Result<Recorded, FromError> {
    let mut collected = Collected::new(options);
    add(&mut collected)?;
    if let Some(order) = collected.decided.filter(|order| collected.is_undecided && *order != collected.order) {
        collected = Collected { order, ..Collected::new(options) };
        add(&mut collected)?;
    }
    collected.finish()
}

/// The figures of the files read so far.
#[derive(Default)]
struct Collected {
    options: ReadOptions,
    recorded: Recorded,
    origins: Vec<String>,
    /// The order in dates of files that leave it open.
    order: DayOrder,
    /// The order in the first file that shows it.
    decided: Option<DayOrder>,
    /// Whether a file has dates and leaves their order open.
    is_undecided: bool,
    /// Samples of the latest files, which the next file may continue, and the name of the first of these files.
    samples: Vec<Sample>,
    samples_of: String,
    /// The unix times in ms of the first and the last interval of each file that has them.
    spans: Vec<(String, u64, u64)>,
    /// Number of archives in which the present file lies.
    depth: usize,
    /// Length of all files unpacked from archives.
    unpacked_bytes: u64,
    /// Rows of devices in the intervals.
    rows: usize,
    /// Found files without figures of disks, and why the first of them has none; `None`: no file was found.
    left_out: Option<(Vec<String>, Option<FromError>)>,
}

impl Collected {
    fn new(options: &ReadOptions) -> Collected {
        let interval_s = options.interval_s.filter(|seconds| seconds.is_finite() && *seconds > 0.0);
        Collected { options: ReadOptions { interval_s, ..*options }, ..Collected::default() }
    }

    /// Reads a file that was found. If it holds no figures of disks, leaves it out.
    fn add_found(&mut self, name: &str, bytes: &[u8]) -> Result<(), FromError> {
        self.left_out.get_or_insert_default();
        let Err(error) = self.add(name, bytes) else { return Ok(()) };
        if matches!(error, FromError::Line { .. }) {
            self.recorded.notes.push(error.to_string());
        }
        let (left_out, first) = self.left_out.get_or_insert_default();
        left_out.push(name.to_owned());
        first.get_or_insert(error);
        Ok(())
    }

    /// Reads a file, or the files inside an archive.
    fn add(&mut self, name: &str, bytes: &[u8]) -> Result<(), FromError> {
        if let Some(inside) = bundle::unpack(name, bytes, &mut self.unpacked_bytes) {
            let inside = inside.map_err(|reason| FromError::other(name, "an archive", &reason))?;
            if self.depth == DEPTH_MAX {
                return Err(FromError::other(name, "an archive in too many others", "unpack it first"));
            }
            if inside.is_empty() {
                return Err(FromError::Empty { file: name.to_owned() });
            }
            self.depth += 1;
            let added = inside.iter().try_for_each(|(name, bytes)| self.add_found(name, bytes));
            self.depth -= 1;
            return added;
        }

        let mut notes = Notes::of(name);
        let text = String::from_utf8_lossy(bytes);
        let kind = recognise::recognise(bytes, &text);
        match kind {
            Kind::Empty => return Err(FromError::Empty { file: name.to_owned() }),
            Kind::Other(looks_like, remedy) => return Err(FromError::other(name, looks_like, remedy)),
            Kind::DiskStats | Kind::SysfsStat if self.samples.is_empty() => self.samples_of = name.to_owned(),
            Kind::DiskStats | Kind::SysfsStat => {}
            Kind::Record | Kind::Json | Kind::Iostat | Kind::OwnCsv => self.end_series()?,
        }
        let origin = match kind {
            Kind::Empty | Kind::Other(..) => return Ok(()),
            Kind::Record => self.add_record(name, bytes)?,
            Kind::Iostat => {
                let order = self.order_of(&text);
                let read = iostat_text::read(&text, &self.options, order, &mut notes);
                self.extend(name, with_devices(name, read.intervals, "text of iostat", &text)?)?;
                self.of_hosts("text of iostat", &read.hosts)
            }
            Kind::Json => {
                let order = self.order_of(&text);
                let read = iostat_json::read(&text, &self.options, order, &mut notes);
                let read = read.map_err(|error| match error {
                    JsonError::Other(value) => {
                        let (looks_like, remedy) = recognise::json(&value);
                        FromError::other(name, looks_like, remedy)
                    }
                    JsonError::Line(line, reason) => FromError::line(name, line, reason),
                })?;
                self.extend(name, with_devices(name, read.intervals, "JSON of iostat", &text)?)?;
                self.of_hosts("JSON of iostat", &read.hosts)
            }
            Kind::OwnCsv => {
                let what = "CSV of `plimsoll stat`";
                let intervals = own_csv::read(name, &text, &self.options, &mut notes);
                self.extend(name, with_devices(name, intervals, what, &text)?)?;
                what.to_owned()
            }
            Kind::DiskStats => {
                let order = self.order_of(&text);
                let read = diskstats_text::read(&text, order, &mut self.samples, &mut notes);
                read.map_err(|line| FromError::line(name, line, too_many_rows()))?;
                "samples of /proc/diskstats".to_owned()
            }
            Kind::SysfsStat => {
                let device = device_of(name);
                diskstats_text::read_sysfs(device, &text, &mut self.samples)
                    .map_err(|reason| FromError::line(name, 1, reason))?;
                format!("/sys/block/{device}/stat")
            }
        };

        if matches!(text, Cow::Owned(_)) && kind != Kind::Record {
            notes.file("some bytes are no UTF-8: replaced");
        }
        self.origins.push(format!("{name}: {origin}"));
        self.recorded.notes.extend(notes.into_vec());
        Ok(())
    }

    /// Returns the order of the dates in a text, and keeps what it shows.
    fn order_of(&mut self, text: &str) -> DayOrder {
        let shown = DayOrder::of(text);
        self.decided = self.decided.or(shown);
        self.is_undecided |= shown.is_none() && times::has_dates(text);
        shown.unwrap_or(self.order)
    }

    fn add_record(&mut self, name: &str, bytes: &[u8]) -> Result<String, FromError> {
        let recording = record::read(bytes)
            .map_err(|error| FromError::other(name, "a recording of `plimsoll stat --record`", &error.to_string()))?;
        self.extend(name, recording.intervals())?;
        self.recorded.notes.extend(recording.notes.iter().map(|note| format!("{name}: {note}")));
        self.recorded.facts.extend(recording.facts);
        let hosts = recording.hosts.iter().filter(|host| !host.name.is_empty());
        let hosts = hosts.map(|host| format!("{}, Linux {}, {} CPU", host.name, host.kernel, host.cpus));
        Ok(self.of_hosts("recording", &hosts.collect::<Vec<_>>()))
    }

    /// Returns a file's kind with its first host (`db1, Linux 6.1.0, 8 CPU`), and keeps the names of its hosts.
    fn of_hosts(&mut self, what: &str, hosts: &[String]) -> String {
        for host in hosts {
            let name = host_name(host).to_owned();
            if !self.recorded.hosts.contains(&name) {
                self.recorded.hosts.push(name);
            }
        }
        hosts.first().map_or_else(|| what.to_owned(), |host| format!("{what} of {host}"))
    }

    /// Turns the samples so far into intervals.
    fn end_series(&mut self) -> Result<(), FromError> {
        let samples = std::mem::take(&mut self.samples);
        if !samples.is_empty() {
            let mut notes = Notes::of(&self.samples_of);
            let intervals = diskstats_text::intervals(samples, &self.options, &mut notes);
            self.extend(&self.samples_of.clone(), intervals)?;
            self.recorded.notes.extend(notes.into_vec());
        }
        Ok(())
    }

    /// Adds intervals of the file `name`, unless there are too many together.
    fn extend(&mut self, name: &str, intervals: Vec<Interval>) -> Result<(), FromError> {
        self.rows += intervals.iter().map(|interval| interval.devices.len()).sum::<usize>();
        if self.rows > ROWS_MAX {
            return Err(FromError::line(name, 1, too_many_rows()));
        }

        let ends_ms = intervals.iter().map(|interval| interval.end_unix_ms);
        if let Some(ends_ms) = ends_ms.collect::<Option<Vec<u64>>>()
            && let Some((first_ms, last_ms)) = ends_ms.iter().min().zip(ends_ms.iter().max())
        {
            self.note_overlap(name, *first_ms, *last_ms);
        }
        self.recorded.intervals.extend(intervals);
        Ok(())
    }

    /// Notes a file whose intervals are of the same time as an earlier one's: together they count that time twice.
    fn note_overlap(&mut self, name: &str, first_ms: u64, last_ms: u64) {
        let overlaps = |(_, first, last): &&(String, u64, u64)| first_ms < *last && *first < last_ms;
        if let Some((other, ..)) = self.spans.iter().find(overlaps) {
            self.recorded.notes.push(format!(
                "{name} and {other} are of the same time, which counts twice, and what changes over time mixes both: name one \
                 of them"
            ));
        }
        self.spans.push((name.to_owned(), first_ms, last_ms));
    }

    fn finish(mut self) -> Result<Recorded, FromError> {
        self.end_series()?;
        if let Some((left_out, reason)) = self.left_out.take() {
            self.make_one_story(&left_out, reason)?;
        }
        // Disks of several hosts have the same names.
        if let [first, second, ..] = self.recorded.hosts.as_slice() {
            let (what, remedy) = match self.origins.len() {
                1 => ("one file", "split it where the host changes, and name the parts of one"),
                _ => ("files", "name those of one host"),
            };
            let looks_like = format!("{what} of several hosts ({first}, {second})");
            return Err(FromError::other(&named(&self.origins), &looks_like, remedy));
        }
        self.recorded.origin = named(&self.origins);
        let more = self.recorded.notes.len().saturating_sub(NOTES_MOST);
        if more > 0 {
            self.recorded.notes.truncate(NOTES_MOST);
            self.recorded.notes.push(format!("{more} more notes, on these or other files"));
        }
        let devices = self.recorded.intervals.iter().flat_map(|interval| &interval.devices);
        for device in devices.filter(|device| looks_like_partition(&device.device)) {
            let partition = || DeviceFacts { is_partition: true, ..DeviceFacts::default() };
            self.recorded.facts.entry(device.device.clone()).or_insert_with(partition);
        }
        self.recorded.is_day_order_open = self.is_undecided && self.decided.is_none();
        Ok(self.recorded)
    }

    /// Joins the files that were found: sorts intervals by time, notes the files left out.
    fn make_one_story(&mut self, left_out: &[String], reason: Option<FromError>) -> Result<(), FromError> {
        if self.origins.is_empty()
            && let Some(reason) = reason
        {
            return Err(reason);
        }
        if self.recorded.intervals.iter().all(|interval| interval.end_unix_ms.is_some()) {
            self.recorded.intervals.sort_by_key(|interval| interval.end_unix_ms);
        }
        if let Some(first) = left_out.first() {
            let others = match left_out.len() {
                1 => String::new(),
                count => format!(" and {} others", count - 1),
            };
            self.recorded.notes.push(format!("{first}{others}: no figures of disks, left out"));
        }

        Ok(())
    }
}

/// Joins the first [`NAMED_MOST`] of a list and counts the others.
fn named(origins: &[String]) -> String {
    let first = origins.iter().take(NAMED_MOST).map(String::as_str).collect::<Vec<_>>().join("; ");
    match origins.len().saturating_sub(NAMED_MOST) {
        0 => first,
        others => format!("{first}; and {others} more"),
    }
}

/// Returns the intervals, or an error if none of them has a device.
fn with_devices(name: &str, intervals: Vec<Interval>, what: &str, text: &str) -> Result<Vec<Interval>, FromError> {
    if intervals.iter().any(|interval| !interval.devices.is_empty()) {
        return Ok(intervals);
    }
    let reason = format!("{what} without a row of a device that can be read: expected a header and rows under it");
    Err(FromError::line(name, text.lines().count().max(1), reason))
}

/// Returns the device of `/sys/block/NAME/stat` or `NAME.stat`.
fn device_of(name: &str) -> &str {
    let path = Path::new(name);
    let parent = path.parent().filter(|_| path.file_name().and_then(OsStr::to_str) == Some("stat"));
    let device = parent.and_then(Path::file_name).or_else(|| path.file_stem());
    device.and_then(OsStr::to_str).unwrap_or(name)
}

#[cfg(test)]
mod tests;
