//! The terminal view, drawn from plain data.
//!
//! # Why
//! A test can check the view without a terminal.
//!
//! # How it works
//! [`View::push`] takes an interval and keeps the last [`HISTORY`] of each device; [`View::draw`] lays out the part
//! that fits. The busiest devices of the last [`RECENT`] intervals come first; idle ones share a line. A figure is
//! never cut: if there is no room, whole columns are left out ([`EXPENDABLE`]), and the line of idle devices names
//! them.
//!
//! # Limits
//! Devices that have not been seen for [`HISTORY`] intervals are dropped.
//!
//! # Example
//! ```text
//! Device      r/s    w/s     read  written  await aqu-sz %util     U    S verdict       throughput
//! nvme0n1    128k      0 526 MB/s    0 B/s   0.24  30.84 100.0   50%   0% ok            ▁▃▅▇████
//! idle: loop0, loop1, sda
//! ```

use std::collections::{BTreeMap, VecDeque};

use plimsoll_figures::units::{format_iops_short, format_throughput_decimal};
use plimsoll_observe::stat::output::{says_no, time};
use plimsoll_observe::stat::programs::ClassRow;
use plimsoll_observe::stat::{Judged, Observed, Verdict};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Row, Table, TableState, Wrap};

use super::super::table;
use crate::screen::{self, printable};

/// Intervals kept for each device.
const HISTORY: usize = 240;

/// Most lines that name the rows left out.
const FOLDED_LINES: u16 = 3;

/// Intervals by which devices are ranked: rows that change places each second cannot be read.
const RECENT: usize = 10;

/// Levels of a cell, from lowest to highest.
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Columns of the table and their least widths; throughput gets the rest.
const COLUMNS: [(&str, usize); 12] = [
    ("Device", 8),
    ("r/s", 6),
    ("w/s", 6),
    ("read", 9),
    ("written", 9),
    ("await", 6),
    ("aqu-sz", 6),
    ("%util", 5),
    ("U", 4),
    ("S", 4),
    ("verdict", 13),
    (THROUGHPUT, 10),
];

/// The last column, of blocks.
const THROUGHPUT: &str = "throughput";

/// Columns that are left out if there is no room, in this order.
const EXPENDABLE: [&str; 7] = [THROUGHPUT, "%util", "aqu-sz", "await", "written", "read", "S"];

/// A device in an interval.
#[derive(Clone, Copy, Debug, Default)]
struct Point {
    under_way: Option<f64>,
    moved_kib_per_s: Option<f64>,
    capacity_use: Option<f64>,
    saturation: Option<f64>,
}

#[derive(Default)]
pub(super) struct View {
    host: String,
    every_s: f64,
    observed: Option<Observed>,
    classes: Vec<ClassRow>,
    history: BTreeMap<String, VecDeque<Point>>,
    /// The device that the user chose, or `None` for the busiest.
    chosen: Option<String>,
}

impl View {
    pub(super) fn new(host: &str, every_s: f64) -> View {
        View { host: printable(host), every_s, ..View::default() }
    }

    /// Adds an interval.
    pub(super) fn push(&mut self, observed: Observed, classes: &[ClassRow]) {
        let now: BTreeMap<&str, &Judged> =
            observed.devices.iter().map(|judged| (judged.interval.device.as_str(), judged)).collect();
        for name in now.keys() {
            if !self.history.contains_key(*name) {
                self.history.insert((*name).to_owned(), VecDeque::new());
            }
        }

        for (name, points) in &mut self.history {
            let judged = now.get(name.as_str());
            points.push_back(judged.map_or_else(Point::default, |judged| Point {
                under_way: judged.interval.columns.queue,
                moved_kib_per_s: judged.interval.columns.moved_kib_per_s(),
                capacity_use: judged.capacity_use,
                saturation: judged.saturation,
            }));
            if points.len() > HISTORY {
                points.pop_front();
            }
        }

        self.history.retain(|_, points| points.iter().any(|point| point.moved_kib_per_s.is_some()));
        self.classes = classes.to_vec();
        self.observed = Some(observed);
    }

    /// Moves the choice by `rows` devices.
    pub(super) fn choose(&mut self, rows: isize) {
        let Some(observed) = &self.observed else { return };
        let (busy, _) = self.sorted(observed);
        let at = busy.iter().position(|judged| Some(&judged.interval.device) == self.chosen.as_ref()).unwrap_or(0);
        let at = at.saturating_add_signed(rows).min(busy.len().saturating_sub(1));
        self.chosen = busy.get(at).map(|judged| judged.interval.device.clone());
    }

    /// Returns the devices with a row, the busiest first, and the idle ones. The chosen device always has a row.
    fn sorted<'a>(&self, observed: &'a Observed) -> (Vec<&'a Judged>, Vec<&'a Judged>) {
        let recent = |judged: &Judged, pick: fn(&Point) -> Option<f64>| -> f64 {
            let points = self.history.get(&judged.interval.device).into_iter().flatten();
            points.rev().take(RECENT).filter_map(pick).sum()
        };
        let is_busy = |judged: &&Judged| {
            recent(judged, |point| point.under_way) > 0.0
                || recent(judged, |point| point.moved_kib_per_s) > 0.0
                || says_no(judged.verdict)
                || judged.interval.gap.is_some()
                || Some(&judged.interval.device) == self.chosen.as_ref()
        };
        let (mut busy, idle): (Vec<_>, Vec<_>) = observed.devices.iter().partition(is_busy);
        busy.sort_by(|one, other| {
            let by = |pick: fn(&Point) -> Option<f64>| recent(other, pick).total_cmp(&recent(one, pick));
            by(|point| point.under_way).then_with(|| by(|point| point.moved_kib_per_s))
        });
        (busy, idle)
    }

    pub(super) fn draw(&self, frame: &mut Frame) {
        let Some(observed) = &self.observed else {
            let text = format!("{}: the first interval ends in {} s. q: quit", self.host, self.every_s);
            frame.render_widget(Paragraph::new(text), frame.area());
            return;
        };

        let (busy, idle) = self.sorted(observed);
        let cells: Vec<Vec<String>> = busy.iter().map(|judged| row(judged)).collect();
        let (columns, left_out) = columns(&cells, usize::from(frame.area().width));
        let folded = screen::wrap_within(frame.area().width, &folded(&idle, &left_out));

        let rows = u16::try_from(busy.len()).unwrap_or(u16::MAX).saturating_add(1);
        let below = (folded.lines().count() as u16).min(FOLDED_LINES);
        let [head, devices, fold, rest] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Max(rows),
            Constraint::Length(below),
            Constraint::Min(6),
        ])
        .areas(frame.area());
        frame.render_widget(head_line(&self.host, observed, self.every_s, head.width), head);
        frame.render_widget(Paragraph::new(folded), fold);

        let widths: Vec<Constraint> = columns.iter().map(|(_, width)| Constraint::Length(*width as u16)).collect();
        let line = |cells: &dyn Fn(usize) -> String| -> Vec<String> {
            columns.iter().map(|(at, width)| aligned(*at, &cells(*at), *width)).collect()
        };
        let table_rows = busy.iter().zip(&cells).map(|(judged, cells)| {
            let cell = |at: usize| match cells.get(at) {
                Some(cell) => cell.clone(),
                None => self.throughput(judged, columns.last().map_or(0, |(_, width)| *width)),
            };
            let is_verdict = |at: usize| COLUMNS.get(at).is_some_and(|(name, _)| *name == "verdict");
            let styled = line(&cell).into_iter().zip(&columns).map(|(text, (at, _))| {
                let style = if is_verdict(*at) { style(judged.verdict) } else { Style::new() };
                Line::from(Span::styled(text, style))
            });
            Row::new(styled.collect::<Vec<_>>())
        });

        let header = line(&|at| COLUMNS.get(at).map_or_else(String::new, |(name, _)| (*name).to_owned()));
        let table = Table::new(table_rows, widths)
            .header(Row::new(header).style(Style::new().add_modifier(Modifier::BOLD)))
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        let chosen = busy.iter().position(|judged| Some(&judged.interval.device) == self.chosen.as_ref()).unwrap_or(0);
        frame.render_stateful_widget(table, devices, &mut TableState::default().with_selected(chosen));

        let lines = details(observed, busy.get(chosen).copied(), &self.history, &self.classes, rest);
        frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), rest);
    }

    fn throughput(&self, judged: &Judged, width: usize) -> String {
        let points = self.history.get(&judged.interval.device).into_iter().flatten();
        blocks(&points.map(|point| point.moved_kib_per_s).collect::<Vec<_>>(), width as u16, None)
    }
}

/// Returns the columns that fit, as index and width, and the names of those left out. A column is as wide as its widest
/// figure; throughput takes the rest.
fn columns(cells: &[Vec<String>], width: usize) -> (Vec<(usize, usize)>, Vec<&'static str>) {
    let letters = |at: usize| cells.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max();
    let mut columns: Vec<(usize, usize)> =
        COLUMNS.iter().enumerate().map(|(at, (_, least))| (at, letters(at).unwrap_or(0).max(*least))).collect();
    let needed = |columns: &[(usize, usize)]| columns.iter().map(|(_, width)| width + 1).sum::<usize>() - 1;
    let name = |at: usize| COLUMNS.get(at).map_or("", |(name, _)| *name);

    let mut left_out = Vec::new();
    for expendable in EXPENDABLE {
        if needed(&columns) <= width {
            break;
        }
        columns.retain(|(at, _)| name(*at) != expendable);
        left_out.push(expendable);
    }

    let rest = width.saturating_sub(needed(&columns));
    if let Some((_, last)) = columns.last_mut().filter(|(at, _)| name(*at) == THROUGHPUT) {
        *last += rest;
    }
    (columns, left_out)
}

/// Returns a line with the names of idle devices, and of the columns left out.
fn folded(idle: &[&Judged], left_out: &[&str]) -> String {
    let names = idle.iter().map(|judged| printable(&judged.interval.device)).collect::<Vec<_>>().join(", ");
    let idle = if idle.is_empty() { String::new() } else { format!("idle: {names}") };
    let columns = if left_out.is_empty() { String::new() } else { format!("(no room for: {})", left_out.join(", ")) };
    [columns, idle].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Aligns a figure at the right of its column, words at the left.
fn aligned(at: usize, text: &str, width: usize) -> String {
    match COLUMNS.get(at) {
        Some(("Device" | "verdict" | THROUGHPUT, _)) => text.to_owned(),
        _ => format!("{text:>width$}"),
    }
}

/// Returns as many whole parts of host, time, CPU and keys as fit.
fn head_line(host: &str, observed: &Observed, every_s: f64, width: u16) -> Line<'static> {
    let time = observed.end_unix_ms.and_then(|ms| time(ms, "%F %T UTC"));
    let cpu = observed.cpu.map(|cpu| format!("cpu {:.0} % busy", 100.0 - cpu.idle - cpu.iowait));
    let keys = Some("up, down: device  q: quit".to_owned());
    let parts = [Some(host.to_owned()), time, Some(format!("every {every_s} s")), cpu, keys];
    let mut text = String::new();
    for part in parts.into_iter().flatten() {
        let gap = if text.is_empty() { "" } else { "  " };
        if text.is_empty() || text.chars().count() + gap.len() + part.chars().count() <= usize::from(width) {
            text.extend([gap, &part]);
        }
    }
    Line::from(text)
}

/// Returns the cells of a device, without throughput.
fn row(judged: &Judged) -> Vec<String> {
    let columns = &judged.interval.columns;
    let dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let iops = |value: Option<f64>| dash(value.map(format_iops_short));
    let moved = |kib: Option<f64>| dash(kib.map(|kib| format_throughput_decimal(kib * 1024.0)));
    let two = |value: Option<f64>| dash(value.map(|value| format!("{value:.2}")));

    vec![
        printable(&judged.interval.device),
        iops(columns.reads_per_s),
        iops(columns.writes_per_s),
        moved(columns.read_kib_per_s),
        moved(columns.write_kib_per_s),
        two(columns.mean_await_ms()),
        two(columns.queue),
        dash(columns.util_percent.map(|percent| format!("{percent:.1}"))),
        table::capacity(judged),
        table::percent(judged.saturation),
        table::verdict(judged).to_owned(),
    ]
}

/// Returns the style of a verdict. The word carries the meaning; the colour only helps to find it.
fn style(verdict: Verdict) -> Style {
    match verdict {
        verdict if says_no(verdict) => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
        Verdict::BusyButFree => Style::new().fg(Color::Yellow),
        _ => Style::new(),
    }
}

/// Draws the last values as a line of blocks, scaled to `most` or to the highest; a blank marks an unknown value.
fn blocks(values: &[Option<f64>], width: u16, most: Option<f64>) -> String {
    let shown = values.get(values.len().saturating_sub(usize::from(width))..).unwrap_or_default();
    let most = most.unwrap_or_else(|| shown.iter().flatten().copied().fold(0.0, f64::max));
    let block = |value: &Option<f64>| match value {
        Some(value) if *value > 0.0 && most > 0.0 => {
            let level = (value / most * BLOCKS.len() as f64).ceil() as usize;
            BLOCKS.get(level.clamp(1, BLOCKS.len()) - 1).copied().unwrap_or(' ')
        }
        Some(_) => '_',
        None => ' ',
    };
    shown.iter().map(block).collect()
}

/// Returns the lines of the chosen device, then of groups and classes.
fn details(
    observed: &Observed,
    chosen: Option<&Judged>,
    history: &BTreeMap<String, VecDeque<Point>>,
    classes: &[ClassRow],
    area: Rect,
) -> Vec<Line<'static>> {
    let mut lines = vec![Line::default()];
    if let Some(judged) = chosen {
        let name = printable(&judged.interval.device);
        lines.push(Line::from(vec![
            Span::styled(
                format!("{name} {}", table::verdict(judged)),
                style(judged.verdict).add_modifier(Modifier::BOLD),
            ),
            Span::raw(format!(": {}", printable(&judged.why))),
        ]));
        let width = area.width.saturating_sub(14);
        let series = |pick: fn(&Point) -> Option<f64>, most| {
            let values: Vec<_> = history.get(&judged.interval.device).into_iter().flatten().map(pick).collect();
            blocks(&values, width, most)
        };
        lines.push(Line::from(format!("{:<13} {}", "throughput", series(|point| point.moved_kib_per_s, None))));
        lines.push(Line::from(format!("{:<13} {}", "U, of 100 %", series(|point| point.capacity_use, Some(1.0)))));
        lines.push(Line::from(format!("{:<13} {}", "S, of 100 %", series(|point| point.saturation, Some(1.0)))));
        lines.extend(judged.remarks.iter().map(|remark| Line::from(format!("note: {}", printable(&remark.message)))));
    }

    if !observed.groups.is_empty() {
        lines.push(Line::default());
    }
    // The paragraph wraps at its own width.
    let groups = observed.groups.iter().map(|group| table::group(group).replace('\n', " "));
    lines.extend(groups.map(Line::from));

    if !classes.is_empty() {
        lines.push(Line::default());
        let text = table::classes(classes, area.width.min(screen::WIDTH));
        lines.extend(text.lines().map(|line| Line::from(line.to_owned())));
    }
    lines
}

#[cfg(test)]
mod tests {
    use plimsoll_observe::stat::{Basis, Columns, DeviceInterval};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn observed(reads_per_s: f64) -> Observed {
        let columns = Columns {
            reads_per_s: Some(reads_per_s),
            read_kib_per_s: Some(4.0 * reads_per_s),
            queue: Some(83.0),
            util_percent: Some(100.0),
            ..Columns::default()
        };
        let judged = |device: &str, verdict| Judged {
            interval: DeviceInterval { device: device.to_owned(), columns, in_flight: Some(83), gap: None },
            capacity_use: Some(0.97),
            capacity_basis: Basis::Model("i3en.3xlarge".to_owned()),
            saturation: Some(0.6),
            verdict,
            why: format!("{device} does what it can"),
            ..Judged::default()
        };
        Observed {
            devices: vec![judged("nvme0n1", Verdict::Saturated), judged("nvme1n1", Verdict::Ok)],
            ..Observed::default()
        }
    }

    fn drawn(view: &mut View, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let row = |y| (0..width).map(|x| buffer[(x, y)].symbol().to_owned()).collect::<String>();
        (0..height).map(|y| format!("{}\n", row(y).trim_end())).collect()
    }

    #[test]
    fn devices_have_rows_and_the_chosen_one_its_reason() {
        let mut view = View::new("db-1", 1.0);
        assert!(drawn(&mut view, 100, 20).contains("db-1: the first interval"));
        for reads_per_s in [1000.0, 115_500.0, 231_000.0] {
            view.push(observed(reads_per_s), &[]);
        }
        let text = drawn(&mut view, 110, 20);
        for part in ["nvme0n1", "231k", "946 MB/s", "83.00", "100.0", "97%", "60%", "saturated", "▁▄█", "U, of 100 %"]
        {
            assert!(text.contains(part), "no `{part}` in\n{text}");
        }
        assert!(text.contains("nvme0n1 does what it can") && !text.contains("nvme1n1 does"), "{text}");
        view.choose(5);
        let text = drawn(&mut view, 110, 20);
        assert!(text.contains("nvme1n1 ok: nvme1n1 does what it can"), "{text}");
        let kept = |device: &str| {
            let points = view.history[device].iter();
            points.map(|point| point.moved_kib_per_s.unwrap() / 4.0).collect::<Vec<_>>()
        };
        assert_eq!(kept("nvme0n1"), [1000.0, 115_500.0, 231_000.0]);
        assert_eq!(kept("nvme1n1"), kept("nvme0n1"));
        view.choose(-9);
        assert!(drawn(&mut view, 110, 20).contains("nvme0n1 saturated: "));
    }

    /// A typical host: many idle devices, and some busy ones.
    fn crowded() -> View {
        let mut view = View::new("db-1.example.com", 1.0);
        for interval in 0..12 {
            let mut devices = Vec::new();
            for (name, reads_per_s, queue) in [
                ("loop0", 0.0, 0.0),
                ("loop1", 0.0, 0.0),
                ("nvme0n1", 128_512.0, 30.84),
                ("nvme10n1", 1_234_567.0, 1024.5),
                ("sda", 0.0, 0.0),
                // One quiet interval does not make a device idle, nor change places.
                ("dm-0", if interval == 11 { 0.0 } else { 999_999.0 }, if interval == 11 { 0.0 } else { 77.25 }),
            ] {
                let mut judged = observed(reads_per_s).devices.remove(1);
                judged.interval.device = name.to_owned();
                judged.interval.columns.queue = Some(queue);
                judged.interval.columns.write_kib_per_s = Some(3.0 * reads_per_s);
                judged.interval.columns.read_await_ms = Some(if reads_per_s > 0.0 { 123.45 } else { 0.0 });
                judged.verdict = if reads_per_s > 0.0 { Verdict::BusyButFree } else { Verdict::Idle };
                judged.why = format!("{name} does what it can");
                devices.push(judged);
            }
            view.push(Observed { devices, end_unix_ms: Some(1_780_000_000_000), ..Observed::default() }, &[]);
        }
        view
    }

    #[test]
    fn no_size_of_terminal_cuts_a_figure() {
        let small = "\
db-1.example.com  2026-05-28 20:26:40 UTC  every 1 s  up, down: device  q: quit
Device      r/s    w/s      read   written  await    U    S verdict
nvme10n1  1.23M      - 5.06 GB/s 3.79 GB/s 123.45  97%  60% busy-but-free
dm-0          0      -     0 B/s     0 B/s   0.00  97%  60% idle
nvme0n1    129k      -  526 MB/s  395 MB/s 123.45  97%  60% busy-but-free
(no room for: throughput, %util, aqu-sz) idle: loop0, loop1, sda
";
        let text = drawn(&mut crowded(), 80, 24);
        assert!(text.starts_with(small), "{text}");
        for (width, height) in [(80, 24), (100, 30), (120, 40), (60, 20)] {
            let text = drawn(&mut crowded(), width, height);
            let lines: Vec<&str> = text.lines().collect();
            let names: Vec<&str> = lines[2..5].iter().map(|line| line.split(' ').next().unwrap()).collect();
            assert_eq!(names, ["nvme10n1", "dm-0", "nvme0n1"], "{text}");
            let folded = lines[5..7].join(" ");
            assert!(folded.contains("idle: loop0, loop1, sda"), "{text}");
            let (header, figures) = (lines[1], lines[2]);
            for (name, figure) in [
                ("r/s", "1.23M"),
                ("U", "97%"),
                ("verdict", "busy-but-free"),
                ("read", "5.06 GB/s"),
                ("written", "3.79 GB/s"),
                ("await", "123.45"),
                ("aqu-sz", "1024.50"),
                ("%util", "100.0"),
                ("S", "60%"),
            ] {
                let is_shown = header.split_whitespace().any(|shown| shown == name);
                assert_eq!(is_shown, figures.contains(figure), "{name} {width}:\n{text}");
                assert!(is_shown || folded.contains(name), "{name} {width}:\n{text}");
            }
            assert!(text.contains("nvme10n1 busy-but-free: nvme10n1 does what it can"), "{text}");
        }
    }

    #[test]
    fn any_size_can_be_drawn() {
        let mut view = View::new("db-1", 0.5);
        view.push(observed(7.0), &[]);
        for (width, height) in [(1, 1), (20, 3), (80, 24), (300, 100)] {
            drawn(&mut view, width, height);
        }
    }

    #[test]
    fn blocks_grow_with_the_value_and_gaps_stay_blank() {
        let cases = [
            (vec![Some(0.0), Some(1.0), None, Some(4.0), Some(8.0)], 5, None, "_▁ ▄█"),
            (vec![Some(1.0), Some(8.0)], 1, None, "█"),
            (vec![Some(0.5), Some(2.0)], 9, Some(1.0), "▄█"),
            (vec![], 9, None, ""),
        ];
        for (values, width, most, expected) in cases {
            assert_eq!(blocks(&values, width, most), expected);
        }
    }

    #[test]
    fn a_device_that_is_gone_for_long_is_forgotten() {
        let mut view = View::new("db-1", 1.0);
        view.push(observed(1.0), &[]);
        for _ in 0..HISTORY {
            view.push(Observed::default(), &[]);
        }
        assert!(view.history.is_empty());
    }
}
