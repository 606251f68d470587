//! A request on its way to a shard and back, as a future.
//!
//! # Why
//! A task of any executor, outside the shards, waits for the end of a request, and may stop waiting.
//!
//! # How it works
//! The first poll reserves a place in the shard's mailbox, takes a [`Slot`] from its pool, and sends the slot. The poll
//! after the end takes the result and returns the slot. If dropped in between, the future abandons the slot: the queued
//! rest of the request is cancelled; pieces in the device end as always, and the shard keeps their memory until then.
//!
//! # Limits
//! If too many requests wait, or the shard has stopped, the request ends at the first poll, with its memory.
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

/// The error message if too many jobs wait, since their number is bounded.
pub(crate) const FULL: &str = "as many jobs wait for the shard as may: wait for some to end, or shed load";

/// A request on its way to a shard and back, as a future. The first poll sends it.
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

    /// Sends the request, or ends it with an error.
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
