//! The recent load, and the latency that was measured under such a load.
//!
//! # Why
//! The effect of writes on reads depends on the present rate of writes.
//!
//! # How it works
//! [`Meter`]: two windows of fixed length; the older counts by the part of it that is less than a window ago. It needs
//! no exponential, and no work while nothing arrives. [`Measured`] reads a table of latencies at the rates of two
//! meters, and reuses the distribution for an eighth of a window.
//!
//! # Limits
//! In the first window the rate rises from 0.
//!
//! # Example
//! One unit each microsecond is a rate of 0.001 per nanosecond, from the second window on.

use crate::latency_surface::{LatencySurface, Prepared};
use crate::rng::Rng;

const NS_PER_S: f64 = 1e9;

/// A recent rate: two windows, the older counted by the part of it that is less than a window ago.
#[derive(Debug)]
pub(super) struct Meter {
    window_ns: u64,
    window_start_ns: u64,
    current: f64,
    previous: f64,
}

impl Meter {
    pub(super) fn new(memory_ns: f64) -> Meter {
        Meter { window_ns: (memory_ns as u64).max(1), window_start_ns: 0, current: 0.0, previous: 0.0 }
    }

    #[inline]
    pub(super) fn add(&mut self, at_ns: u64, amount: f64) {
        self.turn(at_ns);
        self.current += amount;
    }

    /// Returns the recent amount per nanosecond.
    #[inline]
    pub(super) fn per_ns(&mut self, at_ns: u64) -> f64 {
        self.turn(at_ns);
        let into = at_ns.saturating_sub(self.window_start_ns) as f64 / self.window_ns as f64;
        (self.current + self.previous * (1.0 - into).max(0.0)) / self.window_ns as f64
    }

    #[inline]
    fn turn(&mut self, at_ns: u64) {
        let age_ns = at_ns.saturating_sub(self.window_start_ns);
        if age_ns >= self.window_ns {
            self.previous = if age_ns < self.window_ns.saturating_mul(2) { self.current } else { 0.0 };
            self.current = 0.0;
            self.window_start_ns = at_ns - age_ns % self.window_ns;
        }
    }
}

/// Latency of reads from a measured table.
#[derive(Debug)]
pub(super) struct Measured {
    surface: LatencySurface,
    read_ops: Meter,
    write_bytes: Meter,
    prepared: Prepared,
    stale_ns: u64,
    keep_ns: u64,
}

impl Measured {
    pub(super) fn new(surface: &LatencySurface, memory_ns: f64) -> Measured {
        Measured {
            prepared: surface.prepare(0.0, 0.0),
            surface: surface.clone(),
            read_ops: Meter::new(memory_ns),
            write_bytes: Meter::new(memory_ns),
            stale_ns: 0,
            keep_ns: (memory_ns / 8.0) as u64,
        }
    }

    pub(super) fn note_write(&mut self, at_ns: u64, len_bytes: u64) {
        self.write_bytes.add(at_ns, len_bytes as f64);
    }

    /// Draws the latency of a read that arrives at `at_ns`, in ns.
    pub(super) fn read_ns(&mut self, at_ns: u64, rng: &mut Rng) -> f64 {
        self.read_ops.add(at_ns, 1.0);
        if at_ns >= self.stale_ns {
            let write_bytes_per_s = self.write_bytes.per_ns(at_ns) * NS_PER_S;
            let read_iops = self.read_ops.per_ns(at_ns) * NS_PER_S;
            self.prepared = self.surface.prepare(write_bytes_per_s, read_iops);
            self.stale_ns = at_ns.saturating_add(self.keep_ns);
        }
        self.prepared.sample(rng)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_settle_and_are_forgotten() {
        let mut meter = Meter::new(1e6);
        for microsecond in 0..5000u64 {
            meter.add(microsecond * 1000, 1.0);
        }
        assert!((meter.per_ns(5_000_000) - 0.001).abs() < 2e-6);
        assert_eq!(meter.per_ns(8_000_000), 0.0);
    }
}
