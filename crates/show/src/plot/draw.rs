//! Draws one chart: frame, ticks, bands, marks, lines and points.
//!
//! # Why
//! All charts look alike, and their frames are aligned one below the other so that readers can compare them.
//!
//! # How it works
//! [`Margins`] fit the widest labels of all charts of a picture. A chart is drawn from top to bottom: title, legend,
//! labels of marks ([`super::labels`]), plot, tick labels, name of the axis, note. Each part is as high as its content,
//! and [`draw_chart`] returns where the next chart begins.
//!
//! # Limits
//! A plot is [`PLOT_HEIGHT`] high, whatever its content.
//!
//! # Example
//! A chart with a title, one row of legend, no labels of marks and no note is 22 + 20 + 8 + 220 + 42 pixels high; the
//! next one begins 14 pixels below it.

use super::axis::{Ruler, Span, Tick, vertical_span};
use super::canvas::{Canvas, Frame, Margins, PLOT_HEIGHT, Plot, draw_note};
use super::style::{MARK_STROKE, Style, Styles};
use super::text::{shortened, text_width_px};
use super::{Chart, Layer, Point, WIDTH, bars, labels};

/// Parts into which long lines are thinned.
const THINNED_PARTS: usize = 500;
const FONT_SIZE: f64 = 12.0;
/// Room left of the tick labels for the name of the axis.
const AXIS_NAME: f64 = 30.0;
const RIGHT_LEAST: f64 = 30.0;
const RIGHT_MOST: f64 = 200.0;

/// Returns the margins that fit the widest labels of all charts of a picture.
pub(super) fn margins_of(charts: &[&Chart]) -> Margins {
    let has_ticks = charts.iter().filter(|chart| !bars::has_bars(chart));
    let ticks = has_ticks.flat_map(|chart| vertical_ruler(chart, 0.0, vertical_span(chart)).ticks_up());
    let widest = |widths: &mut dyn Iterator<Item = f64>| widths.fold(0.0, f64::max);
    let left = widest(&mut ticks.map(|tick| text_width_px(&tick.label, FONT_SIZE)));
    let marks = charts.iter().flat_map(|chart| &chart.layers).filter_map(|layer| match layer {
        Layer::HorizontalMark { label, .. } if !label.is_empty() => Some(text_width_px(label, FONT_SIZE)),
        _ => None,
    });
    let right = widest(&mut marks.map(|width| width + 22.0));
    let names = widest(&mut charts.iter().map(|chart| bars::names_width(chart)));
    Margins { left: AXIS_NAME + left.clamp(28.0, 160.0).max(names) + 8.0, right: right.clamp(RIGHT_LEAST, RIGHT_MOST) }
}

fn vertical_ruler(chart: &Chart, top: f64, span: Span) -> Ruler<'_> {
    Ruler::new(&chart.y, span, top + PLOT_HEIGHT, top)
}

/// Draws `chart` from `top` downward and returns where it ends.
pub(super) fn draw_chart(canvas: &mut Canvas, chart: &Chart, span: Span, margins: &Margins, top: f64) -> f64 {
    let (left, right) = (margins.left, WIDTH - margins.right);
    let mut top = top;
    if !chart.title.is_empty() {
        let title = shortened(&chart.title, WIDTH - left - 12.0, 13.0 * 1.1);
        canvas.text(left, top + 14.0, "font-size=\"13\" font-weight=\"bold\"", &title);
        top += 22.0;
    }

    let styles = Styles::of(chart);
    top = labels::draw_legend(canvas, chart, &styles, left, top);
    if bars::has_bars(chart) {
        return bars::draw(canvas, chart, span, margins, top);
    }

    let x = Ruler::new(&chart.x, span, left, right);
    let flags = labels::flags(chart, &x, left, right);
    top += 4.0 + labels::flags_height(&flags);

    let bottom = top + PLOT_HEIGHT;
    let y = vertical_ruler(chart, top, vertical_span(chart));
    let plot = Plot { frame: Frame { left, right, top, bottom }, x, y, styles };

    draw_bands(canvas, chart, &plot);
    draw_axes(canvas, chart, &plot);
    draw_marks(canvas, chart, &plot);
    labels::draw_flags(canvas, &flags, top);
    labels::draw_gutter(canvas, chart, &plot);
    draw_layers(canvas, chart, &plot);
    draw_note(canvas, chart, left, bottom + 42.0)
}

fn draw_bands(canvas: &mut Canvas, chart: &Chart, plot: &Plot<'_>) {
    for layer in &chart.layers {
        let Layer::Band { from, to, .. } = layer else { continue };
        let Some((left, right)) = labels::band_px(&plot.x, *from, *to) else { continue };
        let (top, bottom) = (plot.frame.top, plot.frame.bottom);
        canvas.rect(&Frame { left, right, top, bottom }, "fill=\"#e6eef6\"");
        for x in [left, right] {
            canvas.line((x, top), (x, bottom), "stroke=\"#8aa9c4\"");
        }
    }
}

/// Draws grid, frame, tick labels and names of both axes.
fn draw_axes(canvas: &mut Canvas, chart: &Chart, plot: &Plot<'_>) {
    let Frame { left, right, top, bottom } = plot.frame;
    let faint = "stroke=\"#000000\" stroke-opacity=\"0.05\"";
    let grid = "stroke=\"#000000\" stroke-opacity=\"0.13\"";
    for y in plot.y.minor_px() {
        canvas.line((left, y), (right, y), faint);
    }
    for x in plot.x.minor_px() {
        canvas.line((x, top), (x, bottom), faint);
    }

    for Tick { px, label } in plot.y.ticks_up() {
        canvas.line((left, px), (right, px), grid);
        canvas.text(left - 6.0, px + 4.0, "text-anchor=\"end\"", &shortened(&label, 160.0, FONT_SIZE));
    }
    for Tick { px, label } in plot.x.ticks_across() {
        canvas.line((px, top), (px, bottom), grid);
        canvas.line((px, bottom), (px, bottom + 4.0), "stroke=\"#666666\"");
        let half = text_width_px(&label, FONT_SIZE) / 2.0 + 2.0;
        canvas.text(px.min(WIDTH - half), bottom + 17.0, "text-anchor=\"middle\"", &label);
    }

    canvas.rect(&plot.frame, "fill=\"none\" stroke=\"#666666\"");
    let name = shortened(&chart.x.label, right - left, FONT_SIZE);
    canvas.text(left + (right - left) / 2.0, bottom + 34.0, "text-anchor=\"middle\"", &name);
    let name = shortened(&chart.y.label, PLOT_HEIGHT, FONT_SIZE);
    let middle = top + PLOT_HEIGHT / 2.0;
    canvas.text(18.0, middle, &format!("text-anchor=\"middle\" transform=\"rotate(-90 18 {middle:.1})\""), &name);
}

fn draw_marks(canvas: &mut Canvas, chart: &Chart, plot: &Plot<'_>) {
    let Frame { left, right, top, bottom } = plot.frame;
    for layer in &chart.layers {
        match layer {
            Layer::VerticalMark { x, label } => {
                let Some(x) = plot.x.px(*x) else { continue };
                canvas.titled_line((x, top), (x, bottom), MARK_STROKE, label);
            }
            Layer::HorizontalMark { y, label } => {
                let Some(y) = plot.y.px(*y) else { continue };
                canvas.titled_line((left, y), (right, y), MARK_STROKE, label);
            }
            _ => {}
        }
    }
}

/// Draws lines first and then points, so that no line hides a point.
fn draw_layers(canvas: &mut Canvas, chart: &Chart, plot: &Plot<'_>) {
    for layer in &chart.layers {
        if let Layer::Line { name, points, dashed } = layer {
            draw_line(canvas, plot, plot.styles.style(name), points, *dashed);
        }
    }
    for layer in &chart.layers {
        if let Layer::Points { name, points } = layer {
            draw_points(canvas, plot, plot.styles.style(name), points);
        }
    }
}

fn draw_line(canvas: &mut Canvas, plot: &Plot<'_>, style: Style, points: &[(f64, f64)], dashed: bool) {
    let place = |(x, y): &(f64, f64)| Some((plot.x.px(*x)?, plot.y.px(*y)?));
    let path = thinned(points.iter().filter_map(place).collect(), |(_, y)| *y);
    match path.as_slice() {
        [] => {}
        [(x, y)] => canvas.marker(*x, *y, style),
        path => canvas.polyline(path, &style.stroke(dashed)),
    }
}

fn draw_points(canvas: &mut Canvas, plot: &Plot<'_>, style: Style, points: &[Point]) {
    let place = |point: &Point| Some((plot.x.px(point.x)?, plot.y.px(point.y)?, point.range));
    let shown = thinned(points.iter().filter_map(place).collect(), |(_, y, _)| *y);
    let stroke = format!("stroke=\"{}\" stroke-opacity=\"0.75\" stroke-width=\"1.2\"", style.colour());
    for (x, y, range) in &shown {
        let Some((low, high)) = range else { continue };
        // An error bar's end that the axis cannot show, such as 0 on a logarithmic one, is drawn at the end of the
        // axis.
        let ends = [*low, *high].map(|value| plot.y.px_or_end(value).unwrap_or(*y));
        canvas.line((*x, ends[0]), (*x, ends[1]), &stroke);
        for end in ends {
            canvas.line((x - 3.0, end), (x + 3.0, end), &stroke);
        }
    }
    for (x, y, _) in shown {
        canvas.marker(x, y, style);
    }
}

/// Keeps the highest and the lowest of each of [`THINNED_PARTS`] parts, in order; returns few points unchanged.
fn thinned<T: Copy>(points: Vec<T>, y: impl Fn(&T) -> f64) -> Vec<T> {
    if points.len() <= 2 * THINNED_PARTS {
        return points;
    }
    let mut kept = Vec::with_capacity(2 * THINNED_PARTS);
    for part in points.chunks(points.len().div_ceil(THINNED_PARTS)) {
        let by_y = |a: &(usize, &T), b: &(usize, &T)| y(a.1).total_cmp(&y(b.1));
        let ends = (part.iter().enumerate().min_by(by_y), part.iter().enumerate().max_by(by_y));
        let (Some(least), Some(largest)) = ends else { continue };
        let (first, last) = if least.0 <= largest.0 { (least, largest) } else { (largest, least) };
        kept.push(*first.1);
        if first.0 != last.0 {
            kept.push(*last.1);
        }
    }
    kept
}
