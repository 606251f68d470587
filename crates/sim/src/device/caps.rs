//! Caps in front of a device: a limit on operations or bytes a second, with or without burst credits.
//!
//! # Why
//! A network volume is fast until its credits are spent, and then ten times slower; an instance has a cap of its own,
//! whatever its volumes could deliver.
//!
//! # How it works
//! A cap is a server that takes 1/burst of a second for each unit. Credits grow by `base` a second up to their maximum
//! and fall by one with each unit; without credits a unit waits until there is one. The burst of a full bucket
//! therefore lasts credits / (burst - base) seconds.
//!
//! # Limits
//! Requests pass in order of arrival. A long request takes its units at once.
//!
//! # Example
//! gp2 with 100 GiB: base 300, burst 3000, 5.4 million credits: the burst lasts 5.4e6 / 2700 = 2000 s.

use super::spec::{CapSpec, CapUnit};

const NS_PER_S: f64 = 1e9;

/// A cap with its credits and the time at which its server is free.
#[derive(Debug)]
pub(super) struct Cap {
    unit: CapUnit,
    base_per_ns: f64,
    burst_ns: f64,
    most_credits: f64,
    credits: f64,
    /// When the last unit has passed: whole nanoseconds, and the fraction of one.
    free_ns: u64,
    free_part: f64,
}

impl Cap {
    pub(super) fn new(spec: &CapSpec) -> Cap {
        // Without credits, units pass at the base rate one after the other.
        let rate = if spec.credits > 0.0 { spec.burst_per_s } else { spec.base_per_s };
        Cap {
            unit: spec.unit,
            base_per_ns: spec.base_per_s / NS_PER_S,
            burst_ns: NS_PER_S / rate,
            most_credits: spec.credits,
            credits: spec.credits,
            free_ns: 0,
            free_part: 0.0,
        }
    }

    /// Returns when a request that arrives at `at_ns` has passed the cap.
    pub(super) fn admit(&mut self, at_ns: u64, len_bytes: u32) -> u64 {
        let units = self.unit.units(len_bytes);

        if self.free_ns < at_ns {
            let idle_ns = (at_ns - self.free_ns) as f64 - self.free_part;
            self.credits = (self.credits + idle_ns * self.base_per_ns).min(self.most_credits);
            (self.free_ns, self.free_part) = (at_ns, 0.0);
        }

        let mut taken_ns = units * self.burst_ns;
        if self.most_credits > 0.0 {
            let left = self.credits - units + taken_ns * self.base_per_ns;
            if left < 0.0 {
                taken_ns += -left / self.base_per_ns;
            }
            self.credits = left.clamp(0.0, self.most_credits);
        }

        let end = self.free_part + taken_ns;
        let whole = end as u64;
        self.free_part = end - whole as f64;
        self.free_ns = self.free_ns.saturating_add(whole);
        self.free_ns
    }
}
