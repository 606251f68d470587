//! Capacity that changes with time, and stalls.
//!
//! # Why
//! Disks throttle when hot, share hardware with neighbours, and now and then stall for milliseconds. A scheduler must
//! notice, and must not take the cause to be its own load.
//!
//! # How it works
//! The state is brought up to date when a request arrives: due steps of the capacity, steps of the neighbours' random
//! walk, stalls. A random stall comes after an exponential gap and lasts a Pareto time.
//!
//! # Limits
//! After a long time without requests, at most 64 steps of the walk and 64 stalls are made up for.
//!
//! # Example
//! `capacity_steps: vec![(5_000_000_000, 0.25)]`: a quarter of the speed after five seconds.

use plimsoll_core::math::exp;

use super::spec::{DeviceSpec, WeatherSpec};
use crate::dist::{normal, pareto};
use crate::rng::Rng;

const NS_PER_S: f64 = 1e9;
const WALK_MIN: f64 = 0.25;
const STEPS_AT_ONCE: u64 = 64;
const DRIFT_RANGE: (f64, f64) = (0.05, 20.0);

/// The present capacity and the stalls of a device.
#[derive(Debug)]
pub(super) struct Weather {
    spec: WeatherSpec,
    /// The present capacity as a factor.
    pub(super) factor: f64,
    /// Time before which nothing starts.
    pub(super) stalled_until_ns: u64,
    /// The stalls that have begun, begin and end, until the device takes them.
    pub(super) stalls: Vec<(u64, u64)>,
    /// Time of the next change.
    next_ns: u64,
    step_factor: f64,
    next_step: usize,
    next_stall: usize,
    random_stall_ns: u64,
    walk: f64,
    next_walk_ns: u64,
}

impl Weather {
    pub(super) fn new(spec: &DeviceSpec, rng: &mut Rng) -> Weather {
        let spec = spec.weather.clone();
        let random_stall_ns = match spec.stalls_per_s {
            rate if rate > 0.0 => rng.exponential(NS_PER_S / rate) as u64,
            _ => u64::MAX,
        };
        let next_walk_ns = if spec.noise_sigma > 0.0 { spec.noise_step_ns } else { u64::MAX };
        Weather {
            spec,
            factor: 1.0,
            stalled_until_ns: 0,
            stalls: Vec::new(),
            next_ns: 0,
            step_factor: 1.0,
            next_step: 0,
            next_stall: 0,
            random_stall_ns,
            walk: 1.0,
            next_walk_ns,
        }
    }

    #[inline]
    pub(super) fn advance(&mut self, now_ns: u64, rng: &mut Rng) {
        if now_ns >= self.next_ns {
            self.change(now_ns, rng);
        }
    }

    fn change(&mut self, now_ns: u64, rng: &mut Rng) {
        while let Some(&(_, factor)) = self.spec.capacity_steps.get(self.next_step).filter(|step| step.0 <= now_ns) {
            self.step_factor = factor;
            self.next_step += 1;
        }
        while let Some(&(at_ns, for_ns)) = self.spec.stalls.get(self.next_stall).filter(|stall| stall.0 <= now_ns) {
            self.stall(at_ns, at_ns.saturating_add(for_ns));
            self.next_stall += 1;
        }
        self.stall_at_random(now_ns, rng);
        self.walk(now_ns, rng);
        let drift = 1.0 + self.spec.drift_per_s * (now_ns as f64 / NS_PER_S);
        self.factor = self.step_factor * self.walk * drift.clamp(DRIFT_RANGE.0, DRIFT_RANGE.1);
        self.next_ns = self.when_next(now_ns);
    }

    /// Draws the stalls due by `now_ns`. Gaps have no memory: after a long time without requests, unseen stalls need
    /// not be drawn.
    fn stall_at_random(&mut self, now_ns: u64, rng: &mut Rng) {
        if self.spec.stalls_per_s <= 0.0 {
            return;
        }
        for _ in 0..STEPS_AT_ONCE {
            if self.random_stall_ns > now_ns {
                return;
            }
            let spec = &self.spec;
            let for_ns = pareto(rng, spec.stall_min_ns, spec.stall_alpha, spec.stall_max_ns) as u64;
            let until_ns = self.random_stall_ns.saturating_add(for_ns);
            self.stall(self.random_stall_ns, until_ns);
            self.random_stall_ns = until_ns.saturating_add(self.gap_ns(rng));
        }
        self.random_stall_ns = self.random_stall_ns.max(now_ns.saturating_add(self.gap_ns(rng)));
    }

    fn stall(&mut self, from_ns: u64, until_ns: u64) {
        self.stalled_until_ns = self.stalled_until_ns.max(until_ns);
        self.stalls.push((from_ns, until_ns));
    }

    fn gap_ns(&self, rng: &mut Rng) -> u64 {
        (rng.exponential(NS_PER_S / self.spec.stalls_per_s) as u64).max(1)
    }

    fn walk(&mut self, now_ns: u64, rng: &mut Rng) {
        if now_ns < self.next_walk_ns {
            return;
        }
        let due = (now_ns - self.next_walk_ns) / self.spec.noise_step_ns + 1;
        for _ in 0..due.min(STEPS_AT_ONCE) {
            self.walk = (self.walk * exp(self.spec.noise_sigma * normal(rng))).clamp(WALK_MIN, 1.0);
        }
        self.next_walk_ns = self.next_walk_ns.saturating_add(due.saturating_mul(self.spec.noise_step_ns));
    }

    fn when_next(&self, now_ns: u64) -> u64 {
        let step_ns = self.spec.capacity_steps.get(self.next_step).map_or(u64::MAX, |step| step.0);
        let stall_ns = self.spec.stalls.get(self.next_stall).map_or(u64::MAX, |stall| stall.0);
        let next_ns = step_ns.min(stall_ns).min(self.random_stall_ns).min(self.next_walk_ns);
        // Follow a drift in steps of a millisecond.
        if self.spec.drift_per_s != 0.0 { next_ns.min(now_ns.saturating_add(1_000_000)) } else { next_ns }
    }
}
