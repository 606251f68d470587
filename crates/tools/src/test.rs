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
//! `max_write_bytes` holds for all of it: files that would not fit in it are refused, and writers end when it is used up.
//!
//! # Example
//! ```
//! use plimsoll::DiskSetup;
//! use plimsoll::backend::choose::BackendKind;
//! use plimsoll_tools::config::{jobs, sched_groups::SchedGroups};
//! use plimsoll_tools::load::Control;
//! use plimsoll_tools::test::{Storage, TestOptions, run};
//!
//! let text = "[{name: r, type: randread, shards: all, shard_info: {parallelism: 4}}]";
//! let groups = SchedGroups::default();
//! let options = TestOptions {
//!     jobs: jobs::parse("inline", text, &groups)?,
//!     groups,
//!     storage: Storage::of(".".as_ref())?,
//!     overwrite: false,
//!     destructive: false,
//!     keep_files: false,
//!     shards: 1,
//!     disk: DiskSetup::unlimited(),
//!     backend: Some(BackendKind::Null),
//!     warmup_ns: 0,
//!     duration_ns: 2_000_000,
//!     max_write_bytes: None,
//!     seed: 1,
//! };
//! let result = run(&options, &Control::default(), &mut |_, _| {})?;
//! assert!(result.run.total("r").requests > 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use plimsoll::backend::choose::BackendKind;
use plimsoll::backend::memory::MemoryBackend;
use plimsoll::backend::{Backend, OpenOptions};
use plimsoll::core::Qos;
use plimsoll::sys::statfs::file_system;
use plimsoll::{Class, ClassError, Classes, DiskSetup, ShardOptions, Topology, TopologyError};

use crate::config::jobs::{Job, JobClass, JobFile, JobKind};
use crate::config::sched_groups::{SchedGroup, SchedGroups};
use crate::load::{Control, JobSpec, LoadError, Plan, RunResult, Scratch, ScratchError, Target};
use crate::setup::is_in_memory;
use crate::units::format_bytes_binary;

/// Characters of a job's name that its files' names keep.
const FILE_NAME_CHARS: usize = 64;
/// How far an appending job may go in memory before it begins again, in bytes.
const APPEND_IN_MEMORY_BYTES: u64 = 1 << 30;

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
    /// Bytes to write at the most, preparing the files included: writers end there.
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
    /// Whether writers ended because no more may be written.
    pub max_write_reached: bool,
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
    if let Some(max_write_bytes) = options.max_write_bytes {
        control.bound_writes(max_write_bytes);
    }
    let topology = Topology::new(options.shards, classes, vec![options.disk.clone()])?;
    let mut files = Files::check(options)?;
    let numbered = jobs.iter().enumerate();
    let specs = numbered.map(|(number, (job, class))| files.spec(options, &topology, &job.job, number, *class));
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
    Ok(TestResult {
        run,
        jobs,
        interrupted: control.is_stopped(),
        written_bytes: control.written_bytes(),
        max_write_reached: control.is_write_bound_reached(),
    })
}

fn make_classes(options: &TestOptions, classes: &Classes) -> Result<Vec<(TestJob, Class)>, TestError> {
    make_groups(&options.groups.groups, classes)?;
    for job in &options.jobs.jobs {
        if let JobClass::Own { shares } = job.class {
            add_class(classes, &job.name, None, shares)?;
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

/// Makes groups and classes, each after its parent: the file may name them in any order.
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

/// Adds a class. The class `default` is there already, at the top, and takes the shares.
fn add_class(classes: &Classes, name: &str, parent: Option<Class>, shares: u32) -> Result<(), ClassError> {
    if parent.is_none() && classes.find(name) == Some(Class::DEFAULT) {
        return classes.set_shares(Class::DEFAULT, shares);
    }
    classes.add_class(name, parent, shares).map(|_| ())
}

/// The files of a test: found, or made and removed.
struct Files {
    scratch: Option<Scratch>,
    to_fill: Vec<(PathBuf, u64)>,
    /// How far each appending job of a directory may go before it begins again.
    append_room_bytes: u64,
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
            return Ok(Files { scratch: None, to_fill: Vec::new(), append_room_bytes: 0 });
        };
        if is_in_memory(options.backend) {
            return Ok(Files { scratch: None, to_fill: Vec::new(), append_room_bytes: APPEND_IN_MEMORY_BYTES });
        }
        let shards = u32::from(options.shards);
        let running = |job: &Job| (0..shards).filter(|s| job.shards.contains(*s)).count() as u64;
        let (appending, filled): (Vec<&Job>, Vec<&Job>) =
            options.jobs.jobs.iter().partition(|job| job.kind == JobKind::Append);
        let sizes = filled.into_iter().map(|job| running(job).saturating_mul(job.bytes_per_shard(shards)));
        let needed_bytes = sizes.fold(0, u64::saturating_add);
        if let Some(max_write_bytes) = options.max_write_bytes.filter(|max| needed_bytes > *max) {
            return Err(TestError::MaxWrite { needed_bytes, max_write_bytes });
        }
        let mut scratch = Scratch::new(directory, needed_bytes)?;
        if options.keep_files {
            scratch.keep();
        }
        let append_files = appending.into_iter().map(running).sum();
        let append_room_bytes = append_room_bytes(directory, needed_bytes, append_files);
        Ok(Files { scratch: Some(scratch), to_fill: Vec::new(), append_room_bytes })
    }

    /// The job as the load generator takes it, its files made.
    fn spec(
        &mut self,
        options: &TestOptions,
        topology: &Topology,
        job: &Job,
        number: usize,
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
        // A file in a directory is the shard's own; a named one is everybody's.
        spec.staggered = self.scratch.is_none() && !is_in_memory(options.backend);
        for shard in (0..options.shards).filter(|s| job.shards.contains(u32::from(*s))) {
            let target = self.target(options, topology, job, number, shard)?;
            spec = spec.on_shard(shard, target);
        }
        Ok(spec)
    }

    fn target(
        &mut self,
        options: &TestOptions,
        topology: &Topology,
        job: &Job,
        number: usize,
        shard: u16,
    ) -> Result<Target, TestError> {
        let how = OpenOptions { write: job.kind.is_write(), create_new: false, direct: true, dsync: job.dsync };
        let bytes = job.bytes_per_shard(u32::from(options.shards));
        if let Some(scratch) = &mut self.scratch {
            let path = scratch.create(&file_name(number, &job.name, shard))?;
            let len_bytes = match job.kind {
                JobKind::Append => self.append_room_bytes.max(job.request_bytes),
                _ => bytes,
            };
            if job.kind != JobKind::Append {
                self.to_fill.push((path.clone(), bytes));
            }
            return Ok(Target { file: topology.file(&path, how, 0), offset: 0, len_bytes });
        }
        if is_in_memory(options.backend) {
            let path = PathBuf::from(file_name(number, &job.name, shard));
            if options.backend == Some(BackendKind::Memory) {
                let made = make_in_memory(topology, &path, bytes);
                made.map_err(|error| LoadError::Open { job: job.name.clone(), error })?;
            }
            let how = OpenOptions { write: true, ..how };
            let len_bytes = if job.kind == JobKind::Append { APPEND_IN_MEMORY_BYTES } else { bytes };
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

/// Makes a file of zeros for the memory backend, so that reads find what they ask for.
fn make_in_memory(topology: &Topology, path: &Path, len_bytes: u64) -> std::io::Result<()> {
    let mut backend = MemoryBackend::new(topology.memory())?;
    let (file, _) = backend.open(path, &OpenOptions { write: true, create_new: true, ..OpenOptions::default() })?;
    backend.set_file_len(file, len_bytes)
}

/// Name of the scratch file of job number `number` on `shard`. Names of jobs are free text: only the number tells them apart.
fn file_name(number: usize, job: &str, shard: u16) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '_' };
    let name: String = job.chars().take(FILE_NAME_CHARS).map(letter).collect();
    format!("plimsoll-test-{number}-{name}-{shard}")
}

/// How far each of `files` appending files may go before it begins again: together an eighth of what is free when the
/// other files are there, but 1 MiB each.
fn append_room_bytes(directory: &Path, needed_bytes: u64, files: u64) -> u64 {
    let free_bytes = file_system(directory).map_or(APPEND_IN_MEMORY_BYTES, |fs| fs.available_bytes);
    (free_bytes.saturating_sub(needed_bytes) / 8 / files.max(1)).max(1 << 20)
}

/// Length of a file or block device in bytes.
fn length_of(path: &Path) -> Result<u64, TestError> {
    use std::io::Seek;
    let opened = std::fs::File::open(path).and_then(|mut file| file.seek(std::io::SeekFrom::End(0)));
    opened.map_err(|error| TestError::Storage { path: path.display().to_string(), reason: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::sched_groups::parse;

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

    #[test]
    fn file_names_differ_and_stay_short() {
        assert_eq!(file_name(0, "a b", 1), "plimsoll-test-0-a_b-1");
        assert_eq!(file_name(1, "a_b", 1), "plimsoll-test-1-a_b-1");
        assert!(file_name(65_535, &"x".repeat(5000), 65_535).len() < 128);
    }

    #[test]
    fn appending_files_share_what_is_free() {
        let root = Path::new("/");
        let (one, eight) = (append_room_bytes(root, 0, 1), append_room_bytes(root, 0, 8));
        assert!(eight <= one && eight >= 1 << 20, "{one} {eight}");
        assert_eq!(append_room_bytes(root, u64::MAX, 1), 1 << 20);
    }
}
