//! Quality of service of a class or group besides its shares: limits, reservation, latency target, ageing, refusal.
//!
//! # Why
//! Shares divide the disk. Some classes must never exceed a rate (a backup), some need a rate whatever the others do (a
//! commit log), some must not wait (queries), and a caller wants an early refusal if a request would be too late.
//!
//! # How it works
//! Limits and reservations are generic-cell-rate tags (see `bucket`), one set for the whole disk, so they hold over all
//! shards together. A limit is tested at the class and at every group above it. A class at its limit books the next
//! free place and is *parked* until then, while its siblings continue; queues that wait for one limit take turns. A
//! reservation is due while its tag is not after the present. The class is then served first, smallest tag first, as in
//! mClock's constraint phase (Gulati et al. 2010). Any service advances the tag, so a class gets the larger of its
//! reservation and its share. That of a group is for whichever of its classes ask; in each queue, shares decide which.
//!
//! When a limit changes, the part of its burst already used stays used, in requests or bytes.
//!
//! # Limits
//! A poll up to 1 ms late loses nothing of a limit; of a longer delay, the part beyond that is lost. If several queues
//! wait for one limit, each may be late for the place that it has booked, so up to one request per queue is sent at
//! once, not one in all; in the long run the rate is exact. Requests of a class keep their order: a write that waits
//! for a write limit holds back the reads of its class behind it. Of a group only limits and reservation count, of the
//! root only limits: latency target and longest waits are ignored here, and refused by `plimsoll`'s registry of classes
//! ([`Qos::for_classes_only`]).
//!
//! # Example
//! ```
//! use plimsoll_core::{Disk, DiskConfig, GroupId, Limits, Qos, Rate};
//! let disk = Disk::new(DiskConfig::default());
//! let backup = disk.add_class(GroupId::ROOT, 10)?;
//! let limits = Limits { bandwidth: Rate::per_second(100_000_000), ..Limits::default() };
//! disk.set_qos(backup, Qos { limits, ..Qos::default() })?;
//! # Ok::<(), plimsoll_core::QueueError>(())
//! ```

use crate::bucket::{TICKS_PER_NS, TokenBucket};
use crate::request::Direction;
use crate::sync::{AtomicU64, Ordering};
use crate::units::Rate;

/// Upper limits of a class or group. All unlimited by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests per second, reads and writes together.
    pub iops: Rate,
    /// Reads per second.
    pub read_iops: Rate,
    /// Writes (and flushes, discards, allocations) per second.
    pub write_iops: Rate,
    /// Bytes per second, reads and writes together.
    pub bandwidth: Rate,
    /// Bytes read per second.
    pub read_bandwidth: Rate,
    /// Bytes written per second.
    pub write_bandwidth: Rate,
    /// Burst after a pause, as time at the limit's rate, in nanoseconds. 0: one request.
    ///
    /// A queue that waits for the limit and is polled late dispatches the amount that it has missed at once: at most 1
    /// ms at the limit's rate, in addition to the burst.
    pub burst_ns: u64,
}

impl Limits {
    /// Returns the six rates, in the order of the tags.
    fn rates(&self) -> [Rate; 6] {
        [self.iops, self.bandwidth, self.read_iops, self.read_bandwidth, self.write_iops, self.write_bandwidth]
    }

    /// Returns the factor by which the wait for a booked place gets longer when the limits become `new`. `None` if
    /// `new` limits a rate that was unlimited, of which nothing has been booked.
    pub(crate) fn stretch(&self, new: &Limits) -> Option<f64> {
        let mut most = 0.0_f64;
        for (old, new) in self.rates().into_iter().zip(new.rates()) {
            match (old.get(), new.get()) {
                (Some(old), Some(new)) => most = most.max(old as f64 / new as f64),
                (None, Some(_)) => return None,
                (_, None) => {}
            }
        }
        Some(most)
    }
}

impl Default for Limits {
    fn default() -> Limits {
        let none = Rate::Unlimited;
        Limits {
            iops: none,
            read_iops: none,
            write_iops: none,
            bandwidth: none,
            read_bandwidth: none,
            write_bandwidth: none,
            burst_ns: 0,
        }
    }
}

/// Rates that a class, or the classes of a group together, get whenever they have work. 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reservation {
    /// Requests per second.
    pub iops: u64,
    /// Bytes per second.
    pub bandwidth: u64,
}

/// A latency, from enqueue to the end of the request, below which a part of the requests must stay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyTarget {
    /// The latency in nanoseconds.
    pub latency_ns: u64,
    /// The part of the requests that must stay below it, above 0 and below 1: 0.99 for a p99.
    pub quantile: f64,
}

/// Quality of service of a class or group besides its shares; see the module's documentation. The default asks for
/// nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Qos {
    /// Upper limits.
    pub limits: Limits,
    /// Rates that the class gets whenever it has work; of a group, its classes together.
    pub reservation: Reservation,
    /// The latency target. If the class misses it, classes with looser targets yield.
    pub latency_target: Option<LatencyTarget>,
    /// Ageing: a request that has waited this long, in nanoseconds, is served next, whatever its shares.
    pub max_wait_ns: Option<u64>,
    /// Back-pressure: a request expected to wait longer than this, in nanoseconds, is refused, so that the caller can
    /// shed load.
    pub max_delay_ns: Option<u64>,
}

impl Qos {
    /// Returns the settings that it has and that a group cannot have, in words, or `None` if there are none: they are
    /// about single requests, which only classes have.
    #[must_use]
    pub fn for_classes_only(&self) -> Option<String> {
        let settings = [
            (self.latency_target.is_some(), "a latency target"),
            (self.max_wait_ns.is_some(), "a longest wait"),
            (self.max_delay_ns.is_some(), "a longest delay"),
        ];
        let given: Vec<&str> = settings.into_iter().filter(|(is_given, _)| *is_given).map(|(_, name)| name).collect();
        (!given.is_empty()).then(|| given.join(", "))
    }

    pub(crate) fn has_limits(&self) -> bool {
        self.limits != Limits { burst_ns: self.limits.burst_ns, ..Limits::default() }
    }

    pub(crate) fn has_reservation(&self) -> bool {
        self.reservation != Reservation::default()
    }

    /// Returns whether its classes may be served before their turn.
    pub(crate) fn may_be_urgent(&self) -> bool {
        self.has_reservation() || self.max_wait_ns.is_some()
    }

    pub(crate) fn needs_tags(&self) -> bool {
        self.has_limits() || self.has_reservation()
    }
}

/// Lag of a reservation's tag, 100 ms, beyond which the time of reservations slips back, by at most the amount served.
/// A lag beyond twice this is forgotten.
const DEBT_TICKS: u64 = 100_000_000 * TICKS_PER_NS;

/// The tags of one node, shared by all queues of its disk. One request writes several of them, so they share cache
/// lines, and nothing else is on those.
#[repr(align(64))]
#[derive(Debug, Default)]
pub(crate) struct Tags {
    /// iops, bandwidth; of both directions, reads, writes.
    limits: [TokenBucket; LIMITS],
    /// iops, bandwidth.
    reservations: [TokenBucket; 2],
    inherited: Option<Box<Inherited>>,
}

/// Use of the limits before they changed, taken over at the first use afterwards, because the change itself is not
/// given the time.
#[derive(Debug)]
struct Inherited {
    /// The old tags, each with the factor (old rate over new) by which to stretch the time that it is ahead.
    limits: [(u64, f64); 6],
    /// 1 once it has been taken over.
    is_done: AtomicU64,
}

/// One piece on its way to the device, as limits count it: a request counts once, with its first piece.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Amount {
    pub(crate) direction: Direction,
    pub(crate) requests: u32,
    pub(crate) bytes: u32,
}

impl Amount {
    /// Uses up `credit` for this amount. Returns the part that it does not cover.
    pub(crate) fn beyond(self, credit: &mut Credit) -> Amount {
        let requests = self.requests.min(credit.requests);
        let bytes = self.bytes.min(credit.bytes);
        credit.requests -= requests;
        credit.bytes -= bytes;
        Amount { requests: self.requests - requests, bytes: self.bytes - bytes, ..self }
    }

    pub(crate) fn is_nothing(self) -> bool {
        self.requests == 0 && self.bytes == 0
    }
}

/// The amount that a queue has booked at the limits of a node in one direction and not used yet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Credit {
    requests: u32,
    bytes: u32,
}

impl Credit {
    pub(crate) fn add(&mut self, amount: Amount) {
        self.requests = self.requests.saturating_add(amount.requests);
        self.bytes = self.bytes.saturating_add(amount.bytes);
    }

    pub(crate) fn is_nothing(self) -> bool {
        self.requests == 0 && self.bytes == 0
    }
}

/// The queued work of a class in one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waiting {
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
}

impl Waiting {
    pub(crate) fn add(&mut self, requests: u32, bytes: u32) {
        self.requests += u64::from(requests);
        self.bytes += u64::from(bytes);
    }

    pub(crate) fn take(&mut self, requests: u32, bytes: u32) {
        self.requests -= u64::from(requests);
        self.bytes -= u64::from(bytes);
    }

    /// Returns the part that `credit` does not cover.
    pub(crate) fn beyond(self, credit: Credit) -> Waiting {
        Waiting {
            requests: self.requests.saturating_sub(u64::from(credit.requests)),
            bytes: self.bytes.saturating_sub(u64::from(credit.bytes)),
        }
    }

    fn is_nothing(self) -> bool {
        self.requests == 0 && self.bytes == 0
    }
}

/// Number of a class's limits: operations and bytes, each of reads, of writes, and of both.
pub(crate) const LIMITS: usize = 6;

impl Tags {
    /// Returns the buckets of the limits.
    pub(crate) fn limits(&self) -> &[TokenBucket; LIMITS] {
        &self.limits
    }

    fn limits_for(&self, limits: &Limits, amount: Amount) -> impl Iterator<Item = (&TokenBucket, u64)> {
        let (iops, bandwidth, at) = match amount.direction {
            Direction::Read => (limits.read_iops, limits.read_bandwidth, 2),
            Direction::Write => (limits.write_iops, limits.write_bandwidth, 4),
        };
        [
            (&self.limits[0], ticks_at(limits.iops, u64::from(amount.requests))),
            (&self.limits[1], ticks_at(limits.bandwidth, u64::from(amount.bytes))),
            (&self.limits[at], ticks_at(iops, u64::from(amount.requests))),
            (&self.limits[at + 1], ticks_at(bandwidth, u64::from(amount.bytes))),
        ]
        .into_iter()
        .filter(|(_, ticks)| *ticks > 0)
    }

    /// If the limits do not let `amount` pass now, takes the next free place for it and returns its time. So queues
    /// that wait for one limit take turns.
    pub(crate) fn book(&self, limits: &Limits, amount: Amount, now_ns: u64) -> Option<u64> {
        self.limited_until(limits, amount, now_ns)?;
        let places = self.limits_for(limits, amount).map(|(bucket, ticks)| bucket.book(now_ns, ticks, limits.burst_ns));
        places.max()
    }

    /// Returns when the limits let `amount` pass, or `None` if now. Takes nothing.
    pub(crate) fn limited_until(&self, limits: &Limits, amount: Amount, now_ns: u64) -> Option<u64> {
        self.take_over(now_ns);
        let until = |(bucket, ticks): (&TokenBucket, u64)| bucket.available(now_ns, ticks, limits.burst_ns).err();
        self.limits_for(limits, amount).filter_map(until).max()
    }

    /// Takes `amount` from the limits as of `from_ns`, so that the amount allowed since then is not lost.
    pub(crate) fn charge_limits(&self, limits: &Limits, amount: Amount, from_ns: u64) {
        self.limits_for(limits, amount).for_each(|(bucket, ticks)| bucket.take_into_debt(from_ns, ticks));
    }

    /// Returns how long a request that comes now would wait for the limits: the time that they need for all work
    /// `waiting`, by direction, at `part` of their rates. Counts the limits of the request's `direction`, and of those
    /// in which work waits.
    pub(crate) fn delay_ns(
        &self,
        limits: &Limits,
        waiting: [Waiting; 2],
        direction: Option<Direction>,
        part: f64,
        now_ns: u64,
    ) -> u64 {
        self.take_over(now_ns);
        let [reads, writes] = waiting;
        let both = Waiting { requests: reads.requests + writes.requests, bytes: reads.bytes + writes.bytes };
        let concerns = |of: Direction| direction == Some(of) || !waiting[of as usize].is_nothing();
        let counted = [(both, true), (reads, concerns(Direction::Read)), (writes, concerns(Direction::Write))];
        let amounts = counted.into_iter().flat_map(|(of, counts)| [(of.requests, counts), (of.bytes, counts)]);

        let now = now_ns.saturating_mul(TICKS_PER_NS);
        let delay_ticks = |((bucket, rate), (amount, counts)): ((&TokenBucket, Rate), (u64, bool))| {
            let is_limited = counts && rate != Rate::Unlimited;
            let used = bucket.tat_ticks().saturating_sub(now) as f64;
            let allowed = limits.burst_ns as f64 * TICKS_PER_NS as f64;
            is_limited.then(|| used + ticks_at(rate, amount) as f64 / part - allowed)
        };
        let tags = self.limits.iter().zip(limits.rates());
        let longest = tags.zip(amounts).filter_map(delay_ticks).fold(0.0, f64::max);
        (longest / TICKS_PER_NS as f64) as u64
    }

    fn reserved(&self, reservation: &Reservation, amount: Amount) -> impl Iterator<Item = (&TokenBucket, u64)> {
        let rate = |per_s: u64| if per_s == 0 { Rate::Unlimited } else { Rate::per_second(per_s) };
        [
            (&self.reservations[0], ticks_at(rate(reservation.iops), u64::from(amount.requests))),
            (&self.reservations[1], ticks_at(rate(reservation.bandwidth), u64::from(amount.bytes))),
        ]
        .into_iter()
        .filter(|(_, ticks)| *ticks > 0)
    }

    fn reservation_tag(&self, reservation: &Reservation) -> Option<u64> {
        let iops = (reservation.iops > 0).then(|| self.reservations[0].tat_ticks());
        let bandwidth = (reservation.bandwidth > 0).then(|| self.reservations[1].tat_ticks());
        [iops, bandwidth].into_iter().flatten().min()
    }

    /// Returns the smallest tag, if it is due.
    pub(crate) fn reservation_due(&self, reservation: &Reservation, time: ReservedTime<'_>) -> Option<u64> {
        self.reservation_tag(reservation).filter(|tag| *tag <= time.ticks())
    }

    /// Returns when the next reservation is due.
    pub(crate) fn reservation_next_ns(&self, reservation: &Reservation, time: ReservedTime<'_>) -> Option<u64> {
        self.reservation_tag(reservation).map(|tag| tag.saturating_add(time.slip_ticks()).div_ceil(TICKS_PER_NS))
    }

    /// Takes `amount` from the reservation. Service beyond the reservation is not held against the class later, so a
    /// tag is at most one request ahead; of a group one more if `is_inner`: a reservation inside of the group has been
    /// served, which is part of the group's even if that was not due.
    pub(crate) fn charge_reservations(
        &self,
        reservation: &Reservation,
        amount: Amount,
        time: ReservedTime<'_>,
        is_inner: bool,
        may_slip: bool,
    ) {
        let now = time.ticks();
        for (bucket, ticks) in self.reserved(reservation, amount) {
            let most = if is_inner { now.saturating_add(ticks) } else { now };
            let before = bucket.take_between(now.saturating_sub(2 * DEBT_TICKS), most, ticks);
            let debt = now.saturating_sub(before).saturating_sub(DEBT_TICKS);
            // A class held back by its own limits, or by those of its groups, proves nothing about the disk.
            if may_slip && debt > 0 {
                time.slip.fetch_add(debt.min(ticks), Ordering::Relaxed);
            }
        }
    }

    /// Restarts the reservations of a class that has work again: idle time earns it nothing.
    pub(crate) fn begin_reservations(&self, time: ReservedTime<'_>) {
        self.reservations.iter().for_each(|bucket| bucket.not_before(time.ticks()));
    }

    /// Returns tags for `new` limits. Use of the `old` ones still counts, in requests or bytes; reservations continue.
    pub(crate) fn renewed(&self, old: &Limits, new: &Limits) -> Tags {
        let (old, new) = (old.rates(), new.rates());
        let pending = self.inherited.as_ref().filter(|inherited| inherited.is_done.load(Ordering::Acquire) == 0);
        let limits = std::array::from_fn(|at| {
            let (tag_ticks, stretched) =
                pending.map_or_else(|| (self.limits[at].tat_ticks(), 1.0), |inherited| inherited.limits[at]);
            // An unlimited rate has no use to carry over.
            let stretch = match (old[at].get(), new[at].get()) {
                (Some(old), Some(new)) => old as f64 / new as f64,
                _ => 0.0,
            };
            (tag_ticks, stretched * stretch)
        });
        Tags {
            limits: Default::default(),
            reservations: self.reservations.each_ref().map(TokenBucket::copy),
            inherited: Some(Box::new(Inherited { limits, is_done: AtomicU64::new(0) })),
        }
    }

    /// Takes over the use of the limits from before the last change, once. Two queues that race set the same value.
    pub(crate) fn take_over(&self, now_ns: u64) {
        let Some(inherited) = &self.inherited else { return };
        if inherited.is_done.load(Ordering::Acquire) == 1 {
            return;
        }

        let now = now_ns.saturating_mul(TICKS_PER_NS);
        for (bucket, (tag_ticks, stretch)) in self.limits.iter().zip(inherited.limits) {
            let ahead = tag_ticks.saturating_sub(now) as f64 * stretch;
            bucket.not_before(now.saturating_add(ahead as u64));
        }
        inherited.is_done.store(1, Ordering::Release);
    }
}

/// The time by which reservations are due. If all together exceed the disk, it falls behind the clock: their tags keep
/// their distances, and so their proportions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReservedTime<'a> {
    pub(crate) now_ns: u64,
    pub(crate) slip: &'a AtomicU64,
}

impl ReservedTime<'_> {
    fn slip_ticks(self) -> u64 {
        self.slip.load(Ordering::Relaxed)
    }

    fn ticks(self) -> u64 {
        self.now_ns.saturating_mul(TICKS_PER_NS).saturating_sub(self.slip_ticks())
    }
}

/// Returns the ticks that `count` units take at `rate`; 0 if unlimited.
fn ticks_at(rate: Rate, count: u64) -> u64 {
    match rate {
        Rate::Unlimited => 0,
        Rate::PerSecond(per_s) => {
            let ticks = u128::from(count) * 1_000_000_000 * u128::from(TICKS_PER_NS);
            u64::try_from(ticks.div_ceil(u128::from(per_s.get()))).unwrap_or(u64::MAX)
        }
    }
}
