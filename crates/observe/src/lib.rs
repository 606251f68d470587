//! What is going on: the disks of a host, the requests of a trace, the programs that run.
//!
//! # Why
//! Who asks what a disk does now, or did in a recording, measures nothing and disturbs nothing.
//!
//! # How it works
//! [`stat`] judges the disks of a host, interval by interval; [`trace`] says where the time of requests went; [`metrics`]
//! makes Prometheus text of both; [`attach`] finds running programs and changes their limits.
//!
//! # Limits
//! Nothing here puts load on a disk.
//!
//! # Example
//! See [`stat`] and [`trace`].

pub mod attach;
pub mod metrics;
#[cfg(test)]
#[path = "../../skip.rs"]
mod skip;
pub mod stat;
pub mod trace;
