//! Shards, files and backends from outside. One test program, a module for each kind of story; a test that needs a process
//! of its own stands beside it and says why.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod alloc;
mod backends;
mod broken;
mod busy_cpu;
mod classes;
mod common;
mod coordinators;
mod discards;
mod embed;
mod files;
mod hung_disk;
#[cfg(feature = "io-properties")]
mod properties;
#[cfg(feature = "io-properties")]
mod readme;
mod refused;
mod reopened;
mod rounds;
mod runtime;
#[path = "../../../seeds.rs"]
mod seeds;
mod short;
mod sim_crash;
mod sim_disks;
mod sim_faults;
mod sim_runtime;
mod skips;
mod sleep;
mod trace;
