//! What the queues of a disk have reported in all: the controller's view of the disk.

/// Totals of one direction of a duplex disk; on other disks all work is in the first lane.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LaneTotals {
    /// Model device time completed, in quarter nanoseconds.
    pub(crate) completed_ticks: u64,
    /// Times that the window was full for a request although this direction had its part of the work in flight.
    pub(crate) window_blocks: u64,
    /// Times that tokens were missing.
    pub(crate) token_blocks: u64,
}

/// Running totals over all shards. All only grow, except the work in flight and the cap.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    /// Requests completed.
    pub(crate) completions: u64,
    /// Model device time completed, in quarter nanoseconds ([`crate::bucket::TICKS_PER_NS`]).
    pub(crate) completed_ticks: u64,
    /// Their [`unloaded_work`]. Wraps.
    pub(crate) unloaded_work: u64,
    /// Latencies from dispatch to completion, each clipped at [`super::Controller::latency_clip_ns`].
    pub(crate) latency_ns: u64,
    /// The part of `latency_ns` in which completions may have been back and not seen.
    pub(crate) late_ns: u64,
    /// Time for which the device had nothing to do because a queue with more did not look.
    pub(crate) dry_ns: u64,
    /// The longest time since the reporting queue's last report for which it did not look, if the device ran dry.
    pub(crate) longest_away_ns: u64,
    /// Times that a class of which nothing was queued got a request and found the window full, with nothing in the device
    /// either, or little and without asking for its share.
    pub(crate) wakeups: u64,
    /// Model device time in flight now.
    pub(crate) in_flight_ns: u64,
    /// Requests in flight now.
    pub(crate) in_flight_requests: u32,
    /// Times that a queue had a request and found the window full.
    pub(crate) window_blocks: u64,
    /// Most completions that other queues than the one that reports have seen and not reported yet. They are not older
    /// than [`super::tuning::STEP_NS`].
    pub(crate) unseen_completions: u64,
    /// [`super::DEMAND_PART`] x the least, over the classes that ask for their share, of outstanding device time / share
    /// of the disk. `None` if there is no such class.
    pub(crate) outstanding_cap_ns: Option<u64>,
    pub(crate) lanes: [LaneTotals; 2],
}

/// Returns the shortest possible latency of a piece weighted by its device time, for [`Totals::unloaded_work`].
pub(crate) fn unloaded_work(ticks: u64, least_ns: u64) -> u64 {
    (ticks >> UNLOADED_SHIFT).wrapping_mul(least_ns >> UNLOADED_SHIFT)
}

/// Low bits that [`unloaded_work`] drops of each factor, so that the growth between two steps fits.
pub(super) const UNLOADED_SHIFT: u32 = 6;
