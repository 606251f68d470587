//! The bytes of a record of the log.
//!
//! # Why
//! After a crash, the end of the log must be found without an index, in files that also hold older records.
//!
//! # How it works
//! A record begins at a block of [`BLOCK_BYTES`] and is padded with zeros to the next one:
//! ```text
//!   4  mark       8  number of the record       4  length of the rows
//!   4  crc32c of number, length and rows        .. the rows
//! ```
//! Consecutive records have consecutive numbers, so an old record behind a new one is not part of the log. The check
//! sum begins with a seed of the log that clients do not know: none of them can send a value that is a record. A row
//! has its key, its value unless it is a deletion, its sequence number, and its times if set.
//!
//! # Limits
//! At most 4 GiB - 1 bytes of rows.
//!
//! # Example
//! `Record::default()`, `push(&rows)`, and `end(7, seed)` returns the blocks of record 7.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use slatedb::{RowEntry, ValueDeletable};

/// Unit of the log in bytes: a block of direct I/O.
pub(crate) const BLOCK_BYTES: usize = 4096;
/// Bytes before the rows.
const HEAD_BYTES: usize = 20;
/// The first bytes of a record.
const MARK: u32 = u32::from_le_bytes(*b"PKV2");

/// Kind of a row, in the two lowest bits of its first byte.
const DELETION: u8 = 0;
const VALUE: u8 = 1;
const MERGE: u8 = 2;
/// Bits of a row's first byte: this time follows.
const HAS_CREATED: u8 = 4;
const HAS_EXPIRY: u8 = 8;

/// A record under construction.
#[derive(Debug, Default)]
pub(crate) struct Record {
    bytes: BytesMut,
    rows: usize,
    last_seq: Option<u64>,
}

impl Record {
    /// Adds a batch of rows. The log has the batch as a whole or not at all.
    pub(crate) fn push(&mut self, batch: &[RowEntry]) {
        if self.bytes.is_empty() {
            self.bytes.put_bytes(0, HEAD_BYTES);
        }

        for row in batch {
            let (kind, value) = match &row.value {
                ValueDeletable::Tombstone => (DELETION, None),
                ValueDeletable::Value(value) => (VALUE, Some(value)),
                ValueDeletable::Merge(value) => (MERGE, Some(value)),
            };

            let created = row.create_ts.map_or(0, |_| HAS_CREATED);
            let expiry = row.expire_ts.map_or(0, |_| HAS_EXPIRY);

            self.bytes.put_u8(kind | created | expiry);
            self.bytes.put_u64_le(row.seq);
            [row.create_ts, row.expire_ts].into_iter().flatten().for_each(|time| self.bytes.put_i64_le(time));
            for part in [Some(&row.key), value].into_iter().flatten() {
                self.bytes.put_u32_le(part.len() as u32);
                self.bytes.put_slice(part);
            }

            self.last_seq = Some(row.seq);
        }

        self.rows += batch.len();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows == 0
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the sequence number of the last row.
    pub(crate) fn last_seq(&self) -> Option<u64> {
        self.last_seq
    }

    /// Completes the record with its number, for the log of `seed`, and returns its blocks.
    pub(crate) fn end(mut self, number: u64, seed: u32) -> Bytes {
        let rows_bytes = self.bytes.len() - HEAD_BYTES;
        let mut head = &mut self.bytes[..HEAD_BYTES];
        head.put_u32_le(MARK);
        head.put_u64_le(number);
        head.put_u32_le(rows_bytes as u32);

        let crc = check_sum(&self.bytes, seed);
        self.bytes[HEAD_BYTES - 4..HEAD_BYTES].copy_from_slice(&crc.to_le_bytes());

        let padded_bytes = self.bytes.len().next_multiple_of(BLOCK_BYTES);
        self.bytes.resize(padded_bytes, 0);
        self.bytes.freeze()
    }
}

/// Returns the check sum of a record, from its number on, without the sum itself.
fn check_sum(record: &[u8], seed: u32) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(seed, &record[4..HEAD_BYTES - 4]), &record[HEAD_BYTES..])
}

/// The head of a record, from its first block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// The number of the record.
    pub(crate) number: u64,
    /// The length of the record, padding included.
    pub(crate) blocks_bytes: usize,
}

impl Head {
    /// Parses the first block of a record, or returns `None` if no record begins there. Only [`rows`] checks that the
    /// record is whole.
    pub(crate) fn read(mut block: &[u8]) -> Option<Head> {
        if block.len() < HEAD_BYTES || block.get_u32_le() != MARK {
            return None;
        }
        let (number, rows_bytes) = (block.get_u64_le(), block.get_u32_le() as usize);
        Some(Head { number, blocks_bytes: (HEAD_BYTES + rows_bytes).next_multiple_of(BLOCK_BYTES) })
    }
}

/// Returns the rows of the record in `blocks`, or `None` if the record is not whole, or not of the log of `seed`.
pub(crate) fn rows(blocks: &Bytes, seed: u32) -> Option<Vec<RowEntry>> {
    Head::read(blocks)?;
    let rows_bytes = u32::from_le_bytes(blocks[12..16].try_into().ok()?) as usize;
    let record = blocks.slice(..(HEAD_BYTES + rows_bytes).min(blocks.len()));
    let crc = u32::from_le_bytes(blocks[16..HEAD_BYTES].try_into().ok()?);
    if record.len() < HEAD_BYTES + rows_bytes || check_sum(&record, seed) != crc {
        return None;
    }
    let (mut rest, mut rows) = (record.slice(HEAD_BYTES..), Vec::new());
    while rest.has_remaining() {
        rows.push(row(&mut rest)?);
    }
    Some(rows)
}

fn row(rest: &mut Bytes) -> Option<RowEntry> {
    let kind = rest.try_get_u8().ok()?;
    let seq = rest.try_get_u64_le().ok()?;
    let mut time = |bit| if kind & bit == 0 { Some(None) } else { rest.try_get_i64_le().ok().map(Some) };
    let (create_ts, expire_ts) = (time(HAS_CREATED)?, time(HAS_EXPIRY)?);
    let mut part = || {
        let len = rest.try_get_u32_le().ok()? as usize;
        (len <= rest.len()).then(|| rest.split_to(len))
    };
    let key = part()?;
    let value = match kind & 3 {
        DELETION => ValueDeletable::Tombstone,
        VALUE => ValueDeletable::Value(part()?),
        MERGE => ValueDeletable::Merge(part()?),
        _ => return None,
    };
    Some(RowEntry { key, value, seq, create_ts, expire_ts })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

    use super::*;

    fn row(key: &'static str, value: ValueDeletable, seq: u64, times: Option<i64>) -> RowEntry {
        RowEntry { key: key.into(), value, seq, create_ts: times, expire_ts: times.map(|time| -time) }
    }

    #[test]
    fn rows_are_read_as_they_were_written() {
        let long = Bytes::from(vec![7; 3 * BLOCK_BYTES]);
        let batches = [
            vec![
                row("ship", ValueDeletable::Value("ahoy".into()), 1, None),
                row("", ValueDeletable::Tombstone, 1, None),
            ],
            vec![row("long", ValueDeletable::Value(long), 2, Some(5))],
            vec![row("sum", ValueDeletable::Merge(Bytes::new()), u64::MAX, Some(0))],
        ];
        let mut record = Record::default();
        assert!(record.is_empty());
        batches.iter().for_each(|batch| record.push(batch));
        assert_eq!((record.rows(), record.last_seq()), (4, Some(u64::MAX)));
        let blocks = record.end(9, 7);
        assert_eq!(blocks.len(), 4 * BLOCK_BYTES);
        let head = Head::read(&blocks[..BLOCK_BYTES]).unwrap();
        assert_eq!(head, Head { number: 9, blocks_bytes: blocks.len() });
        assert_eq!(rows(&blocks, 7).unwrap(), batches.concat());

        assert_eq!(rows(&blocks, 8), None, "of another log");

        // A changed byte and a missing block are detected; the padding is not checked.
        let used_bytes = blocks.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        for at in (0..used_bytes).step_by(37) {
            let mut damaged = blocks.to_vec();
            damaged[at] ^= 0x10;
            assert_eq!(rows(&damaged.into(), 7), None, "byte {at}");
        }
        for len in (0..blocks.len()).step_by(BLOCK_BYTES) {
            assert_eq!(rows(&blocks.slice(..len), 7), None, "{len} bytes");
        }
    }
}
