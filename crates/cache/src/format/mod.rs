//! What lies on a disk of a cache besides blocks: superblocks, and streams of records (logs and snapshots).
//!
//! # Why
//! Bytes from a disk are input: they may be another program's, an older life's of the same disk, torn, or flipped. All
//! of that is decided here, once, by pure functions that a table of damaged bytes can try in full; the engine only
//! sees a superblock or a record that is right, or the reason why there is none.
//!
//! # How it works
//! ```text
//! 0        slot 0, 4 KiB: the superblock of even generations
//! 32 KiB   slot 1, 4 KiB: that of odd ones
//! 64 KiB   the slabs: blocks (without headers), or chunks of a stream
//! ```
//! [`superblock`] says which disk it is, of which cache, and where its two streams begin. [`stream`] is the form of
//! both: the snapshot holds the entries of all blocks on that disk, the log what has happened since. All numbers are
//! little-endian, all checksums CRC-32C (Castagnoli, as in RFC 3720).
//!
//! # Limits
//! Nothing here reads or writes, and nothing knows which generation is the right one: several disks decide that
//! together.
//!
//! # Example
//! A disk that was used by a cache and then given away: its slots are [`SlotError::Foreign`], and `create` does not
//! touch it without `--destructive`. A new one is [`SlotError::Empty`] in both slots.

mod bytes;
mod stream;
mod superblock;

#[cfg(test)]
mod tests;

pub(crate) use stream::{
    Chunk, ChunkEnd, ChunkWriter, Expect, MAX_CHUNK_BYTES, MAX_RECORD_BYTES, Record, decode_chunk,
};
pub(crate) use superblock::{
    Member, MemberState, RangeRecord, SLOT_BYTES, SLOT_OFFSETS, SlotError, StreamHead, Superblock, VERSION, decode,
    encode,
};
