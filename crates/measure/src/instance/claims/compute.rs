//! What a claim comes to, and whether that is what it states.
//!
//! **Why.** Numbers in articles are rounded, inputs and results alike; what is right must not be called wrong for it.
//!
//! **How.** Every input carries half of its last digit. [`value`] computes the value, and the least and largest that
//! the inputs allow; [`fit`] compares with what is stated, the strictest rule first.
//!
//! **Limits.** The least and largest value assume that all roundings go the same way.
//!
//! **Example.** 8.3 against 6.5 GB/s is 27.7 %, from 26.0 to 29.5 %. "27 %" is that with a digit cut off.

use super::{Bound, Claim, Factor, Kind, Machine};

/// A number that goes into a computation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Input {
    pub(super) value: f64,
    /// How far the true one may be from it by rounding.
    pub(super) half: f64,
}

/// A result and what rounding of its inputs makes possible.
#[derive(Clone, Copy, Debug)]
pub(super) struct Computed {
    pub(super) value: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Computed {
    const ONE: Computed = Computed { value: 1.0, low: 1.0, high: 1.0 };

    fn times(self, input: Input) -> Computed {
        let low = (input.value - input.half).max(0.0);
        Computed { value: self.value * input.value, low: self.low * low, high: self.high * (input.value + input.half) }
    }

    fn over(self, input: Input) -> Computed {
        let low = (input.value - input.half).max(f64::MIN_POSITIVE);
        Computed { value: self.value / input.value, low: self.low / (input.value + input.half), high: self.high / low }
    }

    /// All three by the same function, which must not fall.
    pub(super) fn map(self, change: impl Fn(f64) -> f64) -> Computed {
        Computed { value: change(self.value), low: change(self.low), high: change(self.high) }
    }
}

/// How a computed value and a stated one go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    Exact,
    /// With the reason.
    Rounded(&'static str),
    No,
}

/// What a claim comes to. Readers have seen to it that all figures are there; one that is not makes it NaN, which fits
/// nothing.
pub(super) fn value(kind: &Kind, machines: &[Machine]) -> Computed {
    match kind {
        Kind::Percent { figure, of, against } => ratio(machines, figure, *of, *against).map(as_difference_pct),
        Kind::Value { figure, of } => Computed::ONE.times(input(machines, *of, figure)),
        Kind::Product { of, factors, divisors } => {
            let read = |factor: &Factor| match factor {
                Factor::Figure(key) => of.map_or(MISSING, |of| input(machines, of, key)),
                // A whole number in a product is a count.
                Factor::Number(number) if number.text.contains('.') => Input { value: number.value, half: number.fine },
                Factor::Number(number) => Input { value: number.value, half: 0.0 },
            };
            let product = factors.iter().fold(Computed::ONE, |product, factor| product.times(read(factor)));
            divisors.iter().fold(product, |product, factor| product.over(read(factor)))
        }
    }
}

/// The figure of one machine in parts of another's.
pub(super) fn ratio(machines: &[Machine], figure: &str, of: usize, against: usize) -> Computed {
    Computed::ONE.times(input(machines, of, figure)).over(input(machines, against, figure))
}

/// How much more a ratio is than 1, in per cent.
pub(super) fn as_difference_pct(ratio: f64) -> f64 {
    (ratio - 1.0) * 100.0
}

const MISSING: Input = Input { value: f64::NAN, half: 0.0 };

fn input(machines: &[Machine], at: usize, key: &str) -> Input {
    machines.get(at).and_then(|machine| machine.input(key)).unwrap_or(MISSING)
}

/// Whether `computed` is what the claim states.
pub(super) fn fit(computed: &Computed, claim: &Claim) -> Fit {
    let (stated, fine, coarse) = (claim.stated.value, claim.stated.fine, claim.stated.coarse);
    let distance = (computed.value - stated).abs();
    let holds = match claim.bound {
        Bound::About => distance < fine * (1.0 - 1e-9),
        Bound::Above => computed.value > stated,
        Bound::AtLeast => computed.value >= stated,
    };
    if holds {
        return Fit::Exact;
    }
    if claim.bound != Bound::About {
        return if computed.high > stated { Fit::Rounded(INPUTS) } else { Fit::No };
    }
    let is_same_sign = (computed.value < 0.0) == (stated < 0.0);
    let above = computed.value.abs() - stated.abs();
    if is_same_sign && above >= 0.0 && above < 2.0 * fine * (1.0 - 1e-9) {
        return Fit::Rounded("digits were cut off where rounding would have gone up");
    }
    if distance <= coarse * (1.0 + 1e-9) {
        return Fit::Rounded(ZEROS);
    }
    let meets = computed.low <= stated + fine && computed.high >= stated - fine;
    if meets { Fit::Rounded(INPUTS) } else { Fit::No }
}

/// Why a stated number is within rounding that is neither rounded nor cut off at its last digit.
pub(super) const ZEROS: &str = "the zeros at the end of the stated number are rounding";

const INPUTS: &str = "the figures it was computed from are rounded themselves";
