//! What goes back and forth between a queue and its caller: pieces on their way, what became of them, what it means.

use crate::request::Op;
use crate::stats::WaitReason;
use crate::units::Cost;

/// A piece of a request on its way to the device. Give it back to [`IoQueue::complete`](crate::IoQueue::complete), exactly once, or to
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
    /// Which bucket its tokens came from, and how many.
    pub(super) bucket: u16,
    pub(super) token_ticks: u64,
    pub(super) dispatched_ns: u64,
}

impl Dispatch {
    /// What to do.
    #[must_use]
    pub fn op(&self) -> Op {
        self.op
    }

    /// Where in the request the piece begins.
    #[must_use]
    pub fn offset_bytes(&self) -> u32 {
        self.offset_bytes
    }

    /// Length of the piece.
    #[must_use]
    pub fn len_bytes(&self) -> u32 {
        self.len_bytes
    }

    /// What the caller gave to `enqueue`.
    #[must_use]
    pub fn user_data(&self) -> u64 {
        self.user_data
    }

    /// Its cost in the disk model: device time.
    #[must_use]
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// What its class waited for most before this dispatch; `None` when it did not wait.
    #[must_use]
    pub fn waited_for(&self) -> Option<WaitReason> {
        self.reason
    }

    /// When it was dispatched.
    #[must_use]
    pub fn dispatched_ns(&self) -> u64 {
        self.dispatched_ns
    }
}

/// What became of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// So many bytes were moved. Fewer than asked: the rest is sent again at once, and charged.
    Moved(u32),
    /// So many bytes were moved, and there is no more (end of file).
    End(u32),
    /// The device or the system said no: its error number; 0, which is none, counts as 5 (`EIO`).
    Failed(i32),
}

/// The error number of what was cancelled: Linux's `ECANCELED`.
pub const CANCELLED: i32 = 125;

/// Why a request did not do all that was asked, and how far it came. Where a read meets the end of the file nothing failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Failure {
    /// The error number of the piece at the end of the prefix; [`CANCELLED`] where the rest was taken out of the queue.
    pub errno: i32,
    /// Bytes of the longest prefix that succeeded.
    pub moved_bytes: u32,
}

/// A request that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// What the caller gave to `enqueue`.
    pub user_data: u64,
    /// Bytes that were moved: all that was asked for, or fewer where there are no more (end of file). An error at any
    /// place makes it a failure.
    pub result: Result<u32, Failure>,
    /// From enqueue to now.
    pub total_ns: u64,
}

/// What a completed piece means for its request.
#[derive(Debug)]
pub enum Progress {
    /// The request has ended.
    Finished(Finished),
    /// Other pieces are still to come.
    Pending,
    /// The piece was short: send this rest now.
    Continue(Dispatch),
}

/// A request that was taken out of the queue, with nothing of it in the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// What the caller gave to `enqueue`.
    pub user_data: u64,
    /// Bytes of its prefix that had been to the device and back: what was written is written.
    pub moved_bytes: u32,
}

/// What became of a cancelled request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancel {
    /// Nothing of it is in the device: it has ended. For what had not been dispatched no tokens were taken.
    Cancelled(Stopped),
    /// Pieces are in the device; no more will follow, and the request ends when they are back.
    Stopping,
    /// It has ended already, or everything of it is in the device.
    TooLate,
}
