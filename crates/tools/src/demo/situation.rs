//! What the classes got in one situation, over all its slices.

use super::{CLASSES, ClassLine, Situation, class_of};
use crate::load::{JobResult, RunResult};
use crate::report::Latency;

/// The slices of one situation.
#[derive(Default)]
pub(super) struct Merged {
    jobs: Vec<JobResult>,
}

impl Merged {
    pub(super) fn add(&mut self, run: &RunResult) {
        for job in run.shards.iter().flat_map(|s| &s.jobs) {
            match self.jobs.iter_mut().find(|j| j.name == job.name) {
                Some(mine) => mine.append(job),
                None => self.jobs.push(job.clone()),
            }
        }
    }

    /// What the classes got; `None` before the first slice. The queries want `query_wanted_fs` of device time a second.
    pub(super) fn situation(&self, name: &str, query_wanted_fs: f64) -> Option<Situation> {
        let elapsed_s = self.jobs.first()?.elapsed_ns as f64 / 1e9;
        let lines = ["query", "compaction", "repair-read", "repair-write"].map(|class| self.class_line(class));
        let mut lines: Vec<(ClassLine, f64)> = lines.into_iter().flatten().collect();
        let all_fs: f64 = lines.iter().map(|(_, consumed_fs)| consumed_fs).sum::<f64>().max(1.0);
        let query_pct = (100.0 * query_wanted_fs * elapsed_s / all_fs).min(100.0);
        let backlogged: u32 = lines.iter().skip(1).map(|(line, _)| line.shares).sum();
        for (at, (line, consumed_fs)) in lines.iter_mut().enumerate() {
            line.share_got_pct = 100.0 * *consumed_fs / all_fs;
            // The query asks for less than its shares, and should get that; the others divide the rest.
            line.share_wanted_pct = match at {
                0 => query_pct,
                _ => (100.0 - query_pct) * f64::from(line.shares) / f64::from(backlogged.max(1)),
            };
        }
        let classes: Vec<ClassLine> = lines.into_iter().map(|(line, _)| line).collect();
        let throughput_bytes_per_s = classes.iter().map(|line| line.throughput_bytes_per_s).sum();
        Some(Situation { name: name.to_owned(), classes, throughput_bytes_per_s })
    }

    /// A class and the device time it consumed, in femtoseconds.
    fn class_line(&self, class: &str) -> Option<(ClassLine, f64)> {
        let mut jobs = self.jobs.iter().filter(|job| class_of(&job.name) == class);
        let first = jobs.next()?;
        let mut latency = first.latency.clone();
        let (mut iops, mut bytes_per_s) = (first.iops(), first.bytes_per_s());
        for job in jobs {
            // Jobs of one class run at the same time. Depth and device time are the class's, the same in each of them.
            latency.merge(&job.latency);
            iops += job.iops();
            bytes_per_s += job.bytes_per_s();
        }
        let line = ClassLine {
            class: class.to_owned(),
            shares: CLASSES.iter().find(|(name, _)| *name == class).map_or(0, |(_, shares)| *shares),
            iops,
            throughput_bytes_per_s: bytes_per_s,
            share_wanted_pct: 0.0,
            share_got_pct: 0.0,
            latency: Latency::of(&latency),
            device_depth: first.device_depth.mean(),
        };
        Some((line, first.class.as_ref().map_or(0.0, |c| c.stats.consumed_fs as f64)))
    }
}
