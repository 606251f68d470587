//! Statistics of a series of samples: its mean with an interval, where it settles, its deviation and trend, and the
//! smallest depth that suffices.
//!
//! # Why
//! A figure without its spread is a guess, and a disk that is still slowing down has not reached its steady rate.
//!
//! # How it works
//! * **Mean** ([`mean_interval`]): Student's t over the effective count of samples. The rates of a disk resemble their
//!   neighbours, so 100 samples may say no more than 20 independent ones: n / tau, where tau = -1 + 2 (G0 + G1 + ...)
//!   and Gm is the sum of the autocorrelations at lags 2m and 2m + 1, up to the first that is not positive, none
//!   greater than the one before (initial monotone sequence; Geyer: Practical Markov Chain Monte Carlo, Statistical
//!   Science 7, 1992).
//! * **Transient** ([`settled_from`]): MSER (White: An Effective Truncation Heuristic for Bias Reduction in Simulation
//!   Output, Simulation 69, 1997): of the first half, leave out the number of samples that makes the standard error of
//!   the rest's mean smallest. A series has not settled if that number is the whole half, or if the rest has a slope
//!   that chance does not explain, given the effective count of its residuals. Samples are left out only if they are
//!   unlike the rest: by three standard errors.
//! * **Depths**: doubled while the rate rises; the smallest depth whose rate equals the best wins.
//!
//! # Limits
//! Samples are taken to be equally long. A trend that begins before the first sample and goes on after the last is seen
//! only if it is clear: more than 5 % over the samples, and more than 2.5 standard errors. A change in the last tenth
//! looks like noise.
//!
//! # Example
//! Samples of 90, 100 and 110 operations/s have mean 100 and standard deviation 10: the deviation is 10 %, and the mean
//! is known to 10 / sqrt(3) * 4.30 = 24.8. Ten samples of 200 and fifty of 100 are settled from the eleventh on.

use std::ops::Range;

/// Part of the best rate that a smaller depth may lose and still be preferred.
const DEPTH_TOLERANCE: f64 = 0.005;

/// Fewest samples whose first and last third are compared.
const SAMPLES_FOR_THIRDS: usize = 6;

/// Fewest samples in which a transient is sought.
const SAMPLES_FOR_TRANSIENT: usize = 4;

/// Standard deviations from the median of the second half beyond which a sample is clipped to that distance: one stall
/// is not the end of a transient.
const CLIP_DEVIATIONS: f64 = 5.0;

/// Factor from a median absolute deviation to the standard deviation of normal samples: 1 / 0.6745.
const DEVIATION_PER_MAD: f64 = 1.4826;

/// Least distance of a transient from what follows it, in standard errors.
const TRANSIENT_STANDARD_ERRORS: f64 = 3.0;

/// Smallest deviation assumed, as a part of the rate. Smaller differences are not real.
const DEVIATION_MIN: f64 = 0.002;

/// Least change of a line, as a part of the mean, that counts as drift.
const DRIFT_MIN: f64 = 0.05;
/// Least slope, in its standard errors, that counts as drift.
const DRIFT_STANDARD_ERRORS: f64 = 2.5;

/// A mean and its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    pub mean: f64,
    /// Half the width of the 95 % confidence interval, in the unit of the samples.
    pub half_width: f64,
    /// Independent samples that would fix the mean equally well, from 2 to the number of samples.
    pub effective_count: f64,
}

/// Returns the mean and 95 % confidence interval of `samples`, in the order they were taken. Returns `None` for fewer
/// than two, or if one is not finite.
pub fn mean_interval(samples: &[f64]) -> Option<Interval> {
    let mean = mean(samples);
    if samples.len() < 2 || !mean.is_finite() {
        return None;
    }
    let deviations: Vec<f64> = samples.iter().map(|sample| sample - mean).collect();
    let variance = deviations.iter().map(|deviation| deviation * deviation).sum::<f64>() / samples.len() as f64;
    let effective_count = effective_count(&deviations);
    // The variance around the mean of the same samples is too small by 1 - 1 / effective_count (Bayley, Hammersley
    // 1946); for independent samples this gives the usual n - 1.
    let standard_error = (variance / (effective_count - 1.0)).sqrt();
    Some(Interval { mean, half_width: student_t(effective_count - 1.0) * standard_error, effective_count })
}

/// Returns the number of independent samples that would fix a mean as well as these deviations from it do: 2 to all.
fn effective_count(deviations: &[f64]) -> f64 {
    let count = deviations.len();
    let squares: f64 = deviations.iter().map(|deviation| deviation * deviation).sum();
    if squares <= 0.0 {
        return count as f64;
    }

    let correlation = |lag: usize| {
        let later = deviations.iter().skip(lag);
        deviations.iter().zip(later).map(|(a, b)| a * b).sum::<f64>() / squares
    };

    let (mut tau, mut before) = (-1.0, f64::INFINITY);
    for lag in (0..count).step_by(2) {
        let pair = (correlation(lag) + correlation(lag + 1)).min(before);
        if pair <= 0.0 {
            break;
        }
        tau += 2.0 * pair;
        before = pair;
    }
    // Alternating samples (tau below 1) never count for more than their number.
    (count as f64 / tau.max(1.0)).clamp(2.0, count as f64)
}

/// 97.5 % quantile of Student's t for 1 to 10 degrees of freedom, as in any statistical table.
const STUDENT_T: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];

/// Returns the 97.5 % quantile of Student's t for `freedom` (at least 1) degrees of freedom, to 0.1 % for whole numbers
/// and to 1 % between 1 and 2. Up to 10 it interpolates the logarithm of a table over 1 / `freedom`; above, it expands
/// around the normal quantile (Abramowitz, Stegun: Handbook of Mathematical Functions, 26.7.5).
pub fn student_t(freedom: f64) -> f64 {
    let below = freedom.max(1.0).floor();
    let pair = STUDENT_T.get(below as usize - 1).zip(STUDENT_T.get(below as usize));
    if let Some((at_below, at_above)) = pair {
        let part = (1.0 / below - 1.0 / freedom.max(1.0)) / (1.0 / below - 1.0 / (below + 1.0));
        return at_below * (at_above / at_below).powf(part);
    }
    let z: f64 = 1.959_964;
    let g1 = (z.powi(3) + z) / 4.0;
    let g2 = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let g3 = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    z + g1 / freedom + g2 / freedom.powi(2) + g3 / freedom.powi(3)
}

/// The sample from which on a series shows its steady state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// Index of the first sample that counts; at most half of all.
    pub index: usize,
    /// False if the transient seems to last beyond the first half, or if the rest still drifts.
    pub is_settled: bool,
}

/// Finds the end of the transient at the beginning of `samples`. Fewer than 4 samples count as settled from the first.
///
/// Chooses the shortest truncation in the first half whose error is within chance of the smallest: the variance of m
/// samples is known only to a part of sqrt(2 / (m - 1)).
pub fn settled_from(samples: &[f64]) -> Settled {
    if samples.len() < SAMPLES_FOR_TRANSIENT {
        return Settled { index: 0, is_settled: true };
    }
    let last_index = samples.len() / 2;
    let errors = truncation_errors(samples, last_index);
    let smallest = errors.iter().copied().fold(f64::INFINITY, f64::min);
    let chance = (2.0 / (samples.len() - last_index - 1) as f64).sqrt();
    let index = errors.iter().position(|error| *error <= smallest * (1.0 + chance)).unwrap_or(0);
    let is_at_bound = index > 0 && errors.last().is_some_and(|last| *last <= smallest);
    let index = if is_transient(samples, index) { index } else { 0 };
    let rest = samples.get(index..).unwrap_or_default();
    Settled { index, is_settled: !is_at_bound && !drifts(rest) }
}

/// Returns whether the first `index` samples are unlike the rest. Leaving out samples that are off by chance would make
/// the interval of the rest too narrow.
fn is_transient(samples: &[f64], index: usize) -> bool {
    let Some((before, rest)) = samples.split_at_checked(index) else { return false };
    let deviation = (deviation_pct(rest) / 100.0).max(DEVIATION_MIN) * mean(rest).abs();
    let standard_error = deviation * (1.0 / before.len() as f64 + 1.0 / rest.len() as f64).sqrt();
    (mean(before) - mean(rest)).abs() > TRANSIENT_STANDARD_ERRORS * standard_error
}

/// Returns, for each number of samples left out at the beginning up to `last_index`, the squared standard error of the
/// mean of the rest: its variance over its number. Samples far from the second half are clipped.
fn truncation_errors(samples: &[f64], last_index: usize) -> Vec<f64> {
    let second_half = samples.get(last_index..).unwrap_or_default();
    let centre = median(second_half).unwrap_or(0.0);
    let distances: Vec<f64> = second_half.iter().map(|sample| (sample - centre).abs()).collect();
    let least_deviation = DEVIATION_MIN * centre.abs();
    let deviation = least_deviation.max(DEVIATION_PER_MAD * median(&distances).unwrap_or(0.0));
    let reach = CLIP_DEVIATIONS * deviation;

    let (mut sum, mut squares, mut count) = (0.0, 0.0, 0.0);
    let mut errors = Vec::with_capacity(samples.len());
    for sample in samples.iter().rev() {
        // Not `clamp`, which panics if the reach is not a number.
        let distance = (sample - centre).max(-reach).min(reach);
        (sum, squares, count) = (sum + distance, squares + distance * distance, count + 1.0);
        let variance = (squares - sum * sum / count).max(0.0) / count;
        errors.push((variance + least_deviation * least_deviation) / count);
    }

    errors.reverse();
    errors.truncate(last_index + 1);
    errors
}

/// Returns whether a line through the samples changes both by a noticeable part of the mean and by more than chance.
fn drifts(samples: &[f64]) -> bool {
    let count = samples.len() as f64;
    let Some(line) = line(samples).filter(|_| samples.len() > 2) else { return false };
    let residual = |(x, sample): (usize, &f64)| sample - line.intercept - line.slope * x as f64;
    let residuals: Vec<f64> = samples.iter().enumerate().map(residual).collect();
    let variance = residuals.iter().map(|residual| residual * residual).sum::<f64>() / (count - 2.0);
    let worth = effective_count(&residuals) / count;
    let standard_error = (variance / worth / squared_positions(samples.len())).sqrt();
    let change = line.slope.abs() * (count - 1.0);
    change > DRIFT_MIN * line.mean.abs() && line.slope.abs() > DRIFT_STANDARD_ERRORS * standard_error
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    pub mean: f64,
    /// Rise from each sample to the next.
    pub slope: f64,
    /// Its value at the first sample.
    pub intercept: f64,
}

/// Fits the line through `samples` with the least squares. Returns `None` for fewer than two, or if one is not finite.
pub fn line(samples: &[f64]) -> Option<Line> {
    let mean = mean(samples);
    if samples.len() < 2 || !mean.is_finite() {
        return None;
    }
    let middle = (samples.len() - 1) as f64 / 2.0;
    let products: f64 = samples.iter().enumerate().map(|(x, sample)| (x as f64 - middle) * (sample - mean)).sum();
    let slope = products / squared_positions(samples.len());
    Some(Line { mean, slope, intercept: mean - slope * middle })
}

/// Returns the sum of the squared distances of 0, 1, ... `count` - 1 from their mean.
fn squared_positions(count: usize) -> f64 {
    let count = count as f64;
    count * (count * count - 1.0) / 12.0
}

/// Returns the standard deviation of the samples (with n - 1) in per cent of their mean, or 0 for fewer than two
/// samples or a mean of 0.
pub fn deviation_pct(samples: &[f64]) -> f64 {
    let mean = mean(samples);
    if samples.len() < 2 || mean <= 0.0 {
        return 0.0;
    }
    let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
    (squares / (samples.len() - 1) as f64).sqrt() / mean * 100.0
}

/// Returns by how many per cent the mean of the last third of the samples differs from that of the first third;
/// negative if it fell. Returns `None` for fewer than six samples.
pub fn change_pct(samples: &[f64]) -> Option<f64> {
    let third = samples.len() / 3;
    if samples.len() < SAMPLES_FOR_THIRDS {
        return None;
    }
    let first = mean(samples.get(..third)?);
    let last = mean(samples.get(samples.len() - third..)?);
    (first > 0.0).then(|| (last / first - 1.0) * 100.0)
}

/// The measured rate and latency of a disk at one depth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DepthPoint {
    /// Requests in flight over all shards; at least 1.
    pub depth: u32,
    /// Operations or bytes per second; positive.
    pub rate: f64,
    /// Median latency in nanoseconds; positive.
    pub p50_ns: u64,
}

/// Returns the smallest depth whose rate is within 0.5 % of the best.
pub fn smallest_sufficient_depth(points: &[DepthPoint]) -> Option<u32> {
    let best = best_rate(points);
    let enough = points.iter().filter(|point| point.rate >= best * (1.0 - DEPTH_TOLERANCE));
    enough.map(|point| point.depth).min()
}

/// Returns whether the last (deepest) point beat all before it by more than 0.5 %, so that a deeper one may be better
/// still.
fn is_still_rising(points: &[DepthPoint]) -> bool {
    match points.split_last() {
        Some((last, before)) => last.rate * (1.0 - DEPTH_TOLERANCE) > best_rate(before),
        None => true,
    }
}

/// Rounds `depth` down to the same number of requests on each shard, at least one each.
pub fn whole_depth(depth: u32, shards: u16) -> u32 {
    let shards = u32::from(shards.max(1));
    (depth / shards).max(1).saturating_mul(shards)
}

/// Returns whether a search tries `depth` after `points`: always up to `usual_depth`, and up to `max_depth` while the
/// rate rises. Tries at least one depth, whatever the number of shards.
pub fn goes_deeper(depth: u32, usual_depth: u32, max_depth: u32, points: &[DepthPoint]) -> bool {
    let is_usual = points.is_empty() || depth <= usual_depth;
    is_usual || (depth <= max_depth && is_still_rising(points))
}

fn best_rate(points: &[DepthPoint]) -> f64 {
    points.iter().map(|point| point.rate).fold(0.0, f64::max)
}

/// Returns the mean, or 0 for no samples.
pub fn mean(samples: &[f64]) -> f64 {
    if samples.is_empty() { 0.0 } else { samples.iter().sum::<f64>() / samples.len() as f64 }
}

/// Returns the middle value, or the mean of the middle two, or `None` for no samples.
pub fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle: Range<usize> = sorted.len().saturating_sub(1) / 2..sorted.len() / 2 + 1;
    sorted.get(middle).filter(|middle| !middle.is_empty()).map(mean)
}

#[cfg(test)]
mod tests;
