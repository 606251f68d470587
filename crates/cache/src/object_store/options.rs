//! The options of a [`super::CachedStore`], and their defaults.

use std::fmt;
use std::time::Duration;

use ::object_store::path::Path;
use ::object_store::{Extensions, OBJECT_STORE_COALESCE_DEFAULT};

use super::blocks::{IoClass, ReadOp};

const MIN_BLOCK_BYTES: u32 = 4 << 10;
const MAX_BLOCK_BYTES: u32 = 64 << 10;

/// A block size that is not a power of two from 4 to 64 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadBlockSize(pub u32);

impl fmt::Display for BadBlockSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "blocks of {} bytes: take a power of two from {MIN_BLOCK_BYTES} to {MAX_BLOCK_BYTES}", self.0)
    }
}

impl std::error::Error for BadBlockSize {}

/// The hook that chooses a read's class.
pub(super) type Classify = Box<dyn Fn(&Extensions, ReadOp, &Path) -> IoClass + Send + Sync>;

/// The hook that chooses which puts are kept.
pub(super) type KeepPut = Box<dyn Fn(&Extensions, &Path) -> bool + Send + Sync>;

/// The settings of a [`super::CachedStore`]; see [`super::CachedStoreBuilder`].
pub(super) struct Options {
    pub(super) block_bytes: u64,
    pub(super) fetch_bytes: u64,
    pub(super) gap_bytes: u64,
    pub(super) meta_ttl: Duration,
    pub(super) stale_for: Duration,
    pub(super) meta_objects: usize,
    pub(super) namespace: String,
    pub(super) classify: Classify,
    pub(super) keep_put: KeepPut,
}

impl Options {
    /// Returns the defaults for the store that calls itself `namespace`.
    pub(super) fn new(namespace: String) -> Options {
        Options {
            block_bytes: 16 << 10,
            fetch_bytes: 4 << 20,
            gap_bytes: OBJECT_STORE_COALESCE_DEFAULT,
            meta_ttl: Duration::ZERO,
            stale_for: Duration::ZERO,
            meta_objects: 1 << 16,
            namespace,
            classify: Box::new(|extensions, _, _| extensions.get().copied().unwrap_or_default()),
            keep_put: Box::new(|_, _| false),
        }
    }

    /// Sets the block size.
    ///
    /// # Errors
    /// A size that is not a power of two from 4 to 64 KiB.
    pub(super) fn set_block_bytes(&mut self, bytes: u32) -> Result<(), BadBlockSize> {
        if !bytes.is_power_of_two() || !(MIN_BLOCK_BYTES..=MAX_BLOCK_BYTES).contains(&bytes) {
            return Err(BadBlockSize(bytes));
        }
        self.block_bytes = u64::from(bytes);
        Ok(())
    }
}
