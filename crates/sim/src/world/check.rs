//! Checks a world before it runs.

use super::spec::{Change, ClassSpec, ShardSpec, SimDisk, WorldSpec};
use crate::workload::{JobSpec, Load, Pattern, ShardSet, SizeDist};
use plimsoll_core::{Op, Qos};
use thiserror::Error;

/// Most shards of a world.
pub const MAX_SHARDS: usize = 65_535;
/// Highest rate of an open loop on one shard, in requests a second.
pub const MAX_REQUESTS_PER_S: f64 = 1e9;

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum WorldError {
    #[error("duration_ns and sample_ns must be at least 1, and warm-up and duration together below 2^63 ns")]
    BadDuration,
    #[error("{shards} shards: give 1 to {MAX_SHARDS}")]
    BadShardCount { shards: usize },
    /// No job, or none that ever starts.
    #[error("nothing ever happens in this world: give it a job that starts")]
    NothingToDo,
    #[error("two of the name {what} \"{name}\": names must differ")]
    Twice {
        /// `class` or `job`.
        what: &'static str,
        name: String,
    },
    /// A name of something that does not exist, or is not yet defined where it is named.
    #[error("{wanted_by} names {what} \"{name}\", which does not exist (there)")]
    Unknown {
        /// `class`, `group`, `job`, `disk` or `shard`.
        what: &'static str,
        /// Its name or number.
        name: String,
        /// The item that names it.
        wanted_by: String,
    },
    #[error("{item}: {problem}")]
    Invalid {
        /// The item with the value, as `job "reads"`.
        item: String,
        problem: String,
    },
    /// Events follow each other without time advancing (a device that takes no time, in a closed loop).
    #[error("time stands still at {at_ns} ns: some device serves requests in no time")]
    StandsStill { at_ns: u64 },
}

pub(crate) fn invalid(item: impl Into<String>, problem: impl Into<String>) -> WorldError {
    WorldError::Invalid { item: item.into(), problem: problem.into() }
}

fn unknown(what: &'static str, name: impl ToString, wanted_by: impl Into<String>) -> WorldError {
    WorldError::Unknown { what, name: name.to_string(), wanted_by: wanted_by.into() }
}

/// Checks everything that does not need the devices.
pub(crate) fn check(spec: &WorldSpec) -> Result<(), WorldError> {
    let end_ns = spec.warmup_ns.checked_add(spec.duration_ns);
    if spec.duration_ns == 0 || spec.sample_ns == 0 || end_ns.is_none_or(|end_ns| end_ns >= 1 << 63) {
        return Err(WorldError::BadDuration);
    }

    if spec.shards.is_empty() || spec.shards.len() > MAX_SHARDS {
        return Err(WorldError::BadShardCount { shards: spec.shards.len() });
    }

    spec.shards.iter().enumerate().try_for_each(|(at, shard)| check_shard(at, shard))?;
    spec.disks.iter().enumerate().try_for_each(|(at, disk)| check_disk(spec, at, disk))?;
    check_classes(spec)?;
    spec.jobs.iter().enumerate().try_for_each(|(at, job)| check_job(spec, at, job))?;
    spec.actions.iter().try_for_each(|action| check_change(spec, action.at_ns, &action.change))?;

    let started = |job: &JobSpec| {
        let by_action = |c: &Change| matches!(c, Change::StartJob { job: name } if *name == job.name);
        job.start_ns.is_some() || spec.actions.iter().any(|action| by_action(&action.change))
    };
    if spec.jobs.iter().any(started) { Ok(()) } else { Err(WorldError::NothingToDo) }
}

fn check_shard(at: usize, shard: &ShardSpec) -> Result<(), WorldError> {
    if shard.poll_interval_ns == Some(0) {
        return Err(invalid(format!("shard {at}"), "poll_interval_ns is 0: give None to poll without pause"));
    }
    if shard.hog.is_some_and(|hog| hog.busy_ns == 0) {
        return Err(invalid(format!("shard {at}"), "the hog's busy_ns is 0: give no hog"));
    }
    Ok(())
}

fn check_disk(spec: &WorldSpec, at: usize, disk: &SimDisk) -> Result<(), WorldError> {
    let item = || format!("disk {at}");
    let shards = spec.shards.len();
    if disk.max_requests == 0 {
        return Err(invalid(item(), "max_requests is 0: nothing could ever be queued"));
    }

    let Some(queues) = disk.num_io_queues else { return Ok(()) };
    if queues == 0 || usize::from(queues) > shards {
        return Err(invalid(
            item(),
            format!("{queues} I/O queues for {shards} shards: at least 1, at most one a shard"),
        ));
    }
    for (number, shard) in spec.shards.iter().enumerate() {
        let queues = usize::from(queues);
        let coordinator = first_shard(shards, queues, number * queues / shards);
        if spec.shards[coordinator].numa_node != shard.numa_node {
            let problem = format!("shard {number} would send messages to shard {coordinator} on another NUMA node");
            return Err(invalid(item(), problem));
        }
    }
    Ok(())
}

/// Returns the coordinator of I/O queue `number` of `queues`: the first shard that uses it. Shard s uses queue s *
/// queues / shards.
pub(crate) fn first_shard(shards: usize, queues: usize, number: usize) -> usize {
    (number * shards).div_ceil(queues)
}

fn check_classes(spec: &WorldSpec) -> Result<(), WorldError> {
    for (at, class) in spec.classes.iter().enumerate() {
        let before = &spec.classes[..at];
        if before.iter().any(|other| other.name == class.name) {
            return Err(WorldError::Twice { what: "class", name: class.name.clone() });
        }
        if class.shares == 0 {
            return Err(invalid(format!("class \"{}\"", class.name), "0 shares: give at least 1"));
        }
        if let Some(parent) = &class.parent
            && !before.iter().any(|other| other.name == *parent && other.is_group)
        {
            return Err(unknown("group", parent, format!("class \"{}\"", class.name)));
        }
        check_qos(class, &class.qos, &format!("class \"{}\"", class.name))?;
    }
    Ok(())
}

/// Refuses settings of a group that are about single requests: only classes have these.
fn check_qos(class: &ClassSpec, qos: &Qos, item: &str) -> Result<(), WorldError> {
    match qos.for_classes_only().filter(|_| class.is_group) {
        Some(given) => Err(invalid(item, format!("a group has shares, limits and a reservation only, not {given}"))),
        None => Ok(()),
    }
}

fn check_job(spec: &WorldSpec, at: usize, job: &JobSpec) -> Result<(), WorldError> {
    let item = format!("job \"{}\"", job.name);
    if spec.jobs[..at].iter().any(|other| other.name == job.name) {
        return Err(WorldError::Twice { what: "job", name: job.name.clone() });
    }

    if let ShardSet::List(list) = &job.shards {
        if list.is_empty() {
            return Err(invalid(item, "it runs on no shard"));
        }
        for (place, shard) in list.iter().enumerate() {
            if *shard as usize >= spec.shards.len() {
                return Err(unknown("shard", shard, item));
            }
            if list[..place].contains(shard) {
                return Err(invalid(item, format!("shard {shard} is named twice")));
            }
        }
    }

    if let Some(problem) = load_problem(&job.load) {
        return Err(invalid(item, problem));
    }
    if matches!(job.load, Load::Cpu { .. }) {
        return Ok(());
    }

    if job.disk >= spec.disks.len() {
        return Err(unknown("disk", job.disk, item));
    }
    match spec.classes.iter().find(|class| class.name == job.class) {
        None => return Err(unknown("class", &job.class, item)),
        Some(class) if class.is_group => {
            return Err(invalid(item, format!("\"{}\" is a group: requests belong to classes", job.class)));
        }
        Some(_) => {}
    }

    match place_problem(job) {
        Some(problem) => Err(invalid(item, problem)),
        None => Ok(()),
    }
}

fn load_problem(load: &Load) -> Option<&'static str> {
    match load {
        Load::Closed { parallelism: 0, .. } | Load::Cpu { parallelism: 0, .. } => {
            Some("parallelism is 0: it would do nothing")
        }
        Load::Closed { think_ns: 0, think_after_ns: 1.., .. } => Some("think_after_ns without think_ns"),
        Load::Open { requests_per_s, .. } if !(*requests_per_s > 0.0 && *requests_per_s <= MAX_REQUESTS_PER_S) => {
            Some("requests_per_s must be above 0 and at most 10^9")
        }
        Load::Open { batch: 0, .. } => Some("batch is 0: it would do nothing"),
        Load::Open { max_outstanding: Some(0), .. } => Some("max_outstanding is 0: it would do nothing"),
        Load::Replay(list) if list.is_empty() => Some("there is nothing to replay"),
        Load::Replay(list) if !list.is_sorted_by_key(|arrival| arrival.at_ns) => {
            Some("the arrivals to replay must ascend in time")
        }
        Load::Replay(list) if list.iter().any(|arrival| arrival.op.is_transfer() && arrival.len_bytes == 0) => {
            Some("a read or write to replay has no length")
        }
        Load::Cpu { execution_ns: 0, .. } => Some("execution_ns is 0: it would do nothing"),
        _ => None,
    }
}

fn place_problem(job: &JobSpec) -> Option<&'static str> {
    if matches!(job.load, Load::Replay(_)) || job.op == Op::Flush {
        return None;
    }
    let sizes_are_good = match &job.sizes {
        SizeDist::Fixed(len_bytes) => *len_bytes > 0,
        SizeDist::Weighted(list) => {
            list.iter().all(|(len_bytes, _)| *len_bytes > 0) && list.iter().any(|(_, weight)| *weight > 0)
        }
    };
    if !sizes_are_good {
        return Some("every size must be at least 1 byte, and some size must have a weight");
    }
    if job.pattern != Pattern::Append && u64::from(job.sizes.largest_bytes()) > job.region.len_bytes {
        return Some("its largest request does not fit into its region");
    }
    None
}

pub(super) fn check_change(spec: &WorldSpec, at_ns: u64, change: &Change) -> Result<(), WorldError> {
    let item = format!("the action at {at_ns} ns");
    match change {
        Change::SetShares { shares: 0, .. } => Err(invalid(item, "0 shares: give at least 1")),
        Change::SetShares { class, .. } | Change::SetQos { class, .. }
            if !spec.classes.iter().any(|other| other.name == *class) =>
        {
            Err(unknown("class", class, item))
        }
        Change::SetQos { class, qos } => {
            spec.classes.iter().filter(|other| other.name == *class).try_for_each(|class| check_qos(class, qos, &item))
        }
        Change::RemoveClass { class } if !spec.classes.iter().any(|other| other.name == *class && !other.is_group) => {
            Err(unknown("class", class, item))
        }
        Change::StartJob { job } | Change::StopJob { job } if !spec.jobs.iter().any(|other| other.name == *job) => {
            Err(unknown("job", job, item))
        }
        Change::InjectFault { disk, .. } | Change::SetMember { disk, .. } if *disk >= spec.disks.len() => {
            Err(unknown("disk", disk, item))
        }
        Change::InjectFault { window, .. } => window.check().map_err(|error| invalid(item, error.to_string())),
        Change::SetMember { disk, fault } => {
            let mut device = spec.disks[*disk].device.clone();
            device.raid0.member_faults = vec![*fault];
            device.check().map_err(|error| invalid(item, error.to_string()))
        }
        _ => Ok(()),
    }
}
