//! The contract of a backend, as checks that every backend must pass.
//!
//! # Why
//! A shard relies only on [`Backend`]'s contract. Six implementations that each had their own tests would drift apart;
//! one kit holds them together, and holds backends outside this crate to the same contract.
//!
//! # How it works
//! [`run`] makes a fresh backend for every check, in a scratch directory that it makes and removes. A check passes, is
//! skipped with a reason (such as a file system without `fallocate`), or fails with its observation. [`assert_passed`]
//! prints the skipped ones and panics with the names of the failed ones. No check hangs: a completion that does not
//! come within [`PATIENCE_NS`] is a failure.
//!
//! # Limits
//! It detects writes to memory only shortly after a backend was dropped, not long after. In every check the buffers are
//! declared before the backend, so that an early return drops the backend first.
//!
//! # Example
//! ```no_run
//! use plimsoll::backend::{Backend, pool::PoolBackend};
//! use plimsoll::conformance::{Promises, assert_passed, run};
//! let make = || Ok(Box::new(PoolBackend::new(4, 64)?) as Box<dyn Backend>);
//! assert_passed("pool", &run(make, &std::env::temp_dir(), Promises::default()));
//! ```

mod data;
mod kit;
mod waiting;

use std::io;
use std::path::Path;

use crate::backend::Backend;
use data::{
    allocate, bad_files, close_in_flight, discard, exclusive_create, large, lengths, read_only, registered_memory,
    short_reads, syncs, unaligned, vectored, write_and_read,
};
pub use kit::PATIENCE_NS;
use kit::{Kit, Make, Scratch, Verdict};
use waiting::{busy_at_capacity, complete_and_wake, deadline, drop_in_flight, each_key_once, idle_wait, wake_race};

/// Promises of a backend beyond the contract; checks of those it does not make are skipped.
#[derive(Clone, Copy, Debug)]
pub struct Promises {
    /// Written data can be read back (not so for `null`).
    pub keeps_data: bool,
    /// `wait` sleeps in real time and can be woken by other threads (not so for a simulated disk on virtual time).
    pub real_time: bool,
}

impl Default for Promises {
    /// Returns all promises.
    fn default() -> Self {
        Self { keeps_data: true, real_time: true }
    }
}

/// Outcome of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The backend keeps the contract.
    Passed,
    /// The check could not be tried here; the reason.
    Skipped(String),
    /// The backend breaks the contract; the check's observation.
    Failed(String),
}

/// A check and its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckResult {
    /// Name of the check.
    pub name: &'static str,
    /// Its outcome.
    pub outcome: Outcome,
}

type Check = fn(&mut Kit<'_>) -> Verdict;

/// Name, whether it needs data kept, whether it needs real time, and the check.
const CHECKS: &[(&str, bool, bool, Check)] = &[
    ("data written is read back", true, false, |kit| write_and_read(kit, false)),
    ("data written is read back, direct", true, false, |kit| write_and_read(kit, true)),
    ("vectored transfers", true, false, vectored),
    ("a read at the end is short, past it 0", true, false, short_reads),
    ("a durable write and both syncs", false, false, syncs),
    ("a discarded range reads as zeros", true, false, discard),
    ("allocate grows the file unless told not to", true, false, allocate),
    ("an operation sets the length", true, false, lengths),
    ("registered memory", true, false, registered_memory),
    ("16 MiB in one operation", true, false, large),
    ("unaligned direct I/O ends", true, false, unaligned),
    ("an exclusive create refuses an existing file", true, false, exclusive_create),
    ("a read-only file refuses writes", true, false, read_only),
    ("an unknown or closed file is an error", false, false, bad_files),
    ("a file closed in flight is not mixed up with the next", true, false, close_in_flight),
    ("every key comes back exactly once", false, false, each_key_once),
    ("busy at capacity, room after reaping", false, false, busy_at_capacity),
    ("a deadline ends the wait", false, false, deadline),
    ("operations come back while others wake", false, true, complete_and_wake),
    ("no wake-up is lost", false, true, wake_race),
    ("an idle wait uses no CPU", false, true, idle_wait),
    ("memory is left alone after a drop", true, false, |kit| drop_in_flight(kit, true)),
    ("memory is left alone after a drop without a flush", true, false, |kit| drop_in_flight(kit, false)),
];

/// Runs every check against backends from `make`, in a scratch directory below `dir`.
pub fn run(make: impl Fn() -> io::Result<Box<dyn Backend>>, dir: &Path, promises: Promises) -> Vec<CheckResult> {
    let mut results = Vec::with_capacity(CHECKS.len());
    for (index, &(name, needs_data, needs_real_time, check)) in CHECKS.iter().enumerate() {
        let outcome = if needs_data && !promises.keeps_data {
            Outcome::Skipped("this backend keeps no data".to_owned())
        } else if needs_real_time && !promises.real_time {
            Outcome::Skipped("this backend does not run in real time".to_owned())
        } else {
            match run_one(&make, dir, index, check) {
                Ok(None) => Outcome::Passed,
                Ok(Some(reason)) => Outcome::Skipped(reason),
                Err(seen) => Outcome::Failed(seen),
            }
        };
        results.push(CheckResult { name, outcome });
    }
    results
}

fn run_one(make: Make<'_>, dir: &Path, index: usize, check: Check) -> Verdict {
    let scratch = Scratch::new(dir, index)?;
    check(&mut Kit { make, dir: &scratch.0, files: 0 })
}

/// Prints the skipped checks of `backend`, one line each.
///
/// # Panics
/// If a check failed; the message has the name and the observation of each failed one.
pub fn assert_passed(backend: &str, results: &[CheckResult]) {
    let mut failed = String::new();
    for result in results {
        match &result.outcome {
            Outcome::Passed => {}
            Outcome::Skipped(reason) => println!("skipped: {backend}: {}: {reason}", result.name),
            Outcome::Failed(seen) => failed += &format!("\n  {}: {seen}", result.name),
        }
    }
    assert!(failed.is_empty(), "backend {backend} breaks its contract:{failed}");
}
