//! Limits the bytes of inserts in flight in each class.
//!
//! # Why
//! Inserts arrive as fast as a network delivers them. A backlog would fill memory and then delay everything, so the
//! excess is better not stored. And one class must not take the memory that another needs.
//!
//! # How it works
//! Each class has the same limit of bytes. [`Admission::try_enter`] takes bytes or refuses, at once;
//! [`Admission::enter`] waits for its turn, in the order of the calls. A [`Permit`] returns its bytes when it is
//! dropped, and the first waiter gets them. While a call waits, `try_enter` in its class refuses: nothing overtakes.
//!
//! # Limits
//! An insert larger than the limit enters when nothing else of its class is in flight; otherwise it would never enter.
//! So at most the limit, or one block, is in flight in a class. Classes have the numbers 0 to 65,535; larger ones
//! share the last. One mutex guards all classes, for a few dozen instructions.
//!
//! # Example
//! A limit of 256 MiB, and inserts of 8 KiB: 32,768 are in flight, the next `try_enter` is `None` and is counted as a
//! drop. One write completes, its permit is dropped, and the next insert enters.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};

use futures_channel::oneshot;

use crate::sync::lock;

/// The largest class number.
const LAST_CLASS: usize = 65_535;

/// Limits the bytes in flight in each class. Clones share the limit.
#[derive(Clone, Debug)]
pub(crate) struct Admission(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limit_bytes: u64,
    /// By class number, up to the largest number used.
    classes: Mutex<Vec<Class>>,
}

#[derive(Debug, Default)]
struct Class {
    in_flight_bytes: u64,
    peak_bytes: u64,
    waiting: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    bytes: u64,
    sender: oneshot::Sender<Permit>,
}

impl Class {
    fn take(&mut self, bytes: u64, limit_bytes: u64) -> bool {
        let after = self.in_flight_bytes.saturating_add(bytes);
        let is_in = self.in_flight_bytes == 0 || after <= limit_bytes;
        if is_in {
            self.in_flight_bytes = after;
            self.peak_bytes = self.peak_bytes.max(after);
        }
        is_in
    }

    /// Removes cancelled waiters from the front of the queue.
    fn prune(&mut self) {
        while self.waiting.front().is_some_and(|waiter| waiter.sender.is_canceled()) {
            self.waiting.pop_front();
        }
    }

    /// Admits the first waiter, if there is room for it now.
    fn next(&mut self, limit_bytes: u64) -> Option<Waiter> {
        self.prune();
        let bytes = self.waiting.front()?.bytes;
        if self.take(bytes, limit_bytes) { self.waiting.pop_front() } else { None }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Vec<Class>> {
        lock(&self.classes)
    }

    /// Calls `look` with the class of that number, which is created if it does not exist.
    fn with<T>(&self, class: usize, look: impl FnOnce(&mut Class) -> T) -> T {
        let mut classes = self.lock();
        if classes.len() <= class {
            classes.resize_with(class + 1, Class::default);
        }
        match classes.get_mut(class) {
            Some(class) => look(class),
            None => look(&mut Class::default()),
        }
    }

    /// Returns bytes to the class, and admits the waiters that now fit.
    fn give_back(self: &Arc<Self>, class: usize, bytes: u64) {
        let mut bytes = bytes;
        loop {
            let next = self.with(class, |class| {
                class.in_flight_bytes = class.in_flight_bytes.saturating_sub(bytes);
                class.next(self.limit_bytes)
            });
            let Some(Waiter { bytes: granted, sender }) = next else { return };
            let permit = Permit { shared: Arc::clone(self), class, bytes: granted };
            bytes = match sender.send(permit) {
                Ok(()) => 0,
                // The waiter was cancelled in this moment. Return its bytes here: a drop within a drop would recurse.
                Err(mut permit) => std::mem::take(&mut permit.bytes),
            };
        }
    }
}

impl Admission {
    /// Returns an admission of at most `limit_bytes` in flight in each class; 0: one insert at a time.
    pub(crate) fn new(limit_bytes: u64) -> Admission {
        Admission(Arc::new(Shared { limit_bytes, classes: Mutex::new(Vec::new()) }))
    }

    /// Takes `bytes` in the class. Returns `None` if there is no room now, or others wait.
    pub(crate) fn try_enter(&self, class: usize, bytes: u64) -> Option<Permit> {
        let class = class.min(LAST_CLASS);
        let is_in = self.0.with(class, |class| {
            class.prune();
            class.waiting.is_empty() && class.take(bytes, self.0.limit_bytes)
        });
        is_in.then(|| Permit { shared: Arc::clone(&self.0), class, bytes })
    }

    /// Takes `bytes` in the class as soon as there is room. The call itself takes the place in the queue; dropping the
    /// future gives it up.
    pub(crate) fn enter(&self, class: usize, bytes: u64) -> impl Future<Output = Permit> + Send + use<> {
        let class = class.min(LAST_CLASS);
        let shared = Arc::clone(&self.0);
        let waiting = shared.with(class, |class| {
            class.prune();
            if class.waiting.is_empty() && class.take(bytes, shared.limit_bytes) {
                return None;
            }
            let (sender, receiver) = oneshot::channel();
            class.waiting.push_back(Waiter { bytes, sender });
            Some(receiver)
        });

        let ready = waiting.is_none().then(|| Permit { shared: Arc::clone(&shared), class, bytes });
        async move {
            match (ready, waiting) {
                (Some(permit), _) => permit,
                (None, Some(receiver)) => match receiver.await {
                    Ok(permit) => permit,
                    // Unreachable: this future holds the queue, so no sender is dropped. If one were, it held no bytes.
                    Err(oneshot::Canceled) => Permit { shared, class, bytes: 0 },
                },
                (None, None) => Permit { shared, class, bytes: 0 },
            }
        }
    }

    /// Returns the bytes in flight in the class.
    #[cfg(test)]
    pub(crate) fn in_flight(&self, class: usize) -> u64 {
        self.0.lock().get(class.min(LAST_CLASS)).map_or(0, |class| class.in_flight_bytes)
    }

    /// Returns the most bytes that were in flight in the class at a time.
    #[cfg(test)]
    pub(crate) fn peak(&self, class: usize) -> u64 {
        self.0.lock().get(class.min(LAST_CLASS)).map_or(0, |class| class.peak_bytes)
    }
}

/// Bytes in flight; returned to their class when the permit is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    shared: Arc<Shared>,
    class: usize,
    bytes: u64,
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.shared.give_back(self.class, self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    fn poll<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_class_has_its_limit_and_no_other_feels_it() {
        let admission = Admission::new(100);
        let first = admission.try_enter(0, 60).unwrap();
        let second = admission.try_enter(0, 40).unwrap();
        assert!(admission.try_enter(0, 1).is_none());
        let other = admission.try_enter(usize::MAX, 100).unwrap();
        assert_eq!([0, 1, 65_535, 70_000].map(|class| admission.in_flight(class)), [100, 0, 100, 100]);
        drop((first, other));
        assert_eq!((admission.in_flight(0), admission.peak(0), admission.peak(9)), (40, 100, 0));
        assert!(admission.try_enter(0, 61).is_none());
        drop(second);
        assert_eq!((admission.in_flight(0), admission.in_flight(65_535)), (0, 0));
    }

    #[test]
    fn what_is_larger_than_the_limit_comes_in_alone() {
        let admission = Admission::new(10);
        let small = admission.try_enter(3, 1).unwrap();
        assert!(admission.try_enter(3, 1000).is_none());
        let mut waits = pin!(admission.enter(3, u64::MAX));
        assert!(poll(waits.as_mut()).is_none());
        drop(small);
        let large = poll(waits.as_mut()).unwrap();
        assert!(admission.try_enter(3, 1).is_none());
        drop(large);
        assert!(admission.try_enter(3, 10).is_some());
    }

    #[test]
    fn who_waits_comes_in_the_order_of_the_calls_and_is_not_passed() {
        let admission = Admission::new(100);
        let permit = admission.try_enter(1, 90).unwrap();
        let mut large = pin!(admission.enter(1, 50));
        let mut small = pin!(admission.enter(1, 10));
        // The small ones would fit.
        assert!(poll(small.as_mut()).is_none() && poll(large.as_mut()).is_none());
        assert!(admission.try_enter(1, 1).is_none());
        drop(permit);
        assert_eq!(admission.in_flight(1), 60);
        let small = poll(small.as_mut()).unwrap();
        let large = poll(large.as_mut()).unwrap();
        assert!(admission.try_enter(1, 40).is_some());
        drop((small, large));
        assert_eq!((admission.in_flight(1), admission.peak(1)), (0, 100));
    }

    #[test]
    fn who_goes_away_takes_nothing_with_him() {
        let admission = Admission::new(100);
        let permit = admission.try_enter(0, 100).unwrap();
        let (gone, mut stays, late) = (admission.enter(0, 80), pin!(admission.enter(0, 30)), admission.enter(0, 30));
        drop(gone);
        drop(permit);
        assert_eq!(admission.in_flight(0), 60);
        // Admitted, and dropped before it was polled.
        drop(late);
        assert_eq!(admission.in_flight(0), 30);
        drop(poll(stays.as_mut()).unwrap());
        assert_eq!(admission.in_flight(0), 0);
        // Many cancelled waiters cause no recursion, and do not keep others out.
        let permit = admission.try_enter(0, 100).unwrap();
        drop((0..100_000).map(|_| admission.enter(0, 100)).collect::<Vec<_>>());
        drop(permit);
        assert!(admission.try_enter(0, 100).is_some());
    }

    #[test]
    fn threads_never_have_more_than_the_limit_and_leave_nothing() {
        let admission = Admission::new(1000);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let admission = &admission;
                scope.spawn(move || {
                    let mut entered = 0;
                    for i in 0..5000 {
                        let mut enter = pin!(admission.enter(7, 1 + (i * 37 + thread) % 600));
                        // Every third gives up.
                        loop {
                            if i % 3 == 0 {
                                break;
                            }
                            if let Some(permit) = poll(enter.as_mut()) {
                                entered += 1;
                                drop(permit);
                                break;
                            }
                            std::thread::yield_now();
                        }
                    }
                    assert_eq!(entered, 3333);
                });
            }
        });
        assert!((600..=1000).contains(&admission.peak(7)));
        assert_eq!(admission.in_flight(7), 0);
    }
}
