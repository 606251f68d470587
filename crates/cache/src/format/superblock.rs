//! The superblock: identifies the disk and its cache, and locates the beginnings of its log and snapshot.
//!
//! # Why
//! A cache that opens a device must know that the device is its own before it writes one byte, must find the newest
//! checkpoint after a crash at any point, and must know its members when some disks are missing.
//!
//! # How it works
//! Two slots, at the beginning of the disk and 32 KiB on. A new superblock is first written to the slot of the older
//! one, so that the newest stays whole meanwhile; when all disks have it, also to the other slot. A slot is 4096
//! bytes, and the last four are the CRC-32C of all others:
//!
//! ```text
//!    0  8   "PLIMCACH"
//!    8  4   version (2)
//!   12  4   flags: 1 blocks are encrypted, 2 there is a snapshot; others 0
//!   16  16  identity of the cache
//!   32  16  identity of the disk
//!   48  8   generation of the checkpoint
//!   56  8   seed of key hashes; if blocks are encrypted, the salt from which the seed is derived with the key
//!   64  32  reveals a wrong encryption key; 0 if blocks are not encrypted
//!   96  4   bytes of a slab, a power of two from 1 to 32 MiB
//!  100  4   bytes of a sector, a power of two from 512 to 4096
//!  104  2   number of the disk
//!  106  2   the cache's clock of recency
//!  108  24  head of the log: 4 slab, 4 offset in it in bytes, 8 number of the stream, 8 number of the chunk there
//!  132  24  head of the snapshot, likewise; 0 if there is none
//!  156  4   the first slab number that the cache has not used yet
//!  160  2   number of ranges r
//!  162  2   number of members m
//!  164  16r ranges of slabs on this disk: 4 first slab, 4 how many, 8 offset of the first on the disk in bytes
//!       19m disks of the cache, this one among them: 2 number, 16 identity, 1 state (0 active, 1 removing, 2 away)
//!       0   to the end
//! 4092  4   CRC-32C of the 4092 bytes before
//! ```
//! Later versions keep the magic, the version field and the place of the checksum, so a flipped version is damage and
//! not a newer format.
//!
//! # Limits
//! `16 r + 19 m` is at most 3928: 205 disks and 1 range, or 100 disks and 126 ranges. [`encode`] refuses more. At most
//! 255 disks, even if a later version has a larger slot.
//!
//! # Example
//! A disk of 1 GiB, cache of two disks, slabs of 32 MiB: one range `{first 0, count 31, offset 1 MiB}` and two
//! members, 164 + 16 + 38 = 218 bytes used. Generation 6 is in both slots, and generation 7 is written at 32 KiB. If
//! the power fails then, generation 6 is still at 0.

use std::fmt;

use super::bytes::{Reader, Writer};
use crate::entry::{MAX_SLAB_BYTES, MIN_SLAB_BYTES, SlabId};

/// Offsets of the two slots on a disk, in bytes.
pub(crate) const SLOT_OFFSETS: [u64; 2] = [0, 32 << 10];

/// Offset of a place of [`SLOT_BYTES`] between the slots and the slabs that holds nothing but zeros: a write of it
/// changes nothing, and shows whether the disk takes writes.
pub(crate) const PROBE_OFFSET: u64 = 48 << 10;

/// Size of a slot, in bytes: no sector is larger, so no two slots share one.
pub(crate) const SLOT_BYTES: usize = 4096;

/// End of the superblock area, in bytes: no slab may begin before it.
pub(crate) const SUPERBLOCK_BYTES: u64 = 64 << 10;

const MAGIC: [u8; 8] = *b"PLIMCACH";
pub(crate) const VERSION: u32 = 2;
const FLAG_ENCRYPTED: u32 = 1;
const FLAG_SNAPSHOT: u32 = 2;
const CHECKSUM_AT: usize = SLOT_BYTES - 4;
const FIXED_BYTES: usize = 164;
const RANGE_BYTES: usize = 16;
const MEMBER_BYTES: usize = 19;
const MAX_MEMBERS: usize = 255;

/// The superblock of a disk, as of one checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) cache_guid: u128,
    pub(crate) disk_guid: u128,
    /// Number of the disk in its cache, for good.
    pub(crate) disk: u16,
    /// Number of the checkpoint.
    pub(crate) generation: u64,
    /// Seed of `KeyHash::of`; if blocks are encrypted, its salt.
    pub(crate) key_seed: u64,
    /// A power of two, 1 to 32 MiB.
    pub(crate) slab_bytes: u32,
    /// A power of two, 512 to 4096.
    pub(crate) sector_bytes: u32,
    pub(crate) is_encrypted: bool,
    /// Opaque here (see `crypt::Cipher::key_check`); zeros if blocks are not encrypted.
    pub(crate) key_check: [u8; 32],
    /// Slabs of this disk.
    pub(crate) ranges: Vec<RangeRecord>,
    /// The first slab number not yet used on any disk: numbers are not reused.
    pub(crate) next_slab: u32,
    /// All disks of the cache, this one among them.
    pub(crate) members: Vec<Member>,
    /// Head of the snapshot; `None` before the first one.
    pub(crate) snapshot: Option<StreamHead>,
    /// Where replay of the log begins.
    pub(crate) log: StreamHead,
    /// The cache's clock of recency.
    pub(crate) now_tick: u16,
}

/// Slabs with consecutive numbers that lie one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RangeRecord {
    pub(crate) first: SlabId,
    /// At least 1.
    pub(crate) count: u32,
    /// Offset of the first slab on the disk; a multiple of the sector, at least [`SUPERBLOCK_BYTES`].
    pub(crate) offset_bytes: u64,
}

/// A disk of the cache, as listed in every superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) disk: u16,
    pub(crate) guid: u128,
    pub(crate) state: MemberState,
}

/// The state of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemberState {
    /// In use.
    Active,
    /// Its blocks are being moved away.
    Removing,
    /// It was absent at the last checkpoint. In its own superblock: it is being added.
    Away,
}

/// Where a stream begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamHead {
    pub(crate) slab: SlabId,
    /// Offset in the slab, a multiple of the sector.
    pub(crate) offset_bytes: u32,
    /// Number of the stream, unique on the disk.
    pub(crate) stream: u64,
    /// Number of the chunk at this place.
    pub(crate) chunk: u64,
}

/// Why a slot has no superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotError {
    /// Only zeros.
    Empty,
    /// Other data than a cache's.
    Foreign,
    /// A cache's superblock, in a format this program does not know.
    Version {
        /// The format version on the disk.
        found: u32,
    },
    /// A cache's superblock, damaged or half written.
    Checksum,
    /// The checksum is valid, but this content is not.
    Malformed(&'static str),
}

impl fmt::Display for SlotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SlotError::Empty => f.write_str("empty"),
            SlotError::Foreign => f.write_str("the data of something else than a Plimsoll cache"),
            SlotError::Version { found } if *found > VERSION => {
                write!(f, "a cache in format {found}; this program knows formats up to {VERSION}: use a newer one")
            }
            SlotError::Version { found } => write!(f, "a cache in format {found}; this program knows only {VERSION}"),
            SlotError::Checksum => f.write_str("a superblock that is damaged or half written"),
            SlotError::Malformed(what) => write!(f, "a superblock that cannot be: {what}"),
        }
    }
}

impl std::error::Error for SlotError {}

/// Why a superblock cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EncodeError {
    /// Too many disks and ranges for a slot.
    TooLarge {
        /// Disks of the cache.
        members: usize,
        /// Ranges of this disk.
        ranges: usize,
    },
    /// It contradicts itself, and would be refused when read again.
    Malformed(&'static str),
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EncodeError::TooLarge { members, ranges } => write!(
                f,
                "{members} disks and {ranges} ranges of slabs on one of them: at most {MAX_MEMBERS} disks, and \
                 {MEMBER_BYTES} bytes a disk and {RANGE_BYTES} a range in {} bytes",
                CHECKSUM_AT - FIXED_BYTES
            ),
            EncodeError::Malformed(what) => write!(f, "a superblock that cannot be: {what}"),
        }
    }
}

impl std::error::Error for EncodeError {}

impl Superblock {
    /// Returns whether no checkpoint has listed the disk yet: it was being added.
    pub(crate) fn is_half_added(&self) -> bool {
        self.members.iter().any(|member| member.guid == self.disk_guid && member.state == MemberState::Away)
    }

    /// Checks that the superblock does not contradict itself, both before it is written and after it was read.
    fn check(&self) -> Result<(), &'static str> {
        if !self.slab_bytes.is_power_of_two() || !(MIN_SLAB_BYTES..=MAX_SLAB_BYTES).contains(&self.slab_bytes) {
            return Err("slabs are a power of two from 1 to 32 MiB");
        }
        if !self.sector_bytes.is_power_of_two() || !(512..=SLOT_BYTES as u32).contains(&self.sector_bytes) {
            return Err("sectors are a power of two from 512 to 4096 bytes");
        }
        if !self.is_encrypted && self.key_check != [0; 32] {
            return Err("a check of a key, and no encryption");
        }
        self.check_ranges()?;
        self.check_members()?;
        self.check_head(&self.log).map_err(|()| "the log does not begin on this disk")?;
        match &self.snapshot {
            Some(head) => self.check_head(head).map_err(|()| "the snapshot does not begin on this disk"),
            None => Ok(()),
        }
    }

    fn check_ranges(&self) -> Result<(), &'static str> {
        let mut numbers: Vec<(u64, u64)> = Vec::with_capacity(self.ranges.len());
        let mut places: Vec<(u64, u64)> = Vec::with_capacity(self.ranges.len());

        for range in &self.ranges {
            let first = u64::from(range.first.0);
            let end = first + u64::from(range.count);
            if range.count == 0 || end > u64::from(SlabId::END) {
                return Err("a range of slabs without slabs, or with numbers that no slab has");
            }
            let bytes = u64::from(range.count) * u64::from(self.slab_bytes);
            let is_aligned = range.offset_bytes.is_multiple_of(u64::from(self.sector_bytes));
            let Some(end_bytes) = range.offset_bytes.checked_add(bytes) else {
                return Err("a range of slabs beyond the end of any disk");
            };
            if range.offset_bytes < SUPERBLOCK_BYTES || !is_aligned {
                return Err("a range of slabs among the superblocks, or not on a sector");
            }
            numbers.push((first, end));
            places.push((range.offset_bytes, end_bytes));
        }

        if overlap(&mut numbers) || overlap(&mut places) {
            return Err("two ranges of slabs overlap");
        }
        Ok(())
    }

    fn check_members(&self) -> Result<(), &'static str> {
        let mut disks: Vec<u16> = self.members.iter().map(|member| member.disk).collect();
        let mut guids: Vec<u128> = self.members.iter().map(|member| member.guid).collect();

        disks.sort_unstable();
        guids.sort_unstable();
        if disks.windows(2).any(|pair| pair.first() == pair.last())
            || guids.windows(2).any(|pair| pair.first() == pair.last())
        {
            return Err("two disks of the cache have one number or one identity");
        }
        if !self.members.iter().any(|member| member.disk == self.disk && member.guid == self.disk_guid) {
            return Err("the disk is not among the disks of its cache");
        }
        Ok(())
    }

    fn check_head(&self, head: &StreamHead) -> Result<(), ()> {
        let is_here = self
            .ranges
            .iter()
            .any(|range| head.slab >= range.first && u64::from(head.slab.0 - range.first.0) < u64::from(range.count));
        let is_in_slab = head.offset_bytes < self.slab_bytes && head.offset_bytes.is_multiple_of(self.sector_bytes);
        if is_here && is_in_slab { Ok(()) } else { Err(()) }
    }
}

/// Returns whether two of the spans `(first, end)` overlap.
fn overlap(spans: &mut [(u64, u64)]) -> bool {
    spans.sort_unstable();
    spans.windows(2).any(|pair| matches!(pair, [(_, end), (first, _)] if end > first))
}

/// Returns whether a slot has room for as many disks of a cache and ranges of slabs on one of them.
pub(crate) fn has_room(members: usize, ranges: usize) -> bool {
    members <= MAX_MEMBERS && FIXED_BYTES + ranges * RANGE_BYTES + members * MEMBER_BYTES <= CHECKSUM_AT
}

/// Encodes `block` as a slot.
///
/// # Errors
/// If it would not fit, or [`decode`] would refuse it.
pub(crate) fn encode(block: &Superblock) -> Result<[u8; SLOT_BYTES], EncodeError> {
    let (members, ranges) = (block.members.len(), block.ranges.len());
    if !has_room(members, ranges) {
        return Err(EncodeError::TooLarge { members, ranges });
    }
    block.check().map_err(EncodeError::Malformed)?;

    let mut bytes = Vec::with_capacity(SLOT_BYTES);
    put_fixed(&mut Writer(&mut bytes), block);
    let mut out = Writer(&mut bytes);
    for range in &block.ranges {
        out.u32(range.first.0).u32(range.count).u64(range.offset_bytes);
    }
    for member in &block.members {
        out.u16(member.disk).u128(member.guid).u8(member.state as u8);
    }

    let mut slot = [0; SLOT_BYTES];
    let (content, checksum) = slot.split_at_mut(CHECKSUM_AT);
    for (to, from) in content.iter_mut().zip(&bytes) {
        *to = *from;
    }
    checksum.copy_from_slice(&crc32c::crc32c(content).to_le_bytes());
    Ok(slot)
}

fn put_fixed(out: &mut Writer<'_>, block: &Superblock) {
    let encrypted = if block.is_encrypted { FLAG_ENCRYPTED } else { 0 };
    let snapshot = if block.snapshot.is_some() { FLAG_SNAPSHOT } else { 0 };
    out.bytes(&MAGIC).u32(VERSION).u32(encrypted | snapshot);
    out.u128(block.cache_guid).u128(block.disk_guid).u64(block.generation).u64(block.key_seed);
    out.bytes(&block.key_check).u32(block.slab_bytes).u32(block.sector_bytes).u16(block.disk).u16(block.now_tick);
    let none = StreamHead { slab: SlabId(0), offset_bytes: 0, stream: 0, chunk: 0 };
    for head in [block.log, block.snapshot.unwrap_or(none)] {
        out.u32(head.slab.0).u32(head.offset_bytes).u64(head.stream).u64(head.chunk);
    }
    // Both counts fit: `encode` has checked them.
    out.u32(block.next_slab).u16(block.ranges.len() as u16).u16(block.members.len() as u16);
}

/// Decodes the superblock of a slot; ignores bytes after the first [`SLOT_BYTES`].
///
/// # Errors
/// See [`SlotError`]. Fewer bytes than a slot are always `Malformed`.
pub(crate) fn decode(bytes: &[u8]) -> Result<Superblock, SlotError> {
    let short = SlotError::Malformed("a slot has 4096 bytes");
    let slot: &[u8; SLOT_BYTES] = bytes.first_chunk().ok_or(short)?;
    if slot.iter().all(|byte| *byte == 0) {
        return Err(SlotError::Empty);
    }

    let (content, checksum) = slot.split_at(CHECKSUM_AT);
    let mut fields = Reader(content);
    if fields.array() != Some(MAGIC) {
        return Err(SlotError::Foreign);
    }
    if checksum != crc32c::crc32c(content).to_le_bytes() {
        return Err(SlotError::Checksum);
    }

    let found = fields.u32().ok_or(short)?;
    if found != VERSION {
        return Err(SlotError::Version { found });
    }

    let block = read_fields(&mut fields).ok_or(SlotError::Malformed("a flag, state or count that nobody writes"))?;
    if fields.0.iter().any(|byte| *byte != 0) {
        return Err(SlotError::Malformed("something after the last disk"));
    }
    block.check().map_err(SlotError::Malformed)?;
    Ok(block)
}

fn read_fields(fields: &mut Reader<'_>) -> Option<Superblock> {
    let flags = fields.u32()?;
    let (cache_guid, disk_guid) = (fields.u128()?, fields.u128()?);
    let (generation, key_seed, key_check) = (fields.u64()?, fields.u64()?, fields.array()?);
    let (slab_bytes, sector_bytes) = (fields.u32()?, fields.u32()?);
    let (disk, now_tick) = (fields.u16()?, fields.u16()?);
    let (log, snapshot) = (read_head(fields)?, read_head(fields)?);
    let (next_slab, range_count, member_count) = (fields.u32()?, fields.u16()?, fields.u16()?);
    if flags & !(FLAG_ENCRYPTED | FLAG_SNAPSHOT) != 0 || usize::from(member_count) > MAX_MEMBERS {
        return None;
    }

    let ranges = (0..range_count).map(|_| read_range(fields)).collect::<Option<Vec<_>>>()?;
    let members = (0..member_count).map(|_| read_member(fields)).collect::<Option<Vec<_>>>()?;
    let is_encrypted = flags & FLAG_ENCRYPTED != 0;
    let snapshot = (flags & FLAG_SNAPSHOT != 0).then_some(snapshot);
    Some(Superblock {
        cache_guid,
        disk_guid,
        disk,
        generation,
        key_seed,
        slab_bytes,
        sector_bytes,
        is_encrypted,
        key_check,
        ranges,
        next_slab,
        members,
        snapshot,
        log,
        now_tick,
    })
}

fn read_head(fields: &mut Reader<'_>) -> Option<StreamHead> {
    let (slab, offset_bytes) = (SlabId(fields.u32()?), fields.u32()?);
    Some(StreamHead { slab, offset_bytes, stream: fields.u64()?, chunk: fields.u64()? })
}

fn read_range(fields: &mut Reader<'_>) -> Option<RangeRecord> {
    Some(RangeRecord { first: SlabId(fields.u32()?), count: fields.u32()?, offset_bytes: fields.u64()? })
}

fn read_member(fields: &mut Reader<'_>) -> Option<Member> {
    let (disk, guid) = (fields.u16()?, fields.u128()?);
    let state = match fields.u8()? {
        0 => MemberState::Active,
        1 => MemberState::Removing,
        2 => MemberState::Away,
        _ => return None,
    };
    Some(Member { disk, guid, state })
}
