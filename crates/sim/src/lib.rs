//! A deterministic world around the Plimsoll scheduler: the same `core` that schedules real I/O, on simulated disks.
//!
//! # Why
//! Whether shares hold over 192 shards, or what a disk does that suddenly runs at a quarter of its speed, is seen in a
//! second here, without owning the machine, and the same every time.
//!
//! # How it works
//! Time is a number that jumps from event to event. [`device`] models disks; shards, workloads and faults drive real
//! `IoQueue`s against them. Everything random comes from one seed: the same seed gives the same bytes.
//!
//! # Where to begin
//! [`world`] has an example; [`scenario`] are experiments with figures; [`fit`] makes a disk model of measured latencies.
//!
//! # Limits
//! Disks are models of queues and interference, not of flash cells: [`surface`] says how far a model is from what was measured.

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
