//! Little's law on a trace: N = X R in the queue and in the device, and what holds throughput back.
//!
//! **Why.** The mean number in a stage is the rate through it times the time spent in it. If that does not hold, events
//! are missing and no other figure can be trusted. If it does, the way rate and time change with depth shows the
//! limiter.
//!
//! **How.** N is counted: each piece from its arrival to its departure, or to the end of the trace if it never departs.
//! X is the departures, R the mean time of pieces with both ends known. So N and X R differ by what the ends of the
//! trace cut, and by lost events; those pieces are counted and named. X and R at each depth come from
//! [`super::levels`]; the verdict is that of sweeps, [`plimsoll_figures::verdict`].
//!
//! Levels leave out pieces that never end. A piece whose dispatch is not in the trace leaves the queue when it is back.
//!
//! **Limits.** [`CLASSES_MAX`] classes and [`DISKS_MAX`] disks; further ones count in the totals only. Time windows are
//! [`super::windows`]: at most 64, and a piece's time counts in R of the window in which it departs. A verdict needs a
//! trace in which the load doubles.
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

use std::collections::BTreeMap;

use plimsoll_figures::units::{csv_field, format_count};
use plimsoll_figures::verdict::Verdict;
use serde::Serialize;

use super::levels::{Level, Levels, Move, remark_of_lost};
use super::order::Ordered;
use super::span::{Item, Span, Trace};
use super::windows::Windows;

/// Version of the JSON form.
pub const SCHEMA: u32 = 1;

/// Most classes with figures of their own.
pub const CLASSES_MAX: usize = 512;

/// Most disks with levels of their own.
pub const DISKS_MAX: usize = 64;

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

/// The law in one stage. Depths are means over the whole time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Law {
    /// N, counted.
    pub depth_mean: f64,
    /// X: departures per second.
    pub per_s: f64,
    /// R: mean time of pieces with both ends known, in ns.
    pub latency_mean_ns: f64,
    /// X times R.
    pub product: f64,
    /// Whether the product is N, within [`AGREES`].
    pub agrees: bool,
    /// Pieces with both ends known.
    pub pieces: u64,
    /// Pieces whose departure is not in the trace.
    pub without_end: u64,
    /// Pieces whose arrival is not in the trace.
    pub without_begin: u64,
    /// What is missing, in words; empty if nothing is, or if N and X R agree.
    pub missing: String,
}

/// The law for a class.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassLaw {
    /// The class's name.
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
    /// X times R.
    pub product: f64,
}

/// N, X and R of both stages in a part of the time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Window {
    /// Begin of the window, in ns after the begin of the trace.
    pub from_ns: u64,
    /// Length of the window within the trace, in ns.
    pub length_ns: u64,
    /// Figures of the queue.
    pub queue: WindowFigures,
    /// Figures of the device.
    pub device: WindowFigures,
}

/// X and R of a disk by depth.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiskLevels {
    /// The disk's name.
    pub disk: String,
    /// Levels of queue and device together.
    pub offered: Vec<Level>,
    /// Levels of the device alone.
    pub in_device: Vec<Level>,
    /// What holds throughput back.
    pub verdict: Verdict,
}

/// The law on a whole trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LittleReport {
    /// Version of the JSON form: [`SCHEMA`].
    pub schema: u32,
    /// Version of the program.
    pub plimsoll: &'static str,
    /// Time from the first to the last time of any piece, in ns.
    pub duration_ns: u64,
    /// The law from submission to dispatch.
    pub queue: Law,
    /// The law from dispatch to completion.
    pub device: Law,
    /// Classes by number.
    pub classes: Vec<ClassLaw>,
    /// The law over time.
    pub windows: Vec<Window>,
    /// Disks by number.
    pub disks: Vec<DiskLevels>,
    /// What could not be read, matched or followed.
    pub lost: Vec<String>,
}

/// The analysis while the trace is read.
#[derive(Default)]
pub struct Little {
    /// Sums of queue and device.
    total: [Sums; 2],
    classes: BTreeMap<u16, [Sums; 2]>,
    windows: [Windows; 2],
    followed: Followed,
    ordered: Ordered<(u16, Move)>,
    begin_ns: Option<u64>,
    end_ns: u64,
}

/// The levels of each disk, which take events in the order of time.
#[derive(Default)]
struct Followed(BTreeMap<u16, Box<Levels>>);

impl Followed {
    fn take(&mut self, disk: u16, time_ns: u64, what: Move) {
        if self.0.len() < DISKS_MAX || self.0.contains_key(&disk) {
            self.0.entry(disk).or_default().take(time_ns, what);
        }
    }
}

impl Little {
    /// Takes the next item of the trace.
    pub fn visit(&mut self, item: &Item) {
        let Item::Span(span) = item else { return };
        let out_ns = span.out_ns();
        if span.is_cancelled && out_ns.is_none() {
            // The trace does not say when the piece was cancelled.
            return;
        }

        let Some(begin_ns) = span.begin_ns() else { return };
        let back_ns = span.completed_ns.or(span.reaped_ns);

        self.begin_ns = Some(self.begin_ns.map_or(begin_ns, |first_ns| first_ns.min(begin_ns)));
        self.end_ns = self.end_ns.max(back_ns.or(out_ns).unwrap_or(begin_ns));
        let has_room = self.classes.len() < CLASSES_MAX || self.classes.contains_key(&span.class);

        for (stage, (came_ns, gone_ns)) in [(span.queued_ns, out_ns), (out_ns, back_ns)].into_iter().enumerate() {
            let of_class = has_room.then(|| self.classes.entry(span.class).or_default());
            for sums in [Some(&mut self.total), of_class].into_iter().flatten() {
                if let Some(sums) = sums.get_mut(stage) {
                    sums.add(came_ns, gone_ns);
                }
            }
            if let (Some(windows), Some(came_ns), Some(gone_ns)) = (self.windows.get_mut(stage), came_ns, gone_ns) {
                windows.stay(came_ns, gone_ns);
                windows.add(gone_ns.max(came_ns), gone_ns.saturating_sub(came_ns) as f64);
            }
        }

        self.follow(span, out_ns, back_ns);
    }

    fn follow(&mut self, span: &Span, out_ns: Option<u64>, back_ns: Option<u64>) {
        let queued_ns = span.queued_ns.filter(|queued_ns| out_ns.is_none_or(|out_ns| *queued_ns <= out_ns));
        let back_ns = back_ns.filter(|back_ns| out_ns.is_some_and(|out_ns| out_ns <= *back_ns));
        let latency_ns = back_ns.zip(out_ns).map(|(back_ns, out_ns)| back_ns - out_ns);
        let out = Move::Out { latency_ns, was_queued: queued_ns.is_some() };
        let back = Move::Back { len_bytes: span.len_bytes };

        // Order of events at the same time: back, queued, out, and back after no time in the device.
        let rank_of_back = if latency_ns == Some(0) { 3 } else { 0 };
        // Without an end the piece would stay in a level for the rest of the trace.
        let gone_ns = span.completed_ns.or(span.reaped_ns).or(span.callback_ns);
        let moves = match (out_ns, back_ns) {
            (Some(_), Some(_)) => [(queued_ns, 1, Move::Queued), (out_ns, 2, out), (back_ns, rank_of_back, back)],
            (None, _) if gone_ns.is_some() => {
                let gone_ns = gone_ns.max(queued_ns).filter(|_| queued_ns.is_some());
                [(queued_ns, 1, Move::Queued), (gone_ns, 2, Move::Lost), (None, 0, back)]
            }
            _ => [(None, 0, back); 3],
        };

        let followed = &mut self.followed;
        for (time_ns, rank, what) in moves {
            if let Some(time_ns) = time_ns {
                let to = &mut |time_ns, (disk, what)| followed.take(disk, time_ns, what);
                self.ordered.push(time_ns, rank, (span.disk, what), to);
            }
        }
    }

    /// Ends the trace and returns the result.
    #[must_use]
    pub fn finish(mut self, trace: &Trace) -> LittleReport {
        let followed = &mut self.followed;
        self.ordered.finish(&mut |time_ns, (disk, what)| followed.take(disk, time_ns, what));
        let begin_ns = self.begin_ns.unwrap_or(0);
        let range = (begin_ns, self.end_ns.max(begin_ns));

        let mut lost = trace.lost.clone();
        if self.ordered.late() > 0 {
            let late = format_count(self.ordered.late());
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
        let disks = self.followed.0.into_iter().map(disk).collect();

        LittleReport {
            schema: SCHEMA,
            plimsoll: env!("CARGO_PKG_VERSION"),
            duration_ns: range.1 - range.0,
            queue,
            device,
            classes: self.classes.iter().map(class).collect(),
            windows: windows(&self.windows, range),
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

fn laws([queue, device]: &[Sums; 2], range: (u64, u64)) -> [Law; 2] {
    [queue.law(range, "queued", "dispatched"), device.law(range, "dispatched", "completed")]
}

/// Returns the windows of both stages, on the grid of the longer parts.
fn windows(windows: &[Windows; 2], (begin_ns, end_ns): (u64, u64)) -> Vec<Window> {
    let [mut queue, mut device] = windows.clone();
    let length_ns = queue.length_ns().max(device.length_ns());
    queue.lengthen(length_ns);
    device.lengthen(length_ns);

    let at = |windows: &Windows, from_ns: u64, within_ns: f64| {
        let part = windows.parts().into_iter().find(|(begin_ns, _)| *begin_ns == from_ns).unwrap_or_default().1;
        let per_s = part.count as f64 * 1e9 / within_ns;
        let latency_mean_ns = part.sum / part.count.max(1) as f64;
        WindowFigures {
            depth_mean: part.stay_ns / within_ns,
            per_s,
            latency_mean_ns,
            product: per_s * latency_mean_ns / 1e9,
        }
    };

    let mut begins: Vec<u64> = queue.parts().iter().chain(&device.parts()).map(|(from_ns, _)| *from_ns).collect();
    begins.sort_unstable();
    begins.dedup();

    let window = |from_ns: u64| {
        let until_ns = from_ns.saturating_add(length_ns).min(end_ns);
        let within_ns = until_ns.saturating_sub(from_ns.max(begin_ns));
        let seconds = within_ns.max(1) as f64;
        Window {
            from_ns: from_ns.saturating_sub(begin_ns),
            length_ns: within_ns,
            queue: at(&queue, from_ns, seconds),
            device: at(&device, from_ns, seconds),
        }
    };
    begins.into_iter().map(window).filter(|window| window.length_ns > 0).collect()
}

impl LittleReport {
    /// Returns a CSV line for each disk, scale (`offered` or `device`) and level.
    #[must_use]
    pub fn to_csv(&self) -> String {
        let head = "disk,scale,depth_min,depth_max,depth_mean,time_part,ends,ends_per_s,bytes_per_s,latency_mean_ns,\
                    in_device";
        let mut text = format!("{head}\n");
        for disk in &self.disks {
            for (scale, levels) in [("offered", &disk.offered), ("device", &disk.in_device)] {
                for level in levels {
                    let Level { depth_min, depth_max, depth_mean, time_part, ends, ends_per_s, .. } = level;
                    let name = csv_field(&disk.disk);
                    text.push_str(&format!(
                        "{name},{scale},{depth_min},{depth_max},{depth_mean:.3},{time_part:.6},{ends},{ends_per_s:.1},\
                         {:.1},{:.1},{:.3}\n",
                        level.bytes_per_s, level.latency_mean_ns, level.in_device
                    ));
                }
            }
        }
        text
    }
}

#[cfg(test)]
mod tests;
