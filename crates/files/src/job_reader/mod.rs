//! Parses the text of a job file into a [`JobFile`]: the keys, their ranges, and their effects on each other.
//!
//! **Why.** [`super::jobs`] defines a job; this module defines its text form, and explains mistakes.
//!
//! **How.** One function per key or group of keys, each with the error and the advice for its own mistakes. `schema`
//! lists the keys; `shard_info`, `distributions` and `options` read the maps of a job; `classes` resolves classes at
//! the end, when all names are known.
//!
//! **Limits.** Reading ends at the first error. Checks that depend on the number of shards are made elsewhere.
//!
//! **Example.** `shard_info: {paralelism: 1}` is refused at the key, with "did you mean `parallelism`?".

mod classes;
mod distributions;
mod options;
mod schema;
mod shard_info;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use plimsoll_figures::units::{parse_io_tester_size_bytes, quoted};

use super::error::{Code, ConfigError, Diagnostic, Source, Span};
use super::fields::{Field, Fields};
use super::jobs::{Job, JobFile, JobKind, JobStorage, MAX_FILES, MAX_SHARD_ID, MAX_STAGE, Shape, ShardSet};
use super::sched_groups::SchedGroups;
use super::yaml;
use crate::keys;
pub(super) use schema::{Dialect, SIMULATED_JOB};

const MAX_PAUSE_NS: u64 = 86_400_000_000_000;
/// Largest `data_size` and extent hint, in bytes: 8 EiB - 1, the largest file offset.
const MAX_DATA_BYTES: u64 = i64::MAX as u64;
/// Reads in a hundred requests of a mixed job by default, as in fio.
const DEFAULT_READ_PCT: u32 = 50;
/// Keys of results as YAML that cannot be names of jobs, with their meaning.
const RESULT_KEYS: [(&str, &str); 2] =
    [("shard", "the number of the shard"), ("statistics", "the shard's own counters")];

/// Reads the text of a job file. `source_name` is used in messages only; `groups` are the classes that jobs may join
/// beside those of other jobs.
///
/// # Errors
/// With the line: unknown or unsupported keys, types and options, missing or duplicate keys, values that are wrong or
/// out of range, a duplicate name, an unknown class.
pub fn parse(source_name: &str, text: &str, groups: &SchedGroups) -> Result<JobFile, ConfigError> {
    parse_source(Source::new(source_name, text), groups)
}

pub fn parse_from_file(path: &Path, groups: &SchedGroups) -> Result<JobFile, ConfigError> {
    parse_source(yaml::read_file(path)?, groups)
}

/// Reads the jobs of a source and resolves their classes.
pub fn parse_source(source: Source, groups: &SchedGroups) -> Result<JobFile, ConfigError> {
    let root = yaml::parse(&source)?;
    let help = "write one `- name: ...` entry with `type`, `shards` and `shard_info` per job";
    let entries = Field::root(&source, &root, help)?.list()?;
    check_not_groups(&entries)?;
    let (jobs, warnings) = read_entries(&entries, groups, Dialect::Real)?;
    Ok(JobFile { jobs, warnings, source })
}

/// Reads jobs, resolves their classes, and returns warnings with them.
pub(super) fn read_entries(
    entries: &[Field<'_>],
    groups: &SchedGroups,
    dialect: Dialect,
) -> Result<(Vec<Job>, Vec<Diagnostic>), ConfigError> {
    let mut jobs: Vec<Job> = Vec::with_capacity(entries.len());
    let mut warnings = Vec::new();
    let mut names = HashSet::new();
    for entry in entries {
        let job = read_job(entry, dialect, &mut warnings)?;
        if !names.insert(job.name.clone()) {
            let message = format!("the name {} is used twice", quoted(&job.name));
            let error = entry.at("name").error(Code::DuplicateName, message);
            return Err(error.with_help("give every job a name of its own; to share a class, use `class`"));
        }
        jobs.push(job);
    }

    classes::check(&jobs, entries, groups, dialect)?;
    check_stages(&jobs, entries)?;
    Ok((jobs, warnings))
}

/// Refuses a file of scheduling groups, which is easily mistaken for a job file.
fn check_not_groups(entries: &[Field<'_>]) -> Result<(), ConfigError> {
    let is_group = |entry: &&Field<'_>| {
        entry.has_key("shares") && ["type", "shards", "shard_info"].iter().all(|key| !entry.has_key(key))
    };
    let Some(entry) = entries.iter().find(is_group) else { return Ok(()) };
    let error = entry.error(Code::UnknownKey, "an entry with `shares` and without a `type` is no job");
    Err(error.with_help("this looks like a file of scheduling groups: pass it with --sched-groups"))
}

/// Returns a key that io_tester does not have. Refuses it in jobs in which it has no effect; `belongs` names the
/// jobs in which it has one.
fn own_key<'a>(
    fields: &Fields<'a>,
    key: &str,
    does_something: bool,
    belongs: &str,
) -> Result<Option<Field<'a>>, ConfigError> {
    match fields.get(key) {
        Some(field) if !does_something => {
            let error = field.error(Code::Ignored, format!("`{key}` does nothing in a job of this type"));
            Err(error.with_help(format!("remove it: it belongs to {belongs}")))
        }
        field => Ok(field),
    }
}

fn warn_ignored(field: &Field<'_>, message: impl Into<String>, help: &str, warnings: &mut Vec<Diagnostic>) {
    warnings.push(field.error(Code::Ignored, message).with_help(help).into_warning());
}

fn read_job(entry: &Field<'_>, dialect: Dialect, warnings: &mut Vec<Diagnostic>) -> Result<Job, ConfigError> {
    let fields = schema::read_map(entry, dialect.job(), dialect)?;
    let name = read_name(&fields)?;
    let type_field = fields.required("type", "write `type: randread`, for example")?;
    check_type(&type_field, dialect)?;
    let is_cpu = type_field.text()? == "cpu";
    let (shards, shards_spans) = read_shards(&fields.required("shards", "write `shards: all`, or a list of ids")?)?;
    let info = shard_info::open(&fields, is_cpu, dialect, warnings)?;
    let kind = read_kind(&type_field, &fields, &info, dialect, warnings)?;
    let shape = Shape::closed_loop(kind, shard_info::DEFAULT_REQUEST_BYTES, 1);

    let mut job = Job { shards, shards_spans, ..Job::new(&name, shape, shard_info::DEFAULT_SHARES) };
    shard_info::read(&info, &mut job, warnings)?;
    options::read(&fields, &mut job, dialect, warnings)?;
    job.data_size_bytes = read_data_size(&fields, kind, warnings)?;
    if dialect == Dialect::Real {
        job.stage = fields.or("stage", 0, |field| field.count(0..=MAX_STAGE))?;
        job.storage = read_storage(&fields)?;
    }
    Ok(job)
}

/// Reads the job's storage, if it has one of its own.
fn read_storage(fields: &Fields<'_>) -> Result<Option<JobStorage>, ConfigError> {
    let disk = fields.get("disk");
    match (fields.get("storage"), disk) {
        (Some(storage), disk) => {
            let disk = disk.map(|field| field.text().map(str::to_owned)).transpose()?;
            Ok(Some(JobStorage { path: PathBuf::from(storage.text()?), disk }))
        }
        (None, Some(disk)) => {
            let error = disk.error(Code::Ignored, "`disk` without `storage` has no effect");
            Err(error.with_help("add `storage: PATH`, or give the disk of the run with --disk"))
        }
        (None, None) => Ok(None),
    }
}

fn read_name(fields: &Fields<'_>) -> Result<String, ConfigError> {
    let field = fields.required("name", "give the job a name; results are listed under it")?;
    let name = field.text()?;
    match RESULT_KEYS.iter().find(|(key, _)| *key == name) {
        None => Ok(name.to_owned()),
        Some((key, meaning)) => {
            let error = field.error(Code::InvalidValue, format!("a job cannot be called `{key}`"));
            Err(error.with_help(format!("choose another name: in results as YAML `{key}` is {meaning}")))
        }
    }
}

/// Refuses types that a simulated disk cannot run.
fn check_type(field: &Field<'_>, dialect: Dialect) -> Result<(), ConfigError> {
    match field.text()? {
        kind @ ("randrw" | "seqrw" | "flush" | "discard" | "unlink") if dialect == Dialect::Simulated => {
            let error = field.error(Code::NotSupported, format!("jobs of type `{kind}` cannot be simulated"));
            Err(error.with_help("remove the job: jobs of a scenario read, write, append or use the CPU"))
        }
        _ => Ok(()),
    }
}

fn read_kind(
    field: &Field<'_>,
    job: &Fields<'_>,
    info: &Fields<'_>,
    dialect: Dialect,
    warnings: &mut Vec<Diagnostic>,
) -> Result<JobKind, ConfigError> {
    const TYPES: [&str; 11] = keys![
        seqread overwrite randread randwrite append randrw seqrw flush discard unlink cpu
    ];
    let kind = match field.text()? {
        "seqread" => JobKind::SeqRead,
        "overwrite" => JobKind::Overwrite,
        "randread" => JobKind::RandRead,
        "randwrite" => JobKind::RandWrite,
        "append" => JobKind::Append,
        "randrw" => JobKind::RandMixed { read_pct: read_mix(job)? },
        "seqrw" => JobKind::SeqMixed { read_pct: read_mix(job)? },
        "flush" => JobKind::Flush,
        "discard" => JobKind::Discard { is_random: false },
        "unlink" => JobKind::Unlink { files: read_files(job)? },
        "cpu" => JobKind::Cpu { execution_ns: shard_info::execution_ns(info, dialect)? },
        "seqwrite" => {
            let warning = field.error(Code::Obsolete, "`seqwrite` is the old name of `overwrite`");
            warnings.push(warning.with_help("write `overwrite`").into_warning());
            JobKind::Overwrite
        }
        _ => return Err(field.not_one_of("a type of job", &TYPES)),
    };

    let is_mixed = matches!(kind, JobKind::RandMixed { .. } | JobKind::SeqMixed { .. });
    own_key(job, "rwmixread", is_mixed, "`randrw` and `seqrw`")?;
    if let Some(field) = job.get("files_count").filter(|_| !matches!(kind, JobKind::Unlink { .. })) {
        let message = format!("`files_count` has no effect in a job of type `{}`", kind.as_str());
        warn_ignored(&field, message, "remove it: only `unlink` jobs have several files", warnings);
    }
    Ok(kind)
}

fn read_mix(job: &Fields<'_>) -> Result<u8, ConfigError> {
    let percent = job.or("rwmixread", DEFAULT_READ_PCT, |field| field.count(0..=100))?;
    Ok(u8::try_from(percent).unwrap_or(100))
}

/// Returns the files of an `unlink` job on each shard.
fn read_files(job: &Fields<'_>) -> Result<u32, ConfigError> {
    let help = "write how many files the job makes and removes on each shard, such as `files_count: 5000`";
    job.required("files_count", help)?.count(1..=MAX_FILES)
}

/// Returns the shards, and the position of each in the text.
fn read_shards(field: &Field<'_>) -> Result<(ShardSet, Vec<Span>), ConfigError> {
    if field.is_scalar() {
        if field.text()? == "all" {
            return Ok((ShardSet::All, Vec::new()));
        }
        let error = field.error(Code::WrongType, "shards are neither `all` nor a list");
        return Err(error.with_help("write `all`, or a list of shard ids such as [0] or [0, 2]"));
    }

    let items = field.list()?;
    if items.is_empty() {
        let error = field.error(Code::Empty, "there is no shard in the list");
        return Err(error.with_help("write `all`, or a list of shard ids such as [0]"));
    }

    let mut ids = Vec::with_capacity(items.len());
    let mut seen = HashSet::new();
    for item in &items {
        let id = item.count(0..=MAX_SHARD_ID)?;
        if !seen.insert(id) {
            let error = item.error(Code::DuplicateName, format!("shard {id} is listed twice"));
            return Err(error.with_help("list every shard once; `parallelism` sets how much runs on it"));
        }
        ids.push(id);
    }
    Ok((ShardSet::List(ids), items.iter().map(|item| item.node.span.clone()).collect()))
}

fn read_data_size(
    fields: &Fields<'_>,
    kind: JobKind,
    warnings: &mut Vec<Diagnostic>,
) -> Result<Option<u64>, ConfigError> {
    let Some(field) = fields.get("data_size") else { return Ok(None) };
    let is_cpu = matches!(kind, JobKind::Cpu { .. });
    let lowest = if kind == JobKind::Append || is_cpu { 0 } else { 512 };
    let bytes = field.figure(parse_io_tester_size_bytes, lowest..=MAX_DATA_BYTES, "bytes")?;
    if is_cpu {
        warn_ignored(&field, "`data_size` has no effect in a job of type `cpu`", "remove the key", warnings);
    }
    Ok(Some(bytes))
}

/// Checks that stages count from 0 and none is empty.
fn check_stages(jobs: &[Job], entries: &[Field<'_>]) -> Result<(), ConfigError> {
    let used: HashSet<u32> = jobs.iter().map(|job| job.stage).collect();
    let in_gap = jobs.iter().zip(entries).find(|(job, _)| job.stage > 0 && !used.contains(&(job.stage - 1)));
    let Some((job, entry)) = in_gap else { return Ok(()) };
    let before = job.stage - 1;
    let message = format!("no job has stage {before}, which comes before stage {}", job.stage);
    let error = entry.at("stage").error(Code::OutOfRange, message);
    Err(error.with_help("number stages from 0, without gaps; jobs without `stage` are in stage 0"))
}
