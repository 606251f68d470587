//! Checks the classes of a job file, after all names are known.
//!
//! **Why.** A job that joins a class by a wrong name, or two jobs that set different limits for one class, would
//! measure another load than the file states.
//!
//! **How.** [`check`] checks that every joined class exists, that none exists twice, and that jobs of one class agree
//! on its bandwidth.
//!
//! **Limits.** A bound in `--sched-groups` is not compared with that of a job; the job's counts.
//!
//! **Example.** If no job and no group is called `fast`, `class: fast` gives "there is no class called "fast"".

use std::collections::{HashMap, HashSet};

use plimsoll_figures::units::{format_count, quoted};

use super::super::error::{Code, ConfigError};
use super::super::fields::{Field, did_you_mean};
use super::super::jobs::{Job, JobClass};
use super::super::sched_groups::SchedGroups;
use super::schema::Dialect;

/// Checks that every joined class exists, no class exists twice, and bandwidths agree.
pub(super) fn check(
    jobs: &[Job],
    entries: &[Field<'_>],
    groups: &SchedGroups,
    dialect: Dialect,
) -> Result<(), ConfigError> {
    let group_names: HashSet<&str> = groups.groups.iter().map(|group| group.name.as_str()).collect();
    let class_of_job: HashMap<&str, &JobClass> = jobs.iter().map(|job| (job.name.as_str(), &job.class)).collect();
    let group_classes: HashSet<&str> = groups.class_names().into_iter().collect();

    for (job, entry) in jobs.iter().zip(entries) {
        let JobClass::Joined(class) = &job.class else {
            if group_names.contains(job.name.as_str()) {
                let message = format!("{} is already the name of a scheduling group", quoted(&job.name));
                let help = "add `class:` with this name to join it, or rename the job";
                return Err(entry.at("name").error(Code::DuplicateName, message).with_help(help));
            }
            continue;
        };

        let help = match class_of_job.get(class.as_str()) {
            _ if group_classes.contains(class.as_str()) => continue,
            Some(JobClass::Own { .. }) => continue,
            Some(JobClass::Joined(other)) => {
                format!("that job is in the class {} itself: join that one", quoted(other))
            }
            None if group_names.contains(class.as_str()) => {
                "it is a group of classes: join one of the classes inside it".to_owned()
            }
            None => nearest_class(class, jobs, &group_classes, dialect),
        };

        let message = format!("there is no class called {}", quoted(class));
        let at = entry.at("shard_info").at("class");
        return Err(at.error(Code::UnknownReference, message).with_help(help));
    }
    check_bandwidths(jobs, entries)
}

fn nearest_class(class: &str, jobs: &[Job], group_classes: &HashSet<&str>, dialect: Dialect) -> String {
    let owners = jobs.iter().filter(|job| matches!(job.class, JobClass::Own { .. }));
    let mut names: Vec<&str> = group_classes.iter().copied().collect();
    names.extend(owners.map(|owner| owner.name.as_str()));
    // One-letter names are a single typing error apart, so they are no candidates.
    names.retain(|name| name.len() > 1);
    names.sort_unstable();

    let others = match dialect {
        Dialect::Simulated => "`classes:`",
        Dialect::Real => "the --sched-groups file",
    };
    let any = || format!("name a job without `class`, or a class of {others}");
    did_you_mean(class, names.into_iter()).unwrap_or_else(any)
}

/// Checks that jobs of one class that bound its bandwidth agree.
fn check_bandwidths(jobs: &[Job], entries: &[Field<'_>]) -> Result<(), ConfigError> {
    let mut bound_of_class: HashMap<&str, (u64, &str)> = HashMap::new();
    for (job, entry) in jobs.iter().zip(entries) {
        let Some(bytes_per_s) = job.bandwidth_limit_bytes_per_s else { continue };
        let class = match &job.class {
            JobClass::Own { .. } => job.name.as_str(),
            JobClass::Joined(class) => class.as_str(),
        };
        let (first, owner) = *bound_of_class.entry(class).or_insert((bytes_per_s, &job.name));
        if first != bytes_per_s {
            let message = format!("job {} bounds this class to {} bytes a second", quoted(owner), format_count(first));
            let error = entry.at("shard_info").at("bandwidth").error(Code::InvalidValue, message);
            return Err(
                error.with_help("`bandwidth` bounds the class: write it in one of its jobs, or the same in all")
            );
        }
    }
    Ok(())
}
