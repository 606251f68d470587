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
//! before. A dispatch passes three gates: it is its class's turn (`tree`), the disk's bucket holds its tokens
//! (`bucket`), and the device has room (depth or window). The head of the line waits for its gate; nobody passes it.
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
//! let mut queue = IoQueue::new(disk, QueueConfig::default());
//! let query = queue.add_class(GroupId::ROOT, 100)?;
//! queue.enqueue(1_000, query, Op::Read, 4096, 7)?;
//! let piece = queue.poll_dispatch(1_000).expect("an unlimited disk takes it at once");
//! assert_eq!((piece.user_data(), piece.offset_bytes(), piece.len_bytes()), (7, 0, 4096));
//! // ... the device does its work ...
//! let progress = queue.complete(90_000, piece, Outcome::Moved(4096));
//! assert!(matches!(progress, Progress::Finished(f) if f.user_data == 7 && f.result == Ok(4096)));
//! # Ok::<(), plimsoll_core::QueueError>(())
//! ```

use std::sync::Arc;

use crate::bucket::ticks_with_carry;
use crate::disk::Disk;
use crate::request::{Direction, Op};
use crate::slots::{NONE, RequestId, Slot, Slots};
use crate::stats::{BlockedTime, ClassStats, Latencies, WaitMark, WaitReason};
use crate::tree::{Fairness, Pick, ROOT, Tree};
use crate::units::Cost;

/// Time constant of the decaying accumulators of depth mode, as in Scylla 1.0: 100 ms.
pub const DECAY_TAU_NS: u64 = 100_000_000;

/// How often to look again when another shard's work fills the device: nobody tells this queue when it leaves.
const FULL_DEVICE_RETRY_NS: u64 = 50_000;

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
}

impl Default for QueueConfig {
    fn default() -> QueueConfig {
        QueueConfig { mode: Mode::Scheduled, max_requests: 65_536, wakeup_credit_ns: None }
    }
}

/// A priority class of one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClassId {
    node: u32,
    generation: u32,
}

/// A group of classes (and groups) of one queue: its members divide its shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupId {
    node: u32,
    generation: u32,
}

impl GroupId {
    /// The group that holds everything.
    pub const ROOT: GroupId = GroupId { node: ROOT, generation: 0 };
}

/// Why a call was refused. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueueError {
    /// No such class or group (any more) in this queue.
    Unknown,
    /// [`QueueConfig::max_requests`] are in the queue already: wait for completions, or shed load.
    Full,
    /// The group still has members.
    NotEmpty,
}

impl core::fmt::Display for QueueError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            QueueError::Unknown => "no such class or group in this I/O queue (was it removed?)",
            QueueError::Full => "the I/O queue is full: wait for completions, or shed load",
            QueueError::NotEmpty => "the group still has classes: remove them first",
        })
    }
}

impl core::error::Error for QueueError {}

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
    stats: ClassStats,
    latencies: Option<Box<Latencies>>,
    mark: WaitMark,
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
    slots: Slots,
    pool: Vec<Box<Latencies>>,
    queued: u32,
    in_flight: u32,
    /// Device time of this queue's pieces in the device.
    in_flight_ticks: u64,
    blocked: BlockedTime,
    retry_ns: Option<u64>,
}

/// The classes' order for one bucket: reads and writes together, or (duplex) each alone.
#[derive(Debug)]
struct Lane {
    tree: Tree,
    carry_fs: u64,
}

impl IoQueue {
    /// A queue without classes for `disk`.
    #[must_use]
    pub fn new(disk: Arc<Disk>, config: QueueConfig) -> IoQueue {
        let fairness = match config.mode {
            Mode::Depth(_) => Fairness::Decaying { tau_ns: DECAY_TAU_NS },
            _ => {
                Fairness::Virtual { credit: Cost::from_ns(config.wakeup_credit_ns.unwrap_or(disk.effective_goal_ns())) }
            }
        };
        let lanes = if disk.config().duplex { 2 } else { 1 };
        let mut queue = IoQueue {
            lanes: (0..lanes).map(|_| Lane { tree: Tree::new(fairness), carry_fs: 0 }).collect(),
            first_lane: 0,
            members: Vec::new(),
            slots: Slots::new(config.max_requests),
            pool: Vec::new(),
            queued: 0,
            in_flight: 0,
            in_flight_ticks: 0,
            blocked: BlockedTime::default(),
            retry_ns: None,
            disk,
            config,
        };
        queue.members.push(Member::new(Kind::Group, 0));
        queue
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

    /// Adds a group with `shares` (at least 1; 0 is taken as 1) to `parent`.
    ///
    /// # Errors
    /// [`QueueError::Unknown`] when there is no such parent.
    pub fn add_group(&mut self, parent: GroupId, shares: u32) -> Result<GroupId, QueueError> {
        let (node, generation) = self.add_member(parent, shares, Kind::Group)?;
        Ok(GroupId { node, generation })
    }

    /// Adds a class with `shares` (at least 1; 0 is taken as 1) to `parent`.
    ///
    /// # Errors
    /// [`QueueError::Unknown`] when there is no such parent.
    pub fn add_class(&mut self, parent: GroupId, shares: u32) -> Result<ClassId, QueueError> {
        let (node, generation) = self.add_member(parent, shares, Kind::Class)?;
        Ok(ClassId { node, generation })
    }

    fn add_member(&mut self, parent: GroupId, shares: u32, kind: Kind) -> Result<(u32, u32), QueueError> {
        let parent = self.group_node(parent)?;
        let free = self.members.iter().position(|m| m.kind == Kind::Free);
        let at = match free {
            Some(at) => at,
            None => {
                self.members.push(Member::new(kind, 0));
                self.members.len() - 1
            }
        };
        let generation = self.members[at].generation;
        self.members[at] = Member::new(kind, generation);
        for lane in &mut self.lanes {
            lane.tree.put(at as u32, parent, shares, kind == Kind::Group);
        }
        Ok((at as u32, generation))
    }

    /// Changes the shares of a class from its next dispatch on.
    ///
    /// # Errors
    /// [`QueueError::Unknown`] when there is no such class.
    pub fn set_class_shares(&mut self, class: ClassId, shares: u32) -> Result<(), QueueError> {
        let node = self.class_node(class)?;
        self.lanes.iter_mut().for_each(|lane| lane.tree.set_shares(node, shares));
        Ok(())
    }

    /// Changes the shares of a group from its next dispatch on.
    ///
    /// # Errors
    /// [`QueueError::Unknown`] when there is no such group.
    pub fn set_group_shares(&mut self, group: GroupId, shares: u32) -> Result<(), QueueError> {
        let node = self.group_node(group)?;
        self.lanes.iter_mut().for_each(|lane| lane.tree.set_shares(node, shares));
        Ok(())
    }

    /// The shares of a class.
    ///
    /// # Errors
    /// [`QueueError::Unknown`] when there is no such class.
    pub fn class_shares(&self, class: ClassId) -> Result<u32, QueueError> {
        let node = self.class_node(class)?;
        Ok(self.lanes[0].tree.shares(node))
    }

    /// Removes a class. What it has queued ends as cancelled and is named to `on_cancelled` (user data); what is in
    /// the device comes back through [`IoQueue::complete`] as always.
    ///
    /// # Errors
    /// [`QueueError::Unknown`] when there is no such class.
    pub fn remove_class(&mut self, class: ClassId, mut on_cancelled: impl FnMut(u64)) -> Result<(), QueueError> {
        let node = self.class_node(class)?;
        for lane in 0..self.lanes.len() {
            loop {
                let at = self.lanes[lane].tree.fifo(node).head;
                if at == NONE {
                    break;
                }
                if let Some(user_data) = self.stop_queued(at) {
                    on_cancelled(user_data);
                }
            }
            self.lanes[lane].tree.take_out(node);
        }
        let member = &mut self.members[node as usize];
        member.generation = member.generation.wrapping_add(1);
        member.kind = Kind::Leaving;
        self.free_if_left(node);
        Ok(())
    }

    /// Removes an empty group.
    ///
    /// # Errors
    /// [`QueueError::Unknown`] when there is no such group (the root cannot be removed), [`QueueError::NotEmpty`] when
    /// it has members.
    pub fn remove_group(&mut self, group: GroupId) -> Result<(), QueueError> {
        let node = self.group_node(group)?;
        if node == ROOT {
            return Err(QueueError::Unknown);
        }
        if self.lanes[0].tree.members(node) > 0 {
            return Err(QueueError::NotEmpty);
        }
        self.lanes.iter_mut().for_each(|lane| lane.tree.take_out(node));
        let member = &mut self.members[node as usize];
        member.generation = member.generation.wrapping_add(1);
        member.kind = Kind::Free;
        Ok(())
    }

    /// Queues a request of `class`: `len_bytes` to move (of flush, discard and allocate: ignored). `user_data` comes
    /// back with every piece and with the result.
    ///
    /// # Errors
    /// [`QueueError::Unknown`] when there is no such class, [`QueueError::Full`] at the bound (counted as refused).
    pub fn enqueue(
        &mut self,
        now_ns: u64,
        class: ClassId,
        op: Op,
        len_bytes: u32,
        user_data: u64,
    ) -> Result<RequestId, QueueError> {
        let node = self.class_node(class)?;
        let len_bytes = if op.is_transfer() { len_bytes } else { 0 };
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
            outstanding: 0,
            error: None,
            enqueued_ns: now_ns,
            user_data,
        };
        let Some(at) = self.slots.insert(slot) else {
            self.members[node as usize].stats.refused += 1;
            return Err(QueueError::Full);
        };
        let lane = &mut self.lanes[self.disk.lane(op.direction())];
        let was_idle = lane.tree.fifo(node).head == NONE;
        self.slots.push_back(lane.tree.fifo_mut(node), at);
        let member = &mut self.members[node as usize];
        if was_idle {
            lane.tree.wake(node);
            member.stats.activations += 1;
            if member.stats.queued == 0 {
                member.mark = WaitMark::start(&self.blocked, now_ns);
            }
        }
        if member.latencies.is_none() {
            member.latencies = Some(self.pool.pop().unwrap_or_default());
        }
        member.stats.queued += 1;
        member.stats.queued_bytes += u64::from(len_bytes);
        self.queued += 1;
        Ok(RequestId { slot: at, generation: self.slots.get(at).generation })
    }

    /// What goes to the device now; `None` when nothing may. Call it until it says `None`.
    pub fn poll_dispatch(&mut self, now_ns: u64) -> Option<Dispatch> {
        if self.queued == 0 {
            self.blocked.unblock(now_ns);
            return None;
        }
        let mut stopped_by = (WaitReason::Depth, None);
        for turn in 0..self.lanes.len() {
            // The lanes take turns: what they share (window, depth) must not go to the first of them alone.
            let lane = (self.first_lane + turn) % self.lanes.len();
            let Some(pick) = self.lanes[lane].tree.pick() else { continue };
            match self.admit(now_ns, lane, pick) {
                Ok(dispatch) => {
                    self.blocked.unblock(now_ns);
                    self.first_lane = lane + 1;
                    return Some(dispatch);
                }
                Err(stop) => stopped_by = sooner(stopped_by, stop),
            }
        }
        self.blocked.block(stopped_by.0, now_ns);
        self.retry_ns = stopped_by.1;
        None
    }

    /// Takes the next piece of the picked class through the gates, or says what stopped it and when to ask again.
    fn admit(&mut self, now_ns: u64, lane: usize, pick: Pick) -> Result<Dispatch, (WaitReason, Option<u64>)> {
        let at = self.lanes[lane].tree.fifo(pick.class).head;
        let slot = self.slots.get(at);
        let (op, offset_bytes) = (slot.op, slot.dispatched_bytes);
        let rest_bytes = slot.len_bytes - offset_bytes;
        let piece_max_bytes = match self.config.mode {
            Mode::Scheduled if op.is_transfer() => self.disk.piece_max_bytes(op.direction()),
            _ => u32::MAX,
        };
        let len_bytes = rest_bytes.min(piece_max_bytes);
        let cost = self.disk.cost(op, len_bytes);
        let ticks = self.pass_gates(now_ns, lane, pick, cost)?;
        self.disk.note_mix(op.direction(), cost);
        Ok(self.commit(
            now_ns,
            lane,
            pick.class,
            at,
            Dispatch {
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
                dispatched_ns: now_ns,
            },
        ))
    }

    /// The gates after fairness: depth or window, then tokens. Says how many ticks were taken.
    fn pass_gates(
        &mut self,
        now_ns: u64,
        lane: usize,
        pick: Pick,
        cost: Cost,
    ) -> Result<u64, (WaitReason, Option<u64>)> {
        match self.config.mode {
            Mode::Drain => Ok(0),
            Mode::Depth(depth) if self.in_flight >= depth.max(1) => Err((WaitReason::Depth, None)),
            Mode::Depth(_) => Ok(0),
            Mode::Scheduled if cost.is_zero() => Ok(0),
            Mode::Scheduled => {
                let (ticks, carry_fs) = ticks_with_carry(self.disk.cost_in_mix(cost), self.lanes[lane].carry_fs);
                let lag_ticks = ticks_with_carry(pick.lag, 0).0;
                if !self.disk.try_enter(ticks, lag_ticks) {
                    let retry_ns = self.retry_full_ns().map(|wait_ns| now_ns.saturating_add(wait_ns));
                    return Err((WaitReason::Depth, retry_ns));
                }
                let depth_ns = self.disk.effective_goal_ns();
                match self.disk.bucket(lane).try_take(now_ns, ticks, depth_ns) {
                    Ok(()) => {
                        self.lanes[lane].carry_fs = carry_fs;
                        self.in_flight_ticks += ticks;
                        Ok(ticks)
                    }
                    Err(retry_ns) => {
                        self.disk.leave(ticks);
                        Err((WaitReason::Tokens, Some(retry_ns)))
                    }
                }
            }
        }
    }

    /// The device is full. In how long to look again: nobody tells this queue when work of other shards leaves.
    fn retry_full_ns(&self) -> Option<u64> {
        let others_ticks = self.disk.in_flight_ticks().saturating_sub(self.in_flight_ticks);
        match (self.in_flight, others_ticks) {
            (0, _) => Some(FULL_DEVICE_RETRY_NS),
            (_, 0) => None,
            _ => Some(FULL_DEVICE_RETRY_NS * 4),
        }
    }

    /// Takes a piece out of the device's account.
    fn leave_device(&mut self, piece: &Dispatch) {
        self.disk.leave(piece.ticks);
        self.in_flight_ticks -= piece.ticks;
    }

    /// Everything is granted: moves the piece from the queue into the device's account.
    fn commit(&mut self, now_ns: u64, lane: usize, class: u32, at: u32, mut piece: Dispatch) -> Dispatch {
        let slot = self.slots.get_mut(at);
        let first = slot.dispatched_bytes == 0;
        slot.dispatched_bytes += piece.len_bytes;
        slot.outstanding += 1;
        let last = slot.dispatched_bytes == slot.len_bytes;
        let queued_ns = now_ns.saturating_sub(slot.enqueued_ns);
        piece.user_data = slot.user_data;

        let tree = &mut self.lanes[lane].tree;
        let member = &mut self.members[class as usize];
        let (waited_ns, reason) = member.mark.take(&self.blocked, now_ns);
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
        stats.consumed_fs += u128::from(piece.cost.as_fs());
        if last {
            stats.queued -= 1;
            self.queued -= 1;
            self.slots.unlink(tree.fifo_mut(class), at);
        }
        self.in_flight += 1;
        let weight = weight(piece.len_bytes);
        tree.charge_picked(class, fair_cost(piece.cost, weight), weight, now_ns);
        piece
    }

    /// Tells the queue that the backend took nothing more: waiting is due to it until the next dispatch.
    pub fn backend_is_busy(&mut self, now_ns: u64) {
        if self.queued > 0 {
            self.blocked.block(WaitReason::Backend, now_ns);
            self.retry_ns = None;
        }
    }

    /// A piece has come back from the device.
    pub fn complete(&mut self, now_ns: u64, piece: Dispatch, outcome: Outcome) -> Progress {
        let (class, device_ns) = (piece.class, now_ns.saturating_sub(piece.dispatched_ns));
        self.leave_device(&piece);
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

    /// The rest of a short transfer goes out at once: it is older than anything queued. It is charged like any other.
    fn continue_short(&mut self, now_ns: u64, piece: Dispatch, moved_bytes: u32) -> Dispatch {
        let len_bytes = piece.len_bytes - moved_bytes;
        let cost = self.disk.cost(piece.op, len_bytes);
        let lane = &mut self.lanes[usize::from(piece.lane)];
        let mut ticks = 0;
        if self.config.mode == Mode::Scheduled && !cost.is_zero() {
            (ticks, lane.carry_fs) = ticks_with_carry(self.disk.cost_in_mix(cost), lane.carry_fs);
            self.disk.bucket(usize::from(piece.lane)).take_anyway(now_ns, ticks);
            self.disk.enter(ticks);
            self.in_flight_ticks += ticks;
        }
        let member = &mut self.members[piece.class as usize];
        let weight = weight(len_bytes);
        if member.kind == Kind::Class {
            lane.tree.charge(piece.class, fair_cost(cost, weight), weight, now_ns);
        }
        member.stats.continued += 1;
        member.stats.consumed_fs += u128::from(cost.as_fs());
        Dispatch {
            offset_bytes: piece.offset_bytes + moved_bytes,
            len_bytes,
            cost,
            ticks,
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
        Progress::Finished(self.finish(now_ns, piece.slot))
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
        self.disk.bucket(usize::from(piece.lane)).refund(piece.ticks);
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
        let tree = &mut self.lanes[self.disk.lane(op.direction())].tree;
        self.slots.unlink(tree.fifo_mut(class), at);
        self.queued -= 1;
        let stats = &mut self.members[class as usize].stats;
        stats.queued -= 1;
        stats.queued_bytes -= u64::from(undispatched_bytes);
    }

    /// When to call [`IoQueue::poll_dispatch`] again if nothing else happens before: at once when the answer is in the
    /// past, never when `None` (then only a completion or a new request changes anything). Poll also after each
    /// enqueue, completion, cancellation, refusal and change of shares: the answer is that of the last poll.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<u64> {
        match (self.queued, self.blocked.reason()) {
            (0, _) => None,
            (_, None) => Some(0),
            (_, Some(_)) => self.retry_ns,
        }
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

    /// What a class has done so far.
    ///
    /// # Errors
    /// [`QueueError::Unknown`] when there is no such class.
    pub fn class_stats(&self, class: ClassId) -> Result<&ClassStats, QueueError> {
        let node = self.class_node(class)?;
        Ok(&self.members[node as usize].stats)
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
        let ClassStats { queued, in_flight, queued_bytes, .. } = member.stats;
        member.stats = ClassStats { queued, in_flight, queued_bytes, ..ClassStats::default() };
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

    fn group_node(&self, group: GroupId) -> Result<u32, QueueError> {
        match self.members.get(group.node as usize) {
            Some(m) if m.kind == Kind::Group && m.generation == group.generation => Ok(group.node),
            _ => Err(QueueError::Unknown),
        }
    }

    /// A removed class whose last piece is back gives its place and its histograms away.
    fn free_if_left(&mut self, node: u32) {
        let member = &mut self.members[node as usize];
        if member.kind == Kind::Leaving && member.stats.in_flight == 0 {
            member.kind = Kind::Free;
            if let Some(mut latencies) = member.latencies.take() {
                *latencies = Latencies::default();
                self.pool.push(latencies);
            }
        }
    }
}

impl Member {
    fn new(kind: Kind, generation: u32) -> Member {
        Member { generation, kind, stats: ClassStats::default(), latencies: None, mark: WaitMark::default() }
    }
}

/// Of two lanes that were stopped, the one that can go on first.
fn sooner(one: (WaitReason, Option<u64>), other: (WaitReason, Option<u64>)) -> (WaitReason, Option<u64>) {
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
