//! Wakes a sleeping backend, without a system call if it is awake.
//!
//! # Why
//! Other threads send work to a shard. If the shard sleeps, they must wake it from the kernel; if it is awake (the busy
//! case), a system call per message would be waste. A wake-up that arrives just before the sleep must not be lost.
//!
//! # How it works
//! One word with three states: awake, sleeping, rung. A ringer swaps in `rung` and writes to the eventfd only if the
//! state was `sleeping`. The owner moves from awake to sleeping with a compare-and-swap, which fails if a ring came in
//! between; it then does not sleep. All accesses are sequentially consistent: writes before a ring are visible to the
//! owner after it has seen the ring. A second flag distinguishes a wake-up by a user ([`Wake::wake`]) from a worker
//! thread's report of a completion.
//!
//! # Limits
//! One owner. A write to the eventfd may arrive after the owner has woken by itself: the next sleep is then short.
//!
//! # Example
//! Two rings while the owner is awake: state rung, no system call. The owner tries to sleep: the swap fails; the owner
//! checks for work again, finds none, sleeps (state sleeping, `ppoll`). A third ring: state rung, one `write`; `ppoll`
//! returns.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::SeqCst};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::Wake;
use crate::sys::clock;

const AWAKE: u8 = 0;
const SLEEPING: u8 = 1;
const RUNG: u8 = 2;

/// The doorbell of one backend; see the module's documentation.
#[derive(Debug)]
pub(crate) struct Doorbell {
    state: AtomicU8,
    woken: AtomicBool,
    event: OwnedFd,
}

impl Doorbell {
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        // Not O_NONBLOCK: io_uring of older kernels would then answer EAGAIN instead of waiting for the event.
        let event = eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Arc::new(Self { state: AtomicU8::new(AWAKE), woken: AtomicBool::new(false), event }))
    }

    /// Tells the owner, from any thread, that there is work.
    pub(crate) fn ring(&self) {
        if self.state.swap(RUNG, SeqCst) == SLEEPING {
            self.signal();
        }
    }

    /// Makes the eventfd readable in any state.
    pub(crate) fn signal(&self) {
        // The write blocks only at a count of u64::MAX - 1, which signals reach after centuries.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    /// Returns whether [`Wake::wake`] was called since the last call.
    pub(crate) fn take_woken(&self) -> bool {
        self.woken.swap(false, SeqCst)
    }

    /// Marks the owner as about to sleep. Returns `false` if a ring came meanwhile: then check for work again.
    pub(crate) fn begin_sleep(&self) -> bool {
        if self.state.compare_exchange(AWAKE, SLEEPING, SeqCst, SeqCst).is_ok() {
            return true;
        }
        self.state.swap(AWAKE, SeqCst);
        false
    }

    pub(crate) fn end_sleep(&self) {
        self.state.swap(AWAKE, SeqCst);
    }

    /// Returns the eventfd, for backends whose kernel interface watches it.
    pub(crate) fn raw_fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// Sleeps until `enough()` returns true after a ring, a user's wake-up, or the deadline.
    ///
    /// # Errors
    /// The error of `ppoll`, except interruptions.
    pub(crate) fn wait_for(&self, deadline_ns: Option<u64>, mut enough: impl FnMut() -> bool) -> io::Result<()> {
        loop {
            if self.take_woken() || enough() || deadline_ns.is_some_and(|deadline_ns| clock::now_ns() >= deadline_ns) {
                return Ok(());
            }
            self.sleep(deadline_ns)?;
        }
    }

    /// Sleeps once: until rung, signalled, interrupted, or the deadline.
    ///
    /// # Errors
    /// The error of `ppoll`, except interruptions.
    pub(crate) fn sleep(&self, deadline_ns: Option<u64>) -> io::Result<()> {
        if !self.begin_sleep() {
            return Ok(());
        }

        let timeout = deadline_ns.map(|deadline_ns| {
            let (tv_sec, tv_nsec) = clock::until(deadline_ns);
            Timespec { tv_sec: i64::try_from(tv_sec).unwrap_or(i64::MAX), tv_nsec: i64::from(tv_nsec) }
        });

        let mut fds = [PollFd::from_borrowed_fd(self.event.as_fd(), PollFlags::IN)];
        let polled = poll(&mut fds, timeout.as_ref());
        self.end_sleep();

        match polled {
            Ok(0) | Err(rustix::io::Errno::INTR) => Ok(()),
            Ok(_) => {
                // Clear the counter. It is readable and this is the only reader, so the read does not block.
                let _ = rustix::io::read(&self.event, &mut [0_u8; 8]);
                Ok(())
            }
            Err(errno) => Err(errno.into()),
        }
    }
}

impl Wake for Doorbell {
    fn wake(&self) {
        self.woken.store(true, SeqCst);
        self.ring();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_before_the_sleep_is_not_lost() -> io::Result<()> {
        let bell = Doorbell::new()?;
        bell.ring();
        bell.ring();
        bell.sleep(None)?;
        bell.wake();
        bell.wait_for(None, || false)?;
        assert!(!bell.take_woken());
        Ok(())
    }

    #[test]
    fn ringing_an_awake_owner_makes_no_event() -> io::Result<()> {
        let bell = Doorbell::new()?;
        bell.wake();
        let mut fds = [PollFd::from_borrowed_fd(bell.event.as_fd(), PollFlags::IN)];
        assert_eq!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0));
        Ok(())
    }

    #[test]
    fn a_deadline_ends_the_wait() -> io::Result<()> {
        let bell = Doorbell::new()?;
        let deadline_ns = clock::now_ns() + 5_000_000;
        bell.wait_for(Some(deadline_ns), || false)?;
        assert!(clock::now_ns() >= deadline_ns);
        Ok(())
    }
}
