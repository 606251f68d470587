//! `plimsoll demo`: what scheduling does for a query while background work wants the whole disk.
//!
//! # Why
//! One minute should show what the project is for, on the user's own disk.
//!
//! # How it works
//! Three situations, in turns so that a disk that changes its mind treats them alike: 4 KiB random reads at a fixed rate
//! (class query) *alone*; the same beside 4 x 32 outstanding 128 KiB requests (compaction reads and writes, repair reads,
//! repair writes) *drained*, everything sent as it comes; and the same *scheduled*. The classes and shares are those of
//! Scylla 1.0.
//!
//! Before that the disk is measured ([`crate::tune`]), briefly, and two things are found that four figures do not say:
//! * the exponent p of the read/write mix, from one drained mix (r/R)^p + (w/W)^p = 1;
//! * the knee of the mix: the smallest window of device time with 93 % of the drained throughput. That is how much
//!   the scheduler leaves in the device; the rest of the queue waits where a query can pass it.
//!
//! # Limits
//! Short slices on a noisy disk: the figures are a demonstration, not a measurement. At most [`MAX_WRITE_BYTES`] are
//! written; on a disk that writes fast the slices become shorter.

use std::path::PathBuf;

use plimsoll::backend::OpenOptions;
use plimsoll::backend::choose::BackendKind;
use plimsoll::core::{CostForm, CostModel, DiskConfig, FourFigures, MixExponent, Op};
use plimsoll::{Class, Classes, DiskMode, DiskSetup, ShardOptions, Topology};
use serde::Serialize;

use crate::load::{
    Control, JobResult, JobSpec, LoadError, Pattern, PauseDistribution, Plan, RunResult, Scratch, ScratchError, Target,
};
use crate::report::Latency;
use crate::tune::{Observer, TuneError, TuneOptions, TuneReport};

/// What a demo writes at the most, in bytes.
pub const MAX_WRITE_BYTES: u64 = 8 << 30;
/// Of that, measuring the disk.
const TUNE_WRITE_BYTES: u64 = 2 << 30;
/// Scratch data to measure with.
const TUNE_DATA_BYTES: u64 = 512 << 20;
/// The file that the classes work on.
const DATA_BYTES: u64 = 512 << 20;
/// Queries a second, where the disk can do twenty times as many.
const QUERIES_PER_S: f64 = 2000.0;
/// Turns of the three situations.
const ROUNDS: u32 = 3;
/// Length of a slice alone, in seconds.
const ALONE_S: f64 = 2.0;
/// Longest slice under load.
const SLICE_MAX_S: f64 = 3.0;
/// Length of a slice while searching, as a part of one under load.
const PROBE_PART: f64 = 0.25;
/// Figures measured in seconds are a moment's: the rates get this much headroom, so that the window (the disk itself) is
/// what limits, and not a model that was measured in a bad moment.
const HEADROOM: f64 = 1.25;
/// Not counted at the beginning of each slice.
const WARMUP_S: f64 = 0.05;
/// Length of a background request.
const BACKGROUND_BYTES: u32 = 128 << 10;
/// Background requests of each job outstanding.
const BACKGROUND_DEPTH: u32 = 32;
/// A window with this much of the drained throughput is wide enough.
const KNEE_PART: f64 = 0.93;
/// Windows tried at the most, each wider than the last by [`PROBE_STEP`].
const PROBES_MAX: i32 = 10;
const PROBE_STEP: f64 = 1.25;

/// Scylla's first classes (2016) and their shares; `default` exists by itself.
const CLASSES: [(&str, u32); 6] = [
    ("commitlog", 100),
    ("memtable", 100),
    ("compaction", 100),
    ("query", 100),
    ("repair-read", 20),
    ("repair-write", 20),
];

/// Background jobs: name, class, what they do.
const BACKGROUND: [(&str, &str, Pattern); 4] = [
    ("compaction reads", "compaction", Pattern::RandRead),
    ("compaction writes", "compaction", Pattern::RandWrite),
    ("repair reads", "repair-read", Pattern::RandRead),
    ("repair writes", "repair-write", Pattern::RandWrite),
];

/// Where and with what.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// The directory whose disk is shown.
    pub directory: PathBuf,
    /// Backend; `None` takes the best that there is.
    pub backend: Option<BackendKind>,
    /// Seed.
    pub seed: u64,
    /// Scales all times; 1 for people, less for tests.
    pub pace: f64,
}

/// Why there is no demo.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DemoError {
    /// The disk could not be measured.
    #[error(transparent)]
    Tune(#[from] TuneError),
    /// The file could not be made.
    #[error(transparent)]
    Scratch(#[from] ScratchError),
    /// A run failed.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Stopped while the disk was being measured: what was known of it by then.
    #[error("interrupted while measuring the disk; scratch files are removed")]
    Interrupted(Box<TuneReport>),
}

/// One class in one situation.
#[derive(Clone, Debug, Serialize)]
pub struct ClassLine {
    /// Class.
    pub class: String,
    /// Shares.
    pub shares: u32,
    /// Requests a second.
    pub iops: f64,
    /// Bytes a second.
    pub throughput_bytes_per_s: f64,
    /// Part of the device time that its shares entitle it to, in per cent; for the query, what it asked for.
    pub share_wanted_pct: f64,
    /// Part that it got.
    pub share_got_pct: f64,
    /// Of its requests.
    pub latency: Latency,
    /// Mean number of its requests in the device.
    pub device_depth: f64,
}

/// One situation.
#[derive(Clone, Debug, Serialize)]
pub struct Situation {
    /// `alone`, `drained` or `scheduled`.
    pub name: String,
    /// Classes with work.
    pub classes: Vec<ClassLine>,
    /// Of all classes.
    pub throughput_bytes_per_s: f64,
}

/// A tried window.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct WindowProbe {
    /// Device time in the device at the most.
    pub window_us: f64,
    /// Throughput with it, as a part of the drained one measured beside it.
    pub part_of_drained: f64,
}

/// What the demo showed. The schema of its JSON.
#[derive(Clone, Debug, Serialize)]
pub struct DemoReport {
    /// Version of the program.
    pub plimsoll: &'static str,
    /// The disk.
    pub disk: TuneReport,
    /// Exponent of the read/write mix.
    pub mix_exponent: f64,
    /// Windows tried for the knee.
    pub windows: Vec<WindowProbe>,
    /// The window that was chosen.
    pub window_us: f64,
    /// The three situations.
    pub situations: Vec<Situation>,
    /// Scheduled query p99 over that alone.
    pub p99_ratio: f64,
    /// Scheduled throughput over the drained one.
    pub throughput_ratio: f64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Whether it was stopped before its time.
    pub interrupted: bool,
    /// What happened, in one sentence.
    pub sentence: String,
}

/// Runs the demo.
///
/// # Errors
/// See [`DemoError`]. Nothing is left behind.
pub fn run(options: &DemoOptions, observer: &mut dyn Observer, control: &Control) -> Result<DemoReport, DemoError> {
    let disk = measure_disk(options, observer, control)?;
    let Ok(figures) = disk.four_figures() else { return Err(DemoError::Interrupted(Box::new(disk))) };
    let mut stage = Stage::set_up(options, &disk, &figures, control)?;
    observer.on_phase("finding the knee", 2.0 * f64::from(PROBES_MAX) * stage.probe_s);
    let windows = stage.find_knee(observer)?;
    let mut alone = Merged::default();
    let mut drained = Merged::default();
    let mut scheduled = Merged::default();
    observer.on_phase("alone, drained, scheduled", f64::from(ROUNDS) * (ALONE_S * options.pace + 2.0 * stage.slice_s));
    for round in 0..ROUNDS {
        alone.add(&stage.slice(Way::Alone, ALONE_S * options.pace)?);
        drained.add(&stage.slice(Way::Drained, stage.slice_s)?);
        scheduled.add(&stage.slice(Way::Scheduled, stage.slice_s)?);
        observer.on_progress(f64::from(round + 1) / f64::from(ROUNDS));
        if control.is_stopped() {
            break;
        }
    }
    Ok(stage.report(disk, windows, [alone, drained, scheduled]))
}

fn measure_disk(
    options: &DemoOptions,
    observer: &mut dyn Observer,
    control: &Control,
) -> Result<TuneReport, DemoError> {
    let tune = TuneOptions {
        backend: options.backend,
        data_bytes: TUNE_DATA_BYTES,
        max_write_bytes: Some(TUNE_WRITE_BYTES),
        phase_s: Some(1.5 * options.pace),
        shards: 1,
        seed: options.seed,
        ..TuneOptions::quick(&options.directory)
    };
    let report = crate::tune::measure(&tune, observer, control)?;
    if report.interrupted { Err(DemoError::Interrupted(Box::new(report))) } else { Ok(report) }
}

/// How a slice is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Alone,
    Drained,
    Scheduled,
}

/// The file, the model and the classes: everything that the slices share.
struct Stage<'a> {
    options: &'a DemoOptions,
    control: &'a Control,
    path: PathBuf,
    /// Removes the file.
    _scratch: Scratch,
    model: CostModel,
    mix: MixExponent,
    window_ns: u64,
    queries_per_s: f64,
    slice_s: f64,
    probe_s: f64,
}

impl<'a> Stage<'a> {
    fn set_up(
        options: &'a DemoOptions,
        disk: &TuneReport,
        figures: &FourFigures,
        control: &'a Control,
    ) -> Result<Stage<'a>, DemoError> {
        let mut scratch = Scratch::new(&options.directory, DATA_BYTES)?;
        let path = scratch.create("plimsoll-demo-data")?;
        if !in_memory(options.backend) {
            scratch.fill(&[(path.clone(), DATA_BYTES)], options.backend, control)?;
        }
        let (read_block, write_block) = (disk.read_block.bytes.max(4096), disk.write_block.bytes.max(4096));
        let model = CostModel::from_figures(&figures.scaled(HEADROOM), CostForm::Knee, read_block, write_block);
        let read_iops = figures.read_iops.get().unwrap_or(u64::MAX) as f64;
        let slice_s = slice_s(&model, control.written_bytes()) * options.pace;
        Ok(Stage {
            options,
            control,
            path,
            _scratch: scratch,
            model,
            mix: MixExponent::LINEAR,
            window_ns: u64::MAX,
            queries_per_s: QUERIES_PER_S.min(read_iops / 20.0).max(1.0),
            slice_s,
            probe_s: slice_s * PROBE_PART,
        })
    }

    /// Tries windows from one request on, each beside a drained slice, and keeps the first that is wide enough twice:
    /// a disk that changes its mind may flatter one probe.
    fn find_knee(&mut self, observer: &mut dyn Observer) -> Result<Vec<WindowProbe>, DemoError> {
        let read_ns = self.model.cost(Op::Read, BACKGROUND_BYTES).as_ns_ceil();
        let write_ns = self.model.cost(Op::Write, BACKGROUND_BYTES).as_ns_ceil();
        let narrowest_ns = 0.6 * read_ns.max(write_ns) as f64;
        let mut probes = Vec::new();
        for step in 0..PROBES_MAX {
            self.window_ns = (narrowest_ns * PROBE_STEP.powi(step)) as u64;
            let mut parts = Vec::new();
            while parts.len() < 2 {
                let drained = self.slice(Way::Drained, self.probe_s)?;
                if probes.is_empty() && parts.is_empty() {
                    self.mix = mix_of(&drained, &self.model);
                }
                let scheduled = self.slice(Way::Scheduled, self.probe_s)?;
                parts.push(scheduled.bytes_per_s() / drained.bytes_per_s().max(1.0));
                if parts[0] < KNEE_PART {
                    break;
                }
            }
            let part_of_drained = parts.iter().sum::<f64>() / parts.len() as f64;
            probes.push(WindowProbe { window_us: self.window_ns as f64 / 1e3, part_of_drained });
            observer.on_progress(f64::from(step + 1) / f64::from(PROBES_MAX));
            if part_of_drained >= KNEE_PART || self.control.is_stopped() {
                break;
            }
        }
        Ok(probes)
    }

    fn slice(&self, way: Way, seconds: f64) -> Result<RunResult, DemoError> {
        let classes = Classes::new();
        let mut made = Vec::new();
        for (name, shares) in CLASSES {
            // A fresh registry takes six different names.
            made.push((name, classes.add_class(name, None, shares).unwrap_or(Class::DEFAULT)));
        }
        let class = |name: &str| made.iter().find(|(n, _)| *n == name).map_or(Class::DEFAULT, |(_, class)| *class);
        let config = DiskConfig {
            model: self.model.clone(),
            mix: self.mix.clone(),
            window_ns: Some(self.window_ns),
            ..DiskConfig::default()
        };
        let mode = if way == Way::Scheduled { DiskMode::Scheduled } else { DiskMode::Drain };
        let setup = DiskSetup { mode, ..DiskSetup::new(config) };
        let topology = Topology::new(1, classes, vec![setup])
            .map_err(|e| LoadError::Unsuitable { job: "demo".to_owned(), reason: e.to_string() })?;
        let target = |write| self.target(&topology, write);
        let query = JobSpec::closed_loop("query", Pattern::RandRead, 4096, 64, class("query"))
            .at_rate(self.queries_per_s, PauseDistribution::Poisson);
        let mut jobs = vec![query.on_shard(0, target(false))];
        if way != Way::Alone {
            for (name, class_name, pattern) in BACKGROUND {
                let job = JobSpec::closed_loop(name, pattern, BACKGROUND_BYTES, BACKGROUND_DEPTH, class(class_name));
                jobs.push(job.on_shard(0, target(pattern.is_write())));
            }
        }
        let plan = Plan {
            topology,
            options: ShardOptions { backend: self.options.backend, ..ShardOptions::default() },
            jobs,
            warmup_ns: (WARMUP_S * self.options.pace * 1e9) as u64,
            duration_ns: (seconds * 1e9) as u64,
            seed: self.options.seed,
        };
        Ok(crate::load::run(&plan, self.control)?)
    }

    fn target(&self, topology: &Topology, write: bool) -> Target {
        let create_new = self.options.backend == Some(BackendKind::Memory);
        let how = OpenOptions { write: write || create_new, direct: true, create_new: false, dsync: false };
        Target { file: topology.file(&self.path, how, 0), offset: 0, len_bytes: DATA_BYTES }
    }

    fn report(&self, disk: TuneReport, windows: Vec<WindowProbe>, merged: [Merged; 3]) -> DemoReport {
        let names = ["alone", "drained", "scheduled"];
        let situations: Vec<Situation> = names.iter().zip(&merged).map(|(name, m)| m.situation(name)).collect();
        let p99 = |at: usize| situations[at].classes.first().map_or(0.0, |query| query.latency.p99_us);
        let ratio = |a: f64, b: f64| if b > 0.0 { a / b } else { 0.0 };
        let p99_ratio = ratio(p99(2), p99(0));
        let throughput_ratio = ratio(situations[2].throughput_bytes_per_s, situations[1].throughput_bytes_per_s);
        let sentence = format!(
            "Beside background work a query waits up to {:.2} ms at p99 when everything is sent as it comes, and {:.2} ms \
             scheduled ({:.1} x its {:.2} ms on the idle disk), while the disk carries {:.0} % of its drained throughput.",
            p99(1) / 1e3,
            p99(2) / 1e3,
            p99_ratio,
            p99(0) / 1e3,
            100.0 * throughput_ratio,
        );
        DemoReport {
            plimsoll: env!("CARGO_PKG_VERSION"),
            disk,
            mix_exponent: self.mix.p(),
            windows,
            window_us: self.window_ns as f64 / 1e3,
            situations,
            p99_ratio,
            throughput_ratio,
            written_bytes: self.control.written_bytes(),
            interrupted: self.control.is_stopped(),
            sentence,
        }
    }
}

/// How long a slice under load may be so that all of them together stay below what may be written. Reads and writes of
/// the background complete about as often as each other.
fn slice_s(model: &CostModel, written_bytes: u64) -> f64 {
    let pair_s = (model.cost(Op::Read, BACKGROUND_BYTES).as_secs_f64()
        + model.cost(Op::Write, BACKGROUND_BYTES).as_secs_f64())
    .max(1e-9);
    let write_bytes_per_s = f64::from(BACKGROUND_BYTES) / pair_s;
    // A quarter spare: disks do more in a mix than the linear rule says.
    let left_bytes = MAX_WRITE_BYTES.saturating_sub(written_bytes) as f64 * 0.75;
    let probes = 2.0 * f64::from(PROBES_MAX);
    let slices = f64::from(ROUNDS) * 2.0 + probes * PROBE_PART;
    let warmups_s = WARMUP_S * (f64::from(ROUNDS) * 2.0 + probes);
    ((left_bytes / write_bytes_per_s - warmups_s) / slices).clamp(0.05, SLICE_MAX_S)
}

/// The exponent p at which a drained mix is exactly the capacity: (r/R)^p + (w/W)^p = 1, by bisection.
fn mix_of(drained: &RunResult, model: &CostModel) -> MixExponent {
    let (mut read, mut write) = (0.0, 0.0);
    // The model's rates have headroom; the mix is of the measured ones.
    for job in drained.shards.iter().flat_map(|s| &s.jobs) {
        let per_s = job.iops();
        match BACKGROUND.iter().find(|(name, ..)| *name == job.name) {
            Some((_, _, Pattern::RandWrite)) => write += per_s * model.cost(Op::Write, BACKGROUND_BYTES).as_secs_f64(),
            Some(_) => read += per_s * model.cost(Op::Read, BACKGROUND_BYTES).as_secs_f64(),
            None => read += per_s * model.cost(Op::Read, 4096).as_secs_f64(),
        }
    }
    let (read, write) = (read * HEADROOM, write * HEADROOM);
    let (mut low, mut high) = (0.5f64, 16.0f64);
    // More than one direction alone could do, or nothing to go by: as if they did not disturb each other, or linear.
    if read.min(write) <= 0.0 {
        return MixExponent::LINEAR;
    }
    if read.max(write) >= 1.0 {
        return MixExponent::new(high).unwrap_or(MixExponent::LINEAR);
    }
    for _ in 0..50 {
        let p = 0.5 * (low + high);
        if read.powf(p) + write.powf(p) > 1.0 {
            low = p;
        } else {
            high = p;
        }
    }
    MixExponent::new(0.5 * (low + high)).unwrap_or(MixExponent::LINEAR)
}

/// The slices of one situation put together.
#[derive(Default)]
struct Merged {
    jobs: Vec<JobResult>,
}

impl Merged {
    fn add(&mut self, run: &RunResult) {
        for job in run.shards.iter().flat_map(|s| &s.jobs) {
            match self.jobs.iter_mut().find(|j| j.name == job.name) {
                Some(mine) => mine.append(job),
                None => self.jobs.push(job.clone()),
            }
        }
    }

    fn situation(&self, name: &str) -> Situation {
        let mut lines: Vec<(ClassLine, f64)> = Vec::new();
        for (class, shares) in [("query", 100), ("compaction", 100), ("repair-read", 20), ("repair-write", 20)] {
            let jobs = self.jobs.iter().filter(|job| class_of(&job.name) == class);
            let merged = jobs.cloned().reduce(|mut a, b| {
                // Jobs of one class run at the same time and share its class figures.
                a.class = None;
                a.device_depth = b.device_depth.clone();
                a.merge(&b);
                a.device_depth = b.device_depth;
                a
            });
            let Some(job) = merged else { continue };
            let consumed = job.class.as_ref().map_or(0.0, |c| c.stats.consumed_fs as f64);
            let line = ClassLine {
                class: class.to_owned(),
                shares,
                iops: job.iops(),
                throughput_bytes_per_s: job.bytes_per_s(),
                share_wanted_pct: 0.0,
                share_got_pct: 0.0,
                latency: Latency::of(&job.latency),
                device_depth: job.device_depth.mean(),
            };
            lines.push((line, consumed));
        }
        let all: f64 = lines.iter().map(|(_, consumed)| consumed).sum();
        let query = lines.first().map_or(0.0, |(_, consumed)| *consumed);
        let backlogged: u32 = lines.iter().skip(1).map(|(line, _)| line.shares).sum();
        let mut classes = Vec::new();
        for (at, (mut line, consumed)) in lines.into_iter().enumerate() {
            line.share_got_pct = 100.0 * consumed / all.max(1.0);
            line.share_wanted_pct = match at {
                // It asks for less than its shares, and should get just that.
                0 => line.share_got_pct,
                _ => 100.0 * (1.0 - query / all.max(1.0)) * f64::from(line.shares) / f64::from(backlogged.max(1)),
            };
            classes.push(line);
        }
        let throughput_bytes_per_s = classes.iter().map(|line| line.throughput_bytes_per_s).sum();
        Situation { name: name.to_owned(), classes, throughput_bytes_per_s }
    }
}

fn class_of(job: &str) -> &str {
    BACKGROUND.iter().find(|(name, ..)| *name == job).map_or("query", |(_, class, _)| class)
}

fn in_memory(backend: Option<BackendKind>) -> bool {
    matches!(backend, Some(BackendKind::Null | BackendKind::Memory))
}
