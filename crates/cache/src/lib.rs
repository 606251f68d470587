//! A bounded, crash-safe cache of blocks on several local disks.
//!
//! # Why
//! Caches in front of object stores and slow volumes sit on several fast disks, and then write to one of them at a time,
//! stop for checkpoints, die with one disk, and let their fills starve their hits. This one does none of it: hits, fills,
//! evacuation, checkpoints and discards are priority classes of the scheduler (`plimsoll`), blocks go to the disk that has
//! the least to do for its speed, and every disk is a fault domain of its own.
mod admission;
mod alloc;
mod away;
mod block;
mod cache;
mod checkpoint;
mod config;
mod crypt;
mod discard;
mod disk;
mod engine;
mod entry;
mod error;
mod fetch;
mod flight;
mod format;
mod health;
mod host;
mod index;
mod inspect;
mod keeper;
mod key;
mod label;
mod log;
mod members;
mod memory;
mod mover;
#[cfg(feature = "object_store")]
pub mod object_store;
mod open;
mod race;
mod recover;
mod snapshot;
#[cfg(feature = "sim")]
pub mod scenario;
pub mod stats;

pub use alloc::{BucketReport, SlabReport};
pub use block::Block;
pub use cache::{BlockCache, CreateOptions};
pub use config::{BadConfig, CacheConfig, DiskSource, Placement};
pub use engine::{GetOptions, InsertOptions, Inserted, Lookup};
pub use entry::{MAX_BLOCK_BYTES, MAX_SLAB_BYTES, MIN_SLAB_BYTES};
pub use error::CacheError;
pub use fetch::{FetchError, Fetched};
pub use host::{Host, HostOptions, SPARE_DISKS};
pub use inspect::{CheckReport, Inspection, check, check_on, inspect, inspect_on};
pub use key::KeyHash;
