//! Room in the device: which work may enter, how far a class that lags may exceed the window, and which queues wait.
//!
//! # Why
//! Work in the device can no longer be reordered. So the device holds no more than it needs to be busy, and the queue
//! forms in the scheduler.
//!
//! # How it works
//! Work enters while the device holds less than the window. A piece may reach beyond it, up to the bound (which an
//! excursion's window exceeds), and by an *overdraft* beyond that if its class lags, so that it need not wait for long
//! pieces of others. A queue that finds no room at its turn *claims* it until its next poll, so that other queues do
//! not take it to be absent. It also lists its turn, so that a queue that leaves room can name the first that waits.
//!
//! The directions of a duplex disk share the window, but each has room in any case for half of it: work that waits in
//! the device for the limit of one direction does not keep the other out. So such a device may hold up to half a window
//! more. The work of queues that are absent does not count (`presence`).
//!
//! # Limits
//! Each queue checks, adds and takes back without a lock: of two that ask at once, one sees the other. In different
//! directions of a duplex disk, neither may, and the device holds a piece more; or both do, and both retry.
//!
//! # Example
//! A window of 600 us with 590 us in the device takes a piece of 130 us, if the bound is 750 us; the next one waits.

use super::Disk;
use crate::sync::{AtomicU64, Ordering};

/// The part (1/4) of the bound by which a class that lags may exceed the window; one request if that is more.
const OVERDRAFT_PART: u64 = 4;

/// The part (1/8) of the bound by which a queue that lags behind the other queues of its class may exceed the window.
const OVERDRAFT_IN_CLASS_PART: u64 = 8;

/// The part (1/2) of the window for which each direction of a duplex disk has room in any case.
const OWN_PART: u64 = 2;

/// The reason why nothing can be dispatched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// The window is full.
    Device,
    /// There are no tokens before this time, in nanoseconds.
    Tokens(u64),
}

/// The times at which sleeping queues of one lane poll again; until then they are not absent.
#[repr(align(128))]
#[derive(Debug, Default)]
pub(super) struct Sleepers {
    /// Latest next poll of a queue that found no room at its turn.
    claimed_until_ns: AtomicU64,
    /// Latest next poll of a queue that found the device full, and may sleep past its turn.
    sleeps_until_ns: AtomicU64,
}

/// Raises a time to at least `ns`. Usually another queue has done so already, so reads before it writes.
pub(super) fn raise(until: &AtomicU64, ns: u64) {
    if until.load(Ordering::Relaxed) < ns {
        until.fetch_max(ns, Ordering::Relaxed);
    }
}

impl Disk {
    /// Claims room for a queue that found none at its turn in `lane`, until it polls again at `until_ns`: it is not
    /// absent before.
    pub(crate) fn claim(&self, lane: usize, until_ns: u64) {
        raise(&self.sleepers[lane].claimed_until_ns, until_ns);
    }

    /// Returns the end of the latest claim; see [`Disk::claim`].
    pub(crate) fn claimed_until_ns(&self, lane: usize) -> u64 {
        self.sleepers[lane].claimed_until_ns.load(Ordering::Relaxed)
    }

    /// Records that a queue half way to its turn in `lane` at `half_way_ns` sleeps until `until_ns`. If its turn comes
    /// before, it is not absent.
    pub(crate) fn sleeps_past(&self, lane: usize, half_way_ns: u64, until_ns: u64) {
        if half_way_ns < until_ns {
            raise(&self.sleepers[lane].sleeps_until_ns, until_ns);
        }
    }

    /// Returns until when a queue may sleep although its turn in `lane` has come: because it found no room, or because
    /// its turn had not come at its last poll.
    pub(crate) fn retries_until_ns(&self, lane: usize) -> u64 {
        self.claimed_until_ns(lane).max(self.sleepers[lane].sleeps_until_ns.load(Ordering::Relaxed))
    }

    /// Lists queue `number`, which found no room, until [`Disk::stops_waiting`]; its turn in `lane` comes at `turn` on
    /// the disk's clock.
    pub(crate) fn waits_for_room(&self, lane: usize, number: u16, turn: u64) {
        self.waiters[lane].add(number, turn);
    }

    /// Takes queue `number` off the list. Returns whether another queue had done so, to hand it room.
    pub(crate) fn stops_waiting(&self, lane: usize, number: u16) -> bool {
        !self.waiters[lane].forget(number)
    }

    /// Takes the queue off the list that is to be polled because there is room in the device, and returns it: the first
    /// other than `but` whose turn comes before `before`, by lane, from lane `from` on. `None` if there is no room or no
    /// such queue.
    pub(crate) fn first_waiter(&self, but: Option<u16>, from: usize, before: [Option<u64>; 2]) -> Option<u16> {
        let is_full = self.is_full();
        (from..self.waiters.len())
            .filter(|lane| !is_full || self.has_own_room(*lane, 0))
            .find_map(|lane| self.waiters[lane].take_first(but, before[lane]))
    }

    /// Returns whether requests of `ticks` of device time in all could be dispatched now. An empty device takes a
    /// request of any length, and a full bucket suffices for any cost.
    pub(crate) fn has_room(
        &self,
        now_ns: u64,
        lane: usize,
        group: u16,
        ticks: u64,
        late_ns: u64,
    ) -> Result<(), NoRoom> {
        let in_flight_ticks = self.in_flight_ticks();
        let is_beyond = in_flight_ticks > 0 && in_flight_ticks.saturating_add(ticks) > self.window_ticks();
        if is_beyond && !self.has_own_room(lane, ticks) {
            return Err(NoRoom::Device);
        }
        self.tokens_available(now_ns, lane, group, ticks, late_ns).map_err(NoRoom::Tokens)
    }

    /// Returns whether `lane` has room for work of `ticks` because it is a direction of a duplex disk.
    fn has_own_room(&self, lane: usize, ticks: u64) -> bool {
        self.config.duplex && self.is_own_room(lane, self.flow.held_ticks(lane), ticks, 0)
    }

    /// Returns whether work of `ticks` would be within the half of the window for which a direction of a duplex disk
    /// has room in any case, with `held_ticks` of that direction in the device.
    #[inline(never)]
    fn is_own_room(&self, lane: usize, held_ticks: u64, ticks: u64, overdraft_ticks: u64) -> bool {
        let in_flight_ticks = held_ticks.saturating_sub(self.absent().ticks(lane));
        let most_ticks = (self.window_ticks() / OWN_PART).saturating_add(overdraft_ticks);
        in_flight_ticks == 0 || in_flight_ticks.saturating_add(ticks) < most_ticks
    }

    /// Returns whether the closed loop moves the window.
    pub(crate) fn has_closed_loop(&self) -> bool {
        self.config.control.enabled && self.config.window_ns.is_none()
    }

    /// Returns whether the device holds the window.
    pub(crate) fn is_full(&self) -> bool {
        self.in_flight_ticks() >= self.window_ticks()
    }

    /// Returns the longest recent piece, in ticks.
    pub(crate) fn long_piece_ticks(&self) -> u64 {
        self.settings.long_piece_ticks.load(Ordering::Relaxed)
    }

    /// Records a dispatched piece if it is the longest recent one. Each [`Disk::report`] shrinks that length a little.
    pub(crate) fn note_piece(&self, ticks: u64) {
        if ticks > self.long_piece_ticks() {
            self.settings.long_piece_ticks.store(ticks, Ordering::Relaxed);
        }
    }

    /// Returns by how much a request of `ticks` may exceed window and tokens if its class lags by `lag_ticks`, and its
    /// queue lags by `in_class_ticks` in the class.
    pub(crate) fn overdraft_ticks(&self, ticks: u64, lag_ticks: u64, in_class_ticks: u64) -> u64 {
        let of_class = lag_ticks.min(self.most_overdraft_ticks(ticks));
        of_class.max(in_class_ticks.min(self.bound_ticks() / OVERDRAFT_IN_CLASS_PART))
    }

    /// Returns the same for a request due before its turn: it finds room even if others have used their overdraft.
    pub(crate) fn urgent_overdraft_ticks(&self, ticks: u64) -> u64 {
        let most_ticks = self.most_overdraft_ticks(ticks);
        most_ticks + most_ticks.max(self.long_piece_ticks())
    }

    fn most_overdraft_ticks(&self, ticks: u64) -> u64 {
        ticks.max(self.bound_ticks() / OVERDRAFT_PART)
    }

    /// Adds work of `ticks` in `lane` to the device if there is room, and returns whether there was. An empty device
    /// takes any request. A class that lags may exceed the window by its overdraft, so a small request of a class that
    /// wakes up enters at once. `overdraft_ticks` is called only if there is no room without it.
    ///
    /// Adds first and takes back if there was no room: of two shards that ask at once, one sees the other. A caller
    /// that expects a full device sets `looks_first`, which reads the shared cache line before writing it. One that
    /// expects room only writes, so the line travels once instead of twice.
    pub(crate) fn try_enter(
        &self,
        lane: usize,
        ticks: u64,
        looks_first: bool,
        overdraft_ticks: impl Fn() -> u64,
    ) -> bool {
        let has_room = |of_lane: u64, overdraft_ticks: u64| self.fits(lane, of_lane, ticks, overdraft_ticks);
        if looks_first {
            let of_lane = self.flow.held_ticks(lane);
            if !has_room(of_lane, 0) && !has_room(of_lane, overdraft_ticks()) {
                return false;
            }
        }

        let of_lane = self.flow.in_flight_ticks[lane].fetch_add(ticks, Ordering::Relaxed);
        let entered = has_room(of_lane, 0) || has_room(of_lane, overdraft_ticks());
        if !entered {
            self.leave(lane, ticks);
        }
        entered
    }

    /// Returns whether work of `ticks` in `lane`, of which the device holds `of_lane`, has room with this overdraft.
    #[inline(always)]
    fn fits(&self, lane: usize, of_lane: u64, ticks: u64, overdraft_ticks: u64) -> bool {
        let held_ticks = of_lane.saturating_add(self.flow.held_ticks(1 - lane));
        let (window_ticks, absent_ticks) = (self.window_ticks(), self.absent().all_ticks());
        let more_ticks = absent_ticks.saturating_add(overdraft_ticks);
        // An excursion's window exceeds the bound.
        let most_ticks = || window_ticks.max(self.bound_ticks());
        held_ticks <= absent_ticks
            || (held_ticks < window_ticks.saturating_add(more_ticks)
                && held_ticks.saturating_add(ticks) <= most_ticks().saturating_add(more_ticks))
            || (self.config.duplex && self.is_own_room(lane, of_lane, ticks, overdraft_ticks))
    }

    /// Adds work that is in the device already, whatever the room.
    pub(crate) fn enter(&self, lane: usize, ticks: u64) {
        if ticks > 0 {
            self.flow.in_flight_ticks[lane].fetch_add(ticks, Ordering::Relaxed);
        }
    }

    pub(crate) fn leave(&self, lane: usize, ticks: u64) {
        if ticks > 0 {
            self.flow.in_flight_ticks[lane].fetch_sub(ticks, Ordering::Relaxed);
        }
    }
}
