//! Caches from outside, on simulated disks and real files. One test program, a module for each kind of story.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod crash_points;
mod damage;
mod devices;
mod disks;
mod full;
mod model;
#[cfg(feature = "object_store")]
mod object_store;
mod objects;
mod random;
#[cfg(feature = "sim")]
mod scenarios;
mod scrub;
#[path = "../../../seeds.rs"]
mod seeds;
#[path = "../../../skip.rs"]
mod skip;
mod stories;
mod typed;
#[cfg(feature = "object_store")]
#[path = "../../../versitygw.rs"]
mod versitygw;
mod world;
