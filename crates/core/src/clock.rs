//! Shared virtual time: how classes keep their shares on the whole disk, whichever shards they run on, without a lock.
//!
//! # Why
//! Each shard orders its own classes. Yet a class with 1000 shares on shard 0 must get five times what one with 200
//! gets on shard 1, a class on many shards has its shares once, and all shards of one class are equal. So the clocks
//! belong to the disk.
//!
//! # How it works
//! A node of the class tree has a *clock* F: device time received, divided by shares. Its parent has the weighted
//! *mean* V of the clocks of its active children, and the sum W of their shares. Serving a cost c moves F by c/w and V
//! by c/W: a few additions. A node is **eligible** while F <= V. V is a mean, so some node always is. A node that joins
//! or leaves moves V such that V remains the mean. Inside a class the same holds once more: each queue (shard) with
//! work of the class is a child with one share, whose clock only that queue reads.
//!
//! Joins and leaves are decided by compare-and-swap on one word (queues with work, and the shares counted in W), so W
//! is the sum of the counted shares even after races. Races and changes of shares can shift V; it is corrected a
//! hundred times a second (`Classes::mend_means`). If a queue sees room in the device, a clock that does not move, and
//! no other queue waiting for room (`Disk::claim`), it serves its classes before their turn for a while (overtime). V
//! is not moved forward for that, or it would no longer be the mean. The clock at which a child was served in overtime
//! is an *edge*: the children of other queues may follow up to it, so that those who are there keep their shares. While
//! it is ahead of V, a child that lags behind the edge by more than [`AWAY_MAX_NS`] of its own device time is *absent*,
//! and is brought up to that much behind those who are there (`Classes::mend_means`): or V, where new children begin,
//! would stay back with it. Only a queue itself can move its clock in a class: there new queues begin at the edge.
//!
//! # Limits
//! Clocks are 64-bit and wrap: units of 1/16 fs per share, compared by difference, which is meaningful up to 576 s of
//! device time of a class with one share. A node that returns further ahead than is possible is placed at the mean.
//!
//! # Example
//! A (1000 shares) and B (200) are at 0, V = 0, W = 1200. A is served 120 us: F(A) = 0.12, V = 0.1 (us per share), so A
//! is not eligible and B is. B is served 120 us: F(B) = 0.6, V = 0.2, so A is eligible again, and for four more
//! requests.

use std::sync::Arc;

use crate::sync::{AtomicU64, Ordering::Relaxed};
use crate::units::Cost;

/// Units of a clock in a femtosecond.
const UNITS_PER_FS: f64 = 16.0;

/// Most by which the lead of a clock that returns may exceed twice its lead at leaving, as device time of one share. If
/// others leave, the mean falls to the nodes that are behind, possibly a class of one share.
const AHEAD_SLACK_FS: f64 = crate::units::FS_PER_S as f64;

/// Most device time that a child gets back of what it left unused while its queue was not polled, in nanoseconds. A
/// shard that computes or has no CPU for milliseconds keeps its share; one that hangs for seconds would have the disk
/// for itself as long afterwards.
pub(crate) const AWAY_MAX_NS: u64 = 100_000_000;

/// Least lag behind the mean of an absent child. A present child of many shares may be far behind the edge, where one
/// of few shares was served once, but the mean is close to it.
const AWAY_LEAST_NS: u64 = AWAY_MAX_NS / 16;

/// Lead over the mean, 1 us of one share, that does not count: means are rounded, and all of several equal clocks could
/// be ahead.
const SLACK_UNITS: u64 = 16_000_000_000;

/// Returns whether a child with `shares` at clock `own` may be served while the mean is `mean`.
pub(crate) fn is_eligible(own: u64, mean: u64, shares: u32) -> bool {
    !is_before(mean.wrapping_add(SLACK_UNITS / u64::from(shares.max(1))), own)
}

/// Returns whether clock `a` is behind clock `b`.
pub(crate) fn is_before(a: u64, b: u64) -> bool {
    (a.wrapping_sub(b) as i64) < 0
}

/// Returns the device time by which a node with `shares` at clock `earlier` is behind clock `later`; zero if it is
/// ahead.
pub(crate) fn between(earlier: u64, later: u64, shares: u32) -> Cost {
    let fs = later.wrapping_sub(earlier) as i64 as f64 / UNITS_PER_FS * f64::from(shares);
    Cost::from_fs(fs.max(0.0) as u64)
}

/// Returns the device time that a group of weight `weight` must be served until its mean moves from `earlier` to
/// `later`; zero if it is there already.
pub(crate) fn distance(earlier: u64, later: u64, weight: u64) -> Cost {
    between(earlier, later, u32::try_from(weight).unwrap_or(u32::MAX))
}

/// One node of the class tree as all queues see it. On a cache line of its own, because every queue that serves the
/// class writes it. The `Arc` around it puts its counts on the line before, which no request touches: so two clocks are
/// 128 bytes apart, as prefetchers that fetch lines in pairs require.
#[repr(align(64))]
#[derive(Debug)]
pub(crate) struct Clock {
    /// Shares of the node.
    shares: AtomicU64,
    /// High half: queues in which the node has work. Low half: its shares as counted in the parent's weight.
    active: AtomicU64,
    /// F, in the parent's time.
    own: AtomicU64,
    /// V of the children. In a class: the mean of its queues.
    mean: AtomicU64,
    /// W: sum of the shares of the active children. Unused in a class: each of its queues counts 1.
    weight: AtomicU64,
    /// How far the clock was ahead of the parent's mean when it left. Bounds its lead on return, in case the clocks
    /// have wrapped.
    lead: AtomicU64,
    /// The furthest clock at which a child was served in overtime: others may follow up to it before their turn.
    edge: AtomicU64,
}

/// The clocks of a node, one per lane.
pub(crate) type Clocks = [Clock; 2];

/// Returns the clocks of a node with `shares`.
pub(crate) fn new_clocks(shares: u32) -> Arc<Clocks> {
    Arc::new([Clock::new(shares), Clock::new(shares)])
}

/// Effect of a change of membership on the level above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edge {
    /// None: other queues have work of the node as before.
    None,
    /// The first queue joined or the last left: the node joins or leaves its parent, with `shares`.
    Parent { shares: u32 },
}

impl Clock {
    pub(crate) fn new(shares: u32) -> Clock {
        let [active, own, mean, weight, lead, edge] = [(); 6].map(|()| AtomicU64::new(0));
        Clock { shares: AtomicU64::new(u64::from(shares)), active, own, mean, weight, lead, edge }
    }

    pub(crate) fn set_shares(&self, shares: u32) {
        self.shares.store(u64::from(shares), Relaxed);
    }

    pub(crate) fn shares(&self) -> u32 {
        self.shares.load(Relaxed) as u32
    }

    /// Returns the number of queues that have work of the node.
    pub(crate) fn queues(&self) -> u32 {
        (self.active.load(Relaxed) >> 32) as u32
    }

    /// Returns the shares counted in the parent's weight while the node is active.
    pub(crate) fn counted_shares(&self) -> u32 {
        self.active.load(Relaxed) as u32
    }

    pub(crate) fn own(&self) -> u64 {
        self.own.load(Relaxed)
    }

    pub(crate) fn mean(&self) -> u64 {
        self.mean.load(Relaxed)
    }

    /// Returns whether a child at `own` may follow another that was served in overtime.
    pub(crate) fn may_follow(&self, own: u64) -> bool {
        !is_before(self.edge.load(Relaxed), own)
    }

    /// Records that a child was served at `own` in overtime.
    pub(crate) fn push_edge(&self, own: u64) {
        let seen = self.edge.load(Relaxed);
        if is_before(seen, own) {
            // If another queue has moved it meanwhile, one of the two counts.
            let _ = self.edge.compare_exchange(seen, own, Relaxed, Relaxed);
        }
    }

    /// Records that a queue of this class at `local` is served, by its shares or in overtime. If it is served in its
    /// turn, those ahead are back, and none may follow.
    pub(crate) fn note_queue_served(&self, local: u64, in_overtime: bool) {
        let mean = self.mean();
        if in_overtime {
            self.push_edge(local);
        } else if is_before(mean, self.edge.load(Relaxed)) && is_eligible(local, mean, 1) {
            self.edge.store(mean, Relaxed);
        }
    }

    /// Returns the clock of the children that are there: the mean, or the edge if it is ahead.
    fn front(&self) -> u64 {
        let (mean, edge) = (self.mean(), self.edge.load(Relaxed));
        if is_before(mean, edge) { edge } else { mean }
    }

    /// Returns whether the queues of the active `child` seem to be away: others are served before their turn, and it
    /// lags behind the furthest of them by more than [`AWAY_MAX_NS`]. The lag behind the mean alone does not tell,
    /// because others that are away hold the mean back.
    pub(crate) fn lacks(&self, child: &Clock) -> bool {
        let (mean, edge, own) = (self.mean(), self.edge.load(Relaxed), child.own());
        let behind = |clock| between(own, clock, child.counted_shares());
        self.queues() > 1
            && is_before(mean, edge)
            && behind(edge) > Cost::from_ns(AWAY_MAX_NS)
            && behind(mean) > Cost::from_ns(AWAY_LEAST_NS)
    }

    /// Moves this clock forward to [`AWAY_MAX_NS`] behind `to`, unless it is there already.
    pub(crate) fn bring_up(&self, to: u64) {
        let per_share = 1.0 / f64::from(self.counted_shares().max(1));
        let least = to.wrapping_sub(units(Cost::from_ns(AWAY_MAX_NS), per_share));
        let own = self.own();
        if is_before(own, least) {
            self.own.fetch_add(least.wrapping_sub(own), Relaxed);
        }
    }

    /// Keeps the edge from falling so far behind the mean that it would seem to be ahead.
    pub(crate) fn mend_edge(&self) {
        self.push_edge(self.mean());
    }

    /// Returns the mean after the children have been served `cost`.
    pub(crate) fn mean_after(&self, cost: Cost) -> u64 {
        self.mean().wrapping_add((cost.as_fs() as f64 * UNITS_PER_FS / self.weight() as f64) as u64)
    }

    pub(crate) fn weight(&self) -> u64 {
        positive(self.weight.load(Relaxed))
    }

    /// Counts one more queue with work of this node.
    pub(crate) fn add_queue(&self) -> Edge {
        let mut seen = self.active.load(Relaxed);
        loop {
            let queues = seen >> 32;
            let shares = self.shares();
            let counted = if queues == 0 { u64::from(shares) } else { seen & 0xffff_ffff };
            let next = (queues + 1) << 32 | counted;
            match self.active.compare_exchange_weak(seen, next, Relaxed, Relaxed) {
                Ok(_) if queues == 0 => return Edge::Parent { shares },
                Ok(_) => return Edge::None,
                Err(now) => seen = now,
            }
        }
    }

    /// Counts one queue less with work of this node.
    pub(crate) fn remove_queue(&self) -> Edge {
        let before = self.active.fetch_sub(1 << 32, Relaxed);
        debug_assert!(before >> 32 > 0, "left more often than joined");
        if before >> 32 == 1 { Edge::Parent { shares: before as u32 } } else { Edge::None }
    }

    /// Updates the counted shares after a change. Returns by how much the parent's weight must change.
    pub(crate) fn recount(&self) -> i64 {
        let mut seen = self.active.load(Relaxed);
        loop {
            let shares = self.shares();
            if seen >> 32 == 0 || seen as u32 == shares {
                return 0;
            }
            let next = seen >> 32 << 32 | u64::from(shares);
            match self.active.compare_exchange_weak(seen, next, Relaxed, Relaxed) {
                Ok(_) => return i64::from(shares) - (seen & 0xffff_ffff) as i64,
                Err(now) => seen = now,
            }
        }
    }

    pub(crate) fn change_weight(&self, by: i64) {
        self.weight.fetch_add(by as u64, Relaxed);
    }

    /// Adds `child` to this group with `shares` and a credit of at most `credit` of device time.
    pub(crate) fn join(&self, child: &Clock, shares: u32, credit: Cost) {
        let others = positive(self.weight.fetch_add(u64::from(shares), Relaxed));
        let mean = self.mean();
        let old = child.own();
        let new = joined(old, mean, others, shares, credit, child.lead.load(Relaxed));
        child.own.fetch_add(new.wrapping_sub(old), Relaxed);
        if others == 0 {
            self.edge.store(mean, Relaxed);
        } else {
            let part = f64::from(shares) / (others + u64::from(shares)) as f64;
            self.move_mean(new.wrapping_sub(mean), part);
        }
    }

    /// Removes `child` from this group.
    pub(crate) fn leave(&self, child: &Clock, shares: u32) {
        let left = positive(self.weight.fetch_sub(u64::from(shares), Relaxed).wrapping_sub(u64::from(shares)));
        if left > 0 {
            self.move_mean(self.mean().wrapping_sub(child.own()), f64::from(shares) / left as f64);
        }
        child.lead.store(lead(child.own(), self.mean()), Relaxed);
    }

    /// Adds a queue whose clock stands at `local` to this class; the caller has counted it already. Returns its new
    /// clock.
    pub(crate) fn join_queue(&self, local: u64, lead_at_leaving: u64) -> u64 {
        let others = u64::from(self.queues().saturating_sub(1));
        let mean = self.mean();
        let front = if others <= 1 {
            // The edge is of queues that have left.
            self.edge.store(mean, Relaxed);
            mean
        } else {
            // No other queue can bring up the clock of one that is away: the mean may be far behind those that are
            // there.
            self.front()
        };
        let new = joined(local, front, others, 1, Cost::ZERO, lead_at_leaving);
        if others > 0 {
            self.move_mean(new.wrapping_sub(mean), 1.0 / (others + 1) as f64);
        }
        new
    }

    /// Removes a queue whose clock stands at `local` from this class. Returns how far it was ahead.
    pub(crate) fn leave_queue(&self, local: u64) -> u64 {
        let left = self.queues();
        if left > 0 {
            self.move_mean(self.mean().wrapping_sub(local), 1.0 / f64::from(left));
        }
        lead(local, self.front())
    }

    fn move_mean(&self, difference: u64, part: f64) {
        let by = (difference as i64 as f64 * part) as i64;
        if by != 0 {
            self.mean.fetch_add(by as u64, Relaxed);
        }
    }

    /// Moves the child's own clock after it was served `cost`; `per_share` is 1 / its shares. `alone`: see [`add`].
    pub(crate) fn serve(&self, cost: Cost, per_share: f64, alone: bool) {
        add(&self.own, units(cost, per_share), alone);
    }

    /// Moves the group's mean after one of its children was served `cost`. `carry` keeps the fraction of a unit.
    pub(crate) fn advance(&self, cost: Cost, carry: &mut f64, alone: bool) {
        let weight = self.weight().max(1) as f64;
        add(&self.mean, whole_units(cost, weight, carry), alone);
    }

    /// Moves the clock of `child` and this mean as if the child had joined, been served `cost` and left, while no other
    /// child and no other queue of the disk has work. If a queue begins at this very moment, its addition can be lost:
    /// see [`add`].
    pub(crate) fn serve_only(&self, child: &Clock, cost: Cost, per_share: f64, carry: &mut f64) {
        let mean = self.mean();
        let own = mean.wrapping_add(units(cost, per_share));
        let weight = f64::from(child.shares().max(1));
        let after = mean.wrapping_add(whole_units(cost, weight, carry));
        child.own.store(own, Relaxed);
        child.lead.store(lead(own, after), Relaxed);
        self.mean.store(after, Relaxed);
    }

    /// Moves the class's mean after one of its queues was served `cost`.
    pub(crate) fn advance_class(&self, cost: Cost, carry: &mut f64) {
        let queues = f64::from(self.queues().max(1));
        add(&self.mean, whole_units(cost, queues, carry), false);
    }

    /// Corrects the mean by `shift`, the distance from it to the true mean of the children. Clocks that move meanwhile
    /// cause an error of at most their own movement.
    pub(crate) fn mend_mean(&self, shift: i64) {
        if shift != 0 {
            self.mean.fetch_add(shift as u64, Relaxed);
        }
    }

    /// Returns the device time by which a queue of this class lags behind the others.
    pub(crate) fn lag_of_queue(&self, local: u64) -> Cost {
        between(local, self.mean(), 1)
    }
}

/// Returns `cost` over `weight` in whole units; keeps the rest in `carry`.
fn whole_units(cost: Cost, weight: f64, carry: &mut f64) -> u64 {
    let exact = cost.as_fs() as f64 * UNITS_PER_FS / weight + *carry;
    let whole = exact as i64;
    *carry = exact - whole as f64;
    whole as u64
}

/// Moves a clock. `alone`: no other queue of the disk has work, so no other moves it and a plain store will do, at a
/// third of the price. If one begins at this very moment, its addition can be lost: one request's worth, and the mean
/// is soon corrected.
fn add(clock: &AtomicU64, units: u64, alone: bool) {
    if alone {
        clock.store(clock.load(Relaxed).wrapping_add(units), Relaxed);
    } else {
        clock.fetch_add(units, Relaxed);
    }
}

/// Returns a weight, at least 0. It can be negative for a moment, if shares change while their class joins on another
/// shard.
fn positive(weight: u64) -> u64 {
    (weight as i64).max(0) as u64
}

/// Returns the units that `cost` adds to a clock of 1/`per_share` shares. A cost adds at least one: a clock that stood
/// still would be served for ever.
pub(crate) fn units(cost: Cost, per_share: f64) -> u64 {
    let units = (cost.as_fs() as f64 * UNITS_PER_FS * per_share + 0.5) as u64;
    units.max(u64::from(!cost.is_zero()))
}

/// Returns how far a clock at `own` is ahead of `mean`.
fn lead(own: u64, mean: u64) -> u64 {
    (own.wrapping_sub(mean) as i64).max(0) as u64
}

/// Returns the position, after joining, of a clock that stood at `old` and was `lead` ahead when it left. The other
/// children of the group have weight `others` and mean `mean`.
fn joined(old: u64, mean: u64, others: u64, shares: u32, credit: Cost, lead: u64) -> u64 {
    if others == 0 {
        return mean;
    }
    let own = f64::from(shares.max(1));
    let credit_units = credit.as_fs() as f64 * UNITS_PER_FS / own;
    let ahead = old.wrapping_sub(mean) as i64 as f64;
    if ahead < -credit_units {
        mean.wrapping_sub(credit_units as u64)
    } else if ahead > 2.0 * lead as f64 + AHEAD_SLACK_FS * UNITS_PER_FS {
        // Except for joins and leaves the mean only grows, so a clock cannot return much further ahead: the clocks have
        // wrapped.
        mean
    } else {
        old
    }
}

#[cfg(all(test, not(plimsoll_loom)))]
mod tests {
    use super::*;

    /// Regression: a class of 700 shares leaves, then all others but one of one share that is far behind, and the mean
    /// falls to that one. The class's lead is still true; it once returned with nothing to make up for.
    #[test]
    fn a_clock_is_believed_where_the_mean_has_fallen_to_a_light_class() {
        let group = Clock::new(1);
        let [light, busy, heavy] = [1, 100, 700].map(Clock::new);
        let ms = |ms: u64| Cost::from_ns(ms * 1_000_000);
        for child in [&light, &busy, &heavy] {
            group.join(child, child.shares(), Cost::ZERO);
        }
        busy.serve(ms(200), 1.0 / 100.0, false);
        heavy.serve(ms(1400), 1.0 / 700.0, false);
        group.mean.store(units(ms(1600), 1.0 / 801.0), Relaxed);
        group.leave(&heavy, 700);
        let ahead = heavy.own();
        group.leave(&busy, 100);

        group.join(&heavy, 700, Cost::ZERO);
        assert_eq!(heavy.own(), ahead, "the mean was {} when it came back", group.mean());
    }
}
