//! Wakes the tasks of a cache: the keeper by its bell, each disk's scribe by its desk.
//!
//! # Why
//! A caller that needs space, a checkpoint or a log written must neither wait for the task that does it nor know that
//! task.
//!
//! # How it works
//! A call is recorded under a lock and wakes the task, which then takes all calls at once.
//!
//! # Limits
//! One keeper, and one scribe for each desk.
//!
//! # Example
//! An insert that finds no space calls [`Bell::ring_for_space`] and is dropped; the keeper evicts, and makes a
//! checkpoint.

use std::path::PathBuf;
use std::sync::Mutex;
use std::task::{Poll, Waker};

use futures_channel::oneshot;

use crate::sync::lock;

/// The callers that wait for a checkpoint.
pub(crate) type Waiters = Vec<oneshot::Sender<Result<u64, String>>>;

/// The requests to the keeper.
#[derive(Default)]
pub(crate) struct Calls {
    pub(crate) needs_space: bool,
    pub(crate) has_log: bool,
    pub(crate) is_stopping: bool,
    pub(crate) waiters: Waiters,
    /// Receives the disks on which operations have not ended when the keeper ends.
    pub(crate) closer: Option<oneshot::Sender<Vec<PathBuf>>>,
}

#[derive(Default)]
struct Rung {
    calls: Calls,
    is_rung: bool,
    /// The keeper has ended.
    is_closed: bool,
    waker: Option<Waker>,
}

/// Wakes the keeper and collects the requests to it.
#[derive(Default)]
pub(crate) struct Bell(Mutex<Rung>);

impl Bell {
    fn ring(&self, change: impl FnOnce(&mut Calls)) {
        let mut rung = lock(&self.0);
        change(&mut rung.calls);
        rung.is_rung = true;
        let waker = rung.waker.take();
        let unanswered = rung.is_closed.then(|| (std::mem::take(&mut rung.calls.waiters), rung.calls.closer.take()));
        drop(rung);
        drop(unanswered);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Reports that an insert found no space.
    pub(crate) fn ring_for_space(&self) {
        if !lock(&self.0).calls.needs_space {
            self.ring(|calls| calls.needs_space = true);
        }
    }

    /// Reports that a chunk of a log is ready.
    pub(crate) fn ring_for_log(&self) {
        if !lock(&self.0).calls.has_log {
            self.ring(|calls| calls.has_log = true);
        }
    }

    /// Wakes the keeper after a change that it must handle.
    pub(crate) fn ring_for_change(&self) {
        self.ring(|_| {});
    }

    /// Requests a checkpoint that begins after this call. Without a keeper, the answer is dropped.
    pub(crate) fn ring_for_checkpoint(&self) -> oneshot::Receiver<Result<u64, String>> {
        let (answer, answered) = oneshot::channel();
        self.ring(|calls| calls.waiters.push(answer));
        answered
    }

    /// Requests the last checkpoint, and no more after it. The answer is the list of disks on which operations have not
    /// ended; without a keeper, it is dropped.
    pub(crate) fn ring_to_stop(&self) -> oneshot::Receiver<Vec<PathBuf>> {
        let (answer, answered) = oneshot::channel();
        self.ring(|calls| {
            calls.is_stopping = true;
            calls.closer = Some(answer);
        });
        answered
    }

    /// Reports that the keeper has ended. Drops the answers that callers wait for, now and later.
    pub(crate) fn close(&self) {
        lock(&self.0).is_closed = true;
        self.ring_for_change();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        lock(&self.0).calls.is_stopping
    }

    /// Takes all calls; `is_stopping` remains set.
    pub(crate) fn answer(&self) -> Calls {
        let calls = &mut lock(&self.0).calls;
        let is_stopping = calls.is_stopping;
        std::mem::replace(calls, Calls { is_stopping, ..Calls::default() })
    }

    /// Waits until the bell is rung.
    pub(crate) async fn rung(&self) {
        std::future::poll_fn(|context| {
            let mut rung = lock(&self.0);
            if std::mem::take(&mut rung.is_rung) {
                return Poll::Ready(());
            }
            rung.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// Collects the callers that wait for a disk's log to be written.
#[derive(Default)]
pub(crate) struct Desk(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    is_writing: bool,
    waiters: Vec<oneshot::Sender<bool>>,
}

impl Desk {
    /// Adds a waiter. Returns whether the caller must start a scribe, because none is running.
    pub(crate) fn ask(&self, waiter: oneshot::Sender<bool>) -> bool {
        let mut waiting = lock(&self.0);
        waiting.waiters.push(waiter);
        !std::mem::replace(&mut waiting.is_writing, true)
    }

    /// Takes the waiters added since the last call. Returns `None` if there are none: the scribe then ends.
    pub(crate) fn next(&self) -> Option<Vec<oneshot::Sender<bool>>> {
        let mut waiting = lock(&self.0);
        waiting.is_writing = !waiting.waiters.is_empty();
        waiting.is_writing.then(|| std::mem::take(&mut waiting.waiters))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bell_keeps_what_was_said() {
        let bell = Bell::default();
        bell.ring_for_space();
        let waits = bell.ring_for_checkpoint();
        assert!(lock(&bell.0).is_rung);
        let stopped = bell.ring_to_stop();
        let calls = bell.answer();
        assert!(calls.needs_space && calls.is_stopping && calls.waiters.len() == 1);
        let calls = bell.answer();
        assert!(!calls.needs_space && calls.is_stopping && calls.waiters.is_empty());
        drop((waits, stopped));
    }
}
