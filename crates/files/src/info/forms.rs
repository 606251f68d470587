//! Computes the costs and rates of a disk by one cost form.
//!
//! **Why.** Forms differ most for small requests, by a third of the disk and more; side by side the difference is
//! visible.
//!
//! **How.** With c the cost of a request, summed over its pieces, a busy disk completes 1/c requests per second. If
//! operations and bytes are limited apart (`max`), the pieces are summed for each limit, and the larger sum counts. If
//! every other request is a write, a pair costs c_read + c_write, and the mix exponent determines the disk's gain or
//! loss: 2 T(f) / (c_read + c_write), where f is the part of the writes in that time. For reads and writes that do not
//! disturb each other (`duplex`) the exponent is infinite.
//!
//! **Limits.** The rate of a request that costs nothing is `None`.
//!
//! **Example.** Reads of 5 us and writes of 10 us: 200 000 reads, 100 000 writes, or 133 333 of both, half and half;
//! with duplex 200 000.

use plimsoll_core::{CostModel, FS_PER_NS, FS_PER_S, LatencyGoal, MixExponent, Op};
use serde::{Serialize, Serializer};

use crate::four::Four;

pub const SIZES_BYTES: [u32; 12] =
    [512, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20];

/// Part of the requests that are writes in the mixed columns of [`SizeInfo`].
pub const MIXED_WRITE_PART: f64 = 0.5;

/// Size of `reachable_4k_*_pct`, in bytes. Operations per second are usually counted with it.
const COUNTED_AT_BYTES: u32 = 4 << 10;
/// Size that raises the goal, in bytes: no piece need be shorter (`plimsoll_core::PieceLimits`).
const PIECE_MIN_BYTES: u32 = 64 << 10;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FormInfo {
    /// `knee`, `additive`, `max`, `seastar` or `table`.
    #[serde(skip)]
    pub name: &'static str,
    /// The four figures that follow from the costs: operations from requests of length 0, bytes from long ones; `None`
    /// if requests cost nothing.
    pub calculated: Four<Option<f64>>,
    /// The calculated figures over the configured ones, less 1, in per cent; `None` if one of them is missing.
    pub difference_pct: Four<Option<f64>>,
    /// Reads of 4 KiB per second, in per cent of the configured read operations.
    pub reachable_4k_read_pct: Option<f64>,
    /// Writes of 4 KiB per second, in per cent of the configured write operations.
    pub reachable_4k_write_pct: Option<f64>,
    pub latency_goal_effective_ms: f64,
    /// Why the goal differs from the one requested; `None` if it does not.
    pub latency_goal_reason: Option<String>,
    /// Longest read that is not split, in bytes; `None`: reads are not split.
    pub read_max_bytes: Option<u32>,
    /// Longest write that is not split, in bytes; `None`: writes are not split.
    pub write_max_bytes: Option<u32>,
    /// Costs and rates by size, one entry for each of [`SIZES_BYTES`].
    pub sizes: Vec<SizeInfo>,
}

/// Requests of one size. Rates are those of a busy disk; `None` if the requests cost nothing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SizeInfo {
    pub bytes: u32,
    /// Pieces of a read, at least 1.
    pub read_pieces: u32,
    /// Pieces of a write, at least 1.
    pub write_pieces: u32,
    /// Device time of a read, all its pieces, in nanoseconds.
    pub read_cost_ns: f64,
    /// Device time of a write, all its pieces, in nanoseconds.
    pub write_cost_ns: f64,
    /// Reads per second, without writes.
    pub read_iops: Option<f64>,
    /// Bytes read per second, without writes.
    pub read_bytes_per_s: Option<f64>,
    /// Requests per second if [`MIXED_WRITE_PART`] of them are writes.
    pub mixed_iops: Option<f64>,
    /// Bytes read and written per second in that mix.
    pub mixed_bytes_per_s: Option<f64>,
    /// Writes per second, without reads.
    pub write_iops: Option<f64>,
    /// Bytes written per second, without reads.
    pub write_bytes_per_s: Option<f64>,
}

impl FormInfo {
    pub(super) fn new(
        name: &'static str,
        model: &CostModel,
        configured: &Four<Option<u64>>,
        mix: &MixExponent,
        goal: LatencyGoal,
    ) -> FormInfo {
        let asked_ns = match goal {
            LatencyGoal::Ns(ns) => Some(ns),
            LatencyGoal::NoSplit => None,
        };
        let limits = model.piece_limits(asked_ns);
        let [read_max_bytes, write_max_bytes] =
            [limits.read_max_bytes, limits.write_max_bytes].map(|bytes| asked_ns.map(|_| bytes));
        let max_bytes = [read_max_bytes, write_max_bytes];

        let rates = model.rates_back();
        let calculated = Four {
            read_iops: rates.read_iops,
            read_bandwidth: rates.read_bandwidth,
            write_iops: rates.write_iops,
            write_bandwidth: rates.write_bandwidth,
        }
        .map(finite);

        let counted = SizeInfo::new(COUNTED_AT_BYTES, model, mix, max_bytes);
        FormInfo {
            name,
            calculated,
            difference_pct: calculated.with(*configured, percent_of).map(|percent| Some(percent? - 100.0)),
            reachable_4k_read_pct: percent_of(counted.read_iops, configured.read_iops),
            reachable_4k_write_pct: percent_of(counted.write_iops, configured.write_iops),
            latency_goal_effective_ms: limits.effective_goal_ns as f64 / 1e6,
            latency_goal_reason: reason(model, asked_ns, limits.effective_goal_ns),
            read_max_bytes,
            write_max_bytes,
            sizes: SIZES_BYTES.map(|bytes| SizeInfo::new(bytes, model, mix, max_bytes)).to_vec(),
        }
    }

    /// Returns the entry of [`FormInfo::sizes`] for requests of `bytes`.
    pub fn size(&self, bytes: u32) -> Option<&SizeInfo> {
        self.sizes.iter().find(|size| size.bytes == bytes)
    }
}

impl SizeInfo {
    fn new(bytes: u32, model: &CostModel, mix: &MixExponent, max_bytes: [Option<u32>; 2]) -> SizeInfo {
        let read = Charge::of(model, Op::Read, bytes, max_bytes[0]);
        let write = Charge::of(model, Op::Write, bytes, max_bytes[1]);
        let mixed_fs = read.parts_fs.into_iter().zip(write.parts_fs).map(|(read_fs, write_fs)| {
            let both_fs = read_fs + write_fs;
            let capacity = if both_fs > 0.0 { mix.capacity(write_fs / both_fs) } else { 1.0 };
            both_fs * MIXED_WRITE_PART / capacity
        });
        let mixed_fs = mixed_fs.fold(0.0, f64::max);

        let iops = |fs: f64| finite(FS_PER_S as f64 / fs);
        let bytes_per_s = |iops: Option<f64>| iops.map(|iops| iops * f64::from(bytes));
        let (read_iops, write_iops) = (iops(read.most_fs()), iops(write.most_fs()));
        let mixed_iops = iops(mixed_fs);

        SizeInfo {
            bytes,
            read_pieces: read.pieces,
            write_pieces: write.pieces,
            read_cost_ns: read.cost_fs / FS_PER_NS as f64,
            write_cost_ns: write.cost_fs / FS_PER_NS as f64,
            read_iops,
            read_bytes_per_s: bytes_per_s(read_iops),
            mixed_iops,
            mixed_bytes_per_s: bytes_per_s(mixed_iops),
            write_iops,
            write_bytes_per_s: bytes_per_s(write_iops),
        }
    }
}

/// The device time of a request in pieces.
struct Charge {
    pieces: u32,
    cost_fs: f64,
    /// Costs at the limits of operations and of bytes if these are limited apart, otherwise the whole cost twice.
    parts_fs: [f64; 2],
}

impl Charge {
    /// Returns the charge of a request in pieces of at most `max_bytes`.
    fn of(model: &CostModel, op: Op, bytes: u32, max_bytes: Option<u32>) -> Charge {
        let piece_bytes = max_bytes.unwrap_or(bytes).clamp(1, bytes.max(1));
        let (whole, rest_bytes) = (bytes / piece_bytes, bytes % piece_bytes);
        let sum = |cost_fs: &dyn Fn(u32) -> f64| {
            let rest_fs = if rest_bytes > 0 { cost_fs(rest_bytes) } else { 0.0 };
            f64::from(whole) * cost_fs(piece_bytes) + rest_fs
        };
        let part = |limit: usize| sum(&|bytes| model.parts(op, bytes)[limit].as_fs() as f64);
        Charge {
            pieces: whole + u32::from(rest_bytes > 0),
            cost_fs: sum(&|bytes| model.cost(op, bytes).as_fs() as f64),
            parts_fs: [part(0), part(1)],
        }
    }

    /// Returns the cost at the limit that the request reaches first.
    fn most_fs(&self) -> f64 {
        self.parts_fs[0].max(self.parts_fs[1])
    }
}

fn reason(model: &CostModel, asked_ns: Option<u64>, effective_ns: u64) -> Option<String> {
    let [read, write] = [Op::Read, Op::Write].map(|op| model.cost(op, PIECE_MIN_BYTES));
    let (dearer, cost) = if write > read { ("write", write) } else { ("read", read) };
    let taken = format!("one {dearer} of 64 KiB takes {:.3} ms", cost.as_secs_f64() * 1e3);
    match asked_ns {
        Some(asked_ns) if effective_ns > asked_ns => Some(format!("{taken}, and nothing shorter is split off")),
        Some(_) => None,
        None if effective_ns > plimsoll_core::DEFAULT_LATENCY_GOAL_NS => {
            Some(format!("nothing is split; the token bucket is as deep as {taken}"))
        }
        None => Some("nothing is split; the token bucket is as deep as with the default goal".to_owned()),
    }
}

fn percent_of(part: Option<f64>, whole: Option<u64>) -> Option<f64> {
    Some(part? / whole? as f64 * 100.0)
}

fn finite(rate: f64) -> Option<f64> {
    Some(rate).filter(|rate| rate.is_finite())
}

pub(super) fn as_map<S: Serializer>(forms: &[FormInfo], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(forms.iter().map(|form| (form.name, form)))
}
