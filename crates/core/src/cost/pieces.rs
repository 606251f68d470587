//! How long the pieces of a request may be.
//!
//! # Why
//! A request of 100 MB in front of a small one delays it by its whole device time. So long requests are split into
//! pieces that take no longer than the latency goal each.
//!
//! # How it works
//! The effective goal is the latency goal, raised to the device time of 64 KiB in the dearer direction where that is
//! more: pieces below 64 KiB would cost more than they save. The longest piece is the longest multiple of the block
//! within that time (or within three times that of the shortest request, where that is more), 16 MiB at the most; in the
//! forms that are compatible with Seastar, the longest 512 * 2^k within the goal. A disk shortens it further, to a quarter of what it holds at once ([`Disk::bound_ns`]), so that no request fills the device
//! alone; but only as far as the pieces' fixed costs stay below 1/64 of the disk's time.
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
use crate::request::{Direction, Op};
use crate::units::Cost;

/// No piece need be shorter than this, in bytes.
const PIECE_MIN_BYTES: u32 = 64 << 10;
/// A piece takes this many times what the shortest request takes, so that the fixed part of its cost, which each further
/// piece pays again, is at most a third.
const PIECE_FIXED_PARTS: u64 = 3;
/// No piece is longer than this, in bytes, as in Seastar.
const PIECE_MAX_BYTES: u32 = 16 << 20;
/// A piece may be as long as it takes for its fixed cost to be this part of it.
const START_PART: u64 = 64;
const SECTOR_BYTES: u32 = 512;

/// Where requests are split. See [`CostModel::piece_limits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceLimits {
    /// Device time of a piece at the most, in nanoseconds (or three times that of the shortest request); also the depth of the
    /// token bucket.
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
            Some(_) => PieceLimits {
                read_max_bytes: self.longest_within(Op::Read, effective_goal_ns),
                write_max_bytes: self.longest_within(Op::Write, effective_goal_ns),
                ..limits
            },
        }
    }

    /// Returns the longest piece within the goal, or that keeps the fixed part of its cost small.
    fn longest_within(&self, op: Op, goal_ns: u64) -> u32 {
        let fixed_parts = match self.form {
            Some(CostForm::Additive | CostForm::Seastar) => 0,
            _ => PIECE_FIXED_PARTS,
        };
        let fixed_fs = self.cost(op, 0).as_fs().saturating_mul(fixed_parts);
        self.longest_piece(op, Cost::from_ns(goal_ns).max(Cost::from_fs(fixed_fs)))
    }

    /// Returns `limits` with pieces that take `wished_ns` of device time at most, unless more pieces would cost the disk more than
    /// 1/64 of its time; 64 KiB at least.
    pub(crate) fn shorten(&self, limits: PieceLimits, wished_ns: u64) -> PieceLimits {
        let longest = |op| {
            // What a piece costs whatever its length.
            let twice_fs = self.cost(op, PIECE_MIN_BYTES).as_fs().saturating_mul(2);
            let start_fs = twice_fs.saturating_sub(self.cost(op, 2 * PIECE_MIN_BYTES).as_fs());
            let cheap = Cost::from_fs(start_fs.saturating_mul(START_PART));
            self.longest_piece(op, Cost::from_ns(wished_ns).max(cheap))
        };
        PieceLimits {
            read_max_bytes: limits.read_max_bytes.min(longest(Op::Read)),
            write_max_bytes: limits.write_max_bytes.min(longest(Op::Write)),
            ..limits
        }
    }

    /// The longest piece within `limit`, at least the shortest one (64 KiB).
    fn longest_piece(&self, op: Op, limit: Cost) -> u32 {
        let granule_bytes = granule_bytes(match op.direction() {
            Direction::Read => self.read_block_bytes,
            Direction::Write => self.write_block_bytes,
        });
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
