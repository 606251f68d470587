//! A kernel's counters of a simulated disk: the numbers of a line of `/proc/diskstats`.
//!
//! # Why
//! A tool that judges disks by the kernel's counters is tested where the truth is known: on a simulated disk. The disk
//! must therefore be counted as a kernel counts a real one, pitfalls included.
//!
//! # How it works
//! A piece submitted to the device is a request of the kernel's. As in Linux since 5.0, all but `in_flight` and the
//! busy time is counted when a request *completes*: its number, its sectors and its whole time. An interval without
//! completions therefore shows no latency at all, even if requests hang, and the weighted time is the sum of those
//! times. Times are kept in nanoseconds and cut to milliseconds when a line is printed. The end of the warm-up resets
//! nothing.
//!
//! Source: `Documentation/admin-guide/iostats.rst`, `diskstats_show` in `block/genhd.c` and `blk_account_io_done` in
//! `block/blk-mq.c` of Linux.
//!
//! # Limits
//! No merges, no partitions, and no kernel queue: every request sent is in the device. The busy time is exact, not
//! sampled by the timer's ticks. An allocation is no request of the block layer and is counted only while in flight. A
//! failed request counts with its whole length, as in Linux.
//!
//! # Example
//! ```
//! use plimsoll_sim::world::DiskCounters;
//! let counters = DiskCounters {
//!     reads: 2000, read_bytes: 8_192_000, read_ns: 200_900_000, in_flight: 3, busy_ns: 90_000_000,
//!     ..DiskCounters::default()
//! };
//! assert_eq!(counters.line(259, 0, "nvme0n1"), "259 0 nvme0n1 2000 0 16000 200 0 0 0 0 3 90 200 0 0 0 0 0 0");
//! ```

use plimsoll_core::Op;

/// Bytes of a sector of these counters, whatever the device's blocks are.
const SECTOR_BYTES: u64 = 512;
const NS_PER_MS: u64 = 1_000_000;

/// The counters of a disk since the world began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounters {
    pub reads: u64,
    pub read_bytes: u64,
    /// Sum of their times from submission to completion, in nanoseconds.
    pub read_ns: u64,
    pub writes: u64,
    pub write_bytes: u64,
    /// Sum of their times, in nanoseconds.
    pub write_ns: u64,
    pub discards: u64,
    pub discard_bytes: u64,
    /// Sum of their times, in nanoseconds.
    pub discard_ns: u64,
    pub flushes: u64,
    /// Sum of their times, in nanoseconds.
    pub flush_ns: u64,
    /// Requests in flight: the only counter that also falls.
    pub in_flight: u64,
    /// Time with at least one request in flight, in nanoseconds.
    pub busy_ns: u64,
}

impl DiskCounters {
    /// Returns the line that `/proc/diskstats` of Linux 5.5 and later would print, without a line break.
    pub fn line(&self, major: u32, minor: u32, name: &str) -> String {
        let (sectors, ms) = (|bytes: u64| bytes / SECTOR_BYTES, |ns: u64| ns / NS_PER_MS);
        let weighted_ns = self.read_ns + self.write_ns + self.discard_ns + self.flush_ns;
        format!(
            "{major} {minor} {name} {} 0 {} {} {} 0 {} {} {} {} {} {} 0 {} {} {} {}",
            self.reads,
            sectors(self.read_bytes),
            ms(self.read_ns),
            self.writes,
            sectors(self.write_bytes),
            ms(self.write_ns),
            self.in_flight,
            ms(self.busy_ns),
            ms(weighted_ns),
            self.discards,
            sectors(self.discard_bytes),
            ms(self.discard_ns),
            self.flushes,
            ms(self.flush_ns),
        )
    }
}

/// Counts the requests of one disk.
#[derive(Debug, Default)]
pub(crate) struct Counting {
    counters: DiskCounters,
    /// Time up to which the busy time is counted.
    since_ns: u64,
}

impl Counting {
    #[inline]
    pub(crate) fn enter(&mut self, now_ns: u64) {
        self.go_on(now_ns);
        self.counters.in_flight += 1;
    }

    /// Counts a completed request that was sent at `sent_ns`. If it failed, `len_bytes` is its whole length.
    #[inline]
    pub(crate) fn leave(&mut self, now_ns: u64, sent_ns: u64, op: Op, len_bytes: u32) {
        self.go_on(now_ns);
        let (taken_ns, len_bytes) = (now_ns.saturating_sub(sent_ns), u64::from(len_bytes));
        let counters = &mut self.counters;
        counters.in_flight = counters.in_flight.saturating_sub(1);

        match op {
            Op::Read => {
                counters.reads += 1;
                counters.read_bytes += len_bytes;
                counters.read_ns += taken_ns;
            }
            Op::Write => {
                counters.writes += 1;
                counters.write_bytes += len_bytes;
                counters.write_ns += taken_ns;
            }
            Op::Discard => {
                counters.discards += 1;
                counters.discard_bytes += len_bytes;
                counters.discard_ns += taken_ns;
            }
            Op::Flush => {
                counters.flushes += 1;
                counters.flush_ns += taken_ns;
            }
            Op::Allocate => {}
        }
    }

    /// Returns the counters that a reader of the file would read at `now_ns`.
    pub(crate) fn read(&mut self, now_ns: u64) -> DiskCounters {
        self.go_on(now_ns);
        self.counters
    }

    fn go_on(&mut self, now_ns: u64) {
        let past_ns = now_ns.saturating_sub(self.since_ns);
        self.since_ns = now_ns;
        self.counters.busy_ns += if self.counters.in_flight > 0 { past_ns } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_count_at_completion_and_busy_time_as_it_passes() {
        let mut counting = Counting::default();
        counting.enter(1_000_000);
        counting.enter(3_000_000);
        let hung = counting.read(6_000_000);
        assert_eq!((hung.in_flight, hung.busy_ns, hung.read_ns, hung.reads), (2, 5_000_000, 0, 0));
        counting.leave(7_000_000, 3_000_000, Op::Write, 4096);
        counting.leave(9_000_000, 1_000_000, Op::Read, 512);
        let done = counting.read(20_000_000);
        assert_eq!((done.in_flight, done.busy_ns), (0, 8_000_000));
        assert_eq!(done.line(8, 0, "sda"), "8 0 sda 1 0 1 8 1 0 8 4 0 8 12 0 0 0 0 0 0");
    }

    #[test]
    fn every_operation_counts_as_what_it_is() {
        let mut counting = Counting::default();
        for (at, op) in [Op::Read, Op::Write, Op::Discard, Op::Flush, Op::Allocate].into_iter().enumerate() {
            let sent_ns = 20_000_000 * at as u64;
            counting.enter(sent_ns);
            counting.leave(sent_ns + 2_000_000 * (at as u64 + 1), sent_ns, op, 1024);
        }
        let line = counting.read(100_000_000).line(7, 1, "x");
        assert_eq!(line, "7 1 x 1 0 2 2 1 0 2 4 0 30 20 1 0 2 6 1 8");
    }
}
