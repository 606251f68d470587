//! Pieces of requests on their way to the backend and back.
//!
//! # Why
//! The operations of the backend and their results are one subject; the table of requests is another.
//!
//! # How it works
//! The queue dispatches a piece, which gets an entry in the reactor's table and goes to the backend. If the backend has
//! no room, the piece is stalled, and is submitted before any queued one. The result of a piece goes to the queue,
//! which ends the request, waits for its other pieces, or continues a short transfer.
//!
//! # Limits
//! The memory of a piece is that of its request. It stays in the reactor's tables until the piece has been reaped.
//!
//! # Example
//! The backend moves 4 KiB of a read of 8 KiB: `outcome` reports a short transfer, the queue continues it, and the
//! piece for the other 4 KiB is stalled until the next turn.

use plimsoll_core::{Dispatch, Op, Outcome, Progress, QueueError, Stopped};

use super::submit::reason_of;
use super::{Back, Pending, Piece, Place, Reactor};
use crate::backend::{FileId, Kind, Memory, OpResult, Operation, Submit, error_number};
use crate::request::{RequestError, RequestKind, memory};

/// Longest part of a discard. The parts follow one another, each scheduled like a write without data, because a long
/// discard occupies the device for long. The value is that of RocksDB's `bytes_max_delete_chunk`.
const DISCARD_PART_BYTES: u64 = 64 << 20;

/// Most parts of a discard, beside one at each end: the parts of one longer than 4 TiB are longer. A range may reach far
/// beyond the end of a sparse file.
const DISCARD_PARTS_MAX: u64 = 1 << 16;

/// Most completions handled in a turn before pieces that may go now are submitted. If all were handled first, a disk
/// with many completions would idle for the whole turn.
pub(super) const REAP_MAX: usize = 8;

/// Length of a turn above which all completions are handled. A shard that computes for long in each turn would
/// otherwise handle only [`REAP_MAX`] per turn. Eight requests of 4 KiB, at 3 us of CPU each, take half of it.
pub(super) const LONG_TURN_NS: u64 = 50_000;

/// Pieces per flush. The kernel submits no piece to the disk before it has prepared the whole batch, so with short
/// batches the disk starts while the next pieces are prepared.
const FLUSH_EVERY: u32 = 8;

impl Reactor {
    /// Submits the stalled pieces of `disk`. If the backend has no room, informs the queue and returns `false`.
    pub(super) fn send_stalled(&mut self, disk: usize) -> bool {
        while let Some(key) = self.stalled[disk].pop_front() {
            if !self.has_room(disk) || !self.send_piece(key, None) {
                self.stalled[disk].push_front(key);
                self.no_room(disk);
                return false;
            }
        }
        true
    }

    /// Returns whether the backend has a place for an operation of `disk`. Completions not handled yet keep their
    /// places.
    fn has_room(&self, disk: usize) -> bool {
        self.places.has_room(disk, self.backend.in_flight() + self.reaped.len())
    }

    /// Tells the queue of `disk` that the backend has no room.
    fn no_room(&mut self, disk: usize) {
        if let Some(queue) = &mut self.queues[disk] {
            queue.backend_is_busy(self.now_ns);
        }
        if self.tracer.is_on() {
            self.note_blocked(disk);
        }
    }

    /// Submits the next piece of the queue of `disk`. Returns `false` if none may go.
    pub(super) fn dispatch_one(&mut self, disk: usize) -> bool {
        if !self.has_room(disk) {
            self.no_room(disk);
            return false;
        }

        let Some(queue) = &mut self.queues[disk] else { return false };
        let Some(dispatch) = queue.poll_dispatch(self.now_ns) else {
            if let Some(shard) = queue.take_hand_over() {
                self.topology.mailboxes().wake(shard);
            }
            if self.tracer.is_on() {
                self.note_blocked(disk);
            }
            return false;
        };

        let (key, before_ns) = self.add_piece(dispatch, disk as u16);
        if !self.send_piece(key, before_ns) {
            self.stalled[disk].push_back(key);
        }
        true
    }

    /// Adds a dispatched piece to the table. Returns its key, and the time of the dispatch if it is recorded.
    fn add_piece(&mut self, dispatch: Dispatch, disk: u16) -> (usize, Option<u64>) {
        // If the piece belonged to no request of the table, `send_piece` would refuse it.
        let mut number = 0;
        if let Some(pending) = self.pending.get_mut(dispatch.user_data() as usize) {
            number = pending.pieces;
            pending.pieces = pending.pieces.wrapping_add(1);
        }
        let key = self.pieces.insert(Piece { dispatch, disk, number, is_in_backend: false, iov: None });
        (key, self.tracer.is_on().then(|| self.note_dispatched(key)))
    }

    /// Submits a piece to the backend. Returns `false` if the backend has no room. `before_ns` is the present time, if
    /// known.
    fn send_piece(&mut self, key: usize, before_ns: Option<u64>) -> bool {
        let request = self.pieces.get(key).map(|piece| piece.dispatch.user_data() as usize);
        let Some(pending) = request.and_then(|request| self.pending.get(request)) else {
            debug_assert!(false, "piece {key} of no request: {request:?}");
            self.refuse_piece(key, libc::EIO);
            return true;
        };
        let discarded = discard_range(pending);
        let (file, info) = match self.known_file(&pending.request.file) {
            Some(known) => known,
            None => {
                let file = pending.request.file.clone();
                match self.file(&file) {
                    Ok(opened) => opened,
                    Err(error) => {
                        self.refuse_piece(key, error_number(&error));
                        return true;
                    }
                }
            }
        };
        if let Some((from, end)) = discarded
            && info.is_block_device
        {
            let align_bytes = u64::from(info.offset_align_bytes.max(1));
            let is_whole = from % align_bytes == 0 && end % align_bytes == 0;
            let is_inside =
                end <= info.len_bytes || self.backend.file_len(file).is_ok_and(|len_bytes| end <= len_bytes);
            if !(is_whole && is_inside) {
                // The device would refuse only the last part, after it has discarded all others.
                self.refuse_piece(key, libc::EINVAL);
                return true;
            }
        }

        if self.unflushed >= FLUSH_EVERY {
            self.unflushed = 0;
            // The flush at the end of the turn returns the error again.
            let _ = self.backend.flush();
        }

        let operation = self.operation(key, file);
        let before_ns = if self.tracer.is_on() { before_ns.unwrap_or_else(|| self.backend.now_ns()) } else { 0 };
        // SAFETY: `pending[user_data].request.data` owns the buffer, `pieces[key].iov` the list. This reactor neither
        // touches nor frees them until the piece has been reaped; `end_all` moves the buffer to `kept`, unchanged. The
        // field `backend`, whose drop waits for its operations, is dropped before all three.
        let answer = unsafe { self.backend.submit(operation) };

        if self.tracer.is_on() {
            match answer {
                Submit::Queued => self.note_submitted(key, before_ns, None),
                Submit::Done(result) => self.note_submitted(key, before_ns, Some(result)),
                Submit::Busy => {}
            }
        }
        match answer {
            Submit::Queued => {
                self.unflushed += 1;
                self.places.take(usize::from(self.pieces[key].disk));
                self.pieces[key].is_in_backend = true;
                true
            }
            Submit::Busy => false,
            Submit::Done(result) => {
                self.piece_is_back(key, result, self.now_ns);
                true
            }
        }
    }

    /// Returns the operation of the piece under `key`. The table keeps the list of its buffers.
    fn operation(&mut self, key: usize, file: FileId) -> Operation {
        let piece = &mut self.pieces[key];
        let dispatch = &piece.dispatch;
        let pending = &mut self.pending[dispatch.user_data() as usize];
        let (part_offset, part_bytes) = discard_part(pending);

        let request = &mut pending.request;
        let (from, len) = (dispatch.offset_bytes(), dispatch.len_bytes());
        let (kind, memory) = match request.kind {
            RequestKind::Read { .. } => (Kind::Read, memory(&mut request.data, from, len, &mut piece.iov)),
            RequestKind::Write { .. } => (Kind::Write, memory(&mut request.data, from, len, &mut piece.iov)),
            RequestKind::Sync { data_only } => (Kind::Sync { data_only }, Memory::None),
            RequestKind::Discard { .. } => {
                let kind = Kind::Discard { len_bytes: part_bytes };
                return Operation { key: key as u64, file, kind, offset: part_offset, memory: Memory::None };
            }
            RequestKind::Allocate { len_bytes, keep_size } => (Kind::Allocate { len_bytes, keep_size }, Memory::None),
            RequestKind::SetLen { len_bytes } => (Kind::SetLen { len_bytes }, Memory::None),
        };

        // A too large offset saturates and is refused; it must not wrap to 0.
        Operation { key: key as u64, file, kind, offset: request.offset.saturating_add(u64::from(from)), memory }
    }

    /// Collects the completions of the backend, unless enough for a turn are collected already.
    pub(super) fn collect_completions(&mut self) {
        self.now_ns = self.backend.now_ns();
        self.follow_trace();
        if self.reaped.len() >= REAP_MAX {
            return;
        }

        let (known, since_ns) = (self.reaped.len(), self.collected_ns);
        self.collected_ns = self.now_ns;
        let reaped = &mut self.reaped;
        self.backend.reap(&mut |completion| reaped.push_back(Back { completion, since_ns }));
        if self.tracer.is_on() {
            self.note_completed(known);
        }
    }

    /// Handles the oldest completions, at most `most`.
    pub(super) fn handle_completions(&mut self, most: usize) {
        for _ in 0..most {
            let Some(Back { completion, since_ns }) = self.reaped.pop_front() else { return };
            self.piece_is_back(completion.key as usize, completion.result, since_ns);
        }
    }

    /// Passes the result of the piece under `key`, which completed at `since_ns` or later, to its queue.
    fn piece_is_back(&mut self, key: usize, result: OpResult, since_ns: u64) {
        let Some(piece) = self.pieces.get_mut(key) else {
            debug_assert!(self.broken.is_some(), "the backend completed piece {key}, which is not under way");
            return;
        };
        let disk = usize::from(piece.disk);
        if std::mem::take(&mut piece.is_in_backend) {
            self.places.give_back(disk);
            if result == Err(libc::EINTR) && self.broken.is_none() {
                // A signal came before anything was moved. Neither AIO nor io_uring can restart the call.
                self.stalled[disk].push_back(key);
                return;
            }
        }
        let piece = self.pieces.remove(key);

        let pending = self.pending.get(piece.dispatch.user_data() as usize);
        let result = match pending {
            Some(p) if matches!(p.request.kind, RequestKind::Sync { .. }) => p.request.file.sync_result(result),
            _ => result,
        };
        let info = pending.and_then(|p| self.known_file(&p.request.file)).map(|(_, info)| info);
        let outcome = outcome(&piece.dispatch, result, info.map_or(1, |info| info.offset_align_bytes.max(1)));
        if self.tracer.is_on() {
            self.note_reaped(&piece, result);
        }

        let late_ns = self.now_ns.saturating_sub(since_ns);
        let Some(queue) = &mut self.queues[disk] else { return };
        match queue.complete(self.now_ns, late_ns, piece.dispatch, outcome) {
            Progress::Pending => {}
            Progress::Finished(finished) => self.is_finished(finished),
            Progress::Continue(dispatch) => {
                let (key, _) = self.add_piece(dispatch, piece.disk);
                match self.broken {
                    Some(errno) => self.refuse_piece(key, errno),
                    None => self.stalled[disk].push_back(key),
                }
            }
        }
    }

    /// Queues the next part of a discard after one that took `part_ns`. Returns `false` if the request is not a discard
    /// or has no part left: then the caller ends the request. If the queue refuses the part, ends the request.
    pub(super) fn discards_on(&mut self, key: usize, part_ns: u64) -> bool {
        let Some(pending) = self.pending.get_mut(key) else { return false };
        let RequestKind::Discard { len_bytes } = pending.request.kind else { return false };
        let Place::Here { disk, .. } = pending.at else { return false };
        let discarded_bytes = pending.discarded_bytes + discard_part(pending).1;
        if discarded_bytes >= len_bytes {
            return false;
        }
        pending.discarded_bytes = discarded_bytes;
        pending.discarded_ns = pending.discarded_ns.saturating_add(part_ns);
        if pending.is_stopping {
            self.is_cancelled(Stopped { user_data: key as u64, moved_bytes: 0 });
            return true;
        }

        let (class, source) = (pending.request.class, pending.from.map_or(self.shard, |from| from.shard));
        let Some(queue) = &mut self.queues[usize::from(disk)] else { return false };
        match queue.enqueue(self.now_ns, class, source, Op::Discard, 0, key as u64) {
            Ok(id) => pending.at = Place::Here { disk, id },
            // The class was removed while the last part was in the device.
            Err(QueueError::Unknown) => self.is_cancelled(Stopped { user_data: key as u64, moved_bytes: 0 }),
            Err(error) => self.end(key, Err(RequestError::Refused(reason_of(error))), 0),
        }
        true
    }

    /// Ends a discard after the part that is in the device. Returns whether more parts would have followed.
    pub(super) fn stop_discard(&mut self, key: usize) -> bool {
        let Some(pending) = self.pending.get_mut(key) else { return false };
        let RequestKind::Discard { len_bytes } = pending.request.kind else { return false };
        let has_more = pending.discarded_bytes + discard_part(pending).1 < len_bytes;
        has_more && !std::mem::replace(&mut pending.is_stopping, true)
    }

    /// Fails a piece that has not reached the device with the error number `code`.
    pub(super) fn refuse_piece(&mut self, key: usize, code: i32) {
        let Some(piece) = self.pieces.try_remove(key) else { return };
        if self.tracer.is_on() {
            self.note_reaped(&piece, Err(code));
        }
        let Some(queue) = &mut self.queues[usize::from(piece.disk)] else { return };
        if let Progress::Finished(f) = queue.refuse(self.now_ns, piece.dispatch, code) {
            self.is_finished(f);
        }
    }
}

/// Returns the beginning and the end of a discard's range, saturating; `None` for other requests.
fn discard_range(pending: &Pending) -> Option<(u64, u64)> {
    let RequestKind::Discard { len_bytes } = pending.request.kind else { return None };
    Some((pending.request.offset, pending.request.offset.saturating_add(len_bytes)))
}

/// Returns the offset and the length of a discard's next part; parts end at multiples of [`DISCARD_PART_BYTES`] in the
/// file, of a power of two of them if there would be too many. A range that no file can have is one part, so that it is
/// refused before any part is discarded.
pub(super) fn discard_part(pending: &Pending) -> (u64, u64) {
    let RequestKind::Discard { len_bytes } = pending.request.kind else { return (0, 0) };
    let offset = pending.request.offset;
    if offset.checked_add(len_bytes).is_none_or(|end| end > i64::MAX as u64) {
        return (offset, len_bytes);
    }
    let from = offset + pending.discarded_bytes;
    let part_bytes = len_bytes.div_ceil(DISCARD_PARTS_MAX).next_power_of_two().max(DISCARD_PART_BYTES);
    let until_cut_bytes = part_bytes - from % part_bytes;
    (from, (len_bytes - pending.discarded_bytes).min(until_cut_bytes))
}

/// Returns the outcome of a piece. A short transfer is continued unless it moved nothing or ended off the alignment,
/// which means the end of the file.
fn outcome(dispatch: &Dispatch, result: OpResult, align_bytes: u32) -> Outcome {
    match result {
        Err(code) => Outcome::Failed(code),
        Ok(moved) if moved >= dispatch.len_bytes() => Outcome::Moved(dispatch.len_bytes()),
        Ok(moved) if moved == 0 || moved % align_bytes != 0 => Outcome::End(moved),
        Ok(moved) => Outcome::Moved(moved),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::OpenOptions;
    use crate::backend::memory::{MemoryBackend, MemoryStore};
    use crate::{Class, Classes, Data, DiskSetup, Request, Topology};

    /// Returns a reactor with a broken invariant: its table has lost a request that its queue still holds.
    fn broken_table() -> Reactor {
        let Ok(topology) = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]) else { panic!("one disk") };
        let Ok(backend) = MemoryBackend::new(&MemoryStore::default()) else { panic!("memory needs nothing") };
        let Ok(mut reactor) = Reactor::new(0, &topology, Box::new(backend)) else { panic!("the first reactor") };
        let file = topology.file("file".as_ref(), OpenOptions::default(), 0);
        let (class, kind) = (Class::DEFAULT, RequestKind::Sync { data_only: true });
        let Ok(_) = reactor.submit(Request { file, class, kind, offset: 0, data: Data::None, tag: 0 }) else {
            panic!("a disk without limits")
        };
        reactor.pending.clear();
        reactor
    }

    #[test]
    #[cfg_attr(debug_assertions, should_panic(expected = "of no request"))]
    fn a_piece_of_no_request_is_not_reported_as_sent() {
        let mut reactor = broken_table();
        reactor.dispatch();
        let stats = reactor.class_stats(0, Class::DEFAULT).map(|stats| (stats.errors, stats.in_flight));
        assert_eq!((stats, reactor.in_backend()), (Some((1, 0)), 0));
    }
}
