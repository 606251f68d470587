//! Paces operations: `--rate`.
//!
//! # Why
//! Users do not wait for each other. With a rate, latency counts from an operation's due time, so that a stall shows in
//! all operations that it delayed, not only in the few in flight.
//!
//! # How it works
//! Operation n is due n / rate seconds after the beginning. Workers take the next due time with [`Pace::take`]; early
//! workers wait. A thread that calls [`Pace::tick`] often wakes those that have become due.
//!
//! # Limits
//! Due times are as exact as [`Pace::tick`] is frequent. They continue until [`Pace::end`], which wakes all workers
//! with `None`.
//!
//! # Example
//! At 1000 a second the workers' due times are 0, 1 ms, 2 ms and so on, however late they are taken.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Instant;

/// The schedule of operations, shared by all workers.
pub(super) struct Pace {
    begin: Instant,
    /// Time between two operations, in nanoseconds; 0: all are due at once.
    period_ns: f64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    taken: u64,
    is_over: bool,
    waiting: VecDeque<Waker>,
}

impl Pace {
    /// Returns a pace of `rate_per_s` (above 0), from now on. If `None`, an operation is due when a worker takes it.
    pub(super) fn new(rate_per_s: Option<f64>) -> Pace {
        let period_ns = rate_per_s.map_or(0.0, |rate| 1e9 / rate);
        Pace { begin: Instant::now(), period_ns, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic cannot leave the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now_ns(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Waits for the next due time. Returns it in nanoseconds since the beginning, or `None` after the end.
    pub(super) async fn take(&self) -> Option<u64> {
        poll_fn(|context| {
            let mut state = self.state();
            if state.is_over {
                return Poll::Ready(None);
            }
            let now_ns = self.now_ns();
            if self.period_ns == 0.0 {
                return Poll::Ready(Some(now_ns));
            }
            let due_ns = (state.taken as f64 * self.period_ns) as u64;
            if due_ns <= now_ns {
                state.taken += 1;
                return Poll::Ready(Some(due_ns));
            }
            state.waiting.push_back(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Wakes the workers whose operations are due.
    pub(super) fn tick(&self) {
        let mut state = self.state();
        if self.period_ns == 0.0 {
            return;
        }
        let due = (self.now_ns() as f64 / self.period_ns) as u64 + 1;
        let count = usize::try_from(due.saturating_sub(state.taken)).unwrap_or(usize::MAX).min(state.waiting.len());
        let woken: Vec<Waker> = state.waiting.drain(..count).collect();
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }

    pub(super) fn end(&self) {
        let mut state = self.state();
        state.is_over = true;
        let woken = std::mem::take(&mut state.waiting);
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Context;
    use std::time::Duration;

    use super::*;

    #[test]
    fn due_times_are_those_of_the_schedule() {
        let pace = Pace { begin: Instant::now() - Duration::from_secs(1), ..Pace::new(Some(3.0)) };
        let mut context = Context::from_waker(Waker::noop());
        for expected in [0, 333_333_333, 666_666_666] {
            assert_eq!(pin!(pace.take()).poll(&mut context), Poll::Ready(Some(expected)));
        }
        // The fourth is due at 1 s: either that has passed, or the worker waits until the end wakes it.
        pace.end();
        assert_eq!(pin!(pace.take()).poll(&mut context), Poll::Ready(None));
    }

    #[test]
    fn without_a_rate_everything_is_due_now() {
        let pace = Pace::new(None);
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..3 {
            assert!(matches!(pin!(pace.take()).poll(&mut context), Poll::Ready(Some(_))));
        }
    }

    #[test]
    fn who_is_early_waits() {
        let pace = Pace::new(Some(0.001));
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(pin!(pace.take()).poll(&mut context), Poll::Ready(Some(0)));
        let mut second = pin!(pace.take());
        assert_eq!(second.as_mut().poll(&mut context), Poll::Pending);
        pace.tick();
        assert_eq!(pace.state().waiting.len(), 1);
        pace.end();
        assert_eq!(second.poll(&mut context), Poll::Ready(None));
    }
}
