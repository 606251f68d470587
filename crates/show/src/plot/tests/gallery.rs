//! Example charts of every kind that the measuring commands draw, for tests.

use super::{Axis, Chart, Layer, Point, Unit};

/// Returns a figure between -1 and 1 that looks random but is always the same.
fn wobble(at: usize) -> f64 {
    (at as f64 * 12.9898).sin() * (at as f64 * 4.1414).cos()
}

fn line(name: &str, dashed: bool, points: Vec<(f64, f64)>) -> Layer {
    Layer::Line { name: name.to_owned(), points, dashed }
}

fn vertical(x: f64, label: &str) -> Layer {
    Layer::VerticalMark { x, label: label.to_owned() }
}

fn horizontal(y: f64, label: &str) -> Layer {
    Layer::HorizontalMark { y, label: label.to_owned() }
}

/// Draws rates by request size with the fitted cost, and the residuals of the fit.
pub(crate) fn size_curve() -> Vec<Chart> {
    let sizes: Vec<f64> = (9..=20).map(|power| 2f64.powi(power)).collect();
    let kinds = [("reads", 260e3, 3.1e9), ("writes", 140e3, 1.4e9)];
    let fitted = |iops: f64, rate: f64, size: f64| 1.0 / (1.0 / iops + size / rate);
    let residual = |at: usize| 0.04 * wobble(at);
    let axis = || Axis::log2("request size", Unit::Bytes);
    let (mut curve, mut rest) = (Vec::new(), vec![horizontal(0.0, "")]);

    for (index, (name, iops, rate)) in kinds.into_iter().enumerate() {
        let seed = |at: usize| at + 50 * index;
        let curve_points = sizes.iter().enumerate().map(|(at, size)| {
            let value = fitted(iops, rate, *size) * (1.0 + residual(seed(at)));
            Point::with_range(*size, value, value * 0.7, value * 1.25)
        });
        let rest_points = sizes.iter().enumerate().map(|(at, size)| Point::new(*size, residual(seed(at))));
        let smooth = (36..=80).map(|step| 2f64.powf(f64::from(step) / 4.0));
        curve.push(line(name, true, smooth.map(|size| (size, fitted(iops, rate, size))).collect()));
        curve.push(Layer::Points { name: name.to_owned(), points: curve_points.collect() });
        rest.push(Layer::Points { name: name.to_owned(), points: rest_points.collect() });
    }

    vec![
        Chart {
            title: "Rate by request size".into(),
            x: axis(),
            y: Axis::log10("requests a second", Unit::PerSecond),
            layers: curve,
            note: Some("Points: measured, with the range of five runs. Dashed lines: the fitted cost function.".into()),
        },
        Chart::new("What the fit leaves", axis(), Axis::linear("measured over fitted, less 1", Unit::Fraction), rest),
    ]
}

/// Draws latency against load, with the knee, a goal and a prediction.
pub(crate) fn latency_against_load() -> Chart {
    let loads = || (1..=24).map(|step| f64::from(step) * 10e3);
    let latency = |load: f64, base: f64| base / (1.0 - load / 251e3);
    let points = |base: f64| loads().map(|load| Point::new(load, latency(load, base))).collect();
    Chart::new(
        "Read latency against load",
        Axis::linear("4 KiB reads a second", Unit::PerSecond),
        Axis::log10("latency", Unit::Nanoseconds),
        vec![
            Layer::Points { name: "half of the reads (p50)".into(), points: points(78e3) },
            Layer::Points { name: "95 of 100 (p95)".into(), points: points(130e3) },
            line("prediction of the model (p95)", true, loads().map(|load| (load, latency(load, 127e3))).collect()),
            vertical(201e3, "knee: 201 k"),
            vertical(215e3, "where the latency has doubled since the knee"),
            horizontal(750e3, "goal 750 us"),
            horizontal(780e3, "what was reached"),
        ],
    )
}

/// Draws the read bandwidth left while the disk writes.
pub(crate) fn frontier() -> Chart {
    let reads = |write: f64| 3.1e9 * (1.0 - (write / 1.4e9).powf(1.3)).max(0.0).powf(1.0 / 1.3);
    let writes = || (0..=14).map(|step| f64::from(step) * 0.1e9);
    let measured = writes().enumerate().map(|(at, write)| Point::new(write, reads(write) * (1.0 + 0.04 * wobble(at))));
    Chart::new(
        "Reads beside writes, 128 KiB",
        Axis::linear("writes", Unit::BytesPerSecond),
        Axis::linear("reads", Unit::BytesPerSecond),
        vec![
            Layer::Points { name: "measured".into(), points: measured.collect() },
            line("mix exponent 1.3", true, writes().map(|write| (write, reads(write))).collect()),
            line("sum of shares", true, vec![(0.0, 3.1e9), (1.4e9, 0.0)]),
        ],
    )
}

/// Draws a rate that falls over ten minutes, with the steady-state window.
pub(crate) fn time_series() -> Chart {
    let rate = |at: usize| if at < 2400 { 1.9e9 } else { 1.15e9 } * (1.0 + 0.06 * wobble(at));
    Chart {
        title: "Writes from an empty disk on".into(),
        x: Axis::linear("time", Unit::Nanoseconds),
        y: Axis::linear("throughput", Unit::BytesPerSecond),
        layers: vec![
            Layer::Band { from: 300e9, to: 540e9, label: "steady state".into() },
            line("writes", false, (0..5500).map(|at| (at as f64 * 0.1e9, rate(at))).collect()),
            vertical(240e9, "cache is full"),
            horizontal(1.15e9, "1.15 GB/s"),
        ],
        note: Some("Each point is a tenth of a second; a long remark is wrapped to the width of its chart. ".repeat(3)),
    }
}

/// Draws more layers than a legend names, and more marks than there is room for.
pub(crate) fn crowd() -> Chart {
    let curve = |index: usize| (0..60).map(|at| (at as f64, index as f64 + wobble(at))).collect();
    let lines = (0..16).map(|index| line(&format!("class <{index}> & friends"), index % 5 == 4, curve(index)));
    let marks = (0..9).map(|index| vertical(20.0 + f64::from(index), "an event with a longer name"));
    let goals = (0..20).map(|index| horizontal(f64::from(index) * 0.1, "limit"));
    Chart::new(
        "Many of everything \"<&>\"",
        Axis::linear("time, s", Unit::None),
        Axis::linear("MB/s", Unit::None),
        lines.chain(marks).chain(goals).collect(),
    )
}

pub(crate) fn all() -> Vec<Chart> {
    let mut charts = size_curve();
    charts.extend([latency_against_load(), frontier(), time_series(), crowd()]);
    charts
}
