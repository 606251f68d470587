//! What scenarios have in common.

use plimsoll_core::{CostForm, CostModel, DiskConfig, FourFigures, Rate};

use super::{Figure, Outcome, ScenarioError, Table, Target};
use crate::device::DeviceSpec;
use crate::report::{Sample, WorldReport};
use crate::workload::{JobSpec, Load, SizeDist};
use crate::world::{self, Event, WorldSpec};

/// One thousand, one million, one thousand million nanoseconds.
pub(super) const US: u64 = 1_000;
/// See [`US`].
pub(super) const MS: u64 = 1_000_000;
/// See [`US`].
pub(super) const S: u64 = 1_000_000_000;

impl Outcome {
    /// Runs a world and counts it in.
    pub(super) fn run(&mut self, spec: &WorldSpec) -> Result<WorldReport, ScenarioError> {
        let report = world::run(spec)?;
        self.note(&report);
        Ok(report)
    }

    /// As [`Outcome::run`], with a look at every event.
    pub(super) fn run_logged(
        &mut self,
        spec: &WorldSpec,
        log: &mut dyn FnMut(&Event),
    ) -> Result<WorldReport, ScenarioError> {
        let report = world::run_logged(spec, log)?;
        self.note(&report);
        Ok(report)
    }

    /// As [`Outcome::run`], with a look at every sample.
    pub(super) fn run_observed(
        &mut self,
        spec: &WorldSpec,
        observe: &mut dyn FnMut(&Sample),
    ) -> Result<WorldReport, ScenarioError> {
        let report = world::run_observed(spec, observe)?;
        self.note(&report);
        Ok(report)
    }

    /// Counts a finished world in: its requests, and its events in the order of the runs.
    pub(super) fn note(&mut self, report: &WorldReport) {
        self.requests += report.totals.finished;
        self.log_hash = (self.log_hash.rotate_left(17) ^ report.log_hash).wrapping_mul(0x9fb2_1c65_1e98_df25);
    }

    /// Adds a figure.
    pub(super) fn figure(&mut self, name: impl Into<String>, value: f64, target: Target) {
        self.figures.push(Figure { name: name.into(), value, target });
    }

    /// Adds a remark.
    pub(super) fn remark(&mut self, text: impl Into<String>) {
        self.remarks.push(text.into());
    }
}

impl Table {
    /// A table without rows.
    pub(super) fn new(title: impl Into<String>, columns: &[&str]) -> Table {
        Table {
            title: title.into(),
            columns: columns.iter().map(|column| (*column).to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
}

/// Reads, then writes: operations and bytes a second.
pub(super) fn four_figures([read_iops, read_bytes_per_s, write_iops, write_bytes_per_s]: [u64; 4]) -> FourFigures {
    FourFigures {
        read_iops: Rate::per_second(read_iops),
        read_bandwidth: Rate::per_second(read_bytes_per_s),
        write_iops: Rate::per_second(write_iops),
        write_bandwidth: Rate::per_second(write_bytes_per_s),
    }
}

/// What the scheduler is told of a disk with these figures.
pub(super) fn config_of(figures: &FourFigures) -> DiskConfig {
    DiskConfig { model: CostModel::from_figures(figures, CostForm::Knee, 4096, 4096), ..DiskConfig::default() }
}

/// A device that does `factor` times what `figures` say, and nothing unexpected; a small read takes `read_ns` on it.
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

/// A closed loop of random reads of `len_bytes` in the class of its own name, on all shards.
pub(super) fn reads(name: &str, parallelism: u32, len_bytes: u32) -> JobSpec {
    JobSpec {
        name: name.into(),
        class: name.into(),
        load: Load::closed(parallelism),
        sizes: SizeDist::Fixed(len_bytes),
        ..JobSpec::default()
    }
}
