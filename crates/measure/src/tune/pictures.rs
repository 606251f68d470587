//! A measurement as pictures, and as one complete page.
//!
//! **Why.** A picture shows at once whether a knee is sharp, a fit is good, or a figure comes from a steady period.
//!
//! **How.** [`charts`] makes each picture of a report, by name; figures that were not measured have none. [`page()`]
//! combines them into one self-contained HTML page with the figures, the warnings and the lines to apply.
//!
//! **Limits.** The page shows one disk.
//!
//! **Example.**
//!
//! ```text
//! for (name, charts) in pictures::charts(&report) {
//!     std::fs::write(format!("{name}.svg"), plot::svg(&report.site.mountpoint, &charts))?;
//! }
//! ```

use plimsoll_figures::units::{format_bytes_binary, format_duration_ns, format_iops};
use plimsoll_files::variant_name;
use plimsoll_show::answer::{Answer, Mood};
use plimsoll_show::page::{self, Block, Section};
use plimsoll_show::plot::{Axis, Chart, Layer, Point, Unit};
use plimsoll_show::table::Table;

use super::report::Unit as FigureUnit;
use super::report::{DepthCurve, Figure, Frontier, SizeCurve, SteadyState, SteadyWindow, TuneReport};

/// A picture: its name, its heading and text on the page, and its charts.
type Picture = (&'static str, &'static str, &'static str, fn(&TuneReport) -> Vec<Chart>);

const PICTURES: [Picture; 5] = [
    (
        "latency-against-load",
        "Latency against load",
        "Each point is a number of requests under way. Beyond the knee a doubling of the depth brings less than a \
         quarter more, and the rest is waiting.",
        latency_against_load,
    ),
    (
        "sizes",
        "Sizes",
        "Points were measured at random positions; dashed lines are the cost function that the scheduler charges by, \
         fitted to them. Below: by how much the fit misses each point.",
        sizes,
    ),
    (
        "frontier",
        "Reads beside writes",
        "Each point is a mix that the disk just carried. The line is (r/R)^p + (w/W)^p = 1 with the p that fits; p = 1 \
         is a plain trade.",
        |report| report.frontier.iter().map(frontier).collect(),
    ),
    (
        "time",
        "Each figure over time",
        "Only the settled samples count; what came before them is a cache, credits, or a slow start.",
        time_series,
    ),
    (
        "steady-state",
        "Rounds to steady state",
        "The band holds the five rounds that were judged: range at most 20 %, slope at most 10 % of their mean.",
        |report| report.steady_state.iter().flat_map(steady_state).collect(),
    ),
];

pub const NAMES: [&str; 5] = [PICTURES[0].0, PICTURES[1].0, PICTURES[2].0, PICTURES[3].0, PICTURES[4].0];

/// Returns the pictures of a report: name (usable as a file name) and charts.
pub fn charts(report: &TuneReport) -> Vec<(&'static str, Vec<Chart>)> {
    let all = PICTURES.map(|(name, .., charts)| (name, charts(report)));
    all.into_iter().filter(|(_, charts)| !charts.is_empty()).collect()
}

pub fn page(report: &TuneReport) -> String {
    let (title, sections) = sections(report);
    page::html(&title, &sections)
}

pub fn sections(report: &TuneReport) -> (String, Vec<Section>) {
    let title = format!("{}: what the disk carries", report.site.mountpoint);
    let pictures = PICTURES.into_iter().map(|(_, heading, text, charts)| (heading, text, charts(report)));
    let pictures = pictures
        .filter(|(.., charts)| !charts.is_empty())
        .map(|(heading, text, charts)| Section::new(heading, [Block::Text(text.to_owned()), Block::Picture(charts)]));
    (title, std::iter::once(summary(report)).chain(pictures).collect())
}

/// Returns whether the figures can be relied on.
pub fn answer(report: &TuneReport) -> Answer {
    let doubts = report.doubts();
    let known: Vec<&Figure> = report.figures().into_iter().filter_map(|(.., figure)| figure.as_ref()).collect();

    let (mood, verdict) = match (doubts.first(), known.len()) {
        (Some(doubt), _) => {
            let names: Vec<&str> = doubts.iter().map(|doubt| doubt.figure).collect();
            (Mood::Bad, format!("doubtful: {}: {}", names.join(", "), doubt.why))
        }
        (None, 4) => (Mood::Good, "no figure of the disk is doubtful".to_owned()),
        (None, count) => (Mood::Heed, format!("{count} of 4 figures were measured, none is doubtful")),
    };

    let widest = known.iter().filter_map(|figure| figure.ci95_pct).reduce(f64::max);
    let figure =
        widest.map_or_else(String::new, |widest| format!("each is known to \u{b1} {widest:.1} % or better (95 %)"));

    let confidence = match report.warnings.len() {
        0 => String::new(),
        count => format!("{count} warning(s) say what lowers it"),
    };

    Answer::new(mood, verdict, figure, confidence)
}

fn summary(report: &TuneReport) -> Section {
    let row = |name: &str, figure: &Option<Figure>| match figure {
        None => vec![name.to_owned(), "not measured".into(), String::new(), String::new(), String::new()],
        Some(figure) => vec![
            name.to_owned(),
            figure.unit.text(figure.value),
            figure.interval_text(),
            format_bytes_binary(u64::from(figure.block_bytes)),
            figure.depth.to_string(),
        ],
    };

    let rows = report.figures().map(|(_, name, figure)| row(name, figure));

    let place = report.site.place.as_ref().map(|place| format!("On {}, begun {}. ", place.host, place.date));
    let mut blocks = vec![
        answer(report).into(),
        Block::Text(format!(
            "{}{} ({}), {} shard(s), backend {}, {} measurement, {} written.",
            place.unwrap_or_default(),
            report.site.mountpoint,
            report.site.device.as_ref().map_or("unknown device", |device| &device.name),
            report.shards,
            report.backend.name,
            variant_name(report.mode),
            format_bytes_binary(report.written_bytes),
        )),
        Table::new("", ["", "figure", "95 %", "size", "depth"], rows).into(),
    ];

    if let Some(line) = &report.iocost_model {
        blocks.push(Block::Text(format!("For io.cost.model: {line}")));
    }

    if !report.warnings.is_empty() {
        blocks.push(Block::Warnings(report.warnings.iter().map(|warning| warning.message.clone()).collect()));
    }

    Section { heading: "Figures".to_owned(), blocks }
}

fn latency_against_load(report: &TuneReport) -> Vec<Chart> {
    let chart = |name: &str, curve: &DepthCurve| {
        let points = |ns: fn(&super::DepthPoint) -> u64| -> Vec<(f64, f64)> {
            curve.points.iter().map(|point| (point.iops, ns(point) as f64)).collect()
        };
        let mut layers = Vec::new();
        for (label, points) in [("median", points(|p| p.p50_ns)), ("99 of 100", points(|p| p.p99_ns))] {
            layers.extend(Layer::dotted(label, points, false));
        }

        let note = curve.knee.map(|knee| {
            layers.push(Layer::VerticalMark { x: knee.iops, label: format!("knee: depth {}", knee.depth) });
            format!(
                "Depths {} to {}. At the knee {} IOPS at a median of {}; the disk works on about {:.0} requests at once.",
                curve.points.first().map_or(0, |point| point.depth),
                curve.points.last().map_or(0, |point| point.depth),
                format_iops(knee.iops),
                format_duration_ns(knee.p50_ns),
                knee.concurrency,
            )
        });

        Chart {
            title: format!("Random {name}s of {}", format_bytes_binary(u64::from(curve.block_bytes))),
            x: Axis::linear(format!("{name}s a second"), Unit::PerSecond),
            y: Axis::log10("latency", Unit::Nanoseconds),
            layers,
            note,
        }
    };
    let read = report.read_depths.iter().map(|curve| chart("read", curve));
    read.chain(report.write_depths.iter().map(|curve| chart("write", curve))).collect()
}

fn sizes(report: &TuneReport) -> Vec<Chart> {
    let curves: Vec<(&str, &SizeCurve)> = [("reads", &report.read_sizes), ("writes", &report.write_sizes)]
        .into_iter()
        .filter_map(|(name, curve)| Some((name, curve.as_ref()?)))
        .collect();
    if curves.is_empty() {
        return Vec::new();
    }

    let (mut rates, mut rest) = (Vec::new(), vec![Layer::HorizontalMark { y: 0.0, label: String::new() }]);
    for (name, curve) in curves {
        let sizes = || curve.points.iter().map(|point| f64::from(point.block_bytes));
        let measured = curve.points.iter().map(|point| Point::new(f64::from(point.block_bytes), point.iops));
        rates.push(Layer::Points { name: name.to_owned(), points: measured.collect() });
        let Some(fit) = &curve.fit else { continue };
        // Four values between two sizes, so that the bend of the fit does not coincide with a point.
        let fine = (36..=80).map(|step| 2f64.powf(f64::from(step) / 4.0)).filter(|bytes| {
            let (least, most) = (sizes().fold(f64::MAX, f64::min), sizes().fold(0.0, f64::max));
            (least..=most).contains(bytes)
        });
        let line = fine.map(|bytes| (bytes, 1e9 / fit.cost_ns(bytes as u32))).collect();
        rates.push(Layer::Line { name: name.to_owned(), points: line, dashed: true });
        let residuals = sizes().zip(&fit.residuals_pct).map(|(bytes, percent)| Point::new(bytes, percent / 100.0));
        rest.push(Layer::Points { name: name.to_owned(), points: residuals.collect() });
    }
    vec![
        Chart::new(
            "Rate by request size",
            Axis::log2("request size", Unit::Bytes),
            Axis::log10("requests a second", Unit::PerSecond),
            rates,
        ),
        Chart::new(
            "Cost function: fitted over measured, less 1",
            Axis::log2("request size", Unit::Bytes),
            Axis::linear("part of the device time", Unit::Fraction),
            rest,
        ),
    ]
}

fn frontier(frontier: &Frontier) -> Chart {
    let (reads, writes) = (frontier.read_iops, frontier.write_bytes_per_s);
    let points = frontier.points.iter().map(|point| Point::new(point.writes * writes, point.reads * reads)).collect();
    let p = frontier.mix_exponent_p;
    let left = |part: f64| p.map_or(1.0, |p| (1.0 - part.powf(p)).max(0.0).powf(1.0 / p));
    let mut curve: Vec<(f64, f64)> =
        (0..=100).map(|step| f64::from(step) / 100.0).map(|part| (part * writes, left(part) * reads)).collect();

    if p.is_none() {
        curve.push((writes, 0.0));
    }

    let name = p.map_or("p infinite: no disturbance".to_owned(), |p| format!("p = {p:.2}"));
    let mut layers =
        vec![Layer::Points { name: "carried".to_owned(), points }, Layer::Line { name, points: curve, dashed: false }];
    if p.is_some_and(|p| (p - 1.0).abs() > 0.05) {
        let points = vec![(0.0, reads), (writes, 0.0)];
        layers.push(Layer::Line { name: "p = 1, for comparison".to_owned(), points, dashed: true });
    }

    Chart::new(
        format!(
            "Random reads of {} beside sequential writes of {}",
            format_bytes_binary(u64::from(frontier.read_block_bytes)),
            format_bytes_binary(u64::from(frontier.write_block_bytes))
        ),
        Axis::linear("writes", Unit::BytesPerSecond),
        Axis::linear("reads a second", Unit::PerSecond),
        layers,
    )
}

fn time_series(report: &TuneReport) -> Vec<Chart> {
    if report.steady_state.is_some() || report.merged.is_some() {
        return Vec::new();
    }
    let figures = [
        ("Random reads", &report.read_iops),
        ("Random writes", &report.write_iops),
        ("Sequential reads", &report.read_bandwidth),
        ("Sequential writes", &report.write_bandwidth),
    ];
    let chart = |(title, figure): (&str, &Option<Figure>)| {
        let figure = figure.as_ref()?;
        let at = |sample: usize| (sample as f64 + 0.5) * figure.sample_s * 1e9;
        let points: Vec<(f64, f64)> = figure.samples.iter().enumerate().map(|(i, rate)| (at(i), *rate)).collect();

        let end_ns = figure.samples.len() as f64 * figure.sample_s * 1e9;
        Some(Chart::new(
            title,
            Axis::linear("time", Unit::Nanoseconds),
            axis_of(figure.unit),
            vec![
                Layer::Band {
                    from: figure.settled_at as f64 * figure.sample_s * 1e9,
                    to: end_ns,
                    label: "what counts".to_owned(),
                },
                Layer::Line { name: "rate".to_owned(), points, dashed: false },
                Layer::HorizontalMark { y: figure.value, label: figure.unit.text(figure.value) },
            ],
        ))
    };
    figures.into_iter().filter_map(chart).collect()
}

fn axis_of(unit: FigureUnit) -> Axis {
    match unit {
        FigureUnit::OperationsPerS => Axis::linear("requests a second", Unit::PerSecond),
        FigureUnit::BytesPerS => Axis::linear("throughput", Unit::BytesPerSecond),
    }
}

fn steady_state(state: &SteadyState) -> Vec<Chart> {
    let chart = |track: &super::SteadyTrack| {
        let points = track.rates.iter().enumerate().map(|(round, rate)| (round as f64 + 1.0, *rate)).collect();
        let [line, dots] = Layer::dotted("rate", points, false);
        let (from, to) = (track.window_begin as f64 + 1.0, track.window_begin as f64 + 5.0);

        let SteadyWindow { intercept, slope_per_round, range_pct, slope_pct, .. } = track.window;
        let best = vec![(from, intercept), (to, intercept + 4.0 * slope_per_round)];
        let is_rate = track.figure.ends_with("iops");

        Chart {
            title: track.figure.clone(),
            x: Axis::linear("round", Unit::None),
            y: axis_of(if is_rate { FigureUnit::OperationsPerS } else { FigureUnit::BytesPerS }),
            layers: vec![
                Layer::Band { from, to, label: "window".to_owned() },
                line,
                dots,
                Layer::Line { name: "best line".to_owned(), points: best, dashed: true },
            ],
            note: Some(format!("range {range_pct:.1} %, slope {slope_pct:.1} % of the mean")),
        }
    };

    state.tracks.iter().map(chart).collect()
}
