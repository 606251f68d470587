//! Replay: sends the requests of a trace again, at their recorded times.
//!
//! **Why.** The load that matters to a program is its own requests at their own times. Job files only resemble it.
//!
//! **How.** The trace is read twice. [`Survey::read`] finds its classes, files and sums. Then [`replay`] reads it again
//! on a thread of its own (`feed`), which puts requests in order and deals them to the shards through bounded channels;
//! each shard (`shard`) sends the requests that are due. A trace from a pipe is copied at the first reading. Then:
//!
//! ```text
//! due = begin of the replay + (queued in the trace - first queued in the trace) / speed
//! ```
//!
//! The loop is open: a request is sent when it is due, whatever happened to earlier ones, and its latency counts from
//! its due time. The delay of each send is recorded beside it. With [`Speed::Max`] there are no due times: each shard
//! keeps [`MAX_SPEED_DEPTH`] requests in flight, in the order of the trace.
//!
//! [`Places`] maps requests to the target: the files (in a kernel trace the disks) of the trace lie one after another
//! on the one file or device of the replay, wrap at its end, and requests are widened to what direct I/O requires.
//! Shard `n` of the trace is shard `n` modulo the shards of the replay.
//!
//! **Limits.** At most [`UNDER_WAY_MAX`] requests and [`UNDER_WAY_MAX_BYTES`] are in flight on a shard: beyond that,
//! due requests wait and count as late. Requests above [`REQUEST_MAX_BYTES`] are cut. Allocations are left out. A shard
//! that falls some ten thousand requests behind stops the others.
//!
//! **Example.** A request that was queued 2 s after the first of its trace is due 1 s after the beginning with a speed
//! of 2.

mod feed;
mod places;
mod shard;
mod survey;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll::core::Histogram;
use plimsoll::{Class, ShardOptions, SharedFile, Topology, run_shards};

pub use self::places::{Place, Places};
pub use self::survey::{ClassSurvey, Sums, Survey};
use plimsoll_observe::trace::TraceError;
use serde::Serialize;

use super::crew::Crew;
use super::{Control, LoadError, RunResult};

/// Requests that each shard keeps in flight at [`Speed::Max`].
pub const MAX_SPEED_DEPTH: usize = 256;
pub const UNDER_WAY_MAX: usize = 32_768;
/// Most bytes of reads and writes in flight on a shard, unless a single request has more.
pub const UNDER_WAY_MAX_BYTES: u64 = 256 << 20;
/// Longest read or write in bytes.
pub const REQUEST_MAX_BYTES: u32 = 64 << 20;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Speed {
    /// This many times as fast as the trace: above 0.
    Times(f64),
    /// As fast as the target serves.
    Max,
}

impl Speed {
    /// Parses `2`, `0.5` or `max`.
    ///
    /// # Errors
    /// A message for any other text, and for numbers outside 0.001 to 100000.
    pub fn parse(text: &str) -> Result<Speed, String> {
        if text == "max" {
            return Ok(Speed::Max);
        }
        match text.parse::<f64>() {
            Ok(times) if (1e-3..=1e5).contains(&times) => Ok(Speed::Times(times)),
            _ => Err("give a number from 0.001 to 100000 (2: twice as fast), or `max`".to_owned()),
        }
    }

    /// Returns the time that `ns` of the trace take in the replay.
    fn stretch(self, ns: u64) -> u64 {
        match self {
            Speed::Times(times) => (ns as f64 / times) as u64,
            Speed::Max => 0,
        }
    }
}

#[derive(Clone, Debug)]
pub struct ReplayClass {
    pub name: String,
    pub class: Class,
}

#[derive(Clone)]
pub struct ReplayPlan {
    /// The trace, already surveyed.
    pub trace: PathBuf,
    pub survey: Arc<Survey>,
    pub speed: Speed,
    /// Classes of the replay; at least one.
    pub classes: Vec<ReplayClass>,
    /// Index into `classes` by class number of the trace; other numbers use the last class.
    pub class_at: std::collections::BTreeMap<u16, usize>,
    /// Whether to send only reads, and leave out all that changes the target.
    pub reads_only: bool,
    /// Ends the replay this long after its beginning, in ns; `None`: with the trace.
    pub duration_ns: Option<u64>,
    /// Shards, disk, classes.
    pub topology: Topology,
    pub options: ShardOptions,
    /// A handle of the file or device for each shard.
    pub files: Vec<Arc<SharedFile>>,
    /// Length of the used part of the target, in bytes from its beginning.
    pub target_bytes: u64,
    pub seed: u64,
}

/// Times of the requests of a class.
#[derive(Clone, Debug, Default)]
pub struct ReplayCounts {
    /// Delay of a request's send after its due time, in ns.
    pub lateness: Box<Histogram>,
    /// Latency in the trace of requests that completed both there and here, in ns.
    pub original: Box<Histogram>,
    /// Latency here of the same requests, in ns.
    pub replayed: Box<Histogram>,
}

impl ReplayCounts {
    fn merge(&mut self, other: &ReplayCounts) {
        self.lateness.merge(&other.lateness);
        self.original.merge(&other.original);
        self.replayed.merge(&other.replayed);
    }
}

/// Counts of the requests of a trace by fate.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ReplayTotals {
    pub issued: u64,
    /// Requests left out because they would have changed the target.
    pub not_allowed: u64,
    /// Requests left out as allocations, or as reads and writes without a length.
    pub not_replayable: u64,
    /// Requests not sent because the run was stopped, its time was over, or the write bound was reached.
    pub not_reached: u64,
    /// Requests sent to another place than the trace's, because the target ends before it.
    pub wrapped: u64,
    /// Requests sent longer or further ahead than in the trace, as direct I/O requires.
    pub widened: u64,
    /// Requests sent shorter than in the trace.
    pub cut: u64,
    /// Requests that waited for room: too much was in flight when they were due.
    pub waited_for_room: u64,
    /// Requests that the reader returned after one that was queued later.
    pub unordered: u64,
}

impl ReplayTotals {
    fn add(&mut self, other: &ReplayTotals) {
        let ReplayTotals { issued, not_allowed, not_replayable, not_reached, wrapped, widened, cut, .. } = other;
        self.issued += issued;
        self.not_allowed += not_allowed;
        self.not_replayable += not_replayable;
        self.not_reached += not_reached;
        self.wrapped += wrapped;
        self.widened += widened;
        self.cut += cut;
        self.waited_for_room += other.waited_for_room;
        self.unordered += other.unordered;
    }
}

#[derive(Clone, Debug)]
pub struct Replayed {
    /// The result as of any run, with a job for each class.
    pub run: RunResult,
    /// Times by class, in the order of the plan.
    pub counts: Vec<ReplayCounts>,
    /// Counts over all classes.
    pub totals: ReplayTotals,
}

#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error("{path}: {error}")]
    Trace { path: String, error: TraceError },
    #[error("a replay reads the trace twice: name a file instead of standard input")]
    Stdin,
    #[error("{path}: nothing to replay: {reason}")]
    Nothing {
        path: String,
        /// The content of the trace.
        reason: String,
    },
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// Runs a replay to its end, or until `control` asks for the end.
pub fn replay(plan: &ReplayPlan, control: &Control) -> Result<Replayed, ReplayError> {
    let crew = Arc::new(Crew::new(plan.topology.shards()));
    let (feed, receivers) = feed::start(plan);
    // Each shard takes its own receiver.
    let receivers = Arc::new(Mutex::new(receivers));
    let shards = || {
        let (plan, control, crew) = (Arc::new(plan.clone()), control.clone(), Arc::clone(&crew));
        run_shards(&plan.topology.clone(), &plan.options.clone(), move |reactor, choice| {
            let mine = receivers.lock().unwrap_or_else(PoisonError::into_inner).remove(&reactor.shard());
            (shard::run(reactor, &plan, mine, &control, &crew), choice.clone())
        })
    };

    let ends = control.instruments.recording(&plan.topology, shards).map_err(LoadError::Start)?;

    let mut run = RunResult::default();
    let mut counts: Vec<ReplayCounts> = vec![ReplayCounts::default(); plan.classes.len()];
    let mut totals = ReplayTotals::default();
    let mut has_read_all = false;

    for (end, choice) in ends {
        let end = end?;
        run.shards.push(end.result);
        run.backend.get_or_insert(choice);
        counts.iter_mut().zip(&end.counts).for_each(|(all, mine)| all.merge(mine));
        totals.add(&end.totals);
        has_read_all |= end.has_read_all;
    }
    // If the replay ended early, the reader continues without a receiver: do not wait for it.
    if has_read_all {
        let fed = feed.join().map_err(|_| ReplayError::Nothing {
            path: plan.trace.display().to_string(),
            reason: "reading it broke".to_owned(),
        })?;
        let unordered = fed.map_err(|error| ReplayError::Trace { path: plan.trace.display().to_string(), error })?;
        totals.unordered = unordered;
    }
    Ok(Replayed { run, counts, totals })
}
