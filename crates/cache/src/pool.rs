//! Reuses read buffers.
//!
//! # Why
//! A hit on a fast disk takes 2 microseconds of CPU time. Allocating, zeroing and freeing 8 KiB of aligned memory
//! would be a fifth of that; and memory used a moment ago is still in the CPU's cache.
//!
//! # How it works
//! A [`BufferPool`] has [`SHELVES`] shelves; the length of a buffer decides on which it lies. A shelf holds buffers of
//! one length, at most [`SHELF_BYTES`] of them; a buffer of another length replaces them all. A block that was read
//! keeps a [`Pooled`] buffer, which returns when the last reference to it is dropped, on any thread.
//!
//! # Limits
//! A buffer taken holds the bytes of an earlier read. Use it only for reads, and its contents only if the read was
//! complete; never for writes, whose padding must be zeros. Long buffers are not kept: beside their read, zeroing
//! costs little.
//!
//! # Example
//! Blocks of 8 KiB from 64 tasks: after the first 64 reads nothing is allocated any more, and the pool keeps at most
//! 128 buffers, 1 MiB.

use std::ops::Deref;
use std::sync::{Arc, Mutex};

use crate::sync::lock;
use plimsoll::buffer::{AlignedBuf, BufferError};

/// Number of shelves: a power of two, and more than the lengths in use at a time.
const SHELVES: usize = 16;

/// Most bytes kept on each shelf.
const SHELF_BYTES: usize = 1 << 20;

/// The longest buffer that is kept, in bytes.
const LONGEST_BYTES: usize = 64 << 10;

/// Buffers of one length.
#[derive(Default)]
struct Shelf {
    len_bytes: usize,
    buffers: Vec<AlignedBuf>,
}

/// Buffers to read into, by length.
#[derive(Default)]
pub(crate) struct BufferPool {
    shelves: [Mutex<Shelf>; SHELVES],
}

impl BufferPool {
    /// Returns the shelf of a length. Powers of two sectors, and three times powers of two, each have a shelf of their
    /// own.
    fn shelf(&self, len_bytes: usize) -> &Mutex<Shelf> {
        let sectors = (len_bytes / 512).max(1);
        let halvings = sectors.trailing_zeros() as usize;
        &self.shelves[(halvings + 8 * (sectors >> halvings >> 1)) % SHELVES]
    }

    /// Returns a buffer of `len_bytes` bytes with arbitrary contents.
    ///
    /// # Errors
    /// When memory is exhausted.
    pub(crate) fn take(&self, len_bytes: usize) -> Result<AlignedBuf, BufferError> {
        let mut shelf = lock(self.shelf(len_bytes));
        let kept = if shelf.len_bytes == len_bytes { shelf.buffers.pop() } else { None };
        drop(shelf);
        kept.map_or_else(|| AlignedBuf::new(len_bytes), Ok)
    }

    /// Keeps a buffer for the next read, if there is room.
    pub(crate) fn give_back(&self, buffer: AlignedBuf) {
        let len_bytes = buffer.len();
        if len_bytes == 0 || len_bytes > LONGEST_BYTES {
            return;
        }
        let mut shelf = lock(self.shelf(len_bytes));
        if shelf.len_bytes != len_bytes {
            *shelf = Shelf { len_bytes, buffers: Vec::new() };
        }
        if (shelf.buffers.len() + 1) * len_bytes <= SHELF_BYTES {
            shelf.buffers.push(buffer);
        }
    }
}

/// A buffer that returns to its pool, if it has one, when dropped.
pub(crate) struct Pooled {
    buffer: AlignedBuf,
    pool: Option<Arc<BufferPool>>,
}

impl Pooled {
    pub(crate) fn new(buffer: AlignedBuf, pool: Option<Arc<BufferPool>>) -> Pooled {
        Pooled { buffer, pool }
    }
}

impl Deref for Pooled {
    type Target = AlignedBuf;

    fn deref(&self) -> &AlignedBuf {
        &self.buffer
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        if let Some(pool) = &self.pool {
            pool.give_back(std::mem::replace(&mut self.buffer, AlignedBuf::empty()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept_bytes(pool: &BufferPool) -> usize {
        pool.shelves.iter().map(|shelf| lock(shelf).buffers.iter().map(|buffer| buffer.len()).sum::<usize>()).sum()
    }

    #[test]
    fn what_was_given_back_is_taken_again() {
        let pool = Arc::new(BufferPool::default());
        let first = Pooled::new(pool.take(8192).unwrap(), Some(Arc::clone(&pool)));
        let place = first.as_ptr();
        drop(first);
        assert_eq!(kept_bytes(&pool), 8192);
        let other = pool.take(4096).unwrap();
        assert_eq!((other.len(), kept_bytes(&pool)), (4096, 8192), "never one of another length");
        assert_eq!(pool.take(8192).unwrap().as_ptr(), place);
        assert_eq!(kept_bytes(&pool), 0);
    }

    #[test]
    fn it_keeps_little_whatever_comes_back() {
        let pool = BufferPool::default();
        for len_bytes in (1..=400).map(|sectors| sectors * 512) {
            for _ in 0..10 {
                pool.give_back(AlignedBuf::new(len_bytes).unwrap());
            }
            assert!(kept_bytes(&pool) <= SHELVES * SHELF_BYTES);
        }
        for _ in 0..1000 {
            pool.give_back(AlignedBuf::new(8192).unwrap());
        }
        let shelf = lock(pool.shelf(8192));
        assert_eq!((shelf.len_bytes, shelf.buffers.len()), (8192, SHELF_BYTES / 8192));
    }

    #[test]
    fn usual_lengths_have_shelves_of_their_own() {
        let pool = BufferPool::default();
        let lengths = [512, 1024, 2048, 4096, 8192, 16384, 32768, 65536];
        for len_bytes in lengths {
            pool.give_back(AlignedBuf::new(len_bytes).unwrap());
        }
        assert_eq!(kept_bytes(&pool), lengths.iter().sum::<usize>());
    }
}
