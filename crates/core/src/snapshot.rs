//! What is going on: each class's part, what it waits for, and what the disk allows.
//!
//! # Why
//! "Why is this slow?" has one answer a class: it has used its share, the disk is full, a limit holds it, it asked for more than
//! anybody could give. A snapshot has the figures for it.
//!
//! # How it works
//! [`IoQueue::snapshot`](crate::IoQueue::snapshot) copies counters of one queue; [`Snapshot::merge`] joins those of several
//! queues of a disk: what is pending and what was done adds up, a delay is the largest.
//!
//! # Limits
//! The queues are looked at one after the other, not at one moment.
//!
//! # Example
//! ```
//! use std::sync::Arc;
//! use plimsoll_core::{Disk, DiskConfig, GroupId, IoQueue, Op, QueueConfig};
//! let disk = Arc::new(Disk::new(DiskConfig::default()));
//! let class = disk.add_class(GroupId::ROOT, 100)?;
//! let mut queues = [0, 1].map(|_| IoQueue::new(disk.clone(), QueueConfig::default()));
//! queues[0].enqueue(1_000, class, Op::Read, 4096, 0)?;
//! queues[1].enqueue(3_000, class, Op::Read, 4096, 0)?;
//! let both = queues[0].snapshot(4_000).merge(queues[1].snapshot(4_000));
//! let of_class = both.classes.iter().find(|c| c.class == class).expect("both queues know it");
//! assert_eq!((of_class.stats.queued, of_class.delay_ns), (2, 3_000));
//! # Ok::<(), plimsoll_core::QueueError>(())
//! ```

use crate::classes::ClassId;
use crate::qos::Qos;
use crate::stats::{ClassStats, WaitReason};
use crate::units::FS_PER_S;

/// One or several queues of a disk at a moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// How many queues.
    pub queues: u32,
    /// The classes, in the order of their numbers.
    pub classes: Vec<ClassSnapshot>,
    /// The disk they are of, as it was seen last.
    pub disk: DiskSnapshot,
}

/// One class.
#[derive(Clone, Debug)]
pub struct ClassSnapshot {
    /// Which.
    pub class: ClassId,
    /// What it asks for beside its shares.
    pub qos: Qos,
    /// What it did and what it waited for; several queues: the sum.
    pub stats: ClassStats,
    /// How long its oldest queued request has waited, in nanoseconds; several queues: the longest.
    pub delay_ns: u64,
    /// How long a request that came now would wait, in nanoseconds; several queues: the longest.
    pub expected_delay_ns: u64,
    /// Its part of the disk by shares among those that have work now, 0 to 1; several queues: the sum.
    pub part: f64,
    /// What holds its queue back at this moment; `None`: nothing does, or it has no work.
    pub waits_for: Option<WaitReason>,
}

/// What a disk allows now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DiskSnapshot {
    /// Device time in the device, in nanoseconds by the model.
    pub in_flight_ns: u64,
    /// From how much on nothing is added, in nanoseconds.
    pub window_ns: u64,
    /// The largest window, in nanoseconds.
    pub bound_ns: u64,
    /// The rate of the disk over that of its model.
    pub capacity_scale: f64,
    /// The part of the device's time that classes may use which yield to a latency target; 1 when they need not.
    pub yielding_share: f64,
    /// A class would need more outstanding requests to hold its share beside a larger window: throughput is lost for it.
    pub limited_by_outstanding: bool,
}

impl Snapshot {
    /// Both together.
    #[must_use]
    pub fn merge(mut self, other: Snapshot) -> Snapshot {
        for class in other.classes {
            match self.classes.iter_mut().find(|known| known.class == class.class) {
                Some(known) => known.add(&class),
                None => self.classes.push(class),
            }
        }
        self.queues += other.queues;
        self.disk = other.disk;
        self
    }

    /// Device-seconds a second that the reservations need, judged by what requests of each class have cost so far.
    #[must_use]
    pub fn reserved(&self) -> f64 {
        let need = |class: &ClassSnapshot| {
            let (stats, reservation) = (&class.stats, class.qos.reservation);
            let requests = (stats.read.requests + stats.write.requests).max(1) as f64;
            let bytes = (stats.read.bytes + stats.write.bytes).max(1) as f64;
            let seconds = stats.consumed_fs as f64 / FS_PER_S as f64;
            (reservation.iops as f64 * seconds / requests).max(reservation.bandwidth as f64 * seconds / bytes)
        };
        self.classes.iter().map(need).sum()
    }

    /// The part of the reservations that the disk can give, 1 when all: together they may need more than there is, and then
    /// each gets this part of its own.
    #[must_use]
    pub fn reservations_met(&self) -> f64 {
        let reserved = self.reserved();
        if reserved <= self.disk.capacity_scale { 1.0 } else { self.disk.capacity_scale / reserved }
    }
}

impl ClassSnapshot {
    fn add(&mut self, other: &ClassSnapshot) {
        self.stats = self.stats.plus(other.stats);
        self.delay_ns = self.delay_ns.max(other.delay_ns);
        self.expected_delay_ns = self.expected_delay_ns.max(other.expected_delay_ns);
        self.part = (self.part + other.part).min(1.0);
        self.waits_for = self.waits_for.or(other.waits_for);
    }
}
