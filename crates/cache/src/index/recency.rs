//! How long ago each entry was used, in bytes: for eviction, for ghosts, and for the curve of hits by cache size.
//!
//! # Why
//! A list in order of use would cost 8 to 16 bytes per entry, and one lock for all. Two bytes per entry, and sums of
//! bytes by age, answer nearly the same questions: at which age to evict, and how large a cache would have had this
//! hit.
//!
//! # How it works
//! *Bytes* are those that a block takes on its disk: whole sectors. By the bytes of their data, a full cache of blocks
//! of 100 bytes in sectors of 4096 would look as if it were 2 % full, and have 41 times as many ghosts as blocks.
//!
//! *Clock.* It advances with the bytes used (inserted, or read from a disk): one tick for 1/512 of the capacity, at
//! least 4 KiB. A block's *age* is the number of ticks since its last use.
//!
//! *Sums.* Two [`Ring`]s, for blocks and for ghosts, hold the bytes last used in each tick: exactly for the last 1023
//! ticks (two capacities' worth of use), in groups of 128 ticks beyond. A use moves the bytes of one block from a sum
//! to the newest. All sums are atomics that every index shard shares: there is no lock and no sampling here.
//!
//! *Hits in memory* do not advance the clock, and renew a block's age only if it was not renewed for [`NEAR_TICKS`].
//! Others are counted at the first point of the curve: their distance is less than that.
//!
//! *Distance.* A cache that evicts the least recently used block (LRU) has a hit if the block and the bytes used since
//! its last use fit in the cache (R. L. Mattson et al., "Evaluation techniques for storage hierarchies", IBM Systems
//! Journal 9, 1970). That is the sum of all bytes from the block's tick on. These sums are computed for all ticks when
//! the clock advances, so that a hit reads one number. It is off by at most one tick's bytes for the last 1023 ticks,
//! and by at most one group's beyond.
//!
//! *Wrap.* Entries keep 16 bits of the clock. Each index shard visits its entries once in [`CLAMP_TICKS`] ticks, when
//! it is first used after that, and sets entries older than [`OLDEST_AGE`] to that age. So that no shard is left out,
//! the thread that advances the clock uses the shards in turn, one every [`TURN_TICKS`] ticks. This costs a few
//! nanoseconds per entry, once in 32 capacities' worth of use: with 10^8 entries, a pause of 1 to 2 ms of one of 256
//! shards at a time.
//!
//! # Limits
//! Blocks of one tick (1/512 of the capacity) are equally old, and so are those of one group of 128 ticks beyond 1023
//! ticks, and all beyond 32767. If threads use a block or tick at the instant at which it moves from its own sum to
//! its group's, bytes may be counted in a neighbouring sum; never twice. Misplaced bytes end, like all others, in the
//! oldest sums, which are carried on.
//!
//! # Example
//! Capacity 1 GiB: a tick is 2 MiB. A block of 8 KiB was used at tick 100. Then other blocks of 300 MiB were used,
//! some twice, 400 MiB of uses in all: the clock is at 300, and the sum from tick 100 on is 300 MiB (and up to 2 MiB).
//! A hit on the block counts for all caches of 300 MiB and more, point 14 of the curve (15 x 20.5 MiB) and up.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, TryLockError};

use crate::stats::HitCurve;
use crate::sync::lock;
use crate::tally::Tally;

/// Ticks of the clock for uses of the whole capacity.
const TICKS_PER_CAPACITY: u64 = 512;

/// Fewest bytes of a tick.
const MIN_TICK_BYTES: u64 = 4096;

/// Most ticks that one use advances the clock, however large the block and small the cache.
const MAX_ADVANCE_TICKS: u64 = TICKS_PER_CAPACITY;

/// Ages below this have a sum for each tick.
const FINE_AGES: u16 = 1023;

/// Slots for those sums: one more than ages, so that a slot is empty before its next tick uses it.
const FINE_SLOTS: u16 = 1024;

/// Ticks of a group, as a power of two: 2^7 = 128.
const GROUP_SHIFT: u32 = 7;

/// Number of groups: enough for all 16-bit ticks.
const GROUPS: u16 = 512;

/// Groups older than [`FINE_AGES`].
const OLD_GROUPS: u16 = 504;

const SLOTS: usize = (FINE_SLOTS + GROUPS) as usize;

/// Greatest age that entries are set to, in ticks.
pub(super) const OLDEST_AGE: u16 = 32_767;

/// Ticks between two visits of an index shard to its entries, to bound their ages.
pub(super) const CLAMP_TICKS: u64 = 16_384;

/// Ticks between two shards in turn: each has its turn twice in [`CLAMP_TICKS`]. So entries are never older than
/// 32,767 + 16,384 + 8,192 ticks, and some groups are always empty.
pub(super) const TURN_TICKS: u64 = 32;

/// The oldest of the [`OLD_GROUPS`], older than any entry.
const EMPTY_GROUPS: u16 = 56;

/// Points of the hit curve.
const CURVE_POINTS: usize = 100;

/// Points of the curve up to the capacity.
const POINTS_PER_CAPACITY: u64 = 50;

/// Ticks for which hits in memory do not renew a block again: fewer than the bytes of one point of the curve, 10.24.
pub(super) const NEAR_TICKS: u32 = 8;

/// First value of the clock: large enough that subtracting an age never underflows.
pub(super) const FIRST_TICK: u64 = 1 << 32;

/// Returns the 16 bits of the clock that entries keep.
pub(super) fn short(now: u64) -> u16 {
    now as u16
}

/// Returns the slot of the sum that counts an entry used at `tick`.
fn slot(now: u64, tick: u16) -> usize {
    if short(now).wrapping_sub(tick) < FINE_AGES { usize::from(tick % FINE_SLOTS) } else { group_slot(tick) }
}

fn group_slot(tick: u16) -> usize {
    usize::from(FINE_SLOTS + (tick >> GROUP_SHIFT))
}

/// Returns all slots from the newest to the oldest, each with the age of the youngest entry it may count.
fn newest_first(now: u64) -> impl DoubleEndedIterator<Item = (usize, u16)> {
    let now = short(now);
    let fine = (0..FINE_AGES).map(move |age| (usize::from(now.wrapping_sub(age) % FINE_SLOTS), age));
    fine.chain((0..OLD_GROUPS).map(move |number| old_group(now, number)))
}

/// Returns the same for old group `number`, counted from the one that entries enter when they leave the fine sums.
fn old_group(now: u16, number: u16) -> (usize, u16) {
    let newest_tick = now.wrapping_sub(FINE_AGES);
    let group = (newest_tick >> GROUP_SHIFT).wrapping_sub(number) % GROUPS;
    let youngest_tick = if number == 0 { newest_tick } else { group << GROUP_SHIFT | ((1 << GROUP_SHIFT) - 1) };
    (usize::from(FINE_SLOTS + group), now.wrapping_sub(youngest_tick))
}

/// Sums over all entries of one kind.
#[derive(Debug)]
pub(super) struct Ring {
    sector_bytes: u32,
    pub(super) entries: AtomicU64,
    /// Bytes of data.
    pub(super) data_bytes: AtomicU64,
    /// Bytes that the data takes in whole sectors.
    pub(super) bytes: AtomicU64,
    /// The same by tick, then by group. Signed: threads may subtract before they add.
    by_slot: Box<[AtomicI64; SLOTS]>,
}

impl Ring {
    fn new(sector_bytes: u32) -> Ring {
        Ring {
            sector_bytes: sector_bytes.max(1),
            entries: AtomicU64::new(0),
            data_bytes: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            by_slot: Box::new(std::array::from_fn(|_| AtomicI64::new(0))),
        }
    }

    /// Returns the bytes that `len_bytes` of data take in whole sectors.
    fn space_of(&self, len_bytes: u32) -> u32 {
        len_bytes.next_multiple_of(self.sector_bytes)
    }

    /// Counts an entry of `len_bytes`, last used at `tick`.
    pub(super) fn add(&self, now: u64, tick: u16, len_bytes: u32) {
        let space_bytes = self.space_of(len_bytes);
        self.entries.fetch_add(1, Relaxed);
        self.data_bytes.fetch_add(len_bytes.into(), Relaxed);
        self.bytes.fetch_add(space_bytes.into(), Relaxed);
        self.by_slot[slot(now, tick)].fetch_add(space_bytes.into(), Relaxed);
    }

    /// Uncounts an entry.
    pub(super) fn remove(&self, now: u64, tick: u16, len_bytes: u32) {
        let space_bytes = self.space_of(len_bytes);
        // An entry is counted before its shard shows it, so all are at least its own.
        let entries = self.entries.fetch_sub(1, Relaxed);
        let data_bytes = self.data_bytes.fetch_sub(len_bytes.into(), Relaxed);
        debug_assert!(entries > 0 && data_bytes >= len_bytes.into(), "an entry of {len_bytes} bytes was not counted");
        self.bytes.fetch_sub(space_bytes.into(), Relaxed);
        self.by_slot[slot(now, tick)].fetch_sub(space_bytes.into(), Relaxed);
    }

    /// Moves an entry's bytes to a new tick.
    pub(super) fn renew(&self, now: u64, from_tick: u16, to_tick: u16, len_bytes: u32) {
        let (from, to) = (slot(now, from_tick), slot(now, to_tick));
        if from != to {
            let space_bytes = self.space_of(len_bytes);
            self.by_slot[from].fetch_sub(space_bytes.into(), Relaxed);
            self.by_slot[to].fetch_add(space_bytes.into(), Relaxed);
        }
    }

    /// Moves the bytes of one sum to another.
    fn carry(&self, from: usize, to: usize) {
        let bytes = self.by_slot[from].swap(0, Relaxed);
        if bytes != 0 {
            self.by_slot[to].fetch_add(bytes, Relaxed);
        }
    }
}

/// The clock, and the sums of bytes by age.
#[derive(Debug)]
pub(super) struct Recency {
    /// The clock, in ticks, with all its bits.
    now: AtomicU64,
    /// Bytes used since the last tick.
    used_bytes: AtomicU64,
    tick_bytes: AtomicU64,
    step_bytes: AtomicU64,
    ghost_budget_bytes: AtomicU64,
    /// Ghosts of at least this age are beyond the budget; `u32::MAX`: none are.
    ghost_cutoff_age: AtomicU32,
    pub(super) blocks: Ring,
    pub(super) ghosts: Ring,
    /// Bytes in each slot and all newer ones, of both rings, as of the last advance of the clock.
    since_bytes: Box<[AtomicU64; SLOTS]>,
    /// Hits by the first point of the curve that counts them.
    hits: Box<[AtomicU64; CURVE_POINTS]>,
    /// Hits in memory that are not in `hits`, and not look-ups of a shard.
    near_hits: Tally<1>,
    /// Held while the clock advances or sums are computed.
    advancing: Mutex<()>,
}

impl Recency {
    pub(super) fn new(capacity_bytes: u64, ghost_budget_bytes: u64, sector_bytes: u32) -> Recency {
        let recency = Recency {
            now: AtomicU64::new(FIRST_TICK),
            used_bytes: AtomicU64::new(0),
            tick_bytes: AtomicU64::new(MIN_TICK_BYTES),
            step_bytes: AtomicU64::new(1),
            ghost_budget_bytes: AtomicU64::new(0),
            ghost_cutoff_age: AtomicU32::new(u32::MAX),
            blocks: Ring::new(sector_bytes),
            ghosts: Ring::new(sector_bytes),
            since_bytes: Box::new(std::array::from_fn(|_| AtomicU64::new(0))),
            hits: Box::new(std::array::from_fn(|_| AtomicU64::new(0))),
            near_hits: Tally::default(),
            advancing: Mutex::new(()),
        };
        recency.set_capacity(capacity_bytes, ghost_budget_bytes);
        recency
    }

    /// Returns the bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        3 * SLOTS * size_of::<u64>() + CURVE_POINTS * size_of::<u64>() + Tally::<1>::heap_bytes()
    }

    /// Changes the capacity. Ages keep their number of ticks, though a tick has another length.
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

    /// Advances the clock to the next moment whose 16 bits are `tick`. Call it only without entries.
    pub(super) fn set_now(&self, tick: u16) {
        let _guard = lock(&self.advancing);
        self.advance(u64::from(tick.wrapping_sub(short(self.now()))));
    }

    /// Counts the use of a block of `len_bytes`. If that advances the clock, returns its old and new values. If another
    /// thread is advancing it, leaves the rest to the next use.
    pub(super) fn used(&self, len_bytes: u32) -> Option<(u64, u64)> {
        let (tick_bytes, space_bytes) = (self.tick_bytes.load(Relaxed), u64::from(self.blocks.space_of(len_bytes)));
        if self.used_bytes.fetch_add(space_bytes, Relaxed) + space_bytes < tick_bytes {
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

    /// Advances the clock. Call it with `advancing` held.
    fn advance(&self, ticks: u64) {
        let before = self.now();
        let now = before + ticks;
        // Ticks that had sums of their own and are too old for that now, oldest first.
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

    /// Carries bytes out of the oldest groups, which no entry belongs to: its shard has set it to [`OLDEST_AGE`]
    /// before. Bytes misplaced by concurrent threads may be there; left there, they would count as new after a wrap.
    fn carry_oldest(&self, now: u16) {
        let (to, _) = old_group(now, (OLDEST_AGE - FINE_AGES) >> GROUP_SHIFT);
        for number in OLD_GROUPS - EMPTY_GROUPS..OLD_GROUPS {
            let (from, _) = old_group(now, number);
            self.blocks.carry(from, to);
            self.ghosts.carry(from, to);
        }
    }

    /// Computes the sums of all bytes since each tick, and the age from which ghosts exceed their budget.
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

    /// Counts a hit, on a block or ghost, for all caches large enough to have had it.
    pub(super) fn count_hit(&self, now: u64, tick: u16, len_bytes: u32) {
        let since_bytes = if short(now) == tick { 0 } else { self.since_bytes[slot(now, tick)].load(Relaxed) };
        let distance_bytes = since_bytes.max(self.blocks.space_of(len_bytes).into());
        let point = (distance_bytes - 1) / self.step_bytes.load(Relaxed);
        if let Some(hits) = usize::try_from(point).ok().and_then(|point| self.hits.get(point)) {
            hits.fetch_add(1, Relaxed);
        }
    }

    /// Returns whether a hit on a block of `len_bytes` that has just been used counts at the first point of the curve.
    pub(super) fn is_near_the_origin(&self, len_bytes: u32) -> bool {
        u64::from(self.blocks.space_of(len_bytes)) <= self.step_bytes.load(Relaxed)
    }

    /// Counts a hit at the first point of the curve.
    pub(super) fn count_near_hit(&self) {
        self.near_hits.add([1]);
    }

    /// Returns the curve. The shards count the look-ups, but for the near hits.
    pub(super) fn curve(&self, shard_lookups: u64) -> HitCurve {
        let [near_hits] = self.near_hits.sums();
        let mut sum = near_hits;
        let hits = self.hits.iter().map(|hits| {
            sum += hits.load(Relaxed);
            sum
        });
        let lookups = near_hits + shard_lookups;
        HitCurve { hits: hits.collect(), step_bytes: self.step_bytes.load(Relaxed), lookups }
    }

    pub(super) fn clear_curve(&self) {
        self.near_hits.clear();
        self.hits.iter().for_each(|hits| hits.store(0, Relaxed));
    }

    /// Returns the largest age such that blocks of at least that age hold `bytes`; 0 if all together hold less.
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

    /// Returns whether a ghost last used at `tick` should be dropped: it is one of the oldest, and there are too many.
    pub(super) fn is_ghost_surplus(&self, now: u64, tick: u16) -> bool {
        self.ghosts.bytes.load(Relaxed) > self.ghost_budget_bytes.load(Relaxed)
            && u32::from(short(now).wrapping_sub(tick)) >= self.ghost_cutoff_age.load(Relaxed)
    }

    /// Returns whether ghosts exceed their budget by an eighth. If so, inserts drop some at once.
    pub(super) fn is_far_over_budget(&self) -> bool {
        let budget_bytes = self.ghost_budget_bytes.load(Relaxed);
        self.ghosts.bytes.load(Relaxed) > budget_bytes + budget_bytes / 8
    }
}
