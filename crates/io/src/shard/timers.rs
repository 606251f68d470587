//! Timers of a shard, and the futures that wait for them.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::Shard;

#[derive(Default)]
pub(super) struct Timers {
    serial: u64,
    /// Sorted by time, then by the order in which the timers were set.
    wakers: BTreeMap<(u64, u64), Waker>,
}

impl Timers {
    /// Returns the time of the first timer.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.wakers.keys().next().map(|(at_ns, _)| *at_ns)
    }
}

impl Shard {
    /// Sleeps for `how_long` by the backend's clock, counted from this call (not from the beginning of the turn, nor
    /// from the first poll).
    pub fn sleep(&self, how_long: Duration) -> impl Future<Output = ()> + '_ {
        let nanos = u64::try_from(how_long.as_nanos()).unwrap_or(u64::MAX);
        let now_ns = self.0.reactor.borrow().clock_ns();
        self.sleep_until(now_ns.saturating_add(nanos))
    }

    /// Sleeps until the backend's clock reads `at_ns`.
    pub async fn sleep_until(&self, at_ns: u64) {
        Sleep { shard: self, at_ns, timer: None }.await;
    }

    /// Wakes the tasks whose time has come.
    pub(super) fn fire_timers(&self) {
        let now_ns = self.now_ns();
        loop {
            let mut timers = self.0.timers.borrow_mut();
            let Some(first) = timers.wakers.first_entry().filter(|timer| timer.key().0 <= now_ns) else { break };
            let waker = first.remove();
            drop(timers);
            waker.wake();
        }
    }
}

/// A timer as a future.
struct Sleep<'a> {
    shard: &'a Shard,
    at_ns: u64,
    /// Serial number of the timer, once set.
    timer: Option<u64>,
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.shard.now_ns() >= self.at_ns {
            return Poll::Ready(());
        }
        let shard = self.shard;
        let mut timers = shard.0.timers.borrow_mut();
        let serial = *self.timer.get_or_insert_with(|| {
            timers.serial += 1;
            timers.serial
        });
        let old = timers.wakers.insert((self.at_ns, serial), context.waker().clone());
        drop(timers);
        drop(old);
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        if let Some(serial) = self.timer {
            let waker = self.shard.0.timers.borrow_mut().wakers.remove(&(self.at_ns, serial));
            drop(waker);
        }
    }
}
