//! How long requests spent at each stage, and how many were in the queue and the device.
//!
//! **Why.** "The disk is slow" may mean that requests wait for tokens, that the disk is slow, or that completed
//! requests waited until the shard polled. Each has another remedy.
//!
//! **How.** Each span adds to the histograms of its group (by class, size, operation, disk, shard, as chosen):
//!
//! | stage | from | to |
//! |---|---|---|
//! | Q2D | submitted by the program | given to the backend, or by the kernel to the driver |
//! | D2C | given to the backend | back, as far as the source sees it |
//! | late | | the part of D2C, at most, in which the piece was back and the shard did not poll |
//! | C2R | back | reaped by the scheduler |
//! | R2U | reaped by the scheduler | reported to the program, with the last piece of a request |
//! | Q2C | submitted by the program | back: Q2D and D2C; shares are parts of this |
//!
//! Classes get a verdict on the time from D to R ([`Verdict`]).
//!
//! A depth that is flat at a limit, or that grows while the bandwidth does not, says more than any percentile. For each
//! disk a timeline divides the trace into at most [`BINS_MAX`] parts (module `parts`), to which each span adds its
//! time, so that means are exact; a peak counts begins and ends in the order of time ([`super::order`]).
//!
//! **Limits.** [`GROUPS_MAX`] groups and [`DISKS_MAX`] disks; further ones share one more. Counts are of pieces, not
//! requests: a request of four pieces is four in the queue. A stage that ends before it begins (the clocks of CPUs
//! differ) is left out and counted. Percentiles are within 0.78 %. If a begin or end arrives too late for its place,
//! the peak may be a little off, and is marked. One time stamp far away makes all parts long.
//!
//! **Example.** 100 us in the queue, 300 us in the disk:
//! ```
//! use plimsoll_observe::trace::stages::{By, Stages};
//! use plimsoll_observe::trace::read_from;
//!
//! let text = "8,0 1 1 0.000000000 9 Q R 2048 + 8 [db]\n8,0 1 2 0.000100000 9 D R 2048 + 8 [db]\n\
//!             8,0 1 3 0.000400000 0 C R 2048 + 8 [0]\n";
//! let mut stages = Stages::new(&[By::Size]);
//! let trace = read_from(text.as_bytes(), &mut |item| stages.visit(&item))?;
//! let report = stages.finish(&trace);
//! let q2d = &report.groups[0].stages[0];
//! assert_eq!((q2d.stage, q2d.max_ns, q2d.share), ("Q2D", 100_000, Some(0.25)));
//! # Ok::<(), plimsoll_observe::trace::TraceError>(())
//! ```

mod report;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use plimsoll::core::{Histogram, Op, WaitReason};
use serde::Serialize;

pub use report::{ClassReport, DiskReport, GroupReport, PICTURES, SCHEMA, StageReport, StagesReport, Verdict};

use super::order::Ordered;
use super::parts::Parts;
use super::span::{Covered, Item, Span, Trace};
use crate::entry_within;

/// Most groups; spans of further groups share one more.
pub const GROUPS_MAX: usize = 512;

/// Most disks with depths of their own; further disks are counted together.
pub const DISKS_MAX: usize = 8;

/// A property by which groups are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum By {
    /// Class; process in a kernel trace.
    Class,
    Size,
    Op,
    Disk,
    /// Shard; CPU in a kernel trace.
    Shard,
}

impl By {
    pub const ALL: [By; 5] = [By::Class, By::Size, By::Op, By::Disk, By::Shard];

    /// Returns the short lower-case name.
    pub const fn name(self) -> &'static str {
        match self {
            By::Class => "class",
            By::Size => "size",
            By::Op => "op",
            By::Disk => "disk",
            By::Shard => "shard",
        }
    }
}

/// The properties that the spans of a group share; 0 for properties by which groups are not made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Key {
    class: u16,
    disk: u16,
    shard: u16,
    /// The exponent of the smallest power of two of at least the length, plus 1; 0 for no length.
    size: u8,
    op: u8,
}

impl Key {
    fn of(span: &Span, by: &[By]) -> Key {
        let mut key = Key::default();
        for by in by {
            match by {
                By::Class => key.class = span.class,
                By::Size if span.len_bytes == 0 => key.size = 0,
                By::Size => key.size = (u64::from(span.len_bytes).next_power_of_two().trailing_zeros() + 1) as u8,
                By::Op => key.op = Op::ALL.iter().position(|op| *op == span.op).unwrap_or(0) as u8,
                By::Disk => key.disk = span.disk,
                By::Shard => key.shard = span.shard,
            }
        }
        key
    }
}

/// Stages, in the order of [`STAGE_NAMES`]; `None` if an end of the stage is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times(pub(crate) [Option<u64>; STAGES]);

pub(crate) const STAGES: usize = 6;
pub(crate) const STAGE_NAMES: [&str; STAGES] = ["Q2D", "D2C", "late", "C2R", "R2U", "Q2C"];
pub(super) const Q2D: usize = 0;
pub(super) const D2C: usize = 1;
const LATE: usize = 2;
pub(super) const C2R: usize = 3;
pub(super) const Q2C: usize = 5;

impl Times {
    /// Returns the times of a span, and how many of them run backwards.
    pub(crate) fn of(span: &Span) -> (Times, u64) {
        let mut backwards = 0;
        let mut between = |from_ns: Option<u64>, to_ns: Option<u64>| {
            let (from_ns, to_ns) = (from_ns?, to_ns?);
            backwards += u64::from(to_ns < from_ns);
            to_ns.checked_sub(from_ns)
        };
        let d2c = between(span.out_ns(), span.completed_ns);
        let late = d2c.filter(|_| span.reaped_ns.is_some()).map(|d2c| d2c.min(u64::from(span.late_max_ns)));
        let times = [
            between(span.queued_ns, span.out_ns()),
            d2c,
            late,
            between(span.completed_ns, span.reaped_ns),
            between(span.reaped_ns, span.callback_ns),
            between(span.queued_ns, span.completed_ns),
        ];
        (Times(times), backwards)
    }
}

#[derive(Default)]
struct Group {
    spans: u64,
    bytes: u64,
    stages: [Histogram; STAGES],
    /// Sums in ns over the spans with Q, D and C: the shares are of these.
    whole_ns: [u64; STAGES],
    waits: Waits,
}

/// Time from Q to D in ns by wait reason; the last entry is for spans without a reason.
type Waits = [u64; WaitReason::ALL.len() + 1];

#[derive(Default)]
struct ClassSums {
    spans: u64,
    /// Spans with D, C and R.
    judged: u64,
    /// Sums over the spans with Q, D and C, in ns.
    q2d_ns: u64,
    d2c_ns: u64,
    /// Sums over the judged spans, in ns.
    judged_d2c_ns: u64,
    late_ns: u64,
    c2r_ns: u64,
    waits: Waits,
}

/// Depths and bandwidth of one disk.
#[derive(Default)]
struct Disk {
    queue_ns: u128,
    device_ns: u128,
    read_bytes: u64,
    write_bytes: u64,
    queue: Peak,
    device: Peak,
    timeline: Timeline,
}

/// Most parts of a timeline.
pub const BINS_MAX: usize = 512;

/// The means of one part of the time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TimePoint {
    /// Begin of the part, in ns after the begin of the trace.
    pub from_ns: u64,
    #[serde(skip)]
    pub length_ns: u64,
    pub queue_depth: f64,
    pub device_depth: f64,
    pub read_bytes_per_s: f64,
    pub write_bytes_per_s: f64,
}

/// Depths and bandwidth over time: the time spent by all pieces together in the queue and in the device, bytes read and
/// written.
#[derive(Clone, Default)]
struct Timeline(Parts<[f64; 4], BINS_MAX>);

impl Timeline {
    /// Adds a piece in the queue from `from_ns` to `to_ns`. If it ends before it begins, does nothing.
    fn in_queue(&mut self, from_ns: u64, to_ns: u64) {
        self.0.spread(from_ns, to_ns, |[queue_ns, ..], within_ns| *queue_ns += within_ns);
    }

    /// Adds a piece in the device, as [`Timeline::in_queue`] does.
    fn in_device(&mut self, from_ns: u64, to_ns: u64) {
        self.0.spread(from_ns, to_ns, |[_, device_ns, ..], within_ns| *device_ns += within_ns);
    }

    fn moved(&mut self, time_ns: u64, is_read: bool, len_bytes: u64) {
        if let Some([.., read, written]) = self.0.at(time_ns) {
            *if is_read { read } else { written } += len_bytes as f64;
        }
    }

    /// Returns the parts in order of time, counted from `zero_ns`.
    fn points(&self, zero_ns: u64) -> Vec<TimePoint> {
        let length_ns = self.0.length_ns();
        let point = |(begin_ns, [queue_ns, device_ns, read, written]): (u64, [f64; 4])| TimePoint {
            from_ns: begin_ns.saturating_sub(zero_ns),
            length_ns,
            queue_depth: queue_ns / length_ns as f64,
            device_depth: device_ns / length_ns as f64,
            read_bytes_per_s: read * 1e9 / length_ns as f64,
            write_bytes_per_s: written * 1e9 / length_ns as f64,
        };
        self.0.all().into_iter().map(point).collect()
    }
}

/// Follows the highest number of pieces at one time.
#[derive(Clone, Default)]
struct Peak {
    edges: Ordered<i64>,
    depth: i64,
    peak: i64,
}

impl Peak {
    /// Adds a piece that was there from `from_ns` to `to_ns`. If it ends before it begins, does nothing.
    fn count(&mut self, from_ns: u64, to_ns: u64) {
        if to_ns > from_ns {
            let Peak { edges, depth, peak } = self;
            let mut pass = |_, change| {
                *depth += change;
                *peak = (*peak).max(*depth);
            };
            // An end comes before a begin of the same time.
            edges.push(from_ns, 1, 1, &mut pass);
            edges.push(to_ns, 0, -1, &mut pass);
        }
    }

    /// Returns the begins and ends that came too late to be counted in their place.
    fn late_edges(&self) -> u64 {
        self.edges.late()
    }

    fn finish(&mut self) -> u64 {
        let Peak { edges, depth, peak } = self;
        edges.finish(&mut |_, change| {
            *depth += change;
            *peak = (*peak).max(*depth);
        });
        u64::try_from(*peak).unwrap_or(0)
    }
}

/// The analysis while the trace is read.
#[derive(Default)]
pub struct Stages {
    by: Vec<By>,
    groups: HashMap<Key, Box<Group>>,
    others: Option<Box<Group>>,
    classes: BTreeMap<u16, ClassSums>,
    disks: BTreeMap<u16, Disk>,
    other_disks: Option<Disk>,
    covered: Covered,
    errors: u64,
    cancelled: u64,
    backwards: u64,
}

impl Stages {
    /// Returns an analysis that groups by all properties in `by`; without one, all spans are one group.
    pub fn new(by: &[By]) -> Stages {
        Stages { by: by.to_vec(), ..Stages::default() }
    }

    pub fn visit(&mut self, item: &Item) {
        let Item::Span(span) = item else { return };
        let (times, backwards) = Times::of(span);
        self.backwards += backwards;
        self.errors += u64::from(span.error.is_some());
        self.cancelled += u64::from(span.is_cancelled);
        self.covered.add(span);
        self.add_to_group(span, times);
        self.add_to_class(span, times);
        self.add_to_disk(span);
    }

    pub fn finish(self, trace: &Trace) -> StagesReport {
        report::of(self, trace)
    }

    fn add_to_group(&mut self, span: &Span, Times(times): Times) {
        let key = Key::of(span, &self.by);
        let has_room = self.groups.len() < GROUPS_MAX;
        let group = match self.groups.entry(key) {
            std::collections::hash_map::Entry::Occupied(group) => group.into_mut(),
            std::collections::hash_map::Entry::Vacant(place) if has_room => place.insert(Box::default()),
            std::collections::hash_map::Entry::Vacant(_) => self.others.get_or_insert_default(),
        };
        group.spans += 1;
        group.bytes = group.bytes.saturating_add(u64::from(span.len_bytes));
        for (histogram, time) in group.stages.iter_mut().zip(times) {
            if let Some(ns) = time {
                histogram.record(ns);
            }
        }
        if times[Q2D].is_some() && times[D2C].is_some() {
            for (sum_ns, time_ns) in group.whole_ns.iter_mut().zip(times) {
                *sum_ns = sum_ns.saturating_add(time_ns.unwrap_or(0));
            }
        }
        add_wait(&mut group.waits, span, times[Q2D]);
    }

    fn add_to_class(&mut self, span: &Span, Times(times): Times) {
        let class = self.classes.entry(span.class).or_default();
        class.spans += 1;
        add_wait(&mut class.waits, span, times[Q2D]);
        if let (Some(q2d_ns), Some(d2c_ns)) = (times[Q2D], times[D2C]) {
            class.q2d_ns = class.q2d_ns.saturating_add(q2d_ns);
            class.d2c_ns = class.d2c_ns.saturating_add(d2c_ns);
        }
        if let (Some(d2c_ns), Some(late_ns), Some(c2r_ns)) = (times[D2C], times[LATE], times[C2R]) {
            class.judged += 1;
            class.judged_d2c_ns = class.judged_d2c_ns.saturating_add(d2c_ns);
            class.late_ns = class.late_ns.saturating_add(late_ns);
            class.c2r_ns = class.c2r_ns.saturating_add(c2r_ns);
        }
    }

    fn add_to_disk(&mut self, span: &Span) {
        let disk = entry_within(&mut self.disks, span.disk, DISKS_MAX);
        let disk = disk.unwrap_or_else(|| self.other_disks.get_or_insert_default());

        if let Some(Range { start, end }) = span.in_queue().whole() {
            disk.queue_ns += u128::from(end - start);
            disk.queue.count(start, end);
            disk.timeline.in_queue(start, end);
        }

        if let Some(Range { start, end }) = span.in_device().whole() {
            disk.device_ns += u128::from(end - start);
            disk.device.count(start, end);
            disk.timeline.in_device(start, end);
        }

        if let (Some(completed_ns), true, None) = (span.completed_ns, span.op.is_transfer(), span.error) {
            let sum = if span.op == Op::Read { &mut disk.read_bytes } else { &mut disk.write_bytes };
            *sum = sum.saturating_add(u64::from(span.len_bytes));
            disk.timeline.moved(completed_ns, span.op == Op::Read, u64::from(span.len_bytes));
        }
    }
}

fn add_wait(waits: &mut Waits, span: &Span, q2d_ns: Option<u64>) {
    let at = span.reason.map_or(WaitReason::ALL.len(), |reason| reason as usize);
    if let (Some(wait_ns), Some(q2d_ns)) = (waits.get_mut(at), q2d_ns) {
        *wait_ns = wait_ns.saturating_add(q2d_ns);
    }
}

#[cfg(test)]
mod tests;
