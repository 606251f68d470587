//! What is cached, and where: one packed entry for each key, in memory.
//!
//! # Why
//! A look-up must answer without reading a disk, for up to 10^8 blocks; a checkpoint, an eviction or an evacuation must
//! never stop it. So the index is small (23 bytes per entry and less than one more for everything else, from a million
//! entries on), has 256 locks that are held for a bucket at the most, and everything that goes through all of it does
//! so a bucket at a time. (The one exception, of a shard once in a long while, stands in [`recency`] under *Wrap*.)
//!
//! # How it works
//! - 256 shards by the first byte of the hash, each a [`table`] behind a mutex.
//! - [`recency`]: a clock of bytes used. It chooses what is evicted (an age, not a list) and draws the curve of hits by
//!   cache size.
//! - *Ghosts* are entries whose data was evicted: no place (slab [`SlabId::END`]), but tick and former length, so that
//!   the curve goes beyond the real size. They are bounded by a share of the capacity, the oldest go first.
//! - *Inserts in flight.* [`Index::begin_insert`] gives a token before the data is written, [`Index::finish_insert`]
//!   takes it when it is. Whichever insert or remove of a key *began* last wins: an earlier one that ends later is told
//!   that it is superseded, and the block that a caller removed does not come back.
//!
//! Callbacks (`log`, `visit`) run under the lock of the shard, so what they write to a log is in the order in which it
//! happened to that key. They must be short and must not call the index, except for [`Index::age`] and
//! [`Index::now_tick`].
//!
//! # Memory
//! Fixed: about 40 KiB of recency, and 256 shards of about 150 bytes. Each shard has buckets of about 200 entries. A
//! million entries: 23.5 bytes each; an empty index: 75 KiB. See the tests for the numbers.
//!
//! # Limits
//! Keys are equal if 80 bits of their hashes are. Eviction is by ages of 1/512 of the capacity (coarser for the very
//! old), so a caller that evicts by [`Index::cutoff_age`] frees a little more than it asked for, and should stop when
//! it has enough.
//!
//! # Example
//! ```text
//! let index = Index::new(1 << 30, 100.0);
//! let token = index.begin_insert(&hash);
//! // ... the block is written to `extent` ...
//! index.finish_insert(&hash, token, extent, checksum, |displaced, entry| log.push(...));
//! assert!(matches!(index.lookup(&hash), Found::Block(_)));
//! let (age, mut cursor) = (index.cutoff_age(64 << 20), Cursor::default());
//! while !cursor.is_done() {
//!     index.sweep(&mut cursor, 1000, |_, entry| if index.age(entry) >= age { Verdict::Evict } else { Verdict::Keep });
//! }
//! ```

mod recency;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard};

use crate::entry::{Entry, Extent, SlabId};
use crate::key::{INDEX_SHARDS, KeyHash};
use crate::stats::HitCurve;
use crate::sync::lock;
use recency::{CLAMP_TICKS, FIRST_TICK, OLDEST_AGE, Recency, Ring, TURN_TICKS, short};
use table::{ALLOCATION_OVERHEAD_BYTES, Place, Rest, Table};

/// What an insert in flight costs in memory: its part of a tree's node, in bytes; an estimate.
const IN_FLIGHT_BYTES: usize = 32;

/// How many entries to visit in one call of [`Index::sweep`]: then other tasks should have a turn.
pub(crate) const PASS_ENTRIES: usize = 4096;

/// What a look-up found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing is known of the key.
    Absent,
    /// Its data was evicted a while ago.
    Ghost,
    /// It is cached.
    Block(Entry),
}

/// An insert in flight, or a fetch that may become one. Given back to [`Index::finish_insert`] or [`Index::abort_insert`], or it stays in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token(u64);

/// How an insert ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    /// The block is found from now on; the space of the one that it replaced, if any, is the caller's to free.
    Indexed { displaced: Option<Entry> },
    /// Another insert or remove of the key began later; the new block's space is the caller's to free.
    Superseded,
}

/// What a sweep does with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It stays.
    Keep,
    /// It becomes a ghost; the space is the caller's to free.
    Evict,
    /// It vanishes; the space is the caller's to free.
    Drop,
}

/// Where a sweep is. A new one starts at the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    shard: usize,
    /// First 32 bits of what entries keep of their hashes.
    position: u32,
}

impl Cursor {
    /// Whether it has been through all shards.
    pub(crate) fn is_done(&self) -> bool {
        self.shard >= INDEX_SHARDS
    }
}

/// A part of the index, behind its lock.
#[derive(Debug)]
struct Shard {
    table: Table,
    in_flight: BTreeMap<Rest, Token>,
    next_token: u64,
    /// Look-ups since the curve was cleared.
    lookups: u64,
    /// On the clock: when ages were last bounded.
    clamped_at: u64,
}

impl Shard {
    /// The token of an insert that begins now. Those of the same key that are in flight are superseded.
    fn begin_insert(&mut self, rest: Rest) -> Token {
        let token = Token(self.next_token);
        self.next_token += 1;
        self.in_flight.insert(rest, token);
        token
    }

    /// Sets what is older than [`OLDEST_AGE`] to that age, when it is time. All ticks here are those of the last time,
    /// or older by [`OLDEST_AGE`], or up to [`CLAMP_TICKS`] newer: less than 2^16 together, so each means one moment,
    /// however long ago that was.
    fn clamp_ages(&mut self, now: u64, recency: &Recency) {
        if now.saturating_sub(self.clamped_at) < CLAMP_TICKS {
            return;
        }
        let base = self.clamped_at.saturating_sub(OLDEST_AGE.into());
        self.clamped_at = now;
        let oldest = short(now).wrapping_sub(OLDEST_AGE);
        self.table.for_each(|entry| {
            let used_at = base + u64::from(entry.tick.wrapping_sub(short(base)));
            if used_at + u64::from(OLDEST_AGE) < now {
                ring(recency, entry).renew(now, entry.tick, oldest, entry.extent.len_bytes);
                entry.tick = oldest;
            }
        });
    }
}

/// What is cached, and where. See the module's documentation.
#[derive(Debug)]
pub(crate) struct Index {
    shards: Box<[Mutex<Shard>]>,
    recency: Recency,
    ghost_share: f64,
}

fn is_ghost(entry: &Entry) -> bool {
    entry.extent.slab.0 == SlabId::END
}

fn block(entry: Entry) -> Option<Entry> {
    (!is_ghost(&entry)).then_some(entry)
}

fn ring<'a>(recency: &'a Recency, entry: &Entry) -> &'a Ring {
    if is_ghost(entry) { &recency.ghosts } else { &recency.blocks }
}

/// Share of a number of bytes; 0 for what is not a number.
fn share_bytes(bytes: u64, share: f64) -> u64 {
    (bytes as f64 * share) as u64
}

impl Index {
    /// An empty index for a cache of so many bytes, with ghosts of `ghost_pct` percent of them (0 to 400; 0: none).
    pub(crate) fn new(capacity_bytes: u64, ghost_pct: f64) -> Index {
        let shard = |_| {
            Mutex::new(Shard {
                table: Table::new(),
                in_flight: BTreeMap::new(),
                next_token: 0,
                lookups: 0,
                clamped_at: FIRST_TICK,
            })
        };
        let ghost_share = ghost_pct / 100.0;
        let recency = Recency::new(capacity_bytes, share_bytes(capacity_bytes, ghost_share));
        Index { shards: (0..INDEX_SHARDS).map(shard).collect(), recency, ghost_share }
    }

    /// The cache has another size now. Entries stay, the curve of hits starts anew.
    pub(crate) fn set_capacity(&self, capacity_bytes: u64) {
        self.clear_curve();
        self.recency.set_capacity(capacity_bytes, share_bytes(capacity_bytes, self.ghost_share));
    }

    /// The shard, locked, and the time.
    fn lock(&self, number: usize) -> (MutexGuard<'_, Shard>, u64) {
        let mut shard = lock(&self.shards[number % INDEX_SHARDS]);
        // Read under the lock, so that no entry of the shard is newer.
        let now = self.recency.now();
        shard.clamp_ages(now, &self.recency);
        (shard, now)
    }

    /// Advances the clock by a use, and has the shards whose turn it is look at the ages of their entries. Without a
    /// lock.
    fn used(&self, len_bytes: u32) {
        let Some((before, now)) = self.recency.used(len_bytes) else { return };
        for turn in before / TURN_TICKS + 1..=now / TURN_TICKS {
            drop(self.lock((turn % INDEX_SHARDS as u64) as usize));
        }
    }

    fn count_in(&self, now: u64, entry: &Entry) {
        ring(&self.recency, entry).add(now, entry.tick, entry.extent.len_bytes);
    }

    fn count_out(&self, now: u64, entry: &Entry) {
        ring(&self.recency, entry).remove(now, entry.tick, entry.extent.len_bytes);
    }

    /// Looks a key up: counts it in the curve, and makes what it finds the newest.
    pub(crate) fn lookup(&self, hash: &KeyHash) -> Found {
        let (mut shard, now) = self.lock(hash.shard());
        shard.lookups += 1;
        let Some((place, mut entry)) = shard.table.find(&hash.rest()) else { return Found::Absent };
        let len_bytes = entry.extent.len_bytes;
        self.recency.count_hit(now, entry.tick, len_bytes);
        if entry.tick != short(now) {
            ring(&self.recency, &entry).renew(now, entry.tick, short(now), len_bytes);
            entry.tick = short(now);
            shard.table.write(place, &entry);
        }
        drop(shard);
        if is_ghost(&entry) {
            // Its insert will be its use.
            return Found::Ghost;
        }
        self.used(len_bytes);
        Found::Block(entry)
    }

    /// The block of a key, without counting that somebody asked; `None` for a ghost.
    pub(crate) fn peek(&self, hash: &KeyHash) -> Option<Entry> {
        let (shard, _) = self.lock(hash.shard());
        shard.table.find(&hash.rest()).and_then(|(_, entry)| block(entry))
    }

    /// An insert begins: it supersedes those of the same key that are in flight. What is cached stays until it ends.
    pub(crate) fn begin_insert(&self, hash: &KeyHash) -> Token {
        let (mut shard, _) = self.lock(hash.shard());
        shard.begin_insert(hash.rest())
    }

    /// What is about to be fetched may be inserted, unless an insert or removal of the key begins before the fetch has
    /// ended, or one is in flight now: those are newer. `None`: one is.
    pub(crate) fn lease(&self, hash: &KeyHash) -> Option<Token> {
        let (mut shard, _) = self.lock(hash.shard());
        let is_free = !shard.in_flight.contains_key(&hash.rest());
        is_free.then(|| shard.begin_insert(hash.rest()))
    }

    /// The block of an insert lies at `extent`: it is found from now on, unless the insert was superseded.
    ///
    /// `log` runs under the lock, only when the block is indexed, with the block that it replaces, if any, and the new.
    pub(crate) fn finish_insert(
        &self,
        hash: &KeyHash,
        token: Token,
        extent: Extent,
        checksum: u32,
        log: impl FnOnce(Option<Entry>, Entry),
    ) -> Finish {
        let (mut shard, now) = self.lock(hash.shard());
        let rest = hash.rest();
        if shard.in_flight.get(&rest) != Some(&token) {
            return Finish::Superseded;
        }
        shard.in_flight.remove(&rest);
        let entry = Entry { extent, checksum, tick: short(now) };
        let displaced = self.put(&mut shard, now, &rest, &entry);
        log(displaced, entry);
        if self.recency.is_far_over_budget() {
            shard.table.visit_bucket_of(&rest, |_, entry| !self.forget_surplus(now, entry));
        }
        drop(shard);
        self.used(extent.len_bytes);
        Finish::Indexed { displaced }
    }

    /// Puts an entry into the table and both into the sums; the block that it displaced.
    fn put(&self, shard: &mut Shard, now: u64, rest: &Rest, entry: &Entry) -> Option<Entry> {
        self.count_in(now, entry);
        let displaced = shard.table.insert(rest, entry)?;
        self.count_out(now, &displaced);
        block(displaced)
    }

    /// An insert will not be finished. Nothing happens if it was superseded; whether it was not.
    pub(crate) fn abort_insert(&self, hash: &KeyHash, token: Token) -> bool {
        let (mut shard, _) = self.lock(hash.shard());
        let is_newest = shard.in_flight.get(&hash.rest()) == Some(&token);
        if is_newest {
            shard.in_flight.remove(&hash.rest());
        }
        is_newest
    }

    /// Removes block or ghost, and supersedes the inserts of that key that are in flight. Returns the block, if there
    /// was one; `log` runs under the lock with it.
    pub(crate) fn remove(&self, hash: &KeyHash, log: impl FnOnce(Entry)) -> Option<Entry> {
        let (mut shard, now) = self.lock(hash.shard());
        shard.in_flight.remove(&hash.rest());
        let (place, entry) = shard.table.find(&hash.rest())?;
        self.take(&mut shard, now, place, entry, log)
    }

    /// Runs `act` if the key still has this block, under the lock: whoever changes the key does so before or after it.
    pub(crate) fn while_current(&self, hash: &KeyHash, known: &Entry, act: impl FnOnce()) {
        let (shard, _) = self.lock(hash.shard());
        let current = shard.table.find(&hash.rest());
        if current.is_some_and(|(_, entry)| !is_ghost(&entry) && entry.is_same_block(known)) {
            act();
        }
    }

    /// Removes a block if it is still this one: one that turned out to be corrupt or unreadable. Inserts in flight
    /// are left alone, for they will heal it.
    pub(crate) fn remove_same(&self, hash: &KeyHash, known: &Entry, log: impl FnOnce(Entry)) -> Option<Entry> {
        let (mut shard, now) = self.lock(hash.shard());
        let (place, entry) = shard.table.find(&hash.rest())?;
        if is_ghost(&entry) || !entry.is_same_block(known) {
            return None;
        }
        self.take(&mut shard, now, place, entry, log)
    }

    fn take(&self, shard: &mut Shard, now: u64, place: Place, entry: Entry, log: impl FnOnce(Entry)) -> Option<Entry> {
        shard.table.remove(place);
        self.count_out(now, &entry);
        let entry = block(entry)?;
        log(entry);
        Some(entry)
    }

    /// A block was copied: from now on it is found at `to`. Returns false, and changes nothing, when it is not `from` any
    /// more. `log` runs under the lock with the entry as it was and as it is.
    pub(crate) fn relocate(&self, hash: &KeyHash, from: &Entry, to: Extent, log: impl FnOnce(Entry, Entry)) -> bool {
        let (mut shard, now) = self.lock(hash.shard());
        let Some((place, old)) = shard.table.find(&hash.rest()) else { return false };
        if is_ghost(&old) || !old.is_same_block(from) {
            return false;
        }
        let new = Entry { extent: to, ..old };
        self.count_out(now, &old);
        self.count_in(now, &new);
        shard.table.write(place, &new);
        log(old, new);
        true
    }

    /// Recovery: an entry (or ghost) as it was written down; returns the block that it displaced. Its tick is kept if
    /// it makes sense on a clock that [`Index::set_now`] has set before: up to 16,384 ticks in the future are now, and
    /// what is older than 32,767 is that old.
    pub(crate) fn restore(&self, hash: KeyHash, entry: Entry) -> Option<Entry> {
        let (mut shard, now) = self.lock(hash.shard());
        let age = short(now).wrapping_sub(entry.tick);
        let age = if age > u16::MAX - 16_384 { 0 } else { age.min(OLDEST_AGE) };
        let entry = Entry { tick: short(now).wrapping_sub(age), ..entry };
        self.put(&mut shard, now, &hash.rest(), &entry)
    }

    /// Recovery: a key (or ghost) that was removed; returns the block that was known.
    pub(crate) fn forget(&self, hash: &KeyHash) -> Option<Entry> {
        self.remove(hash, |_| ())
    }

    /// The clock, as entries keep it.
    pub(crate) fn now_tick(&self) -> u16 {
        short(self.recency.now())
    }

    /// Recovery: advances the clock to `tick`, before entries are restored. (With entries, the sums of their ages would
    /// be wrong for a while.)
    pub(crate) fn set_now(&self, tick: u16) {
        self.recency.set_now(tick);
    }

    /// How many ticks ago an entry was used.
    pub(crate) fn age(&self, entry: &Entry) -> u16 {
        self.now_tick().wrapping_sub(entry.tick)
    }

    /// The largest age, in ticks, such that blocks of that age and older hold `bytes` at least; 0 when all of them do
    /// not, `u16::MAX` for 0 bytes.
    ///
    /// Up to an age of 1023 that is exact. Older ones are known in groups of 128 ticks: all of a group are then at
    /// least as old as the age returned, so a caller who wants no more than `bytes` stops when it has them.
    pub(crate) fn cutoff_age(&self, bytes: u64) -> u16 {
        self.recency.cutoff_age(bytes)
    }

    /// Visits further blocks, until it has seen about `max_entries` entries (whole buckets; ghosts count), or all.
    /// Ghosts beyond their budget are dropped on the way. Locks one shard at a time, for one bucket; `visit` runs under
    /// the lock.
    ///
    /// Whatever else happens between and during the calls, a block that is there from the first call to the last
    /// is visited exactly once in a pass; one that comes, is replaced, or goes meanwhile, once or not at all.
    pub(crate) fn sweep(
        &self,
        cursor: &mut Cursor,
        max_entries: usize,
        mut visit: impl FnMut(KeyHash, &Entry) -> Verdict,
    ) {
        self.recency.refresh();
        let mut seen = 0;
        while !cursor.is_done() && seen < max_entries.max(1) {
            // There are as many shards as a byte has values.
            let Ok(number) = u8::try_from(cursor.shard) else { return };
            let (mut shard, now) = self.lock(cursor.shard);
            let (next, shown) = shard.table.visit(cursor.position, |rest, entry| {
                if !is_ghost(entry) {
                    match visit(KeyHash::from_parts(number, *rest), entry) {
                        Verdict::Keep => return true,
                        Verdict::Evict if self.recency.has_ghosts() => self.make_ghost(now, entry),
                        Verdict::Evict | Verdict::Drop => {
                            self.count_out(now, entry);
                            return false;
                        }
                    }
                }
                !self.forget_surplus(now, entry)
            });
            seen += shown;
            *cursor = match u32::try_from(next) {
                Ok(position) => Cursor { position, ..*cursor },
                Err(_) => Cursor { shard: cursor.shard + 1, position: 0 },
            };
        }
    }

    fn make_ghost(&self, now: u64, entry: &mut Entry) {
        self.count_out(now, entry);
        entry.extent = Extent { slab: SlabId(SlabId::END), offset_units: 0, len_bytes: entry.extent.len_bytes };
        entry.checksum = 0;
        self.count_in(now, entry);
    }

    /// Whether an entry is a ghost beyond the budget; then it is out of the sums.
    fn forget_surplus(&self, now: u64, entry: &Entry) -> bool {
        let is_surplus = is_ghost(entry) && self.recency.is_ghost_surplus(now, entry.tick);
        if is_surplus {
            self.count_out(now, entry);
        }
        is_surplus
    }

    /// Hits by cache size since the curve was cleared.
    pub(crate) fn curve(&self) -> HitCurve {
        self.recency.curve(self.sum(|shard| shard.lookups))
    }

    /// Starts the curve anew.
    pub(crate) fn clear_curve(&self) {
        for number in 0..INDEX_SHARDS {
            self.lock(number).0.lookups = 0;
        }
        self.recency.clear_curve();
    }

    fn sum(&self, of: impl Fn(&Shard) -> u64) -> u64 {
        (0..INDEX_SHARDS).map(|number| of(&self.lock(number).0)).sum()
    }

    /// Blocks cached.
    pub(crate) fn blocks(&self) -> u64 {
        self.recency.blocks.entries.load(Relaxed)
    }

    /// Bytes of their data.
    pub(crate) fn block_bytes(&self) -> u64 {
        self.recency.blocks.bytes.load(Relaxed)
    }

    /// Entries without data.
    pub(crate) fn ghosts(&self) -> u64 {
        self.recency.ghosts.entries.load(Relaxed)
    }

    /// Memory of everything here, unused room and an estimate of the allocator's own included, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let shards = self.sum(|shard| (shard.table.heap_bytes() + shard.in_flight.len() * IN_FLIGHT_BYTES) as u64);
        let fixed = size_of::<Index>()
            + INDEX_SHARDS * size_of::<Mutex<Shard>>()
            + self.recency.heap_bytes()
            + 5 * ALLOCATION_OVERHEAD_BYTES;
        shards + fixed as u64
    }
}
