//! A request as the scheduler sees it: plain data.
//!
//! The scheduler sees neither buffers nor files nor offsets, only an operation, a length and a number by which the
//! caller finds the rest again.

/// Direction of a transfer, as the disk model sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// From the disk.
    Read,
    /// To the disk. Flush, discard and allocate count as writes.
    Write,
}

impl Direction {
    /// Both directions, in the order of their numbers.
    pub const ALL: [Direction; 2] = [Direction::Read, Direction::Write];

    /// Returns the lower-case name used in tables and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Direction::Read => "read",
            Direction::Write => "write",
        }
    }
}

/// An operation of the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Op {
    /// Reads bytes; split when long.
    #[default]
    Read,
    /// Writes bytes; split when long.
    Write,
    /// Makes written data durable; costs a fixed device time, never split.
    Flush,
    /// Tells the disk that a range is unused; costs a fixed device time, never split.
    Discard,
    /// Reserves space in the file system; costs a fixed device time, never split.
    Allocate,
}

impl Op {
    /// All operations, in the order of their numbers.
    pub const ALL: [Op; 5] = [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::Allocate];

    /// Returns the direction that the operation is accounted under.
    #[must_use]
    pub const fn direction(self) -> Direction {
        match self {
            Op::Read => Direction::Read,
            _ => Direction::Write,
        }
    }

    /// Returns the lower-case name used in tables and files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Op::Read => "read",
            Op::Write => "write",
            Op::Flush => "flush",
            Op::Discard => "discard",
            Op::Allocate => "allocate",
        }
    }

    /// Returns whether the operation moves bytes, and so may be split.
    #[must_use]
    pub const fn is_transfer(self) -> bool {
        matches!(self, Op::Read | Op::Write)
    }
}
