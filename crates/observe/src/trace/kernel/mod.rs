//! Traces of the kernel's block layer: what became of requests below the program.
//!
//! **Why.** The scheduler sees a request go and come back. In between the kernel may hold it in a queue of its own,
//! split it, merge it with others, or send it twice; only the kernel's trace tells that from a slow device.
//!
//! **How.** Both forms, the text of `blkparse` and the binary stream of `blktrace` ([`blktrace`]),
//! become events of one kind. The intake puts those in order of time and hands them to a matcher, which makes one
//! [`Span`](super::span::Span) of each request that went to a driver. [`record`] makes such a stream without the
//! `blktrace` command.
//!
//! ```text
//!  blkparse text --\                 sort window                Q G I D C M F X A R
//!                   +--> BlockEvent -------------> in order ------------------------> Span, Span, ...
//!  blktrace binary-/                                              \--> what did not match: a sentence in Trace::lost
//! ```
//!
//! | letter | meaning | in the span |
//! |---|---|---|
//! | A | came from another device or a partition | begin, where no Q follows |
//! | Q | handed to the block layer | `queued_ns` |
//! | X | split in two | `is_split`, `piece` |
//! | G | has a request structure | begin, where neither Q nor A is there |
//! | M, F | added to the end or front of a request | `merged` of that request |
//! | I | in the I/O scheduler | |
//! | D | given to the driver | `submitted_ns`, the last one |
//! | R | taken back from the driver | D comes again |
//! | C | completed | `completed_ns`, `error` |
//!
//! P, U, UT, S, B and messages are counted and have no part.
//!
//! **Limits.** Events are sorted within [`WINDOW_EVENTS`]; one that comes later than that is counted. A time stamp more
//! than a day away from those around it is that of a broken clock: the event is left out and counted. At most
//! [`OPEN_MAX`] requests are held. Devices above others (device mapper, md) have spans of their own, without D.
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

/// Events that are held to be put in order; twice as many for a moment. 7 MB.
pub const WINDOW_EVENTS: usize = 1 << 17;

/// Most requests that are held under way.
pub const OPEN_MAX: usize = 1 << 18;

/// Bytes of a sector, whatever the device's own blocks are: the kernel's unit.
pub const SECTOR_BYTES: u64 = 512;

/// What happened, as far as it has a part in matching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Queue,
    GetRequest,
    Insert,
    Issue,
    Complete,
    BackMerge,
    FrontMerge,
    /// The sector where the second part begins.
    Split(u64),
    Remap,
    Requeue,
    /// P, U, UT, S, B, messages and what later kernels have.
    Other,
}

/// One event of the block layer, whatever form it was written in. Names are numbers of the intake already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BlockEvent {
    time_ns: u64,
    sector: u64,
    sectors: u64,
    action: Action,
    /// `None`: neither a transfer nor a flush nor a discard.
    op: Option<Op>,
    /// Number of the process's name.
    class: u16,
    disk: u16,
    cpu: u16,
    /// On this CPU for this device, from 1; 0: not known.
    sequence: u32,
    /// Error number of a completion, 0 without one.
    error: i32,
}

/// What a request does, by what it says of itself; `None` for what has no length and is no flush.
fn op_of(is_write: bool, is_flush: bool, is_discard: bool, sectors: u64) -> Option<Op> {
    match (sectors, is_flush, is_discard) {
        (0, true, _) => Some(Op::Flush),
        (0, false, _) => None,
        (_, _, true) => Some(Op::Discard),
        (_, _, false) if is_write => Some(Op::Write),
        _ => Some(Op::Read),
    }
}
