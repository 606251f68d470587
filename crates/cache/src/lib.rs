//! A bounded, crash-safe cache of blocks on several local disks.
//!
//! # Why
//! Caches in front of object stores and slow volumes sit on several fast disks, and then write to one of them at a time,
//! stop for checkpoints, die with one disk, and let their fills starve their hits. This one does none of it: hits, fills,
//! evacuation, checkpoints and discards are priority classes of the scheduler (`plimsoll`), blocks go to the disk that has
//! the least to do for its speed, and every disk is a fault domain of its own.
mod admission;
mod away;
mod cache;
mod checkpoint;
mod disk;
mod engine;
mod error;
mod host;
mod keeper;
mod label;
mod log;
mod members;
mod mover;
mod open;
mod race;
mod recover;
mod snapshot;
mod alloc;
mod block;
mod config;
mod crypt;
mod entry;
mod flight;
mod format;
mod health;
mod index;
mod key;
mod memory;
#[cfg(feature = "object_store")]
pub mod object_store;
pub mod stats;

pub use block::Block;
pub use cache::{BlockCache, CreateOptions};
pub use engine::{GetOptions, InsertOptions, Inserted, Lookup};
pub use error::CacheError;
pub use host::{Host, HostOptions, SPARE_DISKS};
pub use config::{BadConfig, CacheConfig, DiskSource, Placement};
pub use entry::{MAX_BLOCK_BYTES, MAX_SLAB_BYTES, MIN_SLAB_BYTES};
pub use key::KeyHash;
