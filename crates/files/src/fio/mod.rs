//! Reads fio's job files: the loads that storage engineers already have.
//!
//! **Why.** People who measure disks have fio job files, and reasons to trust them. The files run here unchanged, or
//! are refused with the line and the option, so that no job runs as another load than its file states.
//!
//! **How.** `text` reads sections and settings, `options` defines the treatment of every option, `job` converts the
//! settings of a section to a [`Job`]. [`parse`] combines the jobs: `stonewall` and `wait_for` become stages, `numjobs`
//! clones. [`FioFile::jobs_for`] spreads the clones over shards in turn.
//!
//! **Limits.** Differences to fio:
//! - Every clone is a class of its own, all with the same shares, so they compete as fio's processes do.
//! - All jobs have the same `ramp_time`, which holds for each stage.
//! - `fsync=N` counts the writes of each request slot (`iodepth`) separately. Rates hold for each clone, as in fio.
//! - Files that do not exist are created for the run, written in full, and removed.
//! - Without `ioengine` one request is in flight, as with fio's default `psync`.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_files::fio;
//! let text = "
//! [global]
//! ioengine=io_uring
//! direct=1
//! runtime=30s
//! time_based
//! size=1g
//! [reads]
//! rw=randread
//! norandommap
//! iodepth=16
//! numjobs=3
//! ";
//! let file = fio::parse("reads.fio", text)?;
//! assert_eq!(file.duration_ns, Some(30_000_000_000));
//! let jobs = file.jobs_for(2);
//! assert_eq!(jobs.jobs.iter().map(|job| job.name.as_str()).collect::<Vec<_>>(), ["reads", "reads.2", "reads.3"]);
//! assert_eq!(jobs.jobs[2].shards, plimsoll_files::jobs::ShardSet::List(vec![0]));
//! # Ok::<(), plimsoll_files::ConfigError>(())
//! ```

mod access;
mod common;
mod files;
mod job;
mod options;
mod reader;
mod text;
mod values;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use plimsoll::backend::choose::BackendKind;
use plimsoll_figures::units::quoted;

use super::error::{Code, ConfigError, Diagnostic, Source};
use super::jobs::{Job, JobFile, ShardSet, SteadyCriterion};
use super::yaml;
pub use common::Common;
use reader::Reader;
use text::{Environment, Includes, Section, Setting};

pub const MAX_CLONES: usize = 4096;
/// Shares of every clone's class.
const STANDARD_SHARES: u32 = 100;

#[derive(Clone, Debug, PartialEq)]
pub struct FioFile {
    /// The jobs in the order of the file, at least one.
    pub jobs: Vec<FioJob>,
    /// Storage of the first job (`filename`, `directory`, or `filename` in `directory`); see
    /// [`FioFile::existing_storage`].
    pub storage: Option<PathBuf>,
    /// Length of each stage's measured window in nanoseconds, above 0: that of the job that ends last. `None`: until
    /// every job has done its work. Jobs that end at other times have a [`runtime_ns`](super::jobs::Shape::runtime_ns).
    pub duration_ns: Option<u64>,
    /// The settings on which all jobs agree.
    pub common: Common,
    /// Options of `[global]` by fio's first name, for the report.
    pub global_options: Vec<(String, String)>,
    /// Remarks of the reader, which do not refuse the file.
    pub warnings: Vec<Diagnostic>,
    source: Source,
}

#[derive(Clone, Debug, PartialEq)]
pub struct FioJob {
    /// The section's name, which several sections may share.
    pub name: String,
    /// Names of the section's clones, also in the results: unique in the file, at least one (`numjobs`).
    pub clones: Vec<String>,
    /// The number of the job's reporting group, from 0; `new_group` and `stonewall` begin a group.
    pub group: u32,
    /// Whether the job is reported together with the others of its group.
    pub group_reporting: bool,
    /// Options of the section by fio's first name, for the report.
    pub options: Vec<(String, String)>,
    /// The first clone, as if it ran on every shard.
    pub job: Job,
}

/// `latency_target`: the run searches for the highest rate at which latency stays below a target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyGoal {
    /// The target in nanoseconds, above 0.
    pub target_ns: u64,
    /// Requests in a hundred that must meet the target, 0 to 100.
    pub percentile: f64,
    /// Length of a step of fio's search in nanoseconds, above 0. Only the report has it.
    pub window_ns: Option<u64>,
}

/// `steadystate`: the run ends once a figure is steady.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SteadyState {
    pub criterion: SteadyCriterion,
    /// Whether the slope of a straight line through the samples is judged, instead of each sample's distance from the
    /// mean.
    pub is_slope: bool,
    /// The figure is steady below this limit; at least 0.
    pub limit: f64,
    /// Whether the limit is in per cent of the mean.
    pub is_percent: bool,
    /// Length of the window of samples that is judged, in nanoseconds, above 0.
    pub window_ns: u64,
    /// Nanoseconds before the first sample.
    pub ramp_ns: u64,
}

/// Reads the text of a fio job file. `source_name` is used in messages only; `${NAME}` comes from the environment.
///
/// # Errors
/// With the line: unknown or unsupported options, values that are wrong or out of range, a variable that is not set,
/// jobs that do not fit together.
pub fn parse(source_name: &str, text: &str) -> Result<FioFile, ConfigError> {
    parse_in(source_name, text, &|name| std::env::var(name).ok())
}

/// Reads the text like [`parse`], with another environment.
pub fn parse_in(
    source_name: &str,
    text: &str,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<FioFile, ConfigError> {
    read(Source::new(source_name, text), environment, None)
}

/// Reads a fio job file from `path`.
pub fn parse_from_file(path: &Path) -> Result<FioFile, ConfigError> {
    parse_source(yaml::read_file(path)?)
}

/// Reads the jobs of a file's text, with the environment of this process. Included files are searched for in the
/// working directory, then beside the including file.
pub fn parse_source(source: Source) -> Result<FioFile, ConfigError> {
    read(source, &|name| std::env::var(name).ok(), Some(&included))
}

/// Reads the file called `name` that the file called `including` includes.
fn included(including: &str, name: &str) -> Result<Source, ConfigError> {
    let (here, beside) = (Path::new(name), Path::new(including).with_file_name(name));
    // As in fio: the working directory comes first.
    yaml::read_file(if here.exists() { here } else { &beside })
}

/// Returns whether a file should be read as fio's: its name ends in `.fio` or `.ini`, or, without a name of YAML or
/// JSON, its first line of content is the header of a section and not a YAML list.
pub fn looks_like_fio(path: &Path, text: &str) -> bool {
    if let Some(extension) = path.extension().and_then(|extension| extension.to_str()) {
        match extension {
            "fio" | "ini" => return true,
            "yaml" | "yml" | "json" => return false,
            _ => {}
        }
    }
    let is_said = |line: &&str| !line.is_empty() && !line.starts_with([';', '#']);
    let first = text.lines().map(str::trim).find(is_said).unwrap_or("");
    first.starts_with('[') && first.ends_with(']') && !first.contains(['{', '"', '\''])
}

impl FioFile {
    /// Returns the jobs of a run with `shards` shards (0 counts as 1); clones go to the shards in turn.
    pub fn jobs_for(&self, shards: u16) -> JobFile {
        let shards = u32::from(shards.max(1));
        let clones = self.jobs.iter().flat_map(FioJob::numbered_clones);
        let on_shard = |((fio, number, name), shard): ((&FioJob, u64, &String), u32)| {
            let files = fio.job.files.as_ref().map(|set| set.of_clone(&fio.name, number));
            Job {
                name: name.clone(),
                shards: ShardSet::List(vec![shard]),
                // A job file states the bytes of all shards together, including those where the job does not run.
                data_size_bytes: fio.job.data_size_bytes.map(|bytes| in_file(bytes.saturating_mul(shards.into()))),
                offset_bytes: files.as_ref().map_or(0, |set| in_file(set.offset_bytes(0))),
                files,
                ..fio.job.clone()
            }
        };
        let jobs = clones.zip((0..shards).cycle()).map(on_shard).collect();
        JobFile { jobs, warnings: self.warnings.clone(), source: self.source.clone() }
    }

    /// Returns the path where a run can work: the storage if it exists or should be a device, otherwise the directory
    /// where the file is created.
    pub fn existing_storage(&self) -> Option<PathBuf> {
        let path = self.storage.as_ref()?;
        match path.parent() {
            Some(parent) if path.exists() || parent == Path::new("/dev") => Some(path.clone()),
            Some(parent) if parent.as_os_str().is_empty() => Some(PathBuf::from(".")),
            Some(parent) => Some(parent.to_owned()),
            None => Some(path.clone()),
        }
    }
}

impl FioJob {
    fn numbered_clones(&self) -> impl Iterator<Item = (&FioJob, u64, &String)> {
        (0..).zip(&self.clones).map(move |(number, name)| (self, number, name))
    }
}

/// Limits an offset or a length to that of the longest file.
fn in_file(bytes: u64) -> u64 {
    bytes.min(i64::MAX as u64)
}

fn read(source: Source, environment: Environment<'_>, includes: Includes<'_>) -> Result<FioFile, ConfigError> {
    let mut warnings = Vec::new();
    let sections = text::read(&source, environment, includes, &mut warnings)?;
    let mut build = Build::new(&source, warnings);
    for section in &sections {
        if section.name == "global" {
            build.globals(section)?;
        } else {
            build.job(section)?;
        }
    }

    let Some(common) = build.common else {
        let error = source.error(Code::Empty, "there is no job in the file");
        return Err(error.with_help("write a section with the name of the job in brackets"));
    };
    check_waits(&source, &build.jobs, &build.waits)?;
    let duration_ns = duration_ns(&mut build.jobs);
    let first = build.jobs.first().and_then(|job| job.job.files.as_ref());
    let storage = first.and_then(|set| match set.named.first() {
        None if set.directory == Path::new(".") => None,
        named => Some(named.unwrap_or(&set.directory).clone()),
    });

    Ok(FioFile {
        jobs: build.jobs,
        storage,
        duration_ns,
        common,
        global_options: build.global_options,
        warnings: build.warnings,
        source: source.clone(),
    })
}

/// Returns the time at which the last job ends, if time ends all jobs. If all begin and end together, clears their own
/// runtimes, because the run's then applies.
fn duration_ns(jobs: &mut [FioJob]) -> Option<u64> {
    let ends = jobs.iter().map(|fio| Some(fio.job.start_delay_ns.saturating_add(fio.job.runtime_ns?)));
    let ends: Vec<u64> = ends.collect::<Option<_>>()?;
    let first = |fio: &FioJob| (fio.job.start_delay_ns, fio.job.runtime_ns);
    if jobs.windows(2).all(|pair| matches!(pair, [one, other] if first(one) == first(other))) {
        jobs.iter_mut().for_each(|fio| fio.job.runtime_ns = None);
    }
    ends.into_iter().max()
}

/// A job that waits for another: the numbers of both, and the position of the option.
type Wait = (usize, usize, super::error::Span);

/// The part of the file read so far.
struct Build<'a> {
    source: &'a Source,
    globals: HashMap<&'static str, &'a Setting>,
    /// Settings of `filename` in `[global]`.
    global_files: Vec<&'a Setting>,
    global_options: Vec<(String, String)>,
    common: Option<Common>,
    jobs: Vec<FioJob>,
    waits: Vec<Wait>,
    /// Names of clones, with the last number appended to each.
    names: HashMap<String, u64>,
    clones: usize,
    warnings: Vec<Diagnostic>,
    noted: HashSet<(usize, &'static str)>,
    /// The stage of jobs without `wait_for`, and the last stage.
    stage: u32,
    stage_last: u32,
    group: u32,
}

impl<'a> Build<'a> {
    fn new(source: &'a Source, warnings: Vec<Diagnostic>) -> Build<'a> {
        Build {
            source,
            globals: HashMap::new(),
            global_files: Vec::new(),
            global_options: Vec::new(),
            common: None,
            jobs: Vec::new(),
            waits: Vec::new(),
            // In results as YAML, `shard` is a key.
            names: HashMap::from([("shard".to_owned(), 1)]),
            clones: 0,
            warnings,
            noted: HashSet::new(),
            stage: 0,
            stage_last: 0,
            group: 0,
        }
    }

    fn globals(&mut self, section: &'a Section) -> Result<(), ConfigError> {
        self.global_files.extend(section.settings.iter().filter(|setting| setting.name == "filename"));
        self.globals.extend(section.settings.iter().map(|setting| (setting.name, setting)));
        self.global_options.extend(options_of(section));
        Ok(())
    }

    fn job(&mut self, section: &'a Section) -> Result<(), ConfigError> {
        let mut filenames = self.global_files.clone();
        filenames.extend(section.settings.iter().filter(|setting| setting.name == "filename"));
        let mut settings = self.globals.clone();
        settings.extend(section.settings.iter().map(|setting| (setting.name, setting)));

        let mut reader = Reader {
            source: self.source,
            header: &section.span,
            settings,
            filenames,
            direct: true,
            kb_base: 1024,
            warnings: &mut self.warnings,
            noted: &mut self.noted,
        };

        reader.kb_base = match reader.int("kb_base", 1000..=1024)?.unwrap_or(1024) {
            base @ (1000 | 1024) => base,
            _ => {
                return Err(reader
                    .error("kb_base", Code::InvalidValue, "that is neither")
                    .with_help("write 1000 or 1024"));
            }
        };

        let name = section.settings.iter().rev().find(|setting| setting.name == "name");
        let name = name.and_then(|setting| setting.value.as_deref()).filter(|name| !name.is_empty());
        let name = name.unwrap_or(&section.name);

        let clones = reader.int("numjobs", 1..=MAX_CLONES as u64)?.unwrap_or(1);
        self.clones += usize::try_from(clones).unwrap_or(MAX_CLONES);
        if self.clones > MAX_CLONES {
            let error = reader.error("numjobs", Code::TooLarge, format!("the file has more than {MAX_CLONES} clones"));
            return Err(error.with_help("lower `numjobs`, and raise `iodepth`"));
        }

        let (common, mut job) = job::read(&mut reader, name)?;
        match &mut self.common {
            None => self.common = Some(common),
            Some(first) => agree(&mut reader, first, common)?,
        }

        let walled = reader.flag("stonewall")? && !self.jobs.is_empty();
        if (walled || reader.flag("new_group")?) && !self.jobs.is_empty() {
            self.group += 1;
        }

        job.stage = if walled { self.stage_last + 1 } else { self.stage };
        self.stage = job.stage;
        if let Some(waitee) = reader.text("wait_for")? {
            let (number, stage) = waitee_of(&reader, &self.jobs, waitee)?;
            job.stage = job.stage.max(stage + 1);
            self.waits.push((self.jobs.len(), number, reader.span("wait_for")));
        }
        self.stage_last = self.stage_last.max(job.stage);

        let group_reporting = reader.flag("group_reporting")?;
        let clones = (0..clones).map(|_| unique(&mut self.names, name)).collect();
        let options = options_of(section).collect();
        let (name, group) = (name.to_owned(), self.group);
        self.jobs.push(FioJob { name, clones, group, group_reporting, options, job });
        Ok(())
    }
}

fn options_of(section: &Section) -> impl Iterator<Item = (String, String)> {
    let text = |setting: &Setting| (setting.name.to_owned(), setting.value.clone().unwrap_or_else(|| "1".to_owned()));
    section.settings.iter().map(text)
}

fn unique(names: &mut HashMap<String, u64>, name: &str) -> String {
    let mut candidate = name.to_owned();
    let mut number = names.get(name).copied().unwrap_or(1);
    while names.contains_key(&candidate) {
        number += 1;
        candidate = format!("{name}.{number}");
    }
    names.insert(name.to_owned(), number);
    names.entry(candidate.clone()).or_insert(1);
    candidate
}

/// Refuses a job whose shared settings differ from those of earlier jobs.
fn agree(reader: &mut Reader<'_>, first: &mut Common, other: Common) -> Result<(), ConfigError> {
    let refuse = |reader: &Reader<'_>, name: &str, what: &str, help: &str| {
        let message = format!("the jobs of a file cannot have {what}");
        Err(reader.error(name, Code::NotSupported, message).with_help(help))
    };

    if first.ramp_ns != other.ramp_ns {
        return refuse(
            reader,
            "ramp_time",
            "a ramp time of their own each",
            "write `ramp_time` in [global], or split the file",
        );
    }
    if first.latency_goal != other.latency_goal {
        return refuse(reader, "latency_target", "a latency target of their own each", "write it in [global]");
    }
    if first.steady != other.steady {
        return refuse(reader, "steadystate", "a criterion of their own each", "write it in [global]");
    }

    let is_null = |common: &Common| common.backend == Some(BackendKind::Null);
    if is_null(first) != is_null(&other) {
        let help = "write `ioengine` in [global], or split the file";
        return refuse(reader, "ioengine", "an engine that does nothing beside one that works", help);
    }
    if let (Some(mine), Some(theirs)) = (first.backend, other.backend)
        && mine != theirs
    {
        let message = "all jobs of a run have one backend, that of the first engine with a queue";
        reader.note("ioengine", message, "split the file to compare engines");
    }
    first.backend = first.backend.or(other.backend);
    first.seed = first.seed.or(other.seed);
    Ok(())
}

fn waitee_of(reader: &Reader<'_>, jobs: &[FioJob], name: &str) -> Result<(usize, u32), ConfigError> {
    let mut found = jobs.iter().enumerate().filter(|(_, job)| job.name == name);
    match (found.next(), found.next()) {
        (Some((number, job)), None) => Ok((number, job.job.stage)),
        (first, _) => {
            let count = if first.is_none() { "no job before this one is" } else { "several jobs are" };
            let error = reader.error("wait_for", Code::UnknownReference, format!("{count} called {}", quoted(name)));
            Err(error.with_help("name one job that stands above"))
        }
    }
}

/// Checks that each waited-for job is alone in its stage: only then does waiting for the stage mean the same.
fn check_waits(source: &Source, jobs: &[FioJob], waits: &[Wait]) -> Result<(), ConfigError> {
    let mut in_stage: HashMap<u32, usize> = HashMap::new();
    jobs.iter().for_each(|job| *in_stage.entry(job.job.stage).or_default() += 1);
    for (waiter, waitee, span) in waits {
        let (Some(waiter), Some(waitee)) = (jobs.get(*waiter), jobs.get(*waitee)) else { continue };
        let is_alone = in_stage.get(&waitee.job.stage) == Some(&1) && waiter.job.stage == waitee.job.stage + 1;
        if !is_alone {
            let message = "waiting for one of several jobs that run at the same time is not supported";
            let error = source.error_at(span, Code::NotSupported, message).with_key("wait_for");
            return Err(error.with_help("write `stonewall`, which waits for all jobs above"));
        }
    }
    Ok(())
}
