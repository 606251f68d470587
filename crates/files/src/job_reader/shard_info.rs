//! Reads the load of a job on each shard: the map `shard_info`.
//!
//! **Why.** Most of a job's settings are here, and most of the keys that have no effect beside others.
//!
//! **How.** [`read`] reads each key in its range. If keys of io_tester have no effect in a job, it warns and resets
//! them, where io_tester ignores them silently; our own keys are refused where they have no effect.
//!
//! **Limits.** Whether a request fits into the data depends on the number of shards, and is checked elsewhere.
//!
//! **Example.** `{parallelism: 8, rate: 5000, bssplit: "4k/60:64k/40"}`: 5000 requests per second on each shard, of two
//! lengths, at most eight in flight.

use plimsoll_figures::units::{parse_io_tester_duration_ns, parse_io_tester_size_bytes};

use super::super::error::{Code, ConfigError, Diagnostic, Span};
use super::super::fields::{Field, Fields};
use super::super::io_properties::MAX_FIGURE;
use super::super::jobs::{
    Access, Job, JobClass, JobKind, MAX_BATCH, MAX_IOV_COUNT, MAX_PARALLELISM, MAX_REQUEST_BYTES, MAX_REQUESTS_PER_S,
    Shape, SizeShare, segments_error,
};
use super::super::sched_groups::MAX_SHARES;
use super::schema::{Dialect, MISSPELT_PARALLELISM, MISSPELT_SHARD_INFO, read_map};
use super::{MAX_DATA_BYTES, MAX_PAUSE_NS, distributions, own_key, warn_ignored};

/// Request size by default, as in io_tester.
pub(super) const DEFAULT_REQUEST_BYTES: u32 = 4096;
pub(super) const DEFAULT_SHARES: u32 = 10;
/// Slice of a `cpu` job by default, as in io_tester: 1 ms.
const DEFAULT_EXECUTION_NS: u64 = 1_000_000;

const PARALLELISM_HELP: &str = "write `parallelism: 1` or more below `shard_info`; io_tester takes none for 0, \
                                and such a job does nothing";

pub(super) fn open<'a>(
    job: &Fields<'a>,
    is_cpu: bool,
    dialect: Dialect,
    warnings: &mut Vec<Diagnostic>,
) -> Result<Fields<'a>, ConfigError> {
    let field = job.required("shard_info", PARALLELISM_HELP)?;
    let is_misspelt = field.has_key(MISSPELT_PARALLELISM) && !field.has_key("parallelism");
    if !(is_misspelt && is_cpu && dialect == Dialect::Real) {
        return read_map(&field, dialect.shard_info(), dialect);
    }
    let fields = read_map(&field, &MISSPELT_SHARD_INFO, dialect)?;
    if let Some(field) = fields.get(MISSPELT_PARALLELISM) {
        let message = format!("`{MISSPELT_PARALLELISM}` is not a key: this job has no `parallelism`, and does nothing");
        let help = "did you mean `parallelism`? A file of io_tester has this slip, and io_tester passes over it";
        warnings.push(field.error(Code::UnknownKey, message).with_help(help).into_warning());
    }
    Ok(fields)
}

/// Returns the length of a `cpu` job's slice. Scenarios must give it, since they have no other files to agree with.
pub(super) fn execution_ns(fields: &Fields<'_>, dialect: Dialect) -> Result<u64, ConfigError> {
    let help = "write how long a slice of CPU work takes, such as 550us";
    match (fields.get("execution_time"), dialect) {
        (Some(field), _) => field.figure(parse_io_tester_duration_ns, 1..=MAX_PAUSE_NS, "ns"),
        (None, Dialect::Real) => Ok(DEFAULT_EXECUTION_NS),
        (None, Dialect::Simulated) => Err(fields.missing("execution_time", help)),
    }
}

/// Reads the settings of a job from `shard_info`.
pub(super) fn read(fields: &Fields<'_>, job: &mut Job, warnings: &mut Vec<Diagnostic>) -> Result<(), ConfigError> {
    let kind = job.kind;
    let pause =
        |key: &str| fields.or(key, 0, |field| field.figure(parse_io_tester_duration_ns, 0..=MAX_PAUSE_NS, "ns"));
    let rps = fields.optional("rps", |field| field.count(0..=MAX_REQUESTS_PER_S))?.filter(|rate| *rate > 0);

    (job.sizes, (job.request_bytes, job.request_span)) = read_sizes(fields, kind)?;
    job.class = read_class(fields, warnings)?;
    job.parallelism = read_parallelism(fields)?;
    job.requests_per_s_per_fiber = rps.map(f64::from);
    job.requests_per_s_per_shard = read_rate(fields, kind, rps.is_some())?;
    job.batch = fields.or("batch", 1, |field| field.count(1..=MAX_BATCH))?;
    job.limit_requests = fields.optional("limit", |field| field.count(1..=u32::MAX))?;
    job.limit_bytes = read_limit_bytes(fields, kind)?;
    job.access = read_access(fields, kind)?;
    job.think_time_ns = pause("think_time")?;
    job.think_after_ns = pause("think_after")?;
    job.start_delay_ns = pause("start_delay")?;
    job.ramp_up_ns = pause("ramp_up")?;
    job.iov_count = read_iov_count(fields, job.request_bytes, warnings)?;
    job.bandwidth_limit_bytes_per_s = read_bandwidth(fields)?;

    drop_ignored_keys(fields, job, warnings);
    Ok(())
}

fn read_parallelism(fields: &Fields<'_>) -> Result<u32, ConfigError> {
    if fields.get(MISSPELT_PARALLELISM).is_some() {
        return Ok(0);
    }
    fields.required("parallelism", PARALLELISM_HELP)?.count(1..=MAX_PARALLELISM)
}

fn moves_bytes(kind: JobKind) -> bool {
    !matches!(kind, JobKind::Flush | JobKind::Unlink { .. } | JobKind::Cpu { .. })
}

/// Returns the shares of several lengths (empty: there is one length), and the longest length with its place.
fn read_sizes(fields: &Fields<'_>, kind: JobKind) -> Result<(Vec<SizeShare>, (u32, Span)), ConfigError> {
    let Some(field) = own_key(fields, "bssplit", moves_bytes(kind), "jobs that read or write")? else {
        return Ok((Vec::new(), read_request_size(fields)?));
    };
    for other in ["reqsize", "vectorized"] {
        if let Some(other_field) = fields.get(other) {
            let error = other_field.error(Code::Ignored, format!("`{other}` and `bssplit` in one job"));
            return Err(error.with_help("remove one of the two: `bssplit` says all lengths, in one piece of memory"));
        }
    }
    let sizes = distributions::read_sizes(&field)?;
    let longest_bytes = sizes.iter().map(|size| size.bytes).max().unwrap_or(DEFAULT_REQUEST_BYTES);
    Ok((sizes, (longest_bytes, field.node.span.clone())))
}

fn read_request_size(fields: &Fields<'_>) -> Result<(u32, Span), ConfigError> {
    let Some(field) = fields.get("reqsize") else {
        return Ok((DEFAULT_REQUEST_BYTES, fields.span.clone()));
    };
    let bytes = field.figure(parse_io_tester_size_bytes, 512..=MAX_REQUEST_BYTES, "bytes")?;
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    if !bytes.is_multiple_of(512) {
        let error = field.error(Code::OutOfRange, format!("{bytes} bytes is not a multiple of 512"));
        return Err(error.with_help("direct I/O works in whole sectors: write a multiple of 512, such as 512 or 4kB"));
    }
    Ok((bytes, field.node.span.clone()))
}

fn read_access(fields: &Fields<'_>, kind: JobKind) -> Result<Access, ConfigError> {
    let field = own_key(fields, "access", kind.is_random(), "`randread`, `randwrite` and `randrw`")?;
    field.map_or(Ok(Access::Uniform), |field| distributions::read_access(&field))
}

/// Returns the requests per second of a shard.
fn read_rate(fields: &Fields<'_>, kind: JobKind, has_rps: bool) -> Result<Option<f64>, ConfigError> {
    let is_io = !matches!(kind, JobKind::Cpu { .. });
    let Some(field) = own_key(fields, "rate", is_io, "jobs that send requests")? else { return Ok(None) };
    if has_rps {
        let error = field.error(Code::Ignored, "`rate` and `rps` in one job");
        return Err(error.with_help("remove one: `rate` is for a shard, `rps` for each of the `parallelism` fibers"));
    }
    let most = f64::from(MAX_REQUESTS_PER_S);
    field.number(|rate| rate > 0.0 && rate <= most, "above 0, up to 1e9").map(Some)
}

/// Returns `limit_bytes`, which fio calls `io_size`.
fn read_limit_bytes(fields: &Fields<'_>, kind: JobKind) -> Result<Option<u64>, ConfigError> {
    let ours = own_key(fields, "limit_bytes", moves_bytes(kind), "jobs that read or write")?;
    let fios = own_key(fields, "io_size", moves_bytes(kind), "jobs that read or write")?;
    if let (Some(_), Some(field)) = (&ours, &fios) {
        let error = field.error(Code::Ignored, "`io_size` and `limit_bytes` are the same");
        return Err(error.with_help("remove one of the two"));
    }
    let field = ours.or(fios);
    field.map(|field| field.figure(parse_io_tester_size_bytes, 1..=MAX_DATA_BYTES, "bytes")).transpose()
}

/// Returns the bytes per second of the class; 0 is no limit, as in io_tester.
fn read_bandwidth(fields: &Fields<'_>) -> Result<Option<u64>, ConfigError> {
    let rate = |field: &Field<'_>| field.figure(parse_io_tester_size_bytes, 0..=MAX_FIGURE, "bytes a second");
    Ok(fields.optional("bandwidth", rate)?.filter(|rate| *rate > 0))
}

/// Returns the class. `class` overrides `shares`, as io_tester's manual says.
fn read_class(fields: &Fields<'_>, warnings: &mut Vec<Diagnostic>) -> Result<JobClass, ConfigError> {
    let shares = fields.or("shares", DEFAULT_SHARES, |field| field.count(1..=MAX_SHARES))?;
    let Some(class) = fields.get("class") else {
        return Ok(JobClass::Own { shares });
    };
    if let Some(shares_field) = fields.get("shares") {
        let help = "remove one of the two; io_tester's manual says that `class` counts, its program takes `shares`";
        warn_ignored(&shares_field, "`shares` has no effect beside `class`", help, warnings);
    }
    Ok(JobClass::Joined(class.string()?))
}

/// Returns the number of segments if the request is vectored.
fn read_iov_count(
    fields: &Fields<'_>,
    request_bytes: u32,
    warnings: &mut Vec<Diagnostic>,
) -> Result<Option<u32>, ConfigError> {
    let vectorized = fields.or("vectorized", false, Field::boolean)?;
    let Some(field) = fields.get("iov_count") else {
        return Ok(vectorized.then_some(1));
    };

    let count = field.count(1..=MAX_IOV_COUNT)?;
    if !vectorized {
        if count > 1 {
            let help = "add `vectorized: true`, or remove `iov_count`";
            warn_ignored(&field, "`iov_count` has no effect without `vectorized: true`", help, warnings);
        }
        return Ok(None);
    }

    match segments_error(request_bytes, count) {
        None => Ok(Some(count)),
        Some((message, help)) => Err(field.error(Code::OutOfRange, message).with_help(help)),
    }
}

/// Warns of each key that has no effect beside the others, and resets its value.
fn drop_ignored_keys(fields: &Fields<'_>, load: &mut Shape, warnings: &mut Vec<Diagnostic>) {
    let kind = load.kind;
    let rate = if load.requests_per_s_per_shard.is_some() { "rate" } else { "rps" };
    let has_rate = load.has_rate();
    let pieces = moves_bytes(kind) && !kind.is_discard();
    let beside = |key: &str| format!("`{key}` has no effect beside `{rate}`");
    let in_kind = |key: &str| format!("`{key}` has no effect in a job of type `{}`", kind.as_str());

    let cases = [
        ("think_time", has_rate && load.think_time_ns > 0, beside("think_time")),
        ("think_after", has_rate && load.think_after_ns > 0, beside("think_after")),
        ("batch", !has_rate && load.batch > 1, "`batch` has no effect without `rps` or `rate`".to_owned()),
        ("execution_time", !matches!(kind, JobKind::Cpu { .. }), in_kind("execution_time")),
        ("reqsize", !moves_bytes(kind), in_kind("reqsize")),
        ("vectorized", !pieces && load.iov_count.is_some(), in_kind("vectorized")),
    ];

    for (key, is_ignored, message) in cases {
        if let Some(field) = fields.get(key).filter(|_| is_ignored) {
            let help = match key {
                "think_time" | "think_after" | "batch" => "remove one, or add the other",
                _ => "remove the key",
            };
            warn_ignored(&field, message, help, warnings);
        }
    }

    if has_rate {
        load.think_time_ns = 0;
        load.think_after_ns = 0;
    } else {
        load.batch = 1;
    }
    if !pieces {
        load.iov_count = None;
    }
    if !moves_bytes(kind) {
        load.request_bytes = DEFAULT_REQUEST_BYTES;
    }
}
