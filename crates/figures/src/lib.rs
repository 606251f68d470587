//! Figures: what every command means by a unit, a sample, a difference and a curve.
//!
//! # Why
//! A size, a mean with its uncertainty and the verdict over a curve must be the same in what is measured, observed and
//! compared. They know no file, no disk and no command.
//!
//! # How it works
//! [`units`] reads and writes sizes, rates and durations. [`series`] says what samples in the order of time are worth,
//! [`stats`] whether two figures differ, [`percentiles`] how far quantiles may be off, [`sides`] all of it for two series
//! of times. [`verdict`] says whether a curve rises, has a plateau or falls.
//!
//! # Limits
//! Pure functions: nothing here reads a clock, a file or the environment. Without the feature `statistics` (on by default)
//! there are only the units, which need no other crate.
//!
//! # Example
//! ```
//! use plimsoll_figures::units;
//! assert_eq!(units::parse_size_bytes("4KiB")?, 4096);
//! # Ok::<(), units::UnitError>(())
//! ```

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
