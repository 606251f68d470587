//! The layers between a file system and the disks: md arrays, device mapper, loop devices; and the holders of a device.
//!
//! # Why
//! A request longer than an array's chunk goes to several members, unequal members make the rate depend on the
//! position, and a loop device measures the file system below it.
//!
//! # How it works
//! `md/level`, `md/chunk_size` and `md/raid_disks` describe an array; `slaves/` and `holders/` are the links down and
//! up; `dm/name` is a volume's name in LVM and device mapper, `loop/backing_file` the file behind a loop device.
//!
//! # Limits
//! The stripes of LVM are only in the table of device mapper, which these files do not show. Of several arrays in a
//! stack, the topmost is found.
//!
//! # Example
//! `dm-0` (LVM) over `md0` (raid0, chunk 512 KiB) over four NVMe partitions: [`raid`] of `dm-0` is `md0` with four
//! members.

use std::path::{Path, PathBuf};

use super::{DEPTH_MAX, disk_of, names_in, parsed, size_bytes, text};

/// An md array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raid {
    /// `md0`.
    pub name: String,
    /// `raid0`, `raid1`, `raid4`, `raid5`, `raid6`, `raid10`, `linear`.
    pub level: String,
    /// Consecutive bytes on one member before the next one; `None` if not striped (raid1) or unknown.
    pub chunk_bytes: Option<u64>,
    /// Number of members of the complete array, including missing ones. `None` if the kernel does not report it.
    pub disks: Option<u32>,
    /// The present members, spares included, sorted by name.
    pub members: Vec<Member>,
}

/// A member of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The disk or partition that is the member: `nvme0n1p1`.
    pub name: String,
    /// The whole disk of the member.
    pub disk: String,
    /// Size of the member (not of its disk) in bytes; `None` if the kernel does not report it.
    pub size_bytes: Option<u64>,
    /// Model of its disk; `None` if the kernel does not report it, as for an array of arrays.
    pub model: Option<String>,
}

/// Returns the array that `name` is, is a partition of, or is built on; the topmost of several. `None` if there is
/// none.
#[must_use]
pub fn raid(root: &Path, name: &str) -> Option<Raid> {
    raid_within(root, name, DEPTH_MAX)
}

fn raid_within(root: &Path, name: &str, depth_left: usize) -> Option<Raid> {
    let disk = disk_of(root, name);
    let directory = root.join("block").join(&disk).join("md");
    if let Some(level) = text(&directory, "level") {
        let chunk_bytes = parsed(&directory, "chunk_size").filter(|&bytes: &u64| bytes > 0);
        let members = below(root, &disk).into_iter().map(|name| member(root, name)).collect();
        return Some(Raid { name: disk, level, chunk_bytes, disks: parsed(&directory, "raid_disks"), members });
    }
    let depth_left = depth_left.checked_sub(1)?;
    below(root, name).iter().find_map(|slave| raid_within(root, slave, depth_left))
}

fn member(root: &Path, name: String) -> Member {
    let disk = disk_of(root, &name);
    let model = text(&root.join("block").join(&disk).join("device"), "model");
    Member { size_bytes: size_bytes(root, &name), disk, model, name }
}

/// Returns the name of `name` in device mapper, as in `/dev/mapper`: `vg0-data` for `dm-0`.
#[must_use]
pub fn dm_name(root: &Path, name: &str) -> Option<String> {
    text(&root.join("class/block").join(name).join("dm"), "name")
}

/// Returns the file behind the loop device that `name` is, or is a partition of.
#[must_use]
pub fn backing_file(root: &Path, name: &str) -> Option<PathBuf> {
    text(&root.join("block").join(disk_of(root, name)).join("loop"), "backing_file").map(PathBuf::from)
}

/// Returns the devices built on `name` (a disk or a partition): arrays, LVM volumes, caches. Sorted.
#[must_use]
pub fn holders(root: &Path, name: &str) -> Vec<String> {
    sorted(names_in(&root.join("class/block").join(name).join("holders")))
}

/// Returns the partitions of `disk`, sorted by name.
#[must_use]
pub fn partitions(root: &Path, disk: &str) -> Vec<String> {
    let directory = root.join("block").join(disk);
    sorted(names_in(&directory).into_iter().filter(|name| directory.join(name).join("partition").exists()).collect())
}

/// Returns the devices directly below `name` (a disk or a partition), sorted; empty for a disk at the bottom.
#[must_use]
pub fn below(root: &Path, name: &str) -> Vec<String> {
    let own = names_in(&root.join("class/block").join(name).join("slaves"));
    if !own.is_empty() {
        return sorted(own);
    }
    sorted(names_in(&root.join("block").join(disk_of(root, name)).join("slaves")))
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Tree;
    use super::super::{leaf_disks, number};
    use super::*;
    use std::io;

    #[test]
    fn an_array_is_found_below_lvm_with_its_members() -> io::Result<()> {
        let tree = Tree::raid_of_four("raid")?;
        let found = raid(tree.root(), "dm-0");
        assert_eq!(found, raid(tree.root(), "md0"));
        let Some(found) = found else { panic!("md0 lies below dm-0") };
        assert_eq!((found.name.as_str(), found.level.as_str()), ("md0", "raid0"));
        assert_eq!((found.chunk_bytes, found.disks), (Some(512 << 10), Some(4)));
        let names: Vec<&str> = found.members.iter().map(|member| member.name.as_str()).collect();
        assert_eq!(names, ["nvme0n1p1", "nvme1n1p1", "nvme2n1p1", "nvme3n1p1"]);
        for member in &found.members {
            assert_eq!(format!("{}p1", member.disk), member.name);
            assert_eq!(member.size_bytes, Some(999 << 30));
            assert_eq!(member.model.as_deref(), Some("Amazon EC2 NVMe Instance Storage"));
        }
        assert_eq!(leaf_disks(tree.root(), "dm-0"), ["nvme0n1", "nvme1n1", "nvme2n1", "nvme3n1"]);
        assert_eq!(dm_name(tree.root(), "dm-0").as_deref(), Some("vg0-data"));
        Ok(())
    }

    #[test]
    fn odd_files_of_an_array_are_none() -> io::Result<()> {
        let tree = Tree::raid_of_four("odd-raid")?;
        for (chunk, expect) in [("0\n", None), ("lots\n", None), ("65536\n", Some(65_536))] {
            tree.file("devices/md0/md/chunk_size", chunk)?;
            tree.file("devices/md0/md/raid_disks", "-1\n")?;
            let found = raid(tree.root(), "md0").map(|raid| (raid.chunk_bytes, raid.disks));
            assert_eq!(found, Some((expect, None)), "{chunk}");
        }
        assert_eq!(raid(tree.root(), "nvme0n1"), None);
        assert_eq!(raid(tree.root(), "nowhere"), None);
        Ok(())
    }

    #[test]
    fn a_loop_device_names_its_file() -> io::Result<()> {
        let tree = Tree::new("backing")?;
        tree.disk("loop0", 7, 0, 1 << 30)?;
        assert_eq!(backing_file(tree.root(), "loop0"), None);
        tree.file("devices/loop0/loop/backing_file", "/var/lib/my image\n")?;
        assert_eq!(backing_file(tree.root(), "loop0").as_deref(), Some(Path::new("/var/lib/my image")));
        Ok(())
    }

    #[test]
    fn holders_partitions_and_numbers_are_listed() -> io::Result<()> {
        let tree = Tree::raid_of_four("holders")?;
        assert_eq!(holders(tree.root(), "nvme2n1p1"), ["md0"]);
        assert_eq!(holders(tree.root(), "nvme2n1"), Vec::<String>::new());
        assert_eq!(partitions(tree.root(), "nvme2n1"), ["nvme2n1p1"]);
        assert_eq!(number(tree.root(), "nvme2n1p1"), Some((259, 21)));
        assert_eq!(number(tree.root(), "nowhere"), None);
        Ok(())
    }

    #[test]
    fn a_circle_of_devices_has_no_array() -> io::Result<()> {
        let tree = Tree::new("circle")?;
        tree.disk("sda", 8, 0, 1 << 30)?;
        tree.stack("sda", "sda")?;
        assert_eq!(raid(tree.root(), "sda"), None);
        Ok(())
    }
}
