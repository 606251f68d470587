//! The result of one run of a scenario, named or a user's.
//!
//! **Why.** Both kinds are printed, drawn and judged in the same way.
//!
//! **How.** A named scenario's [`Outcome`] becomes a [`RunResult`]; a user's scenario makes one directly, without
//! targets. Figures and tables have the same form in JSON.
//!
//! **Limits.** Figures are plain numbers; their unit is in their name.
//!
//! **Example.** See [`super::run`].

use plimsoll_sim::scenario::{Figure, Outcome, Series, Target};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default)]
pub struct RunResult {
    pub tables: Vec<Table>,
    pub figures: Vec<Measured>,
    pub remarks: Vec<String>,
    pub series: Vec<Series>,
    pub requests: u64,
    pub log_hash: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Table {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<String>>,
    pub title: String,
}

/// A figure. Figures of a user's scenario have no target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    pub name: String,
    /// Whether the figure meets its target; `None` without a target.
    pub passed: Option<bool>,
    pub target: Option<Bounds>,
    /// The value; `None` if it is not finite, because JSON cannot express it.
    pub value: Option<f64>,
}

impl Measured {
    /// Returns a figure, judged if it has a target.
    pub(super) fn new(name: String, value: f64, target: Option<Target>) -> Measured {
        let value = if value.is_finite() { value } else { f64::NAN };
        let passed = target.map(|target| Figure { name: String::new(), value, target }.passed());
        Measured { name, passed, target: target.map(Bounds::of), value: Some(value).filter(|value| value.is_finite()) }
    }

    /// Returns the value; NaN if it is not finite.
    pub fn number(&self) -> f64 {
        self.value.unwrap_or(f64::NAN)
    }
}

/// The bounds of a figure; at least one of them if it has a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    pub at_least: Option<f64>,
    pub at_most: Option<f64>,
}

impl Bounds {
    fn of(target: Target) -> Bounds {
        match target {
            Target::AtMost(most) => Bounds { at_least: None, at_most: Some(most) },
            Target::AtLeast(least) => Bounds { at_least: Some(least), at_most: None },
            Target::Between(least, most) => Bounds { at_least: Some(least), at_most: Some(most) },
        }
    }
}

impl From<Outcome> for RunResult {
    fn from(outcome: Outcome) -> RunResult {
        let figure = |figure: Figure| Measured::new(figure.name, figure.value, Some(figure.target));
        RunResult {
            tables: outcome
                .tables
                .into_iter()
                .map(|t| Table { title: t.title, columns: t.columns, rows: t.rows })
                .collect(),
            figures: outcome.figures.into_iter().map(figure).collect(),
            remarks: outcome.remarks,
            series: outcome.series,
            requests: outcome.requests,
            log_hash: outcome.log_hash,
        }
    }
}
