//! Stamps in what is written, checked when it is read.
//!
//! # Why
//! A disk that answers quickly may answer wrongly: old data, half of a write, somebody else's block. Checksums alone
//! do not see an old block, which is whole; so each block also says whose it is, where it belongs, and which write it
//! is of.
//!
//! # How it works
//! Each 512-byte sector begins with 32 bytes: magic and version, identity of file and run, the sector's own offset in
//! the file, and the generation of the write. It ends with the XXH3 checksum (64 bits) of all before it. Each of these
//! has 8 bytes, numbers little-endian.
//!
//! [`Stamps`] counts events: each write, its end, each read. The number of a write's beginning is its generation. For
//! each block (the smallest unit that requests write) it keeps the last settled write; blocks with requests under way
//! have a list of the writes that may be seen there.
//!
//! A read may see a write unless another write began after that one's end and was acknowledged before the read began.
//! So overlapping writes to a block, and a write that overlaps the read, are right either way, also sector by sector:
//! disks promise no more. A write that failed may be seen, whole or in part, until a later one is acknowledged.
//!
//! What a read must not see is named:
//! * *torn*: some sectors are right and others not, or of different writes, or a checksum is wrong;
//! * *stale*: a whole block of a write that was replaced;
//! * *misdirected*: a good stamp of another offset or identity;
//! * *foreign*: no stamp, or one of a write that was never made.
//!
//! # Limits
//! 8 bytes of memory a block; more than 1 GiB in all is refused. Blocks with requests under way take some 100 bytes
//! more until they are quiet. One [`Stamps`] must know all writers of its region: shards that write to the same region
//! cannot verify. What was written before a crash is not judged.
//!
//! # Example
//! ```text
//! write 1 of 4096 bytes at 0 is acknowledged, then write 2 of the same block, and a read brings write 1:
//! stale block at offset 0: expected write 2 to offset 0 of file 000000000000feed, found write 1
//! ```

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

use plimsoll_figures::units::format_bytes_binary;
use twox_hash::XxHash3_64;

use super::result::{BlockFault, FaultKind};

/// Each sector carries a stamp. Lengths and offsets of requests are multiples of it.
pub(super) const SECTOR_BYTES: usize = 512;
/// The most memory that the generations of a region may take: 1 GiB.
pub(super) const STAMPS_MAX_BYTES: u64 = 1 << 30;
/// Seven letters and the version.
const MAGIC: [u8; 8] = *b"PLIMSTA\x01";
const IDENTITY_AT: usize = 8;
const OFFSET_AT: usize = 16;
const GENERATION_AT: usize = 24;
const CHECKSUM_AT: usize = SECTOR_BYTES - size_of::<u64>();
/// The generation of what was in the region before the first write: anything. Nothing but what belongs elsewhere is a fault
/// until a write was acknowledged.
const BEFORE: u64 = 0;

/// Why a region or a request cannot be stamped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(super) enum StampError {
    /// Blocks are not of whole sectors.
    #[error("blocks of {0} bytes cannot be verified: request sizes must be multiples of {SECTOR_BYTES} bytes")]
    Block(u32),
    /// The generations would take too much memory.
    #[error(
        "to verify {} in blocks of {block_bytes} bytes takes more than {} of memory: lower data_size or raise reqsize",
        format_bytes_binary(*region_bytes), format_bytes_binary(STAMPS_MAX_BYTES)
    )]
    TooLarge {
        /// Length of the region.
        region_bytes: u64,
        /// Length of a block.
        block_bytes: u32,
    },
    /// A request that is not of whole blocks of the region.
    #[error("{len_bytes} bytes at {offset} are not whole blocks of the region that is verified")]
    Outside {
        /// Where it begins.
        offset: u64,
        /// Its length.
        len_bytes: u64,
    },
}

/// The generations of a region. See the module's documentation.
#[derive(Clone, Debug)]
pub(super) struct Stamps {
    identity: u64,
    region_offset: u64,
    block_bytes: u32,
    /// The number of the last event.
    clock: u64,
    /// The only write that may be seen in a block that is not in `busy`.
    settled: Vec<u64>,
    busy: HashMap<u64, Busy>,
}

/// A block with requests under way, or where more than one write may be seen.
#[derive(Clone, Debug)]
struct Busy {
    /// In the order in which they began; the first is the one that was settled.
    writes: Vec<Write>,
    readers: u32,
}

#[derive(Clone, Copy, Debug)]
struct Write {
    /// When it began.
    generation: u64,
    /// When it ended; `None` while it is under way.
    ended: Option<u64>,
    /// Whether it replaced what began to be seen before it: not if it failed.
    is_certain: bool,
}

impl Write {
    /// A write that ended before anything else began.
    fn settled(generation: u64) -> Write {
        Write { generation, ended: Some(generation), is_certain: true }
    }

    /// Whether it was acknowledged before `moment`.
    fn is_certain_at(&self, moment: u64) -> bool {
        self.is_certain && self.ended.is_some_and(|ended| ended < moment)
    }
}

impl Busy {
    fn new(settled: u64) -> Busy {
        // Room for one more: all that most blocks ever need.
        let mut writes = Vec::with_capacity(2);
        writes.push(Write::settled(settled));
        Busy { writes, readers: 0 }
    }

    /// The last beginning of a write that was acknowledged before `moment`: what ended before it cannot be seen.
    fn replaced_until(&self, moment: u64) -> u64 {
        self.writes.iter().filter(|write| write.is_certain_at(moment)).map(|write| write.generation).max().unwrap_or(0)
    }

    /// The writes that a read which began at `moment` may see.
    fn visible(&self, moment: u64) -> impl Iterator<Item = &Write> {
        let until = self.replaced_until(moment);
        self.writes.iter().filter(move |write| write.ended.is_none_or(|ended| ended >= until))
    }
}

impl Stamps {
    /// Nothing written yet. `identity` tells this file and run from all others; `block_bytes`, a multiple of
    /// [`SECTOR_BYTES`], divides the length of every request and its distance from `region_offset` (a multiple of
    /// [`SECTOR_BYTES`]). What is left of the region after the last whole block is not used.
    ///
    /// # Errors
    /// Blocks that are not whole sectors; more than [`STAMPS_MAX_BYTES`] of memory.
    pub(super) fn new(
        identity: u64,
        region_offset: u64,
        region_len_bytes: u64,
        block_bytes: u32,
    ) -> Result<Stamps, StampError> {
        if block_bytes == 0 || !(block_bytes as usize).is_multiple_of(SECTOR_BYTES) {
            return Err(StampError::Block(block_bytes));
        }
        let blocks = region_len_bytes / u64::from(block_bytes);
        if blocks > STAMPS_MAX_BYTES / size_of::<u64>() as u64 {
            return Err(StampError::TooLarge { region_bytes: region_len_bytes, block_bytes });
        }
        let settled = vec![BEFORE; blocks as usize];
        Ok(Stamps { identity, region_offset, block_bytes, clock: BEFORE, settled, busy: HashMap::new() })
    }

    /// A write of `len_bytes` at `offset` of the file begins; the answer is its generation. [`Stamps::put`] comes next.
    ///
    /// # Errors
    /// The request is not of whole blocks of the region.
    pub(super) fn begin_write(&mut self, offset: u64, len_bytes: u64) -> Result<u64, StampError> {
        let blocks = self.blocks(offset, len_bytes)?;
        self.clock += 1;
        let write = Write { generation: self.clock, ended: None, is_certain: false };
        for block in blocks {
            self.make_busy(block).writes.push(write);
        }
        Ok(self.clock)
    }

    /// Stamps a buffer of whole sectors (or a piece of it) that the write of this generation takes to `offset` of the
    /// file.
    pub(super) fn put(&self, buffer: &mut [u8], offset: u64, generation: u64) {
        put_stamps(self.identity, generation, buffer, offset);
    }

    /// The write of this generation, with the place that it began with, was acknowledged in full.
    pub(super) fn acknowledged(&mut self, offset: u64, len_bytes: u64, generation: u64) {
        self.write_ends(offset, len_bytes, generation, true);
    }

    /// The write of this generation failed, or came back short: whether it is on the disk is not known.
    pub(super) fn failed(&mut self, offset: u64, len_bytes: u64, generation: u64) {
        self.write_ends(offset, len_bytes, generation, false);
    }

    /// A read begins; the answer is its moment, for `Stamps::check_since`. `Stamps::end_read` must follow.
    ///
    /// # Errors
    /// The request is not of whole blocks of the region.
    pub(super) fn begin_read(&mut self, offset: u64, len_bytes: u64) -> Result<u64, StampError> {
        let blocks = self.blocks(offset, len_bytes)?;
        self.clock += 1;
        for block in blocks {
            self.make_busy(block).readers += 1;
        }
        Ok(self.clock)
    }

    /// What is wrong in a buffer (or a piece of it, of whole sectors) that a read which began at `moment` brought from
    /// `offset` of the file: one fault for each wrong block, at its first wrong sector. Call it before
    /// `Stamps::end_read`.
    #[must_use]
    pub(super) fn check_since(&self, buffer: &[u8], offset: u64, moment: u64) -> Vec<BlockFault> {
        let mut faults = Vec::new();
        let (mut rest, mut offset) = (buffer, offset);
        while !rest.is_empty() {
            let into_block = offset.saturating_sub(self.region_offset) % u64::from(self.block_bytes);
            let len_bytes = (u64::from(self.block_bytes) - into_block).min(rest.len() as u64) as usize;
            let (block, next) = rest.split_at(len_bytes);
            faults.extend(self.check_block(block, offset, moment));
            (rest, offset) = (next, offset.saturating_add(len_bytes as u64));
        }
        faults
    }

    /// A read ended, well or not.
    pub(super) fn end_read(&mut self, offset: u64, len_bytes: u64) {
        for block in self.blocks(offset, len_bytes).unwrap_or_default() {
            if let Some(busy) = self.busy.get_mut(&block) {
                busy.readers = busy.readers.saturating_sub(1);
            }
            self.settle(block);
        }
    }

    /// Whether a write of any part of `len_bytes` at `offset` of the file has begun; `false` outside of the region.
    #[must_use]
    pub(super) fn is_touched(&self, offset: u64, len_bytes: u64) -> bool {
        let is_written = |writes: &[Write]| writes.iter().any(|write| write.generation != BEFORE);
        self.blocks(offset, len_bytes).unwrap_or_default().any(|block| {
            self.settled_at(block) != BEFORE || self.busy.get(&block).is_some_and(|busy| is_written(&busy.writes))
        })
    }

    /// The blocks of a request.
    fn blocks(&self, offset: u64, len_bytes: u64) -> Result<Range<u64>, StampError> {
        let outside = StampError::Outside { offset, len_bytes };
        let block_bytes = u64::from(self.block_bytes);
        let Some(into_region) = offset.checked_sub(self.region_offset) else { return Err(outside) };
        if !into_region.is_multiple_of(block_bytes) || !len_bytes.is_multiple_of(block_bytes) {
            return Err(outside);
        }
        let (first, count) = (into_region / block_bytes, len_bytes / block_bytes);
        let end = first.saturating_add(count);
        if end <= self.settled.len() as u64 { Ok(first..end) } else { Err(outside) }
    }

    fn settled_at(&self, block: u64) -> u64 {
        usize::try_from(block).ok().and_then(|at| self.settled.get(at)).copied().unwrap_or(BEFORE)
    }

    fn make_busy(&mut self, block: u64) -> &mut Busy {
        let settled = self.settled_at(block);
        self.busy.entry(block).or_insert_with(|| Busy::new(settled))
    }

    fn write_ends(&mut self, offset: u64, len_bytes: u64, generation: u64, is_certain: bool) {
        self.clock += 1;
        for block in self.blocks(offset, len_bytes).unwrap_or_default() {
            let writes = self.busy.get_mut(&block).map(|busy| &mut busy.writes);
            if let Some(write) = writes.and_then(|writes| writes.iter_mut().find(|it| it.generation == generation)) {
                (write.ended, write.is_certain) = (Some(self.clock), is_certain);
            }
            self.settle(block);
        }
    }

    /// Forgets writes that no later read can see, and the block where only one is left.
    fn settle(&mut self, block: u64) {
        let Entry::Occupied(mut entry) = self.busy.entry(block) else { return };
        let busy = entry.get_mut();
        if busy.readers > 0 {
            return;
        }
        let until = busy.replaced_until(u64::MAX);
        busy.writes.retain(|write| write.ended.is_none_or(|ended| ended >= until));
        if let [Write { generation, is_certain: true, .. }] = busy.writes[..] {
            if let Some(settled) = usize::try_from(block).ok().and_then(|at| self.settled.get_mut(at)) {
                *settled = generation;
            }
            entry.remove();
        }
    }

    /// Checks a block, or the sectors of it that a piece of a buffer holds.
    fn check_block(&self, sectors: &[u8], offset: u64, moment: u64) -> Option<BlockFault> {
        let block = offset.saturating_sub(self.region_offset) / u64::from(self.block_bytes);
        let expected: Vec<u64> = match self.busy.get(&block) {
            Some(busy) => busy.visible(moment).map(|write| write.generation).collect(),
            None => vec![self.settled_at(block)],
        };
        let mut verdict = Verdict::default();
        for (number, sector) in sectors.chunks(SECTOR_BYTES).enumerate() {
            let offset = sector_offset(offset, number);
            let found = Found::read(sector, self.identity, offset);
            if self.is_expected(&expected, found) {
                verdict.has_right = true;
            } else {
                verdict.add(found, offset);
            }
        }
        let (offset, found) = verdict.first_wrong?;
        let expected = expected_text(&expected, self.identity, offset);
        Some(BlockFault { offset, kind: verdict.kind(self.clock), expected, found: found.text(self.identity) })
    }

    fn is_expected(&self, expected: &[u64], found: Found) -> bool {
        let is_before_visible = expected.contains(&BEFORE);
        match found {
            Found::Right { generation } => is_before_visible || expected.contains(&generation),
            Found::Elsewhere { identity, .. } => is_before_visible && identity != self.identity,
            Found::BadChecksum | Found::NoStamp { .. } => is_before_visible,
        }
    }
}

/// What a sector holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// A good stamp that belongs here.
    Right { generation: u64 },
    /// A good stamp that does not.
    Elsewhere { identity: u64, offset: u64, generation: u64 },
    /// A stamp, but not the data that it was made for.
    BadChecksum,
    /// Nothing that looks like a stamp.
    NoStamp { is_zero: bool },
}

impl Found {
    fn read(sector: &[u8], own_identity: u64, own_offset: u64) -> Found {
        if !sector.starts_with(&MAGIC) {
            return Found::NoStamp { is_zero: sector.iter().all(|&byte| byte == 0) };
        }
        let number = |at: usize| {
            let bytes = sector.get(at..at + size_of::<u64>()).and_then(|bytes| bytes.try_into().ok());
            bytes.map(u64::from_le_bytes)
        };
        let fields = (number(IDENTITY_AT), number(OFFSET_AT), number(GENERATION_AT));
        match fields {
            (Some(identity), Some(offset), Some(generation)) if number(CHECKSUM_AT) == Some(checksum(sector)) => {
                if (identity, offset) == (own_identity, own_offset) {
                    Found::Right { generation }
                } else {
                    Found::Elsewhere { identity, offset, generation }
                }
            }
            _ => Found::BadChecksum,
        }
    }

    fn text(self, own_identity: u64) -> String {
        match self {
            Found::Right { generation } => write_text(generation),
            Found::Elsewhere { identity, offset, generation } if identity == own_identity => {
                format!("{} to offset {offset}", write_text(generation))
            }
            Found::Elsewhere { identity, offset, generation } => {
                format!("{} to offset {offset} of file {identity:016x}", write_text(generation))
            }
            Found::BadChecksum => "a stamp whose checksum is wrong".to_owned(),
            Found::NoStamp { is_zero: true } => "zeros".to_owned(),
            Found::NoStamp { is_zero: false } => "no stamp".to_owned(),
        }
    }
}

/// The wrong sectors of a block.
#[derive(Default)]
struct Verdict {
    has_right: bool,
    first_wrong: Option<(u64, Found)>,
    /// Whether the wrong ones are not all alike.
    is_mixed: bool,
}

impl Verdict {
    fn add(&mut self, found: Found, offset: u64) {
        let Some((_, first)) = self.first_wrong else {
            self.first_wrong = Some((offset, found));
            return;
        };
        self.is_mixed |= match (first, found) {
            (Found::Elsewhere { .. }, Found::Elsewhere { .. }) | (Found::NoStamp { .. }, Found::NoStamp { .. }) => {
                false
            }
            _ => first != found,
        };
    }

    fn kind(&self, clock: u64) -> FaultKind {
        match self.first_wrong {
            _ if self.has_right || self.is_mixed => FaultKind::Torn,
            Some((_, Found::Right { generation })) if generation <= clock => FaultKind::Stale,
            Some((_, Found::Elsewhere { .. })) => FaultKind::Misdirected,
            Some((_, Found::BadChecksum)) => FaultKind::Torn,
            _ => FaultKind::Foreign,
        }
    }
}

fn write_text(generation: u64) -> String {
    format!("write {generation}")
}

fn expected_text(expected: &[u64], identity: u64, offset: u64) -> String {
    let one = |&generation: &u64| match generation {
        BEFORE => "what was there before".to_owned(),
        _ => write_text(generation),
    };
    let writes: Vec<_> = expected.iter().map(one).collect();
    format!("{} to offset {offset} of file {identity:016x}", writes.join(" or "))
}

/// Of sector `number` of a piece that begins at `offset`.
fn sector_offset(offset: u64, number: usize) -> u64 {
    offset.saturating_add((number * SECTOR_BYTES) as u64)
}

fn put_stamps(identity: u64, generation: u64, buffer: &mut [u8], offset: u64) {
    for (number, sector) in buffer.chunks_exact_mut(SECTOR_BYTES).enumerate() {
        let offset = sector_offset(offset, number);
        let mut put = |at: usize, bytes: &[u8]| {
            if let Some(field) = sector.get_mut(at..at + bytes.len()) {
                field.copy_from_slice(bytes);
            }
        };
        put(0, &MAGIC);
        put(IDENTITY_AT, &identity.to_le_bytes());
        put(OFFSET_AT, &offset.to_le_bytes());
        put(GENERATION_AT, &generation.to_le_bytes());
        let sum = checksum(sector);
        if let Some(field) = sector.get_mut(CHECKSUM_AT..) {
            field.copy_from_slice(&sum.to_le_bytes());
        }
    }
}

/// Of all before it.
fn checksum(sector: &[u8]) -> u64 {
    XxHash3_64::oneshot(sector.get(..CHECKSUM_AT).unwrap_or(sector))
}

#[cfg(test)]
mod tests;
