//! Natural logarithm, exponential and power in plain arithmetic.
//!
//! # Why
//! The same seed must give the same bytes on every machine. Addition, multiplication and division of `f64` are exact to
//! the last bit everywhere (IEEE 754 prescribes their results); the platform's `ln`, `exp` and `powf` are not. So every
//! decision in the scheduler or the simulator uses these.
//!
//! # How it works
//! Textbook range reduction, then a Taylor series with enough terms that the rest is below the last bit:
//! * `ln(m * 2^e) = e ln 2 + ln m` with m in [sqrt(1/2), sqrt(2)), and ln m = 2 artanh((m-1)/(m+1));
//! * `exp(x) = 2^k exp(r)` with k = round(x / ln 2), so |r| <= 0.35;
//! * `pow(x, y) = exp(y ln x)`.
//!
//! ln 2 is kept in two parts, the first with 33 significant bits, so that its product with a small integer is exact.
//!
//! # Limits
//! The relative error of [`ln`] and [`exp`] is at most 1e-13 (measured: a few 1e-16). [`pow`] multiplies the error of
//! the logarithm by |y ln x|: at most 1e-13 for results between 1e-80 and 1e80. A power of a negative base is NaN, even
//! if y is an integer. Subnormal results of [`exp`] have fewer digits.
//!
//! # Example
//! ```
//! use plimsoll_core::math::{exp, ln, pow};
//! assert!((ln(10.0) - std::f64::consts::LN_10).abs() < 1e-15);
//! assert!((exp(1.0) - std::f64::consts::E).abs() < 1e-15);
//! assert!((pow(2.0, 0.5) - std::f64::consts::SQRT_2).abs() < 1e-15);
//! ```

use core::f64::consts::{LOG2_E, SQRT_2};

/// The first 33 bits of ln 2; its product with an integer below 2^20 is exact.
const LN_2_HIGH: f64 = f64::from_bits(0x3fe6_2e42_fee0_0000);
/// The rest of ln 2: ln 2 - [`LN_2_HIGH`] = 1.90821492927058770002e-10.
const LN_2_LOW: f64 = f64::from_bits(0x3dea_39ef_3579_3c76);

const MANTISSA_BITS: u32 = 52;
const MANTISSA_MASK: u64 = (1 << MANTISSA_BITS) - 1;
const EXPONENT_BIAS: i64 = 1023;
/// 2^54, which makes every subnormal number a normal one.
const TWO_POW_54: f64 = (1u64 << 54) as f64;

/// Terms of the artanh series: |s| <= 0.172, so the first one left out is below 1e-18 of the sum.
const LN_TERMS: u32 = 12;
/// Terms of the exp series: |r| <= 0.347, so the first one left out is below 1e-17.
const EXP_TERMS: u32 = 14;
/// Largest argument of exp that is computed: beyond it the result is infinite, below its negative zero.
const EXP_ARGUMENT_MAX: f64 = 746.0;

/// Returns the natural logarithm of `x`: minus infinity for zero, NaN for a negative number; infinity and NaN are
/// unchanged.
#[must_use]
pub fn ln(x: f64) -> f64 {
    if x.is_nan() || x < 0.0 {
        return f64::NAN;
    }
    if x == 0.0 {
        return f64::NEG_INFINITY;
    }
    if x == f64::INFINITY {
        return x;
    }

    let (normal, shift) = if x < f64::MIN_POSITIVE { (x * TWO_POW_54, 54) } else { (x, 0) };
    let bits = normal.to_bits();
    let mut exponent = (bits >> MANTISSA_BITS) as i64 - EXPONENT_BIAS - shift;
    let mut mantissa = f64::from_bits((bits & MANTISSA_MASK) | ((EXPONENT_BIAS as u64) << MANTISSA_BITS));

    if mantissa >= SQRT_2 {
        mantissa *= 0.5;
        exponent += 1;
    }

    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let square = s * s;
    let mut series = 0.0;
    for k in (1..=LN_TERMS).rev() {
        series = (series + 1.0 / f64::from(2 * k + 1)) * square;
    }

    let exponent = exponent as f64;
    exponent * LN_2_HIGH + (2.0 * s + (2.0 * s * series + exponent * LN_2_LOW))
}

/// Returns e to the power of `x`: infinity above 709.78, zero below -745.13; NaN for NaN.
#[must_use]
pub fn exp(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    let x = x.clamp(-EXP_ARGUMENT_MAX, EXP_ARGUMENT_MAX);

    let k = (x * LOG2_E + if x < 0.0 { -0.5 } else { 0.5 }) as i64;
    let r = (x - k as f64 * LN_2_HIGH) - k as f64 * LN_2_LOW;

    let mut series = 1.0;
    for i in (1..=EXP_TERMS).rev() {
        series = 1.0 + r / f64::from(i) * series;
    }
    // In two steps, because 2^k alone may be out of range when the product is not.
    series * power_of_two(k / 2) * power_of_two(k - k / 2)
}

/// Returns `x` to the power of `y`. `pow(x, 0)` and `pow(1, y)` are 1, `pow(0, y)` is 0 or (y < 0) infinite; otherwise
/// a negative `x` or a NaN gives NaN.
#[must_use]
pub fn pow(x: f64, y: f64) -> f64 {
    if y == 0.0 || x == 1.0 {
        return 1.0;
    }
    exp(y * ln(x))
}

/// Returns 2^`k`, for `k` in -1022..=1023.
fn power_of_two(k: i64) -> f64 {
    f64::from_bits(((k + EXPONENT_BIAS) as u64) << MANTISSA_BITS)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;

    const TOLERANCE: f64 = 1e-13;

    fn check(what: &str, ours: f64, reference: f64) {
        let error = if ours == reference { 0.0 } else { ((ours - reference) / reference).abs() };
        assert!(error <= TOLERANCE, "{what}: {ours:e}, reference {reference:e}, relative error {error:e}");
    }

    #[test]
    fn ln_is_that_of_the_platform_within_tolerance() {
        for i in -7_400..=7_090 {
            let x = (f64::from(i) * 0.1).exp() * (1.0 + f64::from(i) * 1e-7);
            check(&format!("ln({x:e})"), ln(x), x.ln());
        }
        for i in 1..=100_000 {
            let near_one = 0.3 + f64::from(i) * 2e-5;
            check(&format!("ln({near_one})"), ln(near_one), near_one.ln());
        }
        for x in [f64::MIN_POSITIVE, 5e-324, 1e-310, f64::MAX, 1.0, 1.0 + f64::EPSILON, 1.0 - f64::EPSILON] {
            check(&format!("ln({x:e})"), ln(x), x.ln());
        }
    }

    #[test]
    fn exp_is_that_of_the_platform_within_tolerance() {
        for i in -70_800..=70_970 {
            let x = f64::from(i) * 0.01;
            check(&format!("exp({x})"), exp(x), x.exp());
        }
        for x in [0.0, -0.0, 1e-300, 1e-17, -1e-9, 709.78] {
            check(&format!("exp({x:e})"), exp(x), x.exp());
        }
    }

    #[test]
    fn pow_is_that_of_the_platform_within_tolerance() {
        for base in [1e-9, 0.015_625, 0.3, 0.5, 0.999, 1.001, 2.0, 7.5, 1e4, 1e9] {
            for exponent in [-8.0, -2.5, -1.0, -0.1, 0.01, 0.5, 0.6, 1.0, 1.2, 2.2, 3.0, 8.0] {
                check(&format!("pow({base}, {exponent})"), pow(base, exponent), base.powf(exponent));
            }
        }
    }

    #[test]
    fn the_ends_of_the_range() {
        let inf = f64::INFINITY;
        assert_eq!(ln(0.0), -inf);
        assert_eq!(ln(-0.0), -inf);
        assert_eq!(ln(inf), inf);
        assert!(ln(-1.0).is_nan() && ln(f64::NAN).is_nan() && exp(f64::NAN).is_nan());
        assert_eq!((exp(inf), exp(-inf), exp(710.0), exp(-746.0)), (inf, 0.0, inf, 0.0));
        assert_eq!((pow(0.0, 2.0), pow(0.0, -2.0), pow(0.0, 0.0)), (0.0, inf, 1.0));
        assert_eq!((pow(2.0, inf), pow(0.5, inf), pow(2.0, -inf), pow(1.0, inf)), (inf, 0.0, 0.0, 1.0));
        assert_eq!((pow(inf, 0.5), pow(inf, -1.0)), (inf, 0.0));
        assert!(pow(-2.0, 2.0).is_nan() && pow(f64::NAN, 1.0).is_nan());
    }

    #[test]
    fn the_bits_are_fixed() {
        // The scheduler's decisions depend on these bits: a change here changes every recorded simulation.
        let cases = [
            ("ln(3)", ln(3.0), 0x3ff1_93ea_7aad_030b_u64),
            ("ln(1e9)", ln(1e9), 0x4034_b927_f32b_ffb8),
            ("exp(0.3)", exp(0.3), 0x3ff5_9905_8c8c_1a96),
            ("exp(-40)", exp(-40.0), 0x3c53_9792_499b_1a24),
            ("pow(0.3, 2.2)", pow(0.3, 2.2), 0x3fb2_1c08_eb3f_512d),
        ];
        for (what, ours, bits) in cases {
            assert_eq!(ours.to_bits(), bits, "{what} = {ours:e}");
        }
    }
}
