//! Reads saved figures: our own recordings, and files of other programs.
//!
//! # Why
//! The disks that matter are rarely at hand. A support bundle has the text of an `iostat` in some locale, a file of
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
//!
//! **Times.** A sample begins with a line of `date`, seconds since 1970, ISO 8601 or a separator such as `zzz ***`, or
//! where a device's name repeats. Intervals last from stamp to stamp; without stamps they last
//! [`ReadOptions::interval_s`]; else their length is unknown, and with samples so is every rate of a device that did
//! any work. Local times without a zone are taken as UTC.
//!
//! **Since boot.** iostat's first report is of the time since boot unless `-y` was given, which its output does not
//! show. So the first report after a banner line (`Linux 6.1.0 (host) ...`), and the first of a JSON document, counts
//! as since boot, unless [`ReadOptions::is_first_an_interval`] is set. A text without a banner is an excerpt: its first
//! report counts as an interval.
//!
//! **Several files** are read in order. Samples of neighbouring files are one series, as in a directory of snapshots.
//!
//! # Limits
//! Unreadable parts are left out, with a note in [`Recorded::notes`]; a missing, `nan` or negative column is unknown,
//! never 0. Group lines (`iostat -g`) are sums of others and left out, unless there are no others. Writes that iostat
//! prints added to discards (`kB_w+d/s`) are unknown. Compressed files are refused.
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

use super::host::looks_like_partition;
use super::readers::diskstats_text::Sample;
use super::readers::iostat_json::JsonError;
use super::readers::recognise::Kind;
use super::readers::{Notes, ReadOptions, diskstats_text, iostat_json, iostat_text, recognise};
use super::{DeviceFacts, Facts, Interval, record};

/// Saved figures of a host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recorded {
    /// The files, their kinds, and the host if known.
    pub origin: String,
    /// The intervals, in the order of the files.
    pub intervals: Vec<Interval>,
    /// Facts about the devices, as far as a recording has them; else partitions are known by their names.
    pub facts: Facts,
    /// Parts that could not be read, and assumptions: a sentence each, with the file and, if known, the line.
    pub notes: Vec<String>,
}

/// Why a file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FromError {
    /// The file is empty.
    #[error("{file}: the file is empty: expected {EXPECTED}")]
    Empty { file: String },
    /// The file is of another kind, or a recording that cannot be read.
    #[error("{file}: looks like {looks_like}: {remedy}")]
    Other { file: String, looks_like: String, remedy: String },
    /// The file begins like a known kind, and nothing of it can be read.
    #[error("{file}:{line}: {reason}")]
    Line {
        file: String,
        line: usize,
        /// What is wrong, what was expected, what to do.
        reason: String,
    },
}

/// All kinds of files that are read, for messages.
const EXPECTED: &str =
    "a recording of `plimsoll stat --record`, samples of /proc/diskstats, or text or JSON of `iostat`";

/// Reads a file. `name` is its name in messages; for `/sys/block/NAME/stat` it also names the device.
///
/// # Errors
/// [`FromError`] if nothing of the file can be read.
pub fn read(name: &str, bytes: &[u8], options: &ReadOptions) -> Result<Recorded, FromError> {
    read_each([(name, bytes)].into_iter(), options)
}

/// Reads several files in order, given by name and content; samples of neighbouring ones are one series.
///
/// # Errors
/// [`FromError`] for the first file of which nothing can be read.
pub fn read_all(files: &[(String, Vec<u8>)], options: &ReadOptions) -> Result<Recorded, FromError> {
    read_each(files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())), options)
}

fn read_each<'a>(
    files: impl Iterator<Item = (&'a str, &'a [u8])>,
    options: &ReadOptions,
) -> Result<Recorded, FromError> {
    let interval_s = options.interval_s.filter(|seconds| seconds.is_finite() && *seconds > 0.0);
    let mut collected = Collected { options: ReadOptions { interval_s, ..*options }, ..Collected::default() };
    for (name, bytes) in files {
        collected.add(name, bytes)?;
    }
    Ok(collected.finish())
}

/// The figures of the files read so far.
#[derive(Default)]
struct Collected {
    options: ReadOptions,
    recorded: Recorded,
    origins: Vec<String>,
    /// Samples of the latest files, which the next file may continue, and the name of the first of these files.
    samples: Vec<Sample>,
    samples_of: String,
}

impl Collected {
    /// Reads a file.
    fn add(&mut self, name: &str, bytes: &[u8]) -> Result<(), FromError> {
        let mut notes = Notes::of(name);
        let text = String::from_utf8_lossy(bytes);
        let kind = recognise::recognise(bytes, &text);
        let is_sample = matches!(kind, Kind::DiskStats | Kind::SysfsStat);
        if is_sample && self.samples.is_empty() {
            self.samples_of = name.to_owned();
        } else if !is_sample {
            self.end_series();
        }

        let file = || name.to_owned();
        let other = |(looks_like, remedy): (&str, &str)| FromError::Other {
            file: file(),
            looks_like: looks_like.to_owned(),
            remedy: remedy.to_owned(),
        };
        let origin = match kind {
            Kind::Empty => return Err(FromError::Empty { file: file() }),
            Kind::Other(looks_like, remedy) => return Err(other((looks_like, remedy))),
            Kind::Record => self.add_record(name, bytes)?,
            Kind::Iostat => {
                let read = iostat_text::read(&text, &self.options, &mut notes);
                self.recorded.intervals.extend(with_devices(name, read.intervals, "text of iostat", &text)?);
                of_host("text of iostat", read.host)
            }
            Kind::Json => {
                let read = iostat_json::read(&text, &self.options, &mut notes).map_err(|error| match error {
                    JsonError::Other(value) => other(recognise::json(&value)),
                    JsonError::Line(line, reason) => FromError::Line { file: file(), line, reason },
                })?;
                self.recorded.intervals.extend(with_devices(name, read.intervals, "JSON of iostat", &text)?);
                of_host("JSON of iostat", read.host)
            }
            Kind::DiskStats => {
                diskstats_text::read(&text, &mut self.samples, &mut notes);
                "samples of /proc/diskstats".to_owned()
            }
            Kind::SysfsStat => {
                let device = device_of(name);
                diskstats_text::read_sysfs(device, &text, &mut self.samples).map_err(|reason| FromError::Line {
                    file: file(),
                    line: 1,
                    reason,
                })?;
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

    fn add_record(&mut self, name: &str, bytes: &[u8]) -> Result<String, FromError> {
        let recording = record::read(bytes).map_err(|error| FromError::Other {
            file: name.to_owned(),
            looks_like: "a recording of `plimsoll stat --record`".to_owned(),
            remedy: error.to_string(),
        })?;
        self.recorded.intervals.extend(recording.intervals());
        self.recorded.notes.extend(recording.notes.iter().map(|note| format!("{name}: {note}")));
        self.recorded.facts.extend(recording.facts);
        let host = recording.host.filter(|host| !host.name.is_empty());
        Ok(of_host("recording", host.map(|host| format!("{}, Linux {}, {} CPU", host.name, host.kernel, host.cpus))))
    }

    /// Turns the samples so far into intervals.
    fn end_series(&mut self) {
        let samples = std::mem::take(&mut self.samples);
        if !samples.is_empty() {
            let mut notes = Notes::of(&self.samples_of);
            self.recorded.intervals.extend(diskstats_text::intervals(&samples, &self.options, &mut notes));
            self.recorded.notes.extend(notes.into_vec());
        }
    }

    fn finish(mut self) -> Recorded {
        self.end_series();
        self.recorded.origin = self.origins.join("; ");
        let devices = self.recorded.intervals.iter().flat_map(|interval| &interval.devices);
        for device in devices.filter(|device| looks_like_partition(&device.device)) {
            let partition = || DeviceFacts { is_partition: true, ..DeviceFacts::default() };
            self.recorded.facts.entry(device.device.clone()).or_insert_with(partition);
        }
        self.recorded
    }
}

/// Returns the intervals, or an error if none of them has a device.
fn with_devices(name: &str, intervals: Vec<Interval>, what: &str, text: &str) -> Result<Vec<Interval>, FromError> {
    if intervals.iter().any(|interval| !interval.devices.is_empty()) {
        return Ok(intervals);
    }
    let reason = format!("{what} without a row of a device that can be read: expected a header and rows under it");
    Err(FromError::Line { file: name.to_owned(), line: text.lines().count().max(1), reason })
}

fn of_host(what: &str, host: Option<String>) -> String {
    host.map_or_else(|| what.to_owned(), |host| format!("{what} of {host}"))
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
