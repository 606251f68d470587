//! Raw block devices: finds their other users, and excludes them.
//!
//! # Why
//! A write to a device that is mounted, or part of an array, destroys its contents; so does mounting a device during a
//! measurement.
//!
//! # How it works
//! [`uses`] finds mounts, swap and holders (arrays, LVM, caches) of the device and of its partitions, so that an error
//! can name them with a remedy. [`claim`] then opens it with `O_EXCL`: for block devices that is the kernel's own
//! claim, which `mount`, `mdadm`, `swapon` and LVM take as well. [`claim`] fails while they hold it, and they fail
//! while we do. The claim covers the whole disk and its partitions. Opening the device without `O_EXCL` still works.
//!
//! # Limits
//! Only the claim is complete: mounts in other containers are not listed, but hold their claim. Programs that open the
//! device without `O_EXCL` (`dd`) are not excluded.
//!
//! # Example
//! ```no_run
//! use std::path::Path;
//! use plimsoll::sys::block;
//! for found in block::uses(Path::new("/sys"), Path::new("/proc"), "nvme1n1")? {
//!     println!("{found}"); // nvme1n1p1 is mounted on /data: unmount it first (`umount /data`)
//! }
//! let claim = block::claim(Path::new("/dev/nvme1n1"))?;
//! // The device cannot be mounted until `claim` is dropped.
//! drop(claim);
//! # Ok::<(), std::io::Error>(())
//! ```

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::{mounts, sysfs};

/// A use of a block device. Its text names the user and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Use {
    /// A file system on the device is mounted.
    Mounted {
        /// The device or partition: `nvme0n1p1`.
        device: String,
        /// Its mount point.
        mountpoint: String,
    },
    /// The system swaps to the device.
    Swap {
        /// The device or partition.
        device: String,
        /// The path for `swapoff`.
        path: String,
    },
    /// The device is part of another device.
    Held {
        /// The device or partition.
        device: String,
        /// The device made of it: `md0`, `dm-3`.
        holder: String,
        /// The holder's name in device mapper, if it has one.
        dm_name: Option<String>,
    },
}

/// Returns all uses in one line.
#[must_use]
pub fn uses_text(uses: &[Use]) -> String {
    uses.iter().map(Use::to_string).collect::<Vec<_>>().join("; ")
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Use::Mounted { device, mountpoint } => {
                write!(f, "{device} is mounted on {mountpoint}: unmount it first (`umount {mountpoint}`)")
            }
            Use::Swap { device, path } => write!(f, "{device} is swap space: take it away first (`swapoff {path}`)"),
            Use::Held { device, holder, dm_name: Some(name) } => {
                write!(f, "{device} is part of {holder} ({name}): remove that first (`dmsetup remove {name}`)")
            }
            Use::Held { device, holder, .. } if holder.starts_with("md") => {
                write!(f, "{device} is part of {holder}: stop that first (`mdadm --stop /dev/{holder}`)")
            }
            Use::Held { device, holder, .. } => write!(f, "{device} is part of {holder}: take it out of that first"),
        }
    }
}

/// Returns the uses of the device `name` (a disk or a partition) and of its partitions, as far as the kernel lists
/// them. `sys_root` is `/sys`, `proc_root` is `/proc`.
///
/// # Errors
/// If the mounts or the swap spaces cannot be read, so that uses are unknown. (Kernels without swap have no `swaps`.)
pub fn uses(sys_root: &Path, proc_root: &Path, name: &str) -> io::Result<Vec<Use>> {
    let mounts = mounts::read(proc_root)?;
    let swaps = read_swaps(proc_root)?;
    let mut found = Vec::new();
    let mut devices = vec![name.to_owned()];
    devices.extend(sysfs::partitions(sys_root, name));

    for device in devices {
        let number = sysfs::number(sys_root, &device);
        let dm_name = sysfs::dm_name(sys_root, &device);
        let is_it = |path: &str| match path.strip_prefix("/dev/") {
            Some(node) => node == device || dm_name.as_deref().is_some_and(|n| node.strip_prefix("mapper/") == Some(n)),
            None => false,
        };

        let mounted = mounts.iter().filter(|mount| Some(mount.number) == number || is_it(&mount.source));
        found
            .extend(mounted.map(|mount| Use::Mounted { device: device.clone(), mountpoint: mount.mountpoint.clone() }));
        let swaps = swaps.iter().filter(|path| is_it(path));
        found.extend(swaps.map(|path| Use::Swap { device: device.clone(), path: path.clone() }));
        found.extend(sysfs::holders(sys_root, &device).into_iter().map(|holder| Use::Held {
            device: device.clone(),
            dm_name: sysfs::dm_name(sys_root, &holder),
            holder,
        }));
    }

    Ok(found)
}

/// Returns the paths of swap spaces that are devices: lines of `path type size used priority` after a header
/// (`proc(5)`).
fn read_swaps(proc_root: &Path) -> io::Result<Vec<String>> {
    let path = proc_root.join("swaps");
    let text = match mounts::read_names(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io::Error::new(error.kind(), format!("cannot read {}: {error}", path.display()))),
    };
    let device = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let path = words.next()?;
        (words.next() == Some("partition")).then(|| mounts::unescape(path))
    };
    Ok(text.lines().skip(1).filter_map(device).collect())
}

/// Claims the block device at `path`: until the file is dropped, it cannot be mounted, put into an array, or swapped
/// to. The file is for reading; to write, open the device again.
///
/// # Errors
/// `InvalidInput` if it is not a block device, `ResourceBusy` if it or one of its partitions is claimed ([`uses`] may
/// find the holder), or the system's error; each with the path and a remedy.
pub fn claim(path: &Path) -> io::Result<File> {
    let failed = |error: &io::Error, remedy: &str| {
        io::Error::new(error.kind(), format!("cannot claim {}: {error}{remedy}", path.display()))
    };

    // `O_EXCL` means a claim only for block devices, and opening other kinds may block for ever.
    let metadata = std::fs::metadata(path).map_err(|error| failed(&error, ""))?;
    if !metadata.file_type().is_block_device() {
        let message = format!("cannot claim {}: it is not a block device", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }

    let opened = OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(path);
    let file = opened.map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => {
            failed(&error, ": it is mounted, swap, part of another device, or claimed by another program")
        }
        io::ErrorKind::PermissionDenied => failed(&error, ": run as root, and in a container give it the device"),
        _ => failed(&error, ""),
    })?;

    if file.metadata()?.rdev() != metadata.rdev() {
        let message = format!("cannot claim {}: it became another device meanwhile; try again", path.display());
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, message));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::super::sysfs::fixture::Tree;
    use super::*;
    use crate::skip::skip;

    const MOUNTS: &str = "\
27 1 259:31 / / rw - ext4 /dev/root rw
28 1 0:40 / /butter\\040fly rw - btrfs /dev/sdb rw
29 1 252:0 / /data rw - xfs /dev/mapper/vg0-data rw
";
    const SWAPS: &str = "\
Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority
/dev/sdc2                               partition\t1000\t\t0\t\t-2
/sda                                    file\t\t1000\t\t0\t\t-3
";

    fn tree(name: &str) -> io::Result<Tree> {
        let tree = Tree::raid_of_four(name)?;
        for (disk, minor) in [("sda", 0), ("sdb", 16), ("sdc", 32)] {
            tree.disk(disk, 8, minor, 1 << 30)?;
        }
        tree.partition("sdc", "sdc2", 8, 34, 1 << 20)?;
        tree.file("self/mountinfo", MOUNTS)?;
        tree.file("swaps", SWAPS)?;
        Ok(tree)
    }

    #[test]
    fn users_of_a_disk_and_of_its_partitions_are_named_with_a_remedy() -> io::Result<()> {
        let tree = tree("uses")?;
        tree.partition("nvme3n1", "nvme3n1p2", 259, 31 + 100, 1 << 20)?;
        let cases: [(&str, &[&str]); 7] = [
            ("sda", &[]),
            ("sdb", &["sdb is mounted on /butter fly: unmount it first (`umount /butter fly`)"]),
            ("sdc", &["sdc2 is swap space: take it away first (`swapoff /dev/sdc2`)"]),
            ("nvme0n1", &["nvme0n1p1 is part of md0: stop that first (`mdadm --stop /dev/md0`)"]),
            ("md0", &["md0 is part of dm-0 (vg0-data): remove that first (`dmsetup remove vg0-data`)"]),
            ("dm-0", &["dm-0 is mounted on /data: unmount it first (`umount /data`)"]),
            (
                "nvme3n1",
                &[
                    "nvme3n1p1 is mounted on /: unmount it first (`umount /`)",
                    "nvme3n1p1 is part of md0: stop that first (`mdadm --stop /dev/md0`)",
                ],
            ),
        ];
        for (name, expect) in cases {
            let found: Vec<String> = uses(tree.root(), tree.root(), name)?.iter().map(Use::to_string).collect();
            assert_eq!(found, expect, "{name}");
        }
        Ok(())
    }

    #[test]
    fn unknown_mounts_are_an_error_and_no_swap_is_none() -> io::Result<()> {
        let tree = tree("unknown-uses")?;
        std::fs::remove_file(tree.root().join("swaps"))?;
        assert_eq!(uses(tree.root(), tree.root(), "sdc")?, []);
        std::fs::remove_file(tree.root().join("self/mountinfo"))?;
        let Err(error) = uses(tree.root(), tree.root(), "sdc") else { panic!("nobody knows") };
        assert!(error.to_string().contains("self/mountinfo"), "{error}");
        Ok(())
    }

    #[test]
    fn what_is_no_block_device_cannot_be_claimed() {
        for (path, kind) in [("/dev/null", io::ErrorKind::InvalidInput), ("/nowhere", io::ErrorKind::NotFound)] {
            let Err(error) = claim(Path::new(path)) else { panic!("{path} was claimed") };
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(path), "{error}");
        }
    }

    #[test]
    fn a_mounted_device_cannot_be_claimed_and_a_claimed_one_not_twice() -> io::Result<()> {
        let root = Path::new("/");
        let mounts = mounts::read(Path::new("/proc")).unwrap_or_default();
        let source = mounts::holding(&mounts, root).map(|mount| mount.source.clone()).unwrap_or_default();
        let mounted = claim(Path::new(&source)).map_err(|error| error.kind());
        match mounted {
            Err(io::ErrorKind::ResourceBusy) => {}
            Err(kind) => skip(format_args!("`{source}`, which is mounted on /, cannot be opened here ({kind})")),
            Ok(_) => panic!("{source} is mounted"),
        }
        let Some((first, path)) = (0..8).find_map(|number| {
            let path = format!("/dev/loop{number}");
            claim(Path::new(&path)).ok().map(|file| (file, path))
        }) else {
            skip("there is no loop device that this user can claim");
            return Ok(());
        };
        let Err(error) = claim(Path::new(&path)) else { panic!("{path} was claimed twice") };
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy, "{error}");
        assert!(error.to_string().contains(&path), "{error}");
        drop(first);
        Ok(())
    }
}
