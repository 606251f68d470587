//! What `tune` says of simulated disks: whether its intervals hold the truth, and whether it doubts what it should. Each run
//! has curves beside its figures, as a real one has.
//!
//! The truth of a disk whose speed changes is its mean speed, measured by a load that fills it for a long time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use plimsoll_core::{DiskConfig, Op};
use plimsoll_measure::load::Control;
use plimsoll_measure::tune::record::{Entry, Phase, Record, Step};
use plimsoll_measure::tune::{Figure, SimulatedDisk, TuneOptions, TuneReport, analyse, measure_simulated};
use plimsoll_sim::device::{DeviceSpec, LatencySpec, RateSpec, WeatherSpec};
use plimsoll_sim::rng::Rng;
use plimsoll_sim::workload::{JobSpec, Load, Region, SizeDist};
use plimsoll_sim::world::{self, ClassSpec, DiskMode, SimDisk, WorldSpec};

use super::{Case, Found};
use crate::tune_sim::figures;

/// Part of its truth that a figure may be off and still describe the disk, if it is not doubted.
const OFF_MOST: f64 = 0.10;
/// Runs of each disk.
const SEEDS: u64 = 14;
/// Requests over which the truth is measured, if they are short.
const REFERENCE_REQUESTS: f64 = 200_000.0;
const DRIFT_PER_S: f64 = -0.001;
/// The part of its speed that noise takes at most, and for how long there is noise.
const NOISE_MOST: f64 = 0.2;
const NOISE_S: f64 = 300.0;

/// What disturbs a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Weather {
    Calm,
    /// Its speed changes, as with neighbours whom no counter shows: quickly or slowly against a sample.
    Noise,
    SlowNoise,
    /// It becomes slower by two per cent over the measurement.
    Drift,
    Stalls,
    /// Another program reads beside: thousandths of what the disk can do.
    Neighbour(u16),
}

pub(crate) const WEATHERS: [Weather; 8] = [
    Weather::Calm,
    Weather::Noise,
    Weather::SlowNoise,
    Weather::Drift,
    Weather::Stalls,
    Weather::Neighbour(3),
    Weather::Neighbour(50),
    Weather::Neighbour(400),
];

/// Returns a small disk: a measurement of it is some ten thousand requests.
fn spec(is_parallel: bool) -> DeviceSpec {
    let rates = RateSpec {
        read_iops: 2000.0,
        read_bytes_per_s: 60e6,
        write_iops: 1000.0,
        write_bytes_per_s: 30e6,
        ..RateSpec::default()
    };
    let (read_ns, write_ns) = if is_parallel { (4e6, 2e6) } else { (600e3, 900e3) };
    let latency = LatencySpec { read_ns, write_ns, sigma: 0.1, ..LatencySpec::default() };
    DeviceSpec { capacity_bytes: 10_000_000_000, rates, latency, ..DeviceSpec::default() }
}

/// Returns factors of the speed, each for `step_s`.
fn noise(seed: u64, step_s: f64) -> Vec<(u64, f64)> {
    let mut rng = Rng::new(seed);
    let step = |at: u64| ((at as f64 * step_s * 1e9) as u64, 1.0 - NOISE_MOST * rng.below(1000) as f64 / 1e3);
    (0..(NOISE_S / step_s) as u64).map(step).collect()
}

fn disk(is_parallel: bool, weather: Weather, seed: u64) -> SimulatedDisk {
    let mut spec = spec(is_parallel);
    let mut foreign_bytes_per_s = 0.0;
    match weather {
        Weather::Calm => {}
        Weather::Noise => spec.weather.capacity_steps = noise(seed, 0.03),
        Weather::SlowNoise => spec.weather.capacity_steps = noise(seed, 0.5),
        Weather::Drift => spec.weather.drift_per_s = DRIFT_PER_S,
        Weather::Stalls => (spec.weather.stalls_per_s, spec.weather.stall_max_ns) = (2.0, 100e6),
        Weather::Neighbour(thousandths) => foreign_bytes_per_s = 60e6 * f64::from(thousandths) / 1000.0,
    }
    SimulatedDisk { reported_block_bytes: Some(512), foreign_bytes_per_s, ..SimulatedDisk::new("model", spec) }
}

/// Returns the mean speed of the disk without neighbours whom the kernel counts, in the unit of the figure.
fn truth(disk: &SimulatedDisk, name: &str, figure: &Figure) -> f64 {
    let op = if name.starts_with("read") { Op::Read } else { Op::Write };
    let per_s = if op == Op::Read { disk.spec.rates.read_iops } else { disk.spec.rates.write_iops };
    let requests = REFERENCE_REQUESTS / f64::from(figure.block_bytes / 4096).max(1.0).sqrt();
    let weather = &disk.spec.weather;
    // The mean of the noise is known.
    let noise = if weather.capacity_steps.is_empty() { 1.0 } else { 1.0 - NOISE_MOST / 2.0 };
    let calm = WeatherSpec { drift_per_s: 0.0, capacity_steps: Vec::new(), ..weather.clone() };
    let spec = DeviceSpec { weather: calm, ..disk.spec.clone() };
    let job = JobSpec {
        op,
        sizes: SizeDist::Fixed(figure.block_bytes),
        region: Region { offset_bytes: 0, len_bytes: 8_000_000_000, shard_stride_bytes: 0 },
        load: Load::closed(64),
        ..JobSpec::default()
    };
    let spec = WorldSpec {
        duration_ns: (requests / per_s * f64::from(figure.block_bytes / 4096).max(1.0) * 1e9) as u64,
        warmup_ns: 2_000_000_000,
        disks: vec![SimDisk { mode: DiskMode::Drain, ..SimDisk::new(spec, DiskConfig::default()) }],
        classes: vec![ClassSpec::new("default", 100)],
        jobs: vec![job],
        ..WorldSpec::default()
    };
    let report = world::run(&spec).unwrap();
    noise * if name.ends_with("iops") { report.disks[0].iops } else { report.disks[0].bytes_per_s }
}

/// Returns the part of its speed at the beginning that a drifting disk had, in the middle of a phase.
fn drifted(record: &Record, weather: Weather, name: &str) -> f64 {
    let phase = match name {
        "write_bandwidth" => Phase::WriteBandwidth,
        "read_bandwidth" => Phase::ReadBandwidth,
        "write_iops" => Phase::WriteIops,
        _ => Phase::ReadIops,
    };
    let at_s = record.samples(phase, Step::Measure).into_iter().map(|sample| sample.at_s + sample.elapsed_s / 2.0);
    let (sum_s, count) = at_s.fold((0.0, 0.0), |(sum_s, count), at_s| (sum_s + at_s, count + 1.0));
    if weather == Weather::Drift { 1.0 + DRIFT_PER_S * sum_s / count } else { 1.0 }
}

/// Returns a measurement of a disk, and its record.
fn measure(disk: &SimulatedDisk, seed: u64) -> (TuneReport, Record) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::remove_file(file.path()).unwrap();
    let options = TuneOptions {
        shards: 2,
        data_bytes: 64 << 20,
        seed,
        record: Some(file.path().to_owned()),
        ..TuneOptions::quick("/nowhere")
    };
    let report = measure_simulated(&options, disk, &mut (), &Control::default()).unwrap();
    let record = Record::read(file.path()).unwrap();
    (report, record)
}

/// Runs of each disk of which a figure or its curve is made wrong.
const SEEDS_BESIDE: u64 = 4;
/// Figures and the phases of the curves that they are compared with.
const CURVES: [(&str, Phase, Phase); 4] = [
    ("write_bandwidth", Phase::WriteBandwidth, Phase::SequentialSizes),
    ("read_bandwidth", Phase::ReadBandwidth, Phase::SequentialSizes),
    ("write_iops", Phase::WriteIops, Phase::Sizes),
    ("read_iops", Phase::ReadIops, Phase::Sizes),
];

/// Returns the record of a disk that was `factor` times slower during a phase, or faster if it is below 1.
fn slowed(record: &Record, slow: Phase, factor: f64) -> Record {
    let mut record = record.clone();
    for entry in &mut record.entries {
        if let Entry::Sample { phase, sample, .. } = entry
            && *phase == slow
        {
            sample.elapsed_s *= factor;
        }
    }
    record
}

/// Returns what is said of figures beside curves where one of the two is wrong: a figure that is off must be doubted, and
/// one that is true need not be.
pub(crate) fn beside_curves() -> Vec<Case> {
    let disks = [true, false].into_iter().flat_map(|it| WEATHERS.map(|weather| (it, weather)));
    let runs = disks.flat_map(|disk| (1..=SEEDS_BESIDE).map(move |seed| (disk, seed)));
    let runs: Vec<((bool, Weather), u64)> = runs.collect();
    let cases = on_all_cpus(&runs, |((is_parallel, weather), seed)| {
        let mut cases = Vec::new();
        let (_, record) = measure(&disk(*is_parallel, *weather, *seed), *seed);
        for (name, figure, curve) in CURVES.into_iter().filter(|(.., curve)| record.is_done(*curve)) {
            let mut add = |phase, factor| {
                let report = analyse(&slowed(&record, phase, factor));
                let doubt = report.doubts().into_iter().find(|doubt| doubt.figure == name);
                let is_off = phase == figure;
                let found = match (is_off, doubt.is_some()) {
                    (true, true) | (false, false) => Found::Right,
                    (false, true) => Found::Unclear,
                    (true, false) => Found::Wrong,
                };
                let told = format!("{weather:?} {seed}: {name}, {phase:?} {factor} times slower: {doubt:?}");
                let is_disturbed = *weather != Weather::Calm;
                cases.push(Case { command: "tune, curves", found, is_disturbed, told });
            };
            // Writes may meet a cache that has recovered meanwhile: only larger factors are told of them.
            let factors = if name.starts_with("read") { [1.5, 2.0, 4.0] } else { [1.75, 2.5, 4.0] };
            factors.into_iter().for_each(|factor| add(figure, factor));
            [1.0, 1.5, 4.0].into_iter().for_each(|factor| add(curve, factor));
            // As within burst credits, or into a cache: the figure is too high, and nothing after it is. Beside a single
            // curve nobody can tell which of the two is wrong.
            if [Phase::Sizes, Phase::SequentialSizes].into_iter().all(|curve| record.is_done(curve)) {
                [2.0, 3.0, 4.0].into_iter().for_each(|factor| add(figure, 1.0 / factor));
            }
        }
        cases
    });
    cases.into_iter().flatten().collect()
}

/// Returns what `of` says of each run, in any order.
fn on_all_cpus<R: Sync, T: Send>(runs: &[R], of: impl Fn(&R) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let take = || runs.get(next.fetch_add(1, Ordering::Relaxed));
    let work = || std::iter::from_fn(take).map(&of).collect::<Vec<T>>();
    thread::scope(|scope| {
        let threads: Vec<_> =
            (0..thread::available_parallelism().map_or(1, usize::from)).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

/// One figure of one run that is not doubted.
pub(crate) struct Measured {
    pub(crate) weather: Weather,
    pub(crate) is_held: bool,
}

/// Returns what all runs said, and whether each interval held the truth.
pub(crate) fn all() -> (Vec<Case>, Vec<Measured>) {
    // A neighbour of five per cent is half of the bytes beside short requests, so that their figures are doubted.
    let is_enough = |(is_parallel, weather): &(bool, Weather)| *is_parallel || *weather != Weather::Neighbour(50);
    let runs = [true, false].into_iter().flat_map(|it| WEATHERS.map(|weather| (it, weather)));
    let runs: Vec<(bool, Weather)> = runs.filter(is_enough).collect();
    let done = on_all_cpus(&runs, |(is_parallel, weather)| {
        let (mut cases, mut measured, mut truths) = (Vec::new(), Vec::new(), HashMap::new());
        for seed in 1..=SEEDS {
            let disk = disk(*is_parallel, *weather, seed);
            cases.push(run(&disk, *weather, seed, &mut truths, &mut measured));
        }
        (cases, measured)
    });
    let (cases, measured): (Vec<_>, Vec<_>) = done.into_iter().unzip();
    (cases.into_iter().flatten().collect(), measured.into_iter().flatten().collect())
}

fn run(
    disk: &SimulatedDisk,
    weather: Weather,
    seed: u64,
    truths: &mut HashMap<&'static str, f64>,
    measured: &mut Vec<Measured>,
) -> Case {
    let (report, record) = measure(disk, seed);
    let doubts: Vec<&str> = report.doubts().iter().map(|doubt| doubt.figure).collect();

    let (mut told, mut is_wrong, mut is_needless) = (format!("{weather:?} {seed}:"), false, false);
    for (name, figure) in figures(&report) {
        let truth = *truths.entry(name).or_insert_with(|| truth(disk, name, figure)) * drifted(&record, weather, name);
        let off = figure.value / truth - 1.0;
        let is_doubted = doubts.contains(&name);
        is_wrong |= !is_doubted && off.abs() > OFF_MOST;
        is_needless |= is_doubted && off.abs() <= OFF_MOST;
        let held =
            figure.ci95_pct.is_some_and(|percent| (figure.value - truth).abs() <= figure.value * percent / 100.0);
        if !is_doubted {
            measured.push(Measured { weather, is_held: held });
        }
        if !is_doubted && !held {
            println!("{weather:?} {seed}: {name} {:+.2} % {}", 100.0 * off, figure.interval_text());
        }
        told += &format!(
            " {name} {:+.2} % {}{}",
            100.0 * off,
            figure.interval_text(),
            if is_doubted { " doubted" } else { "" }
        );
    }
    let found = match (is_wrong, is_needless) {
        (true, _) => Found::Wrong,
        (false, true) => Found::Unclear,
        (false, false) => Found::Right,
    };
    Case { command: "tune", found, is_disturbed: weather != Weather::Calm, told }
}
