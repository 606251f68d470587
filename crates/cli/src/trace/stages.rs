//! `plimsoll trace stages`: shows the time of each stage of a request, depths and bandwidth.

use std::path::PathBuf;

use clap::Args;
use plimsoll_figures::units::{format_count, format_duration_ns, format_throughput_decimal};
use plimsoll_observe::trace::stages::{By, DiskReport, GroupReport, PICTURES, StageReport, Stages, StagesReport};
use plimsoll_show::table::Column;

use super::further;
use crate::failure::{Failure, Outcome};
use crate::flags::{PictureFlags, ReportFormat};
use crate::screen;

/// Most groups in a table.
const GROUPS_SHOWN: usize = 20;

/// Show how long requests spent at each stage: Q2D in the queue, D2C in the disk, C2R done and unseen
///
/// Shows each class and size, with the share of the time from Q to C; then depths and bandwidth of each disk, and for
/// each class whether the disk was slow or its completions were seen late.
#[derive(Args, Debug)]
pub(crate) struct StagesArguments {
    /// The trace
    #[arg(value_name = "FILE")]
    trace: PathBuf,

    /// Group by any of class, size, op, disk, shard, separated by commas; `none`: all together
    #[arg(long, default_value = "class,size", value_name = "KEY[,KEY...]", value_parser = parse_by)]
    by: Groups,

    /// Format of the result
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    format: ReportFormat,

    #[command(flatten)]
    pictures: PictureFlags,
}

#[derive(Clone, Debug)]
struct Groups(Vec<By>);

fn parse_by(text: &str) -> Result<Groups, String> {
    if text == "none" {
        return Ok(Groups(Vec::new()));
    }
    let known = || By::ALL.map(By::name).join(", ");
    let one = |name: &str| {
        let by = By::ALL.into_iter().find(|by| by.name() == name.trim());
        by.ok_or_else(|| format!("`{name}` is no key: give some of {}, separated by commas, or `none`", known()))
    };
    let mut groups = Vec::new();
    for name in text.split(',') {
        let by = one(name)?;
        if !groups.contains(&by) {
            groups.push(by);
        }
    }
    Ok(Groups(groups))
}

pub(super) fn run(arguments: &StagesArguments) -> Result<Outcome, Failure> {
    arguments.pictures.refuse_input(&arguments.trace)?;
    let (page, pictures) = arguments.pictures.check(&PICTURES)?;
    let mut stages = Stages::new(&arguments.by.0);
    let trace = super::read(&arguments.trace, &mut |item| stages.visit(&item))?;
    let report = stages.finish(&trace);
    let title = format!("Stages of {}", arguments.trace.display());
    if let Some(page) = page {
        page.write(&report.page(&title))?;
    }
    if let Some(pictures) = pictures {
        for (name, chart) in PICTURES.iter().zip(report.charts()) {
            pictures.write(name, &title, &[chart])?;
        }
    }
    arguments.format.print(|| table(&report), &report, || report.to_csv())?;
    Ok(Outcome::Done)
}

pub(super) fn table(report: &StagesReport) -> String {
    let StagesReport { events, spans, duration_ns, errors, cancelled, backwards, .. } = report;
    let mut head = format!(
        "{} events, {} pieces of requests in {}",
        format_count(*events),
        format_count(*spans),
        format_duration_ns(*duration_ns)
    );

    for (count, what) in [(*errors, "failed"), (*cancelled, "cancelled"), (*backwards, "stage(s) ran backwards")] {
        if count > 0 {
            head.push_str(&format!("; {} {what}", format_count(count)));
        }
    }

    let mut parts = vec![screen::wrap(&head)];
    if !report.groups.is_empty() {
        parts.push(groups(report));
        parts.push(disks(report));
        let others = report.classes.iter().take(GROUPS_SHOWN).skip(1);
        parts.extend(others.map(|class| screen::wrap(&class.sentence)));
    }

    report.answer().as_ref().map_or_else(String::new, screen::answer) + &parts.join("\n\n")
}

fn groups(report: &StagesReport) -> String {
    let headers = ["", "stage", "n", "min", "mean", "p50", "p99", "p99.9", "max", "of Q2C"];
    let rows = report.groups.iter().take(GROUPS_SHOWN).flat_map(rows).collect();
    let what = "groups with less time: --format json or csv shows them";
    screen::table(&headers, rows) + &further(report.groups.len(), GROUPS_SHOWN, what)
}

/// Returns a row for each stage, the first with the name of the group, or a single row if no piece has two of the
/// times.
fn rows(group: &GroupReport) -> Vec<Vec<String>> {
    let row = |(at, stage): (usize, &StageReport)| {
        let mut row = vec![if at == 0 { group.label() } else { String::new() }];
        row.extend(stage.cells());
        row
    };
    if group.stages.is_empty() {
        return vec![vec![group.label(), "none".to_owned(), format_count(group.spans)]];
    }
    group.stages.iter().enumerate().map(row).collect()
}

fn disks(report: &StagesReport) -> String {
    const COLUMNS: &[Column<DiskReport>] = &[
        ("", |disk| disk.disk.clone()),
        ("in queue, mean", |disk| format!("{:.2}", disk.queue_depth_mean)),
        ("max", |disk| format!("{}{}", least(disk), disk.queue_depth_max)),
        ("in device, mean", |disk| format!("{:.2}", disk.device_depth_mean)),
        ("max", |disk| format!("{}{}", least(disk), disk.device_depth_max)),
        ("read", |disk| format_throughput_decimal(disk.read_bytes_per_s)),
        ("written", |disk| format_throughput_decimal(disk.write_bytes_per_s)),
    ];
    screen::columns(&report.disks, COLUMNS)
}

/// Returns the sign of a highest depth that may have been higher.
fn least(disk: &DiskReport) -> &'static str {
    if disk.is_max_exact { "" } else { ">=" }
}

#[cfg(test)]
mod tests {
    use plimsoll::core::trace::{Event, EventKind};
    use plimsoll::core::{Op, WaitReason};
    use plimsoll::trace::format::{ClassName, Clock, Names, Writer};

    use super::*;

    /// The path of one read: 1 ms in the queue, 2 ms in the disk.
    fn file() -> Vec<u8> {
        let event = |(kind, time_ns)| Event {
            time_ns,
            request: 1,
            offset_bytes: 0,
            len_bytes: 4096,
            detail: 0,
            class: 1,
            disk: 0,
            piece: 0,
            kind,
            op: Op::Read,
            reason: Some(WaitReason::Tokens),
        };
        let events = [
            (EventKind::Queued, 0),
            (EventKind::Dispatched, 1_000_000),
            (EventKind::Submitted, 1_000_000),
            (EventKind::Completed, 3_000_000),
            (EventKind::Reaped, 3_000_100),
            (EventKind::Callback, 3_000_300),
        ];
        let mut names = Names::default();
        let name = "a class with a name that is so long that no column of a table can hold all of it".to_owned();
        names.classes.insert(1, ClassName { name, shares: 100 });
        let mut file = Vec::new();
        let mut writer = Writer::new(&mut file, Clock::Virtual, 0).unwrap();
        writer.names(&names).unwrap();
        writer.events(0, 0, &events.map(event)).unwrap();
        file
    }

    #[test]
    fn a_table_fits_100_columns_and_says_where_the_time_went() {
        let mut stages = Stages::new(&[By::Class, By::Size, By::Op, By::Disk, By::Shard]);
        let trace = plimsoll_observe::trace::read_from(file().as_slice(), &mut |item| stages.visit(&item)).unwrap();
        let text = table(&stages.finish(&trace));
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        for part in ["Q2D", "33.3 %", "66.7 %", "the disk's", "mostly for tokens"] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }

    #[test]
    fn groups_are_named_by_keys() {
        let cases = [
            ("class,size", Some(vec![By::Class, By::Size])),
            ("op", Some(vec![By::Op])),
            ("disk, shard,disk", Some(vec![By::Disk, By::Shard])),
            ("none", Some(vec![])),
            ("", None),
            ("clas", None),
        ];
        for (text, expected) in cases {
            match (parse_by(text), expected) {
                (Ok(groups), Some(expected)) => assert_eq!(groups.0, expected, "{text}"),
                (Err(message), None) => assert!(message.contains("class, size, op, disk, shard"), "{message}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
    }
}
