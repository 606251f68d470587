//! The queues that are absent: the work that they have in the device keeps no room from the others. Nor do writes that
//! are held before it (`queue::held`).
//!
//! # Why
//! A shard that hangs does not take back the pieces that the device has completed. They would count as in the device
//! until it returns, and a queue of many shares may have had all of the window.
//!
//! # How it works
//! Each queue has a [`Presence`], which it alone writes: its pieces in the device, how long they usually stay there,
//! its last poll, and when it has asked for the next. A queue that is later than that by [`ABSENT_USUAL`] times the
//! usual time, or as many bounds of the window, is *absent*. A queue that finds the device full counts the work of
//! absent queues anew, at most once in [`COUNT_NS`]; that work is left out wherever work in the device is compared with
//! the window. Nothing else changes at an absent queue, so it can return at any moment: it counts again with its first
//! poll.
//!
//! # Limits
//! A queue that waits only for its own pieces asks for no poll. It is absent after [`UNASKED_NS`] more, so a device
//! that stands still for longer may be given as much again as such queues have in it. Queues that ask for polls are not
//! absent however long the device stands still. Between the completions of a queue that returns and its first poll, the
//! device may be given as much work as that queue has taken back.
//!
//! # Example
//! A bound of 0.75 ms, and a queue with 0.6 ms of work in the device that asked to be polled 3.1 ms ago: the others
//! have room for 0.75 ms of work.

use std::sync::Arc;

use super::Disk;
use crate::clock::AWAY_MAX_NS;
use crate::sync::{AtomicU64, Ordering::Relaxed};

/// Lateness of an absent queue, in usual times of its pieces in the device, and in bounds of the window. By then the
/// device has completed its pieces, unless it stands still.
const ABSENT_USUAL: u64 = 4;
/// Least such lateness: a thread that waits for a CPU is often this late.
pub(crate) const ABSENT_LEAST_NS: u64 = 2_000_000;
/// Time until the next poll of a queue that has asked for none.
const UNASKED_NS: u64 = 20_000_000;
/// Least time between two counts of the work of absent queues.
const COUNT_NS: u64 = 1_000_000;

/// The state of one queue that the other queues of its disk read; only the queue itself writes it.
#[repr(align(128))]
#[derive(Debug, Default)]
pub(crate) struct Presence {
    /// Device time of the queue's pieces in the device, by lane.
    in_flight_ticks: [AtomicU64; 2],
    /// The number of pieces in the device that take device time.
    pieces: AtomicU64,
    /// Device time and number of the queue's writes that are held before the device.
    held_ticks: AtomicU64,
    held_pieces: AtomicU64,
    /// Moving mean of the time of a piece in the device.
    usual_device_ns: AtomicU64,
    /// The last poll, and when the queue has asked to be polled again; `u64::MAX`: it has not.
    polled_ns: AtomicU64,
    wakeup_ns: AtomicU64,
}

impl Presence {
    pub(crate) fn in_flight_ticks(&self, lane: usize) -> u64 {
        self.in_flight_ticks[lane].load(Relaxed)
    }

    pub(crate) fn pieces(&self) -> u64 {
        self.pieces.load(Relaxed)
    }

    pub(crate) fn usual_device_ns(&self) -> u64 {
        self.usual_device_ns.load(Relaxed)
    }

    /// Adds a piece of `ticks` in `lane`.
    pub(crate) fn add(&self, lane: usize, ticks: u64) {
        self.in_flight_ticks[lane].store(self.in_flight_ticks(lane) + ticks, Relaxed);
        self.pieces.store(self.pieces() + 1, Relaxed);
    }

    /// Removes a piece of `ticks` in `lane`.
    pub(crate) fn remove(&self, lane: usize, ticks: u64) {
        self.in_flight_ticks[lane].store(self.in_flight_ticks(lane) - ticks, Relaxed);
        self.pieces.store(self.pieces() - 1, Relaxed);
    }

    /// Records the device time and the number of the queue's held writes.
    pub(crate) fn holds(&self, ticks: u64, pieces: u32) {
        self.held_ticks.store(ticks, Relaxed);
        self.held_pieces.store(pieces.into(), Relaxed);
    }

    /// Adds a piece that was in the device for `device_ns` to the mean.
    pub(crate) fn note_time(&self, device_ns: u64) {
        let usual_ns = self.usual_device_ns();
        self.usual_device_ns.store(usual_ns - usual_ns / 16 + device_ns / 16, Relaxed);
    }

    /// Records a poll, and when the queue has asked to be polled again.
    pub(crate) fn polls(&self, now_ns: u64, wakeup_ns: Option<u64>) {
        self.polled_ns.store(now_ns, Relaxed);
        self.wakeup_ns.store(wakeup_ns.unwrap_or(u64::MAX), Relaxed);
    }

    /// Returns whether the queue is absent, on a disk whose window is bounded by `bound_ns`.
    fn is_absent(&self, now_ns: u64, bound_ns: u64) -> bool {
        let since_ns = now_ns.saturating_sub(self.polled_ns.load(Relaxed));
        let asked_ns = match self.wakeup_ns.load(Relaxed) {
            u64::MAX => UNASKED_NS,
            wakeup_ns => wakeup_ns.saturating_sub(self.polled_ns.load(Relaxed)).min(AWAY_MAX_NS),
        };
        let usual_ns = self.usual_device_ns().max(bound_ns).saturating_mul(ABSENT_USUAL);
        since_ns.saturating_sub(asked_ns) > usual_ns.max(ABSENT_LEAST_NS)
    }
}

/// The work that absent queues have in the device, as of the last count.
#[derive(Debug, Default)]
pub(super) struct Absent {
    all_ticks: AtomicU64,
    /// By lane.
    ticks: [AtomicU64; 2],
    pieces: AtomicU64,
    counted_ns: AtomicU64,
}

impl Absent {
    pub(super) fn all_ticks(&self) -> u64 {
        self.all_ticks.load(Relaxed)
    }

    pub(super) fn ticks(&self, lane: usize) -> u64 {
        self.ticks[lane].load(Relaxed)
    }

    pub(super) fn pieces(&self) -> u64 {
        self.pieces.load(Relaxed)
    }

    /// Sets the work of absent queues.
    fn set(&self, ticks: [u64; 2], pieces: u64) {
        self.all_ticks.store(ticks[0] + ticks[1], Relaxed);
        self.ticks.iter().zip(ticks).for_each(|(of_lane, ticks)| of_lane.store(ticks, Relaxed));
        self.pieces.store(pieces, Relaxed);
    }

    /// Counts nobody as absent until the next count.
    pub(super) fn forget(&self) {
        self.set([0; 2], 0);
    }
}

impl Disk {
    /// Returns whether the last count has found an absent queue.
    pub(crate) fn has_absent(&self) -> bool {
        self.absent().pieces() > 0
    }

    /// Counts the work of absent queues, unless it was counted less than [`COUNT_NS`] ago. Returns whether there is
    /// more of it than before, so that others have more room.
    #[cold]
    pub(crate) fn count_absent(&self, now_ns: u64) -> bool {
        let since_ns = now_ns.abs_diff(self.absent().counted_ns.load(Relaxed));
        since_ns >= COUNT_NS && self.count_absent_now(now_ns)
    }

    /// Counts the work of absent queues, in any case.
    #[cold]
    pub(crate) fn count_absent_now(&self, now_ns: u64) -> bool {
        // If another queue is counting, its count will do.
        self.presences.try_lock().is_ok_and(|presences| self.count_among(&presences, now_ns))
    }

    /// Counts the work of absent queues anew because held writes have changed, which no other count may have seen.
    #[cold]
    pub(crate) fn count_held(&self, now_ns: u64) {
        self.count_among(&self.presences(), now_ns);
    }

    fn count_among(&self, presences: &[Arc<Presence>], now_ns: u64) -> bool {
        let bound_ns = self.bound_ns();
        let (mut ticks, mut pieces) = ([0, 0], 0);
        for presence in presences {
            let is_absent = presence.is_absent(now_ns, bound_ns);
            ticks[0] += if is_absent { presence.in_flight_ticks(0) } else { presence.held_ticks.load(Relaxed) };
            ticks[1] += if is_absent { presence.in_flight_ticks(1) } else { 0 };
            pieces += if is_absent { presence.pieces() } else { presence.held_pieces.load(Relaxed) };
        }

        let before = self.absent().all_ticks();
        self.absent().set(ticks, pieces);
        self.absent().counted_ns.store(now_ns, Relaxed);
        ticks[0] + ticks[1] > before
    }
}
