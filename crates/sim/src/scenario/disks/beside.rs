//! Queries beside other work, scheduled and *drained*: with all requests sent at once.
//!
//! # Example
//! The class `query` has 0.2 ms at p99, and 5.4 drained, while the disk keeps 0.89 of its drained throughput.

use super::super::Target::{AtLeast, AtMost};
use super::super::support::{Course, class_of, disk_of};
use super::super::{Outcome, ScenarioError, Table};
use crate::world::{DiskMode, WorldSpec};

/// The loads that have run, and the worst of them.
pub(super) struct Beside {
    table: Table,
    least_kept: f64,
    highest_p99: f64,
}

impl Beside {
    /// Begins a table whose rows start with `columns`.
    pub(super) fn new(title: &str, columns: &[&str]) -> Beside {
        let figures = ["mode", "MB/s", "query p50 us", "p99 us", "in device"];
        Beside { table: Table::new(title, &[columns, &figures].concat()), least_kept: f64::MAX, highest_p99: 0.0 }
    }

    /// Runs a load both ways. Its rows start with `cells`.
    pub(super) fn run(
        &mut self,
        course: &mut Course<'_>,
        cells: &[String],
        mut spec: WorldSpec,
    ) -> Result<(), ScenarioError> {
        let mut run = |mode, name: &str| {
            spec.disks[0].mode = mode;
            let report = course.run(&spec)?;
            let (disk, query) = (disk_of(&report)?, &class_of(&report, "query")?.total);
            let us = |percent: f64| query.percentile(percent) as f64 / 1e3;
            let figures = [
                name.to_owned(),
                format!("{:.0}", disk.bytes_per_s / 1e6),
                format!("{:.0}", us(50.0)),
                format!("{:.0}", us(99.0)),
                format!("{:.1}", disk.mean_in_device),
            ];
            self.table.row(cells.iter().cloned().chain(figures));
            Ok::<(f64, f64), ScenarioError>((disk.bytes_per_s, us(99.0)))
        };
        let (drained, scheduled) = (run(DiskMode::Drain, "drained")?, run(DiskMode::Scheduled, "scheduled")?);
        self.least_kept = self.least_kept.min(scheduled.0 / drained.0);
        self.highest_p99 = self.highest_p99.max(scheduled.1 / drained.1);
        Ok(())
    }

    /// Ends the scenario: each load is to keep `least` of its drained throughput, at no more than `most` times the
    /// drained p99.
    pub(super) fn end(self, mut course: Course<'_>, least: f64, most: f64) -> Outcome {
        course.outcome.tables.push(self.table);
        course.figure("least throughput over drained", self.least_kept, AtLeast(least));
        course.figure("query: highest p99 over that of the same load drained", self.highest_p99, AtMost(most));
        course.outcome
    }
}
