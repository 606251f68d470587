//! The token bucket of a disk, shared by the I/O queues of all shards.
//!
//! # Why
//! A disk yields one device-second a second. Every dispatch takes the request's device time out of one bucket that all
//! shards share, so together they never promise more than the disk has.
//!
//! # How it works
//! The generic cell rate algorithm (ITU-T I.371) keeps no level that must be refilled, only one number: the
//! *theoretical arrival time* (TAT), until which the tokens given out so far last. Taking `cost` moves it by `cost`; it
//! may be ahead of the clock by at most the bucket's depth. One compare-and-swap, no refill, no timer. The number
//! counts quarter nanoseconds ([`FS_PER_TICK`]): fine enough, since each queue carries the remainder itself, and it
//! wraps after 146 years.
//!
//! Some disks limit operations and bytes apart, as cloud volumes do. Their [`Buckets`] are two, and a dispatch needs
//! tokens of both: many short and a few long requests then use both limits in full.
//!
//! # Limits
//! The clock must be monotonic. Shards are served in the order of arrival; fairness is decided before.
//!
//! # Example
//! Depth 750 us, requests of 100 us each: seven pass at once, the eighth at 50 us, then one every 100 us.

use crate::sync::{AtomicU64, Ordering};
use crate::units::{Cost, FS_PER_NS};

/// Ticks in a nanosecond.
pub(crate) const TICKS_PER_NS: u64 = 4;
/// Femtoseconds in a tick.
pub(crate) const FS_PER_TICK: u64 = FS_PER_NS / TICKS_PER_NS;

/// Returns the whole ticks of a cost plus `carry_fs`, and the femtoseconds left over.
pub(crate) fn ticks_with_carry(cost: Cost, carry_fs: u64) -> (u64, u64) {
    let fs = cost.as_fs().saturating_add(carry_fs);
    (fs / FS_PER_TICK, fs % FS_PER_TICK)
}

/// Returns the whole ticks of a cost that is only compared, so that the rest does not matter.
pub(crate) fn whole_ticks(cost: Cost) -> u64 {
    ticks_with_carry(cost, 0).0
}

/// A token bucket that all shards write; see the module's documentation. Where one is written for each request, its
/// owner puts it on a cache line of its own.
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
    /// Takes `cost_ticks` if the bucket of depth `depth_ns` holds them at `now_ns`; otherwise returns when to ask
    /// again. A cost above the depth needs a full bucket.
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

    /// Returns whether [`TokenBucket::try_take`] would succeed, and if not, when to ask again.
    pub(crate) fn available(&self, now_ns: u64, cost_ticks: u64, depth_ns: u64) -> Result<(), u64> {
        let now = now_ns.saturating_mul(TICKS_PER_NS);
        let depth = depth_ns.saturating_mul(TICKS_PER_NS);
        let full = self.tat_ticks().max(now).saturating_add(cost_ticks.min(depth));
        if full <= now.saturating_add(depth) {
            return Ok(());
        }
        Err(full.saturating_sub(depth).div_ceil(TICKS_PER_NS).max(now_ns.saturating_add(1)))
    }

    /// Takes `cost_ticks` in any case. Returns the time from which they may be used: a place in the queue for tokens.
    pub(crate) fn book(&self, now_ns: u64, cost_ticks: u64, depth_ns: u64) -> u64 {
        let now = now_ns.saturating_mul(TICKS_PER_NS);
        let next = |tat: u64| Some(tat.max(now).saturating_add(cost_ticks));
        let before = self.tat_ticks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or_else(|tat| tat);
        let depth = depth_ns.saturating_mul(TICKS_PER_NS);
        let full = before.max(now).saturating_add(cost_ticks.min(depth));
        full.saturating_sub(depth).div_ceil(TICKS_PER_NS)
    }

    /// Returns the time until which the tokens given out so far last, in ticks.
    pub(crate) fn tat_ticks(&self) -> u64 {
        self.tat_ticks.load(Ordering::Relaxed)
    }

    /// Discards the tokens left over from before `ticks`.
    pub(crate) fn not_before(&self, ticks: u64) {
        self.tat_ticks.fetch_max(ticks, Ordering::Relaxed);
    }

    /// Discards `ticks` of the tokens that the bucket of depth `depth_ns` holds, or all if it holds fewer. Tokens that
    /// others take meanwhile may count as discarded.
    pub(crate) fn discard(&self, now_ns: u64, ticks: u64, depth_ns: u64) {
        let now = now_ns.saturating_mul(TICKS_PER_NS);
        let empty = now.saturating_add(depth_ns.saturating_mul(TICKS_PER_NS));
        self.not_before(self.tat_ticks().max(now).saturating_add(ticks).min(empty));
    }

    /// Makes the bucket and `until_ticks`, the state of one that it takes the place of, equal to the emptier of both.
    pub(crate) fn merge(&self, until_ticks: &mut u64) {
        self.not_before(*until_ticks);
        *until_ticks = self.tat_ticks();
    }

    /// Returns a bucket in the same state.
    pub(crate) fn copy(&self) -> TokenBucket {
        TokenBucket { tat_ticks: AtomicU64::new(self.tat_ticks()) }
    }

    /// Takes `cost_ticks` even if the bucket does not hold them; later requests wait longer. For work already in the
    /// device.
    pub(crate) fn take_into_debt(&self, now_ns: u64, cost_ticks: u64) {
        let now = now_ns.saturating_mul(TICKS_PER_NS);
        let _ = self
            .tat_ticks
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |tat| Some(tat.max(now).saturating_add(cost_ticks)));
    }

    /// Clamps the TAT to `least_ticks` to `most_ticks`, then takes `cost_ticks`. Returns the TAT from before.
    pub(crate) fn take_between(&self, least_ticks: u64, most_ticks: u64, cost_ticks: u64) -> u64 {
        let next = |tat: u64| Some(tat.min(most_ticks).max(least_ticks).saturating_add(cost_ticks));
        let before = self.tat_ticks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        before.unwrap_or_else(|tat| tat)
    }

    /// Gives back the tokens of a request that never reached the device.
    pub(crate) fn refund(&self, cost_ticks: u64) {
        let _ = self
            .tat_ticks
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |tat| Some(tat.saturating_sub(cost_ticks)));
    }
}

/// The tokens that a piece takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tokens {
    /// Of the first bucket.
    pub(crate) ticks: u64,
    /// Of the bucket of bytes; 0 if the disk has none.
    pub(crate) byte_ticks: u64,
}

/// The buckets of one direction (of both, unless the disk is duplex): one for all device time, or, if operations and
/// bytes are limited apart, one for each.
#[derive(Debug, Default)]
pub(crate) struct Buckets {
    first: TokenBucket,
    bytes: TokenBucket,
}

impl Buckets {
    /// Takes `tokens` as [`TokenBucket::try_take`] does, from both buckets or from none.
    pub(crate) fn try_take(&self, now_ns: u64, tokens: Tokens, depth_ns: u64) -> Result<(), u64> {
        self.first.try_take(now_ns, tokens.ticks, depth_ns)?;
        if tokens.byte_ticks == 0 {
            return Ok(());
        }
        let taken = self.bytes.try_take(now_ns, tokens.byte_ticks, depth_ns);
        taken.inspect_err(|_| self.first.refund(tokens.ticks))
    }

    /// Returns whether [`Buckets::try_take`] would succeed, and if not, when to ask again.
    pub(crate) fn available(&self, now_ns: u64, tokens: Tokens, depth_ns: u64) -> Result<(), u64> {
        self.first.available(now_ns, tokens.ticks, depth_ns)?;
        if tokens.byte_ticks == 0 { Ok(()) } else { self.bytes.available(now_ns, tokens.byte_ticks, depth_ns) }
    }

    /// Takes `tokens` even if the buckets do not hold them.
    pub(crate) fn take_into_debt(&self, now_ns: u64, tokens: Tokens) {
        self.first.take_into_debt(now_ns, tokens.ticks);
        if tokens.byte_ticks > 0 {
            self.bytes.take_into_debt(now_ns, tokens.byte_ticks);
        }
    }

    /// Discards tokens of `ticks` from both buckets, as far as they hold them.
    pub(crate) fn discard(&self, now_ns: u64, ticks: u64, depth_ns: u64) {
        self.first.discard(now_ns, ticks, depth_ns);
        self.bytes.discard(now_ns, ticks, depth_ns);
    }

    /// Gives back the tokens of a request that never reached the device.
    pub(crate) fn refund(&self, tokens: Tokens) {
        self.first.refund(tokens.ticks);
        if tokens.byte_ticks > 0 {
            self.bytes.refund(tokens.byte_ticks);
        }
    }

    /// Returns both buckets.
    pub(crate) fn each(&self) -> [&TokenBucket; 2] {
        [&self.first, &self.bytes]
    }

    /// Returns the time until which the tokens given out so far last in the emptier bucket, in ticks.
    pub(crate) fn tat_ticks(&self) -> u64 {
        self.first.tat_ticks().max(self.bytes.tat_ticks())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;

    #[test]
    fn tokens_of_two_buckets_are_taken_together_or_not_at_all() {
        let buckets = Buckets::default();
        let piece =
            |us: u64, byte_us: u64| Tokens { ticks: us * US * TICKS_PER_NS, byte_ticks: byte_us * US * TICKS_PER_NS };
        let (start, depth) = (1_000_000_000, 750 * US);
        // Operations are left, bytes are not: nothing is taken, and a piece of few bytes passes.
        assert_eq!(buckets.try_take(start, piece(100, 750), depth), Ok(()));
        assert_eq!(buckets.try_take(start, piece(100, 50), depth), Err(start + 50 * US));
        assert_eq!(buckets.try_take(start, piece(650, 0), depth), Ok(()));
        // Now operations are missing too, for longer than bytes.
        assert_eq!(buckets.available(start, piece(100, 50), depth), Err(start + 100 * US));
        buckets.refund(piece(650, 750));
        assert_eq!(buckets.try_take(start, piece(650, 750), depth), Ok(()));
    }

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
    fn discarded_tokens_leave_the_bucket_empty_at_most() {
        let (bucket, start, depth) = (TokenBucket::default(), 1_000_000_000, 750 * US);
        let left =
            |bucket: &TokenBucket| (start + depth).saturating_sub(bucket.tat_ticks().div_ceil(TICKS_PER_NS).max(start));
        bucket.discard(start, 250 * US * TICKS_PER_NS, depth);
        assert_eq!(left(&bucket), 500 * US);
        bucket.discard(start, 1_000 * US * TICKS_PER_NS, depth);
        assert_eq!(left(&bucket), 0);
        // One that owes tokens owes as many afterwards.
        bucket.take_into_debt(start, 100 * US * TICKS_PER_NS);
        let owing = bucket.tat_ticks();
        bucket.discard(start, 100 * US * TICKS_PER_NS, depth);
        assert_eq!(bucket.tat_ticks(), owing);
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
