//! A `/sys` tree for tests, in the temporary directory; removed when dropped.
//!
//! Directories are in `devices/`, as in the kernel's tree, and links lead there.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::{fs, io};

pub(in crate::sys) struct Tree(PathBuf);

impl Tree {
    /// Returns an empty tree. `name` must be unique to the test.
    pub(in crate::sys) fn new(name: &str) -> io::Result<Tree> {
        let root = std::env::temp_dir().join(format!("plimsoll-sysfs-{}-{name}", std::process::id()));
        fs::create_dir_all(root.join("devices"))?;
        Ok(Tree(root))
    }

    /// Returns instance stores nvme0n1 to nvme3n1 (1000 GiB) with a partition each (999 GiB), the raid0 md0 of the
    /// partitions with chunks of 512 KiB, and the LVM volume dm-0 (vg0-data) on it.
    pub(in crate::sys) fn raid_of_four(name: &str) -> io::Result<Tree> {
        let tree = Tree::new(name)?;
        tree.disk("md0", 9, 0, 3996 << 30)?;
        tree.disk("dm-0", 252, 0, 3900 << 30)?;
        for number in 0..4 {
            let disk = format!("nvme{number}n1");
            tree.disk(&disk, 259, number * 10, 1000 << 30)?;
            tree.file(&format!("devices/{disk}/device/model"), "Amazon EC2 NVMe Instance Storage        \n")?;
            tree.partition(&disk, &format!("{disk}p1"), 259, number * 10 + 1, 999 << 30)?;
            tree.stack("md0", &format!("{disk}/{disk}p1"))?;
        }
        tree.stack("dm-0", "md0")?;
        tree.file("devices/md0/md/level", "raid0\n")?;
        tree.file("devices/md0/md/chunk_size", "524288\n")?;
        tree.file("devices/md0/md/raid_disks", "4\n")?;
        tree.file("devices/dm-0/dm/name", "vg0-data\n")?;
        Ok(tree)
    }

    pub(in crate::sys) fn root(&self) -> &Path {
        &self.0
    }

    pub(in crate::sys) fn disk(&self, name: &str, major: u32, minor: u32, size_bytes: u64) -> io::Result<()> {
        self.link(&format!("block/{name}"), &format!("devices/{name}"))?;
        self.device(name, name, major, minor, size_bytes)
    }

    /// Adds a partition `name` of `disk`.
    pub(in crate::sys) fn partition(
        &self,
        disk: &str,
        name: &str,
        major: u32,
        minor: u32,
        size_bytes: u64,
    ) -> io::Result<()> {
        let directory = format!("{disk}/{name}");
        self.file(&format!("devices/{directory}/partition"), "1\n")?;
        self.device(&directory, name, major, minor, size_bytes)
    }

    fn device(&self, directory: &str, name: &str, major: u32, minor: u32, size_bytes: u64) -> io::Result<()> {
        let target = format!("devices/{directory}");
        self.file(&format!("{target}/dev"), &format!("{major}:{minor}\n"))?;
        self.file(&format!("{target}/size"), &format!("{}\n", size_bytes / 512))?;
        self.link(&format!("class/block/{name}"), &target)?;
        self.link(&format!("dev/block/{major}:{minor}"), &target)
    }

    /// Puts the disk `above` on `below` (a disk, or `DISK/PARTITION`).
    pub(in crate::sys) fn stack(&self, above: &str, below: &str) -> io::Result<()> {
        let name = below.rsplit('/').next().unwrap_or(below);
        self.link(&format!("devices/{above}/slaves/{name}"), &format!("devices/{below}"))?;
        self.link(&format!("devices/{below}/holders/{above}"), &format!("devices/{above}"))
    }

    pub(in crate::sys) fn file(&self, path: &str, content: &str) -> io::Result<()> {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap_or(&self.0))?;
        fs::write(path, content)
    }

    pub(in crate::sys) fn link(&self, from: &str, to: &str) -> io::Result<()> {
        let from = self.0.join(from);
        fs::create_dir_all(from.parent().unwrap_or(&self.0))?;
        symlink(self.0.join(to), from)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
