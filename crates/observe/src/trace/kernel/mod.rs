//! Traces of the kernel's block layer: the course of requests below the program.
//!
//! **Why.** The scheduler sees a request go out and come back. In between the kernel may hold it in a queue of its own,
//! split it, merge it with others, or send it twice; only the kernel's trace distinguishes that from a slow device.
//!
//! **How.** Both forms, the text of `blkparse` and the binary stream of `blktrace` ([`blktrace`]), become events of one
//! kind. The intake sorts them by time and hands them to a matcher, which makes one [`Span`](super::span::Span) of each
//! request that went to a driver. [`record`] makes such a stream without the `blktrace` command.
//!
//! ```text
//!  blkparse text --\                 sort window                Q G I D C M F X A R
//!                   +--> BlockEvent -------------> in order ------------------------> Span, Span, ...
//!  blktrace binary-/                                              \--> what did not match: a sentence in Trace::lost
//! ```
//!
//! | letter | meaning | in the span |
//! |---|---|---|
//! | A | came from another device or a partition | begin, if no Q follows |
//! | Q | handed to the block layer | `queued_ns` |
//! | X | split in two | `is_split`, `piece` |
//! | G | has a request structure | begin, without Q or A |
//! | M, F | added to the end or front of a request | `merged` of that request |
//! | I | in the I/O scheduler | |
//! | D | given to the driver | `submitted_ns`, the last one |
//! | R | taken back from the driver | D comes again |
//! | C | completed | `completed_ns`, `error` |
//!
//! P, U, UT, S, B and messages count as events and are not used.
//!
//! **Limits.** Events are sorted within [`WINDOW_EVENTS`]; later ones are counted. A time stamp more than a day away
//! from those around it is that of a broken clock: the event is left out and counted. At most [`OPEN_MAX`] requests are
//! held. Devices above others (device mapper, md) have spans of their own, without D.
//!
//! **Example.**
//! ```
//! use plimsoll_observe::trace::kernel;
//! use plimsoll_observe::trace::span::Item;
//! let text = "\
//! 8,0 1 1 0.000000100 77 Q R 2048 + 8 [cat]
//! 8,0 1 2 0.000000900 77 D R 2048 + 8 [cat]
//! 8,0 0 1 0.000090900  0 C R 2048 + 8 [0]";
//! let mut spans = Vec::new();
//! let trace = kernel::read_blkparse(&mut text.as_bytes(), &mut |item| spans.push(item))?;
//! assert!(matches!(spans[0], Item::Span(span) if span.queued_ns == Some(100) && span.completed_ns == Some(90_900)));
//! assert!(trace.lost.is_empty());
//! # Ok::<(), plimsoll_observe::trace::TraceError>(())
//! ```

mod blkparse;
pub mod blktrace;
mod intake;
mod matching;
pub mod record;

use plimsoll::core::Op;

pub use blkparse::read_blkparse;
pub use blktrace::read_blktrace;
pub(crate) use blktrace::{cpu_files, read_blktrace_files};

/// Events held so that they can be sorted; twice as many for a moment. 7 MB.
pub const WINDOW_EVENTS: usize = 1 << 17;

/// Most requests held in flight.
pub const OPEN_MAX: usize = 1 << 18;

/// Bytes of a sector: the kernel's unit, whatever the blocks of the device are.
pub const SECTOR_BYTES: u64 = 512;

/// The kinds of events that matching distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Queue,
    GetRequest,
    Insert,
    Issue,
    Complete,
    BackMerge,
    FrontMerge,
    Split(u64),
    /// From this sector of this device, a partition or a device above; `None` if it is not known.
    Remap(Option<(u16, u64)>),
    Requeue,
    /// P, U, UT, S, B, messages, and kinds of later kernels.
    Other,
}

/// One event of the block layer, from either form. Names are numbers of the intake already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BlockEvent {
    time_ns: u64,
    sector: u64,
    sectors: u64,
    action: Action,
    /// `None` if the event is neither a transfer nor a flush nor a discard.
    op: Option<Op>,
    /// The number of the process's name.
    class: u16,
    disk: u16,
    cpu: u16,
    /// The number on this CPU for this device, from 1; 0 if not known.
    sequence: u32,
    /// Error number of a completion, 0 without one.
    error: i32,
}

/// Returns the operation of a request by its flags; `None` if it has no length and is no flush.
fn op_of(is_write: bool, is_flush: bool, is_discard: bool, sectors: u64) -> Option<Op> {
    match (sectors, is_flush, is_discard) {
        (0, true, _) => Some(Op::Flush),
        (0, false, _) => None,
        (_, _, true) => Some(Op::Discard),
        (_, _, false) if is_write => Some(Op::Write),
        _ => Some(Op::Read),
    }
}
