//! One piece of a request on its way, whoever recorded it: times at its stations, in the order of the way.
//!
//! **Why.** The program's own trace and the kernel's are of different make and answer the same questions. What analyses
//! see is a [`Span`], with the stations that its source knows.
//!
//! **How.** Readers ([`super::own`], [`super::kernel`]) hand [`Item`]s to a visitor, each span once it has ended, so a
//! reader holds what is under way and no more. Spans come roughly in the order of their ends; an analysis must not
//! count on more.
//!
//! **Limits.** A span whose end is not in the trace comes at the end of the file, with the stations that it has.

use plimsoll::core::trace::Event;
use plimsoll::core::{Op, WaitReason};
use plimsoll::trace::format::Names;

/// A piece of a request. Times are ns on the clock of the trace; `None`: the source does not know the station, or the
/// trace begins after it or ends before it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// The shard; the CPU that queued it in a kernel trace.
    pub shard: u16,
    /// Number of the disk in [`Trace::names`].
    pub disk: u16,
    /// Number of the class in [`Trace::names`]; of the process in a kernel trace.
    pub class: u16,
    /// What it does.
    pub op: Op,
    /// Number of the request on its shard; in a kernel trace, a running number.
    pub request: u64,
    /// Number of the piece in its request.
    pub piece: u16,
    /// Whether the request has more than this piece.
    pub is_split: bool,
    /// Number of the file in [`Trace::names`]; 0 in a kernel trace.
    pub file: u32,
    /// Bytes from the beginning of the file, or of the disk in a kernel trace.
    pub offset_bytes: u64,
    /// Length in bytes.
    pub len_bytes: u32,
    /// Requests that the kernel merged into this one.
    pub merged: u16,
    /// Cost in the disk model, ns of device time.
    pub cost_ns: Option<u32>,
    /// What its class waited for most before it went out.
    pub reason: Option<WaitReason>,
    /// Q: handed over. Pieces of one request have the same.
    pub queued_ns: Option<u64>,
    /// Its turn, tokens granted: out of the scheduler's queue. Not in a kernel trace.
    pub dispatched_ns: Option<u64>,
    /// D: given to the backend, or by the kernel to the driver.
    pub submitted_ns: Option<u64>,
    /// C: back from the device, as far as the source can see it.
    pub completed_ns: Option<u64>,
    /// It may have been back for so long before `completed_ns`, because nobody looked, in ns.
    pub late_max_ns: u32,
    /// R: the scheduler was told.
    pub reaped_ns: Option<u64>,
    /// The whole request's end was handed to the program; with its last piece only.
    pub callback_ns: Option<u64>,
    /// Error number.
    pub error: Option<i32>,
    /// Taken back before it went out.
    pub is_cancelled: bool,
}

impl Span {
    /// D of D2C: when it went out, as the source knows it best.
    #[must_use]
    pub fn out_ns(&self) -> Option<u64> {
        self.submitted_ns.or(self.dispatched_ns)
    }

    /// The last station that is known.
    #[must_use]
    pub fn end_ns(&self) -> Option<u64> {
        self.callback_ns.or(self.reaped_ns).or(self.completed_ns)
    }

    /// From when it was handed over, or first seen.
    #[must_use]
    pub fn begin_ns(&self) -> Option<u64> {
        self.queued_ns.or(self.dispatched_ns).or(self.submitted_ns).or(self.completed_ns)
    }
}

/// What a reader hands over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Item {
    /// A piece that has ended, or that the trace ends before.
    Span(Span),
    /// Anything else that is in the program's own trace: blocked queues, decisions of the closed loop. With its shard.
    Event(u16, Event),
}

/// Who recorded a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A program with this scheduler.
    Own,
    /// The kernel's block layer.
    Kernel,
}

/// What a whole trace was, once it has been read.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// Who recorded it.
    pub origin: Origin,
    /// What numbers stand for. In a kernel trace classes are processes, by name.
    pub names: Names,
    /// Unix time in ns at time stamp 0; `None`: not known, or virtual time.
    pub unix_at_zero_ns: Option<u64>,
    /// Time stamps are CLOCK_MONOTONIC: two such traces of one machine have one clock.
    pub is_monotonic: bool,
    /// Events read.
    pub events: u64,
    /// Spans handed over.
    pub spans: u64,
    /// What could not be read or matched, a sentence each: `2,048 bytes at the end: the file was cut`.
    pub lost: Vec<String>,
}

impl Trace {
    /// Name of a class, or of a process in a kernel trace; `class 7` where the trace does not say.
    #[must_use]
    pub fn class_name(&self, number: u16) -> String {
        self.names.classes.get(&number).map_or_else(|| format!("class {number}"), |class| class.name.clone())
    }

    /// Name of a disk; `disk 7` where the trace does not say.
    #[must_use]
    pub fn disk_name(&self, number: u16) -> String {
        self.names.disks.get(&number).cloned().unwrap_or_else(|| format!("disk {number}"))
    }
}
