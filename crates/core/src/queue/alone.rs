//! The short path of a request that finds nothing queued: from the caller to the device in one step.
//!
//! # Why
//! On an idle disk there is nothing to order. Still [`IoQueue::enqueue`] and [`IoQueue::poll_dispatch`] queue the
//! request, count its class among those with work, pick it, and undo all of that: half of their instructions.
//!
//! # How it works
//! The state afterwards is the same as after those two calls: the same counters, clocks, room and tokens. Any other
//! request takes the usual path.
//!
//! # Limits
//! Not for requests that are split; not while something is queued, nor if other queues share the disk's clocks, any
//! class has a limit, reservation, longest wait or latency target, or there is no room or no tokens.
//!
//! # Example
//! ```
//! use std::sync::Arc;
//! use plimsoll_core::{Disk, DiskConfig, GroupId, IoQueue, Op, QueueConfig};
//!
//! let disk = Arc::new(Disk::new(DiskConfig::default()));
//! let query = disk.add_class(GroupId::ROOT, 100)?;
//! let mut queue = IoQueue::new(disk, QueueConfig::default());
//! queue.follow_classes(|_| {});
//! let piece = queue.dispatch_alone(1_000, query, Op::Read, 4096, 7).expect("nothing is before it");
//! assert_eq!((piece.user_data(), piece.len_bytes(), queue.in_flight()), (7, 4096, 1));
//!
//! queue.enqueue(1_000, query, Op::Read, 4096, 8)?;
//! assert!(queue.dispatch_alone(1_000, query, Op::Read, 4096, 9).is_none());
//! # let _ = (queue.poll_dispatch(1_000), piece);
//! # Ok::<(), plimsoll_core::QueueError>(())
//! ```

use super::{Dispatch, IoQueue, Mode, Passed, fair_cost, weight};
use crate::bucket::ticks_with_carry;
use crate::classes::ClassId;
use crate::request::Op;
use crate::slots::RequestSlot;
use crate::tree::ROOT;
use crate::units::Cost;

impl IoQueue {
    /// Dispatches, whole, a request that would be the only one queued. Returns `None` if that cannot be decided in one
    /// step, or the request would be refused: then nothing has changed; call [`IoQueue::enqueue`].
    ///
    /// This only saves time: `enqueue`, followed by `poll_dispatch` until that returns `None`, does the same.
    pub fn dispatch_alone(
        &mut self,
        now_ns: u64,
        class: ClassId,
        op: Op,
        len_bytes: u32,
        user_data: u64,
    ) -> Option<Dispatch> {
        let node = self.class_node(class).ok()?;
        let len_bytes = if op.is_transfer() { len_bytes } else { 0 };
        if !self.is_plain() || len_bytes > self.piece_max_bytes(op) || self.slots.is_full() {
            return None;
        }

        let cost = self.disk.cost(op, len_bytes);
        let lane = self.disk.lane(op.direction());
        let Passed { ticks, buckets, tokens } = self.enter_at_once(now_ns, lane, (op, len_bytes), cost)?;
        self.disk.note_mix(op.direction(), cost);

        let request = RequestSlot::new(op, node, len_bytes, now_ns, user_data);
        let slot = self.slots.insert(RequestSlot { dispatched_bytes: len_bytes, outstanding: 1, ..request })?;

        let member = &mut self.members[node as usize];
        member.latencies[op.direction() as usize].get_or_insert_default().queue.record(0);
        member.stats.activations += 1;
        member.stats.dispatched += 1;
        member.stats.in_flight += 1;
        member.stats.consumed_fs += u128::from(cost.as_fs());
        self.in_flight += 1;
        self.writes.enter(now_ns, op, ticks);

        let at = &mut self.lanes[lane];
        at.end_overtime();
        at.tree.charge_alone(node, fair_cost(cost, weight(len_bytes)));
        at.overtime_mean = at.tree.clock(ROOT).mean();

        self.first_lane = lane + 1;
        self.begin_wait(now_ns);
        self.wakeup_ns = None;
        self.stop_waiting();
        self.leave_room_to_others();
        Some(Dispatch {
            slot,
            class: node,
            op,
            lane: lane as u8,
            reason: None,
            offset_bytes: 0,
            len_bytes,
            user_data,
            cost,
            ticks,
            buckets,
            tokens,
            dispatched_ns: now_ns,
        })
    }

    /// Returns whether a request that comes now needs only room and tokens.
    fn is_plain(&self) -> bool {
        let decides_alone = !self.shares_clocks() || !self.disk.has_several_queues();
        self.queued == 0
            && decides_alone
            && !matches!(self.config.mode, Mode::Depth(_))
            && !(self.any_limits || self.any_targets)
            && self.urgent.is_empty()
            && self.blocked.reason().is_none()
            && !self.writes.are_held
            && self.epoch == self.disk.classes().epoch()
    }

    /// Takes room and tokens for a piece; if there are none, takes nothing.
    fn enter_at_once(&mut self, now_ns: u64, lane: usize, piece: (Op, u32), cost: Cost) -> Option<Passed> {
        if self.config.mode == Mode::Drain || cost.is_zero() {
            return Some(Passed::default());
        }
        let (ticks, carry_fs) = ticks_with_carry(self.disk.cost_in_mix(cost), self.lanes[lane].carry_fs);
        if !self.disk.try_enter(lane, ticks, true, || 0) {
            return None;
        }
        let tokens = self.disk.tokens_of(lane, piece.0, piece.1, ticks);
        let Ok(buckets) = self.disk.take_tokens(now_ns, lane, self.config.group, tokens, 0, || 0) else {
            self.disk.leave(lane, ticks);
            return None;
        };
        self.queues_at_dispatch = 1;
        Some(self.has_entered(lane, ticks, carry_fs, (buckets, tokens)))
    }
}
