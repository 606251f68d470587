//! Conducts a measurement: chooses loads and lengths, and decides when a figure is known precisely enough.
//!
//! **Why.** A fixed time is too long for a steady disk and too short for one that still changes.
//!
//! **How.** Phases follow one another ([`super::record::Header::phases`]). Each puts loads on the rig, records every
//! sample, and decides from the record how to continue ([`crate::tune::study`]): the protocol itself keeps no figures.
//! So a record that a crash interrupted can be continued after its last complete phase, and a later analysis of a
//! record gives the same figures.
//!
//! A figure is a search over depths, then samples at the smallest depth that gets (nearly) the most, until their 95 %
//! interval is narrow and the transient at their beginning is clearly over. If other programs moved more than
//! [`found::FOREIGN_MAX_PCT`] of the bytes meanwhile, the phase is repeated.
//!
//! **Limits.** Because decisions depend on samples, the length of a measurement depends on the disk's noise.
//!
//! **Example.** Random reads, two shards, depths 2, 4, ... 256 with 9, 17, ... 96, 96 thousand operations/s: depth 64
//! is taken, and after 8 s in samples of 0.5 s the interval is within 0.7 %: enough.

use plimsoll_figures::series;
use plimsoll_figures::units::format_bytes_binary;
use plimsoll_files::io_properties::IOPS_BLOCK_BYTES;

use super::budget::WriteBudget;
use super::record::{Entry, Load, Order, Phase, Recorder, Sample, Step, Stream};
use super::report::{Warning, WarningCode};
use super::rig::Rig;
use super::study::phases::{FOREIGN_MAX_PCT, SEQUENTIAL_FIRST_POWER, sizes_bytes};
use super::study::{self, phases as found};
use super::timing::Timing;
use super::{Mode, Observer, SEQUENTIAL_BYTES, TuneError};

/// Highest depths of a search for bandwidth: the first is always reached, the second (per disk) if the rate still
/// rises.
const BANDWIDTH_DEPTHS: (u32, u32) = (32, 64);
/// Highest depths of a search for IOPS, as for bandwidth.
const IOPS_DEPTHS: (u32, u32) = (256, 1024);
/// Requests under way in the search for the physical block.
const BLOCK_DEPTH: u32 = 32;
/// Sizes tried for the physical block, in bytes; the longest first (see [`Protocol::curve`]).
const BLOCK_SIZES_BYTES: [u32; 6] = [16384, 8192, 4096, 2048, 1024, 512];
/// Length in bytes of the writes beside which reads are measured, and most of them under way, as in diskplorer.
const FRONTIER_WRITE_BYTES: u32 = 128 << 10;
const FRONTIER_WRITE_DEPTH: u32 = 64;
/// Length in bytes and number under way of the sequential writes of preconditioning.
const PRECONDITION_BYTES: u32 = 128 << 10;
const PRECONDITION_DEPTH: u32 = 64;
/// Most bytes under way in a curve over sizes.
const CURVE_MAX_BYTES: u32 = 64 << 20;
/// Length in seconds from which on a sample without a completion is not repeated: the disk then counts as stuck.
const SILENT_S: f64 = 4.0;
/// Longest time by which the first attempt at an optional phase may exceed the total time, in seconds. Repeated
/// attempts may not exceed it.
const GRACE_S: f64 = 3.0;
/// Shortest affordable length of a figure, in seconds. Below it, the figure uses the write reserve of later phases.
const SAMPLE_MIN_S: f64 = 0.01;
/// Fewest requests of a sample, if time allows: one more or less is then within 1 %.
const SAMPLE_MIN_REQUESTS: f64 = 100.0;
/// Shortest step of a mix of reads and writes, in seconds, if few writes are left. Steps of 20 ms on a busy machine
/// found exponents of 0.4 instead of the true 1, and a scheduler that believes 0.4 leaves the disk idle.
const RAY_MIN_S: f64 = 0.05;
/// Part of a phase's write budget for the search for its depth.
const SEARCH_PART: f64 = 0.25;

/// Power of two of the shortest random request in a curve over sizes: 512 bytes.
const RANDOM_FIRST_POWER: u32 = 9;

/// Returns the reads and writes that completed in a sample.
fn requests(sample: &Sample) -> u64 {
    [sample.reads, sample.writes].iter().flatten().map(|moved| moved.requests).sum()
}

pub(super) struct Protocol<'a> {
    pub(super) rig: &'a mut dyn Rig,
    pub(super) recorder: Recorder,
    pub(super) observer: &'a mut dyn Observer,
    timing: Timing,
    budget: WriteBudget,
    disks: u32,
    phase: Phase,
    attempt: u32,
    begin_s: f64,
    expected_s: f64,
}

impl<'a> Protocol<'a> {
    pub(super) fn new(rig: &'a mut dyn Rig, recorder: Recorder, observer: &'a mut dyn Observer) -> Protocol<'a> {
        let header = &recorder.record.header;
        let disks = header.site.device.as_ref().map_or(1, |device| device.leaves.len() as u32).clamp(1, 64);
        Protocol {
            timing: Timing::of(header.mode, header.phase_s),
            budget: WriteBudget::new(
                header.max_write_bytes.map(|max| max.saturating_sub(recorder.written_before_bytes)),
            ),
            disks,
            rig,
            recorder,
            observer,
            phase: Phase::Fill,
            attempt: 0,
            begin_s: 0.0,
            expected_s: 0.0,
        }
    }

    /// Runs all phases that are not complete, until a stop.
    pub(super) fn run(&mut self) -> Result<(), TuneError> {
        // Reported at the end, after the last complete phase: a resumed run may still measure them.
        let mut left_out = Vec::new();
        let pending = self.recorder.record.header.phases().into_iter();
        let pending = pending.filter(|phase| !self.recorder.record.is_done(*phase));
        self.observer.on_plan(pending.map(|phase| self.expected_s(phase)).filter(|seconds| seconds.is_finite()).sum());
        for phase in self.recorder.record.header.phases() {
            if self.rig.is_stopped() {
                break;
            }
            // A crash loses the scratch data, and with it the preconditioning for the rounds.
            let is_remade =
                phase == Phase::Fill || (phase == Phase::Precondition && !self.recorder.record.is_done(Phase::Rounds));
            if self.recorder.record.is_done(phase) && !is_remade {
                continue;
            }
            let is_wanted = !matches!(phase, Phase::Sizes | Phase::SequentialSizes | Phase::Frontier);
            if is_wanted || self.rig.now_s() + self.expected_s(phase) <= self.timing.total_max_s + GRACE_S {
                match self.phase(phase) {
                    // The four figures are valid without these phases: keep them.
                    Err(error) if phase > Phase::Rounds || phase == Phase::Blocks => {
                        self.warn(WarningCode::NotMeasured, format!("{}: {error}", phase.name()))?;
                    }
                    other => other?,
                }
            } else {
                left_out.push(phase);
            }
        }

        for phase in left_out {
            let name = phase.name();
            let message = format!("{name}: left out, as the time is over; the machine is busy, or use the longer mode");
            self.warn(WarningCode::NotMeasured, message)?;
        }

        let end = Entry::End {
            written_bytes: self.recorder.written_before_bytes + self.rig.written_bytes(),
            duration_s: self.recorder.before_s + self.rig.now_s(),
            interrupted: self.rig.is_stopped(),
        };
        self.recorder.push(end)
    }

    fn phase(&mut self, phase: Phase) -> Result<(), TuneError> {
        self.phase = phase;
        // A phase repeated after a crash gets new attempt numbers.
        let is_made = self.recorder.record.has_samples(phase);
        let first = if is_made { self.recorder.record.last_attempt(phase) + 1 } else { 0 };
        for attempt in first..first + self.timing.attempts_max.max(1) {
            self.attempt = attempt;
            (self.expected_s, self.begin_s) = (self.expected_s(phase), self.rig.now_s());
            self.observer.on_phase(phase.name(), self.expected_s);
            self.once(phase)?;
            if self.rig.is_stopped() {
                return Ok(());
            }

            let took_s = self.rig.now_s() - self.begin_s;
            let foreign_pct = self.recorder.record.foreign_pct(phase, attempt).unwrap_or(0.0);
            let is_clean = foreign_pct <= FOREIGN_MAX_PCT || matches!(phase, Phase::Fill | Phase::Precondition);
            let later = self.recorder.record.header.phases();
            let later_s: f64 =
                later.into_iter().filter(|later| *later > phase).map(|later| self.expected_s(later)).sum();
            if is_clean || self.rig.now_s() + took_s + later_s > self.timing.total_max_s {
                break;
            }
            if attempt + 1 < first + self.timing.attempts_max {
                let name = phase.name();
                self.observer.on_note(&format!("{name}: {foreign_pct:.1} % of the I/O was not ours; once more"));
            }
        }

        let written_bytes = self.recorder.written_before_bytes + self.rig.written_bytes();
        self.recorder.push(Entry::Done { phase, attempts: self.attempt + 1, written_bytes })?;
        self.observer.on_progress(1.0);

        if let Some(line) = study::remark(&self.recorder.record, phase) {
            self.observer.on_note(&line);
        }
        Ok(())
    }

    fn expected_s(&self, phase: Phase) -> f64 {
        let timing = &self.timing;
        let searches = |depths: f64| depths * timing.search_s * 1.3;
        let is_full = self.recorder.record.header.mode == Mode::Full;
        let figure_s = if is_full { 0.0 } else { timing.figure_max_s * 1.2 };
        let header = &self.recorder.record.header;
        match phase {
            Phase::Fill => timing.fill_max_s,
            Phase::Precondition => f64::INFINITY,
            Phase::Blocks => f64::from(timing.block_rounds) * 8.0 * timing.block_s * 1.3,
            Phase::WriteBandwidth | Phase::ReadBandwidth => searches(6.0) + figure_s,
            Phase::WriteIops | Phase::ReadIops => searches(9.0) + figure_s,
            Phase::Rounds => f64::from(header.rounds_max) * header.round_s * 4.0,
            Phase::Sizes => f64::from(timing.size_rounds) * 24.0 * timing.size_s * 1.3,
            Phase::SequentialSizes => f64::from(timing.size_rounds) * 18.0 * timing.size_s * 1.3,
            Phase::Frontier => (2.0 + f64::from(timing.rays * timing.bisections)) * timing.ray_s * 1.2,
            Phase::Costs => 3.0,
        }
    }

    fn once(&mut self, phase: Phase) -> Result<(), TuneError> {
        match phase {
            Phase::Fill => self.fill(),
            Phase::Precondition => self.precondition(),
            Phase::Blocks => self.blocks(),
            Phase::WriteBandwidth | Phase::ReadBandwidth | Phase::WriteIops | Phase::ReadIops => self.figure(phase),
            Phase::Rounds => self.rounds(),
            Phase::Sizes => self.sizes(),
            Phase::SequentialSizes => self.sequential_sizes(),
            Phase::Frontier => self.frontier(),
            Phase::Costs => {
                let costs = self.rig.costs()?;
                self.recorder.push(costs)
            }
        }
    }

    fn warn(&mut self, code: WarningCode, message: String) -> Result<(), TuneError> {
        self.recorder.push(Entry::Warned(Warning { code, message }))
    }

    fn fill(&mut self) -> Result<(), TuneError> {
        let (begin_s, wanted_bytes) = (self.rig.now_s(), self.recorder.record.header.data_bytes);
        let (rig, observer) = (&mut *self.rig, &mut *self.observer);
        let data_bytes = rig.fill(wanted_bytes, self.timing.fill_max_s, &mut |part| observer.on_progress(part))?;
        let seconds = self.rig.now_s() - begin_s;
        self.budget.note(data_bytes, seconds);
        self.recorder.push(Entry::Filled { data_bytes, seconds })?;

        if data_bytes < wanted_bytes && !self.rig.is_stopped() {
            let message = format!(
                "only {} of {} of scratch data were written in {seconds:.0} s; a cache in the disk may hold all of it",
                format_bytes_binary(data_bytes),
                format_bytes_binary(wanted_bytes),
            );
            self.warn(WarningCode::LessData, message)?;
        }
        Ok(())
    }

    /// Writes twice the data, sequentially, as SNIA's specification begins: within the measured range, the disk then
    /// works as after long use. Spare space beyond that range still helps the disk; the report states the range's part
    /// of the disk.
    fn precondition(&mut self) -> Result<(), TuneError> {
        let wanted_bytes = 2 * self.recorder.record.data_bytes();
        let stream = self.stream(Order::Sequential, PRECONDITION_BYTES, PRECONDITION_DEPTH);
        self.budget.begin_phase(0.5);
        let mut written_bytes = 0;
        while written_bytes < wanted_bytes {
            match self.sample(Step::Warmup, Load::writes(stream, self.timing.search_s))? {
                Some(sample) => written_bytes += sample.moved().bytes,
                None => return self.warn_cut(),
            }
            self.observer.on_progress(written_bytes as f64 / wanted_bytes as f64);
        }
        Ok(())
    }

    fn blocks(&mut self) -> Result<(), TuneError> {
        let align_bytes = self.recorder.record.header.align_bytes.max(1);
        self.budget.begin_phase(0.95);
        for _ in 0..self.timing.block_rounds {
            for block_bytes in BLOCK_SIZES_BYTES.into_iter().filter(|bytes| bytes.is_multiple_of(align_bytes)) {
                let stream = self.stream(Order::Random, block_bytes, BLOCK_DEPTH * self.disks);
                if self.sample(Step::Search, Load::writes(stream, self.timing.block_s))?.is_none() {
                    return Ok(());
                }
                let shift_bytes = found::SHIFT_BYTES;
                if block_bytes == IOPS_BLOCK_BYTES && shift_bytes.is_multiple_of(align_bytes) {
                    let shifted = Stream { shift_bytes, ..stream };
                    self.sample(Step::Search, Load::writes(shifted, self.timing.block_s))?;
                }
            }
        }
        Ok(())
    }

    /// Finds the depth of one of the four figures and (unless rounds follow) takes its samples.
    fn figure(&mut self, phase: Phase) -> Result<(), TuneError> {
        let (usual, most) = match phase {
            Phase::WriteBandwidth | Phase::ReadBandwidth => BANDWIDTH_DEPTHS,
            _ => IOPS_DEPTHS,
        };

        // Later writing phases need the reserve: IOPS, then curves and mixes.
        self.budget.begin_phase(match phase {
            Phase::WriteBandwidth => 0.6,
            _ => 0.4,
        });

        self.search(phase, usual, most * self.disks)?;
        if self.rig.is_stopped() || self.recorder.record.header.mode == Mode::Full {
            return Ok(());
        }

        let depth = self.depth(phase);
        self.measure(phase, depth)
    }

    fn search(&mut self, phase: Phase, usual: u32, most: u32) -> Result<(), TuneError> {
        let is_write = matches!(phase, Phase::WriteBandwidth | Phase::WriteIops);
        let mut search_s = self.timing.search_s;
        if is_write {
            if self.budget.is_bounded() {
                // The rate of this kind of write determines how long it can continue; the phase before may have been
                // far faster.
                let load = self.figure_load(phase, usual / 2, search_s.min(self.budget.affordable_s() * 0.1));
                self.sample(Step::Warmup, load)?;
            }

            let affordable_s = self.budget.affordable_s() * SEARCH_PART / f64::from(usual.ilog2() + 1);
            if affordable_s < search_s / 4.0 {
                let message = format!("{}: too little may be written to search for the depth", phase.name());
                return self.warn(WarningCode::MaxWrite, message);
            }
            search_s = search_s.min(affordable_s);
        }

        let mut depth = 1;
        loop {
            let probes = found::search(&self.recorder.record, phase, self.attempt);
            if !series::goes_deeper(depth, usual, most, &probes) || self.rig.is_stopped() {
                return Ok(());
            }
            let load = self.figure_load(phase, depth, search_s);
            if self.sample(Step::Search, load)?.is_none() {
                return Ok(());
            }
            self.progress();
            depth *= 2;
        }
    }

    /// Takes samples of a figure until it is known precisely enough.
    fn measure(&mut self, phase: Phase, depth: u32) -> Result<(), TuneError> {
        let timing = self.timing;
        let is_write = matches!(phase, Phase::WriteBandwidth | Phase::WriteIops);
        if is_write && self.budget.affordable_s() < SAMPLE_MIN_S {
            // A sample here matters more than the reserve of later phases: without it there is no figure.
            self.budget.end_reserve();
        }

        let affordable_s = if is_write { self.budget.affordable_s() } else { f64::INFINITY };
        let max_s = timing.figure_max_s.min(affordable_s);
        if max_s < timing.figure_min_s {
            let message = format!("{}: measured for {max_s:.2} s, as no more may be written", phase.name());
            self.warn(WarningCode::MaxWrite, message)?;
        }

        let sample_s = timing.sample_s.max(self.whole_requests_s(phase)).min(max_s / 4.0);
        let begin_s = self.rig.now_s();
        let mut rates = Vec::new();
        loop {
            let measured_s = sample_s * rates.len() as f64;
            let is_over = measured_s + sample_s * 0.5 > max_s
                // A machine too busy to run its threads takes few samples in a long time.
                || (rates.len() >= found::KNOWN_SAMPLES && self.rig.now_s() - begin_s > max_s * 1.6 + 1.0);
            let is_enough = measured_s + 1e-9 >= timing.figure_min_s.min(max_s)
                && found::is_known(&rates, timing.enough_pct)
                && timing.figure_min_s < timing.figure_max_s;
            if is_over || is_enough || self.rig.is_stopped() {
                return Ok(());
            }

            let load = self.figure_load(phase, depth, sample_s);
            let Some(sample) = self.sample(Step::Measure, load)? else { return Ok(()) };
            rates.push(sample.bytes_per_s(&sample.moved()));
            self.progress();
        }
    }

    /// Returns the length of a sample, in seconds, with enough requests that a fraction of a request at its end has
    /// little effect.
    fn whole_requests_s(&self, phase: Phase) -> f64 {
        let samples = self.recorder.record.attempt(phase, self.attempt, Step::Search);
        let iops = samples.iter().map(|sample| sample.iops(&sample.moved())).fold(0.0, f64::max);
        if iops > 0.0 { SAMPLE_MIN_REQUESTS / iops } else { 0.0 }
    }

    /// Measures rounds of all four figures until the last five rounds are steady.
    fn rounds(&mut self) -> Result<(), TuneError> {
        let (rounds_max, round_s) = (self.recorder.record.header.rounds_max, self.recorder.record.header.round_s);
        self.budget.begin_phase(0.2);
        for round in 0..rounds_max {
            for phase in [Phase::WriteBandwidth, Phase::ReadBandwidth, Phase::WriteIops, Phase::ReadIops] {
                let load = self.figure_load(phase, self.depth(phase), round_s);
                if self.sample(Step::Measure, load)?.is_none() {
                    return self.warn_cut();
                }
                self.progress();
            }
            self.observer.on_note(&format!("round {}: {}", round + 1, found::rounds_line(&self.recorder.record)));
            if found::steady_state(&self.recorder.record).is_some_and(|state| state.attained) {
                break;
            }
        }
        Ok(())
    }

    fn sizes(&mut self) -> Result<(), TuneError> {
        let depth = |depth: u32, bytes: u32| depth.min(CURVE_MAX_BYTES / bytes).max(1);
        let streams = |bytes: u32| {
            let reads = self.stream(Order::Random, bytes, depth(self.depth(Phase::ReadIops), bytes));
            let writes = self.stream(Order::Random, bytes, depth(self.depth(Phase::WriteIops), bytes));
            (reads, writes)
        };

        let streams =
            sizes_bytes(RANDOM_FIRST_POWER, self.recorder.record.header.align_bytes).into_iter().map(streams).collect();
        self.budget.begin_phase(0.6);
        self.curve(streams)
    }

    fn sequential_sizes(&mut self) -> Result<(), TuneError> {
        // The bytes under way that bandwidth needs, but no more requests than IOPS need.
        let depth = |long: u32, short: u32, bytes: u32| {
            long.saturating_mul(SEQUENTIAL_BYTES / bytes).clamp(long, short.max(long))
        };
        let streams = |bytes: u32| {
            let reads = depth(self.depth(Phase::ReadBandwidth), self.depth(Phase::ReadIops), bytes);
            let writes = depth(self.depth(Phase::WriteBandwidth), self.depth(Phase::WriteIops), bytes);
            (self.stream(Order::Sequential, bytes, reads), self.stream(Order::Sequential, bytes, writes))
        };

        let streams = sizes_bytes(SEQUENTIAL_FIRST_POWER, self.recorder.record.header.align_bytes)
            .into_iter()
            .map(streams)
            .collect();
        self.budget.begin_phase(0.5);
        self.curve(streams)
    }

    /// Measures reads of all sizes, then writes, the longest first: a buffer in the disk that counts bytes would hide
    /// the cost of short writes, unless it is full before they come.
    fn curve(&mut self, streams: Vec<(Stream, Stream)>) -> Result<(), TuneError> {
        let size_s = self.timing.size_s;
        for _ in 0..self.timing.size_rounds {
            let reads = streams.iter().map(|(reads, _)| Load::reads(*reads, size_s));
            let writes = streams.iter().rev().map(|(_, writes)| Load::writes(*writes, size_s));
            for load in reads.chain(writes) {
                if self.sample(Step::Search, load)?.is_none() && load.writes.is_some() {
                    return self.warn_cut();
                }
                self.progress();
            }
        }
        Ok(())
    }

    /// Warns that a phase ended early because the write bound is reached, unless the user asked for a stop.
    fn warn_cut(&mut self) -> Result<(), TuneError> {
        if self.rig.is_stopped() {
            return Ok(());
        }
        let message = format!("{}: cut short, as no more may be written", self.phase.name());
        self.warn(WarningCode::MaxWrite, message)
    }

    /// Measures reads alone, writes alone, and by bisection the most that the disk can do of each mix.
    fn frontier(&mut self) -> Result<(), TuneError> {
        self.budget.begin_phase(0.1);
        let read_bytes = self.recorder.record.header.read_block.bytes;
        let write_bytes = FRONTIER_WRITE_BYTES.max(self.recorder.record.header.align_bytes);
        let read_depth = self.depth(Phase::ReadIops);
        let reads = self.stream(Order::Random, read_bytes, read_depth);
        let writes = self.stream(Order::Sequential, write_bytes, FRONTIER_WRITE_DEPTH);
        if self.budget.is_bounded() {
            // The rate of these writes determines the length of a step; the phase before may have been far slower.
            self.sample(Step::Warmup, Load::writes(writes, self.timing.ray_s.min(RAY_MIN_S)))?;
        }

        let steps = f64::from(self.timing.rays * self.timing.bisections + 1);
        let ray_s = self.timing.ray_s.min(self.budget.affordable_s() / steps);
        if ray_s < self.timing.ray_s.min(RAY_MIN_S) {
            let message = format!(
                "reads beside writes: not measured: they write for {:.1} s at least, and --max-write leaves {:.1} s",
                steps * RAY_MIN_S,
                self.budget.affordable_s()
            );
            return self.warn(WarningCode::MaxWrite, message);
        }

        for load in [Load::reads(reads, ray_s), Load::writes(writes, ray_s)] {
            if self.sample(Step::Measure, load)?.is_none() {
                return Ok(());
            }
        }

        for (read_part, write_part) in found::rays(self.timing.rays) {
            // Try the full rates of both first: if reads and writes do not disturb each other, the disk can do them.
            let mut bounds = (0.0, 1.0);
            let mut scale = 1.0;
            for _ in 0..self.timing.bisections {
                let Some((read_max, write_max)) = found::frontier_ends(&self.recorder.record, self.attempt) else {
                    return Ok(());
                };
                let rate = |part: f64, most: f64| Some((part * scale * most).max(1.0));
                let load = Load {
                    // Twice the depth: requests at random times need more room than a closed loop.
                    reads: Some(Stream { rate_per_s: rate(read_part, read_max), depth: 2 * read_depth, ..reads }),
                    writes: Some(Stream { rate_per_s: rate(write_part, write_max), ..writes }),
                    seconds: ray_s,
                };
                let Some(sample) = self.sample(Step::Search, load)? else { return Ok(()) };
                self.progress();
                match found::is_carried(&sample) {
                    true if scale == 1.0 => break,
                    true => bounds.0 = scale,
                    false => bounds.1 = scale,
                }
                scale = (bounds.0 + bounds.1) / 2.0;
            }
        }
        Ok(())
    }

    fn figure_load(&self, phase: Phase, depth: u32, seconds: f64) -> Load {
        let record = &self.recorder.record;
        match phase {
            Phase::WriteBandwidth => Load::writes(self.stream(Order::Sequential, SEQUENTIAL_BYTES, depth), seconds),
            Phase::ReadBandwidth => Load::reads(self.stream(Order::Sequential, SEQUENTIAL_BYTES, depth), seconds),
            Phase::WriteIops => {
                Load::writes(self.stream(Order::Random, found::write_block(record).bytes, depth), seconds)
            }
            _ => Load::reads(self.stream(Order::Random, record.header.read_block.bytes, depth), seconds),
        }
    }

    /// Returns a closed loop, with the same depth on each shard that takes part.
    fn stream(&self, order: Order, block_bytes: u32, depth: u32) -> Stream {
        let shards = u32::from(self.recorder.record.header.shards.max(1));
        let depth = if depth <= shards { depth.max(1) } else { depth / shards * shards };
        Stream { order, block_bytes, depth, rate_per_s: None, shift_bytes: 0 }
    }

    /// Returns the depth that was found for one of the four figures.
    fn depth(&self, phase: Phase) -> u32 {
        let record = &self.recorder.record;
        let attempt = if phase == self.phase { self.attempt } else { record.best_attempt(phase) };
        found::depth(record, phase, attempt)
    }

    /// Makes one run. Returns `None` if the user asked for a stop or the write bound is reached: the phase is over.
    fn sample(&mut self, step: Step, load: Load) -> Result<Option<Sample>, TuneError> {
        if self.rig.is_stopped() {
            return Ok(None);
        }

        let mut load = load;
        if load.writes.is_some() {
            load.seconds = load.seconds.min(self.budget.affordable_s());
            if load.seconds < 1e-3 && self.budget.is_bounded() {
                return Ok(None);
            }
        }

        let written_before = self.rig.written_bytes();
        let begin_s = self.rig.now_s();
        let mut sample = self.rig.run(&load)?;
        // Without a single completion, the disk is slow or the machine busy: try longer spans, up to a bound.
        while requests(&sample) == 0 && load.seconds < SILENT_S && !sample.is_cut && !self.rig.is_stopped() {
            load.seconds *= 4.0;
            sample = self.rig.run(&load)?;
        }

        let written_bytes = self.rig.written_bytes().saturating_sub(written_before);
        self.budget.note(written_bytes, (self.rig.now_s() - begin_s).min(load.seconds * 1.25));
        let is_short = self.rig.is_stopped() && sample.elapsed_s < load.seconds * 0.5;
        if sample.is_cut || is_short {
            return Ok(None);
        }

        if requests(&sample) == 0 && !self.rig.is_stopped() {
            return Err(TuneError::Silent { phase: self.phase.name(), seconds: load.seconds });
        }

        sample.at_s += self.recorder.before_s;
        let (phase, attempt) = (self.phase, self.attempt);
        self.recorder.push(Entry::Sample { phase, attempt, step, sample })?;
        Ok(Some(sample))
    }

    fn progress(&mut self) {
        if self.expected_s.is_finite() && self.expected_s > 0.0 {
            let part = (self.rig.now_s() - self.begin_s) / self.expected_s;
            self.observer.on_progress(part.clamp(0.0, 1.0));
        }
    }
}
