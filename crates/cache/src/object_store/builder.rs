//! How a [`CachedStore`] is set up.

use std::sync::Arc;
use std::time::Duration;

use ::object_store::path::Path;
use ::object_store::{Extensions, ObjectStore};

use super::blocks::{Blocks, IoClass, ReadOp};
use super::options::{BadBlockSize, Options};
use super::shared::Core;
use super::store::CachedStore;

/// Sets up a [`CachedStore`]; see [`CachedStore::builder`].
pub struct CachedStoreBuilder {
    inner: Arc<dyn ObjectStore>,
    cache: Arc<dyn Blocks>,
    options: Options,
}

impl CachedStore {
    /// Begins to set up: reads of `inner` go through `cache`.
    #[must_use]
    pub fn builder(inner: Arc<dyn ObjectStore>, cache: Arc<dyn Blocks>) -> CachedStoreBuilder {
        let options = Options::new(inner.to_string());
        CachedStoreBuilder { inner, cache, options }
    }
}

impl CachedStoreBuilder {
    /// Bytes of a block: a power of two from 4 to 64 KiB; 16 KiB unless told. Stores of different block sizes may share
    /// a cache, but not each other's blocks.
    ///
    /// # Errors
    /// Any other size.
    pub fn block_bytes(mut self, bytes: u32) -> Result<CachedStoreBuilder, BadBlockSize> {
        self.options.set_block_bytes(bytes)?;
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
