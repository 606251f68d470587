//! One disk, as all its I/O queues see it: the model, and the little state that they share.
//!
//! # Why
//! A disk (or array, or mount point) has one capacity, however many shards use it. The state that all shards must know,
//! the tokens given out and the work in the device, stands here; all other state belongs to one queue.
//!
//! # How it works
//! * **Tokens**: one bucket (two with `duplex`; twice as many if operations and bytes are limited apart), `bucket`.
//! * **Window**: once the device holds this much device time, nothing is added. So the queue forms in the scheduler,
//!   where it can still be reordered, and not in the device, where it cannot. As soon as the device falls below the
//!   window, the next request enters even if it exceeds it: a disk never runs dry because the next request is a little
//!   too long. A second bound, above the window, holds except for a request alone in the device and for the overdraft
//!   of a class that lags.
//! * **Mix**: the share of writes in recent traffic. On most disks reads and writes disturb each other less than
//!   linearly (exponent p above 1) or more (below 1): the mix determines the present capacity.
//! * **Classes**: a class has its shares once, wherever it runs: `classes`, `clock`.
//! * **Disk groups**: queues of different NUMA nodes can have buckets of their own, each with its part of the rate. So
//!   no cache line travels between nodes while all are busy. A group whose bucket is empty borrows from one more than
//!   half full.
//!
//! An unlimited disk touches none of the shared lines.
//!
//! # Limits
//! The configuration is fixed for the life of the disk. Window and capacity scale follow the disk (`control`: queues
//! report completions, and each report steps the controller unless another queue does). Classes change at any time.
//!
//! # Example
//! ```
//! use plimsoll_core::{CostForm, CostModel, Disk, DiskConfig, FourFigures, Rate};
//! let figures = FourFigures {
//!     read_iops: Rate::per_second(200_000),
//!     write_iops: Rate::per_second(100_000),
//!     read_bandwidth: Rate::per_second(2_000_000_000),
//!     write_bandwidth: Rate::per_second(1_000_000_000),
//! };
//! let model = CostModel::from_figures(&figures, CostForm::Knee, 4096, 4096);
//! let disk = Disk::new(DiskConfig { model, ..DiskConfig::default() });
//! assert_eq!(disk.effective_goal_ns(), 750_000);
//! ```

mod ceilings;
mod feedback;
mod presence;
mod room;
mod tokens;
mod waiters;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::bucket::{Buckets, TICKS_PER_NS, TokenBucket, whole_ticks};
use crate::classes::{ClassId, Classes, GroupId, Kind, NodeId, QueueError};
use crate::control::{BOUND_UNLOADED, ControlConfig, ControlEvent, Controller, Limits as ControlLimits, Totals};
use crate::cost::{CostModel, MixExponent, PieceLimits};
use crate::qos::{LatencyTarget, Qos, ReservedTime};
use crate::request::{Direction, Op};
use crate::snapshot::DiskSnapshot;
use crate::sync::{AtomicU64, Ordering};
use crate::target::{Experience, Targets};
use crate::units::Cost;
use ceilings::Ceilings;
use feedback::{Feedback, UNREPORTED_MOST};
pub(crate) use feedback::{Report, report_completions};
use presence::Absent;
pub(crate) use presence::{ABSENT_LEAST_NS, Presence};
pub(crate) use room::NoRoom;
use room::Sleepers;
pub(crate) use waiters::QUEUES_MAX;
use waiters::Waiters;

/// The latency goal where none is set, as in Seastar: 0.75 ms.
pub const DEFAULT_LATENCY_GOAL_NS: u64 = 750_000;

/// The number of longest pieces that fit into a full device, so that one long request does not fill it alone. Pieces
/// are longer if such short ones cost too much.
const PIECES_IN_BOUND: u64 = 4;

/// The part (1/8) of the disk's time for which old requests of all classes together may overtake others.
const AGED_PART: f64 = 8.0;

/// Time between two corrections of the clocks' means: 10 ms.
const MEND_NS: u64 = 10_000_000;

/// Shortest time without an overfull device between two excursions of the closed loop (`control::trim`).
const FILLED_APART_NS: u64 = 10_000_000;

/// The part (1/64) by which the longest piece remembered shrinks with each report.
const LONG_PIECE_MEMORY: u64 = 64;

/// Whether long requests are split, and into which pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatencyGoal {
    /// Depth of the token bucket, and longest device time of a piece (more if a 64 KiB piece needs more). A piece also
    /// takes at most a quarter of [`Disk::bound_ns`] if that costs little (see [`CostModel::piece_limits`]).
    Ns(u64),
    /// Requests are not split.
    NoSplit,
}

/// The configuration of a [`Disk`].
#[derive(Clone, Debug)]
pub struct DiskConfig {
    /// The cost of requests.
    pub model: CostModel,
    /// How reads and writes share the capacity. Unused with `duplex`.
    pub mix: MixExponent,
    /// Whether reads and writes do not disturb each other: two buckets, and shares that hold for each direction.
    pub duplex: bool,
    /// Depth of the token bucket, and longest device time of a piece.
    pub latency_goal: LatencyGoal,
    /// The window: device time in the device from which on nothing is added; `None`: the closed loop finds it. At most
    /// the bound: the larger of the effective latency goal and 3 times `unloaded_latency_ns`. The closed loop raises
    /// that bound if measured latencies show that the disk is farther away: [`Disk::bound_ns`].
    pub window_ns: Option<u64>,
    /// The closed loop: follows the disk when it is slower (or, if `scale_max` allows, faster) than its model.
    pub control: ControlConfig,
    /// Latency of a small request on the idle disk, 0 if unknown. A disk far away needs more in flight.
    pub unloaded_latency_ns: u64,
    /// Disk groups (0 counts as 1): one for each NUMA node with shards. Each has its part of the token rate.
    pub groups: u16,
}

impl Default for DiskConfig {
    fn default() -> DiskConfig {
        DiskConfig {
            model: CostModel::unlimited(),
            mix: MixExponent::LINEAR,
            duplex: false,
            latency_goal: LatencyGoal::Ns(DEFAULT_LATENCY_GOAL_NS),
            window_ns: None,
            control: ControlConfig::default(),
            unloaded_latency_ns: 0,
            groups: 1,
        }
    }
}

/// A disk: its classes, and the state that the queues of all shards share.
///
/// Add classes to it, and make an [`IoQueue`](crate::IoQueue) for each shard.
#[derive(Debug)]
pub struct Disk {
    config: DiskConfig,
    pieces: PieceLimits,
    window: Window,
    /// Whether the mix changes the capacity.
    has_mix: bool,
    classes: Classes,
    /// Number of disk groups, and the buckets of all but the first: two per group.
    groups: usize,
    more_buckets: Box<[OwnBuckets]>,
    flow: Flow,
    /// Holds the time from which on an old request may overtake others again.
    aged: OwnBucket,
    /// By lane: the directions' turns are independent of each other.
    sleepers: [Sleepers; 2],
    waiters: [Waiters; 2],
    write_share_bits: OwnLine,
    settings: Settings,
    feedback: Feedback,
    controller: Mutex<Controller>,
    ceilings: Mutex<Ceilings>,
    /// Of all queues.
    presences: Mutex<Vec<Arc<Presence>>>,
    targets: Targets,
}

/// The fields that each dispatch of any shard writes: one cache line travels between shards, not two.
#[repr(align(128))]
#[derive(Debug, Default)]
struct Flow {
    /// By lane.
    in_flight_ticks: [AtomicU64; 2],
    /// The buckets of the first disk group: for both directions, or (duplex) for reads and for writes.
    buckets: [Buckets; 2],
}

impl Flow {
    fn held_ticks(&self, lane: usize) -> u64 {
        self.in_flight_ticks[lane].load(Ordering::Relaxed)
    }
}

/// Decisions of the controller other than the window: read by all shards, written rarely.
#[repr(align(128))]
#[derive(Debug)]
struct Settings {
    /// By direction, on a duplex disk.
    scale_bits: [AtomicU64; 2],
    token_scale_bits: [AtomicU64; 2],
    bound_ticks: AtomicU64,
    latency_clip_ns: AtomicU64,
    long_piece_ticks: AtomicU64,
    /// By how much the time of reservations is behind the clock.
    reserved_slip_ticks: AtomicU64,
    /// The latest time of the controller's next step, and the last time the clocks' means were corrected.
    next_step_ns: AtomicU64,
    mended_ns: AtomicU64,
    /// When the device was last overfull because of an excursion, and since when.
    filled_ns: AtomicU64,
    filled_from_ns: AtomicU64,
    /// Number of queues of this disk.
    queues: AtomicU64,
}

/// The window, and the work in the device that does not count in it: all shards read them, and they rarely change.
#[repr(align(128))]
#[derive(Debug)]
struct Window {
    ticks: AtomicU64,
    absent: Absent,
}

/// A number on a cache line of its own.
#[repr(align(128))]
#[derive(Debug)]
struct OwnLine(AtomicU64);

/// A bucket on a cache line of its own.
#[repr(align(128))]
#[derive(Debug, Default)]
struct OwnBucket(TokenBucket);

/// The buckets of a disk group and direction, on a cache line of their own.
#[repr(align(128))]
#[derive(Debug, Default)]
struct OwnBuckets(Buckets);

impl OwnLine {
    fn new(value: u64) -> OwnLine {
        OwnLine(AtomicU64::new(value))
    }
}

impl Disk {
    /// Returns a disk with nothing in flight and full buckets.
    #[must_use]
    pub fn new(config: DiskConfig) -> Disk {
        let goal_ns = match config.latency_goal {
            LatencyGoal::Ns(ns) => Some(ns),
            LatencyGoal::NoSplit => None,
        };
        let pieces = config.model.piece_limits(goal_ns);
        let bound_ns = pieces.effective_goal_ns.max((BOUND_UNLOADED * config.unloaded_latency_ns as f64) as u64);
        let pieces = match goal_ns {
            Some(_) => config.model.shorten(pieces, bound_ns / PIECES_IN_BOUND),
            None => pieces,
        };

        let limits = ControlLimits {
            bound_ns,
            min_window_ns: 0,
            unloaded_latency_ns: config.unloaded_latency_ns,
            // Two limits apart, both in full use.
            rate_max: if config.model.has_limits_apart() { 2.0 } else { 1.0 },
            is_duplex: config.duplex,
        };
        let control = ControlConfig { enabled: config.control.enabled && config.window_ns.is_none(), ..config.control };
        let controller = Controller::new(control, limits);
        let begin_ns = if control.enabled { controller.window_ns() } else { bound_ns };
        let window_ns = config.window_ns.unwrap_or(begin_ns).min(bound_ns);

        Disk {
            window: Window { ticks: AtomicU64::new(window_ns.saturating_mul(TICKS_PER_NS)), absent: Absent::default() },
            has_mix: !config.duplex && config.mix != MixExponent::LINEAR,
            classes: Classes::new(),
            groups: usize::from(config.groups.max(1)),
            more_buckets: (2..2 * usize::from(config.groups.max(1))).map(|_| OwnBuckets::default()).collect(),
            pieces,
            config,
            flow: Flow::default(),
            aged: OwnBucket::default(),
            sleepers: Default::default(),
            waiters: [Waiters::new(), Waiters::new()],
            write_share_bits: OwnLine::new(0),
            settings: Settings {
                scale_bits: controller.capacity_scale().map(|scale| AtomicU64::new(scale.to_bits())),
                token_scale_bits: controller.token_scale().map(|scale| AtomicU64::new(scale.to_bits())),
                bound_ticks: AtomicU64::new(bound_ns.saturating_mul(TICKS_PER_NS)),
                latency_clip_ns: AtomicU64::new(controller.latency_clip_ns()),
                long_piece_ticks: AtomicU64::new(0),
                reserved_slip_ticks: AtomicU64::new(0),
                next_step_ns: AtomicU64::new(u64::MAX),
                mended_ns: AtomicU64::new(0),
                filled_ns: AtomicU64::new(0),
                filled_from_ns: AtomicU64::new(0),
                queues: AtomicU64::new(0),
            },
            feedback: Feedback::default(),
            controller: Mutex::new(controller),
            ceilings: Mutex::default(),
            presences: Mutex::default(),
            targets: Targets::new(),
        }
    }

    /// Returns the configuration.
    #[must_use]
    pub fn config(&self) -> &DiskConfig {
        &self.config
    }

    /// Returns the latency goal in force in nanoseconds: the configured one, or the cost of 64 KiB in the dearer
    /// direction if that is more.
    #[must_use]
    pub fn effective_goal_ns(&self) -> u64 {
        self.pieces.effective_goal_ns
    }

    /// Returns the window: the device time in the device from which on nothing is added, in nanoseconds. On a duplex
    /// disk a direction has room for half of it in any case.
    #[must_use]
    pub fn window_ns(&self) -> u64 {
        self.window_ticks() / TICKS_PER_NS
    }

    /// Returns the most device time that the device holds, in nanoseconds. It holds more with one request alone, with
    /// the overdraft of a class that lags, on a duplex disk (by up to half a window), and for the moments in which the
    /// closed loop measures the disk's rate with all requests dispatched as they come. The bound rises if the shortest
    /// latencies show that the disk needs more to be busy.
    #[must_use]
    pub fn bound_ns(&self) -> u64 {
        self.bound_ticks() / TICKS_PER_NS
    }

    fn bound_ticks(&self) -> u64 {
        self.settings.bound_ticks.load(Ordering::Relaxed)
    }

    /// Returns the rate of the disk over that of its model, as the closed loop sees it now; on a duplex disk that of
    /// the slower direction.
    #[must_use]
    pub fn capacity_scale(&self) -> f64 {
        let [first, second] = [0, 1].map(|lane| f64::from_bits(self.settings.scale_bits[lane].load(Ordering::Relaxed)));
        if self.config.duplex { first.min(second) } else { first }
    }

    /// Returns the rate at which tokens are given out over that of the model: the capacity scale, except while the
    /// closed loop measures the disk's own rate.
    fn token_scale(&self, lane: usize) -> f64 {
        f64::from_bits(self.settings.token_scale_bits[lane].load(Ordering::Relaxed))
    }

    fn closed_loop(&self) -> MutexGuard<'_, Controller> {
        // A panic of another holder leaves figures that are at worst one step old.
        self.controller.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the decisions of the closed loop, with their reasons: of the last [`crate::EVENTS_KEPT`] events, those
    /// numbered above `seq`.
    #[must_use]
    pub fn events_since(&self, seq: u64) -> Vec<ControlEvent> {
        self.closed_loop().events_since(seq).copied().collect()
    }

    /// Returns the work in the disk and its limits, as of now.
    #[must_use]
    pub fn snapshot(&self) -> DiskSnapshot {
        DiskSnapshot {
            in_flight_ns: self.in_flight_ns(),
            window_ns: self.window_ns(),
            bound_ns: self.bound_ns(),
            capacity_scale: self.capacity_scale(),
            yielding_share: self.yielding_share(),
            reservations_behind_ns: self.settings.reserved_slip_ticks.load(Ordering::Relaxed) / TICKS_PER_NS,
            window_limit: self.closed_loop().window_limit(),
        }
    }

    /// Returns the device time for which the emptiest bucket has tokens at `now_ns`, in nanoseconds: at most
    /// [`Disk::bucket_ns`], below 0 after an overdraft. `None`: the disk is unlimited, and needs no tokens.
    #[must_use]
    pub fn tokens_ns(&self, now_ns: u64) -> Option<i64> {
        let lanes = if self.config.duplex { 2 } else { 1 };
        let in_use = (0..2 * self.groups).filter(|at| at % 2 < lanes).map(|at| self.buckets(at));
        let ahead_ns = in_use.map(|buckets| (buckets.tat_ticks() / TICKS_PER_NS).saturating_sub(now_ns)).max()?;
        let full_ns = i64::try_from(self.bucket_ns()).unwrap_or(i64::MAX);
        let left_ns = full_ns.saturating_sub(i64::try_from(ahead_ns).unwrap_or(i64::MAX));
        (!self.is_unlimited()).then_some(left_ns)
    }

    pub(crate) fn targets(&self) -> &Targets {
        &self.targets
    }

    /// Records a finished request of a class with a latency target. Ignores a request that was present while an
    /// excursion filled the device, or that came within as long afterwards: it waited for the excursion's work, and
    /// classes that yield would not have helped it.
    pub(crate) fn note_target(&self, now_ns: u64, level: u8, target: LatencyTarget, experience: Experience) {
        let filled_ns = self.settings.filled_ns.load(Ordering::Relaxed);
        let lasted_ns = filled_ns.saturating_sub(self.settings.filled_from_ns.load(Ordering::Relaxed));
        if now_ns.saturating_sub(experience.total_ns) < filled_ns.saturating_add(lasted_ns) {
            return;
        }
        if let Some((kind, from, to, reason)) = self.targets.note(now_ns, level, target, experience, &self.classes) {
            self.closed_loop().note(now_ns, kind, from, to, reason);
        }
    }

    /// Returns the part of the device's time left to classes that yield to the tightest latency target; 1 if they need
    /// not yield.
    #[must_use]
    pub fn yielding_share(&self) -> f64 {
        self.targets.allowance(0)
    }

    /// Returns the longest latency that counts; longer ones count as this.
    pub(crate) fn latency_clip_ns(&self) -> u64 {
        self.settings.latency_clip_ns.load(Ordering::Relaxed)
    }

    /// Adds the change in a queue's pieces in the device, modulo 2^64, outside of a report.
    pub(crate) fn count_left(&self, in_device: u64) {
        self.feedback.add_in_device(in_device);
    }

    /// Adds the report of the queue at place `queue`, and steps the controller unless another queue is doing so.
    pub(crate) fn report(&self, now_ns: u64, queue: usize, report: &Report) {
        self.feedback.add(report);
        if self.has_absent() {
            self.count_absent(now_ns);
        }
        let Ok(mut controller) = self.controller.try_lock() else { return };

        let queues = self.settings.queues.load(Ordering::Relaxed).max(1);
        let counted = self.feedback.totals();
        let in_flight_requests = counted.in_flight_requests.saturating_sub(self.absent().pieces() as u32);
        let totals = Totals {
            longest_away_ns: report.longest_away_ns,
            in_flight_ns: self.in_flight_ns(),
            in_flight_requests,
            unseen_completions: UNREPORTED_MOST * (queues - 1) / queues,
            outstanding_cap_ns: self.ceilings().least(now_ns, queue, report.outstanding_cap_ns),
            ..counted
        };
        controller.step(now_ns, &totals);

        if self.has_closed_loop() && self.is_overfull(controller.bound_ns()) {
            let before_ns = self.settings.filled_ns.swap(now_ns, Ordering::Relaxed);
            if now_ns.saturating_sub(before_ns) > FILLED_APART_NS {
                self.settings.filled_from_ns.store(now_ns, Ordering::Relaxed);
            }
        }

        // Writes only changes: all shards read these lines.
        let change = |of: &AtomicU64, to: u64| {
            if of.load(Ordering::Relaxed) != to {
                of.store(to, Ordering::Relaxed);
            }
        };
        let control = &self.config.control;
        if self.has_closed_loop() {
            change(&self.settings.bound_ticks, controller.bound_ns().saturating_mul(TICKS_PER_NS));
            change(&self.window.ticks, controller.window_ns().saturating_mul(TICKS_PER_NS));
        }
        let scales = [
            (&self.settings.scale_bits, controller.capacity_scale()),
            (&self.settings.token_scale_bits, controller.token_scale()),
        ];
        for (bits, of_lanes) in scales {
            bits.iter().zip(of_lanes).for_each(|(bits, scale)| change(bits, scale.to_bits()));
        }
        change(&self.settings.latency_clip_ns, controller.latency_clip_ns());
        if control.enabled {
            change(&self.settings.next_step_ns, controller.next_step_ns());
        }

        if now_ns.saturating_sub(self.settings.mended_ns.load(Ordering::Relaxed)) >= MEND_NS {
            // If there are many classes, the next report continues.
            if self.classes.mend_means(if self.config.duplex { 2 } else { 1 }) {
                change(&self.settings.mended_ns, now_ns);
            }
        }

        let long_ticks = self.long_piece_ticks();
        change(&self.settings.long_piece_ticks, long_ticks - long_ticks / LONG_PIECE_MEMORY);
    }

    /// Returns whether the device holds more than a window of `bound_ns`, the overdraft and a piece beyond it: an
    /// excursion is filling it, or its work is draining.
    fn is_overfull(&self, bound_ns: u64) -> bool {
        let bound_ticks = bound_ns.saturating_mul(TICKS_PER_NS);
        let most_ticks = bound_ticks.saturating_add(bound_ticks / 4).saturating_add(self.long_piece_ticks());
        self.in_flight_ticks() > most_ticks
    }

    /// Returns the device time in the device now, in nanoseconds, without the pieces of queues that are not polled any
    /// more.
    #[must_use]
    pub fn in_flight_ns(&self) -> u64 {
        self.in_flight_ticks() / TICKS_PER_NS
    }

    fn window_ticks(&self) -> u64 {
        self.window.ticks.load(Ordering::Relaxed)
    }

    fn absent(&self) -> &Absent {
        &self.window.absent
    }

    pub(crate) fn in_flight_ticks(&self) -> u64 {
        self.held_ticks().saturating_sub(self.absent().all_ticks())
    }

    /// Returns the work in the device, that of absent queues included.
    pub(crate) fn held_ticks(&self) -> u64 {
        self.flow.held_ticks(0).saturating_add(self.flow.held_ticks(1))
    }

    /// Returns the longest piece in bytes; longer requests are split.
    #[must_use]
    pub fn piece_max_bytes(&self, direction: Direction) -> u32 {
        match direction {
            Direction::Read => self.pieces.read_max_bytes,
            Direction::Write => self.pieces.write_max_bytes,
        }
    }

    /// Returns whether the model has no limits, so that nothing is ever throttled.
    #[must_use]
    pub fn is_unlimited(&self) -> bool {
        self.config.model.is_unlimited()
    }

    /// Returns the device time of one piece alone, before the mix.
    #[must_use]
    pub fn cost(&self, op: Op, len_bytes: u32) -> Cost {
        self.config.model.cost(op, len_bytes)
    }

    /// Returns the lane of a direction: the bucket and the clocks that it uses.
    pub(crate) fn lane(&self, direction: Direction) -> usize {
        usize::from(self.config.duplex && direction == Direction::Write)
    }

    pub(crate) fn classes(&self) -> &Classes {
        &self.classes
    }

    /// Adds a group with `shares` (at least 1; 0 is taken as 1) to `parent`.
    ///
    /// # Errors
    /// [`QueueError::Unknown`] if there is no such parent.
    pub fn add_group(&self, parent: GroupId, shares: u32) -> Result<GroupId, QueueError> {
        let (node, generation) = self.classes.add(parent, shares, Kind::Group)?;
        Ok(GroupId { node, generation })
    }

    /// Adds a class with `shares` (at least 1; 0 is taken as 1) to `parent`, for all queues of the disk.
    ///
    /// # Errors
    /// [`QueueError::Unknown`] if there is no such parent.
    pub fn add_class(&self, parent: GroupId, shares: u32) -> Result<ClassId, QueueError> {
        let (node, generation) = self.classes.add(parent, shares, Kind::Class)?;
        Ok(ClassId { node, generation })
    }

    /// Changes the shares of a class or group; each queue follows at its next poll.
    ///
    /// # Errors
    /// [`QueueError::Unknown`] if there is no such class or group.
    pub fn set_shares(&self, node: impl Into<NodeId>, shares: u32) -> Result<(), QueueError> {
        self.classes.set_shares(node.into(), shares)
    }

    /// Returns the shares of a class or group.
    ///
    /// # Errors
    /// [`QueueError::Unknown`] if there is no such class or group.
    pub fn shares(&self, node: impl Into<NodeId>) -> Result<u32, QueueError> {
        self.classes.get(node.into(), |row| row.shares)
    }

    /// Changes the quality of service of a class or group; each queue follows at its next poll.
    ///
    /// # Errors
    /// [`QueueError::Unknown`] if there is no such class or group.
    pub fn set_qos(&self, node: impl Into<NodeId>, qos: Qos) -> Result<(), QueueError> {
        let node = node.into();
        if self.classes.get(node, |row| row.qos.latency_target)? != qos.latency_target {
            self.targets.reset();
            self.classes.reset_boosts();
        }
        self.classes.set_qos(node, qos)
    }

    /// Returns the quality of service of a class or group.
    ///
    /// # Errors
    /// [`QueueError::Unknown`] if there is no such class or group.
    pub fn qos(&self, node: impl Into<NodeId>) -> Result<Qos, QueueError> {
        self.classes.get(node.into(), |row| *row.qos)
    }

    /// Removes a class, or a group without members. Queued requests of the class end as cancelled when their queue
    /// follows ([`IoQueue::follow_classes`](crate::IoQueue::follow_classes)); pieces in the device come back as always.
    ///
    /// # Errors
    /// [`QueueError::Unknown`] if there is no such class or group, or it is the root; [`QueueError::NotEmpty`] if a
    /// group has members.
    pub fn remove(&self, node: impl Into<NodeId>) -> Result<(), QueueError> {
        let node = node.into();
        let had_target = self.classes.get(node, |row| row.qos.latency_target.is_some())?;
        self.classes.remove(node)?;
        if had_target {
            self.targets.reset();
            self.classes.reset_boosts();
        }
        Ok(())
    }

    /// Returns the latest time of the next report, so that the controller sees a stall; `u64::MAX`: none.
    pub(crate) fn next_step_ns(&self) -> u64 {
        self.settings.next_step_ns.load(Ordering::Relaxed)
    }

    fn ceilings(&self) -> MutexGuard<'_, Ceilings> {
        self.ceilings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn presences(&self) -> MutexGuard<'_, Vec<Arc<Presence>>> {
        self.presences.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a queue and returns its place, by which it reports.
    pub(crate) fn add_queue(&self, presence: &Arc<Presence>) -> usize {
        self.settings.queues.fetch_add(1, Ordering::Relaxed);
        self.presences().push(Arc::clone(presence));
        self.ceilings().add()
    }

    /// Removes the queue at place `queue`, adds its last report, and takes its pieces out of the device.
    pub(crate) fn remove_queue(&self, queue: usize, report: &Report, presence: &Arc<Presence>) {
        self.feedback.add(report);
        self.presences().retain(|other| !Arc::ptr_eq(other, presence));
        // If the queue was absent, its work must not be left out any more.
        self.absent().forget();
        (0..2).for_each(|lane| self.leave(lane, presence.in_flight_ticks(lane)));
        self.ceilings().remove(queue);
        self.settings.queues.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns whether other queues may wait for the same limits.
    pub(crate) fn has_several_queues(&self) -> bool {
        self.settings.queues.load(Ordering::Relaxed) > 1
    }

    /// Returns the time before which no request may overtake others because of its age.
    pub(crate) fn aged_again_ns(&self) -> u64 {
        self.aged.0.tat_ticks() / TICKS_PER_NS
    }

    /// Charges a request that overtook others because of its age. For [`AGED_PART`] times its cost, no other may.
    pub(crate) fn charge_aged(&self, now_ns: u64, cost: Cost) {
        let ticks = whole_ticks(cost) as f64 / self.present_rate();
        self.aged.0.take_into_debt(now_ns, (ticks * AGED_PART) as u64);
    }

    /// Returns the time of reservations.
    pub(crate) fn reserved_time(&self, now_ns: u64) -> ReservedTime<'_> {
        ReservedTime { now_ns, slip: &self.settings.reserved_slip_ticks }
    }
}
