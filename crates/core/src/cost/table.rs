//! A measured curve: operations per second at some lengths.
//!
//! # Why
//! Four figures cannot describe a disk that is slow below its physical block, or fast up to a buffer's size; a table of
//! measurements can.
//!
//! # How it works
//! Each point starts a segment with a cost and a slope. The segment of a length is found by bisection: at most six
//! comparisons, since a table has at most 64 points. Costs are `f64` femtoseconds, whose addition and multiplication
//! give the same bits everywhere.
//!
//! # Limits
//! The slope of the last segment is never negative, whatever noise the last two points have.
//!
//! # Example
//! Points (4096, 200 000) and (65 536, 20 000): 5 us and 50 us. 34 816 bytes lie in the middle and cost 27.5 us; 512
//! bytes cost 5 us; 126 976 bytes cost 95 us.

use core::fmt;

use crate::request::Direction;
use crate::units::{Cost, FS_PER_S};

/// Most points of one direction in [`CostModel::from_table`](super::CostModel::from_table).
pub const MAX_TABLE_POINTS: usize = 64;

/// The reason why a table makes no model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ModelError {
    /// Fewer than two points, or more than [`MAX_TABLE_POINTS`].
    PointCount {
        /// Direction of the table.
        direction: Direction,
        /// Number of points of the table.
        points: usize,
    },
    /// The lengths do not rise from point to point.
    LengthNotRising {
        /// Direction of the table.
        direction: Direction,
        /// The length that is not above its predecessor.
        len_bytes: u32,
    },
    /// A rate that is not positive and finite.
    BadRate {
        /// Direction of the table.
        direction: Direction,
        /// The length of the point.
        len_bytes: u32,
        /// Operations per second of the point.
        ops_per_s: f64,
    },
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            ModelError::PointCount { direction, points } => {
                let name = name(direction);
                write!(f, "the {name} table has {points} points; give 2 to {MAX_TABLE_POINTS}")
            }
            ModelError::LengthNotRising { direction, len_bytes } => {
                let name = name(direction);
                write!(f, "length {len_bytes} of the {name} table is not above the one before; sort, and drop doubles")
            }
            ModelError::BadRate { direction, len_bytes, ops_per_s } => {
                let name = name(direction);
                write!(
                    f,
                    "{ops_per_s} {name}s a second at length {len_bytes}; measure it again, or leave the point out"
                )
            }
        }
    }
}

impl core::error::Error for ModelError {}

fn name(direction: Direction) -> &'static str {
    match direction {
        Direction::Read => "read",
        Direction::Write => "write",
    }
}

/// The curve of one direction.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Table {
    segments: Box<[Segment]>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Segment {
    start_bytes: u32,
    start_fs: f64,
    fs_per_byte: f64,
}

impl Table {
    pub(super) fn new(points: &[(u32, f64)], direction: Direction) -> Result<Table, ModelError> {
        if points.len() < 2 || points.len() > MAX_TABLE_POINTS {
            return Err(ModelError::PointCount { direction, points: points.len() });
        }

        let mut segments: Vec<Segment> = Vec::with_capacity(points.len());
        for &(len_bytes, ops_per_s) in points {
            if !(ops_per_s > 0.0 && ops_per_s.is_finite()) {
                return Err(ModelError::BadRate { direction, len_bytes, ops_per_s });
            }

            let start_fs = FS_PER_S as f64 / ops_per_s;
            let mut fs_per_byte = 0.0;
            if let Some(previous) = segments.last_mut() {
                if len_bytes <= previous.start_bytes {
                    return Err(ModelError::LengthNotRising { direction, len_bytes });
                }
                let gap_bytes = f64::from(len_bytes - previous.start_bytes);
                previous.fs_per_byte = (start_fs - previous.start_fs) / gap_bytes;
                // Only the last segment keeps this; in any other its successor overwrites it.
                fs_per_byte = previous.fs_per_byte.max(0.0);
            }
            segments.push(Segment { start_bytes: len_bytes, start_fs, fs_per_byte });
        }
        Ok(Table { segments: segments.into_boxed_slice() })
    }

    pub(super) fn cost(&self, len_bytes: u32) -> Cost {
        let after = self.segments.partition_point(|segment| segment.start_bytes <= len_bytes);
        self.segments.get(after.saturating_sub(1)).map_or(Cost::ZERO, |segment| {
            let beyond_bytes = f64::from(len_bytes.saturating_sub(segment.start_bytes));
            // A float-to-integer `as` saturates.
            Cost::from_fs((segment.start_fs + beyond_bytes * segment.fs_per_byte + 0.5) as u64)
        })
    }

    /// Returns the bytes per second of long requests, infinite if the last two points cost the same.
    pub(super) fn bytes_per_s(&self) -> f64 {
        FS_PER_S as f64 / self.segments.last().map_or(0.0, |segment| segment.fs_per_byte)
    }
}
