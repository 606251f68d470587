//! The limit of open files.
//!
//! # Why
//! Each connection is an open file, and so is each object that is being read. The usual limit of 1024 is less than the
//! connections that the server allows. Beyond it, clients would wait without an answer, and flushes and compactions fail.
//!
//! # How it works
//! A process may raise its limit to the hard one, which the system's administrator sets (`ulimit -Hn`).
//!
//! # Limits
//! Other files of the process count too; [`needed`] is an estimate.
//!
//! # Example
//! `raise_limit() >= needed(1000)`

use crate::command::read::{BATCHES_MAX, READS_MAX};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Open files of a connection: itself, and the object that it reads.
const PER_CONNECTION: u64 = 2;
/// Open files of the server itself: the log, flushes, compactions, and objects that are just being opened or read at
/// once by one connection, each by two descriptors in turn.
const OWN: u64 = 256 + 2 * (READS_MAX * BATCHES_MAX) as u64;

/// Returns the open files of a server with `connections`.
#[must_use]
pub fn needed(connections: u32) -> u64 {
    OWN + PER_CONNECTION * u64::from(connections)
}

/// Raises the limit as far as the system allows, and returns it.
pub fn raise_limit() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    // No limit is `None`.
    if raised.is_ok() { maximum } else { current }.unwrap_or(u64::MAX)
}
