//! The shards of a run: they begin together, and none ends while another may need its service.
//!
//! **Why.** A shard may serve requests of others (fewer I/O queues than shards). If it ended after its own jobs, the
//! requests of those others would fail.
//!
//! **How.** A [`Crew`] counts the shards that still have requests, or may still make some. Each shard holds a
//! [`Member`] and *rests* once its jobs have done their work: when all rest, the window ends. After the window a shard
//! may still read back what it wrote. Then it *leaves*, but turns its reactor until all have left. The last shard to
//! rest or to leave wakes the others. Dropping a member makes it leave, so a shard that fails does not block the
//! others. [`Crew::end`] ends the measured window of all shards early.
//!
//! **Limits.** One crew serves one run.
//!
//! **Example.**
//!
//! ```text
//! let (mut member, jobs) = crew.join(&mut reactor, prepare)?;    // waits for the others
//! while !member.do_all_rest() { turn(); if nothing_left_to_do { member.rest(); } }
//! read_back();
//! while !member.have_all_left() { member.leave(); turn(); }
//! ```

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};

use plimsoll::Reactor;
use plimsoll::backend::WakeHandle;

use super::LoadError;

/// Longest sleep of a shard between two checks whether the run is to end.
pub(super) const LOOK_UP_NS: u64 = 50_000_000;

pub(super) struct Crew {
    start: Barrier,
    /// Shards whose jobs are not done.
    busy: AtomicUsize,
    /// Shards that may still need the service of others.
    present: AtomicUsize,
    is_over: AtomicBool,
    wakes: Mutex<Vec<WakeHandle>>,
}

impl Crew {
    pub(super) fn new(shards: u16) -> Crew {
        let shards = usize::from(shards);
        Crew {
            start: Barrier::new(shards),
            busy: AtomicUsize::new(shards),
            present: AtomicUsize::new(shards),
            is_over: AtomicBool::new(false),
            wakes: Mutex::default(),
        }
    }

    /// Prepares a shard, and waits until all others are ready. A shard that fails arrives there all the same, or the
    /// others would wait for ever, and ends their window.
    pub(super) fn join<T>(
        &self,
        reactor: &mut Reactor,
        prepare: impl FnOnce(&mut Reactor) -> Result<T, LoadError>,
    ) -> Result<(Member<'_>, T), LoadError> {
        // The list is whole after each push, even if another shard panicked.
        self.wakes.lock().unwrap_or_else(PoisonError::into_inner).push(reactor.wake_handle());
        let member = Member { crew: self, is_resting: false, has_left: false };
        let prepared = prepare(reactor);
        if prepared.is_err() {
            self.end();
        }
        self.start.wait();
        Ok((member, prepared?))
    }

    /// Ends the measured window on all shards now.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.wake_all();
    }

    fn wake_all(&self) {
        self.wakes.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|wake| wake.wake());
    }
}

pub(super) struct Member<'a> {
    crew: &'a Crew,
    is_resting: bool,
    has_left: bool,
}

impl Member<'_> {
    /// Declares that the jobs of this shard have no requests and will make no more. If it already rests, does nothing.
    pub(super) fn rest(&mut self) {
        if std::mem::replace(&mut self.is_resting, true) || self.crew.busy.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        self.crew.wake_all();
    }

    /// Declares that this shard needs no other any more. If it has already left, does nothing.
    pub(super) fn leave(&mut self) {
        self.rest();
        if std::mem::replace(&mut self.has_left, true) || self.crew.present.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        self.crew.wake_all();
    }

    /// Returns whether the window was ended early.
    pub(super) fn is_over(&self) -> bool {
        self.crew.is_over.load(Ordering::Relaxed)
    }

    pub(super) fn do_all_rest(&self) -> bool {
        self.crew.busy.load(Ordering::Acquire) == 0
    }

    pub(super) fn have_all_left(&self) -> bool {
        self.crew.present.load(Ordering::Acquire) == 0
    }
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}
