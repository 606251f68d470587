//! Judges the shape of one figure over the sizes of a family.
//!
//! **Why.** "Scales but low" and "plateaus" have different causes; a table of numbers shows neither at a glance.
//!
//! **How.** [`judge`] takes the sizes that have the figure, from the smallest. It first searches for the longest
//! plateau that ends at the largest size, then for the start of the trailing run of departures.
//!
//! **Limits.** Two sizes can form a plateau by chance; the sentence states the number of sizes.
//!
//! **Example.** 2.0, 4.1, 8.5, 8.5 GB/s at 16, 32, 64 and 192 vCPUs: a plateau of two sizes.

use super::{FIGURES, FigureReport, Plateau, SAME_FIGURE, ScalePoint, Shape, Size, cause, format_figure, is_iops};

/// Smallest factor by which the expected figure must grow over a plateau.
const GROWTH: f64 = 1.25;

/// Returns the report on a figure, or `None` if fewer than two of `sizes`, which must rise, have it.
pub(super) fn judge(sizes: &[Size], figure: usize) -> Option<FigureReport> {
    let (key, title) = FIGURES[figure];
    let with_point = |size| Some((size, point(size, figure)?));
    let (sizes, points): (Vec<&Size>, Vec<ScalePoint>) = sizes.iter().filter_map(with_point).unzip();
    if points.len() < 2 {
        return None;
    }
    // Sizes without an advertised figure neither depart nor end a run of departures.
    let judged: Vec<&ScalePoint> = points.iter().filter(|point| point.advertised.is_some()).collect();

    let plateau = plateau_from(&points, figure).and_then(|from| {
        let on_it = points.get(from..)?;
        let value = on_it.iter().map(|point| point.measured).sum::<f64>() / on_it.len() as f64;
        let causes = cause::of_plateau(sizes.get(from..)?, figure, value);
        Some(Plateau { value, from: on_it.first()?.instance.clone(), sizes: on_it.len(), causes })
    });

    let trailing = judged.iter().rev().take_while(|point| point.departs).count();
    let departs_from = judged.get(judged.len() - trailing).map(|point| point.instance.clone());

    let shape = match &plateau {
        Some(_) => Shape::Plateaus,
        None if trailing > 0 && grows(&points) => Shape::ScalesButLow,
        None if trailing > 0 => Shape::LowWithoutGrowth,
        None if judged.iter().any(|point| point.departs) => Shape::LowAtSomeSizes,
        None if judged.is_empty() => Shape::Grows,
        None => Shape::AsAdvertised,
    };

    let mut sentence = match (&plateau, shape) {
        (Some(plateau), _) => on_plateau(plateau, &points, figure),
        (None, Shape::ScalesButLow | Shape::LowWithoutGrowth) => low(shape, &judged, trailing, &points),
        (None, shape) => otherwise(shape, &points),
    };
    let remark = (shape == Shape::ScalesButLow).then(|| cause::before_the_disks(&sizes, figure)).flatten();
    sentence.extend(remark.map(|remark| format!("; {remark}")));
    Some(FigureReport { key, title, shape, departs_from, plateau, sentence, points })
}

fn point(size: &Size, figure: usize) -> Option<ScalePoint> {
    let measured = size.measured[figure]?;
    let (advertised, advertised_kind) = size.advertised[figure].unzip();
    let part = advertised.map(|advertised| measured / advertised);
    let reference = size.reference[figure];
    Some(ScalePoint {
        instance: size.name.clone(),
        vcpus: size.vcpus,
        measured,
        advertised,
        advertised_kind,
        difference_pct: part.map(|part| (part - 1.0) * 100.0),
        departs: part.is_some_and(|part| part < 1.0 - SAME_FIGURE),
        reference,
        reference_difference_pct: reference.map(|reference| (measured / reference - 1.0) * 100.0),
    })
}

/// Returns the index of the first size on the plateau, if there is one.
fn plateau_from(points: &[ScalePoint], figure: usize) -> Option<usize> {
    let last = points.last()?;
    // A figure as advertised is no plateau.
    if last.advertised.is_some() && !last.departs {
        return None;
    }
    let is_flat = |from: &usize| {
        let on_it = points.get(*from..).unwrap_or_default();
        let measured = || on_it.iter().map(|point| point.measured);
        let (low, high) = (measured().fold(f64::INFINITY, f64::min), measured().fold(0.0, f64::max));
        high <= low * (1.0 + SAME_FIGURE) && on_it.first().is_some_and(|first| expected_growth(first, last) >= GROWTH)
    };
    let single = || {
        let is_limit = last.departs && !is_iops(figure) && cause::power_of_two(last.measured).is_some();
        is_limit.then_some(points.len() - 1)
    };
    (0..points.len() - 1).find(is_flat).or_else(single)
}

/// Returns whether the largest size exceeds the smallest by more than two equal runs differ.
fn grows(points: &[ScalePoint]) -> bool {
    let (first, last) = (points.first(), points.last());
    first.zip(last).is_some_and(|(first, last)| last.measured > first.measured * (1.0 + SAME_FIGURE))
}

/// Returns the factor by which `last` should exceed `first`.
fn expected_growth(first: &ScalePoint, last: &ScalePoint) -> f64 {
    match (first.advertised, last.advertised) {
        (Some(first), Some(last)) => last / first,
        _ => last.vcpus / first.vcpus,
    }
}

/// Returns `advertised`, or the word that replaces it at a point.
fn word(point: Option<&ScalePoint>) -> &'static str {
    point.and_then(|point| point.advertised_kind).unwrap_or_default().as_word()
}

fn on_plateau(plateau: &Plateau, points: &[ScalePoint], figure: usize) -> String {
    let value = format_figure(figure, plateau.value);
    let largest = points.last();
    let name = largest.map_or("", |last| &last.instance);
    let beside = largest.and_then(|last| last.advertised).map_or_else(
        || "nothing is advertised there".to_owned(),
        |advertised| format!("{} are {}", word(largest), format_figure(figure, advertised)),
    );
    let place = match plateau.sizes {
        1 => format!("at {value}, seen at {name} only, where {beside}"),
        sizes => format!("at {value} from {} on ({sizes} sizes); at {name} {beside}", plateau.from),
    };
    match plateau.causes.join("; ") {
        causes if causes.is_empty() => format!("plateaus {place}; no known cause fits"),
        causes => format!("plateaus {place}; {causes}"),
    }
}

fn low(shape: Shape, points: &[&ScalePoint], trailing: usize, all: &[ScalePoint]) -> String {
    let percent = |point: &ScalePoint| point.difference_pct.unwrap_or(0.0);
    let low: Vec<&ScalePoint> = points.iter().copied().skip(points.len() - trailing).collect();
    let (Some(first), Some(last)) = (low.first(), low.last()) else { return String::new() };
    let earlier = points.iter().take(points.len() - trailing).filter(|point| point.departs).count();
    let also = if earlier > 0 { format!(", and at {earlier} smaller size(s)") } else { String::new() };
    let (name, words) = (&last.instance, shape.as_words());
    let is_largest = all.last() == Some(*last);
    let largest = if is_largest { "the largest size" } else { "the largest size of which anything is advertised" };

    let place = match low.len() {
        1 => format!("{:+.0} % at {name}, {largest}", percent(last)),
        _ => format!("{:+.0} % at {}, {:+.0} % at {name}", percent(first), first.instance, percent(last)),
    };
    let trend = match percent(last) - percent(first) {
        _ if shape == Shape::LowWithoutGrowth => without_growth(points),
        _ if low.len() == 1 => String::new(),
        change if change < -5.0 => "; it falls further behind with size".to_owned(),
        change if change > 5.0 => "; it catches up with size".to_owned(),
        _ => "; the same part is missing at every size".to_owned(),
    };
    format!("{words}: {place}{also}{trend}")
}

/// Describes whether a figure that does not grow should grow.
fn without_growth(points: &[&ScalePoint]) -> String {
    let ends = points.first().zip(points.last());
    match ends.map_or(1.0, |(first, last)| expected_growth(first, last)) {
        growth if growth < GROWTH => "; what is advertised does not grow either".to_owned(),
        growth => format!("; what is advertised grows {growth:.1} times"),
    }
}

fn otherwise(shape: Shape, points: &[ScalePoint]) -> String {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return String::new() };
    let low: Vec<String> = points
        .iter()
        .filter(|point| point.departs)
        .map(|point| format!("{} ({:+.0} %)", point.instance, point.difference_pct.unwrap_or(0.0)))
        .collect();

    match shape {
        Shape::LowAtSomeSizes => format!("low at some sizes: {}", low.join(", ")),
        Shape::Grows => format!(
            "grows {:.1} times over {:.0} times the vCPUs; nothing is advertised to hold it against",
            last.measured / first.measured,
            last.vcpus / first.vcpus
        ),
        _ => {
            let last = points.iter().rev().find(|point| point.advertised.is_some()).unwrap_or(last);
            format!("as {} within 10 %, up to {}", word(Some(last)), last.instance)
        }
    }
}
