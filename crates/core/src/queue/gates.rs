//! The gates of a dispatch after the order of classes: the turns of the whole disk, room in the device, tokens.
//!
//! At these the head of the line waits, and no other piece overtakes it. A queue may dispatch before its turn if there
//! is room for all queues ahead as well, or in *overtime*: if the device has room, but no queue of the disk dispatches
//! for [`PATIENCE_NS`] (a *standstill*), the queues ahead count as absent. Other queues may follow up
//! to the clock that was served then.

use super::{Dispatch, IoQueue, Mode, Passed, Stop};
use crate::bucket::{Tokens, ticks_with_carry, whole_ticks};
use crate::disk::NoRoom;
use crate::request::Op;
use crate::stats::WaitReason;
use crate::tree::{Pick, ROOT, Turn};
use crate::units::Cost;

/// Shortest wait before a queue retries a full device by itself.
const FULL_DEVICE_RETRY_NS: u64 = 50_000;
/// Longest such wait on a slow device.
const SLOW_DEVICE_RETRY_NS: u64 = 2_000_000;
/// Retries of a full device in the usual device time of a piece, by a queue that no other wakes, if its turn has not
/// come or it has one piece there. With more, each retry finds room for one piece and wakes a thread for it; with four,
/// a disk of eight channels lost 0.5 % of its rate. A claim of room lasts at most one such interval, for all queues.
const RETRIES: u64 = 6;
/// Longest wait of a queue far from its turn before it retries, unless a slow device makes the wait longer.
const FULL_DEVICE_RETRY_MAX_NS: u64 = 500_000;
/// Wait before a retry of a queue at its turn without a piece in the device: no completion of its own will poll it.
const FULL_DEVICE_TURN_NS: u64 = 20_000;
/// Time after which the queues ahead count as absent, if the device has room and no clock of the disk moves although
/// all queues could have polled.
const PATIENCE_NS: u64 = 20_000;

/// The part (1/4) of the work in the device that a direction must have for a full window to count against it.
const DIRECTION_PART: u64 = 4;

impl IoQueue {
    /// Decides whether this queue dispatches although it is the turn of other queues' classes. Returns the class if
    /// there is room for all those ahead too, `None` if those ahead are absent (pick again then), otherwise the stop.
    #[cold]
    pub(super) fn wait_for_turn(&mut self, now_ns: u64, lane: usize) -> Result<Option<Pick>, Stop> {
        let Some((first, ahead)) = self.lanes[lane].tree.first_in_line() else {
            return Err((WaitReason::Fairness, Some(now_ns.saturating_add(PATIENCE_NS))));
        };

        // With room for all ahead and for the longest piece, no queue ahead waits because of this piece.
        let long_ticks = self.disk.long_piece_ticks();
        let ahead_ticks = whole_ticks(ahead);
        let all_ticks = ahead_ticks.saturating_add(long_ticks);
        let is_claimed = self.disk.claimed_until_ns(lane) > now_ns;
        if !is_claimed && self.disk.has_room(now_ns, lane, self.config.group, all_ticks, self.late_ns).is_ok() {
            return Ok(Some(first));
        }

        let mean = self.lanes[lane].tree.clock(ROOT).mean();
        let since_ns = match self.lanes[lane].standstill {
            Some((since_ns, seen)) if seen == mean => since_ns,
            _ => now_ns,
        };
        self.lanes[lane].standstill = Some((since_ns, mean));

        match self.disk.has_room(now_ns, lane, self.config.group, long_ticks, self.late_ns) {
            Err(NoRoom::Device) => {
                self.note_full_window(lane);
                let half_way_ns = ahead.as_fs() / crate::units::FS_PER_NS / 2;
                let until = |retries| now_ns.saturating_add(self.turn_retry_ns(retries, half_way_ns));
                let (until_ns, present_until_ns) = (until(self.retries()), until(RETRIES));
                self.disk.sleeps_past(lane, now_ns.saturating_add(half_way_ns), present_until_ns);
                self.wait_for_room(lane, ahead);
                return Err((WaitReason::Depth, Some(until_ns)));
            }
            Err(NoRoom::Tokens(retry_ns)) => {
                self.unreported.lanes[lane].token_blocks += 1;
                return Err((WaitReason::Tokens, Some(retry_ns)));
            }
            Ok(()) => {}
        }

        // A queue that waits for room is not absent.
        let since_ns = since_ns.max(self.disk.retries_until_ns(lane));
        let waited_ns = now_ns.saturating_sub(since_ns);
        if waited_ns < PATIENCE_NS {
            self.wait_for_room(lane, ahead);
            return Err((WaitReason::Fairness, Some(since_ns.saturating_add(PATIENCE_NS))));
        }

        let at = &mut self.lanes[lane];
        at.standstill = None;
        at.overtime_ns = waited_ns.max(at.overtime_ns.saturating_mul(2)).min(self.disk.bound_ns());
        at.overtime_mean = mean;
        at.tree.set_overtime(Cost::from_ns(at.overtime_ns));
        Ok(None)
    }

    /// Takes the next piece of the picked class through the last gates, or returns the stop.
    pub(super) fn admit(&mut self, now_ns: u64, lane: usize, pick: Pick) -> Result<Dispatch, Stop> {
        let at = self.lanes[lane].tree.fifo(pick.class).head;
        let slot = self.slots.get(at);
        let (op, offset_bytes) = (slot.op, slot.dispatched_bytes);
        let rest_bytes = slot.len_bytes - offset_bytes;
        let len_bytes = rest_bytes.min(self.piece_max_bytes(op));
        let cost =
            if len_bytes == slot.len_bytes { Cost::from_fs(slot.rest_fs) } else { self.disk.cost(op, len_bytes) };

        let Passed { ticks, buckets, tokens } = self.pass_gates(now_ns, lane, pick, (op, len_bytes), cost)?;
        self.disk.note_mix(op.direction(), cost);

        let piece = Dispatch {
            slot: at,
            class: pick.class,
            op,
            lane: lane as u8,
            reason: None,
            offset_bytes,
            len_bytes,
            user_data: 0,
            cost,
            ticks,
            buckets,
            tokens,
            dispatched_ns: now_ns,
        };
        Ok(self.commit(now_ns, lane, pick, piece))
    }

    /// Passes the gates after fairness and limits: depth or window, then tokens.
    fn pass_gates(
        &mut self,
        now_ns: u64,
        lane: usize,
        pick: Pick,
        piece: (Op, u32),
        cost: Cost,
    ) -> Result<Passed, Stop> {
        match self.config.mode {
            Mode::Drain => Ok(Passed::default()),
            Mode::Depth(depth) if self.in_flight >= depth.max(1) => Err((WaitReason::Depth, None)),
            Mode::Depth(_) => Ok(Passed::default()),
            Mode::Scheduled if cost.is_zero() => Ok(Passed::default()),
            Mode::Scheduled => self.enter_device(now_ns, lane, pick, piece, cost),
        }
    }

    /// Takes room in the device, then tokens, for a piece of this operation and length. Without tokens, gives the room
    /// back.
    fn enter_device(
        &mut self,
        now_ns: u64,
        lane: usize,
        pick: Pick,
        (op, len_bytes): (Op, u32),
        cost: Cost,
    ) -> Result<Passed, Stop> {
        let (ticks, carry_fs) = ticks_with_carry(self.disk.cost_in_mix(cost), self.lanes[lane].carry_fs);
        self.queues_at_dispatch = self.lanes[lane].tree.clock(ROOT).queues();
        // Another queue whose work is all in the device asks again at its next completion.
        let alone = self.queues_at_dispatch <= 1 && self.disk.in_flight_ticks() <= self.in_flight_ticks;

        let looks_first = std::mem::replace(&mut self.found_full, true) || alone;
        if !self.disk.try_enter(lane, ticks, looks_first, || self.overdraft_ticks(lane, pick, ticks)) {
            self.note_full_window(lane);
            let retry_ns = self.retry_full_ns(lane).map(|wait_ns| now_ns.saturating_add(wait_ns));
            if !alone {
                let soon_ns = now_ns.saturating_add(self.retry_ns(RETRIES));
                self.disk.claim(lane, retry_ns.map_or(soon_ns, |retry_ns| retry_ns.min(soon_ns)));
                self.wait_for_room(lane, Cost::ZERO);
            }
            // A class that is due does not wait until a piece of this queue is back: other queues would take the room.
            let is_due = !alone && pick.turn != Turn::Picked;
            let due_ns = now_ns.saturating_add(FULL_DEVICE_RETRY_NS);
            let retry_ns = retry_ns.map(|retry_ns| if is_due { retry_ns.min(due_ns) } else { retry_ns });
            return Err((WaitReason::Depth, retry_ns));
        }

        // If this queue is alone, its order decides which class gets the next token. Among several queues, only a
        // deeper bucket does.
        let is_deeper = !alone || pick.turn != Turn::Picked;
        let deeper_ticks = || if is_deeper { self.overdraft_ticks(lane, pick, ticks) } else { 0 };
        let tokens = self.disk.tokens_of(lane, op, len_bytes, ticks);
        match self.disk.take_tokens(now_ns, lane, self.config.group, tokens, self.late_ns, deeper_ticks) {
            Ok(buckets) => Ok(self.has_entered(lane, ticks, carry_fs, (buckets, tokens))),
            Err(retry_ns) => {
                self.disk.leave(lane, ticks);
                self.unreported.lanes[lane].token_blocks += 1;
                if !alone {
                    self.disk.claim(lane, retry_ns);
                }
                Err((WaitReason::Tokens, Some(retry_ns)))
            }
        }
    }

    /// Counts a piece of `ticks` as in the device, with tokens from these buckets.
    pub(super) fn has_entered(&mut self, lane: usize, ticks: u64, carry_fs: u64, from: (usize, Tokens)) -> Passed {
        self.found_full = false;
        self.lanes[lane].carry_fs = carry_fs;
        self.count_in_device(lane, ticks);
        self.disk.note_piece(ticks);
        Passed { ticks, buckets: from.0 as u16, tokens: from.1 }
    }

    /// Returns by how much the picked class may exceed window and tokens with a piece of `ticks`.
    fn overdraft_ticks(&self, lane: usize, pick: Pick, ticks: u64) -> u64 {
        if pick.turn != Turn::Picked {
            return self.disk.urgent_overdraft_ticks(ticks);
        }
        if pick.is_early {
            return 0;
        }

        let lag = self.lanes[lane].tree.lag(pick.class);
        // A lag of less than one request does not count: the order of the queue makes up for it.
        let lag_ticks = whole_ticks(lag.of_class).saturating_sub(ticks);
        self.disk.overdraft_ticks(ticks, lag_ticks, whole_ticks(lag.in_class))
    }

    /// Reports that the window is full for work of `lane`. On a duplex disk that counts against a direction only if
    /// enough of the work in the device is of that direction.
    pub(super) fn note_full_window(&mut self, lane: usize) {
        self.unreported.window_blocks += 1;
        let has_part = self.presence.in_flight_ticks(lane).saturating_mul(DIRECTION_PART) >= self.in_flight_ticks;
        self.unreported.lanes[lane].window_blocks += u64::from(has_part);
    }

    /// Lists this queue among those that wait for room. Its turn comes when others have been served `ahead`.
    fn wait_for_room(&mut self, lane: usize, ahead: Cost) {
        if let Some(number) = self.config.number {
            let turn = self.lanes[lane].tree.clock(ROOT).mean_after(ahead);
            self.waits_until[lane] = Some(turn);
            self.disk.waits_for_room(lane, number, turn);
        }
    }

    pub(super) fn stop_waiting(&mut self) {
        let Some(number) = self.config.number else { return };
        for (lane, turn) in std::mem::take(&mut self.waits_until).into_iter().enumerate() {
            if turn.is_some() && self.disk.stops_waiting(lane, number) {
                self.room_from.get_or_insert(lane);
            }
        }
    }

    /// Hands room in the device that pieces have left, and that this queue cannot use, over to the first queue that
    /// waits. So that hand-overs end, a queue that waits itself hands it only to one whose turn comes before its own, and
    /// one that was woken for room in a lane hands it to no earlier lane.
    pub(super) fn leave_room_to_others(&mut self) {
        if let Some(lane) = self.room_from.take()
            && self.disk.has_several_queues()
        {
            self.hand_over = self.disk.first_waiter(self.config.number, lane, self.waits_until);
        }
    }

    /// Returns the wait before this queue, at its turn in `lane`, retries a full device; `None` if a completion of its
    /// own will poll it. Completions of other queues do not, and pieces of the other direction may be stalled.
    pub(super) fn retry_full_ns(&self, lane: usize) -> Option<u64> {
        if self.presence.in_flight_ticks(lane) == 0 {
            return Some(FULL_DEVICE_TURN_NS);
        }
        // Those of absent queues count: while the device stands still, this queue must not seem absent itself.
        let others_ticks = self.disk.held_ticks().saturating_sub(self.in_flight_ticks);
        match (self.in_flight, others_ticks) {
            (_, 0) => None,
            (1, _) => Some(self.retry_ns(self.retries())),
            // By then a piece of its own is back; the completion polls the queue and leaves room.
            _ => Some(self.retry_ns(1)),
        }
    }

    /// Returns the retries of a full device in the usual device time of a piece: one if others wake this queue for
    /// room, in case that a wake-up was missed.
    fn retries(&self) -> u64 {
        if self.config.number.is_some() { 1 } else { RETRIES }
    }

    /// Returns the wait before a queue retries that is half way to its turn after `half_way_ns`: until then, but at
    /// most `retries` times in the usual device time of a piece.
    fn turn_retry_ns(&self, retries: u64, half_way_ns: u64) -> u64 {
        let least_ns = self.retry_ns(retries);
        half_way_ns.clamp(least_ns, least_ns.max(FULL_DEVICE_RETRY_MAX_NS))
    }

    /// Returns the wait before a retry, with `retries` retries of a full device in the usual device time of a piece.
    ///
    /// If any node has limits, the wait is the shortest: the more often queues poll, the more exact are limits over
    /// several of them.
    fn retry_ns(&self, retries: u64) -> u64 {
        if self.any_limits {
            return FULL_DEVICE_RETRY_NS;
        }
        (self.presence.usual_device_ns() / retries).clamp(FULL_DEVICE_RETRY_NS, SLOW_DEVICE_RETRY_NS)
    }

    /// Removes a piece from the device's account. Returns whether it is a write that was held before the device.
    pub(super) fn leave_device(&mut self, now_ns: u64, piece: &Dispatch) -> bool {
        let lane = usize::from(piece.lane);
        self.disk.leave(lane, piece.ticks);
        if piece.ticks > 0 {
            self.in_flight_ticks -= piece.ticks;
            self.presence.remove(lane, piece.ticks);
            self.room_from = Some(0);
            self.unreported.in_device = self.unreported.in_device.wrapping_sub(1);
        }
        self.write_is_back(now_ns, piece)
    }

    /// Counts a piece of `ticks` as in the device.
    pub(super) fn count_in_device(&mut self, lane: usize, ticks: u64) {
        if ticks > 0 {
            self.in_flight_ticks += ticks;
            self.presence.add(lane, ticks);
            self.unreported.in_device = self.unreported.in_device.wrapping_add(1);
        }
    }
}
