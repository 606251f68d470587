//! The numbers of the control law.
//!
//! # Why
//! In one place, so that they can be judged together.
//!
//! # How it works
//! Probe, fall and recovery began with values that worked in a prototype; all were then chosen by the figures that
//! `tests` checks, on devices with sharp knees, independent channels and a fixed latency.
//!
//! # Limits
//! They are not configurable: a value that suits one disk only would be a mistake in the law.
//!
//! # Example
//! Two windows that differ by [`PROBE`] squared, rates 1.00 and 0.98: elasticity ln(1/0.98) / ln(1.2544) = 0.089, just
//! above [`ELASTICITY_GOAL`].

/// Ratio of the upper probe to the centre, and of the centre to the lower probe.
pub(super) const PROBE: f64 = 1.12;
/// The elasticity at which the window rests.
pub(super) const ELASTICITY_GOAL: f64 = 0.08;
/// Completions in a phase, near the knee and far from it.
pub(super) const PHASE_COMPLETIONS: u64 = 256;
pub(super) const PHASE_COMPLETIONS_FAR: u64 = 64;
/// The least work in a phase, in windows.
pub(super) const PHASE_WINDOWS: f64 = 8.0;
pub(super) const PHASE_WINDOWS_FAR: f64 = 2.0;
/// The least work in a phase, in completions of the size in which the disk spends most time.
pub(super) const PHASE_TYPICAL_PART: f64 = 0.5;
/// Windows whose ln differs by less than this cannot be compared, and no elasticity counts more than the second.
pub(super) const PROBE_LN_MIN: f64 = 0.02;
pub(super) const ELASTICITY_MAX: f64 = 2.0;
/// Change of ln(window) per unit of elasticity missing, near the knee and far from it.
pub(super) const GAIN: f64 = 0.35;
/// After so many pairs downwards in a row the knee is not near: from then on this gain holds downwards.
pub(super) const DESCENTS_MANY: u32 = 6;
pub(super) const GAIN_DESCENT: f64 = 0.7;
pub(super) const GAIN_FAR: f64 = 2.0;
/// Bounds of one change of ln(window).
pub(super) const STEP_DOWN_MAX: f64 = 0.06;
pub(super) const STEP_DOWN_MAX_FAR: f64 = 0.25;
pub(super) const STEP_UP_MAX: f64 = 0.35;
pub(super) const STEP_UP_MAX_FAR: f64 = 0.7;
/// After a longer step than this the elasticity is not smoothed with what was before.
pub(super) const STEP_FORGET: f64 = 0.1;
/// Weight of a new elasticity, usually and when it is large.
pub(super) const SMOOTHING: f64 = 0.2;
pub(super) const SMOOTHING_LARGE: f64 = 0.6;
/// From here on an elasticity is large.
pub(super) const ELASTICITY_LARGE: f64 = 0.5;

/// A turnover with a rate below this part of the usual one is a fall, above the other a recovery.
pub(super) const FALL_RATIO: f64 = 0.55;
/// A rate as low as this needs only half a turnover.
pub(super) const FALL_RATIO_DEEP: f64 = 0.35;
pub(super) const RECOVERY_RATIO: f64 = 1.4;
/// What a turnover needs: completions, and windows of work.
pub(super) const TURNOVER_COMPLETIONS: u64 = 16;
pub(super) const TURNOVER_WINDOWS: f64 = 3.0;
/// A fall is also this many times the usual deviation of a turnover from the usual rate: some mixes of sizes vary a
/// lot.
pub(super) const FALL_DEVIATIONS: f64 = 4.0;
/// Weight of a turnover in the usual rate and deviation.
pub(super) const RATE_SMOOTHING: f64 = 0.1;
/// Completions after which a cut is judged, and how far the rate may have risen meanwhile for it to stay.
pub(super) const CONFIRM_COMPLETIONS: u64 = 24;
pub(super) const CONFIRM_MAX: f64 = 1.6;

/// A stall is a silence of this many mean latencies, up to so many times longer where sizes are mixed.
pub(super) const STALL_LATENCIES: f64 = 4.0;
pub(super) const STALL_LONGER_MAX: f64 = 2.0;
/// The shortest stall, and what is one as long as no latency is known.
pub(super) const STALL_MIN_NS: u64 = 10_000_000;
pub(super) const STALL_UNKNOWN_NS: u64 = 100_000_000;
/// Latencies are summed up to this many mean latencies (and at least up to the shortest stall).
pub(super) const CLIP_LATENCIES: f64 = 16.0;
/// The same as long as no latency is known: 100 s. Sums of more would overflow after a leap of the clock.
pub(super) const CLIP_UNKNOWN_NS: u64 = 100_000_000_000;
/// Weight of a completion in mean latency and mean cost, and the largest weight of a step.
pub(super) const MEAN_WEIGHT: f64 = 0.005;
pub(super) const MEAN_WEIGHT_MAX: f64 = 0.5;

/// How often capacity scale is decided.
pub(super) const SCALE_PERIOD_NS: u64 = 10_000_000;
/// Less than this part of the latencies is not divided by: a rate that says so little raises the scale to its bound anyway.
pub(super) const CERTAIN_LEAST: f64 = 0.01;
/// Capacity scale over the rate at full window: above [`PROBE`], so that tokens do not cut the upper probe.
pub(super) const SCALE_HEADROOM: f64 = 1.15;
/// Growth in a period in which tokens were the limit: this at first, doubled in each further one in a row, up to the
/// second.
pub(super) const SCALE_GROWTH: f64 = 0.05;
pub(super) const SCALE_GROWTH_MAX: f64 = 0.2;
/// The least work in a period with a full window, in requests of the size in which the disk spends most time.
pub(super) const SCALE_TYPICAL: f64 = 32.0;
/// Smaller changes than this are not reported.
pub(super) const SCALE_REPORT: f64 = 0.05;

/// The bound over the unloaded latency of the requests of late: probes go beyond the centre of the window.
pub(super) const BOUND_UNLOADED: f64 = 1.5;
/// The least window, in mean requests.
pub(super) const WINDOW_MIN_REQUESTS: f64 = 3.0;
/// The least change of the centre that is worth an event, as a part of it.
pub(super) const WINDOW_REPORT: f64 = 0.005;

/// Where the window begins, as a part of its bound, unless the unloaded latency is known.
pub(super) const BEGIN_PART: f64 = 8.0;

/// A step learns from so many completions of all queues together, or after so long.
pub(super) const STEP_COMPLETIONS: u64 = 16;
pub(super) const STEP_NS: u64 = 1_000_000;
/// A rate above this many times what tokens allow is an error of measurement.
pub(super) const RATE_OVER_TOKENS_MAX: f64 = 1.25;
