//! The allocator: gives every block, log and snapshot its slab and its place in it.
//!
//! # Why
//! All disks of a cache are one space, divided into slabs. Blocks of one size share slabs, so that a freed place fits
//! the next block. A block is never put where a crash could still bring back an older one.
//!
//! # How it works
//! Pure logic: no I/O, no clock, no locks. A slab is free, metadata (of a log or a snapshot, whole), or belongs to a
//! bucket of block sizes (`bucket`) and then tracks its allocated space (`slab`).
//! - Blocks go to the open slab of their bucket until it is full; then the emptiest slab is opened, a free one being
//!   the emptiest of all. With [`crate::Placement::Load`] every disk has its own open slabs, and `placement` chooses
//!   the disk; otherwise a bucket has one open slab for all disks, as in the cache of seed 003.
//! - Freed space is reusable when the first checkpoint that begins afterwards is durable: until then, the last durable
//!   index still refers to it. The order in which slabs are opened is renewed then, too.
//! - Nothing of this is stored. When a cache is opened, the places of all entries are claimed; the rest is free, so
//!   that a leak cannot outlive the process.
//! - `evacuation` empties slabs when the mix of block sizes has changed, or a disk is to be removed.
//!
//! # Limits
//! A disk that is added takes blocks at once. If places on it are still to be claimed, call [`Allocator::set_writable`]
//! with `false` right after [`Allocator::add_range`], under the same lock. The free space of a bucket is useless to the
//! others until evacuation has emptied slabs.
//!
//! # Example
//! Slabs of 1 MiB; a block of 8000 bytes gets 16 units (8 KiB) at offset 0 of slab 0, which then belongs to the bucket
//! of 8 KiB. `free` adds them to `freeing_bytes`; `begin_checkpoint` and `finish_some` make them free. As the
//! slab is empty then, any bucket can use it.

mod allocator;
mod bucket;
mod evacuation;
mod geometry;
mod lists;
mod placement;
mod report;
mod search;
mod slab;
#[cfg(test)]
mod tests;

pub(crate) use allocator::{Allocator, Removed};
pub(crate) use evacuation::Survey;
pub(crate) use geometry::{Geometry, NoSpace, SlabRange};
pub(crate) use placement::DiskLoad;
pub use report::{BucketReport, SlabInOrder, SlabReport, SlabUse};
