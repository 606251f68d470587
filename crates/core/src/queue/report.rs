//! Reports of a queue to the disk's controller, and its answers to callers: snapshot, counters, expected delay.

use super::{Backlog, Dispatch, IoQueue, Kind, Member, Mode, NOT_PARKED};
use crate::classes::{ClassId, QueueError};
use crate::clock::AWAY_MAX_NS;
use crate::control::{DEMAND_PART, unloaded_work};
use crate::disk::{Report, report_completions};
use crate::qos::Waiting;
use crate::request::Direction;
use crate::slots::NONE;
use crate::snapshot::{ClassSnapshot, Snapshot};
use crate::stats::{ClassStats, Latencies, WaitReason};
use crate::tree::ROOT;

/// Time after which a queue reports at its next completion, however few it has seen.
const REPORT_NS: u64 = 1_000_000;
/// Time between two checks of the backlogs.
const BACKLOG_PERIOD_NS: u64 = 10_000_000;
/// Least fraction of its part of the disk that a class without waiting requests takes if it asks for its share.
const ASKING_PART: f64 = 0.5;
/// Fraction of its part of the bound below which a class's outstanding work is little.
const SMALL_PART: f64 = 0.5;
/// Fraction of its outstanding work at the last check below which a class is ending its work.
const STEADY_PART: f64 = 0.5;
/// Part of the disk above which a class is alone on it, so that no other class takes its place in the device.
const PART_ALONE: f64 = 0.999;

impl IoQueue {
    /// Adds a completion to the report to the disk's controller, and sends the report if it is due. One report covers
    /// several completions, because all shards write to the controller.
    pub(super) fn tell_controller(&mut self, now_ns: u64, piece: &Dispatch, seen_ns: u64, late_ns: u64) {
        // However late this queue polls, the shortest time that it sees is near the truth.
        let clip_ns = self.disk.latency_clip_ns();
        let least_ns = self.unloaded.note(piece.op.direction(), piece.len_bytes, seen_ns).min(clip_ns);

        if late_ns > AWAY_MAX_NS {
            // The poll that follows is as late, although none was due at a given time.
            self.due_ns.get_or_insert(self.polled_ns);
        }
        self.note_away(now_ns, late_ns, least_ns);
        let report = &mut self.unreported;
        report.completions += 1;
        report.completed_ticks += piece.ticks;
        if piece.lane > 0 {
            report.lanes[usize::from(piece.lane)].completed_ticks += piece.ticks;
        }
        report.unloaded_work = report.unloaded_work.wrapping_add(unloaded_work(piece.ticks, least_ns));
        report.latency_ns = report.latency_ns.saturating_add(seen_ns.min(clip_ns));
        report.late_ns = report.late_ns.saturating_add(late_ns.min(clip_ns));

        if self.unreported.outstanding_cap_ns.is_some() && self.presence.pieces() == 0 && self.queued() == 0 {
            // Without work, the classes of this queue no longer bound the window.
            self.unreported.outstanding_cap_ns = None;
            self.report_now(now_ns);
            return;
        }

        // Reports are smaller if there are more queues: reports that coincide must not look like a jump of the rate.
        let queues = u64::from(self.queues_at_dispatch).max(1);
        if self.unreported.completions < report_completions(queues)
            && now_ns.saturating_sub(self.reported_ns) < REPORT_NS
        {
            if self.presence.pieces() == 0 && self.unreported.in_device != 0 && self.disk.has_several_queues() {
                // The next report may be far off, and the pieces in the device are counted over all queues.
                self.disk.count_left(std::mem::take(&mut self.unreported.in_device));
            }
            return;
        }
        self.report_now(now_ns);
    }

    /// Sends the report to the disk's controller.
    pub(super) fn report_now(&mut self, now_ns: u64) {
        let elapsed_ns = now_ns.saturating_sub(self.looked_at_backlog_ns);
        if elapsed_ns >= BACKLOG_PERIOD_NS {
            self.looked_at_backlog_ns = now_ns;
            self.unreported.outstanding_cap_ns = self.outstanding_cap_ns(elapsed_ns);
        }
        if self.was_full {
            (0..self.lanes.len()).for_each(|lane| self.note_full_window(lane));
        }
        self.disk.report(now_ns, self.place, &self.unreported.divided());
        self.reported_ns = now_ns;
        self.unreported = Report { outstanding_cap_ns: self.unreported.outstanding_cap_ns, ..Report::default() };
    }

    /// Returns the most device time that may be in the device for a class with a fixed number of requests outstanding
    /// to hold its share: [`DEMAND_PART`] of the least (outstanding / part of the disk) of the classes that ask for
    /// their share. These have had requests waiting since the last check, or have taken at least half of their part
    /// meanwhile: if all requests of a class are in the device, none waits. A class that is ending its work does not
    /// count. Records the outstanding work of each class, and whether that is little.
    ///
    /// `None` on a duplex disk, where a class has a part of each direction and few requests of one say nothing of the
    /// other's window.
    fn outstanding_cap_ns(&mut self, elapsed_ns: u64) -> Option<u64> {
        if self.lanes.len() > 1 {
            return None;
        }
        let lane = &self.lanes[0].tree;
        let disk_fs = elapsed_ns as f64 * crate::units::FS_PER_NS as f64 * self.disk.present_rate();
        let queues = f64::from(self.queues_at_dispatch.max(1));
        let bound_fs = self.disk.bound_ns() as f64 * crate::units::FS_PER_NS as f64;
        let mut least: Option<f64> = None;

        for (at, member) in self.members.iter_mut().enumerate() {
            let stats = &member.stats;
            let now = Backlog {
                consumed_fs: stats.consumed_fs as f64,
                outstanding_fs: 0.0,
                activations: stats.activations as u16,
                is_small: false,
            };
            let before = std::mem::replace(&mut member.backlog, now);
            let is_backlogged = stats.queued > 0 && now.activations == before.activations;
            if member.kind != Kind::Class || stats.dispatched == 0 || (!is_backlogged && stats.in_flight == 0) {
                continue;
            }

            let part = lane.part_of(at as u32, ROOT);
            let taken_fs = now.consumed_fs - before.consumed_fs;
            let mean_fs = now.consumed_fs / stats.dispatched as f64;
            let outstanding_fs = stats.queued_fs as f64 + f64::from(stats.in_flight) * mean_fs;
            if !is_backlogged && taken_fs < ASKING_PART * part * disk_fs {
                // Its part counts the queues in which it has requests waiting; others may hold as many in the device.
                let takes_little = queues * taken_fs < ASKING_PART * part * disk_fs;
                member.backlog.is_small = takes_little && queues * outstanding_fs < SMALL_PART * part * bound_fs;
                continue;
            }

            member.backlog.outstanding_fs = outstanding_fs as f32;
            let before_fs = f64::from(before.outstanding_fs);
            let is_steady = before_fs > 0.0 && outstanding_fs >= STEADY_PART * before_fs;
            if is_steady && part < PART_ALONE {
                let cap_fs = outstanding_fs / part;
                least = Some(least.map_or(cap_fs, |least| least.min(cap_fs)));
            }
        }
        least.map(|fs| (DEMAND_PART * fs / crate::units::FS_PER_NS as f64) as u64)
    }

    /// Estimates how long a request of `class` enqueued now would wait in this queue before its dispatch, in
    /// nanoseconds: the longer of the time that the disk needs for the requests queued before it and the time that the
    /// limits of the class and its groups need. The disk serves them at its present rate in the class's present part,
    /// or, if that is sooner, as a reservation of the class or of its groups demands.
    ///
    /// # Errors
    /// [`QueueError::Unknown`] if there is no such class, or none that this queue has followed yet.
    pub fn expected_delay_ns(&self, now_ns: u64, class: ClassId) -> Result<u64, QueueError> {
        Ok(self.expected_delay_of(now_ns, self.class_node(class)?, None))
    }

    /// Estimates as [`IoQueue::expected_delay_ns`] does. `direction` is that of the request; `None` counts the limits
    /// of the directions that have queued requests.
    pub(super) fn expected_delay_of(&self, now_ns: u64, node: u32, direction: Option<Direction>) -> u64 {
        let backlog_ns = self.members[node as usize].stats.queued_fs as f64 / crate::units::FS_PER_NS as f64;
        let rate = if self.config.mode == Mode::Scheduled { self.disk.present_rate() } else { 1.0 };
        let disk_ns = (backlog_ns / self.part_of(node, ROOT) / rate) as u64;
        disk_ns.min(self.reserved_delay_ns(node)).max(self.delay_at_limits(now_ns, node, direction))
    }

    /// Returns the shortest time in which a reservation of a class or of a group above it serves the class's queued
    /// work; the end of time if they have none.
    fn reserved_delay_ns(&self, node: u32) -> u64 {
        let mut shortest_ns = u64::MAX;
        let mut at = node;
        while at != ROOT && !self.urgent.is_empty() {
            let (reservation, stats) = (&self.members[at as usize].qos.reservation, &self.members[node as usize].stats);
            let amounts = [(u64::from(stats.queued), reservation.iops), (stats.queued_bytes, reservation.bandwidth)];
            for (amount, per_s) in amounts.into_iter().filter(|(_, per_s)| *per_s > 0) {
                let delay_s = amount as f64 / per_s as f64 / self.part_of(node, at);
                shortest_ns = shortest_ns.min((delay_s * 1e9) as u64);
            }
            at = self.lanes[0].tree.parent(at);
        }
        shortest_ns
    }

    /// Returns the longest delay at the limits of a class and the groups above it.
    fn delay_at_limits(&self, now_ns: u64, node: u32, direction: Option<Direction>) -> u64 {
        if !self.any_limits || self.config.mode == Mode::Drain {
            return 0;
        }

        let waiting = self.waiting(node);
        let mut longest_ns = 0;
        let mut at = node;
        loop {
            let member = &self.members[at as usize];
            if let Some(tags) = member.tags.as_ref().filter(|_| member.qos.has_limits()) {
                // Booked amounts are in the tags already.
                let waiting = [0, 1].map(|of| waiting[of].beyond(member.credit[of]));
                let part = self.part_of(node, at);
                let delay_ns = tags.delay_ns(&member.qos.limits, waiting, direction, part, now_ns);
                longest_ns = longest_ns.max(delay_ns);
            }
            if at == ROOT {
                return longest_ns;
            }
            at = self.lanes[0].tree.parent(at);
        }
    }

    /// Returns the queued work of a class by direction, as limits count it: a partly dispatched request counts only its
    /// bytes.
    fn waiting(&self, node: u32) -> [Waiting; 2] {
        let Member { stats, queued_writes: writes, .. } = &self.members[node as usize];
        let requests = u64::from(stats.queued) - writes.requests;
        let mut waiting = [Waiting { requests, bytes: stats.queued_bytes - writes.bytes }, *writes];
        for head in self.lanes.iter().map(|lane| lane.tree.fifo(node).head).filter(|head| *head != NONE) {
            let slot = self.slots.get(head);
            waiting[slot.op.direction() as usize].requests -= u64::from(slot.dispatched_bytes > 0);
        }
        waiting
    }

    /// Returns the part of the group `above` that class `node` has in this queue now, or would have if it had work.
    fn part_of(&self, node: u32, above: u32) -> f64 {
        self.lanes.iter().map(|lane| lane.tree.part_of(node, above)).fold(1.0, f64::min)
    }

    /// Returns the state of all classes and of the disk.
    #[must_use]
    pub fn snapshot(&self, now_ns: u64) -> Snapshot {
        let classes = self.members.iter().enumerate().filter(|(_, member)| member.kind == Kind::Class);
        Snapshot {
            queues: 1,
            classes: classes.map(|(at, _)| self.class_snapshot(at as u32, now_ns)).collect(),
            disk: self.disk.snapshot(),
        }
    }

    pub(super) fn class_snapshot(&self, node: u32, now_ns: u64) -> ClassSnapshot {
        let member = &self.members[node as usize];
        let heads = self.lanes.iter().map(|lane| lane.tree.fifo(node).head).filter(|head| *head != NONE);
        let oldest_ns = heads.map(|head| self.slots.get(head).enqueued_ns).min();
        let is_parked = member.parked_since_ns != NOT_PARKED;
        let has_work = member.stats.queued > 0;
        ClassSnapshot {
            class: ClassId { node, generation: member.generation },
            qos: *member.qos,
            stats: member.stats,
            delay_ns: oldest_ns.map_or(0, |ns| now_ns.saturating_sub(ns)),
            expected_delay_ns: self.expected_delay_of(now_ns, node, None),
            part: if has_work { self.lanes[0].tree.part_of(node, ROOT) } else { 0.0 },
            waits_for: if is_parked { Some(WaitReason::Limit) } else { self.blocked.reason() }.filter(|_| has_work),
        }
    }

    /// Returns the counters of a class in this queue.
    ///
    /// # Errors
    /// [`QueueError::Unknown`] if there is no such class.
    pub fn class_stats(&self, class: ClassId) -> Result<ClassStats, QueueError> {
        match self.class_node(class) {
            Ok(node) => Ok(self.members[node as usize].stats),
            // The queue has not followed the disk yet.
            Err(_) => self.disk.classes().get(class.into(), |_| ClassStats::default()),
        }
    }

    /// Returns the latencies of a class in one direction; `None` before its first request of that direction.
    ///
    /// # Errors
    /// [`QueueError::Unknown`] if there is no such class, or none that this queue has followed yet.
    pub fn class_latencies(&self, class: ClassId, direction: Direction) -> Result<Option<&Latencies>, QueueError> {
        let node = self.class_node(class)?;
        Ok(self.members[node as usize].latencies[direction as usize].as_deref())
    }

    /// Clears the counters and latencies of a class, so that a measurement has a beginning. Counters of the present
    /// (queued, in flight) stay.
    ///
    /// # Errors
    /// [`QueueError::Unknown`] if there is no such class, or none that this queue has followed yet.
    pub fn reset_class_stats(&mut self, class: ClassId) -> Result<(), QueueError> {
        let node = self.class_node(class)?;
        let member = &mut self.members[node as usize];
        let ClassStats { queued, in_flight, queued_bytes, queued_fs, .. } = member.stats;
        member.stats = ClassStats { queued, in_flight, queued_bytes, queued_fs, ..ClassStats::default() };
        for latencies in member.latencies.iter_mut().flatten() {
            latencies.clear();
        }
        Ok(())
    }
}
