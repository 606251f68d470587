//! Little's law on a trace: N = X R in the queue and in the device, and what limits throughput.
//!
//! **Why.** The mean number in a stage is the rate through it times the time spent in it. If that does not hold, events
//! are missing and no other figure can be trusted. If it does, the way rate and time change with depth shows the
//! limiter.
//!
//! **How.** N is counted: each piece from its arrival to its departure, or to the end of the trace if it never departs.
//! X is the departures, R the mean time of pieces with both ends known. So N and X R differ by pieces that the ends of
//! the trace cut, and by lost events; those are counted and named. X and R at each depth come from [`super::levels`];
//! the verdict is that of sweeps, [`plimsoll_figures::verdict`], or unclear if it depends on a part of the time.
//!
//! Time windows count the same pieces as N. Levels leave out pieces that never end. A piece whose dispatch is not in
//! the trace leaves the queue when it is back.
//!
//! **Limits.** [`CLASSES_MAX`] classes and [`super::levels::DISKS_MAX`] disks; further ones count in the totals only.
//! Time windows are at most 64 (module `parts`), and a piece's time counts in R of the window in which it departs. A
//! verdict needs a trace in which the load doubles.
//!
//! **Example.** Two pieces of 1 ms in the device, one after the other, so that there is always one:
//! ```
//! use plimsoll_observe::trace::little::Little;
//! use plimsoll_observe::trace::read_from;
//!
//! let text = "8,0 1 1 0.000000000 9 Q R 2048 + 8 [db]\n8,0 1 2 0.000000000 9 D R 2048 + 8 [db]\n\
//!             8,0 1 3 0.001000000 0 C R 2048 + 8 [0]\n8,0 1 4 0.001000000 9 Q R 4096 + 8 [db]\n\
//!             8,0 1 5 0.001000000 9 D R 4096 + 8 [db]\n8,0 1 6 0.002000000 0 C R 4096 + 8 [0]\n";
//! let mut little = Little::default();
//! let trace = read_from(text.as_bytes(), &mut |item| little.visit(&item))?;
//! let device = little.finish(&trace).device;
//! assert_eq!((device.depth_mean, device.per_s, device.latency_mean_ns), (1.0, 1000.0, 1e6));
//! assert!(device.agrees && device.product == 1.0);
//! # Ok::<(), plimsoll_observe::trace::TraceError>(())
//! ```

use std::cmp::Ordering;
use std::collections::BTreeMap;

use plimsoll_figures::units::format_count;
use plimsoll_figures::verdict::Verdict;
use plimsoll_show::table::{Column, csv, fixed};
use serde::Serialize;

use super::levels::{DisksLevels, Level, Levels, remark_of_lost};
use super::parts::Windows;
use super::span::{Covered, Item, Stay, Trace};
use crate::entry_within;

pub const SCHEMA: u32 = 1;

/// Most classes with figures of their own.
pub const CLASSES_MAX: usize = 512;

/// Largest difference at which N and X R agree, as a part of the larger.
pub const AGREES: f64 = 0.05;

/// Pieces of one stage.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    /// Pieces with both ends known.
    through: u64,
    latency_ns: u128,
    latency_max_ns: u64,
    /// Pieces that arrived and never departed, and the sum of their arrivals.
    not_gone: u64,
    came_ns: u128,
    /// Pieces that departed and never arrived, and the sum of their departures.
    not_come: u64,
    gone_ns: u128,
}

/// Over time, pieces of one stage whose departure or whose arrival is not in the trace. Their values are the times of
/// the known ends after `base_ns`, so that sums stay precise.
#[derive(Clone, Debug, Default)]
struct Open {
    base_ns: Option<u64>,
    came: Windows,
    gone: Windows,
}

/// The law in one stage. Depths are means over the whole time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Law {
    /// N, counted.
    pub depth_mean: f64,
    /// The part of N that is known for certain: of pieces with both ends known, as `stages` counts.
    pub depth_known: f64,
    /// X: departures per second.
    pub per_s: f64,
    /// R: mean time of pieces with both ends known, in ns.
    pub latency_mean_ns: f64,
    /// Rate times latency.
    pub product: f64,
    /// Whether the product is N, within [`AGREES`].
    pub agrees: bool,
    /// Pieces with both ends known.
    pub pieces: u64,
    /// Pieces whose departure is not in the trace.
    pub without_end: u64,
    /// Pieces whose arrival is not in the trace.
    pub without_begin: u64,
    /// The missing events in words; empty if there are none, or if N and X R agree.
    pub missing: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassLaw {
    pub class: String,
    /// The law from submission to dispatch.
    pub queue: Law,
    /// The law from dispatch to completion.
    pub device: Law,
}

/// N, X and R in a part of the time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WindowFigures {
    /// N, counted.
    pub depth_mean: f64,
    /// X: departures per second.
    pub per_s: f64,
    /// R: mean time of the pieces that departed, in ns.
    pub latency_mean_ns: f64,
    /// Rate times latency.
    pub product: f64,
}

/// N, X and R of both stages in a part of the time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Window {
    pub from_ns: u64,
    /// Length of the window within the trace, in ns.
    pub length_ns: u64,
    pub queue: WindowFigures,
    pub device: WindowFigures,
}

/// X and R of a disk by depth.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiskLevels {
    pub disk: String,
    /// Levels of queue and device together.
    pub offered: Vec<Level>,
    /// Levels of the device alone.
    pub in_device: Vec<Level>,
    pub verdict: Verdict,
}

/// The law on a whole trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LittleReport {
    pub schema: u32,
    pub plimsoll: &'static str,
    pub duration_ns: u64,
    /// The law from submission to dispatch.
    pub queue: Law,
    /// The law from dispatch to completion.
    pub device: Law,
    pub classes: Vec<ClassLaw>,
    pub windows: Vec<Window>,
    pub disks: Vec<DiskLevels>,
    pub lost: Vec<String>,
}

/// The analysis while the trace is read.
#[derive(Default)]
pub struct Little {
    /// Sums of queue and device.
    total: [Sums; 2],
    classes: BTreeMap<u16, [Sums; 2]>,
    windows: [Windows; 2],
    open: [Open; 2],
    levels: DisksLevels,
    covered: Covered,
}

impl Little {
    pub fn visit(&mut self, item: &Item) {
        let Item::Span(span) = item else { return };
        if span.is_cancelled_in_queue() || span.begin_ns().is_none() {
            return;
        }

        self.covered.add(span);
        for (stage, Stay { came_ns, gone_ns }) in [span.in_queue(), span.in_device()].into_iter().enumerate() {
            let of_class = entry_within(&mut self.classes, span.class, CLASSES_MAX);
            for sums in [Some(&mut self.total), of_class].into_iter().flatten() {
                if let Some(sums) = sums.get_mut(stage) {
                    sums.add(came_ns, gone_ns);
                }
            }
            if let (Some(windows), Some(came_ns), Some(gone_ns)) = (self.windows.get_mut(stage), came_ns, gone_ns) {
                windows.stay(came_ns, gone_ns);
                windows.add(gone_ns.max(came_ns), gone_ns.saturating_sub(came_ns) as f64);
            }
            if let Some(open) = self.open.get_mut(stage) {
                open.add(came_ns, gone_ns);
            }
        }

        self.levels.visit(span);
    }

    pub fn finish(self, trace: &Trace) -> LittleReport {
        let (levels, late) = self.levels.finish();
        let range = self.covered.range_ns();

        let mut lost = trace.lost.clone();
        if late > 0 {
            let late = format_count(late);
            lost.push(format!("{late} event(s) too far out of their order: levels of depth are not exact"));
        }

        let [queue, device] = laws(&self.total, range);
        let class = |(number, sums): (&u16, &[Sums; 2])| {
            let [queue, device] = laws(sums, range);
            ClassLaw { class: trace.class_name(*number), queue, device }
        };
        let disk = |(number, levels): (u16, Box<Levels>)| {
            let mut verdict = levels.verdict();
            verdict.evidence.extend(remark_of_lost(&lost));
            let disk = trace.disk_name(number);
            DiskLevels { disk, offered: levels.offered(), in_device: levels.in_device(), verdict }
        };
        let disks = levels.into_iter().map(disk).collect();

        LittleReport {
            schema: SCHEMA,
            plimsoll: env!("CARGO_PKG_VERSION"),
            duration_ns: range.1 - range.0,
            queue,
            device,
            classes: self.classes.iter().map(class).collect(),
            windows: windows(&self.windows, &self.open, range),
            disks,
            lost,
        }
    }
}

impl Sums {
    fn add(&mut self, came_ns: Option<u64>, gone_ns: Option<u64>) {
        match (came_ns, gone_ns) {
            (Some(came_ns), Some(gone_ns)) => {
                let latency_ns = gone_ns.saturating_sub(came_ns);
                self.through += 1;
                self.latency_ns += u128::from(latency_ns);
                self.latency_max_ns = self.latency_max_ns.max(latency_ns);
            }
            (Some(came_ns), None) => {
                self.not_gone += 1;
                self.came_ns += u128::from(came_ns);
            }
            (None, Some(gone_ns)) => {
                self.not_come += 1;
                self.gone_ns += u128::from(gone_ns);
            }
            (None, None) => {}
        }
    }

    /// Returns the law for the time from begin to end; `came` and `gone` name the events of arrival and departure.
    fn law(&self, (begin_ns, end_ns): (u64, u64), came: &str, gone: &str) -> Law {
        let duration_ns = (end_ns - begin_ns).max(1) as f64;
        let open_ns = (u128::from(self.not_gone) * u128::from(end_ns)).saturating_sub(self.came_ns) as f64;
        let before_ns = self.gone_ns.saturating_sub(u128::from(self.not_come) * u128::from(begin_ns)) as f64;
        let depth_mean = (self.latency_ns as f64 + open_ns + before_ns) / duration_ns;
        let per_s = (self.through + self.not_come) as f64 * 1e9 / duration_ns;
        let latency_mean_ns = self.latency_ns as f64 / self.through.max(1) as f64;
        let product = per_s * latency_mean_ns / 1e9;
        let agrees = (depth_mean - product).abs() <= AGREES * depth_mean.max(product);

        let mut missing = Vec::new();
        let longest_ns = self.latency_max_ns as f64;
        let mut miss = |count: u64, sum_ns: f64, event: &str, edge: &str| {
            if count > 0 && !agrees {
                // On average these waited longer than any complete piece: events are lost.
                let is_lost = sum_ns / count as f64 > longest_ns;
                let why = if is_lost { "events are lost" } else { edge };
                missing.push(format!("{} piece(s) without `{event}`: {why}", format_count(count)));
            }
        };
        miss(self.not_gone, open_ns, gone, "the trace ends before");
        miss(self.not_come, before_ns, came, "the trace begins after");

        Law {
            depth_mean,
            depth_known: self.latency_ns as f64 / duration_ns,
            per_s,
            latency_mean_ns,
            product,
            agrees,
            pieces: self.through,
            without_end: self.not_gone,
            without_begin: self.not_come,
            missing: missing.join("; "),
        }
    }
}

impl Open {
    /// Adds a piece with one known end; does nothing for others.
    fn add(&mut self, came_ns: Option<u64>, gone_ns: Option<u64>) {
        let (windows, at_ns) = match (came_ns, gone_ns) {
            (Some(came_ns), None) => (&mut self.came, came_ns),
            (None, Some(gone_ns)) => (&mut self.gone, gone_ns),
            _ => return,
        };
        let base_ns = *self.base_ns.get_or_insert(at_ns);
        windows.add(at_ns, difference(at_ns, base_ns));
    }

    /// Returns the departures in the part that begins at `part_ns`, and the time that pieces spent there between
    /// `from_ns` and `until_ns`, in ns. If the arrival is missing, this counts from the begin of the trace; if the
    /// departure is, to its end.
    fn within(&self, part_ns: u64, (from_ns, until_ns): (u64, u64)) -> (f64, f64) {
        let base_ns = self.base_ns.unwrap_or(0);
        let whole_ns = difference(until_ns, from_ns);
        let (mut departures, mut stay_ns) = (0.0, 0.0);

        for (at_ns, [count, sum_ns, _]) in self.came.all() {
            stay_ns += match at_ns.cmp(&part_ns) {
                Ordering::Less => count * whole_ns,
                Ordering::Equal => count * difference(until_ns, base_ns) - sum_ns,
                Ordering::Greater => 0.0,
            };
        }

        for (at_ns, [count, sum_ns, _]) in self.gone.all() {
            stay_ns += match at_ns.cmp(&part_ns) {
                Ordering::Less => 0.0,
                Ordering::Equal => sum_ns - count * difference(from_ns, base_ns),
                Ordering::Greater => count * whole_ns,
            };
            departures += if at_ns == part_ns { count } else { 0.0 };
        }
        (departures, stay_ns)
    }
}

fn difference(later_ns: u64, earlier_ns: u64) -> f64 {
    (i128::from(later_ns) - i128::from(earlier_ns)) as f64
}

fn laws([queue, device]: &[Sums; 2], range: (u64, u64)) -> [Law; 2] {
    [queue.law(range, "queued", "dispatched"), device.law(range, "dispatched", "completed")]
}

/// Returns the windows of both stages, on the grid of the longest parts. Pieces count as in the law of the whole trace.
fn windows(windows: &[Windows; 2], open: &[Open; 2], (begin_ns, end_ns): (u64, u64)) -> Vec<Window> {
    let (mut windows, mut open) = (windows.clone(), open.clone());
    if open.iter().any(|open| open.base_ns.is_some()) {
        // A piece with one end missing also counts in parts without any other piece: make them.
        for windows in &mut windows {
            windows.at(begin_ns);
            windows.at(end_ns);
        }
    }
    let mut all: Vec<&mut Windows> = windows.iter_mut().collect();
    all.extend(open.iter_mut().flat_map(|open| [&mut open.came, &mut open.gone]));
    let length_ns = all.iter().map(|windows| windows.length_ns()).max().unwrap_or(1);
    all.into_iter().for_each(|windows| windows.lengthen(length_ns));

    let parts = windows.map(|windows| windows.all());
    let at = |parts: &[(u64, [f64; 3])], open: &Open, part_ns: u64, range: (u64, u64)| {
        let part = parts.iter().find(|(begin_ns, _)| *begin_ns == part_ns);
        let [count, sum_ns, stay_ns] = part.map_or([0.0; 3], |(_, part)| *part);
        let (open_count, open_ns) = open.within(part_ns, range);
        let within_ns = difference(range.1, range.0).max(1.0);
        let per_s = (count + open_count) * 1e9 / within_ns;
        let latency_mean_ns = sum_ns / count.max(1.0);
        WindowFigures {
            depth_mean: (stay_ns + open_ns) / within_ns,
            per_s,
            latency_mean_ns,
            product: per_s * latency_mean_ns / 1e9,
        }
    };

    let mut begins: Vec<u64> = parts.iter().flatten().map(|(from_ns, _)| *from_ns).collect();
    begins.sort_unstable();
    begins.dedup();

    let window = |part_ns: u64| {
        let range = (part_ns.max(begin_ns), part_ns.saturating_add(length_ns).min(end_ns));
        // A part may begin where the trace ends.
        (range.0 < range.1).then(|| Window {
            from_ns: part_ns.saturating_sub(begin_ns),
            length_ns: range.1 - range.0,
            queue: at(&parts[0], &open[0], part_ns, range),
            device: at(&parts[1], &open[1], part_ns, range),
        })
    };
    begins.into_iter().filter_map(window).collect()
}

impl LittleReport {
    /// Returns a CSV line for each disk, scale (`offered` or `device`) and level.
    pub fn to_csv(&self) -> String {
        let columns: &[Column<(&str, &str, &Level)>] = &[
            ("disk", |it| it.0.to_owned()),
            ("scale", |it| it.1.to_owned()),
            ("depth_min", |it| it.2.depth_min.to_string()),
            ("depth_max", |it| it.2.depth_max.to_string()),
            ("depth_mean", |it| fixed(it.2.depth_mean, 3)),
            ("time_part", |it| fixed(it.2.time_part, 6)),
            ("ends", |it| it.2.ends.to_string()),
            ("ends_per_s", |it| fixed(it.2.ends_per_s, 1)),
            ("bytes_per_s", |it| fixed(it.2.bytes_per_s, 1)),
            ("latency_mean_ns", |it| fixed(it.2.latency_mean_ns, 1)),
            ("in_device", |it| fixed(it.2.in_device, 3)),
        ];

        let rows = self.disks.iter().flat_map(|disk| {
            let scales = [("offered", &disk.offered), ("device", &disk.in_device)];
            scales
                .into_iter()
                .flat_map(move |(scale, levels)| levels.iter().map(move |level| (&*disk.disk, scale, level)))
        });
        csv(&rows.collect::<Vec<_>>(), columns)
    }
}

#[cfg(test)]
mod tests;
