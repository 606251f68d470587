//! The longest pieces into which requests are split.
//!
//! # Why
//! A request of 100 MB in front of a small one delays it by its whole device time. So long requests are split into
//! pieces, each no longer than the latency goal.
//!
//! # How it works
//! The effective goal is the latency goal, or if that is more, the device time of 64 KiB in the slower direction:
//! pieces below 64 KiB would cost more than they save. The longest piece is the longest multiple of the block within
//! that time (or, if that is more, within three times the time of the shortest request), at most 16 MiB; in the forms
//! compatible with Seastar, the longest 512 * 2^k within the goal. A disk shortens it further, to a quarter of its
//! bound ([`Disk::bound_ns`]), so that no request fills the device alone; but only as far as the pieces' fixed costs
//! stay below 1/64 of the disk's time. If operations are limited apart from bytes, pieces are long enough that all of
//! the disk's bytes take at most 1/4 of its operations.
//!
//! [`Disk::bound_ns`]: crate::Disk::bound_ns
//!
//! # Limits
//! The block is rounded up to a power of two between 512 bytes and 64 KiB. In a measured table in which a longer
//! request is cheaper than a shorter one, the piece found fits the goal but need not be the longest that does.
//!
//! # Example
//! 100 operations and 100 MB per second, additive: 64 KiB take 10.66 ms, so a goal of 0.75 ms becomes 10.66 ms.

use super::{CostForm, CostModel};
use crate::disk::DEFAULT_LATENCY_GOAL_NS;
use crate::request::{Direction, Op};
use crate::units::Cost;

/// Lower bound of the longest piece, in bytes: shorter ones would cost more than they save.
const PIECE_MIN_BYTES: u32 = 64 << 10;
/// Device time of a piece, in multiples of the shortest request's: the fixed part of its cost, which each further piece
/// pays again, is then at most a third.
const PIECE_FIXED_PARTS: u64 = 3;
/// Longest piece, in bytes, as in Seastar.
const PIECE_MAX_BYTES: u32 = 16 << 20;
/// Cost of a piece over its fixed part, up to which the piece may be lengthened.
const START_PART: u64 = 64;
/// Cost of a piece over that of its operation, up to which the piece may be lengthened if operations and bytes are
/// limited apart: all of the disk's bytes then take a quarter of its operations.
const APART_PART: u64 = 4;
/// Least unit of the length of pieces. Direct I/O to a disk of 4 KiB sectors refuses others, whatever block its figures
/// were measured with.
const GRANULE_MIN_BYTES: u32 = 4096;

/// The lengths at which requests are split. See [`CostModel::piece_limits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceLimits {
    /// Most device time of a piece, in nanoseconds (if three times that of the shortest request is not more); also the
    /// depth of the token bucket.
    pub effective_goal_ns: u64,
    /// The longest piece of a read, in bytes.
    pub read_max_bytes: u32,
    /// The longest piece of a write, in bytes.
    pub write_max_bytes: u32,
}

impl CostModel {
    /// Returns the lengths at which requests are split so that no piece takes more than `goal_ns` nanoseconds of device
    /// time.
    ///
    /// Without a goal nothing is split (only the 32 bits of a length limit a piece), and `effective_goal_ns` follows
    /// from the default goal, [`DEFAULT_LATENCY_GOAL_NS`].
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

    /// Returns the longest piece that is within the goal or needed to keep the fixed part of its cost small.
    fn longest_within(&self, op: Op, goal_ns: u64) -> u32 {
        let fixed_parts = match self.form {
            Some(CostForm::Additive | CostForm::Seastar) => 0,
            _ if self.has_limits_apart() => APART_PART,
            _ => PIECE_FIXED_PARTS,
        };
        let fixed_fs = self.cost(op, 0).as_fs().saturating_mul(fixed_parts);
        self.longest_piece(op, Cost::from_ns(goal_ns).max(Cost::from_fs(fixed_fs)))
    }

    /// Returns `limits` with pieces of at most `wished_ns` of device time, or more if shorter ones would cost the disk
    /// more than 1/64 of its time; at least 64 KiB.
    pub(crate) fn shorten(&self, limits: PieceLimits, wished_ns: u64) -> PieceLimits {
        let longest = |op| {
            let cheap_fs = if self.has_limits_apart() {
                self.cost(op, 0).as_fs().saturating_mul(APART_PART)
            } else {
                // The cost of a piece that does not depend on its length.
                let twice_fs = self.cost(op, PIECE_MIN_BYTES).as_fs().saturating_mul(2);
                twice_fs.saturating_sub(self.cost(op, 2 * PIECE_MIN_BYTES).as_fs()).saturating_mul(START_PART)
            };
            let cheap = Cost::from_fs(cheap_fs);
            self.longest_piece(op, Cost::from_ns(wished_ns).max(cheap))
        };
        PieceLimits {
            read_max_bytes: limits.read_max_bytes.min(longest(Op::Read)),
            write_max_bytes: limits.write_max_bytes.min(longest(Op::Write)),
            ..limits
        }
    }

    /// Returns the longest piece within `limit`, at least 64 KiB.
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

/// Returns the unit of the length of pieces.
fn granule_bytes(block_bytes: u32) -> u32 {
    block_bytes.clamp(GRANULE_MIN_BYTES, PIECE_MIN_BYTES).next_power_of_two()
}
