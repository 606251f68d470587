//! Sets up a [`CachedStore`].

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
    /// Returns a builder of a store whose reads of `inner` go through `cache`.
    #[must_use]
    pub fn builder(inner: Arc<dyn ObjectStore>, cache: Arc<dyn Blocks>) -> CachedStoreBuilder {
        let options = Options::new(inner.to_string());
        CachedStoreBuilder { inner, cache, options }
    }
}

impl CachedStoreBuilder {
    /// Sets the block size in bytes: a power of two from 4 to 64 KiB; 16 KiB by default. Stores of different block
    /// sizes may share a cache, but not each other's blocks.
    ///
    /// # Errors
    /// Any other size.
    pub fn block_bytes(mut self, bytes: u32) -> Result<CachedStoreBuilder, BadBlockSize> {
        self.options.set_block_bytes(bytes)?;
        Ok(self)
    }

    /// Sets the longest range request in bytes, 4 MiB by default; rounded up to whole blocks, at least one.
    #[must_use]
    pub fn fetch_bytes(mut self, bytes: u32) -> CachedStoreBuilder {
        self.options.fetch_bytes = u64::from(bytes.max(1));
        self
    }

    /// Sets the gap in bytes up to which missing blocks are fetched with one request; what lies between them is
    /// fetched and discarded. 1 MiB by default, as in `object_store`; 0: only adjacent blocks.
    #[must_use]
    pub fn gap_bytes(mut self, bytes: u32) -> CachedStoreBuilder {
        self.options.gap_bytes = u64::from(bytes);
        self
    }

    /// Sets how long an object's metadata are trusted. Zero by default: each read asks. See the module's documentation.
    #[must_use]
    pub fn meta_ttl(mut self, ttl: Duration) -> CachedStoreBuilder {
        self.options.meta_ttl = ttl;
        self
    }

    /// Declares that objects never change, as SSTs and Parquet files do: each object's metadata are asked for once. The
    /// same as a `meta_ttl` of `Duration::MAX`.
    #[must_use]
    pub fn immutable(self) -> CachedStoreBuilder {
        self.meta_ttl(Duration::MAX)
    }

    /// Sets how long beyond `meta_ttl` known metadata serve reads while the store does not answer; zero by default:
    /// such reads fail. Blocks that are not cached still cannot be read, and reads with a condition still fail. A store
    /// that did not answer is not asked for metadata again for a second, for objects that are known.
    #[must_use]
    pub fn stale_while_down(mut self, longest: Duration) -> CachedStoreBuilder {
        self.options.stale_for = longest;
        self
    }

    /// Sets the number of objects whose metadata are kept, about 300 bytes each: 65,536 by default, at least 1.
    #[must_use]
    pub fn meta_objects(mut self, objects: usize) -> CachedStoreBuilder {
        self.options.meta_objects = objects.max(1);
        self
    }

    /// Sets the name that distinguishes this store from others in the same cache; by default its `Display`. It must
    /// name bucket or root. Blocks survive a restart of the program only if the name stays the same.
    #[must_use]
    pub fn namespace(mut self, name: impl Into<String>) -> CachedStoreBuilder {
        self.options.namespace = name.into();
        self
    }

    /// Sets a hook that chooses the class of a read by the caller's own tags. By default, an [`IoClass`] among the
    /// extensions counts.
    #[must_use]
    pub fn classify(
        mut self,
        hook: impl Fn(&Extensions, ReadOp, &Path) -> IoClass + Send + Sync + 'static,
    ) -> CachedStoreBuilder {
        self.options.classify = Box::new(hook);
        self
    }

    /// Sets a hook that says which objects are kept in the cache when they are put, by the extensions of `PutOptions`
    /// and the location: those that will soon be read, such as a database's new SSTs, but not its log. By default none
    /// are. Such a put asks for the object's metadata when it has ended, and the first read within `meta_ttl` need not.
    /// Objects of stores without etags, of multipart uploads and of copies are not kept, nor blocks that the cache
    /// refuses: as first uses, or because too many are being written.
    #[must_use]
    pub fn keep_puts(
        mut self,
        hook: impl Fn(&Extensions, &Path) -> bool + Send + Sync + 'static,
    ) -> CachedStoreBuilder {
        self.options.keep_put = Box::new(hook);
        self
    }

    /// Builds the store.
    #[must_use]
    pub fn build(mut self) -> CachedStore {
        let options = &mut self.options;
        options.fetch_bytes = options.fetch_bytes.next_multiple_of(options.block_bytes);
        CachedStore::new(Core::new(self.inner, self.cache, self.options))
    }
}
