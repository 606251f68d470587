//! The event log: all events in order, as a stream for observers, and their hash.
//!
//! The hash covers all events in their order. Two runs with the same hash did the same things at the same times. It
//! costs two multiplications an event, and is only a fingerprint: not for secrets.

use plimsoll_core::{Op, WaitReason};

/// The kind of an event in a request's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// A job passed it to its I/O queue.
    Enqueue,
    /// A piece of it was sent to the device.
    Dispatch,
    /// Its shard handled the completion of a piece.
    Complete,
    /// It ended, and its job has the result.
    Finish,
    /// The I/O queue refused it: full, or its class was removed.
    Refuse,
    /// It was cancelled in the queue because its class was removed.
    Cancel,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Virtual time in nanoseconds.
    pub at_ns: u64,
    pub kind: EventKind,
    pub shard: u32,
    pub disk: u32,
    /// The class, as its index in the list of the world's classes.
    pub class: u32,
    /// The request: requests count from 0 in the order in which jobs send them.
    pub key: u64,
    pub op: Op,
    /// Start of the request or piece on the disk, in bytes.
    pub offset_bytes: u64,
    /// Length of the request or piece, in bytes; for completions, the bytes moved.
    pub len_bytes: u32,
    /// For dispatches, the cost in the disk model, in nanoseconds of device time. For completions, the nanoseconds
    /// between the device's completion and its handling by the shard. Otherwise 0.
    pub detail: u32,
    /// For dispatches, the main reason why its class waited.
    pub reason: Option<WaitReason>,
    /// For completions and ends, the error number, or 0.
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
