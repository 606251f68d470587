//! Job files: the loads to run, their shards and classes. The format is io_tester's.
//!
//! **Why.** Users of io_tester have job files, and their results are comparable only if the same file means the same
//! load. The reader refuses unsupported features by name, so that no job runs as another load than its file states.
//!
//! **How.** A list of maps, one per job. `job_reader` checks everything that does not depend on the number of shards,
//! and resolves classes against the groups file; [`JobFile::validate`] checks the rest. Cases that io_tester leaves to
//! chance or ignores become an error or a warning: no `parallelism` (the job would do nothing), `shares` beside
//! `class`.
//!
//! Beside io_tester's keys there are our own, in fio's words where fio has them. A file without them means the same as
//! in io_tester.
//!
//! **Limits.** All sleep types mean the same here: shards always wake precisely. One misspelling of `parallelism` from
//! a file of io_tester is accepted with a warning, only in `cpu` jobs; every other unknown key is an error.
//!
//! **Example.** Ten requests in flight on each shard, each 256 KiB long, in a class of its own with 100 shares:
//!
//! ```
//! use plimsoll_files::job_reader;
//! use plimsoll_files::sched_groups::SchedGroups;
//! let text = "
//! - name: big_reads
//!   type: seqread
//!   shards: all
//!   shard_info: {parallelism: 10, reqsize: 256kB, shares: 100}
//! ";
//! let file = job_reader::parse("jobs.yaml", text, &SchedGroups::default())?;
//! file.validate(4)?;
//! assert_eq!(file.jobs[0].request_bytes, 256 << 10);
//! # Ok::<(), plimsoll_files::ConfigError>(())
//! ```

use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};

use plimsoll_figures::units::format_bytes_binary;

use super::error::{Code, ConfigError, Diagnostic, Source, Span};
use super::job_files::FileSet;

/// Most requests of one job in flight on one shard.
pub const MAX_PARALLELISM: u32 = 65_536;
/// Most requests issued together.
pub const MAX_BATCH: u32 = 65_536;
pub const MAX_REQUESTS_PER_S: u32 = 1_000_000_000;
pub const MAX_REQUEST_BYTES: u64 = 1 << 30;
/// Most segments of a vectored request: Linux's `IOV_MAX`.
pub const MAX_IOV_COUNT: u32 = 1024;
pub(crate) const MAX_SHARD_ID: u32 = 65_535;
/// Most files of an `unlink` job on one shard.
pub const MAX_FILES: u32 = 1_000_000;
pub(crate) const MAX_STAGE: u32 = 65_535;

/// Bytes per shard without `data_size`, as in io_tester: 1 GiB.
const DEFAULT_BYTES_PER_SHARD: u64 = 1 << 30;
/// Unit to which a shard's part of `data_size` is rounded up, as in io_tester: 1 MiB.
const SHARD_DATA_ALIGNMENT_BYTES: u64 = 1 << 20;

#[derive(Clone, Debug, PartialEq)]
pub struct JobFile {
    /// The jobs in the order of the file, at least one, or none if there is no file. See [`Job::stage`] for their
    /// order.
    pub jobs: Vec<Job>,
    /// Remarks of the reader, which do not refuse the file.
    pub warnings: Vec<Diagnostic>,
    /// The text, for the errors of [`JobFile::validate`].
    pub(super) source: Source,
}

/// A file without jobs, for loads that are not described by jobs.
impl Default for JobFile {
    fn default() -> JobFile {
        JobFile { jobs: Vec::new(), warnings: Vec::new(), source: Source::new("", "") }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// The name: unique in the file, not empty, neither `shard` nor `statistics` (keys of results as YAML).
    pub name: String,
    /// The requests and their times. A job dereferences to it.
    pub shape: Shape,
    pub shards: ShardSet,
    /// Bytes of all shards together; `None` is 1 GiB per shard, or 0 for `append`. See [`Job::bytes_per_shard`].
    pub data_size_bytes: Option<u64>,
    /// First byte of the job's region in a named file or device; 0 in files created for the job.
    pub offset_bytes: u64,
    /// The class whose share of the disk the job uses.
    pub class: JobClass,
    /// Most bytes per second of the job's class, on all shards together.
    pub bandwidth_limit_bytes_per_s: Option<u64>,
    /// The stage, from 0. Jobs of one stage run together; stages follow one another.
    pub stage: u32,
    /// Whether space is reserved (`fallocate`) before the run; only for an appending job.
    pub fallocate: bool,
    /// Whether files are opened with `O_DSYNC`.
    pub dsync: bool,
    /// Whether files are opened for direct I/O; otherwise requests go through the page cache and may have any length.
    pub direct: bool,
    /// The job's files by fio's rules, which then count instead of `data_size_bytes` and `offset_bytes`; `None`: a file
    /// of its own on each shard, or the file or device of the run.
    pub files: Option<FileSet>,
    /// Storage of the job; `None`: that of the run.
    pub storage: Option<JobStorage>,
    /// The extent size that the file asks for, in bytes. It has no effect, and the reader warns: files are written in
    /// full before the run.
    pub extent_size_hint_bytes: Option<u64>,
    /// Position of each shard of a list in the text.
    pub(super) shards_spans: Vec<Span>,
    /// Position of the request size in the text.
    pub(super) request_span: Span,
}

/// A storage of a job's own, which may be on a disk of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobStorage {
    /// A directory, a file or a block device.
    pub path: PathBuf,
    /// A preset or a disk file that describes the disk below `path`; `None`: the flags of the run apply.
    pub disk: Option<String>,
}

/// The requests of a job and their times, the same for a file, the load generator and a search.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    pub kind: JobKind,
    /// Fibers per shard, 1 to [`MAX_PARALLELISM`]. Each has one request, or batch, in flight. 0 only in a `cpu` job
    /// with io_tester's misspelling, which does nothing.
    pub parallelism: u32,
    /// Requests (or batches) per second of *each fiber*, 1 to [`MAX_REQUESTS_PER_S`]; `None` is a closed loop: the next
    /// request follows the completion of the last.
    pub requests_per_s_per_fiber: Option<f64>,
    /// Requests (or batches) per second of all fibers of a shard together, above 0; any free fiber sends the next one.
    /// Excludes `requests_per_s_per_fiber`.
    pub requests_per_s_per_shard: Option<f64>,
    /// Distribution of the times between requests; only with a request rate.
    pub pause_distribution: PauseDistribution,
    /// Requests issued together at each tick, 1 to [`MAX_BATCH`]; 1 without a request rate.
    pub batch: u32,
    /// The job ends once *more* requests than this were made on a shard, as in io_tester; `None` is no limit.
    pub limit_requests: Option<u32>,
    /// The job ends once this many bytes were requested on a shard; `None` is no limit.
    pub limit_bytes: Option<u64>,
    /// Time after the begin of the job and the warm-up at which the job ends, in nanoseconds; `None`: the end of the
    /// run.
    pub runtime_ns: Option<u64>,
    /// The rate below which the job ends with an error.
    pub rate_min: Option<RateMin>,
    /// The length of a request: with direct I/O a multiple of 512, at most [`MAX_REQUEST_BYTES`].
    pub request_bytes: u32,
    /// Lengths of requests and their frequencies. If empty, all requests have `request_bytes`, which is otherwise the
    /// longest.
    pub sizes: Vec<SizeShare>,
    /// Lengths of the writes of a mixed job; if empty, those of the reads. Only beside `sizes`.
    pub write_sizes: Vec<SizeShare>,
    /// Unit of random positions in bytes; `None` is each request's own length.
    pub align_bytes: Option<u32>,
    /// Bytes from the end of a sequential run of requests to the begin of the next. If negative and longer than a
    /// request, the job moves backwards.
    pub step_bytes: i64,
    /// Requests that follow one another before the next position is drawn or the next step is made, at least 1.
    pub run_length: u32,
    /// Requests in a hundred at random positions, of reads and of writes, 0 to 100; the others follow the last request
    /// of their direction. Only of jobs with random positions.
    pub random_pct: [u8; 2],
    pub access: Access,
    pub content: Content,
    /// Whether blocks carry a stamp that is checked at each read, to find torn, stale and misdirected blocks.
    pub verify: bool,
    /// Whether a job that verifies reads back its writes after the run.
    pub read_back: bool,
    /// Writes of a fiber before a flush, for which the fiber waits; 0: never.
    pub flush_every: u32,
    /// Whether that flush is an `fdatasync` instead of an `fsync`.
    pub flush_data_only: bool,
    /// Pause after each request, or between active phases if `think_after_ns` is not 0; at most one day. 0 with a rate.
    pub think_time_ns: u64,
    /// Length of an active phase, at most one day; 0: the job pauses after each request.
    pub think_after_ns: u64,
    /// Requests between two pauses of all fibers of a shard together; 0: each fiber pauses by itself. Excludes
    /// `think_after_ns`.
    pub think_blocks: u32,
    /// Segments of a vectored request, 1 to [`MAX_IOV_COUNT`]; `None` is the plain interface.
    pub iov_count: Option<u32>,
    /// Time from the begin of the run (or of the stage) to the begin of the job.
    pub start_delay_ns: u64,
    /// Time over which the begins of its fibers are evenly spread.
    pub ramp_up_ns: u64,
}

impl Shape {
    /// Returns a shape of a closed loop: each request follows the completion of the one before. Nothing else is set.
    pub fn closed_loop(kind: JobKind, request_bytes: u32, parallelism: u32) -> Shape {
        Shape {
            kind,
            parallelism,
            requests_per_s_per_fiber: None,
            requests_per_s_per_shard: None,
            pause_distribution: PauseDistribution::Uniform,
            batch: 1,
            limit_requests: None,
            limit_bytes: None,
            runtime_ns: None,
            rate_min: None,
            request_bytes,
            sizes: Vec::new(),
            write_sizes: Vec::new(),
            align_bytes: None,
            step_bytes: 0,
            run_length: 1,
            random_pct: [100, 100],
            access: Access::Uniform,
            content: Content::default(),
            verify: false,
            read_back: true,
            flush_every: 0,
            flush_data_only: false,
            think_time_ns: 0,
            think_after_ns: 0,
            think_blocks: 0,
            iov_count: None,
            start_delay_ns: 0,
            ramp_up_ns: 0,
        }
    }

    /// Returns whether requests come at a rate, regardless of completions.
    pub fn has_rate(&self) -> bool {
        self.requests_per_s_per_fiber.is_some() || self.requests_per_s_per_shard.is_some()
    }

    /// Returns how the settings contradict each other; `None` if they do not. Job files are read without
    /// contradictions, but a change of one setting can make one.
    pub fn contradiction(&self) -> Option<String> {
        if self.batch > 1 && !self.has_rate() {
            return Some("`batch` has no effect without `rps` or `rate`".to_owned());
        }
        if self.think_time_ns > 0 && self.think_blocks == 0 && self.has_rate() {
            return Some("`think_time` has no effect beside `rps` or `rate`".to_owned());
        }
        use JobKind::{Cpu, Discard, Flush, Unlink};
        let has_memory = !matches!(self.kind, Flush | Discard { .. } | Unlink { .. } | Cpu { .. });
        let count = self.iov_count.filter(|count| *count > 1 && has_memory)?;
        if !self.sizes.is_empty() {
            return Some("requests of several lengths have one segment each: leave out `iov_count`".to_owned());
        }
        segments_error(self.request_bytes, count).map(|(message, help)| format!("{message}: {help}"))
    }
}

/// Returns why a request cannot be cut into `count` segments, and what to do; `None` if it can. Segments must be
/// aligned for direct I/O.
pub(super) fn segments_error(request_bytes: u32, count: u32) -> Option<(String, String)> {
    let alignment = if request_bytes < 4096 { 512 } else { 4096 };
    let segment_bytes = request_bytes.checked_div(count).unwrap_or(0);
    if request_bytes.is_multiple_of(count) && segment_bytes > 0 && segment_bytes.is_multiple_of(alignment) {
        return None;
    }
    let size = format_bytes_binary(request_bytes.into());
    let message = format!("a request of {size} cannot be cut into {count} segments");
    let help =
        format!("choose a count that divides the request into equal segments, each a multiple of {alignment} bytes");
    Some((message, help))
}

impl Deref for Job {
    type Target = Shape;

    fn deref(&self) -> &Shape {
        &self.shape
    }
}

impl DerefMut for Job {
    fn deref_mut(&mut self) -> &mut Shape {
        &mut self.shape
    }
}

/// The operation of a job's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobKind {
    /// Reads sequentially, from the start again at the end.
    SeqRead,
    /// Writes sequentially over existing data, from the start again at the end.
    Overwrite,
    /// Reads at uniformly distributed positions.
    RandRead,
    /// Writes at uniformly distributed positions of existing data.
    RandWrite,
    /// Writes that extend a file that begins empty.
    Append,
    /// Reads and writes at random positions of existing data.
    RandMixed {
        /// Reads in a hundred requests, 0 to 100.
        read_pct: u8,
    },
    /// Reads and writes sequentially over existing data.
    SeqMixed {
        /// Reads in a hundred requests, 0 to 100.
        read_pct: u8,
    },
    Flush,
    /// Discards ranges of existing data.
    Discard {
        /// Whether ranges are at random positions, not one after another.
        is_random: bool,
    },
    /// Removes files that were created before the run, through the helper thread of the shard.
    Unlink {
        /// Files on each shard, 1 to [`MAX_FILES`]; each has an equal part of the shard's data, rounded up to 1 MiB.
        files: u32,
    },
    /// Sends no requests: slices of CPU work on the shard's thread.
    Cpu {
        /// Length of a slice in nanoseconds, at least 1.
        execution_ns: u64,
    },
}

impl JobKind {
    /// Returns the `type` in a job file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SeqRead => "seqread",
            Self::Overwrite => "overwrite",
            Self::RandRead => "randread",
            Self::RandWrite => "randwrite",
            Self::Append => "append",
            Self::RandMixed { .. } => "randrw",
            Self::SeqMixed { .. } => "seqrw",
            Self::Flush => "flush",
            Self::Discard { .. } => "discard",
            Self::Unlink { .. } => "unlink",
            Self::Cpu { .. } => "cpu",
        }
    }

    pub fn is_write(self) -> bool {
        match self {
            Self::Overwrite | Self::RandWrite | Self::Append | Self::Discard { .. } => true,
            Self::RandMixed { read_pct } | Self::SeqMixed { read_pct } => read_pct < 100,
            Self::SeqRead | Self::RandRead | Self::Flush | Self::Unlink { .. } | Self::Cpu { .. } => false,
        }
    }

    /// Returns whether requests have random positions.
    pub fn is_random(self) -> bool {
        matches!(self, Self::RandRead | Self::RandWrite | Self::RandMixed { .. } | Self::Discard { is_random: true })
    }

    pub fn is_discard(self) -> bool {
        matches!(self, Self::Discard { .. })
    }

    /// Returns whether requests go to a file that was filled before the run.
    pub fn has_data(self) -> bool {
        !matches!(self, Self::Append | Self::Unlink { .. } | Self::Cpu { .. })
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateMin {
    /// Fewest bytes a second; 0: any.
    pub bytes_per_s: f64,
    /// Fewest requests a second; 0: any.
    pub requests_per_s: f64,
    /// Time over which each rate is averaged in nanoseconds, above 0.
    pub cycle_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizeShare {
    /// Length in bytes: with direct I/O a multiple of 512, up to [`MAX_REQUEST_BYTES`].
    pub bytes: u32,
    /// Requests in a hundred, above 0; those of a job sum to 100.
    pub percent: f64,
}

/// The positions of random requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Access {
    /// All positions are equally frequent.
    #[default]
    Uniform,
    /// All positions come once, in random order, before any is repeated: fio's map.
    Once,
    /// The n-th most popular position comes 1 / n^theta times as often as the first; popular positions are spread over
    /// the file.
    Zipf {
        /// The exponent, above 0, at most 10; 1 itself is allowed.
        theta: f64,
    },
    /// A part of the requests goes to a part of the data.
    HotSet {
        /// Part of the data, in per cent, above 0 and below 100.
        data_pct: f64,
        /// Part of the requests, in per cent, 0 to 100.
        access_pct: f64,
    },
    /// Pareto: 80 % of the requests go to 20 % of the data with h = 0.2 (fio's definition).
    Pareto {
        /// The parameter, above 0, below 1.
        h: f64,
    },
    /// A bell curve around the middle of the data.
    Normal {
        /// Standard deviation in per cent of the data, above 0, at most 100.
        deviation_pct: f64,
    },
    /// Zones one after the other: (part of the requests, part of the data), both in per cent, each summing to 100.
    Zoned(Vec<(f64, f64)>),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// Part of the bytes that a compressor can save, in per cent, 0 to 100.
    pub compressible_pct: u8,
}

/// The figure that must become steady for a run to end early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SteadyCriterion {
    Iops,
    Bandwidth,
    LatencyMean,
}

impl SteadyCriterion {
    /// Returns the criterion that fio calls `word`, and whether its slope is limited: `bw`, `bw_slope`.
    pub fn named(word: &str) -> Option<(SteadyCriterion, bool)> {
        let (figure, is_slope) = word.strip_suffix("_slope").map_or((word, false), |figure| (figure, true));
        let criterion = match figure {
            "iops" => SteadyCriterion::Iops,
            "bw" => SteadyCriterion::Bandwidth,
            "lat" => SteadyCriterion::LatencyMean,
            _ => return None,
        };
        Some((criterion, is_slope))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShardSet {
    All,
    /// These shards: at least one, each once, in the order of the file.
    List(Vec<u32>),
}

impl ShardSet {
    pub fn contains(&self, shard: u32) -> bool {
        match self {
            Self::All => true,
            Self::List(shards) => shards.contains(&shard),
        }
    }
}

/// The class whose share of the disk a job uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobClass {
    /// A class of its own, with the name of the job (`default`: the class that always exists), with 1 to
    /// [`MAX_SHARES`](super::sched_groups::MAX_SHARES) shares.
    Own { shares: u32 },
    /// The class of this name, from the groups file or of another job.
    Joined(String),
}

/// The distribution of the times between requests, for a job with a request rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PauseDistribution {
    /// All times are equal.
    #[default]
    Uniform,
    /// Exponentially distributed, so that the requests are a Poisson process.
    Poisson,
}

impl JobFile {
    /// Checks the properties that depend on the number of shards.
    ///
    /// # Errors
    /// With the line: a shard id that is not below `shard_count`; a request that is larger than the data of a shard.
    pub fn validate(&self, shard_count: u32) -> Result<(), ConfigError> {
        for job in &self.jobs {
            self.validate_shards(job, shard_count)?;
            if job.files.is_some() {
                // The lengths of these files are known when the run begins.
                continue;
            }
            let bytes = job.bytes_per_shard(shard_count);
            let request_bytes = u64::from(job.request_bytes);
            if job.kind.has_data() && request_bytes > bytes {
                let (request, data) = (format_bytes_binary(request_bytes), format_bytes_binary(bytes));
                let message = format!("a request of {request} does not fit into the {data} that each shard has");
                let error = self.source.error_at(&job.request_span, Code::OutOfRange, message);
                return Err(error.with_help("raise `data_size` (it is divided over the shards), or lower `reqsize`"));
            }
        }
        Ok(())
    }

    /// Moves the files that fio's rules name to `storage`: a file or device that all jobs then share, or a directory,
    /// in which files of the same name stay one file.
    pub fn move_files(&mut self, storage: &Path, is_directory: bool) {
        let mut moved: Vec<PathBuf> = Vec::new();
        for files in self.jobs.iter_mut().filter_map(|job| job.files.as_mut()) {
            if !is_directory {
                files.named = vec![storage.to_owned()];
                continue;
            }
            files.directory = storage.to_owned();
            for path in &mut files.named {
                let known = moved.iter().position(|other| other == path);
                let number = known.unwrap_or_else(|| {
                    moved.push(path.clone());
                    moved.len() - 1
                });
                *path = storage.join(format!("plimsoll-test-named-{number}"));
            }
        }
    }

    fn validate_shards(&self, job: &Job, shard_count: u32) -> Result<(), ConfigError> {
        let ShardSet::List(shards) = &job.shards else { return Ok(()) };
        for (shard, span) in shards.iter().zip(&job.shards_spans) {
            if *shard >= shard_count {
                let message = format!("there is no shard {shard}: this run has {shard_count}");
                let error = self.source.error_at(span, Code::OutOfRange, message);
                return Err(error.with_help("shards count from 0: lower the id, or run with more shards"));
            }
        }
        Ok(())
    }
}

impl Job {
    /// Returns a job with default settings, in a class of its own on all shards.
    pub(super) fn new(name: &str, shape: Shape, shares: u32) -> Job {
        Job {
            name: name.to_owned(),
            shape,
            shards: ShardSet::All,
            data_size_bytes: None,
            offset_bytes: 0,
            class: JobClass::Own { shares },
            bandwidth_limit_bytes_per_s: None,
            stage: 0,
            fallocate: false,
            dsync: false,
            direct: true,
            files: None,
            storage: None,
            extent_size_hint_bytes: None,
            shards_spans: Vec::new(),
            request_span: 0..0,
        }
    }

    /// Returns the bytes of data that the job has on each of `shard_count` shards (0 counts as 1): `data_size` divided
    /// by the number of shards of the run and rounded up to 1 MiB; by default 1 GiB, and 0 for `append`.
    pub fn bytes_per_shard(&self, shard_count: u32) -> u64 {
        match self.data_size_bytes {
            Some(bytes) => {
                let share_bytes = bytes / u64::from(shard_count.max(1));
                // A size of at most 2^63 - 1 cannot overflow when it is rounded up to 1 MiB.
                share_bytes.div_ceil(SHARD_DATA_ALIGNMENT_BYTES).saturating_mul(SHARD_DATA_ALIGNMENT_BYTES)
            }
            None if self.kind == JobKind::Append => 0,
            None => DEFAULT_BYTES_PER_SHARD,
        }
    }
}
