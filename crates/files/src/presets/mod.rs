//! Finds named devices by name or figures, multiplies, provisions and compares them, as the commands need.
//!
//! **Why.** A measured figure alone says little. A wrong one stands out beside the figures of the same instance, or of
//! its sisters with more or fewer of the same disks: see [`crate::check`]. And a named disk can be simulated without
//! the hardware.
//!
//! **How.** The tables, and the devices made of them, are those of [`plimsoll_sim::device::presets`], which has every
//! figure once. [`resolve`] reads a name from a command line: `NAME`, `4xNAME` for an array, `gp3:500GiB:16000iops` for
//! a volume with more than its base. [`PresetInfo`] has all that is known of a preset; [`search`] finds presets by
//! their figures; [`ArrayReport`] compares an array with the limit of its instance.
//!
//! **Limits.** [`find`] and [`family`] know instances only, as do the checks of files.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_files::presets;
//! let instance = presets::find("i4i.8xlarge").ok_or("not in the table")?;
//! assert_eq!(instance.n_disks, Some(2));
//! assert_eq!(instance.total().read_iops, 2 * 384_561);
//! assert_eq!(presets::family("i4i.8xlarge").len(), 10);
//! let array = presets::resolve("4x983-dct")?;
//! assert_eq!(array.preset.figures.read_iops.get(), Some(4 * 540_000));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod array;
mod info;
mod resolve;
mod search;

pub use array::{ArrayReport, Direction};
pub use info::{Cap, PresetInfo, properties};
pub use plimsoll_sim::device::presets::{
    AdvertisedBasis, Basis, Drive, Evidence, Figures, Instance, Preset, PresetKind, Volume, drives, instances, volumes,
};
pub use resolve::{ResolveError, Resolved, Row, resolve};
pub use search::{Minimum, all, search};

/// The keys of the four figures in an io-properties file.
pub const FIGURE_KEYS: [&str; 4] = ["read_iops", "read_bandwidth", "write_iops", "write_bandwidth"];

/// Largest [`distance`] of a figure from a preset's at which both count as the same. Two runs on the same kind of disk
/// differ by some per cent.
pub const SAME_FIGURE: f64 = 0.10;

pub fn find(name: &str) -> Option<&'static Instance> {
    instances().iter().find(|instance| instance.name.eq_ignore_ascii_case(name))
}

/// Returns the name in the table that `name` was probably meant to be.
pub fn closest_name(name: &str) -> Option<&'static str> {
    let names: Vec<&'static str> = instances().iter().map(|instance| instance.name).collect();
    crate::closest_name(name, &names)
}

/// Returns the names that an unknown `name` was probably meant to be: those that begin with it, or else the closest.
pub fn meant<'a>(name: &str, names: &[&'a str]) -> Vec<&'a str> {
    let begins = |other: &&&str| other.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
    let beginning: Vec<&str> = names.iter().filter(begins).copied().collect();
    if name.is_empty() || beginning.is_empty() {
        return crate::closest_name(name, names).into_iter().collect();
    }
    beginning
}

/// Returns the instances of the family of the instance called `name`, including that one; none if there is no such
/// instance.
pub fn family(name: &str) -> Vec<&'static Instance> {
    let Some(family) = find(name).map(Instance::family) else { return Vec::new() };
    instances().iter().filter(|instance| instance.family() == family).collect()
}

/// Returns the relative distance of `figure` to `reference`: 0 for equal, 0.1 for 10 % more or 1/1.1 of it, infinite if
/// one is 0.
pub fn distance(figure: u64, reference: u64) -> f64 {
    let (low, high) = (figure.min(reference), figure.max(reference));
    if low == 0 { f64::INFINITY } else { high as f64 / low as f64 - 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_aws_rows_have_a_number_of_disks() {
        for instance in instances() {
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
            // A disk has at most four lanes of PCIe 5.0, and those in the table are slower than 5 GB/s.
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
        let names = ["i3", "i3en", "z3-high", "z3-standard"];
        assert_eq!(meant("Z3", &names), ["z3-high", "z3-standard"]);
        assert_eq!((meant("i3em", &names), meant("", &names)), (vec!["i3en"], vec![]));
        assert_eq!(closest_name("i4i.4xlage"), Some("i4i.4xlarge"));
        assert!(family("none").is_empty());
    }
}
