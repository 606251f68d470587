//! Statistics over several seeds: mean and 95 % interval of each figure.
//!
//! **Why.** One seed is one sample. Several show whether a difference between two runs is significant.
//!
//! **How.** Runs of the same scenario with the same changes form a group. The interval is the mean plus and minus t * s
//! / sqrt(n), where s is the sample's standard deviation and t the 97.5 % quantile of Student's t distribution with n -
//! 1 degrees of freedom ([`student_t`]).
//!
//! **Limits.** Figures are assumed to be roughly normally distributed. A figure passes if it passes with every seed.
//!
//! **Example.**
//!
//! ```
//! let (mean, half) = plimsoll_measure::sim::stats::mean_and_interval(&[9.0, 10.0, 11.0]).unwrap();
//! assert_eq!(mean, 10.0);
//! assert!((half.unwrap() - 4.303 / 3f64.sqrt()).abs() < 1e-9);
//! ```

use plimsoll_figures::series::student_t;
use serde::{Serialize, Serializer};

use super::result::Bounds;
use super::run::{Finished, figure_names};
use crate::by_key;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spread {
    #[serde(rename = "name")]
    pub scenario: String,
    /// Changes of a sweep: key and value.
    #[serde(rename = "sweep", serialize_with = "as_map")]
    pub changes: Vec<(String, String)>,
    pub figure: String,
    pub runs: usize,
    pub mean: f64,
    /// Half the width of the 95 % interval; `None` for a single run.
    pub half_width_95: Option<f64>,
    pub min: f64,
    pub max: f64,
    /// Bounds that the figure should keep.
    pub target: Option<Bounds>,
    pub passed: usize,
}

fn as_map<S: Serializer>(changes: &[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(changes.iter().map(|(key, value)| (key, value)))
}

/// Returns the mean and half the width of its 95 % interval (`None` for one value), or `None` without values.
pub fn mean_and_interval(values: &[f64]) -> Option<(f64, Option<f64>)> {
    let count = values.len() as f64;
    if values.is_empty() {
        return None;
    }
    let mean = values.iter().sum::<f64>() / count;
    let freedom = values.len() - 1;
    let t = (freedom > 0).then(|| student_t(freedom as f64));
    let variance = values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / freedom.max(1) as f64;
    Some((mean, t.map(|t| t * (variance / count).sqrt())))
}

/// Returns the figures of runs that differ only in their seed, in order of first appearance.
pub fn spreads(finished: &[Finished]) -> Vec<Spread> {
    let groups = by_key(finished.iter().map(|run| ((&run.name, &run.changes), run)));
    groups.iter().flat_map(|((name, changes), runs)| group_spreads(name, changes, runs)).collect()
}

fn group_spreads(name: &str, changes: &[(String, String)], runs: &[&Finished]) -> Vec<Spread> {
    let results = || runs.iter().filter_map(|run| run.result.as_ref().ok());
    let spread = |figure: &str| {
        let of_name = results().filter_map(|result| result.figures.iter().find(|it| it.name == figure));
        let figures: Vec<_> = of_name.collect();
        let values: Vec<f64> = figures.iter().map(|figure| figure.number()).collect();
        let (mean, half_width_95) = mean_and_interval(&values)?;
        Some(Spread {
            scenario: name.to_owned(),
            changes: changes.to_vec(),
            figure: figure.to_owned(),
            runs: values.len(),
            mean,
            half_width_95,
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            target: figures.first().and_then(|figure| figure.target),
            passed: figures.iter().filter(|figure| figure.passed != Some(false)).count(),
        })
    };

    figure_names(results()).into_iter().filter_map(spread).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_against_known_ones() {
        assert_eq!(mean_and_interval(&[]), None);
        assert_eq!(mean_and_interval(&[5.0]), Some((5.0, None)));
        let (mean, half) = mean_and_interval(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        // s = sqrt(2.5), n = 5, t = 2.776.
        assert!((mean - 3.0).abs() < 1e-12 && (half.unwrap() - 1.963).abs() < 1e-3);
        for count in [2, 31, 32, 41, 200] {
            let values: Vec<f64> = (0..count).map(f64::from).collect();
            assert!(mean_and_interval(&values).unwrap().1.is_some(), "{count}");
        }
    }
}
