//! How long ago each entry was used, in bytes: for eviction, for ghosts, and for the curve of hits by cache size.
//!
//! # Why
//! A list in order of use would cost 8 to 16 bytes per entry, and a lock for everybody. Two bytes per entry, and sums
//! of bytes by age beside them, say nearly as much: which age to evict at, and how large a cache would have to be to
//! have this hit.
//!
//! # How it works
//! *Clock.* It advances with the bytes used (inserted or hit): one tick for 1/512 of the capacity, at least 4 KiB. A
//! block's *age* is the number of ticks since it was used last.
//!
//! *Sums.* Two [`Ring`]s, for blocks and for ghosts, hold the bytes last used in each tick: exactly for the last 1023
//! ticks (two capacities' worth of use), in groups of 128 ticks beyond. A use moves the bytes of one block from a sum
//! to the newest. All sums are atomics that every index shard shares: there is no lock and no sampling here.
//!
//! *Distance.* A cache that evicts what was unused for longest (LRU) has a hit if the bytes used since the last use of
//! the block, and the block, fit in it (R. L. Mattson et al., "Evaluation techniques for storage hierarchies", IBM
//! Systems Journal 9, 1970). That is the sum of everything from the block's tick on. These sums are computed for all
//! ticks at once when the clock advances, so that a hit reads one number; it is off by one tick's bytes at most for the
//! last 1023 ticks, and by what is left of one group's beyond.
//!
//! *Wrap.* Entries keep 16 bits of the clock. Each index shard looks through its entries once in [`CLAMP_TICKS`] ticks,
//! when it is first used after that, and sets what is older than [`OLDEST_AGE`] to that age. So that none is left out,
//! whoever advances the clock uses the shards in turn, one every [`TURN_TICKS`] ticks. All of it costs a few
//! nanoseconds per entry, once in 32 capacities' worth of use: with 10^8 entries, a pause of 1 to 2 ms of one of 256
//! shards at a time.
//!
//! # Limits
//! Blocks of one tick (1/512 of the capacity) are equally old, and so are those of one group of 128 ticks once they are
//! beyond 1023 ticks, and all beyond 32767. When threads use the same block or tick in the same nanosecond in which it
//! passes from its own sum to its group's, bytes may be counted in a neighbouring sum; never twice, and what is
//! misplaced ends, like everything, in the oldest sums that are carried on.
//!
//! # Example
//! Capacity 1 GiB: a tick is 2 MiB. A block of 8 KiB was used at tick 100; then other blocks of 300 MiB were, some of
//! them twice, with 400 MiB of uses in all: the clock shows 300, and the sum from tick 100 on is 300 MiB (and up to 2
//! MiB). The hit counts for all caches of 300 MiB and more, point 14 of the curve (15 x 20.5 MiB) and up.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, TryLockError};

use crate::stats::HitCurve;
use crate::sync::lock;

/// Uses of the whole capacity take so many ticks of the clock.
const TICKS_PER_CAPACITY: u64 = 512;

/// A tick is so many bytes at least.
const MIN_TICK_BYTES: u64 = 4096;

/// One use advances the clock by so many ticks at most, however large the block and small the cache.
const MAX_ADVANCE_TICKS: u64 = TICKS_PER_CAPACITY;

/// Ages below it have sums of their own.
const FINE_AGES: u16 = 1023;

/// Room for those: one more than ages, so that a tick's sum is empty before it is used again.
const FINE_SLOTS: u16 = 1024;

/// 2^7 = 128 ticks are a group.
const GROUP_SHIFT: u32 = 7;

/// Groups of ticks: all 16-bit ticks have one.
const GROUPS: u16 = 512;

/// Groups that are older than [`FINE_AGES`].
const OLD_GROUPS: u16 = 504;

const SLOTS: usize = (FINE_SLOTS + GROUPS) as usize;

/// Entries are not set to be older than this, in ticks.
pub(super) const OLDEST_AGE: u16 = 32_767;

/// How many ticks may pass between two looks of an index shard at the ages of its entries.
pub(super) const CLAMP_TICKS: u64 = 16_384;

/// The next shard in turn is looked at after so many ticks: all of them twice in [`CLAMP_TICKS`]. So entries are never
/// older than 32,767 + 16,384 + 8,192 ticks, and some groups are always empty.
pub(super) const TURN_TICKS: u64 = 32;

/// The oldest of the groups in [`OLD_GROUPS`], all of them older than that.
const EMPTY_GROUPS: u16 = 56;

/// Points of the curve.
const CURVE_POINTS: usize = 100;

/// So many of them make the capacity.
const POINTS_PER_CAPACITY: u64 = 50;

/// The clock starts here, so that what is older than anything is still a number.
pub(super) const FIRST_TICK: u64 = 1 << 32;

/// The 16 bits of the clock that entries keep.
pub(super) fn short(now: u64) -> u16 {
    now as u16
}

/// Which sum has the bytes of an entry.
fn slot(now: u64, tick: u16) -> usize {
    if short(now).wrapping_sub(tick) < FINE_AGES { usize::from(tick % FINE_SLOTS) } else { group_slot(tick) }
}

fn group_slot(tick: u16) -> usize {
    usize::from(FINE_SLOTS + (tick >> GROUP_SHIFT))
}

/// All sums from the newest to the oldest, each with the age of the youngest entry that it may have.
fn newest_first(now: u64) -> impl DoubleEndedIterator<Item = (usize, u16)> {
    let now = short(now);
    let fine = (0..FINE_AGES).map(move |age| (usize::from(now.wrapping_sub(age) % FINE_SLOTS), age));
    fine.chain((0..OLD_GROUPS).map(move |number| old_group(now, number)))
}

/// The same for a group, counted from the one that entries come to when they leave the sums of their own.
fn old_group(now: u16, number: u16) -> (usize, u16) {
    let newest_tick = now.wrapping_sub(FINE_AGES);
    let group = (newest_tick >> GROUP_SHIFT).wrapping_sub(number) % GROUPS;
    let youngest_tick = if number == 0 { newest_tick } else { group << GROUP_SHIFT | ((1 << GROUP_SHIFT) - 1) };
    (usize::from(FINE_SLOTS + group), now.wrapping_sub(youngest_tick))
}

/// What there is of one kind of entries.
#[derive(Debug)]
pub(super) struct Ring {
    pub(super) entries: AtomicU64,
    pub(super) bytes: AtomicU64,
    /// Bytes by tick, then by group. Signed: two threads may add and subtract in the other order.
    by_slot: Box<[AtomicI64; SLOTS]>,
}

impl Ring {
    fn new() -> Ring {
        Ring {
            entries: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            by_slot: Box::new(std::array::from_fn(|_| AtomicI64::new(0))),
        }
    }

    /// An entry of so many bytes, last used at `tick`, is there.
    pub(super) fn add(&self, now: u64, tick: u16, len_bytes: u32) {
        self.entries.fetch_add(1, Relaxed);
        self.bytes.fetch_add(len_bytes.into(), Relaxed);
        self.by_slot[slot(now, tick)].fetch_add(len_bytes.into(), Relaxed);
    }

    /// It is not there any more.
    pub(super) fn remove(&self, now: u64, tick: u16, len_bytes: u32) {
        self.entries.fetch_sub(1, Relaxed);
        self.bytes.fetch_sub(len_bytes.into(), Relaxed);
        self.by_slot[slot(now, tick)].fetch_sub(len_bytes.into(), Relaxed);
    }

    /// Its tick has changed.
    pub(super) fn renew(&self, now: u64, from_tick: u16, to_tick: u16, len_bytes: u32) {
        let (from, to) = (slot(now, from_tick), slot(now, to_tick));
        if from != to {
            self.by_slot[from].fetch_sub(len_bytes.into(), Relaxed);
            self.by_slot[to].fetch_add(len_bytes.into(), Relaxed);
        }
    }

    /// Brings the bytes of one sum to another.
    fn carry(&self, from: usize, to: usize) {
        let bytes = self.by_slot[from].swap(0, Relaxed);
        if bytes != 0 {
            self.by_slot[to].fetch_add(bytes, Relaxed);
        }
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Recency {
    /// The clock, in ticks; more than 16 bits of it.
    now: AtomicU64,
    /// Bytes used since it was advanced.
    used_bytes: AtomicU64,
    tick_bytes: AtomicU64,
    step_bytes: AtomicU64,
    ghost_budget_bytes: AtomicU64,
    /// Ghosts of this age and older are beyond the budget; more than 16 bits: none are.
    ghost_cutoff_age: AtomicU32,
    pub(super) blocks: Ring,
    pub(super) ghosts: Ring,
    /// Bytes in each slot and all newer ones, of both rings, when the clock was advanced.
    since_bytes: Box<[AtomicU64; SLOTS]>,
    /// Hits by the point of the curve that they first count at.
    hits: Box<[AtomicU64; CURVE_POINTS]>,
    /// Held while the clock is advanced or sums are computed.
    advancing: Mutex<()>,
}

impl Recency {
    pub(super) fn new(capacity_bytes: u64, ghost_budget_bytes: u64) -> Recency {
        let recency = Recency {
            now: AtomicU64::new(FIRST_TICK),
            used_bytes: AtomicU64::new(0),
            tick_bytes: AtomicU64::new(MIN_TICK_BYTES),
            step_bytes: AtomicU64::new(1),
            ghost_budget_bytes: AtomicU64::new(0),
            ghost_cutoff_age: AtomicU32::new(u32::MAX),
            blocks: Ring::new(),
            ghosts: Ring::new(),
            since_bytes: Box::new(std::array::from_fn(|_| AtomicU64::new(0))),
            hits: Box::new(std::array::from_fn(|_| AtomicU64::new(0))),
            advancing: Mutex::new(()),
        };
        recency.set_capacity(capacity_bytes, ghost_budget_bytes);
        recency
    }

    /// Bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        3 * SLOTS * size_of::<u64>() + CURVE_POINTS * size_of::<u64>()
    }

    /// Ages stay what they are, in ticks of another length.
    pub(super) fn set_capacity(&self, capacity_bytes: u64, ghost_budget_bytes: u64) {
        self.tick_bytes.store((capacity_bytes / TICKS_PER_CAPACITY).max(MIN_TICK_BYTES), Relaxed);
        self.step_bytes.store((capacity_bytes / POINTS_PER_CAPACITY).max(1), Relaxed);
        self.ghost_budget_bytes.store(ghost_budget_bytes, Relaxed);
        self.clear_curve();
        self.refresh();
    }

    pub(super) fn now(&self) -> u64 {
        self.now.load(Relaxed)
    }

    /// Advances the clock to the next moment whose 16 bits are `tick`. For an index without entries.
    pub(super) fn set_now(&self, tick: u16) {
        let _guard = lock(&self.advancing);
        self.advance(u64::from(tick.wrapping_sub(short(self.now()))));
    }

    /// So many bytes were used: advances the clock when it is time, and returns what it showed before and shows now. If
    /// another thread is just doing that, the next use will do the rest.
    pub(super) fn used(&self, len_bytes: u32) -> Option<(u64, u64)> {
        let tick_bytes = self.tick_bytes.load(Relaxed);
        if self.used_bytes.fetch_add(len_bytes.into(), Relaxed) + u64::from(len_bytes) < tick_bytes {
            return None;
        }
        let _guard = match self.advancing.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let ticks = self.used_bytes.load(Relaxed) / tick_bytes;
        self.used_bytes.fetch_sub(ticks * tick_bytes, Relaxed);
        let before = self.now();
        self.advance(ticks.min(MAX_ADVANCE_TICKS));
        Some((before, self.now()))
    }

    /// With `advancing` held.
    fn advance(&self, ticks: u64) {
        let before = self.now();
        let now = before + ticks;
        // Of the ticks that had sums of their own, those that are too old for that now, oldest first.
        for age in (0..FINE_AGES).rev().take_while(|age| u64::from(*age) + ticks >= FINE_AGES.into()) {
            let tick = short(before).wrapping_sub(age);
            for ring in [&self.blocks, &self.ghosts] {
                ring.carry(usize::from(tick % FINE_SLOTS), group_slot(tick));
            }
        }
        self.now.store(now, Relaxed);
        if before >> GROUP_SHIFT != now >> GROUP_SHIFT {
            self.carry_oldest(short(now));
        }
        self.sum_up(now);
    }

    /// No entry is so old that it belongs to the oldest groups: its shard has set it to [`OLDEST_AGE`]. What was
    /// misplaced by threads at the same time may be there; it is carried on, or it would become new.
    fn carry_oldest(&self, now: u16) {
        let (to, _) = old_group(now, (OLDEST_AGE - FINE_AGES) >> GROUP_SHIFT);
        for number in OLD_GROUPS - EMPTY_GROUPS..OLD_GROUPS {
            let (from, _) = old_group(now, number);
            self.blocks.carry(from, to);
            self.ghosts.carry(from, to);
        }
    }

    /// Computes the sums of everything since each tick, and what is beyond the budget of ghosts.
    pub(super) fn refresh(&self) {
        let _guard = lock(&self.advancing);
        self.sum_up(self.now());
    }

    fn sum_up(&self, now: u64) {
        let budget_bytes = i64::try_from(self.ghost_budget_bytes.load(Relaxed)).unwrap_or(i64::MAX);
        let (mut all_bytes, mut ghost_bytes, mut cutoff_age) = (0, 0, None);
        for (slot, age) in newest_first(now) {
            let bytes = self.ghosts.by_slot[slot].load(Relaxed);
            ghost_bytes += bytes;
            all_bytes += bytes + self.blocks.by_slot[slot].load(Relaxed);
            self.since_bytes[slot].store(u64::try_from(all_bytes).unwrap_or(0), Relaxed);
            if ghost_bytes > budget_bytes && cutoff_age.is_none() {
                cutoff_age = Some(u32::from(age));
            }
        }
        self.ghost_cutoff_age.store(cutoff_age.unwrap_or(u32::MAX), Relaxed);
    }

    /// A look-up found an entry, block or ghost: counts it for all caches that would have had it.
    pub(super) fn count_hit(&self, now: u64, tick: u16, len_bytes: u32) {
        let since_bytes = if short(now) == tick { 0 } else { self.since_bytes[slot(now, tick)].load(Relaxed) };
        let distance_bytes = since_bytes.max(len_bytes.into());
        let point = (distance_bytes - 1) / self.step_bytes.load(Relaxed);
        if let Some(hits) = usize::try_from(point).ok().and_then(|point| self.hits.get(point)) {
            hits.fetch_add(1, Relaxed);
        }
    }

    /// The curve, without the number of look-ups, which the shards count.
    pub(super) fn curve(&self, lookups: u64) -> HitCurve {
        let mut sum = 0;
        let hits = self.hits.iter().map(|hits| {
            sum += hits.load(Relaxed);
            sum
        });
        HitCurve { hits: hits.collect(), step_bytes: self.step_bytes.load(Relaxed), lookups }
    }

    pub(super) fn clear_curve(&self) {
        self.hits.iter().for_each(|hits| hits.store(0, Relaxed));
    }

    /// The largest age such that blocks of that age and older hold `bytes`; 0 if all together do not.
    pub(super) fn cutoff_age(&self, bytes: u64) -> u16 {
        if bytes == 0 {
            return u16::MAX;
        }
        let wanted_bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let mut sum_bytes = 0;
        let reached = newest_first(self.now()).rev().find(|(slot, _)| {
            sum_bytes += self.blocks.by_slot[*slot].load(Relaxed);
            sum_bytes >= wanted_bytes
        });
        reached.map_or(0, |(_, age)| age)
    }

    pub(super) fn has_ghosts(&self) -> bool {
        self.ghost_budget_bytes.load(Relaxed) > 0
    }

    /// Whether a ghost last used at `tick` is to go: it is one of the oldest, and there are too many.
    pub(super) fn is_ghost_surplus(&self, now: u64, tick: u16) -> bool {
        self.ghosts.bytes.load(Relaxed) > self.ghost_budget_bytes.load(Relaxed)
            && u32::from(short(now).wrapping_sub(tick)) >= self.ghost_cutoff_age.load(Relaxed)
    }

    /// Whether there are so many too many that inserts should not wait for the next sweep: an eighth of the budget.
    pub(super) fn is_far_over_budget(&self) -> bool {
        let budget_bytes = self.ghost_budget_bytes.load(Relaxed);
        self.ghosts.bytes.load(Relaxed) > budget_bytes + budget_bytes / 8
    }
}
