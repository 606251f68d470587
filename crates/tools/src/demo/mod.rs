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
//! * the knee of the mix: the smallest window of device time with 90 % of the drained throughput (of those tried). That is how much
//!   the scheduler leaves in the device; the rest of the queue waits where a query can pass it.
//!
//! `stage` runs slices and finds the knee, `situation` puts slices together.
//!
//! # Limits
//! Short slices on a noisy disk: the figures are a demonstration, not a measurement. At most [`MAX_WRITE_BYTES`] are
//! written, and at most a minute goes by: on a disk that writes fast the slices become shorter, on a slow one the file
//! becomes smaller. Needs a disk: the memory and null backends have nothing to show.

mod situation;
mod stage;

use std::path::PathBuf;

use plimsoll::TopologyError;
use plimsoll::backend::choose::BackendKind;
use serde::Serialize;

use crate::load::{Control, LoadError, Pattern, ScratchError};
use crate::report::Latency;
use crate::tune::{MissingFigures, Observer, TuneError, TuneOptions, TuneReport};
use situation::Merged;
use stage::{Stage, Way};

/// What a demo writes at the most, in bytes.
pub const MAX_WRITE_BYTES: u64 = 8 << 30;
/// Of that, measuring the disk.
const TUNE_WRITE_BYTES: u64 = 2 << 30;
/// Measured time of each figure, in seconds.
const TUNE_PHASE_S: f64 = 1.5;
/// Scratch data to measure with.
const TUNE_DATA_BYTES: u64 = 512 << 20;
/// Turns of the three situations.
const ROUNDS: u32 = 4;
/// Length of a slice alone, in seconds.
const ALONE_S: f64 = 1.5;
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
    /// A backend without a disk.
    #[error("backend {0} has no disk to show: use uring, aio or pool")]
    NoDisk(BackendKind),
    /// The shard could not be made.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// Measuring gave too little to go on.
    #[error("cannot show anything of this disk: {0}")]
    Missing(MissingFigures),
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
    /// Whether it gave the throughput looked for; else it is the widest tried.
    pub window_is_wide_enough: bool,
    /// The three situations.
    pub situations: Vec<Situation>,
    /// Scheduled query p99 over that alone; nothing when the demo was stopped before.
    pub p99_ratio: Option<f64>,
    /// Scheduled throughput over the drained one.
    pub throughput_ratio: Option<f64>,
    /// Bytes written.
    pub written_bytes: u64,
    /// Whether it was stopped before its time.
    pub interrupted: bool,
    /// What happened, in one sentence.
    pub sentence: Option<String>,
}

/// Runs the demo.
///
/// # Errors
/// See [`DemoError`]. Nothing is left behind.
pub fn run(options: &DemoOptions, observer: &mut dyn Observer, control: &Control) -> Result<DemoReport, DemoError> {
    if let Some(backend @ (BackendKind::Null | BackendKind::Memory)) = options.backend {
        return Err(DemoError::NoDisk(backend));
    }
    let disk = measure_disk(options, observer, control)?;
    let figures = disk.four_figures().map_err(DemoError::Missing)?;
    observer.on_phase("filling the file", 2.0);
    let mut stage = Stage::set_up(options, &disk, &figures, control)?;
    let windows = stage.find_knee(observer)?;
    let mut merged = [Merged::default(), Merged::default(), Merged::default()];
    observer.on_phase("alone, drained, scheduled", f64::from(ROUNDS) * (ALONE_S + 2.0 * stage.slice_s()));
    for round in 0..ROUNDS {
        let mut order = [(Way::Alone, 0), (Way::Drained, 1), (Way::Scheduled, 2)];
        if round % 2 == 1 {
            // Whoever comes second has what the first left the disk to finish: each is second as often as the other.
            order.swap(1, 2);
        }
        for (way, at) in order {
            let seconds = if way == Way::Alone { ALONE_S } else { stage.slice_s() };
            let slice = stage.slice(way, seconds)?;
            if control.is_stopped() {
                return Ok(report(&stage, disk, windows, &merged));
            }
            merged[at].add(&slice);
        }
        observer.on_progress(f64::from(round + 1) / f64::from(ROUNDS));
    }
    Ok(report(&stage, disk, windows, &merged))
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
        phase_s: Some(TUNE_PHASE_S),
        figures_only: true,
        shards: 1,
        seed: options.seed,
        ..TuneOptions::quick(&options.directory)
    };
    let report = crate::tune::measure(&tune, observer, control)?;
    if report.interrupted { Err(DemoError::Interrupted(Box::new(report))) } else { Ok(report) }
}

fn report(stage: &Stage<'_>, disk: TuneReport, windows: Vec<WindowProbe>, merged: &[Merged; 3]) -> DemoReport {
    let names = ["alone", "drained", "scheduled"];
    let situations = names.iter().zip(merged).filter_map(|(name, m)| m.situation(name, stage.query_wanted()));
    let situations: Vec<Situation> = situations.collect();
    let compared = match situations.as_slice() {
        [alone, drained, scheduled] => Some(compare(alone, drained, scheduled)),
        _ => None,
    };
    let (p99_ratio, throughput_ratio, sentence) = match compared {
        Some((p99, throughput, sentence)) => (Some(p99), Some(throughput), Some(sentence)),
        None => (None, None, None),
    };
    DemoReport {
        plimsoll: env!("CARGO_PKG_VERSION"),
        disk,
        mix_exponent: stage.mix_exponent(),
        window_us: stage.window_us(),
        window_is_wide_enough: windows.last().is_some_and(|probe| probe.part_of_drained >= stage::KNEE_PART),
        windows,
        situations,
        p99_ratio,
        throughput_ratio,
        written_bytes: stage.written_bytes(),
        interrupted: stage.is_stopped(),
        sentence,
    }
}

/// Ratio of the query's p99, ratio of the throughput, and both in a sentence.
fn compare(alone: &Situation, drained: &Situation, scheduled: &Situation) -> (f64, f64, String) {
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
    (p99_ratio, throughput_ratio, sentence)
}

fn class_of(job: &str) -> &str {
    BACKGROUND.iter().find(|(name, ..)| *name == job).map_or("query", |(_, class, _)| class)
}
