//! A disk of this machine: scratch files (or a device to overwrite), and the load generator on all shards.
//!
//! **Why.** A measurement must use the same backends, buffers and threads as other programs with this library.
//!
//! **How.** Each shard has a [`Span`]: a scratch file of its own, or a part of the device. A load is one run of the
//! load generator, reads and writes as two jobs, over at most as many shards as requests under way. Sequential loads
//! continue where the last one ended.
//!
//! Filling is by amount, not by time: each run ends when all its requests have completed, so nothing is written twice.
//!
//! **Limits.** Between two loads the disk is idle for some milliseconds (threads start, files are opened); a warm-up in
//! each load keeps that out of the figures.
//!
//! **Example.** Depth 64 over two shards: 32 requests under way on each. Depth 1: one request, on the first shard, the
//! other idle.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use plimsoll::{Class, ShardOptions, SharedFile, Topology};
use plimsoll_files::jobs::PauseDistribution;
use plimsoll_sim::rng::Rng;

use super::{Rig, draw_warmup_ns};
use crate::foreign::ForeignMeter;
use crate::load::{Control, JobSpec, Pattern, Plan, RunResult, Target, run};
use crate::tune::record::{Entry, Load, Moved, Order, Sample, Stream};
use crate::tune::{SEQUENTIAL_BYTES, TuneError, costs};

const FILL_DEPTH: u32 = 16;
/// Length in seconds of a run of filling below which the next run writes twice the data; also the longest run after the
/// time for filling is over.
const FILL_RUN_S: f64 = 0.5;
/// Longest time for discarding scratch data, in seconds.
const DISCARD_MAX_S: f64 = 3600.0;
/// Fewest bytes of every span, even on a slow disk.
pub(in crate::tune) const SPAN_MIN_BYTES: u64 = 4 << 20;
/// Most repetitions of a run whose threads began late.
const LATE_RUNS_MAX: u32 = 5;

/// The part of the disk that one shard works on.
pub(in crate::tune) struct Span {
    pub(in crate::tune) path: PathBuf,
    pub(in crate::tune) file: Arc<SharedFile>,
    pub(in crate::tune) offset: u64,
    pub(in crate::tune) room_bytes: u64,
    /// Bytes from its beginning that have been written.
    pub(in crate::tune) filled_bytes: u64,
    /// Length of the part that loads work on: the whole span, or after filling the filled part.
    pub(in crate::tune) len_bytes: u64,
    /// Offset in the span at which the next sequential load begins.
    pub(in crate::tune) cursor_bytes: u64,
}

/// Scratch data on a real disk, and the shards that load it.
pub(in crate::tune) struct DiskRig<'a> {
    pub(in crate::tune) topology: Topology,
    pub(in crate::tune) shard_options: ShardOptions,
    pub(in crate::tune) spans: Vec<Span>,
    pub(in crate::tune) seed: u64,
    pub(in crate::tune) control: &'a Control,
    pub(in crate::tune) begin: Instant,
    pub(in crate::tune) meter: Option<ForeignMeter>,
    pub(in crate::tune) place: costs::CostPlace,
}

impl Rig for DiskRig<'_> {
    fn fill(&mut self, wanted_bytes: u64, max_s: f64, progress: &mut dyn FnMut(f64)) -> Result<u64, TuneError> {
        let begin = Instant::now();
        let piece_bytes = u64::from(SEQUENTIAL_BYTES);
        let span_bytes = wanted_bytes.div_ceil(self.spans.len().max(1) as u64).div_ceil(piece_bytes) * piece_bytes;
        let mut next_bytes = SPAN_MIN_BYTES;
        loop {
            let run_begin = Instant::now();
            let left_s = max_s - begin.elapsed().as_secs_f64();
            self.fill_once(span_bytes, next_bytes, left_s.max(FILL_RUN_S))?;

            if run_begin.elapsed().as_secs_f64() < FILL_RUN_S {
                next_bytes = next_bytes.saturating_mul(2);
            }

            let filled = || self.spans.iter().map(|span| span.filled_bytes);
            progress(filled().sum::<u64>() as f64 / wanted_bytes.max(1) as f64);
            let is_full = self.spans.iter().all(|span| span.filled_bytes >= span_bytes.min(span.room_bytes));
            let is_late = begin.elapsed().as_secs_f64() >= max_s;
            let is_enough = filled().all(|filled| filled >= SPAN_MIN_BYTES);
            if is_full || (is_late && is_enough) || self.control.stop.is_asked() {
                break;
            }

            if self.control.traffic.is_write_bound_reached() {
                // The bound allows for all data, so writes were sent repeatedly and did not complete in time.
                let seconds = begin.elapsed().as_secs_f64();
                return Err(TuneError::Silent { phase: "scratch data", seconds });
            }
        }
        for span in &mut self.spans {
            span.len_bytes = span.filled_bytes;
        }
        self.settle()?;
        Ok(self.spans.iter().map(|span| span.filled_bytes).sum())
    }

    fn discard_beyond(&mut self, kept_part: f64) -> Result<(), TuneError> {
        let block_bytes = u64::from(SEQUENTIAL_BYTES);
        let mut jobs = Vec::new();

        for (shard, span) in self.spans.iter_mut().enumerate() {
            let kept_bytes = (span.filled_bytes as f64 * kept_part) as u64 / block_bytes * block_bytes;
            let len_bytes = span.filled_bytes - kept_bytes;
            let name = format!("discard {shard}");
            let job =
                JobSpec::closed_loop(&name, Pattern::Discard { is_random: false }, SEQUENTIAL_BYTES, 1, Class::DEFAULT);

            let requests = u32::try_from(len_bytes / block_bytes).unwrap_or(u32::MAX);
            let target = Target { file: span.file.clone(), offset: span.offset + kept_bytes, len_bytes };
            (span.filled_bytes, span.len_bytes, span.cursor_bytes) = (kept_bytes, kept_bytes, 0);

            if requests > 0 {
                // A job ends with the request after its limit.
                let job = job.shaped(|it| it.limit_requests = Some(requests - 1));
                jobs.push(job.on_shard(shard as u16, target));
            }
        }

        self.play(jobs, 0, DISCARD_MAX_S, "a discard").map(|_| ())
    }

    fn run(&mut self, load: &Load) -> Result<Sample, TuneError> {
        let mut sample = self.run_once(load)?;
        for _ in 0..LATE_RUNS_MAX {
            // A machine too busy to start the threads loses most of the run.
            let is_late = sample.elapsed_s < load.seconds * 0.5 && !sample.is_cut;
            if !is_late || self.is_stopped() {
                break;
            }
            sample = self.run_once(load)?;
        }
        Ok(sample)
    }

    fn costs(&mut self) -> Result<Entry, TuneError> {
        if matches!(self.place, costs::CostPlace::Directory(_)) {
            self.control.traffic.add_written(costs::PROBE_MAX_BYTES);
        }
        Ok(self.place.measure())
    }

    fn now_s(&self) -> f64 {
        self.begin.elapsed().as_secs_f64()
    }

    fn written_bytes(&self) -> u64 {
        self.control.traffic.written_bytes()
    }

    fn is_stopped(&self) -> bool {
        self.control.stop.is_asked()
    }
}

impl DiskRig<'_> {
    /// Writes at most `piece_bytes` more to each span that is filled to less than `span_bytes`, for at most `seconds`.
    fn fill_once(&mut self, span_bytes: u64, piece_bytes: u64, seconds: f64) -> Result<(), TuneError> {
        let mut jobs = Vec::new();
        for (shard, span) in self.spans.iter().enumerate() {
            let left_bytes = span_bytes.min(span.room_bytes).saturating_sub(span.filled_bytes);
            let wanted = left_bytes.min(piece_bytes) / u64::from(SEQUENTIAL_BYTES);
            let requests = u32::try_from(wanted).unwrap_or(u32::MAX);
            if requests == 0 {
                continue;
            }
            let fibers = (FILL_DEPTH / self.spans.len().max(1) as u32).clamp(1, requests);
            let name = format!("fill {shard}");
            let job = JobSpec::closed_loop(&name, Pattern::Overwrite, SEQUENTIAL_BYTES, fibers, Class::DEFAULT);
            // A job ends with the request after its limit.
            let job = job.shaped(|it| it.limit_requests = Some(requests - 1));
            let target =
                Target { file: span.file.clone(), offset: span.offset + span.filled_bytes, len_bytes: left_bytes };
            jobs.push(job.on_shard(shard as u16, target));
        }

        if jobs.is_empty() {
            return Ok(());
        }
        let result = self.play(jobs, 0, seconds, "scratch data")?;
        for (shard, span) in result.shards.iter().zip(&mut self.spans) {
            span.filled_bytes += shard.jobs.iter().map(|job| job.bytes).sum::<u64>();
        }
        Ok(())
    }

    /// Makes the scratch data durable, so that the file system does not write it back during the measurement.
    fn settle(&self) -> Result<(), TuneError> {
        // Backends in memory have no files.
        for span in self.spans.iter().filter(|span| span.path.exists()) {
            let synced = std::fs::File::open(&span.path).and_then(|file| file.sync_all());
            synced.map_err(TuneError::Open)?;
        }
        Ok(())
    }

    fn run_once(&mut self, load: &Load) -> Result<Sample, TuneError> {
        let deepest = [load.reads, load.writes].iter().flatten().map(|stream| stream.depth).max().unwrap_or(1);
        let shards = deepest.clamp(1, self.spans.len().max(1) as u32) as usize;

        let mut jobs = Vec::new();
        for (name, stream, is_write) in [(READS, &load.reads, false), (WRITES, &load.writes, true)] {
            if let Some(stream) = stream {
                jobs.push(self.job(name, stream, is_write, shards));
            }
        }

        let at_s = self.now_s();
        let moved_before = [self.control.traffic.read_bytes(), self.control.traffic.written_bytes()];
        if let Some(meter) = &mut self.meter {
            meter.begin();
        }

        let warmup_ns = draw_warmup_ns(load, &mut Rng::new(self.seed));
        let result = self.play(jobs, warmup_ns, load.seconds, "a sample")?;

        let own_read = self.control.traffic.read_bytes().saturating_sub(moved_before[0]);
        let own_written = self.control.traffic.written_bytes().saturating_sub(moved_before[1]);
        let foreign = self.meter.as_mut().and_then(|meter| meter.end(own_read, Some(own_written)));
        self.advance_cursors(&result, load);

        let moved = |name: &str, stream: &Option<Stream>| {
            stream.map(|_| {
                let total = result.total(name);
                Moved {
                    requests: total.requests,
                    bytes: total.bytes,
                    errors: total.errors,
                    p50_ns: total.latency.percentile(50.0),
                    p99_ns: total.latency.percentile(99.0),
                }
            })
        };

        let elapsed_ns = result.shards.iter().map(|shard| shard.elapsed_ns).max().unwrap_or(0);
        let busiest = result.shards.iter().map(|shard| shard.cpu_ns as f64 / shard.elapsed_ns.max(1) as f64);
        Ok(Sample {
            load: *load,
            at_s,
            elapsed_s: elapsed_ns as f64 / 1e9,
            reads: moved(READS, &load.reads),
            writes: moved(WRITES, &load.writes),
            cpu_busy_pct: busiest.fold(0.0, f64::max) * 100.0,
            foreign_pct: foreign.map(|share| share.foreign_pct),
            is_cut: load.writes.is_some() && self.control.traffic.is_write_bound_reached(),
        })
    }

    fn job(&self, name: &str, stream: &Stream, is_write: bool, shards: usize) -> JobSpec {
        let pattern = match (stream.order, is_write) {
            (Order::Random, false) => Pattern::RandRead,
            (Order::Random, true) => Pattern::RandWrite,
            (Order::Sequential, false) => Pattern::SeqRead,
            (Order::Sequential, true) => Pattern::Overwrite,
        };

        let count = shards.max(1) as u32;
        let fibers = (stream.depth / count).max(1);
        let mut job = JobSpec::closed_loop(name, pattern, stream.block_bytes, fibers, Class::DEFAULT);
        if let Some(rate_per_s) = stream.rate_per_s {
            job = job.at_rate(rate_per_s / f64::from(count), PauseDistribution::Poisson);
        }

        for (shard, span) in self.spans.iter().enumerate().take(shards) {
            let cursor_bytes = if stream.order == Order::Sequential { span.cursor_bytes } else { 0 };
            let shift_bytes = u64::from(stream.shift_bytes);
            let target = Target {
                file: span.file.clone(),
                offset: span.offset + cursor_bytes + shift_bytes,
                len_bytes: span.len_bytes.saturating_sub(cursor_bytes).saturating_sub(shift_bytes),
            };
            job = job.on_shard(shard as u16, target);
        }
        job
    }

    /// Advances the start of the next sequential load to the end of this one, or to 0 if little of the span is left.
    fn advance_cursors(&mut self, result: &RunResult, load: &Load) {
        let is_sequential = |stream: Option<Stream>| stream.is_some_and(|stream| stream.order == Order::Sequential);
        for (span, shard) in self.spans.iter_mut().zip(&result.shards) {
            let moved = |job: &&crate::load::JobResult| match job.name.as_str() {
                READS => is_sequential(load.reads),
                _ => is_sequential(load.writes),
            };
            let moved_bytes = shard.jobs.iter().filter(moved).map(|job| job.bytes).max().unwrap_or(0);
            let next_bytes =
                (span.cursor_bytes + moved_bytes) / u64::from(SEQUENTIAL_BYTES) * u64::from(SEQUENTIAL_BYTES);
            span.cursor_bytes = if next_bytes <= span.len_bytes / 4 * 3 { next_bytes } else { 0 };
        }
    }

    /// Runs `jobs`. A failed request is an error.
    fn play(
        &mut self,
        jobs: Vec<JobSpec>,
        warmup_ns: u64,
        seconds: f64,
        what: &'static str,
    ) -> Result<RunResult, TuneError> {
        self.seed = self.seed.wrapping_add(1);
        let plan = Plan {
            topology: self.topology.clone(),
            options: self.shard_options.clone(),
            jobs,
            warmup_ns,
            duration_ns: ((seconds * 1e9) as u64).max(1),
            seed: self.seed,
        };

        let result = run(&plan, self.control)?;

        let jobs = || result.shards.iter().flat_map(|shard| &shard.jobs);
        let errors: u64 = jobs().map(|job| job.errors).sum();
        if errors > 0 {
            let first = jobs().find_map(|job| job.first_error);
            return Err(TuneError::io(what, errors, first));
        }
        Ok(result)
    }
}

/// Names of the jobs of a load: reads, and writes.
const READS: &str = "reads";
const WRITES: &str = "writes";
