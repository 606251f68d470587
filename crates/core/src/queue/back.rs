//! How pieces come back and requests end: completion, continuation, refusal, cancellation, cutting.

use std::num::NonZeroI32;

use super::{
    CANCELLED, Cancel, Dispatch, Failure, Finished, IoQueue, Kind, Mode, Outcome, Progress, Stopped, fair_cost, weight,
};
use crate::bucket::{Tokens, ticks_with_carry};
use crate::request::Direction;
use crate::slots::{RequestId, RequestSlot};
use crate::target::Experience;
use crate::tree::{Charge, Turn};

/// The error number that replaces 0, which is none: Linux's `EIO`.
const UNNAMED: NonZeroI32 = NonZeroI32::new(5).expect("it is not 0");

/// Fewest pieces in the device with which it does not run dry while a program handles completed requests.
const EARLY_MAX: u32 = 8;

impl IoQueue {
    /// Takes back a piece that the device has completed. Returns the progress of its request.
    pub fn complete(&mut self, now_ns: u64, piece: Dispatch, outcome: Outcome) -> Progress {
        self.complete_late(now_ns, 0, piece, outcome)
    }

    /// Completes a piece for a caller that polls at intervals: the device may have completed it up to `late_ns` ago.
    ///
    /// Half of `late_ns`, the mean delay, does not count as device time, and the closed loop takes the disk to be slow
    /// only as far as that is certain. Otherwise a caller that computes for long between polls would seem a slow disk.
    pub fn complete_late(&mut self, now_ns: u64, late_ns: u64, piece: Dispatch, outcome: Outcome) -> Progress {
        self.complete_within(now_ns, late_ns, false, piece, outcome)
    }

    /// Completes a piece for a caller that knows that the device did not work on it for `late_ns`: before the device
    /// got the piece, or after the device completed it. None of that counts as device time.
    pub fn complete_after(&mut self, now_ns: u64, late_ns: u64, piece: Dispatch, outcome: Outcome) -> Progress {
        self.complete_within(now_ns, late_ns, true, piece, outcome)
    }

    /// Returns whether to poll before the program handles completed requests, so that the device does not run dry
    /// meanwhile: a piece has left it since the last poll, it holds few of this queue's pieces, and more are queued.
    /// Not if a class's only request has ended: its next one, which may come at once, would find that room taken.
    #[must_use]
    pub fn may_go_early(&self) -> bool {
        self.room_from.is_some() && self.queued > 0 && !self.has_emptied && self.in_flight < EARLY_MAX
    }

    /// Completes a piece that the device did not work on for `late_ns` if that is certain, otherwise for at most as
    /// long.
    fn complete_within(
        &mut self,
        now_ns: u64,
        late_ns: u64,
        is_certain: bool,
        piece: Dispatch,
        outcome: Outcome,
    ) -> Progress {
        let (class, direction) = (piece.class as usize, piece.op.direction() as usize);
        let seen_ns = now_ns.saturating_sub(piece.dispatched_ns);
        let late_ns = late_ns.min(seen_ns);
        let device_ns = seen_ns - if is_certain { late_ns } else { late_ns / 2 };

        let was_held = self.leave_device(now_ns, &piece);
        if piece.ticks > 0 && !was_held {
            self.presence.note_time(device_ns);
            self.tell_controller(now_ns, &piece, seen_ns, late_ns);
            let lane = &mut self.lanes[usize::from(piece.lane)];
            // A stall counts once, not for each piece that it delayed.
            if piece.dispatched_ns >= lane.stalled_until_ns
                && self.disk.discard_tokens(now_ns, usize::from(piece.buckets), seen_ns - late_ns)
            {
                lane.stalled_until_ns = now_ns;
            }
        }

        let progress = match outcome {
            Outcome::Moved(moved) if piece.op.is_transfer() && moved > 0 && moved < piece.len_bytes => {
                Progress::Continue(self.continue_short(now_ns, piece, moved))
            }
            _ => self.settle(now_ns, device_ns, &piece, outcome),
        };

        // Last, right after the latency of the whole request: with many classes both miss the cache, so together.
        if let Some(latencies) = &mut self.members[class].latencies[direction] {
            latencies.device.record(device_ns);
        }
        progress
    }

    /// Returns the rest of a short transfer, to be submitted at once because it is older than its class's queued work.
    /// It is charged as any other piece.
    pub(super) fn continue_short(&mut self, now_ns: u64, piece: Dispatch, moved_bytes: u32) -> Dispatch {
        let len_bytes = piece.len_bytes - moved_bytes;
        let cost = self.disk.cost(piece.op, len_bytes);

        let (mut ticks, mut tokens) = (0, Tokens::default());
        if self.config.mode == Mode::Scheduled && !cost.is_zero() {
            let lane = &mut self.lanes[usize::from(piece.lane)];
            (ticks, lane.carry_fs) = ticks_with_carry(self.disk.cost_in_mix(cost), lane.carry_fs);
            tokens = self.disk.tokens_of(usize::from(piece.lane), piece.op, len_bytes, ticks);
            self.disk.buckets(usize::from(piece.buckets)).take_into_debt(now_ns, tokens);
            self.disk.enter(usize::from(piece.lane), ticks);
            self.count_in_device(usize::from(piece.lane), ticks);
            self.writes.enter(now_ns, piece.op, ticks);
        }

        let member = &mut self.members[piece.class as usize];
        let weight = weight(len_bytes);
        if member.kind == Kind::Class {
            let tree = &mut self.lanes[usize::from(piece.lane)].tree;
            let (class, fair) = (piece.class, fair_cost(cost, weight));
            tree.charge(Charge { class, cost: fair, weight, now_ns, turn: Turn::Continued, is_last: false });
        }
        member.stats.continued += 1;
        member.stats.consumed_fs += u128::from(cost.as_fs());

        Dispatch {
            offset_bytes: piece.offset_bytes + moved_bytes,
            len_bytes,
            cost,
            ticks,
            tokens,
            dispatched_ns: now_ns,
            ..piece
        }
    }

    /// Records the outcome of a piece in its request. Returns the request's progress.
    pub(super) fn settle(&mut self, now_ns: u64, device_ns: u64, piece: &Dispatch, outcome: Outcome) -> Progress {
        self.in_flight -= 1;
        let member = &mut self.members[piece.class as usize];
        member.stats.in_flight -= 1;
        // If nothing is queued, the next request sets this again.
        member.starved_since_ns = now_ns;

        let (good_bytes, error) = match outcome {
            Outcome::Moved(moved) | Outcome::End(moved) => (moved.min(piece.len_bytes), None),
            Outcome::Failed(code) => (0, Some(NonZeroI32::new(code).unwrap_or(UNNAMED))),
        };

        let slot = self.slots.get_mut(piece.slot);
        slot.outstanding -= 1;
        let whole = error.is_none() && (good_bytes == piece.len_bytes || !piece.op.is_transfer());
        let good_until = piece.offset_bytes + good_bytes;
        // A piece that ends early ends the prefix there. `<=` also records the error of an operation without length.
        if !whole && good_until <= slot.prefix_bytes {
            slot.prefix_bytes = good_until;
            slot.error = error;
            slot.cancelled = false;
        }
        if slot.queued && !whole {
            // Later pieces can no longer lengthen the prefix.
            self.unqueue(piece.slot);
        }

        let slot = self.slots.get(piece.slot);
        if slot.outstanding > 0 || slot.queued {
            return Progress::Pending;
        }
        self.has_emptied |= self.members[piece.class as usize].stats.queued == 0;
        let finished = self.finish(now_ns, piece.slot);
        // Neither time contains the caller's lateness, which no scheduling mends.
        let queue_ns = finished.total_ns.saturating_sub(now_ns.saturating_sub(piece.dispatched_ns));
        self.note_target(now_ns, piece, Experience { total_ns: finished.total_ns, queue_ns, device_ns });
        Progress::Finished(finished)
    }

    /// Ends the request in slot `at`, frees the slot, and returns the result.
    pub(super) fn finish(&mut self, now_ns: u64, at: u32) -> Finished {
        self.slots.release(at);
        let slot = self.slots.get(at);
        let moved_bytes = slot.prefix_bytes;
        let result = slot.error.map_or(Ok(moved_bytes), |errno| Err(Failure { errno: errno.get(), moved_bytes }));
        let total_ns = now_ns.saturating_sub(slot.enqueued_ns);

        let member = &mut self.members[slot.class as usize];
        if let Some(latencies) = &mut member.latencies[slot.op.direction() as usize] {
            latencies.total.record(total_ns);
        }
        let stats = &mut member.stats;
        if slot.error.is_some() && !slot.cancelled {
            stats.errors += 1;
        }
        let direction = match slot.op.direction() {
            Direction::Read => &mut stats.read,
            Direction::Write => &mut stats.write,
        };
        direction.requests += 1;
        direction.bytes += u64::from(slot.prefix_bytes);

        let (class, user_data) = (slot.class, slot.user_data);
        if member.kind == Kind::Leaving {
            self.free_if_left(class);
        }
        Finished { user_data, result, total_ns }
    }

    /// Takes back a piece that the backend refused before the device saw it: returns its tokens to the bucket, and
    /// treats the piece as failed with `error`.
    pub fn refuse(&mut self, now_ns: u64, piece: Dispatch, error: i32) -> Progress {
        self.leave_device(now_ns, &piece);
        self.disk.buckets(usize::from(piece.buckets)).refund(piece.tokens);
        let device_ns = now_ns.saturating_sub(piece.dispatched_ns);
        self.settle(now_ns, device_ns, &piece, Outcome::Failed(error))
    }

    /// Cancels the queued rest of a request. Its pieces in the device stay there until they come back.
    pub fn cancel(&mut self, id: RequestId) -> Cancel {
        let Some(at) = self.slots.find(id) else { return Cancel::TooLate };
        if !self.slots.get(at).queued {
            return Cancel::TooLate;
        }
        match self.stop_queued(at) {
            Some(stopped) => Cancel::Cancelled(stopped),
            None => Cancel::Stopping,
        }
    }

    /// Ends a request where its last dispatched piece ends: removes the rest from the queue, without a failure, and
    /// returns the new length. If no part of the request is in the device, or none is queued, changes nothing and
    /// returns `None`.
    ///
    /// For a caller that executes a request in one call: it executes the dispatched part, and enqueues the rest again.
    pub fn cut(&mut self, id: RequestId) -> Option<u32> {
        let at = self.slots.find(id)?;
        let RequestSlot { queued, outstanding, dispatched_bytes, .. } = *self.slots.get(at);
        if !queued || outstanding == 0 {
            return None;
        }
        self.unqueue(at);
        self.slots.get_mut(at).len_bytes = dispatched_bytes;
        Some(dispatched_bytes)
    }

    /// Cancels the queued rest of a request. Returns the request if that ends it.
    pub(super) fn stop_queued(&mut self, at: u32) -> Option<Stopped> {
        self.unqueue(at);
        let slot = self.slots.get_mut(at);
        // A piece in the device may still fail, or find the end of the file, at an earlier offset.
        slot.error = NonZeroI32::new(CANCELLED);
        slot.cancelled = true;
        let (class, outstanding) = (slot.class, slot.outstanding);
        let stopped = Stopped { user_data: slot.user_data, moved_bytes: slot.prefix_bytes };
        let direction = slot.op.direction();

        let stats = &mut self.members[class as usize].stats;
        stats.cancelled += 1;
        if outstanding > 0 {
            return None;
        }
        let done = if direction == Direction::Read { &mut stats.read } else { &mut stats.write };
        done.bytes += u64::from(stopped.moved_bytes);
        self.slots.release(at);
        Some(stopped)
    }

    /// Removes a request from its class's FIFO: no more pieces of it will be dispatched.
    pub(super) fn unqueue(&mut self, at: u32) {
        let slot = self.slots.get_mut(at);
        let (class, op) = (slot.class, slot.op);
        let undispatched_bytes = slot.len_bytes - slot.dispatched_bytes;
        slot.prefix_bytes = slot.prefix_bytes.min(slot.dispatched_bytes);
        let rest_fs = std::mem::take(&mut slot.rest_fs);

        let tree = &mut self.lanes[self.disk.lane(op.direction())].tree;
        self.slots.unlink(tree.fifo_mut(class), at);
        tree.settle(class);

        self.queued -= 1;
        let member = &mut self.members[class as usize];
        if op.direction() == Direction::Write {
            member.queued_writes.take(1, undispatched_bytes);
        }
        let stats = &mut member.stats;
        stats.queued -= 1;
        stats.queued_fs -= u128::from(rest_fs);
        stats.queued_bytes -= u64::from(undispatched_bytes);
        self.urgent_has_emptied(class);
    }

    /// Reports a finished request to the disk if its class has a latency target.
    pub(super) fn note_target(&mut self, now_ns: u64, piece: &Dispatch, experience: Experience) {
        let member = &self.members[piece.class as usize];
        if let (Some(level), Some(target)) = (member.level, member.qos.latency_target) {
            self.disk.note_target(now_ns, level, target, experience);
        }
    }
}
