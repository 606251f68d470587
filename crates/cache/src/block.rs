//! The bytes of a cached value: read once, handed out many times.
//!
//! # Why
//! A hit read from a disk lies in aligned memory, with padding behind it; one from memory or from a caller lies in
//! ordinary memory. A reader of the block need not know which, and no copy is made.
//!
//! # How it works
//! A [`Block`] is a counted reference to one of the two, and a range in it. Clones and slices share the memory.
//!
//! # Limits
//! A slice keeps all the memory that it was cut from: copy a small slice that is kept long.
//!
//! # Example
//! ```
//! use plimsoll_cache::Block;
//! let block = Block::from_vec(b"sea water".to_vec());
//! assert_eq!(&block[..3], b"sea");
//! assert_eq!(&*block.slice(4..9), b"water");
//! ```

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use plimsoll::buffer::AlignedBuf;

#[derive(Clone)]
enum Memory {
    Aligned(Arc<AlignedBuf>),
    Heap(Arc<Vec<u8>>),
}

/// Counted, immutable bytes. Dereferences to `[u8]`; cheap to clone.
#[derive(Clone)]
pub struct Block {
    memory: Memory,
    /// The block's bytes in `memory`; within its bounds.
    range: Range<usize>,
}

impl Block {
    fn new(memory: Memory, len_bytes: usize, range: Range<usize>) -> Block {
        let end = range.end.min(len_bytes);
        Block { memory, range: range.start.min(end)..end }
    }

    /// Returns the bytes `range` of `buffer`, without a copy. A range beyond the buffer's end is cut.
    #[must_use]
    pub fn from_aligned(buffer: AlignedBuf, range: Range<usize>) -> Block {
        let len_bytes = buffer.len();
        Block::new(Memory::Aligned(Arc::new(buffer)), len_bytes, range)
    }

    /// Returns a block of all of `bytes`, without a copy.
    #[must_use]
    pub fn from_vec(bytes: Vec<u8>) -> Block {
        let len_bytes = bytes.len();
        Block::new(Memory::Heap(Arc::new(bytes)), len_bytes, 0..len_bytes)
    }

    /// Returns a block with a copy of `bytes`.
    #[must_use]
    pub fn copy_from_slice(bytes: &[u8]) -> Block {
        Block::from_vec(bytes.to_vec())
    }

    /// Returns the bytes of the memory that the block keeps: the whole sectors that it was read with, or what it was
    /// cut from.
    pub(crate) fn held_bytes(&self) -> usize {
        match &self.memory {
            Memory::Aligned(buffer) => buffer.memory_bytes(),
            Memory::Heap(bytes) => bytes.capacity(),
        }
    }

    /// Returns the bytes `range` of the block, sharing its memory. A range beyond the block's end is cut.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Block {
        let place = |offset: usize| self.range.start.saturating_add(offset);
        Block::new(self.memory.clone(), self.range.end, place(range.start)..place(range.end))
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let all: &[u8] = match &self.memory {
            Memory::Aligned(buffer) => buffer,
            Memory::Heap(bytes) => bytes,
        };
        all.get(self.range.clone()).unwrap_or_default()
    }
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq for Block {
    fn eq(&self, other: &Block) -> bool {
        **self == **other
    }
}

impl Eq for Block {}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({} bytes)", self.len())
    }
}

impl From<Vec<u8>> for Block {
    fn from(bytes: Vec<u8>) -> Block {
        Block::from_vec(bytes)
    }
}

/// Converts without a copy: the `Bytes` keep the block's memory.
#[cfg(feature = "object_store")]
impl From<Block> for bytes::Bytes {
    fn from(block: Block) -> bytes::Bytes {
        bytes::Bytes::from_owner(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_its_range_and_never_more() {
        let mut buffer = AlignedBuf::new(4096).unwrap();
        buffer[..5].copy_from_slice(b"12345");
        let block = Block::from_aligned(buffer, 0..5);
        let cases: [(Range<usize>, &[u8]); 5] =
            [(0..5, b"12345"), (1..3, b"23"), (3..9, b"45"), (7..9, b""), (0..usize::MAX, b"12345")];
        for (range, expect) in cases {
            assert_eq!(&*block.slice(range.clone()), expect, "{range:?}");
        }
        let part = block.slice(1..4);
        assert_eq!(&*part.slice(1..9), b"34", "a slice of a slice ends where the first one does");
        assert_eq!(Block::from_aligned(AlignedBuf::new(512).unwrap(), 500..600).len(), 12);
        assert!(Block::from_vec(Vec::new()).is_empty());
    }

    #[test]
    fn clones_share_memory() {
        let block = Block::copy_from_slice(&[7; 100]);
        let clone = block.clone();
        assert_eq!(block.as_ptr(), clone.as_ptr());
        assert_eq!(block, clone);
        assert_eq!(format!("{block:?}"), "Block(100 bytes)");
    }

    #[cfg(feature = "object_store")]
    #[test]
    fn bytes_keep_the_blocks_memory() {
        let block = Block::copy_from_slice(b"abc");
        let place = block.as_ptr();
        let bytes = bytes::Bytes::from(block);
        assert_eq!((bytes.as_ptr(), &bytes[..]), (place, &b"abc"[..]));
    }
}
