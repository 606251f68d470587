//! `stat`: what the disks of a host do, and whether that is all they can.
//!
//! # Why
//! `%util` says 100 % on a disk that does 3 % of its capacity. One disk of four that takes all writes looks healthy
//! beside three idle ones. Both were found late, by people who read the right columns in the wrong way. So this module
//! computes the columns of `iostat -x`, and adds three figures that those do not give: how much of the capacity is used
//! (U), which part of their time requests wait (S), and a verdict with its reason.
//!
//! # How it works
//! ```text
//! host (/proc, /sys) ─ Reading ─┐
//! record (our own file) ────────┼─> Interval ─> Watch ─> Observed ─> output, pictures, page, metrics
//! diskstats, iostat text, JSON ─┘                 │
//!                                   capacity (U), saturation (S), verdict; groups (imbalance)
//! ```
//! Every source yields [`Interval`]s: devices with their [`Columns`], each of which may be missing. A [`watch::Watch`]
//! receives one interval after the other, remembers some history (the highest rate, the latency of an unloaded device)
//! and turns each interval into an [`Observed`]. `compare` sets two intervals against each other and weighs hypotheses.
//!
//! # Limits
//! The kernel counts completed requests and reports nothing about single ones. Without a model of the disk, U is a
//! share of the highest rate seen, and is marked as such ([`Basis::HighestSeen`]).
//!
//! # Example
//! ```
//! use plimsoll::sys::diskstats;
//! use plimsoll_observe::stat::Columns;
//! let before = diskstats::parse("259 0 nvme0n1 1000 0 8000 100 0 0 0 0 0 90 100 0 0 0 0 0 0\n")?;
//! let after = diskstats::parse("259 0 nvme0n1 3000 0 24000 300 0 0 0 0 4 190 300 0 0 0 0 0 0\n")?;
//! let moved = after[0].counters.since(&before[0].counters).ok_or("another device")?;
//! let columns = Columns::from_counters(&moved, 1.0);
//! assert_eq!((columns.reads_per_s, columns.read_await_ms, columns.util_percent), (Some(2000.0), Some(0.1), Some(10.0)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod capacity;
pub mod compare;
pub mod from;
pub mod groups;
pub mod history;
pub mod host;
mod interval;
mod judged;
pub mod output;
pub mod pictures;
pub mod programs;
mod readers;
pub mod record;
pub mod saturation;
pub mod verdict;
pub mod watch;

pub use interval::{Columns, CpuShares, DeviceFacts, DeviceInterval, Facts, Gap, Interval, Remote};
pub use judged::{Basis, GroupObserved, Judged, Observed, Part, Remark, Verdict};
pub use readers::ReadOptions;
