//! Estimates from samples, and tests whether two figures differ.
//!
//! # Why
//! Two runs of the same load on the same disk never give the same figures. A difference counts only if chance would
//! rarely make it.
//!
//! # How it works
//! * [`of_series`]: mean and standard error of samples in the order they were taken, over their effective count. That
//!   count is estimated in two ways, and the smaller is used: the initial monotone sequence of [`crate::series`], and n
//!   (1 - r) / (1 + r) of a first-order process, where r is the autocorrelation at lag 1, freed of its bias -(1 + 4 r)
//!   / n (Marriott, Pope: Bias in the Estimation of Autocorrelations, Biometrika 41, 1954). The first sees any form of
//!   correlation, the second errs less in short series.
//! * [`of_runs`]: several runs of a side. The standard error is the larger of the one from the intervals in the runs
//!   and the one from the scatter of the runs.
//! * [`counting_error`]: rates are counts of whole requests. A few of them may be the same in all samples, and still
//!   are not known exactly.
//! * [`log_ratio`]: how many times the other figure is the base. Figures of disks are above 0, and so are their ratios:
//!   an interval of the difference would reach below -100 % of the base. A closed loop that makes half the requests
//!   takes twice the time for each: by the logarithm both are known equally well, by the difference they are not.
//! * [`p_of_difference`]: Welch's test (The Generalization of "Student's" Problem, Biometrika 34, 1947).
//! * [`hochberg`]: p values of many comparisons at once (Hochberg: A Sharper Bonferroni Procedure for Multiple Tests of
//!   Significance, Biometrika 75, 1988). It suits figures that rise and fall together, as those of one job do.
//!
//! # Limits
//! Samples are taken to be equally long, and their mean to be about normally distributed. A correlation that lasts as
//! long as the series cannot be seen in it.
//!
//! # Example
//! 100 samples with mean 100, standard deviation 3 and no correlation: standard error 0.3. Against another such series
//! with mean 103, the difference of 3 is 7.1 standard errors: p is 2e-11.

use statrs::function::beta::beta_reg;

use crate::series::{mean, mean_interval, student_t};

/// Accepted chance of a false alarm over all comparisons of a report together.
pub const ALPHA: f64 = 0.01;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub value: f64,
    /// Standard error in the same unit; infinite if unknown.
    pub standard_error: f64,
    /// Degrees of freedom of the standard error, at least 1.
    pub freedom: f64,
    /// Independent samples that would fix the figure equally well.
    pub effective_count: f64,
}

impl Estimate {
    /// Returns the estimate with at least this standard error, which the scatter of the samples need not show.
    pub fn with_error_of_at_least(self, standard_error: f64) -> Estimate {
        Estimate { standard_error: self.standard_error.max(standard_error), ..self }
    }
}

/// Returns the standard error, from counting whole requests, of the mean of the rates of runs of these lengths in
/// seconds, in requests a second. A run begins and ends anywhere in a request: the standard deviation of its count is
/// up to half a request.
pub fn counting_error(lengths_s: &[f64]) -> f64 {
    let squares: f64 = lengths_s.iter().map(|length_s| (0.5 / length_s).powi(2)).sum();
    squares.sqrt() / lengths_s.len().max(1) as f64
}

/// Estimates the mean of samples in their order. The error of a single sample is unknown. Returns `None` without
/// samples, or if one is not finite.
pub fn of_series(samples: &[f64]) -> Option<Estimate> {
    let value = mean(samples);
    if samples.is_empty() || !value.is_finite() {
        return None;
    }
    let Some(interval) = mean_interval(samples) else {
        return Some(Estimate { value, standard_error: f64::INFINITY, freedom: 1.0, effective_count: 1.0 });
    };
    let count = samples.len() as f64;
    let deviations: Vec<f64> = samples.iter().map(|sample| sample - value).collect();
    let variance = deviations.iter().map(|deviation| deviation * deviation).sum::<f64>() / count;
    let effective_count = interval.effective_count.min(first_order_count(&deviations)).clamp(2.0, count);
    let standard_error = (variance / (effective_count - 1.0)).sqrt();
    Some(Estimate { value, standard_error, freedom: effective_count - 1.0, effective_count })
}

/// Returns the effective count of samples of a first-order process, given by their deviations from their mean.
fn first_order_count(deviations: &[f64]) -> f64 {
    let count = deviations.len() as f64;
    let squares: f64 = deviations.iter().map(|deviation| deviation * deviation).sum();
    if squares <= 0.0 {
        return count;
    }
    let products: f64 = deviations.iter().zip(deviations.iter().skip(1)).map(|(a, b)| a * b).sum();
    let biased = products / squares;
    let correlation = biased + (1.0 + 4.0 * biased) / count;
    match correlation {
        // Samples that alternate fix their mean at least as well as independent ones.
        ..=-1.0 => count,
        1.0.. => 0.0,
        _ => count * (1.0 - correlation) / (1.0 + correlation),
    }
}

/// Combines runs of the same load into one estimate. Returns `None` without runs.
pub fn of_runs(runs: &[Estimate]) -> Option<Estimate> {
    if let [only] = runs {
        return Some(*only);
    }
    let values: Vec<f64> = runs.iter().map(|run| run.value).collect();
    let count = runs.len() as f64;
    let value = (count > 0.0).then(|| mean(&values))?;
    let squared = |run: &Estimate| (run.standard_error / count).powi(2);
    let within = runs.iter().map(squared).sum::<f64>();
    let between = values.iter().map(|run| (run - value).powi(2)).sum::<f64>() / (count - 1.0) / count;
    Some(if between > within || !within.is_finite() {
        Estimate { value, standard_error: between.sqrt(), freedom: count - 1.0, effective_count: count }
    } else {
        let freedom = satterthwaite(runs.iter().map(|run| (squared(run), run.freedom)));
        let effective_count = runs.iter().map(|run| run.effective_count).sum();
        Estimate { value, standard_error: within.sqrt(), freedom, effective_count }
    })
}

/// Returns the degrees of freedom of a sum of variances, each with its own (Satterthwaite 1946).
fn satterthwaite(variances: impl Iterator<Item = (f64, f64)>) -> f64 {
    let add = |(sum, part): (f64, f64), (variance, freedom): (f64, f64)| {
        (sum + variance, part + variance * variance / freedom.max(1.0))
    };
    let (sum, part) = variances.fold((0.0, 0.0), add);
    let freedom = sum * sum / part;
    if freedom.is_finite() { freedom.max(1.0) } else { 1.0 }
}

/// Returns the difference `other` - `base`.
pub fn difference(base: &Estimate, other: &Estimate) -> Estimate {
    let squares = [base, other].map(|side| (side.standard_error.powi(2), side.freedom));
    Estimate {
        value: other.value - base.value,
        standard_error: squares.iter().map(|(square, _)| square).sum::<f64>().sqrt(),
        freedom: satterthwaite(squares.into_iter()),
        effective_count: base.effective_count.min(other.effective_count),
    }
}

/// Returns the logarithm of `other` / `base`, whose squared standard error is the sum of the squared relative errors of
/// both. Returns `None` if a figure is not above 0.
pub fn log_ratio(base: &Estimate, other: &Estimate) -> Option<Estimate> {
    let relative = |side: &Estimate| {
        (side.value > 0.0).then(|| Estimate {
            value: side.value.ln(),
            standard_error: side.standard_error / side.value,
            ..*side
        })
    };
    Some(difference(&relative(base)?, &relative(other)?))
}

/// Returns the 95 % interval of `other` / `base` ([`log_ratio`]). It lies above 0 however large the errors are. Returns
/// `None` if a figure is not above 0, or an error is unknown.
pub fn ratio_interval(base: &Estimate, other: &Estimate) -> Option<(f64, f64)> {
    let log = log_ratio(base, other)?;
    let factor = (student_t(log.freedom) * log.standard_error).exp();
    let ratio = other.value / base.value;
    factor.is_finite().then_some((ratio / factor, ratio * factor))
}

/// Returns the probability, 0 to 1, that chance makes a difference at least as large.
pub fn p_of_difference(difference: &Estimate) -> f64 {
    if difference.value == 0.0 || difference.standard_error.is_infinite() {
        return 1.0;
    }
    student_p(difference.value / difference.standard_error, difference.freedom)
}

/// Returns the part of Student's t distribution farther from 0 than `t`, both sides together: the incomplete beta
/// function I_x(freedom / 2, 1 / 2) at x = freedom / (freedom + t^2) (Abramowitz, Stegun 26.7.1). This form stays exact
/// for values next to 0.
fn student_p(t: f64, freedom: f64) -> f64 {
    if t.is_nan() {
        return 1.0;
    }
    if t.is_infinite() {
        return 0.0;
    }
    beta_reg(freedom / 2.0, 0.5, freedom / (freedom + t * t)).clamp(0.0, 1.0)
}

/// Corrects p values of single comparisons for being made together: if nothing differs, at most a part p of such
/// families has any corrected value of at most p.
pub fn hochberg(alone: &[f64]) -> Vec<f64> {
    let mut order: Vec<(usize, f64)> = alone.iter().copied().enumerate().collect();
    order.sort_by(|a, b| b.1.total_cmp(&a.1));
    let (mut together, mut smallest) = (vec![1.0; alone.len()], 1.0_f64);
    for (rank, (at, p)) in order.into_iter().enumerate() {
        smallest = smallest.min(p * (rank + 1) as f64);
        if let Some(slot) = together.get_mut(at) {
            *slot = smallest;
        }
    }
    together
}

#[cfg(test)]
mod tests {
    use statrs::function::gamma::ln_gamma;

    use super::*;

    #[test]
    fn p_values_as_tables_have_them() {
        let cases = [
            (12.706, 1.0, 0.05),
            (2.228, 10.0, 0.05),
            (3.169, 10.0, 0.01),
            (2.576, 1e6, 0.01),
            (0.0, 5.0, 1.0),
            (1.0, 1.0, 0.5),
            (6.0, 1e6, 1.973e-9),
        ];
        for (t, freedom, expect) in cases {
            let p = student_p(t, freedom);
            assert!((p / expect - 1.0).abs() < 2e-3, "{t} {freedom}: {p}");
            assert_eq!(p, student_p(-t, freedom));
        }
        assert_eq!(student_p(f64::NAN, 3.0), 1.0);
        assert_eq!(student_p(f64::INFINITY, 3.0), 0.0);
        assert!((ln_gamma(0.5) - std::f64::consts::PI.sqrt().ln()).abs() < 1e-12);
        assert!((ln_gamma(11.0) - 3_628_800_f64.ln()).abs() < 1e-10);
    }

    #[test]
    fn hochberg_by_hand() {
        assert_eq!(hochberg(&[]), Vec::<f64>::new());
        assert_eq!(hochberg(&[0.01, 0.04, 0.03, 0.005]), [0.03, 0.04, 0.04, 0.02]);
        assert_eq!(hochberg(&[0.6, 0.9]), [0.9, 0.9]);
        assert_eq!(hochberg(&[0.008; 7]), [0.008; 7]);
    }

    #[test]
    fn few_samples_claim_little() {
        assert_eq!(of_series(&[]), None);
        assert_eq!(of_series(&[1.0, f64::NAN]), None);
        let one = of_series(&[5.0]).unwrap();
        assert_eq!(p_of_difference(&difference(&one, &Estimate { value: 50.0, ..one })), 1.0);
        let flat = of_series(&[5.0; 10]).unwrap();
        assert_eq!(p_of_difference(&difference(&flat, &flat)), 1.0);
        assert_eq!(p_of_difference(&difference(&flat, &Estimate { value: 6.0, ..flat })), 0.0);
        // 15 requests a second in intervals of 100 ms: 1 and 2 in turn.
        for count in [3, 10, 99, 100] {
            let turns: Vec<f64> = (0..count).map(|at| f64::from(10 + at % 2 * 10)).collect();
            let estimate = of_series(&turns).unwrap();
            assert_eq!(estimate.effective_count, f64::from(count), "{estimate:?}");
        }
        let trend: Vec<f64> = (0..50).map(f64::from).collect();
        assert!(of_series(&trend).unwrap().effective_count < 4.0);
    }

    #[test]
    fn an_interval_of_a_ratio_is_above_zero() {
        let of = |value, standard_error| Estimate { value, standard_error, freedom: 1e6, effective_count: 1e6 };
        let interval = |base: (f64, f64), other: (f64, f64)| ratio_interval(&of(base.0, base.1), &of(other.0, other.1));
        // Relative errors of 1/100 and 1/110: sqrt(1e-4 + 8.264e-5) = 0.013515; 1.1 times or by e^(1.96 * 0.013515).
        let (low, high) = interval((100.0, 1.0), (110.0, 1.0)).unwrap();
        assert!((low - 1.07125).abs() < 1e-4 && (high - 1.12953).abs() < 1e-4, "{low} {high}");
        for error in [0.1, 1.0, 30.0, 90.0, 300.0] {
            for other in [0.01, 5.0, 100.0, 4000.0] {
                let (low, high) = interval((100.0, error), (other, 0.9 * other)).unwrap();
                assert!(0.0 < low && low < other / 100.0 && other / 100.0 < high, "{error} {other}: {low} {high}");
                // Swapping the sides inverts the ratio and the ends of its interval.
                let (down, up) = interval((other, 0.9 * other), (100.0, error)).unwrap();
                assert!((down * high - 1.0).abs() < 1e-9 && (up * low - 1.0).abs() < 1e-9);
            }
        }
        assert_eq!(interval((2.0, 0.0), (3.0, 0.0)), Some((1.5, 1.5)));
        for (base, other) in [((0.0, 1.0), (1.0, 1.0)), ((1.0, 1.0), (0.0, 0.0)), ((1.0, f64::INFINITY), (1.0, 1.0))] {
            assert_eq!(interval(base, other), None);
        }
    }

    #[test]
    fn runs_that_scatter_say_so() {
        let run = |value| Estimate { value, standard_error: 1.0, freedom: 50.0, effective_count: 51.0 };
        let close = of_runs(&[run(100.0), run(100.1), run(99.9)]).unwrap();
        assert!((close.standard_error - 1.0 / 3f64.sqrt()).abs() < 1e-12 && (close.freedom - 150.0).abs() < 1e-9);
        let far = of_runs(&[run(90.0), run(100.0), run(110.0)]).unwrap();
        assert!((far.standard_error - 10.0 / 3f64.sqrt()).abs() < 1e-12 && far.freedom == 2.0);
        assert_eq!(of_runs(&[]), None);
        // Single samples get an error only from the scatter of their runs.
        let single = |value| of_series(&[value]).unwrap();
        assert_eq!(of_runs(&[single(1.0), single(3.0)]).unwrap().standard_error, 1.0);
    }
}
