//! The first end of a shard of a runtime, for whoever waits for it.
//!
//! # Why
//! A shard may end by itself: its backend breaks down, code on it stops it, or panics outside of a task. The requests
//! that it had fail then, but a program that has none under way must know of it, too.
//!
//! # How it works
//! The thread of each shard has an [`Ending`], whose drop reports the end, after a panic too. The first end is kept,
//! and wakes all futures.
//!
//! # Limits
//! A shard has ended when its reactor has been dropped, which waits for its operations in the device.
//!
//! # Example
//! See [`Runtime::ended`](crate::Runtime::ended).

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use slab::Slab;

use crate::backend::error_number;

/// The end of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardEnd {
    /// The number of the shard.
    pub shard: u16,
    /// Why it has ended.
    pub reason: EndReason,
}

/// Why a shard has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndReason {
    /// Its runtime was stopped or dropped, or code on it called [`Shard::stop`](crate::Shard::stop).
    Stopped,
    /// Its backend has broken down.
    Broken {
        /// The backend's error number.
        errno: i32,
    },
    /// Code on it panicked outside of a task.
    Panicked,
}

impl fmt::Display for ShardEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shard = self.shard;
        match self.reason {
            EndReason::Stopped => write!(f, "shard {shard} was stopped"),
            EndReason::Broken { errno } => {
                write!(f, "the backend of shard {shard} has broken down: {}", io::Error::from_raw_os_error(errno))
            }
            EndReason::Panicked => write!(f, "shard {shard} has panicked"),
        }
    }
}

#[derive(Default)]
struct State {
    first: Option<ShardEnd>,
    /// The tasks that wait for it.
    waiting: Slab<Waker>,
}

/// The first end of a shard. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct FirstEnd(Arc<Mutex<State>>);

impl FirstEnd {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No code under the lock panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report(&self, end: ShardEnd) {
        let mut state = self.lock();
        state.first.get_or_insert(end);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

/// Reports the end of a shard when dropped: a panic unless [`Ending::set`] was called.
pub(super) struct Ending {
    first: FirstEnd,
    end: ShardEnd,
}

impl Ending {
    pub(super) fn new(first: &FirstEnd, shard: u16) -> Ending {
        Ending { first: first.clone(), end: ShardEnd { shard, reason: EndReason::Panicked } }
    }

    /// Sets the result of the shard's run.
    pub(super) fn set(&mut self, result: &io::Result<()>) {
        self.end.reason = match result {
            Ok(()) => EndReason::Stopped,
            Err(error) => EndReason::Broken { errno: error_number(error) },
        };
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.first.report(self.end);
    }
}

/// A future that resolves when the first shard of a runtime has ended: see [`Runtime::ended`](crate::Runtime::ended).
#[must_use = "a future does nothing unless it is polled"]
pub struct Ended {
    first: FirstEnd,
    /// The key of this future's waker.
    key: Option<usize>,
}

impl Ended {
    pub(super) fn new(first: &FirstEnd) -> Ended {
        Ended { first: first.clone(), key: None }
    }
}

impl Future for Ended {
    type Output = ShardEnd;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<ShardEnd> {
        let Ended { first, key } = &mut *self;
        let mut state = first.lock();
        if let Some(end) = state.first {
            return Poll::Ready(end);
        }
        match key.and_then(|key| state.waiting.get_mut(key)) {
            Some(waker) => waker.clone_from(context.waker()),
            None => *key = Some(state.waiting.insert(context.waker().clone())),
        }
        Poll::Pending
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            // After the end there are no wakers.
            drop(self.first.lock().waiting.try_remove(key));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    #[test]
    fn the_first_end_counts_with_its_reason() {
        let check = |result: Option<io::Result<()>>, reason, text: &str| {
            let first = FirstEnd::default();
            let mut context = Context::from_waker(Waker::noop());
            let mut early = pin!(Ended::new(&first));
            assert!(early.as_mut().poll(&mut context).is_pending() && early.as_mut().poll(&mut context).is_pending());
            assert!(pin!(Ended::new(&first)).poll(&mut context).is_pending());
            let mut ending = Ending::new(&first, 3);
            if let Some(result) = result {
                ending.set(&result);
            }
            drop(ending);
            drop(Ending::new(&first, 4));
            let end = ShardEnd { shard: 3, reason };
            assert_eq!(early.as_mut().poll(&mut context), Poll::Ready(end));
            assert_eq!(pin!(Ended::new(&first)).poll(&mut context), Poll::Ready(end));
            assert!(end.to_string().contains(text), "{end}");
        };
        check(None, EndReason::Panicked, "shard 3 has panicked");
        check(Some(Ok(())), EndReason::Stopped, "shard 3 was stopped");
        let broken = Err(io::Error::from_raw_os_error(libc::EBADF));
        check(Some(broken), EndReason::Broken { errno: libc::EBADF }, "shard 3 has broken down: Bad file descriptor");
    }
}
