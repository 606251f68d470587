//! Keys and values of a program's own types.
//!
//! # Why
//! A program has its own types, and the cache stores bytes. Without this module every program writes the code between
//! the two, and only some check that a block belongs to the key that was asked for.
//!
//! # How it works
//! [`Code`] turns a key or a value into bytes and back. A block begins with its key, so a look-up returns a value only
//! for the very key it was inserted under: two keys with one hash (see [`KeyHash`](crate::KeyHash)) replace each other,
//! but are never taken for each other. The names are those of other caches with typed keys: `insert`, `get`, `remove`,
//! `get_or_fetch`.
//!
//! # Limits
//! A block is as long as its key, its value and 4 bytes. If a type's encoding changes, [`Code::decode`] must refuse the
//! older one; its blocks are misses then. Memory holds encoded values, which each look-up decodes.
//!
//! # Example
//! ```
//! # fn block_on<T>(future: impl Future<Output = T>) -> T {
//! #     let mut future = std::pin::pin!(future);
//! #     let mut context = std::task::Context::from_waker(std::task::Waker::noop());
//! #     loop {
//! #         if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut context) { return value }
//! #         std::thread::yield_now();
//! #     }
//! # }
//! use plimsoll_cache::{BlockCache, TypedCache};
//! # let directory = tempfile::tempdir()?;
//! # let directory = directory.path();
//! block_on(async {
//!     let cache: TypedCache<u64, String> = BlockCache::open_or_create(directory, 64 << 20).await?.into();
//!     cache.insert(&7, &"seven".to_owned()).await?;
//!     assert_eq!(cache.get(&7).await?.as_deref(), Some("seven"));
//!     let fetched = cache.get_or_fetch(&8, async || Ok::<_, std::io::Error>("eight".to_owned())).await;
//!     assert_eq!(fetched.unwrap(), "eight");
//!     cache.into_inner().close().await
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::marker::PhantomData;
use std::sync::Arc;

use crate::cache::BlockCache;
use crate::error::CacheError;
use crate::fetch::FetchError;
use crate::insert::Inserted;
use crate::lookup::{GetOptions, Lookup};

/// A type that a cache can store.
pub trait Code: Sized {
    /// Appends the value's bytes. Equal keys must have equal bytes.
    fn encode(&self, bytes: &mut Vec<u8>);

    /// Returns the value that has these bytes, or `None` if none has.
    fn decode(bytes: &[u8]) -> Option<Self>;
}

impl Code for Vec<u8> {
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(self);
    }

    fn decode(bytes: &[u8]) -> Option<Vec<u8>> {
        Some(bytes.to_vec())
    }
}

impl Code for String {
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(self.as_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<String> {
        Some(std::str::from_utf8(bytes).ok()?.to_owned())
    }
}

impl Code for u64 {
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.to_le_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<u64> {
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }
}

/// A cache with keys and values of these types. See the module's documentation in the source.
pub struct TypedCache<K, V> {
    cache: BlockCache,
    types: PhantomData<fn(K) -> V>,
}

impl<K, V> From<BlockCache> for TypedCache<K, V> {
    /// Blocks that `cache` has already, under keys of the same bytes, are misses unless a typed cache inserted them.
    fn from(cache: BlockCache) -> TypedCache<K, V> {
        TypedCache { cache, types: PhantomData }
    }
}

impl<K: Code, V: Code> TypedCache<K, V> {
    /// Returns the value of `key`, if it is cached.
    ///
    /// # Errors
    /// As [`BlockCache::get`], for the encoded key.
    pub async fn get(&self, key: &K) -> Result<Option<V>, CacheError> {
        let key = encoded(key);
        match self.cache.get(&key).await? {
            Lookup::Hit(block) => Ok(value_in(&block, &key)),
            Lookup::Miss(_) => Ok(None),
        }
    }

    /// Stores `value` under `key`, as [`BlockCache::insert`] does.
    ///
    /// # Errors
    /// As [`BlockCache::insert`], for the encoded key, and the value encoded with its key.
    pub async fn insert(&self, key: &K, value: &V) -> Result<Inserted, CacheError> {
        let key = encoded(key);
        self.cache.insert(&key, &block_of(&key, value)).await
    }

    /// Removes `key`. Returns whether it was cached.
    ///
    /// # Errors
    /// As [`BlockCache::remove`], for the encoded key.
    pub async fn remove(&self, key: &K) -> Result<bool, CacheError> {
        self.cache.remove(&encoded(key)).await
    }

    /// Returns the value of `key`. If it is not cached, calls `fetch` once for all concurrent callers, and begins to
    /// insert the result; see [`BlockCache::get_or_fetch`]. Where the cache has a block of another key with the same
    /// hash, each caller fetches for itself.
    ///
    /// # Errors
    /// As [`BlockCache::get_or_fetch`].
    pub async fn get_or_fetch<E, F>(&self, key: &K, mut fetch: impl FnMut() -> F) -> Result<V, FetchError<E>>
    where
        E: Send + Sync + 'static,
        F: Future<Output = Result<V, E>>,
    {
        let key = encoded(key);
        let fetch_block = |_| {
            let value = fetch();
            let key = &key;
            async move { Ok(block_of(key, &value.await?)) }
        };
        let block = self.cache.get_or_fetch(&key, GetOptions::default(), fetch_block).await?.into_block();
        if let Some(value) = value_in(&block, &key) {
            return Ok(value);
        }

        // The block is that of another key with this hash, or of an older encoding. The origin has answered, whether
        // the cache takes the value or not.
        let value = fetch().await.map_err(|error| FetchError::Origin(Arc::new(error)))?;
        let _ = self.cache.insert(&key, &block_of(&key, &value)).await;
        Ok(value)
    }
}

impl<K, V> TypedCache<K, V> {
    /// Returns the cache of bytes: for its statistics, disks and checkpoints.
    #[must_use]
    pub fn inner(&self) -> &BlockCache {
        &self.cache
    }

    /// Returns the cache of bytes, to close it.
    #[must_use]
    pub fn into_inner(self) -> BlockCache {
        self.cache
    }
}

fn encoded(key: &impl Code) -> Vec<u8> {
    let mut bytes = Vec::new();
    key.encode(&mut bytes);
    bytes
}

/// Returns the block of a key and a value: the length of the key, the key, the value.
fn block_of(key: &[u8], value: &impl Code) -> Vec<u8> {
    // Longer keys are refused by the cache.
    let len = u32::try_from(key.len()).unwrap_or(u32::MAX);
    let mut bytes = Vec::with_capacity(4 + key.len());
    bytes.extend_from_slice(&len.to_le_bytes());
    bytes.extend_from_slice(key);
    value.encode(&mut bytes);
    bytes
}

/// Returns the value in a block, if it is that of `key`.
fn value_in<V: Code>(block: &[u8], key: &[u8]) -> Option<V> {
    let (len, rest) = block.split_first_chunk()?;
    let (found, value) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*len)).ok()?)?;
    if found == key { V::decode(value) } else { None }
}
