//! Warns about differences between results other than the figures.
//!
//! **Why.** A difference may come from any condition that changed. A user who changed the scheduler and, without
//! noticing, the backend should be told.
//!
//! **How.** Each run is compared with the first run of the base, condition by condition; a condition that differs is
//! reported once, with its values by file. So are jobs that some sides lack, jobs with failed requests, and runs that
//! were interrupted or reached their write bound.
//!
//! **Limits.** Versions of this program are no condition: comparing two versions is a purpose of a comparison. A
//! condition that a file lacks is not compared.
//!
//! **Example.** `backend differs: uring (a.json), aio (b.json)`.

use super::input::{Conditions, Job, Run};
use super::{Group, names};

/// Returns the warnings as sentences, in no order of importance.
pub(super) fn warnings(groups: &[Group]) -> Vec<String> {
    let runs: Vec<&Run> = groups.iter().flat_map(|group| &group.runs).collect();
    let mut warnings = Vec::new();
    let conditions: Vec<_> = runs.iter().map(|run| (run.path.as_str(), &run.conditions)).collect();
    differences("", &conditions, &mut warnings);
    for name in groups.first().map(names).unwrap_or_default() {
        let jobs: Vec<(&str, &Job)> = runs.iter().filter_map(|run| Some((run.path.as_str(), run.job(name)?))).collect();
        let conditions: Vec<_> = jobs.iter().map(|(path, job)| (*path, &job.conditions)).collect();
        differences(&format!("job `{name}`: "), &conditions, &mut warnings);
        for (path, job) in jobs.iter().filter(|(_, job)| job.errors > 0) {
            warnings.push(format!("job `{name}`: {} request(s) failed in {path}", job.errors));
        }
    }
    let interrupted = runs.iter().filter(|run| run.is_interrupted);
    warnings.extend(interrupted.map(|run| format!("{} was interrupted: it is shorter than it should be", run.path)));
    let cut_short = runs.iter().filter(|run| run.is_cut_short);
    let without_writers = |run: &&Run| {
        format!("--max-write ended writers of {} early: what ran on beside them had the disk for itself", run.path)
    };
    warnings.extend(cut_short.map(without_writers));
    lone_jobs(groups, &mut warnings);
    warnings
}

/// Adds a warning for each condition of the first file that another file has with another value.
fn differences(of: &str, files: &[(&str, &Conditions)], warnings: &mut Vec<String>) {
    let Some(((first, conditions), others)) = files.split_first() else { return };
    for (name, value) in *conditions {
        let mut text = format!("{of}{name} differs: {value} ({first})");
        let mut differs = false;
        for (path, other) in others {
            if let Some(other) = other.get(name).filter(|other| *other != value) {
                text.push_str(&format!(", {other} ({path})"));
                differs = true;
            }
        }
        if differs {
            warnings.push(text);
        }
    }
}

/// Adds a warning for each job that is not compared because a side lacks it.
fn lone_jobs(groups: &[Group], warnings: &mut Vec<String>) {
    let Some((base, others)) = groups.split_first() else { return };
    let base_names = names(base);
    for other in others {
        let other_names = names(other);
        for name in base_names.iter().filter(|name| !other_names.contains(name)) {
            warnings.push(format!("`{name}` is not in every file of {}: not compared", other.files()));
        }
        for name in other_names.iter().filter(|name| !base_names.contains(name)) {
            warnings.push(format!("`{name}` is not in every file of {}: not compared", base.files()));
        }
    }
}
