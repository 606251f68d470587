//! Computes the findings of each phase from its samples.
//!
//! **Why.** During the measurement, the protocol needs the best depth and whether a figure is known; afterwards the
//! report needs the same. Both use these functions, so a later analysis of the record agrees with the measurement.
//!
//! **How.** Each function takes a whole record and selects its samples: those of the attempt that other programs
//! disturbed least.
//!
//! **Limits.** A record that ended early has fewer samples, and the findings are `None`.
//!
//! **Example.** Writes of 512 to 16384 bytes at 61, 60, 62, 121, 118 and 90 thousand a second, three times each: the
//! disk writes in blocks of 4096 bytes, whatever the kernel reports.

use plimsoll::core::{CostModel, Op};
use plimsoll_figures::series;
use plimsoll_files::io_properties::IOPS_BLOCK_BYTES;

use super::super::record::{Load, Order, Phase, Record, Sample, Step};
use super::super::report::{
    BlockSize, DepthCurve, DepthPoint, Figure, Frontier, FrontierPoint, PhysicalBlock, Probe, SequentialCurve,
    SizeCurve, SizePoint, SteadyState, SteadyTrack, Unit, UnloadedLatency,
};
use super::super::timing::Timing;
use super::super::{Mode, place};
use super::{cost, curves, frontier, steady};
use crate::by_key;

/// Foreign I/O in per cent of all, above which a phase is repeated.
pub(in crate::tune) const FOREIGN_MAX_PCT: f64 = 2.0;
/// Power of two of the shortest sequential request in a curve over sizes: 4 KiB.
pub(in crate::tune) const SEQUENTIAL_FIRST_POWER: u32 = 12;
/// Shift of positions in bytes to measure the cost of misaligned writes.
pub(in crate::tune) const SHIFT_BYTES: u32 = 512;
/// Least deviation in per cent of the rate before the figure settled at which it is reported as a burst.
const BURST_MIN_PCT: f64 = 5.0;
/// Part of its rate that a load must reach to count as carried, as in diskplorer.
const CARRIED_PART: f64 = 0.97;
/// Requests by which the count of a sample may be wrong, at 95 %: two standard deviations of at most half a request,
/// because a sample begins and ends anywhere in a request.
const ROUNDED_REQUESTS: f64 = 1.0;
/// Part of the best rate that the chosen depth may lose, by the rule of `series::smallest_sufficient_depth`.
const DEPTH_LOSS: f64 = 0.005;
/// Fewest samples from which scatter can be judged.
pub(in crate::tune) const KNOWN_SAMPLES: usize = 5;

/// Returns the powers of two from the given one to 1 MiB that direct I/O with this alignment accepts.
pub(in crate::tune) fn sizes_bytes(first_power: u32, align_bytes: u32) -> Vec<u32> {
    let align_bytes = align_bytes.max(1);
    (first_power..=20).map(|power| 1 << power).filter(|bytes: &u32| bytes.is_multiple_of(align_bytes)).collect()
}

/// Returns whether a figure is known: its transient is over, and half its 95 % interval is within `enough_pct` per
/// cent.
pub(in crate::tune) fn is_known(rates: &[f64], enough_pct: f64) -> bool {
    let settled = series::settled_from(rates);
    let counted = rates.get(settled.index..).unwrap_or(rates);
    let interval = series::mean_interval(counted).filter(|_| counted.len() >= KNOWN_SAMPLES);
    settled.is_settled && interval.is_some_and(|i| i.half_width <= i.mean * enough_pct / 100.0)
}

/// Returns the rate of one figure in a sample, in the figure's unit.
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

/// Returns the results of the search of one attempt so far, by rising depth.
pub(in crate::tune) fn search(record: &Record, phase: Phase, attempt: u32) -> Vec<series::DepthPoint> {
    let points = record.attempt(phase, attempt, Step::Search).into_iter().filter_map(|sample| {
        let moved = sample.moved();
        let depth = sample.load.stream()?.depth;
        (moved.requests > 0).then(|| series::DepthPoint { depth, rate: rate(phase, sample), p50_ns: moved.p50_ns })
    });
    points.collect()
}

/// Returns the depth for one of the four figures: the smallest that got nearly the highest rate in one attempt, or a
/// default without a search.
pub(in crate::tune) fn depth(record: &Record, phase: Phase, attempt: u32) -> u32 {
    let points = search(record, phase, attempt);
    let usual = match unit(phase) {
        Unit::BytesPerS => 16,
        Unit::OperationsPerS => 64,
    };
    let usual = series::whole_depth(usual, record.header.shards);
    series::smallest_sufficient_depth(&points).unwrap_or(usual)
}

/// Returns the samples of one of the four figures, and the index of the first that counts.
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

/// Returns the samples of all rounds for one of the four figures.
fn round_samples(record: &Record, phase: Phase) -> Vec<&Sample> {
    let is_of = |load: &Load| match phase {
        Phase::WriteBandwidth => load.writes.is_some_and(|stream| stream.order == Order::Sequential),
        Phase::ReadBandwidth => load.reads.is_some_and(|stream| stream.order == Order::Sequential),
        Phase::WriteIops => load.writes.is_some_and(|stream| stream.order == Order::Random),
        _ => load.reads.is_some_and(|stream| stream.order == Order::Random),
    };
    record.samples(Phase::Rounds, Step::Measure).into_iter().filter(|sample| is_of(&sample.load)).collect()
}

/// Returns one of the four figures; `None` if it was not measured.
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

    let foreign_pct = record.foreign_pct(measured_in, record.best_attempt(measured_in));
    let probes = search(record, phase, record.best_attempt(phase));
    Some(Figure {
        value,
        unit: unit(phase),
        ci95_pct: interval
            .zip(samples.get(settled_at..))
            .map(|(interval, counted)| half_width_pct(&interval, counted, foreign_pct.unwrap_or(0.0))),
        deviation_pct: series::deviation_pct(counted),
        settled_at,
        sample_s: measured_s / samples.len() as f64,
        depth: stream.depth,
        block_bytes: stream.block_bytes,
        probes: probes.iter().map(|point| Probe { depth: point.depth, rate: point.rate }).collect(),
        cpu_busy_pct: cpu_s / measured_s.max(1e-9),
        foreign_pct,
        burst: before.filter(is_off),
        complete: record.is_done(measured_in) && is_long,
        samples: rates,
    })
}

/// Returns half the width of the interval of a figure, in per cent: from the scatter of its samples; from counting
/// whole requests, which need not scatter; from the possible loss at the chosen depth; and from other programs' part of
/// the disk.
fn half_width_pct(interval: &series::Interval, counted: &[&Sample], foreign_pct: f64) -> f64 {
    let requests: u64 = counted.iter().map(|sample| sample.moved().requests).sum();
    let rounded = ROUNDED_REQUESTS * (counted.len() as f64).sqrt() / (requests as f64).max(1.0);
    let scatter = interval.half_width / interval.mean;
    let foreign = (foreign_pct / 100.0).min(0.99);
    100.0 * (scatter.hypot(rounded) + DEPTH_LOSS + foreign / (1.0 - foreign))
}

/// Returns rates, latencies and knee by depth.
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
    Some(DepthCurve { block_bytes, points, knee })
}

/// Returns the latency of one request at a time, from the search.
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

/// Returns the size of random writes: the user's, or the physical block found.
pub(in crate::tune) fn write_block(record: &Record) -> BlockSize {
    let given = record.header.write_block.clone();
    match physical_block(record) {
        Some(found) if !given.is_set && found.is_step && found.bytes > given.bytes => {
            BlockSize { bytes: found.bytes, how: format!("measured: physical block {}", found.bytes), is_set: false }
        }
        _ => given,
    }
}

/// Returns the disk's physical block; `None` if it was not searched for.
pub(in crate::tune) fn physical_block(record: &Record) -> Option<PhysicalBlock> {
    let samples = record.samples(Phase::Blocks, Step::Search);
    let (mut points, mut aligned, mut shifted) = (Vec::new(), Vec::new(), Vec::new());
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
        points.push((stream.block_bytes, iops));
    }
    if points.is_empty() {
        return None;
    }

    let logical_bytes = record.header.align_bytes.max(SHIFT_BYTES);
    Some(PhysicalBlock {
        reported_bytes: place::physical_block_bytes(record.header.site.device.as_ref()),
        misalignment_factor: curves::misalignment_factor(&aligned, &shifted).map(|factor| {
            let clear = series::mean_interval(&aligned).zip(series::mean_interval(&shifted));
            let is_sure = clear.is_some_and(|(a, s)| a.mean - a.half_width > s.mean + s.half_width);
            if is_sure { factor } else { 1.0 }
        }),
        ..curves::physical_block(&by_key(points), logical_bytes)
    })
}

/// Returns the rates by size of one direction, the mean of all rounds.
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

/// Returns random rates by size, with the error of the cost function of the four figures.
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

/// Returns sequential rates by size.
pub(super) fn sequential_curve(record: &Record, is_write: bool) -> Option<SequentialCurve> {
    let points = size_points(record, Phase::SequentialSizes, is_write);
    let throughputs: Vec<(u32, f64)> = points.iter().map(|point| (point.block_bytes, point.bytes_per_s)).collect();
    // Writes come longest first: if they were cut short, the longest alone do not show saturation.
    let expected = sizes_bytes(SEQUENTIAL_FIRST_POWER, record.header.align_bytes);
    let is_whole = points.len() == expected.len();
    let saturation_bytes =
        curves::saturation_bytes(&throughputs).filter(|_| is_whole && record.is_done(Phase::SequentialSizes));
    (!points.is_empty()).then_some(SequentialCurve { points, saturation_bytes })
}

/// Returns the requests a second of reads alone and of writes alone, of one attempt at the frontier.
pub(in crate::tune) fn frontier_ends(record: &Record, attempt: u32) -> Option<(f64, f64)> {
    let ends = record.attempt(Phase::Frontier, attempt, Step::Measure);
    let read = ends.iter().find_map(|sample| Some(sample.iops(&sample.reads?)))?;
    let write = ends.iter().find_map(|sample| Some(sample.iops(&sample.writes?)))?;
    (read > 0.0 && write > 0.0).then_some((read, write))
}

/// Returns mixes between reads alone and writes alone, as fractions of the rate of each alone; the larger fraction is
/// 1.
pub(in crate::tune) fn rays(count: u32) -> Vec<(f64, f64)> {
    let ray = |at: u32| {
        let (writes, reads) = (std::f64::consts::FRAC_PI_2 * f64::from(at) / f64::from(count + 1)).sin_cos();
        let largest = reads.max(writes);
        (reads / largest, writes / largest)
    };
    (1..=count).map(ray).collect()
}

/// Returns whether both streams of a load reached their rates, within the statistical error of the number of
/// requests.
pub(in crate::tune) fn is_carried(sample: &Sample) -> bool {
    [(sample.load.reads, sample.reads), (sample.load.writes, sample.writes)].iter().all(|(stream, moved)| {
        let wanted = stream.and_then(|stream| stream.rate_per_s).map_or(0.0, |rate| rate * sample.elapsed_s);
        let reached = moved.map_or(0.0, |moved| moved.requests as f64);
        reached >= wanted * CARRIED_PART - 2.0 * wanted.sqrt()
    })
}

/// Returns the mixes at the limit of the disk: for each, the mean of the rates reached under the largest load that it
/// carried and under the smallest that it did not.
pub(super) fn frontier_curve(record: &Record) -> Option<Frontier> {
    let attempt = record.best_attempt(Phase::Frontier);
    let (read_max, write_max) = frontier_ends(record, attempt)?;
    let searched = record.attempt(Phase::Frontier, attempt, Step::Search);
    let first = searched.first()?.load;
    let (read_block_bytes, write_block_bytes) = (first.reads?.block_bytes, first.writes?.block_bytes);

    // Samples of one mix are consecutive and ask for the same ratio.
    let mut mixes: Vec<(f64, Vec<&Sample>)> = Vec::new();
    for sample in searched {
        let (reads, writes) = (sample.load.reads?.rate_per_s?, sample.load.writes?.rate_per_s?);
        let angle = (writes / write_max).atan2(reads / read_max);
        match mixes.last_mut() {
            Some((last, samples)) if (*last - angle).abs() < 1e-3 => samples.push(sample),
            _ => mixes.push((angle, vec![sample])),
        }
    }
    // Use the rates reached, not those requested: a load that counts as carried may have missed its rates slightly.
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
        mix_exponent_p: Some(fit.mix_exponent).filter(|p| p.is_finite()),
        rmse: fit.rmse,
    })
}

/// Phases of the four figures, with their names in io-properties.
pub(super) const FIGURES: [(&str, Phase); 4] = [
    ("read_iops", Phase::ReadIops),
    ("write_iops", Phase::WriteIops),
    ("read_bandwidth", Phase::ReadBandwidth),
    ("write_bandwidth", Phase::WriteBandwidth),
];

/// Returns the state of the rounds of a full measurement; `None` before there are five.
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

/// Returns the part of the disk that the scratch data covers, in per cent; `None` if the disk's size is unknown.
fn active_range_pct(record: &Record) -> Option<f64> {
    let size_bytes = record.header.site.device.as_ref()?.size_bytes.filter(|bytes| *bytes > 0)?;
    Some(record.data_bytes() as f64 / size_bytes as f64 * 100.0)
}

pub(in crate::tune) fn rounds_line(record: &Record) -> String {
    let texts = FIGURES.iter().filter_map(|(name, phase)| {
        let samples = round_samples(record, *phase);
        let value = rate(*phase, samples.last()?);
        Some(format!("{name} {}", unit(*phase).text(value)))
    });
    texts.collect::<Vec<String>>().join(", ")
}

/// Returns the foreign part of a phase's I/O in per cent, if it is too much.
pub(super) fn too_foreign_pct(record: &Record, phase: Phase) -> Option<f64> {
    let foreign_pct = record.foreign_pct(phase, record.best_attempt(phase));
    foreign_pct.filter(|percent| *percent > FOREIGN_MAX_PCT)
}
