//! The statistics of a class: counters, reasons of waiting, latency histograms.
//!
//! # Why
//! An operator asks three things: what did this class get, how long did it wait, and *why*. Counters and histograms
//! answer the first two. For the third, every nanosecond in which a class had work and dispatched nothing counts under
//! one [`WaitReason`].
//!
//! # How it works
//! For each reason, a queue keeps a running total of the time in which *no class* could dispatch. When a class
//! dispatches, the growth of those totals since its last dispatch is the part of the wait due to tokens, depth or the
//! backend; the rest was fairness: others were served. That costs a few additions per request, and no list of times.
//!
//! # Limits
//! The wait is that of the class (its oldest request), not the sum over its requests, which is in the queue-time
//! histogram. Histograms are made at the first request of each direction, so an idle class stays small, and one that
//! only reads has no histograms of writes.

use crate::hist::Histogram;

/// The reason why queued work was not dispatched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WaitReason {
    /// Other classes were served, as their shares demand.
    Fairness = 0,
    /// The disk model's tokens were used up: the class asked for more than the model allows.
    Tokens = 1,
    /// A limit of the class or of a group above it was reached, or it yielded to a latency target.
    Limit = 2,
    /// The device held enough work already (depth, or the window of device time).
    Depth = 3,
    /// The backend had no room.
    Backend = 4,
}

impl WaitReason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [WaitReason; 5] =
        [WaitReason::Fairness, WaitReason::Tokens, WaitReason::Limit, WaitReason::Depth, WaitReason::Backend];

    /// Returns a short lower-case name, as in tables and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            WaitReason::Fairness => "fairness",
            WaitReason::Tokens => "tokens",
            WaitReason::Limit => "limit",
            WaitReason::Depth => "depth",
            WaitReason::Backend => "backend",
        }
    }
}

/// Counters of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionStats {
    /// Requests that ended, with success or not.
    pub requests: u64,
    /// Bytes moved (the longest successful prefix of each), also by requests that were cancelled between two pieces and
    /// do not count above.
    pub bytes: u64,
}

/// Latency histograms of one class in one direction, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    /// From enqueue to the first dispatch.
    pub queue: Histogram,
    /// From dispatch to completion, of each piece.
    pub device: Histogram,
    /// From enqueue to the end of the whole request.
    pub total: Histogram,
}

impl Latencies {
    /// Adds the counts of `other`: the other direction, or the same class in another queue.
    pub fn merge(&mut self, other: &Latencies) {
        self.queue.merge(&other.queue);
        self.device.merge(&other.device);
        self.total.merge(&other.total);
    }

    /// Clears all counts, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.queue.clear();
        self.device.clear();
        self.total.clear();
    }
}

/// The counters of one class. All start at zero; all but the first four only grow.
///
/// In this order, the fields that each request writes are in the first two cache lines.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassStats {
    /// Requests queued now, a partly dispatched one included.
    pub queued: u32,
    /// Pieces in the device now.
    pub in_flight: u32,
    /// Bytes that queued requests still have to move.
    pub queued_bytes: u64,
    /// Device time that queued requests still need, in femtoseconds by the disk model.
    pub queued_fs: u128,
    /// Device time charged, in femtoseconds by the disk model.
    pub consumed_fs: u128,
    /// Pieces dispatched.
    pub dispatched: u64,
    /// Nanoseconds in which work was queued and none of the class was in the device, up to the last dispatch: Seastar's
    /// "starvation". A wait during which counters are reset counts in full at its end.
    pub starved_ns: u64,
    /// Reads that ended.
    pub read: DirectionStats,
    /// Writes, flushes, discards and allocations that ended.
    pub write: DirectionStats,
    /// Nanoseconds of waiting with work queued, by [`WaitReason`], up to the last dispatch.
    pub waited_ns: [u64; 5],
    /// Requests that were split into more than one piece.
    pub split: u64,
    /// Pieces continued after a short transfer.
    pub continued: u64,
    /// Requests that ended in an error.
    pub errors: u64,
    /// Requests cancelled before they ended.
    pub cancelled: u64,
    /// Requests refused because the queue was full, or the expected delay too long.
    pub refused: u64,
    /// Pieces dispatched because a reservation was due, before the class's turn by shares or in it.
    pub reserved: u64,
    /// Pieces dispatched because they had waited as long as the class allows.
    pub aged: u64,
    /// Wake-ups of the class from idleness.
    pub activations: u64,
}

impl ClassStats {
    /// Returns the sum of both: one class in two queues.
    #[must_use]
    pub fn plus(self, other: ClassStats) -> ClassStats {
        let sum = |a: DirectionStats, b: DirectionStats| DirectionStats {
            requests: a.requests + b.requests,
            bytes: a.bytes + b.bytes,
        };
        let mut waited_ns = self.waited_ns;
        waited_ns.iter_mut().zip(other.waited_ns).for_each(|(total, more)| *total = total.saturating_add(more));

        ClassStats {
            queued: self.queued + other.queued,
            in_flight: self.in_flight + other.in_flight,
            queued_bytes: self.queued_bytes + other.queued_bytes,
            queued_fs: self.queued_fs + other.queued_fs,
            read: sum(self.read, other.read),
            write: sum(self.write, other.write),
            consumed_fs: self.consumed_fs + other.consumed_fs,
            dispatched: self.dispatched + other.dispatched,
            split: self.split + other.split,
            continued: self.continued + other.continued,
            errors: self.errors + other.errors,
            cancelled: self.cancelled + other.cancelled,
            refused: self.refused + other.refused,
            reserved: self.reserved + other.reserved,
            aged: self.aged + other.aged,
            activations: self.activations + other.activations,
            waited_ns,
            starved_ns: self.starved_ns.saturating_add(other.starved_ns),
        }
    }

    /// Returns the nanoseconds of waiting for `reason`.
    #[must_use]
    pub fn waited_for_ns(&self, reason: WaitReason) -> u64 {
        self.waited_ns[reason as usize]
    }
}

/// The reasons that can stop a whole queue.
const BLOCKING: [WaitReason; 3] = [WaitReason::Tokens, WaitReason::Depth, WaitReason::Backend];

/// Running totals of the time in which a queue could dispatch nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BlockedTime {
    total_ns: [u64; 5],
    now: Option<(WaitReason, u64)>,
    ended_ns: u64,
}

impl BlockedTime {
    /// Records that from `now_ns` on nothing can be dispatched, because of `reason`.
    pub(crate) fn block(&mut self, reason: WaitReason, now_ns: u64) {
        if self.now.is_none_or(|(old, _)| old != reason) {
            self.unblock(now_ns);
            self.now = Some((reason, now_ns));
        }
    }

    /// Records that pieces can be dispatched again.
    pub(crate) fn unblock(&mut self, now_ns: u64) {
        if let Some((reason, since_ns)) = self.now.take() {
            let total_ns = &mut self.total_ns[reason as usize];
            *total_ns = total_ns.saturating_add(now_ns.saturating_sub(since_ns));
            self.ended_ns = now_ns;
        }
    }

    /// Returns whether nothing has blocked the queue since `since_ns`.
    fn is_none_since(&self, since_ns: u64) -> bool {
        self.now.is_none() && self.ended_ns <= since_ns
    }

    pub(crate) fn reason(&self) -> Option<WaitReason> {
        self.now.map(|(reason, _)| reason)
    }

    /// Returns the totals of [`BLOCKING`] up to `now_ns`, a wait in progress included.
    #[inline]
    fn totals(&self, now_ns: u64) -> [u64; BLOCKING.len()] {
        if self.now.is_none() {
            return BLOCKING.map(|reason| self.total_ns[reason as usize]);
        }
        let so_far = |reason: WaitReason| {
            let total_ns = self.total_ns[reason as usize];
            match self.now {
                Some((of, since_ns)) if of == reason => total_ns.saturating_add(now_ns.saturating_sub(since_ns)),
                _ => total_ns,
            }
        };
        BLOCKING.map(so_far)
    }
}

/// The totals at the start of a class's wait.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WaitMark {
    since_ns: u64,
    limited_ns: u64,
    blocked_ns: [u64; BLOCKING.len()],
}

impl WaitMark {
    /// Begins a wait. `limited_ns`: how long the class and the groups above it have been parked at limits so far.
    pub(crate) fn start(blocked: &BlockedTime, limited_ns: u64, now_ns: u64) -> WaitMark {
        WaitMark { since_ns: now_ns, blocked_ns: blocked.totals(now_ns), limited_ns }
    }

    /// Ends the wait at `now_ns`, begins the next, adds the wait to `total_ns` by reason, and returns the main reason.
    /// The class's own limits count first, then the reasons that stopped the whole queue; the rest is fairness.
    #[inline]
    pub(crate) fn take(
        &mut self,
        blocked: &BlockedTime,
        limited_ns: u64,
        now_ns: u64,
        total_ns: &mut [u64; 5],
    ) -> Option<WaitReason> {
        if !blocked.is_none_since(self.since_ns) || limited_ns != self.limited_ns {
            return self.take_blocked(blocked, limited_ns, now_ns, total_ns);
        }
        // The usual case: nothing was blocked, others were served.
        let waited_ns = now_ns.saturating_sub(std::mem::replace(&mut self.since_ns, now_ns));
        let fairness_ns = &mut total_ns[WaitReason::Fairness as usize];
        *fairness_ns = fairness_ns.saturating_add(waited_ns);
        Some(WaitReason::Fairness).filter(|_| waited_ns > 0)
    }

    #[inline(never)]
    fn take_blocked(
        &mut self,
        blocked: &BlockedTime,
        limited_ns: u64,
        now_ns: u64,
        total_ns: &mut [u64; 5],
    ) -> Option<WaitReason> {
        let next = WaitMark::start(blocked, limited_ns, now_ns);
        let waited_ns = now_ns.saturating_sub(self.since_ns);

        let mut by_reason = [0_u64; 5];
        let mut rest_ns = waited_ns;
        let mut give = |reason: WaitReason, ns: u64| {
            by_reason[reason as usize] = ns.min(rest_ns);
            rest_ns -= ns.min(rest_ns);
        };
        give(WaitReason::Limit, limited_ns.saturating_sub(self.limited_ns));
        for (reason, (after_ns, before_ns)) in
            BLOCKING.into_iter().zip(next.blocked_ns.into_iter().zip(self.blocked_ns))
        {
            give(reason, after_ns.saturating_sub(before_ns));
        }
        give(WaitReason::Fairness, u64::MAX);

        *self = next;
        total_ns.iter_mut().zip(by_reason).for_each(|(total, waited)| *total = total.saturating_add(waited));
        let most = WaitReason::ALL.into_iter().max_by_key(|r| by_reason[*r as usize]);
        most.filter(|_| waited_ns > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_divided_by_what_blocked_meanwhile() {
        let mut blocked = BlockedTime::default();
        let mut mark = WaitMark::start(&blocked, 7, 100);
        let mut take = |blocked: &BlockedTime, limited_ns, now_ns| {
            let mut waited_ns = [0; 5];
            let most = mark.take(blocked, limited_ns, now_ns, &mut waited_ns);
            (waited_ns, most)
        };
        blocked.block(WaitReason::Tokens, 120);
        blocked.block(WaitReason::Tokens, 130);
        blocked.block(WaitReason::Depth, 150);
        blocked.unblock(155);
        let (waited, most) = take(&blocked, 7, 200);
        assert_eq!(waited, [65, 30, 0, 5, 0]);
        assert_eq!(most, Some(WaitReason::Fairness));

        blocked.block(WaitReason::Backend, 200);
        let (waited, most) = take(&blocked, 7, 210);
        assert_eq!(waited, [0, 0, 0, 0, 10]);
        assert_eq!(most, Some(WaitReason::Backend));
        assert_eq!(take(&blocked, 7, 210), ([0; 5], None));
        blocked.unblock(210);
        assert_eq!(take(&blocked, 10, 220).0, [7, 0, 3, 0, 0]);
        assert_eq!(take(&blocked, 10, 225), ([5, 0, 0, 0, 0], Some(WaitReason::Fairness)));
    }
}
