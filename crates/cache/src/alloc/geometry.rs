//! Plain types: slab geometry, ranges of slabs, and the reasons why there is no place.

use crate::entry::SlabId;

/// The properties that all disks of a cache share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Size of a slab: a power of two from 1 to 32 MiB; other values are rounded into that range.
    pub(crate) slab_bytes: u32,
    /// Smallest unit of I/O: a power of two from 512 bytes to 16 KiB; other values are rounded likewise.
    pub(crate) sector_bytes: u32,
}

/// Adjacent slabs on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlabRange {
    /// Number of the first slab.
    pub(crate) first: SlabId,
    /// Number of slabs.
    pub(crate) count: u32,
    /// The disk.
    pub(crate) disk: u16,
    /// Offset of the first slab on the disk, in bytes.
    pub(crate) offset_bytes: u64,
}

/// Why a place cannot be claimed, or a range cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimError {
    /// No such slab, or the place exceeds the slab; of a range: beyond the last slab number.
    OutsideOfDisk,
    /// Part of it is in use already.
    Overlap,
    /// The slab belongs to another bucket.
    WrongClass,
    /// The slab is a log's or a snapshot's.
    MetadataSlab,
    /// It does not begin at a sector, or at a slot.
    Misaligned,
    /// No block has this length.
    BadLength,
}

/// Why there is no place for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoSpace {
    /// No block has this length.
    BadLength,
    /// No disk takes new blocks.
    NoDisk,
    /// The next checkpoint frees some.
    UntilCheckpoint,
    /// Nothing is being freed: evict or evacuate.
    Full,
    /// Not found in as many slabs as are opened for one block; the next search goes on after them.
    NotFoundYet,
}
