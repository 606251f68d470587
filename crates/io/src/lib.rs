//! Plimsoll: a userspace disk I/O scheduler.
//!
//! # Why
//! A program that does much I/O knows which requests are urgent; the kernel and the disk do not. This library keeps
//! requests in user space until the disk can take them, serves classes by their shares, and loads the disk up to its
//! line, never past it.
//!
//! # How it works
//! Each core runs one [`Shard`]: a thread with its own executor, timers, I/O queues and ring. A request names a file
//! and a [`Class`]. The I/O queue of the file's disk (a pure state machine, `plimsoll-core`) decides when to dispatch
//! it; a [`backend::Backend`] carries it out: io_uring, Linux AIO, threads, memory, null, or (feature `sim`) a
//! simulated disk.
//!
//! * [`Topology`]: the disks (as `plimsoll tune` measured them: [`Topology::from_io_properties`]), the classes, the
//!   number of shards and of I/O queues.
//! * [`Runtime`], [`Handle`] and [`File`]: shards on threads, and their files for any async code, Tokio's too.
//! * [`Gate`]: for threads that make their own system calls, such as a thread pool's or Tokio's `spawn_blocking`.
//! * [`Shard`]: futures on the shard itself. [`Reactor`]: the same without futures, for the last nanosecond.
//! * `SimRuntime` (feature `sim`): whole shards in virtual time, on disks that inject faults and lose power; for tests.
//!
//! # Limits
//! Linux only. Direct I/O requires aligned memory, offsets and lengths. [`File`] reads any range and reports an
//! unaligned write; below it, [`buffer::AlignedBuf`] and [`backend::FileInfo`] help to align.
//!
//! # Example
//! [`File`] shows a program on Tokio, [`Shard`] one on a single core.

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
mod operations;
mod placement;
#[cfg(feature = "io-properties")]
pub mod properties;
mod queues;
mod reactor;
mod request;
#[cfg(feature = "metrics")]
mod retired;
mod runtime;
#[cfg(test)]
mod sandbox;
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
pub use gate::{Agent, Call, Gate, GateError, GateStartError, Passed, Permit};
pub use handle::Handle;
pub use open_file::File;
pub use plimsoll_core as core;
pub use plimsoll_core::{Failure, LatencyTarget, Limits, Qos, Reservation};
pub use reactor::{Reactor, ReactorError, ReactorView};
pub use request::{Data, Done, Refused, RefusedReason, Request, RequestError, RequestKind, Ticket};
pub use runtime::{EndReason, Ended, Runtime, ShardEnd, ShardOptions, StartError, run_shards};
pub use shard::Shard;
#[cfg(feature = "sim")]
pub use sim_runtime::{SimError, SimRuntime};
pub use topology::{DiskMode, DiskSetup, ReactorConfig, Topology, TopologyError};

/// The examples of README.md are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;
