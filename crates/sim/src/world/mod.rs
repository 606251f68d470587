//! Shards, disks, classes and jobs in one deterministic loop over virtual time.
//!
//! # Why
//! How shares hold over 192 shards, how a starved shard affects the others, how a class experiences a disk that slows
//! down: such questions need a machine that is not at hand, or an accident that cannot be arranged. Here the answer
//! takes a second, and is the same every time.
//!
//! # How it works
//! The I/O queues are real [`IoQueue`]s; only their surroundings are simulated. There are three kinds of actors: the
//! world (actions, samples, the end), the disks (completions) and the shards. Each has a next moment; the actor with
//! the earliest acts. In its turn a shard handles completions, then messages and the requests of its jobs, then
//! dispatches from the I/O queues that it coordinates, and last gives one slice to CPU work. All of a turn happens at
//! its beginning; its CPU time is spent then, and the next turn comes after it. Like a real one, a shard whose CPU is
//! taken, or that polls at intervals, handles events late.
//!
//! # Limits
//! Time stands still within a turn: of a hundred completions handled in one turn the last is as old as the first. A
//! device accepts every request. Memory depends on the requests in flight, not on the length of the run. A request that
//! its I/O queue refuses is lost, except that a fiber of a closed loop retries after [`REFUSED_RETRY_NS`].
//!
//! # Example
//! Two classes, one with three times the shares, on one shard and a disk that the scheduler's model matches:
//! ```
//! use plimsoll_core::{CostForm, CostModel, DiskConfig, FourFigures, Rate};
//! use plimsoll_sim::device::DeviceSpec;
//! use plimsoll_sim::workload::{JobSpec, Load};
//! use plimsoll_sim::world::{ClassSpec, SimDisk, WorldSpec, run};
//!
//! let figures = FourFigures {
//!     read_iops: Rate::per_second(200_000),
//!     write_iops: Rate::per_second(100_000),
//!     read_bandwidth: Rate::per_second(2_000_000_000),
//!     write_bandwidth: Rate::per_second(1_000_000_000),
//! };
//! let model = CostModel::from_figures(&figures, CostForm::Knee, 4096, 4096);
//! let disk = SimDisk::new(DeviceSpec::default(), DiskConfig { model, ..DiskConfig::default() });
//! let job = |class: &str| JobSpec {
//!     name: class.into(),
//!     class: class.into(),
//!     load: Load::closed(200),
//!     ..JobSpec::default()
//! };
//! let report = run(&WorldSpec {
//!     disks: vec![disk],
//!     classes: vec![ClassSpec::new("query", 300), ClassSpec::new("backup", 100)],
//!     jobs: vec![job("query"), job("backup")],
//!     duration_ns: 200_000_000,
//!     ..WorldSpec::default()
//! })?;
//! let ratio = report.classes[0].iops / report.classes[1].iops;
//! assert!((2.9..3.1).contains(&ratio), "{ratio}");
//! # Ok::<(), plimsoll_sim::world::WorldError>(())
//! ```

mod agenda;
mod check;
mod classes;
pub(crate) mod counters;
mod jobs;
mod log;
mod measure;
mod run;
mod shard;
mod slab;
mod spec;

use std::ops::Range;
use std::sync::Arc;

use plimsoll_core::{Disk, Dispatch, FS_PER_NS, IoQueue, Mode, Op, Outcome, Progress, QueueConfig, depth_of_queue};

pub use check::{MAX_REQUESTS_PER_S, MAX_SHARDS, WorldError};
pub use counters::DiskCounters;
pub use jobs::REFUSED_RETRY_NS;
pub use log::{Event, EventKind};
pub use spec::{Action, Change, ClassSpec, DiskMode, Hog, ShardSpec, SimDisk, WorldSpec};

use self::agenda::{Agenda, NEVER};
use self::classes::ClassTable;
use self::log::Log;
use self::measure::Measures;
use self::run::Run;
use self::shard::{End, Shard};
use self::slab::Slab;
use crate::device::{Device, DeviceCompletion, DeviceRequest};
use crate::report::{Sample, Totals, WorldReport};

/// Time from leaving room in a device until the shard that is woken for it runs: an eventfd, and a switch of threads.
const HAND_OVER_NS: u64 = 5_000;

/// Turns at one moment after which time is taken to stand still.
const MAX_TURNS_AT_ONE_MOMENT: u64 = 10_000_000;

/// A callback that observes samples and returns changes.
type Steer<'a> = &'a mut dyn FnMut(&Sample) -> Vec<Change>;

/// Runs a world to its end.
///
/// # Errors
/// See [`WorldError`]. Except for [`WorldError::StandsStill`], nothing has run then.
pub fn run(spec: &WorldSpec) -> Result<WorldReport, WorldError> {
    World::new(spec, None, None)?.run()
}

/// Runs as [`run`], and passes a [`Sample`] to `observe` every `sample_ns`, from the beginning of the warm-up on, at the
/// end of the warm-up (from which the next interval counts), and at the end.
///
/// # Errors
/// As [`run`].
pub fn run_observed(spec: &WorldSpec, observe: &mut dyn FnMut(&Sample)) -> Result<WorldReport, WorldError> {
    run_steered(spec, &mut |sample| {
        observe(sample);
        Vec::new()
    })
}

/// Runs as [`run_observed`], and applies the changes that `steer` returns at once: for a program that watches its disk
/// and adjusts its own settings.
///
/// # Errors
/// As [`run`], and at the first change that is invalid or names something unknown.
pub fn run_steered(spec: &WorldSpec, steer: &mut dyn FnMut(&Sample) -> Vec<Change>) -> Result<WorldReport, WorldError> {
    World::new(spec, Some(steer), None)?.run()
}

/// Runs as [`run`], and passes every event to `log` as it happens.
///
/// # Errors
/// As [`run`].
pub fn run_logged(spec: &WorldSpec, log: &mut dyn FnMut(&Event)) -> Result<WorldReport, WorldError> {
    World::new(spec, None, Some(log))?.run()
}

/// A simulated disk with the scheduler's model of it.
#[derive(Debug)]
pub(crate) struct DiskState {
    disk: Arc<Disk>,
    device: Device,
    in_device: measure::InDevice,
    counting: counters::Counting,
    /// The place of its first queue.
    first_queue: usize,
}

/// An I/O queue of one disk, on its coordinator.
#[derive(Debug)]
pub(crate) struct QueueState {
    queue: IoQueue,
    disk: u32,
    /// The shards that use it; the first coordinates it.
    shards: Range<u32>,
    /// Whether something has changed since it was last polled.
    changed: bool,
    /// When to poll it again if nothing changes before.
    wakeup_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    key: u64,
    offset_bytes: u64,
    /// When it should have been sent.
    due_ns: u64,
    run: u32,
    class: u32,
    len_bytes: u32,
    op: Op,
}

/// A piece in a device.
#[derive(Debug)]
struct Piece {
    dispatch: Dispatch,
    sent_ns: u64,
    queue: u32,
    len_bytes: u32,
}

/// The actor of the world itself.
const WORLD: usize = 0;

struct World<'a> {
    spec: &'a WorldSpec,
    now_ns: u64,
    end_ns: u64,
    agenda: Agenda,
    disks: Vec<DiskState>,
    queues: Vec<QueueState>,
    shards: Vec<Shard>,
    classes: ClassTable,
    runs: Vec<Run<'a>>,
    requests: Slab<Request>,
    pieces: Slab<Piece>,
    /// Starts, actions and the end of the warm-up, latest first.
    changes: Vec<(u64, WorldChange)>,
    totals: Totals,
    log: Log<'a>,
    measures: Measures<'a>,
    /// Kept to reuse its memory.
    completions: Vec<DeviceCompletion>,
}

/// A change that the world makes at a given moment.
#[derive(Clone, Copy, Debug)]
enum WorldChange {
    Measure,
    Start { job: usize },
    Act { action: usize },
}

impl<'a> World<'a> {
    fn new(
        spec: &'a WorldSpec,
        steer: Option<Steer<'a>>,
        log: Option<&'a mut dyn FnMut(&Event)>,
    ) -> Result<World<'a>, WorldError> {
        check::check(spec)?;
        let mut disks = new_disks(spec)?;
        let mut shards: Vec<Shard> = spec.shards.iter().map(|shard| Shard::new(*shard)).collect();
        let queues = new_queues(spec, &mut disks, &mut shards);
        let classes = ClassTable::new(&spec.classes, shards.len(), &spec.disks, &disks, &queues)?;

        let mut world = World {
            spec,
            now_ns: 0,
            end_ns: spec.warmup_ns + spec.duration_ns,
            agenda: Agenda::new(1 + disks.len() + shards.len()),
            runs: jobs::new_runs(spec, &queues),
            measures: Measures::new(spec, steer),
            disks,
            queues,
            shards,
            classes,
            requests: Slab::new(),
            pieces: Slab::new(),
            changes: Vec::new(),
            totals: Totals::default(),
            log: Log::new(spec.seed, log),
            completions: Vec::new(),
        };

        world.plan();
        Ok(world)
    }

    /// Schedules everything that is known beforehand.
    fn plan(&mut self) {
        let mut changes = vec![(self.spec.warmup_ns, WorldChange::Measure)];
        for (job, spec) in self.spec.jobs.iter().enumerate() {
            changes.extend(spec.start_ns.map(|at_ns| (at_ns, WorldChange::Start { job })));
        }
        for (action, spec) in self.spec.actions.iter().enumerate() {
            changes.push((spec.at_ns, WorldChange::Act { action }));
        }
        // Sort latest first, so that of changes at one moment the first listed happens first.
        changes.reverse();
        changes.sort_by_key(|(at_ns, _)| std::cmp::Reverse(*at_ns));
        self.changes = changes;

        self.plan_world();
        for disk in 0..self.disks.len() {
            self.plan_disk(disk);
        }
    }

    fn plan_world(&mut self) {
        let change_ns = self.changes.last().map_or(NEVER, |(at_ns, _)| *at_ns);
        self.agenda.set(WORLD, change_ns.min(self.measures.next_sample_ns()).min(self.end_ns));
    }

    fn plan_disk(&mut self, disk: usize) {
        let next_ns = self.disks[disk].device.next_event_ns().map_or(NEVER, |at_ns| at_ns.max(self.now_ns));
        self.agenda.set(1 + disk, next_ns);
    }

    fn run(mut self) -> Result<WorldReport, WorldError> {
        let (disks, mut turns) = (self.disks.len(), 0);
        loop {
            let (at_ns, actor) = self.agenda.next();
            if at_ns > self.now_ns {
                self.now_ns = at_ns;
                turns = 0;
            }
            turns += 1;
            if turns > MAX_TURNS_AT_ONE_MOMENT {
                return Err(WorldError::StandsStill { at_ns });
            }

            if actor == WORLD {
                if self.world_turn()? {
                    return Ok(self.report());
                }
            } else if actor <= disks {
                self.disk_turn(actor - 1);
            } else {
                self.shard_turn(actor - 1 - disks);
            }
        }
    }

    /// Applies due changes and takes samples. Returns whether the end is reached.
    fn world_turn(&mut self) -> Result<bool, WorldError> {
        while let Some((at_ns, change)) = self.changes.last().copied()
            && at_ns <= self.now_ns
            && at_ns < self.end_ns
        {
            self.changes.pop();
            match change {
                WorldChange::Measure => {
                    // A sample of both times would have the counters of only one.
                    self.sample_and_steer()?;
                    self.start_measuring();
                }
                WorldChange::Start { job } => self.start_job(job),
                WorldChange::Act { action } => self.act(&self.spec.actions[action].change),
            }
        }

        let is_end = self.now_ns >= self.end_ns;
        if is_end || self.now_ns >= self.measures.next_sample_ns() {
            self.sample_and_steer()?;
        }

        self.plan_world();
        Ok(is_end)
    }

    /// Passes a sample to the observer, and applies the changes that it returns.
    fn sample_and_steer(&mut self) -> Result<(), WorldError> {
        for change in self.sample() {
            check::check_change(self.spec, self.now_ns, &change)?;
            self.act(&change);
        }
        Ok(())
    }

    /// Passes the completions of a device to the shards whose queues sent them.
    fn disk_turn(&mut self, disk: usize) {
        let mut completions = std::mem::take(&mut self.completions);
        self.disks[disk].device.advance(self.now_ns, &mut completions);
        for completion in completions.drain(..) {
            let Some(piece) = self.pieces.get(completion.key as u32) else { continue };
            let shard = self.queues[piece.queue as usize].shards.start;
            let state = &mut self.disks[disk];
            state.in_device.leave(self.now_ns);
            let op = piece.dispatch.op();
            let moved_bytes = if op.is_transfer() { completion.result.ok() } else { None };
            state.counting.leave(self.now_ns, piece.sent_ns, op, moved_bytes.unwrap_or(piece.len_bytes));
            self.shards[shard as usize].inbox.push(completion);
            self.wake_shard(shard, self.now_ns);
        }
        self.completions = completions;
        self.plan_disk(disk);
    }

    /// Schedules a turn of a shard at `at_ns`, or when its CPU is free.
    fn wake_shard(&mut self, shard: u32, at_ns: u64) {
        let actor = 1 + self.disks.len() + shard as usize;
        let at_ns = self.shards[shard as usize].free_from(at_ns);
        if at_ns < self.agenda.get(actor) {
            self.agenda.set(actor, at_ns);
        }
    }

    fn shard_turn(&mut self, shard: usize) {
        let mut inbox = std::mem::take(&mut self.shards[shard].inbox);
        for completion in inbox.drain(..) {
            self.complete(shard as u32, completion);
        }
        self.shards[shard].inbox = inbox;

        while let Some(due) = self.shards[shard].take_due(self.now_ns) {
            self.falls_due(shard as u32, due);
        }

        let mut wakeup_ns = NEVER;
        for at in 0..self.shards[shard].queues.len() {
            let number = self.shards[shard].queues[at];
            let state = &self.queues[number as usize];
            if state.changed || state.wakeup_ns <= self.now_ns {
                self.dispatch(shard as u32, number);
            }
            wakeup_ns = wakeup_ns.min(self.queues[number as usize].wakeup_ns);
        }

        self.cpu_slice(shard);

        let state = &mut self.shards[shard];
        state.end_turn(self.now_ns);
        let next_ns = state.free_from(state.wants_ns().min(wakeup_ns).max(self.now_ns));
        self.agenda.set(1 + self.disks.len() + shard, next_ns);
    }

    /// Submits to the device every piece that the queue dispatches now.
    fn dispatch(&mut self, shard: u32, number: u32) {
        let state = &mut self.queues[number as usize];
        let disk = &mut self.disks[state.disk as usize];

        let mut has_sent = false;
        while let Some(piece) = state.queue.poll_dispatch(self.now_ns) {
            has_sent = true;
            send_piece(
                self.now_ns,
                (shard, number, state.disk),
                disk,
                piece,
                &self.requests,
                &mut self.pieces,
                &mut self.log,
            );
        }

        let hand_over = state.queue.take_hand_over();
        state.changed = false;
        state.wakeup_ns = state.queue.next_wakeup().map_or(NEVER, |at_ns| at_ns.max(self.now_ns + 1));
        let disk = state.disk as usize;
        if has_sent {
            self.plan_disk(disk);
        }

        if let Some(of_disk) = hand_over {
            let other = &mut self.queues[self.disks[disk].first_queue + usize::from(of_disk)];
            other.changed = true;
            let shard = other.shards.start;
            self.wake_shard(shard, self.now_ns + HAND_OVER_NS);
        }
    }

    /// Handles a completed piece on its shard.
    fn complete(&mut self, shard: u32, completion: DeviceCompletion) {
        let Some(Piece { dispatch, queue: number, .. }) = self.pieces.take(completion.key as u32) else { return };
        let state = &mut self.queues[number as usize];
        state.changed = true;

        let (outcome, moved_bytes) = match completion.result {
            Ok(moved_bytes) => (Outcome::Moved(moved_bytes), moved_bytes),
            Err(code) => (Outcome::Failed(code), 0),
        };

        if let Some(request) = self.requests.get(dispatch.user_data() as u32) {
            let mut event = request.event(EventKind::Complete, (self.now_ns, shard, state.disk));
            event.offset_bytes += u64::from(dispatch.offset_bytes());
            event.len_bytes = moved_bytes;
            event.detail = u32::try_from(self.now_ns.saturating_sub(completion.at_ns)).unwrap_or(u32::MAX);
            event.errno = completion.result.err().unwrap_or(0);
            self.log.note(event);
        }

        // A thread learns afterwards for how long it has waited for its CPU.
        let has_hog = self.shards[shard as usize].has_hog();
        let late_ns = if has_hog { self.now_ns.saturating_sub(completion.at_ns) } else { 0 };
        match state.queue.complete_late(self.now_ns, late_ns, dispatch, outcome) {
            Progress::Pending => {}
            Progress::Continue(rest) => {
                let disk = state.disk as usize;
                let place = (shard, number, state.disk);
                let device = &mut self.disks[disk];
                send_piece(self.now_ns, place, device, rest, &self.requests, &mut self.pieces, &mut self.log);
                self.plan_disk(disk);
            }
            Progress::Finished(finished) => {
                self.ended(shard, finished.user_data as u32, End::Done(finished.result));
            }
        }
    }
}

impl Request {
    fn event(&self, kind: EventKind, (at_ns, shard, disk): (u64, u32, u32)) -> Event {
        let Request { key, class, op, offset_bytes, len_bytes, .. } = *self;
        let (detail, reason, errno) = (0, None, 0);
        Event { at_ns, kind, shard, disk, class, key, op, offset_bytes, len_bytes, detail, reason, errno }
    }
}

/// Submits a piece to its device.
fn send_piece(
    now_ns: u64,
    (shard, queue, disk_number): (u32, u32, u32),
    disk: &mut DiskState,
    piece: Dispatch,
    requests: &Slab<Request>,
    pieces: &mut Slab<Piece>,
    log: &mut Log<'_>,
) {
    let op = piece.op();
    let (mut offset_bytes, mut len_bytes) = (u64::from(piece.offset_bytes()), piece.len_bytes());
    if let Some(request) = requests.get(piece.user_data() as u32) {
        offset_bytes += request.offset_bytes;
        // The queue knows lengths of transfers only.
        len_bytes = if op.is_transfer() { len_bytes } else { request.len_bytes };
        let detail = u32::try_from(piece.cost().as_fs() / FS_PER_NS).unwrap_or(u32::MAX);
        let event = request.event(EventKind::Dispatch, (now_ns, shard, disk_number));
        log.note(Event { offset_bytes, len_bytes, detail, reason: piece.waited_for(), ..event });
    }

    let key = u64::from(pieces.insert(Piece { dispatch: piece, sent_ns: now_ns, queue, len_bytes }));
    disk.in_device.enter(now_ns);
    disk.counting.enter(now_ns);
    disk.device.submit(now_ns, DeviceRequest { key, op, offset_bytes, len_bytes });
}

fn new_disks(spec: &WorldSpec) -> Result<Vec<DiskState>, WorldError> {
    let new_disk = |(at, disk): (usize, &SimDisk)| {
        let seed = spec.seed ^ (at as u64 + 1).wrapping_mul(0x94d0_49bb_1331_11eb);
        Ok(DiskState {
            disk: Arc::new(Disk::new(disk.config.clone())),
            device: Device::new(&disk.device, seed)
                .map_err(|error| check::invalid(format!("the device of disk {at}"), error.to_string()))?,
            in_device: measure::InDevice::default(),
            counting: counters::Counting::default(),
            first_queue: 0,
        })
    };
    spec.disks.iter().enumerate().map(new_disk).collect()
}

/// Creates the I/O queues of all disks, and registers each with its coordinator.
fn new_queues(spec: &WorldSpec, disks: &mut [DiskState], shards: &mut [Shard]) -> Vec<QueueState> {
    let mut states = Vec::new();
    for (at, disk) in spec.disks.iter().enumerate() {
        let queues = disk.num_io_queues.map_or(shards.len(), usize::from);
        disks[at].first_queue = states.len();
        for number in 0..queues {
            let first_of = |number| check::first_shard(shards.len(), queues, number) as u32;
            let mode = match disk.mode {
                DiskMode::Scheduled => Mode::Scheduled,
                DiskMode::Drain => Mode::Drain,
                DiskMode::Depth { max_io_requests } => {
                    Mode::Depth(depth_of_queue(max_io_requests, queues as u32, number as u32))
                }
            };

            let users = first_of(number)..first_of(number + 1);
            let group = spec.shards[users.start as usize].numa_node;
            let SimDisk { max_requests, wakeup_credit_ns, decay_tau_ns, .. } = *disk;
            let number = Some(number as u16);
            let config = QueueConfig { mode, max_requests, wakeup_credit_ns, decay_tau_ns, group, number };

            shards[users.start as usize].queues.push(states.len() as u32);
            states.push(QueueState {
                queue: IoQueue::new(disks[at].disk.clone(), config),
                disk: at as u32,
                shards: users,
                changed: false,
                wakeup_ns: NEVER,
            });
        }
    }
    states
}
