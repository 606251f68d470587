//! The terminal view, drawn from plain data.
//!
//! # Why
//! A test can check the view without a terminal.
//!
//! # How it works
//! [`View::push`] takes an interval and keeps the last [`HISTORY`] of each device; [`View::draw`] lays out the part
//! that fits.
//!
//! # Limits
//! Devices that have not been seen for [`HISTORY`] intervals are dropped.
//!
//! # Example
//! ```text
//! Device       r/s     w/s     read  written await aqu-sz %util     U    S verdict        throughput
//! nvme0n1   128512       0 526 MB/s    0 B/s  0.24  30.84 100.0   50%   0% ok             ▁▃▅▇████
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
use crate::screen::printable;

/// Intervals kept for each device.
const HISTORY: usize = 240;

/// Levels of a cell, from lowest to highest.
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Columns of the table and their widths; throughput gets the rest.
const COLUMNS: [(&str, u16); 11] = [
    ("Device", 10),
    ("r/s", 7),
    ("w/s", 7),
    ("read", 9),
    ("written", 9),
    ("await", 7),
    ("aqu-sz", 7),
    ("%util", 6),
    ("U", 6),
    ("S", 5),
    ("verdict", 13),
];

/// A device in an interval.
#[derive(Clone, Copy, Debug, Default)]
struct Point {
    moved_kib_per_s: Option<f64>,
    capacity_use: Option<f64>,
    saturation: Option<f64>,
}

/// The state of the terminal view.
pub(super) struct View {
    host: String,
    every_s: f64,
    observed: Option<Observed>,
    classes: Vec<String>,
    history: BTreeMap<String, VecDeque<Point>>,
    chosen: TableState,
}

impl View {
    pub(super) fn new(host: &str, every_s: f64) -> View {
        View {
            host: printable(host),
            every_s,
            observed: None,
            classes: Vec::new(),
            history: BTreeMap::new(),
            chosen: TableState::default().with_selected(0),
        }
    }

    /// Takes an interval.
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
                moved_kib_per_s: judged.interval.columns.moved_kib_per_s(),
                capacity_use: judged.capacity_use,
                saturation: judged.saturation,
            }));
            if points.len() > HISTORY {
                points.pop_front();
            }
        }

        self.history.retain(|_, points| points.iter().any(|point| point.moved_kib_per_s.is_some()));
        self.classes = table::classes(classes).lines().map(str::to_owned).collect();
        self.observed = Some(observed);
    }

    /// Moves the choice by `rows` devices.
    pub(super) fn choose(&mut self, rows: isize) {
        let last = self.observed.as_ref().map_or(0, |observed| observed.devices.len().saturating_sub(1));
        let at = self.chosen.selected().unwrap_or(0).saturating_add_signed(rows).min(last);
        self.chosen.select(Some(at));
    }

    pub(super) fn draw(&mut self, frame: &mut Frame) {
        let Some(observed) = &self.observed else {
            let text = format!("{}: the first interval ends in {} s. q: quit", self.host, self.every_s);
            frame.render_widget(Paragraph::new(text), frame.area());
            return;
        };

        let rows = u16::try_from(observed.devices.len()).unwrap_or(u16::MAX).saturating_add(1);
        let [head, devices, rest] =
            Layout::vertical([Constraint::Length(1), Constraint::Max(rows), Constraint::Min(6)]).areas(frame.area());
        frame.render_widget(head_line(&self.host, observed, self.every_s), head);

        let [.., last] = Layout::horizontal(widths()).spacing(1).areas::<12>(devices);
        let table = Table::new(
            observed.devices.iter().map(|judged| row(judged, self.history.get(&judged.interval.device), last)),
            widths(),
        );

        let header = COLUMNS.map(|(name, width)| match name {
            "Device" | "verdict" => name.to_owned(),
            figure => aligned(figure, width),
        });
        let header = header.into_iter().chain(["throughput".to_owned()]);

        let table = table
            .header(Row::new(header).style(Style::new().add_modifier(Modifier::BOLD)))
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        frame.render_stateful_widget(table, devices, &mut self.chosen);

        let lines = details(observed, self.chosen.selected(), &self.history, &self.classes, rest);
        frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), rest);
    }
}

fn widths() -> [Constraint; 12] {
    let mut widths = [Constraint::Min(8); 12];
    widths.iter_mut().zip(COLUMNS).for_each(|(width, (_, letters))| *width = Constraint::Length(letters));
    widths
}

/// Aligns a figure at the right of its column.
fn aligned(text: &str, width: u16) -> String {
    format!("{text:>width$}", width = usize::from(width))
}

fn head_line(host: &str, observed: &Observed, every_s: f64) -> Line<'static> {
    let time = observed.end_unix_ms.and_then(|ms| time(ms, "%F %T UTC")).unwrap_or_default();
    let cpu = observed.cpu.map(|cpu| format!("  cpu {:.0} % busy", 100.0 - cpu.idle - cpu.iowait)).unwrap_or_default();
    Line::from(format!("{host}  {time}  every {every_s} s{cpu}    up, down: device  q: quit"))
}

fn row(judged: &Judged, history: Option<&VecDeque<Point>>, area: Rect) -> Row<'static> {
    let columns = &judged.interval.columns;
    let dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let iops = |value: Option<f64>| dash(value.map(format_iops_short));
    let moved = |kib: Option<f64>| dash(kib.map(|kib| format_throughput_decimal(kib * 1024.0)));
    let two = |value: Option<f64>| dash(value.map(|value| format!("{value:.2}")));

    let figures = [
        iops(columns.reads_per_s),
        iops(columns.writes_per_s),
        moved(columns.read_kib_per_s),
        moved(columns.write_kib_per_s),
        two(columns.mean_await_ms()),
        two(columns.queue),
        dash(columns.util_percent.map(|percent| format!("{percent:.1}"))),
        table::capacity(judged),
        table::percent(judged.saturation),
    ];

    let mut cells = vec![Line::from(printable(&judged.interval.device))];
    let width = |at: usize| COLUMNS.get(at + 1).map_or(0, |(_, width)| *width);
    cells.extend(figures.iter().enumerate().map(|(at, figure)| Line::from(aligned(figure, width(at)))));
    cells.push(Line::from(Span::styled(table::verdict(judged), style(judged.verdict))));
    let values = |points: &VecDeque<Point>| points.iter().map(|point| point.moved_kib_per_s).collect::<Vec<_>>();
    cells.push(Line::from(history.map(|points| blocks(&values(points), area.width, None)).unwrap_or_default()));
    Row::new(cells)
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

/// Returns the chosen device, then groups and classes.
fn details(
    observed: &Observed,
    chosen: Option<usize>,
    history: &BTreeMap<String, VecDeque<Point>>,
    classes: &[String],
    area: Rect,
) -> Vec<Line<'static>> {
    let mut lines = vec![Line::default()];
    if let Some(judged) = chosen.and_then(|at| observed.devices.get(at)) {
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
    lines.extend(observed.groups.iter().flat_map(|group| {
        let text = table::group(group);
        text.lines().map(|line| Line::from(line.to_owned())).collect::<Vec<_>>()
    }));

    if !classes.is_empty() {
        lines.push(Line::default());
        lines.extend(classes.iter().map(|line| Line::from(line.clone())));
    }
    lines
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

    use plimsoll_observe::stat::{Basis, Columns, DeviceInterval};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn observed(reads_per_s: f64) -> Observed {
        let judged = |device: &str, verdict| Judged {
            interval: DeviceInterval {
                device: device.to_owned(),
                columns: Columns {
                    reads_per_s: Some(reads_per_s),
                    read_kib_per_s: Some(4.0 * reads_per_s),
                    queue: Some(83.0),
                    util_percent: Some(100.0),
                    ..Columns::default()
                },
                in_flight: Some(83),
                gap: None,
            },
            capacity_use: Some(0.97),
            capacity_basis: Basis::Model("i3en.3xlarge".to_owned()),
            saturation: Some(0.6),
            read_saturation: None,
            write_saturation: None,
            verdict,
            why: format!("{device} does what it can"),
            remarks: Vec::new(),
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
        assert_eq!(view.chosen.selected(), Some(0));
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
