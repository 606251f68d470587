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
//! with right figures. [`read`] leaves out every line whose sum is wrong, and adds a note.
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

mod line;
mod reader;

pub(crate) use reader::is_record;
pub use reader::{Recording, read};

use std::io::{self, Write};

use super::host::{Host, Reading};
use super::{DeviceFacts, Facts};
use line::{Line, seal};

/// Version of the format that is written; it rises when existing members change their meaning.
pub const VERSION: u32 = 1;

/// The value of `plimsoll` in the first line.
pub const KIND: &str = "stat-record";

/// Why a recording cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The file is something else.
    #[error("this is no recording of `plimsoll stat --record`")]
    NotARecord,
    /// A later version wrote the file.
    #[error(
        "this recording has version {0} of the format, and this program reads up to {VERSION}: use a later plimsoll"
    )]
    Version(u32),
    /// Every reading in the file is damaged, or there was none yet.
    #[error("no reading in this recording is intact: it was cut off at its begin, or is damaged throughout")]
    NoReading,
}

/// Writes a recording.
#[derive(Debug)]
pub struct Writer<W: Write> {
    output: W,
    /// Number of the next line.
    next: u64,
    /// Facts that have been written.
    facts: Facts,
    /// Whether the last line may be incomplete.
    is_torn: bool,
}

impl<W: Write> Writer<W> {
    /// Begins a recording.
    ///
    /// # Errors
    /// Those of `output`.
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

    /// Appends a reading, and those of `facts` that are new or changed, and flushes `output`.
    ///
    /// # Errors
    /// Those of `output` (a full disk). The next call begins a new line, so that only this reading is lost.
    pub fn append(&mut self, reading: &Reading, facts: &Facts) -> io::Result<()> {
        let is_new = |(name, facts): &(&String, &DeviceFacts)| self.facts.get(*name) != Some(*facts);
        let new: Facts = facts.iter().filter(is_new).map(|(name, facts)| (name.clone(), facts.clone())).collect();
        if !new.is_empty() {
            self.line(Line { facts: Some(new.clone()), ..Line::default() })?;
            self.facts.extend(new);
        }
        self.line(Line::of_reading(reading))
    }

    /// Returns the output.
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
