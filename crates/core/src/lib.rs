//! The Plimsoll scheduler: it decides which request the disk gets next, and whether the disk has room for it now.
//!
//! # Why
//! Fast disks are easy to overload: if a program sends everything at once, the queue forms in the device, where a small
//! read waits behind a second of background writes. This crate keeps the queue in user space. It computes the device
//! time of each request ([`CostModel`]), admits no more than the disk can serve ([`Disk`]), and serves classes by their
//! shares ([`IoQueue`]).
//!
//! # How it works
//! A pure state machine: no I/O, no clock, no threads, no dependencies, no allocation per request. Time is an argument
//! of every call. The same code schedules real I/O, runs in the simulator and runs in the tests.
//!
//! # Where to begin
//! [`IoQueue`] has an example; [`CostModel`] explains the cost of a request; [`DiskConfig`] and [`QueueConfig`] list
//! all settings.

pub mod backlog;
mod bucket;
mod classes;
mod clock;
mod control;
mod cost;
mod disk;
mod heap;
mod hist;
#[cfg(all(plimsoll_loom, test))]
#[path = "tests/loom.rs"]
mod loom_tests;
pub mod math;
mod qos;
mod queue;
mod request;
mod slots;
mod snapshot;
mod stats;
mod sync;
mod target;
pub mod trace;
mod tree;
mod units;

pub use classes::{ClassId, GroupId, NodeId, QueueError};
pub use control::{
    ControlConfig, ControlEvent, DEFAULT_THROUGHPUT_GOAL, EVENTS_KEPT, EventKind, EventReason, WindowLimit,
};
pub use cost::*;
pub use disk::{DEFAULT_LATENCY_GOAL_NS, Disk, DiskConfig, LatencyGoal};
pub use hist::*;
pub use qos::{LatencyTarget, Limits, Qos, Reservation};
pub use queue::{
    CANCELLED, Cancel, DECAY_TAU_NS, Dispatch, Failure, Finished, IoQueue, Mode, Outcome, Progress, QueueConfig,
    Stopped, depth_of_queue,
};
pub use request::{Direction, Op};
pub use slots::RequestId;
pub use snapshot::{ClassSnapshot, DiskSnapshot, Snapshot};
pub use stats::{ClassStats, DirectionStats, Latencies, WaitReason};
pub use units::{Cost, FS_PER_NS, FS_PER_S, Rate};
