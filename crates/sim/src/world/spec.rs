//! What a world consists of: plain data, checked by `check` before anything runs.

use plimsoll_core::{DiskConfig, Qos, QueueConfig};

use crate::device::{DeviceSpec, FaultWindow, MemberFault};
use crate::workload::JobSpec;

/// A world: see the documentation of [`super`].
#[derive(Clone, Debug)]
pub struct WorldSpec {
    /// Everything random comes from it: the same seed gives the same events.
    pub seed: u64,
    /// Length of the measured part in nanoseconds, at least 1. The world ends with it.
    pub duration_ns: u64,
    /// Length of the part before, in which nothing is counted, in nanoseconds.
    pub warmup_ns: u64,
    /// The shards, at least one.
    pub shards: Vec<ShardSpec>,
    /// The disks, at least one unless all jobs are CPU work.
    pub disks: Vec<SimDisk>,
    /// Classes and groups. Each exists on every disk. A parent stands before its members.
    pub classes: Vec<ClassSpec>,
    /// The jobs, at least one.
    pub jobs: Vec<JobSpec>,
    /// What changes while the world runs, in any order.
    pub actions: Vec<Action>,
    /// How often an observer gets a [`Sample`](crate::report::Sample), in nanoseconds, at least 1.
    pub sample_ns: u64,
    /// How long a message from a shard to the coordinator of its I/O queue (and back) is under way, in nanoseconds.
    pub message_latency_ns: u64,
    /// CPU time of a message, on the shard that sends it and on the one that receives it, in nanoseconds.
    pub message_cpu_ns: u64,
}

impl Default for WorldSpec {
    /// One second of one shard with nothing to do; samples every 100 ms; messages take 1 us and 200 ns of CPU.
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
    /// `Some`: the shard looks at its I/O only at multiples of this (counted from `start_offset_ns`), as a reactor does
    /// that polls between its tasks. `None`: as soon as there is something and the CPU is free.
    pub poll_interval_ns: Option<u64>,
    /// CPU time that others take.
    pub hog: Option<Hog>,
    /// CPU time of a request in nanoseconds, once when it is sent and once when it is back.
    pub cpu_per_request_ns: u64,
    /// The shard does nothing before, in nanoseconds; polls and hog slices count from here, so that not all shards do
    /// the same at the same moment.
    pub start_offset_ns: u64,
    /// The NUMA node. A shard and the coordinator of its I/O queue must be on the same.
    pub numa_node: u16,
}

/// CPU time that others take of a shard, in slices; the first begins at the shard's offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hog {
    /// Length of a slice in nanoseconds, at least 1.
    pub busy_ns: u64,
    /// Time between two slices in nanoseconds. With 0 the shard has one moment between them, enough for one look at
    /// everything that has happened meanwhile.
    pub pause_ns: u64,
}

/// What holds a disk's requests back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiskMode {
    /// The disk model.
    #[default]
    Scheduled,
    /// So many requests in flight in all, divided over the I/O queues.
    Depth {
        /// In all; each queue gets its part, and 1 at the least.
        max_io_requests: u32,
    },
    /// Nothing.
    Drain,
}

/// One disk: what it does, and what the scheduler believes of it.
#[derive(Clone, Debug)]
pub struct SimDisk {
    /// What it does.
    pub device: DeviceSpec,
    /// What the scheduler believes.
    pub config: DiskConfig,
    /// What holds requests back.
    pub mode: DiskMode,
    /// How many I/O queues, from 1 to the number of shards; `None`: one a shard. With fewer, shard s uses queue s*Q/S
    /// by messages to its coordinator, the first shard that uses it.
    pub num_io_queues: Option<u16>,
    /// Requests in one I/O queue at the most.
    pub max_requests: u32,
    /// See [`QueueConfig::wakeup_credit_ns`].
    pub wakeup_credit_ns: Option<u64>,
}

impl SimDisk {
    /// A scheduled disk with an I/O queue on every shard.
    #[must_use]
    pub fn new(device: DeviceSpec, config: DiskConfig) -> SimDisk {
        let QueueConfig { max_requests, wakeup_credit_ns, .. } = QueueConfig::default();
        SimDisk { device, config, mode: DiskMode::Scheduled, num_io_queues: None, max_requests, wakeup_credit_ns }
    }
}

/// A class, or a group of classes.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassSpec {
    /// Its name, unlike any other.
    pub name: String,
    /// The group it belongs to; `None`: to none.
    pub parent: Option<String>,
    /// Its part of what its parent has, from 1 on, in proportion to the other members' parts.
    pub shares: u32,
    /// A group has members and no requests of its own.
    pub is_group: bool,
    /// Limits, reservation, latency target and the like.
    pub qos: Qos,
}

impl ClassSpec {
    /// A class that belongs to no group.
    #[must_use]
    pub fn new(name: &str, shares: u32) -> ClassSpec {
        ClassSpec { name: name.into(), parent: None, shares, is_group: false, qos: Qos::default() }
    }

    /// A group that belongs to no group.
    #[must_use]
    pub fn group(name: &str, shares: u32) -> ClassSpec {
        ClassSpec { is_group: true, ..ClassSpec::new(name, shares) }
    }

    /// The same in the group `parent`.
    #[must_use]
    pub fn in_group(self, parent: &str) -> ClassSpec {
        ClassSpec { parent: Some(parent.into()), ..self }
    }
}

/// Something that changes while the world runs.
#[derive(Clone, Debug)]
pub struct Action {
    /// When, in nanoseconds from the beginning (of the warm-up).
    pub at_ns: u64,
    /// What.
    pub change: Change,
}

/// What changes.
#[derive(Clone, Debug)]
pub enum Change {
    /// A class or group gets other shares, on all disks.
    SetShares {
        /// Its name.
        class: String,
        /// At least 1.
        shares: u32,
    },
    /// A class or group gets another quality of service, on all disks.
    SetQos {
        /// Its name.
        class: String,
        /// All of it: what is not named ends.
        qos: Qos,
    },
    /// A class is removed from all disks; what it has queued is cancelled, and its jobs stop for good.
    RemoveClass {
        /// Its name.
        class: String,
    },
    /// A job starts (again).
    StartJob {
        /// Its name.
        job: String,
    },
    /// A job sends no more.
    StopJob {
        /// Its name.
        job: String,
    },
    /// A device gets a fault window (times count from the beginning of the world).
    InjectFault {
        /// The disk, as its place in the world's list.
        disk: usize,
        /// What happens.
        window: FaultWindow,
    },
    /// One member of a device's RAID 0 changes its speed, or fails.
    SetMember {
        /// The disk, as its place in the world's list.
        disk: usize,
        /// The member, and what is wrong with it.
        fault: MemberFault,
    },
}
