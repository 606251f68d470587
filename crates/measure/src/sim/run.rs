//! Runs scenarios, several at a time, and returns results in the order of the tasks.
//!
//! **Why.** All named scenarios together take minutes on one core, half of that on two. Their order must not depend on
//! the machine.
//!
//! **How.** Threads take [`Task`]s from a common list; a result is passed on as soon as all earlier ones are. A
//! scenario that panics has failed, and the others continue. Each scenario reports its progress: one of a file at each
//! of its samples, a named one at the end of each of its worlds, a long one more often.
//!
//! **Limits.** [`run_all`] returns early if stopped; scenarios under way then continue until the process ends. Curves
//! are passed on and then dropped: those of ten thousand runs need too much memory.
//!
//! **Example.** See [`super`].

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use plimsoll_files::scenario::Scenario;
use plimsoll_sim::scenario;

use super::result::RunResult;
use super::user;
use crate::load::Stop;

/// The unit of progress in a run's shared counter: a ten-thousandth of the run.
const WHOLE: f64 = 10_000.0;

/// Longest wait between two checks for a stop.
const PATIENCE: Duration = Duration::from_millis(50);

#[derive(Clone, Debug)]
pub enum Subject {
    Named(scenario::Scenario),
    Own(Arc<Scenario>),
}

impl Subject {
    pub fn name(&self) -> &str {
        match self {
            Subject::Named(scenario) => scenario.name,
            Subject::Own(scenario) => &scenario.name,
        }
    }

    /// Returns the title of the scenario; empty for a scenario from a file.
    pub fn title(&self) -> &str {
        match self {
            Subject::Named(scenario) => scenario.title,
            Subject::Own(_) => "",
        }
    }
}

#[derive(Clone, Debug)]
pub struct Task {
    pub subject: Subject,
    /// Changes of a sweep: key and value.
    pub changes: Vec<(String, String)>,
    pub seed: u64,
}

#[derive(Clone, Debug)]
pub struct Finished {
    pub name: String,
    /// Title of a named scenario; empty for a scenario from a file.
    pub title: String,
    /// Changes of a sweep: key and value.
    pub changes: Vec<(String, String)>,
    pub seed: u64,
    /// The result, or why the run failed.
    pub result: Result<RunResult, String>,
    /// Length of the run in real seconds.
    pub elapsed_s: f64,
}

impl Finished {
    /// Returns whether the run succeeded and no figure misses its target.
    pub fn passed(&self) -> bool {
        matches!(&self.result, Ok(result) if result.figures.iter().all(|figure| figure.passed != Some(false)))
    }

    /// Returns whether the scenario is a user's.
    pub fn is_from_file(&self) -> bool {
        self.title.is_empty()
    }

    /// Returns the number of figures that meet their target, and of figures with a target.
    pub fn figures_passed(&self) -> (usize, usize) {
        let judged = || self.result.iter().flat_map(|result| &result.figures).filter_map(|figure| figure.passed);
        (judged().filter(|passed| *passed).count(), judged().count())
    }
}

/// An event while tasks run.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// This part of all runs is done, from 0 to 1.
    Advanced(f64),
    Ended(&'a Finished),
}

/// Returns the changes of a sweep, a `KEY=VALUE` each.
pub fn words(changes: &[(String, String)]) -> impl Iterator<Item = String> {
    changes.iter().map(|(key, value)| format!("{key}={value}"))
}

/// Returns the names of the figures of all `results`, in order of first appearance.
pub fn figure_names<'a>(results: impl Iterator<Item = &'a RunResult>) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for figure in results.flat_map(|result| &result.figures) {
        if !names.contains(&figure.name.as_str()) {
            names.push(&figure.name);
        }
    }
    names
}

/// Runs tasks on `workers` threads and returns the results, without their curves. Calls `on_step` with each result, in
/// the order of `tasks`, and regularly with the part that is done. After a stop, leaves out tasks that were not run.
pub fn run_all(tasks: Vec<Task>, workers: usize, stop: &Stop, on_step: &mut dyn FnMut(Step<'_>)) -> Vec<Finished> {
    let count = tasks.len();
    let parts: Arc<[AtomicU32]> = tasks.iter().map(|_| AtomicU32::new(0)).collect();
    let tasks = Arc::new(tasks);
    let next = Arc::new(AtomicUsize::new(0));
    let (sender, receiver) = mpsc::channel();

    let mut started = 0;
    for _ in 0..workers.min(count) {
        let (tasks, next, sender, stop) = (Arc::clone(&tasks), Arc::clone(&next), sender.clone(), stop.clone());
        let parts = Arc::clone(&parts);
        let work = move || {
            while !stop.is_asked() {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some((task, part)) = tasks.get(at).zip(parts.get(at)) else { return };
                // After a stop the receiver is gone.
                if sender.send((at, run_one(task, part))).is_err() {
                    return;
                }
            }
        };
        // Beyond the process's limit of threads, the threads already started do the work.
        if std::thread::Builder::new().spawn(work).is_err() {
            break;
        }
        started += 1;
    }
    drop(sender);

    let (mut waiting, mut ready) = (BTreeMap::new(), Vec::with_capacity(count));
    let hand_on = |mut finished: Finished, on_step: &mut dyn FnMut(Step<'_>), ready: &mut Vec<Finished>| {
        on_step(Step::Ended(&finished));
        if let Ok(result) = &mut finished.result {
            result.series = Vec::new();
        }
        ready.push(finished);
    };
    if started == 0 {
        for (task, part) in tasks.iter().zip(parts.iter()).take_while(|_| !stop.is_asked()) {
            hand_on(run_one(task, part), on_step, &mut ready);
        }
    }
    while ready.len() < count && !stop.is_asked() {
        match receiver.recv_timeout(PATIENCE) {
            Ok((at, finished)) => {
                waiting.insert(at, finished);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        while let Some(finished) = waiting.remove(&ready.len()) {
            hand_on(finished, on_step, &mut ready);
        }

        // All earlier runs are done, and no later one has begun. Only those in between are summed, because a sum over
        // ten thousand runs at each end is quadratic.
        let begun = next.load(Ordering::Relaxed).min(count);
        let under_way = parts.get(ready.len()..begun).unwrap_or_default();
        let done: f64 = under_way.iter().map(|part| f64::from(part.load(Ordering::Relaxed)) / WHOLE).sum();
        on_step(Step::Advanced((ready.len() as f64 + done) / count as f64));
    }

    // After a stop, results count even if an earlier task has none.
    waiting.extend(receiver.try_iter());
    for finished in waiting.into_values() {
        hand_on(finished, on_step, &mut ready);
    }
    ready
}

/// Runs a task, and stores its progress in `part`.
fn run_one(task: &Task, part: &AtomicU32) -> Finished {
    let begin = Instant::now();
    // Worlds on threads of their own may report in another order than they advance.
    let advance = |done: f64| {
        part.fetch_max((done * WHOLE) as u32, Ordering::Relaxed);
    };

    let run = || match &task.subject {
        Subject::Named(scenario) => {
            (scenario.run)(task.seed, &advance).map(RunResult::from).map_err(|error| error.to_string())
        }
        Subject::Own(scenario) => user::run(scenario, task.seed, &advance).map_err(|error| error.to_string()),
    };

    let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err("it panicked".to_owned()));
    advance(1.0);
    Finished {
        name: task.subject.name().to_owned(),
        title: task.subject.title().to_owned(),
        changes: task.changes.clone(),
        seed: task.seed,
        result,
        elapsed_s: begin.elapsed().as_secs_f64(),
    }
}
