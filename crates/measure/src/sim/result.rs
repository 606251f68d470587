//! The result of one run of a scenario, named or a user's.
//!
//! **Why.** Both kinds are printed, drawn and judged in the same way.
//!
//! **How.** A named scenario's [`Outcome`] becomes a [`RunResult`]; a user's scenario makes one directly, without
//! targets.
//!
//! **Limits.** Figures are plain numbers; their unit is in their name.
//!
//! **Example.** See [`super::run`].

use plimsoll_sim::scenario::{self, Outcome, Series, Table, Target};
use serde::{Deserialize, Serialize, Serializer};

#[derive(Clone, Debug, Default)]
pub struct RunResult {
    pub tables: Vec<Table>,
    pub figures: Vec<Measured>,
    pub remarks: Vec<String>,
    pub series: Vec<Series>,
    pub requests: u64,
    pub log_hash: u64,
}

/// A figure. Figures of a user's scenario have no target.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    pub name: String,
    /// The value; NaN where it is no finite number, as a result in JSON could not say which of them it is.
    pub value: f64,
    /// The bounds it should keep.
    pub target: Option<Target>,
}

impl Measured {
    /// Returns whether the figure meets its target; `None` without a target.
    pub fn passed(&self) -> Option<bool> {
        let figure = |target| scenario::Figure { name: String::new(), value: self.value, target };
        self.target.map(|target| figure(target).passed())
    }
}

/// The bounds of a figure in JSON.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Bounds {
    pub(crate) at_least: Option<f64>,
    pub(crate) at_most: Option<f64>,
}

impl Bounds {
    pub(super) fn of(target: Target) -> Bounds {
        match target {
            Target::AtMost(most) => Bounds { at_least: None, at_most: Some(most) },
            Target::AtLeast(least) => Bounds { at_least: Some(least), at_most: None },
            Target::Between(least, most) => Bounds { at_least: Some(least), at_most: Some(most) },
        }
    }

    /// Returns the target with these bounds; `None` without any.
    pub(super) fn target(self) -> Option<Target> {
        match (self.at_least, self.at_most) {
            (None, None) => None,
            (None, Some(most)) => Some(Target::AtMost(most)),
            (Some(least), None) => Some(Target::AtLeast(least)),
            (Some(least), Some(most)) => Some(Target::Between(least, most)),
        }
    }
}

pub(super) fn as_bounds<S: Serializer>(target: &Option<Target>, serializer: S) -> Result<S::Ok, S::Error> {
    target.map(Bounds::of).serialize(serializer)
}

pub(super) fn as_map<S: Serializer>(changes: &[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(changes.iter().map(|(key, value)| (key, value)))
}

impl From<Outcome> for RunResult {
    fn from(outcome: Outcome) -> RunResult {
        let measured =
            |figure: scenario::Figure| Measured { name: figure.name, value: figure.value, target: Some(figure.target) };
        RunResult {
            tables: outcome.tables,
            figures: outcome.figures.into_iter().map(measured).collect(),
            remarks: outcome.remarks,
            series: outcome.series,
            requests: outcome.requests,
            log_hash: outcome.log_hash,
        }
    }
}
