//! Stamps in written data, checked when it is read.
//!
//! **Why.** A disk that answers fast may answer wrongly: old data, half of a write, another file's block. Checksums
//! alone do not detect an old block, which is whole; so each block also names its file, its place and its write.
//!
//! **How.** Each 512-byte sector begins with 32 bytes: magic and version, identity of file and run, the sector's own
//! offset in the file, and the generation of the write. It ends with the XXH3 checksum (64 bits) of everything before.
//! Each field has 8 bytes, numbers little-endian.
//!
//! [`Stamps`] counts events: each write, its end, each read. The number of a write's beginning is its generation. For
//! each block (the smallest unit that requests write) [`Stamps`] keeps the last settled write; a block with requests in
//! flight has a list of the writes that a read may see.
//!
//! A read may see a write unless another write began after that write's end and was acknowledged before the read
//! began. So overlapping writes to a block, and a write that overlaps the read, are right either way, also sector by
//! sector: disks promise no more. A failed write may be seen, whole or in part, until a later one is acknowledged.
//!
//! A block that a read must not see is one of:
//! * *torn*: some sectors are right and others not, or of different writes, or a checksum is wrong;
//! * *stale*: a whole block of a replaced write;
//! * *misdirected*: a good stamp of another offset or identity;
//! * *foreign*: no stamp, or the stamp of a write that was never made.
//!
//! **Limits.** 8 bytes of memory per block; more than 1 GiB in all is refused. Blocks with requests in flight take some
//! 100 bytes more until they are quiet, and up to 2 KiB while their writes fail: after 64 failures a block may hold
//! anything until a write of it succeeds. One [`Stamps`] must know all writers of its region: shards that write to the
//! same region cannot verify. Data written before a crash is not judged.
//!
//! **Example.**
//!
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

/// Length of a stamped sector. Lengths and offsets of requests are multiples of it.
pub(super) const SECTOR_BYTES: usize = 512;
/// Most memory that the generations of a region may take: 1 GiB.
pub(super) const STAMPS_MAX_BYTES: u64 = 1 << 30;
/// Beginning of a stamp: seven letters and the version.
const MAGIC: [u8; 8] = *b"PLIMSTA\x01";
const IDENTITY_AT: usize = 8;
const OFFSET_AT: usize = 16;
const GENERATION_AT: usize = 24;
const CHECKSUM_AT: usize = SECTOR_BYTES - size_of::<u64>();
/// Most ended writes of a block that are told apart. If more have failed since the last success, the block may hold
/// anything.
const WRITES_MAX: usize = 64;
/// Generation of the data from before the first write. Until a write is acknowledged, such a block may hold anything
/// except a stamp of this file and run for another place.
const BEFORE: u64 = 0;

/// Why a region or a request cannot be stamped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum StampError {
    #[error("blocks of {0} bytes cannot be verified: request sizes must be multiples of {SECTOR_BYTES} bytes")]
    Block(u32),
    #[error(
        "to verify {} in blocks of {block_bytes} bytes takes more than {} of memory: lower data_size or raise reqsize",
        format_bytes_binary(*region_bytes), format_bytes_binary(STAMPS_MAX_BYTES)
    )]
    TooLarge { region_bytes: u64, block_bytes: u32 },
    #[error("{len_bytes} bytes at {offset} are not whole blocks of the region that is verified")]
    Outside { offset: u64, len_bytes: u64 },
}

/// The generations of a region's blocks.
#[derive(Clone, Debug)]
pub(super) struct Stamps {
    identity: u64,
    region_offset: u64,
    block_bytes: u32,
    /// Number of the last event.
    clock: u64,
    /// The only write that a read may see, for each block that is not in `busy`.
    settled: Vec<u64>,
    busy: HashMap<u64, Busy>,
}

/// A block with requests in flight, or with more than one visible write.
#[derive(Clone, Debug)]
struct Busy {
    /// Writes in the order of their beginnings; the first is the settled one.
    writes: Vec<Write>,
    readers: u32,
}

#[derive(Clone, Copy, Debug)]
struct Write {
    /// Number of the event that began the write.
    generation: u64,
    /// Number of the event that ended the write; `None` while the write is in flight.
    ended: Option<u64>,
    /// Whether the write replaced earlier ones. A failed write may not have.
    is_certain: bool,
}

impl Write {
    /// Returns a write that ended before all others began.
    fn settled(generation: u64) -> Write {
        Write { generation, ended: Some(generation), is_certain: true }
    }

    /// Returns whether the write was acknowledged before `moment`.
    fn is_certain_at(&self, moment: u64) -> bool {
        self.is_certain && self.ended.is_some_and(|ended| ended < moment)
    }
}

impl Busy {
    fn new(settled: u64) -> Busy {
        // Room for one more write, all that most blocks ever need.
        let mut writes = Vec::with_capacity(2);
        writes.push(Write::settled(settled));
        Busy { writes, readers: 0 }
    }

    /// Replaces the writes that have ended, if they are too many, by one of unknown data that ended at `clock`.
    fn forget_failures(&mut self, clock: u64) {
        if self.writes.iter().filter(|write| write.ended.is_some()).count() <= WRITES_MAX {
            return;
        }
        self.writes.retain(|write| write.ended.is_none());
        self.writes.insert(0, Write { generation: BEFORE, ended: Some(clock), is_certain: false });
    }

    /// Returns the last beginning of a write acknowledged before `moment`. Writes that ended earlier are invisible.
    fn replaced_until(&self, moment: u64) -> u64 {
        self.writes.iter().filter(|write| write.is_certain_at(moment)).map(|write| write.generation).max().unwrap_or(0)
    }

    /// Returns the writes that a read which began at `moment` may see.
    fn visible(&self, moment: u64) -> impl Iterator<Item = &Write> {
        let until = self.replaced_until(moment);
        self.writes.iter().filter(move |write| write.ended.is_none_or(|ended| ended >= until))
    }
}

impl Stamps {
    /// Returns the stamps of an unwritten region. `identity` distinguishes this file and run from all others;
    /// `block_bytes`, a multiple of [`SECTOR_BYTES`], divides the length of every request and its distance from
    /// `region_offset` (a multiple of [`SECTOR_BYTES`]). The rest of the region after the last whole block is unused.
    ///
    /// # Errors
    /// [`StampError::Block`] if blocks are not whole sectors; [`StampError::TooLarge`] above [`STAMPS_MAX_BYTES`] of
    /// memory.
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

    /// Begins a write of `len_bytes` at `offset` of the file. Returns its generation. [`Stamps::put`] comes next.
    ///
    /// # Errors
    /// [`StampError::Outside`] if the request is not made of whole blocks of the region.
    pub(super) fn begin_write(&mut self, offset: u64, len_bytes: u64) -> Result<u64, StampError> {
        let blocks = self.blocks(offset, len_bytes)?;
        self.clock += 1;
        let write = Write { generation: self.clock, ended: None, is_certain: false };
        for block in blocks {
            self.make_busy(block).writes.push(write);
        }
        Ok(self.clock)
    }

    /// Stamps a buffer of whole sectors (or a piece of it) for the write of `generation` to `offset` of the file.
    pub(super) fn put(&self, buffer: &mut [u8], offset: u64, generation: u64) {
        put_stamps(self.identity, generation, buffer, offset);
    }

    /// Records that the write of `generation`, with its original place, was acknowledged in full.
    pub(super) fn acknowledged(&mut self, offset: u64, len_bytes: u64, generation: u64) {
        self.write_ends(offset, len_bytes, generation, true);
    }

    /// Records that the write of `generation` failed or was short: whether it reached the disk is unknown.
    pub(super) fn failed(&mut self, offset: u64, len_bytes: u64, generation: u64) {
        self.write_ends(offset, len_bytes, generation, false);
    }

    /// Begins a read. Returns its moment, for `Stamps::check_since`. `Stamps::end_read` must follow.
    pub(super) fn begin_read(&mut self, offset: u64, len_bytes: u64) -> Result<u64, StampError> {
        let blocks = self.blocks(offset, len_bytes)?;
        self.clock += 1;
        for block in blocks {
            self.make_busy(block).readers += 1;
        }
        Ok(self.clock)
    }

    /// Checks a buffer (or a piece of it, of whole sectors) that a read which began at `moment` returned from
    /// `offset` of the file. Returns one fault for each wrong block, at its first wrong sector. Call before
    /// `Stamps::end_read`.
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

    pub(super) fn end_read(&mut self, offset: u64, len_bytes: u64) {
        for block in self.blocks(offset, len_bytes).unwrap_or_default() {
            if let Some(busy) = self.busy.get_mut(&block) {
                busy.readers = busy.readers.saturating_sub(1);
            }
            self.settle(block);
        }
    }

    /// Returns whether a write of any part of `len_bytes` at `offset` has begun; `false` outside of the region.
    pub(super) fn is_touched(&self, offset: u64, len_bytes: u64) -> bool {
        let is_written = |writes: &[Write]| writes.iter().any(|write| write.generation != BEFORE);
        self.blocks(offset, len_bytes).unwrap_or_default().any(|block| {
            self.settled_at(block) != BEFORE || self.busy.get(&block).is_some_and(|busy| is_written(&busy.writes))
        })
    }

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
            let Some(busy) = self.busy.get_mut(&block) else { continue };
            if let Some(write) = busy.writes.iter_mut().find(|write| write.generation == generation) {
                (write.ended, write.is_certain) = (Some(self.clock), is_certain);
            }
            if !is_certain {
                busy.forget_failures(self.clock);
            }
            self.settle(block);
        }
    }

    /// Drops writes that no later read can see, and the block's list if only one is left.
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

    /// Checks a block, or the sectors of it in a piece of a buffer.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// A valid stamp that belongs here.
    Right {
        generation: u64,
    },
    /// A valid stamp that belongs elsewhere.
    Elsewhere {
        identity: u64,
        offset: u64,
        generation: u64,
    },
    /// A stamp whose checksum does not match the data.
    BadChecksum,
    NoStamp {
        is_zero: bool,
    },
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
    /// Whether the wrong sectors differ in kind.
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

/// Returns the offset of sector `number` of a piece that begins at `offset`.
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

/// Returns the checksum of everything before the checksum field.
fn checksum(sector: &[u8]) -> u64 {
    XxHash3_64::oneshot(sector.get(..CHECKSUM_AT).unwrap_or(sector))
}

#[cfg(test)]
mod tests;
