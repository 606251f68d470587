//! Raw results: every load on the disk, and its outcome.
//!
//! **Why.** A measurement costs minutes and wears the disk, so raw results are kept in a file. The conclusions can be
//! computed again in milliseconds, also by a later version or on another machine.
//!
//! **How.** A record is a file of JSON lines. The first is the [`Header`]: the place, the options and the version. Each
//! further line is an [`Entry`]: a sample (a [`Load`] and its outcome), the cost of single operations, or the end of a
//! phase. A line is written as soon as it is known, so a crash leaves a record whose last line may be cut: reading
//! drops such a line, and a phase without its end is measured again ([`Record::is_done`]).
//!
//! **Limits.** A record is of one disk. Latencies are percentiles by sample, not whole histograms.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_measure::tune::record::{Entry, Load, Order, Phase, Stream};
//! let stream = Stream { order: Order::Random, block_bytes: 4096, depth: 32, rate_per_s: None, shift_bytes: 0 };
//! let load = Load { reads: Some(stream), writes: None, seconds: 0.5 };
//! let line = serde_json::to_string(&Entry::Done { phase: Phase::ReadIops, attempts: 1, written_bytes: 4096 })?;
//! assert_eq!(line, r#"{"done":{"phase":"read_iops","attempts":1,"written_bytes":4096}}"#);
//! assert!(serde_json::to_string(&load)?.contains("\"depth\":32"));
//! # Ok::<(), serde_json::Error>(())
//! ```

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use plimsoll_files::bounded::{RESULT_MAX_BYTES, read_text};
use serde::{Deserialize, Serialize};

use super::report::{Backend, BlockSize, OperationCost, Site, SubmissionCost, Warning};
use super::{Mode, TuneError};

/// Current version of the record's form. Readers refuse others.
pub const RECORD_SCHEMA: u32 = 1;

/// The circumstances of a measurement; the first line of a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Always `"plimsoll tune"`.
    pub record: String,
    pub schema: u32,
    pub plimsoll: String,
    #[serde(flatten)]
    pub site: Site,
    /// Whether a block device may be overwritten.
    pub destructive: bool,
    pub backend: Backend,
    pub shards: u16,
    /// NUMA nodes of the machine, at least 1.
    pub numa_nodes: u16,
    pub seed: u64,
    pub mode: Mode,
    /// Whether only the four figures and the latency were requested.
    pub figures_only: bool,
    /// Whether reads beside writes were requested as well.
    #[serde(default)]
    pub with_frontier: bool,
    pub read_block: BlockSize,
    pub write_block: BlockSize,
    /// Alignment of direct I/O in bytes.
    pub align_bytes: u32,
    pub file_system_block_bytes: Option<u64>,
    /// Scratch data requested, in bytes.
    pub data_bytes: u64,
    pub max_write_bytes: Option<u64>,
    /// Measured length of each figure in seconds, if the user set it.
    pub phase_s: Option<f64>,
    /// Most rounds of a full measurement.
    pub rounds_max: u32,
    /// Length of each condition of a round in seconds.
    pub round_s: f64,
    /// Warnings about the place from before the measurement.
    pub warnings: Vec<Warning>,
}

impl Header {
    /// Returns the phases of a measurement, in order.
    pub(super) fn phases(&self) -> Vec<Phase> {
        let Header { mode, figures_only, with_frontier, .. } = *self;
        let figures = [Phase::WriteBandwidth, Phase::ReadBandwidth, Phase::WriteIops, Phase::ReadIops];
        let mut phases = vec![Phase::Fill];
        if !figures_only {
            phases.push(Phase::Blocks);
        }
        phases.extend(figures);
        if mode == Mode::Full {
            phases.extend([Phase::Precondition, Phase::Rounds]);
        }
        if !figures_only {
            phases.extend([Phase::Sizes, Phase::SequentialSizes, Phase::Frontier, Phase::Costs]);
        } else if with_frontier {
            phases.push(Phase::Frontier);
        }
        phases
    }
}

/// A part of a measurement. The variants are in the order of a measurement, except `Precondition`, which comes
/// directly before `Rounds`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Writes the scratch data.
    Fill,
    /// Writes twice the data, sequentially, before the rounds of a full measurement.
    Precondition,
    /// Random writes of small sizes, aligned and shifted, to find the disk's physical block.
    Blocks,
    /// Sequential writes of 1 MiB.
    WriteBandwidth,
    /// Sequential reads of 1 MiB.
    ReadBandwidth,
    /// Random writes of one block, at several depths.
    WriteIops,
    /// Random reads of one block, at several depths.
    ReadIops,
    /// All four figures in turn, until they are steady.
    Rounds,
    Sizes,
    SequentialSizes,
    Frontier,
    /// Flush, discard, and whether submissions block.
    Costs,
}

impl Phase {
    pub fn name(self) -> &'static str {
        match self {
            Phase::Fill => "scratch data",
            Phase::Precondition => "preconditioning",
            Phase::Blocks => "physical block",
            Phase::WriteBandwidth => "sequential write",
            Phase::ReadBandwidth => "sequential read",
            Phase::WriteIops => "random write",
            Phase::ReadIops => "random read",
            Phase::Rounds => "rounds to steady state",
            Phase::Sizes => "random sizes",
            Phase::SequentialSizes => "sequential sizes",
            Phase::Frontier => "reads beside writes",
            Phase::Costs => "flush, discard, submit",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// A load to compare with others.
    Search,
    /// A load whose result is discarded.
    Warmup,
    Measure,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Uniformly distributed positions.
    Random,
    Sequential,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stream {
    pub order: Order,
    pub block_bytes: u32,
    /// Requests under way on all shards together; with a rate, the most of them.
    pub depth: u32,
    /// Requests a second on all shards together, at Poisson times; `None`: a closed loop.
    pub rate_per_s: Option<f64>,
    /// Distance of positions from the multiples of the length, in bytes.
    pub shift_bytes: u32,
}

/// The requests put on the disk for a span of time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    pub reads: Option<Stream>,
    /// Writes, if any. At least one of reads and writes is set.
    pub writes: Option<Stream>,
    pub seconds: f64,
}

impl Load {
    pub fn reads(stream: Stream, seconds: f64) -> Load {
        Load { reads: Some(stream), writes: None, seconds }
    }

    pub fn writes(stream: Stream, seconds: f64) -> Load {
        Load { reads: None, writes: Some(stream), seconds }
    }

    /// Returns the only stream; of two, the reads.
    pub fn stream(&self) -> Option<&Stream> {
        self.reads.as_ref().or(self.writes.as_ref())
    }
}

/// Outcome of one stream of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Moved {
    /// Requests that completed within the span.
    pub requests: u64,
    pub bytes: u64,
    /// Requests that failed or transferred too few bytes.
    pub errors: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    pub load: Load,
    /// Seconds from the start of the measurement to that of the sample.
    pub at_s: f64,
    pub elapsed_s: f64,
    pub reads: Option<Moved>,
    pub writes: Option<Moved>,
    /// CPU use of the busiest shard, in per cent of one CPU.
    pub cpu_busy_pct: f64,
    /// Part of the device's traffic in the span that other programs caused, in per cent; `None` if unknown.
    pub foreign_pct: Option<f64>,
    /// Whether the bound on writes ended the sample.
    pub is_cut: bool,
}

impl Sample {
    /// Returns the outcome of the only stream; of two, of the reads.
    pub fn moved(&self) -> Moved {
        self.reads.or(self.writes).unwrap_or_default()
    }

    pub fn iops(&self, moved: &Moved) -> f64 {
        if self.elapsed_s > 0.0 { moved.requests as f64 / self.elapsed_s } else { 0.0 }
    }

    pub fn bytes_per_s(&self, moved: &Moved) -> f64 {
        if self.elapsed_s > 0.0 { moved.bytes as f64 / self.elapsed_s } else { 0.0 }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    Sample {
        phase: Phase,
        /// Attempt at the phase, from 0; later attempts follow if other programs used the disk.
        attempt: u32,
        step: Step,
        sample: Sample,
    },
    Filled {
        data_bytes: u64,
        seconds: f64,
    },
    /// Single operations were tried.
    Costs {
        /// Cost of a flush (fdatasync) after a write.
        flush: Option<OperationCost>,
        discard: Option<OperationCost>,
        submissions: Vec<SubmissionCost>,
        /// Operations that could not be tried, with the reasons.
        skipped: Vec<String>,
    },
    Warned(Warning),
    Done {
        phase: Phase,
        attempts: u32,
        /// Bytes written by then, scratch data included.
        written_bytes: u64,
    },
    /// The measurement ended, or a part of it if it is resumed later.
    End {
        /// Bytes written by then, scratch data included.
        written_bytes: u64,
        duration_s: f64,
        interrupted: bool,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub header: Header,
    pub entries: Vec<Entry>,
}

impl Record {
    pub fn is_done(&self, phase: Phase) -> bool {
        self.entries.iter().any(|entry| matches!(entry, Entry::Done { phase: done, .. } if *done == phase))
    }

    pub(crate) fn is_complete(&self) -> bool {
        let phases = self.header.phases();
        phases.into_iter().all(|phase| self.is_done(phase))
    }

    /// Returns the samples of one step of one attempt at a phase, in order.
    pub fn attempt(&self, phase: Phase, attempt: u32, step: Step) -> Vec<&Sample> {
        let of = |entry| match entry {
            &Entry::Sample { phase: p, attempt: a, step: s, ref sample } if (p, a, s) == (phase, attempt, step) => {
                Some(sample)
            }
            _ => None,
        };
        self.entries.iter().filter_map(of).collect()
    }

    /// Returns the samples of one step of a phase's best attempt (the one that other programs disturbed least).
    pub fn samples(&self, phase: Phase, step: Step) -> Vec<&Sample> {
        self.attempt(phase, self.best_attempt(phase), step)
    }

    /// Returns the part of the device's traffic in an attempt at a phase that other programs caused, in per cent;
    /// `None` if unknown. Uses the samples of the figure; in a phase without a figure, those of its search.
    pub fn foreign_pct(&self, phase: Phase, attempt: u32) -> Option<f64> {
        let mut samples = self.attempt(phase, attempt, Step::Measure);
        // The frontier consists of its mixes; only its ends are measured samples.
        if samples.is_empty() || phase == Phase::Frontier {
            samples.extend(self.attempt(phase, attempt, Step::Search));
        }

        let mut sums = (0.0, 0.0);
        for sample in samples {
            let Some(foreign_pct) = sample.foreign_pct else { continue };
            let own: u64 = [sample.reads, sample.writes].iter().flatten().map(|moved| moved.bytes).sum();
            let moved = own as f64 / (1.0 - foreign_pct / 100.0).max(0.01);
            sums = (sums.0 + foreign_pct * moved, sums.1 + moved);
        }
        (sums.1 > 0.0).then(|| sums.0 / sums.1)
    }

    pub(crate) fn has_samples(&self, phase: Phase) -> bool {
        self.entries.iter().any(|entry| matches!(entry, Entry::Sample { phase: of, .. } if *of == phase))
    }

    /// Returns the last attempt at a phase, from 0; 0 if there was none.
    pub(crate) fn last_attempt(&self, phase: Phase) -> u32 {
        let attempts = self.entries.iter().filter_map(|entry| match entry {
            Entry::Sample { phase: p, attempt, .. } if *p == phase => Some(*attempt),
            _ => None,
        });
        attempts.max().unwrap_or(0)
    }

    /// Returns the number of the attempt at a phase that counts: of the complete ones the one that other programs
    /// disturbed least (an unknown disturbance counts as the worst), of equal ones the last. An attempt that the bound on
    /// writes ended before its figure counts only if no other one has it.
    pub(crate) fn best_attempt(&self, phase: Phase) -> u32 {
        let done = self.entries.iter().rev().find_map(|entry| match entry {
            Entry::Done { phase: done, attempts, .. } if *done == phase => Some(*attempts),
            _ => None,
        });
        // An attempt under way counts only if it is the only one.
        let ended = done.unwrap_or_else(|| self.last_attempt(phase)).max(1);
        let foreign = |attempt: u32| self.foreign_pct(phase, attempt).unwrap_or(f64::INFINITY);
        let is_measured = |attempt: u32| !self.attempt(phase, attempt, Step::Measure).is_empty();
        let any_measured = (0..ended).any(is_measured);
        let complete = (0..ended).rev().filter(|attempt| is_measured(*attempt) == any_measured);
        complete.min_by(|a, b| foreign(*a).total_cmp(&foreign(*b))).unwrap_or(0)
    }

    /// Returns the bytes of scratch data during the figures; 0 if not yet filled.
    pub fn data_bytes(&self) -> u64 {
        let filled = self.entries.iter().rev().find_map(|entry| match entry {
            Entry::Filled { data_bytes, .. } => Some(*data_bytes),
            _ => None,
        });
        filled.unwrap_or(0)
    }

    /// Returns bytes written and seconds passed until the last entry, including earlier parts of the measurement.
    pub fn spent(&self) -> (u64, f64) {
        let (mut written_bytes, mut at_s) = (0_u64, 0.0_f64);

        for entry in &self.entries {
            match entry {
                Entry::Filled { data_bytes, seconds } => {
                    written_bytes += data_bytes;
                    at_s += seconds;
                }
                Entry::Sample { sample, .. } => {
                    written_bytes += sample.writes.map_or(0, |moved| moved.bytes);
                    at_s = at_s.max(sample.at_s + sample.elapsed_s);
                }
                // These totals include warm-ups and samples that did not count.
                Entry::Done { written_bytes: known, .. } => written_bytes = written_bytes.max(*known),
                Entry::End { written_bytes: known, duration_s, .. } => {
                    written_bytes = written_bytes.max(*known);
                    at_s = at_s.max(*duration_s);
                }
                _ => {}
            }
        }

        (written_bytes, at_s)
    }

    /// Parses the text of a record. Drops an incomplete last line, because a crash leaves one. `source_name` is used in
    /// messages only.
    pub fn parse(source_name: &str, text: &str) -> Result<Record, RecordError> {
        let error = |line: usize, reason: String| RecordError { source_name: source_name.to_owned(), line, reason };
        let mut lines = text.split_inclusive('\n').enumerate();
        let Some((_, first)) = lines.next() else {
            return Err(error(1, "it is empty; a record begins with a header line".to_owned()));
        };

        let header: Header = serde_json::from_str(first)
            .map_err(|e| error(1, format!("this is no record of `plimsoll tune` ({WRITTEN_BY}): {e}")))?;
        if header.record != RECORD_NAME || header.schema != RECORD_SCHEMA {
            let found = format!("`{}` of version {}", header.record, header.schema);
            return Err(error(1, format!("expected `{RECORD_NAME}` of version {RECORD_SCHEMA}, found {found}")));
        }

        let mut entries = Vec::new();
        for (at, line) in lines {
            match serde_json::from_str(line) {
                Ok(entry) => entries.push(entry),
                // A crash cuts the last line, so no newline follows it.
                Err(_) if !line.ends_with('\n') => {}
                Err(e) => return Err(error(at + 1, format!("not a line of a record: {e}"))),
            }
        }
        Ok(Record { header, entries })
    }

    pub fn read(path: &Path) -> Result<Record, RecordError> {
        let name = path.display().to_string();
        let text = read_text(path, RESULT_MAX_BYTES).map_err(|error| RecordError {
            source_name: name.clone(),
            line: 0,
            reason: format!("{error}; name a record ({WRITTEN_BY})"),
        })?;
        Record::parse(&name, &text)
    }
}

/// The origin of records, for messages about files that are none.
const WRITTEN_BY: &str = "`--record FILE` writes one";

/// Name of the format in the first line of a record.
pub(super) const RECORD_NAME: &str = "plimsoll tune";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{source_name}{}: {reason}", if *.line > 0 { format!(":{}", .line) } else { String::new() })]
pub struct RecordError {
    source_name: String,
    line: usize,
    reason: String,
}

/// A record under construction, in memory and, if given, in a file.
pub(super) struct Recorder {
    pub(super) record: Record,
    file: Option<(PathBuf, File)>,
    /// Bytes written by earlier parts of the measurement.
    pub(super) written_before_bytes: u64,
    pub(super) before_s: f64,
}

impl Recorder {
    /// Creates a record. If `path` is given, creates its file, which must not exist.
    pub(super) fn create(path: Option<&Path>, header: Header) -> Result<Recorder, TuneError> {
        let mut file = None;
        if let Some(path) = path {
            let made = OpenOptions::new().write(true).create_new(true).open(path);
            let mut made = made.map_err(|error| TuneError::record(path, &error))?;
            write_line(&mut made, &header).map_err(|error| {
                // The first error is reported, not one of the cleanup.
                let _ = std::fs::remove_file(path);
                TuneError::record(path, &error)
            })?;
            file = Some((path.to_owned(), made));
        }
        let record = Record { header, entries: Vec::new() };
        Ok(Recorder { record, file, written_before_bytes: 0, before_s: 0.0 })
    }

    /// Continues a record after its last complete phase. Cuts off later entries, which are measured again.
    pub(super) fn resume(path: &Path, mut record: Record) -> Result<Recorder, TuneError> {
        let failed = |error: io::Error| TuneError::record(path, &error);

        let (written_before_bytes, before_s) = record.spent();
        let is_done = |entry: &Entry| matches!(entry, Entry::Done { .. });
        record.entries.truncate(record.entries.iter().rposition(is_done).map_or(0, |at| at + 1));

        let text = read_text(path, RESULT_MAX_BYTES).map_err(failed)?;
        let kept: String = text.split_inclusive('\n').take(1 + record.entries.len()).collect();
        let mut file = OpenOptions::new().append(true).open(path).map_err(failed)?;
        file.set_len(kept.len() as u64).map_err(failed)?;
        // A crash may cut the newline alone: the line before it is whole.
        if !kept.ends_with('\n') {
            file.write_all(b"\n").map_err(failed)?;
        }
        Ok(Recorder { record, file: Some((path.to_owned(), file)), written_before_bytes, before_s })
    }

    pub(super) fn push(&mut self, entry: Entry) -> Result<(), TuneError> {
        if let Some((path, file)) = &mut self.file {
            write_line(file, &entry).map_err(|error| TuneError::record(path, &error))?;
        }
        self.record.entries.push(entry);
        Ok(())
    }
}

/// Writes a line with a single write, so that a crash cuts only the last line.
fn write_line(file: &mut File, line: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_string(line).map_err(io::Error::other)?;
    text.push('\n');
    file.write_all(text.as_bytes())
}
