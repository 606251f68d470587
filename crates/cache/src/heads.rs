//! The heads of objects: a version, its length, and the length of its extents.
//!
//! # Why
//! Each read of a range needs the head of the object first. An object that is read often should not cost a second read
//! for that.
//!
//! # How it works
//! A [`Head`] is stored as a block of 28 bytes under the object's key. [`Heads`] keeps those that were read lately,
//! each with the index entry that it was read by: a head in memory is valid as long as that entry is.
//!
//! # Limits
//! 65,536 heads, of about 80 bytes each.
//!
//! # Example
//! `Head { version, len_bytes: 10_000_000, extent_bytes: 65_472 }` has 153 extents.

use std::sync::OnceLock;

use quick_cache::sync::Cache;

use crate::entry::Entry;
use crate::grid::Grid;
use crate::key::KeyHash;

/// Heads kept in memory.
const HEADS: usize = 1 << 16;

/// Bytes of a stored head.
const HEAD_BYTES: usize = 28;

/// A version of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) version: u128,
    /// Bytes of the object.
    pub(crate) len_bytes: u64,
    /// Bytes of the value in each extent but the last; not 0.
    pub(crate) extent_bytes: u32,
}

impl Head {
    pub(crate) fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..16].copy_from_slice(&self.version.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.len_bytes.to_le_bytes());
        bytes[24..].copy_from_slice(&self.extent_bytes.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Head> {
        let (version, rest) = bytes.split_first_chunk()?;
        let (len_bytes, rest) = rest.split_first_chunk()?;
        let head = Head {
            version: u128::from_le_bytes(*version),
            len_bytes: u64::from_le_bytes(*len_bytes),
            extent_bytes: u32::from_le_bytes(rest.try_into().ok()?),
        };
        (head.extent_bytes > 0).then_some(head)
    }

    pub(crate) fn grid(&self) -> Grid {
        Grid { block_bytes: self.extent_bytes.into(), len_bytes: self.len_bytes }
    }

    /// Returns the key of an extent.
    pub(crate) fn extent_key(&self, extent: u64) -> [u8; 24] {
        let mut key = [0; 24];
        key[..16].copy_from_slice(&self.version.to_le_bytes());
        key[16..].copy_from_slice(&extent.to_le_bytes());
        key
    }
}

/// Heads that were read lately.
#[derive(Default)]
pub(crate) struct Heads(OnceLock<Cache<KeyHash, (Entry, Head)>>);

impl Heads {
    /// Returns the head of an object that was read by `entry`.
    pub(crate) fn get(&self, hash: &KeyHash, entry: &Entry) -> Option<Head> {
        let (read_by, head) = self.0.get()?.get(hash)?;
        read_by.is_same_block(entry).then_some(head)
    }

    pub(crate) fn insert(&self, hash: &KeyHash, entry: Entry, head: Head) {
        self.0.get_or_init(|| Cache::new(HEADS)).insert(*hash, (entry, head));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_it_was_written_and_other_bytes_are_none() {
        let head = Head { version: u128::MAX / 3, len_bytes: u64::MAX / 5, extent_bytes: 65_508 };
        assert_eq!(Head::decode(&head.encode()), Some(head));
        for bytes in [&b"sea water"[..], &[0; HEAD_BYTES], &[1; HEAD_BYTES + 1], &[]] {
            assert_eq!(Head::decode(bytes), None, "{bytes:?}");
        }
    }
}
