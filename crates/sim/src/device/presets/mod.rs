//! Named devices: instances, drives and volumes with their rated figures, and a model of each.
//!
//! # Why
//! Trying a schedule on an i4i.2xlarge should not need an i4i.2xlarge. And a figure that stands in two places sooner or
//! later differs, so every published one stands here, once.
//!
//! # How it works
//! The tables are CSV files beside this module, compiled in and parsed once. `instances.csv`, `drives.csv` and
//! `volumes.csv` hold figures; each row names its source (`sources.csv`) and its behaviour (`behaviours.csv`): how
//! reads and writes share the disk, how long a request takes on the idle disk, how it disturbs others. Row and
//! behaviour together are a [`Preset`]. A parameter that no source states is that of the generation, and
//! [`Preset::defaults`] lists it.
//!
//! [`Instance`], [`Drive`] and [`Volume`] are the rows themselves. [`Volume::provision`] asks a volume for more than
//! its base; [`Preset::array`] joins several of the same into a RAID 0.
//!
//! Mix exponents of i3, i3en, im4gn, i4i and gp3, latencies of i3, i3en, i4i and gp3, and the interference of i3 and
//! i3en: fitted to read-latency surfaces that ScyllaDB published with diskplorer (2021-2022).
//!
//! # Limits
//! If a source gives no number of disks, all disks are modelled as one. Only the 983 DCT models garbage collection (a
//! full disk); switch it on for others in [`DeviceSpec::flash`]. 850 PRO writes are those of a fresh disk. Volumes
//! always deliver their promise, although the provider may fail it in one hour of a hundred.
//!
//! # Example
//! ```
//! use plimsoll_sim::device::presets;
//! let preset = presets::find("i3en.24xlarge").unwrap();
//! assert_eq!(preset.spec.raid0.members, 8);
//! assert_eq!(preset.figures.read_iops.get(), Some(8 * 257_024));
//! assert!(presets::names().any(|name| name == "gp3"));
//! let array = presets::find("983-dct").unwrap().array(4).unwrap();
//! assert_eq!(array.figures.write_iops.get(), Some(4 * 50_000));
//! ```

mod behaviour;
mod build;
mod drives;
mod instances;
mod table;
mod volumes;

use plimsoll_core::{FourFigures, Rate};
use thiserror::Error;

use super::spec::DeviceSpec;

pub use drives::{Drive, drives};
pub use instances::{AdvertisedBasis, Basis, Figures, Instance, instances};
pub use volumes::{Provision, Volume, volumes};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PresetKind {
    /// The local disks of a cloud instance.
    Instance,
    Drive,
    Volume,
}

impl PresetKind {
    pub const ALL: [PresetKind; 3] = [PresetKind::Instance, PresetKind::Drive, PresetKind::Volume];

    /// Returns its name: `instance`, `drive` or `volume`.
    pub fn name(self) -> &'static str {
        match self {
            PresetKind::Instance => "instance",
            PresetKind::Drive => "drive",
            PresetKind::Volume => "volume",
        }
    }
}

/// How the source obtained the four figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// A tool measured them.
    Measured,
    /// The vendor or the provider states them.
    Rated,
    /// They follow from other figures.
    Derived,
}

impl Evidence {
    /// Returns its name: `measured`, `rated` or `derived`.
    pub fn name(self) -> &'static str {
        match self {
            Evidence::Measured => "measured",
            Evidence::Rated => "rated",
            Evidence::Derived => "derived",
        }
    }
}

#[derive(Clone, Debug)]
pub struct Preset {
    /// Name of the device on a command line.
    pub name: String,
    pub kind: PresetKind,
    pub source: &'static str,
    /// Date of the figures: year, or year and month (`2026-06`).
    pub date: &'static str,
    /// How the source obtained the figures.
    pub evidence: Evidence,
    /// The model. `raid0.members` is the number of disks.
    pub spec: DeviceSpec,
    /// The figures that iotune would write for the whole device, all disks together. For a volume with a burst, those
    /// of the base that it falls back to.
    pub figures: FourFigures,
    /// The figures while the credits of a volume last; `None`: no burst.
    pub burst: Option<FourFigures>,
    /// p in (r/R)^p + (w/W)^p = 1; infinite for independent directions.
    pub mix_exponent_p: f64,
    /// Median of a small read on the idle device, in ns.
    pub unloaded_latency_ns: u64,
    /// Requests in flight for scheduling by depth alone, if a source states them.
    pub max_io_requests: Option<u32>,
    /// Parameters of the model that no source states, so that they are those of the generation: `mix_exponent`,
    /// `read_latency`, `write_latency`, `capacity`, `disks`.
    pub defaults: Vec<&'static str>,
    /// The reason not to trust a figure.
    pub suspect: Option<&'static str>,
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{message}")]
pub struct PresetError {
    message: String,
}

impl PresetError {
    fn new(message: impl Into<String>) -> PresetError {
        PresetError { message: message.into() }
    }
}

/// Most disks of a device; see [`RaidSpec::members`](super::RaidSpec).
const MAX_MEMBERS: u32 = 256;

impl Preset {
    /// Joins `count` of them to one RAID 0, called `4xNAME`. For a count of 1, returns a copy.
    ///
    /// # Errors
    /// A count of 0, or more than 256 disks in all.
    pub fn array(&self, count: u32) -> Result<Preset, PresetError> {
        let members = self.spec.raid0.members.saturating_mul(count);
        if count == 0 || members > MAX_MEMBERS {
            return Err(PresetError::new(format!(
                "{count} x {} are {members} disks: an array has 1 to {MAX_MEMBERS}",
                self.name
            )));
        }
        if count == 1 {
            return Ok(self.clone());
        }

        let mut array = Preset { name: format!("{count}x{}", self.name), ..self.clone() };
        array.spec.raid0.members = members;
        array.spec.capacity_bytes = self.spec.capacity_bytes.saturating_mul(u64::from(count));
        for cap in &mut array.spec.caps {
            cap.base_per_s *= f64::from(count);
            cap.burst_per_s *= f64::from(count);
            cap.credits *= f64::from(count);
        }

        array.figures = times(self.figures, count);
        array.burst = self.burst.map(|figures| times(figures, count));
        Ok(array)
    }
}

/// Multiplies the figures by `count` devices.
fn times(figures: FourFigures, count: u32) -> FourFigures {
    let times = |rate: Rate| rate.get().map_or(rate, |per_s| Rate::per_second(per_s.saturating_mul(u64::from(count))));
    FourFigures {
        read_iops: times(figures.read_iops),
        read_bandwidth: times(figures.read_bandwidth),
        write_iops: times(figures.write_iops),
        write_bandwidth: times(figures.write_bandwidth),
    }
}

/// Returns the names of all presets: instances, drives, volumes, in the order of their tables.
pub fn names() -> impl Iterator<Item = &'static str> {
    let instances = instances().iter().map(|row| row.name);
    let drives = drives().iter().map(|row| row.name);
    instances.chain(drives).chain(volumes().iter().map(|row| row.name))
}

/// Returns the preset of that name, in any case.
pub fn find(name: &str) -> Option<Preset> {
    let same = |other: &str| other.eq_ignore_ascii_case(name);
    let instance = || instances().iter().find(|row| same(row.name)).map(Instance::preset);
    let drive = || drives().iter().find(|row| same(row.name)).map(Drive::preset);
    let volume = || volumes().iter().find(|row| same(row.name)).map(Volume::preset);
    instance().or_else(drive).or_else(volume)
}

#[cfg(test)]
mod tests;
