//! Charts as pictures: SVG without scripts, fonts or anything else from outside.
//!
//! # Why
//! A picture shows at once how a disk behaves under load, where its knee lies and how well a fitted cost matches the
//! measurement; a table hardly does.
//!
//! # How it works
//! A [`Chart`] has two axes and layers. [`svg`] draws charts one below the other; those with the same horizontal axis
//! share its range, so that residuals stand below their points. Values are plain numbers in the base unit of their axis
//! ([`Unit`]); ticks are round and labelled in familiar units (64 KiB, 100 k, 1.5 ms).
//!
//! * Layers of the same name share a colour and an entry of the legend: measured points and the line fitted to them.
//!   Colours are those of Okabe and Ito (2008) without the yellow, which is too faint on white; people with any colour
//!   vision can tell them apart. From the eighth name on, lines are dotted as well.
//! * Nothing covers the data: the legend and the labels of vertical marks and bands stand above the plot, the labels of
//!   horizontal marks at its right, the note below.
//! * The range of an axis holds all values of all layers, including marks and ends of bands, so that nothing is cut
//!   off. A linear vertical axis includes 0.
//! * A chart with [`Layer::Bars`] has a row for each name of a bar in place of a vertical axis.
//! * More than a thousand points of a layer are thinned to the smallest and the largest of each of 500 parts.
//!
//! # Limits
//! * Left out are values that are not finite or beyond ±1e100; on a logarithmic axis those below 1e-100 (0 and negative
//!   ones too); and charts that have no point or line left.
//! * The reader's fonts are unknown: widths of text are estimates, on the wide side. Long labels are shortened.
//! * A legend names at most [`LEGEND_MAX`] layers and counts the rest. Labels of marks that find no room are left out;
//!   the mark stays, and its label is shown when pointed at.
//!
//! # Example
//! Latency against load, with the knee marked at 150 k reads a second:
//! ```
//! use plimsoll_show::plot::{Axis, Chart, Layer, Point, Unit, svg};
//! let reads = Layer::Points {
//!     name: "4 KiB reads".into(),
//!     points: vec![Point::new(50e3, 90e3), Point::with_range(150e3, 160e3, 150e3, 190e3)],
//! };
//! let knee = Layer::VerticalMark { x: 150e3, label: "knee".into() };
//! let (load, latency) = (Axis::linear("reads a second", Unit::PerSecond), Axis::log10("p95", Unit::Nanoseconds));
//! let chart = Chart::new("Latency against load", load, latency, vec![reads, knee]);
//! let picture = svg("i3en.3xlarge", &[chart]);
//! assert!(picture.starts_with("<svg") && picture.contains(">100 k<") && picture.contains("knee"));
//! ```

mod axis;
mod bars;
mod canvas;
mod draw;
#[cfg(test)]
#[path = "tests/gallery.rs"]
pub(crate) mod gallery;
mod labels;
mod style;
mod text;

use plimsoll_sim::scenario::Series;

pub use text::escaped;

use axis::{Span, horizontal_span};
use canvas::Canvas;
use draw::{draw_chart, margins_of};
use text::shortened;

/// Most layers that a legend names.
pub const LEGEND_MAX: usize = 12;

/// Width of every picture in pixels.
const WIDTH: f64 = 960.0;
/// Height of the title of a picture.
const HEADER: f64 = 40.0;
const TITLE_SIZE: f64 = 17.0;

/// Layers over two axes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chart {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    /// The layers. Bands are drawn first, then marks, lines and points.
    pub layers: Vec<Layer>,
    /// A remark below the chart, wrapped to its width.
    pub note: Option<String>,
}

/// An axis: its name, its scale, and the unit of its values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Axis {
    /// The name of the axis. The unit stands at the ticks, except with [`Unit::None`].
    pub label: String,
    pub scale: Scale,
    pub unit: Unit,
}

impl Axis {
    /// Returns an axis in even steps.
    pub fn linear(label: impl Into<String>, unit: Unit) -> Axis {
        Axis { label: label.into(), scale: Scale::Linear, unit }
    }

    /// Returns an axis in powers of two, for sizes and depths.
    pub fn log2(label: impl Into<String>, unit: Unit) -> Axis {
        Axis { label: label.into(), scale: Scale::Log2, unit }
    }

    /// Returns an axis in powers of ten, for latencies and rates.
    pub fn log10(label: impl Into<String>, unit: Unit) -> Axis {
        Axis { label: label.into(), scale: Scale::Log10, unit }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    #[default]
    Linear,
    /// In powers of two; values must be above 0.
    Log2,
    /// In powers of ten; values must be above 0.
    Log10,
}

/// The unit of an axis, which decides the labels of its ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// Plain numbers; a unit, if there is one, stands in the label of the axis.
    #[default]
    None,
    /// Bytes, shown as 512 B, 4 KiB, 1 MiB.
    Bytes,
    /// Something per second, shown as 950, 100 k, 1.5 M.
    PerSecond,
    /// Bytes per second, shown as 500 MB/s, 1.5 GB/s.
    BytesPerSecond,
    /// Nanoseconds, shown as 85 ns, 100 us, 1.5 ms, 20 s; in min from ten minutes on, in h from five hours on.
    Nanoseconds,
    /// A part of one, shown in per cent: 0.05 is 5 %.
    Fraction,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Layer {
    /// Points joined by straight lines, in the order given.
    Line {
        /// Name in the legend; empty for none.
        name: String,
        /// Horizontal and vertical values, in the units of the axes.
        points: Vec<(f64, f64)>,
        /// Whether the line is dashed: a fit, a limit, a prediction.
        dashed: bool,
    },
    Points {
        /// Name in the legend; empty for none.
        name: String,
        points: Vec<Point>,
    },
    /// Bars along the horizontal axis, a row for each name: ratios of many figures. A chart with bars has rows in place
    /// of its vertical axis; its lines and points are not drawn.
    Bars {
        /// Name in the legend; empty for none.
        name: String,
        /// Start of the bars, in the unit of the horizontal axis.
        from: f64,
        bars: Vec<Bar>,
    },
    /// A line across the chart at one horizontal value, such as a knee.
    VerticalMark {
        /// Position in the unit of the horizontal axis.
        x: f64,
        /// Label above the chart; empty for none.
        label: String,
    },
    /// A line across the chart at one vertical value, such as a latency goal or the zero of residuals.
    HorizontalMark {
        /// Position in the unit of the vertical axis.
        y: f64,
        /// Label at the right of the chart; empty for none.
        label: String,
    },
    /// A range of the horizontal axis, such as the steady-state window. An end that is infinite, or that the axis
    /// cannot show, is drawn at the end of the axis.
    Band {
        /// Start in the unit of the horizontal axis.
        from: f64,
        /// End; at least `from`, else the band is left out.
        to: f64,
        /// Label above the chart; empty for none.
        label: String,
    },
}

impl Layer {
    /// Returns a line, and a dot at each of its points.
    pub fn dotted(name: &str, points: Vec<(f64, f64)>, dashed: bool) -> [Layer; 2] {
        let dots = points.iter().map(|(x, y)| Point::new(*x, *y)).collect();
        [Layer::Line { name: name.to_owned(), points, dashed }, Layer::Points { name: name.to_owned(), points: dots }]
    }
}

/// A bar of a layer, in the unit of its chart's horizontal axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    pub row: String,
    /// Where the bar ends.
    pub value: f64,
    /// The ends of its error bar, if it has one.
    pub range: Option<(f64, f64)>,
}

/// A point of a layer, in the units of its chart's axes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub x: f64,
    pub y: f64,
    /// The ends of the error bar, if it has one: the low and the high vertical value.
    pub range: Option<(f64, f64)>,
}

impl Point {
    /// Returns a point without an error bar.
    pub fn new(x: f64, y: f64) -> Point {
        Point { x, y, range: None }
    }

    /// Returns a point with an error bar from `low` to `high`.
    pub fn with_range(x: f64, y: f64, low: f64, high: f64) -> Point {
        Point { x, y, range: Some((low, high)) }
    }
}

/// Curves of a scenario: linear axes, whose units stand in their labels.
impl From<&Series> for Chart {
    fn from(series: &Series) -> Chart {
        let line = |(name, points): &(String, Vec<(f64, f64)>)| Layer::Line {
            name: name.clone(),
            points: points.clone(),
            dashed: false,
        };
        Chart::new(
            series.title.clone(),
            Axis::linear(series.x.clone(), Unit::None),
            Axis { label: series.y.clone(), scale: scale_of(series), unit: Unit::None },
            series.curves.iter().map(line).collect(),
        )
    }
}

/// Largest ratio of two curves' largest values on a linear axis. Beyond it the lower curve would lie on the bottom.
const LINEAR_RATIO_MAX: f64 = 50.0;

/// Returns the scale on which all curves are visible.
fn scale_of(series: &Series) -> Scale {
    let curves = || series.curves.iter().map(|(_, points)| points).filter(|points| !points.is_empty());
    let is_positive = curves().flatten().all(|(_, y)| *y > 0.0);
    let tops = curves().map(|points| points.iter().fold(0.0, |top: f64, (_, y)| top.max(*y)));
    let (low, high) = tops.fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), top| (low.min(top), high.max(top)));
    if is_positive && high > LINEAR_RATIO_MAX * low { Scale::Log10 } else { Scale::Linear }
}

impl Chart {
    /// Returns a chart without a note.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis, layers: Vec<Layer>) -> Chart {
        Chart { title: title.into(), x, y, layers, note: None }
    }

    /// Returns lines, points and bars with both values in the range of their axes; bars have the vertical value 1.
    fn drawable(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        let pairs = self.layers.iter().flat_map(|layer| {
            let (line, points, bars): (&[(f64, f64)], &[Point], &[Bar]) = match layer {
                Layer::Line { points, .. } => (points, &[], &[]),
                Layer::Points { points, .. } => (&[], points, &[]),
                Layer::Bars { bars, .. } => (&[], &[], bars),
                _ => (&[], &[], &[]),
            };
            let points = points.iter().map(|point| (point.x, point.y));
            line.iter().copied().chain(points).chain(bars.iter().map(|bar| (bar.value, 1.0)))
        });
        pairs.filter(|(x, y)| self.x.scale.place(*x).is_some() && self.y.scale.place(*y).is_some())
    }
}

/// Draws `charts` one below the other, 960 pixels wide. `title` stands above them; empty for none.
///
/// Returns a whole SVG file that can also be put into an HTML page: it has no identifiers that could collide with those
/// of another picture.
pub fn svg(title: &str, charts: &[Chart]) -> String {
    let charts: Vec<&Chart> = charts.iter().filter(|chart| chart.drawable().next().is_some()).collect();
    let margins = margins_of(&charts);
    let mut canvas = Canvas::default();
    let mut top = 12.0;

    if !title.is_empty() {
        let shown = shortened(title, WIDTH - margins.left - 12.0, TITLE_SIZE * 1.1);
        canvas.text(margins.left, 26.0, "font-size=\"17\" font-weight=\"bold\"", &shown);
        top = HEADER;
    }

    for chart in &charts {
        let shared = charts.iter().filter(|other| other.x == chart.x);
        let span = shared.map(|other| horizontal_span(other)).reduce(Span::with).unwrap_or(Span::UNIT);
        top = draw_chart(&mut canvas, chart, span, &margins, top);
    }

    if charts.is_empty() {
        canvas.text(margins.left, top + 16.0, "fill=\"#555555\"", "There are no points to draw.");
        top += 32.0;
    }

    let described = if title.is_empty() { charts.first().map_or("", |chart| chart.title.as_str()) } else { title };
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{top:.0}\" \
         viewBox=\"0 0 {WIDTH} {top:.0}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#1a1a1a\" role=\"img\" \
         aria-label=\"{}\">\n<rect width=\"{WIDTH}\" height=\"{top:.0}\" fill=\"#ffffff\"/>\n{}</svg>\n",
        escaped(described),
        canvas.finish()
    )
}

#[cfg(test)]
mod tests;
