//! The parts of a world: plain data, checked by `check` before the run.

use plimsoll_core::{DiskConfig, Qos, QueueConfig};

use crate::device::{DeviceSpec, FaultWindow, MemberFault};
use crate::workload::JobSpec;

/// A world, run by [`run`](super::run).
#[derive(Clone, Debug)]
pub struct WorldSpec {
    /// Seed of all randomness: the same seed gives the same events.
    pub seed: u64,
    /// Length of the measured part in nanoseconds, at least 1. The world ends with it.
    pub duration_ns: u64,
    /// Length of the warm-up before it, in which nothing is counted, in nanoseconds.
    pub warmup_ns: u64,
    /// The shards, at least one.
    pub shards: Vec<ShardSpec>,
    /// The disks, at least one unless all jobs are CPU work.
    pub disks: Vec<SimDisk>,
    /// Classes and groups. Each exists on every disk. A parent stands before its members.
    pub classes: Vec<ClassSpec>,
    /// The jobs, at least one.
    pub jobs: Vec<JobSpec>,
    /// Changes while the world runs, in any order.
    pub actions: Vec<Action>,
    /// Interval between [`Sample`](crate::report::Sample)s for an observer, in nanoseconds, at least 1.
    pub sample_ns: u64,
    /// Latency of a message from a shard to the coordinator of its I/O queue (and back), in nanoseconds.
    pub message_latency_ns: u64,
    /// CPU time of a message, on the shard that sends it and on the one that receives it, in nanoseconds. The default
    /// is measured: on the null backend a request of another shard's queue takes 0.72 to 1.0 us more CPU than one of
    /// the shard's own (1024 fibers on shard 1 of two, a VM with 2 CPUs: `test --backend null --mode depth
    /// --max-io-requests 2048 --num-io-queues 1`, then 2). Request and reply are each sent and received: four ends.
    /// With few fibers an end costs up to 0.9 us, since each message wakes a shard.
    pub message_cpu_ns: u64,
}

impl Default for WorldSpec {
    /// Returns one second of one shard with nothing to do; samples every 100 ms; messages take 1 us and 200 ns of CPU.
    fn default() -> WorldSpec {
        WorldSpec {
            seed: 1,
            duration_ns: 1_000_000_000,
            warmup_ns: 0,
            shards: vec![ShardSpec::default()],
            disks: Vec::new(),
            classes: Vec::new(),
            jobs: Vec::new(),
            actions: Vec::new(),
            sample_ns: 100_000_000,
            message_latency_ns: 1_000,
            message_cpu_ns: 200,
        }
    }
}

/// A shard: one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardSpec {
    /// `Some`: the shard polls its I/O only at multiples of this (counted from `start_offset_ns`), as a reactor does
    /// between its tasks. `None`: as soon as there is I/O and the CPU is free.
    pub poll_interval_ns: Option<u64>,
    /// CPU time that other processes take.
    pub hog: Option<Hog>,
    /// CPU time of a request in nanoseconds, once when it is sent and once when its result arrives.
    pub cpu_per_request_ns: u64,
    /// Time before which the shard does nothing, in nanoseconds. Polls and hog slices count from here, so that shards
    /// need not act at the same moments.
    pub start_offset_ns: u64,
    /// The NUMA node. A shard and the coordinator of its I/O queue must be on the same node.
    pub numa_node: u16,
}

/// CPU time that other processes take from a shard, in slices; the first begins at the shard's offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hog {
    /// Length of a slice in nanoseconds, at least 1.
    pub busy_ns: u64,
    /// Time between two slices in nanoseconds. With 0 the shard has one moment between them, enough for one turn with
    /// everything that happened meanwhile.
    pub pause_ns: u64,
}

/// The rule that holds a disk's requests back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiskMode {
    /// The disk model.
    #[default]
    Scheduled,
    /// A fixed number of requests in flight, divided over the I/O queues.
    Depth {
        /// Requests in flight over all queues; each queue gets its part, at least 1.
        max_io_requests: u32,
    },
    /// No rule: requests are submitted at once.
    Drain,
}

/// One disk: the device, and the scheduler's model of it.
#[derive(Clone, Debug)]
pub struct SimDisk {
    pub device: DeviceSpec,
    pub config: DiskConfig,
    /// The rule that holds requests back.
    pub mode: DiskMode,
    /// Number of I/O queues, from 1 to the number of shards; `None`: one a shard. With fewer, shard s uses queue s*Q/S
    /// by messages to its coordinator, the first shard that uses it.
    pub num_io_queues: Option<u16>,
    /// Most requests in one I/O queue.
    pub max_requests: u32,
    /// See [`QueueConfig::wakeup_credit_ns`].
    pub wakeup_credit_ns: Option<u64>,
    /// See [`QueueConfig::decay_tau_ns`].
    pub decay_tau_ns: u64,
}

impl SimDisk {
    /// Returns a scheduled disk with an I/O queue on every shard.
    pub fn new(device: DeviceSpec, config: DiskConfig) -> SimDisk {
        let QueueConfig { max_requests, wakeup_credit_ns, decay_tau_ns, .. } = QueueConfig::default();
        let (mode, num_io_queues) = (DiskMode::Scheduled, None);
        SimDisk { device, config, mode, num_io_queues, max_requests, wakeup_credit_ns, decay_tau_ns }
    }
}

/// A class, or a group of classes.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassSpec {
    /// Name of the class or group, different from any other.
    pub name: String,
    /// The group to which it belongs; `None`: no group.
    pub parent: Option<String>,
    /// Shares, at least 1: its part of the parent's share, in proportion to the shares of the other members.
    pub shares: u32,
    /// Whether it is a group, which has members and no requests of its own.
    pub is_group: bool,
    /// Limits, reservation, latency target and the like.
    pub qos: Qos,
}

impl ClassSpec {
    /// Returns a class that belongs to no group.
    pub fn new(name: &str, shares: u32) -> ClassSpec {
        ClassSpec { name: name.into(), parent: None, shares, is_group: false, qos: Qos::default() }
    }

    /// Returns a group that belongs to no group.
    pub fn group(name: &str, shares: u32) -> ClassSpec {
        ClassSpec { is_group: true, ..ClassSpec::new(name, shares) }
    }

    /// Moves the class into the group `parent`.
    pub fn in_group(self, parent: &str) -> ClassSpec {
        ClassSpec { parent: Some(parent.into()), ..self }
    }
}

#[derive(Clone, Debug)]
pub struct Action {
    /// When, in nanoseconds from the beginning of the warm-up.
    pub at_ns: u64,
    pub change: Change,
}

#[derive(Clone, Debug)]
pub enum Change {
    /// A class or group gets other shares, on all disks.
    SetShares {
        class: String,
        /// At least 1.
        shares: u32,
    },
    /// A class or group gets another quality of service, on all disks.
    SetQos {
        class: String,
        /// The whole quality of service: it replaces every setting.
        qos: Qos,
    },
    /// A class is removed from all disks; its queued requests are cancelled, and its jobs stop for good.
    RemoveClass {
        class: String,
    },
    StartJob {
        job: String,
    },
    StopJob {
        job: String,
    },
    /// A device gets a fault window (times count from the beginning of the world).
    InjectFault {
        /// The disk, as its index in the world's list.
        disk: usize,
        window: FaultWindow,
    },
    /// One member of a device's RAID 0 changes its speed, or fails.
    SetMember {
        /// The disk, as its index in the world's list.
        disk: usize,
        /// The member and its fault.
        fault: MemberFault,
    },
}
