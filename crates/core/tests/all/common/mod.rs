//! A small world around one queue: a virtual clock, and a device that serves so many pieces at a time, each in
//! (device time of the disk model) * factor. Loads keep their class backlogged.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_core::{
    ClassId, ControlConfig, CostForm, CostModel, Disk, DiskConfig, Dispatch, FourFigures, GroupId, IoQueue, Op,
    Outcome, Progress, QueueConfig, Rate,
};

pub(crate) const KIB: u32 = 1024;
pub(crate) const US: u64 = 1_000;
pub(crate) const MS: u64 = 1_000_000;
pub(crate) const S: u64 = 1_000_000_000;
pub(crate) const FIFTY_YEARS_NS: u64 = 50 * 366 * 86_400 * S;

/// A disk that reads and writes alike.
pub(crate) fn model(iops: u64, bandwidth: u64) -> CostModel {
    let figures = FourFigures {
        read_iops: Rate::per_second(iops),
        write_iops: Rate::per_second(iops),
        read_bandwidth: Rate::per_second(bandwidth),
        write_bandwidth: Rate::per_second(bandwidth),
    };
    CostModel::from_figures(&figures, CostForm::Knee, 4096, 4096)
}

/// 100 000 requests and 1 GB a second: 4 KiB take 10 us, 64 KiB take 71.4 us, 1 MiB takes 1.05 ms.
pub(crate) fn usual() -> DiskConfig {
    DiskConfig { model: model(100_000, 1_000_000_000), control: ControlConfig::OFF, ..DiskConfig::default() }
}

/// Each request takes 1 us, however long it is.
pub(crate) fn unit_cost() -> DiskConfig {
    let figures = FourFigures {
        read_iops: Rate::per_second(1_000_000),
        write_iops: Rate::per_second(1_000_000),
        ..FourFigures::UNLIMITED
    };
    let model = CostModel::from_figures(&figures, CostForm::Knee, 4096, 4096);
    DiskConfig { model, control: ControlConfig::OFF, ..DiskConfig::default() }
}

pub(crate) fn queue_of(disk: DiskConfig, config: QueueConfig) -> IoQueue {
    IoQueue::new(Arc::new(Disk::new(disk)), config)
}

/// Small reproducible random numbers (SplitMix64, Steele, Lea, Flood 2014).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

/// A class that always has `outstanding` requests, of lengths drawn from `lengths_bytes`.
pub(crate) struct Load {
    pub(crate) class: ClassId,
    pub(crate) op: Op,
    pub(crate) lengths_bytes: Vec<u32>,
    pub(crate) on: bool,
    pub(crate) dispatched: u64,
    pub(crate) dispatched_bytes: u64,
    pub(crate) dispatched_fs: u64,
    pub(crate) finished: u64,
}

/// One dispatch, as the log has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) at_ns: u64,
    pub(crate) load: usize,
    pub(crate) fs: u64,
}

pub(crate) struct World {
    pub(crate) queue: IoQueue,
    pub(crate) now_ns: u64,
    pub(crate) loads: Vec<Load>,
    pub(crate) log: Vec<Sent>,
    pub(crate) in_flight_max_ns: u64,
    random: Random,
    factor: f64,
    servers_free_fs: Vec<u128>,
    in_device: BTreeMap<(u64, u64), Dispatch>,
    sent: u64,
}

impl World {
    /// A device with `parallel` servers, each `factor` times as slow as the disk model says.
    pub(crate) fn new(queue: IoQueue, parallel: usize, factor: f64) -> World {
        World {
            queue,
            now_ns: 0,
            loads: Vec::new(),
            log: Vec::new(),
            in_flight_max_ns: 0,
            random: Random(1),
            factor,
            servers_free_fs: vec![0; parallel],
            in_device: BTreeMap::new(),
            sent: 0,
        }
    }

    /// A class at the root with a load that is on.
    pub(crate) fn load(&mut self, shares: u32, op: Op, lengths_bytes: &[u32], outstanding: usize) -> usize {
        self.load_in(GroupId::ROOT, shares, op, lengths_bytes, outstanding)
    }

    pub(crate) fn load_in(
        &mut self,
        group: GroupId,
        shares: u32,
        op: Op,
        lengths_bytes: &[u32],
        outstanding: usize,
    ) -> usize {
        let class = self.queue.disk().add_class(group, shares).unwrap();
        let load = Load {
            class,
            op,
            lengths_bytes: lengths_bytes.to_vec(),
            on: true,
            dispatched: 0,
            dispatched_bytes: 0,
            dispatched_fs: 0,
            finished: 0,
        };
        self.loads.push(load);
        self.send(self.loads.len() - 1, outstanding);
        self.loads.len() - 1
    }

    /// Enqueues `count` requests of a load.
    pub(crate) fn send(&mut self, load: usize, count: usize) {
        for _ in 0..count {
            let Load { class, op, ref lengths_bytes, .. } = self.loads[load];
            let len_bytes = self.random.one_of(lengths_bytes);
            self.queue.enqueue(self.now_ns, class, op, len_bytes, load as u64).unwrap();
        }
    }

    /// Dispatches what may go now.
    pub(crate) fn poll(&mut self) {
        while let Some(piece) = self.queue.poll_dispatch(self.now_ns) {
            let at = piece.user_data() as usize;
            let fs = self.queue.disk().cost(piece.op(), piece.len_bytes()).as_fs();
            let load = &mut self.loads[at];
            load.dispatched += 1;
            load.dispatched_bytes += u64::from(piece.len_bytes());
            load.dispatched_fs += fs;
            self.log.push(Sent { at_ns: self.now_ns, load: at, fs });
            self.in_flight_max_ns = self.in_flight_max_ns.max(self.queue.disk().in_flight_ns());
            let server = self.servers_free_fs.iter_mut().min().unwrap();
            let start_fs = (*server).max(u128::from(self.now_ns) * 1_000_000);
            *server = start_fs + (fs as f64 * self.factor) as u128;
            let done_ns = server.div_ceil(1_000_000) as u64;
            self.in_device.insert((done_ns, self.sent), piece);
            self.sent += 1;
        }
    }

    /// Goes to the next event, at `end_ns` the latest. False when nothing is left to happen before.
    pub(crate) fn step(&mut self, end_ns: u64) -> bool {
        self.poll();
        let done_ns = self.in_device.first_key_value().map(|((at_ns, _), _)| *at_ns);
        let wakeup_ns = self.queue.next_wakeup().map(|at_ns| at_ns.max(self.now_ns + 1));
        let next_ns = match (done_ns, wakeup_ns) {
            (Some(one), Some(other)) => one.min(other),
            (one, other) => one.or(other).unwrap_or(u64::MAX),
        };
        if next_ns > end_ns {
            self.now_ns = end_ns;
            return false;
        }
        self.now_ns = next_ns.max(self.now_ns);
        while let Some(entry) = self.in_device.first_entry()
            && entry.key().0 <= self.now_ns
        {
            let piece = entry.remove();
            let len_bytes = piece.len_bytes();
            if let Progress::Finished(finished) = self.queue.complete(self.now_ns, piece, Outcome::Moved(len_bytes)) {
                let load = finished.user_data as usize;
                self.loads[load].finished += 1;
                if self.loads[load].on {
                    self.send(load, 1);
                }
            }
        }
        true
    }

    pub(crate) fn run_until(&mut self, end_ns: u64) {
        while self.step(end_ns) {}
    }

    /// Forgets what the loads have done so far.
    pub(crate) fn start_counting(&mut self) {
        self.log.clear();
        for load in &mut self.loads {
            (load.dispatched, load.dispatched_bytes, load.dispatched_fs, load.finished) = (0, 0, 0, 0);
        }
    }

    /// Device time per load, in seconds.
    pub(crate) fn consumed_s(&self) -> Vec<f64> {
        self.loads.iter().map(|load| load.dispatched_fs as f64 / 1e15).collect()
    }
}

/// Jain's index of consumed/shares: 1 when all are served alike.
pub(crate) fn jain(consumed: &[f64], shares: &[u32]) -> f64 {
    let served: Vec<f64> = consumed.iter().zip(shares).map(|(c, s)| c / f64::from(*s)).collect();
    let sum: f64 = served.iter().sum();
    let squares: f64 = served.iter().map(|x| x * x).sum();
    sum * sum / (served.len() as f64 * squares)
}
