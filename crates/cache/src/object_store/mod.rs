//! Any object store, read through the cache: an `object_store::ObjectStore` around another one.
//!
//! # Why
//! Databases on object stores read small parts of large objects, again and again, and pay a round trip for each. A
//! cache of whole objects, or of parts of megabytes, reads and stores far more than was asked for; this one keeps
//! blocks of 4 to 64 KiB.
//!
//! # How it works
//! A read is cut into blocks. Blocks in the cache ([`Blocks`]) are taken from there. Missing blocks that lie close
//! together are fetched with one range request of up to 4 MiB, and inserted into the cache while the reader already has
//! them. A block that another reader is fetching is not fetched again: both wait for the same request, and each drives
//! it when it is polled, so a reader that stops reading holds up no other. Until the cache has written a block, which
//! may take long on a disk that hangs, readers have it from memory. `get_ranges` is one such read for all of its
//! ranges. Answers are always streams, so that code that limits or schedules reads sees all of them.
//!
//! The cache never fails a read: a block that it cannot return, for whatever reason, is fetched.
//!
//! Each read has an [`IoClass`]: the class in which its hits are read, whether cached blocks are used at all, and
//! whether missing blocks are inserted. It comes from the `Extensions` of `GetOptions`, or from a hook
//! ([`CachedStoreBuilder::classify`]) that knows a program's own tags. `get_ranges` has no options: [`with_extensions`]
//! provides extensions to the reads of a future.
//!
//! A written object is cached when it is first read, or at once, if [`CachedStoreBuilder::keep_puts`] says so.
//! [`CachedStore::warm`] brings an object into the cache, and keeps it there if it is called now and then.
//!
//! # What a reader sees when objects change
//! A block's key contains everything the store reports of an object: location, etag, version, size, time of
//! modification. A changed object has other keys, so its old blocks are never taken for new ones. What remains is to
//! notice the change:
//!
//! * By default (`meta_ttl` zero) each read first asks the store for the object's metadata. A read that begins after a
//!   change has ended sees the change, even one by another program.
//! * With a `meta_ttl`, metadata are trusted for that time. A change made elsewhere, a deletion too, may go unnoticed
//!   for as long. If objects never change (SSTs, Parquet files), say so ([`CachedStoreBuilder::immutable`]).
//! * With [`CachedStoreBuilder::stale_while_down`], cached blocks are also read while the store does not answer.
//! * A put, multipart upload, copy, rename or delete through this wrapper is seen by every read that begins after it
//!   has ended, whatever the `meta_ttl`. It also removes the old blocks from the cache, for objects of up to 65,536
//!   blocks; blocks of larger ones age out.
//! * Reads with a condition (`if_match` ...) always ask the store, which decides; reads of a named version bypass the
//!   cache.
//! * An answer is never a mixture of two states of an object. If the object changes while the answer is being read, the
//!   read starts over if nothing was handed out yet, and otherwise fails with [`::object_store::Error::Generic`].
//!
//! A store without etags and versions, whose clock does not distinguish two changes of equal size, can hide a change
//! from this wrapper as from any HTTP cache; so can a local file system that gives a new file the inode number, time
//! (in microseconds) and size of the old one.
//!
//! # Limits
//! A cold read costs one more request than without the cache, for the metadata. A fetch for several readers has the
//! class of the first one: origins bill by the request, so it is not repeated in a higher class. Multipart uploads and
//! copies are not kept, only invalidated.
//!
//! # Example
//! ```
//! use std::sync::Arc;
//! use object_store::{ObjectStore, ObjectStoreExt, memory::InMemory};
//! use plimsoll_cache::object_store::{Blocks, CachedStore, Writing};
//! # use plimsoll_cache::{Block, stats::MissReason};
//! # use futures_util::future::{BoxFuture, FutureExt, ready};
//! # struct Nothing;
//! # impl Blocks for Nothing {
//! #     fn get<'a>(&'a self, _: &'a [u8], _: Option<plimsoll::Class>) -> BoxFuture<'a, Result<Block, MissReason>> {
//! #         ready(Err(MissReason::Absent)).boxed()
//! #     }
//! #     fn touch(&self, _: &[u8]) -> bool { false }
//! #     fn insert(&self, _: &[u8], _: Block, _: Option<plimsoll::Class>, _: Writing) {}
//! #     fn remove(&self, _: &[u8]) {}
//! # }
//! # let cache: Arc<dyn Blocks> = Arc::new(Nothing);
//! let store = CachedStore::builder(Arc::new(InMemory::new()), cache).block_bytes(32 << 10)?.build();
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! store.put(&"table/7".into(), "sea water".into()).await?;
//! assert_eq!(store.get_range(&"table/7".into(), 4..9).await?, "water");
//! # Ok::<(), object_store::Error>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod blocks;
mod builder;
mod fetch;
mod flying;
mod known;
mod options;
mod scope;
mod shared;
mod stats;
mod store;
mod writes;

pub use blocks::{Blocks, IoClass, ReadOp};
pub use builder::CachedStoreBuilder;
pub use flying::Writing;
pub use options::BadBlockSize;
pub use scope::with_extensions;
pub use stats::CachedStoreStats;
pub use store::CachedStore;

/// Name of the store in errors.
const NAME: &str = "CachedStore";
