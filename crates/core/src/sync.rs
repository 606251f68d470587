//! The atomics that shards share: the standard ones, or loom's in tests that explore interleavings.

#[cfg(not(all(plimsoll_loom, test)))]
pub(crate) use core::sync::atomic::{AtomicU64, Ordering};
#[cfg(all(plimsoll_loom, test))]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
