//! Fetches under way: a map of shared futures by block key.
//!
//! # Limits
//! The map's lock is never held while a shared future could be dropped: its end takes the same lock.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard};

use ::object_store::Error;
use bytes::Bytes;
use futures_util::future::{BoxFuture, Shared, WeakShared};

use crate::sync::lock;

/// Why a fetch failed. Errors cannot be cloned, so the first waiter takes the error.
pub(super) enum Failure {
    Changed,
    Origin(Mutex<Option<Error>>),
}

pub(super) type Fetched = Result<Bytes, Arc<Failure>>;
pub(super) type Fetching = Shared<BoxFuture<'static, Fetched>>;

/// Fetches under way, by block key.
#[derive(Default)]
pub(super) struct InFlight(Mutex<Flying>);

#[derive(Default)]
pub(super) struct Flying {
    pub(super) next_id: u64,
    pub(super) blocks: HashMap<Vec<u8>, Flight>,
}

pub(super) struct Flight {
    pub(super) id: u64,
    pub(super) first_block: u64,
    pub(super) fetching: WeakShared<BoxFuture<'static, Fetched>>,
    pub(super) admit: Arc<AtomicBool>,
}

impl InFlight {
    pub(super) fn lock(&self) -> MutexGuard<'_, Flying> {
        lock(&self.0)
    }
}
