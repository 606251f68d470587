//! One slab: what of its space is allocated, freed but not yet returned, or free.
//!
//! # Why
//! The allocator decides which slab; a slab decides where in it. Small blocks of one size need a bit a slot, large ones
//! of mixed sizes need ranges.
//!
//! # How it works
//! All positions are in units of 512 bytes. A [`Space`] counts its units in four states and keeps them in one of two
//! maps:
//! - [`Slots`]: slots of one size, a bit each; the lowest free slot goes first, so that what is inserted in a row lies
//!   in a row.
//! - [`Ranges`]: free ranges in order; the search goes on where the last one ended (next fit), and wraps once.
//!
//! Freed space waits twice: `freeing` until a checkpoint begins, `leaving` until that checkpoint is durable.
//!
//! # Limits
//! A map of slots takes three bits a slot. A map of ranges grows with its fragmentation: at the most with every other
//! sector free.
//!
//! # Example
//! A slab of 1 MiB in slots of 8 KiB: 128 slots of 16 units. The first block gets offset 0, the second 16; when the
//! first is freed and a checkpoint has begun and finished, the next block gets offset 0 again.

use std::collections::BTreeMap;

use super::bucket::Key;
use super::geometry::ClaimError;

/// What a slab is used for.
#[derive(Debug)]
pub(super) enum Slab {
    /// Nobody uses it; its key is here to be found in the disk's set of free slabs.
    Free(Key),
    /// A log or a snapshot has it.
    Metadata,
    /// A log or a snapshot had it: free after a checkpoint; the one under way if `is_leaving`.
    FreedMetadata { is_leaving: bool },
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

/// Which list of the allocator has a slab of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Claimed since slabs were last put in order.
    Unsorted,
    /// May be opened; this is its rank.
    Candidate(Key),
    /// Was open and had no room for a block; its longest free range, in units.
    Passed(u32),
    /// The next blocks go there.
    Open,
    /// Is being emptied.
    Evacuating,
}

/// Units of a slab by state. Their sum, and what is too short for a slot at the end, is the slab.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) allocated: u32,
    pub(super) freeing: u32,
    pub(super) leaving: u32,
    pub(super) free: u32,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Space {
    counts: Counts,
    map: Map,
}

#[derive(Debug)]
enum Map {
    Slots(Slots),
    Ranges(Ranges),
}

impl Space {
    /// All free, in slots of `slot_units`.
    pub(super) fn slots(slab_units: u32, slot_units: u32) -> Space {
        let slots = Slots::new(slab_units / slot_units, slot_units);
        Space { counts: Counts { free: slots.count * slot_units, ..Counts::default() }, map: Map::Slots(slots) }
    }

    /// All free, for blocks of any length.
    pub(super) fn ranges(slab_units: u32) -> Space {
        let ranges = Ranges { free: RangeSet::of(0, slab_units), ..Ranges::default() };
        Space { counts: Counts { free: slab_units, ..Counts::default() }, map: Map::Ranges(ranges) }
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    /// Nothing in it, not even something freed.
    pub(super) fn is_empty(&self) -> bool {
        self.counts.allocated + self.counts.freeing + self.counts.leaving == 0
    }

    /// Room for `units` (a slot's, where there are slots), as an offset in units.
    pub(super) fn allocate(&mut self, units: u32) -> Option<u32> {
        let offset = match &mut self.map {
            Map::Slots(slots) => slots.allocate()?,
            Map::Ranges(ranges) => ranges.allocate(units)?,
        };
        self.counts.free -= units;
        self.counts.allocated += units;
        Some(offset)
    }

    /// Takes just this place, which must be free.
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

    /// From allocated to freeing. False, and nothing done, if not all of it is allocated.
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

    /// From freeing to leaving; nothing is leaving yet.
    pub(super) fn begin_checkpoint(&mut self) {
        match &mut self.map {
            Map::Slots(slots) => std::mem::swap(&mut slots.freeing, &mut slots.leaving),
            Map::Ranges(ranges) => std::mem::swap(&mut ranges.freeing, &mut ranges.leaving),
        }
        std::mem::swap(&mut self.counts.freeing, &mut self.counts.leaving);
    }

    /// From leaving back to freeing.
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

    /// From leaving to free: how many units.
    pub(super) fn finish_checkpoint(&mut self) -> u32 {
        match &mut self.map {
            Map::Slots(slots) => {
                for (taken, leaving) in slots.taken.iter_mut().zip(&mut slots.leaving) {
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

    /// The longest block for which there is room, in units.
    pub(super) fn longest_free_units(&self) -> u32 {
        match &self.map {
            Map::Slots(slots) => self.counts.free.min(slots.slot_units),
            Map::Ranges(ranges) => ranges.free.0.iter().map(|(start, end)| end - start).max().unwrap_or(0),
        }
    }

    /// How many pieces the free space is in.
    pub(super) fn free_segments(&self) -> u32 {
        match &self.map {
            Map::Slots(slots) => slots.free_segments(),
            Map::Ranges(ranges) => u32::try_from(ranges.free.0.len()).unwrap_or(u32::MAX),
        }
    }

    /// Counts agree with the map, and no unit is in two states.
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
    /// Not allocatable: allocated, freeing or leaving; the bits after the last slot, too.
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

    /// The word and the bit of the slot that begins at `offset`.
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
    /// Where the last block ended.
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

    /// Adds what does not overlap, joined with its neighbours.
    fn insert(&mut self, mut start: u32, mut end: u32) {
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

    /// Takes out what lies within one range. False, and nothing done, if it does not.
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
    /// The blocks, if it has any.
    pub(super) fn data(&self) -> Option<&Data> {
        match self {
            Slab::Data(data) => Some(data),
            _ => None,
        }
    }

    /// As [`Slab::data`].
    pub(super) fn data_mut(&mut self) -> Option<&mut Data> {
        match self {
            Slab::Data(data) => Some(data),
            _ => None,
        }
    }
}
