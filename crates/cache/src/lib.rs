//! A bounded, crash-safe cache of blocks on several local disks.
//!
//! # Why
//! Caches in front of object stores and slow volumes often sit on several fast disks, yet write to one of them at a
//! time, stop for checkpoints, die with one disk, and let fills starve hits. In this cache, hits, fills, evacuation,
//! checkpoints and discards are priority classes of the scheduler (`plimsoll`). Each block goes to the disk that will
//! be done first, and every disk is a fault domain of its own.
//!
//! # How it works
//! ```text
//!   BlockCache     get, insert, remove, get_or_fetch: async, from any runtime          (cache, fetch, lookup, insert)
//!     typed        keys and values of a program's own types                            (typed)
//!     objects      values of any length, read by ranges, as blocks of 64 KiB           (objects)
//!     index        80 bits of a key's hash -> slab, offset, length, checksum           (index)
//!     allocator    slabs of one size of block each; the disk that will be done first   (alloc)
//!     disks        reads; writes merged into runs; health; one log and snapshot each   (disk, health, log)
//!   keeper         evicts, makes checkpoints, adds and removes disks                   (keeper, space, checkpoint, members)
//!   mover          empties slabs and disks, fills new ones                             (mover)
//! ```
//! A checkpoint (every minute, on demand, or when space is short) makes everything before it durable on all disks or
//! on none. Hits and inserts continue meanwhile. After a crash, logs and snapshots restore the index; blocks are not
//! read.
//!
//! # Guarantees
//! * A block returned is exactly the block inserted under that key, or it is a miss (see [`KeyHash`] for "exactly").
//! * The bytes of an object that one read returns are of one insert of it.
//! * A block that was cached at the last checkpoint, and was not changed or evicted since, survives a crash unless its
//!   disk is lost.
//! * A crash may undo inserts and removals that came after the last checkpoint: a key may have the value it had then.
//!   To make a removal last, call [`BlockCache::checkpoint`] after it.
//! * A disk that hangs delays other work for a bounded time: a hit 2 s (or its deadline), an opening 10 s (20 or 30 s
//!   if other disks begin to hang later in it), an insert, a checkpoint or closing until the disk is given up, after
//!   about 20 s at most. Its blocks are misses meanwhile.
//! * An insert that does not fit is dropped at once and counted by reason. It waits only if the caller asks for that.
//!
//! # Limits
//! Linux. Blocks of 1 byte to 16 MiB, keys of 1 byte to 64 KiB, at most 128 disks and 512 TiB. The index is in memory:
//! 23 to 24 bytes a block. Ghosts (entries of lately evicted blocks) do not survive a restart.
//!
//! # Example
//! See [`BlockCache`].

mod admission;
mod alloc;
mod block;
mod cache;
mod checkpoint;
mod chores;
mod config;
mod create;
mod crypt;
mod directory;
mod discard;
mod disk;
mod disks;
mod endurance;
mod engine;
mod entry;
mod error;
mod fetch;
mod flight;
mod format;
mod grid;
mod heads;
mod health;
mod held;
mod host;
mod index;
mod insert;
mod inspect;
mod keeper;
mod key;
mod label;
mod load;
mod log;
mod lookup;
mod members;
mod memory;
mod metadata;
mod mover;
#[cfg(feature = "object_store")]
pub mod object_store;
mod objects;
mod open;
mod race;
mod random;
mod recover;
mod requests;
mod roster;
#[cfg(feature = "sim")]
pub mod scenario;
mod scrub;
mod settle;
mod snapshot;
mod space;
pub mod stats;
mod sync;
mod tally;
mod typed;

pub use alloc::{BucketReport, SlabInOrder, SlabReport, SlabUse};
pub use block::Block;
pub use cache::BlockCache;
pub use config::{BadConfig, CacheConfig, CreateOptions, DiskSource, Placement, SPARE_DISKS};
pub use entry::{MAX_BLOCK_BYTES, MAX_SLAB_BYTES, MIN_SLAB_BYTES};
pub use error::CacheError;
pub use fetch::{FetchError, Fetched};
pub use host::{Host, HostOptions};
pub use insert::{InsertOptions, Inserted};
pub use inspect::{BlockCounts, CheckReport, Inspection, check, check_on, inspect, inspect_on};
pub use key::KeyHash;
pub use label::is_same_disk;
pub use lookup::{GetOptions, Lookup};
pub use typed::{Code, TypedCache};
