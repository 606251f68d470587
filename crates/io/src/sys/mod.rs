//! Readers of the operating system's state: the clock, processors, CPU time, space, and block devices.
//!
//! # Why
//! Platform details stay in one place, and tools reuse the readers.
//!
//! # How it works
//! One small module per subject. Functions that read a kernel file tree take its root as a parameter, so that tests can
//! pass their own tree.
//!
//! # Limits
//! Linux only.
//!
//! # Example
//! ```
//! let before_ns = plimsoll::sys::clock::now_ns();
//! assert!(plimsoll::sys::clock::now_ns() >= before_ns);
//! ```

pub mod block;
pub mod clock;
pub mod device;
pub mod diskstats;
pub mod mounts;
pub mod pin;
pub mod rusage;
pub(crate) mod signals;
pub mod statfs;
pub mod submission;
pub mod sysfs;
