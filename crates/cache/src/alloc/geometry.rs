//! What slabs are and where they lie, and why something has no place.

use crate::entry::SlabId;

/// What is the same for all disks of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Size of a slab, a power of two from 1 to 32 MiB; anything else is brought into that range.
    pub(crate) slab_bytes: u32,
    /// What a disk reads and writes at least, a power of two from 512 bytes to 16 KiB; as above.
    pub(crate) sector_bytes: u32,
}

/// Slabs that lie one after the other on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlabRange {
    /// Number of the first.
    pub(crate) first: SlabId,
    /// How many.
    pub(crate) count: u32,
    /// On which disk.
    pub(crate) disk: u16,
    /// Where the first begins on the disk, in bytes.
    pub(crate) offset_bytes: u64,
}

/// Why a place cannot be claimed, or a range not be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimError {
    /// No such slab, or the end lies beyond the slab's; of a range: beyond the last number.
    OutsideOfDisk,
    /// Somebody has (some of) it already.
    Overlap,
    /// The slab belongs to blocks of another size.
    WrongClass,
    /// The slab is a log's or a snapshot's.
    MetadataSlab,
    /// It does not begin at a sector, or at a slot.
    Misaligned,
    /// No block is so long, or so short.
    BadLength,
}

/// Why there is no place for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoSpace {
    /// No block is so long, or so short.
    BadLength,
    /// No disk takes new blocks.
    NoDisk,
    /// Some will come back with the next checkpoint.
    UntilCheckpoint,
    /// Nothing has been freed: evict or evacuate.
    Full,
}
