//! Compares figures of simulations: the same seed gives the same figure, so any difference has a cause.
//!
//! **Why.** A change of the scheduler shows first in the scenarios, and exactly: it needs no statistical test.
//!
//! **How.** Scenarios are matched by name, seed and changes; figures by name. A figure's target defines the good
//! direction: below an upper bound, above a lower one. The figure is *worse* if it moves the other way by more than the
//! threshold, or no longer meets its target. A difference without a one-sided target, or within the threshold, is
//! *changed*.
//!
//! **Limits.** Scenarios with different seeds count as different.
//!
//! **Example.** `p99_ms` with the target at_most 2: from 1.00 to 1.05 is worse (5 %), from 1.00 to 1.005 is changed,
//! from 1.99 to 2.001 is worse because it misses the target.

use super::input::{Content, Scenario};
use super::{CompareOptions, Comparison, Group, Verdict, names};
use crate::sim::result::Measured;

/// Compares every figure that two sides have in common.
pub(super) fn comparisons(groups: &[Group], options: &CompareOptions) -> Vec<Comparison> {
    let Some((base, others)) = groups.split_first() else { return Vec::new() };
    let mut comparisons = Vec::new();
    for name in names(base) {
        let Some(scenario) = find(base, name) else { continue };
        for figure in &scenario.figures {
            for other in others {
                let found = find(other, name).and_then(|other| other.figures.iter().find(|o| o.name == figure.name));
                comparisons.extend(found.and_then(|found| figures(name, other.side, figure, found, options)));
            }
        }
    }
    comparisons
}

fn find<'a>(group: &'a Group, name: &str) -> Option<&'a Scenario> {
    let mut scenarios = group.runs.iter().flat_map(|run| match &run.content {
        Content::Sim(scenarios) => scenarios.as_slice(),
        Content::Test(_) | Content::Search(_) => &[],
    });
    scenarios.find(|scenario| scenario.name == name)
}

fn figures(job: &str, side: char, base: &Measured, other: &Measured, options: &CompareOptions) -> Option<Comparison> {
    let (base_value, other_value) = base.value.zip(other.value)?;
    let change_pct = Some((other_value - base_value) / base_value.abs() * 100.0).filter(|pct| pct.is_finite());
    Some(Comparison {
        job: job.to_owned(),
        side,
        metric: base.name.clone(),
        base: base_value,
        other: other_value,
        change_pct,
        change_low_pct: change_pct,
        change_high_pct: change_pct,
        verdict: verdict(base, other, (base_value, other_value), change_pct, options.threshold_pct),
        ..Comparison::default()
    })
}

fn verdict(
    base: &Measured,
    other: &Measured,
    (base_value, other_value): (f64, f64),
    change_pct: Option<f64>,
    threshold_pct: f64,
) -> Verdict {
    match (base.passed, other.passed) {
        (Some(true), Some(false)) => return Verdict::Worse,
        (Some(false), Some(true)) => return Verdict::Better,
        _ => {}
    }

    if base_value == other_value {
        return Verdict::Same;
    }

    let low_is_good = match base.target.map(|target| (target.at_least, target.at_most)) {
        Some((None, Some(_))) => true,
        Some((Some(_), None)) => false,
        _ => return Verdict::Changed,
    };

    if change_pct.is_some_and(|change| change.abs() <= threshold_pct) {
        Verdict::Changed
    } else if (other_value < base_value) == low_is_good {
        Verdict::Better
    } else {
        Verdict::Worse
    }
}
