//! How fast a disk writes.
//!
//! # Why
//! Placement gives each disk as many blocks as it can write, so it needs the ratios of the disks' speeds.
//!
//! # How it works
//! A configured speed holds. Otherwise it is measured over [`SPEED_WINDOW_NS`] during which the disk has a backlog.
//!
//! # Limits
//! A disk that never had a backlog counts as [`UNKNOWN_BYTES_PER_S`].
//!
//! # Example
//! Two disks without configured speeds get equally many blocks until one of them has had a backlog for a quarter of a
//! second.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::sync::lock;

/// How fast a disk writes: as configured, else as measured while it was saturated.
pub(super) struct Speed {
    is_given: bool,
    /// Bits of an `f64`, in bytes per second.
    bytes_per_s: AtomicU64,
    window: Mutex<Window>,
}

#[derive(Default)]
struct Window {
    from_ns: u64,
    bytes: u64,
    was_busy: bool,
}

/// Assumed speed of an unmeasured disk, in bytes per second. Only ratios between disks matter.
const UNKNOWN_BYTES_PER_S: f64 = 500e6;

/// Length of a speed measurement, in nanoseconds.
const SPEED_WINDOW_NS: u64 = 250_000_000;

/// Backlog that shows saturation: a disk that had at least this backlog during a whole measurement wrote as fast as it
/// can.
const BUSY_BYTES: u64 = 2 << 20;

impl Speed {
    pub(super) fn new(given: Option<f64>) -> Speed {
        let given = given.filter(|rate| rate.is_finite() && *rate > 0.0);
        let bits = given.unwrap_or(UNKNOWN_BYTES_PER_S).to_bits();
        Speed { is_given: given.is_some(), bytes_per_s: AtomicU64::new(bits), window: Mutex::default() }
    }

    pub(super) fn bytes_per_s(&self) -> f64 {
        f64::from_bits(self.bytes_per_s.load(Relaxed))
    }

    pub(super) fn wrote(&self, began_ns: u64, now_ns: u64, len_bytes: u64, backlog_bytes: u64) {
        if self.is_given {
            return;
        }

        let mut window = lock(&self.window);
        if window.from_ns == 0 {
            *window = Window { from_ns: began_ns, bytes: 0, was_busy: true };
        }
        window.bytes += len_bytes;
        window.was_busy &= backlog_bytes >= BUSY_BYTES;
        let past_ns = now_ns.saturating_sub(window.from_ns);
        if past_ns < SPEED_WINDOW_NS {
            return;
        }

        if window.was_busy {
            let seen = window.bytes as f64 / (past_ns as f64 / 1e9);
            let smooth = 0.7 * self.bytes_per_s() + 0.3 * seen;
            self.bytes_per_s.store(smooth.to_bits(), Relaxed);
        }
        *window = Window { from_ns: now_ns, bytes: 0, was_busy: true };
    }
}
