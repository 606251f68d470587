//! Pictures over time: throughput, capacity use beside `%util`, waiting, queues, and the parts of a group's members.
//!
//! # Why
//! A picture of the parts of a group shows at once a hot disk that wanders; no table of means does.
//!
//! # How it works
//! A [`Series`] collects [`Observed`] one after the other. It holds fewer than [`SAMPLES_MAX`] samples: at that number,
//! each pair of neighbours becomes its mean, and from then on a sample takes twice as many intervals. So a series
//! covers the whole time at a coarser grain, in bounded memory. [`Series::picture`] draws one of [`PICTURES`]. Of many
//! devices it draws the busiest, and adds a note.
//!
//! # Limits
//! Means smooth peaks that are shorter than a sample. Time is that of the intervals, one after the other: pauses
//! between them do not show, and an interval of unknown length counts as one second. Beyond [`CURVES_MAX`] curves
//! (of hundreds of devices) new ones are not collected. Intervals since the start of the host are left out.
//!
//! # Example
//! ```
//! use plimsoll_observe::stat::Observed;
//! use plimsoll_observe::stat::pictures::{PICTURES, Series};
//! let mut series = Series::default();
//! series.push(&Observed::default());
//! assert!(series.picture(PICTURES[0]).is_empty());
//! ```

use std::collections::BTreeMap;

use plimsoll_show::plot::{Axis, Chart, Layer, Unit};

use super::{Judged, Observed};

/// Names of the pictures: throughput of each device; U and `%util`, S; queue; parts and effective devices of groups.
pub const PICTURES: [&str; 4] = ["throughput", "capacity", "queue", "groups"];

/// Number of samples at which each two become one. Even.
pub const SAMPLES_MAX: usize = 512;

/// Most curves collected; a device has five.
pub const CURVES_MAX: usize = 4096;

/// Most devices in a chart with one line for each; the legend names as many.
const DEVICES_MAX: usize = 12;
/// Most devices in a chart with two lines for each.
const DEVICES_OF_TWO_MAX: usize = 6;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Curve {
    Device(Figure, String),
    Share { group: String, device: String },
    Effective { group: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Figure {
    BytesPerSecond,
    CapacityUse,
    Saturation,
    Util,
    Queue,
}

impl Figure {
    const ALL: [Figure; 5] =
        [Figure::BytesPerSecond, Figure::CapacityUse, Figure::Saturation, Figure::Util, Figure::Queue];

    fn of(self, judged: &Judged) -> Option<f64> {
        let columns = &judged.interval.columns;
        let value = match self {
            Figure::BytesPerSecond => columns.moved_kib_per_s().map(|kib| kib * 1024.0),
            Figure::CapacityUse => judged.capacity_use,
            Figure::Saturation => judged.saturation,
            Figure::Util => columns.util_percent.map(|percent| percent / 100.0),
            Figure::Queue => columns.queue,
        };
        value.filter(|value| value.is_finite())
    }
}

/// The values of all curves over a period, by the index of the curve; NaN where a curve has none.
#[derive(Clone, Debug, Default)]
struct Sample {
    begin_s: f64,
    duration_s: f64,
    values: Vec<f32>,
}

impl Sample {
    /// Returns both as one sample: means of the known values, weighted by time.
    fn with(&self, next: &Sample) -> Sample {
        let duration_s = self.duration_s + next.duration_s;
        let part = if duration_s > 0.0 { (next.duration_s / duration_s) as f32 } else { 0.5 };
        let value = |sample: &Sample, index: usize| sample.values.get(index).copied().filter(|value| !value.is_nan());
        let count = self.values.len().max(next.values.len());
        let mean = |index| match (value(self, index), value(next, index)) {
            (Some(a), Some(b)) => a + (b - a) * part,
            (a, b) => a.or(b).unwrap_or(f32::NAN),
        };
        Sample { begin_s: self.begin_s, duration_s, values: (0..count).map(mean).collect() }
    }

    fn middle_ns(&self) -> f64 {
        (self.begin_s + self.duration_s / 2.0) * 1e9
    }
}

/// A series of observations of any length, in bounded memory.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// The index of each curve in the values of a sample.
    curves: BTreeMap<Curve, usize>,
    samples: Vec<Sample>,
    /// The sample that is being gathered, and its number of intervals so far.
    open: Option<(Sample, usize)>,
    /// A sample takes two to the power of this intervals.
    coarseness: u32,
    end_s: f64,
}

impl Series {
    /// Adds an interval.
    pub fn push(&mut self, observed: &Observed) {
        if observed.is_since_boot || observed.may_be_since_boot {
            return;
        }
        let duration_s = observed.duration_s.filter(|seconds| *seconds > 0.0 && seconds.is_finite()).unwrap_or(1.0);
        let mut sample = Sample { begin_s: self.end_s, duration_s, values: Vec::new() };
        self.end_s += duration_s;

        for judged in &observed.devices {
            for figure in Figure::ALL {
                let curve = Curve::Device(figure, judged.interval.device.clone());
                self.set(&mut sample, curve, figure.of(judged));
            }
        }
        for group in &observed.groups {
            let name = || group.group.clone();
            self.set(&mut sample, Curve::Effective { group: name() }, group.effective_devices);
            for part in group.parts.iter().filter(|_| group.effective_devices.is_some()) {
                let curve = Curve::Share { group: name(), device: part.device.clone() };
                self.set(&mut sample, curve, Some(part.bytes_share));
            }
        }
        self.gather(sample);
    }

    fn set(&mut self, sample: &mut Sample, curve: Curve, value: Option<f64>) {
        let Some(value) = value else { return };
        let count = self.curves.len();
        let index = match self.curves.get(&curve) {
            Some(index) => *index,
            None if count < CURVES_MAX => *self.curves.entry(curve).or_insert(count),
            None => return,
        };
        if sample.values.len() <= index {
            sample.values.resize(index + 1, f32::NAN);
        }
        if let Some(place) = sample.values.get_mut(index) {
            *place = value as f32;
        }
    }

    fn gather(&mut self, sample: Sample) {
        let (sample, count) = match self.open.take() {
            Some((open, count)) => (open.with(&sample), count + 1),
            None => (sample, 1),
        };
        if count < 1usize << self.coarseness.min(40) {
            self.open = Some((sample, count));
            return;
        }
        self.samples.push(sample);
        if self.samples.len() >= SAMPLES_MAX {
            let pairs = self.samples.chunks(2);
            self.samples = pairs.filter_map(|pair| pair.iter().cloned().reduce(|a, b| a.with(&b))).collect();
            self.coarseness += 1;
        }
    }

    /// Draws one of [`PICTURES`] as charts; none for another name, or without any figures for it.
    pub fn picture(&self, name: &str) -> Vec<Chart> {
        let waits = "part of their time that requests wait";
        let charts = match name {
            "throughput" => {
                let title = "Throughput of each device";
                vec![self.by_device(title, "read and written", Unit::BytesPerSecond, Figure::BytesPerSecond)]
            }
            "capacity" => {
                vec![self.capacity(), self.by_device("Queue saturation (S)", waits, Unit::Fraction, Figure::Saturation)]
            }
            "queue" => {
                vec![self.by_device("Requests under way", "requests under way (aqu-sz)", Unit::None, Figure::Queue)]
            }
            "groups" => self.groups(),
            _ => Vec::new(),
        };
        let has_lines = |chart: &Chart| chart.layers.iter().any(|layer| matches!(layer, Layer::Line { .. }));
        charts.into_iter().filter(has_lines).collect()
    }

    fn all_samples(&self) -> impl Iterator<Item = &Sample> {
        self.samples.iter().chain(self.open.as_ref().map(|(sample, _)| sample))
    }

    /// Returns the points of a curve; none for a curve that was never seen.
    fn points(&self, curve: &Curve) -> Vec<(f64, f64)> {
        let Some(index) = self.curves.get(curve) else { return Vec::new() };
        let known = self.all_samples().filter_map(|sample| {
            let value = sample.values.get(*index).copied().filter(|value| !value.is_nan())?;
            Some((sample.middle_ns(), f64::from(value)))
        });
        known.collect()
    }

    fn line(&self, name: String, curve: &Curve, dashed: bool) -> Option<Layer> {
        let points = self.points(curve);
        (!points.is_empty()).then_some(Layer::Line { name, points, dashed })
    }

    /// Returns at most `count` devices, those that moved the most bytes, and a note if there are more. Devices that were
    /// always idle are left out, unless all were. The order is that of names, as in pictures of groups, so a device has
    /// one colour in several pictures.
    fn busiest(&self, count: usize) -> (Vec<&str>, Option<String>) {
        let total = |device: &str, figure: Figure| {
            let curve = Curve::Device(figure, device.to_owned());
            self.points(&curve).into_iter().map(|(_, value)| value).sum::<f64>()
        };
        let names = self.curves.keys().filter_map(|curve| match curve {
            Curve::Device(_, device) => Some(device.as_str()),
            _ => None,
        });
        let mut names: Vec<&str> = names.collect();
        names.sort_unstable();
        names.dedup();

        let totals = |name| (total(name, Figure::BytesPerSecond), total(name, Figure::Queue), name);
        let mut devices: Vec<(f64, f64, &str)> = names.into_iter().map(totals).collect();
        // A hung device moves nothing, but has a queue.
        let is_active = |(bytes, queue, _): &(f64, f64, &str)| *bytes > 0.0 || *queue > 0.0;
        if devices.iter().any(is_active) {
            devices.retain(is_active);
        }
        devices.sort_by(|(a, ..), (b, ..)| b.total_cmp(a));
        let note = (devices.len() > count).then(|| format!("The {count} busiest of {} devices.", devices.len()));
        let mut shown: Vec<&str> = devices.into_iter().take(count).map(|(.., name)| name).collect();
        shown.sort_unstable();
        (shown, note)
    }

    /// Draws one line for each of the busiest devices.
    fn by_device(&self, title: &str, label: &str, unit: Unit, figure: Figure) -> Chart {
        let (devices, note) = self.busiest(DEVICES_MAX);
        let line = |device: &str| self.line(device.to_owned(), &Curve::Device(figure, device.to_owned()), false);
        let layers = devices.into_iter().filter_map(line).collect();
        Chart { title: title.to_owned(), x: time(), y: Axis::linear(label, unit), layers, note }
    }

    fn capacity(&self) -> Chart {
        let (devices, busiest) = self.busiest(DEVICES_OF_TWO_MAX);
        let layers = devices.into_iter().flat_map(|device| {
            let curve = |figure| Curve::Device(figure, device.to_owned());
            let capacity_use = self.line(format!("{device} U"), &curve(Figure::CapacityUse), false);
            let util = self.line(format!("{device} %util (misleads)"), &curve(Figure::Util), true);
            [capacity_use, util].into_iter().flatten()
        });
        let note = "U is the part of what a device can do that is done. %util only says for which part of the time at \
                    least one request was under way: on devices that serve many at once it is no measure of how full \
                    they are.";
        Chart {
            title: "Capacity use (U), and %util, which misleads".to_owned(),
            x: time(),
            y: Axis::linear("part of capacity; part of time", Unit::Fraction),
            layers: layers.collect(),
            note: Some(busiest.map_or(note.to_owned(), |busiest| format!("{busiest} {note}"))),
        }
    }

    /// Draws for each group the parts of its members, and its effective devices.
    fn groups(&self) -> Vec<Chart> {
        let groups = self.curves.keys().filter_map(|curve| match curve {
            Curve::Effective { group } => Some((group, curve)),
            _ => None,
        });

        let charts = groups.flat_map(|(name, effective)| {
            let members: Vec<(&String, &Curve)> = self
                .curves
                .keys()
                .filter_map(|curve| match curve {
                    Curve::Share { group, device } if group == name => Some((device, curve)),
                    _ => None,
                })
                .collect();
            let lines = members.iter().filter_map(|(device, curve)| self.line((*device).clone(), curve, false));
            let count = members.len();
            let equal = Layer::HorizontalMark { y: 1.0 / count.max(1) as f64, label: "equal parts".to_owned() };
            let all = Layer::HorizontalMark { y: count as f64, label: format!("all {count}") };

            let chart =
                |title: &str, y: Axis, layers: Vec<Layer>| Chart::new(format!("{name}: {title}"), time(), y, layers);

            let effective = self.line("effective devices".to_owned(), effective, false);
            [
                chart(
                    "part of each device of the bytes moved",
                    Axis::linear("part of the group's bytes", Unit::Fraction),
                    lines.chain([equal]).collect(),
                ),
                chart(
                    "how many devices do the work",
                    Axis::linear("effective devices", Unit::None),
                    effective.into_iter().chain([all]).collect(),
                ),
            ]
        });

        charts.collect()
    }
}

fn time() -> Axis {
    Axis::linear("time", Unit::Nanoseconds)
}

#[cfg(test)]
mod tests;
