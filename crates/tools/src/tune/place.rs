//! Where a directory lies: mount point, block device, the disks below, and the request sizes that suit them.
//!
//! # Why
//! io-properties name a mount point, and a figure means something only with the disk's settings and the size at which
//! it was measured.
//!
//! # How it works
//! The mount point is the longest one in `/proc/self/mountinfo` that is a prefix of the directory; of several on the
//! same place the last, which hides the others. The device is the directory's device number in `/sys`; where that is an
//! anonymous number (btrfs), the device that was mounted.
//!
//! An IOPS figure is measured with blocks of 4096 bytes, the size that the scheduler and other people's figures take
//! for granted, or more where the disk works in more: a smaller request would cost the device a whole physical block
//! (a write even a read before it). Reads and writes are decided separately, since either can be set.
//!
//! # Limits
//! A file system over several devices shows one of them, or none.
//!
//! # Example
//! A file system on `md0` over two NVMe drives with physical blocks of 4096 and 16384 bytes: leaves `nvme0n1` and
//! `nvme1n1`, block size 16384 ("kernel: physical block 16384").

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use plimsoll::backend::{AlignSource, FileInfo};
use plimsoll::sys::{statfs, sysfs};

use super::TuneError;
use super::report::{BlockSize, Device, IOPS_BLOCK_BYTES, Leaf, Warning, WarningCode};
use crate::load::ScratchError;

/// Smallest and largest request size of an IOPS figure, in bytes.
const BLOCK_RANGE_BYTES: std::ops::RangeInclusive<u32> = 512..=1 << 20;

/// Where a directory lies.
pub(super) struct Place {
    /// With links followed.
    pub(super) directory: PathBuf,
    pub(super) mountpoint: String,
    pub(super) file_system: String,
    pub(super) device: Option<Device>,
}

impl Place {
    /// Finds the mount point and the disks of `directory`.
    pub(super) fn find(directory: &Path) -> Result<Place, ScratchError> {
        let bad = |reason: String| ScratchError::BadDirectory { path: directory.display().to_string(), reason };
        let real = directory.canonicalize().map_err(|error| bad(error.to_string()))?;
        let metadata = real.metadata().map_err(|error| bad(error.to_string()))?;
        if !metadata.is_dir() {
            return Err(bad("it is not a directory".to_owned()));
        }
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mount = mount_of(&mounts, &real);
        let source = mount.as_ref().map(|mount| mount.source.as_str());
        let device = device_of(Path::new("/sys"), metadata.dev(), source).ok();
        let (mountpoint, file_system) = match mount {
            Some(mount) => (mount.mountpoint, mount.file_system),
            // Without /proc the directory itself is a mount point as good as any: it is on the right device.
            None => (real.display().to_string(), statfs::file_system(&real).map_or_else(|_| String::new(), |f| f.name)),
        };
        Ok(Place { directory: real, mountpoint, file_system, device })
    }
}

/// One line of mountinfo, as far as it matters here.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    mountpoint: String,
    file_system: String,
    source: String,
}

/// The mount that holds `path` (absolute, links followed). `proc(5)` describes the lines.
fn mount_of(mountinfo: &str, path: &Path) -> Option<Mount> {
    let holds = |mount: &Mount| path.starts_with(&mount.mountpoint);
    // Of equal ones the last: `max_by_key` keeps it.
    mountinfo
        .lines()
        .filter_map(parse_mount)
        .filter(holds)
        .max_by_key(|mount| Path::new(&mount.mountpoint).components().count())
}

fn parse_mount(line: &str) -> Option<Mount> {
    let (front, back) = line.split_once(" - ")?;
    let mountpoint = unescape(front.split(' ').nth(4)?);
    let mut back = back.split(' ');
    Some(Mount { mountpoint, file_system: back.next()?.to_owned(), source: unescape(back.next()?) })
}

/// mountinfo writes space, tab, newline and backslash as a backslash and three octal digits.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        match (first, tail) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                bytes.push((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'));
                rest = after;
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The device with number `st_dev`, or else the one that `source` names.
fn device_of(sys: &Path, st_dev: u64, source: Option<&str>) -> io::Result<Device> {
    let by_number = |number: u64| {
        let (major, minor) = sysfs::major_minor(number);
        sysfs::device(sys, major, minor)
    };
    let found = by_number(st_dev).or_else(|error| match source {
        Some(source) if source.starts_with("/dev/") => by_number(std::fs::metadata(source)?.rdev()),
        _ => Err(error),
    })?;
    let leaves = sysfs::leaf_disks(sys, &found.name).into_iter().map(|name| leaf(sys, name)).collect();
    Ok(Device { name: found.name, disk: found.disk, leaves })
}

fn leaf(sys: &Path, name: String) -> Leaf {
    let queue = sysfs::queue(sys, &name);
    Leaf {
        name,
        scheduler: queue.scheduler,
        nr_requests: queue.nr_requests,
        physical_block_bytes: queue.physical_block_size_bytes,
        logical_block_bytes: queue.logical_block_size_bytes,
        max_request_bytes: queue.max_request_bytes,
        write_cache: queue.write_cache,
        nomerges: queue.nomerges,
        rotational: queue.rotational,
    }
}

/// The size at which IOPS are measured. `set` comes from the user, by `option`; `align_bytes` is what direct I/O wants.
pub(super) fn block_size(
    option: &'static str,
    set: Option<u32>,
    align_bytes: u32,
    device: Option<&Device>,
) -> Result<BlockSize, TuneError> {
    if let Some(bytes) = set {
        let bad = |reason: String| Err(TuneError::Option { option, reason });
        if !bytes.is_power_of_two() || !BLOCK_RANGE_BYTES.contains(&bytes) {
            return bad(format!("{bytes} bytes is not a power of two from 512 to 1048576"));
        }
        if !bytes.is_multiple_of(align_bytes.max(1)) {
            return bad(format!("direct I/O takes multiples of {align_bytes} bytes here, and {bytes} is none"));
        }
        return Ok(BlockSize { bytes, how: format!("set by {option}") });
    }
    let floor_bytes = align_bytes.max(IOPS_BLOCK_BYTES);
    let physical = physical_block_bytes(device);
    let bytes = physical.unwrap_or(0).max(floor_bytes);
    let chosen = if align_bytes > IOPS_BLOCK_BYTES && bytes == align_bytes {
        format!("{bytes}, the alignment of direct I/O")
    } else {
        bytes.to_string()
    };
    let how = match physical {
        Some(physical) if physical == bytes => format!("kernel: physical block {physical}"),
        Some(physical) => format!("kernel: physical block {physical}, so {chosen}"),
        None => format!("fallback {chosen}, because the kernel gives no physical block for it"),
    };
    Ok(BlockSize { bytes, how })
}

/// The largest physical block of the leaves; `None` where none is known or sensible.
pub(super) fn physical_block_bytes(device: Option<&Device>) -> Option<u32> {
    let known = device?.leaves.iter().filter_map(|leaf| leaf.physical_block_bytes.max(leaf.logical_block_bytes));
    let sensible = known.filter_map(|bytes| u32::try_from(bytes).ok());
    sensible.filter(|bytes| bytes.is_power_of_two() && BLOCK_RANGE_BYTES.contains(bytes)).max()
}

/// What the kernel's settings of the disk, or its silence, mean for the figures.
pub(super) fn warnings(place: &Place, info: &FileInfo) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if info.align_source == AlignSource::AssumedPage {
        let message = format!(
            "{} does not say which alignment direct I/O wants: {} bytes are assumed",
            place.file_system, info.offset_align_bytes
        );
        warnings.push(Warning { code: WarningCode::AssumedAlignment, message });
    }
    let Some(device) = &place.device else {
        let message = format!(
            "/sys shows no block device for {} ({}): request sizes are assumed, and the disk's settings are unknown",
            place.mountpoint, place.file_system
        );
        warnings.push(Warning { code: WarningCode::UnknownDevice, message });
        return warnings;
    };
    warnings.extend(device.leaves.iter().flat_map(leaf_warnings));
    warnings
}

fn leaf_warnings(leaf: &Leaf) -> Vec<Warning> {
    let name = &leaf.name;
    let mut warnings = Vec::new();
    let mut warn = |code, message: String| warnings.push(Warning { code, message });
    match leaf.scheduler.as_deref() {
        None | Some("none" | "noop") => {}
        Some(elevator) => warn(
            WarningCode::Elevator,
            format!("{name}: elevator {elevator} orders requests too; `echo none > /sys/block/{name}/queue/scheduler`"),
        ),
    }
    if leaf.write_cache.as_deref() == Some("write back") {
        warn(
            WarningCode::WriteCache,
            format!(
                "{name}: write cache is write back: write figures are those of the cache until it is full, unless the \
                 drive protects it against power loss (then set it to write through)"
            ),
        );
    }
    if let Some(nomerges @ (0 | 1)) = leaf.nomerges {
        warn(
            WarningCode::Merges,
            format!(
                "{name}: nomerges is {nomerges}: the kernel looks for requests to merge, which costs CPU time; \
                 `echo 2 > /sys/block/{name}/queue/nomerges`"
            ),
        );
    }
    if leaf.rotational == Some(true) {
        warn(
            WarningCode::Rotational,
            format!(
                "{name} says that it spins: its rate depends on where requests go; figures hold for the scratch data"
            ),
        );
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 27 259:1 / /var/lib rw - xfs /dev/nvme0n1p1 rw
41 27 259:2 / /var/lib/my\\040data rw master:2 propagate_from:1 - xfs /dev/nvme1n1 rw
42 40 0:50 / /var/lib rw - tmpfs none rw
broken line
";

    #[test]
    fn the_deepest_and_latest_mount_holds_a_path() {
        let cases = [
            ("/", "/", "ext4"),
            ("/var/library", "/", "ext4"),
            ("/var/lib", "/var/lib", "tmpfs"),
            ("/var/lib/x/y", "/var/lib", "tmpfs"),
            ("/var/lib/my data/x", "/var/lib/my data", "xfs"),
        ];
        for (path, mountpoint, file_system) in cases {
            let mount = mount_of(MOUNTS, Path::new(path)).unwrap();
            assert_eq!((mount.mountpoint.as_str(), mount.file_system.as_str()), (mountpoint, file_system), "{path}");
        }
        assert_eq!(mount_of("", Path::new("/")), None);
    }

    fn disk(physical: &[Option<u64>]) -> Device {
        let leaf = |(number, physical): (usize, &Option<u64>)| Leaf {
            name: format!("nvme{number}n1"),
            physical_block_bytes: *physical,
            ..Leaf::default()
        };
        Device { name: "md0".into(), disk: "md0".into(), leaves: physical.iter().enumerate().map(leaf).collect() }
    }

    #[test]
    fn block_sizes_are_four_kib_or_what_the_disk_works_in() {
        let cases = [
            (None, 512, Some(disk(&[Some(512)])), 4096, "kernel: physical block 512, so 4096"),
            (None, 512, Some(disk(&[Some(4096), Some(16384)])), 16384, "kernel: physical block 16384"),
            (
                None,
                8192,
                Some(disk(&[Some(512)])),
                8192,
                "kernel: physical block 512, so 8192, the alignment of direct I/O",
            ),
            (None, 512, Some(disk(&[None])), 4096, "fallback 4096, because the kernel gives no physical block for it"),
            (
                None,
                512,
                Some(disk(&[Some(3000)])),
                4096,
                "fallback 4096, because the kernel gives no physical block for it",
            ),
            (None, 1, None, 4096, "fallback 4096, because the kernel gives no physical block for it"),
            (Some(512), 512, Some(disk(&[Some(4096)])), 512, "set by --read-block-size"),
        ];
        for (set, align, device, bytes, how) in cases {
            let found = block_size("--read-block-size", set, align, device.as_ref()).unwrap();
            assert_eq!((found.bytes, found.how.as_str()), (bytes, how));
        }
        for (set, align, part) in
            [(3000, 512, "power of two"), (2 << 20, 512, "1048576"), (512, 4096, "multiples of 4096")]
        {
            let error = block_size("--read-block-size", Some(set), align, None).unwrap_err().to_string();
            assert!(error.contains("--read-block-size") && error.contains(part), "{error}");
        }
    }

    #[test]
    fn settings_are_warned_of_and_good_ones_are_not() {
        let good = Leaf {
            name: "nvme0n1".into(),
            scheduler: Some("none".into()),
            write_cache: Some("write through".into()),
            nomerges: Some(2),
            rotational: Some(false),
            ..Leaf::default()
        };
        assert_eq!(leaf_warnings(&good), []);
        assert_eq!(leaf_warnings(&Leaf { name: "nvme0n1".into(), ..Leaf::default() }), []);
        let bad = Leaf {
            scheduler: Some("bfq".into()),
            write_cache: Some("write back".into()),
            nomerges: Some(0),
            rotational: Some(true),
            ..good
        };
        let codes: Vec<WarningCode> = leaf_warnings(&bad).into_iter().map(|warning| warning.code).collect();
        let expect = [WarningCode::Elevator, WarningCode::WriteCache, WarningCode::Merges, WarningCode::Rotational];
        assert_eq!(codes, expect);
    }
}
