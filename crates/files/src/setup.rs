//! Converts a user's choices for a disk (properties, mode, goal) to the disk that the library schedules.
//!
//! **Why.** All commands that do I/O take the same flags and files, which must mean the same everywhere.
//!
//! **How.** [`DiskChoice`] has the checked flags. [`DiskChoice::setup`] finds the entry of the properties file for the
//! storage by its device number, as Seastar does, and makes a [`DiskSetup`]. Properties without an entry for the
//! storage are an error, never a silent "unlimited".
//!
//! **Limits.** One disk: the one that holds the storage.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_files::io_properties;
//! use plimsoll_files::setup::DiskChoice;
//! let text = "disks: [{mountpoint: /, read_iops: 1000, write_iops: 500, read_bandwidth: 1M, write_bandwidth: 1M}]";
//! let properties = io_properties::parse("inline", text)?;
//! let choice = DiskChoice { properties: Some(properties), ..DiskChoice::default() };
//! let setup = choice.setup("/".as_ref())?;
//! assert!(!setup.config.model.is_unlimited());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod old_defaults;

use std::path::{Path, PathBuf};

use plimsoll::backend::choose::BackendKind;
use plimsoll::core::{ControlConfig, CostForm, DiskConfig, LatencyGoal};
pub use plimsoll::properties::{disk_config, figures};
pub use plimsoll::sys::device::device_of;
use plimsoll::sys::device::{is_on, name};
use plimsoll::{DiskMode, DiskSetup};
use plimsoll_figures::units::{UnitError, quoted};

use crate::disk::{self, DiskModel};
use crate::error::ConfigError;
use crate::io_properties::{DiskProperties, IoProperties};
use crate::jobs::Job;
pub use old_defaults::ModelChoice;

#[derive(Clone, Debug, Default)]
pub struct DiskChoice {
    /// Contents of the io-properties file; `None`: the disk is unlimited, unless there is a model.
    pub properties: Option<IoProperties>,
    /// The model of the disk that holds the storage; properties override it.
    pub disk: Option<DiskModel>,
    /// Cost form that replaces that of the properties or disk, or the old defaults that replace both; `None`: their
    /// own.
    pub model: Option<ModelChoice>,
    /// The mode in which requests are held back.
    pub mode: DiskMode,
    /// Latency goal; `None` for the default.
    pub latency_goal: Option<LatencyGoal>,
    /// I/O queues; `None` for one per shard.
    pub num_io_queues: Option<u16>,
    /// The closed loop; `None` for the default: on, and never above the model.
    pub control: Option<ControlConfig>,
    /// Part of the full throughput that the closed loop keeps; `None` for the default.
    pub throughput_goal: Option<f64>,
}

/// Returns whether a backend works in memory alone: it needs no file, and uses no disk.
pub fn is_in_memory(backend: Option<BackendKind>) -> bool {
    matches!(backend, Some(BackendKind::Null | BackendKind::Memory))
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no disk of the io-properties holds {storage} (device {device}): they name {named}; add an entry whose mountpoint is on \
     the same device, or run without properties"
)]
pub struct NoEntry {
    storage: String,
    device: String,
    named: String,
}

#[derive(Clone, Debug)]
pub struct OtherDisk {
    pub storages: Vec<PathBuf>,
    pub setup: DiskSetup,
}

/// Why a disk of a job's own cannot be scheduled.
#[derive(Debug, thiserror::Error)]
pub enum OtherDiskError {
    #[error("job `{job}`: {error}")]
    NoEntry { job: String, error: NoEntry },
    #[error(transparent)]
    Model(#[from] ConfigError),
    #[error("job `{job}`: {storage} is on the same disk as {other}, which has another model: remove `disk` of the job")]
    TwoModels { job: String, storage: String, other: String },
    #[error("job `{job}`: {storage} is on another disk than the one of --disk: say what it is with `disk: NAME`")]
    NoModel { job: String, storage: String },
}

impl DiskChoice {
    /// Returns the disks of jobs with a storage of their own that is on another device than `storage`. With a backend
    /// in memory there are no devices, and each path is a disk.
    pub fn other_disks(
        &self,
        storage: &Path,
        jobs: &[Job],
        backend: Option<BackendKind>,
    ) -> Result<Vec<OtherDisk>, OtherDiskError> {
        let place = |path: &Path| match device_of(path).filter(|_| !is_in_memory(backend)) {
            Some(device) => Ok(device),
            None => Err(path.to_owned()),
        };
        let mut disks: Vec<(OtherDisk, Option<String>)> = Vec::new();
        for job in jobs {
            let Some(own) = &job.storage else { continue };
            let two_models = |other: &Path| OtherDiskError::TwoModels {
                job: job.name.clone(),
                storage: own.path.display().to_string(),
                other: other.display().to_string(),
            };
            if place(&own.path) == place(storage) {
                if own.disk.is_some() {
                    return Err(two_models(storage));
                }
                continue;
            }
            let is_known = |(disk, _): &&mut (OtherDisk, _)| {
                disk.storages.first().is_some_and(|known| place(known) == place(&own.path))
            };
            if let Some((disk, model)) = disks.iter_mut().find(is_known) {
                if own.disk.is_some() && own.disk != *model {
                    return Err(two_models(disk.storages.first().unwrap_or(&own.path)));
                }
                if !disk.storages.contains(&own.path) {
                    disk.storages.push(own.path.clone());
                }
                continue;
            }

            if own.disk.is_none() && self.disk.is_some() && self.properties.is_none() {
                let storage = own.path.display().to_string();
                return Err(OtherDiskError::NoModel { job: job.name.clone(), storage });
            }
            let model = own.disk.as_deref().map(|name| disk::find(name, Path::new(""))).transpose()?;
            let properties = self.properties.clone().filter(|_| model.is_none());
            let choice = DiskChoice { disk: model, properties, ..self.clone() };
            let setup =
                choice.setup(&own.path).map_err(|error| OtherDiskError::NoEntry { job: job.name.clone(), error })?;
            disks.push((OtherDisk { storages: vec![own.path.clone()], setup }, own.disk.clone()));
        }
        Ok(disks.into_iter().map(|(disk, _)| disk).collect())
    }

    /// Returns the disk that holds `storage`. With properties, `storage` must exist.
    ///
    /// # Errors
    /// [`NoEntry`] if there are properties, but no entry for this storage.
    pub fn setup(&self, storage: &Path) -> Result<DiskSetup, NoEntry> {
        let mut config = match (self.model, &self.properties, &self.disk) {
            (Some(ModelChoice::OldDefaults), ..) => old_defaults::disk_config(),
            (_, Some(properties), _) => disk_config(entry_for(properties, storage)?, self.form()),
            (_, None, Some(disk)) => match self.form() {
                // The form replaces the table.
                Some(form) => DiskModel { form, tables: None, ..disk.clone() }.config(),
                None => disk.config(),
            },
            (_, None, None) => DiskConfig::default(),
        };

        if let Some(control) = self.control {
            config.control = control;
        }
        if let Some(goal) = self.throughput_goal {
            config.control.throughput_goal = goal;
        }
        if let Some(goal) = self.latency_goal {
            config.latency_goal = goal;
        }

        let setup = DiskSetup { mode: self.mode, num_io_queues: self.num_io_queues, ..DiskSetup::new(config) };
        let decay_tau_ns = self.disk.as_ref().map_or(setup.decay_tau_ns, |disk| disk.decay_tau_ns);
        Ok(DiskSetup { decay_tau_ns, ..setup })
    }

    /// Returns the properties' entry for the disk that holds `storage`; `None` without properties.
    pub fn entry(&self, storage: &Path) -> Result<Option<&DiskProperties>, NoEntry> {
        self.properties.as_ref().map(|properties| entry_for(properties, storage)).transpose()
    }

    /// Returns the chosen cost form, which replaces that of the properties or disk, if any.
    pub fn form(&self) -> Option<CostForm> {
        match self.model {
            Some(ModelChoice::Form(form)) => Some(form),
            _ => None,
        }
    }

    pub fn is_unlimited(&self) -> bool {
        let is_known = self.properties.is_some() || self.disk.is_some() || self.model == Some(ModelChoice::OldDefaults);
        !is_known && self.mode == DiskMode::Scheduled
    }
}

/// Reads the longest device time of a piece: milliseconds from 0.001 to 10000000, or `none`.
///
/// # Errors
/// `text` is neither.
pub fn parse_latency_goal(text: &str) -> Result<LatencyGoal, UnitError> {
    match (text, text.parse::<f64>()) {
        ("none", _) => Ok(LatencyGoal::NoSplit),
        (_, Ok(ms)) if (1e-3..=1e7).contains(&ms) => Ok(LatencyGoal::Ns((ms * 1e6) as u64)),
        _ => Err(UnitError {
            message: format!("{} is no latency goal", quoted(text)),
            help: "give milliseconds from 0.001 to 10000000, or `none`".to_owned(),
        }),
    }
}

/// Reads the bounds of the closed loop: `off`, or the least and largest capacity scale as `MIN:MAX`, such as `0.05:1`.
///
/// # Errors
/// `text` is neither, or bounds are outside 0.001 to 100 or in the wrong order.
pub fn parse_capacity_scale(text: &str) -> Result<ControlConfig, UnitError> {
    let help = "write `off`, or MIN:MAX with 0.001 <= MIN <= MAX <= 100, such as 0.05:1";
    if text == "off" {
        return Ok(ControlConfig::OFF);
    }
    let bound = |text: &str| text.parse::<f64>().ok().filter(|bound| (0.001..=100.0).contains(bound));
    match text.split_once(':').map(|(min, max)| (bound(min), bound(max))) {
        Some((Some(scale_min), Some(scale_max))) if scale_min <= scale_max => {
            Ok(ControlConfig { scale_min, scale_max, ..ControlConfig::default() })
        }
        _ => Err(UnitError {
            message: format!("{} does not bound a capacity scale", quoted(text)),
            help: help.to_owned(),
        }),
    }
}

fn entry_for<'a>(properties: &'a IoProperties, storage: &Path) -> Result<&'a DiskProperties, NoEntry> {
    let device = device_of(storage);
    let holds = |entry: &&DiskProperties| {
        let mountpoints: Vec<PathBuf> = entry.mountpoints.iter().map(PathBuf::from).collect();
        device.is_some_and(|device| is_on(&mountpoints, device))
    };
    properties.disks.iter().find(holds).ok_or_else(|| NoEntry {
        storage: storage.display().to_string(),
        device: name(device),
        named: properties.disks.iter().flat_map(|d| d.mountpoints.clone()).collect::<Vec<_>>().join(", "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io_properties::parse;

    #[test]
    fn entries_are_found_by_device() {
        let text = "disks:\n- {mountpoint: /proc, read_iops: 1, write_iops: 1, read_bandwidth: 1M, write_bandwidth: 1M}\n\
                    - {mountpoint: /dev/null, read_iops: 7, write_iops: 1, read_bandwidth: 1M, write_bandwidth: 1M}\n";
        let properties = parse("test", text).unwrap();
        assert_eq!(entry_for(&properties, Path::new("/dev/null")).unwrap().read_iops, 7);
        let error = entry_for(&properties, Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(error.contains("/dev/zero") && error.contains("/proc, /dev/null"), "{error}");
    }

    #[test]
    fn iops_are_taken_at_4_kib_or_the_physical_block() {
        let text = "disks: [{mountpoint: /, read_iops: 100000, write_iops: 100000, read_bandwidth: 1000000000, \
                    write_bandwidth: 1000000000, physical_block_size: 8192}]";
        let entry = &parse("test", text).unwrap().disks[0];
        let cost_ns = |len| disk_config(entry, None).model.cost(plimsoll::core::Op::Read, len).as_ns_ceil();
        assert_eq!(cost_ns(8192), 10_000);
        assert!((17_190..=18_200).contains(&cost_ns(16384)), "{}", cost_ns(16384));
    }
}
