//! The recording part of a reactor: whether a trace runs, and the state that stations need besides their requests.
//!
//! # Why
//! The reactor's own code should only report stations, at almost no cost while no trace runs.
//!
//! # How it works
//! [`Tracer::follow`] compares an epoch, once a turn. While a trace runs, [`On`] holds the shard's end of its ring, and
//! the state for events about waiting queues and ended requests. Times never decrease within a shard: if a station's
//! time was read earlier in its turn, it is raised to that of the event before it.
//!
//! # Limits
//! One thread: the reactor's.
//!
//! # Example
//! ```text
//! if let Some(on) = self.tracer.on() { on.record(event) }
//! ```

use std::sync::Arc;

use plimsoll_core::WaitReason;
use plimsoll_core::trace::Event;

use super::recorder::{Recorder, Taken};
use super::ring::RingWriter;

/// Ended requests of one turn that need no allocation.
const ENDED: usize = 1024;

/// The recording part of one reactor; see the module's documentation.
pub(crate) struct Tracer {
    recorder: Arc<Recorder>,
    shard: u16,
    epoch: u64,
    on: Option<Box<On>>,
}

/// State while a trace runs.
pub(crate) struct On {
    recorder: Arc<Recorder>,
    shard: u16,
    epoch: u64,
    is_virtual: bool,
    writer: RingWriter,
    last_ns: u64,
    /// The last recorded wait of each disk's queue.
    waits_for: Vec<Option<WaitReason>>,
    /// Ended requests that the owner has not got yet.
    ended: Vec<Event>,
}

impl Tracer {
    pub(crate) fn new(recorder: &Arc<Recorder>, shard: u16) -> Tracer {
        Tracer { recorder: Arc::clone(recorder), shard, epoch: 0, on: None }
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.on.is_some()
    }

    /// Returns whether the tracer has followed the last start or stop.
    #[inline]
    pub(crate) fn is_current(&self) -> bool {
        self.recorder.epoch() == self.epoch
    }

    /// Returns the sink of events, if a trace runs.
    #[inline]
    pub(crate) fn on(&mut self) -> Option<&mut On> {
        self.on.as_deref_mut()
    }

    /// Follows a start or stop of a trace. If one has begun, returns the number that new request numbers must exceed.
    #[inline]
    pub(crate) fn follow(&mut self) -> Option<u64> {
        if self.recorder.epoch() == self.epoch { None } else { self.change() }
    }

    #[cold]
    fn change(&mut self) -> Option<u64> {
        let Taken { epoch, writer, is_virtual, after_request } = self.recorder.take_writer(self.shard);
        self.epoch = epoch;
        self.on = writer.map(|writer| {
            Box::new(On {
                recorder: Arc::clone(&self.recorder),
                shard: self.shard,
                epoch,
                is_virtual,
                writer,
                last_ns: 0,
                waits_for: Vec::new(),
                ended: Vec::with_capacity(ENDED),
            })
        });
        self.on.as_ref().map(|_| after_request)
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        if let Some(on) = self.on.take() {
            self.recorder.give_back(self.shard, on.epoch, on.writer);
        }
    }
}

impl On {
    /// Records `event`, with a time not before that of the last event.
    #[inline]
    pub(crate) fn record(&mut self, mut event: Event) {
        event.time_ns = event.time_ns.max(self.last_ns);
        self.last_ns = event.time_ns;
        self.writer.push(&event);
        if self.is_virtual && self.writer.is_nearly_full() {
            self.recorder.carry(self.epoch, Some(self.shard));
        }
    }

    /// Returns the time of the last event, for another event at the same time.
    #[inline]
    pub(crate) fn last_ns(&self) -> u64 {
        self.last_ns
    }

    /// Stores that the queue of `disk` waits for `reason`. Returns whether it waits, and for a new reason.
    pub(crate) fn is_new_wait(&mut self, disk: usize, reason: Option<WaitReason>) -> bool {
        if self.waits_for.len() <= disk {
            self.waits_for.resize(disk + 1, None);
        }
        let Some(told) = self.waits_for.get_mut(disk) else { return false };
        std::mem::replace(told, reason) != reason && reason.is_some()
    }

    /// Keeps `event` until the owner gets the ended requests.
    #[inline]
    pub(crate) fn has_ended(&mut self, event: Event) {
        self.ended.push(event);
    }

    /// Returns whether ended requests wait for their owner.
    pub(crate) fn has_any_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Records the kept events: the owner gets the ended requests now.
    pub(crate) fn hand_out(&mut self, now_ns: u64) {
        let mut ended = std::mem::take(&mut self.ended);
        for event in ended.drain(..) {
            self.record(Event { time_ns: now_ns, ..event });
        }
        self.ended = ended;
    }
}
