//! The I/O queue: one disk, one shard, all classes. The public face of the scheduler.
//!
//! # Why
//! A queue that forms in the device cannot be reordered any more: a small read waits behind whatever was sent before
//! it. So requests wait here, ordered by shares, and go to the device no faster than it can carry them.
//!
//! # How it works
//! A pure state machine. The caller brings the time and carries requests and results back and forth:
//! [`IoQueue::enqueue`] takes a request, [`IoQueue::poll_dispatch`] says what goes to the device now,
//! [`IoQueue::complete`] takes what came back, [`IoQueue::next_wakeup`] says when to poll again if nothing happens
//! before. A dispatch passes four gates: it is its class's turn on the whole disk (`tree`, `clock`; or a reservation is
//! due, `qos`), no limit holds the class back (then the others go on), the device has room (depth or window), and the disk's
//! bucket holds its tokens (`bucket`). At the last two the head of the line waits; nobody passes it.
//!
//! A long request is not copied into pieces: each dispatch cuts the next piece off it, so one request takes one slot
//! whatever its length. Pieces come back in any order; the result is the longest prefix that succeeded.
//!
//! # Limits
//! One thread. Requests are at most 4 GiB - 1 long. At most [`QueueConfig::max_requests`] are in the queue, those in
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

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use crate::bucket::{TICKS_PER_NS, ticks_with_carry};
use crate::classes::{self, ClassId, QueueError, Row};
use crate::clock::Clock;
use crate::disk::{Disk, NoRoom, Report};
use crate::qos::{Amount, Qos, Tags};
use crate::request::{Direction, Op};
use crate::slots::{NONE, RequestId, Slot, Slots};
use crate::snapshot::{ClassSnapshot, Snapshot};
use crate::stats::{BlockedTime, ClassStats, Latencies, WaitMark, WaitReason};
use crate::target::{self, Experience};
use crate::tree::{Fairness, Pick, ROOT, Tree, Turn};
use crate::units::Cost;

/// Time constant of the decaying accumulators of depth mode, as in Scylla 1.0: 100 ms.
pub const DECAY_TAU_NS: u64 = 100_000_000;

/// How often to look again when another shard's work fills the device: nobody tells this queue when it leaves.
const FULL_DEVICE_RETRY_NS: u64 = 50_000;
/// The same for a queue that is far from its turn, at the most.
const FULL_DEVICE_RETRY_MAX_NS: u64 = 500_000;
/// The same for a queue whose turn it is, and which has nothing in the device that would bring it back here.
const FULL_DEVICE_TURN_NS: u64 = 20_000;

/// With room in the device, and no clock of the disk moving for so long after all had time to look, those whose turn it is are
/// taken to be absent.
const PATIENCE_NS: u64 = 20_000;

/// A class's old requests go first for at most this part of the disk's time.
const AGED_PART: u64 = 8;

/// The controller is told of so many completions at once, or after so long.
const REPORT_COMPLETIONS: u64 = 32;
const REPORT_NS: u64 = 1_000_000;

/// How often backlogs are looked at.
const BACKLOG_PERIOD_NS: u64 = 10_000_000;

/// Stands for the cost of a request on an unlimited disk, for fairness alone: 1 us for each 16 KiB begun.
const NOMINAL_WEIGHT_COST: Cost = Cost::from_ns(1_000);

/// What holds requests back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Mode {
    /// The disk model: tokens, and a window of device time.
    #[default]
    Scheduled,
    /// So many pieces in flight in this queue (at least 1), as Scylla's first scheduler; shares by decaying
    /// accumulators of weights 1 + len/16 KiB.
    Depth(u32),
    /// Nothing: whatever is queued goes out at once, in the order of the classes. For finding out what the disk
    /// itself can do.
    Drain,
}

/// What makes an [`IoQueue`].
#[derive(Clone, Copy, Debug)]
pub struct QueueConfig {
    /// What holds requests back.
    pub mode: Mode,
    /// Requests in the queue at the most, those in the device included.
    pub max_requests: u32,
    /// Device time that a class which wakes up may use before the others; `None` takes the effective latency goal.
    pub wakeup_credit_ns: Option<u64>,
    /// Which disk group it belongs to: the NUMA node of its shard, in a disk with [`DiskConfig::groups`] of them.
    ///
    /// [`DiskConfig::groups`]: crate::DiskConfig::groups
    pub group: u16,
}

impl Default for QueueConfig {
    fn default() -> QueueConfig {
        QueueConfig { mode: Mode::Scheduled, max_requests: 65_536, wakeup_credit_ns: None, group: 0 }
    }
}

/// A piece of a request on its way to the device. Give it back to [`IoQueue::complete`], exactly once, or to
/// [`IoQueue::refuse`]: until then its device time counts as in flight.
#[must_use = "a dispatch must reach the device and come back, or be refused"]
#[derive(Debug)]
pub struct Dispatch {
    slot: u32,
    class: u32,
    op: Op,
    lane: u8,
    reason: Option<WaitReason>,
    offset_bytes: u32,
    len_bytes: u32,
    user_data: u64,
    cost: Cost,
    ticks: u64,
    /// Which bucket its tokens came from, and how many.
    bucket: u16,
    token_ticks: u64,
    dispatched_ns: u64,
}

impl Dispatch {
    /// What to do.
    #[must_use]
    pub fn op(&self) -> Op {
        self.op
    }

    /// Where in the request the piece begins.
    #[must_use]
    pub fn offset_bytes(&self) -> u32 {
        self.offset_bytes
    }

    /// Length of the piece.
    #[must_use]
    pub fn len_bytes(&self) -> u32 {
        self.len_bytes
    }

    /// What the caller gave to `enqueue`.
    #[must_use]
    pub fn user_data(&self) -> u64 {
        self.user_data
    }

    /// What its class waited for most before this dispatch; `None` when it did not wait.
    #[must_use]
    pub fn waited_for(&self) -> Option<WaitReason> {
        self.reason
    }

    /// When it was dispatched.
    #[must_use]
    pub fn dispatched_ns(&self) -> u64 {
        self.dispatched_ns
    }
}

/// What became of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// So many bytes were moved. Fewer than asked: the rest is sent again at once, and charged.
    Moved(u32),
    /// So many bytes were moved, and there is no more (end of file).
    End(u32),
    /// The device or the system said no: its error number.
    Failed(i32),
}

/// A request that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// What the caller gave to `enqueue`.
    pub user_data: u64,
    /// Bytes of the longest prefix that succeeded, or the error number when not even the first byte did.
    pub result: Result<u32, i32>,
    /// From enqueue to now.
    pub total_ns: u64,
}

/// What a completed piece means for its request.
#[derive(Debug)]
pub enum Progress {
    /// The request has ended.
    Finished(Finished),
    /// Other pieces are still to come.
    Pending,
    /// The piece was short: send this rest now.
    Continue(Dispatch),
}

/// What became of a cancelled request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancel {
    /// Nothing of it is in the device: it has ended, and this was its user data. For what had not been dispatched no
    /// tokens were taken. (Pieces of a long request may have been to the device and back: what they wrote is written.)
    Cancelled(u64),
    /// Pieces are in the device; no more will follow, and the request ends when they are back.
    Stopping,
    /// It has ended already, or everything of it is in the device.
    TooLate,
}

/// What the queue knows of a class or group beside its place in the tree.
#[derive(Debug)]
struct Member {
    generation: u32,
    kind: Kind,
    qos: Qos,
    tags: Option<Arc<Tags>>,
    stats: ClassStats,
    latencies: Option<Box<Latencies>>,
    mark: WaitMark,
    /// Time spent at limits, and since when it is at one now.
    limited_ns: u64,
    parked_since_ns: Option<u64>,
    /// Its level among the disk's latency targets, if it has one, and to how many levels it yields.
    level: Option<u8>,
    yields: u8,
    /// Activations when the backlog was looked at last: as many now, and it has had work all the time.
    backlogged_since: u64,
    /// Before this an old request does not go first.
    aged_again_ns: u64,
    /// Keeps the row of the disk's table from being used again.
    held: Option<[Arc<Clock>; 2]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Free,
    Group,
    Class,
    /// Removed, with pieces still in the device.
    Leaving,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct IoQueue {
    disk: Arc<Disk>,
    config: QueueConfig,
    lanes: Vec<Lane>,
    first_lane: usize,
    members: Vec<Member>,
    /// Epoch of the disk's table of classes when it was last read.
    epoch: u64,
    /// Classes with a reservation or a longest wait.
    urgent: Vec<u32>,
    any_limits: bool,
    any_targets: bool,
    /// Nodes at a limit: until when, lane, node.
    parked: BinaryHeap<Reverse<(u64, u8, u32)>>,
    /// User data of requests that ended because their class was removed.
    cancelled: Vec<u64>,
    slots: Slots,
    pool: Vec<Box<Latencies>>,
    queued: u32,
    in_flight: u32,
    /// Device time of this queue's pieces in the device.
    in_flight_ticks: u64,
    blocked: BlockedTime,
    wakeup_ns: Option<u64>,
    /// What the disk's controller has not been told yet, and since when.
    unreported: Report,
    reported_ns: u64,
    looked_at_backlog_ns: u64,
}

/// The classes' order for one bucket: reads and writes together, or (duplex) each alone.
#[derive(Debug)]
struct Lane {
    tree: Tree,
    carry_fs: u64,
    in_flight_ticks: u64,
    /// Since when nobody here is eligible and the disk's clock stands at this.
    standstill: Option<(u64, u64)>,
    /// How much this queue may use out of turn since it was left alone, and where the disk's clock stood after its last turn.
    overtime_ns: u64,
    overtime_mean: u64,
}

/// What a piece took at the last gates: nothing where there are none.
#[derive(Clone, Copy, Debug, Default)]
struct Passed {
    ticks: u64,
    bucket: u16,
    token_ticks: u64,
}

/// What stopped a dispatch, and when to ask again (`None`: when a completion or request comes).
type Stop = (WaitReason, Option<u64>);

impl IoQueue {
    /// A queue for `disk`, with the classes of the disk.
    #[must_use]
    pub fn new(disk: Arc<Disk>, config: QueueConfig) -> IoQueue {
        let fairness = match config.mode {
            Mode::Depth(_) => Fairness::Decaying { tau_ns: DECAY_TAU_NS },
            _ => {
                Fairness::Virtual { credit: Cost::from_ns(config.wakeup_credit_ns.unwrap_or(disk.effective_goal_ns())) }
            }
        };
        let lanes = if disk.config().duplex { 2 } else { 1 };
        let lane = |_| Lane {
            tree: Tree::new(fairness),
            carry_fs: 0,
            in_flight_ticks: 0,
            standstill: None,
            overtime_ns: 0,
            overtime_mean: 0,
        };
        let mut queue = IoQueue {
            lanes: (0..lanes).map(lane).collect(),
            first_lane: 0,
            members: Vec::new(),
            epoch: 0,
            urgent: Vec::new(),
            any_limits: false,
            any_targets: false,
            parked: BinaryHeap::new(),
            cancelled: Vec::new(),
            slots: Slots::new(config.max_requests),
            pool: Vec::new(),
            queued: 0,
            in_flight: 0,
            in_flight_ticks: 0,
            blocked: BlockedTime::default(),
            wakeup_ns: None,
            unreported: Report::default(),
            reported_ns: 0,
            looked_at_backlog_ns: 0,
            disk,
            config,
        };
        queue.follow();
        queue
    }

    /// Whether clocks are shared with the other queues: not where nothing is scarce, and not in the other modes.
    fn shares_clocks(&self) -> bool {
        self.config.mode == Mode::Scheduled && !self.disk.is_unlimited()
    }

    /// The disk this queue is for.
    #[must_use]
    pub fn disk(&self) -> &Arc<Disk> {
        &self.disk
    }

    /// What the queue was made from.
    #[must_use]
    pub fn config(&self) -> &QueueConfig {
        &self.config
    }

    /// Follows what has changed in the disk's classes since the queue last looked (every poll does). What removed classes had
    /// queued ends as cancelled and is named to `on_cancelled` (user data); what is in the device comes back through
    /// [`IoQueue::complete`] as always. Whether anything had changed.
    pub fn follow_classes(&mut self, on_cancelled: impl FnMut(u64)) -> bool {
        let is_new = self.epoch != self.disk.classes().epoch();
        if is_new {
            self.follow();
        }
        self.cancelled.drain(..).for_each(on_cancelled);
        is_new
    }

    fn follow(&mut self) {
        let disk = Arc::clone(&self.disk);
        self.epoch = disk.classes().epoch();
        while let Some(Reverse((_, lane, node))) = self.parked.pop() {
            self.unpark(usize::from(lane), node, None);
        }
        disk.classes().read(|rows| {
            let is_gone = |member: &Member, row: &Row| {
                matches!(member.kind, Kind::Class | Kind::Group)
                    && (row.kind == classes::Kind::Removed || row.generation != member.generation)
            };
            let members = self.members.iter().zip(rows).enumerate();
            let gone: Vec<u32> = members.filter(|(_, (m, row))| is_gone(m, row)).map(|(at, _)| at as u32).collect();
            // A group goes when nothing below it has work any more.
            gone.iter().for_each(|at| self.stop_all_queued(*at));
            gone.iter().for_each(|at| self.forget(*at));
            let mut new = Vec::new();
            for (at, row) in rows.iter().enumerate() {
                self.follow_row(at as u32, row, &mut new);
            }
            for lane in &mut self.lanes {
                new.iter().for_each(|at| lane.tree.attach(*at));
            }
            let levels = target::levels(rows);
            for member in self.members.iter_mut().filter(|member| member.kind == Kind::Class) {
                (member.level, member.yields) = target::place(&levels, member.qos.latency_target);
            }
            self.any_targets = !levels.is_empty();
        });
        let members = || self.members.iter().enumerate().filter(|(_, m)| m.kind == Kind::Class);
        self.urgent = members().filter(|(_, m)| m.qos.may_be_urgent()).map(|(at, _)| at as u32).collect();
        self.any_limits = self.members.iter().any(|m| m.qos.has_limits());
    }

    fn follow_row(&mut self, at: u32, row: &Row, new: &mut Vec<u32>) {
        if at as usize == self.members.len() {
            self.members.push(Member::new(Kind::Free, 0));
            self.lanes.iter_mut().for_each(|lane| lane.tree.put_nothing());
        }
        let kind = match row.kind {
            classes::Kind::Removed => return,
            classes::Kind::Group => Kind::Group,
            classes::Kind::Class => Kind::Class,
        };
        let shares_clocks = self.shares_clocks();
        let member = &mut self.members[at as usize];
        if member.kind == Kind::Free {
            *member = Member::new(kind, row.generation);
            member.held = Some(row.clocks.clone());
            for (lane, clock) in self.lanes.iter_mut().zip(&row.clocks) {
                let clock =
                    if shares_clocks { Arc::clone(clock) } else { Arc::new(Clock::new(row.effective_shares())) };
                lane.tree.put(at, row.parent, row.effective_shares(), kind == Kind::Group, clock);
            }
            if at != ROOT {
                new.push(at);
            }
        }
        self.lanes.iter_mut().for_each(|lane| lane.tree.set_shares(at, row.effective_shares(), shares_clocks));
        member.qos = row.qos;
        member.tags.clone_from(&row.tags);
    }

    fn stop_all_queued(&mut self, node: u32) {
        for lane in 0..self.lanes.len() {
            loop {
                let at = self.lanes[lane].tree.fifo(node).head;
                if at == NONE {
                    break;
                }
                if let Some(user_data) = self.stop_queued(at) {
                    self.cancelled.push(user_data);
                }
            }
        }
    }

    /// A class or group without work was removed from the disk.
    fn forget(&mut self, node: u32) {
        self.lanes.iter_mut().for_each(|lane| lane.tree.take_out(node));
        self.members[node as usize].kind = Kind::Leaving;
        self.free_if_left(node);
    }

    /// Queues a request of `class`: `len_bytes` to move (of flush, discard and allocate: ignored). `user_data` comes
    /// back with every piece and with the result.
    ///
    /// # Errors
    /// [`QueueError::Unknown`] when there is no such class, [`QueueError::Full`] at the bound, and
    /// [`QueueError::Overloaded`] when it would wait longer than its class allows (both are counted as refused).
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
            let expected_ns = self.expected_delay_of(node);
            if expected_ns > most_ns {
                self.members[node as usize].stats.refused += 1;
                return Err(QueueError::Overloaded { expected_ns });
            }
        }
        let len_bytes = if op.is_transfer() { len_bytes } else { 0 };
        let rest_fs = self.whole_cost(op, len_bytes).as_fs();
        let slot = Slot {
            generation: 0,
            live: true,
            queued: false,
            op,
            class: node,
            prev: NONE,
            next: NONE,
            len_bytes,
            dispatched_bytes: 0,
            prefix_bytes: len_bytes,
            rest_fs,
            outstanding: 0,
            error: None,
            enqueued_ns: now_ns,
            user_data,
        };
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
        if member.latencies.is_none() {
            member.latencies = Some(self.pool.pop().unwrap_or_default());
        }
        member.stats.queued += 1;
        member.stats.queued_bytes += u64::from(len_bytes);
        member.stats.queued_fs += u128::from(rest_fs);
        self.queued += 1;
        self.wakeup_ns = Some(0);
        Ok(RequestId { slot: at, generation: self.slots.get(at).generation })
    }

    fn has_woken(&mut self, now_ns: u64, node: u32) {
        let limited_ns = self.limited_ns(node, now_ns);
        let member = &mut self.members[node as usize];
        member.stats.activations += 1;
        if member.stats.queued == 0 {
            member.mark = WaitMark::start(&self.blocked, limited_ns, now_ns);
            let is_first = self.lanes.iter().all(|lane| lane.tree.clock(node).queues() <= 1);
            if let (true, true, Some(tags)) = (is_first, member.qos.has_reservation(), &member.tags) {
                tags.begin_reservations(self.disk.reserved_time(now_ns));
            }
        }
    }

    /// Device time of a whole request, in the pieces in which it will go out.
    fn whole_cost(&self, op: Op, len_bytes: u32) -> Cost {
        let most = self.piece_max_bytes(op);
        if len_bytes <= most {
            return self.disk.cost(op, len_bytes);
        }
        let whole = u64::from(len_bytes / most) * self.disk.cost(op, most).as_fs();
        let rest_bytes = len_bytes % most;
        let rest_fs = if rest_bytes > 0 { self.disk.cost(op, rest_bytes).as_fs() } else { 0 };
        Cost::from_fs(whole.saturating_add(rest_fs))
    }

    fn piece_max_bytes(&self, op: Op) -> u32 {
        match self.config.mode {
            Mode::Scheduled if op.is_transfer() => self.disk.piece_max_bytes(op.direction()).max(1),
            _ => u32::MAX,
        }
    }

    /// What goes to the device now; `None` when nothing may. Call it until it says `None`.
    pub fn poll_dispatch(&mut self, now_ns: u64) -> Option<Dispatch> {
        if self.epoch != self.disk.classes().epoch() {
            self.follow();
        }
        if self.queued == 0 {
            self.blocked.unblock(now_ns);
            self.wakeup_ns = None;
            return None;
        }
        self.unpark_due(now_ns);
        let mut stopped_by: Option<Stop> = None;
        // Lanes share the window: the one with less device time in the device goes first, or by turns where there is no such time.
        let first = match &self.lanes[..] {
            [reads, writes] if self.config.mode == Mode::Scheduled => {
                usize::from(reads.in_flight_ticks > writes.in_flight_ticks)
            }
            _ => self.first_lane,
        };
        for turn in 0..self.lanes.len() {
            let lane = (first + turn) % self.lanes.len();
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
        let urgent_ns = self.urgent.iter().filter_map(|class| self.urgent_at_ns(*class, now_ns)).min();
        self.wakeup_ns = [stopped_by.and_then(|stop| stop.1), limit_ns, urgent_ns, step_ns].into_iter().flatten().min();
        None
    }

    /// The next piece of `lane`; nothing when it has no work that may run; or what stops it.
    fn poll_lane(&mut self, now_ns: u64, lane: usize) -> Result<Option<Dispatch>, Stop> {
        let at = &mut self.lanes[lane];
        if at.overtime_ns > 0 && at.tree.clock(ROOT).mean() != at.overtime_mean {
            // The others are back.
            at.overtime_ns = 0;
            at.tree.set_overtime(Cost::ZERO);
        }
        loop {
            let pick = match self.urgent_pick(now_ns, lane) {
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
            if !self.park_at_limit(now_ns, lane, pick.class) {
                return self.admit(now_ns, lane, pick).map(Some);
            }
        }
    }

    /// It is the turn of classes of other queues. This queue goes nevertheless if there is room for all who are before it as well
    /// (the class is returned), or if they do not come although there is room (nothing is returned: pick again).
    fn wait_for_turn(&mut self, now_ns: u64, lane: usize) -> Result<Option<Pick>, Stop> {
        let Some((first, ahead)) = self.lanes[lane].tree.first_in_line() else { return Ok(None) };
        let long_ticks = self.disk.long_piece_ticks();
        let ahead_ticks = ticks_with_carry(ahead, 0).0;
        let all_ticks = ahead_ticks.saturating_add(long_ticks);
        let is_claimed = self.disk.claimed_until_ns() > now_ns;
        if !is_claimed && self.disk.has_room(now_ns, lane, self.config.group, all_ticks).is_ok() {
            return Ok(Some(first));
        }
        let mean = self.lanes[lane].tree.clock(ROOT).mean();
        let since_ns = match self.lanes[lane].standstill {
            Some((since_ns, seen)) if seen == mean => since_ns,
            _ => now_ns,
        };
        self.lanes[lane].standstill = Some((since_ns, mean));
        match self.disk.has_room(now_ns, lane, self.config.group, long_ticks) {
            Err(NoRoom::Device) => {
                self.unreported.window_blocks += 1;
                let until_turn_ns = ahead.as_fs() / crate::units::FS_PER_NS / 2;
                let wait_ns = until_turn_ns.clamp(FULL_DEVICE_RETRY_NS, FULL_DEVICE_RETRY_MAX_NS);
                return Err((WaitReason::Depth, Some(now_ns.saturating_add(wait_ns))));
            }
            Err(NoRoom::Tokens(retry_ns)) => {
                self.unreported.token_blocks += 1;
                return Err((WaitReason::Tokens, Some(retry_ns)));
            }
            Ok(()) => {}
        }
        // Who waits for room is not absent.
        let since_ns = since_ns.max(self.disk.claimed_until_ns());
        let waited_ns = now_ns.saturating_sub(since_ns);
        if waited_ns < PATIENCE_NS {
            return Err((WaitReason::Fairness, Some(since_ns.saturating_add(PATIENCE_NS))));
        }
        let at = &mut self.lanes[lane];
        at.standstill = None;
        at.overtime_ns = waited_ns.max(at.overtime_ns.saturating_mul(2)).min(self.disk.bound_ns());
        at.overtime_mean = mean;
        at.tree.set_overtime(Cost::from_ns(at.overtime_ns));
        Ok(None)
    }

    /// A class whose reservation is due, or whose oldest request has waited as long as it may.
    fn urgent_pick(&mut self, now_ns: u64, lane: usize) -> Option<Pick> {
        if self.urgent.is_empty() || self.config.mode == Mode::Drain {
            return None;
        }
        let due = |class: &&u32| {
            let runs = self.lanes[lane].tree.can_run(**class);
            runs.then(|| self.due_since_ticks(**class, lane, now_ns)).flatten()
        };
        let candidates = self.urgent.iter().filter_map(|class| due(&class).map(|(tick, aged)| (tick, *class, aged)));
        let (_, class, aged) = candidates.min()?;
        let tree = &self.lanes[lane].tree;
        let turn = if aged { Turn::Aged } else { Turn::Reserved { pays: tree.is_due_by_shares(class) } };
        Some(Pick { class, lag: Cost::ZERO, lag_in_class: Cost::ZERO, turn })
    }

    /// Since when `class` should go first, and whether because of its age.
    fn due_since_ticks(&self, class: u32, lane: usize, now_ns: u64) -> Option<(u64, bool)> {
        let member = &self.members[class as usize];
        let reserved = member
            .tags
            .as_ref()
            .and_then(|tags| tags.reservation_due(&member.qos.reservation, self.disk.reserved_time(now_ns)));
        let aged = self.aged_at_ns(class, lane).filter(|at_ns| *at_ns <= now_ns);
        match (reserved, aged) {
            (Some(tick), _) => Some((tick, false)),
            (None, Some(at_ns)) => Some((at_ns.saturating_mul(TICKS_PER_NS), true)),
            (None, None) => None,
        }
    }

    /// When the oldest request of `class` will have waited as long as it may.
    fn aged_at_ns(&self, class: u32, lane: usize) -> Option<u64> {
        let member = &self.members[class as usize];
        let head = self.lanes[lane].tree.fifo(class).head;
        let most_ns = member.qos.max_wait_ns.filter(|_| head != NONE)?;
        Some(self.slots.get(head).enqueued_ns.saturating_add(most_ns).max(member.aged_again_ns))
    }

    /// When `class` may have to go before its turn, if that is still to come.
    fn urgent_at_ns(&self, class: u32, now_ns: u64) -> Option<u64> {
        let member = &self.members[class as usize];
        if member.stats.queued == 0 {
            return None;
        }
        let time = self.disk.reserved_time(now_ns);
        let reserved = member.tags.as_ref().and_then(|tags| tags.reservation_next_ns(&member.qos.reservation, time));
        let aged = (0..self.lanes.len()).filter_map(|lane| self.aged_at_ns(class, lane)).min();
        [reserved, aged].into_iter().flatten().filter(|at_ns| *at_ns > now_ns).min()
    }

    /// Parks the class, or the group above it, that is at its limit; `false` when none is.
    fn park_at_limit(&mut self, now_ns: u64, lane: usize, class: u32) -> bool {
        if !(self.any_limits || self.any_targets) || self.config.mode == Mode::Drain {
            return false;
        }
        let yields = self.members[class as usize].yields;
        if let Some(until_ns) = self.disk.targets().held_until(yields, now_ns) {
            self.park(now_ns, lane, class, until_ns);
            return true;
        }
        if !self.any_limits {
            return false;
        }
        let amount = self.next_amount(lane, class);
        let mut at = class;
        loop {
            let member = &self.members[at as usize];
            let tags = member.tags.as_ref().filter(|_| member.qos.has_limits());
            if let Some(until_ns) = tags.and_then(|tags| tags.limited_until(&member.qos.limits, amount, now_ns)) {
                self.park(now_ns, lane, at, until_ns);
                return true;
            }
            if at == ROOT {
                return false;
            }
            at = self.lanes[lane].tree.parent(at);
        }
    }

    fn park(&mut self, now_ns: u64, lane: usize, node: u32, until_ns: u64) {
        let member = &mut self.members[node as usize];
        member.parked_since_ns = member.parked_since_ns.or(Some(now_ns));
        self.lanes[lane].tree.park(node);
        self.parked.push(Reverse((until_ns, lane as u8, node)));
    }

    fn next_amount(&self, lane: usize, class: u32) -> Amount {
        let slot = self.slots.get(self.lanes[lane].tree.fifo(class).head);
        let rest_bytes = slot.len_bytes - slot.dispatched_bytes;
        Amount {
            direction: slot.op.direction(),
            requests: u32::from(slot.dispatched_bytes == 0),
            bytes: rest_bytes.min(self.piece_max_bytes(slot.op)),
        }
    }

    fn unpark_due(&mut self, now_ns: u64) {
        while let Some(Reverse((until_ns, lane, node))) = self.parked.peek().copied()
            && until_ns <= now_ns
        {
            self.parked.pop();
            self.unpark(usize::from(lane), node, Some(now_ns));
        }
    }

    /// `now_ns` is not known where the limits themselves have changed; what was waited for the old ones counts as others' turn then.
    fn unpark(&mut self, lane: usize, node: u32, now_ns: Option<u64>) {
        self.lanes[lane].tree.unpark(node);
        let still = self.lanes.iter().any(|lane| lane.tree.is_parked(node));
        let member = &mut self.members[node as usize];
        if still {
            return;
        }
        if let (Some(since_ns), Some(now_ns)) = (member.parked_since_ns.take(), now_ns) {
            member.limited_ns += now_ns.saturating_sub(since_ns);
        }
    }

    /// How long `class` and the groups above it have been at limits so far.
    fn limited_ns(&self, class: u32, now_ns: u64) -> u64 {
        let mut total_ns = 0;
        let mut at = class;
        if !self.any_limits && !self.any_targets {
            return 0;
        }
        loop {
            let member = &self.members[at as usize];
            let running_ns = member.parked_since_ns.map_or(0, |since_ns| now_ns.saturating_sub(since_ns));
            total_ns += member.limited_ns + running_ns;
            if at == ROOT {
                return total_ns;
            }
            at = self.lanes[0].tree.parent(at);
        }
    }

    /// Takes the next piece of the picked class through the last gates, or says what stopped it and when to ask again.
    fn admit(&mut self, now_ns: u64, lane: usize, pick: Pick) -> Result<Dispatch, Stop> {
        let at = self.lanes[lane].tree.fifo(pick.class).head;
        let slot = self.slots.get(at);
        let (op, offset_bytes) = (slot.op, slot.dispatched_bytes);
        let rest_bytes = slot.len_bytes - offset_bytes;
        let len_bytes = rest_bytes.min(self.piece_max_bytes(op));
        let cost =
            if len_bytes == slot.len_bytes { Cost::from_fs(slot.rest_fs) } else { self.disk.cost(op, len_bytes) };
        let Passed { ticks, bucket, token_ticks } = self.pass_gates(now_ns, lane, pick, cost)?;
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
            bucket,
            token_ticks,
            dispatched_ns: now_ns,
        };
        Ok(self.commit(now_ns, lane, pick, piece))
    }

    /// The gates after fairness and limits: depth or window, then tokens.
    fn pass_gates(&mut self, now_ns: u64, lane: usize, pick: Pick, cost: Cost) -> Result<Passed, Stop> {
        match self.config.mode {
            Mode::Drain => Ok(Passed::default()),
            Mode::Depth(depth) if self.in_flight >= depth.max(1) => Err((WaitReason::Depth, None)),
            Mode::Depth(_) => Ok(Passed::default()),
            Mode::Scheduled if cost.is_zero() => Ok(Passed::default()),
            Mode::Scheduled => self.enter_device(now_ns, lane, pick, cost),
        }
    }

    fn enter_device(&mut self, now_ns: u64, lane: usize, pick: Pick, cost: Cost) -> Result<Passed, Stop> {
        let (ticks, carry_fs) = ticks_with_carry(self.disk.cost_in_mix(cost), self.lanes[lane].carry_fs);
        // Being behind by a part of a request is nothing; there the order decides.
        let lag_ticks = ticks_with_carry(pick.lag, 0).0.saturating_sub(ticks);
        let in_class_ticks = ticks_with_carry(pick.lag_in_class, 0).0;
        let is_urgent = pick.turn != Turn::Picked;
        let overdraft_ticks = self.disk.overdraft_ticks(ticks, lag_ticks, in_class_ticks, is_urgent);
        let alone = self.lanes[lane].tree.clock(ROOT).queues() <= 1;
        if !self.disk.try_enter(ticks, overdraft_ticks) {
            self.unreported.window_blocks += 1;
            let retry_ns = self.retry_full_ns().map(|wait_ns| now_ns.saturating_add(wait_ns));
            if !alone {
                let soon_ns = now_ns.saturating_add(FULL_DEVICE_RETRY_NS);
                self.disk.claim(retry_ns.map_or(soon_ns, |retry_ns| retry_ns.min(soon_ns)));
            }
            return Err((WaitReason::Depth, retry_ns));
        }
        // Alone, the order of this queue decides who gets the next token; among several only who is deeper in the bucket.
        let deeper_ticks = if alone && !is_urgent { 0 } else { overdraft_ticks };
        match self.disk.take_tokens(now_ns, lane, self.config.group, ticks, deeper_ticks) {
            Ok((bucket, token_ticks)) => {
                self.lanes[lane].carry_fs = carry_fs;
                self.lanes[lane].in_flight_ticks += ticks;
                self.in_flight_ticks += ticks;
                self.unreported.entered += 1;
                self.disk.note_piece(ticks);
                Ok(Passed { ticks, bucket: bucket as u16, token_ticks })
            }
            Err(retry_ns) => {
                self.disk.leave(ticks);
                self.unreported.token_blocks += 1;
                if !alone {
                    self.disk.claim(retry_ns);
                }
                Err((WaitReason::Tokens, Some(retry_ns)))
            }
        }
    }

    /// It is this queue's turn, and the device is full. In how long to look again: nobody tells it when work of others leaves.
    fn retry_full_ns(&self) -> Option<u64> {
        let others_ticks = self.disk.in_flight_ticks().saturating_sub(self.in_flight_ticks);
        match (self.in_flight, others_ticks) {
            (0, _) => Some(FULL_DEVICE_TURN_NS),
            (_, 0) => None,
            _ => Some(FULL_DEVICE_RETRY_NS),
        }
    }

    /// Takes a piece out of the device's account.
    fn leave_device(&mut self, piece: &Dispatch) {
        self.disk.leave(piece.ticks);
        self.in_flight_ticks -= piece.ticks;
        self.lanes[usize::from(piece.lane)].in_flight_ticks -= piece.ticks;
        self.unreported.left += u64::from(piece.ticks > 0);
    }

    /// Everything is granted: moves the piece from the queue into the device's account.
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
        let (waited_ns, reason) = member.mark.take(&self.blocked, limited_ns, now_ns);
        piece.reason = reason;
        for (total, waited) in member.stats.waited_ns.iter_mut().zip(waited_ns) {
            *total += waited;
        }
        if first && let Some(latencies) = &mut member.latencies {
            latencies.queue.record(queued_ns);
        }
        let stats = &mut member.stats;
        stats.split += u64::from(first && !last);
        stats.dispatched += 1;
        stats.in_flight += 1;
        stats.queued_bytes -= u64::from(piece.len_bytes);
        stats.queued_fs -= u128::from(taken_fs);
        stats.consumed_fs += u128::from(piece.cost.as_fs());
        stats.queued -= u32::from(last);
        stats.aged += u64::from(pick.turn == Turn::Aged);
        stats.reserved += u64::from(matches!(pick.turn, Turn::Reserved { .. }));
        self.in_flight += 1;
        self.charge_qos(now_ns, class, &piece, u32::from(first));

        let weight = weight(piece.len_bytes);
        let Lane { tree, overtime_mean, .. } = &mut self.lanes[lane];
        tree.set_will_rest(class, last && self.slots.is_alone(tree.fifo(class)));
        tree.charge(class, fair_cost(piece.cost, weight), weight, now_ns, pick.turn);
        *overtime_mean = tree.clock(ROOT).mean();
        if last {
            self.queued -= 1;
            self.slots.unlink(tree.fifo_mut(class), at);
            tree.settle(class);
        }
        piece
    }

    /// Moves the tags of the class and of the groups above it.
    fn charge_qos(&mut self, now_ns: u64, class: u32, piece: &Dispatch, requests: u32) {
        if self.any_targets {
            self.disk.targets().charge(self.members[class as usize].yields, piece.ticks, now_ns);
        }
        if self.urgent.is_empty() && !self.any_limits {
            return;
        }
        let amount = Amount { direction: piece.op.direction(), requests, bytes: piece.len_bytes };
        let member = &mut self.members[class as usize];
        if member.qos.max_wait_ns.is_some() {
            member.aged_again_ns = now_ns.saturating_add(AGED_PART * piece.cost.as_fs() / crate::units::FS_PER_NS);
        }
        if let Some(tags) = member.tags.as_ref().filter(|_| member.qos.has_reservation()) {
            let may_slip = !member.qos.has_limits();
            tags.charge_reservations(&member.qos.reservation, amount, self.disk.reserved_time(now_ns), may_slip);
        }
        let mut at = class;
        if !self.any_limits || self.config.mode == Mode::Drain {
            return;
        }
        loop {
            let member = &self.members[at as usize];
            if let Some(tags) = member.tags.as_ref().filter(|_| member.qos.has_limits()) {
                tags.charge_limits(&member.qos.limits, amount, now_ns);
            }
            if at == ROOT {
                return;
            }
            at = self.lanes[usize::from(piece.lane)].tree.parent(at);
        }
    }

    /// Tells the queue that the backend took nothing more: waiting is due to it until the next dispatch.
    pub fn backend_is_busy(&mut self, now_ns: u64) {
        if self.queued > 0 {
            self.blocked.block(WaitReason::Backend, now_ns);
            self.wakeup_ns = None;
        }
    }

    /// A piece has come back from the device.
    pub fn complete(&mut self, now_ns: u64, piece: Dispatch, outcome: Outcome) -> Progress {
        let (class, device_ns) = (piece.class, now_ns.saturating_sub(piece.dispatched_ns));
        self.leave_device(&piece);
        if piece.ticks > 0 {
            self.tell_controller(now_ns, piece.ticks, device_ns);
        }
        let progress = match outcome {
            Outcome::Moved(moved) if piece.op.is_transfer() && moved > 0 && moved < piece.len_bytes => {
                Progress::Continue(self.continue_short(now_ns, piece, moved))
            }
            _ => self.settle(now_ns, piece, outcome),
        };
        // Last, right after the latency of the whole request: with many classes both miss the cache, at least together.
        if let Some(latencies) = &mut self.members[class as usize].latencies {
            latencies.device.record(device_ns);
        }
        progress
    }

    /// The disk's controller learns from what comes back: in portions, because all shards tell it.
    fn tell_controller(&mut self, now_ns: u64, ticks: u64, device_ns: u64) {
        let report = &mut self.unreported;
        report.completions += 1;
        report.completed_ticks += ticks;
        report.latency_ns += device_ns.min(self.disk.latency_clip_ns());
        // Several queues' reports must not look like a jump of the rate when they happen to come together.
        let queues = u64::from(self.lanes[0].tree.clock(ROOT).queues()).max(1);
        if report.completions < (REPORT_COMPLETIONS / queues).max(1)
            && now_ns.saturating_sub(self.reported_ns) < REPORT_NS
        {
            return;
        }
        self.report_now(now_ns);
    }

    fn report_now(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.looked_at_backlog_ns) >= BACKLOG_PERIOD_NS {
            self.looked_at_backlog_ns = now_ns;
            self.unreported.outstanding_cap_ns = self.outstanding_cap_ns();
        }
        self.disk.report(now_ns, &self.unreported);
        self.reported_ns = now_ns;
        self.unreported = Report { outstanding_cap_ns: self.unreported.outstanding_cap_ns, ..Report::default() };
    }

    /// How much may be in the device so that a class that sends a new request for each that ends can still hold its share: of
    /// the classes that always had work since this was looked at last, the least (outstanding / part of the disk), by 0.75.
    fn outstanding_cap_ns(&mut self) -> Option<u64> {
        let lane = &self.lanes[0].tree;
        let mut least: Option<f64> = None;
        for (at, member) in self.members.iter_mut().enumerate() {
            let stats = &member.stats;
            let was_backlogged =
                std::mem::replace(&mut member.backlogged_since, stats.activations) == stats.activations;
            if stats.queued == 0 || stats.dispatched == 0 || !was_backlogged {
                continue;
            }
            let mean_fs = stats.consumed_fs as f64 / stats.dispatched as f64;
            let outstanding_fs = stats.queued_fs as f64 + f64::from(stats.in_flight) * mean_fs;
            let cap_fs = outstanding_fs / lane.part_of_disk(at as u32);
            least = Some(least.map_or(cap_fs, |least| least.min(cap_fs)));
        }
        least.map(|fs| (0.75 * fs / crate::units::FS_PER_NS as f64) as u64)
    }

    /// The rest of a short transfer goes out at once: it is older than anything queued. It is charged like any other.
    fn continue_short(&mut self, now_ns: u64, piece: Dispatch, moved_bytes: u32) -> Dispatch {
        let len_bytes = piece.len_bytes - moved_bytes;
        let cost = self.disk.cost(piece.op, len_bytes);
        let lane = &mut self.lanes[usize::from(piece.lane)];
        let mut ticks = 0;
        if self.config.mode == Mode::Scheduled && !cost.is_zero() {
            (ticks, lane.carry_fs) = ticks_with_carry(self.disk.cost_in_mix(cost), lane.carry_fs);
            self.disk.bucket(usize::from(piece.bucket)).take_anyway(now_ns, self.disk.token_ticks(ticks));
            self.disk.enter(ticks);
            lane.in_flight_ticks += ticks;
            self.in_flight_ticks += ticks;
            self.unreported.entered += 1;
        }
        let token_ticks = self.disk.token_ticks(ticks);
        let member = &mut self.members[piece.class as usize];
        let weight = weight(len_bytes);
        if member.kind == Kind::Class {
            lane.tree.charge(piece.class, fair_cost(cost, weight), weight, now_ns, Turn::Continued);
        }
        member.stats.continued += 1;
        member.stats.consumed_fs += u128::from(cost.as_fs());
        Dispatch {
            offset_bytes: piece.offset_bytes + moved_bytes,
            len_bytes,
            cost,
            ticks,
            token_ticks,
            dispatched_ns: now_ns,
            ..piece
        }
    }

    /// The piece is done with: what it means for its request.
    fn settle(&mut self, now_ns: u64, piece: Dispatch, outcome: Outcome) -> Progress {
        self.in_flight -= 1;
        self.members[piece.class as usize].stats.in_flight -= 1;
        let (good_bytes, error) = match outcome {
            Outcome::Moved(moved) | Outcome::End(moved) => (moved.min(piece.len_bytes), None),
            Outcome::Failed(code) => (0, Some(code)),
        };
        let slot = self.slots.get_mut(piece.slot);
        slot.outstanding -= 1;
        let whole = error.is_none() && (good_bytes == piece.len_bytes || !piece.op.is_transfer());
        let good_until = piece.offset_bytes + good_bytes;
        // A piece that ends early ends the prefix there; `<=` lets the error of an operation without length count.
        if !whole && good_until <= slot.prefix_bytes {
            slot.prefix_bytes = good_until;
            slot.error = error;
        }
        if slot.queued && !whole {
            // What follows cannot lengthen the prefix any more.
            self.unqueue(piece.slot);
        }
        let slot = self.slots.get(piece.slot);
        if slot.outstanding > 0 || slot.queued {
            return Progress::Pending;
        }
        let finished = self.finish(now_ns, piece.slot);
        self.note_target(now_ns, &piece, finished.total_ns);
        Progress::Finished(finished)
    }

    fn note_target(&mut self, now_ns: u64, piece: &Dispatch, total_ns: u64) {
        let member = &self.members[piece.class as usize];
        if let (Some(level), Some(target)) = (member.level, member.qos.latency_target) {
            let experience = Experience { total_ns, device_ns: now_ns.saturating_sub(piece.dispatched_ns) };
            self.disk.note_target(now_ns, level, target, experience);
        }
    }

    fn finish(&mut self, now_ns: u64, at: u32) -> Finished {
        let slot = *self.slots.get(at);
        self.slots.release(at);
        let result = match slot.error {
            Some(code) if slot.prefix_bytes == 0 => Err(code),
            _ => Ok(slot.prefix_bytes),
        };
        let total_ns = now_ns.saturating_sub(slot.enqueued_ns);
        let member = &mut self.members[slot.class as usize];
        if let Some(latencies) = &mut member.latencies {
            latencies.total.record(total_ns);
        }
        let stats = &mut member.stats;
        stats.errors += u64::from(slot.error.is_some());
        let direction = match slot.op.direction() {
            Direction::Read => &mut stats.read,
            Direction::Write => &mut stats.write,
        };
        direction.requests += 1;
        direction.bytes += u64::from(slot.prefix_bytes);
        self.free_if_left(slot.class);
        Finished { user_data: slot.user_data, result, total_ns }
    }

    /// The backend refused the piece before the device saw it: the tokens taken for it are given back, and its request
    /// goes on as if the piece had failed with `error`.
    pub fn refuse(&mut self, now_ns: u64, piece: Dispatch, error: i32) -> Progress {
        self.leave_device(&piece);
        self.disk.bucket(usize::from(piece.bucket)).refund(piece.token_ticks);
        self.settle(now_ns, piece, Outcome::Failed(error))
    }

    /// Cancels what is still queued of a request. What is in the device stays there until it comes back.
    pub fn cancel(&mut self, id: RequestId) -> Cancel {
        let Some(at) = self.slots.find(id) else { return Cancel::TooLate };
        if !self.slots.get(at).queued {
            return Cancel::TooLate;
        }
        match self.stop_queued(at) {
            Some(user_data) => Cancel::Cancelled(user_data),
            None => Cancel::Stopping,
        }
    }

    /// Takes the rest of a queued request out of the queue. Its user data, if it has ended by that.
    fn stop_queued(&mut self, at: u32) -> Option<u64> {
        self.unqueue(at);
        let slot = self.slots.get(at);
        let (class, outstanding, user_data) = (slot.class, slot.outstanding, slot.user_data);
        self.members[class as usize].stats.cancelled += 1;
        if outstanding > 0 {
            return None;
        }
        self.slots.release(at);
        Some(user_data)
    }

    /// Nothing more of a queued request will be dispatched.
    fn unqueue(&mut self, at: u32) {
        let slot = self.slots.get_mut(at);
        let (class, op) = (slot.class, slot.op);
        let undispatched_bytes = slot.len_bytes - slot.dispatched_bytes;
        slot.prefix_bytes = slot.prefix_bytes.min(slot.dispatched_bytes);
        let rest_fs = std::mem::take(&mut slot.rest_fs);
        let tree = &mut self.lanes[self.disk.lane(op.direction())].tree;
        self.slots.unlink(tree.fifo_mut(class), at);
        tree.settle(class);
        self.queued -= 1;
        let stats = &mut self.members[class as usize].stats;
        stats.queued -= 1;
        stats.queued_fs -= u128::from(rest_fs);
        stats.queued_bytes -= u64::from(undispatched_bytes);
    }

    /// When to call [`IoQueue::poll_dispatch`] again if nothing else happens before: at once when the answer is in the
    /// past, never when `None` (then only a completion or a new request changes anything). Poll also after each
    /// enqueue, completion, cancellation, refusal and change of shares: the answer is that of the last poll.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<u64> {
        self.wakeup_ns.filter(|_| self.queued > 0)
    }

    /// How long a request of `class` that came now would wait in this queue before it is dispatched, in nanoseconds: the
    /// device time that is queued before it, over the class's present part of the disk. An estimate; 0 on an unlimited disk.
    ///
    /// # Errors
    /// [`QueueError::Unknown`] when there is no such class.
    pub fn expected_delay_ns(&self, class: ClassId) -> Result<u64, QueueError> {
        Ok(self.expected_delay_of(self.class_node(class)?))
    }

    fn expected_delay_of(&self, node: u32) -> u64 {
        let backlog_fs = self.members[node as usize].stats.queued_fs as f64;
        let part = self.lanes[0].tree.part_of_disk(node).min(self.lanes[self.lanes.len() - 1].tree.part_of_disk(node));
        (backlog_fs / crate::units::FS_PER_NS as f64 / part) as u64
    }

    /// Requests that wait, partly dispatched ones included.
    #[must_use]
    pub fn queued(&self) -> u32 {
        self.queued
    }

    /// Pieces in the device.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Requests in the queue or the device.
    #[must_use]
    pub fn requests(&self) -> u32 {
        self.slots.live()
    }

    /// What is going on, for all classes.
    #[must_use]
    pub fn snapshot(&self, now_ns: u64) -> Snapshot {
        let classes = self.members.iter().enumerate().filter(|(_, member)| member.kind == Kind::Class);
        Snapshot {
            queues: 1,
            classes: classes.map(|(at, _)| self.class_snapshot(at as u32, now_ns)).collect(),
            disk: self.disk.snapshot(),
        }
    }

    fn class_snapshot(&self, node: u32, now_ns: u64) -> ClassSnapshot {
        let member = &self.members[node as usize];
        let heads = self.lanes.iter().map(|lane| lane.tree.fifo(node).head).filter(|head| *head != NONE);
        let oldest_ns = heads.map(|head| self.slots.get(head).enqueued_ns).min();
        let is_parked = self.lanes.iter().any(|lane| lane.tree.is_parked(node));
        let has_work = member.stats.queued > 0;
        ClassSnapshot {
            class: ClassId { node, generation: member.generation },
            qos: member.qos,
            stats: member.stats,
            delay_ns: oldest_ns.map_or(0, |ns| now_ns.saturating_sub(ns)),
            expected_delay_ns: self.expected_delay_of(node),
            part: if has_work { self.lanes[0].tree.part_of_disk(node) } else { 0.0 },
            waits_for: if is_parked { Some(WaitReason::Limit) } else { self.blocked.reason() }.filter(|_| has_work),
        }
    }

    /// What a class has done so far.
    ///
    /// # Errors
    /// [`QueueError::Unknown`] when there is no such class.
    pub fn class_stats(&self, class: ClassId) -> Result<&ClassStats, QueueError> {
        static NONE_YET: ClassStats = ClassStats::ZERO;
        match self.class_node(class) {
            Ok(node) => Ok(&self.members[node as usize].stats),
            Err(_) => self.disk.classes().get(class.into(), |_| &NONE_YET),
        }
    }

    /// Latencies of a class; `None` before its first request.
    ///
    /// # Errors
    /// [`QueueError::Unknown`] when there is no such class.
    pub fn class_latencies(&self, class: ClassId) -> Result<Option<&Latencies>, QueueError> {
        let node = self.class_node(class)?;
        Ok(self.members[node as usize].latencies.as_deref())
    }

    /// Starts the counters and latencies of a class anew, so that a measurement has a beginning.
    ///
    /// # Errors
    /// [`QueueError::Unknown`] when there is no such class.
    pub fn reset_class_stats(&mut self, class: ClassId) -> Result<(), QueueError> {
        let node = self.class_node(class)?;
        let member = &mut self.members[node as usize];
        let ClassStats { queued, in_flight, queued_bytes, queued_fs, .. } = member.stats;
        member.stats = ClassStats { queued, in_flight, queued_bytes, queued_fs, ..ClassStats::default() };
        if let Some(latencies) = &mut member.latencies {
            **latencies = Latencies::default();
        }
        Ok(())
    }

    fn class_node(&self, class: ClassId) -> Result<u32, QueueError> {
        match self.members.get(class.node as usize) {
            Some(m) if m.kind == Kind::Class && m.generation == class.generation => Ok(class.node),
            _ => Err(QueueError::Unknown),
        }
    }

    /// As [`IoQueue::class_node`], and looks again when the class may be new.
    fn class_node_now(&mut self, class: ClassId) -> Result<u32, QueueError> {
        let known = self.class_node(class);
        if known.is_err() && self.epoch != self.disk.classes().epoch() {
            self.follow();
            return self.class_node(class);
        }
        known
    }

    /// A removed class whose last piece is back gives its place and its histograms away.
    fn free_if_left(&mut self, node: u32) {
        let member = &mut self.members[node as usize];
        if member.kind == Kind::Leaving && member.stats.in_flight == 0 {
            member.kind = Kind::Free;
            member.held = None;
            if let Some(mut latencies) = member.latencies.take() {
                *latencies = Latencies::default();
                self.pool.push(latencies);
            }
        }
    }
}

impl Member {
    fn new(kind: Kind, generation: u32) -> Member {
        Member {
            generation,
            kind,
            qos: Qos::default(),
            tags: None,
            stats: ClassStats::default(),
            latencies: None,
            mark: WaitMark::default(),
            limited_ns: 0,
            parked_since_ns: None,
            aged_again_ns: 0,
            level: None,
            yields: 0,
            backlogged_since: 0,
            held: None,
        }
    }
}

/// Of two lanes that were stopped, the one that can go on first.
fn sooner(one: Stop, other: Stop) -> Stop {
    match (one.1, other.1) {
        (Some(one_ns), Some(other_ns)) if one_ns <= other_ns => one,
        (Some(_), None) => one,
        _ => other,
    }
}

/// Weight of a piece in depth mode: 1 + len/16 KiB, as in Scylla 1.0.
fn weight(len_bytes: u32) -> u32 {
    1 + len_bytes / (16 * 1024)
}

/// What a piece costs its class: its device time, or on an unlimited disk something that grows with its length.
fn fair_cost(cost: Cost, weight: u32) -> Cost {
    if cost.is_zero() { Cost::from_fs(NOMINAL_WEIGHT_COST.as_fs() * u64::from(weight)) } else { cost }
}

/// How many of `max_io_requests` in flight the queue with number `queue` of `num_io_queues` may have: an even share,
/// and 1 at the least. Below 4 a queue cannot use its disk's parallelism, and with more queues than requests the sum
/// exceeds `max_io_requests` (Scylla's rule: choose so many queues that each has at least 4).
#[must_use]
pub fn depth_of_queue(max_io_requests: u32, num_io_queues: u32, queue: u32) -> u32 {
    let queues = num_io_queues.max(1);
    let extra = u32::from(queue < max_io_requests % queues);
    (max_io_requests / queues + extra).max(1)
}
