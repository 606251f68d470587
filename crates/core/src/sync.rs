//! The atomics that shards share: the standard ones, or loom's where their interleavings are explored.

#[cfg(not(all(loom, test)))]
pub(crate) use core::sync::atomic::{AtomicU64, Ordering};
#[cfg(all(loom, test))]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
