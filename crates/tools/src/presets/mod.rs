//! Disks of cloud instances: what others measured, in one table.
//!
//! **Why.** A measured figure says little alone. Beside the figures of the same instance, or of its sisters with more
//! or fewer of the same disks, a wrong one stands out: see [`crate::check`].
//!
//! **How.** `instances.csv` is part of the program and parsed once. A row states the figures of one disk or of all
//! disks of the instance together ([`Basis`]), as its source does; [`Instance::total`] and [`Instance::per_disk`]
//! convert.
//!
//! The figures were copied in 2025:
//!
//! - `aws`: from the io preset file of ScyllaDB's machine image (Apache-2.0), measured with iotune; numbers of disks
//!   from the size tables of the AWS documentation. Sizes that the file treats as one (all of i3 from 2xlarge on, all
//!   of i3en from 3xlarge on) are rows of their own here.
//! - `azure`, `oci`: from the same image's presets for those clouds, measured, for the whole instance. The Azure
//!   figures are those after their correction of that year.
//! - `gcp`: the limits that Google's documentation states for the local SSDs of Z3 machines.
//!
//! The source gives the newer AWS families (i7i, i7ie, i8g, i8ge) for the whole instance; readers that multiply them
//! by the number of disks once more promise up to eight times the truth. Two rows have write IOPS that cannot be
//! right. They are kept as published, with the reason in [`Instance::suspect`], and are never a measure for others.
//!
//! **Limits.** Instances with local disks only. The number of disks is known for AWS only. Figures are rates of a
//! disk that is in use for minutes, not for hours, and of the best case: one kind of request at a time.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_tools::presets;
//! let instance = presets::find("i4i.8xlarge").ok_or("not in the table")?;
//! assert_eq!(instance.n_disks, Some(2));
//! assert_eq!(instance.total().read_iops, 2 * 384_561);
//! assert_eq!(presets::family("i4i.8xlarge").len(), 10);
//! # Ok::<(), &str>(())
//! ```

use std::sync::LazyLock;

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
    /// The figures in the order of [`FIGURE_KEYS`].
    #[must_use]
    pub fn in_order(&self) -> [u64; 4] {
        [self.read_iops, self.read_bandwidth_bytes_per_s, self.write_iops, self.write_bandwidth_bytes_per_s]
    }

    /// All four figures times `n`; a product that does not fit is the largest number.
    #[must_use]
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
}

/// The keys of the four figures in an io-properties file.
pub const FIGURE_KEYS: [&str; 4] = ["read_iops", "read_bandwidth", "write_iops", "write_bandwidth"];

/// What the published figures of an instance stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// One of its disks.
    PerDisk,
    /// All its disks together.
    InstanceTotal,
}

/// One kind of cloud instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Its name, as the cloud writes it: `i4i.2xlarge`.
    pub name: &'static str,
    /// `aws`, `azure`, `gcp` or `oci`.
    pub cloud: &'static str,
    /// How many local disks it has, at least 1; `None`: not known.
    pub n_disks: Option<u32>,
    /// What `published` stands for.
    pub basis: Basis,
    /// The figures as published.
    pub published: Figures,
    /// Why a figure of this row is not to be trusted.
    pub suspect: Option<&'static str>,
}

impl Instance {
    /// The figures of all disks together.
    #[must_use]
    pub fn total(&self) -> Figures {
        match (self.basis, self.n_disks) {
            (Basis::PerDisk, Some(n_disks)) => self.published.times(n_disks),
            _ => self.published,
        }
    }

    /// The figures of one disk; `None` where the number of disks is not known.
    #[must_use]
    pub fn per_disk(&self) -> Option<Figures> {
        let n_disks = u64::from(self.n_disks?.max(1));
        Some(match self.basis {
            Basis::PerDisk => self.published,
            Basis::InstanceTotal => self.published.map(|figure| figure / n_disks),
        })
    }

    /// The name without the size: `i4i`, `Standard_Ls_v4`, `z3-highmem-highlssd`, `VM.DenseIO.E5.Flex`.
    #[must_use]
    pub fn family(&self) -> String {
        family_name(self.cloud, self.name)
    }
}

/// How far a figure may be from a preset's to count as the same, as a part of it: two runs on the same kind of disk
/// differ by some per cent.
pub const SAME_FIGURE: f64 = 0.10;

static INSTANCES: LazyLock<Vec<Instance>> =
    LazyLock::new(|| include_str!("instances.csv").lines().skip(1).filter_map(parse_row).collect());

/// All instances, in the order of the table.
#[must_use]
pub fn instances() -> &'static [Instance] {
    &INSTANCES
}

/// The instance of that name, in any case.
#[must_use]
pub fn find(name: &str) -> Option<&'static Instance> {
    instances().iter().find(|instance| instance.name.eq_ignore_ascii_case(name))
}

/// The name in the table that `name` was probably meant to be.
#[must_use]
pub fn closest_name(name: &str) -> Option<&'static str> {
    let names: Vec<&'static str> = instances().iter().map(|instance| instance.name).collect();
    crate::config::closest_name(name, &names)
}

/// The instances of the same family as the one called `name`, that one included; empty where there is no such name.
#[must_use]
pub fn family(name: &str) -> Vec<&'static Instance> {
    let Some(family) = find(name).map(Instance::family) else { return Vec::new() };
    instances().iter().filter(|instance| instance.family() == family).collect()
}

/// The instance whose totals are nearest to these reads, of those whose two figures are both within [`SAME_FIGURE`].
#[must_use]
pub fn nearest_by_reads(read_iops: u64, read_bandwidth_bytes_per_s: u64) -> Option<&'static Instance> {
    let distance = |instance: &Instance| {
        let total = instance.total();
        distance(read_iops, total.read_iops).max(distance(read_bandwidth_bytes_per_s, total.read_bandwidth_bytes_per_s))
    };
    let near = instances().iter().map(|instance| (distance(instance), instance));
    let near = near.filter(|(distance, _)| *distance <= SAME_FIGURE);
    near.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, instance)| instance)
}

/// How far `figure` is from `reference`: 0 for equal, 0.1 for 10 % more or for 1/1.1 of it, infinite if one is 0.
#[must_use]
pub fn distance(figure: u64, reference: u64) -> f64 {
    let (low, high) = (figure.min(reference), figure.max(reference));
    if low == 0 { f64::INFINITY } else { high as f64 / low as f64 - 1.0 }
}

fn parse_row(line: &'static str) -> Option<Instance> {
    let mut cells = line.split(',');
    let (cloud, name) = (cells.next()?, cells.next()?);
    let n_disks = match cells.next()? {
        "" => None,
        text => Some(text.parse().ok()?),
    };
    let basis = match cells.next()? {
        "per_disk" => Basis::PerDisk,
        "instance_total" => Basis::InstanceTotal,
        _ => return None,
    };
    let mut figure = || cells.next()?.parse::<u64>().ok();
    let published = Figures {
        read_iops: figure()?,
        read_bandwidth_bytes_per_s: figure()?,
        write_iops: figure()?,
        write_bandwidth_bytes_per_s: figure()?,
    };
    let suspect = cells.next().filter(|reason| !reason.is_empty());
    Some(Instance { name, cloud, n_disks, basis, published, suspect })
}

fn family_name(cloud: &str, name: &str) -> String {
    let is_size = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    match cloud {
        "aws" => name.split_once('.').map_or(name, |(family, _)| family).to_owned(),
        "azure" => {
            let (front, version) = name.rsplit_once('_').unwrap_or((name, ""));
            let front: String = front.chars().filter(|c| !c.is_ascii_digit()).collect();
            format!("{front}_{version}")
        }
        _ => name.split('-').filter(|part| !is_size(part)).collect::<Vec<_>>().join("-"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_a_row_and_every_name_is_its_own() {
        let lines = include_str!("instances.csv").lines().count() - 1;
        assert_eq!(instances().len(), lines);
        for instance in instances() {
            let known = find(instance.name).map(|found| found.published);
            assert_eq!(known, Some(instance.published), "{} is in the table twice", instance.name);
            assert!(instance.basis == Basis::InstanceTotal || instance.n_disks.is_some(), "{}", instance.name);
            assert_eq!(instance.cloud == "aws", instance.n_disks.is_some(), "{}", instance.name);
        }
    }

    #[test]
    fn every_row_could_be_a_disk() {
        for instance in instances() {
            let [read_iops, read_bytes, write_iops, write_bytes] = instance.total().in_order();
            let name = instance.name;
            assert!(write_iops < read_iops && write_bytes < read_bytes, "{name}: reads are faster than writes");
            for (iops, bytes) in [(read_iops, read_bytes), (write_iops, write_bytes)] {
                let bytes_per_operation = bytes / iops;
                let usual = 3_900..16_000;
                assert!(usual.contains(&bytes_per_operation) || instance.suspect.is_some(), "{name}");
            }
            // A disk hangs on four lanes of PCIe 5.0 at the most, and the ones in the table are slower than 5 GB/s.
            if let Some(disk) = instance.per_disk() {
                assert!(disk.read_bandwidth_bytes_per_s < 5_000_000_000, "{name}");
            }
        }
    }

    #[test]
    fn sisters_with_the_same_disks_take_as_many_writes_a_disk() {
        let mut suspects = Vec::new();
        for instance in instances() {
            let Some(disk) = instance.per_disk() else { continue };
            let same_disk = |other: &Figures| {
                distance(other.write_bandwidth_bytes_per_s, disk.write_bandwidth_bytes_per_s) < SAME_FIGURE
            };
            let trusted = family(instance.name).into_iter().filter(|sister| sister.suspect.is_none());
            let sisters: Vec<Figures> = trusted.filter_map(Instance::per_disk).filter(same_disk).collect();
            if sisters.iter().any(|sister| disk.write_iops * 2 < sister.write_iops) {
                suspects.push(instance.name);
            }
        }
        assert_eq!(suspects, ["i4i.12xlarge", "i4i.24xlarge"]);
        let flagged: Vec<&str> = instances().iter().filter(|i| i.suspect.is_some()).map(|i| i.name).collect();
        assert_eq!(flagged, suspects);
    }

    #[test]
    fn families_leave_the_size_out() {
        let families = [
            ("i4i.metal", "i4i"),
            ("Standard_L12aos_v4", "Standard_Laos_v4"),
            ("z3-highmem-8-highlssd", "z3-highmem-highlssd"),
            ("VM.DenseIO.E5.Flex-48", "VM.DenseIO.E5.Flex"),
        ];
        for (name, expected) in families {
            assert_eq!(find(name).map(Instance::family).as_deref(), Some(expected));
        }
        assert_eq!(find("I4I.LARGE").map(|instance| instance.name), Some("i4i.large"));
        assert_eq!(closest_name("i4i.4xlage"), Some("i4i.4xlarge"));
        assert!(family("none").is_empty());
    }

    #[test]
    fn the_nearest_is_one_whose_reads_are_nearly_the_same() {
        assert_eq!(nearest_by_reads(770_000, 6_200_000_000).map(|instance| instance.name), Some("i4i.8xlarge"));
        assert_eq!(nearest_by_reads(770_000, 2_000_000_000), None);
        assert_eq!(nearest_by_reads(0, 0), None);
    }
}
