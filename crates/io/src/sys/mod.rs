//! All questions to the operating system: the clock, processors, CPU time, space, and block devices.
//!
//! # Why
//! The rest of the library stays free of system calls and of platform details; tools reuse these readers.
//!
//! # How it works
//! One small module per question. Functions that read a kernel file tree take its root as a parameter, so that tests
//! read a tree that they have made.
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
pub mod statfs;
pub mod submission;
pub mod sysfs;
