//! A deterministic world around the Plimsoll scheduler: the same `core` that schedules real I/O, on simulated disks.
//!
//! # Why
//! Shares over 192 shards, or a disk that suddenly runs at a quarter of its speed, can be tried here in a second,
//! without owning the machine, and with the same result every time.
//!
//! # How it works
//! Time is a number that jumps from event to event. [`device`] models disks; shards, workloads and faults drive real
//! `IoQueue`s against them. Everything random comes from one seed: the same seed gives the same bytes.
//!
//! # Where to begin
//! [`world`] has an example; [`scenario`] holds experiments with figures; [`fit`] makes a disk model from measured
//! latencies.
//!
//! # Limits
//! Disks are models of queues and interference, not of flash cells: [`surface`] measures how far a model is from the
//! measurement.

#![allow(missing_docs, reason = "a name that says all needs no line")]

pub mod device;
pub mod dist;
pub mod fit;
pub mod latency_surface;
pub mod report;
pub mod rng;
pub mod scenario;
pub mod surface;
pub mod workload;
pub mod world;
