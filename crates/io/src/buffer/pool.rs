//! Buffers that are used again, cut from huge pages.
//!
//! # Why
//! A read of 64 KiB into ordinary pages has 17 segments, which the kernel pins one by one and a virtual disk takes one
//! by one; in a huge page it has one. And memory that was just allocated has to be zeroed and mapped first.
//!
//! # How it works
//! A [`BufferPool`] has classes of lengths in pages, four for each power of two, so that at most a fifth of a long
//! buffer is left over. A class takes a chunk of 2 MiB from the system when it has no free buffer, and cuts it into
//! equal ones. A buffer returns when it is dropped, on any thread; the last to return is the first to be taken. A chunk
//! whose buffers have all returned goes back to the system if more than [`FREE_BYTES`] are free and its class has others.
//!
//! # Limits
//! A buffer has the bytes of its last use. One of a few bytes takes a page, one longer than a chunk is not pooled, and
//! each class in use takes a chunk. A buffer that is kept for long keeps its chunk; the rest of the chunk is used again,
//! but for lengths of the same class only.
//!
//! # Example
//! Sixteen reads of 68 KiB at a time, for hours: buffers of 80 KiB, 25 in a chunk, and one chunk in all.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::{AlignedBuf, Allocation, BufferError, DEFAULT_ALIGN_BYTES, HUGE_PAGE_BYTES};

/// Length of a chunk, in bytes: a huge page.
const CHUNK_BYTES: usize = HUGE_PAGE_BYTES;

/// Free bytes of a pool from which chunks without buffers in use go back to the system.
const FREE_BYTES: usize = 32 << 20;

/// Bytes of a page, the unit of lengths.
const PAGE_BYTES: usize = DEFAULT_ALIGN_BYTES;

/// Classes of a power of two, and the number of pages up to which each number has a class of its own.
const STEPS: usize = 4;

/// Classes from a page to [`CHUNK_BYTES`].
const CLASSES: usize = STEPS * ((CHUNK_BYTES / PAGE_BYTES / STEPS).ilog2() as usize + 1);

/// Returns the class of a length; `None` if it is not pooled.
fn class_of(len_bytes: usize) -> Option<usize> {
    let pages = len_bytes.div_ceil(PAGE_BYTES).max(1);
    if len_bytes > CHUNK_BYTES {
        return None;
    }
    if pages <= STEPS {
        return Some(pages - 1);
    }
    // The power of two below the length, and how many quarters of it the length takes beyond.
    let power = (pages - 1).ilog2();
    let beyond = pages.div_ceil((1 << power) / STEPS) - STEPS;
    Some(STEPS * (power - STEPS.ilog2()) as usize + STEPS - 1 + beyond)
}

/// Returns the length of the buffers of a class, in bytes.
fn bytes_of(class: usize) -> usize {
    let pages = match class.checked_sub(STEPS) {
        None => class + 1,
        Some(above) => (STEPS + 1 + above % STEPS) << (above / STEPS),
    };
    pages * PAGE_BYTES
}

/// The pool and class of a chunk.
pub(super) struct Home {
    pool: Weak<BufferPool>,
    class: usize,
    /// Free buffers of the chunk. Changes under the lock of the class.
    free: AtomicUsize,
}

/// A free part of a chunk.
struct FreeBuffer {
    ptr: NonNull<u8>,
    chunk: Arc<Allocation>,
}

// SAFETY: a slot is the address of bytes of its chunk that nothing else may use until it becomes a buffer.
unsafe impl Send for FreeBuffer {}

/// Buffers for requests, shared by any number of threads: of up to 2 MiB each, in huge pages where the kernel has some,
/// and used again. Of unused memory a pool keeps 32 MiB, and 2 MiB for each of its 32 classes of lengths.
///
/// # Example
/// ```
/// use plimsoll::buffer::BufferPool;
/// let pool = BufferPool::new();
/// let mut buffer = pool.take(100_000)?;
/// assert_eq!((buffer.len(), buffer.as_ptr() as usize % 4096), (100_000, 0));
/// buffer.fill(7);
/// # Ok::<(), plimsoll::buffer::BufferError>(())
/// ```
pub struct BufferPool {
    free: [Mutex<Vec<FreeBuffer>>; CLASSES],
    free_bytes: AtomicUsize,
}

impl BufferPool {
    /// Returns an empty pool.
    #[must_use]
    pub fn new() -> Arc<BufferPool> {
        Arc::new(BufferPool { free: std::array::from_fn(|_| Mutex::default()), free_bytes: AtomicUsize::new(0) })
    }

    fn lock(&self, class: usize) -> MutexGuard<'_, Vec<FreeBuffer>> {
        self.free[class].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a buffer of `len_bytes`, aligned to [`DEFAULT_ALIGN_BYTES`](super::DEFAULT_ALIGN_BYTES). Its contents
    /// are arbitrary: zeros, or the bytes of an earlier use.
    ///
    /// # Errors
    /// See [`BufferError`].
    pub fn take(self: &Arc<BufferPool>, len_bytes: usize) -> Result<AlignedBuf, BufferError> {
        let Some(class) = class_of(len_bytes) else { return AlignedBuf::new(len_bytes) };
        let mut free = self.lock(class);
        let slot = match free.pop() {
            Some(slot) => slot,
            None => {
                drop(free);
                let (slot, others) = self.new_chunk(class)?;
                self.free_bytes.fetch_add((1 + others.len()) * bytes_of(class), Relaxed);
                free = self.lock(class);
                free.extend(others);
                slot
            }
        };
        slot.home().free.fetch_sub(1, Relaxed);
        drop(free);
        self.free_bytes.fetch_sub(bytes_of(class), Relaxed);
        Ok(AlignedBuf { ptr: slot.ptr, len_bytes, owner: Some(slot.chunk), region: None })
    }

    /// Returns the buffers of a new chunk: one, and the others.
    fn new_chunk(self: &Arc<BufferPool>, class: usize) -> Result<(FreeBuffer, Vec<FreeBuffer>), BufferError> {
        let (step_bytes, count) = (bytes_of(class), CHUNK_BYTES / bytes_of(class));
        let mut chunk = Allocation::in_huge_pages(CHUNK_BYTES)?;
        chunk.home = Some(Home { pool: Arc::downgrade(self), class, free: count.into() });
        let chunk = Arc::new(chunk);
        let slot = |number: usize| {
            // SAFETY: `count` times `step_bytes` is at most the chunk's length, and slots do not overlap.
            let ptr = unsafe { chunk.ptr.add(number * step_bytes) };
            FreeBuffer { ptr, chunk: Arc::clone(&chunk) }
        };
        Ok((slot(0), (1..count).rev().map(slot).collect()))
    }

    /// Takes the memory of a buffer back.
    fn give_back(&self, slot: FreeBuffer) {
        let (class, chunk) = (slot.home().class, Arc::as_ptr(&slot.chunk));
        let chunk_slots = CHUNK_BYTES / bytes_of(class);
        let free_bytes = self.free_bytes.fetch_add(bytes_of(class), Relaxed) + bytes_of(class);
        let mut free = self.lock(class);
        let is_unused = slot.home().free.fetch_add(1, Relaxed) + 1 == chunk_slots;
        free.push(slot);
        let mut surplus = Vec::new();
        if is_unused && free.len() > chunk_slots && free_bytes > FREE_BYTES {
            surplus.extend(free.extract_if(.., |slot| Arc::as_ptr(&slot.chunk) == chunk));
        }
        drop(free);
        self.free_bytes.fetch_sub(surplus.len() * bytes_of(class), Relaxed);
        // Unmapping takes a while.
        drop(surplus);
    }
}

impl FreeBuffer {
    fn home(&self) -> &Home {
        match &self.chunk.home {
            Some(home) => home,
            None => unreachable!("only chunks of a pool are cut into slots"),
        }
    }
}

impl Home {
    /// Returns the bytes of memory that a buffer takes.
    pub(super) fn buffer_bytes(&self) -> usize {
        bytes_of(self.class)
    }
}

/// Gives the memory of a dropped buffer back to its pool, if it has one that still exists.
pub(super) fn give_back(ptr: NonNull<u8>, chunk: Arc<Allocation>) {
    if let Some(pool) = chunk.home.as_ref().and_then(|home| home.pool.upgrade()) {
        pool.give_back(FreeBuffer { ptr, chunk });
    }
}

impl std::fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BufferPool").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl BufferPool {
        /// Returns the free bytes, which must be those that are counted.
        fn free_bytes(&self) -> usize {
            let free_bytes = (0..CLASSES).map(|class| self.lock(class).len() * bytes_of(class)).sum();
            assert_eq!(self.free_bytes.load(Relaxed), free_bytes);
            free_bytes
        }
    }

    /// Returns whether each byte, or under Miri one of each page, is `byte`.
    fn is_filled(buffer: &AlignedBuf, byte: u8) -> bool {
        buffer.iter().step_by(if cfg!(miri) { 4096 } else { 1 }).all(|there| *there == byte)
    }

    #[test]
    fn classes_are_in_order_and_waste_at_most_a_fifth() {
        assert_eq!((class_of(0), class_of(1), class_of(CHUNK_BYTES)), (Some(0), Some(0), Some(CLASSES - 1)));
        assert_eq!((class_of(CHUNK_BYTES + 1), bytes_of(CLASSES - 1)), (None, CHUNK_BYTES));
        for pages in 1..=CHUNK_BYTES / 4096 {
            for len_bytes in [pages * 4096 - 1, pages * 4096, pages * 4096 + 1] {
                let Some(class) = class_of(len_bytes) else { continue };
                assert!(bytes_of(class) >= len_bytes && 4 * bytes_of(class) <= 5 * (len_bytes + 4096), "{len_bytes}");
                assert!(class == 0 || bytes_of(class - 1) < len_bytes, "{len_bytes}: the class below would do");
                assert!(bytes_of(class).is_multiple_of(4096));
            }
        }
    }

    #[test]
    fn what_is_dropped_is_taken_again_by_lengths_of_its_class() -> Result<(), BufferError> {
        let pool = BufferPool::new();
        let mut first = pool.take(68 << 10)?;
        first.fill(7);
        let place = first.as_ptr();
        drop(first);
        let other = pool.take(64 << 10)?;
        assert_ne!(other.as_ptr(), place);
        let again = pool.take(80 << 10)?;
        assert_eq!((again.as_ptr(), again.len(), again[1000]), (place, 80 << 10, 7));
        Ok(())
    }

    #[test]
    fn buffers_do_not_overlap_and_outlive_their_pool() -> Result<(), BufferError> {
        let pool = BufferPool::new();
        let lengths = [16 << 10, 17_000, 68 << 10, 1 << 20, 2 << 20, 100, 3 << 20];
        let mut buffers = Vec::new();
        for number in 0..70_u8 {
            let mut buffer = pool.take(lengths[usize::from(number) % lengths.len()])?;
            buffer.fill(number);
            buffers.push(buffer);
        }
        drop(pool);
        for (number, buffer) in (0..70_u8).zip(&buffers) {
            assert_eq!((buffer.len(), buffer.align_bytes()), (lengths[usize::from(number) % lengths.len()], 4096));
            assert!((buffer.as_ptr() as usize).is_multiple_of(4096) && is_filled(buffer, number));
        }
        Ok(())
    }

    #[test]
    fn unused_memory_goes_back_to_the_system() -> Result<(), BufferError> {
        let pool = BufferPool::new();
        let burst: Vec<_> = (0..400).map(|_| pool.take(128 << 10)).collect::<Result<_, _>>()?;
        drop(burst);
        assert!((FREE_BYTES - CHUNK_BYTES..=FREE_BYTES).contains(&pool.free_bytes()), "{}", pool.free_bytes());
        // One buffer of each chunk is kept, so no chunk can go; all others are used again.
        let mut kept: Vec<_> = (0..400).map(|_| pool.take(128 << 10)).collect::<Result<_, _>>()?;
        let mut number = 0;
        kept.retain(|_| {
            number += 1;
            number % 16 == 1
        });
        assert_eq!(pool.free_bytes(), 375 * (128 << 10));
        let again: Vec<_> = (0..375).map(|_| pool.take(128 << 10)).collect::<Result<_, _>>()?;
        assert_eq!(pool.free_bytes(), 0);
        drop((kept, again));
        assert!(pool.free_bytes() <= FREE_BYTES);
        // However much is free, one request of another length does not come and go with its chunk.
        let place = pool.take(20 << 10)?.as_ptr();
        assert_eq!(pool.take(20 << 10)?.as_ptr(), place);
        assert!(pool.free_bytes() <= FREE_BYTES + CHUNK_BYTES);
        Ok(())
    }

    #[test]
    fn threads_share_it() {
        let pool = BufferPool::new();
        std::thread::scope(|scope| {
            for thread in 0..4_u8 {
                let pool = &pool;
                scope.spawn(move || {
                    let mut held = std::collections::VecDeque::new();
                    for round in 0..300_usize {
                        let Ok(mut buffer) = pool.take((16 << 10) << (round % 3)) else { panic!("no memory") };
                        buffer.fill(thread);
                        held.push_back(buffer);
                        if held.len() > 8 {
                            let oldest = held.pop_front();
                            assert!(oldest.is_some_and(|buffer| is_filled(&buffer, thread)));
                        }
                    }
                });
            }
        });
        assert!(pool.free_bytes() <= FREE_BYTES + 3 * CHUNK_BYTES);
    }
}
