//! The tokens of a disk: how many a piece takes, from which bucket, and how many a queue that polls late gets back.
//!
//! # Why
//! Together the queues may dispatch one device-second a second, at the disk's present rate and in its present mix of
//! reads and writes.
//!
//! # How it works
//! The model's cost of a piece is divided by the capacity of the present mix and by the capacity scale of the closed
//! loop. It is taken from the bucket of the queue's disk group, or of another that is more than half full. A bucket
//! that overflows while a queue is late loses tokens, and gives them back to that queue ([`Disk::lost_tokens_ns`]). A
//! bucket is as deep as the latency goal, or 50 ms if operations and bytes are limited apart. Such a disk may allow
//! only shorter bursts and then stall; the tokens of a stall are discarded ([`Disk::discard_tokens`]).
//!
//! # Limits
//! Concurrent updates of the mix may lose one another: it is an estimate.
//!
//! # Example
//! A read of 100 us on a disk at half the rate of its model takes 200 us from the bucket.

use super::Disk;
use crate::bucket::{Buckets, TICKS_PER_NS, TokenBucket, Tokens, whole_ticks};
use crate::qos::LIMITS;
use crate::request::{Direction, Op};
use crate::sync::Ordering;
use crate::units::Cost;

/// The dispatched device time over which the share of writes is smoothed: 20 ms.
const MIX_MEMORY_FS: f64 = 20e-3 * crate::units::FS_PER_S as f64;

/// Least depth of the buckets of a disk that limits operations and bytes apart. At any moment at least one of the two
/// limits is not used in full; its unused part is used when the load changes, within tens of milliseconds. The window
/// bounds the work that waits in the device meanwhile.
const LIMITS_APART_BUCKET_NS: u64 = 50_000_000;

/// Longest time of a piece in the device that is no stall, in multiples of the bound. On a duplex disk the work in the
/// device may exceed the bound by half.
const STALL_BOUNDS: u64 = 2;

/// Returns when a queue in time gets the tokens that a queue with `lost_ns` of lost tokens gets at `retry_ns`.
fn retry_in_time_ns(now_ns: u64, lost_ns: u64, retry_ns: u64) -> u64 {
    retry_ns.saturating_add(lost_ns).max(now_ns.saturating_add(1))
}

impl Disk {
    /// Takes `tokens` from the buckets of `lane` in disk group `group`, or from another group's that are more than half
    /// full. Returns the number of the buckets, or when to ask again. `late_ns`: see [`Disk::lost_tokens_ns`].
    /// `overdraft_ticks` returns how much deeper the bucket is for a class that lags; called only if its tokens do not
    /// suffice.
    pub(crate) fn take_tokens(
        &self,
        now_ns: u64,
        lane: usize,
        group: u16,
        tokens: Tokens,
        late_ns: u64,
        overdraft_ticks: impl FnOnce() -> u64,
    ) -> Result<usize, u64> {
        // As if the queue had polled `lost_ns` ago, with a bucket that is as much deeper.
        let lost_ns = self.lost_tokens_ns(lane, late_ns, tokens.ticks.max(tokens.byte_ticks));
        let depth_ns = self.bucket_ns();

        let at = self.buckets_of(group, lane);
        let take = |more_ns: u64| {
            let depth_ns = depth_ns.saturating_add(lost_ns).saturating_add(more_ns);
            self.buckets(at).try_take(now_ns.saturating_sub(lost_ns), tokens, depth_ns)
        };

        match take(0).or_else(|_| take(overdraft_ticks() / TICKS_PER_NS)) {
            Ok(()) => Ok(at),
            Err(retry_ns) => {
                let mut retry_ns = retry_in_time_ns(now_ns, lost_ns, retry_ns);
                for other in self.other_buckets(at) {
                    match self.buckets(other).try_take(now_ns, tokens, depth_ns / 2) {
                        Ok(()) => return Ok(other),
                        Err(lends_ns) => retry_ns = retry_ns.min(lends_ns),
                    }
                }
                Err(retry_ns)
            }
        }
    }

    /// Returns the depth of the token buckets, in nanoseconds of device time: the most that the disk gives out at once
    /// after a pause. The effective latency goal, or 50 ms if that is more and operations and bytes are limited apart.
    #[must_use]
    pub fn bucket_ns(&self) -> u64 {
        let goal_ns = self.effective_goal_ns();
        if self.config.model.has_limits_apart() { goal_ns.max(LIMITS_APART_BUCKET_NS) } else { goal_ns }
    }

    /// Merges the state of all token buckets with `until`, that of a disk with the same classes, whose place this one
    /// takes: each bucket and its entry become equal to the emptier of both. So a process that goes on where another
    /// has ended does not begin with full buckets. The entries are the disk's buckets, then those of the limits of each
    /// group and class, in the order in which these were added: the time until which the tokens given out so far last,
    /// in quarter nanoseconds on the clock of the queues; 0 for a full bucket. Entries that `until` lacks are left out.
    pub fn merge_tokens(&self, until: &mut [u64]) {
        let mut entries = until.iter_mut();
        let mut merge = |bucket: &TokenBucket| {
            if let Some(entry) = entries.next() {
                bucket.merge(entry);
            }
        };
        (0..2 * self.groups).flat_map(|at| self.buckets(at).each()).for_each(&mut merge);
        // A class without limits has no buckets, but may have had some.
        let full: [TokenBucket; LIMITS] = Default::default();
        self.classes().read(|rows| {
            let limits = rows.iter().flat_map(|row| row.tags.as_ref().map_or(&full, |tags| tags.limits()));
            limits.for_each(merge);
        });
    }

    /// Discards the tokens of a stall, if a disk that limits operations and bytes apart has held a piece with tokens
    /// from the buckets `at` for longer than the work in it takes: for at least `device_ns`. With those tokens the next
    /// burst would exceed the disk's limit again, and so on. Returns whether there was a stall.
    pub(crate) fn discard_tokens(&self, now_ns: u64, at: usize, device_ns: u64) -> bool {
        let stood_ns = device_ns.saturating_sub(STALL_BOUNDS * self.bound_ns());
        if stood_ns == 0 || !self.config.model.has_limits_apart() {
            return false;
        }
        self.buckets(at).discard(now_ns, stood_ns.saturating_mul(TICKS_PER_NS), self.bucket_ns());
        true
    }

    pub(crate) fn buckets(&self, at: usize) -> &Buckets {
        self.flow.buckets.get(at).unwrap_or_else(|| &self.more_buckets[at - self.flow.buckets.len()].0)
    }

    /// Returns whether the buckets of `lane` in disk group `group` hold tokens for requests of `ticks` of device time,
    /// and if not, when to ask again.
    pub(super) fn tokens_available(
        &self,
        now_ns: u64,
        lane: usize,
        group: u16,
        ticks: u64,
        late_ns: u64,
    ) -> Result<(), u64> {
        // Of two limits the requests may need only one in full: which is not known here, so this asks for both.
        let ticks = self.token_ticks(lane, ticks);
        let byte_ticks = if self.config.model.has_limits_apart() { ticks } else { 0 };
        let lost_ns = self.lost_tokens_ns(lane, late_ns, ticks);
        let depth_ns = self.bucket_ns().saturating_add(lost_ns);
        let (at, tokens) = (self.buckets_of(group, lane), Tokens { ticks, byte_ticks });
        let own = self.buckets(at).available(now_ns.saturating_sub(lost_ns), tokens, depth_ns);
        own.or_else(|retry_ns| {
            let mut retry_ns = retry_in_time_ns(now_ns, lost_ns, retry_ns);
            for other in self.other_buckets(at) {
                match self.buckets(other).available(now_ns, tokens, self.bucket_ns() / 2) {
                    Ok(()) => return Ok(()),
                    Err(lends_ns) => retry_ns = retry_ns.min(lends_ns),
                }
            }
            Err(retry_ns)
        })
    }

    /// Returns the numbers of the other groups' buckets for the direction of the buckets `at`.
    fn other_buckets(&self, at: usize) -> impl Iterator<Item = usize> {
        let groups = self.groups;
        (1..groups).map(move |turn| (at / 2 + turn) % groups * 2 + at % 2)
    }

    /// Returns the number of the buckets of `lane` in disk group `group`.
    fn buckets_of(&self, group: u16, lane: usize) -> usize {
        // Most disks have one group, and a division takes as long as the rest of this.
        let group = if self.groups == 1 { 0 } else { usize::from(group) % self.groups };
        group * 2 + lane
    }

    /// Returns the time whose tokens a queue gets back that polls `late_ns` after its wake-up, because a full bucket
    /// lost them meanwhile: at most a window, and 0 without the closed loop, where the model is a limit. The bucket had
    /// `ticks` at the wake-up, unless other queues have taken them, and has lost nothing until it overflows.
    fn lost_tokens_ns(&self, lane: usize, late_ns: u64, ticks: u64) -> u64 {
        let had_ns = if self.has_several_queues() { 0 } else { ticks / TICKS_PER_NS };
        let is_in_time = late_ns == 0 || late_ns.saturating_add(had_ns) <= self.bucket_ns();
        if is_in_time || !self.config.control.enabled {
            return 0;
        }
        late_ns.min((self.window_ns() as f64 / self.token_scale(lane)) as u64)
    }

    /// Returns the tokens of a piece that takes `cost_ticks` of device time in the present mix. If operations and bytes
    /// are limited apart, the lesser of its two parts takes less.
    pub(crate) fn tokens_of(&self, lane: usize, op: Op, len_bytes: u32, cost_ticks: u64) -> Tokens {
        let ticks = self.token_ticks(lane, cost_ticks);
        if !self.config.model.has_limits_apart() {
            return Tokens { ticks, byte_ticks: 0 };
        }
        let [operation, bytes] = self.config.model.parts(op, len_bytes);
        let lesser = self.token_ticks(lane, whole_ticks(self.cost_in_mix(operation.min(bytes))));
        if operation < bytes {
            Tokens { ticks: lesser, byte_ticks: ticks }
        } else {
            Tokens { ticks, byte_ticks: lesser }
        }
    }

    /// Returns the tokens that a cost takes from a bucket: more if the disk is slower than its model, and a multiple if
    /// groups divide the rate.
    fn token_ticks(&self, lane: usize, cost_ticks: u64) -> u64 {
        let ticks = cost_ticks.saturating_mul(self.groups as u64);
        let scale = self.token_scale(lane);
        if scale == 1.0 { ticks } else { (ticks as f64 / scale) as u64 }
    }

    /// Returns the device time that the disk serves in a second now, in seconds: its capacity scale, in the present
    /// mix.
    pub(crate) fn present_rate(&self) -> f64 {
        self.capacity_scale() * self.mix_capacity()
    }

    /// Returns the device time of `cost` in the present mix.
    pub(crate) fn cost_in_mix(&self, cost: Cost) -> Cost {
        if !self.has_mix {
            return cost;
        }
        Cost::from_fs((cost.as_fs() as f64 / self.mix_capacity()) as u64)
    }

    fn mix_capacity(&self) -> f64 {
        if self.has_mix { self.config.mix.capacity(self.write_share()) } else { 1.0 }
    }

    fn write_share(&self) -> f64 {
        f64::from_bits(self.write_share_bits.0.load(Ordering::Relaxed))
    }

    /// Adds a dispatched piece to the mix. Concurrent updates may lose one another: the mix is an estimate.
    pub(crate) fn note_mix(&self, direction: Direction, cost: Cost) {
        if !self.has_mix || cost.is_zero() {
            return;
        }
        let fs = cost.as_fs() as f64;
        let step = fs / (MIX_MEMORY_FS + fs);
        let target = if direction == Direction::Write { 1.0 } else { 0.0 };
        let old = self.write_share();
        self.write_share_bits.0.store((old + (target - old) * step).to_bits(), Ordering::Relaxed);
    }
}
