//! Pending completions, in order of time.
//!
//! # Why
//! Every request becomes one event, and taking the earliest is the most frequent operation of a device.
//!
//! # How it works
//! A binary heap by (time, order of submission), of small copies: no pointers, and no allocation once it has grown.
//!
//! # Limits
//! The heap never shrinks.
//!
//! # Example
//! Pushed at 30, 10, 10 (keys 1, 2, 3), the events come as 2, 3, 1.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::DeviceCompletion;

#[derive(Clone, Copy, Debug)]
struct Event {
    at_ns: u64,
    /// Order of submission.
    number: u64,
    key: u64,
    result: Result<u32, i32>,
}

impl Event {
    /// Returns time and order of submission as one number, the time first.
    fn rank(&self) -> u128 {
        (u128::from(self.at_ns) << 64) | u128::from(self.number)
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Event) -> bool {
        self.rank() == other.rank()
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Event) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The earliest is the greatest, because the heap returns the greatest first.
impl Ord for Event {
    fn cmp(&self, other: &Event) -> Ordering {
        other.rank().cmp(&self.rank())
    }
}

/// Pending completions, the earliest first.
#[derive(Debug)]
pub(super) struct Events {
    heap: BinaryHeap<Event>,
    pushed: u64,
}

impl Events {
    pub(super) fn new() -> Events {
        Events { heap: BinaryHeap::with_capacity(1024), pushed: 0 }
    }

    pub(super) fn push(&mut self, at_ns: u64, key: u64, result: Result<u32, i32>) {
        self.pushed += 1;
        self.heap.push(Event { at_ns, number: self.pushed, key, result });
    }

    pub(super) fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|event| event.at_ns)
    }

    /// Removes and returns the earliest event if it is due by `now_ns`.
    pub(super) fn pop_until(&mut self, now_ns: u64) -> Option<DeviceCompletion> {
        if self.next_ns()? > now_ns {
            return None;
        }
        let event = self.heap.pop()?;
        Some(DeviceCompletion { key: event.key, at_ns: event.at_ns, result: event.result })
    }

    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }
}
