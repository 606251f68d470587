//! What a request is to the scheduler: plain data.
//!
//! The scheduler sees neither buffers nor files nor offsets: an operation, a length and a number by which the caller
//! finds the rest again.

/// Direction of a transfer, as the disk model sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// From the disk.
    Read,
    /// To the disk. Flush, discard and allocate count as writes.
    Write,
}

impl Direction {
    /// Both, in the order of their numbers.
    pub const ALL: [Direction; 2] = [Direction::Read, Direction::Write];

    /// Short lower-case name, as in tables and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Direction::Read => "read",
            Direction::Write => "write",
        }
    }
}

/// What is asked of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Read bytes; split when long.
    Read,
    /// Write bytes; split when long.
    Write,
    /// Make written data durable; costs a fixed device time, never split.
    Flush,
    /// Tell the disk that a range is unused; costs a fixed device time, never split.
    Discard,
    /// Reserve space in the file system; costs a fixed device time, never split.
    Allocate,
}

impl Op {
    /// The direction that the operation is accounted under.
    #[must_use]
    pub const fn direction(self) -> Direction {
        match self {
            Op::Read => Direction::Read,
            _ => Direction::Write,
        }
    }

    /// Lower-case name, as in tables and files.
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

    /// Whether the operation moves bytes, and so may be split.
    #[must_use]
    pub const fn is_transfer(self) -> bool {
        matches!(self, Op::Read | Op::Write)
    }
}
