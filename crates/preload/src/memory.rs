//! The library's own memory: it never calls the program's `malloc`.
//!
//! # Why
//! A signal handler may call `open` and `read` while its thread is inside `malloc`. If the library then allocated by
//! `malloc`, it would damage the program's heap, or wait for a lock that its own thread holds.
//!
//! # How it works
//! Blocks are powers of two of bytes, from [`SMALLEST_BYTES`] to [`LARGEST_BYTES`], carved from one mapping, the arena.
//! Free blocks of a size form a list without a lock. Its links are in a table outside of the blocks. Its head has a count
//! of changes, so that a thread that was interrupted notices that the list has changed. A thread may thus stop anywhere,
//! also for ever (`siglongjmp`, `fork`), and loses one block at most. Larger blocks, and all once the arena is used up,
//! are mappings of their own.
//!
//! # Limits
//! Memory of the arena is never returned to the system. libc itself allocates where the library starts a thread.
//!
//! # Example
//! A block of 100 bytes is one of 128: the first of the list of that size, or else the next 128 bytes of the arena.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

const SMALLEST_BYTES: usize = 64;
const LARGEST_BYTES: usize = 64 << 10;
/// Bytes of the arena: more than a process needs that has no trace.
const ARENA_BYTES: usize = 16 << 20;
const SIZES: usize = (LARGEST_BYTES / SMALLEST_BYTES).trailing_zeros() as usize + 1;
const PAGE_BYTES: usize = 4096;

pub(crate) struct Memory {
    /// The beginning of the arena, a multiple of `LARGEST_BYTES`; null until the first allocation.
    arena: AtomicPtr<u8>,
    /// Bytes of the arena that were carved.
    carved_bytes: AtomicUsize,
    /// For each size: the number of the first free block plus 1 (0: none), below a count of changes.
    free: [AtomicU64; SIZES],
    /// The number of the next free block plus 1, by the number of a block. Numbers count units of `SMALLEST_BYTES`.
    next: [AtomicU32; ARENA_BYTES / SMALLEST_BYTES],
}

/// Returns the size of a block for `layout`.
fn block_bytes(layout: Layout) -> usize {
    layout.size().max(layout.align()).max(SMALLEST_BYTES).checked_next_power_of_two().unwrap_or(usize::MAX)
}

/// Maps at least `len_bytes`, aligned to `align`. Returns null if that fails.
fn map(len_bytes: usize, align: usize) -> *mut u8 {
    let Some(room_bytes) = len_bytes.checked_add(if align > PAGE_BYTES { align } else { 0 }) else {
        return std::ptr::null_mut();
    };
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), room_bytes, protection, flags | libc::MAP_NORESERVE, -1, 0) };
    if at == libc::MAP_FAILED {
        return std::ptr::null_mut();
    }
    let at: *mut u8 = at.cast();
    let before_bytes = at.addr().next_multiple_of(align) - at.addr();
    if before_bytes > 0 {
        // SAFETY: the pages before the block were mapped above.
        unsafe { unmap(at, before_bytes) };
    }
    let block = at.wrapping_add(before_bytes);
    let behind_bytes = room_bytes - before_bytes - len_bytes;
    if behind_bytes >= PAGE_BYTES {
        let kept_bytes = len_bytes.next_multiple_of(PAGE_BYTES);
        // SAFETY: the pages behind the block were mapped above.
        unsafe { unmap(block.wrapping_add(kept_bytes), room_bytes - before_bytes - kept_bytes) };
    }
    block
}

/// Unmaps pages.
///
/// # Safety
/// [`map`] has mapped them, and nobody uses them.
unsafe fn unmap(at: *mut u8, len_bytes: usize) {
    // SAFETY: the caller guarantees it.
    unsafe { libc::munmap(at.cast(), len_bytes) };
}

impl Memory {
    pub(crate) const fn new() -> Memory {
        Memory {
            arena: AtomicPtr::new(std::ptr::null_mut()),
            carved_bytes: AtomicUsize::new(0),
            free: [const { AtomicU64::new(0) }; SIZES],
            next: [const { AtomicU32::new(0) }; ARENA_BYTES / SMALLEST_BYTES],
        }
    }

    /// Returns the arena. If there is none, maps it. Returns null if that fails.
    fn arena(&self) -> *mut u8 {
        let arena = self.arena.load(Acquire);
        if !arena.is_null() {
            return arena;
        }
        let new = map(ARENA_BYTES, LARGEST_BYTES);
        match self.arena.compare_exchange(std::ptr::null_mut(), new, AcqRel, Acquire) {
            Ok(_) => new,
            Err(others) => {
                // Another thread was first, or a signal handler.
                if !new.is_null() {
                    // SAFETY: mapped above, and nobody else has the address.
                    unsafe { unmap(new, ARENA_BYTES) };
                }
                others
            }
        }
    }

    /// Takes the first free block of a size. Returns its number.
    fn take_free(&self, size: usize) -> Option<usize> {
        let mut head = self.free[size].load(Acquire);
        loop {
            let number = (head as u32).checked_sub(1)? as usize;
            // If another thread has taken the block meanwhile, the link is wrong, and the exchange fails.
            let next = self.next[number].load(Relaxed);
            match self.free[size].compare_exchange_weak(head, changed(head, next), AcqRel, Acquire) {
                Ok(_) => return Some(number),
                Err(now) => head = now,
            }
        }
    }

    fn give_back(&self, size: usize, number: usize) {
        let mut head = self.free[size].load(Relaxed);
        loop {
            self.next[number].store(head as u32, Relaxed);
            match self.free[size].compare_exchange_weak(head, changed(head, number as u32 + 1), Release, Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Carves a block off the arena. Returns its number, or `None` if the arena has no room.
    fn carve(&self, block_bytes: usize) -> Option<usize> {
        let end = |carved: usize| carved.next_multiple_of(block_bytes) + block_bytes;
        let carve = |carved| Some(end(carved)).filter(|end| *end <= ARENA_BYTES);
        let before = self.carved_bytes.fetch_update(Relaxed, Relaxed, carve).ok()?;
        Some((end(before) - block_bytes) / SMALLEST_BYTES)
    }
}

/// Returns the head of a list that was `head` and now begins with another block.
fn changed(head: u64, first: u32) -> u64 {
    ((head >> 32).wrapping_add(1) << 32) | u64::from(first)
}

// SAFETY: a block is in no list while it is allocated, and no two blocks overlap: each is carved once, and the blocks of a
// list have its size. Blocks are aligned to their size, as the arena is to the largest.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let block_bytes = block_bytes(layout);
        let arena = if block_bytes > LARGEST_BYTES { std::ptr::null_mut() } else { self.arena() };
        if !arena.is_null() {
            let size = (block_bytes / SMALLEST_BYTES).trailing_zeros() as usize;
            if let Some(number) = self.take_free(size).or_else(|| self.carve(block_bytes)) {
                return arena.wrapping_add(number * SMALLEST_BYTES);
            }
        }
        map(layout.size(), layout.align())
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let arena = self.arena.load(Acquire);
        let offset_bytes = block.addr().wrapping_sub(arena.addr());
        if arena.is_null() || offset_bytes >= ARENA_BYTES {
            // SAFETY: a block that is not in the arena is a mapping, which the caller no longer uses.
            unsafe { unmap(block, layout.size()) };
            return;
        }
        let size = (block_bytes(layout) / SMALLEST_BYTES).trailing_zeros() as usize;
        self.give_back(size, offset_bytes / SMALLEST_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static MEMORY: Memory = Memory::new();

    /// Allocates a block and fills it.
    fn filled(layout: Layout, byte: u8) -> *mut u8 {
        // SAFETY: no layout here is empty.
        let block = unsafe { MEMORY.alloc(layout) };
        assert!(!block.is_null() && block.addr() % layout.align() == 0, "{layout:?}: {block:?}");
        // SAFETY: the block is as long, and nobody else's.
        unsafe { block.write_bytes(byte, layout.size()) };
        block
    }

    #[test]
    fn blocks_of_any_size_and_alignment_do_not_overlap_and_are_used_again() {
        let table = [(1, 1), (64, 8), (65, 64), (4096, 4096), (100, 8192), (60_000, 8), (70_000, 8), (10, 1 << 20)];
        let layouts = table.map(|(size, align)| Layout::from_size_align(size, align).expect("a layout"));
        let mut before = 0;
        for round in 0..100 {
            let blocks = layouts.map(|layout| filled(layout, layout.size() as u8));
            for (block, layout) in blocks.into_iter().zip(layouts) {
                // SAFETY: the block was filled above.
                let bytes = unsafe { std::slice::from_raw_parts(block, layout.size()) };
                assert!(bytes.iter().all(|byte| *byte == layout.size() as u8), "{layout:?} was overwritten");
                // SAFETY: allocated above with this layout.
                unsafe { MEMORY.dealloc(block, layout) };
            }
            let carved = MEMORY.carved_bytes.load(Relaxed);
            assert!(round == 0 || carved == before, "round {round} carved new blocks");
            before = carved;
        }
    }

    #[test]
    fn threads_never_get_the_same_block() {
        static MEMORY: Memory = Memory::new();
        let work = |byte: u8| {
            let layout = Layout::from_size_align(64, 8).expect("a layout");
            for _ in 0..20_000 {
                // SAFETY: the layout is not empty.
                let block = unsafe { MEMORY.alloc(layout) };
                // SAFETY: the block is as long, and nobody else's.
                unsafe { block.write_bytes(byte, 64) };
                std::hint::spin_loop();
                // SAFETY: filled above.
                let bytes = unsafe { std::slice::from_raw_parts(block, 64) };
                assert!(bytes.iter().all(|is| *is == byte), "another thread has the block, too");
                // SAFETY: allocated above with this layout.
                unsafe { MEMORY.dealloc(block, layout) };
            }
        };
        std::thread::scope(|scope| (1..=4).for_each(|byte| drop(scope.spawn(move || work(byte)))));
    }

    #[test]
    fn an_arena_that_is_used_up_is_followed_by_mappings() {
        static MEMORY: Memory = Memory::new();
        let layout = Layout::from_size_align(LARGEST_BYTES, 8).expect("a layout");
        let count = ARENA_BYTES / LARGEST_BYTES + 2;
        // SAFETY: the layout is not empty.
        let blocks: Vec<usize> = (0..count).map(|_| unsafe { MEMORY.alloc(layout) }.addr()).collect();
        let mut sorted = blocks.clone();
        sorted.sort_unstable();
        assert!(sorted[0] != 0 && sorted.windows(2).all(|pair| pair[1] - pair[0] >= LARGEST_BYTES));
    }
}
