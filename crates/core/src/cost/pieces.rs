//! How long the pieces of a request may be.
//!
//! # Why
//! A request of 100 MB in front of a small one delays it by its whole device time. So long requests are split into
//! pieces that take no longer than the latency goal each.
//!
//! # How it works
//! The effective goal is the latency goal, raised to the device time of 64 KiB in the dearer direction where that is
//! more: pieces below 64 KiB would cost more than they save. The longest piece is the longest multiple of the block
//! within that time, 16 MiB at the most, and a disk shortens it to a quarter of what it holds at once ([`Disk::bound_ns`]), so
//! that no request fills the device alone; in the forms that are compatible with Seastar, the longest 512 * 2^k.
//!
//! [`Disk::bound_ns`]: crate::Disk::bound_ns
//!
//! # Limits
//! The block is rounded up to a power of two between 512 bytes and 64 KiB. In a measured table in which a longer
//! request is cheaper than a shorter one, the piece found fits the goal but need not be the longest that does.
//!
//! # Example
//! 100 operations and 100 MB a second, additive: 64 KiB take 10.66 ms, and so a goal of 0.75 ms becomes 10.66 ms.

use super::{CostForm, CostModel};
use crate::disk::DEFAULT_LATENCY_GOAL_NS;
use crate::request::Op;
use crate::units::Cost;

/// No piece need be shorter than this, in bytes.
const PIECE_MIN_BYTES: u32 = 64 << 10;
/// No piece is longer than this, in bytes, as in Seastar.
const PIECE_MAX_BYTES: u32 = 16 << 20;
const SECTOR_BYTES: u32 = 512;

/// Where requests are split. See [`CostModel::piece_limits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceLimits {
    /// Device time of a piece at the most, in nanoseconds; also the depth of the token bucket.
    pub effective_goal_ns: u64,
    /// The longest piece of a read, in bytes.
    pub read_max_bytes: u32,
    /// The longest piece of a write, in bytes.
    pub write_max_bytes: u32,
}

impl CostModel {
    /// Where requests are split so that no piece takes longer than `goal_ns` nanoseconds of device time.
    ///
    /// Without a goal nothing is split (pieces are limited only by the 32 bits of a length), and
    /// `effective_goal_ns` follows from the default goal, [`DEFAULT_LATENCY_GOAL_NS`].
    #[must_use]
    pub fn piece_limits(&self, goal_ns: Option<u64>) -> PieceLimits {
        let read_cost = self.cost(Op::Read, PIECE_MIN_BYTES);
        let write_cost = self.cost(Op::Write, PIECE_MIN_BYTES);
        let needed_ns = read_cost.max(write_cost).as_ns_ceil();
        let effective_goal_ns = goal_ns.unwrap_or(DEFAULT_LATENCY_GOAL_NS).max(needed_ns);
        let limits = PieceLimits { effective_goal_ns, read_max_bytes: u32::MAX, write_max_bytes: u32::MAX };
        match goal_ns {
            None => PieceLimits {
                read_max_bytes: u32::MAX - u32::MAX % granule_bytes(self.read_block_bytes),
                write_max_bytes: u32::MAX - u32::MAX % granule_bytes(self.write_block_bytes),
                ..limits
            },
            Some(_) => self.shorten(limits, effective_goal_ns),
        }
    }

    /// Returns `limits` with pieces that take `longest_ns` of device time at most, but 64 KiB at least.
    pub(crate) fn shorten(&self, limits: PieceLimits, longest_ns: u64) -> PieceLimits {
        let longest = |op, block_bytes| self.longest_piece(op, granule_bytes(block_bytes), Cost::from_ns(longest_ns));
        PieceLimits {
            read_max_bytes: limits.read_max_bytes.min(longest(Op::Read, self.read_block_bytes)),
            write_max_bytes: limits.write_max_bytes.min(longest(Op::Write, self.write_block_bytes)),
            ..limits
        }
    }

    /// The longest piece within `limit`, at least the shortest one (64 KiB).
    fn longest_piece(&self, op: Op, granule_bytes: u32, limit: Cost) -> u32 {
        let fits = |len_bytes: u32| self.cost(op, len_bytes) <= limit;
        let mut longest = PIECE_MIN_BYTES;
        if matches!(self.form, Some(CostForm::Additive | CostForm::Seastar)) {
            while longest < PIECE_MAX_BYTES && fits(longest * 2) {
                longest *= 2;
            }
            return longest;
        }
        if fits(PIECE_MAX_BYTES) {
            return PIECE_MAX_BYTES;
        }
        // `longest` fits, `too_long` does not; both are multiples of the granule.
        let mut too_long = PIECE_MAX_BYTES;
        while too_long - longest > granule_bytes {
            let middle = longest + (too_long - longest) / 2 / granule_bytes * granule_bytes;
            if fits(middle) {
                longest = middle;
            } else {
                too_long = middle;
            }
        }
        longest
    }
}

/// Lengths of pieces are multiples of this.
fn granule_bytes(block_bytes: u32) -> u32 {
    block_bytes.clamp(SECTOR_BYTES, PIECE_MIN_BYTES).next_power_of_two()
}
