//! `plimsoll test --replay`: replays the requests of a trace on real storage, through the scheduler.
//!
//! **Why.** Users test a scheduler with the recorded requests of a program instead of a job file.
//!
//! **How.** [`run`] surveys the trace, creates the classes, creates (or opens) the file, replays with
//! [`crate::load::replay`], and makes a result like that of any test: a job for each class.
//!
//! Classes are matched by name: if the job file or the groups have a class with the name of the trace's class, its
//! requests use that class; others get classes of their own, with their recorded shares. Only the classes of a job
//! file are used. At most [`CLASSES_MAX`] classes, those with the most requests, are kept separate; the rest form one
//! more.
//!
//! In a directory there is one scratch file, as long as the used part of the trace, but by default at most
//! [`SCRATCH_MAX_BYTES`]. A named file or device is used whole; writes, flushes and discards are left out unless
//! `overwrite`, or `destructive`, permits them.
//!
//! **Limits.** See [`crate::load::replay`]. `trace export --to arrivals` makes a replay for a simulated disk: see
//! scenarios.
//!
//! **Example.** A trace with classes `db` (shares 800) and `backup` (100), and a groups file with `db` alone: `db` is
//! as in the file, `backup` has 100 shares.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use plimsoll::backend::OpenOptions;
use plimsoll::backend::choose::BackendKind;
use plimsoll::core::Histogram;
use plimsoll::{Class, ClassError, Classes, ShardOptions, Topology};
use plimsoll_figures::units::format_bytes_binary;
use plimsoll_files::setup::is_in_memory;
use plimsoll_observe::trace::span::Origin;
use serde::Serialize;

use super::locks::FileLocks;
use super::scratches::{length_of, make_in_memory};
use super::{Storage, TestError, TestOptions, add_class, device, make_classes};
use crate::load::replay::{
    Places, ReplayClass, ReplayError, ReplayPlan, ReplayTotals, Replayed, Speed, Survey, replay,
};
use crate::load::{Control, Scratch};
use crate::report::{JobOptions, Latency, Load, TestReport};

/// Most classes that are kept separate.
pub const CLASSES_MAX: usize = 64;
/// Longest scratch file by default, in bytes.
pub const SCRATCH_MAX_BYTES: u64 = 1 << 30;
const SCRATCH_UNIT_BYTES: u64 = 1 << 20;
/// Name of the class of all requests that are not kept separate.
const OTHERS: &str = "others";
/// Shares of classes without recorded ones, such as processes.
const SHARES: u32 = 100;

#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// Storage, shards, disk. Only the classes of its jobs, if any, are used.
    pub test: TestOptions,
    pub trace: PathBuf,
    pub speed: Speed,
    /// Length of the scratch file in a directory or in memory, in bytes; `None`: the length that the trace needs, at
    /// most [`SCRATCH_MAX_BYTES`].
    pub data_size_bytes: Option<u64>,
    /// Ends the replay this long after its beginning, in ns; `None`: with the trace.
    pub duration_ns: Option<u64>,
}

#[derive(Debug, thiserror::Error)]
pub enum ReplayTestError {
    #[error(transparent)]
    Test(#[from] TestError),
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error("{trace} has no reads, and {path} may not be written: pass {flag} if that is meant, or use a directory")]
    NoReads { trace: String, path: String, flag: &'static str },
}

impl From<ClassError> for ReplayTestError {
    fn from(error: ClassError) -> ReplayTestError {
        ReplayTestError::Test(error.into())
    }
}

#[derive(Clone, Debug)]
pub struct ReplayResult {
    /// The report of a test, with the classes as jobs.
    pub report: TestReport,
    pub figures: ReplayFigures,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ReplayFigures {
    pub trace: String,
    /// Recorder of the trace: `own` or `kernel`.
    pub origin: &'static str,
    /// Speed relative to the trace; `None`: as fast as the target serves.
    pub speed: Option<f64>,
    /// Time from the first request of the trace to the last, in seconds.
    pub trace_s: f64,
    /// Requests in the trace that could be replayed.
    pub requests: u64,
    /// Counts of those requests by fate.
    #[serde(flatten)]
    pub totals: ReplayTotals,
    /// Requests of the trace left out because only their end is known.
    pub without_begin: u64,
    /// Requests of the trace left out because they were cancelled.
    pub cancelled: u64,
    /// Length of the used part of the target, in bytes.
    pub target_bytes: u64,
    /// Length that the trace would need, in bytes.
    pub needed_bytes: u64,
    /// Delay of sends after their due times; `None` if there were no due times.
    pub lateness: Option<Latency>,
    pub classes: Vec<ReplayClassFigures>,
    /// Sentences on the parts of the trace that could not be read.
    pub lost: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ReplayClassFigures {
    pub name: String,
    pub issued: u64,
    /// Delay of sends after their due times; `None` if there were no due times.
    pub lateness: Option<Latency>,
    /// Requests that completed in the trace and here.
    pub compared: u64,
    pub original: Latency,
    pub replayed: Latency,
}

/// Runs a replay of the trace at `options.trace`; `survey` is that of this trace. Calls `on_step` with each step, and
/// its expected length in ns, if known.
///
/// # Errors
/// See [`ReplayTestError`]. No file is left behind, unless `keep_files`.
pub fn run(
    options: &ReplayOptions,
    survey: Survey,
    control: &Control,
    on_step: &mut dyn FnMut(&str, Option<u64>),
) -> Result<ReplayResult, ReplayTestError> {
    let test = &options.test;
    let survey = Arc::new(survey);
    let reads_only = reads_only(options, &survey)?;

    let classes = Classes::new();
    let (lanes, class_at) = lanes(options, &survey, &classes)?;
    let control = &control.with_write_bound(test.max_write_bytes);
    let topology = Topology::new(test.shards, classes.clone(), vec![test.disk.clone()]).map_err(TestError::Topology)?;
    let is_device_written = matches!(test.storage, Storage::Device(_)) && !reads_only && !is_in_memory(test.backend);
    let _claim = is_device_written.then(|| device::claim(test.storage.path())).transpose()?;
    let is_file_written = matches!(test.storage, Storage::File(_)) && !reads_only && !is_in_memory(test.backend);
    let written = is_file_written.then(|| (test.storage.path().to_owned(), false));
    let _locks = FileLocks::take(written.into_iter())?;
    let needed_bytes = Places::new(&survey.sums.regions, 1, 0).total_bytes();
    let target = Target::make(options, &topology, needed_bytes)?;

    on_step("preparing files", None);
    target.fill(test, control)?;
    if control.stop.is_asked() {
        return Err(TestError::Interrupted.into());
    }

    let how = OpenOptions { write: !reads_only, create_new: false, direct: true, dsync: false, directory: false };
    let plan = ReplayPlan {
        trace: options.trace.clone(),
        survey: Arc::clone(&survey),
        speed: options.speed,
        classes: lanes,
        class_at,
        reads_only,
        duration_ns: options.duration_ns,
        files: (0..test.shards).map(|_| topology.file(&target.path, how.clone(), 0)).collect(),
        topology,
        options: ShardOptions { backend: test.backend, ..ShardOptions::default() },
        target_bytes: target.len_bytes,
        seed: test.seed,
    };

    on_step("replaying", expected_ns(&plan));
    let replayed = replay(&plan, control)?;
    let figures = figures(options, &survey, &replayed, needed_bytes, target.len_bytes);
    let mut report = TestReport {
        interrupted: control.stop.is_asked(),
        written_bytes: control.traffic.written_bytes(),
        max_write_reached: control.traffic.is_write_bound_reached(),
        ..TestReport::of_run(&replayed.run, &loads(&plan, &survey, &classes)).with_options(test)
    };

    report.made.duration_s = options.duration_ns.map(|ns| ns as f64 / 1e9);
    for job in report.jobs.iter_mut().chain(&mut report.by_shard) {
        // If a class only reads or only writes, its own figures are the direction's.
        let is_empty = |requests: u64, errors: u64| requests + errors == 0;
        job.reads = job.reads.take().filter(|part| !is_empty(part.requests, part.errors));
        job.writes = job.writes.take().filter(|part| !is_empty(part.requests, part.errors));
        if job.reads.is_none() || job.writes.is_none() {
            (job.reads, job.writes) = (None, None);
        }
    }
    Ok(ReplayResult { report, figures })
}

fn expected_ns(plan: &ReplayPlan) -> Option<u64> {
    let Speed::Times(times) = plan.speed else { return None };
    let whole_ns = (plan.survey.span_ns() as f64 / times) as u64;
    Some(plan.duration_ns.map_or(whole_ns, |ns| ns.min(whole_ns)))
}

/// Returns whether the target may not be changed.
fn reads_only(options: &ReplayOptions, survey: &Survey) -> Result<bool, ReplayTestError> {
    let (path, is_allowed, flag) = match &options.test.storage {
        Storage::Directory(_) => return Ok(false),
        _ if is_in_memory(options.test.backend) => return Ok(false),
        Storage::File(path) => (path, options.test.overwrite, "--overwrite"),
        Storage::Device(path) => (path, options.test.destructive, "--destructive"),
    };
    if !is_allowed && survey.sums.reads == 0 {
        let (trace, path) = (options.trace.display().to_string(), path.display().to_string());
        return Err(ReplayTestError::NoReads { trace, path, flag });
    }
    Ok(!is_allowed)
}

/// Returns the classes of the replay, and the index among them of each class of the trace.
fn lanes(
    options: &ReplayOptions,
    survey: &Survey,
    classes: &Classes,
) -> Result<(Vec<ReplayClass>, BTreeMap<u16, usize>), ReplayTestError> {
    make_classes(&options.test, classes)?;
    let mut by_name: BTreeMap<String, (u64, u32)> = BTreeMap::new();
    for (number, class) in &survey.sums.classes {
        let shares = survey.trace.names.classes.get(number).map_or(0, |named| named.shares);
        let sums = by_name.entry(survey.trace.class_name(*number)).or_insert((0, shares));
        sums.0 += class.requests;
    }

    let mut names: Vec<(String, (u64, u32))> = by_name.into_iter().collect();
    names.sort_by_key(|(_, (requests, _))| std::cmp::Reverse(*requests));
    let has_others = names.len() > CLASSES_MAX;
    names.truncate(CLASSES_MAX);
    if has_others && !names.iter().any(|(name, _)| name == OTHERS) {
        names.push((OTHERS.to_owned(), (0, SHARES)));
    }

    let mut lanes = Vec::new();
    for (name, (_, shares)) in &names {
        let class = class_named(classes, name, if *shares == 0 { SHARES } else { *shares })?;
        lanes.push(ReplayClass { name: result_name(name), class });
    }

    let place_of = |name: &str| names.iter().position(|(known, _)| known == name);
    let rest = place_of(OTHERS).unwrap_or(lanes.len().saturating_sub(1));
    let places =
        survey.sums.classes.keys().map(|number| (*number, place_of(&survey.trace.class_name(*number)).unwrap_or(rest)));
    let class_at = places.collect();
    Ok((lanes, class_at))
}

/// Returns a class name that differs from the reserved keys of the YAML result.
fn result_name(name: &str) -> String {
    if matches!(name, "shard" | "statistics" | "") { format!("class {name}") } else { name.to_owned() }
}

/// Returns the class `name`, or a new one. A group of that name has no requests of its own, so a class beside it gets
/// them.
fn class_named(classes: &Classes, name: &str, shares: u32) -> Result<Class, ClassError> {
    let table = classes.list();
    match classes.find(name) {
        Some(class) if table.get(class.index()).is_some_and(|info| info.is_group) => {
            classes.add_class(&format!("{name} (replay)"), None, shares)
        }
        // `default` has the trace's shares unless a file named any class. Files add their classes earlier.
        Some(Class::DEFAULT) if table.len() == 1 => {
            classes.set_shares(Class::DEFAULT, shares)?;
            Ok(Class::DEFAULT)
        }
        Some(class) => Ok(class),
        None => {
            add_class(classes, name, None, shares)?;
            classes.find(name).ok_or(ClassError::Unknown)
        }
    }
}

struct Target {
    path: PathBuf,
    len_bytes: u64,
    scratch: Option<Scratch>,
}

impl Target {
    fn make(options: &ReplayOptions, topology: &Topology, needed_bytes: u64) -> Result<Target, ReplayTestError> {
        let test = &options.test;
        let wanted_bytes = options.data_size_bytes.unwrap_or_else(|| needed_bytes.min(SCRATCH_MAX_BYTES));
        let made_bytes = wanted_bytes.max(1).div_ceil(SCRATCH_UNIT_BYTES).saturating_mul(SCRATCH_UNIT_BYTES);
        let name = "plimsoll-test-replay";

        if is_in_memory(test.backend) {
            let path = PathBuf::from(name);
            if test.backend == Some(BackendKind::Memory) {
                make_in_memory(topology, &path, made_bytes)
                    .map_err(|error| TestError::Storage { path: "memory".to_owned(), reason: error.to_string() })?;
            }
            return Ok(Target { path, len_bytes: made_bytes, scratch: None });
        }

        let Storage::Directory(directory) = &test.storage else {
            let path = test.storage.path();
            return Ok(Target { path: path.to_owned(), len_bytes: length_of(path)?, scratch: None });
        };

        if let Some(max_write_bytes) = test.max_write_bytes.filter(|max| made_bytes > *max) {
            return Err(TestError::MaxWrite { needed_bytes: made_bytes, max_write_bytes }.into());
        }

        let mut scratch = Scratch::new(directory, made_bytes).map_err(TestError::Scratch)?;
        if test.keep_files {
            scratch.keep();
        }
        let path = scratch.create(name).map_err(TestError::Scratch)?;
        Ok(Target { path, len_bytes: made_bytes, scratch: Some(scratch) })
    }

    fn fill(&self, test: &TestOptions, control: &Control) -> Result<(), ReplayTestError> {
        let Some(scratch) = &self.scratch else { return Ok(()) };
        let files = [(self.path.clone(), self.len_bytes)];
        Ok(scratch.fill(&files, test.backend, control).map_err(TestError::Scratch)?)
    }
}

fn figures(
    options: &ReplayOptions,
    survey: &Survey,
    replayed: &Replayed,
    needed_bytes: u64,
    target_bytes: u64,
) -> ReplayFigures {
    let (speed, has_due) = match options.speed {
        Speed::Times(times) => (Some(times), true),
        Speed::Max => (None, false),
    };
    let mut lateness = Histogram::new();
    let names =
        replayed.run.shards.first().map_or(Vec::new(), |shard| shard.jobs.iter().map(|job| &job.name).collect());
    let class = |(counts, name): (&crate::load::replay::ReplayCounts, &String)| ReplayClassFigures {
        name: name.clone(),
        issued: counts.lateness.count(),
        lateness: has_due.then(|| Latency::of(&counts.lateness)),
        compared: counts.original.count(),
        original: Latency::of(&counts.original),
        replayed: Latency::of(&counts.replayed),
    };

    replayed.counts.iter().for_each(|counts| lateness.merge(&counts.lateness));
    let all = &replayed.totals;
    let seen = all.issued + all.not_allowed + all.not_replayable;
    let totals = ReplayTotals {
        // Includes the requests that the reader still held.
        not_reached: all.not_reached.max(survey.counts.given.saturating_sub(seen)),
        unordered: survey.counts.unordered,
        ..all.clone()
    };

    ReplayFigures {
        trace: options.trace.display().to_string(),
        origin: if survey.trace.origin == Origin::Own { "own" } else { "kernel" },
        speed,
        trace_s: survey.span_ns() as f64 / 1e9,
        requests: survey.counts.given,
        totals,
        without_begin: survey.counts.without_begin,
        cancelled: survey.counts.cancelled,
        target_bytes,
        needed_bytes,
        lateness: has_due.then(|| Latency::of(&lateness)),
        classes: replayed.counts.iter().zip(names).map(class).collect(),
        lost: survey.trace.lost.clone(),
    }
}

fn loads(plan: &ReplayPlan, survey: &Survey, classes: &Classes) -> Vec<Load> {
    let table = classes.list();
    let load = |(at, lane): (usize, &ReplayClass)| {
        let mine = plan.class_at.iter().filter(|(_, place)| **place == at);
        let longest = mine.filter_map(|(number, _)| Some(survey.sums.classes.get(number)?.longest_bytes)).max();
        let info = table.get(lane.class.index());
        let request_bytes = longest.unwrap_or(0).into();
        Load {
            name: lane.name.clone(),
            class: info.map_or_else(|| lane.name.clone(), |info| info.name.to_string()),
            shares: info.map_or(SHARES, |info| info.shares),
            options: JobOptions { kind: "replay".to_owned(), request_bytes, ..JobOptions::default() },
        }
    };
    plan.classes.iter().enumerate().map(load).collect()
}

/// Returns remarks for the user of a replay, one sentence each.
pub fn remarks(figures: &ReplayFigures, flag: Option<&str>) -> Vec<String> {
    let count = plimsoll_figures::units::format_count;
    let mut remarks = figures.lost.iter().map(|lost| format!("{}: {lost}", figures.trace)).collect::<Vec<_>>();
    let mut add = |number: u64, text: String| {
        if number > 0 {
            remarks.push(format!("{} requests {text}", count(number)));
        }
    };

    let flag = flag.map_or_else(String::new, |flag| format!(": {flag} replays them too"));
    add(figures.totals.not_allowed, format!("are left out because they would change the target{flag}"));
    add(figures.totals.not_replayable, "are left out: they reserve space, or have no length".to_owned());
    add(figures.without_begin, "of the trace are left out: only their end is known".to_owned());
    add(figures.cancelled, "of the trace are left out: they were taken back".to_owned());
    add(figures.totals.unordered, "came too late in the trace to be put in order, and were sent late".to_owned());

    let (needed, target) = (format_bytes_binary(figures.needed_bytes), format_bytes_binary(figures.target_bytes));
    add(figures.totals.wrapped, format!("went elsewhere: the trace uses {needed}, the target has {target}"));
    add(figures.totals.widened, "were made longer, as direct I/O asks for it here".to_owned());
    add(figures.totals.cut, "were made shorter: the target, or the memory for one request, is smaller".to_owned());
    add(figures.totals.waited_for_room, "waited to be sent because too much was under way".to_owned());
    add(figures.totals.not_reached, "were not sent".to_owned());
    remarks
}

pub fn write_flag(storage: &Storage) -> Option<&'static str> {
    match storage {
        Storage::Directory(_) => None,
        Storage::File(_) => Some("--overwrite"),
        Storage::Device(_) => Some("--destructive"),
    }
}
