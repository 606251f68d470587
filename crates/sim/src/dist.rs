//! Distributions for disk models: normal, lognormal, Pareto, uniform.
//!
//! # Why
//! Service times of disks are close to lognormal, and their rare stalls have a heavy tail. A draw must cost nanoseconds
//! and give the same bits on every machine, so the platform's logarithm and exponential cannot be used.
//!
//! # How it works
//! One table of 4096 normal quantiles is made once per process: the distribution function is a power series
//! (Phi(z) = 1/2 + phi(z) (z + z^3/3 + z^5/(3*5) + ...), Marsaglia 2004), inverted by Newton's method from one quantile
//! to the next. A [`LogNormal`] is the same table through an exponential: a draw is a look-up by 12 random bits.
//!
//! # Limits
//! Normal and lognormal draws take 4096 values and end at 3.67 standard deviations (1 draw in 8192 on either side).
//!
//! # Example
//! ```
//! use plimsoll_sim::{dist::{LogNormal, uniform}, rng::Rng};
//! let mut rng = Rng::new(7);
//! let service = LogNormal::new(0.2);
//! assert!(service.sample(&mut rng) > 0.0);
//! assert!(uniform(&mut rng) < 1.0);
//! ```

use std::sync::OnceLock;

use plimsoll_core::math::{exp, pow};

use crate::rng::Rng;

/// Random bits of a draw; the table has 2^BITS values.
const BITS: u32 = 12;
const QUANTILES: usize = 1 << BITS;
/// 1 / sqrt(2 pi).
const PHI_0: f64 = 0.398_942_280_401_432_7;

/// Draws uniformly from [0, 1), with 53 bits.
pub fn uniform(rng: &mut Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// Draws from the normal distribution with mean 0 and standard deviation 1.
pub fn normal(rng: &mut Rng) -> f64 {
    quantiles().get((rng.next_u64() >> (64 - BITS)) as usize).copied().unwrap_or(0.0)
}

/// Draws from the Pareto distribution: at least `minimum` (the result has its unit), exceeding `minimum * k` with
/// probability `k^-alpha`, at most `maximum`. If `alpha` is not positive, returns `maximum`.
pub fn pareto(rng: &mut Rng, minimum: f64, alpha: f64, maximum: f64) -> f64 {
    if alpha.is_nan() || alpha <= 0.0 {
        return maximum;
    }
    (minimum * pow(1.0 - uniform(rng), -1.0 / alpha)).min(maximum)
}

/// The lognormal distribution with median 1, as a table.
#[derive(Clone, Debug)]
pub struct LogNormal {
    table: Box<[f32]>,
}

impl LogNormal {
    /// Returns the distribution of `exp(sigma * z)`, z normal. Sigma is clamped to 0..=8; NaN counts as 0 (always 1).
    pub fn new(sigma: f64) -> LogNormal {
        let sigma = if sigma > 0.0 { sigma.min(8.0) } else { 0.0 };
        LogNormal { table: quantiles().iter().map(|&z| exp(sigma * z) as f32).collect() }
    }

    #[inline]
    pub fn sample(&self, rng: &mut Rng) -> f64 {
        self.at(rng.next_u64())
    }

    /// Returns the draw for the upper 12 of 64 random bits; the other bits stay free for another use.
    #[inline]
    pub fn at(&self, bits: u64) -> f64 {
        self.table.get((bits >> (64 - BITS)) as usize).map_or(1.0, |&factor| f64::from(factor))
    }
}

/// Returns the normal quantiles of (i + 1/2) / 4096.
fn quantiles() -> &'static [f64] {
    static TABLE: OnceLock<Box<[f64]>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut upper = Vec::with_capacity(QUANTILES / 2);
        let mut z = 0.0;
        for i in QUANTILES / 2..QUANTILES {
            let share = (i as f64 + 0.5) / QUANTILES as f64;
            for _ in 0..8 {
                let density = PHI_0 * exp(-z * z / 2.0);
                z -= (distribution(z, density) - share) / density;
            }
            upper.push(z);
        }
        upper.iter().rev().map(|z| -z).chain(upper.iter().copied()).collect()
    })
}

/// Returns Phi(z) for z from 0 to 4; `density` is phi(z).
fn distribution(z: f64, density: f64) -> f64 {
    let (mut term, mut sum, mut odd) = (z, z, 1.0);
    while term > 1e-17 {
        odd += 2.0;
        term *= z * z / odd;
        sum += term;
    }
    0.5 + density * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_quantiles() {
        // As in any table of the normal distribution.
        for (share, z) in [(0.5, 0.0), (0.841_344_75, 1.0), (0.95, 1.644_854), (0.977_249_87, 2.0), (0.999, 3.090_232)]
        {
            let found = quantiles()[(share * QUANTILES as f64) as usize];
            assert!((found - z).abs() < 0.04, "{share}: {found}, not {z}");
        }
        assert!(quantiles().windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(quantiles().len(), QUANTILES);
    }

    #[test]
    fn moments() {
        let mut rng = Rng::new(3);
        let n = 100_000;
        let square = (0..n).map(|_| normal(&mut rng)).map(|z| z * z).sum::<f64>() / f64::from(n);
        assert!((square - 1.0).abs() < 0.02, "{square}");
        let lognormal = LogNormal::new(0.5);
        let mean = (0..n).map(|_| lognormal.sample(&mut rng)).sum::<f64>() / f64::from(n);
        assert!((mean - exp(0.125)).abs() < 0.01, "{mean}");
        let beyond = (0..n).filter(|_| pareto(&mut rng, 2.0, 1.5, 1e9) > 8.0).count();
        assert!((beyond as f64 / f64::from(n) - 0.125).abs() < 0.01, "{beyond}");
    }

    #[test]
    fn odd_parameters() {
        let mut rng = Rng::new(3);
        assert_eq!(LogNormal::new(f64::NAN).sample(&mut rng), 1.0);
        assert_eq!(LogNormal::new(-1.0).sample(&mut rng), 1.0);
        assert_eq!(pareto(&mut rng, 1.0, 0.0, 5.0), 5.0);
    }
}
