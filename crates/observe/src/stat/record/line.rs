//! A line of a recording, and the sum that guards it.
//!
//! # Why
//! A flipped bit in a counter is still a number. Only a sum over the whole line shows the damage.
//!
//! # How it works
//! The sum is the last member of the object: [`seal`] adds it, [`open`] checks it. It is compared as text, so that
//! there is only one way to write it.
//!
//! # Limits
//! CRC-32C finds all errors of up to 32 neighbouring bits, and of others all but one in 4 billion. It is no signature.
//!
//! # Example
//! `{"line":0}` becomes `{"line":0,"crc32c":"........"}`.

use std::borrow::Cow;

use plimsoll::sys::diskstats::{Counters, DiskStats};
use serde::{Deserialize, Serialize};

use crate::stat::Facts;
use crate::stat::host::{CpuTicks, Host, Reading};

/// A line of any kind; its members show the kind. Unknown members, as a later version may add, are ignored.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Line<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) plimsoll: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) host: Option<Host>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) facts: Option<Facts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) at_unix_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) uptime_cs: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cpu: Option<[u64; 8]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) devices: Option<Vec<Device<'a>>>,
    pub(super) line: Option<u64>,
}

/// Name, major and minor number, counts in the order of `/proc/diskstats`.
pub(super) type Device<'a> = (Cow<'a, str>, u32, u32, [Option<u64>; 17]);

impl<'a> Line<'a> {
    /// Returns the line of a reading.
    pub(super) fn of_reading(reading: &'a Reading) -> Line<'a> {
        let device = |disk: &'a DiskStats| {
            (Cow::Borrowed(disk.name.as_str()), disk.major, disk.minor, from_counters(&disk.counters))
        };
        Line {
            at_unix_ms: Some(reading.at_unix_ms),
            uptime_cs: Some(reading.uptime_cs),
            cpu: reading.cpu.map(CpuTicks::to_array),
            devices: Some(reading.devices.iter().map(device).collect()),
            ..Line::default()
        }
    }

    /// Returns the reading, if the line is one.
    pub(super) fn into_reading(self) -> Option<Reading> {
        let disk = |(name, major, minor, counts): Device<'_>| {
            Some(DiskStats { major, minor, name: name.into_owned(), counters: into_counters(counts)? })
        };
        Some(Reading {
            at_unix_ms: self.at_unix_ms?,
            uptime_cs: self.uptime_cs?,
            cpu: self.cpu.map(CpuTicks::from_array),
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
    let [
        reads,
        read_merges,
        read_sectors,
        read_ms,
        writes,
        write_merges,
        write_sectors,
        write_ms,
        in_flight,
        busy_ms,
        weighted_ms,
        discards,
        discard_merges,
        discard_sectors,
        discard_ms,
        flushes,
        flush_ms,
    ] = counts;
    Some(Counters {
        reads: reads?,
        read_merges,
        read_sectors: read_sectors?,
        read_ms,
        writes: writes?,
        write_merges,
        write_sectors: write_sectors?,
        write_ms,
        in_flight,
        busy_ms,
        weighted_ms,
        discards,
        discard_merges,
        discard_sectors,
        discard_ms,
        flushes,
        flush_ms,
    })
}

const SUM: &str = ",\"crc32c\":\"";

fn sum(body: &[u8]) -> String {
    format!("{:08x}", crc32c::crc32c(body))
}

/// Adds the sum to `object`, a JSON object with members. The sum is over the text before its own comma.
pub(super) fn seal(object: &str) -> String {
    let body = object.strip_suffix('}').unwrap_or(object);
    format!("{body}{SUM}{}\"}}", sum(body.as_bytes()))
}

/// Parses a line; `None` if its sum is wrong.
pub(super) fn open(line: &[u8]) -> Option<Line<'_>> {
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
