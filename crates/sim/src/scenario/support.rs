//! Helpers that scenarios share.

use plimsoll_core::{CostForm, CostModel, DiskConfig, FourFigures, Rate};

use super::{Advance, Figure, Outcome, ScenarioError, Table, Target};
use crate::device::DeviceSpec;
use crate::device::presets::{self, Preset};
use crate::report::{ClassReport, DiskReport, Sample, WorldReport};
use crate::workload::{JobSpec, Load, ShardSet, SizeDist};
use crate::world::{self, ClassSpec, Event, ShardSpec, SimDisk, WorldSpec};

pub(super) const US: u64 = 1_000;
pub(super) const MS: u64 = 1_000_000;
pub(super) const S: u64 = 1_000_000_000;

/// The course of a scenario: the worlds that have run, and their results.
pub(super) struct Course<'a> {
    pub(super) outcome: Outcome,
    /// Number of worlds of the whole run; for a search, the usual number.
    worlds: u32,
    /// Number of worlds that have ended.
    ended: u32,
    advance: Advance<'a>,
}

impl<'a> Course<'a> {
    /// Begins a run of `worlds` worlds. Each world that ends advances it, whether it was run here or is noted.
    pub(super) fn of(worlds: u32, advance: Advance<'a>) -> Course<'a> {
        Course { outcome: Outcome::default(), worlds, ended: 0, advance }
    }

    /// Runs a world and counts it in the outcome.
    pub(super) fn run(&mut self, spec: &WorldSpec) -> Result<WorldReport, ScenarioError> {
        let report = world::run(spec)?;
        self.note(&report);
        Ok(report)
    }

    /// Runs as [`Course::run`], and passes every event to `log`.
    pub(super) fn run_logged(
        &mut self,
        spec: &WorldSpec,
        log: &mut dyn FnMut(&Event),
    ) -> Result<WorldReport, ScenarioError> {
        let report = world::run_logged(spec, log)?;
        self.note(&report);
        Ok(report)
    }

    /// Runs as [`Course::run`], and passes every sample to `observe`.
    pub(super) fn run_observed(
        &mut self,
        spec: &WorldSpec,
        observe: &mut dyn FnMut(&Sample),
    ) -> Result<WorldReport, ScenarioError> {
        let report = world::run_observed(spec, &mut |sample| {
            self.advance_within(spec, sample);
            observe(sample);
        })?;
        self.note(&report);
        Ok(report)
    }

    /// Advances to this sample of the world that is running.
    pub(super) fn advance_within(&self, spec: &WorldSpec, sample: &Sample) {
        let part = sample.at_ns as f64 / (spec.warmup_ns + spec.duration_ns) as f64;
        self.advance_to(f64::from(self.ended) + part.min(1.0));
    }

    /// Advances to `worlds` of the run. A search that takes more than usual stays at the end.
    fn advance_to(&self, worlds: f64) {
        (self.advance)((worlds / f64::from(self.worlds)).min(1.0));
    }

    /// Counts a finished world: its requests, and its events in the order of the runs.
    pub(super) fn note(&mut self, report: &WorldReport) {
        let outcome = &mut self.outcome;
        outcome.requests += report.totals.finished;
        outcome.log_hash = (outcome.log_hash.rotate_left(17) ^ report.log_hash).wrapping_mul(0x9fb2_1c65_1e98_df25);

        self.ended += 1;
        self.advance_to(self.ended.into());
    }

    pub(super) fn figure(&mut self, name: impl Into<String>, value: f64, target: Target) {
        self.outcome.figures.push(Figure { name: name.into(), value, target });
    }

    pub(super) fn remark(&mut self, text: impl Into<String>) {
        self.outcome.remarks.push(text.into());
    }
}

impl Table {
    pub(super) fn new(title: impl Into<String>, columns: &[&str]) -> Table {
        Table {
            title: title.into(),
            columns: columns.iter().map(|column| (*column).to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
}

/// Returns figures from operations and bytes a second, of reads and then of writes.
pub(super) fn four_figures([read_iops, read_bytes_per_s, write_iops, write_bytes_per_s]: [u64; 4]) -> FourFigures {
    FourFigures {
        read_iops: Rate::per_second(read_iops),
        read_bandwidth: Rate::per_second(read_bytes_per_s),
        write_iops: Rate::per_second(write_iops),
        write_bandwidth: Rate::per_second(write_bytes_per_s),
    }
}

/// Returns the scheduler's settings for a disk with these figures.
pub(super) fn config_of(figures: &FourFigures) -> DiskConfig {
    DiskConfig { model: CostModel::from_figures(figures, CostForm::Knee, 4096, 4096), ..DiskConfig::default() }
}

/// Time of a small read on the disk of [`plain_world`].
pub(super) const PLAIN_READ_NS: f64 = 90e3;

/// Returns a device of `factor` times `figures`, without disturbances; a small read takes `read_ns` on it.
pub(super) fn plain_device(figures: &FourFigures, factor: f64, read_ns: f64) -> DeviceSpec {
    let rate = |rate: Rate| rate.get().map_or(1e9, |per_s| per_s as f64 * factor);
    let mut spec = DeviceSpec::default();
    spec.rates.read_iops = rate(figures.read_iops);
    spec.rates.read_bytes_per_s = rate(figures.read_bandwidth);
    spec.rates.write_iops = rate(figures.write_iops);
    spec.rates.write_bytes_per_s = rate(figures.write_bandwidth);
    (spec.latency.read_ns, spec.latency.write_ns) = (read_ns, read_ns);
    spec
}

/// Returns a closed loop of random reads of `len_bytes` in the class of its own name, on all shards.
pub(super) fn reads(name: &str, parallelism: u32, len_bytes: u32) -> JobSpec {
    JobSpec {
        name: name.into(),
        class: name.into(),
        load: Load::closed(parallelism),
        sizes: SizeDist::Fixed(len_bytes),
        ..JobSpec::default()
    }
}

pub(super) fn on(shards: impl IntoIterator<Item = u32>) -> ShardSet {
    ShardSet::List(shards.into_iter().collect())
}

pub(super) fn preset(name: &str) -> Result<Preset, ScenarioError> {
    presets::find(name).ok_or_else(|| ScenarioError(format!("no device is called {name}")))
}

/// Returns an array as one disk with the sum of its rates, so that chunks play no part.
pub(super) fn as_one_disk(preset: &Preset) -> DeviceSpec {
    let mut spec = preset.spec.clone();
    let members = f64::from(spec.raid0.members);
    for rate in [
        &mut spec.rates.read_iops,
        &mut spec.rates.read_bytes_per_s,
        &mut spec.rates.write_iops,
        &mut spec.rates.write_bytes_per_s,
    ] {
        *rate *= members;
    }
    spec.raid0.members = 1;
    spec
}

/// Returns shards on one disk with these figures: operations and bytes a second, of reads and then of writes.
pub(super) fn plain_world(figures: [u64; 4], shards: usize, seed: u64) -> WorldSpec {
    let figures = four_figures(figures);
    WorldSpec {
        seed,
        shards: vec![ShardSpec::default(); shards],
        disks: vec![SimDisk::new(plain_device(&figures, 1.0, PLAIN_READ_NS), config_of(&figures))],
        ..WorldSpec::default()
    }
}

/// Returns one second of one shard with one disk, after 100 ms of warm-up; classes are given by name and shares.
pub(super) fn world_of(seed: u64, disk: SimDisk, classes: &[(&str, u32)], jobs: Vec<JobSpec>) -> WorldSpec {
    WorldSpec {
        seed,
        warmup_ns: 100 * MS,
        disks: vec![disk],
        classes: classes.iter().map(|(name, shares)| ClassSpec::new(name, *shares)).collect(),
        jobs,
        ..WorldSpec::default()
    }
}

/// Returns the report of a class on the first disk.
pub(super) fn class_of<'a>(report: &'a WorldReport, name: &str) -> Result<&'a ClassReport, ScenarioError> {
    report.class(name, 0).ok_or_else(|| ScenarioError(format!("no class is called {name}")))
}

/// Returns the report of the first disk.
pub(super) fn disk_of(report: &WorldReport) -> Result<&DiskReport, ScenarioError> {
    report.disks.first().ok_or_else(|| ScenarioError("the world has no disk".into()))
}

/// Returns the largest relative deviation of the parts from the shares, in per cent.
pub(super) fn share_error_percent(parts: &[f64], shares: &[u32]) -> f64 {
    let whole: f64 = parts.iter().sum();
    let all: f64 = shares.iter().map(|share| f64::from(*share)).sum();
    let error = |(part, share): (&f64, &u32)| (part / whole * all / f64::from(*share) - 1.0).abs() * 100.0;
    parts.iter().zip(shares).map(error).fold(0.0, f64::max)
}

/// Returns the mean, and the standard deviation in per cent of it.
pub(super) fn mean_and_deviation_percent(values: &[f64]) -> (f64, f64) {
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / count;
    (mean, variance.sqrt() / mean * 100.0)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn a_search_that_takes_more_worlds_than_usual_stays_at_the_end() {
        let parts = Mutex::new(Vec::new());
        let note = |part| parts.lock().unwrap().push(part);
        let course = Course::of(2, &note);
        [0.5, 2.0, 2.5, 3.0].into_iter().for_each(|worlds| course.advance_to(worlds));
        assert_eq!(*parts.lock().unwrap(), [0.25, 1.0, 1.0, 1.0]);
    }
}
