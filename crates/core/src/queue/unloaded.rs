//! The unloaded latencies of a disk: how long a piece takes if it waits for no other.
//!
//! # Why
//! By Little's law a disk works at its full rate only with rate x unloaded latency in flight. A bound below that
//! throttles the disk, whatever the latency goal; so the disk's bound follows this table.
//!
//! # How it works
//! For each direction and each power of two of lengths, the table keeps the shortest latency ever seen. It never
//! expires: on a disk that always has work, the shortest latency of a later period contains queueing, and a bound that
//! follows it makes the queue longer.
//!
//! # Limits
//! Each queue has its own table. If a disk's latency rises for good, its bound does not.
//!
//! # Example
//! Reads of 128 KiB on a network volume take at least 2.1 ms; the model accounts for 0.5 ms. At the full rate four are
//! in flight, so a bound of 0.75 ms, which holds one, would leave three quarters of the volume unused.

use crate::request::Direction;

/// Ranges of length: below 1 KiB, below 2 KiB, ..., from 16 MiB on.
const SIZES: usize = 16;

/// The table of one queue.
#[derive(Debug)]
pub(super) struct Unloaded {
    /// By direction and length.
    least_ns: [[u64; SIZES]; 2],
}

impl Unloaded {
    pub(super) fn new() -> Unloaded {
        Unloaded { least_ns: [[u64::MAX; SIZES]; 2] }
    }

    /// Records that a piece took `device_ns`, and returns the shortest time of such a piece.
    pub(super) fn note(&mut self, direction: Direction, len_bytes: u32, device_ns: u64) -> u64 {
        let size = (len_bytes.max(512).ilog2() as usize - 9).min(SIZES - 1);
        let least_ns = &mut self.least_ns[direction as usize][size];
        *least_ns = device_ns.min(*least_ns);
        *least_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_not_taken_for_the_disk() {
        let mut unloaded = Unloaded::new();
        let mut note = |device_ns| unloaded.note(Direction::Read, 4096, device_ns);
        assert_eq!([note(300), note(100), note(5000), note(200)], [300, 100, 100, 100]);
        assert_eq!(note(50), 50);
    }

    #[test]
    fn directions_and_lengths_stand_apart() {
        let mut unloaded = Unloaded::new();
        assert_eq!(unloaded.note(Direction::Write, 4096, 20), 20);
        assert_eq!(unloaded.note(Direction::Read, 4096, 80), 80);
        assert_eq!(unloaded.note(Direction::Read, 128 << 10, 200), 200);
        assert_eq!(unloaded.note(Direction::Read, u32::MAX, 9000), 9000);
        assert_eq!(unloaded.note(Direction::Read, 0, 90), 90);
    }
}
