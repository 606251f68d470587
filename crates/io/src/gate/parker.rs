//! Sleep of a thread at a gate, until it is called or a time comes.
//!
//! # Why
//! Exactly the intended thread must wake, and a wake-up that comes before the sleep must count.
//!
//! # How it works
//! One word per wait: 0, or 1 if its thread is called. The caller sets the word under the gate's lock
//! ([`Parker::call`]) and wakes the thread after releasing it ([`Parker::wake`]). The thread clears the word under the
//! lock ([`Parker::quiet`]) before it releases the lock to sleep, and the futex sleeps only while the word is 0. A thread
//! that sleeps elsewhere ([`Agent`](super::Agent)) has one word for all its calls, and a function that wakes it.
//!
//! # Limits
//! A wait allocates its word. A thread-local one would have a destructor, for whose registration a thread waits while
//! another one loads a library (`dlopen`). Under loom a condition variable without timeouts replaces the futex: the
//! models hold without them.
//!
//! # Example
//! ```text
//! parker.quiet(); drop(lock); parker.wait(until_ns); lock = gate.lock();
//! ```

#[cfg(all(plimsoll_loom, test))]
pub(super) use looms::*;
#[cfg(not(all(plimsoll_loom, test)))]
pub(super) use real::*;

/// Wakes the thread of an agent, wherever it sleeps.
pub(super) type Ring = Box<dyn Fn() + Send + Sync>;

#[cfg(not(all(plimsoll_loom, test)))]
mod real {
    use std::sync::atomic::AtomicU32;
    use std::sync::atomic::Ordering::{Acquire, Release};
    pub(in crate::gate) use std::sync::{Mutex, MutexGuard};

    use rustix::thread::futex;
    use rustix::time::Timespec;

    use super::Ring;
    use crate::sys::clock::until;
    use crate::sys::signals::Held;

    #[derive(Default)]
    pub(in crate::gate) struct Parker {
        word: AtomicU32,
        ring: Option<Ring>,
    }

    impl Parker {
        pub(in crate::gate) fn with_ring(ring: Ring) -> Parker {
            Parker { word: AtomicU32::new(0), ring: Some(ring) }
        }

        pub(in crate::gate) fn call(&self) {
            self.word.store(1, Release);
        }

        pub(in crate::gate) fn wake(&self) {
            match &self.ring {
                Some(ring) => ring(),
                // This cannot fail: the word exists.
                None => drop(futex::wake(&self.word, futex::Flags::PRIVATE, 1)),
            }
        }

        pub(in crate::gate) fn quiet(&self) {
            self.word.store(0, Release);
        }

        pub(in crate::gate) fn is_called(&self) -> bool {
            self.word.load(Acquire) != 0
        }

        /// Sleeps until the thread is called, or until `until_ns` on the system's monotonic clock. Signals that are
        /// held back come in meanwhile.
        // Not inlined: nothing here is dropped, so a handler that ends the thread can unwind from any instruction.
        #[inline(never)]
        pub(in crate::gate) fn wait(&self, until_ns: Option<u64>, held: Option<&Held>) {
            if self.is_called() {
                return;
            }
            let left = until_ns.map(|at_ns| {
                let (seconds, rest_ns) = until(at_ns);
                Timespec { tv_sec: i64::try_from(seconds).unwrap_or(i64::MAX), tv_nsec: rest_ns.into() }
            });
            if let Some(held) = held {
                held.let_in();
            }
            // Ended by a call, a signal or the timeout: the caller checks its call again.
            let _ = futex::wait(&self.word, futex::Flags::PRIVATE, 0, left.as_ref());
            if let Some(held) = held {
                held.hold();
            }
        }
    }
}

#[cfg(all(plimsoll_loom, test))]
mod looms {
    use loom::sync::Condvar;
    pub(in crate::gate) use loom::sync::{Mutex, MutexGuard};

    use crate::sys::signals::Held;

    #[derive(Default)]
    pub(in crate::gate) struct Parker {
        is_called: Mutex<bool>,
        changed: Condvar,
    }

    impl Parker {
        pub(in crate::gate) fn with_ring(_ring: super::Ring) -> Parker {
            Parker::default()
        }

        pub(in crate::gate) fn is_called(&self) -> bool {
            *self.is_called.lock().expect("not poisoned")
        }

        pub(in crate::gate) fn call(&self) {
            *self.is_called.lock().expect("not poisoned") = true;
        }

        pub(in crate::gate) fn wake(&self) {
            // As with a futex: under the lock, a sleeper has seen the earlier word.
            let _word = self.is_called.lock().expect("not poisoned");
            self.changed.notify_one();
        }

        pub(in crate::gate) fn quiet(&self) {
            *self.is_called.lock().expect("not poisoned") = false;
        }

        pub(in crate::gate) fn wait(&self, _until_ns: Option<u64>, _held: Option<&Held>) {
            let mut is_called = self.is_called.lock().expect("not poisoned");
            while !*is_called {
                is_called = self.changed.wait(is_called).expect("not poisoned");
            }
        }
    }
}
