//! Absences: times in which a queue was not polled, and the device ran dry.
//!
//! # Why
//! A shard that computes for milliseconds, or has no CPU, dispatches nothing meanwhile. The device runs dry, and the
//! closed loop sees little work in flight and a slow disk. It needs the reason: a larger window would have kept the
//! disk busy.
//!
//! # How it works
//! A queue knows how much work was in the device when the window or tokens stopped it. If its next completion comes
//! later than the device needed for all of that work, and its driver says that completions may have been waiting for
//! most of that time ([`IoQueue::complete_late`]), then the queue was absent.
//!
//! # Limits
//! A driver that does not know how late it is reports no absence. If other queues keep the device busy, there is none.
//! The times of completions alone do not suffice: a disk that completes requests in bursts looks like an absent queue.
//!
//! # Example
//! Four reads of 100 us each are in the device, and the thread gets a CPU again after 5 ms: the absence was 5 ms long,
//! and the device was dry for 4.6 ms. Had the thread slept because nothing completed, the device would have stalled.

use super::{IoQueue, Stop};
use crate::bucket::TICKS_PER_NS;
use crate::clock::AWAY_MAX_NS;
use crate::disk::ABSENT_LEAST_NS;
use crate::stats::WaitReason;

/// The work in the device when a queue was stopped, in ticks, the queue's own part of it, and the time from which there
/// are tokens (0: the window stopped it).
#[derive(Clone, Copy, Debug)]
pub(super) struct Left {
    ticks: u64,
    own_ticks: u64,
    tokens_ns: u64,
}

impl IoQueue {
    /// Restarts the measurement of lateness and absences at `now_ns`, because this queue was empty before.
    pub(super) fn begin_wait(&mut self, now_ns: u64) {
        (self.polled_ns, self.late_ns) = (now_ns, 0);
        (self.left, self.was_full, self.due_ns) = (None, false, None);
        self.presence.polls(now_ns, None);
    }

    /// Measures how late the first poll at `now_ns` is, and rejoins the disk's other queues after an absence.
    pub(super) fn begin_poll(&mut self, now_ns: u64) {
        (self.left, self.was_full) = (None, false);
        self.late_ns = now_ns.saturating_sub(self.wakeup_ns.unwrap_or(self.polled_ns).max(self.polled_ns));
        let is_late = |due_ns: u64| now_ns.saturating_sub(due_ns.max(self.polled_ns)) > AWAY_MAX_NS;
        let is_back = self.due_ns.is_some_and(is_late);
        self.polled_ns = now_ns;
        if is_back {
            self.rejoin();
        }
        if self.late_ns >= ABSENT_LEAST_NS {
            self.presence.polls(now_ns, None);
            if self.disk.has_absent() {
                self.disk.count_absent_now(now_ns);
            }
        }
    }

    /// Gives up the device time that this queue has left unused while it was not polled.
    #[cold]
    fn rejoin(&mut self) {
        if self.shares_clocks() {
            self.lanes.iter_mut().for_each(|lane| lane.tree.rejoin());
        }
    }

    /// Records the work in the device after a poll that window or tokens have stopped.
    pub(super) fn note_left(&mut self, stopped_by: Option<Stop>) {
        let tokens_ns = match stopped_by {
            Some((WaitReason::Depth, _)) => Some(0),
            Some((WaitReason::Tokens, tokens_ns)) => tokens_ns,
            _ => None,
        };
        self.left = tokens_ns.map(|tokens_ns| Left {
            ticks: self.disk.in_flight_ticks(),
            own_ticks: self.in_flight_ticks,
            tokens_ns,
        });
    }

    /// Records whether this queue was absent until now, at a completion that may have been waiting for `late_ns`. The
    /// device needs at least `least_ns` for such a piece.
    pub(super) fn note_away(&mut self, now_ns: u64, late_ns: u64, least_ns: u64) {
        let Some(Left { ticks, own_ticks, tokens_ns }) = self.left.take() else { return };
        let away_ns = now_ns.saturating_sub(self.polled_ns);
        if late_ns < away_ns / 2 || now_ns <= tokens_ns || away_ns <= least_ns {
            return;
        }
        let others_ticks = self.disk.in_flight_ticks().saturating_sub(self.in_flight_ticks);
        let needed_ns = least_ns as f64 + ticks as f64 / TICKS_PER_NS as f64 / self.disk.present_rate();
        let could_send_ns = now_ns.saturating_sub(tokens_ns.max(self.polled_ns));
        let dry_ns = (away_ns as f64 - needed_ns).min(could_send_ns as f64);
        if others_ticks > ticks / 2 || dry_ns <= 0.0 {
            return;
        }

        // Of queues that were absent together, each reports its part.
        let part = if ticks == 0 { 1.0 } else { (own_ticks as f64 / ticks as f64).min(1.0) };
        self.unreported.dry_ns = self.unreported.dry_ns.saturating_add((dry_ns * part) as u64);
        self.unreported.longest_away_ns = self.unreported.longest_away_ns.max(away_ns);
        // Completions until the next poll count as held back by the window, which was full before.
        self.was_full = tokens_ns == 0;
    }
}

#[cfg(test)]
#[cfg(not(plimsoll_loom))]
mod tests {
    use std::sync::Arc;

    use crate::cost::{CostForm, CostModel, FourFigures};
    use crate::{Disk, DiskConfig, Dispatch, GroupId, IoQueue, Op, Outcome, QueueConfig, Rate};

    const MS: u64 = 1_000_000;
    const LEN_BYTES: u32 = 128 << 10;

    /// Returns a queue that knows the latency of its disk, of 1 GB/s, and has filled the window at 1 s; and the pieces.
    fn full_device() -> (IoQueue, Vec<Dispatch>) {
        let figures = FourFigures {
            read_iops: Rate::per_second(100_000),
            write_iops: Rate::per_second(100_000),
            read_bandwidth: Rate::per_second(1_000_000_000),
            write_bandwidth: Rate::per_second(1_000_000_000),
        };
        let model = CostModel::from_figures(&figures, CostForm::Knee, 4096, 4096);
        let config = DiskConfig { model, unloaded_latency_ns: MS, ..DiskConfig::default() };
        let mut queue = IoQueue::new(Arc::new(Disk::new(config)), QueueConfig::default());
        let class = queue.disk().add_class(GroupId::ROOT, 100).unwrap();
        for at in 0..100 {
            queue.enqueue(999 * MS, class, Op::Read, LEN_BYTES, at).unwrap();
        }
        let first = queue.poll_dispatch(999 * MS).unwrap();
        let _ = queue.complete(1000 * MS, first, Outcome::Moved(LEN_BYTES));
        let pieces: Vec<_> = std::iter::from_fn(|| queue.poll_dispatch(1000 * MS)).collect();
        assert!(pieces.len() >= 4);
        (queue, pieces)
    }

    /// Completes the pieces at `at_ns`, each at most `late_ns` late. Returns how long the device ran dry.
    fn dry_ns(at_ns: u64, late_ns: u64) -> u64 {
        let (mut queue, pieces) = full_device();
        // No report is sent, so that the figure can be read here.
        queue.reported_ns = u64::MAX;
        for piece in pieces {
            let _ = queue.complete_late(at_ns, late_ns, piece, Outcome::Moved(LEN_BYTES));
        }
        queue.unreported.dry_ns
    }

    #[test]
    fn late_for_want_of_a_look_is_an_absence() {
        // The device needs 1 ms for a piece, and at most 2 ms more for the others.
        let dry_ns = [20, 15].map(|late_ms| self::dry_ns(1020 * MS, late_ms * MS));
        assert!(dry_ns.iter().all(|ns| (17 * MS..19 * MS).contains(ns)), "{dry_ns:?}");
    }

    #[test]
    fn in_time_or_late_by_the_device_is_none() {
        // The device needs a millisecond and 131 us for each.
        assert_eq!(dry_ns(1001 * MS, MS), 0);
        assert_eq!(dry_ns(1020 * MS, 0), 0);
        assert_eq!(dry_ns(1020 * MS, MS), 0);
    }
}
