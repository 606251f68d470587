//! Whole shards in virtual time, all on one thread.
//!
//! # Why
//! A test of several shards should take milliseconds, never hang, and fail in the same way every time. Threads give
//! none of the three.
//!
//! # How it works
//! Each shard of a topology gets a [`SimBackend`](crate::backend::sim::SimBackend) of one world, and runs the same loop
//! as on a real machine; only waiting differs. The runtime gives turns, in order of shard number, to every shard that
//! has work at this instant. When no shard has, it moves the clock to the next event: an operation completes, a timer
//! fires, queued work may be dispatched. A message or a wake-up between shards takes no virtual time. If no event is
//! left although the main future waits, the run ends with an error that lists for what each shard waits.
//!
//! A run can also end after a given number of operations has completed on the disks. Crash the world there, for each
//! number in turn, to try every state that a power failure can leave.
//!
//! # Limits
//! Computing takes no virtual time. Every wake-up must come from the shards themselves: the runtime does not wait for
//! other threads. `Shard::stop` has no effect.
//!
//! # Example
//! Two shards talk; ten virtual seconds pass at once:
//! ```
//! use std::time::Duration;
//! use plimsoll::backend::sim::{SimConfig, SimWorld};
//! use plimsoll::{Classes, DiskSetup, SimError, SimRuntime, Topology};
//!
//! let world = SimWorld::new(&SimConfig::default())?;
//! let topology = Topology::new(2, Classes::new(), vec![DiskSetup::unlimited()])?;
//! let runtime = SimRuntime::new(&world, &topology)?;
//! let neighbour = runtime.handle(1);
//! let answer = neighbour.run(|shard| async move {
//!     shard.sleep(Duration::from_secs(10)).await;
//!     42
//! });
//! assert_eq!(runtime.block_on(0, answer)??, 42);
//! assert_eq!(world.now_ns(), 10_000_000_000);
//! // A future that is never woken:
//! let stuck = runtime.block_on(0, std::future::pending::<()>());
//! assert!(matches!(stuck, Err(SimError::Deadlock { .. })));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::backend::sim::{Pace, SimWorld};
use crate::handle::Handle;
use crate::reactor::{Reactor, ReactorError};
use crate::shard::{Shard, Turns};
use crate::topology::Topology;

/// Operations that the backend of each shard takes at once.
const CAPACITY: u32 = 1024;

/// Most rounds of turns at one instant. More count as a livelock: a task wakes itself for ever.
const TURNS_AT_ONE_INSTANT: u32 = 1_000_000;

/// Longest virtual time of [`SimRuntime::block_on`]: a day, in nanoseconds.
const PATIENCE_NS: u64 = 86_400_000_000_000;

/// Why a simulated run ended early.
#[derive(Debug)]
#[non_exhaustive]
pub enum SimError {
    /// No event is left, and the main future still waits.
    Deadlock {
        /// Time on the world's clock, in nanoseconds.
        at_ns: u64,
        /// One text per shard: the operations that it waits for.
        shards: Vec<String>,
    },
    /// A shard always has work although no time passes: a task wakes itself for ever.
    Livelock {
        /// Time on the world's clock, in nanoseconds.
        at_ns: u64,
        /// The shard that had the last turn.
        shard: u16,
    },
    /// The main future did not end within a virtual day.
    TimeLimit {
        /// Time at which the run ended, on the world's clock, in nanoseconds.
        at_ns: u64,
    },
    /// A backend is broken, because the world has crashed since the runtime was made.
    Backend(io::Error),
}

impl fmt::Display for SimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SimError::Deadlock { at_ns, shards } => {
                write!(f, "deadlock at {} s: {}", seconds(*at_ns), shards.join("; "))
            }
            SimError::Livelock { at_ns, shard } => write!(
                f,
                "livelock at {} s: after {TURNS_AT_ONE_INSTANT} turns shard {shard} still has something to do; does a \
                 task wake itself without waiting for anything?",
                seconds(*at_ns)
            ),
            SimError::TimeLimit { at_ns } => {
                write!(f, "the main future has not ended after a virtual day, at {} s", seconds(*at_ns))
            }
            SimError::Backend(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SimError {}

fn seconds(at_ns: u64) -> f64 {
    at_ns as f64 / 1e9
}

/// A shard and the number of its backend in the world.
struct Seat {
    shard: Shard,
    member: usize,
}

/// Shards in virtual time; see the module's documentation. Dropping it drops the remaining tasks.
pub struct SimRuntime {
    world: SimWorld,
    topology: Topology,
    seats: Vec<Seat>,
}

impl SimRuntime {
    /// Returns a runtime for the shards of `topology` on the disks of `world`. After a [`SimRuntime::crash`] make a new
    /// topology as well, as shards and files belong to the old one.
    ///
    /// # Errors
    /// If shards of `topology` are running already.
    pub fn new(world: &SimWorld, topology: &Topology) -> Result<SimRuntime, ReactorError> {
        let seat = |number| {
            let backend = world.backend(CAPACITY);
            let member = backend.member();
            Ok(Seat { shard: Shard::new(Reactor::new(number, topology, Box::new(backend))?), member })
        };
        let seats = (0..topology.shards()).map(seat).collect::<Result<_, ReactorError>>()?;
        Ok(SimRuntime { world: world.clone(), topology: topology.clone(), seats })
    }

    /// Returns the world of the runtime.
    #[must_use]
    pub fn world(&self) -> &SimWorld {
        &self.world
    }

    /// Returns shard `number` (taken modulo the number of shards). Tasks spawned there run in the next
    /// [`SimRuntime::block_on`] or [`SimRuntime::run_for`].
    #[must_use]
    pub fn shard(&self, number: u16) -> &Shard {
        // A topology has at least one shard.
        &self.seats[usize::from(number) % self.seats.len()].shard
    }

    /// Returns a handle to shard `shard` (taken modulo the number of shards), for code that also works with a real
    /// [`Runtime`](crate::Runtime).
    #[must_use]
    pub fn handle(&self, shard: u16) -> Handle {
        Handle::new(&self.topology, shard)
    }

    /// Returns a handle to all shards in turn, as [`Runtime::any_shard`](crate::Runtime::any_shard).
    #[must_use]
    pub fn any_shard(&self) -> Handle {
        Handle::to_any(&self.topology, (0..self.topology.shards()).collect())
    }

    /// Runs all shards until `future`, which runs on shard number `shard` (taken modulo their number), is ready.
    ///
    /// # Errors
    /// See [`SimError`]. The future is then dropped; the runtime can run others.
    pub fn block_on<T>(&self, shard: u16, future: impl Future<Output = T>) -> Result<T, SimError> {
        match self.run_main(shard, future, u64::MAX)? {
            End::Ready(value) => Ok(value),
            // `u64::MAX` operations never land.
            End::Landed | End::Idle => Err(self.deadlock()),
        }
    }

    /// Runs as [`SimRuntime::block_on`], but returns `None` if `landed` operations have landed on the disks of the
    /// world ([`SimWorld::landed`] counts them from the world's beginning) before the future is ready. No further
    /// operation has landed, not even one that was due at the same instant. The shards have had their turn, so the
    /// consequences of the last operation are in flight already; a crash now tears them or not, at random. The future
    /// is dropped: crash the world ([`SimRuntime::crash`]), or run others.
    ///
    /// To crash at every point of `work`, run it in a new world for each `landed` in turn, until it returns `Some`:
    /// ```
    /// use plimsoll::backend::OpenOptions;
    /// use plimsoll::backend::sim::{SimConfig, SimWorld};
    /// use plimsoll::buffer::AlignedBuf;
    /// use plimsoll::{Class, Classes, DiskSetup, SimRuntime, Topology};
    ///
    /// let mut points = 0;
    /// for landed in 0.. {
    ///     let world = SimWorld::new(&SimConfig { seed: landed, ..SimConfig::default() })?;
    ///     let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()])?;
    ///     let runtime = SimRuntime::new(&world, &topology)?;
    ///     let create = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
    ///     let (shard, file) = (runtime.shard(0).clone(), topology.file("data".as_ref(), create, 0));
    ///     let block = AlignedBuf::new(4096)?;
    ///     let work = async {
    ///         shard.write_at(&file, Class::DEFAULT, 0, block).await.0?;
    ///         shard.sync(&file, Class::DEFAULT, false).await
    ///     };
    ///     let end = runtime.block_on_until_landed(0, work, landed)?;
    ///     runtime.crash();
    ///     // Here a new runtime would check the data that is left.
    ///     if end.is_some() {
    ///         break;
    ///     }
    ///     points += 1;
    /// }
    /// assert_eq!(points, 2, "before the write has landed, and before the sync has");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`SimError`]; also a deadlock if the future waits for ever.
    pub fn block_on_until_landed<T>(
        &self,
        shard: u16,
        future: impl Future<Output = T>,
        landed: u64,
    ) -> Result<Option<T>, SimError> {
        match self.run_main(shard, future, landed)? {
            End::Ready(value) => Ok(Some(value)),
            End::Landed => Ok(None),
            End::Idle => Err(self.deadlock()),
        }
    }

    /// Runs all shards with their spawned tasks until `landed` operations have landed on the disks of the world, as
    /// [`SimRuntime::block_on_until_landed`]. Returns `false` if no event is left before that.
    ///
    /// # Errors
    /// See [`SimError`]; [`SimError::TimeLimit`] if timers fire for ever and no operation follows.
    pub fn run_until_landed(&self, landed: u64) -> Result<bool, SimError> {
        let end = self.run_main(0, std::future::pending::<()>(), landed)?;
        Ok(matches!(end, End::Landed))
    }

    /// Runs until `future` is ready, `landed` operations have landed, or no event is left.
    fn run_main<T>(&self, shard: u16, future: impl Future<Output = T>, landed: u64) -> Result<End<T>, SimError> {
        let mut future = pin!(future);
        let mut run = Run::new(self);
        let seat = usize::from(shard) % self.seats.len();
        let end_ns = self.world.now_ns().saturating_add(PATIENCE_NS);
        loop {
            let poll = |context: &mut Context<'_>| future.as_mut().poll(context);
            if let Some(value) = run.finish_instant(seat, poll)? {
                return Ok(End::Ready(value));
            }
            if self.world.landed() >= landed {
                return Ok(End::Landed);
            }

            match run.next_instant_ns() {
                Some(at_ns) if at_ns <= end_ns => run.advance_to(at_ns, landed),
                Some(_) => return Err(SimError::TimeLimit { at_ns: self.world.now_ns() }),
                None => return Ok(End::Idle),
            }
        }
    }

    fn deadlock(&self) -> SimError {
        SimError::Deadlock { at_ns: self.world.now_ns(), shards: self.waiting_shards() }
    }

    /// Runs all shards for this much virtual time. A run without an event is not an error.
    ///
    /// # Errors
    /// See [`SimError`].
    pub fn run_for(&self, how_long: Duration) -> Result<(), SimError> {
        let nanos = u64::try_from(how_long.as_nanos()).unwrap_or(u64::MAX);
        let end_ns = self.world.now_ns().saturating_add(nanos);
        let mut run = Run::new(self);
        loop {
            let _: Option<()> = run.finish_instant(0, |_| Poll::Pending)?;
            match run.next_instant_ns().filter(|at_ns| *at_ns <= end_ns) {
                Some(at_ns) => run.advance_to(at_ns, u64::MAX),
                None => break,
            }
        }
        run.advance_to(end_ns, u64::MAX);
        Ok(())
    }

    /// Crashes the world as a power failure does (see [`SimWorld::crash`]) and drops the shards with their tasks.
    pub fn crash(self) {
        self.world.crash();
    }

    fn waiting_shards(&self) -> Vec<String> {
        let each = self.seats.iter().map(|seat| {
            let reactor = seat.shard.reactor();
            let number = reactor.shard();
            match (reactor.under_way(), reactor.in_backend()) {
                (0, _) => format!("shard {number} waits for somebody to wake it, with no request and no timer"),
                (requests, pieces) => {
                    format!("shard {number} waits for {requests} requests, {pieces} pieces of them in the disk")
                }
            }
        });
        each.collect()
    }
}

impl Drop for SimRuntime {
    fn drop(&mut self) {
        // All tasks are dropped before the first shard: a task may hold any shard.
        self.seats.iter().for_each(|seat| seat.shard.drop_tasks());
    }
}

/// How a run ended.
enum End<T> {
    /// The main future is ready.
    Ready(T),
    /// The requested number of operations has landed.
    Landed,
    /// No event is left.
    Idle,
}

/// A run of the loops of all shards.
struct Run<'a> {
    runtime: &'a SimRuntime,
    turns: Vec<Turns<'a>>,
    /// Whether a shard has not yet had a turn in this run, so that its next event is unknown.
    is_fresh: Vec<bool>,
}

impl<'a> Run<'a> {
    fn new(runtime: &'a SimRuntime) -> Run<'a> {
        let turns = runtime.seats.iter().map(|seat| Turns::new(&seat.shard)).collect();
        Run { runtime, turns, is_fresh: vec![true; runtime.seats.len()] }
    }

    /// Gives turns until no shard has work at this instant, or the main future, polled on `main_seat`, is ready.
    fn finish_instant<T>(
        &mut self,
        main_seat: usize,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Result<Option<T>, SimError> {
        for _ in 0..TURNS_AT_ONE_INSTANT {
            let mut last = None;
            for seat in 0..self.turns.len() {
                if self.has_nothing_to_do(seat) {
                    continue;
                }
                let polled =
                    if seat == main_seat { self.turn(seat, &mut poll)? } else { self.turn(seat, |_| Poll::Pending)? };
                if let Poll::Ready(value) = polled {
                    return Ok(Some(value));
                }
                last = Some(seat);
            }
            if last.is_none() {
                return Ok(None);
            }
        }

        let shard = (0..self.turns.len()).rfind(|seat| !self.has_nothing_to_do(*seat)).unwrap_or(0) as u16;
        Err(SimError::Livelock { at_ns: self.runtime.world.now_ns(), shard })
    }

    fn has_nothing_to_do(&self, seat: usize) -> bool {
        let is_idle = |seat: &Seat| self.runtime.world.shared().machine().is_idle(seat.member);
        !self.is_fresh[seat] && !self.turns[seat].is_rung() && self.runtime.seats.get(seat).is_some_and(is_idle)
    }

    fn turn<T>(&mut self, seat: usize, poll: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Result<Poll<T>, SimError> {
        self.is_fresh[seat] = false;
        let _noted = Noted::new(&self.runtime.world, self.runtime.seats[seat].member);
        self.runtime.seats[seat].shard.has_slept();
        self.turns[seat].turn(poll).map_err(SimError::Backend)
    }

    /// Returns the time of the next event: the present time only if an earlier run stopped before all events of this
    /// instant.
    fn next_instant_ns(&self) -> Option<u64> {
        self.runtime.world.shared().machine().next_instant_ns()
    }

    /// Moves the clock. Once `enough` operations have landed, no further one lands.
    fn advance_to(&self, at_ns: u64, enough: u64) {
        self.runtime.world.shared().machine().advance_until_landed(at_ns, enough);
    }
}

/// A guard: while it lives, a shard's wait is only recorded and does not move the clock.
struct Noted<'a> {
    world: &'a SimWorld,
    before: Pace,
}

impl<'a> Noted<'a> {
    fn new(world: &'a SimWorld, member: usize) -> Noted<'a> {
        let mut machine = world.shared().machine();
        machine.begin_turn(member);
        let before = std::mem::replace(&mut machine.pace, Pace::Noted);
        Noted { world, before }
    }
}

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        self.world.shared().machine().pace = self.before;
    }
}
