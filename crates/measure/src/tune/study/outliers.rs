//! Finds the runs that differ too much from the others.
//!
//! **Why.** One run during a backup moves the mean and inflates the standard deviation, and so hides itself. The median
//! and the median absolute deviation change little as long as more than half of the runs are good.
//!
//! **How.** Modified z-score: 0.6745 |x - median| / MAD, an outlier above 3.5 (Iglewicz, Hoaglin: How to Detect and
//! Handle Outliers, 1993). A value within 3 % of the median is never an outlier: among runs that agree to a per mille,
//! a value that differs by a per cent would be one.
//!
//! **Limits.** Values are assumed to be rates, so that a per cent is meaningful. Fewer than three values have no
//! outliers, nor have two groups of equal size.
//!
//! **Example.** 100, 101, 99, 100, 60: median 100, deviations 0, 1, 1, 0, 40, MAD 1: the score of 60 is 27. It is an
//! outlier.

use plimsoll_figures::series::median;

/// Upper quartile of the normal distribution: scales a median absolute deviation to a standard deviation.
const NORMAL_QUARTILE: f64 = 0.6745;
/// Largest score that is no outlier; the value that Iglewicz and Hoaglin recommend.
const SCORE_MAX: f64 = 3.5;
/// Deviation from the median, as a part of the median, within which no value is an outlier.
const DEVIATION_MIN: f64 = 0.03;
/// Fewest values that can have an outlier. Of two values, either may be wrong.
const VALUES_MIN: usize = 3;

/// Returns for each of `values`, in order, whether it is an outlier. A value that is not finite always is. With fewer
/// than three finite values no other is.
pub(crate) fn outliers(values: &[f64]) -> Vec<bool> {
    let finite: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    let centre = median(&finite).unwrap_or(0.0);
    let deviations: Vec<f64> = finite.iter().map(|value| (value - centre).abs()).collect();
    let spread = median(&deviations).unwrap_or(0.0);
    let is_outlier = |value: &f64| {
        let deviation = (value - centre).abs();
        let is_far = NORMAL_QUARTILE * deviation > SCORE_MAX * spread && deviation > DEVIATION_MIN * centre.abs();
        !value.is_finite() || (finite.len() >= VALUES_MIN && is_far)
    };
    values.iter().map(is_outlier).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_bad_run_is_found_and_good_runs_are_left_alone() {
        let cases: [(&[f64], &[usize]); 11] = [
            (&[], &[]),
            (&[7.0], &[]),
            (&[1.0, 100.0], &[]),
            (&[100.0, 101.0, 99.0, 100.0, 60.0], &[4]),
            // MAD 1.5 around 100; 3.5 / 0.6745 * 1.5 = 7.78 is allowed.
            (&[98.0, 99.0, 100.0, 101.5, 107.0], &[]),
            (&[98.0, 99.0, 100.0, 101.5, 108.0], &[4]),
            // Three equal values: zero spread, and 3 % are still allowed.
            (&[100.0, 100.0, 100.0, 100.0, 102.9], &[]),
            (&[100.0, 100.0, 100.0, 100.0, 103.1], &[4]),
            (&[50.0, 100.0, 100.0, 100.0, 150.0], &[0, 4]),
            (&[1.0, 1.0, 1.0, 2.0, 2.0, 2.0], &[]),
            (&[100.0, f64::NAN, 100.0], &[1]),
        ];
        for (values, expect) in cases {
            let found: Vec<usize> =
                outliers(values).iter().enumerate().filter(|(_, is)| **is).map(|(index, _)| index).collect();
            assert_eq!(found, expect, "{values:?}");
        }
    }

    proptest! {
        #[test]
        fn runs_within_three_per_cent_have_none(values in prop::collection::vec(98.6..101.4f64, 5)) {
            prop_assert!(outliers(&values).iter().all(|is| !is), "{values:?}");
        }

        #[test]
        fn a_tenth_of_the_rate_is_always_found(values in prop::collection::vec(95.0..105.0f64, 4..20)) {
            let mut values = values;
            values.push(10.0);
            prop_assert!(outliers(&values).last().is_some_and(|is| *is));
        }

        #[test]
        fn the_unit_and_the_order_do_not_matter(values in prop::collection::vec(1.0..100.0f64, 0..12)) {
            let scaled: Vec<f64> = values.iter().map(|value| value * 4096.0).collect();
            prop_assert_eq!(outliers(&values), outliers(&scaled));
            let backwards: Vec<f64> = values.iter().rev().copied().collect();
            let mut found = outliers(&backwards);
            found.reverse();
            prop_assert_eq!(outliers(&values), found);
            // The median is never an outlier, so at least half of the values remain.
            prop_assert!(outliers(&values).iter().filter(|is| **is).count() * 2 <= values.len());
        }
    }
}
