//! Quantities with a unit: device time and rates.
//!
//! # Why
//! The scheduler divides one resource, the time of the disk. A request *costs* device time, shares divide it, the token
//! bucket limits it. Figures range from 1 IOPS (one second a request) to 10 TB/s (51 picoseconds for 512 bytes), so
//! nanoseconds are too coarse and floating point drifts. [`Cost`] counts femtoseconds in a `u64`: up to five hours in
//! one request.
//!
//! "Unlimited" is a variant ([`Rate::Unlimited`]), never a huge number: some day arithmetic would turn a huge number
//! into a real limit.
//!
//! # Example
//! ```
//! use plimsoll_core::{Cost, Rate};
//! assert_eq!(Cost::from_ns(3).as_fs(), 3_000_000);
//! assert_eq!(Rate::per_second(200_000).cost_per_unit(), Cost::from_ns(5_000));
//! assert_eq!(Rate::Unlimited.cost_per_unit(), Cost::ZERO);
//! ```

/// Femtoseconds in a nanosecond.
pub const FS_PER_NS: u64 = 1_000_000;
/// Femtoseconds in a second.
pub const FS_PER_S: u64 = 1_000_000_000_000_000;

/// Device time, in femtoseconds (10^-15 s). Arithmetic saturates; the largest value is about 5.1 hours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost(u64);

impl Cost {
    /// No device time: the cost of a request on an unlimited disk.
    pub const ZERO: Cost = Cost(0);
    /// The largest cost, about 5.1 hours.
    pub const MAX: Cost = Cost(u64::MAX);

    /// Returns a cost of `fs` femtoseconds.
    #[must_use]
    pub const fn from_fs(fs: u64) -> Cost {
        Cost(fs)
    }

    /// Returns a cost of `ns` nanoseconds, saturating at [`Cost::MAX`].
    #[must_use]
    pub const fn from_ns(ns: u64) -> Cost {
        Cost(ns.saturating_mul(FS_PER_NS))
    }

    /// Returns the cost in femtoseconds.
    #[must_use]
    pub const fn as_fs(self) -> u64 {
        self.0
    }

    /// Returns the cost in whole nanoseconds, rounded up.
    #[must_use]
    pub const fn as_ns_ceil(self) -> u64 {
        self.0.div_ceil(FS_PER_NS)
    }

    /// Returns the cost in seconds.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / FS_PER_S as f64
    }

    /// Adds two costs, saturating at [`Cost::MAX`].
    #[must_use]
    pub const fn saturating_add(self, other: Cost) -> Cost {
        Cost(self.0.saturating_add(other.0))
    }

    /// Subtracts `other`, saturating at zero.
    #[must_use]
    pub const fn saturating_sub(self, other: Cost) -> Cost {
        Cost(self.0.saturating_sub(other.0))
    }

    /// Returns whether the cost is zero.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

/// Units (operations or bytes) per second that a disk yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Rate {
    /// No limit: a unit costs nothing.
    #[default]
    Unlimited,
    /// Units per second, at least 1.
    PerSecond(core::num::NonZeroU64),
}

impl Rate {
    /// Returns a rate of `units` per second. 0 counts as 1, because requests at a rate of zero would never end.
    #[must_use]
    pub const fn per_second(units: u64) -> Rate {
        match core::num::NonZeroU64::new(units) {
            Some(n) => Rate::PerSecond(n),
            None => Rate::PerSecond(core::num::NonZeroU64::MIN),
        }
    }

    /// Returns the units per second, or `None` if unlimited.
    #[must_use]
    pub const fn get(self) -> Option<u64> {
        match self {
            Rate::Unlimited => None,
            Rate::PerSecond(n) => Some(n.get()),
        }
    }

    /// Returns the device time of one unit, rounded down; zero if unlimited.
    #[must_use]
    pub fn cost_per_unit(self) -> Cost {
        match self {
            Rate::Unlimited => Cost::ZERO,
            Rate::PerSecond(n) => Cost::from_fs(FS_PER_S / n.get()),
        }
    }

    /// Returns the seconds of one unit, 0.0 if unlimited. For arithmetic that must not round.
    #[must_use]
    pub fn seconds_per_unit(self) -> f64 {
        match self {
            Rate::Unlimited => 0.0,
            Rate::PerSecond(n) => 1.0 / n.get() as f64,
        }
    }
}
