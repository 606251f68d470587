//! Turns the settings of one section into a [`Job`].
//!
//! **Why.** Most of fio's options have a counterpart; some change the meaning of others. Each such pair is decided
//! here, once.
//!
//! **How.** One function for each group of related options: what requests do, how long they are, where they go, when
//! they come, when they end.
//!
//! **Limits.** See [`super`], which explains the figures.
//!
//! **Example.** `rw=randrw`, `rwmixread=70`, `bs=4k` make random requests of 4 KiB, 70 in 100 of them reads.

use plimsoll::backend::choose::BackendKind;
use plimsoll_figures::units::quoted;

use super::common::Common;
use super::reader::{Reader, not_supported};
use super::values::{self, NS_PER_S, NS_PER_US, directions};
use super::{STANDARD_SHARES, access, common};
use crate::error::{Code, ConfigError, Span};
use crate::fields::did_you_mean;
use crate::jobs::{
    Content, Job, JobKind, MAX_PARALLELISM, MAX_REQUEST_BYTES, MAX_REQUESTS_PER_S, PauseDistribution, Shape, SizeShare,
};

/// Request size if none is given, as in fio.
const DEFAULT_REQUEST_BYTES: u64 = 4096;
/// Largest size, in bytes: 8 EiB - 1, the largest file offset.
const MAX_SIZE_BYTES: u64 = i64::MAX as u64;
/// Values of `verify`.
const VERIFY_METHODS: &str = "md5 crc64 crc32c crc32c-intel crc32 crc16 crc7 xxhash sha512 sha256 sha1 sha3-224 sha3-256 \
                              sha3-384 sha3-512 meta pattern pattern_hdr null 0 1";

/// The backend, and how many requests are in flight.
struct Engine {
    backend: Option<BackendKind>,
    parallelism: u32,
}

/// Reads one job: the settings that all jobs share, and the job as one clone on one shard.
pub(super) fn read(reader: &mut Reader<'_>, name: &str) -> Result<(Common, Job), ConfigError> {
    check_direct(reader)?;
    let engine = engine(reader)?;
    let mut kind = kind(reader)?;
    let (request_bytes, sizes, request_span) = request_sizes(reader, kind)?;
    let requests_per_s = rate(reader, &mut kind, request_bytes, &sizes)?;
    let (think_time_ns, think_after_ns, parallelism) = think(reader, engine.parallelism, requests_per_s)?;
    let common = common::read(reader, engine.backend)?;
    let time_based = reader.flag("time_based")?;
    let (data_size_bytes, limit_bytes) = sizes_of_data(reader, time_based, &common, request_bytes)?;
    let (flush_every, flush_data_only, dsync) = flushes(reader, kind)?;
    let offset_bytes = offset(reader, "offset")?;

    let shape = Shape {
        limit_requests: limit_requests(reader)?,
        sizes,
        think_time_ns,
        think_after_ns,
        access: access::read(reader, kind)?,
        content: Content { compressible_pct: compressible_pct(reader)? },
        verify: verify(reader, kind)?,
        flush_every,
        flush_data_only,
        requests_per_s_per_shard: requests_per_s,
        limit_bytes,
        start_delay_ns: reader.time("startdelay", NS_PER_S)?.unwrap_or(0),
        pause_distribution: pause_distribution(reader)?,
        ..Shape::closed_loop(kind, u32::try_from(request_bytes).unwrap_or(u32::MAX), parallelism)
    };
    let job = Job { data_size_bytes, offset_bytes, dsync, request_span, ..Job::new(name, shape, STANDARD_SHARES) };
    Ok((common, job))
}

/// Requires direct I/O. fio uses the page cache unless told otherwise.
fn check_direct(reader: &mut Reader<'_>) -> Result<(), ConfigError> {
    if reader.get("direct").is_none() {
        reader.note("direct", "the job does not say `direct=1`, and runs with direct I/O", "add `direct=1`");
    } else if !reader.flag("direct")? {
        return not_supported(reader, "direct", "this program does direct I/O only", "write `direct=1`");
    }
    Ok(())
}

fn engine(reader: &mut Reader<'_>) -> Result<Engine, ConfigError> {
    let depth = reader.int("iodepth", 1..=u64::from(MAX_PARALLELISM))?.unwrap_or(1);
    let depth = u32::try_from(depth).unwrap_or(MAX_PARALLELISM);
    let name = reader.text("ioengine")?;

    let backend = match name.unwrap_or("psync") {
        "libaio" => Some(BackendKind::Aio),
        "io_uring" => Some(BackendKind::Uring),
        "posixaio" => Some(BackendKind::Pool),
        "null" => Some(BackendKind::Null),
        "psync" | "sync" | "vsync" | "pvsync" | "pvsync2" => None,
        other => {
            let error =
                reader.error("ioengine", Code::NotSupported, format!("there is no engine {} here", quoted(other)));
            return Err(error.with_help("write io_uring, libaio, posixaio, psync or null"));
        }
    };

    if backend.is_some() || depth == 1 {
        return Ok(Engine { backend, parallelism: depth });
    }

    let engine = name.unwrap_or("psync, fio's default,");
    let message = format!("with the engine {engine} one request is in flight, whatever `iodepth` says");
    reader.note("iodepth", message, "write `ioengine=io_uring` to have more in flight");
    Ok(Engine { backend, parallelism: 1 })
}

fn kind(reader: &Reader<'_>) -> Result<JobKind, ConfigError> {
    const KINDS: [&str; 9] =
        ["read", "write", "trim", "randread", "randwrite", "randtrim", "rw", "readwrite", "randrw"];
    const TRIMS: &str = "write `rw=trim` (ranges one after the other)";
    match reader.text("rw")?.unwrap_or("read") {
        "read" => Ok(JobKind::SeqRead),
        "write" => Ok(JobKind::Overwrite),
        "randread" => Ok(JobKind::RandRead),
        "randwrite" => Ok(JobKind::RandWrite),
        "trim" => Ok(JobKind::Discard),
        "rw" | "readwrite" => Ok(JobKind::SeqMixed { read_pct: read_pct(reader)? }),
        "randrw" => Ok(JobKind::RandMixed { read_pct: read_pct(reader)? }),
        "randtrim" => not_supported(reader, "rw", "trims at random positions are not supported", TRIMS),
        "trimwrite" | "randtrimwrite" => {
            not_supported(reader, "rw", "jobs that trim and write are not supported", TRIMS)
        }
        other if other.contains(':') => not_supported(
            reader,
            "rw",
            "`rw` with a number behind it is not supported",
            "remove the `:` and what follows",
        ),
        other => {
            let error = reader.error("rw", Code::InvalidValue, format!("{} is not a mode of fio", quoted(other)));
            let help = did_you_mean(other, KINDS.into_iter());
            let all = || "write read, write, randread, randwrite, rw, randrw or trim".to_owned();
            Err(error.with_help(help.unwrap_or_else(all)))
        }
    }
}

/// Returns the reads in a hundred requests; the later one of `rwmixread` and `rwmixwrite` counts.
fn read_pct(reader: &Reader<'_>) -> Result<u8, ConfigError> {
    let at = |name| reader.get(name).map(|setting| setting.name_span.start);
    let pct = if at("rwmixwrite") > at("rwmixread") {
        reader.int("rwmixwrite", 0..=100)?.map(|writes| 100 - writes)
    } else {
        reader.int("rwmixread", 0..=100)?
    };
    Ok(u8::try_from(pct.unwrap_or(50)).unwrap_or(50))
}

/// Returns the part of a list that applies to the job. Refuses different parts for its reads and writes.
fn one_part<'a>(reader: &Reader<'a>, name: &str, kind: JobKind) -> Result<Option<&'a str>, ConfigError> {
    let Some(list) = reader.text(name)? else { return Ok(None) };
    let mut parts = directions(kind).iter().map(|direction| values::of_direction(list, *direction));
    let first = parts.next().flatten();
    if parts.any(|part| part != first) {
        let message = format!("reads and writes of one job cannot have a `{name}` each");
        return not_supported(reader, name, &message, "write one job for the reads and one for the writes");
    }
    Ok(first)
}

/// Returns the longest request, the lengths if there are several, and where they stand.
fn request_sizes(reader: &Reader<'_>, kind: JobKind) -> Result<(u64, Vec<SizeShare>, Span), ConfigError> {
    let mut sizes = Vec::new();
    let (request_bytes, name) = match one_part(reader, "bssplit", kind)? {
        Some(split) => {
            sizes = size_shares(reader, split)?;
            (sizes.iter().map(|share| u64::from(share.bytes)).max().unwrap_or(DEFAULT_REQUEST_BYTES), "bssplit")
        }
        None => {
            let bytes = one_part(reader, "bs", kind)?.map(|text| request_length(reader, "bs", text)).transpose()?;
            (bytes.unwrap_or(DEFAULT_REQUEST_BYTES), "bs")
        }
    };

    let shortest = sizes.iter().map(|share| u64::from(share.bytes)).min().unwrap_or(request_bytes);
    if let Some(text) = one_part(reader, "blockalign", kind)?
        && reader.int_of("blockalign", text, 1..=MAX_REQUEST_BYTES)? != shortest
    {
        let help = "remove it: positions are multiples of the block size";
        return not_supported(reader, "blockalign", "an alignment other than the block size is not supported", help);
    }

    if sizes.len() == 1 {
        sizes.clear();
    }
    Ok((request_bytes, sizes, reader.span(name)))
}

fn request_length(reader: &Reader<'_>, name: &str, text: &str) -> Result<u64, ConfigError> {
    let bytes = reader.int_of(name, text, 512..=MAX_REQUEST_BYTES)?;
    if bytes.is_multiple_of(512) {
        return Ok(bytes);
    }
    let error = reader.error(name, Code::OutOfRange, format!("{bytes} bytes is not a multiple of 512"));
    Err(error.with_help("direct I/O works in whole sectors: write a multiple of 512, such as 512 or 4k"))
}

fn size_shares(reader: &Reader<'_>, split: &str) -> Result<Vec<SizeShare>, ConfigError> {
    let name = "bssplit";
    let wrong = |wrong| reader.wrong(name, wrong);
    let pairs = values::pairs(split).map_err(wrong)?;
    let percent = |text| values::float(text, 0.0, 100.0).map_err(wrong);
    let shares = pairs.iter().map(|(_, share)| share.map(percent).transpose()).collect::<Result<Vec<_>, _>>()?;
    let percents = values::fill_percents(&shares).map_err(wrong)?;

    let mut sizes = Vec::new();
    for ((text, _), percent) in pairs.iter().zip(percents) {
        let bytes = u32::try_from(request_length(reader, name, text)?).unwrap_or(u32::MAX);
        if percent > 0.0 {
            sizes.push(SizeShare { bytes, percent });
        }
    }
    Ok(sizes)
}

fn mean_bytes(request_bytes: u64, sizes: &[SizeShare]) -> f64 {
    if sizes.is_empty() {
        return request_bytes as f64;
    }
    sizes.iter().map(|share| f64::from(share.bytes) * share.percent / 100.0).sum()
}

/// Returns the clone's requests per second, reads and writes together. The rates of a mixed job decide its mix.
fn rate(
    reader: &mut Reader<'_>,
    kind: &mut JobKind,
    request_bytes: u64,
    sizes: &[SizeShare],
) -> Result<Option<f64>, ConfigError> {
    let (name, unit) = match (reader.text("rate")?, reader.text("rate_iops")?) {
        (Some(_), Some(_)) => {
            let error = reader.error("rate_iops", Code::Ignored, "`rate` and `rate_iops` exclude each other");
            return Err(error.with_help("remove one of the two"));
        }
        (Some(_), None) => ("rate", mean_bytes(request_bytes, sizes)),
        (None, Some(_)) => ("rate_iops", 1.0),
        (None, None) => return Ok(None),
    };

    let list = reader.text(name)?.unwrap_or("");
    let mut rates = Vec::new();
    for direction in directions(*kind) {
        let text = values::of_direction(list, *direction);
        let figure = text.map(|text| reader.int_of(name, text, 0..=u64::MAX)).transpose()?.unwrap_or(0);
        rates.push(figure as f64 / unit);
    }

    let total: f64 = rates.iter().sum();
    if total <= 0.0 {
        return Ok(None);
    }
    if rates.contains(&0.0) {
        let message = "a rate for one direction of a job that mixes is not supported";
        return not_supported(reader, name, message, "write one job for the reads and one for the writes");
    }
    if total > f64::from(MAX_REQUESTS_PER_S) {
        let error = reader.error(name, Code::OutOfRange, "that is more than 1 000 000 000 requests a second");
        return Err(error.with_help("lower the rate"));
    }

    if name == "rate_iops" && !sizes.is_empty() {
        let help = "fio would count bytes, in blocks of the shortest length";
        reader.note(name, "`rate_iops` counts requests, whatever their length", help);
    }

    if let (JobKind::SeqMixed { read_pct } | JobKind::RandMixed { read_pct }, Some(reads)) = (kind, rates.first()) {
        let exact = reads / total * 100.0;
        if (exact - f64::from(*read_pct)).abs() > 0.01 {
            let message = format!("the rates make {exact:.1} % reads, and that counts");
            reader.note(name, message, "let the rates and `rwmixread` say the same");
        }
        // `as` from float to integer saturates.
        *read_pct = exact.round() as u8;
    }
    Ok(Some(total))
}

fn pause_distribution(reader: &Reader<'_>) -> Result<PauseDistribution, ConfigError> {
    match reader.text("rate_process")?.unwrap_or("linear") {
        "linear" => Ok(PauseDistribution::Uniform),
        "poisson" => Ok(PauseDistribution::Poisson),
        other => {
            let message = format!("{} is not a process of requests", quoted(other));
            Err(reader.error("rate_process", Code::InvalidValue, message).with_help("write linear or poisson"))
        }
    }
}

/// Returns the pause, the active phase before it, and the requests in flight. fio waits for all before it pauses.
fn think(
    reader: &mut Reader<'_>,
    parallelism: u32,
    requests_per_s: Option<f64>,
) -> Result<(u64, u64, u32), ConfigError> {
    const MAX_PAUSE_NS: u64 = 86_400 * NS_PER_S;
    let pause_ns = reader.time("thinktime", NS_PER_US)?.unwrap_or(0);
    if pause_ns == 0 {
        return Ok((0, 0, parallelism));
    }
    if requests_per_s.is_some() {
        return not_supported(reader, "thinktime", "`thinktime` excludes a rate", "remove one of the two");
    }

    let phase_ns = reader.time("thinktime_iotime", NS_PER_S)?.unwrap_or(0);
    for (name, time_ns) in [("thinktime", pause_ns), ("thinktime_iotime", phase_ns)] {
        if time_ns > MAX_PAUSE_NS {
            let error = reader.error(name, Code::OutOfRange, format!("`{name}` is longer than a day"));
            return Err(error.with_help("lower it"));
        }
    }

    let blocks = reader.int("thinktime_blocks", 1..=u64::MAX)?;
    if blocks.is_some_and(|blocks| blocks > 1 || phase_ns > 0) {
        let message = "pauses after a number of blocks are not supported";
        return not_supported(reader, "thinktime_blocks", message, "write `thinktime_iotime`, the time between pauses");
    }

    if phase_ns == 0 && parallelism > 1 {
        let message = "with `thinktime` one request is in flight, whatever `iodepth` says, as in fio";
        reader.note("thinktime", message, "write `thinktime_iotime` for phases with more in flight");
        return Ok((pause_ns, 0, 1));
    }
    Ok((pause_ns, phase_ns, parallelism))
}

/// Returns the writes between flushes, whether a flush covers data only, and whether writes are synchronous.
fn flushes(reader: &mut Reader<'_>, kind: JobKind) -> Result<(u32, bool, bool), ConfigError> {
    let count = |name| reader.int(name, 0..=u64::from(u32::MAX)).map(|count| count.unwrap_or(0));
    let (all, data) = (count("fsync")?, count("fdatasync")?);
    if all > 0 && data > 0 {
        let error = reader.error("fdatasync", Code::Ignored, "`fsync` and `fdatasync` exclude each other");
        return Err(error.with_help("remove one of the two"));
    }

    let dsync = match reader.text("sync")?.unwrap_or("none") {
        "none" | "0" => false,
        "dsync" => true,
        "sync" | "1" => {
            let message = "`sync` writes with O_DSYNC: data and what is needed to read it";
            reader.note("sync", message, "write `sync=dsync`");
            true
        }
        other => {
            let error = reader.error("sync", Code::InvalidValue, format!("{} is not a way to sync", quoted(other)));
            return Err(error.with_help("write none, sync or dsync"));
        }
    };

    let writes = kind.is_write() && kind != JobKind::Discard;
    let every = if writes { u32::try_from(all.max(data)).unwrap_or(u32::MAX) } else { 0 };
    Ok((every, every > 0 && data > 0, dsync && writes))
}

/// Returns the limit of a [`Job`]. fio ends with request `number_ios`, a job with the first request beyond its limit.
fn limit_requests(reader: &Reader<'_>) -> Result<Option<u32>, ConfigError> {
    let count = reader.int("number_ios", 0..=u64::from(u32::MAX))?.unwrap_or(0);
    let loops = loops(reader)?;
    Ok(count.checked_mul(loops).and_then(|count| u32::try_from(count.checked_sub(1)?).ok()))
}

fn loops(reader: &Reader<'_>) -> Result<u64, ConfigError> {
    Ok(reader.int("loops", 1..=u64::from(u32::MAX))?.unwrap_or(1))
}

/// Returns the bytes of the region (`None`: all of it) and the bytes that the clone asks for (`None`: no limit).
fn sizes_of_data(
    reader: &Reader<'_>,
    time_based: bool,
    common: &Common,
    request_bytes: u64,
) -> Result<(Option<u64>, Option<u64>), ConfigError> {
    let size = |name| match reader.text(name)? {
        // The whole region.
        None | Some("100%") => Ok(None),
        Some(text) => Ok(Some(reader.int_of(name, text, 0..=MAX_SIZE_BYTES)?).filter(|bytes| *bytes > 0)),
    };
    let (size_bytes, io_bytes) = (size("size")?, size("io_size")?);

    if let Some(bytes) = size_bytes.filter(|bytes| *bytes < request_bytes) {
        let error = reader.error("size", Code::OutOfRange, format!("{bytes} bytes are less than one block"));
        return Err(error.with_help("raise `size`, or lower `bs`"));
    }

    if time_based {
        if common.duration_ns.is_none() {
            let error = reader.error("time_based", Code::MissingKey, "`time_based` needs a `runtime`");
            return Err(error.with_help("add `runtime=30s`, for example"));
        }
        return Ok((size_bytes, None));
    }

    let limit_bytes = io_bytes.or(size_bytes).map(|bytes| bytes.saturating_mul(loops(reader).unwrap_or(1)));
    let is_endless = limit_bytes.is_none() && common.duration_ns.is_none() && limit_requests(reader)?.is_none();
    if is_endless {
        let error = reader.error("size", Code::MissingKey, "nothing says when the job ends");
        return Err(error.with_help("add `size`, or `runtime` with `time_based`"));
    }
    Ok((size_bytes, limit_bytes))
}

/// Reads the begin of a region in bytes, or the distance between the regions of two clones.
pub(super) fn offset(reader: &Reader<'_>, name: &str) -> Result<u64, ConfigError> {
    let bytes = reader.int(name, 0..=MAX_SIZE_BYTES)?.unwrap_or(0);
    if bytes.is_multiple_of(512) {
        return Ok(bytes);
    }
    let error = reader.error(name, Code::OutOfRange, format!("{bytes} bytes is not a multiple of 512"));
    Err(error.with_help("direct I/O works in whole sectors: write a multiple of 512"))
}

fn compressible_pct(reader: &Reader<'_>) -> Result<u8, ConfigError> {
    if reader.flag("zero_buffers")? {
        return Ok(100);
    }
    let pct = reader.int("buffer_compress_percentage", 0..=100)?.unwrap_or(0);
    Ok(u8::try_from(pct).unwrap_or(100))
}

fn verify(reader: &mut Reader<'_>, kind: JobKind) -> Result<bool, ConfigError> {
    let Some(method) = reader.text("verify")? else { return Ok(false) };
    let methods = VERIFY_METHODS.split(' ');
    if methods.clone().all(|known| known != method) {
        let error = reader.error("verify", Code::InvalidValue, format!("{} is not a checksum of fio", quoted(method)));
        let help = did_you_mean(method, methods);
        let any = || "write crc32c, for example: all of them mean the same here".to_owned();
        return Err(error.with_help(help.unwrap_or_else(any)));
    }

    if matches!(method, "null" | "0") {
        reader.note("verify", "this checks nothing, as in fio", "write `verify=crc32c` to check blocks");
        return Ok(false);
    }

    if !kind.is_write() {
        let message = "a job that only reads has written nothing that it could check";
        let help = "write in the same job: `rw=randrw` with `rwmixread=70`, for example; or set `verify` in the job that \
                    writes, which reads its blocks again after the run";
        return not_supported(reader, "verify", message, help);
    }

    reader.note(
        "verify",
        format!("blocks are checked with this program's own stamps, not with {method}"),
        "nothing to do",
    );
    Ok(true)
}
