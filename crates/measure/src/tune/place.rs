//! The place of a path: file system, mount point, block device, and the disks below.
//!
//! **Why.** io-properties name a mount point, and a figure is meaningful only with the settings of the disk and of the
//! layers above it.
//!
//! **How.** The mount point is the deepest one that contains the directory. The device is the directory's device number
//! in `/sys`; if that is an anonymous number (btrfs), the device that was mounted. A path can also be a block device.
//! Since it will be written to, no program may use it ([`PlaceError::InUse`]).
//!
//! Both kernel trees are parameters ([`Roots`]), so tests provide their own. [`one_per_device`] keeps one of several
//! directories on the same file system; [`warnings()`] describes the effect of the settings on the figures;
//! [`block_size`] is the request size of IOPS figures.
//!
//! **Limits.** For a file system over several devices (btrfs), one device or none is found. A device that comes into
//! use after [`Place::find`] is not noticed: claim the device (`plimsoll::sys::block::claim`) while writing to it.
//!
//! **Example.** A directory on `dm-0` over `md0` over two NVMe drives: device `dm-0`, RAID level `raid0`, leaves
//! `nvme0n1` and `nvme1n1`.

mod sizes;
#[cfg(test)]
mod tests;
mod warnings;

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use plimsoll::sys::block::Use;
use plimsoll::sys::{block, mounts, statfs, sysfs};

use super::report::device::{Device, Leaf};
use crate::Roots;

pub(super) use sizes::{block_size, physical_block_bytes};
pub(super) use warnings::warnings;

#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    #[error("{path}: {reason}: give a directory that can be written to, or a block device")]
    BadPath { path: String, reason: String },
    #[error("{path} is in use, and measuring would destroy what is on it: {}", block::uses_text(.uses))]
    InUse {
        path: String,
        /// Users of the device; at least one.
        uses: Vec<Use>,
    },
    #[error("{path}: it is not known whether somebody uses it ({error}): measure where /proc and /sys can be read")]
    UsesUnknown { path: String, error: io::Error },
}

/// The place of a directory or block device.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    /// The directory, or the node of the block device, with links resolved.
    pub(super) directory: PathBuf,
    pub(super) is_block_device: bool,
    /// Mount point of the file system; for a block device its path, as io-properties name it.
    pub(super) mountpoint: String,
    /// Kind of the file system; empty for a block device.
    pub(super) file_system: String,
    /// Options of the mount and of the file system: `noatime`, `discard`.
    pub(super) mount_options: Vec<String>,
    /// Allocation unit of the file system, in bytes.
    pub(super) fs_block_bytes: Option<u64>,
    /// Free space of the file system, in bytes.
    pub(super) available_bytes: Option<u64>,
    pub(super) device: Option<Device>,
    /// Number of the whole disk (or array) of the device, whose counters include those of all its partitions.
    pub(super) disk_number: Option<(u32, u32)>,
    /// Device number of the file system, or of the block device itself.
    st_dev: u64,
    raid: Option<sysfs::Raid>,
    kernel: Option<(u32, u32)>,
}

impl Place {
    /// Finds the place of `path`, a directory or a block device.
    pub(super) fn find(path: &Path, roots: &Roots) -> Result<Place, PlaceError> {
        let bad = |reason: String| PlaceError::BadPath { path: path.display().to_string(), reason };
        let real = path.canonicalize().map_err(|error| bad(error.to_string()))?;
        let metadata = real.metadata().map_err(|error| bad(error.to_string()))?;
        if metadata.file_type().is_block_device() {
            return Place::of_block_device(real, metadata.rdev(), roots);
        }
        if !metadata.is_dir() {
            return Err(bad("it is not a directory, and no block device".to_owned()));
        }
        Ok(Place::of_directory(real, &metadata, roots))
    }

    fn of_directory(real: PathBuf, metadata: &Metadata, roots: &Roots) -> Place {
        let mounts = mounts::read(&roots.proc).unwrap_or_default();
        let mount = mounts::holding(&mounts, &real).cloned();
        let space = statfs::file_system(&real).ok();
        let source = mount.as_ref().map(|mount| mount.source.as_str());
        let device = device_of(&roots.sys, metadata.dev(), source).ok();

        let (mountpoint, file_system, mount_options) = match mount {
            Some(mount) => (mount.mountpoint, mount.file_system, mount.options),
            // Without /proc, report the directory itself: it is on the right device.
            None => {
                let kind = space.as_ref().map_or_else(String::new, |space| space.name.clone());
                (real.display().to_string(), kind, Vec::new())
            }
        };

        let place = Place {
            directory: real,
            mountpoint,
            file_system,
            mount_options,
            fs_block_bytes: space.as_ref().map(|space| space.block_bytes).filter(|&bytes| bytes > 0),
            available_bytes: space.map(|space| space.available_bytes),
            st_dev: metadata.dev(),
            kernel: kernel(&roots.proc),
            ..Place::default()
        };

        match device {
            Some(device) => place.on(device, roots),
            None => place,
        }
    }

    fn of_block_device(real: PathBuf, rdev: u64, roots: &Roots) -> Result<Place, PlaceError> {
        let path = real.display().to_string();
        let unknown = |error| PlaceError::UsesUnknown { path: path.clone(), error };
        let device = device_of(&roots.sys, rdev, None).map_err(unknown)?;

        let uses = block::uses(&roots.sys, &roots.proc, &device.name).map_err(unknown)?;
        if !uses.is_empty() {
            return Err(PlaceError::InUse { path, uses });
        }

        let place = Place {
            directory: real,
            is_block_device: true,
            mountpoint: path,
            st_dev: rdev,
            kernel: kernel(&roots.proc),
            ..Place::default()
        };
        Ok(place.on(device, roots))
    }

    fn on(self, device: Device, roots: &Roots) -> Place {
        let disk_number = sysfs::number(&roots.sys, &device.disk);
        let raid = sysfs::raid(&roots.sys, &device.name);
        Place { device: Some(device), disk_number, raid, ..self }
    }

    /// Returns whether both are on the same file system or device, so that one measurement is enough.
    fn is_with(&self, other: &Place) -> bool {
        // Subvolumes of btrfs have different numbers but share a device.
        let number = |place: &Place| place.device.as_ref().map(|device| device.major_minor.clone());
        self.st_dev == other.st_dev || (self.device.is_some() && number(self) == number(other))
    }
}

/// Returns the first place on each file system or device, in order.
pub(super) fn one_per_device(places: Vec<Place>) -> Vec<Place> {
    let mut kept: Vec<Place> = Vec::new();
    for place in places {
        if !kept.iter().any(|known| known.is_with(&place)) {
            kept.push(place);
        }
    }
    kept
}

/// Returns the device with number `st_dev`, or else the device called `source`.
fn device_of(sys: &Path, st_dev: u64, source: Option<&str>) -> io::Result<Device> {
    let by_number = |number: u64| -> io::Result<(sysfs::Device, String)> {
        let (major, minor) = sysfs::major_minor(number);
        Ok((sysfs::device(sys, major, minor)?, format!("{major}:{minor}")))
    };

    let (found, major_minor) = by_number(st_dev).or_else(|error| match source {
        Some(source) if source.starts_with("/dev/") => by_number(std::fs::metadata(source)?.rdev()),
        _ => Err(error),
    })?;

    let raid = sysfs::raid(sys, &found.name);
    Ok(Device {
        major_minor,
        disk_number: sysfs::number(sys, &found.disk).map(|(major, minor)| format!("{major}:{minor}")),
        size_bytes: sysfs::size_bytes(sys, &found.name),
        raid_chunk_bytes: raid.as_ref().and_then(|raid| raid.chunk_bytes),
        raid_level: raid.map(|raid| raid.level),
        backing_file: sysfs::backing_file(sys, &found.name).map(|path| path.display().to_string()),
        leaves: sysfs::leaf_disks(sys, &found.name).into_iter().map(|name| leaf(sys, name)).collect(),
        name: found.name,
        disk: found.disk,
    })
}

fn leaf(sys: &Path, name: String) -> Leaf {
    let queue = sysfs::queue(sys, &name);
    let hardware = sysfs::hardware(sys, &name);

    Leaf {
        name,
        model: hardware.model,
        serial: hardware.serial,
        firmware: hardware.firmware,
        size_bytes: hardware.size_bytes,
        link_bytes_per_s: hardware.link_bytes_per_s,
        is_ephemeral: hardware.keeping == sysfs::Keeping::Ephemeral,
        is_network: hardware.keeping == sysfs::Keeping::Network,
        scheduler: queue.scheduler,
        nr_requests: queue.nr_requests,
        physical_block_bytes: queue.physical_block_size_bytes,
        logical_block_bytes: queue.logical_block_size_bytes,
        max_request_bytes: queue.max_request_bytes,
        read_ahead_bytes: queue.read_ahead_bytes,
        write_cache: queue.write_cache,
        nomerges: queue.nomerges,
        rotational: queue.rotational,
    }
}

/// Returns the version of the running kernel: (5, 15) for `5.15.0-105-generic`.
fn kernel(proc: &Path) -> Option<(u32, u32)> {
    let release = std::fs::read_to_string(proc.join("sys/kernel/osrelease")).ok()?;
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}
