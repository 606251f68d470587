//! The load generator: jobs of closed and open loops, run natively on the shards.
//!
//! **Why.** `test`, `tune` and `demo` all need several streams of requests at once, through the scheduler, with
//! accurate latencies and as little CPU time of their own as possible.
//!
//! **How.** A [`Plan`] names the jobs, their regions on each shard, and the duration. [`run`] starts the shards; each
//! turns its reactor and drives *fibers*, one request (or batch) in flight each, without futures. All shards begin
//! together; requests that complete within the measured window count.
//!
//! A fiber with a rate measures latency from when its request was *due*, not from when it was sent: a stall of the
//! disk shows in every request that it delayed (no coordinated omission).
//!
//! **Limits.** At most 65 536 requests can be in flight on a shard, including those that the shard serves for others;
//! larger plans are refused. A fiber waits for its own batch, as io_tester's do: with a rate, `parallelism` bounds the
//! outstanding requests. The depth in the device is sampled at most once a millisecond.
//!
//! **Example.**
//!
//! ```
//! use plimsoll::backend::{OpenOptions, choose::BackendKind};
//! use plimsoll::{Class, Classes, DiskSetup, ShardOptions, Topology};
//! use plimsoll_load::{Control, JobSpec, Pattern, Plan, Target, run};
//!
//! let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()])?;
//! let file = topology.file("/any".as_ref(), OpenOptions::default(), 0);
//! let job = JobSpec::closed_loop("reads", Pattern::RandRead, 4096, 8, Class::DEFAULT)
//!     .on_shard(0, Target { file, offset: 0, len_bytes: 1 << 20 });
//! let options = ShardOptions { backend: Some(BackendKind::Null), ..ShardOptions::default() };
//! let plan = Plan { topology, options, jobs: vec![job], warmup_ns: 0, duration_ns: 2_000_000, seed: 1 };
//! let result = run(&plan, &Control::default())?;
//! assert!(result.total("reads").requests > 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![allow(missing_docs, reason = "the tools' own crate: a name that says all needs no line")]

mod access;
mod checked;
pub mod compressibility;
mod content;
mod control;
mod crew;
mod fiber;
mod floor;
mod job;
mod live;
mod pace;
mod pauses;
mod prepare;
mod record;
pub mod replay;
pub mod result;
mod runner;
mod scratch;
mod steady;
mod unlink;
mod verify;
mod work;

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use plimsoll::backend::sim::SimWorld;
use plimsoll::{Class, Reactor, ShardOptions, SharedFile, StartError, Topology, run_shards};
use plimsoll_sim::rng::Rng;

pub use access::{AccessError, AccessPicker};
pub use content::ContentMaker;
pub use control::{Control, Instruments, Stop, Traffic};
pub use live::LiveJob;
pub use plimsoll_files::jobs::{Access, Content, JobKind as Pattern, PauseDistribution, RateMin, Shape, SizeShare};
pub use record::{Recorded, TraceFile};
pub use result::{
    BlockFault, DirectionResult, Directions, FAULTS_MAX, FaultKind, Interval, JobResult, RunResult, ShardResult,
};
pub use scratch::{Scratch, ScratchError, fill_simulated};
pub use steady::{Steady, SteadyCriterion, SteadyStop};
pub use unlink::unlink_path;

/// The region that a job works on, for one shard.
#[derive(Clone, Debug)]
pub struct Target {
    /// The file. Make one for each shard: shards that share a file share its reference count.
    pub file: Arc<SharedFile>,
    pub offset: u64,
    /// Length of the region in bytes. An appending job starts over at its end.
    pub len_bytes: u64,
}

#[derive(Clone, Debug)]
pub struct JobSpec {
    pub name: String,
    /// Kind, size and timing of the requests; lengths are multiples of the file's alignment. A job dereferences to
    /// it.
    pub shape: Shape,
    pub class: Class,
    /// Whether sequential requests begin at the shard's part of the region instead of at its beginning, for shards
    /// that work on one file.
    pub staggered: bool,
    /// The region on each shard; `None` on shards where the job does not run.
    pub targets: Vec<Option<Target>>,
    /// Further regions on each shard: requests go to all in turn. Not of jobs that verify.
    pub more_targets: Vec<Vec<Target>>,
}

impl Deref for JobSpec {
    type Target = Shape;

    fn deref(&self) -> &Shape {
        &self.shape
    }
}

impl JobSpec {
    /// Returns a job of this shape that runs on no shard yet.
    pub fn new(name: &str, shape: Shape, class: Class) -> JobSpec {
        let (targets, more_targets) = (Vec::new(), Vec::new());
        JobSpec { name: name.to_owned(), shape, class, staggered: false, targets, more_targets }
    }

    /// Returns a job that sends the next request when the previous one has completed.
    pub fn closed_loop(name: &str, kind: Pattern, request_bytes: u32, parallelism: u32, class: Class) -> JobSpec {
        JobSpec::new(name, Shape::closed_loop(kind, request_bytes, parallelism), class)
    }

    pub fn shaped(mut self, change: impl FnOnce(&mut Shape)) -> JobSpec {
        change(&mut self.shape);
        self
    }

    /// Returns the job at a fixed rate: `requests_per_s` on each shard where it runs, divided over its fibers.
    pub fn at_rate(mut self, requests_per_s: f64, distribution: PauseDistribution) -> JobSpec {
        self.shape.requests_per_s_per_fiber = Some(requests_per_s / f64::from(self.parallelism.max(1)));
        self.shape.pause_distribution = distribution;
        self
    }

    /// Adds `shard` to the shards that run the job.
    pub fn on_shard(mut self, shard: u16, target: Target) -> JobSpec {
        let at = usize::from(shard);
        if self.targets.len() <= at {
            self.targets.resize(at + 1, None);
        }
        self.targets[at] = Some(target);
        self
    }

    /// Adds a region to those of the job on `shard`.
    pub fn and_on_shard(mut self, shard: u16, target: Target) -> JobSpec {
        let at = usize::from(shard);
        if self.more_targets.len() <= at {
            self.more_targets.resize(at + 1, Vec::new());
        }
        self.more_targets[at].push(target);
        self
    }

    /// Returns the further regions on `shard`.
    pub(crate) fn more_on(&self, shard: usize) -> &[Target] {
        self.more_targets.get(shard).map_or(&[], Vec::as_slice)
    }
}

/// The jobs of a run, and the machine and duration to run them with.
#[derive(Clone)]
pub struct Plan {
    /// Shards, disks and priority classes.
    pub topology: Topology,
    pub options: ShardOptions,
    /// The jobs. All run at the same time.
    pub jobs: Vec<JobSpec>,
    /// Nanoseconds that the jobs run before anything counts.
    pub warmup_ns: u64,
    pub duration_ns: u64,
    /// Seed of the positions and the Poisson gaps.
    pub seed: u64,
}

/// Observations of a run besides the figures of the whole window. The default has none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Watch {
    /// Length of the intervals of [`JobResult::intervals`] in nanoseconds. Lengths below 1 ms are taken as 1 ms; 0:
    /// no intervals.
    pub interval_ns: u64,
    /// If set, ends the run before its duration is over, as soon as it is steady.
    pub steady: Option<SteadyStop>,
}

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("job `{job}`: {error}")]
    Open { job: String, error: std::io::Error },
    /// A job's requests do not suit its file.
    #[error("job `{job}`: {reason}")]
    Unsuitable { job: String, reason: String },
    #[error(
        "job `{job}`: no memory for {requests} requests of {request_bytes} bytes: {error}; lower its parallelism, batch or reqsize"
    )]
    NoMemory {
        job: String,
        /// Requests in flight at once on a shard.
        requests: u64,
        request_bytes: u32,
        error: std::io::Error,
    },
    #[error("{path}: {error}")]
    Write { path: String, error: std::io::Error },
    #[error("the I/O backend broke: {0}")]
    Backend(std::io::Error),
}

/// Runs a plan to its end, or until `control` asks for the end.
pub fn run(plan: &Plan, control: &Control) -> Result<RunResult, LoadError> {
    run_watched(plan, &Watch::default(), control)
}

/// Runs a plan as [`run`] does, with the intervals of `watch`, and ends early when its criterion is met.
pub fn run_watched(plan: &Plan, watch: &Watch, control: &Control) -> Result<RunResult, LoadError> {
    control.instruments.recording(&plan.topology, || run_unrecorded(plan, watch, control))
}

/// Runs a plan on the simulated disks of `world`: one shard, on the calling thread, in virtual time. Ignores the
/// backend of the plan.
///
/// # Errors
/// See [`LoadError`]; [`LoadError::Start`] if the plan has more than one shard.
pub fn run_simulated(plan: &Plan, world: &SimWorld, control: &Control) -> Result<RunResult, LoadError> {
    let shards = plan.topology.shards();
    if shards != 1 {
        return Err(StartError::TooManyShards { shards, cpus: 1 }.into());
    }
    prepare::check_size(plan)?;
    let (crew, backend) = (crew::Crew::new(1), world.backend(plan.options.entries));
    let reactor = Reactor::new(0, &plan.topology, Box::new(backend)).map_err(StartError::Shard)?;
    // Nothing in virtual time may depend on the clock, so the run number is fixed.
    let shard = runner::run_shard(reactor, plan, 0, &Watch::default(), control, &crew)?;
    Ok(RunResult { shards: vec![shard], ..RunResult::default() })
}

/// Runs a plan as [`run_watched`] does, without recording it: preparation is no part of a measurement's trace.
fn run_unrecorded(plan: &Plan, watch: &Watch, control: &Control) -> Result<RunResult, LoadError> {
    prepare::check_size(plan)?;
    let crew = Arc::new(crew::Crew::new(plan.topology.shards()));
    control.instruments.board().clear(plan.topology.shards());

    let run_number = new_run_number();

    let (ends, steady) = std::thread::scope(|scope| {
        let (is_running, over) = std::sync::mpsc::channel();
        let watcher = watch.steady.map(|stop| {
            control.instruments.board().want();
            let crew = Arc::clone(&crew);
            scope.spawn(move || steady::watch(&stop, control.instruments.board(), &over, || crew.end()))
        });
        let (shared, watch, control, crew) = (Arc::new(plan.clone()), *watch, control.clone(), Arc::clone(&crew));
        let ends = run_shards(&plan.topology, &plan.options, move |reactor, choice| {
            let result = runner::run_shard(reactor, &shared, run_number, &watch, &control, &crew);
            (result, choice.clone())
        });
        drop(is_running);
        // The watcher does not panic; if it did, the run has no verdict on steadiness.
        (ends, watcher.and_then(|watcher| watcher.join().ok()))
    });

    let mut run = RunResult { steady, ..RunResult::default() };
    for (shard, choice) in ends? {
        run.shards.push(shard?);
        run.backend.get_or_insert(choice);
    }

    Ok(run)
}

/// Returns a number that no other run of any process has, from the clock, the process and a counter.
fn new_run_number() -> u64 {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let count = RUNS.fetch_add(1, Ordering::Relaxed);
    // If the clock is before 1970, the process and the counter have to do.
    let clock_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let parts = [u64::from(std::process::id()), count];
    parts.into_iter().fold(clock_ns, |number, part| Rng::new(number ^ part).next_u64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_have_different_numbers() {
        let numbers: std::collections::HashSet<u64> = (0..100).map(|_| new_run_number()).collect();
        assert_eq!(numbers.len(), 100);
    }
}
