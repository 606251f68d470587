//! What the shared parts of the scheduler are compared with, and the worlds in which they are tried.

pub(crate) mod shards;
pub(crate) mod slow;
