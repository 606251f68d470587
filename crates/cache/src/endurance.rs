//! Keeps the bytes written to the disks within the endurance that their makers promise.
//!
//! # Why
//! A drive of 2 TB that is promised one write of all its bytes a day is worn out early by a cache that takes in ten
//! times that. The blocks of a cache can be fetched again; the drive has to be bought again.
//!
//! # How it works
//! Bytes are granted at the rate of the budget, and saved for at most an hour, so that a short burst is not refused.
//! The keeper compares them with the bytes written (fill, moves, metadata). When they are spent, inserts are dropped
//! until new ones are granted; hits, moves and checkpoints go on.
//!
//! # Limits
//! The keeper checks the budget a few times a second, so it may be exceeded by the writes of that time; the excess is
//! subtracted from the next grants. The writes of the drive's own garbage collection are not known. An opening begins
//! with the savings of an hour.
//!
//! # Example
//! 2 TB a day are 23 MB/s, and 83 GB in one burst after a quiet hour.

const DAY_NS: f64 = 86_400e9;

/// Longest time for which unused bytes are saved, in nanoseconds.
const SAVED_NS: f64 = 3_600e9;

/// The budget of a cache.
#[derive(Debug)]
pub(crate) struct Endurance {
    bytes_per_day: f64,
    /// Bytes that may still be written; negative: written in excess.
    left: f64,
    looked_ns: u64,
    written_bytes: u64,
}

impl Endurance {
    /// Returns a budget with the savings of an hour. `written_bytes` have been written until now.
    pub(crate) fn new(bytes_per_day: u64, now_ns: u64, written_bytes: u64) -> Endurance {
        let bytes_per_day = bytes_per_day as f64;
        Endurance { bytes_per_day, left: bytes_per_day * SAVED_NS / DAY_NS, looked_ns: now_ns, written_bytes }
    }

    /// Returns whether the budget is spent, now that `written_bytes` have been written in all. Fewer than before (a
    /// disk has left) count as none.
    pub(crate) fn is_spent(&mut self, now_ns: u64, written_bytes: u64) -> bool {
        let past_ns = now_ns.saturating_sub(self.looked_ns) as f64;
        let granted = self.left + self.bytes_per_day * past_ns / DAY_NS;
        let new_bytes = written_bytes.saturating_sub(self.written_bytes) as f64;
        self.left = granted.min(self.bytes_per_day * SAVED_NS / DAY_NS) - new_bytes;
        (self.looked_ns, self.written_bytes) = (now_ns, written_bytes);
        self.left <= 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn an_hour_is_saved_and_what_was_written_in_excess_is_owed() {
        // One byte per second.
        let mut budget = Endurance::new(86_400, 0, 500);
        assert!(!budget.is_spent(0, 500 + 3599));
        assert!(budget.is_spent(0, 500 + 3600));
        assert!(!budget.is_spent(10 * S, 500 + 3600));
        assert!(budget.is_spent(11 * S, 500 + 3600 + 100), "89 too many");
        assert!(budget.is_spent(99 * S, 500 + 3600 + 100));
        assert!(!budget.is_spent(101 * S, 500 + 3600 + 100));
        // A day without writes is worth an hour.
        assert!(!budget.is_spent(90_000 * S, 4200 + 3599));
        assert!(budget.is_spent(90_000 * S, 4200 + 3601));
    }

    #[test]
    fn a_disk_that_leaves_pays_nothing_back() {
        let mut budget = Endurance::new(86_400, 0, 10_000);
        assert!(budget.is_spent(0, 13_600));
        assert!(budget.is_spent(0, 7000));
        assert!(budget.is_spent(0, 7001));
    }
}
