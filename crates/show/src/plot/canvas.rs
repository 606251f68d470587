//! The canvas of a picture: its markup, the rectangle of a plot, and the margins beside it.
//!
//! # Why
//! The modules for lines, bars and labels all draw on one canvas.
//!
//! # How it works
//! A [`Canvas`] takes texts, lines, rectangles and marks, and returns their SVG. All text enters through one function,
//! which escapes it.
//!
//! # Limits
//! The canvas places nothing: callers give the coordinates.
//!
//! # Example
//! `canvas.line((0.0, 0.0), (10.0, 0.0), "stroke=\"#444444\"")` is one `<line>`.

use std::fmt::Write as _;

use super::axis::Ruler;
use super::style::{Style, Styles};
use super::text::{escaped, wrapped};
use super::{Chart, WIDTH};

pub(super) const PLOT_HEIGHT: f64 = 220.0;
const NOTE_SIZE: f64 = 11.0;

/// SVG markup under construction.
#[derive(Default)]
pub(super) struct Canvas {
    markup: String,
}

impl Canvas {
    /// Appends text with its baseline at `y`. Text enters a picture nowhere else, so that all of it is escaped.
    pub(super) fn text(&mut self, x: f64, y: f64, attributes: &str, content: &str) {
        let _ = writeln!(self.markup, "<text x=\"{x:.1}\" y=\"{y:.1}\" {attributes}>{}</text>", escaped(content));
    }

    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), attributes: &str) {
        self.titled_line(from, to, attributes, "");
    }

    /// Appends a line that shows `title` when pointed at.
    pub(super) fn titled_line(&mut self, from: (f64, f64), to: (f64, f64), attributes: &str, title: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        let _ = write!(self.markup, "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" {attributes}");
        let _ = match title {
            "" => self.markup.write_str("/>\n"),
            _ => writeln!(self.markup, "><title>{}</title></line>", escaped(title)),
        };
    }

    pub(super) fn rect(&mut self, frame: &Frame, attributes: &str) {
        let (width, height) = (frame.right - frame.left, frame.bottom - frame.top);
        let _ = writeln!(
            self.markup,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" {attributes}/>",
            frame.left, frame.top
        );
    }

    pub(super) fn polyline(&mut self, points: &[(f64, f64)], attributes: &str) {
        self.markup.push_str("<polyline points=\"");
        for (at, (x, y)) in points.iter().enumerate() {
            let _ = write!(self.markup, "{}{x:.1},{y:.1}", if at > 0 { " " } else { "" });
        }
        let _ = writeln!(self.markup, "\" fill=\"none\" {attributes}/>");
    }

    /// Appends a filled mark around a point, in the shape of its style.
    pub(super) fn marker(&mut self, x: f64, y: f64, style: Style) {
        let path: String = style.shape().iter().map(|(dx, dy)| format!("{:.1},{:.1} ", x + dx, y + dy)).collect();
        let attributes = format!("fill=\"{}\" stroke=\"#ffffff\" stroke-width=\"0.8\"", style.colour());
        let _ = match path.trim_end() {
            "" => writeln!(self.markup, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.6\" {attributes}/>"),
            path => writeln!(self.markup, "<polygon points=\"{path}\" {attributes}/>"),
        };
    }

    pub(super) fn finish(self) -> String {
        self.markup
    }
}

pub(super) struct Frame {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

/// Room at both sides of the plots of a picture.
pub(super) struct Margins {
    pub(super) left: f64,
    pub(super) right: f64,
}

/// Frame, axes and styles with which the layers of a chart are drawn.
pub(super) struct Plot<'a> {
    pub(super) frame: Frame,
    pub(super) x: Ruler<'a>,
    pub(super) y: Ruler<'a>,
    pub(super) styles: Styles<'a>,
}

/// Draws the remark below a chart and returns where the chart ends.
pub(super) fn draw_note(canvas: &mut Canvas, chart: &Chart, left: f64, top: f64) -> f64 {
    let note = chart.note.as_deref().unwrap_or("");
    let lines = wrapped(note, WIDTH - left - 16.0, NOTE_SIZE, 6);
    for (at, line) in lines.iter().enumerate() {
        canvas.text(left, top + 12.0 + 15.0 * at as f64, "font-size=\"11\" fill=\"#555555\"", line);
    }
    top + if lines.is_empty() { 14.0 } else { 20.0 + 15.0 * lines.len() as f64 }
}
