//! Current state of a run, for a display on another thread.
//!
//! **Why.** Users abort a long run that shows nothing. A display must not slow the run.
//!
//! **How.** Shards publish nothing until a reader has asked. From then on each shard writes down the state of its jobs,
//! at most every 100 ms; if a reader holds the lock, it tries again a millisecond later. Latencies are those since the
//! shard last published: the difference of two states of the histogram that the run keeps anyway.
//!
//! **Limits.** Counts cover the measured window: zero in the warm-up. Queue lengths are those of the job's class, which
//! several jobs may share, and zero if the queue is on another shard.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_load::Instruments;
//! // They are attached to no run.
//! assert!(Instruments::default().live().is_empty());
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};

use plimsoll::core::Histogram;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveJob {
    pub name: String,
    /// Requests that completed in the measured window so far.
    pub requests: u64,
    pub bytes: u64,
    /// Requests that failed or came back short so far.
    pub errors: u64,
    /// Waiting requests of the job's class.
    pub in_queue: u64,
    /// Pieces of the job's class in the device.
    pub in_device: u64,
    /// Median latency of the last interval (about 100 ms), in nanoseconds; 0 if nothing completed.
    pub latency_p50_ns: u64,
    /// 99th percentile of those latencies, in nanoseconds.
    pub latency_p99_ns: u64,
}

/// Non-empty buckets of a histogram: (highest value in nanoseconds, count).
pub(super) type Buckets = Vec<(u64, u32)>;

#[derive(Clone, Debug, Default)]
pub(super) struct LiveSlot {
    pub(super) job: LiveJob,
    pub(super) latency_sum_ns: u64,
    pub(super) recent: Buckets,
}

#[derive(Clone, Debug, Default)]
pub(super) struct LiveShard {
    /// Time that the shard has measured, in nanoseconds.
    pub(super) counted_ns: u64,
    pub(super) slots: Vec<LiveSlot>,
}

/// Sums over all jobs of one shard so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Totals {
    pub(super) counted_ns: u64,
    pub(super) requests: u64,
    pub(super) bytes: u64,
    pub(super) latency_sum_ns: u64,
}

/// The place that shards publish to.
#[derive(Debug, Default)]
pub(super) struct Board {
    is_wanted: AtomicBool,
    shards: Mutex<Vec<LiveShard>>,
}

impl Board {
    /// Tells the shards to publish from now on.
    pub(super) fn want(&self) {
        self.is_wanted.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    /// Begins a run: drops the state that an earlier run published.
    pub(super) fn clear(&self, shards: u16) {
        let mut all = self.shards.lock().unwrap_or_else(PoisonError::into_inner);
        all.clear();
        all.resize(usize::from(shards), LiveShard::default());
    }

    /// Publishes the result of `make` for shard `shard`. Returns `false` if a reader holds the lock.
    pub(super) fn try_publish(&self, shard: u16, make: impl FnOnce() -> LiveShard) -> bool {
        let mut all = match self.shards.try_lock() {
            Ok(all) => all,
            Err(TryLockError::Poisoned(all)) => all.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        if let Some(place) = all.get_mut(usize::from(shard)) {
            *place = make();
        }
        true
    }

    /// Returns all jobs summed over the shards, in the order of the plan.
    pub(super) fn jobs(&self) -> Vec<LiveJob> {
        let all = self.shards.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut jobs: Vec<(LiveJob, Buckets)> = Vec::new();
        for slot in all.into_iter().flat_map(|shard| shard.slots) {
            match jobs.iter_mut().find(|(job, _)| job.name == slot.job.name) {
                Some((job, recent)) => {
                    job.requests += slot.job.requests;
                    job.bytes += slot.job.bytes;
                    job.errors += slot.job.errors;
                    job.in_queue += slot.job.in_queue;
                    job.in_device += slot.job.in_device;
                    recent.extend(slot.recent);
                }
                None => jobs.push((slot.job, slot.recent)),
            }
        }

        let finish = |(mut job, mut recent): (LiveJob, Buckets)| {
            recent.sort_unstable();
            job.latency_p50_ns = percentile_ns(&recent, 50.0);
            job.latency_p99_ns = percentile_ns(&recent, 99.0);
            job
        };
        jobs.into_iter().map(finish).collect()
    }

    /// Returns the sums of each shard. Shards publish at different moments, so each has its own measured time.
    pub(super) fn totals(&self) -> Vec<Totals> {
        let all = self.shards.lock().unwrap_or_else(PoisonError::into_inner);
        let of_shard = |shard: &LiveShard| {
            let mut totals = Totals { counted_ns: shard.counted_ns, ..Totals::default() };
            for slot in &shard.slots {
                totals.requests += slot.job.requests;
                totals.bytes += slot.job.bytes;
                totals.latency_sum_ns = totals.latency_sum_ns.saturating_add(slot.latency_sum_ns);
            }
            totals
        };
        all.iter().map(of_shard).collect()
    }
}

/// Returns the counts of `histogram` since `before`, and sets `before` to the current counts.
pub(super) fn since(before: &mut Buckets, histogram: &Histogram) -> Buckets {
    let now: Buckets = histogram.iter().collect();
    let mut old = before.iter().copied().peekable();
    let mut recent = Buckets::new();
    for &(upper_ns, count) in &now {
        // Counts never fall, so every old bucket is still present.
        let known = old.next_if(|(at_ns, _)| *at_ns == upper_ns).map_or(0, |(_, known)| known);
        if count > known {
            recent.push((upper_ns, count - known));
        }
    }
    *before = now;
    recent
}

/// Returns the value that `percent` per cent do not exceed, or 0 without values. `sorted` may repeat a value.
fn percentile_ns(sorted: &[(u64, u32)], percent: f64) -> u64 {
    let total: u64 = sorted.iter().map(|(_, count)| u64::from(*count)).sum();
    let rank = ((percent / 100.0 * total as f64).ceil() as u64).max(1);
    let mut seen = 0;
    let reaches = |(_, count): &&(u64, u32)| {
        seen += u64::from(*count);
        seen >= rank
    };
    sorted.iter().find(reaches).map_or(0, |(upper_ns, _)| *upper_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_latencies_are_those_since_the_last_look() {
        let mut histogram = Histogram::new();
        let mut before = Buckets::new();
        for (values, p50, p99) in [(vec![10, 20, 30], 20, 30), (vec![], 0, 0), (vec![20, 40, 40], 40, 40)] {
            values.iter().for_each(|ns| histogram.record(*ns));
            let recent = since(&mut before, &histogram);
            assert_eq!((percentile_ns(&recent, 50.0), percentile_ns(&recent, 99.0)), (p50, p99), "{values:?}");
        }
    }

    #[test]
    fn shards_add_up_by_name() {
        let board = Board::default();
        board.clear(2);
        let slot = |name: &str, requests, recent| LiveSlot {
            job: LiveJob { name: name.to_owned(), requests, in_device: 1, ..LiveJob::default() },
            latency_sum_ns: 5,
            recent,
        };
        let shards = [vec![slot("a", 3, vec![(9, 3)]), slot("b", 1, vec![])], vec![slot("a", 4, vec![(5, 4)])]];
        for (shard, slots) in shards.into_iter().enumerate() {
            assert!(board.try_publish(shard as u16, || LiveShard { counted_ns: 7 + shard as u64, slots }));
        }
        let jobs = board.jobs();
        let seen: Vec<_> = jobs.iter().map(|j| (j.name.as_str(), j.requests, j.in_device, j.latency_p50_ns)).collect();
        assert_eq!(seen, [("a", 7, 2, 5), ("b", 1, 1, 0)]);
        assert_eq!(jobs[0].latency_p99_ns, 9);
        let totals = |counted_ns, requests, latency_sum_ns| Totals { counted_ns, requests, bytes: 0, latency_sum_ns };
        assert_eq!(board.totals(), [totals(7, 4, 10), totals(8, 4, 5)]);
    }
}
