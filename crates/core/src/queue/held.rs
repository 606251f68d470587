//! Writes that are held before the device, and the reads that pass them.
//!
//! # Why
//! A file system that commits its journal holds direct writes for tens of milliseconds, before they reach the device,
//! and gives all of them back at once. Meanwhile they fill the window, and no read is dispatched to an idle device.
//!
//! # How it works
//! The writes of a queue are *held* if the window is full, and none of them has come back for [`HELD_BOUNDS`] bounds
//! and for [`HELD_USUAL`] times the usual time of a write. Held writes do not count against the window, as the work of
//! absent queues does not (`presence`), so that reads go on. Further writes of the queue wait, because they would be
//! held too, until one of its writes is back; then all of them count again. The closed loop is not told of held writes.
//!
//! # Limits
//! Without the closed loop the window is a limit, which nothing exceeds. Only a queue with queued requests looks for
//! held writes. Reads behind a write of the same class wait with it. A device that stands still for reads, too, gets a
//! window of reads more. The directions of a duplex disk have room of their own.
//!
//! # Example
//! A bound of 750 us and four writes that take up the window at 10 ms; reads of 80 us come at 11 and at 14 ms. The
//! first is dispatched at 13 ms, the other at once. The writes are back at 40 ms.

use std::cmp::Reverse;

use super::{Dispatch, IoQueue, Mode};
use crate::request::Op;

/// The time in which no write has come back, from which on writes count as held: in multiples of the bound, which is
/// three times the latency of an unloaded device or more, and of the usual time of a write.
const HELD_BOUNDS: u64 = 4;
const HELD_USUAL: u64 = 4;

/// The writes of a queue in the device.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Writes {
    count: u32,
    ticks: u64,
    /// When a write was last back, or if there was none in the device before, dispatched.
    since_ns: u64,
    /// Moving mean of the time of a write in the device.
    usual_ns: u64,
    /// Whether the writes in the device are held.
    pub(super) are_held: bool,
    /// When held writes were last back: those dispatched before were held.
    held_until_ns: u64,
}

impl Writes {
    /// Counts a piece that takes room of `ticks` in the device, if it is a write.
    #[inline]
    pub(super) fn enter(&mut self, now_ns: u64, op: Op, ticks: u64) {
        if op == Op::Write && ticks > 0 {
            if self.count == 0 {
                self.since_ns = now_ns;
            }
            self.count += 1;
            self.ticks += ticks;
        }
    }
}

impl IoQueue {
    /// Returns when the writes in the device count as held, if the window is full and none is back until then.
    pub(super) fn held_at_ns(&self) -> Option<u64> {
        let Writes { count, since_ns, usual_ns, are_held, .. } = self.writes;
        let least_ns = (HELD_BOUNDS * self.disk.bound_ns()).max(HELD_USUAL * usual_ns);
        let may_be = count > 0 && !are_held && self.lanes.len() == 1 && self.disk.has_closed_loop();
        may_be.then(|| since_ns.saturating_add(least_ns))
    }

    /// Leaves the writes in the device out of the window.
    #[cold]
    pub(super) fn hold_writes(&mut self, now_ns: u64) {
        self.writes.are_held = true;
        self.presence.holds(self.writes.ticks, self.writes.count);
        self.disk.count_held(now_ns);
    }

    /// Takes back a piece that has left the device, if it is a write: held writes count against the window again.
    /// Returns whether it was held.
    #[inline]
    pub(super) fn write_is_back(&mut self, now_ns: u64, piece: &Dispatch) -> bool {
        if piece.op != Op::Write || piece.ticks == 0 {
            return false;
        }
        let writes = &mut self.writes;
        writes.count -= 1;
        writes.ticks -= piece.ticks;
        writes.since_ns = now_ns;
        writes.usual_ns = writes.usual_ns - writes.usual_ns / 16 + now_ns.saturating_sub(piece.dispatched_ns) / 16;
        if writes.are_held {
            self.release_writes(now_ns);
        }
        piece.dispatched_ns < self.writes.held_until_ns
    }

    #[cold]
    fn release_writes(&mut self, now_ns: u64) {
        (self.writes.are_held, self.writes.held_until_ns) = (false, now_ns);
        self.presence.holds(0, 0);
        self.disk.count_held(now_ns);
    }

    /// Parks the class if its next request is a write, which would be held too. Returns whether it has.
    #[cold]
    pub(super) fn park_held(&mut self, now_ns: u64, lane: usize, class: u32) -> bool {
        let head = self.lanes[lane].tree.fifo(class).head;
        let is_write = self.config.mode == Mode::Scheduled && self.slots.get(head).op == Op::Write;
        if is_write {
            // Its wait is for room, not at a limit, so it is not counted as parked.
            let until_ns = now_ns.saturating_add(self.disk.bound_ns());
            self.lanes[lane].tree.park(class);
            self.parked.push(Reverse((until_ns, lane as u8, class)));
        }
        is_write
    }
}

#[cfg(test)]
#[cfg(not(plimsoll_loom))]
mod tests {
    use std::sync::Arc;

    use crate::cost::{CostForm, CostModel, FourFigures};
    use crate::{ClassId, Disk, DiskConfig, Dispatch, GroupId, IoQueue, Op, Outcome, QueueConfig, Rate, WaitReason};

    const MS: u64 = 1_000_000;
    const LONG_BYTES: u32 = 32 << 10;

    fn disk(config: DiskConfig) -> Arc<Disk> {
        let figures = FourFigures {
            read_iops: Rate::per_second(100_000),
            write_iops: Rate::per_second(100_000),
            read_bandwidth: Rate::per_second(1_000_000_000),
            write_bandwidth: Rate::per_second(1_000_000_000),
        };
        let model = CostModel::from_figures(&figures, CostForm::Knee, 4096, 4096);
        Arc::new(Disk::new(DiskConfig { model, ..config }))
    }

    /// Fills the window at 1 s with pieces of `op`, and queues more. Returns the pieces, and the class of queries.
    fn fill(queue: &mut IoQueue, op: Op) -> (Vec<Dispatch>, ClassId) {
        let [background, query] = [100, 1000].map(|shares| queue.disk().add_class(GroupId::ROOT, shares).unwrap());
        for at in 0..100 {
            queue.enqueue(1000 * MS, background, op, LONG_BYTES, at).unwrap();
        }
        let pieces: Vec<_> = std::iter::from_fn(|| queue.poll_dispatch(1000 * MS)).collect();
        assert!(!pieces.is_empty());
        (pieces, query)
    }

    fn read(queue: &mut IoQueue, now_ns: u64, class: ClassId) -> Option<Dispatch> {
        queue.enqueue(now_ns, class, Op::Read, 4096, 0).unwrap();
        queue.poll_dispatch(now_ns)
    }

    #[test]
    fn reads_pass_held_writes_until_one_is_back() {
        let mut queue = IoQueue::new(disk(DiskConfig::default()), QueueConfig::default());
        let (mut writes, query) = fill(&mut queue, Op::Write);
        // The class is owed a few reads.
        let owed: Vec<_> = std::iter::from_fn(|| read(&mut queue, 1001 * MS, query)).collect();
        let held_ns = queue.next_wakeup().unwrap();
        assert_eq!(held_ns, 1000 * MS + 4 * queue.disk().bound_ns());

        let first = queue.poll_dispatch(held_ns).expect("reads go on");
        let reads: Vec<_> = std::iter::from_fn(|| read(&mut queue, held_ns, query)).collect();
        assert!(reads.len() > 2 && reads.iter().all(|piece| piece.op() == Op::Read), "{reads:?}");
        let reads_ns = queue.disk().in_flight_ns();
        assert!(reads_ns <= queue.disk().bound_ns(), "a window of reads, not more: {reads_ns}");
        let waits_for = queue.snapshot(held_ns).classes.iter().map(|class| class.waits_for).collect::<Vec<_>>();
        assert!(waits_for.contains(&Some(WaitReason::Depth)) && !waits_for.contains(&Some(WaitReason::Limit)));

        // The first write that is back ends it: the others fill the window again.
        let back = writes.remove(0);
        let _ = queue.complete(held_ns + MS, back, Outcome::Moved(LONG_BYTES));
        assert!(!writes.is_empty() && queue.disk().in_flight_ns() > reads_ns);
        for piece in writes.into_iter().chain(owed).chain(reads).chain([first]) {
            let _ = queue.complete(held_ns + MS, piece, Outcome::Moved(0));
        }
        assert_eq!(queue.disk().in_flight_ns(), 0);
        let again: Vec<_> = std::iter::from_fn(|| queue.poll_dispatch(held_ns + 2 * MS)).collect();
        assert!(again.iter().any(|piece| piece.op() == Op::Write), "writes go on");
    }

    #[test]
    fn nothing_is_held_among_reads_or_without_the_closed_loop() {
        let fixed = DiskConfig { window_ns: Some(750_000), ..DiskConfig::default() };
        for (config, op) in [(DiskConfig::default(), Op::Read), (fixed, Op::Write)] {
            let mut queue = IoQueue::new(disk(config), QueueConfig::default());
            let (_pieces, query) = fill(&mut queue, op);
            while read(&mut queue, 1001 * MS, query).is_some() {}
            assert!(read(&mut queue, 1500 * MS, query).is_none(), "{op:?}");
        }
    }

    #[test]
    fn held_writes_leave_room_for_other_queues() {
        let disk = disk(DiskConfig::default());
        let mut writer = IoQueue::new(Arc::clone(&disk), QueueConfig::default());
        let mut reader = IoQueue::new(Arc::clone(&disk), QueueConfig::default());
        let (_writes, query) = fill(&mut writer, Op::Write);
        let held_ns = 1000 * MS + 4 * disk.bound_ns();
        while read(&mut reader, held_ns - 1, query).is_some() {}
        assert!(writer.poll_dispatch(held_ns).is_none());
        assert!(reader.poll_dispatch(held_ns).is_some());
    }
}
