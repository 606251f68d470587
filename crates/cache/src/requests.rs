//! Requests to the tasks of a cache: to the keeper, and to each disk's log writer.
//!
//! # Why
//! A caller that needs space, a checkpoint or a log written must neither wait for the task that does it nor know that
//! task.
//!
//! # How it works
//! A request is recorded under a lock and wakes the task, which then takes all requests at once.
//!
//! # Limits
//! One keeper, and one log writer for each disk.
//!
//! # Example
//! An insert that finds no space calls [`ToKeeper::request_space`] and is dropped; the keeper evicts, and makes a
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
pub(crate) struct Requests {
    pub(crate) needs_space: bool,
    pub(crate) has_log: bool,
    pub(crate) is_stopping: bool,
    pub(crate) waiters: Waiters,
    /// Receives the disks on which operations have not ended when the keeper ends.
    pub(crate) closer: Option<oneshot::Sender<Vec<PathBuf>>>,
}

#[derive(Default)]
struct Pending {
    requests: Requests,
    is_woken: bool,
    /// The keeper has ended.
    is_closed: bool,
    waker: Option<Waker>,
}

/// Wakes the keeper and collects the requests to it.
#[derive(Default)]
pub(crate) struct ToKeeper(Mutex<Pending>);

impl ToKeeper {
    fn add(&self, change: impl FnOnce(&mut Requests)) {
        let mut pending = lock(&self.0);
        change(&mut pending.requests);
        pending.is_woken = true;
        let waker = pending.waker.take();
        let unanswered =
            pending.is_closed.then(|| (std::mem::take(&mut pending.requests.waiters), pending.requests.closer.take()));
        drop(pending);
        drop(unanswered);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Reports that an insert found no space.
    pub(crate) fn request_space(&self) {
        if !lock(&self.0).requests.needs_space {
            self.add(|requests| requests.needs_space = true);
        }
    }

    /// Reports that a chunk of a log is ready.
    pub(crate) fn report_sealed_log(&self) {
        if !lock(&self.0).requests.has_log {
            self.add(|requests| requests.has_log = true);
        }
    }

    /// Wakes the keeper after a change that it must handle.
    pub(crate) fn wake(&self) {
        self.add(|_| {});
    }

    /// Requests a checkpoint that begins after this call. Without a keeper, the answer is dropped.
    pub(crate) fn request_checkpoint(&self) -> oneshot::Receiver<Result<u64, String>> {
        let (answer, answered) = oneshot::channel();
        self.add(|requests| requests.waiters.push(answer));
        answered
    }

    /// Requests the last checkpoint, and no more after it. The answer is the list of disks on which operations have not
    /// ended; without a keeper, it is dropped.
    pub(crate) fn request_stop(&self) -> oneshot::Receiver<Vec<PathBuf>> {
        let (answer, answered) = oneshot::channel();
        self.add(|requests| {
            requests.is_stopping = true;
            requests.closer = Some(answer);
        });
        answered
    }

    /// Reports that the keeper has ended. Drops the answers that callers wait for, now and later.
    pub(crate) fn close(&self) {
        lock(&self.0).is_closed = true;
        self.wake();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        lock(&self.0).requests.is_stopping
    }

    /// Takes all requests; `is_stopping` remains set.
    pub(crate) fn take(&self) -> Requests {
        let requests = &mut lock(&self.0).requests;
        let is_stopping = requests.is_stopping;
        std::mem::replace(requests, Requests { is_stopping, ..Requests::default() })
    }

    /// Waits for a request.
    pub(crate) async fn requested(&self) {
        std::future::poll_fn(|context| {
            let mut pending = lock(&self.0);
            if std::mem::take(&mut pending.is_woken) {
                return Poll::Ready(());
            }
            pending.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// Collects the callers that wait for a disk's log to be written.
#[derive(Default)]
pub(crate) struct LogWaiters(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    is_writing: bool,
    waiters: Vec<oneshot::Sender<bool>>,
}

impl LogWaiters {
    /// Adds a waiter. Returns whether the caller must start a log writer, because none is running.
    pub(crate) fn add(&self, waiter: oneshot::Sender<bool>) -> bool {
        let mut waiting = lock(&self.0);
        waiting.waiters.push(waiter);
        !std::mem::replace(&mut waiting.is_writing, true)
    }

    /// Takes the waiters added since the last call. Returns `None` if there are none: the log writer then ends.
    pub(crate) fn take(&self) -> Option<Vec<oneshot::Sender<bool>>> {
        let mut waiting = lock(&self.0);
        waiting.is_writing = !waiting.waiters.is_empty();
        waiting.is_writing.then(|| std::mem::take(&mut waiting.waiters))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_kept_until_they_are_taken() {
        let to_keeper = ToKeeper::default();
        to_keeper.request_space();
        let waits = to_keeper.request_checkpoint();
        assert!(lock(&to_keeper.0).is_woken);
        let stopped = to_keeper.request_stop();
        let requests = to_keeper.take();
        assert!(requests.needs_space && requests.is_stopping && requests.waiters.len() == 1);
        let requests = to_keeper.take();
        assert!(!requests.needs_space && requests.is_stopping && requests.waiters.is_empty());
        drop((waits, stopped));
    }
}
