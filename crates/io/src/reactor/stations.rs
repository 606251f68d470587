//! The reactor's trace events: one function for each station of a request.
//!
//! # Why
//! The contents of an event, and the clock of its time, are one subject; the path of a request is another.
//!
//! # How it works
//! At each station the reactor checks [`Tracer::is_on`](crate::trace::Tracer::is_on), the only cost while no trace is
//! recorded, and then calls a function here. The times are explained in [`crate::trace`].
//!
//! # Limits
//! Lengths of discards and allocations saturate at 4 GiB, waiting times at 4.3 s.
//!
//! # Example
//! ```text
//! if self.tracer.is_on() { self.note_queued(key) }
//! ```

use plimsoll_core::FS_PER_NS;
use plimsoll_core::trace::{Event, EventKind};

use super::pieces::discard_part;
use super::{Back, Pending, Piece, Reactor};
use crate::backend::{Completion, OpResult};
use crate::request::{RequestError, RequestKind};

impl Reactor {
    fn record(&mut self, event: Event) {
        if let Some(on) = self.tracer.on() {
            on.record(event);
        }
    }

    /// Records that the request under `key` is in its queue.
    pub(super) fn note_queued(&mut self, key: usize) {
        let time_ns = self.backend.now_ns();
        let Some(pending) = self.pending.get(key) else { return };
        let detail = pending.request.file.number();
        let event = Event { detail, ..of_request(pending, EventKind::Queued, time_ns) };
        self.record(event);
    }

    /// Records that no piece of the queue of `disk` may go, if the reason is a new one.
    pub(super) fn note_blocked(&mut self, disk: usize) {
        let Some(Some(queue)) = self.queues.get(disk) else { return };
        let (reason, wakeup_ns) = (queue.blocked_on(), queue.next_wakeup());
        let Some(on) = self.tracer.on() else { return };
        if !on.is_new_wait(disk, reason) {
            return;
        }

        let time_ns = self.backend.now_ns();
        on.record(Event {
            time_ns,
            request: 0,
            offset_bytes: 0,
            len_bytes: 0,
            detail: wakeup_ns.map_or(0, |at_ns| saturated(at_ns.saturating_sub(time_ns))),
            class: 0,
            disk: disk as u16,
            piece: 0,
            kind: EventKind::Blocked,
            op: plimsoll_core::Op::Read,
            reason,
        });
    }

    /// Records that the piece under `key` has left its queue. Returns the time.
    pub(super) fn note_dispatched(&mut self, key: usize) -> u64 {
        let time_ns = self.backend.now_ns();
        let Some((piece, pending)) = self.piece_of(key) else { return time_ns };
        let disk = usize::from(piece.disk);
        let event = Event {
            detail: saturated(piece.dispatch.cost().as_fs() / FS_PER_NS),
            reason: piece.dispatch.waited_for(),
            ..of_piece(piece, pending, EventKind::Dispatched, time_ns)
        };
        if let Some(on) = self.tracer.on() {
            on.is_new_wait(disk, None);
            on.record(event);
        }
        time_ns
    }

    /// Records that the backend took the piece under `key` after `before_ns`; with a `result`, also its completion.
    pub(super) fn note_submitted(&mut self, key: usize, before_ns: u64, result: Option<OpResult>) {
        let after_ns = self.backend.now_ns();
        let Some((piece, pending)) = self.piece_of(key) else { return };
        let time_ns = if result.is_some() { before_ns } else { after_ns };
        let submitted = of_piece(piece, pending, EventKind::Submitted, time_ns);
        let completed = result.map(|result| of_end(piece, pending, EventKind::Completed, after_ns, result).0);
        self.record(submitted);
        if let Some(event) = completed {
            self.record(event);
        }
    }

    /// Records the completions after the `known` oldest, at the time of this turn.
    pub(super) fn note_completed(&mut self, known: usize) {
        for at in known..self.reaped.len() {
            let Back { completion: Completion { key, result }, since_ns } = self.reaped[at];
            let Some((piece, pending)) = self.piece_of(key as usize) else { continue };
            let (event, _) = of_end(piece, pending, EventKind::Completed, self.now_ns, result);
            self.record(Event { detail: saturated(self.now_ns.saturating_sub(since_ns)), ..event });
        }
    }

    /// Records that `piece` returns to its queue.
    pub(super) fn note_reaped(&mut self, piece: &Piece, result: OpResult) {
        let time_ns = self.backend.now_ns();
        let Some(pending) = self.pending.get(piece.dispatch.user_data() as usize) else { return };
        let (event, errno) = of_end(piece, pending, EventKind::Reaped, time_ns, result);
        self.record(Event { detail: errno, ..event });
    }

    /// Records that the queued rest of the request under `key` is cancelled.
    pub(super) fn note_cancelled(&mut self, key: usize) {
        let time_ns = self.backend.now_ns();
        let Some(pending) = self.pending.get(key) else { return };
        let event = Event { offset_bytes: 0, len_bytes: 0, ..of_request(pending, EventKind::Cancelled, time_ns) };
        self.record(event);
    }

    /// Records that `pending` has ended, at the time of the previous event.
    pub(super) fn note_finished(&mut self, pending: &Pending, result: Result<u32, RequestError>) {
        let Some(on) = self.tracer.on() else { return };
        let event = of_request(pending, EventKind::Finished, on.last_ns());
        let (len_bytes, detail) = match result {
            Ok(_) => bytes_and_errno(result.map_err(|_| 0), pending.request.kind),
            Err(error) => (error.moved_bytes(), error.errno().unsigned_abs()),
        };
        on.record(Event { len_bytes, detail, ..event });
        if pending.from.is_none() {
            on.has_ended(Event { kind: EventKind::Callback, offset_bytes: 0, len_bytes: 0, ..event });
        }
    }

    /// Records that the owner gets the ended requests.
    pub(super) fn note_callbacks(&mut self) {
        let now_ns = match self.tracer.on() {
            Some(on) if on.has_any_ended() => self.backend.now_ns(),
            _ => return,
        };
        if let Some(on) = self.tracer.on() {
            on.hand_out(now_ns);
        }
    }

    fn piece_of(&self, key: usize) -> Option<(&Piece, &Pending)> {
        let piece = self.pieces.get(key)?;
        Some((piece, self.pending.get(piece.dispatch.user_data() as usize)?))
    }
}

fn of_request(pending: &Pending, kind: EventKind, time_ns: u64) -> Event {
    let request = &pending.request;
    Event {
        time_ns,
        request: pending.number,
        offset_bytes: request.offset,
        len_bytes: len_bytes(request.kind),
        detail: 0,
        class: request.class.0,
        disk: request.file.disk(),
        piece: 0,
        kind,
        op: request.kind.op(),
        reason: None,
    }
}

fn of_piece(piece: &Piece, pending: &Pending, kind: EventKind, time_ns: u64) -> Event {
    let event = of_request(pending, kind, time_ns);
    let (offset_bytes, len_bytes) = match pending.request.kind {
        RequestKind::Read { .. } | RequestKind::Write { .. } => {
            let from = u64::from(piece.dispatch.offset_bytes());
            (event.offset_bytes.saturating_add(from), piece.dispatch.len_bytes())
        }
        RequestKind::Discard { .. } => {
            let (offset, len_bytes) = discard_part(pending);
            (offset, saturated(len_bytes))
        }
        RequestKind::Sync { .. } | RequestKind::Allocate { .. } | RequestKind::SetLen { .. } => {
            (event.offset_bytes, event.len_bytes)
        }
    };
    Event { offset_bytes, len_bytes, piece: piece.number, ..event }
}

/// Returns the event of a piece's result, with the bytes moved, and the error number.
fn of_end(piece: &Piece, pending: &Pending, kind: EventKind, time_ns: u64, result: OpResult) -> (Event, u32) {
    let event = of_piece(piece, pending, kind, time_ns);
    let (len_bytes, errno) = match result {
        // A part of a discard has "moved" all of its length.
        Ok(_) if !pending.request.kind.op().is_transfer() => (event.len_bytes, 0),
        result => bytes_and_errno(result, pending.request.kind),
    };
    (Event { len_bytes, ..event }, errno)
}

/// Returns the bytes moved and the error number. A request that is not a transfer has "moved" all of its length.
fn bytes_and_errno(result: OpResult, kind: RequestKind) -> (u32, u32) {
    match result {
        Ok(moved) if kind.op().is_transfer() => (moved, 0),
        Ok(_) => (len_bytes(kind), 0),
        Err(errno) => (0, errno.unsigned_abs()),
    }
}

fn len_bytes(kind: RequestKind) -> u32 {
    match kind {
        RequestKind::Read { len_bytes } | RequestKind::Write { len_bytes } => len_bytes,
        RequestKind::Sync { .. } | RequestKind::SetLen { .. } => 0,
        RequestKind::Discard { len_bytes } | RequestKind::Allocate { len_bytes, .. } => saturated(len_bytes),
    }
}

fn saturated(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
