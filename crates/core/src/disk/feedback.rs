//! What the queues of a disk tell its controller: completions, lateness, and how often they found no room.
//!
//! # Why
//! The closed loop needs the disk's totals. If each completion of each shard wrote them, their cache line would travel
//! between shards with every request.
//!
//! # How it works
//! A queue gathers a [`Report`] of its own, and adds it to the totals after [`report_completions`] completions or a
//! millisecond. Then the controller steps, unless another queue is at it.
//!
//! # Limits
//! The totals are as late as the queues may report: [`UNREPORTED_MOST`] completions of all queues together.
//!
//! # Example
//! Four queues report after 8 completions each, so 32 completions of a disk may be missing from its totals.

use crate::control::LaneTotals;
use crate::sync::{AtomicU64, Ordering};

/// Running totals of the queues' reports.
#[repr(align(128))]
#[derive(Debug)]
pub(super) struct Feedback {
    pub(super) in_device: AtomicU64,
    pub(super) completions: AtomicU64,
    pub(super) completed_ticks: AtomicU64,
    pub(super) unloaded_work: AtomicU64,
    pub(super) latency_ns: AtomicU64,
    pub(super) late_ns: AtomicU64,
    pub(super) dry_ns: AtomicU64,
    pub(super) window_blocks: AtomicU64,
    pub(super) lanes: [LaneFeedback; 2],
}

#[derive(Debug)]
pub(super) struct LaneFeedback {
    pub(super) completed_ticks: AtomicU64,
    pub(super) window_blocks: AtomicU64,
    pub(super) token_blocks: AtomicU64,
}

/// Completions of all queues together that may not have been reported yet.
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
    /// The queue's part of [`crate::control::Totals::dry_ns`], and its longest time away.
    pub(crate) dry_ns: u64,
    pub(crate) longest_away_ns: u64,
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
    pub(super) fn new() -> Feedback {
        let [in_device, completions, completed_ticks, unloaded_work, latency_ns, late_ns, dry_ns, window_blocks] =
            [(); 8].map(|()| AtomicU64::new(0));
        let lanes = [(); 2].map(|()| {
            let [completed_ticks, window_blocks, token_blocks] = [(); 3].map(|()| AtomicU64::new(0));
            LaneFeedback { completed_ticks, window_blocks, token_blocks }
        });
        Feedback {
            in_device,
            completions,
            completed_ticks,
            unloaded_work,
            latency_ns,
            late_ns,
            dry_ns,
            window_blocks,
            lanes,
        }
    }

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
            (&self.window_blocks, report.window_blocks),
        ];
        totals.into_iter().for_each(add);

        for (total, more) in self.lanes.iter().zip(&report.lanes) {
            add((&total.completed_ticks, more.completed_ticks));
            add((&total.window_blocks, more.window_blocks));
            add((&total.token_blocks, more.token_blocks));
        }
    }
}
