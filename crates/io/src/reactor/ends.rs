//! The ends of requests: completed, cancelled, stopped with the reactor, or failed with a broken backend.
//!
//! # Why
//! Every request gets an end, even after a failure, and no memory returns to its owner while the kernel may still write
//! to it.
//!
//! # How it works
//! A request that ends leaves the table and goes to its owner: into `finished`, or to the shard that sent it. When the
//! backend breaks down (an error of `flush` or `wait`), every request in this shard's queues ends at once with the
//! error. If a piece of the request is in the backend, the reactor keeps the memory until the backend has been dropped,
//! which waits for its operations.
//!
//! A shard that stops ends its requests while their waiters still listen: pieces in the device end with their own
//! results, the rest with `EPIPE`. Beside other shards it then waits for its requests in their queues.
//!
//! # Limits
//! Requests that were sent to another shard's queue are answered by that shard.
//!
//! # Example
//! A ring is closed from outside, and `wait` returns `EBADF`. Ten queued requests end with `EBADF` and their memory.
//! Two requests in the ring end with `EBADF` and without memory. `submit` refuses further ones with
//! [`RefusedReason::Broken`].
//!
//! [`RefusedReason::Broken`]: crate::RefusedReason::Broken

use std::io;

use plimsoll_core::{Cancel, Failure, Finished, Stopped};

use super::{Pending, Place, Reactor};
use crate::request::{Done, Request, RequestError};

impl Reactor {
    /// Removes a request from the table, and returns it to its owner, here or on another shard.
    pub(super) fn end(&mut self, key: usize, result: Result<u32, RequestError>, total_ns: u64) {
        if let Some(pending) = self.pending.try_remove(key) {
            self.hand_back(pending, result, total_ns);
        }
    }

    fn hand_back(&mut self, pending: Pending, result: Result<u32, RequestError>, total_ns: u64) {
        if self.tracer.is_on() {
            self.note_finished(&pending, result);
        }
        let total_ns = pending.discarded_ns.saturating_add(total_ns);
        match pending.from {
            None => {
                let Request { tag, data, .. } = pending.request;
                self.finished.push(Done { tag, result, data, total_ns });
            }
            Some(from) => self.answer(from, pending.request, result, total_ns),
        }
    }

    /// Ends a request that its queue has finished, unless it is a discard with parts left.
    pub(super) fn is_finished(&mut self, finished: Finished) {
        let Finished { user_data, result, total_ns } = finished;
        let key = user_data as usize;
        if result.is_err() || !self.discards_on(key, total_ns) {
            self.end(key, result.map_err(RequestError::Failed), total_ns);
        }
    }

    /// Ends a cancelled request that has no piece in the device.
    pub(super) fn is_cancelled(&mut self, stopped: Stopped) {
        let Stopped { user_data, moved_bytes } = stopped;
        let failure = Failure { errno: libc::ECANCELED, moved_bytes };
        self.end(user_data as usize, Err(RequestError::Failed(failure)), 0);
    }

    pub(super) fn check_broken(&self) -> io::Result<()> {
        self.broken.map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno)))
    }

    /// Checks an answer of the backend. At the first error, ends all requests.
    pub(super) fn check_backend(&mut self, answer: io::Result<()>) -> io::Result<()> {
        if let Err(error) = &answer
            && self.broken.is_none()
        {
            let errno = error.raw_os_error().unwrap_or(libc::ESHUTDOWN);
            self.broken = Some(errno);
            // Operations that have already completed end with their own results.
            self.handle_completions(usize::MAX);
            self.end_all(errno);
        }
        answer
    }

    /// Ends every request in this shard's queues with `errno`.
    fn end_all(&mut self, errno: i32) {
        for disk in 0..self.stalled.len() {
            while let Some(key) = self.stalled[disk].pop_front() {
                self.refuse_piece(key, errno);
            }
        }

        let keys: Vec<usize> = self.pending.iter().map(|(key, _)| key).collect();
        for key in keys {
            let Some(Pending { at: Place::Here { disk, id }, .. }) = self.pending.get(key) else { continue };
            let (disk, id) = (usize::from(*disk), *id);
            let cancel = self.queues.get_mut(disk).and_then(Option::as_mut).map(|queue| queue.cancel(id));
            let Some(mut pending) = self.pending.try_remove(key) else { continue };
            let moved_bytes = match cancel {
                Some(Cancel::Cancelled(stopped)) => stopped.moved_bytes,
                _ => {
                    // The backend holds pieces of the request, and may use the memory until it has been dropped.
                    self.kept.push(std::mem::take(&mut pending.request.data));
                    0
                }
            };
            self.hand_back(pending, Err(RequestError::Failed(Failure { errno, moved_bytes })), 0);
        }
    }

    /// Ends every request in this shard's queues, and appends the ends of this shard's own to `done`. Pieces in the
    /// device end as always; queued requests end with `EPIPE`, as do those that come until [`Reactor::resume`]. Blocks
    /// until the device has completed all pieces.
    pub(crate) fn wind_down(&mut self, done: &mut Vec<Done>) {
        self.topology.mailboxes().pause(self.shard);
        self.jobs.clear();
        self.drain();
        self.end_all(libc::EPIPE);
        done.append(&mut self.finished);
    }

    /// Lets requests, jobs and questions reach this shard again after [`Reactor::wind_down`].
    pub(crate) fn resume(&self) {
        self.topology.mailboxes().resume(self.shard);
    }

    /// Waits for the answers to requests in other shards' queues, for as long as those shards may answer, and appends
    /// the answers to `done`. Call it after [`Reactor::wind_down`], so that no new request begins here meanwhile.
    pub(crate) fn await_others(&mut self, done: &mut Vec<Done>) {
        while !self.pending.is_empty() {
            // Check before the mail is read: a shard answers before it closes its mailbox.
            let is_asked = self.may_any_asked_shard_answer();
            self.read_mail();
            if !self.pending.is_empty() && (!is_asked || self.backend.wait(None).is_err()) {
                break;
            }
        }
        done.append(&mut self.finished);
    }

    fn may_any_asked_shard_answer(&self) -> bool {
        let asked = |pending: &Pending| self.topology.coordinator(pending.request.file.disk(), self.shard);
        self.pending.iter().any(|(_, pending)| self.topology.mailboxes().may_answer(asked(pending)))
    }

    /// Waits for every piece in the backend. If a wait fails, pieces stay there, and the drop of the backend waits for
    /// them.
    fn drain(&mut self) {
        loop {
            for disk in 0..self.stalled.len() {
                while let Some(key) = self.stalled[disk].pop_front() {
                    self.refuse_piece(key, libc::EPIPE);
                }
            }
            if self.backend.in_flight() == 0 && self.reaped.is_empty() {
                break;
            }
            let waited = if self.reaped.is_empty() { self.backend.wait(None) } else { Ok(()) };
            self.collect_completions();
            self.handle_completions(usize::MAX);
            if let Err(error) = waited {
                self.broken = self.broken.or(Some(error.raw_os_error().unwrap_or(libc::ESHUTDOWN)));
                break;
            }
        }
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        // Return the pieces' device time to the disk, which other shards continue to use.
        self.drain();
        self.end_all(libc::EPIPE);

        // The mailbox last: the next reactor of the shard continues the numbers and the counters.
        #[cfg(feature = "metrics")]
        self.topology.retire(&*self);
        self.topology.recorder().set_last_number(self.shard, self.number);
        self.topology.mailboxes().close(self.shard);
    }
}
