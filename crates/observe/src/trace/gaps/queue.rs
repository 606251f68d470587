//! One I/O queue, event by event: when it stood still with work, and what stood in the way.
//!
//! **Why.** Only the order of events shows whether a wait was the disk's, the scheduler's or the program's.
//!
//! **How.** A standstill begins when a request enters an empty queue, or with a dispatch that leaves others waiting. It
//! ends with the next dispatch.
//!
//! **Limits.** Pieces whose queueing is not in the trace begin no standstill.
//!
//! **Example.** Queued at 0, blocked by depth at 1, back at 90, sent at 92: depth 89, nothing known 3, the gap 2.

use std::ops::Range;

use plimsoll::core::WaitReason;

use super::{NOTHING, WAYS};

/// Time in which a queue had work and sent nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Standstill {
    pub(super) from_ns: u64,
    pub(super) until_ns: u64,
    /// Time from the last event that could have let the queue send to the dispatch.
    pub(super) gap_ns: u64,
    pub(super) parts_ns: [u64; WAYS],
    /// Time after the queue's planned retry.
    pub(super) overdue_ns: u64,
}

impl Standstill {
    pub(super) fn length_ns(&self) -> u64 {
        self.until_ns - self.from_ns
    }

    /// Returns what stood in the way for the longest part.
    pub(super) fn longest_way(&self) -> usize {
        let longest = self.parts_ns.iter().enumerate().max_by_key(|(_, part_ns)| **part_ns);
        longest.map_or(NOTHING, |(way, _)| way)
    }
}

/// The reason that a queue gave for sending nothing.
#[derive(Clone, Copy, Debug)]
struct Blocked {
    reason: WaitReason,
    since_ns: u64,
    until_ns: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: u64,
    still_since_ns: Option<u64>,
    back_ns: Option<u64>,
    blocked: Option<Blocked>,
    /// Since when the queue has no work.
    empty_since_ns: u64,
    /// Time without work so far.
    empty_ns: u64,
    pub(super) first_ns: u64,
    pub(super) dispatches: u64,
    pub(super) gap_max_ns: u64,
    gap_sum_ns: u64,
    gaps: u64,
}

impl Queue {
    pub(super) fn new(time_ns: u64) -> Queue {
        Queue { empty_since_ns: time_ns, first_ns: time_ns, ..Queue::default() }
    }

    /// Adds a piece. Returns the time without work that this ends.
    pub(super) fn queued(&mut self, time_ns: u64) -> Range<u64> {
        let mut empty = time_ns..time_ns;
        if self.waiting == 0 {
            empty.start = self.empty_since_ns.min(time_ns);
            self.empty_ns += empty.end - empty.start;
            self.still_since_ns = Some(time_ns);
        }
        self.waiting += 1;
        empty
    }

    pub(super) fn back(&mut self, time_ns: u64) {
        self.back_ns = Some(time_ns);
    }

    pub(super) fn blocked(&mut self, time_ns: u64, reason: WaitReason, until_ns: Option<u64>) {
        self.blocked = Some(Blocked { reason, since_ns: time_ns, until_ns });
    }

    /// Sends a piece. Returns the standstill that this ends, if the queue is known to have had work.
    pub(super) fn out(&mut self, time_ns: u64, was_queued: bool, reason: Option<WaitReason>) -> Option<Standstill> {
        self.dispatches += 1;
        let still =
            self.still_since_ns.filter(|_| was_queued).map(|since_ns| self.standstill(since_ns, time_ns, reason));
        if let Some(still) = &still {
            self.gap_max_ns = self.gap_max_ns.max(still.gap_ns);
            self.gap_sum_ns = self.gap_sum_ns.saturating_add(still.gap_ns);
            self.gaps += 1;
        }

        let had_work = self.waiting > 0;
        self.waiting -= u64::from(was_queued && had_work);
        self.still_since_ns = Some(time_ns).filter(|_| self.waiting > 0);
        if had_work && self.waiting == 0 {
            self.empty_since_ns = time_ns;
        }

        self.blocked = None;
        self.back_ns = None;
        still
    }

    /// Removes a piece whose dispatch time is not known; no standstill ends.
    pub(super) fn gone(&mut self, time_ns: u64) {
        if self.waiting == 1 {
            self.still_since_ns = None;
            self.empty_since_ns = time_ns;
        }
        self.waiting = self.waiting.saturating_sub(1);
    }

    /// Adds work that was queued at `since_ns` and waits at the end of the trace. Returns the time without work that
    /// this ends.
    pub(super) fn waits_at_end(&mut self, since_ns: u64) -> Range<u64> {
        let since_ns = since_ns.max(self.empty_since_ns);
        self.first_ns = self.first_ns.min(since_ns);
        self.queued(since_ns)
    }

    pub(super) fn gap_mean_ns(&self) -> f64 {
        if self.gaps == 0 { 0.0 } else { self.gap_sum_ns as f64 / self.gaps as f64 }
    }

    /// Returns the time without work in a trace from `begin_ns` to `end_ns`.
    pub(super) fn empty_of_ns(&self, begin_ns: u64, end_ns: u64) -> u64 {
        let ends = self.empty_ends(begin_ns, end_ns);
        self.empty_ns + ends.into_iter().map(|range| range.end.saturating_sub(range.start)).sum::<u64>()
    }

    /// Returns the time without work before the queue's first event, and that after its last.
    pub(super) fn empty_ends(&self, begin_ns: u64, end_ns: u64) -> [Range<u64>; 2] {
        let tail_ns = if self.waiting == 0 { self.empty_since_ns..end_ns } else { end_ns..end_ns };
        [begin_ns..self.first_ns, tail_ns]
    }

    /// Returns the standstill at the end of the trace, if work waits there.
    pub(super) fn stands_at_end(&self, end_ns: u64) -> Option<Standstill> {
        self.still_since_ns.map(|since_ns| self.standstill(since_ns, end_ns.max(since_ns), None))
    }

    fn standstill(&self, from_ns: u64, until_ns: u64, reason: Option<WaitReason>) -> Standstill {
        let back_ns = self.back_ns.filter(|back_ns| *back_ns > from_ns);
        let (mut parts_ns, mut overdue_ns, mut could_ns) = ([0; WAYS], 0, back_ns);
        let mut add = |way: usize, part_ns: u64| {
            if let Some(sum_ns) = parts_ns.get_mut(way) {
                *sum_ns += part_ns;
            }
        };

        match self.blocked {
            Some(Blocked { reason, since_ns, until_ns: look_ns }) => {
                let since_ns = since_ns.clamp(from_ns, until_ns);
                let ends_with_room = matches!(reason, WaitReason::Depth | WaitReason::Backend);
                let end_ns = back_ns.filter(|_| ends_with_room).map_or(until_ns, |back_ns| back_ns.max(since_ns));
                add(NOTHING, (since_ns - from_ns) + (until_ns - end_ns.min(until_ns)));
                add(reason as usize, end_ns.min(until_ns) - since_ns);
                // A piece that comes back makes room but brings no tokens.
                could_ns = back_ns.filter(|_| ends_with_room);
                let look_ns = look_ns.filter(|_| !ends_with_room).unwrap_or(until_ns);
                overdue_ns = until_ns - look_ns.clamp(since_ns, until_ns);
            }
            // The reason of the piece's class. Another class's turn is no reason to send nothing.
            None => match reason.filter(|reason| *reason != WaitReason::Fairness) {
                Some(reason) => add(reason as usize, until_ns - from_ns),
                None => add(NOTHING, until_ns - from_ns),
            },
        }

        let gap_ns = until_ns - could_ns.unwrap_or(from_ns).min(until_ns);
        Standstill { from_ns, until_ns, gap_ns, parts_ns, overdue_ns }
    }
}
