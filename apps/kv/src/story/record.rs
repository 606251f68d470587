//! The measurements of a story.
//!
//! # Why
//! Tables have sums over a phase, pictures have figures over time; both come from the same sources.
//!
//! # How it works
//! Two clients query the program's own control socket: one at both ends of each phase, so that its percentiles are
//! those of the phase, and one every half second. Latencies of the load's clients come from their tallies; operations
//! that are under way at the end of a phase count in its last half second, and so do those that are due and wait.
//!
//! # Limits
//! A query takes up to 200 ms while the shard is busy.
//!
//! # Example
//! A [`Sample`] at 12.5 s: `compaction` at 80 MB/s with 120 shares.

use std::time::Duration;

use plimsoll::control::{ClassState, Snapshot};

use super::spread::Spread;
use crate::controllers::Backlog;
use crate::stress::tally::Part;

/// Length of the windows whose 99th percentiles are compared, in seconds: 2000 reads at 200 per second.
pub const WINDOW_S: f64 = 10.0;
/// Most time by which a sample may be late, in seconds.
const LATE_S: f64 = 0.25;

/// A way to run a story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Everything is sent to the disk at once.
    Drained,
    /// The classes keep their initial shares.
    StaticShares,
    /// Shares follow backlogs.
    Controllers,
    /// Blocks are cached in memory alone.
    Memory,
    /// Blocks are cached by foyer, in memory and on the disk.
    Foyer,
    /// Blocks are cached in memory, and by this project's cache on the disk.
    Plimsoll,
}

impl Way {
    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Way::Drained => "drained",
            Way::StaticShares => "static shares",
            Way::Controllers => "controllers",
            Way::Memory => "memory alone",
            Way::Foyer => "foyer's cache",
            Way::Plimsoll => "plimsoll's cache",
        }
    }
}

/// Figures of a class in a period.
#[derive(Clone, Debug)]
pub struct ClassFigures {
    /// Its name.
    pub name: String,
    /// Its shares at the end.
    pub shares: u32,
    /// Bytes read and written per second.
    pub bytes_per_s: f64,
    /// Median of the time from request to answer, in nanoseconds.
    pub p50_ns: u64,
    /// 99th percentile of the time from request to answer, in nanoseconds.
    pub p99_ns: u64,
    /// 99th percentile of the time until dispatch, in nanoseconds.
    pub queue_p99_ns: u64,
    /// The reason for which it waited longest, and that part of the time.
    pub waited: Option<(String, f64)>,
}

impl ClassFigures {
    /// Returns the figures of a class in a snapshot.
    #[must_use]
    pub fn of(state: &ClassState) -> ClassFigures {
        let recent = state.recent.as_ref();
        let waited = recent.and_then(|recent| recent.waited.iter().max_by(|a, b| a.1.total_cmp(b.1)));
        ClassFigures {
            name: state.class.clone(),
            shares: state.shares,
            bytes_per_s: recent.map_or(0.0, |recent| recent.read_bytes_per_s + recent.write_bytes_per_s),
            p50_ns: state.total_latency.p50_ns,
            p99_ns: state.total_latency.p99_ns,
            queue_p99_ns: state.queue_latency.p99_ns,
            waited: waited.filter(|(_, part)| **part >= 0.001).map(|(reason, part)| (reason.clone(), *part)),
        }
    }

    /// Returns the figures of all classes on the first disk of `snapshot`.
    #[must_use]
    pub fn of_all(snapshot: &Snapshot) -> Vec<ClassFigures> {
        snapshot.disks.first().map_or_else(Vec::new, |disk| disk.classes.iter().map(ClassFigures::of).collect())
    }
}

/// Figures of a load in a period.
#[derive(Clone, Debug)]
pub struct LoadFigures {
    /// Its name.
    pub name: &'static str,
    /// Operations per second.
    pub per_s: f64,
    /// Operations that were due at the end of the period and had not begun.
    pub overdue: u64,
    /// Latencies and errors. Of operations that had not begun, the latency is the time for which they had waited.
    pub part: Part,
}

impl LoadFigures {
    /// Returns a quantile of the latencies, in milliseconds.
    #[must_use]
    pub fn ms(&self, quantile: f64) -> f64 {
        self.part.latencies.value_at_quantile(quantile) as f64 / 1e6
    }
}

/// Figures of the time since the last sample.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Time since the first phase began, in seconds.
    pub at_s: f64,
    /// The classes since the last sample.
    pub classes: Vec<ClassFigures>,
    /// The loads since the last sample.
    pub loads: Vec<LoadFigures>,
    /// Part of the reads that needed nothing from the far store.
    pub hits: Option<f64>,
    /// Work left for flushes and compactions.
    pub backlog: Backlog,
    /// Times since the last sample that writes or flushes had to wait for room.
    pub stalls: u64,
}

/// A phase that has ended.
#[derive(Clone, Debug)]
pub struct PhaseRecord {
    /// Its name.
    pub name: &'static str,
    /// Its beginning, in seconds since the first phase began.
    pub from_s: f64,
    /// Its length.
    pub length: Duration,
    /// The classes.
    pub classes: Vec<ClassFigures>,
    /// The loads.
    pub loads: Vec<LoadFigures>,
    /// Processors busy with this program, clients included.
    pub cpus: f64,
    /// Processors busy with other programs.
    pub other_cpus: f64,
    /// The result of the servers' job.
    pub note: Option<String>,
    /// Times that writes had to wait for room in memory, or flushes for room in level 0.
    pub stalls: u64,
    /// Part of the reads that needed nothing from the far store.
    pub hits: Option<f64>,
}

/// Returns the time in which processors of this machine have been busy, in seconds; 0 if the kernel does not say.
#[must_use]
pub fn machine_cpu_s() -> f64 {
    // `proc(5)`: user, nice, system, idle, iowait, irq, softirq, steal, in hundredths of a second.
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks: Vec<u64> = stat.lines().next().unwrap_or("").split_whitespace().filter_map(|n| n.parse().ok()).collect();
    let is_busy = |at: &usize| *at != 3 && *at != 4;
    (0..ticks.len().min(8)).filter(is_busy).map(|at| ticks[at]).sum::<u64>() as f64 / 100.0
}

impl PhaseRecord {
    /// Returns the load named `name`.
    #[must_use]
    pub fn load(&self, name: &str) -> Option<&LoadFigures> {
        self.loads.iter().find(|load| load.name == name)
    }

    /// Returns the bytes per second of all classes.
    #[must_use]
    pub fn bytes_per_s(&self) -> f64 {
        self.classes.iter().map(|class| class.bytes_per_s).sum()
    }
}

/// A story run in one way.
#[derive(Clone, Debug)]
pub struct Record {
    /// The way.
    pub way: Way,
    /// Its phases.
    pub phases: Vec<PhaseRecord>,
    /// Its samples.
    pub samples: Vec<Sample>,
}

impl Record {
    /// Returns the 99th percentile of a load in the phase after the calm one, in nanoseconds.
    #[must_use]
    pub fn storm_p99_ns(&self, load: &str) -> u64 {
        let load = self.phases.get(1).and_then(|phase| phase.load(load));
        load.map_or(0, |load| load.part.latencies.value_at_quantile(0.99))
    }

    /// Returns the unsteadiness of a load in phase `number`: the largest 99th percentile of its whole windows of
    /// [`WINDOW_S`], divided by the median one. `None` if there are fewer than two windows.
    #[must_use]
    pub fn unsteadiness(&self, number: usize, load: &str) -> Option<f64> {
        let phase = self.phases.get(number)?;
        let end_s = phase.from_s + phase.length.as_secs_f64();
        let count = ((phase.length.as_secs_f64() + LATE_S) / WINDOW_S) as usize;

        let mut windows = vec![Part::new(); count];
        for sample in self.samples.iter().filter(|sample| sample.at_s > phase.from_s && sample.at_s <= end_s + LATE_S) {
            // A sample belongs to the window of most of its time, not to the one of its end.
            let window = ((sample.at_s - phase.from_s - LATE_S).max(0.0) / WINDOW_S) as usize;
            let seen = sample.loads.iter().find(|figures| figures.name == load);
            if let (Some(window), Some(seen)) = (windows.get_mut(window), seen) {
                window.add(&seen.part);
            }
        }

        let p99_ns = |window: &Part| window.latencies.value_at_quantile(0.99) as f64;
        let spread = Spread::of(windows.iter().map(p99_ns));
        (count >= 2 && spread.median > 0.0).then(|| spread.max / spread.median)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

    use super::*;

    /// Returns a record of two phases of a second, whose only read took `p99_ns`.
    pub(crate) fn record(p99_ns: u64) -> Record {
        let mut part = Part::new();
        part.latencies.saturating_record(p99_ns);
        let phase = PhaseRecord {
            name: "storm",
            from_s: 0.0,
            length: Duration::from_secs(1),
            classes: Vec::new(),
            loads: vec![LoadFigures { name: "reads", per_s: 1.0, overdue: 0, part }],
            cpus: 0.0,
            other_cpus: 0.0,
            note: None,
            stalls: 0,
            hits: None,
        };
        Record { way: Way::Drained, phases: vec![phase.clone(), phase], samples: Vec::new() }
    }

    #[test]
    fn windows_of_ten_seconds_tell_whether_a_load_was_steady() {
        let mut told = record(1);
        // A phase of 32 s has three windows; later samples belong to none.
        told.phases[1].from_s = 10.0;
        told.phases[1].length = Duration::from_secs(32);

        let read = |at_s: f64| {
            let mut part = Part::new();
            part.latencies.saturating_record(match at_s {
                ..10.0 => 50,
                ..20.2 => 2,
                ..30.2 => 3,
                ..40.2 => 6,
                _ => 90,
            });
            let loads = vec![LoadFigures { name: "reads", per_s: 2.0, overdue: 0, part }];
            Sample { at_s, classes: Vec::new(), loads, hits: None, backlog: Backlog::default(), stalls: 0 }
        };
        told.samples = (1..=84).map(|half| read(f64::from(half) / 2.0 + 0.1)).collect();

        assert_eq!(told.unsteadiness(1, "reads"), Some(2.0));
        assert_eq!(told.unsteadiness(0, "reads"), None, "a second is no window");
        assert_eq!(told.unsteadiness(1, "writes"), None, "nobody wrote");
        assert_eq!(told.unsteadiness(2, "reads"), None, "no such phase");
        assert!(machine_cpu_s() > 0.0);
    }
}
