//! Computes the report of a record.
//!
//! **Why.** The report at the end of a measurement, and that of its record a year later, must be the same.
//!
//! **How.** [`report`] takes each part from [`super::phases`], and adds the reasons to doubt a figure: the CPU was the
//! limit, the samples scatter, the disk was still changing, other programs used it.
//!
//! **Limits.** This module judges by the samples; warnings from the kernel's information are in the header
//! ([`super::super::place`]).
//!
//! **Example.** Random reads of 95 k IOPS with a shard 97 % busy: the warning says that the figure may be a limit of
//! the CPU.

use plimsoll::core::{CostForm, CostModel};
use plimsoll_figures::series;
use plimsoll_figures::units::{format_bytes_binary, format_duration_ns};
use plimsoll_files::io_properties::IOPS_BLOCK_BYTES;

use super::super::depth_mode;
use super::super::record::{Entry, Phase, Record};
use super::super::report::{
    BLOCK_STEP_MIN, DepthCurve, DepthMode, Figure, SCHEMA, SizePoint, TuneReport, Warning, WarningCode,
};
use super::apart;
use super::phases::{self, FOREIGN_MAX_PCT};

/// Busiest shard in per cent of a CPU, above which a figure may be a limit of the CPU.
const CPU_BUSY_MAX_PCT: f64 = 90.0;
/// Half of a figure's 95 % interval in per cent, above which there is a warning.
const INTERVAL_MAX_PCT: f64 = 5.0;
/// Part of the disk in per cent, below which a steady state is not that of a full disk.
const RANGE_MIN_PCT: f64 = 50.0;
/// Deviation of the samples in per cent, above which there is a warning.
const DEVIATION_MAX_PCT: f64 = 5.0;
/// Length in bytes of the requests that the kernel's `io.cost.model` counts as operations.
const IOCOST_BYTES: u32 = 4096;

pub(in crate::tune) fn report(record: &Record) -> TuneReport {
    let header = &record.header;
    let end = record.entries.iter().rev().find_map(|entry| match entry {
        Entry::End { written_bytes, duration_s, interrupted } => Some((*written_bytes, *duration_s, *interrupted)),
        _ => None,
    });
    // A record without an end is of a measurement that is running, or that crashed.
    let (written_bytes, duration_s, interrupted) = end.unwrap_or_else(|| {
        let (written_bytes, seconds) = record.spent();
        (written_bytes, seconds, !record.is_complete())
    });

    let mut report = TuneReport {
        schema: SCHEMA,
        site: header.site.clone(),
        backend: header.backend.clone(),
        shards: header.shards,
        data_bytes: record.data_bytes(),
        seed: header.seed,
        mode: header.mode,
        read_block: header.read_block.clone(),
        write_block: phases::write_block(record),
        read_iops: phases::figure(record, Phase::ReadIops),
        write_iops: phases::figure(record, Phase::WriteIops),
        read_bandwidth: phases::figure(record, Phase::ReadBandwidth),
        write_bandwidth: phases::figure(record, Phase::WriteBandwidth),
        read_latency: phases::unloaded_latency(record, Phase::ReadIops),
        write_latency: phases::unloaded_latency(record, Phase::WriteIops),
        read_depths: phases::depth_curve(record, Phase::ReadIops),
        write_depths: phases::depth_curve(record, Phase::WriteIops),
        read_sequential: phases::sequential_curve(record, false),
        write_sequential: phases::sequential_curve(record, true),
        physical_block: phases::physical_block(record),
        frontier: phases::frontier_curve(record),
        steady_state: phases::steady_state(record),
        written_bytes,
        duration_s,
        warnings: header.warnings.clone(),
        interrupted,
        // Fields that follow from these are set below.
        ..TuneReport::default()
    };

    let figures = report.four_figures().ok();
    let blocks = (report.read_block.bytes, report.write_block.bytes);
    let model = figures.map(|f| CostModel::from_figures(&f, CostForm::Knee, blocks.0, blocks.1));
    report.read_sizes = phases::size_curve(record, false, model.as_ref());
    report.write_sizes = phases::size_curve(record, true, model.as_ref());
    report.limits_apart = apart::limits_apart(&report);
    report.depth_mode = recommended(&report, header.numa_nodes);
    report.iocost_model = iocost_model(&report);
    add_costs(record, &mut report);
    let warnings = warnings(record, &report);
    report.warnings.extend(warnings);
    report
}

fn add_costs(record: &Record, report: &mut TuneReport) {
    for entry in &record.entries {
        if let Entry::Costs { flush, discard, submissions, skipped } = entry {
            report.flush.clone_from(flush);
            report.discard.clone_from(discard);
            report.submissions.clone_from(submissions);
            let warn = |message: &String| Warning { code: WarningCode::NotMeasured, message: message.clone() };
            report.warnings.extend(skipped.iter().map(warn));
        }
    }
}

/// Returns queues and requests for a scheduler that only counts requests, for nearly the best rate.
fn recommended(report: &TuneReport, numa_nodes: u16) -> Option<DepthMode> {
    let depth = |curve: &Option<DepthCurve>, part: f64| {
        let points = &curve.as_ref()?.points;
        let best = points.iter().map(|point| point.iops).fold(0.0, f64::max);
        points.iter().find(|point| point.iops >= best * part).map(|point| point.depth)
    };
    let of_both = |part| depth(&report.read_depths, part).max(depth(&report.write_depths, part));
    let (enough_depth, depth_80) = (of_both(depth_mode::ENOUGH_PART)?, of_both(depth_mode::IOTUNE_2016_PART)?);
    Some(depth_mode::recommend(enough_depth, depth_80, report.shards, numa_nodes))
}

/// Returns the line for `io.cost.model`: <https://docs.kernel.org/admin-guide/cgroup-v2.html>, "IO Interface Files".
/// Its IOPS are of 4 KiB.
fn iocost_model(report: &TuneReport) -> Option<String> {
    // The kernel accepts only the number of a whole disk: no partition, no array, no volume.
    let device = report
        .site
        .device
        .as_ref()
        .filter(|device| device.leaves.len() == 1 && device.leaves[0].name == device.disk)?;
    let at = |points: &[SizePoint]| {
        let point = points.iter().find(|point| point.block_bytes == IOCOST_BYTES)?;
        Some(point.iops.round() as u64)
    };

    let whole = |figure: &Option<Figure>| figure.as_ref().map(|figure| figure.value.round() as u64);
    Some(format!(
        "{} ctrl=user model=linear rbps={} rseqiops={} rrandiops={} wbps={} wseqiops={} wrandiops={}",
        device.disk_number.as_deref()?,
        whole(&report.read_bandwidth)?,
        at(&report.read_sequential.as_ref()?.points)?,
        at(&report.read_sizes.as_ref()?.points)?,
        whole(&report.write_bandwidth)?,
        at(&report.write_sequential.as_ref()?.points)?,
        at(&report.write_sizes.as_ref()?.points)?,
    ))
}

/// Returns the finding of a phase in a line; `None` if there is none.
pub(in crate::tune) fn remark(record: &Record, phase: Phase) -> Option<String> {
    let name = phase.name();
    match phase {
        Phase::WriteBandwidth | Phase::ReadBandwidth | Phase::WriteIops | Phase::ReadIops => {
            let Some(figure) = phases::figure(record, phase) else {
                return Some(format!("{name}: depth {}", phases::depth(record, phase, record.best_attempt(phase))));
            };

            let value = figure.unit.text(figure.value);
            let interval = match figure.ci95_pct {
                None => "a single sample".to_owned(),
                Some(_) => format!("{} (95 %)", figure.interval_text()),
            };

            Some(format!("{name}: {value}, {interval}, depth {}", figure.depth))
        }
        Phase::Blocks => {
            let block = phases::physical_block(record)?;
            Some(format!("{name}: {}", block.words()))
        }
        Phase::Frontier => {
            let frontier = phases::frontier_curve(record)?;

            let p = frontier.mix_exponent_p.map_or("infinite: they do not disturb each other".to_owned(), |p| {
                format!("{p:.2} (1: linear; larger: they disturb each other less)")
            });
            Some(format!("{name}: mix exponent {p}"))
        }
        _ => None,
    }
}

/// Returns the reasons to doubt the results.
fn warnings(record: &Record, report: &TuneReport) -> Vec<Warning> {
    let mut warnings: Vec<Warning> = record
        .entries
        .iter()
        .filter_map(|entry| match entry {
            Entry::Warned(warning) => Some(warning.clone()),
            _ => None,
        })
        .collect();

    let mut warn = |code, message: String| warnings.push(Warning { code, message });

    for (_, phase) in phases::FIGURES {
        if let Some(figure) = phases::figure(record, phase) {
            judge(phase.name(), &figure, &mut warn);
        }
    }

    for phase in record.header.phases() {
        if let Some(foreign_pct) = phases::too_foreign_pct(record, phase) {
            let tried = record.best_attempt(phase).max(record.last_attempt(phase)) + 1;
            let message = format!(
                "{}: {foreign_pct:.1} % of what the disk moved was not ours (up to {FOREIGN_MAX_PCT} % is taken), \
                 tried {tried} time(s): measure while nothing else uses the disk",
                phase.name()
            );
            warn(WarningCode::ForeignIo, message);
        }
    }

    let of_figures = report.doubt_warnings().into_iter().chain(report.exceeded_warnings());
    of_figures.for_each(|warning| warn(warning.code, warning.message));

    judge_blocks(report, &mut warn);

    for cost in report.submissions.iter().filter(|cost| cost.blocks) {
        let message = format!(
            "submitting blocks here: {} of {}, {} under way, takes {:.2} context switches each (longest {}): \
             preallocate and overwrite, or keep such writes off the shards",
            cost.kind,
            format_bytes_binary(u64::from(cost.block_bytes)),
            cost.depth,
            cost.context_switches_per_operation,
            format_duration_ns(cost.submit_max_ns),
        );
        warn(WarningCode::BlockingSubmission, message);
    }

    if let Some(state) = report.steady_state.as_ref().filter(|state| !state.attained && !report.interrupted) {
        let message = format!(
            "no steady state in {} rounds (range at most 20 %, slope at most 10 % over five rounds): the figures are \
             the means of the last five; allow more rounds (--rounds)",
            state.rounds
        );
        warn(WarningCode::NotSteady, message);
    }

    if let Some(part_pct) = report.steady_state.as_ref().and_then(|state| state.active_range_pct)
        && part_pct < RANGE_MIN_PCT
    {
        let message = format!(
            "the rounds wrote and read {part_pct:.1} % of the disk: what it collects and moves when it is full is not in the \
             figures; --data-size sets how much"
        );
        warnings.push(Warning { code: WarningCode::LessData, message });
    }
    warnings
}

fn judge(name: &str, figure: &Figure, warn: &mut impl FnMut(WarningCode, String)) {
    if figure.cpu_busy_pct > CPU_BUSY_MAX_PCT {
        let message = format!(
            "{name}: a shard was {:.0} % busy, so the figure is rather that of the CPU: use more shards",
            figure.cpu_busy_pct
        );
        warn(WarningCode::CpuLimited, message);
    }

    let settled = series::settled_from(&figure.samples);
    let is_explained = figure.burst.is_some() || !settled.is_settled;
    if figure.ci95_pct.is_none_or(|percent| percent > INTERVAL_MAX_PCT) {
        let known = figure.ci95_pct.map_or("by a single sample".to_owned(), |percent| format!("to ± {percent:.0} %"));
        let message = format!("{name}: known {known} only: measure longer, or on a quieter disk");
        warn(WarningCode::Deviation, message);
    } else if figure.deviation_pct > DEVIATION_MAX_PCT && !is_explained {
        let message = format!(
            "{name}: the samples deviate by {:.1} %: is something else using the disk, or the host? Measure longer",
            figure.deviation_pct
        );
        warn(WarningCode::Deviation, message);
    }

    if let Some(burst) = figure.burst {
        let (before, value) = (figure.unit.text(burst), figure.unit.text(figure.value));
        let time = format_duration_ns((figure.settled_at as f64 * figure.sample_s * 1e9) as u64);
        let message = match burst > figure.value {
            true => format!(
                "{name}: the first {time} went at {before} (a cache, burst credits?), then {value}, which is the \
                 figure; --full shows what remains after longer"
            ),
            false => format!("{name}: a slow start, {before} for {time}; the figure is what followed"),
        };
        warn(WarningCode::Burst, message);
    }

    let counted = figure.samples.get(figure.settled_at..).unwrap_or_default();
    if !settled.is_settled {
        let change_pct = series::change_pct(counted).or_else(|| series::change_pct(&figure.samples)).unwrap_or(0.0);
        let trend = match change_pct {
            ..=-0.5 => format!("slowing down ({:.0} % from the first third of the samples to the last; ", -change_pct),
            0.5.. => format!("getting faster ({change_pct:.0} % from the first third of the samples to the last; "),
            _ => "changing (".to_owned(),
        };
        let message = format!(
            "{name}: the disk was still {trend}a cache, credits, garbage collection?): measure longer, or --full"
        );
        warn(WarningCode::StillChanging, message);
    }
}

fn judge_blocks(report: &TuneReport, warn: &mut impl FnMut(WarningCode, String)) {
    report.block_warnings().into_iter().for_each(|warning| warn(warning.code, warning.message));

    let Some(block) = &report.physical_block else { return };
    if let Some(reported) = block.reported_bytes
        && block.is_step
        && reported < block.bytes
    {
        let message = format!(
            "the kernel reports physical blocks of {reported} bytes, but the disk writes in {}: writes shorter or not \
             aligned to that are {:.1} times slower; io-properties say physical_block_size: {}",
            block.bytes, block.gain, block.bytes
        );
        warn(WarningCode::PhysicalBlock, message);
    }

    if let Some(factor) = block.misalignment_factor.filter(|factor| *factor > BLOCK_STEP_MIN)
        && !block.is_step
        && block.reported_bytes.is_none_or(|reported| reported < IOPS_BLOCK_BYTES)
    {
        let message = format!(
            "4 KiB writes that are not aligned to 4 KiB are {factor:.1} times slower than aligned ones: check the \
             alignment of partitions and of the file system"
        );
        warn(WarningCode::PhysicalBlock, message);
    }
}
