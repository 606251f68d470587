//! Legends and labels of marks, placed so that they cover neither data nor each other.
//!
//! # Why
//! A label inside a plot sooner or later covers the one point that matters.
//!
//! # How it works
//! * The legend stands above the plot, in rows from left to right.
//! * Labels of vertical marks and bands are *flags* on rows just above the plot. Marks are placed from right to left,
//!   each on the lowest row on which it crosses neither the text nor the staff of another; then bands are placed. The
//!   same is tried from left to right, and the order that places more flags is used.
//! * Labels of horizontal marks stand at the right, at the height of their line, pushed apart where they would meet.
//!
//! # Limits
//! There are [`ROWS_MAX`] rows of flags, and a line of text for each horizontal mark as far as the lines fit beside the
//! plot. If there is no room for a label, its mark is drawn without it.
//!
//! # Example
//! Three marks close to each other: the rightmost has the lowest flag, the others stand above it, each on its staff.

use super::axis::Ruler;
use super::canvas::{Canvas, PLOT_HEIGHT, Plot};
use super::style::{MARK_STROKE, Style, Styles};
use super::text::{shortened, text_width_px};
use super::{Chart, LEGEND_MAX, Layer, WIDTH};

const FONT_SIZE: f64 = 12.0;
const ROWS_MAX: usize = 5;
const ROW_HEIGHT: f64 = 16.0;
const FLAG_WIDTH_MAX: f64 = 360.0;
const LEGEND_ROW_HEIGHT: f64 = 18.0;
const LEGEND_NAME_WIDTH_MAX: f64 = 320.0;

/// Draws the legend from `top` downward and returns where it ends.
pub(super) fn draw_legend(canvas: &mut Canvas, chart: &Chart, styles: &Styles<'_>, left: f64, top: f64) -> f64 {
    let named: Vec<&str> = styles.names.iter().copied().filter(|name| !name.is_empty()).collect();
    let (mut x, mut y) = (left, top + 9.0);
    for name in named.iter().take(LEGEND_MAX) {
        let shown = shortened(name, LEGEND_NAME_WIDTH_MAX, FONT_SIZE);
        let key = key_width(chart, name);
        let width = key + 6.0 + text_width_px(&shown, FONT_SIZE);
        if x > left && x + width > WIDTH - 12.0 {
            (x, y) = (left, y + LEGEND_ROW_HEIGHT);
        }
        draw_key(canvas, chart, name, styles.style(name), x, y);
        canvas.text(x + key + 6.0, y + 4.0, "", &shown);
        x += width + 22.0;
    }

    let more = named.len().saturating_sub(LEGEND_MAX);
    if more > 0 {
        if x + 80.0 > WIDTH - 12.0 {
            (x, y) = (left, y + LEGEND_ROW_HEIGHT);
        }
        canvas.text(x, y + 4.0, "fill=\"#555555\"", &format!("and {more} more"));
    }

    if named.is_empty() { top } else { y + 11.0 }
}

fn key_width(chart: &Chart, name: &str) -> f64 {
    let has_line = chart.layers.iter().any(|layer| matches!(layer, Layer::Line { name: of, .. } if of == name));
    if has_line { 28.0 } else { 10.0 }
}

/// Draws the key of a name: a piece of its line, a mark of its points.
fn draw_key(canvas: &mut Canvas, chart: &Chart, name: &str, style: Style, x: f64, y: f64) {
    let line = chart.layers.iter().find_map(|layer| match layer {
        Layer::Line { name: of, dashed, .. } if of == name => Some(*dashed),
        _ => None,
    });
    if let Some(dashed) = line {
        canvas.line((x, y), (x + key_width(chart, name), y), &style.stroke(dashed));
    }
    let is_of_name =
        |layer: &Layer| matches!(layer, Layer::Points { name: of, .. } | Layer::Bars { name: of, .. } if of == name);
    if chart.layers.iter().any(is_of_name) {
        canvas.marker(x + key_width(chart, name) / 2.0, y, style);
    }
}

/// Returns the positions of a band's ends, or `None` if the ends are not a range.
pub(super) fn band_px(x: &Ruler<'_>, from: f64, to: f64) -> Option<(f64, f64)> {
    if from <= to { Some((x.px_or_end(from)?, x.px_or_end(to)?)) } else { None }
}

/// The label of a vertical mark or of a band.
#[derive(Clone)]
pub(super) struct Flag {
    text: String,
    /// Where the text begins and ends.
    start: f64,
    end: f64,
    /// Position of the mark; `None` for a band.
    staff: Option<f64>,
    row: usize,
}

impl Flag {
    /// Returns whether two flags overlap or cross.
    fn meets(&self, other: &Flag) -> bool {
        let crosses = |flag: &Flag, of: &Flag| {
            of.staff.is_some_and(|staff| of.row > flag.row && (flag.start - 3.0..=flag.end + 3.0).contains(&staff))
        };
        let overlaps = self.row == other.row && self.start - 8.0 < other.end && other.start - 8.0 < self.end;
        overlaps || crosses(self, other) || crosses(other, self)
    }

    /// Returns the same flag at the right of its staff, or at the left.
    fn at_side(&self, is_right: bool) -> Flag {
        let width = self.end - self.start;
        let start = match self.staff {
            Some(staff) if is_right => staff + 5.0,
            Some(staff) => staff - 5.0 - width,
            None => self.start,
        };
        Flag { start, end: start + width, ..self.clone() }
    }
}

/// Returns the labels of vertical marks and bands, each on its row.
pub(super) fn flags(chart: &Chart, x: &Ruler<'_>, left: f64, right: f64) -> Vec<Flag> {
    let wanted = chart.layers.iter().filter_map(|layer| {
        let (label, middle, staff) = match layer {
            Layer::VerticalMark { x: at, label } => (label, x.px(*at)?, Some(x.px(*at)?)),
            Layer::Band { from, to, label } => {
                let (from, to) = band_px(x, *from, *to)?;
                (label, (from + to) / 2.0, None)
            }
            _ => return None,
        };
        let text = shortened(label, FLAG_WIDTH_MAX, FONT_SIZE);
        let width = text_width_px(&text, FONT_SIZE);
        let start = (middle - width / 2.0).min(right - width).max(left);
        (!text.is_empty()).then_some(Flag { text, start, end: start + width, staff, row: 0 })
    });

    let mut wanted: Vec<Flag> = wanted.collect();
    wanted.sort_by(|a, b| a.staff.unwrap_or(f64::MAX).total_cmp(&b.staff.unwrap_or(f64::MAX)));
    let (marks, bands): (Vec<Flag>, Vec<Flag>) = wanted.into_iter().partition(|flag| flag.staff.is_some());

    let from_left = placed(marks.iter().chain(&bands), false, left);
    let from_right = placed(marks.iter().rev().chain(&bands), true, left);
    if (from_left.len(), flags_height(&from_right)) > (from_right.len(), flags_height(&from_left)) {
        from_left
    } else {
        from_right
    }
}

/// Places flags one after the other, each on the lowest row with room at the preferred side of its staff, or else at
/// the other side.
fn placed<'a>(wanted: impl Iterator<Item = &'a Flag>, prefers_right: bool, left: f64) -> Vec<Flag> {
    let mut placed: Vec<Flag> = Vec::new();
    for flag in wanted {
        let sides = [flag.at_side(prefers_right), flag.at_side(!prefers_right)];
        let inside = sides.into_iter().filter(|flag| flag.start >= left - 2.0 && flag.end <= WIDTH - 6.0);
        let mut tries = inside.flat_map(|flag| (0..ROWS_MAX).map(move |row| Flag { row, ..flag.clone() }));
        let free = tries.find(|flag| !placed.iter().any(|other| other.meets(flag)));
        placed.extend(free);
    }
    placed
}

/// Returns the height of the rows on which `flags` stand.
pub(super) fn flags_height(flags: &[Flag]) -> f64 {
    flags.iter().map(|flag| flag.row + 1).max().map_or(4.0, |rows| ROW_HEIGHT * rows as f64 + 2.0)
}

/// Draws flags above a plot that begins at `top`.
pub(super) fn draw_flags(canvas: &mut Canvas, flags: &[Flag], top: f64) {
    for flag in flags {
        let baseline = top - 5.0 - ROW_HEIGHT * flag.row as f64;
        if let Some(staff) = flag.staff {
            canvas.line((staff, top), (staff, baseline - 9.0), MARK_STROKE);
        }
        let colour = if flag.staff.is_some() { "fill=\"#333333\"" } else { "fill=\"#35597a\"" };
        match flag.staff {
            // The width is an estimate: anchor text left of its staff at its end.
            Some(staff) if flag.end < staff => {
                canvas.text(flag.end, baseline, &format!("text-anchor=\"end\" {colour}"), &flag.text);
            }
            _ => canvas.text(flag.start, baseline, colour, &flag.text),
        }
    }
}

/// Draws the labels of horizontal marks at the right of the plot.
pub(super) fn draw_gutter(canvas: &mut Canvas, chart: &Chart, plot: &Plot<'_>) {
    let right = plot.frame.right;
    let marks = chart.layers.iter().filter_map(|layer| match layer {
        Layer::HorizontalMark { y, label } if !label.is_empty() => Some((plot.y.px(*y)?, label.as_str())),
        _ => None,
    });
    let mut marks: Vec<(f64, &str)> = marks.collect();
    marks.sort_by(|a, b| a.0.total_cmp(&b.0));
    marks.truncate((PLOT_HEIGHT / ROW_HEIGHT) as usize);

    let mut heights: Vec<f64> = Vec::new();
    for (y, _) in &marks {
        // Keep the topmost below the flags.
        heights.push(heights.last().map_or(y.max(plot.frame.top + 8.0), |above| y.max(above + ROW_HEIGHT)));
    }

    let mut lowest = plot.frame.bottom;
    for height in heights.iter_mut().rev() {
        *height = height.min(lowest);
        lowest = *height - ROW_HEIGHT;
    }

    for ((y, label), height) in marks.into_iter().zip(heights) {
        canvas.line((right, y), (right + 9.0, height), "stroke=\"#444444\"");
        let shown = shortened(label, WIDTH - right - 16.0, FONT_SIZE);
        canvas.text(right + 12.0, height + 4.0, "fill=\"#333333\"", &shown);
    }
}
