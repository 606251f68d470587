//! Throughput and latency at each depth: X(N) and R(N) of a disk, from one trace.
//!
//! **Why.** If throughput stays flat while the load grows, the limit is in the disk if the latency in the disk grows,
//! and above the disk otherwise. Depth changes within a trace, so one trace can show both.
//!
//! **How.** [`Levels`] follows the depth event by event. Time and the depth in the device count at the level of that
//! moment. Ends and bytes count at the level that held before: a shard, or an interrupt, completes many pieces at once,
//! and the levels passed meanwhile last no time. X is ends by time. A piece's latency counts at the level at which it
//! goes out, itself included. There are two scales: *offered* (queue and device together), which is the parallelism of
//! a closed loop, and *in the device*. Levels are 1, 2, 3-4, 5-8 and so on. [`plimsoll_figures::verdict`] judges;
//! `doubt.rs` repeats that on parts of the time, whose rates also give each level its interval. A level whose interval
//! is too wide, or not known, is left out of the curve, and named. A fall counts only if Little's law holds at the
//! level at which throughput fell (otherwise the load comes in bursts), and if it is a quarter or more: each level
//! occurred once, and the disk may have been slower just then.
//!
//! **Limits.** Depths up to 2^20. Levels with less than 2 % of the time or fewer than [`ENDS_MIN`] ends are shown, but
//! not judged.
//!
//! **Example.** One piece of 4 KiB alone, 100 us in the device: 10,000 per second.
//! ```
//! use plimsoll_observe::trace::levels::{Levels, Move};
//! let mut levels = Levels::default();
//! levels.take(0, Move::Queued);
//! levels.take(0, Move::Out { latency_ns: 100_000, was_queued: true });
//! levels.take(100_000, Move::Back { len_bytes: 4096 });
//! let offered = &levels.offered()[0];
//! assert_eq!((offered.depth_max, offered.ends, offered.latency_mean_ns), (1, 1, 100_000.0));
//! assert_eq!(offered.ends_per_s, 10_000.0);
//! ```

use std::collections::BTreeMap;

use plimsoll_figures::series::student_t;
use plimsoll_figures::verdict::{CurvePoint, Kind, Verdict, verdict};
use serde::Serialize;

use super::doubt::{Doubt, RECORD_AGAIN};
use super::order::Ordered;
use super::parts::{Join, Parts};
use super::span::Span;
use crate::entry_within;

/// Most disks with levels of their own.
pub const DISKS_MAX: usize = 1024;

/// Fewest ends of a level that is judged.
pub const ENDS_MIN: u64 = 20;

/// Least part of the time of a level that is judged.
const TIME_PART_MIN: f64 = 0.02;

/// Longest time between completions of one batch, which a shard records one after the other.
const TOGETHER_NS: u64 = 2_000;

/// Most slices of the time. A verdict is computed again without each.
pub(super) const SLICES: usize = 32;

/// Half of a level's interval, in percent of its throughput, above which the curve leaves the level out: as for sweeps.
const VAGUE_PCT: f64 = 25.0;

/// Least rate times latency of a steady level, as a part of its depth in the device.
const STEADY_LEAST: f64 = 0.8;

/// Least effective number of slices of a level whose interval is known: two, not of quite the same time.
const SLICES_MIN: f64 = 1.9;

/// Number of levels: 0, 1, 2, 3-4, ... up to 2^20.
const LEVELS: usize = 22;

/// An event of a piece.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Move {
    Queued,
    /// The piece is submitted to the device.
    Out {
        latency_ns: u64,
        /// Whether the trace has its arrival in the queue.
        was_queued: bool,
    },
    /// The piece leaves the queue, and its further course is not in the trace.
    Lost,
    /// The piece comes back.
    Back {
        len_bytes: u32,
    },
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    time_ns: f64,
    /// Depth times time.
    depth_ns: f64,
    device_ns: f64,
    ends: u64,
    bytes: f64,
    outs: u64,
    latency_ns: f64,
}

/// The levels of the offered depth, and of the depth in the device.
type Scales = [[Sums; LEVELS]; 2];

impl Join for Sums {
    fn join(&mut self, other: &Sums) {
        self.time_ns += other.time_ns;
        self.depth_ns += other.depth_ns;
        self.device_ns += other.device_ns;
        self.ends += other.ends;
        self.bytes += other.bytes;
        self.outs += other.outs;
        self.latency_ns += other.latency_ns;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Level {
    pub depth_min: u64,
    pub depth_max: u64,
    pub depth_mean: f64,
    /// Part of the time at this level, 0 to 1.
    pub time_part: f64,
    pub ends: u64,
    /// Pieces that came back per second: X.
    pub ends_per_s: f64,
    pub bytes_per_s: f64,
    /// Mean time in the device of pieces that went out at this level, in ns: R; 0 if none did.
    pub latency_mean_ns: f64,
    /// Mean number of pieces in the device.
    pub in_device: f64,
    /// Whether the level has enough time and ends to be judged.
    pub is_judged: bool,
}

/// The levels of each disk of a trace. Counts only pieces whose end is in the trace: others would stay in a level for
/// the rest of the time.
#[derive(Default)]
pub(super) struct DisksLevels {
    ordered: Ordered<(u16, Move)>,
    disks: BTreeMap<u16, Box<Levels>>,
}

impl DisksLevels {
    /// Takes a piece.
    pub(super) fn visit(&mut self, span: &Span) {
        let (out_ns, gone_ns) = (span.out_ns(), span.in_device().gone_ns.or(span.callback_ns));
        let queued_ns = span.queued_ns.filter(|queued_ns| out_ns.is_none_or(|out_ns| *queued_ns <= out_ns));
        let latency_ns = span.in_device().whole().map(|stay| stay.end - stay.start);
        match (out_ns, latency_ns) {
            (Some(out_ns), Some(latency_ns)) => {
                self.push(span, queued_ns, 1, Move::Queued);
                self.push(span, Some(out_ns), 2, Move::Out { latency_ns, was_queued: queued_ns.is_some() });
                // Order of events at the same time: back, queued, out, and back after no time in the device.
                let rank = if latency_ns == 0 { 3 } else { 0 };
                self.push(span, Some(out_ns + latency_ns), rank, Move::Back { len_bytes: span.len_bytes });
            }
            (None, _) if gone_ns.is_some() && queued_ns.is_some() => {
                self.push(span, queued_ns, 1, Move::Queued);
                self.push(span, gone_ns.max(queued_ns), 2, Move::Lost);
            }
            _ => {}
        }
    }

    fn push(&mut self, span: &Span, time_ns: Option<u64>, rank: u8, what: Move) {
        if let Some(time_ns) = time_ns {
            let DisksLevels { ordered, disks } = self;
            ordered
                .push(time_ns, rank, (span.disk, what), &mut |time_ns, (disk, what)| take(disks, disk, time_ns, what));
        }
    }

    /// Ends the trace. Returns the levels by the number of the disk, and the number of events too far out of their
    /// order.
    pub(super) fn finish(mut self) -> (BTreeMap<u16, Box<Levels>>, u64) {
        let disks = &mut self.disks;
        self.ordered.finish(&mut |time_ns, (disk, what)| take(disks, disk, time_ns, what));
        (self.disks, self.ordered.late())
    }
}

fn take(disks: &mut BTreeMap<u16, Box<Levels>>, disk: u16, time_ns: u64, what: Move) {
    if let Some(levels) = entry_within(disks, disk, DISKS_MAX) {
        levels.take(time_ns, what);
    }
}

#[derive(Clone, Debug, Default)]
pub struct Levels {
    slices: Parts<Scales, SLICES>,
    /// Time of pauses, in ns, by the exponent of their length.
    pauses_ns: [f64; 32],
    /// The parallelism that each level stands for; 0: its mean depth.
    parallelism: [f64; LEVELS],
    /// The levels that are left out as vague; `None`: decided by their intervals.
    vague: Option<[bool; LEVELS]>,
    queued: u64,
    in_device: u64,
    last_ns: Option<u64>,
    /// Offered depth and depth in the device before the events that came together, and the time of the first of these.
    before: [u64; 2],
    together_since_ns: u64,
}

/// Returns the remark for a verdict on a trace with losses.
pub(super) fn remark_of_lost(lost: &[String]) -> Option<String> {
    let further = match lost.len() {
        0 | 1 => String::new(),
        n => format!("; and {} more", n - 1),
    };
    lost.first().map(|first| format!("the trace is not whole, so this may be wrong: {first}{further}"))
}

fn level_of(depth: u64) -> usize {
    let level = if depth == 0 { 0 } else { depth.next_power_of_two().trailing_zeros() as usize + 1 };
    level.min(LEVELS - 1)
}

impl Levels {
    /// Counts an event at `time_ns`, which is no earlier than the last.
    pub fn take(&mut self, time_ns: u64, what: Move) {
        let last_ns = self.last_ns.replace(time_ns).unwrap_or(time_ns);
        let (offered, in_device) = (self.queued + self.in_device, self.in_device);
        if time_ns.saturating_sub(self.together_since_ns) >= TOGETHER_NS {
            (self.before, self.together_since_ns) = ([offered, in_device], time_ns);
        }

        self.slices.spread(last_ns, time_ns, |slice, within_ns| {
            let add = |sums: &mut Sums, depth: u64| {
                sums.time_ns += within_ns;
                sums.depth_ns += within_ns * depth as f64;
                sums.device_ns += within_ns * in_device as f64;
            };
            both(slice, [offered, in_device], add);
        });
        let pause_ns = time_ns.saturating_sub(last_ns);
        if let (0, Some(sum_ns)) = (offered, self.pauses_ns.get_mut(pause_ns.max(1).ilog2().min(31) as usize)) {
            *sum_ns += pause_ns as f64;
        }
        if let Move::Back { len_bytes } = what {
            let add = |sums: &mut Sums, _| {
                sums.ends += 1;
                sums.bytes += f64::from(len_bytes);
            };
            self.add(time_ns, self.before, add);
        }

        match what {
            Move::Queued => self.queued += 1,
            Move::Out { latency_ns, was_queued } => {
                self.queued = self.queued.saturating_sub(u64::from(was_queued));
                self.in_device += 1;
                let depths = [self.queued + self.in_device, self.in_device];
                let add = |sums: &mut Sums, _| {
                    sums.outs += 1;
                    sums.latency_ns += latency_ns as f64;
                };
                self.add(time_ns, depths, add);
            }
            Move::Lost => self.queued = self.queued.saturating_sub(1),
            Move::Back { .. } => self.in_device = self.in_device.saturating_sub(1),
        }
    }

    fn add(&mut self, time_ns: u64, depths: [u64; 2], add: impl FnMut(&mut Sums, u64)) {
        if let Some(slice) = self.slices.at(time_ns) {
            both(slice, depths, add);
        }
    }

    pub fn offered(&self) -> Vec<Level> {
        levels(&self.slices.joined()[0])
    }

    pub fn in_device(&self) -> Vec<Level> {
        levels(&self.slices.joined()[1])
    }

    /// Judges by the offered levels what limits throughput. Leaves out vague levels, and names them. If a part of the
    /// time gives another verdict, the verdict is unclear.
    pub fn verdict(&self) -> Verdict {
        let found = self.verdict_of_all();
        if found.kind == Kind::Unclear {
            return found;
        }
        let judge = |left_out_ns: &[u64]| self.without(left_out_ns).verdict_of_all().kind;
        match Doubt::find(&self.slice_begins_ns(), found.kind, Kind::Unclear, judge) {
            Some(doubt) => {
                let sentence = doubt.sentence("not clear", found.kind.words(), doubt.shows.words());
                Verdict { kind: Kind::Unclear, sentence, ..found }
            }
            None => found,
        }
    }

    pub(super) fn slice_begins_ns(&self) -> Vec<u64> {
        self.slices.all().iter().map(|(begin_ns, _)| *begin_ns).collect()
    }

    /// Returns the sum of long pauses, in ns: nothing was queued or in the device for about a hundredth of the time.
    pub(super) fn paused_ns(&self) -> f64 {
        self.pauses_ns.iter().skip(((self.slice_ns() / 4).max(1).ilog2() as usize).min(self.pauses_ns.len() - 1)).sum()
    }

    /// Returns the levels without the slices that begin at these times.
    pub(super) fn without(&self, begins_ns: &[u64]) -> Levels {
        let mut rest = self.clone();
        rest.slices.leave_out(begins_ns);
        // A level stands for the same load, and is as vague, whatever is left out.
        rest.vague = Some(self.vague_levels());
        for level in self.offered() {
            if let Some(parallelism) = rest.parallelism.get_mut(level_of(level.depth_max)) {
                *parallelism = self.parallelism_of(&level);
            }
        }
        rest
    }

    /// Joins slices until each is at least `length_ns` long.
    pub(super) fn lengthen(&mut self, length_ns: u64) {
        self.slices.lengthen(length_ns);
    }

    pub(super) fn slice_ns(&self) -> u64 {
        self.slices.length_ns()
    }

    /// Judges all of the time.
    pub(super) fn verdict_of_all(&self) -> Verdict {
        let is_vague = self.vague_levels();
        let (vague, known): (Vec<_>, Vec<_>) =
            self.curve().into_iter().partition(|(level, _)| is_vague.get(*level).is_some_and(|is_vague| *is_vague));
        let points: Vec<CurvePoint> = known.iter().map(|(_, point)| *point).collect();
        let mut found = verdict(&points, None);

        let name = |(_, point): &(usize, CurvePoint)| {
            let known = match vague_pct(point) {
                Some(pct) => format!("to ± {pct:.0} %"),
                None => "from fewer than two slices of the time".to_owned(),
            };
            format!("parallelism {:.0}, whose throughput is known {known} only", point.parallelism)
        };
        found.evidence.extend(vague.iter().map(|level| format!("left out: {}", name(level))));
        if let (Kind::Falls, Some((level, last))) = (found.kind, known.last()) {
            let most = points.iter().map(|point| point.throughput).fold(0.0, f64::max);
            let why = match () {
                () if !self.is_steady(*level) => {
                    Some("requests have no time to come back, as at the begin of a burst,")
                }
                () if last.throughput > (1.0 - VAGUE_PCT / 100.0) * most => {
                    Some("throughput is lower, or was just then,")
                }
                () => None,
            };
            if let Some(why) = why {
                found.kind = Kind::Unclear;
                found.sentence = format!(
                    "not clear: {why} at parallelism {:.0}; record loads that stay, and each twice",
                    last.parallelism
                );
            }
        }
        // Levels beyond the end of the curve do not change its verdict, unless the curve still grows there.
        let is_open = matches!(found.kind, Kind::ScalesLow | Kind::Reached | Kind::Unclear);
        let end = known.last().map_or(0, |(level, _)| *level);
        let is_missed = |level: usize| is_open && (level > end || points.len() < 2);
        match (vague.last().filter(|(level, _)| is_missed(*level)), &points[..]) {
            (Some(last), _) => {
                (found.kind, found.sentence) = (Kind::Unclear, format!("not clear: {}; {RECORD_AGAIN}", name(last)));
            }
            (None, [only]) => {
                found.sentence = format!(
                    "not clear from depth: the load always offered about {:.0}; record several loads, as a sweep does",
                    only.parallelism
                );
            }
            (None, _) => {}
        }
        found
    }

    /// Returns whether the completions at a level match its depth and latency by Little's law. At the begin of a burst
    /// the depth is high before the first of its requests can be back.
    fn is_steady(&self, level: usize) -> bool {
        let levels = self.offered();
        let of_level = levels.iter().find(|it| level_of(it.depth_max) == level);
        of_level.is_some_and(|it| it.ends_per_s * it.latency_mean_ns / 1e9 >= STEADY_LEAST * it.in_device)
    }

    /// Returns which levels are too vague for the curve.
    fn vague_levels(&self) -> [bool; LEVELS] {
        self.vague.unwrap_or_else(|| {
            let mut is_vague = [false; LEVELS];
            for (level, point) in self.curve() {
                if let Some(is_vague) = is_vague.get_mut(level) {
                    *is_vague = vague_pct(&point).is_none_or(|pct| pct > VAGUE_PCT);
                }
            }
            is_vague
        })
    }

    /// Returns the judged levels of the offered depth, each with its point of the curve.
    fn curve(&self) -> Vec<(usize, CurvePoint)> {
        let offered = self.offered();
        let moves_bytes = offered.iter().any(|level| level.bytes_per_s > 0.0);
        let point = |level: &Level| CurvePoint {
            parallelism: self.parallelism_of(level),
            throughput: if moves_bytes { level.bytes_per_s } else { level.ends_per_s },
            half_width: self.half_width(level_of(level.depth_max), moves_bytes),
            latency_ns: level.latency_mean_ns,
            in_device: level.in_device,
        };
        let judged = offered.iter().filter(|level| level.is_judged);
        judged.map(|level| (level_of(level.depth_max), point(level))).collect()
    }

    fn parallelism_of(&self, level: &Level) -> f64 {
        let known = self.parallelism.get(level_of(level.depth_max)).filter(|parallelism| **parallelism > 0.0);
        // Between an end and the request that follows it, the depth is one lower for a moment.
        known.copied().unwrap_or_else(|| level.depth_mean.round().max(1.0))
    }

    /// Returns half of the 95 % interval of a level's throughput, by its rates in the slices; `None` if it has the time
    /// of fewer than two. A slice with a moment of the level's time counts as that moment, not as a slice.
    fn half_width(&self, level: usize, moves_bytes: bool) -> Option<f64> {
        let slices = self.slices.all();
        let of_slice = |(_, [offered, _]): &(u64, Scales)| {
            let sums = offered.get(level).filter(|sums| sums.time_ns > 0.0)?;
            Some((sums.time_ns / 1e9, if moves_bytes { sums.bytes } else { sums.ends as f64 }))
        };
        let slices: Vec<(f64, f64)> = slices.iter().filter_map(of_slice).collect();
        let (time_s, moved) = slices.iter().fold((0.0, 0.0), |(time_s, moved), it| (time_s + it.0, moved + it.1));

        // The effective number of slices of equal length (Kish), and the standard error of a ratio of two sums.
        let number = time_s * time_s / slices.iter().map(|(in_s, _)| in_s * in_s).sum::<f64>();
        let squares: f64 = slices.iter().map(|(in_s, in_moved)| (in_moved - moved / time_s * in_s).powi(2)).sum();
        let error = (squares * number / (number - 1.0)).sqrt() / time_s;
        (number >= SLICES_MIN).then(|| student_t(number - 1.0) * error)
    }
}

/// Returns half of the interval of a point's throughput in percent of it, if known.
fn vague_pct(point: &CurvePoint) -> Option<f64> {
    point.half_width.map(|half_width| 100.0 * half_width / point.throughput)
}

/// Calls `add` with the sums at the level of each scale's depth.
fn both(slice: &mut Scales, depths: [u64; 2], mut add: impl FnMut(&mut Sums, u64)) {
    for (levels, depth) in slice.iter_mut().zip(depths) {
        if let Some(sums) = levels.get_mut(level_of(depth)) {
            add(sums, depth);
        }
    }
}

fn levels(sums: &[Sums; LEVELS]) -> Vec<Level> {
    let total_ns: f64 = sums.iter().map(|sums| sums.time_ns).sum();
    let per_second = |value: f64, time_ns: f64| if time_ns > 0.0 { value * 1e9 / time_ns } else { 0.0 };

    let level = |(at, sums): (usize, &Sums)| {
        let depth_max = at.checked_sub(1).map_or(0, |exponent| 1_u64 << exponent);
        let time_part = if total_ns > 0.0 { sums.time_ns / total_ns } else { 0.0 };
        Level {
            depth_min: if depth_max <= 2 { depth_max } else { depth_max / 2 + 1 },
            depth_max,
            depth_mean: if sums.time_ns > 0.0 { sums.depth_ns / sums.time_ns } else { depth_max as f64 },
            time_part,
            ends: sums.ends,
            ends_per_s: per_second(sums.ends as f64, sums.time_ns),
            bytes_per_s: per_second(sums.bytes, sums.time_ns),
            latency_mean_ns: if sums.outs > 0 { sums.latency_ns / sums.outs as f64 } else { 0.0 },
            in_device: if sums.time_ns > 0.0 { sums.device_ns / sums.time_ns } else { 0.0 },
            is_judged: time_part >= TIME_PART_MIN && sums.ends >= ENDS_MIN,
        }
    };

    let is_seen = |(at, sums): &(usize, &Sums)| *at > 0 && (sums.ends > 0 || sums.time_ns > 0.0);
    sums.iter().enumerate().filter(is_seen).map(level).collect()
}

#[cfg(test)]
mod tests {
    use plimsoll_figures::verdict::Kind;

    use super::*;

    const MS: u64 = 1_000_000;

    /// Bursts of 32 every 2.4 ms on a disk that serves 16 at a time in 800 us: for the first 800 us none can complete.
    /// The verdict used to be an overloaded disk.
    #[test]
    fn a_burst_is_no_disk_that_falls() {
        let mut levels = Levels::default();
        for burst in 0..200_u64 {
            let begin_ns = burst * 2_400_000;
            (0..32).for_each(|_| levels.take(begin_ns, Move::Queued));
            let ends_ns = |nth: u64| (1 + nth / 16) * 800_000 + nth % 16 * 30_000;
            (0..32).for_each(|nth| levels.take(begin_ns, Move::Out { latency_ns: ends_ns(nth), was_queued: true }));
            (0..32).for_each(|nth| levels.take(begin_ns + ends_ns(nth), Move::Back { len_bytes: 4096 }));
        }
        let found = levels.verdict();
        assert_ne!(found.kind, Kind::Falls, "{found:?}");
        assert!(found.sentence.contains("at the begin of a burst"), "{found:?}");
    }

    #[test]
    fn pieces_that_come_back_together_count_where_they_were() {
        let mut levels = Levels::default();
        let out = Move::Out { latency_ns: 800_000, was_queued: true };
        let begin = |levels: &mut Levels, at_ns| {
            levels.take(at_ns, Move::Queued);
            levels.take(at_ns, out);
        };
        (0..64).for_each(|_| begin(&mut levels, 0));
        for batch in 1..=1000 {
            let at_ns = batch * 100_000;
            (0..8).for_each(|nth| levels.take(at_ns + nth * 100, Move::Back { len_bytes: 4096 }));
            (0..8).for_each(|_| begin(&mut levels, at_ns + 1_000));
        }
        for level in levels.offered().iter().chain(&levels.in_device()) {
            let is_full = level.depth_max == 64;
            assert_eq!((level.ends > 0, level.is_judged), (is_full, is_full), "{level:?}");
            assert!(!is_full || (level.ends_per_s / 80_000.0 - 1.0).abs() < 0.02, "{level:?}");
        }
    }

    /// Runs a closed loop in phases of 100 ms, with `phases` requests at a time and at most `held` of them in the
    /// device: the next goes out when one is back, one end each `step_ns`.
    fn walk(phases: &[u64], held: u64, step_ns: impl Fn(u64) -> u64) -> Levels {
        let phases: Vec<_> = phases.iter().map(|offered| (*offered, 100 * MS)).collect();
        walk_with(&phases, held, |in_device, _| step_ns(in_device))
    }

    /// Does the same with phases of any length, and a time between ends that also depends on the time since the begin
    /// of the phase.
    fn walk_with(phases: &[(u64, u64)], held: u64, step_ns: impl Fn(u64, u64) -> u64) -> Levels {
        let mut levels = Levels::default();
        let mut now_ns = 0;
        for (offered, length_ns) in phases {
            let (in_device, begin_ns) = (held.min(*offered), now_ns);
            let out = |step_ns: u64| Move::Out { latency_ns: step_ns * in_device, was_queued: true };
            (0..*offered).for_each(|_| levels.take(now_ns, Move::Queued));
            (0..in_device).for_each(|_| levels.take(now_ns, out(step_ns(in_device, 0))));

            while now_ns < begin_ns + length_ns {
                let step_ns = step_ns(in_device, now_ns - begin_ns);
                now_ns += step_ns;
                levels.take(now_ns, Move::Back { len_bytes: 1 << 20 });
                levels.take(now_ns, Move::Queued);
                levels.take(now_ns, out(step_ns));
            }

            // The rest of the phase ends at once.
            (in_device..*offered).for_each(|_| levels.take(now_ns, out(0)));
            (0..*offered).for_each(|_| levels.take(now_ns, Move::Back { len_bytes: 0 }));
        }
        levels
    }

    #[test]
    fn three_disks_and_their_verdicts() {
        let phases = [1, 2, 4, 8, 16, 32];
        // Four at a time, 122 us apart, whatever is offered: the seed's picture.
        let limited = walk(&phases, 4, |in_device| 490_000 / in_device);
        assert_eq!(limited.verdict().kind, Kind::LimitedAbove, "{:?}", limited.verdict());
        assert!(limited.verdict().sentence.contains("the limiter sits above the disk"));
        let in_device = limited.in_device();
        let deepest = in_device.iter().filter(|level| level.is_judged).map(|level| level.depth_max).max();
        assert_eq!(deepest, Some(4), "never more than four: {in_device:?}");
        // The device takes all, and serves one each 122 us.
        assert_eq!(walk(&phases, 64, |_| 122_000).verdict().kind, Kind::Saturated);
        // The device takes all, each for 490 us.
        assert_eq!(walk(&phases, 64, |in_device| 490_000 / in_device).verdict().kind, Kind::ScalesLow);
    }

    #[test]
    fn one_level_says_that_it_is_not_enough() {
        let found = walk(&[16], 4, |_| 122_000).verdict();
        assert_eq!(found.kind, Kind::Unclear);
        assert!(found.sentence.contains("always offered about 16"), "{}", found.sentence);
        assert_eq!(Levels::default().verdict().kind, Kind::Unclear);
    }

    #[test]
    fn levels_are_powers_of_two() {
        let bounds: Vec<usize> = [0, 1, 2, 3, 4, 5, 8, 9, 1 << 20, u64::MAX >> 1].map(level_of).to_vec();
        assert_eq!(bounds, [0, 1, 2, 3, 3, 4, 4, 5, 21, 21]);
        let mut levels = Levels::default();
        levels.take(9, Move::Back { len_bytes: 1 });
        levels.take(5, Move::Out { latency_ns: 0, was_queued: true });
        assert!(levels.offered().iter().all(|level| !level.is_judged), "events out of order do no harm");
    }

    /// Four parts of the time have rates of 100, 140, 60 and 100, others only a moment.
    #[test]
    fn moments_at_a_level_do_not_make_its_rate_better_known() {
        let half_width = |moments: u64| {
            let mut levels = Levels::default();
            let slice_ns = levels.slice_ns();
            let mut add = |nth: u64, time_ns: f64, ends: u64| {
                if let Some([offered, _]) = levels.slices.at(nth * slice_ns) {
                    offered[5] = Sums { time_ns, ends, ..Sums::default() };
                }
            };
            [100, 140, 60, 100].into_iter().zip(0..).for_each(|(ends, nth)| add(nth, 1e9, ends));
            (0..moments).for_each(|nth| add(4 + nth, 1e4, 0));
            levels.half_width(5, false).unwrap()
        };
        // The mean is 100; the four scatter by 32.7 around it, so that it is known to 3.18 x 32.7 / 2.
        assert!((half_width(0) - 52.0).abs() < 0.5, "{}", half_width(0));
        assert!((half_width(28) / half_width(0) - 1.0).abs() < 0.01, "{}", half_width(28));
    }

    /// Loads of 1 to `most`, each for 100 ms, but the deepest for `last_ms`.
    fn doubling(most: u64, last_ms: u64) -> Vec<(u64, u64)> {
        let of = |offered: u64| (offered, if offered == most { last_ms * MS } else { 100 * MS });
        (0..=most.ilog2()).map(|exponent| of(1 << exponent)).collect()
    }

    #[test]
    fn a_vague_level_is_left_out_of_the_comparison_and_named() {
        // Four at a time; at a load of two the device is fast, and then slow.
        let found = walk_with(&doubling(32, 100), 4, |in_device, since_ns| match in_device {
            2 if since_ns < 50 * MS => 100_000,
            2 => 900_000,
            _ => 490_000 / in_device,
        });
        let found = found.verdict();
        assert_eq!(found.kind, Kind::LimitedAbove, "{found:?}");
        let evidence = found.evidence.join("; ");
        assert!(evidence.contains("left out: parallelism 2, whose throughput is known to ±"), "{evidence}");

        // The end of the curve is vague: it may stay, or grow.
        let found = walk_with(&doubling(32, 100), 64, |in_device, since_ns| match in_device {
            32 if since_ns < 50 * MS => 10_000,
            32 => 490_000,
            _ => 490_000 / in_device,
        });
        let found = found.verdict();
        assert_eq!(found.kind, Kind::Unclear, "{found:?}");
        assert!(
            found.sentence.contains("not clear: parallelism 32, whose throughput is known to ±"),
            "{}",
            found.sentence
        );
    }

    #[test]
    fn a_level_of_two_slices_has_an_interval_and_one_of_a_moment_is_vague() {
        // The device serves one each 122 us; in the second half of the deepest load, which lasts two slices of 16.8 ms,
        // it is five times slower.
        let is_slow = |in_device: u64, since_ns: u64| in_device == 32 && since_ns > 17 * MS;
        let found = walk_with(
            &doubling(32, 34),
            64,
            |in_device, since_ns| {
                if is_slow(in_device, since_ns) { 610_000 } else { 122_000 }
            },
        );
        let evidence = found.verdict().evidence.join("; ");
        assert_eq!(found.verdict().kind, Kind::Saturated, "{:?}", found.verdict());
        assert!(evidence.contains("left out: parallelism 32, whose throughput is known to ±"), "{evidence}");

        // It lasts for one slice: the rate is known from there alone.
        let found = walk_with(&doubling(32, 14), 64, |in_device, _| 490_000 / in_device).verdict();
        let sentence =
            "not clear: parallelism 32, whose throughput is known from fewer than two slices of the time only";
        assert_eq!(found.kind, Kind::Unclear, "{found:?}");
        assert!(found.sentence.starts_with(sentence), "{}", found.sentence);
    }
}
