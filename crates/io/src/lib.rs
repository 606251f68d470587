//! Plimsoll: a userspace disk I/O scheduler.
//!
//! # Why
//! Programs that do much I/O know what is urgent and what is not; the kernel and the disk do not. This library keeps
//! requests in user space until the disk can take them, serves classes by their shares, and loads the disk up to its line and
//! never past it.
//!
//! # How it works
//! One [`Shard`] a core: a thread with its own executor, timers, I/O queues and ring. Requests name a file and a
//! [`Class`]; the I/O queue of the file's disk (a pure state machine, `plimsoll-core`) decides when they go; a
//! [`backend::Backend`] carries them: io_uring, Linux AIO, threads, memory, nothing, or (feature `sim`) a simulated disk.
//!
//! * [`Topology`]: disks (those that `plimsoll tune` measured: [`Topology::from_io_properties`]), classes, how many shards
//!   and I/O queues.
//! * [`Runtime`], [`Handle`] and [`File`]: shards on threads, and their files for any async code, Tokio's too.
//! * [`Gate`]: for threads that make their own system calls, a thread pool's or Tokio's `spawn_blocking`.
//! * [`Shard`]: futures on the shard itself. [`Reactor`]: the same without futures, for the last nanosecond.
//! * `SimRuntime` (feature `sim`): whole shards in virtual time, on disks that lie and lose power; for tests.
//!
//! # Limits
//! Linux. Direct I/O wants aligned memory, offsets and lengths: [`File`] reads any range and says so of a write;
//! elsewhere [`buffer::AlignedBuf`] and [`backend::FileInfo`] help.
//!
//! # Example
//! See [`File`] for a program on Tokio, [`Shard`] for one core.

pub mod backend;
pub mod buffer;
mod class;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
#[cfg(feature = "control")]
pub mod control;
mod file;
mod gate;
mod handle;
mod mailbox;
#[cfg(feature = "metrics")]
pub mod metrics;
mod open_file;
mod placement;
#[cfg(feature = "io-properties")]
pub mod properties;
mod queues;
mod reactor;
mod request;
mod runtime;
mod shard;
#[cfg(feature = "sim")]
mod sim_runtime;
#[cfg(test)]
#[path = "../../skip.rs"]
mod skip;
mod slot;
mod submission;
pub mod sys;
mod topology;
pub mod trace;

pub use backend::OpenOptions;
pub use class::{Class, ClassError, ClassInfo, Classes};
pub use file::SharedFile;
pub use gate::{Call, Gate, GateError, GateStartError, Passed, Permit};
pub use handle::Handle;
pub use open_file::File;
pub use plimsoll_core as core;
pub use plimsoll_core::{Failure, LatencyTarget, Limits, Qos, Reservation};
pub use reactor::{Reactor, ReactorConfig, ReactorError, ReactorView, Ticket};
pub use request::{Data, Done, Refused, RefusedReason, Request, RequestError, RequestKind};
pub use runtime::{Runtime, ShardOptions, StartError, run_shards};
pub use shard::{Job, Shard};
#[cfg(feature = "sim")]
pub use sim_runtime::{SimError, SimRuntime};
pub use topology::{DiskMode, DiskSetup, Topology, TopologyError};

/// The examples of README.md are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;
