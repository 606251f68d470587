//! Progress of many runs: a bar on a terminal, elsewhere a line for each scenario whose runs have all ended.

use std::io::IsTerminal as _;

use plimsoll_measure::sim::report::sweep_text;
use plimsoll_measure::sim::run::{Finished, Task};
use plimsoll_measure::tune::Observer as _;

use crate::screen::{self, Phases};

pub(super) struct Progress {
    bar: Phases,
    count: usize,
    ended: usize,
    /// Runs of each scenario, in their order; empty if no lines are printed.
    lines: std::vec::IntoIter<usize>,
    /// Runs of the present scenario that have not ended.
    left: usize,
    failed_seeds: Vec<u64>,
    elapsed_s: f64,
    runs: usize,
}

impl Progress {
    /// Starts with none of `tasks` done. If `has_runs`, each run is printed, and progress needs no lines.
    pub(super) fn new(tasks: &[Task], has_runs: bool) -> Progress {
        let same = |a: &Task, b: &Task| a.subject.name() == b.subject.name() && a.changes == b.changes;
        let counts: Vec<usize> = match std::io::stderr().is_terminal() || has_runs || tasks.len() < 2 {
            true => Vec::new(),
            false => tasks.chunk_by(same).map(<[Task]>::len).collect(),
        };
        let (bar, lines, count) = (Phases::of("simulating"), counts.into_iter(), tasks.len());
        Progress { bar, count, ended: 0, lines, left: 0, failed_seeds: Vec::new(), elapsed_s: 0.0, runs: 0 }
    }

    /// Runs `work`, which may print, with the bar hidden.
    pub(super) fn suspend<T>(&self, work: impl FnOnce() -> T) -> T {
        self.bar.suspend(work)
    }

    /// Shows `part` of all runs as done.
    pub(super) fn advance(&mut self, part: f64) {
        self.bar.on_progress(part);
    }

    /// Counts a run that has ended.
    pub(super) fn add(&mut self, finished: &Finished) {
        self.ended += 1;
        if self.count > 1 {
            self.bar.rename(format!("{} of {} runs", self.ended, self.count));
        }
        if self.left == 0 {
            let Some(runs) = self.lines.next() else { return };
            (self.left, self.runs, self.elapsed_s) = (runs, runs, 0.0);
            self.failed_seeds.clear();
        }

        self.left -= 1;
        self.elapsed_s += finished.elapsed_s;
        if !finished.passed() {
            self.failed_seeds.push(finished.seed);
        }
        if self.left == 0 {
            screen::note(&self.line(finished));
        }
    }

    /// Returns the line of the scenario whose last run is `finished`.
    fn line(&self, finished: &Finished) -> String {
        let name = format!("{} {}", finished.name, sweep_text(&finished.changes));
        let seeds: Vec<String> = self.failed_seeds.iter().map(u64::to_string).collect();
        let verdict = match seeds.len() {
            0 => "passed".to_owned(),
            failed => format!("{failed} FAILED (seed {})", seeds.join(", ")),
        };
        let runs = if self.runs == 1 { "1 run".to_owned() } else { format!("{} runs", self.runs) };
        format!("{}: {runs}, {verdict}, {:.1} s", name.trim_end(), self.elapsed_s)
    }
}
