//! Figures: the meaning of a unit, a sample, a difference and a curve, the same for every command.
//!
//! # Why
//! Commands that measure, observe and compare must agree on a size, on a mean with its uncertainty, and on the verdict
//! over a curve. None of these depends on a file, a disk or a command.
//!
//! # How it works
//! [`units`] reads and prints sizes, rates and durations. [`series`] judges samples taken over time, [`stats`] tests
//! whether two figures differ, [`percentiles`] estimates the error of quantiles, and [`sides`] applies all of these to
//! two series of times. [`verdict`] decides whether a curve rises, has a plateau or falls.
//!
//! # Limits
//! Pure functions: nothing here reads a clock, a file or the environment. Without the feature `statistics` (on by
//! default) only the units are built, which need no other crate.
//!
//! # Example
//! ```
//! use plimsoll_figures::units;
//! assert_eq!(units::parse_size_bytes("4KiB")?, 4096);
//! # Ok::<(), units::UnitError>(())
//! ```

#![allow(missing_docs, reason = "the tools' own crate: a name that says all needs no line")]

#[cfg(feature = "statistics")]
pub mod percentiles;
#[cfg(feature = "statistics")]
pub mod series;
#[cfg(feature = "statistics")]
pub mod sides;
#[cfg(feature = "statistics")]
pub mod stats;
pub mod units;
#[cfg(feature = "statistics")]
pub mod verdict;
