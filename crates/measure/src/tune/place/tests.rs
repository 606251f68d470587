//! Places in synthetic kernel trees: RAID, LVM, loop devices, and files that are missing or wrong.

use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::{fs, io};

use plimsoll::backend::{AlignSource, FileInfo};
use plimsoll::sys::sysfs::{self, Member, Raid};
use tempfile::TempDir;

use super::super::report::device::{Device, Leaf, Warning, WarningCode};
use super::super::{TuneOptions, data_bytes};
use super::{Place, PlaceError, block_size, one_per_device, physical_block_bytes, warnings};
use crate::Roots;
use crate::skip::skip;

/// A directory `data` and the roots `sys` and `proc`.
struct Machine(TempDir);

impl Machine {
    fn new() -> io::Result<Machine> {
        let machine = Machine(tempfile::tempdir()?);
        fs::create_dir_all(machine.data())?;
        machine.file("proc/self/mountinfo", "27 1 9:9 / / rw,noatime - xfs /dev/mapper/vg0-data rw,discard\n")?;
        machine.file("proc/sys/kernel/osrelease", "5.15.0-105-generic\n")?;
        Ok(machine)
    }

    /// Adds vg0-data (dm-0) on the raid0 md0 of a partition on each of four instance stores, as the device of `data`.
    fn with_raid() -> io::Result<Machine> {
        let machine = Machine::new()?;
        machine.device("dm-0", "252:0", 1 << 40)?;
        machine.device("md0", "9:0", 4 << 40)?;
        for number in 0..4 {
            let disk = format!("nvme{number}n1");
            machine.device(&disk, &format!("259:{}", number * 2), 1 << 40)?;
            machine.device(&format!("{disk}/{disk}p1"), &format!("259:{}", number * 2 + 1), 1 << 40)?;
            let files = [
                (format!("{disk}/{disk}p1/partition"), "1\n"),
                (format!("{disk}/device/model"), "Amazon EC2 NVMe Instance Storage\n"),
                (format!("{disk}/device/firmware_rev"), "0\n"),
                (format!("{disk}/device/device/current_link_speed"), "8.0 GT/s PCIe\n"),
                (format!("{disk}/device/device/current_link_width"), "4\n"),
                (format!("{disk}/queue/scheduler"), "none [mq-deadline]\n"),
                (format!("{disk}/queue/nr_requests"), "1023\n"),
                (format!("{disk}/queue/physical_block_size"), "4096\n"),
                (format!("{disk}/queue/read_ahead_kb"), "128\n"),
                (format!("{disk}/queue/nomerges"), "0\n"),
            ];
            for (path, content) in files {
                machine.file(&format!("sys/devices/{path}"), content)?;
            }
            machine.link(&format!("devices/md0/slaves/{disk}p1"), &format!("devices/{disk}/{disk}p1"))?;
        }
        machine.link("devices/dm-0/slaves/md0", "devices/md0")?;
        machine.file("sys/devices/md0/md/level", "raid0\n")?;
        machine.file("sys/devices/md0/md/chunk_size", "524288\n")?;
        machine.file("sys/devices/md0/md/raid_disks", "4\n")?;
        machine.data_is_on("dm-0")?;
        Ok(machine)
    }

    fn data(&self) -> PathBuf {
        self.0.path().join("data")
    }

    fn roots(&self) -> Roots {
        Roots { sys: self.0.path().join("sys"), proc: self.0.path().join("proc") }
    }

    fn find(&self) -> Place {
        Place::find(&self.data(), &self.roots()).unwrap()
    }

    /// Adds a device. `path` is a disk, or DISK/PARTITION.
    fn device(&self, path: &str, number: &str, size_bytes: u64) -> io::Result<()> {
        let (name, target) = (path.rsplit('/').next().unwrap_or(path), format!("devices/{path}"));
        self.file(&format!("sys/{target}/dev"), &format!("{number}\n"))?;
        self.file(&format!("sys/{target}/size"), &format!("{}\n", size_bytes / 512))?;
        if !path.contains('/') {
            self.link(&format!("block/{name}"), &target)?;
        }
        self.link(&format!("class/block/{name}"), &target)?;
        self.link(&format!("dev/block/{number}"), &target)
    }

    /// Makes the number of the real file system refer to `path`.
    fn data_is_on(&self, path: &str) -> io::Result<()> {
        let (major, minor) = sysfs::major_minor(self.data().metadata()?.dev());
        let link = format!("dev/block/{major}:{minor}");
        let _ = fs::remove_file(self.0.path().join("sys").join(&link));
        self.link(&link, &format!("devices/{path}"))
    }

    fn file(&self, path: &str, content: &str) -> io::Result<()> {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap_or(self.0.path()))?;
        fs::write(path, content)
    }

    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        let from = self.0.path().join("sys").join(from);
        fs::create_dir_all(from.parent().unwrap_or(self.0.path()))?;
        symlink(self.0.path().join("sys").join(to), from)
    }
}

fn info() -> FileInfo {
    FileInfo {
        len_bytes: 0,
        memory_align_bytes: 512,
        offset_align_bytes: 512,
        align_source: AlignSource::NotNeeded,
        is_block_device: false,
        device: 0,
    }
}

fn codes(warnings: &[Warning]) -> Vec<WarningCode> {
    warnings.iter().map(|warning| warning.code).collect()
}

/// Returns a place on one good disk, with a suitable file system.
fn good() -> Place {
    let leaf = Leaf {
        name: "nvme0n1".into(),
        scheduler: Some("none".into()),
        write_cache: Some("write through".into()),
        nomerges: Some(2),
        rotational: Some(false),
        nr_requests: Some(1023),
        physical_block_bytes: Some(4096),
        ..Leaf::default()
    };
    Place {
        directory: PathBuf::from("/data"),
        is_block_device: false,
        mountpoint: "/data".into(),
        file_system: "xfs".into(),
        mount_options: Vec::new(),
        fs_block_bytes: Some(4096),
        available_bytes: Some(1 << 40),
        device: Some(Device { name: "nvme0n1".into(), leaves: vec![leaf], ..Device::default() }),
        disk_number: Some((259, 0)),
        st_dev: 1,
        raid: None,
        kernel: Some((6, 1)),
    }
}

/// Checks that [`good`] with `change` has exactly one warning, whose text contains all of `parts`.
fn check(code: WarningCode, parts: &[&str], change: impl FnOnce(&mut Place)) {
    let mut place = good();
    change(&mut place);
    let found = warnings(&place, &info(), 4);
    assert_eq!(codes(&found), [code], "{found:?}");
    for part in parts {
        assert!(found[0].message.contains(part), "{part}: {}", found[0].message);
    }
    assert!(!found[0].message.contains('\n'));
}

fn leaf(place: &mut Place) -> &mut Leaf {
    &mut place.device.as_mut().unwrap().leaves[0]
}

fn raid(level: &str, chunk_bytes: u64) -> Raid {
    let member = |number| Member {
        name: format!("nvme{number}n1p1"),
        disk: format!("nvme{number}n1"),
        size_bytes: Some(1 << 40),
        model: Some("A".into()),
    };
    let members = (0..4).map(member).collect();
    Raid { name: "md0".into(), level: level.into(), chunk_bytes: Some(chunk_bytes), disks: Some(4), members }
}

#[test]
fn a_stack_is_described_from_the_volume_to_the_disks() -> io::Result<()> {
    let machine = Machine::with_raid()?;
    let place = machine.find();
    assert_eq!((place.mountpoint.as_str(), place.file_system.as_str()), ("/", "xfs"));
    assert_eq!(place.mount_options, ["rw", "noatime", "discard"]);
    assert!(place.fs_block_bytes.is_some() && place.available_bytes.is_some() && !place.is_block_device);
    assert_eq!(place.disk_number, Some((252, 0)));
    let device = place.device.unwrap();
    assert_eq!((device.name.as_str(), device.size_bytes), ("dm-0", Some(1 << 40)));
    assert_eq!((device.raid_level.as_deref(), device.raid_chunk_bytes), (Some("raid0"), Some(512 << 10)));
    assert_eq!((device.backing_file.as_deref(), device.leaves.len()), (None, 4));
    let leaf = &device.leaves[3];
    assert_eq!((leaf.name.as_str(), leaf.firmware.as_deref()), ("nvme3n1", Some("0")));
    assert_eq!((leaf.size_bytes, leaf.link_bytes_per_s), (Some(1 << 40), Some(3_938_461_538)));
    assert_eq!((leaf.is_ephemeral, leaf.is_network, leaf.read_ahead_bytes), (true, false, Some(128 << 10)));
    Ok(())
}

#[test]
fn equal_disks_share_a_warning() -> io::Result<()> {
    let machine = Machine::with_raid()?;
    let place = Place { available_bytes: Some(1 << 40), fs_block_bytes: Some(4096), ..machine.find() };
    let found = warnings(&place, &info(), 4);
    let expect = [
        WarningCode::Elevator,
        WarningCode::Merges,
        WarningCode::Ephemeral,
        WarningCode::RaidChunk,
        WarningCode::OldRaidKernel,
    ];
    assert_eq!(codes(&found), expect, "{found:?}");
    let elevator = "nvme0n1, nvme1n1, nvme2n1, nvme3n1: elevator mq-deadline orders requests too; `for disk in nvme0n1 \
                    nvme1n1 nvme2n1 nvme3n1; do echo none > /sys/block/$disk/queue/scheduler; done`";
    assert_eq!(found[0].message, elevator);
    Ok(())
}

#[test]
fn a_loop_device_is_known_by_its_file() -> io::Result<()> {
    let machine = Machine::new()?;
    machine.device("loop0", "7:0", 1 << 30)?;
    machine.file("sys/devices/loop0/loop/backing_file", "/images/disk.img\n")?;
    machine.data_is_on("loop0")?;
    let place = Place { available_bytes: Some(1 << 40), fs_block_bytes: Some(4096), ..machine.find() };
    let device = place.device.as_ref().unwrap();
    assert_eq!(device.backing_file.as_deref(), Some("/images/disk.img"));
    assert_eq!(codes(&warnings(&place, &info(), 1)), [WarningCode::LoopDevice]);
    Ok(())
}

#[test]
fn missing_and_wrong_files_are_not_guessed_at() -> io::Result<()> {
    let machine = Machine::new()?;
    assert!(machine.find().device.is_none(), "an empty /sys");
    machine.device("sda", "8:0", 1 << 30)?;
    machine.data_is_on("sda")?;
    let device = machine.find().device.unwrap();
    assert_eq!((device.leaves[0].nr_requests, device.leaves[0].model.as_deref()), (None, None));
    for (wrong, how) in [("33554432\n", "fallback 4096"), ("3000\n", "fallback 4096"), ("-1\n", "fallback 4096")] {
        machine.file("sys/devices/sda/queue/physical_block_size", wrong)?;
        machine.file("sys/devices/sda/size", "much\n")?;
        let device = machine.find().device.unwrap();
        assert_eq!((physical_block_bytes(Some(&device)), device.size_bytes), (None, None), "{wrong}");
        let block = block_size("--read-block-size", None, 512, Some(&device)).unwrap();
        assert!(block.bytes == 4096 && block.how.starts_with(how), "{wrong}: {}", block.how);
    }
    fs::remove_dir_all(machine.0.path().join("proc"))?;
    let place = machine.find();
    assert_eq!(place.mountpoint, place.directory.display().to_string(), "no /proc");
    Ok(())
}

#[test]
fn directories_on_one_file_system_are_measured_once() -> io::Result<()> {
    let machine = Machine::with_raid()?;
    let other = machine.0.path().join("other");
    fs::create_dir(&other)?;
    let here = machine.find();
    let also_here = Place::find(&other, &machine.roots()).unwrap();
    let elsewhere = Place { st_dev: here.st_dev + 1, device: None, ..here.clone() };
    let subvolume = Place { st_dev: here.st_dev + 2, ..here.clone() };
    let kept = one_per_device(vec![here, also_here, elsewhere, subvolume]);
    let numbers: Vec<bool> = kept.iter().map(|place| place.device.is_some()).collect();
    assert_eq!(numbers, [true, false]);
    assert!(kept[0].directory.ends_with("data"));
    Ok(())
}

#[test]
fn files_and_nothing_are_no_places() -> io::Result<()> {
    let machine = Machine::new()?;
    machine.file("file", "")?;
    for (name, part) in [("file", "it is not a directory, and no block device"), ("missing", "No such file")] {
        let error = Place::find(&machine.0.path().join(name), &machine.roots()).unwrap_err();
        assert!(matches!(error, PlaceError::BadPath { .. }));
        assert!(error.to_string().contains(part) && error.to_string().contains(name), "{error}");
    }
    Ok(())
}

#[test]
fn a_block_device_is_a_place_unless_somebody_uses_it() -> io::Result<()> {
    let nodes = fs::read_dir("/dev")?.filter_map(|entry| Some(entry.ok()?.path()));
    let number = |path: &Path| path.metadata().ok().filter(|m| m.file_type().is_block_device()).map(|m| m.rdev());
    let Some((path, rdev)) = nodes.filter_map(|path| Some((path.clone(), number(&path)?))).next() else {
        skip("this machine has no block device in /dev");
        return Ok(());
    };
    let machine = Machine::new()?;
    let unknown = Place::find(&path, &machine.roots()).unwrap_err();
    assert!(matches!(unknown, PlaceError::UsesUnknown { .. }), "{unknown}");
    let (major, minor) = sysfs::major_minor(rdev);
    machine.device("mine", &format!("{major}:{minor}"), 1 << 30)?;
    let place = Place::find(&path, &machine.roots()).unwrap();
    assert!(place.is_block_device && place.disk_number == Some((major, minor)));
    assert_eq!(place.mountpoint, place.directory.display().to_string());
    assert_eq!(place.device.as_ref().and_then(|device| device.size_bytes), Some(1 << 30));
    assert_eq!(warnings(&place, &info(), 4), []);
    machine.link("devices/mine/holders/md7", "devices/md7")?;
    machine.file("proc/self/mountinfo", &format!("27 1 {major}:{minor} / /srv rw - xfs /dev/mine rw\n"))?;
    let error = Place::find(&path, &machine.roots()).unwrap_err().to_string();
    for part in ["is in use", "`umount /srv`", "`mdadm --stop /dev/md7`"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    Ok(())
}

#[test]
fn a_good_place_has_no_warnings() {
    assert_eq!(warnings(&good(), &info(), 4), []);
    let silent = Leaf { name: "nvme0n1".into(), ..Leaf::default() };
    let device = Some(Device { leaves: vec![silent], ..Device::default() });
    assert_eq!(warnings(&Place { device, ..good() }, &info(), u16::MAX), [], "what is not known is not warned of");
}

#[test]
fn settings_are_warned_of_with_the_command() {
    let queue = "/sys/block/nvme0n1/queue";
    check(WarningCode::Elevator, &[&format!("`echo none > {queue}/scheduler`")], |place| {
        leaf(place).scheduler = Some("bfq".into());
    });
    check(WarningCode::WriteCache, &[&format!("`echo \"write through\" > {queue}/write_cache`")], |place| {
        leaf(place).write_cache = Some("write back".into());
    });
    check(WarningCode::Merges, &["nomerges is 1", &format!("`echo 2 > {queue}/nomerges`")], |place| {
        leaf(place).nomerges = Some(1);
    });
    check(WarningCode::Rotational, &[&format!("`echo 0 > {queue}/rotational`")], |place| {
        leaf(place).rotational = Some(true);
    });
    check(
        WarningCode::ManyShards,
        &["nr_requests is 3", "4 shards", &format!("`echo 4 > {queue}/nr_requests`")],
        |place| {
            leaf(place).nr_requests = Some(3);
        },
    );
}

#[test]
fn kinds_of_disks_are_warned_of() {
    check(WarningCode::Ephemeral, &["nvme0n1: Amazon EC2", "lost when the instance stops"], |place| {
        leaf(place).model = Some("Amazon EC2 NVMe Instance Storage".into());
        leaf(place).is_ephemeral = true;
    });
    check(WarningCode::NetworkVolume, &["Elastic Block Store", "credit", "--phase"], |place| {
        leaf(place).model = Some("Amazon Elastic Block Store".into());
        leaf(place).is_network = true;
    });
    check(WarningCode::UnknownDevice, &["/data (xfs)"], |place| place.device = None);
}

#[test]
fn arrays_are_warned_of() {
    check(WarningCode::RaidChunk, &["md0 (raid0)", "512 KiB", "--chunk=1M"], |place| {
        place.raid = Some(raid("raid0", 512 << 10));
    });
    check(WarningCode::RaidChunk, &["stripe of 3 MiB", "--level=10"], |place| {
        place.raid = Some(raid("raid5", 1 << 20))
    });
    check(WarningCode::OldRaidKernel, &["kernel 5.16", "--backend aio"], |place| {
        place.raid = Some(raid("raid0", 1 << 20));
        place.kernel = Some((5, 16));
    });
    check(WarningCode::MixedMembers, &["nvme0n1p1, nvme1n1p1, nvme2n1p1: A; nvme3n1p1: B"], |place| {
        let mut raid = raid("raid0", 1 << 20);
        raid.members[3].model = Some("B".into());
        place.raid = Some(raid);
    });
    check(WarningCode::MixedMembers, &["nvme3n1p1: 2 TiB", "nvme0n1p1, nvme1n1p1, nvme2n1p1: 1 TiB"], |place| {
        let mut raid = raid("raid0", 1 << 20);
        raid.members[2].size_bytes = Some((1 << 40) + (1 << 20));
        raid.members[3].size_bytes = Some(2 << 40);
        place.raid = Some(raid);
    });
    check(WarningCode::MixedMembers, &["nvme0n1: A; sda: B"], |place| {
        let leaves = &mut place.device.as_mut().unwrap().leaves;
        leaves[0].model = Some("A".into());
        leaves.push(Leaf { name: "sda".into(), model: Some("B".into()), ..leaves[0].clone() });
    });
    for fine in [raid("raid0", 1 << 20), raid("raid10", 2 << 20), Raid { chunk_bytes: None, ..raid("raid1", 0) }] {
        let place = Place { raid: Some(fine), ..good() };
        assert_eq!(warnings(&place, &info(), 4), []);
    }
}

#[test]
fn file_systems_are_warned_of() {
    check(WarningCode::FileSystemBlock, &["blocks of 1024 bytes", "`mkfs.xfs -b size=4096`"], |place| {
        place.fs_block_bytes = Some(1024);
        leaf(place).physical_block_bytes = Some(512);
    });
    check(WarningCode::FileSystemBlock, &["works in 16384", "`mkfs.ext4 -b 16384`"], |place| {
        place.file_system = "ext4".into();
        leaf(place).physical_block_bytes = Some(16384);
    });
    check(WarningCode::FewFreeBytes, &["/data: only 9 GiB free", "10 GB"], |place| {
        place.available_bytes = Some(9 << 30);
    });
    let assumed = FileInfo { align_source: AlignSource::AssumedPage, ..info() };
    assert_eq!(codes(&warnings(&good(), &assumed, 4)), [WarningCode::AssumedAlignment]);
}

/// Its spans and its discards end where it ends.
#[test]
fn of_a_device_smaller_than_the_data_its_own_bytes_are_measured() {
    let options = TuneOptions { data_bytes: 1 << 30, ..TuneOptions::new("/dev/none") };
    let place = |is_block_device, size_bytes| {
        let device = Some(Device { size_bytes, ..Device::default() });
        Place { is_block_device, device, ..Place::default() }
    };
    for (is_block_device, size_bytes, bytes) in [
        (true, Some(64 << 20), 64 << 20),
        (true, Some(2 << 30), 1 << 30),
        (true, None, 1 << 30),
        (false, Some(64), 1 << 30),
    ] {
        assert_eq!(data_bytes(&options, &place(is_block_device, size_bytes)), bytes, "{size_bytes:?}");
    }
}
