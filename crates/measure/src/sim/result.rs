//! What one run of a scenario found, named scenario or a user's.
//!
//! # Why
//! Both are printed, drawn and judged in the same way.
//!
//! # How it works
//! A named scenario's [`Outcome`] becomes a [`RunResult`]; a user's scenario makes one itself, without targets.
//!
//! # Limits
//! Figures are plain numbers; their unit is in their name.
//!
//! # Example
//! See [`super::run`].

use plimsoll_sim::scenario::{self, Outcome, Series, Table, Target};

/// What a run found.
#[derive(Clone, Debug, Default)]
pub struct RunResult {
    /// Tables.
    pub tables: Vec<Table>,
    /// Figures.
    pub figures: Vec<Measured>,
    /// Remarks.
    pub remarks: Vec<String>,
    /// Curves.
    pub series: Vec<Series>,
    /// Simulated requests.
    pub requests: u64,
    /// Hash of the event log.
    pub log_hash: u64,
}

/// A figure; those of a user's scenario have no target.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// What was measured, with its unit.
    pub name: String,
    /// What came out.
    pub value: f64,
    /// What it should be.
    pub target: Option<Target>,
}

impl Measured {
    /// Whether it is what it should be; `None` without a target.
    #[must_use]
    pub fn passed(&self) -> Option<bool> {
        let figure = |target| scenario::Figure { name: String::new(), value: self.value, target };
        self.target.map(|target| figure(target).passed())
    }
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
