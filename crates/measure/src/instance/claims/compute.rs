//! Computes the value of a claim, and compares it with the stated one.
//!
//! **Why.** Numbers in articles are rounded, inputs and results alike; a right number must not be called wrong for it.
//!
//! **How.** Every input carries half of its last digit. [`value`] computes the value, and the least and largest that
//! the inputs allow; [`fit`] compares them with the stated number, the strictest rule first.
//!
//! **Limits.** The least and the largest value assume the worst case of all roundings at once.
//!
//! **Example.** 8.3 against 6.5 GB/s is 27.7 %, from 26.0 to 29.5 %. "27 %" is that number, cut off.

use super::{Bound, Claim, Factor, Kind, Machine};

#[derive(Clone, Copy, Debug)]
pub(super) struct Input {
    pub(super) value: f64,
    /// The largest distance of the true value by rounding.
    pub(super) half: f64,
}

/// A result, and the range that the rounding of its inputs allows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Computed {
    pub(super) value: f64,
    low: f64,
    high: f64,
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

    /// Applies `change`, which must not decrease, to all three.
    fn map(self, change: impl Fn(f64) -> f64) -> Computed {
        Computed { value: change(self.value), low: change(self.low), high: change(self.high) }
    }
}

/// Computes a claim. The reader has checked that all figures are there; a missing one gives NaN, which fits nothing.
pub(super) fn value(claim: &Claim, machines: &[Machine]) -> Computed {
    let input = |part: &Factor| match part {
        Factor::Figure { of, key } => machines.get(*of).and_then(|machine| machine.input(key)).unwrap_or(MISSING),
        // A whole number in a product is a count.
        Factor::Number(number) if !number.text.contains('.') => Input { value: number.value, half: 0.0 },
        Factor::Number(number) => Input { value: number.value, half: number.fine },
    };
    let product = claim.factors.iter().fold(Computed::ONE, |product, factor| product.times(input(factor)));
    let ratio = claim.divisors.iter().fold(product, |product, divisor| product.over(input(divisor)));
    match claim.kind {
        Kind::Percent => ratio.map(as_difference_pct),
        Kind::Share => ratio.map(|ratio| ratio * 100.0),
        Kind::Value | Kind::Product => ratio,
    }
}

/// Returns by how much a ratio exceeds 1, in per cent.
pub(super) fn as_difference_pct(ratio: f64) -> f64 {
    (ratio - 1.0) * 100.0
}

const MISSING: Input = Input { value: f64::NAN, half: 0.0 };

/// Returns how the stated number rounds `computed`: empty if it does so exactly, `None` if it is another number.
pub(super) fn fit(computed: &Computed, claim: &Claim) -> Option<&'static str> {
    let (stated, fine, coarse) = (claim.stated.value, claim.stated.fine, claim.stated.coarse);
    let distance = (computed.value - stated).abs();
    let holds = match claim.bound {
        Bound::About => distance < fine * (1.0 - 1e-9),
        Bound::Above => computed.value > stated,
        Bound::AtLeast => computed.value >= stated,
    };
    if holds {
        return Some("");
    }
    if claim.bound != Bound::About {
        return (computed.high > stated).then_some(INPUTS);
    }

    let is_same_sign = (computed.value < 0.0) == (stated < 0.0);
    let above = computed.value.abs() - stated.abs();
    if is_same_sign && above >= 0.0 && above < 2.0 * fine * (1.0 - 1e-9) {
        return Some("digits were cut off where rounding would have gone up");
    }
    if distance <= coarse * (1.0 + 1e-9) {
        return Some("the zeros at the end of the stated number are rounding");
    }
    let meets = computed.low <= stated + fine && computed.high >= stated - fine;
    meets.then_some(INPUTS)
}

/// The reason if the inputs allow the stated number.
const INPUTS: &str = "the figures it was computed from are rounded themselves";
