//! The settings of the closed loop, and the bounds that the disk imposes on it.

use super::tuning::{GOAL_MARGIN, THROUGHPUT_GOAL_MAX, THROUGHPUT_GOAL_MIN};

/// Settings of the closed loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ControlConfig {
    /// Whether the window is adapted. If not, it stays at its bound.
    pub enabled: bool,
    /// The smallest capacity scale, above 0.
    pub scale_min: f64,
    /// The largest capacity scale, at least `scale_min`. If equal, the scale is fixed.
    pub scale_max: f64,
    /// The part of the disk's full throughput that the window keeps, 0.5 to 0.99 (other values count as the nearest).
    /// The higher it is, the longer requests wait in the device. The latency goal bounds the window nevertheless. The
    /// rest is given up in full only while classes that send little get requests often, at least a hundred times a
    /// second.
    pub throughput_goal: f64,
}

/// The throughput goal if none is set.
pub const DEFAULT_THROUGHPUT_GOAL: f64 = 0.9;

impl ControlConfig {
    /// No closed loop: the window stays at its bound, and tokens are given out at the model's rate.
    pub const OFF: ControlConfig =
        ControlConfig { enabled: false, scale_min: 1.0, scale_max: 1.0, throughput_goal: DEFAULT_THROUGHPUT_GOAL };
}

impl Default for ControlConfig {
    fn default() -> ControlConfig {
        ControlConfig { enabled: true, scale_min: 0.05, scale_max: 1.0, throughput_goal: DEFAULT_THROUGHPUT_GOAL }
    }
}

/// Bounds that the disk's configuration imposes on the controller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The largest window, in model device time; [`Controller::set_bound`] may raise it.
    pub(crate) bound_ns: u64,
    /// The smallest window, whatever the requests cost.
    pub(crate) min_window_ns: u64,
    /// Latency of a small request on the idle disk; 0 if unknown.
    pub(crate) unloaded_latency_ns: u64,
    /// Most model device time that the tokens allow in a second at a capacity scale of 1, in seconds, in the long run:
    /// 1, or 2 if operations and bytes are limited apart.
    pub(crate) rate_max: f64,
    /// Whether the directions do not disturb each other.
    pub(crate) is_duplex: bool,
}

/// Returns the elasticity at which a disk gives `throughput_goal` of its full throughput, less a margin because the
/// window varies. Of k channels chosen at random, n requests keep n / (n + k - 1) busy (a closed queueing network with
/// equal stations), and the elasticity there is 1 minus that. A sharper knee gives more than the goal.
pub(super) fn elasticity_goal(throughput_goal: f64) -> f64 {
    GOAL_MARGIN * (1.0 - throughput_goal)
}

/// Returns the nearest valid throughput goal.
pub(super) fn clamped_goal(throughput_goal: f64) -> f64 {
    let goal = if throughput_goal.is_nan() { DEFAULT_THROUGHPUT_GOAL } else { throughput_goal };
    goal.clamp(THROUGHPUT_GOAL_MIN, THROUGHPUT_GOAL_MAX)
}
