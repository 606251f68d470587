//! A value cut into blocks of one length.
//!
//! # Why
//! Objects of the cache and of object stores are read by ranges of bytes and stored in blocks. The arithmetic between
//! the two stands here, once.
//!
//! # How it works
//! Block `n` holds `block_bytes` bytes of the value from `n * block_bytes` on; the last block is cut at the value's
//! end. Ranges are half open, as Rust's.
//!
//! # Limits
//! Ranges must end within the value.
//!
//! # Example
//! A value of 10 bytes in blocks of 4: the range `3..5` touches the blocks 0 and 1, and the last block holds `8..10`.

use std::ops::Range;

/// The blocks of a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    /// Bytes of each block but the last; not 0.
    pub(crate) block_bytes: u64,
    /// Bytes of the value.
    pub(crate) len_bytes: u64,
}

impl Grid {
    /// Returns the blocks that `range` touches. `range` must not be empty.
    pub(crate) fn blocks_of(&self, range: &Range<u64>) -> Range<u64> {
        debug_assert!(!range.is_empty(), "{range:?} touches no block");
        range.start / self.block_bytes..range.end.div_ceil(self.block_bytes)
    }

    /// Returns the bytes of the value that the blocks `first` to `last` (inclusive) hold.
    pub(crate) fn span(&self, first: u64, last: u64) -> Range<u64> {
        let end = last.saturating_add(1).saturating_mul(self.block_bytes);
        first.saturating_mul(self.block_bytes)..end.min(self.len_bytes)
    }
}

/// Returns the part of a piece that is in `range`, counted from the begin of the piece. The piece is the `len` bytes of
/// a value from `start` on; `range` counts from the begin of the value.
pub(crate) fn part_in(start: u64, len: usize, range: &Range<u64>) -> Range<usize> {
    let place = |offset: u64| (offset.saturating_sub(start) as usize).min(len);
    place(range.start)..place(range.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_at_its_blocks() {
        let grid = Grid { block_bytes: 4, len_bytes: 10 };
        for (range, blocks, parts) in [
            (0..10, 0..3, vec![(0, 4), (0, 4), (0, 2)]),
            (3..5, 0..2, vec![(3, 4), (0, 1)]),
            (4..8, 1..2, vec![(0, 4)]),
            (9..10, 2..3, vec![(1, 2)]),
        ] {
            assert_eq!(grid.blocks_of(&range), blocks, "{range:?}");
            let part = |block: u64| {
                let span = grid.span(block, block);
                let part = part_in(span.start, (span.end - span.start) as usize, &range);
                (part.start, part.end)
            };
            assert_eq!(blocks.map(part).collect::<Vec<_>>(), parts, "{range:?}");
        }
        assert_eq!(grid.span(1, u64::MAX), 4..10);
    }
}
