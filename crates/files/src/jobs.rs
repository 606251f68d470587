//! Job files: which loads to run, on which shards, in which class. The format is io_tester's.
//!
//! **Why.** Users of io_tester have job files, and their results are comparable only if the same file means the same
//! load. What this version cannot do is refused by name, so that no job runs as something else than it says.
//!
//! **How.** A list of maps, one per job. `job_reader` checks everything that does not depend on the number of shards, and
//! resolves classes against the groups file; [`JobFile::validate`] checks the rest. What io_tester leaves to chance or
//! does silently becomes an error or a warning: no `parallelism` (it would do nothing), `shares` beside `class`.
//!
//! Beside io_tester's keys there are ours, in fio's words where fio has them; a file without them means what it means to
//! io_tester.
//!
//! **Limits.** All sleep types mean the same here: shards always wake precisely. One slip of `parallelism` that a file of
//! io_tester has is accepted with a warning, and only in `cpu` jobs; every other unknown key is an error.
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

use plimsoll_figures::units::format_bytes_binary;

use super::error::{Code, ConfigError, Diagnostic, Source, Span};

/// The most requests of one job in flight on one shard.
pub const MAX_PARALLELISM: u32 = 65_536;
/// The most requests issued together.
pub const MAX_BATCH: u32 = 65_536;
/// The most requests per second of one fiber.
pub const MAX_REQUESTS_PER_S: u32 = 1_000_000_000;
/// The largest request, in bytes: 1 GiB.
pub const MAX_REQUEST_BYTES: u64 = 1 << 30;
/// The most segments of a vectorized request: Linux's `IOV_MAX`.
pub const MAX_IOV_COUNT: u32 = 1024;
/// The highest shard id.
pub(crate) const MAX_SHARD_ID: u32 = 65_535;
/// The most files of an `unlink` job on one shard.
pub const MAX_FILES: u32 = 1_000_000;
/// The highest stage.
pub(crate) const MAX_STAGE: u32 = 65_535;

/// The bytes per shard where no `data_size` is given, as in io_tester: 1 GiB.
const DEFAULT_BYTES_PER_SHARD: u64 = 1 << 30;
/// The part of `data_size` that falls to a shard is rounded up to a multiple of this, as in io_tester: 1 MiB.
const SHARD_DATA_ALIGNMENT_BYTES: u64 = 1 << 20;

/// What a job file says.
#[derive(Clone, Debug, PartialEq)]
pub struct JobFile {
    /// The jobs in the order of the file, at least one; none where there is no file. All of them run at the same time.
    pub jobs: Vec<Job>,
    /// What the reader noticed without refusing the file.
    pub warnings: Vec<Diagnostic>,
    /// For the errors of [`JobFile::validate`].
    pub(super) source: Source,
}

/// No file: of loads that are not described by jobs.
impl Default for JobFile {
    fn default() -> JobFile {
        JobFile { jobs: Vec::new(), warnings: Vec::new(), source: Source::new("", "") }
    }
}

/// One load.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Unique in the file, not empty, neither `shard` nor `statistics` (keys of results as YAML).
    pub name: String,
    /// What its requests are, and when they come. A job dereferences to it.
    pub shape: Shape,
    /// Where the job runs.
    pub shards: ShardSet,
    /// Bytes of all shards together; `None` is 1 GiB per shard, or 0 for `append`. See [`Job::bytes_per_shard`].
    pub data_size_bytes: Option<u64>,
    /// First byte of the job's region in a named file or device; 0 in files that are made for it.
    pub offset_bytes: u64,
    /// The class whose share of the disk the job uses.
    pub class: JobClass,
    /// The most bytes a second that the job's class may move on all shards together.
    pub bandwidth_limit_bytes_per_s: Option<u64>,
    /// Jobs of one stage run together; stages follow one another, from 0.
    pub stage: u32,
    /// Whether space is reserved (`fallocate`) before the run; of an appending job.
    pub fallocate: bool,
    /// Whether files are opened with `O_DSYNC`.
    pub dsync: bool,
    /// The extent size that the file asks for, in bytes. It has no effect, and the reader warns of it: files are written in
    /// full before the run.
    pub extent_size_hint_bytes: Option<u64>,
    /// Where each shard of a list stands in the text.
    pub(super) shards_spans: Vec<Span>,
    /// Where the request size stands in the text.
    pub(super) request_span: Span,
}

/// What the requests of a job are, and when they come: the same for a file, the load generator and a search.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// What the requests do.
    pub kind: JobKind,
    /// Fibers per shard, 1 to [`MAX_PARALLELISM`]. Each has one request, or batch, in flight. 0 only in a `cpu` job whose
    /// file has io_tester's slip: the job does nothing.
    pub parallelism: u32,
    /// Requests (or batches) per second of *each fiber*, 1 to [`MAX_REQUESTS_PER_S`]; `None` is a closed loop: the next
    /// request follows the completion of the last.
    pub requests_per_s_per_fiber: Option<f64>,
    /// Requests (or batches) a second of all fibers of a shard together, whichever of them is free; above 0. Excludes
    /// `requests_per_s_per_fiber`.
    pub requests_per_s_per_shard: Option<f64>,
    /// How the times between requests are distributed; only with a request rate.
    pub pause_distribution: PauseDistribution,
    /// Requests issued together at each tick, 1 to [`MAX_BATCH`]; 1 without a request rate.
    pub batch: u32,
    /// The job ends once *more* requests than this were made on a shard, as in io_tester; `None` is no limit.
    pub limit_requests: Option<u32>,
    /// The job ends once so many bytes were asked for on a shard.
    pub limit_bytes: Option<u64>,
    /// The length of a request: a multiple of 512, up to [`MAX_REQUEST_BYTES`].
    pub request_bytes: u32,
    /// Lengths of requests and how often each comes; empty: all have `request_bytes`, which is otherwise the longest.
    pub sizes: Vec<SizeShare>,
    /// Which positions random requests take.
    pub access: Access,
    /// What is written.
    pub content: Content,
    /// Whether blocks carry a stamp that is checked when they are read: torn, stale and misdirected blocks are found.
    pub verify: bool,
    /// After so many writes of a fiber comes a flush that it waits for; 0: never.
    pub flush_every: u32,
    /// Whether that flush is an `fdatasync` instead of an `fsync`.
    pub flush_data_only: bool,
    /// The pause after each request, or between active phases if `think_after_ns` is not 0; up to one day. 0 with a rate.
    pub think_time_ns: u64,
    /// The length of an active phase, up to one day; 0 means that the job pauses after each request.
    pub think_after_ns: u64,
    /// Segments of a vectored request, 1 to [`MAX_IOV_COUNT`]; `None` is the plain interface.
    pub iov_count: Option<u32>,
    /// The job begins so long after the run (or its stage).
    pub start_delay_ns: u64,
    /// Its fibers begin evenly spread over this time.
    pub ramp_up_ns: u64,
}

impl Shape {
    /// Requests each of which follows the completion of the one before, and nothing else.
    #[must_use]
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
            request_bytes,
            sizes: Vec::new(),
            access: Access::Uniform,
            content: Content::default(),
            verify: false,
            flush_every: 0,
            flush_data_only: false,
            think_time_ns: 0,
            think_after_ns: 0,
            iov_count: None,
            start_delay_ns: 0,
            ramp_up_ns: 0,
        }
    }

    /// Whether requests come at a rate, whatever comes back.
    #[must_use]
    pub fn has_rate(&self) -> bool {
        self.requests_per_s_per_fiber.is_some() || self.requests_per_s_per_shard.is_some()
    }
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

/// What the requests of a job do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobKind {
    /// Reads one after the other, from the start again at the end.
    SeqRead,
    /// Writes one after the other over existing data, from the start again at the end.
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
    /// Reads and writes one after the other over existing data.
    SeqMixed {
        /// Reads in a hundred requests, 0 to 100.
        read_pct: u8,
    },
    /// Flushes, one after the other.
    Flush,
    /// Gives ranges of existing data back to the disk, one after the other.
    Discard,
    /// Removes files that were made before the run, through the helper thread of the shard.
    Unlink {
        /// Files on each shard, 1 to [`MAX_FILES`]; each has an equal part of the shard's data, rounded up to 1 MiB.
        files: u32,
    },
    /// No requests: slices of CPU work on the shard's thread.
    Cpu {
        /// Length of a slice in nanoseconds, at least 1.
        execution_ns: u64,
    },
}

impl JobKind {
    /// The `type` in a job file.
    #[must_use]
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
            Self::Discard => "discard",
            Self::Unlink { .. } => "unlink",
            Self::Cpu { .. } => "cpu",
        }
    }

    /// Whether the job changes data.
    #[must_use]
    pub fn is_write(self) -> bool {
        match self {
            Self::Overwrite | Self::RandWrite | Self::Append | Self::Discard => true,
            Self::RandMixed { read_pct } | Self::SeqMixed { read_pct } => read_pct < 100,
            Self::SeqRead | Self::RandRead | Self::Flush | Self::Unlink { .. } | Self::Cpu { .. } => false,
        }
    }

    /// Whether requests go to a file that was filled before.
    #[must_use]
    pub fn has_data(self) -> bool {
        !matches!(self, Self::Append | Self::Unlink { .. } | Self::Cpu { .. })
    }
}

/// A length of requests, and how often it comes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizeShare {
    /// Length in bytes: a multiple of 512, up to [`MAX_REQUEST_BYTES`].
    pub bytes: u32,
    /// Requests in a hundred, above 0; all of a job make 100.
    pub percent: f64,
}

/// Which positions random requests take.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Access {
    /// All alike.
    #[default]
    Uniform,
    /// The n-th most popular position comes 1 / n^theta times as often as the first; popular ones are spread over the
    /// file.
    Zipf {
        /// Above 0, at most 10; 1 itself is taken too.
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
        /// Above 0, below 1.
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

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// How much a compressor can save, in per cent of the bytes, 0 to 100.
    pub compressible_pct: u8,
}

impl Default for Content {
    /// Data that does not compress.
    fn default() -> Content {
        Content { compressible_pct: 0 }
    }
}

/// Where a job runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShardSet {
    /// On every shard.
    All,
    /// On these shards: at least one, none twice, in the order of the file.
    List(Vec<u32>),
}

impl ShardSet {
    /// Whether the job runs on `shard`.
    #[must_use]
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
    /// A class of its own, called like the job (`default`: the class that is always there), with 1 to [`MAX_SHARES`](super::sched_groups::MAX_SHARES) shares.
    Own {
        /// The weight of the class.
        shares: u32,
    },
    /// The class of this name: a class of the groups file, or that of another job.
    Joined(String),
}

/// How the times between the requests of a job with a request rate are distributed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PauseDistribution {
    /// All the same.
    #[default]
    Uniform,
    /// Exponentially distributed, so that the requests are a Poisson process.
    Poisson,
}

impl JobFile {
    /// Checks what depends on the number of shards.
    ///
    /// # Errors
    /// With the line: a shard id that is not below `shard_count`; a request that is larger than the data of a shard.
    pub fn validate(&self, shard_count: u32) -> Result<(), ConfigError> {
        for job in &self.jobs {
            self.validate_shards(job, shard_count)?;
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
    /// A job in a class of its own on all shards, of which nothing else is said.
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
            extent_size_hint_bytes: None,
            shards_spans: Vec::new(),
            request_span: 0..0,
        }
    }

    /// The bytes of data that the job has on each of `shard_count` shards (0 is taken for 1): `data_size` divided by
    /// the number of shards of the run and rounded up to 1 MiB; by default 1 GiB, and 0 for `append`.
    #[must_use]
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
