//! The requests of a queue: a bounded slab of slots, threaded into one FIFO list per class.
//!
//! A slot lives from `enqueue` until the last piece of its request has come back. Its memory is reused, never freed: no
//! more is allocated than at the busiest moment. Slots carry a generation, so that an old [`RequestId`] is recognised.

use std::num::NonZeroI32;

use crate::request::Op;

pub(crate) const NONE: u32 = u32::MAX;

/// The name of an enqueued request. After the request has ended, the name never means another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// A request in the slab.
#[repr(align(64))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestSlot {
    pub(crate) generation: u32,
    pub(crate) live: bool,
    /// Whether the request is in the FIFO of its class: a part of it is still to be dispatched.
    pub(crate) queued: bool,
    pub(crate) op: Op,
    pub(crate) class: u32,
    /// Neighbours in the class's FIFO; the first has no valid `prev`. `next` also threads the free list.
    pub(crate) prev: u32,
    pub(crate) next: u32,
    pub(crate) len_bytes: u32,
    /// Bytes handed out in pieces so far.
    pub(crate) dispatched_bytes: u32,
    /// Length of the longest prefix that can still succeed.
    pub(crate) prefix_bytes: u32,
    /// Device time of the undispatched rest.
    pub(crate) rest_fs: u64,
    /// Pieces in the device.
    pub(crate) outstanding: u32,
    /// Error of the piece at the end of the prefix.
    pub(crate) error: Option<NonZeroI32>,
    /// Whether that error is the cancellation of the rest.
    pub(crate) cancelled: bool,
    pub(crate) enqueued_ns: u64,
    pub(crate) user_data: u64,
}

/// The first and the last slot of a class's FIFO.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fifo {
    pub(crate) head: u32,
    tail: u32,
}

impl Default for Fifo {
    fn default() -> Fifo {
        Fifo { head: NONE, tail: NONE }
    }
}

impl RequestSlot {
    /// Returns a request that is neither queued nor dispatched, without device time.
    pub(crate) fn new(op: Op, class: u32, len_bytes: u32, enqueued_ns: u64, user_data: u64) -> RequestSlot {
        RequestSlot {
            generation: 0,
            live: true,
            queued: false,
            op,
            class,
            prev: NONE,
            next: NONE,
            len_bytes,
            dispatched_bytes: 0,
            prefix_bytes: len_bytes,
            rest_fs: 0,
            outstanding: 0,
            error: None,
            cancelled: false,
            enqueued_ns,
            user_data,
        }
    }
}

/// The slab of a queue's requests, with its free list.
#[derive(Debug)]
pub(crate) struct Slots {
    slots: Vec<RequestSlot>,
    free: u32,
    live: u32,
    limit: u32,
}

impl Slots {
    pub(crate) fn new(limit: u32) -> Slots {
        Slots { slots: Vec::new(), free: NONE, live: 0, limit: limit.min(NONE - 1) }
    }

    pub(crate) fn live(&self) -> u32 {
        self.live
    }

    pub(crate) fn is_full(&self) -> bool {
        self.live >= self.limit
    }

    /// Puts `new` into a free slot and returns its index; `None` at the limit.
    pub(crate) fn insert(&mut self, mut new: RequestSlot) -> Option<u32> {
        if self.is_full() {
            return None;
        }
        self.live += 1;
        if self.free == NONE {
            self.slots.push(new);
            return Some(self.slots.len() as u32 - 1);
        }

        let at = self.free;
        let slot = &mut self.slots[at as usize];
        self.free = slot.next;
        new.generation = slot.generation;
        *slot = new;
        Some(at)
    }

    pub(crate) fn release(&mut self, at: u32) {
        let free = self.free;
        let slot = &mut self.slots[at as usize];
        debug_assert!(slot.live && !slot.queued && slot.outstanding == 0);
        slot.live = false;
        slot.generation = slot.generation.wrapping_add(1);
        slot.next = free;
        self.free = at;
        self.live -= 1;
    }

    pub(crate) fn get(&self, at: u32) -> &RequestSlot {
        &self.slots[at as usize]
    }

    pub(crate) fn get_mut(&mut self, at: u32) -> &mut RequestSlot {
        &mut self.slots[at as usize]
    }

    /// Returns the slot of `id` if its request has not ended.
    pub(crate) fn find(&self, id: RequestId) -> Option<u32> {
        let slot = self.slots.get(id.slot as usize)?;
        (slot.live && slot.generation == id.generation).then_some(id.slot)
    }

    pub(crate) fn push_back(&mut self, fifo: &mut Fifo, at: u32) {
        let slot = &mut self.slots[at as usize];
        slot.queued = true;
        slot.prev = fifo.tail;
        slot.next = NONE;
        match fifo.tail {
            NONE => fifo.head = at,
            tail => self.slots[tail as usize].next = at,
        }
        fifo.tail = at;
    }

    /// Returns whether a FIFO holds at most one request.
    pub(crate) fn is_alone(&self, fifo: &Fifo) -> bool {
        fifo.head == fifo.tail
    }

    pub(crate) fn unlink(&mut self, fifo: &mut Fifo, at: u32) {
        let RequestSlot { prev, next, .. } = self.slots[at as usize];
        // The new head keeps its stale `prev`, which is never read: writing it would touch a far cache line.
        let is_head = fifo.head == at;
        match next {
            NONE if is_head => fifo.tail = NONE,
            NONE => fifo.tail = prev,
            _ if is_head => {}
            next => self.slots[next as usize].prev = prev,
        }
        if is_head {
            fifo.head = next;
        } else {
            self.slots[prev as usize].next = next;
        }
        self.slots[at as usize].queued = false;
    }
}

#[cfg(all(test, not(plimsoll_loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn slot(user_data: u64) -> RequestSlot {
        RequestSlot::new(Op::Read, 0, 0, 0, user_data)
    }

    proptest! {
        /// Requests leave from the head, as by dispatch, and from the tail and between, as by cancellation.
        #[test]
        fn a_fifo_keeps_its_order_wherever_requests_leave_it(steps in prop::collection::vec(0usize..8, 0..200)) {
            let (mut slots, mut fifo, mut expected) = (Slots::new(1_000), Fifo::default(), Vec::new());

            for (number, step) in steps.into_iter().enumerate() {
                let leaves = match step {
                    0..4 => None,
                    4 | 5 => expected.first().copied(),
                    6 => expected.last().copied(),
                    _ => expected.get(expected.len() / 2).copied(),
                };
                match leaves {
                    Some(at) => {
                        slots.unlink(&mut fifo, at);
                        slots.release(at);
                        expected.retain(|other| *other != at);
                    }
                    None => {
                        let at = slots.insert(slot(number as u64)).unwrap();
                        slots.push_back(&mut fifo, at);
                        expected.push(at);
                    }
                }
                let queued = |at: &u32| Some(slots.get(*at).next).filter(|next| *next != NONE);
                let first = Some(fifo.head).filter(|head| *head != NONE);
                prop_assert_eq!(std::iter::successors(first, queued).collect::<Vec<u32>>(), expected.clone());
                prop_assert_eq!(slots.is_alone(&fifo), expected.len() <= 1);
            }
        }
    }
}
