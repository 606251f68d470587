//! Fits the mix exponent of reads and writes: p in (r/R)^p + (w/W)^p = 1.
//!
//! **Why.** Half of the reads with half of the writes is exactly the limit of one disk; the same mix overloads a
//! second, and leaves a third half idle. A scheduler that treats every disk like the first wastes some and overloads
//! others.
//!
//! **How.** The points are measured mixes at the limit, each direction as a fraction of its rate alone.
//! [`plimsoll_sim::fit`], which has the formula, finds the p with the least squared logarithmic distance along the ray
//! from idle. An infinite p (reads and writes do not disturb each other) is chosen if no finite one is better by more
//! than half a per cent.
//!
//! **Limits.** The rates alone are assumed to be exact: measure them most precisely. Points on the axes do not affect
//! p, only the error.
//!
//! **Example.** 3/4 of the reads with 1/4 of the writes, and a half of each: p = 1. 0.707 of each: p = 2. All of each:
//! infinite.

use plimsoll_sim::fit::{MixFit, fit_mix_exponent, mix_load};

/// Smallest exponent: half of each direction would need ten times the time.
const P_MIN: f64 = 0.3;
/// Largest finite exponent: above it, the corner is full to within 2 %.
const P_MAX: f64 = 30.0;
/// Excess error (a fraction of the rates) at which an infinite exponent is still preferred to the best finite one.
const RMSE_TOLERANCE: f64 = 0.005;

/// Fits the exponent, from 0.3 to 30 or infinite, of a frontier through `points`: reads and writes at the limit, as
/// fractions of the rate of each alone (0 to about 1.2, for noise). Ignores points with a negative or non-finite
/// fraction, and those without load; returns `None` if no point with both reads and writes remains.
pub(crate) fn mix_exponent(points: &[(f64, f64)]) -> Option<MixFit> {
    let is_share = |share: f64| share.is_finite() && share >= 0.0;
    let counts = |(r, w): &&(f64, f64)| is_share(*r) && is_share(*w) && r.max(*w) > 0.0;
    let shares: Vec<[f64; 2]> = points.iter().filter(counts).map(|&(r, w)| [r, w]).collect();
    if !shares.iter().any(|[r, w]| r.min(*w) > 0.0) {
        return None;
    }

    let finite = fit_mix_exponent(&shares, [P_MIN, P_MAX]);
    let squares: f64 = shares.iter().map(|[r, w]| mix_load(*r, *w, f64::INFINITY).ln().powi(2)).sum();
    let rmse_infinite = (squares / shares.len() as f64).sqrt();
    if rmse_infinite <= finite.rmse + RMSE_TOLERANCE {
        return Some(MixFit { mix_exponent: f64::INFINITY, rmse: rmse_infinite });
    }
    Some(finite)
}

#[cfg(test)]
mod tests {
    use plimsoll_sim::{dist::normal, rng::Rng};
    use proptest::prelude::*;

    use super::*;

    /// Returns points on the frontier of `p` at even directions, including the axes, each moved along its ray by noise.
    fn frontier(p: f64, count: u32, sigma: f64, rng: &mut Rng) -> Vec<(f64, f64)> {
        let mut point = |i: u32| {
            let angle = std::f64::consts::FRAC_PI_2 * f64::from(i) / f64::from(count - 1);
            let (r, w) = (angle.cos().max(0.0), angle.sin().max(0.0));
            let reach = (1.0 + sigma * normal(rng)) / mix_load(r, w, p);
            (r * reach, w * reach)
        };
        (0..count).map(&mut point).collect()
    }

    #[test]
    fn exponents_computed_by_hand() {
        let half = 0.5f64.sqrt();
        let cases: [(&[(f64, f64)], f64); 7] = [
            (&[(0.5, 0.5)], 1.0),
            (&[(1.0, 0.0), (0.75, 0.25), (0.5, 0.5), (0.0, 1.0)], 1.0),
            (&[(half, half), (0.6, 0.8), (0.8, 0.6)], 2.0),
            // 2 * (1/4)^(1/2) = 1.
            (&[(0.25, 0.25), (0.0, 1.0)], 0.5),
            (&[(1.0, 1.0)], f64::INFINITY),
            (&[(1.0, 0.5), (1.0, 1.0), (0.3, 1.0), (1.0, 0.0)], f64::INFINITY),
            // Noise: the sum exceeds each rate alone.
            (&[(1.05, 1.02), (0.97, 1.1)], f64::INFINITY),
        ];
        for (points, p) in cases {
            let fit = mix_exponent(points).unwrap();
            assert!(fit.mix_exponent == p || (fit.mix_exponent / p - 1.0).abs() < 1e-4, "{points:?}: {fit:?}");
        }
    }

    #[test]
    fn points_that_say_nothing_give_no_exponent() {
        for points in [&[][..], &[(1.0, 0.0), (0.0, 1.0)], &[(0.0, 0.0)], &[(f64::NAN, 0.5), (-0.1, 0.5)]] {
            assert_eq!(mix_exponent(points), None, "{points:?}");
        }
        let with_senseless = mix_exponent(&[(0.5, 0.5), (f64::NAN, 0.5), (0.5, f64::INFINITY), (0.0, 0.0)]).unwrap();
        assert!((with_senseless.mix_exponent - 1.0).abs() < 1e-4, "{with_senseless:?}");
    }

    #[test]
    fn noise_moves_it_little() {
        let mut rng = Rng::new(9);
        for p in [0.6, 1.0, 1.6, 2.2] {
            for _ in 0..100 {
                let fit = mix_exponent(&frontier(p, 9, 0.03, &mut rng)).unwrap();
                assert!((fit.mix_exponent / p - 1.0).abs() < 0.25 && fit.rmse < 0.08, "{p}: {fit:?}");
            }
        }
        for _ in 0..100 {
            let fit = mix_exponent(&frontier(f64::INFINITY, 9, 0.03, &mut rng)).unwrap();
            assert!(fit.mix_exponent > 5.0, "{fit:?}");
        }
    }

    proptest! {
        #[test]
        fn exact_frontiers_are_found_again(p in 0.35..4.0f64, half_count in 1..10u32) {
            // An odd number, so that one point has half of each.
            let fit = mix_exponent(&frontier(p, 2 * half_count + 1, 0.0, &mut Rng::new(1))).unwrap();
            prop_assert!((fit.mix_exponent / p - 1.0).abs() < 0.01 && fit.rmse < 1e-3, "{fit:?}");
        }

        #[test]
        fn the_curve_suits_also_where_the_exponent_is_hard_to_tell(p in 4.0..30.0f64, count in 3..20u32) {
            let fit = mix_exponent(&frontier(p, count, 0.0, &mut Rng::new(1))).unwrap();
            prop_assert!(fit.rmse <= 0.0051, "{fit:?}");
        }

        #[test]
        fn reads_and_writes_can_be_exchanged(points in prop::collection::vec((0.01..1.2f64, 0.01..1.2f64), 1..12)) {
            let exchanged: Vec<(f64, f64)> = points.iter().map(|&(r, w)| (w, r)).collect();
            let [a, b] = [points, exchanged].map(|points| mix_exponent(&points).unwrap().mix_exponent);
            prop_assert!(a == b || (a / b - 1.0).abs() < 1e-3, "{a:?} {b:?}");
            prop_assert!(a >= 0.3 - 1e-9);
        }
    }
}
