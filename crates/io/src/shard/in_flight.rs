//! A request of a shard as a future.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::{Operation, Shard};
use crate::request::{Data, Refused, Request, RequestError, Ticket};

/// A request under way.
pub(super) struct InFlight<'a> {
    shard: &'a Shard,
    state: State,
}

impl<'a> InFlight<'a> {
    /// Returns a future that submits `request` when it is first polled.
    pub(super) fn new(shard: &'a Shard, request: Request) -> InFlight<'a> {
        InFlight { shard, state: State::New(Some(request)) }
    }
}

enum State {
    New(Option<Request>),
    Sent { key: usize, ticket: Ticket },
    Over,
}

impl Future for InFlight<'_> {
    type Output = (Result<u32, RequestError>, Data);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        // The clone and the drop of a waker run its owner's code, which may drop another future of this shard, so both
        // happen while the table is not borrowed.
        let waker = context.waker().clone();

        let mut operations = this.shard.0.operations.borrow_mut();
        match &mut this.state {
            State::New(request) => {
                let Some(mut request) = request.take() else { return Poll::Pending };
                let key = operations.insert(Operation::Waiting(waker));
                request.tag = key as u64;
                match this.shard.0.reactor.borrow_mut().submit(request) {
                    Ok(ticket) => {
                        this.state = State::Sent { key, ticket };
                        Poll::Pending
                    }
                    Err(refused) => {
                        let unused = operations.remove(key);
                        drop(operations);
                        drop(unused);
                        this.state = State::Over;
                        let Refused { reason, request } = *refused;
                        Poll::Ready((Err(RequestError::Refused(reason)), request.data))
                    }
                }
            }
            State::Sent { key, .. } => match operations.get_mut(*key) {
                Some(Operation::Waiting(known)) => {
                    let earlier = std::mem::replace(known, waker);
                    drop(operations);
                    drop(earlier);
                    Poll::Pending
                }
                _ => match operations.try_remove(*key) {
                    Some(Operation::Done(done)) => {
                        this.state = State::Over;
                        Poll::Ready((done.result, done.data))
                    }
                    _ => Poll::Pending,
                },
            },
            State::Over => Poll::Pending,
        }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let State::Sent { key, ticket } = &self.state else { return };
        let mut operations = self.shard.0.operations.borrow_mut();
        // A waker that is dropped here may drop other futures of this shard, so drop it while the table is not
        // borrowed.
        match operations.get_mut(*key) {
            Some(slot @ Operation::Waiting(_)) => {
                let waiting = std::mem::replace(slot, Operation::Abandoned);
                drop(operations);
                drop(waiting);
                self.shard.0.reactor.borrow_mut().cancel(*ticket);
            }
            Some(_) => {
                let done = operations.remove(*key);
                drop(operations);
                drop(done);
            }
            None => {}
        }
    }
}
