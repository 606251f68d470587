//! From the text of a job file to [`JobFile`]: the keys, their ranges, and what they do to each other.
//!
//! **Why.** [`super::jobs`] says what a job is; this module says how one is written, and what is wrong with those that
//! are written differently.
//!
//! **How.** One function per key or group of keys, each with the error and the advice for its own mistakes. Classes are
//! resolved at the end, when all names are known.
//!
//! **Limits.** The first error ends the reading. What depends on the number of shards is not checked here.
//!
//! **Example.** `shard_info: {parallelim: 1}` is refused at the key, with "did you mean `parallelism`?".

use std::collections::{HashMap, HashSet};

use super::error::{Code, ConfigError, Diagnostic, Source, Span};
use super::fields::{Field, Fields, Refused, Schema, closest};
use super::jobs::{
    Access, Content, Job, JobClass, JobFile, JobKind, MAX_BATCH, MAX_IOV_COUNT, MAX_PARALLELISM, MAX_REQUEST_BYTES, MAX_REQUESTS_PER_S,
    MAX_SHARD_ID, PauseDistribution, ShardSet,
};
use super::sched_groups::{MAX_SHARES, SchedGroups};
use super::yaml;
use crate::units::{format_bytes_binary, parse_io_tester_duration_ns, parse_io_tester_size_bytes, quoted};

/// The longest pause, in nanoseconds: one day.
const MAX_PAUSE_NS: u64 = 86_400_000_000_000;
/// The largest `data_size` and extent hint, in bytes: 8 EiB - 1, the largest file offset.
const MAX_DATA_BYTES: u64 = i64::MAX as u64;
/// The request size where none is given, as in io_tester.
const DEFAULT_REQUEST_BYTES: u64 = 4096;
/// The shares of a job where none are given, as in io_tester.
const DEFAULT_SHARES: u32 = 10;
const JOB: Schema = Schema {
    what: "a job",
    known: &["name", "type", "shards", "data_size", "shard_info", "options"],
    refused: &[Refused::not_supported("files_count", "it belongs to `unlink` jobs, which this version cannot run")],
};

/// A job of a scenario: on one of several disks, from one time to another.
pub(super) const SIMULATED_JOB: Schema = Schema {
    what: "a job",
    known: &["name", "type", "shards", "data_size", "shard_info", "options", "disk", "start", "stop"],
    refused: JOB.refused,
};

const SHARD_INFO: Schema = Schema {
    what: "shard_info",
    known: &[
        "parallelism",
        "rps",
        "batch",
        "limit",
        "reqsize",
        "shares",
        "class",
        "think_time",
        "think_after",
        "vectorized",
        "iov_count",
    ],
    refused: &[
        Refused::not_supported("bandwidth", "remove it; to bound a job, use `rps` with `reqsize`"),
        Refused::not_supported("execution_time", "it belongs to `cpu` jobs, which only the simulator runs"),
    ],
};

const SIMULATED_SHARD_INFO: Schema = Schema {
    what: "shard_info",
    known: &[
        "parallelism",
        "rps",
        "batch",
        "limit",
        "reqsize",
        "shares",
        "class",
        "think_time",
        "think_after",
        "vectorized",
        "iov_count",
        "execution_time",
    ],
    refused: &[Refused::not_supported("bandwidth", "remove it; to bound a job, use `rps` with `reqsize`")],
};

/// Where jobs run: that decides what they may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// On a real disk.
    Real,
    /// In a scenario of the simulator.
    Simulated,
}

impl Dialect {
    fn job(self) -> &'static Schema<'static> {
        match self {
            Dialect::Real => &JOB,
            Dialect::Simulated => &SIMULATED_JOB,
        }
    }

    fn shard_info(self) -> &'static Schema<'static> {
        match self {
            Dialect::Real => &SHARD_INFO,
            Dialect::Simulated => &SIMULATED_SHARD_INFO,
        }
    }
}

const OPTIONS: Schema = Schema {
    what: "options",
    known: &["dsync", "sleep_type", "pause_distribution", "extent_allocation_size_hint"],
    refused: &[
        Refused::not_supported("sloppy_size_hint", "remove it"),
        Refused::not_supported("sloppy_size", "remove it"),
        Refused::not_supported("fallocate", "remove it"),
    ],
};

/// Reads the jobs of a source, and resolves their classes.
pub(super) fn read(source: Source, groups: &SchedGroups) -> Result<JobFile, ConfigError> {
    let root = yaml::parse(&source)?;
    let help = "write one `- name: ...` entry with `type`, `shards` and `shard_info` per job";
    let entries = Field::root(&source, &root, help)?.list()?;
    let (jobs, warnings) = read_entries(&entries, groups, Dialect::Real)?;
    Ok(JobFile { jobs, warnings, source })
}

/// Reads jobs, resolves their classes, and says what it noticed.
pub(super) fn read_entries(
    entries: &[Field<'_>],
    groups: &SchedGroups,
    dialect: Dialect,
) -> Result<(Vec<Job>, Vec<Diagnostic>), ConfigError> {
    let mut jobs: Vec<Job> = Vec::with_capacity(entries.len());
    let mut warnings = Vec::new();
    let mut names = HashSet::new();
    for entry in entries {
        let job = parse_job(entry, dialect, &mut warnings)?;
        if !names.insert(job.name.clone()) {
            let error = entry_key(entry, "name", dialect)
                .error(Code::DuplicateName, format!("the name {} is used twice", quoted(&job.name)));
            return Err(error.with_help("give every job a name of its own; to share a class, use `class`"));
        }
        jobs.push(job);
    }
    check_classes(&jobs, entries, groups, dialect)?;
    Ok((jobs, warnings))
}

/// The value of a key of an entry, or the entry itself.
fn entry_key<'a>(entry: &Field<'a>, key: &str, dialect: Dialect) -> Field<'a> {
    Fields::read(entry, dialect.job()).ok().and_then(|fields| fields.get(key)).unwrap_or_else(|| entry.clone())
}

fn parse_job(entry: &Field<'_>, dialect: Dialect, warnings: &mut Vec<Diagnostic>) -> Result<Job, ConfigError> {
    let fields = Fields::read(entry, dialect.job())?;
    let name_field = fields.required("name", "give the job a name; results are listed under it")?;
    let name = name_field.text()?.to_owned();
    if name == "shard" {
        let error = name_field.error(Code::InvalidValue, "a job cannot be called `shard`");
        return Err(error.with_help("choose another name: in results as YAML `shard` is the number of the shard"));
    }
    let type_field = fields.required("type", "write `type: randread`, for example")?;
    let kind = match type_field.text()? {
        "cpu" if dialect == Dialect::Simulated => JobKind::Cpu { execution_ns: parse_execution(&fields)? },
        _ => parse_kind(&type_field, warnings)?,
    };
    let (shards, shards_spans) = parse_shards(&fields.required("shards", "write `shards: all`, or a list of ids")?)?;
    let load = parse_shard_info(&fields, dialect, warnings)?;
    let options = parse_options(&fields, warnings)?;
    Ok(Job {
        name,
        kind,
        shards,
        data_size_bytes: parse_data_size(&fields, kind)?,
        class: load.class,
        parallelism: load.parallelism,
        requests_per_s_per_fiber: load.requests_per_s_per_fiber,
        batch: load.batch,
        limit_requests: load.limit_requests,
        request_bytes: load.request_bytes,
        think_time_ns: load.think_time_ns,
        think_after_ns: load.think_after_ns,
        iov_count: load.iov_count,
        sizes: Vec::new(),
        access: Access::default(),
        content: Content::default(),
        verify: false,
        flush_every: 0,
        flush_data_only: false,
        requests_per_s_per_shard: None,
        bandwidth_limit_bytes_per_s: None,
        limit_bytes: None,
        start_delay_ns: 0,
        ramp_up_ns: 0,
        stage: 0,
        fallocate: false,
        dsync: options.dsync,
        pause_distribution: options.pause_distribution,
        extent_size_hint_bytes: options.extent_size_hint_bytes,
        shards_spans,
        request_span: load.request_span,
    })
}

fn parse_kind(field: &Field<'_>, warnings: &mut Vec<Diagnostic>) -> Result<JobKind, ConfigError> {
    const TYPES: [&str; 5] = ["seqread", "overwrite", "randread", "randwrite", "append"];
    match field.text()? {
        "seqread" => Ok(JobKind::SeqRead),
        "overwrite" => Ok(JobKind::Overwrite),
        "randread" => Ok(JobKind::RandRead),
        "randwrite" => Ok(JobKind::RandWrite),
        "append" => Ok(JobKind::Append),
        "seqwrite" => {
            let warning = field.error(Code::Obsolete, "`seqwrite` is the old name of `overwrite`");
            warnings.push(warning.with_help("write `overwrite`").into_warning());
            Ok(JobKind::Overwrite)
        }
        kind @ ("cpu" | "unlink") => {
            let error = field.error(Code::NotSupported, format!("jobs of type `{kind}` are not supported yet"));
            let simulated = if kind == "cpu" { ", or run the file in a scenario of `plimsoll sim run`" } else { "" };
            Err(error.with_help(format!("remove the job, or run it with another tool at the same time{simulated}")))
        }
        _ => Err(field.not_one_of("a type of job", &TYPES)),
    }
}

/// The shards, and where each of them stands in the text.
fn parse_shards(field: &Field<'_>) -> Result<(ShardSet, Vec<Span>), ConfigError> {
    if let yaml::Value::Scalar(_) = field.node.value {
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

fn parse_data_size(fields: &Fields<'_>, kind: JobKind) -> Result<Option<u64>, ConfigError> {
    let Some(field) = fields.get("data_size") else { return Ok(None) };
    let lowest = if kind == JobKind::Append { 0 } else { 512 };
    field.figure(parse_io_tester_size_bytes, lowest..=MAX_DATA_BYTES, "bytes").map(Some)
}

/// The part of a job that comes from `shard_info`.
struct Load {
    class: JobClass,
    parallelism: u32,
    requests_per_s_per_fiber: Option<u32>,
    batch: u32,
    limit_requests: Option<u32>,
    request_bytes: u64,
    request_span: Span,
    think_time_ns: u64,
    think_after_ns: u64,
    iov_count: Option<u32>,
}

const PARALLELISM_HELP: &str = "write `parallelism: 1` or more below `shard_info`; io_tester takes none for 0, \
                                and such a job does nothing";

/// The length of a slice of a `cpu` job.
fn parse_execution(job: &Fields<'_>) -> Result<u64, ConfigError> {
    let fields = Fields::read(&job.required("shard_info", PARALLELISM_HELP)?, &SIMULATED_SHARD_INFO)?;
    let field = fields.required("execution_time", "write how long a slice of CPU work takes, such as 550us")?;
    field.figure(parse_io_tester_duration_ns, 1..=MAX_PAUSE_NS, "ns")
}

fn parse_shard_info(job: &Fields<'_>, dialect: Dialect, warnings: &mut Vec<Diagnostic>) -> Result<Load, ConfigError> {
    let field = job.required("shard_info", PARALLELISM_HELP)?;
    let fields = Fields::read(&field, dialect.shard_info())?;
    let count_or = |key: &str, range, default| fields.get(key).map_or(Ok(default), |field| field.count(range));
    let pause = |key: &str| match fields.get(key) {
        Some(field) => field.figure(parse_io_tester_duration_ns, 0..=MAX_PAUSE_NS, "ns"),
        None => Ok(0),
    };
    let parallelism = fields.required("parallelism", PARALLELISM_HELP)?.count(1..=MAX_PARALLELISM)?;
    let (request_bytes, request_span) = parse_request_size(&fields)?;
    let mut load = Load {
        class: parse_class(&fields, warnings)?,
        parallelism,
        requests_per_s_per_fiber: Some(count_or("rps", 0..=MAX_REQUESTS_PER_S, 0)?).filter(|rate| *rate > 0),
        batch: count_or("batch", 1..=MAX_BATCH, 1)?,
        limit_requests: fields.get("limit").map(|field| field.count(1..=u32::MAX)).transpose()?,
        request_bytes,
        request_span,
        think_time_ns: pause("think_time")?,
        think_after_ns: pause("think_after")?,
        iov_count: parse_iov_count(&fields, request_bytes, warnings)?,
    };
    drop_ignored_keys(&fields, &mut load, warnings);
    Ok(load)
}

fn parse_request_size(fields: &Fields<'_>) -> Result<(u64, Span), ConfigError> {
    let Some(field) = fields.get("reqsize") else {
        return Ok((DEFAULT_REQUEST_BYTES, fields.span.clone()));
    };
    let bytes = field.figure(parse_io_tester_size_bytes, 512..=MAX_REQUEST_BYTES, "bytes")?;
    if !bytes.is_multiple_of(512) {
        let error = field.error(Code::OutOfRange, format!("{bytes} bytes is not a multiple of 512"));
        return Err(error.with_help("direct I/O works in whole sectors: write a multiple of 512, such as 512 or 4kB"));
    }
    Ok((bytes, field.node.span.clone()))
}

/// `class` wins over `shares`, as io_tester's manual says.
fn parse_class(fields: &Fields<'_>, warnings: &mut Vec<Diagnostic>) -> Result<JobClass, ConfigError> {
    let shares_field = fields.get("shares");
    let shares = shares_field.as_ref().map_or(Ok(DEFAULT_SHARES), |field| field.count(1..=MAX_SHARES))?;
    let Some(class) = fields.get("class") else {
        return Ok(JobClass::Own { shares });
    };
    if let Some(shares_field) = shares_field {
        let warning = shares_field.error(Code::Ignored, "`shares` has no effect beside `class`");
        let help = "remove one of the two; io_tester's manual says that `class` counts, its program takes `shares`";
        warnings.push(warning.with_help(help).into_warning());
    }
    Ok(JobClass::Joined(class.text()?.to_owned()))
}

/// The number of segments, if the request is vectorized. Segments must be aligned as direct I/O needs it.
fn parse_iov_count(
    fields: &Fields<'_>,
    request_bytes: u64,
    warnings: &mut Vec<Diagnostic>,
) -> Result<Option<u32>, ConfigError> {
    let vectorized = fields.get("vectorized").map_or(Ok(false), |field| field.boolean())?;
    let Some(field) = fields.get("iov_count") else {
        return Ok(vectorized.then_some(1));
    };
    let count = field.count(1..=MAX_IOV_COUNT)?;
    if !vectorized {
        if count > 1 {
            let warning = field.error(Code::Ignored, "`iov_count` has no effect without `vectorized: true`");
            warnings.push(warning.with_help("add `vectorized: true`, or remove `iov_count`").into_warning());
        }
        return Ok(None);
    }
    let alignment: u64 = if request_bytes < 4096 { 512 } else { 4096 };
    let segment_bytes = request_bytes / u64::from(count);
    if request_bytes.is_multiple_of(u64::from(count)) && segment_bytes > 0 && segment_bytes.is_multiple_of(alignment) {
        return Ok(Some(count));
    }
    let size = format_bytes_binary(request_bytes);
    let message = format!("a request of {size} cannot be cut into {count} segments");
    let help =
        format!("choose a count that divides the request into equal segments, each a multiple of {alignment} bytes");
    Err(field.error(Code::OutOfRange, message).with_help(help))
}

/// Keys that have no effect beside the others: each is warned of, and its value taken back.
fn drop_ignored_keys(fields: &Fields<'_>, load: &mut Load, warnings: &mut Vec<Diagnostic>) {
    let open_loop = load.requests_per_s_per_fiber.is_some();
    let cases = [
        ("think_time", open_loop && load.think_time_ns > 0, "`think_time` has no effect beside `rps`"),
        ("think_after", open_loop && load.think_after_ns > 0, "`think_after` has no effect beside `rps`"),
        ("batch", !open_loop && load.batch > 1, "`batch` has no effect without `rps`"),
    ];
    for (key, ignored, message) in cases {
        if let Some(field) = fields.get(key).filter(|_| ignored) {
            warnings.push(field.error(Code::Ignored, message).with_help("remove one, or add the other").into_warning());
        }
    }
    if open_loop {
        load.think_time_ns = 0;
        load.think_after_ns = 0;
    } else {
        load.batch = 1;
    }
}

/// The part of a job that comes from `options`.
#[derive(Default)]
struct JobOptions {
    dsync: bool,
    pause_distribution: PauseDistribution,
    extent_size_hint_bytes: Option<u64>,
}

fn parse_options(job: &Fields<'_>, warnings: &mut Vec<Diagnostic>) -> Result<JobOptions, ConfigError> {
    let Some(field) = job.get("options") else { return Ok(JobOptions::default()) };
    let fields = Fields::read(&field, &OPTIONS)?;
    if let Some(sleep_type) = fields.get("sleep_type") {
        check_sleep_type(&sleep_type)?;
    }
    let pause_distribution = match fields.get("pause_distribution") {
        None => PauseDistribution::Uniform,
        Some(field) => match field.text()? {
            "uniform" => PauseDistribution::Uniform,
            "poisson" => PauseDistribution::Poisson,
            _ => return Err(field.not_one_of("a pause distribution", &["uniform", "poisson"])),
        },
    };
    let hint = fields.get("extent_allocation_size_hint");
    if let Some(field) = &hint {
        let warning = field.error(Code::Ignored, "`extent_allocation_size_hint` has no effect");
        warnings.push(warning.with_help("remove it; files are written in full before the run").into_warning());
    }
    Ok(JobOptions {
        dsync: fields.get("dsync").map_or(Ok(false), |field| field.boolean())?,
        pause_distribution,
        extent_size_hint_bytes: hint
            .map(|field| field.figure(parse_io_tester_size_bytes, 512..=MAX_DATA_BYTES, "bytes"))
            .transpose()?,
    })
}

fn check_sleep_type(field: &Field<'_>) -> Result<(), ConfigError> {
    match field.text()? {
        "lowres" | "steady" => Ok(()),
        "busyloop" => {
            let error = field.error(Code::NotSupported, "`sleep_type: busyloop` is not supported yet");
            Err(error.with_help("write `steady`, or remove the key"))
        }
        _ => Err(field.not_one_of("a sleep type", &["lowres", "steady"])),
    }
}

/// Every joined class exists, and no class exists twice.
fn check_classes(
    jobs: &[Job],
    entries: &[Field<'_>],
    groups: &SchedGroups,
    dialect: Dialect,
) -> Result<(), ConfigError> {
    let group_classes = groups.class_names();
    let group_names: HashSet<&str> = groups.groups.iter().map(|group| group.name.as_str()).collect();
    let class_of_job: HashMap<&str, &JobClass> = jobs.iter().map(|job| (job.name.as_str(), &job.class)).collect();
    for (job, entry) in jobs.iter().zip(entries) {
        let JobClass::Joined(class) = &job.class else {
            if group_names.contains(job.name.as_str()) {
                let message = format!("{} is already the name of a scheduling group", quoted(&job.name));
                let help = "add `class:` with this name to join it, or rename the job";
                return Err(entry_key(entry, "name", dialect).error(Code::DuplicateName, message).with_help(help));
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
            None => {
                let owners = jobs.iter().filter(|other| matches!(other.class, JobClass::Own { .. }));
                let mut names: Vec<&str> = group_classes.iter().copied().collect();
                names.extend(owners.map(|owner| owner.name.as_str()));
                // Any one-letter name is one slip away from any other.
                names.retain(|name| name.len() > 1);
                names.sort_unstable();
                match (closest(class, names.into_iter()), dialect) {
                    (Some(name), _) => format!("did you mean `{name}`?"),
                    (None, Dialect::Simulated) => "name a job without `class`, or a class of `classes:`".to_owned(),
                    (None, _) => "name a job without `class`, or a class of the --sched-groups file".to_owned(),
                }
            }
        };
        let info = entry_key(entry, "shard_info", dialect);
        let at = Fields::read(&info, dialect.shard_info()).ok().and_then(|fields| fields.get("class")).unwrap_or(info);
        let error = at.error(Code::UnknownReference, format!("there is no class called {}", quoted(class)));
        return Err(error.with_help(help));
    }
    Ok(())
}
