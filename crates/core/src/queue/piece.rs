//! The values that pass between a queue and its caller: pieces to submit, their outcomes, and the requests' progress.

use crate::bucket::Tokens;
use crate::request::Op;
use crate::stats::WaitReason;
use crate::units::Cost;

/// A piece of a request on its way to the device. Give it back to [`IoQueue::complete`](crate::IoQueue::complete) or
/// [`IoQueue::refuse`](crate::IoQueue::refuse): until then its device time counts as in flight.
#[must_use = "a dispatch must reach the device and come back, or be refused"]
#[derive(Debug)]
pub struct Dispatch {
    pub(super) slot: u32,
    pub(super) class: u32,
    pub(super) op: Op,
    pub(super) lane: u8,
    pub(super) reason: Option<WaitReason>,
    pub(super) offset_bytes: u32,
    pub(super) len_bytes: u32,
    pub(super) user_data: u64,
    pub(super) cost: Cost,
    pub(super) ticks: u64,
    /// The number of the buckets that its tokens came from, and the tokens.
    pub(super) buckets: u16,
    pub(super) tokens: Tokens,
    pub(super) dispatched_ns: u64,
}

impl Dispatch {
    /// Returns the operation.
    #[must_use]
    pub fn op(&self) -> Op {
        self.op
    }

    /// Returns the piece's offset in the request.
    #[must_use]
    pub fn offset_bytes(&self) -> u32 {
        self.offset_bytes
    }

    /// Returns the length of the piece; 0 for flush, discard and allocate.
    #[must_use]
    pub fn len_bytes(&self) -> u32 {
        self.len_bytes
    }

    /// Returns the `user_data` of [`IoQueue::enqueue`](crate::IoQueue::enqueue).
    #[must_use]
    pub fn user_data(&self) -> u64 {
        self.user_data
    }

    /// Returns the cost in the disk model: device time.
    #[must_use]
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// Returns the main reason for which the class waited before this dispatch; `None` if it did not wait.
    #[must_use]
    pub fn waited_for(&self) -> Option<WaitReason> {
        self.reason
    }

    /// Returns the time of the dispatch.
    #[must_use]
    pub fn dispatched_ns(&self) -> u64 {
        self.dispatched_ns
    }
}

/// The result of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Bytes moved. If fewer than asked but not 0, the rest is submitted at once, and charged.
    Moved(u32),
    /// Bytes moved before the end of the file.
    End(u32),
    /// The error number of the device or the kernel; 0, which is none, counts as 5 (`EIO`).
    Failed(i32),
}

/// The error number of cancelled requests: Linux's `ECANCELED`.
pub const CANCELLED: i32 = 125;

/// The error of a request, and the bytes moved before it. A read that meets the end of the file has not failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Failure {
    /// The error number of the piece at the end of the prefix; [`CANCELLED`] if the rest was cancelled.
    pub errno: i32,
    /// Bytes of the longest prefix that succeeded.
    pub moved_bytes: u32,
}

/// A request that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The `user_data` of [`IoQueue::enqueue`](crate::IoQueue::enqueue).
    pub user_data: u64,
    /// Bytes moved: all that were asked for, or fewer at the end of the file. An error before that makes it a failure.
    pub result: Result<u32, Failure>,
    /// Time from enqueue to the end.
    pub total_ns: u64,
}

/// The state of a request after one of its pieces has come back.
#[derive(Debug)]
pub enum Progress {
    /// The request has ended.
    Finished(Finished),
    /// Other pieces are still queued or in flight.
    Pending,
    /// The piece was short: submit this rest now.
    Continue(Dispatch),
}

/// A request that ended by cancellation, with none of its pieces in the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// The `user_data` of [`IoQueue::enqueue`](crate::IoQueue::enqueue).
    pub user_data: u64,
    /// Bytes of its prefix moved before; a cancelled write has written these.
    pub moved_bytes: u32,
}

/// The result of a cancellation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancel {
    /// The request has ended: none of its pieces was in the device. Its undispatched rest has taken no tokens.
    Cancelled(Stopped),
    /// Pieces are in the device. No more will follow, and the request ends when they are back.
    Stopping,
    /// The request has ended already, or all of it is in the device.
    TooLate,
}
