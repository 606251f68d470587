//! Finds an input, other than that of the cards, that explains several claims.
//!
//! **Why.** With 15.2 TB, 480 GB for each of 32 cores and 426 GB for each of 36 look like two different mistakes. With
//! 15.36 TB both are right: the author used another capacity, and both claims deserve one verdict.
//!
//! **How.** A product that does not come out is solved for each of its figures. The rounding of the stated number makes
//! the solution a range. If the ranges of two claims for the same figure with the same value meet, the roundest number
//! in both is named, and both claims are the slip `other-input`. One of them must be wrong by every other rule; the
//! other may also be right, but only if the zeros at its end are rounding.
//!
//! **Limits.** Products only. If several figures explain the claims, the first is named.
//!
//! **Example.** 480 GB x 32 is 15.344 to 15.392 TB, 426 GB x 36 is 15.318 to 15.372 TB: together 15.36 TB.

use super::slips::{precise, title};
use super::{Bound, Checked, Claim, Factor, Kind, Ledger, Machine, Verdict, compute};

/// The slip's name.
const NAME: &str = "other-input";

/// The values of one input with which a claim comes out.
#[derive(Clone)]
struct Range {
    key: String,
    /// The value on the card.
    value: f64,
    low: f64,
    high: f64,
}

impl Range {
    /// Returns the values in both ranges, if they are about the same input and meet.
    fn and(&self, other: &Range) -> Option<Range> {
        let is_same = self.key == other.key && (self.value - other.value).abs() <= self.value.abs() * 1e-9;
        let (low, high) = (self.low.max(other.low), self.high.min(other.high));
        (is_same && low < high).then(|| Range { low, high, ..self.clone() })
    }

    /// Returns the number with the fewest digits in the range, or its middle if that takes more than 12.
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

/// Finds inputs that explain several claims at once, if one has no slip, and writes them into their results.
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

/// Returns whether a claim has no slip, and is wrong or right only if the zeros at its end are rounding.
fn is_open(checked: &Checked) -> bool {
    checked.slip.is_none() && (checked.verdict == Verdict::Wrong || checked.why == compute::ZEROS)
}

/// Returns, for each figure of a product, the values with which it gives the stated number, rounded or cut off.
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

/// Returns an input that explains the claim at `at` and others, and the places of all these claims.
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
