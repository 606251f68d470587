//! Computes the value of a claim, and compares it with the stated one.
//!
//! **Why.** Numbers in articles are rounded, inputs and results alike; a right number must not be called wrong because
//! of that.
//!
//! **How.** Every input has half of its last digit as its uncertainty. [`value`] computes the value, and the least and
//! largest value that the inputs allow; [`fit`] compares them with the stated number, the strictest rule first.
//!
//! **Limits.** The least and the largest value assume the worst case of all roundings at once.
//!
//! **Example.** 8.3 against 6.5 GB/s is 27.7 %, from 26.0 to 29.5 %. "27 %" is that number with digits cut off.

use super::quantity::Quantity;
use super::{Bound, Factor, Formula, Machine};

#[derive(Clone, Copy, Debug)]
pub(super) struct Input {
    pub(super) value: f64,
    /// The largest distance to the true value, due to rounding.
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

    /// Applies `change`, which must not decrease, to the value and both ends.
    fn map(self, change: impl Fn(f64) -> f64) -> Computed {
        Computed { value: change(self.value), low: change(self.low), high: change(self.high) }
    }
}

/// Computes a formula; `None` if it names an unknown machine, figure or unit.
pub(super) fn value(formula: &Formula, machines: &[Machine]) -> Option<Computed> {
    let figure = |of: &str, key: &str| machines.iter().find(|machine| machine.card.name == of)?.input(key);
    let ratio =
        |key: &str, of: &str, against: &str| Some(Computed::ONE.times(figure(of, key)?).over(figure(against, key)?));
    match formula {
        Formula::Percent { figure: key, of, against } => Some(ratio(key, of, against)?.map(as_difference_pct)),
        Formula::Share { figure: key, of, against } => Some(ratio(key, of, against)?.map(|ratio| ratio * 100.0)),
        Formula::Value { figure: key, of } => Some(Computed::ONE.times(figure(of, key)?)),
        Formula::Product { factors, divisors } => {
            let input = |factor: &Factor| match factor {
                Factor::Figure(of, key) => figure(of, key),
                Factor::Number(text) => number(text),
            };
            let product =
                factors.iter().try_fold(Computed::ONE, |product, factor| Some(product.times(input(factor)?)))?;
            divisors.iter().try_fold(product, |product, divisor| Some(product.over(input(divisor)?)))
        }
    }
}

/// Reads a number of a product. A whole number is a count, which is exact.
fn number(text: &'static str) -> Option<Input> {
    let Quantity { value, fine, .. } = Quantity::parse(text)?;
    Some(Input { value, half: if text.contains('.') { fine } else { 0.0 } })
}

/// Returns by how much a ratio exceeds 1, in per cent.
fn as_difference_pct(ratio: f64) -> f64 {
    (ratio - 1.0) * 100.0
}

/// Returns how the stated number rounds `computed`: empty if it does so exactly, `None` if it is another number.
pub(super) fn fit(computed: &Computed, stated: &Quantity, bound: Bound) -> Option<&'static str> {
    let Quantity { value: stated, fine, coarse, .. } = *stated;
    let distance = (computed.value - stated).abs();
    let holds = match bound {
        Bound::About => distance < fine * (1.0 - 1e-9),
        Bound::Above => computed.value > stated,
        Bound::AtLeast => computed.value >= stated,
    };
    if holds {
        return Some("");
    }
    if bound != Bound::About {
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
