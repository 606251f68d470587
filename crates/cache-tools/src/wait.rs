//! Waits for a future on a plain thread.
//!
//! # Why
//! Futures of the cache need no runtime: any thread can poll them, and the commands have threads.
//!
//! # How it works
//! The thread parks until the future's waker unparks it.
//!
//! # Limits
//! One future at a time: join several futures first.
//!
//! # Example
//! ```
//! use plimsoll_cache_tools::wait::block_on;
//! assert_eq!(block_on(async { 7 }), 7);
//! ```

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls `future` on this thread until it is ready.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
