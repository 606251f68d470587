//! The I/O queue: one disk, one shard, all classes. The public face of the scheduler.
//!
//! # Why
//! A queue that forms in the device can no longer be reordered: a small read waits behind everything sent before it.
//! So requests wait here, ordered by shares, and are dispatched no faster than the device can serve them.
//!
//! # How it works
//! A pure state machine. The caller passes in the time, requests and results:
//! [`IoQueue::enqueue`] takes a request, [`IoQueue::poll_dispatch`] returns the next piece to submit,
//! [`IoQueue::complete`] takes its result, [`IoQueue::next_wakeup`] returns when to poll again if nothing happens
//! before, [`IoQueue::take_hand_over`] which other queue of the disk to poll. A piece passes four gates: it is its
//! class's turn on the whole disk (`tree`, `clock`; or a reservation is due, `qos`), no limit holds the class back (if
//! one does, other classes proceed), the device has room (depth or window), and the disk's bucket holds its tokens
//! (`bucket`). At the last two the head of the line waits, and no other piece overtakes it.
//!
//! A long request is not copied into pieces: each dispatch cuts the next piece off, so one request takes one slot
//! whatever its length. Pieces come back in any order; the result is the longest prefix that succeeded.
//!
//! # Limits
//! One thread. A request is at most 4 GiB - 1 long. At most [`QueueConfig::max_requests`] are in the queue, those in
//! the device included; more are refused with an error. Nothing is allocated per request.
//!
//! # Example
//! ```
//! use std::sync::Arc;
//! use plimsoll_core::{Disk, DiskConfig, GroupId, IoQueue, Op, Outcome, Progress, QueueConfig};
//!
//! let disk = Arc::new(Disk::new(DiskConfig::default()));
//! let query = disk.add_class(GroupId::ROOT, 100)?;
//! let mut queue = IoQueue::new(disk, QueueConfig::default());
//! queue.enqueue(1_000, query, Op::Read, 4096, 7)?;
//! let piece = queue.poll_dispatch(1_000).expect("an unlimited disk takes it at once");
//! assert_eq!((piece.user_data(), piece.offset_bytes(), piece.len_bytes()), (7, 0, 4096));
//! // ... the device does its work ...
//! let progress = queue.complete(90_000, piece, Outcome::Moved(4096));
//! assert!(matches!(progress, Progress::Finished(f) if f.user_data == 7 && f.result == Ok(4096)));
//! # Ok::<(), plimsoll_core::QueueError>(())
//! ```

mod alone;
mod away;
mod back;
mod config;
mod follow;
mod gates;
mod held;
mod member;
mod mode;
mod piece;
mod report;
mod unloaded;
mod urgent;

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::Arc;

use crate::bucket::Tokens;
use crate::classes::{ClassId, QueueError};
use crate::disk::{Disk, Presence, QUEUES_MAX, Report};
use crate::qos::Amount;
use crate::request::{Direction, Op};
use crate::slots::{NONE, RequestId, RequestSlot, Slots};
use crate::stats::{BlockedTime, WaitMark, WaitReason};
use crate::target::LEVELS;
use crate::tree::{Charge, Fairness, Pick, ROOT, Tree, Turn};
use crate::units::Cost;
use away::Left;
use config::fairness;
pub use config::{DECAY_TAU_NS, Mode, QueueConfig, depth_of_queue};
use held::Writes;
use member::{Backlog, CameBack, Kind, Member, MovedPlace, NOT_PARKED};
pub use piece::{CANCELLED, Cancel, Dispatch, Failure, Finished, Outcome, Progress, Stopped};
use unloaded::Unloaded;
use urgent::Place;

/// Cost of one unit of weight on an unlimited disk, for fairness alone: there a request costs no device time.
const NOMINAL_WEIGHT_COST: Cost = Cost::from_ns(1_000);

/// The requests of one shard for one disk, in the order in which the disk gets them.
///
/// Call [`IoQueue::poll_dispatch`] until it returns `None`: after each call that changes the queue, and at the time of
/// [`IoQueue::next_wakeup`]. Give each piece back to [`IoQueue::complete`] or [`IoQueue::refuse`].
#[derive(Debug)]
pub struct IoQueue {
    disk: Arc<Disk>,
    config: QueueConfig,
    /// The queue's place among those that report to the disk.
    place: usize,
    lanes: Vec<Lane>,
    first_lane: usize,
    members: Vec<Member>,
    /// Epoch of the disk's table of classes when it was last read.
    epoch: u64,
    /// Classes and groups with a reservation, and classes with a longest wait.
    urgent: Vec<u32>,
    /// The groups of `urgent`, and its classes with queued requests.
    urgent_with_work: Vec<u32>,
    any_limits: bool,
    any_targets: bool,
    /// The distinct latency targets, and by level the place of the classes that yield to it.
    levels: Vec<u64>,
    places: [Place; LEVELS],
    /// Nodes at a limit: end of the wait, lane, node.
    parked: BinaryHeap<Reverse<(u64, u8, u32)>>,
    /// Places that nodes have booked at limits that have changed since.
    moved: Vec<MovedPlace>,
    /// Nodes that a change of the classes has unparked since the last poll.
    unparked: Vec<u32>,
    /// Requests that ended because their class was removed.
    cancelled: Vec<Stopped>,
    slots: Slots,
    queued: u32,
    in_flight: u32,
    /// Device time of this queue's pieces in the device.
    in_flight_ticks: u64,
    /// The writes among them.
    writes: Writes,
    /// The same by lane, the number of these pieces, and their usual time there, for the disk's other queues.
    presence: Arc<Presence>,
    /// The shortest times of this queue's pieces in the device.
    unloaded: Unloaded,
    /// Whether the last attempt to dispatch found the device full, or no tokens.
    found_full: bool,
    /// By lane: this queue's turn on the disk's clock, while the disk lists the queue as waiting for room.
    waits_until: [Option<u64>; 2],
    /// The first lane in which others may use room in the device: 0 if pieces have left it since the last poll, or else
    /// the lane for which this queue was woken; and the queue that gets the room that this one cannot use.
    room_from: Option<usize>,
    hand_over: Option<u16>,
    /// Whether a request has ended since the last poll whose class has nothing queued.
    has_emptied: bool,
    /// Number of the disk's queues with work at the last attempt to dispatch.
    queues_at_dispatch: u32,
    blocked: BlockedTime,
    wakeup_ns: Option<u64>,
    /// The time of the last poll, and how late it was: the time since the wake-up that the poll before it asked for,
    /// or, if that one waited for a completion, since that poll.
    polled_ns: u64,
    late_ns: u64,
    /// The time for which the last poll that returned nothing has asked.
    due_ns: Option<u64>,
    /// The work in the device after the last poll, if the window or tokens stopped this queue then.
    left: Option<Left>,
    /// Whether the window was full before an absence of this queue (see `away`); cleared by the next poll.
    was_full: bool,
    /// The next report to the disk's controller, the time of the last one, and of the last check of the backlogs.
    unreported: Report,
    reported_ns: u64,
    looked_at_backlog_ns: u64,
}

/// The order of the classes for one bucket: reads and writes together, or (duplex) each alone.
#[derive(Debug)]
struct Lane {
    tree: Tree,
    carry_fs: u64,
    /// Start of a standstill, in which no class here is eligible and the disk's clock does not move; and that clock.
    standstill: Option<(u64, u64)>,
    /// Overtime: device time that this queue may use before its turn because the queues ahead are absent; and the
    /// disk's clock when it was last granted or used.
    overtime_ns: u64,
    overtime_mean: u64,
    /// End of the device's last stall: the completion of a piece that it had held for too long.
    stalled_until_ns: u64,
}

impl Lane {
    /// Ends overtime if the disk's clock has moved: the other queues are back.
    fn end_overtime(&mut self) {
        if self.overtime_ns > 0 && self.tree.clock(ROOT).mean() != self.overtime_mean {
            self.overtime_ns = 0;
            self.tree.set_overtime(Cost::ZERO);
        }
    }
}

/// The ticks of the window and the tokens that a piece took at the last gates; 0 in modes without these gates.
#[derive(Clone, Copy, Debug, Default)]
struct Passed {
    ticks: u64,
    buckets: u16,
    tokens: Tokens,
}

/// The reason that stopped a dispatch, and when to try again (`None`: after the next completion or request).
type Stop = (WaitReason, Option<u64>);

impl IoQueue {
    /// Returns an empty queue for `disk`, with the disk's classes.
    #[must_use]
    pub fn new(disk: Arc<Disk>, config: QueueConfig) -> IoQueue {
        let number = config.number.filter(|number| usize::from(*number) < QUEUES_MAX);
        let config = QueueConfig { number, ..config };
        let fairness = fairness(&config, &disk);
        let lanes = if disk.config().duplex { 2 } else { 1 };
        let lane = |number| Lane {
            tree: Tree::new(fairness, number),
            carry_fs: 0,
            standstill: None,
            overtime_ns: 0,
            overtime_mean: 0,
            stalled_until_ns: 0,
        };

        let presence = Arc::new(Presence::default());
        let mut queue = IoQueue {
            lanes: (0..lanes).map(lane).collect(),
            first_lane: 0,
            members: Vec::new(),
            epoch: 0,
            urgent: Vec::new(),
            urgent_with_work: Vec::new(),
            any_limits: false,
            any_targets: false,
            levels: Vec::new(),
            places: Default::default(),
            parked: BinaryHeap::new(),
            moved: Vec::new(),
            unparked: Vec::new(),
            cancelled: Vec::new(),
            slots: Slots::new(config.max_requests),
            queued: 0,
            in_flight: 0,
            place: disk.add_queue(&presence),
            in_flight_ticks: 0,
            writes: Writes::default(),
            presence,
            unloaded: Unloaded::new(),
            found_full: false,
            waits_until: [None; 2],
            room_from: None,
            hand_over: None,
            has_emptied: false,
            queues_at_dispatch: 0,
            blocked: BlockedTime::default(),
            wakeup_ns: None,
            polled_ns: 0,
            late_ns: 0,
            due_ns: None,
            left: None,
            was_full: false,
            unreported: Report::default(),
            reported_ns: 0,
            looked_at_backlog_ns: 0,
            disk,
            config,
        };

        queue.follow();
        queue
    }

    fn fairness(&self) -> Fairness {
        fairness(&self.config, &self.disk)
    }

    /// Returns whether this queue uses the disk's clocks: only in scheduled mode, and only if device time is scarce.
    fn shares_clocks(&self) -> bool {
        self.config.mode == Mode::Scheduled && !self.disk.is_unlimited()
    }

    /// Returns the disk that this queue feeds.
    #[must_use]
    pub fn disk(&self) -> &Arc<Disk> {
        &self.disk
    }

    /// Returns the configuration, with the mode that [`IoQueue::set_mode`] has set.
    #[must_use]
    pub fn config(&self) -> &QueueConfig {
        &self.config
    }

    /// Queues a request of `class` that moves `len_bytes` (ignored for flush, discard and allocate). `user_data` comes
    /// back with every piece and with the result.
    ///
    /// # Errors
    /// [`QueueError::Unknown`] if there is no such class, [`QueueError::Full`] at [`QueueConfig::max_requests`], and
    /// [`QueueError::Overloaded`] if it would wait longer than its class allows. The last two are counted as refused.
    pub fn enqueue(
        &mut self,
        now_ns: u64,
        class: ClassId,
        op: Op,
        len_bytes: u32,
        user_data: u64,
    ) -> Result<RequestId, QueueError> {
        let node = self.class_node_now(class)?;
        if let Some(most_ns) = self.members[node as usize].qos.max_delay_ns {
            let expected_ns = self.expected_delay_of(now_ns, node, Some(op.direction()));
            if expected_ns > most_ns {
                self.members[node as usize].stats.refused += 1;
                return Err(QueueError::Overloaded { expected_ns });
            }
        }

        let len_bytes = if op.is_transfer() { len_bytes } else { 0 };
        let rest_fs = self.whole_cost(op, len_bytes).as_fs();
        let slot = RequestSlot { rest_fs, ..RequestSlot::new(op, node, len_bytes, now_ns, user_data) };
        let Some(at) = self.slots.insert(slot) else {
            self.members[node as usize].stats.refused += 1;
            return Err(QueueError::Full);
        };

        let lane = self.disk.lane(op.direction());
        let tree = &mut self.lanes[lane].tree;
        let was_idle = tree.fifo(node).head == NONE;
        self.slots.push_back(tree.fifo_mut(node), at);
        if was_idle {
            tree.settle(node);
            self.has_woken(now_ns, node);
        }

        let member = &mut self.members[node as usize];
        member.latencies[op.direction() as usize].get_or_insert_default();
        if member.stats.queued == 0 {
            member.starved_since_ns = now_ns;
        }
        member.stats.queued += 1;
        member.stats.queued_bytes += u64::from(len_bytes);
        member.stats.queued_fs += u128::from(rest_fs);
        if op.direction() == Direction::Write {
            member.queued_writes.add(1, len_bytes);
        }

        if self.queued == 0 {
            self.begin_wait(now_ns);
        }
        self.queued += 1;
        self.wakeup_ns = Some(0);
        Ok(RequestId { slot: at, generation: self.slots.get(at).generation })
    }

    /// Counts a wake-up of `node`, and begins its wait if it has nothing else queued.
    fn has_woken(&mut self, now_ns: u64, node: u32) {
        let limited_ns = self.limited_ns(node, now_ns);
        let member = &mut self.members[node as usize];
        member.stats.activations += 1;
        if member.stats.queued == 0 {
            member.mark = WaitMark::start(&self.blocked, limited_ns, now_ns);
            let is_first = self.lanes.iter().all(|lane| lane.tree.clock(node).queues() <= 1);
            let was_idle = is_first && member.stats.in_flight == 0;
            let is_guest = was_idle || member.backlog.is_small;
            self.unreported.wakeups += u64::from(is_guest && self.disk.is_full());
            if !self.urgent.is_empty() {
                if member.qos.may_be_urgent() {
                    self.urgent_with_work.push(node);
                }
                self.begin_reservations(now_ns, node);
            }
        }
    }

    /// Returns the device time of a whole request: the sum over the pieces into which it will be split.
    fn whole_cost(&self, op: Op, len_bytes: u32) -> Cost {
        let most = self.piece_max_bytes(op);
        if len_bytes <= most {
            return self.disk.cost(op, len_bytes);
        }

        let whole_fs = u64::from(len_bytes / most).saturating_mul(self.disk.cost(op, most).as_fs());
        let rest_bytes = len_bytes % most;
        let rest_fs = if rest_bytes > 0 { self.disk.cost(op, rest_bytes).as_fs() } else { 0 };
        Cost::from_fs(whole_fs.saturating_add(rest_fs))
    }

    fn piece_max_bytes(&self, op: Op) -> u32 {
        match self.config.mode {
            Mode::Scheduled if op.is_transfer() => self.disk.piece_max_bytes(op.direction()).max(1),
            _ => u32::MAX,
        }
    }

    /// Returns the next piece to submit, or `None` if nothing may go now. Call it until it returns `None`.
    pub fn poll_dispatch(&mut self, now_ns: u64) -> Option<Dispatch> {
        if self.epoch != self.disk.classes().epoch() {
            self.follow();
        }

        self.end_waits(now_ns);
        self.stop_waiting();
        self.has_emptied = false;
        // Unparks classes whose requests were cancelled meanwhile, too: their next request must not find them parked.
        self.unpark_due(now_ns);
        if self.queued == 0 {
            self.blocked.unblock(now_ns);
            self.wakeup_ns = None;
            self.presence.polls(now_ns, None);
            self.leave_room_to_others();
            return None;
        }
        if self.polled_ns != now_ns {
            self.begin_poll(now_ns);
        }

        let mut stopped_by: Option<Stop> = None;
        let first = self.lane_in_turn();
        for turn in 0..self.lanes.len() {
            let lane = if self.lanes.len() == 1 { 0 } else { (first + turn) % 2 };
            match self.poll_lane(now_ns, lane) {
                Ok(Some(dispatch)) => {
                    self.blocked.unblock(now_ns);
                    self.first_lane = lane + 1;
                    self.wakeup_ns = Some(0);
                    return Some(dispatch);
                }
                Ok(None) => {}
                Err(stop) => stopped_by = Some(stopped_by.map_or(stop, |other| sooner(other, stop))),
            }
        }

        if self.writes.are_held && stopped_by.is_none() {
            stopped_by = Some((WaitReason::Depth, None));
        }
        let is_full = matches!(stopped_by, Some((WaitReason::Depth, _))) && self.config.mode == Mode::Scheduled;
        let held_ns = self.held_at_ns().filter(|_| is_full);
        if held_ns.is_some_and(|held_ns| held_ns <= now_ns) {
            self.hold_writes(now_ns);
            return self.poll_dispatch(now_ns);
        }
        if is_full && self.disk.has_several_queues() && self.disk.count_absent(now_ns) {
            return self.poll_dispatch(now_ns);
        }

        self.end_poll(now_ns, stopped_by, held_ns);
        None
    }

    /// Returns the lane to try first. Lanes share the window: the one with less device time in the device comes first.
    /// If both have the same, and in modes without a window, they alternate.
    fn lane_in_turn(&self) -> usize {
        if self.lanes.len() == 1 || self.config.mode != Mode::Scheduled {
            return self.first_lane;
        }
        match self.presence.in_flight_ticks(0).cmp(&self.presence.in_flight_ticks(1)) {
            Ordering::Less => 0,
            Ordering::Greater => 1,
            Ordering::Equal => self.first_lane,
        }
    }

    /// Ends a poll that dispatches nothing more: records why, and when to poll again.
    fn end_poll(&mut self, now_ns: u64, stopped_by: Option<Stop>, held_ns: Option<u64>) {
        self.note_left(stopped_by);
        match stopped_by {
            Some((WaitReason::Fairness, _)) | None => self.blocked.unblock(now_ns),
            Some((reason, _)) => self.blocked.block(reason, now_ns),
        }

        let step_ns = Some(self.disk.next_step_ns()).filter(|step_ns| *step_ns < u64::MAX && self.in_flight > 0);
        if step_ns.is_some_and(|step_ns| step_ns <= now_ns) {
            self.report_now(now_ns);
        }
        let step_ns = step_ns.filter(|step_ns| *step_ns > now_ns);

        let limit_ns = self.parked.peek().map(|Reverse((until_ns, ..))| *until_ns);
        let urgent_ns = self.urgent_with_work.iter().filter_map(|node| self.urgent_at_ns(*node, now_ns)).min();
        self.wakeup_ns =
            [stopped_by.and_then(|stop| stop.1), limit_ns, urgent_ns, step_ns, held_ns].into_iter().flatten().min();
        self.due_ns = self.wakeup_ns;
        self.presence.polls(now_ns, self.wakeup_ns);
        self.leave_room_to_others();
    }

    /// Returns the [number](QueueConfig::number) of another queue of the disk that the caller should poll soon: at the
    /// last poll, which returned `None`, the device had room, and the turn was that queue's. Each hand-over is returned
    /// once.
    ///
    /// A caller that cannot wake other queues need not call this: they retry by themselves, later.
    pub fn take_hand_over(&mut self) -> Option<u16> {
        self.hand_over.take()
    }

    /// Returns the next piece of `lane`, `None` if the lane has no work or all of it is parked, or the stop.
    fn poll_lane(&mut self, now_ns: u64, lane: usize) -> Result<Option<Dispatch>, Stop> {
        self.lanes[lane].end_overtime();
        loop {
            let urgent = if self.urgent.is_empty() { None } else { self.urgent_pick(now_ns, lane) };
            let pick = match urgent {
                Some(pick) => pick,
                None => match self.lanes[lane].tree.pick() {
                    Ok(None) => return Ok(None),
                    Ok(Some(pick)) => pick,
                    Err(_) => match self.wait_for_turn(now_ns, lane)? {
                        Some(pick) => pick,
                        None => continue,
                    },
                },
            };

            if self.writes.are_held && self.park_held(now_ns, lane, pick.class) {
                continue;
            }
            if !(self.any_limits || self.any_targets) || !self.park_at_limit(now_ns, lane, pick) {
                return self.admit(now_ns, lane, pick).map(Some);
            }
        }
    }

    /// Moves a piece that has passed all gates from the queue's account to the device's.
    fn commit(&mut self, now_ns: u64, lane: usize, pick: Pick, mut piece: Dispatch) -> Dispatch {
        let (class, at) = (pick.class, piece.slot);

        let slot = self.slots.get_mut(at);
        let first = slot.dispatched_bytes == 0;
        slot.dispatched_bytes += piece.len_bytes;
        slot.outstanding += 1;
        let last = slot.dispatched_bytes == slot.len_bytes;
        let taken_fs = if last { slot.rest_fs } else { piece.cost.as_fs().min(slot.rest_fs) };
        slot.rest_fs -= taken_fs;
        let queued_ns = now_ns.saturating_sub(slot.enqueued_ns);
        piece.user_data = slot.user_data;

        let limited_ns = self.limited_ns(class, now_ns);
        let member = &mut self.members[class as usize];
        piece.reason = member.mark.take(&self.blocked, limited_ns, now_ns, &mut member.stats.waited_ns);
        if first && let Some(latencies) = &mut member.latencies[piece.op.direction() as usize] {
            latencies.queue.record(queued_ns);
        }

        let stats = &mut member.stats;
        if stats.in_flight == 0 {
            let starved_ns = now_ns.saturating_sub(member.starved_since_ns);
            stats.starved_ns = stats.starved_ns.saturating_add(starved_ns);
        }
        if first && !last {
            stats.split += 1;
        }
        stats.dispatched += 1;
        stats.in_flight += 1;
        stats.queued_bytes -= u64::from(piece.len_bytes);
        stats.queued_fs -= u128::from(taken_fs);
        stats.consumed_fs += u128::from(piece.cost.as_fs());
        stats.queued -= u32::from(last);
        if piece.op.direction() == Direction::Write {
            member.queued_writes.take(u32::from(last), piece.len_bytes);
        }
        if pick.turn != Turn::Picked {
            stats.aged += u64::from(pick.turn == Turn::Aged);
            stats.reserved += u64::from(matches!(pick.turn, Turn::Reserved { .. }));
        }

        self.in_flight += 1;
        self.writes.enter(now_ns, piece.op, piece.ticks);
        if self.any_limits || self.any_targets || !self.urgent.is_empty() {
            self.charge_qos(now_ns, pick, &piece, u32::from(first));
        }

        let weight = weight(piece.len_bytes);
        let Lane { tree, overtime_mean, .. } = &mut self.lanes[lane];
        let is_last = last && self.slots.is_alone(tree.fifo(class));
        let cost = fair_cost(piece.cost, weight);
        tree.charge(Charge { class, cost, weight, now_ns, turn: pick.turn, is_last });
        *overtime_mean = tree.clock(ROOT).mean();

        if last {
            self.queued -= 1;
            self.slots.unlink(tree.fifo_mut(class), at);
            if tree.fifo(class).head == NONE {
                tree.settle(class);
                self.urgent_has_emptied(class);
            }
        }
        piece
    }

    /// Charges the limits of `class` and of the groups above it for `amount`, as if dispatched at `from_ns`.
    fn charge_limits(&mut self, from_ns: u64, class: u32, lane: usize, amount: Amount) {
        let mut at = class;
        loop {
            let member = &mut self.members[at as usize];
            if let Some(tags) = member.tags.as_ref().filter(|_| member.qos.has_limits()) {
                let missing = amount.beyond(&mut member.credit[amount.direction as usize]);
                tags.charge_limits(&member.qos.limits, missing, from_ns);
            }
            if at == ROOT {
                return;
            }
            at = self.lanes[lane].tree.parent(at);
        }
    }

    /// Records that the backend accepts no more pieces: until the next dispatch, waits count as
    /// [`WaitReason::Backend`].
    pub fn backend_is_busy(&mut self, now_ns: u64) {
        if self.queued > 0 {
            self.blocked.block(WaitReason::Backend, now_ns);
            self.wakeup_ns = None;
        }
    }

    /// Returns the reason for which queued work waits, as of the last [`IoQueue::poll_dispatch`] that returned `None`;
    /// `None` if nothing is queued.
    #[must_use]
    pub fn blocked_on(&self) -> Option<WaitReason> {
        if self.queued == 0 {
            return None;
        }
        let otherwise = if self.parked.is_empty() { WaitReason::Fairness } else { WaitReason::Limit };
        Some(self.blocked.reason().unwrap_or(otherwise))
    }

    /// Returns when to call [`IoQueue::poll_dispatch`] again if nothing else happens before: at once if that time is
    /// past, never if `None` (only a completion or a new request changes anything then). The answer is that of the last
    /// poll, so poll also after each enqueue, completion, cancellation, refusal and change of shares.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<u64> {
        self.wakeup_ns.filter(|_| self.queued > 0)
    }

    /// Returns the number of queued requests, partly dispatched ones included.
    #[must_use]
    pub fn queued(&self) -> u32 {
        self.queued
    }

    /// Returns the number of pieces in the device.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Returns the number of requests in the queue or the device.
    #[must_use]
    pub fn requests(&self) -> u32 {
        self.slots.live()
    }
}

/// Discards queued requests and stops counting the pieces in the device, so that neither holds back the disk's other
/// queues.
impl Drop for IoQueue {
    fn drop(&mut self) {
        for lane in &mut self.lanes {
            mode::take_fifos(&mut lane.tree, self.members.len() as u32);
        }
        self.stop_waiting();
        self.unreported.in_device = self.unreported.in_device.wrapping_sub(self.presence.pieces());
        self.disk.remove_queue(self.place, &self.unreported.divided(), &self.presence);
    }
}

/// Returns the stop that ends first.
fn sooner(one: Stop, other: Stop) -> Stop {
    match (one.1, other.1) {
        (Some(one_ns), Some(other_ns)) if one_ns <= other_ns => one,
        (Some(_), None) => one,
        _ => other,
    }
}

/// Returns the weight of a piece in depth mode: 1 + len/16 KiB, as in Scylla 1.0.
fn weight(len_bytes: u32) -> u32 {
    1 + len_bytes / (16 * 1024)
}

/// Returns the cost of a piece for fairness: its device time, or its nominal cost by weight if that is zero.
fn fair_cost(cost: Cost, weight: u32) -> Cost {
    if cost.is_zero() { Cost::from_fs(NOMINAL_WEIGHT_COST.as_fs() * u64::from(weight)) } else { cost }
}
