//! Results beside the four figures: curves, blocks, mixes, rounds, single operations.
//!
//! **Why.** Four figures state the limits of a disk; these show its behaviour below and between them.
//!
//! **How.** Plain data, part of [`super::TuneReport`].
//!
//! **Limits.** Each is present only if it was measured.
//!
//! **Example.** Random reads at depths 1, 2, 4 ... 256; the knee at depth 32, where 219 k reads a second take 146 us
//! each.

use plimsoll_files::depths::DepthRate;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// Requests under way, all shards together.
    pub depth: u32,
    /// The rate, in the unit of the figure.
    pub rate: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnloadedLatency {
    pub p50_ns: u64,
    pub p99_ns: u64,
    /// Number of requests measured, at least 1.
    pub requests: u64,
    pub block_bytes: u32,
}

/// Rates by the number of requests under way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DepthCurve {
    pub block_bytes: u32,
    /// Points by rising depth.
    pub points: Vec<DepthPoint>,
    /// The depth above which more requests add little but latency; `null` if the curve has none.
    pub knee: Option<Knee>,
}

impl DepthCurve {
    /// Returns the points in whole requests a second, without those with a rate of 0.
    pub fn rates(&self) -> Vec<DepthRate> {
        let rate = |point: &DepthPoint| DepthRate {
            depth: point.depth,
            iops: point.iops.round() as u64,
            p50_ns: point.p50_ns,
        };
        self.points.iter().map(rate).filter(|rate| rate.iops > 0).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DepthPoint {
    /// Requests under way, all shards together.
    pub depth: u32,
    pub iops: f64,
    pub p50_ns: u64,
    pub p99_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Knee {
    /// Smallest measured depth from which on a doubling adds less than a quarter.
    pub depth: u32,
    pub iops: f64,
    /// Median latency at that depth, in nanoseconds.
    pub p50_ns: u64,
    /// Requests that the disk works on at once when saturated without a queue: the best rate times the unloaded
    /// latency (Little's law).
    pub concurrency: f64,
}

/// Rates by size, at random positions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SizeCurve {
    /// Points by rising size.
    pub points: Vec<SizePoint>,
    /// Error of the scheduler's cost function (form `knee`) of the four figures at each size, in per cent of the
    /// measured device time; empty if figures are missing.
    pub model_residuals_pct: Vec<f64>,
    /// The cost function that fits the points best.
    pub fit: Option<CostFit>,
}

/// Device time by length: `max(floor_ns, base_ns + ns_per_byte * length)`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostFit {
    /// Least cost of any request, in nanoseconds.
    pub floor_ns: f64,
    /// Cost on the line at length 0, in nanoseconds.
    pub base_ns: f64,
    /// Cost of each byte on the line, in nanoseconds.
    pub ns_per_byte: f64,
    /// Excess of the fit over the measurement at each size, in per cent of the measured device time.
    pub residuals_pct: Vec<f64>,
}

impl CostFit {
    /// Returns the device time of a request of `bytes`, in nanoseconds.
    pub fn cost_ns(&self, bytes: u32) -> f64 {
        self.floor_ns.max(self.base_ns + self.ns_per_byte * f64::from(bytes))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SizePoint {
    pub block_bytes: u32,
    pub iops: f64,
    pub bytes_per_s: f64,
    /// Requests under way, all shards together.
    pub depth: u32,
}

/// Rates by size, at consecutive positions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SequentialCurve {
    /// Points by rising size.
    pub points: Vec<SizePoint>,
    /// Smallest size that moves (within 5 %) as many bytes a second as any longer one; `null` if not even the longest
    /// clearly does.
    pub saturation_bytes: Option<u32>,
}

/// Ratio to the rate of all shorter writes above which a length counts as the disk's own block, and ratio of aligned to
/// shifted writes above which shifted ones count as slower.
pub(crate) const BLOCK_STEP_MIN: f64 = 1.15;

/// The block of the disk's writes, found by experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhysicalBlock {
    pub bytes: u32,
    /// Size that the kernel reports, in bytes.
    pub reported_bytes: Option<u32>,
    /// Whether shorter writes were clearly slower, so that `bytes` exceeds the smallest size tried.
    pub is_step: bool,
    /// Ratio of the rate of writes of `bytes` to that of half of `bytes`; 1 without a step.
    pub gain: f64,
    /// Ratio of the rate of aligned writes of 4 KiB to that of shifted ones; 1 if they differ by no more than chance,
    /// `null` if shifted ones are impossible.
    pub misalignment_factor: Option<f64>,
}

impl PhysicalBlock {
    /// Describes the finding. If no length is clearly faster than shorter ones, but one may be, or shifted writes are
    /// slower, the text says that there may be a block.
    pub fn words(&self) -> String {
        let shifted = self.misalignment_factor.unwrap_or(1.0);
        match self.is_step {
            true => format!("{} bytes by experiment ({:.1} x the rate of shorter writes)", self.bytes, self.gain),
            false if self.gain.max(shifted) > BLOCK_STEP_MIN => {
                format!(
                    "not clear (no length is faster than shorter ones by more than chance, the most {:.2} x)",
                    self.gain
                )
            }
            false => format!("none seen (no slower writes down to {} bytes)", self.bytes),
        }
    }
}

/// Mixes of reads and writes at the limit of the disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Frontier {
    /// Random reads of `read_block_bytes` alone, requests a second.
    pub read_iops: f64,
    pub read_block_bytes: u32,
    /// Sequential writes of `write_block_bytes` alone, bytes a second.
    pub write_bytes_per_s: f64,
    pub write_block_bytes: u32,
    /// Mixes at the limit, from reads alone to writes alone.
    pub points: Vec<FrontierPoint>,
    /// p in (r/R)^p + (w/W)^p = 1, above 0; `null` if reads and writes do not disturb each other (p infinite).
    pub mix_exponent_p: Option<f64>,
    /// Root of the mean squared logarithmic distance of the points from that curve; 0.01 is about 1 % of the rates.
    pub rmse: f64,
}

/// Operations and bytes limited apart, as by a cloud volume: rates by size follow max(1/IOPS, length/bandwidth).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitsApart {
    /// Largest error of that form at any size, in per cent of the measured rate.
    pub error_pct: f64,
    /// Largest error of the form `knee`.
    pub knee_error_pct: f64,
    /// p in (r/R)^p + (w/W)^p = 1 at the limit in force in each mix of the frontier; `null` if reads and writes do not
    /// disturb each other, or without a frontier.
    pub mix_exponent_p: Option<f64>,
}

/// The result on one ray from the origin.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FrontierPoint {
    /// Reads, as a fraction of the rate of reads alone.
    pub reads: f64,
    /// Writes, as a fraction of the rate of writes alone.
    pub writes: f64,
}

/// The rounds of a full measurement, judged by SNIA's performance test specification: in five rounds the range is at
/// most 20 % of the mean, and the best line moves by at most 10 % of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SteadyState {
    /// Whether all four figures became steady in the same five rounds.
    pub attained: bool,
    pub rounds: u32,
    /// Length of each condition of a round in seconds.
    pub round_s: f64,
    /// Part of the disk that was written and measured, in per cent; `null` if the disk's size is unknown.
    pub active_range_pct: Option<f64>,
    pub precondition_bytes: u64,
    /// The four figures over the rounds.
    pub tracks: Vec<SteadyTrack>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SteadyTrack {
    pub figure: String,
    pub rates: Vec<f64>,
    /// Round (from 0) that ended the first five steady ones of this figure; the others may not have been steady yet.
    pub first_steady: Option<usize>,
    /// First round (from 0) of the window of five.
    pub window_begin: usize,
    /// The window of the last five rounds.
    #[serde(flatten)]
    pub window: SteadyWindow,
}

/// Five rounds, as the specification requires them to be reported.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SteadyWindow {
    /// Mean rate, in the unit of the rates; positive.
    pub mean: f64,
    /// Range of the rates, in per cent of the mean.
    pub range_pct: f64,
    /// Change of the line across the window, in per cent of the mean; never negative.
    pub slope_pct: f64,
    /// Rise of the line per round, in the unit of the rates; negative if it falls.
    pub slope_per_round: f64,
    /// Value of the line at the first round of the window, in the unit of the rates.
    pub intercept: f64,
    /// Whether range and slope are within their bounds.
    pub attained: bool,
}

/// Cost of one kind of operation, one at a time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperationCost {
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub operations: u64,
    pub what: String,
}

/// Cost of a kind of submission, and whether it blocks the thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SubmissionCost {
    /// `append`, `overwrite`, and so on.
    pub kind: String,
    pub block_bytes: u32,
    pub depth: u32,
    /// Mean number of times that the thread gave up its CPU for a submission.
    pub context_switches_per_operation: f64,
    pub submit_p50_ns: u64,
    pub submit_max_ns: u64,
    /// Part of the writes refused under `RWF_NOWAIT`; `null` if the kernel does not support it.
    pub nowait_refused: Option<f64>,
    /// Whether submissions block: at least one context switch in ten.
    pub blocks: bool,
}

/// Queues and requests for scheduling by depth alone, as Seastar's `--num-io-queues` and `--max-io-requests`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DepthMode {
    pub num_io_queues: u16,
    /// Requests in flight on all queues together.
    pub max_io_requests: u32,
    pub reason: String,
}
