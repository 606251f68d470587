//! Curves as a picture: SVG with one panel for each group of curves.
//!
//! # Why
//! What a scheduler does after a disk has slowed down is seen at once in a picture, and hardly in a table.
//!
//! # How it works
//! Panels stand one below the other, each with axes in round steps, a faint grid, the unit of its axis, and a legend at
//! its right. Colours are those of Okabe and Ito (2008), which people with any colour vision can tell apart; from the
//! ninth curve on lines are dashed as well. More than a thousand points of a curve are thinned to the least and the
//! largest of each horizontal step.
//!
//! # Limits
//! Linear axes only. A legend shows the first [`LEGEND_MAX`] curves and says how many more there are.
//!
//! # Example
//! ```
//! use plimsoll_sim::scenario::Series;
//! let panel = Series {
//!     title: "Throughput".into(),
//!     x: "time, s".into(),
//!     y: "MB/s".into(),
//!     curves: vec![("query".into(), vec![(0.0, 1.0), (1.0, 3.0)])],
//! };
//! let svg = plimsoll_tools::plot::svg("two points", &[panel]);
//! assert!(svg.starts_with("<svg") && svg.contains("Throughput"));
//! ```

use std::fmt::Write as _;

use plimsoll_sim::scenario::Series;

/// The most curves that a legend names.
pub const LEGEND_MAX: usize = 10;

const COLOURS: [&str; 8] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999933"];
const DASHES: [&str; 3] = ["", "6 3", "2 3"];

const WIDTH: f64 = 960.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 210.0;
const PLOT_HEIGHT: f64 = 170.0;
const PANEL_HEIGHT: f64 = 250.0;
const HEADER: f64 = 40.0;
/// Above the plot in its panel: the title.
const ABOVE: f64 = 28.0;
/// Horizontal steps into which long curves are thinned.
const STEPS: usize = 500;

/// A picture of `panels`; those without points are left out.
#[must_use]
pub fn svg(title: &str, panels: &[Series]) -> String {
    let panels: Vec<&Series> = panels.iter().filter(|panel| points(panel).next().is_some()).collect();
    let height = HEADER + PANEL_HEIGHT * panels.len() as f64;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"{LEFT}\" y=\"26\" font-size=\"17\" font-weight=\"bold\">{}</text>\n",
        escaped(title)
    );
    for (at, panel) in panels.iter().enumerate() {
        draw_panel(&mut text, panel, HEADER + PANEL_HEIGHT * at as f64 + ABOVE);
    }
    text.push_str("</svg>\n");
    text
}

fn points(panel: &Series) -> impl Iterator<Item = (f64, f64)> + '_ {
    let all = panel.curves.iter().flat_map(|(_, points)| points.iter().copied());
    all.filter(|(x, y)| x.is_finite() && y.is_finite())
}

/// A range of values on so many pixels.
struct Axis {
    low: f64,
    high: f64,
    step: f64,
}

impl Axis {
    /// With `from_zero` from 0 (or a round value below, where there are such values) to a round value; else from the
    /// least value to the largest.
    fn new(values: impl Iterator<Item = f64>, from_zero: bool) -> Axis {
        let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
        // An axis that begins just above 0 begins at 0.
        let low = if from_zero || (low > 0.0 && low < high * 0.1) { low.min(0.0) } else { low };
        let high = if high > low { high } else { low + if low == 0.0 { 1.0 } else { low.abs() } };
        let step = round_step((high - low) / 5.0);
        if from_zero {
            Axis { low: (low / step).floor() * step, high: (high / step - 1e-9).ceil() * step, step }
        } else {
            Axis { low, high, step }
        }
    }

    /// Where a value lies, 0 to 1.
    fn part(&self, value: f64) -> f64 {
        (value - self.low) / (self.high - self.low)
    }

    fn ticks(&self) -> impl Iterator<Item = f64> + '_ {
        let first = (self.low / self.step - 1e-9).ceil() as i64;
        let last = (self.high / self.step + 1e-9).floor() as i64;
        (first..=last).map(|at| at as f64 * self.step)
    }

    /// A tick in as many decimals as its step needs.
    fn label(&self, tick: f64) -> String {
        let decimals = (-self.step.log10().floor()).clamp(0.0, 9.0) as usize;
        format!("{tick:.decimals$}")
    }
}

/// 1, 2 or 5 times a power of ten, at least `raw`.
fn round_step(raw: f64) -> f64 {
    let power = 10f64.powf(raw.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|step| *step >= raw * 0.999).unwrap_or(power * 10.0)
}

fn draw_panel(text: &mut String, panel: &Series, top: f64) {
    let plot_width = WIDTH - LEFT - RIGHT;
    let bottom = top + PLOT_HEIGHT;
    let x_axis = Axis::new(points(panel).map(|(x, _)| x), false);
    let y_axis = Axis::new(points(panel).map(|(_, y)| y), true);
    let px = |x: f64| LEFT + x_axis.part(x) * plot_width;
    let py = |y: f64| bottom - y_axis.part(y) * PLOT_HEIGHT;
    let mut line = |content: String| {
        text.push_str(&content);
        text.push('\n');
    };
    line(format!("<text x=\"{LEFT}\" y=\"{:.1}\" font-weight=\"bold\">{}</text>", top - 10.0, escaped(&panel.title)));
    for tick in y_axis.ticks() {
        let (y, label) = (py(tick), y_axis.label(tick));
        let right = WIDTH - RIGHT;
        line(format!("<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"#dddddd\"/>"));
        line(format!("<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>", LEFT - 6.0, y + 4.0));
    }
    for tick in x_axis.ticks() {
        let (x, label) = (px(tick), x_axis.label(tick));
        line(format!("<line x1=\"{x:.1}\" y1=\"{top}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"#eeeeee\"/>"));
        line(format!("<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>", bottom + 16.0));
    }
    line(format!(
        "<rect x=\"{LEFT}\" y=\"{top}\" width=\"{plot_width}\" height=\"{PLOT_HEIGHT}\" fill=\"none\" \
         stroke=\"#666666\"/>"
    ));
    let (x_middle, y_middle) = (LEFT + plot_width / 2.0, top + PLOT_HEIGHT / 2.0);
    line(format!(
        "<text x=\"{x_middle}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
        bottom + 34.0,
        escaped(&panel.x)
    ));
    line(format!(
        "<text x=\"18\" y=\"{y_middle}\" text-anchor=\"middle\" transform=\"rotate(-90 18 {y_middle})\">{}</text>",
        escaped(&panel.y)
    ));
    for (at, (_, points)) in panel.curves.iter().enumerate() {
        let path: Vec<String> = thinned(points).iter().map(|(x, y)| format!("{:.1},{:.1}", px(*x), py(*y))).collect();
        if !path.is_empty() {
            line(format!("<polyline points=\"{}\" fill=\"none\" {}/>", path.join(" "), stroke(at)));
        }
    }
    draw_legend(text, panel, top);
}

/// Colour, width and dashes of a curve.
fn stroke(at: usize) -> String {
    let colour = COLOURS.get(at % COLOURS.len()).copied().unwrap_or("#000000");
    let dash = DASHES.get(at / COLOURS.len() % DASHES.len()).copied().unwrap_or("");
    let dashes = if dash.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dash}\"") };
    format!("stroke=\"{colour}\" stroke-width=\"1.6\" stroke-linejoin=\"round\"{dashes}")
}

fn draw_legend(text: &mut String, panel: &Series, top: f64) {
    let left = WIDTH - RIGHT + 14.0;
    for (at, (name, _)) in panel.curves.iter().take(LEGEND_MAX).enumerate() {
        let y = top + 8.0 + 16.0 * at as f64;
        let shown: String = name.chars().take(24).collect();
        let _ = writeln!(text, "<line x1=\"{left}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\" {}/>", left + 22.0, stroke(at));
        let _ = writeln!(text, "<text x=\"{}\" y=\"{:.1}\">{}</text>", left + 28.0, y + 4.0, escaped(&shown));
    }
    let more = panel.curves.len().saturating_sub(LEGEND_MAX);
    if more > 0 {
        let y = top + 12.0 + 16.0 * LEGEND_MAX as f64;
        let _ = writeln!(text, "<text x=\"{left}\" y=\"{y}\">and {more} more</text>");
    }
}

/// The least and the largest point of each of [`STEPS`] parts; short curves stay as they are.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let finite: Vec<(f64, f64)> = points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite()).collect();
    if finite.len() <= 2 * STEPS {
        return finite;
    }
    let mut kept = Vec::with_capacity(2 * STEPS);
    for part in finite.chunks(finite.len().div_ceil(STEPS)) {
        let by_y = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let (Some(least), Some(largest)) = (part.iter().min_by(by_y), part.iter().max_by(by_y)) else { continue };
        let (first, last) = if least.0 <= largest.0 { (least, largest) } else { (largest, least) };
        kept.push(*first);
        if first != last {
            kept.push(*last);
        }
    }
    kept
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(curves: usize, count: usize) -> Series {
        let points: Vec<(f64, f64)> = (0..count).map(|at| (at as f64, (at as f64).sin())).collect();
        let curves = (0..curves).map(|at| (format!("<c{at}>"), points.clone())).collect();
        Series { title: "a & b".into(), x: "time, s".into(), y: "MB/s".into(), curves }
    }

    #[test]
    fn axes_are_round_and_hold_all_values() {
        for (values, low, high) in [
            (vec![0.0, 7.3], 0.0, 8.0),
            (vec![3.0, 3.0], 0.0, 3.0),
            (vec![0.0, 0.0], 0.0, 1.0),
            (vec![-1.0, 1.0], -1.0, 1.0),
        ] {
            let axis = Axis::new(values.into_iter(), true);
            assert!((axis.low - low).abs() < 1e-9 && axis.high >= high - 1e-9, "{} {}", axis.low, axis.high);
            assert!((2..=12).contains(&axis.ticks().count()));
        }
    }

    #[test]
    fn a_picture_is_finite_escaped_and_small() {
        let text = svg("t<>", &[panel(12, 100_000), panel(1, 1), panel(0, 0)]);
        assert!(text.contains("&lt;c0&gt;") && text.contains("a &amp; b") && text.contains("and 2 more"));
        assert!(!text.contains("NaN") && !text.contains("inf"), "not finite");
        assert!(text.len() < 400_000, "{}", text.len());
        assert_eq!(text.matches("<svg").count(), 1);
        let opened = text.matches("<text").count();
        assert_eq!(opened, text.matches("</text>").count());
    }

    #[test]
    fn values_that_are_no_numbers_are_left_out() {
        let mut broken = panel(1, 3);
        broken.curves[0].1.push((4.0, f64::NAN));
        broken.curves[0].1.push((f64::INFINITY, 1.0));
        assert!(!svg("x", &[broken]).contains("NaN"));
    }
}
