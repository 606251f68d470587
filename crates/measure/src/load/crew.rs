//! The shards of a run: they begin together, and none leaves while another may need it.
//!
//! # Why
//! A shard may serve requests of others (fewer I/O queues than shards). If it left when its own jobs are done, theirs
//! would end with errors.
//!
//! # How it works
//! A [`Crew`] counts the shards that still have requests, or may still make some. Each holds a [`Member`] and *rests*
//! when it has no more work of its own; it goes on turning its reactor until all rest. The last one to rest wakes the
//! others. A member that is dropped rests, so that a shard which fails holds nobody up. [`Crew::end`] ends the
//! measured window of all before its time.
//!
//! # Limits
//! One crew for each run.
//!
//! # Example
//! ```text
//! let mut member = Member::new(&crew, reactor.wake_handle());
//! member.begin();                                   // waits for the others
//! while !member.do_all_rest() { turn(); if nothing_left_to_do { member.rest(); } }
//! ```

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};

use plimsoll::backend::WakeHandle;

/// What the shards of a run have in common.
pub(super) struct Crew {
    start: Barrier,
    busy: AtomicUsize,
    is_over: AtomicBool,
    wakes: Mutex<Vec<WakeHandle>>,
}

impl Crew {
    pub(super) fn new(shards: u16) -> Crew {
        let shards = usize::from(shards);
        Crew {
            start: Barrier::new(shards),
            busy: AtomicUsize::new(shards),
            is_over: AtomicBool::new(false),
            wakes: Mutex::default(),
        }
    }

    /// The measured window ends now, on all shards.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.wake_all();
    }

    fn wake_all(&self) {
        self.wakes.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|wake| wake.wake());
    }
}

/// One shard of a crew.
pub(super) struct Member<'a> {
    crew: &'a Crew,
    is_resting: bool,
}

impl<'a> Member<'a> {
    /// The member that `wake` gets out of its sleep.
    pub(super) fn new(crew: &'a Crew, wake: WakeHandle) -> Member<'a> {
        // A list is whole after each push, whoever panicked.
        crew.wakes.lock().unwrap_or_else(PoisonError::into_inner).push(wake);
        Member { crew, is_resting: false }
    }

    /// Waits until all are ready.
    pub(super) fn begin(&self) {
        self.crew.start.wait();
    }

    /// This shard has nothing under way of its own, and will have nothing any more.
    pub(super) fn rest(&mut self) {
        if std::mem::replace(&mut self.is_resting, true) || self.crew.busy.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        self.crew.wake_all();
    }

    /// Whether somebody has ended the window before its time.
    pub(super) fn is_over(&self) -> bool {
        self.crew.is_over.load(Ordering::Relaxed)
    }

    /// Whether nobody needs anybody any more.
    pub(super) fn do_all_rest(&self) -> bool {
        self.crew.busy.load(Ordering::Acquire) == 0
    }
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        self.rest();
    }
}
