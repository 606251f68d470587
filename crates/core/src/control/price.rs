//! The price of the goals: which of them bounds the window, and the window that the other would need.
//!
//! # Why
//! On a disk whose rate rises slowly with the requests in it, the throughput goal and the latency goal exclude each
//! other. The window then ends at the latency goal, and throughput is lost that nothing else accounts for.
//!
//! # How it works
//! The latency goal binds if the window stays near its bound and a larger one would still gain more than the throughput
//! goal gives up. The throughput that such a window keeps follows from the trim's excursions, which have measured the
//! drained rate, or else from the elasticity e at the bound. Of k channels chosen at random, n requests keep the part
//! p = n / (n + k - 1) busy, and there e = 1 - p (a closed queueing network with equal stations); so the part g needs
//! n g/(1 - g) (1 - p)/p requests.
//!
//! # Limits
//! An estimate from a slope, of a disk that behaves like channels chosen at random. It is rather too low than too high,
//! by 0.04 in the median of the devices in `tests`: the window also was below its bound for a while, where the slope is
//! steeper. So a smaller window than the estimate may suffice.
//!
//! # Example
//! A window of 0.75 ms at the bound, elasticity 0.20, goal 0.90: it keeps 0.80, and 0.90 needs 0.75 x 9 / 4 = 1.7 ms.

use super::Controller;
use super::tuning::*;

/// The reason why the window of a disk is not larger.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum WindowLimit {
    /// The throughput goal is kept: a larger window would gain less than it gives up. Also as long as nothing is known.
    #[default]
    ThroughputGoal,
    /// A class has too few requests outstanding to hold its part of the disk in a larger window.
    Outstanding,
    /// The latency goal: the throughput goal is missed for its sake.
    LatencyGoal {
        /// The part of the disk's full throughput that the window keeps, about; below the throughput goal.
        kept: f64,
        /// A window that would keep the throughput goal, in nanoseconds of model device time; a smaller one may
        /// suffice. A latency goal of that length allows it.
        needed_ns: u64,
    },
}

impl Controller {
    /// Returns the reason why the window is not larger.
    pub(crate) fn window_limit(&self) -> WindowLimit {
        if self.is_limited_by_outstanding() {
            return WindowLimit::Outstanding;
        }
        let goal = self.config.throughput_goal;
        let kept = self.trim.kept().or_else(|| self.search.elasticity().map(|elasticity| 1.0 - elasticity));
        match kept.map(|kept| kept.max(KEPT_LEAST)) {
            Some(kept) if kept < goal && self.centre_ns >= AT_BOUND * self.bound_ns => {
                let needed_ns = self.centre_ns * goal / (1.0 - goal) * (1.0 - kept) / kept;
                WindowLimit::LatencyGoal { kept, needed_ns: needed_ns as u64 }
            }
            _ => WindowLimit::ThroughputGoal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::bench::*;
    use super::super::*;
    use super::*;

    /// Returns the limit of the window of `device` after some seconds under `bound_ns`, and the window.
    fn limit(device: &Device, bound_ns: u64, seed: u64) -> (WindowLimit, u64) {
        let config = ControlConfig { scale_max: 1.5, ..ControlConfig::default() };
        let run = run(device, Policy::Control(config, limits(bound_ns)), ENDLESS, seed, 6 * SECOND);
        let controller = run.controller.expect("it was under control");
        (controller.window_limit(), controller.centre_ns as u64)
    }

    fn rate(device: &Device, policy: Policy) -> f64 {
        run(device, policy, ENDLESS, 99, 2 * SECOND).rate(100 * MS, 2 * SECOND)
    }

    #[test]
    fn a_bound_that_costs_throughput_is_said_with_its_price() {
        for (channels, requests, weather) in [(8, 30, 0.0), (16, 60, 0.0), (16, 60, 0.03), (32, 100, 0.03)] {
            let calm = device(channels, 1, 0, 0.3, SMALL);
            let full = rate(&calm, Policy::Drain(4000));
            let bound_ns = requests * mean_cost_ns(&calm) as u64;
            for seed in 0..3 {
                let (found, window_ns) = limit(&Device { weather, ..calm.clone() }, bound_ns, seed);
                let case = format!("{channels} channels, {requests} requests, seed {seed}: {found:?}");
                let WindowLimit::LatencyGoal { kept, needed_ns } = found else { panic!("{case}") };
                let truly_kept = rate(&calm, Policy::Window(window_ns)) / full;
                let then = rate(&calm, Policy::Window(needed_ns)) / full;
                println!("{case}: kept {truly_kept:.3}, would be {then:.3}");
                assert!((-0.2..0.04).contains(&(kept - truly_kept)), "{case}: kept {truly_kept:.3}");
                assert!((0.87..0.97).contains(&then), "{case}: would be {then:.3}");
            }
        }
    }

    #[test]
    fn a_wide_bound_costs_nothing() {
        for seed in 0..3 {
            let sharp = device(1, 16, 0, 0.3, SMALL);
            assert_eq!(limit(&sharp, 2 * MS, seed).0, WindowLimit::ThroughputGoal);
            let slow = device(8, 1, 0, 0.3, SMALL);
            assert_eq!(limit(&slow, 4 * MS, seed).0, WindowLimit::ThroughputGoal);
        }
    }
}
