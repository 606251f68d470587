//! The cost of a request: device time by operation and length.
//!
//! # Why
//! A few measured figures describe a disk, and everything else follows from the device time that a request takes:
//! shares divide it, the token bucket limits it, and a request that takes too much of it is split.
//!
//! # How it works
//! A [`CostModel`] is one of
//! * four figures and a [`CostForm`]: operations and bytes per second, for reads and for writes. Each direction is a
//!   line with a floor, `max(floor, base + length * slope)`, in integers: femtoseconds, and for the slope 2^-14
//!   femtoseconds a byte. One multiplication, no division;
//! * the same with Seastar's arithmetic ([`SeastarUnits`]), for comparisons with it;
//! * a measured table of operations per second by length, interpolated in device time.
//!
//! [`MixExponent`] gives a disk's capacity for a mix of reads and writes, and [`PieceLimits`] how long the pieces of a
//! request may be.
//!
//! # Limits
//! A cost above 5.1 hours saturates. Costs below half a femtosecond are zero. Zero is legal everywhere, and an
//! unlimited disk charges nothing else. Rates computed back from the costs are those configured, within 0.5 % from 1
//! operation and 1 MB per second to 10^9 operations and 10^13 bytes per second (except in Seastar's form).
//!
//! # Example
//! A disk of 200 000 reads of 4 KiB and 2 GB per second. Such a read takes 5 us by the first figure, and 4096 bytes
//! take 2.048 us by the second. So the part that does not depend on length is 2.952 us, and 64 KiB take 2.952 + 32.768
//! us.
//! ```
//! use plimsoll_core::{Cost, CostForm, CostModel, FourFigures, Op, Rate};
//! let figures = FourFigures {
//!     read_iops: Rate::per_second(200_000),
//!     read_bandwidth: Rate::per_second(2_000_000_000),
//!     ..FourFigures::UNLIMITED
//! };
//! let model = CostModel::from_figures(&figures, CostForm::Knee, 4096, 4096);
//! assert_eq!(model.cost(Op::Read, 512), Cost::from_ns(5_000));
//! assert_eq!(model.cost(Op::Read, 4096), Cost::from_ns(5_000));
//! assert_eq!(model.cost(Op::Read, 65_536), Cost::from_ns(35_720));
//! assert_eq!(model.cost(Op::Write, 65_536), Cost::ZERO);
//! ```

mod figures;
mod mix;
mod pieces;
mod seastar;
mod table;

pub use figures::{CostForm, FourFigures, ParseCostFormError, RecoveredRates};
pub use mix::MixExponent;
pub use pieces::PieceLimits;
pub use seastar::SeastarUnits;
pub use table::{MAX_TABLE_POINTS, ModelError};

use crate::request::{Direction, Op};
use crate::units::Cost;
use figures::Line;
use table::Table;

/// Block in bytes of a measured table and of an unlimited disk, and the usual one of a disk.
const DEFAULT_BLOCK_BYTES: u32 = 4096;

/// The cost model of a disk; see the module's documentation.
#[derive(Clone, Debug, PartialEq)]
pub struct CostModel {
    curves: Curves,
    unlimited: bool,
    form: Option<CostForm>,
    read_block_bytes: u32,
    write_block_bytes: u32,
}

/// One curve of cost over length per direction.
#[derive(Clone, Debug, PartialEq)]
enum Curves {
    Lines { read: Line, write: Line },
    Seastar(SeastarUnits),
    Tables { read: Table, write: Table },
}

impl CostModel {
    /// Returns the model of an unknown disk: all costs are zero.
    #[must_use]
    pub fn unlimited() -> CostModel {
        CostModel::from_figures(&FourFigures::UNLIMITED, CostForm::Knee, DEFAULT_BLOCK_BYTES, DEFAULT_BLOCK_BYTES)
    }

    /// Returns the model of a disk with four figures.
    ///
    /// `read_block_bytes` and `write_block_bytes` are the lengths at which the operations per second were measured,
    /// usually 4096, or the physical block if that is larger; the knee is there. Any value is accepted.
    #[must_use]
    pub fn from_figures(
        figures: &FourFigures,
        form: CostForm,
        read_block_bytes: u32,
        write_block_bytes: u32,
    ) -> CostModel {
        let curves = match form {
            CostForm::Seastar => Curves::Seastar(SeastarUnits::from_figures(figures)),
            CostForm::Knee | CostForm::Additive | CostForm::Max => Curves::Lines {
                read: Line::new(figures.read_iops, figures.read_bandwidth, form, read_block_bytes),
                write: Line::new(figures.write_iops, figures.write_bandwidth, form, write_block_bytes),
            },
        };
        CostModel { curves, unlimited: figures.is_unlimited(), form: Some(form), read_block_bytes, write_block_bytes }
    }

    /// Returns the model of a measured disk: points of (length in bytes, operations per second) for reads and for
    /// writes.
    ///
    /// Device time is interpolated linearly between the points, continues with the slope of the last two (never
    /// falling) above the last, and is constant below the first. It follows the points even if a longer request is
    /// cheaper than a shorter one: writes below the physical block are expensive on many disks.
    ///
    /// # Errors
    /// Each direction needs 2 to [`MAX_TABLE_POINTS`] points, with strictly rising lengths and positive, finite rates.
    pub fn from_table(read: &[(u32, f64)], write: &[(u32, f64)]) -> Result<CostModel, ModelError> {
        Ok(CostModel {
            curves: Curves::Tables {
                read: Table::new(read, Direction::Read)?,
                write: Table::new(write, Direction::Write)?,
            },
            unlimited: false,
            form: None,
            read_block_bytes: DEFAULT_BLOCK_BYTES,
            write_block_bytes: DEFAULT_BLOCK_BYTES,
        })
    }

    /// Returns the device time of one request of `len_bytes`. Flush, discard and allocate cost one write of length 0.
    #[inline]
    #[must_use]
    pub fn cost(&self, op: Op, len_bytes: u32) -> Cost {
        let (direction, len_bytes) = accounted_as(op, len_bytes);
        match (&self.curves, direction) {
            (Curves::Lines { read, .. }, Direction::Read) => read.cost(len_bytes),
            (Curves::Lines { write, .. }, Direction::Write) => write.cost(len_bytes),
            (Curves::Seastar(units), _) => SeastarUnits::cost_of_capacity(units.capacity(op, len_bytes)),
            (Curves::Tables { read, .. }, Direction::Read) => read.cost(len_bytes),
            (Curves::Tables { write, .. }, Direction::Write) => write.cost(len_bytes),
        }
    }

    /// Returns whether operations and bytes are limited apart ([`CostForm::Max`]).
    #[must_use]
    pub fn has_limits_apart(&self) -> bool {
        self.form == Some(CostForm::Max) && !self.unlimited
    }

    /// Returns the device time of a request at the limit of operations and at that of bytes; the larger is its cost. If
    /// these are not apart, both are the cost.
    #[must_use]
    pub fn parts(&self, op: Op, len_bytes: u32) -> [Cost; 2] {
        let (direction, accounted_bytes) = accounted_as(op, len_bytes);
        match (&self.curves, direction) {
            (Curves::Lines { read, .. }, Direction::Read) if self.has_limits_apart() => read.parts(accounted_bytes),
            (Curves::Lines { write, .. }, Direction::Write) if self.has_limits_apart() => write.parts(accounted_bytes),
            _ => [self.cost(op, len_bytes); 2],
        }
    }

    /// Returns the same cost in Seastar's capacity units, 2^24 per millisecond of device time, rounded down. In the
    /// `seastar` form these are the integers that Seastar itself computes.
    #[must_use]
    pub fn seastar_capacity(&self, op: Op, len_bytes: u32) -> u64 {
        match &self.curves {
            Curves::Seastar(units) => units.capacity(op, len_bytes),
            _ => SeastarUnits::capacity_of_cost(self.cost(op, len_bytes)),
        }
    }

    /// Returns whether all costs are zero, because no figure is limited.
    #[must_use]
    pub fn is_unlimited(&self) -> bool {
        self.unlimited
    }

    /// Returns the form of a model of four figures, or `None` for a measured table.
    #[must_use]
    pub fn form(&self) -> Option<CostForm> {
        self.form
    }

    /// Returns the four figures as they follow from the costs: operations per second from requests of length 0, bytes
    /// per second from the slope of long requests.
    #[must_use]
    pub fn rates_back(&self) -> RecoveredRates {
        let (read_bandwidth, write_bandwidth) = match &self.curves {
            Curves::Lines { read, write } => (read.bytes_per_s(), write.bytes_per_s()),
            Curves::Seastar(units) => (units.bytes_per_s(Direction::Read), units.bytes_per_s(Direction::Write)),
            Curves::Tables { read, write } => (read.bytes_per_s(), write.bytes_per_s()),
        };
        RecoveredRates {
            read_iops: 1.0 / self.cost(Op::Read, 0).as_secs_f64(),
            write_iops: 1.0 / self.cost(Op::Write, 0).as_secs_f64(),
            read_bandwidth,
            write_bandwidth,
        }
    }
}

impl Default for CostModel {
    fn default() -> CostModel {
        CostModel::unlimited()
    }
}

/// Returns the direction and the length under which an operation is charged.
#[inline]
fn accounted_as(op: Op, len_bytes: u32) -> (Direction, u32) {
    (op.direction(), if op.is_transfer() { len_bytes } else { 0 })
}
