//! Compares results: which figures differ by more than chance explains, and how much.
//!
//! # Why
//! Two runs of one load never give the same figures, so in any pair one looks better. A change of the disk, the kernel
//! or the scheduler is better or worse only with evidence; a script that guards a release must not raise false alarms.
//!
//! # How it works
//! A *side* is one result or several of the same setup; the first side is the base, and each other side is compared
//! with it, job by job. Throughput, IOPS and mean latency come from the intervals of the jobs, by Welch's test with the
//! effective number of samples of the intervals (`stats`); percentiles come from the histograms, by resampling
//! (`percentiles`). The p values of all comparisons are adjusted together by Hochberg's method. *Better* or *worse*
//! requires a p below [`ALPHA`] and a change above the threshold; *same* requires the whole 95 % interval within the
//! threshold; all else is *open*. Figures of simulations are exact (`exact`): any difference is real. A point of a
//! sweep and a row of a matrix are compared like jobs, its rounds like runs; of a search for a rate, the two ends are
//! compared (`searches`). [`Overall`] is the verdict on all jobs or points together.
//!
//! # Limits
//! * Differences between runs (another place on the disk, another moment of the cloud) show only over several runs of a
//!   side; two show them roughly, five well.
//! * With one run a side, any cause of a difference between the two runs counts. Warnings name options, backend,
//!   shards, seed and machine if they differ.
//! * A few intervals that resemble their neighbours are worth little: docs/formats.md has the rates of false alarms and
//!   of changes found.
//!
//! # Example
//! ```
//! use plimsoll_measure::compare::{CompareOptions, Source, Verdict, compare};
//! let result = |iops: u64| {
//!     let interval = |at: u64| {
//!         let requests = iops + at * 7 % 5;
//!         format!(r#"{{"length_s": 1, "requests": {requests}, "bytes": {}, "latency_mean_us": 100}}"#, requests << 12)
//!     };
//!     let intervals: Vec<String> = (0..60).map(interval).collect();
//!     format!(r#"{{"schema": 1, "jobs": [{{"name": "reads", "intervals": [{}]}}]}}"#, intervals.join(","))
//! };
//! let side = |name: &str, iops| vec![Source { path: name.to_owned(), text: result(iops) }];
//! let report = compare(&[side("a.json", 1000), side("b.json", 900)], &CompareOptions::default())?;
//! assert!(report.regression);
//! assert_eq!(report.comparisons[0].verdict, Verdict::Worse);
//! # Ok::<(), plimsoll_measure::compare::CompareError>(())
//! ```

mod conditions;
mod exact;
mod input;
mod measured;
mod output;
mod searches;
mod words;

use plimsoll_figures::stats::{self, ALPHA};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use input::{Content, Run};
pub use words::CELL_HEADERS;

/// Version of the JSON form.
const SCHEMA: u32 = 1;
/// Most sides: each has a letter.
const SIDES_MAX: usize = 26;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CompareOptions {
    /// Largest change in per cent that does not count, however certain. At least 0.
    pub threshold_pct: f64,
    /// Seed of the resampling of percentiles. The same seed gives the same result.
    pub seed: u64,
}

impl Default for CompareOptions {
    fn default() -> CompareOptions {
        CompareOptions { threshold_pct: 1.0, seed: 1 }
    }
}

#[derive(Clone, Debug)]
pub struct Source {
    pub path: String,
    pub text: String,
}

/// Why results cannot be compared.
#[derive(Debug, Error)]
pub enum CompareError {
    #[error("{count} result(s): name from 2 to 26, separated by spaces; several runs of one side by commas")]
    Sides { count: usize },
    #[error("result {side} names no file: files of one side are separated by single commas")]
    EmptySide { side: char },
    #[error(
        "{path}:{line}: not a result that can be compared: {reason}; expected what `plimsoll test --format json` (also with \
         --sweep, --matrix, --dual or --find-rate) or `plimsoll sim run --format json` prints"
    )]
    NotAResult {
        path: String,
        /// Line in the file, from 1.
        line: usize,
        reason: String,
    },
    #[error(
        "{path}: key `schema`: {}; expected {}; {}",
        found.as_deref().unwrap_or("is missing"),
        if *newest == 1 { "1".to_owned() } else { format!("1 to {newest}") },
        if found.is_some() {
            "use the version of plimsoll that made it"
        } else {
            "run it again with `--format json` (what fio prints, or `--format fio-json`, has no runs over time)"
        }
    )]
    Schema {
        path: String,
        /// The schema in the file, if any.
        found: Option<String>,
        /// The newest schema that this version reads.
        newest: u64,
    },
    #[error(
        "{path}: job `{job}`: key `intervals`: expected at least one interval of a positive length; the job did not \
         run, or not for long enough: run it again, longer"
    )]
    NoIntervals { path: String, job: String },
    #[error("{one} is the result of {one_kind}, {other} of {other_kind}: compare results of one kind")]
    Kinds {
        one: String,
        one_kind: &'static str,
        /// The file of another kind.
        other: String,
        other_kind: &'static str,
    },
    #[error(
        "{other} has no {what} in common with {base}: nothing can be compared; {base} has {base_names}, {other} has \
         {other_names}: run the same ones on both sides"
    )]
    NothingInCommon {
        /// Kind of the compared things: job or point, or scenario with a seed.
        what: &'static str,
        base: String,
        /// The other side's files.
        other: String,
        base_names: String,
        other_names: String,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Better than the base, with evidence.
    Better,
    /// Worse than the base, with evidence.
    Worse,
    /// The whole 95 % interval is within the threshold.
    Same,
    /// There is no evidence either way.
    #[default]
    Open,
    /// An exact figure differs, and neither direction is known to be good.
    Changed,
}

/// One figure of one job: the base's and another side's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The job, or the scenario with its seed and changes.
    pub job: String,
    pub side: char,
    /// `throughput_bytes_per_s`, `iops`, `latency_mean_us`, `latency_p50_us`, `latency_p95_us`, `latency_p99_us`,
    /// `latency_p99_9_us`, or the name of a simulation's figure.
    pub metric: String,
    pub base: f64,
    /// The other side's figure.
    pub other: f64,
    /// Difference in per cent of the base; `None` if the base is 0.
    pub change_pct: Option<f64>,
    /// Lower end of the 95 % interval of the change; `None` if unknown.
    pub change_low_pct: Option<f64>,
    /// Upper end of the 95 % interval of the change; `None` if unknown.
    pub change_high_pct: Option<f64>,
    /// Probability of such a difference by chance; `None` for exact figures, and with too few samples.
    pub p: Option<f64>,
    /// `p`, adjusted for all comparisons of the report together.
    pub p_together: Option<f64>,
    /// Effective number of independent samples in the base's data: intervals, or requests for percentiles.
    pub base_effective_count: Option<f64>,
    /// Effective number of independent samples in the other side's data.
    pub other_effective_count: Option<f64>,
    pub verdict: Verdict,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Side {
    /// Letter of the side: A is the base.
    pub side: char,
    pub files: Vec<String>,
    /// Versions of the program that made the files.
    pub versions: Vec<String>,
    /// Verdicts on the curves of the side's sweeps, without repetitions.
    #[serde(default)]
    pub curves: Vec<String>,
}

/// The verdict on a job as a whole, against another side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobVerdict {
    pub job: String,
    pub side: char,
    /// Letter of the side that is better in at least one figure and worse in none; `None` without evidence.
    pub winner: Option<char>,
}

/// The verdict on all jobs or points together, against another side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overall {
    pub side: char,
    /// Letter of the side that is better in at least one job and worse in none; `None` without evidence.
    pub winner: Option<char>,
    /// Jobs in which the other side is better.
    pub better: usize,
    /// Jobs in which the base is better.
    pub worse: usize,
    /// Jobs without a winner.
    pub open: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompareReport {
    /// Version of the JSON form.
    pub schema: u32,
    pub plimsoll: String,
    /// Probability of a false alarm over all comparisons together.
    pub alpha: f64,
    /// Largest change in per cent that does not count.
    pub threshold_pct: f64,
    pub seed: u64,
    /// Sides, the base first.
    pub sides: Vec<Side>,
    /// Differences between the sides beside the figures.
    pub warnings: Vec<String>,
    /// Comparisons by job in the base's order, then by figure, then by side.
    pub comparisons: Vec<Comparison>,
    /// Verdicts by job in the base's order, then by side.
    pub jobs: Vec<JobVerdict>,
    /// Verdicts on all jobs together, by side.
    #[serde(default)]
    pub overall: Vec<Overall>,
    /// Whether any figure is worse than the base's.
    pub regression: bool,
}

struct Group {
    side: char,
    runs: Vec<Run>,
}

impl Group {
    fn files(&self) -> String {
        self.runs.iter().map(|run| run.path.as_str()).collect::<Vec<_>>().join(",")
    }
}

/// Compares each side (one or several results of the same setup) with the first.
pub fn compare(sides: &[Vec<Source>], options: &CompareOptions) -> Result<CompareReport, CompareError> {
    if !(2..=SIDES_MAX).contains(&sides.len()) {
        return Err(CompareError::Sides { count: sides.len() });
    }

    let mut groups = Vec::with_capacity(sides.len());
    for (side, sources) in ('A'..='Z').zip(sides) {
        let runs: Vec<Run> =
            sources.iter().map(|source| input::read(&source.path, &source.text)).collect::<Result<_, _>>()?;
        if runs.is_empty() {
            return Err(CompareError::EmptySide { side });
        }
        groups.push(Group { side, runs });
    }

    check_kinds(&groups)?;
    check_common(&groups)?;

    let comparisons = match groups.first().and_then(|group| group.runs.first()).map(|run| &run.content) {
        Some(Content::Sim(_)) => exact::comparisons(&groups, options),
        Some(Content::Search(_)) => searches::comparisons(&groups, options),
        _ => {
            let mut comparisons = measured::comparisons(&groups, options);
            judge(&mut comparisons, options);
            comparisons
        }
    };
    let jobs = job_verdicts(&comparisons);

    Ok(CompareReport {
        schema: SCHEMA,
        plimsoll: env!("CARGO_PKG_VERSION").to_owned(),
        alpha: ALPHA,
        threshold_pct: options.threshold_pct,
        seed: options.seed,
        sides: groups.iter().map(side).collect(),
        warnings: conditions::warnings(&groups),
        overall: groups.iter().skip(1).map(|group| overall(group.side, &jobs)).collect(),
        jobs,
        regression: comparisons.iter().any(|comparison| comparison.verdict == Verdict::Worse),
        comparisons,
    })
}

fn side(group: &Group) -> Side {
    let mut versions: Vec<String> = group.runs.iter().map(|run| run.version.clone()).collect();
    versions.dedup();
    let mut curves: Vec<String> = Vec::new();
    for curve in group.runs.iter().flat_map(|run| &run.curves) {
        if !curves.contains(curve) {
            curves.push(curve.clone());
        }
    }
    Side { side: group.side, files: group.runs.iter().map(|run| run.path.clone()).collect(), versions, curves }
}

fn check_kinds(groups: &[Group]) -> Result<(), CompareError> {
    let mut runs = groups.iter().flat_map(|group| &group.runs);
    let Some(first) = runs.next() else { return Ok(()) };
    match runs.find(|run| run.kind() != first.kind()) {
        Some(run) => Err(CompareError::Kinds {
            one: first.path.clone(),
            one_kind: first.kind(),
            other: run.path.clone(),
            other_kind: run.kind(),
        }),
        None => Ok(()),
    }
}

fn is_sim(group: &Group) -> bool {
    group.runs.iter().any(|run| matches!(run.content, Content::Sim(_)))
}

/// Returns the jobs that every run of a side has, or the scenarios that any run of a side has.
fn names(group: &Group) -> Vec<&str> {
    let is_sim = is_sim(group);
    let mut names: Vec<&str> = Vec::new();
    for name in group.runs.iter().flat_map(Run::names) {
        if !names.contains(&name) && (is_sim || group.runs.iter().all(|run| run.names().contains(&name))) {
            names.push(name);
        }
    }
    names
}

fn check_common(groups: &[Group]) -> Result<(), CompareError> {
    let Some((base, others)) = groups.split_first() else { return Ok(()) };
    let base_names = names(base);
    for other in others {
        let other_names = names(other);
        if !other_names.iter().any(|name| base_names.contains(name)) {
            let list = |names: &[&str]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Err(CompareError::NothingInCommon {
                what: if is_sim(base) { "scenario with a seed" } else { "job or point" },
                base: base.files(),
                other: other.files(),
                base_names: list(&base_names),
                other_names: list(&other_names),
            });
        }
    }
    Ok(())
}

/// Adjusts the p values of all comparisons together, and sets the verdicts.
fn judge(comparisons: &mut [Comparison], options: &CompareOptions) {
    let alone: Vec<f64> = comparisons.iter().filter_map(|comparison| comparison.p).collect();
    let together = stats::hochberg(&alone);
    let tested = comparisons.iter_mut().filter(|comparison| comparison.p.is_some());
    for (comparison, p) in tested.zip(together) {
        comparison.p_together = Some(p);
    }
    for comparison in comparisons {
        comparison.verdict = verdict(comparison, options.threshold_pct);
    }
}

fn verdict(comparison: &Comparison, threshold_pct: f64) -> Verdict {
    let Comparison { change_pct, change_low_pct, change_high_pct, p_together, .. } = comparison;
    let is_sure = p_together.is_some_and(|p| p < ALPHA);
    let rises = comparison.other > comparison.base;
    // A change from zero has no percentage and exceeds any threshold.
    if is_sure && change_pct.is_none_or(|change| change.abs() > threshold_pct) {
        let is_latency = comparison.metric.starts_with("latency");
        return if rises == is_latency { Verdict::Worse } else { Verdict::Better };
    }
    match change_low_pct.zip(*change_high_pct) {
        Some((low, high)) if -threshold_pct <= low && high <= threshold_pct => Verdict::Same,
        _ => Verdict::Open,
    }
}

fn job_verdicts(comparisons: &[Comparison]) -> Vec<JobVerdict> {
    let mut verdicts: Vec<JobVerdict> = Vec::new();
    for Comparison { job, side, .. } in comparisons {
        if verdicts.iter().any(|verdict| verdict.job == *job && verdict.side == *side) {
            continue;
        }
        let of = |comparison: &&Comparison| comparison.job == *job && comparison.side == *side;
        let any = |verdict| comparisons.iter().filter(of).any(|comparison| comparison.verdict == verdict);
        let winner = match (any(Verdict::Better), any(Verdict::Worse)) {
            (true, false) => Some(*side),
            (false, true) => Some('A'),
            _ => None,
        };
        verdicts.push(JobVerdict { job: job.clone(), side: *side, winner });
    }
    verdicts
}

fn overall(side: char, jobs: &[JobVerdict]) -> Overall {
    let count = |winner: Option<char>| jobs.iter().filter(|job| job.side == side && job.winner == winner).count();
    let (better, worse, open) = (count(Some(side)), count(Some('A')), count(None));
    let winner = match (better, worse) {
        (1.., 0) => Some(side),
        (0, 1..) => Some('A'),
        _ => None,
    };
    Overall { side, winner, better, worse, open }
}

#[cfg(test)]
mod tests;
