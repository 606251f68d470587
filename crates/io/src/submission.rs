//! A request on its way to a shard and back, as a future.
//!
//! # Why
//! Whoever is no shard waits for the end of a request in a task of any executor, and may stop waiting.
//!
//! # How it works
//! The first poll takes a place in the shard's mailbox and a [`Slot`] from its pool, and sends it. The poll after the end
//! takes the end and gives the slot back. Dropped in between, the future abandons the slot: what is still queued of the
//! request is cancelled; what is in the device ends as always, with its memory kept by the shard.
//!
//! # Limits
//! A request that is refused, or finds the shard stopped, ends at the first poll with its memory.
//!
//! # Example
//! See [`File`](crate::File).

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::backend::explained;
use crate::mailbox::Mailboxes;
use crate::request::Request;
use crate::slot::{End, GONE, Slot};

/// What is answered instead of waiting without a bound.
pub(crate) const FULL: &str = "as many jobs wait for the shard as may: wait for some to end, or shed load";

/// A request on its way to a shard and back, as a future. It is sent by the first poll.
pub(crate) struct Submitted<'a> {
    mailboxes: &'a Mailboxes,
    shard: u16,
    stage: Stage,
}

enum Stage {
    New(Request),
    Waiting(Arc<Slot>),
    Over,
}

impl Submitted<'_> {
    pub(crate) fn new(mailboxes: &Mailboxes, shard: u16, request: Request) -> Submitted<'_> {
        Submitted { mailboxes, shard, stage: Stage::New(request) }
    }

    fn send(&mut self, request: Request, context: &mut Context<'_>) -> Poll<End> {
        let Some(place) = self.mailboxes.reserve_job(self.shard) else {
            return Poll::Ready((Err(explained(libc::EAGAIN, FULL.to_owned())), request.data));
        };
        let slot = self.mailboxes.slot(self.shard).unwrap_or_else(Slot::new);
        slot.fill(request, place, context.waker());
        if self.mailboxes.submit(self.shard, Arc::clone(&slot)) {
            self.stage = Stage::Waiting(slot);
            return Poll::Pending;
        }
        Poll::Ready((Err(io::Error::new(io::ErrorKind::BrokenPipe, GONE)), slot.empty()))
    }
}

impl Future for Submitted<'_> {
    type Output = End;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<End> {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::New(request) => self.send(request, context),
            Stage::Waiting(slot) => match slot.poll(context) {
                Some(end) => {
                    self.mailboxes.give_back(self.shard, slot);
                    Poll::Ready(end)
                }
                None => {
                    self.stage = Stage::Waiting(slot);
                    Poll::Pending
                }
            },
            Stage::Over => Poll::Pending,
        }
    }
}

impl Drop for Submitted<'_> {
    fn drop(&mut self) {
        if let Stage::Waiting(slot) = std::mem::replace(&mut self.stage, Stage::Over)
            && slot.abandon()
        {
            self.mailboxes.submit(self.shard, slot);
        }
    }
}
