//! One input, other than that of the cards, that explains several claims.
//!
//! **Why.** 480 GB for each of 32 cores and 426 GB for each of 36 look like two unlike mistakes with 15.2 TB. Both are
//! right with 15.36 TB: whoever wrote them had another capacity, and they deserve one verdict.
//!
//! **How.** A product that does not come out is solved for each of its figures: the inputs with which it would, as a
//! range by the rounding of what is stated. Where the ranges of two claims meet that have the same value for the same
//! figure, the roundest number that they share is named, and both are the slip `other-input`. One of them must be wrong
//! by every other rule; the other may also be right only if the zeros at its end are rounding.
//!
//! **Limits.** Products only. Of several figures that would do the first is named.
//!
//! **Example.** 480 GB x 32 is 15.344 to 15.392 TB, 426 GB x 36 is 15.318 to 15.372 TB: together 15.36 TB.

use super::slips::{precise, title};
use super::{Bound, Checked, Claim, Factor, Kind, Ledger, Machine, Verdict, compute};

/// The name of the slip.
const NAME: &str = "other-input";

/// Another value of an input, with which a claim comes out.
#[derive(Clone)]
struct Range {
    key: String,
    /// What the card has.
    value: f64,
    low: f64,
    high: f64,
}

impl Range {
    /// What both allow, if they are about the same input.
    fn and(&self, other: &Range) -> Option<Range> {
        let is_same = self.key == other.key && (self.value - other.value).abs() <= self.value.abs() * 1e-9;
        let (low, high) = (self.low.max(other.low), self.high.min(other.high));
        (is_same && low < high).then(|| Range { low, high, ..self.clone() })
    }

    /// The number of the fewest digits in it.
    fn roundest(&self) -> f64 {
        let middle = f64::midpoint(self.low, self.high);
        let exponent = middle.abs().log10().floor() as i32;
        let of_digits = |digits: i32| {
            let step = 10f64.powi(exponent + 1 - digits);
            (middle / step).round() * step
        };
        (1..=12).map(of_digits).find(|value| (self.low..=self.high).contains(value)).unwrap_or(middle)
    }
}

/// Finds such inputs among the claims that nothing else explains, and names them.
pub(super) fn explain(ledger: &Ledger, checked: &mut [Checked]) {
    let ranges: Vec<Vec<Range>> = ledger
        .claims
        .iter()
        .zip(checked.iter())
        .map(|(claim, checked)| if is_open(checked) { ranges(claim, &ledger.machines) } else { Vec::new() })
        .collect();
    for at in 0..checked.len() {
        let is_unexplained = checked.get(at).is_some_and(|one| one.verdict == Verdict::Wrong && one.slip.is_none());
        if is_unexplained && let Some((range, members)) = shared(&ranges, at) {
            name(&range, &members, checked);
        }
    }
}

/// Whether no better reason was found than zeros that are taken for rounding.
fn is_open(checked: &Checked) -> bool {
    checked.slip.is_none() && (checked.verdict == Verdict::Wrong || checked.why == compute::ZEROS)
}

/// The other values of each figure of a product with which it is what is stated, rounded or cut off.
fn ranges(claim: &Claim, machines: &[Machine]) -> Vec<Range> {
    let Kind::Product { of: Some(of), factors, divisors } = &claim.kind else { return Vec::new() };
    let (stated, computed) = (&claim.stated, compute::value(&claim.kind, machines).value);
    if claim.bound != Bound::About || stated.value <= stated.fine {
        return Vec::new();
    }
    let (low, high) = ((stated.value - stated.fine) / computed, (stated.value + 2.0 * stated.fine) / computed);
    let all = || factors.iter().chain(divisors);
    let range = |factor: &Factor, low: f64, high: f64| {
        let Factor::Figure(key) = factor else { return None };
        let value = machines.get(*of)?.value(key)?;
        let is_once = all().filter(|other| *other == factor).count() == 1;
        is_once.then(|| Range { key: key.clone(), value, low: value * low, high: value * high })
    };
    let in_factors = factors.iter().filter_map(|factor| range(factor, low, high));
    in_factors.chain(divisors.iter().filter_map(|factor| range(factor, 1.0 / high, 1.0 / low))).collect()
}

/// An input of the claim at `at` that others share, and the places of all of them.
fn shared(ranges: &[Vec<Range>], at: usize) -> Option<(Range, Vec<usize>)> {
    ranges.get(at)?.iter().find_map(|own| {
        let (mut range, mut members) = (own.clone(), vec![at]);
        for (other, its) in ranges.iter().enumerate().filter(|(other, _)| *other != at) {
            if let Some(both) = its.iter().find_map(|its| range.and(its)) {
                range = both;
                members.push(other);
            }
        }
        (members.len() > 1).then_some((range, members))
    })
}

fn name(range: &Range, members: &[usize], checked: &mut [Checked]) {
    let claims: Vec<(usize, String)> =
        members.iter().filter_map(|at| Some((*at, format!("\"{}\"", checked.get(*at)?.claim)))).collect();
    let (needed, value) = (precise(&range.key, range.roundest()), precise(&range.key, range.value));
    for at in members {
        let others: Vec<&str> = claims.iter().filter(|(other, _)| other != at).map(|(_, text)| text.as_str()).collect();
        if let Some(one) = checked.get_mut(*at) {
            (one.verdict, one.slip) = (Verdict::Wrong, Some(NAME));
            one.why = format!(
                "that takes {} of {needed} in place of {value}; the same explains {}",
                title(&range.key),
                others.join(" and ")
            );
        }
    }
}
