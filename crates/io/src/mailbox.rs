//! Messages between shards.
//!
//! # Why
//! Shards share nothing but the disk's token count. Everything else that must cross, a request for an I/O queue on
//! another shard, its answer, a task to run there, is a message.
//!
//! # How it works
//! One lock-free queue a shard, many writers, one reader. A writer pushes and then wakes the reader; the wake is a load
//! when the reader is awake.
//!
//! # Limits
//! The mailbox itself is not bounded; what goes into it is: every request in it holds a place in the bounded table of the
//! shard that sent it.

use std::sync::{Arc, OnceLock};

use crossbeam_queue::SegQueue;

use crate::backend::WakeHandle;
use crate::reactor::{Done, Request};
use crate::shard::Job;

/// What can be said to a shard.
pub(crate) enum Message {
    /// Shard `from` asks for I/O through a queue here.
    Request { from: u16, request: Request },
    /// The answer.
    Done(Done),
    /// Something to run on the shard's thread.
    Run(Job),
    /// Nobody holds the file of this number and serial any more.
    Close { number: u32, uid: u64 },
}

#[derive(Default)]
struct Peer {
    messages: SegQueue<Message>,
    wake: OnceLock<WakeHandle>,
}

/// The mailboxes of all shards of a program.
#[derive(Clone)]
pub(crate) struct Mailboxes(Arc<[Peer]>);

impl Mailboxes {
    pub(crate) fn new(shards: u16) -> Mailboxes {
        Mailboxes((0..shards).map(|_| Peer::default()).collect())
    }

    /// How `shard` is woken. Said once, by the shard itself, before anything can sleep.
    pub(crate) fn set_wake(&self, shard: u16, wake: WakeHandle) {
        let _ = self.0[usize::from(shard)].wake.set(wake);
    }

    pub(crate) fn send(&self, shard: u16, message: Message) {
        let Some(peer) = self.0.get(usize::from(shard)) else { return };
        peer.messages.push(message);
        if let Some(wake) = peer.wake.get() {
            wake.wake();
        }
    }

    pub(crate) fn receive(&self, shard: u16) -> Option<Message> {
        self.0[usize::from(shard)].messages.pop()
    }

    pub(crate) fn has_mail(&self, shard: u16) -> bool {
        !self.0[usize::from(shard)].messages.is_empty()
    }
}
