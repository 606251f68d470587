//! What was measured beside the four figures: curves, blocks, mixes, rounds, single operations.
//!
//! # Why
//! Four figures say how much; these say where it bends.
//!
//! # How it works
//! Plain data, part of [`super::TuneReport`].
//!
//! # Limits
//! Each is there only if it was measured.
//!
//! # Example
//! Random reads at depths 1, 2, 4 ... 256; the knee at depth 32, where 219 k reads a second take 146 us each.

use serde::{Deserialize, Serialize};

/// A short measurement at one depth.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// Requests under way, all shards together.
    pub depth: u32,
    /// The rate, in the unit of the figure.
    pub rate: f64,
}

/// Latency of one request at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnloadedLatency {
    /// Half of the requests took no longer, in nanoseconds.
    pub p50_ns: u64,
    /// 99 of 100 took no longer, in nanoseconds.
    pub p99_ns: u64,
    /// How many requests were measured, at least 1.
    pub requests: u64,
    /// Length of a request in bytes.
    pub block_bytes: u32,
}

/// A rate over the number of requests under way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DepthCurve {
    /// Length of a request in bytes.
    pub block_bytes: u32,
    /// By rising depth.
    pub points: Vec<DepthPoint>,
    /// Where more depth buys little but latency; `null` where the curve has no such place.
    pub knee: Option<Knee>,
}

/// One depth.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DepthPoint {
    /// Requests under way, all shards together.
    pub depth: u32,
    /// Requests a second.
    pub iops: f64,
    /// Half of the requests took no longer, in nanoseconds.
    pub p50_ns: u64,
    /// 99 of 100 took no longer, in nanoseconds.
    pub p99_ns: u64,
}

/// The operating point of a depth curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Knee {
    /// The smallest measured depth from which on a doubling brings less than a quarter more.
    pub depth: u32,
    /// Requests a second there.
    pub iops: f64,
    /// Median latency there, in nanoseconds.
    pub p50_ns: u64,
    /// Requests that the disk works on at once when it is saturated and none waits: the best rate times the unloaded
    /// latency (Little's law).
    pub concurrency: f64,
}

/// Rates by size, at random positions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SizeCurve {
    /// By rising size.
    pub points: Vec<SizePoint>,
    /// What the scheduler's cost function (form `knee`) of the four figures makes of each size, in per cent of the
    /// measured device time; empty where figures are missing.
    pub model_residuals_pct: Vec<f64>,
    /// The cost function that fits the points best.
    pub fit: Option<CostFit>,
}

/// Device time by length: `max(floor_ns, base_ns + ns_per_byte * length)`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostFit {
    /// The least that any request costs, in nanoseconds.
    pub floor_ns: f64,
    /// The line at length 0, in nanoseconds.
    pub base_ns: f64,
    /// What each byte adds on the line, in nanoseconds.
    pub ns_per_byte: f64,
    /// For each size: how much more the fit says than was measured, in per cent of the measured device time.
    pub residuals_pct: Vec<f64>,
}

impl CostFit {
    /// Device time of a request of `bytes`, in nanoseconds.
    #[must_use]
    pub fn cost_ns(&self, bytes: u32) -> f64 {
        self.floor_ns.max(self.base_ns + self.ns_per_byte * f64::from(bytes))
    }
}

/// One size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SizePoint {
    /// Length of a request in bytes.
    pub block_bytes: u32,
    /// Requests a second.
    pub iops: f64,
    /// Bytes a second.
    pub bytes_per_s: f64,
    /// Requests under way, all shards together.
    pub depth: u32,
}

/// Rates by size, one request after the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SequentialCurve {
    /// By rising size.
    pub points: Vec<SizePoint>,
    /// The least size that moves (within 5 %) as many bytes a second as any longer one; `null` where not even the
    /// longest does surely.
    pub saturation_bytes: Option<u32>,
}

/// In which blocks the disk writes, found by experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhysicalBlock {
    /// Bytes.
    pub bytes: u32,
    /// What the kernel reports.
    pub reported_bytes: Option<u32>,
    /// Whether shorter writes were clearly slower, so that `bytes` is more than a limit of what was tried.
    pub is_step: bool,
    /// How many times as many writes of `bytes` as of half of it go through in a second; 1 without a step.
    pub gain: f64,
    /// How many times as many aligned writes of 4 KiB as shifted ones; 1 where they differ by no more than chance, `null`
    /// where shifted ones are not possible.
    pub misalignment_factor: Option<f64>,
}

/// What the disk carries of reads and writes together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Frontier {
    /// Random reads of `read_block_bytes` alone, requests a second.
    pub read_iops: f64,
    /// Length of the reads.
    pub read_block_bytes: u32,
    /// Sequential writes of `write_block_bytes` alone, bytes a second.
    pub write_bytes_per_s: f64,
    /// Length of the writes.
    pub write_block_bytes: u32,
    /// What was carried, as parts of the two: from reads alone to writes alone.
    pub points: Vec<FrontierPoint>,
    /// p in (r/R)^p + (w/W)^p = 1, above 0; `null` where they do not disturb each other (p infinite).
    pub mix_exponent_p: Option<f64>,
    /// Root of the mean squared distance of the points from that curve, in parts of 1.
    pub rmse: f64,
}

/// One ray from the origin.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FrontierPoint {
    /// Reads, as a part of what reads alone reach.
    pub reads: f64,
    /// Writes, as a part of what writes alone reach.
    pub writes: f64,
}

/// How the rounds of a full measurement went, by the rules of SNIA's performance test specification: in five rounds the
/// range is at most 20 % of the mean, and the best line moves by at most 10 % of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SteadyState {
    /// Whether all four figures became steady in the same five rounds.
    pub attained: bool,
    /// Rounds that were made.
    pub rounds: u32,
    /// Length of each condition of a round in seconds.
    pub round_s: f64,
    /// Part of the disk that was written and measured, in per cent; `null` where the disk's size is unknown.
    pub active_range_pct: Option<f64>,
    /// Bytes that were written beforehand, sequentially.
    pub precondition_bytes: u64,
    /// The four figures.
    pub tracks: Vec<SteadyTrack>,
}

/// One figure over the rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SteadyTrack {
    /// Its name in io-properties.
    pub figure: String,
    /// Its rate in each round.
    pub rates: Vec<f64>,
    /// The first round (from 0) that ended five steady ones; the four figures need not be steady together by then.
    pub first_steady: Option<usize>,
    /// The round (from 0) with which the window of five begins.
    pub window_begin: usize,
    /// The last five rounds.
    #[serde(flatten)]
    pub window: SteadyWindow,
}

/// Five rounds, as the specification wants them reported.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SteadyWindow {
    /// Mean rate, in the unit of the rates; positive.
    pub mean: f64,
    /// Largest rate less smallest, in per cent of the mean.
    pub range_pct: f64,
    /// How much the line changes across the window, in per cent of the mean; never negative.
    pub slope_pct: f64,
    /// How much the line rises each round, in the unit of the rates; negative when it falls.
    pub slope_per_round: f64,
    /// The line at the first round of the window, in the unit of the rates.
    pub intercept: f64,
    /// Whether both are within their bounds.
    pub attained: bool,
}

/// What one kind of operation takes, one at a time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperationCost {
    /// Half of them took no longer, in nanoseconds.
    pub p50_ns: u64,
    /// 99 of 100 took no longer, in nanoseconds.
    pub p99_ns: u64,
    /// How many were measured.
    pub operations: u64,
    /// What exactly.
    pub what: String,
}

/// Whether a kind of submission blocks the thread that makes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SubmissionCost {
    /// `append`, `overwrite`, and so on.
    pub kind: String,
    /// Length of a write in bytes.
    pub block_bytes: u32,
    /// Writes under way.
    pub depth: u32,
    /// How often the thread had to give up its CPU for a submission, on average.
    pub context_switches_per_operation: f64,
    /// Median time of a submission, in nanoseconds.
    pub submit_p50_ns: u64,
    /// Longest, in nanoseconds.
    pub submit_max_ns: u64,
    /// Part of the writes refused when told not to wait (`RWF_NOWAIT`); `null` where that cannot be asked.
    pub nowait_refused: Option<f64>,
    /// Whether it blocks: at least one context switch in ten submissions.
    pub blocks: bool,
}

/// Queues and requests for scheduling by depth alone, as Seastar's `--num-io-queues` and `--max-io-requests`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DepthMode {
    /// I/O queues.
    pub num_io_queues: u16,
    /// Requests in flight, all queues together.
    pub max_io_requests: u32,
    /// Why.
    pub reason: String,
}
