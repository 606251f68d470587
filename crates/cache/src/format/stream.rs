//! Streams: the log and the snapshot of a disk, as records in chunks.
//!
//! # Why
//! A log must be readable after a crash in the middle of a write, and must end after the last whole write, although the
//! space behind it still holds older data: often older chunks of the same kind.
//!
//! # How it works
//! A chunk is one write, whole sectors, at most 1 MiB and at most a quarter of a slab. The chunks of a stream are
//! numbered and adjacent in a slab; the last one there holds only [`Record::NextSlab`], and the stream continues at
//! the beginning of that slab. A chunk is valid only if it has the right disk, stream and number:
//!
//! ```text
//!  0  8   "PLIMCHNK"
//!  8  16  identity of the disk
//! 24  8   number of the stream
//! 32  8   number of the chunk in the stream
//! 40  4   bytes of the records
//! 44  4   CRC-32C of everything from 52 to the end of the last sector
//! 48  4   CRC-32C of the 48 bytes before
//! 52      the records, then zeros to the end of the sector
//! ```
//!
//! | record | bytes | after the tag |
//! |---|---|---|
//! | 1 put | 25 | 10 hash, 3 slab, 2 offset in it (units of 512 bytes), 3 bytes stored less one, 2 tick, 4 CRC-32C |
//! | 2 remove | 19 | 10 hash, 3 slab, 2 offset, 3 bytes stored less one |
//! | 3 next slab | 12 | 3 slab, 8 number of the stream from there on |
//! | 4 commit | 11 | 8 generation, 2 tick |
//! | 5 end | 1 | |
//!
//! A put into slab 2^24 - 1 is a ghost: an entry whose block is gone.
//!
//! # Limits
//! A stream that was interrupted must continue under a new number. Chunks beyond the last valid one (they may reach
//! the disk out of order) may still be there, and would continue a stream of the same number.
//!
//! # Example
//! The reader has 4096 bytes of a slab and expects chunk 8 of stream 5. It finds chunk 8 with 100 records, which with
//! the header are 2552 bytes, one sector: no `ShortRead`. `padded_bytes` is 4096, so it expects chunk 9 at 4096 bytes
//! on. There lies chunk 3 of stream 2, from an earlier life of the slab: `NotOne`, the end.

use std::collections::VecDeque;

use super::bytes::{Reader, Writer};
use crate::entry::{Entry, Extent, SlabId};
use crate::key::KeyHash;

/// The largest chunk, in bytes, header and padding included.
pub(crate) const MAX_CHUNK_BYTES: u32 = 1 << 20;

const MAGIC: [u8; 8] = *b"PLIMCHNK";
const HEADER_BYTES: usize = 52;
const HEADER_CHECKED_BYTES: usize = 48;
/// The largest record, in bytes: a put, which is also the most frequent one.
pub(crate) const MAX_RECORD_BYTES: usize = 25;

/// A record of a log or a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// The block of a key is stored from now on.
    Put {
        /// Hash of the key.
        hash: KeyHash,
        /// The block's entry.
        entry: Entry,
    },
    /// The block of a key is removed.
    Remove {
        /// Hash of the key.
        hash: KeyHash,
        /// The block's former place.
        extent: Extent,
    },
    /// The stream continues at the beginning of that slab.
    NextSlab {
        /// The slab.
        slab: SlabId,
        /// Number of the stream from there on. After a restart it is a new one, whose chunks begin with 0.
        stream: u64,
    },
    /// All records before belong to the checkpoint.
    Commit {
        /// Number of the checkpoint.
        generation: u64,
        /// The cache's clock of recency.
        now_tick: u16,
    },
    /// The snapshot is complete.
    End,
}

/// Collects records of one stream into chunks. Grows without limit if chunks are not taken.
#[derive(Debug)]
pub(crate) struct ChunkWriter {
    disk_guid: u128,
    stream: u64,
    /// Number of the next chunk.
    chunk: u64,
    sector_bytes: u32,
    max_payload_bytes: usize,
    /// Payloads of full chunks, oldest first.
    full: VecDeque<Vec<u8>>,
    /// Payload of the chunk being filled.
    payload: Vec<u8>,
}

impl ChunkWriter {
    /// Returns a writer that continues stream `stream` of a disk with chunk `chunk`. Chunks are at most
    /// [`MAX_CHUNK_BYTES`] and a quarter of `slab_bytes` (at least 1 MiB). `sector_bytes` is a power of two, 512 to
    /// 4096.
    pub(crate) fn new(disk_guid: u128, stream: u64, chunk: u64, slab_bytes: u32, sector_bytes: u32) -> ChunkWriter {
        let max_chunk_bytes = MAX_CHUNK_BYTES.min(slab_bytes / 4).max(sector_bytes) / sector_bytes * sector_bytes;
        let max_payload_bytes = (max_chunk_bytes as usize).saturating_sub(HEADER_BYTES).max(MAX_RECORD_BYTES);
        let (full, payload) = (VecDeque::new(), Vec::new());
        ChunkWriter { disk_guid, stream, chunk, sector_bytes, max_payload_bytes, full, payload }
    }

    /// Adds a record. Returns whether a chunk is full and should be written.
    pub(crate) fn push(&mut self, record: &Record) -> bool {
        put_record(&mut Writer(&mut self.payload), record);
        if self.payload.len() + MAX_RECORD_BYTES > self.max_payload_bytes {
            self.full.push_back(std::mem::take(&mut self.payload));
        }
        !self.full.is_empty()
    }

    /// Returns whether there is nothing to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.full.is_empty() && self.payload.is_empty()
    }

    /// Returns the number of the stream.
    pub(crate) fn stream(&self) -> u64 {
        self.stream
    }

    /// Returns the number of the next chunk.
    pub(crate) fn chunk(&self) -> u64 {
        self.chunk
    }

    /// Returns the bytes that the next chunk takes on disk; 0 if there is nothing to write. If it would not leave a
    /// sector free in the slab, write [`ChunkWriter::take_next_slab`] there first.
    pub(crate) fn next_bytes(&self) -> u32 {
        let payload = self.full.front().unwrap_or(&self.payload);
        if payload.is_empty() { 0 } else { padded_bytes(payload.len(), self.sector_bytes) }
    }

    /// Takes the next chunk, in whole sectors; `None` if there is nothing to write.
    pub(crate) fn take(&mut self) -> Option<Vec<u8>> {
        let payload = self.full.pop_front().unwrap_or_else(|| std::mem::take(&mut self.payload));
        (!payload.is_empty()).then(|| self.finish(&payload))
    }

    /// Returns a chunk of one sector that links to `slab`, where the stream has the number `stream`. Pending records go
    /// into the chunks after it.
    pub(crate) fn take_next_slab(&mut self, slab: SlabId, stream: u64) -> Vec<u8> {
        let mut payload = Vec::new();
        put_record(&mut Writer(&mut payload), &Record::NextSlab { slab, stream });
        self.finish(&payload)
    }

    fn finish(&mut self, payload: &[u8]) -> Vec<u8> {
        let padded = padded_bytes(payload.len(), self.sector_bytes) as usize;
        let mut body = Vec::with_capacity(padded);
        body.extend_from_slice(payload);
        body.resize(padded - HEADER_BYTES, 0);
        let mut chunk = Vec::with_capacity(padded);
        let mut out = Writer(&mut chunk);
        out.bytes(&MAGIC).u128(self.disk_guid).u64(self.stream).u64(self.chunk);
        out.u32(payload.len() as u32).u32(crc32c::crc32c(&body));
        let checksum = crc32c::crc32c(&chunk);
        Writer(&mut chunk).u32(checksum).bytes(&body);
        self.chunk += 1;
        chunk
    }
}

/// Returns the bytes on disk of a chunk with `payload_bytes` bytes of records, at most 1 MiB.
fn padded_bytes(payload_bytes: usize, sector_bytes: u32) -> u32 {
    ((HEADER_BYTES + payload_bytes) as u32).next_multiple_of(sector_bytes)
}

fn put_record(out: &mut Writer<'_>, record: &Record) {
    match record {
        Record::Put { hash, entry } => {
            put_extent(out.u8(1).bytes(&hash.0), &entry.extent).u16(entry.tick).u32(entry.checksum);
        }
        Record::Remove { hash, extent } => {
            put_extent(out.u8(2).bytes(&hash.0), extent);
        }
        Record::NextSlab { slab, stream } => {
            out.u8(3).u24(slab.0).u64(*stream);
        }
        Record::Commit { generation, now_tick } => {
            out.u8(4).u64(*generation).u16(*now_tick);
        }
        Record::End => {
            out.u8(5);
        }
    }
}

fn put_extent<'a, 'b>(out: &'a mut Writer<'b>, extent: &Extent) -> &'a mut Writer<'b> {
    out.u24(extent.slab.0).u16(extent.offset_units).u24(extent.len_bytes.saturating_sub(1))
}

fn read_record(fields: &mut Reader<'_>) -> Option<Record> {
    Some(match fields.u8()? {
        1 => {
            let (hash, extent) = (KeyHash(fields.array()?), read_extent(fields)?);
            let (tick, checksum) = (fields.u16()?, fields.u32()?);
            Record::Put { hash, entry: Entry { extent, checksum, tick } }
        }
        2 => Record::Remove { hash: KeyHash(fields.array()?), extent: read_extent(fields)? },
        3 => Record::NextSlab { slab: SlabId(fields.u24()?), stream: fields.u64()? },
        4 => Record::Commit { generation: fields.u64()?, now_tick: fields.u16()? },
        5 => Record::End,
        _ => return None,
    })
}

fn read_extent(fields: &mut Reader<'_>) -> Option<Extent> {
    let (slab, offset_units) = (SlabId(fields.u24()?), fields.u16()?);
    Some(Extent { slab, offset_units, len_bytes: fields.u24()? + 1 })
}

/// The chunk that a reader expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expect {
    pub(crate) disk_guid: u128,
    pub(crate) stream: u64,
    pub(crate) chunk: u64,
    /// As the stream was written: a power of two, 512 to 4096.
    pub(crate) sector_bytes: u32,
}

/// A valid chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) records: Vec<Record>,
    /// Bytes on disk, and so the distance to the next chunk.
    pub(crate) padded_bytes: u32,
}

/// Why there is no valid chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkEnd {
    /// Zeros, other data, another stream, an earlier life of the slab, or a chunk whose first sector was never written:
    /// the end of the stream.
    NotOne,
    /// The expected chunk, but torn by a crash, or damaged since.
    Damaged,
    /// The header is valid or cut off: read `need_bytes` and try again. If the slab has fewer left, treat as `NotOne`.
    ShortRead {
        /// Bytes from the beginning of the chunk.
        need_bytes: u32,
    },
}

/// Decodes the chunk at the beginning of `bytes`, which must hold at least a sector and may hold further chunks.
///
/// # Errors
/// See [`ChunkEnd`].
pub(crate) fn decode_chunk(bytes: &[u8], expect: &Expect) -> Result<Chunk, ChunkEnd> {
    let Some((header, _)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Err(ChunkEnd::ShortRead { need_bytes: expect.sector_bytes });
    };

    let (payload_bytes, body_checksum) = read_header(header, expect).ok_or(ChunkEnd::NotOne)?;
    if payload_bytes as usize > MAX_CHUNK_BYTES as usize - HEADER_BYTES {
        return Err(ChunkEnd::Damaged);
    }
    let padded_bytes = padded_bytes(payload_bytes as usize, expect.sector_bytes);
    let Some(body) = bytes.get(HEADER_BYTES..padded_bytes as usize) else {
        return Err(ChunkEnd::ShortRead { need_bytes: padded_bytes });
    };

    if crc32c::crc32c(body) != body_checksum {
        return Err(ChunkEnd::Damaged);
    }

    let mut fields = Reader(body.get(..payload_bytes as usize).ok_or(ChunkEnd::Damaged)?);
    let mut records = Vec::with_capacity(payload_bytes as usize / MAX_RECORD_BYTES + 1);
    while !fields.0.is_empty() {
        records.push(read_record(&mut fields).ok_or(ChunkEnd::Damaged)?);
    }
    Ok(Chunk { records, padded_bytes })
}

/// Returns the bytes of the records and their checksum, if `header` belongs to the expected chunk.
fn read_header(header: &[u8; HEADER_BYTES], expect: &Expect) -> Option<(u32, u32)> {
    let checked = header.get(..HEADER_CHECKED_BYTES)?;
    let mut fields = Reader(header);
    let is_magic = fields.array()? == MAGIC;
    let is_expected =
        fields.u128()? == expect.disk_guid && fields.u64()? == expect.stream && fields.u64()? == expect.chunk;
    let (payload_bytes, body_checksum) = (fields.u32()?, fields.u32()?);
    let is_right = fields.u32()? == crc32c::crc32c(checked);
    (is_magic && is_expected && is_right).then_some((payload_bytes, body_checksum))
}
