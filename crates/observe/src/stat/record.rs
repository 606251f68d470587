//! Recordings of a host's counters: written while it runs, read back with the same figures as live.
//!
//! # Why
//! People ask in the morning about the disks of last night, often without access to the host. A file that was cut off
//! or damaged on its way must still yield all of its intact figures, and no others.
//!
//! # How it works
//! Each line is JSON, readable by any tool: first the host, then the [`Reading`]s as they are, and before a reading the
//! facts of new devices. Every line ends with its number and the CRC-32C (RFC 3720) of the text before the sum. A line
//! is written with one call, so that a crash tears the last line only.
//!
//! ```text
//! {"plimsoll":"stat-record","version":1,"host":{"name":"db7",...},"line":0,"crc32c":"0f8b2c91"}
//! {"facts":{"nvme0n1":{"model":"...",...}},"line":1,"crc32c":"..."}
//! {"at_unix_ms":1773480000000,"uptime_cs":4512608,"cpu":[8 counts],"devices":[["nvme0n1",259,0,[17 counts]]],...}
//! ```
//! Counts are in the order of `/proc/stat` (up to `steal`) and `/proc/diskstats`; null stands for a count that the
//! kernel does not keep. Readings are totals, not differences: if a line is lost, the intervals around it become one,
//! with right figures. [`read`] leaves out every line whose sum is wrong, and adds a note. A flipped bit in a counter
//! is still a number; only a sum over the whole line shows the damage. CRC-32C finds all errors of up to 32
//! neighbouring bits, and of others all but one in 4 billion. It is no signature.
//!
//! # Limits
//! Some 120 bytes a device and reading: ten devices each second are 100 MB a day, a tenth of it compressed.
//! Concatenated files are read as several recordings.
//!
//! # Example
//! ```
//! use plimsoll::sys::diskstats;
//! use plimsoll_observe::stat::host::{Host, Reading};
//! use plimsoll_observe::stat::{Facts, record};
//! let mut writer = record::Writer::new(Vec::new(), &Host::default())?;
//! for (uptime_cs, reads) in [(100, 1000), (200, 1500)] {
//!     let devices = diskstats::parse(&format!("8 0 sda {reads} 0 8000 100 0 0 0 0 0 90 100\n"))?;
//!     writer.append(&Reading { uptime_cs, devices, ..Reading::default() }, &Facts::new())?;
//! }
//! let mut file = writer.into_inner();
//! let recording = record::read(&file)?;
//! assert_eq!(recording.intervals()[0].devices[0].columns.reads_per_s, Some(500.0));
//! // One flipped bit: the line is left out, and what is left is a single reading.
//! let last = file.len() - 30;
//! file[last] ^= 1;
//! assert!(record::read(&file)?.notes[0].contains("line 3 is damaged"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod reader;

pub(crate) use reader::is_record;
pub use reader::{Recording, read};

use std::borrow::Cow;
use std::io::{self, Write};

use plimsoll::sys::diskstats::{Counters, DiskStats};
use serde::{Deserialize, Serialize};

use super::host::{CpuTicks, Host, Reading};
use super::{DeviceFacts, Facts};

/// Version of the format that is written; it rises when existing members change their meaning.
pub const VERSION: u32 = 1;

/// The value of `plimsoll` in the first line.
pub const KIND: &str = "stat-record";

/// Why a recording cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    #[error("this is no recording of `plimsoll stat --record`")]
    NotARecord,
    #[error(
        "this recording has version {0} of the format, and this program reads up to {VERSION}: use a later plimsoll"
    )]
    Version(u32),
    /// Every reading in the file is damaged, or there was none yet.
    #[error("no reading in this recording is intact: it was cut off at its begin, or is damaged throughout")]
    NoReading,
}

#[derive(Debug)]
pub struct Writer<W: Write> {
    output: W,
    next: u64,
    facts: Facts,
    is_torn: bool,
}

impl<W: Write> Writer<W> {
    pub fn new(output: W, host: &Host) -> io::Result<Writer<W>> {
        let mut writer = Writer { output, next: 0, facts: Facts::new(), is_torn: false };
        writer.line(Line {
            plimsoll: Some(KIND.into()),
            version: Some(VERSION),
            host: Some(host.clone()),
            ..Line::default()
        })?;
        Ok(writer)
    }

    /// Appends a reading, and those of `facts` that are new or changed, and flushes `output`. After an error of
    /// `output` the next call begins a new line, so that only this reading is lost.
    pub fn append(&mut self, reading: &Reading, facts: &Facts) -> io::Result<()> {
        let is_new = |(name, facts): &(&String, &DeviceFacts)| self.facts.get(*name) != Some(*facts);
        let new: Facts = facts.iter().filter(is_new).map(|(name, facts)| (name.clone(), facts.clone())).collect();
        if !new.is_empty() {
            self.line(Line { facts: Some(new.clone()), ..Line::default() })?;
            self.facts.extend(new);
        }
        self.line(Line::of_reading(reading))
    }

    pub fn into_inner(self) -> W {
        self.output
    }

    fn line(&mut self, line: Line<'_>) -> io::Result<()> {
        let line = Line { line: Some(self.next), ..line };
        let body = serde_json::to_string(&line)?;
        let torn = if self.is_torn { "\n" } else { "" };
        self.is_torn = true;
        self.output.write_all(format!("{torn}{}\n", seal(&body)).as_bytes())?;
        self.output.flush()?;
        (self.is_torn, self.next) = (false, self.next + 1);
        Ok(())
    }
}

/// A line of any kind; its members show the kind. Unknown members, as a later version may add, are ignored.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Line<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    plimsoll: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<Host>,
    #[serde(skip_serializing_if = "Option::is_none")]
    facts: Option<Facts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_unix_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uptime_cs: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<CpuTicks>,
    #[serde(skip_serializing_if = "Option::is_none")]
    devices: Option<Vec<Device<'a>>>,
    line: Option<u64>,
}

/// Name, major and minor number, counts in the order of `/proc/diskstats`.
type Device<'a> = (Cow<'a, str>, u32, u32, [Option<u64>; 17]);

impl<'a> Line<'a> {
    fn of_reading(reading: &'a Reading) -> Line<'a> {
        let device = |disk: &'a DiskStats| {
            (Cow::Borrowed(disk.name.as_str()), disk.major, disk.minor, from_counters(&disk.counters))
        };
        Line {
            at_unix_ms: Some(reading.at_unix_ms),
            uptime_cs: Some(reading.uptime_cs),
            cpu: reading.cpu,
            devices: Some(reading.devices.iter().map(device).collect()),
            ..Line::default()
        }
    }

    fn into_reading(self) -> Option<Reading> {
        let disk = |(name, major, minor, counts): Device<'_>| {
            Some(DiskStats { major, minor, name: name.into_owned(), counters: into_counters(counts)? })
        };
        Some(Reading {
            at_unix_ms: self.at_unix_ms?,
            uptime_cs: self.uptime_cs?,
            cpu: self.cpu,
            devices: self.devices?.into_iter().map(disk).collect::<Option<_>>()?,
        })
    }
}

fn from_counters(counters: &Counters) -> [Option<u64>; 17] {
    [
        Some(counters.reads),
        counters.read_merges,
        Some(counters.read_sectors),
        counters.read_ms,
        Some(counters.writes),
        counters.write_merges,
        Some(counters.write_sectors),
        counters.write_ms,
        counters.in_flight,
        counters.busy_ms,
        counters.weighted_ms,
        counters.discards,
        counters.discard_merges,
        counters.discard_sectors,
        counters.discard_ms,
        counters.flushes,
        counters.flush_ms,
    ]
}

fn into_counters(counts: [Option<u64>; 17]) -> Option<Counters> {
    let mut counts = counts.into_iter();
    let mut next = || counts.next().flatten();
    Some(Counters {
        reads: next()?,
        read_merges: next(),
        read_sectors: next()?,
        read_ms: next(),
        writes: next()?,
        write_merges: next(),
        write_sectors: next()?,
        write_ms: next(),
        in_flight: next(),
        busy_ms: next(),
        weighted_ms: next(),
        discards: next(),
        discard_merges: next(),
        discard_sectors: next(),
        discard_ms: next(),
        flushes: next(),
        flush_ms: next(),
    })
}

const SUM: &str = ",\"crc32c\":\"";

fn sum(body: &[u8]) -> String {
    format!("{:08x}", crc32c::crc32c(body))
}

/// Adds the sum to `object`, a JSON object with members. The sum is over the text before its own comma.
fn seal(object: &str) -> String {
    let body = object.strip_suffix('}').unwrap_or(object);
    format!("{body}{SUM}{}\"}}", sum(body.as_bytes()))
}

/// Parses a line; `None` if its sum is wrong.
fn open(line: &[u8]) -> Option<Line<'_>> {
    let (body, guard) = line.split_at_checked(line.len().checked_sub(SUM.len() + "01234567\"}".len())?)?;
    if guard != format!("{SUM}{}\"}}", sum(body)).as_bytes() {
        return None;
    }
    serde_json::from_slice(line).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_line_opens_and_no_other() {
        let sealed = seal("{\"line\":7}");
        assert_eq!(open(sealed.as_bytes()).and_then(|line| line.line), Some(7));
        // The check value of CRC-32C.
        assert_eq!(sum(b"123456789"), "e3069283");
        for other in ["", "{}", "{\"line\":7}", &sealed[1..], &sealed[..sealed.len() - 1], &sealed.to_uppercase()] {
            assert!(open(other.as_bytes()).is_none(), "{other}");
        }
    }

    #[test]
    fn what_is_not_counted_stays_unknown() {
        let old = Counters { reads: 1, read_sectors: 2, writes: 3, write_sectors: 4, ..Counters::default() };
        assert_eq!(into_counters(from_counters(&old)), Some(old));
        let new = into_counters(std::array::from_fn(|at| Some(at as u64)));
        assert_eq!(new.map(|new| from_counters(&new)), Some(std::array::from_fn(|at| Some(at as u64))));
        assert_eq!(into_counters([None; 17]), None);
    }
}
