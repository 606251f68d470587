//! The capacity of a disk for reads and writes together.
//!
//! # Why
//! Reads and writes do not simply add up. Some disks serve at most half the reads and half the writes together; others
//! serve both at nearly full speed, since flash programs in one place while it reads in another; a few are worse with
//! both together than one after the other. One number distinguishes these.
//!
//! # How it works
//! With R reads per second alone and W writes per second alone, the mixes (r, w) that a disk sustains are described by
//! (r/R)^p + (w/W)^p = 1. If f is the share of writes in the device time of the present mix, the disk yields T(f) =
//! ((1-f)^p + f^p)^(-1/p) times the promise of the linear rule p = 1. T is kept at 65 points, with straight lines
//! between.
//!
//! # Limits
//! Straight lines are off by less than 0.4 % for p of 1 and more. For p below 1, T falls infinitely steeply at the
//! ends, and the first and last of the 64 intervals read too high (p = 0.6: by up to 3 %). T is never below 1/1024.
//!
//! # Example
//! ```
//! use plimsoll_core::MixExponent;
//! let half = |p| MixExponent::new(p).map(|mix| (mix.capacity(0.5) * 100.0).round());
//! assert_eq!((half(0.6), half(1.0), half(2.0)), (Some(63.0), Some(100.0), Some(141.0)));
//! assert_eq!(MixExponent::FULL_DUPLEX.capacity(0.5), 2.0);
//! assert_eq!(MixExponent::FULL_DUPLEX.capacity(0.0), 1.0);
//! ```

use core::fmt;

use crate::math;

/// Intervals of the table.
const STEPS: usize = 64;
/// Smallest capacity of any mix, so that dividing by it is always possible.
const CAPACITY_MIN: f64 = 1.0 / 1024.0;

/// The exponent p, with its table of T. See the module's documentation.
#[derive(Clone)]
pub struct MixExponent {
    p: f64,
    capacity: [f64; STEPS + 1],
}

impl MixExponent {
    /// p = 1: reads and writes share one budget of device time.
    pub const LINEAR: MixExponent = MixExponent { p: 1.0, capacity: [1.0; STEPS + 1] };

    /// p infinite: reads and writes do not disturb each other.
    pub const FULL_DUPLEX: MixExponent = MixExponent { p: f64::INFINITY, capacity: full_duplex() };

    /// Returns the exponent `p`, positive (infinite included); `None` for anything else. Measured disks lie between 0.6
    /// and infinity.
    #[must_use]
    pub fn new(p: f64) -> Option<MixExponent> {
        if p.is_nan() || p <= 0.0 {
            return None;
        }
        if p == 1.0 {
            return Some(MixExponent::LINEAR);
        }
        if p == f64::INFINITY {
            return Some(MixExponent::FULL_DUPLEX);
        }
        let mut capacity = [1.0; STEPS + 1];
        for (step, entry) in capacity.iter_mut().enumerate() {
            *entry = capacity_at(p, step as f64 / STEPS as f64);
        }
        Some(MixExponent { p, capacity })
    }

    /// Returns the exponent p, in (0, infinity].
    #[must_use]
    pub const fn p(&self) -> f64 {
        self.p
    }

    /// Returns T: the disk's capacity when writes make up `write_share` (0 to 1, clamped; NaN counts as 0) of the
    /// device time, as a multiple of the capacity for p = 1. From 1/1024 to 2.
    #[inline]
    #[must_use]
    pub fn capacity(&self, write_share: f64) -> f64 {
        let share = if write_share > 0.0 { write_share.min(1.0) } else { 0.0 };
        let position = share * STEPS as f64;
        let step = (position as usize).min(STEPS - 1);
        let (low, high) = (self.capacity[step], self.capacity[step + 1]);
        low + (high - low) * (position - step as f64)
    }
}

impl Default for MixExponent {
    fn default() -> MixExponent {
        MixExponent::LINEAR
    }
}

/// Compares p alone: the table follows from it.
impl PartialEq for MixExponent {
    fn eq(&self, other: &MixExponent) -> bool {
        self.p == other.p
    }
}

impl fmt::Debug for MixExponent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MixExponent").field(&self.p).finish()
    }
}

/// Returns T for a finite p. The larger part is taken out of the sum, so that no power under- or overflows.
fn capacity_at(p: f64, write_share: f64) -> f64 {
    let larger = write_share.max(1.0 - write_share);
    let ratio = (1.0 - larger) / larger;
    let norm = larger * math::pow(1.0 + math::pow(ratio, p), 1.0 / p);
    (1.0 / norm).max(CAPACITY_MIN)
}

/// Returns T for p infinite: one over the larger part.
const fn full_duplex() -> [f64; STEPS + 1] {
    let mut capacity = [1.0; STEPS + 1];
    let mut step = 0;
    while step <= STEPS {
        let larger = if step > STEPS - step { step } else { STEPS - step };
        capacity[step] = STEPS as f64 / larger as f64;
        step += 1;
    }
    capacity
}
