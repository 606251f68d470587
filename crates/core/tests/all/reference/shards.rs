//! A world of several I/O queues of one disk.
//!
//! # Why
//! What holds across shards shows only with several queues, and only if nobody polls them out of kindness.
//!
//! # How it works
//! A queue is polled when something of its own happens and at no other time: a request came, a piece came back, its own
//! `next_wakeup` is due. The device is a pipe that takes (device time of the model) * `slowness` a piece, one after the
//! other, and `latency_ns` more until the piece is back. A shard can sleep: it neither polls nor sees what came back.
//!
//! # Limits
//! Event order, one thread: races are loom's business.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_core::{
    ClassId, Disk, DiskConfig, Dispatch, GroupId, IoQueue, Op, Outcome, Progress, QueueConfig, QueueError,
};

use crate::common::Random;

/// One class's requests on one shard.
pub(crate) struct Load {
    pub(crate) shard: usize,
    pub(crate) class: ClassId,
    pub(crate) op: Op,
    pub(crate) lengths_bytes: Vec<u32>,
    /// A request that ends is followed by another.
    pub(crate) closed: bool,
    /// One request each so many nanoseconds, and when the next one comes.
    pub(crate) period_ns: Option<u64>,
    pub(crate) next_ns: u64,
    pub(crate) dispatched: u64,
    pub(crate) dispatched_bytes: u64,
    pub(crate) dispatched_fs: u128,
    pub(crate) finished: u64,
    pub(crate) offered: u64,
    pub(crate) refused: u64,
    /// Total latencies of what has finished.
    pub(crate) latencies_ns: Vec<u64>,
}

pub(crate) struct Shard {
    pub(crate) queue: IoQueue,
    pub(crate) asleep_until_ns: u64,
    must_poll: bool,
    back: Vec<Dispatch>,
}

/// One first piece on its way out, or a later one (`is_first` false).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) at_ns: u64,
    pub(crate) load: usize,
    pub(crate) is_first: bool,
    pub(crate) bytes: u32,
    pub(crate) fs: u64,
}

pub(crate) struct Shards {
    pub(crate) disk: Arc<Disk>,
    pub(crate) shards: Vec<Shard>,
    pub(crate) loads: Vec<Load>,
    pub(crate) log: Vec<Sent>,
    pub(crate) now_ns: u64,
    pub(crate) slowness: f64,
    pub(crate) latency_ns: u64,
    pub(crate) in_flight_max_ns: u64,
    random: Random,
    free_fs: u128,
    in_device: BTreeMap<(u64, u64), (usize, Dispatch)>,
    sent: u64,
}

impl Shards {
    pub(crate) fn new(disk: DiskConfig, shards: usize) -> Shards {
        Shards::with(disk, shards, QueueConfig::default(), 0)
    }

    pub(crate) fn with(disk: DiskConfig, shards: usize, config: QueueConfig, now_ns: u64) -> Shards {
        let disk = Arc::new(Disk::new(disk));
        let shard = |_| Shard {
            queue: IoQueue::new(Arc::clone(&disk), config),
            asleep_until_ns: 0,
            must_poll: true,
            back: Vec::new(),
        };
        Shards {
            shards: (0..shards).map(shard).collect(),
            loads: Vec::new(),
            log: Vec::new(),
            now_ns,
            slowness: 1.0,
            latency_ns: 50_000,
            in_flight_max_ns: 0,
            random: Random(7),
            free_fs: 0,
            in_device: BTreeMap::new(),
            sent: 0,
            disk,
        }
    }

    pub(crate) fn class(&self, shares: u32) -> ClassId {
        self.disk.add_class(GroupId::ROOT, shares).unwrap()
    }

    fn add(&mut self, shard: usize, class: ClassId, op: Op, lengths_bytes: &[u32]) -> usize {
        self.loads.push(Load {
            shard,
            class,
            op,
            lengths_bytes: lengths_bytes.to_vec(),
            closed: true,
            period_ns: None,
            next_ns: u64::MAX,
            dispatched: 0,
            dispatched_bytes: 0,
            dispatched_fs: 0,
            finished: 0,
            offered: 0,
            refused: 0,
            latencies_ns: Vec::new(),
        });
        self.loads.len() - 1
    }

    /// A load that always has `outstanding` requests.
    pub(crate) fn backlog(
        &mut self,
        shard: usize,
        class: ClassId,
        op: Op,
        lengths: &[u32],
        outstanding: usize,
    ) -> usize {
        let load = self.add(shard, class, op, lengths);
        (0..outstanding).for_each(|_| self.send(load));
        load
    }

    /// A load that sends a request each `period_ns`, whatever has become of those before.
    pub(crate) fn steady(&mut self, shard: usize, class: ClassId, op: Op, lengths: &[u32], period_ns: u64) -> usize {
        let load = self.add(shard, class, op, lengths);
        let of = &mut self.loads[load];
        (of.closed, of.period_ns, of.next_ns) = (false, Some(period_ns), self.now_ns + period_ns);
        load
    }

    pub(crate) fn send(&mut self, load: usize) {
        let of = &mut self.loads[load];
        let len_bytes = self.random.one_of(&of.lengths_bytes);
        of.offered += 1;
        let shard = &mut self.shards[of.shard];
        match shard.queue.enqueue(self.now_ns, of.class, of.op, len_bytes, load as u64) {
            Ok(_) => shard.must_poll = true,
            Err(QueueError::Overloaded { .. }) => of.refused += 1,
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) fn sleep(&mut self, shard: usize, for_ns: u64) {
        self.shards[shard].asleep_until_ns = self.now_ns + for_ns;
        self.shards[shard].must_poll = true;
    }

    /// The device stands still for `for_ns`, with all that it holds.
    pub(crate) fn stall(&mut self, for_ns: u64) {
        let held = std::mem::take(&mut self.in_device);
        self.in_device = held.into_iter().map(|((at_ns, sent), piece)| ((at_ns + for_ns, sent), piece)).collect();
        self.free_fs = self.free_fs.max(u128::from(self.now_ns) * 1_000_000) + u128::from(for_ns) * 1_000_000;
    }

    /// The work that the device has not completed, whatever the disk's account says.
    pub(crate) fn held_ns(&self) -> u64 {
        self.in_device.values().map(|(_, piece)| piece.cost().as_fs() / 1_000_000).sum()
    }

    /// Something that concerns all queues has changed.
    pub(crate) fn poll_all(&mut self) {
        self.shards.iter_mut().for_each(|shard| shard.must_poll = true);
    }

    fn poll(&mut self, at: usize) {
        self.shards[at].must_poll = false;
        while let Some(piece) = self.shards[at].queue.poll_dispatch(self.now_ns) {
            let load = piece.user_data() as usize;
            let fs = self.disk.cost(piece.op(), piece.len_bytes()).as_fs();
            let of = &mut self.loads[load];
            of.dispatched += 1;
            of.dispatched_bytes += u64::from(piece.len_bytes());
            of.dispatched_fs += u128::from(fs);
            let (is_first, bytes) = (piece.offset_bytes() == 0, piece.len_bytes());
            self.log.push(Sent { at_ns: self.now_ns, load, is_first, bytes, fs });
            self.in_flight_max_ns = self.in_flight_max_ns.max(self.disk.in_flight_ns());
            self.free_fs = self.free_fs.max(u128::from(self.now_ns) * 1_000_000) + (fs as f64 * self.slowness) as u128;
            let done_ns = self.free_fs.div_ceil(1_000_000) as u64 + self.latency_ns;
            self.in_device.insert((done_ns, self.sent), (at, piece));
            self.sent += 1;
        }
    }

    fn take_back(&mut self, at: usize) {
        for piece in std::mem::take(&mut self.shards[at].back) {
            let (load, moved) = (piece.user_data() as usize, piece.len_bytes());
            let progress = self.shards[at].queue.complete(self.now_ns, piece, Outcome::Moved(moved));
            if let Progress::Finished(finished) = progress {
                self.loads[load].finished += 1;
                self.loads[load].latencies_ns.push(finished.total_ns);
                if self.loads[load].closed {
                    self.send(load);
                }
            }
        }
    }

    fn next_event_ns(&self) -> u64 {
        let done = self.in_device.first_key_value().map(|((at_ns, _), _)| *at_ns);
        let arrival = self.loads.iter().map(|load| load.next_ns).min();
        let of_shard = |shard: &Shard| {
            let own_ns = match shard.queue.next_wakeup() {
                _ if shard.must_poll || !shard.back.is_empty() => 0,
                Some(at_ns) => at_ns.max(self.now_ns + 1),
                None => return None,
            };
            Some(own_ns.max(shard.asleep_until_ns))
        };
        let wakeup = self.shards.iter().filter_map(of_shard).min();
        [done, arrival, wakeup].into_iter().flatten().min().unwrap_or(u64::MAX).max(self.now_ns)
    }

    /// Goes to the next event, at `end_ns` the latest. False when nothing is left to happen before.
    pub(crate) fn step(&mut self, end_ns: u64) -> bool {
        let next_ns = self.next_event_ns();
        if next_ns >= end_ns {
            self.now_ns = end_ns;
            return false;
        }
        self.now_ns = next_ns;
        while let Some(entry) = self.in_device.first_entry()
            && entry.key().0 <= self.now_ns
        {
            let (at, piece) = entry.remove();
            self.shards[at].back.push(piece);
        }
        for load in 0..self.loads.len() {
            while self.loads[load].next_ns <= self.now_ns {
                self.loads[load].next_ns += self.loads[load].period_ns.unwrap();
                self.send(load);
            }
        }
        // Not always the same first.
        let first = self.random.below(self.shards.len() as u64) as usize;
        for turn in 0..self.shards.len() {
            let at = (first + turn) % self.shards.len();
            if self.shards[at].asleep_until_ns > self.now_ns {
                continue;
            }
            let has_back = !self.shards[at].back.is_empty();
            self.take_back(at);
            let is_due = self.shards[at].queue.next_wakeup().is_some_and(|wakeup_ns| wakeup_ns <= self.now_ns);
            if has_back || is_due || self.shards[at].must_poll {
                self.poll(at);
            }
        }
        true
    }

    pub(crate) fn run_for(&mut self, for_ns: u64) {
        let end_ns = self.now_ns + for_ns;
        while self.step(end_ns) {}
    }

    pub(crate) fn start_counting(&mut self) {
        self.log.clear();
        for load in &mut self.loads {
            (load.dispatched, load.dispatched_bytes, load.dispatched_fs, load.finished) = (0, 0, 0, 0);
            (load.offered, load.refused) = (0, 0);
            load.latencies_ns.clear();
        }
    }

    /// Device time of a load, in seconds.
    pub(crate) fn consumed_s(&self, load: usize) -> f64 {
        self.loads[load].dispatched_fs as f64 / 1e15
    }

    /// Device time of all loads, in seconds.
    pub(crate) fn total_s(&self) -> f64 {
        (0..self.loads.len()).map(|load| self.consumed_s(load)).sum()
    }

    /// No load sends anything more; runs until everything has ended. Panics when it does not within 100 s.
    pub(crate) fn drain(&mut self) {
        for load in &mut self.loads {
            (load.closed, load.next_ns) = (false, u64::MAX);
        }
        self.run_for(100 * crate::common::S);
        for shard in &self.shards {
            assert_eq!((shard.queue.queued(), shard.queue.in_flight()), (0, 0), "stuck");
        }
        assert_eq!(self.disk.in_flight_ns(), 0);
    }
}
