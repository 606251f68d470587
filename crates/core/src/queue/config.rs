//! The configuration of a queue, and what follows from it alone.

use crate::disk::Disk;
use crate::tree::Fairness;
use crate::units::Cost;

/// Default time constant of the decaying accumulators of depth mode, as in Scylla 1.0: 100 ms.
pub const DECAY_TAU_NS: u64 = 100_000_000;

/// The rule by which a queue holds requests back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Mode {
    /// The disk model: tokens, and a window of device time.
    #[default]
    Scheduled,
    /// A bound on the queue's pieces in flight (0 counts as 1), as in Scylla's first scheduler; shares by decaying
    /// accumulators of weights 1 + len/16 KiB.
    Depth(u32),
    /// Nothing: all queued requests are submitted at once, in the order of the classes. Shows what the disk itself
    /// can do.
    Drain,
}

/// The configuration of an [`IoQueue`](crate::IoQueue).
#[derive(Clone, Copy, Debug)]
pub struct QueueConfig {
    /// The rule by which the queue holds requests back.
    pub mode: Mode,
    /// Most requests in the queue, those in the device included.
    pub max_requests: u32,
    /// Device time that a class may use before the others when it wakes up; `None`: the effective latency goal.
    pub wakeup_credit_ns: Option<u64>,
    /// For [`Mode::Depth`]: time constant with which a class's past use of the disk fades, above 0; shares hold over
    /// this time. 0 counts as 1.
    pub decay_tau_ns: u64,
    /// The disk group of the queue: the NUMA node of its shard, if the disk has [`DiskConfig::groups`] of them.
    ///
    /// [`DiskConfig::groups`]: crate::DiskConfig::groups
    pub group: u16,
    /// The queue's number in [`IoQueue::take_hand_over`] of the disk's other queues, such as its shard's number; unique
    /// on the disk. `None` if its driver cannot be woken for that.
    ///
    /// [`IoQueue::take_hand_over`]: crate::IoQueue::take_hand_over
    pub number: Option<u16>,
}

impl Default for QueueConfig {
    fn default() -> QueueConfig {
        QueueConfig {
            mode: Mode::Scheduled,
            max_requests: 65_536,
            wakeup_credit_ns: None,
            decay_tau_ns: DECAY_TAU_NS,
            group: 0,
            number: None,
        }
    }
}

/// Returns the depth of queue number `queue` of `num_io_queues`: an even part of `max_io_requests`, at least 1. Below 4
/// a queue cannot use its disk's parallelism, and with more queues than requests the sum exceeds `max_io_requests`
/// (Scylla's rule: choose the number of queues such that each has at least 4).
#[must_use]
pub fn depth_of_queue(max_io_requests: u32, num_io_queues: u32, queue: u32) -> u32 {
    let queues = num_io_queues.max(1);
    let extra = u32::from(queue < max_io_requests % queues);
    (max_io_requests / queues + extra).max(1)
}

/// Returns how the clocks of a queue advance.
pub(super) fn fairness(config: &QueueConfig, disk: &Disk) -> Fairness {
    match config.mode {
        Mode::Depth(_) => Fairness::Decaying { tau_ns: config.decay_tau_ns },
        Mode::Scheduled | Mode::Drain => {
            Fairness::Virtual { credit: Cost::from_ns(config.wakeup_credit_ns.unwrap_or(disk.effective_goal_ns())) }
        }
    }
}
