//! Measures the part of a device's traffic that other programs caused during a measurement.
//!
//! **Why.** A figure measured beside a backup is that of a disk with a backup, and the samples do not show the backup.
//!
//! **How.** The kernel counts what a device moves. Direct I/O reaches the device unchanged, so other programs caused
//! the bytes beyond those that this program asked for. Reads and writes are compared separately, so that a lack of one
//! does not hide an excess of the other.
//!
//! **Limits.** File system writes about our files (journal, times) count as foreign. Requests that end while the
//! counters are read may count on one side only, so an interval should be much longer than a request. Devices that move
//! more than asked by design (parity, copies: give the number of the array, not of a member), that compress, or whose
//! counters do not change (some multipath devices) cannot be judged.
//!
//! **Example.** A disk read 1.2 GB while this program asked for 1 GB: 200 MB are foreign, 16.7 %.

use std::path::{Path, PathBuf};

use plimsoll::sys::diskstats::{self, Counters};
use plimsoll_figures::verdict::FLAT_SPREAD;

/// Part of other programs' I/O, in percent, above which a figure is doubtful and a verdict on rates cannot stand: the
/// largest difference at which two rates still count as the same.
pub(crate) const FOREIGN_DOUBT_PCT: f64 = 100.0 * FLAT_SPREAD;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ForeignShare {
    /// Foreign traffic in per cent of what the device moved, 0 to 100.
    pub(crate) foreign_pct: f64,
    /// Foreign bytes, read and written.
    pub(crate) foreign_bytes: u64,
}

/// Compares the kernel's counters of a device with this program's own traffic.
#[derive(Clone, Debug)]
pub(crate) struct ForeignMeter {
    proc_root: PathBuf,
    major: u32,
    minor: u32,
    before: Option<Counters>,
}

impl ForeignMeter {
    /// Returns a meter for the device `major:minor` (a whole disk: other partitions disturb as well). `proc_root` is
    /// `/proc`.
    pub(crate) fn new(proc_root: &Path, major: u32, minor: u32) -> ForeignMeter {
        ForeignMeter { proc_root: proc_root.to_owned(), major, minor, before: None }
    }

    pub(crate) fn begin(&mut self) {
        self.before = self.read();
    }

    /// Ends the interval, in which this program read and wrote the given bytes; if the bytes written are `None`, no
    /// write counts as foreign. Returns `None` if the kernel has no counters, if the device moved nothing although this
    /// program asked it to, or if no interval was begun.
    pub(crate) fn end(&mut self, own_bytes_read: u64, own_bytes_written: Option<u64>) -> Option<ForeignShare> {
        let moved = self.read()?.since(&self.before.take()?)?;
        let moved_bytes = moved.read_bytes().saturating_add(moved.write_bytes());
        if moved_bytes == 0 {
            let is_idle = own_bytes_read == 0 && own_bytes_written.unwrap_or(0) == 0;
            return is_idle.then_some(ForeignShare { foreign_pct: 0.0, foreign_bytes: 0 });
        }
        let foreign_read_bytes = moved.read_bytes().saturating_sub(own_bytes_read);
        let foreign_written_bytes =
            own_bytes_written.map_or(0, |own_bytes| moved.write_bytes().saturating_sub(own_bytes));
        let foreign_bytes = foreign_read_bytes.saturating_add(foreign_written_bytes);
        Some(ForeignShare { foreign_pct: 100.0 * foreign_bytes as f64 / moved_bytes as f64, foreign_bytes })
    }

    fn read(&self) -> Option<Counters> {
        diskstats::of_device(&self.proc_root, self.major, self.minor).ok().map(|disk| disk.counters)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io};

    use super::*;

    #[test]
    fn what_was_not_asked_for_is_foreign() -> io::Result<()> {
        let root = tempfile::tempdir()?;
        let set = |read_sectors: u64, write_sectors: u64| {
            let line = format!("259 0 nvme0n1 1 0 {read_sectors} 1 1 0 {write_sectors} 1 0 1 1\n");
            fs::write(root.path().join("diskstats"), line)
        };
        // Sectors read and written, own bytes -> foreign per cent and bytes.
        let cases = [
            (2000, 0, 1_024_000, 0, Some((0.0, 0))),
            (2400, 0, 1_024_000, 0, Some((100.0 / 6.0, 204_800))),
            (0, 1000, 0, 0, Some((100.0, 512_000))),
            (1000, 1000, 512_000, 256_000, Some((25.0, 256_000))),
            // Fewer reads than asked (a cache below serves them) do not offset foreign writes.
            (100, 100, 1_024_000, 0, Some((50.0, 51_200))),
            (10, 0, 1_024_000, 0, Some((0.0, 0))),
            (0, 0, 0, 0, Some((0.0, 0))),
            (0, 0, 4096, 0, None),
        ];
        for (read_sectors, write_sectors, own_read, own_written, expect) in cases {
            let mut meter = ForeignMeter::new(root.path(), 259, 0);
            set(5000, 7000)?;
            meter.begin();
            set(5000 + read_sectors, 7000 + write_sectors)?;
            let found = meter.end(own_read, Some(own_written)).map(|share| (share.foreign_pct, share.foreign_bytes));
            assert_eq!(found, expect, "{read_sectors} {write_sectors}");
            assert_eq!(meter.end(0, Some(0)), None, "an interval ends once");
        }
        // A file system's journal: writes are not judged.
        let mut meter = ForeignMeter::new(root.path(), 259, 0);
        meter.begin();
        set(5500, 9000)?;
        assert_eq!(meter.end(256_000, None).map(|share| share.foreign_bytes), Some(0));
        let mut meter = ForeignMeter::new(root.path(), 259, 0);
        meter.begin();
        set(0, 0)?;
        assert_eq!(meter.end(0, Some(0)), None, "the device was replaced");
        let mut other = ForeignMeter::new(root.path(), 8, 0);
        other.begin();
        assert_eq!(other.end(0, Some(0)), None, "not listed");
        Ok(())
    }
}
