//! The totals of the reports of a disk's queues: the controller's view of the disk.

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
    /// Sum of the completions' [`unloaded_work`]. Wraps.
    pub(crate) unloaded_work: u64,
    /// Latencies from dispatch to completion, each clipped at [`super::Controller::latency_clip_ns`].
    pub(crate) latency_ns: u64,
    /// The part of `latency_ns` in which completions may have been waiting unseen.
    pub(crate) late_ns: u64,
    /// Time for which the device was dry because a queue with more work was absent (`queue/away`).
    pub(crate) dry_ns: u64,
    /// The longest absence of the reporting queue since its last report, if the device ran dry.
    pub(crate) longest_away_ns: u64,
    /// Wake-ups of guests (`trim`): times that a class with nothing queued got a request and found the window full,
    /// with nothing in the device either, or with little outstanding and without asking for its share.
    pub(crate) wakeups: u64,
    /// Model device time in flight now.
    pub(crate) in_flight_ns: u64,
    /// Requests in flight now.
    pub(crate) in_flight_requests: u32,
    /// Times that a queue had a request and found the window full.
    pub(crate) window_blocks: u64,
    /// Most completions that queues other than the reporting one have seen and not reported yet, none of them longer
    /// than [`super::tuning::STEP_NS`] ago.
    pub(crate) unseen_completions: u64,
    /// [`super::DEMAND_PART`] x the least, over the classes that ask for their share, of outstanding device time / part
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
