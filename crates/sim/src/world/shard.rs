//! A shard: when its CPU is free, and its pending work.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use plimsoll_core::Failure;

use super::agenda::NEVER;
use super::spec::ShardSpec;
use crate::device::DeviceCompletion;

/// An item that falls due on a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    /// A fiber of a closed loop sends its next request.
    Issue { run: u32, epoch: u32 },
    /// The next moment of an open loop or a replay.
    Arrive { run: u32, epoch: u32 },
    /// A fiber of CPU work asks for its next slice.
    Cpu { run: u32, epoch: u32 },
    /// A request has arrived as a message.
    Request { request: u32 },
    /// A request's result has arrived as a message.
    Reply { request: u32, end: End },
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    /// Bytes moved, or the reason why not all were.
    Done(Result<u32, Failure>),
    Refused,
    /// Its class was removed while it was queued.
    Cancelled,
}

#[derive(Debug)]
pub(crate) struct Shard {
    spec: ShardSpec,
    cpu_free_ns: u64,
    turn_cpu_ns: u64,
    pub(crate) used_cpu_ns: u64,
    /// The I/O queues that it coordinates.
    pub(crate) queues: Vec<u32>,
    /// Device completions that are not yet handled.
    pub(crate) inbox: Vec<DeviceCompletion>,
    due: BinaryHeap<Reverse<(u64, u64, Due)>>,
    due_count: u64,
    /// Jobs (with their epochs) whose slices wait for the CPU.
    pub(crate) slices: VecDeque<(u32, u32)>,
}

impl Shard {
    pub(crate) fn new(spec: ShardSpec) -> Shard {
        Shard {
            cpu_free_ns: spec.start_offset_ns,
            turn_cpu_ns: 0,
            used_cpu_ns: 0,
            queues: Vec::new(),
            inbox: Vec::new(),
            due: BinaryHeap::new(),
            due_count: 0,
            slices: VecDeque::new(),
            spec,
        }
    }

    pub(crate) fn add_due(&mut self, at_ns: u64, what: Due) {
        self.due.push(Reverse((at_ns, self.due_count, what)));
        self.due_count += 1;
    }

    pub(crate) fn take_due(&mut self, now_ns: u64) -> Option<Due> {
        let Reverse((at_ns, ..)) = self.due.peek()?;
        if *at_ns > now_ns {
            return None;
        }
        self.due.pop().map(|Reverse((_, _, what))| what)
    }

    /// Returns when an item falls due next; 0 if a slice or completion already waits.
    pub(crate) fn wants_ns(&self) -> u64 {
        if !self.slices.is_empty() || !self.inbox.is_empty() {
            return 0;
        }
        self.due.peek().map_or(NEVER, |Reverse((at_ns, ..))| *at_ns)
    }

    /// Adds CPU time to the present turn.
    pub(crate) fn use_cpu(&mut self, cpu_ns: u64) {
        self.turn_cpu_ns += cpu_ns;
    }

    pub(crate) fn use_cpu_for_request(&mut self) {
        self.turn_cpu_ns += self.spec.cpu_per_request_ns;
    }

    pub(crate) fn turn_cpu_ns(&self) -> u64 {
        self.turn_cpu_ns
    }

    /// Ends a turn that began at `now_ns`.
    pub(crate) fn end_turn(&mut self, now_ns: u64) {
        self.used_cpu_ns += self.turn_cpu_ns;
        self.cpu_free_ns = now_ns + self.turn_cpu_ns;
        self.turn_cpu_ns = 0;
    }

    /// Returns whether other programs take the shard's CPU.
    pub(super) fn has_hog(&self) -> bool {
        self.spec.hog.is_some()
    }

    /// Returns the first moment from `at_ns` on at which the shard can act: at a poll, and outside the hog's slices.
    #[inline]
    pub(crate) fn free_from(&self, at_ns: u64) -> u64 {
        let at_ns = at_ns.max(self.cpu_free_ns);
        if at_ns == NEVER || (self.spec.poll_interval_ns.is_none() && self.spec.hog.is_none()) {
            return at_ns;
        }
        self.poll_outside_hog(at_ns)
    }

    fn poll_outside_hog(&self, at_ns: u64) -> u64 {
        let offset_ns = self.spec.start_offset_ns;
        let mut at_ns = at_ns.max(offset_ns);
        if let Some(interval_ns) = self.spec.poll_interval_ns {
            at_ns = offset_ns.saturating_add((at_ns - offset_ns).div_ceil(interval_ns).saturating_mul(interval_ns));
        }
        if let Some(hog) = self.spec.hog {
            let phase_ns = (at_ns - offset_ns) % hog.busy_ns.saturating_add(hog.pause_ns);
            // The moment at which a slice begins still belongs to the pause before it.
            if phase_ns > 0 && phase_ns < hog.busy_ns {
                at_ns = at_ns.saturating_add(hog.busy_ns - phase_ns);
            }
        }
        at_ns
    }
}

#[cfg(test)]
mod tests {
    use super::super::spec::Hog;
    use super::*;

    #[test]
    fn when_a_shard_is_free() {
        let hog = Some(Hog { busy_ns: 550, pause_ns: 100 });
        let no_pause = Some(Hog { busy_ns: 550, pause_ns: 0 });
        for (poll, hog, offset, at, expected) in [
            (None, None, 7, 5, 7),
            (Some(250), None, 0, 0, 0),
            (Some(250), None, 0, 1, 250),
            (Some(250), None, 10, 260, 260),
            (Some(250), None, 10, 261, 510),
            (None, hog, 0, 1, 550),
            (None, hog, 0, 600, 600),
            (None, hog, 0, 650, 650),
            (None, hog, 0, 651, 1200),
            (None, no_pause, 0, 551, 1100),
            (None, no_pause, 0, 1100, 1100),
            (Some(250), hog, 0, 1, 550),
        ] {
            let spec = ShardSpec { poll_interval_ns: poll, hog, start_offset_ns: offset, ..ShardSpec::default() };
            assert_eq!(Shard::new(spec).free_from(at), expected, "{spec:?} at {at}");
        }
        assert_eq!(Shard::new(ShardSpec { hog, ..ShardSpec::default() }).free_from(NEVER), NEVER);
    }

    #[test]
    fn what_falls_due_at_once_comes_in_the_order_it_was_added() {
        let mut shard = Shard::new(ShardSpec::default());
        for (at_ns, run) in [(20, 0), (10, 1), (10, 2)] {
            shard.add_due(at_ns, Due::Issue { run, epoch: 0 });
        }
        assert_eq!((shard.wants_ns(), shard.take_due(9)), (10, None));
        let order: Vec<Due> = std::iter::from_fn(|| shard.take_due(20)).collect();
        assert_eq!(order, [1, 2, 0].map(|run| Due::Issue { run, epoch: 0 }));
    }
}
