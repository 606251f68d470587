//! The disk format besides blocks: superblocks, and streams of records (logs and snapshots).
//!
//! # Why
//! Bytes from a disk are input: they may be another program's, an earlier life's of the same disk, torn, or flipped.
//! Pure functions decide that here, once, and tests can try them on all kinds of damage. The engine only sees a valid
//! superblock or record, or the reason why there is none.
//!
//! # How it works
//! ```text
//! 0        slot 0, 4 KiB: the superblock
//! 32 KiB   slot 1, 4 KiB: its second copy, or the previous one while a checkpoint is written
//! 1 MiB    the slabs: blocks (without headers), or chunks of a stream
//! ```
//! [`superblock`] names the disk and its cache, and says where its two streams begin. [`stream`] is the form of both:
//! the snapshot holds the entries of all blocks on that disk, the log the changes since. All numbers are little-endian,
//! all checksums CRC-32C (Castagnoli, as in RFC 3720).
//!
//! # Limits
//! Nothing here reads or writes disks, or knows which generation is valid: several disks decide that together.
//!
//! # Example
//! A disk that a cache used and that holds other data now: its slots are [`SlotError::Foreign`], and `create` does not
//! touch it without `--destructive`. A new disk is [`SlotError::Empty`] in both slots.

mod bytes;
mod stream;
mod superblock;

#[cfg(test)]
mod tests;

pub(crate) use stream::{
    Chunk, ChunkEnd, ChunkWriter, Expect, MAX_CHUNK_BYTES, MAX_RECORD_BYTES, Record, decode_chunk,
};
pub(crate) use superblock::{
    Member, MemberState, PROBE_OFFSET, RangeRecord, SLOT_BYTES, SLOT_OFFSETS, SlotError, StreamHead, Superblock,
    VERSION, decode, encode, has_room,
};
