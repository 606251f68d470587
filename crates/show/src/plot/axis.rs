//! Axes: their range, the position of a value, and round ticks with labels.
//!
//! # Why
//! A reader finds a value on an axis only if the ticks are round in the unit written beside them: 256 KiB rather than
//! 250 000 bytes, 1.5 ms rather than 1 500 000 ns.
//!
//! # How it works
//! A value first gets a *place*: the value itself on a linear axis, its logarithm on the others. A [`Span`] is a range
//! of places, a [`Ruler`] a span over pixels. Steps of linear ticks are 1, 2 or 5 times a power of ten in the unit that
//! suits the largest value, or a power of two for bytes. Logarithmic axes have ticks at powers; below two and a half
//! decades at 1, 2 and 5 times a power; and linear ticks if there would be fewer than two. Of all sets of ticks, the
//! densest whose labels do not meet is used.
//!
//! # Limits
//! Places are at most 1e100 from 0; spans are never empty. Labels have three significant digits on logarithmic axes.
//!
//! # Example
//! Sizes from 512 B to 1 MiB on a [`Scale::Log2`] axis have twelve ticks: `512 B`, `1 KiB`, ... `1 MiB`.

use plimsoll_figures::units::{BINARY_BYTES, DECIMAL_COUNT, DURATION, UnitTable};

use super::text::text_width_px;
use super::{Axis, Bar, Chart, Layer, Scale, Unit};

const FONT_SIZE: f64 = 12.0;
/// Largest magnitude shown; 1 over it is the smallest on a logarithmic axis. Far enough inside `f64` that no difference
/// or product of two values overflows.
const LARGEST: f64 = 1e100;
/// Free room beside the outermost points, as a part of the range.
const PADDING: f64 = 0.025;

impl Scale {
    /// Returns the place of a value, or `None` if the axis cannot show it.
    pub(super) fn place(self, value: f64) -> Option<f64> {
        let is_shown = match self {
            Scale::Linear => value.abs() <= LARGEST,
            Scale::Log2 | Scale::Log10 => (LARGEST.recip()..=LARGEST).contains(&value),
        };
        is_shown.then(|| match self {
            Scale::Linear => value,
            Scale::Log2 => value.log2(),
            Scale::Log10 => value.log10(),
        })
    }
}

/// A range of places: `low` is less than `high`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Span {
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Span {
    pub(super) const UNIT: Span = Span { low: 0.0, high: 1.0 };

    /// Returns the smallest span that contains both.
    pub(super) fn with(self, other: Span) -> Span {
        Span { low: self.low.min(other.low), high: self.high.max(other.high) }
    }

    /// Returns the span of `places`. There may be only one place, or none.
    fn of(places: impl Iterator<Item = f64>, scale: Scale, includes_zero: bool) -> Span {
        let zero = includes_zero.then_some(0.0);
        let ends = |(low, high): (f64, f64), place: f64| (low.min(place), high.max(place));
        let (low, high) = places.chain(zero).fold((f64::INFINITY, f64::NEG_INFINITY), ends);
        if low > high {
            return Span::UNIT;
        }
        let magnitude = low.abs().max(high.abs());
        if high - low > 1e-9 * magnitude && high - low > LARGEST.recip() {
            return Span { low, high };
        }
        match scale {
            Scale::Linear if magnitude <= LARGEST.recip() => Span::UNIT,
            Scale::Linear => Span { low: low - magnitude / 2.0, high: high + magnitude / 2.0 },
            Scale::Log2 | Scale::Log10 => Span { low: low - 1.0, high: high + 1.0 },
        }
    }

    fn padded(self, low: bool, high: bool) -> Span {
        let padding = PADDING * (self.high - self.low);
        let part = |is_padded: bool| if is_padded { padding } else { 0.0 };
        Span { low: self.low - part(low), high: self.high + part(high) }
    }
}

/// Returns the range of the horizontal axis that `chart` needs.
pub(super) fn horizontal_span(chart: &Chart) -> Span {
    let scale = chart.x.scale;
    let marks = chart.layers.iter().flat_map(|layer| match layer {
        Layer::VerticalMark { x, .. } | Layer::Bars { from: x, .. } => [Some(*x), None],
        Layer::Band { from, to, .. } if from <= to => [Some(*from), Some(*to)],
        _ => [None, None],
    });
    let ranges = chart.layers.iter().flat_map(|layer| {
        let bars: &[Bar] = if let Layer::Bars { bars, .. } = layer { bars } else { &[] };
        bars.iter().filter_map(|bar| bar.range).flat_map(|(low, high)| [low, high])
    });
    let values = chart.drawable().map(|(x, _)| x).chain(marks.flatten()).chain(ranges);
    let span = Span::of(values.filter_map(|value| scale.place(value)), scale, false);

    let has_points = chart.layers.iter().any(|layer| matches!(layer, Layer::Points { .. } | Layer::Bars { .. }));
    match scale {
        Scale::Linear => {
            // An axis that begins just above 0 begins at 0.
            let begins_at_zero = span.low >= 0.0 && span.low < span.high * 0.1;
            let span = if begins_at_zero { Span { low: 0.0, ..span } } else { span };
            span.padded(has_points && !begins_at_zero, has_points)
        }
        Scale::Log2 | Scale::Log10 => span.padded(has_points, has_points),
    }
}

/// Returns the range of the vertical axis. A linear one includes 0 and ends at ticks.
pub(super) fn vertical_span(chart: &Chart) -> Span {
    let scale = chart.y.scale;
    let others = chart.layers.iter().flat_map(|layer| -> Vec<f64> {
        match layer {
            Layer::HorizontalMark { y, .. } => vec![*y],
            Layer::Points { points, .. } => {
                let drawn = points.iter().filter(|p| chart.x.scale.place(p.x).and(scale.place(p.y)).is_some());
                drawn.filter_map(|point| point.range).flat_map(|(low, high)| [low, high]).collect()
            }
            _ => Vec::new(),
        }
    });
    let values = chart.drawable().map(|(_, y)| y).chain(others);
    let span = Span::of(values.filter_map(|value| scale.place(value)), scale, scale == Scale::Linear);
    if scale != Scale::Linear {
        return span.padded(true, true);
    }
    let step = chart.y.unit.step((span.high - span.low) / 5.0, span);
    let low = (span.low / step + 1e-9).floor() * step;
    Span { low, high: ((span.high / step - 1e-9).ceil() * step).max(low + step) }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    pub(super) px: f64,
    pub(super) label: String,
}

pub(super) struct Ruler<'a> {
    axis: &'a Axis,
    span: Span,
    start_px: f64,
    end_px: f64,
}

impl<'a> Ruler<'a> {
    pub(super) fn new(axis: &'a Axis, span: Span, start_px: f64, end_px: f64) -> Ruler<'a> {
        Ruler { axis, span, start_px, end_px }
    }

    /// Returns the position of a value, or `None` if the axis cannot show it.
    pub(super) fn px(&self, value: f64) -> Option<f64> {
        self.axis.scale.place(value).map(|place| self.place_px(place))
    }

    /// Returns the position of a value, or an end of the axis if that cannot show it; `None` if the value is not a
    /// number.
    pub(super) fn px_or_end(&self, value: f64) -> Option<f64> {
        let end = if value > 1.0 { self.end_px } else { self.start_px };
        (!value.is_nan()).then(|| self.px(value).unwrap_or(end))
    }

    fn place_px(&self, place: f64) -> f64 {
        let part = ((place - self.span.low) / (self.span.high - self.span.low)).clamp(0.0, 1.0);
        self.start_px + part * (self.end_px - self.start_px)
    }

    /// Returns the ticks of a horizontal axis, whose labels stand side by side.
    pub(super) fn ticks_across(&self) -> Vec<Tick> {
        self.ticks(8.0, |ticks| {
            let half = |tick: &Tick| text_width_px(&tick.label, FONT_SIZE) / 2.0;
            ticks.windows(2).all(|pair| match pair {
                [left, right] => right.px - half(right) - (left.px + half(left)) >= 10.0,
                _ => true,
            })
        })
    }

    /// Returns the ticks of a vertical axis, whose labels stand one above the other.
    pub(super) fn ticks_up(&self) -> Vec<Tick> {
        // `vertical_span` rounds both ends outward, so they may be up to seven of its steps apart.
        self.ticks(7.0, |ticks| {
            ticks.windows(2).all(|pair| match pair {
                [lower, upper] => lower.px - upper.px >= 1.5 * FONT_SIZE,
                _ => true,
            })
        })
    }

    /// Returns the positions of the lines between the powers of a [`Scale::Log10`] axis.
    pub(super) fn minor_px(&self) -> Vec<f64> {
        if self.axis.scale != Scale::Log10 || !(0.8..=6.0).contains(&(self.span.high - self.span.low)) {
            return Vec::new();
        }
        let powers = self.span.low.floor() as i32..=self.span.high.floor() as i32;
        let places = powers.flat_map(|power| (2..=9).map(move |part| f64::from(part).log10() + f64::from(power)));
        places.filter(|place| self.holds(*place)).map(|place| self.place_px(place)).collect()
    }

    fn holds(&self, place: f64) -> bool {
        let slack = 1e-9 * (self.span.high - self.span.low);
        (self.span.low - slack..=self.span.high + slack).contains(&place)
    }

    /// Returns the densest ticks that fit, at most about `most` of them on a linear axis.
    fn ticks(&self, most: f64, fits: impl Fn(&[Tick]) -> bool) -> Vec<Tick> {
        let extent = self.span.high - self.span.low;
        let log = |values: Vec<f64>| -> Vec<Tick> {
            let shown = values.into_iter().filter_map(|value| {
                let place = self.axis.scale.place(value).filter(|place| self.holds(*place))?;
                Some(Tick { px: self.place_px(place), label: self.axis.unit.short_label(value) })
            });
            shown.collect()
        };

        let powers = |base: f64, stride: i32, parts: &[f64]| -> Vec<f64> {
            let exponents = self.span.low.floor() as i32..=self.span.high.ceil() as i32;
            let kept = exponents.filter(|exponent| exponent.rem_euclid(stride) == 0);
            kept.flat_map(|exponent| parts.iter().map(move |part| part * base.powi(exponent))).collect()
        };
        // Units change at powers of a thousand and of 1024.
        let tries: Vec<Vec<Tick>> = match self.axis.scale {
            Scale::Log2 if extent >= 2.0 => {
                [1, 2, 5, 10, 20, 40, 80, 160].map(|stride| log(powers(2.0, stride, &[1.0]))).into()
            }
            Scale::Log10 if extent >= 0.8 => {
                let parts: &[f64] = if extent < 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
                [(1, parts), (1, &[1.0]), (3, &[1.0]), (6, &[1.0]), (12, &[1.0]), (24, &[1.0]), (48, &[1.0])]
                    .map(|(stride, parts)| log(powers(10.0, stride, parts)))
                    .into()
            }
            Scale::Linear | Scale::Log2 | Scale::Log10 => {
                [most, 5.0, 3.0, 2.0, 1.0].map(|count| self.linear_ticks(count)).into()
            }
        };

        let fallback = tries.last().cloned().unwrap_or_default();
        tries.into_iter().find(|ticks| fits(ticks)).unwrap_or_else(|| fallback.into_iter().take(1).collect())
    }

    /// Returns about `count` ticks in even steps.
    fn linear_ticks(&self, count: f64) -> Vec<Tick> {
        let value = |place: f64| match self.axis.scale {
            Scale::Linear => place,
            Scale::Log2 => place.exp2(),
            Scale::Log10 => 10f64.powf(place),
        };
        let values = Span { low: value(self.span.low), high: value(self.span.high) };
        let step = self.axis.unit.step((values.high - values.low) / count, values);
        let (first, last) = ((values.low / step - 1e-9).ceil(), (values.high / step + 1e-9).floor());
        let tick = |index: i32| {
            let value = (first + f64::from(index)) * step;
            let px = self.px(value)?;
            Some(Tick { px, label: self.axis.unit.step_label(value, step, values) })
        };
        (0..=(last - first).clamp(-1.0, 50.0) as i32).filter_map(tick).collect()
    }
}

const THROUGHPUT: [(f64, &str); 5] = [(1.0, "B/s"), (1e3, "kB/s"), (1e6, "MB/s"), (1e9, "GB/s"), (1e12, "TB/s")];
const MINUTE_NS: f64 = 60e9;
const HOUR_NS: f64 = 3600e9;

impl Unit {
    /// Returns factors and names in ascending order.
    fn table(self) -> &'static UnitTable {
        match self {
            Unit::None => &[(1.0, "")],
            Unit::Bytes => &BINARY_BYTES,
            Unit::PerSecond => &DECIMAL_COUNT,
            Unit::BytesPerSecond => &THROUGHPUT,
            Unit::Nanoseconds => &DURATION,
            Unit::Fraction => &[(0.01, "%")],
        }
    }

    /// Returns the largest unit that is not above `value`, else the smallest.
    fn factor(self, value: f64) -> (f64, &'static str) {
        let smallest = self.table().first().copied().unwrap_or((1.0, ""));
        let fitting = self.table().iter().rev().find(|(factor, _)| *factor <= value.abs() * (1.0 + 1e-9));
        fitting.copied().unwrap_or(smallest)
    }

    /// Returns the unit in which the steps of a linear axis are round.
    fn axis_factor(self, step: f64, span: Span) -> (f64, &'static str) {
        let largest = span.low.abs().max(span.high.abs());
        match self {
            // Steps are powers of two: in their own unit they need no decimals.
            Unit::Bytes => self.factor(step),
            Unit::Nanoseconds if largest >= 5.0 * HOUR_NS => (HOUR_NS, "h"),
            Unit::Nanoseconds if largest >= 10.0 * MINUTE_NS => (MINUTE_NS, "min"),
            _ => self.factor(largest),
        }
    }

    /// Returns the smallest round step that is at least `raw`.
    fn step(self, raw: f64, span: Span) -> f64 {
        if self == Unit::Bytes {
            return (raw * 0.999).log2().ceil().max(0.0).exp2();
        }
        let (factor, _) = self.axis_factor(raw, span);
        let power = 10f64.powf((raw / factor).log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|part| part * power * factor);
        steps.into_iter().find(|step| *step >= raw * 0.999).unwrap_or(power * factor * 10.0)
    }

    /// Returns the label of a tick on a linear axis, with the decimals that its step needs.
    fn step_label(self, value: f64, step: f64, span: Span) -> String {
        if value.abs() < step * 1e-6 {
            return "0".to_owned();
        }
        let (factor, name) = self.axis_factor(step, span);
        let (figure, step) = (value / factor, step / factor);
        let text = if figure.abs() >= 1e9 || step < 1e-6 {
            let digits = (span.low.abs().max(span.high.abs()) / factor / step).log10().ceil();
            format!("{figure:.*e}", digits.clamp(0.0, 9.0) as usize)
        } else {
            grouped(&format!("{figure:.*}", (-(step * 1.001).log10().floor()).clamp(0.0, 9.0) as usize))
        };
        format!("{text} {name}").trim_end().to_owned()
    }

    /// Returns the label of a single value: three significant digits, or all digits of a whole plain number.
    fn short_label(self, value: f64) -> String {
        let (factor, name) = self.factor(value);
        let figure = value / factor;
        let text = match figure.abs() {
            magnitude if !(1e-4..1e9).contains(&magnitude) => format!("{figure:.0e}"),
            _ if self == Unit::None && figure.fract() == 0.0 => grouped(&format!("{figure:.0}")),
            magnitude => {
                let decimals = (2.0 - magnitude.log10().floor()).clamp(0.0, 9.0) as usize;
                let text = format!("{figure:.decimals$}");
                let trimmed = if decimals > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
                grouped(trimmed)
            }
        };
        format!("{text} {name}").trim_end().to_owned()
    }
}

/// Inserts commas between groups of three digits of a whole number; returns other text unchanged.
fn grouped(number: &str) -> String {
    let (sign, rest) = number.strip_prefix('-').map_or(("", number), |rest| ("-", rest));
    match rest.parse::<u64>() {
        Ok(whole) => format!("{sign}{}", plimsoll_figures::units::format_count(whole)),
        _ => number.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: Scale, unit: Unit, low: f64, high: f64) -> String {
        let axis = Axis { label: String::new(), scale, unit };
        let (Some(low), Some(high)) = (scale.place(low), scale.place(high)) else { panic!("not on the axis") };
        let ticks = Ruler::new(&axis, Span { low, high }, 0.0, 800.0).ticks_across();
        ticks.into_iter().map(|tick| tick.label).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn ticks_are_round_in_the_units_that_people_know() {
        use Scale::{Linear, Log2, Log10};
        for (scale, unit, low, high, expected) in [
            (Linear, Unit::None, 0.0, 7.3, "0, 1, 2, 3, 4, 5, 6, 7"),
            (Linear, Unit::None, -1.0, 1.5, "-1.0, -0.5, 0, 0.5, 1.0, 1.5"),
            (Linear, Unit::None, 0.0, 60_000.0, "0, 10,000, 20,000, 30,000, 40,000, 50,000, 60,000"),
            (Linear, Unit::PerSecond, 0.0, 520e3, "0, 100 k, 200 k, 300 k, 400 k, 500 k"),
            (Linear, Unit::PerSecond, 0.0, 1.6e6, "0, 0.2 M, 0.4 M, 0.6 M, 0.8 M, 1.0 M, 1.2 M, 1.4 M, 1.6 M"),
            (Linear, Unit::BytesPerSecond, 0.0, 3.1e9, "0, 0.5 GB/s, 1.0 GB/s, 1.5 GB/s, 2.0 GB/s, 2.5 GB/s, 3.0 GB/s"),
            (Linear, Unit::Nanoseconds, 0.0, 4.2e6, "0, 1 ms, 2 ms, 3 ms, 4 ms"),
            (Linear, Unit::Nanoseconds, 0.0, 1200e9, "0, 5 min, 10 min, 15 min, 20 min"),
            (Linear, Unit::Nanoseconds, 0.0, 36_000e9, "0, 2 h, 4 h, 6 h, 8 h, 10 h"),
            (Linear, Unit::Fraction, -0.04, 0.1, "-4 %, -2 %, 0, 2 %, 4 %, 6 %, 8 %, 10 %"),
            (
                Linear,
                Unit::Bytes,
                0.0,
                1_048_576.0,
                "0, 128 KiB, 256 KiB, 384 KiB, 512 KiB, 640 KiB, 768 KiB, 896 KiB, 1,024 KiB",
            ),
            (Linear, Unit::Bytes, 0.0, 0.5, "0"),
            (
                Log2,
                Unit::Bytes,
                512.0,
                1_048_576.0,
                "512 B, 1 KiB, 2 KiB, 4 KiB, 8 KiB, 16 KiB, 32 KiB, 64 KiB, 128 KiB, 256 KiB, 512 KiB, 1 MiB",
            ),
            (Log2, Unit::None, 1.0, 64.0, "1, 2, 4, 8, 16, 32, 64"),
            (Log2, Unit::None, 1024.0, 65_536.0, "1,024, 2,048, 4,096, 8,192, 16,384, 32,768, 65,536"),
            (Log10, Unit::Nanoseconds, 50e3, 2e9, "100 us, 1 ms, 10 ms, 100 ms, 1 s"),
            (Log10, Unit::Nanoseconds, 80e3, 700e3, "100 us, 200 us, 500 us"),
            (Log10, Unit::Nanoseconds, 100e3, 200e3, "100 us, 120 us, 140 us, 160 us, 180 us, 200 us"),
            (Log10, Unit::PerSecond, 1.0, 1e6, "1, 10, 100, 1 k, 10 k, 100 k, 1 M"),
            (Log10, Unit::None, 1e-6, 1e2, "1e-6, 1e-5, 0.0001, 0.001, 0.01, 0.1, 1, 10, 100"),
        ] {
            let shown = labels(scale, unit, low, high);
            assert_eq!(shown, expected, "{scale:?} {unit:?} {low} to {high}");
        }
    }

    #[test]
    fn a_vertical_axis_holds_all_values_between_round_ends() {
        for (values, low, high) in [
            (vec![0.0, 7.3], 0.0, 8.0),
            (vec![3.0, 3.0], 0.0, 3.0),
            (vec![0.0, 0.0], 0.0, 1.0),
            (vec![-1.0, 1.0], -1.0, 1.0),
            (vec![-3.0], -3.0, 0.0),
            (vec![f64::NAN, 2.0, f64::INFINITY, 1e200], 0.0, 2.0),
        ] {
            let points = values.iter().map(|value| (0.0, *value)).collect();
            let layers = vec![Layer::Line { name: String::new(), points, dashed: false }];
            let span = vertical_span(&Chart { layers, ..Chart::default() });
            assert!((span.low - low).abs() < 1e-9 && (span.high - high).abs() < 1e-9, "{values:?}: {span:?}");
        }
    }
}
