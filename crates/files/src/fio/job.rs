//! Converts the settings of one section to a [`Job`].
//!
//! **Why.** Most of fio's options have a counterpart; some change the meaning of others. Each such pair is decided
//! here, once.
//!
//! **How.** One function for each group of related options: the operation of requests, their lengths, positions and
//! times, and the end of the job.
//!
//! **Limits.** See [`super`], which explains the figures.
//!
//! **Example.** `rw=randrw`, `rwmixread=70`, `bs=4k` make random requests of 4 KiB, 70 in 100 of them reads.

use plimsoll::backend::choose::BackendKind;
use plimsoll_figures::units::quoted;

use super::common::Common;
use super::files::{End, MAX_SIZE_BYTES};
use super::reader::{Reader, not_supported};
use super::values::{self, Direction, NS_PER_MS, NS_PER_S, NS_PER_US, directions};
use super::{STANDARD_SHARES, access, common, files, options};
use crate::error::{Code, ConfigError, Span};
use crate::fields::did_you_mean;
use crate::job_files::Length;
use crate::jobs::{
    Access, Content, Job, JobKind, MAX_PARALLELISM, MAX_REQUEST_BYTES, MAX_REQUESTS_PER_S, PauseDistribution, RateMin,
    Shape, SizeShare,
};

/// Request size if none is given, as in fio.
const DEFAULT_REQUEST_BYTES: u64 = 4096;
const MAX_LENGTHS: u64 = 4096;
/// Longest trim. It moves no data, so it may be longer than other requests.
const MAX_TRIM_BYTES: u64 = u32::MAX as u64;
const VERIFY_METHODS: &str = "md5 crc64 crc32c crc32c-intel crc32 crc16 crc7 xxhash sha512 sha256 sha1 sha3-224 sha3-256 \
                              sha3-384 sha3-512 meta pattern pattern_hdr null 0 1";

/// The backend, and the number of requests in flight.
struct Engine {
    backend: Option<BackendKind>,
    parallelism: u32,
}

/// Reads one job: the settings that all jobs share, and the job as one clone on one shard.
pub(super) fn read(reader: &mut Reader<'_>, name: &str) -> Result<(Common, Job), ConfigError> {
    let engine = engine(reader)?;
    reader.direct = direct(reader, engine.backend)?;
    let (mut kind, mut every) = kind(reader)?;
    let sizes = Sizes::read(reader, kind)?;
    if let Some(zones) = zones(reader, kind, &every, sizes.range())? {
        every = zones;
    }
    let rate = rate(reader, &mut kind, &sizes)?;
    let think = think(reader, engine.parallelism, rate)?;
    let common = common::read(reader, engine.backend)?;
    let runtime_ns = reader.time("runtime", NS_PER_S)?.filter(|time_ns| *time_ns > 0);
    let says_time_based = reader.flag("time_based")?;
    if says_time_based && runtime_ns.is_none() {
        let message = "without a `runtime` it has no effect: the job ends with its size, as in fio";
        reader.note("time_based", message, "add `runtime=30s`, for example");
    }
    let time_based = says_time_based && runtime_ns.is_some();

    let limit_requests = limit_requests(reader)?;
    let is_limited = runtime_ns.is_some() || limit_requests.is_some();
    let end = End { time_based, is_limited, loops: loops(reader)? };
    let (shortest, longest) = sizes.range();
    let files = files::read(reader, name, (shortest, longest), &end)?;
    if every.run_length > 1 && !kind.is_random() && files.files() > 1 {
        return not_supported(reader, "zonesize", "zones are of one file", "write one job for each file");
    }
    let verify = verify(reader, kind)?;
    // Each step leads from the end of a block to the begin of another.
    let is_whole = every.step_bytes == 0
        || shortest == longest && u64::try_from(every.step_bytes).is_ok_and(|step| step.is_multiple_of(longest));
    if verify && (files.files() > 1 || !is_whole || sizes.align_bytes.is_some()) {
        let message = "only whole blocks of one file, one after the other, with whole blocks between them, or drawn, \
                       are verified";
        let help = "remove `verify`, or such a step behind `rw`, `blockalign` and all files but one";
        return not_supported(reader, "verify", message, help);
    }
    let (flush_every, flush_data_only, dsync) = flushes(reader, kind)?;
    let data_size_bytes = match files.size {
        Some(Length::Bytes(bytes)) => Some(bytes),
        _ => None,
    };

    let access = match access::read(reader, kind)? {
        // As in fio: positions in units of their own use no map.
        Access::Once if sizes.align_bytes.is_some() => Access::Uniform,
        Access::Once if files.files() > 1 || every.run_length > 1 => {
            let message = "random positions may come more than once before all have come";
            let help = "add `norandommap`: a map is kept of the positions of one file, if each is drawn";
            reader.note("rw", message, help);
            Access::Uniform
        }
        access => access,
    };

    let shape = Shape {
        limit_requests,
        think_time_ns: think.pause_ns,
        think_after_ns: think.phase_ns,
        think_blocks: think.blocks,
        access,
        content: Content { compressible_pct: compressible_pct(reader)? },
        verify,
        read_back: reader.flag_or("do_verify", true)?,
        flush_every,
        flush_data_only,
        requests_per_s_per_shard: rate,
        // Values that depend on the length of a file are known when the run begins.
        limit_bytes: match (files.work, data_size_bytes) {
            (Some(Length::Percent(_)), _) | (None, None) => None,
            (Some(Length::Bytes(bytes)), _) | (None, Some(bytes)) => files.limit_bytes(bytes),
        },
        runtime_ns,
        rate_min: rate_min(reader, kind)?,
        start_delay_ns: reader.time("startdelay", NS_PER_S)?.unwrap_or(0),
        pause_distribution: pause_distribution(reader)?,
        align_bytes: sizes.align_bytes,
        step_bytes: every.step_bytes,
        run_length: every.run_length,
        random_pct: random_pct(reader, kind)?,
        ..Shape::closed_loop(kind, u32::try_from(longest).unwrap_or(u32::MAX), think.parallelism)
    };
    let request_span = sizes.span.clone();
    let (reads, writes) = sizes.into_shares(kind);
    let shape = Shape { sizes: reads, write_sizes: writes, ..shape };
    let direct = reader.direct;
    let job = Job {
        data_size_bytes,
        dsync,
        direct,
        request_span,
        files: Some(files),
        ..Job::new(name, shape, STANDARD_SHARES)
    };
    Ok((common, job))
}

/// Returns whether the job does direct I/O: the later one of `direct` and `buffered` counts.
fn direct(reader: &mut Reader<'_>, backend: Option<BackendKind>) -> Result<bool, ConfigError> {
    match (reader.get("direct"), reader.get("buffered")) {
        (None, None) => {
            if backend != Some(BackendKind::Null) {
                let message = "the job does not say `direct=1`, so its requests go through the page cache, as in fio";
                reader.note("direct", message, "add `direct=1` to measure the disk");
            }
            Ok(false)
        }
        _ if reader.is_later("buffered", "direct") => Ok(!reader.flag("buffered")?),
        _ => reader.flag("direct"),
    }
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
            let message = format!("there is no engine {} here", quoted(other));
            let error = reader.error("ioengine", Code::NotSupported, message);
            return Err(error.with_help(options::engine_help(other)));
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

/// Sequential runs of requests: the number after the colon of `rw`, or strided zones.
struct Every {
    /// Bytes between sequential runs of requests.
    step_bytes: i64,
    /// Requests before the next position is drawn, or the next step is made.
    run_length: u32,
}

fn kind(reader: &Reader<'_>) -> Result<(JobKind, Every), ConfigError> {
    const KINDS: [&str; 9] =
        ["read", "write", "trim", "randread", "randwrite", "randtrim", "rw", "readwrite", "randrw"];
    const TRIMS: &str = "write one job with `rw=trim` or `rw=randtrim`, and one that writes";

    let text = reader.text("rw")?.unwrap_or("read");
    let (mode, number) = text.split_once(':').unwrap_or((text, ""));

    let kind = match mode {
        "read" => JobKind::SeqRead,
        "write" => JobKind::Overwrite,
        "randread" => JobKind::RandRead,
        "randwrite" => JobKind::RandWrite,
        "trim" => JobKind::Discard { is_random: false },
        "rw" | "readwrite" => JobKind::SeqMixed { read_pct: read_pct(reader)? },
        "randrw" => JobKind::RandMixed { read_pct: read_pct(reader)? },
        "randtrim" => JobKind::Discard { is_random: true },
        "trimwrite" | "randtrimwrite" => {
            return not_supported(
                reader,
                "rw",
                "jobs that write each range after they trimmed it are not supported",
                TRIMS,
            );
        }
        other => {
            let error = reader.error("rw", Code::InvalidValue, format!("{} is not a mode of fio", quoted(other)));
            let help = did_you_mean(other, KINDS.into_iter());
            let all = || "write read, write, trim, randread, randwrite, randtrim, rw or randrw".to_owned();
            return Err(error.with_help(help.unwrap_or_else(all)));
        }
    };

    Ok((kind, every(reader, kind, number)?))
}

fn every(reader: &Reader<'_>, kind: JobKind, number: &str) -> Result<Every, ConfigError> {
    let (digits, sign) = number.strip_prefix('-').map_or((number, 1), |digits| (digits, -1));
    if digits.is_empty() {
        return Ok(Every { step_bytes: 0, run_length: 1 });
    }
    if kind.is_random() {
        let requests = reader.int_of("rw", number, 1..=u64::from(u32::MAX))?;
        return Ok(Every { step_bytes: 0, run_length: u32::try_from(requests).unwrap_or(u32::MAX) });
    }
    let bytes = reader.int_of("rw", digits, 0..=MAX_SIZE_BYTES)?;
    let bytes = reader.whole_sectors("rw", bytes, " behind the `:`")?;
    Ok(Every { step_bytes: i64::try_from(bytes).unwrap_or(i64::MAX) * sign, run_length: 1 })
}

/// Returns the step and the run of a job that skips parts of its file: `zonemode=strided`.
fn zones(
    reader: &Reader<'_>,
    kind: JobKind,
    every: &Every,
    (shortest, longest): (u64, u64),
) -> Result<Option<Every>, ConfigError> {
    const WHOLE: &str = "write whole requests of one length: zonesize=256m, zoneskip=2g with bs=64k, for example";

    let mode = reader.text("zonemode")?;
    let zone_bytes = reader.int("zonesize", 0..=MAX_SIZE_BYTES)?.unwrap_or(0);
    // As in fio: zones without a mode are strided.
    match mode {
        Some("strided") => {}
        None if zone_bytes > 0 => {}
        None | Some("none") => return Ok(None),
        Some(_) => return not_supported(reader, "zonemode", "zoned devices are not supported", options::ZONES),
    }

    if zone_bytes == 0 {
        return Err(reader.error("zonemode", Code::MissingKey, "strided zones need a `zonesize`").with_help(WHOLE));
    }

    let skip_bytes = reader.int("zoneskip", 0..=MAX_SIZE_BYTES)?.unwrap_or(0);
    let is_range = reader.int("zonerange", 0..=MAX_SIZE_BYTES)?.is_none_or(|bytes| bytes == zone_bytes);
    if kind.is_random() || every.step_bytes != 0 || !is_range {
        let message = "zones are read or written from begin to end, one after the other";
        return not_supported(reader, "zonesize", message, "write rw=read, write or rw, and no `zonerange`");
    }

    let requests = u32::try_from(zone_bytes / longest.max(1)).unwrap_or(u32::MAX);
    if shortest != longest || !zone_bytes.is_multiple_of(longest) || !skip_bytes.is_multiple_of(512) {
        let message = format!("{zone_bytes} bytes are not whole requests of one length");
        return Err(reader.error("zonesize", Code::OutOfRange, message).with_help(WHOLE));
    }

    Ok(Some(Every { step_bytes: i64::try_from(skip_bytes).unwrap_or(i64::MAX), run_length: requests }))
}

/// Returns the requests in a hundred at random positions, of reads and of writes.
fn random_pct(reader: &Reader<'_>, kind: JobKind) -> Result<[u8; 2], ConfigError> {
    let name = "percentage_random";
    let mut shares = [100, 100];
    let second = if kind.is_discard() { Direction::Trim } else { Direction::Write };
    for (share, direction) in shares.iter_mut().zip([Direction::Read, second]) {
        if let Some(text) = part(reader, name, direction)? {
            let percent = reader.int_of(name, text, 0..=100)?;
            *share = u8::try_from(percent).unwrap_or(100);
        }
    }
    // As in fio: other jobs ignore the option.
    Ok(if kind.is_random() { shares } else { [100, 100] })
}

/// Returns the reads in a hundred requests; the later one of `rwmixread` and `rwmixwrite` counts.
fn read_pct(reader: &Reader<'_>) -> Result<u8, ConfigError> {
    let pct = if reader.is_later("rwmixwrite", "rwmixread") {
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

/// The lengths of a job's requests.
struct Sizes {
    /// Lengths for each direction of the job, in fio's order; never empty.
    shares: Vec<Vec<SizeShare>>,
    /// Unit of random positions, if it is not the length of each request.
    align_bytes: Option<u32>,
    span: Span,
}

impl Sizes {
    fn read(reader: &mut Reader<'_>, kind: JobKind) -> Result<Sizes, ConfigError> {
        let (mut shares, mut decides) = (Vec::new(), "bs");
        for direction in directions(kind) {
            let of = |name| part(reader, name, *direction);
            let (lengths, name) = match (of("bssplit")?, of("bsrange")?, of("bs")?) {
                (Some(split), _, _) => (size_shares(reader, split, *direction)?, "bssplit"),
                (None, Some(range), _) => (size_range(reader, range, *direction)?, "bsrange"),
                (None, None, bytes) => {
                    let bytes = bytes.map(|text| request_length(reader, "bs", text, *direction)).transpose()?;
                    (vec![share(bytes.unwrap_or(DEFAULT_REQUEST_BYTES), 100.0)], "bs")
                }
            };
            shares.push(lengths);
            decides = name;
        }

        let mut sizes = Sizes { shares, align_bytes: None, span: reader.span(decides) };
        if let Some(text) = one_part(reader, "blockalign", kind)? {
            let align_bytes = reader.int_of("blockalign", text, 1..=MAX_REQUEST_BYTES)?;
            reader.whole_sectors("blockalign", align_bytes, "")?;
            let is_length = sizes.range() == (align_bytes, align_bytes);
            sizes.align_bytes = u32::try_from(align_bytes).ok().filter(|_| !is_length);
        }
        Ok(sizes)
    }

    /// Returns the shortest and the longest request in bytes.
    fn range(&self) -> (u64, u64) {
        let lengths = || self.shares.iter().flatten().map(|share| u64::from(share.bytes));
        (lengths().min().unwrap_or(DEFAULT_REQUEST_BYTES), lengths().max().unwrap_or(DEFAULT_REQUEST_BYTES))
    }

    /// Returns the mean length in the job's direction number `at`.
    fn mean_bytes(&self, at: usize) -> f64 {
        let shares = self.shares.get(at).or(self.shares.first()).into_iter().flatten();
        shares.map(|share| f64::from(share.bytes) * share.percent / 100.0).sum()
    }

    fn has_several(&self) -> bool {
        let (shortest, longest) = self.range();
        shortest != longest
    }

    /// Returns the lengths of reads and of writes in the form of a [`Shape`].
    fn into_shares(self, kind: JobKind) -> (Vec<SizeShare>, Vec<SizeShare>) {
        if !self.has_several() {
            return (Vec::new(), Vec::new());
        }
        let is_mixed = matches!(kind, JobKind::SeqMixed { .. } | JobKind::RandMixed { .. });
        let mut shares = self.shares.into_iter();
        let (first, second) = (shares.next().unwrap_or_default(), shares.next());
        let writes = second.filter(|second| is_mixed && *second != first).unwrap_or_default();
        (first, writes)
    }
}

/// Returns the part of a list that is for `direction`.
fn part<'a>(reader: &Reader<'a>, name: &str, direction: Direction) -> Result<Option<&'a str>, ConfigError> {
    Ok(reader.text(name)?.and_then(|list| values::of_direction(list, direction)))
}

fn share(bytes: u64, percent: f64) -> SizeShare {
    SizeShare { bytes: u32::try_from(bytes).unwrap_or(u32::MAX), percent }
}

fn request_length(reader: &Reader<'_>, name: &str, text: &str, direction: Direction) -> Result<u64, ConfigError> {
    let longest = if direction == Direction::Trim { MAX_TRIM_BYTES } else { MAX_REQUEST_BYTES };
    let bytes = reader.int_of(name, text, 1..=longest)?;
    reader.whole_sectors(name, bytes, ", such as 4k, or `direct=0`")
}

fn size_shares(reader: &mut Reader<'_>, split: &str, direction: Direction) -> Result<Vec<SizeShare>, ConfigError> {
    let name = "bssplit";
    let wrong = |wrong| reader.wrong(name, wrong);
    let pairs = values::pairs(split).map_err(wrong)?;
    let percent = |text| values::float(text, 0.0, 100.0).map_err(wrong);
    let shares = pairs.iter().map(|(_, share)| share.map(percent).transpose()).collect::<Result<Vec<_>, _>>()?;
    let percents = values::fill_percents(&shares).map_err(wrong)?;

    let mut sizes = Vec::new();
    for ((text, _), percent) in pairs.iter().zip(percents) {
        let (length, is_range) = text.split_once('-').map_or((*text, false), |(low, _)| (low.trim(), true));
        if is_range {
            let message = "of a range in `bssplit` only the lower end is sent, as in fio";
            reader.note(name, message, "write each length, or `bsrange`");
        }
        let bytes = request_length(reader, name, length, direction)?;
        if percent > 0.0 {
            sizes.push(share(bytes, percent));
        }
    }
    Ok(sizes)
}

/// Returns the lengths of a range: as in fio all multiples of its lower end, each as often as the others.
fn size_range(reader: &Reader<'_>, range: &str, direction: Direction) -> Result<Vec<SizeShare>, ConfigError> {
    let name = "bsrange";
    let (low, high) = range.split_once(['-', ':']).unwrap_or((range, range));
    let length = |text: &str| request_length(reader, name, text.trim(), direction);
    let (low, high) = (length(low)?, length(high)?);
    if low > high {
        let error = reader.error(name, Code::OutOfRange, format!("the range begins at {low} and ends at {high}"));
        return Err(error.with_help("write the shorter length first, such as 4k-64k"));
    }

    let lengths = high / low;
    if lengths > MAX_LENGTHS {
        let message = format!("the range has {lengths} lengths, more than {MAX_LENGTHS}");
        let error = reader.error(name, Code::TooLarge, message);
        return Err(error.with_help("let it begin at a longer one, or write lengths and their shares as `bssplit`"));
    }
    Ok((1..=lengths).map(|times| share(times * low, 100.0 / lengths as f64)).collect())
}

/// Returns the clone's requests per second, reads and writes together. The rates of a mixed job decide its mix.
fn rate(reader: &mut Reader<'_>, kind: &mut JobKind, sizes: &Sizes) -> Result<Option<f64>, ConfigError> {
    let name = match (reader.text("rate")?, reader.text("rate_iops")?) {
        (Some(_), Some(_)) => {
            let error = reader.error("rate_iops", Code::Ignored, "`rate` and `rate_iops` exclude each other");
            return Err(error.with_help("remove one of the two"));
        }
        (Some(_), None) => "rate",
        (None, Some(_)) => "rate_iops",
        (None, None) => return Ok(None),
    };

    let list = reader.text(name)?.unwrap_or("");
    let mut rates = Vec::new();
    for (at, direction) in directions(*kind).iter().enumerate() {
        let text = values::of_direction(list, *direction);
        let figure = text.map(|text| reader.int_of(name, text, 0..=u64::MAX)).transpose()?.unwrap_or(0);
        let unit = if name == "rate" { sizes.mean_bytes(at) } else { 1.0 };
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

    if name == "rate_iops" && sizes.has_several() {
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

/// Returns the rate below which the job ends with an error.
fn rate_min(reader: &Reader<'_>, kind: JobKind) -> Result<Option<RateMin>, ConfigError> {
    let least = |name| {
        let text = one_part(reader, name, kind)?;
        text.map(|text| reader.int_of(name, text, 0..=u64::MAX)).transpose().map(|figure| figure.unwrap_or(0))
    };
    let (bytes, requests) = (least("rate_min")?, least("rate_iops_min")?);
    if bytes == 0 && requests == 0 {
        return Ok(None);
    }
    if directions(kind).len() > 1 {
        let name = if bytes > 0 { "rate_min" } else { "rate_iops_min" };
        let help = "write one job for the reads and one for the writes";
        return not_supported(reader, name, "a least rate of a job that mixes is not supported", help);
    }
    let cycle_ms = reader.int("rate_cycle", 1..=86_400_000)?.unwrap_or(1000);
    let (bytes_per_s, requests_per_s) = (bytes as f64, requests as f64);
    Ok(Some(RateMin { bytes_per_s, requests_per_s, cycle_ns: cycle_ms * NS_PER_MS }))
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

/// The pauses of a job, and the requests in flight beside them.
struct Think {
    pause_ns: u64,
    /// Length of the active phase before a pause; 0: a number of requests is set instead.
    phase_ns: u64,
    /// Requests before a pause of the whole job; 0: each request slot pauses by itself.
    blocks: u32,
    parallelism: u32,
}

/// Reads the pauses. As in fio, a pause begins when all requests have completed.
fn think(reader: &mut Reader<'_>, parallelism: u32, requests_per_s: Option<f64>) -> Result<Think, ConfigError> {
    const MAX_PAUSE_NS: u64 = 86_400 * NS_PER_S;
    let pause_ns = reader.time("thinktime", NS_PER_US)?.unwrap_or(0);
    let think = Think { pause_ns, phase_ns: 0, blocks: 0, parallelism };
    if pause_ns == 0 {
        return Ok(think);
    }
    let phase_ns = reader.time("thinktime_iotime", NS_PER_S)?.unwrap_or(0);
    for (name, time_ns) in [("thinktime", pause_ns), ("thinktime_iotime", phase_ns)] {
        if time_ns > MAX_PAUSE_NS {
            let error = reader.error(name, Code::OutOfRange, format!("`{name}` is longer than a day"));
            return Err(error.with_help("lower it"));
        }
    }

    let blocks = reader.int("thinktime_blocks", 1..=u64::from(u32::MAX))?;
    if blocks.is_some() && phase_ns > 0 {
        let message = "pauses after a number of blocks or a time, whichever comes first, are not supported";
        return not_supported(reader, "thinktime_blocks", message, "remove it, or `thinktime_iotime`");
    }
    if requests_per_s.is_some() && (phase_ns > 0 || (parallelism > 1 && blocks.is_some_and(|blocks| blocks > 1))) {
        let message = "beside a rate only pauses after a number of requests, with one request in flight, are supported";
        return not_supported(reader, "thinktime", message, "remove the rate, or `thinktime_iotime` and `iodepth`");
    }
    if let Some(blocks) = blocks.filter(|blocks| *blocks > 1) {
        return Ok(Think { blocks: u32::try_from(blocks).unwrap_or(u32::MAX), ..think });
    }

    if phase_ns == 0 && parallelism > 1 {
        let message = "with `thinktime` one request is in flight, whatever `iodepth` says, as in fio";
        reader.note("thinktime", message, "write `thinktime_blocks` or `thinktime_iotime` to have more in flight");
    }
    let parallelism = if phase_ns == 0 { 1 } else { parallelism };
    // With a rate the schedule continues meanwhile, so the whole job pauses.
    let blocks = u32::from(requests_per_s.is_some());
    Ok(Think { phase_ns, blocks, parallelism, ..think })
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

    let writes = kind.is_write() && !kind.is_discard();
    let every = if writes { u32::try_from(all.max(data)).unwrap_or(u32::MAX) } else { 0 };
    Ok((every, every > 0 && data > 0, dsync && writes))
}

/// Returns the limit of a [`Job`]. fio ends with request `number_ios`, a [`Job`] with the first request beyond its
/// limit.
fn limit_requests(reader: &Reader<'_>) -> Result<Option<u32>, ConfigError> {
    let count = reader.int("number_ios", 0..=u64::from(u32::MAX))?.unwrap_or(0);
    let loops = loops(reader)?;
    Ok(count.checked_mul(loops).and_then(|count| u32::try_from(count.checked_sub(1)?).ok()))
}

fn loops(reader: &Reader<'_>) -> Result<u64, ConfigError> {
    Ok(reader.int("loops", 1..=u64::from(u32::MAX))?.unwrap_or(1))
}

/// Returns how compressible blocks are. A pattern stands in the part of a block that is not random, else all of it.
fn compressible_pct(reader: &mut Reader<'_>) -> Result<u8, ConfigError> {
    let has_pattern = reader.text("buffer_pattern")?.is_some();
    if has_pattern {
        let message = "blocks compress as those with this pattern do, and hold other bytes";
        reader.note("buffer_pattern", message, "nothing to do");
    }
    if reader.flag("zero_buffers")? {
        return Ok(100);
    }
    let pct = reader.int("buffer_compress_percentage", 0..=100)?.unwrap_or(if has_pattern { 100 } else { 0 });
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
