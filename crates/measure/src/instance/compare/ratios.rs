//! Divides each figure of a machine by that of the base, and judges whether the difference is evidence.
//!
//! **Why.** "66 % faster" proves nothing without its base, or if two runs on one machine differ as much.
//!
//! **How.** A ratio of two means has a 95 % interval ([`ratio_interval`]). The standard error of a figure comes from
//! the effective number of its samples ([`crate::tune`]), or from the interval that the card states. Counted figures,
//! such as cores, need no interval.
//!
//! A figure is better or worse only if the interval excludes 1, and the samples of both scatter by at most
//! [`SCATTER_MAX_PCT`].
//!
//! Figures of stress-ng have a ratio only if both cards state the same version of stress-ng.
//!
//! **Limits.** Each interval stands alone: of twenty equal figures, one will seem to differ.
//!
//! **Example.** 110 +- 1 over 100 +- 1 (standard errors, many samples): 1.1, interval 1.071 to 1.130.

use plimsoll_figures::series;
use plimsoll_figures::stats::{Estimate, ratio_interval};
use serde::Serialize;

use super::super::figures::{Better, FigureKind, STRESS_NG};
use super::super::{Card, Figure};

/// Largest standard deviation of samples that are evidence, in per cent of their mean.
pub const SCATTER_MAX_PCT: f64 = 10.0;

/// Standard errors in the half width of a stated 95 % interval: the 97.5 % quantile of the normal distribution.
const NORMAL_QUANTILE: f64 = 1.959_964;

/// Degrees of freedom of a stated interval: enough for a normal distribution.
const FREEDOM_OF_STATED: f64 = 1e6;

const STRESS_NG_VERSION: &str = "stress_ng.version";

/// Returns why a figure has no ratio although both cards have it: operations of stress-ng differ from version to
/// version.
pub(crate) fn incomparable(key: &str, card: &Card, base: &Card) -> Option<String> {
    if !key.starts_with(STRESS_NG) || !card.figures.contains_key(key) || !base.figures.contains_key(key) {
        return None;
    }
    let version =
        |card: &Card| card.facts.get(STRESS_NG_VERSION).map_or("no stated version", String::as_str).to_owned();
    match (card.facts.get(STRESS_NG_VERSION), base.facts.get(STRESS_NG_VERSION)) {
        (Some(one), Some(other)) if one == other => None,
        _ => Some(format!("not comparable: stress-ng {}, the base {}", version(card), version(base))),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Base,
    /// Better than the base by more than chance explains.
    Better,
    /// Worse than the base by more than chance explains.
    Worse,
    /// The interval contains 1.
    Open,
    /// The samples of one of the two scatter too much.
    Scattered,
    /// One of the two was measured once, or stated without an interval.
    NoInterval,
    /// Counted or advertised: the ratio is exact.
    Counted,
    /// Neither more nor less is better.
    Property,
    /// One of the two lacks the figure, the base is 0, or they cannot be compared (`incomparable`).
    Missing,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// The figure divided by that of the base.
    pub ratio: f64,
    /// The 95 % interval, if both figures have one.
    pub interval: Option<[f64; 2]>,
    pub verdict: Verdict,
}

/// Divides `figure` by `base`; returns `None` if the base is 0.
pub fn ratio(kind: &FigureKind, figure: &Figure, base: &Figure) -> Option<Ratio> {
    let ratio = figure.value / base.value;
    if !ratio.is_finite() {
        return None;
    }

    if kind.is_counted {
        let verdict = if kind.better == Better::Neither { Verdict::Property } else { Verdict::Counted };
        return Some(Ratio { ratio, interval: None, verdict });
    }

    let interval = estimate(base).zip(estimate(figure)).and_then(|(base, figure)| ratio_interval(&base, &figure));
    let interval = interval.map(|(low, high)| [low, high]);
    let scatters = [figure, base].iter().any(|side| scatter_pct(side).is_some_and(|pct| pct > SCATTER_MAX_PCT));

    let verdict = match interval {
        _ if kind.better == Better::Neither => Verdict::Property,
        None => Verdict::NoInterval,
        Some(_) if scatters => Verdict::Scattered,
        Some([low, high]) if low <= 1.0 && high >= 1.0 => Verdict::Open,
        Some([low, _]) if (low > 1.0) == (kind.better == Better::More) => Verdict::Better,
        Some(_) => Verdict::Worse,
    };
    Some(Ratio { ratio, interval, verdict })
}

/// Returns the standard deviation of the samples in per cent of their mean; `None` for fewer than two.
pub(crate) fn scatter_pct(figure: &Figure) -> Option<f64> {
    (figure.samples.len() >= 2).then(|| series::deviation_pct(&figure.samples))
}

/// Returns a figure with its standard error, if that is known.
fn estimate(figure: &Figure) -> Option<Estimate> {
    let (standard_error, freedom) = if let Some([low, high]) = figure.interval {
        // The longer side of an interval that is not symmetric counts.
        let half_width = (figure.value - low).max(high - figure.value);
        (half_width >= 0.0).then_some((half_width / NORMAL_QUANTILE, FREEDOM_OF_STATED))?
    } else {
        let interval = (figure.samples.len() >= 3).then(|| series::mean_interval(&figure.samples)).flatten()?;
        let freedom = interval.effective_count - 1.0;
        (interval.half_width / series::student_t(freedom), freedom)
    };
    Some(Estimate { value: figure.value, standard_error, freedom, effective_count: freedom + 1.0 })
}

#[cfg(test)]
mod tests {
    use super::super::super::figures;
    use super::*;

    fn stated(value: f64, half_width: f64) -> Figure {
        Figure { interval: Some([value - half_width, value + half_width]), ..Figure::exact(value) }
    }

    fn of(key: &str, figure: &Figure, base: &Figure) -> Ratio {
        ratio(figures::kind(key).unwrap(), figure, base).unwrap()
    }

    #[test]
    fn an_interval_that_a_card_states_counts() {
        // Standard errors of 1; a test of `ratio_interval` computes this case by hand.
        let [low, high] = of("disk.read_iops", &stated(110.0, 1.96), &stated(100.0, 1.96)).interval.unwrap();
        assert!((low - 1.0713).abs() < 1e-4 && (high - 1.1296).abs() < 1e-4, "{low} {high}");
        let open = of("disk.read_iops", &stated(110.0, 1.0), &stated(100.0, 100.1));
        assert_eq!(open.verdict, Verdict::Open, "{open:?}");
    }

    #[test]
    fn intervals_hold_what_they_promise() {
        // 2000 pairs of five samples each, with a deviation of 8 %, from a generator of fixed numbers.
        let mut state = 1u64;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        let mut normal = || (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
        let mut samples =
            |mean: f64| Figure::of_samples((0..5).map(|_| mean * (1.0 + 0.08 * normal())).collect()).unwrap();
        let mut held = 0;
        for _ in 0..2000 {
            let [low, high] = of("disk.read_iops", &samples(150.0), &samples(100.0)).interval.unwrap();
            held += u32::from(low <= 1.5 && 1.5 <= high);
        }
        assert!((1860..=1990).contains(&held), "{held} of 2000, 1900 expected");
    }

    #[test]
    fn a_winner_needs_evidence() {
        let samples = |samples: &[f64]| Figure::of_samples(samples.to_vec()).unwrap();
        let steady = samples(&[100.0, 101.0, 99.0, 100.5, 99.5]);
        let cases = [
            ("disk.read_iops", samples(&[120.0, 121.0, 119.0, 120.5, 119.5]), Verdict::Better),
            ("disk.read_latency_ns", samples(&[120.0, 121.0, 119.0, 120.5, 119.5]), Verdict::Worse),
            ("disk.read_latency_ns", samples(&[80.0, 81.0, 79.0, 80.5, 79.5]), Verdict::Better),
            ("disk.read_iops", samples(&[101.0, 100.0, 99.0, 101.5, 99.5]), Verdict::Open),
            ("disk.read_iops", samples(&[300.0, 400.0, 200.0, 310.0, 290.0]), Verdict::Scattered),
            ("disk.read_iops", Figure::exact(500.0), Verdict::NoInterval),
            ("disk.read_iops", samples(&[500.0, 501.0]), Verdict::NoInterval),
            ("cpu.cores", Figure::exact(500.0), Verdict::Counted),
            ("disk.number", Figure::exact(500.0), Verdict::Property),
        ];
        for (key, figure, expected) in cases {
            assert_eq!(of(key, &figure, &steady).verdict, expected, "{key} {}", figure.value);
        }
        assert_eq!(ratio(figures::kind("cpu.cores").unwrap(), &steady, &Figure::exact(0.0)), None);
    }
}
