//! Block devices as the kernel describes them under `/sys`.
//!
//! # Why
//! A file has a device number; a disk has a name, a queue, and (for RAID and LVM) disks below it. Tuning reports all of
//! them, because wrong figures often come from a stack that was measured like a single disk.
//!
//! # How it works
//! `dev/block/MAJOR:MINOR` is a link to the device's directory. A partition's directory has a file `partition`, and its
//! disk is the directory above. `slaves/` lists the parts of a stacked device; following it down gives the leaf disks.
//! Every function takes the root (`/sys`), so tests can pass their own tree.
//!
//! [`hardware`] describes a disk (model, firmware, size, PCIe link, whether its data outlives the machine), [`raid`]
//! the md array in a stack and its members; [`dm_name`] and [`backing_file`] give the names of device mapper and loop
//! devices.
//!
//! # Limits
//! Read-only. btrfs and other file systems on several devices have an anonymous device number, which identifies none of
//! them. Stacks deeper than [`DEPTH_MAX`] are cut off there.
//!
//! # Example
//! ```
//! use std::path::Path;
//! use plimsoll::sys::sysfs;
//! // Major 259, minor 1 might be the first partition of nvme0n1.
//! match sysfs::device(Path::new("/sys"), 259, 1) {
//!     Ok(device) => println!("{} on disk {}", device.name, device.disk),
//!     Err(error) => println!("{error}"),
//! }
//! ```

#[cfg(test)]
#[path = "sysfs/tests/fixture.rs"]
pub(in crate::sys) mod fixture;
mod hardware;
mod stack;

pub use hardware::{Hardware, Keeping, hardware};
pub use stack::{Member, Raid, backing_file, below, dm_name, holders, partitions, raid};

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::{fs, str::FromStr};

/// Most layers of a stack (RAID over LVM over ...) that are followed down.
pub const DEPTH_MAX: usize = 16;

/// A block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its name: `nvme0n1p1`, `md0`.
    pub name: String,
    /// Its whole disk: `nvme0n1` for a partition, else its own name.
    pub disk: String,
    /// Whether it is a partition.
    pub is_partition: bool,
}

/// Settings of a disk's queue (`/sys/block/DISK/queue`). A field is `None` if the kernel has no such file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// The active elevator: `none`, `mq-deadline`, `bfq`, `kyber`.
    pub scheduler: Option<String>,
    /// Most requests of the queue per hardware queue.
    pub nr_requests: Option<u64>,
    /// Sector size in which the device works, in bytes.
    pub physical_block_size_bytes: Option<u64>,
    /// Sector size by which the device is addressed, in bytes.
    pub logical_block_size_bytes: Option<u64>,
    /// Largest request that the kernel sends without splitting it, in bytes (`max_sectors_kb` times 1024).
    pub max_request_bytes: Option<u64>,
    /// Bytes that the kernel reads ahead for buffered readers (`read_ahead_kb` times 1024). Direct I/O has no
    /// read-ahead.
    pub read_ahead_bytes: Option<u64>,
    /// `write back` (the device has a volatile cache) or `write through`.
    pub write_cache: Option<String>,
    /// 0: all merges of requests; 1: only cheap ones; 2: none.
    pub nomerges: Option<u64>,
    /// Whether the device reports itself as a spinning disk.
    pub rotational: Option<bool>,
}

/// Splits a device number as the kernel encodes it (`st_dev`, `st_rdev`) into major and minor.
#[must_use]
pub fn major_minor(device: u64) -> (u32, u32) {
    (rustix::fs::major(device), rustix::fs::minor(device))
}

/// Returns the block device with this number.
///
/// # Errors
/// `NotFound` (with the likely cause in the message) if the kernel lists no such block device.
pub fn device(root: &Path, major: u32, minor: u32) -> io::Result<Device> {
    let link = root.join("dev/block").join(format!("{major}:{minor}"));
    let directory = fs::canonicalize(&link).map_err(|error| {
        let hint = if major == 0 { " (major number 0: tmpfs, overlayfs, btrfs and network file systems)" } else { "" };
        io::Error::new(error.kind(), format!("no block device {major}:{minor} at {}{hint}: {error}", link.display()))
    })?;
    let name = last_name(&directory)?;
    let is_partition = directory.join("partition").exists();
    let disk = match directory.parent() {
        Some(parent) if is_partition => last_name(parent)?,
        _ => name.clone(),
    };
    Ok(Device { name, disk, is_partition })
}

/// Reads the queue settings of `disk` (a whole disk's name). Missing or unreadable files give `None`.
#[must_use]
pub fn queue(root: &Path, disk: &str) -> Queue {
    let directory = root.join("block").join(disk).join("queue");
    Queue {
        scheduler: text(&directory, "scheduler").map(|line| active_scheduler(&line)),
        nr_requests: parsed(&directory, "nr_requests"),
        physical_block_size_bytes: parsed(&directory, "physical_block_size"),
        logical_block_size_bytes: parsed(&directory, "logical_block_size"),
        max_request_bytes: kib_as_bytes(&directory, "max_sectors_kb"),
        read_ahead_bytes: kib_as_bytes(&directory, "read_ahead_kb"),
        write_cache: text(&directory, "write_cache"),
        nomerges: parsed(&directory, "nomerges"),
        rotational: parsed::<u64>(&directory, "rotational").map(|flag| flag != 0),
    }
}

/// Returns the disks at the bottom of `disk`: those below a RAID or LVM volume (partitions replaced by their disks), or
/// `disk` itself if there are none. Sorted, each once.
#[must_use]
pub fn leaf_disks(root: &Path, disk: &str) -> Vec<String> {
    let mut leaves = BTreeSet::new();
    collect_leaves(root, disk, DEPTH_MAX, &mut leaves);
    leaves.into_iter().collect()
}

fn collect_leaves(root: &Path, name: &str, depth_left: usize, leaves: &mut BTreeSet<String>) {
    let below = stack::below(root, name);
    if below.is_empty() || depth_left == 0 {
        leaves.insert(disk_of(root, name));
        return;
    }
    for slave in below {
        collect_leaves(root, &slave, depth_left - 1, leaves);
    }
}

/// Returns the number of `name` (a disk or a partition), as (major, minor).
#[must_use]
pub fn number(root: &Path, name: &str) -> Option<(u32, u32)> {
    let line = text(&root.join("class/block").join(name), "dev")?;
    let (major, minor) = line.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Returns the size of `name` (a disk or a partition) in bytes.
#[must_use]
pub fn size_bytes(root: &Path, name: &str) -> Option<u64> {
    // Always in units of 512 bytes, also for disks with other blocks.
    parsed::<u64>(&root.join("class/block").join(name), "size")?.checked_mul(512)
}

/// Returns the number of NUMA nodes of the machine; 1 if the kernel does not list any.
#[must_use]
pub fn numa_nodes(root: &Path) -> u16 {
    let is_node = |name: &String| name.strip_prefix("node").is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()));
    let nodes = names_in(&root.join("devices/system/node")).into_iter().filter(is_node).count();
    u16::try_from(nodes.max(1)).unwrap_or(u16::MAX)
}

/// Returns the NUMA node of each processor that the kernel lists under a node.
#[must_use]
pub(crate) fn nodes_of_cpus(root: &Path) -> BTreeMap<usize, u16> {
    let nodes = root.join("devices/system/node");
    let mut of_cpus = BTreeMap::new();
    for name in names_in(&nodes) {
        let number = name.strip_prefix("node").and_then(|number| number.parse::<u16>().ok());
        let list = text(&nodes.join(&name), "cpulist");
        let Some((node, list)) = number.zip(list) else { continue };
        of_cpus.extend(cpus_in_list(&list).map(|cpu| (cpu, node)));
    }
    of_cpus
}

/// Returns the processors to which the kernel sends the interrupts of disks' requests. `interrupts` is `/proc/irq`.
///
/// Interrupts belong to the PCI function of a disk. The first of several is for its configuration (virtio) or its
/// administration (NVMe), so it does not count.
#[must_use]
pub(crate) fn cpus_of_disk_interrupts(root: &Path, interrupts: &Path) -> BTreeSet<usize> {
    let mut cpus = BTreeSet::new();
    for disk in names_in(&root.join("block")) {
        let Ok(device) = fs::canonicalize(root.join("block").join(disk).join("device")) else { continue };
        let mut of_functions = device.ancestors().map(|directory| numbers_in(&directory.join("msi_irqs")));
        let numbers = of_functions.find(|numbers| !numbers.is_empty()).unwrap_or_default();
        let first_of_requests = usize::from(numbers.len() > 1);

        for number in numbers.iter().skip(first_of_requests) {
            let list = text(&interrupts.join(number.to_string()), "effective_affinity_list").unwrap_or_default();
            cpus.extend(cpus_in_list(&list));
        }
    }
    cpus
}

/// Returns the numbers in a list such as `0-3,8`; skips unreadable parts, and numbers that no processor has.
pub fn cpus_in_list(list: &str) -> impl Iterator<Item = usize> + '_ {
    let ranges = list.split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        (last < 1 << 16).then_some(first..=last)
    });
    ranges.flatten()
}

/// Returns the whole disk of `name` (a disk or a partition); `name` itself if the kernel does not list it.
#[must_use]
pub fn disk_of(root: &Path, name: &str) -> String {
    let directory = fs::canonicalize(root.join("class/block").join(name)).unwrap_or_default();
    match directory.parent() {
        Some(parent) if directory.join("partition").exists() => last_name(parent).unwrap_or_else(|_| name.to_owned()),
        _ => name.to_owned(),
    }
}

/// Returns the names in `directory`, in any order; none if it cannot be read.
#[must_use]
pub fn names_in(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
}

/// Returns the numbers by which the entries of `directory` are named, ascending.
fn numbers_in(directory: &Path) -> BTreeSet<u32> {
    names_in(directory).iter().filter_map(|name| name.parse().ok()).collect()
}

fn last_name(directory: &Path) -> io::Result<String> {
    let name = directory.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    name.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("{} has no name", directory.display())))
}

/// Returns the content of a small kernel file, trimmed; `None` if it is missing or empty.
#[must_use]
pub fn text(directory: &Path, name: &str) -> Option<String> {
    let path: PathBuf = directory.join(name);
    let line = fs::read_to_string(path).ok()?.trim().to_owned();
    (!line.is_empty()).then_some(line)
}

fn parsed<T: FromStr>(directory: &Path, name: &str) -> Option<T> {
    text(directory, name)?.parse().ok()
}

fn kib_as_bytes(directory: &Path, name: &str) -> Option<u64> {
    parsed::<u64>(directory, name)?.checked_mul(1024)
}

/// Returns the active elevator, which the kernel puts in brackets: `none [mq-deadline] bfq`.
fn active_scheduler(line: &str) -> String {
    let bracketed = line.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    bracketed.map_or(line, |(active, _)| active).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fixture::Tree;

    #[test]
    fn processors_are_found_under_their_nodes() -> io::Result<()> {
        let tree = Tree::new("nodes")?;
        for (node, list) in [("node0", "0-2,8\n"), ("node1", "3,5-6,x-9\n"), ("node7", "\n"), ("online", "0-1\n")] {
            tree.file(&format!("devices/system/node/{node}/cpulist"), list)?;
        }
        let expected = [(0, 0), (1, 0), (2, 0), (3, 1), (5, 1), (6, 1), (8, 0)];
        assert_eq!(nodes_of_cpus(tree.root()), expected.into());
        assert!(nodes_of_cpus(&tree.root().join("nothing")).is_empty());
        Ok(())
    }

    #[test]
    fn processors_that_take_a_disks_interrupts_are_found_at_its_pci_function() -> io::Result<()> {
        let tree = Tree::new("interrupts")?;
        // vda has settings (35) and one queue (36); nvme0n1 administration (40) and two queues; sda one interrupt for
        // all; loop0 has no device.
        let disks = [
            ("vda", "devices/pci0/0000:00:02.0", "virtio1", &[35, 36][..]),
            ("nvme0n1", "devices/pci0/0000:00:03.0", "nvme/nvme0", &[40, 41, 42]),
            ("sda", "devices/pci0/0000:00:04.0", "ata1/host0/target0:0:0/0:0:0:0", &[50]),
        ];
        for (disk, function, device, numbers) in disks {
            tree.file(&format!("{function}/{device}/vendor"), "any\n")?;
            tree.link(&format!("block/{disk}/device"), &format!("{function}/{device}"))?;
            for number in numbers {
                tree.file(&format!("{function}/msi_irqs/{number}"), "msix\n")?;
            }
        }
        tree.file("block/loop0/size", "0\n")?;
        for (number, list) in [(35, "0"), (36, "1"), (40, "0"), (41, "4-5"), (42, "6"), (50, "9")] {
            tree.file(&format!("irq/{number}/effective_affinity_list"), &format!("{list}\n"))?;
        }
        let interrupts = tree.root().join("irq");
        assert_eq!(cpus_of_disk_interrupts(tree.root(), &interrupts), [1, 4, 5, 6, 9].into());
        assert!(cpus_of_disk_interrupts(tree.root(), &tree.root().join("nothing")).is_empty());
        assert!(cpus_of_disk_interrupts(&tree.root().join("nothing"), &interrupts).is_empty());
        Ok(())
    }

    /// nvme0n1 (with partition p1), sda, sdb; md0 over nvme0n1p1 and sda; dm-0 over md0.
    fn tree(name: &str) -> io::Result<Tree> {
        let tree = Tree::new(name)?;
        for (disk, major, minor) in
            [("nvme0n1", 259, 0), ("sda", 8, 0), ("sdb", 8, 16), ("md0", 9, 0), ("dm-0", 252, 0)]
        {
            tree.disk(disk, major, minor, 1 << 30)?;
        }
        tree.partition("nvme0n1", "nvme0n1p1", 259, 1, 1 << 29)?;
        for (above, below) in [("md0", "nvme0n1/nvme0n1p1"), ("md0", "sda"), ("dm-0", "md0")] {
            tree.stack(above, below)?;
        }
        let queue = [
            ("scheduler", "none [mq-deadline] bfq\n"),
            ("nr_requests", "1023\n"),
            ("physical_block_size", "4096\n"),
            ("logical_block_size", "512\n"),
            ("max_sectors_kb", "1280\n"),
            ("read_ahead_kb", "128\n"),
            ("write_cache", "write back\n"),
            ("nomerges", "0\n"),
            ("rotational", "0\n"),
        ];
        for (file, content) in queue {
            tree.file(&format!("devices/nvme0n1/queue/{file}"), content)?;
        }
        Ok(tree)
    }

    #[test]
    fn numbers_lead_to_devices_and_partitions_to_disks() -> io::Result<()> {
        let tree = tree("device")?;
        let disk = device(tree.root(), 259, 0)?;
        assert_eq!((disk.name.as_str(), disk.disk.as_str(), disk.is_partition), ("nvme0n1", "nvme0n1", false));
        let part = device(tree.root(), 259, 1)?;
        assert_eq!((part.name.as_str(), part.disk.as_str(), part.is_partition), ("nvme0n1p1", "nvme0n1", true));
        let Err(error) = device(tree.root(), 0, 42) else { panic!("0:42 is not a block device") };
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains("0:42") && error.to_string().contains("tmpfs"), "{error}");
        Ok(())
    }

    #[test]
    fn queue_settings_are_read_and_missing_ones_are_none() -> io::Result<()> {
        let tree = tree("queue")?;
        let expect = Queue {
            scheduler: Some("mq-deadline".into()),
            nr_requests: Some(1023),
            physical_block_size_bytes: Some(4096),
            logical_block_size_bytes: Some(512),
            max_request_bytes: Some(1280 * 1024),
            read_ahead_bytes: Some(128 * 1024),
            write_cache: Some("write back".into()),
            nomerges: Some(0),
            rotational: Some(false),
        };
        assert_eq!(queue(tree.root(), "nvme0n1"), expect);
        assert_eq!(queue(tree.root(), "sda"), Queue::default());
        tree.file("devices/sda/queue/nr_requests", "many\n")?;
        assert_eq!(queue(tree.root(), "sda").nr_requests, None);
        Ok(())
    }

    #[test]
    fn stacks_are_followed_down_to_their_disks() -> io::Result<()> {
        let tree = tree("stack")?;
        for (disk, leaves) in [("sdb", vec!["sdb"]), ("md0", vec!["nvme0n1", "sda"]), ("dm-0", vec!["nvme0n1", "sda"])]
        {
            assert_eq!(leaf_disks(tree.root(), disk), leaves, "{disk}");
        }
        Ok(())
    }

    #[test]
    fn a_loop_of_devices_ends() -> io::Result<()> {
        let tree = tree("loop")?;
        tree.stack("sdb", "sdb")?;
        assert_eq!(leaf_disks(tree.root(), "sdb"), ["sdb"]);
        Ok(())
    }

    #[test]
    fn device_numbers_are_split_as_the_kernel_does() {
        assert_eq!(major_minor(rustix::fs::makedev(259, 1)), (259, 1));
    }
}
