//! Reads what was saved: our own recordings, and what other programs left of a host.
//!
//! # Why
//! The disks that matter are rarely at hand. A support bundle has the text of an `iostat` in some locale, a file of
//! `/proc/diskstats` samples, a JSON document that ends in the middle. What stands in it is judged as if it were live.
//!
//! # How it works
//! Nobody says what a file is; it is recognised:
//!
//! | file | becomes |
//! |---|---|
//! | a recording of `stat --record` | intervals between its readings, and the facts of the devices |
//! | samples of `/proc/diskstats`, one or many | intervals between samples; of a single one, means since boot |
//! | `/sys/block/NAME/stat` | the same for the device that the path or file is named after |
//! | text of iostat, any layout of sysstat 7 to 12 | an interval for each report |
//! | JSON of iostat, also cut off, also several documents | the same |
//!
//! **Times.** A sample begins with a line of `date`, seconds (milliseconds, nanoseconds) since 1970, `/proc/uptime` or
//! a separator such as `zzz ***`, or where a device's name comes again. A time may also stand before each line, as `ts`
//! and journals write it, of samples and of iostat's text. Intervals last from stamp to stamp; without stamps as
//! [`ReadOptions::interval_s`] says; else their length is unknown, and of samples so is every rate of a device that did
//! something. Local times without a zone are taken as UTC.
//!
//! **Since boot.** iostat's first report is of the time since boot unless `-y` was given, which its output does not
//! say. So the first report after a banner line (`Linux 6.1.0 (host) ...`), and the first of a JSON document, counts as
//! since boot, unless the command line stands above it with `-y`, or [`ReadOptions::is_first_an_interval`] is set. A
//! text without a banner is one that somebody cut out: it counts as an interval.
//!
//! **Several files** are read in order. Samples of neighbouring files are one series, so that a directory of snapshots
//! is read as what it is.
//!
//! # Limits
//! What cannot be read is left out, and [`Recorded::notes`] tells; a column that is not there, `nan` or negative is
//! unknown, never 0. Group lines (`iostat -g`) are sums of others and left out, unless there is nothing else. Writes
//! that iostat prints added to discards (`kB_w+d/s`) are unknown. Compressed files are refused.
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

/// What was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recorded {
    /// Where it comes from: the files, what they are, and the host where they tell.
    pub origin: String,
    /// In the order of the files.
    pub intervals: Vec<Interval>,
    /// What the devices are, as far as a file says; of texts: which are partitions, by their names.
    pub facts: Facts,
    /// What could not be read, and what was assumed: a sentence each, with file and line.
    pub notes: Vec<String>,
}

/// Why a file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FromError {
    /// Nothing is in it.
    #[error("{file}: the file is empty: expected {EXPECTED}")]
    Empty {
        /// Its name.
        file: String,
    },
    /// It is another program's.
    #[error("{file}: looks like {looks_like}: {remedy}")]
    Other {
        /// Its name.
        file: String,
        /// Whose.
        looks_like: String,
        /// What to do.
        remedy: String,
    },
    /// It begins like something known, and nothing of it can be read.
    #[error("{file}:{line}: {reason}")]
    Line {
        /// Its name.
        file: String,
        /// Where, from 1.
        line: usize,
        /// What is wrong, what was expected, what to do.
        reason: String,
    },
}

/// What a message calls all that is read.
const EXPECTED: &str =
    "a recording of `plimsoll stat --record`, samples of /proc/diskstats, or text or JSON of `iostat`";

/// Reads a file. `name` is what messages call it; of `/sys/block/NAME/stat` it says which device that is.
///
/// # Errors
/// [`FromError`] where nothing of it can be read.
pub fn read(name: &str, bytes: &[u8], options: &ReadOptions) -> Result<Recorded, FromError> {
    read_each([(name, bytes)].into_iter(), options)
}

/// Reads several files in order, given by name and content; samples of neighbouring ones are one series.
///
/// # Errors
/// [`FromError`] of the first file of which nothing can be read.
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

/// What was read so far.
#[derive(Default)]
struct Collected {
    options: ReadOptions,
    recorded: Recorded,
    origins: Vec<String>,
    /// Samples of the last files, which the next file may go on with, and the first of these.
    samples: Vec<Sample>,
    samples_of: String,
}

impl Collected {
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

    /// Makes intervals of the samples so far.
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

/// The intervals, if there is a device in one of them.
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

/// The device that `/sys/block/NAME/stat` or `NAME.stat` is of.
fn device_of(name: &str) -> &str {
    let path = Path::new(name);
    let parent = path.parent().filter(|_| path.file_name().and_then(OsStr::to_str) == Some("stat"));
    let device = parent.and_then(Path::file_name).or_else(|| path.file_stem());
    device.and_then(OsStr::to_str).unwrap_or(name)
}

#[cfg(test)]
mod tests;
