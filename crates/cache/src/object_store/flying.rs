//! Fetches under way, a map of shared futures by block key, and the blocks that are being written into the cache.
//!
//! # How it works
//! A fetch enters its blocks as writes before it takes them out of the map of fetches, and the cache ends a write when
//! the block can be read. So a reader that holds the lock finds each block of a fetch in one of the two, or in the
//! cache.
//!
//! # Limits
//! The lock is never held while a shared future could be dropped: its end takes the same lock. A block stays in memory
//! while it is written: at most as many bytes as the cache admits at a time.
//!
//! # Example
//! A disk hangs with the write of a block that was just fetched. Readers get the block from memory until the cache
//! gives the write up; the next one fetches it.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard};

use ::object_store::Error;
use bytes::Bytes;
use futures_util::future::{BoxFuture, Shared, WeakShared};

use super::NAME;
use crate::block::Block;
use crate::sync::lock;

/// Why a fetch failed.
pub(super) enum Failure {
    Changed,
    Origin(Mutex<Failed>),
}

/// The store's error. Errors cannot be cloned, so the first waiter takes the error, and leaves a copy of its text.
pub(super) struct Failed {
    error: Error,
    is_copy: bool,
}

impl Failed {
    pub(super) fn new(error: Error) -> Mutex<Failed> {
        Mutex::new(Failed { error, is_copy: false })
    }

    /// Takes the error, if nobody has.
    pub(super) fn take(&mut self) -> Option<Error> {
        let copy = self.copy();
        (!std::mem::replace(&mut self.is_copy, true)).then(|| std::mem::replace(&mut self.error, copy))
    }

    /// Returns an error of the same kind with the same text.
    pub(super) fn copy(&self) -> Error {
        match &self.error {
            Error::Generic { store, source } => Error::Generic { store, source: source.to_string().into() },
            Error::NotFound { path, source } => {
                Error::NotFound { path: path.clone(), source: source.to_string().into() }
            }
            Error::PermissionDenied { path, source } => {
                Error::PermissionDenied { path: path.clone(), source: source.to_string().into() }
            }
            Error::Unauthenticated { path, source } => {
                Error::Unauthenticated { path: path.clone(), source: source.to_string().into() }
            }
            other => Error::Generic { store: NAME, source: other.to_string().into() },
        }
    }
}

pub(super) type Fetched = Result<Bytes, Arc<Failure>>;
pub(super) type Fetching = Shared<BoxFuture<'static, Fetched>>;

/// Fetches and writes under way, by block key.
#[derive(Clone, Default)]
pub(super) struct InFlight(Arc<Mutex<Flying>>);

#[derive(Default)]
pub(super) struct Flying {
    next_id: u64,
    /// Fetches.
    pub(super) blocks: HashMap<Vec<u8>, Flight>,
    /// Blocks that are being written, with the number of the newest write.
    writes: HashMap<Vec<u8>, (u64, Block)>,
}

pub(super) struct Flight {
    pub(super) id: u64,
    pub(super) first_block: u64,
    pub(super) fetching: WeakShared<BoxFuture<'static, Fetched>>,
    pub(super) admit: Arc<AtomicBool>,
}

/// A write under way. Until it is dropped, readers get the block from it instead of fetching it: drop it when the cache
/// returns the block, or when it is known that it will not.
pub struct Writing {
    in_flight: InFlight,
    key: Vec<u8>,
    id: u64,
}

impl InFlight {
    pub(super) fn lock(&self) -> MutexGuard<'_, Flying> {
        lock(&self.0)
    }

    /// Gives `block` to readers until the returned value is dropped, or a later write of `key` begins.
    pub(super) fn write(&self, key: &[u8], block: &Block) -> Writing {
        let mut flying = self.lock();
        let id = flying.take_id();
        flying.writes.insert(key.to_vec(), (id, block.clone()));
        Writing { in_flight: self.clone(), key: key.to_vec(), id }
    }
}

impl Flying {
    /// Returns a number that no fetch and no write has.
    pub(super) fn take_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Returns the block that is being written under `key`.
    pub(super) fn written(&self, key: &[u8]) -> Option<&Block> {
        self.writes.get(key).map(|(_, block)| block)
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        let mut flying = self.in_flight.lock();
        if flying.writes.get(&self.key).is_some_and(|(id, _)| *id == self.id) {
            flying.writes.remove(&self.key);
        }
    }
}
