//! Facts about a device and its host, from `/sys` and `/proc`.
//!
//! # Why
//! The same columns mean another thing on a spinning disk, on an array, and on a volume behind a network. A disk whose
//! data is lost with the instance must not be compared with one that keeps it.
//!
//! # How it works
//! [`facts`] reads the device's own files. A network shows by the name (`rbd0`, `nbd0`, `drbd0`), by the path to the
//! device (iSCSI has a session in it), by the transport of the NVMe controller, or by a model that clouds use. A
//! stacked device is remote if its first disk is, and ephemeral if any is.
//!
//! # Limits
//! The speed of the link is that of the fastest network card that is up, less its overhead ([`USABLE_PARTS`]): the card
//! that serves a volume is not known, and the cards of virtual machines mostly do not report their speed. A SCSI disk
//! of a SAN (Fibre Channel) counts as local. Azure's temporary disk on SCSI has the model name of its network disks,
//! and counts as one.
//!
//! # Example
//! `nvme1n1` with the model `Amazon Elastic Block Store` is remote (`ebs`); `Amazon EC2 NVMe Instance Storage` is
//! ephemeral.

use std::fs;
use std::path::Path;

use plimsoll::sys::sysfs::{self, names_in, text};

use crate::stat::{DeviceFacts, Remote};

/// Part of a card's rated speed that is left for data, by the card's type (`/sys/class/net/CARD/type`, `ARPHRD_*` of
/// Linux's `if_arp.h`). Ethernet: 95.1 of 100 Gb/s, iperf with 96 streams. IP over InfiniBand: 20 of 56 Gb/s on a
/// ConnectX-3 Pro, then a CPU is full; RDMA has no such limit.
const USABLE_PARTS: [(&str, f64); 2] = [("1", 0.951), ("32", 20.0 / 56.0)];

/// A host, as recordings and documents name it.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Host {
    /// The host's name; empty if not known.
    pub name: String,
    /// The kernel's release, such as `6.1.0-18-amd64`; empty if not known.
    pub kernel: String,
    /// The architecture, such as `x86_64`.
    pub machine: String,
    pub cpus: u32,
}

impl Host {
    /// Reads the host of this program. `proc_root` is `/proc`.
    pub fn read(proc_root: &Path) -> Host {
        let kernel = |name: &str| text(&proc_root.join("sys/kernel"), name).unwrap_or_default();
        let stat = fs::read_to_string(proc_root.join("stat")).unwrap_or_default();
        let is_cpu =
            |line: &&str| line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        Host {
            name: kernel("hostname"),
            kernel: kernel("osrelease"),
            machine: std::env::consts::ARCH.to_owned(),
            cpus: u32::try_from(stat.lines().filter(is_cpu).count()).unwrap_or(u32::MAX),
        }
    }
}

/// The asset tag of every virtual machine of Azure (documented for WALinuxAgent and cloud-init).
const AZURE_ASSET_TAG: &str = "7783-7084-3265-9085-8269-3286-77";

/// Reads the facts of `device` (a disk or a partition, such as `nvme0n1`). `sys_root` is `/sys`. Files that are missing
/// or malformed leave their fact unknown.
pub fn facts(sys_root: &Path, device: &str) -> DeviceFacts {
    let entry = sys_root.join("class/block").join(device);
    let is_known_part = entry.join("partition").exists();
    // If `/sys` has no entry, as in some containers, the name decides.
    let is_partition = is_known_part || (!entry.exists() && looks_like_partition(device));
    let disk = if is_known_part { sysfs::disk_of(sys_root, device) } else { device.to_owned() };

    let hardware = sysfs::hardware(sys_root, &disk);
    let queue = sysfs::queue(sys_root, &disk);
    let below = sysfs::leaf_disks(sys_root, &disk);
    let kind = below.first().and_then(|leaf| remote_kind(sys_root, leaf));
    let is_ephemeral = |leaf: &String| sysfs::hardware(sys_root, leaf).keeping == sysfs::Keeping::Ephemeral;

    DeviceFacts {
        model: hardware.model,
        size_bytes: sysfs::size_bytes(sys_root, device),
        is_rotational: queue.rotational,
        is_partition,
        members: if is_partition { Vec::new() } else { sysfs::below(sys_root, &disk) },
        nr_requests: queue.nr_requests.and_then(|count| u32::try_from(count).ok()),
        remote: kind.map(|kind| Remote { kind: kind.to_owned(), link_bytes_per_s: link_bytes_per_s(sys_root, kind) }),
        is_ephemeral: below.iter().any(is_ephemeral),
    }
}

/// Returns the kind of network between the host and `disk`, if any.
fn remote_kind(sys_root: &Path, disk: &str) -> Option<&'static str> {
    let numbered = |prefix: &str| {
        let number = disk.strip_prefix(prefix).unwrap_or_default();
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    if let Some(kind) = ["rbd", "nbd", "drbd"].into_iter().find(|kind| numbered(kind)) {
        return Some(kind);
    }

    let device = sys_root.join("block").join(disk).join("device");
    match text(&device, "model").as_deref() {
        Some("Amazon Elastic Block Store") => return Some("ebs"),
        Some("nvme_card-pd" | "PersistentDisk") => return Some("gcp-pd"),
        Some(model) if model.starts_with("MSFT NVMe Accelerator") => return Some("azure-disk"),
        Some("Virtual Disk") if is_azure(sys_root) => return Some("azure-disk"),
        _ => {}
    }

    match nvme_transport(&device).as_deref() {
        Some("tcp") => Some("nvme-tcp"),
        Some("rdma") => Some("nvme-rdma"),
        Some("fc") => Some("nvme-fc"),
        _ => is_iscsi(&device).then_some("iscsi"),
    }
}

fn is_azure(sys_root: &Path) -> bool {
    text(sys_root, "class/dmi/id/chassis_asset_tag").as_deref() == Some(AZURE_ASSET_TAG)
}

/// Returns the transport of the controller, or with multipath of one of the subsystem's controllers; `None` for other
/// devices than NVMe.
fn nvme_transport(device: &Path) -> Option<String> {
    let of_subsystem = || {
        let mut names = names_in(device);
        names.sort();
        names.iter().filter(|name| name.starts_with("nvme")).find_map(|name| text(&device.join(name), "transport"))
    };
    text(device, "transport").or_else(of_subsystem)
}

/// Returns whether the path has a session: `.../host5/session1/target5:0:0/5:0:0:1`.
fn is_iscsi(device: &Path) -> bool {
    let Ok(path) = fs::canonicalize(device) else { return false };
    path.iter().filter_map(|part| part.to_str()?.strip_prefix("session")).any(|number| number.parse::<u32>().is_ok())
}

/// Returns the usable speed of the fastest network card or bond that is up, for a disk of this kind, in bytes a second.
/// The file `speed` is in Mb/s, -1 if not known.
fn link_bytes_per_s(sys_root: &Path, kind: &str) -> Option<u64> {
    let net = sys_root.join("class/net");
    let speed = |name: &String| {
        let card = net.join(name);
        // Bridges and pairs between containers report speeds that no wire has.
        let is_card = card.join("device").exists() || card.join("bonding").exists();
        let is_up = text(&card, "operstate").as_deref() == Some("up");
        let megabits_per_s: u64 = text(&card, "speed")?.parse().ok()?;
        // Old kernels print -1 as an unsigned number.
        let card_type = text(&card, "type").unwrap_or_default();
        let usable = USABLE_PARTS.iter().find(|(other, _)| *other == card_type && kind != "nvme-rdma");
        let bytes_per_s = megabits_per_s as f64 * 1e6 / 8.0 * usable.map_or(1.0, |(_, part)| *part);
        (is_card && is_up && megabits_per_s > 0 && megabits_per_s < u64::from(u32::MAX))
            .then_some(bytes_per_s.round() as u64)
    };
    names_in(&net).iter().filter_map(speed).max()
}

/// Returns whether a name is a partition's, as the kernel names them: `sda1`, `nvme0n1p1`, `md0p2`. For sources without
/// facts.
pub(crate) fn looks_like_partition(name: &str) -> bool {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if stem.len() == name.len() {
        return false;
    }
    // If a disk's name ends in letters, its partitions add a number; if it ends in a digit, `p` and a number.
    let letters = |prefix: &str| {
        let letters = stem.strip_prefix(prefix).unwrap_or_default();
        !letters.is_empty() && letters.bytes().all(|byte| byte.is_ascii_lowercase())
    };
    let disk = stem.strip_suffix('p').unwrap_or_default();
    ["sd", "hd", "vd", "xvd"].into_iter().any(letters) || disk.ends_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    /// A `/sys` for tests, with directories in `devices` and links to them.
    struct Tree(TempDir);

    impl Tree {
        fn file(&self, path: &str, text: &str) -> io::Result<()> {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap_or(self.0.path()))?;
            fs::write(path, text)
        }

        fn disk(&self, name: &str, files: &[(&str, &str)]) -> io::Result<()> {
            self.file(&format!("devices/{name}/size"), "2048\n")?;
            for (file, text) in files {
                self.file(&format!("devices/{name}/{file}"), text)?;
            }
            for link in ["block", "class/block"] {
                fs::create_dir_all(self.0.path().join(link))?;
                symlink(self.0.path().join("devices").join(name), self.0.path().join(link).join(name))?;
            }
            Ok(())
        }

        fn facts(&self, device: &str) -> DeviceFacts {
            facts(self.0.path(), device)
        }
    }

    #[test]
    fn networks_and_clouds_are_known_by_their_signs() -> io::Result<()> {
        /// Name, files, kind of network, whether the disk is ephemeral.
        type Case = (&'static str, &'static [(&'static str, &'static str)], Option<&'static str>, bool);
        const MODEL: &str = "device/model";
        let table: [Case; 16] = [
            ("sda", &[], None, false),
            ("rbd0", &[], Some("rbd"), false),
            ("rbdx", &[], None, false),
            ("nbd12", &[], Some("nbd"), false),
            ("drbd1", &[], Some("drbd"), false),
            ("nvme0n1", &[("device/transport", "pcie\n"), (MODEL, "Samsung SSD\n")], None, false),
            ("nvme1n1", &[("device/transport", "tcp\n")], Some("nvme-tcp"), false),
            ("nvme2n1", &[("device/nvme3/transport", "rdma\n")], Some("nvme-rdma"), false),
            ("nvme3n1", &[("device/transport", "fc\n")], Some("nvme-fc"), false),
            ("nvme4n1", &[(MODEL, "Amazon Elastic Block Store      \n")], Some("ebs"), false),
            ("nvme5n1", &[(MODEL, "Amazon EC2 NVMe Instance Storage\n")], None, true),
            ("nvme6n1", &[(MODEL, "nvme_card-pd\n")], Some("gcp-pd"), false),
            ("nvme7n1", &[(MODEL, "nvme_card0\n")], None, true),
            ("sdb", &[(MODEL, "PersistentDisk\n")], Some("gcp-pd"), false),
            ("nvme8n1", &[(MODEL, "MSFT NVMe Accelerator v1.0\n")], Some("azure-disk"), false),
            ("nvme9n1", &[(MODEL, "Microsoft NVMe Direct Disk v2\n")], None, true),
        ];

        let tree = Tree(tempfile::tempdir()?);
        for (name, files, kind, is_ephemeral) in table {
            tree.disk(name, files)?;
            let facts = tree.facts(name);
            assert_eq!(facts.remote.as_ref().map(|remote| remote.kind.as_str()), kind, "{name}");
            assert_eq!(facts.is_ephemeral, is_ephemeral, "{name}");
        }

        tree.disk("sdc", &[(MODEL, "Virtual Disk\n")])?;
        assert_eq!(tree.facts("sdc").remote, None, "any Hyper-V has these");
        tree.file("class/dmi/id/chassis_asset_tag", &format!("{AZURE_ASSET_TAG}\n"))?;
        assert_eq!(tree.facts("sdc").remote.map(|remote| remote.kind).as_deref(), Some("azure-disk"));
        Ok(())
    }

    #[test]
    fn a_session_on_the_way_is_iscsi() -> io::Result<()> {
        let tree = Tree(tempfile::tempdir()?);
        let target = "devices/host5/session1/target5:0:0/5:0:0:1";
        tree.file(&format!("{target}/model"), "LUN\n")?;
        tree.disk("sda", &[])?;
        symlink(tree.0.path().join(target), tree.0.path().join("devices/sda/device"))?;
        assert_eq!(tree.facts("sda").remote.map(|remote| remote.kind).as_deref(), Some("iscsi"));
        Ok(())
    }

    #[test]
    fn the_link_is_the_fastest_card_that_is_up() -> io::Result<()> {
        let tree = Tree(tempfile::tempdir()?);
        tree.disk("rbd0", &[])?;
        let link = |tree: &Tree| tree.facts("rbd0").remote.and_then(|remote| remote.link_bytes_per_s);
        assert_eq!(link(&tree), None);

        let cards = [
            ("eth0", "1000", "up", Some("device/vendor")),
            ("eth1", "10000", "up", Some("device/vendor")),
            ("eth2", "100000", "down", Some("device/vendor")),
            ("eth3", "-1", "up", Some("device/vendor")),
            ("eth4", "4294967295", "up", Some("device/vendor")),
            ("veth7", "200000", "up", None),
            ("lo", "", "unknown", None),
        ];
        for (name, speed, state, sign) in cards {
            tree.file(&format!("class/net/{name}/speed"), &format!("{speed}\n"))?;
            tree.file(&format!("class/net/{name}/operstate"), &format!("{state}\n"))?;
            if let Some(sign) = sign {
                tree.file(&format!("class/net/{name}/{sign}"), "1\n")?;
            }
        }

        assert_eq!(link(&tree), Some(1_250_000_000), "a card of no known type has its rated speed");
        tree.file("class/net/eth1/type", "1\n")?;
        assert_eq!(link(&tree), Some(1_188_750_000));
        Ok(())
    }

    #[test]
    fn ip_over_infiniband_is_slower_than_its_link() -> io::Result<()> {
        let tree = Tree(tempfile::tempdir()?);
        for (name, text) in [("speed", "56000"), ("operstate", "up"), ("device/vendor", "1"), ("type", "32")] {
            tree.file(&format!("class/net/ib0/{name}"), &format!("{text}\n"))?;
        }
        for (kind, gigabits_per_s) in [("rbd", 20), ("nvme-tcp", 20), ("nvme-rdma", 56)] {
            assert_eq!(link_bytes_per_s(tree.0.path(), kind), Some(gigabits_per_s * 125_000_000), "{kind}");
        }
        Ok(())
    }

    #[test]
    fn a_stack_has_members_and_takes_after_its_disks() -> io::Result<()> {
        let tree = Tree(tempfile::tempdir()?);
        let instance_store = ("device/model", "Amazon EC2 NVMe Instance Storage\n");
        let queue = [("queue/rotational", "0\n"), ("queue/nr_requests", "1023\n")];
        tree.disk("nvme0n1", &[instance_store, queue[0], queue[1]])?;
        tree.disk("rbd0", &[("rbd0p1/partition", "1\n"), ("rbd0p1/size", "1024\n")])?;
        tree.disk("md0", &[])?;
        symlink(tree.0.path().join("devices/rbd0/rbd0p1"), tree.0.path().join("class/block/rbd0p1"))?;

        let below = |above: &str, below: &str| -> io::Result<()> {
            let slaves = tree.0.path().join("devices").join(above).join("slaves");
            fs::create_dir_all(&slaves)?;
            symlink(tree.0.path().join("devices").join(below), slaves.join(below))
        };
        below("md0", "nvme0n1")?;
        below("md0", "rbd0")?;

        let disk = tree.facts("nvme0n1");
        assert_eq!((disk.is_rotational, disk.nr_requests, disk.size_bytes), (Some(false), Some(1023), Some(1 << 20)));
        let partition = tree.facts("rbd0p1");
        assert_eq!((partition.is_partition, partition.size_bytes), (true, Some(512 << 10)));
        assert_eq!(partition.remote.map(|remote| remote.kind).as_deref(), Some("rbd"));

        let array = tree.facts("md0");
        assert_eq!(
            (array.members, array.is_ephemeral, array.remote),
            (vec!["nvme0n1".into(), "rbd0".into()], true, None)
        );

        assert_eq!(tree.facts("nowhere"), DeviceFacts::default());
        assert_eq!(tree.facts("sda1"), DeviceFacts { is_partition: true, ..DeviceFacts::default() });
        Ok(())
    }

    #[test]
    fn partitions_are_told_by_their_names() {
        let partitions = ["sda1", "sdaa15", "vdb2", "xvda1", "nvme0n1p1", "mmcblk0p2", "md0p1", "md127p3", "loop0p1"];
        let disks =
            ["sda", "nvme0n1", "nvme0c0n1", "mmcblk0", "md0", "dm-0", "rbd0", "zram0", "sd", "sd1", "loop7", "", "p1"];
        for name in partitions {
            assert!(looks_like_partition(name), "{name}");
        }
        for name in disks {
            assert!(!looks_like_partition(name), "{name}");
        }
    }

    #[test]
    fn a_host_tells_its_name() -> io::Result<()> {
        let tree = Tree(tempfile::tempdir()?);
        assert_eq!(Host::read(tree.0.path()).cpus, 0);
        tree.file("sys/kernel/hostname", "db7\n")?;
        tree.file("sys/kernel/osrelease", "6.1.0\n")?;
        tree.file("stat", "cpu  1 2 3 4\ncpu0 1 2 3 4\ncpu1 1 2 3 4\nctxt 7\n")?;
        let host = Host::read(tree.0.path());
        assert_eq!((host.name.as_str(), host.kernel.as_str(), host.cpus), ("db7", "6.1.0", 2));
        Ok(())
    }
}
