//! The entries of one index shard: 23 bytes each, and little more.
//!
//! # Why
//! There may be a hundred million entries. The standard library's hash map adds 1 byte to every entry and up to half
//! its capacity unused, and doubles all of it at once: a pause and a peak. Here the memory grows with the entries,
//! bucket by bucket.
//!
//! # How it works
//! Linear hashing (W. Litwin, "Linear hashing: a new tool for file and table addressing", VLDB 1980): the number of
//! buckets grows and shrinks by one, and always the next bucket in turn is split or merged, so there is no directory of
//! pointers to double. A bucket is a sorted vector of packed entries that grows by 4 entries at a time.
//!
//! The first bits of the stored hash choose the bucket, in reverse order (first bit = lowest). So every bucket holds a
//! *range* of hashes: a split cuts a sorted vector in two, a merge appends one vector to another, and a position in the
//! order of hashes keeps its meaning. [`Table::visit`] relies on that.
//!
//! With n buckets and L = floor(log2 n), bucket b < 2^L has been split in this round if b + 2^L < n; then it, and the
//! one split off it, are chosen by L + 1 bits, the others by L.
//!
//! # Memory
//! Each bucket of about [`SPLIT_ENTRIES`] entries costs a vector's header (24 bytes), the heap's overhead (assumed to
//! be [`ALLOCATION_OVERHEAD_BYTES`]), and on average 2 to 3 unused entries: together less than 0.7 bytes per entry.
//!
//! # Limits
//! Ranges are of the first 32 bits of a hash: the split of 2^32 buckets would be the last. Not thread-safe: the shard's
//! lock protects a table.
//!
//! # Example
//! ```text
//! 3 buckets (L = 1)           first bits    the next insert beyond the mean splits bucket 1:
//! bucket 0 (has been split)   00...         bucket 0   00...
//! bucket 1                    1....         bucket 1   10...
//! bucket 2 (split off 0)      01...         bucket 2   01...
//!                                           bucket 3   11...
//! ```

use crate::entry::{Entry, Extent, MAX_BLOCK_BYTES, SlabId};
use crate::key::HASH_BYTES;

/// The part of a hash that an entry stores; the index shard is the remaining byte.
pub(super) type Rest = [u8; HASH_BYTES - 1];

/// Bytes of an entry in memory: 9 of its hash, 3 slab, 2 offset, 3 length, 2 tick, 4 checksum.
pub(super) const ENTRY_BYTES: usize = 23;

type Packed = [u8; ENTRY_BYTES];

/// Mean entries per bucket beyond which a bucket is split.
const SPLIT_ENTRIES: usize = 200;

/// Mean entries per bucket, after a merge, below which two buckets are merged. Far enough below [`SPLIT_ENTRIES`] that
/// a table of nearly constant size does not split and merge all the time.
const MERGE_ENTRIES: usize = 160;

/// Entries by which a bucket's capacity grows.
const GROW_ENTRIES: usize = 4;

/// Unused entries at which a bucket's capacity shrinks.
const SLACK_ENTRIES: usize = 6;

/// First step of the search around the guessed place: the deviation of 200 evenly spread entries is at most 7.
const GUESS_ENTRIES: usize = 7;

/// Estimated overhead of a heap allocation, for its header and rounding, in bytes.
pub(super) const ALLOCATION_OVERHEAD_BYTES: usize = 16;

/// The place of an entry, from [`Table::find`]. Valid until the table is changed by anything but [`Table::write`].
#[derive(Clone, Copy)]
pub(super) struct Place {
    bucket: usize,
    at: usize,
}

/// Returns the first 32 bits of a hash: its position in the order in which buckets are cut and visited.
fn prefix([a, b, c, d, ..]: &Rest) -> u32 {
    u32::from_be_bytes([*a, *b, *c, *d])
}

fn rest_of(packed: &Packed) -> Rest {
    let [rest @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _] = *packed;
    rest
}

/// Returns a sort key with the same order as the bytes, which compares in two steps instead of nine.
fn order([head @ .., last]: &Rest) -> (u64, u8) {
    (u64::from_be_bytes(*head), *last)
}

fn pack(rest: &Rest, entry: &Entry) -> Packed {
    let [s0, s1, s2, _] = entry.extent.slab.0.to_le_bytes();
    let [o0, o1] = entry.extent.offset_units.to_le_bytes();
    let [l0, l1, l2, _] = (entry.extent.len_bytes.clamp(1, MAX_BLOCK_BYTES) - 1).to_le_bytes();
    let [t0, t1] = entry.tick.to_le_bytes();
    let [c0, c1, c2, c3] = entry.checksum.to_le_bytes();
    let [h0, h1, h2, h3, h4, h5, h6, h7, h8] = *rest;
    [h0, h1, h2, h3, h4, h5, h6, h7, h8, s0, s1, s2, o0, o1, l0, l1, l2, t0, t1, c0, c1, c2, c3]
}

fn unpack(packed: &Packed) -> Entry {
    let [_, _, _, _, _, _, _, _, _, s0, s1, s2, o0, o1, l0, l1, l2, t0, t1, c0, c1, c2, c3] = *packed;
    Entry {
        extent: Extent {
            slab: SlabId(u32::from_le_bytes([s0, s1, s2, 0])),
            offset_units: u16::from_le_bytes([o0, o1]),
            len_bytes: u32::from_le_bytes([l0, l1, l2, 0]) + 1,
        },
        checksum: u32::from_le_bytes([c0, c1, c2, c3]),
        tick: u16::from_le_bytes([t0, t1]),
    }
}

/// The entries of one index shard.
#[derive(Debug)]
pub(super) struct Table {
    /// Never empty.
    buckets: Vec<Vec<Packed>>,
    entries: usize,
    /// Capacity of all buckets, in entries.
    room_entries: usize,
}

impl Table {
    /// Returns an empty table: one bucket, without memory of its own.
    pub(super) fn new() -> Table {
        Table { buckets: vec![Vec::new()], entries: 0, room_entries: 0 }
    }

    /// Returns the number of entries.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries
    }

    /// Returns the memory on the heap in bytes, with an estimate of the heap's overhead.
    pub(super) fn heap_bytes(&self) -> usize {
        let directory_bytes = self.buckets.capacity() * size_of::<Vec<Packed>>();
        let allocations = self.buckets.len() + 1;
        self.room_entries * ENTRY_BYTES + directory_bytes + allocations * ALLOCATION_OVERHEAD_BYTES
    }

    /// Returns the number of bits that choose a bucket in this round; buckets already split use one more.
    fn level(&self) -> u32 {
        self.buckets.len().max(1).ilog2()
    }

    fn bucket_of(&self, position: u32) -> usize {
        let level = self.level();
        let bits = u64::from(position.reverse_bits()) & ((2 << level) - 1);
        let bucket = usize::try_from(bits).unwrap_or(usize::MAX);
        if bucket < self.buckets.len() { bucket } else { bucket & ((1 << level) - 1) }
    }

    /// Returns the range of the bucket that has `position`: its start, and its end (2^32 for the last one).
    fn range(&self, position: u32) -> (u64, u64) {
        let (bucket, level) = (self.bucket_of(position), self.level());
        let is_split = bucket >= 1 << level || bucket + (1 << level) < self.buckets.len();
        let width = 1_u64 << (32 - (level + u32::from(is_split)).min(32));
        let start = u64::from(position) & !(width - 1);
        (start, start + width)
    }

    /// Finds the place of a hash in its bucket, or where it belongs. Hashes are spread evenly over the bucket's range,
    /// so the place is guessed, and the search continues from there in growing steps: 3 adjacent cache lines instead
    /// of 6.
    fn search(&self, bucket: &[Packed], rest: &Rest) -> Result<usize, usize> {
        let (start, end) = self.range(prefix(rest));
        let part = (u64::from(prefix(rest)) - start) * bucket.len() as u64 / (end - start);
        let guess = (part as usize).min(bucket.len());
        let wanted = order(rest);
        let is_before = |at: usize| bucket.get(at).is_some_and(|packed| order(&rest_of(packed)) < wanted);

        let (mut low, mut high, mut step) = (guess, guess, GUESS_ENTRIES);
        if is_before(guess) {
            while is_before(high) {
                low = high;
                high = (high + step).min(bucket.len());
                step *= 2;
            }
        } else {
            while low > 0 && !is_before(low) {
                high = low;
                low = low.saturating_sub(step);
                step *= 2;
            }
        }

        let near = bucket.get(low..high).unwrap_or_default();
        let at = low + near.partition_point(|packed| order(&rest_of(packed)) < wanted);
        if bucket.get(at).is_some_and(|packed| rest_of(packed) == *rest) { Ok(at) } else { Err(at) }
    }

    /// Returns the entry of a hash, and its place.
    pub(super) fn find(&self, rest: &Rest) -> Option<(Place, Entry)> {
        let number = self.bucket_of(prefix(rest));
        let bucket = self.buckets.get(number)?;
        let at = self.search(bucket, rest).ok()?;
        Some((Place { bucket: number, at }, unpack(bucket.get(at)?)))
    }

    /// Replaces the entry at a place; its hash stays.
    pub(super) fn write(&mut self, place: Place, entry: &Entry) {
        if let Some(packed) = self.buckets.get_mut(place.bucket).and_then(|bucket| bucket.get_mut(place.at)) {
            *packed = pack(&rest_of(packed), entry);
        }
    }

    /// Adds or replaces the entry of a hash. Returns the old one.
    pub(super) fn insert(&mut self, rest: &Rest, entry: &Entry) -> Option<Entry> {
        let number = self.bucket_of(prefix(rest));
        let found = self.search(self.buckets.get(number)?, rest);
        let bucket = self.buckets.get_mut(number)?;
        match found {
            Ok(at) => bucket.get_mut(at).map(|packed| unpack(&std::mem::replace(packed, pack(rest, entry)))),
            Err(at) => {
                let before = bucket.capacity();
                if bucket.len() == before {
                    bucket.reserve_exact(GROW_ENTRIES);
                }
                bucket.insert(at, pack(rest, entry));
                self.room_entries += bucket.capacity() - before;
                self.entries += 1;
                if self.entries > SPLIT_ENTRIES * self.buckets.len() {
                    self.split();
                }
                None
            }
        }
    }

    /// Removes the entry at a place.
    pub(super) fn remove(&mut self, place: Place) {
        let Some(bucket) = self.buckets.get_mut(place.bucket) else { return };
        if place.at < bucket.len() {
            bucket.remove(place.at);
            self.entries -= 1;
            self.trim(place.bucket);
            self.merge();
        }
    }

    /// Calls `keep` with every entry from `position` to the end of its bucket. `keep` may change the entry, and returns
    /// false to remove it. Returns the position to continue at (2^32 at the end) and the number of entries visited.
    ///
    /// Positions are hashes, not places: whatever is inserted, removed, split or merged between two calls, an entry
    /// that stays is visited exactly once between position 0 and the end.
    pub(super) fn visit(&mut self, position: u32, mut keep: impl FnMut(&Rest, &mut Entry) -> bool) -> (u64, usize) {
        let (_, end) = self.range(position);
        let number = self.bucket_of(position);
        let Some(bucket) = self.buckets.get_mut(number) else { return (end, 0) };
        let (before, mut shown) = (bucket.len(), 0);

        bucket.retain_mut(|packed| {
            let rest = rest_of(packed);
            if prefix(&rest) < position {
                return true;
            }
            shown += 1;
            let old = unpack(packed);
            let mut entry = old;
            let is_kept = keep(&rest, &mut entry);
            if entry != old {
                *packed = pack(&rest, &entry);
            }
            is_kept
        });

        let removed = before - bucket.len();
        if removed > 0 {
            self.entries -= removed;
            self.trim(number);
            self.merge();
        }
        (end, shown)
    }

    /// Calls [`Table::visit`] for all of the bucket that a hash belongs to.
    pub(super) fn visit_bucket_of(&mut self, rest: &Rest, keep: impl FnMut(&Rest, &mut Entry) -> bool) {
        let (start, _) = self.range(prefix(rest));
        self.visit(u32::try_from(start).unwrap_or(0), keep);
    }

    /// Calls `change` with every entry.
    pub(super) fn for_each(&mut self, mut change: impl FnMut(&mut Entry)) {
        for packed in self.buckets.iter_mut().flatten() {
            let old = unpack(packed);
            let mut entry = old;
            change(&mut entry);
            if entry != old {
                *packed = pack(&rest_of(packed), &entry);
            }
        }
    }

    /// Shrinks a bucket's capacity, if enough of it is unused.
    fn trim(&mut self, number: usize) {
        let Some(bucket) = self.buckets.get_mut(number) else { return };
        let before = bucket.capacity();
        if before - bucket.len() >= SLACK_ENTRIES {
            bucket.shrink_to(bucket.len() + GROW_ENTRIES / 2);
            self.room_entries -= before - bucket.capacity();
        }
    }

    /// Splits the next bucket in turn.
    fn split(&mut self) {
        let level = self.level();
        if level >= 32 {
            return;
        }
        let number = self.buckets.len() - (1 << level);
        let Some(bucket) = self.buckets.get_mut(number) else { return };
        let cut = bucket.partition_point(|packed| prefix(&rest_of(packed)) >> (31 - level) & 1 == 0);
        let mut upper = Vec::new();
        upper.reserve_exact(bucket.len() - cut + GROW_ENTRIES / 2);
        upper.extend(bucket.drain(cut..));
        self.room_entries += upper.capacity();
        self.trim(number);
        if self.buckets.len() == self.buckets.capacity() {
            self.buckets.reserve_exact(self.buckets.len() / 8 + 4);
        }
        self.buckets.push(upper);
    }

    /// Merges the last bucket into the one that it was split off, as long as there are far too many.
    fn merge(&mut self) {
        while self.buckets.len() > 1 && self.entries < MERGE_ENTRIES * (self.buckets.len() - 1) {
            let Some(last) = self.buckets.pop() else { return };
            self.room_entries -= last.capacity();
            // The remaining buckets are as many as the popped one's number, so `level` is the same as when it was
            // split off.
            let number = self.buckets.len() - (1 << self.level());
            let Some(bucket) = self.buckets.get_mut(number) else { return };
            let before = bucket.capacity();
            bucket.reserve_exact(last.len());
            let of_bucket = bucket.last().map(|packed| order(&rest_of(packed)));
            let of_last = last.first().map(|packed| order(&rest_of(packed)));
            debug_assert!(of_last.is_none() || of_bucket < of_last, "the merged bucket is not in order");
            bucket.extend_from_slice(&last);
            self.room_entries += bucket.capacity() - before;
            self.trim(number);
        }
        if self.buckets.capacity() > 2 * self.buckets.len() + 8 {
            self.buckets.shrink_to(self.buckets.len() + self.buckets.len() / 8 + 4);
        }
    }
}
