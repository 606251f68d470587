//! A picture in words, for readers who cannot see it.
//!
//! # Why
//! The message of a chart is where its values begin and end, and how low and how high they reach. The word "chart" does
//! not convey it.
//!
//! # How it works
//! [`words`] names each chart with its axes and, for each layer, its extremes and their positions.
//!
//! # Limits
//! At most [`LAYERS_MAX`] layers of a chart are described; the table beside a picture has all figures.
//!
//! # Example
//! `Latency over time. Across: time; up: latency. mean: from 85 us to 1.5 ms, lowest 80 us at 2 s, highest 2 ms at
//! 9 s.`

use plimsoll_figures::units::{format_bytes_binary, format_duration_ns, format_iops, format_throughput_decimal};

use crate::plot::{Bar, Chart, Layer, Unit};

/// Most layers of a chart that are described.
const LAYERS_MAX: usize = 12;

pub(super) fn words(charts: &[Chart]) -> String {
    charts.iter().map(chart_words).collect::<Vec<_>>().join(" ")
}

fn chart_words(chart: &Chart) -> String {
    let is_bars = chart.layers.iter().any(|layer| matches!(layer, Layer::Bars { .. }));
    let axes = match is_bars {
        true => format!("Bars along: {}.", chart.x.label),
        false => format!("Across: {}; up: {}.", chart.x.label, chart.y.label),
    };
    let mut sentences = vec![format!("{}.", chart.title.trim_end_matches('.')), axes];
    let told: Vec<String> = chart.layers.iter().filter_map(|layer| layer_words(chart, layer)).collect();
    let further = told.len().saturating_sub(LAYERS_MAX);
    sentences.extend(told.into_iter().take(LAYERS_MAX));
    if further > 0 {
        sentences.push(format!("And {further} more."));
    }
    sentences.extend(chart.note.clone());
    sentences.join(" ")
}

fn layer_words(chart: &Chart, layer: &Layer) -> Option<String> {
    let (x, y) = (chart.x.unit, chart.y.unit);
    match layer {
        Layer::Line { name, points, .. } => line_words(name, points, x, y),
        // A layer's line already describes the points of the same name.
        Layer::Points { name, .. } if has_line(chart, name) => None,
        Layer::Points { name, points } => {
            line_words(name, &points.iter().map(|point| (point.x, point.y)).collect::<Vec<_>>(), x, y)
        }
        Layer::Bars { name, bars, .. } => {
            let bar = |bar: &Bar| format!("{} {}", bar.row, value(bar.value, x));
            let all: Vec<String> = bars.iter().take(LAYERS_MAX).map(bar).collect();
            (!all.is_empty()).then(|| format!("{}: {}.", named(name), all.join(", ")))
        }
        Layer::VerticalMark { x: at, label } if !label.is_empty() => Some(format!("{label} at {}.", value(*at, x))),
        Layer::HorizontalMark { y: at, label } if !label.is_empty() => Some(format!("{label} at {}.", value(*at, y))),
        Layer::Band { from, to, label } if !label.is_empty() => {
            Some(format!("{label} from {} to {}.", value(*from, x), value(*to, x)))
        }
        _ => None,
    }
}

fn has_line(chart: &Chart, name: &str) -> bool {
    !name.is_empty() && chart.layers.iter().any(|layer| matches!(layer, Layer::Line { name: line, .. } if line == name))
}

fn line_words(name: &str, points: &[(f64, f64)], x: Unit, y: Unit) -> Option<String> {
    let points: Vec<(f64, f64)> = points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite()).collect();
    let (first, last) = (points.first()?, points.last()?);
    let name = named(name);
    let (_, low) = points.iter().map(|point| (point.1, point)).reduce(|a, b| if b.0 < a.0 { b } else { a })?;
    let (_, high) = points.iter().map(|point| (point.1, point)).reduce(|a, b| if b.0 > a.0 { b } else { a })?;
    if value(low.1, y) == value(high.1, y) {
        return Some(format!("{name}: {} throughout.", value(low.1, y)));
    }
    Some(format!(
        "{name}: from {} to {}, lowest {} at {}, highest {} at {}.",
        value(first.1, y),
        value(last.1, y),
        value(low.1, y),
        value(low.0, x),
        value(high.1, y),
        value(high.0, x)
    ))
}

fn named(name: &str) -> &str {
    if name.is_empty() { "values" } else { name }
}

fn value(value: f64, unit: Unit) -> String {
    let whole = |value: f64| value.max(0.0).round() as u64;
    match unit {
        _ if !value.is_finite() => "the end of the axis".to_owned(),
        Unit::None => {
            let text = format!("{value:.2}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        Unit::Bytes => format_bytes_binary(whole(value)),
        Unit::PerSecond => format!("{} a second", format_iops(value)),
        Unit::BytesPerSecond => format_throughput_decimal(value),
        Unit::Nanoseconds => format_duration_ns(whole(value)),
        Unit::Fraction => format!("{:.1} %", 100.0 * value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::{Axis, Point};

    #[test]
    fn a_picture_is_told_by_its_extremes_and_marks() {
        let chart = Chart {
            title: "Latency against load".into(),
            x: Axis::linear("reads a second", Unit::PerSecond),
            y: Axis::log10("latency", Unit::Nanoseconds),
            layers: vec![
                Layer::Line { name: "median".into(), points: vec![(1e3, 9e4), (2e3, 8e4), (3e3, 2e6)], dashed: false },
                Layer::Points { name: "median".into(), points: vec![Point::new(1e3, 9e4)] },
                Layer::VerticalMark { x: 2e3, label: "knee".into() },
                Layer::Line { name: "none".into(), points: vec![(f64::NAN, 1.0)], dashed: false },
            ],
            note: Some("Depths 1 to 3.".into()),
        };
        let told = words(&[chart]);
        assert_eq!(told.matches("median").count(), 1, "{told}");
        for part in ["Latency against load.", "lowest 80", "highest 2", "knee at 2,000", "Depths 1 to 3."] {
            assert!(told.contains(part), "{part}: {told}");
        }
        assert!(!told.contains("NaN") && !told.contains("none:"), "{told}");
    }
}
