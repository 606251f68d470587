//! The cost of a request as Seastar computes it.
//!
//! # Why
//! A user who moves from Seastar wants to see the same numbers first, and then the better ones. And a figure that
//! Seastar's `ioinfo` prints is comparable only if it comes from the same arithmetic.
//!
//! # How it works
//! One second of the disk is 1000 * 2^24 units of capacity. A read of one operation weighs 128, one block of 512
//! bytes of it also; writes weigh 128 * (read rate / write rate), *rounded down to an integer*. Capacity is
//! (weight / (128 * IOPS) + blocks * block weight / (128 * bandwidth / 512)) * 1000 * 2^24, truncated. Lengths are
//! rounded down to blocks. (Seastar, `io_queue::request_tokens` and the `io_group` that configures it.)
//!
//! # Limits
//! The weights' truncation makes writes cheaper than configured, by up to 1/weight; if writes are more than 128 times
//! as fast as reads they become free, as they do in Seastar. A limited write rate beside an unlimited read rate has no
//! weight that an integer could express; it is charged exactly.
//!
//! # Example
//! ```
//! use plimsoll_core::{FourFigures, Op, Rate, SeastarUnits};
//! let units = SeastarUnits::from_figures(&FourFigures {
//!     read_iops: Rate::per_second(218_786),
//!     read_bandwidth: Rate::per_second(1_542_559_872),
//!     write_iops: Rate::per_second(121_499),
//!     write_bandwidth: Rate::per_second(1_130_867_072),
//! });
//! assert_eq!(units.capacity(Op::Read, 4096), 121_232);
//! assert_eq!(units.capacity(Op::Write, 4096), 198_348);
//! ```

use super::{FourFigures, accounted_as};
use crate::request::{Direction, Op};
use crate::units::{Cost, Rate};

/// Weight of one read operation, and of one block read.
const READ_WEIGHT: u32 = 128;
/// log2 of a block of 512 bytes.
const BLOCK_SHIFT: u32 = 9;
/// Milliseconds in a second: Seastar's bucket counts in milliseconds.
const MS_PER_S: f64 = 1000.0;
/// Femtoseconds of one unit of capacity, 10^12 / 2^24 = 5^12 / 2^12: this over 2^[`UNIT_FS_SHIFT`].
const UNIT_FS_NUMERATOR: u64 = 244_140_625;
const UNIT_FS_SHIFT: u32 = 12;

/// Rates and weights that Seastar derives from four figures, under the names that its `ioinfo` prints.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SeastarUnits {
    /// Weight of operations per second: 128 times the read operations.
    pub req_count_rate: Rate,
    /// Weight of 512-byte blocks per second: 128 times the blocks read.
    pub blocks_count_rate: Rate,
    /// Weight of a write operation if a read weighs 128.
    pub disk_req_write_to_read_multiplier: u32,
    /// Weight of a block written if a block read weighs 128.
    pub disk_blocks_write_to_read_multiplier: u32,
    read: Tokens,
    write: Tokens,
}

/// Device time of one direction: request_s + blocks * block_weight / block_rate.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Tokens {
    request_s: f64,
    block_weight: f64,
    block_rate: f64,
}

impl SeastarUnits {
    /// Units of capacity that a disk yields per millisecond.
    pub const RATE_PER_MS: u64 = 1 << 24;

    /// Returns Seastar's rates and weights of a disk, for one I/O group.
    #[must_use]
    pub fn from_figures(figures: &FourFigures) -> SeastarUnits {
        let request_weight = write_weight(figures.read_iops, figures.write_iops);
        let block_weight = write_weight(figures.read_bandwidth, figures.write_bandwidth);
        let req_count_rate = weighted(figures.read_iops, 0);
        let blocks_count_rate = weighted(figures.read_bandwidth, BLOCK_SHIFT);

        let tokens = |iops: Rate, bandwidth: Rate, request_weight: u32, block_weight: u32| {
            let request_s = match req_count_rate.get() {
                Some(rate) => f64::from(request_weight) / rate as f64,
                None => iops.seconds_per_unit(),
            };
            let (block_weight, block_rate) = match blocks_count_rate.get() {
                Some(rate) => (f64::from(block_weight), rate as f64),
                None => (f64::from(1u32 << BLOCK_SHIFT) * bandwidth.seconds_per_unit(), 1.0),
            };
            Tokens { request_s, block_weight, block_rate }
        };

        SeastarUnits {
            req_count_rate,
            blocks_count_rate,
            disk_req_write_to_read_multiplier: request_weight,
            disk_blocks_write_to_read_multiplier: block_weight,
            read: tokens(figures.read_iops, figures.read_bandwidth, READ_WEIGHT, READ_WEIGHT),
            write: tokens(figures.write_iops, figures.write_bandwidth, request_weight, block_weight),
        }
    }

    /// Returns the units of capacity that a request of `len_bytes` takes, 2^24 per millisecond. Operations that are
    /// neither read nor write take those of a write of length 0.
    #[must_use]
    pub fn capacity(&self, op: Op, len_bytes: u32) -> u64 {
        let (direction, len_bytes) = accounted_as(op, len_bytes);
        let tokens = self.tokens(direction);
        let blocks = f64::from(len_bytes >> BLOCK_SHIFT);
        // Divides instead of multiplying by an inverse: the result is truncated, and must be Seastar's to the last bit.
        let seconds = tokens.request_s + tokens.block_weight * blocks / tokens.block_rate;
        (seconds * MS_PER_S * SeastarUnits::RATE_PER_MS as f64) as u64
    }

    /// Returns the depth of the token bucket in units: the latency goal's, or if that is more, the dearer request's of
    /// 64 KiB.
    #[must_use]
    pub fn bucket_limit(&self, goal_ns: u64) -> u64 {
        let needed = self.capacity(Op::Read, 64 << 10).max(self.capacity(Op::Write, 64 << 10));
        SeastarUnits::capacity_of_cost(Cost::from_ns(goal_ns)).max(needed)
    }

    /// Returns the fewest units by which Seastar's token bucket is refilled: those of the cheapest request of 512
    /// bytes, at least 1 and at most [`SeastarUnits::bucket_limit`].
    #[must_use]
    pub fn bucket_threshold(&self, goal_ns: u64) -> u64 {
        let cheapest = self.capacity(Op::Read, 512).min(self.capacity(Op::Write, 512));
        cheapest.min(self.bucket_limit(goal_ns)).max(1)
    }

    /// Returns the device time of `capacity` units, rounded down, saturating.
    #[must_use]
    pub fn cost_of_capacity(capacity: u64) -> Cost {
        let fs = (u128::from(capacity) * u128::from(UNIT_FS_NUMERATOR)) >> UNIT_FS_SHIFT;
        Cost::from_fs(u64::try_from(fs).unwrap_or(u64::MAX))
    }

    /// Returns the units of capacity in `cost`, rounded down.
    #[must_use]
    pub fn capacity_of_cost(cost: Cost) -> u64 {
        let units = (u128::from(cost.as_fs()) << UNIT_FS_SHIFT) / u128::from(UNIT_FS_NUMERATOR);
        u64::try_from(units).unwrap_or(u64::MAX)
    }

    /// Returns the bytes per second of long requests, infinite if bytes cost nothing.
    pub(super) fn bytes_per_s(&self, direction: Direction) -> f64 {
        let tokens = self.tokens(direction);
        f64::from(1u32 << BLOCK_SHIFT) * tokens.block_rate / tokens.block_weight
    }

    fn tokens(&self, direction: Direction) -> &Tokens {
        match direction {
            Direction::Read => &self.read,
            Direction::Write => &self.write,
        }
    }
}

/// Returns the weight per second of `rate`: 128 times it, divided by 2^`shift`, at least 1.
fn weighted(rate: Rate, shift: u32) -> Rate {
    match rate {
        Rate::Unlimited => Rate::Unlimited,
        Rate::PerSecond(n) => {
            let weight = (u128::from(READ_WEIGHT) * u128::from(n.get())) >> shift;
            Rate::per_second(u64::try_from(weight).unwrap_or(u64::MAX))
        }
    }
}

/// Returns the weight of a write if a read weighs 128: larger by the factor by which reads are faster, rounded down.
/// Unlimited writes weigh nothing; if only reads are unlimited, the weight is unused and the largest there is.
fn write_weight(read: Rate, write: Rate) -> u32 {
    match (read.get(), write.get()) {
        (None, None) => READ_WEIGHT,
        (_, None) => 0,
        (None, Some(_)) => u32::MAX,
        (Some(read), Some(write)) => {
            let weight = u128::from(READ_WEIGHT) * u128::from(read) / u128::from(write);
            u32::try_from(weight).unwrap_or(u32::MAX)
        }
    }
}
