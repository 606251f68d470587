//! Runs on the scratch files: filling them, finding a depth, measuring a figure, measuring latency.
//!
//! # Why
//! The four figures are found in the same way: search for the depth, then a series of samples at it.
//!
//! # How it works
//! A sample is one run of the load generator, on all shards at once. A depth search doubles the depth from a small one
//! and takes the smallest within 2 % of the best; beyond the usual range it goes on only while the rate still rises.
//! Sequential samples go on where the last one ended.
//!
//! Filling goes by amount, not by time: each run ends when its requests have all come back, so nothing is written
//! twice.
//!
//! # Limits
//! Between two samples the disk is idle for some milliseconds (threads start, files are opened); a warm-up in each
//! keeps that out of the figure.
//!
//! # Example
//! Random reads, two shards, depths 16, 32, 64, 128, 256 with 41, 68, 95, 96 and 96 thousand operations/s: depth 64 is
//! taken (32 requests on each shard), and 20 samples of 1 s follow.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use plimsoll::core::Histogram;
use plimsoll::{Class, ShardOptions, SharedFile, Topology};

use super::budget::{Allowance, WriteBudget};
use super::report::{Figure, Probe, Unit, UnloadedLatency, Warning, WarningCode};
use super::{Observer, TuneError, series};
use crate::load::{Control, JobSpec, Pattern, Plan, RunResult, Target, run};
use crate::units::{format_bytes_binary, format_duration_ns, format_iops, format_throughput_decimal};

/// Length of sequential requests, in bytes.
pub(super) const SEQUENTIAL_BYTES: u32 = 1 << 20;
/// Requests under way while files are filled.
const FILL_DEPTH: u32 = 16;
/// A run of filling that took less than this many seconds is followed by one with twice the data; when the time for
/// filling is over, no run goes on for longer.
const FILL_RUN_S: f64 = 0.5;
/// Every file gets so much data, however slow the disk is.
pub(super) const FILE_MIN_BYTES: u64 = 4 << 20;
/// The longest warm-up inside a run, in seconds.
const RUN_WARMUP_MAX_S: f64 = 0.1;
/// Part of a phase that goes by as warm-up before its samples.
const PHASE_WARMUP_PART: f64 = 0.1;
/// A phase has at least so many samples; they are 1 s long where it has more seconds.
const SAMPLES_MIN: f64 = 6.0;
/// Part of what a phase may write that goes into a first look at its rate.
const FIRST_LOOK_PART: f64 = 0.1;
/// Part of what a phase may write that goes into the search for its depth.
const SEARCH_PART: f64 = 0.25;
/// How often a run is repeated because its threads began late.
const LATE_RUNS_MAX: u32 = 5;
/// More busy than that, and the figure is the CPU's.
const CPU_BUSY_MAX_PCT: f64 = 90.0;
/// Samples that scatter more are worth a warning.
const DEVIATION_MAX_PCT: f64 = 5.0;
/// As are rates that change more from the first third of the samples to the last.
const CHANGE_MAX_PCT: f64 = 10.0;

/// How long the parts of a measurement take, in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    /// Filling ends then, though less data is there than wanted.
    pub(super) fill_max_s: f64,
    /// One depth of a search.
    pub(super) probe_s: f64,
    /// The samples of a figure.
    pub(super) phase_s: f64,
    /// A latency.
    pub(super) latency_s: f64,
}

/// One of the four figures, to be measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Aim {
    pub(super) name: &'static str,
    pub(super) pattern: Pattern,
    pub(super) block_bytes: u32,
    pub(super) unit: Unit,
    /// Depths that a search always tries: from, to.
    pub(super) depths: (u32, u32),
    /// The deepest it goes while the rate still rises.
    pub(super) depth_max: u32,
    /// Depth without a search.
    pub(super) depth_default: u32,
    /// Part of what may be written that is left to later phases.
    pub(super) reserve_part: f64,
}

/// A scratch file of one shard.
pub(super) struct ScratchFile {
    pub(super) path: PathBuf,
    pub(super) file: Arc<SharedFile>,
    /// Its length; after filling, what was filled.
    pub(super) len_bytes: u64,
    /// Where the next sequential run begins.
    pub(super) cursor_bytes: u64,
}

/// What the parts of a measurement have in common.
pub(super) struct Bench<'a> {
    pub(super) topology: Topology,
    pub(super) shard_options: ShardOptions,
    pub(super) files: Vec<ScratchFile>,
    pub(super) schedule: Schedule,
    pub(super) seed: u64,
    pub(super) control: &'a Control,
    pub(super) observer: &'a mut dyn Observer,
    pub(super) writes: WriteBudget,
    pub(super) warnings: Vec<Warning>,
    /// The phase that is going on: its name, its beginning, and how long it should take in seconds.
    pub(super) phase: (&'static str, Instant, f64),
}

/// One run.
struct Sample {
    rate: f64,
    amount: u64,
    elapsed_ns: u64,
    /// CPU time by shard.
    cpu_ns: Vec<u64>,
    latency: Box<Histogram>,
    /// False where the bound on writes may have cut it short.
    is_clear: bool,
}

impl Sample {
    /// Whether at least half of the `seconds` that were wanted were measured.
    fn is_long(&self, seconds: f64) -> bool {
        self.elapsed_ns as f64 >= seconds * 0.5e9
    }
}

impl Bench<'_> {
    /// Records a warning and says it aloud.
    pub(super) fn warn(&mut self, code: WarningCode, message: String) {
        self.observer.on_note(&format!("warning: {message}"));
        self.warnings.push(Warning { code, message });
    }

    fn begin_phase(&mut self, name: &'static str, expected_s: f64) {
        self.phase = (name, Instant::now(), expected_s);
        self.observer.on_phase(name, expected_s);
    }

    fn progress(&mut self) {
        let (_, begin, expected_s) = self.phase;
        let fraction = if expected_s > 0.0 { begin.elapsed().as_secs_f64() / expected_s } else { 1.0 };
        self.observer.on_progress(fraction.min(1.0));
    }

    fn shards(&self) -> u16 {
        self.topology.shards()
    }

    /// Writes the scratch files full, as far as that goes within the time for it.
    pub(super) fn fill(&mut self) -> Result<(), TuneError> {
        let wanted_bytes: u64 = self.files.iter().map(|file| file.len_bytes).sum();
        self.begin_phase("scratch data", self.schedule.fill_max_s);
        let begin = Instant::now();
        let mut filled_bytes = vec![0; self.files.len()];
        let mut piece_bytes = FILE_MIN_BYTES;
        loop {
            let run_begin = Instant::now();
            let left_s = self.schedule.fill_max_s - begin.elapsed().as_secs_f64();
            let may_go_on = self.fill_once(&mut filled_bytes, piece_bytes, left_s.max(FILL_RUN_S))?;
            if run_begin.elapsed().as_secs_f64() < FILL_RUN_S {
                piece_bytes = piece_bytes.saturating_mul(2);
            }
            self.observer.on_progress(filled_bytes.iter().sum::<u64>() as f64 / wanted_bytes.max(1) as f64);
            let is_full = self.files.iter().zip(&filled_bytes).all(|(file, filled)| *filled >= file.len_bytes);
            let is_late = begin.elapsed().as_secs_f64() >= self.schedule.fill_max_s;
            let is_enough = filled_bytes.iter().all(|filled| *filled >= FILE_MIN_BYTES);
            if is_full || (is_late && is_enough) || self.control.is_stopped() {
                break;
            }
            if !may_go_on {
                // There was room for all of it: what was written has not come back in time, again and again.
                return Err(TuneError::Silent { phase: self.phase.0, seconds: begin.elapsed().as_secs_f64() });
            }
        }
        for (file, filled) in self.files.iter_mut().zip(&filled_bytes) {
            file.len_bytes = *filled;
        }
        let total_bytes: u64 = filled_bytes.iter().sum();
        if total_bytes < wanted_bytes && !self.control.is_stopped() {
            let message = format!(
                "only {} of {} of scratch data were written in {:.0} s; a cache in the disk may hold all of it",
                format_bytes_binary(total_bytes),
                format_bytes_binary(wanted_bytes),
                self.schedule.fill_max_s
            );
            self.warn(WarningCode::LessData, message);
        }
        Ok(())
    }

    /// Writes up to `piece_bytes` more to each file, for at most `seconds`. False, and nothing written, when no more
    /// may be written.
    fn fill_once(&mut self, filled_bytes: &mut [u64], piece_bytes: u64, seconds: f64) -> Result<bool, TuneError> {
        let allowed = match self.writes.allowance(SEQUENTIAL_BYTES, self.shards(), 0) {
            Allowance::Unlimited => u32::MAX,
            Allowance::RequestsPerShard(requests) => requests,
            Allowance::Nothing => return Ok(false),
        };
        let mut jobs = Vec::new();
        for (shard, (scratch, filled)) in self.files.iter().zip(filled_bytes.iter()).enumerate() {
            let left_bytes = scratch.len_bytes.saturating_sub(*filled);
            let wanted = left_bytes.min(piece_bytes) / u64::from(SEQUENTIAL_BYTES);
            let requests = u32::try_from(wanted).unwrap_or(u32::MAX).min(allowed);
            if requests == 0 {
                continue;
            }
            let fibers = (FILL_DEPTH / u32::from(self.shards())).clamp(1, requests);
            let name = format!("fill {shard}");
            let job = JobSpec::closed_loop(&name, Pattern::Overwrite, SEQUENTIAL_BYTES, fibers, Class::DEFAULT);
            // A job ends once more requests than its limit were made.
            let job = JobSpec { limit_requests: Some(requests - 1), ..job };
            let target = Target { file: scratch.file.clone(), offset: *filled, len_bytes: left_bytes };
            jobs.push(job.on_shard(shard as u16, target));
        }
        let (result, _) = self.run(jobs, 0.0, seconds)?;
        for (shard, filled) in result.shards.iter().zip(filled_bytes) {
            *filled += shard.jobs.iter().map(|job| job.bytes).sum::<u64>();
        }
        Ok(true)
    }

    /// Finds the depth for `aim` and measures it. `None` when there was no time, or nothing to write, for a sample.
    pub(super) fn figure(&mut self, aim: &Aim) -> Result<Option<Figure>, TuneError> {
        self.writes.begin_phase(aim.reserve_part);
        let rungs = f64::from((aim.depths.1 / aim.depths.0.max(1)).max(1).ilog2() + 1);
        let measure_s = self.schedule.phase_s * (1.0 + PHASE_WARMUP_PART);
        self.begin_phase(aim.name, rungs * (self.schedule.probe_s * 1.2) + measure_s);
        if aim.pattern.is_write() && self.writes.is_bounded() {
            // How fast this kind of write goes decides how long it can go on; the phase before may have been far
            // faster.
            let seconds = self.schedule.probe_s.min(self.writes.affordable_s() * FIRST_LOOK_PART);
            self.sample(aim, aim.depth_default, self.files.len(), seconds)?;
        }
        let probes = self.search(aim, rungs)?;
        let default_depth = series::whole_depth(aim.depth_default, self.shards());
        let depth = series::smallest_sufficient_depth(&probes).unwrap_or(default_depth);
        if self.control.is_stopped() {
            return Ok(None);
        }
        let figure = self.samples(aim, depth, probes)?;
        match &figure {
            Some(figure) => self.judge(aim.name, figure),
            None => self.warn_unmeasured(aim.name),
        }
        Ok(figure)
    }

    fn search(&mut self, aim: &Aim, rungs: f64) -> Result<Vec<Probe>, TuneError> {
        let mut probes = Vec::new();
        let mut probe_s = self.schedule.probe_s;
        if aim.pattern.is_write() {
            let affordable_s = self.writes.affordable_s() * SEARCH_PART / rungs;
            if affordable_s < probe_s / 4.0 {
                let message = format!("{}: too little may be written to search for the depth", aim.name);
                self.warn(WarningCode::MaxWrite, message);
                return Ok(probes);
            }
            probe_s = probe_s.min(affordable_s);
        }
        let mut depth = series::whole_depth(aim.depths.0, self.shards());
        while series::goes_deeper(depth, aim.depths.1, aim.depth_max, &probes) {
            let sample = self.sample(aim, depth, self.files.len(), probe_s)?;
            self.progress();
            match sample {
                Some(sample) if sample.is_clear && !self.control.is_stopped() => {
                    probes.push(Probe { depth, rate: sample.rate });
                }
                _ => break,
            }
            depth = depth.saturating_mul(2);
        }
        Ok(probes)
    }

    fn samples(&mut self, aim: &Aim, depth: u32, probes: Vec<Probe>) -> Result<Option<Figure>, TuneError> {
        let wanted_s = self.schedule.phase_s;
        let affordable_s = if aim.pattern.is_write() { self.writes.affordable_s() } else { f64::INFINITY };
        let seconds = wanted_s.min(affordable_s);
        if seconds < wanted_s {
            let message = format!("{}: measured for {seconds:.2} s, as no more may be written", aim.name);
            self.warn(WarningCode::MaxWrite, message);
        }
        let count = seconds.floor().max(SAMPLES_MIN);
        let sample_s = seconds / count;
        self.sample(aim, depth, self.files.len(), seconds * PHASE_WARMUP_PART)?;
        let mut samples: Vec<Sample> = Vec::new();
        while samples.len() < count as usize && !self.control.is_stopped() {
            let Some(sample) = self.sample(aim, depth, self.files.len(), sample_s)? else { break };
            if !sample.is_clear || (self.control.is_stopped() && !sample.is_long(sample_s)) {
                break;
            }
            samples.push(sample);
            self.progress();
        }
        let complete = samples.len() == count as usize && seconds >= wanted_s;
        let amount: u64 = samples.iter().map(|sample| sample.amount).sum();
        if amount == 0 {
            let is_silent = !samples.is_empty() && !self.control.is_stopped();
            return if is_silent { Err(TuneError::Silent { phase: aim.name, seconds }) } else { Ok(None) };
        }
        let elapsed_ns: u64 = samples.iter().map(|sample| sample.elapsed_ns).sum();
        let rates: Vec<f64> = samples.iter().map(|sample| sample.rate).collect();
        Ok(Some(Figure {
            value: amount as f64 * 1e9 / elapsed_ns.max(1) as f64,
            unit: aim.unit,
            deviation_pct: series::deviation_pct(&rates),
            samples: rates,
            sample_s,
            depth,
            block_bytes: aim.block_bytes,
            probes,
            cpu_busy_pct: busiest_pct(&samples, elapsed_ns),
            complete,
        }))
    }

    /// Says why there is no figure, unless somebody asked for the end: then it is clear.
    fn warn_unmeasured(&mut self, name: &'static str) {
        if !self.control.is_stopped() {
            self.warn(WarningCode::MaxWrite, format!("{name}: not measured, as no more may be written"));
        }
    }

    /// Says the figure aloud, and what is wrong with it.
    fn judge(&mut self, name: &'static str, figure: &Figure) {
        let value = match figure.unit {
            Unit::OperationsPerS => format!("{} IOPS", format_iops(figure.value)),
            Unit::BytesPerS => format_throughput_decimal(figure.value),
        };
        let (deviation_pct, depth) = (figure.deviation_pct, figure.depth);
        self.observer.on_progress(1.0);
        self.observer.on_note(&format!("{name}: {value}, deviation {deviation_pct:.1} %, depth {depth}"));
        if figure.cpu_busy_pct > CPU_BUSY_MAX_PCT {
            let message = format!(
                "{name}: a shard was {:.0} % busy, so the figure is rather that of the CPU: use more shards",
                figure.cpu_busy_pct
            );
            self.warn(WarningCode::CpuLimited, message);
        }
        if deviation_pct > DEVIATION_MAX_PCT {
            let message = format!(
                "{name}: the samples deviate by {deviation_pct:.1} %: is something else using the disk? Measure longer"
            );
            self.warn(WarningCode::Deviation, message);
        }
        let changed = series::change_pct(&figure.samples).filter(|percent| percent.abs() > CHANGE_MAX_PCT);
        if let Some(percent) = changed {
            let direction = if percent < 0.0 { "slower" } else { "faster" };
            let message = format!(
                "{name}: the last third of the samples was {:.0} % {direction} than the first (a cache, burst credits, \
                 garbage collection?): measure longer",
                percent.abs()
            );
            self.warn(WarningCode::StillChanging, message);
        }
    }

    /// Latency of one request at a time, on the first shard.
    pub(super) fn latency(&mut self, aim: &Aim) -> Result<Option<UnloadedLatency>, TuneError> {
        self.writes.begin_phase(aim.reserve_part);
        self.begin_phase(aim.name, self.schedule.latency_s * 1.2);
        let seconds = match aim.pattern.is_write() {
            true => self.schedule.latency_s.min(self.writes.affordable_s()),
            false => self.schedule.latency_s,
        };
        let Some(sample) = self.sample(aim, 1, 1, seconds)? else {
            self.warn_unmeasured(aim.name);
            return Ok(None);
        };
        if sample.latency.is_empty() {
            return Ok(None);
        }
        let latency = UnloadedLatency {
            p50_ns: sample.latency.percentile(50.0),
            p99_ns: sample.latency.percentile(99.0),
            requests: sample.amount,
            block_bytes: aim.block_bytes,
        };
        self.observer.on_progress(1.0);
        let (p50, p99) = (format_duration_ns(latency.p50_ns), format_duration_ns(latency.p99_ns));
        self.observer.on_note(&format!("{}: median {p50}, 99 % within {p99}", aim.name));
        Ok(Some(latency))
    }

    /// One run of `aim` with `depth` requests under way, over the first `shards` shards; again when the machine was so
    /// busy that most of the run went by before its threads began. `None` when no more may be written.
    fn sample(&mut self, aim: &Aim, depth: u32, shards: usize, seconds: f64) -> Result<Option<Sample>, TuneError> {
        let mut sample = self.sample_once(aim, depth, shards, seconds)?;
        for _ in 0..LATE_RUNS_MAX {
            let is_late = sample.as_ref().is_some_and(|sample| !sample.is_long(seconds));
            if !is_late || self.control.is_stopped() {
                break;
            }
            sample = self.sample_once(aim, depth, shards, seconds)?;
        }
        Ok(sample)
    }

    fn sample_once(&mut self, aim: &Aim, depth: u32, shards: usize, seconds: f64) -> Result<Option<Sample>, TuneError> {
        let count = shards.clamp(1, self.files.len().max(1)) as u16;
        let fibers = (depth / u32::from(count)).max(1);
        let mut job = JobSpec::closed_loop(aim.name, aim.pattern, aim.block_bytes, fibers, Class::DEFAULT);
        if aim.pattern.is_write() {
            match self.writes.allowance(aim.block_bytes, count, fibers) {
                Allowance::Unlimited => {}
                Allowance::RequestsPerShard(requests) => job.limit_requests = Some(requests.saturating_sub(1)),
                Allowance::Nothing => return Ok(None),
            }
        }
        let is_sequential = matches!(aim.pattern, Pattern::SeqRead | Pattern::Overwrite);
        for (shard, scratch) in self.files.iter().enumerate().take(shards) {
            let offset = if is_sequential { scratch.cursor_bytes } else { 0 };
            let target = Target { file: scratch.file.clone(), offset, len_bytes: scratch.len_bytes - offset };
            job = job.on_shard(shard as u16, target);
        }
        let warmup_s = (seconds / 4.0).min(RUN_WARMUP_MAX_S);
        let (result, is_clear) = self.run(vec![job], warmup_s, seconds)?;
        if is_sequential {
            self.advance_cursors(&result);
        }
        let total = result.total(aim.name);
        let (amount, rate) = match aim.unit {
            Unit::OperationsPerS => (total.requests, total.iops()),
            Unit::BytesPerS => (total.bytes, total.bytes_per_s()),
        };
        let cpu_ns = result.shards.iter().map(|shard| shard.cpu_ns).collect();
        Ok(Some(Sample { rate, amount, elapsed_ns: total.elapsed_ns, cpu_ns, latency: total.latency, is_clear }))
    }

    /// The next sequential run goes on where this one ended, or at the beginning when little of the file is left.
    fn advance_cursors(&mut self, result: &RunResult) {
        for (scratch, shard) in self.files.iter_mut().zip(&result.shards) {
            let moved_bytes: u64 = shard.jobs.iter().map(|job| job.bytes).sum();
            let next_bytes = scratch.cursor_bytes.saturating_add(moved_bytes);
            scratch.cursor_bytes = if next_bytes <= scratch.len_bytes / 4 * 3 { next_bytes } else { 0 };
        }
    }

    /// Runs `jobs`; a failed request is an error. Also answers whether the run stayed clear of the bound on writes.
    fn run(&mut self, jobs: Vec<JobSpec>, warmup_s: f64, seconds: f64) -> Result<(RunResult, bool), TuneError> {
        self.seed = self.seed.wrapping_add(1);
        let plan = Plan {
            topology: self.topology.clone(),
            options: self.shard_options.clone(),
            jobs,
            warmup_ns: (warmup_s * 1e9) as u64,
            duration_ns: ((seconds * 1e9) as u64).max(1),
            seed: self.seed,
        };
        let written_before = self.control.written_bytes();
        let begin = Instant::now();
        let result = run(&plan, self.control)?;
        let written_bytes = self.control.written_bytes().saturating_sub(written_before);
        // Less than was planned where all requests that the run may make were made before.
        let elapsed_s = begin.elapsed().as_secs_f64().min(warmup_s + seconds);
        let is_clear = self.writes.note(written_bytes, elapsed_s);
        let jobs = || result.shards.iter().flat_map(|shard| &shard.jobs);
        let errors: u64 = jobs().map(|job| job.errors).sum();
        if errors > 0 {
            let first = jobs().find_map(|job| job.first_error);
            return Err(TuneError::io(self.phase.0, errors, first));
        }
        Ok((result, is_clear))
    }
}

/// CPU use of the busiest shard over all samples, in per cent.
fn busiest_pct(samples: &[Sample], elapsed_ns: u64) -> f64 {
    let shards = samples.iter().map(|sample| sample.cpu_ns.len()).max().unwrap_or(0);
    let cpu_ns = |shard: usize| samples.iter().filter_map(|sample| sample.cpu_ns.get(shard)).sum::<u64>();
    let busiest_ns = (0..shards).map(cpu_ns).max().unwrap_or(0);
    busiest_ns as f64 * 100.0 / elapsed_ns.max(1) as f64
}
