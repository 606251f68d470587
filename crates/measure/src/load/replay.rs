//! Replay: the requests of a trace again, at the times at which they came.
//!
//! # Why
//! What a program asked of a disk, in its own rhythm, is the load that matters to it. Job files only resemble it.
//!
//! # How it works
//! The trace is read twice. [`Survey::read`] finds what there is in it: classes, files, sums. Then [`replay`] reads it
//! again on a thread of its own (`feed`), which puts requests in order and deals them to the shards through bounded
//! channels; each shard (`shard`) sends what is due:
//!
//! ```text
//! due = begin of the replay + (queued in the trace - first queued in the trace) / speed
//! ```
//!
//! It is an open loop: a request is sent when it is due, whatever has become of those before it, and its latency counts
//! from when it was due. How late requests were sent is kept beside it. With [`Speed::Max`] nothing is due: each shard
//! keeps [`MAX_SPEED_DEPTH`] requests under way, in the order of the trace.
//!
//! Requests go where [`Places`] says: the files (in a kernel trace the disks) of the trace one behind another on the
//! one file or device of the replay, from its beginning again where it ends, widened to what direct I/O asks for.
//! Shard number
//! `n` of the trace is shard `n` modulo the shards of the replay.
//!
//! # Limits
//! At most [`UNDER_WAY_MAX`] requests and [`UNDER_WAY_MAX_BYTES`] are under way on a shard: what is due then waits,
//! and is counted as late. Requests above [`REQUEST_MAX_BYTES`] are cut. Allocations are left out. A shard that cannot
//! keep up holds up the others once it is some ten thousand requests behind.
//!
//! # Example
//! A request that was queued 2 s after the first of its trace is due 1 s after the beginning with a speed of 2.

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
pub use self::survey::{ClassSurvey, Survey};
use plimsoll_observe::trace::TraceError;
use serde::Serialize;

use super::crew::Crew;
use super::{Control, LoadError, RunResult};

/// Requests that each shard keeps under way where nothing is due.
pub const MAX_SPEED_DEPTH: usize = 256;
/// Most requests under way on a shard.
pub const UNDER_WAY_MAX: usize = 32_768;
/// Most bytes of reads and writes under way on a shard, unless a single request has more.
pub const UNDER_WAY_MAX_BYTES: u64 = 256 << 20;
/// Longest read or write in bytes.
pub const REQUEST_MAX_BYTES: u32 = 64 << 20;

/// How fast.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Speed {
    /// So many times as fast as the trace: above 0.
    Times(f64),
    /// As fast as it goes.
    Max,
}

impl Speed {
    /// Reads `2`, `0.5` or `max`.
    ///
    /// # Errors
    /// Anything else, and numbers outside 0.001 to 100000.
    pub fn parse(text: &str) -> Result<Speed, String> {
        if text == "max" {
            return Ok(Speed::Max);
        }
        match text.parse::<f64>() {
            Ok(times) if (1e-3..=1e5).contains(&times) => Ok(Speed::Times(times)),
            _ => Err("give a number from 0.001 to 100000 (2: twice as fast), or `max`".to_owned()),
        }
    }

    /// The time that `ns` of the trace take.
    fn stretch(self, ns: u64) -> u64 {
        match self {
            Speed::Times(times) => (ns as f64 / times) as u64,
            Speed::Max => 0,
        }
    }
}

/// A class of a replay.
#[derive(Clone, Debug)]
pub struct ReplayClass {
    /// Its name in the result.
    pub name: String,
    /// What its requests go in.
    pub class: Class,
}

/// What to replay, and how.
#[derive(Clone)]
pub struct ReplayPlan {
    /// The trace. It has been surveyed.
    pub trace: PathBuf,
    /// What is in it.
    pub survey: Arc<Survey>,
    /// How fast.
    pub speed: Speed,
    /// Classes of the replay; at least one.
    pub classes: Vec<ReplayClass>,
    /// For each class number of the trace its place in `classes`; others go into the last one.
    pub class_at: std::collections::BTreeMap<u16, usize>,
    /// Only reads: whatever changes the target is left out.
    pub reads_only: bool,
    /// Ends so long after its beginning, in ns; `None`: with the trace.
    pub duration_ns: Option<u64>,
    /// Shards, disk, classes.
    pub topology: Topology,
    /// Backend and threads.
    pub options: ShardOptions,
    /// The file or device, for each shard its own handle.
    pub files: Vec<Arc<SharedFile>>,
    /// How much of it is used, in bytes from its beginning.
    pub target_bytes: u64,
    /// Seed of what is written.
    pub seed: u64,
}

/// What became of the requests of a class.
#[derive(Clone, Debug, Default)]
pub struct ReplayCounts {
    /// From when a request was due to when it was sent, in ns.
    pub lateness: Box<Histogram>,
    /// Latency in the trace of those that completed here and there, in ns.
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

/// What became of the requests of a trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ReplayTotals {
    /// Sent.
    pub issued: u64,
    /// Left out: they would have changed the target.
    pub not_allowed: u64,
    /// Left out: allocations, and reads and writes without a length.
    pub not_replayable: u64,
    /// Not sent, because the run was stopped, its time was over, or no more may be written.
    pub not_reached: u64,
    /// Sent to another place than the trace's, because the target ends before it.
    pub wrapped: u64,
    /// Sent longer or further ahead than in the trace, because direct I/O asks for it.
    pub widened: u64,
    /// Sent shorter than in the trace.
    pub cut: u64,
    /// Waited for room: too much was under way when they were due.
    pub waited_for_room: u64,
    /// Given away by the reader after one that was queued later.
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

/// What a replay measured.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// As of any run: a job for each class.
    pub run: RunResult,
    /// By class, in the order of the plan.
    pub counts: Vec<ReplayCounts>,
    /// Of all.
    pub totals: ReplayTotals,
}

/// Why a trace cannot be replayed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// It cannot be read; with its path.
    #[error("{path}: {error}")]
    Trace {
        /// The trace.
        path: String,
        /// Why.
        error: TraceError,
    },
    /// Standard input cannot be read twice.
    #[error("a replay reads the trace twice: name a file instead of standard input")]
    Stdin,
    /// There is nothing in it that could be sent again.
    #[error("{path}: nothing to replay: {reason}")]
    Nothing {
        /// The trace.
        path: String,
        /// What was found instead.
        reason: String,
    },
    /// The run itself.
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// Runs a replay to its end, or until `control` says stop.
///
/// # Errors
/// See [`ReplayError`].
pub fn replay(plan: &ReplayPlan, control: &Control) -> Result<Replayed, ReplayError> {
    let crew = Arc::new(Crew::new(plan.topology.shards()));
    let (feed, receivers) = feed::start(plan);
    // Each shard takes its own.
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
    for (end, choice) in ends {
        let end = end?;
        run.shards.push(end.result);
        run.backend.get_or_insert(choice);
        counts.iter_mut().zip(&end.counts).for_each(|(all, mine)| all.merge(mine));
        totals.add(&end.totals);
    }
    // A reader whose shards have gone has nobody to read for: its end is not waited for.
    if !control.stop.is_asked() && plan.duration_ns.is_none() {
        let fed = feed.join().map_err(|_| ReplayError::Nothing {
            path: plan.trace.display().to_string(),
            reason: "reading it broke".to_owned(),
        })?;
        let unordered = fed.map_err(|error| ReplayError::Trace { path: plan.trace.display().to_string(), error })?;
        totals.unordered = unordered;
    }
    Ok(Replayed { run, counts, totals })
}
