//! The stations of calls through a gate, for traces: the same as those of a reactor's requests.
//!
//! # Why
//! A reader of a trace need not know how the program reached the scheduler.
//!
//! # How it works
//! All events are recorded under the gate's lock, so their times never decrease. A call whose permit covers only its
//! beginning ends there (`Cancelled` stands for the rest); the continuation is another call.
//!
//! # Limits
//! A piece is `Submitted` when it is admitted, before its thread has woken.
//!
//! # Example
//! A read that did not wait: `Queued`, `Dispatched` and `Submitted` at one time; `Completed`, `Reaped`, `Finished`,
//! `Callback` at another.

use plimsoll_core::trace::{Event, EventKind};
use plimsoll_core::{Dispatch, FS_PER_NS};

use super::Call;
use super::state::{Entry, Pieces, State};

impl State {
    fn record(&mut self, event: Event) {
        if let Some(on) = self.tracer.on() {
            on.record(event);
        }
    }

    pub(super) fn note_queued(&mut self, now_ns: u64, call: &Call, number: u64) {
        let event = of_call(call, number, EventKind::Queued, now_ns, self.disk);
        self.record(Event { detail: call.file, ..event });
    }

    /// Records that the queue admits nothing now.
    pub(super) fn note_blocked(&mut self, now_ns: u64) {
        let (reason, wakeup_ns) = self.blocked();
        let Some(on) = self.tracer.on() else { return };
        if !on.is_new_wait(usize::from(self.disk), reason) {
            return;
        }

        let detail = wakeup_ns.map_or(0, |at_ns| saturated(at_ns.saturating_sub(now_ns)));
        on.record(Event {
            time_ns: now_ns,
            request: 0,
            offset_bytes: 0,
            len_bytes: 0,
            detail,
            class: 0,
            disk: self.disk,
            piece: 0,
            kind: EventKind::Blocked,
            op: plimsoll_core::Op::Read,
            reason,
        });
    }

    /// Records that the call under `key` is admitted, and whether its rest was cut off.
    pub(super) fn note_granted(&mut self, now_ns: u64, key: usize, is_cut: bool) {
        let Some(Entry { call, number, pieces: Some(pieces), .. }) = self.entry(key) else { return };
        let mut events = Vec::new();
        for (at, piece) in pieces.iter().enumerate() {
            let dispatched = Event {
                detail: saturated(piece.cost().as_fs() / FS_PER_NS),
                reason: piece.waited_for(),
                ..of_piece(call, *number, at, piece, EventKind::Dispatched, now_ns, self.disk)
            };
            events.push(dispatched);
            events.push(Event { kind: EventKind::Submitted, detail: 0, reason: None, ..dispatched });
        }

        if is_cut {
            let event = of_call(call, *number, EventKind::Cancelled, now_ns, self.disk);
            events.push(Event { offset_bytes: 0, len_bytes: 0, ..event });
        }
        if let Some(on) = self.tracer.on() {
            on.is_new_wait(usize::from(self.disk), None);
        }
        events.into_iter().for_each(|event| self.record(event));
    }

    /// Records the end of a call, from the completion of its pieces to the callback, at one time.
    pub(super) fn note_over(
        &mut self,
        now_ns: u64,
        call: &Call,
        number: u64,
        pieces: &Pieces,
        result: Result<u32, i32>,
    ) {
        let errno = result.err().map_or(0, i32::unsigned_abs);
        let moved = result.unwrap_or(0);
        for (at, piece) in pieces.iter().enumerate() {
            let of_piece_bytes = moved.saturating_sub(piece.offset_bytes()).min(piece.len_bytes());
            let event = of_piece(call, number, at, piece, EventKind::Completed, now_ns, self.disk);
            let completed = Event { len_bytes: of_piece_bytes, ..event };
            self.record(completed);
            self.record(Event { kind: EventKind::Reaped, detail: errno, ..completed });
        }

        let finished = of_call(call, number, EventKind::Finished, now_ns, self.disk);
        self.record(Event { len_bytes: moved, detail: errno, ..finished });
        self.record(Event { kind: EventKind::Callback, offset_bytes: 0, len_bytes: 0, ..finished });
    }

    pub(super) fn note_cancelled(&mut self, now_ns: u64, call: &Call, number: u64) {
        let event = of_call(call, number, EventKind::Cancelled, now_ns, self.disk);
        self.record(Event { offset_bytes: 0, len_bytes: 0, ..event });
    }
}

fn of_call(call: &Call, number: u64, kind: EventKind, time_ns: u64, disk: u16) -> Event {
    Event {
        time_ns,
        request: number,
        offset_bytes: call.offset_bytes,
        len_bytes: if call.op.is_transfer() { call.len_bytes } else { 0 },
        detail: 0,
        class: call.class.0,
        disk,
        piece: 0,
        kind,
        op: call.op,
        reason: None,
    }
}

fn of_piece(call: &Call, number: u64, at: usize, piece: &Dispatch, kind: EventKind, time_ns: u64, disk: u16) -> Event {
    let offset_bytes = call.offset_bytes.saturating_add(u64::from(piece.offset_bytes()));
    let piece_number = u16::try_from(at).unwrap_or(u16::MAX);
    let event = of_call(call, number, kind, time_ns, disk);
    Event { offset_bytes, len_bytes: piece.len_bytes(), piece: piece_number, ..event }
}

fn saturated(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
