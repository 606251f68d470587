//! How a [`CachedStore`] is set up.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::object_store::path::Path;
use ::object_store::{Extensions, OBJECT_STORE_COALESCE_DEFAULT, ObjectStore};

use super::store::Core;
use super::{Blocks, CachedStore, IoClass, ReadOp};

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

/// The hook that tells a read's class.
pub(super) type Classify = Box<dyn Fn(&Extensions, ReadOp, &Path) -> IoClass + Send + Sync>;

pub(super) struct Options {
    pub(super) block_bytes: u64,
    pub(super) fetch_bytes: u64,
    pub(super) gap_bytes: u64,
    pub(super) meta_ttl: Duration,
    pub(super) meta_objects: usize,
    pub(super) namespace: String,
    pub(super) classify: Classify,
}

/// Sets up a [`CachedStore`]; see [`CachedStore::builder`].
pub struct CachedStoreBuilder {
    inner: Arc<dyn ObjectStore>,
    cache: Arc<dyn Blocks>,
    options: Options,
}

impl CachedStoreBuilder {
    pub(super) fn new(inner: Arc<dyn ObjectStore>, cache: Arc<dyn Blocks>) -> CachedStoreBuilder {
        let options = Options {
            block_bytes: 16 << 10,
            fetch_bytes: 4 << 20,
            gap_bytes: OBJECT_STORE_COALESCE_DEFAULT,
            meta_ttl: Duration::ZERO,
            meta_objects: 1 << 16,
            namespace: inner.to_string(),
            classify: Box::new(|extensions, _, _| extensions.get().copied().unwrap_or_default()),
        };
        CachedStoreBuilder { inner, cache, options }
    }

    /// Bytes of a block: a power of two from 4 to 64 KiB; 16 KiB unless told. Stores of different block sizes may share
    /// a cache, but not each other's blocks.
    ///
    /// # Errors
    /// Any other size.
    pub fn block_bytes(mut self, bytes: u32) -> Result<CachedStoreBuilder, BadBlockSize> {
        if !bytes.is_power_of_two() || !(MIN_BLOCK_BYTES..=MAX_BLOCK_BYTES).contains(&bytes) {
            return Err(BadBlockSize(bytes));
        }
        self.options.block_bytes = u64::from(bytes);
        Ok(self)
    }

    /// Bytes of a range request at the most, 4 MiB unless told; rounded up to a whole number of blocks, at least one.
    #[must_use]
    pub fn fetch_bytes(mut self, bytes: u32) -> CachedStoreBuilder {
        self.options.fetch_bytes = u64::from(bytes.max(1));
        self
    }

    /// Missing blocks this far apart are fetched with one request, and what lies between them for nothing; 1 MiB unless
    /// told, as `object_store` does it. 0: only neighbours.
    #[must_use]
    pub fn gap_bytes(mut self, bytes: u32) -> CachedStoreBuilder {
        self.options.gap_bytes = u64::from(bytes);
        self
    }

    /// How long an object's metadata are trusted. Zero unless told: each read asks. See the module's documentation.
    #[must_use]
    pub fn meta_ttl(mut self, ttl: Duration) -> CachedStoreBuilder {
        self.options.meta_ttl = ttl;
        self
    }

    /// Of how many objects metadata are remembered, some 300 bytes each: 65,536 unless told, at least 1.
    #[must_use]
    pub fn meta_objects(mut self, objects: usize) -> CachedStoreBuilder {
        self.options.meta_objects = objects.max(1);
        self
    }

    /// What tells this store from others that share the cache; its `Display` unless told. Must name bucket or root, and
    /// stay the same from one run of the program to the next for the cache to be of use then.
    #[must_use]
    pub fn namespace(mut self, name: impl Into<String>) -> CachedStoreBuilder {
        self.options.namespace = name.into();
        self
    }

    /// Tells the class of a read by the caller's own tags; unless told, an [`IoClass`] among the extensions counts.
    #[must_use]
    pub fn classify(
        mut self,
        hook: impl Fn(&Extensions, ReadOp, &Path) -> IoClass + Send + Sync + 'static,
    ) -> CachedStoreBuilder {
        self.options.classify = Box::new(hook);
        self
    }

    /// The store.
    #[must_use]
    pub fn build(mut self) -> CachedStore {
        let options = &mut self.options;
        options.fetch_bytes = options.fetch_bytes.next_multiple_of(options.block_bytes);
        CachedStore::new(Core::new(self.inner, self.cache, self.options))
    }
}
