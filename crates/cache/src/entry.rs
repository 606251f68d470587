//! The place of a block and its entry in the index: plain types that the index, the allocator and the log share.
//!
//! # How it works
//! A disk is a superblock area followed by slabs of equal size. Slabs are numbered over all disks of a cache, each
//! disk having one or several ranges of numbers; a place is a slab and an offset in it, in units of 512 bytes: 5 bytes
//! for up to 512 TiB. An [`Entry`] is 14 bytes, and 9 bytes of hash make it the 23 bytes that a block costs in memory.
//!
//! # Limits
//! A block is 1 byte to 16 MiB. Slabs are 1 to 32 MiB, a power of two.
//!
//! # Example
//! A block of 8000 bytes in slab 7 at offset 16 KiB: `Extent { slab: SlabId(7), offset_units: 32, len_bytes: 8000 }`;
//! with sectors of 4096 bytes it takes 8192 bytes there.

/// The unit of offsets within a slab, in bytes.
pub(crate) const UNIT_BYTES: u32 = 512;

/// The largest slab, in bytes: its offsets, in units of 512 bytes, fit 16 bits.
pub const MAX_SLAB_BYTES: u32 = 32 << 20;

/// The smallest slab, in bytes.
pub const MIN_SLAB_BYTES: u32 = 1 << 20;

/// The largest block, in bytes: its length less one fits 24 bits.
pub const MAX_BLOCK_BYTES: u32 = 16 << 20;

/// Number of a slab, over all disks of the cache; below 2^24 - 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SlabId(pub(crate) u32);

impl SlabId {
    /// The first number beyond all slabs.
    pub(crate) const END: u32 = (1 << 24) - 1;
}

/// The place of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Extent {
    pub(crate) slab: SlabId,
    /// Offset in the slab, in units of 512 bytes.
    pub(crate) offset_units: u16,
    /// Bytes stored (after encryption, before padding): 1 to [`MAX_BLOCK_BYTES`].
    pub(crate) len_bytes: u32,
}

impl Extent {
    /// Returns the offset in the slab, in bytes.
    pub(crate) fn offset_bytes(&self) -> u32 {
        u32::from(self.offset_units) * UNIT_BYTES
    }

    /// Returns the bytes taken on a disk with sectors of `sector_bytes`.
    pub(crate) fn padded_bytes(&self, sector_bytes: u32) -> u32 {
        self.len_bytes.next_multiple_of(sector_bytes)
    }
}

/// The entry of a cached block in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) extent: Extent,
    /// CRC-32C of the bytes stored, without padding.
    pub(crate) checksum: u32,
    /// Time of the last use, on the index's clock of bytes (see `index::recency`).
    pub(crate) tick: u16,
}

impl Entry {
    /// Returns whether both are the same block at the same place. The place alone does not prove it: it may have been
    /// freed and written again meanwhile, even for the same key.
    pub(crate) fn is_same_block(&self, other: &Entry) -> bool {
        (self.extent, self.checksum) == (other.extent, other.checksum)
    }
}
