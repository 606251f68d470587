//! Disks described by io-properties.yaml (feature `io-properties`, on by default).
//!
//! # Why
//! `plimsoll tune` measures a disk and writes this file; Seastar's iotune writes the same. A program that opens its
//! disks with it schedules by measured figures.
//!
//! # How it works
//! [`Topology::from_io_properties`] reads the file and makes a [`DiskSetup`] of each entry: the model from its four
//! figures (form `knee` unless the file names another, IOPS at 4 KiB or the physical block), the optional keys, and the
//! mount points by which [`Handle::open`](crate::Handle::open) finds the disk of a path. To read from text: [`parse`],
//! then `DiskSetup::from` on each of its disks.
//!
//! # Limits
//! Keys missing from the file keep their defaults; iotune writes neither how reads and writes mix nor the latency of
//! the idle disk. Rates by size exist only in disk files. Unknown keys are errors, not ignored as in Seastar.
//!
//! # Example
//! ```
//! use plimsoll::{Classes, DiskSetup, Topology, properties};
//! let text = "disks:
//!   - mountpoint: /var/lib/data
//!     read_iops: 95000
//!     read_bandwidth: 545M
//!     write_iops: 85000
//!     write_bandwidth: 510M
//! ";
//! let read = properties::parse("inline", text)?;
//! let disks: Vec<DiskSetup> = read.disks.iter().map(DiskSetup::from).collect();
//! assert!(!disks[0].config.model.is_unlimited());
//! let topology = Topology::new(1, Classes::new(), disks)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::path::{Path, PathBuf};

use plimsoll_core::{ControlConfig, CostForm, CostModel, DiskConfig, FourFigures, MixExponent, Rate};
pub use plimsoll_properties::ConfigError;
pub use plimsoll_properties::io_properties::{DiskProperties, IoProperties, parse, parse_from_file};

use crate::class::Classes;
use crate::topology::{DiskSetup, Topology, TopologyError};

/// Why a file gave no topology.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FromPropertiesError {
    /// The file is invalid; the error has the line, the key and the expected value.
    Properties(ConfigError),
    /// Its disks do not suit the number of shards.
    Topology(TopologyError),
}

impl std::fmt::Display for FromPropertiesError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FromPropertiesError::Properties(error) => error.fmt(f),
            FromPropertiesError::Topology(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for FromPropertiesError {}

impl Topology {
    /// Reads an io-properties file written by `plimsoll tune -o` or Seastar's iotune. Returns a topology of `shards`
    /// shards that use its disks, with the classes of `classes`. The disks keep the order of the file.
    ///
    /// # Errors
    /// See [`FromPropertiesError`].
    pub fn from_io_properties(
        path: impl AsRef<Path>,
        shards: u16,
        classes: Classes,
    ) -> Result<Topology, FromPropertiesError> {
        let read = parse_from_file(path.as_ref()).map_err(FromPropertiesError::Properties)?;
        let disks = read.disks.iter().map(DiskSetup::from).collect();
        Topology::new(shards, classes, disks).map_err(FromPropertiesError::Topology)
    }
}

impl From<&DiskProperties> for DiskSetup {
    /// Returns a scheduled disk with the model of the figures and one I/O queue per shard.
    fn from(properties: &DiskProperties) -> DiskSetup {
        let mountpoints = properties.mountpoints.iter().map(PathBuf::from).collect();
        DiskSetup { mountpoints, ..DiskSetup::new(disk_config(properties, None)) }
    }
}

/// Returns the model of one entry, with costs of the form `form`; `None` means the form of the file, or else `knee`.
#[must_use]
pub fn disk_config(properties: &DiskProperties, form: Option<CostForm>) -> DiskConfig {
    let form = form.or(properties.form).unwrap_or_default();
    let block_bytes = properties.block_bytes();
    let model = CostModel::from_figures(&figures(properties), form, block_bytes, block_bytes);
    let control = ControlConfig { scale_max: properties.capacity_scale_max, ..ControlConfig::default() };
    DiskConfig {
        model,
        mix: MixExponent::new(properties.mix_exponent_p).unwrap_or(MixExponent::LINEAR),
        duplex: properties.duplex,
        control,
        unloaded_latency_ns: properties.unloaded_latency_ns,
        ..DiskConfig::default()
    }
}

/// Returns the four figures of an entry, its `rate_factor` applied.
#[must_use]
pub fn figures(properties: &DiskProperties) -> FourFigures {
    FourFigures {
        read_iops: Rate::per_second(properties.read_iops),
        write_iops: Rate::per_second(properties.write_iops),
        read_bandwidth: Rate::per_second(properties.read_bandwidth_bytes_per_s),
        write_bandwidth: Rate::per_second(properties.write_bandwidth_bytes_per_s),
    }
    .scaled(properties.rate_factor)
}
