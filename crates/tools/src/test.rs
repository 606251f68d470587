//! `plimsoll test`: the jobs of an io_tester job file, on real storage, through the scheduler.
//!
//! # Why
//! io_tester is how storage engineers ask the scheduler questions. The same files run here.
//!
//! # How it works
//! [`TestOptions`] are checked flags and parsed files. [`run`] makes the classes, makes (or opens) the files, runs the
//! jobs with [`crate::load`], and removes what it made. In a directory each job gets a file of its own on each shard; a
//! named file or device is used whole by every job, sequential jobs starting at the shard's part of it.
//!
//! # Limits
//! Named files are read only, unless `overwrite`; devices, unless `destructive`.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use plimsoll::backend::choose::BackendKind;
use plimsoll::backend::memory::MemoryBackend;
use plimsoll::backend::{Backend, OpenOptions};
use plimsoll::{Class, ClassError, Classes, DiskSetup, ShardOptions, Topology, TopologyError};

use crate::config::jobs::{Job, JobClass, JobFile, JobKind};
use crate::config::sched_groups::SchedGroups;
use crate::load::{Control, JobSpec, LoadError, Plan, RunResult, Scratch, ScratchError, Target};
use crate::units::format_bytes_binary;

/// Where the jobs work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Storage {
    /// A directory: files are made in it, and removed.
    Directory(PathBuf),
    /// A file that exists: used as it is.
    File(PathBuf),
    /// A block device: used as it is.
    Device(PathBuf),
}

impl Storage {
    /// What `path` is.
    ///
    /// # Errors
    /// [`TestError::Storage`] when it does not exist or is something else.
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

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Storage::Directory(path) | Storage::File(path) | Storage::Device(path) => path,
        }
    }
}

/// What to run, how and where.
#[derive(Clone, Debug)]
pub struct TestOptions {
    /// The jobs.
    pub jobs: JobFile,
    /// Groups and classes that they may join.
    pub groups: SchedGroups,
    /// Where.
    pub storage: Storage,
    /// Jobs that write may write over a named file.
    pub overwrite: bool,
    /// Jobs that write may write over a block device.
    pub destructive: bool,
    /// Leave the files.
    pub keep_files: bool,
    /// How many shards.
    pub shards: u16,
    /// The disk.
    pub disk: DiskSetup,
    /// Backend; `None` takes the best that there is.
    pub backend: Option<BackendKind>,
    /// How long before anything counts.
    pub warmup_ns: u64,
    /// How long.
    pub duration_ns: u64,
    /// Bytes to write at the most, preparing the files included.
    pub max_write_bytes: Option<u64>,
    /// Seed.
    pub seed: u64,
}

/// Why a test could not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TestError {
    /// The storage does not exist or is unusable.
    #[error("{path}: {reason}: --storage takes a directory, a file or a block device")]
    Storage {
        /// The path.
        path: String,
        /// Why.
        reason: String,
    },
    /// A job would write over what is there.
    #[error("job `{job}` writes, and {path} would lose its contents: pass {flag} if that is meant, or use a directory")]
    WouldOverwrite {
        /// The job.
        job: String,
        /// The file or device.
        path: String,
        /// The flag that allows it.
        flag: &'static str,
    },
    /// A named file or device is too short.
    #[error(
        "{path} has {file_bytes} bytes, too few for one request of {request_bytes} bytes of job `{job}`: name a longer file, or lower reqsize"
    )]
    TooShort {
        /// The file or device.
        path: String,
        /// Its length.
        file_bytes: u64,
        /// The job.
        job: String,
        /// Length of its requests.
        request_bytes: u64,
    },
    /// Stopped before there was anything to measure.
    #[error("interrupted while preparing the files: nothing was measured")]
    Interrupted,
    /// More would be written than allowed.
    #[error(
        "the files take {} to prepare, more than --max-write {}: set a smaller data_size",
        format_bytes_binary(*.needed_bytes), format_bytes_binary(*.max_write_bytes)
    )]
    MaxWrite {
        /// What is needed.
        needed_bytes: u64,
        /// What is allowed.
        max_write_bytes: u64,
    },
    /// Classes could not be made.
    #[error(transparent)]
    Class(#[from] ClassError),
    /// Impossible shards and queues.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// Scratch files.
    #[error(transparent)]
    Scratch(#[from] ScratchError),
    /// The run itself.
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// What a test measured.
#[derive(Clone, Debug)]
pub struct TestResult {
    /// The run.
    pub run: RunResult,
    /// Each job of the file and its class.
    pub jobs: Vec<TestJob>,
    /// Whether it was stopped before its time.
    pub interrupted: bool,
    /// Bytes written, preparing the files included.
    pub written_bytes: u64,
}

/// One job of the file.
#[derive(Clone, Debug)]
pub struct TestJob {
    /// Its definition.
    pub job: Job,
    /// Name of its class.
    pub class: String,
    /// Shares of the class.
    pub shares: u32,
}

/// Runs the jobs. `on_step` hears what is going on ("preparing files", "running"), and how long it is expected to take (ns).
///
/// # Errors
/// See [`TestError`]. Nothing is left behind, unless `keep_files`.
pub fn run(
    options: &TestOptions,
    control: &Control,
    on_step: &mut dyn FnMut(&str, Option<u64>),
) -> Result<TestResult, TestError> {
    let classes = Classes::new();
    let jobs = make_classes(options, &classes)?;
    let topology = Topology::new(options.shards, classes, vec![options.disk.clone()])?;
    let mut files = Files::check(options)?;
    let specs = jobs.iter().map(|(test_job, class)| files.spec(options, &topology, &test_job.job, *class));
    let specs = specs.collect::<Result<Vec<_>, TestError>>()?;
    on_step("preparing files", None);
    files.fill(options, control)?;
    if control.is_stopped() {
        return Err(TestError::Interrupted);
    }
    let jobs = jobs.into_iter().map(|(job, _)| job).collect();
    on_step("running", Some(options.warmup_ns.saturating_add(options.duration_ns)));
    let plan = Plan {
        topology,
        options: ShardOptions { backend: options.backend, ..ShardOptions::default() },
        jobs: specs,
        warmup_ns: options.warmup_ns,
        duration_ns: options.duration_ns,
        seed: options.seed,
    };
    let run = crate::load::run(&plan, control)?;
    Ok(TestResult { run, jobs, interrupted: control.is_stopped(), written_bytes: control.written_bytes() })
}

fn make_classes(options: &TestOptions, classes: &Classes) -> Result<Vec<(TestJob, Class)>, TestError> {
    let groups = &options.groups.groups;
    let mut made: Vec<Class> = Vec::new();
    for (at, group) in groups.iter().enumerate() {
        let parent = group.parent.and_then(|p| made.get(p).copied());
        let has_members = groups.iter().any(|g| g.parent == Some(at));
        made.push(match has_members {
            true => classes.add_group(&group.name, parent, group.shares)?,
            false => classes.add_class(&group.name, parent, group.shares)?,
        });
    }
    for job in &options.jobs.jobs {
        if let JobClass::Own { shares } = job.class {
            classes.add_class(&job.name, None, shares)?;
        }
    }
    let table = classes.list();
    let with_class = |job: &Job| {
        let name = match &job.class {
            JobClass::Own { .. } => &job.name,
            JobClass::Joined(name) => name,
        };
        let class = classes.find(name).ok_or(ClassError::Unknown)?;
        let shares = table[class.index()].shares;
        Ok((TestJob { job: job.clone(), class: name.clone(), shares }, class))
    };
    options.jobs.jobs.iter().map(with_class).collect()
}

/// The files of a test: found, or made and removed.
struct Files {
    scratch: Option<Scratch>,
    to_fill: Vec<(PathBuf, u64)>,
}

impl Files {
    /// Looks at everything that can be refused before anything is made.
    fn check(options: &TestOptions) -> Result<Files, TestError> {
        let writer = options.jobs.jobs.iter().find(|job| job.kind.is_write());
        let refuse = |job: &Job, path: &Path, flag| {
            Err(TestError::WouldOverwrite { job: job.name.clone(), path: path.display().to_string(), flag })
        };
        match (&options.storage, writer) {
            (Storage::File(path), Some(job)) if !options.overwrite => return refuse(job, path, "--overwrite"),
            (Storage::Device(path), Some(job)) if !options.destructive => return refuse(job, path, "--destructive"),
            _ => {}
        }
        let Storage::Directory(directory) = &options.storage else {
            return Ok(Files { scratch: None, to_fill: Vec::new() });
        };
        if in_memory(options.backend) {
            return Ok(Files { scratch: None, to_fill: Vec::new() });
        }
        let shards = u32::from(options.shards);
        let running = |job: &Job| (0..shards).filter(|s| job.shards.contains(*s)).count() as u64;
        let needed_bytes = options.jobs.jobs.iter().map(|j| running(j) * j.bytes_per_shard(shards)).sum();
        if let Some(max_write_bytes) = options.max_write_bytes.filter(|max| needed_bytes > *max) {
            return Err(TestError::MaxWrite { needed_bytes, max_write_bytes });
        }
        let mut scratch = Scratch::new(directory, needed_bytes)?;
        if options.keep_files {
            scratch.keep();
        }
        Ok(Files { scratch: Some(scratch), to_fill: Vec::new() })
    }

    /// The job as the load generator takes it, its files made.
    fn spec(
        &mut self,
        options: &TestOptions,
        topology: &Topology,
        job: &Job,
        class: Class,
    ) -> Result<JobSpec, TestError> {
        let request_bytes = u32::try_from(job.request_bytes).unwrap_or(u32::MAX);
        let mut spec = JobSpec::closed_loop(&job.name, job.kind, request_bytes, job.parallelism, class);
        spec.requests_per_s_per_fiber = job.requests_per_s_per_fiber.map(f64::from);
        spec.pause_distribution = job.pause_distribution;
        spec.batch = job.batch;
        spec.limit_requests = job.limit_requests;
        spec.think_time_ns = job.think_time_ns;
        spec.think_after_ns = job.think_after_ns;
        spec.iov_count = job.iov_count;
        for shard in (0..options.shards).filter(|s| job.shards.contains(u32::from(*s))) {
            let target = self.target(options, topology, job, shard)?;
            spec = spec.on_shard(shard, target);
        }
        Ok(spec)
    }

    fn target(
        &mut self,
        options: &TestOptions,
        topology: &Topology,
        job: &Job,
        shard: u16,
    ) -> Result<Target, TestError> {
        let how = OpenOptions { write: job.kind.is_write(), create_new: false, direct: true, dsync: job.dsync };
        let bytes = job.bytes_per_shard(u32::from(options.shards));
        if let Some(scratch) = &mut self.scratch {
            let path = scratch.create(&format!("plimsoll-test-{}-{shard}", file_name(&job.name)))?;
            let len_bytes = match job.kind {
                JobKind::Append => append_room(&path),
                _ => bytes,
            };
            if job.kind != JobKind::Append {
                self.to_fill.push((path.clone(), bytes));
            }
            return Ok(Target { file: topology.file(&path, how, 0), offset: 0, len_bytes });
        }
        if in_memory(options.backend) {
            let path = PathBuf::from(format!("{}-{shard}", job.name));
            if options.backend == Some(BackendKind::Memory) {
                let made = make_in_memory(topology, &path, bytes);
                made.map_err(|error| LoadError::Open { job: job.name.clone(), error })?;
            }
            let how = OpenOptions { write: true, ..how };
            let len_bytes = if job.kind == JobKind::Append { 1 << 30 } else { bytes };
            return Ok(Target { file: topology.file(&path, how, 0), offset: 0, len_bytes });
        }
        let path = options.storage.path();
        let len_bytes = length_of(path)?;
        if len_bytes < job.request_bytes {
            return Err(TestError::TooShort {
                path: path.display().to_string(),
                file_bytes: len_bytes,
                job: job.name.clone(),
                request_bytes: job.request_bytes,
            });
        }
        Ok(Target { file: topology.file(path, how, 0), offset: 0, len_bytes })
    }

    fn fill(&self, options: &TestOptions, control: &Control) -> Result<(), TestError> {
        match &self.scratch {
            Some(scratch) => Ok(scratch.fill(&self.to_fill, options.backend, control)?),
            None => Ok(()),
        }
    }
}

fn in_memory(backend: Option<BackendKind>) -> bool {
    matches!(backend, Some(BackendKind::Null | BackendKind::Memory))
}

/// Makes a file of zeros for the memory backend, so that reads find what they ask for.
fn make_in_memory(topology: &Topology, path: &Path, len_bytes: u64) -> std::io::Result<()> {
    let mut backend = MemoryBackend::new(topology.memory())?;
    let (file, _) = backend.open(path, &OpenOptions { write: true, create_new: true, ..OpenOptions::default() })?;
    backend.set_file_len(file, len_bytes)
}

/// A job's name as part of a file name.
fn file_name(job: &str) -> String {
    job.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '_' }).collect()
}

/// How far an appending job may go before it begins again: an eighth of what is free.
fn append_room(path: &Path) -> u64 {
    plimsoll::sys::statfs::file_system(path).map_or(1 << 30, |fs| (fs.available_bytes / 8).max(1 << 20))
}

/// Length of a file or block device in bytes.
fn length_of(path: &Path) -> Result<u64, TestError> {
    use std::io::Seek;
    let opened = std::fs::File::open(path).and_then(|mut file| file.seek(std::io::SeekFrom::End(0)));
    opened.map_err(|error| TestError::Storage { path: path.display().to_string(), reason: error.to_string() })
}
