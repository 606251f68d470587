//! The atomics that shards share: the standard ones, or loom's in tests that explore interleavings.

#[cfg(not(all(loom, test)))]
pub(crate) use core::sync::atomic::{AtomicU64, Ordering};
#[cfg(all(loom, test))]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
