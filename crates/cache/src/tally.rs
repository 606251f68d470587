//! Counters that every hit in memory adds to, on all threads at once.
//!
//! # Why
//! Such a hit takes a tenth of a microsecond. A counter that other CPUs have just added to takes as long: its line of
//! memory must come from their caches.
//!
//! # How it works
//! Each thread adds to a line of its own, which it shares with others if there are more than [`LINES`].
//!
//! # Limits
//! A sum is of one moment only if no thread adds meanwhile.
//!
//! # Example
//! `Tally::<2>::default().add([1, 8192])`

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Lines of a tally.
const LINES: usize = 16;

/// The counters of one thread. CPUs fetch lines of 64 bytes in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Line<const N: usize>([AtomicU64; N]);

/// `N` counters.
#[derive(Debug)]
pub(crate) struct Tally<const N: usize>(Box<[Line<N>; LINES]>);

impl<const N: usize> Default for Tally<N> {
    fn default() -> Tally<N> {
        let line = |_| Line(std::array::from_fn(|_| AtomicU64::new(0)));
        Tally(Box::new(std::array::from_fn(line)))
    }
}

impl<const N: usize> Tally<N> {
    /// Adds to each counter.
    pub(crate) fn add(&self, by: [u64; N]) {
        for (counter, by) in self.0[own_line()].0.iter().zip(by) {
            counter.fetch_add(by, Relaxed);
        }
    }

    /// Returns the counters.
    pub(crate) fn sums(&self) -> [u64; N] {
        std::array::from_fn(|number| self.0.iter().map(|line| line.0[number].load(Relaxed)).sum())
    }

    /// Sets the counters to 0.
    pub(crate) fn clear(&self) {
        self.0.iter().flat_map(|line| &line.0).for_each(|counter| counter.store(0, Relaxed));
    }

    /// Returns the bytes on the heap.
    pub(crate) const fn heap_bytes() -> usize {
        size_of::<[Line<N>; LINES]>()
    }
}

/// Returns the number of this thread's line.
fn own_line() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static LINE: usize = THREADS.fetch_add(1, Relaxed) % LINES;
    }
    LINE.with(|line| *line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_threads_count() {
        let tally = Tally::<2>::default();
        std::thread::scope(|scope| {
            for _ in 0..2 * LINES {
                scope.spawn(|| (0..100).for_each(|_| tally.add([1, 5])));
            }
        });
        assert_eq!(tally.sums(), [3200, 16_000]);
        tally.clear();
        assert_eq!(tally.sums(), [0, 0]);
    }
}
