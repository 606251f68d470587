//! Events in the order of their time, from a trace that is nearly in order.
//!
//! **Why.** Readers hand over a piece when it has ended, with all its times at once. An analysis that follows a queue
//! needs arrivals and departures one after the other.
//!
//! **How.** Entries are held back; when there are too many, they are sorted and the earlier half is handed over.
//!
//! **Limits.** At least [`HELD_MAX`] entries are held back. An entry that is earlier than one handed over already
//! counts as late, and is handed over with that one's time.
//!
//! **Example.**
//! ```
//! use plimsoll_observe::trace::order::Ordered;
//! let (mut ordered, mut seen) = (Ordered::default(), Vec::new());
//! for (time_ns, what) in [(20, "out"), (10, "queued"), (30, "back")] {
//!     ordered.push(time_ns, 0, what, &mut |_, what| seen.push(what));
//! }
//! ordered.finish(&mut |_, what| seen.push(what));
//! assert_eq!(seen, ["queued", "out", "back"]);
//! ```

/// Fewest entries held back while the trace is read.
pub const HELD_MAX: usize = 1 << 18;

#[derive(Clone, Debug)]
pub struct Ordered<T> {
    held: Vec<(u64, u8, T)>,
    passed_ns: u64,
    late: u64,
}

impl<T> Default for Ordered<T> {
    fn default() -> Ordered<T> {
        Ordered { held: Vec::new(), passed_ns: 0, late: 0 }
    }
}

impl<T> Ordered<T> {
    /// Takes an entry, and calls `to` with those that are due; times never decrease. Entries of one time go by `rank`,
    /// the smallest first, then by arrival.
    pub fn push(&mut self, time_ns: u64, rank: u8, what: T, to: &mut dyn FnMut(u64, T)) {
        self.late += u64::from(time_ns < self.passed_ns);
        self.held.push((time_ns, rank, what));
        if self.held.len() >= 2 * HELD_MAX {
            self.pass(HELD_MAX, to);
        }
    }

    pub fn finish(&mut self, to: &mut dyn FnMut(u64, T)) {
        self.pass(self.held.len(), to);
    }

    /// Returns the number of entries that were handed over out of order.
    pub fn late(&self) -> u64 {
        self.late
    }

    fn pass(&mut self, count: usize, to: &mut dyn FnMut(u64, T)) {
        self.held.sort_by_key(|(time_ns, rank, _)| (*time_ns, *rank));
        for (time_ns, _, what) in self.held.drain(..count.min(self.held.len())) {
            self.passed_ns = self.passed_ns.max(time_ns);
            to(self.passed_ns, what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_are_the_wrong_way_round_come_out_in_order_and_what_is_too_late_is_told() {
        let (mut ordered, mut seen) = (Ordered::default(), Vec::new());
        for at in 0..1_000_000_u64 {
            let time_ns = at / 1000 * 1000 + 999 - at % 1000;
            ordered.push(time_ns, 0, time_ns, &mut |_, what| seen.push(what));
        }
        assert!(ordered.held.len() < 2 * HELD_MAX && ordered.late() == 0);
        ordered.push(5, 0, 5, &mut |_, what| seen.push(what));
        assert_eq!(ordered.late(), 1);
        let mut times = Vec::new();
        ordered.finish(&mut |time_ns, what| {
            times.push(time_ns);
            seen.push(what);
        });
        assert!(times.is_sorted(), "times never go back");
        assert_eq!(seen.len(), 1_000_001);
        assert_eq!(seen.iter().filter(|what| **what != 5).copied().take(3).collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn one_time_goes_by_rank_and_then_as_it_came() {
        let (mut ordered, mut seen) = (Ordered::default(), Vec::new());
        for (rank, what) in [(2, 'c'), (0, 'a'), (2, 'd'), (1, 'b')] {
            ordered.push(7, rank, what, &mut |_, _| {});
        }
        ordered.finish(&mut |_, what| seen.push(what));
        assert_eq!(seen, ['a', 'b', 'c', 'd']);
    }
}
