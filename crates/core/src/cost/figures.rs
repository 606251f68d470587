//! Four figures of a disk, and the line with a floor that they make.
//!
//! # Why
//! Operations and bytes per second, for reads and writes, are the figures that data sheets state, clouds promise and
//! tools measure. How to combine them is a question of form: charging both in full wastes a third to a half of the disk
//! at 4 to 8 KiB, because the operations per second were themselves measured with requests of some length.
//!
//! # How it works
//! With I operations and B bytes per second, and `block` the length at which I was measured:
//!
//! | form | floor | base | cost |
//! |---|---|---|---|
//! | knee | 1/I | max(1/I - block/B, 0) | max(floor, base + length/B) |
//! | additive | 0 | 1/I | base + length/B |
//! | max | 1/I | 0 | max(floor, length/B) |
//!
//! With `max`, operations and bytes are two limits apart, each with tokens of its own: requests that together exceed
//! neither limit pass, although the sum of their costs may be up to twice the disk's time.
//!
//! The knee is the linear model of the Linux kernel's `io.cost` controller, with requests below the block as expensive
//! as one block.
//!
//! # Limits
//! The slope is kept in steps of 2^-14 femtoseconds a byte: precise to 0.5 % up to 10^17 bytes per second.
//!
//! # Example
//! I = 200 000, B = 2 * 10^9, block 4096: knee 5 us, additive 7.048 us, max 5 us for a read of 4096 bytes.

use core::fmt;
use core::str::FromStr;

use crate::units::{Cost, FS_PER_S, Rate};

/// Fraction bits of a slope: the most with which 1 byte per second (10^15 fs a byte) still fits into 64 bits.
const SLOPE_FRACTION_BITS: u32 = 14;

/// How operations and bytes per second combine into a cost; `L` is the length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CostForm {
    /// max(1/IOPS, base + L/bandwidth), where base makes one block cost exactly 1/IOPS. The default.
    #[default]
    Knee,
    /// 1/IOPS + L/bandwidth.
    Additive,
    /// max(1/IOPS, L/bandwidth), and operations and bytes are limited apart, as those of cloud volumes are.
    Max,
    /// Additive in Seastar's integer arithmetic, with its truncated multipliers.
    Seastar,
}

impl CostForm {
    /// All forms, the default first.
    pub const ALL: [CostForm; 4] = [CostForm::Knee, CostForm::Additive, CostForm::Max, CostForm::Seastar];

    /// Returns the name used on a command line and in a file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            CostForm::Knee => "knee",
            CostForm::Additive => "additive",
            CostForm::Max => "max",
            CostForm::Seastar => "seastar",
        }
    }
}

impl fmt::Display for CostForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that belongs to no [`CostForm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseCostFormError;

impl fmt::Display for ParseCostFormError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown cost form; use knee, additive, max or seastar")
    }
}

impl core::error::Error for ParseCostFormError {}

impl FromStr for CostForm {
    type Err = ParseCostFormError;

    fn from_str(name: &str) -> Result<CostForm, ParseCostFormError> {
        CostForm::ALL.into_iter().find(|form| form.name() == name).ok_or(ParseCostFormError)
    }
}

/// Operations and bytes per second that a disk yields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FourFigures {
    /// Read operations per second.
    pub read_iops: Rate,
    /// Write operations per second.
    pub write_iops: Rate,
    /// Bytes read per second.
    pub read_bandwidth: Rate,
    /// Bytes written per second.
    pub write_bandwidth: Rate,
}

impl FourFigures {
    /// A disk without any limit.
    pub const UNLIMITED: FourFigures = FourFigures {
        read_iops: Rate::Unlimited,
        write_iops: Rate::Unlimited,
        read_bandwidth: Rate::Unlimited,
        write_bandwidth: Rate::Unlimited,
    };

    /// Returns whether no figure is limited.
    #[must_use]
    pub fn is_unlimited(&self) -> bool {
        *self == FourFigures::UNLIMITED
    }

    /// Returns every limited figure times `rate_factor`, rounded down, at least 1; unlimited ones stay unlimited. If
    /// the factor is not positive and finite, changes nothing.
    #[must_use]
    pub fn scaled(&self, rate_factor: f64) -> FourFigures {
        if !(rate_factor > 0.0 && rate_factor.is_finite()) || rate_factor == 1.0 {
            return *self;
        }
        let scale = |rate: Rate| match rate {
            Rate::Unlimited => Rate::Unlimited,
            Rate::PerSecond(n) => Rate::per_second((n.get() as f64 * rate_factor) as u64),
        };
        FourFigures {
            read_iops: scale(self.read_iops),
            write_iops: scale(self.write_iops),
            read_bandwidth: scale(self.read_bandwidth),
            write_bandwidth: scale(self.write_bandwidth),
        }
    }
}

/// The four figures as they follow from a model's costs; infinite if something costs nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecoveredRates {
    /// Reads of length 0 per second.
    pub read_iops: f64,
    /// Writes of length 0 per second.
    pub write_iops: f64,
    /// Bytes read per second in long requests.
    pub read_bandwidth: f64,
    /// Bytes written per second in long requests.
    pub write_bandwidth: f64,
}

/// Cost of one direction: max(floor, base + length * slope).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line {
    floor_fs: u64,
    base_fs: u64,
    /// Femtoseconds per byte, times 2^[`SLOPE_FRACTION_BITS`].
    slope: u64,
}

impl Line {
    /// Returns the line of one direction; `form` is not [`CostForm::Seastar`] (which would count as additive).
    pub(super) fn new(iops: Rate, bandwidth: Rate, form: CostForm, block_bytes: u32) -> Line {
        let operation_fs = fs_per_unit(iops, 0);
        let slope = fs_per_unit(bandwidth, SLOPE_FRACTION_BITS);
        match form {
            CostForm::Knee => {
                let block_fs = transfer_fs(slope, block_bytes);
                Line { floor_fs: operation_fs, base_fs: operation_fs.saturating_sub(block_fs), slope }
            }
            CostForm::Additive | CostForm::Seastar => Line { floor_fs: 0, base_fs: operation_fs, slope },
            CostForm::Max => Line { floor_fs: operation_fs, base_fs: 0, slope },
        }
    }

    /// Returns the parts of operations and of bytes in a cost of the form [`CostForm::Max`].
    pub(super) fn parts(&self, len_bytes: u32) -> [Cost; 2] {
        [self.floor_fs, transfer_fs(self.slope, len_bytes)].map(Cost::from_fs)
    }

    #[inline]
    pub(super) fn cost(&self, len_bytes: u32) -> Cost {
        let line_fs = self.base_fs.saturating_add(transfer_fs(self.slope, len_bytes));
        Cost::from_fs(line_fs.max(self.floor_fs))
    }

    /// Returns the bytes per second of long requests, infinite if bytes cost nothing.
    pub(super) fn bytes_per_s(&self) -> f64 {
        FS_PER_S as f64 * f64::from(1u32 << SLOPE_FRACTION_BITS) / self.slope as f64
    }
}

/// Returns the femtoseconds of `len_bytes` at `slope`, saturating.
#[inline]
fn transfer_fs(slope: u64, len_bytes: u32) -> u64 {
    let fs = (u128::from(slope) * u128::from(len_bytes)) >> SLOPE_FRACTION_BITS;
    u64::try_from(fs).unwrap_or(u64::MAX)
}

/// Returns the femtoseconds of one unit times 2^`fraction_bits`, rounded to the nearest. `fraction_bits` is at most
/// [`SLOPE_FRACTION_BITS`].
fn fs_per_unit(rate: Rate, fraction_bits: u32) -> u64 {
    match rate {
        Rate::Unlimited => 0,
        Rate::PerSecond(n) => {
            let n = u128::from(n.get());
            let fs = ((u128::from(FS_PER_S) << fraction_bits) + n / 2) / n;
            u64::try_from(fs).unwrap_or(u64::MAX)
        }
    }
}
