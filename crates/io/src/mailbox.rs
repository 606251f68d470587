//! Messages between shards.
//!
//! # Why
//! Shards share only the state of a disk ([`plimsoll_core::Disk`]). Everything else between shards is a message: a
//! request for its I/O queue, the answer, a job to run there.
//!
//! # How it works
//! Each shard has one lock-free queue with many writers and one reader. A writer pushes and then wakes the reader; if
//! the reader is awake, that takes no system call. A writer holds a read lock, so that a shard that ends can close its
//! mailbox: later messages, and those still in it, go back to their senders with an error or are dropped (a dropped
//! job breaks the channel of its waiter). So no sender waits for a shard that has ended. A shard whose run has ended,
//! but whose reactor still exists, gets only the answers to its own requests.
//!
//! Requests of handles are in a separate list ([`Inbox`]), in slots from a pool.
//!
//! # Limits
//! The number of messages is bounded, so an answer always has room. Each request and its answer hold a place in the
//! bounded table of the shard that asked. Each job or request of a handle holds a [`JobPlace`]; a shard has at most as
//! many as requests under way, and a job without one is refused and counted. A question is not repeated before its
//! answer; a file is closed once. In a turn, a shard reads at most the messages that were there when it began to read.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use crossbeam_queue::{ArrayQueue, SegQueue};

use crate::backend::WakeHandle;
use crate::request::{Done, Request, RequestError};
use crate::slot::{Inbox, JobPlace, POOLED_MAX, Slot, Taken};

/// A job to run on a shard's thread. It gets the `Shard`, which stands above this module: `Shard::job` makes jobs.
pub(crate) type Job = Box<dyn FnOnce(&dyn Any) + Send>;

/// A function that reads the figures of a shard's I/O queues.
#[cfg(feature = "metrics")]
type Visit = Box<dyn FnOnce(&dyn crate::queues::ShardQueues) + Send>;

/// A message to a shard.
pub(crate) enum Message {
    /// A request of shard `from` for a queue of this shard.
    Request { from: u16, serial: u64, request: Request },
    /// The answer to the request with this serial; another reactor may have replaced the one that asked.
    Done { serial: u64, done: Done },
    /// A job to run on the shard's thread.
    Run(Job),
    /// A question to the reactor, which answers it without running futures.
    #[cfg(feature = "metrics")]
    Read(Visit),
    /// The order to close the file with this number and unique id, which has no references any more.
    Close { number: u32, uid: u64 },
}

struct Peer {
    messages: SegQueue<Message>,
    /// Requests of handles.
    inbox: Inbox,
    /// Slots without a request.
    pool: ArrayQueue<Arc<Slot>>,
    reach: RwLock<Reach>,
    /// Whether the shard takes requests and jobs of handles, as of the last change of `reach`.
    is_open: AtomicBool,
    /// Jobs and requests of handles that have not been started yet.
    jobs: Arc<AtomicUsize>,
    /// Jobs refused because too many waited.
    refused_jobs: AtomicU64,
}

/// Whether a shard reads its mail.
#[derive(Default)]
enum Reach {
    /// The shard has not been started yet; its mail waits.
    #[default]
    NotYet,
    /// The shard reads its mail; this handle wakes it.
    Open(WakeHandle),
    /// The shard does not run, and its reactor still exists: only answers reach it. This handle wakes it.
    Paused(WakeHandle),
    /// A gate, which reads no mail, has the shard's place.
    Gate,
    /// The shard has ended.
    Closed,
}

impl Reach {
    /// Returns whether no reactor and no gate has the place of the shard.
    fn is_free(&self) -> bool {
        matches!(self, Reach::NotYet | Reach::Closed)
    }
}

impl Peer {
    /// Changes `reach`, which the caller has locked for writing.
    fn set_reach(&self, reach: &mut Reach, to: Reach) {
        self.is_open.store(matches!(to, Reach::NotYet | Reach::Open(_)), Relaxed);
        *reach = to;
    }
}

impl Message {
    /// Returns whether the message reaches a shard that does not run: it may be awaited there, and asks for nothing.
    fn is_for_paused(&self) -> bool {
        matches!(self, Message::Done { .. } | Message::Close { .. })
    }
}

/// The mailboxes of all shards of a program.
#[derive(Clone)]
pub(crate) struct Mailboxes {
    peers: Arc<[Peer]>,
    /// Most jobs and requests of handles that may wait for one shard.
    max_jobs: usize,
}

impl Mailboxes {
    pub(crate) fn new(shards: u16, max_jobs: usize) -> Mailboxes {
        let peer = |_| Peer {
            messages: SegQueue::new(),
            inbox: Inbox::default(),
            pool: ArrayQueue::new(max_jobs.clamp(1, POOLED_MAX)),
            reach: RwLock::default(),
            is_open: AtomicBool::new(true),
            jobs: Arc::default(),
            refused_jobs: AtomicU64::new(0),
        };
        Mailboxes { peers: (0..shards).map(peer).collect(), max_jobs }
    }

    /// Reserves a place for a job in the mailbox of `shard`; `None` if too many wait.
    pub(crate) fn reserve_job(&self, shard: u16) -> Option<JobPlace> {
        let peer = self.peers.get(usize::from(shard))?;
        // From here on, the drop of `place` undoes this increment.
        let before = peer.jobs.fetch_add(1, Relaxed);
        let place = JobPlace(Arc::clone(&peer.jobs));
        if before >= self.max_jobs {
            peer.refused_jobs.fetch_add(1, Relaxed);
            return None;
        }
        Some(place)
    }

    /// Takes a slot from the pool of `shard`; `None` if the pool is empty.
    pub(crate) fn slot(&self, shard: u16) -> Option<Arc<Slot>> {
        self.peers.get(usize::from(shard))?.pool.pop()
    }

    /// Returns a slot to the pool after its result was taken.
    pub(crate) fn give_back(&self, shard: u16, slot: Arc<Slot>) {
        if let Some(peer) = self.peers.get(usize::from(shard)) {
            // If the pool is full, drops the slot.
            let _ = peer.pool.push(slot);
        }
    }

    /// Sends a slot to `shard`, and wakes the shard unless the inbox had others. If the shard reads no mail, drops the
    /// slot unanswered, and returns `false`.
    pub(crate) fn submit(&self, shard: u16, slot: Arc<Slot>) -> bool {
        let Some(peer) = self.peers.get(usize::from(shard)) else { return false };
        let reach = peer.reach.read().unwrap_or_else(PoisonError::into_inner);
        let wake = match &*reach {
            Reach::NotYet => None,
            Reach::Open(wake) => Some(wake),
            Reach::Paused(_) | Reach::Gate | Reach::Closed => return false,
        };
        if peer.inbox.push(slot)
            && let Some(wake) = wake
        {
            wake.wake();
        }
        true
    }

    /// Takes the slots submitted to `shard`, in order.
    pub(crate) fn submitted(&self, shard: u16) -> Option<Taken> {
        self.peers.get(usize::from(shard)).map(|peer| peer.inbox.take())
    }

    /// Returns the jobs of handles refused so far, for all shards.
    pub(crate) fn refused_jobs(&self) -> u64 {
        self.peers.iter().map(|peer| peer.refused_jobs.load(Relaxed)).sum()
    }

    /// Opens the mailbox of `shard`, whose reactor `wake` wakes. Called by the reactor before it can sleep. Returns
    /// `false` if the shard has a reactor or a gate already.
    pub(crate) fn open(&self, shard: u16, wake: WakeHandle) -> bool {
        let Some(peer) = self.peers.get(usize::from(shard)) else { return false };
        let mut reach = peer.reach.write().unwrap_or_else(PoisonError::into_inner);
        let is_free = reach.is_free();
        if is_free {
            peer.set_reach(&mut reach, Reach::Open(wake));
        }
        is_free
    }

    /// Puts a gate in the place of `shard`, until it is closed. Returns `false` if the shard has a reactor or a gate.
    pub(crate) fn open_gate(&self, shard: u16) -> bool {
        let Some(peer) = self.peers.get(usize::from(shard)) else { return false };
        {
            let mut reach = peer.reach.write().unwrap_or_else(PoisonError::into_inner);
            if !reach.is_free() {
                return false;
            }
            peer.set_reach(&mut reach, Reach::Gate);
        }

        // These were sent before the gate took the place.
        drop(peer.inbox.take());
        while let Some(message) = peer.messages.pop() {
            self.refuse(message);
        }
        true
    }

    /// Keeps everything but answers from `shard`, which has stopped running, until it is resumed. Answers or drops what
    /// it has not read.
    pub(crate) fn pause(&self, shard: u16) {
        let Some(peer) = self.peers.get(usize::from(shard)) else { return };
        let mut reach = peer.reach.write().unwrap_or_else(PoisonError::into_inner);
        let Reach::Open(wake) = &*reach else { return };
        let paused = Reach::Paused(wake.clone());
        peer.set_reach(&mut reach, paused);
        let unread: Vec<Message> = std::iter::from_fn(|| peer.messages.pop()).collect();
        let (kept, left): (Vec<_>, Vec<_>) = unread.into_iter().partition(Message::is_for_paused);
        kept.into_iter().for_each(|message| peer.messages.push(message));
        let submitted = peer.inbox.take();
        drop(reach);

        // Dropping answers each slot.
        drop(submitted);
        left.into_iter().for_each(|message| self.refuse(message));
    }

    /// Lets all messages reach `shard` again, if it was paused.
    pub(crate) fn resume(&self, shard: u16) {
        if !self.reach(shard).is_some_and(|reach| matches!(*reach, Reach::Paused(_))) {
            return;
        }
        let Some(peer) = self.peers.get(usize::from(shard)) else { return };
        let mut reach = peer.reach.write().unwrap_or_else(PoisonError::into_inner);
        if let Reach::Paused(wake) = &*reach {
            let open = Reach::Open(wake.clone());
            peer.set_reach(&mut reach, open);
        }
    }

    /// Closes the mailbox of `shard` until it is opened again. Answers or drops the messages in it.
    pub(crate) fn close(&self, shard: u16) {
        let Some(peer) = self.peers.get(usize::from(shard)) else { return };
        let mut reach = peer.reach.write().unwrap_or_else(PoisonError::into_inner);
        peer.set_reach(&mut reach, Reach::Closed);
        // Under the lock: once the shard is opened again, new messages are another reactor's.
        let left: Vec<Message> = std::iter::from_fn(|| peer.messages.pop()).collect();
        let submitted = peer.inbox.take();
        drop(reach);

        // Dropping answers each slot: the shard has ended.
        drop(submitted);
        left.into_iter().for_each(|message| self.refuse(message));
    }

    /// Sends a message to `shard`, and wakes it. If the shard reads no mail, answers the message for it.
    pub(crate) fn send(&self, shard: u16, message: Message) {
        let Some(peer) = self.peers.get(usize::from(shard)) else { return };
        let reach = peer.reach.read().unwrap_or_else(PoisonError::into_inner);
        match &*reach {
            Reach::NotYet => peer.messages.push(message),
            Reach::Open(wake) => {
                peer.messages.push(message);
                wake.wake();
            }
            Reach::Paused(wake) if message.is_for_paused() => {
                peer.messages.push(message);
                wake.wake();
            }
            Reach::Paused(_) | Reach::Gate | Reach::Closed => {
                drop(reach);
                self.refuse(message);
            }
        }
    }

    /// Returns whether `shard` takes requests and jobs of handles, without a lock. It may end at any moment.
    pub(crate) fn is_open(&self, shard: u16) -> bool {
        self.peers.get(usize::from(shard)).is_some_and(|peer| peer.is_open.load(Relaxed))
    }

    /// Returns whether a gate has the place of `shard`.
    pub(crate) fn has_gate(&self, shard: u16) -> bool {
        self.reach(shard).is_some_and(|reach| matches!(*reach, Reach::Gate))
    }

    /// Returns whether `shard` may still answer requests that it has read.
    pub(crate) fn may_answer(&self, shard: u16) -> bool {
        self.reach(shard).is_some_and(|reach| matches!(*reach, Reach::Open(_) | Reach::Paused(_)))
    }

    fn reach(&self, shard: u16) -> Option<RwLockReadGuard<'_, Reach>> {
        let peer = self.peers.get(usize::from(shard))?;
        Some(peer.reach.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Wakes `shard` if it runs.
    pub(crate) fn wake(&self, shard: u16) {
        if let Some(reach) = self.reach(shard)
            && let Reach::Open(wake) = &*reach
        {
            wake.wake();
        }
    }

    /// Answers a request with `EPIPE`, as no shard will read it; drops every other message.
    fn refuse(&self, message: Message) {
        if let Message::Request { from, serial, request } = message {
            let Request { tag, data, .. } = request;
            let done = Done { tag, result: Err(RequestError::failed(libc::EPIPE)), data, total_ns: 0 };
            self.send(from, Message::Done { serial, done });
        }
    }

    pub(crate) fn receive(&self, shard: u16) -> Option<Message> {
        self.peers.get(usize::from(shard))?.messages.pop()
    }

    /// Returns the number of messages in the mailbox of `shard`, without slots.
    pub(crate) fn waiting(&self, shard: u16) -> usize {
        self.peers.get(usize::from(shard)).map_or(0, |peer| peer.messages.len())
    }

    pub(crate) fn has_mail(&self, shard: u16) -> bool {
        self.peers.get(usize::from(shard)).is_some_and(|peer| !peer.messages.is_empty() || !peer.inbox.is_empty())
    }
}

#[cfg(all(test, feature = "metrics"))]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;
    use crate::backend::choose::BackendKind;
    use crate::{Classes, DiskSetup, Reactor, Topology};

    /// Returns a message that, when it is read, sends another of its kind, `left` times.
    fn echo(left: u32, read: &Arc<AtomicU32>, topology: &Topology) -> Message {
        let (read, topology) = (Arc::clone(read), topology.clone());
        Message::Read(Box::new(move |_| {
            read.fetch_add(1, Relaxed);
            if left > 0 {
                topology.mailboxes().send(0, echo(left - 1, &read, &topology));
            }
        }))
    }

    #[test]
    fn a_turn_reads_what_lay_there_and_not_what_comes_meanwhile() {
        let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
        let mut reactor = Reactor::new(0, &topology, BackendKind::Null.make(8).unwrap()).unwrap();
        let read = Arc::default();
        topology.mailboxes().send(0, echo(1000, &read, &topology));
        topology.mailboxes().send(0, echo(0, &read, &topology));
        let mut done = Vec::new();
        let counts = [(); 3].map(|()| {
            reactor.reap(&mut done);
            read.load(Relaxed)
        });
        assert_eq!(counts, [2, 3, 4]);
    }
}
