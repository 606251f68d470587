//! Two series of times with their histograms: mean, median and p99, and whether chance explains the difference.
//!
//! # Why
//! Results of runs are compared, and so are traces, stage by stage. Both use the same statistics.
//!
//! # How it works
//! Means by Welch's test on the means of intervals ([`super::stats`]), quantiles by resampling the histogram
//! ([`super::percentiles`]).
//!
//! # Limits
//! A side with one interval has no known scatter: no p value is given.
//!
//! # Example
//! Intervals of 83 us against intervals of 1 us, none far from its mean: p is next to 0.

use plimsoll_core::Histogram;
use plimsoll_sim::rng::Rng;

use super::percentiles::{self, Buckets, Latencies};
use super::stats::{difference, hochberg, log_ratio, of_series, p_of_difference};

#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// Means of intervals, in ns, in the order of time.
    pub means_ns: &'a [f64],
    pub all: &'a Histogram,
}

/// One figure of two sides.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// `mean`, `p50` or `p99`.
    pub name: &'static str,
    pub base_ns: f64,
    pub other_ns: f64,
    /// Probability that chance makes such a difference; `None` if there are too few requests.
    pub p: Option<f64>,
}

/// Compares mean, p50 and p99 of two sides. Returns no figures if one side has no times.
pub fn figures(base: Side<'_>, other: Side<'_>, rng: &mut Rng) -> Vec<Figure> {
    let Some((base_mean, other_mean)) = of_series(base.means_ns).zip(of_series(other.means_ns)) else {
        return Vec::new();
    };

    let is_known = base_mean.standard_error.is_finite() && other_mean.standard_error.is_finite();
    let difference = log_ratio(&base_mean, &other_mean).unwrap_or_else(|| difference(&base_mean, &other_mean));
    let p = is_known.then(|| p_of_difference(&difference));
    let mut figures = vec![Figure { name: "mean", base_ns: base.all.mean(), other_ns: other.all.mean(), p }];

    let latencies = |side: Side<'_>, mean| Latencies {
        all: Buckets::of(side.all.iter().map(|(upper_ns, count)| (upper_ns, u64::from(count)))),
        runs: Vec::new(),
        mean,
    };

    let (base_all, other_all) = (latencies(base, base_mean), latencies(other, other_mean));
    for (name, percent) in [("p50", 50.0), ("p99", 99.0)] {
        let p = percentiles::compare(&base_all, &other_all, percent / 100.0, rng).and_then(|found| found.p);
        let of = |side: Side<'_>| side.all.percentile(percent) as f64;
        figures.push(Figure { name, base_ns: of(base), other_ns: of(other), p });
    }
    figures
}

/// Corrects the p values of comparisons that are made together; see [`super::stats`].
pub fn together(alone: &[f64]) -> Vec<f64> {
    hochberg(alone)
}
