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

/// An input of a computation.
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

    /// Applies `change`, which must not decrease, to all three.
    pub(super) fn map(self, change: impl Fn(f64) -> f64) -> Computed {
        Computed { value: change(self.value), low: change(self.low), high: change(self.high) }
    }
}

/// Whether a computed value is the stated one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    Exact,
    /// It is, within the rounding that this names.
    Rounded(&'static str),
    No,
}

/// Computes a claim. The reader has checked that all figures are there; a missing one gives NaN, which fits nothing.
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

/// Returns the figure of machine `of` divided by that of `against`.
pub(super) fn ratio(machines: &[Machine], figure: &str, of: usize, against: usize) -> Computed {
    Computed::ONE.times(input(machines, of, figure)).over(input(machines, against, figure))
}

/// Returns by how much a ratio exceeds 1, in per cent.
pub(super) fn as_difference_pct(ratio: f64) -> f64 {
    (ratio - 1.0) * 100.0
}

const MISSING: Input = Input { value: f64::NAN, half: 0.0 };

fn input(machines: &[Machine], at: usize, key: &str) -> Input {
    machines.get(at).and_then(|machine| machine.input(key)).unwrap_or(MISSING)
}

/// Returns whether `computed` is what the claim states, exactly or within rounding.
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

/// The reason if only rounding at the last digit that is not 0 explains a stated number.
pub(super) const ZEROS: &str = "the zeros at the end of the stated number are rounding";

const INPUTS: &str = "the figures it was computed from are rounded themselves";
