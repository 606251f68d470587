//! The constants of the control law.
//!
//! # Why
//! In one place, so that they can be judged together.
//!
//! # How it works
//! Probe, fall and recovery began with values that worked in a prototype. All were then chosen by the figures that
//! `tests` checks, on devices with sharp knees, with independent channels and with a fixed latency.
//!
//! # Limits
//! They are not configurable: a value that suits only one disk would be a mistake in the law.
//!
//! # Example
//! Two windows that differ by twice [`PROBE_LN`], rates 1.00 and 0.98: elasticity ln(1/0.98) / 0.226 = 0.089, just
//! above the 0.08 of the default throughput goal.

/// Smallest and largest throughput goal, and the elasticity sought over the throughput given up, 1 - goal.
pub(super) const THROUGHPUT_GOAL_MIN: f64 = 0.5;
pub(super) const THROUGHPUT_GOAL_MAX: f64 = 0.99;
pub(super) const GOAL_MARGIN: f64 = 0.8;
/// Completions in a phase, near the knee and far from it.
pub(super) const PHASE_COMPLETIONS: u64 = 256;
pub(super) const PHASE_COMPLETIONS_FAR: u64 = 64;
/// Smallest work in a phase, in windows.
pub(super) const PHASE_WINDOWS: f64 = 8.0;
pub(super) const PHASE_WINDOWS_FAR: f64 = 2.0;
/// Smallest work in a phase, in completions of the size in which the disk spends most time.
pub(super) const PHASE_TYPICAL_PART: f64 = 0.5;
/// Least length of a phase, in multiples of the longest recent absence of a queue: one absence more or less must not
/// decide.
pub(super) const PHASE_AWAYS: f64 = 8.0;
/// Most completions that a phase leaves out at its start beyond the requests in flight; with fewer in flight, it leaves
/// out twice their number.
pub(super) const SETTLED_MORE: u64 = 64;
/// Windows of a pair whose ln differs by less than this cannot be compared.
pub(super) const PROBE_LN_MIN: f64 = 0.02;
/// The requests in flight of a pair must differ by at least this part of the difference of the windows.
pub(super) const PROBE_TOLD_MIN: f64 = 0.25;

/// Weight of a pair in the elasticity about the window, the factor of earlier pairs after a long step, and the least
/// sum of ln(w+/w-) that gives it.
pub(super) const ELASTICITY_FADES: f64 = 1.0 / 128.0;
pub(super) const ELASTICITY_FAR: f64 = 0.25;
pub(super) const ELASTICITY_TOLD: f64 = 1.0;
/// The least part of the throughput that a window is reported to keep: a slope does not show a knee farther away.
pub(super) const KEPT_LEAST: f64 = 0.2;
/// The part of the bound from which on a window counts as at its bound: one long step below.
pub(super) const AT_BOUND: f64 = 0.75;

/// Standard errors by which the gain of pairs must differ from the goal.
pub(super) const ERRORS_NEEDED: f64 = 2.0;
/// Pairs after which the window counts as right.
pub(super) const PAIRS_MAX: f64 = 64.0;
/// Fewest pairs before a short step downwards, which costs throughput if it is wrong: at first, and after several wrong
/// ones.
pub(super) const PATIENCE_MIN: f64 = 3.0;
pub(super) const PATIENCE_MAX: f64 = 32.0;
/// A single pair counts for at most this many standard deviations.
pub(super) const OUTLIER: f64 = 3.0;
/// Standard deviation of a pair's gain, in ln(rate): before any pair, and its lower bound.
pub(super) const NOISE_PRIOR: f64 = 0.1;
pub(super) const NOISE_MIN: f64 = 0.003;
/// Weight of the latest difference between two pairs in that deviation, and the ratio of deviation to mean difference
/// of normal numbers, sqrt(pi) / 2.
pub(super) const NOISE_SMOOTHING: f64 = 0.1;
pub(super) const DEVIATION_PER_DIFFERENCE: f64 = 0.886;
/// Half the distance of the two windows of a pair, in ln(window): smallest (12 %), largest (28 %), factors by which it
/// widens if both admit the same requests and narrows if not, and the distance per noise (one pair then gives the
/// elasticity to 0.2).
pub(super) const PROBE_LN: f64 = 0.113;
pub(super) const PROBE_LN_MAX: f64 = 0.25;
pub(super) const PROBE_WIDEN: f64 = 1.3;
pub(super) const PROBE_NARROW: f64 = 0.98;
pub(super) const PROBE_PER_NOISE: f64 = 2.5;
/// Steps in ln(window): the longest, the longest downwards, the shortest, and the one from which on the knee counts as
/// far.
pub(super) const STEP_FAR: f64 = 0.7;
pub(super) const STEP_DOWN_MAX: f64 = 0.25;
pub(super) const STEP_MIN: f64 = 0.03;
pub(super) const STEP_IS_FAR: f64 = 0.2;
/// Factors of the step after a decision in the same direction, and after one in the opposite.
pub(super) const STEP_GROW: f64 = 1.5;
pub(super) const STEP_SHRINK: f64 = 0.4;

/// The next smaller part of the centre over the part in force.
pub(super) const TRIM_STEP: f64 = 0.8;
/// The part of what the throughput goal gives up that the trim may lose, because the rates that it compares are not
/// exact.
pub(super) const TRIM_MARGIN: f64 = 0.9;
/// The most that a part may lose, and the loss that it may have in any case if the reference cannot be raised; both
/// over what the throughput goal gives up.
pub(super) const BUDGET_MOST: f64 = 2.0;
pub(super) const BUDGET_LARGEST: f64 = 0.3;
/// The loss of the largest reference, over what the goal gives up, from which on the search decides, which may exceed
/// the bound.
pub(super) const LARGEST_LOSS: f64 = 1.5;
/// The largest growth of the part at a time, and the part above which it counts as the whole.
pub(super) const CLIMB_MOST: f64 = 2.0;
pub(super) const CLIMB_END: f64 = 0.9;
/// The largest part at which a climb begins.
pub(super) const CLIMB_FROM_MOST: f64 = 0.5;
/// The growth of a reference none of whose parts keeps the goal.
pub(super) const TRIM_RAISE: f64 = 1.5;
/// Rounds in a row after which the likelier side decides: the loss is within a few per cent of the budget.
pub(super) const CLIMB_ROUNDS: f64 = 12.0;
/// Smallest work in a phase while the trim is on, in windows: requests of one window may complete together, and a phase
/// of three windows then shows a rate of two or four.
pub(super) const TRIM_WINDOWS: f64 = 12.0;
/// Time between two rounds at rest, in multiples of the reference's phase, and its maximum.
pub(super) const TRIM_REST: u64 = 250;
pub(super) const TRIM_REST_MOST_NS: u64 = 10_000_000_000;
/// The window of an excursion, and its minimum in bounds. It is to hold the requests that programs usually have
/// outstanding, and no more, because some disks give less with very many.
pub(super) const EXCURSION_NS: f64 = 16e6;
pub(super) const EXCURSION_BOUNDS: f64 = 4.0;
/// The device fills, in a phase of the trim, as long as the requests in it become more by a `FILL_PART`-th.
pub(super) const FILL_PART: u32 = 8;
/// Completions of each of its two phases.
pub(super) const EXCURSION_COMPLETIONS: u64 = 192;
/// Excursions before the first trial, the fewest after which a reference is raised, and the most that count in their
/// mean.
pub(super) const EXCURSIONS_FIRST: f64 = 8.0;
pub(super) const EXCURSIONS_LEAST: f64 = 3.0;
pub(super) const EXCURSIONS_MEMORY: f64 = 16.0;
/// Rounds at rest between two later excursions: the first number, and the largest.
pub(super) const EXCURSION_ROUNDS_MIN: u32 = 8;
pub(super) const EXCURSION_ROUNDS_MAX: u32 = 64;
/// The most that an excursion counts for, over what the goal gives up, in ln(rate); and its longest time under load.
pub(super) const EXCURSION_OUTLIER: f64 = 2.0;
pub(super) const EXCURSION_MOST_NS: u64 = 500_000_000;
/// Time until the next round after one that was given up, in multiples of its length; how often it doubles if more are
/// given up; and its minimum.
pub(super) const GIVEN_UP_REST: u64 = 10;
pub(super) const GIVEN_UP_DOUBLINGS: u32 = 4;
pub(super) const GIVEN_UP_REST_MIN_NS: u64 = 100_000_000;
/// Time under load until a trim that has ended begins again: at first, at first if the largest reference is far from
/// the goal, its growth each time, and its maximum. The growth of the reference at which the trim begins sooner.
pub(super) const EXCURSION_RETRY_NS: u64 = 500_000_000;
pub(super) const EXCURSION_RETRY_FAR_NS: u64 = 8_000_000_000;
pub(super) const EXCURSION_RETRY_GROWTH: u64 = 4;
pub(super) const EXCURSION_RETRY_MAX_NS: u64 = 160_000_000_000;
pub(super) const EXCURSION_GROWTH: f64 = 4.0;
/// Time over which wake-ups of guests are counted, the number at which the trim begins, and that below which it ends.
pub(super) const GUEST_MEMORY_NS: f64 = 1e9;
pub(super) const GUESTS_BEGIN: f64 = 100.0;
pub(super) const GUESTS_STAY: f64 = 20.0;
/// Time for which a trim is kept for guests that return.
pub(super) const LEFT_MEMORY_NS: u64 = 60_000_000_000;

/// Part of the usual rate below which a turnover is a fall; `RECOVERY_RATIO` is the part above which it is a recovery.
pub(super) const FALL_RATIO: f64 = 0.55;
/// Part of the usual rate below which half a turnover suffices.
pub(super) const FALL_RATIO_DEEP: f64 = 0.35;
pub(super) const RECOVERY_RATIO: f64 = 1.4;
/// Time after a fall within which a recovery means that the disk is as it was before.
pub(super) const CUT_MEMORY_NS: u64 = 1_000_000_000;
/// Requirements of a turnover: completions, and windows of work.
pub(super) const TURNOVER_COMPLETIONS: u64 = 16;
pub(super) const TURNOVER_WINDOWS: f64 = 3.0;
/// Least completions of a turnover over those that other queues may not have reported, and least length over the time
/// for which they keep them: otherwise reports that come together look like a fall and a recovery.
pub(super) const UNSEEN_PARTS: u64 = 4;
/// A fall must also exceed this many usual deviations of a turnover from the usual rate, because some mixes of sizes
/// vary a lot.
pub(super) const FALL_DEVIATIONS: f64 = 4.0;
/// Weight of a turnover in the usual rate and deviation.
pub(super) const RATE_SMOOTHING: f64 = 0.1;
/// Completions after which a cut is judged, and how far the rate may have risen meanwhile if the cut is to stay.
pub(super) const CONFIRM_COMPLETIONS: u64 = 24;
pub(super) const CONFIRM_MAX: f64 = 1.6;

/// Silence, in mean latencies, that counts as a stall, and the largest factor by which mixed sizes lengthen it.
pub(super) const STALL_LATENCIES: f64 = 4.0;
pub(super) const STALL_LONGER_MAX: f64 = 2.0;
/// The shortest stall, and the stall while no latency is known.
pub(super) const STALL_MIN_NS: u64 = 10_000_000;
pub(super) const STALL_UNKNOWN_NS: u64 = 100_000_000;
/// Latencies are clipped at this many mean latencies (but never below the shortest stall).
pub(super) const CLIP_LATENCIES: f64 = 16.0;
/// The clip while no latency is known: 100 s. Sums of longer ones would overflow after a jump of the clock.
pub(super) const CLIP_UNKNOWN_NS: u64 = 100_000_000_000;
/// Weight of one completion in mean latency and mean cost, and the largest weight of a step.
pub(super) const MEAN_WEIGHT: f64 = 0.005;
pub(super) const MEAN_WEIGHT_MAX: f64 = 0.5;

/// Interval between decisions on the capacity scale.
pub(super) const SCALE_PERIOD_NS: u64 = 10_000_000;
/// Smallest divisor for the certain part of the latencies: a rate that uncertain raises the scale to its bound anyway.
pub(super) const CERTAIN_LEAST: f64 = 0.01;
/// Capacity scale over the rate at full window: above the upper probe near the knee, so that tokens do not cut it.
pub(super) const SCALE_HEADROOM: f64 = 1.15;
/// Growth in a period in which tokens were the limit: the first, and the largest; it doubles in each further such
/// period in a row.
pub(super) const SCALE_GROWTH: f64 = 0.05;
pub(super) const SCALE_GROWTH_MAX: f64 = 0.2;
/// Smallest work in a period with a full window, in requests of the size in which the disk spends most time.
pub(super) const SCALE_TYPICAL: f64 = 32.0;
/// Relative change of the capacity scale below which there is no event.
pub(super) const SCALE_REPORT: f64 = 0.05;

/// The bound over the recent requests' unloaded latency. Of channels chosen at random, three requests each keep 0.95
/// busy if all services are alike.
pub(crate) const BOUND_UNLOADED: f64 = 3.0;
/// Elasticity from which on the bound does not hold: of independent channels, two thirds are busy then. And the largest
/// window then, over the bound.
pub(super) const BEYOND_ELASTICITY: f64 = 0.35;
pub(super) const BEYOND_MOST: f64 = 64.0;
/// Time in which the room for absences fades, and its maximum, in bounds.
pub(super) const AWAY_FADES_NS: f64 = 4e9;
pub(super) const AWAY_MOST: f64 = 16.0;
/// The part of the bound below which that room counts as none.
pub(super) const AWAY_LEAST: f64 = 0.01;
/// Time over which the part of the time in which the device ran dry is smoothed.
pub(super) const DRY_MEMORY_NS: f64 = 1e9;
/// Part of the largest window from which on a window is not made larger for absences.
pub(super) const AWAY_NEAR: f64 = 0.95;
/// Relative change of the centre by outstanding work after which measurements start over.
pub(super) const CAP_LEAP: f64 = 0.1;
/// The largest window over the outstanding work of the classes: of the class with the least for its part of the disk,
/// or of all together if all of it is in flight.
pub(crate) const DEMAND_PART: f64 = 0.75;
/// Smallest window, in requests of typical size.
pub(super) const WINDOW_MIN_REQUESTS: f64 = 3.0;
/// Relative change of the centre below which there is no event.
pub(super) const WINDOW_REPORT: f64 = 0.005;

/// The bound over the first window, unless the unloaded latency is known.
pub(super) const BEGIN_PART: f64 = 8.0;

/// A step learns from at least this many completions of all queues together, or from fewer after `STEP_NS`.
pub(super) const STEP_COMPLETIONS: u64 = 16;
pub(super) const STEP_NS: u64 = 1_000_000;
/// A rate above this many times the tokens' rate is an error of measurement.
pub(super) const RATE_OVER_TOKENS_MAX: f64 = 1.25;
