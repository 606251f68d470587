//! Handles to shards: jobs, requests and files from any thread and any executor.
//!
//! # Why
//! Most programs run on Tokio or on other threads, not on shards, and still need their I/O scheduled.
//!
//! # How it works
//! A [`Handle`] reaches one shard ([`Runtime::handle`](crate::Runtime::handle)), or all in turn that have not ended
//! ([`Runtime::any_shard`](crate::Runtime::any_shard)). It opens [`File`](crate::File)s, which most programs use from
//! then on. Requests travel in slots (`slot.rs`): no allocation, one wake-up, and dropping a future cancels the queued
//! part of its request. Jobs ([`Handle::run`]) are boxed, and run to their end even if the caller stops waiting.
//!
//! # Limits
//! A shard has at most [`ReactorConfig::max_requests`](crate::ReactorConfig) jobs and requests waiting to be started.
//! More are refused with `EAGAIN` ([`std::io::ErrorKind::WouldBlock`]); [`Topology::refused_jobs`] counts them.
//!
//! # Example
//! [`File`](crate::File) and [`Runtime`](crate::Runtime) have examples.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

use futures_channel::oneshot;

use crate::backend::explained;
use crate::class::Class;
use crate::file::SharedFile;
use crate::request::{Data, Request, RequestKind};
use crate::shard::Shard;
use crate::slot::{GONE, JobPlace};
use crate::submission::{FULL, Submitted};
use crate::topology::Topology;

/// Reaches shards from any thread and any executor: one of them ([`Runtime::handle`](crate::Runtime::handle)), or all
/// in turn ([`Runtime::any_shard`](crate::Runtime::any_shard)). Clones are cheap.
///
/// [`Handle::open`] opens a [`File`](crate::File), which is all that most programs need. The other requests name a file
/// and a class each time, as on a shard. Dropping the future of a request cancels its queued part, unless the handle
/// reaches one shard and the disk's I/O queue is on another.
#[derive(Clone)]
pub struct Handle {
    topology: Topology,
    to: To,
}

#[derive(Clone)]
enum To {
    One(u16),
    /// Several shards in turn.
    Any(Arc<Round>),
}

struct Round {
    shards: Vec<u16>,
    /// The number of turns so far.
    turns: AtomicU16,
}

impl Round {
    /// Returns the next shard in turn. If that is not open, the open ones take its turns, one after the other.
    fn next(&self, is_open: impl Fn(u16) -> bool) -> u16 {
        let (turn, shards) = (usize::from(self.turns.fetch_add(1, Relaxed)), self.shards.len());
        let first = self.shards[turn % shards];
        if is_open(first) {
            return first;
        }
        let open = || self.shards.iter().copied().filter(|shard| is_open(*shard));
        open().nth(turn / shards % open().count().max(1)).unwrap_or(first)
    }
}

impl Handle {
    pub(crate) fn new(topology: &Topology, shard: u16) -> Handle {
        Handle { topology: topology.clone(), to: To::One(shard % topology.shards()) }
    }

    /// Returns a handle to each of `shards`, at least one, in turn.
    pub(crate) fn to_any(topology: &Topology, shards: Vec<u16>) -> Handle {
        let round = Round { shards, turns: AtomicU16::new(0) };
        Handle { topology: topology.clone(), to: To::Any(Arc::new(round)) }
    }

    /// Runs `body` on the shard and returns the result of its future. Dropping the returned future does not stop
    /// `body`.
    ///
    /// # Errors
    /// `WouldBlock` if too many jobs wait for the shard already (`body` is dropped); `BrokenPipe` if the shard has
    /// stopped, or if `body` panicked there (the shard then continues).
    pub async fn run<T, F>(&self, body: impl FnOnce(Shard) -> F + Send + 'static) -> io::Result<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let (answer, answered) = oneshot::channel();
        self.spawn(move |shard| async move {
            let value = body(shard).await;
            // The caller may have dropped its future.
            let _ = answer.send(value);
        })?;
        let ended = |_| io::Error::new(io::ErrorKind::BrokenPipe, "the shard has stopped, or the job has panicked");
        answered.await.map_err(ended)
    }

    /// Runs `body` on the shard without waiting for it. If the shard stops before, drops `body`. A panic in `body`, or
    /// in its future, ends only that task; only the panic's own message reports it.
    ///
    /// # Errors
    /// `WouldBlock` if too many jobs wait for the shard already; `BrokenPipe` if the shard has stopped. `body` is
    /// dropped.
    pub fn spawn<F>(&self, body: impl FnOnce(Shard) -> F + Send + 'static) -> io::Result<()>
    where
        F: Future<Output = ()> + 'static,
    {
        let mailboxes = self.topology.mailboxes();
        let shard = self.next_shard(|shard| shard);
        if !mailboxes.is_open(shard) {
            return Err(explained(libc::EPIPE, GONE.to_owned()));
        }
        let place: Option<JobPlace> = mailboxes.reserve_job(shard);
        let place = place.ok_or_else(|| explained(libc::EAGAIN, FULL.to_owned()))?;
        let job = move |shard: &Shard| {
            drop(place);
            let own = shard.clone();
            // The task calls `body`, so that the executor confines a panic to it.
            shard.spawn(async move { body(own).await }).detach();
        };
        mailboxes.send(shard, Shard::job(job));
        Ok(())
    }

    /// Returns the number of the shard that it reaches, or `None` if it reaches all.
    #[must_use]
    pub fn shard(&self) -> Option<u16> {
        match &self.to {
            To::One(shard) => Some(*shard),
            To::Any(_) => None,
        }
    }

    pub(crate) fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Returns the shard that it reaches; if it reaches several, the one that `serves` the next of them.
    fn next_shard(&self, serves: impl Fn(u16) -> u16) -> u16 {
        match &self.to {
            To::One(shard) => *shard,
            To::Any(round) => serves(round.next(|shard| self.topology.mailboxes().is_open(serves(shard)))),
        }
    }

    /// Submits one operation: see [`crate::operations`].
    pub(crate) fn request(
        &self,
        file: &Arc<SharedFile>,
        class: Class,
        kind: RequestKind,
        offset: u64,
        data: Data,
    ) -> Submitted<'_> {
        // Straight to the shard with the I/O queue: no second message, and a queued request can be cancelled.
        let shard = self.next_shard(|shard| self.topology.coordinator(file.disk(), shard));
        let request = Request { file: Arc::clone(file), class, kind, offset, data, tag: 0 };
        Submitted::new(self.topology.mailboxes(), shard, request)
    }
}

impl Shard {
    /// Returns a handle to this shard for other threads.
    #[must_use]
    pub fn handle(&self) -> Handle {
        let reactor = self.reactor();
        Handle::new(reactor.topology(), reactor.shard())
    }
}
