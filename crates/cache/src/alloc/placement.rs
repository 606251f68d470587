//! Chooses the disk for the next block, if every disk has an open slab.
//!
//! # Why
//! Disks differ in speed, and one disk differs from second to second. A cache that fills one slab after another writes
//! to one disk at a time (seed 003); one that distributes blocks evenly is as slow as its slowest disk.
//!
//! # How it works
//! A block goes to the disk that would begin it first: after the bytes in flight there (`backlog / speed`: join the
//! shortest queue, measured in time), and after the disk's turn. Turns come from a virtual clock: a block of `len`
//! bytes occupies its disk for `len / speed`, and starts when the last one on its disk has ended, but not before
//! `now`, the start of the block placed last. Without backlog this is start-time fair queueing (Goyal, Vin and Cheng,
//! 1996) turned around, with disks instead of flows: each gets bytes in proportion to its speed. With backlogs, the
//! sum of both at once gives less to a disk that falls behind its rated speed. And since nothing starts before `now`,
//! a disk passed over for its backlog has no claim to a burst afterwards.
//!
//! The start is compared, not the end: by the end, a slow disk would get no long block at all.
//!
//! # Limits
//! A slow disk counts as a 64th of its speed: enough to see it recover. If no other disk has space, it gets all blocks.
//!
//! # Example
//! Two idle disks of 100 and 200 MB/s, blocks of 1 MB: starts at 0, 10, 20 ms on the first and 0, 5, 10, 15 ms on the
//! second. Of 300 blocks the first gets 100.

use crate::random::splitmix;

/// Part of its speed that a slow disk counts with.
const SLOW_SHARE: f64 = 1.0 / 64.0;

/// The backlog and the speed of a disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct DiskLoad {
    /// Its number.
    pub(crate) disk: u16,
    /// Bytes per second that it writes; less than 1 counts as 1.
    pub(crate) write_bytes_per_s: f64,
    /// Bytes allocated on it (or sent to it) and not yet written.
    pub(crate) backlog_bytes: u64,
    /// Whether it takes new blocks.
    pub(crate) is_writable: bool,
    /// Whether it should get no more than a trickle.
    pub(crate) is_slow: bool,
}

/// All disks that may get blocks, in any order. A disk that is not listed gets none.
pub(crate) type DiskLoads = [DiskLoad];

impl DiskLoad {
    fn bytes_per_s(&self) -> f64 {
        let share = if self.is_slow { SLOW_SHARE } else { 1.0 };
        (self.write_bytes_per_s * share).max(1.0) // Also 1 if it is not a number.
    }
}

/// The virtual clock of all disks.
#[derive(Debug, Default)]
pub(super) struct VirtualClock {
    now_s: f64,
    /// End of the last block of each disk, by disk number.
    end_s: Vec<f64>,
}

impl VirtualClock {
    fn start_s(&self, disk: u16) -> f64 {
        self.end_s.get(usize::from(disk)).map_or(self.now_s, |end_s| end_s.max(self.now_s))
    }

    /// Returns the disk that would begin a block first, of those that `may_use` accepts.
    pub(super) fn pick<'a>(
        &self,
        loads: &'a DiskLoads,
        mut may_use: impl FnMut(&DiskLoad) -> bool,
    ) -> Option<&'a DiskLoad> {
        let mut best: Option<(f64, f64, &DiskLoad)> = None;
        for load in loads.iter().filter(|load| load.is_writable) {
            let speed = load.bytes_per_s();
            let backlog_s = if load.backlog_bytes == 0 { 0.0 } else { load.backlog_bytes as f64 / speed };
            let wait_s = backlog_s + self.start_s(load.disk) - self.now_s;
            let is_better = best.is_none_or(|(best_s, other, _)| wait_s < best_s || wait_s == best_s && speed > other);
            if is_better && may_use(load) {
                best = Some((wait_s, speed, load));
            }
        }
        best.map(|(_, _, load)| load)
    }

    /// Records that a block was placed on this disk.
    pub(super) fn charge(&mut self, load: &DiskLoad, len_bytes: u32) {
        let disk = usize::from(load.disk);
        if self.end_s.len() <= disk {
            self.end_s.resize(disk + 1, 0.0);
        }
        self.now_s = self.start_s(load.disk);
        self.end_s[disk] = self.now_s + f64::from(len_bytes) / load.bytes_per_s();
    }
}

/// Random numbers from a seed: a choice among equal slabs.
#[derive(Debug)]
pub(super) struct SmallRng(pub(super) u64);

impl SmallRng {
    pub(super) fn next_u64(&mut self) -> u64 {
        let (state, value) = splitmix(self.0);
        self.0 = state;
        value
    }
}
