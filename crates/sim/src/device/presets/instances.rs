//! Local disks of cloud instances: `instances.csv`.
//!
//! # Why
//! A measured figure alone says little. Beside the figures of the same instance, or of other sizes with more or fewer
//! of the same disks, a wrong one stands out.
//!
//! # How it works
//! A row states the figures of one disk or of all disks of the instance together ([`Basis`]), as its source does;
//! [`Instance::total`] and [`Instance::per_disk`] convert.
//!
//! - `aws`: measured with iotune, from the presets of ScyllaDB's machine image (Apache-2.0); sizes, memory, network and
//!   advertised operations from the AWS documentation. Sizes that the presets treat as one (all of i3 from 2xlarge on,
//!   all of i3en from 3xlarge on) are rows of their own here. It gives r5d the figures of m5d, and m6gd, r6gd and x2gd
//!   those of c6gd: they have the same disks.
//! - `azure`, `oci`: from the same image's presets for those clouds, measured, for the whole instance.
//! - `gcp`: the limits that Google's documentation states for the local SSDs of Z3 machines.
//!
//! The source gives the newer AWS families (i7i, i7ie, i8g, i8ge) for the whole instance; readers that multiply them
//! again by the number of disks promise up to eight times the truth. Two rows have write operations that cannot be
//! right. They are kept as published, with the reason in [`Instance::suspect`], and are never a measure for others.
//!
//! # Limits
//! Instances with local disks only. The number of disks is known for AWS only. Figures are rates of a disk in use for
//! minutes, not for hours, and of the best case: one kind of request at a time. The advertised operations of i7i, i8g,
//! i7ie and i8ge are inferred: the round figures that the measured ones of small sizes meet within 0.1 %. For a disk of
//! any i2 the source has one row; on i2.8xlarge it makes 1.4 times the operations that AWS stated.
//!
//! # Example
//! ```
//! use plimsoll_sim::device::presets::instances;
//! let instance = instances().iter().find(|row| row.name == "i4i.8xlarge").unwrap();
//! assert_eq!((instance.n_disks, instance.disk_gb), (Some(2), Some(3750)));
//! assert_eq!(instance.total().read_iops, 2 * 384_561);
//! assert_eq!(instance.advertised_iops, Some([800_000, 440_000]));
//! ```

use std::sync::LazyLock;

use super::behaviour::Behaviour;
use super::build::Build;
use super::table::{Cells, rows};
use super::{Evidence, Preset, PresetKind};

/// The four figures of io-properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Reads per second, at least 1.
    pub read_iops: u64,
    /// Bytes read per second, at least 1.
    pub read_bandwidth_bytes_per_s: u64,
    /// Writes per second, at least 1.
    pub write_iops: u64,
    /// Bytes written per second, at least 1.
    pub write_bandwidth_bytes_per_s: u64,
}

impl Figures {
    /// Returns the figures in the order reads, bytes read, writes, bytes written.
    pub fn in_order(&self) -> [u64; 4] {
        [self.read_iops, self.read_bandwidth_bytes_per_s, self.write_iops, self.write_bandwidth_bytes_per_s]
    }

    /// Multiplies all four figures by `n`; a product that does not fit becomes the largest number.
    pub fn times(&self, n: u32) -> Figures {
        self.map(|figure| figure.saturating_mul(u64::from(n)))
    }

    fn map(&self, change: impl Fn(u64) -> u64) -> Figures {
        Figures {
            read_iops: change(self.read_iops),
            read_bandwidth_bytes_per_s: change(self.read_bandwidth_bytes_per_s),
            write_iops: change(self.write_iops),
            write_bandwidth_bytes_per_s: change(self.write_bandwidth_bytes_per_s),
        }
    }

    pub(super) fn read(cells: &mut Cells) -> Option<Figures> {
        Some(Figures {
            read_iops: cells.number()?,
            read_bandwidth_bytes_per_s: cells.number()?,
            write_iops: cells.number()?,
            write_bandwidth_bytes_per_s: cells.number()?,
        })
    }
}

/// The scope of the published figures of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    PerDisk,
    InstanceTotal,
}

impl Basis {
    /// Returns its name: `per_disk` or `instance_total`.
    pub fn name(self) -> &'static str {
        match self {
            Basis::PerDisk => "per_disk",
            Basis::InstanceTotal => "instance_total",
        }
    }
}

/// The origin of the advertised operations of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdvertisedBasis {
    /// The provider states them.
    Stated,
    /// Inferred: the round numbers that the measured figures of small sizes approach, times the size.
    Inferred,
}

impl AdvertisedBasis {
    /// Returns its name: `stated` or `inferred`.
    pub fn name(self) -> &'static str {
        match self {
            AdvertisedBasis::Stated => "stated",
            AdvertisedBasis::Inferred => "inferred",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Instance {
    /// Name of the instance, as the cloud writes it: `i4i.2xlarge`.
    pub name: &'static str,
    /// `aws`, `azure`, `gcp` or `oci`.
    pub cloud: &'static str,
    /// Number of local disks, at least 1; `None`: not known.
    pub n_disks: Option<u32>,
    /// The scope of `published`.
    pub basis: Basis,
    pub published: Figures,
    /// How the source obtained the figures.
    pub evidence: Evidence,
    /// 4 KiB reads and writes a second over all disks that the provider advertises; `None`: not known.
    pub advertised_iops: Option<[u64; 2]>,
    /// The origin of `advertised_iops`; `None`: there are none.
    pub advertised_basis: Option<AdvertisedBasis>,
    /// Size of one disk in GB (10^9 bytes); `None`: not known.
    pub disk_gb: Option<u64>,
    /// Virtual CPUs; `None`: not known.
    pub vcpus: Option<u32>,
    /// Memory in GiB; `None`: not known.
    pub memory_gib: Option<f64>,
    /// Guaranteed network rate in Gb/s (10^9 bits a second); `None`: not known.
    pub network_gbps: Option<f64>,
    behaviour: &'static Behaviour,
    pub source: &'static str,
    /// Date of the figures: year, or year and month.
    pub date: &'static str,
    /// The reason not to trust a figure of this row.
    pub suspect: Option<&'static str>,
}

// No cell of the table is NaN.
impl Eq for Instance {}

/// Size of a disk if it is not known, in bytes.
const UNKNOWN_DISK_BYTES: u64 = 1_000_000_000_000;

impl Instance {
    /// Returns the figures of all disks together.
    pub fn total(&self) -> Figures {
        match (self.basis, self.n_disks) {
            (Basis::PerDisk, Some(n_disks)) => self.published.times(n_disks),
            _ => self.published,
        }
    }

    /// Returns the figures of one disk; `None` if the number of disks is not known.
    pub fn per_disk(&self) -> Option<Figures> {
        let n_disks = u64::from(self.n_disks?.max(1));
        Some(match self.basis {
            Basis::PerDisk => self.published,
            Basis::InstanceTotal => self.published.map(|figure| figure / n_disks),
        })
    }

    /// Returns the name without the size: `i4i`, `Standard_Ls_v4`, `z3-highmem-highlssd`, `VM.DenseIO.E5.Flex`.
    pub fn family(&self) -> String {
        let is_size = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        match self.cloud {
            "aws" => self.name.split_once('.').map_or(self.name, |(family, _)| family).to_owned(),
            "azure" => {
                let (front, version) = self.name.rsplit_once('_').unwrap_or((self.name, ""));
                let front: String = front.chars().filter(|c| !c.is_ascii_digit()).collect();
                format!("{front}_{version}")
            }
            _ => self.name.split('-').filter(|part| !is_size(part)).collect::<Vec<_>>().join("-"),
        }
    }

    pub fn preset(&self) -> Preset {
        let disks = self.n_disks.unwrap_or(1).max(1);
        let divisor = if self.basis == Basis::InstanceTotal { f64::from(disks) } else { 1.0 };
        let behaviour = self.behaviour;
        let build = Build {
            disks,
            disk_bytes: self.disk_gb.map_or(UNKNOWN_DISK_BYTES, |gb| gb * 1_000_000_000),
            rates: self.published.in_order().map(|figure| figure as f64 / divisor),
            behaviour,
            apart: false,
            spare: 0.0,
            caps: Vec::new(),
        };

        let mut defaults = behaviour.defaults();
        defaults.extend(self.disk_gb.is_none().then_some("capacity"));
        defaults.extend(self.n_disks.is_none().then_some("disks"));

        Preset {
            name: self.name.to_owned(),
            kind: PresetKind::Instance,
            source: self.source,
            date: self.date,
            evidence: self.evidence,
            spec: build.spec(),
            figures: build.figures(),
            burst: None,
            mix_exponent_p: behaviour.mix_exponent_p,
            unloaded_latency_ns: behaviour.read_ns as u64,
            defaults,
            max_io_requests: None,
            suspect: self.suspect,
        }
    }
}

impl Instance {
    fn read(cells: &mut Cells) -> Option<Instance> {
        let (cloud, name, n_disks) = (cells.text()?, cells.text()?, cells.optional()?);
        let basis = if cells.either("per_disk", "instance_total")? { Basis::PerDisk } else { Basis::InstanceTotal };
        let (published, evidence) = (Figures::read(cells)?, cells.evidence()?);
        let (advertised_read, advertised_write) = (cells.optional()?, cells.optional()?);
        let advertised_iops = advertised_read.zip(advertised_write).map(<[u64; 2]>::from);
        let advertised_basis = match (cells.cell()?, advertised_iops.is_some()) {
            ("", false) => None,
            ("stated", true) => Some(AdvertisedBasis::Stated),
            ("inferred", true) => Some(AdvertisedBasis::Inferred),
            _ => return None,
        };

        Some(Instance {
            name,
            cloud,
            n_disks,
            basis,
            published,
            evidence,
            advertised_iops,
            advertised_basis,
            disk_gb: cells.optional()?,
            vcpus: cells.optional()?,
            memory_gib: cells.optional()?,
            network_gbps: cells.optional()?,
            behaviour: Behaviour::of_cell(cells)?,
            source: cells.source()?,
            date: cells.date()?,
            suspect: cells.text(),
        })
    }
}

static INSTANCES: LazyLock<Vec<Instance>> = LazyLock::new(|| rows(include_str!("instances.csv"), Instance::read));

/// Returns all instances, in the order of the table.
pub fn instances() -> &'static [Instance] {
    &INSTANCES
}
