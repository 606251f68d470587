//! Decides whether a long run has reached its steady state.
//!
//! **Why.** A new or erased SSD writes fast for minutes or hours, then at the rate that it keeps for the rest of its
//! life. The second figure matters, and a standard defines when it has been reached.
//!
//! **How.** The rule is that of the SNIA Solid State Storage Performance Test Specification: rounds of equal length (60
//! s in the specification), of which the last five are the measurement window. The window is steady if the largest and
//! the smallest rate differ by at most 20 % of the mean, and the best straight line through the five changes by at most
//! 10 % of the mean from the first round to the last, four rounds later.
//!
//! **Limits.** Waves longer than five rounds pass as steady. The specification gives up after 25 rounds; here the
//! caller decides.
//!
//! **Example.** 100, 102, 104, 106, 108: mean 104, range 8 / 104 = 7.7 %, slope 2 a round, 4 * 2 / 104 = 7.7 %: steady.

use plimsoll_figures::series::line;

use crate::tune::report::SteadyWindow;

pub(crate) const WINDOW_ROUNDS: usize = 5;
/// Greatest range within the window, in per cent of its mean.
pub(crate) const RANGE_MAX_PCT: f64 = 20.0;
/// Greatest change of the line across the window, in per cent of its mean.
pub(crate) const SLOPE_MAX_PCT: f64 = 10.0;

/// Returns the window of the last five of `rates`, one per round. `None` for fewer, or if their mean is not positive
/// and finite.
pub(crate) fn steady_window(rates: &[f64]) -> Option<SteadyWindow> {
    let window = rates.get(rates.len().checked_sub(WINDOW_ROUNDS)?..)?;
    let line = line(window)?;
    if !(line.mean.is_finite() && line.mean > 0.0) {
        return None;
    }
    let highest = window.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let lowest = window.iter().copied().fold(f64::INFINITY, f64::min);
    let range_pct = (highest - lowest) / line.mean * 100.0;
    let slope_pct = line.slope.abs() * (WINDOW_ROUNDS - 1) as f64 / line.mean * 100.0;
    Some(SteadyWindow {
        mean: line.mean,
        range_pct,
        slope_pct,
        slope_per_round: line.slope,
        intercept: line.intercept,
        attained: range_pct <= RANGE_MAX_PCT && slope_pct <= SLOPE_MAX_PCT,
    })
}

/// Returns the first round, from 0, that ends a steady window.
pub(crate) fn first_steady(rates: &[f64]) -> Option<usize> {
    (0..rates.len()).find(|last| {
        let window = rates.get(..=*last).and_then(steady_window);
        window.is_some_and(|window| window.attained)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn windows_computed_by_hand() {
        // Rates; mean, range %, slope a round, line at the first round; steady.
        let cases: [(&[f64], [f64; 4], bool); 7] = [
            (&[50.0; 5], [50.0, 0.0, 0.0, 50.0], true),
            (&[100.0, 102.0, 104.0, 106.0, 108.0], [104.0, 800.0 / 104.0, 2.0, 100.0], true),
            (&[108.0, 106.0, 104.0, 102.0, 100.0], [104.0, 800.0 / 104.0, -2.0, 108.0], true),
            // Only the last five count.
            (&[900.0, 50.0, 50.0, 50.0, 50.0, 50.0], [50.0, 0.0, 0.0, 50.0], true),
            // A range of exactly 20 % without slope is allowed; 22 % is not.
            (&[100.0, 90.0, 100.0, 110.0, 100.0], [100.0, 20.0, 2.0, 96.0], true),
            (&[100.0, 111.0, 100.0, 89.0, 100.0], [100.0, 22.0, -2.2, 104.4], false),
            // The range is within 20 %, the slope is 12 %.
            (&[94.0, 97.0, 100.0, 103.0, 106.0], [100.0, 12.0, 3.0, 94.0], false),
        ];
        for (rates, [mean, range_pct, slope, intercept], attained) in cases {
            let window = steady_window(rates).unwrap();
            assert!(close(window.mean, mean) && close(window.range_pct, range_pct), "{rates:?}: {window:?}");
            assert!(
                close(window.slope_per_round, slope) && close(window.intercept, intercept),
                "{rates:?}: {window:?}"
            );
            assert!(close(window.slope_pct, slope.abs() * 4.0 / mean * 100.0), "{rates:?}: {window:?}");
            assert_eq!(window.attained, attained, "{rates:?}");
        }
    }

    #[test]
    fn nothing_is_said_of_too_few_rounds_or_of_silence() {
        for rates in [&[][..], &[1.0; 4], &[0.0; 5], &[f64::NAN; 5], &[1.0, 1.0, f64::INFINITY, 1.0, 1.0], &[-1.0; 5]] {
            assert_eq!(steady_window(rates), None, "{rates:?}");
            assert_eq!(first_steady(rates), None, "{rates:?}");
        }
    }

    #[test]
    fn the_first_steady_round_after_a_fall() {
        // 200, then 100 from round 3 on: the first window without a 200 is rounds 3 to 7.
        let rates: Vec<f64> = (0..10).map(|round| if round < 3 { 200.0 } else { 100.0 }).collect();
        assert_eq!(first_steady(&rates), Some(7));
        assert_eq!(first_steady(&[100.0; 5]), Some(4));
        let falling: Vec<f64> = (0..25).map(|round| 1000.0 * 0.9f64.powi(round)).collect();
        assert_eq!(first_steady(&falling), None);
    }

    proptest! {
        #[test]
        fn the_unit_does_not_matter(rates in prop::collection::vec(1.0..1000.0f64, 5..30), factor in 1e-3..1e6f64) {
            let scaled: Vec<f64> = rates.iter().map(|rate| rate * factor).collect();
            let (a, b) = (steady_window(&rates).unwrap(), steady_window(&scaled).unwrap());
            prop_assert!((a.range_pct - b.range_pct).abs() < 1e-6 && (a.slope_pct - b.slope_pct).abs() < 1e-6);
            // The line through five points never changes by more than 6/5 of their range.
            prop_assert!(a.slope_pct <= a.range_pct * 1.2 + 1e-9);
        }

        #[test]
        fn rates_within_a_tenth_are_steady(rates in prop::collection::vec(96.0..104.0f64, 5..30)) {
            prop_assert_eq!(first_steady(&rates), Some(4));
        }
    }
}
