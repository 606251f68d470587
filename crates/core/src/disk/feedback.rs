//! The reports of a disk's queues to its controller: completions, lateness, and how often they found no room.
//!
//! # Why
//! The closed loop needs the disk's totals. If each completion of each shard wrote them, their cache line would travel
//! between shards with every request.
//!
//! # How it works
//! A queue gathers a [`Report`] of its own, and adds it to the totals after [`report_completions`] completions or a
//! millisecond. Then it steps the controller, unless another queue is doing so.
//!
//! # Limits
//! The totals lack the completions not reported yet: at most [`UNREPORTED_MOST`] of all queues together.
//!
//! # Example
//! Four queues report after 8 completions each, so 32 completions of a disk may be missing from its totals.

use crate::control::{LaneTotals, Totals};
use crate::sync::{AtomicU64, Ordering};

/// Running totals of the queues' reports.
#[repr(align(128))]
#[derive(Debug, Default)]
pub(super) struct Feedback {
    in_device: AtomicU64,
    completions: AtomicU64,
    completed_ticks: AtomicU64,
    unloaded_work: AtomicU64,
    latency_ns: AtomicU64,
    late_ns: AtomicU64,
    dry_ns: AtomicU64,
    wakeups: AtomicU64,
    window_blocks: AtomicU64,
    lanes: [LaneFeedback; 2],
}

#[derive(Debug, Default)]
struct LaneFeedback {
    completed_ticks: AtomicU64,
    window_blocks: AtomicU64,
    token_blocks: AtomicU64,
}

/// Most completions of all queues together that may not have been reported yet.
pub(super) const UNREPORTED_MOST: u64 = 32;

/// Returns the number of completions after which each of `queues` queues reports them to the controller.
pub(crate) fn report_completions(queues: u64) -> u64 {
    UNREPORTED_MOST / queues
}

/// The completions of a queue since its last report, and how often it found the window full or tokens missing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Report {
    /// Growth of the number of pieces in the device, modulo 2^64.
    pub(crate) in_device: u64,
    pub(crate) completions: u64,
    pub(crate) completed_ticks: u64,
    /// The sum of [`crate::control::unloaded_work`].
    pub(crate) unloaded_work: u64,
    pub(crate) latency_ns: u64,
    pub(crate) late_ns: u64,
    /// The queue's part of [`crate::control::Totals::dry_ns`], and its longest absence.
    pub(crate) dry_ns: u64,
    pub(crate) longest_away_ns: u64,
    /// The queue's part of [`crate::control::Totals::wakeups`].
    pub(crate) wakeups: u64,
    pub(crate) window_blocks: u64,
    pub(crate) lanes: [LaneTotals; 2],
    /// The queue's part of [`crate::control::Totals::outstanding_cap_ns`].
    pub(crate) outstanding_cap_ns: Option<u64>,
}

impl Report {
    /// Returns the report with the completed ticks of the first direction. Queues count only the total and the second.
    pub(crate) fn divided(mut self) -> Report {
        let [first, second] = &mut self.lanes;
        first.completed_ticks = self.completed_ticks - second.completed_ticks;
        self
    }
}

impl Feedback {
    pub(super) fn add(&self, report: &Report) {
        let add = |(total, more): (&AtomicU64, u64)| {
            if more > 0 {
                total.fetch_add(more, Ordering::Relaxed);
            }
        };

        let totals = [
            (&self.in_device, report.in_device),
            (&self.completions, report.completions),
            (&self.completed_ticks, report.completed_ticks),
            (&self.unloaded_work, report.unloaded_work),
            (&self.latency_ns, report.latency_ns),
            (&self.late_ns, report.late_ns),
            (&self.dry_ns, report.dry_ns),
            (&self.wakeups, report.wakeups),
            (&self.window_blocks, report.window_blocks),
        ];
        totals.into_iter().for_each(add);

        for (total, more) in self.lanes.iter().zip(&report.lanes) {
            add((&total.completed_ticks, more.completed_ticks));
            add((&total.window_blocks, more.window_blocks));
            add((&total.token_blocks, more.token_blocks));
        }
    }

    /// Adds the change in a queue's pieces in the device, modulo 2^64.
    pub(super) fn add_in_device(&self, in_device: u64) {
        self.in_device.fetch_add(in_device, Ordering::Relaxed);
    }

    /// Returns the totals so far, without the figures that the disk itself has.
    pub(super) fn totals(&self) -> Totals {
        let total = |of: &AtomicU64| of.load(Ordering::Relaxed);
        Totals {
            completions: total(&self.completions),
            completed_ticks: total(&self.completed_ticks),
            unloaded_work: total(&self.unloaded_work),
            latency_ns: total(&self.latency_ns),
            late_ns: total(&self.late_ns),
            dry_ns: total(&self.dry_ns),
            wakeups: total(&self.wakeups),
            in_flight_requests: total(&self.in_device) as u32,
            window_blocks: total(&self.window_blocks),
            lanes: self.lanes.each_ref().map(|lane| LaneTotals {
                completed_ticks: total(&lane.completed_ticks),
                window_blocks: total(&lane.window_blocks),
                token_blocks: total(&lane.token_blocks),
            }),
            ..Totals::default()
        }
    }
}
