//! Reads results for a comparison.
//!
//! **Why.** A comparison reads only part of a result, so results of older and newer versions can be compared as long as
//! these keys keep their meaning.
//!
//! **How.** The lists of a file identify its kind: `jobs` of a test, `points` of a sweep, `rows` of a matrix, `trials`
//! of a search for a rate, `runs` of `sim run`, or with a `finding` those of a load once and twice. A point of a sweep,
//! a row of a matrix and a dual run are compared like jobs, and named by their settings. Other descriptions of a result
//! or a job are flattened to names and values; a warning lists those that differ.
//!
//! **Limits.** Newer schemas are refused, and so are tests without intervals, and sweeps from before points had
//! intervals.
//!
//! **Example.** The keys of a test that are read: `{"schema": 1, "backend": "uring", "jobs": [{"name": "reads",
//! "intervals": [{"length_s": 1, "requests": 1000, "bytes": 4096000, "latency_mean_us": 99.5}], "histogram": [[101376,
//! 1000]]}]}`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::CompareError;
use crate::experiment::dual::DualReport;
use crate::experiment::find_rate::{Found, RateReport};
use crate::experiment::matrix::MatrixReport;
use crate::experiment::sweep::SweepReport;
use crate::experiment::{Point, Round};
use crate::report::{self, IntervalReport as Interval};
use crate::sim::form::{self as sim_form, RunForm};
use crate::sim::report::{self as sim_report, sweep_text};
use crate::sim::result::Measured;

/// Most intervals of a job. More are merged, because they would add no information.
const INTERVALS_MAX: usize = 1000;

/// Keys of a test that describe its conditions.
const CONDITIONS: [&str; 6] = ["backend", "shards", "seed", "duration_s", "warmup_s", "machine"];
/// Keys of a test's `place` that describe its conditions. The directory is not one: another directory is on the same
/// disk.
const PLACE_CONDITIONS: [&str; 2] = ["host", "disk"];
/// Keys of a job that describe its work.
const JOB_CONDITIONS: [&str; 5] = ["class", "shares", "kind", "request_bytes", "job"];

pub(super) type Conditions = BTreeMap<String, String>;

#[derive(Debug)]
pub(super) struct Run {
    pub path: String,
    pub version: String,
    pub is_interrupted: bool,
    /// Whether `--max-write` ended jobs that write before the end of the run.
    pub is_cut_short: bool,
    pub conditions: Conditions,
    pub curves: Vec<String>,
    pub content: Content,
}

impl Run {
    fn new(path: &str, value: &Value, content: Content) -> Run {
        let version = value.get("plimsoll").and_then(Value::as_str).unwrap_or_default();
        let is_true = |key: &str| value.get(key).and_then(Value::as_bool).unwrap_or(false);
        Run {
            path: path.to_owned(),
            version: version.to_owned(),
            is_interrupted: is_true("interrupted"),
            is_cut_short: is_true("max_write_reached"),
            conditions: conditions_of(value),
            curves: Vec::new(),
            content,
        }
    }

    pub(super) fn kind(&self) -> &'static str {
        match self.content {
            Content::Test(_) => "a test",
            Content::Search(_) => "a search for a rate",
            Content::Sim(_) => "a simulation",
        }
    }

    /// Returns the names of the jobs, points, searches or scenarios.
    pub(super) fn names(&self) -> Vec<&str> {
        match &self.content {
            Content::Test(jobs) => jobs.iter().map(|job| job.name.as_str()).collect(),
            Content::Search(search) => vec![search.name.as_str()],
            Content::Sim(scenarios) => scenarios.iter().map(|scenario| scenario.name.as_str()).collect(),
        }
    }

    pub(super) fn job(&self, name: &str) -> Option<&Job> {
        match &self.content {
            Content::Test(jobs) => jobs.iter().find(|job| job.name == name),
            Content::Search(_) | Content::Sim(_) => None,
        }
    }
}

#[derive(Debug)]
pub(super) enum Content {
    /// Measurements: the jobs of a test, the points of a sweep, the rows of a matrix, a load once and twice.
    Test(Vec<Job>),
    /// The highest rate that keeps a bound.
    Search(Search),
    /// Exact figures of simulations.
    Sim(Vec<Scenario>),
}

/// A job of a test, over all shards.
#[derive(Debug)]
pub(super) struct Job {
    pub name: String,
    pub conditions: Conditions,
    pub errors: u64,
    /// Runs of the job in one result, at least one.
    pub rounds: Vec<Series>,
}

#[derive(Debug)]
pub(super) struct Series {
    pub intervals: Vec<Interval>,
    /// Upper end of each bucket in nanoseconds, and its requests.
    pub histogram: Vec<(u64, u64)>,
}

/// A search for a rate: the highest that passed, and the lowest above it that failed.
#[derive(Debug)]
pub(super) struct Search {
    /// Job and goal.
    pub name: String,
    pub found: Found,
}

/// A scenario with one seed and one set of changes.
#[derive(Debug)]
pub(super) struct Scenario {
    /// Name, seed and changes.
    pub name: String,
    pub figures: Vec<Measured>,
}

#[derive(Deserialize)]
struct TestFile {
    jobs: Vec<JobEntry>,
}

#[derive(Deserialize)]
struct JobEntry {
    name: String,
    #[serde(default)]
    errors: u64,
    intervals: Vec<Interval>,
    #[serde(default)]
    histogram: Vec<(u64, u64)>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Deserialize)]
struct SimFile {
    runs: Vec<RunForm>,
}

pub(super) fn read(path: &str, text: &str) -> Result<Run, CompareError> {
    let unreadable = |error: serde_json::Error| CompareError::NotAResult {
        path: path.to_owned(),
        line: error.line(),
        reason: error.to_string(),
    };
    let value: Value = serde_json::from_str(text).map_err(unreadable)?;

    let has = |key: &str| value.get(key).is_some_and(Value::is_array);

    if has("jobs") {
        check_schema(path, &value, report::SCHEMA)?;
        test(path, &value, serde_json::from_str(text).map_err(unreadable)?)
    } else if has("runs") && value.get("finding").is_some() {
        dual(path, &value, DualReport::from_json(text).map_err(unreadable)?)
    } else if has("runs") {
        check_schema(path, &value, sim_form::SCHEMA)?;
        sim_report::check_is_whole(&value).map_err(|reason| CompareError::NotAResult {
            path: path.to_owned(),
            line: 1,
            reason,
        })?;
        Ok(sim(path, &value, serde_json::from_str(text).map_err(unreadable)?))
    } else if has("points") {
        sweep(path, &value, serde_json::from_str(text).map_err(unreadable)?)
    } else if has("rows") {
        matrix(path, &value, serde_json::from_str(text).map_err(unreadable)?)
    } else if has("trials") {
        Ok(search(path, &value, serde_json::from_str(text).map_err(unreadable)?))
    } else {
        let reason = "it has none of the lists `jobs`, `points`, `rows`, `trials` and `runs`".to_owned();
        Err(CompareError::NotAResult { path: path.to_owned(), line: 1, reason })
    }
}

fn check_schema(path: &str, value: &Value, newest: u64) -> Result<(), CompareError> {
    let found = value.get("schema").and_then(Value::as_u64);
    if found.is_some_and(|found| (1..=newest).contains(&found)) {
        return Ok(());
    }
    let found = value.get("schema").map(Value::to_string);
    Err(CompareError::Schema { path: path.to_owned(), found, newest })
}

fn test(path: &str, value: &Value, file: TestFile) -> Result<Run, CompareError> {
    let mut jobs = Vec::with_capacity(file.jobs.len());
    for entry in file.jobs {
        let intervals = whole_intervals(&entry.intervals);
        if intervals.is_empty() {
            return Err(CompareError::NoIntervals { path: path.to_owned(), job: entry.name });
        }

        let mut conditions = Conditions::new();
        for key in JOB_CONDITIONS {
            entry.others.get(key).into_iter().for_each(|value| flatten(key, value, &mut conditions));
        }
        let rounds = vec![Series { intervals, histogram: entry.histogram }];
        jobs.push(Job { name: entry.name, conditions, errors: entry.errors, rounds });
    }

    Ok(Run::new(path, value, Content::Test(jobs)))
}

fn conditions_of(value: &Value) -> Conditions {
    let mut conditions = Conditions::new();
    for key in CONDITIONS {
        value.get(key).into_iter().for_each(|value| flatten(key, value, &mut conditions));
    }
    for key in PLACE_CONDITIONS {
        let value = value.get("place").and_then(|place| place.get(key));
        value.into_iter().for_each(|value| flatten(key, value, &mut conditions));
    }
    conditions
}

fn sweep(path: &str, value: &Value, report: SweepReport) -> Result<Run, CompareError> {
    let curve = |found: &crate::experiment::sweep::CurveVerdict| {
        [sweep_text(&found.settings), found.verdict.sentence.clone()].into_iter().filter(|part| !part.is_empty())
    };
    let curves = report.verdicts.iter().map(|found| curve(found).collect::<Vec<_>>().join(": ")).collect();
    let points = report.points.into_iter().map(|point| (sweep_text(&point.settings), point));
    let run = experiment(path, value, points)?;
    Ok(Run { curves, ..run })
}

fn matrix(path: &str, value: &Value, report: MatrixReport) -> Result<Run, CompareError> {
    let rows = report.rows.into_iter().map(|row| (row.name, row.point));
    experiment(path, value, rows)
}

fn dual(path: &str, value: &Value, report: DualReport) -> Result<Run, CompareError> {
    let curves = report.finding.into_iter().map(|found| found.sentence).collect();
    let run = experiment(path, value, report.runs.into_iter().map(|run| (run.name().to_owned(), run.point)))?;
    Ok(Run { curves, ..run })
}

fn experiment(path: &str, value: &Value, points: impl Iterator<Item = (String, Point)>) -> Result<Run, CompareError> {
    let job = |(name, point): (String, Point)| {
        let series =
            |round: Round| Series { intervals: whole_intervals(&round.intervals), histogram: round.histogram.into() };

        let rounds: Vec<Series> = point.rounds.into_iter().map(series).collect();
        if rounds.is_empty() || rounds.iter().any(|round| round.intervals.is_empty()) {
            return Err(CompareError::NoIntervals { path: path.to_owned(), job: name });
        }
        Ok(Job { name, conditions: Conditions::new(), errors: point.errors, rounds })
    };

    Ok(Run::new(path, value, Content::Test(points.map(job).collect::<Result<_, _>>()?)))
}

fn search(path: &str, value: &Value, report: RateReport) -> Run {
    let name = format!("{} with {}", report.job, report.goal);
    Run::new(path, value, Content::Search(Search { name, found: report.found }))
}

/// Returns the intervals that were not cut short. Merges neighbours if there are more than [`INTERVALS_MAX`].
fn whole_intervals(intervals: &[Interval]) -> Vec<Interval> {
    let whole: Vec<Interval> = report::whole_intervals(intervals).copied().collect();
    let together = whole.len().div_ceil(INTERVALS_MAX).max(1);
    // A shorter remainder at the end is left out as well.
    whole.chunks_exact(together).map(|neighbours| neighbours.iter().fold(Interval::default(), plus)).collect()
}

fn plus(one: Interval, other: &Interval) -> Interval {
    let sum_us = |interval: &Interval| interval.latency_mean_us * interval.requests as f64;
    let requests = one.requests.saturating_add(other.requests);
    Interval {
        length_s: one.length_s + other.length_s,
        requests,
        bytes: one.bytes.saturating_add(other.bytes),
        latency_mean_us: (sum_us(&one) + sum_us(other)) / requests.max(1) as f64,
        latency_max_us: one.latency_max_us.max(other.latency_max_us),
    }
}

/// Flattens nested maps to values under names joined by dots, without the prefix `job.`.
fn flatten(name: &str, value: &Value, into: &mut Conditions) {
    match value {
        Value::Null => drop(into.insert(name.to_owned(), "none".to_owned())),
        Value::Object(map) => {
            for (key, value) in map {
                let below = if name == "job" { key.clone() } else { format!("{name}.{key}") };
                flatten(&below, value, into);
            }
        }
        Value::String(text) => drop(into.insert(name.to_owned(), text.clone())),
        other => drop(into.insert(name.to_owned(), other.to_string())),
    }
}

fn sim(path: &str, value: &Value, file: SimFile) -> Run {
    let scenario = |run: RunForm| {
        let changes: String = run.changes().map(|change| format!(" {change}")).collect();
        Scenario { name: format!("{} seed={}{changes}", run.name, run.seed), figures: run.figures.unwrap_or_default() }
    };
    Run::new(path, value, Content::Sim(file.runs.into_iter().map(scenario).collect()))
}
