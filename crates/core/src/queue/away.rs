//! Absences: times in which a queue did not look, and the device did all that was in it.
//!
//! # Why
//! A shard that computes for milliseconds, or has no CPU, sends nothing meanwhile. The device runs dry, and the closed
//! loop sees little work in flight and a slow disk. It has to know why: a larger window would have kept the disk busy.
//!
//! # How it works
//! The kernel does not say when a request was done. But a queue knows what it left in the device when the window or
//! tokens stopped it. If it sees the first completion later than the device needed for all of that, and then half of it
//! within a quarter of the time that the device needs for it, these had been done before: the queue was away.
//! A device that stalls gives its work back one by one, at its own rate.
//!
//! # Limits
//! One request alone proves nothing. If others keep the device busy meanwhile, there is no absence.
//!
//! # Example
//! Four reads of 100 us each are in the device, and the next poll comes after 5 ms. All four complete at once: away for
//! 5 ms. Had only one completed, and the second 100 us later, the device would have stalled.

use super::IoQueue;
use crate::bucket::TICKS_PER_NS;

/// Completions that prove an absence, at least.
const LEAST_COMPLETIONS: u32 = 2;

/// What a queue left in the device when it was stopped, and what came back.
#[derive(Clone, Copy, Debug)]
pub(super) enum Away {
    /// It was stopped with `ticks` in the device, of which `own_ticks` are its own. There are tokens from `tokens_ns` on.
    Left { ticks: u64, own_ticks: u64, tokens_ns: u64 },
    /// It saw the first completion at `since_ns`, late: nothing was seen for `for_ns`.
    Back { since_ns: u64, for_ns: u64, own_ticks: u64, done_ticks: u64, completions: u32, at_window: bool },
}

impl IoQueue {
    /// Takes a completion of `ticks`. Returns whether it is still open if this queue was away.
    pub(super) fn decides_away(&mut self, now_ns: u64, ticks: u64) -> bool {
        let rate = || self.disk.present_rate() * TICKS_PER_NS as f64;
        let mut away = match self.away.take() {
            None => return false,
            Some(Away::Left { ticks: left_ticks, own_ticks, tokens_ns }) => {
                let for_ns = now_ns.saturating_sub(self.polled_ns);
                let others_ticks = self.disk.in_flight_ticks().saturating_sub(self.in_flight_ticks);
                let could_be = now_ns > tokens_ns && for_ns > self.least_ns && others_ticks <= left_ticks / 2;
                if !could_be || (for_ns - self.least_ns) as f64 * rate() <= left_ticks as f64 {
                    return false;
                }
                let at_window = tokens_ns == 0;
                Away::Back { since_ns: now_ns, for_ns, own_ticks, done_ticks: 0, completions: 0, at_window }
            }
            Some(away) => away,
        };

        let Away::Back { since_ns, for_ns, own_ticks, done_ticks, completions, at_window } = &mut away else {
            return false;
        };
        *done_ticks += ticks;
        *completions += 1;
        if (now_ns - *since_ns) as f64 * rate() * 4.0 > *own_ticks as f64 {
            return false;
        }
        if *completions < LEAST_COMPLETIONS || *done_ticks * 2 <= *own_ticks {
            self.away = Some(away);
            return true;
        }

        self.unreported.away_ns += *for_ns;
        self.unreported.longest_away_ns = self.unreported.longest_away_ns.max(*for_ns);
        if *at_window {
            // What completes now was held back by the window that was full before.
            (0..self.lanes.len()).for_each(|lane| self.note_full_window(lane));
        }
        false
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

    /// Completes each piece this long after the one before, the first at `first_ns`, and returns the time away.
    fn away_ns(first_ns: u64, between_ns: u64) -> u64 {
        let (mut queue, pieces) = full_device();
        // Nothing is reported, so that it can be read here.
        queue.reported_ns = u64::MAX;
        let mut away_ns = 0;
        for (at, piece) in (0..).zip(pieces) {
            let _ = queue.complete(first_ns + at * between_ns, piece, Outcome::Moved(LEN_BYTES));
            away_ns = away_ns.max(queue.unreported.away_ns);
        }
        away_ns
    }

    #[test]
    fn all_at_once_and_late_is_an_absence() {
        assert_eq!(away_ns(1020 * MS, 0), 20 * MS);
        // A turn sees to some, and comes back soon for the rest.
        assert_eq!(away_ns(1020 * MS, 2_000), 20 * MS);
    }

    #[test]
    fn in_time_or_one_by_one_is_none() {
        // The device needs a millisecond and 131 us for each.
        assert_eq!(away_ns(1001 * MS, 0), 0);
        assert_eq!(away_ns(1020 * MS, 131_000), 0);
    }
}
