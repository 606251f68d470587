//! Messages between shards.
//!
//! # Why
//! Shards share nothing but the disk's token count. Everything else that must cross, a request for an I/O queue on
//! another shard, its answer, a task to run there, is a message.
//!
//! # How it works
//! One lock-free queue a shard, many writers, one reader. A writer pushes and then wakes the reader; there is no system
//! call when the reader is awake. The reader is reached under a read lock, so that a shard which ends can shut its door:
//! what comes later, and what still lay there, goes back to its sender with an error or is dropped (a dropped task breaks
//! the channel of whoever waits for it). Nobody waits for a shard that is gone.
//!
//! Requests of handles lie in a list of their own ([`Inbox`]), in slots from a pool.
//!
//! # Limits
//! What goes into a mailbox is bounded, so that what comes back always finds room: every request and every answer holds
//! a place in the bounded table of the shard that asked; every job of a handle a [`JobPlace`], of which a shard has as many
//! as requests may be under way there (whoever gets none is refused, and counted); a question is asked once until it is
//! answered; a file is closed once. A shard takes at most what lay there when it began to read.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

use crossbeam_queue::{ArrayQueue, SegQueue};

use crate::backend::WakeHandle;
use crate::request::{Done, Request, RequestError};
use crate::shard::Job;
use crate::slot::{Inbox, JobPlace, POOLED_MAX, Slot, Taken};

/// What can be said to a shard.
pub(crate) enum Message {
    /// Shard `from` asks for I/O through a queue here.
    Request { from: u16, serial: u64, request: Request },
    /// The answer to the request of this serial: the reactor that asked may be gone, and another in its place.
    Done { serial: u64, done: Done },
    /// Something to run on the shard's thread.
    Run(Job),
    /// Somebody wants to see what is going on in the engine itself, which need not run futures.
    #[cfg(feature = "metrics")]
    Look(Box<dyn FnOnce(&crate::Reactor) + Send>),
    /// Nobody holds the file of this number and serial any more.
    Close { number: u32, uid: u64 },
}

struct Peer {
    messages: SegQueue<Message>,
    /// Requests of handles.
    inbox: Inbox,
    /// Slots that carry none.
    pool: ArrayQueue<Arc<Slot>>,
    reach: RwLock<Reach>,
    /// Jobs and requests of handles that were not started yet.
    jobs: Arc<AtomicUsize>,
    /// Jobs that were refused because too many waited.
    refused_jobs: AtomicU64,
}

/// Whether a shard reads its mail.
#[derive(Default)]
enum Reach {
    /// It is being started and will.
    #[default]
    NotYet,
    /// It does; wake it.
    Open(WakeHandle),
    /// A gate has its place, which has no mail.
    Gate,
    /// It is gone.
    Closed,
}

/// The mailboxes of all shards of a program.
#[derive(Clone)]
pub(crate) struct Mailboxes {
    peers: Arc<[Peer]>,
    /// Jobs of handles that may wait for one shard.
    max_jobs: usize,
}

impl Mailboxes {
    pub(crate) fn new(shards: u16, max_jobs: usize) -> Mailboxes {
        let peer = |_| Peer {
            messages: SegQueue::new(),
            inbox: Inbox::default(),
            pool: ArrayQueue::new(max_jobs.clamp(1, POOLED_MAX)),
            reach: RwLock::default(),
            jobs: Arc::default(),
            refused_jobs: AtomicU64::new(0),
        };
        Mailboxes { peers: (0..shards).map(peer).collect(), max_jobs }
    }

    /// Takes room for a job in the mailbox of `shard`; `None` where as many wait as may.
    pub(crate) fn reserve_job(&self, shard: u16) -> Option<JobPlace> {
        let peer = self.peers.get(usize::from(shard))?;
        // From here on the place gives back what was added.
        let before = peer.jobs.fetch_add(1, Relaxed);
        let place = JobPlace(Arc::clone(&peer.jobs));
        if before >= self.max_jobs {
            peer.refused_jobs.fetch_add(1, Relaxed);
            return None;
        }
        Some(place)
    }

    /// Takes a slot from the pool of `shard`; `None` when all are in use.
    pub(crate) fn slot(&self, shard: u16) -> Option<Arc<Slot>> {
        self.peers.get(usize::from(shard))?.pool.pop()
    }

    /// Gives a slot back whose end was taken.
    pub(crate) fn give_back(&self, shard: u16, slot: Arc<Slot>) {
        if let Some(peer) = self.peers.get(usize::from(shard)) {
            // Dropped where the pool is full.
            let _ = peer.pool.push(slot);
        }
    }

    /// Sends a slot to `shard`, and wakes it unless it has others to look at. Returns `false`, and drops it unanswered, when
    /// nobody will look.
    pub(crate) fn submit(&self, shard: u16, slot: Arc<Slot>) -> bool {
        let Some(peer) = self.peers.get(usize::from(shard)) else { return false };
        let reach = peer.reach.read().unwrap_or_else(PoisonError::into_inner);
        let wake = match &*reach {
            Reach::NotYet => None,
            Reach::Open(wake) => Some(wake),
            Reach::Gate | Reach::Closed => return false,
        };
        if peer.inbox.push(slot)
            && let Some(wake) = wake
        {
            wake.wake();
        }
        true
    }

    /// Takes what was submitted to `shard`, in order.
    pub(crate) fn submitted(&self, shard: u16) -> Option<Taken> {
        self.peers.get(usize::from(shard)).map(|peer| peer.inbox.take())
    }

    /// Jobs of handles refused so far, for all shards.
    pub(crate) fn refused_jobs(&self) -> u64 {
        self.peers.iter().map(|peer| peer.refused_jobs.load(Relaxed)).sum()
    }

    /// From now on `shard` reads its mail, and this wakes it. Said by the shard itself, before it can sleep. `false` when it
    /// does so already: somebody else is that shard.
    pub(crate) fn open(&self, shard: u16, wake: WakeHandle) -> bool {
        let Some(peer) = self.peers.get(usize::from(shard)) else { return false };
        let mut reach = peer.reach.write().unwrap_or_else(PoisonError::into_inner);
        let is_free = !matches!(*reach, Reach::Open(_) | Reach::Gate);
        if is_free {
            *reach = Reach::Open(wake);
        }
        is_free
    }

    /// From now on a gate is in the place of `shard`, until it is closed. `false` when somebody is.
    pub(crate) fn open_gate(&self, shard: u16) -> bool {
        let Some(peer) = self.peers.get(usize::from(shard)) else { return false };
        {
            let mut reach = peer.reach.write().unwrap_or_else(PoisonError::into_inner);
            if matches!(*reach, Reach::Open(_) | Reach::Gate) {
                return false;
            }
            *reach = Reach::Gate;
        }
        // What came while a shard was expected here.
        drop(peer.inbox.take());
        while let Some(message) = peer.messages.pop() {
            self.bounce(message);
        }
        true
    }

    /// `shard` reads no mail any more, until it is opened again.
    pub(crate) fn close(&self, shard: u16) {
        let Some(peer) = self.peers.get(usize::from(shard)) else { return };
        let mut reach = peer.reach.write().unwrap_or_else(PoisonError::into_inner);
        *reach = Reach::Closed;
        // Before anybody can open the shard again: what comes then is not this reactor's.
        let left: Vec<Message> = std::iter::from_fn(|| peer.messages.pop()).collect();
        let submitted = peer.inbox.take();
        drop(reach);
        // Each is answered that the shard is gone.
        drop(submitted);
        left.into_iter().for_each(|message| self.bounce(message));
    }

    pub(crate) fn send(&self, shard: u16, message: Message) {
        let Some(peer) = self.peers.get(usize::from(shard)) else { return };
        let reach = peer.reach.read().unwrap_or_else(PoisonError::into_inner);
        match &*reach {
            Reach::NotYet => peer.messages.push(message),
            Reach::Open(wake) => {
                peer.messages.push(message);
                wake.wake();
            }
            Reach::Gate | Reach::Closed => {
                drop(reach);
                self.bounce(message);
            }
        }
    }

    /// Nobody will read `message`: a request is answered as a handle's would be, with the error number of a broken pipe;
    /// everything else is dropped.
    fn bounce(&self, message: Message) {
        if let Message::Request { from, serial, request } = message {
            let Request { tag, data, .. } = request;
            let done = Done { tag, result: Err(RequestError::failed(libc::EPIPE)), data, total_ns: 0 };
            self.send(from, Message::Done { serial, done });
        }
    }

    pub(crate) fn receive(&self, shard: u16) -> Option<Message> {
        self.peers.get(usize::from(shard))?.messages.pop()
    }

    /// How many messages lie in the mailbox of `shard`.
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

    /// A message that, when it is read, sends another of its kind.
    fn echo(left: u32, read: &Arc<AtomicU32>) -> Message {
        let read = Arc::clone(read);
        Message::Look(Box::new(move |reactor| {
            read.fetch_add(1, Relaxed);
            if left > 0 {
                reactor.topology().mailboxes().send(0, echo(left - 1, &read));
            }
        }))
    }

    #[test]
    fn a_turn_reads_what_lay_there_and_not_what_comes_meanwhile() {
        let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
        let mut reactor = Reactor::new(0, &topology, BackendKind::Null.make(8).unwrap()).unwrap();
        let read = Arc::default();
        topology.mailboxes().send(0, echo(1000, &read));
        topology.mailboxes().send(0, echo(0, &read));
        let mut done = Vec::new();
        let counts = [(); 3].map(|()| {
            reactor.reap(&mut done);
            read.load(Relaxed)
        });
        assert_eq!(counts, [2, 3, 4]);
    }
}
