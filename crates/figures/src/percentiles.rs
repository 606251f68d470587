//! Percentiles of latency and their error, by resampling.
//!
//! # Why
//! A p99 comes from the slowest hundredth of the requests, and slow requests come in clusters. A million requests may
//! say no more about it than a few thousand independent ones.
//!
//! # How it works
//! A result has the histogram of all requests and their mean latency in each interval. The variance of the histogram
//! over the squared standard error of the mean is the effective count n: the number of independent requests that would
//! fix the mean equally well. In a resample of n requests, the share below the histogram's quantile q (0 to 1) follows
//! the beta distribution with n q + 1/2 and n (1 - q) + 1/2. Drawing that share and looking up its latency is therefore
//! the bootstrap of the quantile (Efron: Bootstrap Methods, Annals of Statistics 7, 1979), without drawing n requests.
//! Draws are widened if they scatter less, in proportion, than the mean, or than the quantile over the runs of a side.
//! Each draw is divided by the square root of a chi-squared number over its degrees of freedom, because the effective
//! count is itself an estimate: Student's distribution in place of the normal one.
//!
//! # Limits
//! A quantile is judged only if at least `TAIL_COUNT_MIN` effective requests lie beyond it. Latencies are taken to be
//! spread evenly over their bucket. Intervals carry no histograms: a change that moves the tail but not the mean, in
//! few intervals, is taken to be less correlated than it is.
//!
//! # Example
//! Latencies with a mean of 100 us, a standard deviation of 50 us, and a mean known to 0.3 us: n = (50 / 0.3)^2 =
//! 27 800, 28 of them beyond the p99.9.

use plimsoll_core::Histogram;
use plimsoll_sim::dist::{normal, uniform};
use plimsoll_sim::rng::Rng;

use super::stats::{Estimate, difference, p_of_difference};

/// Fewest effective requests beyond a quantile. With fewer, the quantile is not judged.
const TAIL_COUNT_MIN: f64 = 5.0;
/// Resamples drawn for each quantile.
const DRAWS: usize = 2000;
/// Fewest draws on the far side of "no difference" for a p value by counting. Below that, Student's tail is more exact
/// than the count.
const DRAWS_FOR_TAIL: usize = 10;
/// A histogram of latencies with its mean and variance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Buckets {
    /// Lower and upper end of a bucket in nanoseconds, and the requests up to the upper end.
    ends: Vec<(f64, f64, f64)>,
    mean_ns: f64,
    variance_ns2: f64,
}

impl Buckets {
    /// Builds the histogram from upper ends of buckets in nanoseconds and their counts, in any order.
    pub fn of(counts: impl Iterator<Item = (u64, u64)>) -> Buckets {
        let mut counts: Vec<(u64, u64)> = counts.filter(|(_, count)| *count > 0).collect();
        counts.sort_unstable();
        let (mut buckets, mut below_ns, mut sum) = (Buckets::default(), 0.0_f64, 0.0);
        let (mut first, mut second) = (0.0, 0.0);

        for (upper_ns, count) in counts {
            let lower_ns = below_ns.max(upper_ns.saturating_sub(Histogram::bucket_width_ns(upper_ns)) as f64);
            let (upper_ns, count) = (upper_ns as f64, count as f64);
            let middle_ns = (lower_ns + upper_ns) / 2.0;
            (first, second, sum) = (first + count * middle_ns, second + count * middle_ns * middle_ns, sum + count);
            match buckets.ends.last_mut().filter(|last| last.1 >= upper_ns) {
                Some(last) => last.2 = sum,
                None => buckets.ends.push((lower_ns, upper_ns, sum)),
            }
            below_ns = upper_ns;
        }

        buckets.mean_ns = first / sum.max(1.0);
        buckets.variance_ns2 = (second / sum.max(1.0) - buckets.mean_ns.powi(2)).max(0.0);
        buckets
    }

    fn count(&self) -> f64 {
        self.ends.last().map_or(0.0, |end| end.2)
    }

    /// Returns the latency below which the part `share` of the requests lies, or 0 without requests.
    pub fn quantile_ns(&self, share: f64) -> f64 {
        let wanted = share * self.count();
        let at = self.ends.partition_point(|end| end.2 < wanted).min(self.ends.len().saturating_sub(1));
        let before = at.checked_sub(1).and_then(|at| self.ends.get(at)).map_or(0.0, |end| end.2);
        self.ends.get(at).map_or(0.0, |(lower_ns, upper_ns, until)| {
            let part = ((wanted - before) / (until - before)).clamp(0.0, 1.0);
            lower_ns + (upper_ns - lower_ns) * part
        })
    }

    /// Returns the number of independent requests that would fix the mean latency as well as `mean` does; at most all.
    fn effective_count(&self, mean: &Estimate) -> f64 {
        // The mean of the intervals is in another unit and rounded differently: use its error in proportion.
        let variance = (mean.standard_error / mean.value * self.mean_ns).powi(2);
        let count = if variance > 0.0 { self.variance_ns2 / variance } else { self.count() };
        if count.is_finite() { count.min(self.count()) } else { 0.0 }
    }
}

pub struct Latencies {
    pub all: Buckets,
    pub runs: Vec<Buckets>,
    pub mean: Estimate,
}

/// Draws of the logarithm of a quantile, and the estimate of that logarithm.
struct Resampled {
    draws: Vec<f64>,
    estimate: Estimate,
}

/// A quantile of two sides.
pub struct QuantileDifference {
    pub base_ns: f64,
    pub other_ns: f64,
    /// 95 % interval of other over base; `None` if too few requests lie beyond the quantile.
    pub ratio: Option<(f64, f64)>,
    /// Probability that chance makes such a difference; `None` if too few requests lie beyond the quantile.
    pub p: Option<f64>,
    /// Effective requests of base and other side.
    pub effective_counts: (f64, f64),
}

/// Compares the quantile `share` (0 to 1) of two sides. Returns `None` if a side has no latencies.
pub fn compare(base: &Latencies, other: &Latencies, share: f64, rng: &mut Rng) -> Option<QuantileDifference> {
    let (base_ns, other_ns) = (base.all.quantile_ns(share), other.all.quantile_ns(share));
    if base_ns <= 0.0 || other_ns <= 0.0 {
        return None;
    }

    let effective_counts = (base.all.effective_count(&base.mean), other.all.effective_count(&other.mean));
    let sides = resample(base, share, rng).zip(resample(other, share, rng));
    let Some((base, other)) = sides else {
        return Some(QuantileDifference { base_ns, other_ns, ratio: None, p: None, effective_counts });
    };

    let mut draws: Vec<f64> = base.draws.iter().zip(&other.draws).map(|(base, other)| other - base).collect();
    draws.sort_by(f64::total_cmp);
    let at = |part: f64| draws.get((part * (DRAWS - 1) as f64) as usize).copied().unwrap_or(f64::NAN).exp();
    let below = draws.partition_point(|draw| *draw < 0.0);
    let on_other_side = below.min(DRAWS - below);
    let p = if on_other_side >= DRAWS_FOR_TAIL {
        2.0 * on_other_side as f64 / DRAWS as f64
    } else {
        let most = 2.0 * DRAWS_FOR_TAIL as f64 / DRAWS as f64;
        p_of_difference(&difference(&base.estimate, &other.estimate)).min(most)
    };

    let (ratio, p) = (Some((at(0.025), at(0.975))), Some(p.min(1.0)));
    Some(QuantileDifference { base_ns, other_ns, ratio, p, effective_counts })
}

/// Resamples a quantile. Returns `None` if too few requests lie beyond it.
fn resample(side: &Latencies, share: f64, rng: &mut Rng) -> Option<Resampled> {
    let Latencies { all, runs, mean } = side;
    let count = all.effective_count(mean);
    if count * share.min(1.0 - share) < TAIL_COUNT_MIN {
        return None;
    }

    let centre = all.quantile_ns(share).ln();
    let mut draws: Vec<f64> = (0..DRAWS)
        .map(|_| {
            let below = gamma(count * share + 0.5, rng);
            let above = gamma(count * (1.0 - share) + 0.5, rng);
            all.quantile_ns(below / (below + above)).ln() - centre
        })
        .collect();

    let scatter = (draws.iter().map(|draw| draw * draw).sum::<f64>() / DRAWS as f64).sqrt();
    let standard_error = scatter.max(mean.standard_error / mean.value).max(error_of_runs(runs, share));
    let widening = if scatter > 0.0 { standard_error / scatter } else { 1.0 };
    for draw in &mut draws {
        let chance = 2.0 * gamma(mean.freedom / 2.0, rng) / mean.freedom;
        *draw = centre + *draw * widening / chance.sqrt();
    }

    let estimate = Estimate { value: centre, standard_error, freedom: mean.freedom, effective_count: count };
    Some(Resampled { draws, estimate })
}

/// Returns the standard error of the logarithm of a quantile from its scatter over runs, or 0 for a single run.
fn error_of_runs(runs: &[Buckets], share: f64) -> f64 {
    let values: Vec<f64> = runs.iter().map(|run| run.quantile_ns(share).ln()).collect();
    if values.len() < 2 {
        return 0.0;
    }
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0) / count).sqrt()
}

/// Draws from the gamma distribution with the given shape (positive) and scale 1 (Marsaglia, Tsang: A Simple Method for
/// Generating Gamma Variables, ACM Transactions on Mathematical Software 26, 2000).
fn gamma(shape: f64, rng: &mut Rng) -> f64 {
    if shape < 1.0 {
        // Never 0: callers divide by a draw.
        let uniform = 1.0 - uniform(rng);
        return gamma(shape + 1.0, rng) * uniform.powf(1.0 / shape.max(0.1));
    }
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = normal(rng);
        let v = (1.0 + c * x).powi(3);
        let accepted = 0.5 * x * x + d - d * v + d * v.ln();
        if v > 0.0 && (1.0 - uniform(rng)).ln() < accepted {
            return d * v;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_buckets() {
        let even = Buckets::of((1..=1000).map(|at| (100_000 + at * 100, 5)));
        for (share, expect_ns) in [(0.001, 100_100.0), (0.5, 150_000.0), (0.99, 199_000.0), (1.0, 200_000.0)] {
            assert!((even.quantile_ns(share) / expect_ns - 1.0).abs() < 1e-9, "{share}: {}", even.quantile_ns(share));
        }
        assert_eq!(Buckets::of(std::iter::empty()).quantile_ns(0.5), 0.0);
        let doubled = Buckets::of([(640, 1), (640, 2), (1280, 0)].into_iter());
        assert_eq!((doubled.count(), doubled.ends.len()), (3.0, 1));
    }

    #[test]
    fn gamma_has_its_mean_and_variance() {
        let mut rng = Rng::new(3);
        for shape in [0.5, 1.0, 4.5, 300.0] {
            let draws: Vec<f64> = (0..40_000).map(|_| gamma(shape, &mut rng)).collect();
            let mean = draws.iter().sum::<f64>() / draws.len() as f64;
            let variance = draws.iter().map(|draw| (draw - mean).powi(2)).sum::<f64>() / draws.len() as f64;
            assert!(
                (mean / shape - 1.0).abs() < 0.03 && (variance / shape - 1.0).abs() < 0.06,
                "{shape} {mean} {variance}"
            );
        }
    }

    #[test]
    fn far_tails_need_many_requests() {
        let all = Buckets::of((1..=1000).map(|at| (100_000 + at * 100, 1000)));
        let mean = Estimate { value: 150.0, standard_error: 1.0, freedom: 50.0, effective_count: 51.0 };
        let side = || Latencies { all: all.clone(), runs: vec![all.clone()], mean };
        let mut rng = Rng::new(1);
        // (29 us / 1 us)^2 = 833 effective requests: 8 beyond the p99, 0.8 beyond the p99.9.
        let p99 = compare(&side(), &side(), 0.99, &mut rng).unwrap();
        assert!((p99.effective_counts.0 - 833.0).abs() < 10.0, "{}", p99.effective_counts.0);
        assert!(p99.p.unwrap() > 0.5 && p99.ratio.is_some());
        assert_eq!(compare(&side(), &side(), 0.999, &mut rng).unwrap().p, None);
    }
}
