//! The result of a measurement, and the io-properties that follow from it.
//!
//! **Why.** A report keeps every sample and its circumstances, so that it can be judged again without the disk.
//!
//! **How.** Plain data. As JSON the field names are the names here, enums are `snake_case` texts, and missing figures
//! are `null`. [`TuneReport::schema`] rises when a field is removed or changes its meaning; new fields do not raise it.
//!
//! **Limits.** A report is of one directory and one disk (or array).
//!
//! **Example.**
//!
//! ```
//! use plimsoll_measure::tune::Figure;
//! let json = r#"{"value": 95000.5, "unit": "operations_per_s", "ci95_pct": 0.8, "deviation_pct": 1.5,
//!     "samples": [95000.5], "settled_at": 0, "sample_s": 1.0, "depth": 64, "block_bytes": 4096, "probes": [],
//!     "cpu_busy_pct": 30.0, "foreign_pct": 0.0, "burst": null, "complete": true}"#;
//! let figure: Figure = serde_json::from_str(json)?;
//! assert_eq!((figure.depth, figure.value.round()), (64, 95001.0));
//! # Ok::<(), serde_json::Error>(())
//! ```

mod curves;
pub(super) mod device;

use plimsoll::core::{CostForm, DECAY_TAU_NS, FourFigures, Rate};
use serde::{Deserialize, Serialize};

pub(crate) use curves::BLOCK_STEP_MIN;
pub use curves::{
    CostFit, DepthCurve, DepthMode, DepthPoint, Frontier, FrontierPoint, Knee, LimitsApart, OperationCost,
    PhysicalBlock, Probe, SequentialCurve, SizeCurve, SizePoint, SteadyState, SteadyTrack, SteadyWindow,
    SubmissionCost, UnloadedLatency,
};
pub use device::{Backend, BlockSize, Device, Leaf, Site, Warning, WarningCode};

use plimsoll_figures::units::{format_iops, format_throughput_decimal};
use plimsoll_files::depths::DepthRate;
use plimsoll_files::device::SizeTable;
use plimsoll_files::disk::DiskModel;
use plimsoll_files::io_properties::{DiskProperties, IOPS_BLOCK_BYTES, MAX_FIGURE, MEASURED_SCALE_MAX};
use plimsoll_files::variant_name;
use plimsoll_show::table::{Table, fixed, known};

use super::{Mode, place};
use crate::foreign::FOREIGN_DOUBT_PCT;

pub const SCHEMA: u32 = 2;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TuneReport {
    pub schema: u32,
    #[serde(flatten)]
    pub site: Site,
    pub backend: Backend,
    pub shards: u16,
    /// Bytes of scratch data that requests were spread over, all shards together.
    pub data_bytes: u64,
    pub seed: u64,
    pub mode: Mode,
    pub read_block: BlockSize,
    pub write_block: BlockSize,
    /// Random reads of `read_block` bytes a second.
    pub read_iops: Option<Figure>,
    /// Random writes of `write_block` bytes a second.
    pub write_iops: Option<Figure>,
    pub read_bandwidth: Option<Figure>,
    pub write_bandwidth: Option<Figure>,
    /// Latency of one random read at a time.
    pub read_latency: Option<UnloadedLatency>,
    pub write_latency: Option<UnloadedLatency>,
    pub read_depths: Option<DepthCurve>,
    pub write_depths: Option<DepthCurve>,
    pub read_sizes: Option<SizeCurve>,
    pub write_sizes: Option<SizeCurve>,
    pub read_sequential: Option<SequentialCurve>,
    pub write_sequential: Option<SequentialCurve>,
    /// Block in which the disk really writes.
    pub physical_block: Option<PhysicalBlock>,
    pub frontier: Option<Frontier>,
    /// `null` if the disk is not known to limit operations and bytes apart.
    #[serde(default)]
    pub limits_apart: Option<LimitsApart>,
    /// Rounds of a full measurement.
    pub steady_state: Option<SteadyState>,
    pub flush: Option<OperationCost>,
    pub discard: Option<OperationCost>,
    /// Cost of submissions, and whether they block, by kind.
    pub submissions: Vec<SubmissionCost>,
    /// Queues and requests for scheduling by depth alone.
    pub depth_mode: Option<DepthMode>,
    /// The line for the kernel's `io.cost.model`, if all of its figures were measured.
    pub iocost_model: Option<String>,
    /// If several runs were merged: the runs, and the values left out.
    pub merged: Option<Merged>,
    /// Bytes written to the disk, scratch data included.
    pub written_bytes: u64,
    pub duration_s: f64,
    pub warnings: Vec<Warning>,
    /// Whether the measurement was stopped early; the figures are then those so far.
    pub interrupted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    OperationsPerS,
    BytesPerS,
}

impl Unit {
    /// Returns a rate in this unit as text for people: `95,000 IOPS`, `1.54 GB/s`.
    pub fn text(self, rate: f64) -> String {
        match self {
            Unit::OperationsPerS => format!("{} IOPS", format_iops(rate)),
            Unit::BytesPerS => format_throughput_decimal(rate),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The rate over all samples, above 0.
    pub value: f64,
    /// Unit of `value`, `samples` and `probes`.
    pub unit: Unit,
    /// Half the width of the 95 % confidence interval, in per cent of the value; `null` for a single sample.
    pub ci95_pct: Option<f64>,
    /// Standard deviation of the settled samples in per cent of their mean.
    pub deviation_pct: f64,
    /// The rate in each sample, in order; at least one.
    pub samples: Vec<f64>,
    /// Index of the first sample that counts. Earlier ones belong to a transient (a cache, credits, a slow start).
    pub settled_at: usize,
    pub sample_s: f64,
    /// Requests under way, all shards together.
    pub depth: u32,
    pub block_bytes: u32,
    /// The search for the depth; empty if there was none.
    pub probes: Vec<Probe>,
    /// CPU use of the busiest shard, in per cent of one CPU.
    pub cpu_busy_pct: f64,
    /// Part of the device's traffic meanwhile that other programs caused, in per cent; `null` if unknown.
    pub foreign_pct: Option<f64>,
    /// The rate before the figure settled, if it differs by at least 5 %.
    pub burst: Option<f64>,
    /// Whether the phase ran to its end; false if interrupted, or if the write bound was reached.
    pub complete: bool,
}

impl Figure {
    /// Returns the uncertainty as text for people: `± 0.8 %`, `unknown`.
    pub fn interval_text(&self) -> String {
        self.ci95_pct.map_or_else(|| "unknown".to_owned(), |percent| format!("± {percent:.1} %"))
    }
}

/// A figure that should not be relied upon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// Its name in io-properties files.
    pub figure: &'static str,
    pub why: String,
}

/// Half of the 95 % interval, in per cent, above which a figure is too uncertain.
pub(crate) const VAGUE_PCT: f64 = 25.0;

/// Least part of a figure by which a curve exceeds it for a warning: what chance does to samples of 0.2 s.
const EXCEEDED_PART: f64 = 0.1;

/// Ratio of a curve's rate to the figure above which one of them is wrong. On simulated disks noise makes at most 1.15.
const CONTRADICTED_FACTOR: f64 = 1.25;

/// The same ratio for writes, larger because the write cache may have recovered while the disk was read.
const CONTRADICTED_FACTOR_WRITES: f64 = 1.5;

/// Ratio of a figure to all later measurements of its kind above which the figure is that of a burst. Noise, stalls and
/// a neighbour make less on two curves at once.
const UNREPEATED_FACTOR: f64 = 1.5;

/// The origin of a report merged from several runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Merged {
    /// Files, in the order given.
    pub runs: Vec<String>,
    pub left_out: Vec<LeftOut>,
}

/// A value of one run that does not fit the others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeftOut {
    pub run: String,
    pub figure: String,
    pub value: f64,
    pub median: f64,
}

/// Figures that are missing, without which there are no io-properties.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not measured: {}; {cause}", .names.join(", "))]
pub struct MissingFigures {
    /// Names of the figures, as in an io-properties file; at least one.
    pub names: Vec<&'static str>,
    pub cause: MissingCause,
}

/// Why figures were not measured. The text form includes the remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MissingCause {
    #[error("let the measurement run to its end")]
    Unfinished,
    #[error("--max-write left too little for them: allow more, or set a smaller --data-size")]
    MaxWrite,
}

/// Returns a curve in the form of io-properties; empty if it was not measured.
fn depths(curve: &Option<DepthCurve>) -> Vec<DepthRate> {
    curve.as_ref().map_or(Vec::new(), DepthCurve::rates)
}

impl TuneReport {
    /// Returns the entry of an io-properties file: whole figures of at least 1. The entry has a `physical_block_size`
    /// if the kernel reports a block above 4096 bytes and random writes were measured at it, or an experiment found a
    /// larger one; a size that only the user chose is left out.
    ///
    /// # Errors
    /// [`MissingFigures`] if the measurement was interrupted, or the write bound was too small.
    pub fn disk_properties(&self) -> Result<DiskProperties, MissingFigures> {
        let [read_iops, write_iops, read_bandwidth, write_bandwidth] = self.whole_figures()?;
        let saturation = |curve: &Option<SequentialCurve>| curve.as_ref()?.saturation_bytes.map(u64::from);
        Ok(DiskProperties {
            mountpoints: vec![self.site.mountpoint.clone()],
            read_iops,
            write_iops,
            read_bandwidth_bytes_per_s: read_bandwidth,
            write_bandwidth_bytes_per_s: write_bandwidth,
            read_saturation_bytes: saturation(&self.read_sequential),
            write_saturation_bytes: saturation(&self.write_sequential),
            physical_block_bytes: self.physical_block_bytes().map(u64::from),
            duplex: false,
            rate_factor: 1.0,
            capacity_scale_max: MEASURED_SCALE_MAX,
            form: self.limits_apart.map(|_| CostForm::Max),
            mix_exponent_p: self.mix_exponent_p(),
            unloaded_latency_ns: self.unloaded_latency_ns(),
            read_depths: depths(&self.read_depths),
            write_depths: depths(&self.write_depths),
            doubtful: self.doubts().into_iter().map(|doubt| doubt.figure.to_owned()).collect(),
        })
    }

    /// Returns the figures that the measurement itself contradicts, that other programs disturbed, or that are too
    /// uncertain, each once.
    pub fn doubts(&self) -> Vec<Doubt> {
        let of_figure = |(name, _, figure): (&'static str, _, &Option<Figure>)| {
            let figure = figure.as_ref()?;
            let foreign_pct = figure.foreign_pct.filter(|percent| *percent > FOREIGN_DOUBT_PCT);
            let foreign = foreign_pct.map(|percent| format!("{percent:.0} % of what the disk moved was not ours"));
            let vague_pct = figure.ci95_pct.filter(|percent| *percent > VAGUE_PCT);
            let vague = vague_pct.map(|percent| format!("it is known to ± {percent:.0} % only"));

            let exceeded = || {
                let most = self.highest_seen(name, figure.block_bytes)?;
                // A burst is explained: it ended, and the figure is the rate after it.
                let explained = figure.burst.map_or(figure.value, |burst| burst.max(figure.value));
                let factor = if name.starts_with("write") { CONTRADICTED_FACTOR_WRITES } else { CONTRADICTED_FACTOR };
                (most > factor * explained).then(|| {
                    let (most, value) = (figure.unit.text(most), figure.unit.text(figure.value));
                    format!("the curves of this measurement reach {most}, and the figure is {value}")
                })
            };

            let unrepeated = || {
                let most = self.highest_later(name, figure.block_bytes)?;
                (figure.value > UNREPEATED_FACTOR * most).then(|| {
                    let (most, value) = (figure.unit.text(most), figure.unit.text(figure.value));
                    format!(
                        "what was measured later reaches at most {most}, and the figure is {value}: it may be that of a \
                         burst (credits, a cache)"
                    )
                })
            };

            Some(Doubt { figure: name, why: foreign.or(vague).or_else(exceeded).or_else(unrepeated)? })
        };

        self.figures().into_iter().filter_map(of_figure).collect()
    }

    pub(super) fn doubt_warnings(&self) -> Vec<Warning> {
        let warning = |doubt: Doubt| Warning {
            code: WarningCode::Doubtful,
            message: format!("{} is doubtful: {}; measure again", doubt.figure, doubt.why),
        };
        self.doubts().into_iter().map(warning).collect()
    }

    /// Returns a warning for each figure that is not doubtful, and that a curve exceeds by more than its interval.
    pub fn exceeded_warnings(&self) -> Vec<Warning> {
        let doubts = self.doubts();
        let of_figure = |(name, _, figure): (&'static str, _, &Option<Figure>)| {
            let figure = figure.as_ref().filter(|figure| figure.burst.is_none())?;
            let most = self.highest_seen(name, figure.block_bytes)?;
            let known = (figure.ci95_pct? / 100.0).max(EXCEEDED_PART);
            let is_new = doubts.iter().all(|doubt| doubt.figure != name);
            (is_new && most > (1.0 + known) * figure.value).then(|| Warning {
                code: WarningCode::Deviation,
                message: format!(
                    "{name}: {} is the figure, and a shorter sample of the curve by size reached {}: measure longer \
                     (--phase) to see which of the two holds",
                    figure.unit.text(figure.value),
                    figure.unit.text(most)
                ),
            })
        };
        self.figures().into_iter().filter_map(of_figure).collect()
    }

    /// Returns the highest rate of the same kind as the figure `name` on a curve that was measured after it. `None` for
    /// merged reports, whose curves are those of one run. Ignores the search for a depth, which comes first, when a
    /// disk may still be in its burst.
    fn highest_seen(&self, name: &str, block_bytes: u32) -> Option<f64> {
        if self.merged.is_some() {
            return None;
        }
        let of_sizes = |curve: &Option<SizeCurve>| {
            let points = curve.as_ref()?.points.iter().filter(|point| point.block_bytes == block_bytes);
            points.map(|point| point.iops).reduce(f64::max)
        };
        let of_lengths = |curve: &Option<SequentialCurve>| {
            curve.as_ref()?.points.iter().map(|point| point.bytes_per_s).reduce(f64::max)
        };
        match name {
            "read_iops" => of_sizes(&self.read_sizes),
            "write_iops" => of_sizes(&self.write_sizes),
            "read_bandwidth" => of_lengths(&self.read_sequential),
            "write_bandwidth" => of_lengths(&self.write_sequential),
            _ => None,
        }
    }

    /// Returns the highest rate of the same kind as the figure `name` in all later measurements: short requests at
    /// random and in order, or long ones. `None` unless two curves have one, because a single one may have been
    /// disturbed.
    fn highest_later(&self, name: &str, block_bytes: u32) -> Option<f64> {
        let (sizes, sequential) = match name.starts_with("read") {
            true => (&self.read_sizes, &self.read_sequential),
            false => (&self.write_sizes, &self.write_sequential),
        };
        let curves = [&sizes.as_ref()?.points, &sequential.as_ref()?.points];
        let of = |points: &Vec<SizePoint>| match name.ends_with("iops") {
            true => points.iter().find(|point| point.block_bytes == block_bytes).map(|point| point.iops),
            false => points.iter().map(|point| point.bytes_per_s).reduce(f64::max),
        };
        let [at_random, in_order] = curves.map(of);
        let alone = self.frontier.as_ref().filter(|frontier| frontier.read_block_bytes == block_bytes);
        let alone = alone.filter(|_| name == "read_iops").map_or(0.0, |frontier| frontier.read_iops);
        at_random.zip(in_order).filter(|_| self.merged.is_none()).map(|(a, b)| a.max(b).max(alone))
    }

    /// Returns the mix exponent, or 1 if reads beside writes were not measured. Rounds to two decimals: a measured
    /// exponent has no more significant ones.
    fn mix_exponent_p(&self) -> f64 {
        let exponent = |p: f64| ((p * 100.0).round() / 100.0).max(0.01);
        let Some(frontier) = &self.frontier else { return 1.0 };
        let measured = self.limits_apart.map_or(frontier.mix_exponent_p, |apart| apart.mix_exponent_p);
        measured.map_or(f64::INFINITY, exponent)
    }

    fn unloaded_latency_ns(&self) -> u64 {
        self.read_latency.map_or(0, |latency| latency.p50_ns)
    }

    /// Returns the disk's own block if writers must know it: larger by experiment than the kernel reports, or reported
    /// by the kernel as larger than usual and used for random writes.
    fn physical_block_bytes(&self) -> Option<u32> {
        let reported = place::physical_block_bytes(self.site.device.as_ref());
        if let Some(found) = self.physical_block.as_ref().filter(|found| found.is_step)
            && found.bytes > reported.unwrap_or(0)
        {
            return Some(found.bytes);
        }
        reported.filter(|bytes| *bytes > IOPS_BLOCK_BYTES && *bytes == self.write_block.bytes)
    }

    /// Returns a warning for each IOPS figure whose block differs from that which readers of io-properties assume.
    pub(super) fn block_warnings(&self) -> Vec<Warning> {
        let taken_for_bytes = self.physical_block_bytes().unwrap_or(0).max(IOPS_BLOCK_BYTES);
        let blocks = [("read_iops", &self.read_block), ("write_iops", &self.write_block)];
        let others = blocks.into_iter().filter(|(_, block)| block.bytes != taken_for_bytes);
        let warning = |(name, block): (&str, &BlockSize)| Warning {
            code: WarningCode::BlockSize,
            message: format!(
                "{name} holds for requests of {} bytes only ({}): readers of io-properties take it for \
                 {taken_for_bytes} bytes",
                block.bytes, block.how
            ),
        };
        others.map(warning).collect()
    }

    /// Returns the disk model with everything measured: figures, sizes, mix exponent, latency.
    ///
    /// The model has tables of sizes if both directions were measured and the disk does not limit operations and bytes
    /// apart (two limits explain all sizes then); it has no part for the simulator.
    pub fn disk_model(&self) -> Result<DiskModel, MissingFigures> {
        let table = |curve: &Option<SizeCurve>| {
            let points = &curve.as_ref()?.points;
            (points.len() >= 2).then(|| points.iter().map(|point| (point.block_bytes, point.iops.round())).collect())
        };

        let tables = table(&self.read_sizes).zip(table(&self.write_sizes));
        let leaf = self.site.device.as_ref().and_then(|device| device.leaves.first());

        Ok(DiskModel {
            name: leaf.and_then(|leaf| leaf.model.clone()),
            figures: self.four_figures()?,
            form: if self.limits_apart.is_some() { CostForm::Max } else { CostForm::Knee },
            block_bytes: [self.read_block.bytes, self.write_block.bytes],
            tables: tables
                .filter(|_| self.limits_apart.is_none())
                .map(|(read, write): (SizeTable, SizeTable)| [read, write]),
            mix_exponent_p: self.mix_exponent_p(),
            duplex: false,
            unloaded_latency_ns: self.unloaded_latency_ns(),
            capacity_scale_max: MEASURED_SCALE_MAX,
            max_io_requests: self.depth_mode.as_ref().map(|mode| mode.max_io_requests),
            num_io_queues: self.depth_mode.as_ref().map(|mode| mode.num_io_queues),
            decay_tau_ns: DECAY_TAU_NS,
            device: None,
        })
    }

    /// Returns the four figures as CSV, with a header; a missing figure has a line with empty fields.
    pub fn to_csv(&self) -> String {
        let row = |(name, _, figure): (&str, _, &Option<Figure>)| {
            let figure = figure.as_ref();
            [
                name.to_owned(),
                fixed(figure.map(|it| it.value), 1),
                figure.map_or_else(String::new, |it| variant_name(it.unit)),
                fixed(figure.and_then(|it| it.ci95_pct), 2),
                fixed(figure.map(|it| it.deviation_pct), 2),
                known(figure.map(|it| it.block_bytes)),
                known(figure.map(|it| it.depth)),
            ]
        };
        let names = "figure,value,unit,ci95_pct,deviation_pct,block_bytes,depth";
        Table::new("", names.split(','), self.figures().map(row)).to_csv()
    }

    /// Returns the figures in the scheduler's form.
    pub fn four_figures(&self) -> Result<FourFigures, MissingFigures> {
        let [read_iops, write_iops, read_bandwidth, write_bandwidth] = self.whole_figures()?.map(Rate::per_second);
        Ok(FourFigures { read_iops, write_iops, read_bandwidth, write_bandwidth })
    }

    /// Returns the four figures with their names in io-properties and for people, in the order of the former.
    pub fn figures(&self) -> [(&'static str, &'static str, &Option<Figure>); 4] {
        [
            ("read_iops", "random read", &self.read_iops),
            ("write_iops", "random write", &self.write_iops),
            ("read_bandwidth", "sequential read", &self.read_bandwidth),
            ("write_bandwidth", "sequential write", &self.write_bandwidth),
        ]
    }

    fn missing_cause(&self) -> MissingCause {
        let is_bounded = self.warnings.iter().any(|warning| warning.code == WarningCode::MaxWrite);
        if is_bounded && !self.interrupted { MissingCause::MaxWrite } else { MissingCause::Unfinished }
    }

    /// Returns the rounded figures in the order of [`TuneReport::figures`].
    fn whole_figures(&self) -> Result<[u64; 4], MissingFigures> {
        let figures = self.figures();
        let is_measured = |figure: &Figure| figure.value.is_finite() && figure.value > 0.0;
        let missing = figures.iter().filter(|(.., figure)| !figure.as_ref().is_some_and(is_measured));
        let names: Vec<&'static str> = missing.map(|(name, ..)| *name).collect();
        if !names.is_empty() {
            return Err(MissingFigures { names, cause: self.missing_cause() });
        }
        let whole = |figure: &Option<Figure>| {
            figure.as_ref().map_or(1, |figure| (figure.value.round() as u64).clamp(1, MAX_FIGURE))
        };
        Ok(figures.map(|(.., figure)| whole(figure)))
    }
}
