//! `plimsoll trace gaps`: shows why queues with work dispatched nothing, and the limiter.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use plimsoll_figures::units::{format_bytes_binary, format_count, format_duration_ns};
use plimsoll_observe::trace::gaps::{ClassWait, DiskGaps, Gaps, GapsReport, Limiter, LongGap, QueueGaps, ReasonGaps};
use plimsoll_show::answer::{Answer, Mood};
use plimsoll_show::table::Column;

use super::{further, one_of, percent};
use crate::failure::{Failure, Outcome};
use crate::flags::{ReportFormat, nanos, time};
use crate::screen;

/// Most queues, and most rows of classes, in a table.
const ROWS_SHOWN: usize = 16;

/// Show dispatches that waited, and what stood in the way: tokens, depth, a limit, the backend, or nothing known
///
/// A queue stands still while it has work and sends nothing. The dispatch gap is the last part of a standstill: from
/// the last event that could have allowed a dispatch to the dispatch. Names the limiter of each disk.
#[derive(Args, Debug)]
pub(crate) struct GapsArguments {
    /// The trace
    #[arg(value_name = "FILE")]
    trace: PathBuf,

    /// Count and list standstills of at least this length
    #[arg(long, default_value = "10us", value_name = "TIME", value_parser = time)]
    longer_than: Duration,

    /// Format of the result
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    format: ReportFormat,
}

pub(super) fn run(arguments: &GapsArguments) -> Result<Outcome, Failure> {
    let mut gaps = Gaps::new(nanos(arguments.longer_than));
    let trace = super::read(&arguments.trace, &mut |item| gaps.visit(&item))?;
    let report = gaps.finish(&trace);
    arguments.format.print(|| table(&report), &report, || report.to_csv())?;
    Ok(Outcome::Done)
}

const CLASSES: &[Column<ClassWait>] = &[
    ("class", |it| it.class.clone()),
    ("waited most for", |it| it.reason.to_owned()),
    ("n", |it| format_count(it.n)),
    ("mean", |it| format_duration_ns(it.mean_ns as u64)),
    ("max", |it| format_duration_ns(it.max_ns)),
    ("of its time in the queue", |it| percent(it.part)),
];

const LONGEST: &[Column<LongGap>] = &[
    ("longest", |it| format_duration_ns(it.length_ns)),
    ("ended at", |it| format_duration_ns(it.at_ns)),
    ("class", |it| it.class.clone()),
    ("piece", |it| format!("{} {}", it.op, format_bytes_binary(u64::from(it.len_bytes)))),
    ("shard", |it| it.shard.to_string()),
    ("disk", |it| it.disk.clone()),
    ("in the way", |it| it.reason.to_owned()),
];

const QUEUES: &[Column<QueueGaps>] = &[
    ("shard", |it| it.shard.to_string()),
    ("dispatches", |it| format_count(it.dispatches)),
    ("no work", |it| percent(it.empty_part)),
    ("gap mean", |it| format_duration_ns(it.gap_mean_ns as u64)),
    ("gap max", |it| format_duration_ns(it.gap_max_ns)),
];

fn table(report: &GapsReport) -> String {
    let mut parts: Vec<String> = report.disks.iter().map(|disk| disk_part(disk, report)).collect();
    let Some(first) = report.disks.first() else { return "The trace has no pieces of requests.".to_owned() };

    let mut classes = report.classes.iter().filter(|class| class.part > 0.0).take(ROWS_SHOWN).peekable();
    if classes.peek().is_some() {
        parts.push(screen::columns(classes, CLASSES));
    }
    if !report.longest.is_empty() {
        parts.push(screen::columns(&report.longest, LONGEST));
    }
    screen::answer(&answer(first, report)) + &parts.join("\n\n")
}

/// Returns the limiter of a trace's first disk. With several disks, each part names its own.
fn answer(disk: &DiskGaps, report: &GapsReport) -> Answer {
    let mood = match disk.verdict.limiter {
        Limiter::Unknown => Mood::Heed,
        Limiter::Program => Mood::Quiet,
        _ => Mood::Bad,
    };
    let more = one_of(&disk.disk, report.disks.len());
    let [n, _, p50, _, max] = disk.gap.cells();
    let figure = format!("{n} dispatches of waiting requests; dispatch gap p50 {p50}, max {max}");
    let confidence = report.lost.first().map_or_else(String::new, |lost| format!("less sure: {lost}"));
    Answer::new(mood, format!("Limiter{more}: {}", disk.verdict.sentence), figure, confidence)
}

fn disk_part(disk: &DiskGaps, report: &GapsReport) -> String {
    let gap = &disk.gap;
    let [n, mean, p50, p99, max] = gap.cells();
    let head = format!(
        "{}: {n} dispatches of waiting requests in {}; dispatch gap p50 {p50}, mean {mean}, p99 {p99}, max {max}",
        disk.disk,
        format_duration_ns(disk.duration_ns)
    );

    let least = format!("n from {}", format_duration_ns(report.longer_than_ns));
    let headers = ["in the way", &least, "mean", "p50", "p99", "max", "of the time", "overdue"];
    let reason = |it: &ReasonGaps| {
        let mut row = vec![it.reason.to_owned()];
        row.extend(it.gaps.cells());
        row.extend([percent(it.time_part), percent(it.overdue_part)]);
        row
    };

    let mut rows: Vec<Vec<String>> = disk.reasons.iter().map(reason).collect();
    let nothing = String::new;
    let empty = percent(disk.empty_part);
    let no_work = ["no work".to_owned(), nothing(), nothing(), nothing(), nothing(), nothing(), empty, nothing()];
    rows.push(no_work.into());
    let mut text = format!("{}\n\n{}", screen::wrap(&head), screen::table(&headers, rows));

    if disk.queues.len() > 1 {
        text.push_str(&format!("\n\n{}", screen::columns(disk.queues.iter().take(ROWS_SHOWN), QUEUES)));
        text.push_str(&further(disk.queues.len(), ROWS_SHOWN, "queues: --format json shows them"));
    }
    if report.disks.len() > 1 {
        text.push_str(&format!("\n\n{}", screen::wrap(&format!("Limiter: {}.", disk.verdict.sentence))));
    }
    for remark in &disk.verdict.remarks {
        text.push_str(&format!("\n{}", screen::wrap(&format!("Also: {remark}."))));
    }
    text
}
