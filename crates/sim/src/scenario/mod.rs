//! Named scenarios: each experiment of the project's source documents, and each figure the scheduler promises, as a program.
//!
//! # Why
//! A claim that cannot be run again is worth nothing. Each scenario builds worlds, runs them with a seed, prints its table
//! beside the figures that others published, and judges its own figures: they are tests.
//!
//! # How it works
//! A [`Scenario`] is a name and a function of a seed. What it returns is plain data: tables, figures with their targets,
//! remarks, series for a picture. Rendering is somebody else's work.
//!
//! # Limits
//! Scenarios run on virtual time and one core; each takes at most some seconds of real time.
//!
//! # Example
//! ```
//! let scenario = plimsoll_sim::scenario::find("unconfigured").expect("a scenario of that name");
//! let outcome = (scenario.run)(1)?;
//! assert!(outcome.figures.iter().all(|figure| figure.passed()));
//! # Ok::<(), plimsoll_sim::scenario::ScenarioError>(())
//! ```

/// One scenario.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Name, as on the command line: lower case, words joined by `-`.
    pub name: &'static str,
    /// What it shows, in one line.
    pub title: &'static str,
    /// Which items of the source documents it is about, such as `0.19` or `1.28`.
    pub seed_items: &'static [&'static str],
    /// Runs it with a seed.
    pub run: fn(u64) -> Result<Outcome, ScenarioError>,
}

/// What a scenario found.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Tables, ours beside the published figures.
    pub tables: Vec<Table>,
    /// Figures and their targets.
    pub figures: Vec<Figure>,
    /// Where and why the result differs from what was published.
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
    /// What it shows.
    pub title: String,
    /// Column titles, with units.
    pub columns: Vec<String>,
    /// Rows, as many cells as there are columns.
    pub rows: Vec<Vec<String>>,
}

/// A measured figure and what it should be.
#[derive(Clone, Debug)]
pub struct Figure {
    /// What was measured, with its unit.
    pub name: String,
    /// What came out.
    pub value: f64,
    /// What it should be.
    pub target: Target,
}

/// What a figure should be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// At most so much.
    AtMost(f64),
    /// At least so much.
    AtLeast(f64),
    /// Between the two, both included.
    Between(f64, f64),
}

impl Figure {
    /// Whether the figure is what it should be. NaN is not.
    #[must_use]
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
    /// What it shows.
    pub title: String,
    /// Name and unit of the horizontal axis.
    pub x: String,
    /// Name and unit of the vertical axis.
    pub y: String,
    /// Name of each curve, and its points.
    pub curves: Vec<(String, Vec<(f64, f64)>)>,
}

/// Why a scenario could not run: always a defect of the scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError(pub String);

impl core::fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for ScenarioError {}

impl From<crate::world::WorldError> for ScenarioError {
    fn from(error: crate::world::WorldError) -> ScenarioError {
        ScenarioError(error.to_string())
    }
}

/// All scenarios, in the order in which they are best read.
#[must_use]
pub fn all() -> Vec<Scenario> {
    [shares::SCENARIOS, seeds::SCENARIOS, disks::SCENARIOS].concat()
}

/// The scenario of that name.
#[must_use]
pub fn find(name: &str) -> Option<Scenario> {
    all().into_iter().find(|scenario| scenario.name == name)
}

mod disks;
mod seeds;
mod shares;
mod support;
