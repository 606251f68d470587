//! Runs scenarios: several at a time, results in the order in which they were asked for.
//!
//! # Why
//! All named scenarios together take minutes; on two cores they take half of that, and nobody should see them in an
//! order that depends on the machine.
//!
//! # How it works
//! [`WORKERS`] threads take [`Task`]s from a common list; what is ready is handed on as soon as everything before it
//! is. A scenario that panics is one that failed, not the end of the others.
//!
//! # Limits
//! [`run_all`] returns early when it is asked to stop; what is under way then stays so until the process ends.
//!
//! # Example
//! See the module above.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use plimsoll_files::scenario::Scenario;
use plimsoll_sim::scenario;

use super::result::{Measured, RunResult};
use super::user;
use crate::load::Stop;

/// Threads that run scenarios.
pub const WORKERS: usize = 2;

/// How often a stop is looked for.
const PATIENCE: Duration = Duration::from_millis(50);

/// What is run.
#[derive(Clone, Debug)]
pub enum Subject {
    /// A scenario of the project.
    Named(scenario::Scenario),
    /// A scenario of a file.
    Own(Box<Scenario>),
}

impl Subject {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Subject::Named(scenario) => scenario.name,
            Subject::Own(scenario) => &scenario.name,
        }
    }

    /// What it shows; empty for a scenario of a file.
    #[must_use]
    pub fn title(&self) -> &str {
        match self {
            Subject::Named(scenario) => scenario.title,
            Subject::Own(_) => "",
        }
    }
}

/// One run.
#[derive(Clone, Debug)]
pub struct Task {
    /// What is run.
    pub subject: Subject,
    /// What a sweep changed in it: key and value.
    pub changes: Vec<(String, String)>,
    /// The seed.
    pub seed: u64,
}

/// What came out of one run.
#[derive(Clone, Debug)]
pub struct Finished {
    /// What was run.
    pub task: Task,
    /// What came out, or why nothing did.
    pub result: Result<RunResult, String>,
    /// How long it took, in real seconds.
    pub elapsed_s: f64,
}

impl Finished {
    /// Whether it ran, and no figure says no.
    #[must_use]
    pub fn passed(&self) -> bool {
        matches!(&self.result, Ok(result) if result.figures.iter().all(|figure| figure.passed() != Some(false)))
    }

    /// Figures that are as they should be, and figures with a target.
    #[must_use]
    pub fn figures_passed(&self) -> (usize, usize) {
        let judged = || self.result.iter().flat_map(|result| &result.figures).filter_map(Measured::passed);
        (judged().filter(|passed| *passed).count(), judged().count())
    }
}

/// Runs tasks; `on_ready` gets each result, in the order of `tasks`. What was not run when `stop` was asked is
/// left out.
pub fn run_all(tasks: Vec<Task>, stop: &Stop, on_ready: &mut dyn FnMut(&Finished)) -> Vec<Finished> {
    let count = tasks.len();
    let tasks = Arc::new(tasks);
    let next = Arc::new(AtomicUsize::new(0));
    let (sender, receiver) = mpsc::channel();
    for _ in 0..WORKERS.min(count) {
        let (tasks, next, sender, stop) = (Arc::clone(&tasks), Arc::clone(&next), sender.clone(), stop.clone());
        std::thread::spawn(move || {
            while !stop.is_asked() {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(task) = tasks.get(at) else { return };
                // Nobody listens any more after a stop.
                if sender.send((at, run_one(task))).is_err() {
                    return;
                }
            }
        });
    }
    drop(sender);
    let (mut waiting, mut ready) = (BTreeMap::new(), Vec::with_capacity(count));
    while ready.len() < count && !stop.is_asked() {
        match receiver.recv_timeout(PATIENCE) {
            Ok((at, finished)) => {
                waiting.insert(at, finished);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        while let Some(finished) = waiting.remove(&ready.len()) {
            on_ready(&finished);
            ready.push(finished);
        }
    }
    // Stopped: what has ended counts, although something before it has not.
    for finished in waiting.into_values() {
        on_ready(&finished);
        ready.push(finished);
    }
    ready
}

fn run_one(task: &Task) -> Finished {
    let begin = Instant::now();
    let run = || match &task.subject {
        Subject::Named(scenario) => (scenario.run)(task.seed).map(RunResult::from).map_err(|error| error.to_string()),
        Subject::Own(scenario) => user::run(scenario, task.seed).map_err(|error| error.to_string()),
    };
    let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err("it panicked".to_owned()));
    Finished { task: task.clone(), result, elapsed_s: begin.elapsed().as_secs_f64() }
}
