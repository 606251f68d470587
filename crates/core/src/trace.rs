//! The stations of a request, as events of a fixed size.
//!
//! # Why
//! A latency shows that something was slow, not where. One event at each station of a request shows how long it queued
//! and why, how long the device had it, and how long it was complete before the shard polled.
//!
//! # How it works
//! An [`Event`] is plain data; [`Event::to_bytes`] and [`Event::from_bytes`] define its only encoding, [`EVENT_BYTES`]
//! little-endian bytes. The program that runs the queue makes the events: the `plimsoll` library for real disks, the
//! simulator for simulated ones. The kind decides the meaning of the fields:
//!
//! | kind | offset | length | detail |
//! |---|---|---|---|
//! | Queued | of the request in its file | of the request | number of the file |
//! | Blocked | 0 | 0 | ns until the next poll; `reason`: that of the wait |
//! | Dispatched | of the piece in its file | of the piece | model cost, ns; `reason`: its class's longest wait |
//! | Submitted | as dispatched | as dispatched | 0 |
//! | Completed | as dispatched | bytes moved | longest time, ns, for which it may have been complete before |
//! | Reaped | as dispatched | bytes moved | 0, or the error number |
//! | Finished | of the request | bytes moved | 0, or the error number |
//! | Callback | 0 | 0 | 0 |
//! | Cancelled | 0 | 0 | 0 |
//! | Control | window, ns | part of the capacity, millionths | which decision, see [`Event::control`] |
//!
//! A piece is granted its tokens when it is dispatched, so both are one station. A request of several pieces has one
//! Queued and one Finished, and a Dispatched to Reaped for each piece, numbered from 0.
//!
//! # Limits
//! Costs and waiting times saturate at 2^32 ns (4.3 s), lengths at 4 GiB. Request numbers are per shard.
//!
//! # Example
//! ```
//! use plimsoll_core::trace::{Event, EventKind};
//! use plimsoll_core::{Op, WaitReason};
//!
//! let event = Event {
//!     time_ns: 1_000,
//!     request: 7,
//!     offset_bytes: 8192,
//!     len_bytes: 4096,
//!     detail: 250,
//!     class: 2,
//!     disk: 0,
//!     piece: 0,
//!     kind: EventKind::Dispatched,
//!     op: Op::Read,
//!     reason: Some(WaitReason::Tokens),
//! };
//! assert_eq!(Event::from_bytes(&event.to_bytes()), Some(event));
//! ```

use crate::control::EventKind as Decision;
use crate::request::Op;
use crate::stats::WaitReason;

/// Length of an event in bytes.
pub const EVENT_BYTES: usize = 40;

/// A station of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EventKind {
    /// The program handed the request over.
    Queued = 1,
    /// The queue has work but may dispatch none of it, for a reason other than before.
    Blocked = 2,
    /// A piece leaves the queue: it is its turn, the device has room, and its tokens are granted.
    Dispatched = 3,
    /// The backend has taken the piece.
    Submitted = 4,
    /// The piece is complete: the time at which the shard began the poll that found it.
    Completed = 5,
    /// The scheduler has processed the piece's completion.
    Reaped = 6,
    /// The whole request has ended.
    Finished = 7,
    /// The request's end was handed to the program.
    Callback = 8,
    /// The queued rest of the request was cancelled.
    Cancelled = 9,
    /// The closed loop has made a decision about the disk.
    Control = 10,
}

impl EventKind {
    /// All kinds, in the order in which a request passes them.
    pub const ALL: [EventKind; 10] = [
        EventKind::Queued,
        EventKind::Blocked,
        EventKind::Dispatched,
        EventKind::Submitted,
        EventKind::Completed,
        EventKind::Reaped,
        EventKind::Finished,
        EventKind::Callback,
        EventKind::Cancelled,
        EventKind::Control,
    ];

    /// Returns the lower-case name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            EventKind::Queued => "queued",
            EventKind::Blocked => "blocked",
            EventKind::Dispatched => "dispatched",
            EventKind::Submitted => "submitted",
            EventKind::Completed => "completed",
            EventKind::Reaped => "reaped",
            EventKind::Finished => "finished",
            EventKind::Callback => "callback",
            EventKind::Cancelled => "cancelled",
            EventKind::Control => "control",
        }
    }
}

/// One event. The kind decides the meaning of the fields; see the module's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Time on the clock of the shard, in nanoseconds.
    pub time_ns: u64,
    /// Number of the request on its shard, from 1, never used twice; 0 if the event has no request.
    pub request: u64,
    /// Offset in the file, in bytes; another meaning in some kinds.
    pub offset_bytes: u64,
    /// Length in bytes; another meaning in some kinds.
    pub len_bytes: u32,
    /// The kind decides the meaning.
    pub detail: u32,
    /// Number of the class in its registry.
    pub class: u16,
    /// Number of the disk.
    pub disk: u16,
    /// Number of the piece in its request.
    pub piece: u16,
    /// The station.
    pub kind: EventKind,
    /// Operation of the request.
    pub op: Op,
    /// Reason for which the request waited.
    pub reason: Option<WaitReason>,
}

const OPS: [Op; 5] = [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::Allocate];

/// The decisions of the closed loop, in the order of their numbers in events.
const DECISIONS: [Decision; 15] = [
    Decision::WindowRaised,
    Decision::WindowLowered,
    Decision::Fall,
    Decision::FallReverted,
    Decision::Recovery,
    Decision::Stall,
    Decision::StallOver,
    Decision::ScaleChanged,
    Decision::Bound,
    Decision::OthersGiveWay,
    Decision::OthersComeBack,
    Decision::WeightRaised,
    Decision::WeightLowered,
    Decision::TargetUnreachable,
    Decision::Excursion,
];

impl Event {
    /// Encodes the event in the form in which it is stored.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; EVENT_BYTES] {
        let words = self.to_words();
        let mut bytes = [0; EVENT_BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Encodes the event as five words, the form in which rings hold it.
    #[must_use]
    pub fn to_words(&self) -> [u64; EVENT_BYTES / 8] {
        let op = OPS.iter().position(|op| *op == self.op).unwrap_or(0) as u64;
        let reason = self.reason.map_or(0, |reason| reason as u64 + 1);
        let small = [u64::from(self.class), u64::from(self.disk) << 16, u64::from(self.piece) << 32];
        let tail = small.iter().sum::<u64>() | (self.kind as u64) << 48 | op << 56 | reason << 60;
        let lengths = u64::from(self.len_bytes) | u64::from(self.detail) << 32;
        [self.time_ns, self.request, self.offset_bytes, lengths, tail]
    }

    /// Decodes an event from words. Returns `None` if a kind, an operation or a reason is unknown.
    #[must_use]
    #[inline]
    pub fn from_words(words: [u64; EVENT_BYTES / 8]) -> Option<Event> {
        let [time_ns, request, offset_bytes, lengths, tail] = words;
        let kind = (tail >> 48) as u8;
        let reason = match (tail >> 60) as usize {
            0 => None,
            number => Some(*WaitReason::ALL.get(number - 1)?),
        };
        Some(Event {
            time_ns,
            request,
            offset_bytes,
            len_bytes: lengths as u32,
            detail: (lengths >> 32) as u32,
            class: tail as u16,
            disk: (tail >> 16) as u16,
            piece: (tail >> 32) as u16,
            kind: *EventKind::ALL.get(usize::from(kind).checked_sub(1)?)?,
            op: *OPS.get((tail >> 56) as usize & 0xf)?,
            reason,
        })
    }

    /// Decodes an event from the bytes of [`Event::to_bytes`]. Returns `None` for bytes that are no event.
    #[must_use]
    #[inline]
    pub fn from_bytes(bytes: &[u8; EVENT_BYTES]) -> Option<Event> {
        let mut words = [0; EVENT_BYTES / 8];
        for (word, place) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(place.try_into().ok()?);
        }
        Event::from_words(words)
    }

    /// Returns the event of a decision of disk `disk`'s closed loop: the window after it and the part of the capacity.
    #[must_use]
    pub fn of_decision(decision: Decision, disk: u16, time_ns: u64, window_ns: u64, capacity_scale: f64) -> Event {
        let number = DECISIONS.iter().position(|known| *known == decision).unwrap_or(0);
        Event {
            time_ns,
            request: 0,
            offset_bytes: window_ns,
            len_bytes: (capacity_scale.clamp(0.0, 4_000.0) * 1e6) as u32,
            detail: number as u32,
            class: 0,
            disk,
            piece: 0,
            kind: EventKind::Control,
            op: Op::Read,
            reason: None,
        }
    }

    /// Returns the content of a control event: the decision, the window after it in nanoseconds, the part of the
    /// capacity. `None` for other kinds.
    #[must_use]
    pub fn control(&self) -> Option<(Decision, u64, f64)> {
        let decision = DECISIONS.get(self.detail as usize).filter(|_| self.kind == EventKind::Control)?;
        Some((*decision, self.offset_bytes, f64::from(self.len_bytes) / 1e6))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_survives_at_its_ends() {
        for kind in EventKind::ALL {
            for op in OPS {
                for reason in WaitReason::ALL.into_iter().map(Some).chain([None]) {
                    let event = Event {
                        time_ns: u64::MAX,
                        request: u64::MAX - 1,
                        offset_bytes: 1 << 63,
                        len_bytes: u32::MAX,
                        detail: u32::MAX - 1,
                        class: u16::MAX,
                        disk: 0,
                        piece: u16::MAX,
                        kind,
                        op,
                        reason,
                    };
                    assert_eq!(Event::from_bytes(&event.to_bytes()), Some(event));
                }
            }
        }
    }

    #[test]
    fn numbers_without_a_meaning_are_no_event() {
        assert_eq!(Event::from_bytes(&[0; EVENT_BYTES]), None, "kind 0");
        assert_eq!(Event::from_bytes(&[0xff; EVENT_BYTES]), None);
        for (kind, op, reason, is_event) in
            [(1, 0, 0, true), (10, 4, 5, true), (11, 0, 0, false), (1, 5, 0, false), (1, 0, 6, false)]
        {
            let words = [0, 0, 0, 0, (kind << 48) | (op << 56) | (reason << 60)];
            assert_eq!(Event::from_words(words).is_some(), is_event, "{kind} {op} {reason}");
        }
    }

    #[test]
    fn decisions_keep_their_numbers() {
        for decision in DECISIONS {
            let event = Event::of_decision(decision, 3, 5, 750_000, 0.25);
            assert_eq!(event.control(), Some((decision, 750_000, 0.25)));
            assert_eq!(Event { kind: EventKind::Queued, ..event }.control(), None);
        }
    }
}
