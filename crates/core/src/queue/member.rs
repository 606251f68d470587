//! A class or group as a queue knows it.

use std::sync::Arc;

use crate::clock::Clocks;
use crate::qos::{Credit, Qos, Tags, Waiting};
use crate::stats::{ClassStats, Latencies, WaitMark};

/// `parked_since_ns` of a node that no limit holds back. No time is later, so its wait until now is 0.
pub(super) const NOT_PARKED: u64 = u64::MAX;

/// A class or group as the queue knows it, apart from its place in the tree. In this order of fields a request touches
/// three cache lines: with a thousand classes each of them is a cache miss.
#[repr(C, align(64))]
#[derive(Debug)]
pub(super) struct Member {
    pub(super) generation: u32,
    pub(super) kind: Kind,
    /// The number of the disk's latency targets to which the class yields, and the level of its own target.
    pub(super) yields: u8,
    pub(super) level: Option<u8>,
    /// Shared with the disk's table of classes.
    pub(super) qos: Arc<Qos>,
    /// By direction; made at the first request.
    pub(super) latencies: [Option<Box<Latencies>>; 2],
    /// Since when no piece of the class is in the device; meaningful only while work is queued.
    pub(super) starved_since_ns: u64,
    pub(super) mark: WaitMark,
    /// The writes among the queued requests; the rest are reads.
    pub(super) queued_writes: Waiting,
    pub(super) tags: Option<Arc<Tags>>,
    /// Keeps the row of the disk's table from being reused.
    pub(super) held: Option<Arc<Clocks>>,
    /// Since when a limit holds the node back, or [`NOT_PARKED`]; `limited_ns` is the time of earlier waits for limits.
    pub(super) parked_since_ns: u64,
    pub(super) limited_ns: u64,
    pub(super) stats: ClassStats,
    /// Amounts booked at the limits and not used yet, by direction.
    pub(super) credit: [Credit; 2],
    /// End of its last wait for a limit.
    pub(super) came_back: CameBack,
    pub(super) backlog: Backlog,
}

impl Member {
    pub(super) fn new(kind: Kind, generation: u32, qos: Arc<Qos>) -> Member {
        Member {
            generation,
            kind,
            qos,
            tags: None,
            stats: ClassStats::default(),
            latencies: [None, None],
            mark: WaitMark::default(),
            starved_since_ns: 0,
            queued_writes: Waiting::default(),
            credit: Default::default(),
            limited_ns: 0,
            parked_since_ns: NOT_PARKED,
            came_back: CameBack::default(),
            level: None,
            yields: 0,
            backlog: Backlog::default(),
            held: None,
        }
    }
}

/// A class at the last check of the backlogs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backlog {
    pub(super) consumed_fs: f64,
    /// Device time queued and in flight, in femtoseconds; 0 if the class did not ask for its share.
    pub(super) outstanding_fs: f32,
    /// The low bits of its activations. If unchanged, the class has had work all the time since.
    pub(super) activations: u16,
    /// Whether the class did not ask for its share, with little outstanding: it gains by a short queue in the device.
    pub(super) is_small: bool,
}

/// A place that node `node` has booked, and that moves because its limits have changed: the end of the wait before the
/// change, had there been no burst; the factor by which the rest of that wait gets longer; and the burst now.
#[derive(Clone, Copy, Debug)]
pub(super) struct MovedPlace {
    pub(super) node: u32,
    pub(super) until_ns: u64,
    pub(super) stretch: f64,
    pub(super) burst_ns: u64,
}

impl MovedPlace {
    /// Returns when the rest of the wait from `now_ns` ends, if it has not ended yet.
    pub(super) fn ends_ns(self, now_ns: u64) -> Option<u64> {
        let rest_ns = (self.until_ns.saturating_sub(now_ns) as f64 * self.stretch) as u64;
        let wait_ns = rest_ns.saturating_sub(self.burst_ns);
        (wait_ns > 0).then(|| now_ns.saturating_add(wait_ns))
    }
}

/// The end of a node's wait for a limit: it was polled at `at_ns`, and could have been dispatched at `due_ns`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CameBack {
    pub(super) at_ns: u64,
    pub(super) due_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Free,
    Group,
    Class,
    /// Removed, with pieces still in the device.
    Leaving,
}
