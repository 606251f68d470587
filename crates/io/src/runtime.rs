//! Shards on threads, and handles to them for any other code.
//!
//! # Why
//! A program starts its shards once, then uses the disks from anywhere: natively on a shard, or from any async code
//! (Tokio, smol, a plain `block_on`) through a [`Handle`].
//!
//! # How it works
//! [`run_shards`] starts one pinned thread per shard and gives each its [`Reactor`]; the caller provides the code that
//! runs there. A [`Runtime`] runs a [`Shard`] on each, which takes requests and jobs from handles.
//!
//! A pinned shard needs its CPU. If other threads are busy, keep them on [`Runtime::other_cpus`]
//! ([`sys::pin::restrict_current_thread`], from Tokio's `on_thread_start`), or do not pin ([`ShardOptions::pin`]).
//!
//! # Limits
//! Requests that are still queued when a runtime stops are not carried out: first await those that must be.
//!
//! At most as many pinned shards as CPUs that the process may use. [`Runtime::stop`] blocks the calling thread until
//! the shards have stopped; from async code use [`Runtime::shutdown`]. A disk that hangs keeps its shard from ending:
//! [`Runtime::stop_within`] and [`Runtime::shutdown_within`] bound the wait. Dropping a runtime does not wait.
//!
//! # Example
//! ```
//! use plimsoll::backend::OpenOptions;
//! use plimsoll::backend::choose::BackendKind;
//! use plimsoll::buffer::AlignedBuf;
//! use plimsoll::{Classes, DiskSetup, Runtime, ShardOptions, Topology};
//!
//! let classes = Classes::new();
//! let query = classes.add_class("query", None, 100)?;
//! let topology = Topology::new(1, classes, vec![DiskSetup::unlimited()])?;
//! let options = ShardOptions { backend: Some(BackendKind::Memory), ..ShardOptions::default() };
//! let runtime = Runtime::start(&topology, &options)?;
//! let how = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
//! let file = topology.file("table".as_ref(), how, 0);
//! let handle = runtime.handle(0);
//! let write = handle.write_at(&file, query, 0, AlignedBuf::new(4096)?);
//! // Any executor works; this is the smallest one.
//! let (written, _) = async_io_free_block_on(write);
//! assert_eq!(written?, 4096);
//! # fn async_io_free_block_on<T>(f: impl std::future::Future<Output = T>) -> T {
//! #     let mut f = std::pin::pin!(f);
//! #     let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
//! #     loop { if let std::task::Poll::Ready(v) = f.as_mut().poll(&mut cx) { return v } std::thread::yield_now() }
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod ended;

use std::io;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use futures_channel::oneshot;

use crate::backend::Backend;
use crate::backend::choose::{BackendKind, Choice, OpenBackendError, probe};
use crate::backend::memory::MemoryBackend;
use crate::handle::Handle;
use crate::placement::cpus_of_shards;
use crate::reactor::{Reactor, ReactorError};
use crate::shard::Shard;
use crate::sys;
use crate::topology::Topology;
pub use ended::{EndReason, Ended, ShardEnd};
use ended::{Ending, FirstEnd};

/// Options for starting the threads of the shards.
#[derive(Clone, Debug)]
pub struct ShardOptions {
    /// The backend; `None` takes the best one that the machine allows, and records why.
    pub backend: Option<BackendKind>,
    /// Operations that a backend takes at once (clamped to 1 to 32768).
    pub entries: u32,
    /// Whether to pin each shard to its own CPU. If so, keep other threads of the program, such as Tokio's workers, on
    /// [`Runtime::other_cpus`].
    pub pin: bool,
}

impl Default for ShardOptions {
    fn default() -> ShardOptions {
        ShardOptions { backend: None, entries: 1024, pin: true }
    }
}

/// Why shards could not be started.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// More shards than CPUs.
    TooManyShards {
        /// Shards requested.
        shards: u16,
        /// CPUs that the process may use.
        cpus: usize,
    },
    /// Gates have the places of all shards.
    OnlyGates,
    /// The backend could not be opened.
    Backend(OpenBackendError),
    /// The system refused a thread or its CPU affinity.
    System(io::Error),
    /// The topology's shards are running already, or have not stopped yet.
    Shard(ReactorError),
    /// The code on a shard panicked.
    Panicked {
        /// The shard.
        shard: u16,
    },
    /// The shards have not stopped in time: one of their operations, or code on a shard, has not ended.
    StillRunning,
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StartError::TooManyShards { shards, cpus } => write!(
                f,
                "{shards} shards on {cpus} CPUs: a shard is a thread that owns its CPU; ask for at most {cpus} (or run \
                 without pinning)"
            ),
            StartError::OnlyGates => write!(
                f,
                "gates have the places of all shards: make a topology with one shard for each gate and more for the runtime"
            ),
            StartError::Backend(error) => error.fmt(f),
            StartError::System(error) => write!(f, "cannot start a shard: {error}"),
            StartError::Shard(error) => error.fmt(f),
            StartError::Panicked { shard } => write!(f, "the code running on shard {shard} panicked"),
            StartError::StillRunning => write!(
                f,
                "the shards are still running: an operation of theirs has not come back from the kernel, or code on them \
                 does not end"
            ),
        }
    }
}

impl std::error::Error for StartError {}

/// Runs `body` on a thread for each shard of `topology`, each with its own reactor, and returns the results in the
/// order of the shards, without those whose place a gate holds. `body` also gets the chosen backend and the reason for
/// the choice.
///
/// # Errors
/// See [`StartError`]; either all shards run or none does.
pub fn run_shards<R: Send + 'static>(
    topology: &Topology,
    options: &ShardOptions,
    body: impl Fn(Reactor, &Choice) -> R + Send + Clone + 'static,
) -> Result<Vec<R>, StartError> {
    join(start_threads(topology, options, body)?.threads)
}

/// The number of a shard, and its thread.
type ShardThread<R> = (u16, JoinHandle<Option<R>>);

struct Started<R> {
    threads: Vec<ShardThread<R>>,
    /// The first shard's backend.
    choice: Choice,
    /// The CPU of each shard; empty without pinning.
    cpus: Vec<usize>,
}

fn start_threads<R: Send + 'static>(
    topology: &Topology,
    options: &ShardOptions,
    body: impl Fn(Reactor, &Choice) -> R + Send + Clone + 'static,
) -> Result<Started<R>, StartError> {
    let shards: Vec<u16> = (0..topology.shards()).filter(|shard| !topology.mailboxes().has_gate(*shard)).collect();
    if shards.is_empty() {
        return Err(StartError::OnlyGates);
    }
    let cpus = if options.pin { cpus_to_pin(topology, &shards)? } else { Vec::new() };
    let mut waiting = Waiting { starts: Vec::new(), threads: Vec::new() };
    match make_shards(topology, options, body, (&shards, &cpus), &mut waiting) {
        Ok(choice) => Ok(Started { threads: waiting.start(), choice, cpus }),
        Err(error) => {
            waiting.give_up();
            Err(error)
        }
    }
}

/// Threads of shards that wait for their start.
struct Waiting<R> {
    starts: Vec<mpsc::Sender<()>>,
    threads: Vec<ShardThread<R>>,
}

impl<R> Waiting<R> {
    fn start(self) -> Vec<ShardThread<R>> {
        for start in self.starts {
            // If a thread has ended meanwhile, its join reports that.
            let _ = start.send(());
        }
        self.threads
    }

    /// Ends all threads. When this returns, the places of their shards are free.
    fn give_up(self) {
        drop(self.starts);
        for (_, thread) in self.threads {
            let _ = thread.join();
        }
    }
}

/// Makes each shard's thread and reactor. Returns the first shard's backend once all threads wait for their start.
fn make_shards<R: Send + 'static>(
    topology: &Topology,
    options: &ShardOptions,
    body: impl Fn(Reactor, &Choice) -> R + Send + Clone + 'static,
    (shards, cpus): (&[u16], &[usize]),
    waiting: &mut Waiting<R>,
) -> Result<Choice, StartError> {
    // Each shard reports that it is ready, then waits until all are.
    let (ready, readiness) = mpsc::channel::<Result<(u16, Choice), StartError>>();
    let world = World::new(options).map_err(StartError::System)?;

    for (at, shard) in shards.iter().copied().enumerate() {
        let (topology, options, body, ready) = (topology.clone(), options.clone(), body.clone(), ready.clone());
        let world = world.clone();
        let cpu = cpus.get(at).copied();
        let (start, started) = mpsc::channel::<()>();
        waiting.starts.push(start);

        let run = move || match make_reactor(shard, &topology, &options, &world, cpu) {
            Ok((reactor, choice)) => {
                let _ = ready.send(Ok((shard, choice.clone())));
                drop(ready);
                started.recv().ok().map(|()| body(reactor, &choice))
            }
            Err(error) => {
                let _ = ready.send(Err(error));
                None
            }
        };

        let thread = std::thread::Builder::new().name(format!("shard-{shard}")).spawn(run);
        waiting.threads.push((shard, thread.map_err(StartError::System)?));
    }

    // Only the threads hold senders now, so `recv` fails if a thread panics.
    drop(ready);

    let lowest = shards.first().copied().unwrap_or(0);
    let mut first = None;
    for _ in shards {
        let (shard, choice) = readiness.recv().map_err(|_| StartError::Panicked { shard: lowest })??;
        first = first.or((shard == lowest).then_some(choice));
    }

    // All shards have answered, including the first.
    first.ok_or(StartError::Panicked { shard: lowest })
}

/// Returns a CPU for each of `shards`, on the node that the topology assigns to the shard.
fn cpus_to_pin(topology: &Topology, shards: &[u16]) -> Result<Vec<usize>, StartError> {
    let mut cpus = sys::pin::allowed_cpus_by_node().map_err(StartError::System)?;
    sys::pin::put_interrupted_first(&mut cpus);
    let too_many =
        || StartError::TooManyShards { shards: shards.len() as u16, cpus: cpus.values().map(Vec::len).sum() };
    let nodes: Vec<u16> =
        shards.iter().filter_map(|shard| topology.nodes().get(usize::from(*shard)).copied()).collect();
    cpus_of_shards(&nodes, &cpus).ok_or_else(too_many)
}

fn make_reactor(
    shard: u16,
    topology: &Topology,
    options: &ShardOptions,
    world: &World,
    cpu: Option<usize>,
) -> Result<(Reactor, Choice), StartError> {
    if let Some(cpu) = cpu {
        sys::pin::pin_current_thread(cpu).map_err(StartError::System)?;
    }

    sys::pin::sharpen_timers().map_err(StartError::System)?;
    let (backend, choice) = match options.backend {
        // One memory for all shards: writes of one are visible to the others.
        Some(kind @ BackendKind::Memory) => {
            let backend = MemoryBackend::new(topology.memory()).map_err(StartError::System)?;
            (Box::new(backend) as Box<dyn Backend>, Choice { kind, reason: "asked for by name".to_owned() })
        }
        preference => match world.backend(options) {
            Some(made) => made,
            None => probe(preference, options.entries).map_err(StartError::Backend)?,
        },
    };
    Ok((Reactor::new(shard, topology, backend).map_err(StartError::Shard)?, choice))
}

/// The world that all shards of one start share, if their backend is the simulator.
#[derive(Clone)]
struct World {
    #[cfg(feature = "sim")]
    world: Option<crate::backend::sim::SimWorld>,
}

#[cfg(feature = "sim")]
impl World {
    fn new(options: &ShardOptions) -> io::Result<World> {
        let is_wanted = options.backend == Some(BackendKind::Sim);
        Ok(World { world: is_wanted.then(crate::backend::choose::default_world).transpose()? })
    }

    fn backend(&self, options: &ShardOptions) -> Option<(Box<dyn Backend>, Choice)> {
        let backend = Box::new(self.world.as_ref()?.backend(options.entries));
        Some((backend, Choice { kind: BackendKind::Sim, reason: "asked for by name".to_owned() }))
    }
}

#[cfg(not(feature = "sim"))]
impl World {
    fn new(_: &ShardOptions) -> io::Result<World> {
        Ok(World {})
    }

    fn backend(&self, _: &ShardOptions) -> Option<(Box<dyn Backend>, Choice)> {
        None
    }
}

fn join<R>(threads: Vec<ShardThread<R>>) -> Result<Vec<R>, StartError> {
    // Join all threads first: when this returns, no shard is running.
    let ends: Vec<_> = threads.into_iter().map(|(shard, thread)| (shard, thread.join().ok().flatten())).collect();
    ends.into_iter().map(|(shard, end)| end.ok_or(StartError::Panicked { shard })).collect()
}

/// Running shards. Dropping a runtime stops them without waiting: each thread ends once its operations in flight have
/// completed. The topology can be started again only after that; to wait for it, use [`Runtime::stop`] or
/// [`Runtime::shutdown`].
pub struct Runtime {
    topology: Topology,
    /// The threads in the order of the shards, without those whose place a gate holds.
    threads: Vec<ShardThread<io::Result<()>>>,
    backend: Choice,
    other_cpus: Vec<usize>,
    first_end: FirstEnd,
    /// The threads share the sender, so this resolves when the last thread has ended.
    ended: oneshot::Receiver<()>,
}

impl Runtime {
    /// Starts a thread with a [`Shard`] for each shard of `topology` whose place no gate holds. After an error no shard
    /// runs, and the topology can be started again.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(topology: &Topology, options: &ShardOptions) -> Result<Runtime, StartError> {
        let (running, ended) = oneshot::channel();
        let running = Arc::new(running);
        let first_end = FirstEnd::default();
        let first = first_end.clone();
        let body = move |reactor: Reactor, _: &Choice| {
            let _running = Arc::clone(&running);
            let mut ending = Ending::new(&first, reactor.shard());
            let result = Shard::new(reactor).run_beside_others();
            ending.set(&result);
            result
        };
        // First: an error after the start would leave shards running.
        let mut other_cpus = sys::pin::allowed_cpus().map_err(StartError::System)?;
        let Started { threads, choice, cpus } = start_threads(topology, options, body)?;
        other_cpus.retain(|cpu| !cpus.contains(cpu));
        Ok(Runtime { topology: topology.clone(), threads, backend: choice, other_cpus, first_end, ended })
    }

    /// Returns a future that resolves when the first shard has ended, or at once if one has: a shard ends by itself if
    /// its backend breaks down, if code on it stops it, or panics outside of a task. It resolves at the end of the
    /// runtime, too.
    ///
    /// Requests to that shard fail with `BrokenPipe`; the other shards continue. To go on with all of them, stop this
    /// runtime and start another on the same topology: its handles and files serve the new shards.
    ///
    /// ```
    /// # use plimsoll::backend::choose::BackendKind;
    /// # use plimsoll::{Classes, DiskSetup, EndReason, Runtime, ShardOptions, Topology};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let topology = Topology::new(2, Classes::new(), vec![DiskSetup::unlimited()])?;
    /// # let options = ShardOptions { backend: Some(BackendKind::Memory), pin: false, ..ShardOptions::default() };
    /// let mut runtime = Runtime::start(&topology, &options)?;
    /// # runtime.handle(1).spawn(|shard| async move { shard.stop() })?;
    /// let end = runtime.ended().await;
    /// eprintln!("{end}: starting all shards anew");
    /// // The error is that of the shard that has ended.
    /// let _ = runtime.shutdown().await;
    /// runtime = Runtime::start(&topology, &options)?;
    /// # assert_eq!((end.shard, end.reason), (1, EndReason::Stopped));
    /// # Ok(runtime.shutdown().await?)
    /// # }
    /// ```
    pub fn ended(&self) -> Ended {
        Ended::new(&self.first_end)
    }

    /// Returns the backend of the first shard, and the reason for the choice.
    #[must_use]
    pub fn backend(&self) -> &Choice {
        &self.backend
    }

    /// Returns the CPUs that the process may use and no shard is pinned to, ascending: all of them without pinning,
    /// none if each has a shard.
    #[must_use]
    pub fn other_cpus(&self) -> &[usize] {
        &self.other_cpus
    }

    /// Returns a handle to shard `shard` (taken modulo the number of shards), for use from any thread. If a gate holds
    /// the place of the shard, requests end with `BrokenPipe`.
    #[must_use]
    pub fn handle(&self, shard: u16) -> Handle {
        Handle::new(&self.topology, shard)
    }

    /// Returns a handle to all shards in turn, for use from any thread by code that needs no particular shard. Its
    /// clones share the turns. A shard that has ended gets no turn while another runs.
    #[must_use]
    pub fn any_shard(&self) -> Handle {
        Handle::to_any(&self.topology, self.shards().collect())
    }

    /// Stops the shards at the end of their present turn and blocks this thread until they have stopped. Pieces that
    /// are in a device then are completed, and their futures get the results. Queued requests end with `BrokenPipe`: if
    /// you need them, await them first.
    ///
    /// # Errors
    /// The first error that ended a shard earlier, [`StartError::Panicked`] included. On one of these shards, which
    /// cannot wait for its own end: [`StartError::StillRunning`], at once.
    pub fn stop(mut self) -> Result<(), StartError> {
        let own = std::thread::current().id();
        if self.threads.iter().any(|(_, thread)| thread.thread().id() == own) {
            // The drop of the runtime orders the shards to stop.
            return Err(StartError::StillRunning);
        }
        self.tell_to_stop();
        self.join()
    }

    /// Stops the shards as [`Runtime::stop`], for async code: blocks no thread while the shards end. Queued requests
    /// end with `BrokenPipe`, too. A task of one of these shards that awaits this ends with its shard.
    ///
    /// # Errors
    /// As [`Runtime::stop`].
    pub async fn shutdown(mut self) -> Result<(), StartError> {
        self.tell_to_stop();
        // Nothing is ever sent; this resolves when the senders are dropped.
        let _ = (&mut self.ended).await;
        self.join()
    }

    /// Stops the shards as [`Runtime::stop`], but waits at most `limit` for them. Shards that have not stopped by then
    /// do so when the kernel completes the last of their operations: until then their buffers and files stay, and the
    /// topology cannot be started again.
    ///
    /// # Errors
    /// As [`Runtime::stop`]; [`StartError::StillRunning`] after `limit`.
    pub fn stop_within(self, limit: Duration) -> Result<(), StartError> {
        let (end, ended) = mpsc::channel();
        in_background(move || {
            // The caller may have stopped waiting.
            let _ = end.send(self.stop());
        })?;
        ended.recv_timeout(limit).unwrap_or(Err(StartError::StillRunning))
    }

    /// Stops the shards as [`Runtime::stop_within`], for async code: does not block the calling thread.
    ///
    /// # Errors
    /// As [`Runtime::stop_within`].
    pub async fn shutdown_within(self, limit: Duration) -> Result<(), StartError> {
        let (end, ended) = oneshot::channel();
        in_background(move || {
            // The caller may have dropped its future.
            let _ = end.send(self.stop_within(limit));
        })?;
        ended.await.unwrap_or(Err(StartError::StillRunning))
    }

    fn join(&mut self) -> Result<(), StartError> {
        let ends = join(std::mem::take(&mut self.threads))?;
        ends.into_iter().collect::<io::Result<()>>().map_err(StartError::System)
    }

    /// Orders the shards of this runtime to stop. A shard that had ended by itself may run again, in another runtime.
    fn tell_to_stop(&self) {
        for (shard, thread) in &self.threads {
            let own = thread.thread().id();
            let stop = move |shard: &Shard| {
                if std::thread::current().id() == own {
                    shard.stop();
                }
            };
            self.topology.mailboxes().send(*shard, Shard::job(stop));
        }
    }

    fn shards(&self) -> impl Iterator<Item = u16> + '_ {
        self.threads.iter().map(|(shard, _)| *shard)
    }
}

/// Runs `wait` on a new thread.
fn in_background(wait: impl FnOnce() + Send + 'static) -> Result<(), StartError> {
    let thread = std::thread::Builder::new().name("plimsoll-stop".to_owned());
    thread.spawn(wait).map(drop).map_err(StartError::System)
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            self.tell_to_stop();
        }
    }
}
