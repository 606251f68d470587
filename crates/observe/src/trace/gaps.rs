//! Why a queue with work sent nothing: the gaps between dispatches, and what stood in the way.
//!
//! **Why.** If requests wait for an idle disk, something above the disk holds them back. One dispatch after 83 us
//! instead of 1 us shows that, if the reason of the wait is known.
//!
//! **How.** The analysis follows each I/O queue (one shard's, to one disk) event by event. While a queue has work and
//! sends nothing, it stands still. A standstill ends with the next dispatch and is divided by what stood in the way:
//!
//! ```text
//!   dispatch        blocked: depth          back     dispatch
//!   or queued ------------|------------------|----------|
//!             nothing known        depth     nothing known
//!             (the shard's turn)             (the shard's turn)
//! ```
//!
//! Tokens and limits block until the dispatch; the time after the queue's planned retry also counts as overdue. Depth
//! and the backend block until the last piece came back. Without a `Blocked` event the reason of the dispatched piece
//! counts, unless it is fairness; without a reason nothing is known: the shard did not poll.
//!
//! The *dispatch gap* is the last part of a standstill, up to the dispatch. It begins with the last event that could
//! have let the queue send: a request that enters an empty queue, a dispatch, or a piece that comes back, unless tokens
//! or a limit are missing. A *dispatch* is when a piece leaves the queue; requests in the device count from D on, as in
//! [`super::stages`].
//!
//! The limiter ([`Limiter`]) took most of the time of a disk's queues. If the disk has one queue, and tokens were
//! overdue for most of most standstills, the limiter is the shard's lateness. For tokens, costs and lengths of the
//! pieces give the rates of the model that granted them.
//!
//! If the limiter differs without a part of the time (`doubt.rs`), or without pauses in which the disk had no requests,
//! it is unclear.
//!
//! A piece whose dispatch is not in the trace leaves the queue when it comes back. A piece that is never dispatched
//! waits at the end of the trace if no later piece of its class was dispatched on its queue; otherwise its events are
//! lost.
//!
//! **Limits.** At most [`QUEUES_MAX`] queues; events of further ones are left out and counted. Times may be out of
//! order within [`super::order`]'s bound. Kernel traces give no reasons. If tokens were overdue, other queues took them
//! or the shard polled late; only with one shard is it surely the latter.
//!
//! **Example.** Queued at 51 us and sent at 134 us, because there were no tokens:
//! ```
//! use plimsoll::core::trace::{Event, EventKind};
//! use plimsoll::core::{Op, WaitReason};
//! use plimsoll::trace::format::{Clock, Writer};
//! use plimsoll_observe::trace::gaps::Gaps;
//! use plimsoll_observe::trace::read_from;
//!
//! let at = |time_ns, kind, reason| Event {
//!     time_ns, request: 1, offset_bytes: 0, len_bytes: 1 << 20, detail: 0, class: 1, disk: 0, piece: 0, kind,
//!     op: Op::Write, reason,
//! };
//! let events = [
//!     at(51_000, EventKind::Queued, None),
//!     at(51_000, EventKind::Blocked, Some(WaitReason::Tokens)),
//!     at(134_000, EventKind::Dispatched, Some(WaitReason::Tokens)),
//!     at(600_000, EventKind::Reaped, None),
//! ];
//! let mut file = Vec::new();
//! Writer::new(&mut file, Clock::Virtual, 0)?.events(0, 0, &events)?;
//! let mut gaps = Gaps::new(10_000);
//! let trace = read_from(file.as_slice(), &mut |item| gaps.visit(&item))?;
//! let report = gaps.finish(&trace);
//! assert_eq!((report.disks[0].gap.p50_ns, report.longest[0].reason), (83_000, "tokens"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod queue;
mod rate;
mod report;

use std::collections::BTreeMap;
use std::ops::Range;

use plimsoll::core::trace::EventKind;
use plimsoll::core::{Histogram, Op, WaitReason};

pub use rate::Implied;
pub use report::{ClassWait, DiskGaps, GapStats, GapsReport, Limiter, LongGap, QueueGaps, ReasonGaps, SCHEMA, Verdict};

use super::levels::{DisksLevels, SLICES};
use super::order::Ordered;
use super::parts::{Join, Parts, Windows};
use super::span::{Item, Span, Trace};
use crate::entry_within;
use queue::{Queue, Standstill};
use rate::Rates;

pub const QUEUES_MAX: usize = 1024;

/// Most standstills in [`GapsReport::longest`].
pub const LONGEST: usize = 10;

/// Number of things that can stand in the way: the reasons in their order, then "nothing known".
const WAYS: usize = WaitReason::ALL.len() + 1;
const NOTHING: usize = WAYS - 1;

/// Returns the name of what stands in the way.
fn way_name(way: usize) -> &'static str {
    WaitReason::ALL.get(way).map_or("nothing known", |reason| reason.name())
}

/// A piece, at its dispatch.
#[derive(Clone, Copy, Debug)]
struct Piece {
    class: u16,
    shard: u16,
    op: Op,
    len_bytes: u32,
    request: u64,
    reason: Option<WaitReason>,
    was_queued: bool,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Back,
    Queued,
    Out(Piece),
    /// A piece comes back whose dispatch is not in the trace.
    Gone,
    Blocked {
        reason: WaitReason,
        until_ns: Option<u64>,
    },
}

/// Order of events at the same time. A piece dispatched and back at the same time comes back after its dispatch.
const RANK_BACK: u8 = 0;
const RANK_QUEUED: u8 = 1;
const RANK_OUT: u8 = 2;
const RANK_BACK_AT_ONCE: u8 = 3;
const RANK_BLOCKED: u8 = 4;

/// A queue: its disk, then its shard.
type QueueKey = (u16, u16);

#[derive(Default)]
struct Disk {
    slices: Parts<Slice, SLICES>,
    /// Parts of standstills of at least `longer_than_ns`, by what stood in the way.
    long: [Histogram; WAYS],
    gap: Histogram,
    gap_windows: Windows,
    rates: Rates,
    bytes_out: u64,
    begin_ns: Option<u64>,
    end_ns: u64,
}

/// Sums of a slice of the time.
#[derive(Clone, Copy, Default)]
struct Slice {
    ways: [Way; WAYS],
    /// Time in which queues had no work.
    empty_ns: f64,
}

impl Join for Slice {
    fn join(&mut self, other: &Slice) {
        self.ways.join(&other.ways);
        self.empty_ns += other.empty_ns;
    }
}

/// Sums of one thing that stood in the way.
#[derive(Clone, Copy, Default)]
struct Way {
    total_ns: f64,
    overdue_ns: f64,
    /// Standstills that were mostly of this kind; `overdue` counts those of them that were mostly overdue.
    standstills: u64,
    overdue: u64,
}

impl Way {
    /// Returns the part of the standstills that were mostly overdue, 0 to 1.
    fn overdue_standstills(&self) -> f64 {
        if self.standstills == 0 { 0.0 } else { self.overdue as f64 / self.standstills as f64 }
    }
}

impl Join for Way {
    fn join(&mut self, other: &Way) {
        self.total_ns += other.total_ns;
        self.overdue_ns += other.overdue_ns;
        self.standstills += other.standstills;
        self.overdue += other.overdue;
    }
}

/// Waits of a class's pieces from submission to dispatch.
#[derive(Clone, Copy, Default)]
struct Waits {
    n: u64,
    total_ns: u64,
    max_ns: u64,
}

/// Most undispatched pieces held for each class and queue.
const NEVER_OUT_MAX: usize = 1 << 16;

/// A class on a queue. Undispatched pieces queued after the last dispatched one wait at the end; earlier ones are lost.
#[derive(Default)]
struct Turn {
    /// When the latest dispatched piece was queued.
    last_out_ns: u64,
    /// When the undispatched pieces were queued.
    never_out_ns: Vec<u64>,
}

impl Turn {
    fn never_out(&mut self, queued_ns: u64) {
        if self.never_out_ns.len() < NEVER_OUT_MAX {
            self.never_out_ns.push(queued_ns);
        }
    }

    /// Returns since when a piece waits at the end.
    fn waits_since_ns(&self) -> Option<u64> {
        self.never_out_ns.iter().copied().filter(|queued_ns| *queued_ns >= self.last_out_ns).min()
    }
}

/// The analysis while the trace is read.
pub struct Gaps {
    ordered: Ordered<(QueueKey, What)>,
    levels: DisksLevels,
    followed: Followed,
}

/// The part of the analysis that takes events in the order of time.
#[derive(Default)]
struct Followed {
    longer_than_ns: u64,
    queues: BTreeMap<QueueKey, Queue>,
    disks: BTreeMap<u16, Box<Disk>>,
    classes: BTreeMap<u16, [Waits; WAYS]>,
    longest: Vec<(Standstill, Piece, u16)>,
    turns: BTreeMap<(QueueKey, u16), Turn>,
    events_left_out: u64,
}

impl Gaps {
    /// Returns an analysis that counts parts of at least `longer_than_ns` by reason. All parts count in times, and all
    /// gaps in percentiles.
    pub fn new(longer_than_ns: u64) -> Gaps {
        let followed = Followed { longer_than_ns, ..Followed::default() };
        Gaps { ordered: Ordered::default(), levels: DisksLevels::default(), followed }
    }

    pub fn visit(&mut self, item: &Item) {
        match item {
            Item::Span(span) => self.visit_span(span),
            Item::Event(shard, event) => {
                if let (EventKind::Blocked, Some(reason)) = (event.kind, event.reason) {
                    let wait_ns = Some(u64::from(event.detail)).filter(|wait_ns| *wait_ns > 0);
                    let until_ns = wait_ns.map(|wait_ns| event.time_ns.saturating_add(wait_ns));
                    let blocked = What::Blocked { reason, until_ns };
                    self.push((event.disk, *shard), event.time_ns, RANK_BLOCKED, blocked);
                }
            }
        }
    }

    pub fn finish(mut self, trace: &Trace) -> GapsReport {
        let followed = &mut self.followed;
        self.ordered.finish(&mut |time_ns, (key, what)| followed.take(key, time_ns, what));
        followed.wait_at_end();
        report::of(self, trace)
    }

    fn visit_span(&mut self, span: &Span) {
        if span.is_cancelled_in_queue() {
            // The trace does not say when the piece was cancelled, so it is treated as never queued.
            return;
        }

        self.levels.visit(span);
        // The queue has sent a piece when it is dispatched, though it may be in the device later.
        let out_ns = span.dispatched_ns.or(span.submitted_ns);
        // The kernel has no queue for each CPU.
        let is_of_kernel = span.dispatched_ns.is_none() && span.submitted_ns.is_some();
        let key = (span.disk, if is_of_kernel { 0 } else { span.shard });
        let ended_ns = span.in_device().gone_ns.or(span.callback_ns);
        let queued_ns = span.queued_ns.filter(|queued_ns| out_ns.is_none_or(|out_ns| *queued_ns <= out_ns));

        if let Some(queued_ns) = queued_ns {
            let turn = self.followed.turns.entry((key, span.class)).or_default();
            if out_ns.or(ended_ns).is_none() {
                return turn.never_out(queued_ns);
            }
            turn.last_out_ns = turn.last_out_ns.max(queued_ns);
            self.push(key, queued_ns, RANK_QUEUED, What::Queued);
        }
        let Some(out_ns) = out_ns else {
            if let (Some(queued_ns), Some(ended_ns)) = (queued_ns, ended_ns) {
                self.push(key, ended_ns.max(queued_ns), RANK_OUT, What::Gone);
            }
            return;
        };

        let back_ns = span.in_device().gone_ns.filter(|back_ns| *back_ns >= out_ns);
        let piece = Piece {
            class: span.class,
            shard: span.shard,
            op: span.op,
            len_bytes: span.len_bytes,
            request: span.request,
            reason: span.reason,
            was_queued: queued_ns.is_some(),
        };
        self.followed.note_piece(span, out_ns);
        self.push(key, out_ns, RANK_OUT, What::Out(piece));
        if let Some(back_ns) = back_ns {
            let rank = if back_ns == out_ns { RANK_BACK_AT_ONCE } else { RANK_BACK };
            self.push(key, back_ns, rank, What::Back);
        }
    }

    fn push(&mut self, key: QueueKey, time_ns: u64, rank: u8, what: What) {
        let followed = &mut self.followed;
        self.ordered.push(time_ns, rank, (key, what), &mut |time_ns, (key, what)| followed.take(key, time_ns, what));
    }
}

impl Followed {
    /// Adds the figures that need no order: the cost, and the wait of the class.
    fn note_piece(&mut self, span: &Span, out_ns: u64) {
        if let Some(disk) = entry_within(&mut self.disks, span.disk, QUEUES_MAX) {
            disk.bytes_out = disk.bytes_out.saturating_add(u64::from(span.len_bytes));
            if let Some(cost_ns) = span.cost_ns {
                disk.rates.add(span.op, span.len_bytes, cost_ns);
            }
        }
        if let Some(wait_ns) = span.queued_ns.and_then(|queued_ns| out_ns.checked_sub(queued_ns)) {
            let way = span.reason.map_or(NOTHING, |reason| reason as usize);
            if let Some(waits) = self.classes.entry(span.class).or_default().get_mut(way) {
                waits.n += 1;
                waits.total_ns = waits.total_ns.saturating_add(wait_ns);
                waits.max_ns = waits.max_ns.max(wait_ns);
            }
        }
    }

    /// Returns a queue, begun at `time_ns` if it is new, and its disk; `None` if there are too many queues.
    fn queue(&mut self, key: QueueKey, time_ns: u64) -> Option<(&mut Queue, &mut Disk)> {
        if self.queues.len() >= QUEUES_MAX && !self.queues.contains_key(&key) {
            return None;
        }
        let queue = self.queues.entry(key).or_insert_with(|| Queue::new(time_ns));
        Some((queue, self.disks.entry(key.0).or_default()))
    }

    fn take(&mut self, key: QueueKey, time_ns: u64, what: What) {
        let longer_than_ns = self.longer_than_ns;
        let Some((queue, disk)) = self.queue(key, time_ns) else {
            self.events_left_out += 1;
            return;
        };
        disk.begin_ns = Some(disk.begin_ns.unwrap_or(time_ns));
        disk.end_ns = time_ns;

        match what {
            What::Queued => disk.add_empty(queue.queued(time_ns)),
            What::Back => queue.back(time_ns),
            What::Gone => queue.gone(time_ns),
            What::Blocked { reason, until_ns } => queue.blocked(time_ns, reason, until_ns),
            What::Out(piece) => {
                if let Some(still) = queue.out(time_ns, piece.was_queued, piece.reason) {
                    disk.add(&still, longer_than_ns);
                    self.keep_longest(still, piece, key.0);
                }
            }
        }
    }

    /// Adds the work that waits at the end of the trace.
    fn wait_at_end(&mut self) {
        for ((key, _), turn) in std::mem::take(&mut self.turns) {
            let Some(since_ns) = turn.waits_since_ns() else { continue };
            if let Some((queue, disk)) = self.queue(key, since_ns) {
                disk.add_empty(queue.waits_at_end(since_ns));
                disk.begin_ns = Some(disk.begin_ns.map_or(since_ns, |begin_ns| begin_ns.min(since_ns)));
                disk.end_ns = disk.end_ns.max(since_ns);
            }
        }
    }

    fn keep_longest(&mut self, still: Standstill, piece: Piece, disk: u16) {
        let length_ns = still.length_ns();
        if length_ns < self.longer_than_ns.max(1) {
            return;
        }
        let at = self.longest.partition_point(|(kept, _, _)| kept.length_ns() >= length_ns);
        if at < LONGEST {
            self.longest.insert(at, (still, piece, disk));
            self.longest.truncate(LONGEST);
        }
    }
}

impl Disk {
    fn add(&mut self, still: &Standstill, longer_than_ns: u64) {
        self.gap.record(still.gap_ns);
        self.gap_windows.add(still.until_ns, still.gap_ns as f64);
        for (long, part_ns) in self.long.iter_mut().zip(still.parts_ns) {
            if part_ns > 0 && part_ns >= longer_than_ns {
                long.record(part_ns);
            }
        }

        // Whole ns, so that sums are exact. The remainder of rounding counts in the slice where the standstill ends.
        let mut left_ns = still.parts_ns.map(|part_ns| part_ns as f64);
        let shares = still.parts_ns.map(|part_ns| part_ns as f64 / still.length_ns() as f64);
        self.slices.spread(still.from_ns, still.until_ns, |slice, within_ns| {
            for ((way, left_ns), share) in slice.ways.iter_mut().zip(&mut left_ns).zip(shares) {
                let part_ns = (share * within_ns).round().min(*left_ns);
                way.total_ns += part_ns;
                *left_ns -= part_ns;
            }
        });
        let Some(Slice { ways, .. }) = self.slices.at(still.until_ns) else { return };
        ways.iter_mut().zip(left_ns).for_each(|(way, left_ns)| way.total_ns += left_ns);
        if let Some(way) = ways.get_mut(still.longest_way()) {
            way.overdue_ns += still.overdue_ns as f64;
            way.standstills += 1;
            way.overdue += u64::from(2 * still.overdue_ns > still.length_ns());
        }
    }

    /// Adds a time in which a queue had no work.
    fn add_empty(&mut self, time_ns: Range<u64>) {
        self.slices.spread(time_ns.start, time_ns.end, |slice, within_ns| slice.empty_ns += within_ns);
    }
}

#[cfg(test)]
mod tests;
