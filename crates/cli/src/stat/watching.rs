//! Capacities and groups from the flags, for a watch.
//!
//! # Why
//! U is most useful with a model. A user may have one for a device, for all devices, or as the properties of a mount
//! point.
//!
//! # How it works
//! `--disk DEV=NAME` applies to a device, `--disk NAME` to all others. An entry of `--io-properties` applies to the
//! disk of its mount point: found by the number of the device that holds it, or by the source of the mount if the file
//! system hides that number (btrfs).
//!
//! # Limits
//! Mount points are those of this host. For files of another host (`--from`) an entry is found by a device node
//! (`/dev/nvme0n1`); a single other entry applies to all devices.
//!
//! # Example
//! `--disk nvme0n1=i4i.2xlarge --disk sda=hdd.yaml`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use plimsoll::sys::{mounts, sysfs};
use plimsoll_files::io_properties::IoProperties;
use plimsoll_observe::stat::capacity::Capacity;
use plimsoll_observe::stat::watch::{ANY_DEVICE, Watch, WatchOptions};

use super::{CapacityFlags, Group, parse_device};
use crate::failure::Failure;
use crate::flags::read_properties;
use crate::screen;

/// Roots of the kernel's files: of this host, or mounted elsewhere.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Roots<'a> {
    pub(crate) proc: &'a Path,
    pub(crate) sys: &'a Path,
}

/// Makes a watch from the flags. `host` is this host, or `None` for figures of another.
pub(crate) fn watch(flags: &CapacityFlags, groups: &[Group], host: Option<Roots<'_>>) -> Result<Watch, Failure> {
    let mut capacities = BTreeMap::new();
    if let Some(path) = &flags.io_properties {
        capacities = of_properties(&read_properties(path)?, host)?;
    }
    for text in &flags.disks {
        let (device, name) = split(text);
        let device = device.map_or(Ok(ANY_DEVICE.to_owned()), parse_device).map_err(Failure::Input)?;
        if capacities.insert(device.clone(), Capacity::find(name, Path::new(""))?).is_some() {
            let which = if device == ANY_DEVICE { "all devices".to_owned() } else { device };
            return Err(Failure::Input(format!("--disk {text}: there is a capacity of {which} already")));
        }
    }
    for (at, (name, _)) in groups.iter().enumerate() {
        if groups.iter().take(at).any(|(earlier, _)| earlier == name) {
            let problem = format!("--group {name}=...: there is a group of this name already: give it another name");
            return Err(Failure::Input(problem));
        }
    }
    Ok(Watch::new(WatchOptions { capacities, groups: groups.to_vec() }))
}

/// Splits a device, if there is one, from its capacity. If a file has the whole text as its name, returns that file.
pub(super) fn split(text: &str) -> (Option<&str>, &str) {
    match text.split_once('=') {
        Some((device, name)) if !Path::new(text).exists() => (Some(device), name),
        _ => (None, text),
    }
}

/// Returns the entries by device. `host` is this host, or `None` for figures of another.
fn of_properties(properties: &IoProperties, host: Option<Roots<'_>>) -> Result<BTreeMap<String, Capacity>, Failure> {
    let mut capacities = BTreeMap::new();
    for entry in &properties.disks {
        let name = entry.mountpoints.join(", ");
        let capacity = Capacity::of_properties(&name, entry);

        let found: Vec<String> = match host {
            Some(host) => entry.mountpoints.iter().filter_map(|place| disk_of(place, host)).collect(),
            None => entry.mountpoints.iter().filter_map(|p| p.strip_prefix("/dev/")).map(str::to_owned).collect(),
        };

        match (found.is_empty(), host, properties.disks.len()) {
            (false, ..) => capacities.extend(found.into_iter().map(|device| (device, capacity.clone()))),
            (true, None, 1) => drop(capacities.insert(ANY_DEVICE.to_owned(), capacity)),
            (true, None, _) => screen::warning(&format!(
                "the io-properties of {name} are of no device in the files: name it by its node, such as /dev/nvme0n1"
            )),
            (true, Some(_), _) => {
                return Err(Failure::Input(format!(
                    "the io-properties name {name}, which is on no block device of this host: leave the entry out, or \
                     give --disk DEV=FILE"
                )));
            }
        }
    }
    Ok(capacities)
}

/// Returns the whole disk of a device node, or of the device that holds a directory.
fn disk_of(place: &str, host: Roots<'_>) -> Option<String> {
    let by_number = |number: u64| {
        let (major, minor) = sysfs::major_minor(number);
        sysfs::device(host.sys, major, minor).ok().map(|device| device.disk)
    };
    let metadata = fs::metadata(place).ok()?;
    if metadata.file_type().is_block_device() {
        return by_number(metadata.rdev());
    }
    by_number(metadata.dev()).or_else(|| {
        let all = mounts::read(host.proc).ok()?;
        let mount = mounts::holding(&all, &fs::canonicalize(place).ok()?)?;
        by_number(fs::metadata(&mount.source).ok().filter(|source| source.file_type().is_block_device())?.rdev())
    })
}

#[cfg(test)]
mod tests {
    use plimsoll_files::io_properties;

    use super::*;

    #[test]
    fn a_disk_is_for_a_device_or_for_all() {
        let cases = [
            ("i4i.2xlarge", (None, "i4i.2xlarge")),
            ("nvme0n1=gp3:1TiB:16000iops", (Some("nvme0n1"), "gp3:1TiB:16000iops")),
            ("sda=a=b.yaml", (Some("sda"), "a=b.yaml")),
        ];
        for (text, expected) in cases {
            assert_eq!(split(text), expected);
        }
    }

    #[test]
    fn two_groups_of_one_name_are_refused() {
        let group = |name: &str, devices: [&str; 2]| (name.to_owned(), devices.map(str::to_owned).into());
        let flags = CapacityFlags { io_properties: None, disks: Vec::new() };
        let groups = [group("data", ["sda", "sdb"]), group("log", ["sdc", "sdd"]), group("data", ["sde", "sdf"])];
        assert!(watch(&flags, &groups[..2], None).is_ok());
        let error = watch(&flags, &groups, None).unwrap_err().to_string();
        assert!(error.starts_with("--group data=...: there is a group of this name"), "{error}");
    }

    #[test]
    fn properties_of_another_host_are_found_by_device_nodes_or_hold_for_all() {
        let entry = |place: &str| {
            format!(
                "- mountpoint: {place}\n  read_iops: 1000\n  write_iops: 1000\n  read_bandwidth: 1000000\n  \
                 write_bandwidth: 1000000\n"
            )
        };
        let cases = [
            (vec!["/var/lib/data"], vec!["*"]),
            (vec!["/dev/nvme0n1"], vec!["nvme0n1"]),
            (vec!["/dev/nvme0n1", "/dev/nvme1n1"], vec!["nvme0n1", "nvme1n1"]),
            (vec!["/dev/nvme0n1", "/data"], vec!["nvme0n1"]),
        ];
        for (places, expected) in cases {
            let text = format!("disks:\n{}", places.iter().map(|place| entry(place)).collect::<String>());
            let properties = io_properties::parse("io.yaml", &text).unwrap();
            let found = of_properties(&properties, None).unwrap();
            assert_eq!(found.keys().map(String::as_str).collect::<Vec<_>>(), expected, "{places:?}");
        }
    }
}
