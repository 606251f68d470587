//! What held a disk's queues back: figures, verdicts, JSON and CSV.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll::core::{Histogram, WaitReason};
use plimsoll_figures::units::format_throughput_decimal as throughput;
use plimsoll_figures::units::{format_bytes_binary, format_count, format_duration_ns, format_iops_short};
use plimsoll_figures::verdict::Kind;
use plimsoll_show::table::{Column, csv, fixed};
use serde::Serialize;

use super::super::doubt::Doubt;
use super::super::levels::{Levels, SLICES, remark_of_lost};
use super::super::parts::Parts;
use super::super::span::{Origin, Trace};
use super::queue::{Queue, Standstill};
use super::{Disk, Followed, Gaps, Implied, NOTHING, Piece, QueueKey, Slice, WAYS, Waits, Way, way_name};

pub const SCHEMA: u32 = 1;

/// Part of a class's time in the queue, or of the standstills, above which a cause counts as the main one.
const MOST: f64 = 0.5;

/// Part of the time waited for tokens above which lateness is worth a remark.
const LATE: f64 = 0.1;

/// Least part of the time with requests in the device, and their least mean number, if the device may be the limit: a
/// disk that serves many at once is not full with fewer.
const LOADED_PART: f64 = 0.9;
const LOADED_LEAST: f64 = 8.0;

/// Least part of the requests that wait if tokens or a limit hold one request at a time: at a lower rate fewer wait.
const AT_RATE: f64 = 0.75;

/// Least part of the time with an empty queue that has requests in the device, if the program sends the next request
/// when one completes.
const IN_TURN: f64 = 0.9;

/// Fewest dispatches that show that a program offers too little.
const DISPATCHES_LEAST: u64 = 30;

/// Part of the time above which standstills beside a mostly empty queue are worth a remark.
const WITH_WORK: f64 = 0.05;

/// The thing that holds the requests of a disk back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limiter {
    /// The disk model's tokens.
    Tokens,
    /// Depth or window, while the disk's latency does not show that the disk is full.
    Depth,
    /// Other classes' turns.
    Fairness,
    Limit,
    /// The backend, which had no room.
    Backend,
    /// The disk: more requests in it make it slower, not faster.
    Disk,
    /// The program: its queue is empty for most of the time.
    Program,
    /// The shard: nothing stood in the way, and the shard did not poll.
    Turn,
    /// The trace does not say.
    Unknown,
}

impl Limiter {
    const fn words(self) -> &'static str {
        match self {
            Limiter::Tokens => "tokens",
            Limiter::Depth => "depth",
            Limiter::Fairness => "other classes' turns",
            Limiter::Limit => "a limit",
            Limiter::Backend => "the backend",
            Limiter::Disk => "the disk",
            Limiter::Program => "the program",
            Limiter::Turn => "the shard, which looked late,",
            Limiter::Unknown => "not known",
        }
    }
}

/// Figures of gaps, in ns; percentiles within 0.78 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct GapStats {
    pub n: u64,
    pub mean_ns: f64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
}

impl GapStats {
    pub(super) fn of(histogram: &Histogram) -> GapStats {
        GapStats {
            n: histogram.count(),
            mean_ns: histogram.mean(),
            p50_ns: histogram.percentile(50.0),
            p99_ns: histogram.percentile(99.0),
            max_ns: histogram.max(),
        }
    }
}

/// Standstills by what stood in the way.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReasonGaps {
    /// `tokens`, `depth`, `backend`, `limit`, `fairness`, or `nothing known`.
    pub reason: &'static str,
    /// Parts of standstills of at least [`GapsReport::longer_than_ns`].
    pub gaps: GapStats,
    /// Part of the time of the disk's queues, 0 to 1, short parts included.
    pub time_part: f64,
    /// Part of the time of the disk's queues that was overdue, 0 to 1: after the queue's planned retry.
    pub overdue_part: f64,
    /// Part of the standstills with this reason that were mostly overdue, 0 to 1.
    pub overdue_standstills: f64,
}

/// A queue: a shard's to a disk.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct QueueGaps {
    pub shard: u16,
    pub dispatches: u64,
    /// Part of the time in which the queue had no work, 0 to 1.
    pub empty_part: f64,
    pub gap_mean_ns: f64,
    pub gap_max_ns: u64,
}

/// What held a disk's requests back.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    pub limiter: Limiter,
    pub sentence: String,
    pub remarks: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct DiskGaps {
    pub disk: String,
    /// Time from the disk's first to its last event, in ns.
    pub duration_ns: u64,
    /// All dispatch gaps of its queues: from the last event that could have let a queue send to the dispatch.
    pub gap: GapStats,
    /// Part of the time of its queues in which they had no work, 0 to 1.
    pub empty_part: f64,
    /// Standstills by what stood in the way, the one with the most time first.
    pub reasons: Vec<ReasonGaps>,
    /// Rates of the model that granted tokens.
    pub implied: Vec<Implied>,
    pub sent_bytes_per_s: f64,
    pub sent_per_s: f64,
    pub queues: Vec<QueueGaps>,
    pub verdict: Verdict,
    #[serde(skip)]
    pub(in crate::trace) gap_all: Box<Histogram>,
    /// Means of dispatch gaps over time, in ns.
    #[serde(skip)]
    pub(in crate::trace) gap_means_ns: Vec<f64>,
}

impl DiskGaps {
    fn dispatches(&self) -> u64 {
        self.queues.iter().map(|queue| queue.dispatches).sum()
    }
}

/// The waits of a class's pieces for one reason, from submission to dispatch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassWait {
    pub class: String,
    /// What the class waited for most, or `none`.
    pub reason: &'static str,
    pub n: u64,
    pub mean_ns: f64,
    pub max_ns: u64,
    /// Part of the class's time in the queue, 0 to 1.
    pub part: f64,
}

/// One of the longest standstills.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LongGap {
    /// When the piece that ended it was sent, in ns after the disk's first event.
    pub at_ns: u64,
    /// How long the queue had work and sent nothing, in ns.
    pub length_ns: u64,
    /// What stood in the way for the longest part.
    pub reason: &'static str,
    pub class: String,
    /// `read`, `write`, `flush`, `discard` or `allocate`.
    pub op: &'static str,
    pub len_bytes: u32,
    pub shard: u16,
    pub disk: String,
    pub request: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct GapsReport {
    pub schema: u32,
    pub plimsoll: &'static str,
    /// Shortest part that counts in [`ReasonGaps::gaps`], in ns.
    pub longer_than_ns: u64,
    pub disks: Vec<DiskGaps>,
    /// Waits by class and reason, the reason with the most time first.
    pub classes: Vec<ClassWait>,
    pub longest: Vec<LongGap>,
    pub lost: Vec<String>,
}

pub(super) fn of(gaps: Gaps, trace: &Trace) -> GapsReport {
    let Gaps { ordered, levels, mut followed } = gaps;
    let (levels, _) = levels.finish();
    if trace.origin == Origin::Kernel {
        followed.queues.retain(|_, queue| queue.dispatches > 0);
    }

    let mut lost = trace.lost.clone();
    let told = [
        (ordered.late(), "event(s) too far out of their order to be followed"),
        (followed.events_left_out, "event(s) of further queues, which are left out"),
    ];
    lost.extend(told.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{} {what}", format_count(*n))));

    let Followed { longer_than_ns, queues, mut disks, classes, longest, .. } = followed;
    let classes = class_waits(&classes, trace);
    let longest = longest.iter().map(|it| long_gap(it, &disks, trace)).collect();
    let disks = disks
        .iter_mut()
        .filter(|(_, disk)| disk.begin_ns.is_some())
        .map(|(number, disk)| {
            let of_disk: Vec<(&QueueKey, &Queue)> = queues.iter().filter(|(key, _)| key.0 == *number).collect();
            let mut report = disk_gaps(trace.disk_name(*number), disk, &of_disk, longer_than_ns);
            let levels = levels.get(number).map_or_else(Levels::default, |levels| (**levels).clone());
            report.verdict = verdict(&report, &disk.slices, levels, &classes, trace.origin);
            report.verdict.remarks.extend(remark_of_lost(&lost));
            report
        })
        .collect();
    GapsReport { schema: SCHEMA, plimsoll: env!("CARGO_PKG_VERSION"), longer_than_ns, disks, classes, longest, lost }
}

fn part(of_ns: f64, whole_ns: f64) -> f64 {
    if whole_ns > 0.0 { of_ns / whole_ns } else { 0.0 }
}

fn disk_gaps(name: String, disk: &mut Disk, queues: &[(&QueueKey, &Queue)], longer_than_ns: u64) -> DiskGaps {
    let begin_ns = disk.begin_ns.unwrap_or(0);
    let duration_ns = disk.end_ns.saturating_sub(begin_ns);
    // Work that waits at the end stands still, but ends with no dispatch: its gap does not count as one.
    for (_, queue) in queues {
        if let Some(still) = queue.stands_at_end(disk.end_ns).filter(|still| still.length_ns() > 0) {
            disk.add(&Standstill { gap_ns: 0, ..still }, longer_than_ns);
        }
        queue.empty_ends(begin_ns, disk.end_ns).into_iter().for_each(|range| disk.add_empty(range));
    }

    let whole_ns = duration_ns as f64 * queues.len() as f64;
    let empty_ns: u64 = queues.iter().map(|(_, queue)| queue.empty_of_ns(begin_ns, disk.end_ns)).sum();
    let ways = disk.slices.joined().ways;
    let reason = |(way, (sums, long)): (usize, (&Way, &Histogram))| ReasonGaps {
        reason: way_name(way),
        gaps: GapStats::of(long),
        time_part: part(sums.total_ns, whole_ns),
        overdue_part: part(sums.overdue_ns, whole_ns),
        overdue_standstills: sums.overdue_standstills(),
    };

    let of_ways = ways.iter().zip(&disk.long).enumerate();
    let mut reasons: Vec<ReasonGaps> = of_ways.filter(|(_, (sums, _))| sums.total_ns > 0.0).map(reason).collect();
    reasons.sort_by(|a, b| b.time_part.total_cmp(&a.time_part));

    let queue = |(key, queue): &(&QueueKey, &Queue)| QueueGaps {
        shard: key.1,
        dispatches: queue.dispatches,
        empty_part: part(queue.empty_of_ns(begin_ns, disk.end_ns) as f64, duration_ns as f64),
        gap_mean_ns: queue.gap_mean_ns(),
        gap_max_ns: queue.gap_max_ns,
    };

    let per_second = |value: f64| if duration_ns > 0 { value * 1e9 / duration_ns as f64 } else { 0.0 };
    let dispatches: u64 = queues.iter().map(|(_, queue)| queue.dispatches).sum();

    DiskGaps {
        disk: name,
        duration_ns,
        gap: GapStats::of(&disk.gap),
        empty_part: part(empty_ns as f64, whole_ns),
        reasons,
        implied: disk.rates.implied(),
        sent_bytes_per_s: per_second(disk.bytes_out as f64),
        sent_per_s: per_second(dispatches as f64),
        queues: queues.iter().map(queue).collect(),
        verdict: Verdict { limiter: Limiter::Unknown, sentence: String::new(), remarks: Vec::new() },
        gap_all: Box::new(std::mem::take(&mut disk.gap)),
        gap_means_ns: disk.gap_windows.means(),
    }
}

/// The requests in the device, as `stages` shows them.
#[derive(Clone, Copy)]
struct InDevice {
    /// Part of the time in which there were any.
    time_part: f64,
    mean: f64,
}

impl InDevice {
    fn of(levels: &Levels) -> InDevice {
        let levels = levels.in_device();
        let time_part: f64 = levels.iter().map(|level| level.time_part).sum();
        let sum: f64 = levels.iter().map(|level| level.time_part * level.depth_mean).sum();
        InDevice { time_part, mean: if time_part > 0.0 { sum / time_part } else { 0.0 } }
    }

    /// Returns whether the device nearly always had enough requests to be the limit.
    fn is_loaded(&self) -> bool {
        self.time_part >= LOADED_PART && self.mean >= LOADED_LEAST
    }

    fn sentence(&self, disk: &DiskGaps) -> String {
        format!(
            "unclear: the queue was empty for {:.0} % of the time, with {:.0} requests in the device for {:.0} % of it; \
             one depth does not show whether the program or the disk is the limit: record several loads for `trace \
             little`",
            100.0 * disk.empty_part,
            self.mean,
            100.0 * self.time_part
        )
    }
}

/// The time of a disk's queues, or of some of it.
struct Seen {
    ways: [Way; WAYS],
    empty_ns: f64,
    curve: Kind,
    held: InDevice,
}

impl Seen {
    fn of(slice: &Slice, levels: &Levels) -> Seen {
        let (curve, held) = (levels.verdict_of_all().kind, InDevice::of(levels));
        Seen { ways: slice.ways, empty_ns: slice.empty_ns, curve, held }
    }

    /// Returns whether the disk is full by its curve.
    fn is_full(&self) -> bool {
        self.curve == Kind::Saturated
    }

    /// Returns the figures without the pauses of the disk's load, `paused_ns` in all.
    fn without_pauses(&self, disk: &DiskGaps, paused_ns: f64) -> Seen {
        let whole_ns = disk.duration_ns as f64;
        let time_part = self.held.time_part * whole_ns / (whole_ns - paused_ns).max(1.0);
        Seen {
            empty_ns: self.empty_ns - paused_ns * disk.queues.len() as f64,
            held: InDevice { time_part, ..self.held },
            ..*self
        }
    }

    /// Returns what stood in the way for the longest time, and that time; `None` if the queues never stood still.
    fn top(&self) -> Option<(usize, &Way)> {
        let ways = self.ways.iter().enumerate().filter(|(_, way)| way.total_ns > 0.0);
        ways.reduce(|top, way| if way.1.total_ns > top.1.total_ns { way } else { top })
    }

    /// Returns whether the queues were empty for longer than anything stood in their way.
    fn is_empty(&self) -> bool {
        self.top().is_none_or(|(_, top)| self.empty_ns >= top.total_ns)
    }

    /// Returns the rate that holds one request at a time, tokens or a limit, and the part of the requests that waited
    /// for it, 0 to 1. While that request is in the device, the queue is empty.
    fn at_rate(&self, disk: &DiskGaps) -> Option<(Limiter, f64)> {
        let in_device_ns = self.held.time_part * disk.duration_ns as f64 * disk.queues.len() as f64;
        let all: u64 = self.ways.iter().map(|way| way.standstills).sum();
        let waited = |(limiter, reason): (Limiter, WaitReason)| {
            let way = self.ways.get(reason as usize)?;
            let is_other = way.overdue_standstills() > MOST || in_device_ns < IN_TURN * self.empty_ns;
            let waited = (limiter, part(way.standstills as f64, all as f64));
            Some(waited).filter(|_| limiter == Limiter::Limit || !is_other)
        };
        let rates = [(Limiter::Tokens, WaitReason::Tokens), (Limiter::Limit, WaitReason::Limit)];
        let held = rates.into_iter().filter_map(waited).find(|(_, part)| *part >= AT_RATE);
        held.filter(|_| self.is_empty())
    }

    /// Returns whether the queues were empty with many in the device all the time: then one depth does not show whether
    /// the program or the disk is the limit.
    fn is_one_depth(&self) -> bool {
        self.is_empty() && !self.is_full() && self.held.is_loaded()
    }

    /// Returns the limiter: it took most of the time.
    fn limiter(&self, disk: &DiskGaps, classes: &[ClassWait], origin: Origin) -> Limiter {
        let top = self.top();
        // Without a dispatch of a request that was seen waiting, the kernel's events do not say when a queue was empty.
        if disk.gap.n == 0 && (top.is_none() || origin == Origin::Kernel) {
            return Limiter::Unknown;
        }

        let Some((way, top)) = top.filter(|_| !self.is_empty()) else {
            return match self.at_rate(disk) {
                Some((limiter, _)) => limiter,
                None if self.is_full() => Limiter::Disk,
                None if self.is_one_depth() || disk.dispatches() < DISPATCHES_LEAST => Limiter::Unknown,
                None => Limiter::Program,
            };
        };

        match WaitReason::ALL.get(way) {
            Some(WaitReason::Tokens) if disk.queues.len() == 1 && top.overdue_standstills() > MOST => Limiter::Turn,
            Some(WaitReason::Tokens) => Limiter::Tokens,
            Some(WaitReason::Limit) => Limiter::Limit,
            Some(WaitReason::Backend) => Limiter::Backend,
            Some(WaitReason::Fairness) => Limiter::Fairness,
            Some(WaitReason::Depth) if self.is_full() => Limiter::Disk,
            Some(WaitReason::Depth) => Limiter::Depth,
            None if self.is_full() => Limiter::Disk,
            None if origin == Origin::Kernel => Limiter::Unknown,
            None if waits_for_turn(classes).is_some() => Limiter::Fairness,
            None => Limiter::Turn,
        }
    }
}

/// Judges a disk: the limiter took most of the time of its queues, and no part of the time decides that alone.
fn verdict(
    disk: &DiskGaps,
    slices: &Parts<Slice, SLICES>,
    mut levels: Levels,
    classes: &[ClassWait],
    origin: Origin,
) -> Verdict {
    // Both have slices of the same length, so that the same time can be left out of both.
    let mut slices = slices.clone();
    slices.lengthen(levels.slice_ns());
    levels.lengthen(slices.length_ns());

    let top = disk.reasons.first();
    let seen = Seen::of(&slices.joined(), &levels);
    let found = seen.limiter(disk, classes, origin);
    let busy = seen.without_pauses(disk, levels.paused_ns());
    let without_pauses = Doubt {
        shows: busy.limiter(disk, classes, origin),
        without: "the time in which nothing was asked for".to_owned(),
    };
    let doubt = Some(without_pauses).filter(|doubt| doubt.shows != found).or_else(|| {
        // Queues may have work before the first piece of the levels, and after their last.
        let of_queues = slices.all().into_iter().map(|(begin_ns, _)| begin_ns);
        let begins_ns: BTreeSet<u64> = levels.slice_begins_ns().into_iter().chain(of_queues).collect();
        let begins_ns: Vec<u64> = begins_ns.into_iter().collect();
        Doubt::find(&begins_ns, found, Limiter::Unknown, |left_out_ns| {
            let mut rest = slices.clone();
            rest.leave_out(left_out_ns);
            let rest = Seen::of(&rest.joined(), &levels.without(left_out_ns));
            // Too little is left for a curve: that shows no other limiter.
            let is_open = found == Limiter::Disk && rest.curve == Kind::Unclear;
            if is_open { Limiter::Unknown } else { rest.limiter(disk, classes, origin) }
        })
    });
    let doubt = doubt.filter(|_| found != Limiter::Unknown);
    let limiter = if doubt.is_some() { Limiter::Unknown } else { found };
    let is_empty = seen.is_empty() && !seen.is_full() && !matches!(limiter, Limiter::Limit | Limiter::Tokens);

    let mut remarks = Vec::new();
    if limiter != Limiter::Fairness
        && let Some(class) = waits_for_turn(classes)
    {
        remarks.push(format!(
            "{} waits for its turn most of its time in the queue ({:.0} %): others are served, as shares demand",
            class.class,
            100.0 * class.part
        ));
    }

    if let Some(top) = top.filter(|top| is_empty && top.time_part > WITH_WORK) {
        let grant = if top.reason == WaitReason::Tokens.name() { format!(". {}", grant(disk)) } else { String::new() };
        let percent = 100.0 * top.time_part;
        remarks.push(format!(
            "with work, its queues stood still mostly for {} ({percent:.0} % of the time){grant}",
            top.reason
        ));
    }

    if let Some(top) = top.filter(|top| limiter == Limiter::Tokens && top.overdue_part > LATE * top.time_part) {
        remarks.push(format!(
            "{:.0} % of the time was after the queue meant to look again: a shard that looked late, or others took the \
             tokens",
            100.0 * top.overdue_part
        ));
    }

    let limited = classes.iter().find(|class| class.reason == WaitReason::Limit.name() && class.part > MOST);
    if let Some(class) = limited.filter(|_| limiter != Limiter::Limit) {
        let percent = 100.0 * class.part;
        remarks.push(format!("{} waits most for its own limit ({percent:.0} %)", class.class));
    }
    let sentence = match doubt {
        // A longer recording of the same load would show no more.
        Some(Doubt { shows: Limiter::Unknown, .. }) if busy.is_one_depth() => busy.held.sentence(disk),
        Some(doubt) => doubt.sentence("unclear", found.words(), doubt.shows.words()),
        None if limiter == Limiter::Unknown && seen.is_one_depth() => seen.held.sentence(disk),
        None => sentence(disk, limiter, limited, seen.at_rate(disk).map(|(_, part)| part)),
    };
    Verdict { limiter, sentence, remarks }
}

/// Returns a class that waits mostly for other classes' turns. A single class waits for itself, not for a turn.
fn waits_for_turn(classes: &[ClassWait]) -> Option<&ClassWait> {
    let is_alone = classes.windows(2).all(|pair| matches!(pair, [one, next] if one.class == next.class));
    classes.iter().filter(|_| !is_alone).find(|class| class.reason == WaitReason::Fairness.name() && class.part > MOST)
}

/// Describes the limiter. `limited` is a class that waits for its limit; `waited` the part of the requests that did, if
/// one is held at a time.
fn sentence(disk: &DiskGaps, limiter: Limiter, limited: Option<&ClassWait>, waited: Option<f64>) -> String {
    let still = disk.reasons.first().map_or(0.0, |top| 100.0 * top.time_part);
    let waited = waited.map(|part| format!("; {:.0} % of its requests waited", 100.0 * part));
    let stood =
        format!("its queues had work and sent nothing for {still:.0} % of the time{}", waited.unwrap_or_default());

    match limiter {
        Limiter::Tokens => {
            format!("tokens: the disk model holds requests back, not the disk: {stood}. {}", grant(disk))
        }
        Limiter::Depth => format!(
            "depth: enough is in the device already (depth or window): {stood}. Whether the disk could do more with \
             more in it: `trace little` of several loads"
        ),
        Limiter::Fairness => {
            "fairness: the shard sends all it can, and classes wait for their turn: shares divide it".to_owned()
        }
        Limiter::Limit => {
            let whose = limited.map_or_else(
                || "a limit of a class, or of a group,".to_owned(),
                |class| format!("the limit of `{}`, or of its group,", class.class),
            );
            format!("limit: {whose} holds requests back: {stood}")
        }
        Limiter::Backend => format!("backend: it took nothing more: {stood}. Give it more entries"),
        Limiter::Disk => {
            "the disk: with more in it latency grows and throughput stays; nothing above it holds back".to_owned()
        }
        Limiter::Program => format!(
            "the program: it offers too little; the queue was empty for {:.0} % of the time. More parallelism shows \
             whether the disk can do more",
            100.0 * disk.empty_part
        ),
        Limiter::Turn => format!(
            "the shard: nothing that is known stood in the way, and it did not look for {still:.0} % of the time: \
             late turns, or a CPU that is busy"
        ),
        Limiter::Unknown if disk.dispatches() == 0 => {
            "not known: the trace has no dispatch to this disk: record for longer, or the disk below it".to_owned()
        }
        Limiter::Unknown if disk.gap.n == 0 => {
            "not known: the trace does not say when a request was queued that was dispatched: record for longer, and \
             all kinds of events"
                .to_owned()
        }
        Limiter::Unknown if disk.dispatches() < DISPATCHES_LEAST => {
            format!("not known: {} dispatches to this disk show too little: record for longer", disk.dispatches())
        }
        Limiter::Unknown => {
            "not known: the kernel does not say why requests waited: a trace of the program (--trace) does".to_owned()
        }
    }
}

/// Describes the rates that the model grants, and whether they look like a default.
fn grant(disk: &DiskGaps) -> String {
    let Some(implied) = disk.implied.iter().max_by_key(|implied| implied.pieces) else {
        return "The trace has no costs".to_owned();
    };
    let [shortest, longest] =
        [implied.len_min_bytes, implied.len_max_bytes].map(|bytes| format_bytes_binary(u64::from(bytes)));
    let bytes = throughput(implied.bytes_per_s);
    let granted = match implied.iops {
        Some(iops) => format!("{} IOPS of {shortest} and {bytes} of {longest}", format_iops_short(iops)),
        None => {
            let iops = implied.bytes_per_s / f64::from(implied.len_max_bytes).max(1.0);
            format!("{bytes} ({} IOPS of {longest})", format_iops_short(iops))
        }
    };
    let looks = implied.looks_like.as_ref().map(|power| format!("; that looks like a default ({power}), not a disk"));
    format!("It grants {granted} to {}s{}", implied.direction, looks.unwrap_or_default())
}

fn class_waits(classes: &BTreeMap<u16, [Waits; super::WAYS]>, trace: &Trace) -> Vec<ClassWait> {
    let mut found = Vec::new();
    for (number, waits) in classes {
        let total_ns: f64 = waits.iter().map(|waits| waits.total_ns as f64).sum();
        let wait = |(way, waits): (usize, &Waits)| ClassWait {
            class: trace.class_name(*number),
            reason: if way == NOTHING { "none" } else { way_name(way) },
            n: waits.n,
            mean_ns: waits.total_ns as f64 / waits.n.max(1) as f64,
            max_ns: waits.max_ns,
            part: part(waits.total_ns as f64, total_ns),
        };
        let mut of_class: Vec<ClassWait> = waits.iter().enumerate().filter(|(_, w)| w.n > 0).map(wait).collect();
        of_class.sort_by(|a, b| b.part.total_cmp(&a.part));
        found.extend(of_class);
    }
    found
}

fn long_gap(gap: &(Standstill, Piece, u16), disks: &BTreeMap<u16, Box<Disk>>, trace: &Trace) -> LongGap {
    let (still, piece, disk) = gap;
    let begin_ns = disks.get(disk).and_then(|disk| disk.begin_ns).unwrap_or(0);
    LongGap {
        at_ns: still.until_ns.saturating_sub(begin_ns),
        length_ns: still.length_ns(),
        reason: way_name(still.longest_way()),
        class: trace.class_name(piece.class),
        op: piece.op.name(),
        len_bytes: piece.len_bytes,
        shard: piece.shard,
        disk: trace.disk_name(*disk),
        request: piece.request,
    }
}

impl GapsReport {
    /// Returns a CSV line for each disk and reason; the reason `gap` stands for all dispatch gaps of the disk.
    pub fn to_csv(&self) -> String {
        type Row<'a> = (&'a DiskGaps, &'a str, &'a GapStats, Option<&'a ReasonGaps>);
        let columns: &[Column<Row<'_>>] = &[
            ("disk", |it| it.0.disk.clone()),
            ("limiter", |it| format!("{:?}", it.0.verdict.limiter).to_lowercase()),
            ("reason", |it| it.1.to_owned()),
            ("n", |it| it.2.n.to_string()),
            ("mean_ns", |it| fixed(it.2.mean_ns, 1)),
            ("p50_ns", |it| it.2.p50_ns.to_string()),
            ("p99_ns", |it| it.2.p99_ns.to_string()),
            ("max_ns", |it| it.2.max_ns.to_string()),
            ("time_part", |it| fixed(it.3.map(|reason| reason.time_part), 6)),
            ("overdue_part", |it| fixed(it.3.map(|reason| reason.overdue_part), 6)),
        ];

        let rows = self.disks.iter().flat_map(|disk| {
            let reasons = disk.reasons.iter().map(move |it| (disk, it.reason, &it.gaps, Some(it)));
            std::iter::once((disk, "gap", &disk.gap, None)).chain(reasons)
        });
        csv(&rows.collect::<Vec<Row<'_>>>(), columns)
    }
}

impl GapStats {
    /// Returns the figures for people: number, mean, p50, p99, max.
    pub fn cells(&self) -> [String; 5] {
        let ns = format_duration_ns;
        [format_count(self.n), ns(self.mean_ns as u64), ns(self.p50_ns), ns(self.p99_ns), ns(self.max_ns)]
    }
}
