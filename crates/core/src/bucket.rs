//! The token bucket of a disk, shared by the I/O queues of all shards.
//!
//! # Why
//! A disk yields one device-second a second. Whoever dispatches takes the request's device time out of one bucket that
//! all shards share, so that together they never promise more than the disk has.
//!
//! # How it works
//! The generic cell rate algorithm (ITU-T I.371): instead of a level that somebody must refill, one number, the
//! *theoretical arrival time* (TAT), says until when the tokens already given out last. Taking `cost` moves it by
//! `cost`; it may be ahead of the clock by the bucket's depth at most. One compare-and-swap, no refill, no timer.
//! The number counts quarter nanoseconds ([`FS_PER_TICK`]): fine enough with the remainder that each queue carries
//! itself, and 146 years before it wraps.
//!
//! # Limits
//! The clock is monotonic. First come, first served between shards; fairness is decided before.
//!
//! # Example
//! Depth 750 us, requests of 100 us each: seven go at once, the eighth at 50 us, then one every 100 us.

use crate::sync::{AtomicU64, Ordering};
use crate::units::{Cost, FS_PER_NS};

/// Ticks in a nanosecond.
pub(crate) const TICKS_PER_NS: u64 = 4;
/// Femtoseconds in a tick.
pub(crate) const FS_PER_TICK: u64 = FS_PER_NS / TICKS_PER_NS;

/// Whole ticks of a cost, and the femtoseconds left over, given what was left over before.
pub(crate) fn ticks_with_carry(cost: Cost, carry_fs: u64) -> (u64, u64) {
    let fs = cost.as_fs().saturating_add(carry_fs);
    (fs / FS_PER_TICK, fs % FS_PER_TICK)
}

/// Whole ticks of a cost that is only compared, where what is left over does not matter.
pub(crate) fn whole_ticks(cost: Cost) -> u64 {
    ticks_with_carry(cost, 0).0
}

/// See the module's documentation. Every shard writes it: what holds one that is written for each request puts it on a cache line of
/// its own.
#[derive(Debug)]
pub(crate) struct TokenBucket {
    tat_ticks: AtomicU64,
}

impl Default for TokenBucket {
    fn default() -> TokenBucket {
        TokenBucket { tat_ticks: AtomicU64::new(0) }
    }
}

impl TokenBucket {
    /// Takes `cost_ticks` if the bucket of depth `depth_ns` holds them at `now_ns`; a cost above the depth needs a full
    /// bucket. Else says when to ask again.
    pub(crate) fn try_take(&self, now_ns: u64, cost_ticks: u64, depth_ns: u64) -> Result<(), u64> {
        let now = now_ns.saturating_mul(TICKS_PER_NS);
        let depth = depth_ns.saturating_mul(TICKS_PER_NS);
        let needed = cost_ticks.min(depth);
        let horizon = now.saturating_add(depth);
        let mut tat = self.tat_ticks.load(Ordering::Relaxed);
        loop {
            let start = tat.max(now);
            if start.saturating_add(needed) > horizon {
                let eligible_ticks = start.saturating_add(needed).saturating_sub(depth);
                return Err(eligible_ticks.div_ceil(TICKS_PER_NS).max(now_ns.saturating_add(1)));
            }
            let next = start.saturating_add(cost_ticks);
            match self.tat_ticks.compare_exchange_weak(tat, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(seen) => tat = seen,
            }
        }
    }

    /// Whether [`TokenBucket::try_take`] would succeed, and if not, when to ask again.
    pub(crate) fn available(&self, now_ns: u64, cost_ticks: u64, depth_ns: u64) -> Result<(), u64> {
        let now = now_ns.saturating_mul(TICKS_PER_NS);
        let depth = depth_ns.saturating_mul(TICKS_PER_NS);
        let full = self.tat_ticks().max(now).saturating_add(cost_ticks.min(depth));
        if full <= now.saturating_add(depth) {
            return Ok(());
        }
        Err(full.saturating_sub(depth).div_ceil(TICKS_PER_NS).max(now_ns.saturating_add(1)))
    }

    /// Takes `cost_ticks` in any case and says from when on they may be used: a place in the queue before the bucket.
    pub(crate) fn book(&self, now_ns: u64, cost_ticks: u64, depth_ns: u64) -> u64 {
        let now = now_ns.saturating_mul(TICKS_PER_NS);
        let next = |tat: u64| Some(tat.max(now).saturating_add(cost_ticks));
        let before = self.tat_ticks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or_else(|tat| tat);
        let depth = depth_ns.saturating_mul(TICKS_PER_NS);
        let full = before.max(now).saturating_add(cost_ticks.min(depth));
        full.saturating_sub(depth).div_ceil(TICKS_PER_NS)
    }

    /// Until when the tokens that were given out last, in ticks.
    pub(crate) fn tat_ticks(&self) -> u64 {
        self.tat_ticks.load(Ordering::Relaxed)
    }

    /// Forgets what was left over before.
    pub(crate) fn not_before(&self, ticks: u64) {
        self.tat_ticks.fetch_max(ticks, Ordering::Relaxed);
    }

    /// Another bucket that stands where this one does.
    pub(crate) fn copy(&self) -> TokenBucket {
        TokenBucket { tat_ticks: AtomicU64::new(self.tat_ticks()) }
    }

    /// Takes `cost_ticks` whatever the bucket holds; those after pay. For work that is already in the device.
    pub(crate) fn take_anyway(&self, now_ns: u64, cost_ticks: u64) {
        let now = now_ns.saturating_mul(TICKS_PER_NS);
        let _ = self
            .tat_ticks
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |tat| Some(tat.max(now).saturating_add(cost_ticks)));
    }

    /// Takes `cost_ticks` from wherever it stands, brought between `least_ticks` and `most_ticks` first. Where it stood.
    pub(crate) fn take_between(&self, least_ticks: u64, most_ticks: u64, cost_ticks: u64) -> u64 {
        let next = |tat: u64| Some(tat.min(most_ticks).max(least_ticks).saturating_add(cost_ticks));
        let before = self.tat_ticks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        before.unwrap_or_else(|tat| tat)
    }

    /// Gives back what a request took that never reached the device.
    pub(crate) fn refund(&self, cost_ticks: u64) {
        let _ = self
            .tat_ticks
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |tat| Some(tat.saturating_sub(cost_ticks)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;

    #[test]
    fn depth_is_spent_at_once_then_the_rate_holds() {
        let bucket = TokenBucket::default();
        let cost = 100 * US * TICKS_PER_NS;
        let start = 1_000_000_000;
        for _ in 0..7 {
            assert_eq!(bucket.try_take(start, cost, 750 * US), Ok(()));
        }
        assert_eq!(bucket.try_take(start, cost, 750 * US), Err(start + 50 * US));
        assert_eq!(bucket.try_take(start + 50 * US, cost, 750 * US), Ok(()));
        assert_eq!(bucket.try_take(start + 50 * US, cost, 750 * US), Err(start + 150 * US));
    }

    #[test]
    fn a_cost_above_the_depth_waits_for_a_full_bucket_and_is_paid_in_full() {
        let bucket = TokenBucket::default();
        let cost = 10_000 * US * TICKS_PER_NS;
        assert_eq!(bucket.try_take(US, cost, 750 * US), Ok(()));
        assert_eq!(bucket.try_take(US, TICKS_PER_NS, 750 * US), Err(US + 9_250 * US + 1));
    }

    #[test]
    fn fifty_years_of_idleness_give_one_depth_and_no_more() {
        let bucket = TokenBucket::default();
        let fifty_years_ns = 50 * 366 * 86_400 * 1_000_000_000;
        let cost = 100 * US * TICKS_PER_NS;
        let taken = (0..100).filter(|_| bucket.try_take(fifty_years_ns, cost, 750 * US).is_ok()).count();
        assert_eq!(taken, 7);
    }

    #[test]
    fn the_carry_loses_nothing() {
        let cost = Cost::from_fs(51_200);
        let (mut carry, mut ticks) = (0, 0);
        for _ in 0..1_000_000 {
            let (whole, rest) = ticks_with_carry(cost, carry);
            ticks += whole;
            carry = rest;
        }
        assert_eq!(ticks * FS_PER_TICK + carry, 51_200 * 1_000_000);
    }
}
