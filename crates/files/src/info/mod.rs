//! Computes the figures of a disk description: Seastar's, and the rates that a scheduler admits by each cost form.
//!
//! **Why.** Four figures become costs, a token bucket and a longest request. Numbers show whether these match the
//! intention of the file's author, without a disk: a form that yields 63 % of the file's operations is found here, not
//! in production.
//!
//! **How.** [`of_properties`] and [`of_disk_model`] make one [`DiskInfo`] per disk. [`IoInfo`] has the output of
//! Seastar's `ioinfo`, always in Seastar's arithmetic; [`FormInfo`] has the costs and rates of this scheduler for each
//! cost form. All costs come from [`CostModel`] and [`SeastarUnits`](plimsoll_core::SeastarUnits); nothing is computed
//! twice.
//!
//! **Limits.** One NUMA node: with several, Seastar gives each its part of the figures. Rates are those of a disk that
//! is always busy and exactly as fast as its model; the closed loop, which follows the real disk, does not affect them.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_files::io_properties;
//! use plimsoll_files::info::{InfoOptions, of_properties};
//! let text = "disks: [{mountpoint: /nowhere, read_iops: 200000, read_bandwidth: 2000000000, write_iops: 100000,
//!     write_bandwidth: 1000000000}]";
//! let info = of_properties(&io_properties::parse("inline", text)?, &InfoOptions::default());
//! // The knee gives what the file says; adding 4096 / 2e9 s to 1 / 200000 s leaves 71 %.
//! let reachable = |form: &str| info.disks[0].form(form).and_then(|form| form.reachable_4k_read_pct);
//! assert_eq!(reachable("knee").map(f64::round), Some(100.0));
//! assert_eq!(reachable("additive").map(f64::round), Some(71.0));
//! # Ok::<(), plimsoll_files::ConfigError>(())
//! ```

mod forms;
mod ioinfo;
mod output;

pub use forms::{FormInfo, MIXED_WRITE_PART, SIZES_BYTES, SizeInfo};
pub use ioinfo::{CapacityInfo, FairQueueInfo, IoInfo, IoQueueInfo, TokenBucketInfo};

use plimsoll_core::{CostForm, CostModel, DEFAULT_LATENCY_GOAL_NS, FourFigures, LatencyGoal, MixExponent, Rate};
use plimsoll_sim::device::CapSpec;
use serde::{Serialize, Serializer};

use crate::depths::{self, DepthRate, Price};
use crate::disk::DiskModel;
use crate::four::Four;
use crate::io_properties::{DiskProperties, IoProperties};
use crate::presets::Cap;
use crate::setup::{device_of, disk_config, figures};

/// Version of the JSON form; it rises when a key changes its meaning or is removed.
pub const SCHEMA: u32 = 1;

/// Name of a model that is a measured table, beside the names of [`CostForm`].
pub const TABLE: &str = "table";

#[derive(Clone, Copy, Debug)]
pub struct InfoOptions {
    /// The form that [`DiskInfo::model`] names; `None`: the disk's own, or [`CostForm::Knee`].
    pub form: Option<CostForm>,
    pub latency_goal: LatencyGoal,
    /// I/O queues that share the disk; 0 counts as 1.
    pub io_queues: u16,
}

impl Default for InfoOptions {
    fn default() -> InfoOptions {
        InfoOptions { form: None, latency_goal: LatencyGoal::Ns(DEFAULT_LATENCY_GOAL_NS), io_queues: 1 }
    }
}

/// The computed figures of a file's disks. This structure is its JSON form.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Info {
    /// Version of the JSON form: [`SCHEMA`].
    pub schema: u32,
    /// One entry per disk, in the order of the file.
    pub disks: Vec<DiskInfo>,
}

/// One disk. See the module's documentation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiskInfo {
    /// The mount points joined by `:`, as Seastar labels the queue in its metrics; `None` for a disk model.
    pub mountpoint: Option<String>,
    /// The mount points as the file names them; empty for a disk model.
    pub mountpoints: Vec<String>,
    /// The name of a disk model; `None` for an entry of io-properties.
    pub name: Option<String>,
    #[serde(flatten)]
    pub ioinfo: IoInfo,
    /// The figures of the file with `rate_factor` applied; `None` if there is no limit.
    pub configured: Four<Option<u64>>,
    /// Whether reads and writes are limited separately, each by its full rate.
    pub duplex: bool,
    /// p in (r/R)^p + (w/W)^p = 1, above 0; `None` (infinite) if reads and writes do not disturb each other.
    pub mix_exponent: Option<f64>,
    /// The limits of a disk model's volume, which reads and writes share, with their bursts.
    pub shared_limits: Vec<Cap>,
    /// Depth, rate and latency at parts of the best rate of random reads, if the file has rates by depth.
    #[serde(serialize_with = "as_maps")]
    pub read_goals: Vec<Price>,
    /// The same for random writes.
    #[serde(serialize_with = "as_maps")]
    pub write_goals: Vec<Price>,
    /// I/O queues that share the disk, at least 1.
    pub io_queues: u16,
    /// The latency goal requested, in milliseconds; `None`: requests are not split.
    pub latency_goal_asked_ms: Option<f64>,
    /// The requested one of [`DiskInfo::forms`], or the disk's own.
    pub model: &'static str,
    /// The costs and rates by each cost form; a measured table, if there is one, comes first.
    #[serde(serialize_with = "forms::as_map")]
    pub forms: Vec<FormInfo>,
}

/// Writes each price as a map, because the library's own crate cannot serialize it.
fn as_maps<S: Serializer>(prices: &[Price], serializer: S) -> Result<S::Ok, S::Error> {
    let map = |Price { goal, at }: &Price| {
        let DepthRate { depth, iops, p50_ns } = at;
        serde_json::json!({"goal": goal, "depth": depth, "iops": iops, "p50_ns": p50_ns})
    };
    serializer.collect_seq(prices.iter().map(map))
}

impl DiskInfo {
    /// Returns the form called `name`: one of [`CostForm::name`], or [`TABLE`] if the disk has one.
    pub fn form(&self, name: &str) -> Option<&FormInfo> {
        self.forms.iter().find(|form| form.name == name)
    }

    /// Returns the disk's name for people: the mount points, or the name of the model.
    pub fn label(&self) -> &str {
        self.mountpoint.as_deref().or(self.name.as_deref()).unwrap_or("disk")
    }
}

/// Returns the figures of an io-properties file. Looks up the device number of each mount point, nothing else.
pub fn of_properties(properties: &IoProperties, options: &InfoOptions) -> Info {
    let disk = |(position, entry): (usize, &DiskProperties)| {
        let subject = Subject {
            mountpoints: &entry.mountpoints,
            name: None,
            id: position + 1,
            figures: figures(entry),
            duplex: entry.duplex,
            mix: disk_config(entry, None).mix,
            caps: &[],
            goals: [&entry.read_depths, &entry.write_depths].map(|curve| depths::prices(curve)),
            saturation_bytes: [entry.read_saturation_bytes, entry.write_saturation_bytes],
            models: by_form(|form| disk_config(entry, Some(form)).model),
            model: options.form.or(entry.form).unwrap_or_default().name(),
        };
        subject.info(options)
    };
    Info { schema: SCHEMA, disks: properties.disks.iter().enumerate().map(disk).collect() }
}

/// Returns the figures of a disk model. `name` is used if the model has none.
pub fn of_disk_model(disk: &DiskModel, name: &str, options: &InfoOptions) -> Info {
    let [read_block, write_block] = disk.block_bytes;
    let mut models = by_form(|form| CostModel::from_figures(&disk.figures, form, read_block, write_block));

    let config = disk.config();
    let own = config.model.form().map_or(TABLE, CostForm::name);
    if own == TABLE {
        models.insert(0, (TABLE, config.model));
    }

    let subject = Subject {
        mountpoints: &[],
        name: Some(disk.name.as_deref().unwrap_or(name)),
        id: 1,
        figures: disk.figures,
        duplex: config.duplex,
        mix: config.mix,
        caps: disk.device.as_ref().map_or(&[], |device| &device.caps),
        goals: [const { Vec::new() }; 2],
        saturation_bytes: [None; 2],
        models,
        model: options.form.map_or(own, CostForm::name),
    };

    Info { schema: SCHEMA, disks: vec![subject.info(options)] }
}

fn by_form(model: impl Fn(CostForm) -> CostModel) -> Vec<(&'static str, CostModel)> {
    CostForm::ALL.into_iter().map(|form| (form.name(), model(form))).collect()
}

/// A disk, from either kind of description.
struct Subject<'a> {
    mountpoints: &'a [String],
    name: Option<&'a str>,
    id: usize,
    figures: FourFigures,
    duplex: bool,
    mix: MixExponent,
    caps: &'a [CapSpec],
    goals: [Vec<Price>; 2],
    saturation_bytes: [Option<u64>; 2],
    models: Vec<(&'static str, CostModel)>,
    model: &'static str,
}

impl Subject<'_> {
    fn info(self, options: &InfoOptions) -> DiskInfo {
        let mix = if self.duplex { MixExponent::FULL_DUPLEX } else { self.mix };
        let configured = Four::of(&self.figures).map(Rate::get);
        let forms = self.models.iter();
        let forms = forms.map(|(name, model)| FormInfo::new(name, model, &configured, &mix, options.latency_goal));
        let io_queues = options.io_queues.max(1);
        let [read_goals, write_goals] = self.goals;

        DiskInfo {
            mountpoint: (!self.mountpoints.is_empty()).then(|| self.mountpoints.join(":")),
            mountpoints: self.mountpoints.to_vec(),
            name: self.name.map(str::to_owned),
            ioinfo: IoInfo {
                device: self.mountpoints.iter().find_map(|place| device_of(place.as_ref())),
                ..IoInfo::new(&self.figures, options.latency_goal, io_queues, self.id, self.saturation_bytes)
            },
            configured,
            duplex: self.duplex,
            mix_exponent: Some(mix.p()).filter(|p| p.is_finite()),
            shared_limits: self.caps.iter().map(Cap::of).collect(),
            read_goals,
            write_goals,
            io_queues,
            latency_goal_asked_ms: match options.latency_goal {
                LatencyGoal::Ns(ns) => Some(ns as f64 / 1e6),
                LatencyGoal::NoSplit => None,
            },
            model: self.model,
            forms: forms.collect(),
        }
    }
}

#[cfg(test)]
mod tests;
