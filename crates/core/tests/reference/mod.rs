//! What the shared parts of the scheduler are compared with, and the worlds in which they are tried.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

pub(crate) mod shards;
pub(crate) mod slow;
