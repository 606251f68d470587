//! The state of the queues at a moment: the part of each class, the reason why it waits, and what the disk allows.
//!
//! # Why
//! "Why is this slow?" has one answer per class: it has used its share, the disk is full, a limit holds it back, or it
//! asks for more than there is. A snapshot has the figures that show which.
//!
//! # How it works
//! [`IoQueue::snapshot`](crate::IoQueue::snapshot) copies the counters of one queue. [`Snapshot::merge`] joins several
//! queues of a disk: counts are summed, delays are the largest.
//!
//! # Limits
//! The queues are read one after the other, not at one moment.
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
use crate::control::WindowLimit;
use crate::qos::Qos;
use crate::stats::{ClassStats, WaitReason};

/// One or several queues of a disk at a moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Number of queues merged.
    pub queues: u32,
    /// The classes, in the order of their numbers.
    pub classes: Vec<ClassSnapshot>,
    /// The disk of the queues, as the last queue saw it.
    pub disk: DiskSnapshot,
}

/// One class in a [`Snapshot`].
#[derive(Clone, Debug)]
pub struct ClassSnapshot {
    /// The class.
    pub class: ClassId,
    /// Quality of service of the class besides its shares.
    pub qos: Qos,
    /// Counters and wait reasons of the class; over several queues: the sum.
    pub stats: ClassStats,
    /// Wait of the class's oldest queued request so far, in nanoseconds; over several queues: the longest.
    pub delay_ns: u64,
    /// Expected wait of a request that came now, in nanoseconds; over several queues: the longest.
    pub expected_delay_ns: u64,
    /// Part of the disk by shares among the classes that have work now, 0 to 1; over several queues: the sum.
    pub part: f64,
    /// The reason that holds the class's queue back at this moment; `None` if there is none, or the class has no work.
    pub waits_for: Option<WaitReason>,
}

/// The work in a disk and its limits, at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DiskSnapshot {
    /// Work in the device, in nanoseconds of device time by the model.
    pub in_flight_ns: u64,
    /// The window: with this much in the device or more, nothing is added. In nanoseconds of device time.
    pub window_ns: u64,
    /// The largest window, in nanoseconds of device time.
    pub bound_ns: u64,
    /// The rate of the disk over the rate of its model.
    pub capacity_scale: f64,
    /// The part of device time left to classes that yield to a latency target; 1 if they need not yield.
    pub yielding_share: f64,
    /// The time by which reservations have fallen behind so far, in nanoseconds. It grows while all together exceed the
    /// disk: if by 0.25 s in a second, each gets three quarters of its own.
    pub reservations_behind_ns: u64,
    /// The reason why the window is not larger, with its price.
    pub window_limit: WindowLimit,
}

impl Snapshot {
    /// Merges two snapshots of queues of the same disk. The disk's figures are those of `other`.
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
