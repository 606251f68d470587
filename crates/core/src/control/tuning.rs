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
//! Two windows that differ by twice [`PROBE_LN`], rates 1.00 and 0.98: elasticity ln(1/0.98) / 0.226 = 0.089, just above the 0.08
//! of the default throughput goal.

/// The least and the largest throughput goal, and the part of what is missing to 1 that the elasticity may be.
pub(super) const THROUGHPUT_GOAL_MIN: f64 = 0.5;
pub(super) const THROUGHPUT_GOAL_MAX: f64 = 0.99;
pub(super) const GOAL_MARGIN: f64 = 0.8;
/// Completions in a phase, near the knee and far from it.
pub(super) const PHASE_COMPLETIONS: u64 = 256;
pub(super) const PHASE_COMPLETIONS_FAR: u64 = 64;
/// The least work in a phase, in windows.
pub(super) const PHASE_WINDOWS: f64 = 8.0;
pub(super) const PHASE_WINDOWS_FAR: f64 = 2.0;
/// The least work in a phase, in completions of the size in which the disk spends most time.
pub(super) const PHASE_TYPICAL_PART: f64 = 0.5;
/// Windows whose ln differs by less than this cannot be compared.
pub(super) const PROBE_LN_MIN: f64 = 0.02;
/// The requests in flight must differ by this part of what the windows do.
pub(super) const PROBE_TOLD_MIN: f64 = 0.25;

/// Standard errors by which what pairs gain must differ from what the goal asks for.
pub(super) const ERRORS_NEEDED: f64 = 2.0;
/// Pairs after which the window is taken to be right.
pub(super) const PAIRS_MAX: f64 = 64.0;
/// Least pairs before a short step downwards, which costs throughput where it was wrong: at first, and after several that were.
pub(super) const PATIENCE_MIN: f64 = 3.0;
pub(super) const PATIENCE_MAX: f64 = 32.0;
/// A single pair counts for at most this many standard deviations.
pub(super) const OUTLIER: f64 = 3.0;
/// Standard deviation of what a pair gains, in ln(rate), before anything is known, and at the least.
pub(super) const NOISE_PRIOR: f64 = 0.1;
pub(super) const NOISE_MIN: f64 = 0.003;
/// Weight of the latest difference between two pairs in that deviation, and the deviation over the mean difference of normal
/// numbers: sqrt(pi) / 2.
pub(super) const NOISE_SMOOTHING: f64 = 0.1;
pub(super) const DEVIATION_PER_DIFFERENCE: f64 = 0.886;
/// Half the distance of the two windows of a pair, in ln(window): at the least (12 %), at the most (28 %), how much wider where
/// both admit the same requests and how much narrower where they do not, and per noise (a single elasticity is then known to 0.2).
pub(super) const PROBE_LN: f64 = 0.113;
pub(super) const PROBE_LN_MAX: f64 = 0.25;
pub(super) const PROBE_WIDEN: f64 = 1.3;
pub(super) const PROBE_NARROW: f64 = 0.98;
pub(super) const PROBE_PER_NOISE: f64 = 2.5;
/// Steps in ln(window): the longest, the longest downwards, the shortest, and from where on the knee is far.
pub(super) const STEP_FAR: f64 = 0.7;
pub(super) const STEP_DOWN_MAX: f64 = 0.25;
pub(super) const STEP_MIN: f64 = 0.03;
pub(super) const STEP_IS_FAR: f64 = 0.2;
/// Factors of the step after a decision like the last, and after one that turns.
pub(super) const STEP_GROW: f64 = 1.5;
pub(super) const STEP_SHRINK: f64 = 0.4;

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
/// Capacity scale over the rate at full window: above the upper probe near the knee, so that tokens do not cut it.
pub(super) const SCALE_HEADROOM: f64 = 1.15;
/// Growth in a period in which tokens were the limit: this at first, doubled in each further one in a row, up to the
/// second.
pub(super) const SCALE_GROWTH: f64 = 0.05;
pub(super) const SCALE_GROWTH_MAX: f64 = 0.2;
/// The least work in a period with a full window, in requests of the size in which the disk spends most time.
pub(super) const SCALE_TYPICAL: f64 = 32.0;
/// Smaller changes than this are not reported.
pub(super) const SCALE_REPORT: f64 = 0.05;

/// The bound over the unloaded latency of the requests of late: of channels asked at random, three requests each keep 0.95 busy
/// where services are alike.
pub(crate) const BOUND_UNLOADED: f64 = 3.0;
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
