//! The allocator: which slab and which place in it every block, log and snapshot gets.
//!
//! # Why
//! All disks of a cache are one space, divided into slabs. Blocks of one size share slabs, so that what one leaves the
//! next one fits; a block is never put where a crash could still bring back what was there before.
//!
//! # How it works
//! Pure logic: no I/O, no clock, no locks. A slab is free, metadata (a log's or a snapshot's, whole), or belongs to a
//! bucket of block sizes (`bucket`), and then knows what of it is allocated (`slab`).
//! - Blocks go to the open slab of their bucket until it has no room; then the emptiest slab is opened, a free one
//!   being the emptiest of all. With [`crate::Placement::Load`] every disk has its own open slabs, and `placement` says whose
//!   turn it is; otherwise there is one open slab a bucket for all disks, as the cache of seed 003 had.
//! - Freed space comes back when the first checkpoint that begins afterwards is durable: until then, the last durable
//!   index still names it. The order in which slabs are opened is renewed then, too.
//! - Nothing of this is stored. When a cache is opened, the places of all entries are claimed; what nobody claims is
//!   free, so that a leak cannot outlive the process.
//! - `evacuation` empties slabs when the mix of block sizes has changed, or a disk is to go.
//!
//! # Limits
//! A disk that is added takes blocks at once: if there is something to claim, call [`Allocator::set_writable`] with
//! `false` right after [`Allocator::add_range`], under the same lock. The free space of a bucket is of no use to the
//! others until evacuation has emptied slabs.
//!
//! # Example
//! Slabs of 1 MiB; a block of 8000 bytes gets 16 units (8 KiB) at offset 0 of slab 0, which now belongs to the bucket
//! of 8 KiB. `free` makes them `freeing_bytes`; `begin_checkpoint` and `finish_checkpoint` return them, and as the slab
//! is empty now, it is any bucket's again.

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

pub(crate) use allocator::Allocator;
pub(crate) use geometry::{Geometry, NoSpace, SlabRange};
pub(crate) use placement::DiskLoad;
pub use report::{BucketReport, SlabReport};
