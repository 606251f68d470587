//! The kernel's counters of each block device, from `/proc/diskstats`.
//!
//! # Why
//! The kernel counts the requests that reached a device, from all programs. Two readings give rates, mean latencies and
//! concurrency, and the part of the traffic that was not ours.
//!
//! # How it works
//! A line is `major minor name` and counters that only grow (except [`Counters::in_flight`]). Kernel 2.6 has 11 of
//! them, 4.18 added 4 for discards, 5.5 added 2 for flushes; partitions had 4 before 2.6.25. A counter that a kernel
//! lacks is `None`, not 0. Counters that later kernels append are ignored.
//!
//! [`Counters::since`] subtracts two readings. Numbers of requests and sectors are machine words, so they wrap at 2^32
//! on a 32-bit kernel; every kernel prints times with 32 bits, so they wrap after 49.7 days of total time. A value that
//! falls has wrapped if the distance modulo 2^32 is below 2^31; otherwise the device was replaced or reset, and there
//! is no difference.
//!
//! Source: `Documentation/admin-guide/iostats.rst` and `diskstats_show` in `block/genhd.c` of Linux.
//!
//! # Limits
//! * A request counts when it completes, even if it is refused or fails.
//! * [`Counters::busy_ms`] is the time with any request in flight. For a device that serves many at a time it does not
//!   show the remaining capacity. Since 5.0 it is sampled in timer ticks, and too high for short requests.
//! * [`Counters::in_flight`] and the times are wrong for some drivers of some kernels. Paths of a multipath device
//!   count separately; some kernels leave the device on top at 0.
//! * A flush and its data may both count (`flush_ms` overlaps `write_ms`).
//!
//! # Example
//! ```
//! use plimsoll::sys::diskstats;
//! let before = diskstats::parse("259 0 nvme0n1 1000 0 8000 100 0 0 0 0 0 90 100 0 0 0 0 0 0\n")?;
//! let after = diskstats::parse("259 0 nvme0n1 3000 0 24000 300 0 0 0 0 4 190 300 0 0 0 0 0 0\n")?;
//! let moved = after[0].counters.since(&before[0].counters).ok_or("another device")?;
//! assert_eq!((moved.reads, moved.read_bytes(), moved.read_ms), (2000, 8_192_000, Some(200)));
//! // 2000 reads took 200 ms: 0.1 ms each. In one second there were 200 ms / 1000 ms = 0.2 under way.
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::path::Path;
use std::{fmt, io};

/// A sector of these counters, in bytes, for devices with any block size.
pub const SECTOR_BYTES: u64 = 512;

/// Modulus of 32-bit counters.
const WRAP: u64 = 1 << 32;

/// A device and its counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskStats {
    /// Major number; 0 for the hidden paths of an NVMe multipath device.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// `nvme0n1`, `nvme0n1p1`, `md0`.
    pub name: String,
    /// Its counters.
    pub counters: Counters,
}

/// Counts since the device appeared, or ([`Counters::since`]) between two readings.
///
/// A field is `None` if the kernel does not count it. Unless stated otherwise, every kernel since 2.6 counts it for
/// disks, and since 2.6.25 for partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Reads completed. For partitions before 2.6.25: issued.
    pub reads: u64,
    /// Reads that were merged with an adjacent one before they were issued.
    pub read_merges: Option<u64>,
    /// Sectors of 512 bytes read.
    pub read_sectors: u64,
    /// Total time of the completed reads in milliseconds, including the wait in the kernel's queue.
    pub read_ms: Option<u64>,
    /// Writes completed.
    pub writes: u64,
    /// Writes that were merged with an adjacent one before they were issued.
    pub write_merges: Option<u64>,
    /// Sectors of 512 bytes written.
    pub write_sectors: u64,
    /// Total time of the completed writes in milliseconds.
    pub write_ms: Option<u64>,
    /// Requests under way at the reading: the only value that also falls. Never a difference.
    pub in_flight: Option<u64>,
    /// Time with at least one request under way, in milliseconds.
    pub busy_ms: Option<u64>,
    /// Total time of all requests under way in milliseconds: it grows by `in_flight` milliseconds each millisecond. Its
    /// difference over an interval, divided by the interval, is the mean concurrency.
    pub weighted_ms: Option<u64>,
    /// Discards (TRIM) completed. Since 4.18.
    pub discards: Option<u64>,
    /// Discards that were merged. Since 4.18.
    pub discard_merges: Option<u64>,
    /// Sectors of 512 bytes discarded. Since 4.18.
    pub discard_sectors: Option<u64>,
    /// Total time of the completed discards in milliseconds. Since 4.18.
    pub discard_ms: Option<u64>,
    /// Flushes (of the device's cache) completed. Since 5.5, for whole disks; partitions show 0.
    pub flushes: Option<u64>,
    /// Total time of the completed flushes in milliseconds. Since 5.5.
    pub flush_ms: Option<u64>,
}

impl Counters {
    /// Returns the difference between `self` and `earlier`, a reading of the same device. `in_flight` is that of
    /// `self`. Returns `None` if the numbers of requests or sectors show that the device was replaced or reset; only a
    /// time or a count of merges that cannot be subtracted is `None` itself.
    #[must_use]
    pub fn since(&self, earlier: &Counters) -> Option<Counters> {
        let optional = |later: Option<u64>, earlier: Option<u64>| difference(later?, earlier?);
        Some(Counters {
            reads: difference(self.reads, earlier.reads)?,
            read_merges: optional(self.read_merges, earlier.read_merges),
            read_sectors: difference(self.read_sectors, earlier.read_sectors)?,
            read_ms: optional(self.read_ms, earlier.read_ms),
            writes: difference(self.writes, earlier.writes)?,
            write_merges: optional(self.write_merges, earlier.write_merges),
            write_sectors: difference(self.write_sectors, earlier.write_sectors)?,
            write_ms: optional(self.write_ms, earlier.write_ms),
            in_flight: self.in_flight,
            busy_ms: optional(self.busy_ms, earlier.busy_ms),
            weighted_ms: optional(self.weighted_ms, earlier.weighted_ms),
            discards: optional(self.discards, earlier.discards),
            discard_merges: optional(self.discard_merges, earlier.discard_merges),
            discard_sectors: optional(self.discard_sectors, earlier.discard_sectors),
            discard_ms: optional(self.discard_ms, earlier.discard_ms),
            flushes: optional(self.flushes, earlier.flushes),
            flush_ms: optional(self.flush_ms, earlier.flush_ms),
        })
    }

    /// Returns the bytes read.
    #[must_use]
    pub fn read_bytes(&self) -> u64 {
        self.read_sectors.saturating_mul(SECTOR_BYTES)
    }

    /// Returns the bytes written.
    #[must_use]
    pub fn write_bytes(&self) -> u64 {
        self.write_sectors.saturating_mul(SECTOR_BYTES)
    }

    /// Returns the bytes discarded; 0 if the kernel does not count them.
    #[must_use]
    pub fn discard_bytes(&self) -> u64 {
        self.discard_sectors.unwrap_or(0).saturating_mul(SECTOR_BYTES)
    }

    /// Returns the counters of a line of 4, or at least 11, numbers.
    fn from_numbers(numbers: &[u64]) -> Option<Counters> {
        if let [reads, read_sectors, writes, write_sectors] = *numbers {
            return Some(Counters { reads, read_sectors, writes, write_sectors, ..Counters::default() });
        }
        if numbers.len() < 11 {
            return None;
        }

        let at = |index: usize| numbers.get(index).copied();
        Some(Counters {
            reads: at(0)?,
            read_merges: at(1),
            read_sectors: at(2)?,
            read_ms: at(3),
            writes: at(4)?,
            write_merges: at(5),
            write_sectors: at(6)?,
            write_ms: at(7),
            in_flight: at(8),
            busy_ms: at(9),
            weighted_ms: at(10),
            discards: at(11),
            discard_merges: at(12),
            discard_sectors: at(13),
            discard_ms: at(14),
            flushes: at(15),
            flush_ms: at(16),
        })
    }
}

/// Returns the growth of a counter, or `None` if it cannot have grown.
fn difference(later: u64, earlier: u64) -> Option<u64> {
    if later >= earlier {
        return Some(later - earlier);
    }
    let beyond = WRAP.checked_sub(earlier)?;
    let wrapped = beyond + later;
    (wrapped < WRAP / 2).then_some(wrapped)
}

/// A malformed line of `/proc/diskstats`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// Number of the line, from 1.
    pub line: usize,
    /// The fault.
    pub reason: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

impl std::error::Error for ParseError {}

/// Parses a text like `/proc/diskstats`; skips empty lines. Keeps the order of the text.
///
/// # Errors
/// The first line that is not `major minor name` and 4 or at least 11 whole numbers.
pub fn parse(text: &str) -> Result<Vec<DiskStats>, ParseError> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines.map(|(index, line)| parse_line(line).map_err(|reason| ParseError { line: index + 1, reason })).collect()
}

fn parse_line(line: &str) -> Result<DiskStats, String> {
    let mut words = line.split_ascii_whitespace();
    let number = |word: Option<&str>, what: &str| {
        let word = word.ok_or_else(|| format!("ends before its {what}"))?;
        word.parse::<u32>().map_err(|_| format!("{what} `{word}` is not a whole number"))
    };
    let major = number(words.next(), "major number")?;
    let minor = number(words.next(), "minor number")?;
    let name = words.next().ok_or("ends before the name of the device")?.to_owned();
    let numbers = words
        .map(|word| word.parse::<u64>().map_err(|_| format!("counter `{word}` of {name} is not a whole number")))
        .collect::<Result<Vec<u64>, String>>()?;
    let counters = Counters::from_numbers(&numbers)
        .ok_or_else(|| format!("{name} has {} counters where 4 or at least 11 are expected", numbers.len()))?;
    Ok(DiskStats { major, minor, name, counters })
}

/// Reads all devices. `proc_root` is `/proc`.
///
/// # Errors
/// The system's error, or `InvalidData` with the malformed line; both with the path.
pub fn read(proc_root: &Path) -> io::Result<Vec<DiskStats>> {
    let path = proc_root.join("diskstats");
    let text = std::fs::read_to_string(&path)
        .map_err(|error| io::Error::new(error.kind(), format!("cannot read {}: {error}", path.display())))?;
    parse(&text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", path.display())))
}

/// Reads the device with this number. `proc_root` is `/proc`.
///
/// # Errors
/// As for [`read`]; `NotFound` if the device is not listed.
pub fn of_device(proc_root: &Path, major: u32, minor: u32) -> io::Result<DiskStats> {
    let found = read(proc_root)?.into_iter().find(|disk| (disk.major, disk.minor) == (major, minor));
    found.ok_or_else(|| {
        let message = format!("{} does not list a device {major}:{minor}", proc_root.join("diskstats").display());
        io::Error::new(io::ErrorKind::NotFound, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip::skip;

    fn one(line: &str) -> DiskStats {
        let mut all = parse(line).unwrap();
        assert_eq!(all.len(), 1, "{line}");
        all.remove(0)
    }

    #[test]
    fn every_kernel_has_its_number_of_fields() {
        let partition = one("   3    1 hda1 35486 38030 38031 38032").counters;
        assert_eq!((partition.reads, partition.read_sectors), (35486, 38030));
        assert_eq!((partition.writes, partition.write_sectors), (38031, 38032));
        assert_eq!((partition.read_ms, partition.weighted_ms, partition.discards), (None, None, None));
        let eleven = "3 0 hda 1 2 3 4 5 6 7 8 9 10 11";
        let old = Counters {
            reads: 1,
            read_merges: Some(2),
            read_sectors: 3,
            read_ms: Some(4),
            writes: 5,
            write_merges: Some(6),
            write_sectors: 7,
            write_ms: Some(8),
            in_flight: Some(9),
            busy_ms: Some(10),
            weighted_ms: Some(11),
            ..Counters::default()
        };
        let with_discards = Counters {
            discards: Some(12),
            discard_merges: Some(13),
            discard_sectors: Some(14),
            discard_ms: Some(15),
            ..old
        };
        let with_flushes = Counters { flushes: Some(16), flush_ms: Some(17), ..with_discards };
        let cases = [("", old), (" 12 13 14 15", with_discards), (" 12 13 14 15 16 17", with_flushes)];
        for (more, expect) in cases {
            assert_eq!(one(&format!("{eleven}{more}")).counters, expect, "{more}");
        }
        assert_eq!(one(&format!("{eleven} 12 13 14 15 16 17 18 19")).counters, with_flushes, "a later kernel");
        assert_eq!((with_flushes.read_bytes(), with_flushes.write_bytes()), (1536, 3584));
        assert_eq!((with_flushes.discard_bytes(), old.discard_bytes()), (7168, 0));
    }

    #[test]
    fn other_lines_are_refused_by_number() {
        let good = "8 0 sda 1 2 3 4 5 6 7 8 9 10 11\n";
        let cases = [
            ("x 0 sda 1", "major number `x`"),
            ("8", "ends before its minor number"),
            ("8 0", "name of the device"),
            ("8 0 sda", "0 counters"),
            ("8 0 sda 1 2 3 4 5", "5 counters"),
            ("8 0 sda 1 2 3 4 5 6 7 -8 9 10 11", "counter `-8` of sda"),
            ("8 0 sda 1 2 3 4 5 6 7 99999999999999999999 9 10 11", "of sda is not a whole number"),
            ("3 0 39082680 hda 446216 784926 9550688 4382310", "counter `hda`"),
        ];
        for (bad, part) in cases {
            let error = parse(&format!("{good}\n{bad}\n{good}")).unwrap_err();
            assert_eq!(error.line, 3, "{bad}");
            assert!(error.to_string().contains(part), "{error}");
        }
        assert_eq!(parse("\n \n"), Ok(Vec::new()));
    }

    #[test]
    fn counters_wrap_and_resets_are_told_apart() {
        let cases = [
            (100, 40, Some(60)),
            (40, 40, Some(0)),
            (5, WRAP - 10, Some(15)),
            (0, WRAP - 1, Some(1)),
            (WRAP + 5, WRAP - 10, Some(15)),
            (5, 40, None),
            (5, WRAP + 10, None),
            (0, u64::MAX, None),
            (u64::MAX, 0, Some(u64::MAX)),
            (u64::MAX - 1, u64::MAX, None),
        ];
        for (later, earlier, expect) in cases {
            assert_eq!(difference(later, earlier), expect, "{earlier} -> {later}");
        }
    }

    #[test]
    fn a_difference_keeps_the_gauge_and_what_can_be_subtracted() {
        let earlier = one("8 0 sda 10 0 80 4294967290 5 0 40 9 7 1000 50").counters;
        let later = one("8 0 sda 30 0 240 14 5 0 40 9 3 900 60").counters;
        let moved = later.since(&earlier).unwrap();
        assert_eq!((moved.reads, moved.read_sectors, moved.writes), (20, 160, 0));
        assert_eq!((moved.read_ms, moved.in_flight), (Some(20), Some(3)));
        assert_eq!((moved.busy_ms, moved.weighted_ms), (None, Some(10)), "a clock that went back");
        assert_eq!(moved.discards, None);
        assert_eq!(earlier.since(&later), None, "fewer requests: it was reset");
    }

    #[test]
    fn a_device_is_found_by_its_number() -> io::Result<()> {
        let root = std::env::temp_dir().join(format!("plimsoll-diskstats-{}", std::process::id()));
        std::fs::create_dir_all(&root)?;
        std::fs::write(root.join("diskstats"), "8 0 sda 1 2 3 4 5 6 7 8 9 10 11\n8 1 sda1 1 2 3 4\n")?;
        let found = of_device(&root, 8, 1).map(|disk| disk.name);
        let missing = of_device(&root, 8, 2).map_err(|error| (error.kind(), error.to_string()));
        std::fs::write(root.join("diskstats"), "8 0 sda 1 2\n")?;
        let broken = of_device(&root, 8, 0).map_err(|error| (error.kind(), error.to_string()));
        std::fs::remove_dir_all(&root)?;
        assert_eq!(found?, "sda1");
        let Err((kind, message)) = missing else { panic!("8:2 is not listed") };
        assert!(kind == io::ErrorKind::NotFound && message.contains("8:2"), "{message}");
        let Err((kind, message)) = broken else { panic!("the line is too short") };
        assert!(kind == io::ErrorKind::InvalidData && message.contains("diskstats: line 1"), "{message}");
        Ok(())
    }

    #[test]
    fn the_kernel_of_this_machine_is_understood() {
        match read(Path::new("/proc")) {
            Ok(disks) => println!("{} devices", disks.len()),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => panic!("{error}"),
            Err(error) => skip(error),
        }
    }
}
