//! How long a piece takes on this disk when it waits for no other: the shortest latencies of late.
//!
//! # Why
//! By Little's law a disk works at its full rate only with rate x unloaded latency in it. A bound below that throttles the
//! disk, whatever the latency goal; so the disk's bound follows what this table says.
//!
//! # How it works
//! For each direction and each power of two of lengths, the least latency of the running period of [`PERIOD_NS`] and of
//! the one before. A disk that becomes slower is believed after two periods; one that becomes faster at once.
//!
//! # Limits
//! Each queue has its own table. On a disk that is never without a queue of its own the least latency contains some of
//! that queue: the closed loop, which decides what is used of the bound, keeps it short.
//!
//! # Example
//! Reads of 128 KiB on a network volume: 2.1 ms at the least, of which the model accounts for 0.5. At the full rate four
//! are under way, so a bound of 0.75 ms, which holds one, would leave three quarters of the volume unused.

use crate::request::Direction;

/// Length of a period: 10 s, as long as BBR remembers its least round-trip time (Cardwell et al., ACM Queue 2016).
const PERIOD_NS: u64 = 10_000_000_000;
/// Lengths below 1 KiB, below 2 KiB, ... and the rest from 16 MiB on.
const SIZES: usize = 16;

/// The table of one queue.
#[derive(Debug)]
pub(super) struct Unloaded {
    /// By direction and length: the least latency of the running period, and of the one before.
    rows: [[[u64; 2]; SIZES]; 2],
    period: u64,
}

impl Unloaded {
    pub(super) fn new() -> Unloaded {
        Unloaded { rows: [[[u64::MAX; 2]; SIZES]; 2], period: 0 }
    }

    /// Notes that a piece took `device_ns`, and returns how long such a piece takes at the least.
    pub(super) fn note(&mut self, now_ns: u64, direction: Direction, len_bytes: u32, device_ns: u64) -> u64 {
        let period = now_ns / PERIOD_NS;
        if period != self.period {
            self.turn_to(period);
        }

        let size = (len_bytes.max(512).ilog2() as usize - 9).min(SIZES - 1);
        let row = &mut self.rows[direction as usize][size];
        row[0] = row[0].min(device_ns);
        row[0].min(row[1])
    }

    fn turn_to(&mut self, period: u64) {
        let follows = period == self.period + 1;
        for row in self.rows.iter_mut().flatten() {
            *row = [u64::MAX, if follows { row[0] } else { u64::MAX }];
        }
        self.period = period;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_slower_disk_is_believed_after_two_periods_a_faster_one_at_once() {
        let mut unloaded = Unloaded::new();
        let mut note = |now_ns, device_ns| unloaded.note(now_ns, Direction::Read, 4096, device_ns);
        assert_eq!(note(S, 100), 100);
        assert_eq!(note(2 * S, 300), 100);
        assert_eq!(note(12 * S, 300), 100);
        assert_eq!(note(22 * S, 300), 300);
        assert_eq!(note(23 * S, 50), 50);
        // After a long silence nothing of before counts.
        assert_eq!(note(500 * S, 200), 200);
    }

    #[test]
    fn directions_and_lengths_stand_apart() {
        let mut unloaded = Unloaded::new();
        assert_eq!(unloaded.note(S, Direction::Write, 4096, 20), 20);
        assert_eq!(unloaded.note(S, Direction::Read, 4096, 80), 80);
        assert_eq!(unloaded.note(S, Direction::Read, 128 << 10, 200), 200);
        assert_eq!(unloaded.note(S, Direction::Read, u32::MAX, 9000), 9000);
        assert_eq!(unloaded.note(S, Direction::Read, 0, 90), 90);
    }
}
