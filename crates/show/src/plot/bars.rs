//! Draws a bar chart: a row for each name, a bar for each layer, from one value to another.
//!
//! # Why
//! Readers compare ratios of many figures by length, and the names of figures are too long to stand below an axis.
//!
//! # How it works
//! Rows stand one below the other in the order in which their names first appear, with the name at the left in place of
//! the vertical axis. A row has a place for each layer that has bars; its bar extends from the layer's origin to the
//! value, with an error bar along it. Title, legend, horizontal axis, its marks and the note are those of every chart;
//! the vertical axis is ignored.
//!
//! # Limits
//! Names longer than [`NAME_WIDTH_MAX`] are shortened. Lines, points and bands are not drawn among bars.
//!
//! # Example
//! Two layers with bars for three names are three rows of two bars, [`ROW_GAP`] apart.

use super::axis::{Ruler, Span, Tick};
use super::canvas::{Canvas, Frame, Margins, draw_note};
use super::style::{MARK_STROKE, Styles};
use super::text::{shortened, text_width_px};
use super::{Chart, Layer, WIDTH, labels};

/// Greatest width of the names at the left, in pixels.
pub(super) const NAME_WIDTH_MAX: f64 = 340.0;

const FONT_SIZE: f64 = 12.0;
const BAR_HEIGHT: f64 = 10.0;
/// Smallest height of a row, so that names do not overlap.
const ROW_LEAST: f64 = 15.0;
const ROW_GAP: f64 = 7.0;

pub(super) fn has_bars(chart: &Chart) -> bool {
    chart.layers.iter().any(|layer| matches!(layer, Layer::Bars { .. }))
}

/// Returns the names of the rows, in the order in which they first appear.
pub(super) fn row_names(chart: &Chart) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for layer in &chart.layers {
        let Layer::Bars { bars, .. } = layer else { continue };
        for bar in bars {
            if !names.contains(&bar.row.as_str()) {
                names.push(&bar.row);
            }
        }
    }
    names
}

pub(super) fn names_width(chart: &Chart) -> f64 {
    let widths = row_names(chart).into_iter().map(|name| text_width_px(name, FONT_SIZE));
    widths.fold(0.0, f64::max).min(NAME_WIDTH_MAX)
}

/// Draws `chart` from `top` downward and returns where it ends. Title and legend end at `top`.
pub(super) fn draw(canvas: &mut Canvas, chart: &Chart, span: Span, margins: &Margins, top: f64) -> f64 {
    let (left, right) = (margins.left, WIDTH - margins.right);
    let styles = Styles::of(chart);
    let x = Ruler::new(&chart.x, span, left, right);
    let flags = labels::flags(chart, &x, left, right);
    let top = top + 4.0 + labels::flags_height(&flags);

    let names = row_names(chart);
    let has_any = |layer: &&Layer| matches!(layer, Layer::Bars { bars, .. } if !bars.is_empty());
    let layers = chart.layers.iter().filter(has_any).count();
    let bars_height = BAR_HEIGHT * layers as f64;
    let row_height = bars_height.max(ROW_LEAST) + ROW_GAP;
    let bottom = top + row_height * names.len() as f64 + ROW_GAP;

    let frame = Frame { left, right, top, bottom };
    draw_axis(canvas, chart, &x, &frame);
    labels::draw_flags(canvas, &flags, top);

    for (at, name) in names.iter().enumerate() {
        let middle = top + ROW_GAP / 2.0 + row_height * (at as f64 + 0.5);
        let shown = shortened(name, NAME_WIDTH_MAX, FONT_SIZE);
        canvas.text(left - 6.0, middle + 4.0, "text-anchor=\"end\"", &shown);
        let mut y = middle - bars_height / 2.0;
        for layer in chart.layers.iter().filter(has_any) {
            let Layer::Bars { name: of, from, bars } = layer else { continue };
            if let Some(bar) = bars.iter().find(|bar| bar.row == *name) {
                let ends = (x.px_or_end(*from), x.px(bar.value));
                if let (Some(from), Some(to)) = ends {
                    let range = bar.range.and_then(|(low, high)| Some((x.px_or_end(low)?, x.px_or_end(high)?)));
                    draw_bar(canvas, (from, to), range, y, styles.style(of).colour());
                }
            }
            y += BAR_HEIGHT;
        }
    }
    draw_note(canvas, chart, left, bottom + 42.0)
}

fn draw_bar(canvas: &mut Canvas, (from, to): (f64, f64), range: Option<(f64, f64)>, y: f64, colour: &str) {
    // At least 1 pixel, so that a bar of no length is still visible.
    let (left, right) = (from.min(to), from.max(to).max(from.min(to) + 1.0));
    let bar = Frame { left, right, top: y + 1.0, bottom: y + BAR_HEIGHT - 1.0 };
    canvas.rect(&bar, &format!("fill=\"{colour}\" fill-opacity=\"0.8\""));

    let Some((low, high)) = range else { return };
    let (middle, stroke) = (y + BAR_HEIGHT / 2.0, "stroke=\"#1a1a1a\" stroke-width=\"1.2\"");
    canvas.line((low, middle), (high, middle), stroke);
    for end in [low, high] {
        canvas.line((end, middle - 3.0), (end, middle + 3.0), stroke);
    }
}

/// Draws marks, grid, tick labels and the name of the horizontal axis.
fn draw_axis(canvas: &mut Canvas, chart: &Chart, x: &Ruler<'_>, frame: &Frame) {
    let Frame { left, right, top, bottom } = *frame;
    for Tick { px, label } in x.ticks_across() {
        canvas.line((px, top), (px, bottom), "stroke=\"#000000\" stroke-opacity=\"0.13\"");
        canvas.line((px, bottom), (px, bottom + 4.0), "stroke=\"#666666\"");
        let half = text_width_px(&label, FONT_SIZE) / 2.0 + 2.0;
        canvas.text(px.min(WIDTH - half), bottom + 17.0, "text-anchor=\"middle\"", &label);
    }
    for layer in &chart.layers {
        let Layer::VerticalMark { x: at, label } = layer else { continue };
        if let Some(px) = x.px(*at) {
            canvas.titled_line((px, top), (px, bottom), MARK_STROKE, label);
        }
    }
    canvas.rect(frame, "fill=\"none\" stroke=\"#666666\"");
    let name = shortened(&chart.x.label, right - left, FONT_SIZE);
    canvas.text(left + (right - left) / 2.0, bottom + 34.0, "text-anchor=\"middle\"", &name);
}

#[cfg(test)]
mod tests {
    use super::super::{Axis, Bar, Unit, svg};
    use super::*;

    fn chart() -> Chart {
        let bar = |row: &str, value: f64, range| Bar { row: row.into(), value, range };
        let layer = |name: &str, bars| Layer::Bars { name: name.into(), from: 1.0, bars };
        Chart {
            title: "Ratios".into(),
            x: Axis::log2("ratio to <a>", Unit::None),
            layers: vec![
                layer("b", vec![bar("reads & writes", 1.9, Some((1.7, 2.2))), bar("latency", 0.4, None)]),
                layer("c", vec![bar("latency", 1.0, Some((0.9, 1.1))), bar("cores", 4.5, None)]),
                Layer::VerticalMark { x: 1.0, label: String::new() },
            ],
            ..Chart::default()
        }
    }

    #[test]
    fn every_name_is_a_row_and_every_value_a_bar() {
        let chart = chart();
        assert_eq!(row_names(&chart), ["reads & writes", "latency", "cores"]);
        let picture = svg("", std::slice::from_ref(&chart));
        assert_eq!(picture.matches("fill-opacity=\"0.8\"").count(), 4);
        for part in [">reads &amp; writes<", ">latency<", ">cores<", "ratio to &lt;a&gt;", ">b<", ">c<", ">4<"] {
            assert!(picture.contains(part), "{part}: {picture}");
        }
        assert!(!picture.contains("NaN"));
    }

    #[test]
    fn what_the_axis_cannot_show_is_left_out() {
        let mut odd = chart();
        for layer in &mut odd.layers {
            let Layer::Bars { bars, .. } = layer else { continue };
            for (at, bar) in bars.iter_mut().enumerate() {
                bar.value = if at == 0 { f64::NAN } else { 2.0 };
                bar.range = Some((f64::NEG_INFINITY, f64::INFINITY));
            }
        }
        let picture = svg("", &[odd]);
        assert_eq!(picture.matches("fill-opacity=\"0.8\"").count(), 2);
        assert!(!picture.contains("NaN") && !picture.contains("inf"));
    }
}
