//! `plimsoll test`: runs the jobs of an io_tester job file on real storage, through the scheduler.
//!
//! **Why.** Storage engineers test schedulers with io_tester. The same files run here.
//!
//! **How.** [`TestOptions`] has checked flags and parsed files. [`run`] creates the classes, creates (or opens) the
//! files, runs the jobs with [`crate::load`], and removes the files it created. In a directory each job gets its own
//! file on each shard; a named file or device is shared by all jobs and shards, from the job's offset over its
//! `data_size` (or to the end), with sequential jobs starting at the shard's part of it. Jobs of fio's files follow
//! fio's rules: each names its own files, files of the same name are shared, and all jobs begin at the begin of their
//! region.
//!
//! Jobs of one stage run together, and stages one after another, each for the whole duration; their measurements make
//! one result. All files are created before the first stage. Failed requests are counted with their job, and the
//! others continue.
//!
//! **Limits.** Named files are only read, unless `overwrite`; devices, unless `destructive`. A device that jobs write
//! to is claimed for the whole run; if it is mounted or otherwise in use, it is refused. `max_write_bytes` covers
//! everything: files that would exceed it are refused, and writers end when it is used up. Jobs that verify know only
//! their own writes: on a named file such a job must be the only writer of its stage, on one shard.
//!
//! **Example.**
//!
//! ```
//! use plimsoll::backend::choose::BackendKind;
//! use plimsoll_files::job_reader;
//! use plimsoll_files::sched_groups::SchedGroups;
//! use plimsoll_measure::load::Control;
//! use plimsoll_measure::test::{Storage, TestOptions, run};
//!
//! let text = "[{name: r, type: randread, shards: all, shard_info: {parallelism: 4}}]";
//! let jobs = job_reader::parse("inline", text, &SchedGroups::default())?;
//! let options = TestOptions {
//!     backend: Some(BackendKind::Null),
//!     duration_ns: 2_000_000,
//!     ..TestOptions::new(jobs, Storage::of(".".as_ref())?)
//! };
//! let result = run(&options, &Control::default(), &mut |_, _| {})?;
//! assert!(result.run.total("r").requests > 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod device;
mod files;
mod locks;
mod named;
pub mod replay;
mod scratches;

use std::collections::BTreeSet;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use plimsoll::backend::choose::BackendKind;
use plimsoll::core::{Qos, Rate};
use plimsoll::{Class, ClassError, Classes, DiskSetup, ShardOptions, Topology, TopologyError};
use plimsoll_figures::units::format_bytes_binary;
use plimsoll_files::jobs::{Job, JobClass, JobFile};
use plimsoll_files::sched_groups::{SchedGroup, SchedGroups};
use plimsoll_files::setup::OtherDisk;

use self::files::Files;
pub use self::files::ReusedFiles;
pub(crate) use self::files::check_regions;
use crate::load::{Control, JobSpec, LoadError, Plan, RunResult, ScratchError, Watch};

/// Length of the intervals of a result: short enough to show a stall, long enough for requests of a slow disk.
const INTERVAL_NS: u64 = 100_000_000;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Storage {
    /// A directory in which files are created and removed.
    Directory(PathBuf),
    /// An existing file, used as it is.
    File(PathBuf),
    /// A block device, used as it is.
    Device(PathBuf),
}

impl Storage {
    /// Returns the kind of storage at `path`.
    ///
    /// # Errors
    /// [`TestError::Storage`] if the path does not exist or is something else.
    pub fn of(path: &Path) -> Result<Storage, TestError> {
        let bad = |reason: String| TestError::Storage { path: path.display().to_string(), reason };
        let meta = std::fs::metadata(path).map_err(|error| bad(error.to_string()))?;
        let kind = meta.file_type();
        if meta.is_dir() {
            Ok(Storage::Directory(path.to_owned()))
        } else if meta.is_file() {
            Ok(Storage::File(path.to_owned()))
        } else if kind.is_block_device() {
            Ok(Storage::Device(path.to_owned()))
        } else {
            Err(bad("it is neither a directory, a file nor a block device".to_owned()))
        }
    }

    pub fn path(&self) -> &Path {
        match self {
            Storage::Directory(path) | Storage::File(path) | Storage::Device(path) => path,
        }
    }
}

#[derive(Clone, Debug)]
pub struct TestOptions {
    pub jobs: JobFile,
    /// Groups and classes that jobs may join.
    pub groups: SchedGroups,
    pub storage: Storage,
    /// Whether jobs may overwrite a named file.
    pub overwrite: bool,
    /// Whether jobs may overwrite a block device.
    pub destructive: bool,
    pub keep_files: bool,
    pub shards: u16,
    pub disk: DiskSetup,
    /// Disks of jobs that have a storage of their own.
    pub other_disks: Vec<OtherDisk>,
    /// Backend; `None` selects the best available.
    pub backend: Option<BackendKind>,
    /// Nanoseconds that the jobs run before the measured window.
    pub warmup_ns: u64,
    /// Length of the measured window of each stage in nanoseconds.
    pub duration_ns: u64,
    /// Most bytes to write, preparation of the files included. Writers end there.
    pub max_write_bytes: Option<u64>,
    /// Seed of positions, gaps and data.
    pub seed: u64,
    /// Scratch files of earlier runs, for reuse; `None`: each run has its own.
    pub reused_files: Option<ReusedFiles>,
}

impl TestOptions {
    /// Returns options for ten seconds of `jobs` on `storage`, on one shard and an unlimited disk, without
    /// overwriting.
    pub fn new(jobs: JobFile, storage: Storage) -> TestOptions {
        TestOptions {
            jobs,
            groups: SchedGroups::default(),
            storage,
            overwrite: false,
            destructive: false,
            keep_files: false,
            shards: 1,
            disk: DiskSetup::unlimited(),
            other_disks: Vec::new(),
            backend: None,
            warmup_ns: 0,
            duration_ns: 10_000_000_000,
            max_write_bytes: None,
            seed: 1,
            reused_files: None,
        }
    }
}

impl TestOptions {
    /// Returns the storage of a job, and the number of its disk.
    fn place_of(&self, job: &Job) -> Result<(Storage, u16), TestError> {
        let Some(own) = &job.storage else { return Ok((self.storage.clone(), 0)) };
        let disk = self.other_disks.iter().zip(1..).find(|(disk, _)| disk.storages.contains(&own.path));
        Ok((Storage::of(&own.path)?, disk.map_or(0, |(_, number)| number)))
    }
}

#[derive(Debug, thiserror::Error)]
pub enum TestError {
    #[error("{path}: {reason}: --storage takes a directory, a file or a block device")]
    Storage { path: String, reason: String },
    #[error("{path}: {reason}")]
    File { path: String, reason: String },
    #[error("job `{job}` writes, and {path} would lose its contents: pass {flag} if that is meant, or use a directory")]
    WouldOverwrite { job: String, path: String, flag: &'static str },
    #[error("{path} is in use, and the jobs would destroy what is on it: {}", plimsoll::sys::block::uses_text(.uses))]
    InUse {
        path: String,
        /// Users of the device; at least one.
        uses: Vec<plimsoll::sys::block::Use>,
    },
    #[error("{path}: it is not known whether somebody uses it ({error}): run this where /proc and /sys can be read")]
    UsesUnknown { path: String, error: std::io::Error },
    #[error("{error}")]
    Claim {
        /// The system's error, with the device and the remedy.
        error: std::io::Error,
    },
    #[error(
        "{path} has {file_bytes} bytes{}, too few for one request of {request_bytes} bytes of job `{job}`: {}",
        files::region_text(*.offset_bytes, *.data_size_bytes),
        files::region_advice(*.offset_bytes, *.data_size_bytes, *.request_bytes)
    )]
    TooShort {
        path: String,
        file_bytes: u64,
        /// First byte of the job's region.
        offset_bytes: u64,
        /// Longest region in bytes, if the job sets it.
        data_size_bytes: Option<u64>,
        job: String,
        request_bytes: u64,
    },
    #[error("job `{job}` removes files, and {path} is no directory: name a directory with --storage")]
    NeedsDirectory { job: String, path: String },
    #[error(
        "job `{job}` verifies {path}, where others would write too: use a directory (each job and shard gets a file of its \
         own), or one shard and one job that writes in each stage"
    )]
    SharedVerify { job: String, path: String },
    #[error("{path}: another run {}: wait for its end, or name another file", locks::use_text(*.is_verified))]
    UsedByRun {
        path: String,
        /// Whether the refused run would verify the file.
        is_verified: bool,
    },
    #[error(
        "job `{job}` verifies what it reads, and the null backend keeps nothing that was written: take --backend memory, \
         or a backend of real files, or remove `verify`"
    )]
    NothingKept { job: String },
    #[error("interrupted while preparing the files: nothing was measured")]
    Interrupted,
    #[error(
        "the files take {} to prepare, more than --max-write {}: set a smaller data_size",
        format_bytes_binary(*.needed_bytes), format_bytes_binary(*.max_write_bytes)
    )]
    MaxWrite { needed_bytes: u64, max_write_bytes: u64 },
    #[error(transparent)]
    Class(#[from] ClassError),
    #[error(transparent)]
    Topology(#[from] TopologyError),
    #[error(transparent)]
    Scratch(#[from] ScratchError),
    #[error(transparent)]
    Load(#[from] LoadError),
}

#[derive(Clone, Debug)]
pub struct TestResult {
    /// The run; several stages are appended one after another.
    pub run: RunResult,
    pub jobs: Vec<TestJob>,
    pub interrupted: bool,
    /// Bytes written, preparation of the files included.
    pub written_bytes: u64,
    pub max_write_reached: bool,
}

#[derive(Clone, Debug)]
pub struct TestJob {
    pub job: Job,
    pub class: String,
    pub shares: u32,
}

/// Runs the jobs, with intervals of 100 ms. Calls `on_step` with each step ("preparing files", "running"), and its
/// expected length in ns, if known.
///
/// # Errors
/// See [`TestError`]. No file is left behind, unless `keep_files`.
pub fn run(
    options: &TestOptions,
    control: &Control,
    on_step: &mut dyn FnMut(&str, Option<u64>),
) -> Result<TestResult, TestError> {
    run_watched(options, &Watch { interval_ns: INTERVAL_NS, steady: None }, control, on_step)
}

/// Runs the jobs as [`run`] does, with the intervals of `watch`. Each stage may end early when its criterion is met.
///
/// # Errors
/// See [`TestError`]. No file is left behind, unless `keep_files`.
pub fn run_watched(
    options: &TestOptions,
    watch: &Watch,
    control: &Control,
    on_step: &mut dyn FnMut(&str, Option<u64>),
) -> Result<TestResult, TestError> {
    let classes = Classes::new();
    let jobs = make_classes(options, &classes)?;
    let control = &control.with_write_bound(options.max_write_bytes);
    let others = options.other_disks.iter().map(|disk| disk.setup.clone());
    let disks = std::iter::once(options.disk.clone()).chain(others).collect();
    let topology = Topology::new(options.shards, classes, disks)?;

    let mut files = Files::check(options)?;
    let numbered = jobs.iter().enumerate();
    let specs = numbered.map(|(number, (job, class))| files.spec(options, &topology, &job.job, number, *class));
    let specs = specs.collect::<Result<Vec<_>, TestError>>()?;

    on_step("preparing files", None);
    files.fill(options, control)?;
    if control.stop.is_asked() {
        return Err(TestError::Interrupted);
    }

    let jobs: Vec<TestJob> = jobs.into_iter().map(|(job, _)| job).collect();
    let stages: BTreeSet<u32> = jobs.iter().map(|job| job.job.stage).collect();
    let mut all: Option<RunResult> = None;
    for (nth, stage) in stages.iter().enumerate().take_while(|(nth, _)| *nth == 0 || !control.stop.is_asked()) {
        let what = match stages.len() {
            1 => "running".to_owned(),
            count => format!("running stage {} of {count}", nth + 1),
        };
        on_step(&what, Some(options.warmup_ns.saturating_add(options.duration_ns)));
        let mine = jobs.iter().zip(&specs).filter(|(job, _)| job.job.stage == *stage);
        let (mine, specs): (Vec<&Job>, Vec<JobSpec>) = mine.map(|(job, spec)| (&job.job, spec.clone())).unzip();
        named::drop_cached(&specs, &mine);
        let run = run_stage(options, watch, control, &topology, specs)?;
        match &mut all {
            Some(all) => append_stage(all, run),
            None => all = Some(run),
        }
    }

    files.end(options);
    // A job file has at least one job, and so a stage.
    let run = all.ok_or(TestError::Interrupted)?;
    Ok(TestResult {
        run,
        jobs,
        interrupted: control.stop.is_asked(),
        written_bytes: control.traffic.written_bytes(),
        max_write_reached: control.traffic.is_write_bound_reached(),
    })
}

fn run_stage(
    options: &TestOptions,
    watch: &Watch,
    control: &Control,
    topology: &Topology,
    jobs: Vec<JobSpec>,
) -> Result<RunResult, LoadError> {
    let plan = Plan {
        topology: topology.clone(),
        options: ShardOptions { backend: options.backend, ..ShardOptions::default() },
        jobs,
        warmup_ns: options.warmup_ns,
        duration_ns: options.duration_ns,
        seed: options.seed,
    };
    crate::load::run_watched(&plan, watch, control)
}

/// Appends the results of stage `next`, which has other jobs, to those of earlier stages.
fn append_stage(all: &mut RunResult, next: RunResult) {
    for (mine, theirs) in all.shards.iter_mut().zip(next.shards) {
        mine.cpu_ns += theirs.cpu_ns;
        mine.elapsed_ns += theirs.elapsed_ns;
        mine.jobs.extend(theirs.jobs);
    }
    if all.steady.is_none_or(|steady| steady.attained) {
        all.steady = next.steady;
    }
}

fn make_classes(options: &TestOptions, classes: &Classes) -> Result<Vec<(TestJob, Class)>, TestError> {
    make_groups(&options.groups.groups, classes)?;
    for job in &options.jobs.jobs {
        if let JobClass::Own { shares } = job.class {
            add_class(classes, &job.name, None, shares)?;
        }
    }
    limit_classes(&options.jobs.jobs, classes)?;
    let table = classes.list();
    let with_class = |job: &Job| {
        let name = class_name(job);
        let class = classes.find(name).ok_or(ClassError::Unknown)?;
        let shares = table[class.index()].shares;
        Ok((TestJob { job: job.clone(), class: name.to_owned(), shares }, class))
    };
    options.jobs.jobs.iter().map(with_class).collect()
}

fn class_name(job: &Job) -> &str {
    match &job.class {
        JobClass::Own { .. } => &job.name,
        JobClass::Joined(name) => name,
    }
}

/// Limits classes to the bandwidths of their jobs; of several jobs in a class, the lowest applies.
fn limit_classes(jobs: &[Job], classes: &Classes) -> Result<(), ClassError> {
    for job in jobs {
        let Some(limit_bytes_per_s) = job.bandwidth_limit_bytes_per_s else { continue };
        let class = classes.find(class_name(job)).ok_or(ClassError::Unknown)?;
        classes.update_qos(class, |qos| {
            let lowest = qos.limits.bandwidth.get().map_or(limit_bytes_per_s, |known| known.min(limit_bytes_per_s));
            qos.limits.bandwidth = Rate::per_second(lowest);
        })?;
    }
    Ok(())
}

/// Creates groups and classes, each after its parent. The file may name them in any order.
fn make_groups(groups: &[SchedGroup], classes: &Classes) -> Result<(), ClassError> {
    let depth = |at: &usize| {
        let parent_of = |at: &usize| groups.get(*at).and_then(|group| group.parent);
        std::iter::successors(parent_of(at), parent_of).take(groups.len()).count()
    };

    let mut order: Vec<usize> = (0..groups.len()).collect();
    order.sort_by_key(depth);

    for at in order {
        let Some(group) = groups.get(at) else { continue };
        let parent = match group.parent.and_then(|parent| groups.get(parent)) {
            Some(parent) => Some(classes.find(&parent.name).ok_or(ClassError::Unknown)?),
            None => None,
        };
        if groups.iter().any(|member| member.parent == Some(at)) {
            classes.add_group(&group.name, parent, group.shares)?;
        } else {
            add_class(classes, &group.name, parent, group.shares)?;
        }
        if group.qos != Qos::default() {
            classes.set_qos(classes.find(&group.name).ok_or(ClassError::Unknown)?, group.qos)?;
        }
    }
    Ok(())
}

/// Adds a class. The class `default` exists already, at the top level, and only gets the shares.
fn add_class(classes: &Classes, name: &str, parent: Option<Class>, shares: u32) -> Result<(), ClassError> {
    if parent.is_none() && classes.find(name) == Some(Class::DEFAULT) {
        return classes.set_shares(Class::DEFAULT, shares);
    }
    classes.add_class(name, parent, shares).map(|_| ())
}

#[cfg(test)]
mod tests {
    use plimsoll_files::sched_groups::parse;

    use super::*;

    #[test]
    fn the_lowest_bandwidth_of_a_class_is_its_limit() {
        let text = "
- {name: a, type: randread, shards: all, shard_info: {parallelism: 1}}
- {name: b, type: randread, shards: all, shard_info: {parallelism: 1, class: a}}
- {name: c, type: randread, shards: all, shard_info: {parallelism: 1, class: a}}
";
        let mut jobs = plimsoll_files::job_reader::parse("test", text, &SchedGroups::default()).unwrap().jobs;
        for (job, limit) in jobs.iter_mut().zip([None, Some(3_000_000), Some(2_000_000)]) {
            job.bandwidth_limit_bytes_per_s = limit;
        }
        let classes = Classes::new();
        classes.add_class("a", None, 1).unwrap();
        limit_classes(&jobs, &classes).unwrap();
        let qos = classes.list()[classes.find("a").unwrap().index()].qos;
        assert_eq!(qos.limits.bandwidth, Rate::per_second(2_000_000));
    }

    #[test]
    fn groups_may_come_after_their_members() {
        let text = "[{name: leaf, shares: 3, parent: inner}, {name: inner, shares: 2, parent: outer}, \
                    {name: outer, shares: 1}, {name: default, shares: 7}]";
        let classes = Classes::new();
        make_groups(&parse("test", text).unwrap().groups, &classes).unwrap();
        let table = classes.list();
        let of = |name: &str| &table[classes.find(name).unwrap().index()];
        assert_eq!((of("leaf").parent, of("leaf").is_group), (classes.find("inner"), false));
        assert_eq!((of("inner").parent, of("inner").is_group), (classes.find("outer"), true));
        assert_eq!((of("outer").parent, of("outer").is_group), (None, true));
        assert_eq!((of("default").shares, classes.find("default")), (7, Some(Class::DEFAULT)));
    }
}
