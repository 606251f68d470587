//! The index: one packed entry in memory for each cached key, with its place.
//!
//! # Why
//! A look-up must answer without reading a disk, for up to 10^8 blocks, and no checkpoint, eviction or evacuation may
//! stop it. So the index is small (23 bytes per entry and, from a million entries on, less than one more for
//! everything else). It has 256 locks, each held for at most one bucket, and passes over the whole index go bucket by
//! bucket. (The one exception, of a shard once in a long while, is described in [`recency`] under *Wrap*.)
//!
//! # How it works
//! - 256 shards by the first byte of the hash, each a [`table`] behind a mutex.
//! - [`recency`]: a clock of bytes used. It chooses the blocks to evict (by age, without a list) and draws the curve of
//!   hits by cache size.
//! - *Ghosts* are entries whose data was evicted, or never stored ([`Index::reject_first`]): they have no place (slab
//!   [`SlabId::END`]), but keep tick and length, so that the curve extends beyond the real size. Their bytes are
//!   bounded by a share of the capacity; the oldest are dropped first.
//! - *Inserts in flight.* [`Index::begin_insert`] returns a token before the data is written; [`Index::finish_insert`]
//!   takes the token afterwards. Of several inserts and removals of a key, the one that *began* last wins: an earlier
//!   one that ends later is superseded, and a block that a caller removed does not come back.
//!
//! Callbacks (`log`, `visit`) run under the lock of the shard, so their log records are in the order of the changes of
//! a key. They must be short and must not call the index, except for [`Index::age`], [`Index::now_tick`]
//! and [`Index::use_tick`].
//!
//! # Memory
//! Fixed: about 42 KiB of recency, and 256 shards of about 150 bytes. Each shard has buckets of about 200 entries. A
//! million entries: 23.5 bytes each; an empty index: 77 KiB. See the tests for the numbers.
//!
//! # Limits
//! Keys are equal if 80 bits of their hashes are. Ages have a resolution of 1/512 of the capacity (coarser for the
//! very old), so a caller that evicts by [`Index::cutoff_age`] frees a little more than it asked for, and should stop
//! when it has enough.
//!
//! # Example
//! ```text
//! let index = Index::new(1 << 30, 100.0, 4096);
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
use recency::{CLAMP_TICKS, FIRST_TICK, NEAR_TICKS, OLDEST_AGE, Recency, Ring, TURN_TICKS, short};
use table::{ALLOCATION_OVERHEAD_BYTES, Place, Rest, Table};

/// Estimated memory of an insert in flight, its part of a tree's node, in bytes.
const IN_FLIGHT_BYTES: usize = 32;

/// Entries to visit in one call of [`Index::sweep`] before other tasks should run.
pub(crate) const PASS_ENTRIES: usize = 4096;

/// The result of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The key is unknown.
    Absent,
    /// The key's data was evicted a while ago.
    Ghost,
    /// The key is cached.
    Block(Entry),
}

/// An insert in flight, or a fetch that may become one. Ends with [`Index::finish_insert`] or [`Index::abort_insert`];
/// if neither is called, it stays in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token(u64);

/// The result of an insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    /// The block is found from now on; the caller frees the space of the block it replaced, if any.
    Indexed { displaced: Option<Entry> },
    /// Another insert or removal of the key began later; the caller frees the new block's space.
    Superseded,
}

/// What a sweep does with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Keep it.
    Keep,
    /// Turn it into a ghost; the caller frees its space.
    Evict,
    /// Drop it; the caller frees its space.
    Drop,
}

/// The position of a sweep. A new cursor is at the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    shard: usize,
    /// First 32 bits of the stored hashes.
    position: u32,
}

impl Cursor {
    /// Returns whether the sweep has visited all shards.
    pub(crate) fn is_done(&self) -> bool {
        self.shard >= INDEX_SHARDS
    }
}

/// A part of the index, behind its own lock.
#[derive(Debug)]
struct Shard {
    table: Table,
    in_flight: BTreeMap<Rest, Token>,
    next_token: u64,
    /// Look-ups since the curve was cleared.
    lookups: u64,
    /// Time of the last [`Shard::clamp_ages`], on the clock.
    clamped_at: u64,
}

impl Shard {
    /// Returns the token of an insert that begins now, and supersedes those of the same key in flight.
    fn begin_insert(&mut self, rest: Rest) -> Token {
        let token = Token(self.next_token);
        self.next_token += 1;
        self.in_flight.insert(rest, token);
        token
    }

    /// Sets entries older than [`OLDEST_AGE`] to that age, when it is time. A tick in this shard is at most
    /// [`OLDEST_AGE`] older than the last clamp, and at most [`CLAMP_TICKS`] newer: a span of less than 2^16, so 16
    /// bits name one moment, however long ago the last clamp was.
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

/// All cached keys, and their entries.
#[derive(Debug)]
pub(crate) struct Index {
    shards: Box<[Mutex<Shard>]>,
    recency: Recency,
    ghost_share: f64,
}

fn is_ghost(entry: &Entry) -> bool {
    entry.extent.slab.0 == SlabId::END
}

fn ghost_of(len_bytes: u32) -> Extent {
    Extent { slab: SlabId(SlabId::END), offset_units: 0, len_bytes }
}

fn block(entry: Entry) -> Option<Entry> {
    (!is_ghost(&entry)).then_some(entry)
}

fn ring<'a>(recency: &'a Recency, entry: &Entry) -> &'a Ring {
    if is_ghost(entry) { &recency.ghosts } else { &recency.blocks }
}

/// Returns a share of `bytes`; 0 if the share is not a number.
fn share_bytes(bytes: u64, share: f64) -> u64 {
    (bytes as f64 * share) as u64
}

impl Index {
    /// Returns an empty index for a cache of `capacity_bytes`, with ghosts for `ghost_pct` percent of it (0 to 400).
    /// Blocks take whole sectors of `sector_bytes`.
    pub(crate) fn new(capacity_bytes: u64, ghost_pct: f64, sector_bytes: u32) -> Index {
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
        let recency = Recency::new(capacity_bytes, share_bytes(capacity_bytes, ghost_share), sector_bytes);
        Index { shards: (0..INDEX_SHARDS).map(shard).collect(), recency, ghost_share }
    }

    /// Changes the capacity. Entries stay; the curve of hits starts over.
    pub(crate) fn set_capacity(&self, capacity_bytes: u64) {
        self.clear_curve();
        self.recency.set_capacity(capacity_bytes, share_bytes(capacity_bytes, self.ghost_share));
    }

    /// Locks a shard. Returns it and the time.
    fn lock(&self, number: usize) -> (MutexGuard<'_, Shard>, u64) {
        let mut shard = lock(&self.shards[number % INDEX_SHARDS]);
        // Read the time under the lock, so that no entry of the shard is newer.
        let now = self.recency.now();
        shard.clamp_ages(now, &self.recency);
        (shard, now)
    }

    /// Advances the clock by a use, and bounds the ages in the shards whose turn it is. Call it without a lock.
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

    /// Looks a key up, counts it in the curve, and makes its entry the newest.
    pub(crate) fn lookup(&self, hash: &KeyHash) -> Found {
        let (mut shard, now) = self.lock(hash.shard());
        let found = self.find(&mut shard, now, hash);
        drop(shard);
        // The insert that follows a ghost will count as its use.
        if let Found::Block(entry) = &found {
            self.used(entry.extent.len_bytes);
        }
        found
    }

    /// Does what [`Index::lookup`] does, but does not advance the clock.
    fn find(&self, shard: &mut Shard, now: u64, hash: &KeyHash) -> Found {
        shard.lookups += 1;
        let Some((place, mut entry)) = shard.table.find(&hash.rest()) else { return Found::Absent };
        self.recency.count_hit(now, entry.tick, entry.extent.len_bytes);
        self.renew(shard, now, place, &mut entry);
        if is_ghost(&entry) { Found::Ghost } else { Found::Block(entry) }
    }

    /// Counts a hit that memory answered, of a block whose entry was renewed at `renewed_tick`. The entry is renewed
    /// only from time to time: a look-up here takes about half as long as such a hit. If it is renewed now, `log` is
    /// called with the time, under the lock of the shard.
    pub(crate) fn hit_in_memory(&self, hash: &KeyHash, len_bytes: u32, renewed_tick: u32, log: impl FnOnce(u32)) {
        let age = self.use_tick().wrapping_sub(renewed_tick);
        if age < NEAR_TICKS && self.recency.is_near_the_origin(len_bytes) {
            self.recency.count_near_hit();
            return;
        }

        let (mut shard, now) = self.lock(hash.shard());
        if matches!(self.find(&mut shard, now, hash), Found::Block(_)) {
            log(now as u32);
        }
    }

    /// Makes the block of a key the newest, without counting a look-up. Returns whether the key is cached.
    pub(crate) fn touch(&self, hash: &KeyHash) -> bool {
        let (mut shard, now) = self.lock(hash.shard());
        let Some((place, mut entry)) = shard.table.find(&hash.rest()).filter(|(_, entry)| !is_ghost(entry)) else {
            return false;
        };
        self.renew(&mut shard, now, place, &mut entry);
        drop(shard);
        self.used(entry.extent.len_bytes);
        true
    }

    /// Makes an entry the newest.
    fn renew(&self, shard: &mut Shard, now: u64, place: Place, entry: &mut Entry) {
        if entry.tick != short(now) {
            ring(&self.recency, entry).renew(now, entry.tick, short(now), entry.extent.len_bytes);
            entry.tick = short(now);
            shard.table.write(place, entry);
        }
    }

    /// Returns the block of a key without counting a use; `None` for a ghost.
    pub(crate) fn peek(&self, hash: &KeyHash) -> Option<Entry> {
        let (shard, _) = self.lock(hash.shard());
        shard.table.find(&hash.rest()).and_then(|(_, entry)| block(entry))
    }

    /// Begins an insert, and supersedes those of the same key in flight. The cached block stays until the insert ends.
    pub(crate) fn begin_insert(&self, hash: &KeyHash) -> Token {
        let (mut shard, _) = self.lock(hash.shard());
        shard.begin_insert(hash.rest())
    }

    /// Begins an insert of a value still to be fetched. Any insert or removal of the key that begins before it ends
    /// supersedes it. Returns `None` if an insert of the key is in flight already: that one is newer.
    pub(crate) fn lease(&self, hash: &KeyHash) -> Option<Token> {
        let (mut shard, _) = self.lock(hash.shard());
        let is_free = !shard.in_flight.contains_key(&hash.rest());
        is_free.then(|| shard.begin_insert(hash.rest()))
    }

    /// Ends an insert whose block was written to `extent`: the block is found from now on, unless it was superseded.
    ///
    /// Calls `log` under the lock with the replaced block, if any, and the new one; not if the insert was superseded.
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
        self.forget_some(&mut shard, now, &rest);
        drop(shard);
        self.used(extent.len_bytes);
        Finish::Indexed { displaced }
    }

    /// Ends an insert with a ghost instead of a block, if the key is unknown and the insert is the newest. Returns
    /// whether it did.
    pub(crate) fn reject_first(&self, hash: &KeyHash, token: Token, len_bytes: u32) -> bool {
        let (mut shard, now) = self.lock(hash.shard());
        let rest = hash.rest();
        if shard.table.find(&rest).is_some() || shard.in_flight.get(&rest) != Some(&token) {
            return false;
        }
        shard.in_flight.remove(&rest);

        // An entry has at least 1 byte, and an object may have none.
        let len_bytes = len_bytes.max(1);
        let ghost = Entry { extent: ghost_of(len_bytes), checksum: 0, tick: short(now) };
        self.put(&mut shard, now, &rest, &ghost);
        self.forget_some(&mut shard, now, &rest);
        drop(shard);
        self.used(len_bytes);
        true
    }

    /// Drops ghosts near a key if there are far too many.
    fn forget_some(&self, shard: &mut Shard, now: u64, rest: &Rest) {
        if self.recency.is_far_over_budget() {
            shard.table.visit_bucket_of(rest, |_, entry| !self.forget_surplus(now, entry));
        }
    }

    /// Puts an entry into the table, and counts it and the displaced one. Returns the displaced block.
    fn put(&self, shard: &mut Shard, now: u64, rest: &Rest, entry: &Entry) -> Option<Entry> {
        self.count_in(now, entry);
        let displaced = shard.table.insert(rest, entry)?;
        self.count_out(now, &displaced);
        block(displaced)
    }

    /// Ends an insert without a block. Returns whether it was the newest; if not, nothing changes.
    pub(crate) fn abort_insert(&self, hash: &KeyHash, token: Token) -> bool {
        let (mut shard, _) = self.lock(hash.shard());
        let is_newest = shard.in_flight.get(&hash.rest()) == Some(&token);
        if is_newest {
            shard.in_flight.remove(&hash.rest());
        }
        is_newest
    }

    /// Removes the block or ghost of a key, and supersedes inserts of the key in flight. Returns the block, if there
    /// was one, and calls `log` with it under the lock.
    pub(crate) fn remove(&self, hash: &KeyHash, log: impl FnOnce(Entry)) -> Option<Entry> {
        let (mut shard, now) = self.lock(hash.shard());
        shard.in_flight.remove(&hash.rest());
        let (place, entry) = shard.table.find(&hash.rest())?;
        self.take(&mut shard, now, place, entry, log)
    }

    /// Calls `act` under the lock, if the key still has this block: no change of the key comes between.
    pub(crate) fn while_current(&self, hash: &KeyHash, known: &Entry, act: impl FnOnce()) {
        let (shard, _) = self.lock(hash.shard());
        let current = shard.table.find(&hash.rest());
        if current.is_some_and(|(_, entry)| !is_ghost(&entry) && entry.is_same_block(known)) {
            act();
        }
    }

    /// Removes a block that turned out to be corrupt or unreadable, if the key still has it. Inserts in flight
    /// continue, for they will heal it.
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

    /// Points the entry of a copied block to `to`. Returns false and changes nothing if the key no longer has the block
    /// `from`. Calls `log` under the lock with the old and the new entry.
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

    /// Recovery: adds an entry (or ghost) as it was logged. Returns the block that it displaced. Call
    /// [`Index::set_now`] before. A tick up to 16,384 ticks in the future becomes now; an age beyond 32,767 becomes
    /// 32,767.
    pub(crate) fn restore(&self, hash: KeyHash, entry: Entry) -> Option<Entry> {
        let (mut shard, now) = self.lock(hash.shard());
        let age = short(now).wrapping_sub(entry.tick);
        let age = if age > u16::MAX - 16_384 { 0 } else { age.min(OLDEST_AGE) };
        let entry = Entry { tick: short(now).wrapping_sub(age), ..entry };
        self.put(&mut shard, now, &hash.rest(), &entry)
    }

    /// Recovery: removes a key (or ghost). Returns its block.
    pub(crate) fn forget(&self, hash: &KeyHash) -> Option<Entry> {
        self.remove(hash, |_| ())
    }

    /// Returns the clock, as blocks in memory store it.
    pub(crate) fn use_tick(&self) -> u32 {
        self.recency.now() as u32
    }

    /// Returns the clock, as entries store it.
    pub(crate) fn now_tick(&self) -> u16 {
        short(self.recency.now())
    }

    /// Recovery: advances the clock to `tick`. Call it before entries are restored; with entries, the sums of their
    /// ages would be wrong for a while.
    pub(crate) fn set_now(&self, tick: u16) {
        self.recency.set_now(tick);
    }

    /// Returns how many ticks ago an entry was used.
    pub(crate) fn age(&self, entry: &Entry) -> u16 {
        self.now_tick().wrapping_sub(entry.tick)
    }

    /// Returns the largest age, in ticks, such that blocks of at least that age take at least `bytes`. Returns 0 if all
    /// blocks together take less, and `u16::MAX` for 0 bytes.
    ///
    /// Exact up to an age of 1023. Older blocks are known in groups of 128 ticks, and the age is that of a group's
    /// youngest block. So a caller that wants no more than `bytes` stops when it has them.
    pub(crate) fn cutoff_age(&self, bytes: u64) -> u16 {
        self.recency.cutoff_age(bytes)
    }

    /// Visits further blocks until about `max_entries` entries were seen (whole buckets; ghosts count), or all. Drops
    /// ghosts beyond their budget on the way. Locks one shard at a time, for one bucket; calls `visit` under the lock.
    ///
    /// Whatever happens between and during the calls, a block that is in the index from the first call to the last is
    /// visited exactly once in a pass. One that comes, is replaced or removed meanwhile is visited at most once.
    pub(crate) fn sweep(
        &self,
        cursor: &mut Cursor,
        max_entries: usize,
        mut visit: impl FnMut(KeyHash, &Entry) -> Verdict,
    ) {
        self.recency.refresh();

        let mut seen = 0;
        while !cursor.is_done() && seen < max_entries.max(1) {
            // Always fits: there are as many shards as a byte has values.
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

    /// Returns the next blocks of a pass that changes none, about [`PASS_ENTRIES`] at most; `None` after the last. As
    /// for [`Index::sweep`], a block that stays in the index is returned once. An empty list is not the end: there may
    /// have been ghosts alone.
    pub(crate) fn next_blocks(&self, cursor: &mut Cursor) -> Option<Vec<(KeyHash, Entry)>> {
        if cursor.is_done() {
            return None;
        }
        let mut blocks = Vec::new();
        self.sweep(cursor, PASS_ENTRIES, |hash, entry| {
            blocks.push((hash, *entry));
            Verdict::Keep
        });
        Some(blocks)
    }

    fn make_ghost(&self, now: u64, entry: &mut Entry) {
        self.count_out(now, entry);
        entry.extent = ghost_of(entry.extent.len_bytes);
        entry.checksum = 0;
        self.count_in(now, entry);
    }

    /// Returns whether an entry is a ghost beyond the budget. If so, also takes it out of the sums.
    fn forget_surplus(&self, now: u64, entry: &Entry) -> bool {
        let is_surplus = is_ghost(entry) && self.recency.is_ghost_surplus(now, entry.tick);
        if is_surplus {
            self.count_out(now, entry);
        }
        is_surplus
    }

    /// Returns the hits by cache size since the curve was cleared.
    pub(crate) fn curve(&self) -> HitCurve {
        self.recency.curve(self.sum(|shard| shard.lookups))
    }

    /// Clears the curve.
    pub(crate) fn clear_curve(&self) {
        for number in 0..INDEX_SHARDS {
            self.lock(number).0.lookups = 0;
        }
        self.recency.clear_curve();
    }

    fn sum(&self, of: impl Fn(&Shard) -> u64) -> u64 {
        (0..INDEX_SHARDS).map(|number| of(&self.lock(number).0)).sum()
    }

    /// Returns the number of blocks.
    pub(crate) fn blocks(&self) -> u64 {
        self.recency.blocks.entries.load(Relaxed)
    }

    /// Returns the bytes of the data of all blocks.
    pub(crate) fn block_bytes(&self) -> u64 {
        self.recency.blocks.data_bytes.load(Relaxed)
    }

    /// Returns the bytes that all blocks take in whole sectors: those of [`Index::cutoff_age`].
    pub(crate) fn space_bytes(&self) -> u64 {
        self.recency.blocks.bytes.load(Relaxed)
    }

    /// Returns the number of ghosts.
    pub(crate) fn ghosts(&self) -> u64 {
        self.recency.ghosts.entries.load(Relaxed)
    }

    /// Returns the memory of the index in bytes, with unused capacity and an estimate of the heap's own overhead.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let shards = self.sum(|shard| (shard.table.heap_bytes() + shard.in_flight.len() * IN_FLIGHT_BYTES) as u64);
        let fixed = size_of::<Index>()
            + INDEX_SHARDS * size_of::<Mutex<Shard>>()
            + self.recency.heap_bytes()
            + 5 * ALLOCATION_OVERHEAD_BYTES;
        shards + fixed as u64
    }
}
