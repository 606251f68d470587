//! What the samples of each phase say.
//!
//! # Why
//! While it measures, the protocol must know which depth was best and whether a figure is known; afterwards the report
//! needs the same. Both ask here, so a record that is analysed later says what the measurement said.
//!
//! # How it works
//! Each function takes a whole record and picks the samples it needs: those of the attempt that others disturbed least.
//!
//! # Limits
//! A record that ended early has fewer samples, and the answers are `None`.
//!
//! # Example
//! Writes of 512 to 16384 bytes at 61, 60, 62, 121, 118 and 90 thousand a second, three times each: the disk writes in
//! blocks of 4096 bytes, whatever the kernel reports.

use plimsoll::core::{CostForm, CostModel, FourFigures, Op};
use plimsoll_figures::series;
use plimsoll_files::io_properties::IOPS_BLOCK_BYTES;

use super::super::record::{Load, Order, Phase, Record, Sample, Step};
use super::super::report::{
    BlockSize, DepthCurve, DepthPoint, Figure, Frontier, FrontierPoint, Knee, PhysicalBlock, Probe, SequentialCurve,
    SizeCurve, SizePoint, SteadyState, SteadyTrack, Unit, UnloadedLatency,
};
use super::super::timing::Timing;
use super::super::{Mode, place};
use super::{cost, curves, frontier, steady};

/// More I/O of others than this, in per cent of all, and a phase is made again.
pub(in crate::tune) const FOREIGN_MAX_PCT: f64 = 2.0;
/// Curves over sizes begin with 4 KiB at positions one after the other: a power of two.
pub(in crate::tune) const SEQUENTIAL_FIRST_POWER: u32 = 12;
/// By how much positions are shifted to see what misaligned writes cost, in bytes.
pub(in crate::tune) const SHIFT_BYTES: u32 = 512;
/// A rate before the figure settled that is further off than this, in per cent, is worth telling.
const BURST_MIN_PCT: f64 = 5.0;
/// A load whose rate the disk carries reaches this part of it at least: what diskplorer asks for.
const CARRIED_PART: f64 = 0.97;
/// Fewer samples say nothing of their scatter.
pub(in crate::tune) const KNOWN_SAMPLES: usize = 5;

/// Powers of two from the given one to 1 MiB, as far as direct I/O with this alignment takes them.
pub(in crate::tune) fn sizes_bytes(first_power: u32, align_bytes: u32) -> Vec<u32> {
    let align_bytes = align_bytes.max(1);
    (first_power..=20).map(|power| 1 << power).filter(|bytes: &u32| bytes.is_multiple_of(align_bytes)).collect()
}

/// Whether a figure is known: its transient is over, and half its 95 % interval is within `enough_pct` per cent.
pub(in crate::tune) fn is_known(rates: &[f64], enough_pct: f64) -> bool {
    let settled = series::settled_from(rates);
    let counted = rates.get(settled.index..).unwrap_or(rates);
    let interval = series::mean_interval(counted).filter(|_| counted.len() >= KNOWN_SAMPLES);
    settled.is_settled && interval.is_some_and(|i| i.half_width <= i.mean * enough_pct / 100.0)
}

/// The rate of one figure in a sample, in the figure's unit.
fn rate(phase: Phase, sample: &Sample) -> f64 {
    match unit(phase) {
        Unit::BytesPerS => sample.bytes_per_s(&sample.moved()),
        Unit::OperationsPerS => sample.iops(&sample.moved()),
    }
}

fn unit(phase: Phase) -> Unit {
    match phase {
        Phase::WriteBandwidth | Phase::ReadBandwidth => Unit::BytesPerS,
        _ => Unit::OperationsPerS,
    }
}

/// What the search of one attempt has found so far, by rising depth.
pub(in crate::tune) fn search(record: &Record, phase: Phase, attempt: u32) -> Vec<series::DepthPoint> {
    let points = record.attempt(phase, attempt, Step::Search).into_iter().filter_map(|sample| {
        let moved = sample.moved();
        let depth = sample.load.stream()?.depth;
        (moved.requests > 0).then(|| series::DepthPoint { depth, rate: rate(phase, sample), p50_ns: moved.p50_ns })
    });
    points.collect()
}

/// The depth for one of the four figures: the smallest that got nearly the most in one attempt, or a usual one where no
/// search was.
pub(in crate::tune) fn depth(record: &Record, phase: Phase, attempt: u32) -> u32 {
    let points = search(record, phase, attempt);
    let usual = match unit(phase) {
        Unit::BytesPerS => 16,
        Unit::OperationsPerS => 64,
    };
    let usual = series::whole_depth(usual, record.header.shards);
    series::smallest_sufficient_depth(&points).unwrap_or(usual)
}

/// Samples of one of the four figures, those that count from the second number on.
fn figure_samples(record: &Record, phase: Phase) -> (Vec<&Sample>, usize) {
    if record.header.mode != Mode::Full {
        let samples = record.samples(phase, Step::Measure);
        let rates: Vec<f64> = samples.iter().map(|sample| rate(phase, sample)).collect();
        let from = series::settled_from(&rates).index;
        return (samples, from);
    }
    let samples = round_samples(record, phase);
    let from = samples.len().saturating_sub(steady::WINDOW_ROUNDS);
    (samples, from)
}

/// Of all rounds, the samples that are for one of the four figures.
fn round_samples(record: &Record, phase: Phase) -> Vec<&Sample> {
    let is_of = |load: &Load| match phase {
        Phase::WriteBandwidth => load.writes.is_some_and(|stream| stream.order == Order::Sequential),
        Phase::ReadBandwidth => load.reads.is_some_and(|stream| stream.order == Order::Sequential),
        Phase::WriteIops => load.writes.is_some_and(|stream| stream.order == Order::Random),
        _ => load.reads.is_some_and(|stream| stream.order == Order::Random),
    };
    record.samples(Phase::Rounds, Step::Measure).into_iter().filter(|sample| is_of(&sample.load)).collect()
}

/// One of the four figures; `None` where nothing was measured for it.
pub(in crate::tune) fn figure(record: &Record, phase: Phase) -> Option<Figure> {
    let (samples, settled_at) = figure_samples(record, phase);
    let first = samples.first()?;
    let rates: Vec<f64> = samples.iter().map(|sample| rate(phase, sample)).collect();
    let counted = rates.get(settled_at..)?;
    let interval = series::mean_interval(counted);
    let value = series::mean(counted);
    if !(value.is_finite() && value > 0.0) {
        return None;
    }
    let before = rates.get(..settled_at).map(series::mean).filter(|before| *before > 0.0);
    let is_off = |before: &f64| (before / value - 1.0).abs() * 100.0 >= BURST_MIN_PCT;
    let measured_s: f64 = samples.iter().map(|sample| sample.elapsed_s).sum();
    let cpu_s: f64 = samples.iter().map(|sample| sample.cpu_busy_pct * sample.elapsed_s).sum();
    let stream = first.load.stream()?;
    let measured_in = if record.header.mode == Mode::Full { Phase::Rounds } else { phase };
    let is_long = match record.header.mode {
        Mode::Full => samples.len() >= steady::WINDOW_ROUNDS,
        mode => measured_s >= Timing::of(mode, record.header.phase_s).figure_min_s * 0.9,
    };
    let probes = search(record, phase, record.best_attempt(phase));
    Some(Figure {
        value,
        unit: unit(phase),
        ci95_pct: interval.map(|interval| interval.half_width / value * 100.0),
        deviation_pct: series::deviation_pct(counted),
        settled_at,
        sample_s: measured_s / samples.len() as f64,
        depth: stream.depth,
        block_bytes: stream.block_bytes,
        probes: probes.iter().map(|point| Probe { depth: point.depth, rate: point.rate }).collect(),
        cpu_busy_pct: cpu_s / measured_s.max(1e-9),
        foreign_pct: record.foreign_pct(measured_in, record.best_attempt(measured_in)),
        burst: before.filter(is_off),
        complete: record.is_done(measured_in) && is_long,
        samples: rates,
    })
}

/// Rates, latencies and knee over depths.
pub(super) fn depth_curve(record: &Record, phase: Phase) -> Option<DepthCurve> {
    let samples = record.samples(phase, Step::Search);
    let block_bytes = samples.first()?.load.stream()?.block_bytes;
    let point = |sample: &&Sample| {
        let (moved, depth) = (sample.moved(), sample.load.stream()?.depth);
        let point = DepthPoint { depth, iops: sample.iops(&moved), p50_ns: moved.p50_ns, p99_ns: moved.p99_ns };
        (moved.requests > 0).then_some(point)
    };
    let points: Vec<DepthPoint> = samples.iter().filter_map(point).collect();
    let knee = curves::knee(&search(record, phase, record.best_attempt(phase)));
    let knee = knee.map(|knee| Knee {
        depth: knee.depth,
        iops: knee.rate,
        p50_ns: knee.p50_ns,
        concurrency: knee.concurrency,
    });
    Some(DepthCurve { block_bytes, points, knee })
}

/// Of the search: what one request at a time took.
pub(super) fn unloaded_latency(record: &Record, phase: Phase) -> Option<UnloadedLatency> {
    let samples = record.samples(phase, Step::Search);
    let alone = samples.iter().find(|sample| sample.load.stream().is_some_and(|stream| stream.depth == 1))?;
    let moved = alone.moved();
    (moved.requests > 0).then_some(UnloadedLatency {
        p50_ns: moved.p50_ns,
        p99_ns: moved.p99_ns,
        requests: moved.requests,
        block_bytes: alone.load.stream()?.block_bytes,
    })
}

/// The size of random writes: what the user set, or the block in which the disk was found to write.
pub(in crate::tune) fn write_block(record: &Record) -> BlockSize {
    let given = record.header.write_block.clone();
    match physical_block(record) {
        Some(found) if !given.is_set && found.is_step && found.bytes > given.bytes => {
            BlockSize { bytes: found.bytes, how: format!("measured: physical block {}", found.bytes), is_set: false }
        }
        _ => given,
    }
}

/// In which blocks the disk writes; `None` where that was not tried.
pub(in crate::tune) fn physical_block(record: &Record) -> Option<PhysicalBlock> {
    let samples = record.samples(Phase::Blocks, Step::Search);
    let mut points: Vec<(u32, Vec<f64>)> = Vec::new();
    let (mut aligned, mut shifted) = (Vec::new(), Vec::new());
    for sample in samples {
        let Some(stream) = sample.load.writes else { continue };
        let iops = sample.iops(&sample.moved());
        if stream.shift_bytes > 0 {
            shifted.push(iops);
            continue;
        }
        if stream.block_bytes == IOPS_BLOCK_BYTES {
            aligned.push(iops);
        }
        match points.iter_mut().find(|(bytes, _)| *bytes == stream.block_bytes) {
            Some((_, rates)) => rates.push(iops),
            None => points.push((stream.block_bytes, vec![iops])),
        }
    }
    if points.is_empty() {
        return None;
    }
    let logical_bytes = record.header.align_bytes.max(SHIFT_BYTES);
    let found = curves::physical_block(&points, logical_bytes);
    Some(PhysicalBlock {
        bytes: found.bytes,
        reported_bytes: place::physical_block_bytes(record.header.device.as_ref()),
        is_step: found.is_step,
        gain: found.gain,
        misalignment_factor: curves::misalignment_factor(&aligned, &shifted).map(|factor| {
            let clear = series::mean_interval(&aligned).zip(series::mean_interval(&shifted));
            let is_sure = clear.is_some_and(|(a, s)| a.mean - a.half_width > s.mean + s.half_width);
            if is_sure { factor } else { 1.0 }
        }),
    })
}

/// Rates by size of one direction, the mean of all rounds.
fn size_points(record: &Record, phase: Phase, is_write: bool) -> Vec<SizePoint> {
    let mut points: Vec<(SizePoint, u32)> = Vec::new();
    for sample in record.samples(phase, Step::Search) {
        let stream = if is_write { sample.load.writes } else { sample.load.reads };
        let Some(stream) = stream else { continue };
        let (iops, bytes_per_s) = (sample.iops(&sample.moved()), sample.bytes_per_s(&sample.moved()));
        match points.iter_mut().find(|(point, _)| point.block_bytes == stream.block_bytes) {
            Some((point, count)) => {
                *count += 1;
                point.iops += (iops - point.iops) / f64::from(*count);
                point.bytes_per_s += (bytes_per_s - point.bytes_per_s) / f64::from(*count);
            }
            None => {
                let (block_bytes, depth) = (stream.block_bytes, stream.depth);
                points.push((SizePoint { block_bytes, iops, bytes_per_s, depth }, 1));
            }
        }
    }
    let mut points: Vec<SizePoint> = points.into_iter().map(|(point, _)| point).collect();
    points.retain(|point| point.iops > 0.0);
    points.sort_by_key(|point| point.block_bytes);
    points
}

/// Random rates by size, beside what the cost function of the four figures makes of them.
pub(super) fn size_curve(record: &Record, is_write: bool, model: Option<&CostModel>) -> Option<SizeCurve> {
    let points = size_points(record, Phase::Sizes, is_write);
    let op = if is_write { Op::Write } else { Op::Read };
    let residual = |point: &SizePoint, model: &CostModel| {
        (model.cost(op, point.block_bytes).as_secs_f64() * point.iops - 1.0) * 100.0
    };
    let residuals = model.map(|model| points.iter().map(|point| residual(point, model)).collect());
    let rates: Vec<(u32, f64)> = points.iter().map(|point| (point.block_bytes, point.iops)).collect();
    let fit = cost::knee_cost_fit(&rates);
    (!points.is_empty()).then(|| SizeCurve { points, model_residuals_pct: residuals.unwrap_or_default(), fit })
}

/// The cost function that the scheduler will use for these figures.
pub(super) fn cost_model(figures: &FourFigures, read_block: u32, write_block: u32) -> CostModel {
    CostModel::from_figures(figures, CostForm::Knee, read_block, write_block)
}

/// Sequential rates by size.
pub(super) fn sequential_curve(record: &Record, is_write: bool) -> Option<SequentialCurve> {
    let points = size_points(record, Phase::SequentialSizes, is_write);
    let throughputs: Vec<(u32, f64)> = points.iter().map(|point| (point.block_bytes, point.bytes_per_s)).collect();
    // Writes come longest first: where they were cut short, the longest alone say nothing.
    let expected = sizes_bytes(SEQUENTIAL_FIRST_POWER, record.header.align_bytes);
    let is_whole = points.len() == expected.len();
    let saturation_bytes =
        curves::saturation_bytes(&throughputs).filter(|_| is_whole && record.is_done(Phase::SequentialSizes));
    (!points.is_empty()).then_some(SequentialCurve { points, saturation_bytes })
}

/// Requests a second of reads alone and of writes alone, of one attempt at the frontier.
pub(in crate::tune) fn frontier_ends(record: &Record, attempt: u32) -> Option<(f64, f64)> {
    let ends = record.attempt(Phase::Frontier, attempt, Step::Measure);
    let read = ends.iter().find_map(|sample| Some(sample.iops(&sample.reads?)))?;
    let write = ends.iter().find_map(|sample| Some(sample.iops(&sample.writes?)))?;
    (read > 0.0 && write > 0.0).then_some((read, write))
}

/// Mixes between reads alone and writes alone, as parts of what each reaches alone; the larger part is 1.
pub(in crate::tune) fn rays(count: u32) -> Vec<(f64, f64)> {
    let ray = |at: u32| {
        let (writes, reads) = (std::f64::consts::FRAC_PI_2 * f64::from(at) / f64::from(count + 1)).sin_cos();
        let largest = reads.max(writes);
        (reads / largest, writes / largest)
    };
    (1..=count).map(ray).collect()
}

/// Whether both streams of a load reached their rates, as far as so few requests can tell.
pub(in crate::tune) fn is_carried(sample: &Sample) -> bool {
    [(sample.load.reads, sample.reads), (sample.load.writes, sample.writes)].iter().all(|(stream, moved)| {
        let wanted = stream.and_then(|stream| stream.rate_per_s).map_or(0.0, |rate| rate * sample.elapsed_s);
        let reached = moved.map_or(0.0, |moved| moved.requests as f64);
        reached >= wanted * CARRIED_PART - 2.0 * wanted.sqrt()
    })
}

/// What the disk carries of both: for each mix, the middle between what it reached of the largest load that it carried
/// and of the least that it did not.
pub(super) fn frontier_curve(record: &Record) -> Option<Frontier> {
    let attempt = record.best_attempt(Phase::Frontier);
    let (read_max, write_max) = frontier_ends(record, attempt)?;
    let searched = record.attempt(Phase::Frontier, attempt, Step::Search);
    let first = searched.first()?.load;
    let (read_block_bytes, write_block_bytes) = (first.reads?.block_bytes, first.writes?.block_bytes);
    // Samples of one mix follow one another: the ratio of what was asked stays.
    let mut mixes: Vec<(f64, Vec<&Sample>)> = Vec::new();
    for sample in searched {
        let (reads, writes) = (sample.load.reads?.rate_per_s?, sample.load.writes?.rate_per_s?);
        let angle = (writes / write_max).atan2(reads / read_max);
        match mixes.last_mut() {
            Some((last, samples)) if (*last - angle).abs() < 1e-3 => samples.push(sample),
            _ => mixes.push((angle, vec![sample])),
        }
    }
    // What was reached, never what was asked: a load that counts as carried may have missed its rates by a little.
    let reached = |sample: &Sample| FrontierPoint {
        reads: sample.iops(&sample.reads.unwrap_or_default()) / read_max,
        writes: sample.iops(&sample.writes.unwrap_or_default()) / write_max,
    };
    let asked = |sample: &&&Sample| sample.load.reads.and_then(|stream| stream.rate_per_s).unwrap_or(0.0);
    let mut points = vec![FrontierPoint { reads: 1.0, writes: 0.0 }];
    for (_, samples) in &mixes {
        let most = samples.iter().filter(|s| is_carried(s)).max_by(|a, b| asked(a).total_cmp(&asked(b)));
        let least = samples.iter().filter(|s| !is_carried(s)).min_by(|a, b| asked(a).total_cmp(&asked(b)));
        let ends: Vec<FrontierPoint> = most.into_iter().chain(least).map(|sample| reached(sample)).collect();
        let mean = |part: fn(&FrontierPoint) -> f64| ends.iter().map(part).sum::<f64>() / ends.len().max(1) as f64;
        points.push(FrontierPoint { reads: mean(|point| point.reads), writes: mean(|point| point.writes) });
    }
    points.push(FrontierPoint { reads: 0.0, writes: 1.0 });
    let pairs: Vec<(f64, f64)> = points.iter().map(|point| (point.reads, point.writes)).collect();
    let fit = frontier::mix_exponent(&pairs).filter(|_| record.is_done(Phase::Frontier))?;
    Some(Frontier {
        read_iops: read_max,
        read_block_bytes,
        write_bytes_per_s: write_max * f64::from(write_block_bytes),
        write_block_bytes,
        points,
        mix_exponent_p: fit.p.is_finite().then_some(fit.p),
        rmse: fit.rmse,
    })
}

/// The phases of the four figures, by their names in io-properties.
pub(super) const FIGURES: [(&str, Phase); 4] = [
    ("read_iops", Phase::ReadIops),
    ("write_iops", Phase::WriteIops),
    ("read_bandwidth", Phase::ReadBandwidth),
    ("write_bandwidth", Phase::WriteBandwidth),
];

/// How the rounds of a full measurement stand; `None` before there are five.
pub(in crate::tune) fn steady_state(record: &Record) -> Option<SteadyState> {
    let mut tracks = Vec::new();
    for (figure, phase) in FIGURES {
        let rates: Vec<f64> = round_samples(record, phase).into_iter().map(|sample| rate(phase, sample)).collect();
        let window = steady::steady_window(&rates)?;
        tracks.push(SteadyTrack {
            figure: figure.to_owned(),
            first_steady: steady::first_steady(&rates),
            window_begin: rates.len() - steady::WINDOW_ROUNDS,
            rates,
            window,
        });
    }
    let written = record.samples(Phase::Precondition, Step::Warmup);
    Some(SteadyState {
        attained: tracks.iter().all(|track| track.window.attained),
        rounds: tracks.iter().map(|track| track.rates.len() as u32).min().unwrap_or(0),
        round_s: record.header.round_s,
        active_range_pct: active_range_pct(record),
        precondition_bytes: written.iter().map(|sample| sample.moved().bytes).sum(),
        tracks,
    })
}

/// How much of the disk the scratch data are, in per cent; `None` where its size is unknown.
fn active_range_pct(record: &Record) -> Option<f64> {
    let size_bytes = record.header.device.as_ref()?.size_bytes.filter(|bytes| *bytes > 0)?;
    Some(record.data_bytes() as f64 / size_bytes as f64 * 100.0)
}

/// The last round in a line.
pub(in crate::tune) fn rounds_line(record: &Record) -> String {
    let texts = FIGURES.iter().filter_map(|(name, phase)| {
        let samples = round_samples(record, *phase);
        let value = rate(*phase, samples.last()?);
        Some(format!("{name} {}", unit(*phase).text(value)))
    });
    texts.collect::<Vec<String>>().join(", ")
}

/// How much of a phase's I/O was not ours, in per cent, where that is too much.
pub(super) fn too_foreign_pct(record: &Record, phase: Phase) -> Option<f64> {
    let foreign_pct = record.foreign_pct(phase, record.best_attempt(phase));
    foreign_pct.filter(|percent| *percent > FOREIGN_MAX_PCT)
}
