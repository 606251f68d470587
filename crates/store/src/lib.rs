//! An object store over a local directory, whose reads and writes are scheduled, each in its class.
//!
//! # Why
//! Databases on object stores (SlateDB, DataFusion, Lance) do all their I/O through [`object_store::ObjectStore`]. On a
//! local disk that is `LocalFileSystem`: every call goes to the page cache at once, so a compaction delays the commits
//! beside it. [`ScheduledStore`] keeps the same directory with the same names, and gives each call its priority class.
//!
//! # How it works
//! * **Classes.** A rule ([`ScheduledStore::with_rule`]) maps the operation, the path and the extensions of the options
//!   to a class. Without a rule, a [`plimsoll::Class`] among the extensions counts, else the default class.
//! * **Gets** open the object, unless it is one of the 64 that were read last, check the conditions, and read its range
//!   with direct I/O. The library widens the range to whole blocks; the result is a slice of that memory. A result is
//!   always a stream of parts of at most 1 MiB, two of them in flight, so that every byte is scheduled.
//! * **Puts** copy the payload into aligned memory and write it to a temporary file beside the object, the last block
//!   padded. The file then gets its true length, is synced, is renamed into place (by `PutMode::Create`, only if nothing
//!   is there), and its directory is synced. If the program dies at any time, an object exists wholly or not at all.
//! * **Uploads** in parts do the same. Parts may have any length: bytes that do not fill a block are written with the
//!   next part.
//! * **Renames** are one step, also those that replace nothing. A copy is another name of the file, as in
//!   `LocalFileSystem`. Both are synced.
//! * **The rest** (list, head, delete) is `LocalFileSystem`'s. Each store reads the objects of the other.
//!
//! Temporary files are called `.plimsoll-store#` and a number, which `LocalFileSystem` hides from lists too. The writer
//! of such a file holds a lock (`flock`) on it. [`ScheduledStore::open`] removes those that are not locked, which a
//! dead program has left. Other files are never removed.
//!
//! # Limits
//! * Listing, opening, linking and syncing of directories are not scheduled; on Tokio they run on its blocking threads,
//!   elsewhere on the calling thread. As in `LocalFileSystem`, deletions are not synced.
//! * Attributes and `PutMode::Update` are not implemented, as in `LocalFileSystem`.
//! * Where the object is in the page cache, `LocalFileSystem` is faster (`examples/against_local.rs` measures both).
//! * An object that another program deletes or replaces keeps its space until it is read again or 64 others are.
//! * A put holds up to 4 MiB of buffers beside its payload.
//! * If a file system refuses direct I/O, it is used through the page cache; [`ScheduledStore::is_direct`] reports it.
//! * Objects are opened through `/proc/self/fd`, which must exist; a trace names that path for reads.
//! * If too many requests wait for a shard already, a call fails, with `WouldBlock` as its error's source.
//! * A file system that cannot rename without replacing (NFS) links and deletes. A rename that must not replace loses a
//!   put to its source between the two.
//! * Leftovers in directories behind symbolic links are not removed, nor those that this user may not read or remove.
//!
//! # Example
//! ```
//! use object_store::{ObjectStore, ObjectStoreExt, PutMode, path::Path};
//! use plimsoll::{Classes, DiskSetup, Runtime, ShardOptions, Topology};
//! use plimsoll_store::{Operation, ScheduledStore};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let classes = Classes::new();
//! let commit = classes.add_class("commit", None, 1000)?;
//! let query = classes.add_class("query", None, 1000)?;
//! let compaction = classes.add_class("compaction", None, 100)?;
//! // A real program takes its disk from the file that `plimsoll tune -o` wrote: Topology::from_io_properties.
//! let topology = Topology::new(1, classes, vec![DiskSetup::unlimited()])?;
//! let runtime = Runtime::start(&topology, &ShardOptions { pin: false, ..ShardOptions::default() })?;
//!
//! # let directory = tempfile::tempdir()?;
//! let store = ScheduledStore::open(runtime.any_shard(), directory.path()).await?;
//! let store = store.with_rule(move |operation, path, _extensions| match operation {
//!     Operation::Put if path.prefix_matches(&Path::from("wal")) => commit,
//!     Operation::Put | Operation::PutMultipart => compaction,
//!     Operation::Get | Operation::GetRanges => query,
//! });
//!
//! let segment = Path::from("wal/0001");
//! store.put_opts(&segment, "ahoy, this is a commit".into(), PutMode::Create.into()).await?;
//! assert_eq!(store.get_range(&segment, 6..10).await?, "this");
//! # drop(store);
//! # runtime.shutdown().await?;
//! # Ok(())
//! # }
//! ```

mod failure;
mod opened;
mod payload;
mod read;
mod staged;
mod store;
mod upload;
mod write;

pub use store::{Operation, ScheduledStore};

/// The example of the guide compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/store.md")]
pub struct Guide;
