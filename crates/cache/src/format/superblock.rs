//! The superblock: which disk of which cache this is, and where its log and snapshot begin.
//!
//! # Why
//! A cache that opens a device must know that it is its own before it writes one byte, must find the newest checkpoint
//! after a crash at any point, and must know which disks belong to it when some are missing.
//!
//! # How it works
//! Two slots, at the beginning of the disk and 32 KiB on. A new superblock first goes to one, so that the last one is
//! whole in the other while it is written, and when all disks have it also to the other. A slot is 4096 bytes, and the last four are the CRC-32C of all others:
//!
//! ```text
//!    0  8   "PLIMCACH"
//!    8  4   version (2)
//!   12  4   flags: 1 blocks are encrypted, 2 there is a snapshot; others 0
//!   16  16  identity of the cache
//!   32  16  identity of the disk
//!   48  8   generation of the checkpoint
//!   56  8   seed of the hashes of keys, or, where blocks are encrypted, what it is derived from with the key
//!   64  32  by which a wrong encryption key is recognised; 0 where blocks are not encrypted
//!   96  4   bytes of a slab, a power of two from 1 to 32 MiB
//!  100  4   bytes of a sector, a power of two from 512 to 4096
//!  104  2   number of the disk
//!  106  2   the cache's clock of recency
//!  108  24  head of the log: 4 slab, 4 offset in it in bytes, 8 number of the stream, 8 number of the chunk there
//!  132  24  head of the snapshot, likewise; 0 where there is none
//!  156  4   the first number that no slab of the cache has had yet
//!  160  2   number of ranges r
//!  162  2   number of members m
//!  164  16r ranges of slabs on this disk: 4 first slab, 4 how many, 8 offset of the first on the disk in bytes
//!       19m disks of the cache, this one among them: 2 number, 16 identity, 1 state (0 active, 1 removing, 2 away)
//!       0   to the end
//! 4092  4   CRC-32C of the 4092 bytes before
//! ```
//! The magic, the version and the place of the checksum stay in later versions: a flipped version is damage, not a
//! newer format.
//!
//! # Limits
//! `16 r + 19 m` is at most 3928: 205 disks and 1 range, or 100 disks and 126 ranges. More is refused by [`encode`],
//! with the figures. A later, larger slot could have 255 disks; more are refused in any case.
//!
//! # Example
//! A disk of 1 GiB, cache of two disks, slabs of 32 MiB: one range `{first 0, count 31, offset 64 KiB}` and two
//! members, 164 + 16 + 38 = 218 bytes used. Generation 6 is in both slots, and generation 7 is written at 32 KiB; if the
//! power goes then, generation 6 is still at 0.

use std::fmt;

use super::bytes::{Reader, Writer};
use crate::entry::{MAX_SLAB_BYTES, MIN_SLAB_BYTES, SlabId};

/// Where the two slots of a disk are, in bytes from its beginning.
pub(crate) const SLOT_OFFSETS: [u64; 2] = [0, 32 << 10];

/// A slot, in bytes: no sector is larger, so that none is shared.
pub(crate) const SLOT_BYTES: usize = 4096;

/// What no slab may reach into: slabs begin here at the earliest.
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

/// See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) cache_guid: u128,
    pub(crate) disk_guid: u128,
    /// Number of the disk in its cache; stays with it.
    pub(crate) disk: u16,
    /// Number of the checkpoint.
    pub(crate) generation: u64,
    /// Seed of `KeyHash::of`, or its salt where blocks are encrypted.
    pub(crate) key_seed: u64,
    /// A power of two, 1 to 32 MiB.
    pub(crate) slab_bytes: u32,
    /// A power of two, 512 to 4096.
    pub(crate) sector_bytes: u32,
    pub(crate) is_encrypted: bool,
    /// Opaque here (see `crypt::Cipher::key_check`); zeros where blocks are not encrypted.
    pub(crate) key_check: [u8; 32],
    /// Slabs of this disk.
    pub(crate) ranges: Vec<RangeRecord>,
    /// The first number that no slab of any disk has had yet: numbers are not given out twice.
    pub(crate) next_slab: u32,
    /// All disks of the cache, this one among them.
    pub(crate) members: Vec<Member>,
    /// Where the entries of all blocks begin; `None` before the first snapshot.
    pub(crate) snapshot: Option<StreamHead>,
    /// Where to replay from.
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
    /// Of the first slab, from the beginning of the disk; a multiple of the sector, at least [`SUPERBLOCK_BYTES`].
    pub(crate) offset_bytes: u64,
}

/// A disk of the cache, as the others know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) disk: u16,
    pub(crate) guid: u128,
    pub(crate) state: MemberState,
}

/// What the cache wants of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemberState {
    /// In use.
    Active,
    /// Its blocks are being moved away.
    Removing,
    /// It was not there at the last checkpoint.
    Away,
}

/// Where a stream begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamHead {
    pub(crate) slab: SlabId,
    /// In the slab, a multiple of the sector.
    pub(crate) offset_bytes: u32,
    /// Its number, unique on the disk.
    pub(crate) stream: u64,
    /// Number of the chunk that lies there.
    pub(crate) chunk: u64,
}

/// Why a slot has no superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotError {
    /// Nothing but zeros.
    Empty,
    /// Something, and not of a cache.
    Foreign,
    /// Of a cache, in a format this program does not know.
    Version {
        /// Its version.
        found: u32,
    },
    /// Of a cache, and damaged or half written.
    Checksum,
    /// The checksum is right, and this is not.
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
        /// Disks it has.
        members: usize,
        /// Ranges it has.
        ranges: usize,
    },
    /// It contradicts itself: what would be refused when it is read again.
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
    /// Whether it contradicts itself; the same for what is written and for what was read.
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

/// Whether two of the spans `(first, end)` have something in common.
fn overlap(spans: &mut [(u64, u64)]) -> bool {
    spans.sort_unstable();
    spans.windows(2).any(|pair| matches!(pair, [(_, end), (first, _)] if end > first))
}

/// The slot that says `block`.
///
/// # Errors
/// Where it would not fit, or would not be accepted by [`decode`].
pub(crate) fn encode(block: &Superblock) -> Result<[u8; SLOT_BYTES], EncodeError> {
    let (members, ranges) = (block.members.len(), block.ranges.len());
    let used_bytes = FIXED_BYTES + ranges * RANGE_BYTES + members * MEMBER_BYTES;
    if members > MAX_MEMBERS || used_bytes > CHECKSUM_AT {
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
    // Both fit: `encode` has looked.
    out.u32(block.next_slab).u16(block.ranges.len() as u16).u16(block.members.len() as u16);
}

/// The superblock of a slot; bytes after the first [`SLOT_BYTES`] are not looked at.
///
/// # Errors
/// See [`SlotError`]. Fewer bytes than a slot are `Malformed`, whatever they are.
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
