//! Named scenarios: each experiment of the project's source documents, and each figure that the scheduler promises, as
//! a program.
//!
//! # Why
//! A claim that cannot be run again is worth nothing. Each scenario builds worlds, runs them with a seed, prints its
//! table beside the published figures, and judges its own figures: scenarios are tests.
//!
//! # How it works
//! A [`Scenario`] is a name and a function of a seed. It says how far it is, and returns plain data: tables, figures
//! with their targets, remarks, series for a picture. Rendering is done elsewhere.
//!
//! # Limits
//! Scenarios run on virtual time and one core; each takes at most a few seconds of real time.
//!
//! # Example
//! ```
//! let scenario = plimsoll_sim::scenario::find("unconfigured").expect("a scenario of that name");
//! let outcome = (scenario.run)(1, &|_part| ())?;
//! assert!(outcome.figures.iter().all(|figure| figure.passed()));
//! # Ok::<(), plimsoll_sim::scenario::ScenarioError>(())
//! ```

#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Name on the command line: lower case, words joined by `-`.
    pub name: &'static str,
    /// Subject of the scenario, in one line.
    pub title: &'static str,
    /// The items of the source documents that it covers, such as `0.19` or `1.28`.
    pub seed_items: &'static [&'static str],
    /// Runs it with a seed. Reaches the whole with its last world.
    pub run: fn(u64, Advance<'_>) -> Result<Outcome, ScenarioError>,
}

/// Takes the part of a run that is done, from 0 to 1, as often as it grows: on the thread of the run, or on several.
pub type Advance<'a> = &'a (dyn Fn(f64) + Sync);

#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub tables: Vec<Table>,
    pub figures: Vec<Figure>,
    /// Differences from the published result, with their reasons.
    pub remarks: Vec<String>,
    /// Curves worth a picture.
    pub series: Vec<Series>,
    /// Simulated requests that were dispatched.
    pub requests: u64,
    /// Hash of all event logs, in the order of the runs.
    pub log_hash: u64,
}

/// A table of text: at most 100 columns when padded.
#[derive(Clone, Debug, Default)]
pub struct Table {
    pub title: String,
    /// Column titles, with units.
    pub columns: Vec<String>,
    /// Rows, each with a cell for every column.
    pub rows: Vec<Vec<String>>,
}

#[derive(Clone, Debug)]
pub struct Figure {
    /// Name of the measured quantity, with its unit.
    pub name: String,
    pub value: f64,
    pub target: Target,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    AtMost(f64),
    AtLeast(f64),
    /// Between the two values, both included.
    Between(f64, f64),
}

impl Figure {
    /// Returns whether the figure meets its target. NaN does not.
    pub fn passed(&self) -> bool {
        match self.target {
            Target::AtMost(most) => self.value <= most,
            Target::AtLeast(least) => self.value >= least,
            Target::Between(least, most) => (least..=most).contains(&self.value),
        }
    }
}

/// Curves over one axis.
#[derive(Clone, Debug, Default)]
pub struct Series {
    pub title: String,
    pub x: String,
    pub y: String,
    /// Name of each curve, and its points.
    pub curves: Vec<(String, Vec<(f64, f64)>)>,
}

/// The reason why a scenario could not run: always a defect of the scenario.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct ScenarioError(pub String);

impl From<crate::world::WorldError> for ScenarioError {
    fn from(error: crate::world::WorldError) -> ScenarioError {
        ScenarioError(error.to_string())
    }
}

/// Returns all scenarios, in the best order for reading.
pub fn all() -> Vec<Scenario> {
    [shares::SCENARIOS, seeds::SCENARIOS, disks::SCENARIOS].concat()
}

pub fn find(name: &str) -> Option<Scenario> {
    all().into_iter().find(|scenario| scenario.name == name)
}

mod disks;
mod seeds;
mod shares;
mod support;
