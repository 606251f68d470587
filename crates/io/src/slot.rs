//! Requests from outside the shards, and their answers: no allocation for each, and one wake-up.
//!
//! # Why
//! A task of Tokio that reads 4 KiB must not pay for a boxed job, a channel and a task on the shard. If the task is
//! dropped (a timeout, a `select!`), its request must not stay in the queue.
//!
//! # How it works
//! A [`Slot`] carries a request to its shard and the result back. Between two requests it is in a pool. A future
//! (`submission.rs`) fills the slot and pushes it into the shard's [`Inbox`], an intrusive list: a push is one
//! compare-and-swap, and only a push into an empty inbox wakes the shard. The shard takes the whole list at once, and
//! keeps each slot as a [`Submission`] in its table of operations, without a task. At the end the shard stores the
//! result in it and wakes the future.
//!
//! One word, the state, determines which side may touch the contents:
//! ```text
//! QUEUED --the shard takes it--> TAKEN --it has ended--> DONE --the future takes the end--> back into the pool
//!    |                             |
//!    +---the future is dropped-----+--> ABANDONED   (from TAKEN: pushed once more, so that the shard cancels it)
//! ```
//! So no side waits for the lock around the contents, and a preempted task never holds up a shard.
//!
//! # Limits
//! The pool of a shard keeps at most [`POOLED_MAX`] slots; with more requests at once, slots are allocated and freed. A
//! slot whose future was dropped is not reused. The shard's own tasks use no slots: see [`Shard`](crate::Shard).
//!
//! # Example
//! A future pushes while the shard sleeps: the inbox was empty, so the push wakes the shard. Until the shard takes the
//! list, other futures push without a system call. The shard takes three slots, submits three requests, and each end
//! wakes a future.

use std::io;
use std::ptr;
use std::sync::atomic::{
    AtomicPtr, AtomicU8, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use atomic_waker::AtomicWaker;

use crate::request::{Data, Request, Ticket};

/// Most slots in a shard's pool. With more requests at once, some allocate.
pub(crate) const POOLED_MAX: usize = 4096;

const QUEUED: u8 = 0;
const TAKEN: u8 = 1;
const DONE: u8 = 2;
const ABANDONED: u8 = 3;

/// The error message of a request or job that no shard takes.
pub(crate) const GONE: &str = "the shard has stopped, or a gate has its place";

/// The result of a request, and its memory.
pub(crate) type End = (io::Result<u32>, Data);

/// A place for one job or request of a handle, held until that is started or dropped.
pub(crate) struct JobPlace(pub(crate) Arc<AtomicUsize>);

impl Drop for JobPlace {
    fn drop(&mut self) {
        let before = self.0.fetch_sub(1, Relaxed);
        debug_assert!(before > 0, "a place is given back that was not taken");
    }
}

/// The carrier of a request to a shard, and of its result back.
pub(crate) struct Slot {
    /// The slot pushed before this one, while both are in an inbox.
    next: AtomicPtr<Slot>,
    state: AtomicU8,
    waker: AtomicWaker,
    contents: Mutex<Contents>,
}

#[derive(Default)]
struct Contents {
    request: Option<Request>,
    place: Option<JobPlace>,
    ticket: Option<Ticket>,
    end: Option<End>,
}

impl Slot {
    pub(crate) fn new() -> Arc<Slot> {
        Arc::new(Slot {
            next: AtomicPtr::new(ptr::null_mut()),
            state: AtomicU8::new(QUEUED),
            waker: AtomicWaker::new(),
            contents: Mutex::default(),
        })
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a request of the task of `waker` into a slot that is new or from the pool.
    pub(crate) fn fill(&self, request: Request, place: JobPlace, waker: &Waker) {
        let before = std::mem::replace(
            &mut *self.contents(),
            Contents { request: Some(request), place: Some(place), ticket: None, end: None },
        );
        debug_assert!(before.request.is_none() && before.place.is_none(), "the slot carries a request");
        self.state.store(QUEUED, Release);
        self.waker.register(waker);
    }

    /// Empties the slot. Returns the memory of a request that no shard has taken.
    pub(crate) fn empty(&self) -> Data {
        let Contents { request, .. } = std::mem::take(&mut *self.contents());
        request.map_or(Data::None, |request| request.data)
    }

    /// Takes the end if there is one; otherwise registers the task of `context` to be woken at the end.
    pub(crate) fn poll(&self, context: &mut Context<'_>) -> Option<End> {
        if self.state.load(Acquire) != DONE {
            self.waker.register(context.waker());
        }
        // Check again: the end may have come before the registration.
        if self.state.load(Acquire) != DONE {
            return None;
        }

        // The waker may have been registered after the shard took it, and would stay in the pooled slot.
        drop(self.waker.take());
        let end = self.contents().end.take();
        Some(end.unwrap_or((Err(io::ErrorKind::BrokenPipe.into()), Data::None)))
    }

    /// Stores the end, and wakes the future unless it was dropped.
    fn answer(&self, end: End) {
        self.contents().end = Some(end);
        if self.state.swap(DONE, AcqRel) != ABANDONED {
            self.waker.wake();
        }
    }

    /// Gives up waiting for the end. Returns whether the caller must push the slot again, so that the shard cancels the
    /// request.
    pub(crate) fn abandon(&self) -> bool {
        self.state.swap(ABANDONED, AcqRel) == TAKEN
    }
}

/// The slots pushed to a shard and not taken yet, newest first.
#[derive(Default)]
pub(crate) struct Inbox {
    newest: AtomicPtr<Slot>,
}

impl Inbox {
    /// Adds a slot that is in no inbox. Returns whether the inbox was empty, so that the shard may have to be woken.
    pub(crate) fn push(&self, slot: Arc<Slot>) -> bool {
        debug_assert!(slot.next.load(Relaxed).is_null(), "the slot is in an inbox");
        // The inbox owns this reference until `take`.
        let pushed = Arc::into_raw(slot).cast_mut();
        let mut newest = self.newest.load(Relaxed);
        loop {
            // SAFETY: `pushed` came from an `Arc` whose count this function owns until the exchange below succeeds.
            unsafe { &*pushed }.next.store(newest, Relaxed);
            match self.newest.compare_exchange_weak(newest, pushed, SeqCst, Relaxed) {
                Ok(_) => return newest.is_null(),
                Err(now) => newest = now,
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.newest.load(SeqCst).is_null()
    }

    /// Takes all slots, in the order in which they were pushed.
    pub(crate) fn take(&self) -> Taken {
        let mut newest = if self.is_empty() { ptr::null_mut() } else { self.newest.swap(ptr::null_mut(), SeqCst) };
        let mut oldest = ptr::null_mut();
        // Reverse the list, which is newest first.
        while !newest.is_null() {
            // SAFETY: since the swap, this function alone owns the list, which holds a count of each of its slots.
            let slot = unsafe { &*newest };
            let before = slot.next.swap(oldest, Relaxed);
            (oldest, newest) = (newest, before);
        }
        Taken { oldest }
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// The slots taken out of an inbox, oldest first. Slots that are not iterated over are answered with a broken pipe.
pub(crate) struct Taken {
    oldest: *mut Slot,
}

// SAFETY: `Taken` owns its list as a vector of `Arc<Slot>`, and slots may be used and dropped on any thread.
unsafe impl Send for Taken {}

impl Iterator for Taken {
    type Item = Submission;

    fn next(&mut self) -> Option<Submission> {
        if self.oldest.is_null() {
            return None;
        }
        // SAFETY: the pointer came from `Arc::into_raw` in `push`. The list owns this count until here, and gives it up
        // once, because `oldest` moves on.
        let slot = unsafe { Arc::from_raw(self.oldest) };
        self.oldest = slot.next.swap(ptr::null_mut(), Relaxed);
        Some(Submission { slot, is_answered: false })
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

/// The order to a shard in a slot.
pub(crate) enum Order {
    /// Start the request.
    Start(Request),
    /// Cancel the queued rest of the request with this ticket: its future was dropped.
    Cancel(Ticket),
    /// Do nothing: the future was dropped before the request began, or the request has ended.
    Nothing,
}

/// A slot that a shard has taken. If dropped before the end, it answers with a broken pipe.
pub(crate) struct Submission {
    slot: Arc<Slot>,
    is_answered: bool,
}

impl Submission {
    /// Returns the order, and takes the request out of the slot.
    pub(crate) fn open(&self) -> Order {
        let before = self.slot.state.compare_exchange(QUEUED, TAKEN, AcqRel, Acquire);
        let mut contents = self.slot.contents();
        // Free the place: the request no longer waits to be started.
        let place = contents.place.take();
        let (request, ticket) = (contents.request.take(), contents.ticket.take());
        drop(contents);
        drop(place);

        match (before, request, ticket) {
            (Ok(_), Some(request), _) => Order::Start(request),
            (Err(ABANDONED), _, Some(ticket)) => Order::Cancel(ticket),
            _ => Order::Nothing,
        }
    }

    /// Stores the ticket of the started request, for [`Order::Cancel`].
    pub(crate) fn is_queued(&self, ticket: Ticket) {
        self.slot.contents().ticket = Some(ticket);
    }

    /// Delivers the end to the future.
    pub(crate) fn finish(mut self, end: End) {
        // First: once the future has seen the end, the slot may carry another request, which the drop must not answer.
        self.is_answered = true;
        self.slot.answer(end);
    }
}

impl Drop for Submission {
    fn drop(&mut self) {
        if !self.is_answered && matches!(self.slot.state.load(Acquire), QUEUED | TAKEN) {
            // Return the memory of a request that was never taken out. If the request stayed in the slot, which may be
            // pooled, it would keep its file open.
            let data = self.slot.empty();
            self.slot.answer((Err(io::Error::new(io::ErrorKind::BrokenPipe, GONE)), data));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::OpenOptions;
    use crate::buffer::AlignedBuf;
    use crate::request::RequestKind;
    use crate::{Class, Classes, DiskSetup, Topology};

    fn numbered(number: u32) -> Arc<Slot> {
        let slot = Slot::new();
        slot.contents().end = Some((Ok(number), Data::None));
        // The test must be able to drop the slot without an answer.
        slot.state.store(DONE, Release);
        slot
    }

    fn numbers(inbox: &Inbox) -> Vec<u32> {
        inbox.take().map(|submission| submission.slot.contents().end.take().unwrap().0.unwrap()).collect()
    }

    #[test]
    fn what_is_pushed_comes_out_once_and_in_order() {
        let inbox = Inbox::default();
        assert!(inbox.is_empty() && numbers(&inbox).is_empty());
        assert_eq!([1, 2, 3].map(|number| inbox.push(numbered(number))), [true, false, false]);
        assert!(!inbox.is_empty());
        assert_eq!(numbers(&inbox), [1, 2, 3]);
        assert!(inbox.is_empty() && inbox.push(numbered(4)));

        let left = numbered(5);
        inbox.push(Arc::clone(&left));
        drop(inbox);
        assert_eq!(Arc::strong_count(&left), 1);
    }

    #[test]
    fn a_request_that_no_shard_takes_gives_its_memory_back_and_leaves_nothing() {
        let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
        let file = topology.file("data".as_ref(), OpenOptions::default(), 0);
        let data = Data::One(AlignedBuf::new(4096).unwrap());
        let kind = RequestKind::Read { len_bytes: 4096 };
        let request = Request { file: Arc::clone(&file), class: Class::DEFAULT, kind, offset: 0, data, tag: 0 };

        let (slot, jobs) = (Slot::new(), Arc::new(AtomicUsize::new(1)));
        slot.fill(request, JobPlace(Arc::clone(&jobs)), Waker::noop());
        let inbox = Inbox::default();
        inbox.push(Arc::clone(&slot));
        drop(inbox);
        let (end, data) = slot.poll(&mut Context::from_waker(Waker::noop())).unwrap();
        assert_eq!((end.unwrap_err().kind(), data.len_bytes()), (io::ErrorKind::BrokenPipe, 4096));
        assert_eq!((Arc::strong_count(&file), jobs.load(Relaxed)), (1, 0));
    }

    #[test]
    fn threads_that_push_lose_nothing_and_keep_their_order() {
        const EACH: u32 = if cfg!(miri) { 50 } else { 10_000 };
        let inbox = Inbox::default();
        let mut seen = Vec::new();
        std::thread::scope(|scope| {
            let pushing: Vec<_> = (0..3)
                .map(|thread| {
                    let inbox = &inbox;
                    scope.spawn(move || {
                        for n in 0..EACH {
                            inbox.push(numbered(thread * EACH + n));
                        }
                    })
                })
                .collect();
            while pushing.iter().any(|thread| !thread.is_finished()) {
                seen.extend(numbers(&inbox));
            }
        });
        seen.extend(numbers(&inbox));
        for thread in 0..3 {
            let of_thread: Vec<u32> = seen.iter().copied().filter(|number| number / EACH == thread).collect();
            assert_eq!(of_thread, (thread * EACH..(thread + 1) * EACH).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_slot_that_nobody_carries_out_is_answered() {
        let (slot, inbox) = (Slot::new(), Inbox::default());
        inbox.push(Arc::clone(&slot));
        drop(inbox);
        let end = slot.contents().end.take().unwrap().0;
        assert_eq!(end.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
