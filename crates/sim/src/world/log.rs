//! The event log: what happened, in order, as a stream for who wants it and as one number for everybody.
//!
//! The number is a hash over all events in their order. Two runs that agree in it did the same things at the same
//! times. It is two multiplications an event, and no more than a fingerprint: not for secrets.

use plimsoll_core::{Op, WaitReason};

/// What happened to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// A job handed it to its I/O queue.
    Enqueue,
    /// A piece of it went to the device.
    Dispatch,
    /// Its shard has seen a piece of it come back.
    Complete,
    /// It has ended, and its job knows.
    Finish,
    /// The I/O queue would not take it: full, or its class was removed.
    Refuse,
    /// It was cancelled in the queue because its class was removed.
    Cancel,
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, in virtual nanoseconds.
    pub at_ns: u64,
    /// What happened.
    pub kind: EventKind,
    /// The shard where it happened.
    pub shard: u32,
    /// The disk.
    pub disk: u32,
    /// The class, as its place in the list of the world's classes.
    pub class: u32,
    /// The request: requests count from 0 in the order in which jobs send them.
    pub key: u64,
    /// What the request does.
    pub op: Op,
    /// Where the request or piece begins on the disk, in bytes.
    pub offset_bytes: u64,
    /// Length of the request or piece, in bytes; of completions, what was moved.
    pub len_bytes: u32,
    /// Of dispatches: cost in the disk model, in nanoseconds of device time; of completions: for how many nanoseconds it had
    /// been done before its shard looked. Else 0.
    pub detail: u32,
    /// Of dispatches: what its class waited for most.
    pub reason: Option<WaitReason>,
    /// Of completions and ends: the error number, or 0.
    pub errno: i32,
}

pub(crate) struct Log<'a> {
    pub(crate) hash: u64,
    pub(crate) events: u64,
    pub(crate) sink: Option<&'a mut dyn FnMut(&Event)>,
}

impl<'a> Log<'a> {
    pub(crate) fn new(seed: u64, sink: Option<&'a mut dyn FnMut(&Event)>) -> Log<'a> {
        Log { hash: seed ^ 0x9e37_79b9_7f4a_7c15, events: 0, sink }
    }

    #[inline]
    pub(crate) fn note(&mut self, event: Event) {
        let place = (u64::from(event.shard) << 40) ^ (u64::from(event.class) << 20) ^ u64::from(event.disk);
        let what = (u64::from(event.len_bytes) << 16) ^ ((event.op as u64) << 8) ^ event.kind as u64;
        let time = event.at_ns.wrapping_mul(0xd6e8_feb8_6659_fd93) ^ event.offset_bytes.rotate_left(32);
        let word = time ^ (event.key ^ what.rotate_left(20) ^ place.rotate_left(7)).wrapping_mul(0xa076_1d64_78bd_642f);
        self.hash = (self.hash.rotate_left(23) ^ word).wrapping_mul(0x9fb2_1c65_1e98_df25);
        self.events += 1;
        if let Some(sink) = &mut self.sink {
            sink(&event);
        }
    }
}
