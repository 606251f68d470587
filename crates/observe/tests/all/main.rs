//! What is observed, end to end. One test program, a module for each kind of story.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod agree;
mod deploy;
mod metrics;
#[path = "../../../skip.rs"]
mod skip;
mod stat_truth;
