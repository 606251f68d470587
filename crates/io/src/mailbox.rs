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
//! # Limits
//! The mailbox itself is not bounded; what goes into it is: every request in it holds a place in the bounded table of the
//! shard that sent it.

use std::sync::{Arc, PoisonError, RwLock};

use crossbeam_queue::SegQueue;

use crate::backend::WakeHandle;
use crate::request::{Done, Request, RequestError};
use crate::shard::Job;

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

#[derive(Default)]
struct Peer {
    messages: SegQueue<Message>,
    reach: RwLock<Reach>,
}

/// Whether a shard reads its mail.
#[derive(Default)]
enum Reach {
    /// It is being started and will.
    #[default]
    NotYet,
    /// It does; wake it.
    Open(WakeHandle),
    /// It is gone.
    Closed,
}

/// The mailboxes of all shards of a program.
#[derive(Clone)]
pub(crate) struct Mailboxes(Arc<[Peer]>);

impl Mailboxes {
    pub(crate) fn new(shards: u16) -> Mailboxes {
        Mailboxes((0..shards).map(|_| Peer::default()).collect())
    }

    /// From now on `shard` reads its mail, and this wakes it. Said by the shard itself, before it can sleep. `false` when it
    /// does so already: somebody else is that shard.
    pub(crate) fn open(&self, shard: u16, wake: WakeHandle) -> bool {
        let Some(peer) = self.0.get(usize::from(shard)) else { return false };
        let mut reach = peer.reach.write().unwrap_or_else(PoisonError::into_inner);
        let is_free = !matches!(*reach, Reach::Open(_));
        if is_free {
            *reach = Reach::Open(wake);
        }
        is_free
    }

    /// `shard` reads no mail any more, until it is opened again.
    pub(crate) fn close(&self, shard: u16) {
        let Some(peer) = self.0.get(usize::from(shard)) else { return };
        *peer.reach.write().unwrap_or_else(PoisonError::into_inner) = Reach::Closed;
        while let Some(message) = peer.messages.pop() {
            self.bounce(message);
        }
    }

    pub(crate) fn send(&self, shard: u16, message: Message) {
        let Some(peer) = self.0.get(usize::from(shard)) else { return };
        let reach = peer.reach.read().unwrap_or_else(PoisonError::into_inner);
        match &*reach {
            Reach::NotYet => peer.messages.push(message),
            Reach::Open(wake) => {
                peer.messages.push(message);
                wake.wake();
            }
            Reach::Closed => {
                drop(reach);
                self.bounce(message);
            }
        }
    }

    /// Nobody will read `message`: a request is answered, everything else is dropped.
    fn bounce(&self, message: Message) {
        if let Message::Request { from, serial, request } = message {
            let Request { tag, data, .. } = request;
            let done = Done { tag, result: Err(RequestError::failed(libc::ESHUTDOWN)), data, total_ns: 0 };
            self.send(from, Message::Done { serial, done });
        }
    }

    pub(crate) fn receive(&self, shard: u16) -> Option<Message> {
        self.0.get(usize::from(shard))?.messages.pop()
    }

    pub(crate) fn has_mail(&self, shard: u16) -> bool {
        self.0.get(usize::from(shard)).is_some_and(|peer| !peer.messages.is_empty())
    }
}
