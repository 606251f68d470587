//! `plimsoll demo`: shows the effect of scheduling on a query while background work wants the whole disk.
//!
//! **Why.** One minute should show the purpose of the project on the user's own disk.
//!
//! **How.** The disk is measured first ([`crate::tune`]), briefly. Then come three situations, in turns so that changes
//! of the disk affect all alike: 4 KiB random reads at a fixed rate (class query) *alone*; the same beside 4 x 32
//! outstanding 128 KiB requests (compaction reads and writes, repair reads, repair writes) *drained*, with every
//! request sent to the disk at once; and the same *scheduled*. The classes and shares are those of Scylla 1.0.
//!
//! The scheduler has no settings for the demo: the disk model is the one that `tune --disk-output` writes and `test
//! --disk` reads ([`TuneReport::disk_model`]), and [`DiskConfig`](plimsoll::core::DiskConfig) with its closed loop is
//! the default. The loop settles in a slice that does not count, and each slice continues from its last state.
//!
//! `stage` runs slices and `situation` combines them: every figure is the median of its slices, and the report states
//! their spread ([`DemoReport::doubts`]).
//!
//! **Limits.** Slices are short and the disk may be noisy: the figures are a demonstration, not a measurement. At most
//! [`MAX_WRITE_BYTES`] are written, in about a minute: on a disk that writes fast the slices become shorter, on a slow
//! one the file becomes smaller. A disk is needed: the memory and null backends have nothing to show.

mod situation;
mod stage;

use std::path::PathBuf;

use plimsoll::TopologyError;
use plimsoll::backend::choose::BackendKind;
use plimsoll::backend::sim::{SimConfig, SimConfigError, SimDisk, SimWorld};
use plimsoll_figures::units::format_bytes_binary;
use serde::Serialize;

use crate::load::{Control, LoadError, Pattern, ScratchError};
use crate::report::{GoalPrice, Latency};
use crate::tune::{MissingFigures, Observer, SimulatedDisk, TuneError, TuneOptions, TuneReport};
use situation::Slices;
use stage::{Stage, Way};

pub const MAX_WRITE_BYTES: u64 = 16 << 30;
/// Part of those bytes that may be written to measure the disk.
const TUNE_WRITE_BYTES: u64 = 4 << 30;
/// Measured time of each figure of the disk, in seconds.
const TUNE_PHASE_S: f64 = 1.5;
/// Scratch data for the measurement, in bytes.
const TUNE_DATA_BYTES: u64 = 512 << 20;
/// Turns of the three situations; odd, so that the median is one of the slices.
const ROUNDS: u32 = 5;
const ALONE_S: f64 = 1.5;
/// Ratio of the slices' largest to smallest query p99 above which they count as disturbed.
const DISTURBED_FACTOR: f64 = 2.0;
/// Scylla's first classes (2016) and their shares; `default` always exists.
const CLASSES: [(&str, u32); 6] = [
    ("commitlog", 100),
    ("memtable", 100),
    ("compaction", 100),
    ("query", 100),
    ("repair-read", 20),
    ("repair-write", 20),
];

/// Background jobs: name, class, pattern.
const BACKGROUND: [(&str, &str, Pattern); 4] = [
    ("compaction reads", "compaction", Pattern::RandRead),
    ("compaction writes", "compaction", Pattern::RandWrite),
    ("repair reads", "repair-read", Pattern::RandRead),
    ("repair writes", "repair-write", Pattern::RandWrite),
];

#[derive(Clone, Debug)]
pub struct DemoOptions {
    pub directory: PathBuf,
    /// Backend; `None` selects the best available.
    pub backend: Option<BackendKind>,
    pub seed: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    #[error(transparent)]
    Tune(#[from] TuneError),
    #[error(transparent)]
    Scratch(#[from] ScratchError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("backend {0} has no disk to show: use uring, aio or pool")]
    NoDisk(BackendKind),
    #[error(transparent)]
    Topology(#[from] TopologyError),
    #[error(transparent)]
    Simulated(#[from] SimConfigError),
    #[error(
        "the demo could not measure {} of this disk within the {} that it writes for that, so there is nothing to schedule \
         by; `plimsoll tune` measures without that bound",
        .0.names.join(" and "), format_bytes_binary(TUNE_WRITE_BYTES)
    )]
    Missing(MissingFigures),
}

/// Figures of one class in one situation: medians over the slices.
#[derive(Clone, Debug, Serialize)]
pub struct ClassLine {
    pub class: String,
    pub shares: u32,
    pub iops: f64,
    pub throughput_bytes_per_s: f64,
    /// Part of the device time that its shares entitle it to, in per cent; for the query, the part it asks for.
    pub share_wanted_pct: f64,
    /// Part of the device time that it got over all slices, in per cent.
    pub share_got_pct: f64,
    /// Latency: each percentile is the median of the slices', the maximum is the largest of all slices.
    pub latency: Latency,
    /// Mean number of the class's pieces in the device.
    pub device_depth: f64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Slice {
    pub length_s: f64,
    /// The query's p99 in microseconds; `None` if no query completed.
    pub query_p99_us: Option<f64>,
    pub throughput_bytes_per_s: f64,
}

/// Smallest and largest of several figures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Range {
    pub least: f64,
    pub most: f64,
}

impl Range {
    fn of(values: impl Iterator<Item = f64>) -> Option<Range> {
        values.fold(None, |range: Option<Range>, value| {
            let range = range.unwrap_or(Range { least: value, most: value });
            Some(Range { least: range.least.min(value), most: range.most.max(value) })
        })
    }

    fn is_disturbed(&self) -> bool {
        self.most > self.least * DISTURBED_FACTOR
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Situation {
    /// `alone`, `drained` or `scheduled`.
    pub name: String,
    pub classes: Vec<ClassLine>,
    /// Bytes a second of all classes, the median over the slices.
    pub throughput_bytes_per_s: f64,
    /// Range of the query's p99 over the slices, in microseconds.
    pub query_p99_us: Option<Range>,
    pub slices: Vec<Slice>,
}

/// A class that moved nothing in most slices of a situation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SilentClass {
    pub situation: String,
    pub class: String,
    pub reason: String,
}

/// The result of a demo, and the schema of its JSON.
#[derive(Clone, Debug, Serialize)]
pub struct DemoReport {
    pub plimsoll: &'static str,
    pub disk: TuneReport,
    /// Exponent of the read/write mix that the scheduler uses; `None` if reads and writes do not disturb each other,
    /// or the disk was not measured completely.
    pub mix_exponent: Option<f64>,
    /// Device time that the closed loop kept in the device at the end of the last scheduled slice, in microseconds.
    pub window_us: Option<f64>,
    /// Ratio of the disk's rate to its model's, as the closed loop estimated it at the end of the last scheduled slice.
    pub capacity_scale: Option<f64>,
    /// Cost of the latency goal, if it kept the closed loop from the throughput goal in that slice.
    pub latency_goal_binds: Option<GoalPrice>,
    /// The three situations; fewer if the demo was stopped early.
    pub situations: Vec<Situation>,
    /// Ratio of the query's p99 when scheduled to its p99 alone; `None` if the demo was stopped early.
    pub p99_ratio: Option<f64>,
    /// Ratio of the scheduled throughput to the drained one; `None` if the demo was stopped early.
    pub throughput_ratio: Option<f64>,
    /// Whether the idle disk's p99 differs too much between slices for `p99_ratio` to mean anything.
    pub idle_is_disturbed: bool,
    /// Reasons to doubt the ratios, a sentence each.
    pub doubts: Vec<String>,
    /// Classes that moved nothing, and why.
    pub silent_classes: Vec<SilentClass>,
    pub written_bytes: u64,
    pub interrupted: bool,
    pub sentence: Option<String>,
}

/// Runs the demo.
///
/// If `control` asks for the end, returns the result so far, marked as interrupted.
///
/// # Errors
/// See [`DemoError`]. No file is left behind.
pub fn run(options: &DemoOptions, observer: &mut dyn Observer, control: &Control) -> Result<DemoReport, DemoError> {
    if let Some(backend @ (BackendKind::Null | BackendKind::Memory | BackendKind::Sim)) = options.backend {
        return Err(DemoError::NoDisk(backend));
    }
    let measure = |tune: &TuneOptions, observer: &mut dyn Observer, control: &Control| {
        crate::tune::measure(tune, observer, control)
    };
    show(options, &measure, None, observer, control)
}

/// Runs the demo on a simulated disk, in virtual time. Ignores the directory and the backend in the options.
pub fn run_simulated(
    options: &DemoOptions,
    disk: &SimulatedDisk,
    observer: &mut dyn Observer,
    control: &Control,
) -> Result<DemoReport, DemoError> {
    let disks = vec![SimDisk { spec: disk.spec.clone(), ..SimDisk::default() }];
    let config = SimConfig { seed: options.seed, disks, keep_contents: false, ..SimConfig::default() };
    let world = SimWorld::new(&config)?;
    let measure = |tune: &TuneOptions, observer: &mut dyn Observer, control: &Control| {
        crate::tune::measure_simulated(tune, disk, observer, control)
    };
    show(options, &measure, Some(&world), observer, control)
}

type Measure<'a> = &'a dyn Fn(&TuneOptions, &mut dyn Observer, &Control) -> Result<TuneReport, TuneError>;

fn show(
    options: &DemoOptions,
    measure: Measure<'_>,
    world: Option<&SimWorld>,
    observer: &mut dyn Observer,
    control: &Control,
) -> Result<DemoReport, DemoError> {
    let control = control.with_write_bound(Some(MAX_WRITE_BYTES));
    let tune = TuneOptions {
        backend: options.backend,
        data_bytes: TUNE_DATA_BYTES,
        max_write_bytes: Some(TUNE_WRITE_BYTES),
        phase_s: Some(TUNE_PHASE_S),
        figures_only: true,
        with_frontier: true,
        shards: 1,
        seed: options.seed,
        ..TuneOptions::quick(&options.directory)
    };

    let disk = measure(&tune, observer, &control)?;

    let mut slices = [Slices::default(), Slices::default(), Slices::default()];
    if disk.interrupted {
        return Ok(report(None, disk, &slices, &control));
    }

    let model = disk.disk_model().map_err(DemoError::Missing)?;
    observer.on_phase("filling the file", 2.0);
    let mut stage = Stage::set_up(options, &model, world, &control)?;
    observer.on_phase("alone, drained, scheduled", stage.expected_s());

    stage.settle()?;

    for round in 0..ROUNDS {
        let mut order = Way::ALL;
        if round % 2 == 1 {
            // The second situation inherits work that the first left in the disk, so each comes second in turn.
            order.swap(1, 2);
        }
        for way in order {
            if control.stop.is_asked() {
                break;
            }
            let slice = stage.slice(way)?;
            // A slice that was cut short does not count.
            if !control.stop.is_asked() {
                slices[way as usize].add(&slice);
            }
        }
        observer.on_progress(f64::from(round + 1) / f64::from(ROUNDS));
    }

    Ok(report(Some(&stage), disk, &slices, &control))
}

fn report(stage: Option<&Stage<'_>>, disk: TuneReport, slices: &[Slices; 3], control: &Control) -> DemoReport {
    let query_wanted_fs = stage.map_or(0.0, Stage::query_wanted_fs);

    let named = || Way::ALL.into_iter().zip(slices);
    let situations: Vec<Situation> =
        named().filter_map(|(way, slices)| slices.situation(way.name(), query_wanted_fs)).collect();

    let bound_reached = control.traffic.is_write_bound_reached();
    let silent_classes = named().flat_map(|(way, slices)| slices.silent(way.name(), bound_reached)).collect();

    let scheduled = stage.and_then(Stage::disk);
    let compared = match situations.as_slice() {
        [alone, drained, scheduled] => Some(Compared::of(alone, drained, scheduled)),
        _ => None,
    };

    let mix_exponent = disk.disk_model().ok().map(|model| model.mix_exponent_p).filter(|p| p.is_finite());
    DemoReport {
        plimsoll: env!("CARGO_PKG_VERSION"),
        disk,
        mix_exponent,
        window_us: scheduled.map(|disk| disk.window_ns() as f64 / 1e3),
        capacity_scale: scheduled.map(|disk| disk.capacity_scale()),
        latency_goal_binds: scheduled.and_then(|disk| GoalPrice::of(0, disk.snapshot().window_limit)),
        situations,
        p99_ratio: compared.as_ref().map(|compared| compared.p99_ratio),
        throughput_ratio: compared.as_ref().map(|compared| compared.throughput_ratio),
        idle_is_disturbed: compared.as_ref().is_some_and(|compared| compared.idle_is_disturbed),
        doubts: compared.as_ref().map_or(Vec::new(), |compared| compared.doubts.clone()),
        silent_classes,
        written_bytes: control.traffic.written_bytes(),
        interrupted: control.stop.is_asked(),
        sentence: compared.map(|compared| compared.sentence),
    }
}

/// The comparison of the three situations.
struct Compared {
    p99_ratio: f64,
    throughput_ratio: f64,
    idle_is_disturbed: bool,
    doubts: Vec<String>,
    sentence: String,
}

impl Compared {
    fn of(alone: &Situation, drained: &Situation, scheduled: &Situation) -> Compared {
        let p99_ms = |s: &Situation| s.classes.first().map_or(0.0, |query| query.latency.p99_us / 1e3);
        let ratio = |a: f64, b: f64| if b > 0.0 { a / b } else { 0.0 };
        let p99_ratio = ratio(p99_ms(scheduled), p99_ms(alone));
        let throughput_ratio = ratio(scheduled.throughput_bytes_per_s, drained.throughput_bytes_per_s);

        let sentence = format!(
            "Beside background work a query takes {:.2} ms at p99 when everything is sent as it comes, and {:.2} ms scheduled \
             ({:.1} x its {:.2} ms on the idle disk), while the disk carries {:.0} % of its drained throughput.",
            p99_ms(drained),
            p99_ms(scheduled),
            p99_ratio,
            p99_ms(alone),
            100.0 * throughput_ratio,
        );

        let disturbed = |s: &Situation| s.query_p99_us.filter(Range::is_disturbed);
        let mut doubts = Vec::new();
        if let Some(Range { least, most }) = disturbed(alone) {
            let to_quietest = ratio(p99_ms(scheduled), least / 1e3);
            doubts.push(format!(
                "the idle disk's p99 moved between {:.2} and {:.2} ms: the ratio says little (it is {to_quietest:.1} to the \
                 quietest slice)",
                least / 1e3,
                most / 1e3
            ));
        }
        if let Some(Range { least, most }) = disturbed(scheduled) {
            doubts.push(format!("scheduled, the p99 moved between {:.2} and {:.2} ms", least / 1e3, most / 1e3));
        }

        Compared { p99_ratio, throughput_ratio, idle_is_disturbed: disturbed(alone).is_some(), doubts, sentence }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn situation(name: &str, p99_us: f64, least: f64, most: f64) -> Situation {
        let class = ClassLine {
            class: "query".to_owned(),
            shares: 100,
            iops: 2000.0,
            throughput_bytes_per_s: 8e6,
            share_wanted_pct: 1.0,
            share_got_pct: 1.0,
            latency: Latency { p99_us, ..Latency::default() },
            device_depth: 0.1,
        };
        let query_p99_us = Some(Range { least, most });
        let (name, slices) = (name.to_owned(), Vec::new());
        Situation { name, classes: vec![class], throughput_bytes_per_s: 1e9, query_p99_us, slices }
    }

    #[test]
    fn a_disturbed_idle_disk_is_said_with_the_ratio_that_flatters_least() {
        let scheduled = situation("scheduled", 600.0, 550.0, 650.0);
        let quiet = Compared::of(&situation("alone", 300.0, 290.0, 310.0), &scheduled, &scheduled);
        assert_eq!((quiet.p99_ratio, quiet.idle_is_disturbed, quiet.doubts.len()), (2.0, false, 0));
        let disturbed = Compared::of(&situation("alone", 1200.0, 300.0, 4300.0), &scheduled, &scheduled);
        assert_eq!((disturbed.p99_ratio, disturbed.idle_is_disturbed), (0.5, true));
        let said = "the idle disk's p99 moved between 0.30 and 4.30 ms: the ratio says little (it is 2.0 to the quietest slice)";
        assert_eq!(disturbed.doubts, [said]);
    }
}
