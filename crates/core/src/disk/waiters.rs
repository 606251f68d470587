//! The queues that sleep until there is room in the device, and which of them is first.
//!
//! # Why
//! A completion polls the queue whose piece came back. Often the turn is that of another queue, which sleeps. Unless
//! that queue is woken, the device lacks a piece until it polls by itself.
//!
//! # How it works
//! A queue that finds the device full lists the reading of the disk's clock at which its turn comes, until its next
//! poll. A queue that leaves room takes the first of the others off the list, and its driver wakes that one.
//!
//! # Limits
//! Queues are named by numbers below [`QUEUES_MAX`]; others are not listed. A queue that lists itself just after
//! another has searched the list is not woken by it; so each queue also polls by itself at intervals.
//!
//! # Example
//! Clock 100. Queue 0 waits for 130, queue 1 for 90. Queue 2 leaves room: queue 1 is woken, and 0 stays in the list.

use crate::clock::is_before;
use crate::sync::{AtomicU64, Ordering::Relaxed};

/// The least number of a queue that is not listed.
pub(crate) const QUEUES_MAX: usize = 256;

/// The waiting queues of one lane.
#[derive(Debug)]
pub(super) struct Waiters {
    /// By number, the reading of the clock at which the queue's turn comes, with the lowest bit set; 0: does not wait.
    turns: Box<[AtomicU64]>,
    /// One more than the highest number that has ever waited.
    numbers: AtomicU64,
}

impl Waiters {
    pub(super) fn new() -> Waiters {
        Waiters { turns: (0..QUEUES_MAX).map(|_| AtomicU64::new(0)).collect(), numbers: AtomicU64::new(0) }
    }

    /// Lists queue `number` until [`Waiters::forget`]: its turn comes at `turn` on the clock.
    pub(super) fn add(&self, number: u16, turn: u64) {
        let Some(place) = self.turns.get(usize::from(number)) else { return };
        place.store(turn | 1, Relaxed);
        super::room::raise(&self.numbers, u64::from(number) + 1);
    }

    /// Takes queue `number` out of the list, and returns whether it was there.
    pub(super) fn forget(&self, number: u16) -> bool {
        let Some(place) = self.turns.get(usize::from(number)) else { return false };
        place.load(Relaxed) != 0 && place.swap(0, Relaxed) != 0
    }

    /// Takes the queue whose turn comes first out of the list, and returns its number. Leaves out `but`, and those
    /// whose turn does not come before `before`.
    pub(super) fn take_first(&self, but: Option<u16>, before: Option<u64>) -> Option<u16> {
        let numbers = self.numbers.load(Relaxed) as usize;
        let mut first: Option<(Option<u16>, u64)> = before.map(|turn| (None, turn | 1));
        for (number, place) in (0..).zip(&self.turns[..numbers]) {
            let turn = place.load(Relaxed);
            let is_first = first.is_none_or(|(_, earliest)| is_before(turn, earliest));
            if turn != 0 && is_first && Some(number) != but {
                first = Some((Some(number), turn));
            }
        }

        // Of two queues that leave room at once, one wakes the first.
        let (number, turn) = first?;
        let number = number?;
        self.turns[usize::from(number)].compare_exchange(turn, 0, Relaxed, Relaxed).ok().map(|_| number)
    }
}

#[cfg(test)]
#[cfg(not(plimsoll_loom))]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_the_one_whose_turn_comes_first_and_is_taken_once() {
        let waiters = Waiters::new();
        assert_eq!(waiters.take_first(None, None), None);
        // Clocks wrap.
        waiters.add(7, 4);
        waiters.add(200, u64::MAX - 2);
        waiters.add(3, 8);
        waiters.add(u16::MAX, 0);
        assert_eq!(waiters.take_first(Some(200), Some(4)), None);
        assert_eq!(waiters.take_first(Some(200), Some(6)), Some(7));
        assert_eq!(waiters.take_first(None, None), Some(200));
        assert_eq!([waiters.forget(3), waiters.forget(3)], [true, false]);
        assert_eq!(waiters.take_first(None, None), None);
    }
}
