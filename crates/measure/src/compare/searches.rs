//! Compares searches for a rate: the highest rate that keeps a bound lies between one that passed and one that failed.
//!
//! **Why.** The two ends are already an interval of the rate, and a search has repeated both.
//!
//! **How.** Over the runs of a side, the ends are the lowest rate that passed and the highest that failed. Of a search in
//! which no rate passed, the lower end is 0, and the upper one the rate up to which [`FAILED_MIN`] runs failed. The change
//! lies between the other's lower end over the base's upper one and the reverse. It is *better* or *worse* if the whole
//! interval and more than the threshold lie on one side, *same* if it is within the threshold, else *open*.
//!
//! **Limits.** A search that is not confirmed, or that found no end, decides nothing.
//!
//! **Example.** 1000 passed and 1020 failed, against 1100 and 1120: the change is +7.8 to +12 %.

use super::input::Content;
use super::{CompareOptions, Comparison, Group, Verdict, names};
use crate::experiment::find_rate::Found;

/// Compares the rate of each search that two sides have in common.
pub(super) fn comparisons(groups: &[Group], options: &CompareOptions) -> Vec<Comparison> {
    let Some((base, others)) = groups.split_first() else { return Vec::new() };
    let mut comparisons = Vec::new();
    for name in names(base) {
        for other in others {
            comparisons.extend(compared(name, (base, other), options.threshold_pct));
        }
    }
    comparisons
}

/// Fewest failed runs that bound the rate of a search in which none passed: as many as confirm an end.
const FAILED_MIN: usize = 3;

/// The ends of the interval in which the highest rate of a side lies.
struct Ends {
    low: f64,
    /// `None` if no rate failed, or if a run is not confirmed.
    high: Option<f64>,
}

/// Returns the upper end of one search.
fn high(found: &Found) -> Option<f64> {
    if found.rate.is_some() {
        return found.failed_rate.filter(|_| found.confirmed);
    }
    let mut failed: Vec<f64> = found.trials.iter().filter(|trial| !trial.passed).map(|trial| trial.rate).collect();
    failed.sort_by(f64::total_cmp);
    failed.get(FAILED_MIN - 1).copied()
}

fn ends(group: &Group, name: &str) -> Option<Ends> {
    let searches: Vec<&Found> = group
        .runs
        .iter()
        .filter_map(|run| match &run.content {
            Content::Search(search) if search.name == name => Some(&search.found),
            _ => None,
        })
        .collect();
    let low = searches.iter().map(|search| search.rate.unwrap_or(0.0)).reduce(f64::min)?;
    let high = searches.iter().map(|search| high(search));
    Some(Ends { low, high: high.reduce(|a, b| Some(a?.max(b?))).flatten() })
}

fn compared(name: &str, (base, other): (&Group, &Group), threshold_pct: f64) -> Option<Comparison> {
    let side = other.side;
    let (base, other) = ends(base, name).zip(ends(other, name))?;
    let pct = |other: f64, base: f64| (other / base - 1.0) * 100.0;
    let low_pct = base.high.filter(|_| other.high.is_some()).map(|high| pct(other.low, high));
    let high_pct = other.high.filter(|_| base.high.is_some()).map(|high| pct(high, base.low));

    let verdict = match low_pct.zip(high_pct) {
        Some((low, _)) if low > threshold_pct => Verdict::Better,
        Some((_, high)) if high < -threshold_pct => Verdict::Worse,
        Some((low, high)) if -threshold_pct <= low && high <= threshold_pct => Verdict::Same,
        _ => Verdict::Open,
    };
    Some(Comparison {
        job: name.to_owned(),
        side,
        metric: "rate".to_owned(),
        base: base.low,
        other: other.low,
        change_pct: Some(pct(other.low, base.low)).filter(|pct| pct.is_finite()),
        change_low_pct: low_pct.filter(|pct| pct.is_finite()),
        change_high_pct: high_pct.filter(|pct| pct.is_finite()),
        verdict,
        ..Comparison::default()
    })
}
