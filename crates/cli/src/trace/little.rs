//! `plimsoll trace little`: shows Little's law in queue and device, throughput and latency at each depth.

use std::path::PathBuf;

use clap::Args;
use plimsoll_figures::units::{format_count, format_duration_ns, format_iops_short, format_throughput_decimal};
use plimsoll_measure::experiment::words::mood;
use plimsoll_observe::trace::levels::Level;
use plimsoll_observe::trace::little::{DiskLevels, Law, Little, LittleReport, Window};
use plimsoll_show::answer::Answer;
use plimsoll_show::table::{Column, fixed};

use super::{further, one_of, percent};
use crate::failure::{Failure, Outcome};
use crate::flags::ReportFormat;
use crate::screen;

/// Most classes, and most windows, in a table.
const ROWS_SHOWN: usize = 16;

/// Check N = X R in queue and device, and show throughput and latency at each depth
///
/// N is the counted mean number of requests, X the rate, R the mean time; if they disagree, events are missing. Then
/// shows what limits throughput: the disk is saturated if latency grows with depth and throughput does not; the limiter
/// is above the disk if neither grows.
#[derive(Args, Debug)]
pub(crate) struct LittleArguments {
    /// The trace
    #[arg(value_name = "FILE")]
    trace: PathBuf,

    /// Format of the result (csv: the levels of depth)
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    format: ReportFormat,
}

pub(super) fn run(arguments: &LittleArguments) -> Result<Outcome, Failure> {
    let mut little = Little::default();
    let trace = super::read(&arguments.trace, &mut |item| little.visit(&item))?;
    let report = little.finish(&trace);
    arguments.format.print(|| table(&report), &report, || report.to_csv())?;
    Ok(Outcome::Done)
}

fn table(report: &LittleReport) -> String {
    let mut rows = vec![law("all, in the queue", &report.queue), law("all, in the device", &report.device)];
    for class in report.classes.iter().take(ROWS_SHOWN) {
        rows.push(law(&format!("{}, in the queue", class.class), &class.queue));
        rows.push(law(&format!("{}, in the device", class.class), &class.device));
    }
    let headers = ["", "N", "X", "R", "X R", "agree"];
    let mut text = report.disks.first().map_or_else(String::new, |disk| screen::answer(&answer(disk, report)));
    text.push_str(&screen::table(&headers, rows));
    text.push_str(&further(report.classes.len(), ROWS_SHOWN, "classes: --format json shows them"));

    for (stage, law) in [("in the queue", &report.queue), ("in the device", &report.device)] {
        if !law.missing.is_empty() {
            text.push_str(&format!("\n{}", screen::wrap(&format!("N is not X R {stage}: {}", law.missing))));
        }
    }

    if report.windows.len() > 1 {
        text.push_str(&format!("\n\n{}", windows(&report.windows)));
    }
    for disk in &report.disks {
        text.push_str(&format!("\n\n{}", levels(disk, report.disks.len() > 1)));
    }
    text
}

/// Returns the verdict on a trace's first disk. With several disks, each part has its own.
fn answer(disk: &DiskLevels, report: &LittleReport) -> Answer {
    let more = one_of(&disk.disk, report.disks.len());
    let law = &report.device;
    let agrees = report.queue.agrees && law.agrees;
    // Requests whose events are missing were in the device for an unknown time.
    let (known, counted) = (format!("{:.2}", law.depth_known), format!("{:.2}", law.depth_mean));
    let depth = if law.agrees || known == counted { counted } else { format!("{known} to {counted}") };
    let held = format!("{depth} in the device on average, each for {}", time(law.latency_mean_ns));
    let confidence = match (agrees, report.lost.first()) {
        (true, None) => "N = X R holds: no events are missing".to_owned(),
        (true, Some(lost)) => format!("N = X R holds; less sure: {lost}"),
        (false, _) => "N is not X R: events are missing".to_owned(),
    };
    Answer::new(mood(disk.verdict.kind), format!("Verdict{more}: {}", disk.verdict.sentence), held, confidence)
}

fn time(ns: f64) -> String {
    format_duration_ns(ns as u64)
}

/// Formats a mean latency, or `-` if none was measured.
fn mean(ns: f64) -> String {
    if ns > 0.0 { time(ns) } else { "-".to_owned() }
}

fn law(name: &str, law: &Law) -> Vec<String> {
    vec![
        name.to_owned(),
        format!("{:.2}", law.depth_mean),
        format!("{}/s", format_iops_short(law.per_s)),
        mean(law.latency_mean_ns),
        format!("{:.2}", law.product),
        if law.agrees { "yes" } else { "no" }.to_owned(),
    ]
}

/// Returns some of the windows, spread evenly over the time.
fn windows(windows: &[Window]) -> String {
    const COLUMNS: &[Column<Window>] = &[
        ("from", |it| format_duration_ns(it.from_ns)),
        ("in queue N", |it| fixed(it.queue.depth_mean, 2)),
        ("X R", |it| fixed(it.queue.product, 2)),
        ("in device N", |it| fixed(it.device.depth_mean, 2)),
        ("X R", |it| fixed(it.device.product, 2)),
        ("X", |it| format!("{}/s", format_iops_short(it.device.per_s))),
        ("R in device", |it| mean(it.device.latency_mean_ns)),
    ];
    let each = windows.len().div_ceil(ROWS_SHOWN).max(1);
    let text = screen::columns(windows.iter().step_by(each), COLUMNS);
    if each == 1 { text } else { format!("{text}\nOne of {each} parts of the time is shown: --format json shows all") }
}

fn levels(disk: &DiskLevels, has_verdict: bool) -> String {
    let headers = ["offered", "of the time", "ends", "X", "throughput", "R in device", "in device", ""];
    let offered = screen::table(&headers, disk.offered.iter().map(level).collect());
    let headers = ["in device", "of the time", "ends", "X", "throughput", "R in device", "in device", ""];
    let in_device = screen::table(&headers, disk.in_device.iter().map(level).collect());
    let mut text = format!("{}\n{offered}\n\n{in_device}\n", screen::wrap(&format!("{}, by depth:", disk.disk)));
    if has_verdict {
        text.push_str(&format!("\n{}", screen::wrap(&format!("Verdict: {}.", disk.verdict.sentence))));
    }
    for line in &disk.verdict.evidence {
        text.push_str(&format!("\n{}", screen::wrap(&format!("- {line}"))));
    }
    text
}

fn level(level: &Level) -> Vec<String> {
    let range = if level.depth_min == level.depth_max {
        level.depth_max.to_string()
    } else {
        format!("{} to {}", level.depth_min, level.depth_max)
    };
    vec![
        range,
        percent(level.time_part),
        format_count(level.ends),
        format!("{}/s", format_iops_short(level.ends_per_s)),
        format_throughput_decimal(level.bytes_per_s),
        mean(level.latency_mean_ns),
        format!("{:.2}", level.in_device),
        if level.is_judged { "" } else { "too short" }.to_owned(),
    ]
}
