//! One piece of a request on its way, from any source: its times at the stations, in their order.
//!
//! **Why.** A program's own trace and the kernel's differ in form, but answer the same questions. Analyses see a
//! [`Span`], with the stations that its source knows.
//!
//! **How.** Readers ([`super::own`], [`super::kernel`]) hand [`Item`]s to a visitor, each span once it has ended, so a
//! reader holds only the pieces in flight. Spans come roughly in the order of their ends; an analysis must not rely on
//! more.
//!
//! **Limits.** A span whose end is not in the trace comes at the end of the file, with the stations that it has.

use std::ops::Range;

use plimsoll::core::trace::Event;
use plimsoll::core::{Op, WaitReason};
use plimsoll::trace::format::Names;

/// A piece of a request. Times are ns on the clock of the trace. A time is `None` if the source does not know the
/// station, or the trace begins after it or ends before it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Span {
    /// The shard; the CPU that queued it in a kernel trace.
    pub shard: u16,
    /// Number of the disk in [`Trace::names`].
    pub disk: u16,
    /// Number of the class in [`Trace::names`]; of the process in a kernel trace.
    pub class: u16,
    pub op: Op,
    /// Number of the request on its shard; in a kernel trace, a running number.
    pub request: u64,
    pub piece: u16,
    /// Whether the request has more than this piece.
    pub is_split: bool,
    /// Number of the file in [`Trace::names`]; 0 in a kernel trace.
    pub file: u32,
    /// Bytes from the beginning of the file, or of the disk in a kernel trace.
    pub offset_bytes: u64,
    pub len_bytes: u32,
    /// Requests that the kernel merged into this one.
    pub merged: u16,
    /// Cost in the disk model, ns of device time.
    pub cost_ns: Option<u32>,
    /// The reason for which its class waited longest before its dispatch.
    pub reason: Option<WaitReason>,
    /// Q: submitted by the program. All pieces of one request have the same time.
    pub queued_ns: Option<u64>,
    /// When its turn came and tokens were granted, so that it left the scheduler's queue. `None` in a kernel trace.
    pub dispatched_ns: Option<u64>,
    /// D: given to the backend, or by the kernel to the driver.
    pub submitted_ns: Option<u64>,
    /// C: back from the device, as far as the source can see it.
    pub completed_ns: Option<u64>,
    /// Longest time before `completed_ns`, in ns, for which it may have been back while the shard did not poll.
    pub late_max_ns: u32,
    /// R: reaped by the scheduler.
    pub reaped_ns: Option<u64>,
    /// The whole request was reported to the program; only in the request's last piece.
    pub callback_ns: Option<u64>,
    pub error: Option<i32>,
    /// Whether it was cancelled before it went out.
    pub is_cancelled: bool,
}

impl Span {
    /// Returns a request in one piece of which nothing else is known.
    pub fn new(op: Op, request: u64, offset_bytes: u64, len_bytes: u32) -> Span {
        Span { op, request, offset_bytes, len_bytes, ..Span::default() }
    }

    /// Returns D of D2C: when the piece was submitted or, if that is not known, dispatched.
    pub fn out_ns(&self) -> Option<u64> {
        self.submitted_ns.or(self.dispatched_ns)
    }

    /// Returns when the piece was in the queue: from Q to D. Every count of the queue's depth rests on this.
    pub fn in_queue(&self) -> Stay {
        Stay { came_ns: self.queued_ns, gone_ns: self.out_ns() }
    }

    /// Returns when the piece was in the device: from D until it was back. Every count of the device's depth rests on
    /// this.
    pub fn in_device(&self) -> Stay {
        Stay { came_ns: self.out_ns(), gone_ns: self.completed_ns.or(self.reaped_ns) }
    }

    /// Returns whether the piece was cancelled before it went out.
    pub fn is_cancelled_in_queue(&self) -> bool {
        self.is_cancelled && self.out_ns().is_none()
    }

    /// Returns the last known station.
    pub fn end_ns(&self) -> Option<u64> {
        self.callback_ns.or(self.reaped_ns).or(self.completed_ns)
    }

    /// Returns when the piece was submitted, or first seen.
    pub fn begin_ns(&self) -> Option<u64> {
        self.queued_ns.or(self.dispatched_ns).or(self.submitted_ns).or(self.completed_ns)
    }
}

/// The time of a piece in the queue or in the device. An end is `None` if it is not in the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stay {
    pub came_ns: Option<u64>,
    pub gone_ns: Option<u64>,
}

impl Stay {
    /// Returns the time from its begin to its end, if both are known, and in this order.
    pub fn whole(&self) -> Option<Range<u64>> {
        let (came_ns, gone_ns) = (self.came_ns?, self.gone_ns?);
        (came_ns <= gone_ns).then_some(came_ns..gone_ns)
    }
}

/// The time that the pieces of a trace cover, from the first known station to the last. Means over a trace are over
/// this time. A piece cancelled before it went out does not count: the trace does not say when that was.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Covered(Option<(u64, u64)>);

impl Covered {
    pub(super) fn add(&mut self, span: &Span) {
        let Some(begin_ns) = span.begin_ns().filter(|_| !span.is_cancelled_in_queue()) else { return };
        let end_ns = span.end_ns().or(span.out_ns()).unwrap_or(begin_ns).max(begin_ns);
        self.0 = Some(match self.0 {
            Some((first_ns, last_ns)) => (first_ns.min(begin_ns), last_ns.max(end_ns)),
            None => (begin_ns, end_ns),
        });
    }

    /// Returns begin and end; both 0 without pieces.
    pub(super) fn range_ns(self) -> (u64, u64) {
        self.0.unwrap_or_default()
    }
}

/// A part of a trace that a reader hands over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Item {
    /// A piece that has ended, or whose end is not in the trace.
    Span(Span),
    /// Another event of the program's own trace (a blocked queue, a decision of the closed loop), with its shard.
    Event(u16, Event),
}

/// The recorder of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A program with this scheduler.
    Own,
    /// The kernel's block layer.
    Kernel,
}

/// The summary of a trace that has been read.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    pub origin: Origin,
    /// Names by number. In a kernel trace classes are processes, by name.
    pub names: Names,
    /// Unix time in ns at time stamp 0; `None` if not known, or for virtual time.
    pub unix_at_zero_ns: Option<u64>,
    /// Whether time stamps are CLOCK_MONOTONIC: two such traces of one machine have one clock.
    pub is_monotonic: bool,
    pub events: u64,
    pub spans: u64,
    /// Parts that could not be read or matched, one sentence each: `2,048 bytes at the end: the file was cut`.
    pub lost: Vec<String>,
    /// Open ends that any recording has, one sentence each: requests under way at its end. Nothing is lost.
    pub notes: Vec<String>,
}

impl Trace {
    /// Returns the losses of the trace, then its notes.
    pub fn remarks(&self) -> impl Iterator<Item = &String> {
        self.lost.iter().chain(&self.notes)
    }

    /// Returns the name of a class, or of a process in a kernel trace; `class 7` if the trace has none.
    pub fn class_name(&self, number: u16) -> String {
        self.names.classes.get(&number).map_or_else(|| format!("class {number}"), |class| class.name.clone())
    }

    /// Returns the name of a disk; `disk 7` if the trace has none.
    pub fn disk_name(&self, number: u16) -> String {
        self.names.disks.get(&number).cloned().unwrap_or_else(|| format!("disk {number}"))
    }
}
