//! One slab: which of its space is allocated, freed but not yet reusable, or free.
//!
//! # Why
//! The allocator decides which slab; a slab decides where in it. Small blocks of one size need one bit per slot, large
//! ones of mixed sizes need ranges.
//!
//! # How it works
//! All positions are in units of 512 bytes. A [`Space`] counts its units in four states and keeps them in one of two
//! maps:
//! - [`Slots`]: slots of one size, one bit each; the lowest free slot is taken first, so that consecutive inserts are
//!   adjacent.
//! - [`Ranges`]: free ranges in order; the search continues where the last one ended (next fit), and wraps once.
//!
//! Freed space waits twice: `freeing` until a checkpoint begins, `leaving` until that checkpoint is durable. A
//! checkpoint begins without a visit to the slabs: each learns of it ([`Space::follow`]) when it is touched next.
//!
//! # Limits
//! A map of slots takes three bits a slot. A map of ranges grows with fragmentation: the worst case is every other
//! sector free.
//!
//! # Example
//! A slab of 1 MiB in slots of 8 KiB: 128 slots of 16 units. The first block gets offset 0, the second 16; when the
//! first is freed and a checkpoint has begun and finished, the next block gets offset 0 again.

use std::collections::BTreeMap;

use super::bucket::Key;
use super::geometry::ClaimError;

/// The use of a slab.
#[derive(Debug)]
pub(super) enum Slab {
    /// Unused; its key finds it in the disk's set of free slabs.
    Free(Key),
    /// In use by a log or a snapshot.
    Metadata,
    /// Was in use by a log or a snapshot. Free after the checkpoint that begins after number `begun`.
    FreedMetadata { begun: u64 },
    /// Blocks of a bucket.
    Data(Box<Data>),
}

/// A slab of blocks.
#[derive(Debug)]
pub(super) struct Data {
    pub(super) bucket: usize,
    pub(super) place: Place,
    pub(super) space: Space,
}

/// The list of the allocator that holds a slab of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Claimed since slabs were last ranked.
    Unsorted,
    /// May be opened; with its rank.
    Candidate(Key),
    /// Was open and had no room for a block; with its longest free range, in units.
    Passed(u32),
    /// Takes the next blocks.
    Open,
    /// Is being emptied: in no list.
    Evacuating,
}

/// Units of a slab by state. With the remainder at the end that is too short for a slot, they add up to the slab.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) allocated: u32,
    pub(super) freeing: u32,
    pub(super) leaving: u32,
    pub(super) free: u32,
}

/// The space of one slab, by state.
#[derive(Debug)]
pub(super) struct Space {
    counts: Counts,
    map: Map,
    /// Number of the checkpoint that `leaving` belongs to. Once a later one has begun, `freeing` units are leaving.
    begun: u64,
}

#[derive(Debug)]
enum Map {
    Slots(Slots),
    Ranges(Ranges),
}

/// Words of a bitmap that are visited in the time of one range.
const WORDS_OF_PART: usize = 16;

impl Space {
    /// Returns a free slab in slots of `slot_units`.
    pub(super) fn slots(slab_units: u32, slot_units: u32) -> Space {
        let slots = Slots::new(slab_units / slot_units, slot_units);
        Space {
            counts: Counts { free: slots.count * slot_units, ..Counts::default() },
            map: Map::Slots(slots),
            begun: 0,
        }
    }

    /// Returns a free slab for blocks of any length.
    pub(super) fn ranges(slab_units: u32) -> Space {
        let ranges = Ranges { free: RangeSet::of(0, slab_units), ..Ranges::default() };
        Space { counts: Counts { free: slab_units, ..Counts::default() }, map: Map::Ranges(ranges), begun: 0 }
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns whether nothing is allocated, freeing or leaving.
    pub(super) fn is_empty(&self) -> bool {
        self.counts.allocated + self.counts.freeing + self.counts.leaving == 0
    }

    /// Allocates `units` (in a map of slots: a slot's). Returns their offset in units.
    pub(super) fn allocate(&mut self, units: u32) -> Option<u32> {
        let offset = match &mut self.map {
            Map::Slots(slots) => slots.allocate()?,
            Map::Ranges(ranges) => ranges.allocate(units)?,
        };
        self.counts.free -= units;
        self.counts.allocated += units;
        Some(offset)
    }

    /// Allocates exactly this place, which must be free.
    pub(super) fn claim(&mut self, offset: u32, units: u32) -> Result<(), ClaimError> {
        let is_free = match &mut self.map {
            Map::Slots(slots) => slots.claim(offset)?,
            Map::Ranges(ranges) => ranges.free.remove(offset, offset + units),
        };
        if !is_free {
            return Err(ClaimError::Overlap);
        }
        self.counts.free -= units;
        self.counts.allocated += units;
        Ok(())
    }

    /// Moves a place from allocated to freeing. Returns false and changes nothing if not all of it is allocated.
    pub(super) fn free(&mut self, offset: u32, units: u32) -> bool {
        let is_allocated = match &mut self.map {
            Map::Slots(slots) => slots.free(offset),
            Map::Ranges(ranges) => ranges.free(offset, offset + units),
        };
        if is_allocated {
            self.counts.allocated -= units;
            self.counts.freeing += units;
        }
        is_allocated
    }

    /// Marks as leaving the units that were freed before checkpoint number `begun` began, unless that is done.
    pub(super) fn follow(&mut self, begun: u64) {
        if std::mem::replace(&mut self.begun, begun) == begun {
            return;
        }
        debug_assert_eq!(self.counts.leaving, 0, "the checkpoint before has not ended");
        match &mut self.map {
            Map::Slots(slots) => std::mem::swap(&mut slots.freeing, &mut slots.leaving),
            Map::Ranges(ranges) => std::mem::swap(&mut ranges.freeing, &mut ranges.leaving),
        }
        std::mem::swap(&mut self.counts.freeing, &mut self.counts.leaving);
    }

    /// Moves all leaving units back to freeing.
    pub(super) fn abort_checkpoint(&mut self) {
        match &mut self.map {
            Map::Slots(slots) => {
                for (freeing, leaving) in slots.freeing.iter_mut().zip(&mut slots.leaving) {
                    *freeing |= std::mem::take(leaving);
                }
            }
            Map::Ranges(ranges) => ranges.leaving.drain_into(&mut ranges.freeing),
        }
        self.counts.freeing += std::mem::take(&mut self.counts.leaving);
    }

    /// Moves all leaving units to free. Returns how many.
    pub(super) fn finish_checkpoint(&mut self) -> u32 {
        match &mut self.map {
            Map::Slots(slots) => {
                for (taken, leaving) in slots.taken.iter_mut().zip(&mut slots.leaving) {
                    debug_assert_eq!(*leaving & !*taken, 0, "a slot that is free leaves");
                    *taken &= !std::mem::take(leaving);
                }
                slots.search_from = 0;
            }
            Map::Ranges(ranges) => ranges.leaving.drain_into(&mut ranges.free),
        }
        let units = std::mem::take(&mut self.counts.leaving);
        self.counts.free += units;
        units
    }

    /// Returns the units that are freeing and those that are leaving, now that checkpoint number `begun` has begun.
    pub(super) fn freed(&self, begun: u64) -> (u32, u32) {
        if self.begun == begun { (self.counts.freeing, self.counts.leaving) } else { (0, self.counts.freeing) }
    }

    /// Returns the parts of the map that the next [`Space::finish_checkpoint`] visits: a range takes as long as some
    /// words of a bitmap.
    pub(super) fn parts_leaving(&self) -> usize {
        match &self.map {
            Map::Slots(slots) => slots.leaving.len().div_ceil(WORDS_OF_PART),
            Map::Ranges(ranges) => ranges.leaving.0.len(),
        }
    }

    /// Returns the length of the longest block that fits, in units.
    pub(super) fn longest_free_units(&self) -> u32 {
        match &self.map {
            Map::Slots(slots) => self.counts.free.min(slots.slot_units),
            Map::Ranges(ranges) => ranges.free.0.iter().map(|(start, end)| end - start).max().unwrap_or(0),
        }
    }

    /// Returns the number of pieces that the free space is in.
    pub(super) fn free_segments(&self) -> u32 {
        match &self.map {
            Map::Slots(slots) => slots.free_segments(),
            Map::Ranges(ranges) => u32::try_from(ranges.free.0.len()).unwrap_or(u32::MAX),
        }
    }

    /// Checks that the counts agree with the map, and that no unit is in two states.
    pub(super) fn check(&self, slab_units: u32) -> Result<(), String> {
        let counted = match &self.map {
            Map::Slots(slots) => slots.count_all()?,
            Map::Ranges(ranges) => ranges.count_all(slab_units)?,
        };
        if counted == self.counts { Ok(()) } else { Err(format!("counts {:?}, the map has {counted:?}", self.counts)) }
    }
}

/// Slots of one size.
#[derive(Debug)]
struct Slots {
    slot_units: u32,
    count: u32,
    /// Allocated, freeing or leaving; also the bits after the last slot.
    taken: Vec<u64>,
    freeing: Vec<u64>,
    leaving: Vec<u64>,
    /// No word before this one has a free slot.
    search_from: usize,
}

impl Slots {
    fn new(count: u32, slot_units: u32) -> Slots {
        let words = count.div_ceil(64) as usize;
        let mut taken = vec![0; words];
        if let (Some(last), 1..) = (taken.last_mut(), count % 64) {
            *last = u64::MAX << (count % 64);
        }
        Slots { slot_units, count, taken, freeing: vec![0; words], leaving: vec![0; words], search_from: 0 }
    }

    fn allocate(&mut self) -> Option<u32> {
        for (index, word) in self.taken.iter_mut().enumerate().skip(self.search_from) {
            if *word != u64::MAX {
                let bit = word.trailing_ones();
                *word |= 1 << bit;
                self.search_from = index;
                return Some((index as u32 * 64 + bit) * self.slot_units);
            }
        }
        self.search_from = self.taken.len();
        None
    }

    /// Returns the word and the bit of the slot that begins at `offset`.
    fn slot(&self, offset: u32) -> Result<(usize, u64), ClaimError> {
        let slot = offset / self.slot_units;
        match (offset % self.slot_units, slot < self.count) {
            (0, true) => Ok(((slot / 64) as usize, 1 << (slot % 64))),
            (0, false) => Err(ClaimError::OutsideOfDisk),
            _ => Err(ClaimError::Misaligned),
        }
    }

    fn claim(&mut self, offset: u32) -> Result<bool, ClaimError> {
        let (word, bit) = self.slot(offset)?;
        let is_free = self.taken[word] & bit == 0;
        self.taken[word] |= bit;
        Ok(is_free)
    }

    fn free(&mut self, offset: u32) -> bool {
        let Ok((word, bit)) = self.slot(offset) else { return false };
        let is_allocated = self.taken[word] & bit != 0 && (self.freeing[word] | self.leaving[word]) & bit == 0;
        if is_allocated {
            self.freeing[word] |= bit;
        }
        is_allocated
    }

    fn free_segments(&self) -> u32 {
        let mut was_free = 0; // The last slot of the word before.
        let mut segments = 0;
        for word in &self.taken {
            let free = !word;
            segments += (free & !(free << 1 | was_free)).count_ones();
            was_free = free >> 63;
        }
        segments
    }

    fn count_all(&self) -> Result<Counts, String> {
        let mut counts = Counts::default();
        for ((taken, freeing), leaving) in self.taken.iter().zip(&self.freeing).zip(&self.leaving) {
            if freeing & leaving != 0 || (freeing | leaving) & !taken != 0 {
                return Err("a slot is in two states".to_string());
            }
            counts.allocated += (taken & !freeing & !leaving).count_ones() * self.slot_units;
            counts.freeing += freeing.count_ones() * self.slot_units;
            counts.leaving += leaving.count_ones() * self.slot_units;
            counts.free += taken.count_zeros() * self.slot_units;
        }
        counts.allocated -= (self.taken.len() as u32 * 64 - self.count) * self.slot_units;
        Ok(counts)
    }
}

/// Blocks of any length.
#[derive(Debug, Default)]
struct Ranges {
    free: RangeSet,
    freeing: RangeSet,
    leaving: RangeSet,
    /// End of the last allocation.
    cursor: u32,
}

impl Ranges {
    fn allocate(&mut self, units: u32) -> Option<u32> {
        let fits = |(start, end): (&u32, &u32)| (end - start >= units).then_some(*start);
        let ahead = self.free.0.range(self.cursor..).find_map(fits);
        let start = ahead.or_else(|| self.free.0.range(..self.cursor).find_map(fits))?;
        self.free.remove(start, start + units);
        self.cursor = start + units;
        Some(start)
    }

    fn free(&mut self, start: u32, end: u32) -> bool {
        let is_allocated = ![&self.free, &self.freeing, &self.leaving].iter().any(|set| set.overlaps(start, end));
        if is_allocated {
            self.freeing.insert(start, end);
        }
        is_allocated
    }

    fn count_all(&self, slab_units: u32) -> Result<Counts, String> {
        let mut all: Vec<(u32, u32)> = Vec::new();
        for set in [&self.free, &self.freeing, &self.leaving] {
            all.extend(set.0.iter().map(|(start, end)| (*start, *end)));
        }
        all.sort_unstable();
        let mut last_end = 0;
        for (start, end) in &all {
            if *start < last_end || end <= start || *end > slab_units {
                return Err(format!("units {start} to {end} are in two states, or outside"));
            }
            last_end = *end;
        }
        let (free, freeing, leaving) = (self.free.units(), self.freeing.units(), self.leaving.units());
        Ok(Counts { allocated: slab_units - free - freeing - leaving, freeing, leaving, free })
    }
}

/// Ranges that neither overlap nor touch: end by start.
#[derive(Debug, Default)]
struct RangeSet(BTreeMap<u32, u32>);

impl RangeSet {
    fn of(start: u32, end: u32) -> RangeSet {
        RangeSet(BTreeMap::from([(start, end)]))
    }

    fn units(&self) -> u32 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }

    fn overlaps(&self, start: u32, end: u32) -> bool {
        self.0.range(..end).next_back().is_some_and(|(_, other_end)| *other_end > start)
    }

    /// Adds a range that overlaps no other, and joins it with its neighbours.
    fn insert(&mut self, mut start: u32, mut end: u32) {
        debug_assert!(start < end && !self.overlaps(start, end), "{start}..{end} is in the set already, or empty");
        if let Some((&before, &before_end)) = self.0.range(..start).next_back()
            && before_end == start
        {
            self.0.remove(&before);
            start = before;
        }
        if let Some(after_end) = self.0.remove(&end) {
            end = after_end;
        }
        self.0.insert(start, end);
    }

    /// Removes a range that lies within one of the set. Returns false and changes nothing if it does not.
    fn remove(&mut self, start: u32, end: u32) -> bool {
        let Some((&first, &last)) = self.0.range(..=start).next_back() else { return false };
        if last < end {
            return false;
        }
        self.0.remove(&first);
        if first < start {
            self.0.insert(first, start);
        }
        if end < last {
            self.0.insert(end, last);
        }
        true
    }

    fn drain_into(&mut self, other: &mut RangeSet) {
        for (start, end) in std::mem::take(&mut self.0) {
            other.insert(start, end);
        }
    }
}

impl Slab {
    /// Returns the blocks of a slab that holds blocks.
    pub(super) fn data(&self) -> Option<&Data> {
        match self {
            Slab::Data(data) => Some(data),
            _ => None,
        }
    }

    /// Returns the blocks of a slab that holds blocks, to be changed.
    pub(super) fn data_mut(&mut self) -> Option<&mut Data> {
        match self {
            Slab::Data(data) => Some(data),
            _ => None,
        }
    }
}
